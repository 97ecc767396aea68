/* SPDX-License-Identifier: Apache-2.0
 * test_channel.c - tensors that go through channels have the same bits as without a link; opening,
 * misuse, closing. */
#include "channel_pair.h"
#include "transports/suite/counted.h"

TEST(tensors_arrive_as_without_a_link)
{
    for (size_t b = 0; b < sizeof channels_backends / sizeof *channels_backends; b++) {
        for (int c = 0; c < CHANNELS_CONFIGS; c++)
            channels_carry(&channels_backends[b], channels_configs[c], 40, 3, NULL, 0);
    }
    channels_carry(&channels_backends[1], "delta:bits=4,replies=never", 40, 3, NULL, 0);
    channels_carry(&channels_backends[1], "direct:bits=2,feedback=ef", 40, 3, NULL, 0);
    if (!where_is_device())
        channels_carry(&channels_backends[1], "lowrank:rank=2,feedback=lazy,restart=5", 40, 3, NULL,
                       0);
    channels_carry(&channels_backends[1],
                   "direct:form=step,group=sample,step=2,rounding=dither,feedback=ef,incarnation=5",
                   40, 3, NULL, 0);
    channels_carry(&channels_backends[1], "delta:form=step,group=sample,key=f32,entropy=rans", 40,
                   3, NULL, 0);
}

TEST(a_forgotten_key_starts_anew)
{
    test_channels channels;
    channels_open(&channels, &channels_backends[0], "delta:bits=4");
    for (int i = 0; i < KEYS / N; i++) {
        channels_pass(&channels, i);
    }
    assert_int_equal(channels_received(channels.end[1]).keys_held, KEYS);
    assert_int_equal(dw_channel_forget(channels.end[0], (dw_key){.sample = 2, .slice = 4}), DW_OK);
    assert_int_equal(dw_channel_forget(channels.end[1], (dw_key){.sample = 2, .slice = 4}),
                     DW_ERR_ARGUMENT);
    channels_pass(&channels, 0);
    assert_int_equal(channels_received(channels.end[1]).keys_held, KEYS - 1);
    dw_counters none[2] = {{.struct_size = sizeof none[0], .frames = 7},
                           {.struct_size = sizeof none[0], .frames = 7}};
    assert_int_equal(dw_channel_count(channels.end[0], NULL, &none[0]), DW_OK);
    assert_int_equal(dw_channel_count(channels.end[1], &none[1], NULL), DW_OK);
    assert_true(none[0].frames == 0 && none[1].frames == 0); /* neither has such an end */
    channels_close(&channels);
}

/* ---- Incarnations -------------------------------------------------------------------------- */

static void note_incarnation(void *context, int is_sent, const void *frame, size_t len)
{
    dw_frame_info info = {.struct_size = sizeof info};
    assert_int_equal(dw_frame_read(frame, len, &info, NULL), DW_OK);
    if (is_sent) *(uint64_t *)context = info.incarnation;
}

/* Both ends send by the same config over channel `id`. found: the incarnations in their frames. */
static void find_incarnations(uint32_t id, const char *config, uint64_t found[2])
{
    test_channels channels;
    channels_prepare(&channels, &channels_backends[0], config, config);
    for (int i = 0; i < 2; i++) {
        channels.config[i].id = id;
        channels.config[i].send = channels.config[i].recv = &channels.codec[i];
        channels.config[i].on_frame = note_incarnation;
        channels.config[i].frame_context = &found[i];
    }
    channels_try_open(&channels);
    dw_key keys[N];
    float x[N * T * C];
    channels_make_tensor(0, keys, x);
    for (int i = 0; i < 2; i++) {
        dw_tensor view = dw_tensor_3d(x, DW_F32, N, T, C);
        assert_int_equal(channels.status[i], DW_OK);
        assert_int_equal(where_send(channels.end[i], keys, &view), DW_OK);
    }
    for (int i = 0; i < 2; i++) {
        dw_tensor view = dw_tensor_3d(x, DW_F32, N, T, C);
        assert_int_equal(where_recv(channels.end[i], PATIENCE_MS, keys, &view), DW_OK);
    }
    channels_close(&channels);
}

/* Otherwise they would draw the same numbers for the same key. */
TEST(encoders_share_no_incarnation)
{
    enum { OPENED = 5, FOUND = 2 * OPENED };
    const char *config = "direct:bits=4,incarnation=7", *other = "direct:bits=4,incarnation=8";
    uint64_t found[FOUND], again[2];
    find_incarnations(ID, config, found);
    find_incarnations(ID + 1, config, found + 2);
    find_incarnations(ID, other, found + 4);
    find_incarnations(ID, "direct:bits=4", found + 6);
    find_incarnations(ID, "direct:bits=4", found + 8);
    for (int i = 0; i < FOUND; i++) {
        for (int k = 0; k < i; k++) assert_true(found[i] != found[k]);
    }
    find_incarnations(ID, config, again);
    assert_memory_equal(again, found, sizeof again);
}

/* ---- Opening --------------------------------------------------------------------------------- */

TEST(different_configs_are_a_mismatch_at_both_ends)
{
    static const struct {
        const char *sends, *receives;
        dw_status status;
    } cases[] = {
        {"delta:bits=3", "delta:bits=5", DW_ERR_MISMATCH},
        /* The same config in other words. */
        {"delta:bits=4", "delta", DW_OK},
        {"delta:bits=4,group=64,key=8,choose=group,audit=1", "delta", DW_OK},
        {"direct:bits=4,scale=absmax,replies=always", "direct", DW_OK},
        {"delta:bits=3,scale=signed", "delta:group=64,bits=3", DW_OK},
        {"delta:bits=3,key=raw", "delta:bits=3", DW_ERR_MISMATCH},
        {"delta:bits=3,group=32", "delta:bits=3", DW_ERR_MISMATCH},
        {"delta:bits=3,prev=bf16", "delta:bits=3", DW_ERR_MISMATCH},
        {"delta:bits=3,replies=never", "delta:bits=3", DW_ERR_MISMATCH},
        {"delta:bits=3,quota_bytes=100000", "delta:bits=3", DW_ERR_MISMATCH},
        {"delta:bits=3", NULL, DW_ERR_MISMATCH},
        {"direct:bits=3", "delta:bits=3", DW_ERR_MISMATCH},
        /* Only the encoder needs to know the way in which scales are chosen. */
        {"delta:bits=3,scale=mse", "delta:bits=3", DW_OK},
        {"delta:bits=3,rounding=stochastic", "delta:bits=3", DW_OK},
        {"delta:bits=3,seed=7", "delta:bits=3,seed=8", DW_OK},
        {"direct:form=step,group=sample,step=2", "direct:form=step,group=sample,step=3", DW_OK},
        {"direct:form=step,group=sample,rounding=dither", "direct:form=step,group=sample",
         DW_ERR_MISMATCH},
        {"direct:bits=3,feedback=ef,quota_bytes=100000", "direct:bits=3", DW_OK},
        {"lowrank:feedback=ef,decay=0.9,restart=9,iterations=3", "lowrank:iterations=1", DW_OK},
        {"lowrank:rank=3", "lowrank:rank=2", DW_ERR_MISMATCH},
        {"delta:bits=3", "delta:bits=3,rounding=stochastic,incarnation=5", DW_OK}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        test_channels channels;
        if (where_is_device() && strncmp(cases[i].sends, "lowrank", 7) == 0) continue;
        channels_prepare(&channels, &channels_backends[0], cases[i].sends, cases[i].receives);
        if (!cases[i].receives) {
            dw_config_parse(&channels.codec[1], "raw:f32", NULL);
            channels.config[1].send = &channels.codec[1];
        }
        channels_try_open(&channels);
        for (int k = 0; k < 2; k++) {
            if (channels.status[k] != cases[i].status)
                fail_msg("%s: %d", cases[i].sends, (int)channels.status[k]);
            if (cases[i].status == DW_OK) continue;
            assert_null(channels.end[k]);
            if (!cases[i].receives)
                assert_non_null(strstr(channels.why[k].text, "nothing"));
            else if (!strstr(channels.why[k].text, cases[i].sends) ||
                     !strstr(channels.why[k].text, cases[i].receives))
                fail_msg("%s", channels.why[k].text);
        }
        channels_close(&channels);
    }
}

/* Opens a channel that receives raw:f32. The peer's greeting has this body. status: what opening
 * returns. says: a part of the sentence. */
static void greet(const void *body, size_t len, dw_status status, const char *says)
{
    test_channels channels;
    unsigned char message[DW_ENVELOPE_BYTES + 1024];
    channels_prepare(&channels, &channels_backends[0], NULL, "raw:f32");
    suite_open(&channels.links);
    dw_link *peer = channels.links.link[0];
    memcpy(message + DW_ENVELOPE_BYTES, body, len);
    dw_envelope_finalize(message, peer->settings.session, DW_ENVELOPE_HELLO, DW_OK, 0, len);
    assert_int_equal(dw_link_send(peer, ID << 8, message, DW_ENVELOPE_BYTES + len), DW_OK);
    dw_status found = dw_channel_open(&channels.end[1], channels.links.link[1], &channels.config[1],
                                      &channels.why[1]);
    if (found != status || !strstr(channels.why[1].text, says))
        fail_msg("%zu bytes: %d, \"%s\"", len, (int)found, channels.why[1].text);
    channels_close(&channels);
}

TEST(malformed_channel_hellos_are_refused)
{
    enum { TEXT = 256, HELLO = 2 + 2 * TEXT };
    unsigned char body[HELLO + 1] = {DW_FORMAT_MAJOR, DW_FORMAT_MINOR};
    memcpy(body + 2, "raw:f32", 7);
    greet(body, HELLO, DW_OK, "");
    greet(body, HELLO - 1, DW_ERR_PROTOCOL, "malformed");
    greet(body, HELLO + 1, DW_ERR_PROTOCOL, "malformed");
    greet(body, 0, DW_ERR_PROTOCOL, "malformed");
    body[1]++;
    greet(body, HELLO, DW_ERR_VERSION, "run the same release");
    greet(body, HELLO - 2, DW_ERR_VERSION, "run the same release"); /* of another length */
    body[1]--;
    body[2] = 'w'; /* a word that nobody knows */
    greet(body, HELLO, DW_ERR_MISMATCH, "the peer sends 'waw:f32'");
    for (int i = 0; i < 2; i++) { /* a text without a terminating zero */
        memset(body + 2, 0, 2 * TEXT);
        memset(body + 2 + (size_t)i * TEXT, 'x', TEXT);
        greet(body, HELLO, DW_ERR_PROTOCOL, "malformed");
    }
}

/* Messages that are no new frame, and always more of them. */
TEST(duplicates_do_not_delay_a_timeout)
{
    enum { DUPLICATES = 100000 };
    test_channels channels;
    unsigned char message[DW_ENVELOPE_BYTES];
    if (where_is_device()) skip(); /* the wait is the same */
    channels_open(&channels, &channels_backends[0], "raw:f32");
    channels_pass(&channels, 0);
    dw_link *peer = channels.links.link[0], *link = channels.links.link[1];
    uint32_t tag = dw_channel_tag(&channels.end[1]->port, DW_TAG_FRAMES);
    dw_envelope_finalize(message, peer->settings.session, DW_ENVELOPE_FRAME, DW_OK, 0, 0);
    for (int i = 0; i < DUPLICATES; i++)
        assert_int_equal(dw_link_send(peer, tag, message, sizeof message), DW_OK);
    while (counted(link).messages_received < DUPLICATES) suite_sleep_ms(1);
    void *data;
    size_t len;
    float values[64];
    dw_tensor y = dw_tensor_3d(values, DW_F32, 1, 1, 64);
    assert_int_equal(dw_channel_recv(channels.end[1], 1, NULL, &y, NULL), DW_PENDING);
    assert_int_equal(dw_link_recv(link, tag, 0, &data, &len), DW_OK); /* more were waiting */
    dw_link_release(link, data);
    channels_close(&channels);
}

TEST(opening_alone_is_a_timeout)
{
    test_channels channels;
    channels_prepare(&channels, &channels_backends[1], "raw:f32", "raw:f32");
    suite_open(&channels.links);
    dw_channel *channel;
    dw_why why;
    channels.config[0].open_timeout_ms = 100;
    assert_int_equal(dw_channel_open(&channel, channels.links.link[0], &channels.config[0], &why),
                     DW_ERR_TIMEOUT);
    assert_non_null(strstr(why.text, "channel 3"));
    assert_null(channel);
    channels.config[0].id = 0x10000;
    assert_int_equal(dw_channel_open(&channel, channels.links.link[0], &channels.config[0], &why),
                     DW_ERR_ARGUMENT);
    channels.config[0].id = ID;
    channels.config[0].send = NULL;
    assert_int_equal(dw_channel_open(&channel, channels.links.link[0], &channels.config[0], &why),
                     DW_ERR_ARGUMENT);
    channels.codec[0].bits = 99;
    channels.config[0].send = &channels.codec[0];
    assert_int_equal(dw_channel_open(&channel, channels.links.link[0], &channels.config[0], &why),
                     DW_ERR_CONFIG);
    assert_non_null(strstr(why.text, "channel 3"));
    channels_close(&channels);
}

TEST(an_id_that_is_open_is_refused)
{
    test_channels channels;
    channels_open(&channels, &channels_backends[0], "raw:f32");
    dw_channel *second;
    dw_why why;
    assert_int_equal(dw_channel_open(&second, channels.links.link[0], &channels.config[0], &why),
                     DW_ERR_ARGUMENT);
    assert_non_null(strstr(why.text, "open already"));
    channels_pass(&channels, 0);
    channels_close(&channels);
}

/* ---- Calls ----------------------------------------------------------------------------------- */

TEST(a_wrong_shape_keeps_the_frame_for_another_call)
{
    test_channels channels;
    channels_open(&channels, &channels_backends[0], "delta:bits=4");
    test_reference reference = {.next = 0};
    test_pair_open(&reference.pair, "delta:bits=4", N, T, C, DW_F32);
    channels_send(&channels, 0);
    float y[N * T * C];
    dw_key keys[N];
    dw_tensor small = dw_tensor_3d(y, DW_F32, N, T, C - 1);
    assert_int_equal(where_recv(channels.end[1], PATIENCE_MS, keys, &small), DW_ERR_SHAPE);
    assert_int_equal(where_recv(channels.end[1], PATIENCE_MS, keys, NULL), DW_ERR_ARGUMENT);
    channels_expect(&channels, &reference, 0);
    dw_tensor nothing = dw_tensor_3d(NULL, DW_F32, N, T, C);
    assert_int_equal(where_send(channels.end[0], keys, &nothing), DW_ERR_ARGUMENT);
    const dw_key doubled[N] = {{.sample = 1}, {.sample = 1}};
    dw_tensor x = dw_tensor_3d(y, DW_F32, N, T, C);
    assert_int_equal(where_send(channels.end[0], doubled, &x), DW_ERR_ARGUMENT);
    assert_int_equal(where_send(channels.end[1], keys, &x), DW_ERR_ARGUMENT);
    assert_int_equal(where_recv(channels.end[0], 0, keys, &x), DW_ERR_ARGUMENT);
    /* These calls sent nothing and changed nothing. */
    channels_send(&channels, 1);
    channels_expect(&channels, &reference, 1);
    test_pair_close(&reference.pair);
    channels_close(&channels);
}

TEST(sent_tensors_can_be_received_after_a_close)
{
    test_channels channels;
    channels_open(&channels, &channels_backends[1], "raw:f32,replies=never");
    for (int i = 0; i < 5; i++) channels_send(&channels, i);
    dw_channel_close(channels.end[0]);
    channels.end[0] = NULL;
    for (int i = 0; i < 5; i++) assert_int_equal(channels_take(&channels), DW_OK);
    assert_int_equal(channels_take(&channels), DW_ERR_PEER);
    assert_non_null(strstr(dw_channel_why(channels.end[1]), "closed its end"));
    channels_close(&channels);
}

TEST(sending_to_a_closed_end_is_an_error)
{
    test_channels channels;
    channels_open(&channels, &channels_backends[0], "delta:bits=4");
    dw_channel_close(channels.end[1]);
    channels.end[1] = NULL;
    dw_key keys[N];
    float x[N * T * C];
    dw_tensor view = channels_make_tensor(0, keys, x);
    dw_status status = DW_OK;
    for (int i = 0; i < 5000 && status == DW_OK; i++) {
        status = where_send(channels.end[0], keys, &view);
        suite_sleep_ms(1);
    }
    assert_int_equal(status, DW_ERR_PEER);
    channels_close(&channels);
}

TEST(a_dead_link_ends_the_channel_with_its_reason)
{
    test_channels channels;
    channels_open(&channels, &channels_backends[1], "delta:bits=4");
    dw_link_cancel(channels.links.link[0]);
    dw_key keys[N];
    float x[N * T * C];
    dw_tensor view = channels_make_tensor(0, keys, x);
    assert_int_equal(where_send(channels.end[0], keys, &view), DW_ERR_CANCELLED);
    assert_int_equal(channels_receive(&channels, PATIENCE_MS, keys, x), DW_ERR_PEER);
    assert_non_null(strstr(dw_channel_why(channels.end[1]), "127.0.0.1"));
    channels_close(&channels);
}

/* ---- Memory ---------------------------------------------------------------------------------- */

TEST(does_not_allocate_in_steady_state)
{
    for (int c = 0; c < CHANNELS_CONFIGS; c++) {
        test_channels channels;
        suite_backend plain = channels_backends[1];
        channels_prepare(&channels, &plain, channels_configs[c], channels_configs[c]);
        channels.links.prefix[0] = channels.links.prefix[1] = NULL; /* "spoiled:" would allocate */
        channels_try_open(&channels);
        enum { WINDOW = 60, WINDOWS = 10 };
        long before = 0, made = 0;
        for (int i = 0; i < 30 + WINDOWS * WINDOW; i++) {
            if (i % WINDOW == 30) {
                made = suite_allocations() + where_allocations() - before;
                if (i > 30 && made <= 10) break;
                before = suite_allocations() + where_allocations();
            }
            channels_pass(&channels, i);
            /* The buffer of a frame is in use until the sender has got the acknowledgement, which
             * arrives in the link's thread. */
            dw_channel_wait_acknowledged(channels.end[0]);
        }
        /* There are 60 frames and as many replies. How many buffers are in use at the same time
         * depends on the timing of threads, so on a busy machine many may be new, but only once. */
        assert_in_range(made, 0, 10);
        channels_close(&channels);
    }
}

RUN_TESTS_AFTER(where_begin(argc, argv))
