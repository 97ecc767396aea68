/* SPDX-License-Identifier: Apache-2.0
 * fake_nccl.h - controls of a fake library that replaces libnccl and libcuda in tests. It has two
 * ranks joined by a socket, a GPU whose memory the host cannot access, and work that makes progress
 * only when it is polled.
 *
 * It counts violations that the real libraries do not report: sizes that differ, a call with a
 * communicator that is in progress, an event recorded after such a call, work outside the context,
 * copies that would block. */
#ifndef DW_TEST_FAKE_NCCL_H
#define DW_TEST_FAKE_NCCL_H

#include <stddef.h>

typedef struct fake_nccl {
    /* Set by the test. */
    int version;      /* as ncclGetVersion tells it */
    long fail_at;     /* the fail_at-th call that can fail does; < 0: none does */
    int late;         /* after every call a communicator is in progress for so many questions */
    int stands_still; /* no send or receive ever ends */
    int never_joins;  /* no communicator becomes whole */
    int has_no_gpu;
    /* Told by the fake. */
    long calls;         /* that can fail */
    const char *failed; /* the one that did */
    long violations;
    const char *violation;                                 /* the last of them */
    long comms, streams, events, blocks, pinned, contexts; /* in hands now */
    long aborts, sends, receives;                          /* ever */
    size_t bytes_sent;
} fake_nccl;

fake_nccl *fake_nccl_get(void);
/* While links live: a copy, and the one thing that is changed then. */
fake_nccl fake_nccl_now(void);
void fake_nccl_stand_still(void);
/* Whether work of any stream waits for a peer or for time. */
int fake_nccl_is_idle(void);
/* The host's view of device memory. */
void *fake_nccl_look(const void *device_memory);

#endif
