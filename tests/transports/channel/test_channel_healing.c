/* SPDX-License-Identifier: Apache-2.0
 * test_channel_healing.c - the same bits arrive as without a link, whatever happens to frames. */
#include "channel_pair.h"

/* ---- Damage ---------------------------------------------------------------------------------- */

TEST(heals_a_frame_that_was_damaged_anywhere)
{
    /* Every byte of the envelope, then the frame's magic, version, header, tables, payload. */
    for (int at = AT_ENVELOPE; at < AT_FRAME; at++) {
        const test_plan plan = DAMAGE(FRAMES, 4, 4, at);
        channels_carry(&channels_backends[0], channels_configs[2], 8, 4, &plan, 1);
    }
    static const int places[] = {0,  4,  5,  6,  7,  8,  16,  24,  33,  37, 48,
                                 64, 72, 79, 80, 92, 96, 104, 119, 160, 200};
    for (size_t p = 0; p < sizeof places / sizeof *places; p++) {
        const test_plan plan = DAMAGE(FRAMES, 4, 5, AT_FRAME + places[p]);
        for (int c = 0; c < CHANNELS_CONFIGS; c++)
            channels_carry(&channels_backends[p % 2], channels_configs[c], 9, 4, &plan, 1);
    }
    const test_plan last_byte = DAMAGE(FRAMES, 0, 6, -1);
    for (int c = 0; c < CHANNELS_CONFIGS; c++)
        channels_carry(&channels_backends[2], channels_configs[c], 9, 5, &last_byte, 1);
}

TEST(heals_when_the_resent_frame_is_damaged_too)
{
    for (int c = 0; c < CHANNELS_CONFIGS; c++) {
        const test_plan body[] = {DAMAGE(FRAMES, 4, 4, -1), DAMAGE(RESENT, 0, 1, -1)};
        channels_carry(&channels_backends[0], channels_configs[c], 9, 4, body, 2);
        const test_plan envelope[] = {DAMAGE(FRAMES, 4, 4, AT_ENVELOPE + 8),
                                      DAMAGE(RESENT, 0, 1, AT_ENVELOPE + 8)};
        channels_carry(&channels_backends[1], channels_configs[c], 9, 4, envelope, 2);
    }
}

TEST(heals_when_acknowledgements_and_requests_are_damaged)
{
    for (int c = 0; c < CHANNELS_CONFIGS; c++) {
        /* Control messages 0 and 1 are the hellos, 2 and 3 acknowledge two frames, and 4 requests
         * the third one, which is damaged. The request is damaged, too, and so is its first
         * repetition. */
        const test_plan request[] = {DAMAGE(FRAMES, 2, 2, -1),
                                     DAMAGE(CONTROL, 4, 5, AT_ENVELOPE + 8)};
        channels_carry(&channels_backends[0], channels_configs[c], 9, 4, request, 2);
        const test_plan acknowledgements = DAMAGE(CONTROL, 2, 6, AT_ENVELOPE + 4);
        channels_carry(&channels_backends[0], channels_configs[c], 30, 4, &acknowledgements, 1);
        /* Requests to repeat damaged acknowledgements must not count as attempts at a damaged
         * frame. */
        const test_plan later[] = {DAMAGE(CONTROL, 2, 7, AT_ENVELOPE + 4),
                                   DAMAGE(FRAMES, 8, 8, -1)};
        channels_carry(&channels_backends[0], channels_configs[c], 12, 3, later, 2);
    }
}

TEST(drops_duplicates_and_fetches_what_was_lost)
{
    for (int c = 0; c < CHANNELS_CONFIGS; c++) {
        const test_plan twice = DOUBLE(FRAMES, 2, 5);
        channels_carry(&channels_backends[0], channels_configs[c], 12, 4, &twice, 1);
        const test_plan lost = LOSE(FRAMES, 3, 4);
        channels_carry(&channels_backends[0], channels_configs[c], 12, 4, &lost, 1);
        const test_plan answers = DOUBLE(RESENT, 0, 5);
        const test_plan both[] = {DAMAGE(FRAMES, 3, 4, -1), answers};
        channels_carry(&channels_backends[1], channels_configs[c], 12, 4, both, 2);
    }
}

/* The last bytes that on_frame got at each end, and how often it was called. */
typedef struct shown {
    uint8_t *bytes[2];
    size_t len[2];
    int calls[2];
} shown;

static void show(void *context, int is_sent, const void *frame, size_t len)
{
    shown *s = context;
    int end = is_sent ? 0 : 1;
    s->bytes[end] = realloc(s->bytes[end], len);
    assert_non_null(s->bytes[end]);
    memcpy(s->bytes[end], frame, len);
    s->len[end] = len;
    s->calls[end]++;
}

/* A frame that arrived damaged is shown when its copy has been decoded, and not before. */
TEST(frames_are_shown_at_both_ends)
{
    shown s = {0};
    test_channels channels;
    channels_prepare(&channels, &channels_backends[0], channels_configs[0], channels_configs[0]);
    channels.wire.plans[0] = (test_plan)DAMAGE(FRAMES, 1, 1, -1);
    for (int end = 0; end < 2; end++) {
        channels.config[end].on_frame = show;
        channels.config[end].frame_context = &s;
    }
    channels_try_open(&channels);
    for (int i = 0; i < 3; i++) {
        channels_send(&channels, i);
        assert_int_equal(s.calls[0], i + 1);
        assert_int_equal(s.calls[1], i);
        assert_int_equal(channels_take(&channels), DW_OK);
        assert_int_equal(s.calls[1], i + 1);
        assert_int_equal(s.len[0], s.len[1]);
        assert_memory_equal(s.bytes[0], s.bytes[1], s.len[0]);
    }
    assert_int_equal(channels.wire.count[DW_TAG_RESENT], 1);
    channels_close(&channels);
    free(s.bytes[0]);
    free(s.bytes[1]);
}

TEST(gives_up_on_a_frame_that_never_arrives_whole)
{
    test_channels channels;
    channels_prepare(&channels, &channels_backends[1], channels_configs[2], channels_configs[2]);
    channels.wire.plans[0] = (test_plan)DAMAGE(FRAMES, 1, 1, -1);
    channels.wire.plans[1] = (test_plan)DAMAGE(RESENT, 0, 1000, -1);
    channels_try_open(&channels);
    for (int i = 0; i < 3; i++) channels_send(&channels, i);
    assert_int_equal(channels_take(&channels), DW_OK);
    assert_int_equal(channels_take(&channels), DW_ERR_CORRUPT);
    assert_non_null(strstr(dw_channel_why(channels.end[1]), "frame 1"));
    /* The error remains. */
    assert_int_equal(channels_take(&channels), DW_ERR_CORRUPT);
    assert_int_equal(channels.wire.count[DW_TAG_RESENT], DW_CHANNEL_TRIES);
    channels_close(&channels);
}

TEST(endless_resend_requests_are_refused)
{
    test_channels channels;
    channels_open(&channels, &channels_backends[0], "delta:bits=4");
    channels_send(&channels, 0);
    for (int i = 0; i < 50; i++) {
        dw_status about = i % 2 ? DW_ERR_CORRUPT : DW_ERR_BASE;
        assert_int_equal(dw_channel_send_control(&channels.end[1]->port, DW_TAG_CONTROL,
                                                 DW_ENVELOPE_AGAIN, about, 0, NULL, 0),
                         DW_OK);
    }
    int frames = 0, refusals = 0;
    for (int i = 0; i < 50; i++) {
        void *message;
        size_t len;
        dw_envelope envelope;
        uint32_t tag = dw_channel_tag(&channels.end[1]->port, DW_TAG_RESENT);
        assert_int_equal(dw_link_recv(channels.links.link[1], tag, PATIENCE_MS, &message, &len),
                         DW_OK);
        assert_true(
            dw_envelope_read(message, len, channels.links.link[1]->settings.session, &envelope));
        frames += envelope.kind == DW_ENVELOPE_RESENT;
        refusals += envelope.kind == DW_ENVELOPE_REFUSED;
        dw_link_release(channels.links.link[1], message);
    }
    assert_int_equal(frames, DW_CHANNEL_TRIES);
    assert_int_equal(refusals, 50 - DW_CHANNEL_TRIES);
    /* A frame that was never sent cannot be requested, nor acknowledged. */
    dw_channel_send_control(&channels.end[1]->port, DW_TAG_CONTROL, DW_ENVELOPE_ACK, DW_OK,
                            UINT64_MAX, NULL, 0);
    dw_channel_send_control(&channels.end[1]->port, DW_TAG_CONTROL, DW_ENVELOPE_AGAIN,
                            DW_ERR_CORRUPT, 7, NULL, 0);
    assert_int_equal(channels_take(&channels), DW_OK);
    channels_close(&channels);
}

TEST(without_replies_a_damaged_frame_is_an_error)
{
    test_channels channels;
    channels_prepare(&channels, &channels_backends[0], "direct:bits=8,replies=never",
                     "direct:bits=8,replies=never");
    channels.wire.plans[0] = (test_plan)DAMAGE(FRAMES, 1, 1, -1);
    channels.wire.plans[1] = (test_plan)DAMAGE(FRAMES, 2, 2, AT_ENVELOPE + 9);
    channels_try_open(&channels);
    for (int i = 0; i < 4; i++) channels_send(&channels, i);
    const dw_status expected[] = {DW_OK, DW_ERR_CORRUPT, DW_ERR_CORRUPT, DW_OK};
    for (int i = 0; i < 4; i++) assert_int_equal(channels_take(&channels), expected[i]);
    assert_int_equal(channels.wire.count[DW_TAG_CONTROL], 2); /* only the hellos: no request */
    channels_close(&channels);
}

/* ---- Repair of the state --------------------------------------------------------------------- */

/* The receiver's state is lost or damaged from time to time; what arrives must still be right. */
static void recover(const char *config, int lose_all)
{
    test_channels channels;
    channels_open(&channels, &channels_backends[1], config);
    test_reference reference = {.next = 0};
    test_pair_open(&reference.pair, config, N, T, C, DW_F32);
    int sent = 0;
    for (int i = 0; i < 24; i++) {
        while (sent < 24 && sent < i + 2) channels_send(&channels, sent++);
        if (i == 9 || i == 16) {
            if (lose_all) {
                channels_lose_state(&channels);
            } else {
                dw_tensor prev;
                dw_key key = {.sample = 3, .slice = 4};
                assert_int_equal(dw_decoder_peek(channels.end[1]->codecs.decoder, key, &prev),
                                 DW_OK);
                where_damage(channels.end[1], (float *)prev.data + 17);
            }
        }
        channels_expect(&channels, &reference, i);
    }
    const dw_counters counters = channels_sent(channels.end[0]);
    assert_true(counters.resyncs > 0 && counters.nacks > 0);
    test_pair_close(&reference.pair);
    channels_close(&channels);
}

TEST(a_decoder_that_lost_its_state_gets_it_back)
{
    recover("delta:bits=3", 0); /* its state was damaged, and not lost */
    recover("delta:bits=3", 1);
    recover("delta:bits=4,key=raw,prev=f32", 1);
    /* Of these configs key entries cannot be floats, but what brings the state back is. */
    recover("delta:form=step,error=0.1,key_error=0.06,entropy=rans", 1);
    if (!where_is_device()) recover("delta:form=step,rate=2,entropy=rans", 1);
}

/* The encoder has only the tensor of the last of the frames that wait. */
TEST(a_lost_state_is_an_error_where_a_sample_waits_twice)
{
    test_channels channels;
    channels_open(&channels, &channels_backends[0], "delta:bits=4");
    channels_pass(&channels, 0);
    channels_send(&channels, 0);
    channels_send(&channels, 0);
    channels_lose_state(&channels);
    assert_int_equal(channels_take(&channels), DW_ERR_BASE);
    assert_non_null(strstr(dw_channel_why(channels.end[1]), "a later frame has a sample of it"));
    channels_close(&channels);
}

TEST(a_lost_state_is_an_error_where_a_sample_was_forgotten)
{
    test_channels channels;
    dw_key keys[N];
    float x[N * T * C];
    channels_open(&channels, &channels_backends[0], "delta:bits=4");
    channels_pass(&channels, 0);
    channels_send(&channels, 0);
    channels_make_tensor(0, keys, x);
    assert_int_equal(dw_channel_forget(channels.end[0], keys[0]), DW_OK);
    channels_lose_state(&channels);
    assert_int_equal(channels_take(&channels), DW_ERR_BASE);
    assert_non_null(strstr(dw_channel_why(channels.end[1]), "one was forgotten"));
    channels_close(&channels);
}

TEST(a_state_too_large_for_a_message_is_an_error)
{
    test_channels channels;
    channels_prepare(&channels, &channels_backends[0], "delta:bits=2,key=2", "delta:bits=2,key=2");
    /* Frames have about 800 bytes, but prev itself has 3840. */
    channels.links.options[0].max_message_bytes = 1500;
    channels_try_open(&channels);
    for (int i = 0; i < KEYS / N; i++) {
        channels_pass(&channels, i);
    }
    channels_lose_state(&channels);
    channels_send(&channels, KEYS / N);
    assert_int_equal(channels_take(&channels), DW_ERR_BASE);
    assert_non_null(strstr(dw_channel_why(channels.end[1]), "max_message_bytes"));
    channels_close(&channels);
}

TEST(without_replies_a_lost_state_is_an_error)
{
    test_channels channels;
    channels_open(&channels, &channels_backends[0], "delta:bits=4,replies=never");
    for (int i = 0; i < KEYS / N; i++) {
        channels_pass(&channels, i);
    }
    channels_lose_state(&channels);
    channels_send(&channels, KEYS / N);
    assert_int_equal(channels_take(&channels), DW_ERR_BASE);
    assert_string_not_equal(dw_channel_why(channels.end[1]), "");
    channels_close(&channels);
}

/* ---- Both directions ------------------------------------------------------------------------- */

enum { ROUNDS = 300 };

typedef struct test_traffic {
    test_channels *channels;
    int end;
    dw_status status;
} test_traffic;

static void *send_all(void *context)
{
    test_traffic *traffic = context;
    for (int i = 0; i < ROUNDS && traffic->status == DW_OK; i++) {
        dw_key keys[N];
        float x[N * T * C];
        dw_tensor view = channels_make_tensor(i, keys, x);
        traffic->status = where_send(traffic->channels->end[traffic->end], keys, &view);
        if (i % 16 == 0) channels_received(traffic->channels->end[traffic->end]);
    }
    return NULL;
}

static void *receive_wrongly(void *context)
{
    dw_channel *channel = context;
    for (int i = 0; i < 20000; i++) dw_channel_recv(channel, 0, NULL, NULL, 0);
    return NULL;
}

TEST(a_thread_learns_of_its_own_error)
{
    test_channels channels;
    pthread_t thread;
    char own[sizeof(dw_why)];
    channels_open(&channels, &channels_backends[0], "direct:bits=8");
    assert_int_equal(dw_channel_send(channels.end[0], NULL, NULL, 0), DW_ERR_ARGUMENT);
    snprintf(own, sizeof own, "%s", dw_channel_why(channels.end[0]));
    assert_int_equal(pthread_create(&thread, NULL, receive_wrongly, channels.end[0]), 0);
    for (int i = 0; i < 20000; i++) {
        dw_channel_send(channels.end[0], NULL, NULL, 0);
        if (strcmp(dw_channel_why(channels.end[0]), own)) break;
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_string_equal(dw_channel_why(channels.end[0]), own);
    channels_close(&channels);
}

static void *receive_all(void *context)
{
    test_traffic *traffic = context;
    for (int i = 0; i < ROUNDS && traffic->status == DW_OK; i++) {
        dw_key keys[N], expected[N];
        float y[N * T * C], x[N * T * C];
        dw_tensor view = dw_tensor_3d(y, DW_F32, N, T, C);
        traffic->status =
            where_recv(traffic->channels->end[traffic->end], PATIENCE_MS, keys, &view);
        channels_make_tensor(i, expected, x);
        if (traffic->status == DW_OK && keys[0].sample != expected[0].sample)
            traffic->status = DW_ERR_MISMATCH;
        if (i % 16 == 0) channels_sent(traffic->channels->end[traffic->end]);
    }
    return NULL;
}

/* Both ends send and receive at the same time, and some messages are damaged. In the worst case a
 * frame, its request twice and one answer are damaged; that uses up all attempts but the last. */
TEST(both_directions_run_at_once_and_heal)
{
    for (size_t b = 0; b < 2; b++) {
        test_channels channels;
        channels_prepare(&channels, &channels_backends[b], "delta:bits=4", "delta:bits=4");
        channels.config[0].recv = channels.config[1].send = &channels.codec[0];
        channels.wire.plans[0] = (test_plan)DAMAGE(FRAMES, 20, 29, -1);
        channels.wire.plans[1] = (test_plan)DAMAGE(FRAMES, 200, 209, AT_ENVELOPE + 8);
        channels.wire.plans[2] = (test_plan)DAMAGE(RESENT, 3, 3, -1);
        channels.wire.plans[3] = (test_plan)DAMAGE(CONTROL, 40, 41, AT_ENVELOPE + 1);
        channels_try_open(&channels);
        test_traffic all[4] = {{&channels, 0, DW_OK},
                               {&channels, 1, DW_OK},
                               {&channels, 0, DW_OK},
                               {&channels, 1, DW_OK}};
        pthread_t threads[4];
        for (int i = 0; i < 4; i++)
            pthread_create(&threads[i], NULL, i < 2 ? send_all : receive_all, &all[i]);
        for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
        for (int i = 0; i < 4; i++) {
            if (all[i].status != DW_OK)
                fail_msg("thread %d: %s", i, dw_channel_why(channels.end[all[i].end]));
        }
        assert_true(channels.wire.spoiled >= 20);
        channels_close(&channels);
    }
}

RUN_TESTS_AFTER(where_begin(argc, argv))
