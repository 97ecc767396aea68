/* SPDX-License-Identifier: Apache-2.0
 * rans_model.c - encodes and decodes entropy-coded blocks slowly, written from docs/format.md
 * alone. */
#include "rans_model.h"

#include <string.h>

/* v(a, b) of the page: the weight of two symbols with the weights a and b in a row. */
static uint64_t pair_weight(uint64_t a, uint64_t b)
{
    uint64_t product = a * b, weight = product / (1u << 24);
    return product != 0 && weight == 0 ? 1 : weight;
}

/* Computes B(0) to B(R^k) of the page: the first slot of each symbol, and behind the last one the
 * number of all slots. b has room for 257 numbers. Returns R^k, the number of symbols. */
static uint32_t slots_of(const rans_model *m, uint32_t *b)
{
    uint64_t w[256], pairs[256], e_all = 0, e_before = 0, before = 0, occurring = 0;
    uint32_t symbols = m->range;
    for (uint32_t s = 0; s < symbols; s++) w[s] = (uint64_t)m->f[s] * 4096;
    for (uint32_t k = 1; k < m->k; k *= 2) {
        for (uint32_t s = 0; s < symbols * symbols; s++)
            pairs[s] = pair_weight(w[s % symbols], w[s / symbols]);
        symbols *= symbols;
        memcpy(w, pairs, sizeof w[0] * symbols);
    }
    for (uint32_t s = 0; s < symbols; s++) {
        occurring += w[s] > 0;
        e_all += w[s] > 4096 ? w[s] - 4096 : 0;
    }
    uint64_t t = (4096 - occurring) * ((uint64_t)1 << 32) / e_all;
    for (uint32_t s = 0; s < symbols; s++) {
        b[s] = (uint32_t)(before + t * e_before / ((uint64_t)1 << 32));
        before += w[s] > 0;
        e_before += w[s] > 4096 ? w[s] - 4096 : 0;
    }
    b[symbols] = 4096;
    return symbols;
}

/* Writes the lowest `bits` bits of a value to the string of bits `to`, from bit `at` on; bits are
 * counted from the lowest of each byte. */
static void put_bits(uint8_t *to, size_t at, uint32_t bits, uint32_t value)
{
    for (uint32_t i = 0; i < bits; i++, at++)
        to[at / 8] = (uint8_t)((to[at / 8] & ~(1u << at % 8)) | (value >> i & 1) << at % 8);
}

/* Reads `bits` bits that put_bits has written at bit `at`, and returns them as a number. */
static uint32_t get_bits(const uint8_t *from, size_t at, uint32_t bits)
{
    uint32_t value = 0;
    for (uint32_t i = 0; i < bits; i++, at++) value |= (uint32_t)(from[at / 8] >> at % 8 & 1) << i;
    return value;
}

/* Writes the frequencies of m to the block, from byte `at` on, or reads them from there into m.
 * Returns the number of the byte behind them. */
static size_t table_of(rans_model *m, uint8_t *block, size_t at, bool writes)
{
    if (m->range == 1) return at;
    at *= 8;
    for (uint32_t i = 0; i < m->range; i++) {
        uint32_t length = 0;
        while (writes && m->f[i] >= 1u << length) length++;
        if (writes) put_bits(block, at, 4, length);
        length = get_bits(block, at, 4);
        uint32_t below = length > 0 ? length - 1 : 0, power = length > 0 ? 1u << below : 0;
        at += 4;
        if (writes) put_bits(block, at, below, m->f[i] - power);
        m->f[i] = power + get_bits(block, at, below);
        at += below;
    }
    return (at + 7) / 8;
}

/* Returns whether a block with these heads has states: unless each of its parts has one code
 * only. */
static bool has_states(const rans_model *models, uint32_t parts)
{
    for (uint32_t i = 0; i < parts; i++)
        if (models[i].range > 1) return true;
    return false;
}

/* Encodes the n codes of one part. x: the 32 states, which it changes. words: the words that were
 * made so far, `count` of them; it appends the part's words. Encoding runs from the last code to
 * the first, so `words` begins with the last word of the block. Returns the new number of words. */
static uint32_t encode_part(const rans_model *m, const uint8_t *codes, uint64_t n, uint32_t *x,
                            uint32_t *words, uint32_t count)
{
    uint32_t b[257], fill = 0;
    if (m->range == 1) return count;
    for (uint32_t i = 0; i < m->range; i++) fill = m->f[i] > m->f[fill] ? i : fill;
    slots_of(m, b);
    for (uint64_t j = (n + m->k - 1) / m->k; j-- > 0;) {
        uint32_t s = 0, power = 1;
        for (uint64_t i = j * m->k; i < j * m->k + m->k; i++, power *= m->range)
            s += power * (i < n ? codes[i] - m->least : fill);
        uint64_t state = x[j % 32], f = b[s + 1] - b[s];
        if (state >= f * (1u << 20)) {
            words[count++] = (uint32_t)state % 65536;
            state /= 65536;
        }
        x[j % 32] = (uint32_t)(4096 * (state / f) + state % f + b[s]);
    }
    return count;
}

/* The trellis of the page: t is the state of a lane, m an index. */
static uint32_t table_at(uint32_t t)
{
    return t / 2;
}

static uint32_t next_t(uint32_t t, int m)
{
    return 2 * ((t + (uint32_t)(m < 0 ? -m : m)) % 2) + t / 2;
}

static uint8_t code_of(int m, uint32_t table)
{
    int nearer = table == 0 || m == 0 ? 0 : m > 0 ? 1 : -1;
    return (uint8_t)(128 + 2 * m - nearer);
}

static int index_of(uint8_t code)
{
    int q = code - 128;
    return q < 0 ? -((1 - q) / 2) : (q + 1) / 2;
}

void rans_model_along(const int8_t *indices, uint64_t n, uint8_t *codes)
{
    uint32_t t[32] = {0};
    for (uint64_t i = 0; i < n; i++) {
        codes[i] = code_of(indices[i], table_at(t[i % 32]));
        t[i % 32] = next_t(t[i % 32], indices[i]);
    }
}

/* As encode_part, for all codes of a block with a trellis. */
static uint32_t encode_trellis(const rans_model *models, const uint8_t *codes, uint64_t n,
                               uint32_t *x, uint32_t *words)
{
    static uint8_t tables[65536];
    uint32_t b[RANS_MODEL_TRELLIS][257], t[32] = {0}, count = 0;
    for (uint32_t i = 0; i < RANS_MODEL_TRELLIS; i++) slots_of(&models[i], b[i]);
    for (uint64_t i = 0; i < n; i++) {
        tables[i] = (uint8_t)table_at(t[i % 32]);
        t[i % 32] = next_t(t[i % 32], index_of(codes[i]));
    }
    for (uint64_t i = n; i-- > 0;) {
        uint32_t s = (uint32_t)(128 + index_of(codes[i])) - models[tables[i]].least;
        const uint32_t *own = &b[tables[i]][s];
        uint64_t state = x[i % 32], f = own[1] - own[0];
        if (state >= f * (1u << 20)) {
            words[count++] = (uint32_t)state % 65536;
            state /= 65536;
        }
        x[i % 32] = (uint32_t)(4096 * (state / f) + state % f + own[0]);
    }
    return count;
}

size_t rans_model_encode(const rans_model *models, const uint32_t *counts, uint32_t parts,
                         const uint8_t *codes, uint8_t *block)
{
    static uint32_t words[65536];
    uint32_t x[32], count = 0;
    size_t at = 0;
    for (int i = 0; i < 32; i++) x[i] = 65536;
    bool is_trellis = parts == RANS_MODEL_TRELLIS;
    if (is_trellis) count = encode_trellis(models, codes, counts[0], x, words);
    for (uint32_t i = 0; !is_trellis && i < parts; i++) codes += counts[i];
    for (uint32_t i = is_trellis ? 0 : parts; i-- > 0;) {
        codes -= counts[i];
        count = encode_part(&models[i], codes, counts[i], x, words, count);
    }
    memset(block, 0, 6 + 9 + 4 * 480);
    for (uint32_t i = 0; i < parts; i++) {
        rans_model m = models[i];
        block[at++] = (uint8_t)m.k;
        block[at++] = (uint8_t)m.least;
        block[at++] = (uint8_t)(m.range - 1);
        if (i == 0) block[at] = is_trellis ? 2 : parts > 1;
        if (i == 0) put_bits(block, 8 * at + 8, 16, count);
        at = table_of(&m, block, i == 0 ? at + 3 : at, true);
    }
    if (!is_trellis && !has_states(models, parts)) return at;
    for (int i = 0; i < 32; i++, at += 4) put_bits(block, 8 * at, 32, x[i]);
    for (uint32_t i = 0; i < count; i++, at += 2) put_bits(block, 8 * at, 16, words[count - 1 - i]);
    return at;
}

/* Reads the header, the heads and the frequencies of a block. Sets `models` and *parts. Returns the
 * number of the byte behind them, where the states begin if there are any. */
static size_t read_front(const uint8_t *block, size_t bytes, rans_model *models, uint32_t *parts)
{
    uint8_t front[6 + 9 + 4 * 480 + 8] = {0};
    memcpy(front, block, bytes < sizeof front - 8 ? bytes : sizeof front - 8);
    *parts = front[3] == 2 ? RANS_MODEL_TRELLIS : front[3] ? 4 : 1;
    size_t at = 0;
    for (uint32_t i = 0; i < *parts; i++) {
        models[i] = (rans_model){front[at], front[at + 1], front[at + 2] + 1u, {4096}};
        at = table_of(&models[i], front, at + (i == 0 ? 6 : 3), false);
    }
    return at;
}

uint32_t rans_model_read(const uint8_t *block, size_t bytes, rans_model *models)
{
    uint32_t parts;
    read_front(block, bytes, models, &parts);
    return parts;
}

/* Reads a symbol from a state, which it changes. b: the slots of its table; *at: the byte of the
 * block where the next word lies, which becomes 0 if there is none although one is needed. */
static uint32_t read_symbol(const uint32_t *b, const uint8_t *block, size_t bytes, size_t *at,
                            uint64_t *state)
{
    uint64_t slot = *state % 4096;
    uint32_t s = 0;
    while (b[s + 1] <= slot) s++;
    *state = (b[s + 1] - b[s]) * (*state / 4096) + slot - b[s];
    if (*state >= 65536) return s;
    if (*at + 2 > bytes) {
        *at = 0;
        return s;
    }
    *state = *state * 65536 + get_bits(block, 8 * *at, 16);
    *at += 2;
    return s;
}

/* Decodes the n codes of one part. at: the byte of the block where the next word lies; x: the 32
 * states, which it changes. Returns the byte where the words of the next part begin. Returns 0 if
 * the block has too few words. */
static size_t decode_part(const rans_model *m, const uint8_t *block, size_t bytes, size_t at,
                          uint64_t *x, uint8_t *codes, uint64_t n)
{
    uint32_t b[257];
    memset(codes, (int)m->least, n);
    if (m->range == 1) return at;
    slots_of(m, b);
    for (uint64_t j = 0; j * m->k < n; j++) {
        uint32_t s = read_symbol(b, block, bytes, &at, &x[j % 32]);
        if (at == 0) return 0;
        for (uint64_t i = j * m->k; i < j * m->k + m->k; i++, s /= m->range)
            if (i < n) codes[i] = (uint8_t)(m->least + s % m->range);
    }
    return at;
}

/* As decode_part, for all codes of a block with a trellis. */
static size_t decode_trellis(const rans_model *models, const uint8_t *block, size_t bytes,
                             size_t at, uint64_t *x, uint8_t *codes, uint64_t n)
{
    uint32_t b[RANS_MODEL_TRELLIS][257], t[32] = {0};
    for (uint32_t i = 0; i < RANS_MODEL_TRELLIS; i++) slots_of(&models[i], b[i]);
    for (uint64_t i = 0; i < n && at; i++) {
        uint32_t table = table_at(t[i % 32]),
                 s = read_symbol(b[table], block, bytes, &at, &x[i % 32]);
        int m = (int)(models[table].least + s) - 128;
        codes[i] = code_of(m, table);
        t[i % 32] = next_t(t[i % 32], m);
    }
    return at;
}

bool rans_model_decode(const uint8_t *block, size_t bytes, const uint32_t *counts, uint32_t parts,
                       uint8_t *codes)
{
    static rans_model models[RANS_MODEL_PARTS];
    uint64_t x[32];
    uint32_t found;
    size_t states = read_front(block, bytes, models, &found), at = states;
    if (found != parts) return false;
    for (size_t i = 0; i < 32; i++) x[i] = 65536;
    bool is_trellis = parts == RANS_MODEL_TRELLIS;
    if (is_trellis || has_states(models, parts)) at += 128;
    if (at > bytes) return false;
    for (size_t i = 0; i < 32 && at > states; i++) x[i] = get_bits(block, 8 * (states + 4 * i), 32);
    size_t words = at;
    if (is_trellis) at = decode_trellis(models, block, bytes, at, x, codes, counts[0]);
    for (uint32_t i = 0; i < parts && at && !is_trellis; codes += counts[i++])
        at = decode_part(&models[i], block, bytes, at, x, codes, counts[i]);
    for (int i = 0; i < 32; i++)
        if (x[i] != 65536) return false;
    return at == bytes && get_bits(block, 32, 16) == (bytes - words) / 2;
}
