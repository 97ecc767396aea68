/* SPDX-License-Identifier: Apache-2.0
 * launch.c - the jobs of one launch: grouped by kernels, staged, enqueued, and read back when
 * done. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "launch.h"
#include "room.h"

static uint64_t part_bytes(const dw_launch *launch)
{
    return launch->encodes ? sizeof(dw_cuda_encode_part) : sizeof(dw_cuda_decode_part);
}

static uint64_t sums_at(const dw_launch *launch)
{
    return dw_round_up(launch->n * part_bytes(launch), 64);
}

static uint64_t copied_bytes(const dw_launch *launch)
{
    return sums_at(launch) + (uint64_t)launch->n * sizeof(dw_cuda_sums);
}

static uint64_t reports_at(const dw_launch *launch)
{
    return dw_round_up(copied_bytes(launch), 64);
}

static uint64_t chosen_at(const dw_launch *launch)
{
    return dw_round_up(copied_bytes(launch), 256);
}

static uint64_t rooms_at(const dw_launch *launch)
{
    return dw_round_up(chosen_at(launch) + launch->chosen * sizeof(uint32_t), DW_ROOM_ALIGNMENT);
}

static unsigned char *host(const dw_launch *launch, uint64_t at)
{
    return (unsigned char *)launch->staged.host + at;
}

static dw_cuda_needs needs_of(const dw_launch *launch, dw_jobs jobs, uint32_t i)
{
    return launch->encodes ? dw_cuda_encode_needs(jobs.encode[i])
                           : dw_cuda_decode_needs(jobs.decode[i]);
}

static dw_status check_kernels(const dw_launch *launch, const dw_cuda_needs *needs, dw_why *why)
{
    char name[DW_CUDA_NAME_BYTES];
    for (int phase = 0; phase < DW_CUDA_PHASES; phase++) {
        int kernel = needs->kernel[phase];
        bool exists = kernel < DW_CUDA_KERNELS;
        if (kernel < 0 || (exists && launch->engine->cuda->kernels[kernel])) continue;
        if (exists)
            dw_cuda_kernel_name(kernel, name);
        else
            snprintf(name, sizeof name, "with the name that the form asks for");
        snprintf(
            why->text, sizeof why->text,
            "this build has no kernel %s: use another codec, group or dtype, or compute on the CPU",
            name);
        return DW_ERR_UNSUPPORTED;
    }
    return DW_OK;
}

/* Finds or makes the group of a job. NULL: no memory. */
static dw_cuda_group *group_of(dw_launch *launch, const dw_cuda_needs *needs)
{
    for (uint32_t i = 0; i < launch->n_groups; i++)
        if (memcmp(launch->groups[i].kernel, needs->kernel, sizeof needs->kernel) == 0)
            return &launch->groups[i];
    void *groups = launch->groups;
    if (!dw_mem_grow(&launch->engine->allocator, &groups, &launch->groups_cap, launch->n_groups + 1,
                     sizeof *launch->groups))
        return NULL;
    launch->groups = groups;
    dw_cuda_group *made = &launch->groups[launch->n_groups++];
    *made = (dw_cuda_group){0};
    memcpy(made->kernel, needs->kernel, sizeof made->kernel);
    return made;
}

/* Determines every job's kernels, its group, its place in `chosen`, and its room. */
static dw_status sort(dw_launch *launch, dw_jobs jobs, dw_why *why)
{
    void *places = launch->places;
    if (!dw_mem_grow(&launch->engine->allocator, &places, &launch->places_cap, launch->n,
                     sizeof *launch->places))
        return DW_ERR_NO_MEMORY;
    launch->places = places;
    launch->n_groups = 0;
    launch->chosen = launch->rooms = 0;
    for (uint32_t i = 0; i < launch->n; i++) {
        dw_cuda_place_of *place = &launch->places[i];
        *place = (dw_cuda_place_of){
            .needs = needs_of(launch, jobs, i), .chosen = launch->chosen, .room = launch->rooms};
        if (!launch->encodes) place->behind = jobs.decode[i]->plan->behind;
        dw_status status = check_kernels(launch, &place->needs, why);
        if (status) return status;
        dw_cuda_group *group = group_of(launch, &place->needs);
        if (!group) return DW_ERR_NO_MEMORY;
        place->group = (uint32_t)(group - launch->groups);
        place->part = group->n++; /* for now the number within its group */
        launch->chosen += dw_round_up(place->needs.chosen_room, 4);
        if (!dw_size_add(launch->rooms, place->needs.room_bytes, &launch->rooms))
            return DW_ERR_LIMIT;
    }
    uint32_t first = 0;
    for (uint32_t g = 0; g < launch->n_groups; g++) {
        launch->groups[g].first = first;
        first += launch->groups[g].n;
    }
    for (uint32_t i = 0; i < launch->n; i++)
        launch->places[i].part += launch->groups[launch->places[i].group].first;
    return DW_OK;
}

/* A block has to find its part, to wait until its stores have arrived, and to add its sums. So for
 * large tensors there are fewer blocks than tiles: about four times as many as the largest GPUs run
 * at a time, because blocks do not all take equally long. */
enum { MANY_BLOCKS = 2048 };

static dw_status share_tiles(dw_launch *launch)
{
    for (uint32_t g = 0; g < launch->n_groups; g++) launch->groups[g].tiles_per_block = 0;
    for (uint32_t i = 0; i < launch->n; i++) {
        const dw_cuda_place_of *place = &launch->places[i];
        launch->groups[place->group].tiles_per_block += place->needs.blocks[DW_CUDA_TILES];
    }
    for (uint32_t g = 0; g < launch->n_groups; g++) {
        uint64_t *tiles = &launch->groups[g].tiles_per_block;
        if (*tiles > INT32_MAX) return DW_ERR_LIMIT; /* so that a block's counts fit 32 bits */
        *tiles = *tiles > MANY_BLOCKS ? (*tiles + MANY_BLOCKS - 1) / MANY_BLOCKS : 1;
    }
    return DW_OK;
}

static uint64_t blocks_of(const dw_launch *launch, uint32_t i, int phase)
{
    const dw_cuda_place_of *place = &launch->places[i];
    uint64_t blocks = place->needs.blocks[phase],
             each = launch->groups[place->group].tiles_per_block;
    return place->needs.by_tile[phase] ? (blocks + each - 1) / each : blocks;
}

static dw_status make_room(dw_launch *launch)
{
    uint64_t chosen_bytes, device;
    if (!dw_size_multiply(launch->chosen, sizeof(uint32_t), &chosen_bytes) ||
        !dw_size_add(rooms_at(launch), launch->rooms, &device))
        return DW_ERR_LIMIT;
    uint64_t staged = reports_at(launch) + (uint64_t)launch->n * sizeof(dw_cuda_report);
    const dw_cuda *cuda = launch->engine->cuda;
    bool made = dw_cuda_grow(cuda, true, &launch->staged, &launch->staged_bytes, staged) &&
                dw_cuda_grow(cuda, false, &launch->device, &launch->device_bytes, device);
    return made ? DW_OK : DW_ERR_NO_MEMORY;
}

static dw_cuda_report *reports_of(const dw_launch *launch)
{
    return (dw_cuda_report *)(launch->staged.address + (dw_cuda_address)reports_at(launch));
}

static dw_cuda_share share_of(const dw_launch *launch, uint32_t i)
{
    const dw_cuda_place_of *place = &launch->places[i];
    dw_cuda_address device = launch->device.address;
    dw_cuda_address chosen =
        device + (dw_cuda_address)(chosen_at(launch) + place->chosen * sizeof(uint32_t));
    dw_cuda_share share = {
        .chosen = place->needs.has_chosen ? (uint32_t *)chosen : NULL,
        .sums = (dw_cuda_sums *)(device +
                                 (dw_cuda_address)(sums_at(launch) + i * sizeof(dw_cuda_sums))),
        .report = reports_of(launch) + i,
        .serial = place->serial,
        .prev_on_host = launch->engine->prev_on_host && !place->needs.expanded_bytes,
    };
    for (int phase = 0; phase < DW_CUDA_PHASES; phase++)
        share.blocks[phase] = blocks_of(launch, i, phase);
    return share;
}

/* Lets a job whose copies are compact read prev, and write the new prev, in its room. */
static void place_expanded(const dw_cuda_needs *needs, uint8_t *room, dw_copies *copies,
                           const void **prev, void **next)
{
    uint8_t *made = room + needs->expanded + needs->expanded_bytes;
    if (!copies->bits) return;
    copies->base = room + needs->expanded;
    copies->made = made;
    if (*prev) *prev = copies->base;
    if (*next) *next = made;
}

/* Completes a part whose payload is coded or moved. jobs: those of its frame. */
static void write_moving(dw_launch *launch, uint32_t i, const dw_encode_job *const *jobs,
                         dw_cuda_encode_part *part, uint8_t *room)
{
    dw_cuda_sums *sums = (dw_cuda_sums *)(void *)host(launch, sums_at(launch)) + i;
    sums->payload_bytes = part->job.plan->behind ? 0 : part->job.plan->payload_bytes;
    part->share.frame = jobs[0]->coded;
    part->share.entry = part->job.entry;
    part->job.payload = room;
    part->job.scratch = room + launch->places[i].needs.plain_bytes;
}

/* Writes the part of job i. The numbers of its first blocks are given. */
static void write_part(dw_launch *launch, uint32_t i, dw_jobs jobs, uint32_t job,
                       const uint64_t first[DW_CUDA_PHASES])
{
    const dw_cuda_needs *needs = &launch->places[i].needs;
    dw_cuda_share share = share_of(launch, i);
    unsigned char *at = host(launch, launch->places[i].part * part_bytes(launch));
    uint8_t *room = (uint8_t *)(launch->device.address +
                                (dw_cuda_address)(rooms_at(launch) + launch->places[i].room));
    memcpy(share.first, first, sizeof share.first);
    if (launch->encodes) {
        dw_cuda_encode_part part = {share, *jobs.encode[job]};
        bool is_sync = part.job.x == part.job.next; /* it carries prev itself */
        place_expanded(needs, room, &part.job.copies, &part.job.prev, &part.job.next);
        if (is_sync && part.job.copies.bits) part.job.x = part.job.copies.base = part.job.next;
        if (part.job.coded)
            write_moving(launch, i, jobs.encode + job - part.job.entry, &part, room);
        memcpy(at, &part, sizeof part);
    } else {
        dw_cuda_decode_part part = {share, *jobs.decode[job]};
        place_expanded(needs, room, &part.job.copies, &part.job.prev, &part.job.next);
        if (part.job.coded) {
            part.job.payload = part.job.plain = room;
            part.job.scratch = room + needs->plain_bytes;
        }
        memcpy(at, &part, sizeof part);
    }
}

dw_status dw_launch_fill(dw_launch *launch, dw_jobs jobs, uint32_t n, dw_heads heads,
                         uint64_t *serial, dw_why *why)
{
    launch->n = n;
    dw_status status = sort(launch, jobs, why);
    if (!status) status = make_room(launch);
    if (!status) status = share_tiles(launch);
    if (status) return status;
    memset(host(launch, 0), 0, (size_t)(reports_at(launch) + (uint64_t)n * sizeof(dw_cuda_report)));
    for (uint32_t i = 0; i < n; i++) {
        dw_cuda_place_of *place = &launch->places[i];
        dw_cuda_group *group = &launch->groups[place->group];
        place->serial = ++*serial;
        write_part(launch, i, jobs, i, group->blocks);
        for (int phase = 0; phase < DW_CUDA_PHASES; phase++) {
            group->blocks[phase] += blocks_of(launch, i, phase);
            if (group->blocks[phase] > INT32_MAX) return DW_ERR_LIMIT;
        }
    }
    return dw_cuda_heads_fill(&launch->heads, launch->engine->cuda, heads, reports_of(launch),
                              serial, why);
}

/* Enqueues these phases of one group after the other. */
static dw_cuda_result enqueue_phases(const dw_launch *launch, const dw_cuda_phase *phases,
                                     uint32_t n_phases, dw_cuda_stream stream, uint32_t *enqueued)
{
    const dw_cuda *cuda = launch->engine->cuda;
    for (uint32_t i = 0; i < launch->n_groups * n_phases; i++) {
        const dw_cuda_group *group = &launch->groups[i / n_phases];
        dw_cuda_phase phase = phases[i % n_phases];
        dw_cuda_address parts =
            launch->device.address + (dw_cuda_address)(group->first * part_bytes(launch));
        uint32_t n = group->n;
        void *parameters[] = {&parts, &n};
        if (group->blocks[phase] == 0) continue;
        dw_cuda_result error =
            cuda->driver.launch(cuda->kernels[group->kernel[phase]], (unsigned)group->blocks[phase],
                                1, 1, DW_CUDA_THREADS, 1, 1, 0, stream, parameters, NULL);
        if (error) return error;
        ++*enqueued;
    }
    return DW_CUDA_SUCCESS;
}

dw_cuda_result dw_launch_enqueue(const dw_launch *launch, dw_cuda_stream stream, uint32_t *enqueued)
{
    const dw_cuda *cuda = launch->engine->cuda;
    *enqueued = 0;
    dw_cuda_result error = cuda->driver.copy_to_device(launch->device.address, launch->staged.host,
                                                       (size_t)copied_bytes(launch), stream);
    if (error) return error;
    ++*enqueued;
    /* A decoder's blocks are decoded before its tiles. Payloads are joined when all are coded. */
    static const dw_cuda_phase before[] = {DW_CUDA_EXPAND, DW_CUDA_CHOOSE,  DW_CUDA_TILES,
                                           DW_CUDA_AUDIT,  DW_CUDA_COMPACT, DW_CUDA_CODE},
                               decoding[] = {DW_CUDA_EXPAND, DW_CUDA_CODE, DW_CUDA_TILES,
                                             DW_CUDA_AUDIT, DW_CUDA_COMPACT},
                               joining[] = {DW_CUDA_JOIN};
    if (!launch->encodes) return enqueue_phases(launch, decoding, 5, stream, enqueued);
    error = enqueue_phases(launch, before, 6, stream, enqueued);
    if (!error) error = enqueue_phases(launch, joining, 1, stream, enqueued);
    if (error) return error;
    return dw_cuda_heads_enqueue(&launch->heads, cuda, stream);
}

static bool fits(const dw_cuda_needs *a, const dw_cuda_needs *b)
{
    return memcmp(a->kernel, b->kernel, sizeof a->kernel) == 0 &&
           memcmp(a->blocks, b->blocks, sizeof a->blocks) == 0 &&
           a->chosen_room == b->chosen_room && a->room_bytes == b->room_bytes;
}

dw_status dw_launch_refill(dw_launch *launch, uint32_t first, dw_jobs jobs, uint32_t n,
                           const dw_head *head, uint64_t *serial, dw_why *why)
{
    for (uint32_t i = 0; i < n; i++) {
        dw_cuda_needs needs = needs_of(launch, jobs, i);
        if (fits(&needs, &launch->places[first + i].needs)) continue;
        snprintf(why->text, sizeof why->text,
                 "sample %u needs other kernels than those captured, because its entry is of "
                 "another kind: capture a frame with such entries",
                 (unsigned)i);
        return DW_ERR_UNSUPPORTED;
    }
    for (uint32_t i = 0; i < n; i++) {
        dw_cuda_place_of *place = &launch->places[first + i];
        uint64_t at[DW_CUDA_PHASES];
        const unsigned char *part = host(launch, place->part * part_bytes(launch));
        memcpy(at, part + offsetof(dw_cuda_share, first), sizeof at);
        place->needs = needs_of(launch, jobs, i);
        place->serial = ++*serial;
        write_part(launch, first + i, jobs, i, at);
    }
    if (head) dw_cuda_heads_refill(&launch->heads, head, serial);
    return DW_OK;
}

dw_status dw_launch_done(const dw_launch *launch, uint32_t first, uint32_t n,
                         dw_chunk_result *results)
{
    for (uint32_t i = 0; i < n; i++) {
        /* The device stores the serial last. */
        _Atomic uint64_t *serial = (_Atomic uint64_t *)(void *)host(
            launch, reports_at(launch) + (first + i) * sizeof(dw_cuda_report) +
                        offsetof(dw_cuda_report, serial));
        if (atomic_load_explicit(serial, memory_order_acquire) != launch->places[first + i].serial)
            return DW_PENDING;
    }
    if (!dw_cuda_heads_done(&launch->heads, first)) return DW_PENDING;
    atomic_thread_fence(memory_order_acquire); /* the head's serial is stored last as well */
    for (uint32_t i = 0; i < n; i++) {
        dw_cuda_report report;
        memcpy(&report, host(launch, reports_at(launch) + (first + i) * sizeof report),
               sizeof report);
        results[i] = (dw_chunk_result){.payload_sum = report.payload, .state_sum = report.state};
        results[i].sums.direct = report.direct;
        results[i].sums.zero = report.zero;
        results[i].sums.poisoned = report.poisoned;
        results[i].sums.escaped = report.escaped;
        results[i].sums.overflowed = report.overflowed;
        results[i].payload_bytes = report.payload_bytes;
        if (report.bad)
            results[i].bad =
                launch->places[first + i].behind->sentence(dw_cuda_fault_of(report.bad));
    }
    return DW_OK;
}

void dw_launch_release(dw_launch *launch)
{
    const dw_allocator *allocator = &launch->engine->allocator;
    dw_cuda_free(launch->engine->cuda, &launch->staged);
    dw_cuda_free(launch->engine->cuda, &launch->device);
    dw_cuda_free(launch->engine->cuda, &launch->heads.staged);
    dw_mem_release(allocator, launch->groups, launch->groups_cap * sizeof *launch->groups);
    dw_mem_release(allocator, launch->places, launch->places_cap * sizeof *launch->places);
}
