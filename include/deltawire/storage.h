/* SPDX-License-Identifier: Apache-2.0
 * storage.h - a file for prev that does not fit in memory: a ready host.backing. */
#ifndef DELTAWIRE_STORAGE_H
#define DELTAWIRE_STORAGE_H

#include "deltawire/deltawire.h"
#ifdef __cplusplus
extern "C" {
#endif

/* Opens a file for copies of prev. To use it, set host.backing = dw_storage_backing(storage). It
 * may serve any number of encoders and decoders, and must outlive them.
 *
 * The text is "file:PATH", and behind it, each with a comma in front:
 *
 * | option  | unit  | default | meaning                                                           |
 * | cache   | bytes | 1 GiB   | copies that each encoder and decoder keeps where prev lies        |
 * | ahead   | bytes | 64 MiB  | buffers for copies that are read ahead, or not yet written; twice |
 * | threads |       | 4       | how many copies are read or written at the same time, 1..64       |
 *
 * Bytes may end in KiB, MiB, GiB or TiB. The file is made if it does not exist, with mode 0600. It
 * holds what one process has in use, and is begun anew by the next one, but for its snapshots,
 * which PATH.index lists: see below. Without a snapshot dw_storage_close removes it, if it has this
 * name still. What is read is compared with a digest.
 *
 * Errors: ARGUMENT, CONFIG (the text), NO_MEMORY; IO: the file cannot be opened, another process
 * has it open, or it is not a file of deltawire; VERSION: the file or its index is of another
 * version; CORRUPT: the index is damaged; MISMATCH: it is of another file, or older than the file;
 * UNSUPPORTED: no threads can be started. *storage is then NULL, *why, which may be NULL, has a
 * sentence, and both files are left as they are.
 * Threads: any thread may call; all functions of the backing may be called by several threads at a
 * time. After fork() the child must not use it, nor what it serves: it has no file there, and
 * dw_storage_close only frees memory. Source: threads/storage.c. */
typedef struct dw_storage dw_storage;
DW_API dw_status dw_storage_open(dw_storage **storage, const char *text, dw_why *why);

/* Ends the threads, frees the storage, and removes the file if it has no snapshot. No encoder or
 * decoder may use it any more. NULL is allowed. */
DW_API void dw_storage_close(dw_storage *storage);

/* Returns the value for host.backing; NULL for NULL. It exists as long as the storage. */
DW_API const dw_backing *dw_storage_backing(const dw_storage *storage);

/* Counters since the storage was opened. The caller sets struct_size. */
typedef struct dw_storage_counters {
    size_t struct_size;
    uint64_t records;       /* current: copies in the storage */
    uint64_t record_bytes;  /* current */
    uint64_t file_bytes;    /* current size of the file */
    uint64_t writes, reads; /* copies */
    uint64_t written_bytes, read_bytes;
    uint64_t reads_ahead;   /* of the reads: those whose copy was in memory already */
    uint64_t waits;         /* calls that waited for the file ... */
    uint64_t wait_ns;       /* ... and how long, in all */
    uint64_t failed_writes; /* each is tried again when the next copy is written */
    uint64_t failed_reads;  /* the file could not be read, or had other bytes than were written */
    uint64_t pinned;        /* current: copies that only snapshots have ... */
    uint64_t pinned_bytes;  /* ... which is the space that these take */
    uint64_t snapshot, snapshot_before; /* numbers of the last two snapshots; 0: none */
} dw_storage_counters;

/* Fills *counters. Errors: ARGUMENT. */
DW_API dw_status dw_storage_count(dw_storage *storage, dw_storage_counters *counters);

/* Snapshots: copies that the file has at one moment, and gives back to a later process, also when
 * this one was killed or the power was cut. First each copy is kept, then all of them are saved. A
 * copy that the file has for an encoder, a decoder or a snapshot is not written again when it is
 * kept, nor is one of a snapshot when an encoder or decoder stores it later. It is if a read has
 * found it damaged, or if an earlier process wrote it and no read has found it whole.
 *
 * keep: names a copy for the snapshot that is being made; the same bytes have the same name. save:
 * makes it; `keeps` is the number of an older snapshot that stays, or 0, and all others are let go,
 * but not before the disk has the new one. made NULL: lets go of what was kept. fetch: reads a
 * copy.
 *
 * | name     | meaning                                                             | owner  |
 * | copy     | `bytes` bytes, at least 1, the same at keep and fetch               | caller |
 * | name     | DW_STORAGE_NAME_BYTES bytes, to be stored by the program            | caller |
 * | *made    | its number, not 0, which no snapshot of another file has            | caller |
 * | snapshot | such a number                                                       |        |
 *
 * Errors: ARGUMENT, NO_MEMORY; keep, save: IO, after which the snapshots before are as they were,
 * and save can be called again, but not where a sync failed; the sentence says so, and whether the
 * file was moved, replaced or removed meanwhile. fetch: MISMATCH: the file has no such snapshot, or
 * this has no such copy; IO, CORRUPT: it cannot be read.
 * Threads: any, but keep and save wait for each other, and only one thread should make a snapshot
 * at a time. Source: threads/storage_snapshots.c. */
enum { DW_STORAGE_NAME_BYTES = 16 };
DW_API dw_status dw_storage_keep(dw_storage *storage, const void *copy, uint64_t bytes,
                                 uint8_t name[DW_STORAGE_NAME_BYTES], dw_why *why);
DW_API dw_status dw_storage_save(dw_storage *storage, uint64_t keeps, uint64_t *made, dw_why *why);
DW_API dw_status dw_storage_fetch(dw_storage *storage, uint64_t snapshot,
                                  const uint8_t name[DW_STORAGE_NAME_BYTES], void *copy,
                                  uint64_t bytes, dw_why *why);
#ifdef __cplusplus
}
#endif
#endif
