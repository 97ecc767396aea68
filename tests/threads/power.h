/* SPDX-License-Identifier: Apache-2.0
 * power.h - a disk in memory behind storage_disk.h, whose power can be cut, and whose calls fail.
 *
 * While it records, every change and every sync is an event. What the disk has after a cut is what
 * was synced before it, and any part of the rest: a write in pieces of 512 or 4096 bytes, a new
 * length, a name. A sync that failed leaves some of it out for ever. */
#ifndef DW_TEST_POWER_H
#define DW_TEST_POWER_H

#include "support/tool.h"

typedef enum power_mode {
    POWER_NONE,
    POWER_ALL,
    POWER_WHOLE,
    POWER_PAGES,
    POWER_SECTORS
} power_mode;

enum { POWER_MODES = POWER_SECTORS + 1 };

/* What a disk may have after a cut, for one cut after the other. */
typedef struct power_walk power_walk;

/* Empties the disk. */
void power_clear(void);

/* Begins to record, from what the disk has now, all of which is synced. */
void power_record(void);

/* Records that the program has reached a point, which has a number. */
void power_reach(uint64_t point);

/* Ends recording, and starts to walk over what was recorded. */
power_walk *power_walk_begin(void);
void power_walk_end(power_walk *walk);

/* Goes on by an event. Returns false at the end. *point: the last one that was reached. */
bool power_walk_next(power_walk *walk, test_random *random, uint64_t *point);

/* Makes the disk what it may be after a cut here. */
void power_cut(const power_walk *walk, power_mode mode, test_random *random);

/* Lets the call with this number fail, from 1, or all from it on; 0: none. Returns how many calls
 * there were since this was last called. */
uint64_t power_fail(uint64_t call, bool goes_on);

#endif
