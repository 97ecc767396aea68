/* SPDX-License-Identifier: Apache-2.0
 * tah_layout.c - where the parts of a payload of the form tah lie, and which tiles are wide. */
#include <stdio.h>
#include <string.h>

#include "codecs/options.h"
#include "codecs/tah.h"

/* The sizes of all parts are far below 2^63 then. */
#define MOST_TILES (UINT64_C(1) << 31)

/* Tiles of the form quantized that a chunk has at least; and a limit for the number of chunks of a
 * kind, because each has to count the bits of the mask in front of it. */
enum { CHUNK_UNITS = 16, MOST_CHUNKS = 256 };

static dw_status plan_kind(const dw_plan *plan, dw_tah *tah, int kind, dw_why *why)
{
    dw_plan *made = &tah->of[kind];
    *made = (dw_plan){.t = (uint32_t)tah->kind[kind], .c = tah->g};
    made->params = (dw_form_params){.form = &dw_form_quantized,
                                    .bits = kind == DW_TAH_WIDE ? 4 : 3,
                                    .group = plan->params.tile};
    made->form = made->params.form;
    return tah->kind[kind] ? made->form->plan(made, why) : DW_OK;
}

dw_status dw_tah_of(const dw_plan *plan, dw_tah *tah, dw_why *why)
{
    uint32_t g = plan->params.tile;
    memset(tah, 0, sizeof *tah);
    if (plan->c % g) {
        if (why)
            snprintf(why->text, sizeof why->text,
                     "tile=%u cuts a token into tiles of %u channels, and %u channels cannot be "
                     "divided into such tiles: give tile=16, 64 or 256, whichever divides the "
                     "number of channels",
                     (unsigned)g, (unsigned)g, (unsigned)plan->c);
        return DW_ERR_SHAPE;
    }
    tah->g = g;
    tah->per_token = plan->c / g;
    tah->rows = DW_TILE_ELEMENTS / g;
    tah->n = (uint64_t)plan->t * tah->per_token;
    if (tah->n > MOST_TILES) return dw_plan_too_large(plan, MOST_TILES * g, why);
    tah->kind[DW_TAH_WIDE] = (tah->n * plan->params.share + DW_KEEP_ALL - 1) / DW_KEEP_ALL;
    tah->kind[DW_TAH_NARROW] = tah->n - tah->kind[DW_TAH_WIDE];
    uint64_t units = (tah->n + tah->rows - 1) / tah->rows;
    tah->chunk_units = CHUNK_UNITS;
    if (units > CHUNK_UNITS * MOST_CHUNKS) tah->chunk_units = units / MOST_CHUNKS;
    tah->pivots_at = dw_round_up((tah->n + 7) / 8, 16);
    tah->offsets_at = tah->pivots_at + dw_round_up(tah->n, 16);
    uint64_t end = tah->offsets_at + dw_round_up(2 * tah->n, 16);
    for (int kind = 0; kind < DW_TAH_KINDS; kind++) {
        dw_status status = plan_kind(plan, tah, kind, why);
        if (status) return status;
        tah->codes_at[kind] = end;
        end += tah->of[kind].payload_bytes;
        tah->chunks[kind] = (tah->of[kind].layout.tiles + tah->chunk_units - 1) / tah->chunk_units;
    }
    return DW_OK;
}

dw_tah_walk dw_tah_begin(const uint8_t *payload, int kind, uint64_t first)
{
    dw_tah_walk walk = {.mask = payload, .flip = kind == DW_TAH_NARROW ? UINT64_MAX : 0};
    while (first > 0) {
        uint64_t word = dw_mask_word(payload, walk.next) ^ walk.flip, ones = dw_mask_ones(word);
        walk.next += 64;
        if (ones <= first) {
            first -= ones;
            continue;
        }
        for (; first > 0; first--) word &= word - 1;
        walk.word = word;
    }
    return walk;
}

/* Keys are compared 11 bits at a time, the high ones first, which needs a histogram for each. */
enum { DIGIT = 11, DIGITS = 3 };

/* Returns the key of the last tile that is wide. *ties: becomes how many tiles with this key are.
 */
static uint32_t find_limit(const dw_tah *tah, const uint32_t *keys, uint64_t *ties)
{
    uint64_t left = tah->kind[DW_TAH_WIDE];
    uint32_t limit = 0, known = 0; /* known: the bits of the limit that have been found */
    for (int shift = DIGIT * (DIGITS - 1); shift >= 0; shift -= DIGIT) {
        uint32_t counts[1 << DIGIT] = {0}, digit = (1u << DIGIT) - 1;
        for (uint64_t i = 0; i < tah->n; i++)
            if ((keys[i] & known) == limit) counts[keys[i] >> shift & ((1u << DIGIT) - 1)]++;
        for (; counts[digit] < left; digit--) left -= counts[digit];
        limit |= digit << shift;
        known |= ((1u << DIGIT) - 1) << shift;
    }
    *ties = left;
    return limit;
}

void dw_tah_choose(const dw_tah *tah, const uint32_t *keys, uint8_t *mask)
{
    uint64_t ties;
    uint32_t limit = find_limit(tah, keys, &ties);
    memset(mask, 0, (size_t)tah->pivots_at);
    for (uint64_t i = 0; i < tah->n; i++) {
        bool is_wide = keys[i] > limit || (keys[i] == limit && ties > 0);
        ties -= keys[i] == limit && is_wide;
        if (is_wide) dw_mask_set(mask, i);
    }
}
