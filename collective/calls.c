/* SPDX-License-Identifier: Apache-2.0
 * calls.c - the public calls that start operations and wait for them. */
#include <string.h>

#include "base/cuda_memory.h"
#include "deltawire/cuda.h"
#include "group.h"

#define MOST_FLOATS (UINT64_C(1) << 40)

bool dw_group_is_ours(const dw_group *group)
{
    return group && dw_fork_guard_is_ours(&group->exchange.settings.fork_guard);
}

/* Keeps the sentence for dw_group_why. */
static dw_status refuse(dw_group *group, dw_status status, const char *sentence)
{
    pthread_mutex_lock(&group->lock);
    dw_say(&group->refusal, status, "%s", sentence);
    pthread_mutex_unlock(&group->lock);
    return status;
}

/* ---- What a job may ask for ------------------------------------------------------------------ */

static dw_status check_job(dw_group *group, dw_group_job *job)
{
    if (job->operation < DW_ALL_REDUCE || job->operation > DW_BROADCAST)
        return refuse(group, DW_ERR_ARGUMENT, "the job has no operation; set one of dw_operation");
    if (job->dtype == 0) job->dtype = DW_F32;
    if (dw_dtype_bytes(job->dtype) == 0)
        return refuse(group, DW_ERR_ARGUMENT, "the job has an unknown dtype");
    if (job->n > MOST_FLOATS)
        return refuse(group, DW_ERR_LIMIT, "a buffer has at most 2^40 floats; divide it");
    if (job->operation != DW_BROADCAST)
        job->root = 0;
    else if (job->root >= group->exchange.settings.ranks)
        return refuse(group, DW_ERR_ARGUMENT, "root is not a rank of the group");
    if (!dw_job_reduces(job)) job->mean = 0;
    job->mean = job->mean != 0;
    if (job->stream && !job->cuda)
        return refuse(group, DW_ERR_ARGUMENT,
                      "the job has a stream and no cuda; set cuda if x and y are on a GPU");
    if ((dw_job_reads(&group->exchange.settings, job) > 0 && !job->x) ||
        (dw_job_writes(&group->exchange.settings, job) > 0 && !job->y))
        return refuse(group, DW_ERR_ARGUMENT, "x or y is NULL, but the operation uses it");
    return DW_OK;
}

/* ---- Starting -------------------------------------------------------------------------------- */

/* Takes the slot for the caller, who prepares it without the lock. */
static dw_status claim(dw_group *group, uint64_t number, dw_group_slot **slot)
{
    pthread_mutex_lock(&group->lock);
    dw_status status = group->failure.status;
    *slot = status == DW_OK
                ? dw_slot_get(&group->slots, &group->exchange.settings.allocator, number)
                : NULL;
    if (status == DW_OK && !*slot) {
        status = DW_ERR_NO_MEMORY;
    } else if (status == DW_OK && (*slot)->state != DW_SLOT_IDLE) {
        status = dw_say(&group->refusal, DW_ERR_ARGUMENT,
                        "slot %llu has an operation that was not collected; call "
                        "dw_group_wait first",
                        (unsigned long long)number);
    } else if (status == DW_OK) {
        (*slot)->state = DW_SLOT_STARTING;
    }
    pthread_mutex_unlock(&group->lock);
    return status;
}

/* Ends the preparation of a slot: the progress owner gets it (with a single rank, it is DONE at
 * once); after an error it is IDLE again. waits: the caller will wait for the operation. It then
 * takes the steps itself, so nobody is woken, unless another caller is taking them already. */
static dw_status hand_over(dw_group *group, dw_group_slot *slot, dw_status status, bool waits)
{
    bool wakes = false;
    pthread_mutex_lock(&group->lock);
    if (status == DW_OK) status = group->failure.status;
    if (status == DW_OK && group->exchange.settings.ranks > 1) {
        slot->state = DW_SLOT_RUNNING;
        dw_slot_append(&group->started, slot);
        wakes = !waits || group->owner.is_owned_by_caller;
    } else {
        slot->state = status == DW_OK ? DW_SLOT_DONE : DW_SLOT_IDLE;
        group->counters.finished += status == DW_OK;
    }
    group->counters.started += status == DW_OK;
    if (wakes)
        dw_progress_unlock_and_wake(group);
    else
        pthread_mutex_unlock(&group->lock);
    return status;
}

/* The only rank: x is the result. */
static dw_status copy(const dw_group_job *job, dw_why *why)
{
    size_t bytes = job->x == job->y ? 0 : (size_t)job->n * dw_dtype_bytes(job->dtype);
    if (job->cuda) return dw_cuda_copy(job->cuda, job->y, job->x, bytes, job->stream, why);
    if (bytes > 0) memmove(job->y, job->x, bytes);
    return DW_OK;
}

/* A slot that has its coders waits for nobody. */
static dw_status prepare_coders(dw_group *group, dw_group_slot *slot, const dw_group_job *job,
                                dw_why *why)
{
    const dw_coding *coding = &group->exchange.coding;
    if (dw_coders_are_ready(coding, &slot->coders, job)) return DW_OK;
    dw_exclusive_begin(group);
    dw_status status = dw_coders_prepare(coding, &slot->coders, job);
    dw_exclusive_end(group);
    if (status == DW_OK) return DW_OK;
    return dw_say(why, status, "no memory for the encoders and decoders of a slot");
}

/* All that can fail. After an error nothing was started. */
static dw_status prepare(dw_group *group, dw_group_slot *slot, const dw_group_job *job, dw_why *why)
{
    if (group->exchange.settings.ranks == 1) return copy(job, why);
    dw_status status = job->cuda ? dw_device_adopt(&group->exchange.device, job->cuda, why) : DW_OK;
    if (status == DW_OK) status = prepare_coders(group, slot, job, why);
    if (status == DW_OK)
        status = dw_slot_prepare(&group->slots, &group->exchange.settings, slot, job, why);
    if (status == DW_OK && job->cuda) status = dw_device_fetch(slot, why);
    return status;
}

static dw_status start(dw_group *group, const dw_group_job *given, bool waits)
{
    if (!dw_group_is_ours(group) || !given) return DW_ERR_ARGUMENT;
    dw_group_job job;
    dw_why why;
    dw_status status = dw_take_asked(&job, sizeof job, given, "dw_group_job", &why);
    if (status != DW_OK) return refuse(group, status, why.text);
    status = check_job(group, &job);
    if (status != DW_OK) return status;
    dw_group_slot *slot;
    status = claim(group, job.slot, &slot);
    if (status != DW_OK) return status;
    status = prepare(group, slot, &job, &why);
    if (status != DW_OK) refuse(group, status, why.text);
    return hand_over(group, slot, status, waits);
}

dw_status dw_group_start(dw_group *group, const dw_group_job *job)
{
    DW_UNCANCELLED;
    return start(group, job, false);
}

/* ---- Waiting --------------------------------------------------------------------------------- */

/* The result of an operation that has ended; its slot is free then. The caller holds the lock. */
static dw_status collect(dw_group *group, dw_group_slot *slot)
{
    bool is_done = slot->state == DW_SLOT_DONE;
    slot->state = DW_SLOT_IDLE;
    return is_done ? DW_OK : group->failure.status;
}

static bool has_ended(const dw_group_slot *slot)
{
    return slot->state == DW_SLOT_DONE || slot->state == DW_SLOT_FAILED;
}

/* Waits with the lock held. */
static void wait_for(dw_group *group, dw_group_slot *slot, int timeout_ms)
{
    if (timeout_ms == 0) return;
    int64_t begin_ns = dw_now_ns(), now_ns = begin_ns;
    int64_t until_ns = timeout_ms < 0 ? INT64_MAX : begin_ns + (int64_t)timeout_ms * DW_NS_PER_MS;
    struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000),
                             .tv_nsec = (long)(until_ns % 1000000000)};
    slot->has_waiter = true;
    while (!has_ended(slot) && now_ns < until_ns) {
        if (dw_progress_may_own(group))
            dw_progress_own(group, has_ended, slot, until_ns);
        else if (timeout_ms < 0)
            pthread_cond_wait(&group->owner.finished, &group->lock);
        else
            pthread_cond_timedwait(&group->owner.finished, &group->lock, &until);
        now_ns = dw_now_ns();
    }
    slot->has_waiter = false;
    group->counters.wait_ns += (uint64_t)(now_ns - begin_ns);
}

dw_status dw_group_wait(dw_group *group, uint64_t number, int timeout_ms)
{
    DW_UNCANCELLED;
    if (!dw_group_is_ours(group)) return DW_ERR_ARGUMENT;
    pthread_mutex_lock(&group->lock);
    dw_group_slot *slot = dw_slot_find(&group->slots, number);
    dw_status status = DW_PENDING;
    if (!slot || slot->state == DW_SLOT_IDLE || slot->state == DW_SLOT_STARTING) {
        status = group->failure.status != DW_OK
                     ? group->failure.status
                     : dw_say(&group->refusal, DW_ERR_ARGUMENT, "nothing was started in slot %llu",
                              (unsigned long long)number);
    } else if (slot->has_waiter) {
        status = dw_say(&group->refusal, DW_ERR_ARGUMENT, "another thread waits for slot %llu",
                        (unsigned long long)number);
    } else {
        if (!has_ended(slot)) wait_for(group, slot, timeout_ms);
        if (has_ended(slot)) status = collect(group, slot);
    }
    pthread_mutex_unlock(&group->lock);
    return status;
}

dw_status dw_group_run(dw_group *group, const dw_group_job *job, int timeout_ms)
{
    DW_UNCANCELLED;
    dw_status status = start(group, job, timeout_ms != 0);
    return status == DW_OK ? dw_group_wait(group, job->slot, timeout_ms) : status;
}
