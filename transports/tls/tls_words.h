/* SPDX-License-Identifier: Apache-2.0
 * tls_words.h - OpenSSL's own words for what went wrong. */
#ifndef DW_TLS_WORDS_H
#define DW_TLS_WORDS_H

/* For its last error; empties its queue. */
const char *dw_tls_last_words(void);

#endif
