/* SPDX-License-Identifier: Apache-2.0
 * test_slots.c - slots of a file: two never share a page, and the file becomes longer only when no
 * gap is long enough. */
#include "storage_slots.h"

#include "support/tool.h"

enum { PAGES = 30000, SLOTS = 200, RUNS = 100, STEPS = 1000, LONGEST = 150 };

typedef struct taken {
    uint64_t offset, bytes; /* 0: none */
} taken;

static unsigned char used[PAGES];

static uint64_t pages_of(uint64_t bytes)
{
    return (bytes + DW_STORAGE_PAGE - 1) / DW_STORAGE_PAGE;
}

/* The first gap that is long enough, or what is free at the end. */
static uint64_t first_gap(uint64_t pages, uint64_t end)
{
    uint64_t gap = 0, page = 1;
    for (; gap < pages && page < end; page++) gap = used[page] ? 0 : gap + 1;
    return page - gap;
}

static void mark(const taken *s, unsigned char as_used)
{
    uint64_t first = s->offset / DW_STORAGE_PAGE, end = first + pages_of(s->bytes);
    assert_in_range(first, 1, PAGES);
    assert_in_range(end, first, PAGES);
    for (uint64_t page = first; page < end; page++) {
        assert_int_equal(used[page], !as_used);
        used[page] = as_used;
    }
}

/* Slots of `lengths` different lengths. For a while most of them are given back, then most are
 * taken; some are placed again where they were. */
static void use_gaps_before_the_file_becomes_longer(unsigned lengths, uint32_t seed)
{
    static taken held[SLOTS];
    const uint32_t first = seed;
    storage_slots slots;
    dw_storage_slots_begin(&slots);
    memset(held, 0, sizeof held);
    memset(used, 0, sizeof used);
    for (int step = 0; step < STEPS; step++) {
        seed = seed * 1664525u + 1013904223u;
        taken *s = &held[(seed >> 8) % SLOTS];
        bool takes = step / (20 + (int)(first % 100)) % 2 == 0;
        if ((s->bytes != 0) == takes && seed >> 29) continue;
        if (s->bytes) {
            dw_storage_slots_give(&slots, s->offset, s->bytes);
            mark(s, 0);
            if (seed >> 30) {
                s->bytes = 0;
                continue;
            }
            assert_true(dw_storage_slots_place(&slots, s->bytes, s->offset));
        } else {
            s->bytes = 1 + (uint64_t)(seed >> 16) % lengths * LONGEST * DW_STORAGE_PAGE / lengths;
            uint64_t end = slots.end, gap = first_gap(pages_of(s->bytes), end);
            assert_true(dw_storage_slots_take(&slots, s->bytes, &s->offset));
            if (slots.end > end) assert_int_equal(s->offset, gap * DW_STORAGE_PAGE);
        }
        mark(s, 1);
    }
    dw_storage_slots_free(&slots);
}

TEST(slots_of_one_length_fill_gaps)
{
    for (uint32_t seed = 1; seed <= RUNS; seed++) use_gaps_before_the_file_becomes_longer(1, seed);
}

TEST(slots_of_three_lengths_fill_gaps)
{
    for (uint32_t seed = 1; seed <= RUNS; seed++) use_gaps_before_the_file_becomes_longer(3, seed);
}

TEST(slots_of_more_lengths_than_are_remembered_fill_gaps)
{
    for (uint32_t seed = 1; seed <= RUNS; seed++)
        use_gaps_before_the_file_becomes_longer(3 * DW_STORAGE_LENGTHS, seed);
}

static storage_slots few;

static uint64_t take(uint64_t pages)
{
    uint64_t offset;
    assert_true(dw_storage_slots_take(&few, pages * DW_STORAGE_PAGE, &offset));
    return offset / DW_STORAGE_PAGE;
}

static void give(uint64_t page, uint64_t pages)
{
    dw_storage_slots_give(&few, page * DW_STORAGE_PAGE, pages * DW_STORAGE_PAGE);
}

TEST(rest_of_a_slot_and_a_gap_behind_it_become_a_slot)
{
    dw_storage_slots_begin(&few);
    uint64_t slot = take(10), next = take(6);
    take(10);
    give(next, 6);
    give(slot, 10);
    assert_int_equal(take(3), slot);
    assert_int_equal(take(10), slot + 3);
    dw_storage_slots_free(&few);
}

TEST(rest_of_a_slot_and_a_gap_before_it_become_a_slot)
{
    dw_storage_slots_begin(&few);
    uint64_t before = take(6), longer = take(7), shorter = take(3);
    take(10);
    give(longer, 7);
    give(shorter, 3);
    uint64_t slot = take(10);
    assert_int_equal(slot, longer);
    give(before, 6);
    give(slot, 10);
    assert_int_equal(take(3), shorter);
    assert_int_equal(take(10), before);
    dw_storage_slots_free(&few);
}

RUN_TESTS(NULL, NULL)
