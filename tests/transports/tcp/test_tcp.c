/* SPDX-License-Identifier: Apache-2.0
 * test_tcp.c - the sentences for wrong addresses, for strangers, and for peers that fail. */
#include "transports/suite/transport_suite.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#include "knock.h"
#include "transports/suite/counted.h"
#include "transports/suite/listener.h"

enum { TAG = 1, TCP_HELLO = 48, RECORD = 32, CHUNK_RECORD = 48, LINK_HEADER = 8, HELLO = 32 };

/* ---- A peer that writes bytes by hand -------------------------------------------------------- */

static int raw_listen(int *port)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t len = sizeof address;
    assert_int_equal(bind(fd, (const struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(fd, 4), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &len), 0);
    *port = ntohs(address.sin_port);
    return fd;
}

static void raw_send(int fd, const void *data, size_t len)
{
    const unsigned char *bytes = data;
    while (len > 0) {
        ssize_t n = send(fd, bytes, len, MSG_NOSIGNAL);
        assert_true(n > 0);
        bytes += n;
        len -= (size_t)n;
    }
}

/* What a correct dialler sends first: a hello that asks for a new session of one stripe, and a
 * record with the link's own hello. */
static const unsigned char greeting[TCP_HELLO + RECORD + LINK_HEADER + HELLO] = {
    [0] = 'D',
    'W',
    'T',
    'C',
    'P',
    '\n',
    2,
    'C',
    [25] = 1,
    [43] = 1,
    [TCP_HELLO] = 1,
    [TCP_HELLO + 4] = LINK_HEADER + HELLO,
    [TCP_HELLO + 27] = 1,
    [TCP_HELLO + RECORD + 4] = 2,
    [TCP_HELLO + RECORD + LINK_HEADER] = 'D',
    'W',
    'L',
    'K',
    1,
    0,
    0,
    0,
    0,
    0,
    0,
    16,
    0,
    0,
    0,
    0,
    '0',
    '.',
    '1'};

static void start_listening(suite_listener *waiting, uint32_t open_timeout_ms,
                            uint32_t peer_timeout_ms)
{
    *waiting = (suite_listener){
        .options = {.open_timeout_ms = open_timeout_ms, .peer_timeout_ms = peer_timeout_ms},
        .uri = "tcp://127.0.0.1:0?grace=200ms"};
    suite_listen(waiting);
}

static dw_status try_to_open(const char *uri, dw_link_role role, dw_why *why)
{
    const dw_link_options options = {.struct_size = sizeof options,
                                     .role = role,
                                     .open_timeout_ms = 3000, /* an answer comes earlier */
                                     .insecure_plaintext = 1};
    dw_link *link;
    dw_status status = dw_link_open(&link, uri, &options, why);
    dw_link_close(link);
    return status;
}

/* ---- Addresses ------------------------------------------------------------------------------- */

TEST(tcp_address_error_names_the_wrong_part)
{
    const struct {
        const char *uri;
        dw_link_role role;
        const char *word, *blamed;
    } cases[] = {
        {"tcp://127.0.0.1", DW_LINK_LISTEN, "host:port", "127.0.0.1"},
        {"tcp://:7000", DW_LINK_LISTEN, "host:port", ":7000"},
        {"tcp://[::1]7000", DW_LINK_LISTEN, "host:port", "[::1]7000"},
        {"tcp://[::1", DW_LINK_LISTEN, "host:port", "[::1"},
        {"tcp://", DW_LINK_LISTEN, "host:port", ""},
        {"tcp://127.0.0.1:", DW_LINK_LISTEN, "is not a port", ""},
        {"tcp://127.0.0.1:http", DW_LINK_LISTEN, "is not a port", "http"},
        {"tcp://127.0.0.1:65536", DW_LINK_LISTEN, "is not a port", "65536"},
        {"tcp://127.0.0.1:70x", DW_LINK_LISTEN, "is not a port", "70x"},
        {"tcp://127.0.0.1:0", DW_LINK_CONNECT, "is not a port to connect to", "0"},
        {"tcp://no-such-host.invalid:7000", DW_LINK_CONNECT, "cannot resolve", "no-such-host"},
        {"tcp://192.0.2.1:7000", DW_LINK_LISTEN, "cannot listen", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dw_why why = {.text = ""};
        assert_int_equal(try_to_open(cases[i].uri, cases[i].role, &why), DW_ERR_ADDRESS);
        if (!strstr(why.text, cases[i].word)) fail_msg("%s: '%s'", cases[i].uri, why.text);
        if (!cases[i].blamed) continue;
        assert_true(why.offset >= 0);
        assert_memory_equal(cases[i].uri + why.offset, cases[i].blamed, strlen(cases[i].blamed));
    }
}

TEST(says_that_a_port_is_in_use)
{
    int port;
    int fd = raw_listen(&port);
    char uri[64], number[8];
    snprintf(uri, sizeof uri, "tcp://127.0.0.1:%d", port);
    snprintf(number, sizeof number, "%d", port);
    dw_why why;
    assert_int_equal(try_to_open(uri, DW_LINK_LISTEN, &why), DW_ERR_ADDRESS);
    assert_non_null(strstr(why.text, "in use"));
    assert_non_null(strstr(why.text, number));
    close(fd);
}

TEST(dial_error_says_that_nobody_listens)
{
    int port;
    close(raw_listen(&port)); /* finds a free port */
    char uri[64];
    snprintf(uri, sizeof uri, "tcp://127.0.0.1:%d", port);
    dw_why why;
    assert_int_equal(try_to_open(uri, DW_LINK_CONNECT, &why), DW_ERR_TIMEOUT);
    assert_non_null(strstr(why.text, "refused"));
    assert_non_null(strstr(why.text, uri));
}

typedef struct late_dialler {
    char uri[64];
    dw_link *link;
    dw_status status;
    dw_why why;
} late_dialler;

static void *dial(void *context)
{
    late_dialler *dialler = context;
    const dw_link_options options = {.struct_size = sizeof options, .open_timeout_ms = 30000};
    dialler->status = dw_link_open(&dialler->link, dialler->uri, &options, &dialler->why);
    return NULL;
}

TEST(dials_until_somebody_listens)
{
    int port;
    close(raw_listen(&port));
    late_dialler dialler;
    snprintf(dialler.uri, sizeof dialler.uri, "tcp://localhost:%d", port);
    pthread_t thread;
    pthread_create(&thread, NULL, dial, &dialler);
    suite_sleep_ms(250);
    char uri[64];
    snprintf(uri, sizeof uri, "tcp://127.0.0.1:%d", port);
    const dw_link_options options = {
        .struct_size = sizeof options, .role = DW_LINK_LISTEN, .open_timeout_ms = 30000};
    dw_link *link;
    dw_why why;
    dw_status status = dw_link_open(&link, uri, &options, &why);
    pthread_join(thread, NULL);
    if (status != DW_OK || dialler.status != DW_OK) fail_msg("%s / %s", why.text, dialler.why.text);
    dw_link_close(link);
    dw_link_close(dialler.link);
}

/* All else about IPv6 is as with IPv4, over which the suite runs. */
TEST(links_work_over_ipv6)
{
    const suite_backend six = {.name = "tcp over IPv6", .uri = "tcp://[::1]:0"};
    suite_pair pair;
    suite_prepare(&pair, &six);
    suite_try_open(&pair);
    if (pair.status[SUITE_LISTENER] == DW_ERR_ADDRESS) skip(); /* no IPv6 on this machine */
    for (int i = 0; i < 2; i++)
        if (pair.status[i] != DW_OK) fail_msg("%s", pair.why[i].text);
    assert_non_null(strstr(pair.uri, "tcp://[::1]:"));
    for (uint64_t n = 0; n < 4; n++) suite_pass(pair.link, n & 1, TAG, n, 3000000);
    suite_close(&pair);
}

/* ---- Strangers ------------------------------------------------------------------------------- */

/* Connects as an end of another version. Its eight bytes are no proof of identity, so the listener
 * must go on waiting for its peer. */
static void connect_with_another_version(int port)
{
    int fd = knock(port);
    raw_send(fd,
             "DWTCP\n\x09"
             "C",
             8);
    unsigned char answer[8] = {0};
    assert_int_equal(recv(fd, answer, sizeof answer, MSG_WAITALL), 8);
    assert_memory_equal(answer, "DWTCP\n\x02L", 8);
    close(fd);
}

TEST(listener_ignores_clients_that_are_not_deltawire)
{
    suite_listener waiting;
    start_listening(&waiting, 30000, 0);
    enum { STRANGERS = 120 };
    int strangers[STRANGERS]; /* more silent ones than a listener keeps at the same time */
    for (int i = 0; i < STRANGERS; i++) {
        strangers[i] = knock(waiting.port);
        if (i % 4 == 0) raw_send(strangers[i], "GET / HTTP/1.1\r\nHost: x\r\n\r\n", 27);
        if (i % 4 == 1) raw_send(strangers[i], greeting, TCP_HELLO - 1); /* never the last byte */
        if (i % 4 == 2) close(strangers[i]);
    }
    int early = knock(waiting.port); /* a correct dialler that ends before it gets an answer */
    raw_send(early, greeting, TCP_HELLO);
    close(early);
    connect_with_another_version(waiting.port);
    late_dialler dialler;
    snprintf(dialler.uri, sizeof dialler.uri, "tcp://127.0.0.1:%d", waiting.port);
    dial(&dialler);
    suite_listened(&waiting);
    if (waiting.status != DW_OK || dialler.status != DW_OK)
        fail_msg("%s / %s", waiting.why.text, dialler.why.text);
    assert_int_equal(dw_link_send(dialler.link, TAG, "hello", 5), DW_OK);
    void *data;
    size_t len;
    assert_int_equal(dw_link_recv(waiting.link, TAG, 30000, &data, &len), DW_OK);
    assert_memory_equal(data, "hello", 5);
    dw_link_release(waiting.link, data);
    for (int i = 0; i < STRANGERS; i++) {
        if (i % 4 != 2) close(strangers[i]);
    }
    dw_link_close(dialler.link);
    dw_link_close(waiting.link);
}

typedef struct false_server {
    int listener;
    const char *says;
} false_server;

static void *serve_falsely(void *context)
{
    const false_server *server = context;
    int fd = accept(server->listener, NULL, NULL);
    char room[64];
    if (server->says) raw_send(fd, server->says, strlen(server->says));
    while (recv(fd, room, sizeof room, 0) > 0) {
    }
    close(fd);
    return NULL;
}

TEST(says_that_the_listener_is_another_program)
{
    const struct {
        const char *says, *word;
        dw_status status;
    } cases[] = {{"SSH-2.0-OpenSSH_9.2\r\n", "not deltawire", DW_ERR_PROTOCOL},
                 {"DWTCP\n\x07L", "version 7", DW_ERR_VERSION},
                 {NULL, "no hello came from it", DW_ERR_TIMEOUT}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int port;
        false_server server = {.says = cases[i].says};
        server.listener = raw_listen(&port);
        pthread_t thread;
        pthread_create(&thread, NULL, serve_falsely, &server);
        char uri[64];
        snprintf(uri, sizeof uri, "tcp://127.0.0.1:%d", port);
        dw_why why;
        dw_status status = try_to_open(uri, DW_LINK_CONNECT, &why);
        pthread_join(thread, NULL);
        close(server.listener);
        if (status != cases[i].status || !strstr(why.text, cases[i].word))
            fail_msg("%d: %s", (int)status, why.text);
    }
}

TEST(listener_timeout_names_the_refused_clients)
{
    suite_listener waiting;
    start_listening(&waiting, 3000, 0);
    for (int i = 0; i < 3; i++) connect_with_another_version(waiting.port);
    int fd = knock(waiting.port);
    raw_send(fd, "GET / HTTP/1.1\r\n", 16);
    char none;
    while (recv(fd, &none, 1, 0) > 0) { /* until the listener closes the connection */
    }
    close(fd);
    suite_listened(&waiting);
    assert_int_equal(waiting.status, DW_ERR_TIMEOUT);
    if (!strstr(waiting.why.text, "; 4 were turned away, the last one: 127.0.0.1:") ||
        !strstr(waiting.why.text,
                "version 9 of the framing over TCP, this end version 2; run the same release"))
        fail_msg("%s", waiting.why.text);
}

/* ---- Peers that fail in the middle ----------------------------------------------------------- */

/* The test plays the peer: it sends the greeting, and then these bytes. Returns the status of the
 * link. */
static dw_status status_after(const void *bytes, size_t len, uint32_t peer_timeout_ms, int hang_up,
                              char *why, size_t why_cap)
{
    suite_listener waiting;
    start_listening(&waiting, 30000, peer_timeout_ms);
    int fd = knock(waiting.port);
    raw_send(fd, greeting, sizeof greeting);
    suite_listened(&waiting);
    if (waiting.status != DW_OK) fail_msg("%s", waiting.why.text);
    raw_send(fd, bytes, len);
    if (hang_up) shutdown(fd, SHUT_WR);
    dw_status status = suite_receive(waiting.link, TAG, 30000);
    snprintf(why, why_cap, "%s", dw_link_why(waiting.link));
    dw_link_close(waiting.link);
    close(fd);
    return status;
}

TEST(error_names_what_a_failing_peer_did)
{
    char why[300];
    /* A record that says 100 bytes, of which only 10 are sent. */
    const unsigned char part[RECORD + 10] = {
        1, [4] = 100, [8] = 1, [16] = 1, [27] = 1, [RECORD] = TAG, 0, 0, 0, 1};
    assert_int_equal(status_after(part, sizeof part, 200, 0, why, sizeof why), DW_ERR_TIMEOUT);
    assert_non_null(strstr(why, "middle of a message"));
    assert_int_equal(status_after(part, sizeof part, 0, 1, why, sizeof why), DW_ERR_PEER);
    assert_non_null(strstr(why, "middle of a message"));
    assert_int_equal(status_after(part, 3, 200, 0, why, sizeof why), DW_ERR_TIMEOUT);
    assert_int_equal(status_after(part, 3, 0, 1, why, sizeof why), DW_ERR_PEER);
    assert_non_null(strstr(why, "middle of a message"));
    assert_int_equal(status_after(part, 0, 0, 1, why, sizeof why), DW_ERR_PEER);
    assert_non_null(strstr(why, "without a goodbye"));
    assert_non_null(strstr(why, "127.0.0.1:"));
    /* A length that no message may have (64 GiB): the link must not allocate it. */
    const unsigned char endless[CHUNK_RECORD] = {
        2, [7] = 16, [8] = 1, [16] = 1, [27] = 1, [44] = 16};
    assert_int_equal(status_after(endless, sizeof endless, 0, 0, why, sizeof why), DW_ERR_PROTOCOL);
    assert_non_null(strstr(why, "announced"));
    const unsigned char tiny[RECORD + 3] = {
        1, [4] = 3, [8] = 1, [16] = 1, [27] = 1, [RECORD] = 1, 2, 3};
    assert_int_equal(status_after(tiny, sizeof tiny, 0, 0, why, sizeof why), DW_ERR_PROTOCOL);
}

/* ---- Peers that are busy with everything but what they should do ------------------------------
 */

enum { BUSY_TIMEOUT_MS = 500, BUSY_TICK_MS = 20, BUSY_BYTES = 100000, LONG_CHUNK = 1 << 20 };

/* A peer with two connections, which reads everything and acknowledges nothing but the greeting. It
 * ignores errors, because the link may end at any time. */
typedef struct busy_peer {
    int port, fd[2];
    unsigned char session[16];
    uint64_t ticks;
} busy_peer;

static void put(unsigned char *at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) at[i] = (unsigned char)(value >> 8 * i);
}

static void busy_send(int fd, const unsigned char *bytes, size_t len)
{
    for (ssize_t n = 1; len > 0 && n > 0; bytes += n, len -= (size_t)n) {
        n = send(fd, bytes, len, MSG_NOSIGNAL);
        if (n < 0) return;
    }
}

/* A record of this kind, with `more` bytes in front of those of the body that are to come. */
static void raw_record(int fd, int kind, uint64_t number, size_t body, uint64_t limit, size_t more)
{
    static unsigned char bytes[CHUNK_RECORD + LONG_CHUNK];
    size_t head = kind == 2 ? CHUNK_RECORD : RECORD;
    memset(bytes, 0, head + LINK_HEADER);
    bytes[0] = (unsigned char)kind;
    put(bytes + 4, body, 4);
    put(bytes + 8, number, 8);
    put(bytes + 16, 1, 8);
    put(bytes + 24, limit, 8);
    if (kind == 2) put(bytes + 40, 3 * LONG_CHUNK, 8);
    bytes[head] = TAG + 1;
    bytes[head + 4] = 1;
    busy_send(fd, bytes, head + more);
}

enum { LIMIT = 1 << 24 };

static int busy_knock(const busy_peer *peer)
{
    int connected;
    return try_to_knock(peer->port, &connected);
}

static void join(busy_peer *peer, int stripe)
{
    unsigned char hello[TCP_HELLO];
    memcpy(hello, greeting, sizeof hello);
    memcpy(hello + 8, peer->session, sizeof peer->session);
    hello[24] = (unsigned char)stripe;
    hello[25] = 2;
    hello[32] = 1;
    peer->fd[stripe] = busy_knock(peer);
    busy_send(peer->fd[stripe], hello, sizeof hello);
}

static void join_first(busy_peer *peer, const suite_listener *waiting)
{
    unsigned char bytes[sizeof greeting];
    peer->port = waiting->port;
    peer->fd[0] = knock(peer->port);
    memcpy(bytes, greeting, sizeof bytes);
    bytes[25] = 2;
    raw_send(peer->fd[0], bytes, sizeof bytes);
    assert_int_equal(recv(peer->fd[0], bytes, sizeof bytes, MSG_WAITALL), sizeof bytes);
    memcpy(peer->session, bytes + 8, sizeof peer->session);
    join(peer, 1);
}

/* What the peer owes, and what it does once a tick. */
enum { OWES_NOTHING, OWES_REST, OWES_CHUNKS };
enum {
    STATE = 3, /* a record of this kind */
    ASK = 4,
    ECHO = 5,
    IDLE,
    ALLOW_MORE,
    SAY_A_BYTE, /* of a STATE */
    SEND,       /* a message */
    SEND_GREETING,
    BE_A_STRANGER,
    COME_BACK,
    BEGIN,
    COME_BACK_AND_BEGIN
};

static void begin_what_it_owes(busy_peer *peer, int owes)
{
    if (owes == OWES_REST) raw_record(peer->fd[0], 1, 1, 100, LIMIT, LINK_HEADER + 2);
    if (owes == OWES_CHUNKS) raw_record(peer->fd[0], 2, 1, LONG_CHUNK, LIMIT, LONG_CHUNK);
}

static void be_busy(busy_peer *peer, int action, int owes)
{
    const unsigned char state[RECORD] = {STATE, [16] = 1, [27] = 1};
    const size_t whole = LINK_HEADER + 1;
    if (action <= ECHO) raw_record(peer->fd[1], action, 0, 0, LIMIT, 0);
    if (action == ALLOW_MORE) raw_record(peer->fd[1], STATE, 0, 0, LIMIT + peer->ticks, 0);
    if (action == SAY_A_BYTE) busy_send(peer->fd[1], state + peer->ticks % RECORD, 1);
    if (action == SEND) raw_record(peer->fd[1], 1, 1 + peer->ticks, whole, LIMIT, whole);
    if (action == SEND_GREETING) raw_record(peer->fd[1], 1, 0, whole, LIMIT, whole);
    if (action == BE_A_STRANGER) close(busy_knock(peer));
    if (action == COME_BACK || action == COME_BACK_AND_BEGIN) {
        close(peer->fd[0]);
        join(peer, 0);
    }
    if (action == BEGIN || action == COME_BACK_AND_BEGIN) begin_what_it_owes(peer, owes);
}

typedef struct busy_wait {
    dw_link *link;
    int sends;
    dw_status status;
    pthread_t thread;
    atomic_int has_ended;
} busy_wait;

static void *wait_for_it(void *context)
{
    busy_wait *me = context;
    me->status = me->sends ? dw_link_flush(me->link, SUITE_PATIENCE_MS)
                           : suite_receive(me->link, TAG, SUITE_PATIENCE_MS);
    atomic_store(&me->has_ended, 1);
    return NULL;
}

static void drain(const busy_peer *peer)
{
    char bytes[65536];
    for (int i = 0; i < 2; i++) {
        while (recv(peer->fd[i], bytes, sizeof bytes, MSG_DONTWAIT) > 0) {
        }
    }
}

/* Where the peer owes nothing, the link sends. */
static void expect_timeout(int owes, int action)
{
    suite_listener waiting;
    busy_peer peer = {.ticks = 0};
    start_listening(&waiting, 30000, BUSY_TIMEOUT_MS);
    join_first(&peer, &waiting);
    suite_listened(&waiting);
    if (waiting.status != DW_OK) fail_msg("%s", waiting.why.text);
    busy_wait wait = {.link = waiting.link, .sends = owes == OWES_NOTHING};
    uint64_t before = counted(waiting.link).bytes_received;
    begin_what_it_owes(&peer, owes);
    while (owes && counted(waiting.link).bytes_received == before) suite_sleep_ms(1);
    if (wait.sends) suite_send(waiting.link, TAG, 0, BUSY_BYTES);
    pthread_create(&wait.thread, NULL, wait_for_it, &wait);
    for (; !atomic_load(&wait.has_ended); peer.ticks++) {
        drain(&peer);
        be_busy(&peer, action, owes);
        suite_sleep_ms(BUSY_TICK_MS);
    }
    pthread_join(wait.thread, NULL);
    if (wait.status != DW_ERR_TIMEOUT) {
        fail_msg("owes %d, does %d: status %d '%s'", owes, action, wait.status,
                 dw_link_why(waiting.link));
    }
    /* At most 1.5 times the limit is promised; a busy machine may make it more. */
    assert_in_range(peer.ticks, 1, 3 * BUSY_TIMEOUT_MS / BUSY_TICK_MS);
    dw_link_close(waiting.link);
    close(peer.fd[0]);
    close(peer.fd[1]);
}

TEST(what_is_no_progress_does_not_delay_a_timeout)
{
    for (int action = STATE; action <= COME_BACK; action++) expect_timeout(OWES_NOTHING, action);
    for (int action = STATE; action <= COME_BACK_AND_BEGIN; action++) {
        /* To send is progress, and to begin again is to send the rest of what has begun. */
        if (action != SEND && action != BEGIN) expect_timeout(OWES_REST, action);
    }
    expect_timeout(OWES_CHUNKS, BEGIN);
    expect_timeout(OWES_CHUNKS, COME_BACK_AND_BEGIN);
}

RUN_TESTS(NULL, NULL)
