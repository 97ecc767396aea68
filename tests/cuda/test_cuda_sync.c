/* SPDX-License-Identifier: Apache-2.0
 * test_cuda_sync.c - frames of prev itself, encoded and decoded on a device. They recover a decoder
 * that missed frames or whose memory was corrupted. */
#include "rig.h"

enum { N = 2, T = 5, C = 100 };

static const char *const configs[] = {"delta:bits=4,prev=f32,choose=never",
                                      "delta:bits=3,prev=f16,audit=2",
                                      "delta:bits=2,key=raw,prev=bf16",
                                      "delta:bits=4,audit=255",
                                      "delta:bits=4,prev=8",
                                      "delta:bits=3,prev=4,audit=2"};
enum { CONFIGS = sizeof configs / sizeof *configs };

static const dw_key keys[N] = {{1, 0}, {2, 7}};

static void encode_new(rig *r, test_random *random)
{
    test_fill(random, r->x, DW_F32, r->tensor_bytes / 4, 1.0f);
    rig_encode(r, keys, DW_F32);
}

/* Sends a frame that both decoders accept. */
static void exchange(rig *r, test_random *random)
{
    encode_new(r, random);
    rig_decode(r, DW_F32);
    assert_int_equal(r->status, DW_OK);
    rig_feedback(r);
}

/* Checks a frame of an encoder that makes whole frames: on the device, the head precedes the
 * payloads. */
static void is_whole(const rig *r)
{
    uint8_t *frame = malloc(r->len);
    assert_non_null(frame);
    rig_from_device(frame, r->device_frame, r->len);
    assert_memory_equal(frame, r->frame, r->len);
    free(frame);
}

static void in_step(rig *r)
{
    for (int i = 0; i < N; i++) rig_in_step(r, keys[i]);
}

/* A frame is lost, so the next one has no base. Without waiting for the reply, the encoder sends
 * prev itself, and the next frames are deltas again. */
TEST(a_decoder_that_missed_a_frame_gets_prev_itself)
{
    test_random random = {test_seed()};
    dw_cuda *cuda = rig_open_cuda();
    for (int w = 0; w < CONFIGS; w++) {
        rig r;
        rig_open(&r, cuda, configs[w], N, T, C, w % 2 ? DW_CUDA_PINNED : DW_CUDA_DEVICE);
        assert_int_equal(dw_encoder_whole_frames(r.encoder, w >= 2), DW_OK);
        for (int round = 0; round < 3; round++) {
            dw_entry_info entry;
            exchange(&r, &random);
            encode_new(&r, &random); /* this frame is lost */
            encode_new(&r, &random);
            rig_decode(&r, DW_F32);
            assert_int_equal(r.status, DW_ERR_BASE);
            rig_resync(&r, keys);
            if (w >= 2) is_whole(&r);
            assert_int_equal(dw_frame_entries(r.frame, r.len, 0, 1, &entry), DW_OK);
            assert_int_equal(entry.role, DW_ROLE_SYNC);
            rig_decode(&r, (dw_dtype)(1 + round));
            assert_int_equal(r.status, DW_OK);
            rig_feedback(&r);
            in_step(&r);
            exchange(&r, &random);
            in_step(&r);
        }
        assert_int_equal(test_encoder_counters(r.encoder).resyncs, 3 * N);
        assert_int_equal(test_decoder_counters(r.decoder).delta_entries, 5 * N);
        rig_same_counters(&r);
        rig_close(&r);
    }
    rig_close_cuda(cuda);
}

/* A damaged copy: the digest of the next delta does not agree, the decoder drops the copy, and prev
 * itself replaces it. */
TEST(a_damaged_copy_is_replaced)
{
    test_random random = {test_seed()};
    dw_decode_ticket *ticket;
    dw_tensor prev, mine;
    rig r;
    rig_open(&r, rig_open_cuda(), configs[0], N, T, C, DW_CUDA_DEVICE);
    exchange(&r, &random);
    assert_int_equal(dw_decoder_peek(r.decoder, keys[1], &prev), DW_OK);
    rig_to_device((float *)prev.data + 17, &(float){777.0f}, sizeof(float));
    encode_new(&r, &random);
    assert_int_equal(rig_decode_start(&r, DW_F32, &ticket), DW_OK);
    fake_cuda_get()->run();
    assert_int_equal(dw_decode_finish(ticket, r.reply, r.reply_cap, &r.reply_len), DW_ERR_STATE);
    assert_int_equal(dw_encoder_take_reply(r.encoder, r.reply, r.reply_len), DW_OK);
    rig_resync(&r, keys);
    assert_int_equal(rig_decode_start(&r, DW_F32, &ticket), DW_OK);
    fake_cuda_get()->run();
    assert_int_equal(dw_decode_finish(ticket, r.reply, r.reply_cap, &r.reply_len), DW_OK);
    for (int i = 0; i < N; i++) {
        unsigned char there[T * C * 4], here[T * C * 4];
        assert_int_equal(dw_decoder_peek(r.decoder, keys[i], &prev), DW_OK);
        assert_int_equal(dw_encoder_peek(r.encoder, keys[i], &mine), DW_OK);
        rig_from_device(there, prev.data, sizeof there);
        rig_from_device(here, mine.data, sizeof here);
        assert_memory_equal(there, here, sizeof here);
    }
    rig_end(&r);
}

TEST(wrong_arguments_are_refused)
{
    test_random random = {test_seed()};
    dw_encode_ticket *ticket = NULL, *other = NULL;
    size_t head_len, len;
    rig r;
    rig_open(&r, rig_open_cuda(), configs[0], N, T, C, DW_CUDA_DEVICE);
    uint8_t *frame = r.device_frame;
    REFUSED(dw_encoder_resync_async(r.encoder, keys, N, frame, r.room, NULL, &ticket));
    assert_non_null(strstr(dw_encoder_why(r.encoder), "not held"));
    exchange(&r, &random);
    dw_encoder *e = r.encoder;
    REFUSED(dw_encoder_resync_async(NULL, keys, N, frame, r.room, NULL, &ticket));
    REFUSED(dw_encoder_resync_async(e, NULL, N, frame, r.room, NULL, &ticket));
    REFUSED(dw_encoder_resync_async(e, keys, 0, frame, r.room, NULL, &ticket));
    REFUSED(dw_encoder_resync_async(e, keys, N, NULL, r.room, NULL, &ticket));
    REFUSED(dw_encoder_resync_async(e, keys, N, frame + 8, r.room, NULL, &ticket));
    assert_non_null(strstr(dw_encoder_why(e), "aligned"));
    REFUSED(dw_encoder_resync_async(e, keys, N, frame, r.room, NULL, NULL));
    dw_key twice[N] = {keys[0], keys[0]}, unknown[N] = {keys[0], {99, 0}};
    REFUSED(dw_encoder_resync_async(e, twice, N, frame, r.room, NULL, &ticket));
    REFUSED(dw_encoder_resync_async(e, unknown, N, frame, r.room, NULL, &ticket));
    assert_int_equal(dw_encoder_resync_async(e, keys, N, frame, 500, NULL, &ticket),
                     DW_ERR_BUFFER_TOO_SMALL);
    assert_int_equal(dw_encoder_resync_async(r.cpu_encoder, keys, N, frame, r.room, NULL, &ticket),
                     DW_ERR_UNSUPPORTED);
    assert_non_null(strstr(dw_encoder_why(r.cpu_encoder), "dw_encoder_resync"));
    assert_null(ticket);
    /* While this frame is in flight, no other may use its keys. Cancelled, it leaves no trace. */
    assert_int_equal(dw_encoder_resync_async(e, keys, N, frame, r.room, NULL, &ticket), DW_OK);
    REFUSED(rig_encode_start(&r, keys, DW_F32, &other));
    REFUSED(dw_encoder_resync_async(e, keys, N, frame, r.room, NULL, &other));
    assert_int_equal(dw_encode_cancel(ticket), DW_PENDING);
    fake_cuda_get()->run();
    assert_int_equal(dw_encode_cancel(ticket), DW_OK);
    assert_int_equal(test_encoder_counters(e).resyncs, 0);
    in_step(&r);
    assert_int_equal(rig_encode_start(&r, keys, DW_F32, &ticket), DW_OK);
    fake_cuda_get()->run();
    assert_int_equal(dw_encode_finish(ticket, r.head, r.head_cap, &head_len, &len), DW_OK);
    rig_end(&r);
}

/* Each call of the driver fails in turn: the error has a sentence, nothing changes, and the same
 * call works afterwards. */
TEST(a_failing_driver_changes_nothing)
{
    test_random random = {test_seed()};
    fake_cuda *fake = fake_cuda_get();
    int failed = 0;
    rig r;
    rig_open(&r, rig_open_cuda(), configs[0], N, T, C, DW_CUDA_DEVICE);
    exchange(&r, &random);
    for (long at = 0;; at++) {
        dw_encode_ticket *ticket = NULL;
        fake->calls = 0;
        fake->fail_at = at;
        dw_status status =
            dw_encoder_resync_async(r.encoder, keys, N, r.device_frame, r.room, NULL, &ticket);
        fake->fail_at = -1;
        if (!status) {
            fake->run();
            assert_int_equal(dw_encode_cancel(ticket), DW_OK);
            break;
        }
        assert_true(status == DW_ERR_IO || status == DW_ERR_NO_MEMORY);
        assert_null(ticket);
        assert_string_not_equal(dw_encoder_why(r.encoder), "");
        assert_int_equal(test_encoder_counters(r.encoder).frames, 1);
        failed++;
    }
    assert_true(failed > 2);
    in_step(&r);
    rig_end(&r);
}

/* A captured frame of prev itself can be repeated with other keys, but only of the same shape. */
TEST(a_captured_frame_can_be_repeated)
{
    test_random random = {test_seed()};
    fake_cuda *fake = fake_cuda_get();
    dw_encode_ticket *ticket;
    dw_key other[N] = {{11, 0}, {12, 0}}, smaller[N] = {{21, 0}, {22, 0}};
    rig r;
    rig_open(&r, rig_open_cuda(), configs[0], N, T, C, DW_CUDA_DEVICE);
    exchange(&r, &random);
    test_fill(&random, r.x, DW_F32, r.tensor_bytes / 4, 1.0f);
    rig_encode(&r, other, DW_F32);
    r.t = T - 1;
    rig_encode(&r, smaller, DW_F32);
    r.t = T;
    fake->capturing = true;
    assert_int_equal(
        dw_encoder_resync_async(r.encoder, keys, N, r.device_frame, r.room, NULL, &ticket), DW_OK);
    fake->capturing = false;
    for (int round = 0; round < 3; round++) {
        const dw_key *now = round == 1 ? other : keys;
        assert_int_equal(dw_encoder_resync(r.cpu_encoder, now, N, r.cpu_frame, r.room, &r.len),
                         DW_OK);
        if (round) assert_int_equal(dw_encode_again(ticket, now), DW_OK);
        fake->launch_graph(0);
        fake->run();
        rig_encode_end(&r, ticket);
        assert_int_equal(dw_encode_again(ticket, smaller), DW_ERR_SHAPE);
        assert_int_equal(dw_encode_again(ticket, &(dw_key){99, 9}), DW_ERR_ARGUMENT);
    }
    assert_int_equal(dw_encode_cancel(ticket), DW_OK);
    fake->drop_graph(0);
    rig_end(&r);
}

RUN_TESTS_GIVEN(rig_library)
