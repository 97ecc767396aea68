/* SPDX-License-Identifier: Apache-2.0
 * gpu_nccl.c - sends from a rank to itself over NCCL. */
#include "gpu_nccl.h"

#include <dlfcn.h>

enum { BYTES = 1 /* ncclUint8 */ };

/* Name in the library, ours, parameters. */
#define FUNCTIONS(ROW)                                                                             \
    ROW(ncclCommInitAll, init, (void **comm, int devices, const int *list))                        \
    ROW(ncclGroupStart, start, (void))                                                             \
    ROW(ncclSend, send,                                                                            \
        (const void *from, size_t count, int type, int peer, void *comm, void *stream))            \
    ROW(ncclRecv, receive, (void *to, size_t count, int type, int peer, void *comm, void *stream)) \
    ROW(ncclGroupEnd, end, (void))                                                                 \
    ROW(ncclCommDestroy, destroy, (void *comm))

static struct {
    void *library, *comm;
#define ROW(symbol, name, parameters) int(*name) parameters;
    FUNCTIONS(ROW)
#undef ROW
} nccl;

bool gpu_nccl_open(const char **why)
{
    int device = 0;
    *why = "libnccl.so.2 is not installed";
    nccl.library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!nccl.library) return false;
#define ROW(symbol, name, parameters)                                                              \
    *(void **)&nccl.name = dlsym(nccl.library, #symbol);                                           \
    *why = "libnccl.so.2 has no " #symbol;                                                         \
    if (!nccl.name) return false;
    FUNCTIONS(ROW)
#undef ROW
    *why = "NCCL refuses this device";
    return nccl.init(&nccl.comm, 1, &device) == 0;
}

void gpu_nccl_to_self(const gpu *g, void *to, const void *from, size_t bytes)
{
    int error = nccl.start();
    error |= nccl.send(from, bytes, BYTES, 0, nccl.comm, g->stream);
    error |= nccl.receive(to, bytes, BYTES, 0, nccl.comm, g->stream);
    error |= nccl.end();
    gpu_expect(error == 0, "NCCL: error %d", error);
}

void gpu_nccl_close(void)
{
    (void)nccl.destroy(nccl.comm);
}
