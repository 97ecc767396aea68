/* SPDX-License-Identifier: Apache-2.0
 * transport_suite_ends.c - what every backend must pass: how links begin and end. */
#include "transport_suite.h"
#include "transports/suite/counted.h"

#include <malloc.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* ThreadSanitizer makes processes start slowly and memory expensive: less must do there. */
#if defined(__SANITIZE_THREAD__)
#define SUITE_UNDER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SUITE_UNDER_TSAN 1
#endif
#endif
#ifndef SUITE_UNDER_TSAN
#define SUITE_UNDER_TSAN 0
#endif

enum { TAG = 7 };

static const suite_backend *tested;

static void open_pair(suite_pair *pair)
{
    suite_start(pair, tested);
}

/* ---- A peer that is killed: its test forks, and is first so that there is only one thread ---- */

enum { SHORT_MESSAGES = 20, SHORT_BYTES = 100000, PART_BYTES = 4 << 20, LONG_BYTES = 32 << 20 };

/* The child sends some short messages, then long ones without end. */
static size_t length_of(uint64_t n)
{
    return n < SHORT_MESSAGES ? SHORT_BYTES : LONG_BYTES;
}

static void send_until_killed(const char *uri)
{
    const dw_link_options options = {
        .struct_size = sizeof options, .transports = tested->transports, .tls = tested->tls[1]};
    dw_link *link;
    if (dw_link_open(&link, uri, &options, NULL) != DW_OK) _exit(3);
    for (uint64_t n = 0;;) {
        void *room;
        dw_status status = dw_link_send_begin(link, TAG, length_of(n), &room);
        if (status == DW_PENDING) {
            dw_link_wait_room(link, length_of(n), -1);
        } else if (status == DW_OK) {
            suite_fill(room, length_of(n), n);
            dw_link_send_end(link, room, length_of(n++));
        } else {
            _exit(0); /* the process of the test has ended */
        }
    }
}

static void tell_child(void *context, const char *uri)
{
    int fd = *(const int *)context;
    if (write(fd, uri, strlen(uri) + 1) < 0) abort();
}

static dw_link *open_to_child(pid_t *child)
{
    int pipe_ends[2];
    assert_int_equal(pipe(pipe_ends), 0);
    *child = fork();
    assert_true(*child >= 0);
    if (*child == 0) {
        char uri[512] = "";
        if (read(pipe_ends[0], uri, sizeof uri - 1) <= 0) _exit(2);
        send_until_killed(uri);
    }
    const dw_link_options options = {.struct_size = sizeof options,
                                     .role = DW_LINK_LISTEN,
                                     .open_timeout_ms = 30000,
                                     .transports = tested->transports,
                                     .on_listening = tell_child,
                                     .listening_context = &pipe_ends[1],
                                     .tls = tested->tls[0]};
    dw_link *link;
    dw_why why;
    if (dw_link_open(&link, tested->uri, &options, &why) != DW_OK) fail_msg("%s", why.text);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
    return link;
}

/* Receives messages from number *n on until none arrives within the time. */
static dw_status take_messages(dw_link *link, int timeout_ms, uint64_t *n)
{
    void *data;
    size_t len;
    dw_status status;
    while ((status = dw_link_recv(link, TAG, timeout_ms, &data, &len)) == DW_OK) {
        assert_true(suite_is(data, len, *n, length_of(*n)));
        dw_link_release(link, data);
        ++*n;
    }
    return status;
}

/* How many bytes have arrived after the last complete message, or a few more. */
static int64_t part_of_a_message(const dw_link_counters *count)
{
    int64_t bytes = (int64_t)count->bytes_received;
    for (uint64_t n = 0; n < count->messages_received; n++) bytes -= (int64_t)length_of(n);
    return bytes;
}

/* Stops the child when a part of a message has arrived and the rest has not. */
static void stop_within_a_message(dw_link *link, pid_t child, uint64_t *n)
{
    int64_t end = suite_now_ns() + (int64_t)SUITE_PATIENCE_MS * 1000000;
    while (suite_now_ns() < end) {
        assert_int_equal(take_messages(link, 1, n), DW_PENDING);
        dw_link_counters count = counted(link);
        if (part_of_a_message(&count) < PART_BYTES) continue;
        kill(child, SIGSTOP);
        waitpid(child, NULL, WUNTRACED);
        /* Waits until all that was sent has arrived: until ten looks in a row find nothing new.
         * After a single one the link's thread may not have run yet on a busy machine. */
        for (int still = 0; still < 10; still++) {
            uint64_t before = count.bytes_received;
            suite_sleep_ms(10);
            count = counted(link);
            if (count.bytes_received != before) still = -1;
        }
        if (part_of_a_message(&count) >= PART_BYTES) return;
        kill(child, SIGCONT);
    }
    fail_msg("no part of a message ever arrived");
}

TEST(notices_at_once_that_the_peer_was_killed)
{
    pid_t child;
    uint64_t n = 0;
    if (tested->one_process) skip();
    dw_link *link = open_to_child(&child);
    stop_within_a_message(link, child, &n);
    assert_true(n >= SHORT_MESSAGES);
    uint64_t whole = counted(link).messages_received;
    kill(child, SIGKILL);
    /* The peer's death is noticed at once, not by the timeout. */
    assert_int_equal(take_messages(link, SUITE_PATIENCE_MS / 2, &n), DW_ERR_PEER);
    assert_string_not_equal(dw_link_why(link), "");
    assert_int_equal(n, whole); /* the message that had begun is not delivered */
    dw_link_close(link);
    waitpid(child, NULL, 0);
}

typedef struct talker {
    dw_link *link;
    dw_status status;
    pid_t thread; /* set directly before it waits */
} talker;

/* ---- Ends ------------------------------------------------------------------------------------ */

static void *wait_in_recv(void *context)
{
    talker *me = context;
    __atomic_store_n(&me->thread, (pid_t)syscall(SYS_gettid), __ATOMIC_RELEASE);
    me->status = suite_receive(me->link, TAG, -1);
    return NULL;
}

/* Whether the kernel says that a thread of this process sleeps. */
static int sleeps(pid_t thread)
{
    char path[64], text[512] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)thread);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t len = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[len] = '\0';
    const char *name_end = strrchr(text, ')'); /* "number (name) S ..." */
    assert_non_null(name_end);
    return name_end[2] == 'S';
}

/* Returns when the talker's thread sleeps in dw_link_recv. */
static void expect_waiting(const talker *me)
{
    pid_t thread;
    for (int ms = 0; ms < SUITE_PATIENCE_MS; ms++) {
        thread = __atomic_load_n(&me->thread, __ATOMIC_ACQUIRE);
        if (thread && sleeps(thread)) return;
        suite_sleep_ms(1);
    }
    fail_msg("a thread never waited in dw_link_recv");
}

TEST(cancelling_ends_every_call_at_both_ends)
{
    suite_pair pair;
    open_pair(&pair);
    talker waiting[2] = {{.link = pair.link[0]}, {.link = pair.link[1]}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, wait_in_recv, &waiting[i]);
    for (int i = 0; i < 2; i++) expect_waiting(&waiting[i]);
    dw_link_cancel(pair.link[0]);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    assert_int_equal(waiting[0].status, DW_ERR_CANCELLED);
    assert_int_equal(waiting[1].status, DW_ERR_PEER);
    assert_int_equal(dw_link_send(pair.link[0], TAG, "x", 1), DW_ERR_CANCELLED);
    assert_int_equal(suite_receive(pair.link[0], TAG, 0), DW_ERR_CANCELLED);
    assert_int_equal(dw_link_flush(pair.link[0], -1), DW_ERR_CANCELLED);
    assert_int_equal(dw_link_send(pair.link[1], TAG, "x", 1), DW_ERR_PEER);
    assert_non_null(strstr(dw_link_why(pair.link[0]), "cancelled"));
    assert_string_not_equal(dw_link_why(pair.link[1]), "");
    suite_close(&pair);
}

TEST(a_peer_that_leaves_within_a_message_is_an_error)
{
    suite_pair pair;
    open_pair(&pair);
    suite_pass(pair.link, 0, TAG, 0, 100);
    for (uint64_t n = 1; n < 6; n++) suite_send(pair.link[0], TAG, n, (size_t)32 << 20);
    dw_link_cancel(pair.link[0]);
    /* Complete messages may be received, then an error, but never a part of a message. */
    dw_status status = DW_OK;
    for (uint64_t n = 1; status == DW_OK; n++) {
        void *data;
        size_t len;
        status = dw_link_recv(pair.link[1], TAG, SUITE_PATIENCE_MS, &data, &len);
        if (status == DW_OK) {
            assert_true(suite_is(data, len, n, (size_t)32 << 20));
            dw_link_release(pair.link[1], data);
        }
    }
    assert_int_equal(status, DW_ERR_PEER);
    suite_close(&pair);
}

/* A program may close a link while other threads still wait for messages. */
TEST(closing_ends_the_calls_of_other_threads)
{
    enum { ROUNDS = SUITE_UNDER_TSAN ? 5 : 20, WAITING = 20 };
    mallopt(M_PERTURB, 0xa5); /* freed memory is overwritten, so that a late access fails */
    for (int round = 0; round < ROUNDS; round++) {
        suite_pair pair;
        open_pair(&pair);
        talker waiting[WAITING];
        pthread_t threads[WAITING];
        for (int i = 0; i < WAITING; i++) {
            waiting[i] = (talker){.link = pair.link[i % 2]};
            pthread_create(&threads[i], NULL, wait_in_recv, &waiting[i]);
        }
        /* No call may begin after the link is closed. */
        for (int i = 0; i < WAITING; i++) expect_waiting(&waiting[i]);
        suite_close(&pair);
        for (int i = 0; i < WAITING; i++) {
            pthread_join(threads[i], NULL);
            /* The other end closes at the same time, and its goodbye may come first. */
            assert_true(waiting[i].status == DW_ERR_CANCELLED || waiting[i].status == DW_ERR_PEER);
        }
    }
    mallopt(M_PERTURB, 0);
}

typedef struct closer {
    dw_link *link;
    volatile int calls;
} closer;

static void close_here(void *context, const void *data, size_t len)
{
    (void)data;
    (void)len;
    closer *me = context;
    __atomic_add_fetch(&me->calls, 1, __ATOMIC_RELAXED);
    dw_link_close(me->link);
}

TEST(a_handler_may_close_its_link)
{
    suite_pair pair;
    open_pair(&pair);
    closer there = {.link = pair.link[1]};
    for (uint64_t n = 0; n < 3; n++) suite_send(pair.link[0], TAG, n, 100);
    while (counted(pair.link[1]).messages_received < 3) suite_sleep_ms(1);
    pair.link[1] = NULL; /* the handler closes it */
    assert_int_equal(dw_link_handle(there.link, TAG, close_here, &there), DW_OK);
    assert_int_equal(suite_receive(pair.link[0], TAG, SUITE_PATIENCE_MS), DW_ERR_PEER);
    assert_non_null(strstr(dw_link_why(pair.link[0]), "closed the link"));
    suite_close(&pair);
    assert_int_equal(__atomic_load_n(&there.calls, __ATOMIC_RELAXED), 1);
}

/* ---- Other processes ------------------------------------------------------------------------- */

/* Calls everything in a forked child. It has copies of the memory, the descriptors and the locks,
 * which may be held: no call may wait, or reach the peer. */
static int misuse(dw_link *link)
{
    void *data;
    size_t len;
    int wrong = dw_link_send(link, TAG, "child", 5) != DW_ERR_ARGUMENT;
    wrong += dw_link_send_begin(link, TAG, 5, &data) != DW_ERR_ARGUMENT;
    wrong += dw_link_recv(link, TAG, -1, &data, &len) != DW_ERR_ARGUMENT;
    wrong += dw_link_flush(link, -1) != DW_ERR_ARGUMENT;
    wrong += dw_link_wait_room(link, 5, -1) != DW_ERR_ARGUMENT;
    wrong += dw_link_handle(link, TAG, NULL, NULL) != DW_ERR_ARGUMENT;
    wrong += counted(link).messages_sent != 0;
    wrong += !strstr(dw_link_why(link), "forked");
    dw_link_cancel(link);
    dw_link_close(link);
    return wrong;
}

TEST(a_forked_child_cannot_use_the_link)
{
    suite_pair pair;
    open_pair(&pair);
    for (uint64_t n = 0; n < 8; n++) {
        suite_send(pair.link[0], TAG, n, 300000);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            alarm(SUITE_PATIENCE_MS / 1000);
            _exit(misuse(pair.link[0]) + misuse(pair.link[1]));
        }
        suite_send(pair.link[1], TAG, n, 70);
        int ended = -1;
        assert_int_equal(waitpid(child, &ended, 0), child);
        assert_int_equal(ended, 0);
        suite_expect(pair.link[1], TAG, n, 300000);
        suite_expect(pair.link[0], TAG, n, 70);
    }
    suite_close(&pair);
}

/* ---- Time ------------------------------------------------------------------------------------ */

TEST(a_peer_that_receives_nothing_is_a_timeout)
{
    suite_pair pair;
    suite_prepare(&pair, tested);
    pair.options[0].peer_timeout_ms = 300;
    pair.options[0].max_queued_bytes = pair.options[1].max_queued_bytes = 1 << 20;
    suite_open(&pair);
    size_t len = (size_t)4 << 20;
    unsigned char *data = calloc(1, len);
    dw_status status = DW_OK;
    int64_t end = suite_now_ns() + (int64_t)SUITE_PATIENCE_MS * 1000000;
    while ((status == DW_OK || status == DW_PENDING) && suite_now_ns() < end) {
        /* The peer stops reading because of its limit. */
        status = dw_link_send(pair.link[0], TAG, data, len);
        if (status == DW_PENDING) suite_sleep_ms(2);
    }
    free(data);
    assert_int_equal(status, DW_ERR_TIMEOUT);
    assert_non_null(strstr(dw_link_why(pair.link[0]), "took no"));
    suite_close(&pair);
}

static void *receive_and_close(void *context)
{
    dw_link **link = context;
    dw_status status = suite_receive(*link, TAG, SUITE_PATIENCE_MS);
    dw_link_close(*link);
    *link = status == DW_OK ? NULL : *link;
    return NULL;
}

/* The peer's goodbye comes together with what says that it has received the message. */
TEST(what_the_peer_received_before_it_closed_is_flushed)
{
    for (int i = 0; i < 10; i++) {
        suite_pair pair;
        pthread_t peer;
        open_pair(&pair);
        int from = i & 1;
        pthread_create(&peer, NULL, receive_and_close, &pair.link[!from]);
        suite_send(pair.link[from], TAG, 0, i % 4 < 2 ? 100 : 300000);
        dw_status flushed = dw_link_flush(pair.link[from], SUITE_PATIENCE_MS);
        pthread_join(peer, NULL);
        if (flushed != DW_OK) fail_msg("%d: '%s'", flushed, dw_link_why(pair.link[from]));
        assert_null(pair.link[!from]);
        suite_close(&pair);
    }
}

TEST(what_the_peer_did_not_receive_before_it_closed_is_lost)
{
    suite_pair pair;
    suite_prepare(&pair, tested);
    /* An end that closes says so before it takes much more. */
    pair.options[0].max_queued_bytes = 16 << 20;
    pair.options[1].max_queued_bytes = 1 << 20;
    suite_open(&pair);
    suite_send_until_full(pair.link[0], TAG, 100000);
    dw_link_close(pair.link[1]);
    pair.link[1] = NULL;
    assert_int_equal(dw_link_flush(pair.link[0], SUITE_PATIENCE_MS), DW_ERR_PEER);
    suite_close(&pair);
}

/* A link has no messages for much longer than the time after which it gives up a peer that receives
 * nothing of what was sent. The limit is long enough that a busy machine, whose threads may stand
 * still for some time, does not reach it while a message is on its way. */
TEST(an_idle_link_stays_open)
{
    enum { LIMIT_MS = 1000, IDLE_MS = 1500 };
    suite_pair pair;
    suite_prepare(&pair, tested);
    pair.options[0].peer_timeout_ms = pair.options[1].peer_timeout_ms = LIMIT_MS;
    suite_open(&pair);
    for (uint64_t n = 0; n < 2; n++) {
        suite_pass(pair.link, 0, TAG, n, 5000);
        assert_int_equal(suite_receive(pair.link[1], TAG, IDLE_MS), DW_PENDING);
        assert_int_equal(suite_receive(pair.link[0], TAG, 0), DW_PENDING);
    }
    suite_close(&pair);
}

TEST(open_times_out_without_a_peer)
{
    suite_pair pair;
    suite_start(&pair, tested); /* finds an address on which nobody listens afterwards */
    char uri[512];
    snprintf(uri, sizeof uri, "%s", pair.uri);
    suite_close(&pair);
    for (int role = DW_LINK_LISTEN; role <= DW_LINK_CONNECT; role++) {
        const dw_link_options options = {.struct_size = sizeof options,
                                         .role = (dw_link_role)role,
                                         .open_timeout_ms = 150,
                                         .transports = tested->transports,
                                         .contexts = tested->contexts,
                                         .tls = tested->tls[role == DW_LINK_CONNECT]};
        dw_link *link = (dw_link *)(uintptr_t)1;
        dw_why why = {.text = ""};
        assert_int_equal(dw_link_open(&link, uri, &options, &why), DW_ERR_TIMEOUT);
        assert_null(link);
        assert_non_null(strstr(why.text, "150 ms"));
        volatile int cancelled = 1;
        dw_link_options cancelling = options;
        cancelling.open_timeout_ms = SUITE_PATIENCE_MS;
        cancelling.cancelled = &cancelled;
        assert_int_equal(dw_link_open(&link, uri, &cancelling, &why), DW_ERR_CANCELLED);
        assert_non_null(strstr(why.text, "cancelled"));
    }
}

/* ---- Strangers ------------------------------------------------------------------------------- */

static suite_verdict change_version(void *context, unsigned char *message, size_t *len, uint64_t n)
{
    (void)context;
    (void)len;
    if (n == 0) message[8 + 4] ^= 0x40; /* the version, after the link's header and the magic */
    return SUITE_PASS;
}

static suite_verdict change_magic(void *context, unsigned char *message, size_t *len, uint64_t n)
{
    (void)context;
    (void)len;
    if (n == 0) message[8] ^= 1;
    return SUITE_PASS;
}

static suite_verdict send_nonsense(void *context, unsigned char *message, size_t *len, uint64_t n)
{
    (void)context;
    if (n == 0) memset(message, 'G', *len);
    return SUITE_PASS;
}

static suite_verdict send_too_little(void *context, unsigned char *message, size_t *len, uint64_t n)
{
    (void)context;
    (void)message;
    if (n == 0) *len = 3;
    return SUITE_PASS;
}

static suite_verdict send_nothing(void *context, unsigned char *message, size_t *len, uint64_t n)
{
    (void)context;
    (void)message;
    (void)len;
    return n == 0 ? SUITE_DROP : SUITE_PASS;
}

TEST(refuses_invalid_hello_messages)
{
    static const dw_transport *known[8];
    size_t n = 0;
    for (; tested->transports && tested->transports[n]; n++) known[n] = tested->transports[n];
    known[n] = &suite_spoiled;
    const struct {
        suite_verdict (*spoil)(void *, unsigned char *, size_t *, uint64_t);
        dw_status status;
        const char *word;
    } cases[] = {{change_version, DW_ERR_VERSION, "same release"},
                 {change_magic, DW_ERR_PROTOCOL, "does not speak"},
                 {send_nonsense, DW_ERR_PROTOCOL, "does not speak"},
                 {send_too_little, DW_ERR_PROTOCOL, "does not speak"},
                 {send_nothing, DW_ERR_TIMEOUT, "did not greet"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int is_named = 0;
        for (uint32_t limit = 300; !is_named; limit *= 4) {
            suite_pair pair;
            suite_prepare(&pair, tested);
            pair.options[1].transports = known;
            pair.prefix[1] = "spoiled:";
            if (cases[i].status == DW_ERR_TIMEOUT) pair.options[0].open_timeout_ms = limit;
            suite_set_spoiler(&(suite_spoiler){.spoil = cases[i].spoil});
            suite_try_open(&pair);
            suite_set_spoiler(NULL);
            assert_int_equal(pair.status[0], cases[i].status);
            is_named = strstr(pair.why[0].text, cases[i].word) != NULL;
            if (!is_named && (cases[i].status != DW_ERR_TIMEOUT || limit > SUITE_LONGEST_LIMIT_MS))
                fail_msg("'%s' lacks '%s'", pair.why[0].text, cases[i].word);
            assert_null(pair.link[0]);
            suite_close(&pair);
        }
    }
}

static suite_verdict forge_kind(void *context, unsigned char *message, size_t *len, uint64_t n)
{
    (void)context;
    (void)len;
    if (n == 2) message[4] = 0x55;
    return SUITE_PASS;
}

TEST(a_message_of_unknown_kind_ends_the_link)
{
    static const dw_transport *known[8];
    size_t n = 0;
    for (; tested->transports && tested->transports[n]; n++) known[n] = tested->transports[n];
    known[n] = &suite_spoiled;
    suite_pair pair;
    suite_prepare(&pair, tested);
    pair.options[1].transports = known;
    pair.prefix[1] = "spoiled:";
    suite_set_spoiler(&(suite_spoiler){.spoil = forge_kind});
    suite_open(&pair);
    suite_set_spoiler(NULL);
    suite_pass(pair.link, 1, TAG, 0, 50);
    suite_send(pair.link[1], TAG, 1, 50);
    assert_int_equal(suite_receive(pair.link[0], TAG, SUITE_PATIENCE_MS), DW_ERR_PROTOCOL);
    assert_int_equal(dw_link_send(pair.link[0], TAG, "x", 1), DW_ERR_PROTOCOL);
    suite_close(&pair);
}

int run_transport_suite_ends(const suite_backend *backend)
{
    tested = backend;
    return test_run(NULL, NULL);
}
