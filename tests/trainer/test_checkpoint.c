/* SPDX-License-Identifier: Apache-2.0
 * test_checkpoint.c - a saved checkpoint can be loaded, a damaged one is refused, and a save that
 * fails keeps the old checkpoint. */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <inttypes.h>
#include <jansson.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "checkpoint.h"
#include "support/folder.h"
#include "support/test.h"

enum { PARTS = 4 };
static const dw_model_shape shape = {.layers = 2, .channels = 16, .heads = 2, .context = 8};
static dw_part parts[PARTS];
static char directory[TEST_FOLDER_BYTES];

static int set_up(void **state)
{
    (void)state;
    assert_int_equal(test_folder(directory, "checkpoint"), 0);
    for (uint32_t i = 0; i < PARTS; i++) {
        assert_int_equal(dw_part_create(&parts[i], &shape, i), DW_OK);
        dw_part_initialize(&parts[i], 17);
        for (size_t k = 0; k < parts[i].n; k++) {
            parts[i].mean[k] = (float)k;
            parts[i].square[k] = -(float)k;
        }
    }
    return 0;
}

static int count_files(bool remove)
{
    int n = 0;
    DIR *entries = opendir(directory);
    for (struct dirent *entry; (entry = readdir(entries));) {
        char path[400];
        snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
        if (entry->d_name[0] == '.') continue;
        n++;
        if (remove) unlink(path);
    }
    closedir(entries);
    return n;
}

static int tear_down(void **state)
{
    (void)state;
    count_files(true);
    rmdir(directory);
    for (int i = 0; i < PARTS; i++) dw_part_destroy(&parts[i]);
    return 0;
}

static dw_status save(uint32_t step, dw_why *why)
{
    uint64_t digests[PARTS];
    dw_checkpoint_place place = {.directory = directory, .shape = shape, .step = step};
    dw_checkpoint_states none = {.replicas = 0};
    dw_status status = DW_OK;
    for (int i = 0; i < PARTS && status == DW_OK; i++)
        status = dw_checkpoint_write(&place, &parts[i], &digests[i], why);
    if (status == DW_OK) status = dw_checkpoint_commit(&place, digests, &none, NULL, why);
    for (int i = 0; i < PARTS; i++) dw_checkpoint_tidy(directory, &parts[i]);
    return status;
}

/* Loads all parts and returns the status. On success it compares them with those in memory. */
static dw_status load(uint32_t expected_step, dw_why *why)
{
    dw_checkpoint checkpoint;
    dw_status status = dw_checkpoint_open(&checkpoint, directory, why);
    if (status < 0) return status;
    assert_int_equal(checkpoint.step, expected_step);
    assert_memory_equal(&checkpoint.shape, &shape, sizeof shape);
    for (uint32_t i = 0; i < PARTS && status == DW_OK; i++) {
        dw_part part;
        assert_int_equal(dw_part_create(&part, &shape, i), DW_OK);
        status = dw_checkpoint_read(&checkpoint, &part, true, why);
        size_t bytes = part.n * sizeof(float);
        if (status == DW_OK) {
            assert_memory_equal(part.params, parts[i].params, bytes);
            assert_memory_equal(part.mean, parts[i].mean, bytes);
            assert_memory_equal(part.square, parts[i].square, bytes);
        } else {
            for (size_t k = 0; k < part.n; k++)
                assert_true(part.params[k] == 0 && part.mean[k] == 0);
        }
        dw_part_destroy(&part);
    }
    dw_checkpoint_close(&checkpoint);
    return status;
}

TEST_WITH(gives_back_what_was_saved, set_up, tear_down)
{
    dw_why why;
    assert_int_equal(save(12, &why), DW_OK);
    assert_int_equal(load(12, &why), DW_OK);
    assert_int_equal(count_files(false), PARTS + 1);
    /* Loading without the optimizer leaves its averages unchanged. */
    dw_checkpoint checkpoint;
    assert_int_equal(dw_checkpoint_open(&checkpoint, directory, &why), DW_OK);
    parts[1].mean[3] = 99;
    assert_int_equal(dw_checkpoint_read(&checkpoint, &parts[1], false, &why), DW_OK);
    assert_true(parts[1].mean[3] == 99);
    dw_checkpoint_close(&checkpoint);
}

TEST_WITH(a_new_checkpoint_replaces_the_old, set_up, tear_down)
{
    dw_why why;
    assert_int_equal(save(1, &why), DW_OK);
    for (int i = 0; i < PARTS; i++) parts[i].params[0] += 1;
    assert_int_equal(save(2, &why), DW_OK);
    assert_int_equal(load(2, &why), DW_OK);
    assert_int_equal(count_files(false), PARTS + 1); /* nothing of the old one is left */
}

TEST_WITH(a_save_without_commit_changes_nothing, set_up, tear_down)
{
    dw_why why;
    uint64_t digest;
    assert_int_equal(save(1, &why), DW_OK);
    parts[2].params[5] += 1;
    dw_checkpoint_place place = {.directory = directory, .shape = shape, .step = 2};
    assert_int_equal(dw_checkpoint_write(&place, &parts[2], &digest, &why), DW_OK);
    parts[2].params[5] -= 1;
    assert_int_equal(load(1, &why), DW_OK);
    dw_checkpoint_tidy(directory, &parts[2]);
    assert_int_equal(load(1, &why), DW_OK);
    assert_int_equal(count_files(false), PARTS + 1);
}

/* A limit on the size of files has the same effect as a full disk. */
TEST_WITH(a_full_disk_keeps_the_old_checkpoint, set_up, tear_down)
{
    dw_why why;
    struct rlimit old, little;
    assert_int_equal(save(1, &why), DW_OK);
    float kept[PARTS];
    for (int i = 0; i < PARTS; i++) {
        kept[i] = parts[i].params[0];
        parts[i].params[0] = 7;
    }
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    little = old;
    /* These limits end the first part, within its header or within the floats. The manifest (about
     * 400 bytes) is too short to be affected. */
    static const rlim_t limits[] = {10, 64, 5000, 30000, 40000};
    for (size_t k = 0; k < sizeof limits / sizeof *limits; k++) {
        little.rlim_cur = limits[k];
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
        dw_status status = save(2, &why);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
        assert_int_equal(status, DW_ERR_IO);
        assert_non_null(strstr(why.text, "File too large"));
        assert_int_equal(count_files(false), PARTS + 1);
    }
    for (int i = 0; i < PARTS; i++) parts[i].params[0] = kept[i];
    assert_int_equal(load(1, &why), DW_OK);
}

static void flip(const char *path, long at, int bit)
{
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    fseek(file, at, SEEK_SET);
    int byte = fgetc(file);
    fseek(file, at, SEEK_SET);
    fputc(byte ^ bit, file);
    fclose(file);
}

static char *part_file(void)
{
    static char path[400];
    dw_checkpoint checkpoint;
    assert_int_equal(dw_checkpoint_open(&checkpoint, directory, NULL), DW_OK);
    snprintf(path, sizeof path, "%s/block-00-%016llx.part", directory,
             (unsigned long long)checkpoint.digests[1]);
    dw_checkpoint_close(&checkpoint);
    return path;
}

TEST_WITH(a_flipped_bit_is_detected, set_up, tear_down)
{
    dw_why why;
    assert_int_equal(save(3, &why), DW_OK);
    const char *path = part_file();
    struct stat file;
    assert_int_equal(stat(path, &file), 0);
    for (long at = 0; at < file.st_size; at += at < 64 ? 1 : 997) {
        flip(path, at, 0x10);
        assert_true(load(3, &why) < 0);
        assert_non_null(strstr(why.text, path));
        flip(path, at, 0x10);
    }
    assert_int_equal(load(3, &why), DW_OK);
    char manifest[100];
    snprintf(manifest, sizeof manifest, "%s/manifest.json", directory);
    assert_int_equal(stat(manifest, &file), 0);
    /* Bit 0x10 changes blanks to '0'; bit 0x01 changes a step or a digest. */
    for (long at = 0; at + 1 < file.st_size; at++)
        for (int bit = 0x01; bit <= 0x10; bit <<= 4) {
            flip(manifest, at, bit);
            dw_checkpoint checkpoint;
            if (dw_checkpoint_open(&checkpoint, directory, &why) == DW_OK)
                fail_msg("the change of byte %ld was not detected", at);
            flip(manifest, at, bit);
        }
}

TEST_WITH(a_truncated_file_is_detected, set_up, tear_down)
{
    dw_why why;
    assert_int_equal(save(3, &why), DW_OK);
    const char *path = part_file();
    struct stat file;
    assert_int_equal(stat(path, &file), 0);
    assert_int_equal(truncate(path, file.st_size + 1), 0);
    assert_int_equal(load(3, &why), DW_ERR_CORRUPT);
    static const long shorter[] = {1, 4, 4096};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(truncate(path, file.st_size - shorter[i]), 0);
        assert_int_equal(load(3, &why), DW_ERR_CORRUPT);
    }
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(load(3, &why), DW_ERR_CORRUPT);
    unlink(path);
    assert_int_equal(load(3, &why), DW_ERR_IO);
    assert_non_null(strstr(why.text, "No such file"));
}

TEST_WITH(a_missing_checkpoint_is_named, set_up, tear_down)
{
    dw_checkpoint checkpoint;
    dw_why why;
    assert_int_equal(dw_checkpoint_open(&checkpoint, directory, &why), DW_ERR_IO);
    assert_non_null(strstr(why.text, "no checkpoint in"));
    assert_int_equal(dw_checkpoint_open(&checkpoint, "/no/such/place", &why), DW_ERR_IO);
    assert_int_equal(dw_checkpoint_prepare("/no/such/place", &shape, &why), DW_ERR_IO);
    assert_non_null(strstr(why.text, "/no/such/place"));
    uint64_t digest;
    dw_checkpoint_place place = {.directory = "/no/such/place", .shape = shape, .step = 1};
    assert_int_equal(dw_checkpoint_write(&place, &parts[0], &digest, &why), DW_ERR_IO);
}

TEST_WITH(does_not_replace_another_model, set_up, tear_down)
{
    dw_why why;
    dw_model_shape other = {.layers = 3, .channels = 16, .heads = 2, .context = 8};
    assert_int_equal(dw_checkpoint_prepare(directory, &other, &why), DW_OK);
    assert_int_equal(save(3, &why), DW_OK);
    assert_int_equal(dw_checkpoint_prepare(directory, &shape, &why), DW_OK);
    assert_int_equal(dw_checkpoint_prepare(directory, &other, &why), DW_ERR_MISMATCH);
    assert_non_null(strstr(why.text, "2 layers"));
}

/* Makes the manifest one of a format that this program does not know. */
static void raise_format(void)
{
    char path[300], digest[20];
    snprintf(path, sizeof path, "%s/manifest.json", directory);
    json_t *manifest = json_load_file(path, 0, NULL);
    json_object_del(manifest, "digest");
    json_object_set_new(manifest, "format", json_integer(99));
    char *text = json_dumps(manifest, JSON_COMPACT | JSON_SORT_KEYS);
    assert_non_null(text);
    snprintf(digest, sizeof digest, "%016" PRIx64, (uint64_t)XXH3_64bits(text, strlen(text)));
    json_object_set_new(manifest, "digest", json_string(digest));
    assert_int_equal(json_dump_file(manifest, path, 0), 0);
    json_decref(manifest);
    free(text);
}

TEST_WITH(does_not_replace_what_a_newer_program_saved, set_up, tear_down)
{
    dw_why why;
    assert_int_equal(save(3, &why), DW_OK);
    raise_format();
    assert_int_equal(dw_checkpoint_prepare(directory, &shape, &why), DW_ERR_VERSION);
    assert_non_null(strstr(why.text, "format 99"));
    assert_int_equal(save(3, &why), DW_OK); /* in its place, for the tests that follow */
}

static dw_status write_state(const dw_checkpoint_place *place, const void *bytes, size_t len,
                             uint64_t *digest, dw_why *why)
{
    dw_file file;
    dw_status status = dw_checkpoint_begin_state(place, &file, why);
    if (status < 0) return status;
    dw_file_append(&file, bytes, len);
    return dw_checkpoint_finish_state(place, &file, digest, why);
}

static dw_status load_state(uint64_t digest, uint32_t rank, uint8_t **bytes, size_t *len,
                            dw_why *why)
{
    uint64_t digests[4] = {digest, digest, digest, digest};
    dw_checkpoint checkpoint = {.states = {.stages = 2, .replicas = 2, .digests = digests}};
    strcpy(checkpoint.directory, directory);
    return dw_checkpoint_read_state(&checkpoint, rank, bytes, len, why);
}

static void write_whole(const char *path, const uint8_t *bytes, size_t len)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, len, file), len);
    assert_int_equal(fclose(file), 0);
}

TEST_WITH(a_state_comes_back_or_is_refused, set_up, tear_down)
{
    enum { LEN = 70, FILE_LEN = 48 + LEN };
    uint8_t given[LEN], file[FILE_LEN + 1] = {0}, *bytes;
    size_t len;
    uint64_t digest;
    dw_why why;
    char path[400];
    dw_checkpoint_place place = {.directory = directory, .shape = shape, .step = 5, .writer = 3};
    for (int i = 0; i < LEN; i++) given[i] = (uint8_t)(i * 7);
    assert_int_equal(write_state(&place, given, LEN, &digest, &why), DW_OK);
    assert_int_equal(load_state(digest, 3, &bytes, &len, &why), DW_OK);
    assert_int_equal(len, LEN);
    assert_memory_equal(bytes, given, LEN);
    free(bytes);
    assert_int_equal(load_state(digest, 2, &bytes, &len, &why), DW_ERR_IO); /* has no such file */
    snprintf(path, sizeof path, "%s/gradients-3-%016llx.state", directory,
             (unsigned long long)digest);
    FILE *stored = fopen(path, "rb");
    assert_non_null(stored);
    assert_int_equal(fread(file, 1, sizeof file, stored), FILE_LEN);
    fclose(stored);
    for (int i = 0; i < FILE_LEN; i++) {
        file[i] ^= 1;
        write_whole(path, file, FILE_LEN);
        assert_int_equal(load_state(digest, 3, &bytes, &len, &why), DW_ERR_CORRUPT);
        assert_null(bytes);
        assert_non_null(strstr(why.text, "gradients-3-"));
        file[i] ^= 1;
    }
    static const size_t lengths[] = {0, 20, 48, FILE_LEN - 1, FILE_LEN + 1};
    for (int i = 0; i < 5; i++) {
        write_whole(path, file, lengths[i]);
        assert_int_equal(load_state(digest, 3, &bytes, &len, &why), DW_ERR_CORRUPT);
    }
}

/* The manifest names the states, and files that it does not name are removed. */
TEST_WITH(a_manifest_names_the_states, set_up, tear_down)
{
    dw_why why;
    uint64_t digests[PARTS] = {1, 2, 3, 4}, kept[2] = {0}, old;
    dw_checkpoint_states states = {
        .stages = 1, .replicas = 2, .codec = "direct:bits=3", .digests = kept};
    dw_checkpoint_place place = {.directory = directory, .shape = shape, .step = 5, .writer = 1};
    assert_int_equal(write_state(&place, "old", 3, &old, &why), DW_OK);
    assert_int_equal(write_state(&place, "new", 3, &kept[1], &why), DW_OK);
    assert_int_equal(dw_checkpoint_commit(&place, digests, &states, NULL, &why), DW_OK);
    assert_int_equal(count_files(false), 3);
    dw_checkpoint_tidy_state(directory, 1, 2);
    assert_int_equal(count_files(false), 2);
    place.writer = 7; /* a run with more ranks was here */
    assert_int_equal(write_state(&place, "gone", 4, &old, &why), DW_OK);
    dw_checkpoint_tidy_state(directory, 0, 8);
    assert_int_equal(count_files(false), 3);
    dw_checkpoint_tidy_state(directory, 0, 1);
    assert_int_equal(count_files(false), 2);
    dw_checkpoint checkpoint;
    assert_int_equal(dw_checkpoint_open(&checkpoint, directory, &why), DW_OK);
    assert_int_equal(checkpoint.states.stages, 1);
    assert_int_equal(checkpoint.states.replicas, 2);
    assert_string_equal(checkpoint.states.codec, "direct:bits=3");
    assert_memory_equal(checkpoint.states.digests, kept, sizeof kept);
    uint8_t *bytes;
    size_t len;
    assert_int_equal(dw_checkpoint_read_state(&checkpoint, 1, &bytes, &len, &why), DW_OK);
    assert_int_equal(len, 3);
    assert_memory_equal(bytes, "new", 3);
    free(bytes);
    dw_checkpoint_close(&checkpoint);
}

RUN_TESTS(NULL, NULL)
