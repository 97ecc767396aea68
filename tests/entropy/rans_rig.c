/* SPDX-License-Identifier: Apache-2.0
 * rans_rig.c - random codes, kernel tables and guarded memory for the tests of entropy-coded
 * blocks. */
#include "rans_rig.h"

#include <math.h>

uint32_t share = 1;

uint32_t less_than(rig *r, uint32_t n)
{
    return (uint32_t)(test_next(&r->random) % n);
}

void on_a_rig(void **state)
{
    const rans_check *what = *state;
    rig r = {.random = {test_seed()}, .tables = {specification}, .n_tables = 1};
    for (int i = 0; i < KERNEL_TABLES; i++) {
        const dw_kernels *found = dw_kernels_find(kernel_tables[i].name);
        if (found) r.tables[r.n_tables++] = found;
    }
    r.codes = slot_open(MOST_CODES + GAPS);
    r.from = slot_open(RANS_MODEL_MOST);
    r.to = slot_open(MOST_CODES);
    r.back = slot_open(MOST_CODES + GAPS);
    r.work = slot_open(dw_rans_work_bytes(MOST_CODES, true));
    what->check(&r);
    slot slots[] = {r.codes, r.from, r.to, r.back, r.work};
    for (size_t i = 0; i < sizeof slots / sizeof *slots; i++) slot_close(slots[i]);
}

uint8_t *dirty(rig *r, slot s, size_t bytes)
{
    uint8_t *memory = slot_place(s, bytes, less_than(r, 2));
    memset(memory, (int)less_than(r, 256), bytes);
    return memory;
}

/* ---- Codes ----------------------------------------------------------------------------------- */

/* Draws code number i of the n codes of a source. */
static uint8_t code_of(rig *r, const source *s, uint64_t i, uint64_t n)
{
    double u = test_uniform(&r->random), value = 0;
    switch (s->kind) {
    case GAUSS: value = 128 + (double)test_normal(&r->random) / s->step; break;
    case LAPLACE:
        value = 128 + log(1 - u) / s->step * (test_uniform(&r->random) < 0.5 ? -1 : 1);
        break;
    case UNIFORM: return (uint8_t)(s->least + less_than(r, s->range));
    case RARE: return (uint8_t)(s->least + (u < 0.999 ? 0 : less_than(r, s->range)));
    case FAR: return (uint8_t)(u < 0.9 ? s->least : s->least + s->range - 1);
    case HALVES: return (uint8_t)(s->least + (i < n / 2 ? 0 : less_than(r, s->range)));
    case TURNS: return (uint8_t)(s->least + i % s->range);
    default: return (uint8_t)s->least;
    }
    value = floor(value + 0.5);
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

source any_source(rig *r)
{
    static const double steps[] = {0.02, 0.1, 0.35, 1, 1.4, 2, 3, 4, 6};
    source s = {.kind = (int)less_than(r, KINDS), .step = steps[less_than(r, 9)]};
    s.range = 1 + less_than(r, less_than(r, 2) ? 256 : 17);
    s.least = less_than(r, 257 - s.range);
    return s;
}

const uint8_t *draw(rig *r, const source *s, uint64_t n)
{
    uint8_t *codes = dirty(r, r->codes, n);
    for (uint64_t i = 0; i < n; i++) codes[i] = code_of(r, s, i, n);
    return codes;
}

uint64_t any_n(rig *r)
{
    /* Numbers around the multiples of 32 states, of vectors, and of 128 codes, which are the states
     * times 4 codes per symbol. */
    static const uint32_t special[] = {1,   2,   3,    4,    31,   32,    33,    63,    64,
                                       65,  127, 128,  129,  255,  256,   257,   383,   511,
                                       512, 999, 1024, 4097, 8192, 32767, 32768, 65535, 65536};
    uint32_t way = less_than(r, 4);
    if (way == 0) return special[less_than(r, sizeof special / sizeof *special)];
    return 1 + less_than(r, way == 1 ? 300 : way == 2 ? 5000 : MOST_CODES);
}

/* ---- Blocks ---------------------------------------------------------------------------------- */

size_t encode(rig *r, const dw_kernels *kernels, const uint8_t *codes, uint64_t n, uint8_t *to,
              size_t cap)
{
    return dw_rans_encode(kernels, &(dw_rans_codes){.codes = codes, .n = n}, to, cap,
                          dirty(r, r->work, dw_rans_work_bytes(n, false)));
}

const uint8_t *decode(rig *r, const dw_kernels *kernels, const uint8_t *block, size_t bytes,
                      uint64_t n, const char **wrong)
{
    uint8_t *from = dirty(r, r->from, bytes), *back = dirty(r, r->back, n);
    size_t used = 0;
    memcpy(from, block, bytes);
    *wrong = dw_rans_decode(kernels, from, bytes, back, n,
                            dirty(r, r->work, dw_rans_work_bytes(n, false)), &used);
    assert_true(*wrong || (used > 0 && used <= bytes));
    return *wrong ? NULL : back;
}

void must_decode(rig *r, const dw_kernels *kernels, const uint8_t *block, size_t bytes,
                 const uint8_t *codes, uint64_t n, const char *what)
{
    const char *wrong;
    const uint8_t *back = decode(r, kernels, block, bytes, n, &wrong);
    if (wrong) fail_msg("%s: %s: %s", kernels->name, what, wrong);
    same_bytes("codes", codes, back, n, kernels->name, what);
}

const char *describe(const source *s, uint64_t n)
{
    static char text[128];
    snprintf(text, sizeof text, "kind %d step %g least %u range %u n %lu", s->kind, s->step,
             (unsigned)s->least, (unsigned)s->range, (unsigned long)n);
    return text;
}

rans_model any_model(rig *r)
{
    static const uint32_t most[5] = {0, 256, 16, 0, 4}; /* by k: the largest R with R^k <= 256 */
    rans_model m = {.k = 1u << less_than(r, 3)};
    m.range = 2 + less_than(r, most[m.k] - 1);
    m.least = less_than(r, 257 - m.range);
    uint32_t left = DW_RANS_SLOTS - 2;
    m.f[0] = m.f[m.range - 1] = 1;
    bool even = less_than(r, 2); /* false: a few symbols have nearly all slots */
    for (uint32_t i = 0; i < 4 * m.range && left > 0; i++) {
        uint32_t more = less_than(r, (even ? DW_RANS_SLOTS / (2 * m.range) : left) + 1);
        more = more < left ? more : left;
        m.f[less_than(r, m.range)] += more;
        left -= more;
    }
    m.f[less_than(r, 2) ? 0 : m.range / 2] += left;
    return m;
}
