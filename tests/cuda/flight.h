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
/* Opens `many` rigs, rig number i with configs[i], and a flight of each. Flight number i has the
 * keys {0, i} and {1, i}. */
void flights_open(uint32_t many, rig *rigs, flight *flights, dw_cuda *cuda,
                  const char *const *configs, const uint32_t shape[3], dw_cuda_place place);
void flights_close(uint32_t many, rig *rigs, flight *flights);

/* flight_input draws x, for the CPU and for the device. flight_twin encodes it on the CPU.
 * flight_start does both and starts the encode on the device. flight_end finishes that, and checks
 * that the frame has the same bytes. */
dw_tensor flight_input(rig *r, flight *f, test_random *random);
void flight_twin(rig *r, flight *f);
void flight_start(rig *r, flight *f, test_random *random);
void flight_end(flight *f);

/* Starts the encode, lets the device work, and ends it. */
void flight_send(rig *r, flight *f, test_random *random);

/* Items of launches of several frames: one that encodes *x, which is drawn and encoded on the CPU
 * first, and one that decodes to the memory of x, viewed as *y. */
dw_encode_item flight_encode_item(rig *r, flight *f, dw_tensor *x, test_random *random);
dw_decode_item flight_decode_item(rig *r, flight *f, dw_tensor *y);

/* flight_arrive starts to decode the frame on the device. flight_land finishes that, and checks
 * that status, reply and tensor equal those of the CPU. */
void flight_arrive(rig *r, flight *f);
void flight_land(rig *r, flight *f);
/* Both, with the device's work between them. */
void flight_receive(rig *r, flight *f);

#endif
