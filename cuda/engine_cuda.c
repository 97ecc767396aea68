/* SPDX-License-Identifier: Apache-2.0
 * engine_cuda.c - the engine on a CUDA device: the launches and the memory of an encoder or
 * decoder. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "codecs/profile.h"
#include "launch.h"
#include "slab.h"

/* The engine of one encoder or decoder; its first member is the part that launches refer to. */
typedef struct owner {
    dw_cuda_engine engine;
    dw_cuda_slab slab;
} owner;

static void end_copy_stream(dw_cuda_engine *engine)
{
    dw_cuda_result error;
    if (!engine->copy_stream || !dw_cuda_enter(engine->cuda, &error)) return;
    (void)engine->cuda->driver.stream_destroy(engine->copy_stream);
    dw_cuda_leave(engine->cuda);
}

/* Removes a user. The last one frees the engine; copies of prev were returned by release before. */
static void drop_user(dw_cuda_engine *engine)
{
    if (--engine->users) return;
    dw_allocator allocator = engine->allocator;
    for (dw_launch *launch = engine->spare, *next; launch; launch = next) {
        next = launch->next;
        dw_launch_release(launch);
        dw_mem_release(&allocator, launch, sizeof *launch);
    }
    end_copy_stream(engine);
    for (uint32_t i = 0; i < DW_PROFILES_MOST; i++)
        dw_cuda_free(engine->cuda, &engine->profiles[i].block);
    dw_cuda_close(engine->cuda);
    dw_mem_release(&allocator, engine, sizeof(owner));
}

static void release(void *context)
{
    owner *o = context;
    dw_cuda_slab_release(&o->slab);
    drop_user(&o->engine);
}

/* Takes the first spare launch that has room for n jobs, or else the one with the most room, which
 * then grows; or makes a new one. */
static dw_launch *take_launch(dw_cuda_engine *engine, uint32_t n)
{
    dw_launch **best = NULL;
    for (dw_launch **link = &engine->spare; *link; link = &(*link)->next) {
        if (!best || (*link)->places_cap > (*best)->places_cap) best = link;
        if ((*link)->places_cap >= n) break;
    }
    dw_launch *launch = best ? *best : dw_mem_allocate(&engine->allocator, sizeof *launch);
    if (!launch) return NULL;
    if (best)
        *best = launch->next;
    else
        *launch = (dw_launch){.engine = engine};
    launch->users = 1;
    engine->users++;
    return launch;
}

static void close_launch(dw_launch *launch)
{
    dw_cuda_engine *engine = launch->engine;
    assert(launch->users > 0);
    if (--launch->users) return;
    launch->next = engine->spare;
    engine->spare = launch;
    drop_user(engine);
}

static void share_launch(dw_launch *launch)
{
    launch->users++;
}

/* To be called in the context. If enqueuing fails half-way, waits for what was enqueued, because
 * its memory will be used again. (While a stream captures, nothing is running.) */
static dw_cuda_result enqueue(const dw_launch *launch, dw_cuda_stream stream, bool *captured)
{
    const dw_cuda_driver *driver = &launch->engine->cuda->driver;
    int capturing = 0;
    uint32_t enqueued;
    dw_cuda_result error = driver->stream_is_capturing(stream, &capturing);
    if (error) return error;
    *captured = capturing != 0;
    error = dw_launch_enqueue(launch, stream, &enqueued);
    if (error && enqueued && !capturing) (void)driver->stream_synchronize(stream);
    return error;
}

static dw_status start(void *context, bool encodes, dw_jobs jobs, uint32_t n, dw_heads heads,
                       void *stream, dw_launch **launch, bool *captured, dw_why *why)
{
    dw_cuda_engine *engine = context;
    dw_cuda *cuda = engine->cuda;
    dw_cuda_result error;
    dw_launch *made = take_launch(engine, n);
    dw_status status = made ? DW_OK : DW_ERR_NO_MEMORY;
    if (made) {
        made->encodes = encodes;
        status = dw_launch_fill(made, jobs, n, heads, &engine->serial, why);
    }
    if (status == DW_ERR_NO_MEMORY)
        snprintf(why->text, sizeof why->text, "%s", dw_status_string(status));
    if (!made) return status;
    if (status == DW_ERR_LIMIT)
        snprintf(why->text, sizeof why->text,
                 "the launch exceeds the size of a grid: split it into launches of fewer samples");
    if (!status) {
        if (dw_cuda_enter(cuda, &error)) {
            error = enqueue(made, stream, captured);
            dw_cuda_leave(cuda);
        }
        if (error) {
            status = error == DW_CUDA_OUT_OF_MEMORY ? DW_ERR_NO_MEMORY : DW_ERR_IO;
            snprintf(why->text, sizeof why->text,
                     "the work cannot be enqueued: the CUDA driver says: %s",
                     dw_cuda_driver_error(&cuda->driver, error));
        }
    }
    if (status)
        close_launch(made);
    else
        *launch = made;
    return status;
}

static dw_status reuse(dw_launch *launch, uint32_t first, dw_jobs jobs, uint32_t n,
                       const dw_head *head, dw_why *why)
{
    return dw_launch_refill(launch, first, jobs, n, head, &launch->engine->serial, why);
}

/* Copies on a stream of the engine's own, which waits for no other: the legacy default stream would
 * also wait for receives that others have enqueued, and those may depend on what this program does
 * next. To be called in the context. */
static dw_cuda_result copy_on_own_stream(dw_cuda_engine *engine, void *to, const void *from,
                                         size_t bytes)
{
    const dw_cuda_driver *driver = &engine->cuda->driver;
    dw_cuda_result error = DW_CUDA_SUCCESS;
    if (!engine->copy_stream)
        error = driver->stream_create(&engine->copy_stream, DW_CUDA_STREAM_NON_BLOCKING);
    if (error) {
        engine->copy_stream = NULL;
        return error;
    }
    error = driver->copy((dw_cuda_address)to, (dw_cuda_address)from, bytes, engine->copy_stream);
    dw_cuda_result waited = driver->stream_synchronize(engine->copy_stream);
    return error ? error : waited;
}

static dw_status copy(void *context, void *to, const void *from, uint64_t bytes, dw_why *why)
{
    dw_cuda_engine *engine = context;
    const dw_cuda *cuda = engine->cuda;
    int mode = DW_CUDA_CAPTURE_RELAXED; /* another stream may capture meanwhile */
    dw_cuda_result error;
    if (dw_cuda_enter(cuda, &error)) {
        error = cuda->driver.exchange_capture_mode(&mode);
        if (!error) {
            error = copy_on_own_stream(engine, to, from, (size_t)bytes);
            (void)cuda->driver.exchange_capture_mode(&mode);
        }
        dw_cuda_leave(cuda);
    }
    if (!error) return DW_OK;
    snprintf(why->text, sizeof why->text, "prev cannot be copied: the CUDA driver says: %s",
             dw_cuda_driver_error(&cuda->driver, error));
    return error == DW_CUDA_OUT_OF_MEMORY ? DW_ERR_NO_MEMORY : DW_ERR_IO;
}

/* Copies the values of a profile, and their inverses, to a block that has room for them. */
static dw_status fill_profile(dw_cuda_engine *engine, const dw_profile *profile,
                              dw_cuda_profile *to, dw_why *why)
{
    dw_tensor values = dw_profile_values(profile);
    uint64_t row = sizeof(float) * (uint64_t)values.c, bytes = values.t * row;
    dw_channels host = dw_profile_channels(profile);
    char *at = (char *)to->block.address;
    const float *device = (const float *)(void *)at;
    to->of = profile;
    to->channels = (dw_channels){.weights = device,
                                 .inverses = device + values.t * (uint64_t)values.c,
                                 .decides = host.decides};
    for (uint32_t i = 0; i < 2 && host.means[i]; i++)
        to->channels.means[i] = device + (host.means[i] - host.weights);
    dw_status status = copy(engine, at, values.data, bytes, why);
    return status ? status : copy(engine, at + bytes, host.inverses, row, why);
}

static dw_status learn(void *context, uint32_t slot, const dw_profile *profile, dw_why *why)
{
    dw_cuda_engine *engine = context;
    dw_tensor values = dw_profile_values(profile);
    dw_cuda_profile made = {0};
    dw_cuda_result error = dw_cuda_allocate(
        engine->cuda, false, sizeof(float) * (values.t + 1) * (uint64_t)values.c, &made.block);
    if (error)
        return dw_cuda_failed(engine->cuda, why, "the profile finds no room on the device", error);
    dw_status status = fill_profile(engine, profile, &made, why);
    dw_cuda_free(engine->cuda, status ? &made.block : &engine->profiles[slot].block);
    if (!status) engine->profiles[slot] = made;
    return status;
}

static dw_channels channels_of(const void *context, const dw_profile *profile)
{
    const dw_cuda_engine *engine = context;
    for (uint32_t i = 0; i < DW_PROFILES_MOST && profile; i++)
        if (engine->profiles[i].of == profile) return engine->profiles[i].channels;
    return (dw_channels){0};
}

dw_status dw_engine_cuda(dw_engine *engine, const dw_config *config, const dw_host *host,
                         dw_why *why)
{
    dw_cuda *cuda = host->cuda;
    bool is_pinned = host->place == DW_CUDA_PINNED;
    if (!is_pinned && host->place != DW_CUDA_DEVICE) {
        if (why)
            snprintf(why->text, sizeof why->text,
                     "place is neither DW_CUDA_DEVICE nor DW_CUDA_PINNED");
        return DW_ERR_ARGUMENT;
    }
    /* Launches may outlive their encoder, so they cannot use its allocator. */
    dw_allocator allocator = cuda->allocator;
    owner *o = dw_mem_allocate(&allocator, sizeof *o);
    if (!o) return DW_ERR_NO_MEMORY;
    memset(o, 0, sizeof *o);
    o->engine = (dw_cuda_engine){
        .cuda = cuda, .allocator = allocator, .users = 1, .prev_on_host = is_pinned};
    dw_allocator own = dw_mem_allocator(&host->allocator);
    dw_why own_why = {.text = ""};
    dw_cuda_slab_init(&o->slab, cuda, is_pinned, &own);
    *engine = (dw_engine){.name = "cuda",
                          .context = o,
                          .device = cuda,
                          .store = dw_cuda_slab_store(&o->slab),
                          .submit = start,
                          .reuse = reuse,
                          .done = dw_launch_done,
                          .learn = learn,
                          .channels = channels_of,
                          .copy = copy,
                          .share = share_launch,
                          .close = close_launch,
                          .release = release};
    dw_cuda_retain(cuda);
    dw_status status = config->profile ? learn(o, 0, config->profile, &own_why) : DW_OK;
    if (!status) return DW_OK;
    if (why) *why = own_why;
    release(o);
    return status;
}
