/* SPDX-License-Identifier: Apache-2.0
 * nccl.h - links whose long messages travel from GPU to GPU over NCCL: libdeltawire-nccl. */
#ifndef DELTAWIRE_NCCL_H
#define DELTAWIRE_NCCL_H

#include "deltawire/transport.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What links over NCCL stand on: two libraries, found at run time, and a GPU. Into dw_link_options
 * go transports = {dw_nccl_transport(), NULL} and transport_context = the dw_nccl; then
 *     dw_link_open(&link, "nccl:tcp://10.0.0.1:7000", ...)      any URI may stand behind "nccl:"
 * What stands behind joins the ends, carries messages of up to 16 KiB, and notices a peer's death;
 * NCCL carries the longer ones, which are staged: a dw_link's lie in main memory. Who drives the
 * table without a link may give memory of this GPU as well. The ends are two processes with a GPU
 * each. NCCL knows no TLS. Threads: as many links as you like, each in any thread. */
typedef struct dw_nccl dw_nccl;

/* Zero means default; struct_size as transport.h says.
 *
 * wide table:
 * | name         | meaning                                                                       | default      |
 * | device       | ordinal of the GPU, whose primary context is used                             | 0            |
 * | communicator | an ncclComm_t of two ranks on this GPU, made by the same copy of NCCL: each   | each link    |
 * |              | link splits off two of its own and leaves it alone otherwise. Both ends give  | makes its    |
 * |              | one, open their links in the same order, and use it for nothing else meanwhile | own          |
 * | max_ctas     | blocks of the GPU that one transfer may occupy                                | 2            |
 * | library      | path of libnccl                                 | the copy that is loaded, or libnccl.so.2  |
 * | driver       | path of libcuda                                                               | libcuda.so.1 |
 */
typedef struct dw_nccl_options {
    size_t struct_size;
    int device;
    void *communicator;
    uint32_t max_ctas;
    const char *library, *driver;
} dw_nccl_options;

/* options may be NULL. Errors: ARGUMENT; UNSUPPORTED (no library, one before 2.18, no driver, no
 * such GPU; why says which); NO_MEMORY. */
DW_API dw_status dw_nccl_create(dw_nccl **nccl, const dw_nccl_options *options, dw_why *why);

/* After all links over it were closed. NULL is fine. NCCL and the driver stay loaded. */
DW_API void dw_nccl_destroy(dw_nccl *nccl);

DW_API int dw_nccl_version(const dw_nccl *nccl); /* 22809 is 2.28.9; 0 for NULL */
DW_API const dw_transport *dw_nccl_transport(void);

#ifdef __cplusplus
}
#endif
#endif
