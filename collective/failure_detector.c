/* SPDX-License-Identifier: Apache-2.0
 * failure_detector.c - finds the rank that owes something for too long, or takes nothing. A rank
 * that owes a result may itself wait for another one. So what depends on nobody else, as
 * contributions do, has a shorter limit than results, and ranks that wait tell each other for whom.
 */
#include "failure_detector.h"

#include "base/clock.h"

/* A rank has this fraction of timeout_ms for what it can do without waiting for another rank
 * (contributions, and taking messages), and all of timeout_ms for results. */
#define OWN_LIMIT 0.8

/* See dw_failure_detector_silent_since. */
enum { EARLY_WORTH = 16 };

/* A rank that waits tells the others so after every PINGS-th part of timeout_ms. */
enum { PINGS = 8 };

/* What a rank owes. It can make a digest only when it has the results of all ranks, and a result
 * only when it has their contributions; what is DEBT_OWN needs nobody else. So while one rank owes
 * a result, another one that owes only a digest may be waiting for it, and is not to blame. */
typedef enum debt { DEBT_DIGEST, DEBT_RESULT, DEBT_OWN } debt;

/* A rank that keeps this one waiting. */
typedef struct debtor {
    uint32_t rank; /* UINT32_MAX: none */
    int64_t for_ns;
    uint64_t slot;
    debt owes;
    bool takes; /* what it owes is to take messages, not to send them */
} debtor;

void dw_failure_detector_hear(dw_peer *peer)
{
    peer->vigil.heard_ns = dw_now_ns();
    peer->vigil.early_frames = 0;
}

void dw_failure_detector_hear_early(dw_peer *peer, uint64_t bytes)
{
    peer->vigil.early_ns = dw_now_ns();
    peer->vigil.early_frames += bytes;
}

static void consider(debtor *worst, debtor one)
{
    if (worst->rank == UINT32_MAX || one.owes > worst->owes ||
        (one.owes == worst->owes && one.for_ns > worst->for_ns))
        *worst = one;
}

static bool owes_any(const dw_group_slot *slot, uint32_t rank)
{
    return slot->reduce.owes[rank] > 0 || slot->gather.owes[rank] > 0 ||
           dw_slot_owes_digest(slot, rank);
}

/* Whether this rank has something to send to another one, be it ready or not. */
static bool lacks_any(const dw_exchange *exchange, const dw_group_slot *slot, uint32_t rank)
{
    const dw_settings *settings = &exchange->settings;
    const dw_group_job *job = &slot->now.job;
    if (slot->fan.left_to_send > 0 && slot->fan.sent[rank] < slot->fan.made) return true;
    if (slot->gather.left_to_share > 0) return true;
    if (slot->verify.left_to_send > 0 && !slot->verify.of[rank].is_sent) return true;
    if (slot->reduce.left_to_contribute == 0) return false;
    if (dw_job_is_one_shot(settings, job)) return true;
    if (job->operation == DW_BROADCAST) return rank == job->root;
    return slot->reduce.contributed[rank] < dw_partition_pieces(&slot->now.cut, rank);
}

/* Notes when a link last moved: it was given a message, or one has left it, or the operating system
 * had bytes acknowledged; on a link that may lose messages, one was acknowledged. `bytes_sent`
 * cannot tell, because it counts heartbeats, too, and a link to a rank that takes no messages still
 * takes those. They are among the operating system's bytes as well, so only many of these count.
 * If nothing waits in the link, this rank is too busy to send. Called every LOOK_MS (progress.c)
 * after the link had no room. */
static void look_for_movement(dw_peer *peer, int64_t now_ns)
{
    enum { MANY = 4096 };
    dw_link_counters counters = {.struct_size = sizeof counters};
    dw_link_count(peer->link, &counters);
    uint64_t left = counters.messages_sent + counters.kernel_bytes_sent / MANY;
    uint64_t moved = peer->next_number + (peer->retry_ms > 0 ? peer->sent.acknowledged : left);
    bool is_empty =
        counters.unsent_bytes == 0 && (peer->retry_ms == 0 || dw_retransmission_has_window(peer));
    if (moved != peer->vigil.moved || is_empty) peer->vigil.moved_ns = now_ns;
    peer->vigil.moved = moved;
}

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* From the start of the operation, or from when something last came from that rank that any running
 * operation was owed: a rank that is busy with other operations is not late. It may be busy with
 * some that have not begun here. Nobody can tell whether those ever will, so their messages buy
 * time by the bytes of their frames: as many as max_early_bytes buy EARLY_WORTH times timeout_ms.
 * Whatever else comes from it is no sign that it works on what it owes. */
int64_t dw_failure_detector_silent_since(const dw_settings *settings, const dw_peer *peer,
                                         int64_t start_ns)
{
    int64_t since_ns = later(start_ns, peer->vigil.heard_ns);
    double share = (double)peer->vigil.early_frames / (double)settings->max_early_bytes;
    double bought_ns = share * EARLY_WORTH * settings->timeout_ms * DW_NS_PER_MS;
    if (peer->vigil.early_frames == 0 || peer->vigil.early_ns < since_ns) return since_ns;
    return bought_ns < (double)(peer->vigil.early_ns - since_ns) ? since_ns + (int64_t)bought_ns
                                                                 : peer->vigil.early_ns;
}

/* Looks for the rank that is most to blame for what one operation waits for. If the link to a rank
 * has no room for what this one has to send, the time counts from when the link last moved. */
static void look_at(const dw_exchange *exchange, const dw_group_slot *slot, int64_t now_ns,
                    debtor *worst)
{
    const dw_settings *settings = &exchange->settings;
    int64_t limit_ns = (int64_t)settings->timeout_ms * DW_NS_PER_MS;
    for (uint32_t r = 0; r < settings->ranks; r++) {
        const dw_peer *peer = &exchange->peers[r];
        if (!peer->link) continue;
        int64_t since_ns = dw_failure_detector_silent_since(settings, peer, slot->now.start_ns);
        bool is_own = slot->reduce.owes[r] > 0 ||
                      (slot->now.job.operation != DW_ALL_REDUCE && slot->gather.owes[r] > 0);
        debt owes = is_own ? DEBT_OWN : slot->gather.owes[r] > 0 ? DEBT_RESULT : DEBT_DIGEST;
        if (owes_any(slot, r))
            consider(worst, (debtor){r, now_ns - since_ns, slot->number, owes, false});
        if (peer->refused_ns == 0 || !lacks_any(exchange, slot, r)) continue;
        since_ns = later(slot->now.start_ns, later(peer->vigil.moved_ns, peer->refused_ns));
        /* A link that is slow, but moves, must not hide a rank that owes a result. */
        if (now_ns - since_ns > limit_ns / PINGS)
            consider(worst, (debtor){r, now_ns - since_ns, slot->number, DEBT_OWN, true});
    }
}

/* Whether an operation cannot have finished on that rank. */
static bool has_not_finished(const dw_exchange *exchange, uint32_t rank)
{
    for (const dw_group_slot *slot = exchange->running.first; slot; slot = slot->next_running)
        if (owes_any(slot, rank) || lacks_any(exchange, slot, rank)) return true;
    return false;
}

static void ping(dw_exchange *exchange, const debtor *worst)
{
    for (uint32_t r = 0; r < exchange->settings.ranks; r++) {
        if (!exchange->peers[r].link || exchange->peers[r].is_closed) continue;
        dw_message head = {.kind = DW_MESSAGE_PING,
                           .rank = worst->owes == DEBT_OWN ? worst->rank : UINT32_MAX};
        dw_peer_notify(&exchange->peers[r], &head, NULL, 0);
    }
}

void dw_failure_detector_check(dw_exchange *exchange, int64_t now_ns, int64_t *pinged_ns)
{
    const dw_settings *settings = &exchange->settings;
    for (uint32_t r = 0; r < settings->ranks; r++) {
        if (exchange->peers[r].is_closed && has_not_finished(exchange, r)) {
            dw_failure_set(&exchange->failure, DW_ERR_PEER, r,
                           "rank %u closed its group before an operation had finished", r);
            return;
        }
    }
    for (uint32_t r = 0; r < settings->ranks; r++)
        if (exchange->peers[r].link && exchange->peers[r].refused_ns != 0)
            look_for_movement(&exchange->peers[r], now_ns);
    debtor worst = {.rank = UINT32_MAX};
    for (const dw_group_slot *slot = exchange->running.first; slot; slot = slot->next_running)
        look_at(exchange, slot, now_ns, &worst);
    if (worst.rank == UINT32_MAX) return;
    int64_t limit_ns = (int64_t)settings->timeout_ms * DW_NS_PER_MS;
    bool is_own = worst.owes == DEBT_OWN;
    if (is_own ? (double)worst.for_ns > OWN_LIMIT * (double)limit_ns : worst.for_ns > limit_ns) {
        uint32_t rank = worst.rank, behind = exchange->peers[rank].waits_for;
        if (!is_own && behind < settings->ranks && behind != settings->rank) rank = behind;
        dw_failure_set(&exchange->failure, DW_ERR_TIMEOUT, rank,
                       worst.takes ? "slot %llu: rank %u has taken nothing for %lld ms"
                                   : "slot %llu: rank %u has sent nothing for %lld ms; has it "
                                     "started the same operations?",
                       (unsigned long long)worst.slot, rank,
                       (long long)(worst.for_ns / DW_NS_PER_MS));
        return;
    }
    if (worst.for_ns > limit_ns / PINGS && now_ns - *pinged_ns > limit_ns / PINGS) {
        *pinged_ns = now_ns;
        ping(exchange, &worst);
    }
}
