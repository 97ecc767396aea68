/* SPDX-License-Identifier: Apache-2.0
 * record.c - finds the tensors in a recorded file, and which of them belong to the same sample. */
#include "record.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "records are little-endian; swap what is read here first"
#endif

enum { HEAD = 32, TENSOR_HEAD = 16, VERSION = 1 };

static dw_status say(dw_why *why, dw_status status, const char *path, const char *what)
{
    if (why) snprintf(why->text, sizeof why->text, "%.160s %s", path, what);
    return status;
}

static dw_status map(dw_bench_record *record, const char *path, dw_why *why)
{
    struct stat about;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return say(why, DW_ERR_IO, path, strerror(errno));
    bool failed = fstat(fd, &about);
    if (!failed && about.st_size < HEAD) {
        close(fd);
        return say(why, DW_ERR_FORMAT, path, "is no record: it is too short for the head of one");
    }
    if (!failed) {
        record->bytes = (size_t)about.st_size;
        record->memory = mmap(NULL, record->bytes, PROT_READ, MAP_PRIVATE, fd, 0);
        failed = record->memory == MAP_FAILED;
    }
    int error = errno;
    close(fd);
    return failed ? say(why, DW_ERR_IO, path, strerror(error)) : DW_OK;
}

static dw_status read_head(dw_bench_record *record, const char *path, dw_why *why)
{
    static const char magic[8] = "DW-SENT";
    uint32_t words[6];
    if (memcmp(record->memory, magic, sizeof magic))
        return say(why, DW_ERR_FORMAT, path, "is no record");
    memcpy(words, (const uint8_t *)record->memory + sizeof magic, sizeof words);
    if (words[0] != VERSION)
        return say(why, DW_ERR_VERSION, path, "is a record of another version");
    record->direction = words[1];
    record->rank = words[2];
    record->T = words[3];
    record->C = words[4];
    record->samples = words[5];
    if (!record->T || !record->C)
        return say(why, DW_ERR_FORMAT, path, "is a record of empty tensors");
    /* This limit also keeps sizes in bytes from overflowing. */
    if ((uint64_t)record->T * record->C > (UINT32_MAX >> 2))
        return say(why, DW_ERR_LIMIT, path, "is a record of tensors of more than 4 GiB");
    return DW_OK;
}

static int by_sample(const void *a, const void *b)
{
    const dw_bench_visit *x = *(dw_bench_visit *const *)a, *y = *(dw_bench_visit *const *)b;
    if (x->sample != y->sample) return x->sample < y->sample ? -1 : 1;
    return x < y ? -1 : x > y; /* visits of one sample are in the order of the record */
}

static dw_status find_places(dw_bench_record *record)
{
    dw_bench_visit **sorted = malloc(record->tensors * sizeof *sorted);
    if (!sorted) return DW_ERR_NO_MEMORY;
    for (size_t i = 0; i < record->tensors; i++) sorted[i] = &record->visits[i];
    qsort(sorted, record->tensors, sizeof *sorted, by_sample);
    for (size_t i = 0; i < record->tensors; i++) {
        sorted[i]->first = i == 0 || sorted[i]->sample != sorted[i - 1]->sample;
        record->places += sorted[i]->first != 0;
        sorted[i]->place = (uint32_t)(record->places - 1);
    }
    free(sorted);
    return DW_OK;
}

static dw_status find_tensors(dw_bench_record *record, const char *path, dw_why *why)
{
    size_t each = TENSOR_HEAD + (size_t)record->T * record->C * sizeof(float),
           body = record->bytes - HEAD;
    record->tensors = body / each;
    record->cut = body % each != 0;
    if (!record->tensors) return say(why, DW_ERR_FORMAT, path, "holds no whole tensor");
    record->visits = calloc(record->tensors, sizeof *record->visits);
    if (!record->visits)
        return say(why, DW_ERR_NO_MEMORY, path, "has too many tensors for this memory");
    for (size_t i = 0; i < record->tensors; i++) {
        const uint8_t *tensor = (const uint8_t *)record->memory + HEAD + i * each;
        dw_bench_visit *visit = &record->visits[i];
        memcpy(&visit->step, tensor, sizeof visit->step);
        memcpy(&visit->sample, tensor + 8, sizeof visit->sample);
        /* All sizes before it are multiples of 4. */
        visit->x = (const void *)(tensor + TENSOR_HEAD);
    }
    return find_places(record) == DW_OK
               ? DW_OK
               : say(why, DW_ERR_NO_MEMORY, path, "has too many tensors for this memory");
}

dw_status dw_bench_record_open(dw_bench_record *record, const char *path, dw_why *why)
{
    memset(record, 0, sizeof *record);
    record->memory = MAP_FAILED;
    dw_status status = map(record, path, why);
    if (status == DW_OK) status = read_head(record, path, why);
    if (status == DW_OK) status = find_tensors(record, path, why);
    if (status < 0) dw_bench_record_close(record);
    return status;
}

void dw_bench_record_close(dw_bench_record *record)
{
    if (record->memory != MAP_FAILED) munmap(record->memory, record->bytes);
    record->memory = MAP_FAILED;
    free(record->visits);
    record->visits = NULL;
}
