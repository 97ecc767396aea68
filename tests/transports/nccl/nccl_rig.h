/* SPDX-License-Identifier: Apache-2.0
 * nccl_rig.h - creates and checks links over the fake NCCL. Every function fails the test on an
 * error. */
#ifndef DW_TEST_NCCL_RIG_H
#define DW_TEST_NCCL_RIG_H

#include "transports/suite/transport_suite.h"

#include "deltawire/nccl.h"
#include "fake_nccl.h"
#include "nccl/nccl_end.h"

enum { RIG_TAG = 5 };

extern const dw_transport *rig_transports[2];
extern dw_nccl *rig_common;                  /* for both ends, unless a test has its own */
extern dw_transport_context rig_contexts[2]; /* the same as an option for links */

/* Reads the path of the fake from the command line. Returns 0 if it is missing. */
int rig_begin(int argc, char **argv);
const char *rig_fake(void); /* its path */

dw_status rig_try_create(dw_nccl **nccl, void *communicator, dw_why *why);
dw_nccl *rig_create(void *communicator);
void rig_reset(void);           /* resets all settings and counts of the fake */
void rig_nothing_is_left(void); /* after everything was closed; also that there was no violation */

/* Resets the fake, and prepares a pair over this URI, both ends of which use rig_common. */
void rig_prepare(suite_pair *pair, const char *uri);

/* Two ends of the backend without links, over loop. */
typedef struct rig_raw_end {
    nccl_end end;
    dw_status status;
    dw_why why;
    dw_link_role role;
} rig_raw_end;

void rig_open_raw(rig_raw_end raw[2]);
void rig_close_raw(rig_raw_end raw[2]);

#endif
