/* SPDX-License-Identifier: Apache-2.0
 * model.c - a second decoder: state, decoding and replies, as docs/format.md says. */
#include "model.h"

#include <math.h>

#include "deltawire/profile.h"
#include "model_frame.h"
#include "model_values.h"
#include "reach.h"

static bool is_own(const model *m, const uint8_t *frame, const model_header *h)
{
    uint8_t block[PARAMETER * MODEL_PARAMETERS];
    uint32_t n = model_parameters(&m->config, h->x, block);
    uint8_t codec = m->config.codec ? (uint8_t)m->config.codec : DELTA;
    return codec == h->codec && n == h->n_parameters &&
           memcmp(block, frame + HEADER, (size_t)PARAMETER * n) == 0;
}

/* ---- State (2). ------------------------------------------------------------------------------ */

void model_open(model *m, const dw_config *config)
{
    memset(m, 0, sizeof *m);
    m->config = *config;
}

static void drop(model_held *held)
{
    free(held->prev);
    memset(held, 0, sizeof *held);
}

void model_close(model *m)
{
    for (int i = 0; i < MODEL_KEYS; i++) drop(&m->held[i]);
}

static bool same_key(dw_key a, dw_key b)
{
    return a.sample == b.sample && a.slice == b.slice;
}

const model_held *model_find(const model *m, dw_key key)
{
    for (int i = 0; i < MODEL_KEYS; i++)
        if (m->held[i].used && same_key(m->held[i].key, key)) return &m->held[i];
    return NULL;
}

static model_held *find(model *m, dw_key key)
{
    const model_held *held = model_find(m, key);
    return held ? &m->held[held - m->held] : NULL;
}

uint32_t model_keys(const model *m)
{
    uint32_t n = 0;
    for (int i = 0; i < MODEL_KEYS; i++) n += m->held[i].used;
    return n;
}

size_t model_prev_bytes(const model_held *held)
{
    return (size_t)held->t * held->c * model_bytes(held->dtype);
}

/* How much of the quota a copy takes. */
static uint64_t quota_bytes(uint64_t n, uint32_t kept)
{
    uint64_t groups = (n + 15) / 16;
    return kept == 8 || kept == 4 ? groups * (2 * kept + 1) : n * model_bytes((uint8_t)kept);
}

static uint64_t quota_bytes_of(const model_held *held)
{
    return quota_bytes((uint64_t)held->t * held->c, held->kept);
}

static bool is_retired(const model *m, uint64_t incarnation)
{
    uint64_t n = m->n_retired < MODEL_RETIRED ? m->n_retired : MODEL_RETIRED;
    for (uint64_t i = 0; i < n; i++)
        if (m->retired[i] == incarnation) return true;
    return false;
}

static uint64_t chain_of(const model_header *h, const model_params *p, const model_entry *e)
{
    uint8_t b[80] = {0};
    model_put(b, 8, e->base_chain);
    model_put(b + 8, 8, h->incarnation);
    model_put(b + 16, 8, e->key.sample);
    model_put(b + 24, 4, e->key.slice);
    b[28] = e->role;
    b[29] = e->form;
    b[30] = e->use;
    b[31] = (uint8_t)p->of[PREV];
    model_put(b + 32, 8, h->sequence);
    model_put(b + 40, 8, e->payload_digest);
    model_put(b + 48, 4, h->t);
    model_put(b + 52, 4, h->c);
    model_put(b + 56, 8, p->digest);
    model_put(b + 64, 8, h->seed);
    b[72] = h->codec;
    uint64_t chain = model_hash(b, sizeof b);
    return chain ? chain : 1;
}

/* Step 6: a key occurs twice. */
static bool is_doubled(const uint8_t *frame, const model_header *h)
{
    for (uint32_t i = 0; i < h->n; i++) {
        model_entry a = model_entry_at(frame, h, i);
        for (uint32_t k = 0; k < i && model_has_state(&a); k++) {
            model_entry b = model_entry_at(frame, h, k);
            if (model_has_state(&b) && same_key(a.key, b.key)) return true;
        }
        for (uint32_t k = 0; k < h->n_forgotten && model_has_state(&a); k++)
            if (same_key(a.key, model_forgotten_at(frame, h, k))) return true;
    }
    return false;
}

/* The drop number of step 7. */
static void raise_drop_number(model *m, uint64_t incarnation, uint64_t sequence)
{
    if (m->dropped_incarnation == incarnation && m->drop_number >= sequence) return;
    m->dropped_incarnation = incarnation;
    m->drop_number = sequence;
}

static bool is_dropped_since(const model *m, const model_header *h)
{
    return m->dropped_incarnation == h->incarnation && h->sequence <= m->drop_number;
}

static dw_status check_step(const model *m, const model_header *h, const model_params *p,
                            const model_entry *e)
{
    const model_held *held = model_find(m, e->key);
    bool same = held && held->incarnation == h->incarnation;
    if (is_retired(m, h->incarnation)) return DW_ERR_STALE;
    if (same && h->sequence <= held->version) return DW_ERR_STALE;
    if (e->role == KEY || e->role == SYNC)
        return !same && is_dropped_since(m, h) ? DW_ERR_STALE : DW_OK;
    return same && held->t == h->t && held->c == h->c && held->kept == p->of[PREV] &&
                   held->chain == e->base_chain
               ? DW_OK
               : DW_ERR_BASE;
}

/* Step 7. */
static dw_status check_steps(const model *m, const uint8_t *frame, const model_header *h,
                             const model_params *p)
{
    dw_status worst = DW_OK;
    for (uint32_t i = 0; i < h->n; i++) {
        model_entry e = model_entry_at(frame, h, i);
        dw_status status = model_has_state(&e) ? check_step(m, h, p, &e) : DW_OK;
        if (status == DW_ERR_BASE || (status && !worst)) worst = status;
    }
    return worst;
}

static bool is_dropped(const model_held *held, const uint8_t *frame, const model_header *h)
{
    if (!held->used || held->incarnation != h->incarnation || held->version >= h->sequence)
        return false;
    for (uint32_t k = 0; k < h->n_forgotten; k++)
        if (same_key(held->key, model_forgotten_at(frame, h, k))) return true;
    return false;
}

/* Whether quota_bytes allows what will be held when the frame has been accepted, entry by entry.
 * Keys that do not grow are always allowed (deltawire.h). */
static bool quota_holds(const model *m, const uint8_t *frame, const model_header *h,
                        const model_params *p)
{
    uint64_t used = 0, bytes = quota_bytes((uint64_t)h->t * h->c, p->of[PREV]);
    bool new_life = m->incarnation != h->incarnation;
    for (int i = 0; i < MODEL_KEYS; i++)
        if (m->held[i].used && !new_life && !is_dropped(&m->held[i], frame, h))
            used += quota_bytes_of(&m->held[i]);
    for (uint32_t i = 0; i < h->n; i++) {
        model_entry e = model_entry_at(frame, h, i);
        if (!model_has_state(&e)) continue;
        const model_held *held = new_life ? NULL : model_find(m, e.key);
        uint64_t have = held ? quota_bytes_of(held) : 0, growth = bytes > have ? bytes - have : 0;
        if (m->config.quota_bytes && growth && used + growth > m->config.quota_bytes) return false;
        used += growth;
    }
    return true;
}

/* ---- Steps 8 to 10. -------------------------------------------------------------------------- */

/* What one entry is decoded to. */
typedef struct made {
    model_value *values;
    uint8_t *prev; /* NULL: the entry is stateless */
} made;

/* Computes prev' (3.1, 3.4; 5 step 5). */
static void advance(const model_entry *e, uint8_t dtype, const model_held *base, size_t n,
                    made *out)
{
    for (size_t i = 0; i < n; i++) {
        const model_value *v = &out->values[i];
        uint32_t bits = 0;
        if (e->role == SKIP || (v->poisoned && e->role == CHANGE))
            bits = model_load(base->prev, dtype, i);
        else if (!v->poisoned)
            bits = model_rn(v->r, dtype);
        model_store(out->prev, dtype, i, bits);
    }
}

/* 3.6: the key of the random numbers that both ends share. */
static uint64_t draws_key(const model_header *h, const model_entry *e)
{
    uint8_t b[40];
    model_put(b, 8, h->seed);
    model_put(b + 8, 8, e->key.sample);
    model_put(b + 16, 8, e->key.slice);
    model_put(b + 24, 8, h->sequence);
    model_put(b + 32, 8, h->incarnation);
    if (h->flags & 2) fuzz_reach("sparse: drawn alike");
    return model_hash(b, h->flags & 2 ? 24 : sizeof b);
}

/* Returns false if the payload is coded or sparse and breaks a rule (step 8). */
static bool make_entry(const model *m, const model_header *h, const model_params *p,
                       const model_entry *e, const uint8_t *payload, made *out)
{
    size_t n = (size_t)h->t * h->c;
    uint8_t dtype = model_prev_dtype(p);
    const model_held *held = model_find(m, e->key);
    bool based = e->role == CHANGE || e->role == SKIP;
    model_way way;
    (void)model_find_way(p, e->use, &way);
    uint8_t *plain = way.coded
                         ? model_plain(&way, h->t, h->c, draws_key(h, e), payload, e->payload_bytes)
                         : NULL;
    if (way.coded && !plain) return false;
    if (plain) payload = plain;
    out->values = calloc(n, sizeof *out->values);
    out->prev = model_has_state(e) ? malloc(n * model_bytes(dtype)) : NULL;
    REQUIRE(out->values && (out->prev || !model_has_state(e)));
    bool valid = true;
    if (way.form == SPARSE)
        valid = model_sparse_values(&way, h->t, h->c, payload, e->payload_bytes, draws_key(h, e),
                                    out->values);
    else if (way.form == LOWRANK)
        model_lowrank_values(&way, h->t, h->c, payload, out->values);
    else if (way.form == TILED)
        valid = model_tah_values(&way, h->t, h->c, payload, out->values);
    else if (way.form)
        model_values(&way, h->t, h->c, payload, based ? held->prev : NULL, dtype, draws_key(h, e),
                     out->values);
    if (out->prev) advance(e, dtype, based ? held : NULL, n, out);
    free(plain);
    return valid;
}

static uint64_t state_digest(const model_header *h, const model_params *p, const model_entry *e,
                             const uint8_t *prev)
{
    uint8_t b[24] = {0};
    uint32_t audit = p->of[AUDIT];
    model_put(b, 8, e->key.sample);
    model_put(b + 8, 4, e->key.slice);
    model_put(b + 16, 8, h->sequence);
    return model_state_digest(prev, model_prev_dtype(p), (size_t)h->t * h->c, audit,
                              (uint32_t)(model_hash(b, sizeof b) % audit));
}

/* The bits to be written to y. Without `adds` these are y itself. */
static uint32_t y_bits(const model_entry *e, const model_params *p, const model_value *v,
                       const uint8_t *prev, size_t i, uint8_t dtype)
{
    model_way way;
    (void)model_find_way(p, e->use, &way);
    if (e->role == STATELESS && way.form == FLOATS)
        return way.dtype == dtype ? v->bits : model_convert(v->r, dtype);
    if (way.form == SPARSE && !way.bits) return model_convert(v->r, dtype);
    if (v->poisoned) return model_nan(dtype);
    if (e->role == STATELESS) return model_rn(v->r, dtype);
    uint8_t kept = model_prev_dtype(p);
    return model_rn(model_widen(model_load(prev, kept, i), kept), dtype);
}

static float y_value(const model_entry *e, const model_params *p, const model_value *v,
                     const uint8_t *prev, size_t i)
{
    model_way way;
    uint8_t kept = model_prev_dtype(p);
    uint32_t nan = 0x7fc00000;
    float value;
    (void)model_find_way(p, e->use, &way);
    memcpy(&value, &nan, sizeof value);
    if (e->role == STATELESS && way.form == FLOATS) return v->r;
    if (way.form == SPARSE && !way.bits) return v->r;
    if (v->poisoned) return value;
    if (e->role == STATELESS) return model_widen(model_rn(v->r, 1), 1);
    return model_widen(model_load(prev, kept, i), kept);
}

static void write_y(const model_header *h, const model_params *p, const model_entry *e,
                    const made *out, uint32_t sample, const dw_tensor *y,
                    const dw_decode_options *options)
{
    uint8_t dtype = (uint8_t)y->dtype;
    for (size_t i = 0; i < (size_t)h->t * h->c; i++) {
        size_t at =
            (size_t)((int64_t)sample * y->stride_n + (int64_t)(i / h->c) * y->stride_t) + i % h->c;
        uint32_t bits = y_bits(e, p, &out->values[i], out->prev, i, dtype);
        if (options && options->adds) {
            float product = options->factor * y_value(e, p, &out->values[i], out->prev, i);
            float sum = model_widen(model_load(y->data, dtype, at), dtype) + product;
            bits = isnan(sum) ? model_nan(dtype) : model_convert(sum, dtype);
        }
        model_store(y->data, dtype, at, bits);
    }
}

/* The code, in units, that stands nearest to u; of two equally near ones the one whose number is
 * even (5, prev in few bits). */
static double nearest_units(double u, uint32_t bits)
{
    static const double units[] = {0, 1, 2, 3, 4, 6, 8, 12};
    int best = 0;
    if (bits == 8) return fmin(fmax(nearbyint(u), -127), 127);
    for (int i = 1; i < 8; i++) {
        double now = fabs(fabs(u) - units[i]), before = fabs(fabs(u) - units[best]);
        if (now < before || (now == before && i % 2 == 0)) best = i;
    }
    return u < 0 ? -units[best] : units[best];
}

/* Makes of prev', in bfloat16, what is held in 8 or 4 bits. */
static void keep_in_bits(uint8_t *prev, size_t n, uint32_t bits)
{
    int k_least = bits == 8 ? -125 : -122, k_most = bits == 8 ? 121 : 124;
    for (size_t first = 0; first < n; first += 16) {
        size_t end = first + 16 < n ? first + 16 : n;
        double largest = 0;
        int k = k_least;
        for (size_t i = first; i < end; i++)
            largest = fmax(largest, fabs((double)model_widen(model_load(prev, 3, i), 3)));
        while (k < k_most && largest >= ldexp(bits == 8 ? 127.5 : 14, k)) k++;
        fuzz_reach(bits == 8 ? "prev in 8 bits" : "prev in 4 bits");
        if (n % 16 && end == n) fuzz_reach("prev in few bits: a short group");
        for (size_t i = first; i < end; i++) {
            double u = ldexp((double)model_widen(model_load(prev, 3, i), 3), -k);
            float value = (float)ldexp(nearest_units(u, bits), k);
            uint32_t wide;
            memcpy(&wide, &value, sizeof wide);
            model_store(prev, 3, i, value == 0 ? 0 : wide >> 16);
        }
    }
}

static void hold(model *m, const model_header *h, const model_params *p, const model_entry *e,
                 uint8_t *prev)
{
    model_held *held = find(m, e->key);
    for (int i = 0; !held && i < MODEL_KEYS; i++)
        if (!m->held[i].used) held = &m->held[i];
    REQUIRE(held != NULL);
    free(held->prev);
    if (p->of[PREV] > 3) keep_in_bits(prev, (size_t)h->t * h->c, p->of[PREV]);
    *held = (model_held){.used = true,
                         .key = e->key,
                         .t = h->t,
                         .c = h->c,
                         .dtype = model_prev_dtype(p),
                         .kept = (uint8_t)p->of[PREV],
                         .incarnation = h->incarnation,
                         .version = h->sequence,
                         .chain = chain_of(h, p, e),
                         .prev = prev};
}

/* A new incarnation begins; the one that it replaces has no drop number any more. */
static void begin_incarnation(model *m, uint64_t incarnation)
{
    if (m->incarnation) m->retired[m->n_retired++ % MODEL_RETIRED] = m->incarnation;
    if (m->dropped_incarnation == m->incarnation) m->dropped_incarnation = 0;
    m->incarnation = incarnation;
    for (int i = 0; i < MODEL_KEYS; i++)
        if (m->held[i].used && m->held[i].incarnation != incarnation) drop(&m->held[i]);
}

/* Step 10, except for y. */
static void take(model *m, const uint8_t *frame, const model_header *h, const model_params *p,
                 made *out)
{
    bool state = false;
    for (uint32_t i = 0; i < h->n; i++) {
        model_entry e = model_entry_at(frame, h, i);
        if (!model_has_state(&e)) continue;
        state = true;
        hold(m, h, p, &e, out[i].prev);
        out[i].prev = NULL;
    }
    for (int i = 0; i < MODEL_KEYS; i++)
        if (is_dropped(&m->held[i], frame, h)) drop(&m->held[i]);
    if (state && m->incarnation != h->incarnation) begin_incarnation(m, h->incarnation);
    if (h->n_forgotten && !is_retired(m, h->incarnation))
        raise_drop_number(m, h->incarnation, h->sequence);
}

static bool payloads_are_whole(const uint8_t *frame, const model_header *h)
{
    uint64_t at = model_tables_end(h);
    for (uint32_t i = 0; i < h->n; i++) {
        model_entry e = model_entry_at(frame, h, i);
        if (e.role != SKIP && model_payload_digest(frame + at, e.payload_bytes) != e.payload_digest)
            return false;
        at += e.payload_bytes;
    }
    return true;
}

static void unmake(made *out, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        free(out[i].values);
        free(out[i].prev);
    }
    free(out);
}

/* Returns NULL if a payload breaks a rule. */
static made *make_all(const model *m, const uint8_t *frame, const model_header *h,
                      const model_params *p)
{
    uint64_t at = model_tables_end(h);
    made *out = calloc(h->n, sizeof *out);
    REQUIRE(out != NULL);
    for (uint32_t i = 0; i < h->n; i++) {
        model_entry e = model_entry_at(frame, h, i);
        if (!make_entry(m, h, p, &e, frame + at, &out[i])) {
            unmake(out, h->n);
            return NULL;
        }
        at += e.payload_bytes;
    }
    return out;
}

/* Step 9. */
static bool states_match(model *m, const uint8_t *frame, const model_header *h,
                         const model_params *p, const made *out)
{
    bool match = true;
    for (uint32_t i = 0; i < h->n; i++) {
        model_entry e = model_entry_at(frame, h, i);
        if (!e.state_digest || state_digest(h, p, &e, out[i].prev) == e.state_digest) continue;
        match = false;
        if (!e.base_chain) continue;
        model_held *held = find(m, e.key);
        raise_drop_number(m, held->incarnation, held->version);
        drop(held);
    }
    return match;
}

static dw_status receive(model *m, const uint8_t *frame, const model_header *h,
                         const model_params *p, const dw_tensor *y,
                         const dw_decode_options *options, int *step)
{
    *step = 8;
    if (!payloads_are_whole(frame, h)) return DW_ERR_CORRUPT;
    made *out = make_all(m, frame, h, p);
    if (!out) return DW_ERR_FORMAT;
    *step = 9;
    bool match = states_match(m, frame, h, p, out);
    for (uint32_t i = 0; i < h->n && match && y->data; i++) {
        model_entry e = model_entry_at(frame, h, i);
        write_y(h, p, &e, &out[i], i, y, options);
    }
    if (match) take(m, frame, h, p, out);
    unmake(out, h->n);
    if (!match) return DW_ERR_STATE;
    *step = MODEL_TAKEN;
    return DW_OK;
}

/* ---- A whole frame, and the reply (6). ------------------------------------------------------- */

static size_t write_reply(const model *m, const uint8_t *frame, const model_header *h,
                          const model_params *p, dw_status status, uint8_t *reply)
{
    uint32_t n = 0;
    bool acked = true, replaced = status == DW_ERR_LIMIT || is_retired(m, h->incarnation);
    for (uint32_t i = 0; i < h->n; i++) {
        model_entry e = model_entry_at(frame, h, i);
        if (!model_has_state(&e)) continue;
        const model_held *held = model_find(m, e.key);
        uint8_t *at = reply + 48 + (size_t)40 * n++;
        memset(at, 0, 40);
        model_put(at, 8, e.key.sample);
        model_put(at + 8, 4, e.key.slice);
        acked = acked && held && held->chain == chain_of(h, p, &e);
        if ((!held || held->incarnation != h->incarnation) && is_dropped_since(m, h)) {
            model_put(at + 16, 8, h->incarnation);
            model_put(at + 24, 8, m->drop_number);
            continue;
        }
        if (!held) continue;
        at[12] = 1;
        model_put(at + 16, 8, held->incarnation);
        model_put(at + 24, 8, held->version);
        bool fits =
            held->t == h->t && held->c == h->c && (held->kept == p->of[PREV] || !p->of[PREV]);
        model_put(at + 32, 8, fits ? held->chain : 0);
    }
    if (n == 0) acked = status == DW_OK;
    memset(reply, 0, 48);
    memcpy(reply, "DWR1\2", 5);
    reply[6] = acked ? 1 : replaced ? 3 : 2;
    model_put(reply + 8, 8, h->incarnation);
    model_put(reply + 16, 8, h->sequence);
    model_put(reply + 24, 4, n);
    model_put(reply + 32, 8, model_hash(reply + 48, (uint64_t)40 * n));
    model_put(reply + 40, 8, model_hash(reply, 40));
    return 48 + (size_t)40 * n;
}

static bool wants_reply(const uint8_t *frame, const model_header *h)
{
    bool named = h->n_forgotten > 0;
    for (uint32_t i = 0; i < h->n && !named; i++) {
        model_entry e = model_entry_at(frame, h, i);
        named = model_has_state(&e);
    }
    return (h->flags & 1) && named;
}

static dw_status check_frame(const model *m, const uint8_t *frame, const model_header *h,
                             const model_params *p, const dw_tensor *y, int *step)
{
    *step = 4;
    if (!is_own(m, frame, h)) return DW_ERR_MISMATCH;
    /* 3.15: a profile of another number of channels. */
    if (m->config.profile_digest && h->c != dw_profile_values(m->config.profile).c)
        return DW_ERR_MISMATCH;
    *step = 5;
    if (h->n != y->n || h->t != y->t || h->c != y->c) return DW_ERR_SHAPE;
    *step = 6;
    if (is_doubled(frame, h)) return DW_ERR_FORMAT;
    *step = 7;
    dw_status status = check_steps(m, frame, h, p);
    if (!status && p->codec == DELTA && !quota_holds(m, frame, h, p)) status = DW_ERR_LIMIT;
    return status;
}

model_answer model_decode(model *m, const uint8_t *frame, size_t len, const dw_tensor *y,
                          const dw_decode_options *options, uint8_t *reply, size_t reply_cap)
{
    model_answer answer = {0};
    model_header h;
    model_params p;
    bool whole;
    answer.status = model_open_frame(frame, len, &h, &p, &answer.step, &whole);
    if (!answer.status) answer.status = check_frame(m, frame, &h, &p, y, &answer.step);
    if (!answer.status) answer.status = receive(m, frame, &h, &p, y, options, &answer.step);
    if (whole && reply && dw_reply_bound(h.n) <= reply_cap && wants_reply(frame, &h))
        answer.reply_len = write_reply(m, frame, &h, &p, answer.status, reply);
    return answer;
}

enum { MOST_SEALED = 1 << 20 }; /* the largest sample for which state digests are computed */

void model_seal_states(const model *m, uint8_t *frame, size_t len)
{
    model_header h;
    model_params p;
    int step;
    bool whole;
    if (model_open_frame(frame, len, &h, &p, &step, &whole) || h.n > 16) return;
    /* A short entropy-coded payload can claim to have any number of values. */
    if ((uint64_t)h.t * h.c > MOST_SEALED) return;
    dw_tensor y = {.n = h.n, .t = h.t, .c = h.c};
    if (check_frame(m, frame, &h, &p, &y, &step)) return;
    made *out = make_all(m, frame, &h, &p);
    if (!out) return;
    for (uint32_t i = 0; i < h.n; i++) {
        model_entry e = model_entry_at(frame, &h, i);
        if (e.state_digest)
            model_put(frame + model_entry_place(&h, i) + 40, 8,
                      state_digest(&h, &p, &e, out[i].prev));
    }
    unmake(out, h.n);
    fuzz_seal_frame(frame, len);
}
