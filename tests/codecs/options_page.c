/* SPDX-License-Identifier: Apache-2.0
 * options_page.c - checks that docs/codecs.md lists the options as the library does.
 *
 * options_page PAGE compares the rows between the markers "options: begin" and "options: end" with
 * the library's table of options. If they differ, it prints the rows that should stand there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codecs/codecs.h"
#include "codecs/options.h"

static void add(char *text, size_t cap, const char *more)
{
    size_t used = strlen(text);
    snprintf(text + used, cap - used, "%s", more);
}

/* Writes which codecs have an option: their names, "all" or "all but delta". */
static void write_codecs(const dw_option *option, char *text, size_t cap)
{
    uint32_t all = 0;
    for (const dw_word *codec = dw_codec_words; codec->text; codec++)
        all |= dw_codec_bit((dw_codec)codec->value);
    if (option->codecs == all) add(text, cap, "all");
    if (option->codecs == (all & ~dw_codec_bit(DW_CODEC_DELTA))) add(text, cap, "all but delta");
    if (*text) return;
    for (const dw_word *codec = dw_codec_words; codec->text; codec++) {
        if (!(option->codecs & dw_codec_bit((dw_codec)codec->value))) continue;
        if (*text) add(text, cap, " ");
        add(text, cap, codec->text);
    }
}

static void write_values(const dw_option *option, char *text, size_t cap)
{
    double one = option->decimals == DW_ERROR_DECIMALS  ? 1e12
                 : option->decimals == DW_KEEP_DECIMALS ? 1e6
                                                        : 1e3;
    if (option->decimals)
        snprintf(text, cap, "%s%.4g to %s%.4g", dw_option_prefix(option),
                 (double)option->least / one, dw_option_prefix(option), (double)option->most / one);
    else if (!option->words)
        snprintf(text, cap, "%llu to %llu", (unsigned long long)option->least,
                 (unsigned long long)option->most);
    for (const dw_word *word = option->words; word && word->text; word++) {
        if (*text) add(text, cap, " ");
        add(text, cap, word->text);
    }
}

/* An option is for comparison itself, or because no stable codec has it. */
static const char *tier_of(const dw_option *option)
{
    for (const dw_word *codec = dw_codec_words; codec->text && dw_option_is_stable(option); codec++)
        if ((option->codecs & dw_codec_bit((dw_codec)codec->value)) &&
            dw_codec_tier((dw_codec)codec->value) == DW_TIER_STABLE)
            return "stable";
    return "for comparison";
}

static const char *agreement_of(const dw_option *option)
{
    switch (option->agrees) {
    case DW_AGREE_NO: return "no";
    case DW_AGREE_CONFIG: return "yes";
    case DW_AGREE_FRAME: return "yes, every frame says it";
    case DW_AGREE_UNUSUAL: return "yes, a frame says it where it is not the default";
    case DW_AGREE_DITHER: return "dither: yes, every frame says it; others: no";
    }
    return "";
}

static char *table(void)
{
    size_t cap = 16384;
    char *text = calloc(1, cap);
    if (!text) exit(1);
    add(text, cap,
        "| option | number | tier | codecs | values | default | meaning | both ends |\n");
    add(text, cap, "|---|---|---|---|---|---|---|---|\n");
    for (int i = 0; i < DW_OPTIONS; i++) {
        const dw_option *o = &dw_options[i];
        char row[1024], codecs[128] = "", values[256] = "";
        write_codecs(o, codecs, sizeof codecs);
        write_values(o, values, sizeof values);
        snprintf(row, sizeof row, "| %s | %u | %s | %s | %s | %s | %s | %s |\n", o->name, o->number,
                 tier_of(o), codecs, values, o->default_text, o->means, agreement_of(o));
        add(text, cap, row);
    }
    return text;
}

int main(int argc, char **argv)
{
    static char page[65536];
    FILE *file = argc == 2 ? fopen(argv[1], "rb") : NULL;
    if (!file) {
        fprintf(stderr, "usage: options_page docs/codecs.md\n");
        return 2;
    }
    page[fread(page, 1, sizeof page - 1, file)] = 0;
    fclose(file);
    char *wanted = table(), *found = strstr(page, "<!-- options: begin -->");
    char *end = found ? strstr(found, "<!-- options: end -->") : NULL;
    if (found) found = strstr(found, "| option |");
    if (!found || !end || (size_t)(end - found) != strlen(wanted) ||
        memcmp(found, wanted, strlen(wanted)) != 0) {
        printf("%s: between its markers there should be:\n%s", argv[1], wanted);
        free(wanted);
        return 1;
    }
    free(wanted);
    return 0;
}
