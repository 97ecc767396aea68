/* SPDX-License-Identifier: Apache-2.0
 * trellis.h - the arithmetic of trellis-coded quantization, in code that C and CUDA share.
 *
 * Values are rounded to levels, which are whole multiples of a step, from -126 to 126. Each of 32
 * lanes (element i belongs to lane i mod 32) is in one of four states. In states 0 and 1 a value
 * may only become an even level, in states 2 and 3 only 0 or an odd level. So an entropy coder that
 * knows the state has half as many levels to tell apart, but the values that can be expressed by a
 * whole lane lie more densely than the multiples of two steps do: which levels come next is decided
 * by the levels before. An encoder finds the best sequence of levels of a lane with the algorithm
 * of Viterbi. At equal bits the error is smaller than that of single values rounded to the nearest.
 *
 * wide table:
 * | name  | meaning                                                                                  |
 * | level | 0 to 126 and a sign; the code is 128 + level, as of all codes in steps                   |
 * | index | of a level: half of its magnitude, rounded up, with its sign; -63 to 63                  |
 * | kind  | 0: even levels, 1: odd levels and 0. It is state / 2                                     |
 * | mark  | code of an index and a kind, in one byte: 128 + 2 index + kind                           |
 *
 * What encoders compute, and how, is not part of the format; which marks a decoder expects in which
 * state is (docs/format.md, 3.7).
 *
 * Sources: trellis-coded quantization: Marcellin and Fischer, 1990; these states, and 0 in both
 * kinds: dependent quantization in H.266 (Schwarz et al., 2019). */
#ifndef DW_TRELLIS_H
#define DW_TRELLIS_H

#include "arithmetic/half.h"
#include "common/shared.h"

enum {
    DW_TRELLIS_LANES = 32,
    DW_TRELLIS_STATES = 4,
    DW_TRELLIS_KINDS = 2,
    DW_TRELLIS_MOST = 124, /* steps to which magnitudes are limited before they are rounded */
    DW_TRELLIS_INDEX = 63, /* the largest index */
    DW_TRELLIS_ZERO = 128, /* the code of level 0 and of index 0 */
};

/* The state behind a level: depends only on whether its index is odd. */
DW_INLINE uint32_t dw_trellis_next(uint32_t state, uint32_t index_is_odd)
{
    return ((state ^ index_is_odd) & 1) << 1 | state >> 1;
}

/* The mark of a code, which must be a level that the kind allows. */
DW_INLINE uint8_t dw_trellis_mark(uint8_t code, uint32_t kind)
{
    int32_t level = code - DW_TRELLIS_ZERO, magnitude = level < 0 ? -level : level,
            index = (magnitude + 1) / 2;
    return (uint8_t)(DW_TRELLIS_ZERO + 2 * (level < 0 ? -index : index) + (int32_t)kind);
}

/* Whether the index of a mark is odd. */
DW_INLINE uint32_t dw_trellis_mark_is_odd(uint8_t mark)
{
    return mark >> 1 & 1;
}

/* The code of a mark. An odd mark is one of kind 1: its level is one nearer to 0 than twice the
 * index, unless the index is 0. */
DW_INLINE uint8_t dw_trellis_code(uint8_t mark)
{
    uint32_t nearer = mark % 2 * ((mark > DW_TRELLIS_ZERO) + (mark > DW_TRELLIS_ZERO + 1));
    return (uint8_t)(mark - nearer);
}

/* ---- What an encoder minimizes --------------------------------------------------------------- */

/* The bits that a level takes are estimated as if values had a normal distribution. Then a level
 * costs in proportion to its square, which is the same as making all values smaller by a factor
 * (dw_trellis_shrink), and 0 costs one bit more in kind 1 than the levels beside it, because its
 * neighbours are nearer (DW_TRELLIS_ZERO_COSTS). Both constants are in squares of a step. Of those
 * that were tried, these took the fewest bits at the same error, for values of a normal and of a
 * Laplace distribution, and for recorded activations. */
#define DW_TRELLIS_ZERO_COSTS   0.72f
#define DW_TRELLIS_SQUARE_COSTS 0.24

/* What a value is multiplied by before it is rounded. mean_square: of many values, in squares of a
 * step; it may be infinite. */
DW_INLINE float dw_trellis_shrink(double mean_square)
{
    if (!(mean_square < 1e9)) return 1;
    return (float)(mean_square / (mean_square + DW_TRELLIS_SQUARE_COSTS));
}

/* Returns the magnitude that is rounded: that of a scaled and shrunk value, limited. NaN, which
 * stands for padding, stays NaN. */
DW_INLINE float dw_trellis_magnitude(float scaled)
{
    float magnitude = dw_float_of(dw_bits_of(scaled) & 0x7fffffffu);
    return magnitude > DW_TRELLIS_MOST ? (float)DW_TRELLIS_MOST : magnitude;
}

/* Whether a scaled and shrunk value is limited. */
DW_INLINE int dw_trellis_is_limited(float scaled)
{
    return scaled > DW_TRELLIS_MOST || scaled < -DW_TRELLIS_MOST;
}

/* Returns the level nearest to a magnitude, of those of a kind whose index is odd, or even. They
 * are four steps apart. Adding 1.5 * 2^25, whose last place is worth 4, rounds to a multiple of 4.
 * Level 0, which kind 1 has instead of level -1, is nearest up to 1.5. Padding has level 0. */
DW_INLINE float dw_trellis_level(float magnitude, uint32_t kind, uint32_t index_is_odd)
{
    float offset = kind ? (index_is_odd ? 1.0f : 3.0f) : (index_is_odd ? 2.0f : 0.0f);
    float rounded = magnitude - offset + 50331648.0f;
    float level = rounded - 50331648.0f + offset;
    if (kind && !index_is_odd && magnitude < 1.5f) return 0;
    return magnitude == magnitude ? level : 0;
}

/* What it costs to round a magnitude to a level of such a kind. zero_costs: what level 0 costs
 * besides its error in kind 1. Of padding, only level 0 with an even index is possible. */
DW_INLINE float dw_trellis_cost(float magnitude, uint32_t kind, uint32_t index_is_odd,
                                float zero_costs)
{
    float error = magnitude - dw_trellis_level(magnitude, kind, index_is_odd);
    float square = error * error;
    if (magnitude != magnitude) return index_is_odd ? dw_float_of(DW_F32_INFINITY) : 0;
    return kind && !index_is_odd && magnitude < 1.5f ? square + zero_costs : square;
}

#endif
