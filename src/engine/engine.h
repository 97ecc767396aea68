/* SPDX-License-Identifier: Apache-2.0
 * engine.h - an engine computes the jobs of frames where their memory lies, on the CPU or on a
 * device.
 *
 * An encoder or decoder submits the jobs of a frame (or of several), asks whether they are done,
 * and then commits the results. The CPU has finished when submit returns; a device only enqueues.
 * All addresses in jobs must be ones that the engine can reach.
 *
 * | function     | meaning                                                                        |
 * | submit       | starts n jobs, all or none. On a device they run in the order of the stream.   |
 * |              | *captured: the stream only records them, for launches of a graph later. The    |
 * |              | caller keeps the launch until it closes it. heads: heads of frames that the    |
 * |              | device completes after the jobs, or none; the CPU completes none               |
 * | reuse        | replaces jobs [first, first + n) of a captured launch, and their head if       |
 * |              | submit was given one, without calls to the device. UNSUPPORTED: the new jobs   |
 * |              | need other kernels than the captured ones                                      |
 * | done         | PENDING until jobs [first, first + n) and their head are done, then their      |
 * |              | results: sums over whole payloads and over all audited stretches. Norms are 0  |
 * |              | on a device, and payloads that have become shorter lie in the frame one behind |
 * |              | the other                                                                      |
 * | write_output | writes y of n decode jobs whose digests are right, and returns how many of its |
 * |              | values are at or past the end of binary16, if it is y's dtype. NULL: submit    |
 * |              | has written y, and such values are not counted                                 |
 * | learn        | copies a profile to where jobs will read it, to place `slot` of                |
 * |              | DW_PROFILES_MOST; the one that was there before is not used any more. NULL:    |
 * |              | jobs read it itself                                                            |
 * | channels     | of a profile that was learnt, as jobs read them                                |
 * | copy         | copies between host memory and prev that no frame in flight writes; waits only |
 * |              | for this copy. NULL: prev is host memory                                       |
 * | share        | adds a user of the launch; every user calls close                              |
 * | close        | ends one use of a launch                                                       |
 * | release      | ends the engine; all launches must be closed                                   |
 *
 * A decode job whose payload does not have the digest that the job names is not continued; done
 * returns the digest that was found. Errors: NO_MEMORY, LIMIT, UNSUPPORTED, IO, each with a
 * sentence and with nothing in flight. Threads: one at a time. */
#ifndef DW_ENGINE_H
#define DW_ENGINE_H

#include "codecs/job.h"
#include "common/pool.h"
#include "common/shared.h"
#include "deltawire/cuda.h"

typedef struct dw_launch dw_launch;

typedef union dw_jobs { /* pointers to n jobs of one kind */
    const dw_encode_job *const *encode;
    const dw_decode_job *const *decode;
} dw_jobs;

/* The head of a frame, which a device completes with the digests of the entries, the tables and the
 * header. draft: the head with all other fields filled in. If a digest of an entry is 0 in the
 * draft, it stays 0; otherwise the device replaces it. The draft is not read after the call. */
typedef struct dw_head {
    const uint8_t *draft;
    uint64_t bytes, most; /* of this draft; limit for later ones (reuse). Multiples of 16 */
    uint64_t entries;     /* offset of the entries */
    void *frame;          /* where to write it, an address that the engine can reach */
    uint32_t first, n;    /* the jobs of its entries */
} dw_head;

typedef struct dw_heads {
    const dw_head *of;
    uint32_t n;
} dw_heads;

/* The profiles that an end knows at a time: that of its config, and those given to it later. */
enum { DW_PROFILES_KEPT = 4, DW_PROFILES_MOST = 1 + DW_PROFILES_KEPT };

typedef struct dw_engine {
    const char *name;
    void *context;
    const void *device; /* NULL: the CPU. Engines of one device may share a launch */
    dw_store store;     /* for copies of prev; take NULL: the allocator's memory */
    uint64_t past_from; /* a y of so many bytes is stored past the CPU's caches (common/cpu.h) */
    dw_status (*submit)(void *context, bool encodes, dw_jobs jobs, uint32_t n, dw_heads heads,
                        void *stream, dw_launch **launch, bool *captured, dw_why *why);
    dw_status (*reuse)(dw_launch *launch, uint32_t first, dw_jobs jobs, uint32_t n,
                       const dw_head *head, dw_why *why);
    dw_status (*done)(const dw_launch *launch, uint32_t first, uint32_t n,
                      dw_chunk_result *results);
    uint64_t (*write_output)(void *context, dw_jobs jobs, uint32_t n);
    dw_status (*learn)(void *context, uint32_t slot, const struct dw_profile *profile, dw_why *why);
    dw_channels (*channels)(const void *context, const struct dw_profile *profile);
    dw_status (*copy)(void *context, void *to, const void *from, uint64_t bytes, dw_why *why);
    void (*share)(dw_launch *launch);
    void (*close)(dw_launch *launch);
    void (*release)(void *context);
} dw_engine;

/* Makes the CPU's engine. kernels NULL: the best ones that this CPU can run. Of the host,
 * parallel_for and allocator are used. false: no memory. */
bool dw_engine_cpu(dw_engine *engine, const dw_host *host, const struct dw_kernels *kernels);

/* Makes the engine of the host's CUDA device; defined in cuda/. Errors: ARGUMENT, NO_MEMORY. */
dw_status dw_engine_cuda(dw_engine *engine, const dw_config *config, const dw_host *host,
                         dw_why *why);

/* The kernels of a CPU engine, NULL for a device; and a setter (NULL: the best ones). */
const struct dw_kernels *dw_engine_kernels(const dw_engine *engine);
void dw_engine_use(dw_engine *engine, const struct dw_kernels *kernels);

/* For tests and benchmarks: selects other kernels, before the first call. The bits are the same. */
void dw_encoder_use(dw_encoder *encoder, const struct dw_kernels *kernels);
void dw_decoder_use(dw_decoder *decoder, const struct dw_kernels *kernels);

/* The digest that belongs to a sum; never 0. */
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
