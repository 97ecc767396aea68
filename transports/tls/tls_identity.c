/* SPDX-License-Identifier: Apache-2.0
 * tls_identity.c - names of ends, and the name in a certificate. */
#include <openssl/x509v3.h>
#include <string.h>

#include "tls/tls_identity.h"

static const char scheme[] = "deltawire:";

bool dw_tls_name_is_valid(const char *name, size_t len)
{
    static const char others[] = "._-/:@+";
    if (len < 1 || len >= DW_TLS_NAME_BYTES) return false;
    for (size_t i = 0; i < len; i++) { /* isalnum would depend on the locale */
        char c = name[i];
        bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!is_plain && (c == '\0' || !strchr(others, c))) return false;
    }
    return true;
}

/* Takes the name out of a URI deltawire:NAME. false: it is not such a URI. */
static bool take_name(const ASN1_IA5STRING *uri, char *name)
{
    size_t len = (size_t)ASN1_STRING_length(uri), before = sizeof scheme - 1;
    const char *text = (const char *)ASN1_STRING_get0_data(uri);
    if (len <= before || memcmp(text, scheme, before) != 0) return false;
    if (!dw_tls_name_is_valid(text + before, len - before)) return false;
    memcpy(name, text + before, len - before);
    name[len - before] = '\0';
    return true;
}

bool dw_tls_certificate_name(X509 *certificate, const char *wanted, char name[DW_TLS_NAME_BYTES])
{
    GENERAL_NAMES *names = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
    bool found = false;
    name[0] = '\0';
    for (int i = 0; names && i < sk_GENERAL_NAME_num(names) && !found; i++) {
        const GENERAL_NAME *one = sk_GENERAL_NAME_value(names, i);
        char candidate[DW_TLS_NAME_BYTES];
        if (one->type != GEN_URI || !take_name(one->d.uniformResourceIdentifier, candidate))
            continue;
        if (!wanted[0] || strcmp(wanted, candidate) == 0) found = true;
        if (found || !name[0]) /* if it is not the wanted name, the error sentence needs it */
            memcpy(name, candidate, sizeof candidate);
    }
    GENERAL_NAMES_free(names);
    return found;
}

int dw_tls_verify(int is_good, X509_STORE_CTX *chain)
{
    if (!is_good || X509_STORE_CTX_get_error_depth(chain) > 0) return is_good;
    SSL *ssl = X509_STORE_CTX_get_ex_data(chain, SSL_get_ex_data_X509_STORE_CTX_idx());
    dw_tls *tls = SSL_get_app_data(ssl);
    X509 *certificate = X509_STORE_CTX_get_current_cert(chain);
    if (dw_tls_certificate_name(certificate, tls->context->peer_name, tls->peer_name)) return 1;
    X509_STORE_CTX_set_error(chain, X509_V_ERR_APPLICATION_VERIFICATION);
    return 0;
}
