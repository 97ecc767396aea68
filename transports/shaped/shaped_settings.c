/* SPDX-License-Identifier: Apache-2.0
 * shaped_settings.c - parses the words of a shaped URI, such as
 * "rate=100mbit,delay=20ms,loss=1%,seed=7". */
#include <stdio.h>
#include <string.h>

#include "common/report.h"
#include "shaped/shaped_settings.h"

typedef struct unit {
    const char *name;
    double factor;
} unit;

static const unit rate_units[] = {
    {"bit", 1}, {"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}, {NULL, 0}};
static const unit time_units[] = {{"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {NULL, 0}};
static const unit chance_units[] = {{"", 1}, {"%", 0.01}, {NULL, 0}};
static const unit percent_units[] = {{"%", 0.01}, {NULL, 0}};
static const unit count_units[] = {{"", 1}, {NULL, 0}};
static const unit size_units[] = {{"b", 1}, {"kb", 1e3}, {"mb", 1e6}, {"gb", 1e9}, {NULL, 0}};

/* Parses a quantity such as "1.5mbit": digits, optionally a point and more digits (in every
 * locale), and a unit. false: it is not one. */
static bool read_quantity(const char *text, size_t len, const unit *units, double *value)
{
    size_t i = 0, digits = 0;
    double number = 0, scale = 1;
    bool past_point = false;
    for (; i < len && (text[i] == '.' || (text[i] >= '0' && text[i] <= '9')); i++) {
        if (text[i] == '.') {
            if (past_point) return false;
            past_point = true;
            continue;
        }
        number = number * 10 + (text[i] - '0');
        if (past_point) scale *= 10;
        digits++;
    }
    if (digits == 0 || digits > 15) return false;
    for (; units->name; units++) {
        if (strlen(units->name) == len - i && memcmp(units->name, text + i, len - i) == 0) {
            *value = number / scale * units->factor;
            return true;
        }
    }
    return false;
}

/* The text of one value, and the settings to write it to. */
typedef struct reader {
    dw_shaped_settings *settings;
    const char *text;
    size_t len;
} reader;

static const double most_ns = 3600e9;

static bool read_rate(const reader *from)
{
    double bits;
    if (!read_quantity(from->text, from->len, rate_units, &bits) || bits < 1 || bits > 1e12)
        return false;
    from->settings->ns_per_byte = 8e9 / bits;
    return true;
}

static bool read_time(const char *text, size_t len, double *ns)
{
    return read_quantity(text, len, time_units, ns) && *ns <= most_ns;
}

static bool read_delay(const reader *from)
{
    return read_time(from->text, from->len, &from->settings->delay_ns);
}

static bool read_jitter(const reader *from)
{
    return read_time(from->text, from->len, &from->settings->jitter_ns);
}

static bool read_chance(const char *text, size_t len, double *chance)
{
    return read_quantity(text, len, chance_units, chance) && *chance <= 1;
}

static bool read_loss(const reader *from)
{
    return read_chance(from->text, from->len, &from->settings->loss);
}

static bool read_duplicate(const reader *from)
{
    return read_chance(from->text, from->len, &from->settings->duplicate);
}

static bool read_corrupt(const reader *from)
{
    return read_chance(from->text, from->len, &from->settings->corrupt);
}

/* Parses "1%:20ms". Without a colon *ns is not changed. */
static bool read_chance_and_time(const reader *from, double *chance, double *ns)
{
    const char *colon = memchr(from->text, ':', from->len);
    if (!colon) return read_chance(from->text, from->len, chance);
    size_t before = (size_t)(colon - from->text);
    return read_chance(from->text, before, chance) &&
           read_time(colon + 1, from->len - before - 1, ns);
}

static bool read_reorder(const reader *from)
{
    from->settings->reorder_hold_ns = 20e6;
    return read_chance_and_time(from, &from->settings->reorder, &from->settings->reorder_hold_ns);
}

static bool read_stall(const reader *from)
{
    from->settings->stall_ns = 200e6;
    return read_chance_and_time(from, &from->settings->stall, &from->settings->stall_ns);
}

static bool read_disconnect(const reader *from)
{
    double value;
    if (read_quantity(from->text, from->len, percent_units, &value)) {
        from->settings->disconnect = value;
        return value <= 1;
    }
    bool counts = read_quantity(from->text, from->len, count_units, &value);
    if (!counts && !read_quantity(from->text, from->len, size_units, &value)) return false;
    if (value < 1) return false;
    *(counts ? &from->settings->disconnect_messages : &from->settings->disconnect_bytes) =
        (uint64_t)value;
    return true;
}

static bool read_seed(const reader *from)
{
    double value;
    for (size_t i = 0; i < from->len; i++) {
        if (from->text[i] == '.') return false;
    }
    if (!read_quantity(from->text, from->len, count_units, &value)) return false;
    from->settings->seed = (uint64_t)value; /* exact, because a double holds 15 digits */
    return true;
}

static bool read_clock(const reader *from)
{
    from->settings->has_virtual_time = from->len == 7 && memcmp(from->text, "virtual", 7) == 0;
    return from->settings->has_virtual_time ||
           (from->len == 4 && memcmp(from->text, "real", 4) == 0);
}

static const struct word {
    const char *name;
    bool (*read)(const reader *from);
    const char *advice;
} words[] = {
    {"rate=", read_rate, "write a rate from 1bit to 1000gbit (per second), as 100mbit"},
    {"delay=", read_delay, "write a delay from 0ms to 3600s, as 20ms or 1.5ms"},
    {"jitter=", read_jitter,
     "write the maximum that is added to the delay, from 0ms to 3600s, as 5ms"},
    {"loss=", read_loss, "write the part of the messages that is lost, as 0.01 or 1%"},
    {"duplicate=", read_duplicate,
     "write the part of the messages that comes twice, as 0.01 or 1%"},
    {"corrupt=", read_corrupt,
     "write the part of the messages in which a bit flips, as 0.01 or 1%"},
    {"reorder=", read_reorder,
     "write the part of the messages that the next one overtakes, as 1%, optionally with how long "
     "a message waits for the next one, as 1%:20ms"},
    {"stall=", read_stall,
     "write how often the wire pauses before a message, as 1%, optionally with how long, as "
     "1%:200ms"},
    {"disconnect=", read_disconnect,
     "write after how many messages (100) or bytes (5mb) the wire breaks, or how likely that is "
     "at each message (0.1%)"},
    {"seed=", read_seed, "write a whole number of at most 15 digits"},
    {"time=", read_clock, "write real or virtual"},
};
enum { WORDS = sizeof words / sizeof *words };

static dw_status blame(const dw_transport_open *how, const char *word, size_t len,
                       const char *advice)
{
    return dw_say_at(how->why, DW_ERR_CONFIG, (int)(word - how->address), "'%.*s': %s",
                     len > 60 ? 60 : (int)len, word, advice);
}

static dw_status read_word(dw_shaped_settings *settings, unsigned *given,
                           const dw_transport_open *how, const char *text, size_t len)
{
    for (unsigned i = 0; i < WORDS; i++) {
        size_t name_len = strlen(words[i].name);
        if (len <= name_len || memcmp(text, words[i].name, name_len) != 0) continue;
        if (*given & 1u << i) return blame(how, text, len, "this word is given twice");
        *given |= 1u << i;
        reader from = {.settings = settings, .text = text + name_len, .len = len - name_len};
        return words[i].read(&from) ? DW_OK : blame(how, from.text, from.len, words[i].advice);
    }
    return blame(how, text, len,
                 "a shaped link knows rate=100mbit, delay=20ms, jitter=, loss=1%, duplicate=, "
                 "corrupt=, reorder=, "
                 "stall=, disconnect=, seed= and time=");
}

const char *dw_shaped_behind(const char *address)
{
    const char *slash = strchr(address, '/');
    return slash && slash[1] != '\0' && slash[1] != '/' ? slash + 1 : NULL;
}

dw_status dw_shaped_read_settings(dw_shaped_settings *settings, const dw_transport_open *how,
                                  const char **inner_uri)
{
    const char *behind = dw_shaped_behind(how->address);
    if (!behind) {
        return dw_say_at(how->why, DW_ERR_CONFIG, 0,
                         "'%.80s' does not say what to shape; write "
                         "shaped:rate=100mbit,delay=20ms/tcp://host:port",
                         how->address);
    }
    *settings = (dw_shaped_settings){.seed = 1};
    unsigned given = 0;
    const char *word = how->address;
    while (word < behind) {
        size_t len = strcspn(word, ",/");
        dw_status status = read_word(settings, &given, how, word, len);
        if (status != DW_OK) return status;
        word += len + 1;
    }
    *inner_uri = behind;
    return DW_OK;
}
