/* SPDX-License-Identifier: Apache-2.0
 * fuzz_reply.c - arbitrary bytes as a reply: the encoder keeps working, and its next frames are
 * accepted. */
#include "draft.h"

enum { N = 2, T = 2, C = 40, MOST = 4096 };

typedef struct pair {
    dw_encoder *encoder;
    dw_decoder *decoder;
    dw_config config;
    dw_tensor x, y;
    uint8_t *frame;
    size_t cap;
} pair;

static const dw_key keys[N] = {{.sample = 1}, {.sample = 2, .slice = 3}};

/* Checks that both ends hold the same bits of every key that one of them holds. */
static void require_in_step(const pair *p)
{
    for (int i = 0; i < N && p->config.feedback <= DW_FEEDBACK_NONE; i++) {
        dw_tensor a, b;
        dw_status sent = dw_encoder_peek(p->encoder, keys[i], &a);
        REQUIRE(dw_decoder_peek(p->decoder, keys[i], &b) == sent);
        bool kept = p->config.codec == DW_CODEC_DELTA && !p->config.quota_bytes;
        REQUIRE(sent == DW_OK || !kept);
        if (sent == DW_OK)
            REQUIRE(memcmp(a.data, b.data, (size_t)T * C * dw_dtype_bytes(a.dtype)) == 0);
    }
}

/* Sends one frame and stores the reply to it in `reply`. */
static dw_status exchange(pair *p, fuzz_input *input, uint8_t *reply, size_t *reply_len)
{
    size_t len = 0;
    fuzz_tensor_fill(input, &p->x);
    REQUIRE(fuzz_encode(p->encoder, keys, &p->x, p->frame, p->cap, &len) == DW_OK);
    *reply_len = 0;
    return dw_decode(p->decoder, p->frame, len, &p->y, NULL, reply, dw_reply_bound(N), reply_len);
}

/* The unchanged reply, the reply with a few changes and new digests, or bytes of the input. */
static size_t hostile_reply(fuzz_input *input, uint8_t *reply, size_t len)
{
    uint32_t mode = fuzz_byte(input);
    if (mode & 1) {
        for (uint32_t fields = mode >> 3 & 3; fields > 0; fields--)
            fuzz_change_reply_field(input, reply, len);
        for (uint32_t edits = mode & 32 ? fuzz_below(input, 8) : 0; edits > 0 && len > 0; edits--) {
            uint32_t at = fuzz_below(input, 512);
            reply[at % len] ^= fuzz_byte(input);
        }
        if (mode & 2) fuzz_seal_reply(reply, len);
        return mode & 4 ? fuzz_below(input, (uint32_t)len + 1) : len;
    }
    len = input->left < MOST ? input->left : MOST;
    if (len > 0) memcpy(reply, input->data, len);
    if (mode & 2) fuzz_seal_reply(reply, len);
    return len;
}

/* The functions that read replies must agree with what the encoder accepts. */
static dw_status read_whole(const uint8_t *reply, size_t len)
{
    dw_reply_info info = {.struct_size = sizeof info};
    dw_why why;
    dw_status status = dw_reply_read(reply, len, &info, &why);
    if (status != DW_OK) {
        REQUIRE(status == DW_ERR_FORMAT || status == DW_ERR_VERSION || status == DW_ERR_CORRUPT);
        REQUIRE(why.text[0] != 0);
        return status;
    }
    dw_reply_entry entry;
    for (uint32_t i = 0; i < info.n; i++)
        REQUIRE(dw_reply_entry_read(reply, len, i, &entry) == DW_OK);
    REQUIRE(dw_reply_entry_read(reply, len, info.n, &entry) != DW_OK);
    return DW_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > MOST) return 0;
    fuzz_input input = {data, size};
    static float x[N * T * C], y[N * T * C];
    static uint8_t reply[MOST > 48 + 40 * N ? MOST : 48 + 40 * N];
    pair p = {.config = fuzz_config(&input)};
    p.config.transform = (dw_transform)0; /* the shape is fixed, and replies say nothing of values
                                           */
    p.config.rotate = 0;
    if (p.config.codec == DW_CODEC_TAH)
        p.config = (dw_config){.struct_size = sizeof p.config,
                               .codec = DW_CODEC_DIRECT,
                               .incarnation = p.config.incarnation};
    fuzz_fit(&p.config, T, C);
    p.x = dw_tensor_3d(x, DW_F32, N, T, C);
    p.y = dw_tensor_3d(y, DW_F32, N, T, C);
    REQUIRE(dw_encoder_create(&p.encoder, &p.config, fuzz_host(), NULL) == DW_OK);
    REQUIRE(dw_decoder_create(&p.decoder, &p.config, fuzz_host(), NULL) == DW_OK);
    p.cap = dw_frame_bound(&p.config, &p.x);
    p.frame = malloc(p.cap);
    REQUIRE(p.frame != NULL && dw_reply_bound(N) <= sizeof reply);

    size_t len = 0;
    REQUIRE(exchange(&p, &input, reply, &len) == DW_OK);
    if ((fuzz_byte(&input) & 1) && len > 0)
        REQUIRE(dw_encoder_take_reply(p.encoder, reply, len) == DW_OK);
    REQUIRE(exchange(&p, &input, reply, &len) == DW_OK);
    len = hostile_reply(&input, reply, len);
    dw_counters before = {.struct_size = sizeof before};
    (void)dw_encoder_count(p.encoder, &before);
    dw_status readable = read_whole(reply, len),
              taken = dw_encoder_take_reply(p.encoder, reply, len);
    if (readable != DW_OK) REQUIRE(taken == readable || len == 0);
    if (taken != DW_OK) {
        dw_counters after = {.struct_size = sizeof after};
        (void)dw_encoder_count(p.encoder, &after);
        REQUIRE(memcmp(&before, &after, sizeof before) == 0);
    }
    require_in_step(&p);
    /* A forged reply must do no lasting harm: after two honest round trips both ends agree. */
    if (p.config.replies == DW_REPLIES_NEVER) REQUIRE(dw_encoder_reset(p.encoder) == DW_OK);
    dw_status status = exchange(&p, &input, reply, &len);
    for (int tries = 0; tries < 2 && status != DW_OK; tries++) {
        REQUIRE(taken == DW_OK); /* if the encoder refused the reply, it did not change */
        REQUIRE(len > 0 && dw_encoder_take_reply(p.encoder, reply, len) == DW_OK);
        status = exchange(&p, &input, reply, &len);
    }
    REQUIRE(status == DW_OK);
    require_in_step(&p);
    free(p.frame);
    dw_encoder_destroy(p.encoder);
    dw_decoder_destroy(p.decoder);
    return 0;
}
