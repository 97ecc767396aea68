/* SPDX-License-Identifier: Apache-2.0
 * test_channel_device.c - channels with tensors on a device: their own options and errors, streams,
 * and a driver that fails. */
#include "../../cuda/fake_cuda.h"
#include "channel_pair.h"

/* Opens only the sender's end; the receiver opens none. */
static dw_status try_open(test_channels *channels, dw_why *why)
{
    dw_channel *channel;
    channels->config[0].open_timeout_ms = 1;
    dw_status status =
        dw_channel_open(&channel, channels->links.link[0], &channels->config[0], why);
    assert_null(channel);
    return status;
}

TEST(place_of_a_config_needs_a_device)
{
    test_channels channels;
    dw_why why;
    channels_prepare(&channels, &channels_backends[0], "delta:bits=4", "delta:bits=4");
    suite_open(&channels.links);
    dw_channel_config right = channels.config[0];
    dw_host host = *right.host;
    host.place = (dw_cuda_place)7;
    channels.config[0].host = &host;
    assert_int_equal(try_open(&channels, &why), DW_ERR_ARGUMENT);
    assert_non_null(strstr(why.text, "channel 3"));
    assert_non_null(strstr(why.text, "DW_CUDA_PINNED"));
    host.cuda = NULL;
    host.place = DW_CUDA_DEVICE;
    assert_int_equal(try_open(&channels, &why), DW_ERR_ARGUMENT);
    assert_non_null(strstr(why.text, "cuda is NULL"));
    channels.config[0] = right;
    channels.config[0].struct_size = offsetof(dw_channel_config, host); /* a struct without it */
    assert_int_equal(try_open(&channels, &why), DW_ERR_TIMEOUT);
    channels.config[0] = right;
    assert_int_equal(try_open(&channels, &why), DW_ERR_TIMEOUT);
    channels_close(&channels);
}

TEST(streams_are_for_channels_on_a_device)
{
    test_channels channels;
    channels_open(&channels, &channels_backends[0], "raw:f32");
    dw_key keys[N];
    float x[N * T * C];
    dw_tensor view = channels_make_tensor(0, keys, x);
    dw_channel *sender = channels.end[0], *receiver = channels.end[1];
    assert_int_equal(dw_channel_send(sender, NULL, &view, NULL), DW_ERR_ARGUMENT);
    assert_int_equal(dw_channel_send(sender, keys, NULL, NULL), DW_ERR_ARGUMENT);
    assert_int_equal(dw_channel_send(receiver, keys, &view, NULL), DW_ERR_ARGUMENT);
    assert_int_equal(dw_channel_send(NULL, keys, &view, NULL), DW_ERR_ARGUMENT);
    assert_int_equal(dw_channel_recv(receiver, 0, keys, NULL, NULL), DW_ERR_ARGUMENT);
    assert_int_equal(dw_channel_recv(sender, 0, keys, &view, NULL), DW_ERR_ARGUMENT);
    assert_int_equal(dw_channel_recv(NULL, 0, keys, &view, NULL), DW_ERR_ARGUMENT);
    channels_close(&channels);
    channels_prepare(&channels, &channels_backends[0], "raw:f32", "raw:f32");
    dw_channel_config with[2] = {channels.config[0], channels.config[1]};
    for (int i = 0; i < 2; i++) channels.config[i].host = NULL;
    channels_try_open(&channels);
    sender = channels.end[0], receiver = channels.end[1];
    assert_int_equal(dw_channel_send(sender, keys, &view, &view), DW_ERR_ARGUMENT);
    assert_non_null(strstr(dw_channel_why(sender), "has no cuda"));
    assert_int_equal(dw_channel_recv(receiver, 0, keys, &view, &view), DW_ERR_ARGUMENT);
    assert_non_null(strstr(dw_channel_why(receiver), "has no cuda"));
    for (int i = 0; i < 2; i++) channels.config[i] = with[i];
    channels_close(&channels);
}

/* Nothing is enqueued while a stream captures. The frame is kept for a call with another stream. */
TEST(a_stream_that_captures_is_refused)
{
    fake_cuda *fake = fake_cuda_get();
    test_channels channels;
    test_reference reference = {.next = 0};
    channels_open(&channels, &channels_backends[0], "delta:bits=4");
    test_pair_open(&reference.pair, "delta:bits=4", N, T, C, DW_F32);
    for (int i = 0; i < 6; i++) {
        dw_key keys[N];
        float x[N * T * C];
        dw_tensor view = channels_make_tensor(i, keys, x);
        long enqueued = fake->launches + fake->copies;
        fake->capturing = true;
        assert_int_equal(where_send(channels.end[0], keys, &view), DW_ERR_ARGUMENT);
        fake->capturing = false;
        assert_non_null(strstr(dw_channel_why(channels.end[0]), "capturing"));
        assert_int_equal(fake->launches + fake->copies, enqueued);
        channels_send(&channels, i);
        enqueued = fake->launches + fake->copies;
        fake->capturing = true;
        assert_int_equal(channels_receive(&channels, PATIENCE_MS, keys, x), DW_ERR_ARGUMENT);
        fake->capturing = false;
        assert_non_null(strstr(dw_channel_why(channels.end[1]), "capturing"));
        assert_int_equal(fake->launches + fake->copies, enqueued);
        channels_expect(&channels, &reference, i);
    }
    test_pair_close(&reference.pair);
    channels_close(&channels);
}

/* The result of a failed stream is lost, and may be written at any time later. So the direction
 * ends with an error. */
TEST(a_stream_that_fails_ends_its_direction)
{
    fake_cuda *fake = fake_cuda_get();
    for (int end = 0; end < 2; end++) {
        test_channels channels;
        dw_key keys[N];
        float x[N * T * C];
        channels_open(&channels, &channels_backends[0], "delta:bits=4,replies=never");
        dw_tensor view = channels_make_tensor(0, keys, x);
        if (end) channels_send(&channels, 0);
        for (int i = 0; i < 3; i++) {
            fake->broken_stream = i == 0;
            dw_status status = end ? where_recv(channels.end[1], PATIENCE_MS, keys, &view)
                                   : where_send(channels.end[0], keys, &view);
            fake->broken_stream = false;
            assert_int_equal(status, DW_ERR_IO);
            assert_non_null(strstr(dw_channel_why(channels.end[end]),
                                   i && !end ? "another channel" : "stream failed"));
        }
        channels_close(&channels);
    }
}

/* The driver fails once, at each of its calls in turn, while a tensor is sent. Either the call that
 * failed returns an error, or the tensor arrives. */
TEST(a_failing_driver_is_reported)
{
    fake_cuda *fake = fake_cuda_get();
    int failed[2] = {0};
    for (int end = 0; end < 2; end++) {
        for (long at = 0, none = 0; none < 3; at++) {
            test_channels channels;
            dw_key keys[N];
            float x[N * T * C];
            dw_status status[2];
            channels_open(&channels, &channels_backends[0], "delta:bits=4,key=raw,replies=never");
            dw_tensor view = channels_make_tensor(0, keys, x);
            for (int i = 0; i < 2; i++) {
                fake->calls = 0;
                fake->fail_at = i == end ? at : -1;
                status[i] = i ? where_recv(channels.end[1], PATIENCE_MS, keys, &view)
                              : where_send(channels.end[0], keys, &view);
                fake->fail_at = -1;
                fake->forget_mode();
                if (status[0] != DW_OK) break;
            }
            none = status[end] == DW_OK ? none + 1 : 0;
            if (status[end] != DW_OK) {
                assert_true(status[end] == DW_ERR_IO || status[end] == DW_ERR_NO_MEMORY);
                assert_string_not_equal(dw_channel_why(channels.end[end]), "");
                failed[end]++;
            }
            channels_close(&channels);
        }
        assert_true(failed[end] > 5);
    }
}

/* A receiver may request prev itself while the caller's stream is busy, so the channel encodes it
 * in a stream of its own. */
TEST(resent_states_use_a_stream_of_their_own)
{
    static unsigned char frame[1 << 16];
    test_channels channels;
    dw_key keys[N];
    float x[N * T * C];
    dw_why why;
    size_t len;
    channels_open(&channels, &channels_backends[0], "delta:bits=3");
    dw_channel *sender = channels.end[0];
    assert_int_equal(fake_cuda_get()->streams, 1);
    assert_non_null(sender->codecs.device.answers);
    assert_null(channels.end[1]->codecs.device.answers);
    channels_send(&channels, 0);
    assert_int_equal(channels_receive(&channels, PATIENCE_MS, keys, x), DW_OK);
    pthread_mutex_lock(&sender->answers.encoder_lock);
    fake_cuda_get()->last_stream = NULL;
    assert_int_equal(dw_channel_resync(&sender->codecs, keys, N, frame, sizeof frame, &len, &why),
                     DW_OK);
    assert_ptr_equal(fake_cuda_get()->last_stream, sender->codecs.device.answers);
    pthread_mutex_unlock(&sender->answers.encoder_lock);
    channels_close(&channels);
}

/* The staging memory is as large as the first frame, and must grow for a larger one. */
TEST(a_larger_tensor_gets_more_memory)
{
    enum { LARGE = 1 << 16 };
    static float x[LARGE], y[LARGE];
    static const dw_key key = {.sample = 1};
    for (int i = 0; i < LARGE; i++) x[i] = (float)i;
    for (int host = 0; host < 2; host++) {
        test_channels channels;
        channels_prepare(&channels, &channels_backends[0], "raw:f32", "raw:f32");
        dw_channel_config with = channels.config[host];
        channels.config[host].host = NULL;
        channels_try_open(&channels);
        for (uint32_t c = 16; c <= LARGE; c *= 64) {
            dw_tensor view = dw_tensor_3d(x, DW_F32, 1, 1, c),
                      out = dw_tensor_3d(y, DW_F32, 1, 1, c);
            assert_int_equal(where_send(channels.end[0], &key, &view), DW_OK);
            assert_int_equal(where_recv(channels.end[1], PATIENCE_MS, NULL, &out), DW_OK);
            assert_memory_equal(x, y, c * sizeof *x);
        }
        channels.config[host] = with;
        channels_close(&channels);
    }
}

RUN_TESTS_AFTER(where_begin(argc, argv))
