/* SPDX-License-Identifier: Apache-2.0
 * tcp_ack.c - when the peer must hear what has arrived. Every record that is sent carries that. If
 * none is sent within a time, a record is sent for the acknowledgement alone; after so many
 * received bytes or messages this is done at once. */
#include "common/report.h"
#include "tcp/tcp_end.h"

static const int64_t ack_after_ns = 2 * DW_NS_PER_MS;
enum { ACK_AFTER_BYTES = 1 << 20, ACK_AFTER_MESSAGES = 64 };

void dw_tcp_ack_now(dw_tcp_ack *ack)
{
    ack->due_ns = 1;
}

void dw_tcp_ack_soon(dw_tcp_ack *ack, size_t bytes, uint64_t whole)
{
    ack->unreported += bytes;
    if (ack->due_ns == 0) ack->due_ns = dw_now_ns() + ack_after_ns;
    if (ack->unreported >= ACK_AFTER_BYTES || whole - ack->sent_whole >= ACK_AFTER_MESSAGES)
        ack->due_ns = 1;
}

void dw_tcp_ack_sent(dw_tcp_ack *ack, uint64_t whole, uint64_t limit)
{
    *ack = (dw_tcp_ack){.sent_whole = whole, .sent_limit = limit};
}
