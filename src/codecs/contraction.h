/* SPDX-License-Identifier: Apache-2.0
 * contraction.h - by how much a form's error is smaller than what it codes. A form whose error is
 * always smaller is a contraction.
 *
 * Error feedback needs one. If the error is at most the part c of what is coded, and no gradient is
 * larger than G, then the residual e stays below c * (G + e), that is, below c / (1 - c) * G. If
 * the error can be as large as what is coded, the residual can grow without bound.
 *
 * Errors: none. State: none. Threads: any. Source: Karimireddy, Rebjock, Stich and Jaggi, Error
 * Feedback Fixes SignSGD (arXiv:1901.09847), where 1 - c is called delta, of squared norms. */
#ifndef DW_CONTRACTION_H
#define DW_CONTRACTION_H

#include "deltawire/deltawire.h"

typedef enum dw_contraction_kind {
    /* No error in a piece (a group, block, row or sample with one scale or step) is larger than
     * `part` times the largest magnitude in it, whatever its values are. With a rotation
     * (codecs/front.h) that holds for rotated values; it is the same at every visit, so the
     * residual is bounded as if gradients themselves were rotated. */
    DW_CONTRACTS_ALWAYS,
    /* The norm of the error is expected to be at most `part` times the norm of the piece. */
    DW_CONTRACTS_ON_AVERAGE,
    /* The norm of the error is never larger than `part` times the norm of the sample. */
    DW_CONTRACTS_BY_NORM,
    /* The norm of the error is never larger than the norm of the sample. It is smaller on average,
     * by a part that depends on the sample's shape; `part` is 1. */
    DW_CONTRACTS_BY_SHAPE,
    DW_CONTRACTS_NOT
} dw_contraction_kind;

typedef struct dw_contraction {
    dw_contraction_kind kind;
    double part; /* below 1 but for DW_CONTRACTS_BY_SHAPE; not used for DW_CONTRACTS_NOT */
} dw_contraction;

/* Returns a contraction of this kind, or DW_CONTRACTS_NOT if `part` is so close to 1 that the
 * residual could become more than 19 times as large as the largest gradient. For forms that send
 * a rounded copy of every value. Sparse forms send few values, so their part is close to 1, but it
 * is below 1, and what was not sent grows in the residual until it is. */
dw_contraction dw_contraction_by(dw_contraction_kind kind, double part);

/* The contraction of the entries that an encoder with feedback makes. config: of a codec without
 * prev; its fields are in range, but may be unset. */
dw_contraction dw_contraction_of(const dw_config *config);

#endif
