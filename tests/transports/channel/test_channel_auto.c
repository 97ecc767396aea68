/* SPDX-License-Identifier: Apache-2.0
 * test_channel_auto.c - tests channels with several configs: tensors arrive with the expected bits
 * whichever config is used, damaged frames are repaired, wrong arguments are refused, and a peer
 * that violates the protocol does no harm. */
#include "several.h"

/* The candidates of most tests. Two of them differ only in the allowed error, as is usual in a list
 * in descending quality. */
static const char *const ladder = "raw:f32|delta:bits=4|delta:form=step,error=0.02,entropy=rans|"
                                  "delta:form=step,error=0.1,entropy=rans|direct:bits=6";

/* Returns the candidate for tensor number i, of n candidates; the order is irregular. */
static uint32_t candidate_of(int i, uint32_t n)
{
    return (uint32_t)(i * 7 / 3 + i / 11) % n;
}

/* Sends tensors with changing candidates and checks those that arrive. plans: which messages are
 * damaged. loses_state_at: the number of the tensor before which the receiver loses the state of
 * all its decoders; -1: never. */
static void carry(const suite_backend *backend, const test_plan *plans, size_t n_plans,
                  int loses_state_at)
{
    enum { TENSORS = 70, AHEAD = 3 };
    test_channels channels;
    several s;
    references r;
    several_prepare(&channels, &s, backend, ladder);
    for (size_t i = 0; i < n_plans; i++) channels.wire.plans[i] = plans[i];
    several_open(&channels);
    several_begin(&r, &s);
    int sent = 0;
    for (int i = 0; i < TENSORS; i++) {
        if (i == loses_state_at) channels_lose_state(&channels);
        for (; sent < TENSORS && sent < i + AHEAD; sent++) {
            several_force(channels.end[0], candidate_of(sent, r.n));
            channels_send(&channels, sent);
        }
        several_expect(&channels, &r, i, candidate_of(i, r.n));
    }
    if (n_plans > 0) assert_true(channels.wire.spoiled > 0);
    dw_channel_wait_acknowledged(channels.end[0]);
    dw_counters out = dw_channel_sent(channels.end[0]), in = dw_channel_received(channels.end[1]);
    /* If the state was lost, frames that restore it are counted in addition. */
    assert_int_equal(out.frames == TENSORS, loses_state_at < 0);
    /* Every key has been visited with each of the three candidates that keep state. */
    assert_int_equal(out.keys_held, 3 * KEYS);
    if (loses_state_at < 0) {
        assert_int_equal(in.keys_held, 3 * KEYS);
        assert_int_equal(in.raw_bytes, (uint64_t)TENSORS * TENSOR_BYTES);
    }
    assert_true(out.x_square > 0);
    /* The replies of the decoders have reached the encoders. */
    assert_true(out.acks > 0);
    if (loses_state_at >= 0) assert_true(out.nacks > 0 && out.resyncs > 0);
    several_end(&r);
    channels_close(&channels);
}

static void any_candidate_may_make_any_frame(void **state)
{
    (void)state;
    for (int b = 0; b < 2; b++) carry(&channels_backends[b], NULL, 0, -1);
}

static void damaged_frames_heal_whichever_made_them(void **state)
{
    (void)state;
    static const test_plan plans[] = {
        {DW_TAG_FRAMES, 5, 60, SUITE_PASS, -1},               /* the last byte of a frame */
        {DW_TAG_RESENT, 3, 3, SUITE_PASS, AT_ENVELOPE + 4},   /* the candidate's number */
        {DW_TAG_CONTROL, 30, 31, SUITE_PASS, AT_ENVELOPE + 2} /* the kind of a control message */
    };
    carry(&channels_backends[0], plans, 3, -1);
    carry(&channels_backends[1], plans, 1, -1);
}

static void lost_states_heal_whichever_made_the_frame(void **state)
{
    (void)state;
    carry(&channels_backends[0], NULL, 0, 40);
}

static void keys_are_forgotten_by_all_candidates(void **state)
{
    (void)state;
    test_channels channels;
    several s;
    dw_key keys[N];
    float y[N * T * C];
    several_prepare(&channels, &s, &channels_backends[0], "delta:bits=4|delta:bits=2");
    several_open(&channels);
    for (int i = 0; i < 4 * (KEYS / N); i++) {
        /* The frames of the last two epochs tell the receiver which keys were forgotten. */
        if (i == 2 * (KEYS / N))
            for (uint64_t k = 2; k < 4; k++) {
                dw_key key = {.sample = k, .slice = 4};
                assert_int_equal(dw_channel_forget(channels.end[0], key), DW_OK);
            }
        if (i >= 2 * (KEYS / N) && i % (KEYS / N) == 1) continue;
        several_force(channels.end[0], (uint32_t)i / (KEYS / N) % 2);
        channels_send(&channels, i);
        assert_int_equal(channels_receive(&channels, PATIENCE_MS, keys, y), DW_OK);
    }
    assert_int_equal(dw_channel_received(channels.end[1]).keys_held, 2 * (KEYS - 2));
    channels_close(&channels);
}

/* ---- Opening --------------------------------------------------------------------------------- */

static void different_lists_are_a_mismatch_at_both_ends(void **state)
{
    (void)state;
    static const struct {
        const char *sends, *receives, *names[3]; /* parts of both error sentences */
        dw_status status;
    } cases[] = {
        {"raw:f32|delta:bits=3|delta:bits=2",
         "raw:f32|delta:bits=5|delta:bits=2",
         {"delta:bits=3", "delta:bits=5", "candidate 2"},
         DW_ERR_MISMATCH},
        {"raw:f32|delta:bits=3",
         "delta:bits=3|raw:f32",
         {"raw:f32", "delta:bits=3", "candidate 1"},
         DW_ERR_MISMATCH},
        {"raw:f32|delta:bits=3",
         "raw:f32|delta:bits=3|direct:bits=2",
         {"nothing", "direct:bits=2", "candidate 3"},
         DW_ERR_MISMATCH},
        {"raw:f32|delta:bits=3",
         "=raw:f32", /* "=": a single config instead of a list */
         {"nothing", "delta:bits=3", "candidate 2"},
         DW_ERR_MISMATCH},
        /* The rounding need not be the same, because only the encoder uses it. */
        {"raw:f32|delta:bits=3,rounding=stochastic|delta:bits=3",
         "raw:f32|delta:bits=3|delta:bits=3,rounding=stochastic",
         {""},
         DW_OK},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        test_channels channels;
        several s;
        bool one = cases[i].receives[0] == '=';
        channels_prepare(&channels, &channels_backends[0], NULL,
                         one ? cases[i].receives + 1 : NULL);
        several_give(&channels, &s, 0, cases[i].sends);
        several_give(&channels, &s, 1, one ? NULL : cases[i].receives);
        channels_try_open(&channels);
        for (int k = 0; k < 2; k++) {
            assert_int_equal(channels.status[k], cases[i].status);
            for (int w = 0; w < 3 && cases[i].names[w]; w++)
                if (!strstr(channels.why[k].text, cases[i].names[w]))
                    fail_msg("%s lacks %s", channels.why[k].text, cases[i].names[w]);
        }
        channels_close(&channels);
    }
}

/* Checks that this end of a channel cannot be opened. status: the expected error. says: a part of
 * the expected sentence. */
static void refuse(test_channels *channels, int end, dw_status status, const char *says)
{
    dw_channel *channel;
    dw_why why;
    assert_int_equal(
        dw_channel_open(&channel, channels->links.link[end], &channels->config[end], &why), status);
    assert_null(channel);
    if (!strstr(why.text, says)) fail_msg("\"%s\" lacks \"%s\"", why.text, says);
}

static void candidates_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *texts, *says;
        dw_status status;
    } cases[] = {
        {"raw:f32", "2 to 8 candidates", DW_ERR_ARGUMENT},
        {"raw:f32|delta:bits=4|direct|delta", "candidates 2 and 4 are the same", DW_ERR_CONFIG},
        {"raw:f32|delta:bits=3,replies=never", "candidate 2, 'delta:bits=3,replies=never'",
         DW_ERR_CONFIG},
        {"delta:bits=3,incarnation=5|delta:bits=4,incarnation=5", "same incarnation",
         DW_ERR_CONFIG}};
    test_channels channels;
    several s;
    channels_prepare(&channels, &channels_backends[1], NULL, NULL);
    suite_open(&channels.links);
    /* If a config were not refused, dw_channel_open would wait for the other end. */
    for (int end = 0; end < 2; end++) channels.config[end].open_timeout_ms = 100;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int end = 0; end < 2; end++) {
            several_give(&channels, &s, end, cases[i].texts);
            refuse(&channels, end, cases[i].status, cases[i].says);
        }
    several_give(&channels, &s, 0, "raw:f32|delta:bits=3");
    dw_channel_auto *given = &s.autos[0];
    given->n = MOST + 1;
    refuse(&channels, 0, DW_ERR_ARGUMENT, "9 were given");
    given->n = 3; /* the third candidate is NULL */
    s.lists[0][2] = NULL;
    refuse(&channels, 0, DW_ERR_ARGUMENT, "NULL");
    given->n = 2;
    given->candidates = NULL;
    refuse(&channels, 0, DW_ERR_ARGUMENT, "NULL");
    given->candidates = s.lists[0];
    given->compute_s = -1;
    refuse(&channels, 0, DW_ERR_ARGUMENT, "compute_s");
    given->compute_s = 1e308 * 10;
    refuse(&channels, 0, DW_ERR_ARGUMENT, "compute_s");
    given->compute_s = 0;
    given->struct_size = 4;
    refuse(&channels, 0, DW_ERR_ARGUMENT, "dw_channel_auto");
    given->struct_size = sizeof *given;
    s.configs[0][1].bits = 99;
    refuse(&channels, 0, DW_ERR_CONFIG, "channel 3");
    channels.config[0].send = &s.configs[0][0];
    refuse(&channels, 0, DW_ERR_ARGUMENT, "auto_send");
    channels.config[0].send = NULL;
    channels.config[0].cuda = (dw_cuda *)&channels; /* the pointer is not used */
    refuse(&channels, 0, DW_ERR_UNSUPPORTED, "on a GPU");
    channels.config[0].cuda = NULL;
    channels_close(&channels);
}

/* ---- Peers that violate the protocol --------------------------------------------------------- */

/* Sends a frame that candidate `makes` has encoded, with the number `claims` in its envelope. */
static void lie(test_channels *channels, uint32_t makes, int32_t claims)
{
    dw_key keys[N];
    float x[N * T * C];
    static unsigned char frame[2 * TENSOR_BYTES];
    size_t len;
    channels_make_tensor(0, keys, x);
    dw_tensor view = dw_tensor_3d(x, DW_F32, N, T, C);
    dw_channel *sender = channels->end[0];
    assert_int_equal(dw_encode(sender->send[makes].encoder, keys, &view, frame, sizeof frame, &len),
                     DW_OK);
    assert_int_equal(dw_channel_tell(sender, DW_TAG_FRAMES, DW_ENVELOPE_FRAME, (dw_status)claims,
                                     sender->next_sequence++, frame, len),
                     DW_OK);
}

static void frames_of_no_candidate_end_receiving(void **state)
{
    (void)state;
    static const struct {
        int32_t claims;
        dw_status status;
        const char *says;
    } cases[] = {{2, DW_ERR_PROTOCOL, "config 2, and this channel has 2"},
                 {-1, DW_ERR_PROTOCOL, "config 4294967295"},
                 {1, DW_ERR_MISMATCH, "channel 3"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        test_channels channels;
        several s;
        dw_key keys[N];
        float y[N * T * C];
        several_prepare(&channels, &s, &channels_backends[0], "raw:f32|delta:bits=2");
        several_open(&channels);
        lie(&channels, 0, cases[i].claims);
        channels_send(&channels, 1);
        for (int again = 0; again < 2; again++) {
            dw_status status = channels_receive(&channels, PATIENCE_MS, keys, y);
            if (status != cases[i].status)
                fail_msg("%d: %s", (int)status, dw_channel_why(channels.end[1]));
            if (!strstr(dw_channel_why(channels.end[1]), cases[i].says))
                fail_msg("%s", dw_channel_why(channels.end[1]));
        }
        channels_close(&channels);
    }
}

/* Opens a receiving channel with the single config raw:f32. The peer's greeting has this body.
 * status: the expected result. says: a part of the expected error sentence. */
static void greet(const unsigned char *body, size_t len, dw_status status, const char *says)
{
    test_channels channels;
    unsigned char message[DW_ENVELOPE_BYTES + 4096];
    channels_prepare(&channels, &channels_backends[0], NULL, "raw:f32");
    suite_open(&channels.links);
    dw_link *peer = channels.links.link[0];
    memcpy(message + DW_ENVELOPE_BYTES, body, len);
    dw_envelope_seal(message, peer->session, DW_ENVELOPE_HELLO, DW_OK, 0, len);
    assert_int_equal(dw_link_send(peer, ID << 8, message, DW_ENVELOPE_BYTES + len), DW_OK);
    if (status != DW_OK) {
        refuse(&channels, 1, status, says);
    } else {
        assert_int_equal(dw_channel_open(&channels.end[1], channels.links.link[1],
                                         &channels.config[1], &channels.why[1]),
                         DW_OK);
    }
    channels_close(&channels);
}

static void greetings_are_not_trusted(void **state)
{
    (void)state;
    enum { TEXT = 256, LISTS = 4 + 3 * TEXT };
    unsigned char body[4 + 4 * TEXT] = {DW_FORMAT_MAJOR, DW_FORMAT_MINOR};
    memcpy(body + 4, "raw:f32", 7);
    greet(body, 4 + 2 * TEXT, DW_OK, "");
    greet(body, 4 + 2 * TEXT - 1, DW_ERR_PROTOCOL, "malformed");
    greet(body, LISTS, DW_ERR_PROTOCOL, "malformed");
    greet(body, 3, DW_ERR_PROTOCOL, "malformed");
    body[2] = 1; /* the peer has a second send config; its text is empty */
    greet(body, LISTS, DW_ERR_MISMATCH, "candidate 2");
    greet(body, 4 + 2 * TEXT, DW_ERR_PROTOCOL, "malformed");
    body[2] = 255;
    greet(body, LISTS, DW_ERR_PROTOCOL, "malformed");
    body[2] = 0;
    body[3] = 1; /* the peer has two receive configs */
    greet(body, LISTS, DW_ERR_MISMATCH, "candidate 2");
    memset(body + 4 + 2 * TEXT, 'x', TEXT); /* a text without a terminating zero */
    greet(body, LISTS, DW_ERR_PROTOCOL, "malformed");
}

/* Sends acknowledgements with impossible times, for frames that were never sent, and with bodies
 * that are too short. */
static void lies_in_acknowledgements_do_no_harm(void **state)
{
    (void)state;
    test_channels channels;
    several s;
    references r;
    several_prepare(&channels, &s, &channels_backends[0], "raw:f32|delta:bits=2");
    several_open(&channels);
    several_begin(&r, &s);
    unsigned char none[DW_TIMES_BYTES] = {0};
    uint32_t measured = 0;
    int i = 0;
    for (; measured == 0 && i < 1000; i++) {
        several_force(channels.end[0], 0);
        channels_send(&channels, i);
        several_expect(&channels, &r, i, 0);
        measured = several_measured(&channels).candidates[0].deliveries;
    }
    channels_send(&channels, i);
    /* This frame was never sent. Its copy would be in the same slot as that of frame i. */
    dw_channel_tell(channels.end[1], DW_TAG_CONTROL, DW_ENVELOPE_ACK, DW_OK,
                    (uint64_t)i + DW_CHANNEL_KEPT, none, sizeof none);
    several_expect(&channels, &r, i, 0);
    assert_int_equal(several_measured(&channels).candidates[0].deliveries, measured + 1);
    for (int end = ++i + 30; i < end; i++) {
        unsigned char times[DW_TIMES_BYTES + 3];
        memset(times, i % 3 ? 0x80 : 0xff, sizeof times);
        several_force(channels.end[0], (uint32_t)i % 2);
        channels_send(&channels, i);
        dw_channel_tell(channels.end[1], DW_TAG_CONTROL, DW_ENVELOPE_ACK, DW_OK,
                        (uint64_t)i + (i % 5 == 4 ? 3 : 0), times, (size_t)i % sizeof times);
        several_expect(&channels, &r, i, (uint32_t)i % 2);
    }
    dw_channel_wait_acknowledged(channels.end[0]);
    pthread_mutex_lock(&channels.end[0]->replies_lock);
    assert_int_equal(channels.end[0]->outstanding, 0);
    pthread_mutex_unlock(&channels.end[0]->replies_lock);
    several_end(&r);
    channels_close(&channels);
}

int main(int argc, char **argv)
{
    where_begin(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_candidate_may_make_any_frame),
        cmocka_unit_test(damaged_frames_heal_whichever_made_them),
        cmocka_unit_test(lost_states_heal_whichever_made_the_frame),
        cmocka_unit_test(keys_are_forgotten_by_all_candidates),
        cmocka_unit_test(different_lists_are_a_mismatch_at_both_ends),
        cmocka_unit_test(candidates_that_make_no_sense_are_refused),
        cmocka_unit_test(frames_of_no_candidate_end_receiving),
        cmocka_unit_test(greetings_are_not_trusted),
        cmocka_unit_test(lies_in_acknowledgements_do_no_harm),
    };
    return cmocka_run_group_tests_name("channel_auto", tests, NULL, NULL);
}
