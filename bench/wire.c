/* SPDX-License-Identifier: Apache-2.0
 * wire.c - a plain socket and a link, with the same interface. */
#include "wire.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "die.h"

enum { TAG = 1 };

char *wire_room(size_t bytes)
{
    char *room = malloc(bytes);
    if (!room) bench_die("no memory for %zu bytes", bytes);
    memset(room, 1, bytes);
    return room;
}

/* ---- Sockets --------------------------------------------------------------------------------- */

typedef struct socket_wire {
    int fd;
    char *room;
} socket_wire;

static void socket_send(wire *w, size_t len)
{
    const socket_wire *end = w->context;
    for (size_t done = 0; done < len;) {
        ssize_t n = send(end->fd, end->room + done, len - done, MSG_NOSIGNAL);
        if (n <= 0) bench_die("send: %s", strerror(errno));
        done += (size_t)n;
    }
}

static void socket_recv(wire *w, size_t len)
{
    const socket_wire *end = w->context;
    for (size_t done = 0; done < len;) {
        ssize_t n = recv(end->fd, end->room + done, len - done, 0);
        if (n <= 0) bench_die("recv: %s", n ? strerror(errno) : "the other end has gone");
        done += (size_t)n;
    }
}

static void socket_flush(wire *w)
{
    (void)w; /* the system has it */
}

static void socket_close(wire *w)
{
    socket_wire *end = w->context;
    close(end->fd);
    free(end->room);
    free(end);
}

wire wire_of_socket(int fd, size_t longest)
{
    socket_wire *end = malloc(sizeof *end);
    if (!end) bench_die("no memory for a socket");
    *end = (socket_wire){.fd = fd, .room = wire_room(longest)};
    return (wire){.name = "socket",
                  .context = end,
                  .send = socket_send,
                  .begin = socket_send,
                  .recv = socket_recv,
                  .flush = socket_flush,
                  .close = socket_close};
}

/* ---- Links ----------------------------------------------------------------------------------- */

static void check(dw_link *link, dw_status status)
{
    if (status != DW_OK) bench_die("status %d: %s", (int)status, dw_link_why(link));
}

static void link_send(wire *w, size_t len)
{
    dw_link *link = w->context;
    void *room;
    dw_status status;
    while ((status = dw_link_send_begin(link, TAG, len, &room)) == DW_PENDING)
        check(link, dw_link_wait_room(link, len, -1));
    check(link, status);
    check(link, dw_link_send_end(link, room, len));
}

static void link_recv(wire *w, size_t len)
{
    dw_link *link = w->context;
    void *data;
    size_t got;
    check(link, dw_link_recv(link, TAG, -1, &data, &got));
    if (got != len) bench_die("a message of %zu bytes came, not of %zu", got, len);
    dw_link_release(link, data);
}

static void link_flush(wire *w)
{
    check(w->context, dw_link_flush(w->context, -1));
}

static void link_close(wire *w)
{
    dw_link_close(w->context);
}

wire wire_of_link(const char *uri, const dw_link_options *options)
{
    dw_link *link;
    dw_why why;
    if (dw_link_open(&link, uri, options, &why) != DW_OK) bench_die("%s", why.text);
    return (wire){.name = "link",
                  .context = link,
                  .send = link_send,
                  .begin = link_send,
                  .recv = link_recv,
                  .flush = link_flush,
                  .close = link_close};
}
