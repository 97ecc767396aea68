/* SPDX-License-Identifier: Apache-2.0
 * stream.c - bytes over a socket, with or without TLS. */
#include "common/stream.h"

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

/* The result of a call on the socket that moved no bytes. */
static ptrdiff_t status_of(dw_stream *stream, int error)
{
    if (error == EAGAIN || error == EWOULDBLOCK || error == EINTR) return DW_STREAM_WAIT;
    stream->error = error;
    return DW_STREAM_BROKEN;
}

ptrdiff_t dw_stream_read(dw_stream *stream, void *room, size_t cap)
{
    if (stream->cover) return stream->cover->read(stream, room, cap);
    ssize_t n = recv(stream->fd, room, cap, 0);
    if (n > 0) return n;
    return n == 0 ? DW_STREAM_ENDED : status_of(stream, errno);
}

ptrdiff_t dw_stream_write(dw_stream *stream, const struct iovec *parts, int n_parts)
{
    if (stream->cover) return stream->cover->write(stream, parts, n_parts);
    /* The fields of msghdr are not const, but sendmsg only reads. */
    const struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)parts,
                                   .msg_iovlen = (size_t)n_parts};
    ssize_t n = sendmsg(stream->fd, &message, MSG_NOSIGNAL);
    return n >= 0 ? n : status_of(stream, errno);
}

int dw_stream_events(const dw_stream *stream, bool reading, bool writing)
{
    if (stream->cover) return stream->cover->events(stream, reading, writing);
    return (reading ? POLLIN : 0) | (writing ? POLLOUT : 0);
}

bool dw_stream_has_more(const dw_stream *stream)
{
    return stream->cover && stream->cover->has_more(stream);
}

void dw_stream_close(dw_stream *stream)
{
    if (stream->cover) stream->cover->close(stream);
    stream->cover = NULL;
    if (stream->fd >= 0) close(stream->fd);
    stream->fd = -1;
}
