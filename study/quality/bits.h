/* SPDX-License-Identifier: Apache-2.0
 * bits.h - the baselines' serialization: writes and reads codes of 1 to 8 bits, 16-bit floats and
 * 32-bit floats, one behind the other in an array of bytes.
 *
 * Every function moves the address that it is given to the byte behind what it wrote or read. None
 * of them checks bounds: callers provide enough bytes (dw_peer.room). */
#ifndef DELTAWIRE_BENCH_QUALITY_BITS_H
#define DELTAWIRE_BENCH_QUALITY_BITS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* A position between two codes in an array of bytes. To begin, set `at` and leave the rest 0. Codes
 * fill each byte from its lowest bit. */
typedef struct dw_bits {
    uint8_t *at;      /* the next byte to write or to read */
    uint32_t waiting; /* the bits written but not stored yet, or read but not returned yet */
    unsigned n;       /* how many bits are waiting: 0 to 7 between two calls */
} dw_bits;

/* Writes a code of `width` bits. */
static inline void dw_bits_put(dw_bits *bits, uint32_t code, unsigned width)
{
    bits->waiting |= code << bits->n;
    bits->n += width;
    while (bits->n >= 8) {
        *bits->at++ = (uint8_t)bits->waiting;
        bits->waiting >>= 8;
        bits->n -= 8;
    }
}

/* Ends the writing: stores the waiting bits, if there are any, in a last byte that is filled up
 * with zero bits. Returns the address behind it. */
static inline uint8_t *dw_bits_end(dw_bits *bits)
{
    if (bits->n) *bits->at++ = (uint8_t)bits->waiting;
    bits->waiting = bits->n = 0;
    return bits->at;
}

/* Reads and returns a code of `width` bits. */
static inline uint32_t dw_bits_take(dw_bits *bits, unsigned width)
{
    while (bits->n < width) {
        bits->waiting |= (uint32_t)*bits->at++ << bits->n;
        bits->n += 8;
    }
    uint32_t code = bits->waiting & ((1u << width) - 1);
    bits->waiting >>= width;
    bits->n -= width;
    return code;
}

/* Writes a binary32 in the byte order of this machine. */
static inline void dw_put_float(uint8_t **at, float value)
{
    memcpy(*at, &value, sizeof value);
    *at += sizeof value;
}

/* Reads and returns a binary32 that dw_put_float wrote. */
static inline float dw_take_float(const uint8_t **at)
{
    float value;
    memcpy(&value, *at, sizeof value);
    *at += sizeof value;
    return value;
}

/* Returns value rounded to a number that a 16-bit float (binary16) can hold: the nearest one, ties
 * to even. Values beyond the range become the largest finite one; infinities and NaN stay. */
static inline float dw_as_half(float value)
{
    const double largest = 65504;
    if (!isfinite(value) || value == 0) return value;
    int exponent = ilogb((double)value);
    exponent = exponent < -14 ? -14 : exponent;
    double rounded = ldexp(rint(ldexp((double)value, 10 - exponent)), exponent - 10);
    return (float)(fabs(rounded) > largest ? copysign(largest, rounded) : rounded);
}

/* Writes a finite number that dw_as_half returned, as a little-endian binary16. */
static inline void dw_put_half(uint8_t **at, float value)
{
    int exponent = 0;
    double fraction = frexp((double)value, &exponent);
    int32_t units = 0; /* subnormal: multiples of 2^-24 */
    if (value != 0 && exponent < -13) {
        units = (int32_t)ldexp(fabs((double)value), 24);
        exponent = -14;
    } else if (value != 0) {
        units = (int32_t)ldexp(fabs(fraction), 11) - 1024;
    }
    uint32_t word = value == 0 ? 0u : (uint32_t)(exponent + 14) << 10 | (uint32_t)units;
    word |= signbit(value) ? 0x8000u : 0u;
    *(*at)++ = (uint8_t)word;
    *(*at)++ = (uint8_t)(word >> 8);
}

/* Reads and returns a finite binary16. */
static inline float dw_take_half(const uint8_t **at)
{
    uint32_t word = (uint32_t)(*at)[0] | (uint32_t)(*at)[1] << 8;
    int exponent = (int)(word >> 10 & 31);
    double units = word & 1023;
    *at += 2;
    double value = exponent ? ldexp(units + 1024, exponent - 25) : ldexp(units, -24);
    return (float)(word & 0x8000u ? -value : value);
}

#endif
