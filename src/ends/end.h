/* SPDX-License-Identifier: Apache-2.0
 * end.h - what an encoder and a decoder have in common: each is one end of a stream of frames.
 *
 * dw_encoder and dw_decoder begin with a dw_end, so that a pointer to one is a pointer to the
 * other. Whatever does not care in which direction frames go is written once, here. */
#ifndef DW_END_H
#define DW_END_H

#include "codecs/options.h"
#include "codecs/plan.h"
#include "deltawire/cuda.h"
#include "engine/engine.h"
#include "state/predict.h"

typedef struct dw_end {
    dw_config config;
    dw_allocator allocator;
    dw_engine engine;
    dw_predictor predictor;
    dw_plan_cache plans;
    uint64_t incarnation; /* of the encoder. A decoder's: of the frames it takes; 0: none came */
    dw_counters counters;
    dw_why why;
} dw_end;

/* Which device an end computes on. */
typedef struct dw_end_device {
    dw_cuda *cuda;
    dw_cuda_place place;
} dw_end_device;

/* make: an object of `bytes` bytes that begins with a dw_end; the rest is zero. device NULL: it
 * computes on the CPU. why may be NULL. Errors: those of dw_encoder_create_why and
 * dw_encoder_create_cuda, with *made NULL; ARGUMENT where made or config is NULL. destroy: gives
 * back all of the object, whose tickets have ended. */
dw_status dw_end_make(dw_end **made, size_t bytes, const dw_config *config,
                      const dw_end_device *device, dw_why *why);
void dw_end_destroy(dw_end *end, size_t bytes);

/* Returns the status, and keeps the sentence that dw_encoder_why and dw_decoder_why return.
 * sentence NULL: the words of dw_status_string. */
dw_status dw_end_fail(dw_end *end, dw_status status, const char *sentence);

/* By the clock of the config; 0: it has none. */
uint64_t dw_end_now(const dw_end *end);

/* grow: room for `need` elements of `element` bytes in an array that has room for *cap of them.
 * array: the address of the pointer to it. false: no memory, and the array is as it was. enlarge:
 * its slow path, where there is not enough room yet. */
bool dw_end_enlarge(dw_end *end, void *array, uint64_t *cap, uint64_t need, size_t element);
DW_INLINE bool dw_end_grow(dw_end *end, void *array, uint64_t *cap, uint64_t need, size_t element)
{
    return need <= *cap || dw_end_enlarge(end, array, cap, need, element);
}

/* The public questions; NULL arguments are errors. */
dw_status dw_end_peek(const dw_end *end, dw_key key, dw_tensor *prev);
dw_status dw_end_counters(const dw_end *end, dw_counters *counters);

#endif
