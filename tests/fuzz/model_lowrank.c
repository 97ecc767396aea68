/* SPDX-License-Identifier: Apache-2.0
 * model_lowrank.c - the model's payloads of form 6: section 3.12 of docs/format.md. */
#include "model_values.h"
#include "reach.h"

enum { FLOATS = 1, QUANTIZED = 2 };

/* The matrix of a sample, and how its factors are written: P has r rows of `rows` values, Q has r
 * rows of `columns` values. */
typedef struct matrix {
    uint64_t rows, columns, r;
    model_way p, q;
} matrix;

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint32_t group_of(uint32_t group, uint64_t length)
{
    for (uint32_t narrow = 16; narrow <= 256; narrow *= 2)
        if (narrow >= length) return narrow < group ? narrow : group;
    return group;
}

static model_way factor_of(const model_way *way, uint64_t length)
{
    return (model_way){.form = way->bits ? QUANTIZED : FLOATS,
                       .bits = way->bits,
                       .group = way->bits ? group_of(way->group, length) : 0,
                       .dtype = way->dtype};
}

/* false: the shape does not allow the rank, or the factors are too large. */
static bool matrix_of(const model_way *way, uint32_t t, uint32_t c, matrix *m)
{
    uint64_t n = (uint64_t)t * c;
    *m = (matrix){.rows = t, .columns = c};
    if (way->width) {
        m->columns = smaller(way->width, n);
        m->rows = n / m->columns + (n % m->columns != 0);
    } else if (way->rank > t || way->rank > c) {
        return false;
    }
    m->r = smaller(way->rank, smaller(m->rows, m->columns));
    m->p = factor_of(way, m->rows);
    m->q = factor_of(way, m->columns);
    return m->r * (m->rows + m->columns) < (uint64_t)1 << 31;
}

size_t model_lowrank_size(const model_way *way, uint32_t t, uint32_t c, size_t most)
{
    matrix m;
    if (!matrix_of(way, t, c, &m)) return SIZE_MAX;
    size_t p = model_size(&m.p, (uint32_t)m.r, (uint32_t)m.rows, most),
           q = model_size(&m.q, (uint32_t)m.r, (uint32_t)m.columns, most);
    if (p == SIZE_MAX || q == SIZE_MAX || p + q > most) return SIZE_MAX;
    return p + q;
}

/* Reads a factor as a y of binary32. false: it has a value that is not finite. */
static bool read_factor(const model_way *way, uint64_t r, uint64_t length, const uint8_t *payload,
                        float *to)
{
    bool is_finite = true;
    model_value *values = calloc((size_t)(r * length), sizeof *values);
    REQUIRE(values != NULL);
    model_values(way, (uint32_t)r, (uint32_t)length, payload, NULL, 0, 0, values);
    for (uint64_t i = 0; i < r * length; i++) {
        /* A quantized value that overflows is clamped, a float is taken as it is. */
        uint32_t bits =
            way->form == FLOATS || values[i].poisoned ? 0 : model_rn(values[i].r, DW_F32);
        memcpy(&to[i], &bits, sizeof to[i]);
        if (way->form == FLOATS) to[i] = values[i].r;
        if (values[i].poisoned || to[i] - to[i] != 0) is_finite = false;
    }
    free(values);
    return is_finite;
}

void model_lowrank_values(const model_way *way, uint32_t t, uint32_t c, const uint8_t *payload,
                          model_value *values)
{
    matrix m;
    REQUIRE(matrix_of(way, t, c, &m));
    size_t second = model_size(&m.p, (uint32_t)m.r, (uint32_t)m.rows, SIZE_MAX - 1);
    float *p = calloc((size_t)(m.r * m.rows), sizeof *p),
          *q = calloc((size_t)(m.r * m.columns), sizeof *q);
    REQUIRE(p && q);
    bool p_is_finite = read_factor(&m.p, m.r, m.rows, payload, p),
         is_finite = read_factor(&m.q, m.r, m.columns, payload + second, q) && p_is_finite;
    fuzz_reach(is_finite ? "lowrank: product" : "lowrank: poisoned");
    for (uint64_t i = 0; i < (uint64_t)t * c; i++) {
        volatile float s = 0, product;
        for (uint64_t k = 0; k < m.r; k++) {
            product = p[k * m.rows + i / m.columns] * q[k * m.columns + i % m.columns];
            s = s + product;
        }
        if (is_finite && s - s != 0) fuzz_reach("lowrank: sum that is not finite");
        values[i] = (model_value){.r = s, .poisoned = !is_finite || s != s};
    }
    free(p);
    free(q);
}
