/* SPDX-License-Identifier: Apache-2.0
 * lone_group.h - a group without links and without a thread, for tests of single functions of a
 * group. The test itself does what its worker would do. */
#ifndef DW_TEST_LONE_GROUP_H
#define DW_TEST_LONE_GROUP_H

#include "group.h"

/* peers: (ranks), which it fills in. codec: of both hops. There are no coders. The test fails if
 * the codec cannot be parsed. */
void lone_group_open(dw_group *group, dw_peer *peers, uint32_t ranks, uint32_t rank, uint32_t piece,
                     const char *codec);
void lone_group_close(dw_group *group); /* after all messages were given back */

#endif
