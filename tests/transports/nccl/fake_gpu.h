/* SPDX-License-Identifier: Apache-2.0
 * fake_gpu.h - what the two halves of the fake, fake_gpu.c and fake_nccl.c, share: work, streams,
 * checks. */
#ifndef DW_TEST_FAKE_GPU_H
#define DW_TEST_FAKE_GPU_H

#include <stddef.h>
#include <stdint.h>

typedef struct fake_comm fake_comm;
typedef struct fake_stream fake_stream;
typedef struct fake_event fake_event;

enum { FAKE_COPY = 1, FAKE_EVENT = 2, FAKE_SEND = 3, FAKE_RECEIVE = 4 };

typedef struct fake_work {
    struct fake_work *next;
    int kind;
    unsigned char *host; /* where the data is; of a copy, the destination */
    const unsigned char *from;
    size_t len;
    fake_event *event;
    uint64_t ticket;
    fake_comm *comm;
    uint64_t head; /* the length, which is sent before the data ... */
    size_t moved;  /* ... and included in this number of bytes that were moved */
} fake_work;

/* One lock for everything, because threads of both ends call the fake. */
void fake_lock(void);
void fake_unlock(void);
/* The following functions are called with the lock held. */
int fake_fails(const char *function);
void fake_violation(const char *what);
void fake_check_context(void);
unsigned char *fake_look(const void *device_memory, size_t len);
void fake_stream_add(fake_stream *stream, fake_work *work);
/* Notes that a call which will enqueue on the stream begins (1) or ends (-1). */
void fake_stream_hold(fake_stream *stream, int change);
void fake_streams_forget(const fake_comm *comm);
/* Moves bytes of a send or receive. Returns whether it is done. */
int fake_comm_move(fake_comm *comm, fake_work *work);

#define FAKE_FUNCTION(name, ...)                                                                   \
    __attribute__((visibility("default"))) int name(__VA_ARGS__);                                  \
    int name(__VA_ARGS__)

#endif
