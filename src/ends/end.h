/* SPDX-License-Identifier: Apache-2.0
 * end.h - what an encoder and a decoder have in common: each is one end of a stream of frames.
 *
 * dw_encoder and dw_decoder begin with a dw_end, so a pointer to one can be converted to the other.
 * Everything that does not depend on the direction of frames is implemented here. */
#ifndef DW_END_H
#define DW_END_H

#include "codecs/options.h"
#include "codecs/plan.h"
#include "codecs/profile.h"
#include "deltawire/cuda.h"
#include "engine/engine.h"
#include "state/predict.h"

/* How far the engine is with the frame of a ticket. first: index of the frame's first job in the
 * launch. captured: a stream captured the frame, so the ticket remains after finish. in_flight:
 * submitted, and neither finished nor cancelled yet. */
typedef struct dw_flight {
    dw_launch *launch;
    uint32_t first;
    bool captured, in_flight;
} dw_flight;

/* config: that of the frames of an encoder; of a decoder, that with which it was made.
 * learnt: copies of the profiles that were given later, the next one of which goes to place
 * n_learnt % DW_PROFILES_KEPT. */
typedef struct dw_end {
    dw_config config;
    dw_profile *learnt[DW_PROFILES_KEPT];
    uint32_t n_learnt;
    dw_host host;
    dw_engine engine;
    dw_predictor predictor;
    dw_plan_cache plans;
    /* Of the encoder; a decoder has the one of the frames that it accepts, or 0 before the first.
     */
    uint64_t incarnation;
    dw_counters counters;
    /* A compact copy that was asked for, expanded; and on a device the same in a slot there. */
    void *peeked, *shown;
    uint64_t peeked_cap, shown_bytes;
    dw_why why;
} dw_end;

/* The largest number of a frame that an encoder learns from a reply or a saved state. None makes so
 * many frames, so their numbers are never used up. */
#define DW_SEQUENCE_MOST (UINT64_MAX / 2)

/* make: allocates an object of `bytes` bytes that begins with a dw_end; the rest is zero. host and
 * why may be NULL. Errors: those of dw_encoder_create, with *made NULL; ARGUMENT where made or
 * config is NULL. destroy: frees the object, whose tickets must have ended. */
dw_status dw_end_make(dw_end **made, size_t bytes, const dw_config *config, const dw_host *host,
                      dw_why *why);
void dw_end_destroy(dw_end *end, size_t bytes);

/* Returns the status, and stores the sentence that dw_encoder_why and dw_decoder_why return.
 * sentence NULL: the text of dw_status_string. */
dw_status dw_end_fail(dw_end *end, dw_status status, const char *sentence);

/* The same for errors of paging.h: for IO there is a sentence already. */
dw_status dw_end_fail_paging(dw_end *end, dw_status status);

/* The time of the host's clock; 0 where it has none. */
uint64_t dw_end_now(const dw_end *end);

/* learn: copies a profile, where the end does not know it yet, in place of the one that was learnt
 * first. *with becomes the end's config with it; profile NULL: without one. No frame may be in
 * flight or captured. Errors, after which nothing has changed: CONFIG, NO_MEMORY, those of the
 * engine. known: returns the profile with this digest; NULL: the end does not know one. channels:
 * returns weights and means of a profile, at the addresses from which the engine reads them. */
dw_status dw_end_learn(dw_end *end, const dw_profile *profile, dw_config *with);
const dw_profile *dw_end_known(const dw_end *end, uint32_t digest);
dw_channels dw_end_channels(const dw_end *end, const dw_profile *profile);

/* grow: makes room for `need` elements of `element` bytes in an array with room for *cap of them.
 * array: the address of the pointer to the array. false: no memory; the array is unchanged.
 * enlarge: the slow path, for arrays that are too small. */
bool dw_end_enlarge(dw_end *end, void *array, uint64_t *cap, uint64_t need, size_t element);
DW_INLINE bool dw_end_grow(dw_end *end, void *array, uint64_t *cap, uint64_t need, size_t element)
{
    return need <= *cap || dw_end_enlarge(end, array, cap, need, element);
}

/* Memory of an entry: the plain payload and the scratch of a stage behind its form, the form's own,
 * and prev and next where copies are compact. dw_end_add_work adds the size of all of it to *bytes;
 * false: too large. dw_end_work says where each part begins, from byte `at` of the memory on; NULL:
 * there is none. dw_end_expand lets a job read prev, and write next, in this memory, and returns
 * what is to be done with its copies. A device has memory of its own for all of it. */
typedef struct dw_work {
    uint8_t *plain, *scratch, *room, *prev, *next;
} dw_work;
bool dw_end_add_work(const dw_plan *plan, uint64_t *bytes);
dw_work dw_end_work(const dw_plan *plan, uint8_t *memory, uint64_t at);
dw_copies dw_end_expand(const dw_plan *plan, const dw_work *work, const void **prev, void **next);

/* The engine's results of a frame in flight, of n jobs; PENDING: it has not finished. */
static inline dw_status dw_end_done(const dw_end *end, const dw_flight *flight, uint32_t n,
                                    dw_chunk_result *results)
{
    return end->engine.done(flight->launch, flight->first, n, results);
}

/* Why a profile is refused while frames are in flight. */
extern const char dw_end_busy[];

/* Implement the public functions of both ends; NULL arguments are errors. peek may bring the copy
 * back from the backing store, and expand a compact one, which changes nothing that can be asked
 * for. */
dw_status dw_end_peek(dw_end *end, dw_key key, dw_tensor *prev);
dw_status dw_end_prefetch(dw_end *end, const dw_key *keys, size_t n);
dw_status dw_end_count(dw_end *end, dw_counters *counters);

#endif
