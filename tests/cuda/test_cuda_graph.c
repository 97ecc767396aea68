/* SPDX-License-Identifier: Apache-2.0
 * test_cuda_graph.c - frames captured in a graph: replayed with other keys, they equal those of new
 * calls. */
#include "flight.h"

enum { T = 3, C = 64 };

/* Replays of a captured encode and a captured decode give the same results as new calls on the CPU,
 * with other keys. Once every key has its memory, a replay makes no call of the driver. */
static void replay_steps(rig *r, flight *f, test_random *random, int steps)
{
    for (int step = 0; step < steps; step++) {
        long calls = fake_cuda_get()->calls;
        for (uint32_t k = 0; k < 2; k++) f->keys[k] = (dw_key){test_next(random) % 4, k};
        if (step == 0) {
            rig_capture(0);
            flight_start(r, f, random);
        } else {
            (void)flight_input(r, f, random);
            flight_twin(r, f);
            assert_int_equal(dw_encode_again(f->out, f->keys), DW_OK);
        }
        /* A captured frame cannot be started again before it is finished. */
        assert_int_equal(dw_encode_again(f->out, f->keys), DW_ERR_ARGUMENT);
        size_t unused;
        assert_int_equal(dw_encode_finish(f->out, f->head, sizeof f->head, &unused, &unused),
                         DW_PENDING);
        rig_replay(0);
        flight_end(f);
        if (step == 0) {
            rig_capture(1);
            flight_arrive(r, f);
        } else {
            assert_int_equal(dw_decode_again(f->in, f->cpu_frame, f->cpu_len, f->cpu_len), DW_OK);
        }
        assert_int_equal(dw_decode_again(f->in, f->cpu_frame, f->cpu_len, f->cpu_len),
                         DW_ERR_ARGUMENT);
        assert_int_equal(dw_decode_finish(f->in, NULL, 0, NULL), DW_PENDING);
        rig_replay(1);
        flight_land(r, f);
        rig_feedback(r);
        if (step > 25) assert_int_equal(fake_cuda_get()->calls, calls);
        for (int k = 0; k < 2; k++) rig_in_step(r, f->keys[k]);
    }
}

TEST(a_captured_frame_can_be_repeated)
{
    static const struct {
        const char *words;
        uint32_t t, c;
        dw_cuda_place place;
        int steps;
    } frames[] = {
        {"delta:bits=4,rounding=stochastic,seed=3", T, C, DW_CUDA_DEVICE, 40},
        {"delta:bits=3,group=row,prev=bf16,audit=3", T, 198, DW_CUDA_PINNED, 40},
        {"direct:bits=4", T, C, DW_CUDA_DEVICE, 40},
        {"delta:bits=3,group=channel", T, C, DW_CUDA_PINNED, 40},
        {"delta:form=mx,element=e4m3", T, C, DW_CUDA_DEVICE, 40},
        {"delta:form=step,group=sample,rounding=dither,seed=4", T, C, DW_CUDA_PINNED, 40},
        {"delta:bits=4,prev=8", T, 67, DW_CUDA_DEVICE, 40},
        {"direct:bits=4", 1030, 2048, DW_CUDA_DEVICE, 3}, /* more tiles than a grid has blocks */
    };
    test_random random = {test_seed()};
    dw_cuda *cuda = rig_open_cuda();
    for (size_t i = 0; i < sizeof frames / sizeof *frames; i++) {
        flight f = {.out = NULL};
        rig r;
        rig_open(&r, cuda, frames[i].words, 2, frames[i].t, frames[i].c, frames[i].place);
        flight_open(&f, &r);
        replay_steps(&r, &f, &random, frames[i].steps);
        rig_same_counters(&r);
        assert_int_equal(dw_encode_cancel(f.out), DW_OK);
        assert_int_equal(dw_decode_cancel(f.in), DW_OK);
        flight_close(&f);
        rig_close(&r);
    }
    rig_close_cuda(cuda);
}

/* With one bit, deltas need the kernels that search for a scale, and key entries do not. */
TEST(a_frame_that_needs_other_kernels_is_refused)
{
    test_random random = {test_seed()};
    dw_cuda *cuda = rig_open_cuda();
    flight f = {.keys = {{1, 0}, {2, 0}}};
    dw_key fresh[2] = {{3, 0}, {4, 0}};
    rig r;
    rig_open(&r, cuda, "delta:bits=1", 2, T, C, DW_CUDA_DEVICE);
    flight_open(&f, &r);
    rig_capture(0);
    flight_start(&r, &f, &random);
    rig_replay(0);
    flight_end(&f);
    dw_counters before = test_encoder_counters(r.encoder);
    assert_int_equal(dw_encode_again(f.out, f.keys), DW_ERR_UNSUPPORTED);
    assert_non_null(strstr(dw_encoder_why(r.encoder), "other kernels"));
    rig_nothing_changed(before, test_encoder_counters(r.encoder));
    memcpy(f.keys, fresh, sizeof fresh);
    (void)flight_input(&r, &f, &random);
    flight_twin(&r, &f);
    assert_int_equal(dw_encode_again(f.out, fresh), DW_OK);
    rig_replay(0);
    flight_end(&f);
    /* The decoder refuses the frame: `again` says so at once, and finish says it once more, with
     * the reply. */
    memcpy(r.frame, f.cpu_frame, r.len = f.cpu_len);
    rig_capture(1);
    flight_arrive(&r, &f);
    rig_replay(1);
    flight_land(&r, &f);
    assert_int_equal(dw_decode_again(f.in, f.cpu_frame, f.cpu_len, f.cpu_len), DW_ERR_STALE);
    assert_int_equal(dw_decode_again(f.in, f.cpu_frame, f.cpu_len, f.cpu_len), DW_ERR_ARGUMENT);
    assert_int_equal(dw_decode_finish(f.in, r.reply, r.reply_cap, &r.reply_len), DW_ERR_STALE);
    assert_true(r.reply_len > 0);
    assert_int_equal(dw_decode_finish(f.in, NULL, 0, NULL), DW_ERR_ARGUMENT);
    flight_close(&f);
    rig_close(&r); /* without having cancelled the tickets */
    rig_close_cuda(cuda);
}

/* While the thread captures, an encoder gives back memory that is too small for the captured frame,
 * and another encoder is destroyed, which gives back all of its memory. */
TEST(memory_is_given_back_while_a_stream_captures)
{
    test_random random = {test_seed()};
    dw_cuda *cuda = rig_open_cuda();
    dw_tensor x;
    dw_key keys[400];
    dw_encode_ticket *ticket;
    rig small, large;
    flight f = {.keys = {{1, 0}, {2, 0}}};
    rig_open(&small, cuda, "delta:bits=4", 2, T, C, DW_CUDA_DEVICE);
    rig_open(&large, cuda, "delta:bits=4", 400, T, C, DW_CUDA_PINNED);
    flight_open(&f, &small);
    flight_send(&small, &f, &random);
    for (uint32_t i = 0; i < 400; i++) keys[i] = (dw_key){i + 3, 0};
    x = dw_tensor_3d(large.device_x, DW_F32, 400, T, C);
    rig_capture(0);
    assert_int_equal(
        test_encode_async(small.encoder, keys, &x, large.device_frame, large.cap, NULL, &ticket),
        DW_OK);
    rig_close(&large);
    fake_cuda_get()->capturing = false;
    fake_cuda_get()->drop_graph(0);
    assert_int_equal(dw_encode_cancel(ticket), DW_OK);
    flight_close(&f);
    rig_close(&small);
    rig_close_cuda(cuda);
}

RUN_TESTS_GIVEN(rig_library)
