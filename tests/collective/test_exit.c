/* SPDX-License-Identifier: Apache-2.0
 * test_exit.c - programs that end while links and groups are open: by exit() at any moment, in a
 * handler, after the library was unloaded, or with calls that pthread_cancel tried to end.
 *
 * test_exit LIBRARY [-n PROGRAMS]. Each program is a child process. It must end with its own exit
 * status, and what it had written to stdout must arrive. This process itself does not use OpenSSL,
 * so that a child can be the first to initialize it. */
#include <dlfcn.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "deltawire/collective.h"
#include "link/for_groups.h"
#include "support/tool.h"
#include "transports/suite/transport_suite.h"
#if DW_TEST_TLS
#include <openssl/crypto.h>

#include "transports/tls/certificates.h"
#endif

/* HANG_S: a child that lives so long hangs. */
enum { STATUS = 7, HANG_S = 60, PEM_BYTES = 2048, TAG = 3, SHORT_MS = 100 };

static const char written[] = "written before the end", *library;
static unsigned programs = 96;

/* ---- Two ends in a child --------------------------------------------------------------------- */

enum { PLAIN, GROUP_KEY, CERTIFICATES, COVERS };

static const unsigned char group_key[32] = "a group key of thirty-two bytes";
static struct pems {
    char authority[PEM_BYTES], own[2][PEM_BYTES], key[2][PEM_BYTES];
} pems;
static suite_pair pair;
static test_random moments;

static void use_openssl_first(void)
{
#if DW_TEST_TLS
    /* This registers the handler that OpenSSL has for the exit. */
    OPENSSL_init_crypto(OPENSSL_INIT_LOAD_CRYPTO_STRINGS, NULL);
#endif
}

static const suite_backend *backend_of(int cover)
{
    static dw_tls_options tls[2];
    static suite_backend backend = {.name = "exit", .uri = "tcp://127.0.0.1:0"};
    static const char *const names[] = {"rank/0", "rank/1"};
    for (int i = 0; i < 2; i++) {
        tls[i] = (dw_tls_options){
            .struct_size = sizeof tls[i], .own_name = names[i], .peer_name = names[1 - i]};
        if (cover == GROUP_KEY) {
            tls[i].group_key = group_key;
            tls[i].group_key_bytes = sizeof group_key;
        } else {
            tls[i].certificate_pem = pems.own[i];
            tls[i].key_pem = pems.key[i];
            tls[i].ca_pem = pems.authority;
        }
        backend.tls[i] = cover == PLAIN || !DW_TEST_TLS ? NULL : &tls[i];
    }
    return &backend;
}

static void prepare(int cover)
{
    suite_prepare(&pair, backend_of(cover));
    for (int i = 0; i < 2; i++) pair.options[i].close_timeout_ms = SHORT_MS;
}

static void open_pair(int cover)
{
    prepare(cover);
    suite_open(&pair);
}

static void begin(void *(*work)(void *), void *context)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, work, context), 0);
    pthread_detach(thread);
}

static void wait_a_moment(unsigned most_us)
{
    usleep((unsigned)(test_uniform(&moments) * most_us));
}

static void *try_open(void *context)
{
    suite_try_open(&pair);
    return NULL;
}

/* ---- Ways in which a program ends ------------------------------------------------------------ */

static void while_links_open(int cover)
{
    prepare(cover);
    begin(try_open, NULL);
    wait_a_moment(4000);
}

static void at_once(int cover)
{
    open_pair(cover); /* its other connections are being made */
    wait_a_moment(500);
}

static void *send_all(void *link)
{
    static unsigned char data[1 << 20];
    while (dw_link_send(link, TAG, data, sizeof data) >= 0)
        dw_link_wait_room(link, sizeof data, -1);
    return NULL;
}

static void *receive_all(void *link)
{
    void *data;
    size_t len;
    while (dw_link_recv(link, TAG, -1, &data, &len) == DW_OK) dw_link_release(link, data);
    return NULL;
}

static void while_messages_move(int cover)
{
    open_pair(cover);
    for (int i = 0; i < 2; i++) {
        begin(send_all, pair.link[i]);
        begin(receive_all, pair.link[i]);
    }
    wait_a_moment(8000);
}

static void *close_both(void *context)
{
    suite_close(&pair);
    return NULL;
}

static void while_links_close(int cover)
{
    open_pair(cover);
    begin(close_both, NULL);
    wait_a_moment(3000);
}

static void close_late(void)
{
    if (pair.link[0] && pair.link[1]) suite_close(&pair);
}

static void before_links_are_closed(int cover)
{
    atexit(close_late); /* called before OpenSSL's handler, or, in every other program, after it */
    use_openssl_first();
    open_pair(cover);
}

static void exit_here(void *context, const void *data, size_t len)
{
    exit(STATUS);
}

static void in_a_handler(int cover)
{
    open_pair(cover);
    dw_link_handle(pair.link[0], TAG, exit_here, NULL);
    dw_link_send(pair.link[1], TAG, "", 0);
    for (;;) pause();
}

static atomic_int left;

static void leave_handler(void *context, const void *data, size_t len)
{
    left++;
    pthread_exit(NULL);
}

static void leave_open(void *context, const char *uri)
{
    left++;
    pthread_exit(NULL);
}

static void *open_and_leave(void *options)
{
    dw_link *link;
    dw_link_open(&link, "tcp://127.0.0.1:0", options, NULL);
    return NULL;
}

/* A handler runs on the thread of a link, on_listening on that of the caller. */
static void after_callbacks_left(int cover)
{
    open_pair(cover);
    dw_link_handle(pair.link[0], TAG, leave_handler, NULL);
    dw_link_send(pair.link[1], TAG, "", 0);
    dw_link_options options = pair.options[0];
    options.on_listening = leave_open;
    begin(open_and_leave, &options);
    while (left < 2) usleep(1000);
    for (int i = 0; i < 2; i++) dw_link_close(pair.link[i]);
}

/* ---- Groups ---------------------------------------------------------------------------------- */

enum { FLOATS = 30000 };
static dw_group *groups[2];
static uint32_t ranks[2] = {0, 1};
static float buffers[2][FLOATS];

static dw_status open_rank(uint32_t rank)
{
    dw_link *links[2] = {NULL, NULL};
    links[1 - rank] = pair.link[rank];
    const dw_group_config config = {
        .struct_size = sizeof config, .id = 1, .rank = rank, .ranks = 2, .links = links};
    return dw_group_open(&groups[rank], &config, NULL);
}

static dw_group_job job_of(uint32_t rank)
{
    return (dw_group_job){.struct_size = sizeof(dw_group_job),
                          .operation = DW_ALL_REDUCE,
                          .n = FLOATS,
                          .x = buffers[rank],
                          .y = buffers[rank]};
}

static void *run_rank(void *rank)
{
    const uint32_t me = *(const uint32_t *)rank;
    const dw_group_job job = job_of(me);
    if (open_rank(me) == DW_OK)
        while (dw_group_run(groups[me], &job, -1) == DW_OK) continue;
    return NULL;
}

static void while_a_group_works(int cover)
{
    open_pair(cover);
    for (int rank = 0; rank < 2; rank++) begin(run_rank, &ranks[rank]);
    wait_a_moment(8000);
}

/* ---- The library is unloaded ----------------------------------------------------------------- */

static dw_status (*loaded_open)(dw_link **, const char *, const dw_link_options *, dw_why *);

static void *open_loaded(void *options)
{
    dw_link *link;
    loaded_open(&link, "loop://unloaded", options, NULL);
    return NULL;
}

static void after_unloading(int cover)
{
    void *found = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!found) fail_msg("%s", dlerror());
    void *symbol = dlsym(found, "dw_link_open");
    memcpy(&loaded_open, &symbol, sizeof symbol);
    static dw_link_options options[2] = {
        {.struct_size = sizeof options[0], .role = DW_LINK_LISTEN},
        {.struct_size = sizeof options[0], .role = DW_LINK_CONNECT}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, open_loaded, &options[i]);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    dlclose(found);
    usleep(20000); /* the threads of the links wake up after some milliseconds */
}

/* A child that is forked has none of the threads of the links. */
static void in_a_forked_child(int cover)
{
    while_messages_move(cover);
    pid_t child = fork();
    if (child == 0) close(STDOUT_FILENO), exit(0);
    int ended = 1;
    waitpid(child, &ended, 0);
    assert_int_equal(ended, 0);
}

static const struct way {
    const char *name;
    void (*end)(int cover);
} ways[] = {{"while links open", while_links_open},
            {"at once", at_once},
            {"while messages move", while_messages_move},
            {"while links close", while_links_close},
            {"before links are closed", before_links_are_closed},
            {"in a handler", in_a_handler},
            {"after callbacks left", after_callbacks_left},
            {"while a group works", while_a_group_works},
            {"after unloading", after_unloading},
            {"in a forked child", in_a_forked_child}};
enum { WAYS = sizeof ways / sizeof *ways };

static void end_somehow(unsigned n)
{
    unsigned way = n % WAYS, round = n / WAYS;
    if (round / COVERS % 3 > 0 && ways[way].end != in_a_forked_child) use_openssl_first();
    ways[way].end((int)((round + way) % COVERS));
}

/* ---- Callers that are cancelled -------------------------------------------------------------- */

static dw_channel *channels[2];
static float numbers[64];
static const dw_tensor tensor = {
    .data = numbers, .dtype = DW_F32, .n = 1, .t = 1, .c = 64, .stride_n = 64, .stride_t = 64};

static void open_channel(int end, uint32_t timeout_ms)
{
    dw_config config;
    dw_config_parse(&config, "raw:f32", NULL);
    const dw_channel_config both = {.struct_size = sizeof both,
                                    .id = 2,
                                    .send = &config,
                                    .recv = &config,
                                    .open_timeout_ms = timeout_ms};
    dw_channel_open(&channels[end], pair.link[end], &both, NULL);
}

static void *open_other_channel(void *unused)
{
    open_channel(1, SUITE_PATIENCE_MS);
    return NULL;
}

static void calls_nothing(void *context, const void *data, size_t len) {}

static void call_recv(void)
{
    void *data;
    size_t len;
    if (dw_link_recv(pair.link[0], TAG, SHORT_MS, &data, &len) == DW_OK)
        dw_link_release(pair.link[0], data);
}

static void call_send(void)
{
    dw_link_send(pair.link[0], TAG + 1, numbers, sizeof numbers);
}

static void call_flush(void)
{
    call_send();
    dw_link_flush(pair.link[0], SHORT_MS);
}

static void call_wait_room(void)
{
    static unsigned char data[1 << 20];
    dw_link_send(pair.link[0], TAG, data, sizeof data);
    dw_link_wait_room(pair.link[0], sizeof data, SHORT_MS);
}

static void call_attend(void)
{
    dw_link_handle(pair.link[0], TAG + 2, calls_nothing, NULL);
    dw_link_wait_any(pair.link, 1, TAG + 2, -1, (int64_t)SHORT_MS * 1000000);
    dw_link_handle(pair.link[0], TAG + 2, NULL, NULL);
}

static void call_open(void)
{
    dw_link *link = NULL;
    dw_link_options options = pair.options[0];
    options.on_listening = NULL;
    options.open_timeout_ms = SHORT_MS;
    dw_link_open(&link, "loop://nobody", &options, NULL);
    dw_link_open(&link, "tcp://127.0.0.1:0", &options, NULL);
}

static void call_close(void)
{
    dw_link *link = pair.link[0];
    pair.link[0] = NULL; /* whether or not the call ends */
    if (link) dw_link_close(link);
}

static void call_cancel(void)
{
    dw_link_cancel(pair.link[0]);
}

static void call_channel_recv(void)
{
    dw_key key;
    dw_channel_recv(channels[0], SHORT_MS, &key, &tensor, NULL);
}

static void call_channel_send(void)
{
    dw_channel_send(channels[0], &(dw_key){1, 0}, &tensor, NULL);
    dw_channel_forget(channels[0], (dw_key){1, 0});
}

static void call_channel_close(void)
{
    dw_channel *channel = channels[0];
    channels[0] = NULL;
    if (channel) dw_channel_close(channel);
}

static void call_channel_open(void)
{
    open_channel(0, SHORT_MS);
    call_channel_close();
}

static void call_group_open(void)
{
    dw_group *group = NULL;
    dw_link *links[2] = {NULL, pair.link[0]};
    const dw_group_config config = {.struct_size = sizeof config,
                                    .id = 5,
                                    .ranks = 2,
                                    .links = links,
                                    .open_timeout_ms = SHORT_MS};
    dw_group_open(&group, &config, NULL);
}

static void call_group_run(void)
{
    const dw_group_job job = job_of(0);
    dw_group_run(groups[0], &job, SHORT_MS);
    dw_group_wait(groups[0], 0, SHORT_MS);
}

static void call_group_start(void)
{
    dw_group_job job = job_of(0);
    static uint64_t slot = 1;
    job.slot = slot++;
    dw_group_start(groups[0], &job);
    dw_group_wait(groups[0], job.slot, 0);
}

static dw_status see_nothing(void *context, uint64_t slot, const void *saved, size_t len)
{
    usleep(100); /* where a thread can be cancelled */
    return DW_OK;
}

static void call_group_state(void)
{
    dw_group_export(groups[0], see_nothing, NULL);
    dw_group_forget(groups[0], 9);
    dw_group_import(groups[0], "", 1);
}

static void call_group_close(void)
{
    dw_group *group = groups[0];
    groups[0] = NULL;
    if (group) dw_group_close(group);
}

typedef struct call {
    const char *name;
    void (*call)(void);
    bool has_channels, has_groups;
} call;

static const call calls[] = {{"dw_link_recv", call_recv, false, false},
                             {"dw_link_send", call_send, false, false},
                             {"dw_link_flush", call_flush, false, false},
                             {"dw_link_wait_room", call_wait_room, false, false},
                             {"dw_link_wait_any", call_attend, false, false},
                             {"dw_link_open", call_open, false, false},
                             {"dw_link_close", call_close, false, false},
                             {"dw_link_cancel", call_cancel, false, false},
                             {"dw_channel_open", call_channel_open, false, false},
                             {"dw_channel_recv", call_channel_recv, true, false},
                             {"dw_channel_send, _forget", call_channel_send, true, false},
                             {"dw_channel_close", call_channel_close, true, false},
                             {"dw_group_open", call_group_open, false, false},
                             {"dw_group_run", call_group_run, false, true},
                             {"dw_group_start", call_group_start, false, true},
                             {"dw_group_export", call_group_state, false, true},
                             {"dw_group_close", call_group_close, false, true}};
enum { CALLS = sizeof calls / sizeof *calls };

static atomic_int has_called;

static void *call_again_and_again(void *context)
{
    const call *one = context;
    for (;;) {
        has_called = 1;
        one->call();
        pthread_testcancel();
    }
    return NULL;
}

/* A caller is cancelled inside a call. What it used must be as after any call: groups, channels and
 * links can be closed. */
static void cancel_in_a_call(unsigned n)
{
    const call *one = &calls[n % CALLS];
    pthread_t caller, other;
    open_pair((int)(n / CALLS % COVERS));
    if (one->has_channels) {
        pthread_create(&other, NULL, open_other_channel, NULL);
        open_channel(0, SUITE_PATIENCE_MS);
        pthread_join(other, NULL);
    }
    if (one->has_groups) {
        begin(run_rank, &ranks[1]);
        assert_int_equal(open_rank(0), DW_OK);
    }
    pthread_create(&caller, NULL, call_again_and_again, (void *)(uintptr_t)one);
    while (!has_called) usleep(100);
    wait_a_moment(4000);
    pthread_cancel(caller);
    pthread_join(caller, NULL);
    if (groups[0]) dw_group_close(groups[0]);
    if (channels[0]) dw_channel_close(channels[0]);
    if (pair.link[0]) dw_link_close(pair.link[0]);
}

/* ---- Children -------------------------------------------------------------------------------- */

/* Runs live(n) in a child, and checks how it ended. */
static bool ends_well(void (*live)(unsigned), unsigned n, const char *name)
{
    int ends[2], ended = 0;
    char heard[1000] = "";
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        setvbuf(stdout, NULL, _IOFBF, BUFSIZ);
        alarm(HANG_S);
        fputs(written, stdout);
        moments.state = n;
        live(n);
        exit(STATUS);
    }
    close(ends[1]);
    assert_int_equal(waitpid(child, &ended, 0), child);
    ssize_t len = read(ends[0], heard, sizeof heard);
    close(ends[0]);
    bool is_good = WIFEXITED(ended) && WEXITSTATUS(ended) == STATUS && len == sizeof written - 1 &&
                   memcmp(heard, written, (size_t)len) == 0;
    if (!is_good)
        fprintf(stderr, "program %u, %s: %s %d, wrote '%.*s'\n", n, name,
                WIFSIGNALED(ended) ? "signal" : "status",
                WIFSIGNALED(ended) ? WTERMSIG(ended) : WEXITSTATUS(ended), (int)len, heard);
    return is_good;
}

/* ---- Certificates, made in a process of their own -------------------------------------------- */

#if DW_TEST_TLS
static void make_certificates(struct pems *made)
{
    certificate authority, end;
    certificate_make(&authority, NULL, &(certificate_wish){.is_authority = 1});
    snprintf(made->authority, PEM_BYTES, "%s", authority.pem);
    for (int i = 0; i < 2; i++) {
        const char *const uris[] = {"deltawire:rank/0", "deltawire:rank/1"};
        certificate_make(&end, &authority, &(certificate_wish){.uri = uris[i]});
        snprintf(made->own[i], PEM_BYTES, "%s", end.pem);
        snprintf(made->key[i], PEM_BYTES, "%s", end.key_pem);
    }
}

static void take_certificates(void)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        static struct pems made;
        make_certificates(&made);
        _exit(write(ends[1], &made, sizeof made) != sizeof made);
    }
    close(ends[1]);
    size_t have = 0;
    ssize_t n;
    while ((n = read(ends[0], (char *)&pems + have, sizeof pems - have)) > 0) have += (size_t)n;
    close(ends[0]);
    waitpid(child, NULL, 0);
    assert_int_equal(have, sizeof pems);
}
#endif

int main(int argc, char **argv)
{
    if (argc < 2 || (argc > 2 && (argc != 4 || strcmp(argv[2], "-n") != 0))) {
        fprintf(stderr, "usage: test_exit LIBDELTAWIRE-LINK [-n PROGRAMS]\n");
        return 2;
    }
    library = argv[1];
    if (argc > 2) programs = (unsigned)strtoul(argv[3], NULL, 10);
#if DW_TEST_TLS
    take_certificates();
#endif
    unsigned bad = 0, cancels = programs < 2 * CALLS ? programs : programs / 2;
    for (unsigned n = 0; n < programs; n++) bad += !ends_well(end_somehow, n, ways[n % WAYS].name);
    for (unsigned n = 0; n < cancels; n++)
        bad += !ends_well(cancel_in_a_call, n, calls[n % CALLS].name);
    printf("%u of %u programs ended badly\n", bad, programs + cancels);
    return bad > 0;
}
