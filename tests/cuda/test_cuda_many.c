/* SPDX-License-Identifier: Apache-2.0
 * test_cuda_many.c - frames of several encoders, or for several decoders, in one launch. */
#include "flight.h"
#include "support/profiles.h"

enum { T = 3, C = 64 };
static const uint32_t shape[] = {2, T, C};
/* The tickets of up to 16 frames lie on the stack while they start; those of more are allocated. */
enum { MANY = 17 };
#define FOUR "delta:bits=2,group=32", "delta:bits=4", "delta:bits=2,group=32", "delta:bits=4"
static const char *const configs[MANY] = {FOUR, FOUR, FOUR, FOUR, "delta:bits=2,group=32"};

TEST(many_encoders_share_one_launch)
{
    test_random random = {test_seed()};
    dw_cuda *cuda = rig_open_cuda();
    fake_cuda *fake = fake_cuda_get();
    dw_encode_item items[MANY];
    dw_tensor x[MANY];
    flight flights[MANY];
    rig rigs[MANY];
    flights_open(MANY, rigs, flights, cuda, configs, shape, DW_CUDA_DEVICE);
    for (int step = 0; step < 6; step++) {
        for (int i = 0; i < MANY; i++) {
            items[i] = flight_encode_item(&rigs[i], &flights[i], &x[i], &random);
        }
        long launches = fake->launches, copies = fake->copies;
        items[MANY - 1].cap = 10; /* one frame that cannot start prevents all others */
        assert_int_equal(dw_encode_async(items, MANY, NULL), DW_ERR_BUFFER_TOO_SMALL);
        for (int i = 0; i < MANY; i++) assert_null(items[i].ticket);
        items[MANY - 1].cap = rigs[MANY - 1].cap;
        assert_int_equal(dw_encode_async(items, MANY, NULL), DW_OK);
        assert_int_equal(fake->launches, launches + 1);
        assert_int_equal(fake->copies, copies + 1);
        fake->run();
        for (int i = MANY; i-- > 0;) {
            flights[i].out = items[i].ticket;
            flight_end(&flights[i]);
        }
    }
    /* Two frames of one encoder are possible, but not with the same key in both. If one of them
     * carries a forgotten key, the other one does not announce it. */
    items[1] = items[0];
    assert_int_equal(dw_encode_async(items, 2, NULL), DW_ERR_ARGUMENT);
    items[1].keys = flights[1].keys;
    items[1].frame = flights[1].device_frame;
    assert_int_equal(dw_encoder_forget(rigs[0].encoder, flights[0].keys[1]), DW_OK);
    items[2].encoder = rigs[1].encoder;
    assert_int_equal(dw_encode_async(items, 3, NULL), DW_OK);
    fake->run();
    size_t head_len, len;
    assert_int_equal(
        dw_encode_finish(items[1].ticket, flights[1].head, sizeof flights[1].head, &head_len, &len),
        DW_OK);
    assert_int_equal(head_len, 80 + 6 * 8 + 2 * 48); /* it announces no key */
    rig_close(&rigs[0]); /* the encoder of the first item may be destroyed before the others */
    assert_int_equal(
        dw_encode_finish(items[2].ticket, flights[2].head, sizeof flights[2].head, &head_len, &len),
        DW_OK);
    for (int i = 0; i < MANY; i++) {
        if (i) rig_close(&rigs[i]);
        flight_close(&flights[i]);
    }
    rig_close_cuda(cuda);
}

/* Frames of several decoders in one launch, one of which is of another config. Either all decodes
 * start, or none. */
TEST(many_decoders_share_one_launch)
{
    enum { BROKEN = 2 };
    test_random random = {test_seed()};
    dw_cuda *cuda = rig_open_cuda();
    fake_cuda *fake = fake_cuda_get();
    dw_decode_item items[MANY];
    dw_tensor y[MANY];
    flight flights[MANY];
    rig rigs[MANY];
    flights_open(MANY, rigs, flights, cuda, configs, shape, DW_CUDA_PINNED);
    for (int step = 0; step < 6; step++) {
        for (int i = 0; i < MANY; i++) {
            flight *f = &flights[i];
            flight_send(&rigs[i], f, &random);
            items[i] = flight_decode_item(&rigs[i], f, &y[i]);
        }
        long launches = fake->launches;
        items[BROKEN].head = flights[1].cpu_frame; /* a frame of another config */
        items[BROKEN].head_len = items[BROKEN].len = flights[1].cpu_len;
        items[MANY - 1].decoder = rigs[0].decoder; /* the same keys as in the first item */
        items[MANY - 1].head = flights[0].cpu_frame;
        items[MANY - 1].head_len = items[MANY - 1].len = flights[0].cpu_len;
        assert_int_equal(dw_decode_async(items, MANY, NULL), DW_ERR_ARGUMENT);
        for (int i = 0; i < MANY; i++) assert_null(items[i].ticket);
        items[MANY - 1].decoder = rigs[MANY - 1].decoder;
        items[MANY - 1].head = flights[MANY - 1].cpu_frame;
        items[MANY - 1].head_len = items[MANY - 1].len = flights[MANY - 1].cpu_len;
        assert_int_equal(dw_decode_async(items, MANY, NULL), DW_OK);
        assert_int_equal(fake->launches, launches + 1);
        fake->run();
        assert_int_equal(dw_decode_finish(items[BROKEN].ticket, NULL, 0, NULL), DW_ERR_MISMATCH);
        flight_arrive(&rigs[BROKEN], &flights[BROKEN]);
        fake->run();
        for (int i = MANY; i-- > 0;) {
            if (i != BROKEN) flights[i].in = items[i].ticket;
            flight_land(&rigs[i], &flights[i]);
            rig_feedback(&rigs[i]);
        }
    }
    flights_close(MANY, rigs, flights);
    rig_close_cuda(cuda);
}

/* All ends of a rig get a profile with so many lists of means. means = 3: frames have no profile
 * any more. */
static void use_profile(rig *r, uint32_t means)
{
    const dw_profile *profile = means < 3 ? test_profile(means, C) : NULL;
    assert_int_equal(dw_encoder_use_profile(r->encoder, profile), DW_OK);
    assert_int_equal(dw_encoder_use_profile(r->cpu_encoder, profile), DW_OK);
    if (!profile) return;
    assert_int_equal(dw_decoder_add_profile(r->decoder, profile), DW_OK);
    assert_int_equal(dw_decoder_add_profile(r->cpu_decoder, profile), DW_OK);
}

/* Jobs of one launch have the profiles of their own ends, which may change from frame to frame, but
 * not while a frame is in flight. */
TEST(ends_that_share_a_launch_have_profiles_of_their_own)
{
    enum { FEW = 3 };
    test_random random = {test_seed()};
    dw_cuda *cuda = rig_open_cuda();
    fake_cuda *fake = fake_cuda_get();
    dw_encode_item out[FEW];
    dw_decode_item in[FEW];
    dw_tensor x[FEW];
    flight flights[FEW];
    rig rigs[FEW];
    static const char *const words[] = {"delta:form=step,profile=1", "delta:form=step",
                                        "delta:form=step"};
    flights_open(FEW, rigs, flights, cuda, words, shape, DW_CUDA_DEVICE);
    for (uint32_t step = 0; step < 8; step++) {
        for (uint32_t i = 0; i < FEW; i++) {
            if (i) use_profile(&rigs[i], (step / 2 + i) % 4);
            out[i] = flight_encode_item(&rigs[i], &flights[i], &x[i], &random);
        }
        assert_int_equal(dw_encode_async(out, FEW, NULL), DW_OK);
        assert_int_equal(dw_encoder_use_profile(rigs[1].encoder, NULL), DW_ERR_ARGUMENT);
        fake->run();
        for (uint32_t i = 0; i < FEW; i++) {
            flight *f = &flights[i];
            f->out = out[i].ticket;
            flight_end(f);
            in[i] = flight_decode_item(&rigs[i], f, &x[i]);
        }
        assert_int_equal(dw_decode_async(in, FEW, NULL), DW_OK);
        assert_int_equal(dw_decoder_add_profile(rigs[1].decoder, test_profile(0, C)),
                         DW_ERR_ARGUMENT);
        fake->run();
        for (uint32_t i = FEW; i-- > 0;) {
            flights[i].in = in[i].ticket;
            flight_land(&rigs[i], &flights[i]);
            rig_feedback(&rigs[i]);
        }
    }
    flights_close(FEW, rigs, flights);
    rig_close_cuda(cuda);
}

TEST(ends_of_two_dw_cuda_share_no_launch)
{
    test_random random = {test_seed()};
    flight flights[2];
    rig rigs[2];
    dw_encode_item out[2];
    dw_decode_item in[2];
    dw_tensor x[2];
    for (int i = 0; i < 2; i++) {
        rig_open(&rigs[i], rig_open_cuda(), configs[i], 2, T, C, DW_CUDA_DEVICE);
        flight_open(&flights[i], &rigs[i]);
        for (uint32_t k = 0; k < 2; k++) flights[i].keys[k] = (dw_key){k, 0};
        out[i] = flight_encode_item(&rigs[i], &flights[i], &x[i], &random);
        in[i] = flight_decode_item(&rigs[i], &flights[i], &x[i]);
    }
    assert_int_equal(dw_encode_async(out, 2, NULL), DW_ERR_ARGUMENT);
    assert_non_null(strstr(dw_encoder_why(rigs[1].encoder), "the same dw_cuda"));
    assert_int_equal(dw_decode_async(in, 2, NULL), DW_ERR_ARGUMENT);
    assert_non_null(strstr(dw_decoder_why(rigs[1].decoder), "the same dw_cuda"));
    for (int i = 0; i < 2; i++) {
        dw_cuda *cuda = rigs[i].cuda;
        flight_close(&flights[i]);
        rig_close(&rigs[i]);
        dw_cuda_close(cuda);
    }
    rig_nothing_left();
}

RUN_TESTS_GIVEN(rig_library)
