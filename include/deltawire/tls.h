/* SPDX-License-Identifier: Apache-2.0
 * tls.h - authentication and encryption of links: keys and certificates for TLS 1.3 over tcp. */
#ifndef DELTAWIRE_TLS_H
#define DELTAWIRE_TLS_H

#include "deltawire/deltawire.h"
#ifdef __cplusplus
extern "C" {
#endif

/* What this end presents and what it requires of the other: either a group key that all ranks
 * share, or a certificate of its own. Set dw_link_options.tls (transport.h) to it; only
 * dw_link_open reads it. Each end then knows the identity of the other. Nobody between them can
 * read, change, replay or cut off what they send, and stolen keys do not decrypt past sessions.
 *
 * wide table:
 * | name              | meaning                                                             | default              |
 * | own_name          | this end, as "rank/3": 1 to 63 letters, digits or ._-/:@+           | the certificate's    |
 * | peer_name         | the required name of the other end; needed to connect               | any of group or CA   |
 * | group_key, _bytes | the key: 32 bytes to 4 KiB of randomness, never a password          | -                    |
 * | group_key_file    | or a file with it, which other users must not be able to read       | -                    |
 * | certificate, key, | in files or in memory (_pem), as PEM: this end's certificate,       | -                    |
 * | ca ... _file      | followed by intermediate ones; its key, which other users must not  |                      |
 * |                   | be able to read; the trusted CAs                                    |                      |
 *
 * A certificate names its end by a URI among its subject alternative names: "deltawire:rank/3".
 * With a group key, every pair of ends uses a key derived from it and from both names. But whoever
 * holds the group key can claim any name: it keeps outsiders away, and does not protect members
 * from each other. Certificates do both. docs/deploy.md has the commands that make keys and
 * certificates.
 *
 * Errors of dw_link_open: ARGUMENT (missing or invalid names, a key that is too short, both kinds
 * or neither), IO (a file cannot be read), CONFIG (its contents are invalid), UNSUPPORTED (a build
 * without OpenSSL, a transport without TLS), AUTH (the peer could not prove the required name, or
 * rejected ours). A listener rejects such peers and keeps waiting. */
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
