/* SPDX-License-Identifier: Apache-2.0
 * tiles.h - functions shared by the forms whose payloads consist of tiles (arithmetic/layout.h):
 * the walk through the runs of a chunk, and operations that depend only on the layout.
 *
 * A form asks the walk for one run after the other, passes each to a kernel, and tells the walk
 * when it is done:
 *
 *     dw_walk_encode(&walk, job, chunk);
 *     while (dw_walk_next(&walk)) {
 *         ... one kernel call for walk.run ...
 *         dw_residual_follow(job, &walk.run);
 *         dw_walk_done(&walk, job->kernels);
 *     }
 *
 * or, in a decoder, with dw_walk_start and without a residual.
 *
 * Layouts with a scale per channel may only use the functions that say so. Errors: none. State:
 * only in the walk. Threads: any, each with a walk of its own. */
#ifndef DW_TILES_H
#define DW_TILES_H

#include "codecs/audit.h"
#include "codecs/job.h"
#include "kernels/kernels.h"

/* The norms in the counters are computed from about one element in DW_MEASURED_SHARE. */
enum { DW_MEASURED_SHARE = 32 };

/* The address of an element; NULL where base is NULL. */
static inline void *dw_at(const void *base, dw_dtype dtype, uint64_t element)
{
    return base ? (unsigned char *)(uintptr_t)base + element * (dtype == DW_F32 ? 4 : 2) : NULL;
}

/* Whether the scale in two bytes of a payload marks a poisoned piece. */
static inline bool dw_scale_at_is_poisoned(const uint8_t *scale)
{
    return dw_scale_is_poisoned((uint16_t)(scale[0] | scale[1] << 8));
}

/* A run: consecutive segments of one tile that one kernel call can process. */
typedef struct dw_run {
    dw_tile tile;
    uint32_t first_segment, segments; /* within the tile */
    uint64_t row, column, channels;
    uint64_t element; /* index in prev and next, which are dense */
    /* Where the kernel writes the new prev of these segments: their place in next, or a scratch. */
    void *next;
} dw_run;

/* What happens to a chunk's new prev after the kernels: its part of the state digest is computed,
 * and it may be copied to memory from a scratch. A stretch is digested as soon as it is complete,
 * while it is in the cache. */
typedef struct dw_trail {
    dw_audit audit;
    unsigned char *next;
    dw_dtype dtype;
    /* end: the element behind the chunk; first: the first element of the next audited stretch. */
    uint64_t end, first, sum;
    uint64_t elements; /* number of elements of the sample */
    /* Every tile is one stretch. It is made in scratch and then stored past the caches. */
    bool streams;
    _Alignas(64) unsigned char scratch[4 * DW_TILE_ELEMENTS];
} dw_trail;

typedef struct dw_walk {
    const dw_layout *layout;
    dw_chunk chunk;
    bool rows_touch;       /* a whole tile is one run */
    uint64_t tile;         /* number of the run's tile */
    uint32_t next_segment; /* the segment of the tile that follows the run */
    dw_run run;
    dw_trail trail;
} dw_walk;

/* A prev of at least this size is stored past the caches: it would not stay in them until the next
 * visit, would evict other data, and would be read before it is overwritten. */
enum { DW_STREAMED_BYTES = 32 << 20 };

/* Whether rows without padding follow each other without gaps in prev and in the tensor. Then a
 * whole tile is one run. */
static inline bool dw_rows_touch(const dw_layout *layout, int64_t stride)
{
    return !layout->cut_rows && layout->last_channels == layout->segment_width &&
           stride == (int64_t)layout->c;
}

/* Whether new values can be stored past the caches: every tile is exactly one stretch and one run,
 * and begins at a cache line. */
static inline bool dw_walk_may_stream(const dw_walk *walk, const void *next)
{
    const dw_layout *layout = walk->layout;
    bool whole =
        layout->cut_rows
            ? layout->c % DW_TILE_ELEMENTS == 0
            : walk->rows_touch && layout->tile_segments * layout->segment_width == DW_TILE_ELEMENTS;
    return next && whole && (uintptr_t)next % 64 == 0;
}

static inline void dw_walk_start_trail(dw_walk *walk, dw_audit audit, void *next, dw_dtype dtype)
{
    dw_trail *t = &walk->trail;
    const dw_layout *layout = walk->layout;
    t->audit = audit;
    t->next = next;
    t->dtype = dtype;
    t->elements = next ? (uint64_t)layout->t * layout->c : 0;
    t->end = walk->chunk.first_element + walk->chunk.elements;
    t->first = next && audit.every ? dw_next_stretch(audit, walk->chunk.first_element) : UINT64_MAX;
    t->sum = 0;
    t->streams =
        t->elements * dw_dtype_bytes(dtype) >= DW_STREAMED_BYTES && dw_walk_may_stream(walk, next);
}

/* stride: the distance of tokens in the tensor that is read (encode) or written (decode): that of x
 * or y, or C for a decode with state. next NULL: no state; audit is then ignored. */
static inline void dw_walk_start(dw_walk *walk, const dw_layout *layout, uint64_t chunk,
                                 int64_t stride, dw_audit audit, void *next, dw_dtype prev_dtype)
{
    walk->layout = layout;
    walk->chunk = dw_layout_chunk(layout, chunk);
    walk->rows_touch = dw_rows_touch(layout, stride);
    walk->tile = walk->chunk.first_tile;
    walk->next_segment = 0;
    walk->run.tile = dw_layout_tile(layout, walk->tile);
    dw_walk_start_trail(walk, audit, next, prev_dtype);
}

/* Starts the walk of an encoder. */
static inline void dw_walk_encode(dw_walk *walk, const dw_encode_job *job, uint64_t chunk)
{
    dw_walk_start(walk, &job->layout, chunk, job->stride, job->audit, job->next, job->prev_dtype);
    if (job->bypasses_caches) walk->trail.streams = dw_walk_may_stream(walk, job->next);
}

/* Tells the trail that n elements of the new prev, starting at `element`, are complete. */
void dw_trail_follow(dw_trail *trail, const dw_kernels *kernels, uint64_t element, uint64_t n);

static inline void dw_walk_run(dw_walk *walk)
{
    const dw_layout *layout = walk->layout;
    dw_run *r = &walk->run;
    r->first_segment = walk->next_segment;
    r->segments = r->tile.segments - r->first_segment;
    uint64_t segment = r->tile.first_segment + r->first_segment;
    uint32_t in_row = (uint32_t)(segment % layout->row_segments);
    r->row = segment / layout->row_segments;
    r->column = (uint64_t)in_row * layout->segment_channels;
    r->element = r->row * layout->c + r->column;
    if (walk->rows_touch) {
        r->channels = (uint64_t)r->segments * layout->segment_channels;
        return;
    }
    uint32_t left = layout->row_segments - in_row;
    if (r->segments > left) r->segments = left;
    bool ends_row = r->segments == left;
    r->channels = (uint64_t)(r->segments - ends_row) * layout->segment_channels +
                  (ends_row ? layout->last_channels : 0);
}

/* Advances to the next run. Returns false at the end of the chunk. */
static inline bool dw_walk_next(dw_walk *walk)
{
    dw_trail *trail = &walk->trail;
    if (walk->next_segment == walk->run.tile.segments) {
        if (++walk->tile == walk->chunk.first_tile + walk->chunk.tiles) return false;
        walk->run.tile = dw_layout_tile(walk->layout, walk->tile);
        walk->next_segment = 0;
    }
    dw_walk_run(walk);
    walk->next_segment += walk->run.segments;
    walk->run.next = trail->next && trail->streams
                         ? trail->scratch
                         : dw_at(trail->next, trail->dtype, walk->run.element);
    return true;
}

static inline void dw_walk_done(dw_walk *walk, const dw_kernels *kernels)
{
    const dw_run *r = &walk->run;
    if (walk->trail.streams || walk->trail.first < r->element + r->channels)
        dw_trail_follow(&walk->trail, kernels, r->element, r->channels);
}

/* If the run is exactly the next audited stretch, counts this stretch as audited, and returns the
 * address to which the kernel adds the sum of the stretch. (The kernel can compute the sum from
 * values that are still in registers.) Otherwise returns NULL. */
static inline uint64_t *dw_walk_sum(dw_walk *walk)
{
    dw_trail *trail = &walk->trail;
    if (trail->first != walk->run.element || walk->run.channels != DW_TILE_ELEMENTS ||
        walk->layout->rotates) /* the kernel writes rotated values */
        return NULL;
    trail->first += (uint64_t)trail->audit.every * DW_TILE_ELEMENTS;
    return &trail->sum;
}

/* Elements stored for each segment of a run, padding included. */
static inline uint32_t dw_run_width(const dw_layout *layout, const dw_run *run)
{
    return layout->cut_rows ? run->tile.elements : layout->segment_width;
}

/* Clears the choice bits of a chunk, which are set one by one afterwards, and the padding of its
 * tiles. */
void dw_tiles_clear(const dw_encode_job *job, const dw_chunk *chunk);

/* The sum of the payload digest over a chunk's tiles. */
uint64_t dw_tiles_payload_sum(const dw_encode_job *job, const dw_chunk *chunk);

/* Decodes one run: the function of a form that dw_tiles_measure_run calls for a run that was just
 * encoded, and dw_front_decode for the rotated values of any run. */
typedef void dw_run_decoder(const dw_decode_job *job, const dw_run *run);

/* The number of parts into which a measured tile is divided; one of them is measured. */
static inline uint32_t dw_measured_parts(const dw_layout *layout)
{
    return layout->tile_segments < 8 ? layout->tile_segments : 8;
}

/* One tile of each `period` consecutive ones is measured, at another place among them each time.
 * Otherwise tiles of long rows would always be measured at the same place in their row. */
static inline bool dw_tiles_is_measured(const dw_layout *layout, uint64_t tile)
{
    uint64_t period = DW_MEASURED_SHARE / dw_measured_parts(layout);
    return tile % period == tile / period * 5 % period;
}

void dw_tiles_measure_run(const dw_encode_job *job, uint64_t tile, const dw_run *run,
                          dw_run_decoder *decode, dw_sums *sums);

/* Adds to the sums the distance of x from its base and of the reconstruction from x, for about one
 * element in DW_MEASURED_SHARE. The reconstruction is at run->next; if that is NULL, it is decoded
 * for these elements; prev, if there is one, must be in f32 then. */
static inline void dw_tiles_measure(const dw_encode_job *job, uint64_t tile, const dw_run *run,
                                    dw_run_decoder *decode, dw_sums *sums)
{
    if (dw_tiles_is_measured(&job->layout, tile))
        dw_tiles_measure_run(job, tile, run, decode, sums);
}

/* Copies the kernels' counts of a chunk into its sums. */
static inline void dw_tiles_take_counts(const dw_piece_counts *counts, dw_sums *sums)
{
    sums->pieces = counts->pieces;
    sums->direct = counts->direct;
    sums->zero = counts->zero;
    sums->poisoned = counts->poisoned;
}

/* Functions for the rows of forms (codecs/form.h). All but write_output also work for layouts with
 * a scale per channel. */
void dw_tiles_write_output(const dw_decode_job *job, uint64_t chunk);
void dw_tiles_encoded(const dw_encode_job *job, dw_chunk_result *result);
void dw_tiles_decoded(const dw_decode_job *job, dw_chunk_result *result);
void dw_tiles_count(const dw_decode_job *job, dw_counters *counters);

/* Copies n elements of the new prev, starting at `element`, to their places in y. */
void dw_tiles_write_rows(const dw_decode_job *job, uint64_t element, uint64_t n);

void dw_fill_nan(void *y, dw_dtype dtype, uint64_t n);

/* Whether segment i of a run is poisoned: by its scale, or, with a rotation, by that of any piece
 * of its block. */
bool dw_tiles_is_poisoned(const dw_layout *layout, const uint8_t *payload, const dw_run *run,
                          uint32_t i);

/* Writes n elements of a poisoned piece: with state prev, or +0 where that is NULL; else NaN. */
void dw_fill_poisoned(const void *prev, void *out, dw_dtype dtype, uint64_t n, bool has_state);

#endif
