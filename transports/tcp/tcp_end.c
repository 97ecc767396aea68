/* SPDX-License-Identifier: Apache-2.0
 * tcp_end.c - functions that all files of the backend tcp need. */
#include "tcp/tcp_end.h"

#include "common/report.h"

void dw_tcp_fail(dw_tcp_end *end, dw_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    dw_link_report_first(&end->status, &end->why, status, format, arguments);
    va_end(arguments);
}

/* Both ends compute the same length, so an offset tells which chunk it is. */
size_t dw_tcp_chunk_len(uint64_t total)
{
    uint64_t page = 4096, part = (total + DW_TCP_CHUNKS_MOST - 1) / DW_TCP_CHUNKS_MOST;
    return part <= DW_TCP_CHUNK_BYTES ? DW_TCP_CHUNK_BYTES
                                      : (size_t)((part + page - 1) / page * page);
}
