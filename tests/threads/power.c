/* SPDX-License-Identifier: Apache-2.0
 * power.c - the disk in memory: its calls, its record, and what a cut leaves of it. */
#include "power.h"

#include <errno.h>
#include <pthread.h>

#include "storage_disk.h"

enum { INODES = 40, NAMES = 4, NAME_BYTES = 24 };

typedef struct inode {
    uint8_t *data;
    uint64_t size;
} inode;

typedef struct disk {
    inode inodes[INODES];
    int n;
    struct {
        char text[NAME_BYTES]; /* empty: not in use */
        int inode;
    } names[NAMES];
} disk;

typedef enum event_kind { WRITE, RESIZE, SYNC, FAILED_SYNC, NAME, SYNC_FOLDER, REACH } event_kind;

typedef struct event {
    event_kind kind;
    int inode;
    uint64_t offset, bytes; /* REACH: offset is the point */
    uint8_t *data;
    char from[NAME_BYTES], to[NAME_BYTES]; /* NAME: `from` is removed, `to` becomes the inode */
} event;

typedef struct list {
    event *events;
    size_t n, cap;
} list;

static disk now;
static disk begun; /* what `now` was when it began to record */
static list recorded;
static bool records, fails_on;
static uint64_t calls, fails;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

struct power_walk {
    disk synced;
    list passed, pending; /* `pending` borrows its data */
    size_t at;
    uint64_t point;
};

/* ---- Disks ----------------------------------------------------------------------------------- */

static void clear(disk *d)
{
    for (int i = 0; i < INODES; i++) free(d->inodes[i].data);
    memset(d, 0, sizeof *d);
}

static void resize(inode *node, uint64_t size)
{
    if (size > node->size) {
        node->data = realloc(node->data, size);
        memset(node->data + node->size, 0, size - node->size);
    }
    node->size = size;
}

static void copy(disk *to, const disk *from)
{
    *to = *from;
    for (int i = 0; i < INODES; i++) {
        inode *node = &to->inodes[i];
        if (!node->size) node->data = NULL;
        if (node->size) node->data = memcpy(malloc(node->size), node->data, node->size);
    }
}

/* The place of a name, or of an unused one. */
static int find(const disk *d, const char *text)
{
    for (int i = 0; i < NAMES; i++)
        if (!strcmp(d->names[i].text, text)) return i;
    return -1;
}

static void name(disk *d, const event *e)
{
    int from = *e->from ? find(d, e->from) : -1;
    if (from >= 0) *d->names[from].text = '\0';
    if (!*e->to) return;
    int to = find(d, e->to);
    if (to < 0) to = find(d, "");
    assert_true(to >= 0);
    strcpy(d->names[to].text, e->to);
    d->names[to].inode = e->inode;
}

static bool coin(test_random *random)
{
    return test_next(random) >> 63;
}

/* Applies what a mode leaves of an event. */
static void apply(disk *d, const event *e, power_mode mode, test_random *random)
{
    inode *node = &d->inodes[e->inode];
    uint64_t end = e->offset + e->bytes;
    bool is_torn = mode >= POWER_PAGES && e->kind == WRITE;
    if (mode == POWER_NONE || (mode != POWER_ALL && !is_torn && coin(random))) return;
    if (e->kind == NAME) name(d, e);
    if (e->kind == RESIZE) resize(node, e->bytes);
    if (e->kind != WRITE) return;
    if (end > node->size && (!is_torn || coin(random))) resize(node, end);
    uint64_t unit = !is_torn ? e->bytes : mode == POWER_PAGES ? 4096 : 512;
    for (uint64_t at = e->offset; at < end; at += unit - (is_torn ? at % unit : 0)) {
        uint64_t next = at + unit - (is_torn ? at % unit : 0);
        if (next > end) next = end;
        if (is_torn && coin(random)) continue;
        if (next <= node->size) memcpy(node->data + at, e->data + (at - e->offset), next - at);
    }
}

/* ---- Recording ------------------------------------------------------------------------------- */

static void append(list *l, const event *e)
{
    if (l->n == l->cap) {
        l->cap = 2 * l->cap + 64;
        l->events = realloc(l->events, l->cap * sizeof *l->events);
    }
    l->events[l->n++] = *e;
}

static void drop(list *l)
{
    for (size_t i = 0; i < l->n; i++) free(l->events[i].data);
    free(l->events);
    *l = (list){.n = 0};
}

static void record(event e)
{
    if (!records) return;
    if (e.data) e.data = memcpy(malloc(e.bytes), e.data, e.bytes);
    append(&recorded, &e);
}

/* Does it, and records it. */
static void change(event e)
{
    apply(&now, &e, POWER_ALL, NULL);
    record(e);
}

void power_clear(void)
{
    clear(&now);
    records = false;
    drop(&recorded);
}

void power_record(void)
{
    clear(&begun);
    drop(&recorded);
    copy(&begun, &now);
    records = true;
}

void power_reach(uint64_t point)
{
    pthread_mutex_lock(&lock);
    record((event){.kind = REACH, .offset = point});
    pthread_mutex_unlock(&lock);
}

uint64_t power_fail(uint64_t call, bool goes_on)
{
    uint64_t before = calls;
    calls = 0;
    fails = call;
    fails_on = goes_on;
    return before;
}

/* ---- Cuts ------------------------------------------------------------------------------------ */

power_walk *power_walk_begin(void)
{
    power_walk *walk = calloc(1, sizeof *walk);
    records = false;
    walk->passed = recorded;
    recorded = (list){.n = 0};
    walk->synced = begun;
    memset(&begun, 0, sizeof begun);
    return walk;
}

void power_walk_end(power_walk *walk)
{
    clear(&walk->synced);
    drop(&walk->passed);
    free(walk->pending.events);
    free(walk);
}

/* The disk has what was pending: of an inode, or of the folder. */
static void sync(power_walk *walk, const event *e, power_mode mode, test_random *random)
{
    size_t left = 0;
    for (size_t i = 0; i < walk->pending.n; i++) {
        event *p = &walk->pending.events[i];
        bool is_of =
            e->kind == SYNC_FOLDER ? p->kind == NAME : p->kind != NAME && p->inode == e->inode;
        if (is_of)
            apply(&walk->synced, p, mode, random);
        else
            walk->pending.events[left++] = *p;
    }
    walk->pending.n = left;
}

bool power_walk_next(power_walk *walk, test_random *random, uint64_t *point)
{
    if (walk->at == walk->passed.n) return false;
    const event *e = &walk->passed.events[walk->at++];
    if (e->kind == REACH)
        walk->point = e->offset;
    else if (e->kind == SYNC || e->kind == SYNC_FOLDER)
        sync(walk, e, POWER_ALL, random);
    else if (e->kind == FAILED_SYNC)
        sync(walk, e, POWER_SECTORS, random);
    else
        append(&walk->pending, e);
    *point = walk->point;
    return true;
}

/* Inodes without a name are gone, and the others get new numbers. */
void power_cut(const power_walk *walk, power_mode mode, test_random *random)
{
    disk left;
    copy(&left, &walk->synced);
    for (size_t i = 0; i < walk->pending.n; i++)
        apply(&left, &walk->pending.events[i], mode, random);
    clear(&now);
    for (int i = 0; i < NAMES; i++) {
        if (!*left.names[i].text) continue;
        inode *node = &left.inodes[left.names[i].inode];
        strcpy(now.names[i].text, left.names[i].text);
        now.names[i].inode = now.n;
        now.inodes[now.n++] = *node;
        *node = (inode){.size = 0};
    }
    clear(&left);
}

/* ---- Calls ----------------------------------------------------------------------------------- */

static bool begin(void)
{
    pthread_mutex_lock(&lock);
    calls++;
    return !fails || (fails_on ? calls < fails : calls != fails);
}

static int end(int error)
{
    pthread_mutex_unlock(&lock);
    return error;
}

static const char *text_of(const char *path)
{
    return strrchr(path, '/') + 1;
}

int dw_disk_resolve(const char *path, char **resolved)
{
    if (!begin()) return end(EIO);
    *resolved = strdup(path);
    return end(*resolved ? 0 : ENOMEM);
}

int dw_disk_open(const char *path, bool makes, int *fd)
{
    if (!begin()) return end(EIO);
    int at = find(&now, text_of(path));
    *fd = -1;
    if ((at < 0) != makes) return end(makes ? EEXIST : ENOENT);
    if (at < 0) {
        event e = {.kind = NAME, .inode = now.n++};
        assert_true(now.n <= INODES);
        strcpy(e.to, text_of(path));
        change(e);
    }
    *fd = now.names[find(&now, text_of(path))].inode;
    return end(0);
}

void dw_disk_close(int fd)
{
    (void)fd;
}

int dw_disk_size(int fd, uint64_t *bytes)
{
    bool is_well = begin();
    *bytes = now.inodes[fd].size;
    return end(is_well ? 0 : EIO);
}

int dw_disk_lock(int fd)
{
    (void)fd;
    return end(begin() ? 0 : EIO);
}

int dw_disk_is_named(int fd, const char *path)
{
    bool is_well = begin();
    int at = find(&now, text_of(path));
    bool is_named = at >= 0 && now.names[at].inode == fd;
    return end(!is_well ? EIO : is_named ? 0 : ESTALE);
}

int dw_disk_read(int fd, uint64_t offset, void *to, uint64_t bytes)
{
    bool is_well = begin() && offset + bytes <= now.inodes[fd].size;
    if (is_well && bytes) memcpy(to, now.inodes[fd].data + offset, bytes);
    return end(is_well ? 0 : EIO);
}

/* One that fails has written a part. */
int dw_disk_write(int fd, uint64_t offset, const void *from, uint64_t bytes)
{
    bool is_well = begin();
    event e = {.kind = WRITE,
               .inode = fd,
               .offset = offset,
               .bytes = is_well ? bytes : bytes / 2,
               .data = (uint8_t *)(uintptr_t)from};
    if (e.bytes) change(e);
    return end(is_well ? 0 : EIO);
}

int dw_disk_resize(int fd, uint64_t bytes)
{
    bool is_well = begin();
    if (is_well) change((event){.kind = RESIZE, .inode = fd, .bytes = bytes});
    return end(is_well ? 0 : EIO);
}

int dw_disk_sync(int fd)
{
    bool is_well = begin();
    if (is_well || !fails_on) record((event){.kind = is_well ? SYNC : FAILED_SYNC, .inode = fd});
    return end(is_well ? 0 : EIO);
}

int dw_disk_rename(const char *from, const char *to)
{
    bool is_well = begin();
    int at = find(&now, text_of(from));
    event e = {.kind = NAME};
    assert_true(at >= 0);
    strcpy(e.from, text_of(from));
    strcpy(e.to, text_of(to));
    e.inode = now.names[at].inode;
    if (is_well) change(e);
    return end(is_well ? 0 : EIO);
}

int dw_disk_remove(const char *path)
{
    bool is_well = begin(), is_there = find(&now, text_of(path)) >= 0;
    event e = {.kind = NAME};
    strcpy(e.from, text_of(path));
    if (is_well && is_there) change(e);
    return end(!is_well ? EIO : is_there ? 0 : ENOENT);
}

int dw_disk_sync_folder(const char *path)
{
    bool is_well = begin();
    (void)path;
    if (is_well) record((event){.kind = SYNC_FOLDER});
    return end(is_well ? 0 : EIO);
}
