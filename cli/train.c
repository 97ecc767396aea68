/* SPDX-License-Identifier: Apache-2.0
 * train.c - `deltawire train`: the values of its options, and one rank run with them. */
#include "train.h"

#include <argp.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "complain.h"
#include "hosts.h"
#include "keys.h"
#include "local.h"
#include "numbers.h"
#include "place.h"
#include "report.h"
#include "rows.h"
#include "signals.h"
#include "train_options.h"

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
    for (const struct argp_option *o = dw_train_options; o->name || o->doc; o++)
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
    case HOPS: return &c->hops;
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
    case STATE: return &c->state;
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

/* Lets other machines reach this one if the user's URIs have a name for it that leads to the
 * loopback interface. Without a key nobody else may connect. */
static void listen_for_others(dw_train_config *c)
{
    static char listen[600], replicas[600], host[DW_HOST_BYTES];
    if (!c->tls && !c->insecure_plaintext) return;
    if (c->replica_listen) dw_host_of(c->replica_listen, host);
    if (c->replica_listen && dw_is_own_name(host)) c->host = host;
    if (c->replica_listen)
        c->replica_listen = dw_uri_for_others(c->replica_listen, replicas, sizeof replicas);
    if (c->listen) c->listen = dw_uri_for_others(c->listen, listen, sizeof listen);
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
    if (!is_child) listen_for_others(&a->config);
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
    static const struct argp parser = {
        dw_train_options, parse_option, NULL, dw_train_doc, NULL, NULL, NULL};
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
