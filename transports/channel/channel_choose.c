/* SPDX-License-Identifier: Apache-2.0
 * channel_choose.c - makes the measurements by which a channel with several configs chooses the
 * config of its next frame (choice.h). */
#include <stdio.h>
#include <string.h>

#include "channel/channel.h"

/* Returns the number of elements of a tensor. */
static double elements_of(const dw_tensor *x)
{
    return (double)x->n * x->t * x->c;
}

/* Converts nanoseconds to seconds. */
static double seconds(int64_t ns)
{
    return (double)ns * 1e-9;
}

/* ---- Trials of configs of which no frame was measured ---------------------------------------- */

/* A trial encodes as many samples of a tensor as have at most this many elements together, but at
 * least one sample. */
enum { TRIAL_ELEMENTS = 1 << 20 };

typedef struct trial {
    /* first: the first samples of the program's tensor. second: a copy of them with the rows in
     * another order. */
    dw_tensor first, second;
    dw_key *keys;
    void *frame;
    size_t frame_cap, copy_bytes;
    dw_encoder *encoder;
} trial;

/* Copies the rows of `from` to `to`, each one place further to the front, and the first row to the
 * last place. So the copy differs from the original (unless there is only one row), as the values
 * of a key differ from one visit to the next. */
static void copy_rows(const dw_tensor *from, dw_tensor *to)
{
    size_t element = dw_dtype_bytes(from->dtype), row_bytes = from->c * element;
    size_t rows = (size_t)from->n * from->t;
    for (size_t i = 0; i < rows; i++) {
        size_t at = (i + 1) % rows;
        int64_t offset =
            (int64_t)(at / from->t) * from->stride_n + (int64_t)(at % from->t) * from->stride_t;
        memcpy((char *)to->data + i * row_bytes,
               (const char *)from->data + offset * (int64_t)element, row_bytes);
    }
}

/* Allocates what a trial of this config with tensor x needs. Returns false if that fails; end_trial
 * must be called in any case. */
static bool begin_trial(const dw_channel *channel, const dw_config *config, const dw_tensor *x,
                        trial *t)
{
    const dw_allocator *allocator = &channel->link->allocator;
    size_t sample = (size_t)x->t * x->c, n = TRIAL_ELEMENTS / sample;
    t->first = *x;
    t->first.n = n < 1 ? 1 : n < x->n ? (uint32_t)n : x->n;
    t->copy_bytes = t->first.n * sample * dw_dtype_bytes(x->dtype);
    t->second =
        dw_tensor_3d(dw_memory_take(allocator, t->copy_bytes), x->dtype, t->first.n, x->t, x->c);
    t->keys = dw_memory_take_zeroed(allocator, t->first.n, sizeof *t->keys);
    t->frame_cap = dw_frame_bound(config, &t->first);
    t->frame = t->frame_cap ? dw_memory_take(allocator, t->frame_cap) : NULL;
    if (!t->second.data || !t->keys || !t->frame) return false;
    for (uint32_t i = 0; i < t->first.n; i++) t->keys[i].sample = i;
    copy_rows(&t->first, &t->second);
    return dw_encoder_create(&t->encoder, config) == DW_OK;
}

static void end_trial(const dw_channel *channel, trial *t)
{
    const dw_allocator *allocator = &channel->link->allocator;
    dw_encoder_destroy(t->encoder);
    dw_memory_give(allocator, t->frame, t->frame_cap);
    dw_memory_give(allocator, t->keys, t->first.n * sizeof *t->keys);
    dw_memory_give(allocator, t->second.data, t->copy_bytes);
}

/* Estimates the size and encoding time of frames of a config: encodes a part of x twice with a
 * temporary encoder. Only the second frame is measured, because it resembles the frames of later
 * visits of a key; the first one does not. codec: the index of the config. If anything fails, the
 * config stays unknown. */
static void try_config(dw_channel *channel, uint32_t codec, const dw_tensor *x)
{
    trial t = {.encoder = NULL};
    size_t len = 0;
    dw_config config = channel->send[codec].config;
    config.quota_bytes = 0; /* the program's limit is meant for the channel's own encoder */
    bool worked = begin_trial(channel, &config, x, &t) &&
                  dw_encode(t.encoder, t.keys, &t.first, t.frame, t.frame_cap, &len) == DW_OK;
    int64_t begin_ns = dw_link_now_ns();
    worked = worked && dw_encode(t.encoder, t.keys, &t.second, t.frame, t.frame_cap, &len) == DW_OK;
    if (worked)
        dw_choice_guess(&channel->choice, codec, elements_of(&t.second), (double)len,
                        seconds(dw_link_now_ns() - begin_ns));
    end_trial(channel, &t);
}

/* Tries every config that is still unknown, with tensor x. If a trial fails, it is repeated
 * DW_CHOICE_PAUSE frames later, because it may succeed with another tensor. */
static void try_unknown(dw_channel *channel, const dw_tensor *x)
{
    if (channel->next_sequence < channel->next_trial) return;
    channel->next_trial = channel->next_sequence + DW_CHOICE_PAUSE;
    for (uint32_t i = 0; i < channel->sends; i++)
        if (!channel->choice.candidates[i].is_known) try_config(channel, i, x);
}

/* ---- The choice ------------------------------------------------------------------------------ */

/* Writes a sentence to `change` that says why config `to` replaces config `from`. step_s: the
 * predicted seconds of a step with each config. */
static void explain(const dw_channel *channel, uint32_t from, uint32_t to, const double *step_s,
                    char *change)
{
    const dw_choice *choice = &channel->choice;
    char before[DW_CONFIG_TEXT_BYTES] = "", now[DW_CONFIG_TEXT_BYTES] = "";
    dw_config_format(&channel->send[from].config, before, sizeof before);
    dw_config_format(&channel->send[to].config, now, sizeof now);
    snprintf(change, DW_CHANGE_BYTES,
             "channel %u: from frame %llu on %s is used instead of %s, because the link carries "
             "%.4g Mbit/s, the program computes %.4g ms between two frames, and so a step of %u "
             "frames should take %.4g ms instead of %.4g ms%s",
             channel->id, (unsigned long long)channel->next_sequence, now, before,
             dw_choice_rate(choice, from) * 8e-6, choice->compute_s * 1e3, choice->micro_batches,
             step_s[to] * 1e3, step_s[from] * 1e3, to < from ? ", and its quality is better" : "");
}

uint32_t dw_channel_choose(dw_channel *channel, const dw_tensor *x, char change[DW_CHANGE_BYTES])
{
    dw_choice *choice = &channel->choice;
    uint32_t before = choice->now;
    double step_s[DW_CHOICE_MOST] = {0};
    change[0] = '\0';
    if (channel->idle_ns) dw_choice_computed(choice, seconds(dw_link_now_ns() - channel->idle_ns));
    channel->idle_ns = 0; /* so that this time is not counted again if sending the frame fails */
    if (!dw_choice_is_due(choice) || dw_frame_bound(&channel->send[before].config, x) == 0)
        return before;
    try_unknown(channel, x);
    uint32_t best = dw_choice_best(choice, elements_of(x), step_s);
    if (best == before) return before;
    explain(channel, before, best, step_s, change);
    dw_choice_change(choice, best);
    return best;
}

/* ---- Measurements ---------------------------------------------------------------------------- */

void dw_channel_note_frame(dw_channel *channel, uint32_t codec, const dw_tensor *x, size_t len,
                           int64_t encode_ns)
{
    dw_channel_codec *used = &channel->send[codec];
    dw_counters counters = {.struct_size = sizeof counters};
    (void)dw_encoder_counters(used->encoder, &counters);
    dw_choice_made(&channel->choice, codec, elements_of(x), (double)len, seconds(encode_ns),
                   counters.key_entries == used->first_visits);
    used->first_visits = counters.key_entries;
}

/* Returns the travel time of a message in seconds, plus an unknown constant, which is the same for
 * all messages of this channel: sent_us is read from our clock, arrived_us from the receiver's. */
static double travel_s(const dw_channel *channel, uint32_t sent_us, uint32_t arrived_us)
{
    return (int32_t)(arrived_us - sent_us - channel->clocks_us) * 1e-6;
}

void dw_channel_note_delivery(dw_channel *channel, const dw_envelope *ack)
{
    uint64_t sequence = ack->sequence;
    if (sequence >= channel->next_sequence || channel->next_sequence - sequence > DW_CHANNEL_KEPT)
        return;
    const dw_kept_frame *kept = &channel->kept[sequence % DW_CHANNEL_KEPT];
    uint32_t since_last_us = dw_get32(ack->body), arrived_us = dw_get32(ack->body + 4);
    if (!kept->message || channel->choice.travels == 0 || since_last_us == DW_TIME_UNKNOWN) return;
    dw_choice_delivery delivery = {.bytes = (double)kept->len,
                                   .since_last_s = since_last_us * 1e-6,
                                   .travel_s = travel_s(channel, kept->sent_us, arrived_us)};
    dw_choice_delivered(&channel->choice, kept->codec, &delivery);
}

/* ---- Empty messages -------------------------------------------------------------------------- */

/* Sends an envelope without a body. times: its field `sequence` (see PING and PONG in envelope.h).
 * If the link's queue is full or the link has failed, nothing is sent; the only effect is that one
 * measurement is missing. */
static void send_time(dw_channel *channel, dw_envelope_kind kind, uint64_t times)
{
    void *room;
    if (dw_link_send_begin(channel->link, dw_channel_tag(channel, DW_TAG_TRIPS), DW_ENVELOPE_BYTES,
                           &room) != DW_OK)
        return;
    dw_envelope_seal(room, channel->link->session, kind, DW_OK, times, 0);
    dw_link_send_end(channel->link, room, DW_ENVELOPE_BYTES);
}

/* The PING is sent immediately before a frame. If an earlier frame is not acknowledged yet, the
 * link may still be busy with it and the PING would have to wait, so none is sent. */
void dw_channel_start_trip(dw_channel *channel)
{
    if (channel->next_sequence != channel->acknowledged) return;
    send_time(channel, DW_ENVELOPE_PING, dw_link_now_us());
}

void dw_channel_take_trip(void *context, const void *data, size_t len)
{
    dw_channel *channel = context;
    dw_envelope envelope;
    if (!dw_envelope_read(data, len, channel->link->session, &envelope)) return;
    uint64_t arrived_us = dw_buffer_of((void *)(uintptr_t)data)->arrived_us;
    if (envelope.kind == DW_ENVELOPE_PING)
        send_time(channel, DW_ENVELOPE_PONG, arrived_us << 32 | (uint32_t)envelope.sequence);
    else if (envelope.kind == DW_ENVELOPE_PONG && channel->sends > 1)
        dw_channel_queue_reply(channel, data);
}

void dw_channel_note_trip(dw_channel *channel, const dw_envelope *pong)
{
    uint32_t sent_us = (uint32_t)pong->sequence, arrived_us = (uint32_t)(pong->sequence >> 32);
    if (channel->choice.travels == 0) channel->clocks_us = arrived_us - sent_us;
    dw_choice_travelled(&channel->choice, travel_s(channel, sent_us, arrived_us));
}
