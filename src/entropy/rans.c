/* SPDX-License-Identifier: Apache-2.0
 * rans.c - blocks of entropy-coded codes: makes their tables, and chooses how many codes make a
 * symbol. Kernels encode and decode the symbols (kernels/rans_run.h); what stands in front of the
 * words is written and read by arithmetic/rans.h.
 *
 * Below, a table means the frequencies of codes and what follows from them. A block has one table,
 * or four parts with a table each, or two kinds with a table each, where codes follow a trellis. */
#include "entropy/rans.h"

#include "base/bytes.h"
#include "entropy/frequencies.h"

enum { ALIGNMENT = 64 };

/* Memory for making a table. */
typedef struct planning {
    uint32_t counts[256]; /* how often each code occurs */
    /* For symbols of 1, 2 and 4 codes: the weights that follow from the table's frequencies, which
     * are rounded; the weights that follow from the counts; and the first slot of each symbol. */
    uint32_t weights[DW_RANS_WAYS][DW_RANS_SYMBOLS], counted[DW_RANS_WAYS][DW_RANS_SYMBOLS];
    uint16_t start[DW_RANS_WAYS][DW_RANS_SYMBOLS + 1];
} planning;

/* The caller's memory `work`. No call uses what an earlier one has left in it. */
typedef struct rans_work {
    union { /* tables are made before kernels run */
        uint32_t kernel[DW_RANS_SCRATCH];
        planning plan;
    } scratch;
    uint32_t states[DW_RANS_STATES];
    /* An encoder uses the first for the block with one table and the others for that with several,
     * because it makes both and compares them. A decoder uses as many as its block has. */
    dw_rans_table tables[1 + DW_PARTS];
} rans_work;

size_t dw_rans_bound(uint64_t n)
{
    return (size_t)n - 1;
}

/* What lies behind a rans_work: an encoder's words, or the slots of a decoder that follows a
 * trellis. */
enum { WORK_BYTES = (sizeof(rans_work) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT };

size_t dw_rans_work_bytes(uint64_t n, bool may_trellis)
{
    size_t words = DW_RANS_ROOM + (size_t)n, slots = sizeof(uint32_t) * DW_TRELLIS_SCRATCH;
    return ALIGNMENT + WORK_BYTES + (may_trellis && slots > words ? slots : words);
}

static rans_work *aligned(void *work)
{
    uintptr_t place = (uintptr_t)work;
    return (rans_work *)(void *)((uint8_t *)work + (ALIGNMENT - place % ALIGNMENT) % ALIGNMENT);
}

/* ---- Encode ---------------------------------------------------------------------------------- */

/* A block for which all is decided but its words are not yet made. */
typedef struct draft {
    const uint8_t *codes;   /* of all parts, with DW_PART_GAP bytes behind each; or the marks */
    const uint32_t *counts; /* the number of codes in each part */
    uint32_t parts;         /* 1 for a block without parts, also if its codes follow a trellis */
    bool is_trellis;        /* codes are marks, and there are two tables */
    dw_rans_table *tables;  /* one for each part, or for each kind */
    size_t front_bytes;     /* the length of what stands in front of the words */
    uint64_t bits;          /* an estimate of what the words take */
} draft;

/* Chooses how many codes make a symbol of a part with n codes, and sets per_symbol and start of its
 * table. Returns an estimate of the bits that the part takes with one code per symbol. */
static uint64_t choose_per_symbol(planning *w, dw_rans_table *table, uint64_t n)
{
    uint32_t symbols = table->range, best = 0;
    uint64_t least_bits = dw_bits_of_slots(w->counted[0], symbols, w->start[0], n);
    dw_weights_of_frequencies(table->frequencies, symbols, w->weights[0]);
    for (uint32_t way = 1; way < DW_RANS_WAYS && dw_symbols_of(symbols, 2) > 0; way++) {
        uint32_t k = 1u << way;
        dw_weights_of_pairs(w->counted[way - 1], symbols, w->counted[way]);
        symbols = dw_weights_of_pairs(w->weights[way - 1], symbols, w->weights[way]);
        dw_slots_of_weights(w->weights[way], symbols, w->start[way]);
        uint64_t bits = dw_bits_of_slots(w->counted[way], symbols, w->start[way], (n + k - 1) / k);
        if (dw_rans_pays(bits, least_bits)) best = way;
    }
    table->per_symbol = 1u << best;
    memcpy(table->start, w->start[best], sizeof table->start);
    return least_bits;
}

/* Makes the table of n codes, which were counted before, except for per_symbol and start. Returns
 * how many bits the table takes in the block. */
static uint32_t plan_table(planning *w, dw_rans_table *table, uint64_t n)
{
    uint32_t last = 255, table_bits = 0;
    *table = (dw_rans_table){.per_symbol = 1};
    while (w->counts[table->least] == 0) table->least++;
    while (w->counts[last] == 0) last--;
    table->range = last - table->least + 1;
    if (table->range == 1) return 0;
    dw_weights_of_counts(w->counts + table->least, table->range, n, w->counted[0]);
    dw_slots_of_weights(w->counted[0], table->range, w->start[0]);
    for (uint32_t c = 0; c < table->range; c++) {
        uint16_t f = (uint16_t)(w->start[0][c + 1] - w->start[0][c]);
        table->frequencies[c] = f;
        if (f > table->frequencies[table->fill]) table->fill = c;
        table_bits += dw_frequency_bits(f);
    }
    return table_bits;
}

/* Makes the table of a part with n codes, which were counted before, and adds to the draft what the
 * part takes. */
static void plan_part(planning *w, dw_rans_table *table, uint64_t n, draft *d)
{
    uint32_t table_bits = plan_table(w, table, n);
    if (table->range == 1) return;
    d->front_bytes += (table_bits + 7) / 8;
    d->bits += choose_per_symbol(w, table, n);
}

/* Returns a draft of a block. counts: the number of codes in each of its parts. tables: memory for
 * their tables. */
static draft plan_block(const dw_kernels *kernels, rans_work *w, const uint8_t *codes,
                        const uint32_t *counts, uint32_t parts, dw_rans_table *tables)
{
    draft d = {.codes = codes, .counts = counts, .parts = parts, .tables = tables};
    d.front_bytes = DW_RANS_HEADER_BYTES + DW_RANS_HEAD_BYTES * (size_t)(parts - 1);
    for (uint32_t i = 0; i < parts; codes += counts[i++] + DW_PART_GAP) {
        kernels->histogram(codes, counts[i], w->scratch.plan.counts);
        plan_part(&w->scratch.plan, &tables[i], counts[i], &d);
    }
    if (dw_rans_needs_states(tables, parts)) d.front_bytes += DW_RANS_STATE_BYTES;
    return d;
}

/* Collects from the counts of marks those of one kind, as counts of indices plus 128. The table of
 * a kind has two codes or more. So if fewer occur, one or two are counted that do not. Returns the
 * sum of all counts. */
static uint32_t count_kind(planning *w, const uint32_t *marks, uint32_t kind)
{
    uint32_t n = 0, occurring = 0, middle = DW_TRELLIS_ZERO;
    memset(w->counts, 0, sizeof w->counts);
    for (uint32_t c = DW_TRELLIS_ZERO - DW_TRELLIS_INDEX; c <= DW_TRELLIS_ZERO + DW_TRELLIS_INDEX;
         c++) {
        w->counts[c] = marks[2 * c - DW_TRELLIS_ZERO + kind];
        n += w->counts[c];
        occurring += w->counts[c] > 0;
        if (w->counts[c] > 0) middle = c;
    }
    uint32_t beside = middle > DW_TRELLIS_ZERO ? middle - 1 : middle + 1;
    if (occurring == 0) w->counts[middle] = 1;
    if (occurring <= 1) w->counts[beside] = 1;
    return n + (occurring == 0) + (occurring <= 1);
}

/* Returns a draft of a block whose codes follow a trellis. n: how many there are. tables: memory
 * for two tables. */
static draft plan_trellis(const dw_kernels *kernels, rans_work *w, const uint8_t *marks,
                          const uint32_t *n, dw_rans_table *tables)
{
    draft d = {.codes = marks, .counts = n, .parts = 1, .is_trellis = true, .tables = tables};
    planning *plan = &w->scratch.plan;
    uint32_t counts[256];
    kernels->histogram(marks, *n, counts);
    d.front_bytes = DW_RANS_HEADER_BYTES + DW_RANS_HEAD_BYTES + DW_RANS_STATE_BYTES;
    for (uint32_t kind = 0; kind < DW_TRELLIS_KINDS; kind++) {
        uint32_t of_kind = count_kind(plan, counts, kind);
        d.front_bytes += (plan_table(plan, &tables[kind], of_kind) + 7) / 8;
        memcpy(tables[kind].start, plan->start[0], sizeof tables[kind].start);
        d.bits += dw_bits_of_slots(plan->counted[0], tables[kind].range, plan->start[0], of_kind);
    }
    return d;
}

/* The first slots and the frequencies of symbols. */
typedef struct symbol_slots {
    uint16_t start[DW_RANS_SYMBOLS], frequencies[DW_RANS_SYMBOLS];
} symbol_slots;

static void slots_of_table(const dw_rans_table *table, symbol_slots *to)
{
    uint32_t symbols = dw_symbols_of(table->range, table->per_symbol);
    for (uint32_t s = 0; s < symbols; s++) {
        to->start[s] = table->start[s];
        to->frequencies[s] = (uint16_t)(table->start[s + 1] - table->start[s]);
    }
}

/* Makes the words of a block whose codes follow a trellis. Its symbols are marks, and each has the
 * slots that the table of its kind gives it. */
static uint64_t put_trellis_words(const dw_kernels *kernels, rans_work *w, const draft *d,
                                  uint8_t *end, uint64_t room)
{
    symbol_slots slots = {{0}, {0}};
    for (int i = 0; i < DW_RANS_STATES; i++) w->states[i] = DW_RANS_LOWEST;
    for (uint32_t kind = 0; kind < DW_TRELLIS_KINDS; kind++) {
        const dw_rans_table *table = &d->tables[kind];
        for (uint32_t s = 0; s < table->range; s++) {
            uint32_t mark = 2 * (table->least + s) - DW_TRELLIS_ZERO + kind;
            slots.start[mark] = table->start[s];
            slots.frequencies[mark] = table->frequencies[s];
        }
    }
    dw_rans_encode_run run = {.codes = d->codes,
                              .n = *d->counts,
                              .per_symbol = 1,
                              .range = DW_RANS_SYMBOLS,
                              .start = slots.start,
                              .frequencies = slots.frequencies,
                              .states = w->states,
                              .scratch = w->scratch.kernel,
                              .end = end,
                              .most = room};
    return kernels->rans_encode(&run);
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
        const dw_rans_table *table = &d->tables[i];
        behind -= d->counts[i] + DW_PART_GAP;
        symbol_slots slots;
        if (table->range == 1) continue;
        slots_of_table(table, &slots);
        dw_rans_encode_run run = {.codes = behind,
                                  .n = d->counts[i],
                                  .per_symbol = table->per_symbol,
                                  .least = table->least,
                                  .range = table->range,
                                  .fill = table->fill,
                                  .start = slots.start,
                                  .frequencies = slots.frequencies,
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
    uint8_t *end = (uint8_t *)w + WORK_BYTES + DW_RANS_ROOM + 2 * room;
    /* The estimate is wrong by at most one byte in a hundred. A draft that exceeds the room by more
     * cannot fit, so its words are not made. */
    if (d->bits / 16 > room + room / 64 + DW_RANS_STATES) return 0;
    uint64_t words = d->is_trellis ? put_trellis_words(kernels, w, d, end, room)
                                   : put_words(kernels, w, d, end, room);
    if (words > room) return 0;
    uint8_t *behind =
        dw_rans_put_front(d->tables, d->is_trellis ? (uint32_t)DW_TRELLIS_KINDS : d->parts,
                          w->states, (uint32_t)words, to);
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
    if (codes->parted || codes->marks) {
        draft d = codes->marks ? plan_trellis(kernels, w, codes->marks, &n, w->tables + 1)
                               : plan_block(kernels, w, codes->parted, codes->counts, DW_PARTS,
                                            w->tables + 1);
        if (8 * d.front_bytes + d.bits < 8 * best.front_bytes + best.bits) best = d;
    }
    return put_block(kernels, w, &best, to, cap < bound ? cap : bound);
}

/* ---- Decode ---------------------------------------------------------------------------------- */

static dw_rans_fault read_states(const uint8_t *from, uint32_t *states)
{
    for (int i = 0; i < DW_RANS_STATES; i++) {
        states[i] = (uint32_t)dw_get(from + 4 * (size_t)i, 4);
        if (states[i] < DW_RANS_LOWEST) return DW_RANS_LOW_STATE;
    }
    return DW_RANS_RIGHT;
}

/* Computes the first slot of every symbol from the frequencies of a table. */
static void find_slots(planning *w, dw_rans_table *table)
{
    uint32_t way = 0, symbols = table->range;
    dw_weights_of_frequencies(table->frequencies, symbols, w->weights[0]);
    for (; 1u << way < table->per_symbol; way++)
        symbols = dw_weights_of_pairs(w->weights[way], symbols, w->weights[way + 1]);
    dw_slots_of_weights(w->weights[way], symbols, table->start);
}

/* Decodes the n codes of a part. *taken: how many words the parts before it have used; the words of
 * this part are added. */
static dw_rans_fault decode_part(const dw_kernels *kernels, rans_work *w, const dw_rans_reader *r,
                                 dw_rans_table *table, uint8_t *codes, uint64_t n, uint64_t *taken)
{
    if (table->range == 1) {
        memset(codes, (int)table->least, (size_t)n);
        return DW_RANS_RIGHT;
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
                              .words = r->from + r->states + DW_RANS_STATE_BYTES + 2 * *taken,
                              .count = r->words - *taken};
    *taken += kernels->rans_decode(&run);
    return *taken > r->words ? DW_RANS_WORDS_END : DW_RANS_RIGHT;
}

/* Decodes the n codes of a block that follow a trellis. *used becomes the number of words that they
 * took. */
static dw_rans_fault decode_trellis_codes(const dw_kernels *kernels, rans_work *w,
                                          const dw_rans_reader *r, uint8_t *codes, uint64_t n,
                                          uint64_t *used)
{
    for (uint32_t kind = 0; kind < DW_TRELLIS_KINDS; kind++)
        find_slots(&w->scratch.plan, &w->tables[kind]);
    dw_rans_trellis_run run = {.codes = codes,
                               .n = n,
                               .tables = w->tables,
                               .states = w->states,
                               .scratch = (uint32_t *)(void *)((uint8_t *)w + WORK_BYTES),
                               .words = r->from + r->states + DW_RANS_STATE_BYTES,
                               .count = r->words};
    *used = kernels->rans_decode_trellis(&run);
    return *used > r->words ? DW_RANS_WORDS_END : DW_RANS_RIGHT;
}

/* After the last code every state must be what the encoder began with. */
static dw_rans_fault judge_end(const rans_work *w, uint64_t words, uint64_t used)
{
    if (used < words) return DW_RANS_WORDS_LEFT;
    for (int i = 0; i < DW_RANS_STATES; i++)
        if (w->states[i] != DW_RANS_LOWEST) return DW_RANS_LAST_STATE;
    return DW_RANS_RIGHT;
}

/* Decodes a block. counts: the number of codes in each of its parts, which are written to `codes`
 * with DW_PART_GAP bytes behind each. *used becomes the length of the block. */
static dw_rans_fault decode(const dw_kernels *kernels, dw_rans_reader *r, uint8_t *codes,
                            const uint32_t *counts, uint32_t parts, rans_work *w, size_t *used)
{
    size_t block_bytes;
    uint64_t n = 0, taken = 0;
    dw_rans_fault wrong = DW_RANS_RIGHT;
    for (uint32_t i = 0; i < parts; i++) {
        if (counts[i] == 0) wrong = DW_RANS_EMPTY_PART;
        n += counts[i];
    }
    if (!wrong) wrong = dw_rans_read_front(r, w->tables, parts);
    bool has_states = !wrong && dw_rans_needs_states(w->tables, parts);
    if (!wrong) wrong = dw_rans_judge_length(r, has_states, n, &block_bytes);
    if (has_states && !wrong) wrong = read_states(r->from + r->states, w->states);
    for (uint32_t i = 0; i < parts && !wrong; codes += counts[i++] + DW_PART_GAP)
        wrong = decode_part(kernels, w, r, &w->tables[i], codes, counts[i], &taken);
    if (has_states && !wrong) wrong = judge_end(w, r->words, taken);
    if (!wrong) *used = block_bytes;
    return wrong;
}

static dw_rans_fault decode_trellis(const dw_kernels *kernels, dw_rans_reader *r, uint8_t *codes,
                                    uint64_t n, rans_work *w, size_t *used)
{
    size_t block_bytes;
    uint64_t taken = 0;
    dw_rans_fault wrong = dw_rans_read_front(r, w->tables, DW_TRELLIS_KINDS);
    if (!wrong) wrong = dw_rans_judge_length(r, true, n, &block_bytes);
    if (!wrong) wrong = read_states(r->from + r->states, w->states);
    if (!wrong) wrong = decode_trellis_codes(kernels, w, r, codes, n, &taken);
    if (!wrong) wrong = judge_end(w, r->words, taken);
    if (!wrong) *used = block_bytes;
    return wrong;
}

bool dw_rans_has_parts(const uint8_t *from, size_t bytes)
{
    return dw_rans_says_parts(from, bytes);
}

const char *dw_rans_decode(const dw_kernels *kernels, const uint8_t *from, size_t bytes,
                           uint8_t *codes, uint64_t n, void *work, size_t *used)
{
    uint32_t count = (uint32_t)n;
    dw_rans_reader r = {.from = from, .bytes = bytes};
    return dw_rans_sentence(decode(kernels, &r, codes, &count, 1, aligned(work), used));
}

bool dw_rans_has_trellis(const uint8_t *from, size_t bytes)
{
    return dw_rans_says_trellis(from, bytes);
}

const char *dw_rans_decode_trellis(const dw_kernels *kernels, const uint8_t *from, size_t bytes,
                                   uint8_t *codes, uint64_t n, void *work, size_t *used)
{
    dw_rans_reader r = {.from = from, .bytes = bytes};
    return dw_rans_sentence(decode_trellis(kernels, &r, codes, n, aligned(work), used));
}

const char *dw_rans_decode_parts(const dw_kernels *kernels, const uint8_t *from, size_t bytes,
                                 uint8_t *codes, const uint32_t *counts, void *work, size_t *used)
{
    dw_rans_reader r = {.from = from, .bytes = bytes};
    return dw_rans_sentence(decode(kernels, &r, codes, counts, DW_PARTS, aligned(work), used));
}

const char *dw_rans_sentence(uint32_t fault)
{
    static const char *const sentences[DW_RANS_FAULTS] = {
        [DW_RANS_NO_HEADER] = "an entropy-coded block is cut off in its header",
        [DW_RANS_NO_HEAD] = "an entropy-coded block is cut off in the head of a part",
        [DW_RANS_PARTS_BYTE] =
            "the byte that says whether an entropy-coded block has parts is wrong",
        [DW_RANS_PER_SYMBOL] = "the codes per symbol of an entropy-coded block are not 1, 2 or 4",
        [DW_RANS_PAST_255] = "the codes of an entropy-coded block pass 255",
        [DW_RANS_ONE_CODE] = "an entropy-coded block of one code has several per symbol",
        [DW_RANS_MANY_SYMBOLS] = "an entropy-coded block has more than 256 symbols",
        [DW_RANS_LONG_FREQUENCY] = "a frequency of an entropy-coded block has more than 12 bits",
        [DW_RANS_BITS_BEHIND] =
            "the bits behind the frequencies of an entropy-coded block are not zero",
        [DW_RANS_SUM] = "the frequencies of an entropy-coded block do not add to 4096",
        [DW_RANS_ENDS] = "the first or last frequency of an entropy-coded block is zero",
        [DW_RANS_NEEDLESS_WORDS] = "an entropy-coded block of one code has words",
        [DW_RANS_NOT_SHORTER] = "an entropy-coded block is not shorter than its codes",
        [DW_RANS_CUT_OFF] = "an entropy-coded block is cut off",
        [DW_RANS_LOW_STATE] = "a state of an entropy-coded block is below 65536",
        [DW_RANS_WORDS_END] = "the words of an entropy-coded block end before its codes",
        [DW_RANS_WORDS_LEFT] = "an entropy-coded block has more words than its codes need",
        [DW_RANS_LAST_STATE] = "a state of an entropy-coded block does not end at 65536",
        [DW_RANS_EMPTY_PART] = "a part of an entropy-coded block has no codes",
        [DW_RANS_TRELLIS_TABLE] =
            "a table of an entropy-coded block is not one of codes that follow a trellis",
        [DW_RANS_BLOCK_SHORT] = "an entropy-coded block is shorter than its size says",
        [DW_RANS_CODES_WIDE] = "an entropy-coded block has codes of more bits than its form",
        [DW_RANS_ESCAPES] =
            "the escaped values of an entropy-coded block are cut off, misplaced or too many",
        [DW_RANS_PAYLOAD_SHORT] = "an entropy-coded payload is too short",
        [DW_RANS_SIZE_RANGE] = "the size of an entropy-coded block is out of range",
        [DW_RANS_SIZES_SUM] =
            "the sizes of entropy-coded blocks do not add up to that of their payload",
    };
    return sentences[fault];
}
