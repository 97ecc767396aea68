/* SPDX-License-Identifier: Apache-2.0
 * kernels_table.h - the table of an instruction set whose kernels have the names of their rows in
 * dw_kernels.
 *
 * Included by the file of each instruction set, after its kernels. The three kernels for the parts
 * of dithered codes are arguments of the macro, because AVX-512 has two versions of each. */
#ifndef DW_KERNELS_TABLE_H
#define DW_KERNELS_TABLE_H

#define DW_KERNELS(name, count_parts, sort_parts, restore_parts)                                   \
    {                                                                                              \
        name, encode, decode, extremes, squares, column_extremes, column_squares, encode_columns,  \
            decode_columns, convert, digest, digest_bytes, stream, norms, add, subtract,           \
            mx_encode, mx_decode, step_squares, step_encode, step_decode, dither_bytes,            \
            count_parts, sort_parts, restore_parts, histogram, rans_encode, rans_decode,           \
            rans_decode_trellis, trellis_encode, trellis_marks, rotate, unrotate, weigh, unweigh,  \
            collect, compact, expand                                                               \
    }

#endif
