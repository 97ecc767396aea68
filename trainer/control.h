/* SPDX-License-Identifier: Apache-2.0
 * control.h - what ranks say to each other besides tensors: control messages, and why they stop.
 *
 * Control messages are JSON, on tags below 256, which channels and groups do not use. Gathering and
 * spreading, for which every rank calls the same functions in the same sequence, are declared in
 * stage.h. Values go from stage to stage along each replica, and between the first stages of the
 * replicas.
 *
 * Errors: as in stage.h. */
#ifndef DW_TRAINER_CONTROL_H
#define DW_TRAINER_CONTROL_H

#include "stage.h"

enum {
    DW_TAG_GREETING = 1,
    DW_TAG_CONTROL = 2,
    DW_TAG_LAST_WORDS = 3,
    DW_TAG_ADDRESS = 4, /* replicas.c */
    DW_TAG_DIGESTS = 5  /* agreement.c */
};

/* Limit for greetings and control messages, which have some hundred bytes per rank. A message is
 * parsed before the neighbour is known to be a rank of this run, and parsed JSON takes twenty times
 * the memory of its text. */
enum { DW_MOST_CONTROL_BYTES = 1 << 20 };

/* Every wait checks at this interval whether the run was asked to stop. */
enum { DW_LOOK_MS = 50 };

/* value is borrowed; a received one is a new reference. */
dw_status dw_control_send(dw_stage *stage, dw_neighbour *to, uint32_t tag, json_t *value);
dw_status dw_control_recv(dw_stage *stage, dw_neighbour *from, uint32_t tag, json_t **value);

/* Passes a word along all ranks and back, so that afterwards each rank has met its neighbours. */
dw_status dw_control_assemble(dw_stage *stage);

/* From now on the reason why this neighbour stops is kept. */
void dw_control_listen(dw_neighbour *neighbour);

/* Sends the reason why this rank stops, stage->why, unless the neighbour has stopped already. */
void dw_control_part(dw_stage *stage, dw_neighbour *to, dw_status status);

/* Returns the error of a link that failed. stage->why gets the reason that some neighbour sent
 * before it ended, or else a sentence about this link. The last message of a neighbour arrives
 * before the end of its link, but this thread can be woken before the link's thread has handed the
 * message over. So both functions wait for half a second. await_words: OK if there is no reason. */
dw_status dw_control_lost(dw_stage *stage, dw_neighbour *neighbour, dw_status status,
                          const char *sentence);
dw_status dw_control_await_words(dw_stage *stage);

#endif
