/* SPDX-License-Identifier: Apache-2.0
 * kernels_weigh.h - vector kernels for weights of channels (arithmetic/profile.h).
 *
 * A part of the vector kernels: see kernels_simd.h, which comes before it. */

/* The variant of a kernel, known when its loop is compiled. x: the dtype of x, or in unweigh that
 * of the result. has_base: 0: there is no base. */
typedef struct weigh_kind {
    dw_dtype x, base;
    int has_base;
} weigh_kind;

/* Calls `loop` with its variant as constants for the dtypes that are used most. */
#define WEIGH_KINDS(loop, x, base, base_dtype, ...)                                                \
    do {                                                                                           \
        if (!(base) && (x) == DW_F32)                                                              \
            loop(__VA_ARGS__, (weigh_kind){DW_F32, DW_F32, 0});                                    \
        else if (!(base) && (x) == DW_BF16)                                                        \
            loop(__VA_ARGS__, (weigh_kind){DW_BF16, DW_F32, 0});                                   \
        else if ((base) && (x) == DW_F32 && (base_dtype) == DW_F32)                                \
            loop(__VA_ARGS__, (weigh_kind){DW_F32, DW_F32, 1});                                    \
        else if ((base) && (x) == DW_BF16 && (base_dtype) == DW_F32)                               \
            loop(__VA_ARGS__, (weigh_kind){DW_BF16, DW_F32, 1});                                   \
        else if ((base) && (x) == DW_BF16 && (base_dtype) == DW_BF16)                              \
            loop(__VA_ARGS__, (weigh_kind){DW_BF16, DW_BF16, 1});                                  \
        else                                                                                       \
            loop(__VA_ARGS__, (weigh_kind){(x), (base_dtype), (base) != NULL});                    \
    } while (0)

/* n: a multiple of the number of lanes. */
DW_VECTOR void weigh_all(const unsigned char *x, const unsigned char *base, const float *inverses,
                         uint64_t n, float *to, weigh_kind kind)
{
    ROLLED for (uint64_t at = 0; at < n; at += LANES)
    {
        f32x16 v = load(x, kind.x, at);
        if (kind.has_base) v = f_sub(v, load(base, kind.base, at));
        f_store(to + at, f_mul(v, f_load(inverses + at)));
    }
}

static void weigh(const void *x, dw_dtype x_dtype, const void *base, dw_dtype base_dtype,
                  const float *inverses, uint64_t n, float *to)
{
    uint64_t whole = n / LANES * LANES;
    WEIGH_KINDS(weigh_all, x_dtype, base, base_dtype, x, base, inverses, whole, to);
    if (whole == n) return;
    const unsigned char *bases = base;
    dw_kernels_c.weigh((const unsigned char *)x + whole * bytes_of(x_dtype), x_dtype,
                       base ? bases + whole * bytes_of(base_dtype) : NULL, base_dtype,
                       inverses + whole, n - whole, to + whole);
}

DW_VECTOR void unweigh_all(const float *from, const float *weights, const unsigned char *base,
                           uint64_t n, unsigned char *to, weigh_kind kind)
{
    ROLLED for (uint64_t at = 0; at < n; at += LANES)
    {
        f32x16 b = kind.has_base ? load(base, kind.base, at) : f_set(0);
        store(to, kind.x, at, f_add(b, f_mul(f_load(from + at), f_load(weights + at))));
    }
}

static void unweigh(const float *from, const float *weights, const void *base, dw_dtype base_dtype,
                    uint64_t n, void *to, dw_dtype to_dtype)
{
    uint64_t whole = n / LANES * LANES;
    WEIGH_KINDS(unweigh_all, to_dtype, base, base_dtype, from, weights, base, whole, to);
    if (whole == n) return;
    const unsigned char *bases = base;
    dw_kernels_c.unweigh(from + whole, weights + whole,
                         base ? bases + whole * bytes_of(base_dtype) : NULL, base_dtype, n - whole,
                         (unsigned char *)to + whole * bytes_of(to_dtype), to_dtype);
}
#undef WEIGH_KINDS
