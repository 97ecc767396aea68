/* SPDX-License-Identifier: Apache-2.0
 * ledger.c - computes what residuals must be. */
#include "ledger.h"

#include <math.h>

static size_t elements(const ledger *l)
{
    return (size_t)l->t * l->c;
}

void ledger_open(ledger *l, const dw_config *config, dw_dtype dtype, uint32_t t, uint32_t c)
{
    float decay = config->decay ? (float)config->decay / 1000 : 1;
    *l = (ledger){.config = *config, .dtype = dtype, .t = t, .c = c, .decay = decay};
}

void ledger_forget(ledger *l, uint32_t which)
{
    free(l->held[which]);
    l->held[which] = NULL;
}

void ledger_forget_all(ledger *l)
{
    for (uint32_t i = 0; i < LEDGER_KEYS; i++) ledger_forget(l, i);
}

void ledger_close(ledger *l)
{
    ledger_forget_all(l);
}

bool ledger_is_kept(const ledger *l)
{
    return l->config.feedback > DW_FEEDBACK_NONE;
}

/* The number of the residual that sample n of a frame has. With feedback=lazy it is that of place
 * n, whatever the sample is. */
static uint32_t held_number(const ledger *l, uint32_t n, uint32_t which)
{
    return l->config.feedback == DW_FEEDBACK_LAZY ? 2 * n + which % 2 : which;
}

/* Decodes a frame to f32, in a decoder of its own. */
static float *decoded(const ledger *l, const uint8_t *frame, size_t len, uint32_t n)
{
    dw_decoder *decoder;
    float *y = calloc(n, elements(l) * sizeof *y);
    REQUIRE(y != NULL && dw_decoder_create(&decoder, &l->config, fuzz_host(), NULL) == DW_OK);
    dw_tensor view = dw_tensor_3d(y, DW_F32, n, l->t, l->c);
    REQUIRE(dw_decode(decoder, frame, len, &view, NULL, NULL, 0, NULL) == DW_OK);
    dw_decoder_destroy(decoder);
    return y;
}

/* Returns element (t, c) of a sample of x. */
static float at(const dw_tensor *x, uint32_t n, uint32_t t, uint32_t c)
{
    size_t i = n * (size_t)x->stride_n + t * (size_t)x->stride_t + c;
    float value;
    uint32_t bits;
    if (x->dtype == DW_F32) return ((const float *)x->data)[i];
    uint16_t half = ((const uint16_t *)x->data)[i];
    if (x->dtype == DW_BF16) {
        bits = (uint32_t)half << 16;
        memcpy(&value, &bits, sizeof value);
        return value;
    }
    int exponent = half >> 10 & 31, fraction = half & 1023;
    value = exponent == 31 ? (fraction ? NAN : INFINITY)
            : exponent     ? ldexpf((float)(fraction + 1024), exponent - 25)
                           : ldexpf((float)fraction, -24);
    return half >> 15 ? -value : value;
}

/* Requires that the encoder holds what the ledger does. Sums of values near the end of the number
 * range may overflow in one of them and not in the other, so these are not compared. */
static void compare(ledger *l, const dw_encoder *encoder, uint32_t which, bool is_compared)
{
    dw_tensor view;
    REQUIRE(dw_encoder_peek(encoder, ledger_key(which), &view) == DW_OK && view.dtype == DW_F32);
    REQUIRE(view.t == l->t && view.c == l->c);
    size_t bytes = elements(l) * sizeof *l->held[0];
    if (is_compared) REQUIRE(memcmp(view.data, l->held[which], bytes) == 0);
    memcpy(l->held[which], view.data, bytes);
}

static bool is_huge(float value)
{
    return isfinite(value) && fabsf(value) > 0x1p125f;
}

void ledger_sent(ledger *l, const dw_encoder *encoder, const uint8_t *frame, size_t len,
                 const dw_tensor *x, const uint32_t *which)
{
    dw_tensor view;
    if (!ledger_is_kept(l)) return;
    float *y = decoded(l, frame, len, x->n);
    bool drops = l->config.codec == DW_CODEC_LOWRANK && !l->config.bits &&
                 (l->config.raw ? l->config.raw : x->dtype) == DW_F16;
    for (uint32_t n = 0; n < x->n; n++) {
        uint32_t key = held_number(l, n, which[n]);
        bool is_compared = true;
        if (dw_encoder_peek(encoder, ledger_key(key), &view) != DW_OK) {
            REQUIRE(l->config.quota_bytes != 0 && !l->held[key]);
            continue;
        }
        if (!l->held[key]) l->held[key] = calloc(elements(l), sizeof(float));
        REQUIRE(l->held[key] != NULL);
        for (size_t i = 0; i < elements(l); i++) {
            float value = y[n * elements(l) + i], *held = &l->held[key][i];
            float from = at(x, n, (uint32_t)(i / l->c), (uint32_t)(i % l->c));
            volatile float sum = *held + value, rest = sum - from;
            if (is_huge(*held) || is_huge(value) || is_huge(from)) is_compared = false;
            /* A sparse codec need not send a value that is not finite. */
            if (isfinite(value) && isfinite(from)) *held = isfinite(rest) ? rest : 0.0f;
            if (isinf(value) && isfinite(from)) *held = 0;
            if (drops && fabsf(*held) >= 65520) *held = 0;
            *held *= l->decay;
        }
        compare(l, encoder, key, is_compared);
    }
    free(y);
}

void ledger_given(ledger *l, const dw_encoder *encoder, const uint8_t *frame, size_t len,
                  const uint32_t *which)
{
    dw_frame_info info = {.struct_size = sizeof info};
    REQUIRE(dw_frame_read(frame, len, &info, NULL) == DW_OK);
    float *y = decoded(l, frame, len, info.n);
    for (uint32_t n = 0; n < info.n; n++) {
        uint32_t key = held_number(l, n, which[n]);
        REQUIRE(l->held[key] != NULL);
        for (size_t i = 0; i < elements(l); i++) {
            volatile float carried = l->decay * y[n * elements(l) + i],
                           less = l->held[key][i] - carried;
            if (isfinite(less)) l->held[key][i] = less;
        }
        compare(l, encoder, key, true);
    }
    free(y);
}

void ledger_undone(ledger *l, const dw_encoder *encoder, const uint8_t *frame, size_t len,
                   const dw_tensor *x, const uint32_t *which)
{
    float *y = decoded(l, frame, len, x->n);
    for (uint32_t n = 0; n < x->n; n++) {
        uint32_t key = held_number(l, n, which[n]);
        REQUIRE(l->held[key] != NULL);
        for (size_t i = 0; i < elements(l); i++) {
            volatile float after = l->held[key][i] / l->decay,
                           less = after - y[n * elements(l) + i],
                           before = less + at(x, n, (uint32_t)(i / l->c), (uint32_t)(i % l->c));
            if (isfinite(before) || isfinite(after))
                l->held[key][i] = isfinite(before) ? before : after;
        }
        compare(l, encoder, key, true);
    }
    free(y);
}
