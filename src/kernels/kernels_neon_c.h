/* SPDX-License-Identifier: Apache-2.0
 * kernels_neon_c.h - the kernels that the table of Advanced SIMD leaves to C.
 *
 * Included by kernels_neon.c. */

static void count_parts(const uint8_t *high, uint64_t n, uint32_t counts[DW_PARTS])
{
    dw_kernels_c.count_parts(high, n, counts);
}

static void sort_parts(const uint8_t *high, const uint8_t *codes, uint64_t n,
                       uint8_t *next[DW_PARTS])
{
    dw_kernels_c.sort_parts(high, codes, n, next);
}

static void restore_parts(const uint8_t *high, const uint8_t *next[DW_PARTS], uint64_t n,
                          uint8_t *codes)
{
    dw_kernels_c.restore_parts(high, next, n, codes);
}

static uint64_t rans_encode(const dw_rans_encode_run *run)
{
    return dw_kernels_c.rans_encode(run);
}

static uint64_t rans_decode(const dw_rans_decode_run *run)
{
    return dw_kernels_c.rans_decode(run);
}

static uint64_t rans_decode_trellis(const dw_rans_trellis_run *run)
{
    return dw_kernels_c.rans_decode_trellis(run);
}

static void trellis_marks(const uint8_t *codes, uint64_t n, uint8_t *states, uint8_t *marks)
{
    dw_kernels_c.trellis_marks(codes, n, states, marks);
}

static void rotate(const void *x, dw_dtype x_dtype, const void *prev, dw_dtype prev_dtype,
                   uint64_t n, uint32_t width, float *to)
{
    dw_kernels_c.rotate(x, x_dtype, prev, prev_dtype, n, width, to);
}

static void unrotate(const float *from, uint64_t n, uint32_t width, const void *prev,
                     dw_dtype prev_dtype, void *to, dw_dtype to_dtype)
{
    dw_kernels_c.unrotate(from, n, width, prev, prev_dtype, to, to_dtype);
}

static uint64_t collect(const float *values, uint64_t n, uint32_t least, uint8_t *mask, float *list)
{
    return dw_kernels_c.collect(values, n, least, mask, list);
}
