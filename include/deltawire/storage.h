/* SPDX-License-Identifier: Apache-2.0
 * storage.h - a file for prev that does not fit in main memory: a ready host.backing. */
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
 * | cache   | bytes | 1 GiB   | copies that each encoder and decoder keeps in main memory         |
 * | ahead   | bytes | 64 MiB  | buffers for copies that are read ahead, or not yet written; twice |
 * | threads |       | 4       | how many copies are read or written at the same time, 1..64       |
 *
 * Bytes may end in KiB, MiB, GiB or TiB. The file is made if it does not exist, with mode 0600, and
 * removed by dw_storage_close. It holds what one process has in use: if a process was killed, the
 * next one that opens the file begins anew, and samples are then sent in full once. (To continue
 * after a restart, save state with dw_encoder_export and dw_decoder_export.) What is read
 * is compared with a digest.
 *
 * Errors: ARGUMENT, CONFIG (the text), NO_MEMORY; IO: the file cannot be opened, another process
 * has it open, or it is not a file of deltawire, which is then left as it is; UNSUPPORTED: no
 * threads can be started. *storage is then NULL, and *why, which may be NULL, has a sentence.
 * Threads: any thread may call; all functions of the backing may be called by several threads at a
 * time. After fork() the child must not use it, and dw_storage_close only frees memory; the file is
 * in use as long as a child has it open, too. Source: threads/storage.c. */
typedef struct dw_storage dw_storage;
DW_API dw_status dw_storage_open(dw_storage **storage, const char *text, dw_why *why);

/* Ends the threads, frees the storage, and removes the file. No encoder or decoder may use it any
 * more. NULL is allowed. */
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
} dw_storage_counters;

/* Fills *counters. Errors: ARGUMENT. */
DW_API dw_status dw_storage_count(dw_storage *storage, dw_storage_counters *counters);
#ifdef __cplusplus
}
#endif
#endif
