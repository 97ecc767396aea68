/* SPDX-License-Identifier: Apache-2.0
 * train.c - `deltawire train`: options, and one rank run with them. */
#include "train.h"

#include <argp.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "complain.h"
#include "keys.h"
#include "local.h"
#include "numbers.h"
#include "place.h"
#include "report.h"
#include "rows.h"
#include "signals.h"

enum {
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
    RECORD,
    LOG,
    PRINT_EVERY,
    QUIET,
    TELL
};

/* argp sorts the options of a group by name, so each text must be understood alone. */
static const struct argp_option options[] = {
    {0, 0, 0, 0, "Place of this process among all ranks:", 1},
    {"local", LOCAL, "N", 0,
     "Start all N ranks as processes of this machine; replaces --rank, --listen, --connect and "
     "--replica-listen",
     1},
    {"link", LINK, "URI", 0,
     "With --local: the transport between the ranks (default: tcp://127.0.0.1:0; port 0 picks a "
     "free port). Without --local: how ranks that a launcher started find each other: mpi:// "
     "(mpirun), env:// (torchrun or srun; reads MASTER_ADDR, MASTER_PORT and the launcher's rank), "
     "tcp://HOST:PORT (where rank 0 is to listen) or file:///PATH (which all ranks can reach)",
     1},
    {"host", HOST, "ADDRESS", 0,
     "With --link tcp://, env:// or file://: the name or address of this machine for the other "
     "ranks (default: determined automatically)",
     1},
    {"rank", RANK, "R", 0,
     "Run rank R, counted from 0: stage R % K of replica R / K (rounded down); needs --stages", 1},
    {"stages", STAGES, "K", 0,
     "Number of stages in the pipeline (default with --local or a launcher: all ranks, divided by "
     "--replicas)",
     1},
    {"replicas", REPLICAS, "D", 0,
     "Number of replicas of the pipeline, which train on different samples and average their "
     "weight gradients; there are K times D ranks (default: 1)",
     1},
    {"listen", LISTEN, "URI", 0, "Address on which to listen for rank R + 1", 1},
    {"connect", CONNECT, "URI", 0, "Address on which rank R - 1 listens", 1},
    {"replica-listen", REPLICA_LISTEN, "URI", 0,
     "Address of this machine, with port 0, on which the same stage of other replicas can reach "
     "this rank; only with --rank and --replicas or --tied",
     1},
    {"open-timeout", OPEN_TIMEOUT, "SECONDS", 0,
     "Time in which the neighbouring ranks must connect at the start (default: 60)", 1},
    {"peer-timeout", PEER_TIMEOUT, "SECONDS", 0,
     "Time after which a neighbour that should send data and does not counts as lost (default: 60)",
     1},
    {"threads", THREADS, "N", 0, "Threads for compression and decompression (default: 1)", 1},

    {0, 0, 0, 0, "Security of TCP connections (see docs/deploy.md):", 2},
    {"group-key", GROUP_KEY, "FILE", 0,
     "Secret key of the run, as created by `deltawire keygen`; the same at all ranks (default: the "
     "file that the environment variable DELTAWIRE_GROUP_KEY_FILE names)",
     2},
    {"certificate", CERTIFICATE, "FILE", 0,
     "Instead of --group-key: certificate of this rank, in PEM format, with the URI "
     "deltawire:rank/R in it; needs --key and --ca",
     2},
    {"key", KEY, "FILE", 0, "Private key that belongs to --certificate", 2},
    {"ca", CA, "FILE", 0, "Certificate of the authority that signed the certificates of all ranks",
     2},
    {"insecure-plaintext", INSECURE, 0, 0,
     "Connect to other machines without encryption and authentication: whoever can reach the "
     "network can read and change the data, and take part. Without this option and without keys, "
     "TCP connections are limited to the loopback interface",
     2},

    {0, 0, 0, 0, "Compression (the same at all ranks):", 3},
    {"forward", FORWARD, "CODEC", 0,
     "Codec for activations, which go from rank R to R + 1 (default: raw:f32). If several codecs "
     "are given, separated by | and ordered from the best quality to the smallest size, the "
     "sending rank chooses one of them for every tensor, and prints each change with its reason. "
     "The word auto stands for a list of usual codecs. Boundary B, between stages B and B + 1, can "
     "have codecs of its own, after its number and a colon: "
     "delta:bits=4,1:topk:keep=0.1,2:raw:f32. "
     "The first entry may have no number, and is for all boundaries without an entry",
     3},
    {"backward", BACKWARD, "CODEC", 0,
     "Codec for gradients, which go from rank R + 1 to R (default: raw:f32). Several codecs, auto, "
     "and a codec for every boundary can be given as for --forward",
     3},
    {"gradient", GRADIENT, "CODEC", 0,
     "Codec for weight gradients, which replicas average, such as direct:bits=4; only with "
     "--replicas (default: raw:f32)",
     3},

    {0, 0, 0, 0, "Model (the same at all ranks):", 4},
    {"layers", LAYERS, "L", 0, "Number of transformer blocks (default: 4)", 4},
    {"channels", CHANNELS, "C", 0, "Width of the model (default: 128)", 4},
    {"heads", HEADS, "H", 0, "Attention heads of a block (default: 4)", 4},
    {"context", CONTEXT, "T", 0, "Length of a sample in tokens, which are bytes (default: 128)", 4},

    {"bottleneck", BOTTLENECK, "R", 0,
     "Send R channels between stages in place of C: a matrix that is trained with the model makes "
     "them of the C channels before sending, and another one makes C channels of them (default: no "
     "bottleneck)",
     4},
    {"tied", TIED, 0, 0,
     "Use one matrix as the embedding of tokens and to score tokens. The first and the last stage "
     "have a copy each, whose gradients are added up, in one operation with the average over "
     "--replicas. With --rank and three or more stages, these two ranks need --replica-listen",
     4},

    {0, 0, 0, 0, "Data (the same at all ranks):", 5},
    {"text", TEXT, "FILE", 0, "Train on the bytes of FILE (required)", 5},
    {"text-offset", TEXT_OFFSET, "BYTES", 0, "Skip the first BYTES of the text (default: 0)", 5},
    {"samples", SAMPLES, "N", 0,
     "Train on N samples, each of T + 1 bytes with T from --context (default: as many as the text "
     "has). Each of D replicas keeps N / D of them for all epochs",
     5},
    {"held-out", HELD_OUT, "N", 0,
     "Evaluate on the N samples that follow the training samples in the text (default: 0)", 5},

    {0, 0, 0, 0, "Training (the same at all ranks):", 6},
    {"batch", BATCH, "N", 0, "Samples in a step of each replica (default: 16)", 6},
    {"micro-batches", MICRO_BATCHES, "M", 0,
     "Parts of a batch, which pass through the pipeline one after another; must divide the batch "
     "(default: 4, or 1 if 4 does not)",
     6},
    {"schedule", SCHEDULE, "NAME", 0,
     "Order of the micro-batches: gpipe, in which a stage may hold the activations of all of them; "
     "or 1f1b, in which stage R of K holds at most K - R, but waits more often. Both give the same "
     "sums (default: gpipe)",
     6},
    {"slices", SLICES, "S", 0,
     "Parts of nearly equal length into which the tokens of a micro-batch are cut; each passes "
     "through the pipeline on its own, and is compressed on its own, so stages wait less if there "
     "are few micro-batches. At most as many as tokens in a sample (default: 1)",
     6},
    {"repeat", REPEAT, "N", 0,
     "Train on every batch in N consecutive steps. From 2 on, codecs such as delta keep the state "
     "of "
     "one batch and not of every sample, for data whose samples never come again (default: 1)",
     6},
    {"epochs", EPOCHS, "N", 0,
     "Pass over the samples N times, with --repeat R in R steps per batch (default: 1)", 6},
    {"steps", STEPS, "N", 0, "Train for N steps; replaces --epochs", 6},
    {"lr", LR, "X", 0,
     "Peak of the learning rate, which falls linearly to 0 after the warm-up (default: 1e-3)", 6},
    {"warmup", WARMUP, "N", 0,
     "Steps in which the learning rate rises linearly to its peak (default: 0)", 6},
    {"local-steps", LOCAL_STEPS, "N", 0,
     "With --replicas: every replica takes N steps on its own, then the replicas average how far "
     "their parameters have moved, in place of gradients (default: 1, which averages gradients)",
     6},
    {"outer-lr", OUTER_LR, "X", 0,
     "With --local-steps: learning rate of the step along the average (default: 0.7)", 6},
    {"outer-momentum", OUTER_MOMENTUM, "X", 0,
     "With --local-steps: its Nesterov momentum; 0 switches it off (default: 0.9)", 6},
    {"beta1", BETA1, "X", 0, "AdamW: decay rate of the average of the gradient (default: 0.9)", 6},
    {"beta2", BETA2, "X", 0, "AdamW: decay rate of the average of its square (default: 0.95)", 6},
    {"weight-decay", WEIGHT_DECAY, "X", 0,
     "AdamW: weight decay of the matrices; 0 switches it off (default: 0.1)", 6},
    {"clip", CLIP, "X", 0,
     "Largest norm of the gradient over all ranks; 0 switches clipping off (default: 1)", 6},
    {"seed", SEED, "N", 0,
     "Seed of the initial parameters and of the order of samples (default: 0)", 6},
    {"init", INIT, "DIR", 0, "Start from the parameters of the checkpoint in DIR", 6},
    {"resume", RESUME, "DIR", 0, "Continue the run that saved the checkpoint in DIR", 6},

    {0, 0, 0, 0, "Output:", 7},
    {"save", SAVE, "DIR", 0, "Save a checkpoint to DIR at the end", 7},
    {"record", RECORD, "DIR", 0,
     "Write to DIR, before compression, the tensors that this rank sends", 7},
    {"save-every", SAVE_EVERY, "N", 0,
     "With --save: also save a checkpoint every N steps (the same at all ranks)", 7},
    {"eval-every", EVAL_EVERY, "N", 0,
     "Compute the held-out loss every N steps and at the end (the same at all ranks; default: "
     "every "
     "epoch)",
     7},
    {"plain-eval", PLAIN_EVAL, 0, 0,
     "With every evaluation also compute the held-out loss without codecs, which takes as long as "
     "sending the activations as floats (the same at all ranks)",
     7},
    {"check-every", CHECK_EVERY, "N", 0,
     "Compare the parameters of all replicas every N steps and at the end; if they differ, the run "
     "ends with an error (the same at all ranks; default: with every evaluation)",
     7},
    {"log", LOG, "FILE", 0,
     "Write JSON Lines to FILE: a line per step and per evaluation, then a summary (rank 0 only)",
     7},
    {"print-every", PRINT_EVERY, "N", 0, "Print every N-th step (default: 1)", 7},
    {"quiet", QUIET, 0, 0, "Print only the start and the summary", 7},

    {"tell", TELL, "FD", OPTION_HIDDEN, 0, 8},
    {0},
};

static const char doc[] =
    "Trains a small GPT-2-style model on the bytes of a file, as a pipeline of stages, or as "
    "several replicas of one."
    "\v"
    "Examples. Two stages on this machine, over a simulated network of 20 Mbit/s:\n"
    "\n"
    "  deltawire train --local 2 --text book.txt --epochs 3 --samples 240 \\\n"
    "    --held-out 64 --link shaped:rate=20mbit,delay=5ms/tcp://127.0.0.1:0 \\\n"
    "    --forward delta:bits=4 --backward direct:bits=8\n"
    "\n"
    "The same codecs on two machines:\n"
    "\n"
    "  first$  deltawire train --rank 0 --stages 2 --listen tcp://0.0.0.0:7000 \\\n"
    "            --group-key run.key --text book.txt \\\n"
    "            --forward delta:bits=4 --backward direct:bits=8\n"
    "  second$ deltawire train --rank 1 --stages 2 --connect tcp://first:7000 \\\n"
    "            --group-key run.key --text book.txt \\\n"
    "            --forward delta:bits=4 --backward direct:bits=8\n"
    "\n"
    "A stage in the middle of the pipeline gets both --listen and --connect. Two replicas\n"
    "of two stages on this machine, with everything compressed:\n"
    "\n"
    "  deltawire train --local 4 --stages 2 --replicas 2 --text book.txt \\\n"
    "    --forward delta:bits=4 --backward direct:bits=8 --gradient direct:bits=4\n"
    "\n"
    "Four stages, started by a launcher:\n"
    "\n"
    "  mpirun -n 4 deltawire train --link mpi:// --text book.txt\n"
    "  export DELTAWIRE_GROUP_KEY_FILE=run.key # made by: deltawire keygen run.key\n"
    "  srun -n 4 deltawire train --link env:// --text book.txt\n"
    "\n"
    "Exit status: 0 success, 1 the run failed, 2 wrong usage, 130 stopped by Ctrl-C (128 + N: by "
    "signal N).";

typedef struct arguments {
    dw_train_config config;
    dw_report_options report;
    bool has_rank; /* --rank was given */
    uint32_t local;
    const char *link, *host;
    dw_tls_options tls;
} arguments;

static const char *option_name(int key)
{
    for (const struct argp_option *o = options; o->name || o->doc; o++)
        if (o->key == key) return o->name;
    return "?";
}

/* Returns where to store the value of an option that takes a whole number of 32 bits; NULL for
 * other options. *least: the smallest number that is allowed. */
static uint32_t *whole_place(arguments *a, int key, uint64_t *least)
{
    dw_train_config *c = &a->config;
    *least = key == RANK || key == HELD_OUT || key == WARMUP ? 0 : 1;
    switch (key) {
    case LOCAL: return &a->local;
    case RANK: return &c->rank;
    case STAGES: return &c->stages;
    case REPLICAS: return &c->replicas;
    case LAYERS: return &c->layers;
    case CHANNELS: return &c->channels;
    case HEADS: return &c->heads;
    case CONTEXT: return &c->context;
    case BOTTLENECK: return &c->bottleneck;
    case SAMPLES: return &c->samples;
    case HELD_OUT: return &c->held_out;
    case BATCH: return &c->batch;
    case MICRO_BATCHES: return &c->micro_batches;
    case SLICES: return &c->slices;
    case REPEAT: return &c->repeat;
    case LOCAL_STEPS: return &c->local_steps;
    case EPOCHS: return &c->epochs;
    case STEPS: return &c->steps;
    case WARMUP: return &c->warmup;
    case EVAL_EVERY: return &c->eval_every;
    case CHECK_EVERY: return &c->check_every;
    case SAVE_EVERY: return &c->save_every;
    case PRINT_EVERY: return &a->report.print_every;
    default: return NULL;
    }
}

/* Returns where to store the value of an option that takes text; NULL for other options. */
static const char **word_place(arguments *a, int key)
{
    dw_train_config *c = &a->config;
    switch (key) {
    case LINK: return &a->link;
    case HOST: return &a->host;
    case LISTEN: return &c->listen;
    case CONNECT: return &c->connect;
    case REPLICA_LISTEN: return &c->replica_listen;
    case FORWARD: return &c->forward;
    case BACKWARD: return &c->backward;
    case GRADIENT: return &c->gradient;
    case SCHEDULE: return &c->schedule;
    case TEXT: return &c->text;
    case INIT: return &c->init;
    case RESUME: return &c->resume;
    case SAVE: return &c->save;
    case RECORD: return &c->record;
    case LOG: return &a->report.log;
    case GROUP_KEY: return &a->tls.group_key_file;
    case CERTIFICATE: return &a->tls.certificate_file;
    case KEY: return &a->tls.key_file;
    case CA: return &a->tls.ca_file;
    default: return NULL;
    }
}

/* Converts a number from the user, for whom 0 means none, to one for the library. There 0 means the
 * default, and a negative number means none. */
static double none_below_zero(double value)
{
    return value == 0 ? -1 : value;
}

/* Checks the options that go with --local, and fills in the numbers of stages and replicas. */
static void check_local(arguments *a, struct argp_state *state)
{
    dw_why why;
    if (a->config.listen || a->config.connect || a->config.replica_listen || a->has_rank)
        argp_error(state, "--local starts all ranks itself; leave out --rank, --listen, --connect "
                          "and --replica-listen");
    if (a->link && dw_row_needs_launcher(a->link))
        argp_error(state,
                   "--link %.60s is for ranks that a launcher starts; leave out --local, or "
                   "give a transport such as tcp://127.0.0.1:0",
                   a->link);
    if (dw_place_fit(&a->config, a->local, "--local", &why) < 0) argp_error(state, "%s", why.text);
}

static void check_place(arguments *a, struct argp_state *state)
{
    const dw_train_config *c = &a->config;
    bool has_address = c->listen || c->connect || c->replica_listen;
    if (a->local)
        check_local(a, state);
    else if ((a->has_rank && !c->stages) || (c->stages && !a->has_rank && !a->link))
        argp_error(state, "--rank and --stages need each other; give both");
    else if (a->link && has_address)
        argp_error(state, "--link finds the neighbours; leave out --listen, --connect and "
                          "--replica-listen");
    else if (c->replicas > 1 && !a->has_rank && !a->link)
        argp_error(state, "--replicas needs other ranks; give --local, --link, or --rank and "
                          "--stages");
    if (a->host && (!a->link || a->local))
        argp_error(state, "--host has a meaning only with --link and without --local");
}

/* Options that would otherwise be ignored are errors: whoever gave them expects something. */
static void check_options(arguments *a, struct argp_state *state)
{
    dw_why why;
    bool is_child = a->report.tell >= 0;
    if (is_child) { /* the parent has checked its options, and has added the place */
        a->local = 0;
        a->link = NULL;
    } else {
        check_place(a, state);
    }
    if (a->config.save_every && !a->config.save)
        argp_error(state, "--save-every needs --save, the directory of the checkpoints");
    if (dw_keys_choose(&a->tls, a->link, &a->config, &why) < 0) argp_error(state, "%s", why.text);
}

static error_t parse_option(int key, char *value, struct argp_state *state)
{
    arguments *a = state->input;
    const char *name = option_name(key);
    uint64_t least;
    uint32_t *number = whole_place(a, key, &least);
    const char **word = word_place(a, key);
    a->has_rank |= key == RANK;
    if (number)
        *number = (uint32_t)dw_whole_number(state, name, value, least, INT32_MAX);
    else if (word)
        *word = value;
    else if (key == TEXT_OFFSET)
        a->config.text_offset = dw_whole_number(state, name, value, 0, INT64_MAX);
    else if (key == SEED)
        a->config.seed = dw_whole_number(state, name, value, 0, UINT64_MAX);
    else if (key == THREADS)
        a->config.threads = (uint32_t)dw_whole_number(state, name, value, 1, 256);
    else if (key == OPEN_TIMEOUT)
        a->config.open_timeout_ms = dw_timeout_number(state, name, value);
    else if (key == PEER_TIMEOUT)
        a->config.peer_timeout_ms = dw_timeout_number(state, name, value);
    else if (key == LR)
        a->config.lr = dw_real_number(state, name, value, 1e-12, 1e3);
    else if (key == OUTER_LR)
        a->config.outer_lr = dw_real_number(state, name, value, 1e-12, 1e3);
    else if (key == OUTER_MOMENTUM)
        a->config.outer_momentum =
            none_below_zero(dw_real_number(state, name, value, 0, 1 - 1e-12));
    else if (key == BETA1)
        a->config.beta1 = dw_real_number(state, name, value, 1e-12, 1 - 1e-12);
    else if (key == BETA2)
        a->config.beta2 = dw_real_number(state, name, value, 1e-12, 1 - 1e-12);
    else if (key == WEIGHT_DECAY)
        a->config.weight_decay = none_below_zero(dw_real_number(state, name, value, 0, 1e3));
    else if (key == CLIP)
        a->config.clip = none_below_zero(dw_real_number(state, name, value, 0, 1e9));
    else if (key == INSECURE)
        a->config.insecure_plaintext = 1;
    else if (key == TIED)
        a->config.tied = 1;
    else if (key == PLAIN_EVAL)
        a->config.plain_eval = 1;
    else if (key == QUIET)
        a->report.quiet = true;
    else if (key == TELL)
        a->report.tell = (int)dw_whole_number(state, name, value, 0, INT32_MAX);
    else if (key == ARGP_KEY_ARG)
        argp_error(state, "unexpected argument \"%s\"; all settings are options", value);
    else if (key == ARGP_KEY_END)
        check_options(a, state);
    else
        return ARGP_ERR_UNKNOWN;
    return 0;
}

static int run_rank(arguments *a)
{
    dw_report *report;
    dw_train_hooks hooks = {.stop = &dw_stop_signal};
    dw_why why = {.offset = -1};
    dw_status status = DW_OK;
    dw_place *place;
    bool child = a->report.tell >= 0;
    status = dw_place_take(&place, a->link, a->host, a->has_rank, hooks.stop, &a->config, &why);
    if (status < 0 && dw_stop_signal) {
        dw_explain_stop(dw_stop_signal, true);
        return DW_EXIT_SIGNAL + dw_stop_signal;
    }
    if (status < 0) {
        if (child)
            dw_tell(a->report.tell, "failed", why.text);
        else
            dw_complain("%s", why.text);
        return dw_exit_code(status);
    }
    if (a->link) a->report.place = place;
    if (a->config.rank) a->report.log = NULL; /* rank 0 logs for all */
    a->report.rank = a->config.rank;
    if (dw_report_open(&report, &a->report)) {
        dw_place_leave(place, false);
        return DW_EXIT_FAILED;
    }
    dw_report_hooks(report, &hooks);
    status = dw_train(&a->config, &hooks, &why);
    bool log_failed = dw_report_close(report) < 0;
    dw_place_leave(place, status >= 0);
    if (dw_stop_signal && status == DW_ERR_CANCELLED) {
        if (!child) dw_explain_stop(dw_stop_signal, true);
        return DW_EXIT_SIGNAL + dw_stop_signal;
    }
    if (status < 0 && child)
        dw_tell(a->report.tell, "failed", why.text);
    else if (status < 0)
        dw_complain("%s", why.text);
    return status < 0 ? dw_exit_code(status) : log_failed ? DW_EXIT_FAILED : DW_EXIT_OK;
}

/* OpenBLAS chooses its matrix kernels while it is loaded, so the environment variables must be set
 * before that: this sets them and executes the program again. One thread is enough, because each
 * stage is a process of its own. */
static void start_with_best_kernels(char **argv)
{
    const char *advice = dw_train_blas_advice();
    if (!advice || getenv("OPENBLAS_CORETYPE")) return;
    setenv("OPENBLAS_CORETYPE", advice, 1);
    setenv("OPENBLAS_NUM_THREADS", "1", 0);
    execv("/proc/self/exe", argv);
    unsetenv("OPENBLAS_CORETYPE"); /* execv failed: the run is slower, but correct */
}

int dw_cli_train(int argc, char **argv)
{
    static const struct argp parser = {options, parse_option, NULL, doc, NULL, NULL, NULL};
    start_with_best_kernels(argv - 1); /* argv[-1] is the program's name */
    arguments a = {.config = {.struct_size = sizeof a.config},
                   .report = {.print_every = 1, .tell = -1}};
    char name[] = "deltawire train", *own_name = argv[0];
    argp_err_exit_status = DW_EXIT_USAGE;
    argv[0] = name;
    argp_parse(&parser, argc, argv, ARGP_IN_ORDER, NULL, &a);
    argv[0] = own_name;
    dw_catch_signals();
    if (a.local > 1)
        return dw_run_local(&a.config, a.link ? a.link : "tcp://127.0.0.1:0", argc, argv);
    return run_rank(&a);
}
