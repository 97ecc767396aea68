/* SPDX-License-Identifier: Apache-2.0
 * sized.h - structs that begin with struct_size (transport.h says what that promises): they are
 * read from, and written for, callers that were compiled with an older or a newer header.
 *
 * | function        | for a struct that         | if it is longer than ours, the rest             |
 * | dw_take_asked   | asks for something        | must be zero, or the call is refused            |
 * | dw_take_told    | gives information         | is ignored                                      |
 * | dw_give_told    | the caller reads          | becomes zero                                    |
 *
 * If the struct is shorter than ours, the missing fields are read as zero, which is the default, or
 * are not written. */
#ifndef DW_SIZED_H
#define DW_SIZED_H

#include <stddef.h>

#include "deltawire/transport.h"

/* Fills in *own, which is own_bytes long, from *given. type: the name of the struct, for the
 * sentence of DW_ERR_ARGUMENT. */
dw_status dw_take_asked(void *own, size_t own_bytes, const void *given, const char *type,
                        dw_why *why);
dw_status dw_take_told(void *own, size_t own_bytes, const void *given, const char *type,
                       dw_why *why);

/* Copies *own into *given, as far as given->struct_size allows; struct_size itself is not changed.
 */
dw_status dw_give_told(void *given, const void *own, size_t own_bytes, const char *type,
                       dw_why *why);

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
