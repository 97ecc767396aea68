/* SPDX-License-Identifier: Apache-2.0
 * counted.h - returns a link's counters as a value, for use in expressions. */
#ifndef DW_COUNTED_H
#define DW_COUNTED_H

#include "deltawire/transport.h"

static inline dw_link_counters counted(dw_link *link)
{
    dw_link_counters counters = {.struct_size = sizeof counters};
    dw_link_count(link, &counters);
    return counters;
}

#endif
