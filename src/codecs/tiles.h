/* SPDX-License-Identifier: Apache-2.0
 * tiles.h - what the forms share whose payloads are laid out in tiles (arithmetic/layout.h): the
 * walk of a chunk through its runs, and what is done with payloads by their layout alone.
 *
 * A form asks the walk for one run after the other, hands each to a kernel, and tells the walk when
 * it is done:
 *
 *     dw_walk_start(&walk, &job->layout, chunk, job->stride, job->audit, job->next, prev_dtype);
 *     while (dw_walk_next(&walk)) {
 *         ... one kernel call for walk.run ...
 *         dw_walk_done(&walk, job->kernels);
 *     }
 *
 * Not for layouts with a scale per channel, but for the functions that say so. Errors: none. State:
 * none but the walk's own. Threads: any, each with a walk of its own. */
#ifndef DW_TILES_H
#define DW_TILES_H

#include "codecs/audit.h"
#include "codecs/job.h"
#include "kernels/kernels.h"

/* The norms in the counters come from one element in about so many. */
enum { DW_MEASURED_SHARE = 32 };

/* The address of an element; NULL where there is none. */
static inline void *dw_at(const void *base, dw_dtype dtype, uint64_t element)
{
    return base ? (unsigned char *)(uintptr_t)base + element * (dtype == DW_F32 ? 4 : 2) : NULL;
}

/* A run: the segments of one tile that one kernel call can take. */
typedef struct dw_run {
    dw_tile tile;
    uint32_t first_segment, segments; /* within the tile */
    uint64_t row, column, channels;
    uint64_t element; /* of prev and next, which are dense */
    void *next;       /* where the new prev of these segments goes first: its place, or a scratch */
} dw_run;

/* What becomes of a chunk's new prev behind the kernels: its part of the state digest, and its way
 * to memory. The digest takes a stretch as soon as it is whole, while it is in the cache. */
typedef struct dw_trail {
    dw_audit audit;
    unsigned char *next;
    dw_dtype dtype;
    /* end: element behind the chunk; first: of the next audited stretch. */
    uint64_t end, first, sum;
    uint64_t elements; /* of the sample */
    bool streams;      /* a tile is a stretch: it is made in scratch, and goes past the caches */
    _Alignas(64) unsigned char scratch[4 * DW_TILE_ELEMENTS];
} dw_trail;

typedef struct dw_walk {
    const dw_layout *layout;
    dw_chunk chunk;
    bool rows_touch;       /* a tile is one run */
    uint64_t tile;         /* number of the run's tile */
    uint32_t next_segment; /* of the tile, behind the run */
    dw_run run;
    dw_trail trail;
} dw_walk;

/* Samples that no cache holds until they are needed again need not push others out of it, nor be
 * read before they are written. */
enum { DW_STREAMED_BYTES = 32 << 20 };

/* Rows that fill their segments lie side by side in prev, and in a tensor without gaps: then a tile
 * is one run. */
static inline bool dw_rows_touch(const dw_layout *layout, int64_t stride)
{
    return !layout->cut_rows && layout->last_channels == layout->segment_width &&
           stride == (int64_t)layout->c;
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
    /* Tiles that are stretches, each in one run. */
    bool whole =
        layout->cut_rows
            ? layout->c % DW_TILE_ELEMENTS == 0
            : walk->rows_touch && layout->tile_segments * layout->segment_width == DW_TILE_ELEMENTS;
    t->streams = whole && t->elements * dw_dtype_bytes(dtype) >= DW_STREAMED_BYTES &&
                 (uintptr_t)next % 64 == 0;
}

/* stride: of x where values are encoded, of what is written where they are decoded: T's step of y,
 * or C where there is state. next NULL: no state, and audit does not count. */
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

/* n elements of the new prev from `element` on are made. */
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

/* false: the chunk is done. */
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

/* A run that is the next audited stretch: where the kernel may add the stretch's sum, out of its
 * registers; else NULL. */
static inline uint64_t *dw_walk_sum(dw_walk *walk)
{
    dw_trail *trail = &walk->trail;
    if (trail->first != walk->run.element || walk->run.channels != DW_TILE_ELEMENTS) return NULL;
    trail->first += (uint64_t)trail->audit.every * DW_TILE_ELEMENTS;
    return &trail->sum;
}

/* Elements that the layout stores for each of a run's segments. */
static inline uint32_t dw_run_width(const dw_layout *layout, const dw_run *run)
{
    return layout->cut_rows ? run->tile.elements : layout->segment_width;
}

/* Choice bits of a chunk, which are set one by one, and what pads its tiles, to zero. */
void dw_tiles_clear(const dw_encode_job *job, const dw_chunk *chunk);

/* The sum of the payload digest over a chunk's tiles. */
uint64_t dw_tiles_payload_sum(const dw_encode_job *job, const dw_chunk *chunk);

/* Decodes a run that was just encoded, of a job without state, to binary32. */
typedef void dw_run_decoder(const dw_decode_job *job, const dw_run *run);

/* Of a tile that is measured, one part is, an eighth where it has so many segments. */
static inline uint32_t dw_measured_parts(const dw_layout *layout)
{
    return layout->tile_segments < 8 ? layout->tile_segments : 8;
}

void dw_tiles_measure_run(const dw_encode_job *job, uint64_t tile, const dw_run *run,
                          dw_run_decoder *decode, dw_sums *sums);

/* Adds to the sums how far x was from its base, and how far the reconstruction is from x: for one
 * element in about DW_MEASURED_SHARE. */
static inline void dw_tiles_measure(const dw_encode_job *job, uint64_t tile, const dw_run *run,
                                    dw_run_decoder *decode, dw_sums *sums)
{
    if (tile % (DW_MEASURED_SHARE / dw_measured_parts(&job->layout)) == 0)
        dw_tiles_measure_run(job, tile, run, decode, sums);
}

/* What the kernels counted of a chunk into what is known of it. */
static inline void dw_tiles_take_counts(const dw_piece_counts *counts, dw_sums *sums)
{
    sums->pieces = counts->pieces;
    sums->direct = counts->direct;
    sums->zero = counts->zero;
    sums->poisoned = counts->poisoned;
}

/* The rows of a form (codecs/form.h), also of layouts with a scale per channel but for emit. */
void dw_tiles_emit(const dw_decode_job *job, uint64_t chunk);
void dw_tiles_encoded(const dw_encode_job *job, dw_chunk_result *result);
void dw_tiles_decoded(const dw_decode_job *job, dw_chunk_result *result);
void dw_tiles_count(const dw_decode_job *job, dw_counters *counters);

/* n elements of the new prev from `element` on to their places in y. */
void dw_tiles_emit_rows(const dw_decode_job *job, uint64_t element, uint64_t n);

void dw_fill_nan(void *y, dw_dtype dtype, uint64_t n);

#endif
