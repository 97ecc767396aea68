/* SPDX-License-Identifier: Apache-2.0
 * lifetime.c - the calls that are running in a link, and its end. */
#include "link/link.h"

void dw_lifetime_begin_call(dw_link_lifetime *lifetime)
{
    lifetime->calls++;
}

void dw_lifetime_end_call(dw_link_lifetime *lifetime)
{
    if (--lifetime->calls == 0 && lifetime->is_closing) pthread_cond_broadcast(&lifetime->idle);
}

void dw_lifetime_close(dw_link_lifetime *lifetime, bool is_abandoned, int64_t deadline_ns)
{
    lifetime->is_closing = true;
    lifetime->is_abandoned = is_abandoned;
    lifetime->goodbye_deadline_ns = deadline_ns;
}

void dw_lifetime_end_by_peer(dw_link_lifetime *lifetime, int64_t deadline_ns)
{
    lifetime->goodbye_deadline_ns = deadline_ns;
}

void dw_lifetime_wait_idle(dw_link_lifetime *lifetime, pthread_mutex_t *lock)
{
    while (lifetime->calls > 0) pthread_cond_wait(&lifetime->idle, lock);
}
