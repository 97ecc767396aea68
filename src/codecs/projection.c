/* SPDX-License-Identifier: Apache-2.0
 * projection.c - coordinates of tensors in a subspace, and the subspace that a tensor lies closest
 * to.
 *
 * Subspace iteration: V becomes the orthonormalized X^T (X V), again and again. X^T X is never
 * made, so the memory is that of two matrices (C, R) in binary64. */
#include "codecs/projection.h"

#include <math.h>
#include <string.h>

#include "arithmetic/half.h"
#include "base/bytes.h"
#include "base/mem.h"
#include "base/sentence.h"
#include "common/cpu.h"
#include "common/tensor.h"
#include "wire/frame.h"

enum { ITERATIONS = 10 };

struct dw_projection {
    dw_allocator allocator;
    uint32_t c, r, digest;
    float *columns; /* (R, C), the matrix transposed */
    float matrix[]; /* (C, R) */
};

/* ---- Making one ------------------------------------------------------------------------------ */

static uint64_t bytes_of(uint32_t c, uint32_t r)
{
    return sizeof(dw_projection) + 2 * sizeof(float) * (uint64_t)c * r;
}

/* Makes a projection whose matrix is not set yet; NULL: there is no memory. */
static dw_projection *allocate(uint32_t c, uint32_t r, const dw_allocator *allocator)
{
    const dw_allocator none = {0};
    dw_allocator own = dw_mem_allocator(allocator ? allocator : &none);
    dw_projection *made = dw_mem_allocate(&own, bytes_of(c, r));
    if (!made) return NULL;
    made->allocator = own;
    made->c = c;
    made->r = r;
    made->columns = made->matrix + (uint64_t)c * r;
    return made;
}

/* Computes what follows from the matrix. */
static void complete(dw_projection *p)
{
    uint8_t bytes[4096];
    uint64_t count = (uint64_t)p->c * p->r, chain = 0;
    for (uint32_t c = 0; c < p->c; c++)
        for (uint32_t r = 0; r < p->r; r++)
            p->columns[(uint64_t)r * p->c + c] = p->matrix[(uint64_t)c * p->r + r];
    /* The digest of each part begins with that of the parts before it, and with the shape. */
    for (uint64_t at = 0; at < count;) {
        size_t used = 16;
        dw_put(bytes, chain, 8);
        dw_put(bytes + 8, p->c, 4);
        dw_put(bytes + 12, p->r, 4);
        for (; at < count && used < sizeof bytes; at++, used += 4)
            dw_put(bytes + used, dw_bits_of(p->matrix[at]), 4);
        chain = dw_digest_bytes(bytes, used);
    }
    p->digest = (uint32_t)chain ? (uint32_t)chain : 1;
}

static dw_status check_rank(uint64_t c, uint64_t r, dw_why *why)
{
    if (r >= 1 && r <= c && c * r <= PTRDIFF_MAX / 16) return DW_OK;
    return dw_say(why, DW_ERR_SHAPE,
                  "a matrix of %llu channels and %llu coordinates is not a projection: the number "
                  "of coordinates must be from 1 to that of the channels",
                  (unsigned long long)c, (unsigned long long)r);
}

dw_status dw_projection_create(dw_projection **projection, const dw_tensor *matrix,
                               const dw_allocator *allocator, dw_why *why)
{
    if (!projection) return DW_ERR_ARGUMENT;
    *projection = NULL;
    dw_status status = matrix ? dw_tensor_check(matrix) : DW_ERR_ARGUMENT;
    if (status) return dw_say(why, status, "the matrix is not a valid tensor");
    if (matrix->dtype != DW_F32 || matrix->n != 1)
        return dw_say(why, DW_ERR_ARGUMENT,
                      "the matrix of a projection is one sample of f32, (1, C, R)");
    status = check_rank(matrix->t, matrix->c, why);
    if (status) return status;
    dw_projection *made = allocate(matrix->t, matrix->c, allocator);
    if (!made) return dw_say(why, DW_ERR_NO_MEMORY, "there is no memory for the matrix");
    for (uint32_t c = 0; c < made->c; c++) {
        const float *from = (const float *)matrix->data + c * matrix->stride_t;
        memcpy(made->matrix + (uint64_t)c * made->r, from, made->r * sizeof *from);
        for (uint32_t r = 0; r < made->r; r++)
            if (!dw_is_finite(from[r])) {
                dw_projection_destroy(made);
                return dw_say(why, DW_ERR_ARGUMENT,
                              "the matrix of a projection has a value that is not finite");
            }
    }
    complete(made);
    *projection = made;
    return DW_OK;
}

void dw_projection_destroy(dw_projection *p)
{
    if (!p) return;
    dw_allocator allocator = p->allocator;
    dw_mem_release(&allocator, p, bytes_of(p->c, p->r));
}

uint32_t dw_projection_digest(const dw_projection *p)
{
    return p ? p->digest : 0;
}

dw_tensor dw_projection_matrix(const dw_projection *p)
{
    if (!p) return (dw_tensor){0};
    return dw_tensor_3d((float *)(uintptr_t)p->matrix, DW_F32, 1, p->c, p->r);
}

/* ---- Projecting ------------------------------------------------------------------------------ */

static float load(const void *from, dw_dtype dtype, uint32_t i)
{
    if (dtype == DW_F32) return ((const float *)from)[i];
    uint16_t half = ((const uint16_t *)from)[i];
    return dtype == DW_F16 ? dw_f16_widen(half) : dw_bf16_widen(half);
}

static void store(void *to, dw_dtype dtype, uint32_t i, float value)
{
    value = dw_same_nan(value);
    if (dtype == DW_F32)
        ((float *)to)[i] = value;
    else
        ((uint16_t *)to)[i] = dtype == DW_F16 ? dw_f16_round(value) : dw_bf16_round(value);
}

static void *row_of(const dw_tensor *tensor, uint32_t n, uint32_t t)
{
    return (char *)dw_tensor_sample(tensor, n) +
           (uint64_t)t * (uint64_t)tensor->stride_t * dw_dtype_bytes(tensor->dtype);
}

/* to[i] = the sum of from[k] * matrix[k][i] over all k < n, in their order. width: at most BLOCK.
 */
enum { BLOCK = 256 };
static void multiply_part(const void *from, dw_dtype dtype, uint32_t n, const float *matrix,
                          uint64_t stride, uint32_t width, float sums[BLOCK])
{
    for (uint32_t i = 0; i < width; i++) sums[i] = 0;
    for (uint32_t k = 0; k < n; k++) {
        float factor = load(from, dtype, k);
        const float *row = matrix + k * stride;
        for (uint32_t i = 0; i < width; i++) sums[i] += factor * row[i];
    }
}

/* Multiplies all tokens of a tensor with a matrix (from->c, to->c). */
static void multiply(const dw_tensor *from, const dw_tensor *to, const float *matrix)
{
    float sums[BLOCK];
    dw_cpu_mode mode = dw_cpu_enter_exact();
    for (uint32_t n = 0; n < from->n; n++)
        for (uint32_t t = 0; t < from->t; t++)
            for (uint32_t at = 0, width; at < to->c; at += width) {
                width = to->c - at < BLOCK ? to->c - at : (uint32_t)BLOCK;
                multiply_part(row_of(from, n, t), from->dtype, from->c, matrix + at, to->c, width,
                              sums);
                for (uint32_t i = 0; i < width; i++)
                    store(row_of(to, n, t), to->dtype, at + i, sums[i]);
            }
    dw_cpu_leave_exact(mode);
}

const float *dw_projection_columns(const dw_projection *p)
{
    return p->columns;
}

dw_status dw_projection_check(uint32_t c, uint32_t r, const dw_tensor *x, const dw_tensor *z,
                              const dw_tensor *written, dw_why *why)
{
    if (c == 0 || !x || !z)
        return dw_say(why, DW_ERR_ARGUMENT, "a projection and two tensors are needed");
    dw_status status = dw_tensor_check(x);
    if (!status) status = dw_tensor_check(z);
    if (status) return dw_say(why, status, "one of the tensors is not valid");
    if (!x->data || !z->data) return dw_say(why, DW_ERR_ARGUMENT, "one of the tensors has no data");
    if (z->dtype != DW_F32) return dw_say(why, DW_ERR_ARGUMENT, "coordinates are f32");
    if (dw_tensor_overlaps(written))
        return dw_say(why, DW_ERR_ARGUMENT, "samples of the tensor to be written overlap");
    if (x->c == c && z->c == r && x->n == z->n && x->t == z->t) {
        if (!dw_tensors_meet(x, z)) return DW_OK;
        return dw_say(why, DW_ERR_ARGUMENT, "the two tensors overlap in memory");
    }
    return dw_say(why, DW_ERR_SHAPE,
                  "the matrix projects %u channels onto %u coordinates, but the tensors are (%u, "
                  "%u, %u) and (%u, %u, %u)",
                  c, r, x->n, x->t, x->c, z->n, z->t, z->c);
}

static dw_status check(const dw_projection *p, const dw_tensor *x, const dw_tensor *z,
                       const dw_tensor *written, dw_why *why)
{
    return dw_projection_check(p ? p->c : 0, p ? p->r : 0, x, z, written, why);
}

dw_status dw_project(const dw_projection *p, const dw_tensor *x, const dw_tensor *z, dw_why *why)
{
    dw_status status = check(p, x, z, z, why);
    if (!status) multiply(x, z, p->matrix);
    return status;
}

dw_status dw_unproject(const dw_projection *p, const dw_tensor *z, const dw_tensor *y, dw_why *why)
{
    dw_status status = check(p, y, z, y, why);
    if (!status) multiply(z, y, p->columns);
    return status;
}

/* ---- Fitting --------------------------------------------------------------------------------- */

/* v and w: (C, R) in binary64; sums: (R). */
typedef struct fitting {
    uint32_t c, r;
    double *v, *w, *sums;
} fitting;

/* Numbers between -1 and 1 that look random: splitmix64. */
static void begin(const fitting *f)
{
    for (uint64_t i = 0; i < (uint64_t)f->c * f->r; i++) {
        uint64_t z = (i + 1) * 0x9e3779b97f4a7c15u;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
        z = (z ^ z >> 27) * 0x94d049bb133111ebu;
        f->v[i] = (double)(z >> 11) * 0x1p-52 - 1;
    }
}

/* Subtracts from column r of v what lies in the columns before it, and returns the square of its
 * length. */
static double subtract_columns(const fitting *f, uint32_t r)
{
    double square = 0;
    for (uint32_t k = 0; k < r; k++) {
        double part = 0;
        for (uint64_t c = 0; c < f->c; c++) part += f->v[c * f->r + k] * f->v[c * f->r + r];
        for (uint64_t c = 0; c < f->c; c++) f->v[c * f->r + r] -= part * f->v[c * f->r + k];
    }
    for (uint64_t c = 0; c < f->c; c++) square += f->v[c * f->r + r] * f->v[c * f->r + r];
    return square;
}

/* The channel whose unit vector lies farthest from the columns before column r. */
static uint64_t farthest_channel(const fitting *f, uint32_t r)
{
    uint64_t best = 0;
    double least = 2;
    for (uint64_t c = 0; c < f->c; c++) {
        double square = 0;
        for (uint32_t k = 0; k < r; k++) square += f->v[c * f->r + k] * f->v[c * f->r + k];
        if (square < least) least = square, best = c;
    }
    return best;
}

/* Makes the columns of v orthonormal, one after the other. What lies along the columns before it is
 * subtracted twice from each column, because once leaves rounding errors. If nothing remains of a
 * column, because x has fewer dimensions than v has columns, a unit vector takes its place. */
static void orthonormalize(const fitting *f)
{
    for (uint32_t r = 0; r < f->r; r++) {
        double before = 0;
        for (uint64_t c = 0; c < f->c; c++) before += f->v[c * f->r + r] * f->v[c * f->r + r];
        (void)subtract_columns(f, r);
        double square = subtract_columns(f, r);
        if (!(square > 1e-20 * before)) {
            uint64_t channel = farthest_channel(f, r);
            for (uint64_t c = 0; c < f->c; c++) f->v[c * f->r + r] = c == channel;
            (void)subtract_columns(f, r);
            square = subtract_columns(f, r);
        }
        double length = sqrt(square);
        for (uint64_t c = 0; c < f->c; c++) f->v[c * f->r + r] /= length;
    }
}

static bool is_finite_row(const void *row, dw_dtype dtype, uint32_t c)
{
    for (uint32_t i = 0; i < c; i++)
        if (!dw_is_finite(load(row, dtype, i))) return false;
    return true;
}

/* Adds a token's part of X^T (X V) to w. */
static void add_row(const fitting *f, const void *row, dw_dtype dtype)
{
    memset(f->sums, 0, f->r * sizeof *f->sums);
    for (uint32_t c = 0; c < f->c; c++) {
        double x = load(row, dtype, c);
        const double *v = f->v + (uint64_t)c * f->r;
        for (uint32_t r = 0; r < f->r; r++) f->sums[r] += x * v[r];
    }
    for (uint32_t c = 0; c < f->c; c++) {
        double x = load(row, dtype, c), *w = f->w + (uint64_t)c * f->r;
        for (uint32_t r = 0; r < f->r; r++) w[r] += x * f->sums[r];
    }
}

/* Returns false if no token is finite. */
static bool iterate(const fitting *f, const dw_tensor *x)
{
    uint64_t rows = 0;
    begin(f);
    orthonormalize(f);
    for (int turn = 0; turn < ITERATIONS; turn++) {
        memset(f->w, 0, (uint64_t)f->c * f->r * sizeof *f->w);
        for (uint32_t n = 0; n < x->n; n++)
            for (uint32_t t = 0; t < x->t; t++) {
                const void *row = row_of(x, n, t);
                if (!is_finite_row(row, x->dtype, x->c)) continue;
                add_row(f, row, x->dtype);
                rows++;
            }
        memcpy(f->v, f->w, (uint64_t)f->c * f->r * sizeof *f->v);
        orthonormalize(f);
    }
    return rows > 0;
}

/* Fits the matrix of a projection that was allocated. */
static dw_status fit(dw_projection *p, const dw_tensor *x, dw_why *why)
{
    uint64_t count = (uint64_t)p->c * p->r, bytes = (2 * count + p->r) * sizeof(double);
    double *memory = dw_mem_allocate(&p->allocator, bytes);
    if (!memory) return dw_say(why, DW_ERR_NO_MEMORY, "there is no memory to fit a matrix");
    fitting f = {p->c, p->r, memory, memory + count, memory + 2 * count};
    dw_cpu_mode mode = dw_cpu_enter_exact();
    bool fitted = iterate(&f, x);
    for (uint64_t i = 0; i < count; i++) p->matrix[i] = (float)f.v[i];
    dw_cpu_leave_exact(mode);
    dw_mem_release(&p->allocator, memory, bytes);
    if (!fitted)
        return dw_say(why, DW_ERR_ARGUMENT,
                      "no token of x has finite values alone, so that no matrix can be fitted");
    complete(p);
    return DW_OK;
}

dw_status dw_projection_fit(dw_projection **projection, const dw_tensor *x, uint32_t rank,
                            const dw_allocator *allocator, dw_why *why)
{
    if (!projection) return DW_ERR_ARGUMENT;
    *projection = NULL;
    dw_status status = x ? dw_tensor_check(x) : DW_ERR_ARGUMENT;
    if (status) return dw_say(why, status, "x is not a valid tensor");
    status = check_rank(x->c, rank, why);
    if (status) return status;
    dw_projection *made = allocate(x->c, rank, allocator);
    if (!made) return dw_say(why, DW_ERR_NO_MEMORY, "there is no memory for the matrix");
    status = fit(made, x, why);
    if (status) {
        dw_projection_destroy(made);
        return status;
    }
    *projection = made;
    return DW_OK;
}
