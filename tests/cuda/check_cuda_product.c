/* SPDX-License-Identifier: Apache-2.0
 * check_cuda_product.c - compares the kernel that multiplies tokens with a matrix, executed on the
 * CPU, with dw_project and dw_unproject: all bits of the result, and nothing else written.
 *
 * check_cuda_product [--share N]: run only one in N of the random products. */
#include <math.h>

#include "../../cuda/message_product.h"
#include "codecs/projection.h"
#include "emulated.h"
#include "sample.h"

static uint32_t share = 1;

/* A tensor with gaps in memory that ends with its last element. */
typedef struct held {
    dw_tensor tensor;
    unsigned char *memory;
    size_t bytes;
} held;

static held make_tensor(dw_dtype dtype, uint32_t n, uint32_t t, uint32_t c, bool spoils)
{
    static const float sizes[] = {1, 1, 1e-20f, 1e30f, 3e4f};
    held h;
    dw_tensor dense = dw_tensor_3d(NULL, dtype, n, t, c);
    size_t size = dw_dtype_bytes(dtype);
    dense.stride_t += sample_below(2) ? sample_below(9) : 0;
    dense.stride_n = dense.stride_t * (int64_t)t + (sample_below(2) ? sample_below(9) : 0);
    size_t elements =
        (size_t)(n - 1) * (size_t)dense.stride_n + (size_t)(t - 1) * (size_t)dense.stride_t + c;
    h.bytes = elements * size;
    h.memory = malloc(h.bytes);
    assert_non_null(h.memory);
    test_fill(&sample_source, h.memory, dtype, elements, sizes[sample_below(5)]);
    if (spoils) test_spoil(&sample_source, h.memory, dtype, elements, (int)sample_below(2));
    dense.data = h.memory;
    h.tensor = dense;
    return h;
}

static held copy_of(const held *like)
{
    held h = *like;
    h.memory = malloc(h.bytes);
    assert_non_null(h.memory);
    memcpy(h.memory, like->memory, h.bytes);
    h.tensor.data = h.memory;
    return h;
}

/* Returns a projection of random values; its columns need not be orthonormal. */
static dw_projection *make_projection(uint32_t c, uint32_t r)
{
    dw_projection *made;
    float *values = malloc(sizeof *values * c * r);
    assert_non_null(values);
    test_fill(&sample_source, values, DW_F32, (size_t)c * r, 1.0f);
    for (size_t i = 0; i < (size_t)c * r; i++)
        if (!isfinite(values[i])) values[i] = -0.5f;
    dw_tensor matrix = dw_tensor_3d(values, DW_F32, 1, c, r);
    assert_int_equal(dw_projection_create(&made, &matrix, NULL, NULL), DW_OK);
    free(values);
    return made;
}

static void multiply(const held *from, const held *to, const float *matrix)
{
    const dw_tensor *f = &from->tensor, *t = &to->tensor;
    dw_cuda_product product = {f->data,     matrix,      t->data, f->stride_n, f->stride_t,
                               t->stride_n, t->stride_t, f->n,    f->t,        f->c,
                               t->c,        f->dtype,    t->dtype};
    assert_int_equal(dw_shim_launch("dw_multiply_tokens", &product, 0, dw_product_blocks(&product)),
                     1);
}

static void compare(bool back, uint32_t draw)
{
    static const uint32_t channels[] = {1, 3, 31, 32, 33, 96, 100, 200};
    uint32_t c = channels[sample_below(8)], r = 1 + sample_below(c < 70 ? c : 70);
    uint32_t n = 1 + sample_below(3), t = 1 + sample_below(40);
    dw_projection *p = make_projection(c, r);
    dw_dtype dtype = (dw_dtype)(DW_F32 + sample_below(3));
    held x = make_tensor(dtype, n, t, c, !back && sample_below(2)),
         z = make_tensor(DW_F32, n, t, r, back && sample_below(2));
    held expected = copy_of(back ? &x : &z), found = copy_of(back ? &x : &z);
    dw_shim_turn_round(draw % 2);
    if (back) {
        assert_int_equal(dw_unproject(p, &z.tensor, &expected.tensor, NULL), DW_OK);
        multiply(&z, &found, dw_projection_columns(p));
    } else {
        assert_int_equal(dw_project(p, &x.tensor, &expected.tensor, NULL), DW_OK);
        multiply(&x, &found, dw_projection_matrix(p).data);
    }
    if (memcmp(expected.memory, found.memory, found.bytes) != 0)
        fail_msg("draw %u: (%u, %u, %u), %u coordinates, dtype %d, back %d", draw, n, t, c, r,
                 (int)dtype, (int)back);
    free(x.memory);
    free(z.memory);
    free(expected.memory);
    free(found.memory);
    dw_projection_destroy(p);
}

static void products_equal_those_of_the_cpu(void **state)
{
    sample_source.state = test_seed();
    for (uint32_t draw = 0; draw < 1200 / share; draw++) compare(sample_below(2), draw);
}

int main(int argc, char **argv)
{
    share = test_share(argc, argv);
    const struct CMUnitTest tests[] = {cmocka_unit_test(products_equal_those_of_the_cpu)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
