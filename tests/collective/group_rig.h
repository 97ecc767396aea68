/* SPDX-License-Identifier: Apache-2.0
 * group_rig.h - all ranks of a group in one process, a thread each. */
#ifndef DW_GROUP_RIG_H
#define DW_GROUP_RIG_H

#include <stdatomic.h>

#include "deltawire/collective.h"
#include "transports/suite/transport_suite.h"

enum { RIG_MOST = 6 };

typedef struct group_rig {
    uint32_t ranks;
    const char *uri;                      /* of every link; "%d" becomes a new number each time */
    suite_pair pairs[RIG_MOST][RIG_MOST]; /* [low][high] */
    dw_link *links[RIG_MOST][RIG_MOST];   /* [rank][peer] */
    dw_group_config config[RIG_MOST];     /* may be changed between rig_link and rig_open */
    dw_config codec[RIG_MOST], result[RIG_MOST];
    dw_group *group[RIG_MOST];
    dw_status status[RIG_MOST]; /* of dw_group_open */
    dw_why why[RIG_MOST];
} group_rig;

extern uint32_t rig_verifies; /* `verify` of the groups that are linked from now on */
/* Opens links between all ranks, and fills in the configs. result: NULL: the same as codec. */
void rig_link(group_rig *rig, const char *uri, uint32_t ranks, const char *codec,
              const char *result);
/* Before rig_open: the link between two ranks is opened again with another prefix of its URI, such
 * as "shaped:rate=1mbit/". low < high. */
void rig_link_again(group_rig *rig, uint32_t low, uint32_t high, const char *prefix);
void rig_try_open(group_rig *rig); /* opens the groups, which may fail: see `status` */
void rig_open(group_rig *rig);     /* all three; the test fails unless all is open */
/* Link all ranks (rig_link) and make their groups (rig_open). rig_start_hops: groups with so many
 * hops. */
void rig_start(group_rig *rig, const char *uri, uint32_t ranks, const char *codec);
void rig_start_hops(group_rig *rig, const char *uri, uint32_t ranks, const char *codec,
                    uint32_t hops);
/* Before rig_open: what rank `low` sends to rank `high` goes through the spoiler, on a link of its
 * own that replaces that of the rig. The caller closes it after the groups. */
void rig_spoil_link(group_rig *rig, uint32_t low, uint32_t high, suite_pair *pair, const char *uri,
                    suite_spoiler spoiler);
void rig_close_groups(group_rig *rig); /* all at the same time, as processes would */
void rig_close(group_rig *rig);        /* groups and links */

/* Calls work(context, rank) for every rank, each in a thread of its own. */
void rig_each(const group_rig *rig, void (*work)(void *context, uint32_t rank), void *context);

/* An operation on all ranks: each rank runs its own job. rig_run_well fails the test unless all
 * return OK. */
enum { RIG_PATIENCE_MS = 60000 };
typedef struct rig_deed {
    group_rig *rig;
    dw_group_job job[RIG_MOST]; /* struct_size is filled in */
    dw_status status[RIG_MOST];
} rig_deed;
void rig_run(rig_deed *deed);
/* Fails the test unless what all ranks did has ended well. */
void rig_all_well(const group_rig *rig, const dw_status status[RIG_MOST]);
void rig_run_well(rig_deed *deed);

/* The rank that is to blame; -1: the group works. */
static inline int rig_failed_rank(dw_group *group)
{
    int rank;
    (void)dw_group_why(group, &rank);
    return rank;
}

/* An allocator that counts its calls and the bytes that are allocated now, and refuses the call
 * with this number; -1: none. wrong_sizes: how many blocks were given back with another size. */
extern atomic_long rig_calls, rig_refused_call, rig_live_bytes, rig_wrong_sizes;
dw_allocator rig_allocator(void);

/* n random numbers of this dtype, none of which is NaN or Inf. */
void rig_fill(void *at, dw_dtype dtype, uint64_t n, uint64_t seed);

#endif
