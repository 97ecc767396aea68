/* SPDX-License-Identifier: Apache-2.0
 * tls_context.c - makes an SSL_CTX of the options: with a group key or with certificates, never
 * with both, and with TLS 1.3 only. */
#include <openssl/err.h>
#include <openssl/pem.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "common/opening.h"
#include "common/report.h"
#include "tls/tls_error.h"
#include "tls/tls_gate.h"
#include "tls/tls_identity.h"
#include "tls/tls_psk.h"
#include "tls/tls_secret.h"
#include "tls/tls_socket.h"

/* AES-GCM is safe for 2^24.5 records of 16 KiB under one key (RFC 8446, 5.5). */
static const uint64_t records_per_key = UINT64_C(1) << 22;

/* The longest chain: our own certificate, one or two intermediate ones, and the CA. */
enum { MOST_ISSUERS = 3 };

/* ---- Certificates ---------------------------------------------------------------------------- */

/* Refuses passphrases. By default OpenSSL would ask for one on the terminal, which the program may
 * not have. */
static int no_passphrase(char *room, int cap, int writes, void *context)
{
    (void)room;
    (void)cap;
    (void)writes;
    (void)context;
    return -1;
}

/* The first certificate in the file is that of this end; the others link it to the CA. */
static bool use_chain(SSL_CTX *ssl, BIO *pem)
{
    X509 *own = PEM_read_bio_X509(pem, NULL, no_passphrase, NULL), *next;
    bool is_good = own && SSL_CTX_use_certificate(ssl, own) == 1;
    X509_free(own);
    while (is_good && (next = PEM_read_bio_X509(pem, NULL, no_passphrase, NULL))) {
        is_good = SSL_CTX_add0_chain_cert(ssl, next) == 1;
        if (!is_good) X509_free(next);
    }
    if (is_good) ERR_clear_error(); /* reaching the end of the file is not an error */
    return is_good;
}

static bool use_key(SSL_CTX *ssl, BIO *pem)
{
    EVP_PKEY *key = PEM_read_bio_PrivateKey(pem, NULL, no_passphrase, NULL);
    /* This also checks that the key belongs to the certificate. */
    bool is_good = key && SSL_CTX_use_PrivateKey(ssl, key) == 1;
    EVP_PKEY_free(key);
    return is_good;
}

static bool use_authorities(SSL_CTX *ssl, BIO *pem)
{
    X509 *authority;
    int n = 0;
    while ((authority = PEM_read_bio_X509(pem, NULL, no_passphrase, NULL))) {
        bool is_added = X509_STORE_add_cert(SSL_CTX_get_cert_store(ssl), authority) == 1;
        X509_free(authority);
        if (!is_added) return false;
        n++;
    }
    if (n > 0) ERR_clear_error();
    return n > 0;
}

typedef struct pem_part {
    const char *what, *file, *pem;
    bool (*use)(SSL_CTX *ssl, BIO *pem);
    bool is_secret;
} pem_part;

static dw_status open_pem(const pem_part *part, BIO **pem, dw_why *why)
{
    const char *place = part->pem ? "memory" : part->file;
    int fd;
    if (part->pem) {
        *pem = BIO_new_mem_buf(part->pem, -1);
    } else if (part->is_secret) {
        dw_status status = dw_tls_open_secret(part->file, part->what, &fd, why);
        if (status != DW_OK) return status;
        *pem = BIO_new_fd(fd, BIO_CLOSE);
        if (!*pem) close(fd);
    } else {
        *pem = BIO_new_file(part->file, "r");
    }
    if (*pem) return DW_OK;
    return dw_say(why, DW_ERR_IO, "cannot read the %s in %.120s: %s", part->what, place,
                  dw_tls_last_error());
}

static dw_status use_pem(SSL_CTX *ssl, const pem_part *part, dw_why *why)
{
    const char *place = part->pem ? "memory" : part->file;
    if (!part->file == !part->pem) {
        return dw_say(why, DW_ERR_ARGUMENT, "certificates need the %s, in a file or in memory%s",
                      part->what, part->file ? ", not in both" : "");
    }
    BIO *pem;
    dw_status status = open_pem(part, &pem, why);
    if (status != DW_OK) return status;
    bool is_good = part->use(ssl, pem);
    BIO_free(pem);
    if (is_good) return DW_OK;
    return dw_say(why, DW_ERR_CONFIG,
                  "the %s in %.100s cannot be used (%s); use PEM without a passphrase, and "
                  "a key that matches the certificate",
                  part->what, place, dw_tls_last_error());
}

static dw_status setup_certificates(dw_tls_context *context, const dw_tls_options *options,
                                    dw_why *why)
{
    pem_part parts[] = {
        {"certificate", options->certificate_file, options->certificate_pem, use_chain, false},
        {"private key", options->key_file, options->key_pem, use_key, true},
        {"CA's certificate", options->ca_file, options->ca_pem, use_authorities, false}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        dw_status status = use_pem(context->ssl, &parts[i], why);
        if (status != DW_OK) return status;
    }
    char name[DW_TLS_NAME_BYTES];
    bool is_named =
        dw_tls_certificate_name(SSL_CTX_get0_certificate(context->ssl), context->own_name, name);
    if (!is_named && !name[0]) {
        return dw_say(why, DW_ERR_CONFIG,
                      "our certificate names no end: it needs a URI deltawire:NAME among its "
                      "subject alternative names");
    }
    if (!is_named) {
        return dw_say(why, DW_ERR_CONFIG, "our certificate is made out for %s, but own_name is %s",
                      name, context->own_name);
    }
    memcpy(context->own_name, name, sizeof name);
    SSL_CTX_set_verify(context->ssl, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT,
                       dw_tls_verify);
    SSL_CTX_set_verify_depth(context->ssl, MOST_ISSUERS);
    return DW_OK;
}

/* ---- The context ----------------------------------------------------------------------------- */

static bool restrict_protocol(SSL_CTX *ssl)
{
    SSL_CTX_set_options(ssl, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_mode(ssl, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_session_cache_mode(ssl, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_max_cert_list(ssl, DW_TLS_UNPROVEN_BYTES);
    return SSL_CTX_set_min_proto_version(ssl, TLS1_3_VERSION) &&
           SSL_CTX_set_max_proto_version(ssl, TLS1_3_VERSION) &&
           SSL_CTX_set_ciphersuites(ssl, "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256") &&
           SSL_CTX_set1_groups_list(ssl, "X25519:P-256") && SSL_CTX_set_num_tickets(ssl, 0) &&
           SSL_CTX_set_max_early_data(ssl, 0) && SSL_CTX_set_recv_max_early_data(ssl, 0);
}

static dw_status take_name(char *room, const char *name, const char *what, dw_why *why)
{
    if (!name) return DW_OK;
    size_t len = strlen(name);
    if (!dw_tls_name_is_valid(name, len)) {
        return dw_say(why, DW_ERR_ARGUMENT,
                      "%s '%.70s' cannot be a name; use 1 to %d letters, digits and ._-/:@+", what,
                      name, DW_TLS_NAME_BYTES - 1);
    }
    memcpy(room, name, len + 1);
    return DW_OK;
}

static dw_status fill_context(dw_tls_context *context, const dw_tls_options *options, dw_why *why)
{
    bool has_group_key = options->group_key || options->group_key_file;
    bool has_certificate = options->certificate_file || options->certificate_pem ||
                           options->key_file || options->key_pem || options->ca_file ||
                           options->ca_pem;
    if (has_group_key == has_certificate) {
        return dw_say(why, DW_ERR_ARGUMENT,
                      "TLS needs a group key or certificates%s; see deltawire/tls.h",
                      has_group_key ? ", not both: either would let a peer in" : "");
    }
    dw_status status = take_name(context->own_name, options->own_name, "own_name", why);
    if (status == DW_OK)
        status = take_name(context->peer_name, options->peer_name, "peer_name", why);
    if (status != DW_OK) return status;
    if (context->role == DW_LINK_CONNECT && !context->peer_name[0]) {
        return dw_say(why, DW_ERR_ARGUMENT,
                      "an end that connects under TLS must name its peer: set peer_name");
    }
    if (context->own_name[0] && strcmp(context->own_name, context->peer_name) == 0) {
        return dw_say(why, DW_ERR_ARGUMENT,
                      "own_name and peer_name are both '%s'; each end needs a name of its own",
                      context->own_name);
    }
    context->ssl = SSL_CTX_new(TLS_method());
    context->socket = dw_tls_socket_method();
    if (!context->ssl || !context->socket)
        return dw_say(why, DW_ERR_NO_MEMORY, "no memory for TLS");
    if (!restrict_protocol(context->ssl)) {
        return dw_say(why, DW_ERR_UNSUPPORTED,
                      "this machine's OpenSSL refuses a setting that TLS 1.3 needs here: %s",
                      dw_tls_last_error());
    }
    context->uses_group_key = has_group_key;
    return has_group_key ? dw_tls_psk_setup(context, options, why)
                         : setup_certificates(context, options, why);
}

dw_status dw_tls_context_create(dw_tls_context **context, const dw_tls_options *options,
                                dw_link_role role, const dw_allocator *allocator, dw_why *why)
{
    *context = NULL;
    dw_tls_options full;
    dw_status status = dw_take_asked(&full, sizeof full, options, "dw_tls_options", why);
    if (status != DW_OK) return status;
    const dw_allocator chosen = dw_mem_allocator(allocator);
    dw_tls_context *made = dw_mem_allocate_zeroed(&chosen, 1, sizeof *made);
    if (!made) return dw_say(why, DW_ERR_NO_MEMORY, "no memory for TLS");
    made->allocator = chosen;
    made->role = role;
    made->records_per_key = records_per_key;
    if (dw_tls_enter()) {
        ERR_clear_error();
        status = fill_context(made, &full, why);
        dw_tls_leave();
    } else {
        status = dw_say(why, DW_ERR_CANCELLED,
                        "TLS cannot begin any more, because this program is ending");
    }
    if (status != DW_OK) {
        dw_tls_context_destroy(made);
        return status;
    }
    *context = made;
    return DW_OK;
}

void dw_tls_context_destroy(dw_tls_context *context)
{
    if (!context) return;
    if (dw_tls_enter()) {
        SSL_CTX_free(context->ssl);
        BIO_meth_free(context->socket);
        /* The thread of a link ends next. What OpenSSL has kept for it is freed here, behind the
         * gate, and not when the thread ends. */
        OPENSSL_thread_stop();
        dw_tls_leave();
    }
    const dw_allocator allocator = context->allocator;
    OPENSSL_cleanse(context, sizeof *context);
    dw_mem_release(&allocator, context, sizeof *context);
}
