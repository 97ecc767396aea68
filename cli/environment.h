/* SPDX-License-Identifier: Apache-2.0
 * environment.h - what launchers tell their ranks by the environment. */
#ifndef DW_CLI_ENVIRONMENT_H
#define DW_CLI_ENVIRONMENT_H

#include "deltawire/deltawire.h"

typedef struct dw_launch {
    const char *by; /* whose variables these are; NULL: no launcher's that we know */
    uint32_t rank, stages;
    char host[256]; /* of rank 0; "": not told */
    uint32_t port;
} dw_launch;

/* 0, or -1 where a variable makes no sense: *why says which. */
int dw_read_environment(dw_launch *launch, dw_why *why);

#endif
