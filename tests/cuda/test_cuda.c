/* SPDX-License-Identifier: Apache-2.0
 * test_cuda.c - encoders and decoders on a device give the same bytes, states, replies and errors
 * as those on the CPU. */
#include "epochs.h"
#include "rig.h"

#include "../../cuda/slab.h"
#include "codecs/plan.h"

static const char *const configs[] = {
    "direct:bits=2,scale=signed",
    "direct:bits=4,group=32",
    "direct:bits=8,group=row",
    "direct:bits=3,group=channel,scale=mse",
    "direct:bits=1",
    "direct:bits=4,rounding=stochastic,seed=5",
    "delta:bits=2,scale=signed",
    "delta:bits=3,group=32,prev=bf16",
    "delta:bits=4,prev=f16,group=row",
    "delta:bits=1",
    "delta:bits=4,choose=never,replies=never",
    "delta:bits=7,key=3,audit=3",
    "delta:bits=3,group=channel,scale=mse,prev=f32",
    "delta:bits=2,group=row,scale=mse",
    "delta:bits=5,group=256,audit=255,rounding=stochastic,seed=9",
    "mx",
    "mx:element=e2m3",
    "delta:form=mx,element=e2m1",
    "delta:form=mx,element=int8,key=e5m2,prev=f16,audit=3",
    "delta:form=mx,element=e3m2,choose=never,prev=bf16",
    "direct:form=step,group=sample",
    "direct:form=step,group=sample,rounding=dither,step=4,seed=3",
    "direct:form=step,group=32,step=0.07",
    "delta:form=step,group=sample",
    "delta:form=step,group=row,rounding=stochastic,seed=8,prev=f16",
    "delta:form=step,group=64,rounding=dither,step=1.2,key_step=0.3,prev=bf16,audit=3",
    "delta:form=step,error=0.06,key_error=0.02,prev=bf16",
    "delta:form=step,group=sample,rounding=dither,key=raw,replies=never",
    "delta:form=step,group=row,key=f16,prev=f32,audit=255",
    "raw",
    "raw:f16,replies=never",
    "raw:bf16",
    "delta:bits=4,key=raw",
    "delta:bits=3,key=f16,prev=bf16,audit=2",
    "delta:bits=2,key=bf16,prev=f32",
    "delta:bits=4,group=channel,key=f32,prev=f16",
    "delta:bits=3,scale=mse,key=f32,prev=bf16",
    "direct:bits=2,feedback=ef",
    "direct:bits=3,group=row,scale=mse,feedback=ef",
    "direct:bits=4,group=channel,feedback=ef",
    "direct:bits=3,rounding=stochastic,seed=5,feedback=ef",
    "direct:form=step,group=sample,step=1.5,feedback=ef",
    "direct:form=step,group=64,rounding=dither,step=3,seed=2,feedback=ef",
    "mx:element=e2m1,feedback=ef",
    "raw:bf16,feedback=ef",
    "raw:f16,feedback=ef,replies=never",
};
enum { N_CONFIGS = sizeof configs / sizeof *configs };

static const epochs_shape shapes[] = {{1, 1, 1},    {3, 5, 100},  {1, 33, 96},
                                      {1, 2, 2049}, {2, 40, 128}, {2, 1, 4128}};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

TEST(frames_tensors_and_replies_equal_those_of_the_cpu)
{
    epochs_compare(configs, N_CONFIGS, shapes, N_SHAPES);
}

static const char *const rotated[] = {
    "direct:bits=4,transform=hadamard",
    "direct:bits=2,scale=signed,group=256,transform=hadamard,rotate=16",
    "direct:bits=3,scale=mse,group=16,transform=hadamard,rotate=256",
    "direct:bits=4,group=row,scale=mse,transform=hadamard,rotate=16",
    "direct:bits=1,group=row,transform=hadamard,rotate=256",
    "delta:bits=3,transform=hadamard,prev=bf16",
    "delta:bits=2,group=row,transform=hadamard,rotate=256,key=4,audit=3",
    "delta:bits=5,group=32,rounding=stochastic,seed=9,transform=hadamard,prev=f16,key=raw",
    "delta:bits=4,transform=hadamard,rotate=16,replies=never",
    "direct:bits=3,transform=hadamard,feedback=ef",
    "direct:bits=2,group=16,transform=hadamard,rotate=256,feedback=ef",
    "mx:transform=hadamard",
    "mx:element=e2m1,transform=hadamard,rotate=256,feedback=ef",
    "delta:form=mx,element=int8,transform=hadamard,rotate=16,prev=f16,audit=3",
    "direct:form=step,group=sample,transform=hadamard",
    "direct:form=step,group=sample,rounding=dither,step=4,seed=3,transform=hadamard,rotate=256",
    "direct:form=step,group=row,step=0.5,transform=hadamard,rotate=16",
    "direct:form=step,group=16,step=2,rounding=dither,transform=hadamard,rotate=256,feedback=ef",
    "delta:form=step,group=sample,transform=hadamard,prev=bf16",
    "delta:form=step,group=64,rounding=stochastic,transform=hadamard,rotate=256,audit=2",
    "delta:form=step,group=row,rounding=dither,step=1.2,transform=hadamard,key=f32,prev=f16",
    "delta:bits=2,transform=hadamard,entropy=rans",
    "direct:form=step,group=sample,rounding=dither,step=3,transform=hadamard,entropy=rans",
    "mx:element=e4m3,transform=hadamard,entropy=rans",
};

/* Numbers of channels that are multiples of 256, so that blocks of every width fit. */
static const epochs_shape rotated_shapes[] = {{1, 1, 256}, {3, 5, 768}, {2, 3, 2048}, {1, 2, 4352}};

TEST(rotated_frames_and_tensors_equal_those_of_the_cpu)
{
    epochs_compare(rotated, sizeof rotated / sizeof *rotated, rotated_shapes, 4);
}

static const char *const weighed[] = {
    "direct:form=step,profile=3",
    "direct:form=step,group=16,rounding=dither,step=2,seed=3,profile=2",
    "direct:form=step,error=0.05,profile=3",
    "delta:form=step,prev=bf16,profile=3",
    "delta:form=step,error=0.06,key_error=0.02,profile=3,audit=2",
    "delta:form=step,group=64,rounding=stochastic,step=0.7,key=f16,profile=1",
    "direct:form=step,step=0.5,profile=3,entropy=rans",
};

TEST(frames_with_profiles_equal_those_of_the_cpu)
{
    epochs_compare(weighed, sizeof weighed / sizeof *weighed, shapes, N_SHAPES);
}

/* The shape is refused before anything is enqueued, and the message names values of `rotate` that
 * would be possible. */
TEST(blocks_that_do_not_divide_a_token_are_refused)
{
    dw_encode_ticket *ticket = NULL;
    dw_key key = {1, 0};
    rig r;
    rig_open(&r, rig_open_cuda(), "direct:bits=4,transform=hadamard", 1, 2, 96, DW_CUDA_DEVICE);
    assert_int_equal(rig_encode_start(&r, &key, DW_F32, &ticket), DW_ERR_SHAPE);
    assert_null(ticket);
    assert_non_null(strstr(dw_encoder_why(r.encoder), "give rotate=16, 64 or 256"));
    rig_end(&r);
}

TEST(a_full_quota_and_forgotten_keys_are_the_same)
{
    test_random random = {test_seed()};
    dw_cuda *cuda = rig_open_cuda();
    rig r;
    for (int place = DW_CUDA_DEVICE; place <= DW_CUDA_PINNED; place++) {
        bool replies = place == DW_CUDA_DEVICE; /* without replies no frame may be lost */
        rig_open(&r, cuda,
                 replies ? "delta:bits=3,quota_bytes=6000,prev=f32"
                         : "delta:bits=3,quota_bytes=6000,prev=f32,replies=never",
                 2, 3, 64, (dw_cuda_place)place);
        for (int step = 0; step < 300; step++) {
            dw_key keys[2] = {{test_next(&random) % 10, 0}, {10 + test_next(&random) % 10, 0}};
            test_fill(&random, r.x, DW_BF16, 2 * 3 * 64, 1.0f);
            rig_encode(&r, keys, DW_BF16);
            if (step % 7 || !replies) rig_decode(&r, DW_F32);
            if (step % 7 && step % 5) rig_feedback(&r);
            for (int k = 0; k < 2 && step % 3 == 0; k++) {
                dw_key key = {test_next(&random) % 20, 0};
                rig_forget(&r, key);
            }
            for (uint32_t k = 0; k < 20; k++) rig_in_step(&r, (dw_key){k, 0});
        }
        assert_true(test_encoder_counters(r.encoder).stateless_entries > 10);
        rig_same_counters(&r);
        rig_close(&r);
    }
    rig_close_cuda(cuda);
}

/* A forgotten key comes back with a shape that is too large for the quota. Its entry is stateless,
 * and a later frame must still announce that the key was forgotten. */
TEST(a_forgotten_key_without_room_is_still_announced)
{
    test_random random = {test_seed()};
    dw_frame_info info = {.struct_size = sizeof info};
    dw_key a = {1, 0}, b = {2, 0};
    rig r;
    rig_open(&r, rig_open_cuda(), "delta:bits=4,quota_bytes=256", 1, 3, 64, DW_CUDA_DEVICE);
    test_fill(&random, r.x, DW_F32, 3 * 64, 1.0f);
    r.t = 1;
    rig_encode(&r, &a, DW_F32);
    rig_decode(&r, DW_F32);
    rig_feedback(&r);
    rig_forget(&r, a);
    r.t = 3;
    rig_encode(&r, &a, DW_F32);
    rig_decode(&r, DW_F32);
    assert_int_equal(test_encoder_counters(r.encoder).stateless_entries, 1);
    r.t = 1;
    for (int i = 0; i < 3; i++) {
        rig_encode(&r, &b, DW_F32);
        if (i == 0) assert_int_equal(dw_frame_read(r.frame, r.len, &info, NULL), DW_OK);
        rig_decode(&r, DW_F32);
        rig_feedback(&r);
    }
    assert_int_equal(info.n_forgotten, 1);
    rig_same_counters(&r);
    rig_end(&r);
}

/* Some changes to a frame are found by the host, others only by the device. The decoder on the CPU
 * must refuse the same frames. */
TEST(a_refused_frame_changes_nothing)
{
    enum { T = 5, C = 100 };
    static const char *const words[] = {"delta:bits=4,prev=f32",
                                        "delta:bits=4,prev=f32,group=channel"};
    test_random random = {test_seed()};
    dw_cuda *cuda = rig_open_cuda();
    dw_key keys[2] = {{1, 0}, {2, 0}};
    for (int w = 0; w < 2; w++) {
        rig r;
        rig_open(&r, cuda, words[w], 2, T, C, DW_CUDA_DEVICE);
        for (int step = 0; step < 200; step++) {
            test_fill(&random, r.x, DW_F32, 2 * T * C, 1.0f);
            rig_encode(&r, keys, DW_F32);
            uint8_t *whole = malloc(r.len);
            memcpy(whole, r.frame, r.len);
            size_t at = test_next(&random) % r.len, len = r.len;
            r.frame[at] ^= (uint8_t)(1u << test_next(&random) % 8);
            if (step % 11 == 0) r.len = at;
            rig_decode(&r, DW_F32);
            assert_true(r.status < 0);
            for (int k = 0; k < 2; k++) rig_in_step(&r, keys[k]);
            r.len = len;
            memcpy(r.frame, whole, len);
            free(whole);
            if (step % 5 == 0) { /* the frame is lost, so the next delta has no base */
                if (step % 10 == 0) rig_feedback(&r);
                continue;
            }
            rig_decode(&r, DW_F32);
            rig_feedback(&r);
            if (step % 3 == 0) rig_decode(&r, DW_F32); /* a duplicate */
            for (int k = 0; k < 2; k++) rig_in_step(&r, keys[k]);
        }
        rig_same_counters(&r);
        rig_close(&r);
    }
    rig_close_cuda(cuda);
}

/* A copy on the device is damaged. The digest of the next delta does not agree, so that the decoder
 * drops the copy, and a key frame restores it. */
TEST(a_damaged_copy_is_dropped)
{
    test_random random = {test_seed()};
    dw_key key = {1, 0};
    dw_tensor prev;
    dw_decode_ticket *ticket;
    rig r;
    rig_open(&r, rig_open_cuda(), "delta:bits=4", 1, 4, 64, DW_CUDA_DEVICE);
    test_fill(&random, r.x, DW_F32, 256, 1.0f);
    rig_encode(&r, &key, DW_F32);
    rig_decode(&r, DW_F32);
    rig_feedback(&r);
    assert_int_equal(dw_decoder_peek(r.decoder, key, &prev), DW_OK);
    rig_to_device((float *)prev.data + 100, &(float){12345.0f}, sizeof(float));
    rig_encode(&r, &key, DW_F32);
    assert_int_equal(rig_decode_start(&r, DW_F32, &ticket), DW_OK);
    fake_cuda_get()->run();
    assert_int_equal(dw_decode_finish(ticket, r.reply, r.reply_cap, &r.reply_len), DW_ERR_STATE);
    assert_int_equal(dw_decoder_peek(r.decoder, key, &prev), DW_ERR_ARGUMENT);
    assert_int_equal(dw_encoder_take_reply(r.encoder, r.reply, r.reply_len), DW_OK);
    dw_reply_info reply = {.struct_size = sizeof reply};
    assert_int_equal(dw_reply_read(r.reply, r.reply_len, &reply, NULL), DW_OK);
    assert_int_equal(reply.accepted, 0);
    dw_encode_ticket *again;
    dw_entry_info entry;
    assert_int_equal(rig_encode_start(&r, &key, DW_F32, &again), DW_OK);
    fake_cuda_get()->run();
    assert_int_equal(dw_encode_finish(again, r.head, r.head_cap, &r.head_len, &r.len), DW_OK);
    assert_int_equal(dw_frame_entries(r.head, r.len, 0, 1, &entry), DW_OK);
    assert_int_equal(entry.role, DW_ROLE_KEY);
    rig_end(&r);
}

/* An option that only the CPU can do is refused when an encoder or a decoder is created on a GPU.
 * The sentence begins with the option. */
TEST(options_of_the_cpu_make_no_object)
{
    static const struct {
        const char *text, *word;
    } refused[] = {{"delta:form=step,group=sample,skip=0.1", "skip"},
                   {"delta:form=step,group=sample,deadzone=0.6", "deadzone"},
                   {"delta:form=step,group=sample,rate=2,entropy=rans", "rate"},
                   {"delta:form=step,group=sample,error=0.1", "error"},
                   {"direct:form=step,group=sample,error=abs:1", "error"},
                   {"direct:bits=2,feedback=ef,decay=0.9", "decay"}};
    enum { REFUSED = sizeof refused / sizeof *refused };
    dw_cuda *cuda = rig_open_cuda();
    for (int i = 0; i < 2 * REFUSED; i++) {
        dw_encoder *encoder = (dw_encoder *)&cuda;
        dw_decoder *decoder = (dw_decoder *)&cuda;
        dw_cuda_place place = i % 2 ? DW_CUDA_PINNED : DW_CUDA_DEVICE;
        dw_config config;
        dw_why why[2] = {{{0}, 0}, {{0}, 0}};
        assert_int_equal(dw_config_parse(&config, refused[i / 2].text, NULL), DW_OK);
        assert_int_equal(dw_encoder_create(&encoder, &config, RIG_HOST(cuda, place), &why[0]),
                         DW_ERR_UNSUPPORTED);
        assert_int_equal(dw_decoder_create(&decoder, &config, RIG_HOST(cuda, place), &why[1]),
                         DW_ERR_UNSUPPORTED);
        assert_null(encoder);
        assert_null(decoder);
        for (int k = 0; k < 2; k++)
            assert_true(strstr(why[k].text, refused[i / 2].word) == why[k].text &&
                        strstr(why[k].text, "GPU"));
    }
    rig_close_cuda(cuda);
}

TEST(codecs_without_kernels_are_unsupported)
{
    static const struct {
        const char *text, *why;
    } refused[] = {
        {"topk:keep=0.1", "\"sparse\""},   {"randk:keep=0.1", "\"sparse\""},
        {"cocktail", "\"sparse\""},        {"chunk", "\"sparse\""},
        {"lowrank:rank=2", "\"lowrank\""}, {"tah", "\"tah\""},
        {"blocks:block=64", "\"blocks\""},
    };
    dw_cuda *cuda = rig_open_cuda();
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        dw_encoder *encoder;
        dw_decoder *decoder;
        dw_config config;
        dw_why why;
        assert_int_equal(dw_config_parse(&config, refused[i].text, NULL), DW_OK);
        assert_int_equal(dw_encoder_create(&encoder, &config, RIG_HOST(cuda, DW_CUDA_DEVICE), &why),
                         DW_ERR_UNSUPPORTED);
        assert_null(encoder);
        assert_non_null(strstr(why.text, refused[i].why));
        assert_int_equal(dw_decoder_create(&decoder, &config, RIG_HOST(cuda, DW_CUDA_DEVICE), &why),
                         DW_ERR_UNSUPPORTED);
        assert_null(decoder);
        assert_non_null(strstr(why.text, refused[i].why));
    }
    rig_close_cuda(cuda);
}

TEST(a_config_without_kernel_is_unsupported)
{
    dw_form unknown = {.name = "unknown"};
    dw_params params;
    dw_cuda *cuda = rig_open_cuda();
    dw_encoder *encoder;
    dw_config config;
    dw_why why;
    rig r;
    assert_int_equal(dw_config_parse(&config, "delta:key=f16", NULL), DW_OK);
    assert_int_equal(dw_params_resolve(&params, &config, DW_F32, NULL), DW_OK);
    assert_int_equal(dw_params_on_device(&params, NULL), DW_OK);
    for (int use = DW_USE_WHOLE; use < DW_USES; use++) {
        dw_params with = params;
        with.use[use].form = &unknown;
        assert_int_equal(dw_params_on_device(&with, &why), DW_ERR_UNSUPPORTED);
        assert_non_null(strstr(why.text, "\"unknown\""));
    }
    assert_int_equal(dw_config_parse(&config, "delta:key=f16", NULL), DW_OK);
    params.use[DW_USE_CHANGE].error = 0.1;
    params.use[DW_USE_CHANGE].group = DW_GROUP_SAMPLE;
    assert_int_equal(dw_params_on_device(&params, &why), DW_ERR_UNSUPPORTED);
    assert_non_null(strstr(why.text, "error"));
    params.use[DW_USE_CHANGE].error = 0;
    params.deadzone = 620;
    assert_int_equal(dw_params_on_device(&params, &why), DW_ERR_UNSUPPORTED);
    assert_non_null(strstr(why.text, "deadzone"));
    params.deadzone = 0;
    params.rate = 1;
    assert_int_equal(dw_params_on_device(&params, &why), DW_ERR_UNSUPPORTED);
    assert_non_null(strstr(why.text, "rate"));
    assert_int_equal(dw_encoder_create(&encoder, &config, RIG_HOST(cuda, (dw_cuda_place)7), &why),
                     DW_ERR_ARGUMENT);
    assert_int_equal(dw_encoder_create(&encoder, &config, RIG_HOST(NULL, DW_CUDA_DEVICE), &why),
                     DW_ERR_ARGUMENT);
    rig_open(&r, cuda, "delta:bits=4,prev=bf16", 1, 2, 64, DW_CUDA_DEVICE);
    dw_tensor x = dw_tensor_3d(r.x, DW_F32, 1, 2, 64);
    dw_key key = {1, 0};
    assert_int_equal(dw_encode(r.encoder, &key, &x, NULL, r.frame, r.cap, &r.len),
                     DW_ERR_UNSUPPORTED);
    assert_int_equal(dw_encoder_resync(r.encoder, &key, 1, r.frame, r.cap, &r.len),
                     DW_ERR_UNSUPPORTED);
    assert_non_null(strstr(dw_encoder_why(r.encoder), "dw_encoder_resync_async"));
    assert_int_equal(dw_decode(r.decoder, r.frame, r.cap, &x, NULL, NULL, 0, NULL),
                     DW_ERR_UNSUPPORTED);
    assert_non_null(strstr(dw_decoder_why(r.decoder), "dw_decode_async"));
    dw_encode_ticket *ticket = NULL;
    assert_int_equal(test_encode_async(r.cpu_encoder, &key, &x, r.frame, r.cap, NULL, &ticket),
                     DW_ERR_UNSUPPORTED);
    rig_end(&r);
}

/* A build without one of the kernels says so, and nothing changes. */
TEST(a_missing_kernel_is_named)
{
    static const char *const kernels[] = {"dw_encode_f32_bf16", "dw_floats_encode",
                                          "dw_blocks_encode", "dw_join_payloads"};
    static const char *const words[] = {"delta:bits=4,prev=bf16", "delta:key=f32,prev=bf16",
                                        "delta:form=step,group=sample,entropy=rans",
                                        "delta:form=step,group=sample,entropy=rans"};
    for (int i = 0; i < 4; i++) {
        dw_encode_ticket *ticket;
        rig r;
        fake_cuda_get()->missing = kernels[i];
        dw_cuda *cuda = rig_open_cuda();
        fake_cuda_get()->missing = NULL;
        rig_open(&r, cuda, words[i], 1, 2, 64, DW_CUDA_DEVICE);
        assert_int_equal(rig_encode_start(&r, &(dw_key){1, 0}, DW_F32, &ticket),
                         DW_ERR_UNSUPPORTED);
        assert_non_null(strstr(dw_encoder_why(r.encoder), kernels[i]));
        assert_int_equal(test_encoder_counters(r.encoder).keys_held, 0);
        rig_end(&r);
    }
}

/* Slots are reused: of sizes that share blocks of memory, and of sizes that have blocks of their
 * own. */
TEST(slots_are_reused)
{
    enum { SLOTS = 40 };
    dw_cuda *cuda = rig_open_cuda();
    test_allocator counts = {.fail_at = -1};
    dw_allocator allocator = test_allocator_hooks(&counts);
    dw_cuda_slab slab;
    dw_cuda_slab_init(&slab, cuda, false, &allocator);
    dw_store store = dw_cuda_slab_store(&slab);
    static const uint64_t sizes[] = {1, 255, 257, 70000, 70001, 3 << 20};
    void *slots[SLOTS];
    for (int round = 0; round < 3; round++) {
        long blocks = fake_cuda_get()->blocks;
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            for (int i = 0; i < SLOTS; i++) {
                slots[i] = store.take(store.context, sizes[s]);
                assert_int_equal((uintptr_t)slots[i] % 256, 0);
                fake_cuda_get()->touch(true);
                memset(slots[i], i, sizes[s]);
                fake_cuda_get()->touch(false);
            }
            fake_cuda_get()->touch(true);
            for (int i = 0; i < SLOTS; i++)
                assert_int_equal(((unsigned char *)slots[i])[sizes[s] - 1], i);
            fake_cuda_get()->touch(false);
            for (int i = 0; i < SLOTS; i++) store.give(store.context, slots[i], sizes[s]);
        }
        if (round) assert_int_equal(fake_cuda_get()->blocks, blocks);
    }
    assert_null(store.take(store.context, 0));
    assert_null(store.take(store.context, UINT64_MAX));
    dw_cuda_slab_release(&slab);
    assert_int_equal(counts.out_blocks, 0);
    rig_close_cuda(cuda);
}

/* Sizes that are not used again leave little memory allocated. When an allocation fails, free
 * blocks are given back to the driver, and the allocation is tried again. */
TEST(free_memory_goes_back_to_the_driver)
{
    enum { SLOTS = 20 };
    dw_cuda *cuda = rig_open_cuda();
    fake_cuda *fake = fake_cuda_get();
    dw_allocator allocator = dw_mem_allocator(&(dw_allocator){0});
    dw_cuda_slab slab;
    void *slots[SLOTS];
    for (int pinned = 0; pinned < 2; pinned++) {
        long blocks = fake->blocks;
        dw_cuda_slab_init(&slab, cuda, pinned != 0, &allocator);
        dw_store store = dw_cuda_slab_store(&slab);
        for (uint64_t bytes = 50000; bytes < 6 << 20; bytes += bytes / 5) {
            for (int i = 0; i < SLOTS; i++) slots[i] = store.take(store.context, bytes);
            for (int i = 0; i < SLOTS; i++) store.give(store.context, slots[i], bytes);
            assert_true(slab.pool.chunk_bytes <= 2 * SLOTS * (bytes / 16 * 17) + (2 << 20));
        }
        assert_true(fake->blocks - blocks <= 3 * SLOTS);
        for (int i = 0; i < 600; i++)
            store.give(store.context, store.take(store.context, 1000), 1000);
        assert_int_equal(fake->blocks - blocks, 1);
        assert_true(store.slack(store.context) >= 2 << 20);
        slots[0] = store.take(store.context, 3 << 20);
        store.give(store.context, slots[0], 3 << 20);
        assert_int_equal(fake->blocks - blocks, 2);
        fake->fail_at = fake->calls + 2; /* the allocation, which is the third call from now */
        slots[0] = store.take(store.context, 4 << 20);
        assert_non_null(slots[0]);
        assert_int_equal(fake->blocks - blocks, 1);
        fake->fail_at = -1;
        dw_cuda_slab_release(&slab);
        assert_int_equal(fake->blocks, blocks);
    }
    rig_close_cuda(cuda);
}

/* The same encoder encodes one sample, then many. More blocks than a grid can have are refused
 * before the tensor is read. */
TEST(launches_grow_up_to_a_grid)
{
    enum { MANY = 60 };
    dw_encode_ticket *ticket = NULL;
    dw_key keys[MANY];
    rig r;
    for (uint32_t i = 0; i < MANY; i++) keys[i] = (dw_key){i, 0};
    rig_open(&r, rig_open_cuda(), "direct:bits=4", MANY, 1, 2048, DW_CUDA_DEVICE);
    static const uint32_t samples[] = {1, 3, MANY, 2};
    for (size_t i = 0; i < 4; i++) {
        r.n = samples[i];
        rig_encode(&r, keys, DW_F32);
        rig_decode(&r, DW_F32);
    }
    void *far = (void *)((uintptr_t)1 << 50); /* so long a tensor would reach the frame */
    dw_tensor x = {far, DW_F32, 1, 1u << 31, 2048, 0, 2048};
    assert_int_equal(
        test_encode_async(r.encoder, keys, &x, r.device_frame, SIZE_MAX / 2, NULL, &ticket),
        DW_ERR_LIMIT);
    assert_non_null(strstr(dw_encoder_why(r.encoder), "grid"));
    rig_end(&r);
}

/* Tensors of more tiles than there are blocks in a grid: blocks take several tiles each. */
TEST(blocks_share_the_tiles_of_large_frames)
{
    static const char *const large[] = {"delta:bits=4", "direct:form=step,group=sample,step=4",
                                        "raw:bf16,replies=never"};
    const dw_key keys[] = {{1, 0}, {2, 0}, {3, 0}};
    test_random random = {test_seed()};
    dw_cuda *cuda = rig_open_cuda();
    rig r;
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        rig_open(&r, cuda, large[i], 3, 701, 2048, DW_CUDA_DEVICE);
        for (int visit = 0; visit < 2; visit++) {
            test_fill(&random, r.x, DW_F32, 3 * 701 * 2048, 1.0f);
            rig_encode(&r, keys, DW_F32);
            rig_decode(&r, DW_BF16);
            rig_feedback(&r);
        }
        rig_close(&r);
    }
    rig_close_cuda(cuda);
}

/* A head of the bound's size is always enough: frames announce no more forgotten keys than fit. */
TEST(heads_announce_no_more_than_fits)
{
    dw_encode_ticket *ticket;
    rig r;
    rig_open(&r, rig_open_cuda(), "delta:bits=1,key=8", 1, 8, 64, DW_CUDA_DEVICE);
    for (int round = 0; round < 2; round++)
        for (uint32_t k = 0; k < 8; k++) {
            assert_int_equal(rig_encode_start(&r, &(dw_key){k, 0}, DW_F32, &ticket), DW_OK);
            fake_cuda_get()->run();
            assert_int_equal(dw_encode_finish(ticket, r.head, r.head_cap, &r.head_len, &r.len),
                             DW_OK);
            for (uint32_t i = 1; i < 8 && k == 7 && round == 0; i++)
                assert_int_equal(dw_encoder_forget(r.encoder, (dw_key){i, 0}), DW_OK);
        }
    rig_end(&r);
}

/* The given head is shorter than the frame's length says: nothing behind its end may be read. */
TEST(nothing_is_read_behind_a_short_head)
{
    dw_key keys[2] = {{1, 0}, {2, 0}};
    dw_decode_ticket *ticket;
    rig r;
    rig_open(&r, rig_open_cuda(), "delta:bits=4", 2, 2, 64, DW_CUDA_DEVICE);
    rig_encode(&r, keys, DW_F32);
    dw_tensor y = dw_tensor_3d(r.device_y, DW_F32, 2, 2, 64);
    for (size_t head_len = 0; head_len <= r.head_len; head_len++) {
        uint8_t *head = malloc(head_len ? head_len : 1);
        memcpy(head, r.frame, head_len);
        assert_int_equal(
            test_decode_async(r.decoder, head, head_len, r.device_frame, r.len, &y, NULL, &ticket),
            DW_OK);
        free(head);
        fake_cuda_get()->run();
        assert_int_equal(dw_decode_finish(ticket, r.reply, r.reply_cap, &r.reply_len),
                         head_len < r.head_len ? DW_ERR_FORMAT : DW_OK);
    }
    rig_end(&r);
}

TEST(opening_names_the_missing_part)
{
    dw_cuda *cuda = (dw_cuda *)1;
    dw_why why;
    assert_int_equal(
        dw_cuda_open_library(&cuda, "libnothing-of-this-name.so.1", "kernels", 0, &why),
        DW_ERR_UNSUPPORTED);
    assert_non_null(strstr(why.text, "libnothing-of-this-name.so.1 cannot be loaded"));
    assert_int_equal(dw_cuda_open_library(&cuda, "libm.so.6", "kernels", 0, &why),
                     DW_ERR_UNSUPPORTED);
    assert_non_null(strstr(why.text, "libm.so.6 has no cuInit"));
    assert_int_equal(dw_cuda_open_library(&cuda, rig_library, "kernels", 3, &why),
                     DW_ERR_UNSUPPORTED);
    assert_non_null(strstr(why.text, "no device 3"));
    assert_int_equal(dw_cuda_open_library(&cuda, rig_library, NULL, 0, &why), DW_ERR_UNSUPPORTED);
    assert_non_null(strstr(why.text, "the kernels cannot be loaded"));
    assert_int_equal(dw_cuda_open(NULL, 0, &why), DW_ERR_ARGUMENT);
    dw_cuda_close(NULL);
    rig_nothing_left();
}

RUN_TESTS_GIVEN(rig_library)
