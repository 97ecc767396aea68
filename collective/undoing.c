/* SPDX-License-Identifier: Apache-2.0
 * undoing.c - error feedback in operations that fail: residuals become what they were before.
 *
 * An encoder changes the residual of a piece as soon as it encodes the piece, so the frames of an
 * operation are kept until it has finished. To give them back would not be enough: the residuals
 * would then contain x, and the next operation would send it as well, although the caller was told
 * that this operation has failed, and may repeat it. So they are undone. */
#include "group.h"

bool dw_undoing_keep(dw_group *group, dw_group_slot *slot, const dw_message *head,
                     const dw_frame_room *frame)
{
    bool is_shared = head->flags & DW_MESSAGE_HOP2;
    const dw_config *config = is_shared ? &group->result : &group->codec;
    if (config->feedback <= DW_FEEDBACK_NONE) return true;
    dw_arrival *made = dw_operation_to_self(group, head, frame);
    if (!made) { /* the residual cannot be restored */
        dw_encoder_forget(dw_coders_encoder_of(group, slot, head),
                          (dw_key){.sample = slot->number, .slice = head->piece});
        dw_group_fail(group, DW_ERR_NO_MEMORY, group->rank,
                      "slot %llu: rank %u has no memory for the copy of a frame",
                      (unsigned long long)slot->number, group->rank);
        return false;
    }
    dw_arrivals_put(&slot->now.made, made);
    return true;
}

/* Takes back what a frame did to the residual of its key. */
static dw_status undo(dw_group *group, const dw_group_slot *slot, dw_arrival *made)
{
    const dw_message *head = &made->head;
    dw_piece at = dw_group_piece_at(group, &slot->now.job, head->part, head->piece);
    dw_tensor x =
        head->flags & DW_MESSAGE_HOP2 ? dw_sharing_source(slot, at) : dw_adding_source(slot, at);
    return dw_encoder_undo(dw_coders_encoder_of(group, slot, head), dw_arrival_body(made),
                           (size_t)made->head.body_len, &x);
}

void dw_undoing_end(dw_group *group, dw_group_slot *slot, bool undoes)
{
    dw_arrival *made;
    while ((made = dw_arrivals_get(&slot->now.made)) != NULL) {
        /* A residual that cannot be restored is dropped: to lose a residual does less harm than to
         * count a gradient twice. */
        if (undoes && undo(group, slot, made) != DW_OK)
            dw_encoder_forget(dw_coders_encoder_of(group, slot, &made->head),
                              (dw_key){.sample = slot->number, .slice = made->head.piece});
        dw_arrival_give(group, made);
    }
}
