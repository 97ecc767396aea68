/* SPDX-License-Identifier: Apache-2.0
 * check_cuda_head.c - compares the kernel that completes heads, executed on the CPU, with the
 * writers of src/wire: tables of every length, with threads in forward and in reverse order.
 *
 * Buffers have exactly the bytes that may be accessed, so that a sanitizer detects any access
 * outside. */
#include "emulated.h"
#include "message_head.h"
#include "support/tool.h"
#include "wire/frame.h"

enum { MOST_ENTRIES = 60, MOST_PARTS = 3 };

static test_random source;

static uint32_t below(uint32_t n)
{
    return (uint32_t)(test_next(&source) % n);
}

/* One head: the part that the kernel gets, and the bytes that it must write. */
typedef struct sample {
    dw_cuda_head_part part;
    uint8_t *draft, *frame, *expected;
    dw_cuda_report reports[MOST_ENTRIES];
    uint64_t sealed;
} sample;

static void put_entries(sample *s, const dw_header *header)
{
    for (uint32_t i = 0; i < header->n; i++) {
        bool has_payload = below(8) != 0, has_state = below(3) != 0;
        dw_entry entry = {.key = {test_next(&source), below(1000)},
                          .role = (dw_role)(1 + below(5)),
                          .form = (uint8_t)(1 + below(3)),
                          .use = (dw_use)below(DW_USES),
                          .base_chain = test_next(&source),
                          .payload_bytes = 16 * below(9999)};
        s->reports[i] =
            (dw_cuda_report){.payload = test_next(&source), .state = test_next(&source)};
        entry.payload_digest = has_payload;
        entry.state_digest = has_state;
        dw_frame_put_entry(s->draft, header, i, &entry);
        if (has_payload) entry.payload_digest = dw_digest_of_sum(s->reports[i].payload);
        if (has_state) entry.state_digest = dw_digest_of_sum(s->reports[i].state);
        dw_frame_put_entry(s->expected, header, i, &entry);
    }
}

static void make(sample *s, uint32_t n, uint32_t n_parameters, uint32_t n_forgotten)
{
    uint8_t block[DW_PARAMETERS_MOST * DW_PARAMETER_BYTES];
    uint64_t bytes;
    dw_header header = {.codec = 1,
                        .wants_reply = below(2) != 0,
                        .incarnation = test_next(&source),
                        .sequence = test_next(&source),
                        .seed = test_next(&source),
                        .n = n,
                        .t = below(1000),
                        .c = below(1000),
                        .x = DW_F16,
                        .n_parameters = n_parameters,
                        .n_forgotten = n_forgotten,
                        .length = test_next(&source)};
    assert_true(dw_frame_table_end(n_parameters, n, n_forgotten, &bytes));
    for (size_t i = 0; i < sizeof block; i++) block[i] = (uint8_t)test_next(&source);
    s->draft = malloc(bytes);
    s->frame = malloc(bytes);
    s->expected = malloc(bytes);
    memset(s->frame, 0xee, bytes);
    dw_frame_put_parameters(s->draft, block, n_parameters);
    dw_frame_put_parameters(s->expected, block, n_parameters);
    put_entries(s, &header);
    for (uint32_t i = 0; i < n_forgotten; i++) {
        dw_key key = {test_next(&source), below(1000)};
        dw_frame_put_forgotten(s->draft, &header, i, key);
        dw_frame_put_forgotten(s->expected, &header, i, key);
    }
    dw_frame_finalize(s->draft, &header);
    dw_frame_finalize(s->expected, &header);
    s->sealed = 0;
    s->part = (dw_cuda_head_part){.draft = (const uint64_t *)(const void *)s->draft,
                                  .reports = s->reports,
                                  .frame = (uint64_t *)(void *)s->frame,
                                  .sealed = &s->sealed,
                                  .serial = 1 + below(1000),
                                  .bytes = bytes,
                                  .entries = dw_frame_tables(n_parameters),
                                  .n = n};
}

static void launch(const sample *samples, uint32_t n)
{
    dw_cuda_head_part parts[MOST_PARTS];
    for (uint32_t i = 0; i < n; i++) parts[i] = samples[i].part;
    assert_int_equal(dw_shim_launch("dw_finalize_heads", parts, n, n), 1);
}

/* Completes the heads twice, with new serials; then once more with the same serials, which must not
 * make a second valid frame. */
static void check(sample *samples, uint32_t n)
{
    static const uint8_t nothing[DW_HEADER_BYTES];
    for (int round = 0; round < 2; round++) {
        dw_shim_turn_round(round);
        for (uint32_t i = 0; i < n; i++) samples[i].part.serial++;
        launch(samples, n);
        for (uint32_t i = 0; i < n; i++) {
            const sample *s = &samples[i];
            assert_memory_equal(s->frame, s->expected, s->part.bytes);
            assert_int_equal(s->sealed, s->part.serial);
            memset(s->frame, 0xee, s->part.bytes);
        }
    }
    launch(samples, n);
    for (uint32_t i = 0; i < n; i++) {
        const sample *s = &samples[i];
        assert_memory_equal(s->frame, nothing, sizeof nothing);
        assert_int_equal(s->sealed, s->part.serial);
    }
    for (uint32_t i = 0; i < n; i++) {
        free(samples[i].draft);
        free(samples[i].frame);
        free(samples[i].expected);
    }
}

TEST(heads_equal_those_of_the_writers)
{
    static sample samples[MOST_PARTS];
    source.state = test_seed();
    /* Tables of every length, in steps of 16 bytes. */
    for (uint32_t blocks = 0; blocks < 3 * MOST_ENTRIES; blocks++) {
        make(&samples[0], 1 + blocks / 3, below(2), blocks % 3);
        check(samples, 1);
    }
    for (int i = 0; i < 40; i++) {
        uint32_t n = 1 + below(MOST_PARTS);
        for (uint32_t k = 0; k < n; k++)
            make(&samples[k], 1 + below(MOST_ENTRIES), below(DW_PARAMETERS_MOST + 1),
                 below(MOST_ENTRIES));
        check(samples, n);
    }
}

RUN_TESTS(NULL, NULL)
