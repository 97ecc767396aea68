/* SPDX-License-Identifier: Apache-2.0
 * model_values.c - the model's arithmetic and layouts: sections 3 to 5 of docs/format.md. */
#include "model_values.h"

#include "reach.h"

#include <Random123/philox.h>
#include <math.h>

enum {
    F32 = 1,
    F16 = 2,
    BF16 = 3,
    FLOATS = 1,
    MICROSCALED = 3,
    STEPPED = 4,
    BLOCKS = 8,
    WHOLE_ROW = 65535,
    CHANNEL = 65534,
    SAMPLE = 65533,
    TILE = 2048
};

/* ---- Floats. --------------------------------------------------------------------------------- */

size_t model_bytes(uint8_t dtype)
{
    return dtype == F32 ? 4 : dtype == F16 || dtype == BF16 ? 2 : 0;
}

uint32_t model_load(const uint8_t *data, uint8_t dtype, size_t i)
{
    uint32_t single;
    uint16_t half;
    memcpy(&half, data + i * model_bytes(dtype), sizeof half);
    if (dtype != F32) return half;
    memcpy(&single, data + 4 * i, sizeof single);
    return single;
}

void model_store(uint8_t *data, uint8_t dtype, size_t i, uint32_t bits)
{
    uint16_t half = (uint16_t)bits;
    if (dtype == F32)
        memcpy(data + 4 * i, &bits, sizeof bits);
    else
        memcpy(data + 2 * i, &half, sizeof half);
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

bool model_is_finite(uint32_t bits, uint8_t dtype)
{
    uint32_t exponent = dtype == F32 ? 0x7f800000 : dtype == F16 ? 0x7c00 : 0x7f80;
    return (bits & exponent) != exponent;
}

/* Exact. A NaN keeps its sign, and its fraction bits become the highest ones. */
float model_widen(uint32_t bits, uint8_t dtype)
{
    if (dtype == F32) return float_of(bits);
    if (dtype == BF16) return float_of(bits << 16);
    uint32_t sign = (bits & 0x8000) << 16, exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
    if (exponent == 31) return float_of(sign | 0x7f800000 | fraction << 13);
    float magnitude = exponent ? ldexpf((float)(1024 + fraction), (int)exponent - 25)
                               : ldexpf((float)fraction, -24);
    return sign ? -magnitude : magnitude;
}

/* Rounds to nearest even as IEEE 754 defines, to a 16-bit format with this number of digits whose
 * smallest number is 2^unit. */
static uint32_t round_half(float value, int digits, int unit, uint32_t infinity)
{
    uint32_t sign = signbit(value) ? 0x8000 : 0;
    double magnitude = fabs((double)value);
    if (isinf(magnitude)) return sign | infinity;
    int last = magnitude > 0 ? ilogb(magnitude) - (digits - 1) : unit;
    if (last < unit) last = unit;
    double whole = nearbyint(ldexp(magnitude, -last));
    if (whole == ldexp(1, digits)) {
        whole /= 2;
        last++;
    }
    uint32_t bits = (uint32_t)whole, hidden = 1u << (digits - 1);
    if (bits >= hidden) bits = ((uint32_t)(last - unit + 1) << (digits - 1)) | (bits - hidden);
    return sign | (bits < infinity ? bits : infinity);
}

uint32_t model_convert(float value, uint8_t dtype)
{
    if (dtype == F32) return bits_of(value);
    if (isnan(value)) return (bits_of(value) >> 16 & 0x8000) | model_nan(dtype);
    return dtype == F16 ? round_half(value, 11, -24, 0x7c00) : round_half(value, 8, -133, 0x7f80);
}

uint32_t model_rn(float value, uint8_t dtype)
{
    float largest = dtype == F16 ? 65504 : float_of(dtype == BF16 ? 0x7f7f0000 : 0x7f7fffff);
    if (value > largest) value = largest;
    if (value < -largest) value = -largest;
    return model_convert(value, dtype);
}

uint32_t model_nan(uint8_t dtype)
{
    return dtype == F32 ? 0x7fc00000 : dtype == F16 ? 0x7e00 : 0x7fc0;
}

/* ---- Layouts (3.2). -------------------------------------------------------------------------- */

static size_t up(size_t n, size_t m)
{
    return (n + m - 1) / m * m;
}

/* The table in 3.3, indexed by the numbers of the elements. int8 has no exponent. */
static const struct element {
    uint32_t bits, fraction, bias, largest;
} elements[7] = {{0},           {8, 0, 0, 0},  {8, 3, 7, 0x7e}, {8, 2, 15, 0x7b},
                 {6, 2, 3, 31}, {6, 3, 1, 31}, {4, 1, 1, 7}};

model_way model_microscaled(uint32_t element)
{
    return (model_way){.form = MICROSCALED,
                       .bits = elements[element].bits,
                       .group = 32,
                       .element = (uint8_t)element};
}

/* The size of a scale. */
static size_t scale_bytes(const model_way *way)
{
    return way->form == MICROSCALED ? 1 : 2;
}

/* How a row of c channels is cut into segments. */
typedef struct cut {
    uint32_t segments; /* per row */
    uint32_t width, g; /* of all segments but the last one */
    uint32_t last_width, last_g;
    uint32_t tile; /* segments per tile */
} cut;

static cut cut_row(uint32_t c, uint32_t group)
{
    bool whole = group == WHOLE_ROW || group == CHANNEL || group == SAMPLE;
    cut k = {.width = whole ? TILE : group, .g = whole ? TILE : group};
    if (whole && c <= TILE) {
        k.width = c;
        k.g = (uint32_t)up(c, 32);
    }
    k.segments = (uint32_t)(((uint64_t)c + k.width - 1) / k.width);
    k.last_width = c - (k.segments - 1) * k.width;
    k.last_g = whole ? (uint32_t)up(k.last_width, 32) : group;
    k.tile = whole && c > TILE ? 1 : TILE / k.g;
    return k;
}

static uint64_t pieces_of(const model_way *way, const cut *k, uint32_t t, uint32_t c)
{
    if (way->group == SAMPLE) return 1;
    return way->group == CHANNEL ? c : (uint64_t)t * k->segments;
}

/* Sizes and offsets of the parts of a payload that do not depend on the tile. */
static uint64_t choice_bytes(const model_way *way, uint64_t pieces)
{
    return way->chooses ? up((size_t)((pieces + 7) / 8), 16) : 0;
}

/* Whether the scales lie in front of the tiles. */
static bool has_front_scales(const model_way *way)
{
    return way->group == CHANNEL || way->group == SAMPLE;
}

static uint64_t front_bytes(const model_way *way, const cut *k, uint32_t t, uint32_t c)
{
    uint64_t pieces = pieces_of(way, k, t, c);
    return choice_bytes(way, pieces) + (has_front_scales(way) ? up(2 * (size_t)pieces, 16) : 0);
}

static size_t tile_scales(const model_way *way, uint32_t segments)
{
    return has_front_scales(way) ? 0 : up(scale_bytes(way) * segments, 16);
}

/* g of segment i of the sample. */
static uint32_t g_of(const cut *k, uint64_t i)
{
    return i % k->segments == k->segments - 1 ? k->last_g : k->g;
}

/* The number of segments in the tile that begins with segment i, and the sum of their n. */
static uint32_t tile_at(const cut *k, uint64_t i, uint64_t all, uint32_t *n)
{
    uint32_t count = 0;
    *n = 0;
    for (; count < k->tile && i + count < all; count++) *n += g_of(k, i + count);
    return count;
}

uint32_t model_room_most(uint64_t n)
{
    return (uint32_t)((n + 31) / 32);
}

uint64_t model_room(const model_way *way, uint64_t n)
{
    return way->form == STEPPED ? up(4 + 6 * (size_t)model_room_most(n), 16) : 0;
}

static size_t quantized_size(const model_way *way, uint32_t t, uint32_t c, size_t most)
{
    cut k = cut_row(c, way->group);
    uint64_t bytes = front_bytes(way, &k, t, c), all = (uint64_t)t * k.segments;
    for (uint64_t i = 0; i < all;) {
        uint32_t n, count = tile_at(&k, i, all, &n);
        bytes += tile_scales(way, count) + up((size_t)n * way->bits / 8, 16) + model_room(way, n);
        if (bytes > most) return SIZE_MAX;
        i += count;
    }
    return bytes > most ? SIZE_MAX : (size_t)bytes;
}

model_tile *model_tiles(const model_way *way, uint32_t t, uint32_t c, uint64_t *n)
{
    cut k = cut_row(c, way->group);
    uint64_t all = (uint64_t)t * k.segments, offset = front_bytes(way, &k, t, c);
    model_tile *tiles = calloc((size_t)all, sizeof *tiles);
    REQUIRE(tiles != NULL);
    *n = 0;
    for (uint64_t i = 0; i < all;) {
        model_tile *tile = &tiles[(*n)++];
        uint32_t count = tile_at(&k, i, all, &tile->n);
        bool is_cut = k.segments > 1 && k.tile == 1;
        tile->offset = offset;
        tile->scales = tile_scales(way, count);
        tile->bytes = up((size_t)tile->n * way->bits / 8, 16);
        tile->breaks = is_cut && i % (8 * (uint64_t)k.segments) == 0;
        tile->room = model_room(way, tile->n);
        offset += tile->scales + tile->bytes + tile->room;
        i += count;
    }
    return tiles;
}

/* Returns the dither z of an element, as sections 3.6 and 5 define it. key: the key of the random
 * numbers of the entry. */
static double dither_of(uint64_t key, uint64_t element)
{
    philox4x32_key_t halves = {{(uint32_t)key, (uint32_t)(key >> 32)}};
    philox4x32_ctr_t counter = {{(uint32_t)(element / 8), (uint32_t)(element / 8 >> 32), 0, 0}};
    philox4x32_ctr_t words = philox4x32_R(10, counter, halves);
    uint32_t part = words.v[element % 8 / 2] >> (element % 2 * 16) & 0xffff;
    return (part + 0.5) / 65536 - 0.5;
}

void model_parts(const model_way *way, uint32_t t, uint32_t c, uint64_t draws, model_part *parts)
{
    cut k = cut_row(c, way->group);
    uint64_t all = (uint64_t)t * k.segments;
    for (uint64_t s = 0; s < all; s++)
        for (uint32_t j = 0; j < g_of(&k, s); j++) {
            bool last = s % k.segments == k.segments - 1;
            bool is_padding = j >= (last ? k.last_width : k.width);
            uint64_t element = s / k.segments * c + s % k.segments * k.width + j;
            double z = is_padding ? 0 : dither_of(draws, element);
            *parts++ = (model_part){(uint8_t)floor(fabs(z) * 8), z < 0};
        }
}

size_t model_size(const model_way *way, uint32_t t, uint32_t c, size_t most)
{
    if (way->form == 0) return 0;
    if (way->form == BLOCKS) return model_blocks_size(way, t, c, most);
    if (way->form != FLOATS) return quantized_size(way, t, c, most);
    uint64_t bytes = (uint64_t)t * c * model_bytes(way->dtype); /* N*T*C*4 is below 2^63 */
    return bytes > most ? SIZE_MAX : up((size_t)bytes, 16);
}

/* Code i of a tile of n codes. */
static uint32_t code_at(const uint8_t *codes, uint32_t bits, uint32_t n, uint32_t i)
{
    uint32_t code = 0, shift = 0;
    for (uint32_t plane = 8; plane; plane /= 2) {
        if (!(bits & plane)) continue;
        uint32_t at = plane * i;
        code |= (codes[at / 8] >> at % 8 & ((1u << plane) - 1)) << shift;
        codes += (size_t)n * plane / 8;
        shift += plane;
    }
    return code;
}

/* ---- Reconstruction (3.1; 5, steps 1 to 4). -------------------------------------------------- */

static model_value reconstruct(uint32_t bits, uint32_t code, uint32_t scale, float base)
{
    if ((scale & 0x7f80) == 0x7f80) return (model_value){.poisoned = true};
    int32_t level = bits == 1 ? 2 * (int32_t)code - 1 : (int32_t)code - (1 << (bits - 1));
    float value = (float)level * float_of(scale << 16);
    return (model_value){.r = base + value};
}

/* 3.3 and 5: the value of an element's code, times the scale. */
static model_value microscale(uint8_t number, uint32_t code, uint32_t scale, float base)
{
    const struct element *e = &elements[number];
    if (scale == 255) return (model_value){.poisoned = true};
    uint32_t sign = 1u << (e->bits - 1), magnitude = code & (sign - 1);
    double value = magnitude; /* every step is exact in double */
    if (number == 1) {
        value = (code & sign ? (double)code - 256 : (double)code) / 64;
    } else {
        if (magnitude > e->largest) magnitude = e->largest;
        uint32_t exponent = magnitude >> e->fraction, steps = magnitude & ((1u << e->fraction) - 1);
        if (exponent) steps |= 1u << e->fraction;
        if (!exponent) exponent = 1;
        value = ldexp(steps, (int)exponent - (int)e->bias - (int)e->fraction);
        if (code & sign) value = -value;
    }
    return (model_value){.r = base + (float)ldexp(value, (int)scale - 127)};
}

/* 3.4 and 5, the form step. z: 0 without dither. */
static model_value step_value(uint32_t code, double z, uint32_t scale, float base)
{
    if ((scale & 0x7f80) == 0x7f80) return (model_value){.poisoned = true};
    float amount = (float)((double)code - 128 - z), value = amount * float_of(scale << 16);
    return (model_value){.r = base + value};
}

static uint32_t two_bytes(const uint8_t *at)
{
    return at[0] | (uint32_t)at[1] << 8;
}

/* 5, step 3: of one element in a piece with this scale. */
static model_value value_of(const model_way *way, uint32_t code, const uint8_t *scale, float base,
                            uint64_t draws, uint64_t element)
{
    if (way->element) return microscale(way->element, code, *scale, base);
    if (way->form != STEPPED) return reconstruct(way->bits, code, two_bytes(scale), base);
    if (way->profile) {
        model_value v = step_value(code, way->dithers ? dither_of(draws, element) : 0,
                                   two_bytes(scale) & 0x7fff, base);
        v.bits = two_bytes(scale);
        return v;
    }
    return step_value(code, way->dithers ? dither_of(draws, element) : 0, two_bytes(scale), base);
}

static uint32_t four_bytes(const uint8_t *at)
{
    return two_bytes(at) | two_bytes(at + 2) << 16;
}

/* 3.4: the values in the room of a tile, in order. */
static void put_escapes(const cut *k, uint64_t first, uint32_t count, uint32_t c, uint32_t n,
                        const uint8_t *room, model_value *values)
{
    uint32_t most = model_room_most(n), held = four_bytes(room);
    for (uint32_t i = 0; i < held && i < most; i++) {
        uint32_t place = two_bytes(room + 4 + 2 * (size_t)i),
                 bits = four_bytes(room + 4 + 2 * (size_t)most + 4 * (size_t)i);
        uint64_t s = first;
        if (place >= n) continue;
        for (; place >= g_of(k, s); s++) place -= g_of(k, s);
        REQUIRE(s < first + count);
        if (place >= (s % k->segments == k->segments - 1 ? k->last_width : k->width)) continue;
        model_value *value = &values[s / k->segments * c + s % k->segments * k->width + place];
        fuzz_reach("escaped value");
        if (!value->poisoned) value->r = (bits & 0x7f800000) == 0x7f800000 ? 0 : float_of(bits);
    }
}

static void quantized_values(const model_way *way, uint32_t t, uint32_t c, const uint8_t *payload,
                             const uint8_t *prev, uint8_t prev_dtype, uint64_t draws,
                             model_value *values)
{
    cut k = cut_row(c, way->group);
    uint64_t all = (uint64_t)t * k.segments;
    bool by_channel = way->group == CHANNEL;
    const uint8_t *front_scales = payload + choice_bytes(way, pieces_of(way, &k, t, c));
    const uint8_t *tile = payload + front_bytes(way, &k, t, c);
    for (uint64_t first = 0; first < all;) {
        uint32_t n, count = tile_at(&k, first, all, &n), at = 0;
        const uint8_t *codes = tile + tile_scales(way, count);
        for (uint64_t s = first; s < first + count; at += g_of(&k, s), s++) {
            bool last = s % k.segments == k.segments - 1;
            uint32_t width = last ? k.last_width : k.width;
            for (uint32_t j = 0; j < width; j++) {
                uint64_t channel = s % k.segments * k.width + j;
                uint64_t element = s / k.segments * c + channel, piece = by_channel ? channel : s;
                bool direct = !prev || (way->chooses && payload[piece / 8] >> piece % 8 & 1);
                const uint8_t *scale = by_channel ? front_scales + 2 * channel
                                       : has_front_scales(way)
                                           ? front_scales
                                           : tile + scale_bytes(way) * (size_t)(s - first);
                float base =
                    direct ? 0 : model_widen(model_load(prev, prev_dtype, element), prev_dtype);
                uint32_t code = code_at(codes, way->bits, n, at + j);
                values[element] = value_of(way, code, scale, base, draws, element);
            }
        }
        const uint8_t *room = codes + up((size_t)n * way->bits / 8, 16);
        if (way->form == STEPPED) put_escapes(&k, first, count, c, n, room, values);
        tile = room + model_room(way, n);
        first += count;
    }
}

static void floats_values(const model_way *way, size_t n, const uint8_t *payload,
                          model_value *values)
{
    size_t size = model_bytes(way->dtype);
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = two_bytes(payload + i * size);
        if (size == 4) bits |= two_bytes(payload + i * size + 2) << 16;
        values[i] = (model_value){.r = model_widen(bits, way->dtype),
                                  .bits = bits,
                                  .poisoned = !model_is_finite(bits, way->dtype)};
    }
}

void model_values(const model_way *way, uint32_t t, uint32_t c, const uint8_t *payload,
                  const uint8_t *prev, uint8_t prev_dtype, uint64_t draws, model_value *values)
{
    if (way->rotates) {
        model_way plain = *way;
        plain.rotates = 0;
        model_values(&plain, t, c, payload, NULL, 0, draws, values);
        model_rotate_back(way->rotates, (size_t)t * c, prev, prev_dtype, values);
    } else if (way->profile) {
        quantized_values(way, t, c, payload, NULL, 0, draws, values);
        model_weigh_back(way->profile, t, c, prev, prev_dtype, values);
    } else if (way->form == BLOCKS)
        model_blocks_values(way, t, c, payload, values);
    else if (way->form == FLOATS)
        floats_values(way, (size_t)t * c, payload, values);
    else
        quantized_values(way, t, c, payload, prev, prev_dtype, draws, values);
}

/* ---- Digests (4). ---------------------------------------------------------------------------- */

static uint64_t pair(uint32_t first, uint32_t second, uint64_t i)
{
    uint32_t k = 0x9E3779B1u;
    uint32_t a = first + k * (uint32_t)(2 * i + 1), b = second + k * (uint32_t)(2 * i + 2);
    return (uint64_t)a * b;
}

static uint64_t finish(uint64_t s)
{
    s ^= s >> 33;
    s *= 0xC2B2AE3D27D4EB4Fu;
    s ^= s >> 29;
    s *= 0x165667B19E3779F9u;
    s ^= s >> 32;
    return s ? s : 1;
}

uint64_t model_payload_digest(const uint8_t *payload, size_t bytes)
{
    uint64_t sum = 0;
    for (size_t i = 0; 8 * i < bytes; i++) {
        const uint8_t *p = payload + 8 * i;
        sum += pair(two_bytes(p) | two_bytes(p + 2) << 16,
                    two_bytes(p + 4) | two_bytes(p + 6) << 16, i);
    }
    return finish(sum);
}

/* Word j of prev'; 0 after its end. */
static uint32_t word_of(const uint8_t *prev, uint8_t dtype, size_t n, size_t j)
{
    if (dtype == F32) return j < n ? model_load(prev, dtype, j) : 0;
    uint32_t low = 2 * j < n ? model_load(prev, dtype, 2 * j) : 0;
    return low | (2 * j + 1 < n ? model_load(prev, dtype, 2 * j + 1) : 0) << 16;
}

uint64_t model_state_digest(const uint8_t *prev, uint8_t dtype, size_t n, uint32_t audit,
                            uint32_t phase)
{
    uint64_t sum = 0;
    size_t per_pair = dtype == F32 ? 2 : 4;
    for (size_t i = 0; i * per_pair < n; i++) {
        if (i * per_pair / TILE % audit != phase) continue;
        sum += pair(word_of(prev, dtype, n, 2 * i), word_of(prev, dtype, n, 2 * i + 1), i);
    }
    return finish(sum);
}
