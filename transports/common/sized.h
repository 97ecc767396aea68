/* SPDX-License-Identifier: Apache-2.0
 * sized.h - structs that begin with struct_size (transport.h says what that promises): taken from,
 * and filled in for, whoever was compiled against an older or a newer header.
 *
 * | function        | for a struct that         | of one that is longer than ours, the rest       |
 * | dw_take_asked   | asks something of us      | must be zero, or the call is refused            |
 * | dw_take_told    | tells us something        | is ignored                                      |
 * | dw_give_told    | is the caller's to read   | becomes zero                                    |
 *
 * In all of them what is missing in one that is shorter is zero, the default, or is not written. */
#ifndef DW_SIZED_H
#define DW_SIZED_H

#include <stddef.h>

#include "deltawire/transport.h"

/* Fills in *own, own_bytes long, from *given. type: the struct's name, for the sentence of
 * DW_ERR_ARGUMENT. */
dw_status dw_take_asked(void *own, size_t own_bytes, const void *given, const char *type,
                        dw_why *why);
dw_status dw_take_told(void *own, size_t own_bytes, const void *given, const char *type,
                       dw_why *why);

/* Copies *own into *given, as far as the struct_size of *given reaches, which stays. */
dw_status dw_give_told(void *given, const void *own, size_t own_bytes, const char *type,
                       dw_why *why);

/* A backend's table, with every function that a link calls. */
dw_status dw_take_transport(dw_transport *own, const dw_transport *given, dw_why *why);

/* How a backend is opened, with all that must not be NULL: what the caller leaves out is never
 * cancelled, told to nobody, and explained to the spare. */
typedef struct dw_opening {
    dw_transport_open how;
    dw_why spare;
} dw_opening;
dw_status dw_take_opening(dw_opening *opening, const dw_transport_open *given);

/* Call `fill` for a backend's describe and poll: with *traits or *state itself where it is as long
 * as ours, or else with one that is, of which the caller gets what it has room for. Where it has no
 * size nothing happens. */
void dw_give_traits(const void *endpoint, dw_transport_traits *traits,
                    void (*fill)(const void *endpoint, dw_transport_traits *traits));
void dw_give_state(const void *endpoint, int asks_kernel, dw_transport_state *state,
                   void (*fill)(const void *endpoint, int asks_kernel, dw_transport_state *state));

/* What a caller of a backend's describe and poll begins with. */
#define DW_NO_TRAITS ((dw_transport_traits){.struct_size = sizeof(dw_transport_traits)})
#define DW_NO_STATE                                                                                \
    ((dw_transport_state){.struct_size = sizeof(dw_transport_state), .wait_fd = -1, .wake_ns = -1})

#endif
