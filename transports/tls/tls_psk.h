/* SPDX-License-Identifier: Apache-2.0
 * tls_psk.h - the group key, keys of pairs derived from it, identities on the wire. */
#ifndef DW_TLS_PSK_H
#define DW_TLS_PSK_H

#include "tls/tls_state.h"

dw_status dw_tls_psk_setup(dw_tls_context *context, const dw_tls_options *options, dw_why *why);
/* 0, or -1 where it is not one: for the fuzzer, too. Names have DW_TLS_NAME_BYTES each. */
int dw_tls_identity_read(const unsigned char *identity, size_t len, char *client, char *server);
/* false: OpenSSL failed. */
bool dw_tls_pair_key(const unsigned char *group_key, size_t group_key_bytes, const char *client,
                     const char *server, unsigned char key[DW_TLS_PAIR_KEY_BYTES]);

#endif
