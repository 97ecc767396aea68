/* SPDX-License-Identifier: Apache-2.0
 * flight.h - one of several frames of a rig that are in progress at the same time, with its own
 * keys and memory. */
#ifndef DW_TEST_CUDA_FLIGHT_H
#define DW_TEST_CUDA_FLIGHT_H

#include "rig.h"

typedef struct flight {
    dw_key keys[2];
    uint8_t *device_frame, *device_x;
    uint8_t cpu_frame[4096], head[512];
    size_t cpu_len;
    dw_encode_ticket *out;
    dw_decode_ticket *in;
} flight;

void flight_open(flight *f, const rig *r);
void flight_close(flight *f);

/* Draws x, on both sides; what the CPU makes of it; the same on the device, until it is under way;
 * its end, with the same bytes. */
dw_tensor flight_input(rig *r, flight *f, test_random *random);
void flight_twin(rig *r, flight *f);
void flight_start(rig *r, flight *f, test_random *random);
void flight_end(flight *f);

/* The frame on its way in, and its end, with the status, reply and tensor of the CPU. */
void flight_arrive(rig *r, flight *f);
void flight_land(rig *r, flight *f);

#endif
