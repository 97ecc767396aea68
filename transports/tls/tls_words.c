/* SPDX-License-Identifier: Apache-2.0
 * tls_words.c - OpenSSL's own words for what went wrong. */
#include "tls/tls_words.h"

#include <openssl/err.h>

const char *dw_tls_last_words(void)
{
    unsigned long error = ERR_peek_last_error();
    const char *reason = error ? ERR_reason_error_string(error) : NULL;
    ERR_clear_error();
    return reason ? reason : "no reason told";
}
