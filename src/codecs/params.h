/* SPDX-License-Identifier: Apache-2.0
 * params.h - a config with its defaults filled in, as the header of a frame wants it.
 *
 * Errors: CONFIG for a value out of range or a struct of another size. */
#ifndef DW_PARAMS_H
#define DW_PARAMS_H

#include "mem.h"

typedef struct dw_params {
    dw_codec codec;
    uint32_t bits, group, key; /* as in dw_frame_info */
    dw_dtype prev;
    bool chooses, wants_reply, is_stochastic;
    dw_scale scale; /* encoder only; 0: the best for the entry's bits */
    uint32_t audit;
} dw_params;

/* x: the dtype that "x's own" stands for. */
dw_status dw_params_resolve(dw_params *params, const dw_config *config, dw_dtype x);

#endif
