/* SPDX-License-Identifier: Apache-2.0
 * residuals.h - what tests of feedback share: the codecs that have it, gradients, and the residuals
 * that an encoder must hold. */
#ifndef DW_TEST_RESIDUALS_H
#define DW_TEST_RESIDUALS_H

#include <math.h>

#include "support/tool.h"

enum { N = 2, T = 9, C = 530, SIZE = T * C };
static const dw_key keys[N] = {{7, 0}, {9, 1}};

/* Configs of all forms. */
enum { CODECS = 45 };
extern const char *const residual_codecs[CODECS];

/* Writes the config of a codec to text, with the same incarnation in every encoder, so that all
 * draw the same random numbers. */
const char *text_of(size_t codec, const char *more, char text[160]);

/* held: the residual, negated, as the test expects it. coded: what the encoder must code. y: what
 * the decoder made of it. decay: 0: there is none. */
typedef struct reference {
    float held[N * SIZE], coded[N * SIZE], y[N * SIZE], decay;
} reference;

/* Where value i of all lies in x, whose rows and samples may have gaps between them. */
size_t place_in(const dw_tensor *x, size_t i);

/* Computes r->coded from x. */
void add_residual(reference *r, const dw_tensor *x);

/* Computes the next residual from x and r->y. */
void keep_rest(reference *r, const dw_tensor *x);

/* Fails unless the encoder holds the residuals of *r, bit for bit. */
void expect_held(const dw_encoder *encoder, const reference *r, const char *what);

/* Fills x, of shape (N, T, C) without gaps, with the gradients of one visit. kind 0: normal. 1:
 * always the same, so that what is never sent adds up. 2: all of the same magnitude. 3: a few large
 * values among small ones. */
void fill_kind(test_random *random, float *x, int kind, int visit);

#endif
