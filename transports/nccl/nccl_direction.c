/* SPDX-License-Identifier: Apache-2.0
 * nccl_direction.c - one direction of NCCL between two ranks: stages chunks, enqueues them and
 * finds out when they are complete, without waiting.
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

static void fail(nccl_direction *direction, dw_status status, const char *what, const char *words)
{
    if (direction->status != DW_OK) return;
    direction->status =
        dw_say(&direction->why, status, "NCCL failed while %s: %.180s", what, words);
}

static bool is_fine(nccl_direction *direction, int error, const char *what)
{
    if (error == DW_NCCL_CUDA_SUCCESS) return true;
    fail(direction, DW_ERR_IO, what, dw_nccl_device_error(&direction->nccl->device, error));
    return false;
}

static const char *what_we_do(const nccl_direction *direction)
{
    return direction->sends ? "sending" : "receiving";
}

dw_status dw_nccl_direction_make(nccl_direction *direction, const dw_nccl *nccl, bool sends,
                                 dw_why *why)
{
    const dw_nccl_driver *driver = &nccl->device.driver;
    direction->nccl = nccl;
    direction->sends = sends;
    int error = driver->stream_create(&direction->stream, DW_NCCL_STREAM_NON_BLOCKING);
    for (int i = 0; i < DW_NCCL_SLOTS && error == DW_NCCL_CUDA_SUCCESS; i++) {
        nccl_slot *slot = &direction->slot[i];
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

void dw_nccl_direction_begin(nccl_direction *direction, void *data, size_t len, bool is_on_device)
{
    direction->data = data;
    direction->len = len;
    direction->is_on_device = is_on_device;
    direction->posted = direction->done = 0;
}

bool dw_nccl_direction_is_busy(const nccl_direction *direction)
{
    return direction->done < direction->len;
}

/* ---- Enqueueing ------------------------------------------------------------------------------ */

static nccl_slot *newest(nccl_direction *direction)
{
    return &direction->slot[(direction->head + direction->n - 1) % DW_NCCL_SLOTS];
}

/* The newest chunk is on the stream. Enqueues the copy to the host, if there is one, and the
 * event. */
static void finish_issue(nccl_direction *direction)
{
    const dw_nccl_driver *driver = &direction->nccl->device.driver;
    nccl_slot *slot = newest(direction);
    direction->is_issuing = false;
    if (!direction->sends && !direction->is_on_device &&
        !is_fine(direction,
                 driver->copy_out(slot->pinned, slot->staged, slot->len, direction->stream),
                 "copying")) {
        return;
    }
    is_fine(direction, driver->event_record(slot->event, direction->stream), what_we_do(direction));
}

/* Asks the communicator for the state of its last call. */
static void look_after_issue(nccl_direction *direction)
{
    int state = DW_NCCL_SUCCESS;
    int error = direction->nccl->library.async_error(direction->comm, &state);
    if (error == DW_NCCL_SUCCESS && state == DW_NCCL_IN_PROGRESS) return;
    if (error == DW_NCCL_SUCCESS) {
        if (state == DW_NCCL_SUCCESS && direction->is_issuing) finish_issue(direction);
        if (state == DW_NCCL_SUCCESS) return;
    }
    int told = error != DW_NCCL_SUCCESS ? error : state;
    fail(direction, told == DW_NCCL_REMOTE_ERROR ? DW_ERR_PEER : DW_ERR_IO, what_we_do(direction),
         dw_nccl_library_error(&direction->nccl->library, direction->comm, told));
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static void issue(nccl_direction *direction)
{
    const dw_nccl *nccl = direction->nccl;
    direction->n++;
    nccl_slot *slot = newest(direction);
    unsigned char *data = direction->data + direction->posted;
    slot->len = least(direction->len - direction->posted, DW_NCCL_CHUNK_BYTES);
    void *at = direction->is_on_device ? data : (void *)slot->staged;
    if (direction->sends && !direction->is_on_device) {
        memcpy(slot->pinned, data, slot->len);
        if (!is_fine(direction,
                     nccl->device.driver.copy_in(slot->staged, slot->pinned, slot->len,
                                                 direction->stream),
                     "copying"))
            return;
    }
    int error = direction->sends
                    ? nccl->library.send(at, slot->len, DW_NCCL_UINT8, direction->peer,
                                         direction->comm, direction->stream)
                    : nccl->library.receive(at, slot->len, DW_NCCL_UINT8, direction->peer,
                                            direction->comm, direction->stream);
    direction->posted += slot->len;
    if (error != DW_NCCL_SUCCESS && error != DW_NCCL_IN_PROGRESS) {
        fail(direction, error == DW_NCCL_REMOTE_ERROR ? DW_ERR_PEER : DW_ERR_IO,
             what_we_do(direction), dw_nccl_library_error(&nccl->library, direction->comm, error));
        return;
    }
    direction->is_issuing = true;
    look_after_issue(direction);
}

/* ---- Finishing ------------------------------------------------------------------------------- */

/* If the oldest chunk is complete, removes it and returns true. */
static bool take_oldest(nccl_direction *direction)
{
    if (direction->n == 0 || (direction->n == 1 && direction->is_issuing)) return false;
    const nccl_slot *slot = &direction->slot[direction->head];
    int error = direction->nccl->device.driver.event_query(slot->event);
    if (error == DW_NCCL_CUDA_NOT_READY || !is_fine(direction, error, what_we_do(direction)))
        return false;
    if (!direction->sends && !direction->is_on_device)
        memcpy(direction->data + direction->done, slot->pinned, slot->len);
    direction->done += slot->len;
    direction->moved_bytes += slot->len;
    direction->head = (direction->head + 1) % DW_NCCL_SLOTS;
    direction->n--;
    return true;
}

bool dw_nccl_direction_step(nccl_direction *direction)
{
    bool moved = false;
    if (direction->status == DW_OK && (direction->is_issuing || direction->n > 0))
        look_after_issue(direction);
    while (direction->status == DW_OK && take_oldest(direction)) moved = true;
    while (direction->status == DW_OK && !direction->is_issuing && direction->n < DW_NCCL_SLOTS &&
           direction->posted < direction->len) {
        issue(direction);
        moved = true;
    }
    return moved;
}

/* ---- The end --------------------------------------------------------------------------------- */

static bool lets_go(const nccl_direction *direction)
{
    int64_t deadline = dw_now_ns() + abort_ns;
    int error;
    while ((error = direction->nccl->device.driver.stream_query(direction->stream)) ==
               DW_NCCL_CUDA_NOT_READY &&
           dw_now_ns() < deadline) {
        poll(NULL, 0, 1);
    }
    return error != DW_NCCL_CUDA_NOT_READY;
}

dw_status dw_nccl_direction_end(nccl_direction *direction)
{
    if (!direction->nccl) return DW_OK;
    const dw_nccl_driver *driver = &direction->nccl->device.driver;
    /* Either both ends have said goodbye, or something has failed. Data in flight is not needed in
     * either case. */
    if (direction->comm) direction->nccl->library.abort(direction->comm);
    direction->comm = NULL;
    if (direction->stream && !lets_go(direction)) return DW_PENDING;
    for (int i = 0; i < DW_NCCL_SLOTS; i++) {
        if (direction->slot[i].event) driver->event_destroy(direction->slot[i].event);
        if (direction->slot[i].pinned) driver->host_free(direction->slot[i].pinned);
        if (direction->slot[i].staged) driver->memory_free(direction->slot[i].staged);
    }
    if (direction->stream) driver->stream_destroy(direction->stream);
    *direction = (nccl_direction){.nccl = NULL};
    return DW_OK;
}
