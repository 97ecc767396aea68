/* SPDX-License-Identifier: Apache-2.0
 * tls.h - who may be the other end of a link: keys and certificates for TLS 1.3 over tcp. */
#ifndef DELTAWIRE_TLS_H
#define DELTAWIRE_TLS_H

#include "deltawire/deltawire.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What one end shows and demands: a group key that all ranks hold, or a certificate of its own. It
 * goes into dw_link_options.tls (transport.h) and is read by dw_link_open only. Both ends then know
 * who the other is, nobody between them can read, change, repeat or cut short what they send, and
 * keys of past sessions are of no use to a thief.
 *
 * wide table:
 * | name              | meaning                                                             | default              |
 * | own_name          | this end, as "rank/3": 1 to 63 letters, digits or ._-/:@+           | the certificate's    |
 * | peer_name         | who the other end must be; needed to connect                        | any of group or CA   |
 * | group_key, _bytes | the key, 32 bytes to 4 KiB of randomness, never a password          | -                    |
 * | group_key_file    | or a file with it, which others must not be able to read            | -                    |
 * | certificate, key, | PEM in files, or in memory (_pem): own certificate (behind it what  | -                    |
 * | ca ... _file      | links it to the CA), its key, which others must not be able to read |                      |
 * |                   | either, and the CAs whose certificates count                        |                      |
 *
 * A certificate names its end by an URI among its alternative names: "deltawire:rank/3". With a
 * group key every two ends use a key of their own, derived from it and both names; but who holds
 * the group key can be any of them: it keeps strangers out, not members apart. Certificates do
 * both. docs/deploy.md has the commands that make keys and certificates.
 *
 * Errors of dw_link_open: ARGUMENT (names missing or impossible, a key too short, both kinds or
 * neither), IO (a file), CONFIG (what is in it), UNSUPPORTED (a build without OpenSSL, a transport
 * without TLS), AUTH (the peer is not who it must be, or takes us for a stranger). A listener turns
 * strangers away and goes on waiting. */
typedef struct dw_tls_options {
    size_t struct_size; /* sizeof(dw_tls_options); see transport.h */
    const char *own_name, *peer_name;
    const void *group_key;
    size_t group_key_bytes;
    const char *group_key_file;
    const char *certificate_file, *key_file, *ca_file;
    const char *certificate_pem, *key_pem, *ca_pem;
} dw_tls_options;

#ifdef __cplusplus
}
#endif
#endif
