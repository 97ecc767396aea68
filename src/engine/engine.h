/* SPDX-License-Identifier: Apache-2.0
 * engine.h - where the memory lives: what computes a frame's jobs, on the CPU or on a device.
 *
 * An encoder or decoder submits the jobs of a frame (or of several), asks whether they are done,
 * and then commits what they found. The CPU is done when submit returns; a device enqueues and
 * returns. All addresses in jobs are ones that the engine can reach.
 *
 * | function | meaning                                                                            |
 * | submit   | n jobs, all or none. On a device by the order of the stream; *captured: the stream |
 * |          | only records, for later launches of a graph. The caller keeps the launch until it  |
 * |          | closes it. heads: those that the device completes behind the jobs, or none; the    |
 * |          | CPU has none                                                                       |
 * | reuse    | jobs [first, first + n) of a captured launch become others, without a word to the  |
 * |          | device; with a head, where submit was given one for them. UNSUPPORTED: they would  |
 * |          | need other kernels than the captured ones                                          |
 * | done     | PENDING until jobs [first, first + n) are done, and the head over them, then what  |
 * |          | they found: sums over whole payloads and over all audited stretches. Norms are 0   |
 * |          | on a device                                                                        |
 * | emit     | y of n decode jobs whose digests are right. NULL: submit has written it            |
 * | copy     | between memory of this program's and prev, which nothing in flight writes; waits   |
 * |          | for nothing but itself. NULL: prev is memory of this program's                     |
 * | share    | one user more of a launch, each of whom will close it                              |
 * | release  | the encoder or decoder ends; its launches are closed                               |
 *
 * A decode whose payload does not have the digest that its job names is not gone on with; done says
 * what the digest is. Errors: NO_MEMORY, LIMIT, UNSUPPORTED, IO, each with a sentence and nothing
 * in flight. Threads: one at a time. */
#ifndef DW_ENGINE_H
#define DW_ENGINE_H

#include "base/mem.h"
#include "base/shared.h"
#include "codecs/job.h"
#include "deltawire/cuda.h"

typedef struct dw_launch dw_launch;

typedef union dw_jobs { /* pointers to n jobs of one kind */
    const dw_encode_job *const *encode;
    const dw_decode_job *const *decode;
} dw_jobs;

/* A head to be completed: the digests of its entries, of tables and header. draft: all the rest of
 * it; where an entry is to have a digest, a word that is not 0. It is read by the call alone. */
typedef struct dw_head {
    const uint8_t *draft;
    uint64_t bytes, most; /* of this draft, and of any that takes its place: multiples of 16 */
    uint64_t entries;     /* where they begin */
    void *frame;          /* where it goes: an address of the engine's */
    uint32_t first, n;    /* its entries' jobs */
} dw_head;

typedef struct dw_heads {
    const dw_head *of;
    uint32_t n;
} dw_heads;

typedef struct dw_engine {
    const char *name;
    void *context;
    const void *device; /* NULL: the CPU. Engines of one device may share a launch */
    dw_store store;     /* of copies of prev; take NULL: the allocator's memory */
    dw_status (*submit)(void *context, bool encodes, dw_jobs jobs, uint32_t n, dw_heads heads,
                        void *stream, dw_launch **launch, bool *captured, dw_why *why);
    dw_status (*reuse)(dw_launch *launch, uint32_t first, dw_jobs jobs, uint32_t n,
                       const dw_head *head, dw_why *why);
    dw_status (*done)(const dw_launch *launch, uint32_t first, uint32_t n,
                      dw_chunk_result *results);
    void (*emit)(void *context, dw_jobs jobs, uint32_t n);
    dw_status (*copy)(void *context, void *to, const void *from, uint64_t bytes, dw_why *why);
    void (*share)(dw_launch *launch);
    void (*close)(dw_launch *launch);
    void (*release)(void *context);
} dw_engine;

/* The engine of this processor. kernels NULL: the best that it has. config: of the encoder or
 * decoder, whose parallel_for it calls and whose allocator it uses. false: no memory. */
bool dw_engine_cpu(dw_engine *engine, const dw_config *config, const struct dw_kernels *kernels);

/* The engine of a CUDA device, in cuda/. Errors: ARGUMENT, NO_MEMORY. */
dw_status dw_engine_cuda(dw_engine *engine, const dw_config *config, dw_cuda *cuda,
                         dw_cuda_place place, dw_why *why);

/* The kernels of a CPU engine, NULL on a device; and others instead (NULL: the best). */
const struct dw_kernels *dw_engine_kernels(const dw_engine *engine);
void dw_engine_use(dw_engine *engine, const struct dw_kernels *kernels);

/* For tests and the benchmark, before the first call: other kernels than the best. The bits are the
 * same. */
void dw_encoder_use(dw_encoder *encoder, const struct dw_kernels *kernels);
void dw_decoder_use(dw_decoder *decoder, const struct dw_kernels *kernels);

/* The digest whose sum this is: never 0. */
DW_INLINE uint64_t dw_digest_of_sum(uint64_t sum)
{
    sum ^= sum >> 33;
    sum *= UINT64_C(0xC2B2AE3D27D4EB4F);
    sum ^= sum >> 29;
    sum *= UINT64_C(0x165667B19E3779F9);
    sum ^= sum >> 32;
    return sum ? sum : 1;
}

#endif
