/* SPDX-License-Identifier: Apache-2.0
 * raw_peer.c - connections of a peer that the fuzzer plays, and what the end under test sends on
 * them. */
#include "raw_peer.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "link/link.h"

dw_status __wrap_dw_tcp_listen(const dw_transport_open *how, const dw_tcp_options *options,
                               const struct addrinfo *addresses, int *listener);
int __wrap_dw_tcp_connect(const struct sockaddr *address, socklen_t len,
                          const dw_tcp_options *options);

raw_peer peer;

static int listening_fd = -1; /* the listening socket: of the end under test, or ours */
static struct sockaddr_un listening_name;
static socklen_t listening_len;
static unsigned char pattern[RAW_PATTERN_BYTES + 65536];

enum { LASTING = 1024 };
static unsigned char lasting[LASTING][64];
static unsigned n_lasting;

/* ---- Sockets --------------------------------------------------------------------------------- */

static int open_listener(void)
{
    const struct sockaddr_un any = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    REQUIRE(fd >= 0 && bind(fd, (const struct sockaddr *)&any, sizeof any.sun_family) == 0 &&
            listen(fd, 64) == 0);
    listening_len = sizeof listening_name;
    REQUIRE(getsockname(fd, (struct sockaddr *)&listening_name, &listening_len) == 0);
    return fd;
}

static int connect_to_listener(void)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    REQUIRE(fd >= 0);
    if (connect(fd, (const struct sockaddr *)&listening_name, listening_len) == 0) return fd;
    close(fd);
    return -1;
}

static raw_connection *add_connection(int fd, const raw_hello *hello)
{
    raw_connection *connection = &peer.connections[peer.n_connections++];
    *connection = (raw_connection){.fd = fd, .hello = *hello, .says = {.is_sure = 1}};
    return connection;
}

static void note_alone(void)
{
    for (unsigned i = 0; i < peer.n_connections; i++) {
        /* If the end under test listens, it may have closed this one already. */
        const raw_connection *other = &peer.connections[i];
        if (other->fd >= 0 && other->says.is_stripe && !other->is_stalled) return;
    }
    peer.was_alone = 1;
}

void raw_close(raw_connection *connection)
{
    if (connection->fd < 0) return;
    close(connection->fd);
    connection->fd = -1;
    connection->says.is_sure = 0;
    note_alone();
}

const unsigned char *raw_pattern(uint64_t number, uint64_t chunk, unsigned variant)
{
    return pattern + (number * 37 + chunk * 1013 + variant * 4099u) % 65536;
}

void raw_start(void)
{
    uint32_t word = 1;
    for (size_t i = 0; pattern[1] == 0 && i < sizeof pattern; i++) {
        word = word * 1664525u + 1013904223u;
        /* Never 0: a byte of 0 stands for what need not be sent any more. */
        pattern[sizeof pattern - 1 - i] = (unsigned char)(word >> 24 | 1);
    }
    memset(&peer, 0, sizeof peer);
    n_lasting = 0;
    said_forget();
}

void raw_end(void)
{
    for (unsigned i = 0; i < peer.n_connections; i++) raw_close(&peer.connections[i]);
    if (listening_fd >= 0) close(listening_fd);
    listening_fd = -1;
}

/* ---- Hellos ---------------------------------------------------------------------------------- */

static uint64_t odd(int how, uint64_t honest)
{
    static const uint64_t values[] = {0, 1, UINT64_MAX, UINT64_C(1) << 63, 511, 512};
    return how == 0 ? honest : how < 7 ? values[how - 1] : honest + (uint64_t)how - 6;
}

/* The end will not send messages again that we have acknowledged. */
static void note_seen(void)
{
    while (peer.seen < peer.n_numbered &&
           (peer.seen < said.whole || peer.sent[peer.seen].seen == peer.sent[peer.seen].chunks))
        peer.seen++;
}

uint64_t raw_honest_limit(void)
{
    uint64_t bytes = 0;
    note_seen();
    for (uint64_t n = 0; n < peer.seen; n++) bytes += peer.sent[n].len;
    return bytes + DW_TCP_WINDOW_BYTES;
}

static void say_hello(raw_connection *connection)
{
    const raw_hello *hello = &connection->hello;
    static unsigned char all[RAW_CONNECTIONS][DW_TCP_HELLO_BYTES]; /* said_bytes needs them later */
    unsigned char *bytes = all[connection - peer.connections];
    memset(bytes, 0, DW_TCP_HELLO_BYTES);
    memcpy(bytes, "DWTCP\n", 6);
    bytes[6] = (unsigned char)(DW_TCP_VERSION + hello->version);
    bytes[7] = peer.listens ^ hello->role ? 'C' : 'L';
    if (hello->session != 1) memcpy(bytes + 8, peer.session, DW_TCP_SESSION_BYTES);
    if (hello->session == 2) bytes[8 + hello->stripe % DW_TCP_SESSION_BYTES] ^= 1;
    bytes[24] = (unsigned char)hello->stripe;
    bytes[25] = (unsigned char)hello->stripes;
    bytes[26] = (unsigned char)hello->answer;
    dw_put64(bytes + 40, odd(hello->odd_limit, raw_honest_limit()));
    dw_put64(bytes + 32, odd(hello->odd_whole, peer.seen));
    raw_write(connection, bytes, hello->cut ? DW_TCP_HELLO_BYTES / 2 : DW_TCP_HELLO_BYTES);
}

void raw_connect(const raw_hello *hello)
{
    if (peer.n_connections == RAW_CONNECTIONS) return;
    int fd = connect_to_listener();
    if (fd >= 0) say_hello(add_connection(fd, hello));
}

dw_status __wrap_dw_tcp_listen(const dw_transport_open *how, const dw_tcp_options *options,
                               const struct addrinfo *addresses, int *listener)
{
    (void)how, (void)options, (void)addresses;
    *listener = open_listener();
    raw_connect(&(raw_hello){.session = 1, .stripes = peer.stripes});
    return DW_OK;
}

int __wrap_dw_tcp_connect(const struct sockaddr *address, socklen_t len,
                          const dw_tcp_options *options)
{
    (void)address, (void)len, (void)options;
    if (listening_fd < 0) listening_fd = open_listener();
    if (!peer.has_session) memset(peer.session, 0x5a, sizeof peer.session);
    peer.has_session = 1;
    int full = peer.n_connections == RAW_CONNECTIONS,
        fd = peer.refuses || full ? -1 : connect_to_listener();
    errno = ECONNREFUSED;
    if (fd < 0) return -1;
    raw_connection *connection =
        add_connection(accept4(listening_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), &peer.next);
    REQUIRE(connection->fd >= 0);
    peer.next = (raw_hello){.answer = DW_TCP_WELCOME, .stripes = peer.stripes};
    say_hello(connection);
    return fd;
}

/* Whether we sent a hello that the end must welcome. is_new: it asks for a new session. */
static int is_sound(const raw_connection *connection, int *is_new)
{
    static const unsigned char none[DW_TCP_SESSION_BYTES];
    const unsigned char *said_here = connection->says.hello;
    *is_new = memcmp(said_here + 8, none, sizeof none) == 0;
    return connection->says.hello_n == DW_TCP_HELLO_BYTES &&
           memcmp(said_here, "DWTCP\n\2", 7) == 0 && said_here[7] == (peer.listens ? 'C' : 'L') &&
           ((peer.listens && *is_new) ||
            memcmp(said_here + 8, peer.session, sizeof peer.session) == 0);
}

/* Notes that both hellos have arrived, as far as we can know. */
static void note_welcome(raw_connection *connection)
{
    const unsigned char *heard = connection->hello_heard;
    int is_new;
    if (connection->says.is_stripe || connection->hello_n < DW_TCP_HELLO_BYTES ||
        !is_sound(connection, &is_new))
        return;
    if ((peer.listens ? heard : connection->says.hello)[26] != DW_TCP_WELCOME) return;
    if (peer.listens && is_new) {
        memcpy(peer.session, heard + 8, sizeof peer.session);
        peer.stripes = heard[25];
        if (peer.has_session) said_forget_others(&connection->says);
        for (unsigned i = 0; i < peer.n_connections && peer.has_session; i++)
            peer.connections[i].says.is_stripe = 0;
        peer.has_session = 1;
    }
    connection->says.is_stripe = 1;
    connection->last_whole = dw_get64(heard + 32);
    connection->last_limit = dw_get64(heard + 40);
    /* The hello of the first connection contains no session yet. */
    int is_first = !peer.listens && connection == peer.connections;
    REQUIRE((is_first || memcmp(heard + 8, peer.session, sizeof peer.session) == 0) &&
            heard[24] < peer.stripes);
    REQUIRE(connection->last_whole <= said_prefix());
}

static void judge_hello(raw_connection *connection)
{
    const unsigned char *heard = connection->hello_heard;
    int is_new;
    REQUIRE(memcmp(heard, "DWTCP\n\2", 7) == 0 && heard[7] == (peer.listens ? 'L' : 'C'));
    REQUIRE(heard[27] == 0 && dw_get32(heard + 28) == 0);
    if (peer.listens)
        REQUIRE(heard[26] >= DW_TCP_WELCOME && heard[26] <= DW_TCP_TAKEN);
    else
        REQUIRE(heard[26] == 0);
    if (heard[26] == DW_TCP_WELCOME) REQUIRE(is_sound(connection, &is_new));
    note_welcome(connection);
}

/* ---- What the end under test sends ----------------------------------------------------------- */

void raw_note_send(uint64_t len)
{
    raw_sent *sent = &peer.sent[peer.n_sent++];
    *sent = (raw_sent){.len = len,
                       .position = peer.sent_bytes,
                       .chunks = len == 0 ? 1 : (unsigned)((len + (1 << 20) - 1) >> 20)};
    peer.sent_bytes += len;
}

/* Checks that the end sends only messages that it was told to send, as long as they are, and within
 * its limit. */
static void begin_body(raw_connection *connection, int kind, size_t len)
{
    const unsigned char *header = connection->header;
    uint64_t number = dw_get64(header + 8);
    REQUIRE(number < peer.n_sent);
    const raw_sent *sent = &peer.sent[number];
    uint64_t offset = kind == DW_TCP_CHUNK ? dw_get64(header + 32) : 0;
    REQUIRE((kind == DW_TCP_CHUNK) == (sent->len > DW_TCP_CHUNK_BYTES));
    REQUIRE(kind == DW_TCP_MESSAGE ? len == sent->len : dw_get64(header + 40) == sent->len);
    REQUIRE(offset % RAW_PATTERN_BYTES == 0 && (offset < sent->len || offset == 0));
    REQUIRE(len ==
            (sent->len - offset < RAW_PATTERN_BYTES ? sent->len - offset : RAW_PATTERN_BYTES));
    REQUIRE(sent->position + offset < said.limit);
    connection->number = number;
    connection->at = offset;
    connection->body_left = len;
}

static void end_body(const raw_connection *connection)
{
    raw_sent *sent = &peer.sent[connection->number];
    size_t chunk = connection->at == 0 ? 0 : (size_t)((connection->at - 1) >> 20);
    if (!sent->has[chunk]) sent->seen++;
    sent->has[chunk] = 1;
}

static void judge_record(raw_connection *connection)
{
    const unsigned char *header = connection->header;
    int kind = header[0];
    size_t len = dw_get32(header + 4);
    uint64_t whole = dw_get64(header + 16), limit = dw_get64(header + 24);
    connection->header_n = 0;
    REQUIRE(header[1] == 0 && header[2] == 0 && header[3] == 0);
    /* Only what has arrived may be acknowledged. */
    REQUIRE(whole >= connection->last_whole && whole <= said_prefix());
    REQUIRE(limit >= connection->last_limit &&
            limit <= peer.taken_bytes + said_bytes_of(peer.taken) + DW_TCP_NEAR_WINDOW_BYTES);
    connection->last_whole = whole;
    connection->last_limit = limit;
    if (kind == DW_TCP_MESSAGE || kind == DW_TCP_CHUNK) {
        begin_body(connection, kind, len);
        if (len == 0) end_body(connection);
        return;
    }
    REQUIRE(len == 0);
    connection->asked_us += kind == DW_TCP_ASK;
    connection->echoes += kind == DW_TCP_ECHO;
    REQUIRE(connection->echoes <= connection->says.asks);
}

/* When we have acknowledged a message, its memory may be gone, and the end sends zeros for it. */
static void judge_body(raw_connection *connection, const unsigned char *bytes, size_t n)
{
    size_t within = connection->at % RAW_PATTERN_BYTES;
    const unsigned char *right =
        raw_pattern(connection->number, connection->at / RAW_PATTERN_BYTES, 7) + within;
    if (memcmp(bytes, right, n) != 0) {
        REQUIRE(connection->number < said.whole);
        for (size_t i = 0; i < n; i++) REQUIRE(bytes[i] == right[i] || bytes[i] == 0);
    }
    connection->at += n;
    connection->body_left -= n;
    if (connection->body_left == 0) end_body(connection);
}

static void hear(raw_connection *connection, const unsigned char *bytes, size_t n)
{
    while (n > 0) {
        size_t used;
        if (connection->hello_n < DW_TCP_HELLO_BYTES) {
            size_t left = DW_TCP_HELLO_BYTES - connection->hello_n;
            used = n < left ? n : left;
            memcpy(connection->hello_heard + connection->hello_n, bytes, used);
            connection->hello_n += used;
            if (connection->hello_n == DW_TCP_HELLO_BYTES) judge_hello(connection);
        } else if (connection->body_left > 0) {
            size_t room = RAW_PATTERN_BYTES - (size_t)(connection->at % RAW_PATTERN_BYTES);
            used = n < connection->body_left ? n : (size_t)connection->body_left;
            if (used > room) used = room;
            judge_body(connection, bytes, used);
        } else {
            if (connection->header_n == 0) connection->header[0] = bytes[0];
            unsigned char kind = connection->header[0];
            REQUIRE(kind >= DW_TCP_MESSAGE && kind <= DW_TCP_LEAVE && connection->says.is_stripe);
            size_t whole = kind == DW_TCP_CHUNK ? DW_TCP_CHUNK_RECORD_BYTES : DW_TCP_RECORD_BYTES;
            used = n < whole - connection->header_n ? n : whole - connection->header_n;
            memcpy(connection->header + connection->header_n, bytes, used);
            connection->header_n += used;
            if (connection->header_n == whole) judge_record(connection);
        }
        bytes += used;
        n -= used;
    }
}

void raw_hear(void)
{
    static unsigned char room[1 << 18];
    for (unsigned i = 0; i < peer.n_connections; i++) {
        raw_connection *connection = &peer.connections[i];
        while (connection->fd >= 0 && !(connection->is_stalled && connection->says.is_stripe)) {
            ssize_t n = recv(connection->fd, room, sizeof room, 0);
            if (n < 0 && errno == EAGAIN) break;
            peer.moved = 1;
            if (n > 0)
                hear(connection, room, (size_t)n);
            else
                raw_close(connection);
        }
    }
}

int raw_is_stripe(const raw_connection *connection)
{
    return connection->fd >= 0 && connection->says.is_stripe;
}

/* ---- What we send ---------------------------------------------------------------------------- */

void raw_header(unsigned char *header, int kind, uint64_t number, size_t len)
{
    memset(header, 0, DW_TCP_CHUNK_RECORD_BYTES);
    header[0] = (unsigned char)kind;
    dw_put32(header + 4, (uint32_t)len);
    dw_put64(header + 8, number);
    dw_put64(header + 24, raw_honest_limit());
    dw_put64(header + 16, peer.seen);
}

/* The end under test must not stop reading a stripe: if it needed turns without number, that would
 * be a hang. */
void raw_write(raw_connection *connection, const unsigned char *bytes, size_t n)
{
    enum { TURNS = 1000 };
    int idle = 0;
    int lasts = (uintptr_t)bytes - (uintptr_t)pattern < sizeof pattern;
    if (!lasts && n <= sizeof lasting[0] && !said_is_between(&connection->says)) {
        /* In the middle of a body, a header counts as bytes of the message, which must be kept. */
        REQUIRE(n_lasting < LASTING);
        unsigned char *copy = lasting[n_lasting++];
        memcpy(copy, bytes, n);
        bytes = copy;
    }
    said_bytes(&connection->says, bytes, n, peer.taken, peer.n_numbered, peer.longest);
    if (peer.written + n > DW_TCP_WINDOW_BYTES &&
        said_undelivered(peer.taken) > DW_TCP_WINDOW_BYTES)
        said.may_fail = 1;
    while (n > 0 && connection->fd >= 0) {
        ssize_t sent = send(connection->fd, bytes, n, MSG_NOSIGNAL);
        if (sent > 0) {
            note_welcome(connection);
            bytes += sent;
            n -= (size_t)sent;
            peer.written += (size_t)sent;
            peer.moved = 1;
            idle = 0;
        } else if (errno != EAGAIN || !target_turn()) {
            break;
        } else {
            raw_hear();
            REQUIRE(++idle < TURNS || !raw_is_stripe(connection));
            if (idle == TURNS) break;
        }
    }
    if (n > 0) connection->says.is_sure = 0;
}
