/* SPDX-License-Identifier: Apache-2.0
 * nested.h - rows of values inside a payload that another form writes: microscaled if the config
 * has an element, quantized if it has bits, otherwise floats. For forms that send something else
 * than the elements themselves: values without places, or factors of a matrix.
 *
 * | name    | shape  | unit  | meaning                                                 | owner  |
 * | values  | (t, c) |       | binary32, dense                                         | caller |
 * | payload |        | bytes | plan->payload_bytes of the payload of the outer form    | caller |
 *
 * Errors: none but those named. State: none. Threads: any, on different memory. */
#ifndef DW_NESTED_H
#define DW_NESTED_H

#include "codecs/plan.h"

/* Plans t rows of c values, in groups of `group` where they are quantized. false: too many. */
bool dw_nested_plan(const dw_form_params *params, uint32_t t, uint64_t c, uint32_t group,
                    dw_plan *plan);

/* Writes values as a job says, without a base or a residual of their own, and adds to sums how many
 * groups were zero or poisoned. number: 0 for the first rows of a payload, 1 for the next: with
 * stochastic rounding each have random numbers of their own. */
void dw_nested_encode(const dw_encode_job *job, const dw_plan *plan, const float *values,
                      uint32_t number, uint8_t *payload, dw_sums *sums);

void dw_nested_decode(const struct dw_kernels *kernels, const dw_plan *plan, const uint8_t *payload,
                      float *values);

/* Adds to a decoder's counters what the other form counts. */
void dw_nested_count(const dw_decode_job *job, const dw_plan *plan, const uint8_t *payload,
                     dw_counters *counters);

/* The contraction of the other form. */
dw_contraction dw_nested_contracts(const dw_form_params *params, const dw_config *config);

#endif
