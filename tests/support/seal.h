/* SPDX-License-Identifier: Apache-2.0
 * seal.h - computes the digests of a changed frame again, so that they match. */
#ifndef DW_TEST_SEAL_H
#define DW_TEST_SEAL_H

#include <stddef.h>
#include <stdint.h>

#include "deltawire/deltawire.h"

/* The offset of the entries, as the header says; it may be past the end of the frame. */
size_t test_entries_at(const uint8_t *frame);

/* Seals the tables and the header, if len bytes contain them. */
void test_seal_tables(uint8_t *frame, size_t len);

/* Seals also the payloads, if they lie within the frame as the entries say. */
void test_seal(uint8_t *frame, size_t len);

/* A frame of one entry of role skip, as a later encoder may write it, behind a frame of one entry
 * of that decoder's key: what is held stays, under the next sequence. after: the frame; its
 * length. */
size_t test_skip_frame(const uint8_t *after, const dw_decoder *decoder, uint8_t *frame, size_t cap);

#endif
