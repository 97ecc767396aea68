/* SPDX-License-Identifier: Apache-2.0
 * sentence.h - stores the sentence of an error. */
#ifndef DW_TRAINER_SENTENCE_H
#define DW_TRAINER_SENTENCE_H

#include "deltawire/deltawire.h"

/* Stores the sentence in *why, truncated if it is too long, and returns status. why may be NULL.
 * The arguments may point into why->text. */
__attribute__((format(printf, 3, 4))) dw_status dw_say(dw_why *why, dw_status status,
                                                       const char *format, ...);

#endif
