/* SPDX-License-Identifier: Apache-2.0
 * several.c - test channels with several configs, and checks of the tensors that they deliver. */
#include "several.h"

void several_give(test_channels *channels, several *s, int end, const char *texts)
{
    char text[DW_CONFIG_TEXT_BYTES];
    dw_channel_auto *given = &s->autos[end];
    *given = (dw_channel_auto){.struct_size = sizeof *given, .candidates = s->lists[end]};
    if (!texts) return;
    for (const char *at = texts; *at;) {
        size_t len = strcspn(at, "|");
        snprintf(text, sizeof text, "%.*s", (int)len, at);
        assert_int_equal(dw_config_parse(&s->configs[end][given->n], text, NULL), DW_OK);
        s->lists[end][given->n] = &s->configs[end][given->n];
        given->n++;
        at += len + (at[len] == '|');
    }
    if (end == 0)
        channels->config[0].auto_send = given;
    else
        channels->config[1].auto_recv = given;
}

void several_prepare(test_channels *channels, several *s, const suite_backend *backend,
                     const char *texts)
{
    channels_prepare(channels, backend, NULL, NULL);
    several_give(channels, s, 0, texts);
    several_give(channels, s, 1, texts);
}

void several_open(test_channels *channels)
{
    channels_try_open(channels);
    for (int i = 0; i < 2; i++)
        if (channels->status[i] != DW_OK) fail_msg("end %d: %s", i, channels->why[i].text);
}

void several_force(dw_channel *sender, uint32_t candidate)
{
    pthread_mutex_lock(&sender->encoder_lock);
    sender->choice.now = candidate;
    sender->choice.frames = 0;
    pthread_mutex_unlock(&sender->encoder_lock);
}

dw_choice several_measured(test_channels *channels)
{
    dw_channel *sender = channels->end[0];
    dw_channel_wait_acknowledged(sender);
    pthread_mutex_lock(&sender->encoder_lock);
    dw_choice choice = sender->choice;
    pthread_mutex_unlock(&sender->encoder_lock);
    return choice;
}

void several_begin(references *r, const several *s)
{
    char text[DW_CONFIG_TEXT_BYTES];
    r->n = s->autos[0].n;
    for (uint32_t i = 0; i < r->n; i++) {
        assert_int_equal(dw_config_format(&s->configs[0][i], text, sizeof text), DW_OK);
        test_pair_open(&r->pairs[i], text, N, T, C, DW_F32);
    }
}

void several_end(references *r)
{
    for (uint32_t i = 0; i < r->n; i++) test_pair_close(&r->pairs[i]);
}

void several_expect(test_channels *channels, references *r, int i, uint32_t candidate)
{
    dw_key keys[N], got_keys[N];
    float x[N * T * C], y[N * T * C], got[N * T * C];
    test_pair *pair = &r->pairs[candidate];
    channels_make_tensor(i, keys, x);
    dw_tensor view = dw_tensor_3d(x, DW_F32, N, T, C), out = dw_tensor_3d(y, DW_F32, N, T, C);
    test_pair_encode(pair, keys, &view);
    assert_int_equal(test_pair_decode(pair, &out), DW_OK);
    if (pair->reply_len > 0) test_pair_feedback(pair);
    dw_status status = channels_receive(channels, PATIENCE_MS, got_keys, got);
    if (status != DW_OK)
        fail_msg("tensor %d: %d, %s", i, (int)status, dw_channel_why(channels->end[1]));
    if (memcmp(got, y, TENSOR_BYTES) != 0) fail_msg("tensor %d of candidate %u", i, candidate);
    assert_int_equal(got_keys[0].sample, keys[0].sample);
}
