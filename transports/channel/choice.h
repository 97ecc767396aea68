/* SPDX-License-Identifier: Apache-2.0
 * choice.h - decides which of several configs a channel uses for its next frame. It stores what the
 * channel has measured and predicts the time of a training step from these numbers with the model
 * of base/forecast.h. It reads no clock and does no input or output, so that tests can pass
 * arbitrary numbers.
 *
 * "Candidates" are the configs of one direction, numbered from 0; the first one has the best
 * quality. An "empty message" is a message of the channel without a body (PING in envelope.h), by
 * which the channel measures the delay of the link. */
#ifndef DW_CHOICE_H
#define DW_CHOICE_H

#include <stdbool.h>
#include <stdint.h>

enum { DW_CHOICE_MOST = 8 }; /* the maximum number of candidates */

/* After a change of the candidate, the next change is allowed only after a pause of DW_CHOICE_PAUSE
 * frames, so that the choice does not alternate between two candidates. If a change follows the
 * previous one within DW_CHOICE_CALM pauses, the pause is doubled, up to DW_CHOICE_PAUSE_MOST
 * frames; otherwise it is reset to DW_CHOICE_PAUSE. */
enum { DW_CHOICE_PAUSE = 16, DW_CHOICE_PAUSE_MOST = 1024, DW_CHOICE_CALM = 4 };
/* A change is also not allowed before the receiver has acknowledged this many frames of the
 * candidate in use, because the rate of the link is unknown until then. */
enum { DW_CHOICE_DELIVERIES = 4 };

/* The rate of the link is computed from the last DW_CHOICE_WINDOW frames of a candidate and the
 * last DW_CHOICE_TRAVELS empty messages. */
enum { DW_CHOICE_WINDOW = 16, DW_CHOICE_TRAVELS = 64 };

/* A frame that has arrived at the receiver. since_last_s: the seconds between the arrival of the
 * previous frame and its own. travel_s: the seconds from sending to arrival. The time of sending is
 * read from the sender's clock and the time of arrival from the receiver's, so travel_s contains
 * the unknown difference between the two clocks. Only differences between two such times are
 * meaningful. */
typedef struct dw_choice_delivery {
    double bytes, since_last_s, travel_s;
} dw_choice_delivery;

typedef struct dw_choice_candidate {
    /* is_known: bytes and encode_s are set. is_measured: they were measured with frames that were
     * sent, not only estimated by dw_choice_guess. */
    bool is_known, is_measured;
    double bytes, encode_s; /* bytes of a frame and seconds of encoding, per element */
    /* The number of frames that arrived since the last change to this candidate, and the latest of
     * them: frame i is at window[i % DW_CHOICE_WINDOW]. */
    uint32_t deliveries;
    dw_choice_delivery window[DW_CHOICE_WINDOW];
} dw_choice_candidate;

typedef struct dw_choice {
    uint32_t n, now;        /* the number of candidates; the candidate in use */
    uint32_t micro_batches; /* frames that are sent in a training step */
    bool compute_is_given;  /* compute_s was set by the program and is not measured */
    double compute_s;       /* seconds that the program computes between two frames; < 0: unknown */
    /* The number of empty messages that arrived, and the travel times of the latest ones: message i
     * is at travel_s[i % DW_CHOICE_TRAVELS]. */
    uint32_t travels;
    double travel_s[DW_CHOICE_TRAVELS];
    uint32_t frames; /* the number of frames encoded since the last change */
    uint32_t pause;  /* the number of frames that must be encoded before the next change */
    dw_choice_candidate candidates[DW_CHOICE_MOST];
} dw_choice;

/* Initializes *choice; candidate 0 is in use. n: the number of candidates. micro_batches: the
 * number of frames in a training step; 0 means 4. compute_s: the seconds that the program computes
 * between two frames; 0 means that dw_choice_computed measures them. */
void dw_choice_begin(dw_choice *choice, uint32_t n, uint32_t micro_batches, double compute_s);

/* Records that `seconds` passed between two calls that send a frame. The program was computing in
 * this time, but it may also have been waiting. The two cannot be distinguished, so times that are
 * longer than the mean get a small weight. Has no effect if compute_s was given. */
void dw_choice_computed(dw_choice *choice, double seconds);

/* Records an estimate for a candidate of which no frame has been measured: encoding a tensor of
 * `elements` elements takes encode_s seconds and results in a frame of `bytes` bytes. */
void dw_choice_guess(dw_choice *choice, uint32_t candidate, double elements, double bytes,
                     double encode_s);

/* Records that a tensor of `elements` elements was encoded with this candidate, in encode_s
 * seconds, into a frame of `bytes` bytes. is_usual: no key in the frame was visited for the first
 * time. The frame of a first visit differs from all later ones in size and time, so frames that are
 * not usual are counted but not measured. */
void dw_choice_made(dw_choice *choice, uint32_t candidate, double elements, double bytes,
                    double encode_s, bool is_usual);

/* Records that an empty message arrived; travel_s: as in dw_choice_delivery. */
void dw_choice_travelled(dw_choice *choice, double travel_s);

/* Records that a frame of this candidate arrived. */
void dw_choice_delivered(dw_choice *choice, uint32_t candidate, const dw_choice_delivery *delivery);

/* Returns the rate of the link, in bytes per second, that is expected for frames of this candidate;
 * 0 if it is unknown. */
double dw_choice_rate(const dw_choice *choice, uint32_t candidate);

/* Returns whether the candidate may be changed before the next frame: the pause after the last
 * change has ended, and the rate of the link and the computing time of the program are known. */
bool dw_choice_is_due(const dw_choice *choice);

/* Returns the best candidate for the next frame, which has `elements` elements. If a change is due
 * and the candidate in use is known, sets step_s[i] to the predicted seconds of a step with
 * candidate i, or to 0 if candidate i is unknown; otherwise leaves step_s as it is. Does not modify
 * *choice. */
uint32_t dw_choice_best(const dw_choice *choice, double elements, double step_s[DW_CHOICE_MOST]);

/* Makes `candidate` the candidate in use. */
void dw_choice_change(dw_choice *choice, uint32_t candidate);

#endif
