/* SPDX-License-Identifier: Apache-2.0
 * model_tah.c - the model's payloads of the form tah: section 3.14 of docs/format.md. */
#include "model_values.h"

#include <math.h>

#include "reach.h"

enum { QUANTIZED = 2, F32 = 1, BF16 = 3 };

static uint64_t up16(uint64_t n)
{
    return (n + 15) / 16 * 16;
}

static uint64_t tiles_of(const model_way *way, uint32_t t, uint32_t c)
{
    return (uint64_t)t * (c / way->tile);
}

static uint64_t wide_of(const model_way *way, uint64_t n)
{
    return (n * way->share + 999999) / 1000000;
}

/* How the tokens of wide or narrow tiles are written. */
static model_way inner_of(const model_way *way, bool wide)
{
    return (model_way){.form = QUANTIZED, .bits = wide ? 4 : 3, .group = way->tile};
}

static uint64_t codes_at(uint64_t n)
{
    return up16((n + 7) / 8) + up16(n) + up16(2 * n);
}

size_t model_tah_size(const model_way *way, uint32_t t, uint32_t c, size_t most)
{
    uint64_t n = tiles_of(way, t, c), wide = wide_of(way, n);
    if (n > UINT64_C(1) << 31) return SIZE_MAX;
    model_way four = inner_of(way, true), three = inner_of(way, false);
    size_t all = codes_at(n), of_wide = model_size(&four, (uint32_t)wide, way->tile, most),
           rest = n > wide ? model_size(&three, (uint32_t)(n - wide), way->tile, most) : 0;
    if (all > most || of_wide > most || rest > most) return SIZE_MAX;
    return all + of_wide + rest <= most ? all + of_wide + rest : SIZE_MAX;
}

void model_tah_store(const model_way *way, uint32_t t, uint32_t c, uint8_t *payload)
{
    uint64_t n = tiles_of(way, t, c), left = wide_of(way, n), pivots = up16((n + 7) / 8);
    for (uint64_t i = 0; i < n; i++) {
        bool wide = left > 0 && (i % 3 != 1 || left == n - i);
        if (i % 8 == 0) payload[i / 8] = 0;
        payload[i / 8] |= (uint8_t)(wide << i % 8);
        left -= wide;
        payload[pivots + i] %= (uint8_t)(way->tile - (way->tile == 256));
    }
}

static bool breaks(const char *what)
{
    fuzz_reach(what);
    return false;
}

static bool is_valid(const model_way *way, uint64_t n, const uint8_t *payload)
{
    uint64_t found = 0, pivots = up16((n + 7) / 8);
    for (uint64_t i = 0; i < (n + 7) / 8 * 8; i++) {
        bool bit = payload[i / 8] >> i % 8 & 1;
        if (bit && i >= n) return breaks("tah: bits that are left over");
        found += bit;
    }
    if (found != wide_of(way, n)) return breaks("tah: number of wide tiles");
    for (uint64_t i = 0; i < n; i++)
        if (payload[pivots + i] >= way->tile) return breaks("tah: pivot");
    return true;
}

/* Steps 2 to 5 for a tile. */
static void make_tile(uint32_t g, uint32_t pivot, uint32_t offset, model_value *tile)
{
    bool poisoned = !model_is_finite(offset, BF16);
    model_rotate_back(g, g, NULL, 0, tile);
    tile[0].r += poisoned ? 0 : model_widen(offset, BF16);
    model_value first = tile[0];
    tile[0] = tile[pivot];
    tile[pivot] = first;
    for (uint32_t i = 0; i < g; i++) {
        tile[i].r = 0 + tile[i].r;
        tile[i].poisoned = tile[i].poisoned || poisoned;
    }
}

bool model_tah_values(const model_way *way, uint32_t t, uint32_t c, const uint8_t *payload,
                      model_value *values)
{
    uint64_t n = tiles_of(way, t, c), wide = wide_of(way, n), pivots = up16((n + 7) / 8);
    const uint8_t *offsets = payload + pivots + up16(n), *codes = payload + codes_at(n);
    uint32_t g = way->tile;
    if (!is_valid(way, n, payload)) return false;
    model_value *of[2] = {calloc((size_t)(n - wide + 1) * g, sizeof *values),
                          calloc((size_t)wide * g, sizeof *values)};
    REQUIRE(of[0] && of[1]);
    model_way four = inner_of(way, true), three = inner_of(way, false);
    model_values(&four, (uint32_t)wide, g, codes, NULL, 0, 0, of[1]);
    codes += model_size(&four, (uint32_t)wide, g, SIZE_MAX - 1);
    if (n > wide) model_values(&three, (uint32_t)(n - wide), g, codes, NULL, 0, 0, of[0]);
    model_value *next[2] = {of[0], of[1]};
    for (uint64_t i = 0; i < n; i++) {
        int kind = payload[i / 8] >> i % 8 & 1;
        memcpy(values + i * g, next[kind], g * sizeof *values);
        next[kind] += g;
        make_tile(g, payload[pivots + i], offsets[2 * i] | (uint32_t)offsets[2 * i + 1] << 8,
                  values + i * g);
    }
    fuzz_reach("tah: tiles");
    free(of[0]);
    free(of[1]);
    return true;
}
