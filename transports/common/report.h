/* SPDX-License-Identifier: Apache-2.0
 * report.h - error sentences, the clock of all deadlines, and the flag by which a program cancels.
 */
#ifndef DW_REPORT_H
#define DW_REPORT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "deltawire/deltawire.h"

/* Writes the sentence to *why (which may be NULL) and returns status, so that a function can end
 * with `return dw_link_report(why, DW_ERR_..., "...")`. */
dw_status dw_link_report(dw_why *why, dw_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same. offset: the position of the error in the text, such as a URI, that the program passed.
 */
dw_status dw_link_report_at(dw_why *why, dw_status status, int offset, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* For an endpoint that fails: only the first error is kept, in *kept and *why. *kept is DW_OK as
 * long as there was none. */
void dw_link_report_first(dw_status *kept, dw_why *why, dw_status status, const char *format,
                          va_list arguments) __attribute__((format(printf, 4, 0)));

/* The reason for which a system call failed (error: its errno). For a limit that can be raised, the
 * sentence says how. */
const char *dw_link_system_says(int error);

/* The monotonic clock, so that deadlines do not move when the time of day is set. */
static inline int64_t dw_link_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* The flag belongs to the program, which may set it in a signal handler or in another thread. */
static inline bool dw_link_is_set(const volatile int *flag)
{
    return __atomic_load_n(flag, __ATOMIC_RELAXED);
}

enum { DW_NS_PER_MS = 1000000 };

#endif
