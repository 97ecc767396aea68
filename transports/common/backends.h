/* SPDX-License-Identifier: Apache-2.0
 * backends.h - the backends that are built into the library. */
#ifndef DW_BACKENDS_H
#define DW_BACKENDS_H

#include "deltawire/transport.h"

extern const dw_transport dw_transport_loop;
extern const dw_transport dw_transport_tcp;
extern const dw_transport dw_transport_shaped;

#endif
