/* SPDX-License-Identifier: Apache-2.0
 * test_cuda_compact.c - copies of prev in 8 and 4 bits on a device: frames, tensors, replies,
 * states and errors equal those of the CPU, and copies take as much memory as there. */
#include "epochs.h"

static const char *const configs[] = {
    "delta:bits=4,prev=8",
    "delta:bits=2,prev=4,choose=never,replies=never",
    "delta:bits=1,prev=8,audit=3",
    "delta:bits=5,group=row,key=f32,rounding=stochastic,seed=3,prev=4",
    "delta:bits=3,group=channel,scale=mse,prev=8",
    "delta:bits=3,key=raw,audit=255,prev=4",
    "delta:form=mx,element=e2m1,prev=8,audit=2",
    "delta:form=step,error=0.06,key_error=0.02,prev=4,entropy=rans",
    "delta:form=step,group=sample,rounding=dither,prev=8",
    "delta:form=step,group=row,prev=8,profile=3,entropy=rans",
    "delta:bits=3,scale=mse,key=bf16,prev=4,entropy=rans",
    "delta:form=step,group=64,step=0.7,prev=4,transform=hadamard",
};

/* Numbers of values that end within a group of 16, in its first eight and in its second, behind
 * it, and behind a stretch of 2048; rotated blocks fit the last one alone. */
static const epochs_shape shapes[] = {{1, 1, 1},    {3, 5, 67},   {1, 3, 41},
                                      {2, 16, 128}, {1, 2, 2049}, {2, 3, 1024}};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

TEST(frames_tensors_and_replies_equal_those_of_the_cpu)
{
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        int from = strstr(configs[i], "hadamard") ? N_SHAPES - 1 : 0;
        epochs_compare(configs + i, 1, shapes + from, N_SHAPES - from);
    }
}

/* There is room for the copies of some keys, to the byte. Others are forgotten, or evicted. */
TEST(quotas_and_forgotten_keys_are_the_same)
{
    test_random random = {test_seed()};
    dw_cuda *cuda = rig_open_cuda();
    for (int bits = 8; bits >= 4; bits -= 4) {
        enum { T = 3, C = 67, GROUPS = (T * C + 15) / 16 };
        uint64_t copy = (uint64_t)GROUPS * (2 * (uint64_t)bits + 1);
        char text[96];
        rig r;
        snprintf(text, sizeof text, "delta:bits=3,prev=%d,quota_bytes=%d", bits, (int)(5 * copy));
        rig_open(&r, cuda, text, 2, T, C, bits == 8 ? DW_CUDA_DEVICE : DW_CUDA_PINNED);
        for (int step = 0; step < 60; step++) {
            dw_key keys[2] = {{test_next(&random) % 4, 0}, {10 + test_next(&random) % 4, 0}};
            test_fill(&random, r.x, DW_BF16, 2 * T * C, 1.0f);
            rig_encode(&r, keys, DW_BF16);
            if (step % 7) rig_decode(&r, DW_F32);
            if (step % 7 && step % 5) rig_feedback(&r);
            dw_key key = {test_next(&random) % 4, 0};
            if (step % 4 == 0) rig_forget(&r, key);
            for (uint32_t k = 0; k < 14; k++) rig_in_step(&r, (dw_key){k, 0});
            dw_counters found = test_decoder_counters(r.decoder);
            assert_in_range(found.state_bytes, found.keys_held * copy,
                            found.keys_held * (copy + 512));
        }
        assert_true(test_encoder_counters(r.encoder).stateless_entries > 3);
        assert_true(test_encoder_counters(r.encoder).delta_entries > 10);
        rig_same_counters(&r);
        rig_close(&r);
    }
    rig_close_cuda(cuda);
}

/* A copy that is shown takes memory of the device once for its size; where there is none, that is
 * said, and nothing changes. */
TEST(what_is_shown_takes_memory_once)
{
    test_random random = {test_seed()};
    dw_key keys[2] = {{1, 0}, {2, 0}};
    dw_tensor prev = {.data = NULL};
    rig r;
    rig_open(&r, rig_open_cuda(), "delta:bits=4,prev=4", 2, 5, 67, DW_CUDA_DEVICE);
    test_fill(&random, r.x, DW_F32, 2 * 5 * 67, 1.0f);
    rig_encode(&r, keys, DW_F32);
    for (int fails = 0; fails < 3; fails++) { /* the calls that copy to main memory and back */
        fake_cuda_get()->calls = 0;
        fake_cuda_get()->fail_at = fails;
        dw_status status = dw_encoder_peek(r.encoder, keys[0], &prev);
        fake_cuda_get()->fail_at = -1;
        fake_cuda_get()->mode = 0; /* a failed call may have prevented its restoration */
        assert_true(status == DW_ERR_IO || status == DW_ERR_NO_MEMORY);
        assert_null(prev.data);
    }
    rig_in_step(&r, keys[0]);
    long host = r.allocator.calls, device = fake_cuda_get()->allocations;
    uint64_t slack = test_encoder_counters(r.encoder).slack_bytes;
    for (int i = 0; i < 20; i++) rig_in_step(&r, keys[i % 2]);
    assert_int_equal(test_encoder_counters(r.encoder).slack_bytes, slack);
    assert_int_equal(r.allocator.calls, host);
    assert_int_equal(fake_cuda_get()->allocations, device);
    rig_end(&r);
}

RUN_TESTS_GIVEN(rig_library)
