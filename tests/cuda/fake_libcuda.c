/* SPDX-License-Identifier: Apache-2.0
 * fake_libcuda.c - the functions of the CUDA driver that the engine calls, in main memory: with a
 * queue instead of streams, and with calls that fail on request. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "../../cuda/message.h"
#include "fake_cuda.h"

#define EXPORT __attribute__((visibility("default")))

enum { OUT_OF_MEMORY = 2, INVALID_CONTEXT = 201, NOT_FOUND = 500, LAUNCH_FAILED = 719 };
enum { MOST_BLOCKS = 4096, MOST_WORK = 4096, MOST_KERNELS = 96, PAGE = 4096 };

typedef struct work {
    const char *kernel; /* NULL: a copy */
    unsigned char *to;
    const unsigned char *from; /* of a kernel launch: its parts */
    uint64_t bytes;            /* of a kernel launch: its grid */
    uint32_t n;
} work;

typedef struct block {
    unsigned char *memory;
    size_t bytes;
    bool host;
} block;

static fake_cuda state = {.fail_at = -1};
static block blocks[MOST_BLOCKS];
static work queue[MOST_WORK], graphs[2][MOST_WORK], aside[MOST_WORK];
static int n_queue, n_graphs[2], n_aside;
static char other_stream; /* stands for all created streams; they wait for no other stream */
static char names[MOST_KERNELS][48];
static int n_names;

/* Several threads may call. One that accesses device memory makes the others wait. */
static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static _Thread_local int mode, depth;

static void die(const char *what)
{
    fprintf(stderr, "fake libcuda: %s\n", what);
    abort();
}

static bool fails_in(const char *function)
{
    pthread_mutex_lock(&lock);
    bool fails = state.calls++ == state.fail_at;
    if (fails) state.failed = function;
    pthread_mutex_unlock(&lock);
    return fails;
}
#define fails() fails_in(__func__)

static void *allocate(size_t bytes, bool host)
{
    int at = 0;
    pthread_mutex_lock(&lock);
    while (at < MOST_BLOCKS && blocks[at].memory) at++;
    if (at == MOST_BLOCKS) die("too many blocks");
    bytes = (bytes + PAGE - 1) / PAGE * PAGE;
    void *memory = mmap(NULL, bytes, host ? PROT_READ | PROT_WRITE : PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) die("no memory");
    blocks[at] = (block){memory, bytes, host};
    state.allocations++;
    state.blocks++;
    pthread_mutex_unlock(&lock);
    return memory;
}

static void release(void *memory)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MOST_BLOCKS; i++) {
        if (!memory || blocks[i].memory != memory) continue;
        munmap(blocks[i].memory, blocks[i].bytes);
        blocks[i].memory = NULL;
        state.blocks--;
        pthread_mutex_unlock(&lock);
        return;
    }
    die("freed memory that was never allocated");
}

static void touch(bool allowed)
{
    if (allowed) pthread_mutex_lock(&lock);
    for (int i = 0; i < MOST_BLOCKS; i++)
        if (blocks[i].memory && !blocks[i].host)
            mprotect(blocks[i].memory, blocks[i].bytes,
                     allowed ? PROT_READ | PROT_WRITE : PROT_NONE);
    if (!allowed) pthread_mutex_unlock(&lock);
}

static void *allocate_device(size_t bytes)
{
    return allocate(bytes, false);
}

static void run_first(work *waiting, int *waits, int n)
{
    touch(true);
    for (int i = 0; i < n; i++) {
        const work *w = &waiting[i];
        if (w->kernel)
            (void)dw_shim_launch(w->kernel, w->from, w->n, w->bytes);
        else
            memcpy(w->to, w->from, w->bytes);
    }
    *waits -= n;
    memmove(waiting, waiting + n, (size_t)*waits * sizeof *waiting);
    touch(false);
}

static void run(void)
{
    pthread_mutex_lock(&lock);
    run_first(queue, &n_queue, n_queue);
    pthread_mutex_unlock(&lock);
}

static void run_but(int n)
{
    if (n > n_queue) die("the queue has less work than that");
    run_first(queue, &n_queue, n_queue - n);
}

static void run_aside(void)
{
    pthread_mutex_lock(&lock);
    run_first(aside, &n_aside, n_aside);
    pthread_mutex_unlock(&lock);
}

static void add(work w, const void *stream)
{
    bool is_aside = stream == &other_stream && !state.at_once;
    pthread_mutex_lock(&lock);
    int *n = is_aside ? &n_aside : state.capturing ? &n_graphs[state.graph] : &n_queue;
    if (*n == MOST_WORK) die("the queue is full");
    (is_aside ? aside : state.capturing ? graphs[state.graph] : queue)[(*n)++] = w;
    if (state.at_once && !state.capturing) run();
    pthread_mutex_unlock(&lock);
}

static void launch_graph(int graph)
{
    for (int i = 0; i < n_graphs[graph]; i++) queue[n_queue++] = graphs[graph][i];
}

static void drop_graph(int graph)
{
    n_graphs[graph] = 0;
}

static void forget_mode(void)
{
    state.mode -= mode;
    mode = 0;
}

/* Several threads may call the fake, so this is set before main starts. */
__attribute__((constructor)) static void set_up(void)
{
    state.forget_mode = forget_mode;
    state.allocate = allocate_device;
    state.release = release;
    state.touch = touch;
    state.run = run;
    state.run_but = run_but;
    state.launch_graph = launch_graph;
    state.drop_graph = drop_graph;
}

EXPORT fake_cuda *fake_cuda_get(void)
{
    return &state;
}

static void count(long *what, long more)
{
    pthread_mutex_lock(&lock);
    *what += more;
    pthread_mutex_unlock(&lock);
}

/* Calls that need a current context fail without one. */
static int in_context(void)
{
    return depth > 0 ? 0 : INVALID_CONTEXT;
}

#define FUNCTION(name, ...)                                                                        \
    EXPORT int name(__VA_ARGS__);                                                                  \
    EXPORT int name(__VA_ARGS__)

FUNCTION(cuInit, unsigned flags)
{
    return fails() ? 100 : (int)flags;
}

FUNCTION(cuDeviceGet, int *device, int ordinal)
{
    *device = ordinal;
    return fails() || ordinal != 0 ? 101 : 0;
}

FUNCTION(cuGetErrorString, int error, const char **text)
{
    *text = error == OUT_OF_MEMORY ? "out of memory" : "an error of the fake";
    return error < 0;
}

FUNCTION(cuDevicePrimaryCtxRetain, void **context, int device)
{
    if (fails() || device != 0) return OUT_OF_MEMORY;
    *context = &state;
    state.retained++;
    return 0;
}

FUNCTION(cuDevicePrimaryCtxRelease_v2, int device)
{
    state.retained--;
    return device;
}

FUNCTION(cuCtxPushCurrent_v2, void *context)
{
    if (fails() || context != &state) return INVALID_CONTEXT;
    depth++;
    count(&state.depth, 1);
    return 0;
}

FUNCTION(cuCtxPopCurrent_v2, void **context)
{
    *context = &state;
    count(&state.depth, -1);
    if (depth-- <= 0) die("popped a context that was not pushed");
    return 0;
}

FUNCTION(cuModuleLoadData, void **module, const void *image)
{
    if (in_context() || fails() || !image) return 209;
    *module = names;
    state.modules++;
    return 0;
}

FUNCTION(cuModuleUnload, void *module)
{
    if (module != names) die("unloaded a module that was never loaded");
    state.modules--;
    return 0;
}

FUNCTION(cuModuleGetFunction, void **function, void *module, const char *name)
{
    if (module != names || (state.missing && strcmp(state.missing, name) == 0)) return NOT_FOUND;
    int i = 0;
    while (i < n_names && strcmp(names[i], name) != 0) i++;
    if (i == MOST_KERNELS) die("too many kernels");
    if (i == n_names) snprintf(names[n_names++], sizeof names[0], "%s", name);
    *function = names[i];
    return 0;
}

FUNCTION(cuMemAlloc_v2, uintptr_t *memory, size_t bytes)
{
    if (in_context() || (mode != 2 && !state.at_once) || fails()) return OUT_OF_MEMORY;
    *memory = (uintptr_t)allocate(bytes, false);
    return 0;
}

/* With the real driver this would end the capture. */
static void check_may_free(void)
{
    if (state.capturing && mode != 2) die("freed memory in a thread that captures");
}

FUNCTION(cuMemFree_v2, uintptr_t memory)
{
    check_may_free();
    release((void *)memory);
    return 0;
}

FUNCTION(cuMemHostAlloc, void **memory, size_t bytes, unsigned flags)
{
    if (in_context() || (mode != 2 && !state.at_once) || fails() || flags != 3)
        return OUT_OF_MEMORY;
    *memory = allocate(bytes, true);
    return 0;
}

FUNCTION(cuMemFreeHost, void *memory)
{
    check_may_free();
    release(memory);
    return 0;
}

FUNCTION(cuMemHostGetDevicePointer_v2, uintptr_t *address, void *memory, unsigned flags)
{
    if (fails()) return 1;
    *address = (uintptr_t)memory + flags;
    return 0;
}

FUNCTION(cuMemcpyHtoDAsync_v2, uintptr_t to, const void *from, size_t bytes, void *stream)
{
    if (in_context() || fails()) return LAUNCH_FAILED;
    pthread_mutex_lock(&lock);
    state.last_stream = stream;
    pthread_mutex_unlock(&lock);
    add((work){.to = (unsigned char *)to, .from = from, .bytes = bytes}, stream);
    count(&state.copies, 1);
    return 0;
}

FUNCTION(cuMemcpyAsync, uintptr_t to, uintptr_t from, size_t bytes, void *stream)
{
    if (in_context() || fails()) return LAUNCH_FAILED;
    pthread_mutex_lock(&lock);
    state.last_stream = stream;
    pthread_mutex_unlock(&lock);
    add((work){.to = (unsigned char *)to, .from = (const unsigned char *)from, .bytes = bytes},
        stream);
    return 0;
}

FUNCTION(cuThreadExchangeStreamCaptureMode, int *wanted)
{
    if (fails()) return 1;
    int before = mode;
    mode = *wanted;
    *wanted = before;
    count(&state.mode, mode - before);
    return 0;
}

FUNCTION(cuStreamCreate, void **stream, unsigned flags)
{
    if (in_context() || fails() || flags > 1) return OUT_OF_MEMORY;
    *stream = &other_stream;
    count(&state.streams, 1);
    return 0;
}

FUNCTION(cuStreamDestroy_v2, void *stream)
{
    if (in_context() || stream != &other_stream) die("destroyed a stream that was not created");
    run_aside(); /* the real driver finishes enqueued work, too */
    count(&state.streams, -1);
    return 0;
}

FUNCTION(cuStreamIsCapturing, void *stream, int *status)
{
    (void)stream;
    if (in_context() || fails()) return 1;
    *status = state.capturing;
    return 0;
}

FUNCTION(cuStreamSynchronize, void *stream)
{
    if (stream == &other_stream && !state.at_once) {
        if (state.capturing && mode != 2) die("waited in a thread that captures");
        bool failed = in_context() || fails();
        count(&state.waits_aside, 1);
        pthread_mutex_lock(&lock);
        if (failed) n_aside = 0;
        pthread_mutex_unlock(&lock);
        run_aside();
        return failed || state.broken_stream ? LAUNCH_FAILED : 0;
    }
    if (state.capturing) die("waited for a stream that captures");
    count(&state.synchronizations, 1);
    run();
    return state.broken_stream ? LAUNCH_FAILED : 0;
}

FUNCTION(cuLaunchKernel, void *function, unsigned x, unsigned y, unsigned z, unsigned threads,
         unsigned b, unsigned c, unsigned shared, void *stream, void **parameters, void **extra)
{
    (void)extra;
    if (in_context() || fails()) return LAUNCH_FAILED;
    if (y * z * b * c != 1 || threads != DW_CUDA_THREADS || shared)
        die("a launch has an unexpected shape");
    work w = {.kernel = function, .bytes = x};
    memcpy(&w.from, parameters[0], sizeof w.from);
    memcpy(&w.n, parameters[1], sizeof w.n);
    add(w, stream);
    count(&state.launches, 1);
    return 0;
}
