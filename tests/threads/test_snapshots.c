/* SPDX-License-Identifier: Apache-2.0
 * test_snapshots.c - snapshots in a file for prev: a process finds what a killed one has saved, the
 * space that they take, and files and indexes that do not fit. */
#include "deltawire/storage.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/bytes.h"
#include "support/folder.h"
#include "support/tool.h"

enum { KEYS = 20, BYTES = 5000, SLOT = 8192, HEAD = 80, ENTRY = 40 };

typedef uint8_t copy_name[DW_STORAGE_NAME_BYTES];

static char folder[TEST_FOLDER_BYTES], path[128], index_path[128];

static dw_storage *open_text(const char *text)
{
    dw_storage *storage;
    dw_why why;
    if (dw_storage_open(&storage, text, &why)) fail_msg("%s", why.text);
    return storage;
}

static dw_storage *open_storage(void)
{
    char text[200];
    snprintf(text, sizeof text, "file:%s", path);
    return open_text(text);
}

static void expect_refused(dw_status status, const char *says)
{
    char text[200];
    dw_storage *storage;
    dw_why why;
    snprintf(text, sizeof text, "file:%s", path);
    assert_int_equal(dw_storage_open(&storage, text, &why), status);
    if (!strstr(why.text, says)) fail_msg("\"%s\" does not say \"%s\"", why.text, says);
}

static dw_storage_counters counters_of(dw_storage *storage)
{
    dw_storage_counters counters = {.struct_size = sizeof counters};
    assert_int_equal(dw_storage_count(storage, &counters), DW_OK);
    return counters;
}

/* The copy of a key after so many changes. */
static const uint8_t *copy_of(uint64_t key, uint64_t changes)
{
    static uint8_t bytes[BYTES];
    test_random random = {1000 * changes + key};
    for (size_t i = 0; i < BYTES; i++) bytes[i] = (uint8_t)test_next(&random);
    return bytes;
}

static void keep(dw_storage *storage, uint64_t key, uint64_t changes, copy_name name)
{
    dw_why why;
    if (dw_storage_keep(storage, copy_of(key, changes), BYTES, name, &why))
        fail_msg("%s", why.text);
}

static uint64_t save(dw_storage *storage, uint64_t keeps)
{
    uint64_t made;
    dw_why why;
    if (dw_storage_save(storage, keeps, &made, &why)) fail_msg("%s", why.text);
    assert_true(made != 0);
    return made;
}

/* Keeps a copy of each key, of which the first ones have changed, and saves them. */
static uint64_t save_all(dw_storage *storage, uint64_t changed, uint64_t changes, uint64_t keeps,
                         copy_name names[KEYS])
{
    for (uint64_t k = 0; k < KEYS; k++) keep(storage, k, k < changed ? changes : 0, names[k]);
    return save(storage, keeps);
}

static void assert_has(dw_storage *storage, uint64_t snapshot, uint64_t changed, uint64_t changes,
                       copy_name names[KEYS])
{
    uint8_t bytes[BYTES];
    dw_why why;
    for (uint64_t k = 0; k < KEYS; k++) {
        if (dw_storage_fetch(storage, snapshot, names[k], bytes, BYTES, &why))
            fail_msg("%s", why.text);
        assert_memory_equal(bytes, copy_of(k, k < changed ? changes : 0), BYTES);
    }
}

static void remove_files(void)
{
    unlink(path);
    unlink(index_path);
}

/* ---- What is brought back -------------------------------------------------------------------- */

TEST(a_killed_process_leaves_its_snapshots)
{
    int channel[2];
    struct {
        uint64_t made[2];
        copy_name names[2][KEYS];
    } told;
    assert_int_equal(pipe(channel), 0);
    pid_t child = fork();
    if (!child) {
        dw_storage *storage = open_storage();
        uint64_t record;
        for (uint64_t i = 0; i < 2; i++)
            told.made[i] = save_all(storage, 5, i, i ? told.made[0] : 0, told.names[i]);
        const dw_backing *backing = dw_storage_backing(storage);
        for (uint64_t k = 0; k < KEYS; k++) /* written after it */
            if (backing->write(backing->context, copy_of(k, 9), BYTES, &record, NULL)) _exit(1);
        if (write(channel[1], &told, sizeof told) != sizeof told) _exit(1);
        for (;;) pause();
    }
    assert_int_equal(read(channel[0], &told, sizeof told), sizeof told);
    expect_refused(DW_ERR_IO, "in use");
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    dw_storage *storage = open_storage();
    dw_storage_counters c = counters_of(storage);
    assert_true(c.snapshot == told.made[1] && c.snapshot_before == told.made[0]);
    assert_int_equal(c.pinned, KEYS + 5);
    for (uint64_t i = 0; i < 2; i++) assert_has(storage, told.made[i], 5, i, told.names[i]);
    dw_storage_close(storage);
    remove_files();
    close(channel[0]);
    close(channel[1]);
}

/* Encoders change all copies between two snapshots, again and again, and processes change, too. */
TEST(space_is_what_changed_since)
{
    copy_name names[KEYS];
    uint64_t records[KEYS], last = 0;
    for (uint64_t round = 0; round < 12; round++) {
        dw_storage *storage = open_storage();
        const dw_backing *backing = dw_storage_backing(storage);
        dw_storage_counters c;
        if (round) assert_has(storage, last, KEYS, 3 * round - 1, names);
        for (uint64_t i = 0; i < 3; i++) {
            uint64_t changes = 3 * round + i;
            for (uint64_t k = 0; k < KEYS; k++) {
                if (i) backing->release(backing->context, records[k]);
                assert_int_equal(
                    backing->write(backing->context, copy_of(k, changes), BYTES, &records[k], NULL),
                    DW_OK);
            }
            c = counters_of(storage);
            assert_int_equal(c.pinned_bytes, last ? KEYS * BYTES : 0);
            uint64_t writes = c.writes;
            last = save_all(storage, KEYS, changes, 0, names);
            c = counters_of(storage);
            assert_int_equal(c.writes, writes); /* the file has all of them */
            assert_true(c.pinned == 0 && c.records == KEYS);
            assert_true(c.snapshot == last && c.snapshot_before == 0);
        }
        assert_true(c.file_bytes <= (uint64_t)2 * KEYS * SLOT + 4096);
        for (uint64_t k = 0; k < KEYS; k++) backing->release(backing->context, records[k]);
        assert_int_equal(counters_of(storage).pinned, KEYS);
        dw_storage_close(storage);
    }
    /* An encoder that goes on from a snapshot stores copies that the file has. */
    dw_storage *storage = open_storage();
    const dw_backing *backing = dw_storage_backing(storage);
    assert_has(storage, last, KEYS, 35, names);
    for (uint64_t k = 0; k < KEYS; k++)
        assert_int_equal(backing->write(backing->context, copy_of(k, 35), BYTES, &records[k], NULL),
                         DW_OK);
    dw_storage_counters c = counters_of(storage);
    assert_true(c.writes == 0 && c.records == KEYS && c.pinned == 0);
    dw_storage_close(storage);
    remove_files();
}

/* Copies become longer from round to round, or have any of five lengths. What is between two slots
 * that live is used again, also by longer ones, and in a later process. */
TEST(lengths_that_differ_share_the_space)
{
    static uint8_t large[22 * 4096], back[22 * 4096];
    static const uint64_t pages[] = {1, 2, 3, 5, 7};
    test_random random = {test_seed()};
    for (uint64_t round = 0; round < 40; round++) {
        copy_name names[KEYS];
        uint64_t bytes[KEYS];
        dw_storage *storage = open_storage();
        for (uint64_t k = 0; k < KEYS; k++) {
            uint64_t any = test_next(&random);
            bytes[k] = 4096 * (round < 20 ? 1 + round + any % 3 : pages[any % 5]);
            memcpy(large, &any, sizeof any);
            assert_int_equal(dw_storage_keep(storage, large, bytes[k], names[k], NULL), DW_OK);
        }
        uint64_t lives = counters_of(storage).pinned_bytes; /* of the last round, too */
        uint64_t made = save(storage, 0);
        assert_true(counters_of(storage).file_bytes <= 3 * lives);
        for (uint64_t k = 0; k < KEYS; k++)
            assert_int_equal(dw_storage_fetch(storage, made, names[k], back, bytes[k], NULL),
                             DW_OK);
        dw_storage_close(storage);
    }
    remove_files();
}

TEST(what_was_kept_can_be_let_go)
{
    copy_name names[KEYS], other;
    uint8_t bytes[BYTES];
    dw_why why;
    dw_storage *storage = open_storage();
    keep(storage, 0, 7, other);
    assert_int_equal(dw_storage_save(storage, 0, NULL, &why), DW_OK);
    assert_int_equal(counters_of(storage).pinned, 0);
    uint64_t made = save_all(storage, 0, 0, 0, names);
    assert_int_equal(dw_storage_fetch(storage, made, other, bytes, BYTES, &why), DW_ERR_MISMATCH);
    assert_non_null(strstr(why.text, "does not have this copy"));
    assert_int_equal(dw_storage_fetch(storage, made, names[0], bytes, BYTES - 1, &why),
                     DW_ERR_MISMATCH);
    assert_int_equal(dw_storage_fetch(storage, made + 1, names[0], bytes, BYTES, &why),
                     DW_ERR_MISMATCH);
    assert_non_null(strstr(why.text, "made in another file"));
    assert_int_equal(dw_storage_save(storage, made + 1, &made, &why), DW_ERR_ARGUMENT);
    assert_non_null(strstr(why.text, "to be kept"));
    assert_int_equal(dw_storage_keep(storage, bytes, 0, other, &why), DW_ERR_ARGUMENT);
    assert_int_equal(dw_storage_save(NULL, 0, &made, &why), DW_ERR_ARGUMENT);
    assert_int_equal(dw_storage_fetch(storage, made, NULL, bytes, BYTES, &why), DW_ERR_ARGUMENT);
    dw_storage_close(storage);
    remove_files();
}

/* ---- Records that several read --------------------------------------------------------------- */

enum { READERS = 4, LARGE = 1 << 20, VISITS = 60 };

/* Readers of one record, which begin at the same time. */
typedef struct reader {
    dw_storage *storage;
    pthread_barrier_t *barrier;
    const uint8_t *expected;
    const uint8_t *name; /* NULL: through the backing */
    uint64_t *snapshot, *record;
    uint64_t wrong;
} reader;

static void *read_shared(void *argument)
{
    reader *r = argument;
    const dw_backing *backing = dw_storage_backing(r->storage);
    uint8_t *bytes = malloc(LARGE);
    for (int i = 0; i < VISITS; i++) {
        pthread_barrier_wait(r->barrier);
        memset(bytes, 0, LARGE);
        dw_status status =
            r->name ? dw_storage_fetch(r->storage, *r->snapshot, r->name, bytes, LARGE, NULL)
                    : backing->read(backing->context, *r->record, bytes, LARGE, NULL);
        r->wrong += status || memcmp(bytes, r->expected, LARGE) != 0;
        pthread_barrier_wait(r->barrier);
    }
    free(bytes);
    return NULL;
}

/* Readers find the buffer of their record waiting to be written or being written, and then waiting
 * to be read or being read. */
TEST(several_read_one_record)
{
    static uint8_t large[LARGE];
    char text[200];
    copy_name name;
    dw_storage *storage;
    pthread_barrier_t barrier;
    pthread_t threads[READERS];
    reader readers[READERS];
    uint64_t record = 0, snapshot = 0;
    snprintf(text, sizeof text, "file:%s,ahead=1,threads=1", path);
    assert_int_equal(dw_storage_open(&storage, text, NULL), DW_OK);
    const dw_backing *backing = dw_storage_backing(storage);
    pthread_barrier_init(&barrier, NULL, READERS + 1);
    for (int i = 0; i < READERS; i++) {
        readers[i] = (reader){storage, &barrier, large, NULL, &snapshot, &record, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, read_shared, &readers[i]), 0);
    }
    for (int visit = 0; visit < VISITS; visit++) {
        if (visit == VISITS / 2) snapshot = save(storage, 0);
        for (int i = 0; i < READERS; i++)
            readers[i].name = visit < VISITS / 2 || i % 2 ? NULL : name;
        if (visit < VISITS / 2) {
            if (record) backing->release(backing->context, record);
            dw_storage_save(storage, 0, NULL, NULL);
            memset(large, visit + 1, LARGE);
            assert_int_equal(dw_storage_keep(storage, large, LARGE, name, NULL), DW_OK);
            assert_int_equal(backing->write(backing->context, large, LARGE, &record, NULL), DW_OK);
        } else {
            backing->prefetch(backing->context, record);
            if (visit % 2) usleep(50); /* so that a thread has begun to read */
        }
        pthread_barrier_wait(&barrier);
        pthread_barrier_wait(&barrier);
    }
    for (int i = 0; i < READERS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(readers[i].wrong, 0);
    }
    assert_int_equal(counters_of(storage).failed_reads, 0);
    pthread_barrier_destroy(&barrier);
    dw_storage_close(storage);
    remove_files();
}

/* ---- What does not fit ----------------------------------------------------------------------- */

typedef struct file {
    uint8_t bytes[4096 + 2 * KEYS * SLOT];
    size_t length;
} file;

static void load(const char *from, file *f)
{
    int fd = open(from, O_RDONLY);
    ssize_t length = read(fd, f->bytes, sizeof f->bytes);
    assert_true(length >= 0);
    f->length = (size_t)length;
    close(fd);
}

static void store(const char *to, const file *f)
{
    int fd = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_int_equal(write(fd, f->bytes, f->length), f->length);
    close(fd);
}

static void seal(file *f)
{
    dw_put64(f->bytes + 64, XXH3_64bits(f->bytes + HEAD, f->length - HEAD));
    dw_put64(f->bytes + 72, XXH3_64bits(f->bytes, 72));
}

/* Both files are refused, and left as they are. */
static void expect_index_refused(const file *changed, dw_status status, const char *says)
{
    static file copies, copies_then, index_then;
    load(path, &copies);
    store(index_path, changed);
    expect_refused(status, says);
    load(path, &copies_then);
    load(index_path, &index_then);
    assert_true(copies.length == copies_then.length && changed->length == index_then.length);
    assert_memory_equal(copies.bytes, copies_then.bytes, copies.length);
    assert_memory_equal(changed->bytes, index_then.bytes, changed->length);
}

TEST(an_index_that_does_not_fit_is_refused)
{
    static file first, index, changed, copies;
    copy_name names[KEYS];
    dw_storage *storage = open_storage();
    uint64_t made = save_all(storage, 0, 0, 0, names);
    load(index_path, &first);
    made = save_all(storage, 0, 0, made, names);
    dw_storage_close(storage);
    load(index_path, &index);
    for (size_t at = 0; at < index.length; at += at < HEAD ? 1 : 29) {
        changed = index;
        changed.bytes[at] ^= 4;
        bool is_version = at >= 29 && at < 32;
        expect_index_refused(&changed, is_version ? DW_ERR_VERSION : DW_ERR_CORRUPT,
                             is_version ? "another version" : "damaged or cut short");
        changed = index;
        changed.length = at;
        expect_index_refused(&changed, DW_ERR_CORRUPT, "damaged or cut short");
    }
    expect_index_refused(&first, DW_ERR_MISMATCH, "is older than");
    static const struct {
        size_t at;
        uint64_t value;
    } forged[] = {{HEAD, 0},
                  {HEAD, 4097},
                  {HEAD, UINT64_C(1) << 40},
                  {HEAD + 8, 0},
                  {HEAD + 8, 99999},
                  {HEAD + 8, UINT64_MAX},
                  {HEAD + ENTRY, 4096},
                  {HEAD + 32, 0},
                  {HEAD + 32, 4},
                  {48, 9}};
    for (size_t i = 0; i < sizeof forged / sizeof *forged; i++) {
        changed = index;
        dw_put64(changed.bytes + forged[i].at, forged[i].value);
        seal(&changed);
        expect_index_refused(&changed, DW_ERR_CORRUPT, "places that");
    }
    changed = index;
    changed.bytes[35] ^= 1;
    seal(&changed);
    expect_index_refused(&changed, DW_ERR_MISMATCH, "of another file");
    store(index_path, &index);
    load(path, &copies);
    assert_int_equal(truncate(path, 5000), 0);
    expect_refused(DW_ERR_CORRUPT, "places that");
    unlink(path);
    expect_refused(DW_ERR_IO, "put the file back");
    assert_int_not_equal(access(path, F_OK), 0);
    store(path, &copies);
    storage = open_storage(); /* nothing was lost */
    assert_has(storage, made, 0, 0, names);
    dw_storage_close(storage);
    unlink(index_path); /* what the sentences name */
    dw_storage_close(open_storage());
    assert_int_not_equal(access(path, F_OK), 0); /* it had no snapshot */
}

TEST(a_file_of_another_version_is_left_as_it_is)
{
    static file copies, then;
    copy_name names[KEYS];
    dw_storage *storage = open_storage();
    save_all(storage, 0, 0, 0, names);
    dw_storage_close(storage);
    load(path, &copies);
    copies.bytes[28] = '9';
    store(path, &copies);
    expect_refused(DW_ERR_VERSION, "another version");
    load(path, &then);
    assert_memory_equal(copies.bytes, then.bytes, copies.length);
    remove_files();
}

/* A copy that was damaged is not given back, and the others are. If it is kept again, it is written
 * again, also before it was read. */
TEST(damaged_copies_are_told_apart)
{
    static file copies;
    copy_name names[KEYS];
    uint8_t bytes[BYTES];
    uint64_t lost = 0;
    dw_why why;
    dw_storage *storage = open_storage();
    uint64_t made = save_all(storage, 0, 0, 0, names);
    dw_storage_close(storage);
    load(path, &copies);
    for (size_t slot = 0; slot < KEYS; slot += 4) copies.bytes[4096 + slot * SLOT + 700] ^= 1;
    store(path, &copies);
    storage = open_storage();
    uint64_t unread = save_all(storage, 0, 0, made, names);
    assert_has(storage, unread, 0, 0, names);
    for (uint64_t k = 0; k < KEYS; k++) {
        dw_status status = dw_storage_fetch(storage, made, names[k], bytes, BYTES, &why);
        if (status == DW_OK) assert_memory_equal(bytes, copy_of(k, 0), BYTES);
        if (status != DW_OK) assert_int_equal(status, DW_ERR_CORRUPT);
        lost += status != DW_OK;
    }
    assert_int_equal(lost, KEYS / 4);
    made = save_all(storage, 0, 0, made, names);
    for (int again = 0; again < 2; again++) {
        assert_has(storage, made, 0, 0, names);
        dw_storage_close(storage);
        storage = open_storage();
    }
    dw_storage_close(storage);
    remove_files();
}

/* Without a seed, XXH3_128 is the same for these two copies. */
TEST(copies_with_the_same_plain_digest_have_two_names)
{
    uint32_t copies[2][1024], back[1024];
    copy_name names[2];
    for (uint32_t i = 0; i < 1024; i++) copies[0][i] = i;
    copies[0][0] = 0x396cfeb8;
    copies[0][16] = 0x2c81017c;
    copies[0][1] = copies[0][17] = 0x40000000;
    memcpy(copies[1], copies[0], sizeof copies[0]);
    copies[1][1] += 0x10000;
    copies[1][17] -= 0x10000;
    XXH128_hash_t plain = XXH3_128bits(copies[0], sizeof copies[0]);
    assert_true(XXH128_isEqual(plain, XXH3_128bits(copies[1], sizeof copies[1])));
    dw_storage *storage = open_storage();
    for (int i = 0; i < 2; i++)
        assert_int_equal(dw_storage_keep(storage, copies[i], sizeof copies[i], names[i], NULL), 0);
    uint64_t made = save(storage, 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(dw_storage_fetch(storage, made, names[i], back, sizeof back, NULL), 0);
        assert_memory_equal(back, copies[i], sizeof back);
    }
    dw_storage_close(storage);
    remove_files();
}

/* ---- Names and folders ----------------------------------------------------------------------- */

static void go(const char *where)
{
    assert_int_equal(chdir(where), 0);
}

TEST(a_storage_keeps_its_file_when_the_program_changes_its_folder)
{
    copy_name names[KEYS];
    char link_path[160];
    dw_storage *storage;
    dw_why why;
    snprintf(link_path, sizeof link_path, "%s/other", folder);
    go(folder);
    storage = open_text("file:prev");
    go("/");
    dw_storage_close(storage); /* it has no snapshot */
    assert_int_not_equal(access(path, F_OK), 0);
    go(folder);
    storage = open_text("file:prev");
    go("/");
    uint64_t made = save_all(storage, 0, 0, 0, names);
    dw_storage_close(storage);
    assert_int_equal(symlink("prev", link_path), 0);
    go(folder);
    storage = open_text("file:other");
    go("/");
    assert_has(storage, made, 0, 0, names);
    dw_storage_close(storage);
    remove_files();
    go(folder);
    assert_int_equal(dw_storage_open(&storage, "file:other", &why), DW_ERR_IO); /* to nothing */
    assert_int_equal(dw_storage_open(&storage, "file:prev.index", &why), DW_ERR_CONFIG);
    assert_non_null(strstr(why.text, "another ending"));
    assert_int_equal(dw_storage_open(&storage, "file:prev.index.tmp", &why), DW_ERR_CONFIG);
    unlink(link_path);
    go("/");
}

TEST(a_file_that_was_moved_keeps_its_snapshots_and_harms_no_other)
{
    copy_name names[KEYS];
    char moved[160];
    uint64_t made;
    dw_why why;
    snprintf(moved, sizeof moved, "%s/moved", folder);
    dw_storage *first = open_storage();
    assert_int_equal(rename(path, moved), 0);
    dw_storage *second = open_storage();
    uint64_t saved = save_all(second, 0, 0, 0, names);
    keep(first, 1, 1, names[0]);
    assert_int_equal(dw_storage_save(first, 0, &made, &why), DW_ERR_IO);
    assert_non_null(strstr(why.text, "was moved"));
    dw_storage_close(first);
    dw_storage_close(second);
    second = open_storage();
    keep(second, 1, 0, names[1]);
    assert_int_equal(counters_of(second).snapshot, saved);
    unlink(path);
    assert_int_equal(dw_storage_save(second, 0, &made, &why), DW_ERR_IO);
    dw_storage_close(second);
    unlink(moved);
    unlink(index_path);
}

TEST(an_index_is_not_written_through_a_link)
{
    char temporary[160], letter[160];
    struct stat found;
    copy_name names[KEYS];
    snprintf(temporary, sizeof temporary, "%s.tmp", index_path);
    snprintf(letter, sizeof letter, "%s/letter", folder);
    close(open(letter, O_CREAT | O_RDWR, 0600));
    assert_int_equal(symlink("letter", temporary), 0);
    dw_storage *storage = open_storage();
    save_all(storage, 0, 0, 0, names);
    dw_storage_close(storage);
    assert_true(!stat(letter, &found) && found.st_size == 0);
    assert_true(!lstat(index_path, &found) && S_ISREG(found.st_mode));
    unlink(letter);
    remove_files();
}

/* The thread is cancelled before its calls, and ends after them. */
static void *keep_and_save(void *storage)
{
    copy_name names[KEYS];
    pthread_cancel(pthread_self());
    for (uint64_t k = 0; k < KEYS; k++)
        if (dw_storage_keep(storage, "any bytes", 9 - k % 2, names[k], NULL)) return storage;
    dw_storage_save(storage, 0, &(uint64_t){0}, NULL);
    return storage;
}

TEST(a_thread_that_is_cancelled_leaves_no_lock)
{
    pthread_t thread;
    void *result;
    copy_name names[KEYS];
    dw_storage *storage = open_storage();
    assert_int_equal(pthread_create(&thread, NULL, keep_and_save, storage), 0);
    pthread_join(thread, &result);
    assert_ptr_equal(result, storage);
    save_all(storage, 0, 0, 0, names);
    dw_storage_close(storage);
    remove_files();
}

int main(void)
{
    if (test_folder(folder, "snapshots")) return 1;
    snprintf(path, sizeof path, "%s/prev", folder);
    snprintf(index_path, sizeof index_path, "%s/prev.index", folder);
    int failed = test_run(NULL, NULL);
    rmdir(folder);
    return failed;
}
