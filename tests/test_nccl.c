/* SPDX-License-Identifier: Apache-2.0
 * test_nccl.c - links over NCCL without NCCL or a GPU: over a fake that compares sizes, is late, fails, and stands still. */
#include "transport_suite.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "deltawire/nccl.h"
#include "link.h"
#include "nccl/fake_nccl.h"
#include "nccl_end.h"

enum { TAG = 5 };

static const char *fake_path;

static dw_status try_create(dw_nccl **nccl, void *communicator, dw_why *why)
{
    const dw_nccl_options options = {.struct_size = sizeof options, .library = fake_path, .driver = fake_path,
                                     .communicator = communicator};
    return dw_nccl_create(nccl, &options, why);
}

static dw_nccl *create(void *communicator)
{
    dw_nccl *nccl;
    dw_why why;
    if (try_create(&nccl, communicator, &why) != DW_OK) fail_msg("%s", why.text);
    return nccl;
}

static void reset(void)
{
    fake_nccl *fake = fake_nccl_get();
    fake->version = 22809;
    fake->fail_at = -1;
    fake->late = fake->stands_still = fake->never_joins = fake->has_no_gpu = 0;
    fake->violations = fake->aborts = fake->sends = fake->receives = fake->calls = 0;
    fake->failed = NULL;
    fake->bytes_sent = 0;
}

/* After everything was closed. */
static void nothing_is_left(void)
{
    const fake_nccl *fake = fake_nccl_get();
    if (fake->violations) fail_msg("%ld violations, the last: %s", fake->violations, fake->violation);
    assert_int_equal(fake->comms, 0);
    assert_int_equal(fake->streams, 0);
    assert_int_equal(fake->events, 0);
    assert_int_equal(fake->blocks, 0);
    assert_int_equal(fake->pinned, 0);
}

static dw_nccl *common; /* of both ends, where a test does not say otherwise */
static const dw_transport *transports[2];

static void prepare(suite_pair *pair, const char *uri)
{
    static suite_backend backend;
    reset();
    backend = (suite_backend){.name = "nccl", .uri = uri, .transports = transports, .one_process = 1, .transport_context = common};
    suite_prepare(pair, &backend);
}

/* ---- Bytes -------------------------------------------------------------------------------------- */

static void every_length_arrives_by_sends_and_receives_of_one_size(void **state)
{
    (void)state;
    static const size_t lengths[] = {0, 1, 16375, 16376, 16377, 16384, 16385, 100000, (1 << 20) - 9, (1 << 20) - 8, (1 << 20) - 7, 1 << 20,
                                     (4 << 20) - 8, (5 << 20) + 3, 9999999};
    enum { LENGTHS = sizeof lengths / sizeof *lengths };
    for (int late = 0; late < 3; late++) {
        suite_pair pair;
        prepare(&pair, "nccl:loop://lengths-%d");
        fake_nccl_get()->late = late;
        suite_open(&pair);
        long chunks = 0;
        for (uint64_t n = 0; n < LENGTHS; n++) {
            suite_send(pair.link[n % 2], TAG, n, lengths[n]);
            suite_expect(pair.link[1 - n % 2], TAG, n, lengths[n]);
            /* The link puts 8 bytes in front. */
            if (lengths[n] + 8 > DW_NCCL_SHORT_BYTES) chunks += (long)((lengths[n] + 8 + DW_NCCL_CHUNK_BYTES - 1) / DW_NCCL_CHUNK_BYTES);
        }
        assert_int_equal(fake_nccl_get()->sends, chunks);
        assert_int_equal(fake_nccl_get()->receives, chunks);
        suite_close(&pair);
        nothing_is_left();
    }
}

typedef struct talker {
    dw_link *link;
    dw_status status;
} talker;

static void *talk(void *context)
{
    talker *me = context;
    unsigned char *data = malloc(3 << 20);
    for (uint64_t n = 0; n < 30 && me->status == DW_OK; n++) {
        const size_t len = n % 3 == 0 ? 2500000 + n : n % 3 == 1 ? 100 + n : 20000 + n;
        suite_fill(data, len, n);
        me->status = dw_link_send(me->link, TAG, data, len);
    }
    free(data);
    return NULL;
}

static void both_directions_run_at_once(void **state)
{
    (void)state;
    for (int late = 0; late < 4; late += 3) {
        suite_pair pair;
        prepare(&pair, "nccl:tcp://127.0.0.1:0");
        fake_nccl_get()->late = late;
        suite_open(&pair);
        talker talkers[2] = {{.link = pair.link[0]}, {.link = pair.link[1]}};
        pthread_t threads[2];
        for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, talk, &talkers[i]);
        for (uint64_t n = 0; n < 30; n++) {
            for (int i = 0; i < 2; i++) suite_expect(pair.link[i], TAG, n, n % 3 == 0 ? 2500000 + n : n % 3 == 1 ? 100 + n : 20000 + n);
        }
        for (int i = 0; i < 2; i++) {
            pthread_join(threads[i], NULL);
            assert_int_equal(talkers[i].status, DW_OK);
        }
        suite_close(&pair);
        nothing_is_left();
    }
}

/* A receive that waits on a GPU holds up the program's own work there. */
static void nothing_waits_on_the_gpu_while_a_link_is_idle(void **state)
{
    (void)state;
    suite_pair pair;
    prepare(&pair, "nccl:loop://idle-%d");
    suite_open(&pair);
    for (uint64_t n = 0; n < 3; n++) {
        assert_true(fake_nccl_is_idle());
        suite_send(pair.link[0], TAG, n, 3000000);
        suite_expect(pair.link[1], TAG, n, 3000000);
        assert_int_equal(dw_link_flush(pair.link[0], SUITE_PATIENCE_MS), DW_OK);
    }
    /* A message that nobody has room for is announced and no more. */
    assert_true(fake_nccl_is_idle());
    suite_close(&pair);
    nothing_is_left();
}

/* ---- Without a link: the GPU's own memory ------------------------------------------------------- */

typedef struct raw_end {
    nccl_end end;
    dw_status status;
    dw_why why;
    const char *address;
    dw_link_role role;
} raw_end;

static const dw_transport *find_loop(void *context, const char *uri, const char **address)
{
    (void)context;
    extern const dw_transport dw_transport_loop;
    *address = uri + strlen("loop://");
    return &dw_transport_loop;
}

static void ignore(void *context, const char *uri)
{
    (void)context;
    (void)uri;
}

static void *open_raw(void *context)
{
    static const volatile int never = 0;
    raw_end *raw = context;
    const dw_transport_open how = {.address = raw->address, .role = raw->role, .timeout_ms = SUITE_PATIENCE_MS, .cancelled = &never,
                                   .on_listening = ignore, .find = find_loop, .context = common, .why = &raw->why};
    raw->status = dw_nccl_transport()->open(&raw->end, &how);
    return NULL;
}

static void carry_raw(raw_end raw[2], const void *from, void *to, size_t len)
{
    const dw_transport *table = dw_nccl_transport();
    void *request[2] = {calloc(1, table->request_bytes), calloc(1, table->request_bytes)};
    dw_why why;
    size_t got = 0;
    assert_int_equal(table->send(&raw[0].end, request[0], from, len), DW_OK);
    assert_int_equal(table->recv(&raw[1].end, request[1], to, len), DW_OK);
    dw_status status[2] = {DW_PENDING, DW_PENDING};
    while (status[0] == DW_PENDING || status[1] == DW_PENDING) {
        for (int i = 0; i < 2; i++) {
            if (status[i] == DW_PENDING) status[i] = table->test(&raw[i].end, request[i], &got, &why);
            if (status[i] != DW_PENDING && status[i] != DW_OK) fail_msg("%s", why.text);
        }
    }
    assert_int_equal(got, len);
    free(request[0]);
    free(request[1]);
}

static void memory_of_the_gpu_is_sent_and_filled_without_staging(void **state)
{
    (void)state;
    reset();
    raw_end raw[2] = {{.address = "loop://raw", .role = DW_LINK_LISTEN}, {.address = "loop://raw", .role = DW_LINK_CONNECT}};
    pthread_t other;
    pthread_create(&other, NULL, open_raw, &raw[0]);
    open_raw(&raw[1]);
    pthread_join(other, NULL);
    for (int i = 0; i < 2; i++) {
        if (raw[i].status != DW_OK) fail_msg("%s", raw[i].why.text);
    }
    const size_t most = 3500001;
    dw_nccl_address on_device[2];
    int mode;
    assert_true(dw_nccl_device_enter(&common->device, &mode));
    for (int i = 0; i < 2; i++) assert_int_equal(common->device.driver.memory_allocate(&on_device[i], most), 0);
    dw_nccl_device_leave(&common->device, mode);
    unsigned char *host[2] = {malloc(most), malloc(most)};
    static const size_t lengths[] = {3500001, 20000, 100, 1};
    for (uint64_t n = 0; n < 16; n++) { /* from and to: host or device, each way */
        const size_t len = lengths[n / 4];
        void *from = n & 1 ? (void *)on_device[0] : host[0], *to = n & 2 ? (void *)on_device[1] : host[1];
        suite_fill(n & 1 ? fake_nccl_look(from) : from, len, n);
        carry_raw(raw, from, to, len);
        assert_true(suite_is(n & 2 ? fake_nccl_look(to) : to, len, n, len));
    }
    for (int i = 0; i < 2; i++) {
        common->device.driver.memory_free(on_device[i]);
        free(host[i]);
        assert_int_equal(dw_nccl_transport()->close(&raw[i].end), DW_OK);
    }
    nothing_is_left();
}

/* ---- Trouble ------------------------------------------------------------------------------------ */

static void a_transfer_that_stands_still_is_a_timeout_and_is_aborted(void **state)
{
    (void)state;
    suite_pair pair;
    prepare(&pair, "nccl:tcp://127.0.0.1:0");
    pair.options[0].peer_timeout_ms = pair.options[1].peer_timeout_ms = 200;
    suite_open(&pair);
    fake_nccl_get()->stands_still = 1;
    suite_send(pair.link[0], TAG, 0, 300000);
    void *data;
    size_t len;
    const dw_status status = dw_link_recv(pair.link[1], TAG, SUITE_PATIENCE_MS, &data, &len);
    assert_true(status == DW_ERR_TIMEOUT || status == DW_ERR_PEER); /* whichever end notices first */
    assert_true(fake_nccl_get()->sends == 1 && fake_nccl_get()->receives == 1);
    suite_close(&pair);
    assert_int_equal(fake_nccl_get()->aborts, 4);
    nothing_is_left();
}

static void communicators_that_never_join_are_a_timeout_at_both_ends(void **state)
{
    (void)state;
    suite_pair pair;
    prepare(&pair, "nccl:tcp://127.0.0.1:0");
    pair.options[0].open_timeout_ms = pair.options[1].open_timeout_ms = 300;
    fake_nccl_get()->never_joins = 1;
    suite_try_open(&pair);
    int timeouts = 0;
    for (int i = 0; i < 2; i++) {
        assert_true(pair.status[i] == DW_ERR_TIMEOUT || pair.status[i] == DW_ERR_PEER);
        timeouts += pair.status[i] == DW_ERR_TIMEOUT && strstr(pair.why[i].text, "within 300 ms NCCL") != NULL;
    }
    assert_true(timeouts >= 1);
    suite_close(&pair);
    nothing_is_left();
}

/* Wherever the driver or NCCL fails, both ends end, in an error or in bytes that are right, and give everything back. */
static void every_call_may_fail_once(void **state)
{
    (void)state;
    long calls = -1, failed = 0;
    for (long n = 0; calls < 0 || n < calls; n++) {
        suite_pair pair;
        prepare(&pair, n % 2 ? "nccl:loop://fail-%d" : "nccl:tcp://127.0.0.1:0");
        fake_nccl_get()->late = (int)(n % 3);
        fake_nccl_get()->fail_at = n;
        suite_try_open(&pair);
        if (pair.status[0] == DW_OK && pair.status[1] == DW_OK) {
            dw_status status = DW_OK;
            const dw_link *failed_at = NULL;
            for (uint64_t k = 0; k < 2 && status == DW_OK; k++) {
                unsigned char *data = malloc(1200000);
                void *got;
                size_t len;
                suite_fill(data, 1200000, k);
                status = dw_link_send(pair.link[k], TAG, data, 1200000);
                failed_at = pair.link[status == DW_OK ? 1 - k : k];
                if (status == DW_OK) status = dw_link_recv(pair.link[1 - k], TAG, SUITE_PATIENCE_MS, &got, &len);
                if (status == DW_OK) {
                    assert_true(suite_is(got, len, k, 1200000));
                    dw_link_release(pair.link[1 - k], got);
                }
                free(data);
            }
            if (status != DW_OK) assert_string_not_equal(dw_link_why((dw_link *)(uintptr_t)failed_at), "");
            assert_true(status != DW_PENDING && status != DW_ERR_TIMEOUT);
        }
        for (int i = 0; i < 2; i++) {
            if (pair.status[i] != DW_OK) assert_string_not_equal(pair.why[i].text, "");
            assert_int_not_equal(pair.status[i], DW_ERR_TIMEOUT);
        }
        suite_close(&pair);
        failed += fake_nccl_get()->failed != NULL;
        if (!fake_nccl_get()->failed) calls = n; /* all have failed in turn */
        nothing_is_left();
        if (n > 4000) break;
    }
    print_message("%ld calls failed in turn\n", failed);
    assert_true(failed > 60);
}

static void be_killed(int fd)
{
    char uri[256] = "";
    if (read(fd, uri, sizeof uri - 1) <= 0) _exit(2);
    const dw_link_options options = {.struct_size = sizeof options, .transports = transports, .transport_context = create(NULL)};
    dw_link *link;
    if (dw_link_open(&link, uri, &options, NULL) != DW_OK) _exit(3);
    for (;;) {
        static char data[200000];
        const dw_status status = dw_link_send(link, TAG, data, sizeof data);
        if (status == DW_PENDING) dw_link_flush(link, -1);
        else if (status != DW_OK) _exit(0);
    }
}

static void tell_child(void *context, const char *uri)
{
    if (write(*(const int *)context, uri, strlen(uri) + 1) < 0) abort();
}

/* Two processes, as it is with GPUs. Comes first: it forks while there is one thread. */
static void notices_at_once_that_the_peer_was_killed(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    reset();
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) be_killed(ends[0]);
    dw_nccl *own = create(NULL);
    const dw_link_options options = {.struct_size = sizeof options, .role = DW_LINK_LISTEN, .open_timeout_ms = 30000,
                                     .transports = transports, .transport_context = own, .on_listening = tell_child,
                                     .listening_context = &ends[1]};
    dw_link *link;
    dw_why why;
    if (dw_link_open(&link, "nccl:tcp://127.0.0.1:0", &options, &why) != DW_OK) fail_msg("%s", why.text);
    dw_status status = DW_OK;
    for (int messages = 0; status == DW_OK; messages++) {
        void *data;
        size_t len;
        status = dw_link_recv(link, TAG, SUITE_PATIENCE_MS / 2, &data, &len);
        if (status == DW_OK) dw_link_release(link, data);
        if (messages == 20) kill(child, SIGKILL);
    }
    assert_int_equal(status, DW_ERR_PEER); /* not a timeout */
    assert_string_not_equal(dw_link_why(link), "");
    dw_link_close(link);
    dw_nccl_destroy(own);
    waitpid(child, NULL, 0);
    close(ends[0]);
    close(ends[1]);
    nothing_is_left();
}

/* ---- Agreement ---------------------------------------------------------------------------------- */

static void ends_that_do_not_fit_together_say_why(void **state)
{
    (void)state;
    for (int which = 0; which < 2; which++) {
        suite_pair pair;
        prepare(&pair, "nccl:tcp://127.0.0.1:0");
        dw_nccl *other = NULL;
        dw_nccl_comm comm = NULL;
        dw_status expected = DW_ERR_VERSION;
        if (which == 0) {
            fake_nccl_get()->version = 21805;
            other = create(NULL);
        } else {
            int mode;
            dw_nccl_config config = DW_NCCL_CONFIG;
            dw_nccl_id id;
            assert_true(dw_nccl_device_enter(&common->device, &mode));
            assert_int_equal(common->library.get_id(&id), 0);
            assert_int_equal(common->library.init(&comm, 2, id, 1, &config), DW_NCCL_IN_PROGRESS);
            dw_nccl_device_leave(&common->device, mode);
            other = create(comm);
            expected = DW_ERR_MISMATCH;
        }
        pair.options[1].transport_context = other;
        suite_try_open(&pair);
        for (int i = 0; i < 2; i++) {
            if (pair.status[i] != expected && pair.status[i] != DW_ERR_PEER) fail_msg("%d: %s", pair.status[i], pair.why[i].text);
        }
        assert_true(pair.status[0] == expected || pair.status[1] == expected);
        suite_close(&pair);
        if (comm) common->library.abort(comm);
        dw_nccl_destroy(other);
        nothing_is_left();
    }
}

static void *open_plain(void *context)
{
    suite_pair *pair = context;
    pthread_mutex_lock(&pair->lock);
    while (!pair->is_listening) pthread_cond_wait(&pair->listening, &pair->lock);
    pthread_mutex_unlock(&pair->lock);
    dw_link *link = NULL;
    const dw_link_options options = {.struct_size = sizeof options, .open_timeout_ms = 5000};
    pair->status[1] = dw_link_open(&link, pair->uri + strlen("nccl:"), &options, &pair->why[1]);
    return NULL;
}

static void a_peer_without_nccl_is_told_apart(void **state)
{
    (void)state;
    suite_pair pair;
    prepare(&pair, "nccl:tcp://127.0.0.1:0");
    pthread_t other;
    pthread_create(&other, NULL, open_plain, &pair);
    pair.status[0] = dw_link_open(&pair.link[0], pair.backend->uri, &pair.options[0], &pair.why[0]);
    pthread_join(other, NULL);
    assert_int_equal(pair.status[0], DW_ERR_PROTOCOL);
    assert_non_null(strstr(pair.why[0].text, "nccl:"));
    assert_true(pair.status[1] == DW_ERR_PROTOCOL || pair.status[1] == DW_ERR_PEER);
    nothing_is_left();
}

static void a_communicator_of_the_program_is_split_and_left_alone(void **state)
{
    (void)state;
    reset();
    dw_nccl_comm comm[2] = {NULL, NULL};
    dw_nccl *own[2];
    dw_nccl_config config = DW_NCCL_CONFIG;
    dw_nccl_id id;
    int mode, error;
    assert_true(dw_nccl_device_enter(&common->device, &mode));
    assert_int_equal(common->library.get_id(&id), 0);
    /* The listener is rank 1 here: ranks are the communicator's. */
    for (int i = 0; i < 2; i++) assert_int_equal(common->library.init(&comm[i], 2, id, 1 - i, &config), DW_NCCL_IN_PROGRESS);
    for (int i = 0; i < 4; i++) assert_int_equal(common->library.async_error(comm[i % 2], &error), 0);
    dw_nccl_device_leave(&common->device, mode);
    for (int i = 0; i < 2; i++) own[i] = create(comm[i]);
    for (int round = 0; round < 2; round++) {
        suite_pair pair;
        prepare(&pair, "nccl:loop://given-%d");
        for (int i = 0; i < 2; i++) pair.options[i].transport_context = own[i];
        suite_open(&pair);
        assert_int_equal(fake_nccl_get()->comms, 6);
        suite_send(pair.link[0], TAG, 0, 3000000);
        suite_send(pair.link[1], TAG, 1, 3000000);
        suite_expect(pair.link[1], TAG, 0, 3000000);
        suite_expect(pair.link[0], TAG, 1, 3000000);
        suite_close(&pair);
        assert_int_equal(fake_nccl_get()->comms, 2);
    }
    for (int i = 0; i < 2; i++) {
        common->library.abort(comm[i]);
        dw_nccl_destroy(own[i]);
    }
    nothing_is_left();
}

static void says_what_is_missing(void **state)
{
    (void)state;
    reset();
    dw_nccl *nccl = (dw_nccl *)(uintptr_t)1;
    dw_why why;
    dw_nccl_options options = {.struct_size = sizeof options, .library = "/nowhere/libnccl.so.2", .driver = fake_path};
    assert_int_equal(dw_nccl_create(&nccl, &options, &why), DW_ERR_UNSUPPORTED);
    assert_null(nccl);
    assert_non_null(strstr(why.text, "/nowhere/libnccl.so.2"));
    options = (dw_nccl_options){.struct_size = sizeof options, .library = fake_path, .driver = "/nowhere/libcuda.so.1"};
    assert_int_equal(dw_nccl_create(&nccl, &options, &why), DW_ERR_UNSUPPORTED);
    assert_non_null(strstr(why.text, "/nowhere/libcuda.so.1"));
    options.driver = fake_path;
    options.device = 3;
    assert_int_equal(dw_nccl_create(&nccl, &options, &why), DW_ERR_UNSUPPORTED);
    assert_non_null(strstr(why.text, "GPU 3"));
    options.device = -1;
    assert_int_equal(dw_nccl_create(&nccl, &options, &why), DW_ERR_ARGUMENT);
    options = (dw_nccl_options){.struct_size = sizeof options + 8};
    assert_int_equal(dw_nccl_create(&nccl, &options, &why), DW_ERR_ARGUMENT);
    assert_int_equal(dw_nccl_create(NULL, NULL, &why), DW_ERR_ARGUMENT);
    fake_nccl_get()->version = 21703;
    assert_int_equal(try_create(&nccl, NULL, &why), DW_ERR_UNSUPPORTED);
    assert_non_null(strstr(why.text, "2.17"));
    reset();
    fake_nccl_get()->has_no_gpu = 1;
    assert_int_equal(try_create(&nccl, NULL, &why), DW_ERR_UNSUPPORTED);
    assert_int_equal(fake_nccl_get()->contexts, 1); /* the common one's */
    reset();
    dw_nccl_destroy(NULL);
    assert_int_equal(dw_nccl_version(NULL), 0);
    assert_int_equal(dw_nccl_version(common), 22809);
    const struct {
        const char *uri;
        void *context;
        dw_status status;
        const char *word;
    } cases[] = {{"nccl://127.0.0.1:7", common, DW_ERR_UNSUPPORTED, "nccl:tcp://"},
                 {"nccl:tcp://127.0.0.1:99999", common, DW_ERR_ADDRESS, "99999"},
                 {"nccl:tcp://127.0.0.1:7", NULL, DW_ERR_ARGUMENT, "dw_nccl_create"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dw_link *link;
        const dw_link_options how = {.struct_size = sizeof how, .transports = transports, .transport_context = cases[i].context};
        assert_int_equal(dw_link_open(&link, cases[i].uri, &how, &why), cases[i].status);
        if (!strstr(why.text, cases[i].word)) fail_msg("%s: %s", cases[i].uri, why.text);
    }
    nothing_is_left();
}

int main(int argc, char **argv)
{
    if (argc != 2) return fprintf(stderr, "usage: test_nccl FAKE-LIBRARY\n");
    fake_path = argv[1];
    transports[0] = dw_nccl_transport();
    const struct CMUnitTest first[] = {cmocka_unit_test(notices_at_once_that_the_peer_was_killed)};
    int failed = cmocka_run_group_tests_name("nccl, two processes", first, NULL, NULL);
    common = create(NULL);
    const suite_backend over_tcp = {.name = "nccl over tcp", .uri = "nccl:tcp://127.0.0.1:0", .transports = transports, .one_process = 1,
                                    .transport_context = common};
    const suite_backend over_loop = {.name = "nccl over loop", .uri = "nccl:loop://suite-nccl-%d", .transports = transports,
                                     .one_process = 1, .transport_context = common};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_length_arrives_by_sends_and_receives_of_one_size),
        cmocka_unit_test(both_directions_run_at_once),
        cmocka_unit_test(nothing_waits_on_the_gpu_while_a_link_is_idle),
        cmocka_unit_test(memory_of_the_gpu_is_sent_and_filled_without_staging),
        cmocka_unit_test(a_transfer_that_stands_still_is_a_timeout_and_is_aborted),
        cmocka_unit_test(communicators_that_never_join_are_a_timeout_at_both_ends),
        cmocka_unit_test(every_call_may_fail_once),
        cmocka_unit_test(ends_that_do_not_fit_together_say_why),
        cmocka_unit_test(a_peer_without_nccl_is_told_apart),
        cmocka_unit_test(a_communicator_of_the_program_is_split_and_left_alone),
        cmocka_unit_test(says_what_is_missing),
    };
    failed += cmocka_run_group_tests_name("nccl", tests, NULL, NULL);
    reset();
    failed += run_transport_suite(&over_tcp);
    fake_nccl_get()->late = 2;
    failed += run_transport_suite(&over_loop);
    if (fake_nccl_get()->violations) failed += fprintf(stderr, "the suite: %s\n", fake_nccl_get()->violation);
    dw_nccl_destroy(common);
    return failed;
}
