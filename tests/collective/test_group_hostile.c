/* SPDX-License-Identifier: Apache-2.0
 * test_group_hostile.c - a member of a group that is alive, and does anything but what it owes: the
 * group ends nevertheless, in time and in the bounds of its memory, and names that member. */
#include <stdatomic.h>
#include <unistd.h>

#include "group_rig.h"
#include "lone_group.h"

#include "failure_detector.h"

enum { FLOATS = 2 * 2048, LIMIT_MS = 400, TICK_MS = 5, PATIENCE_MS = 60000 };
/* So long a member goes on before it gives up. No group may wait for that. */
enum { TICKS = 20 * LIMIT_MS / TICK_MS };

/* ---- A member that is played by the test ------------------------------------------------------
 */

typedef struct member {
    dw_link *link;             /* to the rank that the group under test has */
    uint32_t rank;             /* that it plays */
    unsigned char hello[1024]; /* the greeting of the other rank, with what differs in its own */
    size_t hello_len;
    uint64_t retry_ms, nonce, group_nonce, next_number;
    int wrong; /* what it does */
    atomic_int is_open, is_told_to_stop, has_given_up;
} member;

static void say(member *me, dw_message head, const void *body, size_t len)
{
    static unsigned char message[1 << 19];
    bool has_session = head.kind != DW_MESSAGE_HELLO;
    head.body_len = len;
    if (len > 0) memcpy(message + DW_MESSAGE_BYTES, body, len);
    dw_message_finalize(message, &head,
                        has_session ? dw_message_seed(me->nonce, me->group_nonce, me->rank) : 0,
                        !has_session || me->retry_ms > 0);
    while (dw_link_send(me->link, 7 << 8, message, DW_MESSAGE_BYTES + len) == DW_PENDING)
        dw_link_flush(me->link, TICK_MS);
}

static void say_numbered(member *me, dw_message head, const void *body, size_t len)
{
    head.kind = DW_MESSAGE_DATA;
    head.number = me->next_number++;
    say(me, head, body, len);
}

static void say_hello(member *me, bool wants)
{
    me->hello[3] = (unsigned char)((me->hello[3] & ~1u) | wants);
    say(me, (dw_message){.kind = DW_MESSAGE_HELLO}, me->hello, me->hello_len);
}

static void join(member *me)
{
    void *data;
    size_t len;
    dw_link_counters counters = {.struct_size = sizeof counters};
    assert_int_equal(dw_link_count(me->link, &counters), DW_OK);
    me->retry_ms = counters.retry_ms;
    me->nonce = 4711;
    assert_int_equal(dw_link_recv(me->link, 7 << 8, PATIENCE_MS, &data, &len), DW_OK);
    me->hello_len = len - DW_MESSAGE_BYTES;
    memcpy(me->hello, (unsigned char *)data + DW_MESSAGE_BYTES, me->hello_len);
    dw_link_release(me->link, data);
    me->group_nonce = dw_get(me->hello + 16, 8);
    dw_put(me->hello + 4, me->rank, 4);
    dw_put(me->hello + 16, me->nonce, 8);
    dw_put(me->hello + 24, me->group_nonce, 8);
    say_hello(me, false);
}

/* An all-reduce of slot 3 that has begun on rank 0. */
static const dw_message due = {.operation = DW_ALL_REDUCE, .dtype = DW_F32, .slot = 3, .n = FLOATS};

enum wrong {
    UNUSED_SLOTS,
    UNUSED_SLOT,
    FRAMES_OF_AN_UNUSED_SLOT,
    LATER_OPERATION,
    PINGS,
    ACKNOWLEDGEMENTS,
    GREETINGS,
    FLOOD,
    DUPLICATES, /* this and what follows: only on links that may lose messages */
    FAR_AHEAD,
    DAMAGED,
    WRONGS
};

/* Numbers that a fixed product, that of 2^64 and the golden ratio, would put into one list. */
static uint64_t chosen_number(uint64_t i)
{
    return i * UINT64_C(0xf1de83e19937733d);
}

static void flood(member *me, uint64_t messages)
{
    for (uint64_t i = 1; i <= messages && !atomic_load(&me->is_told_to_stop); i++) {
        dw_message head = due;
        head.slot = chosen_number(i);
        say_numbered(me, head, NULL, 0);
    }
}

static void do_wrong(member *me, uint64_t tick)
{
    static const unsigned char frame[1024];
    dw_message head = due;
    switch (me->wrong) {
    case UNUSED_SLOTS: head.slot = 1000 + tick; break;
    case FRAMES_OF_AN_UNUSED_SLOT:
    case UNUSED_SLOT: head.slot = 1000; break;
    case LATER_OPERATION: head.visit = 1; break;
    case PINGS: say(me, (dw_message){.kind = DW_MESSAGE_PING, .rank = 0}, NULL, 0); return;
    case ACKNOWLEDGEMENTS:
        say(me, (dw_message){.kind = DW_MESSAGE_ACK, .number = 0, .slot = ~UINT64_C(0)}, NULL, 0);
        return;
    case GREETINGS: say_hello(me, true); return;
    case FLOOD: flood(me, tick == 0 ? 60000 : 0); return;
    case DUPLICATES:
        head.slot = 1000;
        if (tick > 0) me->next_number = 0;
        break;
    case FAR_AHEAD: me->next_number = 2 + tick % 100; break;
    default: say(me, (dw_message){.kind = DW_MESSAGE_DATA, .number = 1 << 20}, frame, 1); return;
    }
    say_numbered(me, head, frame, me->wrong == FRAMES_OF_AN_UNUSED_SLOT ? sizeof frame : 0);
}

static void *play(void *context)
{
    member *me = context;
    join(me);
    while (!atomic_load(&me->is_open)) usleep(1000); /* what comes before is not taken */
    for (uint64_t tick = 0; tick < TICKS && !atomic_load(&me->is_told_to_stop); tick++) {
        do_wrong(me, tick);
        usleep(TICK_MS * 1000);
    }
    atomic_store(&me->has_given_up, !atomic_load(&me->is_told_to_stop));
    return NULL;
}

/* ---- Time -------------------------------------------------------------------------------------
 */

/* Rank 0 waits for what rank 1 owes. It must not wait longer because rank 1 does something else. */
static void waits_no_longer_for(const char *uri, int wrong)
{
    group_rig rig;
    static float x[FLOATS], y[FLOATS];
    rig_link(&rig, uri, 2, "raw:f32", NULL);
    rig.config[0].timeout_ms = LIMIT_MS;
    member other = {.link = rig.links[1][0], .rank = 1, .wrong = wrong};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, play, &other), 0);
    dw_status opened = dw_group_open(&rig.group[0], &rig.config[0], &rig.why[0]);
    if (opened != DW_OK) fail_msg("%s", rig.why[0].text);
    atomic_store(&other.is_open, 1);
    dw_group_job job = {.struct_size = sizeof job,
                        .operation = DW_ALL_REDUCE,
                        .slot = 3,
                        .n = FLOATS,
                        .x = x,
                        .y = y};
    dw_status status = dw_group_run(rig.group[0], &job, PATIENCE_MS);
    atomic_store(&other.is_told_to_stop, 1);
    pthread_join(thread, NULL);
    if (status != DW_ERR_TIMEOUT || atomic_load(&other.has_given_up))
        fail_msg("%s, %d: %d: %s", uri, wrong, (int)status, dw_group_why(rig.group[0], NULL));
    assert_int_equal(rig_failed_rank(rig.group[0]), 1);
    dw_link_cancel(rig.links[0][1]); /* nobody acknowledges the goodbye */
    rig_close(&rig);
}

TEST(what_is_not_owed_buys_no_time)
{
    for (int wrong = 0; wrong < DUPLICATES; wrong++)
        waits_no_longer_for("loop://hostile-%d", wrong);
    for (int wrong = 0; wrong < WRONGS; wrong++)
        if (wrong != FLOOD)
            waits_no_longer_for("shaped:duplicate=1%,seed=3/loop://hostile-%d", wrong);
}

/* Nor may a rank wait for ever for one that takes nothing, in operations in which that one has sent
 * all that it owes. */
enum { PIECE = 32768, PIECES = 64, LONG = PIECE * PIECES };

static void *send_all_and_take_nothing(void *context)
{
    member *me = context;
    static float zeros[PIECE];
    static unsigned char frame[1 << 18];
    dw_operation operation = (dw_operation)me->wrong;
    bool gathers = operation == DW_ALL_GATHER;
    dw_config config;
    dw_encoder *encoder;
    size_t len = 0;
    join(me);
    dw_config_parse(&config, "raw:f32,replies=never", NULL);
    dw_encoder_create(&encoder, &config, NULL, NULL);
    for (uint32_t i = 0; i < (operation == DW_BROADCAST ? 1 : PIECES / 2); i++) {
        dw_tensor x = dw_flat_view(zeros, DW_F32, PIECE);
        dw_key key = {.slice = i};
        if (operation != DW_BROADCAST)
            dw_encode(encoder, &key, &x, NULL, frame, sizeof frame, &len);
        dw_message head = {.operation = (uint8_t)operation, .dtype = DW_F32, .n = LONG, .piece = i};
        head.flags = gathers ? DW_MESSAGE_HOP2 : 0;
        head.part = gathers;
        say_numbered(me, head, frame, len);
    }
    dw_encoder_destroy(encoder);
    return NULL;
}

TEST(a_rank_that_takes_nothing_is_late)
{
    static const dw_operation operations[] = {DW_REDUCE_SCATTER, DW_ALL_GATHER, DW_BROADCAST};
    static float x[LONG], y[LONG];
    for (int i = 0; i < 3; i++) {
        group_rig rig;
        rig_link(&rig, "loop://hostile-%d", 2, "raw:f32", NULL);
        suite_pair *pair = &rig.pairs[0][1];
        suite_close(pair);
        suite_prepare(pair, pair->backend);
        pair->options[SUITE_CONNECTOR].max_queued_bytes = 1 << 20;
        suite_open(pair);
        rig.links[0][1] = pair->link[SUITE_LISTENER];
        rig.config[0].timeout_ms = 4 * LIMIT_MS; /* so that all is sent in time */
        rig.config[0].piece = PIECE;
        member other = {
            .link = pair->link[SUITE_CONNECTOR], .rank = 1, .wrong = (int)operations[i]};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, send_all_and_take_nothing, &other), 0);
        assert_int_equal(dw_group_open(&rig.group[0], &rig.config[0], NULL), DW_OK);
        dw_group_job job = {
            .struct_size = sizeof job, .operation = operations[i], .n = LONG, .x = x, .y = y};
        dw_status status = dw_group_run(rig.group[0], &job, 80 * LIMIT_MS);
        pthread_join(thread, NULL);
        if (status != DW_ERR_TIMEOUT || !strstr(dw_group_why(rig.group[0], NULL), "taken nothing"))
            fail_msg("%d: %d: %s", i, (int)status, dw_group_why(rig.group[0], NULL));
        assert_int_equal(rig_failed_rank(rig.group[0]), 1);
        dw_link_cancel(pair->link[SUITE_LISTENER]);
        rig_close(&rig);
    }
}

/* A rank that connects late, and then says nothing. */
typedef struct latecomer {
    char uri[64];
    int after_ms;
    atomic_int is_told_to_stop;
} latecomer;

static void *come_late(void *context)
{
    latecomer *me = context;
    dw_link *link;
    dw_link_options options = {.struct_size = sizeof options, .role = DW_LINK_CONNECT};
    suite_sleep_ms(me->after_ms);
    if (dw_link_open(&link, me->uri, &options, NULL) != DW_OK) return NULL;
    while (!atomic_load(&me->is_told_to_stop)) usleep(500);
    dw_link_cancel(link);
    dw_link_close(link);
    return NULL;
}

/* Links and greetings share one limit. */
TEST(a_late_link_leaves_less_time_for_the_greeting)
{
    static int number;
    bool is_in_time = false;
    for (int64_t limit_ms = LIMIT_MS / 2; !is_in_time; limit_ms *= 4) {
        if (limit_ms > SUITE_LONGEST_LIMIT_MS) fail_msg("it took more than 1.5 times the limit");
        latecomer other = {.after_ms = (int)limit_ms * 8 / 10};
        snprintf(other.uri, sizeof other.uri, "loop://late-%d", number++);
        dw_group_config config = {.struct_size = sizeof config,
                                  .id = 7,
                                  .ranks = 2,
                                  .uris = (const char *[]){NULL, other.uri},
                                  .open_timeout_ms = (uint32_t)limit_ms};
        pthread_t thread;
        dw_group *group;
        assert_int_equal(pthread_create(&thread, NULL, come_late, &other), 0);
        int64_t begin_ns = suite_now_ns();
        assert_int_equal(dw_group_open(&group, &config, NULL), DW_ERR_TIMEOUT);
        is_in_time = suite_now_ns() - begin_ns <= limit_ms * DW_NS_PER_MS * 3 / 2;
        atomic_store(&other.is_told_to_stop, 1);
        pthread_join(thread, NULL);
    }
}

/* A rank that sends the frames of operations which have not begun here is busy, not late, while it
 * does so as fast as a slow network can; what it buys in all has an end. */
TEST(early_frames_buy_time_by_their_bytes)
{
    dw_group group;
    dw_peer peer;
    const int64_t second = 1000 * (int64_t)DW_NS_PER_MS;
    lone_group_open(&group, &peer, 1, 0, 2048, "raw:f32");
    dw_settings *settings = &group.exchange.settings;
    settings->timeout_ms = 60000;
    settings->max_early_bytes = UINT64_C(1) << 30;
    assert_true(dw_failure_detector_silent_since(settings, &peer, 5 * second) == 5 * second);
    peer.vigil.early_ns = 505 * second;
    peer.vigil.early_frames = 500 * UINT64_C(1250000); /* 10 Mbit/s for 500 s */
    assert_true(dw_failure_detector_silent_since(settings, &peer, 5 * second) ==
                peer.vigil.early_ns);
    assert_true(dw_failure_detector_silent_since(settings, &peer, 600 * second) == 600 * second);
    peer.vigil.early_frames = 50 * 500 * 64; /* 64 bytes each 20 ms */
    int64_t since = dw_failure_detector_silent_since(settings, &peer, 5 * second);
    assert_true(since > 5 * second && since < 7 * second);
    peer.vigil.heard_ns = 400 * second;
    since = dw_failure_detector_silent_since(settings, &peer, 5 * second);
    assert_true(since > 400 * second && since < 402 * second);
    lone_group_close(&group);
}

/* ---- Work and memory --------------------------------------------------------------------------
 */

TEST(chosen_slot_numbers_make_no_long_lists)
{
    enum { SLOTS = 20000 };
    dw_group group;
    dw_peer peer;
    assert_true(UINT64_C(0x9e3779b97f4a7c15) * chosen_number(1) == 1);
    lone_group_open(&group, &peer, 1, 0, 2048, "raw:f32");
    const dw_allocator *allocator = &group.exchange.settings.allocator;
    for (uint64_t i = 0; i < SLOTS; i++)
        assert_non_null(dw_slot_get(&group.slots, allocator, chosen_number(i)));
    uint64_t steps = 0; /* to find each slot once, from the start of its list */
    for (size_t i = 0; i < (size_t)1 << group.slots.bits; i++) {
        uint64_t place = 0;
        for (dw_group_slot *slot = group.slots.table[i]; slot; slot = slot->next) steps += ++place;
    }
    assert_in_range(steps, SLOTS, 1000 * SLOTS); /* one list: SLOTS * SLOTS / 2 */
    for (uint64_t i = 0; i < SLOTS; i++)
        assert_true(dw_slot_find(&group.slots, chosen_number(i))->number == chosen_number(i));
    assert_null(dw_slot_find(&group.slots, 12345));
    dw_slot_free_all(&group.slots, &group.exchange.coding, &group.exchange.pool);
    lone_group_close(&group);
}

static dw_received *result_of(dw_group *group, uint64_t slot)
{
    enum { FRAME_BYTES = 20 };
    dw_received *received = dw_received_take(&group->exchange.pool, DW_MESSAGE_BYTES + FRAME_BYTES);
    assert_non_null(received);
    received->from = 1;
    received->head = (dw_message){.kind = DW_MESSAGE_DATA,
                                  .operation = DW_BROADCAST,
                                  .dtype = DW_F32,
                                  .flags = DW_MESSAGE_HOP2,
                                  .rank = 1,
                                  .slot = slot,
                                  .n = 100,
                                  .part = 1,
                                  .body_len = FRAME_BYTES};
    return received;
}

/* The bytes of rank 2 are no more than its share, so rank 1 is the one to blame. */
TEST(slots_that_a_peer_opens_count_as_early_bytes)
{
    enum { MOST = 1 << 20, EACH = DW_RECEIVED_HEAD + 512 + DW_SLOT_BYTES };
    static float y[100];
    dw_group group;
    dw_peer peers[3];
    lone_group_open(&group, peers, 3, 0, 2048, "raw:f32");
    group.exchange.settings.max_early_bytes = MOST;
    dw_progress_dispatch(&group, result_of(&group, 0));
    assert_int_equal(group.exchange.early_bytes, EACH);
    dw_progress_dispatch(&group, result_of(&group, 0));
    assert_int_equal(group.exchange.early_bytes, EACH + DW_RECEIVED_HEAD + 512);
    dw_group_slot *slot = dw_slot_find(&group.slots, 0);
    dw_received_give(&group.exchange.pool, dw_received_pop(&slot->early));
    group.exchange.early_bytes -= DW_RECEIVED_HEAD + 512;
    /* An operation begins in it, so it is the caller's from now on. */
    dw_group_job job = {.operation = DW_BROADCAST, .dtype = DW_F32, .n = 100, .root = 1, .y = y};
    assert_int_equal(dw_slot_prepare(&group.slots, &group.exchange.settings, slot, &job, NULL),
                     DW_OK);
    dw_operation_begin(&group.exchange, slot);
    assert_int_equal(group.exchange.failure.status, DW_OK);
    assert_int_equal(group.exchange.early_bytes, 0);
    dw_received_give(&group.exchange.pool, dw_received_pop(&slot->gather.arrived));
    for (uint64_t i = 1; i <= MOST && group.exchange.failure.status == DW_OK; i++) {
        dw_received *received = result_of(&group, i);
        if (i > MOST / EACH) received->from = 2;
        dw_progress_dispatch(&group, received);
    }
    assert_int_equal(group.exchange.failure.status, DW_ERR_LIMIT);
    assert_int_equal(group.exchange.failure.rank, 1);
    assert_int_equal(group.slots.count, 1 + MOST / EACH + 1);
    dw_slot_free_all(&group.slots, &group.exchange.coding, &group.exchange.pool);
    lone_group_close(&group);
}

/* So many messages have arrived that to sort them takes longer than timeout_ms. */
TEST(timeouts_are_looked_at_while_messages_are_sorted)
{
    enum { MESSAGES = 50000 };
    group_rig rig;
    dw_group group;
    dw_peer peers[2];
    uint32_t owes[2] = {0, 1}, none[2] = {0, 0};
    dw_group_slot slot = {.state = DW_SLOT_RUNNING,
                          .reduce = {.owes = owes},
                          .gather = {.owes = none},
                          .now = {.job = {.operation = DW_ALL_REDUCE}}};
    rig_link(&rig, "loop://hostile-%d", 2, "raw:f32", NULL);
    lone_group_open(&group, peers, 2, 0, 2048, "raw:f32");
    group.exchange.settings.id = 7;
    group.exchange.settings.timeout_ms = 2;
    group.exchange.settings.max_early_bytes = 1 << 30;
    dw_slot_append(&group.exchange.running, &slot);
    peers[1].link = rig.links[0][1];
    for (uint64_t i = 0; i < MESSAGES; i++) {
        unsigned char message[DW_MESSAGE_BYTES];
        dw_message head = {.kind = DW_MESSAGE_DATA, .number = i, .slot = 1 + i};
        dw_message_finalize(message, &head, 0, false);
        dw_group_inbox_take(&peers[1], message, sizeof message);
    }
    int64_t now_ns;
    pthread_mutex_lock(&group.lock);
    dw_progress_step(&group, &now_ns);
    pthread_mutex_unlock(&group.lock);
    assert_int_equal(group.exchange.failure.status, DW_ERR_TIMEOUT);
    assert_int_equal(group.exchange.failure.rank, 1);
    assert_in_range(group.slots.count, 1, MESSAGES - 1);
    dw_slot_free_all(&group.slots, &group.exchange.coding, &group.exchange.pool);
    lone_group_close(&group);
    rig_close(&rig);
}

/* ---- Bits -------------------------------------------------------------------------------------
 */

enum lie {
    NONE,
    TWO_RESULTS,
    TWO_RESULTS_UNVERIFIED,
    TWO_DIGESTS,
    SHORT_DIGEST,
    EXTRA_DIGEST,
    MUTE, /* no digest at all */
    LIES
};

typedef struct lied_to {
    group_rig *rig;
    float y[2][FLOATS];
    dw_status status[2];
} lied_to;

typedef struct taker {
    lied_to *act;
    uint32_t rank;
} taker;

static void *take_lies(void *context)
{
    const taker *me = context;
    lied_to *act = me->act;
    uint32_t rank = me->rank;
    group_rig *rig = act->rig;
    dw_group_job job = {.struct_size = sizeof job,
                        .operation = DW_BROADCAST,
                        .n = FLOATS,
                        .root = 2,
                        .y = act->y[rank]};
    act->status[rank] = dw_group_open(&rig->group[rank], &rig->config[rank], &rig->why[rank]);
    if (act->status[rank] == DW_OK)
        act->status[rank] = dw_group_run(rig->group[rank], &job, PATIENCE_MS);
    return NULL;
}

/* Sends a broadcast of rank 2 to a rank, all values of which are `value`, and a digest. */
static void broadcast(member *me, float value, int lie)
{
    static float x[FLOATS];
    static unsigned char frame[1 << 15];
    uint64_t salt = 17;
    size_t len;
    dw_config config;
    dw_encoder *encoder;
    dw_message head = {
        .operation = DW_BROADCAST, .dtype = DW_F32, .rank = 2, .n = FLOATS, .part = 2};
    for (int i = 0; i < FLOATS; i++) x[i] = value;
    assert_int_equal(dw_config_parse(&config, "raw:f32,replies=never", NULL), DW_OK);
    assert_int_equal(dw_encoder_create(&encoder, &config, NULL, NULL), DW_OK);
    for (uint32_t i = 0; i < FLOATS / 2048; i++) {
        dw_tensor piece = dw_flat_view(x + 2048 * i, DW_F32, 2048);
        dw_key key = {.slice = i};
        assert_int_equal(dw_encode(encoder, &key, &piece, NULL, frame, sizeof frame, &len), DW_OK);
        head.flags = DW_MESSAGE_HOP2;
        head.piece = i;
        say_numbered(me, head, frame, len);
    }
    dw_encoder_destroy(encoder);
    head.flags = DW_MESSAGE_DIGEST;
    dw_put(frame, salt, 8);
    dw_put(frame + 8, dw_message_digest(x, sizeof x, salt) + (lie == TWO_DIGESTS), 8);
    if (lie == MUTE || lie == TWO_RESULTS_UNVERIFIED) return;
    say_numbered(me, head, frame, lie == SHORT_DIGEST ? 15 : 16);
    if (lie == EXTRA_DIGEST) say_numbered(me, head, frame, 16);
}

/* Rank 2 lies to rank 0. */
static void tell_lies(lied_to *act, int lie)
{
    group_rig rig;
    rig_link(&rig, "loop://hostile-%d", 3, "raw:f32", NULL);
    *act = (lied_to){.rig = &rig};
    rig.ranks = 2;
    for (int r = 0; r < 2; r++) {
        rig.config[r].verify = lie != TWO_RESULTS_UNVERIFIED;
        rig.config[r].timeout_ms = lie == MUTE ? 5 * LIMIT_MS : PATIENCE_MS;
    }
    member two[2] = {{.link = rig.links[2][0], .rank = 2}, {.link = rig.links[2][1], .rank = 2}};
    pthread_t threads[2];
    taker takers[2] = {{act, 0}, {act, 1}};
    for (int r = 0; r < 2; r++)
        assert_int_equal(pthread_create(&threads[r], NULL, take_lies, &takers[r]), 0);
    for (int r = 0; r < 2; r++) join(&two[r]);
    bool are_two = lie == TWO_RESULTS || lie == TWO_RESULTS_UNVERIFIED;
    broadcast(&two[0], are_two ? 1 : 2, lie);
    broadcast(&two[1], 2, lie == TWO_RESULTS_UNVERIFIED || lie == MUTE ? lie : NONE);
    for (int r = 0; r < 2; r++) pthread_join(threads[r], NULL);
    for (int r = 0; r < 2; r++) {
        dw_status expected = lie == MUTE ? DW_ERR_TIMEOUT : DW_ERR_PROTOCOL;
        bool is_well = lie == NONE || lie == TWO_RESULTS_UNVERIFIED;
        /* One that has all that it needs ends well, unless it hears of an error before. */
        bool may_end_well = lie == EXTRA_DIGEST || (r == 1 && lie != TWO_RESULTS && lie != MUTE);
        if (may_end_well && act->status[r] == DW_OK) continue;
        if (act->status[r] != (is_well ? DW_OK : expected))
            fail_msg("lie %d, rank %d: %d: %s", lie, r, (int)act->status[r],
                     rig.group[r] ? dw_group_why(rig.group[r], NULL) : rig.why[r].text);
        for (int i = 0; i < FLOATS; i++) assert_true((act->y[r][i] != 0) == is_well);
        if (lie == TWO_RESULTS) {
            assert_non_null(strstr(dw_group_why(rig.group[r], NULL), "have different results"));
            assert_in_range(rig_failed_rank(rig.group[r]), 0, 1);
        }
        if (lie >= TWO_DIGESTS) assert_int_equal(rig_failed_rank(rig.group[r]), 2);
    }
    rig.ranks = 3;
    rig_close(&rig);
}

TEST(verified_ranks_never_have_different_results)
{
    static lied_to act;
    for (int lie = 0; lie < LIES; lie++) tell_lies(&act, lie);
    dw_group_thresholds usual = dw_group_all_thresholds;
    dw_group_all_thresholds = (dw_group_thresholds){0, 0, 0}; /* as if the operation were large */
    for (int lie = 0; lie < MUTE; lie++) tell_lies(&act, lie);
    dw_group_all_thresholds = usual;
    tell_lies(&act, TWO_RESULTS_UNVERIFIED);
    assert_memory_not_equal(act.y[0], act.y[1], sizeof act.y[0]); /* which verify is for */
}

RUN_TESTS(NULL, NULL)
