/* SPDX-License-Identifier: Apache-2.0
 * frame.c - bytes on the wire: headers, tables, replies. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <string.h>

#include "frame.h"

static const uint8_t frame_magic[4] = {'D', 'W', 'F', '1'};
static const uint8_t reply_magic[4] = {'D', 'W', 'R', '1'};
enum { MAJOR = 1, MINOR = 0 };

/* Where the fields of docs/format.md lie. */
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
    AT_X = 36,
    AT_PREV = 37,
    AT_BITS = 38,
    AT_KEY = 39,
    AT_GROUP = 40,
    AT_AUDIT = 42,
    AT_ZERO = 43,
    AT_FORGOTTEN = 44,
    AT_PAYLOAD = 48,
    AT_ZERO2 = 56,
    AT_TABLE_DIGEST = 64,
    AT_HEADER_DIGEST = 72
};
enum {
    REPLY_ANSWER = 6,
    REPLY_ZERO = 7,
    REPLY_ZERO2 = 28,
    REPLY_TABLE_DIGEST = 32,
    REPLY_HEADER_DIGEST = 40
};
enum { ENTRY_KIND = 12, ENTRY_ZERO = 13, ENTRY_BASE = 16, ENTRY_PAYLOAD = 24, ENTRY_STATE = 32 };

static void put(uint8_t *to, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) to[i] = (uint8_t)(value >> (8 * i));
}

static uint64_t get(const uint8_t *from, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) value |= (uint64_t)from[i] << (8 * i);
    return value;
}

uint64_t dw_digest_bytes(const void *bytes, uint64_t len)
{
    return XXH3_64bits(bytes, (size_t)len);
}

dw_dtype dw_dtype_of(uint32_t form)
{
    return form == DW_KEY_F32    ? DW_F32
           : form == DW_KEY_F16  ? DW_F16
           : form == DW_KEY_BF16 ? DW_BF16
                                 : (dw_dtype)0;
}

bool dw_kind_has_state(dw_entry_kind kind)
{
    return kind != DW_ENTRY_RAW && kind != DW_ENTRY_DIRECT;
}

bool dw_kind_is_floats(dw_entry_kind kind)
{
    return kind == DW_ENTRY_RAW || kind == DW_ENTRY_KEY_RAW || kind == DW_ENTRY_SYNC;
}

dw_dtype dw_frame_form(const dw_frame_info *info, dw_entry_kind kind)
{
    return kind == DW_ENTRY_SYNC ? info->prev : dw_dtype_of(info->key);
}

bool dw_frame_layout(const dw_frame_info *info, dw_entry_kind kind, dw_layout *layout)
{
    bool delta = kind == DW_ENTRY_DELTA;
    uint32_t bits = delta || info->codec == DW_CODEC_DIRECT ? info->bits : info->key;
    return dw_layout_make(layout, info->t, info->c, bits, info->group, delta && info->chooses);
}

bool dw_frame_payload_bytes(const dw_frame_info *info, dw_entry_kind kind, uint64_t *bytes)
{
    dw_layout layout;
    uint64_t elements, all;
    if (dw_kind_is_floats(kind)) {
        if (!dw_size_multiply(info->t, info->c, &elements) ||
            !dw_size_multiply(elements, dw_dtype_bytes(dw_frame_form(info, kind)), &all) ||
            all > PTRDIFF_MAX)
            return false;
        *bytes = dw_round_up(all, 16);
        return true;
    }
    if (!dw_frame_layout(info, kind, &layout)) return false;
    *bytes = layout.payload_bytes;
    return true;
}

bool dw_frame_table_end(uint32_t n, uint32_t n_forgotten, uint64_t *bytes)
{
    *bytes =
        DW_HEADER_BYTES +
        dw_round_up((uint64_t)n * DW_ENTRY_BYTES + (uint64_t)n_forgotten * DW_FORGOTTEN_BYTES, 16);
    return *bytes <= PTRDIFF_MAX; /* two 38-bit products: only a 32-bit machine can refuse */
}

uint64_t dw_frame_chain(const dw_frame_info *info, const dw_entry_info *entry)
{
    uint8_t b[64] = {0};
    put(b, entry->base_chain, 8);
    put(b + 8, info->incarnation, 8);
    put(b + 16, entry->key.sample, 8);
    put(b + 24, entry->key.slice, 4);
    b[28] = (uint8_t)entry->kind;
    put(b + 32, info->sequence, 8);
    put(b + 40, entry->payload_digest, 8);
    put(b + 48, info->t, 4);
    put(b + 52, info->c, 4);
    b[56] = (uint8_t)info->prev;
    b[57] = (uint8_t)info->bits;
    b[58] = (uint8_t)info->key;
    b[59] = info->chooses ? DW_FLAG_CHOOSES : 0;
    put(b + 60, info->group, 2);
    uint64_t chain = dw_digest_bytes(b, sizeof b);
    return chain ? chain : 1;
}

static uint8_t *entry_at(uint8_t *frame, uint32_t i)
{
    return frame + DW_HEADER_BYTES + (uint64_t)i * DW_ENTRY_BYTES;
}

static uint8_t *forgotten_at(uint8_t *frame, uint32_t n, uint32_t i)
{
    return entry_at(frame, n) + (uint64_t)i * DW_FORGOTTEN_BYTES;
}

void dw_frame_put_entry(uint8_t *frame, uint32_t i, const dw_entry_info *entry)
{
    uint8_t *e = entry_at(frame, i);
    memset(e, 0, DW_ENTRY_BYTES);
    put(e, entry->key.sample, 8);
    put(e + 8, entry->key.slice, 4);
    e[ENTRY_KIND] = (uint8_t)entry->kind;
    put(e + ENTRY_BASE, entry->base_chain, 8);
    put(e + ENTRY_PAYLOAD, entry->payload_digest, 8);
    put(e + ENTRY_STATE, entry->state_digest, 8);
}

void dw_frame_put_forgotten(uint8_t *frame, uint32_t n, uint32_t i, dw_key key)
{
    uint8_t *f = forgotten_at(frame, n, i);
    memset(f, 0, DW_FORGOTTEN_BYTES);
    put(f, key.sample, 8);
    put(f + 8, key.slice, 4);
}

void dw_frame_seal(uint8_t *frame, const dw_frame_info *info)
{
    uint64_t end = 0;
    (void)dw_frame_table_end(info->n, info->n_forgotten, &end);
    uint64_t used = DW_HEADER_BYTES + (uint64_t)info->n * DW_ENTRY_BYTES +
                    (uint64_t)info->n_forgotten * DW_FORGOTTEN_BYTES;
    memset(frame + used, 0, (size_t)(end - used));
    memset(frame, 0, DW_HEADER_BYTES);
    memcpy(frame, frame_magic, 4);
    frame[AT_MAJOR] = MAJOR;
    frame[AT_MINOR] = MINOR;
    frame[AT_CODEC] = (uint8_t)info->codec;
    frame[AT_FLAGS] = (uint8_t)((info->chooses ? DW_FLAG_CHOOSES : 0) |
                                (info->wants_reply ? DW_FLAG_WANTS_REPLY : 0));
    put(frame + AT_INCARNATION, info->incarnation, 8);
    put(frame + AT_SEQUENCE, info->sequence, 8);
    put(frame + AT_N, info->n, 4);
    put(frame + AT_T, info->t, 4);
    put(frame + AT_C, info->c, 4);
    frame[AT_X] = (uint8_t)info->x;
    frame[AT_PREV] = (uint8_t)info->prev;
    frame[AT_BITS] = (uint8_t)info->bits;
    frame[AT_KEY] = (uint8_t)info->key;
    put(frame + AT_GROUP, info->group, 2);
    frame[AT_AUDIT] = (uint8_t)info->audit;
    put(frame + AT_FORGOTTEN, info->n_forgotten, 4);
    put(frame + AT_PAYLOAD, info->payload_bytes, 8);
    put(frame + AT_TABLE_DIGEST, dw_digest_bytes(frame + DW_HEADER_BYTES, end - DW_HEADER_BYTES),
        8);
    put(frame + AT_HEADER_DIGEST, dw_digest_bytes(frame, AT_HEADER_DIGEST), 8);
}

static bool group_is_valid(uint32_t group)
{
    return group == DW_GROUP_ROW || group == DW_GROUP_CHANNEL || group == 16 || group == 32 ||
           group == 64 || group == 128 || group == 256;
}

static bool bits_are_valid(uint32_t bits, uint32_t least)
{
    return bits >= least && bits <= 8;
}

/* The ranges of section 1.1; NULL: all hold, else which one does not. */
static const char *bad_field(const uint8_t *frame, const dw_frame_info *info)
{
    bool delta = info->codec == DW_CODEC_DELTA, raw = info->codec == DW_CODEC_RAW;
    uint64_t bytes;
    if (info->codec < DW_CODEC_DELTA || info->codec > DW_CODEC_RAW) return "unknown codec";
    if (frame[AT_FLAGS] & ~(DW_FLAG_CHOOSES | DW_FLAG_WANTS_REPLY)) return "unknown flags";
    if (info->chooses && !delta) return "choice bits without delta entries";
    if (info->incarnation == 0 || info->sequence == 0) return "incarnation or sequence is zero";
    if (info->n == 0 || info->t == 0 || info->c == 0) return "an extent is zero";
    if (dw_dtype_bytes(info->x) == 0) return "unknown dtype of x";
    if (delta ? dw_dtype_bytes(info->prev) == 0 : info->prev != 0) return "unknown dtype of prev";
    if (raw ? info->bits != 0 : !bits_are_valid(info->bits, 1)) return "bits out of range";
    bool form = dw_dtype_of(info->key) != 0;
    if (delta ? !form && !bits_are_valid(info->key, 2) : raw ? !form : info->key != 0)
        return "unknown form of key entries";
    if (raw ? info->group != 0 : !group_is_valid(info->group)) return "unknown group";
    if (!delta && (info->audit || info->n_forgotten)) return "state without the delta codec";
    if (frame[AT_ZERO] || get(frame + AT_ZERO2, 8)) return "a reserved byte is not zero";
    if (!dw_size_multiply(info->n, (uint64_t)info->t * info->c, &bytes) ||
        !dw_size_multiply(bytes, 4, &bytes) || bytes > INT64_MAX)
        return "the shape is too large";
    return NULL;
}

static void read_header(const uint8_t *frame, dw_frame_info *info)
{
    info->version_major = frame[AT_MAJOR];
    info->version_minor = frame[AT_MINOR];
    info->codec = (dw_codec)frame[AT_CODEC];
    info->chooses = frame[AT_FLAGS] & DW_FLAG_CHOOSES ? 1 : 0;
    info->wants_reply = frame[AT_FLAGS] & DW_FLAG_WANTS_REPLY ? 1 : 0;
    info->incarnation = get(frame + AT_INCARNATION, 8);
    info->sequence = get(frame + AT_SEQUENCE, 8);
    info->n = (uint32_t)get(frame + AT_N, 4);
    info->t = (uint32_t)get(frame + AT_T, 4);
    info->c = (uint32_t)get(frame + AT_C, 4);
    info->x = (dw_dtype)frame[AT_X];
    info->prev = (dw_dtype)frame[AT_PREV];
    info->bits = frame[AT_BITS];
    info->key = frame[AT_KEY];
    info->group = (uint32_t)get(frame + AT_GROUP, 2);
    info->audit = frame[AT_AUDIT];
    info->n_forgotten = (uint32_t)get(frame + AT_FORGOTTEN, 4);
    info->payload_bytes = get(frame + AT_PAYLOAD, 8);
}

static bool kind_belongs(const dw_frame_info *info, dw_entry_kind kind)
{
    bool floats = dw_dtype_of(info->key) != 0;
    switch (info->codec) {
    case DW_CODEC_RAW: return kind == DW_ENTRY_RAW;
    case DW_CODEC_DIRECT: return kind == DW_ENTRY_DIRECT;
    case DW_CODEC_DELTA: break;
    }
    if (kind == DW_ENTRY_RAW || kind == DW_ENTRY_KEY_RAW) return floats;
    if (kind == DW_ENTRY_DIRECT || kind == DW_ENTRY_KEY) return !floats;
    return kind == DW_ENTRY_DELTA || kind == DW_ENTRY_SYNC;
}

static const char *bad_entry(const uint8_t *e, const dw_frame_info *info,
                             const dw_entry_info *entry)
{
    if (get(e + ENTRY_ZERO, 3)) return "a reserved byte of an entry is not zero";
    if (!kind_belongs(info, entry->kind)) return "an entry's kind does not belong to the codec";
    if (entry->kind == DW_ENTRY_DELTA ? entry->base_chain == 0 : entry->base_chain != 0)
        return "an entry's base does not fit its kind";
    bool audited = info->audit != 0 && dw_kind_has_state(entry->kind);
    if (audited ? entry->state_digest == 0 : entry->state_digest != 0)
        return "an entry's state digest does not fit";
    return NULL;
}

/* Step 3 of section 2: the tables, but for doubled keys, which the decoder finds while it looks
 * them up. */
static const char *bad_tables(const uint8_t *frame, uint64_t end, const dw_frame_info *info)
{
    const uint8_t *at = frame + DW_HEADER_BYTES;
    for (uint32_t i = 0; i < info->n; i++, at += DW_ENTRY_BYTES) {
        dw_entry_info entry;
        dw_frame_get_entry(frame, i, &entry);
        const char *why = bad_entry(at, info, &entry);
        if (why) return why;
    }
    for (uint32_t i = 0; i < info->n_forgotten; i++, at += DW_FORGOTTEN_BYTES)
        if (get(at + 12, 4)) return "a reserved byte of a forgotten key is not zero";
    for (; at < frame + end; at++)
        if (*at) return "the padding of the tables is not zero";
    return NULL;
}

/* Step 3 of section 2: the sizes. */
static const char *bad_sizes(const uint8_t *frame, uint64_t len, uint64_t end,
                             const dw_frame_info *info)
{
    uint64_t payload = 0, all;
    for (uint32_t i = 0; i < info->n; i++) {
        dw_entry_info entry;
        uint64_t bytes;
        dw_frame_get_entry(frame, i, &entry);
        if (!dw_frame_payload_bytes(info, entry.kind, &bytes) ||
            !dw_size_add(payload, bytes, &payload))
            return "the shape is too large";
    }
    if (payload != info->payload_bytes) return "payload_bytes is not what shape and kinds say";
    if (!dw_size_add(end, payload, &all) || all != len) return "the frame is cut short or too long";
    return NULL;
}

uint64_t dw_frame_reach(const uint8_t *head, uint64_t head_len)
{
    uint64_t end;
    if (head_len < DW_HEADER_BYTES ||
        !dw_frame_table_end((uint32_t)get(head + AT_N, 4), (uint32_t)get(head + AT_FORGOTTEN, 4),
                            &end) ||
        end > head_len)
        return head_len;
    return end;
}

dw_status dw_frame_open(const uint8_t *frame, uint64_t len, dw_frame_info *info,
                        bool *tables_intact, const char **why)
{
    return dw_frame_open_head(frame, len, len, info, tables_intact, why);
}

dw_status dw_frame_open_head(const uint8_t *frame, uint64_t head_len, uint64_t len,
                             dw_frame_info *info, bool *tables_intact, const char **why)
{
    dw_frame_info found;
    uint64_t end;
    *tables_intact = false;
    *why = "it is shorter than a header";
    if (head_len < DW_HEADER_BYTES) return DW_ERR_FORMAT;
    *why = "it does not begin with DWF1";
    if (memcmp(frame, frame_magic, 4) != 0) return DW_ERR_FORMAT;
    *why = "it was written in another version of the format";
    if (frame[AT_MAJOR] != MAJOR || frame[AT_MINOR] != MINOR) return DW_ERR_VERSION;
    *why = "the header's checksum does not match";
    if (get(frame + AT_HEADER_DIGEST, 8) != dw_digest_bytes(frame, AT_HEADER_DIGEST))
        return DW_ERR_CORRUPT;
    read_header(frame, &found);
    if ((*why = bad_field(frame, &found)) != NULL) return DW_ERR_FORMAT;
    *why = "it ends within its tables";
    if (!dw_frame_table_end(found.n, found.n_forgotten, &end) || head_len < end)
        return DW_ERR_FORMAT;
    *why = "the tables' checksum does not match";
    if (get(frame + AT_TABLE_DIGEST, 8) !=
        dw_digest_bytes(frame + DW_HEADER_BYTES, end - DW_HEADER_BYTES))
        return DW_ERR_CORRUPT;
    if ((*why = bad_tables(frame, end, &found)) != NULL) return DW_ERR_FORMAT;
    *tables_intact = true;
    *info = found;
    if ((*why = bad_sizes(frame, len, end, &found)) != NULL) return DW_ERR_FORMAT;
    *why = "";
    return DW_OK;
}

void dw_frame_get_entry(const uint8_t *frame, uint32_t i, dw_entry_info *entry)
{
    const uint8_t *e = frame + DW_HEADER_BYTES + (uint64_t)i * DW_ENTRY_BYTES;
    *entry = (dw_entry_info){.key = {get(e, 8), (uint32_t)get(e + 8, 4)},
                             .kind = (dw_entry_kind)e[ENTRY_KIND],
                             .base_chain = get(e + ENTRY_BASE, 8),
                             .payload_digest = get(e + ENTRY_PAYLOAD, 8),
                             .state_digest = get(e + ENTRY_STATE, 8)};
}

dw_key dw_frame_get_forgotten(const uint8_t *frame, uint32_t n, uint32_t i)
{
    const uint8_t *f =
        frame + DW_HEADER_BYTES + (uint64_t)n * DW_ENTRY_BYTES + (uint64_t)i * DW_FORGOTTEN_BYTES;
    return (dw_key){get(f, 8), (uint32_t)get(f + 8, 4)};
}

void dw_reply_put_entry(uint8_t *reply, uint32_t i, const dw_reply_entry *entry)
{
    uint8_t *e = reply + DW_REPLY_BYTES + (uint64_t)i * DW_HELD_BYTES;
    memset(e, 0, DW_HELD_BYTES);
    put(e, entry->key.sample, 8);
    put(e + 8, entry->key.slice, 4);
    if (!entry->held) return;
    e[12] = 1;
    put(e + 16, entry->incarnation, 8);
    put(e + 24, entry->version, 8);
    put(e + 32, entry->chain, 8);
}

void dw_reply_seal(uint8_t *reply, const dw_reply_info *info)
{
    memset(reply, 0, DW_REPLY_BYTES);
    memcpy(reply, reply_magic, 4);
    reply[AT_MAJOR] = MAJOR;
    reply[AT_MINOR] = MINOR;
    reply[REPLY_ANSWER] = info->accepted ? 1 : info->replaced ? 3 : 2;
    put(reply + AT_INCARNATION, info->incarnation, 8);
    put(reply + AT_SEQUENCE, info->sequence, 8);
    put(reply + AT_N, info->n, 4);
    put(reply + REPLY_TABLE_DIGEST,
        dw_digest_bytes(reply + DW_REPLY_BYTES, (uint64_t)info->n * DW_HELD_BYTES), 8);
    put(reply + REPLY_HEADER_DIGEST, dw_digest_bytes(reply, REPLY_HEADER_DIGEST), 8);
}

dw_status dw_reply_open(const uint8_t *reply, uint64_t len, dw_reply_info *info, const char **why)
{
    *why = "it is shorter than a reply";
    if (len < DW_REPLY_BYTES) return DW_ERR_FORMAT;
    *why = "it does not begin with DWR1";
    if (memcmp(reply, reply_magic, 4) != 0) return DW_ERR_FORMAT;
    *why = "it was written in another version of the format";
    if (reply[AT_MAJOR] != MAJOR || reply[AT_MINOR] != MINOR) return DW_ERR_VERSION;
    *why = "the header's checksum does not match";
    if (get(reply + REPLY_HEADER_DIGEST, 8) != dw_digest_bytes(reply, REPLY_HEADER_DIGEST))
        return DW_ERR_CORRUPT;
    uint64_t n = get(reply + AT_N, 4);
    *why = "its length or a reserved byte is wrong";
    if (len != DW_REPLY_BYTES + n * DW_HELD_BYTES || reply[REPLY_ZERO] ||
        get(reply + REPLY_ZERO2, 4) || reply[REPLY_ANSWER] < 1 || reply[REPLY_ANSWER] > 3)
        return DW_ERR_FORMAT;
    *why = "the entries' checksum does not match";
    if (get(reply + REPLY_TABLE_DIGEST, 8) !=
        dw_digest_bytes(reply + DW_REPLY_BYTES, n * DW_HELD_BYTES))
        return DW_ERR_CORRUPT;
    *why = "an entry's fields contradict each other";
    for (uint64_t i = 0; i < n; i++) {
        const uint8_t *e = reply + DW_REPLY_BYTES + i * DW_HELD_BYTES;
        bool names = get(e + 16, 8) || get(e + 24, 8) || get(e + 32, 8);
        if (e[12] > 1 || get(e + 13, 3) || (e[12] == 0 && names)) return DW_ERR_FORMAT;
    }
    *info =
        (dw_reply_info){reply[REPLY_ANSWER] == 1, reply[REPLY_ANSWER] == 3,
                        get(reply + AT_INCARNATION, 8), get(reply + AT_SEQUENCE, 8), (uint32_t)n};
    *why = "";
    return DW_OK;
}

void dw_reply_get_entry(const uint8_t *reply, uint32_t i, dw_reply_entry *entry)
{
    const uint8_t *e = reply + DW_REPLY_BYTES + (uint64_t)i * DW_HELD_BYTES;
    *entry = (dw_reply_entry){{get(e, 8), (uint32_t)get(e + 8, 4)},
                              e[12] != 0,
                              get(e + 16, 8),
                              get(e + 24, 8),
                              get(e + 32, 8)};
}
