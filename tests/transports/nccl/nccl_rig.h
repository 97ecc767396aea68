/* SPDX-License-Identifier: Apache-2.0
 * nccl_rig.h - creates and checks links over the fake NCCL; every function asserts success. */
#ifndef DW_TEST_NCCL_RIG_H
#define DW_TEST_NCCL_RIG_H

#include "transports/suite/transport_suite.h"

#include "deltawire/nccl.h"
#include "fake_nccl.h"
#include "nccl/nccl_end.h"

enum { RIG_TAG = 5 };

extern const dw_transport *rig_transports[2];
extern dw_nccl *rig_common;                  /* of both ends, where a test does not say otherwise */
extern dw_transport_context rig_contexts[2]; /* it, for links */

/* Takes the fake's path from the command line. Returns 0 where there is none. */
int rig_begin(int argc, char **argv);
const char *rig_fake(void); /* its path */

dw_status rig_try_create(dw_nccl **nccl, void *communicator, dw_why *why);
dw_nccl *rig_create(void *communicator);
void rig_reset(void);           /* the fake does what it should, and has counted nothing */
void rig_nothing_is_left(void); /* after everything was closed; nor was anything violated */

/* A pair over this URI, both of whose ends stand on rig_common; and a fake that was reset. */
void rig_prepare(suite_pair *pair, const char *uri);

/* Two ends without links, over loop. */
typedef struct rig_raw_end {
    nccl_end end;
    dw_status status;
    dw_why why;
    dw_link_role role;
} rig_raw_end;

void rig_open_raw(rig_raw_end raw[2]);
void rig_close_raw(rig_raw_end raw[2]);

#endif
