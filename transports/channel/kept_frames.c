/* SPDX-License-Identifier: Apache-2.0
 * kept_frames.c - copies of frames that the peer has not acknowledged, by their numbers. */
#include "channel/channel.h"

static dw_kept_frame *slot_of(dw_kept_frames *kept, uint64_t sequence)
{
    return &kept->frames[sequence % DW_CHANNEL_KEPT];
}

static void release(dw_kept_frames *kept, dw_kept_frame *frame)
{
    if (!frame->message) return;
    dw_link_release(kept->link, frame->message);
    kept->bytes -= frame->len;
    *frame = (dw_kept_frame){.len = 0};
}

uint64_t dw_kept_frames_number(dw_kept_frames *kept)
{
    return kept->next++;
}

/* The message belongs to the link; another reference keeps the link from reusing its buffer. Older
 * copies are released if max_queued_bytes is exceeded. */
void dw_kept_frames_keep(dw_kept_frames *kept, uint64_t sequence, void *message, size_t len,
                         int resent)
{
    release(kept, slot_of(kept, sequence));
    uint64_t oldest = sequence > DW_CHANNEL_KEPT ? sequence - DW_CHANNEL_KEPT : 0;
    uint64_t i = kept->acknowledged > oldest ? kept->acknowledged : oldest;
    for (; i < sequence && kept->bytes + len > kept->link->settings.max_queued_bytes; i++)
        release(kept, slot_of(kept, i));
    (void)dw_link_retain(kept->link, message);
    *slot_of(kept, sequence) = (dw_kept_frame){.message = message, .len = len, .resent = resent};
    kept->bytes += len;
}

dw_kept_frame *dw_kept_frames_find(dw_kept_frames *kept, uint64_t sequence)
{
    dw_kept_frame *frame = slot_of(kept, sequence);
    return kept->next - sequence > DW_CHANNEL_KEPT || !frame->message ? NULL : frame;
}

void dw_kept_frames_count_resent(dw_kept_frame *frame)
{
    frame->resent++;
}

bool dw_kept_frames_acknowledge(dw_kept_frames *kept, uint64_t sequence)
{
    if (sequence >= kept->next) return false;
    /* The receiver decodes frames in order, so it has all frames before this one, too. */
    for (; kept->acknowledged <= sequence; kept->acknowledged++) {
        if (kept->next - kept->acknowledged <= DW_CHANNEL_KEPT)
            release(kept, slot_of(kept, kept->acknowledged));
    }
    return true;
}

void dw_kept_frames_release(dw_kept_frames *kept)
{
    for (int i = 0; i < DW_CHANNEL_KEPT; i++) release(kept, &kept->frames[i]);
}
