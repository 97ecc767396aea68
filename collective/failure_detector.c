/* SPDX-License-Identifier: Apache-2.0
 * failure_detector.c - finds the rank that owes something for too long, or takes nothing. A rank
 * that owes a result may itself wait for another one. So what depends on nobody else, as
 * contributions do, has a shorter limit than results, and ranks that wait tell each other for whom.
 */
#include "group.h"

/* A rank has this fraction of timeout_ms for what it can do without waiting for another rank
 * (contributions, and taking messages), and all of timeout_ms for results. */
#define OWN_LIMIT 0.8

/* See dw_failure_detector_silent_since. */
enum { EARLY_WORTH = 16 };

/* A rank that waits tells the others so after every PINGS-th part of timeout_ms. */
enum { PINGS = 8 };

/* A rank that keeps this one waiting. */
typedef struct debtor {
    uint32_t rank; /* UINT32_MAX: none */
    int64_t for_ns;
    uint64_t slot;
    bool is_own; /* it could do what it owes without waiting for another rank */
    bool takes;  /* what it owes is to take messages, not to send them */
} debtor;

static void consider(debtor *worst, debtor one)
{
    if (worst->rank == UINT32_MAX || one.is_own > worst->is_own ||
        (one.is_own == worst->is_own && one.for_ns > worst->for_ns))
        *worst = one;
}

/* Whether this rank has something to send to another one, be it ready or not. */
static bool lacks_any(const dw_group *group, const dw_group_slot *slot, uint32_t rank)
{
    const dw_operation_state *now = &slot->now;
    const dw_group_job *job = &now->job;
    if (now->left_to_send > 0 && slot->sent[rank] < now->made_for_all) return true; /* fan_out.c */
    if (now->left_to_share > 0) return true;
    if (now->digests_to_send > 0 && !slot->digests[rank].is_sent) return true;
    if (now->left_to_contribute == 0) return false;
    if (dw_job_is_one_shot(group, job)) return true;
    if (job->operation == DW_BROADCAST) return rank == job->root;
    return slot->contributed[rank] < dw_job_pieces(group, job, rank);
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
    uint64_t moved = peer->next_number + (peer->retry_ms > 0 ? peer->acknowledged : left);
    bool is_empty = counters.unsent_bytes == 0 && (peer->retry_ms == 0 || dw_peer_has_window(peer));
    if (moved != peer->moved || is_empty) peer->moved_ns = now_ns;
    peer->moved = moved;
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
int64_t dw_failure_detector_silent_since(const dw_group *group, const dw_peer *peer,
                                         int64_t start_ns)
{
    int64_t since_ns = later(start_ns, peer->heard_ns);
    double share = (double)peer->early_frames / (double)group->max_early_bytes;
    double bought_ns = share * EARLY_WORTH * group->timeout_ms * DW_NS_IN_MS;
    if (peer->early_frames == 0 || peer->early_ns < since_ns) return since_ns;
    return bought_ns < (double)(peer->early_ns - since_ns) ? since_ns + (int64_t)bought_ns
                                                           : peer->early_ns;
}

/* Looks for the rank that is most to blame for what one operation waits for. If the link to a rank
 * has no room for what this one has to send, the time counts from when the link last moved. */
static void look_at(const dw_group *group, const dw_group_slot *slot, int64_t now_ns, debtor *worst)
{
    int64_t limit_ns = (int64_t)group->timeout_ms * DW_NS_IN_MS;
    for (uint32_t r = 0; r < group->ranks; r++) {
        const dw_peer *peer = &group->peers[r];
        if (!peer->link) continue;
        int64_t since_ns = dw_failure_detector_silent_since(group, peer, slot->now.start_ns);
        bool owes_digest = slot->now.digests_to_check > 0 && !slot->digests[r].has_come;
        bool is_own = slot->owes_part[r] > 0 || (slot->now.job.operation != DW_ALL_REDUCE &&
                                                 slot->owes_result[r] > owes_digest);
        if (slot->owes_part[r] > 0 || slot->owes_result[r] > 0)
            consider(worst, (debtor){r, now_ns - since_ns, slot->number, is_own, false});
        if (peer->refused_ns == 0 || !lacks_any(group, slot, r)) continue;
        since_ns = later(slot->now.start_ns, later(peer->moved_ns, peer->refused_ns));
        /* A link that is slow, but moves, must not hide a rank that owes a result. */
        if (now_ns - since_ns > limit_ns / PINGS)
            consider(worst, (debtor){r, now_ns - since_ns, slot->number, true, true});
    }
}

/* Whether an operation cannot have finished on that rank. */
static bool has_not_finished(const dw_group *group, uint32_t rank)
{
    for (const dw_group_slot *slot = group->running; slot; slot = slot->next_running)
        if (slot->owes_part[rank] > 0 || slot->owes_result[rank] > 0 ||
            lacks_any(group, slot, rank))
            return true;
    return false;
}

static void ping(dw_group *group, const debtor *worst, int64_t now_ns)
{
    group->pinged_ns = now_ns;
    for (uint32_t r = 0; r < group->ranks; r++) {
        if (!group->peers[r].link || group->peers[r].is_closed) continue;
        dw_message head = {.kind = DW_MESSAGE_PING,
                           .rank = worst->is_own ? worst->rank : UINT32_MAX};
        dw_peer_notify(&group->peers[r], &head, NULL, 0);
    }
}

void dw_failure_detector_check(dw_group *group, int64_t now_ns)
{
    for (uint32_t r = 0; r < group->ranks; r++) {
        if (group->peers[r].is_closed && has_not_finished(group, r)) {
            dw_group_fail(group, DW_ERR_PEER, r,
                          "rank %u closed its group before an operation had finished", r);
            return;
        }
    }
    for (uint32_t r = 0; r < group->ranks; r++)
        if (group->peers[r].link && group->peers[r].refused_ns != 0)
            look_for_movement(&group->peers[r], now_ns);
    debtor worst = {.rank = UINT32_MAX};
    for (const dw_group_slot *slot = group->running; slot; slot = slot->next_running)
        look_at(group, slot, now_ns, &worst);
    if (worst.rank == UINT32_MAX) return;
    int64_t limit_ns = (int64_t)group->timeout_ms * DW_NS_IN_MS;
    if (worst.is_own ? (double)worst.for_ns > OWN_LIMIT * (double)limit_ns
                     : worst.for_ns > limit_ns) {
        uint32_t rank = worst.rank, behind = group->peers[rank].waits_for;
        if (!worst.is_own && behind < group->ranks && behind != group->rank) rank = behind;
        dw_group_fail(group, DW_ERR_TIMEOUT, rank,
                      worst.takes ? "slot %llu: rank %u has taken nothing for %lld ms"
                                  : "slot %llu: rank %u has sent nothing for %lld ms; has it "
                                    "started the same operations?",
                      (unsigned long long)worst.slot, rank,
                      (long long)(worst.for_ns / DW_NS_IN_MS));
        return;
    }
    if (worst.for_ns > limit_ns / PINGS && now_ns - group->pinged_ns > limit_ns / PINGS)
        ping(group, &worst, now_ns);
}
