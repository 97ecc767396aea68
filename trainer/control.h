/* SPDX-License-Identifier: Apache-2.0
 * control.h - what ranks send each other besides tensors: control messages, and the reason why a
 * rank stops.
 *
 * Control messages are JSON, on tags below 256, which channels and groups do not use. stage.h
 * declares the functions that collect values of all ranks or distribute a value to all. They send
 * values from stage to stage within a replica, and between the first stages of the replicas.
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

/* Send and receive a control message. send: value is borrowed. recv: *value is a new reference. */
dw_status dw_control_send(dw_stage *stage, dw_neighbour *to, uint32_t tag, json_t *value);
dw_status dw_control_recv(dw_stage *stage, dw_neighbour *from, uint32_t tag, json_t **value);

/* Waits until all ranks have called this function. So each rank has met its neighbours then. */
dw_status dw_control_assemble(dw_stage *stage);

/* From now on neighbour->words gets the reason why this neighbour stops. */
void dw_control_listen(dw_neighbour *neighbour);

/* Sends the reason why this rank stops, stage->why, unless the neighbour has stopped already. */
void dw_control_part(dw_stage *stage, dw_neighbour *to, dw_status status);

/* To be called when something has failed that may be the consequence of another rank's end.
 * await_words: waits up to half a second for the reason that some rank has sent why it stopped, and
 * returns its status, with the reason in stage->why; OK if none has arrived. The wait is needed
 * because this thread may learn that a link has failed before the thread of that link has stored
 * the reason. lost: the same for a link that failed; if no reason arrives, it returns `status`, and
 * stage->why gets `sentence`, or if that is empty a sentence about this link. */
dw_status dw_control_lost(dw_stage *stage, dw_neighbour *neighbour, dw_status status,
                          const char *sentence);
dw_status dw_control_await_words(dw_stage *stage);

#endif
