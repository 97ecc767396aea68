/* SPDX-License-Identifier: Apache-2.0
 * quantized.h - what the files of the quantized form share. */
#ifndef DW_QUANTIZED_H
#define DW_QUANTIZED_H

#include "codecs/form.h"
#include "kernels/kernels.h"

/* The address of an element; NULL where there is none. */
static inline void *dw_at(const void *base, dw_dtype dtype, uint64_t element)
{
    return base ? (unsigned char *)(uintptr_t)base + element * (dtype == DW_F32 ? 4 : 2) : NULL;
}

/* The norms in the counters come from one element in about so many. */
enum { DW_MEASURED_SHARE = 32 };

/* quantized_columns.c: chunks of payloads with a scale per channel. poison: NaN into y where
 * channels are poisoned. */
void dw_columns_encode(const dw_encode_job *job, uint64_t chunk, dw_chunk_result *result);
void dw_columns_decode(const dw_decode_job *job, uint64_t chunk);
void dw_columns_poison(const dw_decode_job *job, uint64_t chunk);

void dw_fill_nan(void *y, dw_dtype dtype, uint64_t n);

#endif
