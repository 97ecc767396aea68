/* SPDX-License-Identifier: Apache-2.0
 * test_channel_rate.c - tests that channels with several configs measure the rate of the link, and
 * choose the config by it. */
#include "several.h"

/* What the log function of a channel has been told. */
typedef struct told {
    dw_channel *sender;
    int changes;
    double first_mbit_s; /* the rate of the link that the first sentence states */
    char first[1024];    /* that sentence */
} told;

static void hear(void *context, const char *sentence)
{
    told *t = context;
    t->changes++;
    const char *carries = strstr(sentence, "the link carries ");
    assert_non_null(carries);
    if (t->changes == 1) {
        snprintf(t->first, sizeof t->first, "%s", sentence);
        assert_int_equal(sscanf(carries, "the link carries %lf Mbit/s", &t->first_mbit_s), 1);
    }
    assert_true(dw_channel_sent(t->sender).frames > 0); /* calling the channel is allowed here */
}

static uint32_t used_now(dw_channel *sender)
{
    pthread_mutex_lock(&sender->encoder_lock);
    uint32_t now = sender->choice.now;
    pthread_mutex_unlock(&sender->encoder_lock);
    return now;
}

static double rate_of(test_channels *channels)
{
    dw_choice choice = several_measured(channels);
    return dw_choice_rate(&choice, 0);
}

/* Sends and receives tensors, and returns the candidate with which the last one was encoded. texts,
 * compute_s: the candidates, and the field of dw_channel_auto. Sets *t to what the log function was
 * told, and *rate to the measured rate. */
static uint32_t run(const suite_backend *backend, const char *texts, double compute_s, int tensors,
                    told *t, double *rate)
{
    test_channels channels;
    several s;
    references r;
    uint32_t made_by[200], last = 0;
    int changes = 0;
    assert_true(tensors <= 200);
    several_prepare(&channels, &s, backend, texts);
    s.autos[0].compute_s = compute_s;
    s.autos[0].log = hear;
    s.autos[0].log_context = t;
    several_open(&channels);
    *t = (told){.sender = channels.end[0]};
    several_begin(&r, &s);
    for (int i = 0, sent = 0; i < tensors; i++) {
        for (; sent < tensors && sent < i + 3; sent++) {
            channels_send(&channels, sent);
            made_by[sent] = used_now(channels.end[0]);
            changes += made_by[sent] != last;
            last = made_by[sent];
        }
        several_expect(&channels, &r, i, made_by[i]);
    }
    assert_int_equal(made_by[0], 0);
    assert_int_equal(t->changes, changes);
    *rate = rate_of(&channels);
    several_end(&r);
    channels_close(&channels);
    return last;
}

static void a_slow_link_makes_it_leave_raw(void **state)
{
    (void)state;
    /* A raw frame takes 31 ms on this link. Encoding and decoding take much less, even with
     * sanitizers. */
    static const suite_backend slow = {.name = "shaped",
                                       .uri = "shaped:rate=1mbit/tcp://127.0.0.1:0"};
    suite_backend backend = slow;
    told t;
    double rate;
    backend.transports = channels_backends[0].transports;
    run(&backend, "raw:f32|raw:bf16|delta:bits=2", 0.001, 60, &t, &rate);
    print_message("%s\n", t.first);
    assert_true(t.changes > 0); /* it begins with raw:f32 */
    assert_non_null(strstr(t.first, "channel 3: from frame"));
    assert_non_null(strstr(t.first, "instead of raw:f32"));
    /* The rate that leads away from raw is measured with raw frames. A delay of 30 ms on a busy
     * machine is a small part of their time; the small frames after them travel 2 ms, so the rate
     * that they show can be wrong by any factor. */
    assert_true(t.first_mbit_s > 0 && t.first_mbit_s < 2);
    assert_true(rate > 0);
}

static void much_computing_keeps_the_quality(void **state)
{
    (void)state;
    told t;
    double rate;
    uint32_t last = run(&channels_backends[1], "raw:f32|delta:bits=2", 1000, 60, &t, &rate);
    assert_int_equal(last, 0);
    assert_int_equal(t.changes, 0);
    assert_true(rate > 0);
}

/* The travel times of frames that were sent again are not used, nor is that of a frame that arrived
 * before its predecessor because the predecessor was sent again. */
static void repaired_frames_are_not_measured(void **state)
{
    (void)state;
    enum { FRAMES = 12, DAMAGED = 5 };
    test_channels channels;
    several s;
    dw_key keys[N];
    float y[N * T * C];
    several_prepare(&channels, &s, &channels_backends[0], "raw:f32|delta:bits=2");
    channels.wire.plans[0] = (test_plan){DW_TAG_FRAMES, 0, DAMAGED - 1, SUITE_PASS, -1};
    several_open(&channels);
    for (int i = 0; i < FRAMES; i++) channels_send(&channels, i);
    /* The receiver's link gets the greeting, one empty message, and the frames. There is only one
     * empty message, in front of the first frame, because no frame is acknowledged before the
     * program receives it. */
    dw_link_counters arrived = {.struct_size = sizeof arrived};
    for (int i = 0; i < 2000 && arrived.messages_received < 2 + FRAMES; i++) {
        suite_sleep_ms(5);
        assert_int_equal(dw_link_count(channels.links.link[1], &arrived), DW_OK);
    }
    suite_sleep_ms(5);
    assert_int_equal(dw_link_count(channels.links.link[1], &arrived), DW_OK);
    assert_int_equal(arrived.messages_received, 2 + FRAMES);
    for (int i = 0; i < FRAMES; i++)
        assert_int_equal(channels_receive(&channels, PATIENCE_MS, keys, y), DW_OK);
    assert_int_equal(several_measured(&channels).candidates[0].deliveries, FRAMES - DAMAGED - 1);
    channels_close(&channels);
}

/* A busy machine can take time away from either end of a measurement, so every measurement is
 * repeated until one is right. A wrong rule would be wrong at each of them. */
enum { ATTEMPTS = 20 };

static double rate_of_a_full_link(void)
{
    enum { FRAMES = 2 * DW_CHOICE_WINDOW }; /* enough for a queue in front of the link */
    test_channels channels;
    several s;
    dw_key keys[N];
    float y[N * T * C];
    suite_backend slow = channels_backends[0];
    slow.uri = "shaped:rate=1mbit/loop://auto-%d";
    several_prepare(&channels, &s, &slow, "raw:f32|delta:bits=2");
    several_open(&channels);
    for (int i = 0; i < FRAMES; i++) {
        several_force(channels.end[0], 0);
        channels_send(&channels, i);
    }
    for (int i = 0; i < FRAMES; i++)
        assert_int_equal(channels_receive(&channels, PATIENCE_MS, keys, y), DW_OK);
    double rate = rate_of(&channels);
    channels_close(&channels);
    return rate;
}

/* The rate of a fast link whose receiver takes each frame only after a while. */
static double rate_of_frames_that_lie(int lies_ms)
{
    test_channels channels;
    several s;
    dw_key keys[N];
    float y[N * T * C];
    several_prepare(&channels, &s, &channels_backends[0], "raw:f32|delta:bits=2");
    several_open(&channels);
    for (int i = 0; i <= DW_CHOICE_DELIVERIES; i++) { /* the first is not measured */
        several_force(channels.end[0], 0);
        channels_send(&channels, i);
        suite_sleep_ms(lies_ms);
        assert_int_equal(channels_receive(&channels, PATIENCE_MS, keys, y), DW_OK);
    }
    double rate = rate_of(&channels);
    channels_close(&channels);
    return rate;
}

/* The measured rate is that of the link if frames queue up in front of it, and it does not depend
 * on how long frames stay in the receiver's queue before the program receives them. */
static void the_rate_is_that_of_the_link(void **state)
{
    (void)state;
    enum { LIES_MS = 300 };
    bool is_right = false;
    for (int i = 0; i < ATTEMPTS && !is_right; i++) {
        double rate = rate_of_a_full_link();
        print_message("%g bytes per second of 125000\n", rate);
        is_right = rate > 125000 / 2.0 && rate < 125000 * 2.0;
    }
    assert_true(is_right);
    is_right = false;
    for (int i = 0; i < ATTEMPTS && !is_right; i++)
        is_right = rate_of_frames_that_lie(LIES_MS) > TENSOR_BYTES / (LIES_MS * 1e-3 / 2);
    assert_true(is_right);
}

static double rate_of_a_distant_link(void)
{
    test_channels channels;
    several s;
    dw_key keys[N];
    float y[N * T * C];
    suite_backend distant = channels_backends[0];
    distant.uri = "shaped:delay=100ms/loop://auto-%d";
    several_prepare(&channels, &s, &distant, "raw:f32|delta:bits=2");
    several_open(&channels);
    for (int i = 0; i <= DW_CHOICE_DELIVERIES; i++) { /* the first is not measured */
        several_force(channels.end[0], 0);
        channels_send(&channels, i);
        assert_int_equal(channels_receive(&channels, PATIENCE_MS, keys, y), DW_OK);
        dw_channel_wait_acknowledged(channels.end[0]);
    }
    double rate = rate_of(&channels);
    channels_close(&channels);
    return rate;
}

/* A frame that travels hardly longer than an empty message shows that the link is fast, even if
 * both travel for a long time: the rate is much larger than bytes divided by that time. */
static void a_distant_link_is_not_a_slow_one(void **state)
{
    (void)state;
    enum { DELAY_MS = 100 };
    bool is_right = false;
    for (int i = 0; i < ATTEMPTS && !is_right; i++)
        is_right = rate_of_a_distant_link() > 4 * TENSOR_BYTES / (DELAY_MS * 1e-3);
    assert_true(is_right);
}

/* Invented PINGs and PONGs can only mislead the choice; the tensors arrive all the same. */
static void invented_trips_do_no_harm(void **state)
{
    (void)state;
    test_channels channels;
    several s;
    references r;
    several_prepare(&channels, &s, &channels_backends[0], "raw:f32|delta:bits=2");
    several_open(&channels);
    several_begin(&r, &s);
    for (int i = 0; i < 20; i++) {
        dw_channel_tell(channels.end[1], DW_TAG_TRIPS, i % 3 ? DW_ENVELOPE_PONG : DW_ENVELOPE_PING,
                        DW_OK, (uint64_t)i * 0x123456789, NULL, 0);
        dw_channel_tell(channels.end[0], DW_TAG_TRIPS, i % 2 ? DW_ENVELOPE_PONG : DW_ENVELOPE_ACK,
                        DW_OK, (uint64_t)i, "nonsense", (size_t)i % 8);
        dw_link_send(channels.links.link[i % 2], ID << 8 | DW_TAG_TRIPS, "x", 1);
        several_force(channels.end[0], (uint32_t)i % 2);
        channels_send(&channels, i);
        several_expect(&channels, &r, i, (uint32_t)i % 2);
    }
    assert_true(several_measured(&channels).travels > 0);
    several_end(&r);
    channels_close(&channels);
}

/* The clocks of the two ends may differ by any constant, because only differences between travel
 * times are used. */
static void clocks_may_differ(void **state)
{
    (void)state;
    test_channels channels;
    several s;
    several_prepare(&channels, &s, &channels_backends[0], "raw:f32|delta:bits=2");
    several_open(&channels);
    dw_channel *sender = channels.end[0];
    const uint32_t sent_us = 5, took_us[] = {0x80000100, 0x7fffff00};
    for (int i = 0; i < 2; i++) {
        uint64_t arrived_us = (uint32_t)(sent_us + took_us[i]);
        dw_channel_note_trip(sender, &(dw_envelope){.sequence = arrived_us << 32 | sent_us});
    }
    double differ_us = (sender->choice.travel_s[0] - sender->choice.travel_s[1]) * 1e6;
    assert_true(differ_us > 511.9 && differ_us < 512.1);
    channels_close(&channels);
}

int main(int argc, char **argv)
{
    where_begin(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slow_link_makes_it_leave_raw),
        cmocka_unit_test(much_computing_keeps_the_quality),
        cmocka_unit_test(repaired_frames_are_not_measured),
        cmocka_unit_test(the_rate_is_that_of_the_link),
        cmocka_unit_test(a_distant_link_is_not_a_slow_one),
        cmocka_unit_test(invented_trips_do_no_harm),
        cmocka_unit_test(clocks_may_differ),
    };
    return cmocka_run_group_tests_name("channel_rate", tests, NULL, NULL);
}
