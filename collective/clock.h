/* SPDX-License-Identifier: Apache-2.0
 * clock.h - the time, and random numbers, of the operating system. */
#ifndef DW_GROUP_CLOCK_H
#define DW_GROUP_CLOCK_H

#include <stdint.h>

enum { DW_NS_IN_MS = 1000000 };

int64_t dw_group_now_ns(void);  /* of a clock that never goes back */
uint64_t dw_group_random(void); /* not 0 */

#endif
