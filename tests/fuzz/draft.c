/* SPDX-License-Identifier: Apache-2.0
 * draft.c - takes frames apart, changes or invents their parts, and assembles them again. */
#include "draft.h"

#include "model_frame.h"
#include "support/seal.h"

enum { AT_N = 24, AT_T = 28, AT_C = 32, AT_F = 36, AT_P = 41, AT_LENGTH = 48 };
/* In an entry. */
enum { AT_ROLE = 12, AT_FORM = 13, AT_USE = 14, AT_BASE = 16, AT_BYTES = 24, AT_STATE = 40 };
enum { MOST_PAYLOAD = 1 << 16 };

static void put_key(uint8_t *at, dw_key key)
{
    model_put(at, 8, key.sample);
    model_put(at + 8, 4, key.slice);
}

static uint8_t *copy(const uint8_t *from, uint64_t bytes)
{
    uint8_t *made = malloc(bytes ? bytes : 1);
    REQUIRE(made != NULL);
    if (bytes) memcpy(made, from, bytes);
    return made;
}

void draft_free(draft *d)
{
    for (uint32_t i = 0; i < d->n_entries; i++) free(d->payload[i]);
    memset(d, 0, sizeof *d);
}

void draft_read(draft *d, const uint8_t *frame)
{
    memset(d, 0, sizeof *d);
    memcpy(d->header, frame, HEADER);
    d->n_parameters = frame[AT_P];
    d->n_entries = (uint32_t)model_get(frame + AT_N, 4);
    d->n_forgotten = (uint32_t)model_get(frame + AT_F, 4);
    REQUIRE(d->n_parameters <= DRAFT_PARAMETERS && d->n_entries <= DRAFT_ENTRIES);
    REQUIRE(d->n_forgotten <= DRAFT_FORGOTTEN);
    const uint8_t *at = frame + HEADER;
    memcpy(d->parameter, at, (size_t)PARAMETER * d->n_parameters);
    at += (size_t)PARAMETER * d->n_parameters;
    memcpy(d->entry, at, (size_t)ENTRY * d->n_entries);
    at += (size_t)ENTRY * d->n_entries;
    memcpy(d->forgotten, at, (size_t)FORGOTTEN * d->n_forgotten);
    at += (size_t)FORGOTTEN * d->n_forgotten;
    at = frame + ((size_t)(at - frame) + 15) / 16 * 16;
    for (uint32_t i = 0; i < d->n_entries; i++) {
        uint64_t bytes = model_get(d->entry[i] + AT_BYTES, 8);
        d->payload[i] = copy(at, bytes);
        at += bytes;
    }
}

uint8_t *draft_write(const draft *d, size_t *len)
{
    size_t tables = HEADER + (size_t)PARAMETER * d->n_parameters + (size_t)ENTRY * d->n_entries +
                    (size_t)FORGOTTEN * d->n_forgotten;
    size_t end = (tables + 15) / 16 * 16, at = HEADER;
    *len = end;
    for (uint32_t i = 0; i < d->n_entries; i++)
        *len += (size_t)model_get(d->entry[i] + AT_BYTES, 8);
    uint8_t *frame = calloc(*len, 1);
    REQUIRE(frame != NULL);
    memcpy(frame, d->header, HEADER);
    frame[AT_P] = (uint8_t)d->n_parameters;
    model_put(frame + AT_N, 4, d->n_entries);
    model_put(frame + AT_F, 4, d->n_forgotten);
    model_put(frame + AT_LENGTH, 8, *len);
    memcpy(frame + at, d->parameter, (size_t)PARAMETER * d->n_parameters);
    at += (size_t)PARAMETER * d->n_parameters;
    memcpy(frame + at, d->entry, (size_t)ENTRY * d->n_entries);
    at += (size_t)ENTRY * d->n_entries;
    memcpy(frame + at, d->forgotten, (size_t)FORGOTTEN * d->n_forgotten);
    for (uint32_t i = 0; i < d->n_entries; i++) {
        size_t bytes = (size_t)model_get(d->entry[i] + AT_BYTES, 8);
        memcpy(frame + end, d->payload[i], bytes);
        end += bytes;
    }
    fuzz_seal_frame(frame, *len);
    return frame;
}

/* ---- Invented frames. ------------------------------------------------------------------------ */

/* Fills a payload with bytes whose scales are of a common size, or with any bytes. */
static void fill_payload(fuzz_input *input, uint8_t *payload, uint64_t bytes)
{
    uint32_t mode = fuzz_byte(input), seed = (uint32_t)fuzz_bytes(input, 2);
    for (uint64_t i = 0; i < bytes; i++) {
        seed = seed * 1664525u + 1013904223u;
        payload[i] = (uint8_t)(seed >> 24);
        if ((mode & 3) == 1) payload[i] = i % 2 ? 0x3f : payload[i]; /* scales near 1 */
        if ((mode & 3) == 2) payload[i] = i % 2 ? 0x7f : payload[i]; /* large scales, and NaN */
        if ((mode & 3) == 3) payload[i] = (uint8_t)(seed >> 30) * 0x55;
    }
}

/* Turns entry i into one of this role and use, with a payload of the right size. Returns false if
 * the codec has no such use. */
static bool make_entry(draft *d, uint32_t i, fuzz_input *input, const draft_world *world,
                       uint8_t role, uint8_t use)
{
    uint8_t *e = d->entry[i], form = 0, x = d->header[40];
    uint32_t t = (uint32_t)model_get(d->header + AT_T, 4),
             c = (uint32_t)model_get(d->header + AT_C, 4);
    dw_key key = {model_get(e, 8), (uint32_t)model_get(e + 8, 4)};
    const model_held *held = model_find(world->model, key);
    bool audits = world->model->config.audit != DW_AUDIT_NEVER && role != STATELESS;
    bool based = role == CHANGE || role == SKIP;
    if (x < 1 || x > 3) return false;
    size_t bytes = model_payload_bytes(&world->model->config, x, use, t, c, MOST_PAYLOAD, &form);
    if (bytes == SIZE_MAX) return false;
    e[AT_ROLE] = role;
    e[AT_FORM] = form;
    e[AT_USE] = use;
    model_put(e + AT_BASE, 8, !based ? 0 : held ? held->chain : 1);
    model_put(e + AT_BYTES, 8, bytes);
    model_put(e + AT_BYTES + 8, 8, 0); /* the digest of an empty payload; that of others is computed
                                          later */
    model_put(e + AT_STATE, 8, audits);
    free(d->payload[i]);
    d->payload[i] = copy(e, 0);
    if (bytes == 0) return true;
    free(d->payload[i]);
    d->payload[i] = calloc(bytes, 1);
    REQUIRE(d->payload[i] != NULL);
    fill_payload(input, d->payload[i], bytes);
    model_store_payload(&world->model->config, x, use, t, c, d->payload[i]);
    return true;
}

/* Chooses role and use at random. Deltas are the most likely, because the other roles need no base.
 * Some combinations are invalid. */
static void make_any_entry(draft *d, uint32_t i, fuzz_input *input, const draft_world *world)
{
    static const uint8_t kinds[20][2] = {
        {CHANGE, 2}, {CHANGE, 2},    {CHANGE, 2},    {CHANGE, 2},    {KEY, 1},
        {KEY, 1},    {KEY, 1},       {SYNC, 4},      {SYNC, 4},      {SKIP, 0},
        {SKIP, 0},   {SKIP, 0},      {STATELESS, 1}, {STATELESS, 1}, {STATELESS, 3},
        {CHANGE, 2}, {STATELESS, 1}, {CHANGE, 1},    {KEY, 3},       {STATELESS, 4}};
    uint32_t kind = fuzz_below(input, 20);
    bool keeps = world->model->config.codec == DW_CODEC_DELTA || fuzz_byte(input) % 16 == 1;
    if (!keeps || !make_entry(d, i, input, world, kinds[kind][0], kinds[kind][1]))
        (void)make_entry(d, i, input, world, STATELESS, 1);
}

/* Whether places may be drawn alike, which bit 1 of the flags says. */
static bool draws_places(const dw_config *config)
{
    return config->codec == DW_CODEC_RANDK || config->codec == DW_CODEC_COCKTAIL;
}

void draft_make_up(draft *d, fuzz_input *input, const draft_world *world)
{
    memset(d, 0, sizeof *d);
    uint8_t *h = d->header;
    memcpy(h, "DWF1\2", 5);
    h[6] = (uint8_t)world->model->config.codec;
    h[7] = fuzz_byte(input) & (draws_places(&world->model->config) ? 3 : 1);
    model_put(h + 8, 8, world->incarnation);
    model_put(h + 16, 8, world->sequence);
    model_put(h + AT_T, 4, world->t);
    model_put(h + AT_C, 4, world->c);
    h[40] = (uint8_t)world->x;
    d->n_parameters = model_parameters(&world->model->config, h[40], d->parameter[0]);
    d->n_entries = world->n;
    uint32_t first = fuzz_below(input, world->n_keys);
    for (uint32_t i = 0; i < d->n_entries; i++) {
        put_key(d->entry[i], world->keys[(first + i) % world->n_keys]);
        d->payload[i] = copy(d->entry[i], 0);
        make_any_entry(d, i, input, world);
    }
}

/* ---- Changes. -------------------------------------------------------------------------------- */

static void change_parameters(draft *d, fuzz_input *input)
{
    uint32_t n = d->n_parameters, i = n ? fuzz_below(input, n) : 0,
             k = n ? fuzz_below(input, n) : 0;
    uint8_t spare[PARAMETER];
    switch (fuzz_below(input, 4)) {
    case 0: /* removes a parameter */
        if (n == 0) return;
        memmove(d->parameter[i], d->parameter[i + 1], (size_t)PARAMETER * (n - i - 1));
        d->n_parameters--;
        return;
    case 1: /* adds a parameter: a copy of another one, or one with a random number */
        if (n == DRAFT_PARAMETERS) return;
        memmove(d->parameter[i + 1], d->parameter[i], (size_t)PARAMETER * (n - i));
        if (fuzz_byte(input) & 1) {
            memset(d->parameter[i], 0, PARAMETER);
            d->parameter[i][0] = fuzz_byte(input);
            d->parameter[i][4] = fuzz_byte(input);
        } else if (n > 0) {
            memcpy(d->parameter[i], d->parameter[k], PARAMETER);
        }
        d->n_parameters++;
        return;
    case 2: /* exchanges two parameters */
        if (n == 0) return;
        memcpy(spare, d->parameter[i], PARAMETER);
        memcpy(d->parameter[i], d->parameter[k], PARAMETER);
        memcpy(d->parameter[k], spare, PARAMETER);
        return;
    default: /* changes a value to another small one, which is often valid */
        if (n > 0) model_put(d->parameter[i] + 4, 4, 1 + fuzz_below(input, 8));
        return;
    }
}

/* Replaces entry i by a copy of entry k. */
static void copy_entry(draft *d, uint32_t i, uint32_t k)
{
    uint8_t *payload = copy(d->payload[k], model_get(d->entry[k] + AT_BYTES, 8));
    free(d->payload[i]);
    d->payload[i] = payload;
    memcpy(d->entry[i], d->entry[k], ENTRY);
}

static void change_entries(draft *d, fuzz_input *input, const draft_world *world)
{
    uint32_t n = d->n_entries, i = fuzz_below(input, n ? n : 1), k = fuzz_below(input, n ? n : 1);
    if (n == 0) return;
    switch (fuzz_below(input, 7)) {
    case 6: /* the state digest, which the chain does not cover */
        model_put(d->entry[i] + AT_STATE, 8, d->entry[i][AT_STATE] == 0);
        return;
    case 0: /* removes an entry */
        copy_entry(d, i, n - 1);
        free(d->payload[n - 1]);
        d->payload[n - 1] = NULL;
        d->n_entries--;
        return;
    case 1: /* adds a copy of an entry, with the same or another key */
        if (n == DRAFT_ENTRIES) return;
        copy_entry(d, n, i);
        if (fuzz_byte(input) & 1)
            put_key(d->entry[n], world->keys[fuzz_below(input, world->n_keys)]);
        d->n_entries++;
        return;
    case 2: /* another key, with or without its chain */
        put_key(d->entry[i], world->keys[fuzz_below(input, world->n_keys)]);
        if (fuzz_byte(input) & 1) make_any_entry(d, i, input, world);
        return;
    case 3:
    case 4: /* another role */ make_any_entry(d, i, input, world); return;
    default: /* a copy of another entry under another key */
        copy_entry(d, i, k);
        put_key(d->entry[i], world->keys[fuzz_below(input, world->n_keys)]);
        return;
    }
}

static void change_forgotten(draft *d, fuzz_input *input, const draft_world *world)
{
    uint32_t n = d->n_forgotten;
    if (n == DRAFT_FORGOTTEN || (n > 0 && fuzz_byte(input) % 4 == 0)) {
        d->n_forgotten--;
        return;
    }
    memset(d->forgotten[n], 0, FORGOTTEN);
    dw_key key = world->keys[fuzz_below(input, world->n_keys)];
    put_key(d->forgotten[n], key);
    d->n_forgotten++;
}

static void change_header(draft *d, fuzz_input *input, const draft_world *world)
{
    uint8_t *h = d->header;
    switch (fuzz_below(input, 6)) {
    case 0:
        model_put(h + 8, 8, world->incarnation + fuzz_below(input, 3));
        return; /* incarnation */
    case 1:
    case 2: model_put(h + 16, 8, world->sequence + fuzz_below(input, 6) - 3); return; /* sequence */
    case 3: h[7] ^= 1; return;
    case 4:
        h[40] = (uint8_t)(1 + fuzz_below(input, 3));
        return; /* x's dtype, on which other fields depend */
    default:
        d->n_parameters =
            model_parameters(&world->model->config, (uint8_t)(1 + h[40] % 3), d->parameter[0]);
        return;
    }
}

static void change_value(fuzz_input *input, uint8_t *at, int bytes)
{
    uint64_t value = model_get(at, bytes), how = fuzz_below(input, 8);
    switch (how) {
    case 0: value = 0; break;
    case 1: value = 1; break;
    case 2: value = UINT64_MAX; break;
    case 3: value++; break;
    case 4: value--; break;
    case 5: value ^= UINT64_C(1) << fuzz_below(input, (uint32_t)(8 * bytes)); break;
    case 6: value = fuzz_byte(input); break;
    default: value = fuzz_bytes(input, bytes); break;
    }
    model_put(at, bytes, value);
}

/* Changes the length of the payload of entry i: cuts off its end, or appends zeros. bytes: the new
 * length. */
static void change_length(draft *d, uint32_t i, uint64_t bytes)
{
    uint64_t had = model_get(d->entry[i] + AT_BYTES, 8);
    uint8_t *payload = calloc(bytes ? bytes : 1, 1);
    REQUIRE(payload != NULL);
    memcpy(payload, d->payload[i], bytes < had ? bytes : had);
    free(d->payload[i]);
    d->payload[i] = payload;
    model_put(d->entry[i] + AT_BYTES, 8, bytes);
}

/* Changes the entropy-coded payload of entry i: its length, or some byte among its first 256. There
 * lie the sizes of its groups, and the header, the frequencies and the states of its first block,
 * so that most changes break a rule of the format. */
static void change_coded(draft *d, fuzz_input *input, uint32_t i)
{
    uint64_t bytes = model_get(d->entry[i] + AT_BYTES, 8), at;
    uint32_t front = bytes < 256 ? (uint32_t)bytes : 256;
    if (bytes == 0) return;
    switch (fuzz_below(input, 6)) {
    case 0: change_length(d, i, bytes - fuzz_below(input, (uint32_t)bytes)); return;
    case 1: change_length(d, i, bytes - bytes % 64 / 16 * 16); return;
    case 2: change_length(d, i, bytes + 16 * (1 + (uint64_t)fuzz_below(input, 16))); return;
    case 3: /* one of the first 16 words of 4 bytes, which often are sizes of groups */
        at = 4 * (uint64_t)fuzz_below(input, 16);
        if (at + 4 <= bytes) change_value(input, d->payload[i] + at, 4);
        return;
    case 4: d->payload[i][fuzz_below(input, front)] = fuzz_byte(input); return;
    default: d->payload[i][fuzz_below(input, front)] ^= (uint8_t)(1u << fuzz_below(input, 8));
    }
}

/* Changes a payload of factors, or of scales or entries in front of codes: its length by whole
 * units of 16 bytes, or a float in it to one that is hostile. */
static void change_parts(draft *d, fuzz_input *input, uint32_t i)
{
    static const uint32_t floats[] = {0x7f800000, 0xff800000, 0x7fc00001, 0x7f7fffff,
                                      0xff7fffff, 0x00000001, 0x80000000, 0x7f000000};
    uint64_t bytes = model_get(d->entry[i] + AT_BYTES, 8), units = 1 + fuzz_below(input, 4);
    switch (fuzz_below(input, 4)) {
    case 0: change_length(d, i, bytes + 16 * units); return;
    case 1: change_length(d, i, bytes > 16 * units ? bytes - 16 * units : 0); return;
    default:
        for (; units > 0; units--) {
            uint64_t at = (uint64_t)fuzz_below(input, 64) * 4;
            if (at + 4 <= bytes) model_put(d->payload[i] + at, 4, floats[fuzz_below(input, 8)]);
        }
    }
}

/* Changes the payload of one entry: some of its bytes, or, if the config has an entropy coder,
 * usually what change_coded changes. */
static void change_payload(draft *d, fuzz_input *input, const dw_config *config)
{
    uint32_t i = fuzz_below(input, d->n_entries ? d->n_entries : 1);
    uint64_t bytes = d->n_entries ? model_get(d->entry[i] + AT_BYTES, 8) : 0;
    if (d->n_entries && config->entropy == DW_ENTROPY_RANS && fuzz_byte(input) % 4) {
        change_coded(d, input, i);
        return;
    }
    bool has_parts = config->codec == DW_CODEC_LOWRANK || config->codec == DW_CODEC_BLOCKS;
    if (has_parts && bytes > 0 && fuzz_byte(input) % 4 == 3) {
        change_parts(d, input, i);
        return;
    }
    for (uint32_t edits = 1 + fuzz_below(input, 4); edits > 0 && bytes > 0; edits--) {
        uint64_t at = fuzz_below(input, 1 << 16) % bytes;
        d->payload[i][at] = fuzz_byte(input);
    }
}

void draft_change(draft *d, fuzz_input *input, const draft_world *world)
{
    switch (fuzz_below(input, 8)) {
    case 0: change_parameters(d, input); return;
    case 1:
    case 2: change_entries(d, input, world); return;
    case 3: change_forgotten(d, input, world); return;
    case 4: change_header(d, input, world); return;
    default: change_payload(d, input, &world->model->config); return;
    }
}

/* ---- Digests. -------------------------------------------------------------------------------- */

void fuzz_seal_frame(uint8_t *frame, size_t len)
{
    test_seal(frame, len);
}

enum { REPLY_HEADER = 48, REPLY_ENTRY = 40 };

void fuzz_seal_reply(uint8_t *reply, size_t len)
{
    if (len < REPLY_HEADER) return;
    uint64_t table_bytes = REPLY_ENTRY * model_get(reply + 24, 4);
    if (table_bytes > len - REPLY_HEADER) table_bytes = len - REPLY_HEADER;
    model_put(reply + 32, 8, model_hash(reply + REPLY_HEADER, table_bytes));
    model_put(reply + 40, 8, model_hash(reply, 40));
}

/* ---- Fields. --------------------------------------------------------------------------------- */

typedef struct field {
    uint8_t at, bytes;
} field;

static void change_one(fuzz_input *input, uint8_t *bytes, size_t len, size_t start,
                       const field *fields, uint32_t n)
{
    const field *f = &fields[fuzz_below(input, n)];
    if (start <= len && start + f->at + f->bytes <= len)
        change_value(input, bytes + start + f->at, f->bytes);
}

void fuzz_change_field(fuzz_input *input, uint8_t *frame, size_t len)
{
    static const field header[] = {{0, 4},  {4, 1},  {5, 1},  {6, 1},  {7, 1},  {8, 8},
                                   {16, 8}, {24, 4}, {28, 4}, {32, 4}, {36, 4}, {40, 1},
                                   {41, 1}, {42, 6}, {48, 8}, {56, 8}, {64, 8}, {72, 8}};
    static const field parameter[] = {{0, 1}, {1, 3}, {4, 4}, {4, 4}};
    static const field entry[] = {{0, 8},  {8, 4},  {12, 1}, {13, 1}, {14, 1},
                                  {15, 1}, {16, 8}, {24, 8}, {32, 8}, {40, 8}};
    static const field forgotten[] = {{0, 8}, {8, 4}, {12, 4}};
    if (len < HEADER) return;
    uint32_t p = frame[AT_P], n = (uint32_t)model_get(frame + AT_N, 4),
             f = (uint32_t)model_get(frame + AT_F, 4);
    size_t entries = HEADER + (size_t)PARAMETER * p, forgets = entries + (size_t)ENTRY * n;
    switch (fuzz_below(input, 4)) {
    case 0: change_one(input, frame, len, 0, header, sizeof header / sizeof *header); return;
    case 1:
        change_one(input, frame, len, HEADER + (size_t)PARAMETER * fuzz_below(input, p ? p : 1),
                   parameter, 4);
        return;
    case 2:
        change_one(input, frame, len,
                   entries + (size_t)ENTRY * fuzz_below(input, n && n < 256 ? n : 1), entry, 10);
        return;
    default: /* any byte, even of the padding after the tables */
        change_one(input, frame, len,
                   forgets + (size_t)FORGOTTEN * fuzz_below(input, f < 255 ? f + 1 : 1), forgotten,
                   3);
        return;
    }
}

void fuzz_change_reply_field(fuzz_input *input, uint8_t *reply, size_t len)
{
    static const field header[] = {{0, 4},  {4, 1},  {5, 1},  {6, 1},  {7, 1}, {8, 8},
                                   {16, 8}, {24, 4}, {28, 4}, {32, 8}, {40, 8}};
    static const field entry[] = {{0, 8}, {8, 4}, {12, 1}, {13, 3}, {16, 8}, {24, 8}, {32, 8}};
    if (len < REPLY_HEADER) return;
    uint32_t n = (uint32_t)model_get(reply + 24, 4);
    if (fuzz_byte(input) & 1)
        change_one(input, reply, len, 0, header, sizeof header / sizeof *header);
    else
        change_one(input, reply, len,
                   REPLY_HEADER + (size_t)REPLY_ENTRY * fuzz_below(input, n && n < 256 ? n : 1),
                   entry, 7);
}
