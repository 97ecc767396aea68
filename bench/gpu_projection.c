/* SPDX-License-Identifier: Apache-2.0
 * gpu_projection.c - checks projections on a GPU against those on the CPU. */
#include "gpu_projection.h"

#include <stdlib.h>
#include <string.h>

#include "deltawire/projection.h"

/* Values between -2 and 2 that look random, and some that are not finite. */
static void fill(void *to, dw_dtype dtype, size_t elements, uint64_t seed)
{
    for (size_t i = 0; i < elements; i++) {
        uint64_t z = (seed + i) * 0x9e3779b97f4a7c15u;
        uint32_t bits = 0x3f800000u | (uint32_t)(z >> 41) | (uint32_t)(z >> 40 & 1) << 31;
        if (dtype != DW_F16 && z % 4099 == 0) bits |= 0x7f800000u;
        if (dtype == DW_F32) ((uint32_t *)to)[i] = bits;
        if (dtype == DW_BF16) ((uint16_t *)to)[i] = (uint16_t)(bits >> 16);
        if (dtype == DW_F16)
            ((uint16_t *)to)[i] = (uint16_t)(0x3c00 | (z >> 54) | (z >> 48 & 1) << 15);
    }
}

/* A tensor on the device, and its twin in main memory. */
typedef struct twins {
    dw_tensor here, there;
    size_t bytes;
} twins;

static twins make_twins(dw_dtype dtype, uint32_t t, uint32_t c)
{
    size_t bytes = (size_t)t * c * (dtype == DW_F32 ? 4 : 2);
    void *here = calloc(1, bytes), *there = gpu_allocate(bytes);
    gpu_expect(here && there, "no memory");
    return (twins){dw_tensor_3d(here, dtype, 1, t, c), dw_tensor_3d(there, dtype, 1, t, c), bytes};
}

static void compare(const gpu *g, twins *pair, const char *what)
{
    void *found = malloc(pair->bytes);
    gpu_expect(found != NULL, "no memory");
    gpu_wait(g);
    gpu_get(found, pair->there.data, pair->bytes);
    gpu_expect(memcmp(found, pair->here.data, pair->bytes) == 0,
               "projections: %s of (1, %u, %u) differs from that of the CPU", what, pair->here.t,
               pair->here.c);
    free(found);
}

static void free_twins(const twins *pair)
{
    free(pair->here.data);
    gpu_free(pair->there.data);
}

static size_t check(gpu *g, dw_dtype dtype, uint32_t t, uint32_t c, uint32_t r)
{
    dw_projection *p;
    dw_cuda_projection *on_device;
    dw_why why;
    twins x = make_twins(dtype, t, c), z = make_twins(DW_F32, t, r), y = make_twins(dtype, t, c);
    float *values = malloc(sizeof *values * c * r);
    gpu_expect(values != NULL, "no memory");
    for (size_t i = 0; i < (size_t)c * r; i++)
        values[i] = (float)(i * 2654435761u % 2048) / 1024 - 1;
    dw_tensor matrix = dw_tensor_3d(values, DW_F32, 1, c, r);
    gpu_expect(dw_projection_create(&p, &matrix, NULL, &why) == DW_OK, "%s", why.text);
    gpu_expect(dw_cuda_projection_create(&on_device, g->cuda, p, &why) == DW_OK, "%s", why.text);
    fill(x.here.data, dtype, (size_t)t * c, c + r);
    gpu_put(x.there.data, x.here.data, x.bytes);
    gpu_expect(dw_project(p, &x.here, &z.here, &why) == DW_OK, "%s", why.text);
    gpu_expect(dw_unproject(p, &z.here, &y.here, &why) == DW_OK, "%s", why.text);
    gpu_expect(dw_project_async(on_device, &x.there, &z.there, g->stream, &why) == DW_OK, "%s",
               why.text);
    gpu_expect(dw_unproject_async(on_device, &z.there, &y.there, g->stream, &why) == DW_OK, "%s",
               why.text);
    compare(g, &z, "z");
    compare(g, &y, "y");
    free_twins(&x);
    free_twins(&z);
    free_twins(&y);
    free(values);
    dw_cuda_projection_destroy(on_device);
    dw_projection_destroy(p);
    return (size_t)t * (c + r);
}

size_t gpu_projection_check(gpu *g, uint64_t elements)
{
    static const uint32_t shapes[][2] = {{768, 64}, {100, 7}, {2049, 96}};
    size_t compared = 0;
    for (uint32_t i = 0; i < 3; i++) {
        uint64_t tokens = elements / shapes[i][0];
        compared += check(g, DW_F32 + (dw_dtype)i,
                          tokens < 1      ? 1
                          : tokens > 4096 ? 4096
                                          : (uint32_t)tokens,
                          shapes[i][0], shapes[i][1]);
    }
    return compared;
}
