/* SPDX-License-Identifier: Apache-2.0
 * tables.h - the kernel tables that this processor can run, by name. */
#ifndef DELTAWIRE_BENCH_TABLES_H
#define DELTAWIRE_BENCH_TABLES_H

#include "deltawire/deltawire.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The name of table i, best first; NULL after the last. */
const char *dw_bench_table(int i);

/* Makes encoders and decoders use this table. */
void dw_bench_use(const char *table, dw_encoder *encoder, dw_decoder *decoder);

/* The state digest of a whole prev, computed as the codec does it with audit = 1, by the table of
 * the last dw_bench_use. */
uint64_t dw_bench_state_digest(const dw_tensor *prev);

/* The payload digest, computed as the codec does it. */
uint64_t dw_bench_payload_digest(const void *payload, uint64_t bytes);

#ifdef __cplusplus
}
#endif
#endif
