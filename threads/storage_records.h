/* SPDX-License-Identifier: Apache-2.0
 * storage_records.h - records in a file, with buffers between them and threads that read and write.
 *
 * A record has no buffer while only the file has it. `write` copies a record to a buffer, which a
 * thread writes; `prefetch` gives it a buffer, which a thread reads. What could not be written
 * stays in its buffer, and is tried again at the next write, so that a full disk loses nothing.
 *
 * | state of a buffer | list   | who may change it                                               |
 * | TO_READ, TO_WRITE | jobs   | whoever takes it off the list                                   |
 * | BUSY              | none   | the thread that reads or writes                                 |
 * | READY             | ready  | whoever takes it off the list: it was read, with success or not |
 * | FAILED            | failed | the next write, which moves it to the jobs                      |
 *
 * A record lives while encoders or decoders use it, or a snapshot has it (storage_snapshots.h).
 *
 * Threads: any; one lock protects everything but the bytes of buffers, and is not held while these
 * are copied, read or written. */
#ifndef DW_STORAGE_RECORDS_H
#define DW_STORAGE_RECORDS_H

#include <pthread.h>

#include "deltawire/storage.h"
#include "storage_index.h"

typedef enum buffer_state { TO_READ, TO_WRITE, BUSY, READY, FAILED } buffer_state;

typedef struct storage_buffer {
    struct storage_buffer *before, *after; /* in its list */
    uint8_t *data;
    uint64_t bytes, cap;
    uint64_t record;
    buffer_state state;
    bool writes;   /* it holds what the file does not have yet */
    bool released; /* BUSY: the record is to be freed when the thread is done */
    bool wanted;   /* somebody waits until it is READY, so it is not given back before */
    uint64_t pins; /* how many copy its bytes now: the thread leaves it to them */
    int error;     /* of the last attempt; -1: the digest does not match */
} storage_buffer;

typedef struct storage_list {
    storage_buffer *first, *last;
} storage_list;

typedef struct storage_record {
    uint64_t offset, bytes;
    storage_digest digest;
    storage_buffer *buffer; /* NULL: only the file has it */
    uint64_t users;         /* encoders and decoders that hold it */
    uint64_t snapshots;     /* bit i: snapshot i of storage_records has it */
    bool is_bad;            /* the file was found not to have it any more */
    bool is_unread;         /* an earlier process wrote it, and this one has not read it yet */
    uint64_t next;          /* of the same bucket; of a number that is not in use: the next one */
} storage_record;

/* Two that are saved, and one that is being made. */
enum { SNAPSHOTS = 3 };

typedef struct storage_records {
    storage_file file;
    pthread_mutex_t lock;
    pthread_cond_t posted, done;
    storage_record *records; /* number n is records[n - 1] */
    uint64_t n_records, cap, free_record;
    uint64_t *buckets; /* as many as `cap`: the first record whose digest falls into each, or 0 */
    uint64_t snapshots[SNAPSHOTS]; /* their generations; 0: it is free, or being made */
    pthread_mutex_t saving;        /* held by who makes or reads a snapshot, before `lock` */
    bool is_unsure;                /* a sync failed, so what the disk has is not known */
    storage_list to_read, to_write, ready, failed, spare;
    uint64_t ahead;                         /* most bytes of buffers of each kind */
    uint64_t reading, writing, spare_bytes; /* bytes of buffers that read, that write, and unused */
    uint64_t n_busy_writes;
    bool over;
    dw_storage_counters counters;
} storage_records;

/* The functions of a dw_backing, whose context is a storage_records. */
dw_status dw_storage_records_write(void *context, const void *copy, uint64_t bytes,
                                   uint64_t *record, dw_why *why);
dw_status dw_storage_records_read(void *context, uint64_t record, void *copy, uint64_t bytes,
                                  dw_why *why);
void dw_storage_records_prefetch(void *context, uint64_t record);
void dw_storage_records_release(void *context, uint64_t record);

/* Finds a record with these bytes that is in one of the snapshots: bits. 0: none. One that is not
 * known to be good is found if there is no other, and a bad one last. */
uint64_t dw_storage_records_find(const storage_records *all, storage_digest digest, uint64_t bytes,
                                 uint64_t snapshots);

/* Lets `users` and `snapshots` of a record become others, and frees it if both are 0. */
void dw_storage_records_hold(storage_records *all, uint64_t record, uint64_t users,
                             uint64_t snapshots);

/* Stores a copy for users, or for snapshots. With a record of the same bytes that a snapshot has,
 * nothing is written, unless it is bad, or may be because it is unread. */
dw_status dw_storage_records_store(storage_records *all, const void *copy, uint64_t bytes,
                                   uint64_t users, uint64_t snapshots, uint64_t *record,
                                   dw_why *why);

/* Takes over a record of an index. false: no memory. */
bool dw_storage_records_place(storage_records *all, const storage_entry *entry, uint64_t snapshots);

/* Waits until the file has all records of these snapshots. */
dw_status dw_storage_records_flush(storage_records *all, uint64_t snapshots, dw_why *why);

storage_digest dw_storage_records_digest(const storage_records *all, const void *copy,
                                         uint64_t bytes);

/* What a thread does until `over` is set. Returns NULL. */
void *dw_storage_records_serve(void *context);

/* Frees buffers and records. No thread may serve any more. is_ours: false in a process that was
 * forked, where threads of the other process still seem to wait. */
void dw_storage_records_free(storage_records *all, bool is_ours);

#endif
