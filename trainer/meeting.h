/* SPDX-License-Identifier: Apache-2.0
 * meeting.h - opens a link to another rank, and checks that the other end is that rank and has the
 * same settings. */
#ifndef DW_TRAINER_MEETING_H
#define DW_TRAINER_MEETING_H

#include "stage.h"

typedef struct dw_meeting {
    uint32_t rank; /* the other one; of two ranks the one with the lower number listens */
    const char *uri;
    void (*on_listening)(void *context, const char *uri); /* NULL: nobody needs the address */
    void *context;
} dw_meeting;

/* Opens neighbour->link and compares greetings; the greeting is borrowed. Errors: those of
 * dw_link_open, of dw_settings_compare, and those of stage.h. */
dw_status dw_meet(dw_stage *stage, dw_neighbour *neighbour, const dw_meeting *meeting,
                  json_t *greeting);

#endif
