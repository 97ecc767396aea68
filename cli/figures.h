/* SPDX-License-Identifier: Apache-2.0
 * figures.h - what is said of a user's tensor, and of a codec that has sent it. */
#ifndef DW_CLI_FIGURES_H
#define DW_CLI_FIGURES_H

#include <stdbool.h>

#include "deltawire/deltawire.h"
#include "tensor_file.h"

/* A codec of the user's list. */
typedef struct dw_chosen_codec {
    const char *text;
    dw_config config;
} dw_chosen_codec;

/* A tensor and what is known of it. Values that are NaN or infinite are in none of the figures. */
typedef struct dw_subject {
    const char *file; /* its path, safe to print */
    const dw_file_tensor *in_file;
    dw_tensor x, previous;               /* previous.data is NULL: no earlier visit is known */
    double rms, largest;                 /* of all values; the largest magnitude over the rms */
    double largest_row, largest_channel; /* the largest norm over the median one */
    uint64_t not_finite, zero_rows;
    dw_tensor_kind kind;
} dw_subject;

/* What a codec did to a tensor. */
typedef struct dw_figures {
    char failed[256]; /* "", or why there are no figures */
    char misfit[256]; /* "", or what dw_counters_misfit says */
    bool is_first; /* a key entry was measured, although the codec sends changes at later visits */
    double bits;   /* of the frame, for each value */
    double error, largest_error; /* |x - y| / |x| of a row: the mean, and the largest */
    double cosine, bias;         /* of the whole tensor; the mean of y - x over the rms of x */
    double encode_gbs, decode_gbs;
    uint64_t escaped, overflowed, poisoned; /* of the encoder's counters */
    uint64_t lost;                          /* finite values that arrived as NaN or infinity */
} dw_figures;

/* Fills in the figures of subject->x, whose data the caller has set. Errors: NO_MEMORY. */
dw_status dw_subject_describe(dw_subject *subject, dw_why *why);

/* Sends subject->previous, if it is known, then subject->x, through a new encoder and decoder. y is
 * room for a tensor of the same dtype. What goes wrong is said in figures->failed. */
void dw_figures_measure(dw_figures *figures, const dw_subject *subject,
                        const dw_chosen_codec *codec, void *y);

#endif
