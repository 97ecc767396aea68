/* SPDX-License-Identifier: Apache-2.0
 * frequencies.c - shares the slots of a block out among its symbols. */
#include "entropy/frequencies.h"

#include "arithmetic/rans.h"

void dw_weights_of_counts(const uint32_t *counts, uint32_t symbols, uint64_t n, uint32_t *weights)
{
    uint64_t each = dw_weight_each(n);
    for (uint32_t s = 0; s < symbols; s++) weights[s] = dw_weight_of_count(counts[s], each);
}

void dw_weights_of_frequencies(const uint16_t *frequencies, uint32_t range, uint32_t *weights)
{
    for (uint32_t c = 0; c < range; c++) weights[c] = (uint32_t)frequencies[c] * DW_SLOT_WEIGHT;
}

uint32_t dw_weights_of_pairs(const uint32_t *weights, uint32_t symbols, uint32_t *pairs)
{
    for (uint32_t second = 0; second < symbols; second++)
        for (uint32_t first = 0; first < symbols; first++)
            pairs[second * symbols + first] = dw_weight_of_pair(weights[first], weights[second]);
    return symbols * symbols;
}

void dw_slots_of_weights(const uint32_t *weights, uint32_t symbols, uint16_t *start)
{
    uint32_t occurring = 0, before = 0;
    uint64_t above = 0, sum = 0;
    for (uint32_t s = 0; s < symbols; s++) {
        occurring += weights[s] > 0;
        above += dw_above_one_slot(weights[s]);
    }
    uint64_t scale = dw_slots_scale(occurring, above);
    for (uint32_t s = 0; s < symbols; s++) {
        start[s] = dw_slot_of(before, sum, scale);
        before += weights[s] > 0;
        sum += dw_above_one_slot(weights[s]);
    }
    start[symbols] = DW_RANS_SLOTS; /* what was rounded off goes to the last symbol */
}

uint64_t dw_bits_of_slots(const uint32_t *weights, uint32_t symbols, const uint16_t *start,
                          uint64_t n)
{
    uint64_t sum = 0;
    for (uint32_t s = 0; s < symbols; s++)
        if (weights[s] > 0)
            sum += (uint64_t)weights[s] * dw_bits_of_frequency((uint32_t)start[s + 1] - start[s]);
    return dw_bits_of_sum(sum, n);
}
