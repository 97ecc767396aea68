/* SPDX-License-Identifier: Apache-2.0
 * kernels_rans.h - the kernels of the entropy coder: those of C, until the vector ones are here. */
static void histogram(const uint8_t *codes, uint64_t n, uint32_t counts[256])
{
    dw_kernels_c.histogram(codes, n, counts);
}

static uint64_t rans_encode(const dw_rans_encode_run *run)
{
    return dw_kernels_c.rans_encode(run);
}

static uint64_t rans_decode(const dw_rans_decode_run *run)
{
    return dw_kernels_c.rans_decode(run);
}
