/* SPDX-License-Identifier: Apache-2.0
 * stirred.h - a model whose parameters are unlike those with which a training begins. */
#ifndef DW_TEST_STIRRED_H
#define DW_TEST_STIRRED_H

#include "model.h"
#include "random.h"

/* Makes the parameters larger than initial ones, and replaces the trivial initial values of
 * vectors, so that every term of a gradient matters, and attention gives some tokens more weight
 * than others. */
static inline void stir(dw_model *model)
{
    dw_model_initialize(model, 3);
    for (uint32_t i = 0; i < dw_model_part_count(model); i++) {
        dw_part *part = dw_model_part(model, i);
        for (size_t k = 0; k < part->n; k++)
            part->params[k] +=
                0.3f *
                ((float)dw_random(9, DW_RANDOM_PARAMETERS, part->index, k).v[0] / 2147483648.0f -
                 1);
    }
}

#endif
