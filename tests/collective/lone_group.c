/* SPDX-License-Identifier: Apache-2.0
 * lone_group.c - a group without links and without a thread. */
#include "lone_group.h"

#include <string.h>

#include "group_rig.h"

void lone_group_open(dw_group *group, dw_peer *peers, uint32_t ranks, uint32_t rank, uint32_t piece,
                     const char *codec)
{
    memset(group, 0, sizeof *group);
    group->allocator = dw_group_allocator(NULL);
    group->ranks = ranks;
    group->rank = rank;
    group->hops = 2;
    group->piece = piece;
    group->peers = peers;
    group->thresholds = dw_group_all_thresholds;
    group->failed_rank = -1;
    assert_int_equal(dw_config_parse(&group->codec, codec, NULL), DW_OK);
    group->result = group->codec;
    pthread_mutex_init(&group->lock, NULL);
    pthread_cond_init(&group->finished, NULL);
}

void lone_group_close(dw_group *group)
{
    dw_received_free_all(group);
    pthread_mutex_destroy(&group->lock);
    pthread_cond_destroy(&group->finished);
}
