/* SPDX-License-Identifier: Apache-2.0
 * bytes.c - tests kernels on plain bytes: digests, and copies that bypass the caches. */
#include "check_kernels.h"
#include "kernel_rig.h"

KERNEL_TEST(payload_digests_equal_those_of_c)
{
    static uint8_t payload[4096];
    random_bytes(b, payload, sizeof payload);
    for (uint64_t from = 0; from <= 512; from += 16)
        for (uint64_t n = 0; n <= 1024; n += 16) {
            uint8_t *at_guard = slot_place(b->slots[SLOT_X], from + n, true);
            memcpy(at_guard, payload, from + n);
            assert_true(specification->digest_bytes(payload, from, n) ==
                        b->kernels->digest_bytes(at_guard, from, n));
        }
}

KERNEL_TEST(state_digests_equal_those_of_c)
{
    enum { SAMPLE = 3 * DW_TILE_ELEMENTS };
    static uint32_t sample[SAMPLE];
    random_bytes(b, sample, sizeof sample);
    for (uint64_t n = 1; n <= DW_TILE_ELEMENTS; n += n < 300 ? 1 : 97)
        for (int d = 0; d < DTYPES; d++)
            for (uint64_t first = 0; first < SAMPLE; first += DW_TILE_ELEMENTS) {
                size_t size = dw_dtype_bytes(dtypes[d]), bytes = (size_t)n * size;
                const void *stretch = (unsigned char *)sample + first * size;
                void *at_guard = slot_place(b->slots[SLOT_X], bytes, true);
                memcpy(at_guard, stretch, bytes);
                uint64_t expected = specification->digest(stretch, dtypes[d], first, n);
                assert_true(b->kernels->digest(at_guard, dtypes[d], first, n) == expected);
            }
}

KERNEL_TEST(streaming_copies_exactly_the_bytes)
{
    static unsigned char from[8192];
    for (size_t n = 0; n <= 600; n++) {
        random_bytes(b, from, n);
        unsigned char *to = b->slots[SLOT_NEXT].end - (n + 63) / 64 * 64;
        memset(to, 0, (size_t)(b->slots[SLOT_NEXT].end - to));
        b->kernels->stream(to, guarded_copy(b, SLOT_X, from, n), n, n % 2 == 0);
        same_bytes("streamed", from, to, n, b->kernels->name, "");
        for (unsigned char *rest = to + n; rest < b->slots[SLOT_NEXT].end; rest++)
            assert_int_equal(*rest, 0);
    }
}

int check_bytes(void)
{
    return test_run(NULL, NULL);
}
