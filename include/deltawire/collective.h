/* SPDX-License-Identifier: Apache-2.0
 * collective.h - sums of buffers over several ranks, compressed: all-reduce, reduce-scatter,
 * all-gather and broadcast over links (libdeltawire-net). */
#ifndef DELTAWIRE_COLLECTIVE_H
#define DELTAWIRE_COLLECTIVE_H

#include "deltawire/transport.h"
#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------------------------
 * Terms (docs/collective.md has more).
 *
 *   group      the ranks 0..D-1 that compute together, each with a link to every other rank. (It
 *              has nothing to do with the codecs' groups of channels.)
 *   buffer     n floats of one dtype, in main memory or on a GPU. n may be any number, also 0.
 *   slot       the caller's number for a buffer, the same on all ranks. Codecs that keep state
 *              (delta, feedback=ef) keep it for each slot, so a slot should always name the same
 *              buffer, such as one tensor's gradient. A slot has one operation at a time.
 *   part       buffers are divided into D consecutive parts, one for each rank; see dw_group_part
 *   operation  one all-reduce, reduce-scatter, all-gather or broadcast of one slot
 *
 * All-reduce has two hops. In the first one each rank sends part r of its buffer to rank r, which
 * adds what all ranks sent, in the order of the ranks, in binary32. Rank r's own part goes through
 * the codec like the others. In the second hop rank r encodes its sum (or mean) once and sends the
 * same frames to all ranks. All ranks, r too, take the decoded result. So all ranks end with the
 * same bits, and these do not depend on the transport or on what arrives first.
 *
 * With hops = 1 each rank sends its whole buffer to all instead, and adds for itself what all sent,
 * in the same order. Nothing is encoded twice, and nobody waits for an owner. With two ranks that
 * takes as many bytes; with D ranks D / 2 times as many. The config `result` is not used then. */
typedef struct dw_group dw_group;

/* Configuration of a group. Set struct_size and zero the rest, as described in transport.h; zero
 * means the default.
 *
 * | name            | shape   | unit  | meaning                                     | default     |
 * | id              |         |       | 1..0xffff. Groups and channels share these  | -           |
 * |                 |         |       | numbers: on one link each is used once. The |             |
 * |                 |         |       | tags of a group are id << 8 ...             |             |
 * | rank, ranks     |         |       | this rank, and D, 1..256                    | -           |
 * | links           | (ranks) |       | links[r]: an open link to rank r (MPI ranks | NULL        |
 * |                 |         |       | have dw_mpi_open_links), which must outlive |             |
 * |                 |         |       | the group; links[rank] is not used          |             |
 * | uris            | (ranks) |       | instead of links: uris[r] is the URI of the | NULL        |
 * |                 |         |       | link to rank r. The group opens and closes  |             |
 * |                 |         |       | these links. The lower rank of two listens  |             |
 * | link_options    |         |       | for uris; role is ignored                   | all default |
 * | codec           |         |       | config of what ranks contribute (hop 1)     | raw:f32     |
 * | result          |         |       | config of what owners send to all (hop 2,   | codec       |
 * |                 |         |       | all-gather, broadcast)                      |             |
 * | host            |         |       | of the codecs (deltawire.h), without cuda   | NULL        |
 * | open_timeout_ms |         | ms    | limit for all ranks to open the group       | 60000       |
 * | timeout_ms      |         | ms    | how long an operation waits for a rank      | 60000       |
 * |                 |         |       | without any progress before the group fails |             |
 * | piece           |         | floats| parts are sent in pieces of this length, a  | by length of|
 * |                 |         |       | multiple of 2048, which are encoded, sent   | the buffer  |
 * |                 |         |       | and added at the same time                  |             |
 * | max_early_bytes |         | bytes | limit for messages of operations that other | 1 GiB       |
 * |                 |         |       | ranks have started and this one has not     |             |
 * | hops            |         |       | of an all-reduce: 1 or 2                    | 2           |
 * | verify          |         |       | not 0: each two ranks compare their results | 0           |
 * | allocator       |         |       | for the memory of the group; called by any  | malloc,     |
 * |                 |         |       | thread. (Codecs and links have their own)   | free        |
 *
 * id, ranks, codec, result, piece, hops and verify must be the same on all ranks. The configs are
 * copied. Buffers are flat: group=channel is refused, and group=row, the default of form=step, is
 * 128. */
typedef struct dw_group_config {
    size_t struct_size;
    uint32_t id, rank, ranks;
    uint32_t open_timeout_ms, timeout_ms, piece;
    dw_link *const *links;
    const char *const *uris;
    const dw_link_options *link_options;
    const dw_config *codec, *result;
    const dw_host *host;
    uint64_t max_early_bytes;
    dw_allocator allocator;
    uint32_t hops, verify;
} dw_group_config;

/* Opens a group, and waits until all ranks have done so. Each group has a thread, which encodes and
 * decodes while the caller computes. Errors, each with a sentence in *why, which may be NULL, and
 * *group NULL: ARGUMENT, CONFIG, MISMATCH (a rank has another config, or another number of ranks;
 * the sentence names it), TIMEOUT (names a rank that did not open the group), NO_MEMORY, VERSION,
 * PROTOCOL; with uris those of dw_link_open; those of a link that failed.
 *
 * Threads: all functions may be called from any thread, for different slots at the same time. After
 * fork() a group belongs to the parent: in the child every call returns ARGUMENT, and
 * dw_group_close does nothing. Source: collective/open.c. */
DW_API dw_status dw_group_open(dw_group **group, const dw_group_config *config, dw_why *why);

/* Closes a group, before its links. Operations that have not finished are dropped (one that has all
 * results still writes y), and the other ranks that still wait for this one get PEER. On links that
 * may lose messages it waits until the other ranks have received everything, for at most 5 seconds.
 * No other call may run or follow. NULL is allowed. */
DW_API void dw_group_close(dw_group *group);

/* ---------------------------------------------------------------------------------------------
 * Operations. All ranks start the same operations with the same values in the fields of
 * dw_group_job, except for x and y. They may do so in different orders if the slots differ;
 * operations of one slot follow each other in the same order on all ranks.
 *
 * | operation      | reads           | writes          | result                                   |
 * | ALL_REDUCE     | x: n floats     | y: n floats     | the sum of all x, or the mean            |
 * | REDUCE_SCATTER | x: n floats     | y: own part     | the own part of the sum, or of the mean. |
 * |                |                 |                 | It is not encoded after the addition     |
 * | ALL_GATHER     | x: own part     | y: n floats     | the parts of all ranks                   |
 * | BROADCAST      | x, on rank root | y: n floats     | x of rank root                           |
 *
 * Ranks whose own part is empty, and ranks other than root, may pass x or y as NULL where nothing
 * is read or written. With one rank (D = 1) every operation copies x to y; no codec is used then,
 * and no state changes. */
typedef enum dw_operation {
    DW_ALL_REDUCE = 1,
    DW_REDUCE_SCATTER = 2,
    DW_ALL_GATHER = 3,
    DW_BROADCAST = 4
} dw_operation;

/* | name        | meaning                                                               | default |
 * | operation   |                                                                       | -       |
 * | dtype       | of x and y. Sums are binary32 and are rounded to dtype once, when     | f32     |
 * |             | they are decoded into y                                               |         |
 * | slot        | the number of the buffer                                              | 0       |
 * | n           | length of the whole buffer in floats, at most 2^40                    | 0       |
 * | x           | input. It must not change until the operation has finished            | -       |
 * | y           | output; it may be x. (REDUCE_SCATTER: or the own part within x;       | -       |
 * |             | ALL_GATHER: x may be the own part within y.) While the operation is   |         |
 * |             | in progress it may change; after an error it is as it was before      |         |
 * | mean        | not 0: sums are divided by D, once, by the rank that adds them        | 0       |
 * | root        | BROADCAST: the rank that sends                                        | 0       |
 * | cuda        | not NULL: x and y are memory that this GPU reaches; see below         | NULL    |
 * | stream      | with cuda: the stream whose work precedes the operation (CUstream or  | the     |
 * |             | cudaStream_t)                                                         | default |
 * |             |                                                                       | stream  |
 *
 * Buffers on a GPU give the same bits as those in main memory, and ranks may have either. The
 * codecs work on the CPU. dw_group_start waits for the work that was enqueued on the stream, copies
 * x to pinned memory, and returns when that is done; x may change from then on. The result is
 * copied to y at the end, on a stream of the group's own, so nothing that uses y may be enqueued
 * until dw_group_wait has returned. All jobs of a group that set cuda set the same one, which must
 * stay open until the group is closed. */
typedef struct dw_group_job {
    size_t struct_size;
    dw_operation operation;
    dw_dtype dtype;
    uint64_t slot, n;
    const void *x;
    void *y;
    int mean;
    uint32_t root;
    dw_cuda *cuda;
    void *stream;
} dw_group_job;

/* Starts an operation and returns at once; it proceeds in the background, without further calls.
 * After the first operation of a slot nothing is allocated unless n grows.
 *
 * A group of channels or a block in which a value is NaN or Inf is poisoned, as in dw_encode: y has
 * NaN there on all ranks, everything else is right, and dw_group_counters.poisoned grows.
 *
 * Errors: ARGUMENT (also: an operation of this slot was started and not yet collected by
 * dw_group_wait; a stream that is capturing), LIMIT, NO_MEMORY, and with cuda
 * UNSUPPORTED and IO (CUDA failed); then nothing was started, and the call may be repeated. Or the
 * error of a group that has failed, see below. */
DW_API dw_status dw_group_start(dw_group *group, const dw_group_job *job);

/* Waits for the operation of this slot, at most timeout_ms; 0 only asks, < 0 means until it has
 * finished or the group has failed. OK: y holds the result, and the slot is free for the next
 * operation. PENDING: it is still in progress. Errors: ARGUMENT
 * (nothing was started in this slot, or another thread waits for it); or the error of a group that
 * has failed: y is unchanged, and the slot is free.
 *
 * How a group fails: if a rank dies or closes the group (PEER), owes something or takes nothing for
 * timeout_ms (TIMEOUT), starts an operation of a slot with another length, dtype, operation, mean
 * or root (MISMATCH), or a message is damaged or refused on a link that does not repair it (CORRUPT
 * and others), or a limit is exceeded (NO_MEMORY, LIMIT), or a result cannot be copied to a GPU
 * (IO; only then y is undefined, on that rank), all operations that have not finished end with this
 * error on all ranks, within timeout_ms; on a rank that has all results one may still end well.
 * dw_group_why has the sentence, and the rank to blame. From then on every
 * call that would start something returns the same error. A rank that had finished keeps its
 * result, and gets the error from its next call. Never do two ranks get OK with different bits, as
 * long as all ranks follow the protocol; with verify, whatever others do (PROTOCOL if they differ).
 *
 * State of codecs after an operation that ended with an error: with feedback=ef residuals are as
 * before the operation, up to rounding, or are dropped if memory is lacking. With delta do not
 * restore what this slot exports (docs/collective.md). Other slots are as they were. */
DW_API dw_status dw_group_wait(dw_group *group, uint64_t slot, int timeout_ms);

/* dw_group_start and dw_group_wait in one call; timeout_ms as in dw_group_wait. After PENDING, call
 * dw_group_wait. Errors: those of both. */
DW_API dw_status dw_group_run(dw_group *group, const dw_group_job *job, int timeout_ms);

/* Sets *begin and *count, in floats, to the part of a rank in a buffer of n floats. Parts are cut
 * at multiples of 2048: with t = ceil(n / 2048), part r begins at 2048 * floor(r * t / D). So small
 * buffers lie in the part of the last rank alone. Errors: ARGUMENT (rank is not below ranks). */
DW_API dw_status dw_group_part(uint64_t n, uint32_t rank, uint32_t ranks, uint64_t *begin,
                               uint64_t *count);

/* ---------------------------------------------------------------------------------------------
 * State of slots. */

/* Frees the memory of a slot: its buffers, and what codecs keep of it (prev, residuals). All ranks
 * must call it between the same operations of the slot. An unknown slot is no error. Errors:
 * ARGUMENT (an operation of the slot is in progress or was not collected), that of a group that has
 * failed. */
DW_API dw_status dw_group_forget(dw_group *group, uint64_t slot);

/* Saving the state of codecs, for checkpoints, also after the group has failed. export calls visit
 * with one piece of state after the other, until visit returns another status than DW_OK, which
 * export then returns; visit must not call the group. import takes such a piece. All ranks must
 * save between the same operations, and restore into new groups with the same configs and ranks,
 * before the first operation. The bytes are the same on all machines.
 *
 * Errors: ARGUMENT (export: an operation is in progress; import: an operation was started),
 * NO_MEMORY, FORMAT, MISMATCH (another rank or number of ranks), those of dw_encoder_import. */
typedef dw_status dw_group_saved_visit(void *context, uint64_t slot, const void *saved, size_t len);
DW_API dw_status dw_group_export(dw_group *group, dw_group_saved_visit *visit, void *context);
DW_API dw_status dw_group_import(dw_group *group, const void *saved, size_t len);

/* ---------------------------------------------------------------------------------------------
 * Reports. */
typedef struct dw_group_counters {
    size_t struct_size;         /* set by the caller: sizeof(dw_group_counters) */
    uint64_t started, finished; /* operations */
    uint64_t raw_bytes;         /* of what was encoded: floats, in their dtype */
    uint64_t encoded_bytes;     /* of the frames that were made of them */
    uint64_t sent_bytes;        /* of messages given to links, including headers and repetitions */
    uint64_t received_bytes;
    /* groups or blocks with NaN or Inf, in results, or in contributions to an all-reduce of one
     * hop; the same on all ranks */
    uint64_t poisoned;
    uint64_t repeated;           /* messages sent again, because they were lost or damaged */
    uint64_t slots, state_bytes; /* current: slots; memory that they take, without codec state */
    uint64_t codec_ns;           /* time spent encoding and decoding, by whichever thread */
    uint64_t wait_ns;            /* time that callers spent in dw_group_wait and dw_group_run */
} dw_group_counters;

/* Fills *counters, and the counters of the codecs: of what this rank contributed (hop 1) and of the
 * results that it sent (hop 2, all-gather, broadcast). Each may be NULL; the caller sets the
 * struct_size of the others first. Errors: ARGUMENT. */
DW_API dw_status dw_group_count(dw_group *group, dw_group_counters *counters,
                                dw_counters *contributed, dw_counters *results);

/* A sentence: about the last call that was refused, "" before the first one; once the group has
 * failed, about its error. Valid until the next call. *rank, unless rank is NULL: the rank that the
 * error is about, which may be this one; -1 while the group works. */
DW_API const char *dw_group_why(dw_group *group, int *rank);
#ifdef __cplusplus
}
#endif
#endif
