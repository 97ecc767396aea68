/* SPDX-License-Identifier: Apache-2.0
 * rans.c - blocks of entropy-coded codes: what stands in front of the words, and the choice of the
 * codes per symbol. The symbols themselves are the kernels' business. */
#include "entropy/rans.h"

#include "entropy/frequencies.h"
#include "wire/bytes.h"

enum {
    HEADER_BYTES = 6,
    LENGTH_BITS = 4, /* of the length of a frequency */
    STATE_BYTES = 4 * DW_RANS_STATES,
    WAYS = 3, /* 1, 2 or 4 codes to a symbol */
    ALIGNMENT = 64
};

/* All of it is made anew by every call. */
typedef struct rans_work {
    uint32_t scratch[DW_RANS_SCRATCH];
    uint32_t states[DW_RANS_STATES];
    uint32_t counts[256];
    /* Of single codes, pairs and fours. `counted`: what really occurs, which the table of
     * frequencies rounds. */
    uint32_t weights[WAYS][DW_RANS_SYMBOLS], counted[WAYS][DW_RANS_SYMBOLS];
    uint16_t frequencies[256], start[WAYS][DW_RANS_SYMBOLS + 1];
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

/* The bits of a frequency, without leading zeros. */
static uint32_t length_of(uint32_t frequency)
{
    uint32_t length = 0;
    for (; frequency >> length > 0; length++) continue;
    return length;
}

/* How many symbols there are, or 0 where they are more than 256. */
static uint32_t symbols_of(uint32_t range, uint32_t per_symbol)
{
    uint32_t symbols = 1;
    for (uint32_t i = 0; i < per_symbol && symbols <= DW_RANS_SYMBOLS; i++) symbols *= range;
    return symbols <= DW_RANS_SYMBOLS ? symbols : 0;
}

/* ---- Encode ---------------------------------------------------------------------------------- */

/* What an encoder has decided about a block. */
typedef struct plan {
    uint32_t per_symbol, least, range, fill;
    uint64_t bits;      /* about what its words take */
    size_t front_bytes; /* of what stands in front of them */
    const uint16_t *start;
} plan;

/* Several codes per symbol save time. They cost bytes where many symbols occur that should have
 * less than one slot: so they are taken only where they cost no more than one byte in 128. */
static void choose_per_symbol(rans_work *w, plan *p, uint64_t n)
{
    uint32_t symbols = p->range;
    p->per_symbol = 1;
    p->start = w->start[0];
    p->bits = dw_bits_of_slots(w->counted[0], symbols, p->start, n);
    dw_weights_of_frequencies(w->frequencies, symbols, w->weights[0]);
    for (uint32_t way = 1; way < WAYS && symbols_of(symbols, 2) > 0; way++) {
        uint32_t k = 1u << way;
        dw_weights_of_pairs(w->counted[way - 1], symbols, w->counted[way]);
        symbols = dw_weights_of_pairs(w->weights[way - 1], symbols, w->weights[way]);
        dw_slots_of_weights(w->weights[way], symbols, w->start[way]);
        uint64_t bits = dw_bits_of_slots(w->counted[way], symbols, w->start[way], (n + k - 1) / k);
        if (bits > p->bits + p->bits / 128) continue;
        p->per_symbol = k;
        p->start = w->start[way];
    }
}

static plan plan_block(rans_work *w, uint64_t n)
{
    plan p = {.per_symbol = 1, .front_bytes = HEADER_BYTES};
    uint32_t last = 255, table_bits = 0;
    while (w->counts[p.least] == 0) p.least++;
    while (w->counts[last] == 0) last--;
    p.range = last - p.least + 1;
    if (p.range == 1) return p;
    dw_weights_of_counts(w->counts + p.least, p.range, n, w->counted[0]);
    dw_slots_of_weights(w->counted[0], p.range, w->start[0]);
    for (uint32_t c = 0; c < p.range; c++) {
        w->frequencies[c] = (uint16_t)(w->start[0][c + 1] - w->start[0][c]);
        if (w->frequencies[c] > w->frequencies[p.fill]) p.fill = c;
        table_bits += 3 + length_of(w->frequencies[c]) + (w->frequencies[c] == 0);
    }
    p.front_bytes += (table_bits + 7) / 8 + STATE_BYTES;
    choose_per_symbol(w, &p, n);
    return p;
}

/* Writes what stands in front of the words. */
static uint8_t *put_front(const rans_work *w, const plan *p, uint64_t words, uint8_t *to)
{
    const uint8_t head[4] = {(uint8_t)p->per_symbol, (uint8_t)p->least, (uint8_t)(p->range - 1), 0};
    memcpy(to, head, sizeof head);
    dw_put(to + 4, words, 2);
    to += HEADER_BYTES;
    if (p->range == 1) return to;
    uint32_t waiting = 0, bits = 0; /* less than 8 of them before a frequency is added */
    for (uint32_t c = 0; c < p->range; c++) {
        uint32_t f = w->frequencies[c], length = length_of(f), below = length > 0 ? length - 1 : 0;
        waiting |= (length | (f ^ (f > 0 ? 1u << below : 0)) << LENGTH_BITS) << bits;
        for (bits += LENGTH_BITS + below; bits >= 8; bits -= 8, waiting >>= 8)
            *to++ = (uint8_t)waiting;
    }
    if (bits > 0) *to++ = (uint8_t)waiting;
    for (int i = 0; i < DW_RANS_STATES; i++, to += 4) dw_put(to, w->states[i], 4);
    return to;
}

size_t dw_rans_encode(const dw_kernels *kernels, const uint8_t *codes, uint64_t n, uint8_t *to,
                      size_t cap, void *work)
{
    rans_work *w = aligned(work);
    size_t most = cap < dw_rans_bound(n) ? cap : dw_rans_bound(n);
    kernels->histogram(codes, n, w->counts);
    plan p = plan_block(w, n);
    if (p.front_bytes > most) return 0;
    uint64_t room = (most - p.front_bytes) / 2, words = 0;
    uint8_t *end = (uint8_t *)(w + 1) + DW_RANS_ROOM + 2 * room;
    if (p.range > 1) {
        /* The estimate is good to one byte in a hundred at least: hopeless attempts end here. */
        if (p.bits / 16 > room + room / 64 + DW_RANS_STATES) return 0;
        for (int i = 0; i < DW_RANS_STATES; i++) w->states[i] = DW_RANS_LOWEST;
        dw_rans_encode_run run = {.codes = codes,
                                  .n = n,
                                  .per_symbol = p.per_symbol,
                                  .least = p.least,
                                  .range = p.range,
                                  .fill = p.fill,
                                  .start = p.start,
                                  .states = w->states,
                                  .scratch = w->scratch,
                                  .end = end,
                                  .most = room};
        words = kernels->rans_encode(&run);
        if (words > room) return 0;
    }
    uint8_t *behind = put_front(w, &p, words, to);
    memcpy(behind, end - 2 * words, 2 * words);
    return p.front_bytes + 2 * words;
}

/* ---- Decode ---------------------------------------------------------------------------------- */

/* A block that is being read. */
typedef struct reader {
    const uint8_t *from;
    size_t bytes; /* of the block and of what may be behind it */
    uint32_t per_symbol, least, range, words;
    size_t bit, states; /* where the next frequency begins; where the states begin */
} reader;

static const char *read_header(reader *r)
{
    const uint8_t *from = r->from;
    if (r->bytes < HEADER_BYTES) return "an entropy-coded block is cut off in its header";
    r->per_symbol = from[0];
    r->least = from[1];
    r->range = from[2] + 1u;
    r->words = (uint32_t)dw_get(from + 4, 2);
    r->bit = (size_t)8 * HEADER_BYTES;
    if (r->per_symbol != 1 && r->per_symbol != 2 && r->per_symbol != 4)
        return "the codes per symbol of an entropy-coded block are not 1, 2 or 4";
    if (from[3] != 0) return "the reserved byte of an entropy-coded block is not zero";
    if (r->least + r->range > 256) return "the codes of an entropy-coded block pass 255";
    if (r->range == 1 && (r->per_symbol != 1 || r->words != 0))
        return "an entropy-coded block of one code has several per symbol, or words";
    if (symbols_of(r->range, r->per_symbol) == 0)
        return "an entropy-coded block has more than 256 symbols";
    return NULL;
}

/* The next bits of the frequencies, at most 12; behind the end of the bytes there are zeros. */
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

static const char *read_frequencies(reader *r, uint16_t *frequencies)
{
    uint32_t sum = 0;
    for (uint32_t c = 0; c < r->range; c++) {
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
    if (frequencies[0] == 0 || frequencies[r->range - 1] == 0)
        return "the first or last frequency of an entropy-coded block is zero";
    r->states = r->bit / 8;
    return NULL;
}

/* The block's bytes, when its header and its frequencies are known. */
static const char *judge_length(const reader *r, uint64_t n, size_t *used)
{
    *used = r->range == 1 ? (size_t)HEADER_BYTES : r->states + STATE_BYTES + (size_t)2 * r->words;
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

static const uint16_t *slots_of_symbols(rans_work *w, uint32_t range, uint32_t per_symbol)
{
    uint32_t way = 0, symbols = range;
    dw_weights_of_frequencies(w->frequencies, range, w->weights[0]);
    for (; 1u << way < per_symbol; way++)
        symbols = dw_weights_of_pairs(w->weights[way], symbols, w->weights[way + 1]);
    dw_slots_of_weights(w->weights[way], symbols, w->start[0]);
    return w->start[0];
}

/* After the last code every state must be what the encoder began with. */
static const char *judge_end(const rans_work *w, uint64_t words, uint64_t used)
{
    if (used > words) return "the words of an entropy-coded block end before its codes";
    if (used < words) return "an entropy-coded block has more words than its codes need";
    for (int i = 0; i < DW_RANS_STATES; i++)
        if (w->states[i] != DW_RANS_LOWEST)
            return "a state of an entropy-coded block does not end at 65536";
    return NULL;
}

static const char *decode_words(const dw_kernels *kernels, rans_work *w, const reader *r,
                                uint8_t *codes, uint64_t n)
{
    const uint16_t *start = slots_of_symbols(w, r->range, r->per_symbol);
    dw_rans_decode_run run = {.codes = codes,
                              .n = n,
                              .per_symbol = r->per_symbol,
                              .least = r->least,
                              .range = r->range,
                              .start = start,
                              .states = w->states,
                              .scratch = w->scratch,
                              .words = r->from + r->states + STATE_BYTES,
                              .count = r->words};
    return judge_end(w, r->words, kernels->rans_decode(&run));
}

const char *dw_rans_decode(const dw_kernels *kernels, const uint8_t *from, size_t bytes,
                           uint8_t *codes, uint64_t n, void *work, size_t *used)
{
    rans_work *w = aligned(work);
    reader r = {.from = from, .bytes = bytes};
    size_t block_bytes;
    const char *wrong = read_header(&r);
    if (!wrong && r.range > 1) wrong = read_frequencies(&r, w->frequencies);
    if (!wrong) wrong = judge_length(&r, n, &block_bytes);
    if (!wrong && r.range > 1) wrong = read_states(from + r.states, w->states);
    if (wrong) return wrong;
    if (r.range == 1)
        memset(codes, (int)r.least, (size_t)n);
    else
        wrong = decode_words(kernels, w, &r, codes, n);
    if (!wrong) *used = block_bytes;
    return wrong;
}
