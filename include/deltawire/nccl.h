/* SPDX-License-Identifier: Apache-2.0
 * nccl.h - links whose long messages travel from GPU to GPU over NCCL: libdeltawire-nccl. */
#ifndef DELTAWIRE_NCCL_H
#define DELTAWIRE_NCCL_H

#include "deltawire/transport.h"
#ifdef __cplusplus
extern "C" {
#endif

/* A GPU with the libraries of NCCL and CUDA, which are loaded at run time. To open a link, put
 * transports = {dw_nccl_transport(), NULL} and contexts = {{"nccl", nccl}, {NULL, NULL}}
 * into dw_link_options; any other URI may follow "nccl:":
 *
 *     dw_link_open(&link, "nccl:tcp://10.0.0.1:7000", ...)
 *
 * The other URI's transport connects the two ends, carries messages of up to 16 KiB, and detects
 * the end of a peer. NCCL carries longer messages. Messages of a dw_link lie in main memory, so
 * they are copied through the GPU; a program that calls the backend's functions itself may pass
 * memory of this GPU. The two ends must be two processes, each with a GPU. NCCL's traffic is not
 * encrypted. Threads: a dw_nccl may be used for any number of links, in any threads. */
typedef struct dw_nccl dw_nccl;

/* Options of dw_nccl_create. Zero means the default; struct_size as in transport.h.
 *
 * wide table:
 * | name         | meaning                                                                       | default      |
 * | device       | number of the GPU, whose primary context is used                              | 0            |
 * | communicator | an ncclComm_t of two ranks on this GPU, made by the same copy of NCCL: each   | each link    |
 * |              | link splits two communicators off it. Both ends must give one, open their     | makes its    |
 * |              | links in the same order, and use it for nothing else meanwhile                | own          |
 * | max_ctas     | the most thread blocks of the GPU that one transfer may occupy                | 2            |
 * | library      | path of libnccl                                 | the copy that is loaded, or libnccl.so.2  |
 * | driver       | path of libcuda                                                               | libcuda.so.1 |
 * | allocator    | of what is made; links have one of their own                                  | malloc, free |
 */
typedef struct dw_nccl_options {
    size_t struct_size;
    int device;
    void *communicator;
    uint32_t max_ctas;
    const char *library, *driver;
    dw_allocator allocator;
} dw_nccl_options;

/* Loads the libraries and opens the GPU. options may be NULL. Errors: ARGUMENT; UNSUPPORTED (a
 * library is missing or older than NCCL 2.18, or there is no such GPU; *why says which);
 * NO_MEMORY. */
DW_API dw_status dw_nccl_create(dw_nccl **nccl, const dw_nccl_options *options, dw_why *why);

/* To be called after all links were closed. NULL is allowed. The libraries stay loaded. */
DW_API void dw_nccl_destroy(dw_nccl *nccl);

/* The backend for dw_link_options.transports. */
DW_API const dw_transport *dw_nccl_transport(void);
#ifdef __cplusplus
}
#endif
#endif
