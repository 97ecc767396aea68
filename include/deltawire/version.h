/* SPDX-License-Identifier: Apache-2.0
 * version.h - the library's version; meson.build reads it from here. */
#ifndef DELTAWIRE_VERSION_H
#define DELTAWIRE_VERSION_H

#define DW_VERSION_MAJOR  0
#define DW_VERSION_MINOR  1
#define DW_VERSION_PATCH  0
#define DW_VERSION_STRING "0.1.0"

/* The version of the bytes that docs/format.md specifies. */
#define DW_FORMAT_MAJOR 2
#define DW_FORMAT_MINOR 0

#endif
