/* SPDX-License-Identifier: Apache-2.0
 * lone_group.c - a group without links and without a thread. */
#include "lone_group.h"

#include <string.h>

#include "base/mem.h"
#include "group_rig.h"

void lone_group_open(dw_group *group, dw_peer *peers, uint32_t ranks, uint32_t rank, uint32_t piece,
                     const char *codec)
{
    memset(group, 0, sizeof *group);
    dw_exchange *exchange = &group->exchange;
    dw_settings *settings = &exchange->settings;
    settings->allocator = dw_mem_allocator(NULL);
    settings->host.struct_size = sizeof settings->host;
    settings->ranks = ranks;
    settings->rank = rank;
    settings->hops = 2;
    settings->piece = piece;
    settings->thresholds = dw_group_all_thresholds;
    assert_int_equal(dw_config_parse(&settings->codec, codec, NULL), DW_OK);
    settings->result = settings->codec;
    dw_facts facts = {.struct_size = sizeof facts};
    assert_int_equal(dw_config_facts(&settings->result, &facts), DW_OK);
    settings->has_fixed_results = facts.has_fixed_size;
    for (int i = 0; i < 2; i++)
        assert_int_equal(dw_config_parse(&settings->rounding[i], "raw:bf16", NULL), DW_OK);
    exchange->coding.settings = settings;
    exchange->coding.failure = &exchange->failure;
    exchange->coding.count = &exchange->count;
    exchange->peers = peers;
    dw_received_open(&exchange->pool, &settings->allocator, settings->thresholds.held_from);
    for (uint32_t r = 0; r < ranks; r++)
        peers[r] = (dw_peer){.settings = settings,
                             .pool = &exchange->pool,
                             .failure = &exchange->failure,
                             .count = &exchange->count,
                             .rank = r,
                             .group = group};
    pthread_mutex_init(&group->lock, NULL);
    dw_progress_owner_open(&group->owner);
}

void lone_group_close(dw_group *group)
{
    dw_received_free_all(&group->exchange.pool);
    pthread_mutex_destroy(&group->lock);
    dw_progress_owner_close(&group->owner);
}
