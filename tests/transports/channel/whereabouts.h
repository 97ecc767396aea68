/* SPDX-License-Identifier: Apache-2.0
 * whereabouts.h - where the tensors of tested channels lie: in main memory (where_host.c), or, at
 * one end or both, on a fake device (where_device.c). The tests themselves keep their data in main
 * memory in both cases. */
#ifndef DW_TEST_WHEREABOUTS_H
#define DW_TEST_WHEREABOUTS_H

#include "channel/channel.h"

/* Reads the program's arguments. On a device these are the library that replaces libcuda, and which
 * ends use the device: both, pinned (both, with prev in pinned memory), paged (both, with prev in a
 * backing store but for what a call needs), sender or receiver. */
void where_begin(int argc, char **argv);

/* Completes the config of end 0 or 1. where_end is called after its channel was closed. */
void where_configure(dw_channel_config *config, int end);
void where_end(dw_channel_config *config);

/* Call dw_channel_send and dw_channel_recv, or the functions for tensors on a device. */
dw_status where_send(dw_channel *channel, const dw_key *keys, const dw_tensor *x);
dw_status where_recv(dw_channel *channel, int timeout_ms, dw_key *keys, const dw_tensor *y);

/* Changes a float of prev, as damaged memory would. */
void where_damage(const dw_channel *channel, float *value);

/* Whether an end uses the device, on which not all codecs can be computed. */
bool where_is_device(void);

/* How often the library has allocated device memory or pinned memory. */
long where_allocations(void);

#endif
