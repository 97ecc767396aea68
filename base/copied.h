/* SPDX-License-Identifier: Apache-2.0
 * copied.h - marks the functions that several of our libraries contain, each its own copy. */
#ifndef DW_COPIED_H
#define DW_COPIED_H

/* Stands in front of the definition. A program that links several of the static libraries, even as
 * a whole, gets the first copy, and no error because there are two. Not in front of declarations:
 * then the linker would not look for the function in an archive. */
#define DW_COPIED __attribute__((weak))

#endif
