/* SPDX-License-Identifier: Apache-2.0
 * test_channel_compare.c - channels whose ends were restored from different saved states: keys that
 * differ are sent in full once, all others go on with changes, and no frame is refused. */
#include <unistd.h>

#include "base/held_keys.h"
#include "channel/saved.h"
#include "channel_pair.h"

/* What one end of a channel has saved. */
typedef struct snapshot {
    void *saved[KEYS];
    size_t len[KEYS];
    int n;
} snapshot;

static dw_status keep(void *context, dw_key key, const void *saved, size_t len)
{
    snapshot *s = context;
    assert_true(s->n < KEYS);
    s->saved[s->n] = malloc(len);
    s->len[s->n] = len;
    memcpy(s->saved[s->n++], saved, len);
    return DW_OK;
}

/* End 0 sends, end 1 receives. */
static snapshot save(test_channels *channels, int end)
{
    snapshot s = {.n = 0};
    assert_int_equal(dw_channel_export(channels->end[end], end == 0, keep, &s), DW_OK);
    return s;
}

static void restore(test_channels *channels, int end, const snapshot *s)
{
    for (int i = 0; i < s->n; i++)
        assert_int_equal(dw_channel_import(channels->end[end], end == 0, s->saved[i], s->len[i]),
                         DW_OK);
}

static void drop(snapshot *s)
{
    for (int i = 0; i < s->n; i++) free(s->saved[i]);
}

/* ---- Both ends compare ----------------------------------------------------------------------- */

static dw_status compared[2];

static void *compare_end(void *context)
{
    test_channels *channels = context;
    compared[0] = dw_channel_compare(channels->end[0], PATIENCE_MS, NULL, NULL);
    return NULL;
}

static void compare(test_channels *channels)
{
    pthread_t other;
    pthread_create(&other, NULL, compare_end, channels);
    compared[1] = dw_channel_compare(channels->end[1], PATIENCE_MS, NULL, NULL);
    pthread_join(other, NULL);
    for (int i = 0; i < 2; i++)
        if (compared[i] != DW_OK) fail_msg("end %d: %s", i, dw_channel_why(channels->end[i]));
}

enum { TENSORS = KEYS / N }; /* of an epoch */

/* Compares, and sends an epoch. anew: of how many keys the next entry carries x itself; dropped:
 * how many each end has dropped. Then every key has state again. */
static void assert_goes_on(test_channels *channels, int epoch, uint64_t anew, uint64_t dropped_sent,
                           uint64_t dropped_received)
{
    compare(channels);
    for (int i = 0; i < TENSORS; i++) channels_pass(channels, epoch * TENSORS + i);
    dw_counters sent = channels_sent(channels->end[0]),
                received = channels_received(channels->end[1]);
    assert_int_equal(sent.dropped_keys, dropped_sent);
    assert_int_equal(received.dropped_keys, dropped_received);
    assert_int_equal(sent.key_entries, anew);
    assert_int_equal(sent.delta_entries, KEYS - anew);
    assert_int_equal(sent.resyncs + sent.nacks + received.rejected_frames, 0);
    assert_int_equal(received.keys_held, KEYS);
}

static const char *const configs[] = {"delta:bits=4", "delta:bits=4,replies=never",
                                      "delta:bits=3,rounding=stochastic,quota_bytes=1000000"};

/* The states after an epoch; after one more tensor, which carries keys 0 and 1; and after the next
 * epoch. */
typedef struct history {
    snapshot after[3][2];
} history;

static history live(const char *config)
{
    history h;
    test_channels channels;
    channels_open(&channels, &channels_backends[0], config);
    for (int i = 0; i < 2 * TENSORS; i++) {
        channels_pass(&channels, i);
        for (int end = 0; end < 2; end++) {
            if (i == TENSORS - 1) h.after[0][end] = save(&channels, end);
            if (i == TENSORS) h.after[1][end] = save(&channels, end);
            if (i == 2 * TENSORS - 1) h.after[2][end] = save(&channels, end);
        }
    }
    channels_close(&channels);
    return h;
}

static void forget(history *h)
{
    for (int i = 0; i < 3; i++)
        for (int end = 0; end < 2; end++) drop(&h->after[i][end]);
}

TEST(keys_that_differ_are_sent_in_full_once)
{
    /* From which moments the ends are restored (-1: none), and how many keys each end drops. */
    static const struct {
        int sender, receiver;
        uint64_t anew, dropped[2];
    } cases[] = {
        {0, 0, 0, {0, 0}},          {2, 2, 0, {0, 0}},
        {0, 1, N, {N, N}},          {1, 0, N, {N, N}},
        {0, 2, KEYS, {KEYS, KEYS}}, {2, 1, KEYS - N, {KEYS - N, KEYS - N}},
        {-1, 2, KEYS, {0, KEYS}},   {2, -1, KEYS, {KEYS, 0}},
        {-1, -1, KEYS, {0, 0}},
    };
    for (size_t c = 0; c < sizeof configs / sizeof *configs; c++) {
        history h = live(configs[c]);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            test_channels channels;
            channels_open(&channels, &channels_backends[i % 2], configs[c]);
            if (cases[i].sender >= 0) restore(&channels, 0, &h.after[cases[i].sender][0]);
            if (cases[i].receiver >= 0) restore(&channels, 1, &h.after[cases[i].receiver][1]);
            assert_goes_on(&channels, 2, cases[i].anew, cases[i].dropped[0], cases[i].dropped[1]);
            channels_close(&channels);
        }
        forget(&h);
    }
}

/* The channel of a run that goes on may compare whenever both ends do, and again. */
TEST(ends_in_step_drop_nothing)
{
    test_channels channels;
    channels_open(&channels, &channels_backends[1], "delta:bits=4");
    for (int i = 0; i < TENSORS; i++) channels_pass(&channels, i);
    for (int i = 0; i < 20; i++) compare(&channels);
    assert_int_equal(channels_sent(channels.end[0]).dropped_keys, 0);
    for (int i = 0; i < TENSORS; i++) channels_pass(&channels, TENSORS + i);
    assert_int_equal(channels_sent(channels.end[0]).delta_entries, KEYS);
    channels_close(&channels);
}

/* Sends MANY keys with small values from an end to the other. */
enum { MANY = 7000, AT_ONCE = 1000, SMALL = 4, LOSES = 7 };

static void pass_many(test_channels *channels, int way, int epoch)
{
    static dw_key keys[AT_ONCE];
    static float x[AT_ONCE * SMALL];
    dw_tensor view = dw_tensor_3d(x, DW_F32, AT_ONCE, 1, SMALL);
    for (uint64_t first = 0; first < MANY; first += AT_ONCE) {
        for (uint64_t i = 0; i < AT_ONCE; i++) {
            keys[i] = (dw_key){.sample = first + i, .slice = 1};
            for (int k = 0; k < SMALL; k++)
                x[i * SMALL + (uint64_t)k] = (float)((first + i) % 97) + (float)(k * epoch);
        }
        assert_int_equal(where_send(channels->end[way], keys, &view), DW_OK);
        assert_int_equal(where_recv(channels->end[!way], PATIENCE_MS, keys, &view), DW_OK);
    }
}

/* Digests of ranges, split, and lists, in both directions at once. A decoder loses keys of
 * the one, and an encoder of the other. */
TEST(many_keys_are_compared)
{
    static dw_key lost[MANY / LOSES];
    test_channels channels;
    if (where_is_device()) return; /* a fake one is slow, and a comparison sees nothing of it */
    channels_prepare(&channels, &channels_backends[0], "delta:bits=4", "delta:bits=4");
    for (int i = 0; i < 2; i++)
        channels.config[i].send = channels.config[i].recv = &channels.codec[i];
    channels_try_open(&channels);
    for (uint64_t i = 0; i < MANY / LOSES; i++) lost[i] = (dw_key){.sample = i * LOSES, .slice = 1};
    for (int way = 0; way < 2; way++) {
        pass_many(&channels, way, 0);
        dw_channel *end = channels.end[1];
        dw_channel_lock_end(end, way); /* acknowledgements arrive meanwhile */
        dw_status status = way ? dw_encoder_drop_keys(end->codecs.encoder, lost, MANY / LOSES)
                               : dw_decoder_drop_keys(end->codecs.decoder, lost, MANY / LOSES);
        status = dw_channel_unlock_end(end, way, status);
        assert_int_equal(status, DW_OK);
    }
    compare(&channels);
    for (int way = 0; way < 2; way++) {
        assert_int_equal(channels_sent(channels.end[way]).keys_held, MANY - MANY / LOSES);
        assert_int_equal(channels_received(channels.end[!way]).keys_held, MANY - MANY / LOSES);
        pass_many(&channels, way, 1);
        dw_counters sent = channels_sent(channels.end[way]);
        assert_int_equal(sent.key_entries, MANY + MANY / LOSES);
        assert_int_equal(sent.delta_entries, MANY - MANY / LOSES);
        assert_int_equal(sent.nacks + channels_received(channels.end[!way]).rejected_frames, 0);
    }
    channels_close(&channels);
}

/* ---- A peer that does not do its part -------------------------------------------------------- */

enum { TAG = ID << 8 | DW_TAG_COMPARE };

static void say(test_channels *channels, dw_envelope_kind kind, uint64_t sequence, const void *body,
                size_t len, bool damaged)
{
    unsigned char message[DW_ENVELOPE_BYTES + 64];
    if (len) memcpy(message + DW_ENVELOPE_BYTES, body, len);
    dw_envelope_finalize(message, channels->links.link[1]->settings.session, kind, DW_OK, sequence,
                         len);
    if (damaged) message[DW_ENVELOPE_BYTES + 1] ^= 1;
    assert_int_equal(dw_link_send(channels->links.link[1], TAG, message, DW_ENVELOPE_BYTES + len),
                     DW_OK);
}

/* The sender has state, and nothing of it is lost by what comes. */
static void assert_refused(test_channels *channels, int timeout_ms, dw_status status)
{
    assert_int_equal(dw_channel_compare(channels->end[0], timeout_ms, NULL, NULL), status);
    assert_string_not_equal(dw_channel_why(channels->end[0]), "");
    assert_int_equal(channels_sent(channels->end[0]).dropped_keys, 0);
    assert_int_equal(channels_sent(channels->end[0]).keys_held, KEYS);
}

static void open_with_state(test_channels *channels)
{
    channels_open(channels, &channels_backends[0], "delta:bits=4");
    for (int i = 0; i < TENSORS; i++) channels_pass(channels, i);
}

TEST(forged_messages_change_nothing)
{
    const unsigned char root[16] = {[0] = KEYS, [8] = 7}, large[16] = {[7] = 255, [8] = 7};
    /* The direction: the connector or the listener sends. */
    for (int i = 0; i < 8; i++) {
        test_channels channels;
        open_with_state(&channels);
        uint64_t ours = !channels.links.link[0]->settings.listens;
        dw_status status = DW_ERR_PROTOCOL;
        if (i == 0) say(&channels, DW_ENVELOPE_COMPARE, ours, root, 15, false); /* cut */
        if (i == 1) say(&channels, DW_ENVELOPE_COMPARE, ours, root, 16, true);
        if (i == 1) status = DW_ERR_CORRUPT;
        if (i == 2) say(&channels, DW_ENVELOPE_COMPARE, !ours, root, 16, false);
        if (i == 3)
            say(&channels, DW_ENVELOPE_COMPARE, 2 + ours, root, 16, false); /* out of turn */
        if (i == 4) say(&channels, DW_ENVELOPE_FRAME, ours, root, 16, false);
        for (int k = 0; i == 5 && k < 2; k++) /* twice */
            say(&channels, DW_ENVELOPE_COMPARE, ours, root, 16, false);
        if (i == 6) say(&channels, DW_ENVELOPE_COMPARE, ours, large, 16, false);
        if (i == 6) say(&channels, DW_ENVELOPE_COMPARE, 4 + ours, large, 3, false); /* too long */
        if (i == 7) say(&channels, DW_ENVELOPE_COMPARE, UINT64_MAX - 1 + ours, NULL, 0, false);
        assert_refused(&channels, PATIENCE_MS, status);
        channels_pass(&channels, TENSORS); /* it works on */
        assert_int_equal(channels_sent(channels.end[0]).delta_entries, N);
        channels_close(&channels);
    }
}

TEST(a_silent_peer_ends_it_in_time)
{
    const unsigned char root[16] = {[0] = KEYS, [8] = 7};
    for (int i = 0; i < 2; i++) {
        test_channels channels;
        open_with_state(&channels);
        uint64_t ours = !channels.links.link[0]->settings.listens;
        if (i) say(&channels, DW_ENVELOPE_COMPARE, ours, root, sizeof root, false);
        assert_refused(&channels, 50, DW_ERR_TIMEOUT);
        assert_non_null(strstr(dw_channel_why(channels.end[0]),
                               i ? "did not go on" : "perhaps it does not compare"));
        channels_close(&channels);
    }
}

/* The peer's messages of a comparison that failed do not serve the next one: this root says that it
 * holds nothing, and this list, which arrives late, is not kept. */
TEST(a_failed_comparison_is_the_last)
{
    const unsigned char nothing[16] = {0}, list[64] = {0};
    dw_link_counters counters = {.struct_size = sizeof counters};
    test_channels channels;
    open_with_state(&channels);
    uint64_t ours = !channels.links.link[0]->settings.listens;
    assert_refused(&channels, 50, DW_ERR_TIMEOUT);
    assert_int_equal(dw_link_count(channels.links.link[0], &counters), DW_OK);
    uint64_t arrived = counters.messages_received;
    say(&channels, DW_ENVELOPE_COMPARE, ours, nothing, sizeof nothing, false);
    for (int i = 0; i < 3; i++) say(&channels, DW_ENVELOPE_COMPARE, 2 + ours, list, 64, false);
    assert_refused(&channels, PATIENCE_MS, DW_ERR_ARGUMENT);
    assert_non_null(strstr(dw_channel_why(channels.end[0]), "an earlier comparison"));
    channels_pass(&channels, TENSORS);
    uint64_t kept = 1;
    for (int looks = 0; looks < 5000 && kept > 0; looks++, usleep(1000)) {
        dw_link *link = channels.links.link[0];
        pthread_mutex_lock(&link->lock);
        const dw_inbox *inbox = dw_inbox_find(&link->inboxes, TAG);
        kept = link->inboxes.messages_received < arrived + 4 || (inbox && inbox->head);
        pthread_mutex_unlock(&link->lock);
    }
    assert_int_equal(kept, 0);
    channels_close(&channels);
}

static dw_status stop_at_third(void *context)
{
    return ++*(int *)context == 3 ? DW_ERR_CANCELLED : DW_OK;
}

TEST(a_wait_is_ended_by_who_looks)
{
    for (int timeout_ms = -1; timeout_ms <= PATIENCE_MS; timeout_ms += PATIENCE_MS + 1) {
        test_channels channels;
        int looks = 0;
        open_with_state(&channels);
        assert_int_equal(dw_channel_compare(channels.end[0], timeout_ms, stop_at_third, &looks),
                         DW_ERR_CANCELLED);
        assert_non_null(strstr(dw_channel_why(channels.end[0]), "was stopped"));
        channels_close(&channels);
    }
}

TEST(a_dead_peer_ends_it)
{
    const unsigned char root[16] = {[0] = KEYS, [8] = 7};
    test_channels channels;
    open_with_state(&channels);
    uint64_t ours = !channels.links.link[0]->settings.listens;
    say(&channels, DW_ENVELOPE_COMPARE, ours, root, sizeof root, false);
    assert_int_equal(dw_link_flush(channels.links.link[1], PATIENCE_MS), DW_OK);
    dw_link_abort(channels.links.link[1], DW_ERR_CANCELLED, "killed");
    assert_refused(&channels, -1, DW_ERR_PEER);
    channels_close(&channels);
}

RUN_TESTS_AFTER(where_begin(argc, argv))
