/* SPDX-License-Identifier: Apache-2.0
 * peer.h - the interface of a baseline ("peer"): a published scheme that turns a tensor into bytes
 * and back, with which deltawire's codecs are compared.
 *
 * Each scheme has a file, whose arithmetic was written from the scheme's publication. encode writes
 * every byte that decode needs: codes, scales, minima. It leaves out the shape and the setting,
 * which both ends know beforehand, and the length, which the message would have. So a baseline's
 * bytes have no header, which makes them shorter than a frame of deltawire would be. */
#ifndef DELTAWIRE_BENCH_QUALITY_PEER_H
#define DELTAWIRE_BENCH_QUALITY_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct dw_shape {
    uint32_t T, C; /* tokens, channels; token-major */
} dw_shape;

/* The fields of a baseline. In the functions, `setting` is one number of settings, and x and y are
 * tensors of this shape.
 *
 * | name     | the name of the scheme, as people read it                                |
 * | codec    | the text that names the scheme with one setting; %s stands for this one  |
 * | settings | numbers, separated by blanks; each is measured, and is a row of the      |
 * |          | results                                                                  |
 * | between  | whether the scheme may have any number between two settings, too, so     |
 * |          | that the results between two rows can be interpolated                    |
 * | room     | returns how many bytes of memory are always enough for encode            |
 * | encode   | writes x to bytes; returns how many bytes it wrote, or 0 if it failed    |
 * | decode   | reads the len bytes that encode wrote, and writes the values to y;       |
 * |          | returns false if the bytes are not such                                  | */
typedef struct dw_peer {
    const char *name, *codec, *settings;
    bool between;
    size_t (*room)(dw_shape shape, double setting);
    size_t (*encode)(dw_shape shape, double setting, const float *x, uint8_t *bytes);
    bool (*decode)(dw_shape shape, double setting, const uint8_t *bytes, size_t len, float *y);
} dw_peer;

extern const dw_peer dw_peer_acsgd, dw_peer_acsgd_l2, dw_peer_rowwise, dw_peer_linear,
    dw_peer_dynamic, dw_peer_normal, dw_peer_zfp_accuracy, dw_peer_zfp_rate;

/* All baselines that this build has, and NULL behind the last one. */
extern const dw_peer *const dw_peers[];

/* The name of the library whose baselines this build lacks, or "" if it has all of them. */
extern const char dw_peers_missing[];

#endif
