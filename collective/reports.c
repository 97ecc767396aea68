/* SPDX-License-Identifier: Apache-2.0
 * reports.c - counters and sentences. */
#include <string.h>

#include "group.h"

/* Adds the counters of an encoder to *sum. Current values such as keys_held are added as well,
 * because every encoder holds keys of its own. */
static void add_counters(dw_counters *sum, const dw_encoder *encoder)
{
    dw_counters one = {.struct_size = sizeof one};
    if (dw_encoder_count(encoder, &one) != DW_OK) return;
    const uint64_t *from = &one.frames;
    uint64_t *to = &sum->frames;
    for (; from <= &one.busy_ns; from++, to++) *to += *from;
    sum->x_square += one.x_square;
    sum->delta_square += one.delta_square;
    sum->error_square += one.error_square;
    sum->measured_rows += one.measured_rows;
    sum->row_error_sum += one.row_error_sum;
    sum->bulk_error_sum += one.bulk_error_sum;
    if (one.row_error_largest > sum->row_error_largest)
        sum->row_error_largest = one.row_error_largest;
}

typedef struct codec_sums {
    dw_counters to_ranks, to_all; /* contributions, results */
} codec_sums;

static dw_status add_coder(void *context, const dw_coder *coder)
{
    codec_sums *sums = context;
    if (coder->encoder)
        add_counters(coder->kind == DW_ALL_GATHER_ENCODER ? &sums->to_all : &sums->to_ranks,
                     coder->encoder);
    return DW_OK;
}

static void count_codecs(dw_group *group, codec_sums *sums)
{
    const dw_coding *coding = &group->exchange.coding;
    dw_exclusive_begin(group);
    pthread_mutex_lock(&group->lock);
    const dw_group_slot *slot = group->slots.newest;
    pthread_mutex_unlock(&group->lock);
    dw_coders_visit(coding, &coding->common, add_coder, sums);
    for (; slot; slot = slot->made_before) dw_coders_visit(coding, &slot->coders, add_coder, sums);
    dw_exclusive_end(group);
}

static dw_group_counters count_operations(dw_group *group)
{
    pthread_mutex_lock(&group->lock);
    dw_group_counters now = group->published;
    now.started = group->counters.started;
    now.finished = group->counters.finished;
    now.slots = group->slots.count;
    now.state_bytes = group->slots.state_bytes;
    now.wait_ns = group->counters.wait_ns;
    pthread_mutex_unlock(&group->lock);
    return now;
}

dw_status dw_group_count(dw_group *group, dw_group_counters *counters, dw_counters *contributed,
                         dw_counters *results)
{
    DW_UNCANCELLED;
    codec_sums sums = {0};
    dw_status status = DW_OK;
    if (!dw_group_is_ours(group)) return DW_ERR_ARGUMENT;
    if (counters) {
        const dw_group_counters now = count_operations(group);
        status = dw_give_told(counters, &now, sizeof now, "dw_group_counters", NULL);
    }
    if (contributed || results) count_codecs(group, &sums);
    if (contributed && status == DW_OK)
        status =
            dw_give_told(contributed, &sums.to_ranks, sizeof sums.to_ranks, "dw_counters", NULL);
    if (results && status == DW_OK)
        status = dw_give_told(results, &sums.to_all, sizeof sums.to_all, "dw_counters", NULL);
    return status;
}

const char *dw_group_why(dw_group *group, int *rank)
{
    if (rank) *rank = -1;
    if (!group) return "";
    if (!dw_group_is_ours(group))
        return "this group belongs to the process that opened it; a forked child must open a group "
               "of its own";
    pthread_mutex_lock(&group->lock);
    bool has_failed = group->failure.status != DW_OK;
    const char *text = has_failed ? group->failure.why.text : group->refusal.text;
    if (rank && has_failed) *rank = (int)group->failure.rank;
    pthread_mutex_unlock(&group->lock);
    return text;
}
