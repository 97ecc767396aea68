/* SPDX-License-Identifier: Apache-2.0
 * 05_all_reduce.c - three ranks add their gradients, with 4 bits per value on the wire.
 *
 * Three threads stand for three machines. uris[r] is the link to rank r; on machines of their own
 * it would be "tcp://host:port", with one port for each pair of ranks, and the lower rank listens.
 * The sum is the same on all ranks, bit for bit. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "deltawire/collective.h"

enum { RANKS = 3, N = 100000, STEPS = 3, SLOT_OF_GRADIENT = 1 };

/* The links between each two ranks. */
static const char *const links[RANKS][RANKS] = {
    {NULL, "loop://ranks-0-1", "loop://ranks-0-2"},
    {"loop://ranks-0-1", NULL, "loop://ranks-1-2"},
    {"loop://ranks-0-2", "loop://ranks-1-2", NULL},
};

typedef struct rank {
    uint32_t number;
    int failed;
    float gradient[N];
} rank;

static int complain(rank *me, const char *sentence)
{
    fprintf(stderr, "rank %u: %s\n", me->number, sentence);
    me->failed = 1;
    return 1;
}

static void *train(void *context)
{
    rank *me = context;
    dw_why why;
    dw_config codec;
    if (dw_config_parse(&codec, "direct:bits=4", &why) != DW_OK) {
        complain(me, why.text);
        return NULL;
    }
    dw_group *group;
    dw_group_config config = {.struct_size = sizeof config,
                              .id = 1,
                              .rank = me->number,
                              .ranks = RANKS,
                              .uris = links[me->number],
                              .codec = &codec};
    if (dw_group_open(&group, &config, &why) != DW_OK) {
        complain(me, why.text);
        return NULL;
    }
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < N; i++)
            me->gradient[i] = sinf((float)(i + step) * 0.37f + (float)me->number);
        dw_group_job job = {.struct_size = sizeof job,
                            .operation = DW_ALL_REDUCE,
                            .slot = SLOT_OF_GRADIENT,
                            .n = N,
                            .x = me->gradient,
                            .y = me->gradient,
                            .mean = 1};
        /* The rank may compute between these two calls; the sum is made in the background. */
        if (dw_group_start(group, &job) != DW_OK ||
            dw_group_wait(group, SLOT_OF_GRADIENT, -1) != DW_OK) {
            complain(me, dw_group_why(group, NULL));
            break;
        }
    }
    dw_group_counters counters = {.struct_size = sizeof counters};
    dw_group_count(group, &counters, NULL, NULL);
    if (me->number == 0)
        printf("%.1f bits per value\n",
               32.0 * (double)counters.encoded_bytes / (double)counters.raw_bytes);
    dw_group_close(group);
    return NULL;
}

int main(void)
{
    static rank ranks[RANKS];
    pthread_t threads[RANKS];
    for (uint32_t r = 0; r < RANKS; r++) {
        ranks[r].number = r;
        if (pthread_create(&threads[r], NULL, train, &ranks[r]) != 0) return 1;
    }
    for (uint32_t r = 0; r < RANKS; r++) pthread_join(threads[r], NULL);
    for (uint32_t r = 0; r < RANKS; r++) {
        if (ranks[r].failed) return 1;
        if (memcmp(ranks[r].gradient, ranks[0].gradient, sizeof ranks[r].gradient) != 0) return 1;
    }
    printf("all ranks have the same bits\n");
    return 0;
}
