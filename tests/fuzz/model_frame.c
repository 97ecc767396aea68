/* SPDX-License-Identifier: Apache-2.0
 * model_frame.c - how the model reads a frame: section 1 of docs/format.md, and steps 1 to 3. */
#include "model_frame.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "reach.h"

/* Wide enough for any product of the fields of a header. */
__extension__ typedef unsigned __int128 wide;

uint64_t model_get(const uint8_t *at, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) value |= (uint64_t)at[i] << (8 * i);
    return value;
}

void model_put(uint8_t *at, int bytes, uint64_t value)
{
    for (int i = 0; i < bytes; i++) at[i] = (uint8_t)(value >> (8 * i));
}

uint64_t model_hash(const void *bytes, uint64_t n)
{
    return XXH3_64bits(bytes, (size_t)n);
}

/* ---- Places in a frame (1). ------------------------------------------------------------------ */

uint64_t model_entry_place(const model_header *h, uint32_t i)
{
    return HEADER + PARAMETER * (uint64_t)h->n_parameters + ENTRY * (uint64_t)i;
}

static uint64_t forgotten_place(const model_header *h, uint32_t i)
{
    return model_entry_place(h, h->n) + FORGOTTEN * (uint64_t)i;
}

uint64_t model_tables_end(const model_header *h)
{
    return (forgotten_place(h, h->n_forgotten) + 15) / 16 * 16;
}

model_entry model_entry_at(const uint8_t *frame, const model_header *h, uint32_t i)
{
    const uint8_t *e = frame + model_entry_place(h, i);
    return (model_entry){.key = {model_get(e, 8), (uint32_t)model_get(e + 8, 4)},
                         .role = e[12],
                         .form = e[13],
                         .use = e[14],
                         .zero = e[15],
                         .base_chain = model_get(e + 16, 8),
                         .payload_bytes = model_get(e + 24, 8),
                         .payload_digest = model_get(e + 32, 8),
                         .state_digest = model_get(e + 40, 8)};
}

dw_key model_forgotten_at(const uint8_t *frame, const model_header *h, uint32_t i)
{
    const uint8_t *f = frame + forgotten_place(h, i);
    return (dw_key){model_get(f, 8), (uint32_t)model_get(f + 8, 4)};
}

bool model_has_state(const model_entry *e)
{
    return e->role != STATELESS;
}

/* ---- Steps 1 to 3. --------------------------------------------------------------------------- */

static dw_status open_header(const uint8_t *frame, size_t len, model_header *h)
{
    if (len < HEADER || memcmp(frame, "DWF1", 4) != 0) return DW_ERR_FORMAT;
    if (frame[4] != 2 || frame[5] != 0) return DW_ERR_VERSION;
    if (model_get(frame + 72, 8) != model_hash(frame, 72)) return DW_ERR_CORRUPT;
    *h = (model_header){.codec = frame[6],
                        .flags = frame[7],
                        .incarnation = model_get(frame + 8, 8),
                        .sequence = model_get(frame + 16, 8),
                        .n = (uint32_t)model_get(frame + 24, 4),
                        .t = (uint32_t)model_get(frame + 28, 4),
                        .c = (uint32_t)model_get(frame + 32, 4),
                        .n_forgotten = (uint32_t)model_get(frame + 36, 4),
                        .x = frame[40],
                        .n_parameters = frame[41],
                        .length = model_get(frame + 48, 8),
                        .seed = model_get(frame + 56, 8)};
    if (h->flags > 3 || !h->incarnation || !h->sequence || !h->n || !h->t || !h->c)
        return DW_ERR_FORMAT;
    if (!model_bytes(h->x) || h->n_parameters > 32 || model_get(frame + 42, 6))
        return DW_ERR_FORMAT;
    wide elements = (wide)h->n * h->t * h->c;
    if (elements * 4 >> 63) return DW_ERR_FORMAT;
    wide padded = ((uint64_t)h->c + 31) / 32 * 32, end = model_tables_end(h);
    if (h->length < end || h->length > end + h->n * (padded * 10 * h->t + 96)) return DW_ERR_FORMAT;
    return DW_OK;
}

static dw_status open_tables(const uint8_t *frame, size_t len, const model_header *h)
{
    uint64_t end = model_tables_end(h);
    if (len < end) return DW_ERR_FORMAT;
    return model_get(frame + 64, 8) == model_hash(frame + HEADER, end - HEADER) ? DW_OK
                                                                                : DW_ERR_CORRUPT;
}

static bool entry_is_possible(const model_entry *e)
{
    static const uint8_t uses[6][2] = {{0}, {1, 3}, {1, 1}, {2, 2}, {0, 0}, {4, 4}};
    if (e->zero || e->role < STATELESS || e->role > SYNC) return false;
    if (e->use != uses[e->role][0] && e->use != uses[e->role][1]) return false;
    if ((e->role == CHANGE || e->role == SKIP) != (e->base_chain != 0)) return false;
    if ((e->role == SKIP) != (e->payload_digest == 0)) return false;
    if ((e->role == SKIP) != (e->form == 0)) return false;
    if (e->role == SKIP && e->payload_bytes) return false;
    if (!model_has_state(e) && e->state_digest) return false;
    return e->payload_bytes % 16 == 0;
}

/* The checks of step 3 that do not depend on the codec, except for the length of the bytes. */
static bool tables_are_possible(const uint8_t *frame, const model_header *h)
{
    wide payloads = 0;
    for (uint32_t i = 0; i < h->n; i++) {
        model_entry e = model_entry_at(frame, h, i);
        if (!entry_is_possible(&e)) return false;
        payloads += e.payload_bytes;
    }
    for (uint32_t i = 0; i < h->n_forgotten; i++)
        if (model_get(frame + forgotten_place(h, i) + 12, 4)) return false;
    for (uint64_t at = forgotten_place(h, h->n_forgotten); at < model_tables_end(h); at++)
        if (frame[at]) return false;
    return model_tables_end(h) + payloads == h->length;
}

static bool is_group(uint32_t value)
{
    return value == 16 || value == 32 || value == 64 || value == 128 || value == 256 ||
           value == 65535;
}

static bool is_key(uint32_t value, uint32_t form)
{
    if (value == 32 || value == 16 || value == 17) return true;
    if (form == STEPPED) return value == 128;
    return form == MICROSCALED ? value >= 65 && value <= 70 : value >= 2 && value <= 8;
}

static bool is_sparse(uint8_t codec)
{
    return codec >= TOPK && codec <= CHUNK;
}

/* Whether the codec has nested rows of values. */
static bool has_nested_rows(uint8_t codec)
{
    return is_sparse(codec) || codec == LOW;
}

/* The form of nested rows, or 0 where they are floats. element, bits: 0 where not given. */
static uint32_t nested_form(uint8_t codec, uint32_t element, uint32_t bits)
{
    if (is_sparse(codec) && element) return MICROSCALED;
    return bits || codec == COCKTAIL || codec == CHUNK ? QUANTIZED : 0;
}

/* The table in 1.2: which codec has the parameter, and which values are valid. form: parameter 14,
 * or 0; of the codecs with nested rows their form, or 0; of blocks FITTED with
 * quantile. rotates: there is parameter 32. */
enum { FITTED = 100, QUANTILE = 3 };

static bool codec_has(uint8_t codec, uint32_t form, bool rotates, uint32_t number)
{
    bool quantizes = codec == DIRECT || codec == DELTA;
    if (codec == TAH) return number == TILE || number == SHARE;
    if (codec == IN_BLOCKS) return number == CODEBOOK || (number == BLOCK && form != FITTED);
    if ((number == MASKED && codec == COCKTAIL) || (number == CHUNKED && codec == CHUNK))
        return true;
    if (has_nested_rows(codec))
        return (is_sparse(codec) ? number == KEEP : number == RANK || number == WIDTH) ||
               (form == QUANTIZED     ? number == BITS || number == GROUP
                : form == MICROSCALED ? number == ELEMENT
                                      : number == DTYPE);
    switch (number) {
    case BITS: return quantizes && form == 0;
    case GROUP: return quantizes && form != MICROSCALED;
    case ROUNDING: return quantizes && form == STEPPED;
    case DTYPE: return codec == RAW;
    case FORM: return quantizes && form != 0;
    case ELEMENT: return codec == MX || (codec == DELTA && form == MICROSCALED);
    case CHOOSE: return codec == DELTA && form != STEPPED && !rotates;
    case TRANSFORM: return codec == DELTA || codec == DIRECT || codec == MX;
    case ROTATE: return rotates;
    case PROFILE: return quantizes && form == STEPPED && !rotates;
    case KEY_AS:
    case PREV:
    case AUDIT: return codec == DELTA;
    case CODING: return codec != RAW;
    default: return false;
    }
}

static bool value_is_possible(uint8_t codec, uint32_t number, uint32_t value, uint32_t form)
{
    switch (number) {
    case FORM: return value == STEPPED || (codec == DELTA && value == MICROSCALED);
    case ELEMENT: return value >= 1 && value <= 6;
    case BITS: return value >= 1 && value <= 8;
    case GROUP:
        if (has_nested_rows(codec)) return is_group(value);
        return is_group(value) || value == (form == STEPPED ? 65533 : 65534);
    case KEEP:
    case MASKED: return value >= 1 && value <= 1000000;
    case CHUNKED: return value >= 128 && value <= 65536 && (value & (value - 1)) == 0;
    case RANK: return value >= 1 && value <= 1024;
    case WIDTH: return value >= 1 && value <= 2147483647;
    case PROFILE: return true; /* read_parameters has refused 0 */
    case CODEBOOK: return value >= 1 && value <= QUANTILE;
    case BLOCK: return value >= 64 && value <= 65536 && !(value & (value - 1));
    case ROUNDING: return value == 3;
    case CODING: return value == 2;
    case KEY_AS: return is_key(value, form);
    case PREV: return (value >= 1 && value <= 4) || value == 8;
    case DTYPE: return value >= 1 && value <= 3;
    case CHOOSE: return value == 1 || value == 2;
    case AUDIT: return value >= 1 && value <= 255;
    case TRANSFORM: return value == 2;
    case ROTATE:
    case TILE: return value == 16 || value == 64 || value == 256;
    case SHARE: return value >= 1 && value <= 1000000;
    default: return false;
    }
}

static bool read_parameters(const uint8_t *frame, const model_header *h, model_params *p)
{
    uint32_t wanted = 0, last = 0;
    bool unknown = false; /* a parameter is there with the value 0, which none may have */
    *p =
        (model_params){.codec = h->codec,
                       .digest = model_hash(frame + HEADER, PARAMETER * (uint64_t)h->n_parameters)};
    for (uint32_t i = 0; i < h->n_parameters; i++) {
        const uint8_t *at = frame + HEADER + PARAMETER * i;
        uint32_t number = at[0], value = (uint32_t)model_get(at + 4, 4);
        if (number <= last || number >= MODEL_PARAMETERS || model_get(at + 1, 3)) return false;
        p->of[number] = value;
        last = number;
        unknown |= value == 0;
    }
    uint32_t form = p->of[FORM];
    if (has_nested_rows(h->codec)) form = nested_form(h->codec, p->of[ELEMENT], p->of[BITS]);
    if (h->codec == IN_BLOCKS) form = p->of[CODEBOOK] == QUANTILE ? FITTED : 0;
    for (uint32_t number = 1; number < MODEL_PARAMETERS; number++) {
        bool there = p->of[number] != 0,
             has = codec_has(h->codec, form, p->of[TRANSFORM] != 0, number);
        bool may_be_absent = number == ROUNDING || number == CODING || number == TRANSFORM ||
                             number == WIDTH || number == PROFILE;
        if (may_be_absent && has && !there) continue;
        if (has != there) return false;
        if (has && !value_is_possible(h->codec, number, p->of[number], form)) return false;
        wanted += has;
    }
    return wanted > 0 && !unknown &&
           !((p->of[CODING] || p->of[TRANSFORM]) && p->of[GROUP] == 65534) &&
           !(p->of[PROFILE] && p->of[GROUP] == 65533);
}

static uint8_t dtype_of_key(uint32_t key)
{
    return key == 32 ? 1 : key == 16 ? 2 : key == 17 ? 3 : 0;
}

static bool find_plain_way(const model_params *p, uint32_t use, model_way *way)
{
    *way = p->of[ELEMENT]
               ? model_microscaled(p->of[ELEMENT])
               : (model_way){.form = QUANTIZED, .bits = p->of[BITS], .group = p->of[GROUP]};
    if (p->of[FORM] == STEPPED)
        *way = (model_way){
            .form = STEPPED, .bits = 8, .group = p->of[GROUP], .dithers = p->of[ROUNDING] != 0};
    switch (p->codec * 8 + use) {
    case DELTA * 8 + 0: *way = (model_way){0}; return true;
    case DELTA * 8 + 1:
        if (dtype_of_key(p->of[KEY_AS]))
            *way = (model_way){.form = FLOATS, .dtype = dtype_of_key(p->of[KEY_AS])};
        else if (p->of[FORM] == MICROSCALED)
            *way = model_microscaled(p->of[KEY_AS] - 64);
        else if (p->of[FORM] == 0)
            way->bits = p->of[KEY_AS];
        return true;
    case DELTA * 8 + 2: way->chooses = p->of[CHOOSE] == 1; return true;
    case DELTA * 8 + 4:
        *way = (model_way){.form = FLOATS, .dtype = model_prev_dtype(p)};
        return true;
    case DELTA * 8 + 3:
    case MX * 8 + 1:
    case DIRECT * 8 + 1: return true;
    case TOPK * 8 + 1:
    case RANDK * 8 + 1:
    case COCKTAIL * 8 + 1:
    case CHUNK * 8 + 1:
        *way = (model_way){.form = SPARSE,
                           .bits = way->bits, /* also those of an element */
                           .group = p->of[GROUP],
                           .element = (uint8_t)p->of[ELEMENT],
                           .dtype = (uint8_t)p->of[DTYPE],
                           .keep = p->of[KEEP],
                           .mask = p->of[MASKED],
                           .chunk = p->of[CHUNKED],
                           .is_random = p->codec == RANDK};
        return true;
    case LOW * 8 + 1:
        *way = (model_way){.form = LOWRANK,
                           .bits = p->of[BITS],
                           .group = p->of[GROUP],
                           .dtype = (uint8_t)p->of[DTYPE],
                           .rank = p->of[RANK],
                           .width = p->of[WIDTH]};
        return true;
    case IN_BLOCKS * 8 + 1:
        *way = (model_way){.form = BLOCKS, .codebook = p->of[CODEBOOK], .block = p->of[BLOCK]};
        return true;
    case TAH * 8 + 1:
        *way = (model_way){.form = TILED, .tile = p->of[TILE], .share = p->of[SHARE]};
        return true;
    case RAW * 8 + 1:
        *way = (model_way){.form = FLOATS, .dtype = (uint8_t)p->of[DTYPE]};
        return true;
    default: return false;
    }
}

/* The last table in 1.3. Returns false if the codec has no such use. */
bool model_find_way(const model_params *p, uint32_t use, model_way *way)
{
    if (!find_plain_way(p, use, way)) return false;
    way->coded = p->of[CODING] && way->form != 0 && way->form != FLOATS;
    if (way->form != 0 && way->form != FLOATS) way->rotates = p->of[ROTATE];
    if (way->form == STEPPED) way->profile = p->of[PROFILE];
    return true;
}

/* Whether the factors have the size that rank, width and shape demand. */
static bool lowrank_fits(const model_way *way, const model_header *h, const model_entry *e)
{
    size_t bytes = model_lowrank_size(way, h->t, h->c, (size_t)h->length);
    bool fits = bytes == e->payload_bytes;
    if (bytes == SIZE_MAX)
        fuzz_reach("FORMAT: lowrank: rank and shape");
    else if (!fits)
        fuzz_reach("FORMAT: lowrank: size of the factors");
    return fits;
}

/* A coded payload may have any size up to its largest one; its own sizes are checked in step 8. No
 * frame here is as long as MANY bytes. */
static bool size_fits(const model_way *way, const model_header *h, const model_entry *e)
{
    enum { MANY = 1 << 26 };
    if (way->form == SPARSE) {
        size_t largest = model_sparse_most(way, h->t, h->c, MANY);
        if (largest == SIZE_MAX) return !way->is_random && (uint64_t)h->t * h->c <= 1u << 31;
        return way->is_random ? e->payload_bytes == largest : e->payload_bytes <= largest;
    }
    if (way->form == LOWRANK) return lowrank_fits(way, h, e);
    if (way->form == TILED)
        return model_tah_size(way, h->t, h->c, (size_t)h->length) == e->payload_bytes;
    if (!way->coded) {
        bool fits = model_size(way, h->t, h->c, (size_t)h->length) == e->payload_bytes;
        if (!fits && way->form == BLOCKS) fuzz_reach("FORMAT: blocks: size");
        return fits;
    }
    size_t plain = model_size(way, h->t, h->c, MANY);
    return plain == SIZE_MAX || e->payload_bytes <= model_coded_most(way, h->t, h->c, plain);
}

static bool entries_fit_codec(const uint8_t *frame, const model_header *h, const model_params *p)
{
    bool audited = p->codec == DELTA && p->of[AUDIT] != 255;
    if (p->of[ROTATE] && h->c % p->of[ROTATE]) return false;
    if (p->of[TILE] && h->c % p->of[TILE]) return false;
    bool draws_places = p->codec == RANDK || p->codec == COCKTAIL;
    bool draws = p->of[ROUNDING] || draws_places;
    if ((h->flags & 2) && !draws_places) return false;
    if ((h->seed && !draws) || (h->n_forgotten && p->codec != DELTA)) return false;
    for (uint32_t i = 0; i < h->n; i++) {
        model_entry e = model_entry_at(frame, h, i);
        model_way way;
        if (!model_find_way(p, e.use, &way) || (model_has_state(&e) && p->codec != DELTA))
            return false;
        if (e.form != way.form) return false;
        if ((model_has_state(&e) && audited) != (e.state_digest != 0)) return false;
        if (!size_fits(&way, h, &e)) return false;
    }
    return true;
}

/* *whole: steps 1 and 2 and the part of step 3 that does not depend on the codec are passed, so
 * that a reply can be made. */
dw_status model_open_frame(const uint8_t *frame, size_t len, model_header *h, model_params *p,
                           int *step, bool *whole)
{
    *step = 1;
    *whole = false;
    dw_status status = open_header(frame, len, h);
    if (status) return status;
    *step = 2;
    status = open_tables(frame, len, h);
    if (status) return status;
    *step = 3;
    if (!tables_are_possible(frame, h)) return DW_ERR_FORMAT;
    *whole = true;
    if (!read_parameters(frame, h, p)) {
        *p = (model_params){.digest = p->digest};
        return DW_ERR_FORMAT;
    }
    if (len < h->length || !entries_fit_codec(frame, h, p)) return DW_ERR_FORMAT;
    return DW_OK;
}

dw_status model_read(const uint8_t *frame, size_t len, model_header *h)
{
    model_params p;
    int step;
    bool whole;
    return model_open_frame(frame, len, h, &p, &step, &whole);
}

dw_status model_length(const uint8_t *frame, size_t have, uint64_t *len)
{
    model_header h;
    if (have < HEADER) {
        *len = HEADER;
        return DW_PENDING;
    }
    dw_status status = open_header(frame, have, &h);
    if (!status) *len = h.length;
    return status;
}

/* ---- The decoder's own parameters (1.2), from its config. ------------------------------------ */

uint32_t model_parameters(const dw_config *config, uint8_t x, uint8_t *block)
{
    static const uint8_t own[] = {0, 32, 16, 17};
    uint8_t codec = config->codec ? (uint8_t)config->codec : DELTA;
    uint32_t form = config->form == DW_FORM_QUANTIZED ? 0 : (uint32_t)config->form;
    if (has_nested_rows(codec)) form = nested_form(codec, (uint32_t)config->element, config->bits);
    uint32_t bits = codec == CHUNK ? 2 : 4;
    uint32_t keep = codec == COCKTAIL ? 200000 : codec == CHUNK ? 15625 : 10000;
    uint32_t group = form == STEPPED ? 65535 : codec == CHUNK ? 16 : 64;
    if (codec == IN_BLOCKS) form = config->codebook == DW_CODEBOOK_QUANTILE ? FITTED : 0;
    uint32_t key = form == STEPPED ? 128 : form == MICROSCALED ? 65 : 8;
    uint32_t value[MODEL_PARAMETERS] = {[BITS] = config->bits ? config->bits : bits,
                                        [GROUP] = config->group ? config->group : group,
                                        [ROUNDING] = config->rounding,
                                        [KEY_AS] = config->key ? config->key : key,
                                        [FORM] = form,
                                        [ELEMENT] = config->element ? config->element
                                                    : codec == MX   ? 2
                                                                    : 6,
                                        [CODING] = config->entropy,
                                        [KEEP] = config->keep ? config->keep : keep,
                                        [MASKED] = config->mask ? config->mask : 100000,
                                        [CHUNKED] = config->chunk ? config->chunk : 4096,
                                        [RANK] = config->rank ? config->rank : 4,
                                        [WIDTH] = config->width,
                                        [PROFILE] = config->profile_digest,
                                        [CODEBOOK] = config->codebook ? config->codebook : 1,
                                        [BLOCK] = config->block ? config->block : 4096,
                                        [DTYPE] = config->raw ? config->raw : x,
                                        [PREV] = config->prev ? config->prev : x,
                                        [CHOOSE] = config->choose ? config->choose : 1,
                                        [AUDIT] = config->audit ? config->audit : 1,
                                        [TRANSFORM] = config->transform,
                                        [ROTATE] = config->rotate ? config->rotate : 64,
                                        [TILE] = config->tile ? config->tile : 64,
                                        [SHARE] = config->share ? config->share : 800000};
    bool rotates = value[TRANSFORM] == 2;
    uint32_t n = 0;
    if (value[KEY_AS] == DW_KEY_RAW) value[KEY_AS] = own[x];
    for (uint32_t number = 1; number < MODEL_PARAMETERS; number++) {
        if (!codec_has(codec, form, rotates, number)) continue;
        if (number == ROUNDING && value[number] != 3) continue;
        if ((number == CODING || number == TRANSFORM) && value[number] != 2) continue;
        if (number == WIDTH && value[number] == 0) continue;
        if (number == PROFILE && !value[number]) continue;
        memset(block + (size_t)PARAMETER * n, 0, PARAMETER);
        block[PARAMETER * n] = (uint8_t)number;
        model_put(block + PARAMETER * n + 4, 4, value[number]);
        n++;
    }
    return n;
}

void model_store_payload(const dw_config *config, uint8_t x, uint32_t use, uint32_t t, uint32_t c,
                         uint8_t *payload)
{
    uint8_t frame[HEADER + PARAMETER * MODEL_PARAMETERS] = {0};
    model_header h = {.codec = config->codec ? (uint8_t)config->codec : DELTA};
    model_params p;
    model_way way;
    h.n_parameters = (uint8_t)model_parameters(config, x, frame + HEADER);
    if (!read_parameters(frame, &h, &p) || !model_find_way(&p, use, &way)) return;
    if (way.coded) model_store_sizes(&way, t, c, payload);
    if (way.form == SPARSE) model_sparse_store(&way, t, c, payload);
    if (way.form == TILED) model_tah_store(&way, t, c, payload);
}

size_t model_payload_bytes(const dw_config *config, uint8_t x, uint32_t use, uint32_t t, uint32_t c,
                           size_t most, uint8_t *form)
{
    uint8_t frame[HEADER + PARAMETER * MODEL_PARAMETERS] = {0};
    model_header h = {.codec = config->codec ? (uint8_t)config->codec : DELTA};
    model_params p;
    model_way way;
    h.n_parameters = (uint8_t)model_parameters(config, x, frame + HEADER);
    if (!read_parameters(frame, &h, &p) || !model_find_way(&p, use, &way)) return SIZE_MAX;
    if (way.rotates && c % way.rotates) return SIZE_MAX;
    if (way.tile && c % way.tile) return SIZE_MAX;
    *form = way.form;
    if (way.form == TILED) return model_tah_size(&way, t, c, most);
    if (way.form == SPARSE) return model_sparse_most(&way, t, c, most);
    if (way.form == LOWRANK) return model_lowrank_size(&way, t, c, most);
    size_t plain = model_size(&way, t, c, most);
    if (!way.coded || plain == SIZE_MAX) return plain;
    return (size_t)model_coded_most(&way, t, c, plain);
}
