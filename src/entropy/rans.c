/* SPDX-License-Identifier: Apache-2.0
 * rans.c - blocks of entropy-coded codes: writes and reads what stands in front of the words, and
 * chooses how many codes make a symbol. Kernels encode and decode the symbols (kernels/rans_run.h).
 *
 * Below, a table means the frequencies of codes and what follows from them. A block has one table,
 * or four parts with a table each. */
#include "entropy/rans.h"

#include "entropy/frequencies.h"
#include "wire/bytes.h"

enum {
    HEADER_BYTES = 6,
    HEAD_BYTES = 3,  /* of each part but the first; that of the first is in the header */
    LENGTH_BITS = 4, /* the bits that say how many bits a frequency has */
    STATE_BYTES = 4 * DW_RANS_STATES,
    WAYS = 3, /* a symbol is made of 1, 2 or 4 codes; way w means 2^w */
    ALIGNMENT = 64
};

/* The table of one part, or of a block without parts. Its codes are least to least + range - 1.
 * frequencies: indexed by code minus least. per_symbol, fill and start: see
 * kernels/rans_run.h. */
typedef struct rans_table {
    uint32_t per_symbol, least, range, fill;
    uint16_t frequencies[256], start[DW_RANS_SYMBOLS + 1];
} rans_table;

/* Memory for making a table. */
typedef struct planning {
    uint32_t counts[256]; /* how often each code occurs */
    /* For symbols of 1, 2 and 4 codes: the weights that follow from the table's frequencies, which
     * are rounded; the weights that follow from the counts; and the first slot of each symbol. */
    uint32_t weights[WAYS][DW_RANS_SYMBOLS], counted[WAYS][DW_RANS_SYMBOLS];
    uint16_t start[WAYS][DW_RANS_SYMBOLS + 1];
} planning;

/* The caller's memory `work`. No call uses what an earlier one has left in it. */
typedef struct rans_work {
    union { /* tables are made before kernels run */
        uint32_t kernel[DW_RANS_SCRATCH];
        planning plan;
    } scratch;
    uint32_t states[DW_RANS_STATES];
    /* An encoder uses the first for the block without parts and the others for that with parts,
     * because it makes both and compares them. A decoder uses as many as its block has. */
    rans_table tables[1 + DW_PARTS];
} rans_work;

size_t dw_rans_bound(uint64_t n)
{
    return (size_t)n - 1;
}

size_t dw_rans_work_bytes(uint64_t n)
{
    return ALIGNMENT + sizeof(rans_work) + DW_RANS_ROOM + (size_t)n;
}

static rans_work *aligned(void *work)
{
    uintptr_t place = (uintptr_t)work;
    return (rans_work *)(void *)((uint8_t *)work + (ALIGNMENT - place % ALIGNMENT) % ALIGNMENT);
}

/* Returns how many bits a frequency has without leading zeros. */
static uint32_t length_of(uint32_t frequency)
{
    uint32_t length = 0;
    for (; frequency >> length > 0; length++) continue;
    return length;
}

/* Returns how many different symbols can be made of per_symbol codes out of `range`, or 0 where
 * there are more than 256. */
static uint32_t symbols_of(uint32_t range, uint32_t per_symbol)
{
    uint32_t symbols = 1;
    for (uint32_t i = 0; i < per_symbol && symbols <= DW_RANS_SYMBOLS; i++) symbols *= range;
    return symbols <= DW_RANS_SYMBOLS ? symbols : 0;
}

/* ---- Encode ---------------------------------------------------------------------------------- */

/* A block for which all is decided but its words are not yet made. */
typedef struct draft {
    const uint8_t *codes;   /* of all parts, with DW_PART_GAP bytes behind each */
    const uint32_t *counts; /* the number of codes in each part */
    uint32_t parts;         /* 1 for a block without parts */
    rans_table *tables;     /* one for each part */
    size_t front_bytes;     /* the length of what stands in front of the words */
    uint64_t bits;          /* an estimate of what the words take */
} draft;

/* Chooses how many codes make a symbol of a part with n codes, and sets per_symbol and start of its
 * table. Returns an estimate of the bits that the part takes with one code per symbol.
 *
 * Several codes per symbol save time. They cost bytes where many symbols occur that should have
 * less than one slot; so they are chosen only where they cost no more than one byte in 128. */
static uint64_t choose_per_symbol(planning *w, rans_table *table, uint64_t n)
{
    uint32_t symbols = table->range, best = 0;
    uint64_t least_bits = dw_bits_of_slots(w->counted[0], symbols, w->start[0], n);
    dw_weights_of_frequencies(table->frequencies, symbols, w->weights[0]);
    for (uint32_t way = 1; way < WAYS && symbols_of(symbols, 2) > 0; way++) {
        uint32_t k = 1u << way;
        dw_weights_of_pairs(w->counted[way - 1], symbols, w->counted[way]);
        symbols = dw_weights_of_pairs(w->weights[way - 1], symbols, w->weights[way]);
        dw_slots_of_weights(w->weights[way], symbols, w->start[way]);
        uint64_t bits = dw_bits_of_slots(w->counted[way], symbols, w->start[way], (n + k - 1) / k);
        if (bits <= least_bits + least_bits / 128) best = way;
    }
    table->per_symbol = 1u << best;
    memcpy(table->start, w->start[best], sizeof table->start);
    return least_bits;
}

/* Makes the table of a part with n codes, which were counted before, and adds to the draft what the
 * part takes. */
static void plan_part(planning *w, rans_table *table, uint64_t n, draft *d)
{
    uint32_t last = 255, table_bits = 0;
    *table = (rans_table){.per_symbol = 1};
    while (w->counts[table->least] == 0) table->least++;
    while (w->counts[last] == 0) last--;
    table->range = last - table->least + 1;
    if (table->range == 1) return;
    dw_weights_of_counts(w->counts + table->least, table->range, n, w->counted[0]);
    dw_slots_of_weights(w->counted[0], table->range, w->start[0]);
    for (uint32_t c = 0; c < table->range; c++) {
        uint16_t f = (uint16_t)(w->start[0][c + 1] - w->start[0][c]);
        table->frequencies[c] = f;
        if (f > table->frequencies[table->fill]) table->fill = c;
        table_bits += 3 + length_of(f) + (f == 0);
    }
    d->front_bytes += (table_bits + 7) / 8;
    d->bits += choose_per_symbol(w, table, n);
}

/* Returns whether the block has states and words. It has none if the codes of every part are all
 * the same. */
static bool needs_states(const rans_table *tables, uint32_t parts)
{
    bool needs = false;
    for (uint32_t i = 0; i < parts; i++) needs = needs || tables[i].range > 1;
    return needs;
}

/* Returns a draft of a block. counts: the number of codes in each of its parts. tables: memory for
 * their tables. */
static draft plan_block(const dw_kernels *kernels, rans_work *w, const uint8_t *codes,
                        const uint32_t *counts, uint32_t parts, rans_table *tables)
{
    draft d = {.codes = codes, .counts = counts, .parts = parts, .tables = tables};
    d.front_bytes = HEADER_BYTES + HEAD_BYTES * (size_t)(parts - 1);
    for (uint32_t i = 0; i < parts; codes += counts[i++] + DW_PART_GAP) {
        kernels->histogram(codes, counts[i], w->scratch.plan.counts);
        plan_part(&w->scratch.plan, &tables[i], counts[i], &d);
    }
    if (needs_states(tables, parts)) d.front_bytes += STATE_BYTES;
    return d;
}

/* Writes the frequencies of a table. Returns the end of what was written. */
static uint8_t *put_frequencies(const rans_table *table, uint8_t *to)
{
    /* `waiting` holds the bits that do not fill a byte yet: less than 8 between two frequencies. */
    uint32_t waiting = 0, bits = 0;
    if (table->range == 1) return to;
    for (uint32_t c = 0; c < table->range; c++) {
        uint32_t f = table->frequencies[c], length = length_of(f),
                 below = length > 0 ? length - 1 : 0;
        waiting |= (length | (f ^ (f > 0 ? 1u << below : 0)) << LENGTH_BITS) << bits;
        for (bits += LENGTH_BITS + below; bits >= 8; bits -= 8, waiting >>= 8)
            *to++ = (uint8_t)waiting;
    }
    if (bits > 0) *to++ = (uint8_t)waiting;
    return to;
}

/* Writes what stands in front of the words. Returns the end of what was written. */
static uint8_t *put_front(const rans_work *w, const draft *d, uint64_t words, uint8_t *to)
{
    for (uint32_t i = 0; i < d->parts; i++) {
        const rans_table *table = &d->tables[i];
        *to++ = (uint8_t)table->per_symbol;
        *to++ = (uint8_t)table->least;
        *to++ = (uint8_t)(table->range - 1);
        if (i == 0) {
            *to++ = d->parts > 1;
            dw_put(to, words, 2);
            to += 2;
        }
        to = put_frequencies(table, to);
    }
    if (!needs_states(d->tables, d->parts)) return to;
    for (int i = 0; i < DW_RANS_STATES; i++, to += 4) dw_put(to, w->states[i], 4);
    return to;
}

/* Makes the words of all parts, from the last part to the first, and writes them downwards from
 * `end`. Returns how many there are. A number above `room` means that they did not fit, and that
 * not all were made. */
static uint64_t put_words(const dw_kernels *kernels, rans_work *w, const draft *d, uint8_t *end,
                          uint64_t room)
{
    const uint8_t *behind = d->codes;
    uint64_t words = 0;
    for (uint32_t i = 0; i < d->parts; i++) behind += d->counts[i] + DW_PART_GAP;
    for (int i = 0; i < DW_RANS_STATES; i++) w->states[i] = DW_RANS_LOWEST;
    for (uint32_t i = d->parts; i-- > 0 && words <= room;) {
        const rans_table *table = &d->tables[i];
        behind -= d->counts[i] + DW_PART_GAP;
        if (table->range == 1) continue;
        dw_rans_encode_run run = {.codes = behind,
                                  .n = d->counts[i],
                                  .per_symbol = table->per_symbol,
                                  .least = table->least,
                                  .range = table->range,
                                  .fill = table->fill,
                                  .start = table->start,
                                  .states = w->states,
                                  .scratch = w->scratch.kernel,
                                  .end = end - 2 * words,
                                  .most = room - words};
        words += kernels->rans_encode(&run);
    }
    return words;
}

/* Makes the words of a draft and writes the block to `to`. Returns its length, or 0 where it is
 * more than `most` bytes; then `to` is unchanged. */
static size_t put_block(const dw_kernels *kernels, rans_work *w, const draft *d, uint8_t *to,
                        size_t most)
{
    if (d->front_bytes > most) return 0;
    uint64_t room = (most - d->front_bytes) / 2;
    uint8_t *end = (uint8_t *)(w + 1) + DW_RANS_ROOM + 2 * room;
    /* The estimate is exact to one byte in a hundred. So here ends what cannot fit. */
    if (d->bits / 16 > room + room / 64 + DW_RANS_STATES) return 0;
    uint64_t words = put_words(kernels, w, d, end, room);
    if (words > room) return 0;
    uint8_t *behind = put_front(w, d, words, to);
    memcpy(behind, end - 2 * words, 2 * words);
    return d->front_bytes + 2 * words;
}

size_t dw_rans_encode(const dw_kernels *kernels, const dw_rans_codes *codes, uint8_t *to,
                      size_t cap, void *work)
{
    rans_work *w = aligned(work);
    size_t bound = dw_rans_bound(codes->n);
    uint32_t n = (uint32_t)codes->n;
    draft best = plan_block(kernels, w, codes->codes, &n, 1, w->tables);
    if (codes->parted) {
        draft d = plan_block(kernels, w, codes->parted, codes->counts, DW_PARTS, w->tables + 1);
        if (8 * d.front_bytes + d.bits < 8 * best.front_bytes + best.bits) best = d;
    }
    return put_block(kernels, w, &best, to, cap < bound ? cap : bound);
}

/* ---- Decode ---------------------------------------------------------------------------------- */

/* A block that is being read. */
typedef struct reader {
    const uint8_t *from;
    size_t bytes;   /* readable bytes: the block, and perhaps others behind it */
    uint32_t words; /* the number of words, as the header says */
    size_t bit;     /* the position, in bits from the start of the block, of what is read next */
    size_t states;  /* the position of the states, in bytes */
} reader;

/* Reads and checks the head of a part, which is at byte `at`. Returns NULL, or what is wrong. */
static const char *read_head(const reader *r, size_t at, rans_table *table)
{
    if (at + HEAD_BYTES > r->bytes)
        return "an entropy-coded block is cut off in the head of a part";
    *table = (rans_table){
        .per_symbol = r->from[at], .least = r->from[at + 1], .range = r->from[at + 2] + 1u};
    if (table->per_symbol != 1 && table->per_symbol != 2 && table->per_symbol != 4)
        return "the codes per symbol of an entropy-coded block are not 1, 2 or 4";
    if (table->least + table->range > 256) return "the codes of an entropy-coded block pass 255";
    if (table->range == 1 && table->per_symbol != 1)
        return "an entropy-coded block of one code has several per symbol";
    if (symbols_of(table->range, table->per_symbol) == 0)
        return "an entropy-coded block has more than 256 symbols";
    return NULL;
}

/* Returns the next `count` bits of the block, at most 12. Behind the last readable byte, all bits
 * count as zero. */
static uint32_t take_bits(reader *r, uint32_t count)
{
    size_t at = r->bit / 8;
    uint32_t bits = 0;
    for (uint32_t i = 0; i < 3 && at + i < r->bytes; i++)
        bits |= (uint32_t)r->from[at + i] << 8 * i;
    bits = bits >> r->bit % 8 & ((1u << count) - 1);
    r->bit += count;
    return bits;
}

static const char *read_frequencies(reader *r, const rans_table *table, uint16_t *frequencies)
{
    uint32_t sum = 0;
    if (table->range == 1) return NULL;
    for (uint32_t c = 0; c < table->range; c++) {
        uint32_t length = take_bits(r, LENGTH_BITS);
        if (length > DW_RANS_BITS)
            return "a frequency of an entropy-coded block has more than 12 bits";
        frequencies[c] =
            length == 0 ? 0 : (uint16_t)(1u << (length - 1) | take_bits(r, length - 1));
        sum += frequencies[c];
    }
    if (take_bits(r, (8 - r->bit % 8) % 8) != 0)
        return "the bits behind the frequencies of an entropy-coded block are not zero";
    if (sum != DW_RANS_SLOTS) return "the frequencies of an entropy-coded block do not add to 4096";
    if (frequencies[0] == 0 || frequencies[table->range - 1] == 0)
        return "the first or last frequency of an entropy-coded block is zero";
    return NULL;
}

/* Reads and checks what stands in front of the states. Returns NULL, or what is wrong. */
static const char *read_front(reader *r, rans_table *tables, uint32_t parts)
{
    const char *wrong = NULL;
    if (r->bytes < HEADER_BYTES) return "an entropy-coded block is cut off in its header";
    if (r->from[3] != (parts > 1))
        return "the byte that says whether an entropy-coded block has parts is wrong";
    r->words = (uint32_t)dw_get(r->from + 4, 2);
    for (uint32_t i = 0; i < parts && !wrong; i++) {
        size_t at = r->bit / 8;
        wrong = read_head(r, at, &tables[i]);
        r->bit += (size_t)8 * (i == 0 ? HEADER_BYTES : HEAD_BYTES);
        if (!wrong) wrong = read_frequencies(r, &tables[i], tables[i].frequencies);
    }
    r->states = r->bit / 8;
    return wrong;
}

/* Computes the length of the block when what stands in front of the states is known, and checks it.
 * n: the number of codes. Returns NULL, or what is wrong. */
static const char *judge_length(const reader *r, bool has_states, uint64_t n, size_t *used)
{
    *used = r->states + (has_states ? STATE_BYTES : 0) + (size_t)2 * r->words;
    if (!has_states && r->words != 0) return "an entropy-coded block of one code has words";
    if (*used >= n) return "an entropy-coded block is not shorter than its codes";
    return *used > r->bytes ? "an entropy-coded block is cut off" : NULL;
}

static const char *read_states(const uint8_t *from, uint32_t *states)
{
    for (int i = 0; i < DW_RANS_STATES; i++) {
        states[i] = (uint32_t)dw_get(from + 4 * (size_t)i, 4);
        if (states[i] < DW_RANS_LOWEST) return "a state of an entropy-coded block is below 65536";
    }
    return NULL;
}

/* Computes the first slot of every symbol from the frequencies of a table. */
static void find_slots(planning *w, rans_table *table)
{
    uint32_t way = 0, symbols = table->range;
    dw_weights_of_frequencies(table->frequencies, symbols, w->weights[0]);
    for (; 1u << way < table->per_symbol; way++)
        symbols = dw_weights_of_pairs(w->weights[way], symbols, w->weights[way + 1]);
    dw_slots_of_weights(w->weights[way], symbols, table->start);
}

/* Decodes the n codes of a part. *taken: how many words the parts before it have used; the words of
 * this part are added. Returns NULL, or what is wrong. */
static const char *decode_part(const dw_kernels *kernels, rans_work *w, const reader *r,
                               rans_table *table, uint8_t *codes, uint64_t n, uint64_t *taken)
{
    if (table->range == 1) {
        memset(codes, (int)table->least, (size_t)n);
        return NULL;
    }
    find_slots(&w->scratch.plan, table);
    dw_rans_decode_run run = {.codes = codes,
                              .n = n,
                              .per_symbol = table->per_symbol,
                              .least = table->least,
                              .range = table->range,
                              .start = table->start,
                              .states = w->states,
                              .scratch = w->scratch.kernel,
                              .words = r->from + r->states + STATE_BYTES + 2 * *taken,
                              .count = r->words - *taken};
    *taken += kernels->rans_decode(&run);
    return *taken > r->words ? "the words of an entropy-coded block end before its codes" : NULL;
}

/* After the last code every state must be what the encoder began with. */
static const char *judge_end(const rans_work *w, uint64_t words, uint64_t used)
{
    if (used < words) return "an entropy-coded block has more words than its codes need";
    for (int i = 0; i < DW_RANS_STATES; i++)
        if (w->states[i] != DW_RANS_LOWEST)
            return "a state of an entropy-coded block does not end at 65536";
    return NULL;
}

/* Decodes a block. counts: the number of codes in each of its parts, which are written to `codes`
 * with DW_PART_GAP bytes behind each. *used becomes the length of the block. Returns NULL, or what
 * is wrong. */
static const char *decode(const dw_kernels *kernels, reader *r, uint8_t *codes,
                          const uint32_t *counts, uint32_t parts, rans_work *w, size_t *used)
{
    size_t block_bytes;
    uint64_t n = 0, taken = 0;
    const char *wrong = NULL;
    for (uint32_t i = 0; i < parts; i++) {
        if (counts[i] == 0) wrong = "a part of an entropy-coded block has no codes";
        n += counts[i];
    }
    if (!wrong) wrong = read_front(r, w->tables, parts);
    bool has_states = !wrong && needs_states(w->tables, parts);
    if (!wrong) wrong = judge_length(r, has_states, n, &block_bytes);
    if (has_states && !wrong) wrong = read_states(r->from + r->states, w->states);
    for (uint32_t i = 0; i < parts && !wrong; codes += counts[i++] + DW_PART_GAP)
        wrong = decode_part(kernels, w, r, &w->tables[i], codes, counts[i], &taken);
    if (has_states && !wrong) wrong = judge_end(w, r->words, taken);
    if (!wrong) *used = block_bytes;
    return wrong;
}

bool dw_rans_has_parts(const uint8_t *from, size_t bytes)
{
    return bytes >= HEADER_BYTES && from[3] == 1;
}

const char *dw_rans_decode(const dw_kernels *kernels, const uint8_t *from, size_t bytes,
                           uint8_t *codes, uint64_t n, void *work, size_t *used)
{
    uint32_t count = (uint32_t)n;
    reader r = {.from = from, .bytes = bytes};
    return decode(kernels, &r, codes, &count, 1, aligned(work), used);
}

const char *dw_rans_decode_parts(const dw_kernels *kernels, const uint8_t *from, size_t bytes,
                                 uint8_t *codes, const uint32_t *counts, void *work, size_t *used)
{
    reader r = {.from = from, .bytes = bytes};
    return decode(kernels, &r, codes, counts, DW_PARTS, aligned(work), used);
}
