/* SPDX-License-Identifier: Apache-2.0
 * message.h - the header that a link puts in front of every message of its backend: tag, then kind,
 * 32 bits each. */
#ifndef DW_MESSAGE_H
#define DW_MESSAGE_H

enum { DW_LINK_HEADER_BYTES = 8 };
enum { DW_KIND_DATA = 1, DW_KIND_HELLO = 2, DW_KIND_BYE = 3 };

#endif
