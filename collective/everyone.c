/* SPDX-License-Identifier: Apache-2.0
 * everyone.c - the same message to all other ranks. It is sent to all or to none, as long as no
 * link fails: a rank whose link is full holds up the others, because otherwise each slot would have
 * to note which ranks have the message already. */
#include <string.h>

#include "group.h"

bool dw_everyone_begin(dw_group *group, size_t cap, unsigned char *bodies[DW_GROUP_MOST_RANKS])
{
    for (uint32_t r = 0; r < group->ranks; r++) {
        bodies[r] = NULL;
        if (r == group->rank || dw_lane_begin(&group->lanes[r], cap, &bodies[r]) == DW_OK) continue;
        while (r-- > 0)
            if (bodies[r]) dw_lane_drop(&group->lanes[r], bodies[r]);
        return false;
    }
    return true;
}

void dw_everyone_drop(dw_group *group, unsigned char *bodies[DW_GROUP_MOST_RANKS])
{
    for (uint32_t r = 0; r < group->ranks; r++)
        if (bodies[r]) dw_lane_drop(&group->lanes[r], bodies[r]);
}

bool dw_everyone_end(dw_group *group, unsigned char *bodies[DW_GROUP_MOST_RANKS],
                     const dw_message *head, const unsigned char *body, size_t len)
{
    /* All copies first: `body` may be one of the bodies, which is gone once it was sent. */
    for (uint32_t r = 0; r < group->ranks; r++)
        if (len > 0 && bodies[r] && bodies[r] != body) memcpy(bodies[r], body, len);
    for (uint32_t r = 0; r < group->ranks; r++) {
        dw_message own = *head; /* every link has numbers of its own */
        if (!bodies[r]) continue;
        dw_status status = dw_lane_end(&group->lanes[r], bodies[r], &own, len);
        bodies[r] = NULL;
        if (status == DW_OK) continue;
        dw_everyone_drop(group, bodies);
        return false;
    }
    return true;
}
