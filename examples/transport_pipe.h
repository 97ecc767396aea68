/* SPDX-License-Identifier: Apache-2.0
 * transport_pipe.h - the example of docs/transports.md: "pipe:///tmp/name" between two processes of one
 * machine. Give it to dw_link_open: options.transports = (const dw_transport *[]){&pipe_transport, NULL}. */
#ifndef TRANSPORT_PIPE_H
#define TRANSPORT_PIPE_H

#include "deltawire/transport.h"

extern const dw_transport pipe_transport;

#endif
