/* SPDX-License-Identifier: Apache-2.0
 * opening.h - the structs of transport.h by which a backend is opened and tells of itself, between
 * links and backends that were compiled with an older or a newer header (base/sized.h). */
#ifndef DW_OPENING_H
#define DW_OPENING_H

#include "base/sized.h"
#include "deltawire/transport.h"

/* Copies a backend's table of functions, and checks that it has all functions that a link needs. */
dw_status dw_take_transport(dw_transport *own, const dw_transport *given, dw_why *why);

/* The parameters by which a backend is opened, with a default for each pointer that the caller left
 * NULL: `cancelled` is never set, on_listening does nothing, and `why` points to spare. */
typedef struct dw_opening {
    dw_transport_open how;
    dw_why spare;
} dw_opening;
dw_status dw_take_opening(dw_opening *opening, const dw_transport_open *given);

/* For a backend's describe and poll: they call `fill` with a struct of our own length. If the
 * struct of the caller is shorter, the caller gets as much of it as has room. If struct_size was
 * not set, nothing happens. */
void dw_give_traits(const void *endpoint, dw_transport_traits *traits,
                    void (*fill)(const void *endpoint, dw_transport_traits *traits));
void dw_give_state(const void *endpoint, int asks_kernel, dw_transport_state *state,
                   void (*fill)(const void *endpoint, int asks_kernel, dw_transport_state *state));

/* The initial values of the structs that a caller passes to a backend's describe and poll. */
#define DW_NO_TRAITS ((dw_transport_traits){.struct_size = sizeof(dw_transport_traits)})
#define DW_NO_STATE                                                                                \
    ((dw_transport_state){.struct_size = sizeof(dw_transport_state), .wait_fd = -1, .wake_ns = -1})

#endif
