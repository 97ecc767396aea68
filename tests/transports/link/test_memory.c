/* SPDX-License-Identifier: Apache-2.0
 * test_memory.c - a link takes all memory from its allocator and gives it back, whichever
 * allocation fails. */
#include "transports/suite/transport_suite.h"

enum { TAG = 3 };

typedef struct visitor {
    suite_pair *pair;
    int end;
    dw_status status;
    dw_config codec;
    dw_host host;
} visitor;

/* What each end does: a message each way, a channel, a tensor. */
static void *visit(void *context)
{
    visitor *me = context;
    dw_link *link = me->pair->link[me->end];
    me->status = dw_link_send(link, 1, "hello", 5);
    void *data;
    size_t len;
    if (me->status == DW_OK) me->status = dw_link_recv(link, 1, 5000, &data, &len);
    if (me->status != DW_OK) return NULL;
    dw_link_release(link, data);
    dw_channel_config config = {.struct_size = sizeof config, .id = 9, .open_timeout_ms = 200};
    config.host = &me->host;
    if (me->end == 0)
        config.send = &me->codec;
    else
        config.recv = &me->codec;
    dw_channel *channel;
    me->status = dw_channel_open(&channel, link, &config, NULL);
    if (me->status != DW_OK) return NULL;
    float values[128] = {1, 2, 3};
    dw_key key = {.sample = 5};
    dw_tensor tensor = dw_tensor_3d(values, DW_F32, 1, 2, 64);
    me->status = me->end == 0 ? dw_channel_send(channel, &key, &tensor, NULL)
                              : dw_channel_recv(channel, 5000, &key, &tensor, NULL);
    dw_channel_close(channel);
    return NULL;
}

/* An allocator that counts, checks the sizes of what is released, and fails once. */
typedef struct ledger {
    pthread_mutex_t lock;
    long calls, fails_at, given;
    size_t bytes; /* allocated now */
    int has_failed, has_wrong_size;
} ledger;

enum { HEAD_BYTES = 64 };

static void *ledger_allocate(void *context, size_t bytes, size_t alignment)
{
    ledger *c = context;
    pthread_mutex_lock(&c->lock);
    int fails = c->calls++ == c->fails_at;
    c->has_failed |= fails;
    c->given += !fails;
    c->has_wrong_size |= alignment != HEAD_BYTES;
    if (!fails) c->bytes += bytes;
    pthread_mutex_unlock(&c->lock);
    if (fails) return NULL;
    size_t whole = (bytes + 2 * HEAD_BYTES - 1) / HEAD_BYTES * HEAD_BYTES;
    unsigned char *memory = aligned_alloc(HEAD_BYTES, whole);
    memcpy(memory, &bytes, sizeof bytes);
    memset(memory + HEAD_BYTES, 0xa5, bytes); /* memory need not be zero */
    return memory + HEAD_BYTES;
}

static void ledger_release(void *context, void *memory, size_t bytes)
{
    ledger *c = context;
    unsigned char *at = (unsigned char *)memory - HEAD_BYTES;
    size_t had;
    memcpy(&had, at, sizeof had);
    pthread_mutex_lock(&c->lock);
    c->has_wrong_size |= had != bytes;
    c->bytes -= had;
    pthread_mutex_unlock(&c->lock);
    free(at);
}

static ledger counts;
static const dw_allocator counting = {ledger_allocate, ledger_release, &counts};

static void start_counting(long fails_at)
{
    counts = (ledger){.lock = PTHREAD_MUTEX_INITIALIZER, .fails_at = fails_at};
}

/* Reads under the lock, because threads of the links may still allocate. */
static int has_failed(void)
{
    pthread_mutex_lock(&counts.lock);
    int failed = counts.has_failed;
    pthread_mutex_unlock(&counts.lock);
    return failed;
}

static void fail_next(void)
{
    pthread_mutex_lock(&counts.lock);
    counts.fails_at = counts.calls;
    pthread_mutex_unlock(&counts.lock);
}

static void nothing_is_left(void)
{
    assert_int_equal(counts.bytes, 0);
    assert_false(counts.has_wrong_size);
}

/* Each allocation in turn fails: an error is returned where it matters, and no memory is lost. */
TEST(any_allocation_may_fail)
{
    static const char *const uris[] = {"loop://memory-%d", "tcp://127.0.0.1:0",
                                       "shaped:rate=1gbit/loop://memory-%d"};
    for (size_t u = 0; u < sizeof uris / sizeof *uris; u++) {
        const suite_backend backend = {.name = "memory", .uri = uris[u]};
        int failures = 0, going = 1;
        /* One end waits in vain if the other fails, so the timeouts are short. On a busy machine
         * they can pass although nothing has failed: such a round is repeated with long ones. */
        enum { SHORT_MS = 200, LONG_MS = 20000 };
        uint32_t timeout_ms = SHORT_MS;
        for (long n = 0; going; n += timeout_ms == SHORT_MS) {
            suite_pair pair;
            suite_prepare(&pair, &backend);
            long before = suite_allocations();
            start_counting(n);
            visitor visitors[2] = {{.pair = &pair, .end = 0}, {.pair = &pair, .end = 1}};
            for (int i = 0; i < 2; i++) {
                pair.options[i].open_timeout_ms = timeout_ms;
                pair.options[i].close_timeout_ms = timeout_ms;
                pair.options[i].allocator = counting;
                dw_config_parse(&visitors[i].codec, "delta:bits=4", NULL);
                visitors[i].host = (dw_host){.struct_size = sizeof(dw_host), .allocator = counting};
            }
            suite_try_open(&pair);
            for (int i = 0; i < 2; i++) visitors[i].status = pair.status[i];
            if (pair.link[0] && pair.link[1]) {
                pthread_t other;
                pthread_create(&other, NULL, visit, &visitors[0]);
                visit(&visitors[1]);
                pthread_join(other, NULL);
            }
            int failed = has_failed(); /* otherwise there are only n allocations, or time is up */
            failures += failed;
            going = failed || timeout_ms == SHORT_MS;
            timeout_ms = failed ? SHORT_MS : LONG_MS;
            if (failed && pair.status[0] != DW_OK && pair.status[1] != DW_OK)
                assert_true(pair.status[0] == DW_ERR_NO_MEMORY ||
                            pair.status[1] == DW_ERR_NO_MEMORY);
            for (int i = 0; i < 2; i++) {
                if (!going) assert_int_equal(visitors[i].status, DW_OK);
                if (pair.status[i] != DW_OK) assert_null(pair.link[i]);
                if (pair.status[i] != DW_OK) assert_string_not_equal(pair.why[i].text, "");
            }
            suite_close(&pair);
            nothing_is_left();
            assert_int_equal(suite_allocations() - before, counts.given); /* none by other means */
        }
        print_message("%s: %d allocations failed in turn\n", uris[u], failures);
        assert_true(failures > 10);
    }
}

/* Waits until that many messages have arrived; nobody has to have received them. */
static void wait_for_arrivals(dw_link *link, uint64_t n)
{
    dw_link_counters now = {.struct_size = sizeof now};
    while (now.messages_received < n) {
        assert_int_equal(suite_receive(link, TAG + 2, 10), DW_PENDING);
        dw_link_count(link, &now);
    }
}

/* A send without memory changes nothing, and the next send works. A receiver without memory
 * delivers the messages that have arrived, and then returns the error. */
TEST(a_link_continues_as_far_as_memory_allows)
{
    static const char *const uris[] = {"loop://goes-on-%d", "tcp://127.0.0.1:0"};
    enum { SHORT = 100, LONG = 300000 };
    for (size_t u = 0; u < sizeof uris / sizeof *uris; u++) {
        const suite_backend backend = {.name = "memory", .uri = uris[u]};
        static char data[LONG];
        suite_pair pair;
        suite_prepare(&pair, &backend);
        start_counting(-1);
        pair.options[0].allocator = counting;
        suite_open(&pair);
        suite_pass(pair.link, 0, TAG, 1, SHORT);
        fail_next();
        assert_int_equal(dw_link_send(pair.link[0], TAG, data, LONG), DW_ERR_NO_MEMORY);
        assert_string_equal(dw_link_why(pair.link[0]), "");
        suite_pass(pair.link, 0, TAG, 2, LONG);
        /* The other direction. A receive that sleeps needs memory for its tag, too, unless the link
         * has kept what an earlier tag used. So both tags have messages before: the allocation that
         * fails is the one for the long message. */
        for (uint32_t i = 0; i < 2; i++) suite_send(pair.link[1], TAG + i, 1, SHORT);
        wait_for_arrivals(pair.link[0], 2);
        for (uint32_t i = 0; i < 2; i++) suite_expect(pair.link[0], TAG + i, 1, SHORT);
        suite_send(pair.link[1], TAG, 3, SHORT);
        wait_for_arrivals(pair.link[0], 3);
        fail_next();
        suite_send(pair.link[1], TAG, 4, 4 * LONG); /* longer than any buffer that exists */
        while (suite_receive(pair.link[0], TAG + 1, 10) == DW_PENDING) {
        }
        assert_string_not_equal(dw_link_why(pair.link[0]), "");
        suite_expect(pair.link[0], TAG, 3, SHORT);
        assert_int_equal(suite_receive(pair.link[0], TAG, 0), DW_ERR_NO_MEMORY);
        suite_close(&pair);
        nothing_is_left();
    }
}

TEST(an_allocator_needs_both_functions)
{
    dw_why why;
    dw_link_options options = {.struct_size = sizeof options, .open_timeout_ms = 20};
    options.allocator.allocate = ledger_allocate;
    dw_link *link;
    assert_int_equal(dw_link_open(&link, "loop://x", &options, &why), DW_ERR_ARGUMENT);
    assert_non_null(strstr(why.text, "one of its two functions"));
    options.allocator = (dw_allocator){.release = ledger_release};
    assert_int_equal(dw_link_open(&link, "loop://x", &options, &why), DW_ERR_ARGUMENT);
}

RUN_TESTS(NULL, NULL)
