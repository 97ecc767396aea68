/* SPDX-License-Identifier: Apache-2.0
 * failure.h - errors, as values: of a call, and of a group.
 *
 * What finds an error only records it. The progress step sees that, and then ends operations and
 * notifies the other ranks (progress.c). */
#ifndef DW_GROUP_FAILURE_H
#define DW_GROUP_FAILURE_H

#include "base/sentence.h"
#include "deltawire/collective.h"

/* The first error of a group; status DW_OK: there is none. rank: the one that it is about. */
typedef struct dw_failure {
    dw_status status;
    uint32_t rank;
    dw_why why;
} dw_failure;

/* Records an error, unless there is one already. */
void dw_failure_set(dw_failure *failure, dw_status status, uint32_t rank, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
