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
    dw_operation_state *now = &slot->now;
    if (!dw_verifying_is_due(group, &now->job)) return;
    now->digests_to_send = now->digests_to_check = group->ranks - 1;
    for (uint32_t r = 0; r < group->ranks; r++) {
        slot->digests[r] =
            (dw_peer_digest){.is_sent = r == group->rank, .is_checked = r == group->rank};
        slot->owes_result[r] += r != group->rank;
    }
}

/* The digest of what is or will be in y; sums of one hop in 16 bits are not rounded yet. */
static uint64_t digest_of(dw_group *group, const dw_group_slot *slot, uint64_t salt)
{
    const dw_group_job *job = &slot->now.job;
    bool shares = dw_job_gathers(group, job);
    const void *from = slot->now.lands_in_y ? job->y : shares ? slot->result : (void *)slot->sums;
    size_t each = shares ? dw_dtype_bytes(job->dtype) : sizeof(float);
    return dw_message_digest(from, (size_t)job->n * each, salt);
}

static bool tell(dw_group *group, dw_group_slot *slot)
{
    dw_operation_state *now = &slot->now;
    bool tells = false;
    if (now->salt == 0) {
        now->salt = dw_group_random();
        now->digest = digest_of(group, slot, now->salt);
    }
    for (uint32_t r = 0; r < group->ranks && group->status == DW_OK; r++) {
        unsigned char *body;
        if (slot->digests[r].is_sent) continue;
        if (dw_peer_begin(&group->peers[r], BODY_BYTES, &body) != DW_OK) continue;
        dw_message head = dw_operation_message(slot, 1, 0, 0);
        head.flags |= DW_MESSAGE_DIGEST;
        dw_message_put(body, now->salt, 8);
        dw_message_put(body + 8, now->digest, 8);
        if (dw_peer_end(&group->peers[r], body, &head, BODY_BYTES) != DW_OK) break;
        slot->digests[r].is_sent = tells = true;
        now->digests_to_send--;
    }
    return tells;
}

bool dw_verifying_compare(dw_group *group, dw_group_slot *slot)
{
    dw_operation_state *now = &slot->now;
    bool does = now->digests_to_send > 0 && tell(group, slot);
    for (uint32_t r = 0; r < group->ranks && group->status == DW_OK; r++) {
        dw_peer_digest *theirs = &slot->digests[r];
        if (!theirs->has_come || theirs->is_checked) continue;
        theirs->is_checked = does = true;
        now->digests_to_check--;
        if (digest_of(group, slot, theirs->salt) == theirs->digest) continue;
        dw_group_fail(group, DW_ERR_PROTOCOL, r,
                      "slot %llu: ranks %u and %u have different results: a rank sent them "
                      "different frames, or memory is damaged",
                      (unsigned long long)slot->number, group->rank, r);
    }
    return does;
}

void dw_verifying_take(dw_group *group, dw_group_slot *slot, dw_received *received)
{
    uint32_t from = received->from;
    const unsigned char *body = dw_received_body(received);
    bool is_due = dw_verifying_is_due(group, &slot->now.job) && !slot->digests[from].has_come &&
                  received->head.body_len == BODY_BYTES;
    if (is_due) {
        slot->digests[from].salt = dw_message_get(body, 8);
        slot->digests[from].digest = dw_message_get(body + 8, 8);
        slot->digests[from].has_come = true;
        slot->owes_result[from]--;
    }
    dw_received_give(group, received);
    if (!is_due)
        dw_group_fail(group, DW_ERR_PROTOCOL, from,
                      "slot %llu: rank %u sent a digest that is not due",
                      (unsigned long long)slot->number, from);
}
