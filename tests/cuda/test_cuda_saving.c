/* SPDX-License-Identifier: Apache-2.0
 * test_cuda_saving.c - saved states of encoders and decoders on a device equal those of the CPU,
 * either can load them, and a failure changes nothing. */
#include "flight.h"

enum { T = 3, C = 100, MOST = 4096 };

static const dw_key keys[2] = {{7, 0}, {8, 1}};

typedef struct saved_end {
    uint8_t bytes[2][MOST];
    size_t len[2];
} saved_end;

static void visit(rig *r, test_random *random)
{
    test_fill(random, r->x, DW_F32, r->tensor_bytes / 4, 1.0f);
    rig_encode(r, keys, DW_F32);
    rig_decode(r, DW_F32);
    rig_feedback(r);
    for (int k = 0; k < 2; k++) rig_in_step(r, keys[k]);
}

static void save_encoder(dw_encoder *encoder, saved_end *saved)
{
    size_t len;
    for (int k = 0; k < 2; k++) {
        assert_int_equal(test_export_encoder(encoder, keys[k], NULL, 0, &len), DW_OK);
        dw_status status =
            test_export_encoder(encoder, keys[k], saved->bytes[k], len, &saved->len[k]);
        if (status) fail_msg("export: %d %s", status, dw_encoder_why(encoder));
        assert_int_equal(saved->len[k], len);
    }
}

static void save_decoder(dw_decoder *decoder, saved_end *saved)
{
    for (int k = 0; k < 2; k++) {
        dw_status status =
            test_export_decoder(decoder, keys[k], saved->bytes[k], MOST, &saved->len[k]);
        if (status) fail_msg("export: %d %s", status, dw_decoder_why(decoder));
    }
}

static void same_saved(const saved_end *a, const saved_end *b)
{
    for (int k = 0; k < 2; k++) {
        assert_int_equal(a->len[k], b->len[k]);
        assert_memory_equal(a->bytes[k], b->bytes[k], a->len[k]);
    }
}

static dw_status save_one(void *context, dw_key key, const void *bytes, size_t len)
{
    saved_end *saved = context;
    int k = key.sample == keys[1].sample;
    memcpy(saved->bytes[k], bytes, len);
    saved->len[k] = len;
    return DW_OK;
}

/* Loads what the device's ends saved into the CPU's ends, and the other way round. */
static void restore(rig *to, const saved_end *out, const saved_end *in)
{
    for (int k = 0; k < 2; k++) {
        assert_int_equal(dw_encoder_import(to->encoder, out->bytes[k], out->len[k]), DW_OK);
        assert_int_equal(dw_encoder_import(to->cpu_encoder, out->bytes[k], out->len[k]), DW_OK);
        assert_int_equal(dw_decoder_import(to->decoder, in->bytes[k], in->len[k]), DW_OK);
        assert_int_equal(dw_decoder_import(to->cpu_decoder, in->bytes[k], in->len[k]), DW_OK);
    }
}

TEST(states_saved_on_a_device_equal_those_of_the_cpu)
{
    static const char *const words[] = {"delta:bits=3,audit=2,prev=bf16", "delta:bits=4",
                                        "delta:bits=4,prev=8", "delta:bits=2,prev=4"};
    static saved_end out, in, cpu, all;
    test_random random = {test_seed()};
    for (int w = 0; w < 8; w++) {
        dw_cuda *cuda = rig_open_cuda();
        dw_cuda_place place = w % 2 ? DW_CUDA_PINNED : DW_CUDA_DEVICE;
        rig r, other;
        rig_open(&r, cuda, words[w / 2], 2, T, C, place);
        rig_open(&other, cuda, words[w / 2], 2, T, C, place);
        for (int step = 0; step < 3; step++) visit(&r, &random);
        long waits = fake_cuda_get()->synchronizations;
        save_encoder(r.encoder, &out);
        save_encoder(r.cpu_encoder, &cpu);
        same_saved(&out, &cpu);
        assert_int_equal(dw_encoder_export(r.encoder, NULL, save_one, &all), DW_OK);
        same_saved(&all, &out);
        save_decoder(r.decoder, &in);
        save_decoder(r.cpu_decoder, &cpu);
        same_saved(&in, &cpu);
        assert_int_equal(dw_decoder_export(r.decoder, NULL, save_one, &all), DW_OK);
        same_saved(&all, &in);
        restore(&other, &out, &in);
        for (int k = 0; k < 2; k++) rig_in_step(&other, keys[k]);
        assert_int_equal(fake_cuda_get()->synchronizations, waits); /* waited for no other stream */
        for (int step = 0; step < 3; step++) visit(&other, &random);
        assert_int_equal(test_encoder_counters(other.encoder).delta_entries, 6);
        rig_close(&r);
        rig_close(&other);
        rig_close_cuda(cuda);
    }
}

/* Neither the base of a frame in flight nor the copy that it makes can be saved. */
TEST(keys_in_flight_are_not_saved)
{
    static saved_end out, in, all;
    test_random random = {test_seed()};
    flight f = {.keys = {keys[0], {9, 0}}};
    size_t len;
    rig r;
    rig_open(&r, rig_open_cuda(), "delta:bits=4", 2, T, C, DW_CUDA_DEVICE);
    flight_open(&f, &r);
    visit(&r, &random);
    save_encoder(r.encoder, &out);
    save_decoder(r.decoder, &in);
    flight_start(&r, &f, &random);
    assert_int_equal(test_export_encoder(r.encoder, keys[0], NULL, 0, &len), DW_ERR_ARGUMENT);
    assert_non_null(strstr(dw_encoder_why(r.encoder), "finish or cancel"));
    assert_int_equal(test_export_encoder(r.encoder, keys[1], NULL, 0, &len), DW_OK);
    all.len[0] = all.len[1] = 0;
    assert_int_equal(dw_encoder_export(r.encoder, NULL, save_one, &all), DW_ERR_ARGUMENT);
    assert_int_equal(all.len[0] + all.len[1], 0);
    assert_int_equal(dw_encoder_import(r.encoder, out.bytes[0], out.len[0]), DW_ERR_ARGUMENT);
    fake_cuda_get()->run();
    flight_end(&f);
    flight_arrive(&r, &f);
    assert_int_equal(test_export_decoder(r.decoder, keys[0], NULL, 0, &len), DW_ERR_ARGUMENT);
    assert_int_equal(dw_decoder_export(r.decoder, NULL, save_one, &all), DW_ERR_ARGUMENT);
    assert_int_equal(dw_decoder_import(r.decoder, in.bytes[0], in.len[0]), DW_ERR_ARGUMENT);
    fake_cuda_get()->run();
    flight_land(&r, &f);
    rig_feedback(&r);
    visit(&r, &random);
    flight_close(&f);
    rig_end(&r);
}

/* A stream captures, but the copies for saving go through another stream, so the capture is not
 * disturbed. */
TEST(saving_does_not_disturb_a_capture)
{
    static saved_end before, after;
    test_random random = {test_seed()};
    rig r;
    rig_open(&r, rig_open_cuda(), "delta:bits=4", 2, T, C, DW_CUDA_DEVICE);
    visit(&r, &random);
    save_encoder(r.encoder, &before);
    rig_capture(0);
    assert_int_equal(dw_encoder_import(r.encoder, before.bytes[0], before.len[0]), DW_OK);
    save_encoder(r.encoder, &after);
    fake_cuda_get()->capturing = false;
    same_saved(&before, &after);
    rig_end(&r);
}

/* Exports or imports once while one call of the driver or one allocation fails: the error has a
 * sentence, and nothing changes. Returns false if nothing failed. */
static bool fails_once(rig *r, const saved_end *given, bool exports, long *fail_at)
{
    uint8_t room[MOST];
    size_t len;
    dw_counters before = test_encoder_counters(r->encoder);
    memset(room, 0xaa, sizeof room);
    dw_status status = exports ? test_export_encoder(r->encoder, keys[0], room, sizeof room, &len)
                               : dw_encoder_import(r->encoder, given->bytes[0], given->len[0]);
    *fail_at = -1;
    if (!status) return false;
    assert_true(status == DW_ERR_IO || status == DW_ERR_NO_MEMORY);
    assert_true(dw_encoder_why(r->encoder)[0] != 0);
    for (size_t i = 0; i < sizeof room; i++) assert_int_equal(room[i], 0xaa);
    rig_nothing_changed(before, test_encoder_counters(r->encoder));
    return true;
}

static long fail_in_turn(rig *r, const saved_end *given, bool exports, bool driver)
{
    long failed = 0;
    for (long n = 0, none = 0; none < 3; n++) {
        fake_cuda *fake = fake_cuda_get();
        long *fail_at = driver ? &fake->fail_at : &r->allocator.fail_at;
        fake->calls = r->allocator.calls = 0;
        *fail_at = n;
        bool has_failed = fails_once(r, given, exports, fail_at);
        fake->mode = 0; /* a failed call may have prevented its restoration */
        none = has_failed ? 0 : none + 1;
        failed += has_failed;
    }
    return failed;
}

TEST(a_failed_save_changes_nothing)
{
    static saved_end given;
    test_random random = {test_seed()};
    dw_cuda *cuda = rig_open_cuda();
    long driver = 0, memory = 0;
    rig r, fresh;
    rig_open(&r, cuda, "delta:bits=4", 2, T, C, DW_CUDA_DEVICE);
    r.allocator.only_once = true;
    visit(&r, &random);
    save_encoder(r.cpu_encoder, &given);
    for (int exports = 0; exports < 2; exports++) {
        driver += fail_in_turn(&r, &given, exports, true);
        memory += fail_in_turn(&r, &given, exports, false);
    }
    visit(&r, &random);
    /* These ends are new: a key whose import fails is not held afterwards. */
    rig_open(&fresh, cuda, "delta:bits=4", 2, T, C, DW_CUDA_DEVICE);
    fresh.allocator.only_once = true;
    assert_int_equal(dw_encoder_import(fresh.encoder, given.bytes[1], given.len[1]), DW_OK);
    fake_cuda_get()->calls = 0;
    fake_cuda_get()->fail_at = 2; /* the call that copies */
    assert_int_equal(dw_encoder_import(fresh.encoder, given.bytes[0], given.len[0]), DW_ERR_IO);
    assert_string_equal(fake_cuda_get()->failed, "cuMemcpyAsync");
    assert_int_equal(test_encoder_counters(fresh.encoder).keys_held, 1);
    fake_cuda_get()->fail_at = -1;
    assert_int_equal(dw_encoder_import(fresh.encoder, given.bytes[0], given.len[0]), DW_OK);
    print_message("%ld calls of the driver and %ld allocations failed\n", driver, memory);
    assert_true(driver >= 8 && memory >= 2);
    rig_close(&r);
    rig_close(&fresh);
    rig_close_cuda(cuda);
}

RUN_TESTS_GIVEN(rig_library)
