/* SPDX-License-Identifier: Apache-2.0
 * trainer.h - the reference pipeline trainer: one call runs one rank of a GPipe pipeline that
 * trains a small GPT-2-style model on the bytes of a file, over channels to its neighbours. */
#ifndef DELTAWIRE_TRAINER_H
#define DELTAWIRE_TRAINER_H

#include "deltawire/deltawire.h"

#ifdef __cplusplus
extern "C" {
#endif

/* struct_size = sizeof(dw_train_config); zero means default. All ranks give the same values, but
 * for the first group; a rank that differs is told which setting it is.
 *
 * wide table:
 * | name                | meaning                                                       | default    |
 * | rank, stages        | this process is stage `rank` of `stages`                      | 0 of 1     |
 * | listen              | URI where the next rank is awaited (all but the last)         | -          |
 * | connect             | URI where the rank before listens (all but the first)         | -          |
 * | transports,         | as in dw_link_options (transport.h): for links over a backend |            |
 * | transport_context   | that is not built in                                          | none       |
 * | tls, insecure_      | as in dw_link_options, but the names are the trainer's:       |            |
 * | plaintext           | "rank/0", "rank/1", ...                                       | none       |
 * | save                | directory for checkpoints, made where missing                 | none       |
 * | record              | directory for the tensors that this rank sends, made where    | none       |
 * |                     | missing; its files: trainer/record.h                          |            |
 * | open_timeout_ms     | until the neighbours have met                                 | 60000      |
 * | peer_timeout_ms     | a neighbour that owes bytes, without progress                 | 60000      |
 * | threads             | that share the work of the codecs; the bits are the same      | 1          |
 * |---------------------|                                                               |            |
 * | forward, backward   | codec of the activations, of the gradients (dw_config_parse)  | raw:f32    |
 * | layers, channels    | L blocks of C channels                                        | 4, 128     |
 * | heads, context      | H attention heads, T tokens (bytes) a sample                  | 4, 128     |
 * | text                | file to train on, read as bytes                               | -          |
 * | text_offset         | bytes of it to skip                                           | 0          |
 * | samples             | N of T + 1 bytes each to train on                             | all        |
 * | held_out            | samples behind them to measure on                             | 0: none    |
 * | batch               | samples of a step                                             | 16         |
 * | micro_batches       | M parts of a batch, in flight one behind the other            | 4, else 1  |
 * | epochs or steps     | how long: give one                                            | 1 epoch    |
 * | eval_every          | steps from one held-out evaluation to the next; the last step | an epoch's |
 * |                     | is always followed by one                                     |            |
 * | save_every          | steps from one checkpoint to the next                         | at the end |
 * | lr, warmup          | peak of the learning rate, steps of linear rise to it         | 1e-3, 0    |
 * | beta1, beta2        | AdamW                                                         | 0.9, 0.95  |
 * | weight_decay        | of matrices; < 0: none                                        | 0.1        |
 * | clip                | norm of the gradient over all stages; < 0: no clipping        | 1          |
 * | seed                | of parameters and shuffles                                    | 0          |
 * | init                | checkpoint whose parameters to start from                     | random     |
 * | resume              | checkpoint to go on from: parameters, optimizer, step         | none       |
 */
struct dw_transport;
struct dw_tls_options;

typedef struct dw_train_config {
    size_t struct_size;
    uint32_t rank, stages;
    const char *listen, *connect;
    const struct dw_transport *const *transports;
    void *transport_context;
    const char *save;
    const char *record;
    uint32_t open_timeout_ms, peer_timeout_ms;
    uint32_t threads;

    const char *forward, *backward;
    uint32_t layers, channels, heads, context;
    const char *text;
    uint64_t text_offset;
    uint32_t samples, held_out;
    uint32_t batch, micro_batches;
    uint32_t epochs, steps;
    uint32_t eval_every, save_every;
    double lr;
    uint32_t warmup;
    double beta1, beta2, weight_decay, clip;
    uint64_t seed;
    const char *init, *resume;
    const struct dw_tls_options *tls;
    int insecure_plaintext;
} dw_train_config;

/* What the pipeline did so far. Seconds are those of one rank or the mean of all; bytes are the sum
 * over all links: payload, framing and replies, so `forward` is all that went from lower to higher
 * ranks. */
typedef struct dw_train_cost {
    double compute_s;                       /* in the model and the optimizer */
    double codec_s;                         /* in encoders and decoders */
    double wait_s;                          /* for a neighbour or the wire */
    uint64_t bytes_forward, bytes_backward; /* on the wire, framing and control messages included */
    uint64_t frames_forward, frames_backward; /* encoded frames alone, bytes */
    uint64_t raw_forward, raw_backward;       /* what the same tensors take as f32 */
    uint64_t kernel_forward, kernel_backward; /* by the kernel's socket counters; 0: unknown */
} dw_train_cost;

typedef struct dw_train_start {
    uint32_t stages, steps, steps_per_epoch, first_step; /* first_step: 0 but for resume */
    uint32_t samples, held_out;
    uint64_t parameters;
    const char *forward, *backward; /* canonical */
    const char *blas;               /* the machine that the matrix products are made for */
} dw_train_start;

typedef struct dw_train_step {
    uint32_t step, epoch;   /* steps done, epoch under way; both from 1 */
    double loss;            /* mean of -ln p over the tokens of the batch, before the update */
    double lr, norm;        /* of the gradient, before clipping */
    double seconds, wall_s; /* of this step; since the start */
    dw_train_cost so_far;   /* this rank's seconds, all links' bytes */
} dw_train_step;

typedef struct dw_train_eval {
    uint32_t step, epoch;
    double loss; /* mean of -ln p over the held-out tokens */
    double seconds, wall_s;
} dw_train_eval;

typedef struct dw_train_summary {
    uint32_t steps;
    double train_loss;    /* mean over the last epoch, or over all steps where they are fewer */
    double held_out_loss; /* NaN without held-out samples */
    double wall_s;        /* first step to last evaluation */
    double eval_s;        /* of that, in evaluations */
    dw_train_cost cost;   /* mean seconds of all ranks */
    uint32_t stages;
    /* (stages): bytes of a rank are those of its link to the next rank. */
    const dw_train_cost *ranks;
} dw_train_summary;

/* All may be NULL. All but on_listening are called by rank 0 alone, on the caller's thread. */
typedef struct dw_train_hooks {
    void *context;
    void (*on_listening)(void *context, const char *uri);
    void (*on_start)(void *context, const dw_train_start *start);
    void (*on_step)(void *context, const dw_train_step *step);
    void (*on_eval)(void *context, const dw_train_eval *eval);
    void (*on_save)(void *context, const char *directory, uint32_t step);
    void (*on_summary)(void *context, const dw_train_summary *summary);
    const volatile int *stop; /* becomes non-zero: all ranks end soon, this one with CANCELLED */
} dw_train_hooks;

/* Trains. Blocks until the end; sets the number of OpenBLAS threads to 1. CANCELLED: this rank or
 * another was stopped. Errors: ARGUMENT, CONFIG, MISMATCH, IO, CORRUPT, LIMIT, NO_MEMORY, the
 * link's; one sentence in *why for each. A rank that fails tells the others, which then fail with
 * its sentence. */
DW_API dw_status dw_train(const dw_train_config *config, const dw_train_hooks *hooks, dw_why *why);

/* The errors of dw_train that need no file and no peer: for all but listen and connect, so that a
 * rank may look before it asks for them. */
DW_API dw_status dw_train_check(const dw_train_config *config, dw_why *why);

/* Newer CPUs than OpenBLAS knows get its slowest products. The name that OPENBLAS_CORETYPE must
 * have in the environment, before the program starts, to get those made for what this CPU can do;
 * NULL: all is well. */
DW_API const char *dw_train_blas_advice(void);

#ifdef __cplusplus
}
#endif
#endif
