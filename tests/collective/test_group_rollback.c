/* SPDX-License-Identifier: Apache-2.0
 * test_group_rollback.c - what y held before an operation comes back, whatever the lengths of
 * pieces and the addresses of buffers are. */
#include <stdlib.h>
#include <string.h>

#include "group_rig.h"

#include "exchange.h"

enum { RANKS = 3, SPARE = 64 };

/* A group that has no links, and an operation in it. */
typedef struct bench {
    dw_settings settings;
    dw_group_slot slot;
    uint64_t first_piece[RANKS];
    unsigned char *taken, *kept, *y, *before;
    size_t bytes;
    uint32_t pieces;
} bench;

static void set_up(bench *b, dw_dtype dtype, uint64_t n, uint32_t piece, size_t offset)
{
    memset(b, 0, sizeof *b);
    b->settings.ranks = RANKS;
    b->settings.hops = 2;
    b->settings.piece = piece;
    b->bytes = n * dw_dtype_bytes(dtype);
    b->y = (unsigned char *)aligned_alloc(64, (b->bytes + 2 * SPARE) / 64 * 64 + 64) + offset;
    b->kept = (unsigned char *)aligned_alloc(64, (b->bytes + 2 * SPARE) / 64 * 64 + 64) + offset;
    b->before = malloc(b->bytes);
    for (size_t i = 0; i < b->bytes; i++) b->y[i] = (unsigned char)(i * 131 + i / 251);
    memcpy(b->before, b->y, b->bytes);
    dw_group_slot *slot = &b->slot;
    slot->now.job = (dw_group_job){.operation = DW_ALL_REDUCE, .dtype = dtype, .n = n, .y = b->y};
    slot->gather.lands_in_y = true;
    slot->gather.result = b->kept;
    slot->gather.first_piece = b->first_piece;
    for (uint32_t r = 0; r < RANKS; r++) {
        b->first_piece[r] = b->pieces;
        b->pieces += dw_job_pieces(&b->settings, &slot->now.job, r);
    }
    slot->gather.taken = b->taken = calloc(b->pieces, 1);
}

static void take_down(bench *b, size_t offset)
{
    free(b->y - offset);
    free(b->kept - offset);
    free(b->before);
    free(b->taken);
}

/* Overwrites the pieces of which `which` has a bit; returns the bytes that were overwritten. */
static size_t overwrite(bench *b, unsigned which)
{
    size_t each = dw_dtype_bytes(b->slot.now.job.dtype), bytes = 0;
    for (uint32_t r = 0, k = 0; r < RANKS; r++) {
        for (uint32_t i = 0; i < dw_job_pieces(&b->settings, &b->slot.now.job, r); i++, k++) {
            if (!(which >> k % 32 & 1)) continue;
            dw_piece at = dw_job_piece(&b->settings, &b->slot.now.job, r, i);
            unsigned char *room = dw_rollback_room(&b->slot, &b->taken[k], at);
            assert_ptr_equal(room, b->y + at.begin * each);
            memset(room, 0xa5, at.count * each);
            bytes += at.count * each;
        }
    }
    return bytes;
}

static void overwritten_output_is_restored(void **state)
{
    (void)state;
    static const uint32_t pieces[] = {2048, 16384, 20480, 262144};
    static const uint64_t lengths[] = {1, 5000, 61440, 100003, 1000001};
    static const dw_dtype dtypes[] = {DW_F32, DW_BF16};
    for (int i = 0; i < 4 * 5 * 2 * 3; i++) {
        uint64_t n = lengths[i / 4 % 5];
        size_t offset = (size_t)(i / 40) * 4; /* of y and of what is kept: 0, 4, 8 */
        bench b;
        set_up(&b, dtypes[i / 20 % 2], n, pieces[i % 4], offset);
        assert_int_equal(overwrite(&b, UINT32_MAX), b.bytes);
        assert_memory_not_equal(b.y, b.before, b.bytes);
        dw_rollback_output(&b.settings, &b.slot);
        assert_memory_equal(b.y, b.before, b.bytes);
        take_down(&b, offset);
    }
}

/* Only what was overwritten is copied back: the caller may have other values elsewhere. */
static void only_overwritten_pieces_are_restored(void **state)
{
    (void)state;
    bench b;
    set_up(&b, DW_F32, 200000, 20480, 0);
    assert_in_range(overwrite(&b, 0x55555555), 1, b.bytes - 1);
    memset(b.kept, 0, 4); /* piece 0 is overwritten, piece 1 is not */
    memset(b.kept + 20480 * 4, 0, 4);
    dw_rollback_output(&b.settings, &b.slot);
    assert_memory_equal(b.y, "\0\0\0\0", 4);
    assert_memory_equal(b.y + 4, b.before + 4, b.bytes - 4);
    take_down(&b, 0);
}

/* Results that are not decoded into y go where they are kept until the end. */
static void untouched_output_is_not_restored(void **state)
{
    (void)state;
    bench b;
    set_up(&b, DW_F32, 100000, 20480, 0);
    b.slot.gather.lands_in_y = false;
    dw_piece at = dw_job_piece(&b.settings, &b.slot.now.job, 1, 0);
    assert_ptr_equal(dw_rollback_room(&b.slot, &b.taken[2], at), b.kept + at.begin * 4);
    dw_rollback_output(&b.settings, &b.slot);
    assert_memory_equal(b.y, b.before, b.bytes);
    take_down(&b, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(overwritten_output_is_restored),
        cmocka_unit_test(only_overwritten_pieces_are_restored),
        cmocka_unit_test(untouched_output_is_not_restored),
    };
    return cmocka_run_group_tests_name("group rollback", tests, NULL, NULL);
}
