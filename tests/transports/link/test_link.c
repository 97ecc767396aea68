/* SPDX-License-Identifier: Apache-2.0
 * test_link.c - arguments that a link refuses before it calls a backend, and the pool of its
 * buffers. */
#include <unistd.h>

#include "transports/suite/transport_suite.h"

#include "common/buffer.h"
#include "link/link.h"
#include "transports/suite/counted.h"

static dw_status try_to_open(const char *uri, const dw_link_options *options, dw_why *why)
{
    dw_link *link = NULL;
    dw_status status = dw_link_open(&link, uri, options, why);
    assert_null(link);
    return status;
}

TEST(refuses_a_uri_without_a_known_scheme)
{
    dw_why why;
    assert_int_equal(try_to_open("127.0.0.1:7000", NULL, &why), DW_ERR_UNSUPPORTED);
    assert_non_null(strstr(why.text, "tcp, loop, shaped"));
    assert_int_equal(why.offset, 0);
    assert_int_equal(try_to_open("", NULL, &why), DW_ERR_CONFIG);
    assert_int_equal(try_to_open("tcp", NULL, &why), DW_ERR_CONFIG);
    assert_non_null(strstr(why.text, "tcp://host:port"));
    assert_int_equal(try_to_open("tc://x", NULL, &why), DW_ERR_UNSUPPORTED);
    assert_int_equal(try_to_open("tcpx://x", NULL, &why), DW_ERR_UNSUPPORTED);
    static const dw_transport *const more[] = {&suite_spoiled, NULL};
    const dw_link_options options = {.struct_size = sizeof options, .transports = more};
    assert_int_equal(try_to_open("nothing://x", &options, &why), DW_ERR_UNSUPPORTED);
    assert_non_null(strstr(why.text, "spoiled"));
}

TEST(refuses_a_transport_with_missing_functions)
{
    dw_why why;
    for (int hole = 0; hole < 7; hole++) {
        dw_transport holed = suite_spoiled;
        holed.scheme = "holed";
        if (hole == 0) holed.open = NULL;
        if (hole == 1) holed.close = NULL;
        if (hole == 2) holed.send = NULL;
        if (hole == 3) holed.recv = NULL;
        if (hole == 4) holed.test = NULL;
        if (hole == 5) holed.describe = NULL;
        if (hole == 6) holed.poll = NULL;
        const dw_transport nameless = {.struct_size = sizeof nameless};
        const dw_transport *const more[] = {&nameless, &holed, NULL};
        const dw_link_options options = {
            .struct_size = sizeof options, .transports = more, .open_timeout_ms = 20};
        assert_int_equal(try_to_open("holed:loop://x", &options, &why), DW_ERR_ARGUMENT);
        assert_non_null(strstr(why.text, "'holed' lacks"));
        assert_int_equal(try_to_open("nothing://x", &options, &why), DW_ERR_UNSUPPORTED);
    }
}

TEST(refuses_impossible_link_options)
{
    dw_why why;
    const dw_link_options strange = {.struct_size = sizeof strange, .role = (dw_link_role)9};
    assert_int_equal(try_to_open("loop://x", &strange, &why), DW_ERR_ARGUMENT);
    assert_int_equal(dw_link_open(NULL, "loop://x", NULL, &why), DW_ERR_ARGUMENT);
    assert_int_equal(try_to_open(NULL, NULL, NULL), DW_ERR_ARGUMENT);
}

typedef struct listener {
    dw_link *link;
    dw_status status;
    volatile int stop;
    pthread_t thread;
} listener;

static void *listen_until_told(void *context)
{
    listener *me = context;
    const dw_link_options options = {
        .struct_size = sizeof options, .role = DW_LINK_LISTEN, .cancelled = &me->stop};
    do { /* the attempts of the other thread may succeed first */
        me->status = dw_link_open(&me->link, "loop://taken", &options, NULL);
    } while (me->status == DW_ERR_ADDRESS && !__atomic_load_n(&me->stop, __ATOMIC_RELAXED));
    return NULL;
}

TEST(a_loop_needs_a_free_name)
{
    dw_why why;
    const dw_link_options options = {
        .struct_size = sizeof options, .role = DW_LINK_LISTEN, .open_timeout_ms = 20};
    assert_int_equal(try_to_open("loop://", &options, &why), DW_ERR_ADDRESS);
    assert_non_null(strstr(why.text, "needs a name"));
    listener first = {.link = NULL};
    pthread_create(&first.thread, NULL, listen_until_told, &first);
    dw_status status = DW_ERR_TIMEOUT;
    for (int i = 0; i < 500 && status == DW_ERR_TIMEOUT; i++) {
        suite_sleep_ms(1); /* leaves the name free for a moment, so that the other thread gets it */
        status = try_to_open("loop://taken", &options, &why);
    }
    assert_int_equal(status, DW_ERR_ADDRESS);
    assert_non_null(strstr(why.text, "has a listener already"));
    __atomic_store_n(&first.stop, 1, __ATOMIC_RELAXED);
    pthread_join(first.thread, NULL);
    assert_int_equal(first.status, DW_ERR_CANCELLED);
}

/* A transport whose peer sends a hello and leaves at once: every send fails, and only afterwards is
 * the hello received. */
typedef struct hasty_end {
    unsigned char *room;
    size_t cap;
    bool has_failed_to_send;
} hasty_end;

/* What it does against the rules: a message that is longer than the room, one that fits and is
 * called too long, and an error of the system in place of a dw_status, from test and from open. */
typedef enum sloppiness { CAREFUL, TOO_LONG, NOT_TOO_LONG, ERRNO, ERRNO_AT_OPEN } sloppiness;
static sloppiness hasty_is;

static dw_status hasty_open(void *endpoint, const dw_transport_open *how)
{
    return hasty_is == ERRNO_AT_OPEN ? (dw_status)5 : DW_OK;
}

static dw_status hasty_close(void *endpoint)
{
    return DW_OK;
}

static dw_status hasty_send(void *endpoint, void *request, const void *data, size_t len)
{
    *(unsigned char *)request = 1;
    return DW_OK;
}

static dw_status hasty_recv(void *endpoint, void *request, void *room, size_t cap)
{
    assert_true(cap >= DW_LINK_HEADER_BYTES + 32);
    ((hasty_end *)endpoint)->room = room;
    ((hasty_end *)endpoint)->cap = cap;
    return DW_OK;
}

static dw_status hasty_test(void *endpoint, void *request, size_t *len, dw_why *why)
{
    hasty_end *end = endpoint;
    bool sends = *(unsigned char *)request;
    if (hasty_is != CAREFUL && sends) return DW_OK;
    *len = end->cap + (hasty_is == TOO_LONG);
    if (hasty_is == TOO_LONG) return DW_OK;
    if (hasty_is == NOT_TOO_LONG) return DW_ERR_BUFFER_TOO_SMALL;
    if (hasty_is == ERRNO) return (dw_status)5;
    if (sends) {
        end->has_failed_to_send = true;
        return dw_say(why, DW_ERR_PEER, "the peer has gone");
    }
    if (!end->has_failed_to_send) return DW_PENDING;
    *len = DW_LINK_HEADER_BYTES + 32;
    memset(end->room, 0, *len);
    dw_put32(end->room + 4, DW_KIND_HELLO);
    memcpy(end->room + DW_LINK_HEADER_BYTES, "DWLK", 4);
    dw_put32(end->room + DW_LINK_HEADER_BYTES + 4, DW_LINK_VERSION + 1);
    return DW_OK;
}

static dw_transport_traits hasty_traits;

static void hasty_describe(const void *endpoint, dw_transport_traits *traits)
{
    *traits = hasty_traits;
}

static void hasty_poll(const void *endpoint, int asks_kernel, dw_transport_state *state)
{
    *state = (dw_transport_state){.struct_size = sizeof *state, .wait_fd = -1};
}

static const dw_transport hasty = {.struct_size = sizeof hasty,
                                   .scheme = "hasty",
                                   .endpoint_bytes = sizeof(hasty_end),
                                   .request_bytes = 1,
                                   .open = hasty_open,
                                   .close = hasty_close,
                                   .send = hasty_send,
                                   .recv = hasty_recv,
                                   .test = hasty_test,
                                   .describe = hasty_describe,
                                   .poll = hasty_poll};

TEST(a_hello_is_read_after_its_sender_left)
{
    static const dw_transport *const more[] = {&hasty, NULL};
    const dw_link_options options = {.struct_size = sizeof options, .transports = more};
    dw_why why;
    assert_int_equal(try_to_open("hasty://x", &options, &why), DW_ERR_VERSION);
    assert_non_null(strstr(why.text, "speaks link version"));
}

TEST(backends_that_break_their_rules_end_the_link)
{
    static const dw_transport *const more[] = {&hasty, NULL};
    static const struct {
        sloppiness how;
        dw_status status;
        const char *word;
    } cases[] = {{TOO_LONG, DW_ERR_PROTOCOL, "have come to room"},
                 {NOT_TOO_LONG, DW_ERR_PROTOCOL, "do not fit into room"},
                 {ERRNO, DW_ERR_IO, ""},
                 {ERRNO_AT_OPEN, DW_ERR_IO, ""}};
    const dw_link_options options = {.struct_size = sizeof options, .transports = more};
    dw_why why;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hasty_is = cases[i].how;
        assert_int_equal(try_to_open("hasty://x", &options, &why), cases[i].status);
        assert_non_null(strstr(why.text, cases[i].word));
    }
    hasty_is = CAREFUL;
}

TEST(refuses_traits_that_contradict_each_other)
{
    static const dw_transport *const more[] = {&hasty, NULL};
    static const struct {
        dw_transport_traits traits;
        const char *word;
    } cases[] = {{{.loses = 1}, "retry_ms"},
                 {{.doubles = 1}, "retry_ms"},
                 {{.reorders = 1}, "retry_ms"},
                 {{.damages = 1}, "retry_ms"},
                 {{.retry_ms = 20}, "what may happen"},
                 {{.longest_message = DW_LINK_HEADER_BYTES}, "link's own header"}};
    const dw_link_options options = {.struct_size = sizeof options, .transports = more};
    dw_why why;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hasty_traits = cases[i].traits;
        assert_int_equal(try_to_open("hasty://x", &options, &why), DW_ERR_ARGUMENT);
        assert_non_null(strstr(why.text, "'hasty'"));
        assert_non_null(strstr(why.text, cases[i].word));
    }
    hasty_traits = (dw_transport_traits){.reorders = 1, .damages = 1, .retry_ms = 20};
    assert_int_equal(try_to_open("hasty://x", &options, &why), DW_ERR_VERSION);
    hasty_traits = (dw_transport_traits){.retry_ms = 0};
}

/* ---- Contexts: each backend of a URI gets its own -------------------------------------------- */

static void *given_context[2]; /* what the outer and the inner backend were given */

static dw_status behind_open(void *endpoint, const dw_transport_open *how)
{
    given_context[1] = how->context;
    return dw_say(how->why, DW_ERR_PEER, "nobody is behind %s", how->address);
}

static dw_status front_open(void *endpoint, const dw_transport_open *how)
{
    dw_transport_open inner_how = *how;
    given_context[0] = how->context;
    const dw_transport *inner = how->find(how->find_context, how->address, &inner_how);
    return inner ? inner->open(endpoint, &inner_how) : DW_ERR_UNSUPPORTED;
}

TEST(each_backend_of_a_uri_gets_its_own_context)
{
    static int of_front, of_behind;
    dw_transport front = hasty, behind = hasty;
    front.scheme = "front";
    front.open = front_open;
    behind.scheme = "behind";
    behind.open = behind_open;
    const dw_transport *const more[] = {&front, &behind, NULL};
    static const struct {
        const char *uri;
        dw_transport_context contexts[3];
        void *given[2];
    } cases[] = {{"front:behind://x",
                  {{"front", &of_front}, {"behind", &of_behind}},
                  {&of_front, &of_behind}},
                 {"front:behind://x",
                  {{"behind", &of_behind}, {"front", &of_front}},
                  {&of_front, &of_behind}},
                 {"front:behind://x", {{"front", &of_front}}, {&of_front, NULL}},
                 {"front:behind://x", {{"behind", &of_behind}}, {NULL, &of_behind}},
                 {"front:behind://x", {{NULL, NULL}}, {NULL, NULL}},
                 {"behind://x", {{"front", &of_front}, {"behind", &of_behind}}, {NULL, &of_behind}},
                 {"shaped:rate=1gbit/behind://x", {{"behind", &of_behind}}, {NULL, &of_behind}},
                 {"shaped:rate=1gbit/front:behind://x",
                  {{"front", &of_front}, {"behind", &of_behind}},
                  {&of_front, &of_behind}}};
    dw_why why;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const dw_link_options options = {
            .struct_size = sizeof options, .transports = more, .contexts = cases[i].contexts};
        given_context[0] = given_context[1] = NULL;
        assert_int_equal(try_to_open(cases[i].uri, &options, &why), DW_ERR_PEER);
        assert_string_equal(why.text, "nobody is behind x");
        for (int k = 0; k < 2; k++) assert_ptr_equal(given_context[k], cases[i].given[k]);
    }
}

TEST(refuses_contexts_for_unused_transports)
{
    static int something;
    static const struct {
        dw_transport_context contexts[3];
        const char *word;
    } cases[] = {{{{"mpi", &something}}, "names the transport 'mpi'"},
                 {{{"tcp", &something}, {"hasty", &something}}, "names the transport 'hasty'"},
                 {{{"", &something}}, "names the transport ''"},
                 {{{"loop", &something}, {"loop", &something}}, "two entries for 'loop'"}};
    dw_why why;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const dw_link_options options = {
            .struct_size = sizeof options, .contexts = cases[i].contexts, .open_timeout_ms = 20};
        assert_int_equal(try_to_open("loop://x", &options, &why), DW_ERR_ARGUMENT);
        assert_non_null(strstr(why.text, cases[i].word));
    }
}

enum { TAG = 3, SHORT_BYTES = 100 };

static void describe_short(const void *endpoint, dw_transport_traits *traits)
{
    suite_spoiled.describe(endpoint, traits);
    traits->longest_message = DW_LINK_HEADER_BYTES + SHORT_BYTES;
}

TEST(messages_are_limited_by_the_backend)
{
    dw_transport in_short = suite_spoiled;
    in_short.scheme = "short";
    in_short.describe = describe_short;
    const dw_transport *const more[] = {&in_short, NULL};
    const suite_backend backend = {.name = "short", .uri = "loop://short-%d", .transports = more};
    suite_pair pair;
    suite_prepare(&pair, &backend);
    pair.prefix[SUITE_LISTENER] = "short:"; /* the other end learns the limit from the greeting */
    suite_open(&pair);
    for (int i = 0; i < 2; i++) {
        char data[SHORT_BYTES + 1] = "";
        assert_int_equal(dw_link_send(pair.link[i], TAG, data, sizeof data), DW_ERR_LIMIT);
        suite_pass(pair.link, i, TAG, 1, SHORT_BYTES);
    }
    suite_close(&pair);
}

/* ---- A handler that is set while the thread falls asleep ------------------------------------- */

static struct {
    dw_link *link; /* atomic: NULL until the test waits for the handler */
    int polls;     /* since the message has arrived */
    int handled;   /* atomic */
} late;

static void note_late(void *context, const void *data, size_t len)
{
    __atomic_store_n(&late.handled, 1, __ATOMIC_RELEASE);
}

static bool has_arrived(dw_link *link)
{
    pthread_mutex_lock(&link->lock);
    const dw_inbox *inbox = dw_inbox_find(&link->inboxes, TAG);
    bool arrived = inbox && inbox->head;
    pthread_mutex_unlock(&link->lock);
    return arrived;
}

/* The thread of a link polls for the second time after a message when it has run all handlers and
 * is about to sleep. */
static void poll_late(const void *endpoint, int asks_kernel, dw_transport_state *state)
{
    suite_spoiled.poll(endpoint, asks_kernel, state);
    dw_link *link = __atomic_load_n(&late.link, __ATOMIC_ACQUIRE);
    if (!link || link->backend.endpoint != endpoint || !has_arrived(link)) return;
    if (++late.polls == 2) assert_int_equal(dw_link_handle(link, TAG, note_late, NULL), DW_OK);
}

TEST(a_handler_is_called_that_was_set_while_the_thread_fell_asleep)
{
    dw_transport in_late = suite_spoiled;
    in_late.scheme = "late";
    in_late.poll = poll_late;
    const dw_transport *const more[] = {&in_late, NULL};
    const suite_backend backend = {.name = "late", .uri = "loop://late-%d", .transports = more};
    suite_pair pair;
    suite_prepare(&pair, &backend);
    pair.prefix[SUITE_LISTENER] = "late:";
    suite_open(&pair);
    __atomic_store_n(&late.link, pair.link[SUITE_LISTENER], __ATOMIC_RELEASE);
    assert_int_equal(dw_link_send(pair.link[SUITE_CONNECTOR], TAG, "x", 1), DW_OK);
    for (int ms = 0; !__atomic_load_n(&late.handled, __ATOMIC_ACQUIRE); ms++) {
        assert_true(ms < SUITE_PATIENCE_MS);
        usleep(1000);
    }
    __atomic_store_n(&late.link, NULL, __ATOMIC_RELEASE);
    suite_close(&pair);
}

/* ---- The standby of the thread --------------------------------------------------------------- */

static dw_io_owner link_io_owner(dw_link *link)
{
    pthread_mutex_lock(&link->lock);
    dw_io_owner owner = link->io.owner;
    pthread_mutex_unlock(&link->lock);
    return owner;
}

/* For how long the thread still waits for callers before it takes over the I/O; 0: it does not. */
static int64_t standby_left(dw_link *link)
{
    pthread_mutex_lock(&link->lock);
    bool stands_by = link->io.owner == DW_IO_FREE && !link->io.thread_polls;
    int64_t until_ns =
        stands_by && link->io.thread_wakes_ns != INT64_MAX ? link->io.thread_wakes_ns : 0;
    int64_t left_ns = until_ns - link->io.left_ns;
    pthread_mutex_unlock(&link->lock);
    return until_ns == 0 ? 0 : left_ns;
}

static void call_once(suite_pair *pair)
{
    suite_pass(pair->link, 0, TAG, 1, SHORT_BYTES);
}

TEST(link_thread_wakes_rarely_while_callers_come_again)
{
    const suite_backend loop = {.name = "loop", .uri = "loop://standby-%d", .one_process = 1};
    suite_pair pair;
    suite_start(&pair, &loop);
    dw_link *link = pair.link[1];
    for (int round = 0; round < 2; round++) {
        int64_t begun_ns = dw_now_ns(), patience_ns = (int64_t)SUITE_PATIENCE_MS * DW_NS_PER_MS,
                first_ns = 0, longest_ns = 0;
        while (longest_ns < 6 * DW_NS_PER_MS) {
            assert_true(dw_now_ns() - begun_ns < patience_ns);
            call_once(&pair);
            longest_ns = standby_left(link);
            if (first_ns == 0) first_ns = longest_ns;
        }
        assert_true(first_ns <= DW_NS_PER_MS);
        while (link_io_owner(link) != DW_IO_ASLEEP) { /* nobody calls any more */
            assert_true(dw_now_ns() - begun_ns < patience_ns);
            usleep(1000);
        }
    }
    suite_close(&pair);
}

TEST(text_of_a_peer_cannot_control_a_terminal)
{
    const struct {
        const char *said, *printed;
    } cases[] = {
        {"plain ~", "plain ~"},
        {"\x1b[2J\r\n\t\x7f", "?[2J????"},
        {"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"},
        {"\xc2\x9b"
         "31m \xe2\x80\xae",
         "??31m ???"}, /* an escape sequence, and a character that reverses the direction */
        {"\xc0\xaf \xed\xa0\x80 \xf4\x90\x80\x80", "?? ??? ????"},
        {"\x80 \xff \xe2\x82", "? ? ??"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dw_why why;
        dw_say(&why, DW_ERR_PEER, "%s", cases[i].said);
        assert_string_equal(why.text, cases[i].printed);
    }
}

TEST(every_link_call_refuses_null)
{
    void *data = NULL;
    size_t len;
    assert_int_equal(dw_link_send(NULL, 1, "x", 1), DW_ERR_ARGUMENT);
    assert_int_equal(dw_link_send_begin(NULL, 1, 1, &data), DW_ERR_ARGUMENT);
    assert_int_equal(dw_link_send_end(NULL, NULL, 1), DW_ERR_ARGUMENT);
    assert_int_equal(dw_link_recv(NULL, 1, 0, &data, &len), DW_ERR_ARGUMENT);
    assert_int_equal(dw_link_flush(NULL, 0), DW_ERR_ARGUMENT);
    assert_int_equal(dw_link_wait_room(NULL, 1, 0), DW_ERR_ARGUMENT);
    assert_int_equal(dw_link_handle(NULL, 1, NULL, NULL), DW_ERR_ARGUMENT);
    assert_string_equal(dw_link_why(NULL), "");
    assert_int_equal(counted(NULL).messages_sent, 0);
    dw_link_release(NULL, NULL);
    dw_link_cancel(NULL);
    dw_link_close(NULL);
    const suite_backend loop = {.name = "loop", .uri = "loop://null-%d", .one_process = 1};
    suite_pair pair;
    suite_start(&pair, &loop);
    assert_int_equal(dw_link_send(pair.link[0], 1, NULL, 1), DW_ERR_ARGUMENT);
    assert_int_equal(dw_link_send_begin(pair.link[0], 1, 1, NULL), DW_ERR_ARGUMENT);
    assert_int_equal(dw_link_recv(pair.link[0], 1, 0, NULL, &len), DW_ERR_ARGUMENT);
    assert_int_equal(dw_link_send(pair.link[0], 1, NULL, 0), DW_OK);
    suite_close(&pair);
}

TEST(buffer_pool_keeps_buffers_up_to_its_limit)
{
    const dw_allocator allocator = dw_mem_allocator(NULL);
    dw_buffer_pool pool = {.allocator = &allocator, .keep_bytes = 4096};
    dw_buffer *small = dw_buffer_take(&pool, 0), *large = dw_buffer_take(&pool, 4097);
    assert_true(small->cap >= 1 && large->cap >= 4097);
    assert_int_equal((uintptr_t)dw_buffer_payload(large) % 64, 0);
    small->refs++;
    dw_buffer_drop(&pool, small);
    assert_int_equal(pool.free_bytes, 0); /* another reference is left */
    dw_buffer_drop(&pool, small);
    assert_int_equal(pool.free_bytes, small->cap);
    assert_ptr_equal(dw_buffer_take(&pool, DW_BUFFER_LEAST_BYTES), small);
    assert_int_equal(pool.free_bytes, 0);
    dw_buffer_drop(&pool, small);
    dw_buffer_drop(&pool, large); /* larger than the limit, so it is not kept */
    assert_int_equal(pool.free_bytes, small->cap);
    assert_null(dw_buffer_take(&pool, SIZE_MAX));
    assert_null(dw_buffer_take(&pool, SIZE_MAX / 2));
    assert_int_equal(pool.allocations, 2);
    dw_buffer_pool_empty(&pool);
}

RUN_TESTS(NULL, NULL)
