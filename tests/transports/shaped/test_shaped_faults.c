/* SPDX-License-Identifier: Apache-2.0
 * test_shaped_faults.c - which messages the backend shaped loses, duplicates, damages and delays.
 * It is in front of a backend that only records what it is given. */
#include "transports/suite/transport_suite.h"

#include <math.h>

#include "common/backends.h"
#include "link/link.h"

/* ---- The inner backend ----------------------------------------------------------------------- */

enum { MOST = 60000, LEN = 40, NUMBER_AT = 8, REST_AT = 32 };

typedef struct noted {
    uint64_t number; /* of the message */
    uint32_t kind;
    int flipped_bits;
    int is_header_flipped;
} noted;

static struct {
    noted at[MOST];
    size_t n;
    uint64_t bytes;
} notes;

static void make_message(unsigned char *message, uint64_t number, uint32_t kind)
{
    dw_put32(message, 7);
    dw_put32(message + 4, kind);
    for (int i = 0; i < 3; i++) dw_put64(message + NUMBER_AT + 8 * i, number);
    for (int i = REST_AT; i < LEN; i++) message[i] = suite_byte(number, (size_t)i);
}

static int bits_of(unsigned byte)
{
    int bits = 0;
    for (; byte; byte &= byte - 1) bits++;
    return bits;
}

static dw_status note_open(void *end, const dw_transport_open *how)
{
    return DW_OK;
}

static dw_status note_close(void *end)
{
    return DW_OK;
}

/* A message contains its number three times, so that it can be read although a bit is flipped. */
static dw_status note_send(void *end, void *request, const void *data, size_t len)
{
    const unsigned char *got = data;
    unsigned char expected[LEN];
    uint64_t a = dw_get64(got + NUMBER_AT), b = dw_get64(got + NUMBER_AT + 8),
             c = dw_get64(got + NUMBER_AT + 16);
    noted one = {.number = (a & b) | (b & c) | (a & c), .kind = dw_get32(got + 4)};
    make_message(expected, one.number, one.kind);
    for (size_t i = 0; i < LEN; i++) {
        int bits = bits_of((unsigned)(got[i] ^ expected[i]));
        one.flipped_bits += bits;
        if (i < NUMBER_AT && bits > 0) one.is_header_flipped = 1;
    }
    assert_int_equal(len, LEN);
    assert_true(notes.n < MOST);
    notes.at[notes.n++] = one;
    notes.bytes += len;
    return DW_OK;
}

static dw_status note_recv(void *end, void *request, void *room, size_t cap)
{
    return DW_OK;
}

static dw_status note_test(void *end, void *request, size_t *len, dw_why *why)
{
    *len = LEN;
    return DW_OK;
}

static void note_describe(const void *end, dw_transport_traits *traits)
{
    *traits = (dw_transport_traits){.struct_size = sizeof *traits, .peer = "the notes"};
}

static void note_poll(const void *end, int asks_kernel, dw_transport_state *state)
{
    *state = (dw_transport_state){
        .struct_size = sizeof *state, .wait_fd = -1, .wake_ns = -1, .wire_sent = notes.bytes};
}

static const dw_transport note_transport = {.struct_size = sizeof(dw_transport),
                                            .scheme = "notes",
                                            .endpoint_bytes = 1,
                                            .request_bytes = 1,
                                            .open = note_open,
                                            .close = note_close,
                                            .send = note_send,
                                            .recv = note_recv,
                                            .test = note_test,
                                            .describe = note_describe,
                                            .poll = note_poll};

static const dw_transport *find_notes(void *context, const char *uri, dw_transport_open *how)
{
    how->address = uri;
    return &note_transport;
}

/* ---- The shaped backend ---------------------------------------------------------------------- */

typedef struct fault_wire {
    void *end, *request;
    dw_why why;
    uint64_t sent;
} fault_wire;

static void open_wire(fault_wire *wire, const char *words, dw_link_role role)
{
    static const volatile int never = 0;
    char address[256];
    *wire = (fault_wire){.end = calloc(1, dw_transport_shaped.endpoint_bytes),
                         .request = calloc(1, dw_transport_shaped.request_bytes)};
    snprintf(address, sizeof address, "%s/notes:", words);
    const dw_transport_open how = {.struct_size = sizeof how,
                                   .address = address,
                                   .role = role,
                                   .timeout_ms = 1000,
                                   .cancelled = &never,
                                   .find = find_notes,
                                   .why = &wire->why};
    dw_status status = dw_transport_shaped.open(wire->end, &how);
    if (status != DW_OK) fail_msg("%s: %s", address, wire->why.text);
    notes.n = 0;
    notes.bytes = 0;
}

static void close_wire(fault_wire *wire)
{
    assert_int_equal(dw_transport_shaped.close(wire->end), DW_OK);
    free(wire->end);
    free(wire->request);
}

/* Sends a message. In virtual time it must be done after a single test. */
static dw_status send_one(fault_wire *wire, uint32_t kind)
{
    unsigned char message[LEN];
    size_t len;
    make_message(message, wire->sent++, kind);
    assert_int_equal(dw_transport_shaped.send(wire->end, wire->request, message, LEN), DW_OK);
    return dw_transport_shaped.test(wire->end, wire->request, &len, &wire->why);
}

static void send_all(const char *words, dw_link_role role, size_t messages)
{
    fault_wire wire;
    open_wire(&wire, words, role);
    for (size_t i = 0; i < messages; i++) assert_int_equal(send_one(&wire, DW_KIND_DATA), DW_OK);
    assert_int_equal(send_one(&wire, DW_KIND_BYE), DW_OK); /* messages held back leave before it */
    assert_int_equal(notes.at[--notes.n].kind, DW_KIND_BYE);
    close_wire(&wire);
}

/* ---- Counts ---------------------------------------------------------------------------------- */

typedef struct found_faults {
    size_t lost, doubled, overtaken, damaged;
} found_faults;

/* Counts faults. A message may arrive never, once or twice, and may be overtaken by one other. */
static found_faults count(size_t messages)
{
    found_faults found = {0};
    static unsigned char times[MOST];
    memset(times, 0, sizeof times);
    for (size_t i = 0; i < notes.n; i++) {
        const noted *here = &notes.at[i];
        assert_true(here->number < messages && here->kind == DW_KIND_DATA);
        assert_true(here->flipped_bits <= 1 && !here->is_header_flipped);
        found.damaged += (size_t)here->flipped_bits;
        times[here->number]++;
        if (i > 0 && here->number < notes.at[i - 1].number) {
            found.overtaken++;
            assert_true(i == 1 || here->number > notes.at[i - 2].number); /* by only one message */
        }
    }
    for (size_t i = 0; i < messages; i++) {
        found.lost += times[i] == 0;
        found.doubled += times[i] == 2;
        assert_true(times[i] <= 2);
    }
    return found;
}

/* Checks that a count is within 4 standard deviations of the expected one. Because the seed is
 * fixed, the result is the same in every run. */
static void is_about(size_t counted, double messages, double chance)
{
    double expected = messages * chance, deviation = sqrt(messages * chance * (1 - chance));
    if (fabs((double)counted - expected) > 4 * deviation)
        fail_msg("%zu of %.0f, expected about %.0f", counted, messages, expected);
}

TEST(each_fault_has_the_requested_frequency)
{
    enum { N = 20000 };
    send_all("loss=10%,time=virtual", DW_LINK_LISTEN, N);
    found_faults found = count(N);
    is_about(found.lost, N, 0.1);
    assert_true(found.doubled == 0 && found.overtaken == 0 && found.damaged == 0);
    send_all("duplicate=0.05,time=virtual", DW_LINK_LISTEN, N);
    found = count(N);
    is_about(found.doubled, N, 0.05);
    assert_true(found.lost == 0 && found.overtaken == 0 && found.damaged == 0);
    send_all("corrupt=2.5%,time=virtual", DW_LINK_CONNECT, N);
    found = count(N);
    is_about(found.damaged, N, 0.025);
    assert_true(found.lost == 0 && found.overtaken == 0 && found.doubled == 0);
    /* A message that overtakes another one is not held back itself. So, with a chance of p, the
     * fraction p / (1 + p) of all messages is overtaken. */
    send_all("reorder=10%:3600s,time=virtual", DW_LINK_CONNECT, N);
    found = count(N);
    is_about(found.overtaken, N, 0.1 / 1.1);
    assert_true(found.lost == 0 && found.doubled == 0 && found.damaged == 0);
    send_all("loss=0%,duplicate=0,corrupt=0%,reorder=0%,stall=0%,seed=3", DW_LINK_CONNECT, N);
    found = count(N);
    assert_true(found.lost + found.doubled + found.overtaken + found.damaged == 0);
}

TEST(the_same_seed_gives_the_same_faults)
{
    enum { N = 3000 };
    static noted first[2 * N];
    const char *const words =
        "loss=5%,duplicate=5%,corrupt=5%,reorder=5%:3600s,time=virtual,seed=11";
    send_all(words, DW_LINK_LISTEN, N);
    size_t n = notes.n;
    memcpy(first, notes.at, n * sizeof *first);
    send_all(words, DW_LINK_LISTEN, N);
    assert_int_equal(notes.n, n);
    assert_memory_equal(first, notes.at, n * sizeof *first);
    send_all(words, DW_LINK_CONNECT, N);
    assert_true(notes.n != n || memcmp(first, notes.at, n * sizeof *first) != 0);
    send_all("loss=5%,duplicate=5%,corrupt=5%,reorder=5%:3600s,time=virtual,seed=12",
             DW_LINK_LISTEN, N);
    assert_true(notes.n != n || memcmp(first, notes.at, n * sizeof *first) != 0);
}

/* ---- Messages without faults ----------------------------------------------------------------- */

TEST(hello_and_goodbye_messages_have_no_faults)
{
    fault_wire wire;
    open_wire(&wire, "loss=100%,corrupt=100%,duplicate=100%,reorder=100%", DW_LINK_LISTEN);
    assert_int_equal(send_one(&wire, DW_KIND_HELLO), DW_OK);
    for (int i = 0; i < 10; i++) assert_int_equal(send_one(&wire, DW_KIND_DATA), DW_OK);
    assert_int_equal(send_one(&wire, DW_KIND_BYE), DW_OK);
    assert_int_equal(notes.n, 2);
    assert_true(notes.at[0].kind == DW_KIND_HELLO && notes.at[0].flipped_bits == 0);
    assert_true(notes.at[1].kind == DW_KIND_BYE && notes.at[1].flipped_bits == 0);
    close_wire(&wire);
    open_wire(&wire, "reorder=100%:3600s", DW_LINK_LISTEN);
    assert_int_equal(send_one(&wire, DW_KIND_DATA), DW_OK);
    assert_int_equal(notes.n, 0); /* the message is held back */
    assert_int_equal(send_one(&wire, DW_KIND_BYE), DW_OK);
    assert_int_equal(notes.n, 2);
    assert_int_equal(notes.at[0].kind, DW_KIND_DATA);
    close_wire(&wire);
}

TEST(reorder_holds_the_last_message_for_a_limited_time)
{
    fault_wire wire;
    open_wire(&wire, "reorder=100%:5ms,time=virtual", DW_LINK_LISTEN);
    int64_t begun = suite_now_ns();
    assert_int_equal(send_one(&wire, DW_KIND_DATA), DW_OK);
    dw_transport_state state_now = {.struct_size = sizeof state_now};
    do {
        dw_transport_shaped.poll(wire.end, 0, &state_now);
        assert_true(state_now.wake_ns >= 0); /* a caller that waits must know for how long */
        assert_int_equal(notes.n, 0);        /* poll itself sends nothing */
        suite_sleep_ms(1);
        assert_int_equal(dw_transport_shaped.turn(wire.end, &wire.why), DW_OK);
    } while (notes.n == 0 && suite_now_ns() - begun < (int64_t)SUITE_PATIENCE_MS * 1000000);
    assert_int_equal(notes.n, 1);
    assert_true(suite_now_ns() - begun >= 5000000);
    close_wire(&wire);
}

TEST(the_traits_say_which_faults_can_occur)
{
    static const struct {
        const char *words;
        int loses, doubles, reorders, damages;
    } cases[] = {{"rate=1gbit,delay=1ms,jitter=1ms,stall=1%", 0, 0, 0, 0},
                 {"disconnect=100", 0, 0, 0, 0},
                 {"loss=1%", 1, 0, 0, 0},
                 {"duplicate=1%", 0, 1, 0, 0},
                 {"reorder=1%", 0, 0, 1, 0},
                 {"corrupt=1%", 0, 0, 0, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fault_wire wire;
        dw_transport_traits traits = {.struct_size = sizeof traits};
        open_wire(&wire, cases[i].words, DW_LINK_LISTEN);
        dw_transport_shaped.describe(wire.end, &traits);
        assert_string_equal(traits.peer, "the notes");
        assert_int_equal(traits.loses, cases[i].loses);
        assert_int_equal(traits.doubles, cases[i].doubles);
        assert_int_equal(traits.reorders, cases[i].reorders);
        assert_int_equal(traits.damages, cases[i].damages);
        assert_int_equal(traits.retry_ms > 0, i > 1);
        close_wire(&wire);
    }
}

/* ---- Time ------------------------------------------------------------------------------------ */

/* Messages that would take hours are sent with a single test each. */
TEST(virtual_time_needs_no_waiting)
{
    send_all("rate=1bit,delay=3600s,jitter=3600s,stall=50%:3600s,time=virtual", DW_LINK_LISTEN,
             1000);
    assert_int_equal(notes.n, 1000);
    for (size_t i = 0; i < 1000; i++)
        assert_int_equal(notes.at[i].number, i); /* jitter alone does not change the order */
}

static double first_wake_s(const char *words)
{
    fault_wire wire;
    dw_transport_state state = {.struct_size = sizeof state};
    open_wire(&wire, words, DW_LINK_LISTEN);
    assert_int_equal(send_one(&wire, DW_KIND_DATA), DW_OK);
    assert_int_equal(notes.n, 0);
    dw_transport_shaped.poll(wire.end, 0, &state);
    close_wire(&wire);
    return (double)state.wake_ns * 1e-9;
}

/* Measures the time until a message is due, for 200 different seeds. */
TEST(jitter_is_spread_evenly_on_top_of_the_delay)
{
    enum { N = 200 };
    double sum = 0, least = 1e9, most = 0;
    for (int i = 0; i < N; i++) {
        char words[64];
        snprintf(words, sizeof words, "delay=1000s,jitter=2000s,seed=%d", i);
        double wake = first_wake_s(words);
        sum += wake;
        least = wake < least ? wake : least;
        most = wake > most ? wake : most;
    }
    /* The probability that 200 draws all leave out the same tenth of 2000 s is below 10^-9. On a
     * busy machine a result may be up to a second too small. */
    assert_true(least >= 999 && least < 1200 && most > 2800 && most <= 3000);
    assert_true(fabs(sum / N - 2000) < 4 * 2000 / sqrt(12.0 * N));
}

TEST(a_stall_delays_all_later_messages)
{
    fault_wire wire;
    dw_transport_state before = {.struct_size = sizeof before}, after = before;
    size_t len;
    open_wire(&wire, "stall=100%:1000s,rate=1gbit", DW_LINK_LISTEN);
    dw_transport_shaped.poll(wire.end, 0, &before);
    assert_int_equal(send_one(&wire, DW_KIND_DATA), DW_PENDING);
    dw_transport_shaped.poll(wire.end, 0, &after);
    /* During a stall no bytes move, so that a stall longer than the peer's timeout is a timeout. */
    assert_int_equal(after.wire_sent, before.wire_sent);
    assert_true(after.wake_ns > INT64_C(990000000000) && after.wake_ns <= INT64_C(1000000000000));
    assert_int_equal(dw_transport_shaped.test(wire.end, wire.request, &len, &wire.why), DW_PENDING);
    close_wire(&wire);
}

/* ---- Disconnecting --------------------------------------------------------------------------- */

static uint64_t messages_until_cut(const char *words)
{
    fault_wire wire;
    open_wire(&wire, words, DW_LINK_LISTEN);
    assert_int_equal(send_one(&wire, DW_KIND_HELLO), DW_OK);
    dw_status status = DW_OK;
    while (status == DW_OK && wire.sent < 20000) status = send_one(&wire, DW_KIND_DATA);
    assert_int_equal(status, DW_ERR_PEER);
    assert_non_null(strstr(wire.why.text, "disconnect="));
    uint64_t through = notes.n - 1;
    assert_int_equal(wire.sent, through + 2);
    close_wire(&wire);
    return through;
}

TEST(disconnect_breaks_the_link_after_the_given_traffic)
{
    assert_int_equal(messages_until_cut("disconnect=100,time=virtual"), 100);
    assert_int_equal(messages_until_cut("disconnect=4kb,time=virtual"), 4000 / LEN);
    assert_int_equal(messages_until_cut("disconnect=1,time=virtual"), 1);
    assert_int_equal(messages_until_cut("disconnect=100%,time=virtual"), 0);
    double sum = 0;
    for (int seed = 0; seed < 400; seed++) {
        char words[64];
        snprintf(words, sizeof words, "disconnect=1%%,time=virtual,seed=%d", seed);
        sum += (double)messages_until_cut(words);
    }
    /* The distribution is geometric: mean and deviation are about 1 / p. */
    assert_true(fabs(sum / 400 - 99) < 4 * 99.5 / 20);
}

RUN_TESTS(NULL, NULL)
