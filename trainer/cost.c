/* SPDX-License-Identifier: Apache-2.0
 * cost.c - the fields of a cost, in the order in which they are sent. */
#include "cost.h"

#include <math.h>
#include <string.h>

enum { SECONDS = 4, COUNTS = 12 };

/* Where the fields are. */
typedef struct fields {
    double *seconds[SECONDS];
    uint64_t *counts[COUNTS];
} fields;

static fields fields_of(dw_train_cost *cost)
{
    return (fields){{&cost->compute_s, &cost->codec_s, &cost->wait_s, &cost->gradient_wait_s},
                    {&cost->bytes_forward, &cost->bytes_backward, &cost->frames_forward,
                     &cost->frames_backward, &cost->raw_forward, &cost->raw_backward,
                     &cost->kernel_forward, &cost->kernel_backward, &cost->bytes_gradients,
                     &cost->raw_gradients, &cost->kernel_gradients, &cost->state_bytes}};
}

json_t *dw_cost_pack(const dw_train_cost *cost)
{
    dw_train_cost copy = *cost;
    fields of = fields_of(&copy);
    json_t *list = json_array();
    for (int i = 0; list && i < SECONDS; i++)
        json_array_append_new(list, json_real(*of.seconds[i]));
    for (int i = 0; list && i < COUNTS; i++)
        json_array_append_new(list, json_integer((json_int_t)*of.counts[i]));
    return list;
}

void dw_cost_unpack(const json_t *message, dw_train_cost *cost)
{
    fields of = fields_of(cost);
    for (size_t i = 0; i < SECONDS; i++) {
        const json_t *value = json_array_get(message, i);
        *of.seconds[i] = json_is_number(value) ? json_number_value(value) : (double)NAN;
    }
    for (size_t i = 0; i < COUNTS; i++)
        *of.counts[i] = (uint64_t)json_integer_value(json_array_get(message, SECONDS + i));
}

void dw_cost_add(dw_train_cost *sum, const dw_train_cost *cost)
{
    dw_train_cost copy = *cost;
    fields to = fields_of(sum), from = fields_of(&copy);
    for (int i = 0; i < SECONDS; i++) *to.seconds[i] += *from.seconds[i];
    for (int i = 0; i < COUNTS; i++) *to.counts[i] += *from.counts[i];
}
