/* SPDX-License-Identifier: Apache-2.0
 * record.c - writes files of sent tensors through a buffer. */
#include "record.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/sentence.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "records are little-endian; swap the floats and the heads here first"
#endif

enum { VERSION = 1, BUFFER_BYTES = 1 << 20 };

static const char magic[8] = "DW-SENT";

typedef struct file_head {
    char magic[8];
    uint32_t version, direction, rank, T, C, samples;
} file_head;

typedef struct tensor_head {
    uint32_t step, zero;
    uint64_t sample;
} tensor_head;

_Static_assert(sizeof(file_head) == 32 && sizeof(tensor_head) == 16, "heads are as record.h says");

struct dw_record {
    FILE *file;
    char path[4200];
    size_t values;             /* of a tensor */
    char buffer[BUFFER_BYTES]; /* ours, for glibc ignores the size of a buffer that it allocates
                                  itself */
};

static dw_status failed(const dw_record *record, dw_why *why)
{
    return dw_say(why, DW_ERR_IO, "cannot write the record %.180s: %s", record->path,
                  strerror(errno));
}

static dw_status write_all(dw_record *record, const void *bytes, size_t n, dw_why *why)
{
    return fwrite(bytes, 1, n, record->file) == n ? DW_OK : failed(record, why);
}

/* The header is written at once, so that a directory that cannot be written is reported before
 * anything is computed. */
static dw_status begin(dw_record *record, const file_head *head, dw_why *why)
{
    record->file = fopen(record->path, "wb");
    if (!record->file) return failed(record, why);
    setvbuf(record->file, record->buffer, _IOFBF, sizeof record->buffer);
    dw_status status = write_all(record, head, sizeof *head, why);
    return status == DW_OK ? dw_record_flush(record, why) : status;
}

dw_status dw_record_create(dw_record **out, const char *directory, dw_direction direction,
                           uint32_t rank, uint32_t T, uint32_t C, uint32_t samples, dw_why *why)
{
    *out = NULL;
    if (strlen(directory) > 4095)
        return dw_say(why, DW_ERR_LIMIT, "the record's directory name is longer than 4095 bytes");
    if (mkdir(directory, 0777) && errno != EEXIST)
        return dw_say(why, DW_ERR_IO, "cannot make the directory %.180s for records: %s", directory,
                      strerror(errno));
    dw_record *record = calloc(1, sizeof *record);
    if (!record) return dw_say(why, DW_ERR_NO_MEMORY, "out of memory for a record");
    snprintf(record->path, sizeof record->path, "%s/%s-%u.record", directory,
             direction == DW_FORWARD ? "forward" : "backward", rank);
    record->values = (size_t)T * C;
    file_head head = {.version = VERSION,
                      .direction = direction,
                      .rank = rank,
                      .T = T,
                      .C = C,
                      .samples = samples};
    memcpy(head.magic, magic, sizeof magic);
    dw_status status = begin(record, &head, why);
    if (status == DW_OK)
        *out = record;
    else
        dw_record_close(record);
    return status;
}

dw_status dw_record_add(dw_record *record, uint32_t step, const uint32_t *ids, uint32_t N,
                        const float *x, dw_why *why)
{
    dw_status status = DW_OK;
    for (uint32_t n = 0; n < N && status == DW_OK; n++) {
        tensor_head head = {.step = step, .sample = ids[n]};
        status = write_all(record, &head, sizeof head, why);
        if (status == DW_OK)
            status = write_all(record, x + n * record->values, record->values * sizeof *x, why);
    }
    return status;
}

dw_status dw_record_flush(dw_record *record, dw_why *why)
{
    return !record || fflush(record->file) == 0 ? DW_OK : failed(record, why);
}

void dw_record_close(dw_record *record)
{
    if (!record) return;
    if (record->file) fclose(record->file);
    free(record);
}
