/* SPDX-License-Identifier: Apache-2.0
 * quantized.h - functions shared by the files of the quantized form. */
#ifndef DW_QUANTIZED_H
#define DW_QUANTIZED_H

#include "codecs/form.h"
#include "codecs/tiles.h"

/* quantized_columns.c: chunks of payloads with a scale per channel. dw_columns_poison writes NaN to
 * y for poisoned channels. */
void dw_columns_encode(const dw_encode_job *job, uint64_t chunk, dw_chunk_result *result);
void dw_columns_decode(const dw_decode_job *job, uint64_t chunk);
void dw_columns_poison(const dw_decode_job *job, uint64_t chunk);

#endif
