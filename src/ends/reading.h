/* SPDX-License-Identifier: Apache-2.0
 * reading.h - checks a frame's parameters and entries against the rules of its codec. */
#ifndef DW_READING_H
#define DW_READING_H

#include "codecs/plan.h"

/* Checks a frame that dw_frame_open has accepted. Returns NULL, or what is wrong. *plans: plans for
 * its parameters and shape; *config: what the parameters say. */
const char *dw_frame_check(const uint8_t *frame, const dw_header *header, dw_plans *plans,
                           dw_config *config);

#endif
