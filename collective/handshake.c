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
#include <stdio.h>
#include <string.h>

#include "group.h"

enum { TEXT_BYTES = 256, HEAD_BYTES = 32, HELLO_BYTES = HEAD_BYTES + 2 * TEXT_BYTES };
enum { MESSAGES_VERSION = 3, WANTS_ANSWER = 1, HAS_ONE_HOP = 2, VERIFIES = 4 };
_Static_assert((int)DW_AGREEMENT_TEXT_BYTES <= (int)TEXT_BYTES,
               "a longer text needs another layout of the hello");
/* How long to wait for one rank before the time is looked at again. */
enum { SLICE_MS = 10 };

static uint32_t tag_of(const dw_group *group)
{
    return group->id << 8 | DW_PEER_MESSAGES;
}

static void send_hello(dw_peer *peer, bool wants)
{
    const dw_group *group = peer->group;
    unsigned char hello[HELLO_BYTES] = {DW_FORMAT_MAJOR, DW_FORMAT_MINOR, MESSAGES_VERSION,
                                        (unsigned char)((wants ? WANTS_ANSWER : 0) |
                                                        (group->hops == 1 ? HAS_ONE_HOP : 0) |
                                                        (group->verifies ? VERIFIES : 0))};
    dw_message_put(hello + 4, group->rank, 4);
    dw_message_put(hello + 8, group->ranks, 4);
    dw_message_put(hello + 12, group->piece, 4);
    dw_message_put(hello + 16, group->nonce, 8);
    dw_message_put(hello + 24, peer->nonce, 8);
    dw_config_agreement(&group->codec, (char *)hello + HEAD_BYTES, TEXT_BYTES);
    dw_config_agreement(&group->result, (char *)hello + HEAD_BYTES + TEXT_BYTES, TEXT_BYTES);
    dw_message head = {.kind = DW_MESSAGE_HELLO};
    /* An error of the link is found where it is received from. */
    dw_peer_notify(peer, &head, hello, sizeof hello);
}

void dw_handshake_answer(dw_peer *peer, const dw_received *received)
{
    const unsigned char *hello = dw_received_body(received);
    if (received->head.kind == DW_MESSAGE_REFUSE) {
        dw_group_fail(peer->group, DW_ERR_PEER, peer->rank, "rank %u did not open the group",
                      peer->rank);
        return;
    }
    /* Our last hello was lost. */
    if (received->head.body_len == HELLO_BYTES && hello[3] & WANTS_ANSWER &&
        dw_message_get(hello + 16, 8) == peer->nonce)
        send_hello(peer, false);
}

/* Compares a text of the two configs. */
static dw_status compare_text(const dw_group *group, const dw_peer *peer, const dw_config *config,
                              const char *text, const char *of, dw_why *why)
{
    char own[TEXT_BYTES] = "", theirs[TEXT_BYTES];
    dw_config_agreement(config, own, sizeof own);
    if (strncmp(own, text, TEXT_BYTES) == 0) return DW_OK;
    dw_message_text(theirs, sizeof theirs, text, TEXT_BYTES);
    return dw_group_say(why, DW_ERR_MISMATCH,
                        "group %u: the config of %s is '%.60s' on rank %u and '%.60s' on rank %u; "
                        "give all ranks the same one",
                        group->id, of, own, group->rank, theirs, peer->rank);
}

/* Checks a hello; *is_answer: it repeats our nonce. */
static dw_status read_hello(dw_group *group, dw_peer *peer, const unsigned char *hello,
                            uint64_t len, bool *is_answer, dw_why *why)
{
    if (len != HELLO_BYTES || hello[HELLO_BYTES - 1] || hello[HEAD_BYTES + TEXT_BYTES - 1])
        return dw_group_say(why, DW_ERR_PROTOCOL, "group %u: the greeting of rank %u is malformed",
                            group->id, peer->rank);
    if (hello[0] != DW_FORMAT_MAJOR || hello[1] != DW_FORMAT_MINOR || hello[2] != MESSAGES_VERSION)
        return dw_group_say(why, DW_ERR_VERSION,
                            "group %u: rank %u runs another release; run the same one on all ranks",
                            group->id, peer->rank);
    uint32_t rank = (uint32_t)dw_message_get(hello + 4, 4);
    uint32_t ranks = (uint32_t)dw_message_get(hello + 8, 4);
    uint32_t piece = (uint32_t)dw_message_get(hello + 12, 4);
    if (rank != peer->rank)
        return dw_group_say(why, DW_ERR_MISMATCH,
                            "group %u: the link to rank %u leads to rank %u; check links or uris",
                            group->id, peer->rank, rank);
    if (ranks != group->ranks)
        return dw_group_say(why, DW_ERR_MISMATCH,
                            "group %u has %u ranks on rank %u and %u ranks on rank %u", group->id,
                            group->ranks, group->rank, ranks, peer->rank);
    if (piece != group->piece)
        return dw_group_say(why, DW_ERR_MISMATCH,
                            "group %u: pieces have %u floats on rank %u and %u on rank %u",
                            group->id, group->piece, group->rank, piece, peer->rank);
    uint32_t hops = hello[3] & HAS_ONE_HOP ? 1 : 2;
    if (hops != group->hops)
        return dw_group_say(why, DW_ERR_MISMATCH,
                            "group %u: an all-reduce has %u hops on rank %u and %u on rank %u",
                            group->id, group->hops, group->rank, hops, peer->rank);
    bool verifies = hello[3] & VERIFIES;
    if (verifies != group->verifies)
        return dw_group_say(why, DW_ERR_MISMATCH,
                            "group %u: verify is %d on rank %u and %d on rank %u; set the same on "
                            "all ranks",
                            group->id, group->verifies, group->rank, verifies, peer->rank);
    const char *texts = (const char *)hello + HEAD_BYTES;
    dw_status status = compare_text(group, peer, &group->codec, texts, "contributions", why);
    if (status == DW_OK)
        status = compare_text(group, peer, &group->result, texts + TEXT_BYTES, "results", why);
    peer->nonce = dw_message_get(hello + 16, 8);
    *is_answer = dw_message_get(hello + 24, 8) == group->nonce;
    return status;
}

/* Handles a message from a rank that has not answered yet. */
static dw_status take(dw_group *group, dw_peer *peer, const unsigned char *message, size_t len,
                      bool *has_answered, dw_why *why)
{
    dw_message head;
    if (!dw_message_read(message, len, 0, true, &head)) return DW_OK; /* of an earlier group */
    const unsigned char *body = message + DW_MESSAGE_BYTES;
    if (head.kind == DW_MESSAGE_REFUSE) {
        int64_t status = (int64_t)head.slot;
        bool is_known = status <= DW_ERR_ARGUMENT && status >= DW_ERR_AUTH;
        char text[160];
        dw_message_text(text, sizeof text, body, head.body_len);
        return dw_group_say(why, is_known ? (dw_status)status : DW_ERR_PROTOCOL,
                            "group %u: rank %u does not open it: %s", group->id, peer->rank, text);
    }
    if (head.kind != DW_MESSAGE_HELLO) return DW_OK;
    dw_status status = read_hello(group, peer, body, head.body_len, has_answered, why);
    if (status == DW_OK && (body[3] & WANTS_ANSWER))
        send_hello(peer, !*has_answered && !peer->has_answered);
    return status;
}

static dw_status link_says(const dw_group *group, const dw_peer *peer, dw_status status,
                           dw_why *why)
{
    if (status == DW_ERR_ARGUMENT)
        return dw_group_say(why, status,
                            "group %u: the id is in use on the link to rank %u, or the link is not "
                            "open",
                            group->id, peer->rank);
    const char *sentence = dw_link_why(peer->link);
    return dw_group_say(why, status, "group %u, rank %u: %.150s", group->id, peer->rank,
                        sentence[0] ? sentence : dw_status_string(status));
}

/* Takes the next message of a rank, if one comes in time. */
static dw_status hear(dw_group *group, dw_peer *peer, int timeout_ms, bool *has_come, dw_why *why)
{
    void *message;
    size_t len;
    dw_status status = dw_link_recv(peer->link, tag_of(group), timeout_ms, &message, &len);
    *has_come = status == DW_OK;
    if (status == DW_PENDING) return DW_OK;
    if (status != DW_OK) return link_says(group, peer, status, why);
    bool is_answer = false;
    status = take(group, peer, message, len, &is_answer, why);
    peer->has_answered |= is_answer;
    dw_link_release(peer->link, message);
    return status;
}

/* Handles what has arrived from ranks that have not answered our hello. If the link may lose
 * messages, also from ranks that have: they ask again if our answer to them was lost. Their other
 * messages are dropped here; they are not acknowledged, so those ranks repeat them. */
static dw_status hear_all(dw_group *group, dw_peer **missing, dw_why *why)
{
    *missing = NULL;
    for (uint32_t r = 0; r < group->ranks; r++) {
        dw_peer *peer = &group->peers[r];
        bool has_come = peer->link && (!peer->has_answered || peer->retry_ms > 0);
        while (has_come) {
            dw_status status = hear(group, peer, 0, &has_come, why);
            if (status != DW_OK) return status;
            if (peer->has_answered && peer->retry_ms == 0) break;
        }
        if (peer->link && !peer->has_answered && !*missing) *missing = peer;
    }
    return DW_OK;
}

/* On links that may lose messages hellos are repeated to the ranks that have not answered. */
static void send_hello_again(dw_group *group, int64_t *notified_ns)
{
    bool tells = false;
    for (uint32_t r = 0; r < group->ranks; r++) {
        dw_peer *peer = &group->peers[r];
        if (!peer->link || peer->has_answered || peer->retry_ms == 0 ||
            dw_group_now_ns() - *notified_ns < 2 * (int64_t)peer->retry_ms * DW_NS_IN_MS)
            continue;
        send_hello(peer, true);
        tells = true;
    }
    if (tells) *notified_ns = dw_group_now_ns();
}

static dw_status exchange(dw_group *group, dw_why *why)
{
    int64_t notified_ns = dw_group_now_ns();
    for (uint32_t r = 0; r < group->ranks; r++)
        if (group->peers[r].link) send_hello(&group->peers[r], true);
    for (;;) {
        dw_peer *missing;
        dw_status status = hear_all(group, &missing, why);
        if (status != DW_OK || !missing) return status;
        int64_t left_ms = (group->open_by_ns - dw_group_now_ns()) / DW_NS_IN_MS;
        if (left_ms <= 0)
            return dw_group_say(why, DW_ERR_TIMEOUT,
                                "group %u: rank %u did not open it within %u ms; do all ranks open "
                                "the same ids?",
                                group->id, missing->rank, group->open_timeout_ms);
        send_hello_again(group, &notified_ns);
        bool has_come;
        status = hear(group, missing, left_ms < SLICE_MS ? (int)left_ms : SLICE_MS, &has_come, why);
        if (status != DW_OK) return status;
    }
}

dw_status dw_handshake_run(dw_group *group, dw_why *why)
{
    dw_status status = exchange(group, why);
    for (uint32_t r = 0; r < group->ranks && status == DW_OK; r++) {
        dw_peer *peer = &group->peers[r];
        peer->seal_seed = dw_message_seed(group->nonce, peer->nonce, group->rank);
        peer->open_seed = dw_message_seed(peer->nonce, group->nonce, r);
    }
    if (status == DW_OK) dw_coders_agree(group);
    /* The others should not wait for this rank. */
    for (uint32_t r = 0; r < group->ranks && status != DW_OK; r++) {
        dw_message head = {.kind = DW_MESSAGE_REFUSE, .slot = (uint64_t)(int64_t)status};
        if (group->peers[r].link)
            dw_peer_notify(&group->peers[r], &head, why->text, strlen(why->text));
    }
    return status;
}
