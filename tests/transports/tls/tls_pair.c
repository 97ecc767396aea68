/* SPDX-License-Identifier: Apache-2.0
 * tls_pair.c - two ends under TLS and a simulated network between them. */
#include "tls_pair.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/report.h"

const unsigned char tls_group_key[32] = "0123456789abcdefghijklmnopqrstu";

dw_tls_options tls_with_group_key(const char *own_name, const char *peer_name)
{
    return (dw_tls_options){.struct_size = sizeof(dw_tls_options),
                            .own_name = own_name,
                            .peer_name = peer_name,
                            .group_key = tls_group_key,
                            .group_key_bytes = sizeof tls_group_key};
}

void tls_pair_make(tls_pair *pair, const dw_tls_options *listener, const dw_tls_options *connector)
{
    const dw_tls_options *options[2] = {listener, connector};
    for (int i = 0; i < 2; i++) {
        tls_end *end = &pair->end[i];
        int sockets[2];
        memset(end, 0, sizeof *end);
        assert_int_equal(
            socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sockets), 0);
        end->stream.fd = sockets[0];
        end->wire = sockets[1];
        end->status = options[i] ? DW_PENDING : DW_OK;
        for (int j = 0; j < 2 && pair->socket_bytes; j++) {
            setsockopt(sockets[j], SOL_SOCKET, SO_SNDBUF, &pair->socket_bytes,
                       sizeof pair->socket_bytes);
        }
        if (!options[i]) continue;
        const dw_link_role role = i == LISTENER ? DW_LINK_LISTEN : DW_LINK_CONNECT;
        dw_status made = dw_tls_context_create(&end->context, options[i], role, NULL, &end->why);
        if (made != DW_OK) fail_msg("%d: %s", made, end->why.text);
        assert_int_equal(
            dw_tls_cover(&end->stream, end->context, dw_now_ns() + (int64_t)60000 * DW_NS_PER_MS),
            DW_OK);
    }
}

static void note(tls_end *end, const unsigned char *bytes, size_t len)
{
    if (end->said_len + len > end->said_cap) {
        end->said_cap = 2 * (end->said_len + len);
        end->said = realloc(end->said, end->said_cap);
        assert_non_null(end->said);
    }
    memcpy(end->said + end->said_len, bytes, len);
    end->said_len += len;
}

size_t tls_pair_carry(tls_pair *pair)
{
    size_t moved = 0;
    for (int i = 0; i < 2; i++) {
        tls_end *from = &pair->end[i], *to = &pair->end[1 - i];
        unsigned char room[4096];
        size_t cap = pair->at_most && pair->at_most < sizeof room ? pair->at_most : sizeof room;
        ssize_t can = recv(from->wire, room, cap, MSG_PEEK);
        if (can == 0 && !from->is_gone) {
            shutdown(to->wire, SHUT_WR);
            from->is_gone = 1;
        }
        if (can <= 0) continue;
        for (size_t at = from->said_len; i == LISTENER && at < from->said_len + (size_t)can; at++) {
            if (pair->flip_at && at + 1 == pair->flip_at) room[at - from->said_len] ^= 1;
        }
        ssize_t took = send(to->wire, room, (size_t)can, MSG_NOSIGNAL);
        if (took < 0 && errno == EPIPE) { /* the receiver has closed: the bytes are lost */
            recv(from->wire, room, (size_t)can, 0);
            continue;
        }
        if (took <= 0) continue;
        note(from, room, (size_t)took);
        assert_int_equal(recv(from->wire, room, (size_t)took, 0), took);
        moved += (size_t)took;
    }
    return moved;
}

void tls_pair_shake(tls_pair *pair)
{
    for (int idle = 0; idle < 3;) {
        int was_idle = tls_pair_carry(pair) == 0;
        for (int i = 0; i < 2; i++) {
            tls_end *end = &pair->end[i];
            if (end->status != DW_PENDING) continue;
            end->status = dw_tls_shake(&end->stream);
            if (end->status < 0) shutdown(end->stream.fd, SHUT_WR);
            was_idle = was_idle && end->status == DW_PENDING;
        }
        idle = was_idle ? idle + 1 : 0;
    }
}

void tls_pair_meet(tls_pair *pair, const dw_tls_options *listener, const dw_tls_options *connector)
{
    tls_pair_make(pair, listener, connector);
    tls_pair_shake(pair);
    for (int i = 0; i < 2; i++) {
        if (pair->end[i].status != DW_OK)
            fail_msg("%d: %d '%s'", i, pair->end[i].status, pair->end[i].stream.text);
    }
}

void tls_pair_free(tls_pair *pair)
{
    for (int i = 0; i < 2; i++) {
        dw_stream_close(&pair->end[i].stream);
        close(pair->end[i].wire);
        dw_tls_context_destroy(pair->end[i].context);
        free(pair->end[i].said);
    }
}

void tls_pair_say(tls_pair *pair, int end, const void *bytes, size_t len)
{
    assert_int_equal(send(pair->end[end].stream.fd, bytes, len, MSG_NOSIGNAL), (ssize_t)len);
}

static unsigned char pattern_byte(uint64_t pattern, size_t at)
{
    uint64_t x = (pattern + at) * UINT64_C(0x9e3779b97f4a7c15);
    return (unsigned char)(x >> 53);
}

void tls_pair_move(tls_pair *pair, int from, size_t len, uint64_t pattern)
{
    unsigned char *data = malloc(len + 1), *room = malloc(len + 1);
    size_t sent = 0, got = 0;
    assert_true(data && room);
    for (size_t i = 0; i < len; i++) data[i] = pattern_byte(pattern, i);
    for (int idle = 0; got < len;) {
        size_t before = sent + got;
        if (sent < len) {
            /* The bytes are written in two parts of any lengths. */
            size_t cut = (sent * 7 + pattern) % (len - sent + 1);
            const struct iovec parts[2] = {{data + sent, cut},
                                           {data + sent + cut, len - sent - cut}};
            const ptrdiff_t n = dw_stream_write(&pair->end[from].stream, parts, 2);
            if (n < 0) fail_msg("writing: %td '%s'", n, pair->end[from].stream.text);
            sent += (size_t)n;
        }
        size_t carried = tls_pair_carry(pair);
        size_t room_now = 1 + (pattern * 3 + got) % (len - got);
        const ptrdiff_t n = dw_stream_read(&pair->end[1 - from].stream, room + got, room_now);
        if (n < 0) fail_msg("reading: %td '%s'", n, pair->end[1 - from].stream.text);
        got += (size_t)n;
        idle = carried == 0 && sent + got == before ? idle + 1 : 0;
        if (idle > 100) fail_msg("no progress after %zu of %zu bytes", got, len);
    }
    assert_memory_equal(room, data, len);
    free(data);
    free(room);
}
