/* SPDX-License-Identifier: Apache-2.0
 * aged.c - a backend compiled with another version of the header, in front of one of ours. */
#include "aged.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef struct aged_end {
    const dw_transport *inner;
    void *end;
    aged_time time;
} aged_end;

static aged_time current_time;
static atomic_int overruns;

void aged_set_time(aged_time time)
{
    current_time = time;
}

int aged_overruns(void)
{
    return atomic_load(&overruns);
}

static dw_status aged_open(void *context, const dw_transport_open *how)
{
    aged_end *end = context;
    GROWN(dw_transport_open) inner_how;
    memset(&inner_how, 0xa5, sizeof inner_how); /* nothing valid where no field is set */
    end->time = current_time;
    if (end->time == AGED_OLDER) {
        memcpy(&inner_how.known, how, offsetof(dw_transport_open, heeds_kept_sends));
        inner_how.known.struct_size = offsetof(dw_transport_open, heeds_kept_sends);
    } else {
        inner_how.known = *how;
        inner_how.known.struct_size = sizeof inner_how;
    }
    end->inner = how->find(how->find_context, how->address, &inner_how.known);
    if (!end->inner) return DW_ERR_UNSUPPORTED;
    end->end = calloc(1, end->inner->endpoint_bytes);
    if (!end->end) return DW_ERR_NO_MEMORY;
    dw_status status = end->inner->open(end->end, &inner_how.known);
    if (status != DW_OK) free(end->end);
    return status;
}

static dw_status aged_close(void *context)
{
    aged_end *end = context;
    dw_status closed = end->inner->close(end->end);
    free(end->end);
    return closed;
}

/* Requests are those of the inner backend; this is enough for any of them. */
enum { REQUEST_BYTES = 256 };

static dw_status aged_send(void *context, void *request, const void *data, size_t len)
{
    aged_end *end = context;
    return end->inner->send(end->end, request, data, len);
}

static dw_status aged_recv(void *context, void *request, void *room, size_t cap)
{
    aged_end *end = context;
    return end->inner->recv(end->end, request, room, cap);
}

static dw_status aged_test(void *context, void *request, size_t *len, dw_why *why)
{
    aged_end *end = context;
    return end->inner->test(end->end, request, len, why);
}

/* Checks a struct of `known` bytes, with guard bytes up to `bytes`. A changed guard byte counts as
 * an overrun, and so does a changed struct_size. */
static void check_struct(const void *given, size_t known, size_t bytes, size_t own_size)
{
    const unsigned char *at = given;
    size_t size;
    for (size_t i = known; i < bytes; i++) {
        if (at[i] != 0x5a) atomic_fetch_add(&overruns, 1);
    }
    memcpy(&size, given, sizeof size);
    if (size != own_size) atomic_fetch_add(&overruns, 1);
}

static void aged_describe(const void *context, dw_transport_traits *traits)
{
    const aged_end *end = context;
    GROWN(dw_transport_traits) inner;
    bool is_older = end->time == AGED_OLDER;
    size_t known = is_older ? offsetof(dw_transport_traits, is_secure) : sizeof *traits;
    memset(&inner, 0x5a, sizeof inner);
    memcpy(&inner.known, traits, known);
    inner.known.struct_size = is_older ? known : sizeof inner;
    end->inner->describe(end->end, &inner.known);
    check_struct(&inner, known, sizeof inner, is_older ? known : sizeof inner);
    size_t own_size = traits->struct_size;
    memcpy(traits, &inner.known, known);
    traits->struct_size = own_size;
}

static void aged_poll(const void *context, int asks_kernel, dw_transport_state *state)
{
    const aged_end *end = context;
    GROWN(dw_transport_state) inner;
    bool is_older = end->time == AGED_OLDER;
    size_t known = is_older ? offsetof(dw_transport_state, kernel_sent) : sizeof *state;
    memset(&inner, 0x5a, sizeof inner);
    memcpy(&inner.known, state, known);
    inner.known.struct_size = is_older ? known : sizeof inner;
    end->inner->poll(end->end, asks_kernel, &inner.known);
    check_struct(&inner, known, sizeof inner, is_older ? known : sizeof inner);
    size_t own_size = state->struct_size;
    memcpy(state, &inner.known, known);
    state->struct_size = own_size;
}

static dw_status never_called(void *context, dw_why *why)
{
    (void)context;
    (void)why;
    abort();
}

const dw_transport *aged_table(aged_time time, uint64_t more)
{
    static GROWN(dw_transport) table;
    table.known = (dw_transport){.scheme = "aged",
                                 .endpoint_bytes = sizeof(aged_end),
                                 .request_bytes = REQUEST_BYTES,
                                 .open = aged_open,
                                 .close = aged_close,
                                 .send = aged_send,
                                 .recv = aged_recv,
                                 .test = aged_test,
                                 .describe = aged_describe,
                                 .poll = aged_poll};
    table.more[0] = 0;
    table.more[1] = more;
    table.known.struct_size = sizeof table;
    if (time == AGED_OLDER) {
        table.known.struct_size = offsetof(dw_transport, turn);
        table.known.turn = never_called; /* memory behind the end of an older table */
    }
    return &table.known;
}
