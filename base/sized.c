/* SPDX-License-Identifier: Apache-2.0
 * sized.c - copies structs whose first member is their size. */
#include "base/sized.h"

#include <stdbool.h>
#include <string.h>

#include "base/copied.h"
#include "base/sentence.h"

/* No struct of this library will ever be longer. A larger struct_size was never set by the caller.
 */
enum { MOST_BYTES = 4096 };

static dw_status read_size(size_t *bytes, const void *given, const char *type, size_t own_bytes,
                           dw_why *why)
{
    memcpy(bytes, given, sizeof *bytes);
    if (*bytes >= sizeof *bytes && *bytes <= MOST_BYTES) return DW_OK;
    return dw_say(why, DW_ERR_ARGUMENT, "%s.struct_size is %zu; set it to sizeof(%s), %zu", type,
                  *bytes, type, own_bytes);
}

static bool is_zero(const unsigned char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (bytes[i]) return false;
    }
    return true;
}

static void take(void *own, size_t own_bytes, const void *given, size_t given_bytes)
{
    memset(own, 0, own_bytes);
    memcpy(own, given, given_bytes < own_bytes ? given_bytes : own_bytes);
    memcpy(own, &own_bytes, sizeof own_bytes);
}

DW_COPIED dw_status dw_take_asked(void *own, size_t own_bytes, const void *given, const char *type,
                                  dw_why *why)
{
    size_t bytes;
    dw_status status = read_size(&bytes, given, type, own_bytes, why);
    if (status != DW_OK) return status;
    if (bytes > own_bytes &&
        !is_zero((const unsigned char *)given + own_bytes, bytes - own_bytes)) {
        return dw_say(why, DW_ERR_ARGUMENT,
                      "%s has %zu bytes, and a field behind the first %zu, which are all "
                      "that deltawire %s knows, is set; leave it at zero, or use a newer "
                      "version of deltawire",
                      type, bytes, own_bytes, DW_VERSION_STRING);
    }
    take(own, own_bytes, given, bytes);
    return DW_OK;
}

DW_COPIED dw_status dw_take_told(void *own, size_t own_bytes, const void *given, const char *type,
                                 dw_why *why)
{
    size_t bytes;
    dw_status status = read_size(&bytes, given, type, own_bytes, why);
    if (status == DW_OK) take(own, own_bytes, given, bytes);
    return status;
}

DW_COPIED dw_status dw_give_told(void *given, const void *own, size_t own_bytes, const char *type,
                                 dw_why *why)
{
    size_t bytes;
    dw_status status = read_size(&bytes, given, type, own_bytes, why);
    if (status == DW_OK) take(given, bytes, own, own_bytes);
    return status;
}
