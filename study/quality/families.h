/* SPDX-License-Identifier: Apache-2.0
 * families.h - the codecs of deltawire that the program quality measures. */
#ifndef DELTAWIRE_BENCH_QUALITY_FAMILIES_H
#define DELTAWIRE_BENCH_QUALITY_FAMILIES_H

#include <stdbool.h>

/* A family is a codec of which one option varies. Each setting is measured, and is a row of the
 * results.
 *
 * | name     | names the family in the results                                          |
 * | codec    | the text of the codec, with %s in the place of the option's value        |
 * | settings | the values of that option, separated by blanks                           |
 * | between  | whether the option may have any value between two of these, too, so that |
 * |          | the results between two rows can be interpolated                         | */
typedef struct dw_family {
    const char *name, *codec, *settings;
    bool between;
} dw_family;

/* All families. The entry behind the last one has the name NULL. */
extern const dw_family dw_families[];

#endif
