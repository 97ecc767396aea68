/* SPDX-License-Identifier: Apache-2.0
 * wire.h - what bench_link measures: messages between two processes, by a link, or by the bare
 * means below it. */
#ifndef DW_BENCH_WIRE_H
#define DW_BENCH_WIRE_H

#include <stddef.h>

#include "deltawire/transport.h"

/* One end. Both ends know how long the next message is. */
typedef struct wire {
    const char *name;
    void *context;
    /* Returns when the bytes may be reused, or are queued. */
    void (*send)(struct wire *w, size_t len);
    /* Begins to send, for flush to end it; the bare socket sends. */
    void (*begin)(struct wire *w, size_t len);
    void (*recv)(struct wire *w, size_t len);
    void (*flush)(struct wire *w); /* until all has left */
    void (*close)(struct wire *w);
} wire;

/* Ends the program with a sentence. */
__attribute__((format(printf, 1, 2), noreturn)) void wire_die(const char *format, ...);

/* Memory for the longest message, every page touched. */
char *wire_room(size_t bytes);

/* A connected blocking socket: send() and recv() in a loop, no more. */
wire wire_of_socket(int fd, size_t longest);

/* A link. Messages are begun and ended in place, as a channel does it; nothing is copied in or
 * out. */
wire wire_of_link(const char *uri, const dw_link_options *options);

#endif
