/* SPDX-License-Identifier: Apache-2.0
 * engine_cpu.c - the CPU's engine: divides a frame's jobs into chunks for the caller's threads. */
#include <string.h>

#include "codecs/copies.h"
#include "codecs/elements.h"
#include "codecs/plan.h"
#include "common/cpu.h"
#include "engine/engine.h"
#include "engine/work.h"
#include "kernels/kernels.h"

/* There is only one launch, because every launch is done when submit returns. */
struct dw_launch {
    dw_host host;
    dw_allocator allocator;
    const dw_kernels *kernels;
    dw_work work;
    dw_jobs jobs;
    bool encodes;             /* which kind they are */
    dw_chunk_result *results; /* of every job of the last submit */
    uint64_t results_cap;
    bool is_right; /* every payload has the digest that its job names */
};

typedef struct dw_launch cpu;

static uint64_t chunks_of(const dw_plan *plan)
{
    return plan->chunks;
}

/* Reserves memory for the results of all jobs and chunks. */
static bool prepare(cpu *c, bool encodes, uint32_t n)
{
    void *results = c->results;
    if (!dw_mem_grow(&c->allocator, &results, &c->results_cap, n, sizeof *c->results)) return false;
    c->results = results;
    if (!dw_work_begin(&c->work, &c->allocator, n)) return false;
    for (uint32_t i = 0; i < n; i++)
        dw_work_put(&c->work,
                    chunks_of(encodes ? c->jobs.encode[i]->plan : c->jobs.decode[i]->plan));
    return dw_work_ready(&c->work, &c->allocator);
}

/* ---- Compact copies -------------------------------------------------------------------------- */

static const dw_copies *copies_of(const cpu *c, uint32_t i)
{
    return c->encodes ? &c->jobs.encode[i]->copies : &c->jobs.decode[i]->copies;
}

/* Each works on an equal part of a copy for each chunk of its sample. Runs in any thread. */
static void expand_chunk(void *context, size_t index)
{
    cpu *c = context;
    uint64_t part;
    uint32_t i = dw_work_entry(&c->work, index, &part);
    if (!copies_of(c, i)->held) return;
    dw_cpu_mode mode = dw_cpu_enter_exact();
    dw_copies_expand(c->kernels, copies_of(c, i), part, dw_work_chunks(&c->work, i));
    dw_cpu_leave_exact(mode);
}

static void store_chunk(void *context, size_t index)
{
    cpu *c = context;
    uint64_t part;
    uint32_t i = dw_work_entry(&c->work, index, &part);
    if (!copies_of(c, i)->fresh || c->results[i].bad) return;
    dw_cpu_mode mode = dw_cpu_enter_exact();
    dw_copies_store(c->kernels, copies_of(c, i), part, dw_work_chunks(&c->work, i));
    dw_cpu_leave_exact(mode);
}

/* Runs one of these, unless no copy of the frame is compact. */
static void run_on_copies(cpu *c, uint32_t n, dw_task *task)
{
    bool any = false;
    for (uint32_t i = 0; i < n; i++) any = any || copies_of(c, i)->bits;
    if (any) dw_work_run(&c->work, &c->host, task, c);
}

/* ---- Encode and decode ----------------------------------------------------------------------- */

/* Measures chunk number `index` of the frame. Runs in any thread, as do the next four functions. */
static void measure_chunk(void *context, size_t index)
{
    cpu *c = context;
    uint64_t chunk;
    const dw_encode_job *job = c->jobs.encode[dw_work_entry(&c->work, index, &chunk)];
    if (!job->plan->measures) return;
    dw_cpu_mode mode = dw_cpu_enter_exact();
    job->plan->form->measure(job, chunk, &c->work.results[index]);
    dw_cpu_leave_exact(mode);
}

/* Encodes a chunk. */
static void encode_chunk(void *context, size_t index)
{
    cpu *c = context;
    uint64_t chunk;
    uint32_t entry = dw_work_entry(&c->work, index, &chunk);
    const dw_encode_job *job = c->jobs.encode[entry];
    dw_cpu_mode mode = dw_cpu_enter_exact();
    job->plan->form->encode(job, chunk, &c->work.results[index]);
    c->work.results[index].sums.overflowed += dw_elements_overflowed(job, chunk, job->plan->chunks);
    if (job->plan->behind) {
        uint64_t area = dw_work_take_area(&c->work, entry, chunk);
        job->plan->behind->encode(job, chunk, area);
        dw_work_give_area(&c->work, entry, area);
    }
    dw_cpu_leave_exact(mode);
}

/* Digests an equal part of the payload for each of its chunks. */
static void digest_chunk(void *context, size_t index)
{
    cpu *c = context;
    uint64_t part;
    uint32_t i = dw_work_entry(&c->work, index, &part);
    const dw_decode_job *job = c->jobs.decode[i];
    uint64_t blocks = job->payload_bytes / 16, parts = dw_work_chunks(&c->work, i);
    uint64_t each = blocks / parts, rest = blocks % parts;
    uint64_t from = each * part + (part < rest ? part : rest), n = each + (part < rest);
    const uint8_t *payload = job->coded ? job->coded : job->payload;
    c->work.results[index] =
        (dw_chunk_result){.payload_sum = c->kernels->digest_bytes(payload, 16 * from, 16 * n)};
}

/* Makes the plain payload, if it is coded, and computes the new prev in a new slot. */
static void decode_chunk(void *context, size_t index)
{
    cpu *c = context;
    uint64_t chunk;
    uint32_t entry = dw_work_entry(&c->work, index, &chunk);
    const dw_decode_job *job = c->jobs.decode[entry];
    dw_chunk_result *result = &c->work.results[index];
    *result = (dw_chunk_result){0};
    if (job->plan->behind) {
        uint64_t area = dw_work_take_area(&c->work, entry, chunk);
        result->bad = job->plan->behind->decode(job, chunk, area);
        dw_work_give_area(&c->work, entry, area);
    }
    if (!job->next || result->bad) return;
    dw_cpu_mode mode = dw_cpu_enter_exact();
    job->plan->form->decode(job, chunk, result);
    dw_cpu_leave_exact(mode);
}

/* Writes y: from the new prev where there is state, else from the payload. */
static void output_chunk(void *context, size_t index)
{
    cpu *c = context;
    uint64_t chunk;
    const dw_decode_job *job = c->jobs.decode[dw_work_entry(&c->work, index, &chunk)];
    dw_chunk_result unused;
    if (!job->y) return;
    dw_cpu_mode mode = dw_cpu_enter_exact();
    if (job->next)
        job->plan->form->write_output(job, chunk);
    else
        job->plan->form->decode(job, chunk, &unused);
    dw_cpu_leave_exact(mode);
}

/* Computes what the chunks of an entry share, where its form asks for that. */
static void measure_all(cpu *c, uint32_t n)
{
    bool any = false;
    for (uint32_t i = 0; i < n; i++) any = any || c->jobs.encode[i]->plan->measures;
    if (!any) return;
    dw_work_run(&c->work, &c->host, measure_chunk, c);
    dw_cpu_mode mode = dw_cpu_enter_exact();
    for (uint32_t i = 0; i < n; i++) {
        const dw_encode_job *job = c->jobs.encode[i];
        if (!job->plan->measures) continue;
        dw_chunk_result joined = dw_work_join(&c->work, i);
        job->plan->form->choose_scale(job, &joined);
    }
    dw_cpu_leave_exact(mode);
}

static void encode_all(cpu *c, uint32_t n)
{
    run_on_copies(c, n, expand_chunk);
    measure_all(c, n);
    dw_work_run(&c->work, &c->host, encode_chunk, c);
    dw_cpu_mode mode = dw_cpu_enter_exact(); /* the counters' sums are rounded in this mode, too */
    for (uint32_t i = 0; i < n; i++) {
        const dw_encode_job *job = c->jobs.encode[i];
        c->results[i] = dw_work_join(&c->work, i);
        if (job->plan->form->encoded) job->plan->form->encoded(job, &c->results[i]);
        if (job->plan->behind) job->plan->behind->join(job, &c->results[i]);
    }
    dw_cpu_leave_exact(mode);
    run_on_copies(c, n, store_chunk);
}

/* Reads the sizes of coded payloads. Returns false where one is wrong. */
static bool prepare_all(cpu *c, uint32_t n)
{
    bool right = true;
    for (uint32_t i = 0; i < n; i++) {
        const dw_decode_job *job = c->jobs.decode[i];
        if (job->plan->behind) c->results[i].bad = job->plan->behind->prepare(job);
        right = right && !c->results[i].bad;
    }
    return right;
}

/* All payloads are verified before any is decoded, so that a damaged one changes nothing. */
static void decode_all(cpu *c, uint32_t n)
{
    bool any_work = false;
    c->is_right = true;
    dw_work_run(&c->work, &c->host, digest_chunk, c);
    for (uint32_t i = 0; i < n; i++) {
        c->results[i] = dw_work_join(&c->work, i);
        any_work = any_work || c->jobs.decode[i]->next || c->jobs.decode[i]->plan->behind;
        if (dw_digest_of_sum(c->results[i].payload_sum) != c->jobs.decode[i]->payload_digest)
            c->is_right = false;
    }
    if (!c->is_right || !any_work || !prepare_all(c, n)) return;
    run_on_copies(c, n, expand_chunk);
    dw_work_run(&c->work, &c->host, decode_chunk, c);
    for (uint32_t i = 0; i < n; i++) {
        const dw_decode_job *job = c->jobs.decode[i];
        dw_chunk_result joined = dw_work_join(&c->work, i);
        c->results[i].state_sum = joined.state_sum;
        c->results[i].bad = joined.bad;
        if (job->next && job->plan->form->decoded) job->plan->form->decoded(job, &c->results[i]);
    }
    run_on_copies(c, n, store_chunk);
}

static dw_status submit(void *context, bool encodes, dw_jobs jobs, uint32_t n, dw_heads heads,
                        void *stream, dw_launch **launch, bool *captured, dw_why *why)
{
    cpu *c = context;
    (void)heads;
    (void)stream;
    (void)why;
    c->jobs = jobs;
    c->encodes = encodes;
    if (!prepare(c, encodes, n)) return DW_ERR_NO_MEMORY;
    if (encodes)
        encode_all(c, n);
    else
        decode_all(c, n);
    *launch = c;
    *captured = false;
    return DW_OK;
}

static dw_status reuse(dw_launch *launch, uint32_t first, dw_jobs jobs, uint32_t n,
                       const dw_head *head, dw_why *why)
{
    (void)launch, (void)first, (void)jobs, (void)n, (void)head, (void)why;
    return DW_ERR_UNSUPPORTED;
}

static dw_status done(const dw_launch *launch, uint32_t first, uint32_t n, dw_chunk_result *results)
{
    memcpy(results, launch->results + first, n * sizeof *results);
    return DW_OK;
}

/* Counts values of a part of y. */
static void count_chunk(void *context, size_t index)
{
    cpu *c = context;
    uint64_t part;
    uint32_t i = dw_work_entry(&c->work, index, &part);
    c->work.results[index].sums.overflowed =
        dw_elements_at_end(c->jobs.decode[i], part, dw_work_chunks(&c->work, i));
}

/* The jobs must be those of the last submit, whose chunks are still known. */
static uint64_t write_output(void *context, dw_jobs jobs, uint32_t n)
{
    cpu *c = context;
    uint64_t at_end = 0;
    bool narrows = false;
    c->jobs = jobs;
    dw_work_run(&c->work, &c->host, output_chunk, c);
    for (uint32_t i = 0; i < n; i++)
        narrows = narrows || (jobs.decode[i]->y && jobs.decode[i]->y_dtype == DW_F16);
    if (!narrows) return 0;
    dw_work_run(&c->work, &c->host, count_chunk, c);
    for (uint32_t i = 0; i < n; i++) at_end += dw_work_join(&c->work, i).sums.overflowed;
    return at_end;
}

static void nothing(dw_launch *launch)
{
    (void)launch;
}

static void release(void *context)
{
    cpu *c = context;
    dw_allocator allocator = c->allocator;
    dw_mem_release(&allocator, c->results, c->results_cap * sizeof *c->results);
    dw_work_release(&c->work, &allocator);
    dw_mem_release(&allocator, c, sizeof *c);
}

bool dw_engine_cpu(dw_engine *engine, const dw_host *host, const dw_kernels *kernels)
{
    dw_allocator allocator = dw_mem_allocator(&host->allocator);
    cpu *c = dw_mem_allocate(&allocator, sizeof *c);
    if (!c) return false;
    memset(c, 0, sizeof *c);
    c->host = *host;
    c->allocator = allocator;
    c->kernels = kernels ? kernels : dw_kernels_choose(~0u);
    *engine = (dw_engine){.name = "cpu",
                          .context = c,
                          .past_from = dw_cpu_past_from(dw_cpu_last_cache()),
                          .submit = submit,
                          .reuse = reuse,
                          .done = done,
                          .write_output = write_output,
                          .share = nothing,
                          .close = nothing,
                          .release = release};
    return true;
}

const dw_kernels *dw_engine_kernels(const dw_engine *engine)
{
    return engine->device ? NULL : ((const cpu *)engine->context)->kernels;
}

void dw_engine_use(dw_engine *engine, const dw_kernels *kernels)
{
    ((cpu *)engine->context)->kernels = kernels ? kernels : dw_kernels_choose(~0u);
}
