/* SPDX-License-Identifier: Apache-2.0
 * transport_pair.c - two ends in one process, a backend that changes messages, and counted
 * allocations. */
#include <stdatomic.h>
#include <time.h>

#include "transport_suite.h"

int64_t suite_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void suite_sleep_ms(int ms)
{
    struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    nanosleep(&time, NULL);
}

unsigned char suite_byte(uint64_t n, size_t i)
{
    return (unsigned char)(n * 31 + i * 7 + (i >> 8) * 13 + (i >> 16));
}

/* Messages are filled row by row, with rows of 256 bytes. Within a row each byte is 7 more than the
 * one before it, so that a row is a part of two rounds of all bytes in such steps. To compute long
 * messages byte by byte would take longer than to send them. */
enum { ROW = 256 };

static void make_rounds(unsigned char rounds[2 * ROW])
{
    for (int i = 0; i < 2 * ROW; i++) rounds[i] = (unsigned char)(7 * i);
}

static const unsigned char *row_of(const unsigned char *rounds, uint64_t n, size_t i)
{
    enum { INVERSE_OF_7 = 183 };
    return rounds + (unsigned char)(INVERSE_OF_7 * suite_byte(n, i));
}

void suite_fill(unsigned char *data, size_t len, uint64_t n)
{
    unsigned char rounds[2 * ROW];
    size_t i = 0;
    if (len >= ROW) make_rounds(rounds);
    for (; i + ROW <= len; i += ROW) memcpy(data + i, row_of(rounds, n, i), ROW);
    for (; i < len; i++) data[i] = suite_byte(n, i);
}

int suite_is(const void *data, size_t len, uint64_t n, size_t expected_len)
{
    const unsigned char *bytes = data;
    unsigned char rounds[2 * ROW];
    size_t i = 0;
    if (len != expected_len) return 0;
    if (len >= ROW) make_rounds(rounds);
    for (; i + ROW <= len; i += ROW) {
        if (memcmp(bytes + i, row_of(rounds, n, i), ROW) != 0) return 0;
    }
    for (; i < len; i++) {
        if (bytes[i] != suite_byte(n, i)) return 0;
    }
    return 1;
}

void suite_send(dw_link *link, uint32_t tag, uint64_t n, size_t len)
{
    void *room;
    dw_status status;
    while ((status = dw_link_send_begin(link, tag, len, &room)) == DW_PENDING) {
        assert_int_equal(dw_link_flush(link, SUITE_PATIENCE_MS), DW_OK);
    }
    assert_int_equal(status, DW_OK);
    suite_fill(room, len, n);
    assert_int_equal(dw_link_send_end(link, room, len), DW_OK);
}

void suite_expect(dw_link *link, uint32_t tag, uint64_t n, size_t len)
{
    void *data;
    size_t got;
    dw_status status = dw_link_recv(link, tag, SUITE_PATIENCE_MS, &data, &got);
    if (status != DW_OK)
        fail_msg("receiving message %d gave %d: %s", (int)n, (int)status, dw_link_why(link));
    assert_true(suite_is(data, got, n, len));
    dw_link_release(link, data);
}

void suite_pass(dw_link *const links[2], uint64_t from, uint32_t tag, uint64_t n, size_t len)
{
    suite_send(links[from], tag, n, len);
    suite_expect(links[!from], tag, n, len);
}

dw_status suite_receive(dw_link *link, uint32_t tag, int timeout_ms)
{
    void *data;
    size_t len;
    dw_status status = dw_link_recv(link, tag, timeout_ms, &data, &len);
    if (status == DW_OK) dw_link_release(link, data);
    return status;
}

uint64_t suite_send_until_full(dw_link *link, uint32_t tag, size_t len)
{
    enum { MOST = 4000 };
    unsigned char *data = malloc(len);
    uint64_t sent = 0;
    dw_status status = DW_OK;
    for (int stood_still = 0; sent < MOST && stood_still < 200;) {
        suite_fill(data, len, sent);
        status = dw_link_send(link, tag, data, len);
        if (status == DW_OK) {
            sent++;
            stood_still = 0;
        } else {
            assert_int_equal(status, DW_PENDING);
            stood_still++;
            suite_sleep_ms(5);
        }
    }
    free(data);
    assert_int_equal(status, DW_PENDING);
    assert_true(sent >= 1 && sent < MOST);
    return sent;
}

/* ---- Pairs ----------------------------------------------------------------------------------- */

static void note_address(void *context, const char *uri)
{
    suite_pair *pair = context;
    pthread_mutex_lock(&pair->lock);
    snprintf(pair->uri, sizeof pair->uri, "%s", uri);
    pair->is_listening = 1;
    pthread_cond_broadcast(&pair->listening);
    pthread_mutex_unlock(&pair->lock);
}

void suite_prepare(suite_pair *pair, const suite_backend *backend)
{
    *pair = (suite_pair){.backend = backend};
    pthread_mutex_init(&pair->lock, NULL);
    pthread_cond_init(&pair->listening, NULL);
    for (int i = 0; i < 2; i++) {
        pair->options[i] =
            (dw_link_options){.struct_size = sizeof(dw_link_options),
                              .role = i == SUITE_LISTENER ? DW_LINK_LISTEN : DW_LINK_CONNECT,
                              .open_timeout_ms = 30000,
                              .transports = backend->transports,
                              .contexts = backend->contexts,
                              .tls = backend->tls[i]};
    }
    pair->options[SUITE_LISTENER].on_listening = note_address;
    pair->options[SUITE_LISTENER].listening_context = pair;
}

static void *open_listener(void *context)
{
    suite_pair *pair = context;
    static atomic_int number;
    char address[400], uri[512];
    /* Every pair has another number, because a backend that connects by name must not connect to
     * the pair of an earlier test. */
    const char *place = strstr(pair->backend->uri, "%d");
    if (place) {
        snprintf(address, sizeof address, "%.*s%d%s", (int)(place - pair->backend->uri),
                 pair->backend->uri, atomic_fetch_add(&number, 1), place + 2);
    } else {
        snprintf(address, sizeof address, "%s", pair->backend->uri);
    }
    snprintf(uri, sizeof uri, "%s%s", pair->prefix[0] ? pair->prefix[0] : "", address);
    pair->status[0] = dw_link_open(&pair->link[0], uri, &pair->options[0], &pair->why[0]);
    pthread_mutex_lock(&pair->lock);
    if (!pair->is_listening) pair->uri[0] = '\0';
    pair->is_listening = 1; /* after an error too, or the other end would wait forever */
    pthread_cond_broadcast(&pair->listening);
    pthread_mutex_unlock(&pair->lock);
    return NULL;
}

void suite_try_open(suite_pair *pair)
{
    pthread_t listener;
    assert_int_equal(pthread_create(&listener, NULL, open_listener, pair), 0);
    pthread_mutex_lock(&pair->lock);
    while (!pair->is_listening) pthread_cond_wait(&pair->listening, &pair->lock);
    char uri[600];
    snprintf(uri, sizeof uri, "%s%s", pair->prefix[1] ? pair->prefix[1] : "", pair->uri);
    pthread_mutex_unlock(&pair->lock);
    pair->status[1] = dw_link_open(&pair->link[1], uri, &pair->options[1], &pair->why[1]);
    pthread_join(listener, NULL);
}

void suite_open(suite_pair *pair)
{
    suite_try_open(pair);
    for (int i = 0; i < 2; i++) {
        if (pair->status[i] != DW_OK) {
            fail_msg("opening end %d gave %d: %s", i, (int)pair->status[i], pair->why[i].text);
        }
    }
}

void suite_start(suite_pair *pair, const suite_backend *backend)
{
    suite_prepare(pair, backend);
    suite_open(pair);
}

static void *close_listener(void *context)
{
    suite_pair *pair = context;
    dw_link_close(pair->link[0]);
    return NULL;
}

void suite_close(suite_pair *pair)
{
    pthread_t other;
    assert_int_equal(pthread_create(&other, NULL, close_listener, pair), 0);
    dw_link_close(pair->link[1]);
    pthread_join(other, NULL);
    pair->link[0] = pair->link[1] = NULL;
    pthread_mutex_destroy(&pair->lock);
    pthread_cond_destroy(&pair->listening);
}

/* ---- The backend that changes messages ------------------------------------------------------- */

typedef struct spoiled_endpoint {
    const dw_transport *inner;
    void *end, *send_request, *recv_request;
    suite_spoiler spoiler;
    struct spoiled_copy {
        struct spoiled_copy *next;
        unsigned char data[];
    } * copies, *copy; /* all so far, as the inner backend may keep them; and the newest one */
    size_t copy_len, whole_len;
    uint64_t n;
    int copies_left;
} spoiled_endpoint;

typedef struct spoiled_request {
    int sends;
} spoiled_request;

static suite_spoiler current_spoiler;

void suite_set_spoiler(const suite_spoiler *spoiler)
{
    current_spoiler = spoiler ? *spoiler : (suite_spoiler){0};
}

static dw_status spoiled_open(void *context, const dw_transport_open *how)
{
    spoiled_endpoint *end = context;
    dw_transport_open inner_how = *how;
    end->inner = how->find(how->find_context, how->address, &inner_how);
    if (!end->inner) return DW_ERR_UNSUPPORTED;
    end->spoiler = current_spoiler;
    end->end = calloc(1, end->inner->endpoint_bytes);
    end->send_request = calloc(1, end->inner->request_bytes);
    end->recv_request = calloc(1, end->inner->request_bytes);
    dw_status status = end->inner->open(end->end, &inner_how);
    if (status != DW_OK) {
        free(end->end);
        free(end->send_request);
        free(end->recv_request);
    }
    return status;
}

static dw_status spoiled_close(void *context)
{
    spoiled_endpoint *end = context;
    dw_status closed = end->inner->close(end->end);
    free(end->end);
    free(end->send_request);
    free(end->recv_request);
    while (closed == DW_OK && end->copies) {
        struct spoiled_copy *next = end->copies->next;
        free(end->copies);
        end->copies = next;
    }
    return closed;
}

static dw_status spoiled_send(void *context, void *request_room, const void *data, size_t len)
{
    spoiled_endpoint *end = context;
    spoiled_request *request = request_room;
    request->sends = 1;
    end->copy = malloc(sizeof *end->copy + len + 1);
    end->copy->next = end->copies;
    end->copies = end->copy;
    memcpy(end->copy->data, data, len);
    end->copy_len = end->whole_len = len;
    suite_verdict verdict = SUITE_PASS;
    if (end->spoiler.spoil)
        verdict = end->spoiler.spoil(end->spoiler.context, end->copy->data, &end->copy_len, end->n);
    end->n++;
    end->copies_left = verdict == SUITE_DROP ? 0 : verdict == SUITE_TWICE ? 2 : 1;
    if (end->copies_left == 0) return DW_OK;
    memset(end->send_request, 0, end->inner->request_bytes);
    return end->inner->send(end->end, end->send_request, end->copy->data, end->copy_len);
}

static dw_status spoiled_recv(void *context, void *request_room, void *room, size_t cap)
{
    spoiled_endpoint *end = context;
    spoiled_request *request = request_room;
    request->sends = 0;
    memset(end->recv_request, 0, end->inner->request_bytes);
    return end->inner->recv(end->end, end->recv_request, room, cap);
}

static dw_status spoiled_test(void *context, void *request_room, size_t *len, dw_why *why)
{
    spoiled_endpoint *end = context;
    const spoiled_request *request = request_room;
    if (!request->sends) return end->inner->test(end->end, end->recv_request, len, why);
    while (end->copies_left > 0) {
        dw_status status = end->inner->test(end->end, end->send_request, len, why);
        if (status != DW_OK) return status;
        if (--end->copies_left == 0) break;
        memset(end->send_request, 0, end->inner->request_bytes);
        dw_status again =
            end->inner->send(end->end, end->send_request, end->copy->data, end->copy_len);
        if (again != DW_OK) return again;
    }
    *len = end->whole_len;
    return DW_OK;
}

static void spoiled_describe(const void *context, dw_transport_traits *traits)
{
    const spoiled_endpoint *end = context;
    end->inner->describe(end->end, traits);
}

static void spoiled_poll(const void *context, int asks_kernel, dw_transport_state *state)
{
    const spoiled_endpoint *end = context;
    end->inner->poll(end->end, asks_kernel, state);
    state->kept_sends = 0;
}

static dw_status spoiled_turn(void *context, dw_why *why)
{
    spoiled_endpoint *end = context;
    return end->inner->turn ? end->inner->turn(end->end, why) : DW_OK;
}

const dw_transport suite_spoiled = {
    .struct_size = sizeof(dw_transport),
    .scheme = "spoiled",
    .endpoint_bytes = sizeof(spoiled_endpoint),
    .request_bytes = sizeof(spoiled_request),
    .open = spoiled_open,
    .close = spoiled_close,
    .send = spoiled_send,
    .recv = spoiled_recv,
    .test = spoiled_test,
    .describe = spoiled_describe,
    .poll = spoiled_poll,
    .turn = spoiled_turn,
};

/* ---- Counted allocations, by -Wl,--wrap ------------------------------------------------------ */

static atomic_long allocations;

long suite_allocations(void)
{
    return atomic_load(&allocations);
}

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);

void *__wrap_malloc(size_t bytes)
{
    atomic_fetch_add(&allocations, 1);
    return __real_malloc(bytes);
}

void *__wrap_calloc(size_t n, size_t bytes)
{
    atomic_fetch_add(&allocations, 1);
    return __real_calloc(n, bytes);
}

void *__wrap_realloc(void *memory, size_t bytes)
{
    atomic_fetch_add(&allocations, 1);
    return __real_realloc(memory, bytes);
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
    atomic_fetch_add(&allocations, 1);
    return __real_aligned_alloc(alignment, bytes);
}
