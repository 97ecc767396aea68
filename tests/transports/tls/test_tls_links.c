/* SPDX-License-Identifier: Apache-2.0
 * test_tls_links.c - links over tcp under TLS: which peers are refused, and what the errors at both
 * ends say. */
#include "transports/suite/transport_suite.h"

#include "common/report.h"
#include "tls_pair.h"
#include "transports/channel/channel_pair.h"
#include "transports/suite/listener.h"

enum { MY_TAG = 7 };

static dw_tls_options own[2], wrong_key, wrong_name;

/* ---- Which ends connect ---------------------------------------------------------------------- */

TEST(both_ends_know_the_tls_name_of_the_other)
{
    const suite_backend backend = {
        .name = "tls", .uri = "tcp://127.0.0.1:0", .tls = {&own[0], &own[1]}};
    suite_pair pair;
    suite_start(&pair, &backend);
    assert_string_equal(dw_link_peer_name(pair.link[0]), "rank/1");
    assert_string_equal(dw_link_peer_name(pair.link[1]), "rank/0");
    assert_true(pair.link[0]->settings.session != 0);
    assert_true(pair.link[0]->settings.session == pair.link[1]->settings.session);
    uint64_t session = pair.link[0]->settings.session;
    suite_close(&pair);
    suite_start(&pair, &backend);
    assert_true(pair.link[0]->settings.session != session);
    suite_close(&pair);
    const suite_backend plain = {.name = "plain", .uri = "tcp://127.0.0.1:0"};
    suite_start(&pair, &plain);
    assert_string_equal(dw_link_peer_name(pair.link[0]), "");
    assert_true(pair.link[0]->settings.session == 0);
    suite_close(&pair);
}

/* The backend shaped is in front of tcp. Whether a link is secure depends on tcp. */
TEST(shaped_in_front_of_tls_works)
{
    const suite_backend backend = {
        .name = "tls", .uri = "shaped:delay=1ms/tcp://127.0.0.1:0", .tls = {&own[0], &own[1]}};
    suite_pair pair;
    suite_start(&pair, &backend);
    assert_string_equal(dw_link_peer_name(pair.link[1]), "rank/0");
    suite_pass(pair.link, 0, MY_TAG, 1, 100000);
    suite_close(&pair);
}

static void begin_listening(suite_listener *me, const dw_tls_options *tls, uint32_t timeout_ms)
{
    *me = (suite_listener){.options = {.open_timeout_ms = timeout_ms, .tls = tls},
                           .uri = "tcp://127.0.0.1:0"};
    suite_listen(me);
}

static dw_status dial(const char *uri, const dw_tls_options *tls, uint32_t timeout_ms,
                      dw_link **link, dw_why *why)
{
    const dw_link_options options = {
        .struct_size = sizeof options, .open_timeout_ms = timeout_ms, .tls = tls};
    return dw_link_open(link, uri, &options, why);
}

/* Peers with a wrong key learn so at once, and the listener goes on waiting for the right one. */
TEST(a_listener_goes_on_waiting_for_the_right_peer)
{
    suite_listener me;
    dw_link *link = NULL;
    dw_why why;
    begin_listening(&me, &own[0], 60000);
    const dw_tls_options *const wrong[] = {&wrong_key, &wrong_name};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(dial(me.at, wrong[i], 60000, &link, &why), DW_ERR_AUTH);
        if (!strstr(why.text, me.at + 6) || !strstr(why.text, "another group key"))
            fail_msg("%s", why.text);
    }
    assert_int_equal(dial(me.at, NULL, 2000, &link, &why), DW_ERR_TIMEOUT); /* without TLS */
    if (!strstr(why.text, "does it expect TLS?")) fail_msg("%s", why.text);
    if (dial(me.at, &own[1], 60000, &link, &why) != DW_OK) fail_msg("%s", why.text);
    suite_listened(&me);
    if (me.status != DW_OK) fail_msg("%s", me.why.text);
    suite_send(link, MY_TAG, 1, 5000);
    suite_expect(me.link, MY_TAG, 1, 5000);
    dw_link_close(me.link);
    dw_link_close(link);
}

TEST(tls_listener_timeout_names_the_refused_clients)
{
    suite_listener me;
    dw_link *link = NULL;
    dw_why why;
    dw_status dialled = DW_ERR_TIMEOUT;
    for (uint32_t limit = 700; dialled != DW_ERR_AUTH; limit *= 4) {
        begin_listening(&me, &own[0], limit);
        dialled = dial(me.at, &wrong_key, limit, &link, &why);
        suite_listened(&me);
        assert_int_equal(me.status, DW_ERR_TIMEOUT);
        if (limit > SUITE_LONGEST_LIMIT_MS) fail_msg("never refused: %s", why.text);
    }
    if (!strstr(me.why.text, "turned away: 127.0.0.1:")) fail_msg("%s", me.why.text);
}

/* To a listener without TLS, a TLS handshake is nonsense from a stranger. */
TEST(tls_timeout_asks_whether_the_listener_has_tls)
{
    suite_listener me;
    dw_link *link = NULL;
    dw_why why;
    begin_listening(&me, NULL, 4000);
    assert_int_equal(dial(me.at, &own[1], 3000, &link, &why), DW_ERR_TIMEOUT);
    if (!strstr(why.text, "without TLS?")) fail_msg("%s", why.text);
    suite_listened(&me);
    assert_int_equal(me.status, DW_ERR_TIMEOUT);
}

/* ---- Without TLS ----------------------------------------------------------------------------- */

TEST(needs_tls_except_on_loopback)
{
    static const struct {
        const char *uri;
        dw_link_role role;
        dw_status status;
    } cases[] = {{"tcp://0.0.0.0:0", DW_LINK_LISTEN, DW_ERR_AUTH},
                 {"tcp://[::]:0", DW_LINK_LISTEN, DW_ERR_AUTH},
                 {"tcp://192.0.2.1:7000", DW_LINK_LISTEN, DW_ERR_AUTH},
                 {"tcp://192.0.2.1:7000", DW_LINK_CONNECT, DW_ERR_AUTH},
                 {"tcp://[2001:db8::1]:7000", DW_LINK_CONNECT, DW_ERR_AUTH},
                 {"tcp://[fe80::1]:7000", DW_LINK_CONNECT, DW_ERR_AUTH},
                 {"tcp://[::ffff:192.0.2.1]:7000", DW_LINK_CONNECT, DW_ERR_AUTH},
                 {"tcp://128.0.0.1:7000", DW_LINK_CONNECT, DW_ERR_AUTH},
                 {"tcp://126.0.0.1:7000", DW_LINK_CONNECT, DW_ERR_AUTH},
                 {"tcp://127.0.0.1:0", DW_LINK_LISTEN, DW_ERR_TIMEOUT},
                 {"tcp://127.7.7.7:0", DW_LINK_LISTEN, DW_ERR_TIMEOUT},
                 {"tcp://localhost:0", DW_LINK_LISTEN, DW_ERR_TIMEOUT}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const dw_link_options options = {
            .struct_size = sizeof options, .role = cases[i].role, .open_timeout_ms = 50};
        dw_link *link;
        dw_why why = {.text = ""};
        dw_status status = dw_link_open(&link, cases[i].uri, &options, &why);
        if (status != cases[i].status) fail_msg("%s: %d '%s'", cases[i].uri, status, why.text);
        if (status != DW_ERR_AUTH) continue;
        if (!strstr(why.text, "insecure_plaintext") || !strstr(why.text, "--group-key") ||
            why.text[254])
            fail_msg("%s", why.text);
    }
    /* With TLS, or with the option insecure_plaintext, all addresses are allowed. */
    for (int is_insecure = 0; is_insecure < 2; is_insecure++) {
        const dw_link_options options = {.struct_size = sizeof options,
                                         .role = DW_LINK_LISTEN,
                                         .open_timeout_ms = 50,
                                         .insecure_plaintext = is_insecure,
                                         .tls = is_insecure ? NULL : &own[0]};
        dw_link *link;
        assert_int_equal(dw_link_open(&link, "tcp://0.0.0.0:0", &options, NULL), DW_ERR_TIMEOUT);
    }
}

TEST(a_transport_without_tls_says_so)
{
    const suite_backend backend = {.name = "loop", .uri = "loop://tls-%d", .tls = {&own[0], NULL}};
    suite_pair pair;
    suite_prepare(&pair, &backend);
    pair.options[1].open_timeout_ms = 200;
    suite_try_open(&pair);
    assert_int_equal(pair.status[0], DW_ERR_UNSUPPORTED);
    if (!strstr(pair.why[0].text, "loop does not support TLS")) fail_msg("%s", pair.why[0].text);
    suite_close(&pair);
}

/* ---- Sessions -------------------------------------------------------------------------------- */

/* An envelope of one session must not be valid in another one. The test changes every byte that the
 * checksum covers; of frames that is only the header, because frames have digests of their own. */
TEST(an_envelope_belongs_to_its_session)
{
    static const dw_envelope_kind kinds[] = {DW_ENVELOPE_HELLO, DW_ENVELOPE_FRAME,
                                             DW_ENVELOPE_RESENT, DW_ENVELOPE_ACK};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        _Alignas(16) unsigned char message[DW_ENVELOPE_BYTES + 200] = {0};
        dw_envelope envelope;
        int is_frame = kinds[i] == DW_ENVELOPE_FRAME || kinds[i] == DW_ENVELOPE_RESENT;
        for (size_t len = 0; len <= 200; len += 40) {
            size_t whole = DW_ENVELOPE_BYTES + len,
                   checked = is_frame && len > 80 ? DW_ENVELOPE_BYTES + 80 : whole;
            dw_envelope_finalize(message, 5, kinds[i], DW_OK, 3, len);
            assert_true(dw_envelope_read(message, whole, 5, &envelope));
            assert_false(dw_envelope_read(message, whole, 7, &envelope));
            assert_false(dw_envelope_read(message, whole, 0, &envelope));
            for (size_t at = 0; at < whole; at++) {
                message[at] ^= 4;
                assert_int_equal(dw_envelope_read(message, whole, 5, &envelope), at >= checked);
                message[at] ^= 4;
            }
        }
    }
}

/* A message that was sealed in an earlier session is not accepted by the channel of a later one. */
TEST(a_channel_refuses_messages_of_another_session)
{
    test_channels channels;
    channels_prepare(&channels,
                     &(suite_backend){.name = "tls",
                                      .uri = "tcp://127.0.0.1:0",
                                      .transports = channels_backends[1].transports,
                                      .tls = {&own[0], &own[1]}},
                     "direct:bits=8,replies=never", "direct:bits=8,replies=never");
    channels_try_open(&channels);
    if (channels.status[0] != DW_OK || channels.status[1] != DW_OK)
        fail_msg("%s", channels.why[0].text);
    channels_pass(&channels, 0);
    channels.links.link[0]->settings.session ^= 2; /* as if the message were from an earlier link */
    channels_send(&channels, 1);
    channels.links.link[0]->settings.session ^= 2;
    channels_send(&channels, 2);
    assert_int_equal(channels_take(&channels), DW_ERR_CORRUPT);
    assert_int_equal(channels_take(&channels), DW_OK);
    channels_close(&channels);
}

int main(void)
{
    static const unsigned char other_key[32] = "not the key of this group";
    own[0] = tls_with_group_key("rank/0", NULL);
    own[1] = wrong_key = tls_with_group_key("rank/1", "rank/0");
    wrong_key.group_key = other_key;
    wrong_name = tls_with_group_key("rank/1", "rank/2");
    return test_run(NULL, NULL);
}
