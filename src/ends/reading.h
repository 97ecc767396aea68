/* SPDX-License-Identifier: Apache-2.0
 * reading.h - a frame's parameters and entries, judged by what its codec says. */
#ifndef DW_READING_H
#define DW_READING_H

#include "codecs/plan.h"

/* NULL, or what is wrong with a frame that dw_frame_open found nothing wrong with. *plans: made for
 * its parameters and shape; *config: what the parameters say. */
const char *dw_frame_check(const uint8_t *frame, const dw_header *header, dw_plans *plans,
                           dw_config *config);

#endif
