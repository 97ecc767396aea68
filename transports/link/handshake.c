/* SPDX-License-Identifier: Apache-2.0
 * handshake.c - each end of a link sends a hello, and reads that of the other. */
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "link/link.h"

/* | offset | bytes | hello                                   |
 * | 0      | 4     | "DWLK"                                  |
 * | 4      | 2     | link version                            |
 * | 6      | 2     | 0                                       |
 * | 8      | 8     | longest message this end takes          |
 * | 16     | 16    | release, as text, zero-filled           |
 * Later versions of the protocol keep the first 8 bytes and the release where they are. */
enum { HELLO_BYTES = 32 };
static const char hello_magic[4] = {'D', 'W', 'L', 'K'};

static void write_hello(unsigned char *hello, uint64_t max_message_bytes)
{
    memset(hello, 0, HELLO_BYTES);
    memcpy(hello, hello_magic, sizeof hello_magic);
    dw_put32(hello + 4, DW_LINK_VERSION);
    dw_put64(hello + 8, max_message_bytes);
    snprintf((char *)hello + 16, 16, "%s", DW_VERSION_STRING);
}

static dw_status read_hello(const dw_receiver *receiver, size_t len, uint64_t *peer_max,
                            dw_why *why)
{
    const char *peer = receiver->settings->peer;
    const unsigned char *wire = dw_buffer_wire(receiver->receiving);
    const unsigned char *hello = wire + DW_LINK_HEADER_BYTES;
    if (len < DW_LINK_HEADER_BYTES + HELLO_BYTES || dw_get32(wire + 4) != DW_KIND_HELLO ||
        memcmp(hello, hello_magic, sizeof hello_magic) != 0) {
        return dw_say(why, DW_ERR_PROTOCOL,
                      "%s does not speak the deltawire link protocol; is another program behind "
                      "this address?",
                      peer);
    }
    uint32_t version = dw_get32(hello + 4) & 0xffff;
    if (version != DW_LINK_VERSION) {
        char release[17] = "";
        for (int i = 0; i < 16 && hello[16 + i] > ' ' && hello[16 + i] < 127; i++) {
            release[i] = (char)hello[16 + i];
        }
        return dw_say(
            why, DW_ERR_VERSION,
            "%s speaks link version %u (deltawire %s), this end %d (deltawire %s); run the "
            "same release at both ends",
            peer, version, release[0] ? release : "?", DW_LINK_VERSION, DW_VERSION_STRING);
    }
    *peer_max = dw_get64(hello + 8);
    return DW_OK;
}

/* How often dw_link_open checks whether it was cancelled. */
static const int64_t check_ns = (int64_t)20 * DW_NS_PER_MS;

/* Waits until the hello of the peer has arrived (*got OK, of *len bytes); *sent: whether ours has
 * left. */
static dw_status await_hellos(dw_link *link, const dw_transport_open *how, int64_t deadline_ns,
                              dw_status *sent, dw_status got, size_t *len)
{
    const char *peer = link->settings.peer;
    for (;;) {
        /* The send is tested first. It fails if the peer has left. In that case the hello of the
         * peer, which may show why it left, has arrived already, so the receive is tested after the
         * failure, too. */
        if (*sent == DW_PENDING) *sent = dw_sender_test(&link->sender, how->why);
        bool has_failed = *sent != DW_OK && *sent != DW_PENDING;
        /* A test may return DW_PENDING once without having looked, so it is repeated. */
        for (int looks = has_failed ? 2 : 1; looks > 0 && got == DW_PENDING; looks--)
            got = dw_receiver_test(&link->receiver, len, how->why);
        if (got == DW_ERR_BUFFER_TOO_SMALL) {
            return dw_say(
                how->why, DW_ERR_PROTOCOL,
                "%s began with a message of %zu bytes, not with the greeting of deltawire", peer,
                *len);
        }
        if (got != DW_OK && got != DW_PENDING) return got;
        if (*sent != DW_PENDING && got == DW_OK) return DW_OK;
        if (dw_link_is_set(how->cancelled)) {
            return dw_say(how->why, DW_ERR_CANCELLED, "opening the link to %s was cancelled", peer);
        }
        int64_t now_ns = dw_now_ns();
        if (now_ns >= deadline_ns || has_failed) {
            if (now_ns < deadline_ns) return *sent;
            return dw_say(how->why, DW_ERR_TIMEOUT,
                          "%s accepted the connection but did not greet within %u ms", peer,
                          how->timeout_ms);
        }
        dw_backend_poll(&link->backend, false, now_ns);
        int64_t until_ns = deadline_ns - now_ns < check_ns ? deadline_ns : now_ns + check_ns;
        if (link->backend.wake_ns < until_ns) until_ns = link->backend.wake_ns;
        dw_io_sleep(&link->io, dw_backend_wait(&link->backend), until_ns, false);
    }
}

dw_status dw_link_handshake(dw_link *link, const dw_transport_open *how, int64_t deadline_ns,
                            uint64_t *peer_max)
{
    dw_buffer *hello = dw_buffer_take(&link->pool, HELLO_BYTES);
    if (!hello) return DW_ERR_NO_MEMORY;
    hello->kind = DW_KIND_HELLO;
    hello->len = HELLO_BYTES;
    write_hello(dw_buffer_payload(hello), link->settings.own_max_message_bytes);
    dw_status sent = dw_sender_start(&link->sender, hello);
    dw_status got = dw_receiver_start(&link->receiver, DW_LINK_ROOM_BYTES);
    if (sent == DW_OK) sent = DW_PENDING;
    if (got == DW_OK) got = DW_PENDING;
    size_t len = 0;
    dw_status status = await_hellos(link, how, deadline_ns, &sent, got, &len);
    if (status == DW_OK) status = read_hello(&link->receiver, len, peer_max, how->why);
    if (status != DW_OK) return status;
    dw_receiver_drop(&link->receiver);
    return sent;
}
