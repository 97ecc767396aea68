/* SPDX-License-Identifier: Apache-2.0
 * heads.c - the heads of whole frames, which a launch completes after its jobs. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "heads.h"

static uint64_t sealed_at(uint32_t n)
{
    return n * sizeof(dw_cuda_head_part);
}

static uint64_t drafts_at(uint32_t n)
{
    return dw_round_up(sealed_at(n) + n * sizeof(uint64_t), 16);
}

static unsigned char *host(const dw_cuda_heads *heads, uint64_t at)
{
    return (unsigned char *)heads->staged.host + at;
}

static dw_cuda_head_part *part_of(const dw_cuda_heads *heads, uint32_t i)
{
    return (dw_cuda_head_part *)(void *)host(heads, i * sizeof(dw_cuda_head_part));
}

static void write_draft(dw_cuda_heads *heads, dw_cuda_head_part *part, const dw_head *given,
                        uint64_t *serial)
{
    uint64_t at = (dw_cuda_address)part->draft - heads->staged.address;
    part->serial = ++*serial;
    part->bytes = given->bytes;
    memcpy(host(heads, at), given->draft, (size_t)given->bytes);
}

dw_status dw_cuda_heads_fill(dw_cuda_heads *heads, const dw_cuda *cuda, dw_heads given,
                             const dw_cuda_report *reports, uint64_t *serial, dw_why *why)
{
    uint64_t at = drafts_at(given.n), need = at;
    heads->n = 0;
    if (given.n == 0) return DW_OK;
    if (!cuda->kernels[DW_CUDA_AT_SEAL]) {
        snprintf(
            why->text, sizeof why->text,
            "this build has no kernel dw_finalize_heads: do not call dw_encoder_whole_frames, and "
            "send after dw_encode_finish");
        return DW_ERR_UNSUPPORTED;
    }
    for (uint32_t i = 0; i < given.n; i++) need += given.of[i].most;
    if (!dw_cuda_grow(cuda, true, &heads->staged, &heads->staged_bytes, need))
        return DW_ERR_NO_MEMORY;
    heads->n = given.n;
    memset(host(heads, 0), 0, (size_t)need);
    dw_cuda_address staged = heads->staged.address,
                    sealed = staged + (dw_cuda_address)sealed_at(given.n);
    for (uint32_t i = 0; i < given.n; i++) {
        const dw_head *head = &given.of[i];
        *part_of(heads, i) = (dw_cuda_head_part){
            .draft = (const uint64_t *)(staged + (dw_cuda_address)at),
            .reports = reports + head->first,
            .frame = head->frame,
            .sealed = (uint64_t *)(sealed + (dw_cuda_address)(i * sizeof(uint64_t))),
            .entries = head->entries,
            .first = head->first,
            .n = head->n,
        };
        write_draft(heads, part_of(heads, i), head, serial);
        at += head->most;
    }
    return DW_OK;
}

static uint32_t find(const dw_cuda_heads *heads, uint32_t first)
{
    uint32_t i = 0;
    while (i < heads->n && part_of(heads, i)->first != first) i++;
    return i;
}

void dw_cuda_heads_refill(dw_cuda_heads *heads, const dw_head *given, uint64_t *serial)
{
    uint32_t i = find(heads, given->first);
    assert(i < heads->n);
    write_draft(heads, part_of(heads, i), given, serial);
}

dw_cuda_result dw_cuda_heads_enqueue(const dw_cuda_heads *heads, const dw_cuda *cuda,
                                     dw_cuda_stream stream)
{
    dw_cuda_address parts = heads->staged.address;
    uint32_t n = heads->n;
    void *parameters[] = {&parts, &n};
    if (n == 0) return DW_CUDA_SUCCESS;
    return cuda->driver.launch(cuda->kernels[DW_CUDA_AT_SEAL], n, 1, 1, DW_CUDA_THREADS, 1, 1, 0,
                               stream, parameters, NULL);
}

bool dw_cuda_heads_done(const dw_cuda_heads *heads, uint32_t first)
{
    uint32_t i = find(heads, first);
    if (i == heads->n) return true;
    const volatile uint64_t *sealed = (const volatile uint64_t *)(const void *)host(
        heads, sealed_at(heads->n) + i * sizeof(uint64_t));
    return *sealed == part_of(heads, i)->serial;
}
