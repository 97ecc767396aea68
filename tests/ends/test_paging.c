/* SPDX-License-Identifier: Apache-2.0
 * test_paging.c - encoders and decoders whose copies lie in a backing store: the same bytes,
 * tensors and errors as without one, and no more memory than was allowed. */
#include "support/backing.h"

enum {
    KEYS = 12,
    TOKENS = 3,
    CHANNELS = 64,
    VALUES = TOKENS * CHANNELS,
    AT_ONCE = 3,
    VISITS = 200
};

typedef struct rig {
    test_pair plain, paged; /* without and with a backing store */
    test_backing backing;
    test_random random;
    float x[AT_ONCE * VALUES], y[2][AT_ONCE * VALUES];
    float base[KEYS][VALUES];
} rig;

static void open_rig(rig *r, const char *config, uint64_t cache_bytes)
{
    memset(r, 0, sizeof *r);
    r->random.state = test_seed();
    char text[DW_CONFIG_TEXT_BYTES];
    snprintf(text, sizeof text, "%s,incarnation=9", config);
    test_pair_open(&r->plain, text, AT_ONCE, TOKENS, CHANNELS, DW_F32);
    test_pair_open(&r->paged, text, AT_ONCE, TOKENS, CHANNELS, DW_F32);
    test_backing_open(&r->backing, cache_bytes);
    test_pair_page(&r->paged, &r->backing);
    for (int k = 0; k < KEYS; k++) test_fill(&r->random, r->base[k], DW_F32, VALUES, 1.0f);
}

static void close_rig(rig *r)
{
    test_pair_close(&r->plain);
    test_pair_close(&r->paged);
    assert_int_equal(r->backing.n, 0); /* every record was released */
}

/* Draws different keys, and for each a tensor that is near its last one. */
static dw_tensor draw(rig *r, dw_key *keys)
{
    uint64_t first = test_next(&r->random) % KEYS;
    for (uint64_t i = 0; i < AT_ONCE; i++) {
        uint64_t k = (first + i * 5) % KEYS;
        keys[i] = (dw_key){100 + k, 0};
        for (int v = 0; v < VALUES; v++) {
            r->base[k][v] += 0.05f * test_normal(&r->random);
            r->x[i * VALUES + (uint64_t)v] = r->base[k][v];
        }
    }
    return dw_tensor_3d(r->x, DW_F32, AT_ONCE, TOKENS, CHANNELS);
}

static dw_tensor output(rig *r, int which)
{
    return dw_tensor_3d(r->y[which], DW_F32, AT_ONCE, TOKENS, CHANNELS);
}

static void expect_same_frames(const rig *r)
{
    assert_int_equal(r->plain.len, r->paged.len);
    assert_memory_equal(r->plain.frame, r->paged.frame, r->plain.len);
}

static void expect_same_replies(const rig *r)
{
    assert_int_equal(r->plain.reply_len, r->paged.reply_len);
    assert_memory_equal(r->plain.reply, r->paged.reply, r->plain.reply_len);
}

/* Memory for copies: the cache, or what one call needs, whichever is more; apart from the records
 * of keys, and the pool's rounding. */
static void expect_little_memory(const rig *r, uint64_t copy_bytes)
{
    uint64_t cache = r->backing.calls.cache_bytes, call = (uint64_t)3 * AT_ONCE * copy_bytes,
             most = (cache > call ? cache : call) * 17 / 16 + KEYS * 512;
    assert_true(test_encoder_counters(r->paged.encoder).state_bytes <= most);
    assert_true(test_decoder_counters(r->paged.decoder).state_bytes <= most);
}

/* Frames are lost, keys forgotten, and others sent again, at both pairs alike. */
static void visit(rig *r, bool replies)
{
    dw_key keys[AT_ONCE];
    dw_tensor x = draw(r, keys), plain = output(r, 0), paged = output(r, 1);
    if (test_next(&r->random) % 3 == 0)
        assert_int_equal(dw_encoder_prefetch(r->paged.encoder, keys, AT_ONCE), DW_OK);
    test_pair_encode(&r->plain, keys, &x);
    test_pair_encode(&r->paged, keys, &x);
    expect_same_frames(r);
    if (replies && test_next(&r->random) % 8 == 0) return; /* the frame is lost */
    if (test_next(&r->random) % 3 == 0)
        assert_int_equal(dw_decoder_prefetch(r->paged.decoder, keys, AT_ONCE), DW_OK);
    assert_int_equal(test_pair_decode(&r->plain, &plain), test_pair_decode(&r->paged, &paged));
    assert_memory_equal(r->y[0], r->y[1], sizeof r->y[0]);
    expect_same_replies(r);
    if (!replies || test_next(&r->random) % 8 == 0) return; /* the reply is lost */
    test_pair_take_reply(&r->plain);
    test_pair_take_reply(&r->paged);
    if (test_next(&r->random) % 16 == 0) {
        assert_int_equal(dw_encoder_forget(r->plain.encoder, keys[0]), DW_OK);
        assert_int_equal(dw_encoder_forget(r->paged.encoder, keys[0]), DW_OK);
    }
}

static void run(const char *config, uint64_t copy_bytes, bool replies)
{
    for (uint64_t copies = 0; copies <= 2 * KEYS; copies += KEYS) { /* in the cache */
        rig r;
        open_rig(&r, config, copies * copy_bytes);
        for (int i = 0; i < VISITS; i++) {
            visit(&r, replies);
            expect_little_memory(&r, copy_bytes);
        }
        if (!copies) assert_true(r.backing.reads > VISITS && r.backing.prefetched > VISITS);
        close_rig(&r);
    }
}

TEST(changes_have_the_same_bytes_with_a_backing_store)
{
    run("delta:bits=4,prev=f32", 4 * VALUES, true);
    run("delta:bits=2,prev=bf16,replies=never", 2 * VALUES, false);
    run("delta:bits=4,prev=8", 17 * VALUES / 16, true);
    run("delta:form=step,step=0.5,rounding=dither,entropy=rans", 2 * VALUES, true);
}

TEST(residuals_have_the_same_bytes_with_a_backing_store)
{
    run("direct:bits=2,feedback=ef", 4 * VALUES, false);
    run("lowrank:rank=2,feedback=ef", 4 * VALUES + 4 * 2 * CHANNELS, false);
}

/* A frame that carries prev itself, saved states, and frames that are given back and undone. */
TEST(other_calls_read_what_they_need)
{
    rig r;
    dw_key keys[AT_ONCE];
    open_rig(&r, "delta:bits=4,prev=f32,key=raw", 0);
    for (int i = 0; i < 40; i++) {
        visit(&r, true);
        dw_tensor x = draw(&r, keys);
        test_pair_encode(&r.plain, keys, &x);
        test_pair_encode(&r.paged, keys, &x);
        assert_int_equal(dw_encoder_resync(r.plain.encoder, keys, AT_ONCE, r.plain.frame,
                                           r.plain.cap, &r.plain.len),
                         DW_OK);
        assert_int_equal(dw_encoder_resync(r.paged.encoder, keys, AT_ONCE, r.paged.frame,
                                           r.paged.cap, &r.paged.len),
                         DW_OK);
        expect_same_frames(&r);
        for (uint64_t k = 0; k < KEYS; k++) {
            uint8_t saved[2][4 * VALUES + 256];
            size_t len[2] = {0, 0};
            dw_key key = {100 + k, 0};
            dw_status status =
                test_export_encoder(r.plain.encoder, key, saved[0], sizeof saved[0], &len[0]);
            assert_int_equal(
                test_export_encoder(r.paged.encoder, key, saved[1], sizeof saved[1], &len[1]),
                status);
            assert_int_equal(len[0], len[1]);
            assert_memory_equal(saved[0], saved[1], len[0]);
            if (!status)
                assert_int_equal(dw_encoder_import(r.paged.encoder, saved[1], len[1]), DW_OK);
            if (!status)
                assert_int_equal(dw_encoder_import(r.plain.encoder, saved[0], len[0]), DW_OK);
        }
    }
    close_rig(&r);
}

TEST(frames_are_given_back_and_undone)
{
    rig r;
    dw_key keys[AT_ONCE];
    open_rig(&r, "direct:bits=2,feedback=ef", 0);
    for (int i = 0; i < 60; i++) {
        dw_tensor x = draw(&r, keys);
        test_pair_encode(&r.plain, keys, &x);
        test_pair_encode(&r.paged, keys, &x);
        expect_same_frames(&r);
        const dw_tensor *undone = i % 2 ? &x : NULL;
        for (int which = 0; which < 2 && i % 3 == 0; which++) {
            test_pair *pair = which ? &r.paged : &r.plain;
            assert_int_equal(dw_encoder_give_back(pair->encoder, pair->frame, pair->len, undone),
                             DW_OK);
        }
    }
    close_rig(&r);
}

/* The disk is full: the call says so, and the next one goes on as if it had not been made. */
TEST(a_write_that_fails_changes_nothing)
{
    rig r;
    dw_key keys[AT_ONCE];
    int refused = 0, full = 0, numberless = 0;
    open_rig(&r, "delta:bits=4,prev=f32", 0);
    for (int i = 0; i < VISITS; i++) {
        dw_tensor x = draw(&r, keys), plain = output(&r, 0), paged = output(&r, 1);
        test_pair_encode(&r.plain, keys, &x);
        r.backing.writes_fail = 2;
        dw_status status;
        while ((status = dw_encode(r.paged.encoder, keys, &x, NULL, r.paged.frame, r.paged.cap,
                                   &r.paged.len)) == DW_ERR_IO) {
            full += strcmp(dw_encoder_why(r.paged.encoder), test_backing_full) == 0;
            numberless += strstr(dw_encoder_why(r.paged.encoder), "without a number") != NULL;
            refused++;
        }
        assert_int_equal(status, DW_OK);
        /* The sentence is that of the last error. */
        const char *said = dw_encoder_why(r.paged.encoder);
        if (refused) assert_true(*said && strcmp(said, test_backing_read_says) != 0);
        expect_same_frames(&r);
        assert_int_equal(test_pair_decode(&r.plain, &plain), DW_OK);
        memset(r.y[1], 0x5a, sizeof r.y[1]);
        while ((status = test_pair_decode(&r.paged, &paged)) == DW_ERR_IO) {
            full += strcmp(dw_decoder_why(r.paged.decoder), test_backing_full) == 0;
            numberless += strstr(dw_decoder_why(r.paged.decoder), "without a number") != NULL;
            for (size_t b = 0; b < sizeof r.y[1]; b++)
                assert_int_equal(((uint8_t *)r.y[1])[b], 0x5a);
            refused++;
        }
        assert_int_equal(status, DW_OK);
        assert_memory_equal(r.y[0], r.y[1], sizeof r.y[0]);
        expect_same_replies(&r);
        test_pair_take_reply(&r.plain);
        test_pair_take_reply(&r.paged);
    }
    assert_true(full > VISITS / 8 && numberless > VISITS / 8);
    assert_int_equal(full + numberless, refused);
    close_rig(&r);
}

/* The call fails, no copy counts as lost, and the same call is made again. */
TEST(a_store_that_has_no_memory_loses_nothing)
{
    rig r;
    dw_key keys[AT_ONCE];
    int refused = 0;
    open_rig(&r, "delta:bits=4,prev=f32", 0);
    r.backing.has_no_memory = true;
    for (int i = 0; i < VISITS; i++) {
        dw_tensor x = draw(&r, keys), y = output(&r, 0);
        dw_status status;
        test_pair_pass(&r.plain, keys, &x, &y);
        assert_int_equal(dw_encoder_prefetch(r.plain.encoder, keys, AT_ONCE), DW_OK);
        assert_int_equal(dw_encoder_prefetch(r.paged.encoder, keys, AT_ONCE), DW_OK);
        r.backing.writes_fail = i % 2 ? 4 : 0;
        r.backing.reads_fail = i % 2 ? 0 : 4;
        while ((status = dw_encode(r.paged.encoder, keys, &x, NULL, r.paged.frame, r.paged.cap,
                                   &r.paged.len)) == DW_ERR_NO_MEMORY)
            refused++;
        r.backing.writes_fail = r.backing.reads_fail = 0;
        assert_int_equal(status, DW_OK);
        expect_same_frames(&r);
        assert_int_equal(test_pair_decode(&r.paged, &y), DW_OK);
        test_pair_take_reply(&r.plain);
        test_pair_take_reply(&r.paged);
    }
    assert_true(refused > VISITS / 4);
    assert_int_equal(test_encoder_counters(r.paged.encoder).lost_copies, 0);
    close_rig(&r);
}

/* What was lost is counted; an encoder sends x itself, a decoder asks for it. */
TEST(a_copy_that_cannot_be_read_is_sent_again)
{
    for (int decoder = 0; decoder < 2; decoder++) {
        rig r;
        dw_key keys[AT_ONCE];
        open_rig(&r, "delta:bits=4,prev=f32", 0);
        for (int i = 0; i < VISITS; i++) {
            dw_tensor x = draw(&r, keys), y = output(&r, 1);
            r.backing.reads_fail = decoder ? 0 : 10;
            test_pair_encode(&r.paged, keys, &x);
            r.backing.reads_fail = decoder ? 10 : 0;
            dw_status status = test_pair_decode(&r.paged, &y);
            test_pair_take_reply(&r.paged);
            r.backing.reads_fail = 0;
            if (decoder && status == DW_ERR_BASE) { /* once */
                test_pair_encode(&r.paged, keys, &x);
                status = test_pair_decode(&r.paged, &y);
                test_pair_take_reply(&r.paged);
            }
            assert_int_equal(status, DW_OK);
            for (int k = 0; k < AT_ONCE; k++) test_pair_in_step(&r.paged, keys[k]);
        }
        dw_counters encoder = test_encoder_counters(r.paged.encoder);
        uint64_t lost = encoder.lost_copies + test_decoder_counters(r.paged.decoder).lost_copies;
        assert_int_equal(lost, r.backing.lost);
        assert_true(lost > 10);
        assert_true(encoder.key_entries >= KEYS + lost);
        close_rig(&r);
    }
}

TEST(imported_copies_are_paged_out_and_lost_ones_are_exported_as_forgotten)
{
    rig r;
    open_rig(&r, "delta:bits=4,prev=f32", 0);
    for (int i = 0; i < 30; i++) {
        dw_key keys[AT_ONCE];
        dw_tensor x = draw(&r, keys);
        test_pair_encode(&r.plain, keys, &x);
    }
    assert_int_equal(dw_encoder_export(r.plain.encoder, NULL, test_import_encoder, r.paged.encoder),
                     DW_OK);
    assert_int_equal(test_encoder_counters(r.paged.encoder).keys_held, KEYS);
    assert_int_equal(r.backing.n, KEYS - 1); /* there is room for none beside the last one */
    /* Those that cannot be read are saved as forgotten, which the next frames announce. */
    dw_frame_info info = {.struct_size = sizeof info};
    static const dw_key others[AT_ONCE] = {{1, 0}, {2, 0}, {3, 0}};
    dw_tensor x = dw_tensor_3d(r.x, DW_F32, AT_ONCE, TOKENS, CHANNELS);
    r.backing.reads_fail = 1;
    test_pair_renew_encoder(&r.plain);
    assert_int_equal(dw_encoder_export(r.paged.encoder, NULL, test_import_encoder, r.plain.encoder),
                     DW_OK);
    r.backing.reads_fail = 0;
    uint64_t lost = test_encoder_counters(r.paged.encoder).lost_copies, announced = 0;
    assert_true(lost >= KEYS - 1);
    for (int i = 0; i < KEYS; i++) {
        test_pair_encode(&r.plain, others, &x);
        assert_int_equal(dw_frame_read(r.plain.frame, r.plain.len, &info, NULL), DW_OK);
        announced += info.n_forgotten;
    }
    assert_int_equal(announced, lost);
    close_rig(&r);
}

/* A decoder that has lost a copy while it was asked for it does not take an older one. */
TEST(a_lost_copy_is_not_brought_back_by_an_old_frame)
{
    rig r;
    dw_tensor prev;
    dw_key keys[AT_ONCE], others[AT_ONCE] = {{1, 0}, {2, 0}, {3, 0}};
    open_rig(&r, "delta:bits=4,prev=f32", 0);
    dw_tensor x = draw(&r, keys), y = output(&r, 1);
    test_pair_pass(&r.paged, keys, &x, &y);
    size_t len = r.paged.len;
    uint8_t *first = malloc(len);
    memcpy(first, r.paged.frame, len);
    test_pair_pass(&r.paged, others, &x, &y);
    r.backing.reads_fail = 1;
    for (int k = 0; k < AT_ONCE; k++)
        assert_int_equal(dw_decoder_peek(r.paged.decoder, keys[k], &prev), DW_ERR_ARGUMENT);
    assert_int_equal(
        dw_encoder_resync(r.paged.encoder, keys, AT_ONCE, r.paged.frame, r.paged.cap, &r.paged.len),
        DW_ERR_ARGUMENT);
    assert_non_null(strstr(dw_encoder_why(r.paged.encoder), "lost in the backing store"));
    r.backing.reads_fail = 0;
    memcpy(r.paged.frame, first, r.paged.len = len);
    free(first);
    assert_int_equal(test_pair_decode(&r.paged, &y), DW_ERR_STALE);
    close_rig(&r);
}

TEST(hosts_that_cannot_be_used_are_refused)
{
    static const dw_backing lack[] = {
        {.read = test_backing_read, .release = test_backing_release},
        {.write = test_backing_write, .release = test_backing_release},
        {.write = test_backing_write, .read = test_backing_read}};
    dw_host wrong[6] = {{.struct_size = sizeof wrong[0], .backing = &lack[0]},
                        {.struct_size = sizeof wrong[0], .backing = &lack[1]},
                        {.struct_size = sizeof wrong[0], .backing = &lack[2]},
                        {.struct_size = sizeof wrong[0], .allocator = test_allocator_hooks(NULL)},
                        {.struct_size = sizeof wrong[0], .place = DW_CUDA_DEVICE},
                        {.struct_size = 0}};
    static const char *const says[] = {"host.backing", "host.backing",
                                       "host.backing", "one of its two functions",
                                       "cuda is NULL", "dw_host"};
    dw_config config;
    assert_int_equal(dw_config_parse(&config, "delta:bits=4", NULL), DW_OK);
    wrong[3].allocator.release = NULL;
    for (int i = 0; i < 6; i++) {
        dw_encoder *encoder;
        dw_decoder *decoder;
        dw_why why;
        assert_int_equal(dw_encoder_create(&encoder, &config, &wrong[i], &why), DW_ERR_ARGUMENT);
        assert_non_null(strstr(why.text, says[i]));
        assert_int_equal(dw_decoder_create(&decoder, &config, &wrong[i], &why), DW_ERR_ARGUMENT);
        assert_non_null(strstr(why.text, says[i]));
        assert_true(!encoder && !decoder);
    }
}

RUN_TESTS(NULL, NULL)
