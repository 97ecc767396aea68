/* SPDX-License-Identifier: Apache-2.0
 * tcp_redial.c - when a dialler tries again to connect a stripe. */
#include "common/report.h"
#include "tcp/tcp_end.h"

static const int64_t first_backoff_ns = (int64_t)50 * DW_NS_PER_MS;

void dw_tcp_redial_later(dw_tcp_redial *redial, int64_t now, int64_t longest_backoff_ns)
{
    redial->backoff_ns = redial->backoff_ns == 0 ? first_backoff_ns : 2 * redial->backoff_ns;
    if (redial->backoff_ns > longest_backoff_ns) redial->backoff_ns = longest_backoff_ns;
    redial->at_ns = now + redial->backoff_ns;
}

void dw_tcp_redial_after_loss(dw_tcp_redial *redial, int64_t now)
{
    redial->at_ns = now + redial->backoff_ns;
}

void dw_tcp_redial_worked(dw_tcp_redial *redial)
{
    redial->backoff_ns = 0;
}
