/* SPDX-License-Identifier: Apache-2.0
 * message_mx.h - parts of a message whose payloads are microscaled: those of message.h, and the
 * element.
 *
 * Kernels: dw_mx_encode_<x>_<prev>, dw_mx_decode_<prev> and dw_mx_decode_direct_<y>, in phase
 * TILES. dw_audit_mx_encode and dw_audit_mx_decode, in phase AUDIT. No phase CHOOSE: a tile has
 * whole blocks, and whole bytes of choice bits. `chosen` is NULL. */
#ifndef DW_CUDA_MESSAGE_MX_H
#define DW_CUDA_MESSAGE_MX_H

#include "arithmetic/mx.h"
#include "message.h"

typedef struct dw_cuda_mx_encode_part {
    union { /* share begins both */
        dw_cuda_share share;
        dw_cuda_encode_part of;
    };
    dw_element element;
} dw_cuda_mx_encode_part;

typedef struct dw_cuda_mx_decode_part {
    union {
        dw_cuda_share share;
        dw_cuda_decode_part of;
    };
    dw_element element;
} dw_cuda_mx_decode_part;

#endif
