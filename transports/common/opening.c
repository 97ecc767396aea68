/* SPDX-License-Identifier: Apache-2.0
 * opening.c - how a backend is opened, and what it tells, if link and backend were compiled with
 * different headers. */
#include "common/opening.h"

#include "base/copied.h"
#include "base/mem.h"
#include "base/sentence.h"

DW_COPIED dw_status dw_take_transport(dw_transport *own, const dw_transport *given, dw_why *why)
{
    dw_status status = dw_take_asked(own, sizeof *own, given, "dw_transport", why);
    if (status != DW_OK) return status;
    if (own->open && own->close && own->send && own->recv && own->test && own->describe &&
        own->poll)
        return DW_OK;
    return dw_say(
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

DW_COPIED dw_status dw_take_opening(dw_opening *opening, const dw_transport_open *given)
{
    static const volatile int never = 0;
    dw_transport_open *how = &opening->how;
    opening->spare = (dw_why){.text = "", .offset = -1};
    dw_status status = dw_take_told(how, sizeof *how, given, "dw_transport_open", &opening->spare);
    if (status != DW_OK) return status;
    if (!how->why) how->why = &opening->spare;
    how->allocator = dw_mem_allocator(&how->allocator);
    if (!how->cancelled) how->cancelled = &never;
    if (!how->on_listening) how->on_listening = tell_nobody;
    if (how->address) return DW_OK;
    return dw_say(how->why, DW_ERR_ARGUMENT, "dw_transport_open.address is NULL");
}

DW_COPIED void dw_give_traits(const void *endpoint, dw_transport_traits *traits,
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

DW_COPIED void dw_give_state(const void *endpoint, int asks_kernel, dw_transport_state *state,
                             void (*fill)(const void *endpoint, int asks_kernel,
                                          dw_transport_state *state))
{
    dw_transport_state whole;
    if (state->struct_size >= sizeof whole) {
        fill(endpoint, asks_kernel, state);
    } else if (dw_take_told(&whole, sizeof whole, state, "dw_transport_state", NULL) == DW_OK) {
        fill(endpoint, asks_kernel, &whole);
        dw_give_told(state, &whole, sizeof whole, "dw_transport_state", NULL);
    }
}
