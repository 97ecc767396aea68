/* SPDX-License-Identifier: Apache-2.0
 * test_cuda_misuse.c - wrong arguments and hostile frames are refused, without a change of state
 * and without reading outside the frame. */
#include "../../cuda/device.h"
#include "base/held_keys.h"
#include "flight.h"
#include "support/profiles.h"
#include "support/seal.h"
#include "wire/frame.h"

enum { T = 3, C = 64 };

static void ends_are_not_created(const rig *r)
{
    dw_encoder *encoder;
    dw_decoder *decoder;
    REFUSED(dw_encoder_create(NULL, &r->config, RIG_HOST(r->cuda, DW_CUDA_DEVICE), NULL));
    REFUSED(dw_encoder_create(&encoder, NULL, RIG_HOST(r->cuda, DW_CUDA_DEVICE), NULL));
    REFUSED(dw_encoder_create(&encoder, &r->config, RIG_HOST(NULL, DW_CUDA_DEVICE), NULL));
    REFUSED(dw_encoder_create(&encoder, &r->config, RIG_HOST(r->cuda, (dw_cuda_place)7), NULL));
    assert_null(encoder);
    REFUSED(dw_decoder_create(NULL, &r->config, RIG_HOST(r->cuda, DW_CUDA_DEVICE), NULL));
    REFUSED(dw_decoder_create(&decoder, NULL, RIG_HOST(r->cuda, DW_CUDA_DEVICE), NULL));
    REFUSED(dw_decoder_create(&decoder, &r->config, RIG_HOST(NULL, DW_CUDA_DEVICE), NULL));
    assert_null(decoder);
}

static void nothing_is_encoded(const rig *r, const dw_tensor *x)
{
    dw_key keys[2] = {{1, 0}, {2, 0}};
    dw_tensor nowhere = dw_tensor_3d(NULL, DW_F32, 2, T, C);
    dw_encode_ticket *out = NULL;
    uint8_t *frame = r->device_frame;
    size_t len, head_len;
    REFUSED(test_encode_async(NULL, keys, x, frame, r->cap, NULL, &out));
    REFUSED(test_encode_async(r->encoder, NULL, x, frame, r->cap, NULL, &out));
    REFUSED(test_encode_async(r->encoder, keys, NULL, frame, r->cap, NULL, &out));
    REFUSED(test_encode_async(r->encoder, keys, &nowhere, frame, r->cap, NULL, &out));
    REFUSED(test_encode_async(r->encoder, keys, x, NULL, r->cap, NULL, &out));
    REFUSED(test_encode_async(r->encoder, keys, x, frame + 8, r->cap, NULL, &out));
    assert_null(out);
    REFUSED(dw_encode_async(NULL, 1, NULL));
    REFUSED(dw_encode_async(&(dw_encode_item){0}, 0, NULL));
    REFUSED(dw_encode_async(&(dw_encode_item){0}, 1, NULL));
    REFUSED(dw_encode_again(NULL, keys));
    REFUSED(dw_encode_finish(NULL, r->head, r->head_cap, &head_len, &len));
    REFUSED(dw_encode_cancel(NULL));
}

static void nothing_is_decoded(rig *r, const dw_tensor *y)
{
    dw_decode_ticket *in = NULL;
    uint8_t *head = r->frame, *body = r->device_frame;
    REFUSED(test_decode_async(NULL, head, 80, body, 80, y, NULL, &in));
    REFUSED(test_decode_async(r->decoder, NULL, 80, body, 80, y, NULL, &in));
    REFUSED(test_decode_async(r->decoder, head, 80, NULL, 80, y, NULL, &in));
    REFUSED(test_decode_async(r->decoder, head, 80, body + 1, 80, y, NULL, &in));
    REFUSED(test_decode_async(r->decoder, head, 80, body, 80, NULL, NULL, &in));
    assert_null(in);
    REFUSED(dw_decode_async(NULL, 1, NULL));
    REFUSED(dw_decode_async(&(dw_decode_item){0}, 0, NULL));
    REFUSED(dw_decode_async(&(dw_decode_item){0}, 1, NULL));
    REFUSED(dw_decode_again(NULL, head, 80, 80));
    REFUSED(dw_decode_finish(NULL, r->reply, r->reply_cap, &r->reply_len));
    REFUSED(dw_decode_cancel(NULL));
}

TEST(every_pointer_may_be_null)
{
    rig r;
    rig_open(&r, rig_open_cuda(), "delta:bits=4", 2, T, C, DW_CUDA_DEVICE);
    dw_tensor x = dw_tensor_3d(r.device_x, DW_F32, 2, T, C);
    REFUSED(dw_cuda_open(NULL, 0, NULL));
    dw_cuda_close(NULL);
    ends_are_not_created(&r);
    nothing_is_encoded(&r, &x);
    nothing_is_decoded(&r, &x);
    assert_int_equal(fake_cuda_get()->launches + fake_cuda_get()->copies, 0);
    rig_end(&r);
}

/* Tensors with impossible shapes, or that must not be written: nothing is enqueued for them. */
TEST(bad_views_are_refused)
{
    dw_key keys[2] = {{1, 0}, {2, 0}};
    dw_encode_ticket *out;
    dw_decode_ticket *in;
    rig r;
    rig_open(&r, rig_open_cuda(), "delta:bits=4", 2, T, C, DW_CUDA_DEVICE);
    struct {
        dw_tensor view;
        dw_status encode, decode;
    } bad[] = {
        {{r.device_x, (dw_dtype)9, 2, T, C, T * C, C}, DW_ERR_ARGUMENT, DW_ERR_ARGUMENT},
        {{(char *)r.device_x + 2, DW_F32, 2, T, C, T * C, C}, DW_ERR_ARGUMENT, DW_ERR_ARGUMENT},
        {{r.device_x, DW_F32, 0, T, C, T * C, C}, DW_ERR_ARGUMENT, DW_ERR_ARGUMENT},
        {{r.device_x, DW_F32, 2, 0, C, T * C, C}, DW_ERR_ARGUMENT, DW_ERR_ARGUMENT},
        {{r.device_x, DW_F32, 2, T, 0, T * C, C}, DW_ERR_ARGUMENT, DW_ERR_ARGUMENT},
        {{r.device_x, DW_F32, 2, T, C, -T * C, C}, DW_ERR_ARGUMENT, DW_ERR_ARGUMENT},
        {{r.device_x, DW_F32, 2, T, C, T * C, C - 1}, DW_ERR_ARGUMENT, DW_ERR_ARGUMENT},
        {{r.device_x, DW_F32, 2, T, C, T * C, -C}, DW_ERR_ARGUMENT, DW_ERR_ARGUMENT},
        {{r.device_x, DW_F32, 2, T, C, INT64_MAX, C}, DW_ERR_LIMIT, DW_ERR_LIMIT},
        {{r.device_x, DW_F32, 2, T, C, T * C, INT64_MAX}, DW_ERR_LIMIT, DW_ERR_LIMIT},
        {{r.device_x, DW_F32, UINT32_MAX, UINT32_MAX, UINT32_MAX, T * C, UINT32_MAX},
         DW_ERR_LIMIT,
         DW_ERR_LIMIT},
        /* This one can be read, but not written, as its samples overlap. */
        {{r.device_x, DW_F32, 2, T, C, T * C - 1, C}, DW_OK, DW_ERR_ARGUMENT},
        {{r.device_x, DW_F32, 2, T, C, 0, C}, DW_OK, DW_ERR_ARGUMENT},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        dw_status status =
            test_encode_async(r.encoder, keys, &bad[i].view, r.device_frame, r.cap, NULL, &out);
        assert_int_equal(status, bad[i].encode);
        fake_cuda_get()->run();
        if (!status) assert_int_equal(dw_encode_cancel(out), DW_OK);
        assert_int_equal(
            test_decode_async(r.decoder, r.frame, 80, r.device_frame, 80, &bad[i].view, NULL, &in),
            bad[i].decode);
    }
    assert_int_equal(test_encoder_counters(r.encoder).keys_held, 0);
    rig_end(&r);
}

static dw_status visit_nothing(void *context, const dw_held_key *key)
{
    (void)context, (void)key;
    return DW_OK;
}

/* Calls for tickets that were ended, that were never captured, or with too little room. dw_cuda may
 * be closed first, and frames may be left unfinished. */
TEST(tickets_are_ended_once)
{
    test_random random = {test_seed()};
    dw_cuda *cuda = rig_open_cuda();
    flight f = {.keys = {{1, 0}, {2, 0}}}, left = {.keys = {{3, 0}, {4, 0}}};
    size_t head_len, len;
    rig r;
    rig_open(&r, cuda, "delta:bits=4", 2, T, C, DW_CUDA_DEVICE);
    flight_open(&f, &r);
    flight_open(&left, &r);
    flight_start(&r, &f, &random);
    assert_string_equal(dw_encoder_why(r.encoder), ""); /* no error so far */
    REFUSED(dw_encode_again(f.out, f.keys));
    REFUSED(dw_encode_again(f.out, NULL));
    assert_string_equal(dw_encoder_why(r.encoder), "an argument is NULL");
    REFUSED(dw_encoder_visit_keys(r.encoder, visit_nothing, NULL));
    REFUSED(dw_encoder_drop_keys(r.encoder, f.keys, 2));
    fake_cuda_get()->run();
    assert_int_equal(dw_encode_finish(f.out, f.head, 80, &head_len, &len), DW_ERR_BUFFER_TOO_SMALL);
    REFUSED(dw_encode_finish(f.out, NULL, 80, &head_len, &len));
    flight_end(&f);
    REFUSED(dw_encode_finish(f.out, f.head, sizeof f.head, &head_len, &len));
    REFUSED(dw_encode_again(f.out, f.keys));
    REFUSED(dw_encode_cancel(f.out));
    flight_arrive(&r, &f);
    assert_string_equal(dw_decoder_why(r.decoder), "");
    REFUSED(dw_decode_again(f.in, f.cpu_frame, f.cpu_len, f.cpu_len));
    REFUSED(dw_decode_again(f.in, NULL, f.cpu_len, f.cpu_len));
    assert_string_equal(dw_decoder_why(r.decoder), "an argument is NULL");
    REFUSED(dw_decoder_visit_keys(r.decoder, visit_nothing, NULL));
    REFUSED(dw_decoder_drop_keys(r.decoder, f.keys, 2));
    fake_cuda_get()->run();
    assert_int_equal(dw_decode_finish(f.in, r.reply, r.reply_cap - 1, &r.reply_len),
                     DW_ERR_BUFFER_TOO_SMALL);
    REFUSED(dw_decode_finish(f.in, r.reply, r.reply_cap, NULL));
    flight_land(&r, &f);
    REFUSED(dw_decode_finish(f.in, r.reply, r.reply_cap, &r.reply_len));
    assert_int_equal(r.reply_len, 0);
    REFUSED(dw_decode_again(f.in, f.cpu_frame, f.cpu_len, f.cpu_len));
    REFUSED(dw_decode_cancel(f.in));
    flight_start(&r, &left, &random);
    fake_cuda_get()->run();
    dw_cuda_close(cuda);
    flight_close(&f);
    rig_close(&r);
    flight_close(&left);
    rig_nothing_left();
}

/* Changes a few bytes of the frame, mostly in fields that say where something lies, and computes
 * the digests again. Returns the new length. */
static size_t spoil(uint8_t *frame, size_t len, size_t head_len, test_random *random)
{
    static const uint8_t fields[] = {24,  25,  28,  32,  36,  37,  40,  41, 42, 48,
                                     49,  56,  7,   6,   80,  84,  88,  92, 93, 100,
                                     108, 116, 124, 140, 141, 142, 152, 188};
    int changes = 1 + (int)(test_next(random) % 2);
    for (int i = 0; i < changes; i++) {
        size_t at = test_next(random) % 2 ? fields[test_next(random) % sizeof fields]
                                          : test_next(random) % head_len;
        uint8_t value = (uint8_t)test_next(random);
        frame[at] = test_next(random) % 2 ? value : (uint8_t)(frame[at] + value % 5 - 2);
    }
    if (test_next(random) % 8 == 0)
        memcpy(frame + test_entries_at(frame) + DW_ENTRY_BYTES, frame + test_entries_at(frame),
               12); /* the second entry gets the key of the first */
    test_seal_tables(frame, head_len);
    return test_next(random) % 8 ? len : test_next(random) % (len + 1);
}

/* Decodes a frame with both decoders. That on the device gets it in a buffer of exactly its length,
 * so that a sanitizer detects any access outside. */
static dw_status both_decode(rig *r, const uint8_t *frame, size_t len, size_t head_len)
{
    dw_decode_ticket *ticket;
    uint8_t *body = aligned_alloc(16, dw_round_up(len ? len : 1, 16)), *copy = malloc(len + 1);
    uint8_t *head = malloc(head_len ? head_len : 1);
    dw_tensor y = dw_tensor_3d(r->cpu_y, DW_F32, r->n, r->t, r->c),
              device_y = dw_tensor_3d(r->y, DW_F32, r->n, r->t, r->c);
    memcpy(copy, frame, len);
    memcpy(body, frame, len);
    memcpy(head, frame, head_len < len ? head_len : len);
    dw_status cpu = dw_decode(r->cpu_decoder, copy, len, &y, NULL, r->cpu_reply, r->reply_cap,
                              &r->cpu_reply_len);
    dw_status status = test_decode_async(r->decoder, head, head_len < len ? head_len : len, body,
                                         len, &device_y, NULL, &ticket);
    if (status) fail_msg("decode: %d %s", status, dw_decoder_why(r->decoder));
    memset(head, 0xff, head_len);
    free(head);
    fake_cuda_get()->run();
    status = dw_decode_finish(ticket, r->reply, r->reply_cap, &r->reply_len);
    bool host_first = cpu == DW_ERR_CORRUPT && status < DW_OK;
    if (status != cpu && !host_first)
        fail_msg("%d, not %d: %s", status, cpu, dw_decoder_why(r->decoder));
    assert_int_equal(r->reply_len, r->cpu_reply_len);
    if (status == cpu) assert_memory_equal(r->reply, r->cpu_reply, r->reply_len);
    if (!status) assert_memory_equal(r->y, r->cpu_y, r->tensor_bytes);
    free(body);
    free(copy);
    return status;
}

TEST(hostile_frames_are_refused_as_on_the_cpu)
{
    static const char *const words[] = {"delta:bits=4,quota_bytes=9000",
                                        "delta:bits=2,group=channel,choose=never", "direct:bits=3",
                                        "delta:bits=4,audit=255"};
    test_random random = {test_seed()};
    long seen[64] = {0};
    for (int w = 0; w < 4; w++) {
        uint8_t bad[4096];
        rig r;
        rig_open(&r, rig_open_cuda(), words[w], 2, T, C, DW_CUDA_PINNED);
        for (int step = 0; step < 60; step++) {
            dw_key keys[2] = {{test_next(&random) % 4, 0}, {test_next(&random) % 4, 1}};
            if (test_next(&random) % 3 == 0) {
                dw_key gone = {test_next(&random) % 4, 1};
                rig_forget(&r, gone);
            }
            test_fill(&random, r.x, DW_F32, r.tensor_bytes / 4, 1.0f);
            rig_encode(&r, keys, DW_F32);
            for (int i = 0; i < 100; i++) {
                memcpy(bad, r.frame, r.len);
                size_t len = spoil(bad, r.len, r.head_len, &random);
                dw_status status = both_decode(&r, bad, len, r.head_len);
                if (status == DW_ERR_STATE || status == DW_OK)
                    break; /* the decoder's state may have changed */
                seen[-status]++;
            }
            dw_status status = both_decode(&r, r.frame, r.len, r.head_len);
            seen[-status]++;
            rig_feedback(&r);
            for (uint32_t k = 0; k < 8; k++) {
                dw_tensor a, b;
                assert_int_equal(dw_decoder_peek(r.decoder, (dw_key){k / 2, k % 2}, &a),
                                 dw_decoder_peek(r.cpu_decoder, (dw_key){k / 2, k % 2}, &b));
            }
        }
        dw_counters a = test_decoder_counters(r.decoder), b = test_decoder_counters(r.cpu_decoder);
        assert_int_equal(a.rejected_frames, b.rejected_frames);
        assert_int_equal(a.frames, b.frames);
        assert_int_equal(a.keys_held, b.keys_held);
        rig_end(&r);
    }
    static const dw_status all[] = {DW_OK,        DW_ERR_FORMAT, DW_ERR_VERSION, DW_ERR_MISMATCH,
                                    DW_ERR_SHAPE, DW_ERR_BASE,   DW_ERR_CORRUPT};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) assert_true(seen[-all[i]] > 0);
}

/* Two frames, sent and received while one allocation fails: of the caller's allocator or of the one
 * that the device uses for its own records (`books`). */
typedef struct starving {
    rig r;
    flight f[2];
    dw_tensor x[2];
    test_allocator books;
    long failed;
} starving;

static void start_to_starve(starving *s, long fail_at)
{
    s->r.allocator.only_once = s->books.only_once = true;
    s->r.allocator.calls = s->books.calls = 0;
    if (fail_at % 2)
        s->r.allocator.fail_at = fail_at / 2;
    else
        s->books.fail_at = fail_at / 2;
}

/* Encodes two frames in one launch, or repeats both from their graph. A call that gets no memory
 * must change nothing, and must work when it is repeated. */
static void encode_starving(starving *s, bool again)
{
    dw_encode_item items[2];
    for (int i = 0; i < 2; i++) {
        items[i] = (dw_encode_item){s->r.encoder,         s->f[i].keys, &s->x[i],
                                    s->f[i].device_frame, s->r.cap,     NULL};
        dw_tensor x = dw_tensor_3d(s->r.x, DW_F32, 2, T, C);
        assert_int_equal(dw_encode(s->r.cpu_encoder, s->f[i].keys, &x, NULL, s->f[i].cpu_frame,
                                   s->r.cap, &s->f[i].cpu_len),
                         DW_OK);
    }
    for (int i = 0; i < (again ? 2 : 1);) {
        dw_counters before = test_encoder_counters(s->r.encoder);
        dw_status status =
            again ? dw_encode_again(s->f[i].out, s->f[i].keys) : dw_encode_async(items, 2, NULL);
        dw_counters after = test_encoder_counters(s->r.encoder);
        i += !status;
        if (!status) continue;
        assert_int_equal(status, DW_ERR_NO_MEMORY);
        assert_string_equal(dw_encoder_why(s->r.encoder), dw_status_string(status));
        rig_nothing_changed(before, after);
        s->failed++;
    }
    for (int i = 0; i < 2 && !again; i++) s->f[i].out = items[i].ticket;
}

static void decode_starving(starving *s, bool again)
{
    dw_decode_item items[2];
    for (int i = 0; i < 2; i++)
        items[i] = (dw_decode_item){s->r.decoder,
                                    s->f[i].cpu_frame,
                                    s->f[i].device_frame,
                                    s->f[i].cpu_len,
                                    s->f[i].cpu_len,
                                    &s->x[i],
                                    NULL};
    for (int i = 0; i < (again ? 2 : 1);) {
        dw_counters before = test_decoder_counters(s->r.decoder);
        dw_status status =
            again ? dw_decode_again(s->f[i].in, s->f[i].cpu_frame, s->f[i].cpu_len, s->f[i].cpu_len)
                  : dw_decode_async(items, 2, NULL);
        dw_counters after = test_decoder_counters(s->r.decoder);
        i += !status;
        if (!status) continue;
        assert_int_equal(status, DW_ERR_NO_MEMORY);
        rig_nothing_changed(before, after);
        s->failed++;
    }
    for (int i = 0; i < 2 && !again; i++) s->f[i].in = items[i].ticket;
}

/* Runs everything while allocation number fail_at fails. Returns how many calls failed. */
static long run_starving(long fail_at)
{
    dw_cuda *cuda = rig_open_cuda();
    dw_allocator allocator = cuda->allocator;
    starving *s = calloc(1, sizeof *s);
    s->books.fail_at = -1;
    cuda->allocator = test_allocator_hooks(&s->books);
    rig_open(&s->r, cuda, "delta:bits=4", 2, T, C, DW_CUDA_DEVICE);
    for (int i = 0; i < 2; i++) {
        flight_open(&s->f[i], &s->r);
        s->x[i] = dw_tensor_3d(s->f[i].device_x, DW_F32, 2, T, C);
        rig_to_device(s->f[i].device_x, s->r.x, s->r.tensor_bytes);
    }
    start_to_starve(s, fail_at);
    for (uint64_t step = 0; step < 4; step++) {
        for (uint64_t i = 0; i < 4; i++) s->f[i / 2].keys[i % 2] = (dw_key){step * step + i, 0};
        dw_key forgotten = {step, 0};
        rig_forget(&s->r, forgotten);
        if (step == 0) rig_capture(0);
        encode_starving(s, step > 0);
        rig_replay(0);
        for (int i = 0; i < 2; i++) flight_end(&s->f[i]);
        if (step == 0) rig_capture(1);
        decode_starving(s, step > 0);
        rig_replay(1);
        for (int i = 0; i < 2; i++) {
            dw_tensor y = dw_tensor_3d(s->r.cpu_y, DW_F32, 2, T, C);
            rig *r = &s->r;
            assert_int_equal(dw_decode_finish(s->f[i].in, r->reply, r->reply_cap, &r->reply_len),
                             DW_OK);
            assert_int_equal(dw_decode(r->cpu_decoder, s->f[i].cpu_frame, s->f[i].cpu_len, &y, NULL,
                                       r->cpu_reply, r->reply_cap, &r->cpu_reply_len),
                             DW_OK);
            rig_feedback(r);
            rig_to_device(s->f[i].device_x, r->x, r->tensor_bytes);
        }
        for (uint64_t k = 0; k < 16; k++) rig_in_step(&s->r, (dw_key){k, 0});
    }
    rig_same_counters(&s->r);
    long failed = s->failed;
    for (int i = 0; i < 2; i++) flight_close(&s->f[i]);
    rig_close(&s->r);
    assert_int_equal(s->books.out_blocks, 0);
    cuda->allocator = allocator;
    rig_close_cuda(cuda);
    free(s);
    return failed;
}

TEST(every_allocation_may_fail)
{
    long failed = 0;
    assert_int_equal(run_starving(-2), 0); /* no allocation fails */
    for (long n = 0, none = 0; none < 16; n++) {
        long more = run_starving(n);
        none = more ? 0 : none + 1;
        failed += more;
    }
    print_message("%ld allocations failed in turn\n", failed);
    assert_true(failed > 20);
}

/* A profile is copied to the device when an end is made. Where a call of the driver fails on the
 * way, there is no end, and nothing is left. */
TEST(an_end_whose_profile_cannot_be_copied_is_not_made)
{
    dw_cuda *cuda = rig_open_cuda();
    fake_cuda *fake = fake_cuda_get();
    dw_encoder *encoder;
    dw_why why = {.text = ""};
    dw_config config;
    dw_status status = DW_ERR_IO;
    int failed = 0;
    assert_int_equal(dw_config_parse(&config, "direct:form=step", NULL), DW_OK);
    config.profile = test_profile(2, 64);
    for (long k = 0; status != DW_OK; k++) {
        fake->fail_at = fake->calls + k;
        status = dw_encoder_create(&encoder, &config, RIG_HOST(cuda, DW_CUDA_DEVICE), &why);
        fake->fail_at = -1;
        fake->mode = 0; /* the call that failed may have been the one that sets it back */
        assert_true((status == DW_OK) == (encoder != NULL));
        if (status) assert_true(why.text[0] != 0);
        failed += status != DW_OK;
        dw_encoder_destroy(encoder);
    }
    assert_true(failed >= 3);
    rig_close_cuda(cuda);
}

RUN_TESTS_GIVEN(rig_library)
