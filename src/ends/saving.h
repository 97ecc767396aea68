/* SPDX-License-Identifier: Apache-2.0
 * saving.h - saves and restores the state of a key, for encoder and decoder, and what an encoder
 * keeps beside its copies. */
#ifndef DW_SAVING_H
#define DW_SAVING_H

#include "ends/end.h"
#include "ends/rate.h"
#include "wire/saved.h"

/* An end, with the data that depends on its direction. */
typedef struct dw_saver {
    dw_end *end;
    dw_side side;
    uint64_t *sequence; /* number of the last frame; NULL for a decoder */
    dw_rate *rate;      /* NULL for a decoder */
} dw_saver;

dw_status dw_save(const dw_saver *saver, const dw_key *key, dw_saved_visit *visit, void *context);
dw_status dw_restore(const dw_saver *saver, const void *saved, size_t len);

#endif
