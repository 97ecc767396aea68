/* SPDX-License-Identifier: Apache-2.0
 * fuzz_decode.c - arbitrary bytes as a frame for a decoder with state: the library and the model of
 * docs/format.md agree on every status, bit and reply. */
#include <math.h>

#include "draft.h"
#include "engine/engine.h"
#include "kernels/kernels.h"
#include "reach.h"

enum { MOST_N = 3, MOST_Y = 4, KEYS = 5, MOST = 1 << 16, FILL = 0xa5 };

static const dw_key keys[KEYS] = {{.sample = 7},
                                  {.sample = UINT64_MAX, .slice = UINT32_MAX},
                                  {.sample = 7, .slice = 1},
                                  {0},
                                  {.sample = 0x5a5a5a5a5a5a5a5a}};

/* What the corpus must reach: frames that were encoded with each of five options; then what
 * model_coded.c notes while it reads entropy-coded payloads: the four kinds of groups, and every
 * rule of the format that a hostile payload breaks; and the same of model_sparse.c. */
const char *const fuzz_goals[] = {"error=",
                                  "error=abs:",
                                  "rate=",
                                  "deadzone=",
                                  "skip=",
                                  "block",
                                  "block in parts",
                                  "group that is stored",
                                  "size of a group",
                                  "header of a block",
                                  "head or frequencies of a part",
                                  "words of a block of one code",
                                  "number of words",
                                  "escaped value",
                                  "place of an escaped value",
                                  "bytes behind escaped values",
                                  "state below 65536",
                                  "words",
                                  "words of a block in parts",
                                  "part without codes",
                                  "block with a trellis",
                                  "head of a table of a trellis",
                                  "words of a block with a trellis",
                                  "bits of a code",
                                  "end of a payload within its sizes",
                                  "end of a payload within a group",
                                  "length of a payload",
                                  "sparse: random",
                                  "sparse: places",
                                  "FORMAT: sparse: short payload",
                                  "FORMAT: sparse: zeros of the head",
                                  "FORMAT: sparse: sizes",
                                  "FORMAT: sparse: way",
                                  "FORMAT: sparse: mask of another size",
                                  "FORMAT: sparse: mask with too many values",
                                  "FORMAT: sparse: mask with too few values",
                                  "FORMAT: sparse: numbers' size",
                                  "FORMAT: sparse: number out of range",
                                  "FORMAT: sparse: number out of order",
                                  "FORMAT: sparse: gaps of another size",
                                  "FORMAT: sparse: missing gap",
                                  "FORMAT: sparse: gap out of range",
                                  "FORMAT: sparse: length of gaps",
                                  "FORMAT: sparse: bits that are left over",
                                  "FORMAT: sparse: values of a chunk",
                                  "rotated: block",
                                  "rotated: poisoned",
                                  "prev in 8 bits",
                                  "prev in 4 bits",
                                  "prev in few bits: a short group",
                                  "profile: change",
                                  "profile: means",
                                  "profile: poisoned",
                                  "tah: tiles",
                                  "tah: bits that are left over",
                                  "tah: number of wide tiles",
                                  "tah: pivot",
                                  "lowrank: product",
                                  "lowrank: poisoned",
                                  "lowrank: sum that is not finite",
                                  "FORMAT: lowrank: rank and shape",
                                  "FORMAT: lowrank: size of the factors",
                                  "blocks: dynamic",
                                  "blocks: linear",
                                  "blocks: fitted",
                                  "blocks: poisoned by a scale",
                                  "blocks: poisoned by an entry",
                                  "blocks: code without an entry",
                                  "FORMAT: blocks: size",
                                  "sparse: drawn alike",
                                  NULL};

typedef struct world {
    dw_config config;
    dw_encoder *encoder;
    dw_decoder *decoder;
    model model;
    dw_tensor x, y;
    uint8_t *frame; /* the latest valid frame, of len bytes */
    size_t cap, len;
    uint8_t *older; /* the valid frame before it, or NULL */
    size_t older_len;
    uint8_t *reply;
    size_t reply_len;
    bool is_clean; /* the decoder has accepted only frames of the encoder ... */
    bool has_lost; /* ... but has dropped a copy in step 9 */
} world;

/* Statistics about the frames that were changed and got new digests. */
static struct {
    unsigned long long inputs, frames, changed, past_six, taken;
} count;

static void tell_counts(void)
{
    double changed = count.changed ? (double)count.changed : 1;
    fprintf(stderr,
            "frames: %llu inputs, %llu decodes compared with the model; of %llu changed and sealed "
            "ones %.1f %% passed steps 1 to 6 and %.1f %% were taken\n",
            count.inputs, count.frames, count.changed, 100 * (double)count.past_six / changed,
            100 * (double)count.taken / changed);
}

/* ---- A decode, compared with the model. ------------------------------------------------------ */

static void require_same_state(const world *w)
{
    dw_counters count_now = {.struct_size = sizeof count_now};
    REQUIRE(dw_decoder_count(w->decoder, &count_now) == DW_OK);
    REQUIRE(count_now.keys_held == model_keys(&w->model));
    for (int i = 0; i < MODEL_KEYS; i++) {
        const model_held *held = &w->model.held[i];
        dw_tensor prev;
        if (!held->used) continue;
        REQUIRE(dw_decoder_peek(w->decoder, held->key, &prev) == DW_OK);
        REQUIRE(prev.n == 1 && prev.t == held->t && prev.c == held->c);
        REQUIRE((uint8_t)prev.dtype == held->dtype);
        REQUIRE(memcmp(prev.data, held->prev, model_prev_bytes(held)) == 0);
    }
}

static float pick_factor(fuzz_input *input)
{
    static const float usual[] = {1, 0.5f, -3, 1e30f, -0.0f, INFINITY, NAN};
    uint32_t which = fuzz_below(input, 8), bits;
    if (which < 7) return usual[which];
    bits = (uint32_t)fuzz_bytes(input, 4);
    float factor;
    memcpy(&factor, &bits, sizeof factor);
    return factor;
}

static uint64_t frames_of(const world *w)
{
    dw_counters found = {.struct_size = sizeof found};
    REQUIRE(dw_decoder_count(w->decoder, &found) == DW_OK);
    return found.frames;
}

/* Gives the frame to the decoder and to the model, and compares all results and states. y has n
 * samples of the world's shape. */
static model_answer deliver(world *w, fuzz_input *input, const uint8_t *frame, size_t len,
                            uint32_t n)
{
    static const dw_kernels *best; /* found once, because that takes longer than a small frame */
    if (!best) best = dw_kernels_choose(UINT32_MAX);
    uint32_t how = fuzz_byte(input);
    dw_decode_options options = {.struct_size = sizeof options, .adds = (how & 7) == 1};
    if (options.adds) options.factor = pick_factor(input);
    dw_tensor y = w->y, expected;
    y.n = n;
    size_t bytes = fuzz_tensor_bytes(&y), cap = dw_reply_bound(n), reply_len = 1;
    uint8_t *reply = malloc(cap), *expected_reply = malloc(cap);
    y.data = malloc(bytes);
    expected = y;
    expected.data = malloc(bytes);
    REQUIRE(y.data && expected.data && reply && expected_reply);
    memset(y.data, FILL, bytes);
    if (options.adds) fuzz_tensor_fill(input, &y);
    memcpy(expected.data, y.data, bytes);
    dw_tensor given = y, modelled = expected;
    if (how >> 4 == 15) given.data = modelled.data = NULL;
    dw_decoder_use(w->decoder, how & 8 ? &dw_kernels_c : best);
    uint64_t frames = frames_of(w);
    model_answer answer =
        model_decode(&w->model, frame, len, &modelled, &options, expected_reply, cap);
    dw_decode_options checks = options;
    checks.only_checks = 1;
    dw_status said = dw_decode(w->decoder, frame, len, &given, &checks, reply, cap, &reply_len);
    REQUIRE(reply_len == 0 && frames_of(w) == frames);
    dw_status status = dw_decode(w->decoder, frame, len, &given, how & 7 ? &options : NULL, reply,
                                 cap, &reply_len);
    REQUIRE(said == status); /* and nothing has changed, or this decode would not be the model's */
    count.frames++;
    if (status != answer.status)
        fprintf(stderr, "status %d, but the model has %d in step %d: %s\n", status, answer.status,
                answer.step, dw_decoder_why(w->decoder));
    REQUIRE(status == answer.status);
    REQUIRE(frames_of(w) == frames + (status == DW_OK));
    REQUIRE(status == DW_OK || dw_decoder_why(w->decoder)[0]);
    REQUIRE(memcmp(y.data, expected.data, bytes) == 0);
    require_same_state(w);
    REQUIRE(reply_len == answer.reply_len);
    REQUIRE(memcmp(reply, expected_reply, reply_len) == 0);
    free(w->reply);
    w->reply = reply;
    w->reply_len = reply_len;
    free(expected_reply);
    free(expected.data);
    free(y.data);
    return answer;
}

/* ---- Functions that only read frames. -------------------------------------------------------- */

static void read_tables(const uint8_t *frame, size_t len, const model_header *h)
{
    dw_entry_info *entries = calloc(h->n, sizeof *entries), last;
    dw_key *named = calloc(h->n, sizeof *named), forgotten;
    REQUIRE(entries && named);
    REQUIRE(dw_frame_entries(frame, len, 0, h->n, entries) == DW_OK);
    REQUIRE(dw_frame_keys(frame, len, h->n, named) == DW_OK);
    uint64_t end = h->length;
    for (uint32_t i = h->n; i-- > 0;) {
        end -= entries[i].payload_bytes;
        REQUIRE(entries[i].payload_offset == end);
        REQUIRE(entries[i].key.sample == named[i].sample && entries[i].key.slice == named[i].slice);
    }
    REQUIRE(dw_frame_entries(frame, len, h->n - 1, 1, &last) == DW_OK);
    REQUIRE(last.payload_offset == entries[h->n - 1].payload_offset);
    REQUIRE(last.role == entries[h->n - 1].role && last.form == entries[h->n - 1].form);
    REQUIRE(dw_frame_entries(frame, len, h->n, 1, &last) == DW_ERR_ARGUMENT);
    REQUIRE(dw_frame_entries(frame, len, 1, UINT32_MAX, &last) == DW_ERR_ARGUMENT);
    REQUIRE(dw_frame_keys(frame, len, h->n + 1, named) == DW_ERR_SHAPE);
    for (uint32_t i = 0; i < h->n_forgotten && i < 64; i++)
        REQUIRE(dw_frame_forgotten(frame, len, i, &forgotten) == DW_OK);
    REQUIRE(dw_frame_forgotten(frame, len, h->n_forgotten, &forgotten) == DW_ERR_ARGUMENT);
    free(named);
    free(entries);
}

static void inspect(const uint8_t *frame, size_t len)
{
    dw_frame_info info = {.struct_size = sizeof info};
    model_header h;
    dw_why why;
    uint64_t found = 0, expected = 0;
    for (size_t have = len < 80 ? len : 79; have <= len && have <= 80; have++)
        REQUIRE(dw_frame_length(frame, have, &found) == model_length(frame, have, &expected) &&
                found == expected);
    dw_status status = dw_frame_read(frame, len, &info, &why),
              modelled = model_read(frame, len, &h);
    REQUIRE(status == modelled);
    if (status) {
        dw_key key;
        dw_entry_info entry;
        REQUIRE(why.text[0] && memchr(why.text, 0, sizeof why.text));
        REQUIRE(dw_frame_keys(frame, len, 1, &key) == status);
        REQUIRE(dw_frame_entries(frame, len, 0, 1, &entry) == status);
        REQUIRE(dw_frame_forgotten(frame, len, 0, &key) == status);
        return;
    }
    REQUIRE(info.n == h.n && info.t == h.t && info.c == h.c && info.length == h.length);
    REQUIRE(info.incarnation == h.incarnation && info.sequence == h.sequence);
    REQUIRE(info.seed == h.seed && info.n_forgotten == h.n_forgotten);
    REQUIRE(info.x == (dw_dtype)h.x && (info.wants_reply != 0) == (h.flags & 1));
    REQUIRE((info.draws_alike != 0) == (h.flags >> 1 & 1));
    uint8_t block[8 * MODEL_PARAMETERS];
    uint32_t n = model_parameters(&info.config, h.x, block);
    REQUIRE(n == h.n_parameters && memcmp(block, frame + 80, (size_t)8 * n) == 0);
    read_tables(frame, len, &h);
}

/* ---- Hostile frames. ------------------------------------------------------------------------- */

typedef struct hostile {
    uint8_t *bytes; /* allocated with exactly len bytes */
    size_t len;
    size_t second; /* the offset of a valid frame that follows this one; 0: none */
    bool is_changed;
} hostile;

static draft_world world_of(const world *w)
{
    uint64_t sequence = 0, incarnation = 0;
    memcpy(&incarnation, w->frame + 8, 8);
    for (int i = 0; i < 8; i++) {
        incarnation = incarnation << 8 | w->frame[15 - i];
        sequence = sequence << 8 | w->frame[23 - i];
    }
    return (draft_world){.model = &w->model,
                         .keys = keys,
                         .n_keys = KEYS,
                         .n = w->x.n,
                         .t = w->x.t,
                         .c = w->x.c,
                         .x = w->x.dtype,
                         .incarnation = incarnation,
                         .sequence = sequence};
}

static void make_draft(const world *w, fuzz_input *input, hostile *made, bool make_up)
{
    draft d;
    draft_world around = world_of(w);
    uint32_t changes = fuzz_below(input, 4);
    if (make_up)
        draft_make_up(&d, input, &around);
    else
        draft_read(&d, w->older && fuzz_byte(input) % 4 == 0 ? w->older : w->frame);
    for (; changes > 0; changes--) draft_change(&d, input, &around);
    made->bytes = draft_write(&d, &made->len);
    draft_free(&d);
}

static void take_bytes(hostile *made, const uint8_t *from, size_t len)
{
    made->bytes = malloc(len ? len : 1);
    made->len = len;
    REQUIRE(made->bytes != NULL);
    if (len) memcpy(made->bytes, from, len);
}

/* Changes single bytes anywhere, or before the payloads. */
static void edit_bytes(fuzz_input *input, hostile *made)
{
    bool in_front = fuzz_byte(input) & 1;
    for (uint32_t edits = 1 + fuzz_below(input, 8); edits > 0; edits--) {
        uint32_t at = fuzz_below(input, 1 << 16);
        if (in_front) at %= 224;
        made->bytes[at % made->len] ^= fuzz_byte(input);
    }
}

/* Truncates the frame, or adds something after it. */
static void end_it(const world *w, fuzz_input *input, hostile *made)
{
    uint32_t how = fuzz_below(input, 8);
    size_t more = how == 1 ? (size_t)1 + fuzz_byte(input) : how == 2 || how == 3 ? w->len : 0;
    if (how == 0) {
        size_t less = fuzz_below(input, 1 << 16);
        made->len = fuzz_byte(input) & 1 ? less % (made->len + 1)
                                         : made->len - less % (made->len < 32 ? made->len + 1 : 32);
    }
    uint8_t *exact = malloc(made->len + more ? made->len + more : 1);
    REQUIRE(exact != NULL);
    memcpy(exact, made->bytes, made->len);
    if (how == 1) memset(exact + made->len, fuzz_byte(input), more);
    if (more == w->len) {
        memcpy(exact + made->len, w->frame, w->len);
        made->second = made->len;
    }
    free(made->bytes);
    made->bytes = exact;
    made->len += more;
}

static bool is_same(const hostile *made, const uint8_t *frame, size_t len)
{
    return frame && made->len == len && memcmp(made->bytes, frame, len) == 0;
}

static hostile make_hostile(const world *w, fuzz_input *input)
{
    hostile made = {0};
    uint32_t kind = fuzz_below(input, 16), how = fuzz_byte(input);
    bool sealed = (how & 7) != 0;
    if (kind == 0) {
        take_bytes(&made, input->data, input->left < MOST ? input->left : MOST);
    } else if (kind < 4) {
        take_bytes(&made, w->frame, w->len);
        edit_bytes(input, &made);
    } else {
        make_draft(w, input, &made, kind < 9);
    }
    if (kind && (how >> 3 & 3) == 0)
        for (uint32_t fields = 1 + fuzz_below(input, 2); fields > 0; fields--)
            fuzz_change_field(input, made.bytes, made.len);
    if (sealed) fuzz_seal_frame(made.bytes, made.len);
    if (sealed && how >> 5) model_seal_states(&w->model, made.bytes, made.len);
    made.is_changed = kind && sealed && !is_same(&made, w->frame, w->len) &&
                      !is_same(&made, w->older, w->older_len);
    end_it(w, input, &made);
    return made;
}

/* y gets the frame's own number of samples if that is small; otherwise most changes to the number
 * of entries would end as a SHAPE error. */
static uint32_t n_for(const world *w, fuzz_input *input, const hostile *frame)
{
    uint32_t n = frame->len < 28 ? 0 : frame->bytes[24];
    return n >= 1 && n <= MOST_Y && fuzz_byte(input) % 8 ? n : w->x.n;
}

/* ---- The fuzz target. ------------------------------------------------------------------------ */

static void note_options(const dw_config *config)
{
    if (config->error) fuzz_reach("error=");
    if (config->error_abs) fuzz_reach("error=abs:");
    if (config->rate) fuzz_reach("rate=");
    if (config->deadzone) fuzz_reach("deadzone=");
    if (config->skip) fuzz_reach("skip=");
}

static void encode(world *w, fuzz_input *input)
{
    free(w->older);
    w->older = w->len ? malloc(w->len) : NULL;
    w->older_len = w->len;
    if (w->older) memcpy(w->older, w->frame, w->len);
    dw_key named[MOST_N];
    uint32_t first = fuzz_below(input, KEYS);
    for (uint32_t i = 0; i < w->x.n; i++) named[i] = keys[(first + i) % KEYS];
    if (fuzz_byte(input) % 8 == 1)
        REQUIRE(dw_encoder_forget(w->encoder, keys[(first + w->x.n) % KEYS]) == DW_OK);
    fuzz_tensor_fill(input, &w->x);
    REQUIRE(fuzz_encode(w->encoder, named, &w->x, w->frame, w->cap, &w->len) == DW_OK);
    REQUIRE(w->len <= w->cap);
    note_options(&w->config);
}

static void answer_encoder(world *w)
{
    if (w->reply_len > 0)
        REQUIRE(dw_encoder_take_reply(w->encoder, w->reply, w->reply_len) == DW_OK);
}

/* A frame of the encoder after which nothing went wrong must be accepted. */
static void require_taken(const world *w, dw_status status)
{
    char text[DW_CONFIG_TEXT_BYTES];
    if (status == DW_OK) return;
    (void)dw_config_format(&w->config, text, sizeof text);
    fprintf(stderr, "status %d of (%u, %u, %u) with %s: %s\n", status, (unsigned)w->x.n,
            (unsigned)w->x.t, (unsigned)w->x.c, text, dw_decoder_why(w->decoder));
    REQUIRE(status == DW_OK);
}

/* Delivers the valid frame after the hostile one. It must be accepted, unless the decoder accepted
 * a hostile frame before. */
static void recover(world *w, fuzz_input *input, const hostile *before)
{
    const uint8_t *frame = w->frame;
    uint64_t length;
    bool follows = before->second &&
                   dw_frame_length(before->bytes, before->len, &length) == DW_OK &&
                   length == before->second;
    if (follows) frame = before->bytes + before->second;
    uint8_t *exact = malloc(w->len);
    REQUIRE(exact != NULL);
    memcpy(exact, frame, w->len);
    dw_status status = deliver(w, input, exact, w->len, w->x.n).status;
    free(exact);
    if (!w->is_clean) return;
    /* A NACK tells about the keys of one frame only; the next frame may carry others. */
    for (int tries = 0; tries < KEYS && status == DW_ERR_BASE && w->has_lost; tries++) {
        if (w->reply_len > 0)
            answer_encoder(w);
        else
            REQUIRE(dw_encoder_reset(w->encoder) == DW_OK);
        encode(w, input);
        status = deliver(w, input, w->frame, w->len, w->x.n).status;
    }
    require_taken(w, status);
    answer_encoder(w);
}

static void attack(world *w, fuzz_input *input)
{
    for (uint32_t visits = fuzz_below(input, 3); visits > 0; visits--) {
        encode(w, input);
        require_taken(w, deliver(w, input, w->frame, w->len, w->x.n).status);
        if (fuzz_byte(input) % 4) answer_encoder(w);
    }
    for (uint32_t turns = 1 + fuzz_below(input, 2); turns > 0; turns--) {
        encode(w, input);
        hostile made = make_hostile(w, input);
        inspect(made.bytes, made.len);
        model_answer answer = deliver(w, input, made.bytes, made.len, n_for(w, input, &made));
        count.changed += made.is_changed;
        count.past_six += made.is_changed && answer.step > 6;
        count.taken += made.is_changed && answer.status == DW_OK;
        if (answer.status == DW_OK) w->is_clean = false;
        if (answer.status == DW_ERR_STATE) w->has_lost = true;
        recover(w, input, &made);
        free(made.bytes);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > MOST) return 0;
    if (count.inputs++ == 0) atexit(tell_counts);
    fuzz_input input = {data, size};
    world w = {.config = fuzz_config(&input), .is_clean = true};
    if (w.config.codec != DW_CODEC_DELTA) { /* a decoder takes no part in feedback */
        w.config.feedback = (dw_feedback)0;
        w.config.quota_bytes = 0;
        w.config.decay = 0;
        w.config.restart = 0;
    }
    uint32_t t, c, n = 1 + fuzz_below(&input, MOST_N);
    fuzz_shape(&input, &t, &c);
    fuzz_fit_shape(&w.config, &t, &c);
    fuzz_fit(&w.config, t, c);
    w.x = fuzz_tensor(&input, n, t, c);
    w.y = fuzz_tensor(&input, n, t, c);
    w.x.data = malloc(fuzz_tensor_bytes(&w.x));
    w.cap = dw_frame_bound(&w.config, &w.x) + 16 * KEYS;
    w.frame = malloc(w.cap);
    REQUIRE(w.x.data && w.frame);
    model_open(&w.model, &w.config);
    REQUIRE(dw_encoder_create(&w.encoder, &w.config, fuzz_host(), NULL) == DW_OK);
    REQUIRE(dw_decoder_create(&w.decoder, &w.config, fuzz_host(), NULL) == DW_OK);
    attack(&w, &input);
    dw_encoder_destroy(w.encoder);
    dw_decoder_destroy(w.decoder);
    model_close(&w.model);
    free(w.reply);
    free(w.older);
    free(w.frame);
    free(w.x.data);
    return 0;
}
