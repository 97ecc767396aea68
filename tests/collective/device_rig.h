/* SPDX-License-Identifier: Apache-2.0
 * device_rig.h - one operation of a group, with buffers in main memory or on a fake device, whose
 * memory the host cannot touch and whose work waits until its stream is waited for. */
#ifndef DW_DEVICE_RIG_H
#define DW_DEVICE_RIG_H

#include "../../cuda/device.h"
#include "../cuda/fake_cuda.h"
#include "group_rig.h"

/* LONG: a length in elements, of several parts. BLANK: the bytes that y holds before an operation.
 */
enum { PATIENCE_MS = 60000, LONG = 20513, BLANK = 0xee };

extern const char *device_library; /* the path of the fake driver, given by main */
dw_cuda *device_open(void);
void device_close(dw_cuda *cuda); /* the test fails if anything on the device was left behind */
void device_write(void *to, const void *from, size_t bytes);
void device_read(void *to, const void *from, size_t bytes);

typedef struct rig_operation {
    group_rig *rig;
    dw_group_job job[RIG_MOST];
    void *x[RIG_MOST], *y[RIG_MOST]; /* of the job: in main memory or on the device */
    size_t x_bytes[RIG_MOST], y_bytes[RIG_MOST];
    bool in_place;
    dw_status started[RIG_MOST], status[RIG_MOST];
} rig_operation;

/* Makes buffers for a job, with random values. devices: a bit for each rank, which is set if the
 * rank's buffers are on `cuda`. */
void operation_prepare(rig_operation *act, group_rig *rig, dw_group_job job, uint64_t seed,
                       dw_cuda *cuda, unsigned devices);
void operation_drop(rig_operation *act);
void operation_run_rank(void *act, uint32_t rank); /* the part of one rank; for rig_each */
void operation_run(rig_operation *act);            /* on all ranks; the test fails if one fails */
/* Whether y of a rank holds these bytes, or, with NULL, what it held before the operation, and no
 * byte behind it was changed. */
bool operation_y_is(const rig_operation *act, uint32_t rank, const void *expected);

#endif
