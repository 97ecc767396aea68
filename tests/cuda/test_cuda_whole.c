/* SPDX-License-Identifier: Apache-2.0
 * test_cuda_whole.c - whole frames in the order of the stream: work that is enqueued after an
 * encode reads the same bytes as on the CPU, before finish is called. */
#include "flight.h"

#include "../../cuda/device.h"

enum { T = 3, C = 64, SENT = 4096 };

/* Stands for a send that is enqueued after the frame: copies it to memory of this program. */
static void enqueue_send(dw_cuda *cuda, const void *frame, uint8_t sent[SENT], size_t len)
{
    dw_cuda_result error;
    memset(sent, 0xee, SENT);
    assert_true(dw_cuda_enter(cuda, &error));
    error = cuda->driver.copy((dw_cuda_address)sent, (dw_cuda_address)frame, len, NULL);
    assert_int_equal(error, DW_CUDA_SUCCESS);
    dw_cuda_leave(cuda);
}

/* Starts the flight's frame on the device, and the send of it, which has the length of the whole
 * frame. */
static void start_and_send(rig *r, flight *f, test_random *random, uint8_t sent[SENT])
{
    size_t len;
    flight_start(r, f, random);
    assert_int_equal(dw_encode_length(f->out, &len), DW_OK);
    assert_int_equal(len, f->cpu_len);
    enqueue_send(r->cuda, f->device_frame, sent, len);
}

static void was_sent(const flight *f, const uint8_t sent[SENT])
{
    assert_memory_equal(sent, f->cpu_frame, f->cpu_len);
}

/* Finishes the frame, with room for a head or without. */
static void end_whole(rig *r, flight *f, bool has_head)
{
    size_t head_len = 0, len;
    uint8_t frame[SENT];
    assert_int_equal(dw_encode_finish(f->out, has_head ? f->head : NULL, sizeof f->head,
                                      has_head ? &head_len : NULL, &len),
                     DW_OK);
    assert_int_equal(len, f->cpu_len);
    rig_from_device(frame, f->device_frame, len);
    assert_memory_equal(frame, f->cpu_frame, len);
    if (has_head) assert_memory_equal(f->head, f->cpu_frame, head_len);
    memcpy(r->frame, frame, r->len = len);
}

static void forget_one(rig *r, test_random *random)
{
    dw_key key = {test_next(random) % 5, test_next(random) % 2};
    if (test_next(random) % 3) return;
    rig_forget(r, key);
}

TEST(a_later_send_gets_the_whole_frame)
{
    static const char *const words[] = {"delta:bits=4",
                                        "delta:bits=3,audit=255,prev=bf16",
                                        "direct:bits=4",
                                        "delta:bits=2,group=row,audit=3",
                                        "delta:bits=4,quota_bytes=3000,rounding=stochastic,seed=3",
                                        "raw:bf16",
                                        "mx",
                                        "delta:form=mx",
                                        "delta:form=step,group=row,rounding=dither",
                                        "direct:form=step,group=sample",
                                        "delta:bits=2,key=raw",
                                        "delta:bits=3,prev=8,audit=3"};
    test_random random = {test_seed()};
    uint8_t sent[SENT];
    for (size_t w = 0; w < sizeof words / sizeof *words; w++) {
        flight f = {.out = NULL};
        rig r;
        rig_open(&r, rig_open_cuda(), words[w], 2, T, w == 3 ? 98 : C,
                 w % 2 ? DW_CUDA_PINNED : DW_CUDA_DEVICE);
        flight_open(&f, &r);
        assert_int_equal(dw_encoder_whole_frames(r.encoder, 1), DW_OK);
        for (int step = 0; step < 30; step++) {
            size_t unused;
            for (uint32_t k = 0; k < 2; k++) f.keys[k] = (dw_key){test_next(&random) % 5, k};
            forget_one(&r, &random);
            start_and_send(&r, &f, &random, sent);
            assert_int_equal(dw_encode_finish(f.out, NULL, 0, NULL, &unused), DW_PENDING);
            fake_cuda_get()->run();
            was_sent(&f, sent);
            end_whole(&r, &f, step % 2);
            rig_decode(&r, DW_F32);
            assert_int_equal(r.status, DW_OK);
            rig_feedback(&r);
            for (int k = 0; k < 2 && r.config.codec == DW_CODEC_DELTA; k++)
                rig_in_step(&r, f.keys[k]);
        }
        rig_same_counters(&r);
        flight_close(&f);
        rig_end(&r);
    }
}

/* Tables of lengths for which XXH3 works differently, and a frame in pinned memory of the host. */
TEST(heads_of_any_length_are_completed)
{
    enum { MOST = 100, BIG = 1 << 18 };
    static const uint32_t n_samples[] = {1, 2, 3, 4, 5, 20, 21, 22, 42, 43, MOST};
    static uint8_t cpu_frame[BIG];
    test_random random = {test_seed()};
    dw_key keys[MOST];
    float *x = malloc((size_t)MOST * T * C * 4);
    for (size_t i = 0; i < sizeof n_samples / sizeof *n_samples; i++) {
        dw_cuda *cuda = rig_open_cuda();
        uint32_t n = n_samples[i];
        dw_cuda_block block;
        dw_encode_ticket *ticket;
        size_t cpu_len, len;
        rig r;
        rig_open(&r, cuda, "delta:bits=2", n, T, C, DW_CUDA_DEVICE);
        assert_int_equal(dw_cuda_allocate(cuda, true, BIG, &block), DW_CUDA_SUCCESS);
        assert_int_equal(dw_encoder_whole_frames(r.encoder, 1), DW_OK);
        for (int step = 0; step < 2; step++) {
            dw_tensor cpu_x = dw_tensor_3d(x, DW_F32, n, T, C),
                      device_x = dw_tensor_3d(r.device_x, DW_F32, n, T, C);
            for (uint32_t k = 0; k < n; k++) keys[k] = (dw_key){k, (uint32_t)step * k % 3};
            test_fill(&random, x, DW_F32, (size_t)n * T * C, 1.0f);
            rig_to_device(r.device_x, x, r.tensor_bytes);
            assert_int_equal(
                dw_encode(r.cpu_encoder, keys, &cpu_x, NULL, cpu_frame, sizeof cpu_frame, &cpu_len),
                DW_OK);
            assert_int_equal(
                test_encode_async(r.encoder, keys, &device_x, block.host, BIG, NULL, &ticket),
                DW_OK);
            fake_cuda_get()->run();
            assert_memory_equal(block.host, cpu_frame, cpu_len);
            assert_int_equal(dw_encode_finish(ticket, NULL, 0, NULL, &len), DW_OK);
            assert_int_equal(len, cpu_len);
        }
        dw_cuda_free(cuda, &block);
        rig_end(&r);
    }
    free(x);
}

/* The kernels of the payloads are done, but the one that completes the head is not. So the frame is
 * not finished, and its memory is not used again. */
TEST(finish_waits_for_the_head)
{
    test_random random = {test_seed()};
    flight f = {.keys = {{1, 0}, {2, 0}}};
    size_t len;
    rig r;
    rig_open(&r, rig_open_cuda(), "delta:bits=4", 2, T, C, DW_CUDA_DEVICE);
    flight_open(&f, &r);
    assert_int_equal(dw_encoder_whole_frames(r.encoder, 1), DW_OK);
    for (int step = 0; step < 3; step++) {
        flight_start(&r, &f, &random);
        fake_cuda_get()->run_but(1);
        assert_int_equal(dw_encode_finish(f.out, NULL, 0, NULL, &len), DW_PENDING);
        assert_int_equal(dw_encode_cancel(f.out), DW_PENDING);
        fake_cuda_get()->run();
        end_whole(&r, &f, false);
    }
    flight_close(&f);
    rig_end(&r);
}

/* An encoder that no longer makes whole frames does not change the ones that it made. */
TEST(a_finished_head_is_not_changed)
{
    test_random random = {test_seed()};
    flight whole = {.keys = {{1, 0}, {2, 0}}}, other = {.keys = {{3, 0}, {4, 0}}};
    uint8_t sent[SENT];
    rig r;
    rig_open(&r, rig_open_cuda(), "delta:bits=4", 2, T, C, DW_CUDA_DEVICE);
    flight_open(&whole, &r);
    flight_open(&other, &r);
    assert_int_equal(dw_encoder_whole_frames(r.encoder, 1), DW_OK);
    start_and_send(&r, &whole, &random, sent);
    fake_cuda_get()->run();
    end_whole(&r, &whole, false);
    assert_int_equal(dw_encoder_whole_frames(r.encoder, 0), DW_OK);
    flight_send(&r, &other, &random);
    rig_from_device(sent, whole.device_frame, whole.cpu_len);
    was_sent(&whole, sent);
    flight_close(&whole);
    flight_close(&other);
    rig_end(&r);
}

/* In a launch of three frames two are whole frames, each in its own memory. */
TEST(one_launch_makes_whole_frames_and_others)
{
    enum { MANY = 3 };
    test_random random = {test_seed()};
    dw_cuda *cuda = rig_open_cuda();
    dw_encode_item items[MANY];
    dw_tensor x[MANY];
    flight flights[MANY];
    rig rigs[MANY];
    uint8_t sent[MANY][SENT];
    static const char *const words[] = {"delta:bits=2,group=32", "delta:bits=4",
                                        "delta:bits=2,group=32"};
    flights_open(MANY, rigs, flights, cuda, words, (const uint32_t[]){2, T, C}, DW_CUDA_DEVICE);
    for (int i = 0; i < MANY; i += 2)
        assert_int_equal(dw_encoder_whole_frames(rigs[i].encoder, 1), DW_OK);
    for (int step = 0; step < 4; step++) {
        for (int i = 0; i < MANY; i++) {
            items[i] = flight_encode_item(&rigs[i], &flights[i], &x[i], &random);
        }
        assert_int_equal(dw_encode_async(items, MANY, NULL), DW_OK);
        for (int i = 0; i < MANY; i++) {
            size_t len;
            assert_int_equal(dw_encode_length(items[i].ticket, &len), DW_OK);
            enqueue_send(cuda, flights[i].device_frame, sent[i], len);
        }
        fake_cuda_get()->run();
        for (int i = MANY; i-- > 0;) {
            flights[i].out = items[i].ticket;
            if (i == 1) {
                size_t unused;
                assert_int_equal(dw_encode_finish(flights[i].out, NULL, 0, NULL, &unused),
                                 DW_ERR_ARGUMENT);
                flight_end(&flights[i]);
            } else {
                was_sent(&flights[i], sent[i]);
                end_whole(&rigs[i], &flights[i], i);
            }
        }
    }
    flights_close(MANY, rigs, flights);
    rig_close_cuda(cuda);
}

/* The encode and the send are captured together, once, for all lengths of frames. */
TEST(a_graph_sends_whole_frames)
{
    test_random random = {test_seed()};
    dw_cuda *cuda = rig_open_cuda();
    flight f = {.out = NULL};
    uint8_t sent[SENT];
    size_t len;
    rig r;
    rig_open(&r, cuda, "delta:bits=4", 2, T, C, DW_CUDA_DEVICE);
    flight_open(&f, &r);
    assert_int_equal(dw_encoder_whole_frames(r.encoder, 1), DW_OK);
    for (int step = 0; step < 40; step++) {
        for (uint32_t k = 0; k < 2; k++) f.keys[k] = (dw_key){test_next(&random) % 4, k};
        forget_one(&r, &random);
        if (step == 0) {
            rig_capture(0);
            flight_start(&r, &f, &random);
            enqueue_send(cuda, f.device_frame, sent, r.cap);
        } else {
            (void)flight_input(&r, &f, &random);
            flight_twin(&r, &f);
            assert_int_equal(dw_encode_again(f.out, f.keys), DW_OK);
        }
        assert_int_equal(dw_encode_length(f.out, &len), DW_OK);
        assert_int_equal(len, f.cpu_len);
        assert_int_equal(dw_encode_finish(f.out, NULL, 0, NULL, &len), DW_PENDING);
        rig_replay(0);
        was_sent(&f, sent);
        end_whole(&r, &f, step % 2);
        /* Replaying without dw_encode_again must not make a second frame with the same sequence:
         * what is sent then is not a valid frame. */
        if (step == 17) {
            static const uint8_t nothing[80];
            dw_frame_info info = {.struct_size = sizeof info};
            rig_replay(0);
            assert_memory_equal(sent, nothing, sizeof nothing);
            assert_int_equal(dw_frame_read(sent, f.cpu_len, &info, NULL), DW_ERR_FORMAT);
        }
        rig_decode(&r, DW_F32);
        assert_int_equal(r.status, DW_OK);
        rig_feedback(&r);
        for (int k = 0; k < 2; k++) rig_in_step(&r, f.keys[k]);
    }
    rig_same_counters(&r);
    assert_int_equal(dw_encode_cancel(f.out), DW_OK);
    flight_close(&f);
    rig_end(&r);
}

/* A frame is sent and decoded, and then cancelled by the encoder: the next frames heal that. */
TEST(a_cancelled_frame_that_was_sent_heals)
{
    test_random random = {test_seed()};
    dw_cuda *cuda = rig_open_cuda();
    flight f = {.keys = {{1, 0}, {2, 0}}};
    uint8_t sent[SENT], reply[256];
    float y[2 * T * C];
    size_t reply_len, len;
    rig r;
    rig_open(&r, cuda, "delta:bits=4", 2, T, C, DW_CUDA_DEVICE);
    flight_open(&f, &r);
    assert_int_equal(dw_encoder_whole_frames(r.encoder, 1), DW_OK);
    dw_tensor ty = dw_tensor_3d(y, DW_F32, 2, T, C);
    for (int step = 0; step < 6; step++) {
        dw_tensor x = flight_input(&r, &f, &random);
        assert_int_equal(
            test_encode_async(r.encoder, f.keys, &x, f.device_frame, r.cap, NULL, &f.out), DW_OK);
        assert_int_equal(dw_encode_length(f.out, &len), DW_OK);
        enqueue_send(cuda, f.device_frame, sent, len);
        fake_cuda_get()->run();
        dw_status status =
            dw_decode(r.cpu_decoder, sent, len, &ty, NULL, reply, sizeof reply, &reply_len);
        assert_int_equal(status, step == 3 ? DW_ERR_BASE : DW_OK);
        if (step == 2)
            assert_int_equal(dw_encode_cancel(f.out), DW_OK);
        else
            assert_int_equal(dw_encode_finish(f.out, NULL, 0, NULL, &len), DW_OK);
        if (step != 2 && reply_len)
            assert_int_equal(dw_encoder_take_reply(r.encoder, reply, reply_len), DW_OK);
    }
    flight_close(&f);
    rig_end(&r);
}

TEST(whole_frames_that_are_impossible_are_refused)
{
    test_random random = {test_seed()};
    flight f = {.keys = {{1, 0}, {2, 0}}};
    dw_encode_ticket *ticket;
    size_t len;
    rig r;
    fake_cuda_get()->missing = "dw_finalize_heads";
    rig_open(&r, rig_open_cuda(), "delta:bits=4", 2, T, C, DW_CUDA_DEVICE);
    fake_cuda_get()->missing = NULL;
    flight_open(&f, &r);
    assert_int_equal(dw_encoder_whole_frames(NULL, 1), DW_ERR_ARGUMENT);
    assert_int_equal(dw_encoder_whole_frames(r.cpu_encoder, 1), DW_ERR_UNSUPPORTED);
    assert_non_null(strstr(dw_encoder_why(r.cpu_encoder), "do not call dw_encoder_whole_frames"));
    assert_int_equal(dw_encode_length(NULL, &len), DW_ERR_ARGUMENT);
    assert_int_equal(dw_encoder_whole_frames(r.encoder, 1), DW_OK);
    long launches = fake_cuda_get()->launches;
    assert_int_equal(rig_encode_start(&r, f.keys, DW_F32, &ticket), DW_ERR_UNSUPPORTED);
    assert_non_null(strstr(dw_encoder_why(r.encoder), "dw_finalize_heads"));
    assert_int_equal(fake_cuda_get()->launches, launches);
    assert_int_equal(test_encoder_counters(r.encoder).keys_held, 0);
    assert_int_equal(dw_encoder_whole_frames(r.encoder, 0), DW_OK);
    flight_start(&r, &f, &random);
    assert_int_equal(dw_encode_length(f.out, NULL), DW_ERR_ARGUMENT);
    assert_int_equal(dw_encode_length(f.out, &len), DW_OK);
    fake_cuda_get()->run();
    assert_int_equal(dw_encode_finish(f.out, NULL, 0, NULL, &len), DW_ERR_ARGUMENT);
    flight_end(&f);
    assert_int_equal(dw_encode_length(f.out, &len), DW_ERR_ARGUMENT);
    flight_close(&f);
    rig_end(&r);
}

/* Call number n of the driver, or allocation number n, fails: nothing is started, and the call
 * waits for what it had enqueued. Returns false if nothing failed. */
static bool start_failing(rig *r, flight *f, long *calls, long *fail_at, long n)
{
    dw_tensor x = dw_tensor_3d(f->device_x, DW_F32, 2, T, C);
    dw_counters before = test_encoder_counters(r->encoder);
    long waits = fake_cuda_get()->synchronizations;
    size_t len;
    *calls = 0;
    *fail_at = n;
    dw_status status =
        test_encode_async(r->encoder, f->keys, &x, f->device_frame, r->cap, NULL, &f->out);
    *fail_at = -1;
    fake_cuda_get()->mode = 0; /* a failed call may have prevented its restoration */
    if (!status) {
        fake_cuda_get()->run();
        assert_int_equal(dw_encode_finish(f->out, NULL, 0, NULL, &len), DW_OK);
        return false;
    }
    assert_true(status == DW_ERR_IO || status == DW_ERR_NO_MEMORY);
    assert_true(dw_encoder_why(r->encoder)[0] != 0);
    if (fail_at == &fake_cuda_get()->fail_at)
        assert_int_equal(fake_cuda_get()->synchronizations - waits,
                         strcmp(fake_cuda_get()->failed, "cuLaunchKernel") == 0);
    rig_nothing_changed(before, test_encoder_counters(r->encoder));
    return true;
}

TEST(a_failed_whole_frame_starts_nothing)
{
    long driver = 0, memory = 0, none = 0;
    for (long n = 0; none < 4; n++) {
        dw_cuda *cuda = rig_open_cuda();
        fake_cuda *fake = fake_cuda_get();
        flight f = {.keys = {{1, 0}, {2, 0}}};
        rig r;
        rig_open(&r, cuda, "delta:bits=4", 2, T, C, DW_CUDA_DEVICE);
        r.allocator.only_once = true;
        flight_open(&f, &r);
        rig_to_device(f.device_x, r.x, r.tensor_bytes);
        assert_int_equal(dw_encoder_whole_frames(r.encoder, 1), DW_OK);
        bool by_driver = start_failing(&r, &f, &fake->calls, &fake->fail_at, n);
        f.keys[0].sample = 3;
        rig other;
        rig_open(&other, cuda, "delta:bits=4", 2, T, C, DW_CUDA_DEVICE);
        other.allocator.only_once = true;
        assert_int_equal(dw_encoder_whole_frames(other.encoder, 1), DW_OK);
        bool by_memory =
            start_failing(&other, &f, &other.allocator.calls, &other.allocator.fail_at, n);
        driver += by_driver;
        memory += by_memory;
        none = by_driver || by_memory ? 0 : none + 1;
        flight_close(&f);
        rig_close(&r);
        rig_close(&other);
        rig_close_cuda(cuda);
    }
    print_message("%ld calls of the driver and %ld allocations failed\n", driver, memory);
    assert_true(driver > 10 && memory > 5);
}

TEST(a_steady_state_allocates_nothing)
{
    test_random random = {test_seed()};
    flight f = {.out = NULL};
    long host = 0, device = 0;
    rig r;
    rig_open(&r, rig_open_cuda(), "delta:bits=4", 2, T, C, DW_CUDA_DEVICE);
    flight_open(&f, &r);
    assert_int_equal(dw_encoder_whole_frames(r.encoder, 1), DW_OK);
    for (int step = 0; step < 100; step++) {
        if (step == 50) {
            host = r.allocator.calls;
            device = fake_cuda_get()->allocations;
        }
        for (uint32_t k = 0; k < 2; k++) f.keys[k] = (dw_key){test_next(&random) % 4, k};
        flight_start(&r, &f, &random);
        fake_cuda_get()->run();
        end_whole(&r, &f, false);
    }
    assert_int_equal(r.allocator.calls, host);
    assert_int_equal(fake_cuda_get()->allocations, device);
    flight_close(&f);
    rig_end(&r);
}

RUN_TESTS_GIVEN(rig_library)
