/* SPDX-License-Identifier: Apache-2.0
 * fuzz_decode.c - any bytes as a frame, against a decoder that holds state: rejected means
 * unchanged. */
#include "fuzz.h"

enum { N = 2, MOST = 1 << 16, FILL = 0xa5 };

static const dw_key keys[N] = {{.sample = 7}, {.sample = UINT64_MAX, .slice = UINT32_MAX}};

/* Everything of a decoder that a rejected frame must leave alone. */
typedef struct snapshot {
    uint64_t frames, keys_held, state_bytes;
    bool held[N];
    uint8_t *prev[N];
} snapshot;

typedef struct world {
    dw_config config;
    dw_encoder *encoder;
    dw_decoder *decoder;
    dw_tensor x, y;
    size_t y_bytes, cap, reply_cap;
    uint8_t *frame, *hostile, *reply;
} world;

static void take(const world *w, snapshot *s)
{
    dw_counters count = dw_decoder_counters(w->decoder);
    s->frames = count.frames;
    s->keys_held = count.keys_held;
    s->state_bytes = count.state_bytes;
    for (int i = 0; i < N; i++) {
        dw_tensor prev;
        s->held[i] = dw_decoder_peek(w->decoder, keys[i], &prev) == DW_OK;
        s->prev[i] = NULL;
        if (!s->held[i]) continue;
        size_t bytes = (size_t)prev.t * prev.c * dw_dtype_bytes(prev.dtype);
        s->prev[i] = malloc(bytes);
        REQUIRE(s->prev[i] != NULL);
        memcpy(s->prev[i], prev.data, bytes);
    }
}

static void require_unchanged(const world *w, const snapshot *before)
{
    snapshot now;
    take(w, &now);
    REQUIRE(now.frames == before->frames && now.keys_held == before->keys_held);
    REQUIRE(now.state_bytes == before->state_bytes);
    size_t bytes =
        (size_t)w->x.t * w->x.c * dw_dtype_bytes(w->config.prev ? w->config.prev : w->x.dtype);
    for (int i = 0; i < N; i++) {
        REQUIRE(now.held[i] == before->held[i]);
        if (now.held[i]) REQUIRE(memcmp(now.prev[i], before->prev[i], bytes) == 0);
        free(now.prev[i]);
    }
    const uint8_t *y = w->y.data;
    for (size_t i = 0; i < w->y_bytes; i++) REQUIRE(y[i] == FILL);
}

static void forget_snapshot(snapshot *s)
{
    for (int i = 0; i < N; i++) free(s->prev[i]);
}

static size_t encode(world *w, fuzz_input *input)
{
    size_t len = 0;
    fuzz_tensor_fill(input, &w->x);
    REQUIRE(dw_encode(w->encoder, keys, &w->x, w->frame, w->cap, &len) == DW_OK);
    REQUIRE(len <= w->cap);
    return len;
}

static dw_status decode(world *w, const uint8_t *frame, size_t len, size_t *reply_len)
{
    memset(w->y.data, FILL, w->y_bytes);
    *reply_len = 0;
    dw_status status = dw_decode(w->decoder, frame, len, &w->y, w->reply, w->reply_cap, reply_len);
    REQUIRE(*reply_len <= w->reply_cap);
    return status;
}

/* The next good frame with some bytes changed and its length, or the input's own bytes; sealed or
 * not. */
static size_t make_hostile(world *w, fuzz_input *input, size_t len)
{
    uint32_t mode = fuzz_byte(input);
    if (mode & 1) {
        memcpy(w->hostile, w->frame, len);
        for (uint32_t edits = fuzz_below(input, 16); edits > 0; edits--) {
            uint32_t at = fuzz_below(input, 1 << 16);
            if (mode & 8) at %= 176; /* header and tables: the fields */
            w->hostile[at % len] ^= fuzz_byte(input);
        }
        if (mode & 4) len = (size_t)fuzz_below(input, 1 << 16) % (len + 1);
    } else {
        len = input->left < MOST ? input->left : MOST;
        if (len > 0) memcpy(w->hostile, input->data, len);
    }
    if (mode & 2) fuzz_seal_frame(w->hostile, len);
    return len;
}

/* The inspector's reader takes the same bytes without a crash, and agrees on what is readable. */
static void inspect(const uint8_t *frame, size_t len, dw_status decoded)
{
    dw_frame_info info;
    dw_why why;
    dw_status status = dw_frame_read(frame, len, &info, &why);
    if (decoded == DW_OK) REQUIRE(status == DW_OK);
    if (status != DW_OK) {
        REQUIRE(status == DW_ERR_FORMAT || status == DW_ERR_VERSION || status == DW_ERR_CORRUPT);
        return;
    }
    dw_entry_info entry;
    dw_key key;
    for (uint32_t i = 0; i < info.n; i++) {
        REQUIRE(dw_frame_entries(frame, len, i, 1, &entry) == DW_OK);
        REQUIRE(entry.payload_offset + entry.payload_bytes <= len);
    }
    for (uint32_t i = 0; i < info.n_forgotten; i++)
        REQUIRE(dw_frame_forgotten(frame, len, i, &key) == DW_OK);
    REQUIRE(dw_frame_entries(frame, len, info.n, 1, &entry) != DW_OK);
}

static void require_in_step(const world *w)
{
    if (w->config.codec != DW_CODEC_DELTA) return;
    for (int i = 0; i < N; i++) {
        dw_tensor a, b;
        REQUIRE(dw_encoder_peek(w->encoder, keys[i], &a) == DW_OK);
        REQUIRE(dw_decoder_peek(w->decoder, keys[i], &b) == DW_OK);
        REQUIRE(memcmp(a.data, b.data, (size_t)a.t * a.c * dw_dtype_bytes(a.dtype)) == 0);
    }
}

/* The good frame, which the hostile one came before, and one round trip more where that was told.
 */
static void require_recovery(world *w, fuzz_input *input, size_t len, dw_status hostile)
{
    size_t reply_len;
    dw_status status = decode(w, w->frame, len, &reply_len);
    if (hostile == DW_ERR_STATE && status == DW_ERR_BASE) { /* the copy was given up: rule 9 */
        REQUIRE(reply_len > 0 && dw_encoder_feedback(w->encoder, w->reply, reply_len) == DW_OK);
        status = decode(w, w->frame, encode(w, input), &reply_len);
    }
    REQUIRE(status == DW_OK);
    require_in_step(w);
    if (reply_len > 0) REQUIRE(dw_encoder_feedback(w->encoder, w->reply, reply_len) == DW_OK);
    REQUIRE(decode(w, w->frame, encode(w, input), &reply_len) == DW_OK);
    require_in_step(w);
}

static void attack(world *w, fuzz_input *input)
{
    size_t reply_len, good = 0;
    for (uint32_t visits = fuzz_below(input, 3); visits > 0; visits--) {
        REQUIRE(decode(w, w->frame, encode(w, input), &reply_len) == DW_OK);
        if (reply_len > 0) REQUIRE(dw_encoder_feedback(w->encoder, w->reply, reply_len) == DW_OK);
    }
    good = encode(w, input);
    size_t len = make_hostile(w, input, good);
    snapshot before;
    take(w, &before);
    dw_status status = decode(w, w->hostile, len, &reply_len);
    inspect(w->hostile, len, status);
    if (status != DW_OK) {
        REQUIRE(status < 0 && status != DW_ERR_ARGUMENT && status != DW_ERR_NO_MEMORY);
        if (status != DW_ERR_STATE) require_unchanged(w, &before);
        if (reply_len > 0) {
            dw_reply_info info;
            REQUIRE(dw_reply_read(w->reply, reply_len, &info, NULL) == DW_OK);
        }
        require_recovery(w, input, good, status);
    }
    forget_snapshot(&before);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > MOST) return 0;
    fuzz_input input = {data, size};
    world w = {.config = fuzz_config(&input)};
    uint32_t t = 1 + fuzz_below(&input, 4), c = 1 + fuzz_below(&input, 300);
    w.y_bytes = (size_t)N * t * c * sizeof(float);
    float *x = malloc(w.y_bytes), *y = malloc(w.y_bytes);
    REQUIRE(x && y);
    w.x = dw_tensor_3d(x, DW_F32, N, t, c);
    w.y = dw_tensor_3d(y, DW_F32, N, t, c);
    w.cap = dw_frame_bound(&w.config, &w.x);
    w.reply_cap = dw_reply_bound(N);
    w.frame = malloc(w.cap);
    w.hostile = malloc(w.cap > MOST ? w.cap : MOST);
    w.reply = malloc(w.reply_cap);
    REQUIRE(w.frame && w.hostile && w.reply);
    REQUIRE(dw_encoder_create(&w.encoder, &w.config) == DW_OK);
    REQUIRE(dw_decoder_create(&w.decoder, &w.config) == DW_OK);
    attack(&w, &input);
    dw_encoder_destroy(w.encoder);
    dw_decoder_destroy(w.decoder);
    free(w.reply);
    free(w.hostile);
    free(w.frame);
    free(y);
    free(x);
    return 0;
}
