/* SPDX-License-Identifier: Apache-2.0
 * test_mpi_group.c - groups of the ranks of a communicator: of all, of a part in another order, and
 * of one; the same bits as over tcp, and over links of both kinds. Any number of ranks from 3 on.
 */
#include <mpi.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "deltawire/collective.h"
#include "deltawire/mpi.h"
#include "support/test.h"

enum { MOST = 8, FLOATS = 20513, PATIENCE_MS = 60000, URI = 64 };

static int world_rank, world_size;

/* All ranks reach each test together. */
static int together(void **state)
{
    return MPI_Barrier(MPI_COMM_WORLD) != MPI_SUCCESS;
}

/* ---- A group --------------------------------------------------------------------------------- */

/* What links a group has: all over MPI, all over tcp, or those between even and odd ranks over
 * tcp. */
typedef enum kind { OVER_MPI, OVER_TCP, OVER_BOTH } kind;

typedef struct ranks {
    MPI_Comm communicator;
    dw_mpi *mpi;
    int rank, size;
    dw_link *links[MOST], *tcp[MOST];
    dw_group *group;
} ranks;

typedef struct caller {
    MPI_Comm communicator;
    int peer;
} caller;

/* The address that tcp listens on goes to the connecting rank. */
static void tell(void *context, const char *uri)
{
    const caller *to = context;
    char text[URI] = "";
    snprintf(text, sizeof text, "%s", uri);
    MPI_Send(text, URI, MPI_CHAR, to->peer, 0, to->communicator);
}

static void open_tcp(ranks *all)
{
    for (int r = 0; r < all->size; r++) {
        if (r == all->rank) continue;
        caller to = {all->communicator, r};
        char uri[URI] = "tcp://127.0.0.1:0";
        bool listens = all->rank < r;
        dw_why why;
        dw_link_options options = {.struct_size = sizeof options,
                                   .role = listens ? DW_LINK_LISTEN : DW_LINK_CONNECT,
                                   .on_listening = listens ? tell : NULL,
                                   .listening_context = &to};
        if (!listens) MPI_Recv(uri, URI, MPI_CHAR, r, 0, all->communicator, MPI_STATUS_IGNORE);
        if (dw_link_open(&all->tcp[r], uri, &options, &why) != DW_OK) fail_msg("%s", why.text);
    }
}

static void join(ranks *all, MPI_Comm communicator, kind links, const char *codec)
{
    *all = (ranks){.communicator = communicator};
    dw_why why;
    dw_config config;
    assert_int_equal(dw_config_parse(&config, codec, NULL), DW_OK);
    if (dw_mpi_create(&all->mpi, &communicator, &why) != DW_OK) fail_msg("%s", why.text);
    all->rank = dw_mpi_rank(all->mpi, &all->size);
    if (links != OVER_TCP && dw_mpi_open_links(all->mpi, 7, NULL, all->links, &why) != DW_OK)
        fail_msg("%s", why.text);
    assert_null(all->links[all->rank]);
    if (links != OVER_MPI) open_tcp(all);
    dw_link *mixed[MOST] = {NULL};
    for (int r = 0; r < all->size; r++)
        mixed[r] = links == OVER_TCP || (links == OVER_BOTH && (r + all->rank) % 2) ? all->tcp[r]
                                                                                    : all->links[r];
    dw_group_config how = {.struct_size = sizeof how,
                           .id = 3,
                           .rank = (uint32_t)all->rank,
                           .ranks = (uint32_t)all->size,
                           .links = mixed,
                           .codec = &config,
                           .piece = 2048};
    if (dw_group_open(&all->group, &how, &why) != DW_OK) fail_msg("%s", why.text);
}

static void leave(ranks *all)
{
    dw_group_close(all->group);
    for (int r = 0; r < all->size; r++) {
        dw_link_close(all->links[r]);
        dw_link_close(all->tcp[r]);
    }
    dw_mpi_destroy(all->mpi);
}

/* ---- Sums ------------------------------------------------------------------------------------ */

/* What a rank contributes: by its place in the world, so that groups of other ranks differ. */
static void fill(float *x, int visit)
{
    uint32_t state = (uint32_t)(world_rank * 1000 + visit + 1);
    for (int i = 0; i < FLOATS; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (float)(int32_t)(state >> 8) * 1e-6f - 8.0f;
    }
}

/* Runs each operation several times with a codec, and leaves all results in y. */
static void run(MPI_Comm communicator, kind links, const char *codec, float y[4][FLOATS])
{
    static float x[FLOATS];
    ranks all;
    join(&all, communicator, links, codec);
    memset(y, 0, 4 * FLOATS * sizeof(float));
    for (int visit = 0; visit < 3; visit++) {
        fill(x, visit);
        for (int i = 0; i < 4; i++) {
            dw_group_job job = {.struct_size = sizeof job,
                                .operation = (dw_operation)(DW_ALL_REDUCE + i),
                                .slot = (uint64_t)i,
                                .n = FLOATS,
                                .x = x,
                                .y = y[i],
                                .root = i == 3 ? (uint32_t)all.size - 1 : 0};
            if (dw_group_run(all.group, &job, PATIENCE_MS) != DW_OK)
                fail_msg("%s", dw_group_why(all.group, NULL));
        }
    }
    leave(&all);
}

/* Whether the first rank of the communicator has the same results; not of reduce-scatter, which
 * differ. */
static void expect_the_same_everywhere(MPI_Comm communicator, float y[4][FLOATS])
{
    static float first[FLOATS];
    for (int i = 0; i < 4; i++) {
        if (i == DW_REDUCE_SCATTER - DW_ALL_REDUCE) continue;
        memcpy(first, y[i], sizeof first);
        MPI_Bcast(first, sizeof first, MPI_BYTE, 0, communicator);
        assert_memory_equal(first, y[i], sizeof first);
    }
}

static void compare(MPI_Comm communicator)
{
    static float over_mpi[4][FLOATS], other[4][FLOATS];
    static const char *const codecs[] = {"raw:f32", "delta:bits=4", "direct:bits=2,feedback=ef"};
    for (size_t c = 0; c < sizeof codecs / sizeof *codecs; c++) {
        run(communicator, OVER_MPI, codecs[c], over_mpi);
        expect_the_same_everywhere(communicator, over_mpi);
        for (kind links = OVER_TCP; links <= OVER_BOTH; links++) {
            run(communicator, links, codecs[c], other);
            assert_memory_equal(over_mpi, other, sizeof other);
        }
    }
}

TEST_WITH(all_ranks_sum_as_over_tcp, together, NULL)
{
    static float y[4][FLOATS], x[FLOATS], sum[FLOATS];
    compare(MPI_COMM_WORLD);
    /* Plain sums are those of a loop over the ranks. */
    run(MPI_COMM_WORLD, OVER_MPI, "raw:f32", y);
    fill(x, 2);
    memcpy(sum, x, sizeof sum);
    MPI_Bcast(sum, FLOATS, MPI_FLOAT, 0, MPI_COMM_WORLD);
    for (int r = 1; r < world_size; r++) {
        static float more[FLOATS];
        memcpy(more, x, sizeof more);
        MPI_Bcast(more, FLOATS, MPI_FLOAT, r, MPI_COMM_WORLD);
        for (int i = 0; i < FLOATS; i++) sum[i] += more[i];
    }
    assert_memory_equal(y[0], sum, sizeof sum);
}

/* Even and odd ranks at the same time, in the opposite order. With three ranks, one is alone. */
TEST_WITH(ranks_of_a_part_sum_among_themselves, together, NULL)
{
    MPI_Comm part;
    MPI_Comm_split(MPI_COMM_WORLD, world_rank % 2, -world_rank, &part);
    compare(part);
    MPI_Comm_free(&part);
}

/* A program may have a group of all and one of a part at the same time, over links of both. */
TEST_WITH(groups_of_two_communicators_live_together, together, NULL)
{
    static float x[FLOATS], y[2][FLOATS], alone[4][FLOATS];
    MPI_Comm part;
    MPI_Comm_split(MPI_COMM_WORLD, world_rank % 2, world_rank, &part);
    ranks all[2];
    join(&all[0], MPI_COMM_WORLD, OVER_MPI, "direct:bits=4");
    join(&all[1], part, OVER_MPI, "direct:bits=4");
    fill(x, 2);
    for (int i = 0; i < 2; i++) {
        dw_group_job job = {
            .struct_size = sizeof job, .operation = DW_ALL_REDUCE, .n = FLOATS, .x = x, .y = y[i]};
        assert_int_equal(dw_group_start(all[i].group, &job), DW_OK);
    }
    for (int i = 2; i-- > 0;) assert_int_equal(dw_group_wait(all[i].group, 0, PATIENCE_MS), DW_OK);
    for (int i = 2; i-- > 0;) leave(&all[i]);
    run(MPI_COMM_WORLD, OVER_TCP, "direct:bits=4", alone);
    assert_memory_equal(y[0], alone[0], sizeof y[0]);
    run(part, OVER_TCP, "direct:bits=4", alone);
    assert_memory_equal(y[1], alone[0], sizeof y[1]);
    MPI_Comm_free(&part);
}

/* ---- Errors ---------------------------------------------------------------------------------- */

TEST_WITH(a_rank_without_a_communicator_is_refused, together, NULL)
{
    MPI_Comm part, inter;
    dw_mpi *mpi = (dw_mpi *)(void *)&part;
    dw_why why = {.text = ""};
    MPI_Comm_split(MPI_COMM_WORLD, world_rank == 0 ? MPI_UNDEFINED : 1, world_rank, &part);
    if (world_rank == 0) {
        assert_true(part == MPI_COMM_NULL);
        assert_int_equal(dw_mpi_create(&mpi, &part, &why), DW_ERR_ARGUMENT);
        assert_null(mpi);
        assert_non_null(strstr(why.text, "MPI_COMM_NULL"));
    } else {
        ranks all;
        join(&all, part, OVER_MPI, "raw:f32");
        assert_int_equal(all.size, world_size - 1);
        leave(&all);
    }
    MPI_Comm own = MPI_COMM_SELF;
    MPI_Comm_split(MPI_COMM_WORLD, world_rank == 0, world_rank, &own);
    MPI_Intercomm_create(own, 0, MPI_COMM_WORLD, world_rank == 0 ? 1 : 0, 5, &inter);
    assert_int_equal(dw_mpi_create(&mpi, &inter, &why), DW_ERR_ARGUMENT);
    assert_non_null(strstr(why.text, "intracommunicator"));
    MPI_Comm_free(&inter);
    MPI_Comm_free(&own);
    if (part != MPI_COMM_NULL) MPI_Comm_free(&part);
}

static void expect_none(dw_link *const *links, int n)
{
    for (int r = 0; r < n; r++) assert_null(links[r]);
}

TEST_WITH(bad_arguments_open_no_link, together, NULL)
{
    dw_mpi *mpi;
    dw_link *links[MOST];
    dw_why why = {.text = ""};
    dw_link_options longer[2];
    assert_int_equal(dw_mpi_create(&mpi, NULL, NULL), DW_OK);
    memset(links, 0x55, sizeof links);
    assert_int_equal(dw_mpi_open_links(NULL, 0, NULL, links, &why), DW_ERR_ARGUMENT);
    assert_int_equal(dw_mpi_open_links(mpi, 0, NULL, NULL, &why), DW_ERR_ARGUMENT);
    assert_non_null(strstr(why.text, "must not be NULL"));
    assert_int_equal(dw_mpi_open_links(mpi, 4096, NULL, links, &why), DW_ERR_ARGUMENT);
    assert_non_null(strstr(why.text, "0 to 4095"));
    expect_none(links, world_size);
    memset(links, 0x55, sizeof links);
    assert_int_equal(dw_mpi_open_links(mpi, UINT32_MAX, NULL, links, NULL), DW_ERR_ARGUMENT);
    expect_none(links, world_size);
    /* Structs without a size, and of a later version with a field that is set. */
    memset(longer, 0, sizeof longer);
    assert_int_equal(dw_mpi_open_links(mpi, 0, longer, links, &why), DW_ERR_ARGUMENT);
    assert_non_null(strstr(why.text, "dw_link_options"));
    longer[0].struct_size = sizeof longer;
    memset(&longer[1], 1, sizeof longer[1]);
    assert_int_equal(dw_mpi_open_links(mpi, 0, longer, links, &why), DW_ERR_ARGUMENT);
    expect_none(links, world_size);
    /* What may be passed, and is ignored. */
    const dw_transport *const none[] = {NULL};
    dw_link_options options = {
        .struct_size = sizeof options, .role = DW_LINK_CONNECT, .transports = none};
    assert_int_equal(dw_mpi_open_links(mpi, 4095, &options, links, &why), DW_OK);
    for (int r = 0; r < world_size; r++) {
        assert_int_equal(links[r] == NULL, r == world_rank);
        dw_link_close(links[r]);
    }
    dw_mpi_destroy(mpi);
}

/* An allocator of links that knows how much is in use; their threads call it, too. */
static atomic_long live_bytes;

static void *take(void *context, size_t bytes, size_t alignment)
{
    atomic_fetch_add(&live_bytes, (long)bytes);
    return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static void give(void *context, void *memory, size_t bytes)
{
    atomic_fetch_sub(&live_bytes, (long)bytes);
    free(memory);
}

/* The last rank gives another number than the others: these find no peer at the last rank, and
 * close the links that they had among themselves. */
TEST_WITH(ranks_that_disagree_open_no_link, together, NULL)
{
    dw_mpi *mpi;
    dw_link *links[MOST];
    dw_why why = {.text = ""};
    char last[32];
    bool is_last = world_rank == world_size - 1;
    dw_link_options options = {
        .struct_size = sizeof options, .open_timeout_ms = 2000, .allocator = {take, give, NULL}};
    assert_int_equal(dw_mpi_create(&mpi, NULL, NULL), DW_OK);
    dw_status status = dw_mpi_open_links(mpi, is_last ? 6 : 5, &options, links, &why);
    assert_int_equal(status, DW_ERR_TIMEOUT);
    snprintf(last, sizeof last, "to rank %d", is_last ? 0 : world_size - 1);
    if (!strstr(why.text, last)) fail_msg("%s", why.text);
    expect_none(links, world_size);
    assert_int_equal(atomic_load(&live_bytes), 0);
    MPI_Barrier(MPI_COMM_WORLD);
    options.open_timeout_ms = 0;
    assert_int_equal(dw_mpi_open_links(mpi, 5, &options, links, &why), DW_OK);
    for (int r = 0; r < world_size; r++) dw_link_close(links[r]);
    dw_mpi_destroy(mpi);
}

int main(int argc, char **argv)
{
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    if (level < MPI_THREAD_MULTIPLE || world_size < 3 || world_size > MOST) return 2;
    int failed = test_run(NULL, NULL);
    if (failed) MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Finalize();
    return failed;
}
