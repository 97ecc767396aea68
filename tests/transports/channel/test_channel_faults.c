/* SPDX-License-Identifier: Apache-2.0
 * test_channel_faults.c - the same bits as without a link, over shaped links that lose, duplicate,
 * reorder and damage messages. */
#include "channel_pair.h"

/* The part of the URI in front of the backend; %u is the seed. */
static const char *const faults[] = {
    "shaped:loss=8%%,seed=%u/",
    "shaped:duplicate=20%%,seed=%u/",
    "shaped:reorder=20%%:3ms,seed=%u/",
    "shaped:corrupt=8%%,seed=%u/",
    "shaped:loss=4%%,duplicate=5%%,reorder=5%%:3ms,corrupt=4%%,stall=1%%:5ms,delay=1ms,jitter=2ms,"
    "seed=%u/",
    "shaped:loss=4%%,duplicate=5%%,reorder=5%%:3ms,corrupt=4%%,rate=1mbit,delay=9s,jitter=1s,stall="
    "1%%:5s,time=virtual,seed=%u/",
};
enum { FAULTS = sizeof faults / sizeof *faults, TENSORS = 40, AHEAD = 4 };

static void carry(const char *fault, unsigned seed, const char *inner, const char *config)
{
    char uri[256];
    /* The %d in `inner` is for the suite. */
    int used = snprintf(uri, sizeof uri, fault, seed);
    snprintf(uri + used, sizeof uri - (size_t)used, "%s", inner);
    const suite_backend backend = {
        .name = "faults", .uri = uri, .transports = channels_backends[0].transports};
    test_channels channels;
    channels_open(&channels, &backend, config);
    test_reference reference = {.next = 0};
    test_pair_open(&reference.pair, config, N, T, C, DW_F32);
    int sent = 0;
    for (int i = 0; i < TENSORS; i++) {
        while (sent < TENSORS && sent < i + AHEAD) channels_send(&channels, sent++);
        channels_expect(&channels, &reference, i);
    }
    dw_key keys[N];
    float y[N * T * C];
    assert_int_equal(channels_receive(&channels, 0, keys, y), DW_PENDING);
    assert_int_equal(channels_received(channels.end[1]).raw_bytes,
                     (uint64_t)TENSORS * TENSOR_BYTES);
    test_pair_close(&reference.pair);
    channels_close(&channels);
}

TEST(every_fault_is_healed)
{
    for (size_t f = 0; f < FAULTS; f++) {
        int64_t begun = suite_now_ns();
        for (unsigned seed = 1; seed <= 3; seed++) {
            carry(faults[f], seed, "loop://faults-%d",
                  channels_configs[(f + seed) % CHANNELS_CONFIGS]);
        }
        carry(faults[f], 4, "tcp://127.0.0.1:0", "delta:bits=3,scale=signed");
        print_message("%s: %.2f s\n", faults[f], (double)(suite_now_ns() - begun) * 1e-9);
    }
}

/* One message of each kind is lost or arrives twice. The backend shaped says that it may lose
 * messages, but its probability is so small that it loses none itself. */
TEST(every_kind_of_message_may_be_lost_or_duplicated)
{
    const suite_backend backend = {.name = "may lose",
                                   .uri = "shaped:loss=0.0000000001%/loop://may-lose-%d",
                                   .transports = channels_backends[0].transports};
    /* Control messages 0 and 1 are the greetings, 2 and 3 acknowledge two frames, and 4 requests
     * the third frame if that was lost. */
    const test_plan plans[][3] = {
        {LOSE(FRAMES, 0, 0)},
        {LOSE(FRAMES, 11, 11)}, /* the last frame: no later one shows that it is missing */
        {LOSE(FRAMES, 2, 5)},
        {LOSE(CONTROL, 2, 4)},
        {LOSE(CONTROL, 0, 0)},
        {LOSE(CONTROL, 0, 2)},
        {LOSE(FRAMES, 2, 2), LOSE(CONTROL, 4, 5)},
        {LOSE(FRAMES, 2, 2), LOSE(RESENT, 0, 2)},
        {LOSE(FRAMES, 11, 11), LOSE(RESENT, 0, 0)},
        {DOUBLE(CONTROL, 0, 9)},
        {DOUBLE(FRAMES, 0, 11)},
        {LOSE(FRAMES, 2, 3), DOUBLE(CONTROL, 3, 6), DOUBLE(RESENT, 0, 3)},
        /* A frame is damaged, and then its request or the answer is lost. */
        {DAMAGE(FRAMES, 2, 2, -1), LOSE(CONTROL, 4, 4)},
        {DAMAGE(FRAMES, 2, 2, -1), LOSE(RESENT, 0, 0)},
        {DAMAGE(FRAMES, 2, 2, -1), DAMAGE(CONTROL, 4, 4, AT_ENVELOPE), LOSE(CONTROL, 2, 2)},
    };
    for (size_t p = 0; p < sizeof plans / sizeof *plans; p++) {
        for (int c = 1; c < CHANNELS_CONFIGS; c += 2)
            channels_carry(&backend, channels_configs[c], 12, AHEAD, plans[p], 3);
    }
}

/* The receiver has often asked for a frame that was not sent yet, and gets as many answers that say
 * so. When the frame arrives damaged, these must not count as failed attempts. */
TEST(late_resends_do_not_count_as_attempts)
{
    const suite_backend backend = {.name = "may lose",
                                   .uri = "shaped:loss=0.0000000001%/loop://late-%d",
                                   .transports = channels_backends[0].transports};
    test_channels channels;
    channels_prepare(&channels, &backend, "direct:bits=6", "direct:bits=6");
    channels.wire.plans[0] = (test_plan)DAMAGE(FRAMES, 0, 0, -1);
    channels_try_open(&channels);
    for (int i = 0; i < 2 * DW_CHANNEL_TRIES; i++) {
        assert_int_equal(dw_channel_send_control(&channels.end[0]->port, DW_TAG_RESENT,
                                                 DW_ENVELOPE_NOT_YET, DW_OK, 0, NULL, 0),
                         DW_OK);
    }
    for (int i = 0; i < 3; i++) channels_send(&channels, i);
    for (int i = 0; i < 3; i++) {
        dw_status status = channels_take(&channels);
        if (status != DW_OK) fail_msg("%d: %s", i, dw_channel_why(channels.end[1]));
    }
    channels_close(&channels);
}

/* The first messages are the greetings of the channels. */
TEST(lost_channel_hellos_are_repeated)
{
    for (unsigned seed = 1; seed <= 8; seed++) {
        char uri[128];
        snprintf(uri, sizeof uri, "shaped:loss=%s,seed=%u/loop://greetings-%%d",
                 seed % 2 ? "45%" : "25%,corrupt=25%", seed);
        const suite_backend backend = {
            .name = "greetings", .uri = uri, .transports = channels_backends[0].transports};
        test_channels channels;
        channels_prepare(&channels, &backend, "direct:bits=6", "direct:bits=6");
        channels.links.options[0].close_timeout_ms = channels.links.options[1].close_timeout_ms =
            10;
        channels_must_open(&channels);
        channels_close(&channels);
    }
}

/* A receiver that waits while nothing is sent asks from time to time, and more and more seldom. */
TEST(idle_receiver_sends_few_requests)
{
    const suite_backend backend = {.name = "idle",
                                   .uri = "shaped:loss=1%/loop://idle-%d",
                                   .transports = channels_backends[0].transports};
    test_channels channels;
    channels_open(&channels, &backend, "direct:bits=6");
    dw_key keys[N];
    float y[N * T * C];
    uint64_t before = channels.end[1]->receiver.controls_sent;
    assert_int_equal(channels_receive(&channels, 500, keys, y), DW_PENDING);
    uint64_t asked = channels.end[1]->receiver.controls_sent - before;
    /* After 20, 60, 140 and 300 ms, and perhaps once more. */
    assert_in_range(asked, 1, 6);
    channels_send(&channels, 0);
    assert_int_equal(channels_receive(&channels, PATIENCE_MS, keys, y), DW_OK);
    channels_close(&channels);
}

TEST(receiver_sends_no_request_over_a_reliable_link)
{
    test_channels channels;
    channels_open(&channels, &channels_backends[2], "direct:bits=6");
    dw_key keys[N];
    float y[N * T * C];
    assert_int_equal(channels_receive(&channels, 200, keys, y), DW_PENDING);
    assert_int_equal(channels.end[1]->receiver.controls_sent, 0);
    channels_close(&channels);
}

TEST(a_broken_link_is_an_error_at_both_ends)
{
    const suite_backend backend = {.name = "cut",
                                   .uri = "shaped:disconnect=10/loop://cut-%d",
                                   .transports = channels_backends[0].transports};
    test_channels channels;
    channels_open(&channels, &backend, "direct:bits=6");
    dw_key keys[N];
    float y[N * T * C], x[N * T * C];
    dw_tensor view = dw_tensor_3d(x, DW_F32, N, T, C);
    dw_status sending = DW_OK, receiving = DW_OK;
    for (int i = 0; i < 40 && (sending == DW_OK || receiving == DW_OK); i++) {
        channels_make_tensor(i, keys, x);
        if (sending == DW_OK) sending = where_send(channels.end[0], keys, &view);
        if (receiving == DW_OK) receiving = channels_receive(&channels, PATIENCE_MS, keys, y);
    }
    assert_int_equal(sending, DW_ERR_PEER);
    assert_int_equal(receiving, DW_ERR_PEER);
    assert_non_null(strstr(dw_link_why(channels.links.link[0]), "disconnect="));
    channels_close(&channels);
}

RUN_TESTS_AFTER(where_begin(argc, argv))
