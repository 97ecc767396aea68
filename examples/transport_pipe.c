/* SPDX-License-Identifier: Apache-2.0
 * transport_pipe.c - a complete backend, which sends messages through a Unix-domain socket.
 * docs/transports.md explains it step by step. */
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "deltawire/transport.h"

/* The only thing that other files need: the table for dw_link_options.transports. */
extern const dw_transport pipe_transport;

/* One end. The link allocates the memory for it and sets it to zero. */
typedef struct pipe_end {
    int fd;
    uint64_t sent, received;
    bool sending, receiving; /* a send or recv is in progress */
    uint64_t length; /* of the arriving message; kept after a recv whose buffer was too small */
    size_t length_done;
    char name[sizeof(((struct sockaddr_un *)0)->sun_path)];
} pipe_end;

/* A send or recv in progress. */
typedef struct pipe_request {
    bool sends;
    uint64_t length; /* of a send; goes before the data */
    char *bytes;
    size_t len, done; /* done includes the bytes of the length */
} pipe_request;

/* ---- Open and close: the only two that may block --------------------------------------------- */

static dw_status complain(dw_why *why, dw_status status, const char *what, const char *name,
                          const char *reason)
{
    snprintf(why->text, sizeof why->text, "%s pipe://%.100s: %s", what, name, reason);
    why->offset = -1;
    return status;
}

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Returns an error if the program has cancelled the opening or the deadline has passed. Called
 * between short waits. */
static dw_status check_time(const dw_transport_open *how, int64_t deadline_ms)
{
    char reason[64];
    if (*how->cancelled)
        return complain(how->why, DW_ERR_CANCELLED, "opening", how->address, "cancelled");
    if (now_ms() < deadline_ms) return DW_OK;
    snprintf(reason, sizeof reason, "no peer within %u ms", how->timeout_ms);
    return complain(how->why, DW_ERR_TIMEOUT, "opening", how->address, reason);
}

static dw_status listen_at(pipe_end *end, const struct sockaddr_un *address,
                           const dw_transport_open *how, int64_t deadline_ms)
{
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (const struct sockaddr *)address, sizeof *address) != 0 ||
        listen(listener, 1) != 0) {
        dw_status status =
            complain(how->why, DW_ERR_ADDRESS, "cannot listen at", end->name, strerror(errno));
        if (listener >= 0) close(listener);
        return status;
    }
    char uri[sizeof end->name + 8];
    snprintf(uri, sizeof uri, "pipe://%s", end->name);
    how->on_listening(how->listening_context, uri);

    dw_status status = DW_OK;
    while (end->fd < 0 && status == DW_OK) {
        struct pollfd wait = {.fd = listener, .events = POLLIN};
        poll(&wait, 1, 20);
        end->fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (end->fd < 0) status = check_time(how, deadline_ms);
    }
    close(listener);
    unlink(address->sun_path);
    return status;
}

static dw_status dial(pipe_end *end, const struct sockaddr_un *address,
                      const dw_transport_open *how, int64_t deadline_ms)
{
    for (;;) {
        end->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (end->fd < 0)
            return complain(how->why, DW_ERR_ADDRESS, "no socket for", end->name, strerror(errno));
        if (connect(end->fd, (const struct sockaddr *)address, sizeof *address) == 0) return DW_OK;
        close(end->fd);
        dw_status status = check_time(how, deadline_ms);
        if (status != DW_OK) return status;
        poll(NULL, 0, 20); /* the listener may start later */
    }
}

static dw_status pipe_open(void *endpoint, const dw_transport_open *how)
{
    pipe_end *end = endpoint;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (how->address[0] == '\0' || strlen(how->address) >= sizeof address.sun_path) {
        return complain(how->why, DW_ERR_ADDRESS, "no path for a pipe:", how->address,
                        "write pipe:///tmp/name");
    }
    strcpy(address.sun_path, how->address);
    strcpy(end->name, how->address);
    end->fd = -1;
    int64_t deadline_ms = now_ms() + how->timeout_ms;
    return how->role == DW_LINK_LISTEN ? listen_at(end, &address, how, deadline_ms)
                                       : dial(end, &address, how, deadline_ms);
}

static dw_status pipe_close(void *endpoint)
{
    close(((pipe_end *)endpoint)->fd);
    return DW_OK;
}

/* ---- Messages: nothing here waits ------------------------------------------------------------ */

static dw_status pipe_send(void *endpoint, void *request_room, const void *data, size_t len)
{
    pipe_end *end = endpoint;
    pipe_request *request = request_room;
    *request =
        (pipe_request){.sends = 1, .length = len, .bytes = (char *)(uintptr_t)data, .len = len};
    end->sending = true;
    return DW_OK; /* pipe_test does the work */
}

static dw_status pipe_recv(void *endpoint, void *request_room, void *room, size_t cap)
{
    pipe_end *end = endpoint;
    pipe_request *request = request_room;
    *request = (pipe_request){.bytes = room, .len = cap};
    end->receiving = true;
    return DW_OK;
}

/* Handles the result of a system call: bytes, "try again later", or the end of the connection. */
static dw_status judge(const pipe_end *end, ssize_t n, dw_why *why)
{
    if (n > 0) return DW_OK;
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return DW_PENDING;
    return complain(why, DW_ERR_PEER, "lost the peer at", end->name,
                    n == 0 ? "it closed" : strerror(errno));
}

static dw_status go_on_sending(pipe_end *end, pipe_request *request, size_t *len, dw_why *why)
{
    size_t head = sizeof request->length;
    while (request->done < head + request->len) {
        const char *from = request->done < head ? (const char *)&request->length + request->done
                                                : request->bytes + (request->done - head);
        size_t left =
            request->done < head ? head - request->done : head + request->len - request->done;
        ssize_t n = send(end->fd, from, left, MSG_NOSIGNAL);
        dw_status status = judge(end, n, why);
        if (status != DW_OK) return status;
        request->done += (size_t)n;
        end->sent += (uint64_t)n;
    }
    *len = request->len;
    end->sending = false;
    return DW_OK;
}

static dw_status go_on_receiving(pipe_end *end, pipe_request *request, size_t *len, dw_why *why)
{
    for (;;) {
        bool at_length = end->length_done < sizeof end->length;
        if (!at_length) {
            *len = (size_t)end->length;
            if (*len > request->len) {
                end->receiving = false;
                return DW_ERR_BUFFER_TOO_SMALL; /* the length stays in `end` for the next recv */
            }
            if (request->done == *len) break;
        }
        char *to =
            at_length ? (char *)&end->length + end->length_done : request->bytes + request->done;
        size_t left = at_length ? sizeof end->length - end->length_done : *len - request->done;
        ssize_t n = recv(end->fd, to, left, 0);
        dw_status status = judge(end, n, why);
        if (status != DW_OK) return status;
        *(at_length ? &end->length_done : &request->done) += (size_t)n;
        end->received += (uint64_t)n;
    }
    end->length_done = 0;
    end->receiving = false;
    return DW_OK;
}

static dw_status pipe_test(void *endpoint, void *request_room, size_t *len, dw_why *why)
{
    pipe_request *request = request_room;
    return request->sends ? go_on_sending(endpoint, request, len, why)
                          : go_on_receiving(endpoint, request, len, why);
}

static void pipe_describe(const void *endpoint, dw_transport_traits *traits)
{
    const pipe_end *end = endpoint;
    traits->framing_bytes = sizeof end->length;
    snprintf(traits->peer, sizeof traits->peer, "pipe://%.80s", end->name);
}

static void pipe_poll(const void *endpoint, int asks_kernel, dw_transport_state *state)
{
    const pipe_end *end = endpoint;
    (void)asks_kernel; /* the system counts nothing on such a socket */
    state->wait_fd = end->fd;
    state->wait_events = (end->receiving ? POLLIN : 0) | (end->sending ? POLLOUT : 0);
    state->wake_ns = -1;
    state->wire_sent = end->sent;
    state->wire_received = end->received;
}

const dw_transport pipe_transport = {
    .struct_size = sizeof(dw_transport),
    .scheme = "pipe",
    .endpoint_bytes = sizeof(pipe_end),
    .request_bytes = sizeof(pipe_request),
    .open = pipe_open,
    .close = pipe_close,
    .send = pipe_send,
    .recv = pipe_recv,
    .test = pipe_test,
    .describe = pipe_describe,
    .poll = pipe_poll,
};
