/* SPDX-License-Identifier: Apache-2.0
 * environment.h - what launchers put into the environment of a rank. */
#ifndef DW_CLI_ENVIRONMENT_H
#define DW_CLI_ENVIRONMENT_H

#include "deltawire/deltawire.h"

typedef struct dw_launch {
    const char *by; /* the launcher that set these variables; NULL: no known one */
    uint32_t rank, stages;
    uint32_t local_rank; /* among the ranks of this machine; 0: unknown */
    char host[256];      /* of rank 0; "": unknown */
    uint32_t port;
} dw_launch;

/* 0, or -1 if a variable has an invalid value: *why says which. */
int dw_read_environment(dw_launch *launch, dw_why *why);

#endif
