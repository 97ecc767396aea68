/* SPDX-License-Identifier: Apache-2.0
 * verifying.c - with `verify`: before an operation returns OK, each two ranks compare what they
 * have. A rank that sends different frames to two others is caught so, whatever it then says.
 *
 * A rank that has everything draws a random number, the salt, and sends it to all others with the
 * digest of its result, which depends on the salt. The others compute the same from what they have.
 * Of two ranks one draws its salt when the other one has its result already, so nobody could choose
 * frames for them with results that differ and have the same digest. */
#include "group.h"

/* The body of the message: salt and digest. */
enum { BODY_BYTES = 16 };

bool dw_verifying_is_due(const dw_group *group, const dw_group_job *job)
{
    return group->verifies && job->operation != DW_REDUCE_SCATTER;
}

void dw_verifying_begin(dw_group *group, dw_group_slot *slot)
{
    dw_progress *now = &slot->now;
    if (!dw_verifying_is_due(group, &now->job)) return;
    now->left_to_tell = now->left_to_verify = group->ranks - 1;
    for (uint32_t r = 0; r < group->ranks; r++) {
        slot->told[r] = (dw_told){.is_sent = r == group->rank, .is_checked = r == group->rank};
        slot->owes_result[r] += r != group->rank;
    }
}

/* The digest of what is or will be in y; sums of one hop in 16 bits are not rounded yet. */
static uint64_t digest_of(dw_group *group, const dw_group_slot *slot, uint64_t salt)
{
    const dw_group_job *job = &slot->now.job;
    bool shares = dw_group_shares(group, job);
    const void *from = slot->now.lands_in_y ? job->y : shares ? slot->result : (void *)slot->sums;
    size_t each = shares ? dw_dtype_bytes(job->dtype) : sizeof(float);
    return dw_message_digest(from, (size_t)job->n * each, salt);
}

static bool tell(dw_group *group, dw_group_slot *slot)
{
    dw_progress *now = &slot->now;
    bool tells = false;
    if (now->salt == 0) {
        now->salt = dw_group_random();
        now->digest = digest_of(group, slot, now->salt);
    }
    for (uint32_t r = 0; r < group->ranks && group->status == DW_OK; r++) {
        unsigned char *body;
        if (slot->told[r].is_sent) continue;
        if (dw_lane_begin(&group->lanes[r], BODY_BYTES, &body) != DW_OK) continue;
        dw_message head = dw_operation_message(slot, 1, 0, 0);
        head.flags |= DW_MESSAGE_DIGEST;
        dw_message_put(body, now->salt, 8);
        dw_message_put(body + 8, now->digest, 8);
        if (dw_lane_end(&group->lanes[r], body, &head, BODY_BYTES) != DW_OK) break;
        slot->told[r].is_sent = tells = true;
        now->left_to_tell--;
    }
    return tells;
}

bool dw_verifying_compare(dw_group *group, dw_group_slot *slot)
{
    dw_progress *now = &slot->now;
    bool does = now->left_to_tell > 0 && tell(group, slot);
    for (uint32_t r = 0; r < group->ranks && group->status == DW_OK; r++) {
        dw_told *told = &slot->told[r];
        if (!told->has_come || told->is_checked) continue;
        told->is_checked = does = true;
        now->left_to_verify--;
        if (digest_of(group, slot, told->salt) == told->digest) continue;
        dw_group_fail(group, DW_ERR_PROTOCOL, r,
                      "slot %llu: ranks %u and %u have different results: a rank sent them "
                      "different frames, or memory is damaged",
                      (unsigned long long)slot->number, group->rank, r);
    }
    return does;
}

void dw_verifying_take(dw_group *group, dw_group_slot *slot, dw_arrival *arrival)
{
    uint32_t from = arrival->from;
    const unsigned char *body = dw_arrival_body(arrival);
    bool is_due = dw_verifying_is_due(group, &slot->now.job) && !slot->told[from].has_come &&
                  arrival->head.body_len == BODY_BYTES;
    if (is_due) {
        slot->told[from].salt = dw_message_get(body, 8);
        slot->told[from].digest = dw_message_get(body + 8, 8);
        slot->told[from].has_come = true;
        slot->owes_result[from]--;
    }
    dw_arrival_give(group, arrival);
    if (!is_due)
        dw_group_fail(group, DW_ERR_PROTOCOL, from,
                      "slot %llu: rank %u sent a digest that is not due",
                      (unsigned long long)slot->number, from);
}
