/* SPDX-License-Identifier: Apache-2.0
 * test_rendezvous.c - rank 0 identifies a connecting rank by its key or certificate, and not by the
 * rank that it claims. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../cli/rendezvous.h"
#include "support/test.h"

enum { TAG_GREETING = 1, TAG_TELL = 2, TAG_ADDRESS = 3, TAG_REFUSAL = 4, PATIENCE_MS = 60000 };

static const char key[32] = "the key of all ranks of this run";

/* Finds an address on which nobody listens; the rendezvous needs to know its address in advance. */
static void find_address(char *uri, size_t cap)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, len), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &len), 0);
    snprintf(uri, cap, "tcp://127.0.0.1:%d", ntohs(address.sin_port));
    close(fd);
}

/* Connects to rank 0 at uri with this name and key. The test fails if the status is another one. */
static dw_link *connect_as(const char *uri, const char *name, const char *with_key,
                           dw_status expected)
{
    dw_tls_options tls = {.struct_size = sizeof tls,
                          .own_name = name,
                          .peer_name = "rank/0",
                          .group_key = with_key,
                          .group_key_bytes = sizeof key};
    dw_link_options options = {
        .struct_size = sizeof options, .open_timeout_ms = PATIENCE_MS, .tls = &tls};
    dw_link *link = NULL;
    dw_why why;
    dw_status status = dw_link_open(&link, uri, &options, &why);
    if (status != expected) fail_msg("%d: %s", (int)status, why.text);
    return link;
}

/* Connects with the right key, sends the message `says`, and expects an answer with this tag that
 * contains `word`. */
static void connect_and_expect(const char *uri, const char *name, const char *says, uint32_t tag,
                               const char *word)
{
    dw_link *link = connect_as(uri, name, key, DW_OK);
    void *data;
    size_t len;
    /* The link refuses a message that is longer than any address or sentence. */
    assert_int_equal(dw_link_send(link, TAG_GREETING, says, 64 * 1024 + 1), DW_ERR_LIMIT);
    assert_int_equal(dw_link_send(link, TAG_GREETING, says, strlen(says)), DW_OK);
    dw_status status = dw_link_recv(link, tag, PATIENCE_MS, &data, &len);
    if (status != DW_OK)
        fail_msg("%s, which said '%s': %d '%s'", name, says, status, dw_link_why(link));
    if (!memmem(data, len, word, strlen(word))) fail_msg("'%.*s'", (int)len, (char *)data);
    dw_link_release(link, data);
    dw_link_close(link);
}

static dw_rendezvous *begin_as_rank_0(uint32_t ranks, char *uri, size_t cap)
{
    dw_rendezvous *rendezvous;
    dw_why why;
    find_address(uri, cap);
    dw_tls_options tls = {
        .struct_size = sizeof tls, .group_key = key, .group_key_bytes = sizeof key};
    dw_rendezvous_options options = {
        .uri = uri, .rank = 0, .ranks = ranks, .timeout_ms = PATIENCE_MS, .tls = &tls};
    if (dw_rendezvous_open(&rendezvous, &options, &why) != DW_OK) fail_msg("%s", why.text);
    assert_int_equal(dw_rendezvous_tell(rendezvous, "tcp://here", &why), DW_OK);
    return rendezvous;
}

TEST(a_rank_is_known_by_its_key)
{
    char uri[64];
    dw_rendezvous *rendezvous = begin_as_rank_0(3, uri, sizeof uri);
    connect_and_expect(uri, "rank/2", "rank 1 of 3", TAG_REFUSAL,
                       "the key or certificate of rank 1 names rank/2; give each rank its own");
    connect_and_expect(uri, "rank/11", "rank 1 of 3", TAG_REFUSAL,
                       "the key or certificate of rank 1 names rank/11");
    /* None of them took the place of rank 1. */
    connect_and_expect(uri, "rank/1", "rank 1 of 3", TAG_ADDRESS, "tcp://here");
    dw_rendezvous_close(rendezvous);
}

/* These are more than there are places for, and more than rank 0 could wait for one by one. */
TEST(silent_clients_delay_no_rank)
{
    enum { SILENT = 40 };
    char uri[64];
    dw_link *silent[SILENT];
    dw_rendezvous *rendezvous = begin_as_rank_0(2, uri, sizeof uri);
    for (int i = 0; i < SILENT; i++) silent[i] = connect_as(uri, "rank/1", key, DW_OK);
    connect_and_expect(uri, "rank/1", "rank 1 of 2", TAG_ADDRESS, "tcp://here");
    dw_why why;
    dw_rendezvous_stop(rendezvous, &why);
    assert_string_equal(why.text, "");
    dw_rendezvous_close(rendezvous);
    for (int i = 0; i < SILENT; i++) {
        dw_link_cancel(silent[i]);
        dw_link_close(silent[i]);
    }
}

TEST(rank_0_reports_whom_it_refused)
{
    static const char other[32] = "the key of the ranks of another.";
    char uri[64];
    dw_why why;
    dw_rendezvous *rendezvous = begin_as_rank_0(2, uri, sizeof uri);
    for (int i = 0; i < 3; i++) assert_null(connect_as(uri, "rank/1", other, DW_ERR_AUTH));
    dw_rendezvous_stop(rendezvous, &why);
    if (!strstr(why.text, "3 were turned away, the last one: 127.0.0.1:")) fail_msg("%s", why.text);
    dw_rendezvous_close(rendezvous);
    rendezvous = begin_as_rank_0(2, uri, sizeof uri);
    connect_and_expect(uri, "rank/1", "rank 1 of 7", TAG_REFUSAL, "was started for 2 ranks");
    dw_rendezvous_stop(rendezvous, &why);
    if (!strstr(why.text, "1 were refused; the last one was told: rank 0 was started for 2"))
        fail_msg("%s", why.text);
    dw_rendezvous_close(rendezvous);
}

/* ---- Files ----------------------------------------------------------------------------------- */

static dw_rendezvous *begin_by_files(const char *uri, uint32_t rank)
{
    dw_rendezvous *rendezvous;
    dw_why why;
    dw_rendezvous_options options = {.uri = uri, .rank = rank, .ranks = 2, .timeout_ms = 300};
    if (dw_rendezvous_open(&rendezvous, &options, &why) != DW_OK) fail_msg("%s", why.text);
    return rendezvous;
}

TEST(symlinks_and_fifos_in_the_rendezvous_folder_are_refused)
{
    char folder[] = "/tmp/rendezvous-XXXXXX", uri[100], path[80], fresh[90], victim[80], told[100];
    assert_non_null(mkdtemp(folder));
    snprintf(uri, sizeof uri, "file://%s/run", folder);
    snprintf(path, sizeof path, "%s/run.0", folder);
    snprintf(fresh, sizeof fresh, "%s.new", path);
    snprintf(victim, sizeof victim, "%s/victim", folder);
    dw_why why;
    dw_rendezvous *ranks[2] = {begin_by_files(uri, 0), begin_by_files(uri, 1)};
    alarm(30); /* ends the test if the rendezvous waits for the FIFO */
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(dw_rendezvous_ask(ranks[1], told, sizeof told, &why), DW_ERR_TIMEOUT);
    alarm(0);
    assert_int_equal(unlink(path), 0);
    FILE *file = fopen(victim, "w");
    assert_non_null(file);
    assert_true(fputs("tcp://evil:1\n", file) > 0);
    fclose(file);
    assert_int_equal(symlink(victim, path), 0);
    assert_int_equal(dw_rendezvous_ask(ranks[1], told, sizeof told, &why), DW_ERR_TIMEOUT);
    assert_int_equal(symlink(victim, fresh), 0);
    assert_int_equal(dw_rendezvous_tell(ranks[0], "tcp://here:7", &why), DW_OK);
    assert_int_equal(dw_rendezvous_ask(ranks[1], told, sizeof told, &why), DW_OK);
    assert_string_equal(told, "tcp://here:7");
    file = fopen(victim, "r");
    assert_non_null(file);
    assert_non_null(fgets(told, sizeof told, file));
    fclose(file);
    assert_string_equal(told, "tcp://evil:1\n");
    for (int i = 0; i < 2; i++) dw_rendezvous_close(ranks[i]);
    unlink(victim);
    unlink(fresh);
    assert_int_equal(rmdir(folder), 0); /* no other file was left */
}

RUN_TESTS(NULL, NULL)
