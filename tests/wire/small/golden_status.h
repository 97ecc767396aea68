/* SPDX-License-Identifier: Apache-2.0
 * golden_status.h - the names of statuses in golden files. */
#ifndef DW_GOLDEN_STATUS_H
#define DW_GOLDEN_STATUS_H

#include "deltawire/deltawire.h"

static inline const char *golden_status(dw_status status)
{
    switch (status) {
    case DW_OK: return "OK";
    case DW_ERR_FORMAT: return "FORMAT";
    case DW_ERR_VERSION: return "VERSION";
    case DW_ERR_CORRUPT: return "CORRUPT";
    case DW_ERR_SHAPE: return "SHAPE";
    case DW_ERR_MISMATCH: return "MISMATCH";
    case DW_ERR_STALE: return "STALE";
    case DW_ERR_BASE: return "BASE";
    case DW_ERR_STATE: return "STATE";
    default: return "?";
    }
}

#endif
