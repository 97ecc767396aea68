/* SPDX-License-Identifier: Apache-2.0
 * room.h - how the device memory is laid out that a launch needs for a payload that is
 * entropy-coded, or that is moved because an entropy-coded one in front of it became shorter.
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
 * For a payload that is only moved there is nothing but plain. Errors: none. */
#ifndef DW_CUDA_ROOM_H
#define DW_CUDA_ROOM_H

#include "arithmetic/coded.h"

enum { DW_ROOM_ALIGNMENT = 256 };

/* What an encoder knows of a block.
 *
 * | name   | meaning                                                                              |
 * | start  | where the block begins in the payload that the frame contains                        |
 * | from   | where it begins in the plain payload                                                 |
 * | size   | its bytes in the frame                                                               |
 * | front  | the first `front` bytes of a coded block are the first ones of its region            |
 * | tail   | ... and its other bytes lie in the region from byte `tail` on                        |
 * | is_raw | the block is a copy of its plain bytes, without front and tail                       |
 */
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

/* Returns what an encoder or a decoder needs behind the plain payload. The sums overflow only with
 * more blocks than a launch can have, and the host refuses those before it uses any of the sizes.
 */
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
