/* SPDX-License-Identifier: Apache-2.0
 * tables.c - access to internals of the library for the benchmark, in C. */
#include "tables.h"

#include "codecs/audit.h"
#include "engine/engine.h"
#include "kernels/kernels.h"

const char *dw_bench_table(int i)
{
    static const char *const names[] = {"vbmi2", "avx512", "avx2", "neon", "c"};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        if (dw_kernels_find(names[k]) && i-- == 0) return names[k];
    return NULL;
}

/* Cached, because asking the processor for its features takes longer than a small digest, and a
 * thousand times as long in a virtual machine. */
static const dw_kernels *kernels;

void dw_bench_use(const char *table, dw_encoder *encoder, dw_decoder *decoder)
{
    kernels = dw_kernels_find(table);
    dw_encoder_use(encoder, kernels);
    dw_decoder_use(decoder, kernels);
}

uint64_t dw_bench_state_digest(const dw_tensor *prev)
{
    return dw_state_sum(kernels, prev->data, prev->dtype, (uint64_t)prev->t * prev->c,
                        (dw_audit){1, 0});
}

uint64_t dw_bench_payload_digest(const void *payload, uint64_t bytes)
{
    return kernels->digest_bytes(payload, 0, bytes / 16 * 16);
}
