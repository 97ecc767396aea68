/* SPDX-License-Identifier: Apache-2.0
 * whereabouts.h - where the tensors of tested channels lie: in main memory (where_host.c), or at
 * one end or both on a fake device (where_device.c). The tests themselves keep their data in main
 * memory in both cases. */
#ifndef DW_TEST_WHEREABOUTS_H
#define DW_TEST_WHEREABOUTS_H

#include "channel/channel.h"

/* The program's arguments. On a device: the library that stands for libcuda, and which ends: both,
 * pinned (both, prev in pinned memory), sender, receiver. */
void where_begin(int argc, char **argv);

/* A channel's end, 0 or 1; end: after its channel was closed. */
void where_configure(dw_channel_config *config, int end);
void where_end(dw_channel_config *config);

/* dw_channel_send and dw_channel_recv, or those of a device. */
dw_status where_send(dw_channel *channel, const dw_key *keys, const dw_tensor *x);
dw_status where_recv(dw_channel *channel, int timeout_ms, dw_key *keys, const dw_tensor *y);

/* A float of prev becomes another. */
void where_rot(const dw_channel *channel, float *value);

/* Of the device's memory and of pinned memory by the library, so far. */
long where_allocations(void);

#endif
