/* SPDX-License-Identifier: Apache-2.0
 * parameters.h - what the model learns, part by part (layout.h lists the parts).
 *
 * A part is what one checkpoint file holds, and the smallest unit that a stage can own. All its
 * numbers lie in one vector, tensor after tensor, so that the optimizer, the clipping and the
 * checkpoint need not distinguish tensors. C is a multiple of 8, so every tensor starts on a
 * 32-byte boundary. */
#ifndef DW_TRAINER_PARAMETERS_H
#define DW_TRAINER_PARAMETERS_H

#include "deltawire/deltawire.h"

enum { DW_VOCABULARY = 256 }; /* the tokens are bytes */

/* | layers   | L: blocks                            | 1..9999                                 |
 * | channels | C: width of the residual stream      | multiple of 8 and of heads, up to 65536 |
 * | heads    | H: attention heads of C / H channels | 1..C                                    |
 * | context  | T: tokens of a sample                | 1..65536                                |
 * | tied     | 1: embed.tokens and head.logits are  | 0, 1                                    |
 * |          | one matrix, in two copies (tied.h)   |                                         |
 * | bottle-  | R: channels between stages; 0: C,    | 0..C                                    |
 * | neck     | without parts of their own           |                                         |
 * | stages   | K, with a bottleneck; otherwise 0,   | 2..L                                    |
 * |          | because nothing depends on it        |                                         | */
typedef struct dw_model_shape {
    uint32_t layers, channels, heads, context, tied, bottleneck, stages;
} dw_model_shape;

enum { DW_SHAPE_TEXT_BYTES = 120 };

/* The tensors of a part, in their order in the vector; (rows, columns) in the comments. */
enum { DW_EMBED_TOKENS, /* (V, C) */ DW_EMBED_POSITIONS /* (T, C) */ };
enum {
    DW_BLOCK_NORM1_SCALE,
    DW_BLOCK_NORM1_SHIFT, /* (C) */
    DW_BLOCK_QKV,
    DW_BLOCK_QKV_BIAS, /* (3C, C) and (3C): queries, keys, values */
    DW_BLOCK_JOIN,
    DW_BLOCK_JOIN_BIAS, /* (C, C) and (C): joins the heads */
    DW_BLOCK_NORM2_SCALE,
    DW_BLOCK_NORM2_SHIFT, /* (C) */
    DW_BLOCK_WIDEN,
    DW_BLOCK_WIDEN_BIAS, /* (4C, C) and (4C) */
    DW_BLOCK_NARROW,
    DW_BLOCK_NARROW_BIAS /* (C, 4C) and (C) */
};
enum { DW_BOUNDARY_MATRIX }; /* (R, C) of narrow, (C, R) of widen */
enum { DW_HEAD_NORM_SCALE, DW_HEAD_NORM_SHIFT, /* (C) */ DW_HEAD_LOGITS /* (V, C) */ };

typedef struct dw_parameter {
    const char *name;
    uint32_t rows, columns; /* rows 1: a vector, which weight decay leaves alone */
    size_t offset;          /* in the part's vectors, in elements */
    float deviation; /* of the normal distribution of the initial values; 0: all are `start` */
    float start;
    uint32_t stream;    /* of the random numbers that the initial values are drawn from */
    uint32_t is_turned; /* 1: they are drawn column by column */
} dw_parameter;

enum { DW_PARAMETERS_MAX = 12, DW_PART_NAME_BYTES = 24 };

/* | params, grads | (n) | what is learned and its gradient, summed over micro-batches | part |
 * | mean, square  | (n) | the optimizer's averages of the gradient and of its square  | part | */
typedef struct dw_part {
    char name[DW_PART_NAME_BYTES];
    uint32_t index; /* in the order of layout.h */
    uint32_t n_tensors, first_stream;
    dw_parameter tensors[DW_PARAMETERS_MAX];
    size_t n, n_own; /* n_own: without a tied matrix at the end, which is a copy of the embedding's
                      */
    float *params, *grads, *mean, *square;
} dw_part;

/* Returns ARGUMENT, with a sentence in *why, for an invalid shape. */
dw_status dw_model_shape_check(const dw_model_shape *shape, dw_why *why);
/* Describes the model, as in "4 layers, 128 channels, 4 heads, context 128". Returns text. */
const char *dw_model_shape_text(const dw_model_shape *shape, char text[DW_SHAPE_TEXT_BYTES]);

/* Errors: NO_MEMORY. All vectors start as zero. */
dw_status dw_part_create(dw_part *part, const dw_model_shape *shape, uint32_t index);
void dw_part_destroy(dw_part *part);

/* Draws the initial params from seed as GPT-2 does: with deviation 0.02, or 0.02 / sqrt(2 L) for
 * matrices whose product is added to the residual stream. The two matrices of a boundary begin as
 * the transposes of each other, with a deviation of 1 / sqrt(C), so that together they are nearly a
 * projection to R dimensions. */
void dw_part_initialize(dw_part *part, uint64_t seed);

/* Allocates n floats, set to zero and aligned to a cache line, to be released by free(). NULL: no
 * memory. */
float *dw_floats(size_t n);

#endif
