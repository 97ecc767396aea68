/* SPDX-License-Identifier: Apache-2.0
 * fuzz_link.c - everything that a peer can send over a link: greetings, messages, the end, and what
 * a channel makes of it.
 *
 * The backend is in memory and without faults. The input is a program that says what arrives, which
 * functions are called on this side, and how time passes. It is checked that messages arrive as
 * they were sent and in order per tag, that errors occur only if the peer caused them, and that
 * memory is bounded. Functions named say_... send something in the name of the peer. */
#include "mem_wire.h"
#include "peer_channel.h"
#include "unthreaded.h"

enum {
    TAGS = 4,
    EXPECTED = 4096,
    STEPS_MOST = 300,
    SAID_MOST = 4 << 20,
};

static const uint32_t tags[TAGS] = {0, 7, 0xffffffff, 96};
static const dw_transport *const transports[] = {&mem_wire_transport, NULL};

/* The messages that must be received by one tag: their numbers and lengths. */
typedef struct expected {
    uint32_t number[EXPECTED], len[EXPECTED];
    unsigned first, n;
} expected;

static struct run {
    dw_link *link;
    uint64_t max_queued, max_message, peer_max;
    expected by_tag[TAGS], leaving;
    uint32_t numbers;
    uint64_t said_bytes;
    int handled[TAGS];
    int may_end[64]; /* the link may fail with this status (the index is the negative) */
    int must_end;    /* the link must fail: the peer has sent something invalid */
    int has_waited;
    int has_met, is_over; /* the link has sent its hello; its bye */
    dw_status ended;
    int has_channel; /* it may be opened */
} run;

/* ---- Messages -------------------------------------------------------------------------------- */

/* The bytes of a message: where in one long array they begin depends on the message's number. */
static const unsigned char *pattern(uint32_t number)
{
    static unsigned char all[(1 << 18) + 256];
    for (size_t i = 0; all[1] == 0 && i < sizeof all; i++)
        all[sizeof all - 1 - i] = (unsigned char)(i * 7 + (i >> 8) + (i >> 16) * 3) | 1;
    return all + number % 255;
}

static void fill(unsigned char *data, size_t len, uint32_t number)
{
    if (len > 0) memcpy(data, pattern(number), len);
}

static void require_filled(const unsigned char *data, size_t len, uint32_t number)
{
    if (len > 0) REQUIRE(memcmp(data, pattern(number), len) == 0);
}

static int expect(expected *list, uint32_t number, size_t len)
{
    if (list->n == EXPECTED) return 0;
    list->number[list->n] = number;
    list->len[list->n++] = (uint32_t)len;
    return 1;
}

static void take_expected(expected *list, const unsigned char *data, size_t len)
{
    REQUIRE(list->first < list->n && list->len[list->first] == len);
    require_filled(data, len, list->number[list->first++]);
}

static unsigned char *add_message(uint32_t tag, uint32_t kind, size_t len)
{
    unsigned char *data = mem_wire_add(DW_LINK_HEADER_BYTES + len);
    if (!data) return NULL;
    dw_put32(data, tag);
    dw_put32(data + 4, kind);
    return data + DW_LINK_HEADER_BYTES;
}

/* Checks what the link sends: a hello, messages in the order of the calls, a bye. */
static void look_at_sent(const unsigned char *data, size_t len)
{
    uint32_t tag = dw_get32(data), kind = dw_get32(data + 4);
    data += DW_LINK_HEADER_BYTES;
    len -= DW_LINK_HEADER_BYTES;
    REQUIRE(!run.is_over && kind == (run.has_met ? kind == DW_KIND_BYE ? DW_KIND_BYE : DW_KIND_DATA
                                                 : DW_KIND_HELLO));
    run.has_met = 1;
    run.is_over = kind == DW_KIND_BYE;
    if (kind != DW_KIND_DATA) return;
    REQUIRE(len <= run.peer_max);
    if (tag >> 8 == PEER_CHANNEL)
        peer_channel_hear(data, len);
    else
        take_expected(&run.leaving, data, len);
}

/* ---- What must hold at all times ------------------------------------------------------------- */

static void may_end_with(dw_status status)
{
    run.may_end[-status] = 1;
}

static void check(void)
{
    const dw_link *link = run.link;
    uint64_t room = 0;
    REQUIRE(link->failure.status == DW_OK ||
            (link->failure.status < 0 && run.may_end[-link->failure.status]));
    REQUIRE((link->failure.status == DW_OK) == (dw_link_why(run.link)[0] == '\0'));
    if (run.ended != DW_OK) REQUIRE(link->failure.status == run.ended);
    run.ended = link->failure.status;
    /* At least one message always fits. The answers of channels may exceed the limit of the queue,
     * but not without bound. */
    uint64_t longest = run.max_message + DW_BUFFER_PREFIX_BYTES + DW_LINK_ROOM_BYTES;
    /* A buffer's capacity is a power of two, unlike the limit of 4000; and its header counts. */
    uint64_t heaviest = (run.max_message < 4096 ? 4096 : run.max_message) + 512;
    uint64_t sends = run.has_channel            ? 2 * run.max_queued + 2 * longest
                     : run.max_queued > longest ? run.max_queued
                                                : longest;
    REQUIRE(link->queue.bytes <= sends);
    if (link->inboxes.bytes <= run.max_queued) run.has_waited = 0;
    if (!run.has_waited) REQUIRE(link->inboxes.bytes <= run.max_queued + heaviest);
    REQUIRE(link->inboxes.bytes <= link->settings.max_arrived_bytes + heaviest);
    for (const dw_buffer *buffer = link->pool.newest; buffer; buffer = buffer->older)
        room += buffer->cap;
    REQUIRE(link->pool.free_bytes <= link->pool.keep_bytes && link->pool.free_bytes <= room);
}

/* ---- The peer -------------------------------------------------------------------------------- */

static size_t length(fuzz_input *input)
{
    const size_t lengths[] = {10, 0, 1, 4096, 4097, 70000, (size_t)run.max_message, 300, 8192};
    size_t len = lengths[fuzz_byte(input) % (sizeof lengths / sizeof *lengths)];
    return len < run.max_message ? len : (size_t)run.max_message;
}

static void say_message(fuzz_input *input)
{
    unsigned tag = fuzz_byte(input) % TAGS, times = fuzz_byte(input);
    size_t len = length(input);
    for (unsigned i = times < 200 ? 1 : times; i > 0; i--) {
        if (run.by_tag[tag].n == EXPECTED || run.said_bytes > SAID_MOST) return;
        run.said_bytes += len;
        unsigned char *data = add_message(tags[tag], DW_KIND_DATA, len);
        if (!data) return;
        fill(data, len, run.numbers);
        expect(&run.by_tag[tag], run.numbers++, len);
    }
}

static void say_odd(fuzz_input *input)
{
    unsigned how = fuzz_byte(input), len = fuzz_byte(input) % 40;
    unsigned char *data;
    if (how < 64) { /* longer than the limit */
        size_t more = how == 0 ? 0 : (size_t)run.max_message + how;
        if (!(data = add_message(tags[how % TAGS], DW_KIND_DATA, more))) return;
        memset(data, 0, more);
        if (how == 0) wire.queue[wire.n - 1].announced = SIZE_MAX;
    } else if (how < 128) { /* shorter than a header */
        if (!(data = mem_wire_add(len % DW_LINK_HEADER_BYTES))) return;
        memset(data, 1, len % DW_LINK_HEADER_BYTES);
    } else if (how < 200) {
        if (!add_message(fuzz_byte(input), DW_KIND_HELLO + (how > 180) * how, len)) return;
        memset(wire.queue[wire.n - 1].data + DW_LINK_HEADER_BYTES, 0, len);
    } else {
        if (!add_message(fuzz_byte(input), DW_KIND_BYE, len)) return;
        memset(wire.queue[wire.n - 1].data + DW_LINK_HEADER_BYTES, 0, len);
        may_end_with(DW_ERR_PEER);
        return;
    }
    may_end_with(DW_ERR_PROTOCOL);
    run.must_end = 1;
}

/* ---- This side ------------------------------------------------------------------------------- */

static void receive(fuzz_input *input)
{
    unsigned tag = fuzz_byte(input) % TAGS;
    int timeout_ms = (int[]){0, 0, 5, 200}[fuzz_byte(input) % 4];
    void *data;
    size_t len;
    if (timeout_ms > 0) run.has_waited = 1;
    dw_status status = dw_link_recv(run.link, tags[tag], timeout_ms, &data, &len);
    if (run.handled[tag]) {
        REQUIRE(status == DW_ERR_ARGUMENT);
    } else if (status == DW_OK) {
        /* After an invalid message, no message is delivered. */
        REQUIRE(run.link->failure.status == DW_OK || run.link->failure.status == DW_ERR_PEER);
        take_expected(&run.by_tag[tag], data, len);
        dw_link_release(run.link, data);
    } else {
        REQUIRE(status == DW_PENDING || status == run.link->failure.status);
    }
}

static void handle(void *context, const void *data, size_t len)
{
    take_expected(context, data, len);
    if (len > 0 && run.link->failure.status == DW_OK) { /* handlers may send messages */
        unsigned char echo[10];
        fill(echo, sizeof echo, run.numbers);
        if (!expect(&run.leaving, run.numbers, sizeof echo)) return;
        if (dw_link_send(run.link, 7, echo, sizeof echo) != DW_OK)
            run.leaving.n--;
        else
            run.numbers++;
    }
}

static void set_handler(fuzz_input *input)
{
    unsigned tag = fuzz_byte(input) % TAGS;
    int sets = fuzz_byte(input) % 4 != 0;
    if (dw_link_handle(run.link, tags[tag], sets ? handle : NULL, sets ? &run.by_tag[tag] : NULL) ==
        DW_OK)
        run.handled[tag] = sets;
}

static void send_message(fuzz_input *input)
{
    unsigned tag = fuzz_byte(input) % TAGS;
    size_t len = length(input);
    void *room;
    dw_status status = dw_link_send_begin(run.link, tags[tag], len, &room);
    if (status == DW_PENDING)
        REQUIRE(run.link->queue.bytes + len + DW_BUFFER_PREFIX_BYTES > run.max_queued);
    if (status == DW_ERR_LIMIT) REQUIRE(len > run.link->settings.max_message_bytes);
    REQUIRE(status == DW_OK || status == DW_PENDING || status == DW_ERR_LIMIT ||
            status == run.link->failure.status);
    if (status != DW_OK) return;
    int drops = fuzz_byte(input) % 8 == 7 || run.leaving.n == EXPECTED;
    fill(room, len, run.numbers);
    if (!drops) expect(&run.leaving, run.numbers++, len);
    dw_status ended = dw_link_send_end(run.link, room, drops ? DW_LINK_DROP : len);
    REQUIRE(drops ? ended == DW_OK : ended == DW_OK || ended == run.link->failure.status);
}

static void pass_time(fuzz_input *input)
{
    static const int times_ms[] = {1, 20, 900, 5000, 61000};
    int wait_ms = times_ms[fuzz_byte(input) % 5];
    dw_status status = dw_link_flush(run.link, wait_ms);
    REQUIRE(status == DW_OK || status == DW_PENDING || status == run.link->failure.status);
}

static void change_wire(fuzz_input *input)
{
    static const dw_status ends[] = {DW_ERR_PEER, DW_ERR_IO, DW_ERR_TIMEOUT, DW_ERR_PROTOCOL};
    unsigned how = fuzz_byte(input);
    if (how < 100) {
        wire.is_stuck ^= 1;
        may_end_with(DW_ERR_TIMEOUT);
    } else if (how < 180) {
        mem_wire_keep(how % 70);
        may_end_with(DW_ERR_TIMEOUT); /* if the number is never reduced */
    } else if (how < 230) {
        wire.received += how; /* a part of a message; the rest may never arrive */
        may_end_with(DW_ERR_TIMEOUT);
    } else {
        wire.ends_with = ends[how % 4];
        may_end_with(wire.ends_with);
    }
}

static void forget_or_compare(fuzz_input *input)
{
    unsigned which = fuzz_byte(input);
    if (which < 192) {
        dw_channel_forget(peer_channel(), (dw_key){.sample = which % 3});
        return;
    }
    run.has_waited = 1;
    compare_ends(run.link, input);
}

/* ---- The program ----------------------------------------------------------------------------- */

static void do_one(fuzz_input *input, unsigned what)
{
    switch (what) {
    case 0:
    case 1: say_message(input); break;
    case 2: say_odd(input); break;
    case 3:
    case 4: receive(input); break;
    case 5: set_handler(input); break;
    case 6: send_message(input); break;
    case 7: pass_time(input); break;
    case 8: change_wire(input); break;
    case 9:
        if (!run.has_channel || peer_channel()) break;
        run.has_waited = 1;
        open_channel(run.link, input);
        break;
    case 10:
        if (run.has_channel) say_frame(input, &run.numbers);
        break;
    case 11:
        if (run.has_channel && say_control(input))
            may_end_with(DW_ERR_PROTOCOL); /* if it makes too many requests */
        break;
    case 12:
        if (peer_channel()) send_tensor(run.link, input, &run.numbers);
        break;
    case 13:
        if (!peer_channel()) break;
        run.has_waited = 1;
        receive_tensor(input);
        break;
    case 14:
        if (peer_channel()) forget_or_compare(input);
        break;
    default:
        for (int i = fuzz_byte(input) % 8; i >= 0; i--) unthreaded_turn();
    }
}

static void greet(fuzz_input *input)
{
    unsigned how = fuzz_byte(input);
    unsigned char hello[64] = {[8] = 'D', 'W', 'L', 'K', DW_LINK_VERSION, [24] = '0', '.', '1'};
    size_t len = DW_LINK_HEADER_BYTES + 32;
    dw_put32(hello + 4, DW_KIND_HELLO);
    dw_put64(hello + 16, how & 1 ? 5000 : UINT64_MAX);
    if (how >= 192) {
        unsigned at = fuzz_byte(input) % len;
        hello[at] ^= fuzz_byte(input);
        len = how >= 224 ? fuzz_byte(input) % sizeof hello : len;
    }
    run.peer_max = dw_get64(hello + 16);
    if (how == 255) return; /* the peer sends no hello */
    unsigned char *data = mem_wire_add(len);
    memcpy(data, hello, len);
    if (how == 254) wire.queue[0].announced = 5000;
}

static dw_status open_link(fuzz_input *input)
{
    unsigned how = fuzz_byte(input);
    dw_why why;
    run.max_queued = how & 1 ? 1 << 20 : 65536;
    run.max_message = how & 2 ? 1 << 18 : 4000;
    run.has_channel = how >> 2 & 1;
    wire.retry_ms = how & 8 ? 50 : 0;
    wire.keeps = how >> 4;
    if (wire.keeps > 0) may_end_with(DW_ERR_TIMEOUT);
    wire.on_sent = look_at_sent;
    greet(input);
    const dw_link_options options = {.struct_size = sizeof options,
                                     .transports = transports,
                                     .max_message_bytes = run.max_message,
                                     .max_queued_bytes = run.max_queued,
                                     .open_timeout_ms = 2000};
    dw_status status = dw_link_open(&run.link, "mem:", &options, &why);
    REQUIRE((status == DW_OK) == (run.link != NULL));
    REQUIRE(status == DW_OK ||
            (why.text[0] &&
             (status == DW_ERR_PROTOCOL || status == DW_ERR_VERSION || status == DW_ERR_TIMEOUT)));
    return status;
}

/* A call that waits for a message must return the error of an invalid message, however many valid
 * messages arrived before it. */
static void end(void)
{
    void *data;
    size_t len;
    run.has_waited = 1;
    if (run.must_end)
        REQUIRE(dw_link_recv(run.link, 0x7777, 100, &data, &len) == run.link->failure.status &&
                run.link->failure.status != DW_OK);
    check();
    dw_channel_close(peer_channel());
    dw_link_close(run.link);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input input = {data, size};
    memset(&run, 0, sizeof run);
    mem_wire_start();
    unthreaded_start();
    peer_channel_start();
    if (open_link(&input) == DW_OK) {
        for (int i = 0; i < STEPS_MOST && input.left > 0; i++) {
            unsigned what = fuzz_byte(&input);
            do_one(&input, what & 15);
            if (what < 128) unthreaded_turn();
            check();
        }
        end();
    }
    mem_wire_end();
    peer_channel_end();
    return 0;
}
