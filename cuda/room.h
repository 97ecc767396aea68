/* SPDX-License-Identifier: Apache-2.0
 * room.h - the device memory of a part whose payload is coded, or moved behind a coded one.
 *
 * | name    | of an encoder                                       | of a decoder             |
 * | plain   | the form's payload                                  | the form's payload       |
 * | regions | the coded blocks, each where it lies in the plain   |                          |
 * |         | payload                                             |                          |
 * | notes   | of every block, and of the end behind the last one  |                          |
 * | work    | of every block: its codes, one per byte (unless     | the same                 |
 * |         | blocks are bare), and these sorted into parts (with |                          |
 * |         | dither)                                             |                          |
 *
 * All of them but plain are missing where the payload is only moved. Errors: false where the sizes
 * are too large. */
#ifndef DW_CUDA_ROOM_H
#define DW_CUDA_ROOM_H

#include "arithmetic/coded.h"

enum { DW_ROOM_ALIGNMENT = 256 };

/* What an encoder knows of a block. start: where it begins in the payload in the frame; from: in
 * the plain payload. size: in the frame. Of a raw block, which is a copy of its plain bytes,
 * nothing else is used. The first `front` bytes of another one are the first of its region, and the
 * rest lies in the region from byte `tail` on. */
typedef struct dw_cuda_note {
    uint64_t start, from;
    uint32_t size, front, tail, is_raw;
} dw_cuda_note;

/* Offsets from the job's scratch, in which plain is not included. each: the work of one block. */
typedef struct dw_cuda_room {
    uint64_t notes, work, each, codes_bytes, bytes;
} dw_cuda_room;

DW_INLINE uint64_t dw_room_up(uint64_t bytes)
{
    return dw_round_up(bytes, DW_ROOM_ALIGNMENT);
}

/* The room of an encoder or decoder behind the plain payload. Sizes wrap only where the number of
 * blocks exceeds that of a grid, which the host refuses before it uses any. */
DW_INLINE dw_cuda_room dw_cuda_room_of(const dw_layout *layout, bool encodes)
{
    dw_coded coded = dw_coded_of(layout);
    uint64_t each = dw_room_up(dw_block_most_codes(layout));
    dw_cuda_room room;
    room.codes_bytes = dw_blocks_are_bare(layout) ? 0 : each;
    room.each = room.codes_bytes + (layout->dithers ? each : 0);
    room.notes = encodes ? dw_room_up(layout->payload_bytes - coded.front) : 0;
    room.work = room.notes + (encodes ? dw_room_up((coded.blocks + 1) * sizeof(dw_cuda_note)) : 0);
    room.bytes = room.work + coded.blocks * room.each;
    return room;
}

#endif
