/* SPDX-License-Identifier: Apache-2.0
 * rans_model.c - entropy-coded blocks, slowly, from docs/format.md alone. */
#include "rans_model.h"

#include <string.h>

static uint64_t pair_weight(uint64_t a, uint64_t b)
{
    uint64_t product = a * b, weight = product / (1u << 24);
    return product != 0 && weight == 0 ? 1 : weight;
}

/* B(0) to B(R^k); returns R^k. */
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

static void put_bits(uint8_t *to, size_t at, uint32_t bits, uint32_t value)
{
    for (uint32_t i = 0; i < bits; i++, at++)
        to[at / 8] = (uint8_t)((to[at / 8] & ~(1u << at % 8)) | (value >> i & 1) << at % 8);
}

static uint32_t get_bits(const uint8_t *from, size_t at, uint32_t bits)
{
    uint32_t value = 0;
    for (uint32_t i = 0; i < bits; i++, at++) value |= (uint32_t)(from[at / 8] >> at % 8 & 1) << i;
    return value;
}

/* Reads or writes the frequencies. Returns the byte behind them. */
static size_t table_of(rans_model *m, uint8_t *block, bool writes)
{
    size_t at = 48;
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

size_t rans_model_encode(const rans_model *model, const uint8_t *codes, uint64_t n, uint8_t *block)
{
    static uint32_t words[65536];
    rans_model copy = *model, *m = &copy;
    uint32_t b[257], x[32], fill = 0, count = 0;
    for (uint32_t i = 0; i < m->range; i++) fill = m->f[i] > m->f[fill] ? i : fill;
    for (int i = 0; i < 32; i++) x[i] = 65536;
    memset(block, 0, 6 + 480);
    const uint8_t head[3] = {(uint8_t)m->k, (uint8_t)m->least, (uint8_t)(m->range - 1)};
    memcpy(block, head, 3);
    if (m->range == 1) return 6;
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
    put_bits(block, 32, 16, count);
    size_t at = table_of(m, block, true);
    for (int i = 0; i < 32; i++, at += 4) put_bits(block, 8 * at, 32, x[i]);
    for (uint32_t i = 0; i < count; i++, at += 2) put_bits(block, 8 * at, 16, words[count - 1 - i]);
    return at;
}

/* Stores the byte behind the frequencies. */
static rans_model read_front(const uint8_t *block, size_t bytes, size_t *behind)
{
    rans_model m = {block[0], block[1], block[2] + 1u, {4096}};
    uint8_t front[6 + 480] = {0};
    memcpy(front, block, bytes < sizeof front ? bytes : sizeof front);
    *behind = m.range == 1 ? 6 : table_of(&m, front, false);
    return m;
}

rans_model rans_model_read(const uint8_t *block, size_t bytes)
{
    size_t behind;
    return read_front(block, bytes, &behind);
}

bool rans_model_decode(const uint8_t *block, size_t bytes, uint8_t *codes, uint64_t n)
{
    size_t states;
    rans_model m = read_front(block, bytes, &states);
    uint32_t b[257];
    memset(codes, (int)m.least, n);
    if (m.range == 1) return bytes == 6;
    size_t at = states + 128;
    slots_of(&m, b);
    uint64_t x[32];
    for (size_t i = 0; i < 32; i++) x[i] = get_bits(block, 8 * (states + 4 * i), 32);
    for (uint64_t j = 0; j * m.k < n; j++) {
        uint64_t *state = &x[j % 32], slot = *state % 4096;
        uint32_t s = 0;
        while (b[s + 1] <= slot) s++;
        *state = (b[s + 1] - b[s]) * (*state / 4096) + slot - b[s];
        if (*state < 65536) {
            if (at + 2 > bytes) return false;
            *state = *state * 65536 + get_bits(block, 8 * at, 16);
            at += 2;
        }
        for (uint64_t i = j * m.k; i < j * m.k + m.k; i++, s /= m.range)
            if (i < n) codes[i] = (uint8_t)(m.least + s % m.range);
    }
    for (int i = 0; i < 32; i++)
        if (x[i] != 65536) return false;
    return at == bytes && get_bits(block, 32, 16) == (bytes - states - 128) / 2;
}
