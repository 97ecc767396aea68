/* SPDX-License-Identifier: Apache-2.0
 * storage_snapshots.h - copies that a file holds at one moment, and gives back to a later process.
 *
 * A snapshot is a bit that records have. Its slots are not written again while it lives, and what
 * changes goes to other slots. The file has at most two; while a third is made, the two others stay
 * until the disk has the new index. Threads: any; one at a time makes or reads a snapshot. */
#ifndef DW_STORAGE_SNAPSHOTS_H
#define DW_STORAGE_SNAPSHOTS_H

#include "storage_records.h"

/* Brings back the snapshots of the file's index; without an index the file is begun. After an error
 * neither is changed. */
dw_status dw_storage_snapshots_load(storage_records *all, dw_why *why);

/* The functions of storage.h. `count` fills what tells of snapshots, with the lock held. */
dw_status dw_storage_snapshots_keep(storage_records *all, const void *copy, uint64_t bytes,
                                    uint8_t name[DW_STORAGE_NAME_BYTES], dw_why *why);
dw_status dw_storage_snapshots_save(storage_records *all, uint64_t keeps, uint64_t *made,
                                    dw_why *why);
dw_status dw_storage_snapshots_fetch(storage_records *all, uint64_t snapshot,
                                     const uint8_t name[DW_STORAGE_NAME_BYTES], void *copy,
                                     uint64_t bytes, dw_why *why);
void dw_storage_snapshots_count(const storage_records *all, dw_storage_counters *counters);

#endif
