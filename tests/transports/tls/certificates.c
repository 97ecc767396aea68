/* SPDX-License-Identifier: Apache-2.0
 * certificates.c - makes valid and invalid certificates for tests. */
#include "certificates.h"

#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(int is_good, const char *what)
{
    if (is_good) return;
    fprintf(stderr, "certificates: OpenSSL cannot %s\n", what);
    exit(1);
}

static void add_extension(X509 *x509, X509 *issuer, int kind, const char *value)
{
    X509V3_CTX context;
    char text[200];
    snprintf(text, sizeof text, "%s", value);
    X509V3_set_ctx(&context, issuer, x509, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &context, kind, text);
    must(extension && X509_add_ext(x509, extension, -1), "add an extension");
    X509_EXTENSION_free(extension);
}

static char *as_text(BIO *bio)
{
    char *data;
    long len = BIO_get_mem_data(bio, &data);
    char *text = malloc((size_t)len + 1);
    must(text != NULL, "have memory");
    memcpy(text, data, (size_t)len);
    text[len] = '\0';
    BIO_free(bio);
    return text;
}

void certificate_make(certificate *made, const certificate *by, const certificate_wish *wish)
{
    static long serial = 1;
    static const char *const names[] = {"end", "authority"};
    int has_times = wish->from_s || wish->until_s;
    X509 *x509 = X509_new();
    EVP_PKEY *key = EVP_EC_gen("P-256");
    must(x509 && key, "make a key");
    X509_set_version(x509, X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(x509), ++serial);
    X509_gmtime_adj(X509_getm_notBefore(x509), has_times ? wish->from_s : -3600);
    X509_gmtime_adj(X509_getm_notAfter(x509), has_times ? wish->until_s : 3600);
    X509_set_pubkey(x509, key);
    X509_NAME *name = X509_get_subject_name(x509);
    char number[24]; /* otherwise different authorities would have the same name */
    snprintf(number, sizeof number, "%s %ld", names[wish->is_authority], serial);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)number, -1, -1, 0);
    X509_set_issuer_name(x509, by ? X509_get_subject_name(by->x509) : name);
    X509 *issuer = by ? by->x509 : x509;
    add_extension(x509, issuer, NID_basic_constraints,
                  wish->is_authority ? "critical,CA:TRUE" : "critical,CA:FALSE");
    if (wish->uri) {
        char uri[150];
        snprintf(uri, sizeof uri, "URI:%s", wish->uri);
        add_extension(x509, issuer, NID_subject_alt_name, uri);
    }
    if (wish->purpose) add_extension(x509, issuer, NID_ext_key_usage, wish->purpose);
    must(X509_sign(x509, by ? by->key : key, EVP_sha256()) > 0, "sign");
    BIO *pem = BIO_new(BIO_s_mem()), *key_pem = BIO_new(BIO_s_mem());
    must(PEM_write_bio_X509(pem, x509) &&
             PEM_write_bio_PrivateKey(key_pem, key, NULL, NULL, 0, NULL, NULL),
         "write PEM");
    *made =
        (certificate){.x509 = x509, .key = key, .pem = as_text(pem), .key_pem = as_text(key_pem)};
}

void certificate_free(certificate *one)
{
    X509_free(one->x509);
    EVP_PKEY_free(one->key);
    free(one->pem);
    free(one->key_pem);
}
