/* SPDX-License-Identifier: Apache-2.0
 * misfit.c - tells from its counters whether a codec fits the tensors that an encoder was given. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "arithmetic/step.h"
#include "base/sized.h"
#include "codecs/options.h"
#include "deltawire/deltawire.h"

enum { LEAST_ROWS = 4 }; /* the mean error of fewer rows says nothing about a codec */

/* The largest mean error of a row of activations, as a part of its norm, that is accepted. Where it
 * was larger, measured over the whole row or over its values of up to 6 rms, the loss of pretrained
 * models was 5 to 40 % larger (docs/codecs.md). */
#define MOST_OF_ACTIVATIONS 0.15
/* The same in units of the weights of a profile, which knows what channels mean for the loss: at
 * 0.14 models lose 1 %. */
#define MOST_OF_WEIGHED 0.25
/* How many times as large as the steps imply the error of gradients may be. */
#define MOST_OF_GRADIENTS 1.3

/* Returns the error of a row, as a part of its norm, that the config's steps imply: the larger one
 * of key entries and changes. 0: it is not known. */
static double implied(const dw_config *config, const dw_counters *c)
{
    bool is_delta = config->codec == DW_CODEC_DELTA;
    if (config->form != DW_FORM_STEP || (!is_delta && config->codec != DW_CODEC_DIRECT)) return 0;
    if (config->error_abs || config->rate || config->deadzone || !(c->x_square > 0)) return 0;
    double parts = config->rounding == DW_ROUNDING_STOCHASTIC ? 6
                   : config->rounding == DW_ROUNDING_TRELLIS  ? DW_TRELLIS_PARTS
                                                              : 12,
           step = (config->step ? config->step : 1000) / 1000.0 / sqrt(parts),
           key = config->key_step ? config->key_step / 1000.0 / sqrt(parts) : step / 4,
           least = DW_STEP_LEAST / sqrt(parts);
    if (config->rounding <= DW_ROUNDING_NEAREST) step = step < 1 ? step : 1; /* 0 in place of x */
    if (is_delta) step *= sqrt(c->delta_square / c->x_square);
    if (config->error) step = key = (double)config->error / 1e12;
    if (config->key_error) key = (double)config->key_error / 1e12;
    if (is_delta && key > step) step = key;
    return step > least ? step : least;
}

static const char *remedy(const dw_config *config)
{
    if (config->form == DW_FORM_STEP && config->group == DW_GROUP_SAMPLE)
        return "leave out group=sample, so that each row has a step of its own";
    if (config->form == DW_FORM_STEP) return "try a smaller step or error, or mx";
    return "try mx, or steps by row (form=step)";
}

/* The same for codecs whose rows are not measured: of all that was measured of what they sent. */
static bool says_whole(const dw_counters *c, const dw_config *config, dw_tensor_kind kind,
                       dw_why *why)
{
    double part = c->x_square > 0 ? sqrt(c->error_square / c->x_square) : 0;
    if (kind != DW_ACTIVATIONS || config->feedback > DW_FEEDBACK_NONE ||
        part <= MOST_OF_ACTIVATIONS)
        return false;
    snprintf(why->text, sizeof why->text,
             "the error is %.2f of the norm of what is sent of activations, and more than %.2f "
             "harms a model: %s",
             part, MOST_OF_ACTIVATIONS, remedy(config));
    return true;
}

/* Writes what is wrong with the error of rows. Returns whether something is. */
static bool says_rows(const dw_counters *c, const dw_config *config, dw_tensor_kind kind,
                      dw_why *why)
{
    if (c->measured_rows == 0) return says_whole(c, config, kind, why);
    if (c->measured_rows < LEAST_ROWS) return false;
    double row = c->row_error_sum / (double)c->measured_rows,
           bulk = c->bulk_error_sum / (double)c->measured_rows, least = implied(config, c),
           most = config->profile_digest ? MOST_OF_WEIGHED : MOST_OF_ACTIVATIONS;
    if (kind == DW_ACTIVATIONS && (row > most || bulk > most)) {
        snprintf(why->text, sizeof why->text,
                 "the error is %.2f of the norm of a row of activations, %.2f without its largest "
                 "values, and more than %.2f harms a model: %s",
                 row, bulk, most, remedy(config));
        return true;
    }
    if (kind == DW_GRADIENTS && least > 0 && row > MOST_OF_GRADIENTS * least) {
        snprintf(
            why->text, sizeof why->text,
            "the error is %.2f of the norm of a row of gradients, where the codec's steps imply "
            "%.2f: %s",
            row, least, remedy(config));
        return true;
    }
    return false;
}

int dw_counters_misfit(const dw_counters *counters, const dw_config *config, dw_tensor_kind kind,
                       dw_why *why)
{
    dw_config taken;
    dw_counters c = {0};
    dw_why own = {{0}, 0};
    if (!counters || !config || dw_config_take(&taken, config, NULL) ||
        dw_config_check(&taken, NULL))
        return 0;
    if (dw_take_asked(&c, sizeof c, counters, "dw_counters", NULL)) return 0;
    bool found = true;
    if (c.overflowed_values)
        snprintf(own.text, sizeof own.text,
                 "%llu of the values are too large for the 16-bit floats that are sent of them or "
                 "kept: take f32, or bf16 in place of f16",
                 (unsigned long long)c.overflowed_values);
    else if (c.escaped_values > c.raw_bytes / 4 / 100)
        snprintf(own.text, sizeof own.text,
                 "%llu of the values are too large for a code and are sent as floats: try mx, or a "
                 "larger step",
                 (unsigned long long)c.escaped_values);
    else
        found = says_rows(&c, &taken, kind, &own);
    if (found && why) *why = own;
    return found;
}
