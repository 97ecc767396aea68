/* SPDX-License-Identifier: Apache-2.0
 * nccl_library.h - the functions of NCCL that links call, loaded at run time. No header of NCCL is
 * needed.
 *
 * Errors: UNSUPPORTED if the library or a function is missing, or the library is too old. State:
 * a library that was loaded stays loaded, because NCCL has threads that may outlive the last
 * communicator. Source: NCCL's API reference, 2.18 (ncclCommSplit) and later. */
#ifndef DW_NCCL_LIBRARY_H
#define DW_NCCL_LIBRARY_H

#include <limits.h>
#include <stddef.h>

#include "deltawire/deltawire.h"

enum {
    DW_NCCL_SUCCESS = 0,
    DW_NCCL_SYSTEM_ERROR = 2,
    DW_NCCL_REMOTE_ERROR = 6,
    DW_NCCL_IN_PROGRESS = 7
};
enum { DW_NCCL_UINT8 = 1 }; /* all data is sent as bytes */
enum { DW_NCCL_OLDEST = 21800 };

typedef struct dw_nccl_comm_handle *dw_nccl_comm;
typedef struct dw_nccl_stream_handle *dw_nccl_stream; /* a CUstream */
typedef struct dw_nccl_id {
    char bytes[128];
} dw_nccl_id;

/* ncclConfig_t of NCCL 2.18, and fields that were added later. Later versions of NCCL learn from
 * `size` which of their fields are missing; earlier ones read only the fields that they know. */
typedef struct dw_nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking, cga_cluster_size, min_ctas, max_ctas;
    const char *net_name;
    int split_share, traffic_class;
} dw_nccl_config;

#define DW_NCCL_CONFIG                                                                             \
    {                                                                                              \
        .size = sizeof(dw_nccl_config), .magic = 0xcafebeef, .version = DW_NCCL_OLDEST,            \
        .cga_cluster_size = INT_MIN, .min_ctas = INT_MIN, .max_ctas = INT_MIN,                     \
        .split_share = INT_MIN, .traffic_class = INT_MIN                                           \
    }

/* One row per function: its name in the library, the name of the member here, and its
 * parameters. */
#define DW_NCCL_FUNCTIONS(ROW)                                                                     \
    ROW(ncclGetVersion, get_version, (int *version))                                               \
    ROW(ncclGetUniqueId, get_id, (dw_nccl_id * id))                                                \
    ROW(ncclCommInitRankConfig, init,                                                              \
        (dw_nccl_comm * comm, int ranks, dw_nccl_id id, int rank, dw_nccl_config *config))         \
    ROW(ncclCommSplit, split,                                                                      \
        (dw_nccl_comm comm, int color, int key, dw_nccl_comm *made, dw_nccl_config *config))       \
    ROW(ncclCommCount, count, (dw_nccl_comm comm, int *ranks))                                     \
    ROW(ncclCommUserRank, rank, (dw_nccl_comm comm, int *rank))                                    \
    ROW(ncclCommGetAsyncError, async_error, (dw_nccl_comm comm, int *error))                       \
    ROW(ncclCommAbort, abort, (dw_nccl_comm comm))                                                 \
    ROW(ncclSend, send,                                                                            \
        (const void *from, size_t count, int type, int peer, dw_nccl_comm comm,                    \
         dw_nccl_stream stream))                                                                   \
    ROW(ncclRecv, receive,                                                                         \
        (void *to, size_t count, int type, int peer, dw_nccl_comm comm, dw_nccl_stream stream))

typedef struct dw_nccl_library {
    void *handle;
    int version;
    const char *(*error_text)(int error);
    const char *(*last_error)(dw_nccl_comm comm);
#define ROW(symbol, name, parameters) int(*name) parameters;
    DW_NCCL_FUNCTIONS(ROW)
#undef ROW
} dw_nccl_library;

/* path NULL: uses the copy of NCCL that the process has loaded already, because two copies in one
 * process disturb each other; otherwise loads libnccl.so.2. */
dw_status dw_nccl_library_open(dw_nccl_library *library, const char *path, dw_why *why);

/* The text of NCCL for an error; never NULL. comm may be NULL. */
const char *dw_nccl_library_error(const dw_nccl_library *library, dw_nccl_comm comm, int error);

#endif
