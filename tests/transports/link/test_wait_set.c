/* SPDX-License-Identifier: Apache-2.0
 * test_wait_set.c - a caller that waits on several links: who calls the handlers, what ends the
 * wait, and what it means for other threads. A link may be in use by its own thread when the wait
 * begins, and is left to it then. So what only happens if the caller has the link is tried until it
 * does.
 */
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "transports/suite/transport_suite.h"

#include "link/link.h"

enum { LINKS = 3, TAG = 7, EACH = 2000, MOST_TRIES = 100 };
#define PATIENCE_NS (SUITE_PATIENCE_MS * INT64_C(1000000))

static const suite_backend backends[] = {
    {.name = "loop", .uri = "loop://wait-set-%d", .one_process = 1},
    {.name = "tcp", .uri = "tcp://127.0.0.1:0"},
};

/* Several links, whose other ends are in the same process. here[i] is pair[i].link[0]. */
typedef struct board {
    suite_pair pair[LINKS];
    dw_link *here[LINKS];
    int wake_fd;
    pthread_t caller;
    atomic_int seen[LINKS], by_caller, running[LINKS], wrong;
} board;

typedef struct place {
    board *of;
    int link;
} place;

static void set_up(board *b, const suite_backend *backend)
{
    memset(b, 0, sizeof *b);
    b->caller = pthread_self();
    b->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    assert_true(b->wake_fd >= 0);
    for (int i = 0; i < LINKS; i++) {
        suite_start(&b->pair[i], backend);
        b->here[i] = b->pair[i].link[0];
    }
}

static void take_down(board *b)
{
    for (int i = 0; i < LINKS; i++) suite_close(&b->pair[i]);
    close(b->wake_fd);
}

static dw_status wait_any(board *b, int64_t timeout_ns)
{
    return dw_link_wait_any(b->here, LINKS, TAG, b->wake_fd, timeout_ns);
}

/* Checks the order of the messages, and that only one thread at a time handles those of a link. */
static void take(void *context, const void *data, size_t len)
{
    const place *at = context;
    board *b = at->of;
    int n = atomic_load(&b->seen[at->link]);
    if (atomic_fetch_add(&b->running[at->link], 1) != 0) atomic_fetch_add(&b->wrong, 1);
    if (!suite_is(data, len, (uint64_t)n, 20 + (size_t)n % 50)) atomic_fetch_add(&b->wrong, 1);
    if (pthread_equal(pthread_self(), b->caller))
        atomic_fetch_add(&b->by_caller, 1);
    else
        eventfd_write(b->wake_fd, 1);
    atomic_fetch_sub(&b->running[at->link], 1);
    atomic_store(&b->seen[at->link], n + 1);
}

static int seen_by_all(board *b)
{
    int n = 0;
    for (int i = 0; i < LINKS; i++) n += atomic_load(&b->seen[i]);
    return n;
}

static void *send_all(void *context)
{
    board *b = context;
    for (int n = 0; n < EACH; n++) {
        for (int i = 0; i < LINKS; i++)
            suite_send(b->pair[i].link[1], TAG, (uint64_t)n, 20 + (size_t)n % 50);
        if (n % 16 == 0) usleep(50); /* so that there is something to wait for */
    }
    return NULL;
}

/* ---- Who calls the handlers ------------------------------------------------------------------ */

TEST(wait_set_handles_messages_of_all_links_in_order)
{
    for (size_t k = 0; k < sizeof backends / sizeof *backends; k++) {
        static board b;
        place places[LINKS];
        pthread_t sender;
        set_up(&b, &backends[k]);
        for (int i = 0; i < LINKS; i++) {
            places[i] = (place){&b, i};
            assert_int_equal(dw_link_handle(b.here[i], TAG, take, &places[i]), DW_OK);
        }
        assert_int_equal(pthread_create(&sender, NULL, send_all, &b), 0);
        while (seen_by_all(&b) < LINKS * EACH) {
            eventfd_t rings;
            assert_int_equal(wait_any(&b, PATIENCE_NS), DW_OK);
            eventfd_read(b.wake_fd, &rings);
        }
        pthread_join(sender, NULL);
        assert_int_equal(atomic_load(&b.wrong), 0);
        assert_true(atomic_load(&b.by_caller) > 0);
        /* After the wait the links' threads go on. */
        for (int i = 0; i < LINKS; i++) suite_send(b.pair[i].link[1], TAG, EACH, 20 + EACH % 50);
        for (int ms = 0; seen_by_all(&b) < LINKS * (EACH + 1); ms++) {
            assert_true(ms < SUITE_PATIENCE_MS);
            suite_sleep_ms(1);
        }
        assert_int_equal(atomic_load(&b.wrong), 0);
        take_down(&b);
    }
}

/* ---- What ends the wait ---------------------------------------------------------------------- */

static void ignore(void *context, const void *data, size_t len) {}

TEST(wait_set_ends_at_an_event_or_a_timeout)
{
    static board b;
    dw_link *many[DW_WAIT_SET_MOST + 1] = {NULL};
    set_up(&b, &backends[0]);
    for (int i = 0; i < LINKS; i++)
        assert_int_equal(dw_link_handle(b.here[i], TAG, ignore, NULL), DW_OK);
    assert_int_equal(dw_link_wait_any(NULL, 1, TAG, -1, 0), DW_ERR_ARGUMENT);
    assert_int_equal(dw_link_wait_any(many, DW_WAIT_SET_MOST + 1, TAG, -1, 0), DW_ERR_ARGUMENT);
    assert_int_equal(dw_link_wait_any(many, DW_WAIT_SET_MOST, TAG, -1, 1000), DW_PENDING);
    assert_int_equal(dw_link_wait_any(b.here, LINKS, TAG, -1, 0), DW_PENDING);
    assert_int_equal(wait_any(&b, 0), DW_PENDING);
    assert_int_equal(wait_any(&b, 1000000), DW_PENDING);
    eventfd_write(b.wake_fd, 1);
    assert_int_equal(wait_any(&b, 0), DW_OK);
    assert_int_equal(wait_any(&b, -1), DW_OK);
    take_down(&b);
}

static void *wait_set_for_long(void *context)
{
    dw_status status = DW_PENDING;
    /* A link that its own thread drives when the wait begins is part of the next wait. */
    for (int tries = 0; status == DW_PENDING && tries < 100; tries++)
        status = wait_any(context, INT64_C(200000000));
    return (void *)(intptr_t)status;
}

static void wait_until_claimed(dw_link *link)
{
    bool is_claimed = false;
    for (int ms = 0; !is_claimed; ms++) {
        assert_true(ms < SUITE_PATIENCE_MS);
        suite_sleep_ms(1);
        pthread_mutex_lock(&link->lock);
        is_claimed = link->inboxes.claimed;
        pthread_mutex_unlock(&link->lock);
    }
}

TEST(wait_set_ends_when_a_link_ends)
{
    for (size_t k = 0; k < sizeof backends / sizeof *backends; k++) {
        static board b;
        pthread_t thread;
        void *result;
        set_up(&b, &backends[k]);
        for (int i = 0; i < LINKS; i++)
            assert_int_equal(dw_link_handle(b.here[i], TAG, ignore, NULL), DW_OK);
        assert_int_equal(pthread_create(&thread, NULL, wait_set_for_long, &b), 0);
        wait_until_claimed(b.here[1]);
        dw_link_close(b.pair[1].link[1]);
        b.pair[1].link[1] = NULL;
        assert_int_equal(suite_receive(b.here[1], TAG + 1, SUITE_PATIENCE_MS), DW_ERR_PEER);
        pthread_join(thread, &result);
        assert_int_equal((intptr_t)result, DW_OK);
        take_down(&b);
    }
}

/* ---- Other threads --------------------------------------------------------------------------- */

static void note(void *context, const void *data, size_t len)
{
    atomic_fetch_add((atomic_int *)context, 1);
}

TEST(wait_set_leaves_other_tags_to_their_handlers)
{
    static board b;
    atomic_int noted = 0;
    pthread_t thread;
    void *result;
    enum { ROUNDS = 100 };
    set_up(&b, &backends[1]);
    for (int i = 0; i < LINKS; i++)
        assert_int_equal(dw_link_handle(b.here[i], TAG, ignore, NULL), DW_OK);
    assert_int_equal(dw_link_handle(b.here[0], TAG + 2, note, &noted), DW_OK);
    assert_int_equal(pthread_create(&thread, NULL, wait_set_for_long, &b), 0);
    for (int n = 0; n < ROUNDS; n++) {
        suite_send(b.pair[0].link[1], TAG + 2, (uint64_t)n, 30);
        suite_send(b.pair[0].link[1], TAG + 1, (uint64_t)n, 30);
        suite_expect(b.here[0], TAG + 1, (uint64_t)n, 30);
        suite_send(b.here[0], TAG, (uint64_t)n, 30); /* sends that others do go on, too */
        suite_expect(b.pair[0].link[1], TAG, (uint64_t)n, 30);
    }
    for (int ms = 0; atomic_load(&noted) < ROUNDS; ms++) {
        assert_true(ms < SUITE_PATIENCE_MS);
        suite_sleep_ms(1);
    }
    eventfd_write(b.wake_fd, 1);
    pthread_join(thread, &result);
    assert_int_equal((intptr_t)result, DW_OK);
    take_down(&b);
}

/* A handler that takes its time, and sees whether it was removed meanwhile. */
typedef struct slow_handler {
    board *of;
    atomic_int begun, removed, removed_too_early, by_caller, ended;
} slow_handler;

static void take_slowly(void *context, const void *data, size_t len)
{
    slow_handler *slow = context;
    atomic_store(&slow->by_caller, pthread_equal(pthread_self(), slow->of->caller) != 0);
    atomic_store(&slow->begun, 1);
    suite_sleep_ms(30);
    atomic_store(&slow->removed_too_early, atomic_load(&slow->removed));
    atomic_store(&slow->ended, 1);
    eventfd_write(slow->of->wake_fd, 1);
}

static void *remove_handler(void *context)
{
    slow_handler *slow = context;
    while (!atomic_load(&slow->begun)) suite_sleep_ms(1);
    dw_link_handle(slow->of->here[0], TAG, NULL, NULL);
    atomic_store(&slow->removed, 1);
    return NULL;
}

TEST(handler_is_not_removed_while_a_caller_runs_it)
{
    static board b;
    set_up(&b, &backends[0]);
    for (int tries = 0;; tries++) {
        slow_handler slow = {.of = &b};
        pthread_t thread;
        eventfd_t rings;
        assert_true(tries < MOST_TRIES);
        assert_int_equal(dw_link_handle(b.here[0], TAG, take_slowly, &slow), DW_OK);
        assert_int_equal(pthread_create(&thread, NULL, remove_handler, &slow), 0);
        suite_sleep_ms(5); /* the link's own thread is probably asleep then */
        suite_send(b.pair[0].link[1], TAG, 0, 10);
        while (!atomic_load(&slow.ended)) assert_int_equal(wait_any(&b, PATIENCE_NS), DW_OK);
        pthread_join(thread, NULL);
        eventfd_read(b.wake_fd, &rings);
        assert_int_equal(atomic_load(&slow.removed_too_early), 0);
        if (atomic_load(&slow.by_caller)) break;
    }
    take_down(&b);
}

RUN_TESTS(NULL, NULL)
