/* SPDX-License-Identifier: Apache-2.0
 * stage.h - one rank of the grid: its parts of the model, its links to other ranks, and what it
 * exchanges with them.
 *
 * The grid has D replicas of a pipeline of K stages; rank R is stage R % K of replica R / K. Every
 * rank has a link to the rank before and the one after it. Within a replica tensors travel on one
 * channel per link: activations go to higher ranks and gradients to lower ones, both with (sample
 * id, slice) as keys. replicas.h has the links between the ranks of one stage.
 *
 * Control messages are JSON, on tags of their own (control.h). Every rank calls gather and spread
 * in the same order, so the messages do not say which call they belong to.
 *
 * Errors: every failed call leaves a sentence in `why` of the stage. If a neighbour has sent the
 * reason why it stopped, that is the sentence. CANCELLED: this process or another one was asked to
 * stop. */
#ifndef DW_TRAINER_STAGE_H
#define DW_TRAINER_STAGE_H

#include <stdbool.h>

#include "base/clock.h"
#include "deltawire/storage.h"
#include "deltawire/threads.h"
#include "deltawire/transport.h"
#include "layout.h"
#include "model.h"
#include "settings.h"
#include "slices.h"

/* The reason why a neighbour stopped, stored by the link's thread. */
typedef struct dw_last_words {
    bool arrived; /* atomic: true once status and text are whole */
    dw_status status;
    char text[256];
} dw_last_words;

typedef struct dw_neighbour {
    uint32_t rank;
    dw_link *link;       /* NULL: there is no such neighbour */
    dw_channel *channel; /* NULL: it belongs to another replica */
    dw_channel *plain;   /* of floats, for evaluations without codecs; NULL: there are none */
    dw_last_words words;
} dw_neighbour;

typedef struct dw_replicas dw_replicas;
typedef struct dw_outer dw_outer;
typedef struct dw_tied dw_tied;

typedef struct dw_stage {
    const dw_settings *settings;
    const dw_train_hooks *hooks;
    uint32_t first_part, n_parts, total_parts;
    dw_model *model;
    dw_threads *threads;        /* NULL: the codecs use one thread */
    dw_storage *storage;        /* NULL: prev lies in memory */
    uint64_t snapshot;          /* of the storage, which the last checkpoint names; 0: none */
    uint64_t next_snapshot;     /* of the checkpoint that is being written */
    dw_neighbour before, after; /* ranks with the next lower and the next higher number */
    dw_replicas *replicas;      /* NULL: this rank has no peers */
    dw_tied *tied;              /* NULL: no other rank has a copy of a matrix of this one */
    dw_outer *outer;            /* NULL: there are no local steps */
    uint64_t compute_ns, wait_ns;
    dw_why why;
} dw_stage;

/* Creates the model, connects to the other ranks and compares greetings with them. The greeting is
 * borrowed. After an error the stage is closed, and only `why` may be read. */
dw_status dw_stage_open(dw_stage *stage, const dw_settings *settings, const dw_train_hooks *hooks,
                        json_t *greeting);

/* status < 0: sends stage->why to the neighbours before it closes the links. */
void dw_stage_close(dw_stage *stage, dw_status status);

/* Returns CANCELLED if the run was asked to stop, and the status of another rank that has stopped
 * if that has arrived. */
dw_status dw_stage_check(dw_stage *stage);

/* A slice of a micro-batch: what is sent and received at a time.
 *
 * Without the setting repeat the keys of its samples are their ids. With it they are first_key,
 * first_key + 1, ..., which other samples have had before. */
typedef struct dw_piece {
    const uint32_t *ids; /* (N): the samples */
    uint32_t N, slice;
    uint32_t slot; /* of the model, in which it is computed */
    uint64_t first_key;
    bool is_plain;     /* goes as floats, whatever the codec is */
    bool is_first_use; /* with repeat: what codecs keep of these keys belongs to other samples */
} dw_piece;

/* Send and receive a piece (N, tokens, channels of boundaries) of a tensor. Receiving waits until
 * it has arrived; with wait = 0 it does not wait and may return PENDING. The received keys must be
 * those of the piece.
 */
dw_status dw_stage_send(dw_stage *stage, dw_neighbour *to, const dw_piece *piece, float *x);
dw_status dw_stage_recv(dw_stage *stage, dw_neighbour *from, const dw_piece *piece, float *x,
                        bool wait);

/* The piece will soon be sent or received: what a file has of its keys is read ahead. */
void dw_stage_prefetch(dw_stage *stage, const dw_piece *piece);

/* Collects one value of every rank. Takes ownership of value; NULL means that there was no memory
 * for it. Rank 0 gets an array with the values of all ranks in order, the others get NULL.
 * gather_replica: only among the ranks of a replica; its first stage gets the array. join: makes
 * the array of all ranks from those of the replicas (NULL at other stages). gather calls both. */
dw_status dw_stage_gather(dw_stage *stage, json_t *own, json_t **all);
dw_status dw_stage_gather_replica(dw_stage *stage, json_t *own, json_t **all);
dw_status dw_stage_join(dw_stage *stage, json_t *list, json_t **all);

/* Sends a value of rank 0 to all ranks. Takes ownership of value. Returns a new reference.
 * spread_replica: a value of the first stage of a replica to its other stages. */
dw_status dw_stage_spread(dw_stage *stage, json_t *own, json_t **value);
dw_status dw_stage_spread_replica(dw_stage *stage, json_t *own, json_t **value);

/* Waits, at most half a second for each link, until the kernel's counters agree with those of the
 * library. */
void dw_stage_await_counters(dw_stage *stage);

/* Sets *cost to what this rank has spent so far: seconds, the bytes of its link to the next rank of
 * its replica, and the bytes of its weight gradients. */
void dw_stage_cost(dw_stage *stage, dw_train_cost *cost);

/* Adds the time since `since` to the time of computing. */
void dw_stage_computed(dw_stage *stage, uint64_t since);

#endif
