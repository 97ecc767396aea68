/* SPDX-License-Identifier: Apache-2.0
 * tls_psk.h - the group key, the keys derived from it for pairs of ends, and the PSK identities
 * that name such a pair. */
#ifndef DW_TLS_PSK_H
#define DW_TLS_PSK_H

#include "tls/tls_state.h"

dw_status dw_tls_psk_setup(dw_tls_context *context, const dw_tls_options *options, dw_why *why);
/* Reads the two names out of a PSK identity. 0, or -1 if it is not valid. Each name has room for
 * DW_TLS_NAME_BYTES. Public within the library because the fuzzer calls it. */
int dw_tls_identity_read(const unsigned char *identity, size_t len, char *client, char *server);
/* false: OpenSSL failed. */
bool dw_tls_pair_key(const unsigned char *group_key, size_t group_key_bytes, const char *client,
                     const char *server, unsigned char key[DW_TLS_PAIR_KEY_BYTES]);

#endif
