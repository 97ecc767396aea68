/* SPDX-License-Identifier: Apache-2.0
 * stream.h - bytes both ways over one connected, nonblocking socket: as they are, or under a cover
 * (TLS).
 *
 * | name   | meaning                                                        | owner           |
 * | fd     | the socket                                                     | the stream      |
 * | cover  | what stands between us and the socket; NULL: nothing           | static          |
 * | inside | the cover's state                                              | the stream      |
 * | error  | errno of what broke the stream, where it was the socket        |                 |
 * | text   | what broke it, where the cover knows better; "" otherwise      |                 |
 *
 * State: opened by whoever has the socket; each call may be the one that finds it ended or broken,
 * and after that only dw_stream_close may follow. Threads: one at a time. */
#ifndef DW_STREAM_H
#define DW_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/uio.h>

/* What a read or write answers where it moved nothing. WAIT: poll for dw_stream_events first.
 * ENDED: the other end closed. */
enum { DW_STREAM_WAIT = 0, DW_STREAM_ENDED = -1, DW_STREAM_BROKEN = -2 };

typedef struct dw_stream dw_stream;

typedef struct dw_stream_cover {
    ptrdiff_t (*read)(dw_stream *stream, void *room, size_t cap);
    ptrdiff_t (*write)(dw_stream *stream, const struct iovec *parts, int n);
    /* reading, writing: what the caller has in hand. */
    int (*events)(const dw_stream *stream, bool reading, bool writing);
    /* Bytes that a read would give without the socket: poll does not see them. */
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

/* Bytes moved, at least one, or one of the answers above. A write may take a part only. After
 * DW_STREAM_WAIT it must come again with the same bytes, and at least as many: under a cover they
 * may be on their way already. */
ptrdiff_t dw_stream_read(dw_stream *stream, void *room, size_t cap);
ptrdiff_t dw_stream_write(dw_stream *stream, const struct iovec *parts, int n);
int dw_stream_events(const dw_stream *stream, bool reading, bool writing); /* for poll */
bool dw_stream_has_more(const dw_stream *stream);
void dw_stream_close(dw_stream *stream); /* the socket too; twice is fine */

#endif
