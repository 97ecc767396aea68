/* SPDX-License-Identifier: Apache-2.0
 * fuzz_records.c - everything that a peer of the backend tcp can send after the handshake. The
 * input is a program that says what the peer sends, and when.
 *
 * It is checked that the link gets complete messages, in order and once, as the peer sent them;
 * that the end acknowledges nothing that has not arrived and sends nothing unasked; that memory is
 * bounded; and that errors occur only if the peer caused them. Functions named say_... send
 * something in the name of the peer. */
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>

#include "clock.h"
#include "common/backends.h"
#include "link/link.h"
#include "raw_peer.h"

enum { WRITTEN_MOST = 40 << 20, TAKEN_MOST = 6000, STEPS_MOST = 400, MEBIBYTE = 1 << 20 };

/* Takes the place of the link that uses the backend. */
static struct {
    dw_tcp_end *end;
    dw_tcp_request send_request, recv_request;
    unsigned char *room;
    size_t cap;
    int is_paused, copies, grows;
    unsigned char *sending, *kept[RAW_SENT_MOST];
    uint64_t answered, let_go;
    dw_status status; /* DW_OK until it has failed */
} stand_in;

/* ---- In place of a link ---------------------------------------------------------------------- */

static void fail(dw_status status, const dw_why *why)
{
    stand_in.status = status;
    REQUIRE(why->text[0] && memchr(why->text, 0, sizeof why->text));
    int is_owed = stand_in.end->sending.acked < stand_in.end->sending.next_message; /* the peer's
                                                                               acknowledgement */
    int is_earned = status == DW_ERR_PROTOCOL  ? said.may_fail
                    : status == DW_ERR_TIMEOUT ? peer.was_alone || is_owed
                                               : status == DW_ERR_PEER && peer.was_alone;
    if (!is_earned) fprintf(stderr, "%d: %s\n", (int)status, why->text);
    REQUIRE(is_earned);
}

static void post(size_t cap)
{
    stand_in.room = malloc(cap);
    stand_in.cap = cap;
    REQUIRE(stand_in.room != NULL);
    REQUIRE(dw_transport_tcp.recv(stand_in.end, &stand_in.recv_request, stand_in.room, cap) ==
            DW_OK);
}

static void take_message(size_t len)
{
    REQUIRE(len <= stand_in.cap && len <= peer.longest);
    raw_hear(); /* perhaps the end has just welcomed the connection that sent the message */
    said_check(peer.taken, stand_in.room, len);
    peer.taken++;
    peer.taken_bytes += len;
    peer.moved = 1;
    free(stand_in.room);
    stand_in.room = NULL;
}

static void receive(void)
{
    size_t len = 0;
    dw_why why = {.text = ""};
    dw_status status;
    if (!stand_in.room && !stand_in.is_paused) post(DW_LINK_ROOM_BYTES + DW_LINK_HEADER_BYTES);
    if (stand_in.room)
        status = dw_transport_tcp.test(stand_in.end, &stand_in.recv_request, &len, &why);
    else
        status = dw_transport_tcp.turn(stand_in.end, &why) == DW_OK ? DW_PENDING
                                                                    : stand_in.end->failure.status;
    if (status == DW_OK) {
        take_message(len);
    } else if (status == DW_ERR_BUFFER_TOO_SMALL) {
        REQUIRE(len > stand_in.cap);
        free(stand_in.room);
        stand_in.room = NULL;
        if (len > peer.longest)
            fail(DW_ERR_PROTOCOL, &(dw_why){.text = "too long for the link"});
        else
            post(len);
    } else if (status != DW_PENDING) {
        fail(status, &why);
    }
}

/* Frees the memory of sends that the end no longer keeps. It must keep them until we have
 * acknowledged them. */
static void let_go(void)
{
    dw_transport_state state = {.struct_size = sizeof state, .wait_fd = -1};
    dw_transport_tcp.poll(stand_in.end, 0, &state);
    REQUIRE(state.kept_sends <= stand_in.answered - stand_in.let_go);
    while (stand_in.answered - stand_in.let_go > state.kept_sends)
        free(stand_in.kept[stand_in.let_go++ % RAW_SENT_MOST]);
    if (!stand_in.copies) REQUIRE(stand_in.let_go <= said.whole);
}

static void test_send(void)
{
    size_t len = 0;
    dw_why why = {.text = ""};
    dw_status status = dw_transport_tcp.test(stand_in.end, &stand_in.send_request, &len, &why);
    peer.n_numbered = peer.n_sent - (status != DW_OK && !stand_in.send_request.is_kept);
    if (status == DW_PENDING) return;
    if (status != DW_OK) {
        fail(status, &why);
        return;
    }
    REQUIRE(len == peer.sent[stand_in.answered].len);
    stand_in.kept[stand_in.answered++ % RAW_SENT_MOST] = stand_in.sending;
    stand_in.sending = NULL;
    peer.moved = 1;
}

int target_turn(void)
{
    if (stand_in.status == DW_OK) receive();
    if (stand_in.status == DW_OK && stand_in.sending) test_send();
    if (stand_in.status == DW_OK) let_go();
    raw_hear();
    fuzz_clock_move(20000);
    return stand_in.status == DW_OK;
}

static void begin_send(size_t len)
{
    if (stand_in.sending || peer.n_sent == RAW_SENT_MOST) return;
    stand_in.sending = malloc(len ? len : 1);
    REQUIRE(stand_in.sending != NULL);
    for (size_t at = 0; at < len; at += RAW_PATTERN_BYTES) {
        size_t n = len - at < RAW_PATTERN_BYTES ? len - at : RAW_PATTERN_BYTES;
        memcpy(stand_in.sending + at, raw_pattern(peer.n_sent, at / RAW_PATTERN_BYTES, 7), n);
    }
    raw_note_send(len);
    REQUIRE(dw_transport_tcp.send(stand_in.end, &stand_in.send_request, stand_in.sending, len) ==
            DW_OK);
    test_send();
}

/* ---- Memory ---------------------------------------------------------------------------------- */

static void count(const dw_tcp_stash *list, uint64_t *held, uint64_t *counted)
{
    for (; list; list = list->next) {
        *held += list->cap;
        *counted += list->len;
    }
}

static void check_memory(void)
{
    uint64_t held = 0, counted = 0, unused = 0, none = 0;
    for (unsigned i = 0; i < DW_TCP_INCOMING_MOST; i++)
        count(stand_in.end->receiving.incoming[i].stash, &held, &counted);
    for (unsigned i = 0; i < stand_in.end->settings.options.stripes; i++)
        count(stand_in.end->connections.stripes[i].in.stash, &held, &counted);
    REQUIRE(counted == stand_in.end->receiving.stash_bytes);
    count(stand_in.end->receiving.unused, &unused, &none);
    /* Arrived chunks may fill the window and exceed it by two chunks. As much memory may be kept
     * unused, and every message takes a little more than its bytes. */
    REQUIRE(unused <= DW_TCP_WINDOW_BYTES);
    REQUIRE(counted <= DW_TCP_WINDOW_BYTES + 4 * MEBIBYTE);
    REQUIRE(held <= 2 * DW_TCP_WINDOW_BYTES + 4 * MEBIBYTE + DW_TCP_INCOMING_MOST * 1024);
}

/* ---- The program ----------------------------------------------------------------------------- */

/* The length of the peer's message number n, which is always the same. With `grows`, of each two
 * messages one is longer than all before. */
static size_t length_of(uint64_t number)
{
    if (stand_in.grows) return number % 2 == 0 ? 10 : 400000 + 7000 * (size_t)(number / 2 % 90);
    static const size_t lengths[] = {40, 10,      1200000, 4088, 0, 1 << 20, 16384, (1 << 20) + 1,
                                     30, 3000000, 70000,   5000};
    return lengths[number % (sizeof lengths / sizeof *lengths)];
}

static raw_connection *pick(fuzz_input *input)
{
    return &peer.connections[fuzz_byte(input) % peer.n_connections];
}

static void write_body(raw_connection *connection, uint64_t number, uint64_t chunk,
                       unsigned variant, size_t len)
{
    for (size_t done = 0; done < len && peer.written < WRITTEN_MOST; done += RAW_PATTERN_BYTES) {
        size_t n = len - done < RAW_PATTERN_BYTES ? len - done : RAW_PATTERN_BYTES;
        raw_write(connection, raw_pattern(number, chunk, variant), n);
    }
}

/* Sends the correct record of one chunk of message n, or the first `most` bytes of its body. */
static void write_chunk(raw_connection *connection, uint64_t number, size_t chunk, unsigned variant,
                        size_t most)
{
    unsigned char header[DW_TCP_CHUNK_RECORD_BYTES];
    size_t total = length_of(number), offset = chunk * RAW_PATTERN_BYTES, left = total - offset;
    size_t len = left < RAW_PATTERN_BYTES ? left : RAW_PATTERN_BYTES;
    int is_chunk = total > DW_TCP_CHUNK_BYTES;
    if (number >= SAID_NUMBERS || said_is_full() || !said_is_between(&connection->says)) return;
    raw_header(header, is_chunk ? DW_TCP_CHUNK : DW_TCP_MESSAGE, number, len);
    dw_put64(header + 32, offset);
    dw_put64(header + 40, total);
    raw_write(connection, header, is_chunk ? DW_TCP_CHUNK_RECORD_BYTES : DW_TCP_RECORD_BYTES);
    write_body(connection, number, chunk, variant, len < most ? len : most);
}

static uint64_t pick_number(fuzz_input *input)
{
    unsigned how = fuzz_byte(input);
    uint64_t next = said_prefix();
    if (how < 128) return next + how % 4;
    if (how < 192) return next > how % 64 ? next - how % 64 : 0;
    if (how < 250) return peer.taken + DW_TCP_INCOMING_MOST - 1 - how % 8;
    return (const uint64_t[]){peer.taken + DW_TCP_INCOMING_MOST,
                              UINT64_MAX,
                              UINT64_C(1) << 32,
                              next + 500,
                              SAID_NUMBERS - 1,
                              0}[how - 250];
}

/* The first chunk that no connection has sent yet, or any chunk. */
static size_t pick_chunk(fuzz_input *input, uint64_t number)
{
    size_t total = length_of(number),
           chunks = total == 0 ? 1 : (total + RAW_PATTERN_BYTES - 1) / RAW_PATTERN_BYTES;
    unsigned how = fuzz_byte(input);
    size_t chunk = 0;
    if (how >= 64) return how % chunks;
    while (chunk + 1 < chunks && said_has_chunk(number, total, chunk)) chunk++;
    return chunk;
}

static void say_chunk(fuzz_input *input, int is_cut)
{
    raw_connection *connection = pick(input);
    uint64_t number = pick_number(input);
    size_t chunk = pick_chunk(input, number);
    unsigned variant = fuzz_byte(input);
    write_chunk(connection, number, chunk, variant < 240 ? 0 : variant,
                is_cut ? fuzz_below(input, 65536) * 16 : SIZE_MAX);
}

static void say_rest(fuzz_input *input)
{
    raw_connection *connection = pick(input);
    size_t n = fuzz_byte(input) < 128 ? SIZE_MAX : fuzz_below(input, 65536);
    if (connection->says.body_left < n) n = (size_t)connection->says.body_left;
    write_body(connection, peer.taken, 0, 0, n < (2 << 20) ? n : 2 << 20);
}

static void say_many(fuzz_input *input)
{
    raw_connection *connection = pick(input);
    uint64_t number = pick_number(input);
    for (unsigned i = fuzz_below(input, 1100);
         i > 0 && number < SAID_NUMBERS && peer.written < WRITTEN_MOST; i--, number++) {
        uint64_t swapped = number ^ (uint64_t)stand_in.grows;
        if (stand_in.grows || length_of(number) < 100)
            write_chunk(connection, swapped, 0, 0, SIZE_MAX);
    }
}

/* Sends chunks of later messages; the end may store only a limited number of them. */
static void say_early(fuzz_input *input)
{
    raw_connection *connection = pick(input);
    uint64_t number = said_prefix() + 1;
    for (unsigned i = fuzz_below(input, 40);
         i > 0 && number < SAID_NUMBERS && stand_in.status == DW_OK && peer.written < WRITTEN_MOST;
         number++) {
        if (length_of(number) < MEBIBYTE) continue;
        write_chunk(connection, number, 0, 0, SIZE_MAX);
        i--;
    }
}

static uint64_t odd_total(fuzz_input *input, uint64_t number)
{
    const uint64_t totals[] = {length_of(number),
                               MEBIBYTE + 1,
                               2 * MEBIBYTE,
                               3 * MEBIBYTE - 1,
                               peer.longest,
                               peer.longest + 1,
                               UINT64_C(1) << 40,
                               (UINT64_C(1) << 40) + 1,
                               UINT64_MAX,
                               0,
                               20,
                               MEBIBYTE,
                               UINT64_C(257) << 20};
    return totals[fuzz_byte(input) % (sizeof totals / sizeof *totals)];
}

static void say_odd(fuzz_input *input)
{
    unsigned char header[DW_TCP_CHUNK_RECORD_BYTES];
    raw_connection *connection = pick(input);
    uint64_t number = pick_number(input), total = odd_total(input, number);
    unsigned how = fuzz_byte(input), what = fuzz_byte(input);
    uint64_t chunk_len = total < UINT64_C(1) << 50 ? dw_tcp_chunk_len(total) : MEBIBYTE;
    uint64_t offset = how % 8 * chunk_len + (how >= 224);
    uint64_t len = total > offset && total - offset < chunk_len ? total - offset : chunk_len;
    if (how >= 200 && how < 224) len = fuzz_below(input, 65536) * 64;
    int kind =
        what < 160 ? total <= MEBIBYTE && what < 80 ? DW_TCP_MESSAGE : DW_TCP_CHUNK : what % 9;
    raw_header(header, kind, number, (size_t)(kind == DW_TCP_MESSAGE && total < len ? total : len));
    unsigned whole = fuzz_byte(input), limit = fuzz_byte(input);
    if (whole >= 200)
        dw_put64(header + 16, whole >= 250 ? UINT64_MAX : peer.seen + (whole - 200) % 4);
    if (whole >= 150 && whole < 200) dw_put64(header + 16, 0);
    if (limit >= 200)
        dw_put64(header + 24, (const uint64_t[]){0, UINT64_MAX, 1, MEBIBYTE}[limit % 4]);
    dw_put64(header + 32, offset);
    dw_put64(header + 40, total);
    raw_write(connection, header,
              kind == DW_TCP_CHUNK ? DW_TCP_CHUNK_RECORD_BYTES : DW_TCP_RECORD_BYTES);
    unsigned body = fuzz_byte(input);
    uint64_t wanted = connection->says.body_left;
    if (body < 128)
        write_body(connection, number, offset / chunk_len, body & 1,
                   (size_t)(wanted < 2 * MEBIBYTE ? wanted : 2 * MEBIBYTE));
    else if (body < 192)
        write_body(connection, number, offset / chunk_len, 0,
                   (size_t)(wanted < 999 ? wanted : 999));
}

static void say_raw(fuzz_input *input)
{
    raw_connection *connection = pick(input);
    size_t n = fuzz_byte(input) % 64;
    if (n > input->left) n = input->left;
    raw_write(connection, input->data, n);
    input->data += n;
    input->left -= n;
}

static void say_word(raw_connection *connection, int kind)
{
    unsigned char header[DW_TCP_CHUNK_RECORD_BYTES];
    if (!said_is_between(&connection->says)) return;
    raw_header(header, kind, 0, 0);
    raw_write(connection, header, DW_TCP_RECORD_BYTES);
}

static void reconnect(fuzz_input *input)
{
    unsigned how = fuzz_byte(input), which = fuzz_byte(input), counts = fuzz_byte(input);
    raw_hello hello = {
        .stripe = which % 4, .stripes = peer.stripes, .answer = peer.listens ? 0 : DW_TCP_WELCOME};
    if (how >= 128) hello.session = how % 3;
    if (how >= 192) hello.stripe = which;
    if (how >= 208) hello.answer = which % 5;
    if (how >= 224) hello.version = which % 2;
    if (how >= 232) hello.role = which % 2;
    if (how >= 240) hello.cut = 1;
    if (counts >= 128) hello.odd_whole = counts % 10;
    if (counts >= 192) hello.odd_limit = counts % 9;
    if (peer.listens)
        raw_connect(&hello);
    else
        peer.next = hello;
    peer.refuses = !peer.listens && how < 16;
}

static void pass_time(fuzz_input *input)
{
    static const int64_t times_ms[] = {1, 3, 60, 110, 510, 1100, 2100, 10100, 61000};
    int64_t step = times_ms[fuzz_byte(input) % 9];
    for (int i = 0; i < 3; i++) {
        fuzz_clock_move(step * DW_NS_PER_MS);
        target_turn();
    }
}

static void do_one(fuzz_input *input, unsigned what)
{
    static const size_t lengths[] = {10,    0,       4088,          16384,  16385,
                                     70000, 1 << 20, (1 << 20) + 1, 3000000};
    switch (what) {
    case 0:
    case 1:
    case 2: say_chunk(input, 0); break;
    case 3: say_chunk(input, 1); break;
    case 4: say_rest(input); break;
    case 5: say_odd(input); break;
    case 6: say_raw(input); break;
    case 7: raw_close(pick(input)); break;
    case 8: reconnect(input); break;
    case 9: begin_send(lengths[fuzz_byte(input) % 9]); break;
    case 10: stand_in.is_paused ^= 1; break;
    case 11: pass_time(input); break;
    case 12: pick(input)->is_stalled ^= 1; break;
    case 13: say_word(pick(input), DW_TCP_STATE + fuzz_byte(input) % 4); break;
    case 14:
        if (fuzz_byte(input) % 8 == 0)
            say_early(input);
        else
            say_many(input);
        break;
    default:
        for (int i = fuzz_byte(input) % 16; i > 0; i--) target_turn();
    }
}

/* ---- The end --------------------------------------------------------------------------------- */

/* Runs the end until nothing moves any more, however much time passes on its clock. */
static void settle(void)
{
    enum { IDLE = 12, TURNS = 100000 };
    int idle = 0;
    for (int turns = 0; idle < IDLE && stand_in.status == DW_OK; turns++) {
        peer.moved = 0;
        fuzz_clock_move(DW_NS_PER_MS);
        target_turn();
        idle = peer.moved ? 0 : idle + 1;
        REQUIRE(turns < TURNS);
    }
}

/* Behaves as a healthy peer: completes what was begun, and acknowledges everything that arrived. */
static raw_connection *say_what_is_left(void)
{
    raw_connection *found = NULL;
    for (unsigned i = 0; i < peer.n_connections; i++) {
        raw_connection *connection = &peer.connections[i];
        connection->is_stalled = 0;
        if (!raw_is_stripe(connection) || !connection->says.is_sure) continue;
        if (connection->says.body_left <= 2 * MEBIBYTE && !connection->says.is_nonsense) {
            write_body(connection, peer.taken, 0, 0, (size_t)connection->says.body_left);
        }
        if (connection->asked_us) say_word(connection, DW_TCP_ECHO);
        say_word(connection, DW_TCP_STATE);
        if (raw_is_stripe(connection) && said_is_between(&connection->says)) found = connection;
    }
    return found;
}

/* Whether the peer has sent something that the end must have refused. */
static int must_have_failed(void)
{
    for (unsigned i = 0; i < peer.n_connections; i++) {
        const said_stream *says = &peer.connections[i].says;
        if (!raw_is_stripe(&peer.connections[i]) || !says->is_sure) continue;
        if (says->is_nonsense || says->most_whole > peer.n_sent ||
            says->most_number >= peer.taken + DW_TCP_INCOMING_MOST)
            return 1;
    }
    return said_two_lengths();
}

static void check_the_end(void)
{
    stand_in.is_paused = 0;
    raw_connection *talker = NULL;
    for (int i = 0; i < 8; i++) {
        settle();
        talker = say_what_is_left();
    }
    settle();
    check_memory();
    if (stand_in.status != DW_OK) return;
    REQUIRE(!must_have_failed());
    uint64_t told = 0;
    for (unsigned i = 0; i < peer.n_connections; i++) {
        int unread = 0;
        if (!raw_is_stripe(&peer.connections[i])) continue;
        REQUIRE(ioctl(peer.connections[i].fd, SIOCOUTQ, &unread) == 0 && unread == 0);
        if (peer.connections[i].last_whole > told) told = peer.connections[i].last_whole;
    }
    if (said.may_fail) return;
    REQUIRE(!said_is_whole(peer.taken, 1));
    if (!talker) return;
    REQUIRE(told >= peer.taken);
    REQUIRE(!stand_in.sending);
    for (uint64_t n = said.whole; n < peer.n_sent; n++)
        REQUIRE(peer.sent[n].seen == peer.sent[n].chunks); /* except what we acknowledged */
}

static void open_end(fuzz_input *input)
{
    static const volatile int never;
    unsigned how = fuzz_byte(input), stripes = fuzz_byte(input) % 4 + 1;
    char address[64];
    dw_why why = {.text = ""};
    snprintf(address, sizeof address, "127.0.0.1:7?stripes=%u&grace=%s", stripes,
             how & 8 ? "0ms" : "2s");
    peer.listens = how & 1;
    peer.stripes = (how >> 4 & 3) + 1;
    if (!peer.listens && peer.stripes > stripes) peer.stripes = stripes;
    peer.longest = how & 2 ? UINT64_C(300) << 20 : 8 << 20;
    peer.next = (raw_hello){.answer = DW_TCP_WELCOME, .stripes = peer.stripes};
    stand_in.copies = how >> 2 & 1;
    stand_in.grows = how >> 7;
    const dw_transport_open as = {.struct_size = sizeof as,
                                  .address = address,
                                  .role = peer.listens ? DW_LINK_LISTEN : DW_LINK_CONNECT,
                                  .timeout_ms = 60000,
                                  .peer_timeout_ms = 60000,
                                  .cancelled = &never,
                                  .why = &why,
                                  .longest_message = peer.longest,
                                  .heeds_kept_sends = !stand_in.copies};
    stand_in.end = calloc(1, dw_transport_tcp.endpoint_bytes);
    REQUIRE(stand_in.end && dw_transport_tcp.open(stand_in.end, &as) == DW_OK);
    /* If the end connects, it opens all stripes itself; if it listens, the input decides. */
    for (int i = 0; i < 4; i++) target_turn();
    for (unsigned i = 1; peer.listens && (how & 64) && i < peer.stripes; i++)
        raw_connect(&(raw_hello){.stripe = i, .stripes = peer.stripes});
    for (int i = 0; i < 4; i++) target_turn();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input input = {data, size};
    memset(&stand_in, 0, sizeof stand_in);
    fuzz_clock_start();
    raw_start();
    open_end(&input);
    for (int i = 0; i < STEPS_MOST && input.left > 0 && stand_in.status == DW_OK; i++) {
        unsigned what = fuzz_byte(&input);
        do_one(&input, what & 15);
        if (what < 128) target_turn();
        check_memory();
        if (peer.written >= WRITTEN_MOST || peer.taken >= TAKEN_MOST || said_is_full()) break;
    }
    check_the_end();
    if (stand_in.status != DW_OK && stand_in.room) {
        size_t len;
        dw_why why;
        dw_status ended =
            stand_in.end->failure.status == DW_OK ? stand_in.status : stand_in.end->failure.status;
        REQUIRE(dw_transport_tcp.test(stand_in.end, &stand_in.recv_request, &len, &why) == ended);
    }
    dw_transport_tcp.close(stand_in.end);
    while (stand_in.let_go < stand_in.answered)
        free(stand_in.kept[stand_in.let_go++ % RAW_SENT_MOST]);
    free(stand_in.sending);
    free(stand_in.room);
    free(stand_in.end);
    raw_end();
    return 0;
}
