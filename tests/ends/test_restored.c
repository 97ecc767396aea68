/* SPDX-License-Identifier: Apache-2.0
 * test_restored.c - two ends that are restored from states of different moments, after a network
 * that lost frames and replies: once they have dropped the keys that differ, no frame is refused,
 * and all other keys go on with changes; and otherwise replies bring them in step. */
#include "base/held_keys.h"
#include "support/tool.h"

enum { KEYS = 5, CHANNELS = 64, SAVED_MOST = 1024, LIVES = 40, ROUNDS = 4 };

/* The saved state of an end at some moment. */
typedef struct saved_end {
    uint8_t bytes[KEYS][SAVED_MOST];
    size_t len[KEYS];
    int n;
} saved_end;

static dw_status keep(void *context, dw_key key, const void *saved, size_t len)
{
    saved_end *s = context;
    assert_true(len <= SAVED_MOST && s->n < KEYS);
    memcpy(s->bytes[s->n], saved, len);
    s->len[s->n++] = len;
    return DW_OK;
}

typedef struct held_list {
    dw_held_key keys[KEYS];
    int n;
} held_list;

static dw_status list_key(void *context, const dw_held_key *held)
{
    held_list *list = context;
    assert_true(list->n < KEYS);
    list->keys[list->n++] = *held;
    return DW_OK;
}

static size_t only_in(const held_list *one, const held_list *other, dw_key keys[KEYS])
{
    size_t n = 0;
    for (int i = 0, k; i < one->n; i++) {
        const dw_held_key *a = &one->keys[i], *b = other->keys;
        for (k = 0; k < other->n; k++, b++)
            if (a->key.sample == b->key.sample && a->incarnation == b->incarnation &&
                a->version == b->version && a->chain == b->chain)
                break;
        if (k == other->n) keys[n++] = a->key;
    }
    return n;
}

/* Sends a key. The frame may be lost, and so may its reply. */
static dw_status visit(test_pair *pair, test_random *random, uint64_t sample, bool is_reliable)
{
    float x[CHANNELS], y[CHANNELS];
    dw_key key = {.sample = sample};
    dw_tensor in = dw_tensor_3d(x, DW_F32, 1, 1, CHANNELS),
              out = dw_tensor_3d(y, DW_F32, 1, 1, CHANNELS);
    test_random first = {.state = sample};
    test_fill(&first, x, DW_F32, CHANNELS, 1.0f);
    for (int i = 0; i < CHANNELS; i++) x[i] += 0.05f * test_normal(random);
    test_pair_encode(pair, &key, &in);
    if (!is_reliable && test_next(random) % 6 == 0) return DW_PENDING;
    dw_status status = test_pair_decode(pair, &out);
    if (pair->reply_len > 0 && (is_reliable || test_next(random) % 4)) test_pair_take_reply(pair);
    return status;
}

/* Both ends begin anew with what they saved, or nothing. */
static void restore(test_pair *pair, const saved_end saved[2])
{
    test_pair_renew_encoder(pair);
    test_pair_renew_decoder(pair);
    for (int i = 0; i < saved[0].n; i++)
        assert_int_equal(dw_encoder_import(pair->encoder, saved[0].bytes[i], saved[0].len[i]),
                         DW_OK);
    for (int i = 0; i < saved[1].n; i++)
        assert_int_equal(dw_decoder_import(pair->decoder, saved[1].bytes[i], saved[1].len[i]),
                         DW_OK);
}

/* At most `most` frames of each key are refused. */
static void heal(test_pair *pair, test_random *random, int most)
{
    dw_tensor prev;
    int refused[KEYS] = {0};
    for (uint64_t i = 0; i < 4 * KEYS; i++) {
        dw_key key = {.sample = i % KEYS};
        while (visit(pair, random, key.sample, true) != DW_OK)
            if (++refused[key.sample] > most) fail_msg("%s", dw_decoder_why(pair->decoder));
        if (!dw_encoder_peek(pair->encoder, key, &prev)) test_pair_in_step(pair, key);
    }
}

/* Both ends drop what differs, and go on. Returns how many keys did so with a change. */
static uint64_t compare(test_pair *pair, test_random *random)
{
    dw_key keys[KEYS];
    held_list sent = {.n = 0}, received = {.n = 0};
    assert_int_equal(dw_encoder_visit_keys(pair->encoder, list_key, &sent), DW_OK);
    assert_int_equal(dw_decoder_visit_keys(pair->decoder, list_key, &received), DW_OK);
    size_t differ[2] = {only_in(&sent, &received, keys), 0};
    assert_int_equal(dw_encoder_drop_keys(pair->encoder, keys, differ[0]), DW_OK);
    differ[1] = only_in(&received, &sent, keys);
    assert_int_equal(dw_decoder_drop_keys(pair->decoder, keys, differ[1]), DW_OK);
    for (uint64_t sample = 0; sample < KEYS; sample++) {
        assert_int_equal(visit(pair, random, sample, true), DW_OK);
        test_pair_in_step(pair, (dw_key){.sample = sample});
    }
    dw_counters counters[2] = {test_encoder_counters(pair->encoder),
                               test_decoder_counters(pair->decoder)};
    for (int i = 0; i < 2; i++) assert_int_equal(counters[i].dropped_keys, differ[i]);
    assert_int_equal(counters[0].delta_entries, (size_t)sent.n - differ[0]);
    return counters[0].delta_entries;
}

/* refused: how many frames of each key may be refused; 0: the ends compare what they have. */
static void live(const char *config, uint64_t seed, int refused)
{
    static saved_end saved[2];
    uint64_t changes = 0;
    for (uint64_t life = 0; life < LIVES; life++) {
        test_random random = {.state = seed + life};
        test_pair pair;
        test_pair_open(&pair, config, 1, 1, CHANNELS, DW_F32);
        saved[0].n = saved[1].n = 0;
        for (int step = 0; step < ROUNDS * 60; step++) {
            saved_end *s = &saved[step % 2];
            visit(&pair, &random, test_next(&random) % KEYS, false);
            if (test_next(&random) % 12 == 0)
                dw_encoder_forget(pair.encoder, (dw_key){.sample = test_next(&random) % KEYS});
            if (step % 60 == 59) restore(&pair, saved);
            if (step % 60 == 59 && refused) heal(&pair, &random, refused);
            if (step % 60 == 59 && !refused) changes += compare(&pair, &random);
            if (test_next(&random) % 20) continue;
            s->n = 0;
            assert_int_equal(step % 2 ? dw_decoder_export(pair.decoder, NULL, keep, s)
                                      : dw_encoder_export(pair.encoder, NULL, keep, s),
                             DW_OK);
        }
        test_pair_close(&pair);
    }
    if (refused) return;
    print_message("%s: %llu keys went on\n", config, (unsigned long long)changes);
    assert_true(changes > LIVES / 4 && changes < (uint64_t)LIVES * ROUNDS * KEYS);
}

TEST(restored_ends_refuse_nothing_once_they_have_compared)
{
    uint64_t seed = test_seed();
    live("delta:bits=3,prev=f32", seed, 0);
    live("delta:bits=4,prev=bf16,quota_bytes=100000", seed, 0);
    live("delta:form=step,group=sample,rounding=dither,step=3,prev=f32", seed, 0);
}

/* With a full quota a new key may be refused for the state that differs, and then for the room. */
TEST(restored_ends_that_have_not_compared_are_in_step_after_a_reply_or_two)
{
    uint64_t seed = test_seed();
    live("delta:bits=3,prev=f32", seed, 1);
    live("delta:bits=4,prev=bf16,quota_bytes=400", seed, 2);
}

static void send_reliably(test_pair *pair, test_random *random, uint64_t from, uint64_t end)
{
    for (uint64_t sample = from; sample < end; sample++)
        assert_int_equal(visit(pair, random, sample, true), DW_OK);
}

/* After the decoder has met another encoder, this one goes on under a new incarnation; what it
 * holds of the old one is no base, and would keep the rest from being restored. */
TEST(an_encoder_that_was_replaced_exports_what_it_can_import)
{
    test_random random = {.state = test_seed()};
    test_pair pair, other;
    static saved_end saved;
    test_pair_open(&pair, "delta:bits=4", 1, 1, CHANNELS, DW_F32);
    test_pair_open(&other, "delta:bits=4", 1, 1, CHANNELS, DW_F32);
    send_reliably(&pair, &random, 0, KEYS);
    dw_encoder *first = pair.encoder;
    pair.encoder = other.encoder;
    send_reliably(&pair, &random, 0, 1);
    pair.encoder = first;
    assert_int_equal(visit(&pair, &random, 0, true), DW_ERR_STALE);
    send_reliably(&pair, &random, 0, 2);
    saved.n = 0;
    assert_int_equal(dw_encoder_export(pair.encoder, NULL, keep, &saved), DW_OK);
    assert_int_equal(saved.n, 2);
    test_pair_renew_encoder(&pair);
    for (int i = 0; i < saved.n; i++)
        assert_int_equal(dw_encoder_import(pair.encoder, saved.bytes[i], saved.len[i]), DW_OK);
    send_reliably(&pair, &random, 0, 2);
    assert_int_equal(test_encoder_counters(pair.encoder).delta_entries, 2);
    test_pair_close(&other);
    test_pair_close(&pair);
}

static void encode_alike(dw_encoder *one, dw_encoder *other, const test_pair *pair)
{
    float x[CHANNELS];
    dw_key key = {.sample = KEYS};
    dw_tensor in = dw_tensor_3d(x, DW_F32, 1, 1, CHANNELS);
    test_random random = {.state = 7};
    uint8_t frames[2][SAVED_MOST];
    size_t len[2];
    /* Of the two, only one has room for another copy. */
    dw_encode_options options = {.struct_size = sizeof options, .stateless = 1};
    test_fill(&random, x, DW_F32, CHANNELS, 1.0f);
    assert_true(pair->cap <= SAVED_MOST);
    for (int i = 0; i < 2; i++)
        assert_int_equal(
            dw_encode(i ? other : one, &key, &in, &options, frames[i], SAVED_MOST, &len[i]), DW_OK);
    assert_int_equal(len[0], len[1]);
    assert_memory_equal(frames[0], frames[1], len[0]);
}

/* The copy of the old incarnation leaves no room for others, so no key is saved. */
TEST(an_encoder_that_saves_no_key_saves_which_numbers_it_draws)
{
    test_random random = {.state = test_seed()};
    test_pair pair, other;
    static saved_end saved;
    test_pair_open(&pair, "delta:bits=4,rounding=stochastic,prev=f32,quota_bytes=300", 1, 1,
                   CHANNELS, DW_F32);
    test_pair_open(&other, "delta:bits=4,rounding=stochastic,prev=f32", 1, 1, CHANNELS, DW_F32);
    send_reliably(&pair, &random, 0, 1);
    dw_encoder *first = pair.encoder;
    pair.encoder = other.encoder;
    send_reliably(&pair, &random, 0, 1);
    pair.encoder = first;
    assert_int_equal(visit(&pair, &random, 0, true), DW_ERR_STALE);
    send_reliably(&pair, &random, 1, 3);
    saved.n = 0;
    assert_int_equal(dw_encoder_export(pair.encoder, NULL, keep, &saved), DW_OK);
    assert_int_equal(saved.n, 1);
    dw_encoder *restored;
    assert_int_equal(dw_encoder_create(&restored, &pair.config, NULL, NULL), DW_OK);
    assert_int_equal(dw_encoder_import(restored, saved.bytes[0], saved.len[0]), DW_OK);
    encode_alike(pair.encoder, restored, &pair);
    dw_encoder_destroy(restored);
    test_pair_close(&other);
    test_pair_close(&pair);
}

RUN_TESTS(NULL, NULL)
