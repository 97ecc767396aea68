/* SPDX-License-Identifier: Apache-2.0
 * floats.cuh - the form floats, encode and decode: stretches of 2048 elements, DW_SLOTS eights of
 * each per thread, in one pass.
 *
 * These stretches are also those of the state digest, so each is audited as a whole or not at all.
 * Source: docs/format.md, 3.1. The specification is src/codecs/floats.c. */
#ifndef DW_CUDA_FLOATS_CUH
#define DW_CUDA_FLOATS_CUH

#include "block.cuh"

typedef struct dw_floats_room {
    union {
        dw_cuda_encode_part encode;
        dw_cuda_decode_part decode;
    };
    dw_found_room found;
    bool is_last;
} dw_floats_room;

/* Eight consecutive elements of prev and of the payload. In a tensor they may belong to several
 * rows. */
typedef struct dw_floats_place {
    uint64_t dense; /* number of the first element */
    uint32_t n;     /* how many of the eight exist */
} dw_floats_place;

DW_DEVICE dw_floats_place dw_floats_place_of(const dw_layout *layout, uint64_t stretch,
                                             uint32_t slot)
{
    dw_floats_place place;
    uint64_t elements = (uint64_t)layout->t * layout->c;
    place.dense =
        stretch * DW_TILE_ELEMENTS + (uint64_t)(slot * DW_CUDA_THREADS + threadIdx.x) * DW_EIGHT;
    uint64_t left = place.dense < elements ? elements - place.dense : 0;
    place.n = left < DW_EIGHT ? (uint32_t)left : (uint32_t)DW_EIGHT;
    return place;
}

/* Whether the eight are contiguous in a tensor; *at: where the first one lies. */
DW_DEVICE bool dw_floats_touch(const dw_layout *layout, int64_t stride,
                               const dw_floats_place *place, uint64_t *at)
{
    uint64_t row = place->dense / layout->c, column = place->dense - row * layout->c;
    *at = row * (uint64_t)stride + column;
    return stride == (int64_t)layout->c || column + place->n <= layout->c;
}

/* The position in a tensor of the element that follows the one at `at`. *column: its channel, which
 * is updated. */
DW_DEVICE uint64_t dw_floats_behind(const dw_layout *layout, int64_t stride, uint64_t at,
                                    uint64_t *column)
{
    if (++*column < layout->c) return at + 1;
    *column = 0;
    return at + 1 + (uint64_t)stride - layout->c;
}

DW_DEVICE void dw_floats_load(const void *x, dw_dtype dtype, const dw_layout *layout,
                              int64_t stride, const dw_floats_place *place, uint32_t bits[DW_EIGHT])
{
    uint64_t at;
    if (dw_floats_touch(layout, stride, place, &at)) {
        dw_load_eight_bits(x, dtype, at, place->n, bits);
        return;
    }
    uint64_t column = place->dense % layout->c;
#pragma unroll
    for (uint32_t i = 0; i < DW_EIGHT; i++) {
        bits[i] = i < place->n ? dw_load_bits(x, dtype, at) : 0;
        at = dw_floats_behind(layout, stride, at, &column);
    }
}

DW_DEVICE void dw_floats_store(void *y, dw_dtype dtype, const dw_layout *layout, int64_t stride,
                               const dw_floats_place *place, const uint32_t bits[DW_EIGHT])
{
    uint64_t at;
    if (dw_floats_touch(layout, stride, place, &at)) {
        dw_store_eight(y, dtype, at, place->n, bits, false);
        return;
    }
    uint64_t column = place->dense % layout->c;
#pragma unroll
    for (uint32_t i = 0; i < DW_EIGHT; i++) {
        if (i < place->n) dw_store_bits(y, dtype, at, bits[i]);
        at = dw_floats_behind(layout, stride, at, &column);
    }
}

/* ---- Values ---------------------------------------------------------------------------------- */

/* exact: an IEEE conversion, in which NaN and infinities are kept; otherwise RN, and everything not
 * finite becomes NaN. */
DW_DEVICE uint32_t dw_floats_round(float value, dw_dtype dtype, bool exact)
{
    if (!exact) return dw_is_finite(value) ? dw_narrow(value, dtype) : dw_nan_of(dtype);
    if (dtype == DW_F32) return dw_bits_of(value);
    return dtype == DW_F16 ? dw_f16_round(value) : dw_bf16_round(value);
}

/* What both ends keep of a transmitted value: RN of finite values, +0 otherwise. */
DW_DEVICE uint32_t dw_floats_kept(float value, dw_dtype prev_dtype)
{
    return dw_is_finite(value) ? dw_narrow(value, prev_dtype) : 0;
}

/* ---- Payload and digests --------------------------------------------------------------------- */

/* Writes an eight to the payload, as 16 or 32 bytes; the last one may have fewer. Padding and
 * missing elements are zero. Returns the digest of these bytes. */
DW_DEVICE uint64_t dw_floats_put(uint8_t *payload, dw_dtype wire, const dw_floats_place *place,
                                 const uint32_t bits[DW_EIGHT])
{
    uint32_t size = dw_size_of(wire), bytes = place->n * size;
    uint64_t at = place->dense * size, sum = 0;
    dw_sixteen words[2];
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        words[0].word[i] = wire == DW_F32 ? bits[i] : bits[2 * i] | bits[2 * i + 1] << 16;
        words[1].word[i] = bits[4 + i];
    }
#pragma unroll
    for (uint32_t k = 0; k < 2; k++) {
        if (bytes <= 16 * k) continue;
        dw_payload_store(payload + at + 16 * k, words[k]);
        sum += dw_digest_sixteen(words[k], at + 16 * k);
    }
    return sum;
}

DW_DEVICE uint64_t dw_floats_take(const uint8_t *payload, dw_dtype wire,
                                  const dw_floats_place *place, uint32_t bits[DW_EIGHT])
{
    uint32_t size = dw_size_of(wire), bytes = place->n * size;
    uint64_t at = place->dense * size, sum = 0;
    dw_sixteen words[2] = {{{0, 0, 0, 0}}, {{0, 0, 0, 0}}};
#pragma unroll
    for (uint32_t k = 0; k < 2; k++) {
        if (bytes <= 16 * k) continue;
        words[k] = dw_payload_load(payload + at + 16 * k);
        sum += dw_digest_sixteen(words[k], at + 16 * k);
    }
#pragma unroll
    for (uint32_t i = 0; i < DW_EIGHT; i++)
        bits[i] = wire == DW_F32 ? words[i / 4].word[i % 4]
                                 : words[0].word[i / 2] >> (16 * (i % 2)) & 0xffffu;
    return sum;
}

/* Returns the part of the state digest that belongs to an eight of a new prev. In f32, four
 * elements are two pairs of words; at the end of prev the second pair may not exist. */
DW_DEVICE uint64_t dw_floats_audit(dw_audit audit, dw_dtype dtype, const dw_floats_place *place,
                                   const uint32_t bits[DW_EIGHT])
{
    uint64_t sum = 0;
    if (!audit.every || place->dense / DW_TILE_ELEMENTS % audit.every != audit.phase) return 0;
#pragma unroll
    for (uint32_t i = 0; i < DW_EIGHT; i += 4) {
        if (i >= place->n) continue;
        bool no_second = dtype == DW_F32 && place->n - i <= 2;
        sum += no_second ? dw_digest_pair(bits[i], bits[i + 1], (uint32_t)(place->dense + i))
                         : dw_digest_four(bits + i, dtype, place->dense + i);
    }
    return sum;
}

DW_DEVICE void dw_floats_end(const dw_cuda_share *share, const dw_found *found,
                             dw_floats_room *room)
{
    dw_add_block(share->sums, found, &room->found);
    if (dw_is_last(share, &room->is_last) && threadIdx.x == 0) dw_report_tiles(share, 0);
}

/* ---- A stretch ------------------------------------------------------------------------------- */

/* Codes x and the residual together, and completes the residual (codecs/residual.h): what a job
 * without feedback does in dw_floats_encode_stretch. Returns the stretch's part of the payload
 * digest. */
DW_DEVICE uint64_t dw_floats_encode_residual(const dw_encode_job *job, uint64_t index,
                                             dw_found *found)
{
    const dw_dtype wire = job->wire_dtype, narrow = dw_narrows_to(job->x_dtype, DW_F32, wire);
    uint64_t payload = 0;
#pragma unroll 1
    for (uint32_t slot = 0; slot < DW_SLOTS; slot++) {
        dw_floats_place place = dw_floats_place_of(&job->layout, index, slot);
        uint32_t bits[DW_EIGHT], next[DW_EIGHT];
        dw_floats_load(job->x, job->x_dtype, &job->layout, job->stride, &place, bits);
        dw_eight held = dw_load_eight(job->prev, DW_F32, place.dense, place.n);
#pragma unroll
        for (uint32_t i = 0; i < DW_EIGHT; i++) {
            float x = dw_widen(bits[i], job->x_dtype);
            if (narrow != DW_F32) found->overflowed += dw_overflows(x, narrow == DW_F16);
            bits[i] = dw_floats_round(dw_minus_keeping_nan(x, held.of[i]), wire, job->is_exact);
            float sent = dw_widen(bits[i], wire);
            next[i] = dw_bits_of(dw_residual_next(held.of[i], sent, x));
            found->overflowed += dw_residual_overflows(sent, x, wire == DW_F16);
        }
        payload += dw_floats_put(job->payload, wire, &place, bits);
        dw_store_eight(job->next, DW_F32, place.dense, place.n, next, false);
    }
    return payload;
}

DW_DEVICE void dw_floats_encode_stretch(const dw_encode_job *job, uint64_t index, dw_found *found)
{
    const dw_dtype wire = job->wire_dtype,
                   narrow = dw_narrows_to(job->x_dtype, dw_kept_dtype(job, job->prev_dtype), wire);
    /* A sync entry carries prev itself, which is not changed. */
    const bool same = job->is_exact && wire == job->x_dtype,
               keeps = job->next && job->next != job->x;
    if (job->keeps_residual) {
        found->payload += dw_floats_encode_residual(job, index, found);
        return;
    }
#pragma unroll
    for (uint32_t slot = 0; slot < DW_SLOTS; slot++) {
        dw_floats_place place = dw_floats_place_of(&job->layout, index, slot);
        uint32_t bits[DW_EIGHT], next[DW_EIGHT];
        dw_floats_load(job->x, job->x_dtype, &job->layout, job->stride, &place, bits);
#pragma unroll
        for (uint32_t i = 0; i < DW_EIGHT; i++) {
            float x = dw_widen(bits[i], job->x_dtype);
            if (narrow != DW_F32) found->overflowed += dw_overflows(x, narrow == DW_F16);
            if (!same) bits[i] = dw_floats_round(x, wire, job->is_exact);
            float value = dw_widen(bits[i], wire);
            if (!job->is_exact) found->poisoned += dw_is_finite(value) ? 0 : 1;
            next[i] = keeps ? dw_floats_kept(value, job->prev_dtype) : bits[i];
        }
        found->payload += dw_floats_put(job->payload, wire, &place, bits);
        if (!job->next) continue;
        if (keeps) dw_store_eight(job->next, job->prev_dtype, place.dense, place.n, next, false);
        found->state += dw_floats_audit(job->audit, job->prev_dtype, &place, next);
    }
}

DW_DEVICE void dw_floats_encode_stretches(const dw_cuda_encode_part *parts, uint32_t n,
                                          dw_floats_room *room)
{
    uint64_t index;
    dw_found found = {0};
    const dw_cuda_encode_part *part = dw_load_part(parts, n, DW_CUDA_TILES, &room->encode, &index);
    for (; index < part->job.layout.tiles; index += part->share.blocks[DW_CUDA_TILES])
        dw_floats_encode_stretch(&part->job, index, &found);
    dw_floats_end(&part->share, &found, room);
}

/* Writes y of an eight: without state, the transmitted values; with state, RN of the new prev, or
 * NaN where the value was not finite. */
DW_DEVICE void dw_floats_write_output(const dw_decode_job *job, const dw_floats_place *place,
                                      const uint32_t bits[DW_EIGHT], const uint32_t next[DW_EIGHT])
{
    const dw_dtype wire = job->wire_dtype;
    uint32_t out[DW_EIGHT];
#pragma unroll
    for (uint32_t i = 0; i < DW_EIGHT; i++) {
        float value = dw_widen(bits[i], wire);
        if (job->is_exact)
            out[i] = wire == job->y_dtype ? bits[i] : dw_floats_round(value, job->y_dtype, true);
        else
            out[i] = dw_is_finite(value)
                         ? dw_narrow(dw_widen(next[i], job->prev_dtype), job->y_dtype)
                         : dw_nan_of(job->y_dtype);
    }
    dw_floats_store(job->y, job->y_dtype, &job->layout, job->stride, place, out);
}

DW_DEVICE void dw_floats_decode_stretch(const dw_decode_job *job, uint64_t index, dw_found *found)
{
#pragma unroll
    for (uint32_t slot = 0; slot < DW_SLOTS; slot++) {
        dw_floats_place place = dw_floats_place_of(&job->layout, index, slot);
        uint32_t bits[DW_EIGHT], next[DW_EIGHT];
        found->payload += dw_floats_take(job->payload, job->wire_dtype, &place, bits);
#pragma unroll
        for (uint32_t i = 0; i < DW_EIGHT; i++)
            next[i] = job->next && i < place.n
                          ? dw_floats_kept(dw_widen(bits[i], job->wire_dtype), job->prev_dtype)
                          : 0;
        if (job->next) {
            dw_store_eight(job->next, job->prev_dtype, place.dense, place.n, next, false);
            found->state += dw_floats_audit(job->audit, job->prev_dtype, &place, next);
        }
        if (job->y) dw_floats_write_output(job, &place, bits, next);
    }
}

DW_DEVICE void dw_floats_decode_stretches(const dw_cuda_decode_part *parts, uint32_t n,
                                          dw_floats_room *room)
{
    uint64_t index;
    dw_found found = {0};
    const dw_cuda_decode_part *part = dw_load_part(parts, n, DW_CUDA_TILES, &room->decode, &index);
    for (; index < part->job.layout.tiles; index += part->share.blocks[DW_CUDA_TILES])
        dw_floats_decode_stretch(&part->job, index, &found);
    dw_floats_end(&part->share, &found, room);
}

#endif
