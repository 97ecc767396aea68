/* SPDX-License-Identifier: Apache-2.0
 * rotate.h - the rotation of blocks of channels by a Hadamard matrix (docs/format.md, 3.11), in
 * code that C and CUDA share.
 *
 * The matrix is symmetric and, divided by the root of its width, orthogonal, so the same function
 * rotates and rotates back. Widths are powers of four, whose roots are powers of two; then only the
 * additions round. Values are divided by the width first and multiplied by its root last. So no sum
 * of finite values overflows, and no NaN can come of them; only the last product can be infinite.
 *
 * Source: the fast Walsh-Hadamard transform, in the order of Sylvester's matrices. */
#ifndef DW_ROTATE_H
#define DW_ROTATE_H

#include <stdint.h>

#include "common/shared.h"

enum { DW_ROTATE_MOST = 256 };

/* The root of a width: 1, 16, 64 or 256. */
DW_INLINE float dw_rotate_root(uint32_t width)
{
    return width == 256 ? 16.0f : width == 64 ? 8.0f : width == 16 ? 4.0f : 1.0f;
}

/* Rotates a block of so many values in place. Width 1 changes nothing. */
DW_INLINE void dw_rotate_block(float *v, uint32_t width)
{
    float first = 1.0f / (float)width, last = dw_rotate_root(width);
    for (uint32_t i = 0; i < width; i++) v[i] *= first;
    for (uint32_t stride = 1; stride < width; stride *= 2)
        for (uint32_t from = 0; from < width; from += 2 * stride)
            for (uint32_t i = from; i < from + stride; i++) {
                float a = v[i], b = v[i + stride];
                v[i] = a + b;
                v[i + stride] = a - b;
            }
    for (uint32_t i = 0; i < width; i++) v[i] *= last;
}

#endif
