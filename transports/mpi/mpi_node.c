/* SPDX-License-Identifier: Apache-2.0
 * mpi_node.c - this process's place among the ranks: MPI's beginning and end, the duplicate of a
 * communicator. */
#include "mpi/mpi_node.h"

#include <stdio.h>

#include "common/memory.h"
#include "common/report.h"

dw_status dw_mpi_failed(dw_why *why, int code, const char *what, int peer)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int len;
    MPI_Error_string(code, text, &len);
    if (peer < 0) return dw_link_report(why, DW_ERR_IO, "%s failed: %.160s", what, text);
    return dw_link_report(why, DW_ERR_PEER, "%s with rank %d failed: %.160s", what, peer, text);
}

int dw_mpi_take_tags(dw_mpi *node)
{
    if (node->next_tag > node->last_tag - 1) node->next_tag = DW_MPI_FIRST_TAG;
    int tag = node->next_tag;
    node->next_tag += 2;
    return tag;
}

/* Initializes MPI where nobody has, and looks whether our threads may call it. */
static dw_status start(dw_mpi *node, dw_why *why)
{
    int is_initialized = 0, is_finalized = 0, level = MPI_THREAD_SINGLE;
    MPI_Initialized(&is_initialized);
    MPI_Finalized(&is_finalized);
    if (is_finalized)
        return dw_link_report(why, DW_ERR_UNSUPPORTED,
                              "MPI was finalized and cannot be used again");
    if (is_initialized) {
        MPI_Query_thread(&level);
        if (level >= MPI_THREAD_MULTIPLE) return DW_OK;
        return dw_link_report(why, DW_ERR_UNSUPPORTED,
                              "the program initialized MPI for fewer threads than links need; "
                              "call MPI_Init_thread with MPI_THREAD_MULTIPLE");
    }
    int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
    if (code != MPI_SUCCESS) return dw_mpi_failed(why, code, "MPI_Init_thread", -1);
    node->finalizes = true;
    if (level >= MPI_THREAD_SERIALIZED) return DW_OK;
    return dw_link_report(why, DW_ERR_UNSUPPORTED,
                          "this MPI library lets only one thread call it; links need more");
}

static dw_status join(dw_mpi *node, MPI_Comm comm, dw_why *why)
{
    int is_inter = 0, has_most = 0;
    int *most = NULL;
    int code = MPI_Comm_test_inter(comm, &is_inter);
    if (code == MPI_SUCCESS && is_inter) {
        return dw_link_report(why, DW_ERR_ARGUMENT,
                              "links need an intracommunicator; this one joins two groups");
    }
    if (code == MPI_SUCCESS) code = MPI_Comm_dup(comm, &node->comm);
    if (code != MPI_SUCCESS) return dw_mpi_failed(why, code, "duplicating the communicator", -1);
    MPI_Comm_set_errhandler(node->comm, MPI_ERRORS_RETURN);
    MPI_Comm_rank(node->comm, &node->rank);
    MPI_Comm_size(node->comm, &node->size);
    MPI_Comm_get_attr(node->comm, MPI_TAG_UB, &most, &has_most);
    node->last_tag = has_most ? *most : 32767; /* what the standard promises */
    node->next_tag = DW_MPI_FIRST_TAG;
    /* Another one than an earlier program's at the same place. */
    node->next_nonce = (uint64_t)dw_link_now_ns();
    return DW_OK;
}

dw_status dw_mpi_create(dw_mpi **mpi, const void *communicator, dw_why *why)
{
    if (!mpi)
        return dw_link_report(why, DW_ERR_ARGUMENT, "dw_mpi_create needs a place for the result");
    *mpi = NULL;
    /* A place is made before any link: it has nobody's allocator. */
    const dw_allocator allocator = dw_memory_allocator(NULL);
    dw_mpi *node = dw_memory_take_zeroed(&allocator, 1, sizeof *node);
    if (!node)
        return dw_link_report(why, DW_ERR_NO_MEMORY, "no memory for a place among the ranks");
    if (pthread_mutex_init(&node->lock, NULL) != 0) {
        dw_memory_give(&allocator, node, sizeof *node);
        return dw_link_report(why, DW_ERR_NO_MEMORY, "no memory for a lock");
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
    dw_memory_give(&allocator, node, sizeof *node);
    return status;
}

/* Knocks of ranks that gave up waiting, which MPI keeps, and may complain of at its end. */
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
    if (!mpi) return;
    pthread_mutex_lock(&mpi->lock);
    int ends = mpi->ends;
    pthread_mutex_unlock(&mpi->lock);
    if (ends > 0)
        return; /* their threads call MPI by way of this communicator: what is theirs stays */
    if (!mpi->lost) {
        clear_away(mpi);
        /* MPICH before 4.2, over UCX and TCP: a rank that is through with its part of MPI_Finalize
         * helps no other to get rid of its connections, and the other waits for ever
         * (pmodels/mpich, pull request 6596). Ranks that begin together seldom meet that. */
        if (mpi->finalizes) MPI_Barrier(mpi->comm);
        MPI_Comm_free(&mpi->comm);
        if (mpi->finalizes) MPI_Finalize();
    }
    pthread_mutex_destroy(&mpi->lock);
    const dw_allocator allocator = dw_memory_allocator(NULL);
    dw_memory_give(&allocator, mpi, sizeof *mpi);
}

int dw_mpi_rank(const dw_mpi *mpi)
{
    return mpi ? mpi->rank : -1;
}

int dw_mpi_size(const dw_mpi *mpi)
{
    return mpi ? mpi->size : 0;
}
