/* SPDX-License-Identifier: Apache-2.0
 * nccl_way.c - one direction of NCCL between two ranks: stages chunks, enqueues them and finds out
 * when they are complete, without waiting.
 *
 * A call with a nonblocking communicator may return "in progress". Then a thread of NCCL is still
 * busy with it. Until ncclCommGetAsyncError reports that it is done, the communicator must not be
 * used, and no event may be recorded after the call. */
#include "nccl/nccl_end.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "common/report.h"

/* How long the GPU may take to stop after its communicator was aborted. */
static const int64_t abort_ns = (int64_t)2000 * DW_NS_PER_MS;

static void fail(nccl_way *way, dw_status status, const char *what, const char *words)
{
    if (way->status != DW_OK) return;
    way->status = dw_say(&way->why, status, "NCCL failed while %s: %.180s", what, words);
}

static bool is_fine(nccl_way *way, int error, const char *what)
{
    if (error == DW_NCCL_CUDA_SUCCESS) return true;
    fail(way, DW_ERR_IO, what, dw_nccl_device_error(&way->nccl->device, error));
    return false;
}

static const char *what_we_do(const nccl_way *way)
{
    return way->sends ? "sending" : "receiving";
}

dw_status dw_nccl_way_make(nccl_way *way, const dw_nccl *nccl, bool sends, dw_why *why)
{
    const dw_nccl_driver *driver = &nccl->device.driver;
    way->nccl = nccl;
    way->sends = sends;
    int error = driver->stream_create(&way->stream, DW_NCCL_STREAM_NON_BLOCKING);
    for (int i = 0; i < DW_NCCL_SLOTS && error == DW_NCCL_CUDA_SUCCESS; i++) {
        nccl_slot *slot = &way->slot[i];
        error = driver->event_create(&slot->event, DW_NCCL_EVENT_NO_TIMING);
        if (error == DW_NCCL_CUDA_SUCCESS)
            error = driver->host_allocate(&slot->pinned, DW_NCCL_CHUNK_BYTES, 0);
        if (error == DW_NCCL_CUDA_SUCCESS)
            error = driver->memory_allocate(&slot->staged, DW_NCCL_CHUNK_BYTES);
    }
    if (error == DW_NCCL_CUDA_SUCCESS) return DW_OK;
    return dw_say(why, DW_ERR_NO_MEMORY, "GPU %d has no room for a link over NCCL, %d MiB: %.120s",
                  nccl->device.ordinal, 2 * DW_NCCL_SLOTS * (DW_NCCL_CHUNK_BYTES >> 20),
                  dw_nccl_device_error(&nccl->device, error));
}

void dw_nccl_way_begin(nccl_way *way, void *data, size_t len, bool is_on_device)
{
    way->data = data;
    way->len = len;
    way->is_on_device = is_on_device;
    way->posted = way->done = 0;
}

bool dw_nccl_way_is_busy(const nccl_way *way)
{
    return way->done < way->len;
}

/* ---- Enqueueing ------------------------------------------------------------------------------ */

static nccl_slot *newest(nccl_way *way)
{
    return &way->slot[(way->head + way->n - 1) % DW_NCCL_SLOTS];
}

/* The newest chunk is on the stream. Enqueues the copy to the host, if there is one, and the
 * event. */
static void finish_issue(nccl_way *way)
{
    const dw_nccl_driver *driver = &way->nccl->device.driver;
    nccl_slot *slot = newest(way);
    way->is_issuing = false;
    if (!way->sends && !way->is_on_device &&
        !is_fine(way, driver->copy_out(slot->pinned, slot->staged, slot->len, way->stream),
                 "copying")) {
        return;
    }
    is_fine(way, driver->event_record(slot->event, way->stream), what_we_do(way));
}

/* Asks the communicator for the state of its last call. */
static void look_after_issue(nccl_way *way)
{
    int state = DW_NCCL_SUCCESS;
    int error = way->nccl->library.async_error(way->comm, &state);
    if (error == DW_NCCL_SUCCESS && state == DW_NCCL_IN_PROGRESS) return;
    if (error == DW_NCCL_SUCCESS) {
        if (state == DW_NCCL_SUCCESS && way->is_issuing) finish_issue(way);
        if (state == DW_NCCL_SUCCESS) return;
    }
    int told = error != DW_NCCL_SUCCESS ? error : state;
    fail(way, told == DW_NCCL_REMOTE_ERROR ? DW_ERR_PEER : DW_ERR_IO, what_we_do(way),
         dw_nccl_library_error(&way->nccl->library, way->comm, told));
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static void issue(nccl_way *way)
{
    const dw_nccl *nccl = way->nccl;
    way->n++;
    nccl_slot *slot = newest(way);
    unsigned char *data = way->data + way->posted;
    slot->len = least(way->len - way->posted, DW_NCCL_CHUNK_BYTES);
    void *at = way->is_on_device ? data : (void *)slot->staged;
    if (way->sends && !way->is_on_device) {
        memcpy(slot->pinned, data, slot->len);
        if (!is_fine(
                way,
                nccl->device.driver.copy_in(slot->staged, slot->pinned, slot->len, way->stream),
                "copying"))
            return;
    }
    int error = way->sends ? nccl->library.send(at, slot->len, DW_NCCL_UINT8, way->peer, way->comm,
                                                way->stream)
                           : nccl->library.receive(at, slot->len, DW_NCCL_UINT8, way->peer,
                                                   way->comm, way->stream);
    way->posted += slot->len;
    if (error != DW_NCCL_SUCCESS && error != DW_NCCL_IN_PROGRESS) {
        fail(way, error == DW_NCCL_REMOTE_ERROR ? DW_ERR_PEER : DW_ERR_IO, what_we_do(way),
             dw_nccl_library_error(&nccl->library, way->comm, error));
        return;
    }
    way->is_issuing = true;
    look_after_issue(way);
}

/* ---- Finishing ------------------------------------------------------------------------------- */

/* If the oldest chunk is complete, removes it and returns true. */
static bool take_oldest(nccl_way *way)
{
    if (way->n == 0 || (way->n == 1 && way->is_issuing)) return false;
    const nccl_slot *slot = &way->slot[way->head];
    int error = way->nccl->device.driver.event_query(slot->event);
    if (error == DW_NCCL_CUDA_NOT_READY || !is_fine(way, error, what_we_do(way))) return false;
    if (!way->sends && !way->is_on_device) memcpy(way->data + way->done, slot->pinned, slot->len);
    way->done += slot->len;
    way->moved_bytes += slot->len;
    way->head = (way->head + 1) % DW_NCCL_SLOTS;
    way->n--;
    return true;
}

bool dw_nccl_way_step(nccl_way *way)
{
    bool moved = false;
    if (way->status == DW_OK && (way->is_issuing || way->n > 0)) look_after_issue(way);
    while (way->status == DW_OK && take_oldest(way)) moved = true;
    while (way->status == DW_OK && !way->is_issuing && way->n < DW_NCCL_SLOTS &&
           way->posted < way->len) {
        issue(way);
        moved = true;
    }
    return moved;
}

/* ---- The end --------------------------------------------------------------------------------- */

static bool lets_go(const nccl_way *way)
{
    int64_t deadline = dw_now_ns() + abort_ns;
    int error;
    while ((error = way->nccl->device.driver.stream_query(way->stream)) == DW_NCCL_CUDA_NOT_READY &&
           dw_now_ns() < deadline) {
        poll(NULL, 0, 1);
    }
    return error != DW_NCCL_CUDA_NOT_READY;
}

dw_status dw_nccl_way_end(nccl_way *way)
{
    if (!way->nccl) return DW_OK;
    const dw_nccl_driver *driver = &way->nccl->device.driver;
    /* Either both ends have said goodbye, or something has failed. Data in flight is not needed in
     * either case. */
    if (way->comm) way->nccl->library.abort(way->comm);
    way->comm = NULL;
    if (way->stream && !lets_go(way)) return DW_PENDING;
    for (int i = 0; i < DW_NCCL_SLOTS; i++) {
        if (way->slot[i].event) driver->event_destroy(way->slot[i].event);
        if (way->slot[i].pinned) driver->host_free(way->slot[i].pinned);
        if (way->slot[i].staged) driver->memory_free(way->slot[i].staged);
    }
    if (way->stream) driver->stream_destroy(way->stream);
    *way = (nccl_way){.nccl = NULL};
    return DW_OK;
}
