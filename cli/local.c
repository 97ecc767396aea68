/* SPDX-License-Identifier: Apache-2.0
 * local.c - all ranks of a pipeline as processes of this machine.
 *
 * Rank r is started when rank r - 1 has told on which address it listens, so no port is guessed and none can be
 * taken away in between. Each child runs this program with the user's options and those of its place. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include "cli.h"

/* How long ranks that lost one of them may take to notice, before they are made to end. */
enum { GRACE_S = 15 };

typedef struct child {
    pid_t pid; /* 0: not started, or ended and counted */
    int tells; /* we read what it tells */
    int code;
    char sentence[600];
} child;

typedef struct local {
    child *children;
    uint32_t stages;
    const char *link;
    int argc;
    char **argv;
    int failed_code;   /* of the first that failed */
    time_t failed_at;
    int passed_on;     /* the signal that the children were sent */
} local;

static void start_child(local *l, uint32_t rank, int tell, const char *connect)
{
    char rank_text[32], stages_text[32], tell_text[32];
    char *argv[l->argc + 12];
    int n = 0;
    (void)rank_text;
    (void)argv;
    (void)n;
    (void)stages_text;
    (void)tell_text;
    (void)tell;
    (void)connect;
    (void)rank;
}
