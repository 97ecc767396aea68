/* SPDX-License-Identifier: Apache-2.0
 * open.c - opening and closing groups. */
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "base/mem.h"
#include "group.h"
#include "handshake.h"

enum {
    DEFAULT_TIMEOUT_MS = 60000,
    DEFAULT_PIECE = 262144,
    WORTHWHILE_FRAME = 32768,
    MOST_PIECE = 1 << 26
};
#define DEFAULT_EARLY_BYTES (UINT64_C(1) << 30)

dw_group_thresholds dw_group_all_thresholds = {
    .held_from = 16384, .large_from = 4 << 20, .ratio = 2};

/* ---- The config ------------------------------------------------------------------------------ */

static dw_status check(const dw_group_config *config, dw_why *why)
{
    if (config->id < 1 || config->id > 0xffff)
        return dw_say(why, DW_ERR_ARGUMENT, "%u is not a valid group id; use 1 to 65535",
                      config->id);
    if (config->ranks < 1 || config->ranks > DW_GROUP_MOST_RANKS || config->rank >= config->ranks)
        return dw_say(why, DW_ERR_ARGUMENT,
                      "group %u: rank %u of %u ranks: a group has 1 to %d ranks, and ranks "
                      "count from 0",
                      config->id, config->rank, config->ranks, DW_GROUP_MOST_RANKS);
    if (config->ranks > 1 && !config->links == !config->uris)
        return dw_say(why, DW_ERR_ARGUMENT, "group %u: set either links or uris", config->id);
    for (uint32_t r = 0; r < config->ranks; r++) {
        if (r == config->rank ||
            (config->links ? config->links[r] != NULL : config->uris && config->uris[r] != NULL))
            continue;
        return dw_say(why, DW_ERR_ARGUMENT, "group %u: there is no link to rank %u", config->id, r);
    }
    for (uint32_t r = 0; config->links && r < config->ranks; r++) {
        for (uint32_t other = 0; other < r; other++) {
            if (r != config->rank && other != config->rank &&
                config->links[r] == config->links[other])
                return dw_say(why, DW_ERR_ARGUMENT, "group %u: ranks %u and %u have the same link",
                              config->id, other, r);
        }
    }
    if (config->piece % DW_GROUP_TILE != 0 || config->piece > MOST_PIECE)
        return dw_say(why, DW_ERR_ARGUMENT,
                      "group %u: pieces of %u floats: use a multiple of %d, at most %d", config->id,
                      config->piece, DW_GROUP_TILE, MOST_PIECE);
    if (config->hops > 2)
        return dw_say(why, DW_ERR_ARGUMENT, "group %u: %u hops: an all-reduce has 1 or 2",
                      config->id, config->hops);
    const uint16_t one = 1;
    if (config->verify && *(const unsigned char *)&one != 1)
        return dw_say(why, DW_ERR_UNSUPPORTED,
                      "group %u: verify compares the bytes of memory of little-endian "
                      "machines; this one is another; leave verify 0 on all ranks",
                      config->id);
    return DW_OK;
}

/* Copies the config of one hop. The group sees to it that every frame arrives, so decoders need not
 * reply, and encoders need no second copy of prev. */
static dw_status take_codec(const dw_settings *settings, dw_config *own, const dw_config *given,
                            const char *of, dw_why *why)
{
    uint32_t id = settings->id;
    dw_why parsed;
    dw_status status = DW_OK;
    if (!given) {
        status = dw_config_parse(own, "raw:f32", &parsed);
    } else if (given->struct_size < sizeof(size_t)) {
        return dw_say(why, DW_ERR_ARGUMENT, "group %u: the config of %s has no struct_size", id,
                      of);
    } else {
        size_t size = given->struct_size < sizeof *own ? given->struct_size : sizeof *own;
        memcpy(own, given, size);
        own->struct_size = sizeof *own;
    }
    own->replies = DW_REPLIES_NEVER;
    /* A flat buffer has no rows. */
    if (own->form == DW_FORM_STEP && (!own->group || own->group == DW_GROUP_ROW))
        own->group = own->rotate > 128 ? own->rotate : 128;
    if (status == DW_OK && own->group == DW_GROUP_CHANNEL)
        return dw_say(why, DW_ERR_CONFIG,
                      "group %u: group=channel has no meaning in a flat buffer; use a number "
                      "or row",
                      id);
    dw_encoder *encoder = NULL; /* tells what is wrong with a config */
    if (status == DW_OK) status = dw_encoder_create(&encoder, own, &settings->host, &parsed);
    dw_encoder_destroy(encoder);
    if (status == DW_OK) return DW_OK;
    return dw_say(why, status, "group %u: the config of %s: %.180s", id, of, parsed.text);
}

static dw_status take_host(dw_settings *settings, const dw_host *given, dw_why *why)
{
    dw_host *own = &settings->host;
    dw_status status = given ? dw_take_asked(own, sizeof *own, given, "dw_host", why) : DW_OK;
    own->struct_size = sizeof *own;
    if (status != DW_OK || !own->cuda) return status;
    return dw_say(why, DW_ERR_ARGUMENT,
                  "group %u: its codecs work on the CPU; leave cuda of the host NULL, and give it "
                  "with each job",
                  settings->id);
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Returns the longest frame of a piece of so many floats. */
static size_t bound_of(const dw_settings *settings, const dw_config *config, uint64_t count)
{
    dw_tensor x = dw_flat_view(NULL, DW_F32, count);
    x.data = (void *)(uintptr_t)settings; /* only the shape is read, but a pointer is wanted */
    return dw_frame_bound(config, &x);
}

/* Room for a frame of any piece that the progress owner encodes for itself. */
static size_t scratch_for(const dw_settings *settings)
{
    const dw_config *const configs[] = {&settings->codec, &settings->result,
                                        &settings->rounding[0]};
    size_t cap = 0;
    for (int i = 0; i < 3; i++) {
        cap = larger(cap, bound_of(settings, configs[i], settings->longest_piece));
        cap = larger(cap, bound_of(settings, configs[i], settings->longest_piece - 1));
    }
    return cap + DW_GROUP_TILE;
}

/* Returns the shortest piece whose frames are so long that a message costs little beside them. */
static uint32_t shortest_for(const dw_settings *settings)
{
    size_t frame = larger(1, bound_of(settings, &settings->codec, DEFAULT_PIECE));
    size_t result = larger(1, bound_of(settings, &settings->result, DEFAULT_PIECE));
    if (result < frame) frame = result;
    uint64_t tiles = (uint64_t)WORTHWHILE_FRAME * DEFAULT_PIECE / DW_GROUP_TILE / frame + 1;
    return tiles * DW_GROUP_TILE < DEFAULT_PIECE ? (uint32_t)(tiles * DW_GROUP_TILE)
                                                 : DEFAULT_PIECE;
}

/* ---- Memory and locks ------------------------------------------------------------------------ */

static void free_group(dw_group *group)
{
    dw_exchange *exchange = &group->exchange;
    dw_allocator allocator = exchange->settings.allocator;
    uint32_t ranks = exchange->peers ? exchange->settings.ranks : 0;
    for (uint32_t r = 0; r < ranks; r++) dw_peer_free(&exchange->peers[r]);
    dw_received_list *const lists[] = {&group->inbox.list, &group->progress.left};
    for (int i = 0; i < 2; i++)
        for (dw_received *received; (received = dw_received_pop(lists[i])) != NULL;)
            dw_received_give(&exchange->pool, received);
    dw_slot_free_all(&group->slots, &exchange->coding, &exchange->pool);
    /* After all messages were given back, because some lie in memory of the links. */
    for (uint32_t r = 0; group->owns_links && r < ranks; r++)
        dw_link_close(exchange->peers[r].link);
    dw_device_end(&exchange->device);
    dw_coding_close(&exchange->coding);
    dw_received_free_all(&exchange->pool);
    dw_mem_release(&allocator, exchange->peers, ranks * sizeof *exchange->peers);
    dw_progress_owner_close(&group->owner);
    pthread_mutex_destroy(&group->lock);
    dw_fork_guard_end(&exchange->settings.fork_guard);
    dw_mem_release(&allocator, group, sizeof *group);
}

static void take_numbers(dw_settings *settings, const dw_group_config *config)
{
    dw_fork_guard_begin(&settings->fork_guard);
    settings->id = config->id;
    settings->rank = config->rank;
    settings->ranks = config->ranks;
    settings->hops = config->hops ? config->hops : 2;
    settings->verifies = config->verify != 0;
    settings->thresholds = dw_group_all_thresholds;
    settings->piece = config->piece;
    settings->longest_piece = config->piece ? config->piece : DEFAULT_PIECE;
    settings->timeout_ms = config->timeout_ms ? config->timeout_ms : DEFAULT_TIMEOUT_MS;
    settings->open_timeout_ms =
        config->open_timeout_ms ? config->open_timeout_ms : DEFAULT_TIMEOUT_MS;
    settings->max_early_bytes =
        config->max_early_bytes ? config->max_early_bytes : DEFAULT_EARLY_BYTES;
    settings->nonce = dw_mem_random();
}

static void make_peers(dw_group *group)
{
    dw_exchange *exchange = &group->exchange;
    const dw_settings *settings = &exchange->settings;
    exchange->peers =
        dw_mem_allocate_zeroed(&settings->allocator, 1, settings->ranks * sizeof *exchange->peers);
    for (uint32_t r = 0; exchange->peers && r < settings->ranks; r++)
        exchange->peers[r] = (dw_peer){.settings = settings,
                                       .pool = &exchange->pool,
                                       .failure = &exchange->failure,
                                       .count = &exchange->count,
                                       .rank = r,
                                       .waits_for = UINT32_MAX,
                                       .group = group};
}

static dw_group *make_group(const dw_group_config *config)
{
    dw_group *group = dw_mem_allocate_zeroed(&config->allocator, 1, sizeof *group);
    if (!group) return NULL;
    dw_exchange *exchange = &group->exchange;
    dw_settings *settings = &exchange->settings;
    settings->allocator = config->allocator;
    take_numbers(settings, config);
    exchange->coding.settings = settings;
    exchange->coding.failure = &exchange->failure;
    exchange->coding.count = &exchange->count;
    dw_received_open(&exchange->pool, &config->allocator, settings->thresholds.held_from);
    dw_device_begin(&exchange->device);
    pthread_mutex_init(&group->lock, NULL);
    dw_progress_owner_open(&group->owner);
    make_peers(group);
    if (exchange->peers) return group;
    free_group(group);
    return NULL;
}

static dw_status take_configs(dw_exchange *exchange, const dw_group_config *config, dw_why *why)
{
    dw_settings *settings = &exchange->settings;
    dw_status status = take_host(settings, config->host, why);
    if (status == DW_OK)
        status = take_codec(settings, &settings->codec, config->codec, "contributions", why);
    if (status == DW_OK)
        status = take_codec(settings, &settings->result,
                            config->result ? config->result : config->codec, "results", why);
    if (status != DW_OK) return status;
    dw_facts facts = {.struct_size = sizeof facts};
    dw_config_facts(&settings->codec, &facts); /* cannot fail: take_codec has made an encoder */
    settings->keeps_state[0] = facts.keeps_prev || facts.keeps_residual;
    dw_config_facts(&settings->result, &facts);
    settings->keeps_state[1] = facts.keeps_prev || facts.keeps_residual;
    settings->has_fixed_results = facts.has_fixed_size;
    dw_config_parse(&settings->rounding[0], "raw:f16,replies=never", NULL);
    dw_config_parse(&settings->rounding[1], "raw:bf16,replies=never", NULL);
    settings->shortest_piece = shortest_for(settings);
    exchange->coding.scratch_bytes = scratch_for(settings);
    status = dw_coding_open(&exchange->coding);
    if (status == DW_OK) return DW_OK;
    return dw_say(why, status, "group %u: no memory", settings->id);
}

/* ---- Links ----------------------------------------------------------------------------------- */

/* All links that have no limit of their own, and the hellos, share one: the time until which the
 * group opens. */
static int64_t open_by_ns(const dw_settings *settings)
{
    return dw_now_ns() + (int64_t)settings->open_timeout_ms * DW_NS_PER_MS;
}

/* All ranks open their links in the order of the ranks, so nobody waits in a circle. */
static dw_status open_link(dw_peer *peer, const dw_group_config *config, int64_t *by_ns,
                           dw_why *why)
{
    const dw_settings *settings = peer->settings;
    dw_link_options options = {.struct_size = sizeof options};
    dw_status status = DW_OK;
    if (config->link_options)
        status =
            dw_take_asked(&options, sizeof options, config->link_options, "dw_link_options", why);
    if (status != DW_OK) return status;
    options.struct_size = sizeof options;
    options.role = settings->rank < peer->rank ? DW_LINK_LISTEN : DW_LINK_CONNECT;
    bool has_own_limit = options.open_timeout_ms != 0;
    int64_t left_ms = (*by_ns - dw_now_ns()) / DW_NS_PER_MS;
    if (!has_own_limit) options.open_timeout_ms = left_ms > 1 ? (uint32_t)left_ms : 1;
    dw_why link_why;
    status = dw_link_open(&peer->link, config->uris[peer->rank], &options, &link_why);
    if (has_own_limit) *by_ns = open_by_ns(settings);
    if (status == DW_OK) return DW_OK;
    return dw_say(why, status, "group %u, link to rank %u: %.180s", settings->id, peer->rank,
                  link_why.text);
}

static dw_status take_links(dw_group *group, const dw_group_config *config, int64_t *by_ns,
                            dw_why *why)
{
    const dw_settings *settings = &group->exchange.settings;
    group->owns_links = config->uris != NULL;
    for (uint32_t r = 0; r < settings->ranks; r++) {
        dw_peer *peer = &group->exchange.peers[r];
        if (r == settings->rank) continue;
        dw_status status = DW_OK;
        if (config->uris)
            status = open_link(peer, config, by_ns, why);
        else
            peer->link = config->links[r];
        if (status != DW_OK) return status;
        dw_link_counters counters = {.struct_size = sizeof counters};
        if (dw_link_count(peer->link, &counters) != DW_OK)
            return dw_say(why, DW_ERR_ARGUMENT,
                          "group %u: the link to rank %u belongs to another process", settings->id,
                          r);
        peer->retry_ms = (uint32_t)counters.retry_ms;
    }
    return DW_OK;
}

static dw_status set_handlers(dw_group *group, dw_why *why)
{
    for (uint32_t r = 0; r < group->exchange.settings.ranks; r++) {
        dw_peer *peer = &group->exchange.peers[r];
        if (!peer->link) continue;
        dw_status status =
            dw_link_handle(peer->link, group->exchange.settings.id << 8 | DW_PEER_MESSAGES,
                           dw_group_inbox_take, peer);
        peer->has_handler = status == DW_OK;
        if (status == DW_ERR_ARGUMENT || status == DW_ERR_NO_MEMORY)
            return dw_say(why, status, "group %u: the link to rank %u takes no handler: %s",
                          group->exchange.settings.id, r, dw_status_string(status));
        /* Any other error is that of the link, which the progress owner will find. */
    }
    return DW_OK;
}

static void remove_handlers(dw_group *group)
{
    for (uint32_t r = 0; r < group->exchange.settings.ranks; r++) {
        dw_peer *peer = &group->exchange.peers[r];
        if (peer->has_handler)
            dw_link_handle(peer->link, group->exchange.settings.id << 8 | DW_PEER_MESSAGES, NULL,
                           NULL);
        peer->has_handler = false;
    }
}

/* Signals are for the threads of the program. */
static dw_status start_thread(dw_group *group, dw_why *why)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&group->thread, NULL, dw_progress_run_thread, group);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    group->has_thread = !failed;
    if (!failed) return DW_OK;
    return dw_say(why, DW_ERR_NO_MEMORY, "group %u: the system cannot create a thread",
                  group->exchange.settings.id);
}

static uint64_t nonce_of_rank_0(const dw_exchange *exchange)
{
    const dw_settings *settings = &exchange->settings;
    return settings->rank == 0 ? settings->nonce : exchange->peers[0].session.nonce;
}

/* ---- The public side ------------------------------------------------------------------------- */

dw_status dw_group_open(dw_group **group, const dw_group_config *given, dw_why *why)
{
    DW_UNCANCELLED;
    dw_why own_why;
    if (!why) why = &own_why;
    *why = (dw_why){.text = "", .offset = -1};
    if (!group || !given)
        return dw_say(why, DW_ERR_ARGUMENT, "dw_group_open needs a group and a config");
    *group = NULL;
    dw_group_config config;
    dw_status status = dw_take_asked(&config, sizeof config, given, "dw_group_config", why);
    if (status == DW_OK) status = check(&config, why);
    if (status == DW_OK) status = dw_mem_take_allocator(&config.allocator, &config.allocator, why);
    if (status != DW_OK) return status;
    dw_group *made = make_group(&config);
    if (!made) return dw_say(why, DW_ERR_NO_MEMORY, "group %u: no memory", config.id);
    dw_exchange *exchange = &made->exchange;
    status = made->owner.bell >= 0
                 ? take_configs(exchange, &config, why)
                 : dw_say(why, DW_ERR_IO, "group %u: the system cannot make an eventfd: %s",
                          config.id, strerror(errno));
    int64_t by_ns = open_by_ns(&exchange->settings);
    if (status == DW_OK) status = take_links(made, &config, &by_ns, why);
    if (status == DW_OK)
        status = dw_handshake_run(&exchange->settings, exchange->peers, by_ns, why);
    if (status == DW_OK) dw_coding_agree(&exchange->coding, nonce_of_rank_0(exchange));
    if (status == DW_OK) status = set_handlers(made, why);
    if (status == DW_OK && config.ranks > 1) status = start_thread(made, why);
    if (status != DW_OK) {
        remove_handlers(made);
        free_group(made);
        return status;
    }
    *group = made;
    return DW_OK;
}

void dw_group_close(dw_group *group)
{
    DW_UNCANCELLED;
    if (!dw_group_is_ours(group)) return;
    if (group->has_thread) {
        pthread_mutex_lock(&group->lock);
        group->is_closing = true;
        pthread_cond_signal(&group->owner.work);
        pthread_mutex_unlock(&group->lock);
        pthread_join(group->thread, NULL);
    }
    remove_handlers(group);
    free_group(group);
}
