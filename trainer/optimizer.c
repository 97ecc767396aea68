/* SPDX-License-Identifier: Apache-2.0
 * optimizer.c - how a gradient becomes an update. */
#include "optimizer.h"

#include <math.h>

#include "ops.h"

double dw_optimizer_rate(const dw_optimizer *optimizer, uint32_t step)
{
    uint32_t warmup = optimizer->warmup, steps = optimizer->steps;
    if (step < warmup) return optimizer->lr * (step + 1.0) / warmup;
    /* The last step has the rate lr / (steps - warmup) and not 0, which would waste it. */
    return optimizer->lr * (steps - step) / (double)(steps - warmup);
}

double dw_optimizer_sum(const dw_part *part)
{
    return dw_sum_squares(part->grads, part->n_own);
}

double dw_optimizer_norm(const double *sums, uint32_t n_parts)
{
    double sum = 0;
    for (uint32_t i = 0; i < n_parts; i++) sum += sums[i];
    return sqrt(sum);
}

void dw_optimizer_update(const dw_optimizer *optimizer, dw_part *part, uint32_t step, double norm)
{
    dw_adamw how = {.lr = (float)dw_optimizer_rate(optimizer, step),
                    .beta1 = (float)optimizer->beta1,
                    .beta2 = (float)optimizer->beta2,
                    .epsilon = (float)optimizer->epsilon,
                    .gradient_scale = 1,
                    .correction1 = (float)(1 / (1 - pow(optimizer->beta1, step + 1.0))),
                    .correction2 = (float)(1 / (1 - pow(optimizer->beta2, step + 1.0)))};
    if (optimizer->clip > 0 && norm > optimizer->clip)
        how.gradient_scale = (float)(optimizer->clip / norm);
    for (uint32_t k = 0; k < part->n_tensors; k++) {
        const dw_parameter *tensor = &part->tensors[k];
        how.decay = tensor->rows > 1 ? (float)optimizer->decay : 0;
        dw_adamw_step(part->params + tensor->offset, part->grads + tensor->offset,
                      part->mean + tensor->offset, part->square + tensor->offset,
                      (size_t)tensor->rows * tensor->columns, &how);
    }
}
