/* SPDX-License-Identifier: Apache-2.0
 * frequencies.c - shares the slots of a block out among its symbols. */
#include "entropy/frequencies.h"

#include "kernels/rans_run.h"

enum { WEIGHT_BITS = 24, WORTH = 1 << (WEIGHT_BITS - DW_RANS_BITS) /* of one slot */ };

void dw_weights_of_counts(const uint32_t *counts, uint32_t symbols, uint64_t n, uint32_t *weights)
{
    uint64_t each = ((uint64_t)1 << 40) / n; /* one division in place of one per code */
    for (uint32_t s = 0; s < symbols; s++) weights[s] = (uint32_t)(counts[s] * each >> 16);
}

void dw_weights_of_frequencies(const uint16_t *frequencies, uint32_t range, uint32_t *weights)
{
    for (uint32_t c = 0; c < range; c++) weights[c] = (uint32_t)frequencies[c] * WORTH;
}

uint32_t dw_weights_of_pairs(const uint32_t *weights, uint32_t symbols, uint32_t *pairs)
{
    for (uint32_t second = 0; second < symbols; second++)
        for (uint32_t first = 0; first < symbols; first++) {
            uint64_t product = (uint64_t)weights[first] * weights[second];
            uint32_t weight = (uint32_t)(product >> WEIGHT_BITS);
            pairs[second * symbols + first] = weight == 0 && product > 0 ? 1 : weight;
        }
    return symbols * symbols;
}

static uint32_t above_one_slot(uint32_t weight)
{
    return weight > WORTH ? weight - WORTH : 0;
}

void dw_slots_of_weights(const uint32_t *weights, uint32_t symbols, uint16_t *start)
{
    uint32_t occurring = 0, before = 0;
    uint64_t above = 0, sum = 0;
    for (uint32_t s = 0; s < symbols; s++) {
        occurring += weights[s] > 0;
        above += above_one_slot(weights[s]);
    }
    /* Not a division by 0: 256 symbols at most share 2^24, so some weight is above 4096. */
    uint64_t scale = ((uint64_t)(DW_RANS_SLOTS - occurring) << 32) / above;
    for (uint32_t s = 0; s < symbols; s++) {
        start[s] = (uint16_t)(before + (sum * scale >> 32));
        before += weights[s] > 0;
        sum += above_one_slot(weights[s]);
    }
    start[symbols] = DW_RANS_SLOTS; /* what was rounded off goes to the last symbol */
}

/* 12 - log2(f), in units of 2^-12, for 1 <= f <= 4095. */
static uint32_t bits_of_frequency(uint32_t f)
{
    /* 4096 * log2(1 + i / 32), rounded */
    static const uint16_t logarithms[33] = {0,    182,  358,  530,  696,  858,  1016, 1169, 1319,
                                            1465, 1607, 1746, 1882, 2015, 2145, 2272, 2396, 2518,
                                            2637, 2754, 2869, 2982, 3092, 3200, 3307, 3412, 3514,
                                            3615, 3715, 3812, 3908, 4003, 4096};
    uint32_t places = 0;
    while (f << places < DW_RANS_SLOTS / 2) places++;
    uint32_t fraction = (f << places) - DW_RANS_SLOTS / 2, i = fraction / 64, rest = fraction % 64;
    uint32_t logarithm = logarithms[i] + (logarithms[i + 1] - logarithms[i]) * rest / 64;
    return (places + 1) * 4096 - logarithm;
}

uint64_t dw_bits_of_slots(const uint32_t *weights, uint32_t symbols, const uint16_t *start,
                          uint64_t n)
{
    uint64_t sum = 0;
    for (uint32_t s = 0; s < symbols; s++)
        if (weights[s] > 0)
            sum += (uint64_t)weights[s] * bits_of_frequency((uint32_t)start[s + 1] - start[s]);
    return n * sum >> (WEIGHT_BITS + 12);
}
