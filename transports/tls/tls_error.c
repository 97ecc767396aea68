/* SPDX-License-Identifier: Apache-2.0
 * tls_error.c - the text of OpenSSL's last error. */
#include "tls/tls_error.h"

#include <openssl/err.h>

const char *dw_tls_last_error(void)
{
    unsigned long error = ERR_peek_last_error();
    const char *reason = error ? ERR_reason_error_string(error) : NULL;
    ERR_clear_error();
    return reason ? reason : "OpenSSL gives no reason";
}
