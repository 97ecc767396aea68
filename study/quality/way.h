/* SPDX-License-Identifier: Apache-2.0
 * way.h - a way to send tensors: the sender and the receiver of one codec of deltawire, or of one
 * baseline, together in one process. */
#ifndef DELTAWIRE_BENCH_QUALITY_WAY_H
#define DELTAWIRE_BENCH_QUALITY_WAY_H

#include "../record.h"
#include "peer.h"

/* What it took to send one tensor: the number of bytes, and the seconds that encoding and decoding
 * took. The bytes of a codec are those of its frame, with header and table. Those of a baseline are
 * what it wrote, which has no header. */
typedef struct dw_cost {
    size_t bytes;
    double encode_s, decode_s;
} dw_cost;

/* The object, with its functions. It belongs to whoever opened it, until close, which frees it. */
typedef struct dw_way dw_way;
struct dw_way {
    /* Sends visit->x, writes what arrives to y, which is (T, C), and writes to *cost what it took.
     * Errors: those of the codec or baseline, with a sentence in *why. */
    dw_status (*send)(dw_way *way, const dw_bench_visit *visit, float *y, dw_cost *cost,
                      dw_why *why);
    /* Returns how many values were too large for the codes in all tensors sent until now. */
    uint64_t (*outside)(const dw_way *way);
    void (*close)(dw_way *way);
};

/* Opens the way through an encoder and a decoder of deltawire. `codec` is the text of their config,
 * and `set` has the tensors that will be sent. Errors: those of dw_config_parse, and of creating an
 * encoder and a decoder, with a sentence in *why; *way is then unchanged. */
dw_status dw_way_of_codec(dw_way **way, const dw_bench_record *set, const char *codec, dw_why *why);

/* Opens the way through a baseline with one setting. `set` has the tensors that will be sent.
 * Without delta, the baseline encodes the tensors themselves. With delta, it encodes what AQ-SGD
 * sends: the difference between the tensor and what arrived at the sample's previous visit. Samples
 * that come for the first time are then sent as 32-bit floats. Errors: NO_MEMORY, with a sentence
 * in *why; *way is then unchanged. */
dw_status dw_way_of_peer(dw_way **way, const dw_bench_record *set, const dw_peer *peer,
                         double setting, bool delta, dw_why *why);

#endif
