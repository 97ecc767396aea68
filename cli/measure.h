/* SPDX-License-Identifier: Apache-2.0
 * measure.h - how codecs do on tensors of the user's own: `deltawire measure', and in Python
 * deltawire.measure. */
#ifndef DW_CLI_MEASURE_H
#define DW_CLI_MEASURE_H

#include "deltawire/deltawire.h"

typedef struct dw_measure_options {
    const char *const *files; /* .safetensors and .npy */
    const char *const *shown; /* their names in what is printed; NULL: their paths */
    size_t n_files;
    const char *const *tensors; /* names of those that are measured; none: all */
    size_t n_tensors;
    const char *codecs;     /* separated by blanks or semicolons; "all"; NULL: the usual ones */
    const char *delta_from; /* a file with the tensors' previous visits; NULL: none */
    int json;               /* prints one JSON document instead of tables */
    const char *picture;    /* a file for an SVG picture; NULL: none */
} dw_measure_options;

/* Measures all tensors with all codecs, and prints what it finds to stdout, and errors to stderr.
 * Returns the exit code of a program: 0; 1 where a file cannot be read, or nothing in it could be
 * measured; 2 where an option is wrong. */
DW_API int dw_measure(const dw_measure_options *options);

#endif
