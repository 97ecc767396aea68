/* SPDX-License-Identifier: Apache-2.0
 * measure_options.c - the options of `deltawire measure'. */
#include "measure_options.h"

#include <argp.h>
#include <stdlib.h>

#include "complain.h"
#include "measure.h"

enum { CODEC = 256, DELTA_FROM, PICTURE };

static const struct argp_option options[] = {
    {"codec", CODEC, "LIST", 0,
     "Codecs, separated by blanks or semicolons; or all: one of every codec, besides the usual "
     "ones (default: a few that docs/codecs.md recommends)",
     0},
    {"delta-from", DELTA_FROM, "FILE", 0,
     "The previous visit of the same tensors, under the same names: it is sent first, and what is "
     "measured is the visit after it. Without it, delta is measured at its first visit",
     0},
    {"tensor", 't', "NAME", 0,
     "Measure only the tensor of this name; can be given more than once (default: all)", 0},
    {"picture", PICTURE, "FILE", 0,
     "Draw error against bits into FILE, as SVG, with a panel for each of the first 12 tensors", 0},
    {"json", 'j', 0, 0, "Print one JSON document instead of tables", 0},
    {0},
};

static const char doc[] =
    "Measures codecs on tensors of your own, from .safetensors and .npy files."
    "\v"
    "Tensors of f32, f16 and bf16 are read. Of a shape (..., T, C), T are tokens and C channels, "
    "and the dimensions in front are samples; a row is the C values of a token. Each tensor goes "
    "through a real encoder and decoder in one thread, and arrives in its own dtype.\n"
    "\n"
    "\"bits\" are those of the whole frame for each value. \"error\" is |x - y| / |x| of a row: "
    "its mean, and under \"largest\" the largest. \"cosine\" is that of the angle between x and y, "
    "\"bias\" the mean of y - x over the rms of x. \"GB/s\" counts the tensor's bytes. A sentence "
    "\"does not fit\" is a warning that trainings give, too (docs/codecs.md, Does a codec fit?); "
    "tensors with \"grad\" in their name or that of the file are judged as gradients.\n"
    "\n"
    "Example:\n"
    "\n"
    "  deltawire measure activations-0000.safetensors --codec \"mx direct:bits=8\"\n"
    "\n"
    "Exit status: 0 success, 1 a file cannot be read or nothing could be measured, 2 wrong usage.";

typedef struct arguments {
    dw_measure_options options;
    const char **files, **tensors; /* room for all arguments */
} arguments;

static error_t parse_option(int key, char *value, struct argp_state *state)
{
    arguments *a = state->input;
    switch (key) {
    case CODEC: a->options.codecs = value; break;
    case DELTA_FROM: a->options.delta_from = value; break;
    case PICTURE: a->options.picture = value; break;
    case 't': a->tensors[a->options.n_tensors++] = value; break;
    case 'j': a->options.json = 1; break;
    case ARGP_KEY_ARG: a->files[a->options.n_files++] = value; break;
    case ARGP_KEY_NO_ARGS: argp_error(state, "the name of a file is missing"); break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

int dw_cli_measure(int argc, char **argv)
{
    static const struct argp parser = {options, parse_option, "FILE...", doc, NULL, NULL, NULL};
    char name[] = "deltawire measure";
    const char **room = calloc(2 * (size_t)argc, sizeof *room);
    arguments a = {.files = room, .tensors = room + argc};
    if (!room) {
        dw_complain("out of memory");
        return DW_EXIT_FAILED;
    }
    argv[0] = name;
    argp_err_exit_status = DW_EXIT_USAGE;
    argp_parse(&parser, argc, argv, 0, NULL, &a);
    a.options.files = a.files;
    a.options.tensors = a.tensors;
    int code = dw_measure(&a.options);
    free(room);
    return code;
}
