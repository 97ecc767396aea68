/* SPDX-License-Identifier: Apache-2.0
 * decode.cuh - decodes payload and prev to the new prev, or to y: a block takes tiles in turn, and
 * a thread DW_SLOTS eights of each, in one pass.
 *
 * Payloads come from outside: their bytes determine values, but never an address. Source:
 * docs/format.md, 3 to 5. */
#ifndef DW_CUDA_DECODE_CUH
#define DW_CUDA_DECODE_CUH

#include "load.cuh"
#include "rotate.cuh"

typedef struct dw_decode_room {
    __align__(16) uint8_t staged[DW_STAGED_BYTES];
    __align__(16) uint8_t arriving[DW_STAGED_BYTES]; /* of the next tile */
    dw_cuda_decode_part part;
    dw_found_room found;
    bool is_last;
} dw_decode_room;

/* Starts to copy this thread's part of the bytes of a whole tile. */
DW_DEVICE void dw_prefetch_payload(const dw_decode_job *job, const dw_prefetch *prefetch,
                                   uint64_t index, dw_decode_room *room)
{
    const dw_layout *layout = &job->layout;
    if (!prefetch->memory || index == DW_NO_TILE) return;
    const uint8_t *from =
        job->payload + layout->choice_bytes + layout->scale_bytes + index * layout->tile_bytes;
    for (uint32_t at = 16 * threadIdx.x; at < layout->tile_bytes; at += 16 * DW_CUDA_THREADS)
        dw_copy_async(room->arriving + at, from + at);
}

/* Loads a tile into shared memory, sixteen bytes at a time. Returns the digest of the bytes that
 * this thread loaded. If tiles are prefetched, dw_load_held must have been called before, because
 * it waits for the copies, and the next tile is prefetched. */
template <bool Whole>
DW_DEVICE uint64_t dw_take_tile(const dw_decode_job *job, const dw_tile *tile,
                                const dw_prefetch *prefetch, dw_decode_room *room)
{
    uint64_t sum = 0;
    for (uint32_t at = 16 * threadIdx.x; at < tile->bytes; at += 16 * DW_CUDA_THREADS) {
        dw_sixteen all = Whole && prefetch->memory
                             ? *(const dw_sixteen *)(room->arriving + at)
                             : dw_payload_load(job->payload + tile->offset + at);
        *(dw_sixteen *)(room->staged + at) = all;
        sum += dw_digest_sixteen(all, tile->offset + at);
    }
    if (Whole) dw_prefetch_payload(job, prefetch, prefetch->next, room);
    return sum;
}

/* Reads one plane of eight codes: of the first four to *low, of the others to *high. Bits of these
 * words above those of four codes have no meaning. */
DW_DEVICE void dw_get_plane(const uint8_t *at, uint32_t width, uint32_t *low, uint32_t *high)
{
    if (width == 8) {
        *low = ((const uint32_t *)at)[0];
        *high = ((const uint32_t *)at)[1];
    } else if (width == 4) {
        *low = *(const uint32_t *)at;
        *high = *low >> 16;
    } else if (width == 2) {
        *low = *(const uint16_t *)at;
        *high = *low >> 8;
    } else {
        *low = *at;
        *high = *low >> 4;
    }
}

DW_DEVICE void dw_get_codes(const uint8_t *tile, uint32_t bits, uint32_t elements, uint32_t first,
                            uint32_t codes[DW_EIGHT])
{
    uint32_t low, high;
    if (dw_plane_width(bits, 0) == bits) { /* the codes as they are */
        uint32_t mask = (1u << bits) - 1u;
        dw_get_plane(tile + first / 8 * bits, bits, &low, &high);
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            codes[i] = low >> (bits * i) & mask;
            codes[4 + i] = high >> (bits * i) & mask;
        }
        return;
    }
#pragma unroll
    for (uint32_t i = 0; i < DW_EIGHT; i++) codes[i] = 0;
    for (uint32_t from = 0; from < bits;) {
        uint32_t width = dw_plane_width(bits, from), mask = (1u << width) - 1u;
        dw_get_plane(tile + elements / 8 * from + first / 8 * width, width, &low, &high);
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            codes[i] |= (low >> (width * i) & mask) << from;
            codes[4 + i] |= (high >> (width * i) & mask) << from;
        }
        from += width;
    }
}

/* Scale and choice of the piece that element i of an eight belongs to: scale | direct << 16. */
template <bool ByColumns>
DW_DEVICE uint32_t dw_chosen_of(const dw_layout *layout, const uint8_t *payload,
                                const dw_tile *tile, const dw_place *place, uint32_t i,
                                const dw_decode_room *room)
{
    uint64_t piece = ByColumns ? (uint64_t)place->column + i : tile->first_segment + place->segment;
    uint32_t chosen;
    if (ByColumns) {
        const uint8_t *scale = payload + layout->choice_bytes + 2 * piece;
        chosen = scale[0] | (uint32_t)scale[1] << 8;
    } else {
        chosen = *(const uint16_t *)(room->staged + 2 * place->segment);
    }
    if (layout->chooses && (payload[piece / 8] >> piece % 8 & 1)) chosen |= 0x10000u;
    return chosen;
}

/* Decodes the codes of eight elements of one piece. If the piece is poisoned, the values have no
 * meaning. */
DW_DEVICE dw_eight dw_decode_scaled(const uint32_t codes[DW_EIGHT], uint32_t chosen, int32_t half,
                                    const dw_eight *held)
{
    float scale = dw_bf16_widen(dw_scale_in(chosen));
    uint32_t each = half == 1 ? 2 : 1, first = DW_MAGIC_BITS - (uint32_t)half;
    dw_eight values;
#pragma unroll
    for (uint32_t i = 0; i < DW_EIGHT; i++) {
        float base = dw_is_direct(chosen) ? 0.0f : held->of[i],
              level = dw_float_of(codes[i] * each + first) - DW_MAGIC;
        values.of[i] = base + level * scale;
    }
    return values;
}

/* Computes the new prev of eight elements of different pieces, as dw_reconstruct_eight does. */
DW_DEVICE uint32_t dw_reconstruct_columns(const dw_layout *layout, const uint8_t *payload,
                                          const dw_tile *tile, const dw_place *place,
                                          const uint32_t codes[DW_EIGHT], const dw_eight *held,
                                          dw_dtype dtype, bool keeps, const dw_decode_room *room,
                                          uint32_t out[DW_EIGHT])
{
    uint32_t poisoned = 0;
    int32_t half = 1 << (layout->bits - 1);
#pragma unroll
    for (uint32_t i = 0; i < DW_EIGHT; i++) {
        uint32_t chosen =
            i < place->n ? dw_chosen_of<true>(layout, payload, tile, place, i, room) : 0;
        uint16_t scale = dw_scale_in(chosen);
        bool is_poisoned = dw_scale_is_poisoned(scale);
        float base = dw_is_direct(chosen) ? 0.0f : held->of[i];
        float level =
            dw_float_of_level(half == 1 ? 2 * (int32_t)codes[i] - 1 : (int32_t)codes[i] - half);
        float value = is_poisoned ? held->of[i] : base + level * dw_bf16_widen(scale);
        out[i] = is_poisoned && !keeps ? dw_nan_of(dtype) : dw_narrow(value, dtype);
        poisoned |= is_poisoned ? 1u << i : 0;
    }
    return poisoned;
}

/* Computes the new prev of eight elements, or y, as bits of the dtype. keeps: poisoned pieces keep
 * what was held; otherwise they become NaN. Returns a mask of poisoned elements. */
template <bool ByColumns>
DW_DEVICE uint32_t dw_reconstruct_eight(const dw_layout *layout, const uint8_t *payload,
                                        const dw_tile *tile, const dw_place *place,
                                        const dw_eight *held, dw_dtype dtype, bool keeps,
                                        const dw_decode_room *room, uint32_t out[DW_EIGHT])
{
    uint32_t codes[DW_EIGHT];
    dw_get_codes(room->staged + (tile->codes - tile->offset), layout->bits, tile->elements,
                 place->first, codes);
    if (ByColumns) {
        return dw_reconstruct_columns(layout, payload, tile, place, codes, held, dtype, keeps, room,
                                      out);
    } else {
        uint32_t chosen = dw_chosen_of<false>(layout, payload, tile, place, 0, room);
        bool is_poisoned = dw_scale_is_poisoned(dw_scale_in(chosen));
        dw_eight values = dw_decode_scaled(codes, chosen, 1 << (layout->bits - 1), held);
        return dw_narrow_piece(&values, held, is_poisoned, keeps, dtype, out);
    }
}

/* Writes y from the new prev: rounded once more, and NaN where pieces are poisoned. */
DW_DEVICE void dw_write_output(const dw_decode_job *job, const dw_place *place,
                               const uint32_t next[DW_EIGHT], dw_dtype prev_dtype,
                               uint32_t poisoned)
{
    uint32_t bits[DW_EIGHT];
#pragma unroll
    for (uint32_t i = 0; i < DW_EIGHT; i++) {
        bits[i] = job->y_dtype == prev_dtype
                      ? next[i]
                      : dw_narrow(dw_widen(next[i], prev_dtype), job->y_dtype);
        if (poisoned >> i & 1) bits[i] = dw_nan_of(job->y_dtype);
    }
    dw_store_eight(job->y, job->y_dtype, place->tensor, place->n, bits, place->is_whole);
}

/* Channels do not belong to one tile, so the last block counts them. */
DW_DEVICE void dw_count_channels(const dw_cuda_decode_part *part)
{
    const dw_layout *layout = &part->job.layout;
    const uint8_t *payload = part->job.payload, *scales = payload + layout->choice_bytes;
    for (uint64_t i = threadIdx.x; layout->by_channel && i < layout->pieces; i += DW_CUDA_THREADS) {
        uint32_t chosen = scales[2 * i] | (uint32_t)scales[2 * i + 1] << 8;
        if (layout->chooses && (payload[i / 8] >> i % 8 & 1))
            atomicAdd(&part->share.sums->direct, 1ull);
        if (chosen == 0) atomicAdd(&part->share.sums->zero, 1ull);
        if (dw_scale_is_poisoned((uint16_t)chosen)) atomicAdd(&part->share.sums->poisoned, 1ull);
    }
    __syncthreads();
}

DW_DEVICE void dw_end_decode(const dw_cuda_decode_part *part, const dw_found *found,
                             dw_decode_room *room)
{
    dw_add_block(part->share.sums, found, &room->found);
    if (!dw_is_last(&part->share, &room->is_last)) return;
    dw_count_channels(part);
    uint64_t front =
        dw_block_sum(dw_front_sum(&part->job.layout, part->job.payload), room->found.sums[0]);
    dw_cuda_sums *sums = part->share.sums;
    if (threadIdx.x == 0)
        dw_report_part(&part->share,
                       part->job.coded ? dw_taken(&sums->coded) : dw_taken(&sums->payload) + front,
                       0);
}

/* The eights of a thread in a decoder: where they lie, and the prev that is held there. */
typedef struct dw_held_eights {
    dw_place place[DW_SLOTS];
    dw_eight held[DW_SLOTS];
} dw_held_eights;

/* The stride of y, or of prev where y is not wanted. */
template <bool HasState> DW_DEVICE int64_t dw_stride_of(const dw_decode_job *job)
{
    return HasState && !job->y ? (int64_t)job->layout.c : job->stride;
}

/* Finds the eights of a thread and loads prev, or zeros where there is no state. index: the number
 * of the tile. dtype: prev's dtype, or y's without state. */
template <bool HasState, bool Whole>
DW_DEVICE void dw_load_held(const dw_decode_job *job, const dw_tile *tile, uint64_t index,
                            dw_dtype dtype, const dw_prefetch *prefetch, dw_held_eights *all)
{
    dw_eight none[DW_SLOTS];
    dw_find_places<Whole>(&job->layout, tile, index, dw_stride_of<HasState>(job), all->place);
    dw_load_two<Whole>(NULL, dtype, HasState ? job->prev : NULL, dtype, all->place, prefetch, none,
                       all->held);
}

/* Stores a decoded eight: the new prev and y, or y alone without state. bits: the values in dtype.
 * poisoned: a mask of poisoned elements. Returns the part of the state digest that belongs to this
 * eight. */
template <bool HasState>
DW_DEVICE uint64_t dw_store_values(const dw_decode_job *job, const dw_place *place,
                                   const uint32_t bits[DW_EIGHT], dw_dtype dtype, uint32_t poisoned)
{
    if (!HasState) {
        dw_store_eight(job->y, dtype, place->tensor, place->n, bits, place->is_whole);
        return 0;
    }
    dw_store_eight(job->next, dtype, place->dense, place->n, bits, place->is_whole);
    if (job->y) dw_write_output(job, place, bits, dtype, poisoned);
    if (!job->audit.every || job->layout.c % 4 != 0) return 0;
    return dw_audit_eight(job->audit, bits, dtype, place->dense, place->n);
}

/* Reconstructs an eight and stores it. Returns its part of the state digest.
 *
 * reconstruct(base, dtype, keeps, bits): the form's function. It adds what it decodes to the base,
 * writes the bits of dtype, and returns a mask of poisoned elements, which keep the base, or
 * otherwise become NaN. A rotated block is reconstructed without a base, in binary32, and then
 * rotated back; all threads of the warp must take part in that, also where an eight is padding. */
template <bool HasState, bool Rotates, typename Reconstruct>
DW_DEVICE uint64_t dw_store_reconstructed(const dw_decode_job *job, const dw_place *place,
                                          const dw_eight *held, dw_dtype dtype,
                                          Reconstruct reconstruct)
{
    if (!Rotates) {
        uint32_t bits[DW_EIGHT];
        if (!place->n) return 0;
        uint32_t poisoned = reconstruct(held, dtype, HasState, bits);
        return dw_store_values<HasState>(job, place, bits, dtype, poisoned);
    }
    const dw_eight none = {{0}};
    uint32_t bits[DW_EIGHT] = {0};
    bool is_poisoned = place->n && reconstruct(&none, DW_F32, true, bits) != 0;
    dw_unrotate_eight(bits, held, job->layout.rotates, dtype, HasState, &is_poisoned);
    if (!place->n) return 0;
    return dw_store_values<HasState>(job, place, bits, dtype, is_poisoned ? DW_WHOLE_EIGHT : 0);
}

/* Decodes an eight of the staged tile and stores it. Returns its part of the state digest. */
template <bool HasState, int Variant>
DW_DEVICE uint64_t dw_store_decoded(const dw_decode_job *job, const dw_tile *tile,
                                    const dw_place *place, const dw_eight *held, dw_dtype dtype,
                                    const dw_decode_room *room)
{
    return dw_store_reconstructed<HasState, Variant == DW_ROTATED>(
        job, place, held, dtype,
        [&](const dw_eight *base, dw_dtype made, bool keeps, uint32_t *bits) {
            return dw_reconstruct_eight<Variant == DW_BY_COLUMNS>(
                &job->layout, job->payload, tile, place, base, made, keeps, room, bits);
        });
}

template <bool HasState, int Variant, bool Whole>
DW_DEVICE void dw_decode_tile(const dw_decode_job *job, uint64_t index, dw_dtype dtype,
                              dw_decode_room *room, const dw_prefetch *prefetch, dw_found *found)
{
    const dw_layout *layout = &job->layout;
    dw_tile tile = dw_tile_of<Whole>(layout, index);
    dw_held_eights all;
    dw_load_held<HasState, Whole>(job, &tile, index, dtype, prefetch, &all);
    found->payload += dw_take_tile<Whole>(job, &tile, prefetch, room);
    __syncthreads();
#pragma unroll
    for (uint32_t slot = 0; slot < DW_SLOTS; slot++) {
        const dw_place *place = &all.place[slot];
        if (Variant != DW_BY_COLUMNS && place->stored && place->leads)
            dw_count(found, dw_chosen_of<false>(layout, job->payload, &tile, place, 0, room));
        found->state +=
            dw_store_decoded<HasState, Variant>(job, &tile, place, &all.held[slot], dtype, room);
    }
}

/* Decodes the tiles of a block, each with decode(part, index, dtype, prefetch, found, whole), where
 * whole.value says whether the tile is whole. memory: that of dw_prefetch, or NULL. Type:
 * the dtype of prev (with state) or of y (without state); 0: the job says which. */
template <int Type, bool HasState, typename Decode>
DW_DEVICE void dw_for_decoded_tiles(const dw_cuda_decode_part *parts, uint32_t n,
                                    dw_decode_room *room, dw_sixteen *memory, Decode decode)
{
    uint64_t index;
    dw_found found = {0};
    const dw_cuda_decode_part *part = dw_load_part(parts, n, DW_CUDA_TILES, &room->part, &index);
    const dw_decode_job *job = &part->job;
    const dw_dtype dtype = Type ? (dw_dtype)Type : HasState ? job->prev_dtype : job->y_dtype;
    const uint64_t whole =
        dw_whole_tiles(&part->share, &job->layout, dw_stride_of<HasState>(job), job->y,
                       HasState ? job->prev : NULL, HasState ? job->next : NULL);
    const uint64_t blocks = part->share.blocks[DW_CUDA_TILES];
    dw_prefetch prefetch = {memory, DW_NO_TILE};
    if (Type && index < whole) {
        dw_prefetch_two(&prefetch, NULL, HasState ? job->prev : NULL, index);
        dw_prefetch_payload(job, &prefetch, index, room);
    }
    for (; index < job->layout.tiles; index += blocks) {
        prefetch.next = index + blocks < whole ? index + blocks : DW_NO_TILE;
        if (Type && index < whole)
            decode(part, index, dtype, &prefetch, &found, dw_constant<Type != 0>());
        else
            decode(part, index, dtype, &prefetch, &found, dw_constant<false>());
        __syncthreads(); /* the next tile is staged in the same place */
    }
    dw_end_decode(part, &found, room);
}

template <int Type, bool HasState, int Variant>
DW_DEVICE void dw_decode_tiles(const dw_cuda_decode_part *parts, uint32_t n, dw_decode_room *room,
                               dw_sixteen *memory)
{
    dw_for_decoded_tiles<Type, HasState>(
        parts, n, room, memory,
        [&](const dw_cuda_decode_part *part, uint64_t index, dw_dtype dtype,
            const dw_prefetch *prefetch, dw_found *found, auto whole) {
            dw_decode_tile<HasState, Variant, whole.value>(&part->job, index, dtype, room, prefetch,
                                                           found);
        });
}

#endif
