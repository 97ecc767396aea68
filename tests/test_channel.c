/* SPDX-License-Identifier: Apache-2.0
 * test_channel.c - tensors through channels: the same bits as without a wire, whatever the wire does to frames. */
#include "transport_suite.h"

#include "channel.h"
#include "tool.h"

enum { N = 2, T = 5, C = 96, ID = 3, KEYS = 6, PATIENCE_MS = 60000 };
enum { TENSOR_BYTES = N * T * C * 4 };

/* Bytes of a message as a backend sees it. */
enum { AT_ENVELOPE = DW_LINK_HEADER_BYTES, AT_FRAME = AT_ENVELOPE + DW_ENVELOPE_BYTES };

/* ---- A wire with plans -------------------------------------------------------------------------- */

typedef struct test_plan {
    uint32_t which;      /* DW_TAG_... */
    int first, last;     /* messages with this tag, counted from 0 over both ends */
    suite_verdict verdict;
    int flip_at;         /* byte of the message; < 0: from its end; NO_FLIP: none */
} test_plan;

enum { NO_FLIP = 0x7fffffff };

typedef struct test_wire {
    pthread_mutex_t lock;
    test_plan plans[4];
    int count[3];
    int spoiled;
} test_wire;

static suite_verdict follow_plans(void *context, unsigned char *message, size_t *len, uint64_t n)
{
    test_wire *wire = context;
    const uint32_t tag = dw_get32(message);
    (void)n;
    if (dw_get32(message + 4) != DW_KIND_DATA || tag >> 8 != ID || (tag & 0xff) > DW_TAG_RESENT) return SUITE_PASS;
    suite_verdict verdict = SUITE_PASS;
    pthread_mutex_lock(&wire->lock);
    const int number = wire->count[tag & 0xff]++;
    for (size_t i = 0; i < sizeof wire->plans / sizeof *wire->plans; i++) {
        const test_plan *plan = &wire->plans[i];
        if (plan->which != (tag & 0xff) || number < plan->first || number > plan->last) continue;
        if (plan->flip_at == 0 && plan->verdict == SUITE_PASS) continue; /* unused */
        const size_t at = plan->flip_at < 0 ? *len - (size_t)-plan->flip_at : (size_t)plan->flip_at;
        if (plan->flip_at != NO_FLIP && at < *len) message[at] ^= 0x10;
        verdict = plan->verdict;
        wire->spoiled++;
    }
    pthread_mutex_unlock(&wire->lock);
    return verdict;
}

/* ---- Pairs of channels -------------------------------------------------------------------------- */

static const dw_transport *const with_spoiled[] = {&suite_spoiled, NULL};
static const suite_backend backends[] = {
    {.name = "loop", .uri = "loop://channel-%d", .transports = with_spoiled},
    {.name = "tcp", .uri = "tcp://127.0.0.1:0", .transports = with_spoiled},
    {.name = "shaped", .uri = "shaped:rate=1gbit,delay=2ms/tcp://127.0.0.1:0", .transports = with_spoiled}};

typedef struct test_channels {
    suite_pair links;
    dw_channel *end[2]; /* 0 sends */
    dw_channel_config config[2];
    dw_config codec[2];
    dw_status status[2];
    dw_why why[2];
    test_wire wire;
} test_channels;

static void *open_end(void *context)
{
    void **arguments = context;
    test_channels *channels = arguments[0];
    const int i = *(const int *)arguments[1];
    channels->status[i] = dw_channel_open(&channels->end[i], channels->links.link[i], &channels->config[i],
                                          &channels->why[i]);
    return NULL;
}

static void prepare(test_channels *channels, const suite_backend *backend, const char *sends, const char *receives)
{
    memset(channels, 0, sizeof *channels);
    pthread_mutex_init(&channels->wire.lock, NULL);
    suite_prepare(&channels->links, backend);
    channels->links.prefix[0] = channels->links.prefix[1] = "spoiled:";
    const char *texts[2] = {sends, receives};
    for (int i = 0; i < 2; i++) {
        channels->config[i] = (dw_channel_config){.struct_size = sizeof(dw_channel_config), .id = ID};
        if (!texts[i]) continue;
        dw_why why;
        if (dw_config_parse(&channels->codec[i], texts[i], &why)) fail_msg("%s: %s", texts[i], why.text);
        if (i == 0) channels->config[0].send = &channels->codec[0];
        else channels->config[1].recv = &channels->codec[1];
    }
}

static void try_open(test_channels *channels)
{
    suite_set_spoiler(&(suite_spoiler){.spoil = follow_plans, .context = &channels->wire});
    /* The wrapper is named in the URI of the one end and announced by the backend below to the other. */
    suite_open(&channels->links);
    suite_set_spoiler(NULL);
    pthread_t other;
    int ends[2] = {0, 1};
    void *arguments[2][2] = {{channels, &ends[0]}, {channels, &ends[1]}};
    pthread_create(&other, NULL, open_end, arguments[0]);
    open_end(arguments[1]);
    pthread_join(other, NULL);
}

static void open_channels(test_channels *channels, const suite_backend *backend, const char *config)
{
    prepare(channels, backend, config, config);
    /* The hellos are number 0 and 1 on the control tag. */
    try_open(channels);
    for (int i = 0; i < 2; i++) {
        if (channels->status[i] != DW_OK) fail_msg("end %d: %s", i, channels->why[i].text);
    }
}

static void *close_sender(void *context)
{
    test_channels *channels = context;
    dw_channel_close(channels->end[0]);
    return NULL;
}

static void close_channels(test_channels *channels)
{
    pthread_t other;
    pthread_create(&other, NULL, close_sender, channels);
    dw_channel_close(channels->end[1]);
    pthread_join(other, NULL);
    suite_close(&channels->links);
    pthread_mutex_destroy(&channels->wire.lock);
}

/* ---- Tensors ------------------------------------------------------------------------------------ */

/* Tensor number i visits two of the keys; values drift from epoch to epoch. */
static void make_tensor(int i, dw_key keys[N], float x[N * T * C])
{
    test_random random = {.state = (uint64_t)(i % (KEYS / N)) + 1};
    test_fill(&random, x, DW_F32, N * T * C, 1.0f);
    test_random drift = {.state = 1000 + (uint64_t)i};
    for (int k = 0; k < N * T * C; k++) x[k] += 0.05f * test_normal(&drift);
    for (int n = 0; n < N; n++) keys[n] = (dw_key){.sample = (uint64_t)(i % (KEYS / N)) * N + (uint64_t)n, .slice = 4};
}

static void send_tensor(test_channels *channels, int i)
{
    dw_key keys[N];
    float x[N * T * C];
    make_tensor(i, keys, x);
    const dw_tensor view = dw_tensor_3d(x, DW_F32, N, T, C);
    const dw_status status = dw_channel_send(channels->end[0], keys, &view);
    if (status != DW_OK) fail_msg("send %d: %d, %s", i, (int)status, dw_channel_why(channels->end[0]));
}

static dw_status receive(test_channels *channels, int timeout_ms, dw_key keys[N], float y[N * T * C])
{
    const dw_tensor view = dw_tensor_3d(y, DW_F32, N, T, C);
    return dw_channel_recv(channels->end[1], timeout_ms, keys, &view);
}

/* What must arrive: the same tensors through a codec pair without any wire. */
typedef struct test_reference {
    test_pair pair;
    int next;
} test_reference;

static void expect_tensor(test_channels *channels, test_reference *reference, int i)
{
    dw_key keys[N], got_keys[N];
    float x[N * T * C], y[N * T * C], got[N * T * C];
    make_tensor(i, keys, x);
    const dw_tensor view = dw_tensor_3d(x, DW_F32, N, T, C), out = dw_tensor_3d(y, DW_F32, N, T, C);
    assert_int_equal(i, reference->next++);
    test_pair_encode(&reference->pair, keys, &view);
    assert_int_equal(test_pair_decode(&reference->pair, &out), DW_OK);
    if (reference->pair.reply_len > 0) test_pair_feedback(&reference->pair);
    const dw_status status = receive(channels, PATIENCE_MS, got_keys, got);
    if (status != DW_OK) fail_msg("tensor %d: %d, %s", i, (int)status, dw_channel_why(channels->end[1]));
    assert_memory_equal(got, y, TENSOR_BYTES);
    for (int n = 0; n < N; n++) {
        assert_int_equal(got_keys[n].sample, keys[n].sample);
        assert_int_equal(got_keys[n].slice, keys[n].slice);
    }
}

static const char *const configs[] = {"raw:f32", "direct:bits=6", "delta:bits=3,scale=signed", "delta:bits=2,key=raw"};
enum { CONFIGS = sizeof configs / sizeof *configs };

/* While its caller does nothing, the sender takes the acknowledgements and lets its copies go. */
static void expect_all_acknowledged(test_channels *channels, int tensors)
{
    dw_channel *sender = channels->end[0];
    const uint64_t acks = sender->send.codec == DW_CODEC_DELTA ? (uint64_t)tensors : 0; /* others send no reply */
    uint64_t kept = 1;
    for (int i = 0; i < 1000 && (kept > 0 || dw_channel_sent(sender).acks < acks); i++) {
        suite_sleep_ms(5);
        pthread_mutex_lock(&sender->encoder_lock);
        kept = sender->kept_bytes;
        pthread_mutex_unlock(&sender->encoder_lock);
    }
    assert_int_equal(kept, 0);
    assert_int_equal(dw_channel_sent(sender).acks, acks);
}

/* Sends and receives `tensors` tensors, at most `ahead` under way, on a wire with these plans. */
static void carry(const suite_backend *backend, const char *config, int tensors, int ahead, const test_plan *plans,
                  size_t n_plans)
{
    test_channels channels;
    prepare(&channels, backend, config, config);
    for (size_t i = 0; i < n_plans; i++) channels.wire.plans[i] = plans[i];
    try_open(&channels);
    for (int i = 0; i < 2; i++) assert_int_equal(channels.status[i], DW_OK);
    test_reference reference = {.next = 0};
    test_pair_open(&reference.pair, config, N, T, C, DW_F32);
    int sent = 0;
    for (int i = 0; i < tensors; i++) {
        while (sent < tensors && sent < i + ahead) send_tensor(&channels, sent++);
        expect_tensor(&channels, &reference, i);
    }
    if (n_plans > 0) assert_true(channels.wire.spoiled > 0);
    else if (channels.codec[0].replies != DW_REPLIES_NEVER) expect_all_acknowledged(&channels, tensors);
    dw_key keys[N];
    float y[N * T * C];
    assert_int_equal(receive(&channels, 0, keys, y), DW_PENDING);
    assert_int_equal(dw_channel_received(channels.end[1]).raw_bytes, (uint64_t)tensors * TENSOR_BYTES);
    test_pair_close(&reference.pair);
    close_channels(&channels);
}

static void tensors_arrive_as_without_a_wire(void **state)
{
    (void)state;
    for (size_t b = 0; b < sizeof backends / sizeof *backends; b++) {
        for (int c = 0; c < CONFIGS; c++) carry(&backends[b], configs[c], 40, 3, NULL, 0);
    }
    carry(&backends[1], "delta:bits=4,replies=never", 40, 3, NULL, 0);
}

/* ---- Damage ------------------------------------------------------------------------------------- */

static void heals_a_frame_that_was_damaged_anywhere(void **state)
{
    (void)state;
    /* Every byte of the envelope, then the frame's magic, version, header, tables, payload. */
    for (int at = AT_ENVELOPE; at < AT_FRAME; at++) {
        const test_plan plan = {.which = DW_TAG_FRAMES, .first = 4, .last = 4, .flip_at = at};
        carry(&backends[0], configs[2], 8, 4, &plan, 1);
    }
    static const int places[] = {0, 4, 5, 6, 7, 8, 16, 24, 33, 37, 48, 64, 72, 79, 80, 92, 96, 104, 119, 160, 200};
    for (size_t p = 0; p < sizeof places / sizeof *places; p++) {
        const test_plan plan = {.which = DW_TAG_FRAMES, .first = 4, .last = 5, .flip_at = AT_FRAME + places[p]};
        for (int c = 0; c < CONFIGS; c++) carry(&backends[p % 2], configs[c], 9, 4, &plan, 1);
    }
    const test_plan last_byte = {.which = DW_TAG_FRAMES, .first = 0, .last = 6, .flip_at = -1};
    for (int c = 0; c < CONFIGS; c++) carry(&backends[2], configs[c], 9, 5, &last_byte, 1);
}

static void heals_when_the_answer_is_damaged_too(void **state)
{
    (void)state;
    for (int c = 0; c < CONFIGS; c++) {
        const test_plan body[] = {{.which = DW_TAG_FRAMES, .first = 4, .last = 4, .flip_at = -1},
                             {.which = DW_TAG_RESENT, .first = 0, .last = 1, .flip_at = -1}};
        carry(&backends[0], configs[c], 9, 4, body, 2);
        const test_plan envelope[] = {{.which = DW_TAG_FRAMES, .first = 4, .last = 4, .flip_at = AT_ENVELOPE + 8},
                                 {.which = DW_TAG_RESENT, .first = 0, .last = 1, .flip_at = AT_ENVELOPE + 8}};
        carry(&backends[1], configs[c], 9, 4, envelope, 2);
    }
}

static void heals_when_acknowledgements_and_requests_are_damaged(void **state)
{
    (void)state;
    for (int c = 0; c < CONFIGS; c++) {
        /* 0 and 1 are the hellos; 2, 3 acknowledge two frames; 4 asks for the damaged third, and is damaged
         * itself, as is its first repetition. */
        const test_plan request[] = {{.which = DW_TAG_FRAMES, .first = 2, .last = 2, .flip_at = -1},
                                {.which = DW_TAG_CONTROL, .first = 4, .last = 5, .flip_at = AT_ENVELOPE + 8}};
        carry(&backends[0], configs[c], 9, 4, request, 2);
        const test_plan acknowledgements = {.which = DW_TAG_CONTROL, .first = 2, .last = 6, .flip_at = AT_ENVELOPE + 4};
        carry(&backends[0], configs[c], 30, 4, &acknowledgements, 1);
    }
}

static void drops_duplicates_and_fetches_what_was_lost(void **state)
{
    (void)state;
    for (int c = 0; c < CONFIGS; c++) {
        const test_plan twice = {.which = DW_TAG_FRAMES, .first = 2, .last = 5, .verdict = SUITE_TWICE, .flip_at = NO_FLIP};
        carry(&backends[0], configs[c], 12, 4, &twice, 1);
        const test_plan lost = {.which = DW_TAG_FRAMES, .first = 3, .last = 4, .verdict = SUITE_DROP, .flip_at = NO_FLIP};
        carry(&backends[0], configs[c], 12, 4, &lost, 1);
        const test_plan answers = {.which = DW_TAG_RESENT, .first = 0, .last = 5, .verdict = SUITE_TWICE, .flip_at = NO_FLIP};
        const test_plan both[] = {{.which = DW_TAG_FRAMES, .first = 3, .last = 4, .flip_at = -1}, answers};
        carry(&backends[1], configs[c], 12, 4, both, 2);
    }
}

static void gives_up_on_a_frame_that_never_arrives_whole(void **state)
{
    (void)state;
    test_channels channels;
    prepare(&channels, &backends[1], configs[2], configs[2]);
    channels.wire.plans[0] = (test_plan){.which = DW_TAG_FRAMES, .first = 1, .last = 1, .flip_at = -1};
    channels.wire.plans[1] = (test_plan){.which = DW_TAG_RESENT, .first = 0, .last = 1000, .flip_at = -1};
    try_open(&channels);
    for (int i = 0; i < 3; i++) send_tensor(&channels, i);
    dw_key keys[N];
    float y[N * T * C];
    assert_int_equal(receive(&channels, PATIENCE_MS, keys, y), DW_OK);
    assert_int_equal(receive(&channels, PATIENCE_MS, keys, y), DW_ERR_CORRUPT);
    assert_non_null(strstr(dw_channel_why(channels.end[1]), "frame 1"));
    assert_int_equal(receive(&channels, PATIENCE_MS, keys, y), DW_ERR_CORRUPT); /* and for ever */
    assert_int_equal(channels.wire.count[DW_TAG_RESENT], DW_CHANNEL_TRIES);
    close_channels(&channels);
}

static void without_replies_a_damaged_frame_is_an_error(void **state)
{
    (void)state;
    test_channels channels;
    prepare(&channels, &backends[0], "direct:bits=8,replies=never", "direct:bits=8,replies=never");
    channels.wire.plans[0] = (test_plan){.which = DW_TAG_FRAMES, .first = 1, .last = 1, .flip_at = -1};
    channels.wire.plans[1] = (test_plan){.which = DW_TAG_FRAMES, .first = 2, .last = 2, .flip_at = AT_ENVELOPE + 9};
    try_open(&channels);
    for (int i = 0; i < 4; i++) send_tensor(&channels, i);
    dw_key keys[N];
    float y[N * T * C];
    const dw_status expected[] = {DW_OK, DW_ERR_CORRUPT, DW_ERR_CORRUPT, DW_OK};
    for (int i = 0; i < 4; i++) assert_int_equal(receive(&channels, PATIENCE_MS, keys, y), expected[i]);
    assert_int_equal(channels.wire.count[DW_TAG_CONTROL], 2); /* the hellos: nothing was answered */
    close_channels(&channels);
}

/* ---- Out of step -------------------------------------------------------------------------------- */

/* The receiver's state goes wrong in between; what arrives must still be what the encoder holds. */
static void recover(const char *config, int lose_all)
{
    test_channels channels;
    open_channels(&channels, &backends[1], config);
    test_reference reference = {.next = 0};
    test_pair_open(&reference.pair, config, N, T, C, DW_F32);
    int sent = 0;
    for (int i = 0; i < 24; i++) {
        while (sent < 24 && sent < i + 2) send_tensor(&channels, sent++);
        if (i == 9 || i == 16) {
            if (lose_all) {
                dw_decoder_destroy(channels.end[1]->decoder);
                assert_int_equal(dw_decoder_create(&channels.end[1]->decoder, &channels.end[1]->recv), DW_OK);
            } else {
                dw_tensor prev;
                const dw_key key = {.sample = 3, .slice = 4};
                assert_int_equal(dw_decoder_peek(channels.end[1]->decoder, key, &prev), DW_OK);
                ((float *)prev.data)[17] += 1.0f; /* memory that rotted */
            }
        }
        expect_tensor(&channels, &reference, i);
    }
    const dw_counters counters = dw_channel_sent(channels.end[0]);
    assert_true(counters.resyncs > 0 && counters.nacks > 0);
    test_pair_close(&reference.pair);
    close_channels(&channels);
}

static void a_decoder_that_lost_its_state_gets_it_back(void **state)
{
    (void)state;
    recover("delta:bits=3", 1);
    recover("delta:bits=4,key=raw,prev=f32", 1);
}

static void a_state_that_rotted_is_replaced(void **state)
{
    (void)state;
    recover("delta:bits=3", 0);
}

static void without_replies_a_lost_state_is_an_error(void **state)
{
    (void)state;
    test_channels channels;
    open_channels(&channels, &backends[0], "delta:bits=4,replies=never");
    dw_key keys[N];
    float y[N * T * C];
    for (int i = 0; i < KEYS / N; i++) {
        send_tensor(&channels, i);
        assert_int_equal(receive(&channels, PATIENCE_MS, keys, y), DW_OK);
    }
    dw_decoder_destroy(channels.end[1]->decoder);
    assert_int_equal(dw_decoder_create(&channels.end[1]->decoder, &channels.end[1]->recv), DW_OK);
    send_tensor(&channels, KEYS / N);
    assert_int_equal(receive(&channels, PATIENCE_MS, keys, y), DW_ERR_BASE);
    assert_string_not_equal(dw_channel_why(channels.end[1]), "");
    close_channels(&channels);
}

static void a_forgotten_key_begins_anew(void **state)
{
    (void)state;
    test_channels channels;
    open_channels(&channels, &backends[0], "delta:bits=4");
    dw_key keys[N];
    float y[N * T * C];
    for (int i = 0; i < KEYS / N; i++) {
        send_tensor(&channels, i);
        assert_int_equal(receive(&channels, PATIENCE_MS, keys, y), DW_OK);
    }
    assert_int_equal(dw_channel_received(channels.end[1]).keys_held, KEYS);
    assert_int_equal(dw_channel_forget(channels.end[0], (dw_key){.sample = 2, .slice = 4}), DW_OK);
    assert_int_equal(dw_channel_forget(channels.end[1], (dw_key){.sample = 2, .slice = 4}), DW_ERR_ARGUMENT);
    send_tensor(&channels, 0);
    assert_int_equal(receive(&channels, PATIENCE_MS, keys, y), DW_OK);
    assert_int_equal(dw_channel_received(channels.end[1]).keys_held, KEYS - 1);
    close_channels(&channels);
}

/* ---- Opening ------------------------------------------------------------------------------------ */

static void different_configs_are_a_mismatch_at_both_ends(void **state)
{
    (void)state;
    static const struct {
        const char *sends, *receives;
        dw_status status;
    } cases[] = {{"delta:bits=3", "delta:bits=4", DW_ERR_MISMATCH},
                 {"delta:bits=3,key=raw", "delta:bits=3", DW_ERR_MISMATCH},
                 {"delta:bits=3,group=32", "delta:bits=3", DW_ERR_MISMATCH},
                 {"delta:bits=3,prev=bf16", "delta:bits=3", DW_ERR_MISMATCH},
                 {"delta:bits=3,replies=never", "delta:bits=3", DW_ERR_MISMATCH},
                 {"delta:bits=3", NULL, DW_ERR_MISMATCH},
                 {"direct:bits=3", "delta:bits=3", DW_ERR_MISMATCH},
                 {"delta:bits=3,scale=signed", "delta:bits=3", DW_OK}}; /* the encoder's own affair */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        test_channels channels;
        prepare(&channels, &backends[0], cases[i].sends, cases[i].receives);
        if (!cases[i].receives) {
            dw_config_parse(&channels.codec[1], "raw:f32", NULL);
            channels.config[1].send = &channels.codec[1];
        }
        try_open(&channels);
        for (int k = 0; k < 2; k++) {
            if (channels.status[k] != cases[i].status) fail_msg("%s: %d", cases[i].sends, (int)channels.status[k]);
            if (cases[i].status == DW_OK) continue;
            assert_null(channels.end[k]);
            if (!cases[i].receives) assert_non_null(strstr(channels.why[k].text, "nothing"));
            else if (!strstr(channels.why[k].text, cases[i].sends) || !strstr(channels.why[k].text, cases[i].receives))
                fail_msg("%s", channels.why[k].text);
        }
        close_channels(&channels);
    }
}

static void opening_alone_is_a_timeout(void **state)
{
    (void)state;
    test_channels channels;
    prepare(&channels, &backends[1], "raw:f32", "raw:f32");
    suite_open(&channels.links);
    dw_channel *channel;
    dw_why why;
    channels.config[0].open_timeout_ms = 100;
    assert_int_equal(dw_channel_open(&channel, channels.links.link[0], &channels.config[0], &why), DW_ERR_TIMEOUT);
    assert_non_null(strstr(why.text, "channel 3"));
    assert_null(channel);
    channels.config[0].id = 0x10000;
    assert_int_equal(dw_channel_open(&channel, channels.links.link[0], &channels.config[0], &why), DW_ERR_ARGUMENT);
    channels.config[0].id = ID;
    channels.config[0].send = NULL;
    assert_int_equal(dw_channel_open(&channel, channels.links.link[0], &channels.config[0], &why), DW_ERR_ARGUMENT);
    channels.codec[0].bits = 99;
    channels.config[0].send = &channels.codec[0];
    assert_int_equal(dw_channel_open(&channel, channels.links.link[0], &channels.config[0], &why), DW_ERR_CONFIG);
    assert_non_null(strstr(why.text, "channel 3"));
    close_channels(&channels);
}

static void an_id_that_is_open_is_refused(void **state)
{
    (void)state;
    test_channels channels;
    open_channels(&channels, &backends[0], "raw:f32");
    dw_channel *second;
    dw_why why;
    assert_int_equal(dw_channel_open(&second, channels.links.link[0], &channels.config[0], &why), DW_ERR_ARGUMENT);
    assert_non_null(strstr(why.text, "open already"));
    send_tensor(&channels, 0);
    dw_key keys[N];
    float y[N * T * C];
    assert_int_equal(receive(&channels, PATIENCE_MS, keys, y), DW_OK);
    close_channels(&channels);
}

/* ---- Calls -------------------------------------------------------------------------------------- */

static void a_wrong_shape_leaves_the_frame_for_a_better_call(void **state)
{
    (void)state;
    test_channels channels;
    open_channels(&channels, &backends[0], "delta:bits=4");
    test_reference reference = {.next = 0};
    test_pair_open(&reference.pair, "delta:bits=4", N, T, C, DW_F32);
    send_tensor(&channels, 0);
    float y[N * T * C];
    dw_key keys[N];
    const dw_tensor small = dw_tensor_3d(y, DW_F32, N, T, C - 1);
    assert_int_equal(dw_channel_recv(channels.end[1], PATIENCE_MS, keys, &small), DW_ERR_SHAPE);
    assert_int_equal(dw_channel_recv(channels.end[1], PATIENCE_MS, keys, NULL), DW_ERR_ARGUMENT);
    expect_tensor(&channels, &reference, 0);
    const dw_tensor nothing = dw_tensor_3d(NULL, DW_F32, N, T, C);
    assert_int_equal(dw_channel_send(channels.end[0], keys, &nothing), DW_ERR_ARGUMENT);
    const dw_key doubled[N] = {{.sample = 1}, {.sample = 1}};
    const dw_tensor x = dw_tensor_3d(y, DW_F32, N, T, C);
    assert_int_equal(dw_channel_send(channels.end[0], doubled, &x), DW_ERR_ARGUMENT);
    assert_int_equal(dw_channel_send(channels.end[1], keys, &x), DW_ERR_ARGUMENT);
    assert_int_equal(dw_channel_recv(channels.end[0], 0, keys, &x), DW_ERR_ARGUMENT);
    /* None of it went out or changed anything. */
    send_tensor(&channels, 1);
    expect_tensor(&channels, &reference, 1);
    test_pair_close(&reference.pair);
    close_channels(&channels);
}

static void what_was_sent_can_be_received_after_the_sender_closed(void **state)
{
    (void)state;
    test_channels channels;
    open_channels(&channels, &backends[1], "raw:f32,replies=never");
    for (int i = 0; i < 5; i++) send_tensor(&channels, i);
    dw_channel_close(channels.end[0]);
    channels.end[0] = NULL;
    dw_key keys[N];
    float y[N * T * C];
    for (int i = 0; i < 5; i++) assert_int_equal(receive(&channels, PATIENCE_MS, keys, y), DW_OK);
    assert_int_equal(receive(&channels, PATIENCE_MS, keys, y), DW_ERR_PEER);
    assert_non_null(strstr(dw_channel_why(channels.end[1]), "closed its end"));
    close_channels(&channels);
}

static void sending_to_a_closed_end_is_an_error(void **state)
{
    (void)state;
    test_channels channels;
    open_channels(&channels, &backends[0], "delta:bits=4");
    dw_channel_close(channels.end[1]);
    channels.end[1] = NULL;
    dw_key keys[N];
    float x[N * T * C];
    make_tensor(0, keys, x);
    const dw_tensor view = dw_tensor_3d(x, DW_F32, N, T, C);
    dw_status status = DW_OK;
    for (int i = 0; i < 5000 && status == DW_OK; i++) {
        status = dw_channel_send(channels.end[0], keys, &view);
        suite_sleep_ms(1);
    }
    assert_int_equal(status, DW_ERR_PEER);
    close_channels(&channels);
}

static void a_dead_link_ends_the_channel_with_its_reason(void **state)
{
    (void)state;
    test_channels channels;
    open_channels(&channels, &backends[1], "delta:bits=4");
    dw_link_cancel(channels.links.link[0]);
    dw_key keys[N];
    float x[N * T * C];
    make_tensor(0, keys, x);
    const dw_tensor view = dw_tensor_3d(x, DW_F32, N, T, C);
    assert_int_equal(dw_channel_send(channels.end[0], keys, &view), DW_ERR_CANCELLED);
    assert_int_equal(receive(&channels, PATIENCE_MS, keys, x), DW_ERR_PEER);
    assert_non_null(strstr(dw_channel_why(channels.end[1]), "127.0.0.1"));
    close_channels(&channels);
}

/* ---- At the same time --------------------------------------------------------------------------- */

enum { ROUNDS = 300 };

typedef struct test_traffic {
    test_channels *channels;
    int end;
    dw_status status;
} test_traffic;

static void *send_all(void *context)
{
    test_traffic *traffic = context;
    for (int i = 0; i < ROUNDS && traffic->status == DW_OK; i++) {
        dw_key keys[N];
        float x[N * T * C];
        make_tensor(i, keys, x);
        const dw_tensor view = dw_tensor_3d(x, DW_F32, N, T, C);
        traffic->status = dw_channel_send(traffic->channels->end[traffic->end], keys, &view);
        if (i % 16 == 0) dw_channel_received(traffic->channels->end[traffic->end]);
    }
    return NULL;
}

static void *receive_all(void *context)
{
    test_traffic *traffic = context;
    for (int i = 0; i < ROUNDS && traffic->status == DW_OK; i++) {
        dw_key keys[N], expected[N];
        float y[N * T * C], x[N * T * C];
        const dw_tensor view = dw_tensor_3d(y, DW_F32, N, T, C);
        traffic->status = dw_channel_recv(traffic->channels->end[traffic->end], PATIENCE_MS, keys, &view);
        make_tensor(i, expected, x);
        if (traffic->status == DW_OK && keys[0].sample != expected[0].sample) traffic->status = DW_ERR_MISMATCH;
        if (i % 16 == 0) dw_channel_sent(traffic->channels->end[traffic->end]);
    }
    return NULL;
}

/* Both ends send and receive at once, on a wire that damages a frame now and then: at worst one frame, its
 * request twice and one answer, which is as many times as a frame is asked for. */
static void both_directions_run_at_once_and_heal(void **state)
{
    (void)state;
    for (size_t b = 0; b < 2; b++) {
        test_channels channels;
        prepare(&channels, &backends[b], "delta:bits=4", "delta:bits=4");
        channels.config[0].recv = channels.config[1].send = &channels.codec[0];
        channels.wire.plans[0] = (test_plan){.which = DW_TAG_FRAMES, .first = 20, .last = 29, .flip_at = -1};
        channels.wire.plans[1] = (test_plan){.which = DW_TAG_FRAMES, .first = 200, .last = 209, .flip_at = AT_ENVELOPE + 8};
        channels.wire.plans[2] = (test_plan){.which = DW_TAG_RESENT, .first = 3, .last = 3, .flip_at = -1};
        channels.wire.plans[3] = (test_plan){.which = DW_TAG_CONTROL, .first = 40, .last = 41, .flip_at = AT_ENVELOPE + 1};
        try_open(&channels);
        test_traffic all[4] = {{&channels, 0, DW_OK}, {&channels, 1, DW_OK}, {&channels, 0, DW_OK}, {&channels, 1, DW_OK}};
        pthread_t threads[4];
        for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, i < 2 ? send_all : receive_all, &all[i]);
        for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
        for (int i = 0; i < 4; i++) {
            if (all[i].status != DW_OK) fail_msg("thread %d: %s", i, dw_channel_why(channels.end[all[i].end]));
        }
        assert_true(channels.wire.spoiled >= 20);
        close_channels(&channels);
    }
}

static void does_not_allocate_in_steady_state(void **state)
{
    (void)state;
    for (int c = 0; c < CONFIGS; c++) {
        test_channels channels;
        suite_backend plain = backends[1];
        prepare(&channels, &plain, configs[c], configs[c]);
        channels.links.prefix[0] = channels.links.prefix[1] = NULL; /* the spoiling wire copies */
        try_open(&channels);
        long before = 0;
        for (int i = 0; i < 90; i++) {
            if (i == 30) before = suite_allocations();
            dw_key keys[N];
            float y[N * T * C];
            send_tensor(&channels, i);
            assert_int_equal(receive(&channels, PATIENCE_MS, keys, y), DW_OK);
        }
        /* 60 frames and as many replies; the timing of the threads decides how many buffers are in use at once. */
        assert_in_range(suite_allocations() - before, 0, 10);
        close_channels(&channels);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_arrive_as_without_a_wire),
        cmocka_unit_test(heals_a_frame_that_was_damaged_anywhere),
        cmocka_unit_test(heals_when_the_answer_is_damaged_too),
        cmocka_unit_test(heals_when_acknowledgements_and_requests_are_damaged),
        cmocka_unit_test(drops_duplicates_and_fetches_what_was_lost),
        cmocka_unit_test(gives_up_on_a_frame_that_never_arrives_whole),
        cmocka_unit_test(without_replies_a_damaged_frame_is_an_error),
        cmocka_unit_test(a_decoder_that_lost_its_state_gets_it_back),
        cmocka_unit_test(a_state_that_rotted_is_replaced),
        cmocka_unit_test(without_replies_a_lost_state_is_an_error),
        cmocka_unit_test(a_forgotten_key_begins_anew),
        cmocka_unit_test(different_configs_are_a_mismatch_at_both_ends),
        cmocka_unit_test(opening_alone_is_a_timeout),
        cmocka_unit_test(an_id_that_is_open_is_refused),
        cmocka_unit_test(a_wrong_shape_leaves_the_frame_for_a_better_call),
        cmocka_unit_test(what_was_sent_can_be_received_after_the_sender_closed),
        cmocka_unit_test(sending_to_a_closed_end_is_an_error),
        cmocka_unit_test(a_dead_link_ends_the_channel_with_its_reason),
        cmocka_unit_test(both_directions_run_at_once_and_heal),
        cmocka_unit_test(does_not_allocate_in_steady_state),
    };
    return cmocka_run_group_tests_name("channel", tests, NULL, NULL);
}
