/* SPDX-License-Identifier: Apache-2.0
 * test_doors.c - what programs that embed an encoder or decoder use besides encode and decode:
 * frames in a stream, limits on the length, entries that are stateless by the caller's choice,
 * restarts, saved states, NULL for any pointer, and the sentences of errors. */

#include "base/bytes.h"
#include "support/seal.h"
#include "support/tool.h"
#include "wire/frame.h"

enum { N = 2, T = 3, C = 64 };

static dw_tensor tensor_of(float *data)
{
    return dw_tensor_3d(data, DW_F32, N, T, C);
}

static const dw_key keys[N] = {{7, 0}, {8, 1}};

static void fill(float *x, uint64_t seed)
{
    test_random random = {seed};
    test_fill(&random, x, DW_F32, N * T * C, 1.0f);
}

/* A stream of frames, one directly after the other, with padding at the end. */
TEST(a_stream_is_split_into_frames)
{
    test_pair pair;
    float x[N * T * C], y[N * T * C];
    dw_tensor tx = tensor_of(x), ty = tensor_of(y);
    uint8_t stream[65536] = {0};
    size_t used = 0, at = 0;
    test_pair_open(&pair, "delta:bits=3", N, T, C, DW_F32);
    for (uint64_t i = 0; i < 3; i++) {
        fill(x, i);
        test_pair_encode(&pair, keys, &tx);
        memcpy(stream + used, pair.frame, pair.len);
        used += pair.len;
    }
    for (int i = 0; i < 3; i++) {
        uint64_t len = 0;
        assert_int_equal(dw_frame_length(stream + at, 79, &len), DW_PENDING);
        assert_int_equal(len, 80);
        assert_int_equal(dw_frame_length(stream + at, 80, &len), DW_OK);
        assert_true(len <= used - at);
        assert_int_equal(
            dw_decode(pair.decoder, stream + at, sizeof stream - at, &ty, NULL, NULL, 0, NULL),
            DW_OK);
        at += len;
    }
    assert_int_equal(at, used);
    uint64_t len = 0;
    assert_int_equal(dw_frame_length(stream + at, sizeof stream - at, &len), DW_ERR_FORMAT);
    stream[50] ^= 1; /* the length */
    assert_int_equal(dw_frame_length(stream, sizeof stream, &len), DW_ERR_CORRUPT);
    stream[54] = 0x7f; /* a length that this shape cannot have, with correct digests */
    test_seal_tables(stream, 80);
    assert_int_equal(dw_frame_length(stream, sizeof stream, &len), DW_ERR_FORMAT);
    stream[4] = 1;
    assert_int_equal(dw_frame_length(stream, sizeof stream, &len), DW_ERR_VERSION);
    assert_int_equal(dw_frame_length(NULL, 80, &len), DW_ERR_ARGUMENT);
    test_pair_close(&pair);
}

/* Without keys, and for keys whose copies have another shape, nothing but x itself can come. */
static void expects_key_entries(dw_decoder *decoder, dw_tensor x)
{
    static const dw_key others[N] = {{70, 0}, {80, 1}};
    size_t without, other, known;
    assert_int_equal(dw_decoder_expect(decoder, NULL, &x, &without), DW_OK);
    assert_int_equal(dw_decoder_expect(decoder, others, &x, &other), DW_OK);
    assert_int_equal(without, other);
    for (int i = 0; i < 2; i++) {
        dw_tensor shape = x;
        shape.t -= i == 0;
        shape.c -= i == 1;
        assert_int_equal(dw_decoder_expect(decoder, keys, &shape, &known), DW_OK);
        assert_int_equal(dw_decoder_expect(decoder, others, &shape, &other), DW_OK);
        assert_int_equal(known, other);
    }
}

/* The decoder expects frames of one length. The encoder never exceeds it, whatever state either end
 * has lost. */
TEST(frames_never_exceed_frame_bytes)
{
    test_pair pair;
    float x[N * T * C], y[N * T * C];
    dw_tensor tx = tensor_of(x), ty = tensor_of(y);
    size_t first, later, len;
    test_pair_open(&pair, "delta:bits=3", N, T, C, DW_F32);
    assert_int_equal(dw_decoder_expect(pair.decoder, keys, &tx, &first), DW_OK);
    fill(x, 1);
    test_pair_encode(&pair, keys, &tx);
    assert_int_equal(pair.len, first);
    assert_int_equal(test_pair_decode(&pair, &ty), DW_OK);
    assert_int_equal(dw_decoder_expect(pair.decoder, keys, &tx, &later), DW_OK);
    assert_true(later < first);
    expects_key_entries(pair.decoder, tx);
    fill(x, 2);
    test_pair_encode(&pair, keys, &tx);
    assert_int_equal(pair.len, later - N * 16); /* there is room for N forgotten keys */
    assert_int_equal(test_pair_decode(&pair, &ty), DW_OK);
    /* The encoder forgets a key, and would now send a longer frame than the decoder expects. */
    assert_int_equal(dw_encoder_forget(pair.encoder, keys[0]), DW_OK);
    assert_int_equal(dw_encoder_forget(pair.encoder, keys[1]), DW_OK);
    dw_encode_options options = {.struct_size = sizeof options, .limit = later};
    fill(x, 3);
    test_pair_encode_with(&pair, keys, &tx, &options);
    assert_true(pair.len <= later);
    assert_true(test_encoder_counters(pair.encoder).stateless_entries > 0);
    assert_int_equal(test_pair_decode(&pair, &ty), DW_OK);
    /* No shorter frame is possible: the error says the length that would be needed, and the state
     * does not change. */
    options.limit = later - N * 16 - 64;
    dw_counters before = test_encoder_counters(pair.encoder);
    assert_int_equal(dw_encode(pair.encoder, keys, &tx, &options, pair.frame, pair.cap, &len),
                     DW_ERR_BUFFER_TOO_SMALL);
    char words[64];
    snprintf(words, sizeof words, "room for %zu", options.limit);
    assert_non_null(strstr(dw_encoder_why(pair.encoder), words));
    dw_counters after = test_encoder_counters(pair.encoder);
    assert_memory_equal(&before, &after, sizeof before);
    options.struct_size = 0;
    assert_int_equal(dw_encode(pair.encoder, keys, &tx, &options, pair.frame, pair.cap, &len),
                     DW_ERR_ARGUMENT);
    test_pair_close(&pair);
}

TEST(entries_are_stateless_where_a_call_says_so)
{
    test_pair pair;
    float x[N * T * C], y[N * T * C];
    dw_tensor tx = tensor_of(x), ty = tensor_of(y);
    dw_encode_options options = {.struct_size = sizeof options, .stateless = 1};
    test_pair_open(&pair, "delta:bits=3", N, T, C, DW_F32);
    fill(x, 1);
    test_pair_refuses(&pair, NULL, &tx, DW_ERR_ARGUMENT, "keys is NULL");
    for (int i = 0; i < 2; i++) {
        test_pair_encode_with(&pair, i ? keys : NULL, &tx, &options);
        assert_int_equal(test_pair_decode(&pair, &ty), DW_OK);
        assert_int_equal(pair.reply_len, 0);
    }
    assert_int_equal(test_encoder_counters(pair.encoder).keys_held, 0);
    assert_int_equal(test_decoder_counters(pair.decoder).stateless_entries, 2 * N);
    test_pair_close(&pair);
    test_pair_open(&pair, "direct:bits=3", N, T, C, DW_F32);
    test_pair_encode(&pair, NULL, &tx);
    assert_int_equal(test_pair_decode(&pair, &ty), DW_OK);
    test_pair_close(&pair);
}

TEST(a_reset_starts_every_key_anew)
{
    test_pair pair;
    float x[N * T * C], y[N * T * C];
    dw_tensor tx = tensor_of(x), ty = tensor_of(y);
    test_pair_open(&pair, "delta:bits=3", N, T, C, DW_F32);
    for (uint64_t i = 0; i < 4; i++) {
        if (i == 2) {
            assert_int_equal(dw_encoder_reset(pair.encoder), DW_OK);
            assert_int_equal(test_encoder_counters(pair.encoder).keys_held, 0);
            assert_int_equal(test_encoder_counters(pair.encoder).state_bytes, 0);
        }
        fill(x, i);
        test_pair_pass(&pair, keys, &tx, &ty);
        test_pair_take_reply(&pair);
    }
    assert_int_equal(test_encoder_counters(pair.encoder).key_entries, 2 * N);
    assert_int_equal(test_encoder_counters(pair.encoder).delta_entries, 2 * N);
    for (int i = 0; i < N; i++) test_pair_in_step(&pair, keys[i]);
    test_pair_close(&pair);
}

/* A frame that does not change prev still advances version and chain, and later frames start from
 * these. */
TEST(frames_after_an_unchanged_sample_heal)
{
    test_pair pair;
    float x[T * C], y[T * C], z[T * C];
    uint8_t frame[512];
    dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, T, C), ty = dw_tensor_3d(y, DW_F32, 1, T, C);
    test_pair_open(&pair, "delta:bits=3,audit=2", 1, T, C, DW_F32);
    test_random random = {3};
    test_fill(&random, x, DW_F32, T * C, 1.0f);
    test_pair_pass(&pair, keys, &tx, &ty);
    memcpy(z, y, sizeof y);
    memset(y, 0, sizeof y);
    size_t len = test_skip_frame(pair.frame, pair.decoder, frame, sizeof frame);
    assert_true(len > 0);
    assert_int_equal(
        dw_decode(pair.decoder, frame, len, &ty, NULL, pair.reply, pair.reply_cap, &pair.reply_len),
        DW_OK);
    assert_memory_equal(y, z, sizeof y);
    dw_reply_info info = {.struct_size = sizeof info};
    dw_reply_entry entry;
    assert_int_equal(dw_reply_read(pair.reply, pair.reply_len, &info, NULL), DW_OK);
    assert_int_equal(info.accepted, 1);
    assert_int_equal(dw_reply_entry_read(pair.reply, pair.reply_len, 0, &entry), DW_OK);
    assert_int_equal(entry.version, 2);
    assert_int_equal(dw_decode(pair.decoder, frame, len, &ty, NULL, NULL, 0, NULL), DW_ERR_STALE);
    test_pair_encode(&pair, keys, &tx); /* a delta to the key frame, which is no longer held */
    assert_int_equal(test_pair_decode(&pair, &ty), DW_ERR_STALE); /* its sequence was used, too */
    test_pair_close(&pair);
}

/* The text of an error names the field, and promises recovery only if recovery will follow. */
TEST(error_sentences_name_what_is_wrong)
{
    test_pair pair;
    float x[N * T * C], y[N * T * C];
    dw_tensor tx = tensor_of(x), ty = tensor_of(y), none = tx;
    size_t len;
    fill(x, 1);
    test_pair_open(&pair, "delta:bits=3,replies=never", N, T, C, DW_F32);
    none.n = 0;
    test_pair_refuses(&pair, keys, &none, DW_ERR_ARGUMENT, "no samples");
    test_pair_refuses(&pair, (dw_key[N]){{1, 0}, {1, 0}}, &tx, DW_ERR_ARGUMENT, "same key");
    assert_int_equal(dw_encode(pair.encoder, keys, &tx, NULL, pair.frame, 100, &len),
                     DW_ERR_BUFFER_TOO_SMALL);
    assert_non_null(strstr(dw_encoder_why(pair.encoder), "room for 100"));
    assert_int_equal(dw_encoder_peek(pair.encoder, keys[0], &none), DW_ERR_ARGUMENT);
    assert_string_equal(dw_encoder_why(pair.encoder), "the key is not held");
    dw_counters unsized = {.struct_size = 0};
    assert_int_equal(dw_encoder_count(pair.encoder, &unsized), DW_ERR_ARGUMENT);
    assert_non_null(strstr(dw_encoder_why(pair.encoder), "dw_counters"));
    test_pair_encode(&pair, keys, &tx);
    test_pair_encode(&pair, keys, &tx);
    assert_int_equal(test_pair_decode(&pair, &ty), DW_ERR_BASE); /* the frame before was lost */
    assert_null(strstr(dw_decoder_why(pair.decoder), "will follow"));
    dw_decoder_destroy(pair.decoder);
    pair.decoder = test_decoder("delta:bits=3,group=32");
    assert_int_equal(test_pair_decode(&pair, &ty), DW_ERR_MISMATCH);
    assert_non_null(strstr(dw_decoder_why(pair.decoder), "group=64"));
    assert_non_null(strstr(dw_decoder_why(pair.decoder), "group=32"));
    test_pair_close(&pair);
}

static void encoders_refuse_null(dw_encoder *e, const dw_tensor *x, uint8_t *frame, size_t *len)
{
    dw_tensor prev;
    REFUSED(dw_encode(NULL, keys, x, NULL, frame, 100, len));
    REFUSED(dw_encode(e, NULL, x, NULL, frame, 100, len));
    REFUSED(dw_encode(e, keys, NULL, NULL, frame, 100, len));
    REFUSED(dw_encode(e, keys, x, NULL, NULL, 100, len));
    REFUSED(dw_encode(e, keys, x, NULL, frame, 100, NULL));
    REFUSED(dw_encoder_resync(NULL, keys, N, frame, 100, len));
    REFUSED(dw_encoder_resync(e, NULL, N, frame, 100, len));
    REFUSED(dw_encoder_resync(e, keys, 0, frame, 100, len));
    REFUSED(dw_encoder_resync(e, keys, N, NULL, 100, len));
    REFUSED(dw_encoder_resync(e, keys, N, frame, 100, NULL));
    REFUSED(dw_encoder_resync(e, (dw_key[]){{99, 0}}, 1, frame, 100, len)); /* it is not held */
    REFUSED(dw_encoder_take_reply(NULL, frame, 100));
    REFUSED(dw_encoder_take_reply(e, NULL, 100));
    REFUSED(dw_encoder_give_back(NULL, frame, 100, NULL));
    REFUSED(dw_encoder_give_back(e, NULL, 100, NULL));
    REFUSED(dw_encoder_forget(NULL, keys[0]));
    REFUSED(dw_encoder_prefetch(NULL, keys, N));
    REFUSED(dw_encoder_prefetch(e, NULL, N));
    REFUSED(dw_encoder_reset(NULL));
    REFUSED(dw_encoder_peek(NULL, keys[0], &prev));
    REFUSED(dw_encoder_peek(e, keys[0], NULL));
    REFUSED(dw_encoder_count(NULL, &(dw_counters){.struct_size = sizeof(dw_counters)}));
    REFUSED(dw_encoder_count(e, NULL));
    REFUSED(dw_encoder_export(NULL, NULL, NULL, NULL));
    REFUSED(dw_encoder_export(e, NULL, NULL, NULL));
    REFUSED(dw_encoder_import(NULL, frame, 100));
    REFUSED(dw_encoder_import(e, NULL, 100));
    assert_string_equal(dw_encoder_why(NULL), "");
    dw_encoder_destroy(NULL);
}

static void decoders_refuse_null(dw_decoder *d, const dw_tensor *y, uint8_t *frame, size_t *len)
{
    dw_tensor prev, no_shape = {0};
    REFUSED(dw_decode(NULL, frame, 100, y, NULL, NULL, 0, NULL));
    REFUSED(dw_decode(d, NULL, 100, y, NULL, NULL, 0, NULL));
    REFUSED(dw_decode(d, frame, 100, NULL, NULL, NULL, 0, NULL));
    REFUSED(dw_decoder_expect(NULL, keys, y, len));
    REFUSED(dw_decoder_expect(d, keys, NULL, len));
    REFUSED(dw_decoder_expect(d, keys, y, NULL));
    REFUSED(dw_decoder_expect(d, keys, &no_shape, len));
    REFUSED(dw_decoder_prefetch(NULL, keys, N));
    REFUSED(dw_decoder_prefetch(d, NULL, N));
    REFUSED(dw_decoder_peek(NULL, keys[0], &prev));
    REFUSED(dw_decoder_peek(d, keys[0], NULL));
    REFUSED(dw_decoder_count(NULL, &(dw_counters){.struct_size = sizeof(dw_counters)}));
    REFUSED(dw_decoder_count(d, NULL));
    REFUSED(dw_decoder_export(NULL, NULL, NULL, NULL));
    REFUSED(dw_decoder_export(d, NULL, NULL, NULL));
    REFUSED(dw_decoder_import(NULL, frame, 100));
    REFUSED(dw_decoder_import(d, NULL, 100));
    assert_string_equal(dw_decoder_why(NULL), "");
    dw_decoder_destroy(NULL);
}

static void readers_refuse_null(const uint8_t *frame, size_t len)
{
    dw_key key;
    dw_entry_info entries[N];
    dw_reply_entry entry;
    uint64_t length;
    REFUSED(dw_frame_length(NULL, len, &length));
    REFUSED(dw_frame_length(frame, len, NULL));
    REFUSED(dw_frame_read(NULL, len, &(dw_frame_info){.struct_size = sizeof(dw_frame_info)}, NULL));
    REFUSED(dw_frame_read(frame, len, NULL, NULL));
    REFUSED(dw_frame_entries(NULL, len, 0, N, entries));
    REFUSED(dw_frame_entries(frame, len, 0, N, NULL));
    REFUSED(dw_frame_entries(frame, len, 1, N, entries));
    REFUSED(dw_frame_entries(frame, len, N + 1, 0, entries));
    REFUSED(dw_frame_keys(NULL, len, N, &key));
    REFUSED(dw_frame_keys(frame, len, N, NULL));
    REFUSED(dw_frame_forgotten(NULL, len, 0, &key));
    REFUSED(dw_frame_forgotten(frame, len, 0, NULL));
    REFUSED(dw_reply_read(NULL, len, &(dw_reply_info){.struct_size = sizeof(dw_reply_info)}, NULL));
    REFUSED(dw_reply_read(frame, len, NULL, NULL));
    REFUSED(dw_reply_entry_read(NULL, len, 0, &entry));
    REFUSED(dw_reply_entry_read(frame, len, 0, NULL));
}

TEST(every_pointer_may_be_null)
{
    test_pair pair;
    float x[N * T * C];
    dw_tensor tx = tensor_of(x);
    size_t len;
    fill(x, 1);
    test_pair_open(&pair, "delta:bits=3", N, T, C, DW_F32);
    test_pair_encode(&pair, keys, &tx);
    readers_refuse_null(pair.frame, pair.len);
    encoders_refuse_null(pair.encoder, &tx, pair.frame, &len);
    decoders_refuse_null(pair.decoder, &tx, pair.frame, &len);
    test_pair_close(&pair);
}

TEST(keys_of_different_shapes_are_not_sent_in_one_frame)
{
    test_pair pair;
    float x[N * T * C];
    size_t len;
    fill(x, 1);
    test_pair_open(&pair, "delta:bits=3", N, T, C, DW_F32);
    for (int i = 0; i < 2; i++) {
        dw_tensor one = dw_tensor_3d(x, DW_F32, 1, T, C);
        test_pair_encode(&pair, &keys[0], &one);
        one.t -= i == 0;
        one.c -= i == 1;
        test_pair_encode(&pair, &keys[1], &one);
        assert_int_equal(dw_encoder_resync(pair.encoder, keys, N, pair.frame, pair.cap, &len),
                         DW_ERR_ARGUMENT);
        assert_string_equal(dw_encoder_why(pair.encoder), "the keys have different shapes");
        assert_int_equal(dw_encoder_prefetch(pair.encoder, NULL, 0), DW_OK);
    }
    test_pair_close(&pair);
}

TEST(reconstructions_that_cannot_be_written_are_refused)
{
    test_pair pair;
    float x[N * T * C], y[N * T * C];
    dw_tensor tx = tensor_of(x);
    const struct {
        dw_tensor view;
        dw_status status;
    } wrong[] = {{{NULL, DW_F32, N, T, C, T * C, C}, DW_ERR_ARGUMENT},
                 {{(char *)y + 2, DW_F32, N, T, C, T * C, C}, DW_ERR_ARGUMENT},
                 {{y, DW_F32, N, T, C, 0, C}, DW_ERR_ARGUMENT},
                 {{y, DW_F32, 1, T, C, T * C, C}, DW_ERR_SHAPE},
                 {{y, DW_F32, N, 1, C, T * C, C}, DW_ERR_SHAPE},
                 {{y, DW_F32, N, T, 1, T * C, C}, DW_ERR_SHAPE}};
    size_t len;
    fill(x, 1);
    test_pair_open(&pair, "delta:bits=3", N, T, C, DW_F32);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        dw_encode_options options = {.struct_size = sizeof options,
                                     .reconstruction = &wrong[i].view};
        assert_int_equal(dw_encode(pair.encoder, keys, &tx, &options, pair.frame, pair.cap, &len),
                         wrong[i].status);
        assert_non_null(strstr(dw_encoder_why(pair.encoder), "the reconstruction"));
    }
    assert_int_equal(test_encoder_counters(pair.encoder).keys_held, 0);
    test_pair_close(&pair);
}

typedef struct saved_keys {
    uint8_t bytes[4][2048];
    size_t lens[4];
    int n;
} saved_keys;

static dw_status save_any(void *context, dw_key key, const void *saved, size_t len)
{
    saved_keys *all = context;
    (void)key;
    assert_true(len <= sizeof all->bytes[0]);
    memcpy(all->bytes[all->n], saved, len);
    all->lens[all->n++] = len;
    return DW_OK;
}

static dw_status save_one(void *context, dw_key key, const void *saved, size_t len)
{
    assert_true(key.sample == keys[0].sample || key.sample == keys[1].sample);
    return save_any(context, key, saved, len);
}

static void nothing_is_imported(test_pair *pair, const saved_keys *out)
{
    uint8_t bad[2048];
    for (size_t at = 0; at < out->lens[0]; at++) { /* the checksum covers every byte */
        memcpy(bad, out->bytes[0], out->lens[0]);
        bad[at] ^= 0x10;
        assert_true(dw_encoder_import(pair->encoder, bad, out->lens[0]) < 0);
    }
    assert_int_equal(dw_encoder_import(pair->encoder, out->bytes[0], out->lens[0] - 1),
                     DW_ERR_FORMAT);
    assert_int_equal(dw_encoder_import(pair->encoder, out->bytes[0], 12), DW_ERR_FORMAT);
    assert_int_equal(dw_decoder_import(pair->decoder, out->bytes[0], out->lens[0]),
                     DW_ERR_MISMATCH);
    assert_int_equal(test_encoder_counters(pair->encoder).keys_held, 0);
    assert_int_equal(test_decoder_counters(pair->decoder).keys_held, 0);
}

/* The states of both ends are saved and loaded into new ends. The next frames are deltas, with the
 * same bytes as if there had been no interruption. */
TEST(saved_ends_continue_where_they_stopped)
{
    test_pair pair, other;
    float x[N * T * C], y[N * T * C], z[N * T * C];
    dw_tensor tx = tensor_of(x), ty = tensor_of(y), tz = tensor_of(z);
    saved_keys out = {.n = 0}, in = {.n = 0};
    size_t len;
    test_pair_open(&pair, "delta:bits=3,audit=2,prev=bf16", N, T, C, DW_F32);
    for (uint64_t i = 0; i < 3; i++) {
        fill(x, i);
        test_pair_pass(&pair, keys, &tx, &ty);
        test_pair_take_reply(&pair);
    }
    assert_int_equal(dw_encoder_export(pair.encoder, NULL, save_one, &out), DW_OK);
    assert_int_equal(dw_decoder_export(pair.decoder, NULL, save_one, &in), DW_OK);
    assert_true(out.n == 2 && in.n == 2);
    assert_int_equal(test_export_encoder(pair.encoder, keys[0], NULL, 0, &len), DW_OK);
    assert_int_equal(len, out.lens[0]);
    assert_int_equal(test_export_encoder(pair.encoder, (dw_key){99, 0}, z, sizeof z, &len),
                     DW_ERR_ARGUMENT);
    test_pair_open(&other, "delta:bits=3,audit=2,prev=bf16", N, T, C, DW_F32);
    nothing_is_imported(&other, &out);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(dw_encoder_import(other.encoder, out.bytes[i], out.lens[i]), DW_OK);
        assert_int_equal(dw_decoder_import(other.decoder, in.bytes[i], in.lens[i]), DW_OK);
    }
    for (uint64_t i = 3; i < 6; i++) {
        fill(x, i);
        test_pair_encode(&pair, keys, &tx);
        test_pair_encode(&other, keys, &tx);
        assert_int_equal(pair.len, other.len);
        assert_memory_equal(pair.frame, other.frame, pair.len);
        assert_int_equal(test_pair_decode(&pair, &ty), DW_OK);
        assert_int_equal(test_pair_decode(&other, &tz), DW_OK);
        assert_memory_equal(y, z, sizeof y);
        test_pair_take_reply(&pair);
        test_pair_take_reply(&other);
    }
    assert_int_equal(test_encoder_counters(other.encoder).delta_entries, 3 * N);
    fill(x, 9);
    test_pair_renew_encoder(&other); /* one with an incarnation of its own refuses it */
    test_pair_encode(&other, keys, &tx);
    assert_int_equal(dw_encoder_import(other.encoder, out.bytes[0], out.lens[0]), DW_ERR_MISMATCH);
    test_pair_close(&pair);
    test_pair_close(&other);
}

/* Everything that is wrong with a saved state whose checksums are right. */
static const char *const forgeries[] = {
    "another version",   "neither by an encoder", "an unknown dtype",      "a reserved byte",
    "an extent is zero", "names no version",      "names no incarnation",  "so many frames",
    "a residual is f32", "digest does not fit",   "length does not match", "stands for no value",
    "its rate needs"};

/* Imports a state in which one byte of header or values has another value, or a field is 0, under
 * checksums that match. Adds what is said about it to *said. */
static void forge(test_pair *pair, const uint8_t *saved, size_t len, size_t at, unsigned *said)
{
    static const uint8_t values[] = {0, 1, 2, 4, 0x7f, 0xff};
    uint8_t bad[2048];
    for (size_t v = 0; v < sizeof values; v++) {
        memcpy(bad, saved, len);
        bad[at] = values[v];
        if (values[v] == 0 && at % 8 == 0) memset(bad + at, 0, 8); /* a whole field */
        if (at >= 96) dw_put(bad + 80, dw_digest_bytes(bad + 96, len - 96), 8);
        dw_put(bad + 88, dw_digest_bytes(bad, 88), 8);
        if (!dw_encoder_import(pair->encoder, bad, len)) continue;
        for (unsigned i = 0; i < sizeof forgeries / sizeof *forgeries; i++)
            if (strstr(dw_encoder_why(pair->encoder), forgeries[i])) *said |= 1u << i;
    }
}

TEST(forged_states_with_right_checksums_are_refused)
{
    static const char *const configs[] = {
        "delta:bits=3,audit=2,prev=8,replies=never", "direct:bits=2,feedback=ef,replies=never",
        "direct:form=step,rounding=dither,replies=never", "direct:form=step,entropy=rans,rate=3"};
    unsigned said = 0;
    for (int c = 0; c < 4; c++) {
        test_pair pair;
        float x[N * T * C];
        dw_tensor tx = tensor_of(x);
        saved_keys out = {.n = 0};
        test_pair_open(&pair, configs[c], N, T, C, DW_F32);
        for (uint64_t i = 0; i < 3; i++) {
            fill(x, i);
            test_pair_encode(&pair, keys, &tx);
        }
        assert_int_equal(dw_encoder_export(pair.encoder, NULL, save_any, &out), DW_OK);
        assert_true(out.n > 0);
        for (size_t at = 4; at < 112 && at < out.lens[0]; at++)
            forge(&pair, out.bytes[0], out.lens[0], at, &said);
        test_pair_close(&pair);
    }
    assert_int_equal(said, (1u << sizeof forgeries / sizeof *forgeries) - 1);
}

/* The other bytes are the key, the bytes that it takes of the quota, and the frame's number. */
TEST(a_saved_state_of_a_forgotten_key_is_refused_if_any_other_byte_differs)
{
    test_pair pair;
    float x[N * T * C];
    dw_tensor tx = tensor_of(x);
    saved_keys out = {.n = 0};
    fill(x, 1);
    test_pair_open(&pair, "delta:bits=3,prev=f32,quota_bytes=2000", N, T, C, DW_F32);
    test_pair_encode(&pair, keys, &tx);
    for (int i = 0; i < N; i++) dw_encoder_forget(pair.encoder, keys[i]);
    assert_int_equal(dw_encoder_export(pair.encoder, NULL, save_one, &out), DW_OK);
    assert_int_equal(out.n, N);
    assert_int_equal(dw_decoder_import(pair.decoder, out.bytes[0], out.lens[0]), DW_ERR_MISMATCH);
    for (size_t at = 4; at < 88; at++) {
        uint8_t bad[96];
        memcpy(bad, out.bytes[0], sizeof bad);
        bad[at] ^= 2;
        dw_put(bad + 88, dw_digest_bytes(bad, 88), 8);
        dw_status status = dw_encoder_import(pair.encoder, bad, sizeof bad);
        /* No other key, and not so many bytes more, have room in the quota. */
        bool is_too_much = (at >= 8 && at < 20) || (at >= 26 && at < 32);
        bool is_right = at == 24 || at == 25 || (at >= 48 && at < 56);
        if (is_right || is_too_much)
            assert_int_equal(status, is_right ? DW_OK : DW_ERR_LIMIT);
        else
            assert_true(status == DW_ERR_FORMAT || status == DW_ERR_VERSION ||
                        status == DW_ERR_MISMATCH || status == DW_ERR_CORRUPT);
    }
    test_pair_close(&pair);
}

TEST(states_past_the_quota_are_not_loaded)
{
    test_pair pair, small;
    float x[N * T * C];
    dw_tensor tx = tensor_of(x);
    saved_keys out = {.n = 0};
    fill(x, 1);
    test_pair_open(&pair, "delta:bits=3,prev=f32", N, T, C, DW_F32);
    test_pair_encode(&pair, keys, &tx);
    assert_int_equal(dw_encoder_export(pair.encoder, NULL, save_one, &out), DW_OK);
    test_pair_open(&small, "delta:bits=3,prev=f32,quota_bytes=1000", N, T, C, DW_F32);
    assert_int_equal(dw_encoder_import(small.encoder, out.bytes[0], out.lens[0]), DW_OK);
    assert_int_equal(dw_encoder_import(small.encoder, out.bytes[1], out.lens[1]), DW_ERR_LIMIT);
    assert_non_null(strstr(dw_encoder_why(small.encoder), "quota_bytes"));
    assert_int_equal(test_encoder_counters(small.encoder).keys_held, 1);
    test_pair_close(&pair);
    test_pair_close(&small);
}

/* States whose chain is right and whose shape or dtype is not: whoever wrote them, the first delta
 * is refused, and a key entry follows. */
TEST(saved_states_of_another_shape_heal)
{
    for (int wrong_dtype = 0; wrong_dtype < 2; wrong_dtype++) {
        test_pair pair;
        float x[N * T * C], y[N * T * C];
        dw_tensor tx = tensor_of(x), ty = tensor_of(y);
        saved_keys in = {.n = 0};
        test_pair_open(&pair, "delta:bits=3,prev=f32,audit=255", N, T, C, DW_F32);
        fill(x, 1);
        test_pair_pass(&pair, keys, &tx, &ty);
        test_pair_take_reply(&pair);
        assert_int_equal(dw_decoder_export(pair.decoder, NULL, save_one, &in), DW_OK);
        test_pair_renew_decoder(&pair);
        for (int i = 0; i < 2; i++) {
            uint8_t *saved = in.bytes[i];
            if (wrong_dtype) {
                in.lens[i] = 96 + T * C * sizeof(uint16_t);
                saved[7] = DW_BF16;
                dw_put(saved + 80, dw_digest_bytes(saved + 96, in.lens[i] - 96), 8);
            } else {
                dw_put(saved + 24, C, 4);
                dw_put(saved + 28, T, 4);
            }
            dw_put(saved + 88, dw_digest_bytes(saved, 88), 8);
            assert_int_equal(dw_decoder_import(pair.decoder, saved, in.lens[i]), DW_OK);
        }
        test_pair_encode(&pair, keys, &tx);
        assert_int_equal(test_pair_decode(&pair, &ty), DW_ERR_BASE);
        test_pair_take_reply(&pair);
        test_pair_pass(&pair, keys, &tx, &ty);
        test_pair_take_reply(&pair);
        test_pair_in_step(&pair, keys[0]);
        test_pair_pass(&pair, keys, &tx, &ty);
        assert_int_equal(test_encoder_counters(pair.encoder).key_entries, 2 * N);
        test_pair_close(&pair);
    }
}

RUN_TESTS(NULL, NULL)
