/* SPDX-License-Identifier: Apache-2.0
 * test_tcp_full.c - links in a process that has used up its file descriptors. */
#include "transports/suite/transport_suite.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "knock.h"

enum { TAG = 1, STRIPES = 4, FULL_MS = 450 };

/* accept4 is replaced by -Wl,--wrap: if the process really had no descriptors left, this test could
 * not work either. */
static atomic_int is_full, vain, accepted;

int __real_accept4(int fd, struct sockaddr *address, socklen_t *len, int flags);
int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *len, int flags);

int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *len, int flags)
{
    int why = atomic_load(&is_full);
    if (why) {
        atomic_fetch_add(&vain, 1);
        errno = why;
        return -1;
    }
    int made = __real_accept4(fd, address, len, flags);
    if (made >= 0) atomic_fetch_add(&accepted, 1);
    return made;
}

/* Checks that accept4 was tried again, but at most twenty times a second. */
static void expect_patience(int64_t since_ns)
{
    int tries = atomic_load(&vain);
    assert_in_range(tries, 1, 2 + (suite_now_ns() - since_ns) / 50000000);
}

/* Waits until so many connections have been accepted since the program began. */
static void expect_accepted(int n)
{
    for (int waited = 0; atomic_load(&accepted) < n && waited < SUITE_PATIENCE_MS; waited++)
        suite_sleep_ms(1);
    assert_int_equal(atomic_load(&accepted), n);
}

TEST(an_open_link_does_not_spin_without_descriptors)
{
    static const int reasons[] = {EMFILE, ENFILE, ENOMEM, ENOBUFS};
    const suite_backend tcp = {.name = "tcp", .uri = "tcp://127.0.0.1:0"};
    suite_pair pair;
    suite_start(&pair, &tcp);
    expect_accepted(STRIPES);
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++) {
        int64_t begun = suite_now_ns();
        atomic_store(&vain, 0);
        atomic_store(&is_full, reasons[i]);
        int stranger = knock(port_of(pair.uri)), before = atomic_load(&accepted);
        for (int ms = 0; ms < FULL_MS || (ms < SUITE_PATIENCE_MS && !atomic_load(&vain)); ms++)
            suite_sleep_ms(1);
        expect_patience(begun);
        /* the link itself still works */
        suite_pass(pair.link, 1, TAG, i, 100);
        atomic_store(&is_full, 0);
        expect_accepted(before + 1);
        close(stranger);
    }
    suite_close(&pair);
}

static void *make_room(void *context)
{
    suite_sleep_ms(FULL_MS);
    atomic_store(&is_full, 0);
    return NULL;
}

TEST(a_listener_accepts_its_peer_with_a_free_descriptor)
{
    const suite_backend tcp = {.name = "tcp", .uri = "tcp://127.0.0.1:0?stripes=1"};
    suite_pair pair;
    suite_prepare(&pair, &tcp);
    int64_t begun = suite_now_ns();
    atomic_store(&vain, 0);
    atomic_store(&is_full, EMFILE);
    pthread_t thread;
    pthread_create(&thread, NULL, make_room, NULL);
    suite_open(&pair);
    pthread_join(thread, NULL);
    expect_patience(begun);
    suite_pass(pair.link, 1, TAG, 0, 100);
    suite_close(&pair);
}

/* Lowers the limit such that the process can open n more descriptors. */
static void leave_descriptors(rlim_t n)
{
    struct rlimit limit;
    int next = dup(0);
    close(next);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = (rlim_t)next + n;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

TEST(a_link_that_lacks_descriptors_says_what_to_do)
{
    const struct {
        const char *uri;
        dw_link_role role;
        int least; /* the descriptors that a link surely needs: two pipes, and these */
    } cases[] = {{"tcp://127.0.0.1:0", DW_LINK_LISTEN, 4 + 2},
                 {"tcp://127.0.0.1:1", DW_LINK_CONNECT, 4 + 2},
                 {"loop://full", DW_LINK_LISTEN, 4 + 4}};
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const dw_link_options options = {
            .struct_size = sizeof options, .role = cases[i].role, .open_timeout_ms = 100};
        int lacking = 0;
        for (rlim_t n = 0; lacking == (int)n; n++) {
            dw_link *link;
            dw_why why = {.text = ""};
            leave_descriptors(n);
            dw_status status = dw_link_open(&link, cases[i].uri, &options, &why);
            setrlimit(RLIMIT_NOFILE, &before);
            assert_true(status < 0 && n < 20);
            if (strstr(why.text, "raise `ulimit -n`"))
                lacking++;
            else if (status != DW_ERR_TIMEOUT)
                fail_msg("%s with %d descriptors: %s", cases[i].uri, (int)n, why.text);
        }
        assert_true(lacking >= cases[i].least); /* more if some numbers were already in use */
    }
}

RUN_TESTS(NULL, NULL)
