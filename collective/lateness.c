/* SPDX-License-Identifier: Apache-2.0
 * lateness.c - finds the rank that owes something for too long. A rank that owes a result may
 * itself wait for another one. So contributions, which depend on nobody else, have a shorter limit
 * than results, and ranks that wait tell each other for whom. */
#include "group.h"

/* Contributions may take this fraction of timeout_ms, and results all of it. */
#define OWN_LIMIT 0.8

/* A rank that waits tells the others so after every PINGS-th part of timeout_ms. */
enum { PINGS = 8 };

/* A rank that keeps this one waiting. */
typedef struct debtor {
    uint32_t rank; /* UINT32_MAX: none */
    int64_t for_ns;
    uint64_t slot;
    bool is_own; /* it owes something that depends on nobody else */
} debtor;

static void consider(debtor *worst, uint32_t rank, int64_t for_ns, uint64_t slot, bool is_own)
{
    if (worst->rank != UINT32_MAX &&
        (worst->is_own > is_own || (worst->is_own == is_own && worst->for_ns >= for_ns)))
        return;
    *worst = (debtor){rank, for_ns, slot, is_own};
}

/* The time counts from the start of the operation here, or from when something last came from that
 * rank: a rank that is busy sending other operations is not late. */
static void look_at(const dw_group *group, const dw_group_slot *slot, int64_t now_ns, debtor *worst)
{
    for (uint32_t r = 0; r < group->ranks; r++) {
        const dw_lane *lane = &group->lanes[r];
        if (!lane->link) continue;
        int64_t since_ns =
            lane->heard_ns > slot->now.start_ns ? lane->heard_ns : slot->now.start_ns;
        bool is_own = slot->owes_part[r] > 0 || slot->now.job.operation != DW_ALL_REDUCE;
        if (slot->owes_part[r] > 0 || slot->owes_result[r] > 0)
            consider(worst, r, now_ns - since_ns, slot->number, is_own);
    }
}

static bool owes(const dw_group *group, uint32_t rank)
{
    for (const dw_group_slot *slot = group->running; slot; slot = slot->next_running)
        if (slot->owes_part[rank] > 0 || slot->owes_result[rank] > 0) return true;
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
        if (group->lanes[r].is_closed && owes(group, r)) {
            dw_group_fail(group, DW_ERR_PEER, r,
                          "rank %u closed its group before an operation had finished", r);
            return;
        }
    }
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
                      "slot %llu: rank %u has sent nothing for %lld ms; has it started the same "
                      "operations?",
                      (unsigned long long)worst.slot, rank,
                      (long long)(worst.for_ns / DW_NS_IN_MS));
        return;
    }
    if (worst.for_ns > limit_ns / PINGS && now_ns - group->pinged_ns > limit_ns / PINGS)
        ping(group, &worst, now_ns);
}
