/* SPDX-License-Identifier: Apache-2.0
 * fake_nccl.c - a fake NCCL: communicators of two ranks over Unix-domain sockets. */
#include "fake_nccl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "fake_gpu.h"

enum { SUCCESS = 0, SYSTEM_ERROR = 2, INVALID_ARGUMENT = 4, REMOTE_ERROR = 6, IN_PROGRESS = 7 };

typedef struct fake_id {
    char name[128];
} fake_id;

typedef struct fake_config {
    size_t size;
    unsigned magic, version;
    int blocking;
} fake_config;

struct fake_comm {
    int rank, ranks, splits;
    char name[100];
    int listener, socket; /* -1: not open */
    int state;
    int late;           /* how many queries still find the last call in progress */
    fake_work *waiting; /* then this is put on `stream` */
    fake_stream *stream;
};

/* ---- Joining --------------------------------------------------------------------------------- */

static socklen_t address_of(const fake_comm *comm, struct sockaddr_un *address)
{
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    /* An abstract name, which begins with a zero, so that there is no file. */
    snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "%s", comm->name);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(comm->name));
}

static void join(fake_comm *comm)
{
    struct sockaddr_un address;
    const socklen_t len = address_of(comm, &address);
    if (comm->socket >= 0 || comm->state != SUCCESS || fake_nccl_get()->never_joins) return;
    if (comm->rank == 0 && comm->listener < 0) {
        comm->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (bind(comm->listener, (struct sockaddr *)&address, len) != 0 ||
            listen(comm->listener, 1) != 0)
            comm->state = SYSTEM_ERROR;
    }
    if (comm->rank == 0) {
        comm->socket = accept4(comm->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        return;
    }
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (connect(fd, (struct sockaddr *)&address, len) == 0)
        comm->socket = fd;
    else
        close(fd);
}

static int make(fake_comm **made, int ranks, int rank, const char *name)
{
    fake_comm *comm = calloc(1, sizeof *comm);
    if (!comm) return SYSTEM_ERROR;
    *comm = (fake_comm){
        .rank = rank, .ranks = ranks, .listener = -1, .socket = -1, .late = fake_nccl_get()->late};
    snprintf(comm->name, sizeof comm->name, "%.*s", (int)sizeof comm->name - 1, name);
    fake_nccl_get()->comms++;
    *made = comm;
    join(comm);
    return IN_PROGRESS;
}

/* ---- Moving bytes ---------------------------------------------------------------------------- */

/* A length is sent before the bytes, so that the receiver can compare sizes. Returns whether the
 * work is done. */
int fake_comm_move(fake_comm *comm, fake_work *work)
{
    fake_nccl *state = fake_nccl_get();
    unsigned char *head = (unsigned char *)&work->head;
    if (comm->state != SUCCESS || state->stands_still) return 0;
    for (;;) {
        int in_head = work->moved < sizeof work->head;
        size_t at = in_head ? work->moved : work->moved - sizeof work->head;
        size_t left = (in_head ? sizeof work->head : work->len) - at;
        if (!in_head && left == 0) return 1;
        unsigned char *bytes = in_head ? head + at : work->host + at;
        ssize_t n = work->kind == FAKE_SEND ? send(comm->socket, bytes, left, MSG_NOSIGNAL)
                                            : recv(comm->socket, bytes, left, 0);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
        if (n <= 0) {
            comm->state = REMOTE_ERROR;
            return 0;
        }
        work->moved += (size_t)n;
        if (work->kind == FAKE_SEND && !in_head) state->bytes_sent += (size_t)n;
        if (work->kind == FAKE_RECEIVE && work->moved == sizeof work->head &&
            work->head != work->len) {
            fake_violation("a send and its receive have different sizes");
            comm->state = REMOTE_ERROR;
            return 0;
        }
    }
}

static int enqueue(fake_comm *comm, fake_stream *stream, int kind, const void *memory, size_t len,
                   int type, int peer)
{
    fake_nccl *state = fake_nccl_get();
    fake_check_context();
    if (fake_fails(kind == FAKE_SEND ? "ncclSend" : "ncclRecv")) return SYSTEM_ERROR;
    if (comm->late > 0 || comm->waiting)
        fake_violation("a call of a communicator that was in progress");
    if (type != 1 || peer != 1 - comm->rank || len == 0) return INVALID_ARGUMENT;
    if (comm->state != SUCCESS) return comm->state;
    *(kind == FAKE_SEND ? &state->sends : &state->receives) += 1;
    fake_work *work = calloc(1, sizeof *work);
    *work = (fake_work){.kind = kind,
                        .comm = comm,
                        .host = fake_look(memory, len),
                        .len = len,
                        .head = kind == FAKE_SEND ? len : 0};
    if (state->late == 0) {
        fake_stream_add(stream, work);
        return SUCCESS;
    }
    comm->late = state->late;
    comm->waiting = work;
    comm->stream = stream;
    fake_stream_hold(stream, 1);
    return IN_PROGRESS;
}

/* ---- NCCL's functions ------------------------------------------------------------------------ */

FAKE_FUNCTION(ncclGetVersion, int *version)
{
    *version = fake_nccl_get()->version;
    return SUCCESS;
}

FAKE_FUNCTION(ncclGetUniqueId, fake_id *id)
{
    static int n;
    fake_lock();
    int fails = fake_fails("ncclGetUniqueId");
    memset(id, 0, sizeof *id);
    snprintf(id->name, sizeof id->name, "dw-fake-nccl-%ld-%d", (long)getpid(), n++);
    fake_unlock();
    return fails ? SYSTEM_ERROR : SUCCESS;
}

FAKE_FUNCTION(ncclCommInitRankConfig, fake_comm **comm, int ranks, fake_id id, int rank,
              fake_config *config)
{
    fake_lock();
    fake_check_context();
    int result = INVALID_ARGUMENT;
    if (fake_fails("ncclCommInitRankConfig"))
        result = SYSTEM_ERROR;
    else if (config->magic == 0xcafebeef && config->blocking == 0 && config->size >= sizeof *config)
        result = make(comm, ranks, rank, id.name);
    fake_unlock();
    return result;
}

FAKE_FUNCTION(ncclCommSplit, fake_comm *comm, int color, int key, fake_comm **made,
              fake_config *config)
{
    char name[sizeof comm->name + 16];
    fake_lock();
    fake_check_context();
    int result = INVALID_ARGUMENT;
    snprintf(name, sizeof name, "%s-%d", comm->name, comm->splits++);
    if (fake_fails("ncclCommSplit"))
        result = SYSTEM_ERROR;
    else if (config->blocking == 0 && color == 0)
        result = make(made, comm->ranks, key, name);
    fake_unlock();
    return result == IN_PROGRESS ? SUCCESS : result; /* as a blocking communicator does */
}

FAKE_FUNCTION(ncclCommCount, const fake_comm *comm, int *ranks)
{
    *ranks = comm->ranks;
    return SUCCESS;
}

FAKE_FUNCTION(ncclCommUserRank, const fake_comm *comm, int *rank)
{
    *rank = comm->rank;
    return SUCCESS;
}

FAKE_FUNCTION(ncclCommGetAsyncError, fake_comm *comm, int *error)
{
    fake_lock();
    fake_check_context();
    int fails = fake_fails("ncclCommGetAsyncError");
    join(comm);
    *error = comm->state;
    if (comm->state == SUCCESS && (comm->socket < 0 || comm->late > 0)) {
        *error = IN_PROGRESS;
        if (comm->socket >= 0) comm->late--;
    } else if (comm->waiting) {
        fake_stream_hold(comm->stream, -1);
        fake_stream_add(comm->stream, comm->waiting);
        comm->waiting = NULL;
    }
    fake_unlock();
    return fails ? SYSTEM_ERROR : SUCCESS;
}

FAKE_FUNCTION(ncclCommAbort, fake_comm *comm)
{
    fake_lock();
    fake_streams_forget(comm);
    if (comm->waiting) fake_stream_hold(comm->stream, -1);
    free(comm->waiting);
    if (comm->listener >= 0) close(comm->listener);
    if (comm->socket >= 0) close(comm->socket);
    free(comm);
    fake_nccl_get()->comms--;
    fake_nccl_get()->aborts++;
    fake_unlock();
    return SUCCESS;
}

FAKE_FUNCTION(ncclSend, const void *from, size_t len, int type, int peer, fake_comm *comm,
              fake_stream *stream)
{
    fake_lock();
    int result = enqueue(comm, stream, FAKE_SEND, from, len, type, peer);
    fake_unlock();
    return result;
}

FAKE_FUNCTION(ncclRecv, void *to, size_t len, int type, int peer, fake_comm *comm,
              fake_stream *stream)
{
    fake_lock();
    int result = enqueue(comm, stream, FAKE_RECEIVE, to, len, type, peer);
    fake_unlock();
    return result;
}

__attribute__((visibility("default"))) const char *ncclGetErrorString(int error);
const char *ncclGetErrorString(int error)
{
    return error == REMOTE_ERROR ? "the fake's peer is gone" : "an error of the fake NCCL";
}

__attribute__((visibility("default"))) const char *ncclGetLastError(const fake_comm *comm);
const char *ncclGetLastError(const fake_comm *comm)
{
    (void)comm;
    return "";
}
