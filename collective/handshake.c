/* SPDX-License-Identifier: Apache-2.0
 * handshake.c - the ranks of a group compare their configs, and agree on a session with each other.
 *
 * Each pair of ranks exchanges hellos until both have one that repeats their own random number
 * (nonce). All ranks know that of rank 0 then, which is part of what places are drawn from. So a
 * hello that is left from an earlier group opens nothing. On links that may lose messages
 * hellos are repeated. The body:
 *
 * | offset | bytes | field                                                                |
 * | 0      | 1     | major version of the frame format                                    |
 * | 1      | 1     | minor version                                                        |
 * | 2      | 1     | version of the group's messages                                      |
 * | 3      | 1     | bit 0: the sender has not seen its own nonce yet, and wants an       |
 * |        |       | answer; bit 1: an all-reduce has one hop; bit 2: results are         |
 * |        |       | verified                                                             |
 * | 4      | 4     | rank of the sender                                                   |
 * | 8      | 4     | number of ranks                                                      |
 * | 12     | 4     | length of pieces                                                     |
 * | 16     | 8     | nonce of the sender                                                  |
 * | 24     | 8     | nonce of the receiver, as far as the sender knows it; else 0         |
 * | 32     | 256   | what both ends must agree on of the config of hop 1, as text         |
 * | 288    | 256   | the same for hop 2                                                   |
 *
 * Each text is filled up with zeros. */
#include "handshake.h"

#include <string.h>

#include "base/clock.h"

enum { TEXT_BYTES = 256, HEAD_BYTES = 32, HELLO_BYTES = HEAD_BYTES + 2 * TEXT_BYTES };
enum { MESSAGES_VERSION = 3, WANTS_ANSWER = 1, HAS_ONE_HOP = 2, VERIFIES = 4 };
_Static_assert((int)DW_AGREEMENT_TEXT_BYTES <= (int)TEXT_BYTES,
               "a longer text needs another layout of the hello");
/* How long to wait for one rank before the time is looked at again. */
enum { SLICE_MS = 10 };

static uint32_t tag_of(const dw_settings *settings)
{
    return settings->id << 8 | DW_PEER_MESSAGES;
}

static void send_hello(dw_peer *peer, bool wants)
{
    const dw_settings *settings = peer->settings;
    unsigned char hello[HELLO_BYTES] = {DW_FORMAT_MAJOR, DW_FORMAT_MINOR, MESSAGES_VERSION,
                                        (unsigned char)((wants ? WANTS_ANSWER : 0) |
                                                        (settings->hops == 1 ? HAS_ONE_HOP : 0) |
                                                        (settings->verifies ? VERIFIES : 0))};
    dw_put(hello + 4, settings->rank, 4);
    dw_put(hello + 8, settings->ranks, 4);
    dw_put(hello + 12, settings->piece, 4);
    dw_put(hello + 16, settings->nonce, 8);
    dw_put(hello + 24, peer->session.nonce, 8);
    dw_config_agreement(&settings->codec, (char *)hello + HEAD_BYTES, TEXT_BYTES);
    dw_config_agreement(&settings->result, (char *)hello + HEAD_BYTES + TEXT_BYTES, TEXT_BYTES);
    dw_message head = {.kind = DW_MESSAGE_HELLO};
    /* An error of the link is found where it is received from. */
    dw_peer_notify(peer, &head, hello, sizeof hello);
}

void dw_handshake_answer(dw_peer *peer, const dw_received *received)
{
    const unsigned char *hello = dw_received_body(received);
    if (received->head.kind == DW_MESSAGE_REFUSE) {
        dw_failure_set(peer->failure, DW_ERR_PEER, peer->rank, "rank %u did not open the group",
                       peer->rank);
        return;
    }
    /* Our last hello was lost. */
    if (received->head.body_len == HELLO_BYTES && hello[3] & WANTS_ANSWER &&
        dw_get(hello + 16, 8) == peer->session.nonce)
        send_hello(peer, false);
}

/* Compares a text of the two configs. */
static dw_status compare_text(const dw_settings *settings, const dw_peer *peer,
                              const dw_config *config, const char *text, const char *of,
                              dw_why *why)
{
    char own[TEXT_BYTES] = "", theirs[TEXT_BYTES];
    dw_config_agreement(config, own, sizeof own);
    if (strncmp(own, text, TEXT_BYTES) == 0) return DW_OK;
    dw_message_text(theirs, sizeof theirs, text, TEXT_BYTES);
    return dw_say(why, DW_ERR_MISMATCH,
                  "group %u: the config of %s is '%.60s' on rank %u and '%.60s' on rank %u; "
                  "give all ranks the same one",
                  settings->id, of, own, settings->rank, theirs, peer->rank);
}

/* Checks a hello; *is_answer: it repeats our nonce. */
static dw_status read_hello(const dw_settings *settings, dw_peer *peer, const unsigned char *hello,
                            uint64_t len, bool *is_answer, dw_why *why)
{
    if (len != HELLO_BYTES || hello[HELLO_BYTES - 1] || hello[HEAD_BYTES + TEXT_BYTES - 1])
        return dw_say(why, DW_ERR_PROTOCOL, "group %u: the greeting of rank %u is malformed",
                      settings->id, peer->rank);
    if (hello[0] != DW_FORMAT_MAJOR || hello[1] != DW_FORMAT_MINOR || hello[2] != MESSAGES_VERSION)
        return dw_say(why, DW_ERR_VERSION,
                      "group %u: rank %u runs another release; run the same one on all ranks",
                      settings->id, peer->rank);
    uint32_t rank = (uint32_t)dw_get(hello + 4, 4);
    uint32_t ranks = (uint32_t)dw_get(hello + 8, 4);
    uint32_t piece = (uint32_t)dw_get(hello + 12, 4);
    if (rank != peer->rank)
        return dw_say(why, DW_ERR_MISMATCH,
                      "group %u: the link to rank %u leads to rank %u; check links or uris",
                      settings->id, peer->rank, rank);
    if (ranks != settings->ranks)
        return dw_say(why, DW_ERR_MISMATCH,
                      "group %u has %u ranks on rank %u and %u ranks on rank %u", settings->id,
                      settings->ranks, settings->rank, ranks, peer->rank);
    if (piece != settings->piece)
        return dw_say(why, DW_ERR_MISMATCH,
                      "group %u: pieces have %u floats on rank %u and %u on rank %u", settings->id,
                      settings->piece, settings->rank, piece, peer->rank);
    uint32_t hops = hello[3] & HAS_ONE_HOP ? 1 : 2;
    if (hops != settings->hops)
        return dw_say(why, DW_ERR_MISMATCH,
                      "group %u: an all-reduce has %u hops on rank %u and %u on rank %u",
                      settings->id, settings->hops, settings->rank, hops, peer->rank);
    bool verifies = hello[3] & VERIFIES;
    if (verifies != settings->verifies)
        return dw_say(why, DW_ERR_MISMATCH,
                      "group %u: verify is %d on rank %u and %d on rank %u; set the same on "
                      "all ranks",
                      settings->id, settings->verifies, settings->rank, verifies, peer->rank);
    const char *texts = (const char *)hello + HEAD_BYTES;
    dw_status status = compare_text(settings, peer, &settings->codec, texts, "contributions", why);
    if (status == DW_OK)
        status =
            compare_text(settings, peer, &settings->result, texts + TEXT_BYTES, "results", why);
    peer->session.nonce = dw_get(hello + 16, 8);
    *is_answer = dw_get(hello + 24, 8) == settings->nonce;
    return status;
}

/* Handles a message from a rank that has not answered yet. */
static dw_status take(const dw_settings *settings, dw_peer *peer, const unsigned char *message,
                      size_t len, bool *has_answered, dw_why *why)
{
    dw_message head;
    if (!dw_message_read(message, len, 0, true, &head)) return DW_OK; /* of an earlier group */
    const unsigned char *body = message + DW_MESSAGE_BYTES;
    if (head.kind == DW_MESSAGE_REFUSE) {
        int64_t status = (int64_t)head.slot;
        bool is_known = status <= DW_ERR_ARGUMENT && status >= DW_ERR_AUTH;
        char text[160];
        dw_message_text(text, sizeof text, body, head.body_len);
        return dw_say(why, is_known ? (dw_status)status : DW_ERR_PROTOCOL,
                      "group %u: rank %u does not open it: %s", settings->id, peer->rank, text);
    }
    if (head.kind != DW_MESSAGE_HELLO) return DW_OK;
    dw_status status = read_hello(settings, peer, body, head.body_len, has_answered, why);
    if (status == DW_OK && (body[3] & WANTS_ANSWER))
        send_hello(peer, !*has_answered && !peer->session.has_answered);
    return status;
}

static dw_status link_says(const dw_settings *settings, const dw_peer *peer, dw_status status,
                           dw_why *why)
{
    if (status == DW_ERR_ARGUMENT)
        return dw_say(why, status,
                      "group %u: the id is in use on the link to rank %u, or the link is not "
                      "open",
                      settings->id, peer->rank);
    const char *sentence = dw_link_why(peer->link);
    return dw_say(why, status, "group %u, rank %u: %.150s", settings->id, peer->rank,
                  sentence[0] ? sentence : dw_status_string(status));
}

/* Takes the next message of a rank, if one comes in time. */
static dw_status hear(const dw_settings *settings, dw_peer *peer, int timeout_ms, bool *has_come,
                      dw_why *why)
{
    void *message;
    size_t len;
    dw_status status = dw_link_recv(peer->link, tag_of(settings), timeout_ms, &message, &len);
    *has_come = status == DW_OK;
    if (status == DW_PENDING) return DW_OK;
    if (status != DW_OK) return link_says(settings, peer, status, why);
    bool is_answer = false;
    status = take(settings, peer, message, len, &is_answer, why);
    peer->session.has_answered |= is_answer;
    dw_link_release(peer->link, message);
    return status;
}

/* Handles what has arrived from ranks that have not answered our hello. If the link may lose
 * messages, also from ranks that have: they ask again if our answer to them was lost. Their other
 * messages are dropped here; they are not acknowledged, so those ranks repeat them. */
static dw_status hear_all(const dw_settings *settings, dw_peer *peers, dw_peer **missing,
                          dw_why *why)
{
    *missing = NULL;
    for (uint32_t r = 0; r < settings->ranks; r++) {
        dw_peer *peer = &peers[r];
        bool has_come = peer->link && (!peer->session.has_answered || peer->retry_ms > 0);
        while (has_come) {
            dw_status status = hear(settings, peer, 0, &has_come, why);
            if (status != DW_OK) return status;
            if (peer->session.has_answered && peer->retry_ms == 0) break;
        }
        if (peer->link && !peer->session.has_answered && !*missing) *missing = peer;
    }
    return DW_OK;
}

/* On links that may lose messages hellos are repeated to the ranks that have not answered. */
static void send_hello_again(const dw_settings *settings, dw_peer *peers, int64_t *sent_ns)
{
    bool has_sent = false;
    for (uint32_t r = 0; r < settings->ranks; r++) {
        dw_peer *peer = &peers[r];
        if (!peer->link || peer->session.has_answered || peer->retry_ms == 0 ||
            dw_now_ns() - *sent_ns < 2 * (int64_t)peer->retry_ms * DW_NS_PER_MS)
            continue;
        send_hello(peer, true);
        has_sent = true;
    }
    if (has_sent) *sent_ns = dw_now_ns();
}

static dw_status exchange(const dw_settings *settings, dw_peer *peers, int64_t open_by_ns,
                          dw_why *why)
{
    int64_t sent_ns = dw_now_ns();
    for (uint32_t r = 0; r < settings->ranks; r++)
        if (peers[r].link) send_hello(&peers[r], true);
    for (;;) {
        dw_peer *missing;
        dw_status status = hear_all(settings, peers, &missing, why);
        if (status != DW_OK || !missing) return status;
        int64_t left_ms = (open_by_ns - dw_now_ns()) / DW_NS_PER_MS;
        if (left_ms <= 0)
            return dw_say(why, DW_ERR_TIMEOUT,
                          "group %u: rank %u did not open it within %u ms; do all ranks open "
                          "the same ids?",
                          settings->id, missing->rank, settings->open_timeout_ms);
        send_hello_again(settings, peers, &sent_ns);
        bool has_come;
        status =
            hear(settings, missing, left_ms < SLICE_MS ? (int)left_ms : SLICE_MS, &has_come, why);
        if (status != DW_OK) return status;
    }
}

dw_status dw_handshake_run(const dw_settings *settings, dw_peer *peers, int64_t open_by_ns,
                           dw_why *why)
{
    dw_status status = exchange(settings, peers, open_by_ns, why);
    for (uint32_t r = 0; r < settings->ranks && status == DW_OK; r++) {
        dw_peer *peer = &peers[r];
        peer->session.seal_seed =
            dw_message_seed(settings->nonce, peer->session.nonce, settings->rank);
        peer->session.open_seed = dw_message_seed(peer->session.nonce, settings->nonce, r);
    }
    /* The others should not wait for this rank. */
    for (uint32_t r = 0; r < settings->ranks && status != DW_OK; r++) {
        dw_message head = {.kind = DW_MESSAGE_REFUSE, .slot = (uint64_t)(int64_t)status};
        if (peers[r].link) dw_peer_notify(&peers[r], &head, why->text, strlen(why->text));
    }
    return status;
}
