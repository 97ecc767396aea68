/* SPDX-License-Identifier: Apache-2.0
 * said.c - parses the records that the fuzzer's peer has sent, and the messages that they form. */
#include "said.h"

#include "link/link.h"

enum { PARTS = 16384, SPANS = 65536 };

typedef struct said_span {
    struct said_span *next;
    const unsigned char *bytes;
    size_t len;
} said_span;

/* A record that carries bytes of a message. */
struct said_part {
    said_part *next;
    const said_stream *by;
    uint64_t total;
    size_t offset, len, got;
    said_span *first, *last;
};

said_all said;

static said_part *messages[SAID_NUMBERS];
static said_part parts[PARTS];
static said_span spans[SPANS];
static size_t n_parts, n_spans;
static uint64_t end_of_numbers, prefix;

void said_forget(void)
{
    for (uint64_t n = 0; n < end_of_numbers; n++) messages[n] = NULL;
    end_of_numbers = prefix = 0;
    n_parts = n_spans = 0;
    said = (said_all){.may_fail = 0};
}

void said_forget_others(const said_stream *stream)
{
    prefix = 0;
    for (uint64_t n = 0; n < end_of_numbers; n++) {
        for (said_part **at = &messages[n]; *at;) {
            if ((*at)->by == stream)
                at = &(*at)->next;
            else
                *at = (*at)->next;
        }
    }
}

/* The length of chunks, computed a second time: 1 MiB, or whole pages such that 256 chunks are
 * enough. */
static size_t chunk_of(uint64_t total)
{
    uint64_t share = (total + 255) / 256;
    return share <= 1 << 20 ? 1 << 20 : (size_t)((share + 4095) & ~UINT64_C(4095));
}

static size_t chunks_of(uint64_t total)
{
    return total == 0 ? 1 : (size_t)((total + chunk_of(total) - 1) / chunk_of(total));
}

/* ---- Reading --------------------------------------------------------------------------------- */

static said_part *add_part(said_stream *stream, uint64_t number, uint64_t total, size_t offset,
                           size_t len)
{
    if (number >= SAID_NUMBERS || n_parts == PARTS) return NULL;
    said_part *part = &parts[n_parts++];
    *part = (said_part){
        .next = messages[number], .by = stream, .total = total, .offset = offset, .len = len};
    for (const said_part *other = messages[number]; other; other = other->next) {
        if (other->total != total) said.may_fail = 1;
    }
    messages[number] = part;
    if (number >= end_of_numbers) end_of_numbers = number + 1;
    return part;
}

static int is_in_order(int kind, size_t len, uint64_t offset, uint64_t total)
{
    if (total > UINT64_C(1) << 40) return 0;
    if (kind == DW_TCP_MESSAGE) return len <= DW_TCP_CHUNK_BYTES;
    if (total <= DW_TCP_CHUNK_BYTES || offset >= total || offset % chunk_of(total)) return 0;
    return len == (total - offset < chunk_of(total) ? total - offset : chunk_of(total));
}

static void read_header(said_stream *stream, uint64_t taken, uint64_t sent, uint64_t longest)
{
    const unsigned char *header = stream->header;
    int kind = header[0];
    uint64_t number = dw_get64(header + 8), whole = dw_get64(header + 16),
             limit = dw_get64(header + 24);
    size_t len = dw_get32(header + 4);
    stream->header_n = 0;
    if (whole > stream->most_whole) stream->most_whole = whole;
    if (whole > sent) said.may_fail = 1;
    if (whole > said.whole) said.whole = whole;
    if (limit > said.limit) said.limit = limit;
    stream->asks += kind == DW_TCP_ASK;
    if (kind != DW_TCP_MESSAGE && kind != DW_TCP_CHUNK)
        return; /* such records have no body, whatever len is */
    uint64_t offset = kind == DW_TCP_CHUNK ? dw_get64(header + 32) : 0;
    uint64_t total = kind == DW_TCP_CHUNK ? dw_get64(header + 40) : len;
    if (number > stream->most_number) stream->most_number = number;
    if (number >= taken + DW_TCP_INCOMING_MOST || total > longest) said.may_fail = 1;
    if (!is_in_order(kind, len, offset, total)) {
        stream->is_nonsense = said.may_fail = 1;
        return;
    }
    stream->part = add_part(stream, number, total, (size_t)offset, len);
    stream->body_left = len;
}

static void take_body(said_stream *stream, const unsigned char *bytes, size_t n)
{
    said_part *part = stream->part;
    stream->body_left -= n;
    if (!part || n == 0) return;
    if (part->last && part->last->bytes + part->last->len == bytes) {
        part->last->len += n;
    } else if (n_spans < SPANS) {
        said_span *span = &spans[n_spans++];
        *span = (said_span){.bytes = bytes, .len = n};
        if (part->last)
            part->last->next = span;
        else
            part->first = span;
        part->last = span;
    } else {
        return;
    }
    part->got += n;
}

static size_t take_hello(said_stream *stream, const unsigned char *bytes, size_t n, uint64_t sent)
{
    size_t left = DW_TCP_HELLO_BYTES - stream->hello_n, taken = n < left ? n : left;
    memcpy(stream->hello + stream->hello_n, bytes, taken);
    stream->hello_n += taken;
    if (stream->hello_n < DW_TCP_HELLO_BYTES) return taken;
    uint64_t whole = dw_get64(stream->hello + 32), limit = dw_get64(stream->hello + 40);
    stream->most_whole = whole;
    if (whole > sent) said.may_fail = 1;
    if (whole > said.whole) said.whole = whole;
    if (limit > said.limit) said.limit = limit;
    return taken;
}

void said_bytes(said_stream *stream, const unsigned char *bytes, size_t n, uint64_t taken,
                uint64_t sent, uint64_t longest)
{
    while (n > 0 && !stream->is_nonsense) {
        size_t used;
        if (stream->hello_n < DW_TCP_HELLO_BYTES) {
            used = take_hello(stream, bytes, n, sent);
        } else if (stream->body_left > 0) {
            used = n < stream->body_left ? n : (size_t)stream->body_left;
            take_body(stream, bytes, used);
        } else {
            unsigned char kind = stream->header_n > 0 ? stream->header[0] : bytes[0];
            if (kind < DW_TCP_MESSAGE || kind > DW_TCP_LEAVE) {
                stream->is_nonsense = said.may_fail = 1;
                return;
            }
            size_t whole = kind == DW_TCP_CHUNK ? DW_TCP_CHUNK_RECORD_BYTES : DW_TCP_RECORD_BYTES,
                   left = whole - stream->header_n;
            used = n < left ? n : left;
            memcpy(stream->header + stream->header_n, bytes, used);
            stream->header_n += used;
            if (stream->header_n == whole) read_header(stream, taken, sent, longest);
        }
        bytes += used;
        n -= used;
    }
}

int said_is_full(void)
{
    return n_parts > PARTS - 100 || n_spans > SPANS - 1000;
}

int said_is_between(const said_stream *stream)
{
    return !stream->is_nonsense && stream->hello_n == DW_TCP_HELLO_BYTES && stream->header_n == 0 &&
           stream->body_left == 0;
}

/* ---- Messages -------------------------------------------------------------------------------- */

static int counts(const said_part *part, uint64_t total, int surely)
{
    return part->total == total && part->got == part->len &&
           (!surely || (part->by->is_stripe && part->by->is_sure));
}

static int is_whole_with(uint64_t number, uint64_t total, int surely)
{
    uint64_t has[DW_TCP_CHUNKS_MOST / 64] = {0};
    size_t n = 0;
    for (const said_part *part = messages[number]; part; part = part->next) {
        size_t chunk = part->offset / chunk_of(total);
        if (!counts(part, total, surely) || (has[chunk / 64] >> chunk % 64 & 1)) continue;
        has[chunk / 64] |= UINT64_C(1) << chunk % 64;
        n++;
    }
    return n == chunks_of(total);
}

int said_is_whole(uint64_t number, int surely)
{
    if (number >= end_of_numbers) return 0;
    for (const said_part *part = messages[number]; part; part = part->next) {
        if (part->got == part->len && is_whole_with(number, part->total, surely)) return 1;
    }
    return 0;
}

int said_has_chunk(uint64_t number, uint64_t total, size_t chunk)
{
    for (const said_part *part = number < end_of_numbers ? messages[number] : NULL; part;
         part = part->next) {
        if (counts(part, total, 0) && part->offset / chunk_of(total) == chunk) return 1;
    }
    return 0;
}

uint64_t said_prefix(void)
{
    while (said_is_whole(prefix, 0)) prefix++;
    return prefix;
}

uint64_t said_bytes_of(uint64_t number)
{
    uint64_t bytes = 0;
    for (const said_part *part = number < end_of_numbers ? messages[number] : NULL; part;
         part = part->next)
        bytes += part->got;
    return bytes;
}

uint64_t said_undelivered(uint64_t taken)
{
    uint64_t bytes = 0;
    for (uint64_t n = taken; n < end_of_numbers; n++) bytes += said_bytes_of(n);
    return bytes;
}

int said_two_lengths(void)
{
    for (uint64_t n = 0; n < end_of_numbers; n++) {
        const said_part *first = NULL;
        int differ = 0;
        for (const said_part *part = messages[n]; part; part = part->next) {
            if (!part->by->is_stripe || !part->by->is_sure) continue;
            if (!first) first = part;
            differ |= part->total != first->total;
        }
        if (differ && !said_is_whole(n, 0)) return 1;
    }
    return 0;
}

/* ---- What the end received ------------------------------------------------------------------- */

static int is_byte_of(const said_part *part, size_t at, unsigned char byte)
{
    for (const said_span *span = part->first; span; at -= span->len, span = span->next) {
        if (at < span->len) return span->bytes[at] == byte;
    }
    return 0;
}

/* Two connections may send the same chunk with different bytes at the same time. Then each byte
 * must be from one of them. */
static int is_mixed(uint64_t number, uint64_t total, size_t offset, const unsigned char *data,
                    size_t len)
{
    for (size_t i = 0; i < len; i++) {
        int found = 0;
        for (const said_part *part = messages[number]; part && !found; part = part->next) {
            found = part->total == total && part->offset == offset && part->by->is_stripe &&
                    is_byte_of(part, i, data[i]);
        }
        if (!found) return 0;
    }
    return 1;
}

void said_check(uint64_t number, const unsigned char *data, size_t len)
{
    REQUIRE(said_is_whole(number, 0));
    size_t chunk_len = chunk_of(len);
    for (size_t offset = 0; offset < len; offset += chunk_len) {
        size_t n = len - offset < chunk_len ? len - offset : chunk_len;
        int found = 0;
        for (const said_part *part = messages[number]; part && !found; part = part->next) {
            found = counts(part, len, 0) && part->by->is_stripe && part->offset == offset &&
                    part->first && part->first->len == n &&
                    memcmp(part->first->bytes, data + offset, n) == 0;
        }
        REQUIRE(found || is_mixed(number, len, offset, data + offset, n));
    }
}
