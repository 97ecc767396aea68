/* SPDX-License-Identifier: Apache-2.0
 * uncancelled.h - calls that pthread_cancel does not end half way. */
#ifndef DW_UNCANCELLED_H
#define DW_UNCANCELLED_H

#include <pthread.h>

static inline int dw_hold_cancellation(void)
{
    int before = PTHREAD_CANCEL_ENABLE;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    return before;
}

static inline void dw_restore_cancellation(const int *before)
{
    pthread_setcancelstate(*before, NULL);
}

/* Stands first in each public call that locks, waits or allocates. A caller that is cancelled ends
 * after the call, at its next cancellation point: inside it would keep locks and leave messages
 * half sent. */
#define DW_UNCANCELLED                                                                             \
    __attribute__((cleanup(dw_restore_cancellation), unused)) const int dw_cancellation =          \
        dw_hold_cancellation()

#endif
