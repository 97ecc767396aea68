/* SPDX-License-Identifier: Apache-2.0
 * bound.c - how large frames and replies can become: pure functions of shape and config. */
#include "frame.h"
#include "params.h"
#include "tensor.h"

/* The largest payload that an entry of this codec can have. */
static bool largest_payload(const dw_frame_info *info, uint64_t *bytes)
{
    uint64_t key, delta;
    if (info->codec == DW_CODEC_RAW) return dw_frame_payload_bytes(info, DW_ENTRY_RAW, bytes);
    if (info->codec == DW_CODEC_DIRECT) return dw_frame_payload_bytes(info, DW_ENTRY_DIRECT, bytes);
    dw_entry_kind kind = dw_dtype_of(info->key) ? DW_ENTRY_KEY_RAW : DW_ENTRY_KEY;
    if (!dw_frame_payload_bytes(info, kind, &key) ||
        !dw_frame_payload_bytes(info, DW_ENTRY_DELTA, &delta))
        return false;
    *bytes = key > delta ? key : delta; /* bits may be more than key */
    return true;
}

/* The delta codec has room for as many forgotten keys as there are samples, so that keys can be
 * told of as fast as they come. */
size_t dw_frame_bound(const dw_config *config, const dw_tensor *x)
{
    dw_params params;
    uint64_t end, one, all;
    if (!config || dw_tensor_check(x) || dw_params_resolve(&params, config, x->dtype)) return 0;
    dw_frame_info info = {.codec = params.codec,
                          .t = x->t,
                          .c = x->c,
                          .prev = params.prev,
                          .bits = params.bits,
                          .key = params.key,
                          .group = params.group,
                          .chooses = params.chooses};
    if (!largest_payload(&info, &one) ||
        !dw_frame_table_end(x->n, params.codec == DW_CODEC_DELTA ? x->n : 0, &end) ||
        !dw_size_multiply(one, x->n, &all) || !dw_size_add(all, end, &all) || all > PTRDIFF_MAX)
        return 0;
    return (size_t)all;
}

size_t dw_reply_bound(uint32_t n)
{
    return DW_REPLY_BYTES + (size_t)n * DW_HELD_BYTES;
}
