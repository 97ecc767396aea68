/* SPDX-License-Identifier: Apache-2.0
 * storage_slots.h - divides the pages of a file into slots. A new slot is one of the same length
 * that was given back lately; or the first gap between the others that is long enough; or, if there
 * is none, it lies behind the last one. Threads: one at a time. */
#ifndef DW_STORAGE_SLOTS_H
#define DW_STORAGE_SLOTS_H

#include <stdbool.h>
#include <stdint.h>

enum { DW_STORAGE_PAGE = 4096, DW_STORAGE_LENGTHS = 16, DW_STORAGE_LATELY = 32 };

/* A training has records of few lengths. For each that was asked for lately: the slots that were
 * given back last, which may have become part of others since; and the page before which no other
 * gap that is so long begins. */
typedef struct storage_length {
    uint64_t pages, from; /* from is 0: nothing was asked for */
    uint64_t lately[DW_STORAGE_LATELY];
    unsigned n_lately;
} storage_length;

typedef struct storage_slots {
    uint64_t *used, words; /* a bit for each page: a slot has it */
    uint64_t end;          /* in pages; the first page is not for slots */
    storage_length lengths[DW_STORAGE_LENGTHS];
    unsigned next_length;
} storage_slots;

/* All zeros is not valid: begin with this. */
void dw_storage_slots_begin(storage_slots *slots);
void dw_storage_slots_free(storage_slots *slots);

/* take, place: false: no memory. place: the slot at an offset. give: cannot fail. */
bool dw_storage_slots_take(storage_slots *slots, uint64_t bytes, uint64_t *offset);
bool dw_storage_slots_place(storage_slots *slots, uint64_t bytes, uint64_t offset);
void dw_storage_slots_give(storage_slots *slots, uint64_t offset, uint64_t bytes);

#endif
