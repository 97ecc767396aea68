/* SPDX-License-Identifier: Apache-2.0
 * flight.h - one of several frames of a rig that are in progress at the same time, with its own
 * keys and memory. */
#ifndef DW_TEST_CUDA_FLIGHT_H
#define DW_TEST_CUDA_FLIGHT_H

#include "rig.h"

typedef struct flight {
    dw_key keys[2];
    uint8_t *device_frame, *device_x, *cpu_frame;
    uint8_t head[512];
    size_t cpu_len;
    dw_encode_ticket *out;
    dw_decode_ticket *in;
} flight;

void flight_open(flight *f, const rig *r);
void flight_close(flight *f);

/* flight_input draws x, for the CPU and for the device. flight_twin encodes it on the CPU.
 * flight_start does both and starts the encode on the device. flight_end finishes that, and checks
 * that the frame has the same bytes. */
dw_tensor flight_input(rig *r, flight *f, test_random *random);
void flight_twin(rig *r, flight *f);
void flight_start(rig *r, flight *f, test_random *random);
void flight_end(flight *f);

/* flight_arrive starts to decode the frame on the device. flight_land finishes that, and checks
 * that status, reply and tensor equal those of the CPU. */
void flight_arrive(rig *r, flight *f);
void flight_land(rig *r, flight *f);

#endif
