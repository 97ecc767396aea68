/* SPDX-License-Identifier: Apache-2.0
 * sentence.h - saying why something failed. */
#ifndef DW_TRAINER_SENTENCE_H
#define DW_TRAINER_SENTENCE_H

#include "deltawire/deltawire.h"

/* Puts the sentence into *why (NULL is fine), cut where it is too long, and returns status. The
 * arguments may point into why->text. */
__attribute__((format(printf, 3, 4))) dw_status dw_say(dw_why *why, dw_status status,
                                                       const char *format, ...);

#endif
