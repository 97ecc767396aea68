/* SPDX-License-Identifier: Apache-2.0
 * rig.h - an encoder and a decoder on the fake device, and the same on the CPU. Every function
 * asserts that both give the same results. */
#ifndef DW_TEST_CUDA_RIG_H
#define DW_TEST_CUDA_RIG_H

#include "deltawire/cuda.h"
#include "fake_cuda.h"
#include "support/tool.h"

typedef struct rig {
    dw_cuda *cuda;
    dw_config config;
    test_allocator allocator;
    uint32_t n, t, c;
    dw_encoder *encoder, *cpu_encoder;
    dw_decoder *decoder, *cpu_decoder;
    uint8_t *device_frame, *frame, *cpu_frame, *reply, *cpu_reply, *head;
    void *device_x, *device_y, *x, *y, *cpu_y;
    size_t cap, room, len, head_len, reply_cap, reply_len, cpu_reply_len, head_cap, tensor_bytes;
    dw_status status; /* of the last decode, both ends' */
} rig;

extern const char *rig_library; /* the fake's path */

dw_cuda *rig_open_cuda(void);
void rig_open(rig *r, dw_cuda *cuda, const char *config, uint32_t n, uint32_t t, uint32_t c,
              dw_cuda_place place);
void rig_close(rig *r);

/* Both encode r->x as x; the frames are the same bytes, in r->frame. */
void rig_encode(rig *r, const dw_key *keys, dw_dtype x);
/* Both make a frame of prev itself for the keys; otherwise as rig_encode. */
void rig_resync(rig *r, const dw_key *keys);
dw_status rig_encode_start(rig *r, const dw_key *keys, dw_dtype x, dw_encode_ticket **ticket);
/* Also compares with cpu_frame, which must have been made before. */
void rig_encode_end(rig *r, dw_encode_ticket *ticket);

/* Both decode r->frame to y; status, y and reply are the same. */
void rig_decode(rig *r, dw_dtype y);
dw_status rig_decode_start(rig *r, dw_dtype y, dw_decode_ticket **ticket);
void rig_feedback(rig *r);

/* Both ends hold the same bits of the key, on the device and on the CPU. */
void rig_in_step(rig *r, dw_key key);
void rig_same_counters(rig *r);

void rig_to_device(void *device, const void *host, size_t bytes);
void rig_from_device(void *host, const void *device, size_t bytes);

/* Nothing of the driver is in anybody's hands any more. */
void rig_nothing_left(void);

#endif
