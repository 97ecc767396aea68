/* SPDX-License-Identifier: Apache-2.0
 * hostile_peers.c - attackers of twelve kinds connect to listeners while an honest link works. No
 * attacker is accepted, and no message of the honest link is lost.
 *
 * hostile_peers [ATTEMPTS [SEED]]. One listener waits for a peer that never connects. The port of
 * the honest link is attacked, too, as long as it is open. That link is shaped to 1 Gbit/s; its
 * throughput with and without the attack is printed, but no test depends on it. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <openssl/rand.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "certificates.h"
#include "common/report.h"
#include "deltawire/transport.h"
#include "tls/tls.h"

enum { KINDS = 12, BESIEGERS = 2, MESSAGE_BYTES = 100000, TAG = 1, PATIENCE_MS = 60000 };

static const unsigned char group_key[32] = "the key that no stranger has....",
                           other_key[32] = "a key that strangers have.......";

static void die(const char *what)
{
    fprintf(stderr, "hostile_peers: %s\n", what);
    exit(1);
}

static dw_tls_options with_key(const void *key, const char *own_name, const char *peer_name)
{
    return (dw_tls_options){.struct_size = sizeof(dw_tls_options),
                            .own_name = own_name,
                            .peer_name = peer_name,
                            .group_key = key,
                            .group_key_bytes = sizeof group_key};
}

/* ---- Listeners ------------------------------------------------------------------------------- */

typedef struct port {
    dw_tls_options tls;
    const char *uri;
    dw_link *link;
    dw_status status;
    dw_why why;
    volatile int cancelled;
    atomic_int number;
    pthread_t thread;
} port;

static void note(void *context, const char *uri)
{
    atomic_store(&((port *)context)->number, atoi(strrchr(uri, ':') + 1));
}

static void *listen_there(void *context)
{
    port *at = context;
    const dw_link_options options = {.struct_size = sizeof options,
                                     .role = DW_LINK_LISTEN,
                                     .open_timeout_ms = 3600000,
                                     .tls = &at->tls,
                                     .on_listening = note,
                                     .listening_context = at,
                                     .cancelled = &at->cancelled};
    at->status = dw_link_open(&at->link, at->uri, &options, &at->why);
    return NULL;
}

static void start_listening(port *at, const char *uri)
{
    at->uri = uri;
    at->tls = with_key(group_key, "rank/0", "rank/1");
    if (pthread_create(&at->thread, NULL, listen_there, at) != 0) die("no thread");
    while (atomic_load(&at->number) == 0) usleep(1000);
}

/* ---- Strangers ------------------------------------------------------------------------------- */

typedef struct siege {
    const int *ports; /* of the two listeners */
    int attempts;
    uint64_t random;
    SSL_CTX *tls12, *tls13, *certified;
    /* With `right` only a hello is recorded, as a thief could record one. */
    dw_tls_context *wrong_key, *wrong_name, *right;
    atomic_int *next, *past, *by_kind;
} siege;

static uint64_t draw(siege *s)
{
    uint64_t z = s->random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    return z ^ z >> 27;
}

static int connect_to(int number)
{
    const struct sockaddr_in address = {.sin_family = AF_INET,
                                        .sin_port = htons((uint16_t)number),
                                        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) die("no socket");
    if (connect(fd, (const struct sockaddr *)&address, sizeof address) == 0) return fd;
    close(fd); /* nobody listens any more, so no byte was exchanged */
    return -1;
}

/* Records the first bytes that an honest dialler sends. */
static size_t record_hello(const siege *s, unsigned char *room, size_t cap)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) != 0) die("no sockets");
    dw_stream stream = {.fd = ends[0]};
    if (dw_tls_cover(&stream, s->right, INT64_MAX) != DW_OK) die("no memory");
    dw_tls_shake(&stream);
    ssize_t n = recv(ends[1], room, cap, 0);
    dw_stream_close(&stream);
    close(ends[1]);
    return n > 0 ? (size_t)n : 0;
}

/* Whether the listener sends something under TLS. OpenSSL may report success to a client that the
 * listener will refuse. Only the listener's first record, its welcome, proves that it accepted. */
static int shake_raw(int fd, SSL_CTX *context)
{
    const struct timeval wait = {.tv_sec = 2};
    char byte;
    SSL *ssl = SSL_new(context);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    SSL_set_fd(ssl, fd);
    int is_past = SSL_connect(ssl) == 1 && SSL_read(ssl, &byte, 1) == 1;
    SSL_free(ssl);
    return is_past;
}

static int shake_as_deltawire(int fd, dw_tls_context *context)
{
    dw_stream stream = {.fd = fd};
    dw_status status =
        dw_tls_cover(&stream, context, dw_link_now_ns() + (int64_t)2000 * DW_NS_PER_MS);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    while (status == DW_OK && (status = dw_tls_shake(&stream)) == DW_PENDING) {
        struct pollfd wait = {.fd = fd, .events = (short)dw_stream_events(&stream, 1, 0)};
        poll(&wait, 1, 100);
        status = DW_OK;
    }
    stream.fd = -1; /* the caller closes it */
    dw_stream_close(&stream);
    return status == DW_OK;
}

/* Waits a moment for the listener to hang up. A hello from the listener would be a welcome. */
static int is_welcomed(int fd, int wait_ms)
{
    unsigned char room[4096];
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    while (poll(&wait, 1, wait_ms) > 0) {
        ssize_t n = recv(fd, room, sizeof room, 0);
        if (n <= 0) return 0;
        if (n >= 8 && memcmp(room, "DWTCP\n", 6) == 0)
            return 1; /* the listener accepts plaintext */
    }
    return 0;
}

static void say(int fd, const void *bytes, size_t len)
{
    if (send(fd, bytes, len, MSG_NOSIGNAL) < 0) return; /* the listener has hung up */
}

static int attempt(siege *s, int kind, int fd)
{
    unsigned char room[20000];
    size_t len;
    switch (kind) {
    case 0: /* sends nothing */ return is_welcomed(fd, 1 + (int)(draw(s) % 30));
    case 1: /* random bytes, some of them in valid records */
        for (size_t i = 0; i < 600; i += 8) memcpy(room + i, &(uint64_t){draw(s)}, 8);
        if (draw(s) % 2) memcpy(room, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11);
        say(fd, room, 1 + draw(s) % 600);
        return is_welcomed(fd, 20);
    case 2: /* deltawire without TLS */
        say(fd,
            "DWTCP\n\x01"
            "C\x28\0\0\0\0\0\0\0\0\0\0\0\2\0\0\0DWLK\1\0\0\0",
            32);
        return is_welcomed(fd, 20);
    case 3: say(fd, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 35); return is_welcomed(fd, 20);
    case 4: return shake_raw(fd, s->tls12);
    case 5: return shake_raw(fd, s->tls13);
    case 6: return shake_raw(fd, s->certified);
    case 7: return shake_as_deltawire(fd, s->wrong_key);
    case 8: return shake_as_deltawire(fd, s->wrong_name);
    case 9: /* an honest hello that was recorded, whole or truncated */
        len = record_hello(s, room, sizeof room);
        say(fd, room, draw(s) % 2 ? len : draw(s) % (len + 1));
        say(fd, "\x14\x03\x03\0\1\1", 6);
        return is_welcomed(fd, 20);
    case 10: /* an honest hello with a changed byte */
        len = record_hello(s, room, sizeof room);
        if (len == 0) die("a dialler sends nothing");
        room[draw(s) % len] ^= (unsigned char)(1 + draw(s) % 255);
        say(fd, room, len);
        return is_welcomed(fd, 20);
    default: /* a hello without end */
        memset(room, 0, sizeof room);
        for (int i = 0; i < 5; i++) {
            memcpy(room,
                   i ? "\x16\x03\x01\x10\x00" : "\x16\x03\x01\x10\x00\x01\x00\xff\xff\x03\x03",
                   i ? 5 : 11);
            say(fd, room, 5 + 4096);
        }
        return is_welcomed(fd, 20);
    }
}

static void *attack_listeners(void *context)
{
    siege *s = context;
    for (int i; (i = atomic_fetch_add(s->next, 1)) < s->attempts;) {
        int kind = i % KINDS, fd = connect_to(s->ports[i / KINDS % 2]);
        if (fd < 0) continue;
        atomic_fetch_add(&s->by_kind[kind], 1);
        if (attempt(s, kind, fd)) {
            fprintf(stderr, "attempt %d, of kind %d, got past\n", i, kind);
            atomic_fetch_add(s->past, 1);
        }
        close(fd);
    }
    return NULL;
}

/* ---- The honest link ------------------------------------------------------------------------- */

typedef struct traffic {
    dw_link *from, *to;
    atomic_int stop;
    atomic_ullong received; /* messages that arrived unchanged and in order */
    pthread_t sender, receiver;
} traffic;

static void *send_on(void *context)
{
    traffic *t = context;
    static unsigned char message[MESSAGE_BYTES];
    for (uint64_t n = 0; !atomic_load(&t->stop); n++) {
        memset(message, (int)(n & 255), sizeof message);
        memcpy(message, &n, sizeof n);
        dw_status status;
        while ((status = dw_link_send(t->from, TAG, message, sizeof message)) == DW_PENDING)
            dw_link_wait_room(t->from, sizeof message, 100);
        if (status != DW_OK) die(dw_link_why(t->from));
    }
    if (dw_link_send(t->from, TAG, "", 0) != DW_OK) die(dw_link_why(t->from));
    return NULL;
}

static void *receive_on(void *context)
{
    traffic *t = context;
    for (uint64_t n = 0;; n++) {
        void *data;
        size_t len;
        if (dw_link_recv(t->to, TAG, PATIENCE_MS, &data, &len) != DW_OK) die(dw_link_why(t->to));
        uint64_t number = n;
        if (len == MESSAGE_BYTES) memcpy(&number, data, sizeof number);
        int is_good = len == MESSAGE_BYTES && number == n &&
                      ((unsigned char *)data)[MESSAGE_BYTES - 1] == (n & 255);
        dw_link_release(t->to, data);
        if (len == 0) return NULL;
        if (!is_good) die("the honest link lost or changed a message");
        atomic_fetch_add(&t->received, 1);
    }
}

static double per_second(traffic *t, uint64_t since, int64_t since_ns)
{
    return (double)(atomic_load(&t->received) - since) /
           ((double)(dw_link_now_ns() - since_ns) * 1e-9) * MESSAGE_BYTES * 1e-6;
}

/* ---- The program ----------------------------------------------------------------------------- */

static SSL_CTX *client(int version, const certificate *own)
{
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    if (!context || (version && !SSL_CTX_set_max_proto_version(context, version)))
        die("no context");
    if (own && (!SSL_CTX_use_certificate(context, own->x509) ||
                !SSL_CTX_use_PrivateKey(context, own->key)))
        die("no certificate");
    return context;
}

static dw_tls_context *dialler(const unsigned char *key, const char *own_name)
{
    const dw_tls_options options = with_key(key, own_name, "rank/0");
    dw_tls_context *context;
    dw_why why;
    if (dw_tls_context_create(&context, &options, DW_LINK_CONNECT, NULL, &why) != DW_OK)
        die(why.text);
    return context;
}

static void open_honest(port *at, traffic *t)
{
    char uri[64];
    dw_why why;
    const dw_tls_options tls = with_key(group_key, "rank/1", "rank/0");
    const dw_link_options options = {.struct_size = sizeof options,
                                     .open_timeout_ms = PATIENCE_MS,
                                     .tls = &tls,
                                     .max_queued_bytes = 4 << 20};
    start_listening(at, "shaped:rate=1gbit/tcp://127.0.0.1:0");
    snprintf(uri, sizeof uri, "shaped:rate=1gbit/tcp://127.0.0.1:%d", atomic_load(&at->number));
    if (dw_link_open(&t->to, uri, &options, &why) != DW_OK) die(why.text);
    pthread_join(at->thread, NULL);
    if (at->status != DW_OK) die(at->why.text);
    t->from = at->link;
    if (pthread_create(&t->sender, NULL, send_on, t) != 0 ||
        pthread_create(&t->receiver, NULL, receive_on, t) != 0)
        die("no thread");
}

static void run_siege(siege besiegers[BESIEGERS], int attempts, uint64_t seed, const int ports[2],
                      atomic_int counts[2 + KINDS])
{
    pthread_t threads[BESIEGERS];
    certificate stranger;
    certificate_make(&stranger, NULL, &(certificate_wish){.uri = "deltawire:rank/1"});
    for (int i = 0; i < BESIEGERS; i++) {
        besiegers[i] = (siege){.ports = ports,
                               .attempts = attempts,
                               .random = seed + (uint64_t)i,
                               .next = &counts[0],
                               .past = &counts[1],
                               .by_kind = &counts[2],
                               .tls12 = client(TLS1_2_VERSION, &stranger),
                               .tls13 = client(0, NULL),
                               .certified = client(0, &stranger),
                               .wrong_key = dialler(other_key, "rank/1"),
                               .wrong_name = dialler(group_key, "rank/9"),
                               .right = dialler(group_key, "rank/1")};
        if (pthread_create(&threads[i], NULL, attack_listeners, &besiegers[i]) != 0)
            die("no thread");
    }
    for (int i = 0; i < BESIEGERS; i++) {
        siege *s = &besiegers[i];
        pthread_join(threads[i], NULL);
        SSL_CTX_free(s->tls12);
        SSL_CTX_free(s->tls13);
        SSL_CTX_free(s->certified);
        dw_tls_context_destroy(s->wrong_key);
        dw_tls_context_destroy(s->wrong_name);
        dw_tls_context_destroy(s->right);
    }
    certificate_free(&stranger);
}

int main(int argc, char **argv)
{
    int attempts = argc > 1 ? atoi(argv[1]) : 120;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : (uint64_t)time(NULL);
    port waiting = {.number = 0}, honest = {.number = 0};
    traffic t = {.from = NULL};
    siege besiegers[BESIEGERS];
    atomic_int counts[2 + KINDS] = {0};
    signal(SIGPIPE, SIG_IGN); /* OpenSSL's own sockets, which the attackers use, would raise it */
    printf("seed %llu\n", (unsigned long long)seed);
    start_listening(&waiting, "tcp://127.0.0.1:0");
    open_honest(&honest, &t);
    usleep(attempts > 1000 ? 2000000 : 50000);
    uint64_t before = atomic_load(&t.received);
    int64_t begin = dw_link_now_ns();
    usleep(attempts > 1000 ? 5000000 : 50000);
    double in_peace = per_second(&t, before, begin);
    uint64_t first = atomic_load(&t.received);
    int64_t start = dw_link_now_ns();
    const int ports[2] = {atomic_load(&waiting.number), atomic_load(&honest.number)};
    run_siege(besiegers, attempts, seed, ports, counts);
    double under_siege = per_second(&t, first, start),
           seconds = (double)(dw_link_now_ns() - start) * 1e-9;
    atomic_store(&t.stop, 1);
    pthread_join(t.sender, NULL);
    pthread_join(t.receiver, NULL);
    dw_link_close(t.from);
    dw_link_close(t.to);
    __atomic_store_n(&waiting.cancelled, 1, __ATOMIC_RELAXED);
    pthread_join(waiting.thread, NULL);
    if (waiting.status != DW_ERR_CANCELLED)
        die(waiting.status == DW_OK ? "an attacker was accepted as the peer" : waiting.why.text);
    printf("%d attempts in %.1f s, connections by kind:", attempts, seconds);
    for (int i = 0; i < KINDS; i++) printf(" %d", atomic_load(&counts[2 + i]));
    printf("\n%d got past; the honest link carried %llu messages, %.0f MB/s in peace, %.0f MB/s "
           "under siege\n",
           atomic_load(&counts[1]), (unsigned long long)atomic_load(&t.received), in_peace,
           under_siege);
    return atomic_load(&counts[1]) != 0;
}
