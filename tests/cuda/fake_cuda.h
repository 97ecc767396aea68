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
    long calls, fail_at; /* the fail_at-th call that can fail does; < 0: none does */
    const char *failed;  /* the function that did */
    long allocations;    /* of memory, ever */
    long blocks, contexts, retained, modules, streams, depth; /* in hands now */
    long launches, copies, synchronizations;                  /* enqueued, ever */
    long waits_aside;                                         /* for streams that were made */
    bool at_once;                                             /* nothing waits to be told */
    bool capturing; /* work goes into a graph instead of the queue ... */
    int graph;      /* ... this one, 0 or 1 */
    long mode; /* in which threads capture: 0, as they begin, or 2, in which one may allocate */
    void *last_stream;   /* that something was enqueued on */
    bool broken_stream;  /* what waits for a stream hears that it failed; its work is done */
    const char *missing; /* no kernel of this name */
    /* Device memory, and how the test reads and writes it. */
    void *(*allocate)(size_t bytes);
    void (*release)(void *memory);
    /* The host may touch it: all of it, until it is forbidden again; only this thread meanwhile. */
    void (*touch)(bool allowed);
    void (*forget_mode)(void);       /* of this thread */
    void (*run)(void);               /* all that waits */
    void (*run_but)(int n);          /* all but the last n */
    void (*launch_graph)(int graph); /* what was captured goes into the queue */
    void (*drop_graph)(int graph);
} fake_cuda;

fake_cuda *fake_cuda_get(void);

#endif
