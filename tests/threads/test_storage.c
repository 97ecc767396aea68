/* SPDX-License-Identifier: Apache-2.0
 * test_storage.c - a file for prev: who may open it, and encoders and decoders that read from it
 * what they wrote, also when the disk is full, the file is damaged, or a process was killed. */
#include "deltawire/storage.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/folder.h"
#include "support/tool.h"

enum { KEYS = 40, VALUES = 4096, ROUNDS = 6 };

static char folder[TEST_FOLDER_BYTES];

static dw_storage *open_storage(const char *name, const char *options)
{
    char text[256];
    dw_storage *storage;
    dw_why why;
    snprintf(text, sizeof text, "file:%s/%s%s", folder, name, options);
    if (dw_storage_open(&storage, text, &why)) fail_msg("%s: %s", text, why.text);
    return storage;
}

static dw_storage_counters counters_of(dw_storage *storage)
{
    dw_storage_counters counters = {.struct_size = sizeof counters};
    assert_int_equal(dw_storage_count(storage, &counters), DW_OK);
    return counters;
}

static void expect_refused(const char *text, dw_status status, const char *says)
{
    dw_storage *storage = (dw_storage *)&storage;
    dw_why why;
    assert_int_equal(dw_storage_open(&storage, text, &why), status);
    assert_null(storage);
    if (!strstr(why.text, says)) fail_msg("%s: %s", text, why.text);
    assert_int_equal(dw_storage_open(&storage, text, NULL), status);
}

TEST(texts_that_are_wrong_are_refused)
{
    expect_refused("/path", DW_ERR_CONFIG, "begin with file:");
    expect_refused("file:", DW_ERR_CONFIG, "empty");
    expect_refused("file:/x,cash=1", DW_ERR_CONFIG, "\"cash=1\"");
    expect_refused("file:/x,cache=", DW_ERR_CONFIG, "\"cache=\"");
    char text[5000];
    memset(text, 'x', sizeof text);
    memcpy(text, "file:/", 6);
    text[sizeof text - 1] = 0;
    expect_refused(text, DW_ERR_CONFIG, "empty or too long");
    memcpy(text + 10, ",", 1); /* a short path, and an option without end */
    expect_refused(text, DW_ERR_CONFIG, "is not cache=BYTES");
    expect_refused("file:/x,cache=1GB", DW_ERR_CONFIG, "KiB");
    expect_refused("file:/x,cache=99999999999999999999", DW_ERR_CONFIG, "cache");
    expect_refused("file:/x,cache=99999999TiB", DW_ERR_CONFIG, "cache");
    expect_refused("file:/x,ahead=0", DW_ERR_CONFIG, "ahead");
    expect_refused("file:/x,threads=65", DW_ERR_CONFIG, "threads");
    expect_refused("file:/x,", DW_ERR_CONFIG, "\"\"");
    expect_refused("file:/no/such/folder", DW_ERR_IO, "No such file");
    expect_refused("file:/dev/null", DW_ERR_IO, "regular file");
    expect_refused(NULL, DW_ERR_ARGUMENT, "NULL");
    assert_int_equal(dw_storage_open(NULL, "file:/x", NULL), DW_ERR_ARGUMENT);
    assert_null(dw_storage_backing(NULL));
    dw_storage_close(NULL);
}

TEST(every_pointer_to_a_storage_may_be_null)
{
    dw_storage_counters counters = {.struct_size = sizeof counters};
    uint8_t name[DW_STORAGE_NAME_BYTES] = {0}, copy[1] = {0};
    dw_storage *storage = open_storage("null", "");
    uint64_t made;
    REFUSED(dw_storage_open(NULL, "file:/tmp/x", NULL));
    REFUSED(dw_storage_open(&(dw_storage *){NULL}, NULL, NULL));
    REFUSED(dw_storage_count(NULL, &counters));
    REFUSED(dw_storage_count(storage, NULL));
    REFUSED(dw_storage_keep(NULL, copy, 1, name, NULL));
    REFUSED(dw_storage_keep(storage, NULL, 1, name, NULL));
    REFUSED(dw_storage_keep(storage, copy, 0, name, NULL));
    REFUSED(dw_storage_keep(storage, copy, 1, NULL, NULL));
    REFUSED(dw_storage_save(NULL, 0, &made, NULL));
    REFUSED(dw_storage_fetch(NULL, 1, name, copy, 1, NULL));
    REFUSED(dw_storage_fetch(storage, 1, NULL, copy, 1, NULL));
    REFUSED(dw_storage_fetch(storage, 1, name, NULL, 1, NULL));
    assert_null(dw_storage_backing(NULL));
    dw_storage_close(NULL);
    dw_storage_close(storage);
}

TEST(a_file_of_something_else_is_left_as_it_is)
{
    char path[128], text[160], back[8] = "";
    snprintf(path, sizeof path, "%s/letter", folder);
    snprintf(text, sizeof text, "file:%s", path);
    int fd = open(path, O_CREAT | O_RDWR, 0600);
    assert_int_equal(write(fd, "Dear A", 7), 7);
    expect_refused(text, DW_ERR_IO, "left as it is");
    assert_int_equal(pread(fd, back, 8, 0), 7);
    assert_string_equal(back, "Dear A");
    close(fd);
    unlink(path);
}

TEST(a_file_is_opened_once_and_removed_when_it_is_closed)
{
    char path[128], text[160];
    struct stat found;
    snprintf(path, sizeof path, "%s/once", folder);
    snprintf(text, sizeof text, "file:%s", path);
    dw_storage *storage = open_storage("once", "");
    assert_int_equal(stat(path, &found), 0);
    assert_int_equal(found.st_mode & 0777, 0600);
    expect_refused(text, DW_ERR_IO, "in use");
    dw_storage_close(storage);
    assert_int_not_equal(stat(path, &found), 0);
}

/* The storage that is closed when another one has opened its file, but not locked it yet. */
static dw_storage *closes_at_lock;

/* In place of the one of the C library. */
int flock(int fd, int operation)
{
    dw_storage *storage = closes_at_lock;
    closes_at_lock = NULL;
    dw_storage_close(storage);
    return (int)syscall(SYS_flock, fd, operation);
}

TEST(a_file_that_is_removed_before_the_lock_is_opened_again)
{
    char text[160];
    snprintf(text, sizeof text, "file:%s/gone", folder);
    closes_at_lock = open_storage("gone", "");
    dw_storage *storage = open_storage("gone", "");
    assert_null(closes_at_lock);
    expect_refused(text, DW_ERR_IO, "in use"); /* and not a new file of the same name */
    dw_storage_close(storage);
}

/* ---- Encoders and decoders ------------------------------------------------------------------- */

/* Two pairs that are given the same tensors, one of them with a storage. */
typedef struct rig {
    test_pair plain, stored;
    test_random random;
    float x[VALUES], y[VALUES];
} rig;

static void open_rig(rig *r, dw_storage *storage, uint64_t seed)
{
    memset(r, 0, sizeof *r);
    r->random.state = seed;
    const char *config = "delta:bits=4,prev=f32,incarnation=5";
    test_pair_open(&r->plain, config, 1, 1, VALUES, DW_F32);
    test_pair_open(&r->stored, config, 1, 1, VALUES, DW_F32);
    r->stored.host.backing = dw_storage_backing(storage);
    test_pair_renew_encoder(&r->stored);
    test_pair_renew_decoder(&r->stored);
}

static void close_rig(rig *r)
{
    test_pair_close(&r->plain);
    test_pair_close(&r->stored);
}

/* Draws a tensor and encodes it without a storage. */
static dw_tensor draw(rig *r, dw_key key)
{
    dw_tensor x = dw_tensor_3d(r->x, DW_F32, 1, 1, VALUES);
    test_fill(&r->random, r->x, DW_F32, VALUES, 1.0f);
    test_pair_encode(&r->plain, &key, &x);
    return x;
}

static dw_status encode(rig *r, dw_key key, const dw_tensor *x)
{
    return dw_encode(r->stored.encoder, &key, x, NULL, r->stored.frame, r->stored.cap,
                     &r->stored.len);
}

/* The frame with a storage is the one without, and is decoded. */
static dw_status decode(rig *r)
{
    dw_tensor y = dw_tensor_3d(r->y, DW_F32, 1, 1, VALUES);
    assert_int_equal(r->stored.len, r->plain.len);
    assert_memory_equal(r->stored.frame, r->plain.frame, r->plain.len);
    return test_pair_decode(&r->stored, &y);
}

static void finish(rig *r)
{
    test_pair_take_reply(&r->stored);
    assert_int_equal(dw_encoder_take_reply(r->plain.encoder, r->stored.reply, r->stored.reply_len),
                     DW_OK);
}

static void visit(rig *r, uint64_t k)
{
    dw_key key = {k, 0}, next = {(k + 1) % KEYS, 0};
    dw_tensor x = draw(r, key);
    assert_int_equal(dw_encoder_prefetch(r->stored.encoder, &next, 1), DW_OK);
    assert_int_equal(dw_decoder_prefetch(r->stored.decoder, &next, 1), DW_OK);
    if (encode(r, key, &x)) fail_msg("%s", dw_encoder_why(r->stored.encoder));
    if (decode(r)) fail_msg("%s", dw_decoder_why(r->stored.decoder));
    finish(r);
}

TEST(frames_are_the_same_with_a_storage)
{
    static const char *const options[] = {",cache=0,ahead=1,threads=1", ",cache=64KiB,ahead=40KiB",
                                          ",cache=0", ",cache=1GiB"};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        dw_storage *storage = open_storage("same", options[i]);
        rig r;
        open_rig(&r, storage, test_seed());
        for (uint64_t v = 0; v < ROUNDS * KEYS; v++) visit(&r, v % KEYS);
        dw_storage_counters c = counters_of(storage);
        uint64_t visits = (uint64_t)2 * (ROUNDS - 1) * KEYS;
        if (i == 3)
            assert_true(c.reads == 0 && c.writes == 0 && c.records == 0);
        else
            assert_true(c.reads >= visits * 9 / 10 && c.writes >= visits * 9 / 10);
        if (i == 2) assert_true(c.reads_ahead > 0);
        /* Slots are used again: two copies of each key at two ends, and what is on its way. */
        assert_true(c.file_bytes <= (uint64_t)5 * KEYS * VALUES * sizeof(float));
        assert_int_equal(c.failed_reads + c.failed_writes, 0);
        close_rig(&r);
        c = counters_of(storage);
        assert_true(c.records == 0 && c.record_bytes == 0);
        dw_storage_close(storage);
    }
}

typedef struct worker {
    dw_storage *storage;
    uint64_t seed;
} worker;

static void *work(void *argument)
{
    const worker *w = argument;
    rig r;
    open_rig(&r, w->storage, w->seed);
    for (uint64_t v = 0; v < 2 * KEYS; v++) visit(&r, v % KEYS);
    close_rig(&r);
    return NULL;
}

TEST(several_threads_use_one_storage)
{
    dw_storage *storage = open_storage("shared", ",cache=16KiB,ahead=64KiB,threads=3");
    pthread_t threads[4];
    worker workers[4];
    for (uint64_t i = 0; i < 4; i++) {
        workers[i] = (worker){storage, test_seed() + i};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    assert_int_equal(counters_of(storage).records, 0);
    dw_storage_close(storage);
}

/* The file may not grow. What could not be written is in memory, and calls say what to do until
 * there is room. */
TEST(a_full_disk_loses_nothing)
{
    struct rlimit before, small;
    dw_storage *storage = open_storage("full", ",cache=32KiB,ahead=64KiB");
    rig r;
    int refused = 0;
    open_rig(&r, storage, test_seed());
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    small = before;
    small.rlim_cur = 20 * VALUES * sizeof(float);
    setrlimit(RLIMIT_FSIZE, &small);
    for (uint64_t v = 0; v < 2 * KEYS; v++) {
        dw_key key = {v % KEYS, 0};
        dw_tensor x = draw(&r, key);
        for (int half = 0; half < 2; half++) {
            dw_status status = half ? decode(&r) : encode(&r, key, &x);
            if (status == DW_ERR_IO) {
                const char *why =
                    half ? dw_decoder_why(r.stored.decoder) : dw_encoder_why(r.stored.encoder);
                if (!strstr(why, "File too large. Nothing is lost: make room")) fail_msg("%s", why);
                refused++;
                setrlimit(RLIMIT_FSIZE, &before);
                status = half ? decode(&r) : encode(&r, key, &x);
            }
            assert_int_equal(status, DW_OK);
        }
        finish(&r);
    }
    setrlimit(RLIMIT_FSIZE, &before);
    assert_true(refused > 0);
    assert_true(counters_of(storage).failed_writes > 0);
    close_rig(&r);
    dw_storage_close(storage);
}

static void damage_file(const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, O_RDWR);
    struct stat found;
    assert_int_equal(fstat(fd, &found), 0);
    for (off_t at = 4096; at < found.st_size; at += 4096) {
        uint8_t byte;
        assert_int_equal(pread(fd, &byte, 1, at + 100), 1);
        byte ^= 0x10;
        assert_int_equal(pwrite(fd, &byte, 1, at + 100), 1);
    }
    close(fd);
}

/* Both ends lose every copy that is not in memory; nothing wrong is decoded, and each key is sent
 * in full at its next visit. */
TEST(a_damaged_file_costs_key_entries_only)
{
    dw_storage *storage = open_storage("damaged", ",cache=0,ahead=1");
    rig r;
    uint64_t refused = 0;
    open_rig(&r, storage, test_seed());
    for (uint64_t v = 0; v < 2 * KEYS; v++) visit(&r, v % KEYS);
    damage_file("damaged");
    for (uint64_t k = 0; k < KEYS; k++) {
        dw_key key = {k, 0};
        dw_tensor x = draw(&r, key), y = dw_tensor_3d(r.y, DW_F32, 1, 1, VALUES);
        assert_int_equal(encode(&r, key, &x), DW_OK);
        dw_status status = test_pair_decode(&r.stored, &y);
        test_pair_take_reply(&r.stored);
        if (status == DW_ERR_BASE) { /* the encoder's copy was not written yet, so it is not lost */
            refused++;
            assert_int_equal(encode(&r, key, &x), DW_OK);
            status = test_pair_decode(&r.stored, &y);
            test_pair_take_reply(&r.stored);
        }
        assert_int_equal(status, DW_OK);
        test_pair_in_step(&r.stored, key);
    }
    dw_counters c = test_encoder_counters(r.stored.encoder);
    assert_true(c.lost_copies + refused >= KEYS - 2 && c.lost_copies + refused <= KEYS);
    assert_int_equal(c.key_entries, KEYS + c.lost_copies + refused);
    assert_true(counters_of(storage).failed_reads >= c.lost_copies);
    close_rig(&r);
    dw_storage_close(storage);
}

TEST(the_file_of_a_killed_process_can_be_opened)
{
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (!child) {
        dw_storage *storage = open_storage("killed", ",cache=0");
        rig r;
        open_rig(&r, storage, 1);
        for (uint64_t v = 0;; v++) {
            visit(&r, v % KEYS);
            if (v == KEYS && write(ready[1], "x", 1) != 1) _exit(1);
        }
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    char text[160];
    snprintf(text, sizeof text, "file:%s/killed", folder);
    expect_refused(text, DW_ERR_IO, "in use");
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    dw_storage *storage = open_storage("killed", "");
    rig r;
    open_rig(&r, storage, 2);
    visit(&r, 0);
    close_rig(&r);
    dw_storage_close(storage);
    close(ready[0]);
    close(ready[1]);
}

/* The child has no threads of the storage, waits for none, and keeps nobody from its file. */
TEST(a_forked_child_can_close_it)
{
    int status, wait[2], begun[2];
    char byte, path[128];
    uint8_t name[DW_STORAGE_NAME_BYTES];
    dw_storage *storage = open_storage("forked", "");
    assert_int_equal(dw_storage_keep(storage, "a copy", 6, name, NULL), DW_OK);
    assert_int_equal(dw_storage_save(storage, 0, &(uint64_t){0}, NULL), DW_OK);
    usleep(20000); /* so that threads wait for work */
    assert_true(pipe(wait) == 0 && pipe(begun) == 0);
    pid_t child = fork();
    if (!child) {
        alarm(10);
        close(wait[1]);
        if (write(begun[1], "", 1) != 1) _exit(1);
        while (read(wait[0], &byte, 1) < 0) {
        }
        dw_storage_close(storage);
        _exit(0);
    }
    assert_int_equal(read(begun[0], &byte, 1), 1);
    dw_storage_close(storage);
    dw_storage_close(open_storage("forked", ""));
    snprintf(path, sizeof path, "%s/forked.index", folder);
    unlink(path);
    dw_storage_close(open_storage("forked", ""));
    close(wait[0]);
    close(wait[1]);
    close(begun[0]);
    close(begun[1]);
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
}

int main(void)
{
    if (test_folder(folder, "storage")) return 1;
    int failed = test_run(NULL, NULL);
    rmdir(folder);
    return failed;
}
