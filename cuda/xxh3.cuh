/* SPDX-License-Identifier: Apache-2.0
 * xxh3.cuh - H of docs/format.md, 1, on the device: XXH3-64 with seed 0 and the default secret,
 * over words of eight bytes.
 *
 * One thread hashes inputs of 24 to DW_XXH3_SHORT bytes. Longer inputs are hashed by eight lanes,
 * one chunk at a time. Lengths are multiples of 8. Source: xxHash, doc/xxhash_spec.md. */
#ifndef DW_CUDA_XXH3_CUH
#define DW_CUDA_XXH3_CUH

#include "block.cuh"

enum {
    DW_XXH3_SHORT = 240,
    DW_XXH3_LANES = 8,
    DW_XXH3_CHUNK_BYTES = 1024, /* bytes between two scrambles */
    DW_XXH3_STRIPE_BYTES = 64,
    DW_XXH3_SECRET_BYTES = 192
};

#define DW_XXH3_P32_1 0x9E3779B1u
#define DW_XXH3_P32_2 0x85EBCA77u
#define DW_XXH3_P32_3 0xC2B2AE3Du
#define DW_XXH3_P64_1 0x9E3779B185EBCA87u
#define DW_XXH3_P64_2 0xC2B2AE3D27D4EB4Fu
#define DW_XXH3_P64_3 0x165667B19E3779F9u
#define DW_XXH3_P64_4 0x85EBCA77C2B2AE63u
#define DW_XXH3_P64_5 0x27D4EB2F165667C5u

static __device__ const uint64_t dw_xxh3_secret[DW_XXH3_SECRET_BYTES / 8] = {
    0xbe4ba423396cfeb8u, 0x1cad21f72c81017cu, 0xdb979083e96dd4deu, 0x1f67b3b7a4a44072u,
    0x78e5c0cc4ee679cbu, 0x2172ffcc7dd05a82u, 0x8e2443f7744608b8u, 0x4c263a81e69035e0u,
    0xcb00c391bb52283cu, 0xa32e531b8b65d088u, 0x4ef90da297486471u, 0xd8acdea946ef1938u,
    0x3f349ce33f76faa8u, 0x1d4f0bc7c7bbdcf9u, 0x3159b4cd4be0518au, 0x647378d9c97e9fc8u,
    0xc3ebd33483acc5eau, 0xeb6313faffa081c5u, 0x49daf0b751dd0d17u, 0x9e68d429265516d3u,
    0xfca1477d58be162bu, 0xce31d07ad1b8f88fu, 0x280416958f3acb45u, 0x7e404bbbcafbd7afu};

/* Eight bytes of the secret, starting at any byte. */
DW_DEVICE uint64_t dw_xxh3_key(uint32_t at)
{
    uint32_t bits = at % 8 * 8;
    uint64_t low = dw_xxh3_secret[at / 8] >> bits;
    return bits ? low | dw_xxh3_secret[at / 8 + 1] << (64 - bits) : low;
}

DW_DEVICE uint64_t dw_xxh3_fold(uint64_t a, uint64_t b)
{
    return a * b ^ __umul64hi(a, b);
}

DW_DEVICE uint64_t dw_xxh3_avalanche(uint64_t hash)
{
    hash ^= hash >> 37;
    hash *= 0x165667919E3779F9u;
    return hash ^ hash >> 32;
}

/* Mixes two words, or two lanes. */
DW_DEVICE uint64_t dw_xxh3_mix(const uint64_t *words, uint32_t key)
{
    return dw_xxh3_fold(words[0] ^ dw_xxh3_key(key), words[1] ^ dw_xxh3_key(key + 8));
}

DW_DEVICE uint64_t dw_xxh3_of_short(const uint64_t *words, uint32_t bytes)
{
    uint64_t hash = bytes * DW_XXH3_P64_1;
    uint32_t n = bytes / 8, rounds = bytes <= 128 ? (bytes - 1) / 32 + 1 : 8;
    for (uint32_t i = 0; i < rounds && bytes <= 128; i++) {
        hash += dw_xxh3_mix(words + 2 * i, 32 * i);
        hash += dw_xxh3_mix(words + n - 2 * (i + 1), 32 * i + 16);
    }
    if (bytes <= 128) return dw_xxh3_avalanche(hash);
    for (uint32_t i = 0; i < rounds; i++) hash += dw_xxh3_mix(words + 2 * i, 16 * i);
    hash = dw_xxh3_avalanche(hash) + dw_xxh3_mix(words + n - 2, 136 - 17);
    for (uint32_t i = rounds; i < bytes / 16; i++)
        hash += dw_xxh3_mix(words + 2 * i, 16 * (i - rounds) + 3);
    return dw_xxh3_avalanche(hash);
}

/* The initial values of the lanes. */
static __device__ const uint64_t dw_xxh3_begin[DW_XXH3_LANES] = {
    DW_XXH3_P32_3, DW_XXH3_P64_1, DW_XXH3_P64_2, DW_XXH3_P64_3,
    DW_XXH3_P64_4, DW_XXH3_P32_2, DW_XXH3_P64_5, DW_XXH3_P32_1};

/* What a stripe of eight words adds to a lane. */
DW_DEVICE uint64_t dw_xxh3_stripe(const uint64_t *words, uint32_t lane, uint32_t key)
{
    uint64_t mixed = words[lane] ^ dw_xxh3_key(key + 8 * lane);
    return words[lane ^ 1] + (mixed & 0xffffffffu) * (mixed >> 32);
}

/* Advances a lane by one chunk. left: bytes from the start of the chunk to the end of the input.
 * The last stripe of the last chunk ends with the input, and may begin before the chunk. */
DW_DEVICE uint64_t dw_xxh3_chunk(uint64_t sum, const uint64_t *words, uint64_t left, uint32_t lane)
{
    bool is_last = left <= DW_XXH3_CHUNK_BYTES;
    uint32_t within = is_last ? (uint32_t)left - 1 : (uint32_t)DW_XXH3_CHUNK_BYTES,
             stripes = within / DW_XXH3_STRIPE_BYTES;
    for (uint32_t i = 0; i < stripes; i++)
        sum += dw_xxh3_stripe(words + DW_XXH3_LANES * i, lane, 8 * i);
    if (is_last)
        return sum + dw_xxh3_stripe(words + left / 8 - DW_XXH3_LANES, lane,
                                    DW_XXH3_SECRET_BYTES - DW_XXH3_STRIPE_BYTES - 7);
    sum ^= sum >> 47;
    sum ^= dw_xxh3_key(DW_XXH3_SECRET_BYTES - DW_XXH3_STRIPE_BYTES + 8 * lane);
    return sum * DW_XXH3_P32_1;
}

DW_DEVICE uint64_t dw_xxh3_of_lanes(const uint64_t lanes[DW_XXH3_LANES], uint64_t bytes)
{
    uint64_t hash = bytes * DW_XXH3_P64_1;
    for (uint32_t i = 0; i < DW_XXH3_LANES; i += 2) hash += dw_xxh3_mix(lanes + i, 11 + 8 * i);
    return dw_xxh3_avalanche(hash);
}

#endif
