/* SPDX-License-Identifier: Apache-2.0
 * fuzz_rans.c - arbitrary bytes as an entropy-coded block, and arbitrary codes encoded: all tables
 * of kernels agree, and nothing beyond the block and the codes is touched. */
#include "entropy/rans.h"
#include "fuzz.h"
#include "reach.h"

enum { TABLES = 5 };

/* What the corpus must reach: a valid block of each kind, and every sentence with which
 * src/entropy/rans.c refuses a block. */
static const char plain[] = "a block without parts", in_parts[] = "a block in parts",
                  with_trellis[] = "a block with a trellis";
const char *const fuzz_goals[] = {
    plain,
    in_parts,
    with_trellis,
    "an entropy-coded block is cut off in the head of a part",
    "the codes per symbol of an entropy-coded block are not 1, 2 or 4",
    "the codes of an entropy-coded block pass 255",
    "an entropy-coded block of one code has several per symbol",
    "an entropy-coded block has more than 256 symbols",
    "a frequency of an entropy-coded block has more than 12 bits",
    "the bits behind the frequencies of an entropy-coded block are not zero",
    "the frequencies of an entropy-coded block do not add to 4096",
    "the first or last frequency of an entropy-coded block is zero",
    "an entropy-coded block is cut off in its header",
    "the byte that says whether an entropy-coded block has parts is wrong",
    "an entropy-coded block of one code has words",
    "an entropy-coded block is not shorter than its codes",
    "an entropy-coded block is cut off",
    "a state of an entropy-coded block is below 65536",
    "the words of an entropy-coded block end before its codes",
    "an entropy-coded block has more words than its codes need",
    "a state of an entropy-coded block does not end at 65536",
    "a part of an entropy-coded block has no codes",
    "a table of an entropy-coded block is not one of codes that follow a trellis",
    NULL};

static int find_tables(const dw_kernels *tables[TABLES])
{
    static const char *const names[TABLES] = {"c", "avx2", "avx512", "vbmi2", "neon"};
    int found = 0;
    for (int i = 0; i < TABLES; i++)
        if (dw_kernels_find(names[i])) tables[found++] = dw_kernels_find(names[i]);
    return found;
}

/* Memory of exactly this size, for sanitizers. */
static uint8_t *exact(size_t bytes)
{
    uint8_t *memory = malloc(bytes ? bytes : 1);
    REQUIRE(memory != NULL);
    return memory;
}

enum { GAPS = DW_PARTS * DW_PART_GAP };

/* spread moves the codes of four parts, which lie one behind the other, apart, so that gaps of
 * DW_PART_GAP bytes are between them; gather moves them together again. counts: the number of codes
 * of each part. `codes` has room for the gaps. */
static void spread(uint8_t *codes, const uint32_t *counts)
{
    uint64_t at = 0;
    for (int i = 0; i < DW_PARTS; i++) at += counts[i];
    for (int i = DW_PARTS; i-- > 0;) {
        at -= counts[i];
        memmove(codes + at + i * DW_PART_GAP, codes + at, counts[i]);
    }
}

static void gather(uint8_t *codes, const uint32_t *counts)
{
    for (uint64_t i = 0, at = 0; i < DW_PARTS; at += counts[i++])
        memmove(codes + at, codes + at + i * DW_PART_GAP, counts[i]);
}

/* What a block is read as. counts: the number of codes in each part, or NULL. */
typedef struct kind {
    const uint32_t *counts;
    bool has_trellis;
} kind;

static const kind of_one_table = {NULL, false}, of_trellis = {NULL, true};

/* Every table refuses the block with the same words, or finds the same codes in it. Where expected
 * is given, these are they. */
static void decode_by_all(const uint8_t *block, size_t bytes, uint64_t n, kind as,
                          const uint8_t *expected)
{
    const uint32_t *counts = as.counts;
    const dw_kernels *tables[TABLES];
    int count = find_tables(tables);
    uint8_t *from = exact(bytes), *first = exact(n + GAPS), *codes = exact(n + GAPS),
            *work = exact(dw_rans_work_bytes(n, true));
    const char *said = NULL;
    size_t used = 0, used_first = 0;
    if (bytes > 0) memcpy(from, block, bytes);
    for (int i = 0; i < count; i++) {
        uint8_t *to = i == 0 ? first : codes;
        const char *wrong =
            counts           ? dw_rans_decode_parts(tables[i], from, bytes, to, counts, work, &used)
            : as.has_trellis ? dw_rans_decode_trellis(tables[i], from, bytes, to, n, work, &used)
                             : dw_rans_decode(tables[i], from, bytes, to, n, work, &used);
        if (counts && !wrong) gather(to, counts);
        if (i == 0) {
            said = wrong;
            used_first = used;
        }
        REQUIRE(wrong == said && used == used_first && used <= bytes);
        if (!wrong && i > 0) REQUIRE(memcmp(first, codes, n) == 0);
    }
    fuzz_reach(said ? said : counts ? in_parts : as.has_trellis ? with_trellis : plain);
    if (expected) REQUIRE(!said && memcmp(first, expected, n) == 0);
    free(from);
    free(first);
    free(codes);
    free(work);
}

/* Makes the block by every table; they must not differ. Returns its length, 0 if it does not pay.
 */
static size_t encode_by_all(const dw_rans_codes *codes, size_t cap, uint8_t *block)
{
    const dw_kernels *tables[TABLES];
    int count = find_tables(tables);
    size_t bytes = 0;
    uint8_t *to = exact(cap), *work = exact(dw_rans_work_bytes(codes->n, true));
    for (int i = 0; i < count; i++) {
        size_t made = dw_rans_encode(tables[i], codes, to, cap, work);
        REQUIRE(made <= cap && made <= dw_rans_bound(codes->n));
        if (i == 0) {
            bytes = made;
            if (made > 0) memcpy(block, to, made);
        }
        REQUIRE(made == bytes && (made == 0 || memcmp(block, to, made) == 0));
    }
    free(to);
    free(work);
    return bytes;
}

/* Codes of a few values; how they are spread is decided by some bytes of the input. */
static void draw_codes(fuzz_input *input, uint8_t *codes, uint64_t n)
{
    uint32_t range = 1 + fuzz_byte(input), least = fuzz_below(input, 257 - range),
             run = 1 + fuzz_below(input, 40), usual = fuzz_below(input, range);
    uint64_t state = fuzz_bytes(input, 4) | 1;
    for (uint64_t i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        uint32_t drawn = (uint32_t)(state >> 33), own = i < input->left ? input->data[i] : drawn;
        codes[i] = (uint8_t)(least + (drawn % run ? usual : own % range));
    }
}

/* Chooses how many of n codes belong to each part, and returns counts. A part may have none. */
static const uint32_t *cut(fuzz_input *input, uint64_t n, uint32_t *counts)
{
    for (int i = 0; i < DW_PARTS; i++) {
        counts[i] = i + 1 == DW_PARTS ? (uint32_t)n : fuzz_below(input, (uint32_t)n + 1);
        n -= counts[i];
    }
    return counts;
}

static bool all_have_codes(const uint32_t *counts)
{
    for (int i = 0; i < DW_PARTS; i++)
        if (counts[i] == 0) return false;
    return true;
}

/* Changes bits of a block, and may cut it off. mode: as for round_trip. Returns its length. */
static size_t damage(fuzz_input *input, uint32_t mode, uint8_t *block, size_t bytes)
{
    for (uint32_t edits = mode >> 4 & 3; edits > 0; edits--) {
        uint64_t at = fuzz_bytes(input, 2);
        block[(mode & 64 ? at % 16 : at) % bytes] ^= (uint8_t)(1u << fuzz_below(input, 8));
    }
    return mode & 128 ? fuzz_bytes(input, 2) % bytes : bytes;
}

/* Encodes n codes, decodes the block, and requires the same codes. Then damages the block, and
 * decodes it again. mode: bits that choose parts, limits and damage. */
static void round_trip(fuzz_input *input, uint32_t mode, uint64_t n)
{
    uint32_t parts[DW_PARTS];
    const uint32_t *counts = (mode & 6) == 6 ? cut(input, n, parts) : NULL;
    uint8_t *codes = exact(n), *parted = exact(n + GAPS), *block = exact(n);
    draw_codes(input, codes, n);
    if (counts) draw_codes(input, parted, n);
    size_t cap = mode & 8 ? (size_t)fuzz_bytes(input, 2) % n : (size_t)n;
    dw_rans_codes all = {.codes = codes, .n = n, .counts = counts};
    if (counts && all_have_codes(counts)) all.parted = parted;
    if (all.parted) spread(parted, counts);
    size_t bytes = encode_by_all(&all, cap, block);
    if (bytes > 0) {
        bool has_parts = dw_rans_has_parts(block, bytes);
        REQUIRE(!has_parts || all.parted);
        if (all.parted) gather(parted, counts);
        kind as = {has_parts ? counts : NULL, false};
        decode_by_all(block, bytes, n, as, has_parts ? parted : codes);
        bytes = damage(input, mode, block, bytes);
        decode_by_all(block, bytes, n, as, NULL);
    }
    free(codes);
    free(parted);
    free(block);
}

/* Codes that follow a trellis, and their marks. Most indices are small; some may be any. */
static void draw_along(fuzz_input *input, uint8_t *codes, uint8_t *marks, uint64_t n)
{
    uint8_t states[DW_TRELLIS_LANES] = {0};
    uint32_t spread = 1 + fuzz_below(input, 6), rare = 1 + fuzz_byte(input);
    uint64_t state = fuzz_bytes(input, 4) | 1;
    for (uint64_t i = 0; i < n; i++) {
        uint8_t *lane = &states[i % DW_TRELLIS_LANES];
        state = state * 6364136223846793005u + 1442695040888963407u;
        uint32_t drawn = (uint32_t)(state >> 33),
                 most = drawn % rare == 1 ? DW_TRELLIS_INDEX : spread - 1;
        int32_t index = (int32_t)(drawn / 256 % (2 * most + 1)) - (int32_t)most;
        marks[i] = (uint8_t)(DW_TRELLIS_ZERO + 2 * index + (*lane >> 1));
        codes[i] = dw_trellis_code(marks[i]);
        *lane = (uint8_t)dw_trellis_next(*lane, (uint32_t)index & 1);
    }
}

/* Every table finds these marks. */
static void mark_by_all(const uint8_t *codes, const uint8_t *marks, uint64_t n)
{
    const dw_kernels *tables[TABLES];
    int count = find_tables(tables);
    uint8_t *found = exact(n);
    for (int i = 0; i < count; i++) {
        uint8_t states[DW_TRELLIS_LANES] = {0};
        tables[i]->trellis_marks(codes, n, states, found);
        REQUIRE(memcmp(found, marks, n) == 0);
    }
    free(found);
}

/* The same as round_trip for codes that follow a trellis. */
static void trellis_round_trip(fuzz_input *input, uint32_t mode, uint64_t n)
{
    uint8_t *codes = exact(n), *marks = exact(n), *block = exact(n);
    draw_along(input, codes, marks, n);
    mark_by_all(codes, marks, n);
    dw_rans_codes all = {.codes = codes, .marks = marks, .n = n};
    size_t bytes = encode_by_all(&all, (size_t)n, block);
    if (bytes > 0) {
        kind as = dw_rans_has_trellis(block, bytes) ? of_trellis : of_one_table;
        decode_by_all(block, bytes, n, as, codes);
        bytes = damage(input, mode, block, bytes);
        decode_by_all(block, bytes, n, as, NULL);
    }
    free(codes);
    free(marks);
    free(block);
}

/* Whether the first byte of an input asks for a trellis. No input of the corpus from before begins
 * with one of these. */
static bool asks_for_trellis(uint32_t mode)
{
    return (mode >= 0xb0 && mode <= 0xcf) || mode >= 0xe0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input input = {data, size};
    uint32_t counts[DW_PARTS], mode = fuzz_byte(&input);
    uint64_t n = 1 + fuzz_bytes(&input, 2);
    if (mode & 1) n = 1 + n % 700;
    if (asks_for_trellis(mode)) {
        mode = fuzz_byte(&input);
        if (mode & 3)
            trellis_round_trip(&input, mode, n);
        else
            decode_by_all(input.data, input.left, n, of_trellis, NULL);
    } else if (mode & 6) {
        round_trip(&input, mode, n);
    } else { /* the rest of the input is taken as a block */
        kind as = {mode & 8 ? cut(&input, n, counts) : NULL, false};
        decode_by_all(input.data, input.left, n, as, NULL);
    }
    return 0;
}
