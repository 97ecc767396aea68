/* SPDX-License-Identifier: Apache-2.0
 * way.h - a way to send tensors: both ends of a codec or of a baseline, in one process. */
#ifndef DELTAWIRE_BENCH_QUALITY_WAY_H
#define DELTAWIRE_BENCH_QUALITY_WAY_H

#include "../record.h"
#include "peer.h"

/* What one tensor took. Bytes of a codec are those of its frame, with header and table; bytes of a
 * baseline are those of its payload. */
typedef struct dw_cost {
    size_t bytes;
    double encode_s, decode_s;
} dw_cost;

typedef struct dw_way dw_way;
struct dw_way {
    /* Sends visit->x and writes what arrives to y, (T, C). */
    dw_status (*send)(dw_way *way, const dw_bench_visit *visit, float *y, dw_cost *cost,
                      dw_why *why);
    /* Values that were too large for the codes, up to now. */
    uint64_t (*clamped)(const dw_way *way);
    void (*close)(dw_way *way);
};

/* A config of deltawire; set: the tensors that will be sent. Errors: those of config, encoder and
 * decoder, with a sentence. */
dw_status dw_way_of_codec(dw_way **way, const dw_bench_record *set, const char *codec, dw_why *why);

/* A baseline. delta: it is given the change since what arrived at the sample's last visit, as
 * AQ-SGD does; a first visit is then sent as it is, with 32 bits a value. */
dw_status dw_way_of_peer(dw_way **way, const dw_bench_record *set, const dw_peer *peer,
                         double setting, bool delta, dw_why *why);

/* Seconds, from a start that does not matter. */
double dw_way_now(void);

#endif
