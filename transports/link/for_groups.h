/* SPDX-License-Identifier: Apache-2.0
 * for_groups.h - the calls of a link that groups and channels need, and programs do not. */
#ifndef DW_FOR_GROUPS_H
#define DW_FOR_GROUPS_H

#include "deltawire/transport.h"

/* A message that was received, was passed to a handler or was begun stays valid, and unchanged
 * after it was sent, until one more dw_link_release, of the pointer that this returns. */
void *dw_link_retain(dw_link *link, const void *data);

/* Waits for messages that go to the handlers of one tag, on several links at once. As long as it
 * waits, the calling thread does the work of the links' threads, and calls these handlers itself,
 * so that a message wakes one thread and not two. Handlers that are called so must not close a
 * link. A link that another thread is driving is left to it, with its handler, which should then
 * write to wake_fd.
 *
 * | name       | meaning                                                                     |
 * | links      | n links, at most DW_WAIT_SET_MOST; NULL: left out                             |
 * | wake_fd    | a descriptor, of the caller, that ends the wait when it is readable; or -1  |
 * | timeout_ns | < 0: no limit                                                               |
 *
 * OK: a handler was called, a link has ended, or wake_fd is readable. PENDING: nothing of this
 * happened in time. Errors: ARGUMENT. */
enum { DW_WAIT_SET_MOST = 256 };
dw_status dw_link_wait_any(dw_link *const *links, size_t n, uint32_t tag, int wake_fd,
                           int64_t timeout_ns);

#endif
