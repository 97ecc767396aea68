/* SPDX-License-Identifier: Apache-2.0
 * wire.h - what bench_link measures: messages between two processes, over a link, or over a plain
 * socket or MPI. */
#ifndef DW_BENCH_WIRE_H
#define DW_BENCH_WIRE_H

#include <stddef.h>

#include "deltawire/transport.h"

/* One end. Both ends know the length of the next message. */
typedef struct wire {
    const char *name;
    void *context;
    /* Returns when the bytes may be reused, or are queued. */
    void (*send)(struct wire *w, size_t len);
    /* Starts to send, and flush waits for the end. The plain socket sends at once. */
    void (*begin)(struct wire *w, size_t len);
    void (*recv)(struct wire *w, size_t len);
    void (*flush)(struct wire *w); /* until all has left */
    void (*close)(struct wire *w);
} wire;

/* Memory for the longest message, every page touched. */
char *wire_room(size_t bytes);

/* A connected blocking socket, used with nothing but send() and recv() in a loop. */
wire wire_of_socket(int fd, size_t longest);

/* A link. Messages are written and read in place, as a channel does it, without copies. */
wire wire_of_link(const char *uri, const dw_link_options *options);

#endif
