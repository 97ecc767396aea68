/* SPDX-License-Identifier: Apache-2.0
 * mem_wire.c - a backend in memory. */
#include "mem_wire.h"

mem_wire wire;

enum { KEPT_MOST = sizeof wire.kept / sizeof *wire.kept };

void mem_wire_start(void)
{
    memset((char *)&wire + sizeof wire.queue, 0, sizeof wire - sizeof wire.queue);
}

void mem_wire_end(void)
{
    for (; wire.first < wire.n; wire.first++) free(wire.queue[wire.first].data);
}

unsigned char *mem_wire_add(size_t len)
{
    if (wire.n == MEM_WIRE_MESSAGES) return NULL;
    unsigned char *data = malloc(len ? len : 1);
    REQUIRE(data != NULL);
    wire.queue[wire.n++] = (struct mem_wire_message){.data = data, .len = len};
    return data;
}

/* The bytes of kept sends must be unchanged: the link must not have touched them. */
void mem_wire_keep(uint64_t keeps)
{
    wire.keeps = keeps < KEPT_MOST ? keeps : KEPT_MOST - 1;
    while (wire.n_kept > wire.keeps) {
        const struct mem_wire_kept *kept = &wire.kept[0];
        REQUIRE(kept->data[0] == kept->first_byte && kept->data[kept->len - 1] == kept->last_byte);
        memmove(wire.kept, wire.kept + 1, --wire.n_kept * sizeof *wire.kept);
    }
}

static dw_status wire_open(void *context, const dw_transport_open *how)
{
    (void)context;
    REQUIRE(how->address && how->longest_message > 0 && how->heeds_kept_sends);
    return DW_OK;
}

static dw_status wire_close(void *context)
{
    (void)context;
    return DW_OK;
}

static dw_status wire_send(void *context, void *request, const void *data, size_t len)
{
    (void)context;
    REQUIRE(!wire.data && len >= DW_LINK_HEADER_BYTES);
    *(char *)request = 's';
    wire.data = data;
    wire.len = len;
    return DW_OK;
}

static dw_status wire_recv(void *context, void *request, void *room, size_t cap)
{
    (void)context;
    REQUIRE(!wire.room && cap >= DW_LINK_HEADER_BYTES);
    *(char *)request = 'r';
    wire.room = room;
    wire.cap = cap;
    return DW_OK;
}

static dw_status test_send(size_t *len)
{
    REQUIRE(wire.data);
    if (wire.is_stuck) return DW_PENDING;
    wire.on_sent(wire.data, wire.len);
    wire.kept[wire.n_kept++] = (struct mem_wire_kept){.data = wire.data,
                                                      .len = wire.len,
                                                      .first_byte = wire.data[0],
                                                      .last_byte = wire.data[wire.len - 1]};
    *len = wire.len;
    wire.sent += wire.len;
    wire.n_sent++;
    wire.data = NULL;
    mem_wire_keep(wire.keeps);
    return DW_OK;
}

static dw_status test_recv(size_t *len, dw_why *why)
{
    REQUIRE(wire.room);
    if (wire.first == wire.n) {
        if (wire.ends_with != DW_OK) snprintf(why->text, sizeof why->text, "the wire ends");
        return wire.ends_with == DW_OK ? DW_PENDING : wire.ends_with;
    }
    const struct mem_wire_message *next = &wire.queue[wire.first];
    *len = next->announced ? next->announced : next->len;
    if (*len > wire.cap) {
        wire.room = NULL;
        return DW_ERR_BUFFER_TOO_SMALL;
    }
    memcpy(wire.room, next->data, *len);
    free(next->data);
    wire.received += *len;
    wire.first++;
    if (wire.first == wire.n) wire.first = wire.n = 0;
    wire.room = NULL;
    return DW_OK;
}

static dw_status wire_test(void *context, void *request, size_t *len, dw_why *why)
{
    (void)context;
    return *(char *)request == 's' ? test_send(len) : test_recv(len, why);
}

static void wire_describe(const void *context, dw_transport_traits *traits)
{
    (void)context;
    traits->loses = wire.retry_ms > 0;
    traits->retry_ms = wire.retry_ms;
    memcpy(traits->peer, "the fuzzer", sizeof "the fuzzer");
}

static void wire_poll(const void *context, int asks_kernel, dw_transport_state *state)
{
    (void)context;
    (void)asks_kernel;
    state->wait_fd = -1;
    state->wake_ns = wire.room && wire.first < wire.n ? 0 : (int64_t)1000 * DW_NS_PER_MS;
    state->wire_sent = wire.sent;
    state->wire_received = wire.received;
    state->kept_sends = wire.n_kept;
}

const dw_transport mem_wire_transport = {.struct_size = sizeof(dw_transport),
                                         .scheme = "mem",
                                         .endpoint_bytes = 16,
                                         .request_bytes = 16,
                                         .open = wire_open,
                                         .close = wire_close,
                                         .send = wire_send,
                                         .recv = wire_recv,
                                         .test = wire_test,
                                         .describe = wire_describe,
                                         .poll = wire_poll};
