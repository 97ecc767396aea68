/* SPDX-License-Identifier: Apache-2.0
 * fuzz_stranger.c - arbitrary bytes from a stranger: an identity is either read completely or
 * refused, and no handshake succeeds. */
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz.h"
#include "tls/tls_identity.h"
#include "tls/tls_psk.h"

static void check_identity(const uint8_t *data, size_t size)
{
    char client[DW_TLS_NAME_BYTES], server[DW_TLS_NAME_BYTES], whole[DW_TLS_IDENTITY_BYTES + 8];
    if (dw_tls_identity_read(data, size, client, server) != 0) return;
    REQUIRE(dw_tls_name_is_valid(client, strlen(client)) &&
            dw_tls_name_is_valid(server, strlen(server)));
    snprintf(whole, sizeof whole, "dw1 %s %s", client, server);
    REQUIRE(strlen(whole) == size && memcmp(whole, data, size) == 0);
    unsigned char key[DW_TLS_PAIR_KEY_BYTES];
    REQUIRE(dw_tls_pair_key((const unsigned char *)"a key", 5, client, server, key));
}

/* Gives the bytes to a listener that has just accepted a connection, or to a connecting end, which
 * sends first. */
static void check_handshake(const uint8_t *data, size_t size, dw_link_role role)
{
    static dw_tls_context *contexts[3]; /* by role */
    int ends[2];
    dw_why why;
    if (!contexts[role]) {
        const dw_tls_options options = {.struct_size = sizeof options,
                                        .own_name = "a",
                                        .peer_name = "b",
                                        .group_key = "0123456789abcdef0123456789abcdef",
                                        .group_key_bytes = 32};
        REQUIRE(dw_tls_context_create(&contexts[role], &options, role, NULL, &why) == DW_OK);
    }
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
    dw_stream stream = {.fd = ends[0]};
    REQUIRE(dw_tls_cover(&stream, contexts[role], INT64_MAX) == DW_OK);
    REQUIRE(size == 0 || send(ends[1], data, size, MSG_NOSIGNAL) == (ssize_t)size);
    dw_status status = dw_tls_shake(&stream);
    if (status == DW_PENDING) {
        shutdown(ends[1], SHUT_WR);
        status = dw_tls_shake(&stream);
    }
    REQUIRE(status == DW_ERR_AUTH || status == DW_ERR_PEER);
    REQUIRE(stream.text[0] && memchr(stream.text, 0, sizeof stream.text));
    dw_stream_close(&stream);
    close(ends[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 60000) return 0;
    check_identity(data, size);
    check_handshake(data, size, DW_LINK_LISTEN);
    check_handshake(data, size, DW_LINK_CONNECT);
    return 0;
}
