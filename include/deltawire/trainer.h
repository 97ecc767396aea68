/* SPDX-License-Identifier: Apache-2.0
 * trainer.h - the reference trainer: each call runs one rank of a pipeline, or of several
 * replicas of it, that trains a small GPT-2-style model on the bytes of a file. */
#ifndef DELTAWIRE_TRAINER_H
#define DELTAWIRE_TRAINER_H

#include "deltawire/deltawire.h"
#ifdef __cplusplus
extern "C" {
#endif

/* struct_size = sizeof(dw_train_config). Zero means the default. The first group is different for
 * each rank; all other values must be the same. A rank whose values differ gets an error that names
 * the setting.
 *
 * wide table:
 * | name                | meaning                                                       | default    |
 * | rank, stages,       | D replicas of a pipeline of K stages: there are K D ranks,    | 0 of 1, 1  |
 * | replicas            | and rank R is stage R % K of replica R / K                    |            |
 * | listen              | URI at which to wait for the next rank (all but the last)     | -          |
 * | connect             | URI at which the previous rank listens (all but the first)    | -          |
 * | replica_listen      | URI at which the same stage of other replicas can reach this  | -          |
 * |                     | rank, with port 0; "mpi://", without a rank. Only for D > 1   |            |
 * |                     | or, if tied, K > 2 stages, of which the first reaches the last|            |
 * | host                | told to other ranks in place of 0.0.0.0 or [::]               | none       |
 * | transports,         | as in dw_link_options (transport.h), for links over a backend |            |
 * | contexts            | that is not built in                                          | none       |
 * | tls, insecure_      | as in dw_link_options, but the trainer sets the names:        |            |
 * | plaintext           | "rank/0", "rank/1", ...                                       | none       |
 * | save                | directory for checkpoints; created if missing                 | none       |
 * | state               | text of dw_storage_open: prev of all samples lies in a file.  |            |
 * |                     | Rank R adds ".R" to its path                                  | in memory  |
 * | open_timeout_ms     | limit for connecting to the neighbours                        | 60000      |
 * | peer_timeout_ms     | limit for a neighbour that owes bytes and makes no progress   | 60000      |
 * | threads             | threads for the codecs; the bits do not depend on it          | 1          |
 * |---------------------|                                                               |            |
 * | forward, backward   | codec of the activations, of the gradients (dw_config_parse). | raw:f32    |
 * |                     | Boundary b, after stage b, can have its own:                  |            |
 * |                     | "direct:bits=4,1:raw"                                         |            |
 * | gradient            | codec of the weight gradients, which replicas average         | raw:f32    |
 * | layers, channels    | L blocks of C channels                                        | 4, 128     |
 * | heads, context      | H attention heads, T tokens (bytes) per sample                | 4, 128     |
 * | tied                | 1: the embedding of tokens is also the matrix of the logits   | 0          |
 * | bottleneck          | R: channels that boundaries send; learned matrices make them  | 0: C       |
 * |                     | of the C channels and the reverse                             |            |
 * | text                | file to train on, read as bytes                               | -          |
 * | text_offset         | bytes to skip at its start                                    | 0          |
 * | samples             | N samples of T + 1 bytes each to train on. A replica keeps    | all        |
 * |                     | N / D of them for all epochs                                  |            |
 * | held_out            | samples after them, for evaluation                            | 0: none    |
 * | batch               | samples of a replica per step                                 | 16         |
 * | micro_batches       | M parts of a batch, which follow each other in the pipeline   | 4, else 1  |
 * | schedule            | "gpipe": a stage may hold the activations of all M at a time; | gpipe      |
 * |                     | "1f1b": stage k of K holds at most K - k. Same bits of sums   |            |
 * | slices              | S ranges of tokens, in which a micro-batch passes through the | 1          |
 * |                     | pipeline. Keys are (sample, slice)                            |            |
 * | repeat              | consecutive steps that use the same batch. From 2 on, keys    | 1          |
 * |                     | are places in the batch, and codecs forget each batch after it|            |
 * | epochs or steps     | how long to train: give one of them                           | 1 epoch    |
 * | eval_every          | steps between held-out evaluations; there is always one after | an epoch's |
 * |                     | the last step                                                 |            |
 * | plain_eval          | 1: evaluations also compute the loss without codecs           | 0          |
 * | hops                | 1: replicas send gradients to all; 2: each adds up a part     | 2          |
 * | check_every         | steps between comparisons of the replicas' parameters         | eval_every |
 * | save_every          | steps between checkpoints                                     | at the end |
 * | lr, warmup          | peak of the learning rate, steps of linear rise to it         | 1e-3, 0    |
 * | beta1, beta2        | AdamW                                                         | 0.9, 0.95  |
 * | weight_decay        | of matrices; < 0: none                                        | 0.1        |
 * | clip                | limit for the gradient's norm over all stages; < 0: none      | 1          |
 * | local_steps         | steps that a replica takes on its own, before the replicas    | 1          |
 * |                     | average how far their parameters have moved, see outer_lr.    |            |
 * |                     | eval_every, check_every and save_every are multiples of it    |            |
 * | outer_lr, outer_    | of the step along that mean, by gradient descent with         | 0.7, 0.9   |
 * | momentum            | Nesterov momentum; < 0: no momentum. With 1 local step only   |            |
 * |                     | where momentum is given; otherwise gradients are averaged     |            |
 * | seed                | of parameters and shuffles                                    | 0          |
 * | init                | checkpoint whose parameters to start from                     | random     |
 * | resume              | checkpoint to continue: parameters, optimizer, step, codecs   | none       |
 */
struct dw_transport;
struct dw_transport_context;
struct dw_tls_options;

typedef struct dw_train_config {
    size_t struct_size;
    uint32_t rank, stages;
    const char *listen, *connect;
    const struct dw_transport *const *transports;
    const struct dw_transport_context *contexts;
    const char *save;
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
    const char *schedule;
    uint32_t slices, replicas;
    const char *replica_listen, *host, *gradient;
    uint32_t check_every, repeat;
    int plain_eval;
    uint32_t local_steps;
    double outer_lr, outer_momentum;
    int tied;
    uint32_t bottleneck;
    uint32_t hops;
    const char *state;
} dw_train_config;

/* What the run has cost so far. Seconds are those of one rank, or the mean of all. Bytes are sums
 * over all links. `forward` means from lower to higher ranks, `backward` the reverse. */
typedef struct dw_train_cost {
    double compute_s;                       /* in the model and the optimizer */
    double codec_s;                         /* in encoders and decoders */
    double wait_s;                          /* waiting for another rank or the network */
    double gradient_wait_s;                 /* the part of it that was for weight gradients */
    uint64_t bytes_forward, bytes_backward; /* sent bytes, including framing and control messages */
    uint64_t frames_forward, frames_backward; /* encoded frames alone, in bytes */
    uint64_t raw_forward, raw_backward;       /* size of the same tensors as f32 */
    uint64_t kernel_forward, kernel_backward; /* from the kernel's socket counters; 0: unknown */
    /* Weight gradients between replicas: all sent bytes; what raw f32 would take; by the kernel. */
    uint64_t bytes_gradients, raw_gradients, kernel_gradients;
    uint64_t state_bytes; /* now kept by the codecs of activations and gradients */
} dw_train_cost;

typedef struct dw_train_start {
    uint32_t stages, replicas;
    uint32_t steps, steps_per_epoch, first_step; /* first_step: 0 except after resume */
    uint32_t samples, held_out;
    uint64_t parameters;
    const char *forward, *backward, *gradient; /* canonical text */
    const char *blas; /* the processor that OpenBLAS has chosen its matrix products for */
} dw_train_start;

typedef struct dw_train_step {
    uint32_t step, epoch;   /* steps done; current epoch; both from 1 */
    double loss;            /* mean of -ln p over the tokens of the batch, before the update */
    double lr, norm;        /* norm: of the gradient, before clipping */
    double seconds, wall_s; /* of this step; since the start */
    dw_train_cost so_far;   /* seconds of this rank, bytes of all links */
} dw_train_step;

typedef struct dw_train_eval {
    uint32_t step, epoch;
    double loss; /* mean of -ln p over the held-out tokens */
    double seconds, wall_s;
    double plain_loss; /* the same without codecs; NaN without plain_eval */
} dw_train_eval;

typedef struct dw_train_summary {
    uint32_t steps;
    double train_loss;    /* mean over the last epoch, or over all steps if there were fewer */
    double held_out_loss; /* NaN without held-out samples */
    double wall_s;        /* from the first step to the last evaluation */
    double eval_s;        /* the part of wall_s spent in evaluations */
    dw_train_cost cost;   /* mean seconds of all ranks */
    uint32_t stages, replicas;
    /* (stages * replicas) elements; forward and backward are those of the link to the next rank. */
    const dw_train_cost *ranks;
    double plain_held_out_loss; /* NaN without plain_eval */
} dw_train_summary;

/* Callbacks; each may be NULL. They are called in the caller's thread, and only by rank 0, except
 * on_listening, which every rank that listens calls, and on_misfit, which every rank calls at most
 * once for each of its boundaries, in the first steps: the codec does not fit what it sends there
 * (dw_counters_misfit). Rank 0 also calls it for what a codec kept in the checkpoint to resume, and
 * cannot go on with, and once if that is of a run with other settings. sentence: says which, and
 * what to do. */
typedef struct dw_train_hooks {
    void *context;
    void (*on_listening)(void *context, const char *uri);
    void (*on_start)(void *context, const dw_train_start *start);
    void (*on_step)(void *context, const dw_train_step *step);
    void (*on_eval)(void *context, const dw_train_eval *eval);
    void (*on_save)(void *context, const char *directory, uint32_t step);
    void (*on_summary)(void *context, const dw_train_summary *summary);
    void (*on_misfit)(void *context, const char *sentence);
    /* If it becomes non-zero, all ranks end soon; this one returns CANCELLED. */
    const volatile int *stop;
} dw_train_hooks;

/* Trains, and returns when training has ended. Sets the number of OpenBLAS threads to 1. Returns
 * CANCELLED if this rank or another was stopped. Errors: ARGUMENT, CONFIG, MISMATCH, IO, CORRUPT,
 * LIMIT, NO_MEMORY and those of links, each with a sentence in *why. A rank that fails sends its
 * sentence to the others, which then return it, too. */
DW_API dw_status dw_train(const dw_train_config *config, const dw_train_hooks *hooks, dw_why *why);

/* Returns those errors of dw_train that can be found without files and peers. listen and connect
 * are not checked, so that a rank may call this before it knows them. */
DW_API dw_status dw_train_check(const dw_train_config *config, dw_why *why);

/* OpenBLAS uses its slowest matrix products on processors that are newer than itself. Returns the
 * value that the environment variable OPENBLAS_CORETYPE should have before the program starts to
 * avoid that; NULL: nothing needs to be done. */
DW_API const char *dw_train_blas_advice(void);
#ifdef __cplusplus
}
#endif
#endif
