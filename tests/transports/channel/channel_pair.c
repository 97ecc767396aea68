/* SPDX-License-Identifier: Apache-2.0
 * channel_pair.c - two channels over a backend that treats each message as a plan says. */
#include "channel_pair.h"

static suite_verdict follow_plans(void *context, unsigned char *message, size_t *len, uint64_t n)
{
    test_wire *wire = context;
    uint32_t tag = dw_get32(message);
    if (dw_get32(message + 4) != DW_KIND_DATA || tag >> 8 != ID || (tag & 0xff) > DW_TAG_RESENT)
        return SUITE_PASS;
    suite_verdict verdict = SUITE_PASS;
    pthread_mutex_lock(&wire->lock);
    int number = wire->count[tag & 0xff]++;
    for (size_t i = 0; i < sizeof wire->plans / sizeof *wire->plans; i++) {
        const test_plan *plan = &wire->plans[i];
        if (plan->which != (tag & 0xff) || number < plan->first || number > plan->last) continue;
        if (plan->flip_at == 0 && plan->verdict == SUITE_PASS) continue; /* an empty plan */
        size_t at = plan->flip_at < 0 ? *len - (size_t)-plan->flip_at : (size_t)plan->flip_at;
        if (plan->flip_at != NO_FLIP && at < *len) message[at] ^= 0x10;
        verdict = plan->verdict;
        wire->spoiled++;
    }
    pthread_mutex_unlock(&wire->lock);
    return verdict;
}

/* ---- Pairs of channels ----------------------------------------------------------------------- */

static const dw_transport *const with_spoiled[] = {&suite_spoiled, NULL};
const suite_backend channels_backends[3] = {
    {.name = "loop", .uri = "loop://channel-%d", .transports = with_spoiled},
    {.name = "tcp", .uri = "tcp://127.0.0.1:0", .transports = with_spoiled},
    {.name = "shaped",
     .uri = "shaped:rate=1gbit,delay=2ms/tcp://127.0.0.1:0",
     .transports = with_spoiled}};

static void *open_end(void *context)
{
    void **arguments = context;
    test_channels *channels = arguments[0];
    int i = *(const int *)arguments[1];
    channels->status[i] = dw_channel_open(&channels->end[i], channels->links.link[i],
                                          &channels->config[i], &channels->why[i]);
    return NULL;
}

void channels_prepare(test_channels *channels, const suite_backend *backend, const char *sends,
                      const char *receives)
{
    memset(channels, 0, sizeof *channels);
    pthread_mutex_init(&channels->wire.lock, NULL);
    suite_prepare(&channels->links, backend);
    channels->links.prefix[0] = channels->links.prefix[1] = "spoiled:";
    const char *texts[2] = {sends, receives};
    for (int i = 0; i < 2; i++) {
        channels->config[i] =
            (dw_channel_config){.struct_size = sizeof(dw_channel_config), .id = ID};
        where_configure(&channels->config[i], i);
        if (!texts[i]) continue;
        dw_why why;
        if (dw_config_parse(&channels->codec[i], texts[i], &why))
            fail_msg("%s: %s", texts[i], why.text);
        if (i == 0)
            channels->config[0].send = &channels->codec[0];
        else
            channels->config[1].recv = &channels->codec[1];
    }
}

void channels_try_open(test_channels *channels)
{
    suite_set_spoiler(&(suite_spoiler){.spoil = follow_plans, .context = &channels->wire});
    /* One end has "spoiled:" in its URI. The other one gets it with the address, which the listener
     * reports. */
    suite_open(&channels->links);
    suite_set_spoiler(NULL);
    pthread_t other;
    int ends[2] = {0, 1};
    void *arguments[2][2] = {{channels, &ends[0]}, {channels, &ends[1]}};
    pthread_create(&other, NULL, open_end, arguments[0]);
    open_end(arguments[1]);
    pthread_join(other, NULL);
}

void channels_must_open(test_channels *channels)
{
    channels_try_open(channels);
    for (int i = 0; i < 2; i++)
        if (channels->status[i] != DW_OK)
            fail_msg("%s, end %d: %s", channels->links.uri, i, channels->why[i].text);
}

void channels_open(test_channels *channels, const suite_backend *backend, const char *config)
{
    channels_prepare(channels, backend, config, config);
    channels_must_open(channels); /* the hellos are the messages 0 and 1 on the control tag */
}

static void *close_sender(void *context)
{
    test_channels *channels = context;
    dw_channel_close(channels->end[0]);
    return NULL;
}

void channels_close(test_channels *channels)
{
    pthread_t other;
    pthread_create(&other, NULL, close_sender, channels);
    dw_channel_close(channels->end[1]);
    pthread_join(other, NULL);
    suite_close(&channels->links);
    pthread_mutex_destroy(&channels->wire.lock);
    for (int i = 0; i < 2; i++) where_end(&channels->config[i]);
}

dw_counters channels_sent(dw_channel *channel)
{
    dw_counters counters = {.struct_size = sizeof counters};
    assert_int_equal(dw_channel_count(channel, &counters, NULL), DW_OK);
    return counters;
}

dw_counters channels_received(dw_channel *channel)
{
    dw_counters counters = {.struct_size = sizeof counters};
    assert_int_equal(dw_channel_count(channel, NULL, &counters), DW_OK);
    return counters;
}

void channels_lose_state(test_channels *channels)
{
    dw_channel *receiver = channels->end[1];
    dw_decoder_destroy(receiver->codecs.decoder);
    assert_int_equal(dw_decoder_create(&receiver->codecs.decoder, &receiver->codecs.recv,
                                       channels->config[1].host, NULL),
                     DW_OK);
}

/* ---- Tensors --------------------------------------------------------------------------------- */

dw_tensor channels_make_tensor(int i, dw_key keys[N], float x[N * T * C])
{
    test_random random = {.state = (uint64_t)(i % (KEYS / N)) + 1};
    test_fill(&random, x, DW_F32, N * T * C, 1.0f);
    test_random drift = {.state = 1000 + (uint64_t)i};
    for (int k = 0; k < N * T * C; k++) x[k] += 0.05f * test_normal(&drift);
    for (int n = 0; n < N; n++)
        keys[n] = (dw_key){.sample = (uint64_t)(i % (KEYS / N)) * N + (uint64_t)n, .slice = 4};
    return dw_tensor_3d(x, DW_F32, N, T, C);
}

void channels_send(test_channels *channels, int i)
{
    dw_key keys[N];
    float x[N * T * C];
    dw_tensor view = channels_make_tensor(i, keys, x);
    dw_status status = where_send(channels->end[0], keys, &view);
    if (status != DW_OK)
        fail_msg("send %d: %d, %s", i, (int)status, dw_channel_why(channels->end[0]));
}

dw_status channels_receive(test_channels *channels, int timeout_ms, dw_key keys[N],
                           float y[N * T * C])
{
    dw_tensor view = dw_tensor_3d(y, DW_F32, N, T, C);
    return where_recv(channels->end[1], timeout_ms, keys, &view);
}

dw_status channels_take(test_channels *channels)
{
    dw_key keys[N];
    float y[N * T * C];
    return channels_receive(channels, PATIENCE_MS, keys, y);
}

void channels_pass(test_channels *channels, int i)
{
    channels_send(channels, i);
    assert_int_equal(channels_take(channels), DW_OK);
}

void channels_expect(test_channels *channels, test_reference *reference, int i)
{
    dw_key keys[N], got_keys[N];
    float x[N * T * C], y[N * T * C], got[N * T * C];
    dw_tensor view = channels_make_tensor(i, keys, x), out = dw_tensor_3d(y, DW_F32, N, T, C);
    assert_int_equal(i, reference->next++);
    test_pair_encode(&reference->pair, keys, &view);
    assert_int_equal(test_pair_decode(&reference->pair, &out), DW_OK);
    if (reference->pair.reply_len > 0) test_pair_take_reply(&reference->pair);
    dw_status status = channels_receive(channels, PATIENCE_MS, got_keys, got);
    if (status != DW_OK)
        fail_msg("tensor %d: %d, %s", i, (int)status, dw_channel_why(channels->end[1]));
    assert_memory_equal(got, y, TENSOR_BYTES);
    for (int n = 0; n < N; n++) {
        assert_int_equal(got_keys[n].sample, keys[n].sample);
        assert_int_equal(got_keys[n].slice, keys[n].slice);
    }
}

const char *const channels_configs[CHANNELS_CONFIGS] = {
    "raw:f32", "direct:bits=6", "delta:bits=3,scale=signed", "delta:bits=2,key=raw"};

/* Waits until the sender has got all acknowledgements and freed its copies of frames, although the
 * program calls nothing. */
static void expect_all_acknowledged(test_channels *channels, int tensors)
{
    dw_channel *sender = channels->end[0];
    /* With other codecs a decoder sends no reply, so nothing is acknowledged. */
    uint64_t acks = sender->codecs.send.codec == DW_CODEC_DELTA ? (uint64_t)tensors : 0;
    uint64_t kept = 1;
    for (int i = 0; i < 1000 && (kept > 0 || channels_sent(sender).acks < acks); i++) {
        suite_sleep_ms(5);
        pthread_mutex_lock(&sender->answers.encoder_lock);
        kept = sender->answers.kept.bytes;
        pthread_mutex_unlock(&sender->answers.encoder_lock);
    }
    assert_int_equal(kept, 0);
    assert_int_equal(channels_sent(sender).acks, acks);
}

void channels_carry(const suite_backend *backend, const char *config, int tensors, int ahead,
                    const test_plan *plans, size_t n_plans)
{
    test_channels channels;
    channels_prepare(&channels, backend, config, config);
    for (size_t i = 0; i < n_plans; i++) channels.wire.plans[i] = plans[i];
    channels_must_open(&channels);
    test_reference reference = {.next = 0};
    char own[DW_CONFIG_TEXT_BYTES];
    dw_config alike = channels.codec[0];
    alike.incarnation = dw_channel_incarnation(&channels.end[0]->port, alike.incarnation);
    assert_int_equal(dw_config_format(&alike, own, sizeof own), DW_OK);
    test_pair_open(&reference.pair, own, N, T, C, DW_F32);
    int sent = 0;
    for (int i = 0; i < tensors; i++) {
        while (sent < tensors && sent < i + ahead) channels_send(&channels, sent++);
        channels_expect(&channels, &reference, i);
    }
    if (n_plans > 0)
        assert_true(channels.wire.spoiled > 0);
    else if (channels.codec[0].replies != DW_REPLIES_NEVER)
        expect_all_acknowledged(&channels, tensors);
    dw_key keys[N];
    float y[N * T * C];
    assert_int_equal(channels_receive(&channels, 0, keys, y), DW_PENDING);
    assert_int_equal(channels_received(channels.end[1]).raw_bytes,
                     (uint64_t)tensors * TENSOR_BYTES);
    test_pair_close(&reference.pair);
    channels_close(&channels);
}
