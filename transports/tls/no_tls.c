/* SPDX-License-Identifier: Apache-2.0
 * no_tls.c - TLS in a build without OpenSSL: an error, never a link that silently lacks TLS. */
#include <string.h>

#include "common/report.h"
#include "tls/tls.h"

dw_status dw_tls_context_create(dw_tls_context **context, const dw_tls_options *options,
                                dw_link_role role, const dw_allocator *allocator, dw_why *why)
{
    (void)options;
    (void)role;
    (void)allocator;
    *context = NULL;
    return dw_say(why, DW_ERR_UNSUPPORTED,
                  "this build of deltawire has no TLS; build it with OpenSSL 3.0 or later "
                  "(-Dtls=enabled), or use a network that you trust and insecure_plaintext");
}

/* The functions below are never called, because no context is ever created. */

void dw_tls_context_destroy(dw_tls_context *context)
{
    (void)context;
}

dw_status dw_tls_cover(dw_stream *stream, dw_tls_context *context, int64_t deadline_ns)
{
    (void)stream;
    (void)context;
    (void)deadline_ns;
    return DW_ERR_UNSUPPORTED;
}

dw_status dw_tls_shake(dw_stream *stream)
{
    (void)stream;
    return DW_ERR_UNSUPPORTED;
}

void dw_tls_session(const dw_stream *stream, unsigned char session[DW_TLS_SESSION_BYTES])
{
    (void)stream;
    memset(session, 0, DW_TLS_SESSION_BYTES);
}

const char *dw_tls_peer_name(const dw_stream *stream)
{
    (void)stream;
    return "";
}
