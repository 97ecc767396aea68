/* SPDX-License-Identifier: Apache-2.0
 * frame.c - the bytes of a frame: header, parameter block, tables. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <string.h>

#include "base/bytes.h"
#include "wire/frame.h"

static const uint8_t magic[4] = {'D', 'W', 'F', '1'};

/* Offsets of the fields of a header (docs/format.md, 1.1). */
enum {
    AT_MAJOR = 4,
    AT_MINOR = 5,
    AT_CODEC = 6,
    AT_FLAGS = 7,
    AT_INCARNATION = 8,
    AT_SEQUENCE = 16,
    AT_N = 24,
    AT_T = 28,
    AT_C = 32,
    AT_FORGOTTEN = 36,
    AT_X = 40,
    AT_PARAMETERS = 41,
    AT_ZERO = 42,
    AT_LENGTH = DW_LENGTH_AT,
    AT_SEED = 56,
    AT_TABLE_DIGEST = DW_TABLE_DIGEST_AT,
    AT_HEADER_DIGEST = DW_HEADER_DIGEST_AT,
};
enum { FLAG_WANTS_REPLY = 1, FLAG_DRAWS_ALIKE = 2 };

/* Offsets of the fields of an entry (docs/format.md, 1.3). */
enum {
    ENTRY_SLICE = 8,
    ENTRY_ROLE = 12,
    ENTRY_FORM = 13,
    ENTRY_USE = 14,
    ENTRY_ZERO = 15,
    ENTRY_BASE = 16,
    ENTRY_BYTES = DW_PAYLOAD_BYTES_AT,
    ENTRY_PAYLOAD = DW_PAYLOAD_DIGEST_AT,
    ENTRY_STATE = DW_STATE_DIGEST_AT,
};

uint64_t dw_digest_bytes(const void *bytes, uint64_t len)
{
    return XXH3_64bits(bytes, (size_t)len);
}

/* Nothing here can overflow: 32-bit numbers are multiplied by small constants. */
bool dw_frame_table_end(uint32_t n_parameters, uint32_t n, uint32_t n_forgotten, uint64_t *bytes)
{
    uint64_t used = dw_frame_tables(n_parameters) + (uint64_t)n * DW_ENTRY_BYTES +
                    (uint64_t)n_forgotten * DW_FORGOTTEN_BYTES;
    *bytes = (used + 15) / 16 * 16;
    return *bytes <= PTRDIFF_MAX;
}

uint64_t dw_frame_chain(const dw_header *header, uint64_t parameters, dw_dtype prev,
                        const dw_entry *entry)
{
    uint8_t b[80] = {0};
    dw_put(b, entry->base_chain, 8);
    dw_put(b + 8, header->incarnation, 8);
    dw_put(b + 16, entry->key.sample, 8);
    dw_put(b + 24, entry->key.slice, 4);
    b[28] = (uint8_t)entry->role;
    b[29] = entry->form;
    b[30] = (uint8_t)entry->use;
    b[31] = (uint8_t)prev;
    dw_put(b + 32, header->sequence, 8);
    dw_put(b + 40, entry->payload_digest, 8);
    dw_put(b + 48, header->t, 4);
    dw_put(b + 52, header->c, 4);
    dw_put(b + 56, parameters, 8);
    dw_put(b + 64, header->seed, 8);
    b[72] = header->codec;
    uint64_t chain = dw_digest_bytes(b, sizeof b);
    return chain ? chain : 1;
}

static uint64_t entry_at(const dw_header *header, uint32_t i)
{
    return dw_frame_tables(header->n_parameters) + (uint64_t)i * DW_ENTRY_BYTES;
}

static uint64_t forgotten_at(const dw_header *header, uint32_t i)
{
    return entry_at(header, header->n) + (uint64_t)i * DW_FORGOTTEN_BYTES;
}

void dw_frame_put_parameters(uint8_t *frame, const uint8_t *block, uint32_t n_parameters)
{
    memcpy(frame + DW_HEADER_BYTES, block, (size_t)n_parameters * DW_PARAMETER_BYTES);
}

void dw_frame_put_entry(uint8_t *frame, const dw_header *header, uint32_t i, const dw_entry *entry)
{
    uint8_t *e = frame + entry_at(header, i);
    dw_put(e, entry->key.sample, 8);
    dw_put(e + ENTRY_SLICE, entry->key.slice, 4);
    e[ENTRY_ROLE] = (uint8_t)entry->role;
    e[ENTRY_FORM] = entry->form;
    e[ENTRY_USE] = (uint8_t)entry->use;
    e[ENTRY_ZERO] = 0;
    dw_put(e + ENTRY_BASE, entry->base_chain, 8);
    dw_put(e + ENTRY_BYTES, entry->payload_bytes, 8);
    dw_put(e + ENTRY_PAYLOAD, entry->payload_digest, 8);
    dw_put(e + ENTRY_STATE, entry->state_digest, 8);
}

void dw_frame_put_forgotten(uint8_t *frame, const dw_header *header, uint32_t i, dw_key key)
{
    uint8_t *f = frame + forgotten_at(header, i);
    dw_put(f, key.sample, 8);
    dw_put(f + 8, key.slice, 4);
    dw_put(f + 12, 0, 4);
}

void dw_frame_finalize(uint8_t *frame, const dw_header *header)
{
    uint64_t end = 0, used = forgotten_at(header, header->n_forgotten);
    (void)dw_frame_table_end(header->n_parameters, header->n, header->n_forgotten, &end);
    memset(frame + used, 0, (size_t)(end - used));
    memset(frame, 0, DW_HEADER_BYTES);
    memcpy(frame, magic, sizeof magic);
    frame[AT_MAJOR] = DW_FORMAT_MAJOR;
    frame[AT_MINOR] = DW_FORMAT_MINOR;
    frame[AT_CODEC] = header->codec;
    frame[AT_FLAGS] = (uint8_t)((header->wants_reply ? FLAG_WANTS_REPLY : 0) |
                                (header->draws_alike ? FLAG_DRAWS_ALIKE : 0));
    dw_put(frame + AT_INCARNATION, header->incarnation, 8);
    dw_put(frame + AT_SEQUENCE, header->sequence, 8);
    dw_put(frame + AT_N, header->n, 4);
    dw_put(frame + AT_T, header->t, 4);
    dw_put(frame + AT_C, header->c, 4);
    dw_put(frame + AT_FORGOTTEN, header->n_forgotten, 4);
    frame[AT_X] = (uint8_t)header->x;
    frame[AT_PARAMETERS] = (uint8_t)header->n_parameters;
    dw_put(frame + AT_LENGTH, header->length, 8);
    dw_put(frame + AT_SEED, header->seed, 8);
    uint64_t tables = dw_digest_bytes(frame + DW_HEADER_BYTES, end - DW_HEADER_BYTES);
    dw_put(frame + AT_TABLE_DIGEST, tables, 8);
    dw_put(frame + AT_HEADER_DIGEST, dw_digest_bytes(frame, AT_HEADER_DIGEST), 8);
}

static void read_header(const uint8_t *frame, dw_header *header)
{
    *header = (dw_header){.version_major = frame[AT_MAJOR],
                          .version_minor = frame[AT_MINOR],
                          .codec = frame[AT_CODEC],
                          .wants_reply = (frame[AT_FLAGS] & FLAG_WANTS_REPLY) != 0,
                          .draws_alike = (frame[AT_FLAGS] & FLAG_DRAWS_ALIKE) != 0,
                          .incarnation = dw_get(frame + AT_INCARNATION, 8),
                          .sequence = dw_get(frame + AT_SEQUENCE, 8),
                          .seed = dw_get(frame + AT_SEED, 8),
                          .n = (uint32_t)dw_get(frame + AT_N, 4),
                          .t = (uint32_t)dw_get(frame + AT_T, 4),
                          .c = (uint32_t)dw_get(frame + AT_C, 4),
                          .x = (dw_dtype)frame[AT_X],
                          .n_parameters = frame[AT_PARAMETERS],
                          .n_forgotten = (uint32_t)dw_get(frame + AT_FORGOTTEN, 4),
                          .length = dw_get(frame + AT_LENGTH, 8)};
}

/* No form needs more than 10 bytes per element (counting rows as padded to 32 channels) plus 96
 * bytes per sample. So a frame cannot claim a length out of proportion to its shape, and a reader
 * that allocates by the header alone allocates no more than that. Where the product exceeds 64 bits
 * there is no bound. */
static bool length_is_possible(const dw_header *header)
{
    uint64_t end, all, padded = ((uint64_t)header->c + 31) / 32 * 32;
    if (!dw_frame_table_end(header->n_parameters, header->n, header->n_forgotten, &end) ||
        header->length < end)
        return false;
    if (!dw_size_multiply(header->t, padded, &all) || !dw_size_multiply(all, 10, &all) ||
        !dw_size_add(all, 96, &all) || !dw_size_multiply(header->n, all, &all) ||
        !dw_size_add(all, end, &all))
        return true;
    return header->length <= all;
}

/* Checks the fields as docs/format.md, 1.1 demands. Returns NULL, or what is wrong. */
static const char *bad_field(const uint8_t *frame, const dw_header *header)
{
    uint64_t bytes;
    if (frame[AT_FLAGS] & ~(FLAG_WANTS_REPLY | FLAG_DRAWS_ALIKE)) return "unknown flags";
    if (header->incarnation == 0 || header->sequence == 0) return "incarnation or sequence is zero";
    if (header->n == 0 || header->t == 0 || header->c == 0) return "an extent is zero";
    if (dw_dtype_bytes(header->x) == 0) return "unknown dtype of x";
    if (header->n_parameters > DW_PARAMETERS_MOST) return "too many parameters";
    if (dw_get(frame + AT_ZERO, 6)) return "a reserved byte is not zero";
    if (!dw_size_multiply(header->n, (uint64_t)header->t * header->c, &bytes) ||
        !dw_size_multiply(bytes, 4, &bytes) || bytes > INT64_MAX)
        return "the shape is too large";
    if (!length_is_possible(header)) return "the length is not one that this shape can have";
    return NULL;
}

static bool use_fits(dw_role role, dw_use use)
{
    switch (role) {
    case DW_ROLE_STATELESS: return use == DW_USE_WHOLE || use == DW_USE_BRIEF;
    case DW_ROLE_KEY: return use == DW_USE_WHOLE;
    case DW_ROLE_DELTA: return use == DW_USE_CHANGE;
    case DW_ROLE_SKIP: return use == DW_USE_NONE;
    case DW_ROLE_SYNC: return use == DW_USE_EXACT;
    }
    return false;
}

static const char *bad_entry(const uint8_t *e, const dw_entry *entry)
{
    bool based = entry->role == DW_ROLE_DELTA || entry->role == DW_ROLE_SKIP;
    bool empty = entry->role == DW_ROLE_SKIP;
    if (e[ENTRY_ZERO]) return "a reserved byte of an entry is not zero";
    if (entry->role < DW_ROLE_STATELESS || entry->role > DW_ROLE_SYNC)
        return "an entry has an unknown role";
    if (!use_fits(entry->role, entry->use)) return "an entry's use does not fit its role";
    if (empty != (entry->form == 0)) return "an entry's form does not fit its role";
    if (based != (entry->base_chain != 0)) return "an entry's base does not fit its role";
    if (empty != (entry->payload_digest == 0) || (empty && entry->payload_bytes))
        return "an entry's payload does not fit its role";
    if (!dw_role_has_state(entry->role) && entry->state_digest)
        return "an entry's state digest does not fit its role";
    if (entry->payload_bytes % 16) return "a payload's size is not a multiple of 16";
    return NULL;
}

/* Step 3: checks the tables. Two things are left to the decoder: keys that occur twice, which it
 * finds while it looks them up, and the rules of the codec. */
static const char *bad_tables(const uint8_t *frame, uint64_t end, const dw_header *header)
{
    uint64_t payload = 0;
    for (uint32_t i = 0; i < header->n; i++) {
        dw_entry entry;
        dw_frame_get_entry(frame, header, i, &entry);
        const char *why = bad_entry(frame + entry_at(header, i), &entry);
        if (why) return why;
        if (!dw_size_add(payload, entry.payload_bytes, &payload))
            return "the payloads' sizes do not add up to the length";
    }
    for (uint32_t i = 0; i < header->n_forgotten; i++)
        if (dw_get(frame + forgotten_at(header, i) + 12, 4))
            return "a reserved byte of a forgotten key is not zero";
    for (uint64_t at = forgotten_at(header, header->n_forgotten); at < end; at++)
        if (frame[at]) return "the padding of the tables is not zero";
    if (payload != header->length - end) return "the payloads' sizes do not add up to the length";
    return NULL;
}

uint64_t dw_frame_reach(const uint8_t *head, uint64_t head_len)
{
    uint64_t end;
    if (head_len < DW_HEADER_BYTES ||
        !dw_frame_table_end(head[AT_PARAMETERS], (uint32_t)dw_get(head + AT_N, 4),
                            (uint32_t)dw_get(head + AT_FORGOTTEN, 4), &end) ||
        end > head_len)
        return head_len;
    return end;
}

dw_status dw_frame_open_header(const uint8_t *frame, uint64_t have, dw_header *header,
                               const char **why)
{
    *why = "it is shorter than a header";
    if (have < DW_HEADER_BYTES) return DW_ERR_FORMAT;
    *why = "it does not begin with DWF1";
    if (memcmp(frame, magic, sizeof magic) != 0) return DW_ERR_FORMAT;
    *why = "it was written in another version of the format: both ends need the same version of "
           "deltawire's format";
    if (frame[AT_MAJOR] != DW_FORMAT_MAJOR || frame[AT_MINOR] != DW_FORMAT_MINOR)
        return DW_ERR_VERSION;
    *why = "the header's checksum does not match";
    if (dw_get(frame + AT_HEADER_DIGEST, 8) != dw_digest_bytes(frame, AT_HEADER_DIGEST))
        return DW_ERR_CORRUPT;
    read_header(frame, header);
    if ((*why = bad_field(frame, header)) != NULL) return DW_ERR_FORMAT;
    *why = "";
    return DW_OK;
}

dw_status dw_frame_open(const uint8_t *head, uint64_t head_len, uint64_t len, dw_header *header,
                        bool *tables_intact, const char **why)
{
    dw_header found;
    uint64_t end = 0;
    *tables_intact = false;
    dw_status status = dw_frame_open_header(head, head_len, &found, why);
    if (status) return status;
    *why = "it ends within its tables";
    (void)dw_frame_table_end(found.n_parameters, found.n, found.n_forgotten, &end);
    if (head_len < end) return DW_ERR_FORMAT;
    *why = "the tables' checksum does not match";
    if (dw_get(head + AT_TABLE_DIGEST, 8) !=
        dw_digest_bytes(head + DW_HEADER_BYTES, end - DW_HEADER_BYTES))
        return DW_ERR_CORRUPT;
    if ((*why = bad_tables(head, end, &found)) != NULL) return DW_ERR_FORMAT;
    *tables_intact = true;
    *header = found;
    *why = "it is cut short";
    if (len < found.length) return DW_ERR_FORMAT;
    *why = "";
    return DW_OK;
}

void dw_frame_get_entry(const uint8_t *frame, const dw_header *header, uint32_t i, dw_entry *entry)
{
    const uint8_t *e = frame + entry_at(header, i);
    *entry = (dw_entry){.key = {dw_get(e, 8), (uint32_t)dw_get(e + ENTRY_SLICE, 4)},
                        .role = (dw_role)e[ENTRY_ROLE],
                        .form = e[ENTRY_FORM],
                        .use = (dw_use)e[ENTRY_USE],
                        .base_chain = dw_get(e + ENTRY_BASE, 8),
                        .payload_bytes = dw_get(e + ENTRY_BYTES, 8),
                        .payload_digest = dw_get(e + ENTRY_PAYLOAD, 8),
                        .state_digest = dw_get(e + ENTRY_STATE, 8)};
}

dw_key dw_frame_get_forgotten(const uint8_t *frame, const dw_header *header, uint32_t i)
{
    const uint8_t *f = frame + forgotten_at(header, i);
    return (dw_key){dw_get(f, 8), (uint32_t)dw_get(f + 8, 4)};
}
