/* SPDX-License-Identifier: Apache-2.0
 * certificates.h - makes valid and invalid certificates for tests. */
#ifndef DW_TESTS_CERTIFICATES_H
#define DW_TESTS_CERTIFICATES_H

#include <openssl/ssl.h>

typedef struct certificate {
    X509 *x509;
    EVP_PKEY *key;
    char *pem, *key_pem; /* certificate and key as text */
} certificate;

typedef struct certificate_wish {
    const char *uri;      /* in the subject alternative name; NULL: none */
    const char *purpose;  /* extended key usage; NULL: any */
    long from_s, until_s; /* validity from now; both 0: from an hour ago, for an hour */
    int is_authority;
} certificate_wish;

/* Makes a certificate, signed by `by` or, if that is NULL, by itself. */
void certificate_make(certificate *made, const certificate *by, const certificate_wish *wish);
void certificate_free(certificate *one);

#endif
