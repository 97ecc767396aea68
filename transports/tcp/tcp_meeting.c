/* SPDX-License-Identifier: Apache-2.0
 * tcp_meeting.c - one connection until both hellos are complete, in steps that never wait.
 *
 * By the hello a listener distinguishes its peer from strangers (port scanners, browsers), whose
 * connections it closes. The hello names the role because two dialling sockets can, by accident,
 * connect to each other, or one to itself. */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/bytes.h"
#include "tcp/tcp_end.h"

static const unsigned char magic[6] = {'D', 'W', 'T', 'C', 'P', '\n'};

static void write_hello(unsigned char *hello, const dw_tcp_end *end, unsigned stripe, int answer)
{
    memset(hello, 0, DW_TCP_HELLO_BYTES);
    memcpy(hello, magic, sizeof magic);
    hello[6] = DW_TCP_VERSION;
    hello[7] = end->role == DW_LINK_LISTEN ? 'L' : 'C';
    if (answer == 0 || answer == DW_TCP_WELCOME) {
        memcpy(hello + 8, end->session, DW_TCP_SESSION_BYTES);
        dw_put64(hello + 32, dw_tcp_whole(end));
        dw_put64(hello + 40, dw_tcp_limit(end));
    }
    hello[24] = (unsigned char)stripe;
    hello[25] = (unsigned char)(end->n_stripes ? end->n_stripes : end->options.stripes);
    hello[26] = (unsigned char)answer;
    dw_put32(hello + 28, end->segment);
}

static bool begin(dw_tcp_meeting *meeting, int fd, int64_t until_ns, const dw_tcp_end *end)
{
    memset(meeting, 0, sizeof *meeting);
    meeting->stream.fd = fd;
    meeting->until_ns = until_ns;
    return !end->tls || dw_tls_cover(&meeting->stream, end->tls, until_ns) == DW_OK;
}

bool dw_tcp_meet_as_guest(dw_tcp_meeting *meeting, int fd, int64_t until_ns, const dw_tcp_end *end)
{
    bool begun = begin(meeting, fd, until_ns, end);
    meeting->phase = DW_TCP_SHAKING;
    return begun;
}

bool dw_tcp_meet_as_dialler(dw_tcp_meeting *meeting, int fd, int64_t until_ns,
                            const dw_tcp_end *end, unsigned stripe)
{
    bool begun = begin(meeting, fd, until_ns, end);
    meeting->phase = DW_TCP_CONNECTING;
    meeting->dials = true;
    write_hello(meeting->says, end, stripe, 0);
    return begun;
}

void dw_tcp_answer(dw_tcp_meeting *meeting, const dw_tcp_end *end, unsigned stripe, int answer)
{
    write_hello(meeting->says, end, stripe, answer);
    meeting->phase = DW_TCP_SAYING;
}

void dw_tcp_meeting_end(dw_tcp_meeting *meeting)
{
    if (meeting->phase != DW_TCP_NOBODY) dw_stream_close(&meeting->stream);
    meeting->phase = DW_TCP_NOBODY;
}

uint32_t dw_tcp_meeting_events(const dw_tcp_meeting *meeting)
{
    if (meeting->phase == DW_TCP_CONNECTING) return EPOLLOUT;
    /* dw_stream_events returns bits of poll(); on Linux those of epoll have the same values. */
    return (uint32_t)dw_stream_events(&meeting->stream, true, meeting->phase == DW_TCP_SAYING);
}

static dw_status lost(int error)
{
    errno = error;
    return DW_ERR_IO;
}

static dw_status say(dw_tcp_meeting *meeting)
{
    while (meeting->said < DW_TCP_HELLO_BYTES) {
        struct iovec part = {meeting->says + meeting->said, DW_TCP_HELLO_BYTES - meeting->said};
        ptrdiff_t n = dw_stream_write(&meeting->stream, &part, 1);
        if (n == DW_STREAM_WAIT) return DW_PENDING;
        if (n < 0) return lost(meeting->stream.error);
        meeting->said += (size_t)n;
    }
    return DW_OK;
}

/* DW_ERR_PROTOCOL: not a hello of deltawire. DW_ERR_VERSION: of another version, which stands in
 * hears[6]. Both are returned as soon as the bytes that tell have arrived. */
static dw_status hear(dw_tcp_meeting *meeting)
{
    while (meeting->heard < DW_TCP_HELLO_BYTES) {
        ptrdiff_t n = dw_stream_read(&meeting->stream, meeting->hears + meeting->heard,
                                     DW_TCP_HELLO_BYTES - meeting->heard);
        if (n == DW_STREAM_WAIT) return DW_PENDING;
        if (n < 0) return lost(n == DW_STREAM_ENDED ? 0 : meeting->stream.error);
        meeting->heard += (size_t)n;
        size_t known = meeting->heard < sizeof magic ? meeting->heard : sizeof magic;
        if (memcmp(meeting->hears, magic, known) != 0) return DW_ERR_PROTOCOL;
        if (meeting->heard >= DW_TCP_PREAMBLE_BYTES && meeting->hears[6] != DW_TCP_VERSION)
            return DW_ERR_VERSION;
    }
    if (meeting->hears[7] == (meeting->dials ? 'L' : 'C')) return DW_OK;
    return lost(EISCONN); /* it has our own role: another dialler, or this very socket */
}

dw_status dw_tcp_meeting_step(dw_tcp_meeting *meeting, dw_tcp_end *end)
{
    dw_status status;
    if (meeting->phase == DW_TCP_CONNECTING) {
        int error = dw_tcp_connected(meeting->stream.fd);
        if (error != 0) return lost(error);
        dw_tcp_tune(meeting->stream.fd, end->peer_timeout_ms);
        meeting->phase = DW_TCP_SHAKING;
    }
    if (meeting->phase == DW_TCP_SHAKING) {
        /* Without TLS there is no handshake. */
        status = end->tls ? dw_tls_shake(&meeting->stream) : DW_OK;
        if (status != DW_OK) return status;
        meeting->phase = meeting->dials ? DW_TCP_SAYING : DW_TCP_HEARING;
    }
    if (meeting->phase == DW_TCP_SAYING) {
        status = say(meeting);
        if (status != DW_OK || !meeting->dials) return status;
        meeting->phase = DW_TCP_HEARING;
    }
    return hear(meeting);
}
