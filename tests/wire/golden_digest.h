/* SPDX-License-Identifier: Apache-2.0
 * golden_digest.h - the digest that stands for many bytes in golden files: FNV-1a of 64 bits, which
 * every language can compute in a line or two. */
#ifndef DW_GOLDEN_DIGEST_H
#define DW_GOLDEN_DIGEST_H

#include <stddef.h>
#include <stdint.h>

static inline uint64_t golden_digest(const uint8_t *bytes, size_t n)
{
    uint64_t digest = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < n; i++) digest = (digest ^ bytes[i]) * UINT64_C(0x100000001b3);
    return digest;
}

#endif
