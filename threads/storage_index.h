/* SPDX-License-Identifier: Apache-2.0
 * storage_index.h - the file beside a storage's that says where the copies of its snapshots lie.
 *
 * It is replaced as a whole: written under another name, synced, renamed, and its folder synced. It
 * holds one or two snapshots, of which the newer one has its generation. Little-endian:
 *
 * | offset | bytes | field                                                                     |
 * | 0      | 32    | "deltawire: index of copies, v1", line feed, 0                            |
 * | 32     | 8     | id of the storage's file                                                  |
 * | 40     | 8     | generation of the newer snapshot, from 1                                  |
 * | 48     | 8     | generation of the older snapshot; 0: there is none                        |
 * | 56     | 8     | n, the number of copies, at most one for each page of the file            |
 * | 64     | 8     | XXH3 of all that follows                                                  |
 * | 72     | 8     | XXH3 of the bytes 0 to 72                                                 |
 * | 80     | 40 n  | copies in the order of their slots: offset, bytes, the two halves of      |
 * |        |       | XXH3_128, 8 bytes each, and 1 (newer) + 2 (older) for who has it          | */
#ifndef DW_STORAGE_INDEX_H
#define DW_STORAGE_INDEX_H

#include "storage_file.h"

/* XXH3 of a copy, 128 bits, by which copies are told apart. Its seed is the file's id, so who does
 * not know that cannot choose copies that are taken for each other. */
typedef struct storage_digest {
    uint64_t low, high;
} storage_digest;

typedef struct storage_entry {
    uint64_t offset, bytes;
    storage_digest digest;
    uint64_t snapshots; /* bits: who has it */
} storage_entry;

enum { OF_NEWER = 1, OF_OLDER = 2 };

typedef struct storage_index {
    uint64_t newer, older; /* generations */
    storage_entry *entries;
    uint64_t n;
} storage_index;

typedef enum index_fate { INDEX_IS_WHOLE, INDEX_IS_AS_BEFORE, INDEX_IS_UNCERTAIN } index_fate;

/* Writes the index, whose entries are sorted by this function. *fate: which one the disk has. What
 * the file has must have been synced before. */
dw_status dw_storage_index_write(const storage_file *file, storage_index *index, index_fate *fate,
                                 dw_why *why);

/* Reads it, and makes sure that the disk has it. newer is 0 where there is none. The caller frees
 * the entries, also after an error. Errors, with nothing changed: IO, NO_MEMORY; VERSION, CORRUPT;
 * MISMATCH: it belongs to another file, or is older than the file. */
dw_status dw_storage_index_read(const storage_file *file, storage_index *index, dw_why *why);

#endif
