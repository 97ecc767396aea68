/* SPDX-License-Identifier: Apache-2.0
 * peer_channel.c - the channel of the link that is fuzzed, and the peer's end of it. */
#include "peer_channel.h"

#include "channel/comparison.h"
#include "channel/saved.h"
#include "mem_wire.h"

enum { FRAMES = 64, CONTROLS_MOST = 20000, ROWS = 2, COLUMNS = 16, VALUES = ROWS * COLUMNS };

static struct {
    dw_channel *channel; /* of the link; the rest is the peer's */
    dw_config config;
    dw_encoder *encoder;
    dw_decoder *decoder;
    float made[FRAMES][VALUES]; /* the prev that each frame of the encoder leads to */
    unsigned n_made, controls;
    uint64_t next_sequence;
    unsigned char reply[256];
    size_t reply_len;
    uint64_t reply_sequence;
    /* A comparison at the peer: compares[1] is of the keys that the link's end sends, compares[0]
     * of those that the peer sends. spoils: how each of its next messages is damaged; 0: it is not.
     */
    dw_comparison compares[2];
    unsigned char spoils[8];
    unsigned n_compared;
} peer;

void peer_channel_start(void)
{
    memset(&peer, 0, sizeof peer);
    peer.config = (dw_config){.struct_size = sizeof peer.config,
                              .codec = DW_CODEC_DELTA,
                              .bits = 4,
                              .group = 16,
                              .prev = DW_F32,
                              .incarnation = 5};
    REQUIRE(dw_encoder_create(&peer.encoder, &peer.config, NULL, NULL) == DW_OK &&
            dw_decoder_create(&peer.decoder, &peer.config, NULL, NULL) == DW_OK);
    peer.config.incarnation = 0x1234;
}

void peer_channel_end(void)
{
    dw_encoder_destroy(peer.encoder);
    dw_decoder_destroy(peer.decoder);
}

dw_channel *peer_channel(void)
{
    return peer.channel;
}

static void say_compared(uint64_t direction);

static void hear_compared(const dw_envelope *envelope)
{
    uint64_t direction = envelope->sequence & 1;
    dw_comparison *c = &peer.compares[direction];
    if (c->allocator &&
        dw_comparison_take(c, envelope->sequence >> 1, envelope->body, envelope->body_len) == DW_OK)
        say_compared(direction);
}

void peer_channel_hear(const unsigned char *data, size_t len)
{
    dw_envelope envelope;
    REQUIRE(dw_envelope_read(data, len, 0, &envelope));
    if (envelope.kind == DW_ENVELOPE_ACK && envelope.body_len > 0)
        dw_encoder_take_reply(peer.encoder, envelope.body, envelope.body_len);
    if (envelope.kind == DW_ENVELOPE_COMPARE) hear_compared(&envelope);
    if (envelope.kind != DW_ENVELOPE_FRAME && envelope.kind != DW_ENVELOPE_RESENT) return;
    float y[VALUES];
    dw_tensor there = dw_tensor_3d(y, DW_F32, 1, ROWS, COLUMNS);
    dw_decode(peer.decoder, envelope.body, envelope.body_len, &there, NULL, peer.reply,
              sizeof peer.reply, &peer.reply_len);
    peer.reply_sequence = envelope.sequence;
}

/* ---- What the peer sends --------------------------------------------------------------------- */

static void *add_envelope(uint32_t which, size_t body_len)
{
    unsigned char *data = mem_wire_add(DW_LINK_HEADER_BYTES + DW_ENVELOPE_BYTES + body_len);
    if (!data) return NULL;
    dw_put32(data, PEER_CHANNEL << 8 | which);
    dw_put32(data + 4, DW_KIND_DATA);
    return data + DW_LINK_HEADER_BYTES;
}

/* Sends the peer's greeting, which may be damaged. */
static void say_channel_hello(fuzz_input *input)
{
    unsigned how = fuzz_byte(input);
    const uint32_t bytes = 2 + 2 * DW_AGREEMENT_TEXT_BYTES;
    unsigned char *message = add_envelope(DW_TAG_CONTROL, bytes);
    if (!message) return;
    memset(message, 0, DW_ENVELOPE_BYTES + bytes);
    unsigned char *hello = message + DW_ENVELOPE_BYTES;
    hello[0] = DW_FORMAT_MAJOR;
    hello[1] = DW_FORMAT_MINOR;
    for (int i = 0; i < 2; i++)
        REQUIRE(dw_config_agreement(&peer.config, (char *)hello + 2 + i * DW_AGREEMENT_TEXT_BYTES,
                                    DW_AGREEMENT_TEXT_BYTES) == DW_OK);
    if (how >= 200) hello[fuzz_below(input, how & 8 ? 2 : bytes)] ^= fuzz_byte(input);
    dw_envelope_finalize(message, 0, DW_ENVELOPE_HELLO, how >= 250 ? DW_PENDING : DW_OK, 0, bytes);
}

void say_frame(fuzz_input *input, uint32_t *numbers)
{
    float x[VALUES];
    unsigned char frame[2048];
    size_t len;
    if (peer.n_made == FRAMES) return;
    unsigned which = fuzz_byte(input);
    dw_key key = {.sample = which % 3};
    for (int i = 0; i < VALUES; i++)
        x[i] = (float)((int)(*numbers * 7 + (unsigned)i * 13) % 101 - 50);
    ++*numbers;
    dw_tensor there = dw_tensor_3d(x, DW_F32, 1, ROWS, COLUMNS);
    REQUIRE(dw_encode(peer.encoder, &key, &there, NULL, frame, sizeof frame, &len) == DW_OK);
    dw_tensor prev;
    REQUIRE(dw_encoder_peek(peer.encoder, key, &prev) == DW_OK && prev.dtype == DW_F32);
    memcpy(peer.made[peer.n_made++], prev.data, sizeof peer.made[0]);
    unsigned how = fuzz_byte(input);
    unsigned char *message = add_envelope(how >= 224 ? DW_TAG_RESENT : DW_TAG_FRAMES, len);
    if (!message) return;
    memcpy(message + DW_ENVELOPE_BYTES, frame, len);
    uint64_t sequence = how < 160 ? peer.next_sequence++ : peer.next_sequence + how % 8 - 4;
    dw_envelope_finalize(message, 0, how >= 224 ? DW_ENVELOPE_RESENT : DW_ENVELOPE_FRAME, DW_OK,
                         sequence, len);
    if (how >= 120 && how < 160)
        message[fuzz_below(input, (uint32_t)(DW_ENVELOPE_BYTES + len))] ^=
            1 + fuzz_byte(input) % 255;
}

bool say_control(fuzz_input *input)
{
    static const dw_status about[] = {DW_OK,        DW_ERR_CORRUPT, DW_ERR_BASE,  DW_ERR_STATE,
                                      DW_ERR_STALE, DW_PENDING,     DW_ERR_FORMAT};
    const unsigned kinds = DW_ENVELOPE_CLOSED - DW_ENVELOPE_HELLO + 1;
    const dw_envelope_kind kind = (dw_envelope_kind)(DW_ENVELOPE_HELLO + fuzz_byte(input) % kinds);
    dw_status status = about[fuzz_byte(input) % 7];
    unsigned how = fuzz_byte(input), which = fuzz_byte(input) % 16;
    uint64_t sequence = how < 128   ? peer.reply_sequence + how % 4
                        : how < 250 ? how % 64
                                    : UINT64_MAX;
    size_t len = how & 1 ? peer.reply_len : 0;
    for (unsigned i = which & 8 ? 10 * fuzz_below(input, 3000) : 1;
         i > 0 && peer.controls < CONTROLS_MOST; i--, peer.controls++) {
        unsigned char *message =
            add_envelope(which % 8 <= DW_TAG_RESENT ? which % 8 : DW_TAG_CONTROL, len);
        if (!message) return false;
        if (len > 0) memcpy(message + DW_ENVELOPE_BYTES, peer.reply, len);
        dw_envelope_finalize(message, 0, kind, status, sequence, len);
        if (which == 7 || which == 15) message[DW_ENVELOPE_BYTES - 1] ^= 1;
    }
    return wire.is_stuck || peer.controls > 100;
}

/* Sends what the peer's comparison has left: as it is, cut, forged, damaged, out of turn, twice, or
 * not at all. */
static void say_compared(uint64_t direction)
{
    dw_comparison *c = &peer.compares[direction];
    if (!c->has_out) return;
    unsigned how = peer.spoils[peer.n_compared++ % 8], times = how >= 240 ? 2 : how < 224;
    size_t len = (size_t)c->out_len;
    c->has_out = false;
    if (how >= 128 && how < 144 && len > 0) len -= 1 + how % len;
    for (; times > 0; times--) {
        unsigned char *message = add_envelope(DW_TAG_COMPARE, len);
        if (!message) return;
        if (len > 0) memcpy(message + DW_ENVELOPE_BYTES, c->out, len);
        if (how >= 144 && how < 192 && len > 0)
            message[DW_ENVELOPE_BYTES + how % len] ^= (unsigned char)(1 << how % 8);
        uint64_t step = c->out_step + (how >= 208 && how < 224);
        dw_envelope_finalize(message, 0, DW_ENVELOPE_COMPARE, DW_OK, 2 * step + direction, len);
        if (how >= 192 && how < 208) message[how % (DW_ENVELOPE_BYTES + len)] ^= 1;
    }
}

static dw_status add_compared(void *comparison, const dw_held_key *held)
{
    dw_comparison *c = comparison;
    /* The peer has lost some of its keys. */
    return peer.spoils[6] >> held->key.sample % 3 & 1 ? DW_OK : dw_comparison_add(c, held);
}

static void begin_comparison(uint64_t direction)
{
    static const dw_allocator own = {.allocate = NULL};
    static dw_allocator allocator;
    dw_comparison *c = &peer.compares[direction];
    allocator = dw_mem_allocator(&own);
    dw_comparison_init(c, &allocator, direction == 0);
    REQUIRE((direction == 0 ? dw_encoder_visit_keys(peer.encoder, add_compared, c)
                            : dw_decoder_visit_keys(peer.decoder, add_compared, c)) == DW_OK);
    REQUIRE(dw_comparison_begin(c) == DW_OK);
    say_compared(direction);
}

/* ---- This side ------------------------------------------------------------------------------- */

void open_channel(dw_link *link, fuzz_input *input)
{
    dw_why why;
    if (peer.channel) return;
    say_channel_hello(input);
    const dw_channel_config config = {.struct_size = sizeof config,
                                      .id = PEER_CHANNEL,
                                      .send = &peer.config,
                                      .recv = &peer.config,
                                      .open_timeout_ms = 3000};
    dw_status status = dw_channel_open(&peer.channel, link, &config, &why);
    REQUIRE((status == DW_OK) == (peer.channel != NULL));
    REQUIRE(status == DW_OK || why.text[0]);
}

void send_tensor(const dw_link *link, fuzz_input *input, uint32_t *numbers)
{
    float x[VALUES];
    dw_key key = {.sample = fuzz_byte(input) % 3};
    for (int i = 0; i < VALUES; i++)
        x[i] = (float)((int)(*numbers * 5 + (unsigned)i * 11) % 97 - 48);
    ++*numbers;
    dw_tensor here = dw_tensor_3d(x, DW_F32, 1, ROWS, COLUMNS);
    if (link->settings.max_message_bytes < 1024) return;
    dw_status status = dw_channel_send(peer.channel, &key, &here, NULL);
    REQUIRE(status == DW_OK || (status == link->failure.status && status != DW_OK) ||
            status == DW_ERR_PEER);
}

void receive_tensor(fuzz_input *input)
{
    float y[VALUES];
    dw_key key;
    dw_tensor here = dw_tensor_3d(y, DW_F32, 1, ROWS, COLUMNS);
    dw_status status = dw_channel_recv(peer.channel, (int[]){0, 30, 0, 500}[fuzz_byte(input) % 4],
                                       &key, &here, NULL);
    if (status != DW_OK) {
        REQUIRE(status == DW_PENDING || dw_channel_why(peer.channel)[0]);
        return;
    }
    unsigned found = 0;
    while (found < peer.n_made && memcmp(peer.made[found], y, sizeof y) != 0) found++;
    REQUIRE(found < peer.n_made);
}

static dw_status add_held(void *comparison, const dw_held_key *held)
{
    return dw_comparison_add(comparison, held);
}

/* How many of one end's keys have no print of the same 32 lower bits at the other end: no others
 * are listed. */
static uint64_t count_differing(const dw_comparison *of, const dw_comparison *other)
{
    uint64_t n = of->n;
    for (uint64_t i = 0; i < of->n; i++)
        for (uint64_t k = 0; k < other->n; k++)
            n -= (uint32_t)of->keys[i].print == (uint32_t)other->keys[k].print;
    return n;
}

/* After messages that were not spoilt both ends have found what differs, and no more. ours: what
 * the link's end held. What it has sent may have been refused meanwhile. */
static void require_found(const dw_comparison ours[2], const uint64_t dropped[2])
{
    for (int i = 0; i < 2; i++) {
        const dw_comparison *theirs = &peer.compares[i];
        uint64_t expected = count_differing(&ours[i], theirs);
        REQUIRE(i ? dropped[i] <= expected : dropped[i] == expected);
        REQUIRE(!theirs->is_done || theirs->n_differing == count_differing(theirs, &ours[i]));
    }
}

void compare_ends(const dw_link *link, fuzz_input *input)
{
    dw_counters before[2], after[2];
    dw_comparison ours[2];
    uint64_t dropped[2];
    for (int i = 0; i < 2; i++) before[i].struct_size = after[i].struct_size = sizeof(dw_counters);
    for (int i = 0; i < 8; i++) peer.spoils[i] = (unsigned char)fuzz_byte(input);
    bool is_spoilt = peer.spoils[7] % 2;
    for (int i = 0; i < 8 && !is_spoilt; i++)
        if (i != 6) peer.spoils[i] = 0;
    peer.n_compared = 0;
    for (uint64_t direction = 0; direction < 2; direction++) begin_comparison(direction);
    for (int i = 0; i < 2; i++) {
        const dw_channel_codecs *codecs = &peer.channel->codecs;
        dw_comparison_init(&ours[i], &link->settings.allocator, i == 1);
        dw_channel_lock_end(peer.channel, i);
        dw_status visited = i ? dw_encoder_visit_keys(codecs->encoder, add_held, &ours[i])
                              : dw_decoder_visit_keys(codecs->decoder, add_held, &ours[i]);
        (void)dw_channel_unlock_end(peer.channel, i, visited);
    }
    REQUIRE(dw_channel_count(peer.channel, &before[0], &before[1]) == DW_OK);
    dw_status status = dw_channel_compare(peer.channel, 500, NULL, NULL);
    REQUIRE(dw_channel_count(peer.channel, &after[0], &after[1]) == DW_OK);
    REQUIRE(status == DW_OK || dw_channel_why(peer.channel)[0]);
    if (link->settings.retry_ms) REQUIRE(status == DW_ERR_UNSUPPORTED);
    for (int i = 0; i < 2; i++) {
        uint64_t n = after[i].dropped_keys - before[i].dropped_keys;
        REQUIRE(status == DW_OK ? n <= before[i].keys_held : n == 0);
        dropped[!i] = n;
    }
    if (status == DW_OK && !is_spoilt) require_found(ours, dropped);
    for (int i = 0; i < 2; i++) dw_comparison_release(&ours[i]);
    for (int i = 0; i < 2; i++) dw_comparison_release(&peer.compares[i]);
}
