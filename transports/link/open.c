/* SPDX-License-Identifier: Apache-2.0
 * open.c - opens a link (options, backend, handshake, thread) and closes it. */
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "link/link.h"

/* ---- Building ---- */

static bool start_conditions(dw_link *link)
{
    pthread_condattr_t monotonic;
    if (pthread_condattr_init(&monotonic) != 0) return false;
    int made = 0;
    if (pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC) == 0) {
        pthread_cond_t *all[] = {&link->inboxes.arrived, &link->queue.drained,
                                 &link->handlers.handled, &link->lifetime.idle, &link->io.standby};
        while (made < 5 && pthread_cond_init(all[made], &monotonic) == 0) made++;
        if (made < 5) {
            while (made > 0) pthread_cond_destroy(all[--made]);
        }
    }
    pthread_condattr_destroy(&monotonic);
    return made == 5;
}

static void fill_settings(dw_link_settings *settings, const dw_link_options *options)
{
    uint64_t queued = options->max_queued_bytes;
    uint64_t beyond = queued / 2 > DW_LINK_BEYOND_BYTES ? queued / 2 : DW_LINK_BEYOND_BYTES;
    *settings = (dw_link_settings){.allocator = options->allocator,
                                   .listens = options->role == DW_LINK_LISTEN,
                                   .peer_timeout_ms = options->peer_timeout_ms,
                                   .close_timeout_ms = options->close_timeout_ms,
                                   .max_message_bytes = options->max_message_bytes,
                                   .own_max_message_bytes = options->max_message_bytes,
                                   .max_queued_bytes = queued,
                                   .max_arrived_bytes =
                                       queued > UINT64_MAX - beyond ? UINT64_MAX : queued + beyond};
}

/* Each part gets pointers to those that it calls. */
static bool make_parts(dw_link *link, const dw_transport *transport)
{
    const dw_allocator *allocator = &link->settings.allocator;
    link->pool.allocator = link->inboxes.allocator = allocator;
    /* Free buffers for both directions, and for messages longer than a short queue, are kept: to
     * get memory from the system costs more time than to send a message. */
    link->pool.keep_bytes = link->settings.max_queued_bytes + ((uint64_t)64 << 20);
    link->io.lock = link->handlers.lock = &link->lock;
    link->queue.pool = link->handlers.pool = &link->pool;
    link->queue.max_bytes = link->settings.max_queued_bytes;
    link->handlers.inboxes = &link->inboxes;
    dw_inbox_begin(&link->inboxes);
    link->receiver = (dw_receiver){.backend = &link->backend,
                                   .settings = &link->settings,
                                   .inboxes = &link->inboxes,
                                   .pool = &link->pool,
                                   .io = &link->io};
    link->timeouts = (dw_timeouts){.backend = &link->backend,
                                   .sender = &link->sender,
                                   .receiver = &link->receiver,
                                   .failure = &link->failure};
    bool has_backend = dw_backend_create(&link->backend, transport, allocator);
    bool has_sender = dw_sender_create(&link->sender, &link->backend, &link->queue, &link->lock);
    return dw_receiver_create(&link->receiver) && has_backend && has_sender;
}

static dw_status make_link(dw_link **made, const dw_transport *transport,
                           const dw_link_options *options, dw_why *why)
{
    const dw_allocator *allocator = &options->allocator;
    dw_link *link = dw_mem_allocate_zeroed(allocator, 1, sizeof *link);
    if (!link) return dw_say(why, DW_ERR_NO_MEMORY, "no memory for a link");
    if (!dw_wakeup_open(&link->io.thread_wakeup) || !dw_wakeup_open(&link->io.caller_wakeup)) {
        int error = errno;
        dw_wakeup_close(&link->io.thread_wakeup);
        dw_mem_release(allocator, link, sizeof *link);
        return dw_say(why, DW_ERR_IO, "cannot make a pipe for a link: %s",
                      dw_link_system_says(error));
    }
    if (pthread_mutex_init(&link->lock, NULL) != 0 || !start_conditions(link)) {
        dw_wakeup_close(&link->io.thread_wakeup);
        dw_wakeup_close(&link->io.caller_wakeup);
        dw_mem_release(allocator, link, sizeof *link);
        return dw_say(why, DW_ERR_NO_MEMORY, "no memory for the locks of a link");
    }
    dw_fork_guard_begin(&link->fork_guard);
    fill_settings(&link->settings, options);
    if (!make_parts(link, transport)) {
        dw_link_free(link);
        return dw_say(why, DW_ERR_NO_MEMORY, "no memory for a link");
    }
    *made = link;
    return DW_OK;
}

static dw_status start_thread(dw_link *link, dw_why *why)
{
    dw_timeouts_begin(&link->timeouts, dw_now_ns());
    dw_receiver_begin(&link->receiver);
    /* All signals are blocked in this thread: signal handlers of the program run in its own
     * threads. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&link->thread, NULL, dw_link_run, link);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) {
        return dw_say(
            why, DW_ERR_NO_MEMORY,
            "cannot start the thread of a link: %s; raise `ulimit -u`, or open fewer links",
            strerror(error));
    }
    return DW_OK;
}

static void ignore_listening(void *context, const char *uri)
{
    (void)context;
    (void)uri;
}

/* Copies the options and fills in the defaults. *tls: room for a copy of options->tls. */
static dw_status complete_options(dw_link_options *full, dw_tls_options *tls,
                                  const dw_link_options *options, dw_why *why)
{
    *full = (dw_link_options){0};
    if (options) {
        dw_status status = dw_take_asked(full, sizeof *full, options, "dw_link_options", why);
        if (status != DW_OK) return status;
    }
    if (full->tls) {
        dw_status status = dw_take_asked(tls, sizeof *tls, full->tls, "dw_tls_options", why);
        if (status != DW_OK) return status;
        full->tls = tls;
    }
    if (full->role == 0) full->role = DW_LINK_CONNECT;
    if (full->role != DW_LINK_CONNECT && full->role != DW_LINK_LISTEN) {
        return dw_say(why, DW_ERR_ARGUMENT, "role %d is neither listen nor connect",
                      (int)full->role);
    }
    if (full->open_timeout_ms == 0) full->open_timeout_ms = 60000;
    if (full->peer_timeout_ms == 0) full->peer_timeout_ms = 60000;
    if (full->close_timeout_ms == 0) full->close_timeout_ms = 5000;
    /* A quarter of the address space at most, so that sums of a few sizes do not overflow. */
    uint64_t gibibyte = (uint64_t)1 << 30, most = SIZE_MAX / 4;
    if (full->max_message_bytes == 0) full->max_message_bytes = gibibyte;
    if (full->max_message_bytes > most) full->max_message_bytes = most;
    if (full->max_queued_bytes == 0) full->max_queued_bytes = gibibyte;
    if (!full->on_listening) full->on_listening = ignore_listening;
    return dw_mem_take_allocator(&full->allocator, &full->allocator, why);
}

/* Asks the backend what it can do. The answer does not change, so this is done once. */
static dw_status take_traits(dw_link_settings *settings, const dw_link_backend *backend,
                             const dw_transport_open *how, const char *uri)
{
    const char *scheme = backend->transport.scheme;
    dw_transport_traits traits = DW_NO_TRAITS;
    backend->transport.describe(backend->endpoint, &traits);
    memcpy(settings->peer, traits.peer, sizeof settings->peer);
    settings->peer[sizeof settings->peer - 1] = '\0';
    if (settings->peer[0] == '\0') memcpy(settings->peer, "the peer", sizeof "the peer");
    if (how->tls && !traits.is_secure) {
        return dw_say(how->why, DW_ERR_UNSUPPORTED,
                      "%.60s: %s does not support TLS; use tcp, or leave "
                      "dw_link_options.tls out if nobody else can listen",
                      uri, scheme);
    }
    bool has_faults = traits.loses || traits.doubles || traits.reorders || traits.damages;
    if (has_faults != (traits.retry_ms > 0)) {
        return dw_say(how->why, DW_ERR_ARGUMENT,
                      "the transport '%.40s' %s; it must set both or neither", scheme,
                      has_faults ? "may lose or change messages, but does not say after "
                                   "what time to request them again (retry_ms)"
                                 : "sets retry_ms, but does not say what may happen to "
                                   "messages");
    }
    settings->retry_ms = traits.retry_ms;
    if (traits.longest_message > 0 && traits.longest_message < DW_LINK_HEADER_BYTES + 1) {
        return dw_say(how->why, DW_ERR_ARGUMENT,
                      "the transport '%.40s' carries messages of up to %llu bytes, too few "
                      "for a link's own header and one byte",
                      scheme, (unsigned long long)traits.longest_message);
    }
    /* No limit (0) becomes a huge number: unsigned arithmetic wraps. */
    uint64_t most = traits.longest_message - DW_LINK_HEADER_BYTES;
    if (settings->own_max_message_bytes > most)
        settings->max_message_bytes = settings->own_max_message_bytes = most;
    if (traits.is_secure) {
        memcpy(settings->peer_name, traits.peer_name, sizeof settings->peer_name - 1);
        settings->session = dw_get64(traits.session) | 1; /* 0 means: no session */
    }
    return DW_OK;
}

static dw_status connect_peer(dw_link *link, const dw_transport_open *how, const char *uri)
{
    int64_t deadline = dw_now_ns() + (int64_t)how->timeout_ms * DW_NS_PER_MS;
    dw_status status = dw_backend_open(&link->backend, how);
    if (status != DW_OK) {
        if (how->why->offset >= 0) how->why->offset += (int)(how->address - uri);
        return status;
    }
    status = take_traits(&link->settings, &link->backend, how, uri);
    if (status != DW_OK) return status;
    uint64_t peer_max;
    status = dw_link_handshake(link, how, deadline, &peer_max);
    if (status != DW_OK) return status;
    if (peer_max < link->settings.max_message_bytes) link->settings.max_message_bytes = peer_max;
    return start_thread(link, how->why);
}

dw_status dw_link_open(dw_link **link, const char *uri, const dw_link_options *options, dw_why *why)
{
    DW_UNCANCELLED;
    static const volatile int never = 0;
    dw_why own_why;
    if (!why) why = &own_why;
    *why = (dw_why){.text = "", .offset = -1};
    if (!link || !uri) return dw_say(why, DW_ERR_ARGUMENT, "dw_link_open needs a link and a URI");
    *link = NULL;
    dw_link_options full;
    dw_tls_options tls;
    dw_status status = complete_options(&full, &tls, options, why);
    if (status == DW_OK) status = dw_uri_check_contexts(&full, why);
    if (status != DW_OK) return status;

    dw_transport_open how = {.struct_size = sizeof how,
                             .role = full.role,
                             .timeout_ms = full.open_timeout_ms,
                             .peer_timeout_ms = full.peer_timeout_ms,
                             .cancelled = full.cancelled ? full.cancelled : &never,
                             .on_listening = full.on_listening,
                             .listening_context = full.listening_context,
                             .find = dw_uri_find,
                             .find_context = &full,
                             .tls = full.tls,
                             .insecure_plaintext = full.insecure_plaintext,
                             .why = why,
                             .longest_message = full.max_message_bytes + DW_LINK_HEADER_BYTES,
                             .heeds_kept_sends = 1,
                             .allocator = full.allocator};
    const dw_transport *found = dw_uri_find(how.find_context, uri, &how);
    if (!found) return dw_uri_explain_unknown(full.transports, uri, why);
    dw_transport transport;
    status = dw_take_transport(&transport, found, why);
    if (status != DW_OK) return status;
    dw_link *made = NULL;
    status = make_link(&made, &transport, &full, why);
    if (!made) return status;
    status = connect_peer(made, &how, uri);
    if (status != DW_OK) {
        dw_link_free(made);
        if (!why->text[0]) dw_say(why, status, "%s", dw_status_string(status));
        return status;
    }
    *link = made;
    return DW_OK;
}

void dw_link_close(dw_link *link)
{
    DW_UNCANCELLED;
    if (!link || !dw_fork_guard_is_ours(&link->fork_guard)) return;
    pthread_t thread = link->thread;
    bool by_handler = pthread_equal(pthread_self(), thread); /* a thread cannot join itself */
    pthread_mutex_lock(&link->lock);
    dw_lifetime_close(&link->lifetime, by_handler,
                      dw_now_ns() + (int64_t)link->settings.close_timeout_ms * DW_NS_PER_MS);
    dw_inbox_close(&link->inboxes);
    dw_io_wake(&link->io);
    pthread_mutex_unlock(&link->lock);
    if (by_handler) {
        pthread_detach(thread);
        return;
    }
    pthread_join(thread, NULL);
    dw_link_tear_down(link);
}
