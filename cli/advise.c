/* SPDX-License-Identifier: Apache-2.0
 * advise.c - `deltawire advise`: measures codecs on this machine and the link to another one, and
 * prints how long a step of a pipeline would take with each of several pairs of codecs. */
#include "advise.h"

#include <argp.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "complain.h"
#include "forecast.h"
#include "hosts.h"
#include "keys.h"
#include "numbers.h"
#include "pairs.h"
#include "rate.h"
#include "signals.h"

static const uint64_t most_elements = (uint64_t)1 << 40;

enum {
    RATE = 256,
    DELAY_MS,
    CONNECT,
    LISTEN,
    GROUP_KEY,
    INSECURE,
    OPEN_TIMEOUT,
    COMPUTE_MS,
    STAGES,
    BATCH,
    MICRO_BATCHES,
    CONTEXT,
    CHANNELS,
    CHANGE,
};

/* argp sorts the options of a group by name, so each text must be understood alone. */
static const struct argp_option options[] = {
    {0, 0, 0, 0, "The link between two stages, given or measured:", 1},
    {"rate", RATE, "RATE", 0,
     "Rate of the link in each direction, for example 100mbit; from 1bit to 1000gbit per second",
     1},
    {"delay-ms", DELAY_MS, "X", 0,
     "With --rate: time in milliseconds that a byte takes from one end of the link to the other "
     "(default: 0)",
     1},
    {"connect", CONNECT, "URI", 0,
     "Measure the link to a machine on which `deltawire advise --listen' runs, for example "
     "tcp://HOST:7000",
     1},
    {"listen", LISTEN, "URI", 0,
     "Measure nothing here, but wait for one `deltawire advise --connect' on another machine, and "
     "answer it, so that it can measure the link",
     1},
    {"open-timeout", OPEN_TIMEOUT, "SECONDS", 0,
     "Time in which the other end must connect, and answer or ask (default: 60)", 1},
    {"group-key", GROUP_KEY, "FILE", 0,
     "Secret key, as created by `deltawire keygen`; the same at both ends (default: the file that "
     "the environment variable DELTAWIRE_GROUP_KEY_FILE names)",
     1},
    {"insecure-plaintext", INSECURE, 0, 0,
     "Connect to another machine without encryption and authentication", 1},

    {0, 0, 0, 0, "The training:", 2},
    {"compute-ms", COMPUTE_MS, "X", 0,
     "Time in milliseconds that one stage computes in a step, forward and backward (required)", 2},
    {"stages", STAGES, "K", 0, "Number of stages in the pipeline (default: 2)", 2},
    {"batch", BATCH, "N", 0, "Samples in a step (default: 16)", 2},
    {"micro-batches", MICRO_BATCHES, "M", 0,
     "Parts of a batch, which pass through the pipeline one after another; must divide the batch "
     "(default: 4, or 1 if 4 does not)",
     2},
    {"context", CONTEXT, "T", 0, "Tokens in a sample (default: 128)", 2},
    {"channels", CHANNELS, "C", 0, "Width of the tensors between stages (default: 128)", 2},
    {"change", CHANGE, "X", 0,
     "How much a tensor differs from that of the same sample in the epoch before, as a part of its "
     "norm; from 0.001 to 1 (default: 0.3)",
     2},

    {0, 0, 0, 0, "Output:", 3},
    {"json", 'j', 0, 0, "Print one JSON object instead of a table", 3},
    {0},
};

static const char doc[] =
    "Predicts how long a step of a pipeline takes with several pairs of codecs, and prints the "
    "best pair first."
    "\v"
    "FORWARD and BACKWARD are codecs for activations and gradients, such as "
    "delta:bits=2/direct:bits=4. If no pair is given, those that docs/codecs.md recommends or "
    "compares are measured. The codecs delta, direct, raw and mx are stable; all others are for "
    "comparison and may change (docs/codecs.md).\n"
    "\n"
    "Codecs are measured on this machine, with random tensors in f32. \"forward\" and \"backward\" "
    "are the bytes of the frames that one link carries in a step, for samples that were sent "
    "before. \"faster\" compares the step with one that sends floats. \"error\" is |x - y| / |x|, "
    "of activations x that arrive as y, then of gradients; docs/codecs.md says how much loss a "
    "training has from it. Pairs are ordered by the time of a step. Among pairs whose times differ "
    "by at most 3 %, the one with the smallest error comes first.\n"
    "\n"
    "Examples:\n"
    "\n"
    "  deltawire advise --rate 100mbit --compute-ms 250 --channels 768\n"
    "\n"
    "  first$  deltawire advise --listen tcp://0.0.0.0:7000 --group-key run.key\n"
    "  second$ deltawire advise --connect tcp://first:7000 --group-key run.key \\\n"
    "            --compute-ms 250\n"
    "\n"
    "Exit status: 0 success, 1 the link or a codec failed, 2 wrong usage, 128 + N stopped by "
    "signal N.";

/* What the user gave. `run` also gets what is measured of the link. */
typedef struct arguments {
    dw_forecast_run run;
    uint32_t batch, context, channels;
    double change;
    const char *connect, *listen;
    dw_tls_options tls;
    bool insecure, has_delay, has_compute, json;
    uint32_t timeout_ms;
    dw_pairs *pairs;
} arguments;

/* ---- Options --------------------------------------------------------------------------------- */

/* Ends the program with a sentence unless the link is given in exactly one way, and without options
 * that would be ignored. */
static void check_link(const arguments *a, struct argp_state *state)
{
    int ways = (a->run.rate[0] > 0) + !!a->connect + !!a->listen;
    if (ways != 1)
        argp_error(state, "%s; give one of --rate, --connect and --listen",
                   ways ? "the link is given twice" : "the rate of the link is missing");
    if (a->has_delay && !(a->run.rate[0] > 0))
        argp_error(state, "--delay-ms has a meaning only with --rate; otherwise the delay of the "
                          "link is measured");
    if (a->run.rate[0] > 0 && (a->tls.group_key_file || a->insecure || a->timeout_ms))
        argp_error(state, "with --rate nothing connects, so leave out --group-key, "
                          "--insecure-plaintext and --open-timeout");
}

/* Ends the program with a sentence if the options do not fit together. Fills in defaults that
 * depend on other options. */
static void check_options(arguments *a, struct argp_state *state)
{
    check_link(a, state);
    if (a->listen && (a->pairs->n || a->has_compute))
        argp_error(state, "--listen only answers the other end, which makes the forecast; leave "
                          "out --compute-ms and pairs of codecs");
    if (a->listen) return;
    if (!a->has_compute)
        argp_error(state, "--compute-ms is missing: the time that a stage computes in a step");
    if (!a->run.micro_batches) a->run.micro_batches = a->batch % 4 ? 1 : 4;
    if (a->batch % a->run.micro_batches)
        argp_error(state,
                   "%u micro-batches do not divide a batch of %u evenly; give a number that does",
                   a->run.micro_batches, a->batch);
    /* The product of all three numbers could exceed 64 bits, so it is not formed. */
    uint64_t tokens = (uint64_t)a->batch * a->context;
    if (tokens > most_elements / a->channels)
        argp_error(state, "a batch of %u x %u x %u elements is too large; give at most 2^40",
                   a->batch, a->context, a->channels);
    if (!a->pairs->n) dw_pairs_add_usual(a->pairs);
}

static error_t parse_option(int key, char *value, struct argp_state *state)
{
    arguments *a = state->input;
    dw_why why;
    switch (key) {
    case RATE: a->run.rate[0] = a->run.rate[1] = dw_rate_number(state, "rate", value); break;
    case DELAY_MS:
        a->run.delay_s = dw_real_number(state, "delay-ms", value, 0, 1e6) * 1e-3;
        a->has_delay = true;
        break;
    case CONNECT: a->connect = value; break;
    case LISTEN: a->listen = value; break;
    case GROUP_KEY: a->tls.group_key_file = value; break;
    case INSECURE: a->insecure = true; break;
    case OPEN_TIMEOUT: a->timeout_ms = dw_timeout_number(state, "open-timeout", value); break;
    case COMPUTE_MS:
        a->run.compute_s = dw_real_number(state, "compute-ms", value, 0, 1e9) * 1e-3;
        a->has_compute = true;
        break;
    case STAGES: a->run.stages = (uint32_t)dw_whole_number(state, "stages", value, 2, 65536); break;
    case BATCH: a->batch = (uint32_t)dw_whole_number(state, "batch", value, 1, 65536); break;
    case MICRO_BATCHES:
        a->run.micro_batches = (uint32_t)dw_whole_number(state, "micro-batches", value, 1, 65536);
        break;
    case CONTEXT:
        a->context = (uint32_t)dw_whole_number(state, "context", value, 1, 1 << 24);
        break;
    case CHANNELS:
        a->channels = (uint32_t)dw_whole_number(state, "channels", value, 1, 1 << 20);
        break;
    case CHANGE: a->change = dw_real_number(state, "change", value, 0.001, 1); break;
    case 'j': a->json = true; break;
    case ARGP_KEY_ARG:
        if (dw_pairs_add(a->pairs, value, &why) < 0) argp_error(state, "%s", why.text);
        break;
    case ARGP_KEY_END: check_options(a, state); break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

/* ---- The link -------------------------------------------------------------------------------- */

/* Prints on which address this program listens; tests and people read it. */
static void tell_address(void *context, const char *uri)
{
    (void)context;
    printf("listening on %s\n", uri);
    fflush(stdout);
}

/* Measures the link to the peer that --connect names, or with --listen answers a peer that
 * measures. Errors: those of keys and links, with a sentence in *why. */
static dw_status use_link(arguments *a, dw_why *why)
{
    /* dw_keys_choose takes the places and keys of a link from the config of a training. */
    dw_train_config keys = {
        .insecure_plaintext = a->insecure, .listen = a->listen, .connect = a->connect};
    dw_status status = dw_keys_choose(&a->tls, NULL, &keys, why);
    if (status < 0) return status;
    char text[600];
    if (a->listen && (keys.tls || a->insecure))
        a->listen = dw_uri_for_others(a->listen, text, sizeof text);
    dw_rate_end end = {.uri = a->listen ? a->listen : a->connect,
                       .tls = keys.tls,
                       .insecure_plaintext = a->insecure,
                       .timeout_ms = a->timeout_ms,
                       .on_listening = tell_address,
                       .cancelled = &dw_stop_signal};
    dw_catch_signals();
    return a->listen ? dw_rate_serve(&end, why) : dw_rate_ask(&a->run, &end, why);
}

/* ---- The forecast ---------------------------------------------------------------------------- */

/* Measures all codecs, and computes how long a step takes with each pair. Errors: those of codecs,
 * with a sentence in *why. */
static dw_status forecast(const arguments *a, dw_why *why)
{
    const dw_pairs_tensor tensor = {.samples = a->batch / a->run.micro_batches,
                                    .tokens = a->context,
                                    .channels = a->channels,
                                    .change = a->change};
    return dw_pairs_measure(a->pairs, &a->run, &tensor, &dw_stop_signal, why);
}

/* Returns the seconds that a step takes if tensors are sent as floats, and coding takes no time. */
static double step_of_raw(const arguments *a)
{
    double bytes = 4.0 * a->batch / a->run.micro_batches * a->context * a->channels;
    dw_forecast_way ways[DW_FORECAST_WAYS] = {{.bytes = bytes}, {.bytes = bytes}};
    return dw_forecast_step(&a->run, ways);
}

/* Prints the forecast as a table for people. */
static void print_table(const arguments *a)
{
    const dw_forecast_run *run = &a->run;
    double step_s, raw_s = step_of_raw(a);
    printf("link    %.4g Mbit/s forward, %.4g backward, %.3g ms from end to end, %s\n",
           run->rate[0] * 8e-6, run->rate[1] * 8e-6, run->delay_s * 1e3,
           a->connect ? "measured" : "as given");
    printf("tensor  %u x %u x %u values in a micro-batch, %u of these in a step, %u stages\n\n",
           a->batch / run->micro_batches, a->context, a->channels, run->micro_batches, run->stages);
    printf("%10s %8s %10s %10s %9s %9s  %s\n", "step", "faster", "forward", "backward", "error",
           "error", "codecs, forward/backward");
    for (const dw_pair *p; (p = dw_pairs_next_best(a->pairs, &step_s));) {
        const dw_forecast_way *f = &p->ways[DW_FORECAST_FORWARD],
                              *b = &p->ways[DW_FORECAST_BACKWARD];
        printf("%7.5g ms %7.2fx %7.4g kB %7.4g kB %9.2g %9.2g  %s/%s\n", step_s * 1e3,
               raw_s / step_s, f->bytes * run->micro_batches * 1e-3,
               b->bytes * run->micro_batches * 1e-3, f->error, b->error, p->codecs[0],
               p->codecs[1]);
    }
}

/* Returns one codec of a pair as a JSON object, with what it costs in a whole step. `way` is the
 * direction. */
static json_t *describe_way(const dw_pair *p, int way, uint32_t micro_batches)
{
    const dw_forecast_way *w = &p->ways[way];
    return json_pack("{s:s, s:f, s:f, s:f, s:f}", "codec", p->codecs[way], "bytes",
                     w->bytes * micro_batches, "encode_s", w->encode_s * micro_batches, "decode_s",
                     w->decode_s * micro_batches, "error", w->error);
}

/* Prints the forecast as one JSON object. */
static void print_json(const arguments *a)
{
    const dw_forecast_run *run = &a->run;
    double step_s, raw_s = step_of_raw(a);
    json_t *list = json_array();
    for (const dw_pair *p; (p = dw_pairs_next_best(a->pairs, &step_s));)
        json_array_append_new(
            list, json_pack("{s:f, s:f, s:o, s:o}", "step_s", step_s, "faster", raw_s / step_s,
                            "forward", describe_way(p, DW_FORECAST_FORWARD, run->micro_batches),
                            "backward", describe_way(p, DW_FORECAST_BACKWARD, run->micro_batches)));
    json_t *object = json_pack(
        "{s:f, s:f, s:f, s:b, s:f, s:I, s:I, s:[I, I, I], s:o}", "bits_per_second_forward",
        run->rate[0] * 8, "bits_per_second_backward", run->rate[1] * 8, "delay_s", run->delay_s,
        "measured", a->connect != NULL, "compute_s", run->compute_s, "stages",
        (json_int_t)run->stages, "micro_batches", (json_int_t)run->micro_batches, "shape",
        (json_int_t)(a->batch / run->micro_batches), (json_int_t)a->context,
        (json_int_t)a->channels, "pairs", list);
    json_dumpf(object, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(object);
}

int dw_cli_advise(int argc, char **argv)
{
    static const struct argp parser = {options, parse_option, "[FORWARD/BACKWARD...]", doc, NULL,
                                       NULL,    NULL};
    static dw_pairs pairs;
    arguments a = {.run = {.stages = 2},
                   .batch = 16,
                   .context = 128,
                   .channels = 128,
                   .change = 0.3,
                   .pairs = &pairs};
    char name[] = "deltawire advise";
    dw_why why = {.offset = -1};
    argv[0] = name;
    argp_err_exit_status = DW_EXIT_USAGE;
    argp_parse(&parser, argc, argv, 0, NULL, &a);
    dw_status status = a.run.rate[0] > 0 ? DW_OK : use_link(&a, &why);
    if (status == DW_OK && !a.listen) status = forecast(&a, &why);
    if (status < 0 && dw_stop_signal) {
        dw_explain_stop(dw_stop_signal, false);
        return DW_EXIT_SIGNAL + dw_stop_signal;
    }
    if (status < 0) {
        dw_complain("%s", why.text);
        return dw_exit_code(status);
    }
    if (a.listen) return DW_EXIT_OK;
    if (a.json)
        print_json(&a);
    else
        print_table(&a);
    return DW_EXIT_OK;
}
