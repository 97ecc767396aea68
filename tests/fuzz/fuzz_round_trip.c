/* SPDX-License-Identifier: Apache-2.0
 * fuzz_round_trip.c - two ends and a faulty network: frames and replies are lost, duplicated,
 * reordered and damaged, and ends restart. Accepted frames are correct, and everything recovers
 * when the faults stop. */
#include <math.h>

#include "fuzz.h"
#include "ledger.h"
#include "reach.h"
#include "support/profiles.h"

enum { KEYS = 5, IN_FLIGHT = 4, MOST_N = 3, MOST_STEPS = 40, LIVES = 8 };

/* What the corpus must reach: a decoder accepted a frame that was encoded with this. */
const char *const fuzz_goals[] = {"entropy-coded",
                                  "entropy-coded, with dither",
                                  "entropy-coded, along a trellis",
                                  "error=",
                                  "error=abs:",
                                  "rate=",
                                  "deadzone=",
                                  "an entry of role skip",
                                  "feedback=",
                                  "a frame that is given back",
                                  "decay=",
                                  "a frame that is undone",
                                  "a profile that was replaced",
                                  NULL};

/* A frame on the network, and the encoder's prev after it, which the decoder must hold when it has
 * accepted the frame. */
typedef struct flight {
    size_t len, prev_bytes;
    uint8_t *frame, *prev; /* prev: n times prev_bytes, for codecs with state */
    uint8_t *y;            /* the reconstruction that the encoder promised, or NULL */
    uint32_t n;
    uint32_t which[MOST_N];
    bool stateful[MOST_N], any_state, is_stateless;
    uint64_t incarnation, sequence;
} flight;

typedef struct world {
    dw_config config;
    dw_encoder *encoder;
    dw_decoder *decoder;
    uint64_t incarnation;
    uint64_t first_profile; /* its digest; 0: profiles are never replaced */
    dw_dtype dtype;
    uint32_t t, c;
    int64_t stride_t;
    size_t sample_bytes;
    uint8_t *x, *y;
    flight wire[IN_FLIGHT];
    uint32_t n_wire;
    uint8_t reply[IN_FLIGHT][256];
    size_t reply_len[IN_FLIGHT];
    uint32_t n_replies;
    /* What the decoder has accepted since it was created: the incarnations in order, and for each
     * key the latest incarnation and sequence. */
    uint64_t lives[LIVES];
    uint32_t n_lives;
    uint64_t key_life[KEYS], key_sequence[KEYS];
    ledger residuals;
} world;

static dw_tensor view(const world *w, uint8_t *data, uint32_t n)
{
    dw_tensor x = dw_tensor_3d(data, w->dtype, n, w->t, w->c);
    x.stride_t = w->stride_t;
    x.stride_n = w->stride_t * w->t;
    return x;
}

static void free_flight(flight *f)
{
    free(f->frame);
    free(f->prev);
    free(f->y);
    memset(f, 0, sizeof *f);
}

static void remove_flight(world *w, uint32_t at)
{
    free_flight(&w->wire[at]);
    for (; at + 1 < w->n_wire; at++) w->wire[at] = w->wire[at + 1];
    memset(&w->wire[--w->n_wire], 0, sizeof w->wire[0]);
}

/* Stores a copy of the encoder's prev, which the decoder must hold after this frame. */
static void remember_prev(const world *w, flight *f)
{
    if (w->config.codec != DW_CODEC_DELTA) return;
    dw_frame_info info = {.struct_size = sizeof info};
    REQUIRE(dw_frame_read(f->frame, f->len, &info, NULL) == DW_OK);
    f->incarnation = info.incarnation;
    f->sequence = info.sequence;
    for (uint32_t i = 0; i < f->n; i++) {
        dw_tensor prev;
        dw_entry_info entry;
        REQUIRE(dw_frame_entries(f->frame, f->len, i, 1, &entry) == DW_OK);
        f->stateful[i] = entry.role != DW_ROLE_STATELESS;
        if (!f->stateful[i]) continue;
        f->any_state = true;
        REQUIRE(dw_encoder_peek(w->encoder, ledger_key(f->which[i]), &prev) == DW_OK);
        REQUIRE(prev.t == w->t && prev.c == w->c && prev.n == 1);
        f->prev_bytes = (size_t)w->t * w->c * dw_dtype_bytes(prev.dtype);
        if (!f->prev) f->prev = calloc(f->n, f->prev_bytes);
        REQUIRE(f->prev != NULL);
        memcpy(f->prev + i * f->prev_bytes, prev.data, f->prev_bytes);
    }
}

static flight *next_flight(world *w)
{
    if (w->n_wire == IN_FLIGHT) remove_flight(w, 0); /* no more room: the oldest frame is lost */
    return &w->wire[w->n_wire++];
}

static dw_counters counters_of(const world *w)
{
    dw_counters found = {.struct_size = sizeof found};
    REQUIRE(dw_encoder_count(w->encoder, &found) == DW_OK);
    return found;
}

/* Chooses options for an encode: none, or any of them. expected: the limit that the decoder
 * expects; PLAIN: no limit and not stateless; 0: any limit. */
enum { PLAIN = INT32_MAX };

static dw_encode_options pick_options(fuzz_input *input, size_t cap, size_t expected,
                                      dw_tensor *reconstruction)
{
    dw_encode_options options = {.struct_size = sizeof options};
    uint32_t how = fuzz_byte(input);
    options.limit = expected;
    if (!expected && (how & 3) == 1)
        options.limit = 1 + fuzz_below(input, 1 << 16) % (cap < 65535 ? cap : 65535);
    options.stateless = expected != PLAIN && (how >> 2 & 7) == 1;
    if ((how >> 5 & 1) == 1) options.reconstruction = reconstruction;
    if (how >> 6 == 3) options.places = how;
    options.bypass_caches = how >> 6 == 2;
    return options;
}

/* A failed encode must have changed nothing. */
static void require_nothing_done(const world *w, const dw_counters *before)
{
    dw_counters after = counters_of(w);
    after.slack_bytes = before->slack_bytes; /* memory that was obtained may be kept */
    REQUIRE(memcmp(&after, before, sizeof after) == 0);
    REQUIRE(dw_encoder_why(w->encoder)[0]);
}

/* Sometimes a frame is undone as soon as it is made, as if it could not be sent. Only with decay=,
 * so that inputs from before that option keep their meaning. A key for which the quota left no room
 * has no residual that could be undone. */
static bool is_undone(world *w, fuzz_input *input, const flight *f, const dw_tensor *x)
{
    if (!w->config.decay || f->is_stateless || fuzz_byte(input) % 4 != 1) return false;
    dw_status status = dw_encoder_give_back(w->encoder, f->frame, f->len, x);
    if (status == DW_ERR_ARGUMENT && w->config.quota_bytes) return false;
    REQUIRE(status == DW_OK);
    ledger_undone(&w->residuals, w->encoder, f->frame, f->len, x, f->which);
    fuzz_reach("a frame that is undone");
    REQUIRE(dw_encoder_give_back(w->encoder, f->frame, f->len, x) == DW_ERR_ARGUMENT);
    return true;
}

/* Sends a frame. Returns false if no frame could be made as short as the limit. */
static bool send_frame(world *w, fuzz_input *input, const uint32_t *which, uint32_t n,
                       size_t expected)
{
    flight *f = next_flight(w);
    f->n = n;
    dw_key keys[MOST_N];
    for (uint32_t i = 0; i < n; i++) {
        f->which[i] = which[i];
        keys[i] = ledger_key(which[i]);
    }
    dw_tensor x = view(w, w->x, n), y = x;
    fuzz_tensor_fill(input, &x);
    size_t cap = dw_frame_bound(&w->config, &x);
    f->frame = malloc(cap);
    f->y = calloc(n, w->sample_bytes);
    REQUIRE(f->frame && f->y);
    y.data = f->y;
    dw_counters before = counters_of(w);
    dw_encode_options options = pick_options(input, cap, expected, &y);
    bool keeps = w->config.codec == DW_CODEC_DELTA || ledger_is_kept(&w->residuals);
    bool needs_keys = keeps && !options.stateless;
    f->is_stateless = options.stateless;
    dw_status status = dw_encode(w->encoder, needs_keys || fuzz_byte(input) & 1 ? keys : NULL, &x,
                                 &options, f->frame, cap, &f->len);
    if (status == DW_ERR_BUFFER_TOO_SMALL && options.limit && !expected) {
        require_nothing_done(w, &before);
        remove_flight(w, w->n_wire - 1);
        return false;
    }
    if (status == DW_ERR_LIMIT) { /* error=abs refuses these values; it never refuses zeros */
        require_nothing_done(w, &before);
        REQUIRE(w->config.error_abs);
        memset(x.data, 0, fuzz_tensor_bytes(&x));
        options.limit = expected;
        status = dw_encode(w->encoder, keys, &x, &options, f->frame, cap, &f->len);
    }
    REQUIRE(status == DW_OK);
    REQUIRE(f->len <= cap && (!options.limit || f->len <= options.limit));
    if (!options.reconstruction) {
        free(f->y);
        f->y = NULL;
    }
    /* The block gets the frame's exact size, so that a sanitizer sees a read past the end. */
    uint8_t *exact = realloc(f->frame, f->len);
    if (exact) f->frame = exact;
    remember_prev(w, f);
    if (!options.stateless) ledger_sent(&w->residuals, w->encoder, f->frame, f->len, &x, which);
    if (options.stateless) REQUIRE(!f->any_state);
    if (is_undone(w, input, f, &x)) {
        remove_flight(w, w->n_wire - 1);
        return false;
    }
    return true;
}

/* Sends a frame of role sync for a key that the encoder holds in this shape, as a decoder that
 * missed frames requests it. */
static void send_resync(world *w, uint32_t which)
{
    dw_tensor prev;
    dw_key key = ledger_key(which);
    if (dw_encoder_peek(w->encoder, key, &prev) != DW_OK) return;
    if (ledger_is_kept(&w->residuals)) {
        uint8_t nothing[1];
        size_t none;
        REQUIRE(dw_encoder_resync(w->encoder, &key, 1, nothing, 1, &none) == DW_ERR_ARGUMENT);
        return;
    }
    flight *f = next_flight(w);
    dw_config exact = w->config;
    exact.key = DW_KEY_F32;
    exact.rate = 0; /* a config with a rate cannot have key=f32, nor can one with key_error */
    exact.key_error = 0;
    dw_tensor x = view(w, w->x, 1);
    size_t cap = dw_frame_bound(&exact, &x);
    f->n = 1;
    f->which[0] = which;
    f->frame = malloc(cap);
    REQUIRE(f->frame != NULL);
    REQUIRE(dw_encoder_resync(w->encoder, &key, 1, f->frame, cap, &f->len) == DW_OK);
    remember_prev(w, f);
}

/* Compares y with prev. They must be equal if they have the same dtype, except where y is NaN. */
static void require_same_numbers(const uint8_t *y, const uint8_t *prev, size_t count,
                                 dw_dtype dtype)
{
    size_t size = dw_dtype_bytes(dtype);
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        uint16_t half;
        memcpy(&half, y + i * size, sizeof half);
        if (dtype == DW_F32)
            memcpy(&bits, y + i * size, sizeof bits);
        else
            bits = half;
        bool nan = dtype == DW_F32 ? (bits & 0x7fffffff) > 0x7f800000
                                   : (bits & 0x7fff) > (dtype == DW_F16 ? 0x7c00u : 0x7f80u);
        REQUIRE(nan || memcmp(y + i * size, prev + i * size, size) == 0);
    }
}

/* The decoder must never go back to an older frame of a key, nor to an incarnation that was
 * replaced. */
static void check_order(world *w, const flight *f)
{
    if (!f->any_state) return;
    for (uint32_t i = 0; i + 1 < w->n_lives; i++) REQUIRE(f->incarnation != w->lives[i]);
    if (w->n_lives == 0 || w->lives[w->n_lives - 1] != f->incarnation) {
        if (w->n_lives == LIVES) { /* a decoder may have forgotten the oldest ones */
            memmove(w->lives, w->lives + 1, (LIVES - 1) * sizeof w->lives[0]);
            w->n_lives--;
        }
        w->lives[w->n_lives++] = f->incarnation;
    }
    for (uint32_t i = 0; i < f->n; i++) {
        if (!f->stateful[i]) continue;
        uint32_t k = f->which[i];
        if (w->key_life[k] == f->incarnation) REQUIRE(f->sequence > w->key_sequence[k]);
        w->key_life[k] = f->incarnation;
        w->key_sequence[k] = f->sequence;
    }
}

static void note_accepted(const world *w, const flight *f)
{
    const dw_config *config = &w->config;
    bool is_coded = config->entropy == DW_ENTROPY_RANS;
    if (is_coded) fuzz_reach("entropy-coded");
    if (is_coded && config->rounding == DW_ROUNDING_DITHER)
        fuzz_reach("entropy-coded, with dither");
    if (is_coded && config->rounding == DW_ROUNDING_TRELLIS)
        fuzz_reach("entropy-coded, along a trellis");
    if (config->error) fuzz_reach("error=");
    if (config->error_abs) fuzz_reach("error=abs:");
    if (config->rate) fuzz_reach("rate=");
    if (config->deadzone) fuzz_reach("deadzone=");
    if (config->feedback > DW_FEEDBACK_NONE) fuzz_reach("feedback=");
    if (config->decay) fuzz_reach("decay=");
    if (config->profile_digest != w->first_profile) fuzz_reach("a profile that was replaced");
    for (uint32_t i = 0; i < f->n; i++) {
        dw_entry_info entry;
        REQUIRE(dw_frame_entries(f->frame, f->len, i, 1, &entry) == DW_OK);
        if (entry.role == DW_ROLE_SKIP) fuzz_reach("an entry of role skip");
    }
}

static void check_accepted(const world *w, const flight *f)
{
    size_t width = (size_t)w->c * dw_dtype_bytes(w->dtype),
           stride = (size_t)w->stride_t * dw_dtype_bytes(w->dtype);
    for (uint32_t row = 0; f->y && row < f->n * w->t; row++)
        REQUIRE(memcmp(w->y + row * stride, f->y + row * stride, width) == 0);
    for (uint32_t i = 0; i < f->n; i++) {
        if (!f->stateful[i]) continue;
        const uint8_t *expected = f->prev + i * f->prev_bytes;
        dw_tensor prev;
        REQUIRE(dw_decoder_peek(w->decoder, ledger_key(f->which[i]), &prev) == DW_OK);
        REQUIRE(memcmp(prev.data, expected, f->prev_bytes) == 0);
        if (prev.dtype != w->dtype || w->config.prev > DW_BF16) continue;
        size_t row = (size_t)w->stride_t * dw_dtype_bytes(w->dtype),
               dense = (size_t)w->c * dw_dtype_bytes(w->dtype);
        for (uint32_t t = 0; t < w->t; t++)
            require_same_numbers(w->y + (i * (size_t)w->t + t) * row, expected + t * dense, w->c,
                                 w->dtype);
    }
}

static void keep_reply(world *w, const uint8_t *reply, size_t len)
{
    if (len == 0 || w->n_replies == IN_FLIGHT) return; /* the reply is lost */
    REQUIRE(len <= sizeof w->reply[0]);
    memcpy(w->reply[w->n_replies], reply, len);
    w->reply_len[w->n_replies++] = len;
}

/* Delivers frame number `at`, unchanged or damaged. The frame stays on the network. */
static dw_status deliver(world *w, uint32_t at, fuzz_input *damage)
{
    const flight *f = &w->wire[at];
    uint8_t reply[256], *frame = malloc(f->len);
    size_t reply_len = 0, spot = 0;
    REQUIRE(frame != NULL && dw_reply_bound(MOST_N) <= sizeof reply);
    memcpy(frame, f->frame, f->len);
    if (damage) {
        spot = fuzz_below(damage, 1 << 16) % f->len;
        frame[spot] ^= (uint8_t)(1u << fuzz_below(damage, 8));
    }
    dw_tensor y = view(w, w->y, f->n);
    dw_status status =
        dw_decode(w->decoder, frame, f->len, &y, NULL, reply, sizeof reply, &reply_len);
    free(frame);
    REQUIRE(status != DW_ERR_ARGUMENT && status != DW_ERR_NO_MEMORY && status != DW_ERR_STATE);
    REQUIRE(reply_len == 0 || w->config.replies != DW_REPLIES_NEVER);
    if (damage) REQUIRE(status < 0); /* every flipped bit is detected */
    if (status == DW_OK) {
        check_order(w, f);
        check_accepted(w, f);
        note_accepted(w, f);
    }
    keep_reply(w, reply, reply_len);
    return status;
}

static void take_reply(world *w, uint32_t at, bool stays)
{
    dw_status status = dw_encoder_take_reply(w->encoder, w->reply[at], w->reply_len[at]);
    REQUIRE(status == DW_OK); /* no error, even for old replies and for another incarnation's */
    if (stays) return;
    w->n_replies--;
    memmove(w->reply[at], w->reply[at + 1], (w->n_replies - at) * sizeof w->reply[0]);
    memmove(&w->reply_len[at], &w->reply_len[at + 1], (w->n_replies - at) * sizeof w->reply_len[0]);
}

/* Frame number `at` is lost, and the encoder is told so. It need not take the frame back: a later
 * frame of a key may have been taken back before, or the key was forgotten. */
static void give_back(world *w, uint32_t at)
{
    const flight *f = &w->wire[at];
    if (ledger_is_kept(&w->residuals) && !f->is_stateless) {
        dw_status status = dw_encoder_give_back(w->encoder, f->frame, f->len, NULL);
        REQUIRE(status == DW_OK || status == DW_ERR_ARGUMENT);
        if (status == DW_OK) {
            ledger_given(&w->residuals, w->encoder, f->frame, f->len, f->which);
            fuzz_reach("a frame that is given back");
            REQUIRE(dw_encoder_give_back(w->encoder, f->frame, f->len, NULL) == DW_ERR_ARGUMENT);
        }
    }
    remove_flight(w, at);
}

static void restart_encoder(world *w)
{
    ledger_forget_all(&w->residuals);
    dw_encoder_destroy(w->encoder);
    w->config.incarnation = ++w->incarnation;
    REQUIRE(dw_encoder_create(&w->encoder, &w->config, fuzz_host(), NULL) == DW_OK);
}

static void forget(world *w, uint32_t which)
{
    ledger_forget(&w->residuals, which);
    REQUIRE(dw_encoder_forget(w->encoder, ledger_key(which)) == DW_OK);
}

static void reset(world *w)
{
    ledger_forget_all(&w->residuals);
    REQUIRE(dw_encoder_reset(w->encoder) == DW_OK);
}

static void restart_decoder(world *w)
{
    dw_decoder_destroy(w->decoder);
    REQUIRE(dw_decoder_create(&w->decoder, &w->config, fuzz_host(), NULL) == DW_OK);
    w->n_lives = 0;
    memset(w->key_life, 0, sizeof w->key_life);
}

/* Frames with the profile before may be on their way. A decoder that restarts knows only the new
 * one. */
static void replace_profile(world *w, fuzz_input *input)
{
    w->config.profile = test_profile(fuzz_below(input, 3), w->c);
    w->config.profile_digest = dw_profile_digest(w->config.profile);
    REQUIRE(dw_decoder_add_profile(w->decoder, w->config.profile) == DW_OK);
    REQUIRE(dw_encoder_use_profile(w->encoder, w->config.profile) == DW_OK);
}

static void step(world *w, fuzz_input *input)
{
    uint32_t which[MOST_N], n, at;
    switch (fuzz_below(input, 12)) {
    case 0:
    case 1:
    case 2:
    case 3: /* the most frequent one: a micro-batch of neighbouring keys */
        n = 1 + fuzz_below(input, MOST_N);
        at = fuzz_below(input, KEYS);
        for (uint32_t i = 0; i < n; i++) which[i] = (at + i) % KEYS;
        (void)send_frame(w, input, which, n, 0);
        break;
    case 4:
    case 5: /* delivers the oldest frame */
        if (w->n_wire > 0) {
            deliver(w, 0, NULL);
            remove_flight(w, 0);
        }
        break;
    case 6: /* delivers any frame, which may be out of order or a duplicate */
        if (w->n_wire > 0) deliver(w, fuzz_below(input, w->n_wire), NULL);
        break;
    case 7:
        if (w->n_wire > 0) deliver(w, fuzz_below(input, w->n_wire), input);
        break;
    case 8: /* a frame is lost */
        if (w->n_wire > 0) give_back(w, fuzz_below(input, w->n_wire));
        break;
    case 9:
    case 10: /* delivers a reply, which may be late or a duplicate */
        if (w->n_replies > 0) {
            at = fuzz_below(input, w->n_replies);
            take_reply(w, at, fuzz_byte(input) & 1);
        }
        break;
    default:
        switch (fuzz_below(input, 8)) {
        case 0: restart_encoder(w); break;
        case 1: restart_decoder(w); break;
        case 3:
            if (w->first_profile) {
                replace_profile(w, input);
                break;
            } /* fall through */
        case 2: forget(w, fuzz_below(input, KEYS)); break;
        case 4: w->n_replies = 0; break; /* all replies are lost */
        case 7: reset(w); break;
        case 5:
        case 6: send_resync(w, fuzz_below(input, KEYS)); break;
        default: break;
        }
    }
}

/* Sends one frame and its reply without faults. */
static dw_status exchange(world *w, fuzz_input *input, const uint32_t *which, uint32_t n,
                          size_t expected)
{
    if (!send_frame(w, input, which, n, expected)) return DW_OK;
    dw_status status = deliver(w, 0, NULL);
    remove_flight(w, 0);
    /* A decoder that refuses a frame sends a reply about what it holds. */
    REQUIRE(status == DW_OK || w->n_replies == 1 || w->config.replies == DW_REPLIES_NEVER);
    if (w->n_replies > 0) take_reply(w, 0, false);
    return status;
}

static void require_taken(const world *w, dw_status status)
{
    char text[DW_CONFIG_TEXT_BYTES];
    if (status == DW_OK) return;
    (void)dw_config_format(&w->config, text, sizeof text);
    fprintf(stderr, "status %d of (%u, %u) with %s: %s\n", status, (unsigned)w->t, (unsigned)w->c,
            text, dw_decoder_why(w->decoder));
    REQUIRE(status == DW_OK);
}

/* From now on there are no faults: every key must arrive after at most one refusal, and both ends
 * must agree. Without replies, only a new incarnation of the encoder repairs the state. */
static void require_healing(world *w, fuzz_input *input)
{
    bool answers = w->config.replies != DW_REPLIES_NEVER;
    while (w->n_wire > 0) remove_flight(w, 0);
    w->n_replies = 0;
    if (!answers) reset(w);
    for (uint32_t which = 0; which < KEYS; which++) {
        for (int visit = 0; visit < 2; visit++) {
            dw_status status = exchange(w, input, &which, 1, PLAIN);
            if (status != DW_OK && answers) status = exchange(w, input, &which, 1, PLAIN);
            require_taken(w, status);
        }
    }
    if (w->config.codec != DW_CODEC_DELTA || w->config.quota_bytes) return;
    dw_counters received = {.struct_size = sizeof received};
    REQUIRE(dw_decoder_count(w->decoder, &received) == DW_OK);
    REQUIRE(counters_of(w).keys_held == KEYS && received.keys_held == KEYS);
}

/* When both ends agree, the encoder must be able to keep to the length that the decoder expects of
 * the next frame, even if the encoder has forgotten keys and the decoder does not know it yet. */
static void require_expected(world *w, fuzz_input *input)
{
    for (uint32_t turns = 1 + fuzz_below(input, 4); turns > 0; turns--) {
        uint32_t which[MOST_N], n = 1 + fuzz_below(input, MOST_N), at = fuzz_below(input, KEYS);
        dw_key keys[MOST_N];
        size_t expected = 0;
        for (uint32_t i = 0; i < n; i++) {
            which[i] = (at + i) % KEYS;
            keys[i] = ledger_key(which[i]);
        }
        dw_tensor shape = view(w, NULL, n);
        REQUIRE(dw_decoder_expect(w->decoder, keys, &shape, &expected) == DW_OK);
        REQUIRE(expected > 0 && expected <= dw_frame_bound(&w->config, &shape));
        if (fuzz_byte(input) % 4 == 1) forget(w, fuzz_below(input, KEYS));
        require_taken(w, exchange(w, input, which, n, expected));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input input = {data, size};
    world w = {.config = fuzz_config(&input), .incarnation = 100};
    w.dtype = (dw_dtype)(1 + fuzz_below(&input, 3));
    fuzz_shape(&input, &w.t, &w.c);
    fuzz_fit_shape(&w.config, &w.t, &w.c);
    fuzz_fit(&w.config, w.t, w.c);
    w.stride_t = w.c + fuzz_below(&input, 3);
    w.config.incarnation = w.incarnation;
    w.first_profile = w.config.profile_digest;
    w.sample_bytes = (size_t)w.stride_t * w.t * dw_dtype_bytes(w.dtype);
    w.x = malloc(MOST_N * w.sample_bytes);
    w.y = malloc(MOST_N * w.sample_bytes);
    REQUIRE(w.x && w.y);
    REQUIRE(dw_encoder_create(&w.encoder, &w.config, fuzz_host(), NULL) == DW_OK);
    REQUIRE(dw_decoder_create(&w.decoder, &w.config, fuzz_host(), NULL) == DW_OK);
    ledger_open(&w.residuals, &w.config, w.dtype, w.t, w.c);
    for (int steps = 0; steps < MOST_STEPS && input.left > 0; steps++) step(&w, &input);
    require_healing(&w, &input);
    require_expected(&w, &input);
    ledger_close(&w.residuals);
    dw_encoder_destroy(w.encoder);
    dw_decoder_destroy(w.decoder);
    free(w.y);
    free(w.x);
    return 0;
}
