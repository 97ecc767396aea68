/* SPDX-License-Identifier: Apache-2.0
 * certificates.h - certificates for tests, good and bad, made when they are needed. */
#ifndef DW_TESTS_CERTIFICATES_H
#define DW_TESTS_CERTIFICATES_H

#include <openssl/ssl.h>

typedef struct certificate {
    X509 *x509;
    EVP_PKEY *key;
    char *pem, *key_pem; /* of both */
} certificate;

typedef struct certificate_wish {
    const char *uri;      /* among the alternative names; NULL: none */
    const char *purpose;  /* extended key usage; NULL: any */
    long from_s, until_s; /* from now; both 0: an hour either way */
    int is_authority;
} certificate_wish;

/* By NULL it is signed by itself. */
void certificate_make(certificate *made, const certificate *by, const certificate_wish *wish);
void certificate_free(certificate *one);

#endif
