/* SPDX-License-Identifier: Apache-2.0
 * sized.c - structs from callers that were compiled with an older or a newer header. */
#include "common/sized.h"

#include <stdbool.h>
#include <string.h>

#include "common/memory.h"
#include "common/report.h"

/* No struct of this library will ever be longer. A larger struct_size was never set by the caller.
 */
enum { MOST_BYTES = 4096 };

static dw_status read_size(size_t *bytes, const void *given, const char *type, size_t own_bytes,
                           dw_why *why)
{
    memcpy(bytes, given, sizeof *bytes);
    if (*bytes >= sizeof *bytes && *bytes <= MOST_BYTES) return DW_OK;
    return dw_link_report(why, DW_ERR_ARGUMENT, "%s.struct_size is %zu; set it to sizeof(%s), %zu",
                          type, *bytes, type, own_bytes);
}

static bool is_zero(const unsigned char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (bytes[i]) return false;
    }
    return true;
}

static void take(void *own, size_t own_bytes, const void *given, size_t given_bytes)
{
    memset(own, 0, own_bytes);
    memcpy(own, given, given_bytes < own_bytes ? given_bytes : own_bytes);
    memcpy(own, &own_bytes, sizeof own_bytes);
}

dw_status dw_take_asked(void *own, size_t own_bytes, const void *given, const char *type,
                        dw_why *why)
{
    size_t bytes;
    dw_status status = read_size(&bytes, given, type, own_bytes, why);
    if (status != DW_OK) return status;
    if (bytes > own_bytes &&
        !is_zero((const unsigned char *)given + own_bytes, bytes - own_bytes)) {
        return dw_link_report(why, DW_ERR_ARGUMENT,
                              "%s has %zu bytes, and a field behind the first %zu, which are all "
                              "that deltawire %s knows, is set; leave it at zero, or use a newer "
                              "deltawire",
                              type, bytes, own_bytes, DW_VERSION_STRING);
    }
    take(own, own_bytes, given, bytes);
    return DW_OK;
}

dw_status dw_take_told(void *own, size_t own_bytes, const void *given, const char *type,
                       dw_why *why)
{
    size_t bytes;
    dw_status status = read_size(&bytes, given, type, own_bytes, why);
    if (status == DW_OK) take(own, own_bytes, given, bytes);
    return status;
}

dw_status dw_give_told(void *given, const void *own, size_t own_bytes, const char *type,
                       dw_why *why)
{
    size_t bytes;
    dw_status status = read_size(&bytes, given, type, own_bytes, why);
    if (status == DW_OK) take(given, bytes, own, own_bytes);
    return status;
}

dw_status dw_take_transport(dw_transport *own, const dw_transport *given, dw_why *why)
{
    dw_status status = dw_take_asked(own, sizeof *own, given, "dw_transport", why);
    if (status != DW_OK) return status;
    if (own->open && own->close && own->send && own->recv && own->test && own->describe &&
        own->poll)
        return DW_OK;
    return dw_link_report(
        why, DW_ERR_ARGUMENT,
        "the transport '%.40s' lacks one of open, close, send, recv, test, describe and poll; only "
        "turn may be left out",
        own->scheme ? own->scheme : "?");
}

static void tell_nobody(void *context, const char *uri)
{
    (void)context;
    (void)uri;
}

dw_status dw_take_opening(dw_opening *opening, const dw_transport_open *given)
{
    static const volatile int never = 0;
    dw_transport_open *how = &opening->how;
    opening->spare = (dw_why){.text = "", .offset = -1};
    dw_status status = dw_take_told(how, sizeof *how, given, "dw_transport_open", &opening->spare);
    if (status != DW_OK) return status;
    if (!how->why) how->why = &opening->spare;
    how->allocator = dw_memory_allocator(&how->allocator);
    if (!how->cancelled) how->cancelled = &never;
    if (!how->on_listening) how->on_listening = tell_nobody;
    if (how->address) return DW_OK;
    return dw_link_report(how->why, DW_ERR_ARGUMENT, "dw_transport_open.address is NULL");
}

void dw_give_traits(const void *endpoint, dw_transport_traits *traits,
                    void (*fill)(const void *endpoint, dw_transport_traits *traits))
{
    dw_transport_traits whole;
    if (traits->struct_size >= sizeof whole) {
        fill(endpoint, traits);
    } else if (dw_take_told(&whole, sizeof whole, traits, "dw_transport_traits", NULL) == DW_OK) {
        fill(endpoint, &whole);
        dw_give_told(traits, &whole, sizeof whole, "dw_transport_traits", NULL);
    }
}

void dw_give_state(const void *endpoint, int asks_kernel, dw_transport_state *state,
                   void (*fill)(const void *endpoint, int asks_kernel, dw_transport_state *state))
{
    dw_transport_state whole;
    if (state->struct_size >= sizeof whole) {
        fill(endpoint, asks_kernel, state);
    } else if (dw_take_told(&whole, sizeof whole, state, "dw_transport_state", NULL) == DW_OK) {
        fill(endpoint, asks_kernel, &whole);
        dw_give_told(state, &whole, sizeof whole, "dw_transport_state", NULL);
    }
}
