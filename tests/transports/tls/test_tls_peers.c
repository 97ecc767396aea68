/* SPDX-License-Identifier: Apache-2.0
 * test_tls_peers.c - which peers the handshake accepts: with valid and invalid certificates, and
 * programs other than deltawire. */
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "certificates.h"
#include "common/report.h"
#include "support/folder.h"
#include "tls_pair.h"

static certificate authority, other_authority, listener_own, connector_own;

static int make_certificates(void **state)
{
    signal(SIGPIPE, SIG_IGN); /* OpenSSL's own sockets, which the raw ends use, would raise it */
    const certificate_wish is_authority = {.is_authority = 1},
                           names_listener = {.uri = "deltawire:rank/0"},
                           names_connector = {.uri = "deltawire:rank/1"};
    certificate_make(&authority, NULL, &is_authority);
    certificate_make(&other_authority, NULL, &is_authority);
    certificate_make(&listener_own, &authority, &names_listener);
    certificate_make(&connector_own, &authority, &names_connector);
    return 0;
}

static int free_certificates(void **state)
{
    certificate_free(&authority);
    certificate_free(&other_authority);
    certificate_free(&listener_own);
    certificate_free(&connector_own);
    return 0;
}

static dw_tls_options with_certificate(const certificate *own, const char *own_name,
                                       const char *peer_name)
{
    return (dw_tls_options){.struct_size = sizeof(dw_tls_options),
                            .own_name = own_name,
                            .peer_name = peer_name,
                            .certificate_pem = own->pem,
                            .key_pem = own->key_pem,
                            .ca_pem = authority.pem};
}

/* ---- Certificates ---------------------------------------------------------------------------- */

TEST(peers_with_certificates_learn_names)
{
    for (int is_any = 0; is_any < 2; is_any++) {
        const dw_tls_options listener =
            with_certificate(&listener_own, is_any ? NULL : "rank/0", is_any ? NULL : "rank/1");
        const dw_tls_options connector = with_certificate(&connector_own, NULL, "rank/0");
        tls_pair pair = {.at_most = is_any ? 0 : 100};
        tls_pair_meet(&pair, &listener, &connector);
        assert_string_equal(dw_tls_peer_name(&pair.end[LISTENER].stream), "rank/1");
        assert_string_equal(dw_tls_peer_name(&pair.end[CONNECTOR].stream), "rank/0");
        tls_pair_move(&pair, LISTENER, 50000, 1);
        tls_pair_move(&pair, CONNECTOR, 50000, 2);
        tls_pair_free(&pair);
    }
}

/* A certificate signed by an intermediate authority, whose certificate is sent along with it. */
TEST(intermediate_authorities_are_accepted)
{
    const certificate_wish is_authority = {.is_authority = 1},
                           names_connector = {.uri = "deltawire:rank/1"};
    certificate link, end;
    char both[8192];
    certificate_make(&link, &authority, &is_authority);
    certificate_make(&end, &link, &names_connector);
    const dw_tls_options listener = with_certificate(&listener_own, NULL, NULL);
    for (int has_link = 0; has_link < 2; has_link++) {
        dw_tls_options connector = with_certificate(&end, NULL, "rank/0");
        snprintf(both, sizeof both, "%s%s", end.pem, has_link ? link.pem : "");
        connector.certificate_pem = both;
        tls_pair pair = {0};
        tls_pair_make(&pair, &listener, &connector);
        tls_pair_shake(&pair);
        for (int i = 0; i < 2; i++)
            assert_int_equal(pair.end[i].status, has_link ? DW_OK : DW_ERR_AUTH);
        tls_pair_free(&pair);
    }
    certificate_free(&link);
    certificate_free(&end);
}

typedef struct bad_certificate {
    certificate_wish wish;
    const certificate *by;     /* the signer; NULL: itself */
    const char *judged, *told; /* parts of the errors at the end that refuses, and at the other */
} bad_certificate;

static const bad_certificate bad[] = {
    {{.uri = "deltawire:rank/1"}, &other_authority, "unable to get local issuer", "does not know"},
    {{.uri = "deltawire:rank/1"}, NULL, "self-signed", "does not know"},
    {{.uri = "deltawire:rank/1", .from_s = -7200, .until_s = -3600},
     &authority,
     "has expired",
     "has expired"},
    {{.uri = "deltawire:rank/1", .from_s = 3600, .until_s = 7200},
     &authority,
     "not yet valid",
     "not valid"},
    {{.uri = "deltawire:rank/2"},
     &authority,
     "is rank/2 by its certificate, not rank/1",
     "turns us away"},
    {{.uri = "deltawire:rank/11"},
     &authority,
     "is rank/11 by its certificate, not rank/1",
     "turns us away"},
    {{.uri = "deltawire:rank/1", .purpose = "codeSigning"},
     &authority,
     "purpose",
     "turns us away"}};

/* Tries this certificate; `role` is the end that has it. */
static void refuse_bad(const bad_certificate *one, int role)
{
    certificate own;
    certificate_make(&own, one->by, &one->wish);
    dw_tls_options options[2] = {with_certificate(&listener_own, NULL, "rank/1"),
                                 with_certificate(&listener_own, NULL, "rank/1")};
    options[role] = with_certificate(&own, NULL, "rank/0");
    tls_pair pair = {0};
    tls_pair_make(&pair, &options[LISTENER], &options[CONNECTOR]);
    tls_pair_shake(&pair);
    const tls_end *judge = &pair.end[1 - role], *judged = &pair.end[role];
    if (judge->status != DW_ERR_AUTH || !strstr(judge->stream.text, one->judged)) {
        fail_msg("judging: %d '%s', not '%s'", judge->status, judge->stream.text, one->judged);
    }
    if (judged->status != DW_ERR_AUTH || !strstr(judged->stream.text, one->told)) {
        fail_msg("judged: %d '%s', not '%s'", judged->status, judged->stream.text, one->told);
    }
    tls_pair_free(&pair);
    certificate_free(&own);
}

TEST(refuses_bad_certificates_at_either_end)
{
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        refuse_bad(&bad[i], CONNECTOR);
        refuse_bad(&bad[i], LISTENER);
    }
}

static void refuse_own(dw_tls_options options, dw_status status, const char *word)
{
    dw_tls_context *context;
    dw_why why = {.text = ""};
    dw_status got = dw_tls_context_create(&context, &options, DW_LINK_CONNECT, NULL, &why);
    if (got != status || !strstr(why.text, word))
        fail_msg("%d '%s', not %d '%s'", got, why.text, status, word);
}

TEST(says_what_is_wrong_with_its_own_certificate)
{
    certificate nameless, misnamed;
    const certificate_wish no_name = {.uri = NULL}, wrong_scheme = {.uri = "https:rank/1"};
    certificate_make(&nameless, &authority, &no_name);
    certificate_make(&misnamed, &authority, &wrong_scheme);
    dw_tls_options options = with_certificate(&connector_own, "rank/3", "rank/0");
    refuse_own(options, DW_ERR_CONFIG, "is made out for rank/1, but own_name is rank/3");
    refuse_own(with_certificate(&nameless, NULL, "rank/0"), DW_ERR_CONFIG, "names no end");
    refuse_own(with_certificate(&misnamed, NULL, "rank/0"), DW_ERR_CONFIG, "names no end");
    options = with_certificate(&connector_own, NULL, "rank/0");
    options.key_pem = listener_own.key_pem;
    refuse_own(options, DW_ERR_CONFIG, "private key in memory");
    options.key_pem = "-----BEGIN nonsense";
    refuse_own(options, DW_ERR_CONFIG, "private key in memory");
    options.key_pem = NULL;
    refuse_own(options, DW_ERR_ARGUMENT, "private key");
    options = with_certificate(&connector_own, NULL, "rank/0");
    options.ca_pem = "";
    refuse_own(options, DW_ERR_CONFIG, "CA's certificate in memory");
    options.ca_pem = NULL;
    options.ca_file = "/nonexistent/ca.pem";
    refuse_own(options, DW_ERR_IO, "/nonexistent/ca.pem");
    options.ca_pem = authority.pem;
    refuse_own(options, DW_ERR_ARGUMENT, "not in both");
    certificate_free(&nameless);
    certificate_free(&misnamed);
}

TEST(reads_a_private_key_only_if_it_is_private)
{
    char folder[TEST_FOLDER_BYTES], path[TEST_FOLDER_BYTES + 8];
    assert_int_equal(test_folder(folder, "key"), 0);
    snprintf(path, sizeof path, "%s/key.pem", folder);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    size_t len = strlen(connector_own.key_pem);
    assert_int_equal(write(fd, connector_own.key_pem, len), len);
    dw_tls_options options = with_certificate(&connector_own, NULL, "rank/0");
    options.key_pem = NULL;
    options.key_file = path;
    assert_int_equal(fchmod(fd, 0604), 0);
    refuse_own(options, DW_ERR_CONFIG, "the private key in");
    assert_int_equal(fchmod(fd, 0600), 0);
    dw_tls_context *context;
    dw_why why = {.text = ""};
    if (dw_tls_context_create(&context, &options, DW_LINK_CONNECT, NULL, &why) != DW_OK)
        fail_msg("%s", why.text);
    dw_tls_context_destroy(context);
    close(fd);
    assert_int_equal(unlink(path), 0);
    refuse_own(options, DW_ERR_IO, "cannot read the private key in");
    assert_int_equal(rmdir(folder), 0);
}

TEST(keys_and_certificates_do_not_mix)
{
    for (int has_key = 0; has_key < 2; has_key++) {
        const dw_tls_options options[2][2] = {
            {with_certificate(&listener_own, NULL, NULL),
             with_certificate(&connector_own, NULL, "rank/0")},
            {tls_with_group_key("rank/0", NULL), tls_with_group_key("rank/1", "rank/0")}};
        tls_pair pair = {0};
        tls_pair_make(&pair, &options[has_key][LISTENER], &options[1 - has_key][CONNECTOR]);
        tls_pair_shake(&pair);
        for (int i = 0; i < 2; i++) {
            if (pair.end[i].status != DW_ERR_AUTH || !pair.end[i].stream.text[0])
                fail_msg("%d: %d '%s'", i, pair.end[i].status, pair.end[i].stream.text);
        }
        tls_pair_free(&pair);
    }
}

/* ---- Peers that use OpenSSL, but are not deltawire ------------------------------------------- */

static SSL_CTX *raw_context(const certificate *own, int version)
{
    SSL_CTX *context = SSL_CTX_new(TLS_method());
    assert_non_null(context);
    if (version) assert_true(SSL_CTX_set_max_proto_version(context, version));
    if (own)
        assert_true(SSL_CTX_use_certificate(context, own->x509) &&
                    SSL_CTX_use_PrivateKey(context, own->key));
    SSL_CTX_set_verify(context, SSL_VERIFY_NONE, NULL);
    return context;
}

/* Connects one of our ends with a raw one, and returns the status of ours. *gets_through: the raw
 * end's handshake succeeded, and it got a byte. */
static dw_status meet_raw(tls_pair *pair, int own, SSL_CTX *context, int *gets_through)
{
    SSL *raw = SSL_new(context);
    tls_end *end = &pair->end[own];
    SSL_set_fd(raw, pair->end[1 - own].stream.fd);
    if (own == LISTENER)
        SSL_set_connect_state(raw);
    else
        SSL_set_accept_state(raw);
    *gets_through = 0;
    for (int i = 0; i < 50; i++) {
        char byte = 'W';
        tls_pair_carry(pair);
        if (end->status == DW_PENDING) end->status = dw_tls_shake(&end->stream);
        if (end->status < 0) shutdown(end->stream.fd, SHUT_WR);
        if (SSL_do_handshake(raw) == 1 &&
            (own == LISTENER ? SSL_read(raw, &byte, 1) : SSL_write(raw, &byte, 1)) == 1)
            *gets_through = 1;
    }
    SSL_free(raw);
    return end->status;
}

static void expect_raw(int own, const dw_tls_options *options, SSL_CTX *context, const char *word)
{
    tls_pair pair = {0};
    int gets_through;
    tls_pair_make(&pair, own == LISTENER ? options : NULL, own == CONNECTOR ? options : NULL);
    dw_status status = meet_raw(&pair, own, context, &gets_through);
    if (status != DW_ERR_AUTH || !strstr(pair.end[own].stream.text, word))
        fail_msg("%d '%s', not '%s'", status, pair.end[own].stream.text, word);
    if (own == LISTENER) assert_false(gets_through);
    tls_pair_free(&pair);
    SSL_CTX_free(context);
}

TEST(refuses_foreign_clients)
{
    const dw_tls_options by_key = tls_with_group_key("rank/0", NULL),
                         by_certificate = with_certificate(&listener_own, NULL, NULL);
    expect_raw(LISTENER, &by_key, raw_context(NULL, 0), "failed in the TLS handshake");
    expect_raw(LISTENER, &by_key, raw_context(&connector_own, 0), "failed in the TLS handshake");
    expect_raw(LISTENER, &by_key, raw_context(&connector_own, TLS1_2_VERSION), "offers no TLS 1.3");
    expect_raw(LISTENER, &by_certificate, raw_context(&connector_own, TLS1_2_VERSION),
               "offers no TLS 1.3");
    expect_raw(LISTENER, &by_certificate, raw_context(NULL, 0), "shows no certificate");
}

/* If we rely on the group key, but the server shows a certificate instead, then for TLS itself the
 * handshake succeeds; our end must refuse. */
TEST(refuses_servers_without_proof)
{
    const dw_tls_options by_key = tls_with_group_key("rank/1", "rank/0"),
                         by_certificate = with_certificate(&connector_own, NULL, "rank/0");
    const certificate_wish names_listener = {.uri = "deltawire:rank/0"};
    certificate self_signed;
    certificate_make(&self_signed, NULL, &names_listener);
    expect_raw(CONNECTOR, &by_key, raw_context(&self_signed, 0), "without being authenticated");
    expect_raw(CONNECTOR, &by_key, raw_context(&listener_own, 0), "without being authenticated");
    expect_raw(CONNECTOR, &by_certificate, raw_context(&self_signed, 0), "self-signed");
    expect_raw(CONNECTOR, &by_certificate, raw_context(&listener_own, TLS1_2_VERSION),
               "no TLS 1.3");
    certificate_free(&self_signed);
}

/* ---- Peers that send any bytes --------------------------------------------------------------- */

static dw_status status_after(const dw_tls_options *options, const void *bytes, size_t len,
                              char *text, size_t cap)
{
    tls_pair pair = {0};
    tls_pair_make(&pair, options, NULL);
    tls_pair_say(&pair, CONNECTOR, bytes, len);
    tls_pair_shake(&pair);
    dw_status status = pair.end[LISTENER].status;
    snprintf(text, cap, "%s", pair.end[LISTENER].stream.text);
    tls_pair_free(&pair);
    return status;
}

TEST(refuses_bytes_that_are_not_tls)
{
    const dw_tls_options both[2] = {tls_with_group_key("rank/0", NULL),
                                    with_certificate(&listener_own, NULL, NULL)};
    static const char *const words[] = {"DWTCP\n\x01, as a link without TLS would go on",
                                        "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
                                        "SSH-2.0-OpenSSH_9.2\r\n"};
    char text[200];
    for (int i = 0; i < 2; i++) {
        for (size_t j = 0; j < sizeof words / sizeof *words; j++) {
            assert_int_equal(status_after(&both[i], words[j], strlen(words[j]), text, sizeof text),
                             DW_ERR_AUTH);
            if (!strstr(text, "does not speak TLS")) fail_msg("%s", text);
        }
        uint64_t random = 1;
        for (int round = 0; round < 300; round++) {
            /* Records of valid length with random content. */
            unsigned char bytes[300] = {round % 3 ? 22 : (unsigned char)(20 + round % 5), 3, 1, 1,
                                        39};
            for (size_t j = 5; j < sizeof bytes; j++)
                bytes[j] = (unsigned char)((random = random * 6364136223846793005u + 1) >> 56);
            /* The content claims to be a ClientHello. */
            if (round % 2) memcpy(bytes + 5, "\x01\x00\x01\x23\x03\x03", 6);
            assert_int_equal(status_after(&both[i], bytes, sizeof bytes, text, sizeof text),
                             DW_ERR_AUTH);
        }
    }
}

/* The first message of an honest dialler, as a thief could have recorded it: sent again as it was,
 * and with each of its bytes changed. */
TEST(recorded_or_changed_hello_never_opens_a_link)
{
    const dw_tls_options listener = tls_with_group_key("rank/0", NULL),
                         connector = tls_with_group_key("rank/1", "rank/0");
    unsigned char hello[2000];
    tls_pair honest = {0};
    tls_pair_make(&honest, NULL, &connector);
    assert_int_equal(dw_tls_shake(&honest.end[CONNECTOR].stream), DW_PENDING);
    tls_pair_carry(&honest);
    size_t len = honest.end[CONNECTOR].said_len;
    assert_in_range(len, 100, sizeof hello);
    memcpy(hello, honest.end[CONNECTOR].said, len);
    tls_pair_free(&honest);
    for (size_t at = 0; at <= len; at++) {
        tls_pair pair = {0};
        tls_pair_make(&pair, &listener, NULL);
        if (at > 0) hello[at - 1] ^= 0x11;
        tls_pair_say(&pair, CONNECTOR, hello, len);
        if (at > 0) hello[at - 1] ^= 0x11;
        tls_pair_shake(&pair);
        shutdown(pair.end[CONNECTOR].stream.fd, SHUT_RDWR);
        tls_pair_shake(&pair);
        assert_true(pair.end[LISTENER].status < 0);
        tls_pair_free(&pair);
    }
}

/* A first message without end: our end reads at most 16 KiB of it. */
TEST(unauthenticated_peer_is_read_at_most_16_kib)
{
    const dw_tls_options both[2] = {tls_with_group_key("rank/0", NULL),
                                    with_certificate(&listener_own, NULL, NULL)};
    for (int i = 0; i < 2; i++) {
        tls_pair pair = {0};
        tls_pair_make(&pair, &both[i], NULL);
        unsigned char record[5 + 1000] = {22, 3, 1, 1000 >> 8, 1000 & 255, 1,
                                          1,  0, 0, 3,         3}; /* claims to have 64 KiB */
        size_t said = 0;
        for (int n = 0; n < 60 && pair.end[LISTENER].status == DW_PENDING; n++) {
            tls_pair_say(&pair, CONNECTOR, record, sizeof record);
            said += sizeof record;
            memset(record + 5, 0, sizeof record - 5);
            tls_pair_carry(&pair);
            pair.end[LISTENER].status = dw_tls_shake(&pair.end[LISTENER].stream);
        }
        assert_int_equal(pair.end[LISTENER].status, DW_ERR_AUTH);
        if (!strstr(pair.end[LISTENER].stream.text, "more than 16384 bytes"))
            fail_msg("%s", pair.end[LISTENER].stream.text);
        assert_true(said <= 18000);
        tls_pair_free(&pair);
    }
}

TEST(the_handshake_has_a_deadline)
{
    const dw_tls_options options = tls_with_group_key("rank/0", NULL);
    for (int says_something = 0; says_something < 2; says_something++) {
        tls_pair pair = {0};
        tls_pair_make(&pair, &options, NULL);
        dw_tls *tls = pair.end[LISTENER].stream.inside;
        int64_t begin = dw_now_ns();
        tls->deadline_ns = begin + (int64_t)30 * DW_NS_PER_MS;
        dw_status status = DW_PENDING;
        static const unsigned char drip[] = {22, 3, 1, 16, 0, 1, 0, 15, 252};
        for (size_t n = 0; status == DW_PENDING; n++) { /* a byte from time to time, forever */
            if (says_something && n < 1000)
                tls_pair_say(&pair, CONNECTOR, n < sizeof drip ? &drip[n] : drip, 1);
            tls_pair_carry(&pair);
            status = dw_tls_shake(&pair.end[LISTENER].stream);
            usleep(1000);
        }
        if (status != DW_ERR_TIMEOUT) fail_msg("%d '%s'", status, pair.end[LISTENER].stream.text);
        assert_non_null(strstr(pair.end[LISTENER].stream.text, "in time"));
        assert_true(dw_now_ns() >= tls->deadline_ns);
        tls_pair_free(&pair);
    }
}

TEST(notices_a_peer_that_hangs_up)
{
    const dw_tls_options listener = tls_with_group_key("rank/0", NULL),
                         connector = tls_with_group_key("rank/1", "rank/0");
    for (int own = 0; own < 2; own++) {
        tls_pair pair = {0};
        tls_pair_make(&pair, own == LISTENER ? &listener : NULL,
                      own == CONNECTOR ? &connector : NULL);
        tls_pair_shake(&pair);
        assert_int_equal(pair.end[own].status, DW_PENDING);
        shutdown(pair.end[1 - own].stream.fd, SHUT_RDWR);
        tls_pair_shake(&pair);
        assert_int_equal(pair.end[own].status, DW_ERR_PEER);
        assert_non_null(strstr(pair.end[own].stream.text, "hung up"));
        tls_pair_free(&pair);
    }
}

/* Two diallers, or two listeners, cannot connect to each other. */
TEST(handshake_with_itself_is_refused)
{
    tls_pair dialling = {0};
    const dw_tls_options one = tls_with_group_key("rank/1", "rank/0");
    tls_pair_make(&dialling, NULL, &one);
    /* Everything that it sends is sent back to it. */
    for (int i = 0; i < 5; i++) {
        unsigned char said[2000];
        dialling.end[CONNECTOR].status = dw_tls_shake(&dialling.end[CONNECTOR].stream);
        if (dialling.end[CONNECTOR].status != DW_PENDING) break;
        ssize_t n = recv(dialling.end[CONNECTOR].wire, said, sizeof said, 0);
        if (n > 0)
            assert_int_equal(send(dialling.end[CONNECTOR].wire, said, (size_t)n, MSG_NOSIGNAL), n);
    }
    assert_int_equal(dialling.end[CONNECTOR].status, DW_ERR_AUTH);
    tls_pair_free(&dialling);
}

RUN_TESTS(make_certificates, free_certificates)
