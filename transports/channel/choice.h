/* SPDX-License-Identifier: Apache-2.0
 * choice.h - which of several configs a channel sends its next frame with: what the channel has
 * measured, and the decision that follows from these numbers by the model of base/forecast.h. No
 * clock and no input or output, so that tests can give the numbers. */
#ifndef DW_CHOICE_H
#define DW_CHOICE_H

#include <stdbool.h>
#include <stdint.h>

enum { DW_CHOICE_MOST = 8 };

/* A change waits until so many frames have been sent since the last one, so that the choice does
 * not go to and fro, and until so many of them were delivered. The pause doubles with each change
 * that follows the one before it within CALM pauses. */
enum { DW_CHOICE_PAUSE = 16, DW_CHOICE_PAUSE_MOST = 1024, DW_CHOICE_CALM = 4 };
enum { DW_CHOICE_DELIVERIES = 4 };

/* The rate of the link follows from so many of the latest frames of a candidate, and of messages
 * without contents. */
enum { DW_CHOICE_WINDOW = 16, DW_CHOICE_TRAVELS = 64 };

/* A frame that arrived: how long after the one before it, and how long after it was sent. The
 * second is the difference of two clocks, so only differences between such times mean anything. */
typedef struct dw_choice_delivery {
    double bytes, since_last_s, travel_s;
} dw_choice_delivery;

typedef struct dw_choice_candidate {
    /* is_known: bytes and encode_s are set. is_measured: from frames that were sent. */
    bool is_known, is_measured;
    double bytes, encode_s;                      /* of one element */
    uint32_t deliveries;                         /* since it was last taken */
    dw_choice_delivery window[DW_CHOICE_WINDOW]; /* number i at i % DW_CHOICE_WINDOW */
} dw_choice_candidate;

typedef struct dw_choice {
    uint32_t n, now; /* how many candidates; which of them is in use */
    uint32_t micro_batches;
    bool compute_is_given;
    double compute_s; /* between two frames; < 0: unknown */
    /* Messages without contents that arrived, and how long the last ones took; number i at
     * i % DW_CHOICE_TRAVELS */
    uint32_t travels;
    double travel_s[DW_CHOICE_TRAVELS];
    uint32_t frames; /* since the last change ... */
    uint32_t pause;  /* ... and how many there must be before the next one */
    dw_choice_candidate candidates[DW_CHOICE_MOST];
} dw_choice;

/* micro_batches 0: 4. compute_s 0: to be measured. */
void dw_choice_begin(dw_choice *choice, uint32_t n, uint32_t micro_batches, double compute_s);

/* The caller computed for so long between two frames. Waiting looks the same, so long times count
 * little. */
void dw_choice_computed(dw_choice *choice, double seconds);

/* What a candidate would take that no frame was made with. */
void dw_choice_guess(dw_choice *choice, uint32_t candidate, double elements, double bytes,
                     double encode_s);

/* A frame was made. is_usual: without first visits of keys, which tell nothing about later ones. */
void dw_choice_made(dw_choice *choice, uint32_t candidate, double elements, double bytes,
                    double encode_s, bool is_usual);

/* A message without contents arrived so long after it was sent. */
void dw_choice_travelled(dw_choice *choice, double travel_s);

void dw_choice_delivered(dw_choice *choice, uint32_t candidate, const dw_choice_delivery *delivery);

/* How many bytes per second the link is expected to carry with frames of a candidate; 0: unknown.
 */
double dw_choice_rate(const dw_choice *choice, uint32_t candidate);

/* Whether enough is known of link and program that the next frame may be made with another
 * candidate. */
bool dw_choice_is_due(const dw_choice *choice);

/* Returns the candidate for the next frame, of so many elements, and sets step_s[i] to the
 * predicted time of a step with candidate i, as far as it is known. Changes nothing. */
uint32_t dw_choice_best(const dw_choice *choice, double elements, double step_s[DW_CHOICE_MOST]);

void dw_choice_change(dw_choice *choice, uint32_t candidate);

#endif
