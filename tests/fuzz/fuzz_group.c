/* SPDX-License-Identifier: Apache-2.0
 * fuzz_group.c - everything that other ranks can send to a group: contributions, results, their
 * headers with any field changed, bad frames, acknowledgements, errors, goodbyes, silence.
 *
 * The functions of links are replaced by ones in this file, and the group's thread by turns that
 * the input asks for, so an input does the same in every run. It is checked that a group fails only
 * if somebody gave a reason, that it names a rank then, that buffers do not change unless an
 * operation returns OK, and that no memory is lost. Functions named say_... send something in the
 * name of another rank. */
#include "base/clock.h"
#include "clock.h"
#include "fuzz.h"
#include "group.h"
#include "reach.h"

enum { RANKS = 3, SLOTS = 3, MOST_FLOATS = 9000, PIECE = 2048, PIECES = 8, STEPS_MOST = 200 };
enum { VERIFIED_BYTES = 16 }; /* of a digest and its salt */

/* ---- Links that exist only here -------------------------------------------------------------- */

struct dw_link {
    uint32_t peer;
    dw_link_handler handle;
    void *context;
    unsigned char *hello; /* what the group receives while it opens */
    size_t hello_len;
    uint64_t retry_ms, nonce, group_nonce, next_number;
    int is_full, is_lost;
    dw_encoder *contribute, *share, *gather; /* of that rank */
};

typedef struct operation {
    dw_group_job job;
    int runs;
    uint64_t visit;
    unsigned char has_sent[RANKS][2][PIECES]; /* by the rank, hop, piece */
    unsigned char result[VERIFIED_BYTES];     /* that the group has sent */
    int has_result, has_told[RANKS];
} operation;

static struct run {
    dw_link link[RANKS];
    dw_group *group;
    dw_config codec;
    uint32_t rank;
    operation operation[SLOTS];
    float x[SLOTS][MOST_FLOATS], y[SLOTS][MOST_FLOATS];
    int has_reason; /* the group may fail */
    int verifies;
    long live; /* allocations */
} run;

static const float untouched = -3.5f;

const char *const fuzz_goals[] = {"an operation finished", "an operation of one hop finished",
                                  "an operation was verified", "a group failed", NULL};

/* Messages of links have their exact size, so that sanitizers see a byte too many. The number of
 * references is in front of them. */
enum { PREFIX = 16 };

static size_t *references_of(void *message)
{
    return (size_t *)(void *)((unsigned char *)message - PREFIX);
}

static void *make_message(size_t len)
{
    unsigned char *memory = malloc(PREFIX + len);
    REQUIRE(memory);
    *references_of(memory + PREFIX) = 1;
    return memory + PREFIX;
}

static void drop_message(void *message)
{
    if (--*references_of(message) == 0) free(references_of(message));
}

void dw_link_close(dw_link *link)
{
    (void)link;
}

dw_status dw_link_open(dw_link **link, const char *uri, const dw_link_options *options, dw_why *why)
{
    (void)link, (void)uri, (void)options, (void)why;
    return DW_ERR_UNSUPPORTED;
}

dw_status dw_link_count(dw_link *link, dw_link_counters *counters)
{
    *counters = (dw_link_counters){.struct_size = sizeof *counters, .retry_ms = link->retry_ms};
    return DW_OK;
}

const char *dw_link_why(dw_link *link)
{
    return link->is_lost ? "the wire is cut" : "";
}

dw_status dw_link_flush(dw_link *link, int timeout_ms)
{
    (void)timeout_ms;
    return link->is_full ? DW_PENDING : DW_OK;
}

dw_status dw_link_handle(dw_link *link, uint32_t tag, dw_link_handler handle, void *context)
{
    (void)tag;
    link->handle = handle;
    link->context = context;
    return DW_OK;
}

/* The only thread that takes turns is this one, so nothing arrives while a caller waits. */
dw_status dw_link_wait_any(dw_link *const *links, size_t n, uint32_t tag, int wake_fd,
                           int64_t timeout_ns)
{
    (void)links, (void)n, (void)tag, (void)wake_fd;
    fuzz_clock_move(timeout_ns);
    return DW_PENDING;
}

dw_status dw_link_recv(dw_link *link, uint32_t tag, int timeout_ms, void **data, size_t *len)
{
    (void)timeout_ms;
    if (link->hello && (tag & 255) == DW_PEER_MESSAGES) {
        *data = link->hello;
        *len = link->hello_len;
        link->hello = NULL;
        return DW_OK;
    }
    fuzz_clock_move(DW_NS_PER_MS);
    return link->is_lost ? DW_ERR_PEER : DW_PENDING;
}

void dw_link_release(dw_link *link, void *data)
{
    (void)link;
    drop_message(data);
}

void *dw_link_retain(dw_link *link, const void *data)
{
    void *message = (void *)(uintptr_t)data;
    (void)link;
    ++*references_of(message);
    return message;
}

dw_status dw_link_send_begin(dw_link *link, uint32_t tag, size_t cap, void **room)
{
    (void)tag;
    if (link->is_lost) return DW_ERR_PEER;
    if (link->is_full) return DW_PENDING;
    *room = make_message(cap);
    return DW_OK;
}

enum { NONCE_AT = DW_MESSAGE_BYTES + 16, ECHO_AT = DW_MESSAGE_BYTES + 24 };

/* The other rank answers a greeting with its own. */
static void answer_hello(dw_link *link, const unsigned char *message, size_t len)
{
    link->group_nonce = dw_get(message + NONCE_AT, 8);
    if (link->handle || link->hello) return;
    link->hello = make_message(len);
    link->hello_len = len;
    memcpy(link->hello, message, len);
    link->hello[DW_MESSAGE_BYTES + 3] &= 0xfe; /* it wants no answer */
    dw_put(link->hello + DW_MESSAGE_BYTES + 4, link->peer, 4);
    dw_put(link->hello + NONCE_AT, link->nonce, 8);
    dw_put(link->hello + ECHO_AT, link->group_nonce, 8);
    dw_message head = {.kind = DW_MESSAGE_HELLO, .body_len = len - DW_MESSAGE_BYTES};
    dw_message_finalize(link->hello, &head, 0, true);
}

/* The group tells the digest of its result. */
static void learn_result(const unsigned char *message)
{
    enum { FLAGS_AT = 3, SLOT_AT = 16 };
    if (message[0] != DW_MESSAGE_DATA || !(message[FLAGS_AT] & DW_MESSAGE_DIGEST)) return;
    operation *op = &run.operation[dw_get(message + SLOT_AT, 8)];
    memcpy(op->result, message + DW_MESSAGE_BYTES, VERIFIED_BYTES);
    op->has_result = 1;
}

dw_status dw_link_send_end(dw_link *link, void *room, size_t len)
{
    if (len != DW_LINK_DROP && ((unsigned char *)room)[0] == DW_MESSAGE_HELLO)
        answer_hello(link, room, len);
    if (len != DW_LINK_DROP) learn_result(room);
    drop_message(room);
    return DW_OK;
}

dw_status dw_link_send(dw_link *link, uint32_t tag, const void *data, size_t len)
{
    void *room;
    dw_status status = dw_link_send_begin(link, tag, len, &room);
    if (status != DW_OK) return status;
    memcpy(room, data, len);
    return dw_link_send_end(link, room, len);
}

/* ---- The group's thread ---------------------------------------------------------------------- */

typedef void *routine(void *context);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, routine *start,
                          void *context);
int __real_pthread_join(pthread_t thread, void **result);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, routine *start,
                          void *context);
int __wrap_pthread_join(pthread_t thread, void **result);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, routine *start,
                          void *context)
{
    if (start == dw_progress_run_thread) return 0;
    return __real_pthread_create(thread, attributes, start, context);
}

static int64_t take_step(int64_t *stepped_ns)
{
    pthread_mutex_lock(&run.group->lock);
    int64_t left_ns = dw_progress_step(run.group, stepped_ns);
    pthread_mutex_unlock(&run.group->lock);
    return left_ns;
}

/* The group is being closed: turns until it may end. */
int __wrap_pthread_join(pthread_t thread, void **result)
{
    if (!run.group) return __real_pthread_join(thread, result);
    for (int i = 0; i < 1000; i++) {
        int64_t now_ns;
        take_step(&now_ns);
        if (dw_progress_may_end(run.group, now_ns)) return 0;
        fuzz_clock_move(20 * (int64_t)DW_NS_PER_MS);
    }
    REQUIRE(!"a closed group ends");
    return 0;
}

static void turn(void)
{
    int64_t now_ns;
    for (int i = 0; i < 300; i++)
        if (take_step(&now_ns) > 0) return;
    REQUIRE(!"a turn finds an end");
}

static void *take(void *context, size_t bytes, size_t alignment)
{
    (void)context;
    run.live++;
    return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static void give(void *context, void *memory, size_t bytes)
{
    (void)context, (void)bytes;
    run.live--;
    free(memory);
}

/* ---- What other ranks say -------------------------------------------------------------------- */

/* Hands a message to the group, with its digest unless has_digest is 0. */
static void say(dw_link *link, dw_message *head, const void *body, int has_digest)
{
    size_t len = DW_MESSAGE_BYTES + (size_t)head->body_len;
    unsigned char *message = make_message(len);
    if (head->body_len > 0) memcpy(message + DW_MESSAGE_BYTES, body, (size_t)head->body_len);
    uint64_t seed = dw_message_seed(link->nonce, link->group_nonce, link->peer);
    bool has_session = head->kind != DW_MESSAGE_HELLO && head->kind != DW_MESSAGE_REFUSE;
    dw_message_finalize(message, head, has_session ? seed : 0, !has_session || link->retry_ms > 0);
    if (!has_digest) message[(head->slot + head->n) % len] ^= 0x40;
    if (link->handle && !link->is_lost) link->handle(link->context, message, len);
    drop_message(message);
}

/* Changes a field of the header. Returns whether it is another header now. */
static int change_head(fuzz_input *input, dw_message *head)
{
    dw_message before = *head;
    uint64_t any = fuzz_bytes(input, 2);
    switch (fuzz_below(input, 12)) {
    case 0: head->operation = (uint8_t)any; break;
    case 1: head->dtype = (uint8_t)any; break;
    case 2: head->flags = (uint8_t)any; break;
    case 3: head->rank = (uint32_t)any; break;
    case 4: head->number += any; break;
    case 5: head->slot = any % 8; break;
    case 6: head->visit = any % 4; break;
    case 7: head->n = any; break;
    case 8: head->part = (uint32_t)any % 5; break;
    case 9: head->piece = (uint32_t)any % 10; break;
    case 10: head->kind = (uint8_t)any; break;
    default: head->visit = UINT64_MAX - any; break;
    }
    return memcmp(&before, head, sizeof before) != 0;
}

/* A frame of the right shape for a piece. */
static size_t make_frame(dw_encoder *encoder, int hop, uint64_t slot, uint32_t piece, dw_piece at,
                         dw_dtype dtype, unsigned char *frame, size_t cap)
{
    static float values[PIECE];
    size_t len = 0;
    if (at.count == 0) return 0;
    for (uint64_t i = 0; i < at.count; i++) values[i] = (float)(i % 7) - 2;
    /* Half floats have any bits. */
    dw_tensor x = dw_flat_view(values, hop == 2 && dtype != DW_F32 ? DW_F32 : dtype, at.count);
    dw_key key = {.sample = slot, .slice = piece};
    REQUIRE(dw_encode(encoder, &key, &x, NULL, frame, cap, &len) == DW_OK);
    return len;
}

/* A contribution or a result, as it is due or with something wrong. */
static void say_data(fuzz_input *input, dw_link *link)
{
    uint32_t slot = fuzz_below(input, SLOTS), piece = fuzz_below(input, 5);
    int hop = 1 + (int)fuzz_below(input, 2);
    operation *op = &run.operation[slot];
    unsigned wrong = fuzz_byte(input);
    const dw_group_job *job = &op->job;
    dw_partition cut = dw_partition_make(&run.group->exchange.settings, job);
    uint32_t part = hop == 2 ? link->peer : cut.own_part;
    int confirms = op->runs && hop == 1 && job->operation == DW_BROADCAST && piece == 0 &&
                   job->root == run.rank && !op->has_sent[link->peer][0][0];
    int is_due =
        op->runs &&
        (hop == 2 ? dw_job_gathers(&run.group->exchange.settings, job) : dw_job_reduces(job)) &&
        piece < dw_partition_pieces(&cut, part) && !op->has_sent[link->peer][hop - 1][piece];
    dw_piece at = is_due ? dw_partition_piece(&cut, part, piece) : (dw_piece){0, 100};
    static unsigned char frame[1 << 17];
    if (confirms) at.count = 0;
    is_due |= confirms;
    dw_encoder *encoder = hop == 2 ? link->share
                          : dw_job_is_one_shot(&run.group->exchange.settings, job)
                              ? link->gather
                              : link->contribute;
    size_t len = make_frame(encoder, hop, slot, piece, at, is_due ? job->dtype : DW_F32, frame,
                            sizeof frame);
    dw_message head = {
        .kind = DW_MESSAGE_DATA,
        .operation = (uint8_t)job->operation,
        .dtype = (uint8_t)job->dtype,
        .flags = (uint8_t)((job->mean ? DW_MESSAGE_MEAN : 0) | (hop == 2 ? DW_MESSAGE_HOP2 : 0)),
        .rank = job->root,
        .number = link->next_number,
        .slot = slot,
        .visit = op->visit,
        .n = job->n,
        .part = part,
        .piece = piece,
        .body_len = len};
    int is_wrong = !is_due;
    if (wrong % 4 == 1) is_wrong |= change_head(input, &head);
    if (wrong % 8 == 2 && len > 0) {
        frame[fuzz_below(input, (uint32_t)len)] ^= 1 << fuzz_below(input, 8);
        is_wrong = 1;
    }
    if (wrong % 8 == 6) {
        head.body_len = fuzz_below(input, 400);
        is_wrong = 1;
    }
    run.has_reason |= is_wrong;
    if (dw_message_is_numbered(head.kind)) link->next_number++;
    if (is_due) op->has_sent[link->peer][hop - 1][piece] = 1;
    say(link, &head, frame, wrong % 16 != 5);
    if (wrong % 16 == 5) {
        /* Over a link that repairs damage it comes again. */
        run.has_reason |= link->retry_ms == 0;
        say(link, &head, frame, 1);
    }
}

/* What a rank with the same result says of it, or something wrong. */
static void say_result(dw_link *link, uint32_t slot, unsigned wrong)
{
    operation *op = &run.operation[slot];
    const dw_group_job *job = &op->job;
    unsigned char body[VERIFIED_BYTES];
    dw_message head = {.kind = DW_MESSAGE_DATA,
                       .operation = (uint8_t)job->operation,
                       .dtype = (uint8_t)job->dtype,
                       .flags = (uint8_t)((job->mean ? DW_MESSAGE_MEAN : 0) | DW_MESSAGE_DIGEST),
                       .rank = job->root,
                       .number = link->next_number++,
                       .slot = slot,
                       .visit = op->visit,
                       .n = job->n,
                       .body_len = wrong % 8 == 2 ? 8 : VERIFIED_BYTES};
    int is_due = op->runs && op->has_result && !op->has_told[link->peer];
    memcpy(body, op->result, sizeof body);
    if (wrong % 8 == 1) body[wrong / 16] ^= 1;
    run.has_reason |= !is_due || wrong % 8 == 1 || wrong % 8 == 2;
    op->has_told[link->peer] = 1;
    say(link, &head, body, 1);
}

/* All that a rank owes to a running operation. */
static void say_all_due(dw_link *link, uint32_t slot)
{
    operation *op = &run.operation[slot];
    dw_partition cut = dw_partition_make(&run.group->exchange.settings, &op->job);
    for (int hop = 1; hop <= 2 && op->runs; hop++) {
        uint32_t part = hop == 2 ? link->peer : cut.own_part;
        uint32_t pieces = dw_partition_pieces(&cut, part);
        bool owes = hop == 2 ? dw_job_gathers(&run.group->exchange.settings, &op->job)
                             : dw_job_reduces(&op->job);
        if (hop == 1 && op->job.operation == DW_BROADCAST && op->job.root == run.rank) {
            owes = true;
            pieces = 1;
        }
        for (uint32_t piece = 0; owes && piece < pieces; piece++) {
            if (op->has_sent[link->peer][hop - 1][piece]) continue;
            uint8_t decisions[4] = {(uint8_t)slot, (uint8_t)piece, (uint8_t)(hop - 1), 0};
            fuzz_input due = {decisions, sizeof decisions};
            say_data(&due, link);
        }
    }
    if (op->runs && op->has_result && !op->has_told[link->peer]) say_result(link, slot, 0);
}

static void say_short(fuzz_input *input, dw_link *link, dw_message_kind kind)
{
    static const char sentence[] = "rank 9 reports: \x01 things \x80";
    dw_message head = {.kind = (uint8_t)kind,
                       .rank = fuzz_below(input, 5),
                       .number = kind == DW_MESSAGE_ACK ? fuzz_below(input, 40) : link->next_number,
                       .slot = kind == DW_MESSAGE_ABORT
                                   ? (uint64_t) - (int64_t)fuzz_below(input, 60)
                                   : fuzz_bytes(input, 8)};
    if (kind == DW_MESSAGE_ABORT || kind == DW_MESSAGE_REFUSE) head.body_len = sizeof sentence;
    if (kind == DW_MESSAGE_HELLO) head.body_len = fuzz_below(input, sizeof sentence);
    if (dw_message_is_numbered(head.kind)) link->next_number++;
    run.has_reason |=
        kind == DW_MESSAGE_ABORT || kind == DW_MESSAGE_CLOSE || kind == DW_MESSAGE_REFUSE;
    say(link, &head, sentence, 1);
}

/* ---- What this rank does --------------------------------------------------------------------- */

static void start(fuzz_input *input)
{
    static const uint64_t lengths[] = {0, 1, 100, 2048, 5000, MOST_FLOATS};
    static const dw_dtype dtypes[] = {DW_F32, DW_F32, DW_BF16, DW_F16};
    uint32_t slot = fuzz_below(input, SLOTS);
    operation *op = &run.operation[slot];
    unsigned how = fuzz_byte(input);
    dw_group_job job = {.struct_size = sizeof job,
                        .operation = (dw_operation)(1 + how % 4),
                        .dtype = dtypes[how / 4 % 4],
                        .slot = slot,
                        .n = lengths[fuzz_below(input, 6)],
                        .x = run.x[slot],
                        .y = run.y[slot],
                        .mean = how / 16 % 2,
                        .root = how / 32 % RANKS};
    dw_status status = dw_group_start(run.group, &job);
    if (status != DW_OK) {
        REQUIRE(op->runs || run.has_reason);
        return;
    }
    REQUIRE(!op->runs);
    if (job.operation != DW_BROADCAST) job.root = 0;
    if (!dw_job_reduces(&job)) job.mean = 0;
    op->job = job;
    op->runs = 1;
    memset(op->has_sent, 0, sizeof op->has_sent);
    memset(op->has_told, 0, sizeof op->has_told);
    op->has_result = 0;
    for (int i = 0; i < MOST_FLOATS; i++) run.y[slot][i] = untouched;
}

static void test(uint32_t slot)
{
    operation *op = &run.operation[slot];
    dw_status status = dw_group_wait(run.group, slot, 0);
    if (!op->runs) {
        REQUIRE(status != DW_OK && status != DW_PENDING);
        return;
    }
    if (status == DW_PENDING) return;
    int is_same = 1;
    for (int i = 0; i < MOST_FLOATS; i++) is_same &= run.y[slot][i] == untouched;
    op->runs = 0;
    if (status == DW_OK) {
        op->visit++;
        fuzz_reach("an operation finished");
        if (dw_job_is_one_shot(&run.group->exchange.settings, &op->job))
            fuzz_reach("an operation of one hop finished");
        if (op->has_result) fuzz_reach("an operation was verified");
        return;
    }
    REQUIRE(is_same && run.has_reason);
    int rank;
    (void)dw_group_why(run.group, &rank);
    REQUIRE(rank >= 0 && rank < RANKS && dw_group_why(run.group, NULL)[0]);
    fuzz_reach("a group failed");
}

static void do_one(fuzz_input *input, unsigned what)
{
    dw_link *link = &run.link[(run.rank + 1 + fuzz_below(input, RANKS - 1)) % RANKS];
    switch (what) {
    case 0:
    case 1: start(input); break;
    case 2: test(fuzz_below(input, SLOTS)); break;
    case 3: say_short(input, link, DW_MESSAGE_ACK); break;
    case 4: say_short(input, link, DW_MESSAGE_PING); break;
    case 5:
        if (fuzz_below(input, 4) == 0) say_short(input, link, DW_MESSAGE_ABORT);
        break;
    case 6:
        if (fuzz_below(input, 4) == 0) say_short(input, link, DW_MESSAGE_CLOSE);
        break;
    case 7: say_short(input, link, DW_MESSAGE_HELLO); break;
    case 8:
        fuzz_clock_move((int64_t)fuzz_below(input, 256) * 10 * DW_NS_PER_MS);
        run.has_reason = 1; /* somebody may be late now */
        break;
    case 9: link->is_full = !link->is_full; break;
    case 10:
        link->is_lost |= fuzz_below(input, 8) == 0;
        run.has_reason |= link->is_lost;
        break;
    case 11: say_all_due(link, fuzz_below(input, SLOTS)); break;
    case 12:
        if (run.verifies) {
            uint32_t slot = fuzz_below(input, SLOTS);
            say_result(link, slot, fuzz_byte(input));
            break;
        } /* fall through */
    default: say_data(input, link); break;
    }
}

/* ---- One input ------------------------------------------------------------------------------- */

static void open_group(fuzz_input *input)
{
    /* Decided by the last byte, so that inputs from before `verify` keep their meaning. */
    run.verifies = input->left > 0 && input->data[input->left - 1] == 0xa5;
    static const char *const codecs[] = {
        "raw:f32,incarnation=5", "direct:bits=4,incarnation=5", "delta:bits=4,incarnation=5",
        "direct:form=step,group=sample,entropy=rans,incarnation=5"};
    unsigned how = fuzz_byte(input);
    bool has_one_hop = how >= 0xc0 && how <= 0xef; /* no input from before hops began so */
    dw_link *links[RANKS];
    REQUIRE(dw_config_parse(&run.codec, codecs[how % 4], NULL) == DW_OK);
    dw_config theirs = run.codec;
    theirs.replies = DW_REPLIES_NEVER;
    run.rank = how / 4 % RANKS;
    for (uint32_t r = 0; r < RANKS; r++) {
        run.link[r] = (dw_link){.peer = r, .nonce = 1000 + r};
        run.link[r].retry_ms = how & (32u << r) ? 5 : 0;
        theirs.incarnation = 10 + r;
        REQUIRE(dw_encoder_create(&run.link[r].contribute, &theirs, NULL, NULL) == DW_OK);
        theirs.incarnation = 20 + r;
        REQUIRE(dw_encoder_create(&run.link[r].share, &theirs, NULL, NULL) == DW_OK);
        theirs.incarnation = 30 + r;
        REQUIRE(dw_encoder_create(&run.link[r].gather, &theirs, NULL, NULL) == DW_OK);
        links[r] = &run.link[r];
    }
    dw_group_config config = {.struct_size = sizeof config,
                              .id = 3,
                              .rank = run.rank,
                              .ranks = RANKS,
                              .timeout_ms = 3000,
                              .piece = PIECE,
                              .links = links,
                              .codec = &run.codec,
                              .max_early_bytes = 1 << 20,
                              .allocator = {take, give, NULL},
                              .hops = has_one_hop ? 1 : 2,
                              .verify = (uint32_t)run.verifies};
    /* Some groups take every operation for a large one, and no copies of messages. */
    static dw_group_thresholds usual;
    if (usual.held_from == 0) usual = dw_group_all_thresholds;
    dw_group_all_thresholds = run.rank % 2 == 1 ? (dw_group_thresholds){0, 0, 0} : usual;
    dw_why why;
    dw_status status = dw_group_open(&run.group, &config, &why);
    if (status != DW_OK) fprintf(stderr, "%s\n", why.text);
    REQUIRE(status == DW_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input input = {data, size};
    memset(&run, 0, sizeof run);
    fuzz_clock_start();
    open_group(&input);
    for (int i = 0; i < STEPS_MOST && input.left > 0; i++) {
        unsigned what = fuzz_byte(&input);
        do_one(&input, what & 15);
        if (what < 192) turn();
        int rank;
        (void)dw_group_why(run.group, &rank);
        REQUIRE(run.has_reason || rank == -1);
    }
    turn();
    for (uint32_t i = 0; i < SLOTS; i++) test(i);
    dw_group_close(run.group);
    for (uint32_t r = 0; r < RANKS; r++) {
        dw_encoder_destroy(run.link[r].contribute);
        dw_encoder_destroy(run.link[r].share);
        dw_encoder_destroy(run.link[r].gather);
        if (run.link[r].hello) drop_message(run.link[r].hello);
    }
    REQUIRE(run.live == 0);
    return 0;
}
