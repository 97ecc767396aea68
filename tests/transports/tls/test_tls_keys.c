/* SPDX-License-Identifier: Apache-2.0
 * test_tls_keys.c - the key of each pair of ends, which ends can use it, and the options with which
 * a program gives its keys. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/folder.h"
#include "tls_pair.h"

/* ---- Keys of pairs --------------------------------------------------------------------------- */

/* Both ends must expect_refusal. If `told` is given, what the listener sent is stored there. */
static void expect_refusal(const dw_tls_options *listener, const dw_tls_options *connector,
                           const char *word, unsigned char *told, size_t *told_len)
{
    tls_pair pair = {0};
    tls_pair_make(&pair, listener, connector);
    tls_pair_shake(&pair);
    for (int i = 0; i < 2; i++) {
        if (pair.end[i].status != DW_ERR_AUTH || !strstr(pair.end[i].stream.text, word)) {
            fail_msg("%d answers %d '%s', not '%s'", i, pair.end[i].status, pair.end[i].stream.text,
                     word);
        }
    }
    if (told) {
        assert_true(pair.end[LISTENER].said_len <= 64);
        *told_len = pair.end[LISTENER].said_len;
        memcpy(told, pair.end[LISTENER].said, *told_len);
    }
    tls_pair_free(&pair);
}

TEST(refuses_wrong_keys_and_names_in_the_same_way)
{
    unsigned char told[4][64], other_key[40] = "another key, as long as it needs to be";
    size_t told_len[4];
    dw_tls_options listener = tls_with_group_key("rank/0", "rank/1"),
                   connector = tls_with_group_key("rank/1", "rank/0");
    connector.group_key = other_key;
    connector.group_key_bytes = sizeof other_key;
    expect_refusal(&listener, &connector, "another group key", told[0], &told_len[0]);
    connector = tls_with_group_key("rank/1", "rank/7"); /* it wants to reach another peer */
    expect_refusal(&listener, &connector, "another group key", told[1], &told_len[1]);
    connector = tls_with_group_key("rank/2", "rank/0"); /* it is another peer */
    expect_refusal(&listener, &connector, "another group key", told[2], &told_len[2]);
    listener = tls_with_group_key("rank/0", NULL); /* any peer of the group except itself */
    connector = tls_with_group_key("rank/1", "rank/0");
    connector.group_key = other_key;
    connector.group_key_bytes = sizeof other_key;
    expect_refusal(&listener, &connector, "another group key", told[3], &told_len[3]);
    for (int i = 1; i < 4; i++) {
        assert_int_equal(told_len[i], told_len[0]);
        assert_memory_equal(told[i], told[0], told_len[0]);
    }
}

/* End a both listens and dials. An attacker that sends a's own handshake back to a, as if it came
 * from b, must be refused. */
TEST(reflected_handshake_is_refused)
{
    const dw_tls_options dials = tls_with_group_key("a", "b");
    const dw_tls_options listens_for_b = tls_with_group_key("a", "b"),
                         listens_for_all = tls_with_group_key("a", NULL);
    expect_refusal(&listens_for_b, &dials, "another group key", NULL, NULL);
    expect_refusal(&listens_for_all, &dials, "another group key", NULL, NULL);
    const dw_tls_options listens_falsely = tls_with_group_key("b", "c"),
                         comes_as_a = tls_with_group_key("a", "b");
    expect_refusal(&listens_falsely, &comes_as_a, "another group key", NULL, NULL);
}

TEST(every_pair_has_a_key_of_its_own)
{
    static const char *const pairs[][2] = {
        {"a", "b"}, {"b", "a"}, {"a", "bc"}, {"ab", "c"}, {"a", "c"}};
    unsigned char keys[6][DW_TLS_PAIR_KEY_BYTES];
    for (size_t i = 0; i < 5; i++)
        assert_true(dw_tls_pair_key(tls_group_key, 32, pairs[i][0], pairs[i][1], keys[i]));
    assert_true(dw_tls_pair_key(tls_group_key, 31, "a", "b", keys[5]));
    for (int i = 0; i < 6; i++) {
        for (int j = 0; j < i; j++)
            assert_memory_not_equal(keys[i], keys[j], DW_TLS_PAIR_KEY_BYTES);
    }
    /* Computed once by another implementation of HKDF-SHA256 (RFC 5869). If the result ever
     * changed, different releases could not connect. */
    static const unsigned char expected[DW_TLS_PAIR_KEY_BYTES] = {
        0x5e, 0x3c, 0x18, 0x9c, 0x9e, 0x62, 0xc6, 0xc6, 0x73, 0xbc, 0x4c,
        0xa3, 0xf3, 0x59, 0x48, 0x24, 0xb2, 0xd5, 0x66, 0x8a, 0xfb, 0x77,
        0x4b, 0x19, 0x59, 0xa8, 0x9d, 0x38, 0x3c, 0xf2, 0xb0, 0xab};
    assert_memory_equal(keys[0], expected, sizeof expected);
}

/* ---- Options --------------------------------------------------------------------------------- */

static void expect(const dw_tls_options *options, dw_link_role role, dw_status status,
                   const char *word)
{
    dw_tls_context *context;
    dw_why why = {.text = ""};
    dw_status got = dw_tls_context_create(&context, options, role, NULL, &why);
    if (got != status || !strstr(why.text, word))
        fail_msg("%d '%s', not %d '%s'", got, why.text, status, word);
    assert_null(context);
}

TEST(tls_options_error_names_the_wrong_option)
{
    static const struct {
        const char *own, *peer, *word;
    } names[] = {
        {NULL, "b", "own_name"},
        {"a", NULL, "peer_name"},
        {"a", "a", "both 'a'"},
        {"a b", "c", "'a b'"},
        {"", "c", "''"},
        {"a", "0123456789012345678901234567890123456789012345678901234567890123", "63 letters"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const dw_tls_options options = tls_with_group_key(names[i].own, names[i].peer);
        expect(&options, DW_LINK_CONNECT, DW_ERR_ARGUMENT, names[i].word);
    }
    dw_tls_options options = tls_with_group_key("a", "b");
    options.group_key_bytes = 31;
    expect(&options, DW_LINK_CONNECT, DW_ERR_ARGUMENT, "31 bytes");
    options.group_key_bytes = 4097;
    expect(&options, DW_LINK_CONNECT, DW_ERR_ARGUMENT, "4097 bytes");
    options.group_key = NULL;
    expect(&options, DW_LINK_CONNECT, DW_ERR_ARGUMENT, "a group key or certificates");
    options = tls_with_group_key("a", "b");
    options.ca_file = "x";
    expect(&options, DW_LINK_CONNECT, DW_ERR_ARGUMENT, "not both");
    options = tls_with_group_key("a", "b");
    options.group_key_file = "x";
    expect(&options, DW_LINK_CONNECT, DW_ERR_ARGUMENT, "not both");
    options = tls_with_group_key("a", "b");
    options.struct_size = sizeof options.struct_size - 1;
    expect(&options, DW_LINK_CONNECT, DW_ERR_ARGUMENT, "struct_size");
}

TEST(reads_a_key_file_only_if_it_is_private)
{
    char folder[TEST_FOLDER_BYTES], path[TEST_FOLDER_BYTES + 8];
    assert_int_equal(test_folder(folder, "key"), 0);
    snprintf(path, sizeof path, "%s/key", folder);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0);
    dw_tls_options options = {.struct_size = sizeof options,
                              .own_name = "rank/1",
                              .peer_name = "rank/0",
                              .group_key_file = path};
    expect(&options, DW_LINK_CONNECT, DW_ERR_ARGUMENT, "0 bytes");
    assert_int_equal(write(fd, tls_group_key, 32), 32);
    static const mode_t open_to_others[] = {0604, 0602, 0601};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(fchmod(fd, open_to_others[i]), 0);
        expect(&options, DW_LINK_CONNECT, DW_ERR_CONFIG, "chmod 600");
    }
    assert_int_equal(fchmod(fd, 0640), 0); /* a group may read it */
    tls_pair pair = {0};
    const dw_tls_options listener = tls_with_group_key("rank/0", NULL);
    tls_pair_meet(&pair, &listener, &options); /* the same key as in memory */
    tls_pair_free(&pair);
    static char much[5000];
    assert_int_equal(write(fd, much, sizeof much), sizeof much);
    expect(&options, DW_LINK_CONNECT, DW_ERR_ARGUMENT, "at least 4097 bytes");
    close(fd);
    unlink(path);
    rmdir(folder);
    expect(&options, DW_LINK_CONNECT, DW_ERR_IO, "No such file");
}

RUN_TESTS(NULL, NULL)
