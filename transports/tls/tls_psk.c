/* SPDX-License-Identifier: Apache-2.0
 * tls_psk.c - the group key, the keys derived from it for pairs of ends, and the PSK identities
 * that name such a pair.
 *
 * If a whole group used one key, an attacker could reflect a handshake back to the end that began
 * it, or redirect it to a third end (RFC 9257). So each connection uses a key derived for two names
 * in their roles, and an end accepts only identities that contain its own name. */
#include <errno.h>
#include <openssl/core_names.h>
#include <openssl/kdf.h>
#include <openssl/rand.h>
#include <string.h>
#include <unistd.h>

#include "common/report.h"
#include "tls/tls_error.h"
#include "tls/tls_identity.h"
#include "tls/tls_psk.h"
#include "tls/tls_secret.h"

static const char prefix[4] = {'d', 'w', '1', ' '};

/* TLS_AES_128_GCM_SHA256. TLS binds a PSK to the hash of a cipher suite. The other suite that we
 * allow has the same hash. */
static const unsigned char suite[2] = {0x13, 0x01};

/* ---- Keys and identities --------------------------------------------------------------------- */

bool dw_tls_pair_key(const unsigned char *group_key, size_t group_key_bytes, const char *client,
                     const char *server, unsigned char key[DW_TLS_PAIR_KEY_BYTES])
{
    static const char salt[] = "deltawire group key";
    /* The terminating zeros are included, so that the names "a", "bc" and "ab", "c" give different
     * keys. */
    char info[2 * DW_TLS_NAME_BYTES + 1];
    size_t client_len = strlen(client) + 1, server_len = strlen(server) + 1;
    memcpy(info, client, client_len);
    memcpy(info + client_len, server, server_len);
    /* OpenSSL declares these pointers without const, but only reads. */
    OSSL_PARAM parameters[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, (char *)(uintptr_t) "SHA256", 0),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, (void *)(uintptr_t)group_key,
                                          group_key_bytes),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, (void *)(uintptr_t)salt,
                                          sizeof salt - 1),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, info, client_len + server_len),
        OSSL_PARAM_construct_end()};
    EVP_KDF *kdf = EVP_KDF_fetch(NULL, "HKDF", NULL);
    EVP_KDF_CTX *derivation = kdf ? EVP_KDF_CTX_new(kdf) : NULL;
    bool is_made =
        derivation && EVP_KDF_derive(derivation, key, DW_TLS_PAIR_KEY_BYTES, parameters) > 0;
    EVP_KDF_CTX_free(derivation);
    EVP_KDF_free(kdf);
    return is_made;
}

int dw_tls_identity_read(const unsigned char *identity, size_t len, char *client, char *server)
{
    if (len >= DW_TLS_IDENTITY_BYTES || len <= sizeof prefix ||
        memcmp(identity, prefix, sizeof prefix) != 0)
        return -1;
    const char *first = (const char *)identity + sizeof prefix;
    size_t rest = len - sizeof prefix;
    const char *space = memchr(first, ' ', rest);
    if (!space) return -1;
    size_t first_len = (size_t)(space - first), second_len = rest - first_len - 1;
    if (!dw_tls_name_is_valid(first, first_len) || !dw_tls_name_is_valid(space + 1, second_len))
        return -1;
    memcpy(client, first, first_len);
    client[first_len] = '\0';
    memcpy(server, space + 1, second_len);
    server[second_len] = '\0';
    return 0;
}

/* ---- Callbacks of OpenSSL -------------------------------------------------------------------- */

/* OpenSSL takes a PSK in the form of a session to resume. */
static SSL_SESSION *as_session(SSL *ssl, const unsigned char *key)
{
    SSL_SESSION *session = SSL_SESSION_new();
    const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, suite);
    if (session && cipher && SSL_SESSION_set1_master_key(session, key, DW_TLS_PAIR_KEY_BYTES) &&
        SSL_SESSION_set_cipher(session, cipher) &&
        SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION)) {
        return session;
    }
    SSL_SESSION_free(session);
    return NULL;
}

static int give_own_key(SSL *ssl, const EVP_MD *hash, const unsigned char **identity, size_t *len,
                        SSL_SESSION **session)
{
    const dw_tls *tls = SSL_get_app_data(ssl);
    const dw_tls_context *context = tls->context;
    unsigned char key[DW_TLS_PAIR_KEY_BYTES];
    *session = NULL;
    /* If the listener requests another key share (HelloRetryRequest), OpenSSL calls this function a
     * second time. `hash` is then the hash of the cipher suite that the listener has chosen. Our
     * PSK belongs to SHA-256, so none is offered for another hash. */
    if (hash && EVP_MD_get_type(hash) != NID_sha256) return 1;
    if (!dw_tls_pair_key(context->group_key, context->group_key_bytes, context->own_name,
                         context->peer_name, key))
        return 0;
    *session = as_session(ssl, key);
    OPENSSL_cleanse(key, sizeof key);
    *identity = (const unsigned char *)context->identity;
    *len = strlen(context->identity);
    return *session != NULL;
}

/* For an unknown pair, uses a key that nobody else has. So the handshake fails just as with a wrong
 * key, and tells a stranger nothing about which names exist. */
static int find_key(SSL *ssl, const unsigned char *identity, size_t len, SSL_SESSION **session)
{
    dw_tls *tls = SSL_get_app_data(ssl);
    const dw_tls_context *context = tls->context;
    char client[DW_TLS_NAME_BYTES] = "", server[DW_TLS_NAME_BYTES] = "";
    bool is_read = dw_tls_identity_read(identity, len, client, server) == 0;
    bool is_known = is_read && strcmp(server, context->own_name) == 0 &&
                    strcmp(client, context->own_name) != 0 &&
                    (!context->peer_name[0] || strcmp(client, context->peer_name) == 0);
    unsigned char key[DW_TLS_PAIR_KEY_BYTES];
    bool is_made =
        is_known
            ? dw_tls_pair_key(context->group_key, context->group_key_bytes, client, server, key)
            : dw_tls_pair_key(context->dummy_key, sizeof context->dummy_key, client, server, key);
    *session = is_made ? as_session(ssl, key) : NULL;
    OPENSSL_cleanse(key, sizeof key);
    if (is_known) memcpy(tls->peer_name, client, sizeof client);
    return *session != NULL;
}

/* ---- The group key --------------------------------------------------------------------------- */

static dw_status read_key_file(dw_tls_context *context, const char *path, dw_why *why)
{
    unsigned char room[DW_TLS_GROUP_KEY_MOST + 1];
    size_t have = 0;
    ssize_t n = 1;
    int fd;
    dw_status status = dw_tls_open_secret(path, "group key", &fd, why);
    if (status != DW_OK) return status;
    while (have < sizeof room && (n = read(fd, room + have, sizeof room - have)) > 0)
        have += (size_t)n;
    int error = errno;
    close(fd);
    if (n == 0 || have == sizeof room) {
        context->group_key_bytes = have;
        if (have <= DW_TLS_GROUP_KEY_MOST) memcpy(context->group_key, room, have);
    }
    OPENSSL_cleanse(room, sizeof room);
    return n < 0 ? dw_say(why, DW_ERR_IO, "cannot read the group key in %.150s: %s", path,
                          strerror(error))
                 : DW_OK;
}

static dw_status take_key(dw_tls_context *context, const dw_tls_options *options, dw_why *why)
{
    dw_status status = DW_OK;
    if (options->group_key && options->group_key_file) {
        return dw_say(why, DW_ERR_ARGUMENT, "give the group key in memory or in a file, not both");
    }
    if (options->group_key_file) {
        status = read_key_file(context, options->group_key_file, why);
    } else {
        context->group_key_bytes = options->group_key_bytes;
        if (options->group_key && options->group_key_bytes <= DW_TLS_GROUP_KEY_MOST) {
            memcpy(context->group_key, options->group_key, options->group_key_bytes);
        }
    }
    if (status != DW_OK) return status;
    if (context->group_key_bytes >= DW_TLS_GROUP_KEY_LEAST &&
        context->group_key_bytes <= DW_TLS_GROUP_KEY_MOST)
        return DW_OK;
    return dw_say(why, DW_ERR_ARGUMENT,
                  "the group key%s%.80s has %s%zu bytes; make one of %d random bytes, as "
                  "`deltawire keygen FILE` does",
                  options->group_key_file ? " in " : "",
                  options->group_key_file ? options->group_key_file : "",
                  context->group_key_bytes > DW_TLS_GROUP_KEY_MOST ? "at least " : "",
                  context->group_key_bytes, DW_TLS_GROUP_KEY_LEAST);
}

dw_status dw_tls_psk_setup(dw_tls_context *context, const dw_tls_options *options, dw_why *why)
{
    if (!context->own_name[0]) {
        return dw_say(why, DW_ERR_ARGUMENT,
                      "a group key needs own_name: keys are made for pairs of names");
    }
    dw_status status = take_key(context, options, why);
    if (status != DW_OK) return status;
    if (RAND_bytes(context->dummy_key, sizeof context->dummy_key) != 1) {
        return dw_say(why, DW_ERR_IO, "cannot get random numbers: %s", dw_tls_last_error());
    }
    if (context->role == DW_LINK_LISTEN) {
        SSL_CTX_set_psk_find_session_callback(context->ssl, find_key);
        return DW_OK;
    }
    char *at = context->identity;
    memcpy(at, prefix, sizeof prefix);
    at += sizeof prefix;
    memcpy(at, context->own_name, strlen(context->own_name));
    at += strlen(context->own_name);
    *at++ = ' ';
    memcpy(at, context->peer_name, strlen(context->peer_name) + 1);
    SSL_CTX_set_psk_use_session_callback(context->ssl, give_own_key);
    return DW_OK;
}
