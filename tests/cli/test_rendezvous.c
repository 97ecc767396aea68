/* SPDX-License-Identifier: Apache-2.0
 * test_rendezvous.c - rank 0 identifies a connecting rank by its key or certificate, and not by the
 * rank that it claims. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../cli/rendezvous.h"

enum { TAG_GREETING = 1, TAG_TELL = 2, TAG_ADDRESS = 3, TAG_REFUSAL = 4, PATIENCE_MS = 60000 };

static const char key[32] = "the key of all ranks of this run";

/* Where nobody listens: the rendezvous is told its address, not asked. */
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

/* Somebody comes under a name that it can prove, says what it likes, and is told something with
 * `tag`. */
static void come(const char *uri, const char *name, const char *says, uint32_t tag,
                 const char *word)
{
    dw_tls_options tls = {.struct_size = sizeof tls,
                          .own_name = name,
                          .peer_name = "rank/0",
                          .group_key = key,
                          .group_key_bytes = sizeof key};
    dw_link_options options = {
        .struct_size = sizeof options, .open_timeout_ms = PATIENCE_MS, .tls = &tls};
    dw_link *link;
    dw_why why;
    void *data;
    size_t len;
    if (dw_link_open(&link, uri, &options, &why) != DW_OK) fail_msg("%s", why.text);
    /* What no address and no sentence can be does not travel. */
    assert_int_equal(dw_link_send(link, TAG_GREETING, says, 64 * 1024 + 1), DW_ERR_LIMIT);
    assert_int_equal(dw_link_send(link, TAG_GREETING, says, strlen(says)), DW_OK);
    dw_status status = dw_link_recv(link, tag, PATIENCE_MS, &data, &len);
    if (status != DW_OK)
        fail_msg("%s, who says '%s': %d '%s'", name, says, status, dw_link_why(link));
    if (!memmem(data, len, word, strlen(word))) fail_msg("'%.*s'", (int)len, (char *)data);
    dw_link_release(link, data);
    dw_link_close(link);
}

static void a_rank_is_who_its_key_says(void **state)
{
    (void)state;
    char uri[64];
    dw_rendezvous *rendezvous;
    dw_why why;
    find_address(uri, sizeof uri);
    dw_tls_options tls = {
        .struct_size = sizeof tls, .group_key = key, .group_key_bytes = sizeof key};
    dw_rendezvous_options options = {
        .uri = uri, .rank = 0, .stages = 3, .timeout_ms = PATIENCE_MS, .tls = &tls};
    if (dw_rendezvous_open(&rendezvous, &options, &why) != DW_OK) fail_msg("%s", why.text);
    assert_int_equal(dw_rendezvous_tell(rendezvous, "tcp://here", &why), DW_OK);
    come(uri, "rank/2", "rank 1 of 3", TAG_REFUSAL,
         "the key or certificate of rank 1 names rank/2; give each rank its own");
    come(uri, "rank/11", "rank 1 of 3", TAG_REFUSAL,
         "the key or certificate of rank 1 names rank/11");
    /* The place was not taken by any of them. */
    come(uri, "rank/1", "rank 1 of 3", TAG_ADDRESS, "tcp://here");
    dw_rendezvous_close(rendezvous);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_rank_is_who_its_key_says)};
    return cmocka_run_group_tests_name("rendezvous", tests, NULL, NULL);
}
