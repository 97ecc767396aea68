/* SPDX-License-Identifier: Apache-2.0
 * golden.h - makes a golden file: frames for one decoder, and for each of them the status, y, reply
 * and prev that every decoder must give. make_golden.c decides which frames.
 *
 * A file is JSON. "encoder" is the config of both ends. Each step has one line: "frame" goes to the
 * decoder, whose y has the extents "n", "t", "c" and the dtype "y_dtype". Frames that an encoder
 * made of x also have "x_dtype" and "x", of which the elements are repeated until x is full. "prev"
 * is what the decoder holds of each key afterwards. Bytes are written in hexadecimal, the low byte
 * of each element first. In place of the bytes of y or prev stands, where they are more than
 * GOLDEN_WHOLE, '#' with golden_digest of them.
 *
 * A file is written, or compared with the one that is there. Whatever differs is printed and
 * counted in golden_failures; no function returns a status. */
#ifndef DW_GOLDEN_H
#define DW_GOLDEN_H

#include "engine/engine.h"
#include "kernels/kernels.h"
#include "support/tool.h"

/* The most bytes of y or prev, and the most elements of x, that a file contains. A tensor of a
 * single row is told to its end. */
enum { GOLDEN_WHOLE = 256, GOLDEN_TOLD = 251 };

/* A golden file that is being made, with its encoder and decoder. */
typedef struct golden {
    const char *name;
    bool tells_x; /* write x with each frame */
    char *text;   /* the file so far: len bytes, in memory of cap */
    size_t len, cap;
    test_pair pair;
    dw_dtype x, y;
    uint32_t n, t, c;                   /* the shape of x */
    uint32_t frame_n, frame_t, frame_c; /* the shape of y that the decoder is given */
    dw_key keys[4];
    float *data; /* the values of x, of its dtype */
    size_t told; /* how many elements of x repeat */
    int steps;   /* the frames that were sent so far */
} golden;

extern int golden_failures;
extern const char *golden_directory;
extern bool golden_checks;               /* compare the files, do not write them */
extern const dw_kernels *golden_kernels; /* used by all ends; NULL: the best of this processor */

/* Opens a file NAME.json, and an encoder and a decoder for tensors x of this dtype and shape and y
 * of this dtype. config: that of both ends, without an incarnation. */
golden golden_begin(const char *name, const char *config, dw_dtype x, dw_dtype y, uint32_t n,
                    uint32_t t, uint32_t c);

/* Writes or compares the file, and frees everything. */
void golden_finish(golden *g);

/* Makes both ends use golden_kernels. golden_begin has done so; a new encoder needs it again. */
void golden_use_kernels(golden *g);

/* Fills x with random values with the deviation `size`. non_finite: 0; 1: some values are replaced
 * by hostile finite ones; 2: some of these are NaN and infinite. */
void golden_fill(golden *g, uint64_t seed, float size, int non_finite);

/* Repeats the first GOLDEN_TOLD elements of x, if it has more of them and more than one row, so
 * that the file is short. golden_fill does so. */
void golden_repeat(golden *g);

/* Encodes x as the next frame of the pair. */
void golden_encode(golden *g);

/* Gives the decoder the first `len` bytes of a frame, and adds to the file what it gives.
 * `expected` is the status that it must give. */
void golden_deliver(golden *g, const uint8_t *frame, size_t len, dw_status expected);

/* Delivers the frame of the pair. */
void golden_send(golden *g, dw_status expected);

/* Encodes x, and delivers the frame, which must be accepted. */
void golden_encode_and_send(golden *g);

/* Delivers the frame of the pair with another value in the byte `at`. sealed: compute the digests
 * again. */
void golden_send_with(golden *g, size_t at, uint8_t value, bool sealed, dw_status expected);

/* Delivers the first `len` bytes of the pair's frame; behind its end, up to 16 zeros follow. */
void golden_send_cut(golden *g, size_t len, dw_status expected);

#endif
