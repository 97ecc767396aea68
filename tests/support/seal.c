/* SPDX-License-Identifier: Apache-2.0
 * seal.c - computes the digests of a changed frame again, so that they match. */
#include "support/seal.h"

#include "base/bytes.h"
#include "codecs/audit.h"
#include "codecs/plan.h"
#include "engine/engine.h"
#include "kernels/kernels.h"
#include "wire/frame.h"

enum { AT_N = 24, AT_FORGOTTEN = 36, AT_P = 41, AT_TABLE_DIGEST = 64, AT_HEADER_DIGEST = 72 };
enum { ENTRY_BYTES_AT = 24, ENTRY_DIGEST_AT = 32 };

static uint64_t tables_end(const uint8_t *frame)
{
    uint64_t end = UINT64_MAX;
    (void)dw_frame_table_end(frame[AT_P], (uint32_t)dw_get(frame + AT_N, 4),
                             (uint32_t)dw_get(frame + AT_FORGOTTEN, 4), &end);
    return end;
}

size_t test_entries_at(const uint8_t *frame)
{
    return (size_t)dw_frame_tables(frame[AT_P]);
}

void test_seal_tables(uint8_t *frame, size_t len)
{
    if (len < DW_HEADER_BYTES) return;
    uint64_t end = tables_end(frame);
    if (end <= len)
        dw_put(frame + AT_TABLE_DIGEST,
               dw_digest_bytes(frame + DW_HEADER_BYTES, end - DW_HEADER_BYTES), 8);
    dw_put(frame + AT_HEADER_DIGEST, dw_digest_bytes(frame, AT_HEADER_DIGEST), 8);
}

void test_seal(uint8_t *frame, size_t len)
{
    if (len < DW_HEADER_BYTES) return;
    uint64_t at = tables_end(frame);
    uint32_t n = (uint32_t)dw_get(frame + AT_N, 4);
    for (uint32_t i = 0; at <= len && i < n; i++) {
        uint8_t *entry = frame + test_entries_at(frame) + (size_t)i * DW_ENTRY_BYTES;
        uint64_t bytes = dw_get(entry + ENTRY_BYTES_AT, 8);
        if (bytes > len - at) break;
        if (bytes && bytes % 16 == 0)
            dw_put(entry + ENTRY_DIGEST_AT,
                   dw_digest_of_sum(dw_kernels_c.digest_bytes(frame + at, 0, bytes)), 8);
        at += bytes;
    }
    test_seal_tables(frame, len);
}

size_t test_skip_frame(const uint8_t *after, const dw_decoder *decoder, uint8_t *frame, size_t cap)
{
    dw_header header;
    dw_entry entry, before;
    dw_tensor prev;
    const char *why;
    uint64_t end = 0;
    if (dw_frame_open_header(after, DW_HEADER_BYTES, &header, &why)) return 0;
    dw_frame_get_entry(after, &header, 0, &before);
    uint64_t parameters = dw_digest_bytes(after + DW_HEADER_BYTES,
                                          (uint64_t)header.n_parameters * DW_PARAMETER_BYTES);
    if (header.n != 1 || dw_decoder_peek(decoder, before.key, &prev)) return 0;
    uint64_t base = dw_frame_chain(&header, parameters, prev.dtype, &before);
    uint32_t every =
        (uint32_t)dw_get(after + DW_HEADER_BYTES + 8 * (header.n_parameters - 1u) + 4, 4);
    header.sequence++;
    header.n_forgotten = 0;
    (void)dw_frame_table_end(header.n_parameters, 1, 0, &end);
    header.length = end;
    if (end > cap) return 0;
    dw_audit audit = dw_audit_of(every == DW_AUDIT_NEVER ? 0 : every, before.key, header.sequence);
    uint64_t sum =
        dw_state_sum(&dw_kernels_c, prev.data, prev.dtype, (uint64_t)prev.t * prev.c, audit);
    entry = (dw_entry){.key = before.key,
                       .role = DW_ROLE_SKIP,
                       .base_chain = base,
                       .state_digest = audit.every ? dw_digest_of_sum(sum) : 0};
    dw_frame_put_parameters(frame, after + DW_HEADER_BYTES, header.n_parameters);
    dw_frame_put_entry(frame, &header, 0, &entry);
    dw_frame_finalize(frame, &header);
    return (size_t)end;
}
