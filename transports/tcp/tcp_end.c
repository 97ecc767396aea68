/* SPDX-License-Identifier: Apache-2.0
 * tcp_end.c - functions that all files of the backend tcp need. */
#include "tcp/tcp_end.h"

#include "common/report.h"

void dw_tcp_fail(dw_tcp_failure *failure, dw_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    dw_link_report_first(&failure->status, &failure->why, status, format, arguments);
    va_end(arguments);
}

/* Both ends compute the same length, so an offset tells which chunk it is. */
size_t dw_tcp_chunk_len(uint64_t total)
{
    uint64_t page = 4096, part = (total + DW_TCP_CHUNKS_MOST - 1) / DW_TCP_CHUNKS_MOST;
    return part <= DW_TCP_CHUNK_BYTES ? DW_TCP_CHUNK_BYTES
                                      : (size_t)((part + page - 1) / page * page);
}

void dw_tcp_wire_sent(dw_tcp_wire *wire, size_t bytes, bool is_apart)
{
    *(is_apart ? &wire->sent_apart : &wire->sent) += bytes;
}

void dw_tcp_wire_received(dw_tcp_wire *wire, size_t bytes, bool is_apart)
{
    *(is_apart ? &wire->received_apart : &wire->received) += bytes;
}

void dw_tcp_wire_send_done(dw_tcp_wire *wire)
{
    wire->sent += wire->sent_apart;
    wire->sent_apart = 0;
}

void dw_tcp_wire_receive_done(dw_tcp_wire *wire, uint64_t bytes)
{
    wire->received += bytes + wire->received_apart;
    wire->received_apart = 0;
}
