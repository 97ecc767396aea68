/* SPDX-License-Identifier: Apache-2.0
 * kernels_rotate.h - vector kernels for the rotation of blocks (arithmetic/rotate.h).
 *
 * A part of the vector kernels: see kernels_simd.h, which comes before it. A block of 16, 64 or 256
 * values stays in registers, as far as there are so many. Strides up to 8 are within a vector:
 * f_butterfly exchanges lanes and adds the vector with the signs of the upper lanes turned, so that
 * the lower lanes become a + b and the upper ones a - b. All other strides combine two vectors. */

/* Returns a vector after the step of stride 1, 2, 4 and 8. */
DW_VECTOR f32x16 rotate_lanes(f32x16 v)
{
    v = f_butterfly1(v);
    v = f_butterfly2(v);
    v = f_butterfly4(v);
    return f_butterfly8(v);
}

/* Rotates a block of n vectors, which is 1, 4 or 16, in place. */
DW_VECTOR void rotate_vectors(f32x16 *v, size_t n)
{
    f32x16 first = f_set(1.0f / (float)(LANES * n)), last = f_set(n == 16  ? 16.0f
                                                                  : n == 4 ? 8.0f
                                                                           : 4.0f);
    for (size_t i = 0; i < n; i++) v[i] = rotate_lanes(f_mul(v[i], first));
    for (size_t stride = 1; stride < n; stride *= 2)
        for (size_t from = 0; from < n; from += 2 * stride)
            for (size_t i = from; i < from + stride; i++) {
                f32x16 a = v[i], b = v[i + stride];
                v[i] = f_add(a, b);
                v[i + stride] = f_sub(a, b);
            }
    for (size_t i = 0; i < n; i++) v[i] = f_mul(v[i], last);
}

/* The variant of a kernel, known when its loop is compiled. x: the dtype of x, or in unrotate that
 * of the result. has_prev: 0: there is no prev. In the functions below, n is the number of vectors
 * of a block; 0: nothing is rotated. */
typedef struct rotate_kind {
    dw_dtype x, prev;
    int has_prev;
} rotate_kind;

DW_VECTOR void rotate_blocks(const unsigned char *x, const unsigned char *prev, uint64_t all,
                             float *to, rotate_kind kind, size_t n)
{
    size_t step = n ? n : 1;
    ROLLED for (uint64_t at = 0; at < all; at += LANES * step)
    {
        f32x16 v[16];
        for (size_t i = 0; i < step; i++) {
            v[i] = load(x, kind.x, at + LANES * i);
            if (kind.has_prev) v[i] = f_sub(v[i], load(prev, kind.prev, at + LANES * i));
        }
        if (n) rotate_vectors(v, n);
        for (size_t i = 0; i < step; i++) f_store(to + at + LANES * i, v[i]);
    }
}

DW_VECTOR void rotate_widths(const unsigned char *x, const unsigned char *prev, uint64_t all,
                             uint32_t width, float *to, rotate_kind kind)
{
    switch (width) {
    case 16: rotate_blocks(x, prev, all, to, kind, 1); break;
    case 64: rotate_blocks(x, prev, all, to, kind, 4); break;
    case 256: rotate_blocks(x, prev, all, to, kind, 16); break;
    default: rotate_blocks(x, prev, all, to, kind, 0); break;
    }
}

static void rotate(const void *x, dw_dtype x_dtype, const void *prev, dw_dtype prev_dtype,
                   uint64_t n, uint32_t width, float *to)
{
    rotate_kind kind = {x_dtype, prev_dtype, prev != NULL};
    if (n % LANES) /* width 1 alone */
        dw_kernels_c.rotate(x, x_dtype, prev, prev_dtype, n, width, to);
    else if (!prev && x_dtype == DW_F32)
        rotate_widths(x, NULL, n, width, to, (rotate_kind){DW_F32, DW_F32, 0});
    else if (!prev && x_dtype == DW_BF16)
        rotate_widths(x, NULL, n, width, to, (rotate_kind){DW_BF16, DW_F32, 0});
    else if (prev && x_dtype == DW_F32 && prev_dtype == DW_F32)
        rotate_widths(x, prev, n, width, to, (rotate_kind){DW_F32, DW_F32, 1});
    else if (prev && x_dtype == DW_BF16 && prev_dtype == DW_BF16)
        rotate_widths(x, prev, n, width, to, (rotate_kind){DW_BF16, DW_BF16, 1});
    else
        rotate_widths(x, prev, n, width, to, kind);
}

DW_VECTOR void unrotate_blocks(const float *from, uint64_t all, const unsigned char *prev,
                               unsigned char *to, rotate_kind kind, size_t n)
{
    size_t step = n ? n : 1;
    ROLLED for (uint64_t at = 0; at < all; at += LANES * step)
    {
        f32x16 v[16];
        for (size_t i = 0; i < step; i++) v[i] = f_load(from + at + LANES * i);
        if (n) rotate_vectors(v, n);
        for (size_t i = 0; i < step; i++) {
            f32x16 base = kind.has_prev ? load(prev, kind.prev, at + LANES * i) : f_set(0);
            store(to, kind.x, at + LANES * i, f_add(base, v[i]));
        }
    }
}

DW_VECTOR void unrotate_widths(const float *from, uint64_t all, uint32_t width,
                               const unsigned char *prev, unsigned char *to, rotate_kind kind)
{
    switch (width) {
    case 16: unrotate_blocks(from, all, prev, to, kind, 1); break;
    case 64: unrotate_blocks(from, all, prev, to, kind, 4); break;
    case 256: unrotate_blocks(from, all, prev, to, kind, 16); break;
    default: unrotate_blocks(from, all, prev, to, kind, 0); break;
    }
}

static void unrotate(const float *from, uint64_t n, uint32_t width, const void *prev,
                     dw_dtype prev_dtype, void *to, dw_dtype to_dtype)
{
    rotate_kind kind = {to_dtype, prev_dtype, prev != NULL};
    if (n % LANES)
        dw_kernels_c.unrotate(from, n, width, prev, prev_dtype, to, to_dtype);
    else if (!prev && to_dtype == DW_F32)
        unrotate_widths(from, n, width, NULL, to, (rotate_kind){DW_F32, DW_F32, 0});
    else if (!prev && to_dtype == DW_BF16)
        unrotate_widths(from, n, width, NULL, to, (rotate_kind){DW_BF16, DW_F32, 0});
    else if (prev && to_dtype == DW_F32 && prev_dtype == DW_F32)
        unrotate_widths(from, n, width, prev, to, (rotate_kind){DW_F32, DW_F32, 1});
    else if (prev && to_dtype == DW_BF16 && prev_dtype == DW_BF16)
        unrotate_widths(from, n, width, prev, to, (rotate_kind){DW_BF16, DW_BF16, 1});
    else
        unrotate_widths(from, n, width, prev, to, kind);
}
