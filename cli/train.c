/* SPDX-License-Identifier: Apache-2.0
 * train.c - `deltawire train`: options, and one rank run with them. */
#include "train.h"

#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "complain.h"
#include "keys.h"
#include "local.h"
#include "place.h"
#include "report.h"
#include "signals.h"

enum {
    RANK = 256,
    STAGES,
    LISTEN,
    CONNECT,
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
    LAYERS,
    CHANNELS,
    HEADS,
    CONTEXT,
    TEXT,
    TEXT_OFFSET,
    SAMPLES,
    HELD_OUT,
    BATCH,
    MICRO_BATCHES,
    EPOCHS,
    STEPS,
    EVAL_EVERY,
    SAVE_EVERY,
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

static const struct argp_option options[] = {
    {0, 0, 0, 0, "Where this process stands:", 1},
    {"local", LOCAL, "K", 0, "Start K stages on this machine, joined over --link", 1},
    {"link", LINK, "URI", 0,
     "With --local: what joins them (default tcp://127.0.0.1:0, port 0 for any free one). Without: "
     "how the ranks of a "
     "launcher meet: mpi:// (mpirun), env:// (torchrun, srun: MASTER_ADDR, MASTER_PORT and the "
     "launcher's ranks), "
     "tcp://HOST:PORT (of rank 0), file:///PATH (that all see)",
     1},
    {"host", HOST, "ADDRESS", 0,
     "With --link: this machine, as the other ranks reach it (found out)", 1},
    {"rank", RANK, "R", 0, "This process is stage R, counted from 0", 1},
    {"stages", STAGES, "K", 0, "There are K stages in all", 1},
    {"listen", LISTEN, "URI", 0, "Wait here for rank R + 1", 1},
    {"connect", CONNECT, "URI", 0, "Rank R - 1 listens there", 1},
    {"open-timeout", OPEN_TIMEOUT, "SECONDS", 0, "Until the neighbours have met (60)", 1},
    {"peer-timeout", PEER_TIMEOUT, "SECONDS", 0, "A neighbour that owes bytes and sends none (60)",
     1},
    {"threads", THREADS, "N", 0, "Threads that share the work of the codecs (1)", 1},

    {0, 0, 0, 0, "Who may take part, where ranks are joined by TCP (see docs/deploy.md):", 2},
    {"group-key", GROUP_KEY, "FILE", 0,
     "Of all ranks the same, as `deltawire keygen` makes it (DELTAWIRE_GROUP_KEY_FILE in the "
     "environment)",
     2},
    {"certificate", CERTIFICATE, "FILE", 0,
     "Or: this rank's own, PEM, with the URI deltawire:rank/R in it", 2},
    {"key", KEY, "FILE", 0, "Its private key", 2},
    {"ca", CA, "FILE", 0, "The CA whose certificates count", 2},
    {"insecure-plaintext", INSECURE, 0, 0,
     "Neither: without it, TCP keeps to this machine's loopback. Whoever is on the way can read, "
     "change and join",
     2},

    {0, 0, 0, 0, "What goes over the wire, the same at all ranks like all that follows:", 3},
    {"forward", FORWARD, "CODEC", 0, "Activations, towards higher ranks (raw:f32)", 3},
    {"backward", BACKWARD, "CODEC", 0, "Gradients, back (raw:f32)", 3},

    {0, 0, 0, 0, "The model:", 4},
    {"layers", LAYERS, "L", 0, "Transformer blocks (4)", 4},
    {"channels", CHANNELS, "C", 0, "Width (128)", 4},
    {"heads", HEADS, "H", 0, "Attention heads (4)", 4},
    {"context", CONTEXT, "T", 0, "Bytes of a sample (128)", 4},

    {0, 0, 0, 0, "The data:", 5},
    {"text", TEXT, "FILE", 0, "Train on its bytes", 5},
    {"text-offset", TEXT_OFFSET, "BYTES", 0, "Skip so many first (0)", 5},
    {"samples", SAMPLES, "N", 0, "Train on N samples of T + 1 bytes (as many as there are)", 5},
    {"held-out", HELD_OUT, "N", 0, "Measure on the N samples behind them (0)", 5},

    {0, 0, 0, 0, "The training:", 6},
    {"batch", BATCH, "N", 0, "Samples of a step (16)", 6},
    {"micro-batches", MICRO_BATCHES, "M", 0, "Parts of a batch, in flight one behind the other (4)",
     6},
    {"epochs", EPOCHS, "N", 0, "Visits to every sample (1)", 6},
    {"steps", STEPS, "N", 0, "Instead of --epochs", 6},
    {"lr", LR, "X", 0,
     "Peak of the learning rate (1e-3); it falls linearly to 0 behind the warm-up", 6},
    {"warmup", WARMUP, "N", 0, "Steps of linear rise to it (0)", 6},
    {"beta1", BETA1, "X", 0, "AdamW (0.9)", 6},
    {"beta2", BETA2, "X", 0, "AdamW (0.95)", 6},
    {"weight-decay", WEIGHT_DECAY, "X", 0, "Of matrices (0.1)", 6},
    {"clip", CLIP, "X", 0, "Largest norm of the gradient over all stages (1); 0: no clipping", 6},
    {"seed", SEED, "N", 0, "Of parameters and shuffles (0)", 6},
    {"init", INIT, "DIR", 0, "Start from a checkpoint's parameters", 6},
    {"resume", RESUME, "DIR", 0, "Go on where a checkpoint stopped", 6},

    {0, 0, 0, 0, "What is written:", 7},
    {"save", SAVE, "DIR", 0, "A checkpoint at the end", 7},
    {"record", RECORD, "DIR", 0,
     "The tensors that go over the wire, as they were before a codec saw them", 7},
    {"save-every", SAVE_EVERY, "N", 0, "And one every N steps", 7},
    {"eval-every", EVAL_EVERY, "N", 0, "Held-out loss every N steps (every epoch) and at the end",
     7},
    {"log", LOG, "FILE", 0, "JSONL: a line per step and evaluation, then a summary (rank 0)", 7},
    {"print-every", PRINT_EVERY, "N", 0, "Print every N-th step (1)", 7},
    {"quiet", QUIET, 0, 0, "Print the beginning and the end only", 7},

    {"tell", TELL, "FD", OPTION_HIDDEN, 0, 8},
    {0},
};

static const char doc[] =
    "Trains a small GPT-2-style model on the bytes of a file, as a pipeline of stages."
    "\v"
    "Two stages on this machine, as over a wire of 20 Mbit/s:\n"
    "\n"
    "  deltawire train --local 2 --text book.txt --epochs 3 --samples 240 \\\n"
    "    --held-out 64 --link shaped:rate=20mbit,delay=5ms/tcp://127.0.0.1:0 \\\n"
    "    --forward delta:bits=4 --backward direct:bits=8\n"
    "\n"
    "The same on two machines; both give the same options but for their place:\n"
    "\n"
    "  first$  deltawire train --rank 0 --stages 2 --listen tcp://0.0.0.0:7000 \\\n"
    "            --group-key run.key --text book.txt \\\n"
    "            --forward delta:bits=4 --backward direct:bits=8\n"
    "  second$ deltawire train --rank 1 --stages 2 --connect tcp://first:7000 \\\n"
    "            --group-key run.key --text book.txt \\\n"
    "            --forward delta:bits=4 --backward direct:bits=8\n"
    "\n"
    "A stage in the middle has both --listen and --connect. Four stages under a launcher:\n"
    "\n"
    "  mpirun -n 4 deltawire train --link mpi:// --text book.txt\n"
    "  export DELTAWIRE_GROUP_KEY_FILE=run.key # made by: deltawire keygen run.key\n"
    "  srun -n 4 deltawire train --link env:// --text book.txt\n"
    "\n"
    "Exits with 0, 1 (failed), 2 (usage) or 130 (Ctrl-C).";

typedef struct arguments {
    dw_train_config config;
    dw_report_options report;
    uint32_t local;
    const char *link, *host;
    dw_tls_options tls;
} arguments;

static uint64_t whole(struct argp_state *state, const char *name, const char *text, uint64_t least,
                      uint64_t most)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || value < least || value > most)
        argp_error(state, "--%s \"%s\" is not a whole number from %" PRIu64 " to %" PRIu64, name,
                   text, least, most);
    return value;
}

static double real(struct argp_state *state, const char *name, const char *text, double least,
                   double most)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value) || value < least || value > most)
        argp_error(state, "--%s \"%s\" is not a number from %g to %g", name, text, least, most);
    return value;
}

static const char *option_name(int key)
{
    for (const struct argp_option *o = options; o->name || o->doc; o++)
        if (o->key == key) return o->name;
    return "?";
}

/* Options whose value is a whole number of 32 bits, and where it goes. */
static uint32_t *whole_place(arguments *a, int key, uint64_t *least)
{
    dw_train_config *c = &a->config;
    *least = key == RANK || key == HELD_OUT || key == WARMUP ? 0 : 1;
    switch (key) {
    case LOCAL: return &a->local;
    case RANK: return &c->rank;
    case STAGES: return &c->stages;
    case LAYERS: return &c->layers;
    case CHANNELS: return &c->channels;
    case HEADS: return &c->heads;
    case CONTEXT: return &c->context;
    case SAMPLES: return &c->samples;
    case HELD_OUT: return &c->held_out;
    case BATCH: return &c->batch;
    case MICRO_BATCHES: return &c->micro_batches;
    case EPOCHS: return &c->epochs;
    case STEPS: return &c->steps;
    case WARMUP: return &c->warmup;
    case EVAL_EVERY: return &c->eval_every;
    case SAVE_EVERY: return &c->save_every;
    case PRINT_EVERY: return &a->report.print_every;
    default: return NULL;
    }
}

static const char **word_place(arguments *a, int key)
{
    dw_train_config *c = &a->config;
    switch (key) {
    case LINK: return &a->link;
    case HOST: return &a->host;
    case LISTEN: return &c->listen;
    case CONNECT: return &c->connect;
    case FORWARD: return &c->forward;
    case BACKWARD: return &c->backward;
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

/* Where 0 means none to the user, and default to the library. */
static double none_below_zero(double value)
{
    return value == 0 ? -1 : value;
}

static void check_place(arguments *a, struct argp_state *state)
{
    bool child = a->report.tell >= 0;
    if (child || !a->local) {
        if (a->link && !child && (a->config.listen || a->config.connect))
            argp_error(state, "--link finds the neighbours; leave out --listen and --connect");
        if (child) a->link = NULL;
        a->local = 0;
        return;
    }
    if (a->config.stages || a->config.listen || a->config.connect || a->config.rank)
        argp_error(
            state,
            "--local starts all ranks itself; leave out --rank, --stages, --listen and --connect");
}

static error_t parse_option(int key, char *value, struct argp_state *state)
{
    arguments *a = state->input;
    const char *name = option_name(key);
    uint64_t least;
    uint32_t *number = whole_place(a, key, &least);
    const char **word = word_place(a, key);
    if (number)
        *number = (uint32_t)whole(state, name, value, least, INT32_MAX);
    else if (word)
        *word = value;
    else if (key == TEXT_OFFSET)
        a->config.text_offset = whole(state, name, value, 0, INT64_MAX);
    else if (key == SEED)
        a->config.seed = whole(state, name, value, 0, UINT64_MAX);
    else if (key == THREADS)
        a->config.threads = (uint32_t)whole(state, name, value, 1, 256);
    else if (key == OPEN_TIMEOUT)
        a->config.open_timeout_ms = (uint32_t)(1000 * real(state, name, value, 0.001, 1e6));
    else if (key == PEER_TIMEOUT)
        a->config.peer_timeout_ms = (uint32_t)(1000 * real(state, name, value, 0.001, 1e6));
    else if (key == LR)
        a->config.lr = real(state, name, value, 1e-12, 1e3);
    else if (key == BETA1)
        a->config.beta1 = real(state, name, value, 1e-12, 1 - 1e-12);
    else if (key == BETA2)
        a->config.beta2 = real(state, name, value, 1e-12, 1 - 1e-12);
    else if (key == WEIGHT_DECAY)
        a->config.weight_decay = none_below_zero(real(state, name, value, 0, 1e3));
    else if (key == CLIP)
        a->config.clip = none_below_zero(real(state, name, value, 0, 1e9));
    else if (key == INSECURE)
        a->config.insecure_plaintext = 1;
    else if (key == QUIET)
        a->report.quiet = true;
    else if (key == TELL)
        a->report.tell = (int)whole(state, name, value, 0, INT32_MAX);
    else if (key == ARGP_KEY_ARG)
        argp_error(state, "\"%s\" is not an option; all settings are options, see --help", value);
    else if (key == ARGP_KEY_END) {
        dw_why why;
        check_place(a, state);
        if (dw_keys_choose(&a->tls, a->link, &a->config, &why) < 0)
            argp_error(state, "%s", why.text);
    } else
        return ARGP_ERR_UNKNOWN;
    return 0;
}

static int run_rank(arguments *a)
{
    dw_report *report;
    dw_train_hooks hooks = {.stop = &dw_stop_signal};
    dw_why why = {.offset = -1};
    dw_status status = DW_OK;
    if (a->link) {
        status = dw_place_take(&a->report.place, a->link, a->host, a->config.stages > 0, hooks.stop,
                               &a->config, &why);
        if (status < 0 && status != DW_ERR_CANCELLED) dw_complain("%s", why.text);
        if (status < 0)
            return dw_stop_signal ? DW_EXIT_SIGNAL + dw_stop_signal : dw_exit_code(status);
    }
    if (a->config.rank) a->report.log = NULL; /* all that is logged is known at rank 0 */
    if (dw_report_open(&report, &a->report)) return DW_EXIT_FAILED;
    dw_report_hooks(report, &hooks);
    status = dw_train(&a->config, &hooks, &why);
    bool log_failed = dw_report_close(report) < 0, child = a->report.tell >= 0;
    dw_place_leave(a->report.place, status >= 0);
    if (dw_stop_signal && status == DW_ERR_CANCELLED) {
        if (!child) dw_explain_stop(dw_stop_signal);
        return DW_EXIT_SIGNAL + dw_stop_signal;
    }
    if (status < 0 && child)
        dw_tell(a->report.tell, "failed", why.text);
    else if (status < 0)
        dw_complain("%s", why.text);
    return status < 0 ? dw_exit_code(status) : log_failed ? DW_EXIT_FAILED : DW_EXIT_OK;
}

/* OpenBLAS chooses its products when it is loaded, so the environment must be right before: start
 * anew with it. One thread: each stage is a process of its own. */
static void start_with_best_products(char **argv)
{
    const char *advice = dw_train_blas_advice();
    if (!advice || getenv("OPENBLAS_CORETYPE")) return;
    setenv("OPENBLAS_CORETYPE", advice, 1);
    setenv("OPENBLAS_NUM_THREADS", "1", 0);
    execv("/proc/self/exe", argv);
    unsetenv("OPENBLAS_CORETYPE"); /* not possible here: slower, no worse */
}

int dw_cli_train(int argc, char **argv)
{
    static const struct argp parser = {options, parse_option, NULL, doc, NULL, NULL, NULL};
    start_with_best_products(argv - 1); /* argv[-1] is the program's name */
    arguments a = {.config = {.struct_size = sizeof a.config},
                   .report = {.print_every = 1, .tell = -1}};
    char name[] = "deltawire train", *own_name = argv[0];
    argp_err_exit_status = DW_EXIT_USAGE;
    argv[0] = name;
    argp_parse(&parser, argc, argv, ARGP_IN_ORDER, NULL, &a);
    argv[0] = own_name;
    dw_catch_signals();
    if (a.local > 1)
        return dw_run_local(a.local, a.link ? a.link : "tcp://127.0.0.1:0", argc, argv);
    return run_rank(&a);
}
