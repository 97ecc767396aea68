/* SPDX-License-Identifier: Apache-2.0
 * report.c - prints the progress of a run and logs it as JSON Lines. */
#include "report.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "complain.h"
#include "local.h"
#include "place.h"

struct dw_report {
    dw_report_options options;
    FILE *log;
    int log_error; /* errno of the first line that could not be written */
    uint32_t steps, first_step;
    dw_train_cost last; /* so_far of the previous step; the difference is the cost of a step */
};

static json_t *number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static json_t *count(uint64_t n)
{
    return json_integer((json_int_t)n);
}

/* Takes ownership of the object. Each line is flushed before the run continues, so that the log of
 * a killed run has all lines up to then. */
static void log_line(dw_report *report, json_t *line)
{
    if (report->log && line && !report->log_error) {
        errno = 0;
        if (json_dumpf(line, report->log, JSON_COMPACT) || fputc('\n', report->log) == EOF ||
            fflush(report->log))
            report->log_error = errno ? errno : EIO;
    }
    json_decref(line);
}

static void add_cost(json_t *line, const dw_train_cost *cost)
{
    json_object_set_new(line, "compute_s", number(cost->compute_s));
    json_object_set_new(line, "codec_s", number(cost->codec_s));
    json_object_set_new(line, "wait_s", number(cost->wait_s));
    json_object_set_new(line, "gradient_wait_s", number(cost->gradient_wait_s));
    json_object_set_new(line, "bytes_forward", count(cost->bytes_forward));
    json_object_set_new(line, "bytes_backward", count(cost->bytes_backward));
    json_object_set_new(line, "frames_forward", count(cost->frames_forward));
    json_object_set_new(line, "frames_backward", count(cost->frames_backward));
    json_object_set_new(line, "raw_forward", count(cost->raw_forward));
    json_object_set_new(line, "raw_backward", count(cost->raw_backward));
    json_object_set_new(line, "kernel_forward",
                        cost->kernel_forward ? count(cost->kernel_forward) : json_null());
    json_object_set_new(line, "kernel_backward",
                        cost->kernel_backward ? count(cost->kernel_backward) : json_null());
    json_object_set_new(line, "bytes_gradients", count(cost->bytes_gradients));
    json_object_set_new(line, "raw_gradients", count(cost->raw_gradients));
    json_object_set_new(line, "kernel_gradients",
                        cost->kernel_gradients ? count(cost->kernel_gradients) : json_null());
    json_object_set_new(line, "state_bytes", count(cost->state_bytes));
}

static double ratio(uint64_t raw, uint64_t bytes)
{
    return bytes ? (double)raw / (double)bytes : (double)NAN;
}

/* "12.1 kB", at most 8 characters. */
static const char *bytes_text(char text[16], uint64_t bytes)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 999.5 && unit < 6) {
        value /= 1000;
        unit++;
    }
    snprintf(text, 16, unit && value < 99.95 ? "%.1f %s" : "%.0f %s", value, units[unit]);
    return text;
}

static void on_listening(void *context, const char *uri)
{
    const dw_report *report = context;
    if (report->options.place)
        dw_place_tell(report->options.place, uri);
    else if (report->options.tell >= 0)
        dw_tell(report->options.tell, "listening", uri);
    else
        printf("listening on %s\n", uri);
    fflush(stdout);
}

static void on_start(void *context, const dw_train_start *start)
{
    dw_report *report = context;
    report->steps = start->steps;
    report->first_step = start->first_step;
    printf("model     %.2f M parameters on %u stage%s", (double)start->parameters * 1e-6,
           start->stages, start->stages == 1 ? "" : "s");
    if (start->replicas > 1) printf(" in each of %u replicas", start->replicas);
    printf(", products by OpenBLAS (%s)\n", start->blas);
    printf("data      %u samples, %u held out; %u steps, %u an epoch\n", start->samples,
           start->held_out, start->steps, start->steps_per_epoch);
    if (start->stages > 1)
        printf("wire      forward %s, backward %s\n", start->forward, start->backward);
    if (start->replicas > 1) printf("replicas  gradients %s\n", start->gradient);
    if (start->first_step) printf("resumed   at step %u\n", start->first_step);
    fflush(stdout);
    log_line(report,
             json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:s, s:s, s:s}", "event",
                       "start", "stages", (json_int_t)start->stages, "replicas",
                       (json_int_t)start->replicas, "parameters", (json_int_t)start->parameters,
                       "samples", (json_int_t)start->samples, "held_out",
                       (json_int_t)start->held_out, "steps", (json_int_t)start->steps,
                       "steps_per_epoch", (json_int_t)start->steps_per_epoch, "first_step",
                       (json_int_t)start->first_step, "forward", start->forward, "backward",
                       start->backward, "gradient", start->gradient, "blas", start->blas));
}

static void print_direction(const char *name, uint64_t bytes, uint64_t raw)
{
    char text[16];
    printf(" | %s %s (%.1fx)", name, bytes_text(text, bytes), ratio(raw, bytes));
}

static void on_step(void *context, const dw_train_step *step)
{
    dw_report *report = context;
    const dw_train_cost *now = &step->so_far, *last = &report->last;
    json_t *line = json_pack("{s:s, s:I, s:I, s:o, s:o, s:o, s:o, s:o}", "event", "step", "step",
                             (json_int_t)step->step, "epoch", (json_int_t)step->epoch, "loss",
                             number(step->loss), "lr", number(step->lr), "norm", number(step->norm),
                             "seconds", number(step->seconds), "wall_s", number(step->wall_s));
    if (line) add_cost(line, now);
    log_line(report, line);
    bool print = !report->options.quiet &&
                 (step->step % report->options.print_every == 0 ||
                  step->step == report->first_step + 1 || step->step == report->steps);
    if (print) {
        printf("step %4u/%u | loss %.4f | norm %.2f | lr %.1e | %.0f ms | wait %.0f ms", step->step,
               report->steps, step->loss, step->norm, step->lr, step->seconds * 1e3,
               (now->wait_s - last->wait_s) * 1e3);
        if (now->bytes_forward) {
            print_direction("fwd", now->bytes_forward - last->bytes_forward,
                            now->raw_forward - last->raw_forward);
            print_direction("bwd", now->bytes_backward - last->bytes_backward,
                            now->raw_backward - last->raw_backward);
        }
        if (now->bytes_gradients)
            print_direction("grad", now->bytes_gradients - last->bytes_gradients,
                            now->raw_gradients - last->raw_gradients);
        putchar('\n');
        fflush(stdout);
    }
    report->last = *now;
}

static void on_eval(void *context, const dw_train_eval *eval)
{
    dw_report *report = context;
    if (!report->options.quiet) {
        printf("eval %4u/%u | held-out loss %.4f", eval->step, report->steps, eval->loss);
        if (isfinite(eval->plain_loss)) printf(", %.4f without codecs", eval->plain_loss);
        printf(" | %.0f ms | epoch %u done %.1f s after the start\n", eval->seconds * 1e3,
               eval->epoch, eval->wall_s);
    }
    fflush(stdout);
    log_line(report, json_pack("{s:s, s:I, s:I, s:o, s:o, s:o, s:o}", "event", "eval", "step",
                               (json_int_t)eval->step, "epoch", (json_int_t)eval->epoch, "loss",
                               number(eval->loss), "plain_loss", number(eval->plain_loss),
                               "seconds", number(eval->seconds), "wall_s", number(eval->wall_s)));
}

static void on_save(void *context, const char *directory, uint32_t step)
{
    dw_report *report = context;
    if (!report->options.quiet) printf("save %4u/%u | %s\n", step, report->steps, directory);
    fflush(stdout);
    log_line(report, json_pack("{s:s, s:I, s:s}", "event", "save", "step", (json_int_t)step,
                               "directory", directory));
}

static void on_misfit(void *context, const char *sentence)
{
    dw_report *report = context;
    fprintf(stderr, "deltawire: warning: %s\n", sentence);
    log_line(report, json_pack("{s:s, s:s}", "event", "misfit", "sentence", sentence));
}

static void log_summary(dw_report *report, const dw_train_summary *summary)
{
    json_t *line = json_pack(
        "{s:s, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o}", "event", "summary", "stages",
        (json_int_t)summary->stages, "replicas", (json_int_t)summary->replicas, "steps",
        (json_int_t)summary->steps, "train_loss", number(summary->train_loss), "held_out_loss",
        number(summary->held_out_loss), "plain_held_out_loss", number(summary->plain_held_out_loss),
        "wall_s", number(summary->wall_s), "eval_s", number(summary->eval_s));
    if (!line) return;
    const dw_train_cost *cost = &summary->cost;
    add_cost(line, cost);
    json_object_set_new(line, "ratio_forward",
                        number(ratio(cost->raw_forward, cost->bytes_forward)));
    json_object_set_new(line, "ratio_backward",
                        number(ratio(cost->raw_backward, cost->bytes_backward)));
    json_object_set_new(line, "ratio_gradients",
                        number(ratio(cost->raw_gradients, cost->bytes_gradients)));
    json_t *ranks = json_array();
    for (uint32_t i = 0; i < summary->stages * summary->replicas; i++) {
        json_t *rank = json_object();
        add_cost(rank, &summary->ranks[i]);
        json_array_append_new(ranks, rank);
    }
    json_object_set_new(line, "ranks", ranks);
    log_line(report, line);
}

static void on_summary(void *context, const dw_train_summary *summary)
{
    dw_report *report = context;
    const dw_train_cost *cost = &summary->cost;
    char forward[16], backward[16];
    printf("\ntrain loss %.4f", summary->train_loss);
    if (isfinite(summary->held_out_loss)) printf(", held-out loss %.4f", summary->held_out_loss);
    if (isfinite(summary->plain_held_out_loss))
        printf(" (%.4f without codecs)", summary->plain_held_out_loss);
    printf(" after %u steps in %.1f s (%.1f s of it evaluating)\n", summary->steps, summary->wall_s,
           summary->eval_s);
    printf("each rank on average: %.1f s computing, %.2f s in the codec, %.1f s waiting\n",
           cost->compute_s, cost->codec_s, cost->wait_s);
    if (summary->stages > 1)
        printf("on the wire: %s forward (%.1fx less than f32), %s backward (%.1fx)\n",
               bytes_text(forward, cost->bytes_forward),
               ratio(cost->raw_forward, cost->bytes_forward),
               bytes_text(backward, cost->bytes_backward),
               ratio(cost->raw_backward, cost->bytes_backward));
    if (cost->state_bytes)
        printf("the codecs of all ranks keep %s between visits of samples\n",
               bytes_text(forward, cost->state_bytes));
    if (summary->replicas > 1)
        printf("between replicas: %s of gradients (%.1fx less than f32), waited for %.1f s\n",
               bytes_text(forward, cost->bytes_gradients),
               ratio(cost->raw_gradients, cost->bytes_gradients), cost->gradient_wait_s);
    fflush(stdout);
    log_summary(report, summary);
}

int dw_report_open(dw_report **out, const dw_report_options *options)
{
    *out = NULL;
    dw_report *report = calloc(1, sizeof *report);
    if (!report) {
        dw_complain("out of memory");
        return -1;
    }
    report->options = *options;
    if (options->log && !(report->log = fopen(options->log, "w"))) {
        dw_complain("cannot write the log %s: %s", options->log, strerror(errno));
        free(report);
        return -1;
    }
    *out = report;
    return 0;
}

void dw_report_hooks(dw_report *report, dw_train_hooks *hooks)
{
    hooks->context = report;
    hooks->on_listening = on_listening;
    hooks->on_start = on_start;
    hooks->on_step = on_step;
    hooks->on_eval = on_eval;
    hooks->on_save = on_save;
    hooks->on_summary = on_summary;
    hooks->on_misfit = on_misfit;
}

int dw_report_close(dw_report *report)
{
    if (!report) return 0;
    if (report->log && fclose(report->log) && !report->log_error) report->log_error = errno;
    int error = report->log_error;
    if (error) dw_complain("the log %s is incomplete: %s", report->options.log, strerror(error));
    free(report);
    return error ? -1 : 0;
}
