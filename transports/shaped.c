/* SPDX-License-Identifier: Apache-2.0
 * shaped.c - a slow wire in front of any backend: "shaped:rate=100mbit,delay=20ms/tcp://host:7000".
 *
 * Each sender shapes what it sends. A message's last byte leaves at start + bits / rate, where start is
 * when the one before it left, or now if the wire is idle; it arrives delay later. Times are carried
 * forward from message to message and never from the clock while there is work, so that a thread that
 * wakes late delays a message but does not slow the wire. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends.h"
#include "report.h"

/* A send is answered as soon as its last byte leaves within this time: while there is work, the next
 * message is here before the wire falls idle, even if the thread oversleeps by as much. */
static const double lookahead_ns = 50e6;

/* Messages on their way are copies; past this many bytes (and what the wire itself holds) sends wait. */
static const double least_pipe_bytes = 64 << 20;

/* A message that should have arrived so long ago means that the backend behind is the slower one. */
static const double overdue_ns = 1e9;

typedef struct parcel {
    struct parcel *next;
    size_t len;
    uint32_t size_class; /* has room for 256 << size_class bytes */
    double due_ns; /* since open: when to hand it on */
    _Alignas(16) unsigned char data[];
} parcel;

typedef struct shaped_request {
    int sends;
    size_t len;
    double leaves_ns; /* of a send: its last byte */
} shaped_request;

enum { PARCEL_CLASSES = 48 };

typedef struct shaped_endpoint {
    const dw_transport *inner;
    void *inner_end, *inner_send, *inner_recv;
    int inner_open, inner_sending;
    int64_t opened_ns;
    double ns_per_byte, delay_ns, pipe_bytes_max;
    double free_ns;                /* when the last byte of all so far leaves */
    uint64_t base_bytes, shaped_bytes;
    parcel *head, *tail;           /* on the way, oldest first */
    parcel *unused[PARCEL_CLASSES];
    uint64_t pipe_bytes;
    const shaped_request *sending; /* not answered yet */
    dw_status status;              /* of the way out, once it has failed */
    dw_why why;
    uint32_t framing_bytes;
} shaped_endpoint;

static double now_of(const shaped_endpoint *end)
{
    return (double)(dw_link_now_ns() - end->opened_ns);
}

/* ---- Words ------------------------------------------------------------------------------------ */

typedef struct unit {
    const char *name;
    double factor;
} unit;

static const unit rate_units[] = {{"bit", 1}, {"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}, {NULL, 0}};
static const unit time_units[] = {{"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {NULL, 0}};

/* "1.5mbit": digits, perhaps a point and more digits (whatever the locale), a unit. 0: not that. */
static int read_quantity(const char *text, size_t len, const unit *units, double *value)
{
    size_t i = 0, digits = 0;
    double number = 0, scale = 1;
    int past_point = 0;
    for (; i < len && (text[i] == '.' || (text[i] >= '0' && text[i] <= '9')); i++) {
        if (text[i] == '.') {
            if (past_point++) return 0;
            continue;
        }
        number = number * 10 + (text[i] - '0');
        if (past_point) scale *= 10;
        digits++;
    }
    if (digits == 0 || digits > 15) return 0;
    for (; units->name; units++) {
        if (strlen(units->name) == len - i && memcmp(units->name, text + i, len - i) == 0) {
            *value = number / scale * units->factor;
            return 1;
        }
    }
    return 0;
}

static dw_status blame(const dw_transport_open *how, const char *word, size_t len, const char *advice)
{
    return dw_link_report_at(how->why, DW_ERR_CONFIG, (int)(word - how->address), "'%.*s': %s",
                             len > 60 ? 60 : (int)len, word, advice);
}

static dw_status read_word(shaped_endpoint *end, const dw_transport_open *how, const char *word, size_t len)
{
    static const double most_bits = 1e12, most_delay_ns = 3600e9;
    double value;
    if (len > 5 && memcmp(word, "rate=", 5) == 0) {
        if (end->ns_per_byte > 0) return blame(how, word, len, "the rate is given twice");
        if (!read_quantity(word + 5, len - 5, rate_units, &value) || value < 1 || value > most_bits) {
            return blame(how, word + 5, len - 5, "write a rate from 1bit to 1000gbit (per second), as 100mbit");
        }
        end->ns_per_byte = 8e9 / value;
        return DW_OK;
    }
    if (len > 6 && memcmp(word, "delay=", 6) == 0) {
        if (end->delay_ns >= 0) return blame(how, word, len, "the delay is given twice");
        if (!read_quantity(word + 6, len - 6, time_units, &value) || value > most_delay_ns) {
            return blame(how, word + 6, len - 6, "write a delay from 0ms to 3600s, as 20ms or 1.5ms");
        }
        end->delay_ns = value;
        return DW_OK;
    }
    return blame(how, word, len, "a shaped link knows rate=100mbit and delay=20ms");
}

/* Reads up to the slash; *inner_uri is what follows it. */
static dw_status read_words(shaped_endpoint *end, const dw_transport_open *how, const char **inner_uri)
{
    const char *slash = strchr(how->address, '/');
    if (!slash || slash[1] == '\0' || slash[1] == '/') {
        return dw_link_report_at(how->why, DW_ERR_CONFIG, 0, "'%.80s' does not say what to shape; write "
                                 "shaped:rate=100mbit,delay=20ms/tcp://host:port", how->address);
    }
    end->ns_per_byte = 0;
    end->delay_ns = -1;
    const char *word = how->address;
    while (word <= slash) {
        const size_t len = strcspn(word, ",/");
        const dw_status status = read_word(end, how, word, len);
        if (status != DW_OK) return status;
        word += len + 1;
    }
    if (end->delay_ns < 0) end->delay_ns = 0;
    *inner_uri = slash + 1;
    return DW_OK;
}

/* ---- Open and close --------------------------------------------------------------------------- */

typedef struct announcement {
    const dw_transport_open *how;
    const char *inner_uri;
} announcement;

/* What the peer is to dial is shaped as well. */
static void announce(void *context, const char *inner_uri)
{
    const announcement *to = context;
    char uri[512];
    snprintf(uri, sizeof uri, "shaped:%.*s%s", (int)(to->inner_uri - to->how->address), to->how->address,
             inner_uri);
    to->how->on_listening(to->how->listening_context, uri);
}

static void free_parcels(parcel *list)
{
    while (list) {
        parcel *next = list->next;
        free(list);
        list = next;
    }
}

static dw_status shaped_close(void *context)
{
    shaped_endpoint *end = context;
    const dw_status closed = end->inner_open ? end->inner->close(end->inner_end) : DW_OK;
    if (closed == DW_PENDING && end->inner_sending) end->head = end->head->next; /* lost: it may still be read */
    free(end->inner_end);
    free(end->inner_send);
    free(end->inner_recv);
    free_parcels(end->head);
    for (int i = 0; i < PARCEL_CLASSES; i++) free_parcels(end->unused[i]);
    return closed;
}

static dw_status open_inner(shaped_endpoint *end, const dw_transport_open *how, const char *inner_uri)
{
    announcement to = {.how = how, .inner_uri = inner_uri};
    dw_transport_open inner_how = *how;
    inner_how.on_listening = announce;
    inner_how.listening_context = &to;
    end->inner = how->find(how->find_context, inner_uri, &inner_how.address);
    if (!end->inner) {
        return dw_link_report_at(how->why, DW_ERR_UNSUPPORTED, (int)(inner_uri - how->address),
                                 "there is no transport for '%.80s' to shape", inner_uri);
    }
    end->inner_end = calloc(1, end->inner->endpoint_bytes);
    end->inner_send = calloc(1, end->inner->request_bytes);
    end->inner_recv = calloc(1, end->inner->request_bytes);
    if (!end->inner_end || !end->inner_send || !end->inner_recv) {
        return dw_link_report(how->why, DW_ERR_NO_MEMORY, "no memory for a shaped link");
    }
    const dw_status status = end->inner->open(end->inner_end, &inner_how);
    if (status != DW_OK) {
        if (how->why->offset >= 0) how->why->offset += (int)(inner_how.address - how->address);
        return status;
    }
    end->inner_open = 1;
    return DW_OK;
}

static dw_status shaped_open(void *context, const dw_transport_open *how)
{
    shaped_endpoint *end = context;
    const char *inner_uri = NULL;
    dw_status status = read_words(end, how, &inner_uri);
    if (status != DW_OK) return status;
    status = open_inner(end, how, inner_uri);
    if (status != DW_OK) {
        shaped_close(end);
        return status;
    }
    dw_transport_caps caps = {.wait_fd = -1};
    end->inner->caps(end->inner_end, &caps);
    end->base_bytes = caps.wire_sent;
    end->framing_bytes = caps.framing_bytes;
    end->opened_ns = dw_link_now_ns();
    end->pipe_bytes_max = least_pipe_bytes;
    if (end->ns_per_byte > 0) end->pipe_bytes_max += (lookahead_ns + end->delay_ns) / end->ns_per_byte;
    return DW_OK;
}

/* ---- The wire --------------------------------------------------------------------------------- */

static parcel *take_parcel(shaped_endpoint *end, size_t len)
{
    uint32_t size_class = 0;
    while (size_class < PARCEL_CLASSES && (UINT64_C(256) << size_class) < len) size_class++;
    if (size_class == PARCEL_CLASSES) return NULL;
    parcel *found = end->unused[size_class];
    if (found) {
        end->unused[size_class] = found->next;
        return found;
    }
    found = malloc(sizeof *found + ((size_t)256 << size_class));
    if (found) found->size_class = size_class;
    return found;
}

/* Hands on what is due. */
static void pump(shaped_endpoint *end)
{
    const double now = now_of(end);
    while (end->status == DW_OK && end->head) {
        if (!end->inner_sending) {
            if (end->head->due_ns > now) return;
            memset(end->inner_send, 0, end->inner->request_bytes);
            end->status = end->inner->send(end->inner_end, end->inner_send, end->head->data, end->head->len);
            if (end->status != DW_OK) return;
            end->inner_sending = 1;
        }
        size_t len;
        const dw_status status = end->inner->test(end->inner_end, end->inner_send, &len, &end->why);
        if (status == DW_PENDING) return;
        end->status = status;
        if (status != DW_OK) return;
        parcel *sent = end->head;
        end->inner_sending = 0;
        end->head = sent->next;
        if (!end->head) end->tail = NULL;
        end->pipe_bytes -= sent->len;
        sent->next = end->unused[sent->size_class];
        end->unused[sent->size_class] = sent;
    }
}

static dw_status shaped_send(void *context, void *request_room, const void *data, size_t len)
{
    shaped_endpoint *end = context;
    shaped_request *request = request_room;
    parcel *added = take_parcel(end, len);
    if (!added) return DW_ERR_NO_MEMORY;
    memcpy(added->data, data, len);
    added->len = len;
    added->next = NULL;
    const double now = now_of(end);
    const uint64_t wire_bytes = (uint64_t)len + end->framing_bytes;
    if (end->free_ns < now) end->free_ns = now;
    end->free_ns += (double)wire_bytes * end->ns_per_byte;
    end->shaped_bytes += wire_bytes;
    added->due_ns = end->free_ns + end->delay_ns;
    if (end->tail) end->tail->next = added;
    else end->head = added;
    end->tail = added;
    end->pipe_bytes += len;
    *request = (shaped_request){.sends = 1, .len = len, .leaves_ns = end->free_ns};
    end->sending = request;
    return DW_OK;
}

static dw_status shaped_recv(void *context, void *request_room, void *room, size_t cap)
{
    shaped_endpoint *end = context;
    shaped_request *request = request_room;
    *request = (shaped_request){.sends = 0};
    memset(end->inner_recv, 0, end->inner->request_bytes);
    return end->inner->recv(end->inner_end, end->inner_recv, room, cap);
}

static int may_answer(const shaped_endpoint *end, double now)
{
    if (end->sending->leaves_ns - now > lookahead_ns) return 0;
    if (end->head && now - end->head->due_ns > overdue_ns) return 0;
    return !end->head || end->head == end->tail || (double)end->pipe_bytes <= end->pipe_bytes_max;
}

static dw_status shaped_test(void *context, void *request_room, size_t *len, dw_why *why)
{
    shaped_endpoint *end = context;
    const shaped_request *request = request_room;
    pump(end);
    if (!request->sends) {
        const dw_status received = end->inner->test(end->inner_end, end->inner_recv, len, why);
        if (received != DW_PENDING || end->status == DW_OK) return received;
    }
    if (end->status != DW_OK) {
        *why = end->why;
        return end->status;
    }
    if (!may_answer(end, now_of(end))) return DW_PENDING;
    *len = request->len;
    end->sending = NULL;
    return DW_OK;
}

static void shaped_caps(void *context, dw_transport_caps *caps)
{
    const shaped_endpoint *end = context;
    end->inner->caps(end->inner_end, caps);
    const double now = now_of(end);
    double wake = -1;
    if (end->head && !end->inner_sending) wake = end->head->due_ns - now;
    if (end->sending && end->sending->leaves_ns - lookahead_ns > now) {
        const double answer = end->sending->leaves_ns - lookahead_ns - now;
        if (wake < 0 || answer < wake) wake = answer;
    }
    if (end->head && !end->inner_sending && wake < 0) wake = 0;
    if (wake >= 0 && (caps->wake_ns < 0 || wake < (double)caps->wake_ns)) caps->wake_ns = (int64_t)wake;
    /* What has left the sender, to the byte: a timeout looks whether this grows. */
    const double left_ns = end->free_ns - now;
    const uint64_t to_leave = left_ns > 0 && end->ns_per_byte > 0 ? (uint64_t)(left_ns / end->ns_per_byte) : 0;
    caps->wire_sent = end->base_bytes + end->shaped_bytes - to_leave;
}

const dw_transport dw_transport_shaped = {
    .scheme = "shaped",
    .endpoint_bytes = sizeof(shaped_endpoint),
    .request_bytes = sizeof(shaped_request),
    .open = shaped_open,
    .close = shaped_close,
    .send = shaped_send,
    .recv = shaped_recv,
    .test = shaped_test,
    .caps = shaped_caps,
};
