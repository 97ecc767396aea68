/* SPDX-License-Identifier: Apache-2.0
 * tcp_handshake.c - one connection until both hellos are complete, in steps that never wait.
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

static void write_hello(unsigned char *hello, const dw_tcp_session *session,
                        const dw_tcp_sending *sending, unsigned stripe, int answer)
{
    const dw_tcp_receiving *receiving = sending->receiving;
    unsigned n = sending->connections->n;
    memset(hello, 0, DW_TCP_HELLO_BYTES);
    memcpy(hello, magic, sizeof magic);
    hello[6] = DW_TCP_VERSION;
    hello[7] = receiving->settings->role == DW_LINK_LISTEN ? 'L' : 'C';
    if (answer == 0 || answer == DW_TCP_WELCOME) {
        memcpy(hello + 8, session->id, DW_TCP_SESSION_BYTES);
        dw_put64(hello + 32, dw_tcp_whole(receiving));
        dw_put64(hello + 40, dw_tcp_limit(receiving));
    }
    hello[24] = (unsigned char)stripe;
    hello[25] = (unsigned char)(n ? n : receiving->settings->options.stripes);
    hello[26] = (unsigned char)answer;
    dw_put32(hello + 28, sending->progress->segment);
}

static bool begin(dw_tcp_handshake *handshake, int fd, int64_t until_ns,
                  const dw_tcp_session *session)
{
    memset(handshake, 0, sizeof *handshake);
    handshake->stream.fd = fd;
    handshake->until_ns = until_ns;
    return !session->tls || dw_tls_cover(&handshake->stream, session->tls, until_ns) == DW_OK;
}

bool dw_tcp_handshake_accept(dw_tcp_handshake *handshake, int fd, int64_t until_ns,
                             const dw_tcp_session *session)
{
    bool begun = begin(handshake, fd, until_ns, session);
    handshake->phase = DW_TCP_IN_TLS;
    return begun;
}

bool dw_tcp_handshake_connect(dw_tcp_handshake *handshake, int fd, int64_t until_ns,
                              const dw_tcp_session *session, const dw_tcp_sending *sending,
                              unsigned stripe)
{
    bool begun = begin(handshake, fd, until_ns, session);
    handshake->phase = DW_TCP_CONNECTING;
    handshake->dials = true;
    write_hello(handshake->own_hello, session, sending, stripe, 0);
    return begun;
}

void dw_tcp_handshake_answer(dw_tcp_handshake *handshake, const dw_tcp_session *session,
                             const dw_tcp_sending *sending, unsigned stripe, int answer)
{
    write_hello(handshake->own_hello, session, sending, stripe, answer);
    handshake->phase = DW_TCP_WRITING_HELLO;
}

dw_stream dw_tcp_handshake_take(dw_tcp_handshake *handshake)
{
    handshake->phase = DW_TCP_IDLE;
    return handshake->stream;
}

void dw_tcp_handshake_end(dw_tcp_handshake *handshake)
{
    if (handshake->phase != DW_TCP_IDLE) dw_stream_close(&handshake->stream);
    handshake->phase = DW_TCP_IDLE;
}

uint32_t dw_tcp_handshake_events(const dw_tcp_handshake *handshake)
{
    if (handshake->phase == DW_TCP_CONNECTING) return EPOLLOUT;
    /* dw_stream_events returns bits of poll(); on Linux those of epoll have the same values. */
    return (uint32_t)dw_stream_events(&handshake->stream, true,
                                      handshake->phase == DW_TCP_WRITING_HELLO);
}

static dw_status lost(int error)
{
    errno = error;
    return DW_ERR_IO;
}

static dw_status send_hello(dw_tcp_handshake *handshake)
{
    while (handshake->n_written < DW_TCP_HELLO_BYTES) {
        struct iovec part = {handshake->own_hello + handshake->n_written,
                             DW_TCP_HELLO_BYTES - handshake->n_written};
        ptrdiff_t n = dw_stream_write(&handshake->stream, &part, 1);
        if (n == DW_STREAM_WAIT) return DW_PENDING;
        if (n < 0) return lost(handshake->stream.error);
        handshake->n_written += (size_t)n;
    }
    return DW_OK;
}

/* DW_ERR_PROTOCOL: not a hello of deltawire. DW_ERR_VERSION: of another version, which stands in
 * their_hello[6]. Both are returned as soon as the bytes that tell have arrived. */
static dw_status receive_hello(dw_tcp_handshake *handshake)
{
    while (handshake->n_read < DW_TCP_HELLO_BYTES) {
        ptrdiff_t n = dw_stream_read(&handshake->stream, handshake->their_hello + handshake->n_read,
                                     DW_TCP_HELLO_BYTES - handshake->n_read);
        if (n == DW_STREAM_WAIT) return DW_PENDING;
        if (n < 0) return lost(n == DW_STREAM_ENDED ? 0 : handshake->stream.error);
        handshake->n_read += (size_t)n;
        size_t known = handshake->n_read < sizeof magic ? handshake->n_read : sizeof magic;
        if (memcmp(handshake->their_hello, magic, known) != 0) return DW_ERR_PROTOCOL;
        if (handshake->n_read >= DW_TCP_PREAMBLE_BYTES &&
            handshake->their_hello[6] != DW_TCP_VERSION)
            return DW_ERR_VERSION;
    }
    if (handshake->their_hello[7] == (handshake->dials ? 'L' : 'C')) return DW_OK;
    return lost(EISCONN); /* it has our own role: another dialler, or this very socket */
}

dw_status dw_tcp_handshake_step(dw_tcp_handshake *handshake, const dw_tcp_session *session,
                                const dw_tcp_settings *settings)
{
    dw_status status;
    if (handshake->phase == DW_TCP_CONNECTING) {
        int error = dw_tcp_connected(handshake->stream.fd);
        if (error != 0) return lost(error);
        dw_tcp_tune(handshake->stream.fd, settings->peer_timeout_ms);
        handshake->phase = DW_TCP_IN_TLS;
    }
    if (handshake->phase == DW_TCP_IN_TLS) {
        /* Without TLS there is no handshake. */
        status = session->tls ? dw_tls_shake(&handshake->stream) : DW_OK;
        if (status != DW_OK) return status;
        handshake->phase = handshake->dials ? DW_TCP_WRITING_HELLO : DW_TCP_READING_HELLO;
    }
    if (handshake->phase == DW_TCP_WRITING_HELLO) {
        status = send_hello(handshake);
        if (status != DW_OK || !handshake->dials) return status;
        handshake->phase = DW_TCP_READING_HELLO;
    }
    return receive_hello(handshake);
}
