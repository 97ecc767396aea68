/* SPDX-License-Identifier: Apache-2.0
 * report.h - how an error gets its sentence; the clock of all deadlines; the flag that cancels. */
#ifndef DW_REPORT_H
#define DW_REPORT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "deltawire/deltawire.h"

/* Writes the sentence (why may be NULL) and returns status: `return dw_link_report(why, DW_ERR_...,
 * "...")`. */
dw_status dw_link_report(dw_why *why, dw_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same with the place in the text that is to blame. */
dw_status dw_link_report_at(dw_why *why, dw_status status, int offset, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Of an end that breaks: the first trouble stays, in *kept and *why; DW_OK means that there was
 * none. */
void dw_link_report_first(dw_status *kept, dw_why *why, dw_status status, const char *format,
                          va_list arguments) __attribute__((format(printf, 4, 0)));

/* Sentences may quote a peer, and are printed: what would steer a terminal becomes '?'. All of the
 * above do it. */
void dw_link_make_printable(char *text);

/* What a call of the system failed of, and what to do where it is a limit of the system's that
 * people can raise. */
const char *dw_link_system_says(int error);

/* Monotonic: deadlines must not move when somebody sets the clock. */
static inline int64_t dw_link_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* The flag belongs to the program, which may set it in a signal handler or another thread. */
static inline bool dw_link_is_set(const volatile int *flag)
{
    return __atomic_load_n(flag, __ATOMIC_RELAXED);
}

enum { DW_NS_PER_MS = 1000000 };

#endif
