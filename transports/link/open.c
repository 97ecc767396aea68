/* SPDX-License-Identifier: Apache-2.0
 * open.c - opens a link (chooses the backend by the URI, connects, shakes hands) and closes
 * it. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/backends.h"
#include "link/link.h"

static const dw_transport *const built_in[] = {&dw_transport_tcp, &dw_transport_loop,
                                               &dw_transport_shaped, NULL};

const dw_transport *const *dw_link_transports(void)
{
    return built_in;
}

/* ---- URI -> backend -------------------------------------------------------------------------- */

static const dw_transport *find_in(const dw_transport *const *transports, const char *scheme,
                                   size_t len)
{
    for (; transports && *transports; transports++) {
        if ((*transports)->scheme && strlen((*transports)->scheme) == len &&
            memcmp((*transports)->scheme, scheme, len) == 0) {
            return *transports;
        }
    }
    return NULL;
}

/* The transports of the options take precedence over built-in ones of the same name. */
static const dw_transport *find_scheme(const dw_link_options *options, const char *scheme,
                                       size_t len)
{
    const dw_transport *found = find_in(options->transports, scheme, len);
    return found ? found : find_in(built_in, scheme, len);
}

static void *context_of(const dw_link_options *options, const char *scheme)
{
    const dw_transport_context *at = options->contexts;
    while (at && at->scheme && strcmp(at->scheme, scheme) != 0) at++;
    return at && at->scheme ? at->context : NULL;
}

/* For dw_transport_open.find; find_context: the link's dw_link_options. */
static const dw_transport *find_transport(void *find_context, const char *uri,
                                          dw_transport_open *how)
{
    const dw_link_options *options = find_context;
    size_t len = strcspn(uri, ":/");
    if (uri[len] != ':') return NULL;
    const dw_transport *found = find_scheme(options, uri, len);
    if (!found) return NULL;
    how->address = uri + len + 1;
    if (strncmp(how->address, "//", 2) == 0) how->address += 2;
    how->context = context_of(options, found->scheme);
    return found;
}

/* A context whose scheme no transport has is an error: the transport is missing, or the name is
 * misspelt. */
static dw_status check_contexts(const dw_link_options *options, dw_why *why)
{
    for (const dw_transport_context *at = options->contexts; at && at->scheme; at++) {
        if (!find_scheme(options, at->scheme, strlen(at->scheme))) {
            return dw_say(why, DW_ERR_ARGUMENT,
                          "dw_link_options.contexts names the transport '%.40s', which is "
                          "neither built in nor in dw_link_options.transports",
                          at->scheme);
        }
        for (const dw_transport_context *other = options->contexts; other != at; other++) {
            if (strcmp(other->scheme, at->scheme) == 0)
                return dw_say(why, DW_ERR_ARGUMENT,
                              "dw_link_options.contexts has two entries for '%.40s'; leave "
                              "one out",
                              at->scheme);
        }
    }
    return DW_OK;
}

static dw_status explain_unknown(const dw_transport *const *transports, const char *uri,
                                 dw_why *why)
{
    char known[160] = "";
    const dw_transport *const *lists[] = {built_in, transports};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        for (const dw_transport *const *t = lists[i]; t && *t; t++) {
            size_t used = strlen(known);
            snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "",
                     (*t)->scheme ? (*t)->scheme : "?");
        }
    }
    size_t len = strcspn(uri, ":/");
    if (uri[len] != ':' || len == 0) {
        return dw_say_at(why, DW_ERR_CONFIG, 0,
                         "'%.80s' does not start with a scheme; write tcp://host:port (known: %s)",
                         uri, known);
    }
    return dw_say_at(why, DW_ERR_UNSUPPORTED, 0,
                     "no transport is called '%.*s'; write one of %s in "
                     "front, as in tcp://host:port",
                     len > 40 ? 40 : (int)len, uri, known);
}

/* ---- Handshake ------------------------------------------------------------------------------- */

/* | offset | bytes | hello                                   |
 * | 0      | 4     | "DWLK"                                  |
 * | 4      | 2     | link version                            |
 * | 6      | 2     | 0                                       |
 * | 8      | 8     | longest message this end takes          |
 * | 16     | 16    | release, as text, zero-filled           |
 * Later versions of the protocol keep the first 8 bytes and the release where they are. */
enum { HELLO_BYTES = 32 };
static const char hello_magic[4] = {'D', 'W', 'L', 'K'};

static void write_hello(unsigned char *hello, uint64_t max_message_bytes)
{
    memset(hello, 0, HELLO_BYTES);
    memcpy(hello, hello_magic, sizeof hello_magic);
    dw_put32(hello + 4, DW_LINK_VERSION);
    dw_put64(hello + 8, max_message_bytes);
    snprintf((char *)hello + 16, 16, "%s", DW_VERSION_STRING);
}

static dw_status read_hello(dw_link *link, size_t len, dw_why *why)
{
    const unsigned char *wire = dw_buffer_wire(link->receiving);
    const unsigned char *hello = wire + DW_LINK_HEADER_BYTES;
    if (len < DW_LINK_HEADER_BYTES + HELLO_BYTES || dw_get32(wire + 4) != DW_KIND_HELLO ||
        memcmp(hello, hello_magic, sizeof hello_magic) != 0) {
        return dw_say(why, DW_ERR_PROTOCOL,
                      "%s does not speak the deltawire link protocol; is another program behind "
                      "this address?",
                      link->peer);
    }
    uint32_t version = dw_get32(hello + 4) & 0xffff;
    if (version != DW_LINK_VERSION) {
        char release[17] = "";
        for (int i = 0; i < 16 && hello[16 + i] > ' ' && hello[16 + i] < 127; i++) {
            release[i] = (char)hello[16 + i];
        }
        return dw_say(
            why, DW_ERR_VERSION,
            "%s speaks link version %u (deltawire %s), this end %d (deltawire %s); run the "
            "same release at both ends",
            link->peer, version, release[0] ? release : "?", DW_LINK_VERSION, DW_VERSION_STRING);
    }
    uint64_t peer_max = dw_get64(hello + 8);
    if (peer_max < link->max_message_bytes) link->max_message_bytes = peer_max;
    return DW_OK;
}

/* How often dw_link_open checks whether it was cancelled. */
static const int64_t next_check_ns = (int64_t)20 * DW_NS_PER_MS;

/* Sends a hello and waits for the hello of the peer. */
static dw_status handshake(dw_link *link, const dw_transport_open *how, int64_t deadline_ns)
{
    const dw_transport *transport = &link->transport;
    dw_buffer *hello = dw_buffer_take(&link->pool, HELLO_BYTES);
    if (!hello) return DW_ERR_NO_MEMORY;
    hello->kind = DW_KIND_HELLO;
    hello->len = HELLO_BYTES;
    write_hello(dw_buffer_payload(hello), link->own_max_message_bytes);
    dw_status sent = dw_link_start_send(link, hello);
    dw_status got = dw_link_start_recv(link, DW_LINK_ROOM_BYTES);
    if (sent == DW_OK) sent = DW_PENDING;
    if (got == DW_OK) got = DW_PENDING;
    size_t len = 0, sent_len;
    for (;;) {
        /* The send is tested first. It fails if the peer has left. In that case the hello of the
         * peer, which may show why it left, has arrived already, so the receive is tested after the
         * failure, too. */
        if (sent == DW_PENDING)
            sent = transport->test(link->endpoint, link->send_request, &sent_len, how->why);
        bool has_failed = sent != DW_OK && sent != DW_PENDING;
        /* A test may return DW_PENDING once without having looked, so it is repeated. */
        for (int looks = has_failed ? 2 : 1; looks > 0 && got == DW_PENDING; looks--)
            got = transport->test(link->endpoint, link->recv_request, &len, how->why);
        if (got == DW_ERR_NO_ROOM) {
            return dw_say(
                how->why, DW_ERR_PROTOCOL,
                "%s began with a message of %zu bytes, not with the greeting of deltawire",
                link->peer, len);
        }
        if (got != DW_OK && got != DW_PENDING) return got;
        if (sent != DW_PENDING && got == DW_OK) break;
        if (dw_link_is_set(how->cancelled)) {
            return dw_say(how->why, DW_ERR_CANCELLED, "opening the link to %s was cancelled",
                          link->peer);
        }
        int64_t now_ns = dw_now_ns();
        if (now_ns >= deadline_ns || has_failed) {
            if (now_ns < deadline_ns) return sent;
            return dw_say(how->why, DW_ERR_TIMEOUT,
                          "%s accepted the connection but did not greet within %u ms", link->peer,
                          how->timeout_ms);
        }
        dw_link_poll_backend(link, false, now_ns);
        dw_link_sleep(link,
                      deadline_ns - now_ns < next_check_ns ? deadline_ns : now_ns + next_check_ns);
    }
    dw_status read = read_hello(link, len, how->why);
    if (read != DW_OK) return read;
    if (sent != DW_OK) return sent;
    dw_link_keep_sent(link);
    dw_buffer_drop(&link->pool, link->receiving);
    link->receiving = NULL;
    return DW_OK;
}

/* ---- Building and taking down ---------------------------------------------------------------- */

static bool start_conditions(dw_link *link)
{
    pthread_condattr_t monotonic;
    if (pthread_condattr_init(&monotonic) != 0) return false;
    int made = 0;
    if (pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC) == 0) {
        pthread_cond_t *all[] = {&link->arrived, &link->drained, &link->handled, &link->standby};
        while (made < 4 && pthread_cond_init(all[made], &monotonic) == 0) made++;
        if (made < 4) {
            while (made > 0) pthread_cond_destroy(all[--made]);
        }
    }
    pthread_condattr_destroy(&monotonic);
    return made == 4;
}

static bool make_wakeup_fd(struct dw_wakeup_fd *wakeup)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return false;
    *wakeup = (struct dw_wakeup_fd){.read = ends[0], .write = ends[1]};
    return true;
}

static dw_status make_link(dw_link **made, const dw_transport *transport,
                           const dw_link_options *options, dw_why *why)
{
    const dw_allocator *allocator = &options->allocator;
    dw_link *link = dw_mem_allocate_zeroed(allocator, 1, sizeof *link);
    if (!link) return dw_say(why, DW_ERR_NO_MEMORY, "no memory for a link");
    if (!make_wakeup_fd(&link->thread_wakeup) || !make_wakeup_fd(&link->caller_wakeup)) {
        int error = errno;
        dw_wakeup_close(&link->thread_wakeup);
        dw_mem_release(allocator, link, sizeof *link);
        return dw_say(why, DW_ERR_IO, "cannot make a pipe for a link: %s",
                      dw_link_system_says(error));
    }
    if (pthread_mutex_init(&link->lock, NULL) != 0 || !start_conditions(link)) {
        dw_wakeup_close(&link->thread_wakeup);
        dw_wakeup_close(&link->caller_wakeup);
        dw_mem_release(allocator, link, sizeof *link);
        return dw_say(why, DW_ERR_NO_MEMORY, "no memory for the locks of a link");
    }
    dw_owner_become(&link->owner);
    link->allocator = *allocator;
    link->pool.allocator = link->inboxes.allocator = &link->allocator;
    dw_inbox_begin(&link->inboxes);
    link->transport = *transport;
    link->listens = options->role == DW_LINK_LISTEN;
    link->peer_timeout_ms = options->peer_timeout_ms;
    link->close_timeout_ms = options->close_timeout_ms;
    link->max_message_bytes = link->own_max_message_bytes = options->max_message_bytes;
    uint64_t queued = link->max_queued_bytes = options->max_queued_bytes;
    uint64_t beyond = queued / 2 > DW_LINK_BEYOND_BYTES ? queued / 2 : DW_LINK_BEYOND_BYTES;
    link->max_arrived_bytes = queued > UINT64_MAX - beyond ? UINT64_MAX : queued + beyond;
    /* Free buffers for both directions, and for messages longer than a short queue, are kept: to
     * get memory from the system costs more time than to send a message. */
    link->pool.keep_bytes = options->max_queued_bytes + ((uint64_t)64 << 20);
    link->endpoint = dw_mem_allocate_zeroed(allocator, 1, transport->endpoint_bytes);
    link->send_request = dw_mem_allocate_zeroed(allocator, 1, transport->request_bytes);
    link->recv_request = dw_mem_allocate_zeroed(allocator, 1, transport->request_bytes);
    if (!link->endpoint || !link->send_request || !link->recv_request) {
        dw_link_free(link);
        return dw_say(why, DW_ERR_NO_MEMORY, "no memory for a link");
    }
    *made = link;
    return DW_OK;
}

static dw_status start_thread(dw_link *link, dw_why *why)
{
    dw_link_poll_backend(link, false, dw_now_ns());
    link->recv_whole_bytes = link->recv_moved_bytes = link->state.wire_received;
    link->counters.bytes_sent = link->send_moved_bytes = link->state.wire_sent;
    link->counters.bytes_received = link->state.wire_received;
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
    if (!full->allocator.allocate != !full->allocator.release) {
        return dw_say(why, DW_ERR_ARGUMENT,
                      "dw_link_options.allocator needs both allocate and release, or "
                      "neither");
    }
    full->allocator = dw_mem_allocator(&full->allocator);
    return DW_OK;
}

/* Asks the backend what it can do. The answer does not change, so this is done once. */
static dw_status take_traits(dw_link *link, const dw_transport_open *how, const char *uri)
{
    dw_transport_traits traits = DW_NO_TRAITS;
    link->transport.describe(link->endpoint, &traits);
    memcpy(link->peer, traits.peer, sizeof link->peer);
    link->peer[sizeof link->peer - 1] = '\0';
    if (link->peer[0] == '\0') memcpy(link->peer, "the peer", sizeof "the peer");
    if (how->tls && !traits.is_secure) {
        return dw_say(how->why, DW_ERR_UNSUPPORTED,
                      "%.60s: %s does not support TLS; use tcp, or leave "
                      "dw_link_options.tls out if nobody else can listen",
                      uri, link->transport.scheme);
    }
    bool has_faults = traits.loses || traits.doubles || traits.reorders || traits.damages;
    if (has_faults != (traits.retry_ms > 0)) {
        return dw_say(how->why, DW_ERR_ARGUMENT,
                      "the transport '%.40s' %s; it must set both or neither",
                      link->transport.scheme,
                      has_faults ? "may lose or change messages, but does not say after "
                                   "what time to request them again (retry_ms)"
                                 : "sets retry_ms, but does not say what may happen to "
                                   "messages");
    }
    link->retry_ms = traits.retry_ms;
    if (traits.longest_message > 0 && traits.longest_message < DW_LINK_HEADER_BYTES + 1) {
        return dw_say(how->why, DW_ERR_ARGUMENT,
                      "the transport '%.40s' carries messages of up to %llu bytes, too few "
                      "for a link's own header and one byte",
                      link->transport.scheme, (unsigned long long)traits.longest_message);
    }
    /* No limit (0) becomes a huge number: unsigned arithmetic wraps. */
    uint64_t most = traits.longest_message - DW_LINK_HEADER_BYTES;
    if (link->own_max_message_bytes > most)
        link->max_message_bytes = link->own_max_message_bytes = most;
    if (traits.is_secure) {
        memcpy(link->peer_name, traits.peer_name, sizeof link->peer_name - 1);
        link->session = dw_get64(traits.session) | 1; /* 0 means: no session */
    }
    return DW_OK;
}

static dw_status meet(dw_link *link, const dw_transport_open *how, const char *uri)
{
    int64_t deadline = dw_now_ns() + (int64_t)how->timeout_ms * DW_NS_PER_MS;
    dw_status status = link->transport.open(link->endpoint, how);
    if (status != DW_OK) {
        if (how->why->offset >= 0) how->why->offset += (int)(how->address - uri);
        return status;
    }
    link->endpoint_open = true;
    status = take_traits(link, how, uri);
    if (status != DW_OK) return status;
    status = handshake(link, how, deadline);
    return status == DW_OK ? start_thread(link, how->why) : status;
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
    if (status == DW_OK) status = check_contexts(&full, why);
    if (status != DW_OK) return status;

    dw_transport_open how = {.struct_size = sizeof how,
                             .role = full.role,
                             .timeout_ms = full.open_timeout_ms,
                             .peer_timeout_ms = full.peer_timeout_ms,
                             .cancelled = full.cancelled ? full.cancelled : &never,
                             .on_listening = full.on_listening,
                             .listening_context = full.listening_context,
                             .find = find_transport,
                             .find_context = &full,
                             .tls = full.tls,
                             .insecure_plaintext = full.insecure_plaintext,
                             .why = why,
                             .longest_message = full.max_message_bytes + DW_LINK_HEADER_BYTES,
                             .heeds_kept_sends = 1,
                             .allocator = full.allocator};
    const dw_transport *found = find_transport(how.find_context, uri, &how);
    if (!found) return explain_unknown(full.transports, uri, why);
    dw_transport transport;
    status = dw_take_transport(&transport, found, why);
    if (status != DW_OK) return status;
    dw_link *made = NULL;
    status = make_link(&made, &transport, &full, why);
    if (!made) return status;
    status = meet(made, &how, uri);
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
    if (!link || !dw_owner_is_us(&link->owner)) return;
    pthread_t thread = link->thread;
    bool by_handler = pthread_equal(pthread_self(), thread); /* a thread cannot join itself */
    pthread_mutex_lock(&link->lock);
    link->closing = true;
    link->is_abandoned = by_handler;
    link->bye_deadline_ns = dw_now_ns() + (int64_t)link->close_timeout_ms * DW_NS_PER_MS;
    dw_link_wake(link);
    pthread_mutex_unlock(&link->lock);
    if (by_handler) {
        pthread_detach(thread);
        return;
    }
    pthread_join(thread, NULL);
    dw_link_tear_down(link);
}
