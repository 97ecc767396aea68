/* SPDX-License-Identifier: Apache-2.0
 * ledger.h - what the residuals of an encoder with feedback must be, computed from x and y alone.
 *
 * The ledger holds the residual of every key with the opposite sign, as the encoder does. */
#ifndef DELTAWIRE_TESTS_FUZZ_LEDGER_H
#define DELTAWIRE_TESTS_FUZZ_LEDGER_H

#include "fuzz.h"

enum { LEDGER_KEYS = 8, LEDGER_SAMPLES = 4 };

typedef struct ledger {
    dw_config config;
    dw_dtype dtype;
    uint32_t t, c;
    float decay;
    float *held[LEDGER_KEYS]; /* NULL: no residual */
} ledger;

/* config: that of the encoder. */
void ledger_open(ledger *l, const dw_config *config, dw_dtype dtype, uint32_t t, uint32_t c);
void ledger_close(ledger *l);

/* Whether the config has feedback. If it has not, the other functions do nothing. */
bool ledger_is_kept(const ledger *l);

/* To be called when the encoder has made this frame of x, whose samples have the keys `which`.
 * Requires that the encoder's residuals are what they must be. */
void ledger_sent(ledger *l, const dw_encoder *encoder, const uint8_t *frame, size_t len,
                 const dw_tensor *x, const uint32_t *which);

/* To be called when this frame was given back to the encoder (dw_encoder_give_back). Requires the
 * same. */
void ledger_given(ledger *l, const dw_encoder *encoder, const uint8_t *frame, size_t len,
                  const uint32_t *which);

/* To be called when this frame of x, the last one of its keys, was undone (dw_encoder_give_back).
 * Requires the same. */
void ledger_undone(ledger *l, const dw_encoder *encoder, const uint8_t *frame, size_t len,
                   const dw_tensor *x, const uint32_t *which);

void ledger_forget(ledger *l, uint32_t which);
void ledger_forget_all(ledger *l);

/* The key of number `which`, as fuzz_round_trip.c makes it. */
static inline dw_key ledger_key(uint32_t which)
{
    return (dw_key){.sample = which / 2, .slice = which % 2};
}

#endif
