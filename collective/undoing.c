/* SPDX-License-Identifier: Apache-2.0
 * undoing.c - error feedback in operations that fail: residuals become what they were before.
 *
 * An encoder changes the residual of a piece as soon as it encodes the piece, so the frames of an
 * operation are kept until it has finished. With x, y and e as in docs/codecs/feedback.md, giving a
 * frame back leaves x + e as the residual. The next operation would then send x as well, although
 * the caller was told that this operation has failed, and may repeat it. So -x is encoded, and that
 * frame is given back, too. This leaves e, up to rounding. */
#include <string.h>

#include "group.h"

static dw_encoder *encoder_of(const dw_group *group, const dw_message *head)
{
    return head->flags & DW_MESSAGE_HOP2 ? group->coders.share
                                         : group->coders.contribute[head->part];
}

bool dw_undoing_keep(dw_group *group, dw_group_slot *slot, const dw_message *head,
                     const void *frame, size_t len)
{
    bool is_shared = head->flags & DW_MESSAGE_HOP2;
    const dw_config *config = is_shared ? &group->result : &group->codec;
    if (config->feedback <= DW_FEEDBACK_NONE) return true;
    dw_arrival *copy = dw_arrival_take(group, len);
    if (!copy) { /* the residual cannot be restored */
        dw_encoder_forget(encoder_of(group, head),
                          (dw_key){.sample = slot->number, .slice = head->piece});
        dw_group_fail(group, DW_ERR_NO_MEMORY, group->rank,
                      "slot %llu: rank %u has no memory for the copy of a frame",
                      (unsigned long long)slot->number, group->rank);
        return false;
    }
    copy->head = *head;
    memcpy(dw_arrival_bytes(copy), frame, len);
    dw_arrivals_put(&slot->now.made, copy);
    return true;
}

/* Writes -x, in the dtype of x. Only signs change, so nothing is rounded, and NaN stays NaN. */
static void negate(const dw_tensor *x, uint64_t count, unsigned char *to)
{
    size_t each = dw_dtype_bytes(x->dtype);
    memcpy(to, x->data, (size_t)count * each);
    if (each == 4)
        for (uint64_t i = 0; i < count; i++) ((uint32_t *)(void *)to)[i] ^= 0x80000000u;
    else
        for (uint64_t i = 0; i < count; i++) ((uint16_t *)(void *)to)[i] ^= 0x8000u;
}

/* Takes back what a frame did to the residual of its key. room: of one piece in f32. */
static dw_status undo(dw_group *group, const dw_group_slot *slot, dw_arrival *made,
                      unsigned char *room)
{
    const dw_message *head = &made->head;
    dw_encoder *encoder = encoder_of(group, head);
    dw_key key = {.sample = slot->number, .slice = head->piece};
    dw_piece at = dw_group_piece_at(group, &slot->now.job, head->part, head->piece);
    dw_tensor x =
        head->flags & DW_MESSAGE_HOP2 ? dw_sharing_source(slot, at) : dw_adding_source(slot, at);
    size_t len;
    dw_status status = dw_encoder_give_back(encoder, dw_arrival_bytes(made), made->len);
    if (status != DW_OK) return status;
    negate(&x, at.count, room);
    x.data = room;
    status = dw_encode(encoder, &key, &x, group->scratch, group->scratch_bytes, &len);
    return status == DW_OK ? dw_encoder_give_back(encoder, group->scratch, len) : status;
}

void dw_undoing_end(dw_group *group, dw_group_slot *slot, bool undoes)
{
    size_t bytes = group->longest_piece * sizeof(float);
    unsigned char *room = NULL;
    if (undoes && slot->now.made.head) room = dw_group_memory_take(&group->allocator, bytes);
    dw_arrival *made;
    while ((made = dw_arrivals_get(&slot->now.made)) != NULL) {
        /* A residual that cannot be restored is dropped: to lose a residual does less harm than to
         * count a gradient twice. */
        if (undoes && (!room || undo(group, slot, made, room) != DW_OK))
            dw_encoder_forget(encoder_of(group, &made->head),
                              (dw_key){.sample = slot->number, .slice = made->head.piece});
        dw_arrival_give(group, made);
    }
    dw_group_memory_give(&group->allocator, room, bytes);
}
