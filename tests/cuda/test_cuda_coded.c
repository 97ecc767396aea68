/* SPDX-License-Identifier: Apache-2.0
 * test_cuda_coded.c - entropy-coded payloads on a device: frames, tensors, states and errors equal
 * those of the CPU, although the size of a payload is known only when the device has coded it. */
#include "rig.h"

#include "support/seal.h"

static const char *const configs[] = {
    "delta:entropy=rans",
    "delta:bits=3,group=row,prev=bf16,entropy=rans",
    "delta:bits=2,choose=never,key=3,audit=3,replies=never,entropy=rans",
    "delta:bits=5,rounding=stochastic,seed=4,group=16,entropy=rans",
    "delta:form=step,group=sample,entropy=rans",
    "delta:form=step,step=0.7,group=64,prev=f16,entropy=rans",
    "delta:form=step,group=row,rounding=stochastic,seed=8,audit=2,entropy=rans",
    "delta:form=step,group=sample,rounding=dither,step=3,seed=2,entropy=rans",
    "delta:form=step,group=32,rounding=dither,key=f32,prev=bf16,entropy=rans",
    "delta:form=step,group=row,rounding=dither,key=raw,replies=never,entropy=rans",
    "delta:form=mx,element=e2m1,key=e5m2,entropy=rans",
    "delta:bits=4,scale=mse,key=f16,entropy=rans",
    "direct:bits=1,entropy=rans",
    "direct:bits=8,group=row,entropy=rans",
    "direct:form=step,group=sample,step=4,rounding=dither,entropy=rans",
    "direct:form=step,group=row,step=2,rounding=dither,seed=6,entropy=rans",
    "direct:form=step,group=sample,step=1.5,feedback=ef,entropy=rans",
    "direct:form=step,group=sample,rounding=dither,step=3,feedback=ef,entropy=rans",
    "direct:bits=3,feedback=ef,entropy=rans",
    "mx:element=e4m3,entropy=rans",
    "mx:element=e3m2,feedback=ef,entropy=rans",
};
enum { N_CONFIGS = sizeof configs / sizeof *configs };

static const struct shape {
    uint32_t n, t, c;
} shapes[] = {{1, 1, 1}, {3, 5, 100}, {2, 40, 256}, {1, 9, 4128}, {3, 50, 1000}};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

/* Fills every sample in another way, so that blocks become short, or cannot be coded: values of a
 * normal distribution, equal ones, ones of few sizes, ones of all sizes. */
static void fill(rig *r, test_random *random, dw_dtype dtype)
{
    size_t elements = (size_t)r->t * r->c;
    for (uint32_t i = 0; i < r->n; i++) {
        uint8_t *at = (uint8_t *)r->x + i * elements * dw_dtype_bytes(dtype);
        uint64_t kind = test_next(random) % 5;
        test_fill(random, at, dtype, elements, kind == 0 ? 1e-30f : 2.0f);
        for (size_t k = 0; k < elements && kind > 2; k++)
            test_set(at, dtype, k, kind == 3 ? 1.5f : (float)(k % 7 == 0));
        if (kind == 2) test_spoil(random, at, dtype, elements, test_next(random) % 2);
    }
}

/* Visits some of four keys per place again and again, so that a frame has key entries and deltas
 * side by side, which have payloads of different kinds. Some frames are lost. */
static void visit(dw_cuda *cuda, const char *config, const struct shape *s, dw_dtype dtype,
                  test_random *random)
{
    rig r;
    rig_open(&r, cuda, config, s->n, s->t, s->c,
             test_next(random) % 2 ? DW_CUDA_DEVICE : DW_CUDA_PINNED);
    for (int step = 0; step < 8; step++) {
        dw_key keys[4];
        for (uint32_t i = 0; i < s->n; i++) keys[i] = (dw_key){test_next(random) % 4, i};
        fill(&r, random, dtype);
        rig_encode(&r, keys, dtype);
        if (step != 3 || !r.config.replies) rig_decode(&r, dtype);
        if (step != 5) rig_feedback(&r);
        for (uint32_t i = 0; i < s->n; i++) rig_in_step(&r, keys[i]);
        if (step == 7 && r.config.feedback) rig_give_back(&r, keys);
    }
    rig_same_counters(&r);
    rig_close(&r);
}

TEST(frames_and_tensors_equal_those_of_the_cpu)
{
    test_random random = {test_seed()};
    dw_cuda *cuda = rig_open_cuda();
    for (int k = 0; k < N_CONFIGS; k++)
        for (int i = 0; i < N_SHAPES; i++)
            visit(cuda, configs[k], &shapes[i], (dw_dtype)(DW_F32 + (k + i) % 3), &random);
    rig_close_cuda(cuda);
}

/* Changes some bytes of a payload: of the sizes and the first fronts, or anywhere. */
static void damage(rig *r, test_random *random)
{
    dw_entry_info entry;
    uint32_t which = (uint32_t)(test_next(random) % r->n);
    assert_int_equal(dw_frame_entries(r->frame, r->len, which, 1, &entry), DW_OK);
    uint64_t most = entry.payload_bytes;
    if (test_next(random) % 4 && most > 200) most = 200;
    for (uint64_t i = 0; i < 1 + test_next(random) % 3; i++)
        r->frame[entry.payload_offset + test_next(random) % most] ^=
            (uint8_t)(1u << test_next(random) % 8);
}

/* A payload whose digests are right may still break a rule. The device finds the same rule as the
 * CPU, and nothing changes; nor does it where a digest is wrong. */
TEST(damaged_payloads_are_refused_as_by_the_cpu)
{
    static const char *const words[] = {
        "delta:form=step,group=sample,rounding=dither,step=3,entropy=rans",
        "delta:bits=3,group=row,entropy=rans", "direct:form=step,group=sample,step=4,entropy=rans"};
    test_random random = {test_seed()};
    dw_cuda *cuda = rig_open_cuda();
    dw_key keys[2] = {{1, 0}, {2, 0}};
    int refused = 0;
    for (size_t w = 0; w < sizeof words / sizeof *words; w++) {
        rig r;
        rig_open(&r, cuda, words[w], 2, 20, 500, DW_CUDA_DEVICE);
        for (int step = 0; step < 40; step++) {
            test_fill(&random, r.x, DW_F32, 2 * 20 * 500, 1.0f);
            rig_encode(&r, keys, DW_F32);
            uint8_t *whole = malloc(r.len);
            memcpy(whole, r.frame, r.len);
            damage(&r, &random);
            if (step % 8) test_seal(r.frame, r.len);
            rig_decode(&r, DW_F32);
            assert_true(step % 8 || r.status == DW_ERR_CORRUPT || r.status == DW_ERR_BASE);
            if (r.status)
                assert_string_equal(dw_decoder_why(r.decoder), dw_decoder_why(r.cpu_decoder));
            refused += r.status == DW_ERR_FORMAT;
            for (int k = 0; k < 2; k++) rig_in_step(&r, keys[k]);
            memcpy(r.frame, whole, r.len);
            free(whole);
            rig_decode(&r, DW_F32);
            rig_feedback(&r);
            for (int k = 0; k < 2; k++) rig_in_step(&r, keys[k]);
        }
        rig_same_counters(&r);
        rig_close(&r);
    }
    assert_true(refused > 40);
    rig_close_cuda(cuda);
}

/* Encodes on the CPU, and starts the same frame on the device. */
static void start(rig *r, const dw_key *keys, dw_encode_ticket **ticket, test_random *random)
{
    dw_tensor x = dw_tensor_3d(r->x, DW_F32, r->n, r->t, r->c);
    fill(r, random, DW_F32);
    assert_int_equal(dw_encode(r->cpu_encoder, keys, &x, NULL, r->cpu_frame, r->cap, &r->len),
                     DW_OK);
    if (*ticket) {
        rig_to_device(r->device_x, r->x, r->tensor_bytes);
        assert_int_equal(dw_encode_again(*ticket, keys), DW_OK);
    } else {
        assert_int_equal(rig_encode_start(r, keys, DW_F32, ticket), DW_OK);
    }
}

/* Whole frames lie complete in the frame's memory when the stream has done its work: with sizes
 * and a length that the host does not know before. */
TEST(whole_frames_have_the_sizes_that_payloads_became)
{
    static const char *const words[] = {
        "delta:form=step,group=sample,key=f32,entropy=rans", "delta:bits=3,group=row,entropy=rans",
        "direct:form=step,group=sample,step=4,rounding=dither,entropy=rans"};
    test_random random = {test_seed()};
    dw_cuda *cuda = rig_open_cuda();
    int shorter = 0;
    for (size_t w = 0; w < sizeof words / sizeof *words; w++) {
        enum { N = 9 };
        rig r;
        rig_open(&r, cuda, words[w], N, 12, 256, DW_CUDA_DEVICE);
        assert_int_equal(dw_encoder_whole_frames(r.encoder, 1), DW_OK);
        for (int step = 0; step < 6; step++) {
            dw_key keys[N];
            dw_encode_ticket *ticket = NULL;
            size_t most, len;
            for (uint32_t i = 0; i < N; i++) keys[i] = (dw_key){test_next(&random) % 3, i};
            start(&r, keys, &ticket, &random);
            assert_int_equal(dw_encode_length(ticket, &most), DW_OK);
            fake_cuda_get()->run();
            rig_from_device(r.frame, r.device_frame, r.len);
            assert_memory_equal(r.frame, r.cpu_frame, r.len);
            assert_int_equal(dw_encode_finish(ticket, NULL, 0, NULL, &len), DW_OK);
            assert_int_equal(len, r.len);
            assert_in_range(len, 1, most);
            shorter += len < most;
            rig_decode(&r, DW_F32);
            assert_int_equal(r.status, DW_OK);
            rig_feedback(&r);
        }
        rig_same_counters(&r);
        rig_close(&r);
    }
    assert_true(shorter > 12);
    rig_close_cuda(cuda);
}

/* Captured frames can be repeated, although each has another length. When every key has its memory,
 * neither the host nor the device allocates anything. */
TEST(captured_frames_differ_in_length)
{
    test_random random = {test_seed()};
    rig r;
    size_t lengths[20], different = 0;
    dw_encode_ticket *out = NULL;
    dw_decode_ticket *in = NULL;
    rig_open(&r, rig_open_cuda(), "delta:form=step,group=sample,rounding=dither,entropy=rans", 2,
             12, 256, DW_CUDA_DEVICE);
    for (int step = 0; step < 20; step++) {
        dw_key keys[2] = {{0, 0}, {1, 0}};
        long calls = fake_cuda_get()->calls;
        int64_t allocations = r.allocator.calls;
        if (!out) rig_capture(0);
        start(&r, keys, &out, &random);
        rig_replay(0);
        rig_encode_end(&r, out);
        lengths[step] = r.len;
        different += step && r.len != lengths[step - 1];
        memcpy(r.head, r.frame, r.head_len);
        dw_tensor y = dw_tensor_3d(r.cpu_y, DW_F32, r.n, r.t, r.c);
        assert_int_equal(dw_decode(r.cpu_decoder, r.frame, r.len, &y, NULL, r.cpu_reply,
                                   r.reply_cap, &r.cpu_reply_len),
                         DW_OK);
        if (!in) {
            rig_capture(1);
            assert_int_equal(rig_decode_start(&r, DW_F32, &in), DW_OK);
        } else {
            rig_to_device(r.device_frame, r.frame, r.len);
            assert_int_equal(dw_decode_again(in, r.frame, r.len, r.len), DW_OK);
        }
        rig_replay(1);
        assert_int_equal(dw_decode_finish(in, r.reply, r.reply_cap, &r.reply_len), DW_OK);
        rig_from_device(r.y, r.device_y, r.tensor_bytes);
        assert_memory_equal(r.y, r.cpu_y, r.tensor_bytes);
        rig_feedback(&r);
        for (int k = 0; k < 2; k++) rig_in_step(&r, keys[k]);
        if (step > 12) {
            assert_int_equal(fake_cuda_get()->calls, calls);
            assert_int_equal(r.allocator.calls, allocations);
        }
    }
    assert_true(different > 5);
    assert_int_equal(dw_encode_cancel(out), DW_OK);
    assert_int_equal(dw_decode_cancel(in), DW_OK);
    rig_same_counters(&r);
    rig_end(&r);
}

/* Frames of several encoders in one launch, with and without coding: each is joined by itself. */
TEST(frames_of_one_launch_are_joined_alone)
{
    enum { RIGS = 4 };
    static const char *const words[RIGS] = {
        "delta:form=step,group=sample,key=f32,entropy=rans", "delta:bits=4",
        "direct:form=step,group=sample,step=4,rounding=dither,entropy=rans",
        "mx:element=e2m1,entropy=rans"};
    test_random random = {test_seed()};
    dw_cuda *cuda = rig_open_cuda();
    rig rigs[RIGS];
    for (int i = 0; i < RIGS; i++)
        rig_open(&rigs[i], cuda, words[i], 3, 12, 300, i % 2 ? DW_CUDA_PINNED : DW_CUDA_DEVICE);
    for (int step = 0; step < 6; step++) {
        dw_encode_item items[RIGS];
        dw_tensor x[RIGS];
        dw_key keys[RIGS][3];
        for (int i = 0; i < RIGS; i++) {
            rig *r = &rigs[i];
            for (uint32_t k = 0; k < 3; k++) keys[i][k] = (dw_key){test_next(&random) % 3, k};
            fill(r, &random, DW_F32);
            dw_tensor on_host = dw_tensor_3d(r->x, DW_F32, 3, r->t, r->c);
            assert_int_equal(
                dw_encode(r->cpu_encoder, keys[i], &on_host, NULL, r->cpu_frame, r->cap, &r->len),
                DW_OK);
            rig_to_device(r->device_x, r->x, r->tensor_bytes);
            x[i] = dw_tensor_3d(r->device_x, DW_F32, 3, r->t, r->c);
            items[i] = (dw_encode_item){r->encoder, keys[i], &x[i], r->device_frame, r->cap, NULL};
        }
        assert_int_equal(dw_encode_async(items, RIGS, NULL), DW_OK);
        fake_cuda_get()->run();
        for (int i = 0; i < RIGS; i++) {
            rig_encode_end(&rigs[i], items[i].ticket);
            rig_decode(&rigs[i], DW_F32);
            assert_int_equal(rigs[i].status, DW_OK);
            rig_feedback(&rigs[i]);
        }
    }
    for (int i = 0; i < RIGS; i++) rig_close(&rigs[i]);
    rig_close_cuda(cuda);
}

RUN_TESTS_GIVEN(rig_library)
