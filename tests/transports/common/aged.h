/* SPDX-License-Identifier: Apache-2.0
 * aged.h - simulates a backend that was compiled with an older or newer header: "aged:" in front
 * of any URI. Its structs are shorter or longer than ours, with guard bytes after their end. */
#ifndef DW_AGED_H
#define DW_AGED_H

#include "deltawire/transport.h"

/* The fields that the older header lacks: in traits is_secure and all later ones, in the state
 * kernel_sent and all later ones, in dw_transport_open heeds_kept_sends, in the table `turn`. */
typedef enum aged_time { AGED_OLDER = 1, AGED_NEWER = 2 } aged_time;

/* A struct that is 16 bytes longer than ours. */
#define GROWN(type)                                                                                \
    struct {                                                                                       \
        type known;                                                                                \
        uint64_t more[2];                                                                          \
    }

/* Sets the age of endpoints that are opened from now on. */
void aged_set_time(aged_time time);

/* The backend's table at this age. more: the value of a field that only the newer one has. */
const dw_transport *aged_table(aged_time time, uint64_t more);

/* How often something was written after the end of an older struct. */
int aged_overruns(void);

#endif
