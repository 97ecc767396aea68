/* SPDX-License-Identifier: Apache-2.0
 * test_crash.c - snapshots of a storage whose power is cut at any point, or whose disk or memory
 * fails: it opens, with the snapshots that were saved last or those before, and with all their
 * copies.
 *
 * crash IMAGES [SEED]: how many states of the disk are opened, at least. */
#include <stdatomic.h>

#include "deltawire/storage.h"
#include "power.h"

enum { KEYS = 5, SAVES = 5, MOST_BYTES = 9000 };

static const char place[] = "file:/disk/prev,ahead=40KiB,threads=1";
static uint64_t images_wanted = 2000;

/* A copy is random bytes, which its seed tells. */
typedef struct copy {
    uint64_t seed, bytes, record; /* record 0: none */
    uint8_t name[DW_STORAGE_NAME_BYTES];
} copy;

typedef struct saved {
    uint64_t number, before; /* the snapshot, and the older one that stays with it; 0: none */
    copy copies[KEYS];
} saved;

/* What a process did: saves 1 to n, and 0, which is what it found. */
typedef struct run {
    saved saves[SAVES + 2];
    uint64_t n;
    uint64_t failed;   /* calls */
    bool fails_once;   /* a call of the disk does */
    bool may_be_final; /* the last failure said that no other snapshot can be made */
} run;

static void fill(const copy *c, uint8_t *bytes)
{
    test_random random = {c->seed};
    for (uint64_t i = 0; i < c->bytes; i += 8) {
        uint64_t word = test_next(&random);
        memcpy(bytes + i, &word, c->bytes - i < 8 ? c->bytes - i : 8);
    }
}

/* A call may only fail with a sentence. */
static bool is_done(run *r, dw_status status, const dw_why *why)
{
    if (status == DW_OK) return true;
    if (!*why->text) fail_msg("status %d has no sentence", status);
    r->failed++;
    r->may_be_final = strstr(why->text, "is opened again") != NULL;
    return false;
}

/* Does what an encoder does with a key: its next copy takes the place of the last one. */
static void visit(run *r, const dw_backing *backing, copy *c, test_random *random)
{
    uint8_t bytes[MOST_BYTES];
    dw_why why = {.text = ""};
    copy next = {.seed = test_next(random), .bytes = 100 + 4000 * (test_next(random) % 3)};
    fill(&next, bytes);
    /* Now and then the copy stays in memory. */
    if (test_next(random) % 4 &&
        !is_done(r, backing->write(backing->context, bytes, next.bytes, &next.record, &why), &why))
        return;
    if (c->record) {
        is_done(r, backing->read(backing->context, c->record, bytes, c->bytes, &why), &why);
        backing->release(backing->context, c->record);
    }
    *c = next;
}

static bool save(run *r, dw_storage *storage, copy *copies, uint64_t keeps)
{
    uint8_t bytes[MOST_BYTES];
    dw_why why;
    saved *s = &r->saves[r->n + 1];
    for (int k = 0; k < KEYS; k++) {
        copy *c = &copies[k];
        if (!c->bytes) continue;
        fill(c, bytes);
        if (!is_done(r, dw_storage_keep(storage, bytes, c->bytes, c->name, &why), &why)) {
            dw_storage_save(storage, 0, NULL, NULL);
            return false;
        }
    }
    *s = (saved){.before = keeps};
    memcpy(s->copies, copies, sizeof s->copies);
    if (!is_done(r, dw_storage_save(storage, keeps, &s->number, &why), &why)) return false;
    power_reach(++r->n);
    return true;
}

static dw_storage *open_storage(run *r)
{
    dw_storage *storage;
    dw_why why;
    return is_done(r, dw_storage_open(&storage, place, &why), &why) ? storage : NULL;
}

/* One process: it opens the storage, changes copies between snapshots, and closes it. A snapshot
 * that failed is tried once more. */
static void work(run *r, test_random *random, uint64_t saves)
{
    copy copies[KEYS] = {{0}};
    dw_storage *storage = open_storage(r);
    if (!storage) return;
    const dw_backing *backing = dw_storage_backing(storage);
    for (uint64_t i = 0; i < saves; i++) {
        for (int k = 0; k < KEYS; k++)
            if (test_next(random) >> 63) visit(r, backing, &copies[k], random);
        const saved *last = &r->saves[r->n];
        uint64_t keeps[] = {last->number, last->number, last->before, 0};
        uint64_t kept = keeps[test_next(random) % 4];
        if (save(r, storage, copies, kept)) continue;
        bool is_told = r->may_be_final;
        if (save(r, storage, copies, kept)) continue;
        if (r->fails_once) assert_int_equal(r->may_be_final, is_told);
        break;
    }
    for (int k = 0; k < KEYS; k++) {
        visit(r, backing, &copies[k], random);
        if (copies[k].record) backing->release(backing->context, copies[k].record);
    }
    dw_storage_close(storage);
}

static const saved *find(const run *r, uint64_t number)
{
    for (uint64_t i = 0; number && i < SAVES + 2; i++)
        if (r->saves[i].number == number) return &r->saves[i];
    return NULL;
}

/* All copies of a snapshot have their bytes. */
static void check_copies(dw_storage *storage, const run *r, uint64_t number)
{
    uint8_t bytes[MOST_BYTES], expected[MOST_BYTES];
    dw_why why;
    const saved *s = find(r, number);
    if (number && !s) fail_msg("a snapshot was never saved");
    for (int k = 0; s && k < KEYS; k++) {
        const copy *c = &s->copies[k];
        if (!c->bytes) continue;
        fill(c, expected);
        if (dw_storage_fetch(storage, number, c->name, bytes, c->bytes, &why))
            fail_msg("%s", why.text);
        assert_memory_equal(bytes, expected, c->bytes);
    }
}

/* The disk opens after a cut behind save `point`: with its snapshots, or with those of the next
 * save, which had begun. Returns which save it is. */
static uint64_t check(run *r, uint64_t point)
{
    dw_storage *storage;
    dw_why why;
    dw_storage_counters c = {.struct_size = sizeof c};
    if (dw_storage_open(&storage, place, &why)) fail_msg("%s", why.text);
    dw_storage_count(storage, &c);
    uint64_t found = point;
    if (c.snapshot != r->saves[point].number) found++;
    /* One that failed may be there, if only the sync of the folder failed. */
    if (found > r->n && r->failed && !r->saves[found].number) r->saves[found].number = c.snapshot;
    if (c.snapshot != r->saves[found].number || c.snapshot_before != r->saves[found].before)
        fail_msg("the snapshots of save %llu are not there", (unsigned long long)point);
    check_copies(storage, r, c.snapshot);
    check_copies(storage, r, c.snapshot_before);
    dw_storage_close(storage);
    return found;
}

/* What a process that opens a disk knows of it. */
static run begin_from(const run *r, uint64_t found)
{
    run next = {.n = 0};
    const saved *before = find(r, r->saves[found].before);
    next.saves[0] = r->saves[found];
    if (before) next.saves[SAVES + 1] = *before;
    return next;
}

/* Cuts the power again after a process worked with what a cut had left. */
static void cut_again(const run *r, uint64_t found, test_random *random)
{
    run next = begin_from(r, found);
    uint64_t point = 0;
    power_record();
    work(&next, random, 1 + test_next(random) % 2);
    power_walk *walk = power_walk_begin();
    do {
        power_cut(walk, (power_mode)(test_next(random) % POWER_MODES), random);
        check(&next, point);
    } while (power_walk_next(walk, random, &point));
    power_walk_end(walk);
}

TEST(a_cut_leaves_the_last_snapshots_or_those_before)
{
    test_random random = {test_seed()};
    uint64_t images = 0, runs = 0;
    for (; images < images_wanted; runs++) {
        run r = {.n = 0};
        uint64_t point = 0;
        power_clear();
        power_record();
        work(&r, &random, SAVES);
        assert_int_equal(r.failed, 0);
        assert_int_equal(r.n, SAVES);
        power_walk *walk = power_walk_begin();
        do {
            for (int i = 0; i < 2 * POWER_MODES; i++, images++) {
                power_cut(walk, (power_mode)(i % POWER_MODES), &random);
                uint64_t found = check(&r, point);
                if (test_next(&random) % 64) continue;
                power_cut(walk, (power_mode)(i % POWER_MODES), &random);
                found = check(&r, point);
                cut_again(&r, found, &random);
            }
        } while (power_walk_next(walk, &random, &point));
        power_walk_end(walk);
    }
    print_message("%llu states of the disk in %llu runs\n", (unsigned long long)images,
                  (unsigned long long)runs);
}

/* A process that begins the file, or finds one with snapshots; where calls go on to fail it is as
 * good as killed. Another process works with what it left. Then the power is cut at some point.
 * Returns whether a call told of the failure. */
static bool work_with_failure(uint64_t call, bool goes_on, bool finds, test_random *random,
                              uint64_t *calls)
{
    run first = {.n = 0}, r;
    uint64_t point = 0;
    power_clear();
    if (finds) work(&first, random, 2);
    r = begin_from(&first, first.n);
    power_record();
    power_fail(call, goes_on);
    r.fails_once = !goes_on;
    work(&r, random, SAVES - 2);
    *calls = power_fail(0, false);
    r.n = check(&r, r.n);
    power_reach(r.n);
    work(&r, random, 1);
    power_walk *walk = power_walk_begin();
    do {
        power_cut(walk, (power_mode)(test_next(random) % POWER_MODES), random);
        check(&r, point);
    } while (power_walk_next(walk, random, &point));
    power_walk_end(walk);
    return r.failed;
}

TEST(a_call_that_fails_leaves_them_too)
{
    test_random random = {test_seed()};
    uint64_t told = 0, all = 0, calls;
    for (uint64_t i = 0; i < 4 * (images_wanted / 2000); i++)
        for (uint64_t call = 1;
             all++, told += work_with_failure(call, i & 1, i & 2, &random, &calls), call <= calls;
             call++) {
        }
    print_message("calls told of %llu failures out of %llu\n", (unsigned long long)told,
                  (unsigned long long)all);
    assert_true(told > all / 3);
}

/* What was kept takes no space for ever, although no snapshot can be made any more. */
TEST(what_was_kept_can_be_let_go_after_a_failed_sync)
{
    run r = {.n = 0};
    copy copies[2] = {{.seed = 1, .bytes = 5000}, {.seed = 2, .bytes = 5000}};
    uint8_t bytes[2][MOST_BYTES];
    uint64_t made;
    dw_why why;
    dw_storage_counters c = {.struct_size = sizeof c};
    power_clear();
    dw_storage *storage = open_storage(&r);
    const dw_backing *backing = dw_storage_backing(storage);
    for (int i = 0; i < 2; i++) fill(&copies[i], bytes[i]);
    /* The thread writes the first one before the second one, which the snapshot has. */
    backing->write(backing->context, bytes[0], 5000, &copies[0].record, &why);
    dw_storage_keep(storage, bytes[1], 5000, copies[1].name, &why);
    assert_int_equal(dw_storage_save(storage, 0, &made, &why), DW_OK);
    dw_storage_keep(storage, bytes[0], 5000, copies[0].name, &why);
    backing->release(backing->context, copies[0].record);
    power_fail(1, false);
    assert_int_equal(dw_storage_save(storage, 0, &made, &why), DW_ERR_IO);
    assert_non_null(strstr(why.text, "failed to sync"));
    dw_storage_count(storage, &c);
    assert_int_equal(c.pinned, 2);
    assert_int_equal(dw_storage_save(storage, 0, NULL, &why), DW_OK);
    dw_storage_count(storage, &c);
    assert_int_equal(c.pinned, 1);
    dw_storage_close(storage);
}

/* Allocations of the storage, which threads make, too: how many were made, and which one fails; 0:
 * none. The disk's own are not counted. */
static atomic_uint_fast64_t allocations, failing;

static bool allocates(void)
{
    return atomic_fetch_add(&allocations, 1) + 1 != atomic_load(&failing);
}

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
char *__real_strdup(const char *text);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);
char *__wrap_strdup(const char *text);

void *__wrap_malloc(size_t bytes)
{
    return allocates() ? __real_malloc(bytes) : NULL;
}

void *__wrap_calloc(size_t n, size_t bytes)
{
    return allocates() ? __real_calloc(n, bytes) : NULL;
}

void *__wrap_realloc(void *memory, size_t bytes)
{
    return allocates() ? __real_realloc(memory, bytes) : NULL;
}

char *__wrap_strdup(const char *text)
{
    return allocates() ? __real_strdup(text) : NULL;
}

TEST(an_allocation_that_fails_leaves_the_snapshots_that_were_there)
{
    test_random random = {test_seed()};
    for (int finds = 0; finds < 2; finds++) {
        uint64_t n = 0, made;
        do {
            run first = {.n = 0}, r;
            power_clear();
            if (finds) work(&first, &random, 2);
            r = begin_from(&first, first.n);
            r.fails_once = true;
            atomic_store(&allocations, 0);
            atomic_store(&failing, ++n);
            work(&r, &random, SAVES - 2);
            made = atomic_load(&allocations);
            atomic_store(&failing, 0);
            assert_int_equal(r.failed > 0, n <= made);
            check(&r, r.n);
        } while (n <= made);
        print_message("%llu allocations\n", (unsigned long long)made);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1) images_wanted = strtoull(argv[1], NULL, 10);
    return test_run(NULL, NULL);
}
