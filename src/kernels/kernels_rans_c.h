/* SPDX-License-Identifier: Apache-2.0
 * kernels_rans_c.h - the kernels of the entropy coder in plain C: the specification that all other
 * tables must match.
 *
 * Included by kernels_c.c. */

static void histogram_c(const uint8_t *codes, uint64_t n, uint32_t counts[256])
{
    /* Equal codes often follow each other, and each addition waits for the one before to the same
     * counter: so there are four counters of each. */
    uint32_t parts[4][256] = {{0}};
    uint64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        parts[0][codes[i]]++;
        parts[1][codes[i + 1]]++;
        parts[2][codes[i + 2]]++;
        parts[3][codes[i + 3]]++;
    }
    for (; i < n; i++) parts[0][codes[i]]++;
    for (int c = 0; c < 256; c++) counts[c] = parts[0][c] + parts[1][c] + parts[2][c] + parts[3][c];
}

/* The symbol that begins with code number `at`. */
static uint32_t rans_symbol(const dw_rans_encode_run *run, uint64_t at)
{
    uint32_t symbol = 0;
    for (uint32_t i = run->per_symbol; i-- > 0;) {
        uint32_t digit = at + i < run->n ? run->codes[at + i] - run->least : run->fill;
        symbol = symbol * run->range + digit;
    }
    return symbol;
}

static uint64_t rans_encode_c(const dw_rans_encode_run *run)
{
    uint64_t symbols = (run->n + run->per_symbol - 1) / run->per_symbol, words = 0;
    for (uint64_t j = symbols; j-- > 0;) {
        uint32_t symbol = rans_symbol(run, j * run->per_symbol),
                 x = run->states[j % DW_RANS_STATES];
        uint32_t start = run->start[symbol], f = run->frequencies[symbol];
        if (x >> (32 - DW_RANS_BITS) >= f) {
            if (++words > run->most) return words;
            run->end[-2 * (int64_t)words] = (uint8_t)x;
            run->end[-2 * (int64_t)words + 1] = (uint8_t)(x >> 8);
            x >>= 16;
        }
        run->states[j % DW_RANS_STATES] = (x / f << DW_RANS_BITS) + x % f + start;
    }
    return words;
}

/* The digits of every symbol, plus least: bytes 4s to 4s + 3 of `spelling`. */
static void rans_spell(const dw_rans_decode_run *run, uint8_t *spelling)
{
    uint32_t symbols = run->range;
    for (uint32_t i = 1; i < run->per_symbol; i++) symbols *= run->range;
    for (uint32_t s = 0; s < symbols; s++) {
        uint32_t rest = s;
        for (uint32_t i = 0; i < run->per_symbol; i++, rest /= run->range)
            spelling[4 * s + i] = (uint8_t)(run->least + rest % run->range);
    }
}

static uint64_t rans_decode_c(const dw_rans_decode_run *run)
{
    uint32_t per_symbol = run->per_symbol, symbol = 0;
    uint8_t *spelling = (uint8_t *)(run->scratch + DW_RANS_SLOTS),
            *of_slot = (uint8_t *)run->scratch;
    uint64_t words = 0;
    rans_spell(run, spelling);
    for (uint32_t slot = 0; slot < DW_RANS_SLOTS; slot++) {
        while (slot >= run->start[symbol + 1]) symbol++;
        of_slot[slot] = (uint8_t)symbol;
    }
    for (uint64_t at = 0, j = 0; at < run->n; at += per_symbol, j++) {
        uint32_t x = run->states[j % DW_RANS_STATES], slot = x % DW_RANS_SLOTS, s = of_slot[slot];
        uint32_t start = run->start[s], f = run->start[s + 1] - start;
        x = f * (x >> DW_RANS_BITS) + slot - start;
        if (x < DW_RANS_LOWEST) {
            if (words == run->count) return words + 1;
            x = x << 16 | run->words[2 * words] | (uint32_t)run->words[2 * words + 1] << 8;
            words++;
        }
        run->states[j % DW_RANS_STATES] = x;
        for (uint32_t i = 0; i < per_symbol && at + i < run->n; i++)
            run->codes[at + i] = spelling[4 * s + i];
    }
    return words;
}

/* Writes the index plus 128 of every slot of both kinds. */
static void trellis_spell(const dw_rans_trellis_run *run, uint8_t *of_slot)
{
    for (uint32_t kind = 0; kind < DW_TRELLIS_KINDS; kind++) {
        const dw_rans_table *table = &run->tables[kind];
        uint32_t symbol = 0;
        for (uint32_t slot = 0; slot < DW_RANS_SLOTS; slot++) {
            while (slot >= table->start[symbol + 1]) symbol++;
            of_slot[kind * DW_RANS_SLOTS + slot] = (uint8_t)symbol;
        }
    }
}

static uint64_t rans_decode_trellis_c(const dw_rans_trellis_run *run)
{
    uint8_t *of_slot = (uint8_t *)run->scratch, trellis[DW_TRELLIS_LANES] = {0};
    uint64_t words = 0;
    trellis_spell(run, of_slot);
    for (uint64_t at = 0; at < run->n; at++) {
        uint32_t lane = at % DW_TRELLIS_LANES, kind = trellis[lane] >> 1, x = run->states[lane];
        const dw_rans_table *table = &run->tables[kind];
        uint32_t slot = x % DW_RANS_SLOTS, s = of_slot[kind * DW_RANS_SLOTS + slot];
        uint32_t start = table->start[s], f = table->start[s + 1] - start;
        x = f * (x >> DW_RANS_BITS) + slot - start;
        if (x < DW_RANS_LOWEST) {
            if (words == run->count) return words + 1;
            x = x << 16 | run->words[2 * words] | (uint32_t)run->words[2 * words + 1] << 8;
            words++;
        }
        run->states[lane] = x;
        uint8_t mark = (uint8_t)(2 * (table->least + s) - DW_TRELLIS_ZERO + kind);
        run->codes[at] = dw_trellis_code(mark);
        trellis[lane] = (uint8_t)dw_trellis_next(trellis[lane], dw_trellis_mark_is_odd(mark));
    }
    return words;
}

/* ---- Parts of dithered codes (rans_run.h) ---------------------------------------------------- */

static void count_parts_c(const uint8_t *high, uint64_t n, uint32_t counts[DW_PARTS])
{
    memset(counts, 0, DW_PARTS * sizeof *counts);
    for (uint64_t i = 0; i < n; i++) counts[dw_part_of(high[i])]++;
}

static void sort_parts_c(const uint8_t *high, const uint8_t *codes, uint64_t n,
                         uint8_t *next[DW_PARTS])
{
    for (uint64_t i = 0; i < n; i++)
        *next[dw_part_of(high[i])]++ = dw_part_turned(codes[i], high[i]);
}

static void restore_parts_c(const uint8_t *high, const uint8_t *next[DW_PARTS], uint64_t n,
                            uint8_t *codes)
{
    for (uint64_t i = 0; i < n; i++)
        codes[i] = dw_part_turned(*next[dw_part_of(high[i])]++, high[i]);
}
