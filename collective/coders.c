/* SPDX-License-Identifier: Apache-2.0
 * coders.c - the encoders and decoders of a group. A codec that keeps state has those of each slot
 * apart, so that to forget a slot is to destroy them. A codec that keeps none has the same ones for
 * all slots, which take their memory once.
 *
 * Codecs that draw the places of what they send (randk, cocktail) draw the same ones on all ranks,
 * and on both hops of an operation. Then a sum has values at as many places as a contribution, and
 * the second hop does not leave most of them out again.
 *
 * A decoder takes the frames of a single encoder, in whatever order they come, as long as none of
 * them announces forgotten keys. No encoder announces any: each rank forgets a slot by itself. */
#include "coders.h"

#include "base/clock.h"
#include "base/mem.h"
#include "partition.h"

/* ---- The objects ----------------------------------------------------------------------------- */

/* Encoders: a contribution to each rank; results; an all-reduce in one hop, whose frames go to all
 * ranks. Decoders: of each rank, for each of these. */
static uint32_t encoders_of(const dw_settings *settings)
{
    return settings->ranks + 2;
}

static uint32_t decoders_of(const dw_settings *settings)
{
    return 3 * settings->ranks;
}

static uint32_t place_of(const dw_settings *settings, dw_coder_kind kind, uint32_t other)
{
    switch (kind) {
    case DW_ALL_GATHER_ENCODER: return settings->ranks;
    case DW_ONE_SHOT_ENCODER: return settings->ranks + 1;
    case DW_ALL_GATHER_DECODER: return settings->ranks + other;
    case DW_ONE_SHOT_DECODER: return 2 * settings->ranks + other;
    default: return other;
    }
}

static const dw_coders *coders_of(const dw_coding *coding, const dw_coders *own, dw_coder_kind kind)
{
    return coding->settings->keeps_state[dw_coder_is_of_result(kind)] ? own : &coding->common;
}

dw_encoder *dw_coders_encoder(const dw_coding *coding, const dw_coders *own, dw_coder_kind kind,
                              uint32_t to)
{
    const dw_coders *coders = coders_of(coding, own, kind);
    return coders->encoders ? coders->encoders[place_of(coding->settings, kind, to)] : NULL;
}

dw_decoder *dw_coders_decoder(const dw_coding *coding, const dw_coders *own, dw_coder_kind kind,
                              uint32_t from)
{
    const dw_coders *coders = coders_of(coding, own, kind);
    return coders->decoders ? coders->decoders[place_of(coding->settings, kind, from)] : NULL;
}

void dw_coders_destroy(const dw_coding *coding, dw_coders *own)
{
    const dw_settings *settings = coding->settings;
    uint32_t encoders = encoders_of(settings), decoders = decoders_of(settings);
    for (uint32_t i = 0; own->encoders && i < encoders; i++) dw_encoder_destroy(own->encoders[i]);
    for (uint32_t i = 0; own->decoders && i < decoders; i++) dw_decoder_destroy(own->decoders[i]);
    dw_mem_release(&settings->allocator, own->encoders, encoders * sizeof *own->encoders);
    dw_mem_release(&settings->allocator, own->decoders, decoders * sizeof *own->decoders);
    *own = (dw_coders){.forgotten_at = own->forgotten_at};
}

static dw_status reserve(const dw_settings *settings, dw_coders *coders)
{
    if (!coders->encoders)
        coders->encoders = dw_mem_allocate_zeroed(&settings->allocator, 1,
                                                  encoders_of(settings) * sizeof *coders->encoders);
    if (!coders->decoders)
        coders->decoders = dw_mem_allocate_zeroed(&settings->allocator, 1,
                                                  decoders_of(settings) * sizeof *coders->decoders);
    return coders->encoders && coders->decoders ? DW_OK : DW_ERR_NO_MEMORY;
}

/* Encoders with the same incarnation would make the same random numbers, and their errors would add
 * up. So an incarnation that the caller chose is made different for each encoder, also for the one
 * that a slot gets after it was forgotten. (Random numbers of two slots differ by their keys.)
 * Stochastic rounding does not depend on the incarnation, so a forgotten slot has another seed. */
static dw_config config_for(const dw_settings *settings, const dw_config *config, uint32_t place,
                            uint64_t forgotten_at)
{
    dw_config own = *config;
    if (forgotten_at) own.seed = dw_message_seed(own.seed, forgotten_at, place);
    if (own.incarnation == 0) return own;
    own.incarnation = dw_message_seed(own.incarnation, place, settings->rank);
    if (forgotten_at) own.incarnation = dw_message_seed(own.incarnation, forgotten_at, place);
    if (own.incarnation == 0) own.incarnation = 1;
    return own;
}

dw_status dw_coders_make(const dw_coding *coding, dw_coders *own, dw_coder_kind kind,
                         uint32_t other)
{
    const dw_settings *settings = coding->settings;
    dw_status status = reserve(settings, own);
    if (status != DW_OK) return status;
    const dw_config *config = dw_coder_is_of_result(kind) ? &settings->result : &settings->codec;
    uint32_t place = place_of(settings, kind, other);
    if (!dw_coder_is_encoder(kind))
        return own->decoders[place]
                   ? DW_OK
                   : dw_decoder_create(&own->decoders[place], config, &settings->host, NULL);
    dw_config with = config_for(settings, config, place, own->forgotten_at);
    return own->encoders[place]
               ? DW_OK
               : dw_encoder_create(&own->encoders[place], &with, &settings->host, NULL);
}

/* All that an all-reduce in two hops (or in one) needs, of the codecs that keep nothing. */
dw_status dw_coding_open(dw_coding *coding)
{
    const dw_settings *settings = coding->settings;
    dw_status status = DW_OK;
    coding->scratch = dw_mem_allocate(&settings->allocator, coding->scratch_bytes);
    if (!coding->scratch) return DW_ERR_NO_MEMORY;
    dw_coder_kind end = settings->hops == 1 ? DW_ONE_SHOT_DECODER : DW_ALL_GATHER_DECODER;
    for (dw_coder_kind kind = DW_REDUCE_SCATTER_ENCODER; kind <= end; kind++)
        for (uint32_t r = 0; r < settings->ranks && status == DW_OK; r++)
            if (!settings->keeps_state[dw_coder_is_of_result(kind)])
                status = dw_coders_make(coding, &coding->common, kind, r);
    for (int i = 0; i < 2 && status == DW_OK; i++) {
        status =
            dw_encoder_create(&coding->round[i], &settings->rounding[i], &settings->host, NULL);
        if (status == DW_OK)
            status = dw_decoder_create(&coding->rounded[i], &settings->rounding[i], &settings->host,
                                       NULL);
    }
    return status;
}

void dw_coding_close(dw_coding *coding)
{
    dw_coders_destroy(coding, &coding->common);
    for (int i = 0; i < 2; i++) {
        dw_encoder_destroy(coding->round[i]);
        dw_decoder_destroy(coding->rounded[i]);
    }
    dw_mem_release(&coding->settings->allocator, coding->scratch, coding->scratch_bytes);
}

/* Calls visit for each coder of its own that a job needs, until it returns another status than
 * OK. */
typedef dw_status visit_need(const dw_coding *coding, dw_coders *own, dw_coder_kind kind,
                             uint32_t other);

static dw_status visit_hop(const dw_coding *coding, dw_coders *own, const dw_group_job *job,
                           dw_coder_kind encoder, visit_need *visit)
{
    const dw_settings *settings = coding->settings;
    dw_status status = DW_OK;
    if (!settings->keeps_state[dw_coder_is_of_result(encoder)]) return DW_OK;
    dw_partition cut = dw_partition_make(settings, job);
    bool adds = dw_partition_part(&cut, cut.own_part).count > 0;
    for (uint32_t r = 0; r < settings->ranks && status == DW_OK; r++) {
        bool has_part = dw_partition_part(&cut, r).count > 0;
        bool sends = encoder == DW_REDUCE_SCATTER_ENCODER ? has_part : adds;
        bool receives = encoder == DW_ALL_GATHER_ENCODER ? has_part : adds;
        if (sends) status = visit(coding, own, encoder, r);
        if (receives && status == DW_OK)
            status = visit(coding, own, (dw_coder_kind)(encoder + 1), r);
    }
    return status;
}

static dw_status visit_needs(const dw_coding *coding, dw_coders *own, const dw_group_job *job,
                             visit_need *visit)
{
    dw_status status = DW_OK;
    dw_coder_kind first =
        dw_job_is_one_shot(coding->settings, job) ? DW_ONE_SHOT_ENCODER : DW_REDUCE_SCATTER_ENCODER;
    if (dw_job_reduces(job)) status = visit_hop(coding, own, job, first, visit);
    if (status == DW_OK && dw_job_gathers(coding->settings, job))
        status = visit_hop(coding, own, job, DW_ALL_GATHER_ENCODER, visit);
    return status;
}

static dw_status is_there(const dw_coding *coding, dw_coders *own, dw_coder_kind kind,
                          uint32_t other)
{
    bool is = dw_coder_is_encoder(kind) ? dw_coders_encoder(coding, own, kind, other) != NULL
                                        : dw_coders_decoder(coding, own, kind, other) != NULL;
    return is ? DW_OK : DW_PENDING;
}

bool dw_coders_are_ready(const dw_coding *coding, const dw_coders *own, const dw_group_job *job)
{
    dw_coders seen = *own;
    return visit_needs(coding, &seen, job, is_there) == DW_OK;
}

dw_status dw_coders_prepare(const dw_coding *coding, dw_coders *own, const dw_group_job *job)
{
    return visit_needs(coding, own, job, dw_coders_make);
}

dw_status dw_coders_visit(const dw_coding *coding, const dw_coders *coders, dw_coder_visit *visit,
                          void *context)
{
    const dw_settings *settings = coding->settings;
    dw_status status = DW_OK;
    for (dw_coder_kind kind = DW_REDUCE_SCATTER_ENCODER; kind <= DW_ONE_SHOT_DECODER; kind++) {
        bool is_one = kind == DW_ALL_GATHER_ENCODER || kind == DW_ONE_SHOT_ENCODER;
        for (uint32_t r = 0; r < (is_one ? 1 : settings->ranks) && status == DW_OK; r++) {
            uint32_t place = place_of(settings, kind, r);
            dw_coder found = {.kind = kind, .other = r};
            if (dw_coder_is_encoder(kind) && coders->encoders)
                found.encoder = coders->encoders[place];
            if (!dw_coder_is_encoder(kind) && coders->decoders)
                found.decoder = coders->decoders[place];
            if (found.encoder || found.decoder) status = visit(context, &found);
        }
    }
    return status;
}

static bool is_one_shot(const dw_coding *coding, const dw_message *head)
{
    return coding->settings->hops == 1 && head->operation == DW_ALL_REDUCE;
}

static dw_coder_kind encoder_kind(const dw_coding *coding, const dw_message *head)
{
    if (head->flags & DW_MESSAGE_HOP2) return DW_ALL_GATHER_ENCODER;
    return is_one_shot(coding, head) ? DW_ONE_SHOT_ENCODER : DW_REDUCE_SCATTER_ENCODER;
}

dw_encoder *dw_coders_encoder_of(const dw_coding *coding, const dw_coders *own,
                                 const dw_message *head)
{
    return dw_coders_encoder(coding, own, encoder_kind(coding, head), head->part);
}

/* ---- Places ---------------------------------------------------------------------------------- */

void dw_coding_agree(dw_coding *coding, uint64_t nonce)
{
    const dw_config *codec = &coding->settings->codec;
    uint64_t common = codec->incarnation ? codec->incarnation : nonce;
    coding->places = dw_message_seed(common, codec->seed, 0);
}

/* Returns what encoders draw places from: the same number for a part on all ranks and hops, another
 * one at each visit. With scaling=unbiased each hop multiplies what it sends by how seldom it sends
 * it. That is right only if the hops draw apart, so 0 is returned then. */
static uint64_t places_of(const dw_coding *coding, const dw_message *head)
{
    const dw_settings *settings = coding->settings;
    const dw_config *config = head->flags & DW_MESSAGE_HOP2 ? &settings->result : &settings->codec;
    if (config->scaling == DW_SCALING_UNBIASED) return 0;
    return dw_message_seed(coding->places, head->visit, head->part) | 1;
}

/* ---- Frames ---------------------------------------------------------------------------------- */

bool dw_coding_encode(dw_coding *coding, const dw_coders *own, const dw_message *head,
                      const dw_tensor *x, bool bypass_caches, dw_frame_room *frame)
{
    dw_encoder *encoder = dw_coders_encoder_of(coding, own, head);
    dw_key key = {.sample = head->slot, .slice = head->piece};
    int64_t begin_ns = dw_now_ns();
    dw_encode_options options = {.struct_size = sizeof options,
                                 .places = places_of(coding, head),
                                 .bypass_caches = bypass_caches};
    dw_status status = dw_encode(encoder, &key, x, &options, frame->at, frame->cap, &frame->len);
    coding->count->codec_ns += (uint64_t)(dw_now_ns() - begin_ns);
    coding->count->raw_bytes += (uint64_t)x->t * x->c * dw_dtype_bytes(x->dtype);
    coding->count->encoded_bytes += frame->len;
    if (status == DW_OK) return true;
    dw_failure_set(coding->failure, status, coding->settings->rank,
                   "slot %llu: rank %u cannot encode it: %.120s", (unsigned long long)head->slot,
                   coding->settings->rank, dw_encoder_why(encoder));
    return false;
}

bool dw_coding_decode(dw_coding *coding, const dw_coders *own, const dw_message *head,
                      uint32_t from, const void *frame, size_t len, const dw_tensor *y,
                      const dw_decode_options *options)
{
    dw_coder_kind kind = (dw_coder_kind)(encoder_kind(coding, head) + 1);
    dw_decoder *decoder = y ? dw_coders_decoder(coding, own, kind, from) : NULL;
    dw_status status = len == 0 ? DW_OK : DW_ERR_FORMAT;
    dw_counters before = {.struct_size = sizeof before}, after = before;
    bool is_result = kind != DW_REDUCE_SCATTER_DECODER && y;
    if (is_result) dw_decoder_count(decoder, &before);
    int64_t begin_ns = dw_now_ns();
    if (y) status = dw_decode(decoder, frame, len, y, options, NULL, 0, NULL);
    coding->count->codec_ns += (uint64_t)(dw_now_ns() - begin_ns);
    if (is_result) dw_decoder_count(decoder, &after);
    coding->count->poisoned += after.poisoned_groups - before.poisoned_groups;
    if (status == DW_OK) return true;
    dw_failure_set(coding->failure, status, from,
                   "slot %llu: piece %u of rank %u's %s cannot be decoded: %.100s",
                   (unsigned long long)head->slot, head->piece, from,
                   head->flags & DW_MESSAGE_HOP2 ? "result" : "contribution",
                   y ? dw_decoder_why(decoder) : "it should be empty");
    return false;
}

size_t dw_coding_bound(dw_coding *coding, const dw_config *config, dw_dtype dtype, uint64_t count)
{
    if (count == 0) return 0;
    dw_tensor x = dw_flat_view(NULL, dtype, count);
    for (uint32_t i = 0; i < DW_FRAME_BOUNDS; i++) {
        const dw_known_bound *known = &coding->bounds[i];
        if (known->config == config && known->dtype == dtype && known->t == x.t && known->c == x.c)
            return known->bytes;
    }
    size_t bytes = dw_frame_bound(config, &x);
    coding->bounds[coding->next_bound++ % DW_FRAME_BOUNDS] =
        (dw_known_bound){.config = config, .dtype = dtype, .t = x.t, .c = x.c, .bytes = bytes};
    return bytes;
}

dw_status dw_coding_round(dw_coding *coding, const dw_tensor *x, const dw_tensor *y)
{
    bool is_bf16 = y->dtype == DW_BF16;
    dw_key key = {.sample = 0};
    size_t len;
    dw_status status = dw_encode(coding->round[is_bf16], &key, x, NULL, coding->scratch,
                                 coding->scratch_bytes, &len);
    if (status != DW_OK) return status;
    return dw_decode(coding->rounded[is_bf16], coding->scratch, len, y, NULL, NULL, 0, NULL);
}
