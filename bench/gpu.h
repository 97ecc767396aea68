/* SPDX-License-Identifier: Apache-2.0
 * gpu.h - the CUDA driver as gpu_check and gpu_bench use it: memory, streams, events, graphs. A
 * call that fails ends the program.
 *
 * No CUDA header is needed; libcuda.so.1 is opened at run time, as the library itself does. Exit
 * 77: there is no GPU. */
#ifndef DW_BENCH_GPU_H
#define DW_BENCH_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "deltawire/cuda.h"

enum { GPU_ABSENT = 77 };

typedef struct gpu_event gpu_event;
typedef struct gpu_graph gpu_graph;

typedef struct gpu {
    dw_cuda *cuda;
    void *stream;
    char name[128];
    int driver_version, multiprocessors, clock_khz, memory_clock_khz;
} gpu;

/* The first device, in its primary context, and a stream. */
void gpu_open(gpu *g);
void gpu_close(gpu *g);

void *gpu_allocate(size_t bytes);        /* of the device */
void *gpu_allocate_pinned(size_t bytes); /* of the host; the device can access it too */
void gpu_free(void *memory);
void gpu_free_pinned(void *memory);
void gpu_put(void *device, const void *host, size_t bytes);
void gpu_get(void *host, const void *device, size_t bytes);
/* On the stream, any kind of memory. */
void gpu_copy(const gpu *g, void *to, const void *from, size_t bytes);
void gpu_wait(const gpu *g);

gpu_event *gpu_event_create(void);
void gpu_event_destroy(gpu_event *event);
void gpu_event_record(const gpu *g, gpu_event *event);
double gpu_event_seconds(gpu_event *from, gpu_event *to); /* waits for the second */

/* The work that is enqueued between the two calls becomes a graph. */
void gpu_capture_begin(const gpu *g);
gpu_graph *gpu_capture_end(const gpu *g);
void gpu_graph_launch(const gpu *g, gpu_graph *graph);
void gpu_graph_destroy(gpu_graph *graph);

/* Ends the program with a sentence unless ok. */
void gpu_expect(bool ok, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;

#endif
