/* SPDX-License-Identifier: Apache-2.0
 * seal.h - computes the digests of a changed frame again, so that they match. */
#ifndef DW_TEST_SEAL_H
#define DW_TEST_SEAL_H

#include <stddef.h>
#include <stdint.h>

#include "deltawire/deltawire.h"

/* The offset of the entries, as the header says; it may be past the end of the frame. */
size_t test_entries_at(const uint8_t *frame);

/* Computes the digests of the tables and the header, if they lie within len bytes. */
void test_seal_tables(uint8_t *frame, size_t len);

/* Computes also the digests of the payloads, if they lie within the frame as the entries say. */
void test_seal(uint8_t *frame, size_t len);

/* Writes a frame of one entry of role skip, which later encoders may write but ours does not. It is
 * to be sent after the frame `after`, which has one entry, and when the decoder has accepted that:
 * prev stays as it is, under the next sequence. Returns the length of the new frame. */
size_t test_skip_frame(const uint8_t *after, const dw_decoder *decoder, uint8_t *frame, size_t cap);

#endif
