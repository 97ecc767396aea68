/* SPDX-License-Identifier: Apache-2.0
 * tls_stream.c - one connection under TLS: handshake, records, key updates, close. */
#include "tls/tls.h"

#include <errno.h>
#include <openssl/err.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "common/report.h"
#include "tls/tls_error.h"
#include "tls/tls_gate.h"
#include "tls/tls_state.h"

enum { RECORD_BYTES = SSL3_RT_MAX_PLAIN_LENGTH };

/* Records read or written in one call, so that the other direction gets its turn. */
enum { RECORDS_PER_CALL = 16 };

static const char session_label[] = "EXPORTER-deltawire-session";

/* The listener's first record. In TLS 1.3 the listener checks the dialler last; only this record
 * tells the dialler that it was accepted. */
static const unsigned char welcome = 'W';

static const dw_stream_cover cover;

static dw_tls *of(const dw_stream *stream)
{
    return stream->inside;
}

/* ---- Sentences for errors -------------------------------------------------------------------- */

typedef struct phrase {
    /* OpenSSL's reason; for an alert from the peer: SSL_AD_REASON_OFFSET + its number */
    int reason;
    const char *text;
} phrase;

static const phrase phrases[] = {
    {SSL_R_WRONG_VERSION_NUMBER,
     "does not speak TLS; is its link without a key, or is it another program?"},
    {SSL_R_HTTP_REQUEST,
     "does not speak TLS; is its link without a key, or is it another program?"},
    {SSL_R_UNSUPPORTED_PROTOCOL, "offers no TLS 1.3"},
    {SSL_R_BINDER_DOES_NOT_VERIFY,
     "holds another group key, or other names (own_name, peer_name) than this end expects"},
    {SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE, "shows no certificate"},
    {SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC,
     "sent a record that was changed on the way, or is not from it"},
    {SSL_R_UNEXPECTED_EOF_WHILE_READING,
     "is cut off: the connection ended without TLS's close_notify"},
    {SSL_AD_REASON_OFFSET + SSL_AD_ILLEGAL_PARAMETER,
     "turns us away: it holds another group key, or expects other names"},
    {SSL_AD_REASON_OFFSET + SSL_AD_HANDSHAKE_FAILURE,
     "turns us away: it expects another name, or a certificate where we have a group key, or the "
     "other way round"},
    {SSL_AD_REASON_OFFSET + SSL_AD_CERTIFICATE_REQUIRED,
     "turns us away: it requires a certificate"},
    {SSL_AD_REASON_OFFSET + SSL_AD_UNKNOWN_CA,
     "turns us away: our certificate is from a CA that it does not know"},
    {SSL_AD_REASON_OFFSET + SSL_AD_CERTIFICATE_EXPIRED,
     "turns us away: our certificate has expired"},
    {SSL_AD_REASON_OFFSET + SSL_AD_UNSUPPORTED_CERTIFICATE,
     "turns us away: our certificate is for another purpose"},
    {SSL_AD_REASON_OFFSET + SSL_AD_BAD_CERTIFICATE,
     "turns us away: our certificate is not valid (perhaps not yet?)"},
    {SSL_AD_REASON_OFFSET + SSL_AD_PROTOCOL_VERSION, "turns us away: it offers no TLS 1.3"}};

static void explain_certificate(dw_stream *stream, long verdict)
{
    const dw_tls *tls = of(stream);
    if (verdict != X509_V_ERR_APPLICATION_VERIFICATION) {
        snprintf(stream->text, sizeof stream->text, "shows a certificate that is not valid: %s",
                 X509_verify_cert_error_string(verdict));
    } else if (!tls->peer_name[0]) {
        snprintf(stream->text, sizeof stream->text,
                 "shows a certificate that names no end (it has no URI deltawire:NAME)");
    } else {
        snprintf(stream->text, sizeof stream->text, "is %.63s by its certificate, not %.63s",
                 tls->peer_name, tls->context->peer_name);
    }
}

static void explain(dw_stream *stream, const char *doing)
{
    const dw_tls *tls = of(stream);
    int reason = ERR_GET_REASON(ERR_peek_last_error());
    long verdict = SSL_get_verify_result(tls->ssl);
    stream->error = tls->error;
    if (tls->error) {
        snprintf(stream->text, sizeof stream->text, "broke the connection (%s)",
                 strerror(tls->error));
        return;
    }
    if (tls->said_too_much) {
        snprintf(stream->text, sizeof stream->text,
                 "sent more than %d bytes before it was authenticated", DW_TLS_UNPROVEN_BYTES);
        return;
    }
    if (!tls->context->uses_group_key && reason == SSL_R_CERTIFICATE_VERIFY_FAILED) {
        explain_certificate(stream, verdict);
        return;
    }
    for (size_t i = 0; i < sizeof phrases / sizeof *phrases; i++) {
        if (phrases[i].reason != reason) continue;
        snprintf(stream->text, sizeof stream->text, "%s", phrases[i].text);
        return;
    }
    snprintf(stream->text, sizeof stream->text, "%s (%s)", doing, dw_tls_last_error());
}

/* ---- Handshake ------------------------------------------------------------------------------- */

static dw_status put_over(dw_stream *stream, dw_tls_context *context, int64_t deadline_ns)
{
    const dw_allocator *allocator = &context->allocator;
    dw_tls *tls = dw_mem_allocate_zeroed(allocator, 1, sizeof *tls);
    BIO *socket = BIO_new(context->socket);
    if (tls) {
        *tls = (dw_tls){
            .context = context, .fd = stream->fd, .deadline_ns = deadline_ns, .wants = POLLOUT};
        tls->ssl = SSL_new(context->ssl);
        tls->joined = dw_mem_allocate(allocator, RECORD_BYTES);
    }
    if (!tls || !socket || !tls->ssl || !tls->joined) {
        BIO_free(socket);
        if (tls) SSL_free(tls->ssl);
        if (tls) dw_mem_release(allocator, tls->joined, RECORD_BYTES);
        dw_mem_release(allocator, tls, sizeof *tls);
        return DW_ERR_NO_MEMORY;
    }
    BIO_set_data(socket, tls);
    SSL_set_bio(tls->ssl, socket, socket);
    SSL_set_app_data(tls->ssl, tls);
    if (context->role == DW_LINK_LISTEN) {
        tls->wants = POLLIN;
        SSL_set_accept_state(tls->ssl);
    } else {
        memcpy(tls->peer_name, context->peer_name, sizeof tls->peer_name);
        SSL_set_connect_state(tls->ssl);
    }
    stream->inside = tls;
    stream->cover = &cover;
    stream->text[0] = '\0';
    return DW_OK;
}

dw_status dw_tls_cover(dw_stream *stream, dw_tls_context *context, int64_t deadline_ns)
{
    if (!dw_tls_enter()) return DW_ERR_CANCELLED;
    dw_status status = put_over(stream, context, deadline_ns);
    dw_tls_leave();
    return status;
}

/* OpenSSL can complete handshakes in which the peer is not authenticated. All of them are refused
 * here. */
static bool is_who_it_must_be(const dw_tls *tls)
{
    if (SSL_version(tls->ssl) != TLS1_3_VERSION || !tls->peer_name[0]) return false;
    if (tls->context->uses_group_key) return SSL_session_reused(tls->ssl) == 1;
    return SSL_session_reused(tls->ssl) == 0 && SSL_get0_peer_certificate(tls->ssl) != NULL &&
           SSL_get_verify_result(tls->ssl) == X509_V_OK;
}

static dw_status refuse(dw_stream *stream, dw_status status, const char *text)
{
    of(stream)->is_broken = true;
    if (text) snprintf(stream->text, sizeof stream->text, "%s", text);
    return status;
}

/* Translates a failed call of OpenSSL into the result of the handshake. */
static dw_status status_of(dw_stream *stream, int result)
{
    dw_tls *tls = of(stream);
    int error = SSL_get_error(tls->ssl, result);
    tls->wants = error == SSL_ERROR_WANT_WRITE ? POLLOUT : POLLIN;
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) {
        if (dw_now_ns() < tls->deadline_ns) return DW_PENDING;
        return refuse(stream, DW_ERR_TIMEOUT, "was not authenticated in time");
    }
    if (tls->has_eof) return refuse(stream, DW_ERR_PEER, "hung up before it was authenticated");
    explain(stream, "failed in the TLS handshake");
    return refuse(stream, tls->error ? DW_ERR_PEER : DW_ERR_AUTH, NULL);
}

static dw_status shake(dw_stream *stream)
{
    dw_tls *tls = of(stream);
    bool listens = tls->context->role == DW_LINK_LISTEN;
    unsigned char said = 0;
    int result = 1;
    if (tls->is_proven) return DW_OK;
    ERR_clear_error();
    if (!tls->is_shaken) {
        result = SSL_do_handshake(tls->ssl);
        if (result != 1) return status_of(stream, result);
        if (!is_who_it_must_be(tls))
            return refuse(stream, DW_ERR_AUTH,
                          "completed the TLS handshake without being authenticated");
        tls->is_shaken = true;
    }
    result = listens ? SSL_write(tls->ssl, &welcome, 1) : SSL_read(tls->ssl, &said, 1);
    if (result != 1) return status_of(stream, result);
    if (!listens && said != welcome)
        return refuse(stream, DW_ERR_AUTH, "speaks another protocol under TLS");
    tls->is_proven = true;
    /* Read-ahead begins only after the handshake. During the handshake it could also read the
     * records that follow, and they would count towards the limit for peers that are not
     * authenticated. */
    SSL_set_read_ahead(tls->ssl, 1);
    return DW_OK;
}

dw_status dw_tls_shake(dw_stream *stream)
{
    if (!dw_tls_enter()) return refuse(stream, DW_ERR_CANCELLED, DW_TLS_SHUT);
    dw_status status = shake(stream);
    dw_tls_leave();
    return status;
}

void dw_tls_session(const dw_stream *stream, unsigned char session[DW_TLS_SESSION_BYTES])
{
    memset(session, 0, DW_TLS_SESSION_BYTES);
    if (!dw_tls_enter()) return;
    SSL_export_keying_material(of(stream)->ssl, session, DW_TLS_SESSION_BYTES, session_label,
                               sizeof session_label - 1, NULL, 0, 0);
    dw_tls_leave();
}

const char *dw_tls_peer_name(const dw_stream *stream)
{
    return of(stream)->peer_name;
}

/* ---- Records --------------------------------------------------------------------------------- */

/* Translates a read or write that transferred nothing. *wants_other: whether a read waits until the
 * socket can be written, or a write until it can be read. */
static ptrdiff_t stop(dw_stream *stream, int result, bool *wants_other)
{
    dw_tls *tls = of(stream);
    int error = SSL_get_error(tls->ssl, result);
    int other = wants_other == &tls->read_wants_write ? SSL_ERROR_WANT_WRITE : SSL_ERROR_WANT_READ;
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) {
        *wants_other = error == other;
        return DW_STREAM_WAIT;
    }
    if (error == SSL_ERROR_ZERO_RETURN) {
        tls->is_ended = true;
        return DW_STREAM_ENDED;
    }
    explain(stream, "violated the TLS protocol");
    tls->is_broken = true;
    return DW_STREAM_BROKEN;
}

static ptrdiff_t break_off(dw_stream *stream)
{
    refuse(stream, DW_ERR_CANCELLED, DW_TLS_SHUT);
    return DW_STREAM_BROKEN;
}

static ptrdiff_t read_inside(dw_stream *stream, void *room, size_t cap)
{
    dw_tls *tls = of(stream);
    size_t total = 0;
    if (tls->is_broken) return DW_STREAM_BROKEN;
    if (tls->is_ended) return DW_STREAM_ENDED;
    tls->read_wants_write = false;
    tls->read_waits = false;
    ERR_clear_error();
    for (int i = 0; i < RECORDS_PER_CALL && total < cap; i++) {
        size_t n = 0;
        int result = SSL_read_ex(tls->ssl, (unsigned char *)room + total, cap - total, &n);
        total += n;
        if (result == 1) continue;
        /* If some bytes were read, the next call returns the end or the error. */
        ptrdiff_t told = stop(stream, result, &tls->read_wants_write);
        tls->read_waits = told == DW_STREAM_WAIT;
        if (total == 0) return told;
        break;
    }
    return (ptrdiff_t)total;
}

static ptrdiff_t read_records(dw_stream *stream, void *room, size_t cap)
{
    if (!dw_tls_enter()) return break_off(stream);
    ptrdiff_t n = read_inside(stream, room, cap);
    dw_tls_leave();
    return n;
}

/* Returns the `take` bytes after the first `skip` bytes of the parts, contiguous in memory. */
static const unsigned char *gather(dw_tls *tls, const struct iovec *parts, int n, size_t skip,
                                   size_t take)
{
    size_t have = 0;
    for (int i = 0; i < n && have < take; i++) {
        size_t begin = skip < parts[i].iov_len ? skip : parts[i].iov_len;
        const unsigned char *from = (const unsigned char *)parts[i].iov_base + begin;
        size_t left = parts[i].iov_len - begin, len = left < take - have ? left : take - have;
        skip -= begin;
        if (len == take) return from;
        if (len > 0) memcpy(tls->joined + have, from, len);
        have += len;
    }
    return tls->joined;
}

static ptrdiff_t write_inside(dw_stream *stream, const struct iovec *parts, int n)
{
    dw_tls *tls = of(stream);
    size_t whole = 0, done = 0;
    if (tls->is_broken) return DW_STREAM_BROKEN;
    for (int i = 0; i < n; i++) whole += parts[i].iov_len;
    tls->write_wants_read = false;
    ERR_clear_error();
    for (int i = 0; i < RECORDS_PER_CALL && done < whole; i++) {
        size_t take = whole - done < RECORD_BYTES ? whole - done : RECORD_BYTES;
        size_t moved = 0;
        if (tls->records >= tls->context->records_per_key && !tls->is_pending) {
            tls->records = 0;
            SSL_key_update(tls->ssl, SSL_KEY_UPDATE_NOT_REQUESTED);
        }
        int result = SSL_write_ex(tls->ssl, gather(tls, parts, n, done, take), take, &moved);
        done += moved;
        tls->is_pending = result != 1;
        tls->records += result == 1;
        if (result == 1) continue;
        ptrdiff_t told = stop(stream, result, &tls->write_wants_read);
        if (done == 0) return told;
        break;
    }
    return (ptrdiff_t)done;
}

static ptrdiff_t write_records(dw_stream *stream, const struct iovec *parts, int n)
{
    if (!dw_tls_enter()) return break_off(stream);
    ptrdiff_t done = write_inside(stream, parts, n);
    dw_tls_leave();
    return done;
}

static int wanted_events(const dw_stream *stream, bool reading, bool writing)
{
    const dw_tls *tls = of(stream);
    if (!tls->is_proven) return tls->wants;
    return (reading ? (tls->read_wants_write ? POLLOUT : POLLIN) : 0) |
           (writing ? (tls->write_wants_read ? POLLIN : POLLOUT) : 0);
}

/* SSL_has_pending also counts an incomplete record, with which nothing can be done yet. So
 * read_waits remembers that the last read found no complete one. */
static bool has_records(const dw_stream *stream)
{
    const dw_tls *tls = of(stream);
    if (tls->is_broken || tls->is_ended)
        return true; /* the caller must read once more to learn of it */
    if (tls->read_waits) return false;
    if (!dw_tls_enter()) return true;
    bool has = SSL_has_pending(tls->ssl);
    dw_tls_leave();
    return has;
}

static void end(dw_stream *stream)
{
    dw_tls *tls = of(stream);
    if (dw_tls_enter()) {
        ERR_clear_error();
        if (tls->is_proven && !tls->is_broken && !tls->is_pending) SSL_shutdown(tls->ssl);
        ERR_clear_error();
        SSL_free(tls->ssl);
        dw_tls_leave();
    }
    OPENSSL_cleanse(tls->joined, RECORD_BYTES);
    dw_mem_release(&tls->context->allocator, tls->joined, RECORD_BYTES);
    dw_mem_release(&tls->context->allocator, tls, sizeof *tls);
    stream->inside = NULL;
}

static const dw_stream_cover cover = {.read = read_records,
                                      .write = write_records,
                                      .events = wanted_events,
                                      .has_more = has_records,
                                      .close = end};
