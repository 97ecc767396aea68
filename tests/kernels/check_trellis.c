/* SPDX-License-Identifier: Apache-2.0
 * check_trellis.c - tests the kernels of trellis-coded quantization. The C kernels are compared
 * with a search through all sequences of levels that a lane can have, those of every other table
 * that this processor can run with the C kernels, byte by byte.
 *
 * check_trellis [--share N]: only one in N of the random draws, for emulated processors. */
#include <float.h>
#include <math.h>

#include "kernel_rig.h"

enum { LANES = DW_TRELLIS_LANES, FEW_ROWS = 9, DRAWS = 400 };

/* ---- The model ------------------------------------------------------------------------------- */

/* The levels that may follow a state are every other multiple of a step, so a lane is a walk
 * through this table: the state behind an even and behind an odd index. */
static const uint32_t model_next[4][2] = {{0, 2}, {2, 0}, {1, 3}, {3, 1}};

/* The level of a kind with an index of this parity that is nearest to a magnitude, by comparing all
 * of them; of two that are equally near, one whose quarter is even. */
static int model_level(float magnitude, uint32_t kind, uint32_t odd)
{
    int best = -1;
    for (int index = (int)odd; index <= DW_TRELLIS_INDEX + 1; index += 2) {
        int level = index == 0 ? 0 : 2 * index - (int)kind;
        float to_best = fabsf(magnitude - (float)best), to_level = fabsf(magnitude - (float)level);
        bool is_tie = to_level == to_best && level / 4 % 2 == 0 && !(kind && !odd && best == 0);
        if (best < 0 || to_level < to_best || is_tie) best = level;
    }
    return best;
}

/* Returns the least cost of all sequences of a lane with at most FEW_ROWS values. Bit r of a
 * sequence says whether the index of row r is odd. */
static float model_least(const dw_trellis_run *run, uint32_t lane, uint32_t first_state)
{
    float least = INFINITY;
    for (uint32_t sequence = 0; sequence < 1u << run->rows; sequence++) {
        float cost = 0;
        uint32_t state = first_state;
        for (uint32_t row = 0; row < run->rows; row++) {
            uint32_t odd = sequence >> row & 1, kind = state >> 1;
            float value = run->scaled[row * LANES + lane] * run->shrink,
                  magnitude = fminf(fabsf(value), DW_TRELLIS_MOST);
            int level = isnan(value) ? 0 : model_level(magnitude, kind, odd);
            float error = isnan(value) ? 0 : magnitude - (float)level, square = error * error;
            if (!isnan(value) && kind && level == 0) square = square + run->zero_costs;
            cost = cost + (isnan(value) && odd ? INFINITY : square);
            state = model_next[state][odd];
        }
        if (cost < least) least = cost;
    }
    return least;
}

/* Returns what the codes of a lane cost, and fails if they do not follow the trellis or do not end
 * in the state that the kernel says. */
static float cost_of_codes(const dw_trellis_run *run, uint32_t lane, uint32_t state)
{
    float cost = 0;
    for (uint32_t row = 0; row < run->rows; row++) {
        float value = run->scaled[row * LANES + lane] * run->shrink;
        int level = run->codes[row * LANES + lane] - 128, magnitude = abs(level);
        uint32_t kind = state >> 1, index = (uint32_t)(magnitude + 1) / 2;
        assert_true(magnitude <= 126);
        assert_true(level == 0 || (uint32_t)magnitude % 2 == kind);
        if (isnan(value))
            assert_int_equal(level, 0);
        else if (level != 0)
            assert_true(!signbit(value) == (level > 0));
        float error = isnan(value) ? 0 : fminf(fabsf(value), DW_TRELLIS_MOST) - (float)magnitude;
        float square = error * error;
        if (!isnan(value) && kind && level == 0) square = square + run->zero_costs;
        cost = cost + square;
        state = model_next[state][index % 2];
    }
    assert_int_equal(run->states[lane], state);
    return cost;
}

/* ---- Runs ------------------------------------------------------------------------------------ */

typedef struct trellis_case {
    float scaled[DW_TRELLIS_VALUES];
    uint8_t states[LANES], codes[DW_TRELLIS_VALUES];
    dw_trellis_run run;
} trellis_case;

/* Values of all sizes, many of them exactly between two levels, some not finite; padding. */
static float any_value(bench *b, float size)
{
    float value = size * test_normal(&b->random);
    switch (below(b, 16)) {
    case 0: return NAN;
    case 1: return below(b, 2) ? 0.0f : -0.0f;
    case 2: return rintf(4 * value) / 4;
    case 3: return rintf(value);
    case 4: return below(b, 2) ? INFINITY : -FLT_MAX;
    case 5: return below(b, 2) ? 1.5f : -123.75f;
    default: return value;
    }
}

static void draw_case(bench *b, trellis_case *c, uint32_t most_rows)
{
    static const float shrinks[] = {1, 0.5f, 0.9f, 0.01f},
                       costs[] = {0, DW_TRELLIS_ZERO_COSTS, 0.3f};
    float size = ldexpf(1, (int)below(b, 10) - 2);
    c->run = (dw_trellis_run){.scaled = c->scaled,
                              .rows = 1 + below(b, most_rows),
                              .shrink = shrinks[below(b, 4)],
                              .zero_costs = costs[below(b, 3)],
                              .states = c->states,
                              .codes = c->codes,
                              .clamped = below(b, 3)};
    for (uint32_t i = 0; i < c->run.rows * LANES; i++) c->scaled[i] = any_value(b, size);
    for (int i = 0; i < LANES; i++) c->states[i] = (uint8_t)below(b, DW_TRELLIS_STATES);
}

KERNEL_TEST_BY(for_all_tables, finds_the_best_sequence)
{
    static trellis_case c;
    for (int draws = drawn(b, DRAWS / 4, 4); draws > 0; draws--) {
        uint8_t before[LANES];
        uint64_t outside = 0;
        draw_case(b, &c, FEW_ROWS);
        memcpy(before, c.states, sizeof before);
        uint64_t clamped = c.run.clamped;
        b->kernels->trellis_encode(&c.run);
        for (uint32_t i = 0; i < c.run.rows * LANES; i++)
            outside += fabsf(c.scaled[i] * c.run.shrink) > DW_TRELLIS_MOST;
        assert_int_equal(c.run.clamped, clamped + outside);
        for (uint32_t lane = 0; lane < LANES; lane++) {
            float least = model_least(&c.run, lane, before[lane]),
                  found = cost_of_codes(&c.run, lane, before[lane]);
            assert_memory_equal(&found, &least, sizeof found);
        }
    }
}

KERNEL_TEST(encodes_as_c)
{
    static trellis_case c, expected;
    for (int draws = drawn(b, DRAWS, 4); draws > 0; draws--) {
        draw_case(b, &c, DW_TRELLIS_ROWS);
        size_t n = (size_t)c.run.rows * LANES;
        expected = c;
        expected.run.states = expected.states;
        expected.run.codes = expected.codes;
        specification->trellis_encode(&expected.run);
        c.run.scaled = guarded_copy(b, SLOT_X, c.scaled, n * sizeof(float));
        c.run.codes = guarded(b, SLOT_CODES, n);
        c.run.states = guarded_copy(b, SLOT_SCALES, c.states, LANES);
        b->kernels->trellis_encode(&c.run);
        const char *name = b->kernels->name;
        same_bytes("codes", expected.codes, c.run.codes, n, name, "trellis");
        same_bytes("states", expected.states, c.run.states, LANES, name, "trellis");
        same_bytes("clamped", &expected.run.clamped, &c.run.clamped, sizeof(uint64_t), name,
                   "trellis");
    }
}

/* Marks of codes that follow a trellis say the same code again, and end in the same states. */
KERNEL_TEST_BY(for_all_tables, marks_say_their_codes)
{
    static trellis_case c;
    for (int draws = drawn(b, DRAWS, 4); draws > 0; draws--) {
        draw_case(b, &c, DW_TRELLIS_ROWS);
        uint8_t states[LANES], walked[LANES];
        memcpy(states, c.states, sizeof states);
        memcpy(walked, c.states, sizeof walked);
        specification->trellis_encode(&c.run);
        size_t n = (size_t)c.run.rows * LANES - below(b, LANES);
        uint8_t *codes = guarded_copy(b, SLOT_CODES, c.codes, n), *marks = guarded(b, SLOT_NEXT, n);
        b->kernels->trellis_marks(codes, n, states, marks);
        for (size_t i = 0; i < n; i++) {
            uint32_t state = walked[i % LANES], index = (uint32_t)(abs(codes[i] - 128) + 1) / 2;
            assert_int_equal(marks[i] % 2, state >> 1);
            assert_int_equal(dw_trellis_mark_is_odd(marks[i]), index % 2);
            assert_int_equal(dw_trellis_code(marks[i]), codes[i]);
            walked[i % LANES] = (uint8_t)model_next[state][index % 2];
        }
        assert_memory_equal(states, walked, LANES);
    }
}

RUN_KERNEL_TESTS
