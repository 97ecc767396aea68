/* SPDX-License-Identifier: Apache-2.0
 * tls_identity.h - names; the name that a certificate proves. */
#ifndef DW_TLS_IDENTITY_H
#define DW_TLS_IDENTITY_H

#include "tls/tls_state.h"

bool dw_tls_name_is_valid(const char *name, size_t len);
/* The certificate's own name; false: it has none. Where `wanted` is not "", that one is looked
 * for. */
bool dw_tls_certificate_name(X509 *certificate, const char *wanted, char name[DW_TLS_NAME_BYTES]);
int dw_tls_verify(int is_good, X509_STORE_CTX *chain); /* SSL_CTX_set_verify's */

#endif
