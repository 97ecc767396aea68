/* SPDX-License-Identifier: Apache-2.0
 * transport_suite.c - what every backend must pass. */
#include "transport_suite.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

/* Long enough that a busy machine does not fail a test, short enough that a hang is seen. */
enum { PATIENCE_MS = 60000 };
enum { TAG = 7 };

static const suite_backend *backend_of(void **state)
{
    return *state;
}

static void open_pair(suite_pair *pair, void **state)
{
    suite_prepare(pair, backend_of(state));
    suite_open(pair);
}

static void send_message(dw_link *link, uint32_t tag, uint64_t n, size_t len)
{
    void *room;
    dw_status status;
    while ((status = dw_link_send_begin(link, tag, len, &room)) == DW_PENDING) {
        assert_int_equal(dw_link_flush(link, PATIENCE_MS), DW_OK);
    }
    assert_int_equal(status, DW_OK);
    suite_fill(room, len, n);
    assert_int_equal(dw_link_send_end(link, room, len), DW_OK);
}

static void expect_message(dw_link *link, uint32_t tag, uint64_t n, size_t len)
{
    void *data;
    size_t got;
    const dw_status status = dw_link_recv(link, tag, PATIENCE_MS, &data, &got);
    if (status != DW_OK) fail_msg("receiving message %d gave %d: %s", (int)n, (int)status, dw_link_why(link));
    assert_true(suite_is(data, got, n, len));
    dw_link_release(link, data);
}

/* ---- Messages ----------------------------------------------------------------------------------- */

static size_t some_length(uint64_t n)
{
    static const size_t lengths[] = {0, 1, 2, 7, 8, 63, 64, 255, 256, 1000, 4095, 4096, 4097, 5000, 70000};
    return lengths[n % (sizeof lengths / sizeof *lengths)];
}

static void delivers_whole_messages_in_order_per_tag(void **state)
{
    suite_pair pair;
    open_pair(&pair, state);
    enum { N = 600 };
    for (uint64_t n = 0; n < N; n++) send_message(pair.link[0], 100 + n % 3, n, some_length(n));
    /* One tag after the other: what came first does not have to be taken first. */
    for (uint64_t tag = 3; tag-- > 0;) {
        for (uint64_t n = tag; n < N; n += 3) expect_message(pair.link[1], 100 + (uint32_t)tag, n, some_length(n));
    }
    void *data;
    size_t len;
    assert_int_equal(dw_link_recv(pair.link[1], 100, 0, &data, &len), DW_PENDING);
    const dw_link_counters sent = dw_link_count(pair.link[0]), received = dw_link_count(pair.link[1]);
    assert_int_equal(sent.messages_sent, N);
    assert_int_equal(received.messages_received, N);
    assert_int_equal(sent.queued_bytes, 0);
    suite_close(&pair);
}

static void carries_64_mebibytes_in_one_message(void **state)
{
    suite_pair pair;
    open_pair(&pair, state);
    const size_t len = (size_t)64 << 20;
    send_message(pair.link[1], TAG, 1, len);
    expect_message(pair.link[0], TAG, 1, len);
    send_message(pair.link[1], TAG, 2, 1);
    expect_message(pair.link[0], TAG, 2, 1);
    suite_close(&pair);
}

static void carries_many_messages_in_flight(void **state)
{
    suite_pair pair;
    open_pair(&pair, state);
    enum { N = 5000 };
    for (uint64_t n = 0; n < N; n++) send_message(pair.link[0], TAG, n, n % 200);
    for (uint64_t n = 0; n < N; n++) expect_message(pair.link[1], TAG, n, n % 200);
    suite_close(&pair);
}

typedef struct talker {
    dw_link *link;
    dw_status status;
} talker;

enum { TALK_MESSAGES = 12, TALK_BYTES = 3 << 20 };

static void *talk(void *context)
{
    talker *me = context;
    unsigned char *data = malloc(TALK_BYTES);
    for (uint64_t n = 0; n < TALK_MESSAGES && me->status == DW_OK; n++) {
        suite_fill(data, TALK_BYTES, n);
        me->status = dw_link_send(me->link, TAG, data, TALK_BYTES);
    }
    free(data);
    return NULL;
}

static void carries_both_directions_at_once(void **state)
{
    suite_pair pair;
    open_pair(&pair, state);
    talker talkers[2] = {{.link = pair.link[0]}, {.link = pair.link[1]}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, talk, &talkers[i]);
    for (uint64_t n = 0; n < TALK_MESSAGES; n++) {
        for (int i = 0; i < 2; i++) expect_message(pair.link[i], TAG, n, TALK_BYTES);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(talkers[i].status, DW_OK);
    }
    suite_close(&pair);
}

static void sends_what_is_queued_before_it_closes(void **state)
{
    suite_pair pair;
    open_pair(&pair, state);
    enum { N = 200 };
    for (uint64_t n = 0; n < N; n++) send_message(pair.link[0], TAG, n, 20000);
    dw_link_close(pair.link[0]);
    pair.link[0] = NULL;
    for (uint64_t n = 0; n < N; n++) expect_message(pair.link[1], TAG, n, 20000);
    void *data;
    size_t len;
    assert_int_equal(dw_link_recv(pair.link[1], TAG, PATIENCE_MS, &data, &len), DW_ERR_PEER);
    assert_non_null(strstr(dw_link_why(pair.link[1]), "closed the link"));
    suite_close(&pair);
}

static void does_not_allocate_in_steady_state(void **state)
{
    suite_pair pair;
    open_pair(&pair, state);
    long before = 0;
    for (int round = 0; round < 60; round++) {
        if (round == 20) before = suite_allocations();
        for (uint64_t n = 0; n < 8; n++) send_message(pair.link[0], TAG + (uint32_t)n, n, some_length(n + 7));
        for (uint64_t n = 0; n < 8; n++) {
            expect_message(pair.link[1], TAG + (uint32_t)n, n, some_length(n + 7));
            send_message(pair.link[1], TAG, n, 30);
            expect_message(pair.link[0], TAG, n, 30);
        }
        /* A message is taken before its sender has heard so: without this a round could begin with one more
         * buffer in use than any before. */
        assert_int_equal(dw_link_flush(pair.link[0], PATIENCE_MS), DW_OK);
        assert_int_equal(dw_link_flush(pair.link[1], PATIENCE_MS), DW_OK);
    }
    /* Which buffers are in use together depends on the threads' timing: a few may still be new. 40 rounds of
     * 24 messages that allocate would be 960. */
    assert_in_range(suite_allocations() - before, 0, 24);
    suite_close(&pair);
}

/* ---- Room --------------------------------------------------------------------------------------- */

static void gives_back_dropped_and_shortened_room(void **state)
{
    suite_pair pair;
    open_pair(&pair, state);
    void *room;
    assert_int_equal(dw_link_send_begin(pair.link[0], TAG, 5000, &room), DW_OK);
    assert_int_equal(dw_link_count(pair.link[0]).queued_bytes > 5000, 1);
    assert_int_equal(dw_link_send_end(pair.link[0], room, DW_LINK_DROP), DW_OK);
    assert_int_equal(dw_link_count(pair.link[0]).queued_bytes, 0);
    assert_int_equal(dw_link_send_begin(pair.link[0], TAG, 5000, &room), DW_OK);
    assert_int_equal(dw_link_send_end(pair.link[0], room, 5001), DW_ERR_ARGUMENT);
    suite_fill(room, 10, 3);
    assert_int_equal(dw_link_send_end(pair.link[0], room, 10), DW_OK);
    expect_message(pair.link[1], TAG, 3, 10);
    assert_int_equal(dw_link_flush(pair.link[0], PATIENCE_MS), DW_OK);
    assert_int_equal(dw_link_count(pair.link[0]).queued_bytes, 0);
    suite_close(&pair);
}

static void answers_pending_when_the_queue_is_full(void **state)
{
    suite_pair pair;
    suite_prepare(&pair, backend_of(state));
    pair.options[0].max_queued_bytes = pair.options[1].max_queued_bytes = 1 << 20;
    suite_open(&pair);
    const size_t len = (size_t)3 << 20; /* longer than the limit: one at a time must get through */
    unsigned char *data = malloc(len);
    enum { MOST = 400 };
    uint64_t sent = 0;
    dw_status status = DW_OK;
    int stood_still = 0;
    /* The receiver's own limit stops its reading, so in the end nothing moves. */
    while (sent < MOST && stood_still < 200) {
        suite_fill(data, len, sent);
        status = dw_link_send(pair.link[0], TAG, data, len);
        if (status == DW_OK) {
            sent++;
            stood_still = 0;
        } else {
            assert_int_equal(status, DW_PENDING);
            stood_still++;
            suite_sleep_ms(5);
        }
    }
    assert_int_equal(status, DW_PENDING);
    assert_true(sent >= 1 && sent < MOST);
    for (uint64_t n = 0; n < sent; n++) expect_message(pair.link[1], TAG, n, len);
    free(data);
    suite_close(&pair);
}

static void messages_that_nobody_takes_do_not_block_other_tags(void **state)
{
    suite_pair pair;
    suite_prepare(&pair, backend_of(state));
    pair.options[1].max_queued_bytes = 1 << 20;
    suite_open(&pair);
    const size_t len = (size_t)1 << 20;
    for (uint64_t n = 0; n < 6; n++) send_message(pair.link[0], TAG, n, len);
    send_message(pair.link[0], TAG + 1, 9, 100);
    suite_sleep_ms(30); /* the receiver has more than its limit and reads no further ... */
    assert_true(dw_link_count(pair.link[1]).messages_received < 4);
    expect_message(pair.link[1], TAG + 1, 9, 100); /* ... unless somebody waits in vain */
    for (uint64_t n = 0; n < 6; n++) expect_message(pair.link[1], TAG, n, len);
    suite_close(&pair);
}

static void refuses_messages_beyond_the_limit_of_either_end(void **state)
{
    suite_pair pair;
    suite_prepare(&pair, backend_of(state));
    pair.options[0].max_message_bytes = 9000;
    suite_open(&pair);
    void *room;
    assert_int_equal(dw_link_send_begin(pair.link[0], TAG, 9001, &room), DW_ERR_LIMIT);
    assert_int_equal(dw_link_send_begin(pair.link[1], TAG, 9001, &room), DW_ERR_LIMIT);
    send_message(pair.link[1], TAG, 1, 9000);
    expect_message(pair.link[0], TAG, 1, 9000);
    suite_close(&pair);
}

/* ---- Handlers ----------------------------------------------------------------------------------- */

typedef struct echo_state {
    dw_link *link;
    atomic_int running, seen, wrong;
    pthread_t thread;
} echo_state;

static void echo_back(void *context, const void *data, size_t len)
{
    echo_state *echo = context;
    atomic_store(&echo->running, 1);
    const int n = atomic_load(&echo->seen);
    if (!suite_is(data, len, (uint64_t)n, 100 + (size_t)n % 5)) atomic_fetch_add(&echo->wrong, 1);
    if (dw_link_send(echo->link, TAG + 1, data, len) != DW_OK) atomic_fetch_add(&echo->wrong, 1);
    echo->thread = pthread_self();
    atomic_fetch_add(&echo->seen, 1);
    atomic_store(&echo->running, 0);
}

static void handlers_get_messages_in_order_and_may_send(void **state)
{
    suite_pair pair;
    open_pair(&pair, state);
    enum { N = 500 };
    echo_state echo = {.link = pair.link[1]};
    /* Half of them are there before the handler is. */
    for (uint64_t n = 0; n < N / 2; n++) send_message(pair.link[0], TAG, n, 100 + n % 5);
    while (dw_link_count(pair.link[1]).messages_received < N / 2) suite_sleep_ms(1);
    assert_int_equal(dw_link_handle(pair.link[1], TAG, echo_back, &echo), DW_OK);
    void *data;
    size_t len;
    assert_int_equal(dw_link_recv(pair.link[1], TAG, 0, &data, &len), DW_ERR_ARGUMENT);
    for (uint64_t n = N / 2; n < N; n++) send_message(pair.link[0], TAG, n, 100 + n % 5);
    for (uint64_t n = 0; n < N; n++) expect_message(pair.link[0], TAG + 1, n, 100 + n % 5);
    assert_int_equal(dw_link_handle(pair.link[1], TAG, NULL, NULL), DW_OK);
    assert_int_equal(atomic_load(&echo.running), 0);
    assert_int_equal(atomic_load(&echo.wrong), 0);
    assert_int_equal(atomic_load(&echo.seen), N);
    assert_false(pthread_equal(echo.thread, pthread_self()));
    send_message(pair.link[0], TAG, 77, 10);
    expect_message(pair.link[1], TAG, 77, 10);
    assert_int_equal(atomic_load(&echo.seen), N);
    suite_close(&pair);
}

/* ---- Ends --------------------------------------------------------------------------------------- */

static void *wait_in_recv(void *context)
{
    talker *me = context;
    void *data;
    size_t len;
    me->status = dw_link_recv(me->link, TAG, -1, &data, &len);
    return NULL;
}

static void cancelling_ends_every_call_at_both_ends(void **state)
{
    suite_pair pair;
    open_pair(&pair, state);
    talker waiting[2] = {{.link = pair.link[0]}, {.link = pair.link[1]}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, wait_in_recv, &waiting[i]);
    suite_sleep_ms(20);
    dw_link_cancel(pair.link[0]);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    assert_int_equal(waiting[0].status, DW_ERR_CANCELLED);
    assert_int_equal(waiting[1].status, DW_ERR_PEER);
    void *data;
    size_t len;
    assert_int_equal(dw_link_send(pair.link[0], TAG, "x", 1), DW_ERR_CANCELLED);
    assert_int_equal(dw_link_recv(pair.link[0], TAG, 0, &data, &len), DW_ERR_CANCELLED);
    assert_int_equal(dw_link_flush(pair.link[0], -1), DW_ERR_CANCELLED);
    assert_int_equal(dw_link_send(pair.link[1], TAG, "x", 1), DW_ERR_PEER);
    assert_non_null(strstr(dw_link_why(pair.link[0]), "cancelled"));
    assert_string_not_equal(dw_link_why(pair.link[1]), "");
    suite_close(&pair);
}

static void a_peer_that_goes_in_mid_message_is_an_error(void **state)
{
    suite_pair pair;
    open_pair(&pair, state);
    send_message(pair.link[0], TAG, 0, 100);
    expect_message(pair.link[1], TAG, 0, 100);
    for (uint64_t n = 1; n < 6; n++) send_message(pair.link[0], TAG, n, (size_t)32 << 20);
    dw_link_cancel(pair.link[0]);
    /* Those that came whole may be taken; then the end, and never a part of one. */
    dw_status status = DW_OK;
    for (uint64_t n = 1; status == DW_OK; n++) {
        void *data;
        size_t len;
        status = dw_link_recv(pair.link[1], TAG, PATIENCE_MS, &data, &len);
        if (status == DW_OK) {
            assert_true(suite_is(data, len, n, (size_t)32 << 20));
            dw_link_release(pair.link[1], data);
        }
    }
    assert_int_equal(status, DW_ERR_PEER);
    suite_close(&pair);
}

/* The child: opens, sends until it is killed. */
static void be_killed(const suite_backend *backend, const char *uri)
{
    const dw_link_options options = {.struct_size = sizeof options, .transports = backend->transports};
    dw_link *link;
    if (dw_link_open(&link, uri, &options, NULL) != DW_OK) _exit(3);
    for (;;) {
        static char data[100000];
        if (dw_link_send(link, TAG, data, sizeof data) == DW_PENDING) dw_link_flush(link, -1);
    }
}

static void tell_child(void *context, const char *uri)
{
    const int fd = *(const int *)context;
    if (write(fd, uri, strlen(uri) + 1) < 0) abort();
}

static void notices_at_once_that_the_peer_was_killed(void **state)
{
    const suite_backend *backend = backend_of(state);
    if (backend->one_process) skip();
    int pipe_ends[2];
    assert_int_equal(pipe(pipe_ends), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char uri[512] = "";
        if (read(pipe_ends[0], uri, sizeof uri - 1) <= 0) _exit(2);
        be_killed(backend, uri);
    }
    const dw_link_options options = {.struct_size = sizeof options, .role = DW_LINK_LISTEN, .open_timeout_ms = 30000,
                                     .transports = backend->transports, .on_listening = tell_child,
                                     .listening_context = &pipe_ends[1]};
    char uri[256];
    snprintf(uri, sizeof uri, "%s", backend->uri);
    dw_link *link;
    dw_why why;
    const dw_status opened = dw_link_open(&link, uri, &options, &why);
    if (opened != DW_OK) fail_msg("%s", why.text);
    dw_status status = DW_OK;
    int messages = 0;
    while (status == DW_OK) {
        void *data;
        size_t len;
        status = dw_link_recv(link, TAG, PATIENCE_MS / 2, &data, &len);
        if (status == DW_OK) dw_link_release(link, data);
        if (++messages == 20) kill(child, SIGKILL);
    }
    assert_int_equal(status, DW_ERR_PEER); /* not a timeout */
    assert_string_not_equal(dw_link_why(link), "");
    dw_link_close(link);
    waitpid(child, NULL, 0);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
}

/* ---- Time --------------------------------------------------------------------------------------- */

static void a_peer_that_takes_nothing_is_a_timeout(void **state)
{
    suite_pair pair;
    suite_prepare(&pair, backend_of(state));
    pair.options[0].peer_timeout_ms = 300;
    pair.options[0].max_queued_bytes = pair.options[1].max_queued_bytes = 1 << 20;
    suite_open(&pair);
    const size_t len = (size_t)4 << 20;
    unsigned char *data = calloc(1, len);
    dw_status status = DW_OK;
    const int64_t end = suite_now_ns() + (int64_t)PATIENCE_MS * 1000000;
    while ((status == DW_OK || status == DW_PENDING) && suite_now_ns() < end) {
        status = dw_link_send(pair.link[0], TAG, data, len); /* the peer's limit stops its reading */
        if (status == DW_PENDING) suite_sleep_ms(2);
    }
    free(data);
    assert_int_equal(status, DW_ERR_TIMEOUT);
    assert_non_null(strstr(dw_link_why(pair.link[0]), "took no bytes"));
    suite_close(&pair);
}

static void an_idle_link_lives_on(void **state)
{
    suite_pair pair;
    suite_prepare(&pair, backend_of(state));
    pair.options[0].peer_timeout_ms = pair.options[1].peer_timeout_ms = 100;
    suite_open(&pair);
    for (uint64_t n = 0; n < 2; n++) {
        send_message(pair.link[0], TAG, n, 5000);
        expect_message(pair.link[1], TAG, n, 5000);
        void *data;
        size_t len;
        assert_int_equal(dw_link_recv(pair.link[1], TAG, 350, &data, &len), DW_PENDING);
        assert_int_equal(dw_link_recv(pair.link[0], TAG, 0, &data, &len), DW_PENDING);
    }
    suite_close(&pair);
}

static void open_gives_up_when_nobody_comes(void **state)
{
    const suite_backend *backend = backend_of(state);
    suite_pair pair;
    suite_prepare(&pair, backend);
    suite_open(&pair); /* for an address where afterwards nobody is */
    char uri[512];
    snprintf(uri, sizeof uri, "%s", pair.uri);
    suite_close(&pair);
    for (int role = DW_LINK_LISTEN; role <= DW_LINK_CONNECT; role++) {
        const dw_link_options options = {.struct_size = sizeof options, .role = (dw_link_role)role,
                                         .open_timeout_ms = 150, .transports = backend->transports};
        dw_link *link = (dw_link *)(uintptr_t)1;
        dw_why why = {.text = ""};
        assert_int_equal(dw_link_open(&link, uri, &options, &why), DW_ERR_TIMEOUT);
        assert_null(link);
        assert_non_null(strstr(why.text, "150 ms"));
        volatile int cancelled = 1;
        dw_link_options cancelling = options;
        cancelling.open_timeout_ms = PATIENCE_MS;
        cancelling.cancelled = &cancelled;
        assert_int_equal(dw_link_open(&link, uri, &cancelling, &why), DW_ERR_CANCELLED);
        assert_non_null(strstr(why.text, "cancelled"));
    }
}

/* ---- Strangers ---------------------------------------------------------------------------------- */

static suite_verdict change_version(void *context, unsigned char *message, size_t *len, uint64_t n)
{
    (void)context;
    (void)len;
    if (n == 0) message[8 + 4] ^= 0x40; /* link header, then magic, then version */
    return SUITE_PASS;
}

static suite_verdict talk_nonsense(void *context, unsigned char *message, size_t *len, uint64_t n)
{
    (void)context;
    if (n == 0) memset(message, 'G', *len);
    return SUITE_PASS;
}

static suite_verdict stop_short(void *context, unsigned char *message, size_t *len, uint64_t n)
{
    (void)context;
    (void)message;
    if (n == 0) *len = 3;
    return SUITE_PASS;
}

static suite_verdict say_nothing(void *context, unsigned char *message, size_t *len, uint64_t n)
{
    (void)context;
    (void)message;
    (void)len;
    return n == 0 ? SUITE_DROP : SUITE_PASS;
}

static void greets_only_its_own_kind(void **state)
{
    const suite_backend *backend = backend_of(state);
    static const dw_transport *known[8];
    size_t n = 0;
    for (; backend->transports && backend->transports[n]; n++) known[n] = backend->transports[n];
    known[n] = &suite_spoiled;
    const struct {
        suite_verdict (*spoil)(void *, unsigned char *, size_t *, uint64_t);
        dw_status status;
        const char *word;
    } cases[] = {{change_version, DW_ERR_VERSION, "same release"},
                 {talk_nonsense, DW_ERR_PROTOCOL, "does not speak"},
                 {stop_short, DW_ERR_PROTOCOL, "does not speak"},
                 {say_nothing, DW_ERR_TIMEOUT, "did not greet"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        suite_pair pair;
        suite_prepare(&pair, backend);
        pair.options[1].transports = known;
        pair.prefix[1] = "spoiled:";
        if (cases[i].status == DW_ERR_TIMEOUT) pair.options[0].open_timeout_ms = 300;
        suite_set_spoiler(&(suite_spoiler){.spoil = cases[i].spoil});
        suite_try_open(&pair);
        suite_set_spoiler(NULL);
        assert_int_equal(pair.status[0], cases[i].status);
        if (!strstr(pair.why[0].text, cases[i].word)) fail_msg("'%s' lacks '%s'", pair.why[0].text, cases[i].word);
        assert_null(pair.link[0]);
        suite_close(&pair);
    }
}

static suite_verdict forge_kind(void *context, unsigned char *message, size_t *len, uint64_t n)
{
    (void)context;
    (void)len;
    if (n == 2) message[4] = 0x55;
    return SUITE_PASS;
}

static void a_message_of_no_known_kind_ends_the_link(void **state)
{
    const suite_backend *backend = backend_of(state);
    static const dw_transport *known[8];
    size_t n = 0;
    for (; backend->transports && backend->transports[n]; n++) known[n] = backend->transports[n];
    known[n] = &suite_spoiled;
    suite_pair pair;
    suite_prepare(&pair, backend);
    pair.options[1].transports = known;
    pair.prefix[1] = "spoiled:";
    suite_set_spoiler(&(suite_spoiler){.spoil = forge_kind});
    suite_open(&pair);
    suite_set_spoiler(NULL);
    send_message(pair.link[1], TAG, 0, 50);
    expect_message(pair.link[0], TAG, 0, 50);
    send_message(pair.link[1], TAG, 1, 50);
    void *data;
    size_t len;
    assert_int_equal(dw_link_recv(pair.link[0], TAG, PATIENCE_MS, &data, &len), DW_ERR_PROTOCOL);
    assert_int_equal(dw_link_send(pair.link[0], TAG, "x", 1), DW_ERR_PROTOCOL);
    suite_close(&pair);
}

int run_transport_suite(const suite_backend *backend)
{
    void *state = (void *)(uintptr_t)backend;
#define CASE(test) cmocka_unit_test_prestate(test, state)
    const struct CMUnitTest tests[] = {
        CASE(notices_at_once_that_the_peer_was_killed), /* first: it forks while there is one thread */
        CASE(delivers_whole_messages_in_order_per_tag),
        CASE(carries_64_mebibytes_in_one_message),
        CASE(carries_many_messages_in_flight),
        CASE(carries_both_directions_at_once),
        CASE(sends_what_is_queued_before_it_closes),
        CASE(does_not_allocate_in_steady_state),
        CASE(gives_back_dropped_and_shortened_room),
        CASE(answers_pending_when_the_queue_is_full),
        CASE(messages_that_nobody_takes_do_not_block_other_tags),
        CASE(refuses_messages_beyond_the_limit_of_either_end),
        CASE(handlers_get_messages_in_order_and_may_send),
        CASE(cancelling_ends_every_call_at_both_ends),
        CASE(a_peer_that_goes_in_mid_message_is_an_error),
        CASE(a_peer_that_takes_nothing_is_a_timeout),
        CASE(an_idle_link_lives_on),
        CASE(open_gives_up_when_nobody_comes),
        CASE(greets_only_its_own_kind),
        CASE(a_message_of_no_known_kind_ends_the_link),
    };
#undef CASE
    print_message("transport suite: %s\n", backend->name);
    return cmocka_run_group_tests_name(backend->name, tests, NULL, NULL);
}
