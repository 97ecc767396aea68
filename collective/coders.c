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
#include "group.h"

/* ---- The objects ----------------------------------------------------------------------------- */

/* Encoders: a contribution to each rank; results; an all-reduce in one hop, whose frames go to all
 * ranks. Decoders: of each rank, for each of these. */
static uint32_t encoders_of(const dw_group *group)
{
    return group->ranks + 2;
}

static uint32_t decoders_of(const dw_group *group)
{
    return 3 * group->ranks;
}

static uint32_t place_of(const dw_group *group, dw_coder_kind kind, uint32_t other)
{
    switch (kind) {
    case DW_ALL_GATHER_ENCODER: return group->ranks;
    case DW_ONE_SHOT_ENCODER: return group->ranks + 1;
    case DW_ALL_GATHER_DECODER: return group->ranks + other;
    case DW_ONE_SHOT_DECODER: return 2 * group->ranks + other;
    default: return other;
    }
}

static const dw_coders *coders_of(const dw_group *group, const dw_group_slot *slot,
                                  dw_coder_kind kind)
{
    return group->keeps_state[dw_coder_is_of_result(kind)] ? &slot->coders : &group->coders;
}

dw_encoder *dw_coders_encoder(const dw_group *group, const dw_group_slot *slot, dw_coder_kind kind,
                              uint32_t to)
{
    const dw_coders *coders = coders_of(group, slot, kind);
    return coders->encoders ? coders->encoders[place_of(group, kind, to)] : NULL;
}

dw_decoder *dw_coders_decoder(const dw_group *group, const dw_group_slot *slot, dw_coder_kind kind,
                              uint32_t from)
{
    const dw_coders *coders = coders_of(group, slot, kind);
    return coders->decoders ? coders->decoders[place_of(group, kind, from)] : NULL;
}

void dw_coders_destroy(const dw_group *group, dw_coders *coders)
{
    for (uint32_t i = 0; coders->encoders && i < encoders_of(group); i++)
        dw_encoder_destroy(coders->encoders[i]);
    for (uint32_t i = 0; coders->decoders && i < decoders_of(group); i++)
        dw_decoder_destroy(coders->decoders[i]);
    dw_group_memory_give(&group->allocator, coders->encoders,
                         encoders_of(group) * sizeof *coders->encoders);
    dw_group_memory_give(&group->allocator, coders->decoders,
                         decoders_of(group) * sizeof *coders->decoders);
    *coders = (dw_coders){0};
}

static dw_status reserve(const dw_group *group, dw_coders *coders)
{
    if (!coders->encoders)
        coders->encoders = dw_group_memory_zeroed(&group->allocator,
                                                  encoders_of(group) * sizeof *coders->encoders);
    if (!coders->decoders)
        coders->decoders = dw_group_memory_zeroed(&group->allocator,
                                                  decoders_of(group) * sizeof *coders->decoders);
    return coders->encoders && coders->decoders ? DW_OK : DW_ERR_NO_MEMORY;
}

/* Encoders with the same incarnation would make the same random numbers, and their errors would add
 * up. So an incarnation that the caller chose is made different for each encoder, also for the one
 * that a slot gets after it was forgotten. slot NULL: for all slots. */
static dw_config config_for(const dw_group *group, const dw_config *config, uint32_t place,
                            const dw_group_slot *slot)
{
    dw_config own = *config;
    if (own.incarnation == 0) return own;
    own.incarnation = dw_message_seed(own.incarnation, place, group->rank);
    if (slot && slot->visit) own.incarnation = dw_message_seed(own.incarnation, slot->visit, place);
    if (own.incarnation == 0) own.incarnation = 1;
    return own;
}

/* Makes one, if it is not there yet. slot NULL: for all slots. */
static dw_status make(const dw_group *group, dw_coders *coders, const dw_group_slot *slot,
                      dw_coder_kind kind, uint32_t other)
{
    dw_status status = reserve(group, coders);
    if (status != DW_OK) return status;
    const dw_config *config = dw_coder_is_of_result(kind) ? &group->result : &group->codec;
    uint32_t place = place_of(group, kind, other);
    if (!dw_coder_is_encoder(kind))
        return coders->decoders[place] ? DW_OK
                                       : dw_decoder_create(&coders->decoders[place], config);
    dw_config own = config_for(group, config, place, slot);
    return coders->encoders[place] ? DW_OK : dw_encoder_create(&coders->encoders[place], &own);
}

/* All that an all-reduce in two hops (or in one) needs, of the codecs that keep nothing. */
dw_status dw_coders_make(dw_group *group)
{
    static const dw_coder_kind kinds[] = {DW_REDUCE_SCATTER_ENCODER, DW_REDUCE_SCATTER_DECODER,
                                          DW_ALL_GATHER_ENCODER,     DW_ALL_GATHER_DECODER,
                                          DW_ONE_SHOT_ENCODER,       DW_ONE_SHOT_DECODER};
    dw_status status = DW_OK;
    for (int i = 0; i < (group->hops == 1 ? 6 : 4); i++)
        for (uint32_t r = 0; r < group->ranks && status == DW_OK; r++)
            if (!group->keeps_state[dw_coder_is_of_result(kinds[i])])
                status = make(group, &group->coders, NULL, kinds[i], r);
    return status;
}

dw_status dw_coders_make_one(dw_group *group, dw_group_slot *slot, dw_coder_kind kind,
                             uint32_t other)
{
    return make(group, &slot->coders, slot, kind, other);
}

/* Calls visit for each coder of its own that the operation of a slot needs, until it returns
 * another status than OK. */
typedef dw_status visit_need(dw_group *group, dw_group_slot *slot, dw_coder_kind kind,
                             uint32_t other);

static dw_status visit_hop(dw_group *group, dw_group_slot *slot, dw_coder_kind encoder,
                           visit_need *visit)
{
    bool adds = !dw_coder_is_of_result(encoder);
    dw_status status = DW_OK;
    if (!group->keeps_state[!adds]) return DW_OK;
    for (uint32_t r = 0; r < group->ranks && status == DW_OK; r++) {
        bool has_part = dw_job_part(group, &slot->now.job, r).count > 0;
        bool sends = encoder == DW_REDUCE_SCATTER_ENCODER ? has_part : slot->now.count > 0;
        bool receives = encoder == DW_ALL_GATHER_ENCODER ? has_part : slot->now.count > 0;
        if (sends) status = visit(group, slot, encoder, r);
        if (receives && status == DW_OK)
            status = visit(group, slot, (dw_coder_kind)(encoder + 1), r);
    }
    return status;
}

static dw_status visit_needs(dw_group *group, dw_group_slot *slot, visit_need *visit)
{
    const dw_group_job *job = &slot->now.job;
    dw_status status = DW_OK;
    if (dw_job_reduces(job))
        status = visit_hop(group, slot,
                           dw_job_is_one_shot(group, job) ? DW_ONE_SHOT_ENCODER
                                                          : DW_REDUCE_SCATTER_ENCODER,
                           visit);
    if (status == DW_OK && dw_job_gathers(group, job))
        status = visit_hop(group, slot, DW_ALL_GATHER_ENCODER, visit);
    return status;
}

static dw_status is_there(dw_group *group, dw_group_slot *slot, dw_coder_kind kind, uint32_t other)
{
    bool is = dw_coder_is_encoder(kind) ? dw_coders_encoder(group, slot, kind, other) != NULL
                                        : dw_coders_decoder(group, slot, kind, other) != NULL;
    return is ? DW_OK : DW_PENDING;
}

dw_status dw_coders_prepare(dw_group *group, dw_group_slot *slot)
{
    if (visit_needs(group, slot, is_there) == DW_OK) return DW_OK;
    dw_exclusive_begin(group);
    dw_status status = visit_needs(group, slot, dw_coders_make_one);
    dw_exclusive_end(group);
    return status;
}

dw_status dw_coders_visit(dw_group *group, dw_group_slot *slot, dw_coder_visit *visit,
                          void *context)
{
    dw_status status = DW_OK;
    const dw_coders *coders = slot ? &slot->coders : &group->coders;
    for (dw_coder_kind kind = DW_REDUCE_SCATTER_ENCODER; kind <= DW_ONE_SHOT_DECODER; kind++) {
        bool is_one = kind == DW_ALL_GATHER_ENCODER || kind == DW_ONE_SHOT_ENCODER;
        for (uint32_t r = 0; r < (is_one ? 1 : group->ranks) && status == DW_OK; r++) {
            uint32_t place = place_of(group, kind, r);
            dw_coder found = {.kind = kind, .other = r};
            if (dw_coder_is_encoder(kind) && coders->encoders)
                found.encoder = coders->encoders[place];
            if (!dw_coder_is_encoder(kind) && coders->decoders)
                found.decoder = coders->decoders[place];
            if (found.encoder || found.decoder) status = visit(context, slot, &found);
        }
    }
    return status;
}

static bool is_one_shot(const dw_group *group, const dw_message *head)
{
    return group->hops == 1 && head->operation == DW_ALL_REDUCE;
}

static dw_coder_kind encoder_kind(const dw_group *group, const dw_message *head)
{
    if (head->flags & DW_MESSAGE_HOP2) return DW_ALL_GATHER_ENCODER;
    return is_one_shot(group, head) ? DW_ONE_SHOT_ENCODER : DW_REDUCE_SCATTER_ENCODER;
}

dw_encoder *dw_coders_encoder_of(const dw_group *group, const dw_group_slot *slot,
                                 const dw_message *head)
{
    return dw_coders_encoder(group, slot, encoder_kind(group, head), head->part);
}

/* ---- Places ---------------------------------------------------------------------------------- */

void dw_coders_agree(dw_group *group)
{
    uint64_t common = group->rank == 0 ? group->nonce : group->peers[0].nonce;
    if (group->codec.incarnation) common = group->codec.incarnation;
    group->places = dw_message_seed(common, group->codec.seed, 0);
}

/* Returns what encoders draw places from: the same number for a part on all ranks and hops, another
 * one at each visit. With scaling=unbiased each hop multiplies what it sends by how seldom it sends
 * it. That is right only if the hops draw apart, so 0 is returned then. */
static uint64_t places_of(const dw_group *group, const dw_message *head)
{
    const dw_config *config = head->flags & DW_MESSAGE_HOP2 ? &group->result : &group->codec;
    if (config->scaling == DW_SCALING_UNBIASED) return 0;
    return dw_message_seed(group->places, head->visit, head->part) | 1;
}

/* ---- Frames ---------------------------------------------------------------------------------- */

bool dw_coders_encode(dw_group *group, dw_group_slot *slot, const dw_message *head,
                      const dw_tensor *x, dw_frame_room *frame)
{
    dw_encoder *encoder = dw_coders_encoder_of(group, slot, head);
    dw_key key = {.sample = head->slot, .slice = head->piece};
    int64_t begin_ns = dw_group_now_ns();
    dw_encode_options options = {.struct_size = sizeof options,
                                 .places = places_of(group, head),
                                 .bypass_caches = slot->now.is_large};
    dw_status status =
        dw_encode_with(encoder, &key, x, &options, frame->at, frame->cap, &frame->len);
    group->count.codec_ns += (uint64_t)(dw_group_now_ns() - begin_ns);
    group->count.raw_bytes += (uint64_t)x->t * x->c * dw_dtype_bytes(x->dtype);
    group->count.encoded_bytes += frame->len;
    if (status == DW_OK) return dw_rollback_keep(group, slot, head, frame);
    dw_group_fail(group, status, group->rank, "slot %llu: rank %u cannot encode it: %.120s",
                  (unsigned long long)head->slot, group->rank, dw_encoder_why(encoder));
    return false;
}

bool dw_coders_decode(dw_group *group, const dw_group_slot *slot, const dw_message *head,
                      uint32_t from, const void *frame, size_t len, const dw_tensor *y,
                      const dw_decode_options *options)
{
    dw_coder_kind kind = (dw_coder_kind)(encoder_kind(group, head) + 1);
    dw_decoder *decoder = y ? dw_coders_decoder(group, slot, kind, from) : NULL;
    dw_status status = len == 0 ? DW_OK : DW_ERR_FORMAT;
    dw_counters before = {.struct_size = sizeof before}, after = before;
    bool is_result = kind != DW_REDUCE_SCATTER_DECODER && y;
    if (is_result) dw_decoder_counters(decoder, &before);
    int64_t begin_ns = dw_group_now_ns();
    if (y) status = dw_decode_with(decoder, frame, len, y, options, NULL, 0, NULL);
    group->count.codec_ns += (uint64_t)(dw_group_now_ns() - begin_ns);
    if (is_result) dw_decoder_counters(decoder, &after);
    group->count.poisoned += after.poisoned_groups - before.poisoned_groups;
    if (status == DW_OK) return true;
    dw_group_fail(group, status, from,
                  "slot %llu: piece %u of rank %u's %s cannot be decoded: %.100s",
                  (unsigned long long)head->slot, head->piece, from,
                  head->flags & DW_MESSAGE_HOP2 ? "result" : "contribution",
                  y ? dw_decoder_why(decoder) : "it should be empty");
    return false;
}

size_t dw_coders_bound(dw_group *group, const dw_config *config, dw_dtype dtype, uint64_t count)
{
    if (count == 0) return 0;
    dw_tensor x = dw_flat_view(NULL, dtype, count);
    for (uint32_t i = 0; i < DW_GROUP_BOUNDS; i++) {
        const dw_group_bound *known = &group->bounds[i];
        if (known->config == config && known->dtype == dtype && known->t == x.t && known->c == x.c)
            return known->bytes;
    }
    size_t bytes = dw_frame_bound(config, &x);
    group->bounds[group->next_bound++ % DW_GROUP_BOUNDS] =
        (dw_group_bound){.config = config, .dtype = dtype, .t = x.t, .c = x.c, .bytes = bytes};
    return bytes;
}

/* Not those with state, which would have to be decoded, and not those whose bytes are coded once
 * more. */
bool dw_coders_can_check(const dw_config *config)
{
    bool is_plain = config->codec == DW_CODEC_DIRECT || config->codec == DW_CODEC_MX ||
                    config->codec == DW_CODEC_RAW || config->codec == DW_CODEC_BLOCKS;
    return is_plain && config->entropy <= DW_ENTROPY_NONE;
}
