/* SPDX-License-Identifier: Apache-2.0
 * rate.c - measures the rate and the delay of a link, by questions and answers.
 *
 * One end asks, and the other end answers. A question is a message of at least 16 bytes: the text
 * "DWRATE", two bytes of zero, and the length that the answer shall have, as a little-endian number
 * of 64 bits. The bytes behind these 16 have no meaning; they make the question as long as the
 * measurement needs it. The answer is a message of the length that was asked for, whose content has
 * no meaning. A question with the length 0 gets no answer: it says that the asking end is done. */
#include "rate.h"

#include <endian.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "complain.h"

/* | TAG     | the tag of all messages                                       |
 * | HEAD    | how many bytes of a question have a meaning                   |
 * | PINGS   | how many round trips of the shortest messages are measured    |
 * | LEAST   | the length of the first message with which a rate is measured |
 * | MOST    | the length of the longest message                             |
 * | LOOK_MS | after how long a wait looks whether it has to end             | */
enum { TAG = 1, HEAD = 16, PINGS = 10, LEAST = 1 << 12, MOST = 1 << 26, LOOK_MS = 20 };
static const char magic[8] = "DWRATE";
/* The rate is measured with messages of growing length, until one takes so many seconds. */
static const double LONG_S = 0.4;

/* Opens the link, of which this end is `role`. Under TLS the listening end is called rank/0, and
 * the connecting end rank/1. */
static dw_status open_link(dw_link **link, dw_link_role role, const dw_rate_end *end, dw_why *why)
{
    dw_tls_options tls = {0};
    if (end->tls) tls = *end->tls;
    tls.own_name = role == DW_LINK_LISTEN ? "rank/0" : "rank/1";
    tls.peer_name = role == DW_LINK_LISTEN ? "rank/1" : "rank/0";
    dw_link_options options = {.struct_size = sizeof options,
                               .role = role,
                               .open_timeout_ms = end->timeout_ms,
                               .peer_timeout_ms = end->timeout_ms,
                               .max_message_bytes = MOST,
                               .max_queued_bytes = 2 * (uint64_t)MOST,
                               .on_listening = end->on_listening,
                               .cancelled = end->cancelled,
                               .tls = end->tls ? &tls : NULL,
                               .insecure_plaintext = end->insecure_plaintext};
    return dw_link_open(link, end->uri, &options, why);
}

/* Returns whether the program was asked to stop. */
static bool is_stopped(const dw_rate_end *end)
{
    return end->cancelled && __atomic_load_n(end->cancelled, __ATOMIC_RELAXED);
}

/* Returns how many seconds the other end may be silent. */
static double patience_of(const dw_rate_end *end)
{
    return end->timeout_ms ? end->timeout_ms * 1e-3 : 60;
}

/* The other end was silent for too long. */
static dw_status late(dw_link_role role, double limit_s, dw_why *why)
{
    if (role == DW_LINK_CONNECT)
        return dw_say(why, DW_ERR_TIMEOUT,
                      "the other end did not answer within %g s; does `deltawire advise --listen' "
                      "run there?",
                      limit_s);
    return dw_say(why, DW_ERR_TIMEOUT,
                  "the other end asked nothing for %g s; does `deltawire advise --connect' run "
                  "there?",
                  limit_s);
}

/* Returns how many bytes have come over the link. */
static uint64_t arrived(dw_link *link)
{
    dw_link_counters counters = {.struct_size = sizeof counters};
    dw_link_count(link, &counters);
    return counters.bytes_received;
}

/* Waits for the next message. A long one takes long on a slow link, so the time counts from when
 * bytes were last seen to arrive, or were still on their way to the other end; that it takes none
 * of them is an error of the link. role: of this end. Sets *data and *len to the message, which the
 * caller releases. Errors: TIMEOUT, CANCELLED, and those of the link. */
static dw_status next(dw_link *link, dw_link_role role, const dw_rate_end *end, void **data,
                      size_t *len, dw_why *why)
{
    dw_status status;
    double begin = dw_now_s(), limit_s = patience_of(end);
    uint64_t before = 0;
    while ((status = dw_link_recv(link, TAG, LOOK_MS, data, len)) == DW_PENDING) {
        uint64_t now = arrived(link);
        if (is_stopped(end)) return dw_say(why, DW_ERR_CANCELLED, "stopped while measuring");
        if (now != before || dw_link_flush(link, 0) == DW_PENDING) begin = dw_now_s();
        if (dw_now_s() - begin > limit_s) return late(role, limit_s, why);
        before = now;
    }
    return status < 0 ? dw_say(why, status, "%s", dw_link_why(link)) : DW_OK;
}

/* Asks one question: sends a message of `sent` bytes, which asks for `wanted` bytes, and waits for
 * them unless `wanted` is 0. `room` is memory of MOST bytes for the question. Sets *seconds to the
 * time from sending to receiving. Errors: PROTOCOL if the answer has another length, and those of
 * next. */
static dw_status question(dw_link *link, const dw_rate_end *end, uint8_t *room, size_t sent,
                          size_t wanted, double *seconds, dw_why *why)
{
    uint64_t number = htole64(wanted);
    void *data = NULL;
    size_t len = 0;
    memcpy(room, magic, sizeof magic);
    memcpy(room + sizeof magic, &number, sizeof number);
    double begin = dw_now_s();
    dw_status status = dw_link_send(link, TAG, room, sent);
    if (status < 0) return dw_say(why, status, "%s", dw_link_why(link));
    if (!wanted) return DW_OK;
    status = next(link, DW_LINK_CONNECT, end, &data, &len, why);
    *seconds = dw_now_s() - begin;
    if (status < 0) return status;
    dw_link_release(link, data);
    if (len == wanted) return DW_OK;
    return dw_say(why, DW_ERR_PROTOCOL,
                  "the other end answered with %zu bytes in place of %zu; does `deltawire advise "
                  "--listen' run there?",
                  len, wanted);
}

/* Measures the rate in one direction. Sends longer and longer messages, as questions if `forward`
 * and as answers otherwise, until one takes LONG_S. The message in the other direction is as short
 * as possible. `round_trip` is the time that the shortest messages take. Sets *rate to bytes per
 * second. */
static dw_status measure(dw_link *link, const dw_rate_end *end, uint8_t *room, bool forward,
                         double round_trip, double *rate, dw_why *why)
{
    for (size_t len = LEAST; len <= MOST; len *= 2) {
        double seconds = 0;
        dw_status status =
            question(link, end, room, forward ? len : HEAD, forward ? HEAD : len, &seconds, why);
        if (status < 0) return status;
        /* Only the time beyond the round trip is the time of sending. If the round trip is nearly
         * all of it, that difference is too inexact, so it is at least a 16th of the time. */
        seconds = fmax(seconds - round_trip, seconds / 16);
        *rate = (double)len / fmax(seconds, 1e-9);
        if (seconds >= LONG_S) break;
    }
    return DW_OK;
}

dw_status dw_rate_ask(dw_forecast_run *run, const dw_rate_end *end, dw_why *why)
{
    dw_link *link = NULL;
    double round_trip = 1e9, seconds = 0;
    uint8_t *room = calloc(1, MOST);
    if (!room) return dw_say(why, DW_ERR_NO_MEMORY, "out of memory for messages to measure with");
    dw_status status = open_link(&link, DW_LINK_CONNECT, end, why);
    for (int i = 0; i < PINGS && status == DW_OK; i++) {
        status = question(link, end, room, HEAD, HEAD, &seconds, why);
        if (seconds < round_trip) round_trip = seconds;
    }
    for (int way = 0; way < DW_FORECAST_WAYS && status == DW_OK; way++)
        status =
            measure(link, end, room, way == DW_FORECAST_FORWARD, round_trip, &run->rate[way], why);
    run->delay_s = round_trip / 2;
    if (status == DW_OK) status = question(link, end, room, HEAD, 0, &seconds, why);
    if (link) dw_link_close(link);
    free(room);
    return status;
}

/* Waits for a question and answers it. Sets *wanted to the length that was asked for; 0 means that
 * the other end is done. `room` has the bytes of answers. Errors: TIMEOUT if no question comes;
 * PROTOCOL if the message is not a question; and those of the link. */
static dw_status answer(dw_link *link, const dw_rate_end *end, uint8_t *room, uint64_t *wanted,
                        dw_why *why)
{
    void *data = NULL;
    size_t len = 0;
    dw_status status = next(link, DW_LINK_LISTEN, end, &data, &len, why);
    if (status < 0) return status;
    bool is_question = len >= HEAD && !memcmp(data, magic, sizeof magic);
    if (is_question) memcpy(wanted, (uint8_t *)data + sizeof magic, sizeof *wanted);
    *wanted = le64toh(*wanted);
    dw_link_release(link, data);
    if (!is_question || *wanted > MOST)
        return dw_say(why, DW_ERR_PROTOCOL,
                      "the other end asked for nothing that is known here; does `deltawire "
                      "advise --connect' run there?");
    if (!*wanted) return DW_OK;
    status = dw_link_send(link, TAG, room, *wanted);
    if (status == DW_PENDING)
        return dw_say(why, DW_ERR_PROTOCOL, "the other end asks, but reads no answers");
    return status < 0 ? dw_say(why, status, "%s", dw_link_why(link)) : DW_OK;
}

dw_status dw_rate_serve(const dw_rate_end *end, dw_why *why)
{
    dw_link *link = NULL;
    uint64_t wanted = 1;
    uint8_t *room = calloc(1, MOST);
    if (!room) return dw_say(why, DW_ERR_NO_MEMORY, "out of memory for messages to measure with");
    dw_status status = open_link(&link, DW_LINK_LISTEN, end, why);
    while (status == DW_OK && wanted) status = answer(link, end, room, &wanted, why);
    if (link) dw_link_close(link);
    free(room);
    return status;
}
