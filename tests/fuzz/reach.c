/* SPDX-License-Identifier: Apache-2.0
 * reach.c - notes what the inputs of a fuzz target reach. */
#include "reach.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { MOST_GOALS = 64 };

static bool is_reached[MOST_GOALS];

void fuzz_reach(const char *what)
{
    if (!fuzz_goals) return;
    for (int i = 0; i < MOST_GOALS && fuzz_goals[i]; i++)
        if (!is_reached[i] && strcmp(fuzz_goals[i], what) == 0) is_reached[i] = true;
}

int fuzz_tell_missed(void)
{
    int missed = 0;
    if (!fuzz_goals) return 0;
    for (int i = 0; i < MOST_GOALS && fuzz_goals[i]; i++) {
        if (is_reached[i]) continue;
        printf("no input reaches this: %s\n", fuzz_goals[i]);
        missed++;
    }
    return missed;
}
