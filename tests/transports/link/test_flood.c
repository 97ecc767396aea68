/* SPDX-License-Identifier: Apache-2.0
 * test_flood.c - a peer keeps sending messages that nobody receives: the memory of the receiver
 * stays bounded, even while a thread waits for another tag. */
#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "transports/suite/transport_suite.h"

#include "link/link.h"
#include "transports/suite/counted.h"

#if defined(__SANITIZE_ADDRESS__)
#define COUNTS_MEMORY 0 /* most of the memory is the sanitizer's own */
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define COUNTS_MEMORY 0
#endif
#endif
#ifndef COUNTS_MEMORY
#define COUNTS_MEMORY 1
#endif

enum { HONEST = 1, FLOOD = 1000, MEBIBYTE = 1 << 20 };

/* ---- The peer, a process of its own ---------------------------------------------------------- */

typedef struct flood {
    size_t len;
    int has_many_tags;
} flood;

/* Of so many messages, one is honest: it has a tag of its own, for which the receiver waits. */
enum { BETWEEN = 1000 };

static void send_flood(const char *uri, const flood *what)
{
    const dw_link_options options = {.struct_size = sizeof options,
                                     .max_queued_bytes = MEBIBYTE,
                                     .open_timeout_ms = SUITE_PATIENCE_MS};
    dw_link *link;
    unsigned char *data = calloc(1, what->len + 1);
    dw_status status = dw_link_open(&link, uri, &options, NULL);
    for (uint64_t n = 0; status == DW_OK || status == DW_PENDING;) {
        bool is_honest = n % BETWEEN == 0;
        uint32_t tag = is_honest ? HONEST : FLOOD + (what->has_many_tags ? (uint32_t)n : 0);
        unsigned char number[8];
        dw_put64(number, n / BETWEEN);
        status = is_honest ? dw_link_send(link, tag, number, sizeof number)
                           : dw_link_send(link, tag, data, what->len);
        if (status == DW_OK) n++;
        if (status == DW_PENDING) status = dw_link_wait_room(link, what->len + 8, 1000);
    }
    dw_link_close(link);
    free(data);
}

static void tell_parent(void *context, const char *uri)
{
    ssize_t written = write(*(int *)context, uri, strlen(uri));
    assert_true(written > 0);
}

/* ---- The receiver ---------------------------------------------------------------------------- */

static uint64_t resident_bytes(void)
{
    unsigned long long all = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    int read = fscanf(file, "%llu %llu", &all, &resident);
    fclose(file);
    assert_int_equal(read, 2);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

typedef struct memory_watch {
    dw_link *link;
    uint64_t before, most;
    atomic_int is_over;
    pthread_t thread;
} memory_watch;

enum { MEMORY_MOST = 128 * MEBIBYTE };

/* Ends the flood if the receiver takes so much memory that the machine could suffer. */
static void *watch_memory(void *context)
{
    memory_watch *watch = context;
    while (!atomic_load(&watch->is_over)) {
        uint64_t now = resident_bytes();
        if (now > watch->before && now - watch->before > watch->most)
            watch->most = now - watch->before;
        if (COUNTS_MEMORY && watch->most > 2 * (uint64_t)MEMORY_MOST) dw_link_cancel(watch->link);
        suite_sleep_ms(5);
    }
    return NULL;
}

/* Receives honest messages until the link fails, and returns their number. */
static uint64_t take_honest(dw_link *link, dw_status *status)
{
    uint64_t n = 0;
    void *data;
    size_t len;
    while ((*status = dw_link_recv(link, HONEST, -1, &data, &len)) == DW_OK) {
        assert_int_equal(len, 8);
        assert_int_equal(dw_get64(data), n);
        dw_link_release(link, data);
        n++;
    }
    return n;
}

static void withstand(const flood *what, uint64_t least_messages)
{
    int at[2];
    assert_int_equal(pipe(at), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char uri[200] = "";
        close(at[1]);
        if (read(at[0], uri, sizeof uri - 1) > 0) send_flood(uri, what);
        _exit(0);
    }
    close(at[0]);
    /* A receive may wait for half of peer_timeout_ms while others fill the memory. */
    const dw_link_options options = {.struct_size = sizeof options,
                                     .role = DW_LINK_LISTEN,
                                     .max_queued_bytes = 64 * MEBIBYTE,
                                     .peer_timeout_ms = 4000,
                                     .close_timeout_ms = 100,
                                     .on_listening = tell_parent,
                                     .listening_context = &at[1]};
    memory_watch watch = {.link = NULL};
    malloc_trim(0);
    watch.before = resident_bytes();
    assert_int_equal(dw_link_open(&watch.link, "tcp://127.0.0.1:0", &options, NULL), DW_OK);
    pthread_create(&watch.thread, NULL, watch_memory, &watch);
    dw_status status;
    uint64_t answered = take_honest(watch.link, &status);
    atomic_store(&watch.is_over, 1);
    pthread_join(watch.thread, NULL);
    uint64_t came = counted(watch.link).messages_received;
    print_message("%llu messages, %llu of them honest, %llu MiB: %s\n", (unsigned long long)came,
                  (unsigned long long)answered, (unsigned long long)(watch.most / MEBIBYTE),
                  dw_link_why(watch.link));
    assert_int_equal(status, DW_ERR_LIMIT);
    assert_non_null(strstr(dw_link_why(watch.link), "raise max_queued_bytes (67108864)"));
    if (COUNTS_MEMORY) assert_true(watch.most <= MEMORY_MOST);
    assert_true(came >= least_messages);
    assert_int_equal(answered, (came + BETWEEN - 1) / BETWEEN);
    void *data;
    size_t len = 1; /* messages that arrived before the failure can still be received */
    assert_int_equal(dw_link_recv(watch.link, FLOOD + 1 * what->has_many_tags, 0, &data, &len),
                     DW_OK);
    assert_int_equal(len, what->len);
    dw_link_close(watch.link);
    close(at[1]);
    int ended;
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_int_equal(ended, 0);
}

TEST(flood_of_empty_messages_with_new_tags_is_bounded)
{
    withstand(&(flood){.len = 0, .has_many_tags = 1}, 200000);
}

TEST(flood_of_unreceived_messages_is_bounded)
{
    withstand(&(flood){.len = 1024}, 60000);
}

/* ---- Another thread receives what fills the memory ------------------------------------------- */

typedef struct waiter {
    dw_link *link;
    dw_status status;
    size_t len;
    pthread_t thread;
} waiter;

static void *wait_for_honest(void *context)
{
    waiter *me = context;
    void *data;
    me->status = dw_link_recv(me->link, HONEST, SUITE_PATIENCE_MS, &data, &me->len);
    return NULL;
}

static void *send_much(void *context)
{
    for (uint64_t n = 0; n < 64; n++) suite_send(context, FLOOD, n, MEBIBYTE);
    suite_send(context, HONEST, 0, 5);
    return NULL;
}

TEST(waiting_receive_continues_when_others_make_room)
{
    const suite_backend tcp = {.name = "tcp", .uri = "tcp://127.0.0.1:0"};
    suite_pair pair;
    suite_prepare(&pair, &tcp);
    pair.options[0].max_queued_bytes = pair.options[1].max_queued_bytes = MEBIBYTE;
    suite_open(&pair);
    dw_link *link = pair.link[1];
    waiter me = {.link = link};
    pthread_t sender;
    pthread_create(&sender, NULL, send_much, pair.link[0]);
    pthread_create(&me.thread, NULL, wait_for_honest, &me);
    bool is_full = false;
    for (int i = 0; i < SUITE_PATIENCE_MS / 5 && !is_full; i++) {
        pthread_mutex_lock(&link->lock);
        is_full = link->receiver.is_paused && link->inboxes.waiters > 0;
        uint64_t bytes = link->inboxes.bytes;
        pthread_mutex_unlock(&link->lock);
        assert_true(bytes <= 35 * MEBIBYTE);
        suite_sleep_ms(5);
    }
    assert_true(is_full);
    for (uint64_t n = 0; n < 64; n++) suite_expect(link, FLOOD, n, MEBIBYTE);
    pthread_join(me.thread, NULL);
    pthread_join(sender, NULL);
    assert_int_equal(me.status, DW_OK);
    assert_int_equal(me.len, 5);
    assert_int_equal(link->inboxes.bytes, 0);
    suite_close(&pair);
}

/* ---- The table of tags ----------------------------------------------------------------------- */

static unsigned longest_chain(const dw_inboxes *inboxes)
{
    unsigned longest = 0;
    for (size_t i = 0; i < (size_t)1 << inboxes->bits; i++) {
        unsigned n = 0;
        const dw_inbox *inbox = inboxes->many ? inboxes->many[i] : inboxes->few[i];
        for (; inbox; inbox = inbox->next) n++;
        if (n > longest) longest = n;
    }
    return longest;
}

TEST(tag_table_grows_and_shrinks)
{
    enum { TAGS = 20000 };
    /* Consecutive tags, tags at equal distances, and tags that would all fall into neighbouring
     * places if the hash were a multiplication without a secret. */
    const uint32_t factors[] = {1, 256, 65536 + 1, 340573321u /* 1 / 2654435769 */};
    for (size_t f = 0; f < sizeof factors / sizeof *factors; f++) {
        dw_allocator allocator = dw_mem_allocator(NULL);
        dw_inboxes inboxes = {.allocator = &allocator};
        dw_buffer_pool pool = {.allocator = &allocator, .keep_bytes = 0};
        dw_inbox_begin(&inboxes);
        for (uint32_t i = 0; i < TAGS; i++) {
            dw_inbox *inbox = dw_inbox_get(&inboxes, i * factors[f]);
            dw_inbox_put(&inboxes, inbox, dw_buffer_take(&pool, 0));
            assert_ptr_equal(dw_inbox_get(&inboxes, i * factors[f]), inbox);
        }
        assert_int_equal(inboxes.n, TAGS);
        assert_true(longest_chain(&inboxes) < 64);
        assert_true(inboxes.bytes >= TAGS * (uint64_t)(sizeof(dw_inbox) + sizeof(dw_buffer)));
        assert_null(dw_inbox_find(&inboxes, TAGS * factors[f]));
        for (uint32_t i = 0; i < TAGS; i++) {
            dw_inbox *inbox = dw_inbox_find(&inboxes, i * factors[f]);
            assert_non_null(inbox);
            dw_buffer_drop(&pool, dw_inbox_take(&inboxes, inbox));
            dw_inbox_tidy(&inboxes, inbox);
        }
        assert_int_equal(inboxes.n, 0);
        assert_int_equal(inboxes.bytes, 0);
        assert_int_equal(inboxes.bits, DW_INBOX_LEAST_BITS);
        unsigned unused = 0;
        for (const dw_inbox *inbox = inboxes.unused; inbox; inbox = inbox->next) unused++;
        assert_int_equal(unused, DW_INBOX_UNUSED_MOST);
        dw_inbox_empty(&inboxes);
    }
}

RUN_TESTS(NULL, NULL)
