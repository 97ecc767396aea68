/* SPDX-License-Identifier: Apache-2.0
 * saved.c - the bytes of one key's saved state, and of what an encoder keeps beside its copies. */
#include "wire/saved.h"

#include <string.h>

#include "base/bytes.h"
#include "common/compact.h"
#include "wire/frame.h"

static const uint8_t magic[4] = {'D', 'W', 'S', '1'};

enum {
    AT_MAJOR = 4,
    AT_MINOR = 5,
    AT_SIDE = 6,
    AT_DTYPE = 7,
    AT_SAMPLE = 8,
    AT_SLICE = 16,
    AT_BASE = 20,
    AT_ZERO = 21,
    AT_COUNTED = 24,
    AT_T = 24,
    AT_C = 28,
    AT_AUDIT = 32,
    AT_MORE = 36,
    AT_INCARNATION = 40,
    AT_SEQUENCE = 48,
    AT_VERSION = 56,
    AT_CHAIN = 64,
    AT_STATE = 72,
    AT_PREV_DIGEST = 80,
    AT_HEADER_DIGEST = 88,
};

static uint64_t values_of(const dw_saved *saved)
{
    return (uint64_t)saved->t * saved->c;
}

uint64_t dw_saved_bytes(const dw_saved *saved)
{
    return DW_SAVED_HEADER_BYTES + dw_prev_bytes(saved->dtype, values_of(saved)) +
           4 * (uint64_t)saved->more;
}

/* Converts between the byte order of this machine and little-endian, in either direction. Words
 * that follow the values are as long as these are, because only f32 is followed by words. */
static void copy_values(void *to, const void *from, const dw_saved *saved)
{
    size_t size = dw_compact_bits(saved->dtype) ? 1 : dw_dtype_bytes(saved->dtype);
    uint64_t n = dw_prev_bytes(saved->dtype, values_of(saved)) / size + saved->more;
    uint8_t *bytes = to;
    const uint8_t *source = from;
    if (dw_host_is_little_endian()) {
        memcpy(to, from, (size_t)(n * size));
        return;
    }
    for (uint64_t i = 0; i < n; i++)
        for (size_t k = 0; k < size; k++) bytes[i * size + k] = source[i * size + size - 1 - k];
}

void dw_saved_write(uint8_t *to, const dw_saved *saved)
{
    uint8_t *prev = to + DW_SAVED_HEADER_BYTES;
    memset(to, 0, DW_SAVED_HEADER_BYTES);
    memcpy(to, magic, sizeof magic);
    to[AT_MAJOR] = DW_FORMAT_MAJOR;
    to[AT_MINOR] = DW_FORMAT_MINOR;
    to[AT_SIDE] = (uint8_t)saved->side;
    to[AT_DTYPE] = (uint8_t)saved->dtype;
    dw_put(to + AT_SAMPLE, saved->key.sample, 8);
    dw_put(to + AT_SLICE, saved->key.slice, 4);
    to[AT_BASE] = saved->is_base;
    dw_put(to + AT_T, saved->t, 4);
    dw_put(to + AT_C, saved->c, 4);
    if (saved->side == DW_SIDE_FORGOTTEN) dw_put(to + AT_COUNTED, saved->counted, 8);
    dw_put(to + AT_AUDIT, saved->audit, 4);
    dw_put(to + AT_MORE, saved->more, 4);
    dw_put(to + AT_INCARNATION, saved->incarnation, 8);
    dw_put(to + AT_SEQUENCE, saved->sequence, 8);
    dw_put(to + AT_VERSION, saved->version, 8);
    dw_put(to + AT_CHAIN, saved->chain, 8);
    dw_put(to + AT_STATE, saved->state_digest, 8);
    if (saved->prev) copy_values(prev, saved->prev, saved);
    uint64_t prev_digest = dw_digest_bytes(prev, dw_saved_bytes(saved) - DW_SAVED_HEADER_BYTES);
    dw_put(to + AT_PREV_DIGEST, prev_digest, 8);
    dw_put(to + AT_HEADER_DIGEST, dw_digest_bytes(to, AT_HEADER_DIGEST), 8);
}

static const char *bad_stream(const uint8_t *from, uint64_t len, const dw_saved *saved)
{
    if (saved->dtype != DW_F32 || saved->key.sample != DW_STREAM_KEY.sample ||
        saved->key.slice != DW_STREAM_KEY.slice || dw_get(from + AT_BASE, 4) || saved->t ||
        saved->c || saved->audit || saved->version || saved->chain || saved->state_digest)
        return "a reserved byte is not zero";
    if (saved->incarnation == 0) return "it names no incarnation";
    if ((saved->more && saved->more != DW_SAVED_RATE_WORDS) || len != dw_saved_bytes(saved))
        return "its length does not match its shape";
    return NULL;
}

static const char *bad_forgotten(const uint8_t *from, uint64_t len, const dw_saved *saved)
{
    if (saved->dtype != DW_F32 || dw_get(from + AT_BASE, 4) || saved->audit || saved->more ||
        saved->version || saved->chain || saved->state_digest)
        return "a reserved byte is not zero";
    if (saved->incarnation == 0 || saved->sequence == 0) return "it names no frame";
    return len == DW_SAVED_HEADER_BYTES ? NULL : "its length does not match its shape";
}

static const char *bad_field(const uint8_t *from, uint64_t len, const dw_saved *saved)
{
    uint64_t bytes;
    if (saved->side == DW_SIDE_STREAM) return bad_stream(from, len, saved);
    if (saved->side == DW_SIDE_FORGOTTEN) return bad_forgotten(from, len, saved);
    if (saved->side < DW_SIDE_ENCODER || saved->side > DW_SIDE_RESIDUAL)
        return "it was saved neither by an encoder nor by a decoder";
    if (dw_prev_bytes(saved->dtype, 1) == 0) return "it has an unknown dtype";
    if (from[AT_BASE] > 1 || dw_get(from + AT_ZERO, 3) ||
        (saved->more && saved->side != DW_SIDE_RESIDUAL))
        return "a reserved byte is not zero";
    if (saved->t == 0 || saved->c == 0) return "an extent is zero";
    if (saved->incarnation == 0 || saved->version == 0 || saved->chain == 0)
        return "it names no version";
    if (saved->side == DW_SIDE_RESIDUAL && (saved->dtype != DW_F32 || saved->audit))
        return "a residual is f32 and has no state digest";
    if (saved->audit >= DW_AUDIT_NEVER || (saved->audit == 0) != (saved->state_digest == 0))
        return "its state digest does not fit";
    if (!dw_size_multiply(values_of(saved), 4, &bytes) ||
        !dw_size_add(bytes, DW_SAVED_HEADER_BYTES + 4 * (uint64_t)saved->more, &bytes) ||
        dw_saved_bytes(saved) != len)
        return "its length does not match its shape";
    return NULL;
}

dw_status dw_saved_read(const uint8_t *from, uint64_t len, dw_saved *saved, const char **why)
{
    *why = "it does not begin with DWS1, or is cut short";
    if (len < DW_SAVED_HEADER_BYTES || memcmp(from, magic, sizeof magic) != 0) return DW_ERR_FORMAT;
    *why = "it was written in another version of the format";
    if (from[AT_MAJOR] != DW_FORMAT_MAJOR || from[AT_MINOR] != DW_FORMAT_MINOR)
        return DW_ERR_VERSION;
    *why = "its checksum does not match";
    if (dw_get(from + AT_HEADER_DIGEST, 8) != dw_digest_bytes(from, AT_HEADER_DIGEST))
        return DW_ERR_CORRUPT;
    *saved = (dw_saved){.side = (dw_side)from[AT_SIDE],
                        .dtype = (dw_dtype)from[AT_DTYPE],
                        .is_base = from[AT_BASE] == 1,
                        .key = {dw_get(from + AT_SAMPLE, 8), (uint32_t)dw_get(from + AT_SLICE, 4)},
                        .t = (uint32_t)dw_get(from + AT_T, 4),
                        .c = (uint32_t)dw_get(from + AT_C, 4),
                        .audit = (uint32_t)dw_get(from + AT_AUDIT, 4),
                        .more = (uint32_t)dw_get(from + AT_MORE, 4),
                        .incarnation = dw_get(from + AT_INCARNATION, 8),
                        .sequence = dw_get(from + AT_SEQUENCE, 8),
                        .version = dw_get(from + AT_VERSION, 8),
                        .chain = dw_get(from + AT_CHAIN, 8),
                        .state_digest = dw_get(from + AT_STATE, 8),
                        .prev = from + DW_SAVED_HEADER_BYTES};
    if (saved->side == DW_SIDE_FORGOTTEN) {
        saved->counted = dw_get(from + AT_COUNTED, 8);
        saved->t = saved->c = 0;
    }
    if ((*why = bad_field(from, len, saved)) != NULL) return DW_ERR_FORMAT;
    *why = "its checksum does not match";
    if (dw_get(from + AT_PREV_DIGEST, 8) !=
        dw_digest_bytes(saved->prev, len - DW_SAVED_HEADER_BYTES))
        return DW_ERR_CORRUPT;
    /* It would become another code when the copy that it is read into is made compact again. */
    *why = "one of its codes stands for no value";
    uint64_t codes = dw_compact_codes_bytes(8, dw_compact_groups(values_of(saved)));
    if (dw_compact_bits(saved->dtype) == 8 && memchr(saved->prev, 0, (size_t)codes))
        return DW_ERR_FORMAT;
    *why = "";
    return DW_OK;
}

void dw_saved_load(void *prev, const dw_saved *saved)
{
    copy_values(prev, saved->prev, saved);
}
