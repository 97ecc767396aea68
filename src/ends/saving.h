/* SPDX-License-Identifier: Apache-2.0
 * saving.h - one key's state out of a predictor and back, for both ends. */
#ifndef DW_SAVING_H
#define DW_SAVING_H

#include "engine/engine.h"
#include "state/predict.h"
#include "wire/saved.h"

/* An end, as far as saving is concerned. */
typedef struct dw_saver {
    dw_predictor *predictor;
    const dw_allocator *allocator;
    dw_side side;
    uint64_t *incarnation, *sequence; /* sequence NULL: a decoder's */
    const dw_engine *engine;          /* which reaches the copies */
    dw_why *why;
} dw_saver;

dw_status dw_save(const dw_saver *saver, dw_key key, void *room, size_t cap, size_t *len);
dw_status dw_save_all(const dw_saver *saver, dw_saved_visit *visit, void *context);
dw_status dw_restore(const dw_saver *saver, const void *saved, size_t len);

#endif
