/* SPDX-License-Identifier: Apache-2.0
 * transport_suite.c - what every backend must pass: messages, queues, handlers. */
#include <stdatomic.h>

#include "transport_suite.h"
#include "transports/suite/counted.h"

enum { TAG = 7 };

static const suite_backend *tested;

static void open_pair(suite_pair *pair)
{
    suite_start(pair, tested);
}

/* ---- Messages -------------------------------------------------------------------------------- */

static size_t some_length(uint64_t n)
{
    static const size_t lengths[] = {0,   1,    2,    7,    8,    63,   64,   255,
                                     256, 1000, 4095, 4096, 4097, 5000, 70000};
    return lengths[n % (sizeof lengths / sizeof *lengths)];
}

TEST(delivers_whole_messages_in_order_per_tag)
{
    suite_pair pair;
    open_pair(&pair);
    enum { N = 600 };
    for (uint64_t n = 0; n < N; n++) suite_send(pair.link[0], 100 + n % 3, n, some_length(n));
    /* They are received tag by tag: messages with different tags may be received in any order. */
    for (uint64_t tag = 3; tag-- > 0;) {
        for (uint64_t n = tag; n < N; n += 3)
            suite_expect(pair.link[1], 100 + (uint32_t)tag, n, some_length(n));
    }
    assert_int_equal(suite_receive(pair.link[1], 100, 0), DW_PENDING);
    /* The last message may be received before its sender has counted it. */
    assert_int_equal(dw_link_flush(pair.link[0], SUITE_PATIENCE_MS), DW_OK);
    const dw_link_counters sent = counted(pair.link[0]), received = counted(pair.link[1]);
    assert_int_equal(sent.messages_sent, N);
    assert_int_equal(received.messages_received, N);
    assert_int_equal(sent.queued_bytes, 0);
    suite_close(&pair);
}

TEST(carries_64_mebibytes_in_one_message)
{
    suite_pair pair;
    open_pair(&pair);
    size_t len = (size_t)64 << 20;
    suite_pass(pair.link, 1, TAG, 1, len);
    suite_pass(pair.link, 1, TAG, 2, 1);
    suite_close(&pair);
}

TEST(carries_many_messages_in_flight)
{
    suite_pair pair;
    open_pair(&pair);
    enum { N = 5000, TAGS = 200 }; /* more tags than a link's table has places */
    for (uint64_t n = 0; n < N; n++) suite_send(pair.link[0], TAG + (uint32_t)n % TAGS, n, n % 200);
    for (uint64_t tag = TAGS; tag-- > 0;) {
        for (uint64_t n = tag; n < N; n += TAGS)
            suite_expect(pair.link[1], TAG + (uint32_t)tag, n, n % 200);
    }
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

TEST(carries_both_directions_at_once)
{
    suite_pair pair;
    open_pair(&pair);
    talker talkers[2] = {{.link = pair.link[0]}, {.link = pair.link[1]}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, talk, &talkers[i]);
    for (uint64_t n = 0; n < TALK_MESSAGES; n++) {
        for (int i = 0; i < 2; i++) suite_expect(pair.link[i], TAG, n, TALK_BYTES);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(talkers[i].status, DW_OK);
    }
    suite_close(&pair);
}

static void *wait_for_one(void *context)
{
    talker *me = context;
    me->status = suite_receive(me->link, TAG, SUITE_PATIENCE_MS);
    return NULL;
}

/* A caller that waits does the work of the link's thread. The thread must take over again when the
 * caller has its message. */
TEST(reads_messages_while_no_caller_waits)
{
    suite_pair pair;
    open_pair(&pair);
    for (uint64_t n = 0; n < 20; n += 2) {
        talker waiting = {.link = pair.link[1]};
        pthread_t thread;
        pthread_create(&thread, NULL, wait_for_one, &waiting);
        suite_sleep_ms(3);
        suite_send(pair.link[0], TAG, n, 3000);
        pthread_join(thread, NULL);
        assert_int_equal(waiting.status, DW_OK);
        suite_send(pair.link[0], TAG, n + 1, 3000);
        int64_t end = suite_now_ns() + (int64_t)SUITE_PATIENCE_MS * 1000000 / 4;
        while (counted(pair.link[1]).messages_received < n + 2 && suite_now_ns() < end)
            suite_sleep_ms(1);
        /* It was read although no caller waited for it. */
        assert_int_equal(counted(pair.link[1]).messages_received, n + 2);
        suite_expect(pair.link[1], TAG, n + 1, 3000);
    }
    suite_close(&pair);
}

TEST(sends_what_is_queued_before_it_closes)
{
    suite_pair pair;
    open_pair(&pair);
    enum { N = 200 };
    for (uint64_t n = 0; n < N; n++) suite_send(pair.link[0], TAG, n, 20000);
    dw_link_close(pair.link[0]);
    pair.link[0] = NULL;
    for (uint64_t n = 0; n < N; n++) suite_expect(pair.link[1], TAG, n, 20000);
    assert_int_equal(suite_receive(pair.link[1], TAG, SUITE_PATIENCE_MS), DW_ERR_PEER);
    assert_non_null(strstr(dw_link_why(pair.link[1]), "closed the link"));
    suite_close(&pair);
}

TEST(does_not_allocate_in_steady_state)
{
    suite_pair pair;
    open_pair(&pair);
    enum { WINDOW = 40, WINDOWS = 10 };
    long before = 0, made = 0;
    for (int round = -20; round < WINDOWS * WINDOW; round++) {
        if (round % WINDOW == 0) {
            made = suite_allocations() - before;
            if (round > 0 && made <= 24) break;
            before = suite_allocations();
        }
        for (uint64_t n = 0; n < 8; n++)
            suite_send(pair.link[0], TAG + (uint32_t)n, n, some_length(n + 7));
        for (uint64_t n = 0; n < 8; n++) {
            suite_expect(pair.link[1], TAG + (uint32_t)n, n, some_length(n + 7));
            suite_pass(pair.link, 1, TAG, n, 30);
        }
        /* A message may be received before its sender knows. Without the flush, a round could begin
         * with one more buffer in use than any round before. */
        assert_int_equal(dw_link_flush(pair.link[0], SUITE_PATIENCE_MS), DW_OK);
        assert_int_equal(dw_link_flush(pair.link[1], SUITE_PATIENCE_MS), DW_OK);
    }
    /* Which buffers are in use at the same time depends on the timing of threads, so a few may
     * still be new, on a busy machine even many once. If every message allocated, 40 rounds of 24
     * messages would make 960 again and again. */
    assert_in_range(made, 0, 24);
    suite_close(&pair);
}

/* ---- Queues ---------------------------------------------------------------------------------- */

TEST(gives_back_dropped_and_shortened_room)
{
    suite_pair pair;
    open_pair(&pair);
    void *room;
    assert_int_equal(dw_link_send_begin(pair.link[0], TAG, 5000, &room), DW_OK);
    assert_int_equal(counted(pair.link[0]).queued_bytes > 5000, 1);
    assert_int_equal(dw_link_send_end(pair.link[0], room, DW_LINK_DROP), DW_OK);
    assert_int_equal(counted(pair.link[0]).queued_bytes, 0);
    assert_int_equal(dw_link_send_begin(pair.link[0], TAG, 5000, &room), DW_OK);
    assert_int_equal(dw_link_send_end(pair.link[0], room, 5001), DW_ERR_ARGUMENT);
    suite_fill(room, 10, 3);
    assert_int_equal(dw_link_send_end(pair.link[0], room, 10), DW_OK);
    suite_expect(pair.link[1], TAG, 3, 10);
    assert_int_equal(dw_link_flush(pair.link[0], SUITE_PATIENCE_MS), DW_OK);
    assert_int_equal(counted(pair.link[0]).queued_bytes, 0);
    suite_close(&pair);
}

TEST(answers_pending_when_the_queue_is_full)
{
    suite_pair pair;
    suite_prepare(&pair, tested);
    pair.options[0].max_queued_bytes = pair.options[1].max_queued_bytes = 1 << 20;
    suite_open(&pair);
    size_t len = (size_t)3 << 20; /* longer than the limit, but one at a time must be accepted */
    uint64_t sent = suite_send_until_full(pair.link[0], TAG, len);
    for (uint64_t n = 0; n < sent; n++) suite_expect(pair.link[1], TAG, n, len);
    assert_int_equal(dw_link_wait_room(pair.link[0], len, SUITE_PATIENCE_MS), DW_OK);
    suite_pass(pair.link, 0, TAG, sent, len);
    suite_close(&pair);
}

TEST(waits_for_room_and_not_for_an_empty_queue)
{
    suite_pair pair;
    suite_prepare(&pair, tested);
    pair.options[0].max_queued_bytes = pair.options[1].max_queued_bytes = 1 << 20;
    suite_open(&pair);
    size_t len = 300000; /* the limit has no room for a fourth, but for a short one */
    uint64_t sent = suite_send_until_full(pair.link[0], TAG, len);
    assert_int_equal(dw_link_wait_room(pair.link[0], len, 20), DW_PENDING);
    assert_int_equal(dw_link_wait_room(pair.link[0], 1000, 0), DW_OK);
    assert_int_equal(dw_link_flush(pair.link[0], 0), DW_PENDING);
    dw_link_counters now = counted(pair.link[0]);
    assert_int_equal(now.unsent_bytes, (sent - now.messages_sent) * len);
    for (uint64_t n = 0; n < sent; n++) suite_expect(pair.link[1], TAG, n, len);
    assert_int_equal(dw_link_wait_room(pair.link[0], len, SUITE_PATIENCE_MS), DW_OK);
    assert_int_equal(dw_link_flush(pair.link[0], SUITE_PATIENCE_MS), DW_OK);
    assert_int_equal(counted(pair.link[0]).unsent_bytes, 0);
    suite_close(&pair);
}

TEST(unreceived_messages_do_not_block_other_tags)
{
    suite_pair pair;
    suite_prepare(&pair, tested);
    pair.options[1].max_queued_bytes = 1 << 20;
    suite_open(&pair);
    size_t len = (size_t)1 << 20;
    for (uint64_t n = 0; n < 6; n++) suite_send(pair.link[0], TAG, n, len);
    suite_send(pair.link[0], TAG + 1, 9, 100);
    suite_sleep_ms(30); /* the receiver is above its limit and does not read ... */
    assert_true(counted(pair.link[1]).messages_received < 4);
    suite_expect(pair.link[1], TAG + 1, 9, 100); /* ... unless a caller waits for another tag */
    for (uint64_t n = 0; n < 6; n++) suite_expect(pair.link[1], TAG, n, len);
    suite_close(&pair);
}

TEST(refuses_messages_beyond_the_limit_of_either_end)
{
    suite_pair pair;
    suite_prepare(&pair, tested);
    pair.options[0].max_message_bytes = 9000;
    suite_open(&pair);
    void *room;
    assert_int_equal(dw_link_send_begin(pair.link[0], TAG, 9001, &room), DW_ERR_LIMIT);
    assert_int_equal(dw_link_wait_room(pair.link[0], 9001, 0), DW_ERR_LIMIT);
    assert_int_equal(dw_link_send_begin(pair.link[1], TAG, 9001, &room), DW_ERR_LIMIT);
    suite_pass(pair.link, 1, TAG, 1, 9000);
    suite_close(&pair);
}

/* ---- Handlers -------------------------------------------------------------------------------- */

typedef struct echo_state {
    dw_link *link;
    atomic_int running, seen, wrong;
    pthread_t thread;
} echo_state;

static void echo_back(void *context, const void *data, size_t len)
{
    echo_state *echo = context;
    atomic_store(&echo->running, 1);
    int n = atomic_load(&echo->seen);
    if (!suite_is(data, len, (uint64_t)n, 100 + (size_t)n % 5)) atomic_fetch_add(&echo->wrong, 1);
    if (dw_link_send(echo->link, TAG + 1, data, len) != DW_OK) atomic_fetch_add(&echo->wrong, 1);
    echo->thread = pthread_self();
    atomic_fetch_add(&echo->seen, 1);
    atomic_store(&echo->running, 0);
}

TEST(handlers_get_messages_in_order_and_may_send)
{
    suite_pair pair;
    open_pair(&pair);
    enum { N = 500 };
    echo_state echo = {.link = pair.link[1]};
    /* Half of the messages arrive before the handler is set. */
    for (uint64_t n = 0; n < N / 2; n++) suite_send(pair.link[0], TAG, n, 100 + n % 5);
    while (counted(pair.link[1]).messages_received < N / 2) suite_sleep_ms(1);
    assert_int_equal(dw_link_handle(pair.link[1], TAG, echo_back, &echo), DW_OK);
    assert_int_equal(suite_receive(pair.link[1], TAG, 0), DW_ERR_ARGUMENT);
    for (uint64_t n = N / 2; n < N; n++) suite_send(pair.link[0], TAG, n, 100 + n % 5);
    for (uint64_t n = 0; n < N; n++) suite_expect(pair.link[0], TAG + 1, n, 100 + n % 5);
    assert_int_equal(dw_link_handle(pair.link[1], TAG, NULL, NULL), DW_OK);
    assert_int_equal(atomic_load(&echo.running), 0);
    assert_int_equal(atomic_load(&echo.wrong), 0);
    assert_int_equal(atomic_load(&echo.seen), N);
    assert_false(pthread_equal(echo.thread, pthread_self()));
    suite_pass(pair.link, 0, TAG, 77, 10);
    assert_int_equal(atomic_load(&echo.seen), N);
    suite_close(&pair);
}

static void pass_on(void *context, const void *data, size_t len)
{
    const echo_state *echo = context;
    dw_link_send(echo->link, TAG + 1, data, len);
}

TEST(handlers_run_while_a_caller_waits_for_something_else)
{
    suite_pair pair;
    open_pair(&pair);
    echo_state there = {.link = pair.link[1]}, back = {.link = pair.link[0]};
    assert_int_equal(dw_link_handle(pair.link[1], TAG, pass_on, &there), DW_OK);
    assert_int_equal(dw_link_handle(pair.link[0], TAG + 1, pass_on, &back), DW_OK);
    for (uint64_t n = 0; n < 30; n++) {
        suite_send(pair.link[0], TAG, n, 500); /* to a handler there, to one here, and back there */
        suite_expect(pair.link[1], TAG + 1, n, 500);
    }
    suite_close(&pair);
}

#ifdef DW_SUITE_INSIDE /* this repository, whose groups and channels keep messages */
#include "link/for_groups.h"

enum { RETAINED = 20 };

typedef struct retainer {
    dw_link *link;
    atomic_int n;
    void *data[RETAINED];
    size_t len[RETAINED];
} retainer;

/* Keeps every second message. */
static void retain(void *context, const void *data, size_t len)
{
    retainer *keeps = context;
    uint64_t n = (uint64_t)keeps->n;
    if (n % 2 == 0) {
        keeps->data[n / 2] = dw_link_retain(keeps->link, data);
        keeps->len[n / 2] = len;
    }
    keeps->n++;
}

static size_t retained_len(uint64_t n)
{
    return n % 4 == 0 ? 100 : 40000;
}

TEST(retained_messages_stay_as_they_are)
{
    suite_pair pair;
    open_pair(&pair);
    retainer keeps = {.link = pair.link[1]};
    void *sent[RETAINED] = {NULL};
    assert_int_equal(dw_link_handle(pair.link[1], TAG, retain, &keeps), DW_OK);
    for (uint64_t n = 0; n < 2 * RETAINED; n++) {
        void *room;
        size_t len = retained_len(n);
        while (dw_link_send_begin(pair.link[0], TAG, len, &room) == DW_PENDING) suite_sleep_ms(1);
        suite_fill(room, len, n);
        if (n % 2 == 1) {
            sent[n / 2] = dw_link_retain(pair.link[0], room);
        }
        assert_int_equal(dw_link_send_end(pair.link[0], room, len), DW_OK);
    }
    while (keeps.n < 2 * RETAINED) suite_sleep_ms(1);
    for (uint64_t n = 0; n < 50; n++) suite_send(pair.link[0], TAG + 1, n, retained_len(n));
    for (uint64_t n = 0; n < 50; n++) suite_expect(pair.link[1], TAG + 1, n, retained_len(n));
    for (uint64_t n = 0; n < RETAINED; n++) {
        assert_true(suite_is(keeps.data[n], keeps.len[n], 2 * n, retained_len(2 * n)));
        assert_true(suite_is(sent[n], retained_len(2 * n + 1), 2 * n + 1, retained_len(2 * n + 1)));
        if (n % 3 == 0) continue; /* the link frees what is not given back */
        dw_link_release(pair.link[1], keeps.data[n]);
        dw_link_release(pair.link[0], sent[n]);
    }
    assert_null(dw_link_retain(pair.link[0], NULL));
    assert_null(dw_link_retain(NULL, sent[0]));
    suite_close(&pair);
}
#endif

int run_transport_suite(const suite_backend *backend)
{
    tested = backend;
    /* The other half of the suite comes first, because one of its tests forks a peer, while this
     * process should have only one thread. */
    print_message("transport suite: %s\n", backend->name);
    return run_transport_suite_ends(backend) + test_run(NULL, NULL);
}
