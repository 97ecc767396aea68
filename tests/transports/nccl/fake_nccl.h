/* SPDX-License-Identifier: Apache-2.0
 * fake_nccl.h - controls of a fake library that replaces libnccl and libcuda in tests. It has two
 * ranks connected by a socket, and a GPU whose memory the host cannot access. Its work makes
 * progress only when it is polled.
 *
 * It counts violations that the real libraries do not report: sends and receives of different
 * sizes, calls of a communicator that is in progress, an event recorded after such a call, work
 * without a context, copies that would block. */
#ifndef DW_TEST_FAKE_NCCL_H
#define DW_TEST_FAKE_NCCL_H

#include <stddef.h>

typedef struct fake_nccl {
    /* Set by the test. */
    int version;      /* the result of ncclGetVersion */
    long fail_at;     /* call number fail_at, of those that can fail, fails; < 0: none */
    int late;         /* for so many queries, a communicator is in progress after every call */
    int stands_still; /* no send or receive is ever done */
    int never_joins;  /* ranks never connect */
    int has_no_gpu;
    /* Set by the fake. */
    long calls;         /* how many calls that can fail there were */
    const char *failed; /* the function whose call failed */
    long violations;
    const char *violation;                                 /* the last violation */
    long comms, streams, events, blocks, pinned, contexts; /* how many exist now */
    long aborts, sends, receives;                          /* how many there were */
    size_t bytes_sent;
} fake_nccl;

fake_nccl *fake_nccl_get(void);
/* A copy, taken under the lock. While links exist, only this may be used, and `late` set. */
fake_nccl fake_nccl_now(void);
void fake_nccl_stand_still(void);
/* Whether no stream has work that waits. */
int fake_nccl_is_idle(void);
/* Where the host can access the contents of device memory. */
void *fake_nccl_look(const void *device_memory);

#endif
