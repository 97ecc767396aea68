/* SPDX-License-Identifier: Apache-2.0
 * test_group_processes.c - ranks in processes of their own, one of which dies, and a group in a
 * forked child. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "group_rig.h"

enum { PATIENCE_MS = 60000, FLOATS = 9000, CHILDREN = 3 };

/* A rank in a process of its own. The victim ends itself before round `dies`. The others must get
 * an error that names it: in that round, or in the round before if the victim ended before its last
 * messages had been sent. Returns the exit status; 0: as expected. */
static int live_as_process(uint32_t rank, char uris[][64], uint32_t victim, int dies)
{
    static float x[FLOATS], y[FLOATS];
    const char *peers[CHILDREN];
    for (uint32_t r = 0; r < CHILDREN; r++)
        peers[r] = uris[rank < r ? rank * CHILDREN + r : r * CHILDREN + rank];
    dw_group *group;
    dw_why why;
    dw_group_config config = {
        .struct_size = sizeof config, .id = 1, .rank = rank, .ranks = CHILDREN, .uris = peers};
    if (dw_group_open(&group, &config, &why) != DW_OK) {
        fprintf(stderr, "rank %u: %s\n", rank, why.text);
        return 2;
    }
    for (int i = 0;; i++) {
        if (rank == victim && i == dies) _exit(0);
        dw_group_job job = {
            .struct_size = sizeof job, .operation = DW_ALL_REDUCE, .n = FLOATS, .x = x, .y = y};
        for (int k = 0; k < FLOATS; k++) {
            x[k] = (float)(k + i);
            y[k] = -5;
        }
        dw_status status = dw_group_run(group, &job, PATIENCE_MS);
        for (int k = 0; k < FLOATS; k++)
            if (y[k] != (status == DW_OK ? 3 * x[k] : -5)) return 3;
        if (status == DW_OK) continue;
        int named = rig_failed_rank(group);
        if (named != (int)victim || i < dies - 1)
            fprintf(stderr, "rank %u: round %d: names %d: %s\n", rank, i, named,
                    dw_group_why(group, NULL));
        dw_group_close(group);
        return named == (int)victim && i >= dies - 1 ? 0 : 4;
    }
}

/* Ports that are free now. All are held before the first one is given back, so they differ. */
static void find_ports(char uris[CHILDREN * CHILDREN][64])
{
    int sockets[CHILDREN * CHILDREN];
    for (int i = 0; i < CHILDREN * CHILDREN; i++) {
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
        socklen_t len = sizeof at;
        sockets[i] = socket(AF_INET, SOCK_STREAM, 0);
        assert_int_equal(bind(sockets[i], (struct sockaddr *)&at, sizeof at), 0);
        assert_int_equal(getsockname(sockets[i], (struct sockaddr *)&at, &len), 0);
        snprintf(uris[i], 64, "tcp://127.0.0.1:%d", (int)ntohs(at.sin_port));
    }
    for (int i = 0; i < CHILDREN * CHILDREN; i++) close(sockets[i]);
}

TEST(a_process_that_dies_is_named)
{
    for (uint32_t victim = 0; victim < CHILDREN; victim++) {
        char uris[CHILDREN * CHILDREN][64];
        pid_t children[CHILDREN];
        find_ports(uris);
        for (uint32_t r = 0; r < CHILDREN; r++) {
            children[r] = fork();
            if (children[r] == 0) _exit(live_as_process(r, uris, victim, 5));
        }
        for (uint32_t r = 0; r < CHILDREN; r++) {
            int ended;
            assert_int_equal(waitpid(children[r], &ended, 0), children[r]);
            assert_true(WIFEXITED(ended));
            assert_int_equal(WEXITSTATUS(ended), 0);
        }
    }
}

TEST(a_forked_child_must_not_use_a_group)
{
    static float x[2][FLOATS], y[2][FLOATS];
    group_rig rig;
    rig_deed all = {.rig = &rig};
    rig_start(&rig, "loop://processes-%d", 2, "raw:f32");
    for (int r = 0; r < 2; r++)
        all.job[r] = (dw_group_job){.struct_size = sizeof all.job[r],
                                    .operation = DW_ALL_REDUCE,
                                    .slot = 3,
                                    .n = FLOATS,
                                    .x = x[r],
                                    .y = y[r]};
    dw_group *group = rig.group[0];
    pid_t child = fork();
    if (child == 0) {
        int refused = dw_group_start(group, &all.job[0]) == DW_ERR_ARGUMENT &&
                      dw_group_wait(group, 3, -1) == DW_ERR_ARGUMENT &&
                      strstr(dw_group_why(group, NULL), "fork") != NULL;
        dw_group_close(group);
        _exit(refused ? 0 : 1);
    }
    int ended;
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_int_equal(ended, 0);
    for (int i = 0; i < FLOATS; i++) x[0][i] = x[1][i] = (float)i;
    rig_run_well(&all);
    for (int r = 0; r < 2; r++)
        for (int i = 0; i < FLOATS; i++) assert_true(y[r][i] == 2 * (float)i);
    rig_close(&rig);
}

RUN_TESTS(NULL, NULL)
