/* SPDX-License-Identifier: Apache-2.0
 * inbox.c - messages as the links' threads hand them over. The progress step takes them from
 * here. */
#include "group.h"

static void put(dw_peer *peer, const void *data, size_t len)
{
    dw_group *group = peer->group;
    dw_group_inbox *inbox = &group->inbox;
    dw_received *received = dw_received_hold(peer->pool, peer->link, data, len);
    pthread_mutex_lock(&group->lock);
    if (received) {
        received->from = peer->rank;
        inbox->bytes += len + DW_RECEIVED_HEAD;
        dw_received_append(&inbox->list, received);
    }
    if (!received) peer->damage = DW_ERR_NO_MEMORY;
    if (inbox->bytes > peer->settings->max_early_bytes + DW_PEER_REORDER_BYTES)
        peer->damage = DW_ERR_LIMIT;
    inbox->is_damaged |= peer->damage != DW_OK;
    dw_progress_unlock_and_wake(group);
}

void dw_group_inbox_take(void *context, const void *data, size_t len)
{
    dw_peer *peer = context;
    /* Nothing more is taken until the progress owner has seen that memory or a limit was
     * exceeded. */
    pthread_mutex_lock(&peer->group->lock);
    bool is_damaged = peer->damage != DW_OK;
    pthread_mutex_unlock(&peer->group->lock);
    if (!is_damaged) put(peer, data, len);
}
