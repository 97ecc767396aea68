/* SPDX-License-Identifier: Apache-2.0
 * lateness.c - finds the rank that owes something for too long, or takes nothing. A rank that owes
 * a result may itself wait for another one. So what depends on nobody else, as contributions do,
 * has a shorter limit than results, and ranks that wait tell each other for whom. */
#include "group.h"

/* A rank has this fraction of timeout_ms for what it can do without waiting for another rank
 * (contributions, and taking messages), and all of timeout_ms for results. */
#define OWN_LIMIT 0.8

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

/* Whether messages are kept until the link to a rank has room (everyone.c). */
static bool is_kept_for(const dw_group_slot *slot, uint32_t rank)
{
    return slot->now.left_to_send > 0 && slot->sent[rank] < slot->now.made_for_all;
}

static bool is_anything_kept_for(const dw_group *group, uint32_t rank)
{
    for (const dw_group_slot *slot = group->running; slot; slot = slot->next_running)
        if (is_kept_for(slot, rank)) return true;
    return false;
}

/* Notes when a link last moved: it was given a message, or had one acknowledged, or the operating
 * system had bytes acknowledged. `bytes_sent` cannot tell, because it counts heartbeats, too, and a
 * link to a rank that takes no messages still takes those. Called every LOOK_MS (worker.c) while
 * messages are kept. */
static void look_for_movement(dw_lane *lane, int64_t now_ns)
{
    dw_link_counters counters = {.struct_size = sizeof counters};
    dw_link_count(lane->link, &counters);
    uint64_t moved = lane->next_number + lane->acknowledged + counters.kernel_bytes_sent;
    if (moved != lane->moved) lane->moved_ns = now_ns;
    lane->moved = moved;
}

/* Looks for the rank that is most to blame for what one operation waits for. If a rank owes
 * messages, the time counts from the start of the operation here, or from when something last came
 * from that rank: a rank that is busy sending other operations is not late. If messages are kept
 * for it, the time counts from when its link last moved. */
static void look_at(const dw_group *group, const dw_group_slot *slot, int64_t now_ns, debtor *worst)
{
    int64_t limit_ns = (int64_t)group->timeout_ms * DW_NS_IN_MS;
    for (uint32_t r = 0; r < group->ranks; r++) {
        const dw_lane *lane = &group->lanes[r];
        if (!lane->link) continue;
        int64_t since_ns =
            lane->heard_ns > slot->now.start_ns ? lane->heard_ns : slot->now.start_ns;
        bool is_own = slot->owes_part[r] > 0 || slot->now.job.operation != DW_ALL_REDUCE;
        if (slot->owes_part[r] > 0 || slot->owes_result[r] > 0)
            consider(worst, (debtor){r, now_ns - since_ns, slot->number, is_own, false});
        since_ns = lane->moved_ns > slot->now.start_ns ? lane->moved_ns : slot->now.start_ns;
        /* A link that is slow, but moves, must not hide a rank that owes a result. */
        if (is_kept_for(slot, r) && now_ns - since_ns > limit_ns / PINGS)
            consider(worst, (debtor){r, now_ns - since_ns, slot->number, true, true});
    }
}

/* Whether a rank lacks messages that all ranks get from this one. */
static bool lacks_any(const dw_group *group, const dw_group_slot *slot, uint32_t rank)
{
    const dw_progress *now = &slot->now;
    bool gathers = dw_group_gathers(group, &now->job);
    return is_kept_for(slot, rank) || (gathers ? now->left_to_contribute : now->left_to_share) > 0;
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
        if (!group->lanes[r].link || group->lanes[r].is_closed) continue;
        dw_message head = {.kind = DW_MESSAGE_PING,
                           .rank = worst->is_own ? worst->rank : UINT32_MAX};
        dw_lane_tell(&group->lanes[r], &head, NULL, 0);
    }
}

void dw_group_check_lateness(dw_group *group, int64_t now_ns)
{
    for (uint32_t r = 0; r < group->ranks; r++) {
        if (group->lanes[r].is_closed && has_not_finished(group, r)) {
            dw_group_fail(group, DW_ERR_PEER, r,
                          "rank %u closed its group before an operation had finished", r);
            return;
        }
    }
    for (uint32_t r = 0; r < group->ranks; r++)
        if (group->lanes[r].link && is_anything_kept_for(group, r))
            look_for_movement(&group->lanes[r], now_ns);
    debtor worst = {.rank = UINT32_MAX};
    for (const dw_group_slot *slot = group->running; slot; slot = slot->next_running)
        look_at(group, slot, now_ns, &worst);
    if (worst.rank == UINT32_MAX) return;
    int64_t limit_ns = (int64_t)group->timeout_ms * DW_NS_IN_MS;
    if (worst.is_own ? (double)worst.for_ns > OWN_LIMIT * (double)limit_ns
                     : worst.for_ns > limit_ns) {
        uint32_t rank = worst.rank, behind = group->lanes[rank].waits_for;
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
