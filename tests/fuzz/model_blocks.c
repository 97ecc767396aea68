/* SPDX-License-Identifier: Apache-2.0
 * model_blocks.c - the model's payloads of form 8: section 3.13 of docs/format.md. */
#include <math.h>

#include "model_values.h"
#include "reach.h"

enum { DYNAMIC = 1, LINEAR = 2, QUANTILE = 3, ENTRIES = 256 };

static uint64_t up(uint64_t n, uint64_t m)
{
    return (n + m - 1) / m * m;
}

/* The bytes in front of the codes of n values. */
static uint64_t front_bytes(const model_way *way, uint64_t n)
{
    if (way->codebook == QUANTILE) return 4 * (up(n, 4) < ENTRIES ? up(n, 4) : ENTRIES);
    return up(4 * (up(n, way->block) / way->block), 16);
}

size_t model_blocks_size(const model_way *way, uint32_t t, uint32_t c, size_t most)
{
    uint64_t n = (uint64_t)t * c;
    if (n > most || front_bytes(way, n) + up(n, 16) > most) return SIZE_MAX;
    return (size_t)(front_bytes(way, n) + up(n, 16));
}

/* Entry `code` of the dynamic codebook: of those above 0, i doubles their number in every decade,
 * which begin at 1, 3, 7 and so on, counted from 1. */
static float dynamic_entry(uint32_t code)
{
    if (code == 127 || code == 255) return code == 255;
    if (code < 127) return -dynamic_entry(254 - code);
    uint32_t from_one = code - 127, i = 0;
    while (from_one >> (i + 1)) i++;
    uint32_t k = from_one - (1u << i);
    double parts = ldexp(1, (int)i + 1), tens = 1;
    for (uint32_t j = i; j < 7; j++) tens *= 10;
    return (float)((parts + 9 * (2.0 * k + 1)) / (parts * tens));
}

static float load(const uint8_t *from)
{
    uint32_t bits =
        from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static model_value scaled(float entry, float scale)
{
    volatile float value = entry * scale;
    if (isnan(scale) || isinf(scale)) {
        fuzz_reach("blocks: poisoned by a scale");
        return (model_value){.poisoned = true};
    }
    return (model_value){.r = 0.0f + value};
}

static model_value fitted(const uint8_t *payload, uint64_t there, uint32_t code)
{
    float entry = code < there ? load(payload + 4 * (size_t)code) : NAN;
    if (code >= there) fuzz_reach("blocks: code without an entry");
    if (isnan(entry) || isinf(entry)) {
        if (code < there) fuzz_reach("blocks: poisoned by an entry");
        return (model_value){.poisoned = true};
    }
    return (model_value){.r = 0.0f + entry};
}

void model_blocks_values(const model_way *way, uint32_t t, uint32_t c, const uint8_t *payload,
                         model_value *values)
{
    uint64_t n = (uint64_t)t * c, front = front_bytes(way, n);
    static const char *const books[] = {"blocks: dynamic", "blocks: linear", "blocks: fitted"};
    fuzz_reach(books[way->codebook - 1]);
    for (uint64_t i = 0; i < n; i++) {
        uint32_t code = payload[front + i];
        const uint8_t *scale = payload + (way->codebook == QUANTILE ? 0 : 4 * (i / way->block));
        if (way->codebook == QUANTILE)
            values[i] = fitted(payload, front / 4, code);
        else if (way->codebook == LINEAR)
            values[i] = scaled((float)((int)code - 128) / 127, load(scale));
        else
            values[i] = scaled(dynamic_entry(code), load(scale));
    }
}
