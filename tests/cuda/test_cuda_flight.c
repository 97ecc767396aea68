/* SPDX-License-Identifier: Apache-2.0
 * test_cuda_flight.c - frames in progress: several at the same time, failing calls of the driver,
 * and no allocation in the steady state. */
#include "flight.h"

#include "../../cuda/device.h"

enum { T = 3, C = 64 };

enum { FLIGHTS = 4, KEYS = 13 };

/* Gives every flight different keys. */
static void deal_keys(flight *flights, test_random *random)
{
    uint32_t keys[KEYS];
    for (uint32_t i = 0; i < KEYS; i++) {
        uint32_t at = (uint32_t)(test_next(random) % (i + 1));
        keys[i] = keys[at];
        keys[at] = i;
    }
    for (uint32_t i = 0; i < 2 * FLIGHTS; i++) flights[i / 2].keys[i % 2] = (dw_key){keys[i], 0};
}

/* An encoder on a device must refuse to forget a key in flight. The CPU has nothing in flight, so
 * it is asked only if the device agreed. */
static void forget_some(rig *r, test_random *random)
{
    dw_key key = {test_next(random) % KEYS, 0};
    if (test_next(random) % 2) return;
    if (dw_encoder_forget(r->encoder, key) == DW_OK)
        assert_int_equal(dw_encoder_forget(r->cpu_encoder, key), DW_OK);
}

TEST(several_frames_fly_at_once)
{
    test_random random = {test_seed()};
    flight flights[FLIGHTS];
    rig r;
    rig_open(&r, rig_open_cuda(), "delta:bits=4,quota_bytes=9000", 2, T, C, DW_CUDA_DEVICE);
    for (int i = 0; i < FLIGHTS; i++) flight_open(&flights[i], &r);
    for (int step = 0; step < 200; step++) {
        deal_keys(flights, &random);
        for (uint32_t i = 0; i < FLIGHTS; i++) {
            flight_start(&r, &flights[i], &random);
            forget_some(&r, &random);
        }
        if (step % 2) fake_cuda_get()->run();
        for (uint32_t i = 0; i < FLIGHTS && step % 2 == 0; i++) {
            size_t unused;
            assert_int_equal(dw_encode_finish(flights[i].out, flights[i].head,
                                              sizeof flights[i].head, &unused, &unused),
                             DW_PENDING);
            assert_int_equal(dw_encode_cancel(flights[i].out), DW_PENDING);
        }
        if (step % 2 == 0) fake_cuda_get()->run();
        for (uint32_t i = 0; i < FLIGHTS; i++) flight_end(&flights[i]);
        for (uint32_t i = 0; i < FLIGHTS; i++) flight_arrive(&r, &flights[i]);
        assert_int_equal(dw_decode_finish(flights[0].in, NULL, 0, NULL), DW_PENDING);
        fake_cuda_get()->run();
        /* Frames must be finished in order. */
        assert_int_equal(dw_decode_finish(flights[2].in, NULL, 0, NULL), DW_ERR_ARGUMENT);
        for (uint32_t i = 0; i < FLIGHTS; i++) {
            flight_land(&r, &flights[i]);
            rig_feedback(&r);
        }
        for (uint32_t i = 0; i < KEYS; i++) rig_in_step(&r, (dw_key){i, 0});
    }
    rig_same_counters(&r);
    /* The quota also covers copies of frames in flight. */
    assert_true(test_encoder_counters(r.encoder).stateless_entries > 0);
    for (int i = 0; i < FLIGHTS; i++) flight_close(&flights[i]);
    rig_end(&r);
}

/* A key can be in one frame in flight only. Until then calls for it are refused, and replies about
 * it are kept until the frame is finished. */
TEST(a_key_in_flight_is_not_changed)
{
    test_random random = {test_seed()};
    dw_key keys[2] = {{1, 0}, {2, 0}};
    dw_encode_ticket *ticket, *other = NULL;
    flight f = {.keys = {{1, 0}, {2, 0}}};
    rig r;
    rig_open(&r, rig_open_cuda(), "delta:bits=4", 2, T, C, DW_CUDA_DEVICE);
    flight_open(&f, &r);
    for (int step = 0; step < 12; step++) {
        /* Frames 0, 3, ... are lost. The NACK is passed to the encoder while the next one is in
         * flight. */
        flight_start(&r, &f, &random);
        ticket = f.out;
        dw_counters before = test_encoder_counters(r.encoder);
        assert_int_equal(rig_encode_start(&r, keys, DW_F32, &other), DW_ERR_ARGUMENT);
        assert_non_null(strstr(dw_encoder_why(r.encoder), "still in flight"));
        assert_null(other);
        assert_int_equal(dw_encoder_forget(r.encoder, keys[0]), DW_ERR_ARGUMENT);
        rig_nothing_changed(before, test_encoder_counters(r.encoder));
        if (step) rig_feedback(&r);
        fake_cuda_get()->run();
        f.out = ticket;
        flight_end(&f);
        if (step % 3 == 0) {
            r.reply_len = r.cpu_reply_len = 0;
            continue;
        }
        memcpy(r.frame, f.cpu_frame, r.len = f.cpu_len);
        rig_decode(&r, DW_F32);
        for (int k = 0; k < 2; k++) rig_in_step(&r, keys[k]);
    }
    assert_true(test_encoder_counters(r.encoder).nacks > 2);
    rig_same_counters(&r);
    flight_close(&f);
    rig_end(&r);
}

/* A frame announced that a key is forgotten. Its ACK comes while a new frame that carries the key
 * again is in flight. The key must be held, as if the ACK had come before that frame. */
TEST(a_forgotten_key_returns_before_the_ack)
{
    test_random random = {test_seed()};
    flight f[2] = {{.keys = {{1, 0}, {2, 0}}}, {.keys = {{1, 0}, {3, 0}}}};
    dw_key others[2] = {{4, 0}, {5, 0}};
    rig r;
    rig_open(&r, rig_open_cuda(), "delta:bits=4", 2, T, C, DW_CUDA_DEVICE);
    for (int i = 0; i < 2; i++) flight_open(&f[i], &r);
    test_fill(&random, r.x, DW_F32, 2 * T * C, 1.0f);
    rig_encode(&r, f[0].keys, DW_F32);
    rig_decode(&r, DW_F32);
    rig_feedback(&r);
    rig_forget(&r, f[0].keys[0]);
    rig_encode(&r, others, DW_F32); /* announces that the key is forgotten */
    rig_decode(&r, DW_F32);
    flight_start(&r, &f[1], &random);
    rig_feedback(&r);
    fake_cuda_get()->run();
    flight_end(&f[1]);
    for (uint32_t k = 1; k < 6; k++) rig_in_step(&r, (dw_key){k, 0});
    memcpy(r.frame, f[1].cpu_frame, r.len = f[1].cpu_len);
    rig_decode(&r, DW_F32);
    rig_feedback(&r);
    for (uint32_t k = 1; k < 6; k++) rig_in_step(&r, (dw_key){k, 0});
    rig_same_counters(&r);
    for (int i = 0; i < 2; i++) flight_close(&f[i]);
    rig_end(&r);
}

TEST(a_cancelled_frame_leaves_no_trace)
{
    test_random random = {test_seed()};
    dw_encode_ticket *out;
    dw_decode_ticket *in;
    dw_key keys[2] = {{1, 0}, {2, 0}}, others[2] = {{3, 0}, {2, 0}};
    rig r;
    rig_open(&r, rig_open_cuda(), "delta:bits=4", 2, T, C, DW_CUDA_DEVICE);
    test_fill(&random, r.x, DW_F32, 2 * T * C, 1.0f);
    rig_encode(&r, keys, DW_F32);
    assert_int_equal(dw_encoder_forget(r.encoder, keys[1]), DW_OK);
    dw_counters before = test_encoder_counters(r.encoder);
    assert_int_equal(rig_encode_start(&r, others, DW_F32, &out), DW_OK);
    assert_int_equal(dw_encode_cancel(out), DW_PENDING);
    fake_cuda_get()->run();
    assert_int_equal(dw_encode_cancel(out), DW_OK);
    assert_int_equal(dw_encode_cancel(out), DW_ERR_ARGUMENT);
    rig_nothing_changed(before, test_encoder_counters(r.encoder));
    size_t len = r.len;
    dw_frame_info info = {.struct_size = sizeof info};
    for (int i = 0; i < 2; i++) {
        /* The first cancelled frame carried the forgotten key, and the second one announced it. It
         * must still be announced. */
        others[1].sample = 4;
        assert_int_equal(rig_encode_start(&r, others, DW_F32, &out), DW_OK);
        fake_cuda_get()->run();
        if (i == 0) assert_int_equal(dw_encode_cancel(out), DW_OK);
    }
    assert_int_equal(dw_encode_finish(out, r.head, r.head_cap, &r.head_len, &r.len), DW_OK);
    rig_from_device(r.cpu_frame, r.device_frame, r.len);
    memcpy(r.cpu_frame, r.head, r.head_len);
    assert_int_equal(dw_frame_read(r.cpu_frame, r.len, &info, NULL), DW_OK);
    assert_int_equal(info.n_forgotten, 1);
    r.len = len;
    before = test_decoder_counters(r.decoder);
    assert_int_equal(rig_decode_start(&r, DW_F32, &in), DW_OK);
    fake_cuda_get()->run();
    assert_int_equal(dw_decode_cancel(in), DW_OK);
    rig_nothing_changed(before, test_decoder_counters(r.decoder));
    rig_decode(&r, DW_F32);
    assert_int_equal(r.status, DW_OK);
    rig_end(&r);
}

static dw_status count_forgotten(void *count, dw_key key, const void *saved, size_t len)
{
    (void)key, (void)len;
    *(int *)count += ((const uint8_t *)saved)[6] == 5; /* docs/format.md, 7 */
    return DW_OK;
}

/* A frame that announced one forgotten key is cancelled. A later one, which announced another, is
 * answered: only the first key is still to be announced. */
TEST(an_answer_counts_although_an_earlier_frame_was_cancelled)
{
    test_random random = {test_seed()};
    dw_encode_ticket *out[2];
    int left = 0;
    rig r;
    rig_open(&r, rig_open_cuda(), "delta:bits=4", 1, T, C, DW_CUDA_DEVICE);
    test_fill(&random, r.x, DW_F32, T * C, 1.0f);
    for (uint64_t i = 0; i < 2; i++) {
        rig_encode(&r, &(dw_key){i, 0}, DW_F32);
        rig_decode(&r, DW_F32);
        rig_feedback(&r);
    }
    for (uint64_t i = 0; i < 2; i++) {
        assert_int_equal(dw_encoder_forget(r.encoder, (dw_key){i, 0}), DW_OK);
        assert_int_equal(rig_encode_start(&r, &(dw_key){2 + i, 0}, DW_F32, &out[i]), DW_OK);
    }
    fake_cuda_get()->run();
    assert_int_equal(dw_encode_cancel(out[0]), DW_OK);
    assert_int_equal(dw_encode_finish(out[1], r.head, r.head_cap, &r.head_len, &r.len), DW_OK);
    rig_from_device(r.frame, r.device_frame, r.len);
    memcpy(r.frame, r.head, r.head_len);
    dw_tensor y = dw_tensor_3d(r.cpu_y, DW_F32, 1, T, C);
    assert_int_equal(
        dw_decode(r.cpu_decoder, r.frame, r.len, &y, NULL, r.reply, r.reply_cap, &r.reply_len),
        DW_OK);
    assert_int_equal(dw_encoder_take_reply(r.encoder, r.reply, r.reply_len), DW_OK);
    assert_int_equal(dw_encoder_export(r.encoder, NULL, count_forgotten, &left), DW_OK);
    assert_int_equal(left, 1);
    rig_end(&r);
}

TEST(a_steady_state_allocates_nothing)
{
    test_random random = {test_seed()};
    flight f = {.out = NULL};
    long host = 0, device = 0;
    rig r;
    rig_open(&r, rig_open_cuda(), "delta:bits=4", 2, T, C, DW_CUDA_DEVICE);
    flight_open(&f, &r);
    for (int step = 0; step < 200; step++) {
        if (step == 100) {
            host = r.allocator.calls;
            device = fake_cuda_get()->allocations;
        }
        for (uint32_t k = 0; k < 2; k++) f.keys[k] = (dw_key){test_next(&random) % 10, k};
        flight_send(&r, &f, &random);
        flight_receive(&r, &f);
        rig_feedback(&r);
    }
    assert_int_equal(r.allocator.calls, host);
    assert_int_equal(fake_cuda_get()->allocations, device);
    assert_int_equal(fake_cuda_get()->synchronizations, 0);
    flight_close(&f);
    rig_end(&r);
}

/* A new encoder sends frames while one of the old encoder is in flight; late frames of the old one
 * come, too. */
TEST(two_incarnations_do_not_mix)
{
    test_random random = {test_seed()};
    flight old = {.keys = {{1, 0}, {2, 0}}}, new = {.keys = {{1, 0}, {3, 0}}},
           late = {.keys = {{5, 0}, {6, 0}}};
    rig r;
    rig_open(&r, rig_open_cuda(), "delta:bits=4", 2, T, C, DW_CUDA_DEVICE);
    flight_open(&old, &r);
    flight_open(&new, &r);
    flight_open(&late, &r);
    flight *first[2] = {&old, &late};
    for (int i = 0; i < 2; i++) {
        flight_send(&r, first[i], &random);
    }
    rig_begin_life(&r, DW_CUDA_PINNED);
    flight_send(&r, &new, &random);
    dw_tensor y = dw_tensor_3d(new.device_x, DW_F32, 2, T, C);
    flight_arrive(&r, &old);
    assert_int_equal(test_decode_async(r.decoder, new.cpu_frame, new.cpu_len, new.device_frame,
                                       new.cpu_len, &y, NULL, &new.in),
                     DW_ERR_ARGUMENT);
    assert_non_null(strstr(dw_decoder_why(r.decoder), "another incarnation"));
    fake_cuda_get()->run();
    flight_land(&r, &old);
    flight_receive(&r, &new);
    for (uint32_t k = 0; k < 7; k++) {
        dw_tensor a, b;
        assert_int_equal(dw_decoder_peek(r.decoder, (dw_key){k, 0}, &a),
                         dw_decoder_peek(r.cpu_decoder, (dw_key){k, 0}, &b));
    }
    memcpy(r.frame, late.cpu_frame, r.len = late.cpu_len);
    rig_decode(&r, DW_F32);
    assert_int_equal(r.status, DW_ERR_STALE);
    flight_close(&old);
    flight_close(&new);
    flight_close(&late);
    rig_end(&r);
}

/* A key was forgotten, or belongs to an earlier incarnation, and a new frame that carries it is in
 * flight together with the one that announces this. The new frame is then refused. The old copy of
 * the key must not remain. */
TEST(a_refused_frame_keeps_no_old_copy)
{
    test_random random = {test_seed()};
    dw_cuda *cuda = rig_open_cuda();
    for (int another_life = 0; another_life < 2; another_life++) {
        flight f[3] = {
            {.keys = {{1, 0}, {2, 0}}}, {.keys = {{3, 0}, {4, 0}}}, {.keys = {{1, 0}, {5, 0}}}};
        dw_tensor prev;
        rig r;
        rig_open(&r, cuda, "delta:bits=4", 2, T, C, DW_CUDA_DEVICE);
        for (int i = 0; i < 3; i++) {
            flight_open(&f[i], &r);
            if (i == 1 && another_life) rig_begin_life(&r, DW_CUDA_DEVICE);
            if (i == 1 && !another_life) rig_forget(&r, f[0].keys[0]);
            flight_send(&r, &f[i], &random);
        }
        flight_receive(&r, &f[0]);
        assert_int_equal(dw_decoder_peek(r.decoder, f[0].keys[0], &prev), DW_OK);
        fake_cuda_get()->touch(true);
        f[2].device_frame[f[2].cpu_len - 1] ^= 1;
        fake_cuda_get()->touch(false);
        flight_arrive(&r, &f[1]);
        flight_arrive(&r, &f[2]);
        fake_cuda_get()->run();
        flight_land(&r, &f[1]);
        dw_tensor y = dw_tensor_3d(f[2].device_x, DW_F32, 2, T, C);
        dw_decode_ticket *twice = NULL;
        assert_int_equal(test_decode_async(r.decoder, f[2].cpu_frame, f[2].cpu_len,
                                           f[2].device_frame, f[2].cpu_len, &y, NULL, &twice),
                         DW_ERR_ARGUMENT);
        assert_int_equal(dw_decode_finish(f[2].in, r.reply, r.reply_cap, &r.reply_len),
                         DW_ERR_CORRUPT);
        for (uint32_t k = 0; k < 6; k++) rig_in_step(&r, (dw_key){k, 0});
        assert_int_equal(test_decoder_counters(r.decoder).keys_held,
                         test_decoder_counters(r.cpu_decoder).keys_held);
        for (int i = 0; i < 3; i++) flight_close(&f[i]);
        rig_close(&r);
    }
    rig_close_cuda(cuda);
}

/* A late frame is in flight while the frame that announces its keys as forgotten is finished first.
 * The late frame is accepted, but its keys are dropped at once. */
TEST(a_late_frame_in_flight_restores_no_key)
{
    test_random random = {test_seed()};
    dw_cuda *cuda = rig_open_cuda();
    for (int first_visit = 0; first_visit < 2; first_visit++) {
        flight f[3] = {
            {.keys = {{1, 0}, {2, 0}}}, {.keys = {{1, 0}, {2, 0}}}, {.keys = {{3, 0}, {4, 0}}}};
        dw_tensor prev;
        rig r;
        rig_open(&r, cuda, "delta:bits=4", 2, T, C, DW_CUDA_DEVICE);
        for (int i = 0; i < 3; i++) flight_open(&f[i], &r);
        for (int i = first_visit; i < 3; i++) {
            for (int k = 0; k < 2 && i == 2; k++) {
                rig_forget(&r, f[1].keys[k]);
            }
            flight_send(&r, &f[i], &random);
            if (i > 0) continue;
            flight_receive(&r, &f[0]);
            rig_feedback(&r);
        }
        flight_arrive(&r, &f[2]); /* announces that both keys are forgotten */
        flight_arrive(&r, &f[1]); /* was encoded before that */
        fake_cuda_get()->run();
        flight_land(&r, &f[2]);
        assert_int_equal(dw_decode_finish(f[1].in, r.reply, r.reply_cap, &r.reply_len), DW_OK);
        for (int k = 0; k < 2; k++)
            assert_int_equal(dw_decoder_peek(r.decoder, f[1].keys[k], &prev), DW_ERR_ARGUMENT);
        assert_int_equal(test_decoder_counters(r.decoder).keys_held, 2);
        for (int i = 0; i < 3; i++) flight_close(&f[i]);
        rig_close(&r);
    }
    rig_close_cuda(cuda);
}

/* ---- Failures: last, because some never free memory  ---------------------------------------- */

/* Encodes, decodes and passes the reply on. Returns the status if the encode could not start. */
static dw_status round_trip(rig *r, flight *f)
{
    size_t head_len, len;
    dw_tensor x = dw_tensor_3d(f->device_x, DW_F32, r->n, r->t, r->c);
    dw_status status =
        test_encode_async(r->encoder, f->keys, &x, f->device_frame, r->cap, NULL, &f->out);
    if (status) return status;
    fake_cuda_get()->run();
    assert_int_equal(dw_encode_finish(f->out, f->head, sizeof f->head, &head_len, &len), DW_OK);
    for (;;) { /* the frame exists now, so it is decoded again until that works */
        status = test_decode_async(r->decoder, f->head, head_len, f->device_frame, len, &x, NULL,
                                   &f->in);
        if (!status) break;
        assert_true(status == DW_ERR_NO_MEMORY || status == DW_ERR_IO);
        r->status = status;
    }
    fake_cuda_get()->run();
    assert_int_equal(dw_decode_finish(f->in, r->reply, r->reply_cap, &r->reply_len), DW_OK);
    assert_int_equal(dw_encoder_take_reply(r->encoder, r->reply, r->reply_len), DW_OK);
    return DW_OK;
}

/* Opens the device, creates ends, sends some frames and closes everything, while call number
 * fail_at of the driver fails. Returns whether anything failed. */
static bool run_failing(long fail_at)
{
    fake_cuda *fake = fake_cuda_get();
    dw_cuda *cuda;
    dw_why why;
    flight f = {.keys = {{1, 0}, {2, 0}}};
    rig r;
    bool failed = false;
    fake->calls = 0;
    fake->fail_at = fail_at;
    if (dw_cuda_open_library(&cuda, rig_library, "kernels", 0, &why) != DW_OK) {
        assert_true(why.text[0] != 0);
        rig_nothing_left();
        return true;
    }
    rig_open(&r, cuda, "delta:bits=4,group=row", 2, T, 98,
             fail_at % 2 ? DW_CUDA_DEVICE : DW_CUDA_PINNED);
    flight_open(&f, &r);
    rig_to_device(f.device_x, r.x, r.tensor_bytes);
    for (int step = 0; step < 4; step++) {
        f.keys[0].sample = (uint64_t)step / 2;
        dw_counters before = test_encoder_counters(r.encoder);
        dw_status status = round_trip(&r, &f);
        if (status) {
            dw_counters after = test_encoder_counters(r.encoder);
            assert_true(status == DW_ERR_NO_MEMORY || status == DW_ERR_IO);
            assert_true(dw_encoder_why(r.encoder)[0] != 0);
            rig_nothing_changed(before, after);
            failed = true;
            assert_int_equal(round_trip(&r, &f), DW_OK);
        }
        dw_tensor a, b;
        for (int k = 0; k < 2; k++) {
            assert_int_equal(dw_encoder_peek(r.encoder, f.keys[k], &a), DW_OK);
            assert_int_equal(dw_decoder_peek(r.decoder, f.keys[k], &b), DW_OK);
            fake->touch(true);
            assert_memory_equal(a.data, b.data, (size_t)T * 98 * 4);
            fake->touch(false);
        }
    }
    assert_int_equal(test_encoder_counters(r.encoder).frames, 4);
    assert_int_equal(test_decoder_counters(r.decoder).frames, 4);
    failed = failed || r.status;
    flight_close(&f);
    rig_close(&r);
    dw_cuda_close(cuda);
    return failed;
}

/* If the context cannot be entered, memory cannot be given back either. After all other failures,
 * no memory may be left. */
TEST(every_call_of_the_driver_may_fail)
{
    fake_cuda *fake = fake_cuda_get();
    assert_false(run_failing(-1));
    long calls = fake->calls;
    for (long n = 0; n < calls; n++) {
        long blocks = fake->blocks;
        long waits = fake->synchronizations;
        fake->forget_mode(); /* a failed call may have prevented its restoration */
        (void)run_failing(n);
        assert_int_equal(fake->synchronizations - waits,
                         strcmp(fake->failed, "cuLaunchKernel") == 0); /* waits for the copy */
        if (strcmp(fake->failed, "cuCtxPushCurrent_v2") != 0)
            assert_int_equal(fake->blocks, blocks);
    }
    fake->fail_at = -1;
    fake->forget_mode();
    print_message("%ld calls of the driver failed in turn\n", calls);
    assert_int_equal(fake->depth, 0);
    assert_int_equal(fake->retained, 0);
}

RUN_TESTS_GIVEN(rig_library)
