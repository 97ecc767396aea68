/* SPDX-License-Identifier: Apache-2.0
 * tls_gate.h - the gate in front of OpenSSL. OpenSSL frees its tables when the program ends, while
 * threads of links go on. Who calls OpenSSL enters first, and leaves afterwards; then no thread is
 * inside when the tables are freed, and none enters later. */
#ifndef DW_TLS_GATE_H
#define DW_TLS_GATE_H

#include <stdbool.h>

/* What becomes of a stream whose thread may not enter any more. */
#define DW_TLS_SHUT "cannot be reached under TLS any more, because this program is ending"

/* Returns false if the gate is closed: then OpenSSL must not be called. */
bool dw_tls_enter(void);
void dw_tls_leave(void); /* after each dw_tls_enter that returned true, in the same thread */

#endif
