/* SPDX-License-Identifier: Apache-2.0
 * tcp_reading.c - bytes that were read ahead, and whether something is left to read. */
#include "tcp/tcp_end.h"

#include <string.h>

void dw_tcp_reading_begin(dw_tcp_reading *reading)
{
    reading->moved_awaited = false;
    reading->must_read_again = false;
}

void dw_tcp_reading_again(dw_tcp_reading *reading)
{
    reading->must_read_again = true;
}

void dw_tcp_reading_look(dw_tcp_reading *reading, bool has_looked)
{
    reading->has_looked = has_looked;
}

void dw_tcp_reading_read(dw_tcp_reading *reading, unsigned stripe, bool has_looked)
{
    reading->last_read = stripe;
    reading->has_looked = has_looked;
}

void dw_tcp_reading_moved(dw_tcp_reading *reading)
{
    reading->moved_awaited = true;
}

unsigned char *dw_tcp_ahead_room(dw_tcp_ahead *ahead, size_t *cap)
{
    /* The bytes that are left are a part of a header. Move them to the front. */
    if (ahead->n > 0) memmove(ahead->bytes, ahead->bytes + ahead->at, ahead->n);
    ahead->at = 0;
    *cap = sizeof ahead->bytes - ahead->n;
    return ahead->bytes + ahead->n;
}

void dw_tcp_ahead_filled(dw_tcp_ahead *ahead, size_t n)
{
    ahead->n += n;
}

const unsigned char *dw_tcp_ahead_take(dw_tcp_ahead *ahead, size_t n)
{
    const unsigned char *bytes = ahead->bytes + ahead->at;
    ahead->at += n;
    ahead->n -= n;
    return bytes;
}

void dw_tcp_ahead_forget(dw_tcp_ahead *ahead)
{
    ahead->n = 0;
}
