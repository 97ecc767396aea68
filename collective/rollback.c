/* SPDX-License-Identifier: Apache-2.0
 * rollback.c - what an operation that fails gives back: y, and the residuals of error feedback.
 *
 * Results are decoded into y while others may still be missing, so each piece is copied before, and
 * copied back if the operation fails; not once the operation is safe (all_gather.c).
 *
 * An encoder changes the residual of a piece as soon as it encodes the piece, so the frames of an
 * operation are kept until it has finished. To give them back would not be enough: the residuals
 * would then contain x, and the next operation would send it as well, although the caller was told
 * that this operation has failed, and may repeat it. So they are undone. */
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "exchange.h"

/* ---- The output ------------------------------------------------------------------------------ */

/* Copies what is read again only after an error. Stores that bypass the caches leave there what the
 * next decode needs, and do not read the memory that they overwrite: an all-reduce of 64 MiB with 4
 * bits takes 3 % less time. Short copies stay in the caches anyway. */
enum { BYPASS_FROM = 65536, LINE = 64 };

static void copy_past(unsigned char *to, const unsigned char *from, size_t n)
{
#ifdef __SSE2__
    if (n >= BYPASS_FROM && (uintptr_t)to % sizeof(__m128i) == 0) {
        size_t lines = n / LINE;
        for (size_t i = 0; i < lines; i++, to += LINE, from += LINE) {
            for (size_t at = 0; at < LINE; at += sizeof(__m128i)) {
                __m128i part = _mm_loadu_si128((const void *)(from + at));
                _mm_stream_si128((void *)(to + at), part);
            }
        }
        _mm_sfence(); /* another thread may read it under the group's lock */
        n -= lines * LINE;
    }
#endif
    memcpy(to, from, n);
}

unsigned char *dw_rollback_y(const dw_group_slot *slot, dw_piece at)
{
    const dw_group_job *job = &slot->now.job;
    return (unsigned char *)job->y + at.begin * dw_dtype_bytes(job->dtype);
}

unsigned char *dw_rollback_room(dw_group_slot *slot, unsigned char *taken, dw_piece at)
{
    const dw_group_job *job = &slot->now.job;
    size_t each = dw_dtype_bytes(job->dtype);
    unsigned char *kept = slot->gather.result + at.begin * each;
    if (!slot->gather.lands_in_y) return kept; /* and copied to y at the end */
    unsigned char *y = dw_rollback_y(slot, at);
    copy_past(kept, y, (size_t)at.count * each);
    *taken |= DW_PIECE_OVERWRITTEN;
    return y;
}

void dw_rollback_output(const dw_settings *settings, dw_group_slot *slot)
{
    const dw_group_job *job = &slot->now.job;
    size_t each = dw_dtype_bytes(job->dtype);
    for (uint32_t r = 0; r < settings->ranks && dw_job_gathers(settings, job); r++) {
        for (uint32_t piece = 0; piece < dw_partition_pieces(&slot->now.cut, r); piece++) {
            if (!(slot->gather.taken[slot->gather.first_piece[r] + piece] & DW_PIECE_OVERWRITTEN))
                continue;
            dw_piece at = dw_partition_piece(&slot->now.cut, r, piece);
            memcpy(dw_rollback_y(slot, at), slot->gather.result + at.begin * each,
                   (size_t)at.count * each);
        }
    }
}

/* ---- Residuals ------------------------------------------------------------------------------- */

bool dw_rollback_keep(dw_exchange *exchange, dw_group_slot *slot, const dw_message *head,
                      const dw_frame_room *frame)
{
    const dw_settings *settings = &exchange->settings;
    bool is_shared = head->flags & DW_MESSAGE_HOP2;
    const dw_config *config = is_shared ? &settings->result : &settings->codec;
    if (config->feedback <= DW_FEEDBACK_NONE) return true;
    dw_received *made = dw_frame_to_self(exchange, head, frame);
    if (!made) { /* the residual cannot be restored */
        dw_encoder_forget(dw_coders_encoder_of(&exchange->coding, &slot->coders, head),
                          (dw_key){.sample = slot->number, .slice = head->piece});
        dw_failure_set(&exchange->failure, DW_ERR_NO_MEMORY, settings->rank,
                       "slot %llu: rank %u has no memory for the copy of a frame",
                       (unsigned long long)slot->number, settings->rank);
        return false;
    }
    dw_received_append(&slot->frames, made);
    return true;
}

/* Takes back what a frame did to the residual of its key. */
static dw_status undo(dw_exchange *exchange, const dw_group_slot *slot, dw_received *made)
{
    const dw_message *head = &made->head;
    dw_piece at = dw_partition_piece(&slot->now.cut, head->part, head->piece);
    dw_tensor x =
        head->flags & DW_MESSAGE_HOP2 ? dw_frame_result(slot, at) : dw_frame_contribution(slot, at);
    return dw_encoder_give_back(dw_coders_encoder_of(&exchange->coding, &slot->coders, head),
                                dw_received_body(made), (size_t)made->head.body_len, &x);
}

void dw_rollback_residuals(dw_exchange *exchange, dw_group_slot *slot, bool undoes)
{
    dw_received *made;
    while ((made = dw_received_pop(&slot->frames)) != NULL) {
        /* A residual that cannot be restored is dropped: to lose a residual does less harm than to
         * count a gradient twice. */
        if (undoes && undo(exchange, slot, made) != DW_OK)
            dw_encoder_forget(dw_coders_encoder_of(&exchange->coding, &slot->coders, &made->head),
                              (dw_key){.sample = slot->number, .slice = made->head.piece});
        dw_received_give(&exchange->pool, made);
    }
}
