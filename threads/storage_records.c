/* SPDX-License-Identifier: Apache-2.0
 * storage_records.c - writes, reads and frees records, through buffers that threads fill and
 * empty. */
#define XXH_INLINE_ALL
#include "storage_records.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/clock.h"
#include "base/sentence.h"
#include "base/uncancelled.h"
#include "storage_disk.h"

static void append(storage_list *list, storage_buffer *b)
{
    b->before = list->last;
    b->after = NULL;
    if (list->last)
        list->last->after = b;
    else
        list->first = b;
    list->last = b;
}

static void take_off(storage_list *list, storage_buffer *b)
{
    if (b->before)
        b->before->after = b->after;
    else
        list->first = b->after;
    if (b->after)
        b->after->before = b->before;
    else
        list->last = b->before;
    b->before = b->after = NULL;
}

static storage_list *list_of(storage_records *all, const storage_buffer *b)
{
    switch (b->state) {
    case TO_READ: return &all->to_read;
    case TO_WRITE: return &all->to_write;
    case READY: return &all->ready;
    case FAILED: return &all->failed;
    case BUSY: break;
    }
    return NULL;
}

/* Waits for a thread to be done with a buffer. */
static void wait_for_one(storage_records *all)
{
    int64_t since = dw_now_ns();
    pthread_cond_wait(&all->done, &all->lock);
    all->counters.wait_ns += (uint64_t)(dw_now_ns() - since);
}

/* ---- Buffers --------------------------------------------------------------------------------- */

static void count_bytes(storage_records *all, const storage_buffer *b, bool adds)
{
    uint64_t *sum = b->writes ? &all->writing : &all->reading;
    *sum = adds ? *sum + b->cap : *sum - b->cap;
}

static void destroy(storage_buffer *b)
{
    free(b->data);
    free(b);
}

/* Takes an unused buffer of about this length, or makes one. NULL: no memory. */
static storage_buffer *take_buffer(storage_records *all, uint64_t bytes, bool writes)
{
    storage_buffer *b = all->spare.first;
    while (b && (b->cap < bytes || b->cap / 2 > bytes)) b = b->after;
    if (b) {
        take_off(&all->spare, b);
        all->spare_bytes -= b->cap;
        uint8_t *data = b->data;
        *b = (storage_buffer){.data = data, .cap = b->cap};
    } else {
        b = calloc(1, sizeof *b);
        if (b) b->data = malloc(bytes);
        if (b && !b->data) {
            free(b);
            b = NULL;
        }
        if (!b) return NULL;
        b->cap = bytes;
    }
    b->bytes = bytes;
    b->writes = writes;
    count_bytes(all, b, true);
    return b;
}

/* The buffer is in no list. Unused ones are kept as long as all buffers take no more bytes than
 * those that read and those that write may; the oldest go first. */
static void give_buffer(storage_records *all, storage_buffer *b)
{
    count_bytes(all, b, false);
    append(&all->spare, b);
    all->spare_bytes += b->cap;
    while (all->spare.first && all->reading + all->writing + all->spare_bytes > 2 * all->ahead) {
        storage_buffer *oldest = all->spare.first;
        take_off(&all->spare, oldest);
        all->spare_bytes -= oldest->cap;
        destroy(oldest);
    }
}

/* ---- Records --------------------------------------------------------------------------------- */

storage_digest dw_storage_records_digest(const storage_records *all, const void *copy,
                                         uint64_t bytes)
{
    XXH128_hash_t digest = XXH3_128bits_withSeed(copy, bytes, all->file.id);
    return (storage_digest){digest.low64, digest.high64};
}

static bool is_same(storage_digest a, storage_digest b)
{
    return a.low == b.low && a.high == b.high;
}

static storage_record *record_of(const storage_records *all, uint64_t record)
{
    return &all->records[record - 1];
}

static bool is_good(const storage_record *r)
{
    return !r->is_bad && !r->is_unread;
}

static uint64_t *bucket_of(const storage_records *all, storage_digest digest)
{
    return &all->buckets[digest.low % all->cap];
}

/* or_used: also one that encoders or decoders use. */
static uint64_t find(const storage_records *all, storage_digest digest, uint64_t bytes,
                     uint64_t snapshots, bool or_used)
{
    uint64_t worse = 0;
    for (uint64_t at = all->cap ? *bucket_of(all, digest) : 0; at; at = record_of(all, at)->next) {
        const storage_record *r = record_of(all, at);
        if (r->bytes != bytes || !is_same(r->digest, digest) ||
            (!(r->snapshots & snapshots) && (!or_used || !r->users)))
            continue;
        if (is_good(r)) return at;
        if (!worse || record_of(all, worse)->is_bad) worse = at;
    }
    return worse;
}

uint64_t dw_storage_records_find(const storage_records *all, storage_digest digest, uint64_t bytes,
                                 uint64_t snapshots)
{
    return find(all, digest, bytes, snapshots, false);
}

/* Lets the record be found by its digest. */
static void put_in_bucket(storage_records *all, uint64_t record)
{
    uint64_t *bucket = bucket_of(all, record_of(all, record)->digest);
    record_of(all, record)->next = *bucket;
    *bucket = record;
}

static void take_from_bucket(storage_records *all, uint64_t record)
{
    uint64_t *at = bucket_of(all, record_of(all, record)->digest);
    while (*at && *at != record) at = &record_of(all, *at)->next;
    if (*at) *at = record_of(all, record)->next;
}

/* Makes room for another record. */
static bool grow(storage_records *all)
{
    uint64_t cap = all->cap ? 2 * all->cap : 64;
    uint64_t *buckets = calloc(cap, sizeof *buckets);
    storage_record *grown = buckets ? realloc(all->records, cap * sizeof *grown) : NULL;
    if (!grown) {
        free(buckets);
        return false;
    }
    uint64_t *before = all->buckets, n = all->cap;
    all->records = grown;
    all->buckets = buckets;
    all->cap = cap;
    for (uint64_t i = 0; i < n; i++)
        for (uint64_t at = before[i], next; at; at = next) {
            next = record_of(all, at)->next;
            put_in_bucket(all, at);
        }
    free(before);
    return true;
}

static void tally(storage_records *all, const storage_record *r, bool adds)
{
    uint64_t *n = r->users ? &all->counters.records : &all->counters.pinned;
    uint64_t *sum = r->users ? &all->counters.record_bytes : &all->counters.pinned_bytes;
    if (!r->users && !r->snapshots) return;
    *n = adds ? *n + 1 : *n - 1;
    *sum = adds ? *sum + r->bytes : *sum - r->bytes;
}

/* A number for a record that nobody has yet. */
static bool take_record(storage_records *all, uint64_t bytes, uint64_t *record)
{
    uint64_t offset;
    if (!all->free_record && all->n_records == all->cap && !grow(all)) return false;
    if (!dw_storage_slots_take(&all->file.slots, bytes, &offset)) return false;
    *record = all->free_record ? all->free_record : ++all->n_records;
    storage_record *r = record_of(all, *record);
    if (all->free_record) all->free_record = r->next;
    *r = (storage_record){.offset = offset, .bytes = bytes};
    return true;
}

static void free_record(storage_records *all, uint64_t record)
{
    storage_record *r = record_of(all, record);
    dw_storage_slots_give(&all->file.slots, r->offset, r->bytes);
    *r = (storage_record){.next = all->free_record};
    all->free_record = record;
}

/* Nobody has the record any more. A thread that is busy with its buffer frees it. */
static void drop(storage_records *all, uint64_t record)
{
    storage_buffer *b = record_of(all, record)->buffer;
    take_from_bucket(all, record);
    if (b && b->state == BUSY) {
        b->released = true;
        return;
    }
    if (b) {
        take_off(list_of(all, b), b);
        give_buffer(all, b);
        pthread_cond_broadcast(&all->done); /* there is room for another buffer */
    }
    free_record(all, record);
}

void dw_storage_records_hold(storage_records *all, uint64_t record, uint64_t users,
                             uint64_t snapshots)
{
    storage_record *r = record_of(all, record);
    tally(all, r, false);
    r->users = users;
    r->snapshots = snapshots;
    tally(all, r, true);
    if (!users && !snapshots) drop(all, record);
}

void dw_storage_records_release(void *context, uint64_t record)
{
    DW_UNCANCELLED;
    storage_records *all = context;
    pthread_mutex_lock(&all->lock);
    const storage_record *r = record_of(all, record);
    dw_storage_records_hold(all, record, r->users - 1, r->snapshots);
    pthread_mutex_unlock(&all->lock);
}

bool dw_storage_records_place(storage_records *all, const storage_entry *entry, uint64_t snapshots)
{
    if (all->n_records == all->cap && !grow(all)) return false;
    if (!dw_storage_slots_place(&all->file.slots, entry->bytes, entry->offset)) return false;
    storage_record *r = record_of(all, ++all->n_records);
    *r = (storage_record){
        .offset = entry->offset, .bytes = entry->bytes, .digest = entry->digest, .is_unread = true};
    put_in_bucket(all, all->n_records);
    dw_storage_records_hold(all, all->n_records, 0, snapshots);
    return true;
}

/* ---- Threads --------------------------------------------------------------------------------- */

/* Reads or writes a buffer, without the lock. */
static int move(const storage_records *all, storage_buffer *b, const storage_record *r)
{
    if (b->writes) return dw_disk_write(all->file.fd, r->offset, b->data, b->bytes);
    int error = dw_disk_read(all->file.fd, r->offset, b->data, b->bytes);
    if (error) return error;
    return is_same(dw_storage_records_digest(all, b->data, b->bytes), r->digest) ? 0 : -1;
}

/* What becomes of a buffer that was moved: the record may be released meanwhile, or be copied from
 * it. */
static void end_move(storage_records *all, storage_buffer *b, int error)
{
    b->error = error;
    all->counters.failed_writes += b->writes && error;
    if (b->released) {
        free_record(all, b->record);
        give_buffer(all, b);
    } else if (b->writes && !error) {
        record_of(all, b->record)->buffer = NULL;
        give_buffer(all, b);
    } else {
        b->state = b->writes ? FAILED : READY;
        append(list_of(all, b), b);
    }
}

void *dw_storage_records_serve(void *context)
{
    storage_records *all = context;
    pthread_mutex_lock(&all->lock);
    while (!all->over) {
        storage_list *jobs = all->to_read.first ? &all->to_read : &all->to_write;
        storage_buffer *b = jobs->first;
        if (!b) {
            pthread_cond_wait(&all->posted, &all->lock);
            continue;
        }
        take_off(jobs, b);
        b->state = BUSY;
        all->n_busy_writes += b->writes;
        storage_record r = *record_of(all, b->record);
        pthread_mutex_unlock(&all->lock);
        int error = move(all, b, &r);
        pthread_mutex_lock(&all->lock);
        while (b->pins) pthread_cond_wait(&all->done, &all->lock);
        all->n_busy_writes -= b->writes;
        end_move(all, b, error);
        pthread_cond_broadcast(&all->done);
    }
    pthread_mutex_unlock(&all->lock);
    return NULL;
}

/* ---- Writing --------------------------------------------------------------------------------- */

/* Tries again what could not be written, and waits until it was tried. Returns the error. */
static int try_again(storage_records *all)
{
    if (!all->failed.first) return 0;
    for (storage_buffer *b; (b = all->failed.first);) {
        take_off(&all->failed, b);
        b->state = TO_WRITE;
        append(&all->to_write, b);
    }
    pthread_cond_broadcast(&all->posted);
    all->counters.waits++;
    while (all->to_write.first || all->n_busy_writes) wait_for_one(all);
    return all->failed.first ? all->failed.first->error : 0;
}

static dw_status fail_to_write(const storage_records *all, int error, dw_why *why)
{
    return dw_say(why, DW_ERR_IO,
                  "%.100s cannot be written: %s. Nothing is lost: make room on the disk and call "
                  "again",
                  all->file.path, strerror(error));
}

/* Waits until there is room for a buffer of so many bytes. Returns an errno. */
static int wait_for_room(storage_records *all, uint64_t bytes)
{
    int error = try_again(all);
    if (!error && all->writing && all->writing + bytes > all->ahead) all->counters.waits++;
    while (!error && all->writing && all->writing + bytes > all->ahead) {
        if (all->failed.first)
            error = all->failed.first->error;
        else
            wait_for_one(all);
    }
    return error;
}

dw_status dw_storage_records_store(storage_records *all, const void *copy, uint64_t bytes,
                                   uint64_t users, uint64_t snapshots, uint64_t *record,
                                   dw_why *why)
{
    const uint64_t any = ~(uint64_t)0;
    storage_digest digest = dw_storage_records_digest(all, copy, bytes);
    dw_status status = DW_OK;
    storage_buffer *b = NULL;
    pthread_mutex_lock(&all->lock);
    *record = find(all, digest, bytes, any, snapshots != 0);
    if (*record && is_good(record_of(all, *record))) {
        const storage_record *r = record_of(all, *record);
        dw_storage_records_hold(all, *record, r->users + users, r->snapshots | snapshots);
        pthread_mutex_unlock(&all->lock);
        return DW_OK;
    }
    int error = wait_for_room(all, bytes);
    if (error) {
        status = fail_to_write(all, error, why);
    } else {
        b = take_buffer(all, bytes, true);
        if (!b || !take_record(all, bytes, record)) {
            if (b) give_buffer(all, b);
            status = dw_say(why, DW_ERR_NO_MEMORY, "there is no memory for a copy");
        }
    }
    pthread_mutex_unlock(&all->lock);
    if (status) return status;
    memcpy(b->data, copy, bytes);
    pthread_mutex_lock(&all->lock);
    storage_record *r = record_of(all, *record);
    r->digest = digest;
    r->buffer = b;
    put_in_bucket(all, *record);
    dw_storage_records_hold(all, *record, users, snapshots);
    b->record = *record;
    b->state = TO_WRITE;
    append(&all->to_write, b);
    all->counters.writes++;
    all->counters.written_bytes += bytes;
    pthread_cond_signal(&all->posted);
    pthread_mutex_unlock(&all->lock);
    return DW_OK;
}

dw_status dw_storage_records_write(void *context, const void *copy, uint64_t bytes,
                                   uint64_t *record, dw_why *why)
{
    DW_UNCANCELLED;
    return dw_storage_records_store(context, copy, bytes, 1, 0, record, why);
}

dw_status dw_storage_records_flush(storage_records *all, uint64_t snapshots, dw_why *why)
{
    pthread_mutex_lock(&all->lock);
    int error = try_again(all);
    for (uint64_t i = 1; i <= all->n_records && !error; i++)
        while (record_of(all, i)->snapshots & snapshots) {
            const storage_buffer *b = record_of(all, i)->buffer;
            if (!b || !b->writes) break;
            if (b->state == FAILED && (error = b->error)) break;
            wait_for_one(all);
        }
    pthread_mutex_unlock(&all->lock);
    return error ? fail_to_write(all, error, why) : DW_OK;
}

/* ---- Reading --------------------------------------------------------------------------------- */

/* Makes room for a buffer that reads: what was read ahead and not asked for goes first. */
static bool room_to_read(storage_records *all, uint64_t bytes)
{
    storage_buffer *next = all->ready.first;
    for (storage_buffer *b; (b = next) && all->reading + bytes > all->ahead;) {
        next = b->after;
        if (b->wanted) continue;
        take_off(&all->ready, b);
        record_of(all, b->record)->buffer = NULL;
        give_buffer(all, b);
    }
    return !all->reading || all->reading + bytes <= all->ahead;
}

void dw_storage_records_prefetch(void *context, uint64_t record)
{
    DW_UNCANCELLED;
    storage_records *all = context;
    pthread_mutex_lock(&all->lock);
    storage_record *r = record_of(all, record);
    storage_buffer *b = NULL;
    if (!r->buffer && room_to_read(all, r->bytes)) b = take_buffer(all, r->bytes, false);
    if (b) {
        b->record = record;
        b->state = TO_READ;
        r->buffer = b;
        append(&all->to_read, b);
        pthread_cond_signal(&all->posted);
    }
    pthread_mutex_unlock(&all->lock);
}

/* Copies a record from a buffer that no thread reads into. A buffer that was only read is given
 * back. */
static int copy_from(storage_records *all, storage_buffer *b, void *copy)
{
    all->counters.reads_ahead++;
    if (!b->writes) {
        int error = b->error;
        take_off(&all->ready, b);
        record_of(all, b->record)->buffer = NULL;
        pthread_mutex_unlock(&all->lock);
        if (!error) memcpy(copy, b->data, b->bytes);
        pthread_mutex_lock(&all->lock);
        give_buffer(all, b);
        return error;
    }
    b->pins++;
    pthread_mutex_unlock(&all->lock);
    memcpy(copy, b->data, b->bytes);
    pthread_mutex_lock(&all->lock);
    b->pins--;
    pthread_cond_broadcast(&all->done);
    return 0;
}

/* Reads a record from the file in the calling thread. */
static int read_now(storage_records *all, const storage_record *r, void *copy)
{
    storage_record wanted = *r;
    all->counters.waits++;
    pthread_mutex_unlock(&all->lock);
    int64_t since = dw_now_ns();
    int error = dw_disk_read(all->file.fd, wanted.offset, copy, wanted.bytes);
    if (!error && !is_same(dw_storage_records_digest(all, copy, wanted.bytes), wanted.digest))
        error = -1;
    pthread_mutex_lock(&all->lock);
    all->counters.wait_ns += (uint64_t)(dw_now_ns() - since);
    return error;
}

dw_status dw_storage_records_read(void *context, uint64_t record, void *copy, uint64_t bytes,
                                  dw_why *why)
{
    DW_UNCANCELLED;
    storage_records *all = context;
    pthread_mutex_lock(&all->lock);
    storage_buffer *b;
    for (bool waits = false; (b = record_of(all, record)->buffer) && !b->writes && b->state == BUSY;
         waits = true) { /* another reader of the record may give the buffer back meanwhile */
        all->counters.waits += !waits;
        b->wanted = true;
        wait_for_one(all);
    }
    if (b && b->state == TO_READ) { /* no thread has begun, so this one does it */
        take_off(&all->to_read, b);
        record_of(all, record)->buffer = NULL;
        give_buffer(all, b);
        b = NULL;
    }
    int error = b ? copy_from(all, b, copy) : read_now(all, record_of(all, record), copy);
    all->counters.reads++;
    all->counters.read_bytes += bytes;
    all->counters.failed_reads += error != 0;
    record_of(all, record)->is_bad |= error != 0;
    record_of(all, record)->is_unread = false;
    pthread_mutex_unlock(&all->lock);
    if (!error) return DW_OK;
    return dw_say(why, error < 0 ? DW_ERR_CORRUPT : DW_ERR_IO, "a copy in %.100s %s",
                  all->file.path, error < 0 ? "is not what was written" : "cannot be read");
}

void dw_storage_records_free(storage_records *all, bool is_ours)
{
    storage_list *lists[] = {&all->to_read, &all->to_write, &all->ready, &all->failed, &all->spare};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        for (storage_buffer *b; (b = lists[i]->first);) {
            take_off(lists[i], b);
            destroy(b);
        }
    free(all->records);
    free(all->buckets);
    if (!is_ours) return;
    pthread_cond_destroy(&all->posted);
    pthread_cond_destroy(&all->done);
    pthread_mutex_destroy(&all->lock);
    pthread_mutex_destroy(&all->saving);
}
