/* SPDX-License-Identifier: Apache-2.0
 * storage_snapshots.c - makes snapshots of records, lets go of those before, and reads them. */
#include "storage_snapshots.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/sentence.h"
#include "storage_disk.h"

static uint64_t bit(int i)
{
    return (uint64_t)1 << i;
}

/* The one of a generation. 0: the first that is free, which is the one being made. -1: none. */
static int find(const storage_records *all, uint64_t generation)
{
    for (int i = 0; i < SNAPSHOTS; i++)
        if (all->snapshots[i] == generation) return i;
    return -1;
}

/* Programs know a snapshot by a number that no other file has. */
static int find_named(const storage_records *all, uint64_t number)
{
    uint64_t generation = number - all->file.id;
    return number && generation ? find(all, generation) : -1;
}

/* Takes snapshots from their records. Those that nobody else has are freed. */
static void let_go(storage_records *all, uint64_t snapshots)
{
    for (uint64_t i = 0; i < all->n_records; i++) {
        const storage_record *r = &all->records[i];
        if (r->snapshots & snapshots)
            dw_storage_records_hold(all, i + 1, r->users, r->snapshots & ~snapshots);
    }
}

static dw_status fail_unsure(const storage_records *all, dw_why *why)
{
    return dw_say(why, DW_ERR_IO,
                  "what the disk has of %.100s is not known, because it failed to sync: no "
                  "snapshot can be made before the file is opened again",
                  all->file.path);
}

/* ---- Making ---------------------------------------------------------------------------------- */

dw_status dw_storage_snapshots_keep(storage_records *all, const void *copy, uint64_t bytes,
                                    uint8_t name[DW_STORAGE_NAME_BYTES], dw_why *why)
{
    uint64_t record;
    storage_digest digest = dw_storage_records_digest(all, copy, bytes);
    dw_put64(name, digest.low);
    dw_put64(name + 8, digest.high);
    pthread_mutex_lock(&all->saving);
    dw_status status = all->is_unsure ? fail_unsure(all, why)
                                      : dw_storage_records_store(all, copy, bytes, 0,
                                                                 bit(find(all, 0)), &record, why);
    pthread_mutex_unlock(&all->saving);
    return status;
}

/* Lists the records of two snapshots; those of `older` may be none: -1. */
static bool list(storage_records *all, int newer, int older, storage_index *index)
{
    uint64_t of_older = older < 0 ? 0 : bit(older), n = 0;
    pthread_mutex_lock(&all->lock);
    index->entries = malloc((all->n_records + 1) * sizeof *index->entries);
    for (uint64_t i = 0; index->entries && i < all->n_records; i++) {
        const storage_record *r = &all->records[i];
        uint64_t who =
            (r->snapshots & bit(newer) ? OF_NEWER : 0) | (r->snapshots & of_older ? OF_OLDER : 0);
        if (who) index->entries[n++] = (storage_entry){r->offset, r->bytes, r->digest, who};
    }
    pthread_mutex_unlock(&all->lock);
    index->n = n;
    index->newer = all->file.generation + 1;
    index->older = older < 0 ? 0 : all->snapshots[older];
    return index->entries != NULL;
}

/* The disk has the records before an index names them. */
static dw_status write_index(storage_records *all, int newer, int older, index_fate *fate,
                             dw_why *why)
{
    storage_index index = {.n = 0};
    *fate = INDEX_IS_AS_BEFORE;
    dw_status status = dw_storage_records_flush(all, bit(newer), why);
    if (status) return status;
    if (dw_disk_sync(all->file.fd)) {
        all->is_unsure = true;
        return fail_unsure(all, why);
    }
    status = list(all, newer, older, &index)
                 ? dw_storage_index_write(&all->file, &index, fate, why)
                 : dw_say(why, DW_ERR_NO_MEMORY, "there is no memory for an index");
    free(index.entries);
    return status;
}

static dw_status make(storage_records *all, uint64_t keeps, uint64_t *made, dw_why *why)
{
    int newer = find(all, 0), older = find_named(all, keeps);
    index_fate fate;
    if (all->is_unsure) return fail_unsure(all, why);
    if (keeps && older < 0)
        return dw_say(why, DW_ERR_ARGUMENT, "%.100s has no snapshot with the number to be kept",
                      all->file.path);
    dw_status status = write_index(all, newer, older, &fate, why);
    if (fate == INDEX_IS_AS_BEFORE) return status;
    /* If the disk has one index or the other, all snapshots stay. */
    all->is_unsure = fate == INDEX_IS_UNCERTAIN;
    pthread_mutex_lock(&all->lock);
    all->snapshots[newer] = all->file.generation + 1;
    for (int i = 0; i < SNAPSHOTS && !all->is_unsure; i++) {
        if (i == newer || i == older || !all->snapshots[i]) continue;
        all->snapshots[i] = 0;
        let_go(all, bit(i));
    }
    pthread_mutex_unlock(&all->lock);
    if (all->is_unsure) return fail_unsure(all, why);
    dw_storage_file_note(&all->file, all->snapshots[newer]);
    *made = all->file.id + all->file.generation;
    return DW_OK;
}

dw_status dw_storage_snapshots_save(storage_records *all, uint64_t keeps, uint64_t *made,
                                    dw_why *why)
{
    dw_status status = DW_OK;
    pthread_mutex_lock(&all->saving);
    if (made) {
        *made = 0;
        status = make(all, keeps, made, why);
    } else if (find(all, 0) >= 0) { /* where there is none, nothing was kept */
        pthread_mutex_lock(&all->lock);
        let_go(all, bit(find(all, 0)));
        pthread_mutex_unlock(&all->lock);
    }
    pthread_mutex_unlock(&all->saving);
    return status;
}

/* ---- Reading --------------------------------------------------------------------------------- */

dw_status dw_storage_snapshots_load(storage_records *all, dw_why *why)
{
    storage_index index;
    storage_file *file = &all->file;
    dw_status status = dw_storage_index_read(file, &index, why);
    if (!status && !index.newer) return dw_storage_file_begin(file, why);
    file->generation = index.newer;
    for (uint64_t i = 0; !status && i < index.n; i++) {
        const storage_entry *e = &index.entries[i];
        if (!dw_storage_records_place(all, e, e->snapshots))
            status = dw_say(why, DW_ERR_NO_MEMORY, "there is no memory");
    }
    free(index.entries);
    if (!status) status = dw_storage_file_resume(file, why);
    if (status) return status;
    all->snapshots[0] = index.newer; /* the bits of OF_NEWER and OF_OLDER */
    all->snapshots[1] = index.older;
    return DW_OK;
}

dw_status dw_storage_snapshots_fetch(storage_records *all, uint64_t snapshot,
                                     const uint8_t name[DW_STORAGE_NAME_BYTES], void *copy,
                                     uint64_t bytes, dw_why *why)
{
    storage_digest digest = {dw_get64(name), dw_get64(name + 8)};
    dw_status status;
    pthread_mutex_lock(&all->saving);
    pthread_mutex_lock(&all->lock);
    int at = find_named(all, snapshot);
    uint64_t record = at < 0 ? 0 : dw_storage_records_find(all, digest, bytes, bit(at));
    pthread_mutex_unlock(&all->lock);
    if (record)
        status = dw_storage_records_read(all, record, copy, bytes, why);
    else
        status = dw_say(why, DW_ERR_MISMATCH,
                        at < 0 ? "%.100s does not have this snapshot: it was made in another file, "
                                 "or later ones took its place"
                               : "the snapshot in %.100s does not have this copy",
                        all->file.path);
    pthread_mutex_unlock(&all->saving);
    return status;
}

void dw_storage_snapshots_count(const storage_records *all, dw_storage_counters *counters)
{
    uint64_t first = 0, second = 0;
    for (int i = 0; i < SNAPSHOTS; i++) {
        uint64_t generation = all->snapshots[i];
        if (generation > first) {
            second = first;
            first = generation;
        } else if (generation > second) {
            second = generation;
        }
    }
    counters->snapshot = first ? all->file.id + first : 0;
    counters->snapshot_before = second ? all->file.id + second : 0;
}
