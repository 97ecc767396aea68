/* SPDX-License-Identifier: Apache-2.0
 * tcp.c - messages over a connected socket: length ahead, partial reads and writes. */
#include "tcp.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "backends.h"
#include "link.h"
#include "stream.h"

/* Calls to recv in one test; the other direction gets its turn after that. */
enum { READS_PER_TEST = 8 };

/* Up to so many bytes a message is put behind its length, to go in one piece. */
enum { JOINED_BYTES = 4096 };

/* Read at once where little is asked for: a length, a short message, often several. */
enum { AHEAD_BYTES = 16384 };

typedef struct tcp_request {
    int sends;
    const unsigned char *data; /* of a send */
    unsigned char *room;       /* of a recv */
    size_t len;                /* bytes to send; room to receive into */
    size_t done;
    size_t message_len; /* of a send */
} tcp_request;

typedef struct tcp_endpoint {
    dw_stream stream;
    dw_tls_context *tls; /* NULL: without */
    uint64_t sent, received;
    int sending, receiving; /* a request is in flight */
    unsigned char send_length[DW_TCP_LENGTH_BYTES];
    size_t send_length_done;
    unsigned char joined[DW_TCP_LENGTH_BYTES + JOINED_BYTES];
    /* Of the message that is arriving: outlives a request whose room was too small. */
    unsigned char length[DW_TCP_LENGTH_BYTES];
    size_t length_done;
    size_t ahead_at, ahead_n; /* what was read and not asked for yet */
    int is_drained;           /* the last read found less than it had room for */
    char peer[96];
    unsigned char ahead[AHEAD_BYTES];
} tcp_endpoint;

static dw_status tcp_open(void *context, const dw_transport_open *how)
{
    tcp_endpoint *end = context;
    dw_status status = how->tls ? dw_tls_context_create(&end->tls, how->tls, how->role, how->why) : DW_OK;
    if (status == DW_OK) status = dw_tcp_meet(how, end->tls, &end->stream, end->peer);
    if (status != DW_OK) dw_tls_context_destroy(end->tls);
    if (status == DW_OK) end->sent = end->received = DW_TCP_PREAMBLE_BYTES;
    return status;
}

static dw_status tcp_close(void *context)
{
    tcp_endpoint *end = context;
    dw_stream_close(&end->stream);
    dw_tls_context_destroy(end->tls);
    return DW_OK;
}

static dw_status tcp_send(void *context, void *request_room, const void *data, size_t len)
{
    tcp_endpoint *end = context;
    tcp_request *request = request_room;
    *request = (tcp_request){.sends = 1, .data = data, .len = len, .message_len = len};
    dw_put64(end->send_length, len);
    end->send_length_done = 0;
    if (len <= JOINED_BYTES) {
        memcpy(end->joined, end->send_length, DW_TCP_LENGTH_BYTES);
        memcpy(end->joined + DW_TCP_LENGTH_BYTES, data, len);
        end->send_length_done = DW_TCP_LENGTH_BYTES;
        request->data = end->joined;
        request->len = DW_TCP_LENGTH_BYTES + len;
    }
    end->sending = 1;
    return DW_OK;
}

static dw_status tcp_recv(void *context, void *request_room, void *room, size_t cap)
{
    tcp_endpoint *end = context;
    tcp_request *request = request_room;
    *request = (tcp_request){.room = room, .len = cap};
    end->receiving = 1;
    return DW_OK;
}

static dw_status lost(const tcp_endpoint *end, dw_why *why)
{
    const int error = end->stream.error;
    if (end->stream.text[0]) { /* the cover knows better */
        return dw_link_report(why, DW_ERR_PEER, "%s %s; its process has probably died, or somebody interferes", end->peer,
                              end->stream.text);
    }
    if (error == ETIMEDOUT) {
        return dw_link_report(why, DW_ERR_TIMEOUT, "%s does not answer any more (%s); is the machine or the "
                              "network down?", end->peer, strerror(error));
    }
    return dw_link_report(why, DW_ERR_PEER, "%s broke the connection (%s); its process has probably died",
                          end->peer, strerror(error));
}

static dw_status send_some(tcp_endpoint *end, tcp_request *request, dw_why *why)
{
    while (end->send_length_done < DW_TCP_LENGTH_BYTES || request->done < request->len) {
        const size_t length_left = DW_TCP_LENGTH_BYTES - end->send_length_done;
        struct iovec parts[2] = {
            {end->send_length + end->send_length_done, length_left},
            /* iovec has no const; a write only reads */
            {(void *)(uintptr_t)(request->data + request->done), request->len - request->done}};
        const int is_behind = length_left == 0;
        const ptrdiff_t n = dw_stream_write(&end->stream, parts + is_behind, 2 - is_behind);
        if (n <= 0) return n == DW_STREAM_WAIT ? DW_PENDING : lost(end, why);
        const size_t of_length = (size_t)n < length_left ? (size_t)n : length_left;
        end->send_length_done += of_length;
        request->done += (size_t)n - of_length;
        end->sent += (size_t)n;
    }
    end->sending = 0;
    return DW_OK;
}

static size_t take_ahead(tcp_endpoint *end, unsigned char *room, size_t cap)
{
    const size_t n = end->ahead_n < cap ? end->ahead_n : cap;
    memcpy(room, end->ahead + end->ahead_at, n);
    end->ahead_at += n;
    end->ahead_n -= n;
    end->received += n; /* counted when asked for: between messages the counter stands still */
    return n;
}

/* One read at most; *status tells why it brought nothing. */
static size_t read_some(tcp_endpoint *end, unsigned char *room, size_t cap, size_t in_message,
                        dw_status *status, dw_why *why)
{
    if (end->ahead_n > 0) return take_ahead(end, room, cap);
    if (end->is_drained) { /* poll tells when there is more; who asks again before is believed to know */
        end->is_drained = 0;
        return 0;
    }
    const int direct = cap >= AHEAD_BYTES;
    const ptrdiff_t n = dw_stream_read(&end->stream, direct ? room : end->ahead, direct ? cap : AHEAD_BYTES);
    if (n > 0 && direct) {
        end->received += (size_t)n;
        return (size_t)n;
    }
    if (n > 0) {
        end->ahead_at = 0;
        end->ahead_n = (size_t)n;
        end->is_drained = n < AHEAD_BYTES;
        return take_ahead(end, room, cap);
    }
    if (n != DW_STREAM_ENDED) {
        *status = n == DW_STREAM_WAIT ? DW_PENDING : lost(end, why);
    } else if (in_message > 0) {
        *status = dw_link_report(why, DW_ERR_PEER, "%s closed the connection in the middle of a message (after "
                                 "%zu bytes of it); its process has probably died", end->peer, in_message);
    } else {
        *status = dw_link_report(why, DW_ERR_PEER, "%s closed the connection without a goodbye; its process has "
                                 "probably died or was stopped", end->peer);
    }
    return 0;
}

static dw_status recv_some(tcp_endpoint *end, tcp_request *request, size_t *len, dw_why *why)
{
    dw_status status = DW_PENDING;
    for (int reads = 0; reads < READS_PER_TEST; reads++) {
        if (end->length_done < DW_TCP_LENGTH_BYTES) {
            const size_t n = read_some(end, end->length + end->length_done,
                                       DW_TCP_LENGTH_BYTES - end->length_done, end->length_done, &status, why);
            if (n == 0) return status;
            end->length_done += n;
            continue;
        }
        const uint64_t length = dw_get64(end->length);
        *len = length > SIZE_MAX ? SIZE_MAX : (size_t)length;
        if (*len > request->len) {
            end->receiving = 0;
            return DW_ERR_NO_ROOM;
        }
        if (request->done < *len) {
            const size_t n = read_some(end, request->room + request->done, *len - request->done,
                                       DW_TCP_LENGTH_BYTES + request->done, &status, why);
            if (n == 0) return status;
            request->done += n;
        }
        if (request->done == *len) {
            end->length_done = 0;
            end->receiving = 0;
            return DW_OK;
        }
    }
    return DW_PENDING;
}

static dw_status tcp_test(void *context, void *request_room, size_t *len, dw_why *why)
{
    tcp_endpoint *end = context;
    tcp_request *request = request_room;
    if (!request->sends) return recv_some(end, request, len, why);
    *len = request->message_len;
    return send_some(end, request, why);
}

static void tcp_caps(void *context, dw_transport_caps *caps)
{
    const tcp_endpoint *end = context;
    caps->wait_fd = end->stream.fd;
    caps->wait_events = dw_stream_events(&end->stream, end->receiving, end->sending);
    caps->wake_ns = end->receiving && dw_stream_has_more(&end->stream) ? 0 : -1;
    caps->wire_sent = end->sent;
    caps->wire_received = end->received;
    caps->framing_bytes = DW_TCP_LENGTH_BYTES;
    memcpy(caps->peer, end->peer, sizeof caps->peer);
    caps->is_secure = end->tls != NULL;
    if (caps->asks_session && caps->is_secure) {
        snprintf(caps->peer_name, sizeof caps->peer_name, "%s", dw_tls_peer_name(&end->stream));
        dw_tls_session(&end->stream, caps->session);
    }
    if (caps->asks_kernel) dw_tcp_kernel_counts(end->stream.fd, &caps->kernel_sent, &caps->kernel_received);
}

const dw_transport dw_transport_tcp = {
    .scheme = "tcp",
    .endpoint_bytes = sizeof(tcp_endpoint),
    .request_bytes = sizeof(tcp_request),
    .open = tcp_open,
    .close = tcp_close,
    .send = tcp_send,
    .recv = tcp_recv,
    .test = tcp_test,
    .caps = tcp_caps,
};
