/* SPDX-License-Identifier: Apache-2.0
 * printable.h - makes text safe to print. Errors quote what a peer or a user has sent, which must
 * not control a terminal. */
#ifndef DW_PRINTABLE_H
#define DW_PRINTABLE_H

#include <stdbool.h>
#include <stdint.h>

/* Returns the length in bytes of the UTF-8 character at `at`; 0: it must not be printed. Not
 * printed are invalid UTF-8, control characters, and characters that change the direction of the
 * text. */
static inline int dw_printable_bytes(const unsigned char *at)
{
    int n = at[0] < 0x80       ? 1
            : at[0] >> 5 == 6  ? 2
            : at[0] >> 4 == 14 ? 3
            : at[0] >> 3 == 30 ? 4
                               : 0;
    static const uint32_t mask[] = {0, 0x7f, 0x1f, 0xf, 7}, least[] = {0, 0, 0x80, 0x800, 0x10000};
    uint32_t code = at[0] & mask[n];
    for (int i = 1; i < n; i++) {
        if (at[i] >> 6 != 2) return 0; /* this also finds the end of the text */
        code = code << 6 | (at[i] & 0x3fu);
    }
    bool is_control = code < 0x20 || (code >= 0x7f && code < 0xa0);
    bool turns = code == 0x200e || code == 0x200f || (code >= 0x2028 && code <= 0x202e) ||
                 (code >= 0x2066 && code <= 0x2069);
    bool is_invalid = code < least[n] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000);
    return is_control || turns || is_invalid ? 0 : n;
}

/* Replaces every byte of a string that must not be printed by a question mark. */
static inline void dw_make_printable(char *text)
{
    for (unsigned char *at = (unsigned char *)text; *at;) {
        int n = dw_printable_bytes(at);
        if (n == 0) *at = '?';
        at += n == 0 ? 1 : n;
    }
}

#endif
