/* SPDX-License-Identifier: Apache-2.0
 * tls_error.h - the text of OpenSSL's last error. */
#ifndef DW_TLS_ERROR_H
#define DW_TLS_ERROR_H

/* Also empties the error queue of OpenSSL. */
const char *dw_tls_last_error(void);

#endif
