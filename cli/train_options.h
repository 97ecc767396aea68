/* SPDX-License-Identifier: Apache-2.0
 * train_options.h - the options of `deltawire train`: their names and what --help says of them.
 * train.c reads their values. */
#ifndef DW_CLI_TRAIN_OPTIONS_H
#define DW_CLI_TRAIN_OPTIONS_H

#include <argp.h>

enum dw_train_option {
    RANK = 256,
    STAGES,
    REPLICAS,
    LISTEN,
    CONNECT,
    REPLICA_LISTEN,
    LOCAL,
    LINK,
    HOST,
    OPEN_TIMEOUT,
    THREADS,
    STATE,
    GROUP_KEY,
    CERTIFICATE,
    KEY,
    CA,
    INSECURE,
    PEER_TIMEOUT,
    FORWARD,
    BACKWARD,
    GRADIENT,
    LAYERS,
    CHANNELS,
    HEADS,
    CONTEXT,
    TIED,
    BOTTLENECK,
    TEXT,
    TEXT_OFFSET,
    SAMPLES,
    HELD_OUT,
    BATCH,
    MICRO_BATCHES,
    SCHEDULE,
    SLICES,
    REPEAT,
    EPOCHS,
    STEPS,
    EVAL_EVERY,
    PLAIN_EVAL,
    CHECK_EVERY,
    SAVE_EVERY,
    LOCAL_STEPS,
    HOPS,
    OUTER_LR,
    OUTER_MOMENTUM,
    LR,
    WARMUP,
    BETA1,
    BETA2,
    WEIGHT_DECAY,
    CLIP,
    SEED,
    INIT,
    RESUME,
    SAVE,
    LOG,
    PRINT_EVERY,
    QUIET,
    TELL
};

extern const struct argp_option dw_train_options[];
extern const char dw_train_doc[]; /* what --help says before and after the options */

#endif
