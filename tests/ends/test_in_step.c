/* SPDX-License-Identifier: Apache-2.0
 * test_in_step.c - two ends over a network that loses, duplicates, reorders and damages frames, and
 * whose copies of prev lie in a backing store that loses some, and cannot always be written: an
 * accepted frame is always correct, and when the faults stop, both ends agree on every key again
 * after at most one rejected frame. tests/fuzz has such networks without a backing store.
 *
 * test_in_step [WORLDS]: the number of random networks; emulated processors try fewer. */
#include "support/backing.h"

enum { KEYS = 3, CHANNELS = 64, IN_FLIGHT = 6 };

static uint64_t worlds = 150;

typedef struct packet {
    uint8_t *bytes;
    size_t len;
    float truth[KEYS * CHANNELS]; /* the prev of the encoder after this frame */
    uint32_t first, n;            /* keys */
    int damaged;
} packet;

typedef struct world {
    test_pair pair;
    test_random random;
    test_backing backing;
    packet frames[IN_FLIGHT];
    struct {
        uint8_t bytes[512];
        size_t len;
    } replies[IN_FLIGHT];
    int n_frames, n_replies;
    float x[KEYS * CHANNELS];
    long accepted, rejected, faults;
} world;

static uint64_t pick(world *w, uint64_t n)
{
    return test_next(&w->random) % n;
}

static dw_key key_of(uint32_t i)
{
    return (dw_key){100 + i, i};
}

/* The backing store has room for one copy in memory. */
static void open_world(world *w, uint64_t seed)
{
    memset(w, 0, sizeof *w);
    w->random.state = seed;
    test_pair_open(&w->pair, "delta:bits=4,prev=f32", KEYS, 1, CHANNELS, DW_F32);
    test_backing_open(&w->backing, CHANNELS * sizeof(float));
    test_pair_page(&w->pair, &w->backing);
}

/* The backing store fails in calls that encode and decode, and not while the test looks at
 * copies. */
static void let_fail(world *w, bool fails)
{
    w->backing.writes_fail = fails ? 8 : 0;
    w->backing.reads_fail = fails ? 16 : 0;
}

static void drop_frame(world *w, int i)
{
    free(w->frames[i].bytes);
    w->frames[i] = w->frames[--w->n_frames];
}

static void close_world(world *w)
{
    while (w->n_frames) drop_frame(w, 0);
    test_pair_close(&w->pair);
    assert_int_equal(w->backing.n, 0);
}

static void record_truth(world *w, packet *p)
{
    for (uint32_t i = 0; i < p->n; i++) {
        dw_tensor prev;
        assert_int_equal(dw_encoder_peek(w->pair.encoder, key_of(p->first + i), &prev), DW_OK);
        memcpy(p->truth + i * CHANNELS, prev.data, CHANNELS * sizeof(float));
    }
}

static void keep_frame(world *w, uint32_t first, uint32_t n)
{
    packet *p = &w->frames[w->n_frames++];
    memset(p, 0, sizeof *p);
    p->bytes = malloc(w->pair.len);
    memcpy(p->bytes, w->pair.frame, p->len = w->pair.len);
    p->first = first;
    p->n = n;
    record_truth(w, p);
}

static void encode_some(world *w)
{
    uint32_t first = (uint32_t)pick(w, KEYS), n = 1 + (uint32_t)pick(w, KEYS - first);
    dw_key keys[KEYS];
    if (w->n_frames == IN_FLIGHT) return;
    for (uint32_t i = 0; i < KEYS * CHANNELS; i++) w->x[i] += 0.1f * test_normal(&w->random);
    for (uint32_t i = 0; i < n; i++) keys[i] = key_of(first + i);
    dw_tensor x = dw_tensor_3d(w->x, DW_F32, n, 1, CHANNELS);
    let_fail(w, true);
    dw_status status =
        dw_encode(w->pair.encoder, keys, &x, NULL, w->pair.frame, w->pair.cap, &w->pair.len);
    let_fail(w, false);
    if (status != DW_ERR_IO) assert_int_equal(status, DW_OK);
    if (!status) keep_frame(w, first, n);
}

static void resync_some(world *w)
{
    dw_key key = key_of((uint32_t)pick(w, KEYS));
    if (w->n_frames == IN_FLIGHT) return;
    if (dw_encoder_resync(w->pair.encoder, &key, 1, w->pair.frame, w->pair.cap, &w->pair.len))
        return;
    keep_frame(w, key.slice, 1);
}

/* Copies all bits of prev that the decoder holds. */
static void snapshot(const world *w, float *bits)
{
    for (uint32_t i = 0; i < KEYS; i++) {
        dw_tensor prev;
        if (dw_decoder_peek(w->pair.decoder, key_of(i), &prev) == DW_OK)
            memcpy(bits + i * CHANNELS, prev.data, CHANNELS * sizeof(float));
        else
            memset(bits + i * CHANNELS, 0xff, CHANNELS * sizeof(float));
    }
}

static dw_status deliver(world *w, int i, bool fails)
{
    float y[KEYS * CHANNELS], untouched[KEYS * CHANNELS], before[KEYS * CHANNELS],
        after[KEYS * CHANNELS];
    packet *p = &w->frames[i];
    memset(y, 0x5a, sizeof y);
    memset(untouched, 0x5a, sizeof untouched);
    snapshot(w, before);
    dw_tensor out = dw_tensor_3d(y, DW_F32, p->n, 1, CHANNELS);
    uint64_t lost = w->backing.lost;
    let_fail(w, fails);
    dw_status status = dw_decode(w->pair.decoder, p->bytes, p->len, &out, NULL, w->pair.reply,
                                 w->pair.reply_cap, &w->pair.reply_len);
    let_fail(w, false);
    snapshot(w, after);
    if (status == DW_ERR_IO) w->pair.reply_len = 0;
    if (status == DW_OK) {
        assert_false(p->damaged);
        assert_memory_equal(y, p->truth, p->n * CHANNELS * sizeof(float));
        w->accepted++;
    } else {
        assert_memory_equal(y, untouched, sizeof y);
        if (lost == w->backing.lost) assert_memory_equal(before, after, sizeof before);
        w->rejected++;
    }
    if (w->pair.reply_len && w->n_replies < IN_FLIGHT) {
        memcpy(w->replies[w->n_replies].bytes, w->pair.reply, w->pair.reply_len);
        w->replies[w->n_replies++].len = w->pair.reply_len;
    }
    return status;
}

static void take_reply(world *w, int i)
{
    assert_int_equal(dw_encoder_take_reply(w->pair.encoder, w->replies[i].bytes, w->replies[i].len),
                     DW_OK);
    w->replies[i] = w->replies[--w->n_replies];
}

static void damage(world *w, packet *p)
{
    if (p->damaged) return; /* flipping the same bit twice would repair it */
    size_t at = pick(w, p->len);
    p->bytes[at] = (uint8_t)(p->bytes[at] ^ 1u << pick(w, 8));
    p->damaged = 1;
    w->faults++;
}

static void chaos_step(world *w)
{
    switch (pick(w, 12)) {
    case 0:
    case 1:
    case 2: encode_some(w); break;
    case 3: resync_some(w); break;
    case 4:
    case 5: /* delivers a frame, in any order */
        if (w->n_frames) {
            int i = (int)pick(w, (uint64_t)w->n_frames);
            deliver(w, i, true);
            drop_frame(w, i);
        }
        break;
    case 6:
        if (w->n_frames) deliver(w, (int)pick(w, (uint64_t)w->n_frames), true);
        w->faults += w->n_frames > 0;
        break; /* the frame stays, and may be delivered a second time */
    case 7:
        w->faults += w->n_frames > 0;
        if (w->n_frames) drop_frame(w, (int)pick(w, (uint64_t)w->n_frames));
        break;
    case 8:
        if (w->n_frames && pick(w, 2)) damage(w, &w->frames[pick(w, (uint64_t)w->n_frames)]);
        break;
    case 9:
        if (w->n_replies) take_reply(w, (int)pick(w, (uint64_t)w->n_replies));
        break;
    case 10:
        w->faults += w->n_replies > 0;
        if (w->n_replies) w->n_replies--;
        break; /* the reply is lost */
    default:
        w->faults++;
        if (pick(w, 8) == 0)
            test_pair_renew_encoder(&w->pair);
        else if (pick(w, 8) == 0)
            test_pair_renew_decoder(&w->pair);
        else
            dw_encoder_forget(w->pair.encoder, key_of((uint32_t)pick(w, KEYS) *
                                                      (uint32_t)(pick(w, 6) == 0 ? 1 : 99)));
    }
}

/* When the faults have ended: delivers what is in flight, then visits every key twice. The first
 * visit may fail, the second must not. */
static void settle(world *w)
{
    while (w->n_frames) {
        deliver(w, 0, false);
        drop_frame(w, 0);
    }
    while (w->n_replies) take_reply(w, 0);
    for (uint32_t i = 0; i < KEYS; i++) {
        dw_key key = key_of(i);
        dw_tensor x = dw_tensor_3d(w->x, DW_F32, 1, 1, CHANNELS);
        dw_status status = DW_PENDING;
        for (int round = 0; round < 2 && status != DW_OK; round++) {
            test_pair_encode(&w->pair, &key, &x);
            keep_frame(w, i, 1);
            status = deliver(w, 0, false);
            drop_frame(w, 0);
            while (w->n_replies) take_reply(w, 0);
        }
        assert_int_equal(status, DW_OK);
        test_pair_in_step(&w->pair, key);
    }
}

TEST(delta_heals_after_copies_were_lost_in_a_backing_store)
{
    uint64_t seed = test_seed();
    long accepted = 0, rejected = 0, faults = 0;
    for (uint64_t life = 0; life < worlds; life++) {
        world w;
        open_world(&w, seed + life);
        for (int round = 0; round < 3; round++) {
            for (int step = 0; step < 120; step++) chaos_step(&w);
            settle(&w);
        }
        accepted += w.accepted;
        rejected += w.rejected;
        faults += w.faults + (long)w.backing.lost;
        close_world(&w);
    }
    print_message("%ld frames accepted, %ld rejected, %ld faults\n", accepted, rejected, faults);
    assert_true(accepted > 1000 && rejected > 1000); /* both outcomes were really tried */
}

TEST(a_lost_frame_heals_with_a_delta_from_the_older_base)
{
    float x[64], y[64];
    test_random random = {test_seed()};
    test_pair pair;
    dw_key key = {1, 0};
    test_pair_open(&pair, "delta:bits=4", 1, 1, 64, DW_F32);
    dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, 1, 64), ty = dw_tensor_3d(y, DW_F32, 1, 1, 64);
    test_fill(&random, x, DW_F32, 64, 1.0f);
    test_pair_pass(&pair, &key, &tx, &ty);
    test_pair_take_reply(&pair);
    test_pair_encode(&pair, &key, &tx); /* lost */
    test_pair_encode(&pair, &key, &tx);
    assert_int_equal(test_pair_decode(&pair, &ty), DW_ERR_BASE);
    test_pair_take_reply(&pair);
    test_pair_pass(&pair, &key, &tx, &ty);
    test_pair_in_step(&pair, key);
    assert_int_equal(test_encoder_counters(pair.encoder).key_entries, 1);
    assert_int_equal(test_encoder_counters(pair.encoder).rebases, 1);
    test_pair_close(&pair);
}

/* Damaged memory: one bit of the decoder's copy changes. The state digest detects it, the decoder
 * drops the copy, and the next frame is a key frame. */
TEST(a_damaged_copy_is_detected_and_dropped)
{
    float x[64], y[64];
    test_random random = {test_seed()};
    test_pair pair;
    dw_key key = {1, 0};
    dw_tensor prev;
    test_pair_open(&pair, "delta:bits=4", 1, 1, 64, DW_F32);
    dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, 1, 64), ty = dw_tensor_3d(y, DW_F32, 1, 1, 64);
    test_fill(&random, x, DW_F32, 64, 1.0f);
    test_pair_pass(&pair, &key, &tx, &ty);
    test_pair_take_reply(&pair);
    assert_int_equal(dw_decoder_peek(pair.decoder, key, &prev), DW_OK);
    ((uint32_t *)prev.data)[13] ^= 1u << 20;
    test_pair_encode(&pair, &key, &tx);
    assert_int_equal(test_pair_decode(&pair, &ty), DW_ERR_STATE);
    assert_int_equal(test_decoder_counters(pair.decoder).keys_held, 0);
    /* Both the copy and the scratch memory were released. */
    assert_int_equal(test_decoder_counters(pair.decoder).state_bytes, 0);
    test_pair_take_reply(&pair);
    test_pair_pass(&pair, &key, &tx, &ty);
    test_pair_in_step(&pair, key);
    assert_int_equal(test_encoder_counters(pair.encoder).key_entries, 2);
    test_pair_close(&pair);
}

TEST(a_damaged_copy_is_never_offered_as_a_base)
{
    float x[64], y[64];
    test_random random = {test_seed()};
    test_pair pair;
    dw_key key = {1, 0};
    dw_tensor prev;
    dw_reply_entry entry;
    test_pair_open(&pair, "delta:bits=4", 1, 1, 64, DW_F32);
    dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, 1, 64), ty = dw_tensor_3d(y, DW_F32, 1, 1, 64);
    test_fill(&random, x, DW_F32, 64, 1.0f);
    test_pair_pass(&pair, &key, &tx, &ty);
    test_pair_take_reply(&pair);
    uint8_t *first = malloc(pair.len);
    size_t first_len = pair.len;
    memcpy(first, pair.frame, first_len);
    assert_int_equal(dw_decoder_peek(pair.decoder, key, &prev), DW_OK);
    ((uint32_t *)prev.data)[5] ^= 1;
    test_pair_encode(&pair, &key, &tx); /* lost */
    test_pair_encode(&pair, &key, &tx);
    assert_int_equal(test_pair_decode(&pair, &ty), DW_ERR_BASE);
    assert_int_equal(dw_reply_entry_read(pair.reply, pair.reply_len, 0, &entry), DW_OK);
    assert_int_equal(entry.held, 0);
    test_pair_take_reply(&pair);
    memcpy(pair.frame, first, pair.len = first_len); /* the first frame does not restore it */
    assert_int_equal(test_pair_decode(&pair, &ty), DW_ERR_STALE);
    free(first);
    test_pair_take_reply(&pair);
    test_pair_pass(&pair, &key, &tx, &ty);
    test_pair_close(&pair);
}

/* An encoder that was created again with the same incarnation, but without its state, starts at
 * sequence 1 again. One NACK must be enough to make it continue after the decoder's sequence, or,
 * if the encoder was reset meanwhile, under an incarnation that the decoder has not seen. */
TEST(a_reused_incarnation_needs_one_refusal)
{
    float x[64] = {1}, y[64];
    dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, 1, 64), ty = dw_tensor_3d(y, DW_F32, 1, 1, 64);
    for (int resets = 0; resets < 2; resets++) {
        test_pair pair;
        dw_key key = {1, 0};
        test_pair_open(&pair, "delta:bits=4,incarnation=7", 1, 1, 64, DW_F32);
        for (int visit = 0; visit < 5; visit++) {
            test_pair_pass(&pair, &key, &tx, &ty);
            if (resets) assert_int_equal(dw_encoder_reset(pair.encoder), DW_OK);
        }
        for (int restart = 0; restart < 6; restart++) {
            key.sample = 1 + (restart + 1) / 2; /* the decoder holds it, or not */
            test_pair_renew_encoder(&pair);
            test_pair_encode(&pair, &key, &tx);
            dw_status status = test_pair_decode(&pair, &ty);
            if (restart % 2 && !status) continue;
            assert_int_equal(status, DW_ERR_STALE);
            test_pair_take_reply(&pair);
            test_pair_pass(&pair, &key, &tx, &ty);
            test_pair_in_step(&pair, key);
        }
        test_pair_close(&pair);
    }
}

/* Two key frames arrive after their keys were forgotten: one for the second time, one late, for the
 * first time. Neither may bring back a key that the encoder does not hold. Afterwards one refusal
 * per key is enough to agree again. */
TEST(a_late_frame_does_not_restore_a_dropped_key)
{
    float x[64] = {1}, y[64];
    test_pair pair;
    dw_key gone = {1, 0}, late = {2, 0}, other = {3, 0};
    dw_reply_entry entry;
    test_pair_open(&pair, "delta:bits=4,quota_bytes=512,prev=f32", 1, 1, 64, DW_F32); /* 2 copies */
    dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, 1, 64), ty = dw_tensor_3d(y, DW_F32, 1, 1, 64);
    uint8_t *frames[2];
    size_t lens[2];
    for (int i = 0; i < 2; i++) {
        test_pair_encode(&pair, i ? &late : &gone, &tx);
        frames[i] = malloc(lens[i] = pair.len);
        memcpy(frames[i], pair.frame, pair.len);
        if (i) break;
        assert_int_equal(test_pair_decode(&pair, &ty), DW_OK);
        test_pair_take_reply(&pair);
    }
    assert_int_equal(dw_encoder_forget(pair.encoder, gone), DW_OK);
    /* The quota is full: the entry is stateless. The frame announces that `gone` is forgotten. */
    test_pair_pass(&pair, &other, &tx, &ty);
    test_pair_take_reply(&pair);
    for (int i = 0; i < 2; i++) {
        memcpy(pair.frame, frames[i], pair.len = lens[i]);
        assert_int_equal(test_pair_decode(&pair, &ty), DW_ERR_STALE);
        assert_int_equal(test_decoder_counters(pair.decoder).keys_held, 0);
        assert_int_equal(dw_reply_entry_read(pair.reply, pair.reply_len, 0, &entry), DW_OK);
        assert_true(!entry.held && entry.chain == 0 && entry.version == 3);
        test_pair_take_reply(&pair);
    }
    for (int visit = 0; visit < 2; visit++) {
        test_pair_pass(&pair, visit ? &other : &late, &tx, &ty);
        test_pair_take_reply(&pair);
    }
    test_pair_in_step(&pair, gone);
    test_pair_in_step(&pair, late);
    test_pair_in_step(&pair, other);
    assert_int_equal(test_decoder_counters(pair.decoder).keys_held, 2);
    free(frames[0]);
    free(frames[1]);
    test_pair_close(&pair);
}

/* The decoder remembers the highest sequence of dropped keys for one incarnation only. An encoder
 * with another incarnation is not affected. A new encoder with the same incarnation learns the
 * sequence from a NACK, so that one refusal is enough. */
TEST(dropped_sequences_count_for_one_incarnation)
{
    for (int namesake = 0; namesake < 2; namesake++) {
        float x[64] = {1}, y[64];
        test_pair pair;
        dw_key key = {1, 0};
        test_pair_open(&pair, "delta:bits=4,incarnation=7", 1, 1, 64, DW_F32);
        dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, 1, 64), ty = dw_tensor_3d(y, DW_F32, 1, 1, 64);
        for (uint64_t i = 0; i < 50; i++) {
            test_pair_pass(&pair, &(dw_key){100 + i, 0}, &tx, &ty);
            test_pair_take_reply(&pair);
            assert_int_equal(dw_encoder_forget(pair.encoder, (dw_key){100 + i, 0}), DW_OK);
        }
        pair.config.incarnation += !namesake;
        test_pair_renew_encoder(&pair);
        test_pair_encode(&pair, &key, &tx);
        if (namesake) {
            assert_int_equal(test_pair_decode(&pair, &ty), DW_ERR_STALE);
            test_pair_take_reply(&pair);
            test_pair_encode(&pair, &key, &tx);
        }
        assert_int_equal(test_pair_decode(&pair, &ty), DW_OK);
        test_pair_in_step(&pair, key);
        test_pair_close(&pair);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1) worlds = strtoull(argv[1], NULL, 10);
    return test_run(NULL, NULL);
}
