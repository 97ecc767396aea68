/* SPDX-License-Identifier: Apache-2.0
 * peer.h - what a baseline is: a published way to turn a tensor into bytes and back.
 *
 * A file per scheme has its arithmetic, written from its publication. It writes every byte that its
 * decoder needs: codes, scales, minima. Left out is only what both ends know beforehand, which is
 * the shape and the setting; and the length, which would be the message's. So a baseline has no
 * header, in contrast to a frame, and is that much shorter. */
#ifndef DELTAWIRE_BENCH_QUALITY_PEER_H
#define DELTAWIRE_BENCH_QUALITY_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct dw_shape {
    uint32_t T, C; /* tokens, channels; token-major */
} dw_shape;

/* What each field is:
 *
 * | name     | the scheme, for people                                                   |
 * | codec    | text of one setting, with %s where a word of settings goes               |
 * | settings | numbers, separated by blanks; each is a row of the results               |
 * | between  | any number between two settings is possible, too                         |
 * | room     | bytes that are always enough                                             |
 * | encode   | returns the bytes written, or 0: failed                                  |
 * | decode   | reads what encode wrote; returns whether it could                        | */
typedef struct dw_peer {
    const char *name, *codec, *settings;
    bool between;
    size_t (*room)(dw_shape shape, double setting);
    size_t (*encode)(dw_shape shape, double setting, const float *x, uint8_t *bytes);
    bool (*decode)(dw_shape shape, double setting, const uint8_t *bytes, size_t len, float *y);
} dw_peer;

extern const dw_peer dw_peer_acsgd, dw_peer_acsgd_l2, dw_peer_rowwise, dw_peer_linear,
    dw_peer_dynamic, dw_peer_normal, dw_peer_zfp_accuracy, dw_peer_zfp_rate;

/* All of them, NULL behind the last. */
extern const dw_peer *const dw_peers[];

/* Names, separated by a comma and a blank, of what this build has no library for; "": none. */
extern const char dw_peers_missing[];

#endif
