/* SPDX-License-Identifier: Apache-2.0
 * kernels_rans_x86.h - the kernels of the entropy coder for AVX2 and AVX-512, around the steps of
 * kernels_rans_avx2.h and kernels_rans_avx512.h.
 *
 * A group is 32 symbols in a row, one for each state. Whole groups are coded by vectors; what is
 * left over at the end of a block is coded one symbol after the other.
 *
 * wide table:
 * | table   | entry                                                                                  |
 * | slots   | frequency (12 bits), rank of the slot within its symbol (12), symbol (8)               |
 * | entries | two words: the inverse of the frequency; 4096 minus the frequency (12), start (12),    |
 * |         | shift (4), zeros (3), whether 1 is added before the multiplication (1)                 |
 */
enum { RANS_SYMBOL_AT = 24, RANS_SHIFT_AT = 24, RANS_MORE_AT = 31 };

/* Tables are looked up by loads of single entries. With gathers a decode took twice as long (Zen
 * 3), and processors whose microcode makes gathers safe against speculation are slower still at
 * them. */
DW_VECTOR __m128i rans_four_slots(const uint32_t *slots, uint64_t first, uint64_t second)
{
    __m128i got = _mm_cvtsi32_si128((int)slots[(uint32_t)first]);
    got = _mm_insert_epi32(got, (int)slots[first >> 32], 1);
    got = _mm_insert_epi32(got, (int)slots[(uint32_t)second], 2);
    return _mm_insert_epi32(got, (int)slots[second >> 32], 3);
}

DW_VECTOR __m256i rans_eight_slots(const uint32_t *slots, __m256i index)
{
    __m128i low = _mm256_castsi256_si128(index), high = _mm256_extracti128_si256(index, 1);
    __m128i a = rans_four_slots(slots, (uint64_t)_mm_cvtsi128_si64(low),
                                (uint64_t)_mm_extract_epi64(low, 1)),
            b = rans_four_slots(slots, (uint64_t)_mm_cvtsi128_si64(high),
                                (uint64_t)_mm_extract_epi64(high, 1));
    return _mm256_inserti128_si256(_mm256_castsi128_si256(a), b, 1);
}

/* Entries a, b, c and d. */
DW_VECTOR __m256i rans_four_entries(const uint64_t *entries, uint32_t a, uint32_t b, uint32_t c,
                                    uint32_t d)
{
    __m128i low = _mm_castpd_si128(
        _mm_loadh_pd(_mm_castsi128_pd(_mm_loadl_epi64((const void *)(entries + a))),
                     (const void *)(entries + b)));
    __m128i high = _mm_castpd_si128(
        _mm_loadh_pd(_mm_castsi128_pd(_mm_loadl_epi64((const void *)(entries + c))),
                     (const void *)(entries + d)));
    return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}

#ifdef __AVX512F__
#include "kernels/kernels_rans_avx512.h"
#else
#include "kernels/kernels_rans_avx2.h"
#endif

enum { RANS_GROUP_BYTES = 2 * DW_RANS_STATES };

static uint32_t rans_symbols_of(uint32_t range, uint32_t per_symbol)
{
    uint32_t pairs = range * range;
    return per_symbol == 1 ? range : per_symbol == 2 ? pairs : pairs * pairs;
}

/* ---- Histogram ------------------------------------------------------------------------------- */

enum {
    COUNTED_AT_ONCE = 8,
    MOST_COUNTED = 32, /* codes that are compared with all others */
    MOST_TURNS = 255,  /* a counter has 8 bits */
    FEW_OUTLIERS = 64  /* at most one code in so many is counted by itself */
};

/* Counts COUNTED_AT_ONCE codes from `first` on in so many times 32 codes. */
static void count_some(const uint8_t *codes, uint64_t turns, uint32_t first, uint32_t *counts)
{
    __m256i sums[COUNTED_AT_ONCE], which[COUNTED_AT_ONCE];
    for (int i = 0; i < COUNTED_AT_ONCE; i++) {
        sums[i] = _mm256_setzero_si256();
        which[i] = _mm256_set1_epi8((char)(first + (uint32_t)i));
    }
    for (uint64_t t = 0; t < turns; t++) {
        __m256i some = _mm256_loadu_si256((const void *)(codes + 32 * t));
        for (int i = 0; i < COUNTED_AT_ONCE; i++)
            sums[i] = _mm256_sub_epi8(sums[i], _mm256_cmpeq_epi8(some, which[i]));
    }
    for (uint32_t i = 0; i < COUNTED_AT_ONCE && first + i < 256; i++) {
        uint64_t quarters[4];
        _mm256_storeu_si256((void *)quarters, _mm256_sad_epu8(sums[i], _mm256_setzero_si256()));
        counts[first + i] += (uint32_t)(quarters[0] + quarters[1] + quarters[2] + quarters[3]);
    }
}

/* Counts the codes from `first` to `last` in so many times 32 codes. */
static void count_range(const uint8_t *codes, uint64_t turns, uint32_t first, uint32_t last,
                        uint32_t *counts)
{
    for (uint64_t t = 0; t < turns; t += MOST_TURNS)
        for (uint32_t c = first; c <= last; c += COUNTED_AT_ONCE)
            count_some(codes + 32 * t, turns - t < MOST_TURNS ? turns - t : MOST_TURNS, c, counts);
}

/* The lowest and the highest of so many times 32 codes. */
typedef struct code_range {
    uint32_t first, last;
} code_range;

static code_range range_of(const uint8_t *codes, uint64_t turns)
{
    __m256i least = _mm256_set1_epi8(-1), most = _mm256_setzero_si256();
    uint8_t low[32], high[32];
    for (uint64_t t = 0; t < turns; t++) {
        __m256i some = _mm256_loadu_si256((const void *)(codes + 32 * t));
        least = _mm256_min_epu8(least, some);
        most = _mm256_max_epu8(most, some);
    }
    _mm256_storeu_si256((void *)low, least);
    _mm256_storeu_si256((void *)high, most);
    code_range range = {255, 0};
    for (int i = 0; i < 32; i++) {
        range.first = low[i] < range.first ? low[i] : range.first;
        range.last = high[i] > range.last ? high[i] : range.last;
    }
    return range;
}

/* Counts the codes that are below range.first or above range.last, one by one, in so many times 32
 * codes. Returns false if it stopped because there are more than `most` of them. */
static bool count_outliers(const uint8_t *codes, uint64_t turns, code_range range, uint64_t most,
                           uint32_t *counts)
{
    __m256i first = _mm256_set1_epi8((char)range.first),
            reach = _mm256_set1_epi8((char)(range.last - range.first));
    for (uint64_t t = 0; t < turns; t++, codes += 32) {
        __m256i above = _mm256_sub_epi8(_mm256_loadu_si256((const void *)codes), first);
        __m256i is_in = _mm256_cmpeq_epi8(_mm256_min_epu8(above, reach), above);
        uint32_t outliers = ~(uint32_t)_mm256_movemask_epi8(is_in);
        uint32_t count = (uint32_t)_mm_popcnt_u32(outliers);
        if (count > most) return false;
        for (most -= count; outliers; outliers &= outliers - 1)
            counts[codes[__builtin_ctz(outliers)]]++;
    }
    return true;
}

/* Codes of steps are spread around DW_STEP_ZERO, most of them close to it. Returns the smallest
 * range around it, of at most MOST_COUNTED codes, that leaves few outliers, which it counts.
 * Returns a range without codes if there is none. The size of the range is a multiple of
 * COUNTED_AT_ONCE, so count_range then counts the codes of the range alone, and no outlier twice.
 */
static code_range count_all_outliers(const uint8_t *codes, uint64_t turns, uint32_t *counts)
{
    for (uint32_t reach = COUNTED_AT_ONCE / 2; 2 * reach <= MOST_COUNTED; reach *= 2) {
        code_range range = {DW_STEP_ZERO - reach, DW_STEP_ZERO + reach - 1};
        if (count_outliers(codes, turns, range, 32 * turns / FEW_OUTLIERS, counts)) return range;
        memset(counts, 0, 256 * sizeof *counts);
    }
    return (code_range){1, 0};
}

/* If all codes lie in a small range, or nearly all are close to DW_STEP_ZERO, every code value of
 * that range is compared with all codes. Otherwise the C kernel counts. */
static void histogram(const uint8_t *codes, uint64_t n, uint32_t counts[256])
{
    uint64_t turns = n / 32;
    code_range range = range_of(codes, turns);
    memset(counts, 0, 256 * sizeof *counts);
    if (turns > 0 && range.last - range.first >= 2 * COUNTED_AT_ONCE) {
        code_range near = count_all_outliers(codes, turns, counts);
        if (near.first <= near.last || range.last - range.first >= MOST_COUNTED) range = near;
    }
    if (range.first > range.last) {
        dw_kernels_c.histogram(codes, n, counts);
        return;
    }
    count_range(codes, turns, range.first, range.last, counts);
    for (uint64_t i = 32 * turns; i < n; i++) counts[codes[i]]++;
}

/* ---- Encode ---------------------------------------------------------------------------------- */

/* x / f = (x + more) * inverse >> (32 + shift) for all x < 2^20 f, which is what a state is after
 * renormalization. Let e be what inverse * f exceeds 2^(32 + shift) by: the quotient is exact where
 * e * f <= 2^(12 + shift). Else the inverse is one less and 1 is added to x, which is exact where
 * (f - e) * f is not more than that. One of both is true: f <= 2^(shift + 1), and e or f - e is at
 * most 2^11. For f = 1 this inverse is 2^32 - 1, again with 1 added. */
static uint64_t rans_entry(uint32_t f, uint32_t start)
{
    uint32_t shift = 0, more = 0;
    while (f > 2u << shift) shift++;
    uint64_t power = (uint64_t)1 << (32 + shift), inverse = (power + f - 1) / f;
    if ((inverse * f - power) * f > (uint64_t)1 << (12 + shift) || f == 1) {
        inverse--;
        more = 1;
    }
    uint32_t rest =
        (DW_RANS_SLOTS - f) | start << DW_RANS_BITS | shift << RANS_SHIFT_AT | more << RANS_MORE_AT;
    return inverse | (uint64_t)rest << 32;
}

/* The symbols of a group as bytes. */
DW_VECTOR __m256i rans_symbols(const uint8_t *codes, uint32_t per_symbol, uint32_t least,
                               uint32_t range)
{
    __m256i part[4], first = _mm256_set1_epi8((char)least);
    __m256i ones_and_range = _mm256_set1_epi16((short)(1 | range << 8)),
            ones_and_square = _mm256_set1_epi32((int)(1 | range * range << 16));
    for (uint32_t i = 0; i < per_symbol; i++) {
        part[i] = _mm256_sub_epi8(_mm256_loadu_si256((const void *)(codes + 32 * i)), first);
        if (per_symbol > 1) part[i] = _mm256_maddubs_epi16(part[i], ones_and_range);
        if (per_symbol > 2) part[i] = _mm256_madd_epi16(part[i], ones_and_square);
    }
    if (per_symbol == 1) return part[0];
    if (per_symbol == 2)
        return _mm256_permute4x64_epi64(_mm256_packus_epi16(part[0], part[1]), 0xd8);
    __m256i low = _mm256_packus_epi32(part[0], part[1]),
            high = _mm256_packus_epi32(part[2], part[3]);
    return _mm256_permutevar8x32_epi32(_mm256_packus_epi16(low, high),
                                       _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

DW_VECTOR uint64_t rans_encode_groups(const dw_rans_encode_run *run, uint64_t groups,
                                      uint64_t words, uint32_t per_symbol)
{
    const uint64_t *entries = (const uint64_t *)(const void *)run->scratch;
    rans_group x = rans_take(run->states);
    uint8_t *end = run->end - 2 * words;
    while (groups-- > 0) {
        const uint8_t *codes = run->codes + groups * DW_RANS_STATES * per_symbol;
        __m256i symbols = rans_symbols(codes, per_symbol, run->least, run->range);
        rans_encode_group(&x, symbols, entries, &end);
        if ((uint64_t)(run->end - end) > 2 * run->most) break;
    }
    rans_give(run->states, x);
    return (uint64_t)(run->end - end) / 2;
}

static uint64_t rans_encode(const dw_rans_encode_run *run)
{
    uint64_t group = (uint64_t)DW_RANS_STATES * run->per_symbol, groups = run->n / group, words = 0;
    uint64_t *entries = (uint64_t *)(void *)run->scratch;
    uint32_t symbols = rans_symbols_of(run->range, run->per_symbol);
    if (groups * group < run->n) {
        dw_rans_encode_run rest = *run;
        rest.codes += groups * group;
        rest.n -= groups * group;
        words = dw_kernels_c.rans_encode(&rest);
        if (words > run->most) return words;
    }
    for (uint32_t s = 0; s < symbols; s++) {
        uint32_t start = run->start[s], f = run->frequencies[s];
        entries[s] = f > 0 ? rans_entry(f, start) : 0;
    }
    if (run->per_symbol == 1) return rans_encode_groups(run, groups, words, 1);
    if (run->per_symbol == 2) return rans_encode_groups(run, groups, words, 2);
    return rans_encode_groups(run, groups, words, 4);
}

/* ---- Decode ---------------------------------------------------------------------------------- */

/* Fills the slots of one symbol, `start` to start + f - 1. Eight entries are stored at a time.
 * Surplus ones are overwritten by the next symbol, or lie behind the table, where the scratch has
 * more room. */
DW_VECTOR void rans_fill_symbol(uint32_t *slots, uint32_t start, uint32_t f, uint32_t symbol)
{
    __m256i ranks = _mm256_slli_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), DW_RANS_BITS);
    __m256i slot = _mm256_add_epi32(_mm256_set1_epi32((int)(f | symbol << RANS_SYMBOL_AT)), ranks);
    for (uint32_t i = 0; i < f; i += 8) {
        _mm256_storeu_si256((void *)(slots + start + i), slot);
        slot = _mm256_add_epi32(slot, _mm256_set1_epi32(8 << DW_RANS_BITS));
    }
}

static void rans_fill_slots(const dw_rans_decode_run *run)
{
    uint32_t symbols = rans_symbols_of(run->range, run->per_symbol);
    for (uint32_t s = 0; s < symbols; s++)
        rans_fill_symbol(run->scratch, run->start[s], (uint32_t)(run->start[s + 1] - run->start[s]),
                         s);
}

/* Quotients by range, and by its square, of symbols, which are less than 256. */
typedef struct rans_digits {
    __m256i inverse, inverse_square, square, rest, least;
} rans_digits;

DW_VECTOR rans_digits rans_digits_of(uint32_t range, uint32_t least)
{
    return (rans_digits){_mm256_set1_epi16((short)(65535 / range + 1)),
                         _mm256_set1_epi16((short)(65535 / (range * range) + 1)),
                         _mm256_set1_epi16((short)(range * range)),
                         _mm256_set1_epi16((short)(256 - range)), _mm256_set1_epi8((char)least)};
}

/* Splits pairs into their codes. Each 16 bits of `pairs` hold a number a + range * b, which stands
 * for the codes a and b, both minus `least`. The result has a + least in the lower byte and b +
 * least in the upper one: a + 256 * b is the pair plus b * d.rest, where d.rest is 256 - range. */
DW_VECTOR __m256i rans_two_codes(__m256i pairs, rans_digits d)
{
    __m256i second = _mm256_mulhi_epu16(pairs, d.inverse);
    return _mm256_add_epi8(_mm256_add_epi16(pairs, _mm256_mullo_epi16(second, d.rest)), d.least);
}

/* Writes the codes of 32 symbols. */
DW_VECTOR void rans_put_codes(uint8_t *to, __m256i symbols, uint32_t per_symbol, rans_digits d)
{
    __m128i half[2] = {_mm256_castsi256_si128(symbols), _mm256_extracti128_si256(symbols, 1)};
    if (per_symbol == 1) _mm256_storeu_si256((void *)to, _mm256_add_epi8(symbols, d.least));
    for (int i = 0; i < 2 && per_symbol == 2; i++)
        _mm256_storeu_si256((void *)(to + 32 * i),
                            rans_two_codes(_mm256_cvtepu8_epi16(half[i]), d));
    for (int i = 0; i < 4 && per_symbol == 4; i++) {
        __m128i eight = i % 2 ? _mm_srli_si128(half[i / 2], 8) : half[i / 2];
        __m256i fours = _mm256_cvtepu8_epi32(eight);
        __m256i upper = _mm256_mulhi_epu16(fours, d.inverse_square);
        __m256i lower = _mm256_sub_epi32(fours, _mm256_mullo_epi16(upper, d.square));
        __m256i pairs = _mm256_or_si256(lower, _mm256_slli_epi32(upper, 16));
        _mm256_storeu_si256((void *)(to + 32 * i), rans_two_codes(pairs, d));
    }
}

/* The words of a block that are not yet decoded. Decoding a group of 32 symbols loads up to
 * RANS_GROUP_BYTES from `next`. Before such a load could pass the end of the block, the last words
 * are copied to `copy`, with zeros behind them, and decoding continues there. */
typedef struct rans_words {
    const uint8_t *next, *end; /* the next word, and the end of the words */
    uint64_t bytes_before;     /* the bytes of all words that lie in front of the copied ones */
    uint8_t copy[2 * RANS_GROUP_BYTES];
    bool is_copy; /* next and end point into `copy` */
} rans_words;

/* Called where less than a group's words are left. Returns false where some were read that are not
 * there. */
static bool rans_last_words(rans_words *w, const uint8_t *begin)
{
    if (w->is_copy) return w->next <= w->end;
    size_t left = (size_t)(w->end - w->next);
    memset(w->copy, 0, sizeof w->copy);
    memcpy(w->copy, w->next, left);
    w->bytes_before = (uint64_t)(w->next - begin);
    w->next = w->copy;
    w->end = w->copy + left;
    w->is_copy = true;
    return true;
}

/* To be called before each group of codes is decoded. Near the end of the block it lets *w continue
 * in a copy of the last words, so that a load never passes the end of the block. The loop has its
 * own copies of w->next and w->end, in *next and *end, so that they stay in registers. Returns
 * false if the codes so far have used more words than the block has. */
DW_VECTOR bool rans_has_words(rans_words *w, const uint8_t *begin, const uint8_t **next,
                              const uint8_t **end)
{
    if (*end - *next >= RANS_GROUP_BYTES) return true;
    w->next = *next;
    if (!rans_last_words(w, begin)) return false;
    *next = w->next;
    *end = w->end;
    return true;
}

DW_VECTOR bool rans_decode_groups(const dw_rans_decode_run *run, uint64_t groups, rans_words *w,
                                  uint32_t per_symbol)
{
    rans_digits digits = rans_digits_of(run->range, run->least);
    rans_group x = rans_take(run->states);
    const uint8_t *next = w->next, *end = w->end;
    for (uint64_t g = 0; g < groups; g++) {
        if (!rans_has_words(w, run->words, &next, &end)) return false;
        __m256i symbols = rans_decode_group(&x, run->scratch, &next);
        rans_put_codes(run->codes + g * DW_RANS_STATES * per_symbol, symbols, per_symbol, digits);
    }
    rans_give(run->states, x);
    w->next = next;
    return next <= end;
}

/* The symbols behind the whole groups, one by one. Returns false where words are missing. */
static bool rans_decode_rest(const dw_rans_decode_run *run, uint64_t at, rans_words *w)
{
    for (uint32_t j = 0; at < run->n; j++) {
        uint32_t x = run->states[j], slot = run->scratch[x % DW_RANS_SLOTS];
        x = slot % DW_RANS_SLOTS * (x >> DW_RANS_BITS) + (slot >> DW_RANS_BITS) % DW_RANS_SLOTS;
        if (x < DW_RANS_LOWEST) {
            if (w->next == w->end) return false;
            x = x << 16 | w->next[0] | (uint32_t)w->next[1] << 8;
            w->next += 2;
        }
        run->states[j] = x;
        uint32_t symbol = slot >> RANS_SYMBOL_AT;
        for (uint32_t i = 0; i < run->per_symbol && at < run->n; i++, symbol /= run->range)
            run->codes[at++] = (uint8_t)(run->least + symbol % run->range);
    }
    return true;
}

static uint64_t rans_decode(const dw_rans_decode_run *run)
{
    uint64_t group = (uint64_t)DW_RANS_STATES * run->per_symbol, groups = run->n / group;
    rans_words w = {.next = run->words, .end = run->words + 2 * run->count};
    rans_fill_slots(run);
    bool enough = run->per_symbol == 1   ? rans_decode_groups(run, groups, &w, 1)
                  : run->per_symbol == 2 ? rans_decode_groups(run, groups, &w, 2)
                                         : rans_decode_groups(run, groups, &w, 4);
    if (!enough || !rans_decode_rest(run, groups * group, &w)) return run->count + 1;
    return (w.bytes_before + (uint64_t)(w.next - (w.is_copy ? w.copy : run->words))) / 2;
}

/* ---- Codes that follow a trellis (arithmetic/trellis.h) ---------------------------------------
 */

/* The symbols of the slots are marks. */
static void rans_fill_trellis(const dw_rans_trellis_run *run)
{
    for (uint32_t kind = 0; kind < DW_TRELLIS_KINDS; kind++) {
        const dw_rans_table *table = &run->tables[kind];
        for (uint32_t s = 0; s < table->range; s++)
            rans_fill_symbol(run->scratch + kind * DW_RANS_SLOTS, table->start[s],
                             (uint32_t)(table->start[s + 1] - table->start[s]),
                             2 * (table->least + s) - DW_TRELLIS_ZERO + kind);
    }
}

/* The codes of 32 marks, as dw_trellis_code has it for one. The comparison is signed, so that bytes
 * are compared after the top bit was turned, which makes DW_TRELLIS_ZERO 0. */
DW_VECTOR __m256i rans_codes_of_marks(__m256i marks)
{
    __m256i turned = _mm256_xor_si256(marks, _mm256_set1_epi8((char)0x80)),
            is_odd = _mm256_and_si256(marks, _mm256_set1_epi8(1));
    __m256i above = _mm256_cmpgt_epi8(turned, _mm256_setzero_si256()),
            beyond = _mm256_cmpgt_epi8(turned, _mm256_set1_epi8(1));
    __m256i nearer =
        _mm256_add_epi8(_mm256_and_si256(is_odd, above), _mm256_and_si256(is_odd, beyond));
    return _mm256_sub_epi8(marks, nearer);
}

/* Decodes whole groups. trellis: the trellis states. Returns false where words are missing. */
DW_VECTOR bool rans_decode_trellis_groups(const dw_rans_trellis_run *run, uint64_t groups,
                                          rans_words *w, uint32_t *trellis)
{
    rans_group x = rans_take(run->states), t = rans_take(trellis);
    const uint8_t *next = w->next, *end = w->end;
    for (uint64_t g = 0; g < groups; g++) {
        if (!rans_has_words(w, run->words, &next, &end)) return false;
        __m256i marks = rans_trellis_group(&x, &t, run->scratch, &next);
        _mm256_storeu_si256((void *)(run->codes + g * DW_RANS_STATES), rans_codes_of_marks(marks));
    }
    rans_give(run->states, x);
    rans_give(trellis, t);
    w->next = next;
    return next <= end;
}

/* The codes behind the whole groups, one by one. Returns false where words are missing. */
static bool rans_decode_trellis_rest(const dw_rans_trellis_run *run, uint64_t at, rans_words *w,
                                     const uint32_t *trellis)
{
    for (uint32_t j = 0; at < run->n; at++, j++) {
        uint32_t x = run->states[j], kind = trellis[j] >> 1,
                 slot = run->scratch[kind * DW_RANS_SLOTS + x % DW_RANS_SLOTS];
        x = slot % DW_RANS_SLOTS * (x >> DW_RANS_BITS) + (slot >> DW_RANS_BITS) % DW_RANS_SLOTS;
        if (x < DW_RANS_LOWEST) {
            if (w->next == w->end) return false;
            x = x << 16 | w->next[0] | (uint32_t)w->next[1] << 8;
            w->next += 2;
        }
        run->states[j] = x;
        run->codes[at] = dw_trellis_code((uint8_t)(slot >> RANS_SYMBOL_AT));
    }
    return true;
}

static uint64_t rans_decode_trellis(const dw_rans_trellis_run *run)
{
    uint32_t trellis[DW_RANS_STATES] = {0};
    uint64_t groups = run->n / DW_RANS_STATES;
    rans_words w = {.next = run->words, .end = run->words + 2 * run->count};
    rans_fill_trellis(run);
    if (!rans_decode_trellis_groups(run, groups, &w, trellis) ||
        !rans_decode_trellis_rest(run, groups * DW_RANS_STATES, &w, trellis))
        return run->count + 1;
    return (w.bytes_before + (uint64_t)(w.next - (w.is_copy ? w.copy : run->words))) / 2;
}

/* The marks of 32 codes. *states: a byte each. */
DW_VECTOR __m256i trellis_marks_of(__m256i codes, __m256i *states)
{
    __m256i zero = _mm256_setzero_si256(), one = _mm256_set1_epi8(1),
            top = _mm256_set1_epi8((char)0x80);
    __m256i level = _mm256_xor_si256(codes, top);                 /* less 128, as a signed byte */
    __m256i size = _mm256_avg_epu8(_mm256_abs_epi8(level), zero); /* of the index */
    __m256i index = _mm256_sign_epi8(size, level), s = *states;
    __m256i kind = _mm256_and_si256(_mm256_srli_epi16(s, 1), one);
    __m256i low = _mm256_and_si256(_mm256_xor_si256(s, size), one);
    *states = _mm256_or_si256(_mm256_add_epi8(low, low), kind);
    return _mm256_xor_si256(_mm256_add_epi8(_mm256_add_epi8(index, index), kind), top);
}

static void trellis_marks(const uint8_t *codes, uint64_t n, uint8_t *states, uint8_t *marks)
{
    __m256i s = _mm256_loadu_si256((const void *)states);
    uint64_t whole = n / DW_TRELLIS_LANES * DW_TRELLIS_LANES;
    for (uint64_t at = 0; at < whole; at += DW_TRELLIS_LANES)
        _mm256_storeu_si256((void *)(marks + at),
                            trellis_marks_of(_mm256_loadu_si256((const void *)(codes + at)), &s));
    _mm256_storeu_si256((void *)states, s);
    dw_kernels_c.trellis_marks(codes + whole, n - whole, states, marks + whole);
}
