/* SPDX-License-Identifier: Apache-2.0
 * mpi_node.c - this process among the ranks: MPI_Init and MPI_Finalize where the program has not
 * called them, and a duplicate of the communicator. */
#include "mpi/mpi_node.h"

#include <stdio.h>

#include "base/mem.h"
#include "base/uncancelled.h"
#include "common/report.h"

dw_status dw_mpi_failed(dw_why *why, int code, const char *what, int peer)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int len;
    MPI_Error_string(code, text, &len);
    if (peer < 0) return dw_say(why, DW_ERR_IO, "%s failed: %.160s", what, text);
    return dw_say(why, DW_ERR_PEER, "%s with rank %d failed: %.160s", what, peer, text);
}

int dw_mpi_take_tags(dw_mpi *node)
{
    if (node->next_tag > node->last_tag - 1) node->next_tag = DW_MPI_FIRST_TAG;
    int tag = node->next_tag;
    node->next_tag += 2;
    return tag;
}

/* Initializes MPI if nobody has, and checks that several threads may call it. */
static dw_status start(dw_mpi *node, dw_why *why)
{
    int is_initialized = 0, is_finalized = 0, level = MPI_THREAD_SINGLE;
    MPI_Initialized(&is_initialized);
    MPI_Finalized(&is_finalized);
    if (is_finalized)
        return dw_say(why, DW_ERR_UNSUPPORTED, "MPI was finalized and cannot be used again");
    if (is_initialized) {
        MPI_Query_thread(&level);
        if (level >= MPI_THREAD_MULTIPLE) return DW_OK;
        return dw_say(why, DW_ERR_UNSUPPORTED,
                      "the program initialized MPI with too little thread support for links; "
                      "call MPI_Init_thread with MPI_THREAD_MULTIPLE");
    }
    int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
    if (code != MPI_SUCCESS) return dw_mpi_failed(why, code, "MPI_Init_thread", -1);
    node->finalizes = true;
    if (level >= MPI_THREAD_SERIALIZED) return DW_OK;
    return dw_say(why, DW_ERR_UNSUPPORTED,
                  "this MPI library supports calls from only one thread; links need more");
}

static dw_status join(dw_mpi *node, MPI_Comm comm, dw_why *why)
{
    int is_inter = 0, has_most = 0;
    int *most = NULL;
    /* MPI_Comm_split gives it to ranks that are left out. MPI would end the program. */
    if (comm == MPI_COMM_NULL)
        return dw_say(why, DW_ERR_ARGUMENT,
                      "the communicator is MPI_COMM_NULL: this rank is in none; only the "
                      "ranks of a communicator may call");
    int code = MPI_Comm_test_inter(comm, &is_inter);
    if (code == MPI_SUCCESS && is_inter) {
        return dw_say(why, DW_ERR_ARGUMENT,
                      "links need an intracommunicator; this one joins two groups");
    }
    if (code == MPI_SUCCESS) code = MPI_Comm_dup(comm, &node->comm);
    if (code != MPI_SUCCESS) return dw_mpi_failed(why, code, "duplicating the communicator", -1);
    MPI_Comm_set_errhandler(node->comm, MPI_ERRORS_RETURN);
    MPI_Comm_rank(node->comm, &node->rank);
    MPI_Comm_size(node->comm, &node->size);
    MPI_Comm_get_attr(node->comm, MPI_TAG_UB, &most, &has_most);
    node->last_tag = has_most ? *most : 32767; /* the least that the standard guarantees */
    node->next_tag = DW_MPI_FIRST_TAG;
    /* Differs from the nonces of an earlier run of the program. */
    node->next_nonce = (uint64_t)dw_now_ns();
    return DW_OK;
}

dw_status dw_mpi_create(dw_mpi **mpi, const void *communicator, dw_why *why)
{
    DW_UNCANCELLED;
    if (!mpi) return dw_say(why, DW_ERR_ARGUMENT, "dw_mpi_create: mpi must not be NULL");
    *mpi = NULL;
    /* The object is made before any link, so there is no link's allocator to use. */
    const dw_allocator allocator = dw_mem_allocator(NULL);
    dw_mpi *node = dw_mem_allocate_zeroed(&allocator, 1, sizeof *node);
    if (!node) return dw_say(why, DW_ERR_NO_MEMORY, "no memory for a dw_mpi");
    if (pthread_mutex_init(&node->lock, NULL) != 0) {
        dw_mem_release(&allocator, node, sizeof *node);
        return dw_say(why, DW_ERR_NO_MEMORY, "no memory for a lock");
    }
    dw_status status = start(node, why);
    if (status == DW_OK)
        status = join(node, communicator ? *(const MPI_Comm *)communicator : MPI_COMM_WORLD, why);
    if (status == DW_OK) {
        *mpi = node;
        return DW_OK;
    }
    if (node->finalizes) MPI_Finalize();
    pthread_mutex_destroy(&node->lock);
    dw_mem_release(&allocator, node, sizeof *node);
    return status;
}

/* Receives handshake messages of ranks that gave up. MPI keeps them, and may complain about them in
 * MPI_Finalize. */
static void clear_away(dw_mpi *mpi)
{
    char bytes[64];
    int is_here = 1, len = 0;
    MPI_Status envelope;
    while (MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, mpi->comm, &is_here, &envelope) == MPI_SUCCESS &&
           is_here) {
        MPI_Get_count(&envelope, MPI_BYTE, &len);
        if (len > (int)sizeof bytes) break;
        MPI_Recv(bytes, len, MPI_BYTE, envelope.MPI_SOURCE, envelope.MPI_TAG, mpi->comm,
                 MPI_STATUS_IGNORE);
    }
}

void dw_mpi_destroy(dw_mpi *mpi)
{
    DW_UNCANCELLED;
    if (!mpi) return;
    pthread_mutex_lock(&mpi->lock);
    int ends = mpi->ends;
    pthread_mutex_unlock(&mpi->lock);
    if (ends > 0) return; /* the threads of these links use the communicator, so nothing is freed */
    int is_finalized = 0; /* by the program, too early: then no call of MPI is possible */
    MPI_Finalized(&is_finalized);
    if (!mpi->lost && !is_finalized) {
        clear_away(mpi);
        /* With MPICH before 4.2 over UCX and TCP, a rank that has finished its part of MPI_Finalize
         * no longer helps other ranks to close their connections, and those wait for ever
         * (pmodels/mpich, pull request 6596). That seldom happens if all ranks call it at the same
         * time, hence the barrier. */
        if (mpi->finalizes) MPI_Barrier(mpi->comm);
        MPI_Comm_free(&mpi->comm);
        if (mpi->finalizes) MPI_Finalize();
    }
    pthread_mutex_destroy(&mpi->lock);
    const dw_allocator allocator = dw_mem_allocator(NULL);
    dw_mem_release(&allocator, mpi, sizeof *mpi);
}

int dw_mpi_rank(const dw_mpi *mpi, int *ranks)
{
    if (ranks) *ranks = mpi ? mpi->size : 0;
    return mpi ? mpi->rank : -1;
}
