/* SPDX-License-Identifier: Apache-2.0
 * options.h - the table of options: everything that a config can say, one row each.
 *
 * Parsing, canonical text, the agreement of the two ends, the parameter block of frames, inspection
 * and docs/codecs.md all go by these rows. */
#ifndef DW_OPTIONS_H
#define DW_OPTIONS_H

#include "base/mem.h"

typedef struct dw_word {
    const char *text;
    uint32_t value;
} dw_word;

/* Where an option means something, within the codecs that have it. */
typedef enum dw_scope {
    DW_SCOPE_ALWAYS,
    DW_SCOPE_QUANTIZED, /* some values are quantized in groups */
    DW_SCOPE_MX         /* some values are microscaled */
} dw_scope;

/* Must both ends have the same? */
typedef enum dw_agreement {
    DW_AGREE_NO,
    DW_AGREE_CONFIG,  /* yes, and only whoever gave it to them can see to it */
    DW_AGREE_FRAME,   /* yes, and it travels in every frame */
    DW_AGREE_UNUSUAL, /* the same, but its default does not travel */
} dw_agreement;

typedef struct dw_option {
    uint8_t number; /* in parameter blocks; never given to another option */
    const char *name;
    uint32_t codecs; /* a bit for each dw_codec that has it */
    dw_scope scope;
    dw_agreement agrees;
    const dw_word *words;                           /* NULL: a number ... */
    uint64_t least, most;                           /* ... in this range */
    size_t offset, size;                            /* of its field in dw_config */
    uint64_t (*otherwise)(const dw_config *config); /* its default, given the rest; 0: none */
    /* Whether a value goes with the rest; NULL: every one does. */
    bool (*fits)(const dw_config *config, uint64_t value);
    const char *means, *default_text; /* for the documentation */
} dw_option;

extern const dw_option dw_options[];
enum { DW_OPTIONS = 15 };

static inline uint32_t dw_codec_bit(dw_codec codec)
{
    return codec < 32 ? 1u << codec : 0;
}

uint64_t dw_option_get(const dw_option *option, const dw_config *config);
void dw_option_set(const dw_option *option, dw_config *config, uint64_t value);

/* Does it mean anything in this config, whose codec is known? */
bool dw_option_applies(const dw_option *option, const dw_config *config);

/* Whether a value that is set goes with the rest of the config, in which the option applies. */
bool dw_option_fits(const dw_option *option, const dw_config *config, uint64_t value);

/* The value in force: what is set, else the default; 0: there is neither. */
uint64_t dw_option_value(const dw_option *option, const dw_config *config);

const dw_word *dw_word_find(const dw_word *words, const char *text, size_t len);
const char *dw_word_of(const dw_word *words, uint64_t value); /* NULL: none */

extern const dw_word dw_codec_words[];

/* The struct of a caller, as long as that was, as one of this version. Errors: ARGUMENT. */
dw_status dw_config_take(dw_config *taken, const dw_config *given, dw_why *why);

/* CONFIG with a sentence, where a field is out of range or has no meaning in its codec. */
dw_status dw_config_check(const dw_config *config, dw_why *why);

#endif
