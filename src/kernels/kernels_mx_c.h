/* SPDX-License-Identifier: Apache-2.0
 * kernels_mx_c.h - the microscaling kernels in plain C: the specification that all other tables
 * must match.
 *
 * Included by kernels_c.c after its helpers. */

/* A block while it is encoded: all in binary32, padding included. */
typedef struct mx_block {
    float x[DW_MX_BLOCK], base[DW_MX_BLOCK], delta[DW_MX_BLOCK];
    uint8_t codes[DW_MX_BLOCK];
} mx_block;

/* The largest magnitude, as an integer, so that the order of the values does not matter. NaN counts
 * as infinite, because processors differ in the bits of the NaN that a subtraction gives. */
static uint32_t mx_largest(const float *values)
{
    uint32_t largest = 0;
    for (uint32_t i = 0; i < DW_MX_BLOCK; i++) {
        uint32_t magnitude = dw_bits_of(values[i]) & 0x7fffffffu;
        largest = magnitude > largest ? magnitude : largest;
    }
    return largest < DW_F32_INFINITY ? largest : DW_F32_INFINITY;
}

/* Returns whether a block is direct. If so, delta becomes x and base becomes 0. */
static bool mx_choose(mx_block *b, bool chooses, uint32_t *largest)
{
    *largest = mx_largest(b->delta);
    uint32_t of_x = chooses ? mx_largest(b->x) : *largest;
    if (of_x >= *largest) return false;
    *largest = of_x;
    memcpy(b->delta, b->x, sizeof b->delta);
    memset(b->base, 0, sizeof b->base);
    return true;
}

/* Computes the new prev of a block from its codes, as a decoder does. */
static void mx_reconstruct(const uint8_t *codes, const float *base, uint64_t n, dw_element element,
                           uint32_t scale, void *to, dw_dtype dtype)
{
    float out[DW_MX_BLOCK], power = dw_mx_power(scale);
    dw_element_facts facts = dw_element_facts_of(element);
    for (uint64_t i = 0; i < n; i++)
        out[i] = base[i] + dw_mx_value_of(codes[i], facts, element) * power;
    narrow(out, n, to, dtype);
}

static void mx_load(mx_block *b, const dw_mx_encode_run *run, uint64_t at, uint64_t n)
{
    memset(b, 0, sizeof *b);
    widen(element(run->x, run->x_dtype, at), run->x_dtype, n, b->x);
    if (run->prev) widen(element(run->prev, run->prev_dtype, at), run->prev_dtype, n, b->base);
    subtract(b->x, b->base, DW_MX_BLOCK, b->delta);
}

static void mx_encode_block(const dw_mx_encode_run *run, uint32_t i, uint64_t at, uint64_t n)
{
    mx_block b;
    uint32_t largest;
    dw_element_facts facts = dw_element_facts_of(run->element);
    mx_load(&b, run, at, n);
    bool direct = mx_choose(&b, run->choices != NULL, &largest);
    uint32_t scale = dw_mx_scale_of(largest, facts.top);
    bool poisoned = scale == DW_MX_POISONED;
    if (direct) {
        uint64_t bit = run->first_piece + i;
        run->choices[bit / 8] = (uint8_t)(run->choices[bit / 8] | 1u << bit % 8);
    }
    float inverse = poisoned ? 0.0f : dw_mx_inverse(scale);
    for (uint32_t k = 0; k < DW_MX_BLOCK && !poisoned; k++)
        b.codes[k] = dw_mx_code_of(b.delta[k], inverse, facts, run->element);
    run->scales[i] = (uint8_t)scale;
    dw_pack(b.codes, DW_MX_BLOCK, facts.bits, run->codes, run->tile_elements,
            run->first + (size_t)i * DW_MX_BLOCK);
    run->counts->pieces++;
    run->counts->direct += direct;
    run->counts->zero += largest == 0;
    run->counts->poisoned += poisoned;
    if (!run->next) return;
    void *next = (void *)(uintptr_t)element(run->next, run->prev_dtype, at);
    if (poisoned)
        keep(run->prev ? element(run->prev, run->prev_dtype, at) : NULL, n, next, run->prev_dtype);
    else
        mx_reconstruct(b.codes, b.base, n, run->element, scale, next, run->prev_dtype);
}

static void mx_encode_c(const dw_mx_encode_run *run)
{
    for (uint32_t i = 0; i < run->blocks; i++) {
        uint64_t at = (uint64_t)i * DW_MX_BLOCK, left = run->channels - at;
        mx_encode_block(run, i, at, left < DW_MX_BLOCK ? left : (uint64_t)DW_MX_BLOCK);
    }
}

static void mx_decode_block(const dw_mx_decode_run *run, uint32_t i, uint64_t at, uint64_t n)
{
    uint8_t codes[DW_MX_BLOCK];
    float base[DW_MX_BLOCK] = {0};
    uint64_t bit = run->first_piece + i;
    bool direct = run->choices && (run->choices[bit / 8] >> bit % 8 & 1);
    void *out = (void *)(uintptr_t)element(run->out, run->out_dtype, at);
    const void *prev = run->prev ? element(run->prev, run->prev_dtype, at) : NULL;
    if (run->scales[i] == DW_MX_POISONED) {
        if (run->poison_keeps)
            keep(prev, n, out, run->out_dtype);
        else
            fill_nan(out, run->out_dtype, n);
        return;
    }
    if (prev && !direct) widen(prev, run->prev_dtype, n, base);
    dw_unpack(codes, DW_MX_BLOCK, dw_element_facts_of(run->element).bits, run->codes,
              run->tile_elements, run->first + (size_t)i * DW_MX_BLOCK);
    mx_reconstruct(codes, base, n, run->element, run->scales[i], out, run->out_dtype);
}

static void mx_decode_c(const dw_mx_decode_run *run)
{
    for (uint32_t i = 0; i < run->blocks; i++) {
        uint64_t at = (uint64_t)i * DW_MX_BLOCK, left = run->channels - at;
        mx_decode_block(run, i, at, left < DW_MX_BLOCK ? left : (uint64_t)DW_MX_BLOCK);
    }
    if (run->sum)
        *run->sum += digest_c(run->out, run->out_dtype, run->element_number, run->channels);
}
