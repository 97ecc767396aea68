/* SPDX-License-Identifier: Apache-2.0
 * report.h - what links and backends say of errors, and the flag by which a program cancels. */
#ifndef DW_REPORT_H
#define DW_REPORT_H

#include <stdbool.h>

#include "base/clock.h"
#include "base/sentence.h"

/* For an endpoint that fails: only the first error is kept, in *kept and *why. *kept is DW_OK as
 * long as there was none. */
void dw_link_report_first(dw_status *kept, dw_why *why, dw_status status, const char *format,
                          va_list arguments) __attribute__((format(printf, 4, 0)));

/* The reason for which a system call failed (error: its errno). For a limit that can be raised, the
 * sentence says how. */
const char *dw_link_system_says(int error);

/* The flag belongs to the program, which may set it in a signal handler or in another thread. */
static inline bool dw_link_is_set(const volatile int *flag)
{
    return __atomic_load_n(flag, __ATOMIC_RELAXED);
}

#endif
