/* SPDX-License-Identifier: Apache-2.0
 * backend.c - the backend's end of the link: what it says that it waits for, and what it counts. */
#include "link/endpoint.h"

bool dw_backend_create(dw_link_backend *backend, const dw_transport *transport,
                       const dw_allocator *allocator)
{
    backend->allocator = allocator;
    backend->transport = *transport;
    backend->endpoint = dw_mem_allocate_zeroed(allocator, 1, transport->endpoint_bytes);
    return backend->endpoint != NULL;
}

dw_status dw_backend_open(dw_link_backend *backend, const dw_transport_open *how)
{
    dw_status status = dw_backend_said(backend->transport.open(backend->endpoint, how));
    if (status == DW_PENDING) status = DW_ERR_IO; /* there is nothing to wait for */
    backend->is_open = status == DW_OK;
    return status;
}

void dw_backend_poll(dw_link_backend *backend, bool asks_kernel, int64_t now_ns)
{
    backend->state = DW_NO_STATE;
    backend->wake_ns = now_ns;
    if (backend->is_broken) return;
    backend->transport.poll(backend->endpoint, asks_kernel, &backend->state);
    int64_t left_ns = backend->state.wake_ns;
    bool is_never = left_ns < 0 || left_ns > INT64_MAX - now_ns;
    backend->wake_ns = is_never ? INT64_MAX : now_ns + left_ns;
}

struct pollfd dw_backend_wait(const dw_link_backend *backend)
{
    return (struct pollfd){.fd = backend->state.wait_fd,
                           .events = (short)backend->state.wait_events};
}

dw_transport_state dw_backend_state(const dw_link_backend *backend)
{
    dw_transport_state state = DW_NO_STATE;
    backend->transport.poll(backend->endpoint, 0, &state);
    return state;
}

void dw_backend_count(dw_link_backend *backend, const dw_transport_state *state,
                      bool has_asked_kernel)
{
    dw_link_counters *counters = &backend->counters;
    counters->bytes_sent = state->wire_sent;
    if (state->wire_received > counters->bytes_received)
        counters->bytes_received = state->wire_received;
    counters->resent_bytes = state->resent_bytes;
    counters->reconnects = state->reconnects;
    if (!has_asked_kernel) return;
    counters->kernel_bytes_sent = state->kernel_sent;
    counters->kernel_bytes_received = state->kernel_received;
    counters->retransmits = state->retransmits;
    counters->rtt_ns = state->rtt_ns;
}

void dw_backend_break(dw_link_backend *backend)
{
    backend->is_broken = true;
}

bool dw_backend_close(dw_link_backend *backend)
{
    if (!backend->is_open) return true;
    backend->is_open = false;
    return backend->transport.close(backend->endpoint) != DW_PENDING;
}

void dw_backend_destroy(dw_link_backend *backend)
{
    dw_mem_release(backend->allocator, backend->endpoint, backend->transport.endpoint_bytes);
}
