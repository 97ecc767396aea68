/* SPDX-License-Identifier: Apache-2.0
 * places.c - reads which elements a sparse frame carries, gathers them and scatters them. */
#include "deltawire/places.h"

#include <string.h>

#include "arithmetic/half.h"
#include "base/sentence.h"
#include "codecs/sparse.h"
#include "common/tensor.h"
#include "ends/reading.h"
#include "engine/engine.h"

struct dw_places {
    dw_allocator allocator;
    uint32_t n, t, c, k;
    uint32_t lists[]; /* (n, k) */
};

/* ---- Reading --------------------------------------------------------------------------------- */

static uint64_t bytes_of(uint64_t n, uint64_t k)
{
    return sizeof(dw_places) + sizeof(uint32_t) * n * k;
}

/* A frame that is being read, and room for the mask of one entry. */
typedef struct reading {
    const uint8_t *frame;
    dw_header header;
    dw_config config;
    dw_plans plans;
    dw_sparse_reader reader;
    uint8_t *room;
} reading;

/* Makes the mask of an entry. */
static dw_status read_mask(const reading *r, const dw_entry *entry, dw_why *why)
{
    uint64_t sum, draws_key = dw_shared_draws_key(&r->header, entry->key);
    const char *reason = dw_sparse_read(&r->reader, r->frame + entry->payload_offset,
                                        entry->payload_bytes, draws_key, r->room, &sum);
    if (dw_digest_of_sum(sum) != entry->payload_digest)
        return dw_say(why, DW_ERR_CORRUPT, "a payload of the frame does not match its digest");
    return reason ? dw_say(why, DW_ERR_FORMAT, "%s", reason) : DW_OK;
}

/* Reads all entries. Codecs with the form sparse have one use, so the plan is that of all. */
static dw_status read_entries(const reading *r, dw_places *places, dw_why *why)
{
    uint64_t at = 0;
    uint32_t *to = places->lists;
    (void)dw_frame_table_end(r->header.n_parameters, r->header.n, r->header.n_forgotten, &at);
    for (uint32_t i = 0; i < places->n; i++) {
        dw_entry entry;
        dw_frame_get_entry(r->frame, &r->header, i, &entry);
        entry.payload_offset = at;
        at += entry.payload_bytes;
        dw_status status = read_mask(r, &entry, why);
        if (status) return status;
        dw_mask_walk walk = {.mask = r->room, .n = (uint64_t)places->t * places->c};
        while (dw_mask_next(&walk)) *to++ = (uint32_t)walk.at;
    }
    return DW_OK;
}

/* No memory is allocated for a frame that is too short for its values. So the size of the
 * places, at most 32 bytes for a byte of the frame, does not overflow. */
static dw_status read_places(reading *r, const dw_allocator *allocator, dw_places **places,
                             dw_why *why)
{
    const dw_sparse *sparse = &r->reader.sparse;
    if (r->header.length / r->header.n < sparse->values_bytes)
        return dw_say(why, DW_ERR_FORMAT, "the frame is too short for its values");
    uint64_t bytes = bytes_of(r->header.n, sparse->k);
    dw_places *made = dw_mem_allocate(allocator, bytes);
    r->room = made ? dw_mem_allocate(allocator, r->reader.room_bytes) : NULL;
    dw_status status = DW_ERR_NO_MEMORY;
    if (r->room) {
        *made = (dw_places){*allocator, r->header.n, r->header.t, r->header.c, (uint32_t)sparse->k};
        status = read_entries(r, made, why);
        dw_mem_release(allocator, r->room, r->reader.room_bytes);
    } else {
        dw_say(why, status, "there is no memory for the places");
    }
    if (status)
        dw_mem_release(allocator, made, bytes);
    else
        *places = made;
    return status;
}

dw_status dw_places_read(dw_places **places, const void *frame, size_t len,
                         const dw_allocator *allocator, dw_why *why)
{
    const dw_allocator none = {0};
    dw_allocator own = dw_mem_allocator(allocator ? allocator : &none);
    if (why) *why = (dw_why){.offset = -1};
    if (!places) return DW_ERR_ARGUMENT;
    *places = NULL;
    if (!frame) return dw_say(why, DW_ERR_ARGUMENT, "there is no frame");
    reading r = {.frame = frame};
    const char *reason;
    dw_status status = dw_frame_inspect(frame, len, &r.header, &r.plans, &r.config, &reason);
    if (status) return dw_say(why, status, "the frame cannot be read: %s", reason);
    const dw_plan *plan = &r.plans.of[DW_USE_WHOLE];
    if (plan->form != &dw_form_sparse)
        return dw_say(why, DW_ERR_UNSUPPORTED,
                      "the frame carries all elements of its samples: only the codecs topk, "
                      "randk, cocktail and chunk choose some");
    r.reader = dw_sparse_reader_of(plan);
    return read_places(&r, &own, places, why);
}

void dw_places_destroy(dw_places *places)
{
    if (!places) return;
    dw_allocator allocator = places->allocator;
    dw_mem_release(&allocator, places, bytes_of(places->n, places->k));
}

uint32_t dw_places_count(const dw_places *places)
{
    return places ? places->k : 0;
}

const uint32_t *dw_places_list(const dw_places *places, uint32_t sample)
{
    return places && sample < places->n ? places->lists + (uint64_t)sample * places->k : NULL;
}

/* ---- Moving values --------------------------------------------------------------------------- */

static dw_status check(const dw_places *p, const dw_tensor *x, const dw_tensor *z,
                       const dw_tensor *written, dw_why *why)
{
    if (why) *why = (dw_why){.offset = -1};
    if (!p || !x || !z) return dw_say(why, DW_ERR_ARGUMENT, "places and two tensors are needed");
    dw_status status = dw_tensor_check(x);
    if (!status) status = dw_tensor_check(z);
    if (!status && (!x->data || !z->data)) status = DW_ERR_ARGUMENT;
    if (status) return dw_say(why, status, "one of the tensors is not valid");
    if (z->dtype != DW_F32) return dw_say(why, DW_ERR_ARGUMENT, "the values at places are f32");
    if (dw_tensor_overlaps(written))
        return dw_say(why, DW_ERR_ARGUMENT, "samples of the tensor to be written overlap");
    if (x->n == p->n && x->t == p->t && x->c == p->c && z->n == p->n && z->t == 1 && z->c == p->k)
        return DW_OK;
    return dw_say(why, DW_ERR_SHAPE,
                  "the frame carries %u elements of each sample of a tensor (%u, %u, %u), but the "
                  "tensor given is (%u, %u, %u), and that of the values at the places is (%u, %u, "
                  "%u)",
                  p->k, p->n, p->t, p->c, x->n, x->t, x->c, z->n, z->t, z->c);
}

/* Turns places of a sample, which ascend, into indices of its elements. Both are equal, unless the
 * tensor has gaps between its tokens. A division for every element would be slow, so the finder
 * goes on from the token of the place before. */
typedef struct finder {
    uint64_t end;   /* the first place of the next token */
    uint64_t shift; /* from a place to the index of its element */
    uint64_t gap;   /* elements between two tokens */
    uint32_t c;
} finder;

static finder finder_of(const dw_tensor *x)
{
    uint64_t gap = x->t == 1 ? 0 : (uint64_t)x->stride_t - x->c;
    return (finder){gap ? x->c : UINT64_MAX, 0, gap, x->c};
}

static uint64_t find(finder *f, uint32_t place)
{
    enum { FAR = 16 }; /* tokens; from here on one division is faster than single steps */
    if (place >= f->end && place - f->end >= (uint64_t)FAR * f->c) {
        uint64_t tokens = (place - f->end) / f->c;
        f->end += tokens * f->c;
        f->shift += tokens * f->gap;
    }
    while (place >= f->end) f->end += f->c, f->shift += f->gap;
    return place + f->shift;
}

dw_status dw_places_gather(const dw_places *p, const dw_tensor *x, const dw_tensor *z, dw_why *why)
{
    dw_status status = check(p, x, z, z, why);
    for (uint32_t n = 0; !status && n < x->n; n++) {
        const uint32_t *list = dw_places_list(p, n);
        const void *sample = dw_tensor_sample(x, n);
        float *to = dw_tensor_sample(z, n);
        finder f = finder_of(x);
        if (x->dtype == DW_F32)
            for (uint32_t i = 0; i < p->k; i++) to[i] = ((const float *)sample)[find(&f, list[i])];
        else if (x->dtype == DW_F16)
            for (uint32_t i = 0; i < p->k; i++)
                to[i] = dw_f16_widen(((const uint16_t *)sample)[find(&f, list[i])]);
        else
            for (uint32_t i = 0; i < p->k; i++)
                to[i] = dw_bf16_widen(((const uint16_t *)sample)[find(&f, list[i])]);
    }
    return status;
}

/* Finite values stay finite, as where a frame is decoded to 16 bits. */
static uint16_t to_f16(float value)
{
    return dw_is_finite(value) ? dw_f16_finite(value) : dw_f16_round(value);
}

static uint16_t to_bf16(float value)
{
    return dw_is_finite(value) ? dw_bf16_finite(value) : dw_bf16_round(value);
}

dw_status dw_places_scatter(const dw_places *p, const dw_tensor *z, const dw_tensor *y, dw_why *why)
{
    dw_status status = check(p, y, z, y, why);
    for (uint32_t n = 0; !status && n < y->n; n++) {
        const uint32_t *list = dw_places_list(p, n);
        void *sample = dw_tensor_sample(y, n);
        const float *from = dw_tensor_sample(z, n);
        size_t size = dw_dtype_bytes(y->dtype);
        finder f = finder_of(y);
        for (uint32_t t = 0; t < y->t; t++)
            memset((uint8_t *)sample + t * (uint64_t)y->stride_t * size, 0, y->c * size);
        if (y->dtype == DW_F32)
            for (uint32_t i = 0; i < p->k; i++) ((float *)sample)[find(&f, list[i])] = from[i];
        else if (y->dtype == DW_F16)
            for (uint32_t i = 0; i < p->k; i++)
                ((uint16_t *)sample)[find(&f, list[i])] = to_f16(from[i]);
        else
            for (uint32_t i = 0; i < p->k; i++)
                ((uint16_t *)sample)[find(&f, list[i])] = to_bf16(from[i]);
    }
    return status;
}
