/* SPDX-License-Identifier: Apache-2.0
 * storage_slots.c - a bit for each page of the file. */
#include "storage_slots.h"

#include <stdlib.h>
#include <string.h>

void dw_storage_slots_begin(storage_slots *slots)
{
    *slots = (storage_slots){.end = 1};
}

void dw_storage_slots_free(storage_slots *slots)
{
    free(slots->used);
    dw_storage_slots_begin(slots);
}

static uint64_t pages_of(uint64_t bytes)
{
    return (bytes + DW_STORAGE_PAGE - 1) / DW_STORAGE_PAGE;
}

static bool is_used(const storage_slots *slots, uint64_t page)
{
    return slots->used[page / 64] >> page % 64 & 1;
}

/* How many pages are free from this one on, and before it, as far as `most`. */
static uint64_t free_from(const storage_slots *slots, uint64_t page, uint64_t most)
{
    uint64_t at = page;
    while (at < slots->end && at - page < most && !is_used(slots, at))
        at += at % 64 == 0 && slots->used[at / 64] == 0 ? 64 : 1;
    return (at < slots->end ? at : slots->end) - page;
}

static uint64_t free_before(const storage_slots *slots, uint64_t page, uint64_t most)
{
    uint64_t at = page;
    while (page - at < most && !is_used(slots, at - 1))
        at -= at % 64 == 0 && slots->used[at / 64 - 1] == 0 ? 64 : 1;
    return page - at;
}

/* Used pages become free, and free ones used. */
static void turn(storage_slots *slots, uint64_t page, uint64_t n)
{
    for (uint64_t i = page; i < page + n; i++) slots->used[i / 64] ^= (uint64_t)1 << i % 64;
}

/* Makes free pages a slot. */
static bool use(storage_slots *slots, uint64_t page, uint64_t n)
{
    uint64_t words = (page + n) / 64 + 1;
    if (words > slots->words) {
        uint64_t *grown = realloc(slots->used, 2 * words * sizeof *grown);
        if (!grown) return false;
        memset(grown + slots->words, 0, (2 * words - slots->words) * sizeof *grown);
        grown[0] |= 1; /* the first page */
        slots->used = grown;
        slots->words = 2 * words;
    }
    turn(slots, page, n);
    if (slots->end < page + n) slots->end = page + n;
    return true;
}

static storage_length *length_of(storage_slots *slots, uint64_t pages)
{
    for (unsigned i = 0; i < DW_STORAGE_LENGTHS; i++)
        if (slots->lengths[i].from && slots->lengths[i].pages == pages) return &slots->lengths[i];
    storage_length *length = &slots->lengths[slots->next_length++ % DW_STORAGE_LENGTHS];
    *length = (storage_length){.pages = pages, .from = 1};
    return length;
}

/* The first gap that is long enough, or the end. */
static uint64_t search(storage_slots *slots, storage_length *length)
{
    uint64_t page = length->from, n = 0;
    while (page < slots->end && (n = free_from(slots, page, length->pages)) < length->pages &&
           page + n < slots->end) {
        page += n;
        while (page < slots->end && is_used(slots, page))
            page += page % 64 == 0 && slots->used[page / 64] == UINT64_MAX ? 64 : 1;
    }
    length->from = page;
    return page;
}

/* A gap that is long enough for the length may begin at the page. */
static void look_from(storage_length *length, uint64_t page)
{
    if (page < length->from) length->from = page;
}

bool dw_storage_slots_take(storage_slots *slots, uint64_t bytes, uint64_t *offset)
{
    uint64_t n = pages_of(bytes), page = 0, found = 0;
    storage_length *length = length_of(slots, n);
    while (found < n && length->n_lately > 0) {
        page = length->lately[--length->n_lately];
        found = free_from(slots, page, n);
        /* A part of it is used, and what is left may have a neighbour that is free. */
        if (found < n) look_from(length, page - free_before(slots, page, n));
    }
    if (found < n) page = search(slots, length);
    *offset = page * DW_STORAGE_PAGE;
    return use(slots, page, n);
}

bool dw_storage_slots_place(storage_slots *slots, uint64_t bytes, uint64_t offset)
{
    return use(slots, offset / DW_STORAGE_PAGE, pages_of(bytes));
}

void dw_storage_slots_give(storage_slots *slots, uint64_t offset, uint64_t bytes)
{
    uint64_t page = offset / DW_STORAGE_PAGE, n = pages_of(bytes), longest = 0;
    turn(slots, page, n);
    for (unsigned i = 0; i < DW_STORAGE_LENGTHS; i++)
        if (longest < slots->lengths[i].pages) longest = slots->lengths[i].pages;
    uint64_t before = free_before(slots, page, longest), gap = before + n;
    if (gap < longest) gap += free_from(slots, page + n, longest);
    for (unsigned i = 0; i < DW_STORAGE_LENGTHS; i++) {
        storage_length *length = &slots->lengths[i];
        if (length->pages == n && length->n_lately < DW_STORAGE_LATELY)
            length->lately[length->n_lately++] = page;
        else if (length->pages <= gap)
            look_from(length, page - before);
    }
}
