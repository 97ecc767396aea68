/* SPDX-License-Identifier: Apache-2.0
 * fake_gpu.c - a fake CUDA driver in main memory: the functions that links over NCCL call. */
#include "fake_gpu.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "fake_nccl.h"

#define EXPORT __attribute__((visibility("default")))

enum {
    OUT_OF_MEMORY = 2,
    INVALID_VALUE = 1,
    INVALID_CONTEXT = 201,
    NO_DEVICE = 100,
    NOT_READY = 600,
    LAUNCH_FAILED = 719
};
enum { MOST_BLOCKS = 1024, MOST_STREAMS = 64 };

struct fake_event {
    fake_stream *stream;
    uint64_t asked, done;
};

struct fake_stream {
    fake_work *head, **tail;
    int held;
};

/* The host cannot access the address that is handed out; the contents are kept directly behind. */
typedef struct block {
    unsigned char *memory;
    size_t bytes;
    bool pinned;
} block;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static fake_nccl state = {.version = 22809, .fail_at = -1};
static block blocks[MOST_BLOCKS];
static fake_stream *streams[MOST_STREAMS];
static _Thread_local int depth, capture_mode;

EXPORT fake_nccl *fake_nccl_get(void)
{
    return &state;
}

void fake_lock(void)
{
    pthread_mutex_lock(&lock);
}

EXPORT fake_nccl fake_nccl_now(void)
{
    pthread_mutex_lock(&lock);
    const fake_nccl copied = state;
    pthread_mutex_unlock(&lock);
    return copied;
}

EXPORT void fake_nccl_stand_still(void)
{
    pthread_mutex_lock(&lock);
    state.stands_still = 1;
    pthread_mutex_unlock(&lock);
}

void fake_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

int fake_fails(const char *function)
{
    if (state.calls++ != state.fail_at) return 0;
    state.failed = function;
    return 1;
}

void fake_violation(const char *what)
{
    state.violations++;
    state.violation = what;
}

void fake_check_context(void)
{
    if (depth <= 0) fake_violation("a call without a context");
    if (depth > 0 && capture_mode != 2)
        fake_violation("a call that is forbidden while another thread captures");
}

/* ---- Memory ---------------------------------------------------------------------------------- */

static block *find(const void *address, size_t len, bool pinned)
{
    const unsigned char *at = address;
    for (int i = 0; i < MOST_BLOCKS; i++) {
        block *b = &blocks[i];
        if (b->memory && b->pinned == pinned && at >= b->memory && at + len <= b->memory + b->bytes)
            return b;
    }
    return NULL;
}

unsigned char *fake_look(const void *device_memory, size_t len)
{
    const block *b = find(device_memory, len, false);
    static unsigned char nowhere[1 << 24];
    if (!b) fake_violation("an address that is not on the GPU");
    return b ? (unsigned char *)(uintptr_t)device_memory + b->bytes : nowhere;
}

EXPORT void *fake_nccl_look(const void *device_memory)
{
    fake_lock();
    void *found = fake_look(device_memory, 1);
    fake_unlock();
    return found;
}

static void *allocate(size_t bytes, bool pinned)
{
    int at = 0;
    while (at < MOST_BLOCKS && blocks[at].memory) at++;
    size_t whole = (bytes + 4095) / 4096 * 4096;
    if (at == MOST_BLOCKS) abort();
    unsigned char *memory = mmap(NULL, pinned ? whole : 2 * whole, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) abort();
    if (!pinned) mprotect(memory, whole, PROT_NONE);
    blocks[at] = (block){memory, whole, pinned};
    *(pinned ? &state.pinned : &state.blocks) += 1;
    return memory;
}

static void release(void *memory, bool pinned)
{
    block *b = find(memory, 1, pinned);
    if (!b || b->memory != memory) {
        fake_violation("freed memory that was never allocated");
        return;
    }
    munmap(b->memory, pinned ? b->bytes : 2 * b->bytes);
    *b = (block){.memory = NULL};
    *(pinned ? &state.pinned : &state.blocks) -= 1;
}

/* ---- Streams --------------------------------------------------------------------------------- */

void fake_stream_add(fake_stream *stream, fake_work *work)
{
    *stream->tail = work;
    stream->tail = &work->next;
}

void fake_stream_hold(fake_stream *stream, int change)
{
    stream->held += change;
}

static void drop_head(fake_stream *stream)
{
    fake_work *work = stream->head;
    stream->head = work->next;
    if (!stream->head) stream->tail = &stream->head;
    free(work);
}

static void run(fake_stream *stream)
{
    while (stream->head) {
        fake_work *work = stream->head;
        if (work->kind == FAKE_COPY) memcpy(work->host, work->from, work->len);
        if (work->kind == FAKE_EVENT) work->event->done = work->ticket;
        if ((work->kind == FAKE_SEND || work->kind == FAKE_RECEIVE) &&
            !fake_comm_move(work->comm, work))
            return;
        drop_head(stream);
    }
}

/* Removes the work of an aborted communicator; later work can go on. */
void fake_streams_forget(const fake_comm *comm)
{
    for (int i = 0; i < MOST_STREAMS; i++) {
        if (!streams[i]) continue;
        for (fake_work *work = streams[i]->head; work; work = work->next) {
            if (work->comm != comm) continue;
            work->comm = NULL;
            work->kind = 0;
        }
    }
}

EXPORT int fake_nccl_is_idle(void)
{
    int idle = 1;
    fake_lock();
    for (int i = 0; i < MOST_STREAMS; i++)
        idle &= !streams[i] || (!streams[i]->head && !streams[i]->held);
    fake_unlock();
    return idle;
}

static int checked(const char *function, int error)
{
    fake_check_context();
    return fake_fails(function) ? error : 0;
}

#define LOCKED(body)                                                                               \
    fake_lock();                                                                                   \
    int result = body;                                                                             \
    fake_unlock();                                                                                 \
    return result

/* ---- The driver's functions ------------------------------------------------------------------ */

FAKE_FUNCTION(cuInit, unsigned flags)
{
    return state.has_no_gpu ? NO_DEVICE : (int)flags;
}

FAKE_FUNCTION(cuDeviceGet, int *device, int ordinal)
{
    *device = ordinal;
    return ordinal == 0 ? 0 : 101;
}

FAKE_FUNCTION(cuGetErrorString, int error, const char **text)
{
    *text = error == OUT_OF_MEMORY ? "out of memory" : "an error of the fake";
    return 0;
}

FAKE_FUNCTION(cuDevicePrimaryCtxRetain, void **context, int device)
{
    *context = &state;
    state.contexts++;
    return device;
}

FAKE_FUNCTION(cuDevicePrimaryCtxRelease_v2, int device)
{
    state.contexts--;
    return device;
}

static int push(void)
{
    if (fake_fails("cuCtxPushCurrent")) return INVALID_CONTEXT;
    depth++;
    return 0;
}

FAKE_FUNCTION(cuCtxPushCurrent_v2, void *context)
{
    if (context != &state) return INVALID_CONTEXT;
    LOCKED(push());
}

FAKE_FUNCTION(cuCtxPopCurrent_v2, void **context)
{
    *context = &state;
    if (depth-- <= 0) abort();
    return 0;
}

FAKE_FUNCTION(cuThreadExchangeStreamCaptureMode, int *mode)
{
    int before = capture_mode;
    capture_mode = *mode;
    *mode = before;
    return 0;
}

static int make_stream(fake_stream **stream, unsigned flags)
{
    int error = checked("cuStreamCreate", OUT_OF_MEMORY);
    int at = 0;
    while (at < MOST_STREAMS && streams[at]) at++;
    if (error || at == MOST_STREAMS || flags != 1) return OUT_OF_MEMORY;
    *stream = streams[at] = calloc(1, sizeof **stream);
    (*stream)->tail = &(*stream)->head;
    state.streams++;
    return 0;
}

FAKE_FUNCTION(cuStreamCreate, fake_stream **stream, unsigned flags)
{
    LOCKED(make_stream(stream, flags));
}

static int destroy_stream(fake_stream *stream)
{
    for (int i = 0; i < MOST_STREAMS; i++) {
        if (streams[i] == stream) streams[i] = NULL;
    }
    if (stream->head) fake_violation("a stream with work was destroyed");
    while (stream->head) drop_head(stream);
    free(stream);
    state.streams--;
    return 0;
}

FAKE_FUNCTION(cuStreamDestroy_v2, fake_stream *stream)
{
    LOCKED(destroy_stream(stream));
}

static int query_stream(fake_stream *stream)
{
    run(stream);
    return stream->head ? NOT_READY : 0;
}

FAKE_FUNCTION(cuStreamQuery, fake_stream *stream)
{
    LOCKED(query_stream(stream));
}

static int make_event(fake_event **event)
{
    int error = checked("cuEventCreate", OUT_OF_MEMORY);
    if (error) return error;
    *event = calloc(1, sizeof **event);
    state.events++;
    return 0;
}

FAKE_FUNCTION(cuEventCreate, fake_event **event, unsigned flags)
{
    (void)flags;
    LOCKED(make_event(event));
}

FAKE_FUNCTION(cuEventDestroy_v2, fake_event *event)
{
    fake_lock();
    free(event);
    state.events--;
    fake_unlock();
    return 0;
}

static int record(fake_event *event, fake_stream *stream)
{
    int error = checked("cuEventRecord", LAUNCH_FAILED);
    if (error) return error;
    if (stream->held) fake_violation("an event was recorded while a call was in progress");
    fake_work *work = calloc(1, sizeof *work);
    *work = (fake_work){.kind = FAKE_EVENT, .event = event, .ticket = ++event->asked};
    event->stream = stream;
    fake_stream_add(stream, work);
    return 0;
}

FAKE_FUNCTION(cuEventRecord, fake_event *event, fake_stream *stream)
{
    LOCKED(record(event, stream));
}

static int query_event(fake_event *event)
{
    int error = checked("cuEventQuery", LAUNCH_FAILED);
    if (error) return error;
    if (event->stream) run(event->stream);
    return event->done == event->asked ? 0 : NOT_READY;
}

FAKE_FUNCTION(cuEventQuery, fake_event *event)
{
    LOCKED(query_event(event));
}

static int allocate_into(void **memory, size_t bytes, bool pinned, const char *function)
{
    int error = checked(function, OUT_OF_MEMORY);
    if (error) return error;
    *memory = allocate(bytes, pinned);
    return 0;
}

FAKE_FUNCTION(cuMemAlloc_v2, void **memory, size_t bytes)
{
    LOCKED(allocate_into(memory, bytes, false, "cuMemAlloc"));
}

FAKE_FUNCTION(cuMemHostAlloc, void **memory, size_t bytes, unsigned flags)
{
    (void)flags;
    LOCKED(allocate_into(memory, bytes, true, "cuMemHostAlloc"));
}

FAKE_FUNCTION(cuMemFree_v2, void *memory)
{
    fake_lock();
    release(memory, false);
    fake_unlock();
    return 0;
}

FAKE_FUNCTION(cuMemFreeHost, void *memory)
{
    fake_lock();
    release(memory, true);
    fake_unlock();
    return 0;
}

static int copy(void *to, const void *from, size_t len, const void *pinned, fake_stream *stream,
                const char *function)
{
    int error = checked(function, LAUNCH_FAILED);
    if (error) return error;
    if (!find(pinned, len, true)) fake_violation("a copy would block: its memory is not pinned");
    fake_work *work = calloc(1, sizeof *work);
    *work = (fake_work){.kind = FAKE_COPY, .host = to, .from = from, .len = len};
    fake_stream_add(stream, work);
    return 0;
}

FAKE_FUNCTION(cuMemcpyHtoDAsync_v2, void *to, const void *from, size_t len, fake_stream *stream)
{
    LOCKED(copy(fake_look(to, len), from, len, from, stream, "cuMemcpyHtoDAsync"));
}

FAKE_FUNCTION(cuMemcpyDtoHAsync_v2, void *to, const void *from, size_t len, fake_stream *stream)
{
    LOCKED(copy(to, fake_look(from, len), len, to, stream, "cuMemcpyDtoHAsync"));
}

static int copy_now(void *to, const void *from, size_t len)
{
    int error = checked("cuMemcpyHtoD", LAUNCH_FAILED);
    if (!error) memcpy(fake_look(to, len), from, len);
    return error;
}

FAKE_FUNCTION(cuMemcpyHtoD_v2, void *to, const void *from, size_t len)
{
    LOCKED(copy_now(to, from, len));
}

static int attribute(int *value, int what, const void *pointer)
{
    if (what != 2) return INVALID_VALUE;
    *value = find(pointer, 1, false) ? 2 : 1;
    return find(pointer, 1, false) || find(pointer, 1, true) ? 0 : INVALID_VALUE;
}

FAKE_FUNCTION(cuPointerGetAttribute, void *value, int what, const void *pointer)
{
    LOCKED(attribute(value, what, pointer));
}
