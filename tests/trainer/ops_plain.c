/* SPDX-License-Identifier: Apache-2.0
 * ops_plain.c - compiles the trainer's loops a second time, for the oldest instruction set and
 * under other names, so that a test can compare both. */
#undef DW_HAVE_TARGET_CLONES
#define dw_layernorm               plain_layernorm
#define dw_layernorm_backward      plain_layernorm_backward
#define dw_bias_gelu               plain_bias_gelu
#define dw_gelu_backward           plain_gelu_backward
#define dw_causal_softmax          plain_causal_softmax
#define dw_causal_softmax_backward plain_causal_softmax_backward
#define dw_cross_entropy           plain_cross_entropy
#define dw_add_bias                plain_add_bias
#define dw_copy_bias               plain_copy_bias
#define dw_sum_rows                plain_sum_rows
#define dw_sum_squares             plain_sum_squares
#define dw_adamw_step              plain_adamw_step
#include "ops.c"
