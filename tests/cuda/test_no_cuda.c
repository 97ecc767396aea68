/* SPDX-License-Identifier: Apache-2.0
 * test_no_cuda.c - every build on every machine either opens a device or returns a sentence that
 * says why it cannot; it never falls back to the CPU silently. */
#include "deltawire/cuda.h"
#include "support/async.h"
#include "support/tool.h"

TEST(opening_gives_a_device_or_a_sentence)
{
    dw_cuda *cuda = (dw_cuda *)1;
    dw_why why = {.text = ""};
    dw_status status = dw_cuda_open(&cuda, 0, &why);
    print_message("%s\n", status ? why.text : "there is a device");
    if (status == DW_OK) {
        dw_cuda_close(cuda);
        return;
    }
    assert_int_equal(status, DW_ERR_UNSUPPORTED);
    assert_null(cuda);
    assert_true(strlen(why.text) > 20);
    assert_int_equal(why.offset, -1);
    assert_int_equal(dw_cuda_open(&cuda, 0, NULL), DW_ERR_UNSUPPORTED);
    assert_int_equal(dw_cuda_open(NULL, 0, &why), DW_ERR_ARGUMENT);
    dw_cuda_close(NULL);
}

TEST(nothing_is_created_without_a_device)
{
    dw_config config = {.struct_size = sizeof config};
    dw_encoder *encoder = (dw_encoder *)1;
    dw_decoder *decoder = (dw_decoder *)1;
    assert_int_equal(
        dw_encoder_create(
            &encoder, &config,
            &(dw_host){.struct_size = sizeof(dw_host), .cuda = NULL, .place = DW_CUDA_DEVICE},
            NULL),
        DW_ERR_ARGUMENT);
    assert_int_equal(
        dw_decoder_create(
            &decoder, &config,
            &(dw_host){.struct_size = sizeof(dw_host), .cuda = NULL, .place = DW_CUDA_DEVICE},
            NULL),
        DW_ERR_ARGUMENT);
    assert_null(encoder);
    assert_null(decoder);
}

TEST(ends_on_the_cpu_refuse_asynchronous_calls)
{
    _Alignas(16) float x[64] = {0};
    _Alignas(16) uint8_t frame[1024];
    dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, 1, 64);
    dw_encode_ticket *out = NULL;
    dw_decode_ticket *in = NULL;
    test_pair pair;
    test_pair_open(&pair, "delta", 1, 1, 64, DW_F32);
    assert_int_equal(
        test_encode_async(pair.encoder, &(dw_key){1, 0}, &tx, frame, sizeof frame, NULL, &out),
        DW_ERR_UNSUPPORTED);
    assert_non_null(strstr(dw_encoder_why(pair.encoder), "call dw_encode"));
    assert_int_equal(
        test_decode_async(pair.decoder, frame, 80, frame, sizeof frame, &tx, NULL, &in),
        DW_ERR_UNSUPPORTED);
    assert_non_null(strstr(dw_decoder_why(pair.decoder), "call dw_decode"));
    assert_true(!out && !in);
    assert_int_equal(dw_encode_finish(NULL, frame, 80, NULL, NULL), DW_ERR_ARGUMENT);
    assert_int_equal(dw_encode_cancel(NULL), DW_ERR_ARGUMENT);
    assert_int_equal(dw_encode_again(NULL, NULL), DW_ERR_ARGUMENT);
    assert_int_equal(dw_decode_finish(NULL, NULL, 0, NULL), DW_ERR_ARGUMENT);
    assert_int_equal(dw_decode_cancel(NULL), DW_ERR_ARGUMENT);
    assert_int_equal(dw_decode_again(NULL, frame, 80, 80), DW_ERR_ARGUMENT);
    assert_int_equal(dw_frame_head_bound(1), 80 + 32 * 8 + 48 + 16);
    test_pair_close(&pair);
}

RUN_TESTS(NULL, NULL)
