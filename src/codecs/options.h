/* SPDX-License-Identifier: Apache-2.0
 * options.h - the table of options: everything that a config can say, one row each.
 *
 * Parsing, canonical text, the agreement of the two ends, the parameter block of frames, inspection
 * and the table in docs/codecs.md are all derived from these rows. */
#ifndef DW_OPTIONS_H
#define DW_OPTIONS_H

#include "base/mem.h"

/* The number of the option that may differ from frame to frame. */
enum { DW_PROFILE_OPTION = 47 };

typedef struct dw_word {
    const char *text;
    uint32_t value;
} dw_word;

/* Where an option has a meaning, within the codecs that have it. */
typedef enum dw_scope {
    DW_SCOPE_ALWAYS,
    DW_SCOPE_BITS,       /* some values can be quantized in groups */
    DW_SCOPE_QUANTIZED,  /* some values are quantized in groups */
    DW_SCOPE_MX,         /* some values are microscaled */
    DW_SCOPE_STEP,       /* some values are coded with one step */
    DW_SCOPE_FACTOR,     /* the same, and the config gives the step as a multiple of the root mean
                            square, not by an error or a rate */
    DW_SCOPE_KEY_FACTOR, /* the same of the step of key entries */
    DW_SCOPE_GROUPS,     /* quantized, or with one step */
    DW_SCOPE_RANDOM,     /* the same, or values are chosen at random */
    DW_SCOPE_FLOATS,     /* values are sent as floats */
    DW_SCOPE_CHOICES,    /* changes are quantized or microscaled, and not rotated */
    DW_SCOPE_FEEDBACK,   /* residuals are kept */
    DW_SCOPE_BLOCKS,     /* blocks have scales */
    DW_SCOPE_ROTATED     /* blocks of channels are rotated */
} dw_scope;

/* Must both ends have the same value? */
typedef enum dw_agreement {
    DW_AGREE_NO,
    DW_AGREE_CONFIG,  /* yes, but frames do not say it: only the application (or a channel) can
                         compare */
    DW_AGREE_FRAME,   /* yes, and every frame says it */
    DW_AGREE_UNUSUAL, /* yes, and every frame says it unless it is the default */
    DW_AGREE_DITHER, /* only whether the value is DW_ROUNDING_DITHER, which every frame then says */
} dw_agreement;

typedef struct dw_option {
    uint8_t number; /* in parameter blocks; never reused for another option */
    const char *name;
    uint32_t codecs; /* one bit for each dw_codec that has it */
    dw_scope scope;
    dw_agreement agrees;
    const dw_word *words; /* NULL: the value is a number ... */
    uint64_t least, most; /* ... in this range */
    /* How many decimals a number may have. The field holds the number in units of the last decimal:
     * with 3 decimals, 1.4 is 1400. 0: whole numbers. Options with more than 3 decimals also accept
     * numbers with an exponent, such as 1e-6. */
    uint32_t decimals;
    size_t offset, size; /* of the field in dw_config */
    /* The default, given the other options; NULL: the default is 0. */
    uint64_t (*otherwise)(const dw_config *config);
    /* Whether a value is allowed with the other options; NULL: all values are. */
    bool (*fits)(const dw_config *config, uint64_t value);
    const char *means, *default_text; /* for docs/codecs.md */
} dw_option;

extern const dw_option dw_options[];
enum {
    DW_OPTIONS = 43,
    DW_ERROR_DECIMALS = 12,
    DW_KEEP_DECIMALS = 6,
    DW_KEEP_ALL = 1000000,
    DW_RANK_MOST = 1024,
    DW_DECAY_NONE = 1000 /* thousandths */
};

static inline uint32_t dw_codec_bit(dw_codec codec)
{
    return codec < 32 ? 1u << codec : 0;
}

uint64_t dw_option_get(const dw_option *option, const dw_config *config);
void dw_option_set(const dw_option *option, dw_config *config, uint64_t value);

/* Whether the option has a meaning in this config, whose codec must be known. */
bool dw_option_applies(const dw_option *option, const dw_config *config);

/* Whether the option is of the stable tier, in the codecs that are. */
bool dw_option_is_stable(const dw_option *option);

/* Whether a value other than 0 is allowed together with the rest of the config. The option must
 * apply. */
bool dw_option_fits(const dw_option *option, const dw_config *config, uint64_t value);

/* Whether both ends must agree on this value, so that every frame says it. */
bool dw_option_is_in_frames(const dw_option *option, uint64_t value);

/* Returns what every value of an option begins with in a text: "abs:" in "error=abs:1e-3". It
 * distinguishes two rows of the same name. Most options have no prefix; then it is "". */
const char *dw_option_prefix(const dw_option *option);

/* Returns a text for error sentences: on what other options this option depends; NULL where the
 * values that are allowed say enough. */
const char *dw_option_condition(const dw_option *option);

/* Returns the largest step that the other options allow, in thousandths of the root mean square. */
uint32_t dw_option_step_most(const dw_config *config);

/* Returns the rule for scales that is the default of the codec, or 0 if that depends on the bits of
 * an entry (dw_params_scale). */
uint32_t dw_option_own_scale(const dw_config *config);

/* Whether the codec has nested rows (nested.h) that are floats, because it has no bits. */
bool dw_option_nested_floats(const dw_config *config);

/* dw_option_fill stores the effective value of an option in the config: its default if it is not
 * set, and 0 if it does not apply. dw_options_fill does that for all options whose dw_agreement is
 * at least `least`. */
void dw_option_fill(const dw_option *option, dw_config *config);
void dw_options_fill(dw_config *config, dw_agreement least);

/* The effective value: what is set, else the default; 0 where there is neither. */
uint64_t dw_option_value(const dw_option *option, const dw_config *config);

/* Writes a number as text, without zeros at the end: 1400 with 3 decimals is "1.4". value: in units
 * of the last decimal. */
enum { DW_DECIMAL_BYTES = 28 };
void dw_option_write_decimal(uint64_t value, uint32_t decimals, char out[DW_DECIMAL_BYTES]);

const dw_word *dw_word_find(const dw_word *words, const char *text, size_t len);
const char *dw_word_of(const dw_word *words, uint64_t value); /* NULL: there is none */

extern const dw_word dw_codec_words[];

/* What residuals are multiplied by at each visit of their key, in thousandths. */
static inline uint32_t dw_config_decay(const dw_config *config)
{
    return config->feedback > DW_FEEDBACK_NONE && config->decay ? config->decay : DW_DECAY_NONE;
}

/* Copies a caller's config, which may be shorter or longer than this version's struct. Errors:
 * CONFIG (struct_size is not set, or unknown fields are not zero). */
dw_status dw_config_take(dw_config *taken, const dw_config *given, dw_why *why);

/* Checks all fields. Returns CONFIG, with a sentence, where one is out of range or has no meaning
 * in its codec. */
dw_status dw_config_check(const dw_config *config, dw_why *why);

#endif
