/* SPDX-License-Identifier: Apache-2.0
 * aged.h - simulates a backend that was compiled against an older or newer header; "aged:" in front
 * of any URI. Its structs are shorter or longer than ours, with guard bytes after their end. */
#ifndef DW_AGED_H
#define DW_AGED_H

#include "deltawire/transport.h"

/* Fields that an older header does not have: in traits from `is_secure` on, in the state from
 * `kernel_sent` on, in dw_transport_open from `heeds_kept_sends` on, in the table `turn`. */
typedef enum aged_time { AGED_OLDER = 1, AGED_NEWER = 2 } aged_time;

/* A struct that is 16 bytes longer than ours. */
#define GROWN(type)                                                                                \
    struct {                                                                                       \
        type known;                                                                                \
        uint64_t more[2];                                                                          \
    }

/* For endpoints opened from now on. */
void aged_set_time(aged_time time);

/* The table, as one of that age; more: what a newer one has behind our fields. */
const dw_transport *aged_table(aged_time time, uint64_t more);

/* How often something was written behind the end of what an older one gave. */
int aged_overruns(void);

#endif
