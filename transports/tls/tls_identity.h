/* SPDX-License-Identifier: Apache-2.0
 * tls_identity.h - names of ends, and the name in a certificate. */
#ifndef DW_TLS_IDENTITY_H
#define DW_TLS_IDENTITY_H

#include "tls/tls_state.h"

bool dw_tls_name_is_valid(const char *name, size_t len);
/* Finds the name in a certificate. If `wanted` is not "", only that one counts. false: not found;
 * `name` is then another name of the certificate, or "". */
bool dw_tls_certificate_name(X509 *certificate, const char *wanted, char name[DW_TLS_NAME_BYTES]);
int dw_tls_verify(int is_good, X509_STORE_CTX *chain); /* the callback for SSL_CTX_set_verify */

#endif
