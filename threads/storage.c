/* SPDX-License-Identifier: Apache-2.0
 * storage.c - the public calls of a storage: opened from a text, counted, closed. */
#include "deltawire/storage.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sentence.h"
#include "base/sized.h"
#include "base/uncancelled.h"
#include "storage_disk.h"
#include "storage_snapshots.h"

enum { MOST_THREADS = 64 };

struct dw_storage {
    dw_backing backing;
    storage_records all;
    uint64_t n;    /* of threads that run */
    pid_t process; /* that has them */
    pthread_t threads[MOST_THREADS];
    dw_storage *next; /* of those that are open */
};

typedef struct options {
    char path[4096];
    uint64_t cache, ahead, threads;
} options;

/* ---- The text -------------------------------------------------------------------------------- */

/* Reads a number with a unit from a word of `length` characters. */
static bool read_bytes(const char *word, size_t length, uint64_t *bytes)
{
    static const struct {
        const char *name;
        int shift;
    } units[] = {{"", 0}, {"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}};
    uint64_t number = 0;
    size_t at = 0;
    for (; at < length && word[at] >= '0' && word[at] <= '9'; at++) {
        if (number > (UINT64_MAX - 9) / 10) return false;
        number = 10 * number + (uint64_t)(word[at] - '0');
    }
    for (size_t i = 0; at && i < sizeof units / sizeof *units; i++) {
        if (strlen(units[i].name) != length - at || strncmp(word + at, units[i].name, length - at))
            continue;
        if (number > UINT64_MAX >> units[i].shift) return false;
        *bytes = number << units[i].shift;
        return true;
    }
    return false;
}

static bool read_option(options *o, const char *word, size_t length)
{
    const struct {
        const char *name;
        uint64_t least, most, *value;
    } known[] = {{"cache=", 0, UINT64_MAX / 4, &o->cache},
                 {"ahead=", 1, UINT64_MAX / 4, &o->ahead},
                 {"threads=", 1, MOST_THREADS, &o->threads}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        size_t skip = strlen(known[i].name);
        if (length < skip || strncmp(word, known[i].name, skip) != 0) continue;
        return read_bytes(word + skip, length - skip, known[i].value) &&
               *known[i].value >= known[i].least && *known[i].value <= known[i].most;
    }
    return false;
}

static dw_status read_text(options *o, const char *text, dw_why *why)
{
    static const char kind[] = "file:";
    *o = (options){.cache = UINT64_C(1) << 30, .ahead = UINT64_C(64) << 20, .threads = 4};
    if (strncmp(text, kind, sizeof kind - 1) != 0)
        return dw_say(why, DW_ERR_CONFIG,
                      "\"%.100s\" does not begin with file: write file:/a/path,cache=4GiB", text);
    const char *path = text + sizeof kind - 1;
    size_t length = strcspn(path, ",");
    if (!length || length >= sizeof o->path)
        return dw_say(why, DW_ERR_CONFIG, "the path in \"%.100s\" is empty or too long", text);
    memcpy(o->path, path, length);
    o->path[length] = 0;
    for (const char *word = path + length; *word; word += length) {
        word++; /* the comma */
        length = strcspn(word, ",");
        if (!read_option(o, word, length))
            return dw_say(why, DW_ERR_CONFIG,
                          "\"%.*s\" is not cache=BYTES, ahead=BYTES (at least 1) or "
                          "threads=1..64; bytes may end in KiB, MiB, GiB or TiB, at most "
                          "4194303TiB, and the path cannot have commas",
                          length < 100 ? (int)length : 100, word);
    }
    return DW_OK;
}

/* ---- Forks ----------------------------------------------------------------------------------- */

/* The storages that are open. A child that is forked gives up their files at once: if it lived
 * longer than its parent, as workers of a data loader may, nobody else could open them. */
static struct {
    pthread_mutex_t lock;
    pthread_once_t once;
    dw_storage *first;
} open_ones = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_ONCE_INIT, NULL};

static void before_fork(void)
{
    pthread_mutex_lock(&open_ones.lock);
}

static void in_parent(void)
{
    pthread_mutex_unlock(&open_ones.lock);
}

static void in_child(void)
{
    for (dw_storage *s = open_ones.first; s; s = s->next) {
        dw_disk_close(s->all.file.fd);
        s->all.file.fd = -1;
    }
    open_ones.first = NULL;
    pthread_mutex_unlock(&open_ones.lock);
}

static void watch_forks(void)
{
    (void)pthread_atfork(before_fork, in_parent, in_child);
}

static void enlist(dw_storage *s)
{
    pthread_once(&open_ones.once, watch_forks);
    pthread_mutex_lock(&open_ones.lock);
    s->next = open_ones.first;
    open_ones.first = s;
    pthread_mutex_unlock(&open_ones.lock);
}

static void delist(dw_storage *s)
{
    pthread_mutex_lock(&open_ones.lock);
    for (dw_storage **link = &open_ones.first; *link; link = &(*link)->next)
        if (*link == s) {
            *link = s->next;
            break;
        }
    pthread_mutex_unlock(&open_ones.lock);
}

/* ---- Opening and closing --------------------------------------------------------------------- */

/* Signals are for the program's own threads. */
static dw_status start_threads(dw_storage *s, uint64_t n, dw_why *why)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (s->n < n && !pthread_create(&s->threads[s->n], NULL, dw_storage_records_serve, &s->all))
        s->n++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (s->n) return DW_OK;
    return dw_say(why, DW_ERR_UNSUPPORTED, "no thread can be started: see ulimit -u");
}

/* A file with snapshots is for a later process. */
static void free_storage(dw_storage *s, bool removes, bool is_ours)
{
    for (int i = 0; i < SNAPSHOTS; i++) removes &= !s->all.snapshots[i];
    dw_storage_records_free(&s->all, is_ours);
    dw_storage_file_close(&s->all.file, removes);
    free(s);
}

static dw_status open_storage(dw_storage **storage, const char *text, dw_why *why)
{
    options o;
    dw_status status = read_text(&o, text, why);
    if (status) return status;
    dw_storage *s = calloc(1, sizeof *s);
    if (!s) return DW_ERR_NO_MEMORY;
    pthread_mutex_init(&s->all.lock, NULL);
    pthread_mutex_init(&s->all.saving, NULL);
    pthread_cond_init(&s->all.posted, NULL);
    pthread_cond_init(&s->all.done, NULL);
    s->all.ahead = o.ahead;
    s->process = getpid();
    s->backing = (dw_backing){.cache_bytes = o.cache,
                              .write = dw_storage_records_write,
                              .read = dw_storage_records_read,
                              .prefetch = dw_storage_records_prefetch,
                              .release = dw_storage_records_release,
                              .context = &s->all};
    status = dw_storage_file_open(&s->all.file, o.path, why);
    if (!status) status = dw_storage_snapshots_load(&s->all, why);
    bool is_open = !status;
    if (!status) status = start_threads(s, o.threads, why);
    if (status) {
        free_storage(s, is_open, true);
        return status;
    }
    enlist(s);
    *storage = s;
    return DW_OK;
}

dw_status dw_storage_open(dw_storage **storage, const char *text, dw_why *why)
{
    DW_UNCANCELLED;
    if (why) *why = (dw_why){.offset = -1};
    if (storage) *storage = NULL;
    if (!storage || !text) return dw_say(why, DW_ERR_ARGUMENT, "an argument is NULL");
    dw_status status = open_storage(storage, text, why);
    bool is_untold = status == DW_ERR_NO_MEMORY && why && !*why->text;
    return is_untold ? dw_say(why, status, "there is no memory") : status;
}

void dw_storage_close(dw_storage *s)
{
    DW_UNCANCELLED;
    if (!s) return;
    bool is_ours = s->process == getpid();
    delist(s);
    if (is_ours) {
        pthread_mutex_lock(&s->all.lock);
        s->all.over = true;
        pthread_cond_broadcast(&s->all.posted);
        pthread_mutex_unlock(&s->all.lock);
        for (uint64_t i = 0; i < s->n; i++) pthread_join(s->threads[i], NULL);
    }
    free_storage(s, is_ours, is_ours);
}

const dw_backing *dw_storage_backing(const dw_storage *s)
{
    return s ? &s->backing : NULL;
}

dw_status dw_storage_count(dw_storage *s, dw_storage_counters *counters)
{
    DW_UNCANCELLED;
    if (!s || !counters) return DW_ERR_ARGUMENT;
    pthread_mutex_lock(&s->all.lock);
    dw_storage_counters found = s->all.counters;
    found.file_bytes = s->all.file.slots.end * DW_STORAGE_PAGE;
    dw_storage_snapshots_count(&s->all, &found);
    pthread_mutex_unlock(&s->all.lock);
    return dw_give_told(counters, &found, sizeof found, "dw_storage_counters", NULL);
}

/* ---- Snapshots ------------------------------------------------------------------------------- */

dw_status dw_storage_keep(dw_storage *s, const void *copy, uint64_t bytes,
                          uint8_t name[DW_STORAGE_NAME_BYTES], dw_why *why)
{
    DW_UNCANCELLED;
    if (why) *why = (dw_why){.offset = -1};
    if (!s || !copy || !bytes || !name)
        return dw_say(why, DW_ERR_ARGUMENT, "an argument is NULL, or the copy is empty");
    return dw_storage_snapshots_keep(&s->all, copy, bytes, name, why);
}

dw_status dw_storage_save(dw_storage *s, uint64_t keeps, uint64_t *made, dw_why *why)
{
    DW_UNCANCELLED;
    if (why) *why = (dw_why){.offset = -1};
    if (!s) return dw_say(why, DW_ERR_ARGUMENT, "an argument is NULL");
    return dw_storage_snapshots_save(&s->all, keeps, made, why);
}

dw_status dw_storage_fetch(dw_storage *s, uint64_t snapshot,
                           const uint8_t name[DW_STORAGE_NAME_BYTES], void *copy, uint64_t bytes,
                           dw_why *why)
{
    DW_UNCANCELLED;
    if (why) *why = (dw_why){.offset = -1};
    if (!s || !name || !copy) return dw_say(why, DW_ERR_ARGUMENT, "an argument is NULL");
    return dw_storage_snapshots_fetch(&s->all, snapshot, name, copy, bytes, why);
}
