/* SPDX-License-Identifier: Apache-2.0
 * test_sized.c - structs of callers and backends that were compiled against an older or newer
 * header: all that begin with struct_size, except those of nccl.h (test_nccl_trouble.c). */
#include "transports/suite/transport_suite.h"

enum { TAG = 3, CHANNEL = 5 };

/* A struct that is 16 bytes longer than ours. */
#define GROWN(type)                                                                                \
    struct {                                                                                       \
        type known;                                                                                \
        uint64_t more[2];                                                                          \
    }

/* Opens a link that no other end joins. */
static dw_status open_without_peer(const void *options, dw_why *why)
{
    dw_link *link;
    dw_status status = dw_link_open(&link, "loop://nobody-else", options, why);
    assert_null(link);
    return status;
}

TEST(structs_of_impossible_size_are_refused)
{
    static const size_t sizes[] = {0, 1, sizeof(size_t) - 1, 4097, SIZE_MAX};
    dw_why why;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        dw_link_options options = {.struct_size = sizes[i], .open_timeout_ms = 20};
        assert_int_equal(open_without_peer(&options, &why), DW_ERR_ARGUMENT);
        assert_non_null(strstr(why.text, "sizeof(dw_link_options)"));
        dw_tls_options tls = {.struct_size = sizes[i]};
        options =
            (dw_link_options){.struct_size = sizeof options, .open_timeout_ms = 20, .tls = &tls};
        assert_int_equal(open_without_peer(&options, &why), DW_ERR_ARGUMENT);
        assert_non_null(strstr(why.text, "sizeof(dw_tls_options)"));
        dw_link_counters counters = {.struct_size = sizes[i], .messages_sent = 7};
        assert_int_equal(dw_link_count(NULL, &counters), DW_ERR_ARGUMENT);
        assert_int_equal(counters.messages_sent, 7);
        dw_transport table = suite_spoiled;
        table.struct_size = sizes[i];
        const dw_transport *tables[] = {&table, NULL};
        options = (dw_link_options){
            .struct_size = sizeof options, .open_timeout_ms = 20, .transports = tables};
        dw_link *link;
        assert_int_equal(dw_link_open(&link, "spoiled:loop://nobody", &options, &why),
                         DW_ERR_ARGUMENT);
        assert_non_null(strstr(why.text, "sizeof(dw_transport)"));
    }
}

TEST(options_of_an_older_caller_are_accepted)
{
    dw_why why;
    dw_link_options options;
    memset(&options, 0xff, sizeof options); /* stands for memory behind the caller's struct */
    options.struct_size = offsetof(dw_link_options, peer_timeout_ms);
    options.role = DW_LINK_CONNECT;
    options.open_timeout_ms = 20;
    assert_int_equal(open_without_peer(&options, &why), DW_ERR_TIMEOUT);

    dw_tls_options tls;
    memset(&tls, 0xff, sizeof tls);
    tls.struct_size = offsetof(dw_tls_options, group_key);
    tls.own_name = "rank/0";
    tls.peer_name = "rank/1";
    options = (dw_link_options){.struct_size = sizeof options, .open_timeout_ms = 20, .tls = &tls};
    assert_int_equal(open_without_peer(&options, &why), DW_ERR_TIMEOUT);
    dw_link *link;
    assert_int_not_equal(dw_link_open(&link, "tcp://127.0.0.1:1", &options, &why), DW_OK);
#ifdef DW_HAVE_TLS
    assert_non_null(strstr(why.text, "a group key or certificates")); /* no key was read */
#endif
}

TEST(options_of_a_newer_caller_are_accepted_if_unset)
{
    dw_why why;
    GROWN(dw_link_options) options;
    memset(&options, 0, sizeof options);
    options.known.struct_size = sizeof options;
    options.known.open_timeout_ms = 20;
    assert_int_equal(open_without_peer(&options, &why), DW_ERR_TIMEOUT);
    ((unsigned char *)&options)[sizeof options - 1] = 1;
    assert_int_equal(open_without_peer(&options, &why), DW_ERR_ARGUMENT);
    assert_non_null(strstr(why.text, "dw_link_options"));
    assert_non_null(strstr(why.text, "newer"));

    GROWN(dw_tls_options) tls;
    memset(&tls, 0, sizeof tls);
    tls.known.struct_size = sizeof tls;
    tls.known.own_name = "rank/0";
    tls.known.peer_name = "rank/1";
    tls.known.group_key = "a key of at least thirty-two bytes";
    tls.known.group_key_bytes = 32;
    options.more[0] = options.more[1] = 0;
    options.known.tls = &tls.known;
    assert_int_equal(open_without_peer(&options, &why), DW_ERR_TIMEOUT);
    tls.more[0] = 1;
    assert_int_equal(open_without_peer(&options, &why), DW_ERR_ARGUMENT);
    assert_non_null(strstr(why.text, "dw_tls_options"));
}

TEST(link_counters_are_filled_for_callers_of_any_age)
{
    static const suite_backend loop = {.name = "loop", .uri = "loop://counted-%d"};
    suite_pair pair;
    suite_start(&pair, &loop);
    suite_pass(pair.link, 0, TAG, 1, 100);
    GROWN(dw_link_counters) counters;
    memset(&counters, 0xee, sizeof counters);
    counters.known.struct_size = offsetof(dw_link_counters, bytes_sent);
    assert_int_equal(dw_link_count(pair.link[1], &counters.known), DW_OK);
    assert_int_equal(counters.known.messages_received, 1);
    assert_int_equal(counters.known.struct_size, offsetof(dw_link_counters, bytes_sent));
    const unsigned char *bytes = (const unsigned char *)&counters;
    for (size_t i = offsetof(dw_link_counters, bytes_sent); i < sizeof counters; i++)
        assert_int_equal(bytes[i], 0xee);
    counters.known.struct_size = sizeof counters;
    assert_int_equal(dw_link_count(pair.link[1], &counters.known), DW_OK);
    assert_int_equal(counters.known.messages_received, 1);
    assert_int_equal(counters.known.struct_size, sizeof counters);
    assert_int_equal(counters.more[0], 0);
    assert_int_equal(counters.more[1], 0);
    assert_int_equal(dw_link_count(pair.link[1], NULL), DW_ERR_ARGUMENT);
    assert_int_equal(dw_link_count(NULL, &counters.known), DW_ERR_ARGUMENT);
    assert_int_equal(counters.known.messages_received, 0);
    suite_close(&pair);
}

static dw_status open_channel(dw_link *link, const void *config, dw_why *why)
{
    dw_channel *channel = NULL;
    dw_status status = dw_channel_open(&channel, link, config, why);
    assert_null(channel);
    return status;
}

/* The other end opens no channel, so a valid config ends in a timeout. */
TEST(channel_configs_of_any_age_are_accepted)
{
    static const suite_backend loop = {.name = "loop", .uri = "loop://channels-%d"};
    suite_pair pair;
    dw_why why;
    suite_start(&pair, &loop);
    GROWN(dw_config) codec;
    memset(&codec, 0, sizeof codec);
    assert_int_equal(dw_config_parse(&codec.known, "direct:bits=6", NULL), DW_OK);
    codec.known.struct_size = sizeof codec;
    GROWN(dw_channel_config) config;
    memset(&config, 0, sizeof config);
    config.known.struct_size = sizeof config;
    config.known.id = CHANNEL;
    config.known.send = &codec.known;
    config.known.open_timeout_ms = 20;
    assert_int_equal(open_channel(pair.link[0], &config, &why), DW_ERR_TIMEOUT);
    codec.more[1] = 1;
    assert_int_equal(open_channel(pair.link[0], &config, &why), DW_ERR_ARGUMENT);
    assert_non_null(strstr(why.text, "dw_config"));
    codec.known.struct_size = 0;
    assert_int_equal(open_channel(pair.link[0], &config, &why), DW_ERR_ARGUMENT);
    config.more[0] = 1;
    assert_int_equal(open_channel(pair.link[0], &config, &why), DW_ERR_ARGUMENT);
    assert_non_null(strstr(why.text, "dw_channel_config"));
    /* Fields after the given size are not read. */
    config.known.struct_size = offsetof(dw_channel_config, send);
    assert_int_equal(open_channel(pair.link[0], &config, &why), DW_ERR_ARGUMENT);
    assert_non_null(strstr(why.text, "set a send config"));
    config.known.struct_size = 0;
    assert_int_equal(open_channel(pair.link[0], &config, &why), DW_ERR_ARGUMENT);
    assert_non_null(strstr(why.text, "sizeof(dw_channel_config)"));
    suite_close(&pair);
}

/* The table of a backend that was compiled against a newer header, with a field that is set. */
TEST(refuses_a_backend_with_unknown_abilities)
{
    GROWN(dw_transport) table = {.known = suite_spoiled};
    table.known.struct_size = sizeof table;
    const dw_transport *tables[] = {&table.known, NULL};
    const dw_link_options options = {
        .struct_size = sizeof options, .open_timeout_ms = 20, .transports = tables};
    static const char *const uris[] = {"spoiled:loop://x", "shaped:rate=1gbit/spoiled:loop://x"};
    for (size_t i = 0; i < sizeof uris / sizeof *uris; i++) {
        dw_link *link;
        dw_why why;
        table.more[1] = 0;
        assert_int_equal(dw_link_open(&link, uris[i], &options, &why), DW_ERR_TIMEOUT);
        table.more[1] = 1;
        assert_int_equal(dw_link_open(&link, uris[i], &options, &why), DW_ERR_ARGUMENT);
        assert_non_null(strstr(why.text, "dw_transport has"));
    }
}

RUN_TESTS(NULL, NULL)
