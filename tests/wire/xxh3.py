# SPDX-License-Identifier: Apache-2.0
# xxh3.py - XXH3-64 with seed 0 and the default secret, in pure Python (the H of docs/format.md).

import struct

MASK32 = 0xFFFFFFFF
MASK64 = 0xFFFFFFFFFFFFFFFF

PRIME32_1, PRIME32_2, PRIME32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
PRIME64_1 = 0x9E3779B185EBCA87
PRIME64_2 = 0xC2B2AE3D27D4EB4F
PRIME64_3 = 0x165667B19E3779F9
PRIME64_4 = 0x85EBCA77C2B2AE63
PRIME64_5 = 0x27D4EB2F165667C5
PRIME_MX1 = 0x165667919E3779F9
PRIME_MX2 = 0x9FB21C651E98DF25

SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)

STRIPE = 64  # bytes that one round of the long hash takes
STRIPES_PER_BLOCK = 16  # (192 - 64) / 8


def _read32(data, at):
    return struct.unpack_from("<I", data, at)[0]


def _read64(data, at):
    return struct.unpack_from("<Q", data, at)[0]


def _secret_pair(at):
    return _read64(SECRET, at) ^ _read64(SECRET, at + 8)


def _fold(a, b):
    """The xor of the two halves of the 128-bit product."""
    product = a * b
    return (product ^ (product >> 64)) & MASK64


def _rotl(h, by):
    return ((h << by) | (h >> (64 - by))) & MASK64


def _swap64(h):
    return int.from_bytes(h.to_bytes(8, "little"), "big")


def _avalanche(h):
    h ^= h >> 37
    h = h * PRIME_MX1 & MASK64
    return h ^ (h >> 32)


def _avalanche_xxh64(h):
    h ^= h >> 33
    h = h * PRIME64_2 & MASK64
    h ^= h >> 29
    h = h * PRIME64_3 & MASK64
    return h ^ (h >> 32)


def _hash_1_to_3(data):
    length = len(data)
    word = data[0] << 16 | data[length >> 1] << 24 | data[-1] | length << 8
    return _avalanche_xxh64(word ^ _read32(SECRET, 0) ^ _read32(SECRET, 4))


def _hash_4_to_8(data):
    length = len(data)
    word = _read32(data, length - 4) + (_read32(data, 0) << 32)
    h = word ^ _secret_pair(8)
    h ^= _rotl(h, 49) ^ _rotl(h, 24)
    h = h * PRIME_MX2 & MASK64
    h ^= (h >> 35) + length
    h = h * PRIME_MX2 & MASK64
    return h ^ (h >> 28)


def _hash_9_to_16(data):
    length = len(data)
    low = _read64(data, 0) ^ _secret_pair(24)
    high = _read64(data, length - 8) ^ _secret_pair(40)
    return _avalanche((length + _swap64(low) + high + _fold(low, high)) & MASK64)


def _mix16(data, at, secret_at):
    low = _read64(data, at) ^ _read64(SECRET, secret_at)
    high = _read64(data, at + 8) ^ _read64(SECRET, secret_at + 8)
    return _fold(low, high)


def _hash_17_to_128(data):
    length = len(data)
    acc = length * PRIME64_1
    for i in range((length - 1) // 32 + 1):
        acc += _mix16(data, 16 * i, 32 * i)
        acc += _mix16(data, length - 16 * (i + 1), 32 * i + 16)
    return _avalanche(acc & MASK64)


def _hash_129_to_240(data):
    length = len(data)
    acc = length * PRIME64_1
    for i in range(8):
        acc += _mix16(data, 16 * i, 16 * i)
    acc = _avalanche(acc & MASK64)
    for i in range(8, length // 16):
        acc += _mix16(data, 16 * i, 16 * (i - 8) + 3)
    acc += _mix16(data, length - 16, 136 - 17)
    return _avalanche(acc & MASK64)


def _accumulate(acc, data, at, secret_at):
    words = struct.unpack_from("<8Q", data, at)
    secret = struct.unpack_from("<8Q", SECRET, secret_at)
    for i in range(8):
        keyed = words[i] ^ secret[i]
        acc[i ^ 1] = (acc[i ^ 1] + words[i]) & MASK64
        acc[i] = (acc[i] + (keyed & MASK32) * (keyed >> 32)) & MASK64


def _scramble(acc):
    secret = struct.unpack_from("<8Q", SECRET, 128)
    for i in range(8):
        acc[i] = ((acc[i] ^ (acc[i] >> 47) ^ secret[i]) * PRIME32_1) & MASK64


def _hash_long(data):
    length = len(data)
    acc = [PRIME32_3, PRIME64_1, PRIME64_2, PRIME64_3, PRIME64_4, PRIME32_2, PRIME64_5, PRIME32_1]
    for stripe in range((length - 1) // STRIPE):
        in_block = stripe % STRIPES_PER_BLOCK
        _accumulate(acc, data, STRIPE * stripe, 8 * in_block)
        if in_block == STRIPES_PER_BLOCK - 1:
            _scramble(acc)
    _accumulate(acc, data, length - STRIPE, 192 - STRIPE - 7)
    h = length * PRIME64_1
    for i in range(4):
        at = 11 + 16 * i
        h += _fold(acc[2 * i] ^ _read64(SECRET, at), acc[2 * i + 1] ^ _read64(SECRET, at + 8))
    return _avalanche(h & MASK64)


def xxh3_64(data):
    """XXH3-64 of a bytes-like object, as an integer."""
    data = bytes(data)
    length = len(data)
    if length == 0:
        return _avalanche_xxh64(_secret_pair(56))
    if length <= 3:
        return _hash_1_to_3(data)
    if length <= 8:
        return _hash_4_to_8(data)
    if length <= 16:
        return _hash_9_to_16(data)
    if length <= 128:
        return _hash_17_to_128(data)
    if length <= 240:
        return _hash_129_to_240(data)
    return _hash_long(data)
