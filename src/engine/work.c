/* SPDX-License-Identifier: Apache-2.0
 * work.c - numbers the chunks of a frame, runs them, and joins their results. */
#include "engine/work.h"

void dw_work_release(dw_work *work, const dw_allocator *allocator)
{
    dw_mem_release(allocator, work->first, work->first_cap * sizeof *work->first);
    dw_mem_release(allocator, work->results, work->results_cap * sizeof *work->results);
    dw_mem_release(allocator, work->taken, work->taken_cap * sizeof *work->taken);
}

bool dw_work_begin(dw_work *work, const dw_allocator *allocator, uint32_t n)
{
    void *first = work->first, *taken = work->taken;
    if (!dw_mem_grow(allocator, &first, &work->first_cap, (uint64_t)n + 1, sizeof *work->first))
        return false;
    work->first = first;
    if (!dw_mem_grow(allocator, &taken, &work->taken_cap, n, sizeof *work->taken)) return false;
    work->taken = taken;
    work->first[0] = 0;
    work->entries = 0;
    work->chunks = 0;
    return true;
}

void dw_work_put(dw_work *work, uint64_t chunks)
{
    work->chunks += chunks;
    atomic_init(&work->taken[work->entries], 0);
    work->first[++work->entries] = work->chunks;
}

bool dw_work_ready(dw_work *work, const dw_allocator *allocator)
{
    void *results = work->results;
    if (!dw_mem_grow(allocator, &results, &work->results_cap, work->chunks, sizeof *work->results))
        return false;
    work->results = results;
    return true;
}

uint32_t dw_work_entry(const dw_work *work, uint64_t index, uint64_t *chunk)
{
    uint32_t low = 0, high = work->entries;
    while (high - low > 1) { /* binary search for the last entry whose first chunk is at or before
                                `index` */
        uint32_t middle = low + (high - low) / 2;
        if (work->first[middle] <= index)
            low = middle;
        else
            high = middle;
    }
    *chunk = index - work->first[low];
    return low;
}

uint64_t dw_work_chunks(const dw_work *work, uint32_t entry)
{
    return work->first[entry + 1] - work->first[entry];
}

uint64_t dw_work_take_area(const dw_work *work, uint32_t entry, uint64_t chunk)
{
    uint32_t taken = atomic_load_explicit(&work->taken[entry], memory_order_relaxed);
    while (~taken) {
        uint32_t lowest = ~taken & (taken + 1);
        if (atomic_compare_exchange_weak_explicit(&work->taken[entry], &taken, taken | lowest,
                                                  memory_order_acquire, memory_order_relaxed))
            return (uint64_t)__builtin_ctz(lowest);
    }
    return DW_SHARED_AREAS + chunk;
}

void dw_work_give_area(const dw_work *work, uint32_t entry, uint64_t area)
{
    if (area < DW_SHARED_AREAS)
        atomic_fetch_and_explicit(&work->taken[entry], ~(UINT32_C(1) << area),
                                  memory_order_release);
}

void dw_work_run(const dw_work *work, const dw_host *host, dw_task *task, void *context)
{
    if (host->parallel_for && work->chunks > 1)
        host->parallel_for(host->parallel_context, (size_t)work->chunks, task, context);
    else
        for (size_t i = 0; i < work->chunks; i++) task(context, i);
}

dw_chunk_result dw_work_join(const dw_work *work, uint32_t entry)
{
    dw_chunk_result all = {0};
    for (uint64_t i = work->first[entry]; i < work->first[entry + 1]; i++) {
        const dw_chunk_result *one = &work->results[i];
        dw_sums_add(&all.sums, &one->sums);
        dw_squares_add(&all.squares, &one->squares);
        if (!all.bad) all.bad = one->bad;
        all.payload_sum += one->payload_sum;
        all.state_sum += one->state_sum;
    }
    return all;
}
