/* SPDX-License-Identifier: Apache-2.0
 * nccl_notes.c - notes over the link behind: short messages, announcements of long ones, credit. */
#include "nccl/nccl_end.h"

#include <string.h>

#include "base/bytes.h"
#include "common/opening.h"
#include "common/report.h"

/* The limit of notes handled in one call, so that the other direction gets its turn. */
enum { NOTES_AT_A_TIME = 8 };

static void fail(nccl_notes *notes, dw_status status, const dw_why *why)
{
    if (notes->status != DW_OK) return;
    notes->status = status;
    notes->why = *why;
}

static void fail_protocol(nccl_notes *notes)
{
    dw_why why;
    fail(notes,
         dw_say(&why, DW_ERR_PROTOCOL,
                "the peer sent a note that is not valid; run the same release of deltawire at both "
                "ends"),
         &why);
}

/* ---- Sending --------------------------------------------------------------------------------- */

static void look_after_sending(nccl_notes *notes)
{
    size_t len;
    dw_why why = {.text = "", .offset = -1};
    if (!notes->is_sending || notes->status != DW_OK) return;
    dw_status status = notes->inner.test(notes->end, notes->send_request, &len, &why);
    if (status == DW_PENDING) return;
    notes->is_sending = false;
    if (status == DW_OK)
        notes->left++;
    else
        fail(notes, status, &why);
}

bool dw_nccl_notes_say(nccl_notes *notes, int kind, uint64_t value, const void *data, size_t len)
{
    bool costs = kind == DW_NCCL_DATA || kind == DW_NCCL_LONG;
    look_after_sending(notes);
    if (notes->is_sending || notes->status != DW_OK || (costs && notes->credit == 0)) return false;
    dw_put32(notes->out, (uint32_t)kind);
    dw_put32(notes->out + 4, notes->owed);
    dw_put64(notes->out + 8, value);
    if (len > 0) memcpy(notes->out + DW_NCCL_NOTE_HEADER, data, len);
    memset(notes->send_request, 0, notes->inner.request_bytes);
    dw_status status =
        notes->inner.send(notes->end, notes->send_request, notes->out, DW_NCCL_NOTE_HEADER + len);
    if (status != DW_OK && status != DW_PENDING) {
        dw_why why;
        fail(notes,
             dw_say(&why, status, "the link behind NCCL refuses to send: %s",
                    dw_status_string(status)),
             &why);
        return false;
    }
    notes->is_sending = true;
    notes->said++;
    notes->owed = 0;
    if (costs) notes->credit--;
    notes->longs_said += kind == DW_NCCL_LONG;
    look_after_sending(notes);
    return true;
}

/* ---- Receiving ------------------------------------------------------------------------------- */

static unsigned next_place(const nccl_notes *notes)
{
    return (notes->head + notes->n) % DW_NCCL_NOTES;
}

void dw_nccl_notes_listen(nccl_notes *notes)
{
    memset(notes->recv_request, 0, notes->inner.request_bytes);
    dw_status status = notes->inner.recv(notes->end, notes->recv_request,
                                         notes->in[next_place(notes)], DW_NCCL_NOTE_BYTES);
    if (status == DW_OK || status == DW_PENDING) return;
    dw_why why;
    fail(notes,
         dw_say(&why, status, "the link behind NCCL refuses to receive: %s",
                dw_status_string(status)),
         &why);
}

/* Handles a note that has arrived. false: it violates the protocol. */
static bool sort_note(nccl_notes *notes, size_t len)
{
    const unsigned char *note = notes->in[next_place(notes)];
    if (len < DW_NCCL_NOTE_HEADER || len > DW_NCCL_NOTE_BYTES) return false;
    uint32_t kind = dw_get32(note), credit = dw_get32(note + 4);
    uint64_t value = dw_get64(note + 8), inside = len - DW_NCCL_NOTE_HEADER;
    if (credit > DW_NCCL_CREDITS - notes->credit) return false;
    notes->credit += credit;
    if (kind == DW_NCCL_DATA || kind == DW_NCCL_LONG) {
        if (kind == DW_NCCL_DATA ? value != inside : inside != 0 || value == 0) return false;
        return ++notes->n <= DW_NCCL_CREDITS;
    }
    if (kind == DW_NCCL_GO) {
        if (value != notes->long_wanted + 1 || value > notes->longs_said) return false;
        notes->long_wanted = value;
        return inside == 0;
    }
    return kind == DW_NCCL_CREDIT && inside == 0;
}

static bool hear(nccl_notes *notes)
{
    size_t len = 0;
    dw_why why = {.text = "", .offset = -1};
    if (notes->status != DW_OK) return false;
    dw_status status = notes->inner.test(notes->end, notes->recv_request, &len, &why);
    if (status == DW_PENDING) return false;
    if (status == DW_ERR_BUFFER_TOO_SMALL) {
        fail_protocol(notes);
        return false;
    }
    if (status != DW_OK) {
        fail(notes, status, &why);
        return false;
    }
    dw_transport_state state = DW_NO_STATE;
    notes->inner.poll(notes->end, 0, &state);
    notes->whole_bytes = state.wire_received;
    if (sort_note(notes, len))
        dw_nccl_notes_listen(notes);
    else
        fail_protocol(notes);
    return true;
}

bool dw_nccl_notes_oldest(const nccl_notes *notes, int *kind, uint64_t *value,
                          const unsigned char **data)
{
    if (notes->n == 0) return false;
    const unsigned char *note = notes->in[notes->head];
    *kind = (int)dw_get32(note);
    *value = dw_get64(note + 8);
    *data = note + DW_NCCL_NOTE_HEADER;
    return true;
}

/* The note that is being received keeps its place, which follows those that have arrived. */
void dw_nccl_notes_take_off(nccl_notes *notes)
{
    notes->head = (notes->head + 1) % DW_NCCL_NOTES;
    notes->n--;
    notes->owed++;
}

bool dw_nccl_notes_pump(nccl_notes *notes)
{
    int heard = 0;
    uint64_t left = notes->left;
    look_after_sending(notes);
    while (heard < NOTES_AT_A_TIME && hear(notes)) heard++;
    bool moved = heard > 0 || notes->left > left;
    /* GO comes first, because a send of the peer waits for it. */
    if (notes->long_asked > 0 && dw_nccl_notes_say(notes, DW_NCCL_GO, notes->long_asked, NULL, 0)) {
        notes->long_asked = 0;
        moved = true;
    }
    if (notes->owed >= DW_NCCL_CREDITS / 2 && dw_nccl_notes_say(notes, DW_NCCL_CREDIT, 0, NULL, 0))
        moved = true;
    return moved;
}
