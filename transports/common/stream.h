/* SPDX-License-Identifier: Apache-2.0
 * stream.h - bytes in both directions over one connected, nonblocking socket: as they are, or
 * through a cover, which is a layer between us and the socket (TLS).
 *
 * | name   | meaning                                                        | owner           |
 * | fd     | the socket                                                     | the stream      |
 * | cover  | the layer between us and the socket; NULL: there is none       | static          |
 * | inside | the cover's state                                              | the stream      |
 * | error  | the errno of the socket error that broke the stream            |                 |
 * | text   | the error that the cover reports; "": there is none             |                 |
 *
 * State: the owner of the socket fills in the struct. Any call may find that the stream has ended
 * or is broken; after that only dw_stream_close may be called. Threads: one at a time. */
#ifndef DW_STREAM_H
#define DW_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/uio.h>

/* What a read or write returns if it moved no bytes. WAIT: poll for dw_stream_events before the
 * next try. ENDED: the other end closed the connection. BROKEN: an error, see `error` and `text`.
 */
enum { DW_STREAM_WAIT = 0, DW_STREAM_ENDED = -1, DW_STREAM_BROKEN = -2 };

typedef struct dw_stream dw_stream;

typedef struct dw_stream_cover {
    ptrdiff_t (*read)(dw_stream *stream, void *room, size_t cap);
    ptrdiff_t (*write)(dw_stream *stream, const struct iovec *parts, int n);
    /* reading, writing: what the caller wants to do next. */
    int (*events)(const dw_stream *stream, bool reading, bool writing);
    /* Whether a read would return bytes that are no longer in the socket, so that poll does not
     * report them. */
    bool (*has_more)(const dw_stream *stream);
    void (*close)(dw_stream *stream);
} dw_stream_cover;

struct dw_stream {
    int fd;
    const dw_stream_cover *cover;
    void *inside;
    int error;
    char text[160];
};

/* Return the number of bytes moved, at least one, or one of the values above. A write may take only
 * a part of the bytes. After DW_STREAM_WAIT the next write must begin with the same bytes and have
 * at least as many, because a cover may have encrypted and partly sent them already. */
ptrdiff_t dw_stream_read(dw_stream *stream, void *room, size_t cap);
ptrdiff_t dw_stream_write(dw_stream *stream, const struct iovec *parts, int n);
int dw_stream_events(const dw_stream *stream, bool reading, bool writing); /* for poll */
bool dw_stream_has_more(const dw_stream *stream);
void dw_stream_close(dw_stream *stream); /* also closes the socket; may be called twice */

#endif
