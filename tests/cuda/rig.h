/* SPDX-License-Identifier: Apache-2.0
 * rig.h - an encoder and a decoder on the fake device, and another pair on the CPU. Every function
 * checks that both pairs give the same results. */
#ifndef DW_TEST_CUDA_RIG_H
#define DW_TEST_CUDA_RIG_H

#include "deltawire/cuda.h"
#include "fake_cuda.h"
#include "support/async.h"
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
    dw_status status; /* of the last decode, which is the same for both decoders */
} rig;

/* What ends on a device are made with. */
#define RIG_HOST(on, at) (&(dw_host){.struct_size = sizeof(dw_host), .cuda = (on), .place = (at)})

extern const char *rig_library; /* the path of the fake driver */

dw_cuda *rig_open_cuda(void);
/* Closes the device. The test fails if memory on it was not released. */
void rig_close_cuda(dw_cuda *cuda);
void rig_open(rig *r, dw_cuda *cuda, const char *config, uint32_t n, uint32_t t, uint32_t c,
              dw_cuda_place place);
void rig_close(rig *r);
/* Closes r and its device. */
void rig_end(rig *r);

/* Both encoders encode r->x, converted to dtype x. Both frames have the same bytes; r->frame. */
void rig_encode(rig *r, const dw_key *keys, dw_dtype x);
/* The same with frames that carry prev itself for the keys. */
void rig_resync(rig *r, const dw_key *keys);
dw_status rig_encode_start(rig *r, const dw_key *keys, dw_dtype x, dw_encode_ticket **ticket);
/* Compares the frame with cpu_frame, which must have been encoded before. */
void rig_encode_end(rig *r, dw_encode_ticket *ticket);

/* Both decoders decode r->frame to y; status, y and reply are the same. */
void rig_decode(rig *r, dw_dtype y);
dw_status rig_decode_start(rig *r, dw_dtype y, dw_decode_ticket **ticket);
void rig_feedback(rig *r);
/* Both encoders forget the key. */
void rig_forget(rig *r, dw_key key);
/* Replaces both encoders by new ones, of another incarnation. */
void rig_begin_life(rig *r, dw_cuda_place place);
/* Both encoders take the frame back. keys: of the frame. */
void rig_give_back(rig *r, const dw_key *keys);
/* Both encoders undo the frame, which is the last one, made of r->x in dtype x. */
void rig_undo(rig *r, const dw_key *keys, dw_dtype x);

/* Checks that encoder and decoder hold the same bits of the key, on the device and on the CPU. */
void rig_in_step(rig *r, dw_key key);
void rig_same_counters(rig *r);
/* Checks that a refused call counted nothing. */
void rig_nothing_changed(dw_counters before, dw_counters after);

void rig_to_device(void *device, const void *host, size_t bytes);
void rig_from_device(void *host, const void *device, size_t bytes);

/* capture: calls that follow become a graph, 0 or 1, in place of running. replay: ends the capture
 * if there is one, and runs the graph to its end. */
void rig_capture(int graph);
void rig_replay(int graph);

/* Checks that the fake driver has no memory, context, module or stream that was not given back. */
void rig_nothing_left(void);

#endif
