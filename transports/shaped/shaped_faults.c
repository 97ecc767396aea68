/* SPDX-License-Identifier: Apache-2.0
 * shaped_faults.c - draws the faults of each message: pseudorandom numbers from the seed, the end
 * of the link and the number of the message. */
#include "shaped/shaped_faults.h"

/* The finalizer of SplitMix64: neighbouring inputs give unrelated outputs. */
static uint64_t mix(uint64_t z)
{
    z += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* Each kind of fault has random numbers of its own, so that a test that adds one kind leaves the
 * others at the same messages. */
enum { OF_LOSS, OF_DUPLICATE, OF_CORRUPT, OF_BIT, OF_REORDER, OF_STALL, OF_CUT, OF_JITTER };

static double part_of(uint64_t stream, int which)
{
    return (double)(mix(stream + (uint64_t)which) >> 11) * 0x1p-53;
}

dw_shaped_fate dw_shaped_draw(const dw_shaped_settings *settings, dw_link_role role, uint64_t n,
                              uint64_t bytes_before)
{
    uint64_t stream = mix(mix(settings->seed * 2 + (role == DW_LINK_LISTEN)) + n);
    dw_shaped_fate fate = {.is_lost = part_of(stream, OF_LOSS) < settings->loss,
                           .is_doubled = part_of(stream, OF_DUPLICATE) < settings->duplicate,
                           .is_corrupt = part_of(stream, OF_CORRUPT) < settings->corrupt,
                           .is_held = part_of(stream, OF_REORDER) < settings->reorder,
                           .stalls = part_of(stream, OF_STALL) < settings->stall,
                           .flips = mix(stream + OF_BIT),
                           .late = part_of(stream, OF_JITTER)};
    fate.is_cut = part_of(stream, OF_CUT) < settings->disconnect ||
                  (settings->disconnect_messages > 0 && n >= settings->disconnect_messages) ||
                  (settings->disconnect_bytes > 0 && bytes_before >= settings->disconnect_bytes);
    return fate;
}

uint32_t dw_shaped_retry_ms(const dw_shaped_settings *settings)
{
    if (settings->loss <= 0 && settings->duplicate <= 0 && settings->corrupt <= 0 &&
        settings->reorder <= 0)
        return 0;
    /* About how long a request and its answer take: the delay in both directions, the time to
     * transmit 64 KiB in each direction, and 20 ms for a thread that wakes late. It need not be
     * exact, because the receiver waits longer before each further request. */
    double wait_ns = 20e6;
    if (!settings->has_virtual_time) {
        wait_ns +=
            2 * (settings->delay_ns + settings->jitter_ns) + 2 * 65536 * settings->ns_per_byte;
    }
    double wait_ms = wait_ns * 1e-6;
    return wait_ms < 60000 ? (uint32_t)wait_ms : 60000;
}
