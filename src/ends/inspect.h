/* SPDX-License-Identifier: Apache-2.0
 * inspect.h - checks a frame's parameters and entries against the rules of its codec. */
#ifndef DW_INSPECT_H
#define DW_INSPECT_H

#include "codecs/plan.h"

/* Checks a frame that dw_frame_open has accepted. Returns NULL, or what is wrong. *plans: plans for
 * its parameters and shape; *config: what the parameters say. */
const char *dw_frame_check(const uint8_t *frame, const dw_header *header, dw_plans *plans,
                           dw_config *config);

/* Opens a frame and checks all of it but its payloads, for calls without a decoder. *reason: what
 * is wrong, where that is an error: FORMAT, VERSION or CORRUPT. */
dw_status dw_frame_inspect(const uint8_t *frame, size_t len, dw_header *header, dw_plans *plans,
                           dw_config *config, const char **reason);

#endif
