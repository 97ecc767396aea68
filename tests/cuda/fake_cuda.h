/* SPDX-License-Identifier: Apache-2.0
 * fake_cuda.h - how tests control the fake of libcuda: a device whose memory the host cannot
 * access, and whose work waits until the test runs it. */
#ifndef DW_TEST_FAKE_CUDA_H
#define DW_TEST_FAKE_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "emulated.h"

typedef struct fake_cuda {
    long calls, fail_at; /* call number fail_at, of those that can fail, fails; < 0: none */
    const char *failed;  /* the function whose call failed */
    long allocations;    /* how many allocations of memory were made */
    long blocks, contexts, retained, modules, streams, depth; /* how many exist now */
    long launches, copies, synchronizations;                  /* how many were enqueued */
    long waits_aside;                                         /* waits for streams of our own */
    bool at_once;                                             /* work is done when enqueued */
    bool capturing; /* work goes into a graph instead of the queue ... */
    int graph;      /* ... this one, 0 or 1 */
    long mode;      /* capture mode of threads: 0, the default, or 2, in which they may allocate */
    void *last_stream;   /* the stream of the work that was enqueued last */
    bool broken_stream;  /* waiting for a stream fails, although its work is done */
    const char *missing; /* the module has no kernel of this name */
    /* Device memory, and how the test reads and writes it. */
    void *(*allocate)(size_t bytes);
    void (*release)(void *memory);
    /* Permits or forbids the host to access device memory, all of it. While it is permitted, other
     * threads wait. */
    void (*touch)(bool allowed);
    void (*forget_mode)(void);       /* resets the capture mode of this thread */
    void (*run)(void);               /* does all work in the queue */
    void (*run_but)(int n);          /* does all work except the last n items */
    void (*launch_graph)(int graph); /* puts the captured work into the queue */
    void (*drop_graph)(int graph);
} fake_cuda;

fake_cuda *fake_cuda_get(void);

#endif
