/* SPDX-License-Identifier: Apache-2.0
 * replay.c - runs a fuzz target without a fuzzer, on the files of a corpus or on random inputs.
 *
 * replay PATH...
 *     runs every file, and every file of every folder; fails if a goal of the target (reach.h) is
 *     not reached, unless there is only one file
 * replay --random SEED [--count N | --seconds S]
 *     runs inputs of up to 512 random bytes; input number i has the seed SEED + i
 * replay --write SEED N FOLDER
 *     writes N such inputs as files, as a first corpus for a fuzzer */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fuzz.h"
#include "reach.h"

static volatile unsigned long long current_seed;
static const char *volatile current_path;

/* Prints which input it was when the process ends, by REQUIRE, a sanitizer or a fault. */
static void on_death(int number)
{
    char text[512];
    int len = current_path
                  ? snprintf(text, sizeof text, "input: %s\n", current_path)
                  : snprintf(text, sizeof text, "input: --random %llu --count 1\n", current_seed);
    if (len > 0 && write(STDERR_FILENO, text, (size_t)len) < 0) _exit(2);
    signal(number, SIG_DFL);
    raise(number);
}

static int replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    static uint8_t data[1 << 20];
    if (!file) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return 1;
    }
    size_t size = fread(data, 1, sizeof data, file);
    fclose(file);
    current_path = path;
    uint8_t *exact = malloc(size ? size : 1); /* of the exact size, for sanitizers */
    REQUIRE(exact != NULL);
    memcpy(exact, data, size);
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
    return 0;
}

static int replay_path(const char *path, int *files)
{
    struct stat status;
    if (stat(path, &status) != 0) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return 1;
    }
    if (!S_ISDIR(status.st_mode)) {
        (*files)++;
        return replay_file(path);
    }
    DIR *folder = opendir(path);
    if (!folder) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return 1;
    }
    int failed = 0;
    for (struct dirent *entry = readdir(folder); entry && !failed; entry = readdir(folder)) {
        if (entry->d_name[0] == '.') continue;
        char below[4096];
        snprintf(below, sizeof below, "%s/%s", path, entry->d_name);
        failed = replay_path(below, files);
    }
    closedir(folder);
    return failed;
}

/* Returns an input, which the caller frees. */
static uint8_t *make_random(unsigned long long seed, size_t *size)
{
    uint64_t state = seed;
    *size = fuzz_random(&state) % 513;
    uint8_t *data = malloc(*size ? *size : 1);
    REQUIRE(data != NULL);
    for (size_t i = 0; i < *size; i++) data[i] = (uint8_t)fuzz_random(&state);
    return data;
}

static void try_random(unsigned long long seed)
{
    size_t size;
    current_seed = seed;
    uint8_t *data = make_random(seed, &size);
    LLVMFuzzerTestOneInput(data, size);
    free(data);
}

static int write_many(char **argv)
{
    unsigned long long seed = strtoull(argv[2], NULL, 10), count = strtoull(argv[3], NULL, 10);
    for (unsigned long long i = 0; i < count; i++) {
        char path[4096];
        size_t size;
        uint8_t *data = make_random(seed + i, &size);
        snprintf(path, sizeof path, "%s/random_%llu", argv[4], seed + i);
        FILE *file = fopen(path, "wb");
        bool written = file && fwrite(data, 1, size, file) == size;
        free(data);
        if ((file && fclose(file) != 0) || !written) {
            fprintf(stderr, "%s: %s\n", path, strerror(errno));
            return 1;
        }
    }
    return 0;
}

static int try_many(int argc, char **argv)
{
    unsigned long long seed = strtoull(argv[2], NULL, 10), count = 1000, tried = 0;
    time_t end = 0;
    if (argc == 5 && strcmp(argv[3], "--count") == 0) count = strtoull(argv[4], NULL, 10);
    if (argc == 5 && strcmp(argv[3], "--seconds") == 0)
        end = time(NULL) + (time_t)strtoull(argv[4], NULL, 10);
    printf("seed %llu\n", seed);
    fflush(stdout);
    for (; end ? time(NULL) < end : tried < count; tried++) try_random(seed + tried);
    printf("%llu random inputs\n", tried);
    return tried > 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    signal(SIGABRT, on_death);
    if (argc >= 3 && strcmp(argv[1], "--random") == 0) return try_many(argc, argv);
    if (argc == 5 && strcmp(argv[1], "--write") == 0) return write_many(argv);
    int files = 0;
    for (int i = 1; i < argc; i++)
        if (replay_path(argv[i], &files) != 0) return 1;
    printf("%d inputs\n", files);
    if (files > 1 && fuzz_tell_missed() > 0) return 1;
    return files > 0 ? 0 : 1; /* an empty corpus tests nothing */
}
