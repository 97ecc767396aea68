/* SPDX-License-Identifier: Apache-2.0
 * bound.c - upper bounds for the size of frames and replies, computed from shape and config
 * alone. */
#include "codecs/plan.h"
#include "common/tensor.h"
#include "wire/reply.h"

/* The size of a frame whose entries all have the largest form. Where keys are kept, one forgotten
 * key per sample is added, so that keys can be announced as forgotten as fast as new ones
 * arrive. */
size_t dw_frame_bound(const dw_config *config, const dw_tensor *x)
{
    dw_plans plans;
    uint64_t end, one = 0, all;
    if (!config || dw_tensor_check(x) || dw_plans_make(&plans, config, x->dtype, x->t, x->c, NULL))
        return 0;
    /* Entries of the use EXACT carry floats in prev's dtype. In a frame made of x they occur only
     * with error=abs, in place of codes that would not be close enough to x. */
    for (int use = DW_USE_WHOLE; use <= (plans.params.bound > 0 ? DW_USE_EXACT : DW_USE_BRIEF);
         use++)
        if (plans.of[use].form && plans.of[use].payload_bytes > one)
            one = plans.of[use].payload_bytes;
    if (!dw_frame_table_end(plans.params.n_parameters, x->n, plans.params.keeps_prev ? x->n : 0,
                            &end) ||
        !dw_size_multiply(one, x->n, &all) || !dw_size_add(all, end, &all) || all > PTRDIFF_MAX)
        return 0;
    return (size_t)all;
}

size_t dw_reply_bound(uint32_t n)
{
    return DW_REPLY_BYTES + (size_t)n * DW_HELD_BYTES;
}
