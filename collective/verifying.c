/* SPDX-License-Identifier: Apache-2.0
 * verifying.c - with `verify`: before an operation returns OK, each two ranks compare what they
 * have. A rank that sends different frames to two others is caught so, whatever it then says.
 *
 * A rank that has everything draws a random number, the salt, and sends it to all others with the
 * digest of its result, which depends on the salt. The others compute the same from what they have.
 * Of two ranks one draws its salt when the other one has its result already, so nobody could choose
 * frames for them with results that differ and have the same digest. */
#include "base/clock.h"
#include "base/mem.h"
#include "exchange.h"

/* The body of the message: salt and digest. */
enum { BODY_BYTES = 16 };

bool dw_verifying_is_due(const dw_settings *settings, const dw_group_job *job)
{
    return settings->verifies && job->operation != DW_REDUCE_SCATTER;
}

void dw_verifying_begin(const dw_exchange *exchange, dw_group_slot *slot)
{
    const dw_settings *settings = &exchange->settings;
    if (!dw_verifying_is_due(settings, &slot->now.job)) return;
    slot->verify.left_to_send = slot->verify.left_to_check = settings->ranks - 1;
    for (uint32_t r = 0; r < settings->ranks; r++) {
        bool is_own = r == settings->rank;
        slot->verify.of[r] = (dw_peer_digest){.is_sent = is_own, .is_checked = is_own};
    }
}

/* The digest of what is or will be in y; sums of one hop in 16 bits are not rounded yet. */
static uint64_t digest_of(const dw_exchange *exchange, const dw_group_slot *slot, uint64_t salt)
{
    const dw_group_job *job = &slot->now.job;
    bool shares = dw_job_gathers(&exchange->settings, job);
    const void *from = slot->gather.lands_in_y ? job->y
                       : shares                ? slot->gather.result
                                               : (void *)slot->reduce.sums;
    size_t each = shares ? dw_dtype_bytes(job->dtype) : sizeof(float);
    return dw_message_digest(from, (size_t)job->n * each, salt);
}

static bool send(dw_exchange *exchange, dw_group_slot *slot)
{
    bool sends = false;
    if (slot->verify.salt == 0) {
        slot->verify.salt = dw_mem_random();
        slot->verify.digest = digest_of(exchange, slot, slot->verify.salt);
    }
    for (uint32_t r = 0; r < exchange->settings.ranks && exchange->failure.status == DW_OK; r++) {
        unsigned char *body;
        if (slot->verify.of[r].is_sent) continue;
        if (dw_peer_begin(&exchange->peers[r], BODY_BYTES, &body) != DW_OK) continue;
        dw_message head = dw_frame_header(slot, 1, 0, 0);
        head.flags |= DW_MESSAGE_DIGEST;
        dw_put(body, slot->verify.salt, 8);
        dw_put(body + 8, slot->verify.digest, 8);
        if (dw_peer_end(&exchange->peers[r], body, &head, BODY_BYTES) != DW_OK) break;
        slot->verify.of[r].is_sent = sends = true;
        slot->verify.left_to_send--;
    }
    return sends;
}

bool dw_verifying_compare(dw_exchange *exchange, dw_group_slot *slot)
{
    const dw_settings *settings = &exchange->settings;
    bool does = slot->verify.left_to_send > 0 && send(exchange, slot);
    for (uint32_t r = 0; r < settings->ranks && exchange->failure.status == DW_OK; r++) {
        dw_peer_digest *theirs = &slot->verify.of[r];
        if (!theirs->has_come || theirs->is_checked) continue;
        theirs->is_checked = does = true;
        slot->verify.left_to_check--;
        if (digest_of(exchange, slot, theirs->salt) == theirs->digest) continue;
        dw_failure_set(&exchange->failure, DW_ERR_PROTOCOL, r,
                       "slot %llu: ranks %u and %u have different results: a rank sent them "
                       "different frames, or memory is damaged",
                       (unsigned long long)slot->number, settings->rank, r);
    }
    return does;
}

void dw_verifying_take(dw_exchange *exchange, dw_group_slot *slot, dw_received *received)
{
    uint32_t from = received->from;
    const unsigned char *body = dw_received_body(received);
    bool is_due = dw_verifying_is_due(&exchange->settings, &slot->now.job) &&
                  !slot->verify.of[from].has_come && received->head.body_len == BODY_BYTES;
    if (is_due) {
        slot->verify.of[from].salt = dw_get(body, 8);
        slot->verify.of[from].digest = dw_get(body + 8, 8);
        slot->verify.of[from].has_come = true;
    }
    dw_received_give(&exchange->pool, received);
    if (!is_due)
        dw_failure_set(&exchange->failure, DW_ERR_PROTOCOL, from,
                       "slot %llu: rank %u sent a digest that is not due",
                       (unsigned long long)slot->number, from);
}
