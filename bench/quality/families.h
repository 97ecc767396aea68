/* SPDX-License-Identifier: Apache-2.0
 * families.h - the codecs of deltawire that are measured. */
#ifndef DELTAWIRE_BENCH_QUALITY_FAMILIES_H
#define DELTAWIRE_BENCH_QUALITY_FAMILIES_H

#include <stdbool.h>

/* A codec with one option that varies: %s in its text stands for each of the words in settings.
 * between: any number between two settings is possible, too. */
typedef struct dw_family {
    const char *name, *codec, *settings;
    bool between;
} dw_family;

/* name NULL: behind the last. */
extern const dw_family dw_families[];

#endif
