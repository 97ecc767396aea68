/* SPDX-License-Identifier: Apache-2.0
 * coders.c - the encoders and decoders of a group. All slots share them, because an encoder that
 * keeps state takes at least two mebibytes.
 *
 * Codecs that draw the places of what they send (randk, cocktail) draw the same ones on all ranks,
 * and on both hops of an operation. Then a sum has values at as many places as a contribution, and
 * the second hop does not leave most of them out again.
 *
 * Slots may be started in any order, so a decoder does not see frames in the order in which they
 * were encoded. That is allowed for frames of different keys, but not after a frame that announces
 * forgotten keys. So no encoder announces any: each rank drops the state of a slot by itself. */
#include "group.h"

void dw_coders_destroy(dw_group *group, dw_group_coders *coders)
{
    for (uint32_t r = 0; r < group->ranks; r++) {
        if (coders->contribute) dw_encoder_destroy(coders->contribute[r]);
        if (coders->add) dw_decoder_destroy(coders->add[r]);
        if (coders->take) dw_decoder_destroy(coders->take[r]);
        if (coders->gathered) dw_decoder_destroy(coders->gathered[r]);
    }
    dw_encoder_destroy(coders->share);
    dw_encoder_destroy(coders->gather);
    size_t bytes = group->ranks * sizeof(void *);
    dw_group_memory_give(&group->allocator, coders->contribute, bytes);
    dw_group_memory_give(&group->allocator, coders->add, bytes);
    dw_group_memory_give(&group->allocator, coders->take, bytes);
    dw_group_memory_give(&group->allocator, coders->gathered, bytes);
    *coders = (dw_group_coders){0};
}

/* Encoders with the same incarnation would make the same random numbers, and their errors would add
 * up. So an incarnation that the caller chose is made different for each encoder. */
static dw_config config_for(const dw_config *config, uint32_t rank, uint32_t to)
{
    dw_config own = *config;
    if (own.incarnation == 0) return own;
    own.incarnation = dw_message_seed(own.incarnation, to, rank);
    if (own.incarnation == 0) own.incarnation = 1;
    return own;
}

/* An all-reduce in one hop has an encoder and decoders of its own. A decoder takes the frames of a
 * single encoder, and here all ranks get the frames of the same one; in a reduce-scatter of the
 * same group each rank gets those of another one. */
static dw_status make_gathering(dw_group *group, dw_group_coders *coders)
{
    coders->gathered =
        dw_group_memory_zeroed(&group->allocator, group->ranks * sizeof *coders->gathered);
    if (!coders->gathered) return DW_ERR_NO_MEMORY;
    dw_config config = config_for(&group->codec, group->rank, group->ranks + 1);
    dw_status status = dw_encoder_create(&coders->gather, &config);
    for (uint32_t r = 0; r < group->ranks && status == DW_OK; r++)
        status = dw_decoder_create(&coders->gathered[r], &group->codec);
    return status;
}

dw_status dw_coders_make(dw_group *group, dw_group_coders *coders)
{
    size_t bytes = group->ranks * sizeof(void *);
    *coders = (dw_group_coders){0};
    coders->contribute = dw_group_memory_zeroed(&group->allocator, bytes);
    coders->add = dw_group_memory_zeroed(&group->allocator, bytes);
    coders->take = dw_group_memory_zeroed(&group->allocator, bytes);
    if (!coders->contribute || !coders->add || !coders->take) return DW_ERR_NO_MEMORY;
    dw_config config = config_for(&group->result, group->rank, group->ranks);
    dw_status status = dw_encoder_create(&coders->share, &config);
    for (uint32_t r = 0; r < group->ranks && status == DW_OK; r++) {
        config = config_for(&group->codec, group->rank, r);
        status = dw_encoder_create(&coders->contribute[r], &config);
        if (status == DW_OK) status = dw_decoder_create(&coders->add[r], &group->codec);
        if (status == DW_OK) status = dw_decoder_create(&coders->take[r], &group->result);
    }
    return status == DW_OK && group->hops == 1 ? make_gathering(group, coders) : status;
}

static bool is_gathered(const dw_group *group, const dw_message *head)
{
    return group->hops == 1 && head->operation == DW_ALL_REDUCE;
}

dw_encoder *dw_coders_contributing(const dw_group *group, const dw_message *head)
{
    return is_gathered(group, head) ? group->coders.gather : group->coders.contribute[head->part];
}

dw_decoder *dw_coders_adding(const dw_group *group, const dw_message *head, uint32_t from)
{
    return is_gathered(group, head) ? group->coders.gathered[from] : group->coders.add[from];
}

/* ---- Places ---------------------------------------------------------------------------------- */

void dw_coders_agree(dw_group *group)
{
    uint64_t common = group->rank == 0 ? group->nonce : group->lanes[0].peer_nonce;
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

bool dw_coders_encode(dw_group *group, dw_group_slot *slot, dw_encoder *encoder,
                      const dw_message *head, const dw_tensor *x, dw_frame_room *frame)
{
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
    if (status == DW_OK) return dw_undoing_keep(group, slot, head, frame);
    dw_group_fail(group, status, group->rank, "slot %llu: rank %u cannot encode it: %.120s",
                  (unsigned long long)head->slot, group->rank, dw_encoder_why(encoder));
    return false;
}

bool dw_coders_decode(dw_group *group, dw_decoder *decoder, const dw_message *head, uint32_t from,
                      const void *frame, size_t len, const dw_tensor *y,
                      const dw_decode_options *options)
{
    dw_status status = len == 0 ? DW_OK : DW_ERR_FORMAT;
    dw_counters before = {.struct_size = sizeof before}, after = before;
    bool is_result = head->flags & DW_MESSAGE_HOP2 || is_gathered(group, head);
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
    dw_tensor x = dw_group_view(NULL, dtype, count);
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

/* ---- Forgetting ------------------------------------------------------------------------------ */

/* Where the state of all slots but one goes. */
typedef struct mover {
    dw_encoder *encoder;
    dw_decoder *decoder;
    uint64_t without;
} mover;

static dw_status move_key(void *context, dw_key key, const void *saved, size_t len)
{
    const mover *to = context;
    if (key.sample == to->without) return DW_OK;
    return to->encoder ? dw_encoder_import(to->encoder, saved, len)
                       : dw_decoder_import(to->decoder, saved, len);
}

static dw_status move_encoder(dw_encoder *from, dw_encoder *to, uint64_t without)
{
    mover to_new = {to, NULL, without};
    return dw_encoder_export_all(from, move_key, &to_new);
}

static dw_status move_decoder(dw_decoder *from, dw_decoder *to, uint64_t without)
{
    mover to_new = {NULL, to, without};
    return dw_decoder_export_all(from, move_key, &to_new);
}

/* New encoders and decoders take over the state of all other slots. This costs time in proportion
 * to that state, but slots are seldom forgotten, and decoders have no function that forgets. */
dw_status dw_coders_forget(dw_group *group, uint64_t slot)
{
    if (!group->keeps_state[0] && !group->keeps_state[1]) return DW_OK;
    /* Results were checked by the decoders that go now; only those have memory for all of them. */
    for (dw_group_slot *other = group->running; other; other = other->next_running)
        if (other->now.is_safe) (void)dw_sharing_finish(group, other);
    dw_group_coders made, *old = &group->coders;
    dw_status status = dw_coders_make(group, &made);
    for (uint32_t r = 0; r < group->ranks && status == DW_OK; r++) {
        if (group->keeps_state[0])
            status = move_encoder(old->contribute[r], made.contribute[r], slot);
        if (group->keeps_state[0] && status == DW_OK)
            status = move_decoder(old->add[r], made.add[r], slot);
        if (group->keeps_state[0] && status == DW_OK && made.gathered)
            status = move_decoder(old->gathered[r], made.gathered[r], slot);
        if (group->keeps_state[1] && status == DW_OK)
            status = move_decoder(old->take[r], made.take[r], slot);
    }
    if (group->keeps_state[1] && status == DW_OK)
        status = move_encoder(old->share, made.share, slot);
    if (group->keeps_state[0] && status == DW_OK && made.gather)
        status = move_encoder(old->gather, made.gather, slot);
    dw_group_coders *unused = status == DW_OK ? old : &made;
    dw_coders_destroy(group, unused);
    if (status == DW_OK) group->coders = made;
    return status;
}
