/* SPDX-License-Identifier: Apache-2.0
 * kernels_mx_encode.h - vector kernels that encode for microscaling.
 *
 * A part of the vector kernels: see kernels_simd.h. It comes after the files for encode and finish,
 * whose helpers it uses. A block of 32 elements fits the registers, so an encode needs no scratch
 * for deltas: it reads x and prev of 16 blocks, finds the scales of all of them, and then reads
 * both again, from the first-level cache, to compute codes and the new prev. (Keeping a block in
 * registers until its scale is known would be a chain of dependent instructions that is too long
 * for out-of-order execution to hide.) Where prev is bf16, or x is bf16 and there is no state, a
 * block is processed as its even and its odd elements.
 *
 * Two kinds of blocks are left to C: those whose largest magnitude is 2^95 or more, so that no sum
 * needs to be clamped (see SPECIAL_FROM in kernels_simd.h), and those so small that a power of two
 * would not be a normal number. */

/* Constants for the element of a run. A float element is rounded by adding a number whose last
 * place is worth one step of the element, and whose lowest byte already contains the rest of the
 * code: the exponent and, for negative values, the sign. So the lowest byte of the sum is the
 * code. */
typedef struct mx_rule {
    float most;
    int32_t smallest; /* binary32 bits of the smallest normal element */
    int32_t down;     /* how far an exponent must be shifted right to its place in a code */
    int32_t positive, negative;
    uint32_t top, bits;
    int32_t least_special; /* blocks with a smaller largest magnitude are left to C */
} mx_rule;

static mx_rule mx_rule_of(dw_element element)
{
    dw_element_facts of = dw_element_facts_of(element);
    bool int8 = element == DW_ELEMENT_INT8;
    uint32_t down = 23 - of.fraction, smallest = (128 - of.bias) << 23,
             positive = (down << 23) - (smallest >> down);
    /* the lowest scale whose power of two (for int8: times 2^-6) is a normal number */
    uint32_t lowest = int8 ? 7 : 1;
    return (mx_rule){.most = int8 ? 127.0f : of.most,
                     .smallest = (int32_t)smallest,
                     .down = (int32_t)down,
                     .positive = (int32_t)positive,
                     .negative = (int32_t)(positive + 0x80000000u + (1u << (of.bits - 1))),
                     .top = of.top,
                     .bits = of.bits,
                     .least_special = (int32_t)((of.top + lowest) << 23)};
}

/* The variant of a kernel. prev: 0 without state. */
typedef struct mx_kind {
    dw_dtype x;
    int prev, chooses, int8;
} mx_kind;

DW_VECTOR int mx_pairs(mx_kind kind)
{
#ifdef codes_of_pairs
    return kind.prev ? kind.prev == DW_BF16 : kind.x == DW_BF16;
#else
    (void)kind;
    return 0;
#endif
}

/* Where a chunk of two blocks lies. */
typedef struct mx_chunk {
    const unsigned char *x, *prev;
    unsigned char *next;
} mx_chunk;

/* A block, in two registers. */
typedef struct mx_values {
    f32x16 part[2];
} mx_values;

DW_VECTOR mx_values mx_load(const unsigned char *from, dw_dtype dtype, size_t at, int pairs)
{
    four f = load_blocks(from, dtype, at, pairs, 2);
    return (mx_values){{f.part[0], f.part[1]}};
}

/* For every lane, the larger of the magnitudes in the two registers. */
DW_VECTOR i32x16 mx_magnitudes(mx_values v)
{
    i32x16 magnitude = i_set(0x7fffffff);
    return i_max(i_and(f_bits(v.part[0]), magnitude), i_and(f_bits(v.part[1]), magnitude));
}

/* The state of a batch of blocks: the largest magnitudes of x - prev and of x, before they are
 * reduced to one lane per block; then what every block is encoded with. */
typedef struct mx_batch {
    _Alignas(64) int32_t folds[BATCH * LANES];
    _Alignas(64) float inverse[BATCH], scale[BATCH];
    _Alignas(64) int32_t base_mask[BATCH]; /* 0: direct */
    _Alignas(64) int32_t wire[BATCH];
} mx_batch;

/* Reads x and prev of n blocks. Magnitudes of x are stored in the place of negative extremes. */
DW_VECTOR void mx_sweep(mx_chunk from, mx_kind kind, uint32_t n, mx_batch *batch)
{
    int pairs = mx_pairs(kind);
    dw_dtype prev = kind.prev ? (dw_dtype)kind.prev : DW_F32;
    ROLLED for (uint32_t i = 0; i < n; i++)
    {
        size_t at = (size_t)i * DW_MX_BLOCK;
        mx_values x = mx_load(from.x, kind.x, at, pairs), d = x;
        if (kind.prev) {
            mx_values base = mx_load(from.prev, prev, at, pairs);
            for (int k = 0; k < 2; k++) d.part[k] = f_sub(x.part[k], base.part[k]);
        }
        i32x16 of_x = i_set(0);
        if (kind.chooses) of_x = i_or(mx_magnitudes(x), i_set(INT32_MIN));
        extremes_put(batch->folds, i, mx_magnitudes(d), of_x);
    }
}

/* What the encoding of a run has found. direct, special: masks of such blocks, with bit i for block
 * i; a run has at most 64 blocks. zero: how many blocks have a largest magnitude of 0. */
typedef struct mx_notes {
    uint64_t direct, special;
    uint32_t zero;
} mx_notes;

/* Decides the scales of n blocks, starting with block number `block` of the run. For a block whose
 * largest magnitude is 0, batch->scale is 0 instead of a power of two. That makes no difference,
 * because all values of the block are 0. */
DW_VECTOR void mx_decide(const mx_rule *rule, mx_kind kind, uint32_t n, uint32_t block,
                         mx_batch *batch, uint8_t *scales, mx_notes *notes)
{
    i32x16 largest, of_x, none = i_set(0);
    uint32_t live = (1u << n) - 1, direct = 0;
    int more = kind.int8 ? 6 : 0; /* the levels of int8 are multiples of 2^-6 */
    extremes_take(batch->folds, &largest, &of_x);
    if (kind.chooses) {
        i32x16 is_direct = i_greater(largest, of_x);
        largest = dw_select(is_direct, of_x, largest);
        i_store(batch->base_mask, i_andnot(is_direct, i_set(-1)));
        direct = i_signs(is_direct);
    }
    i32x16 scale = i_max(i_sub(i_shr(largest, 23), i_set((int32_t)rule->top)), none);
    i_store(batch->inverse, i_shl(i_sub(i_set(254 + more), scale), 23));
    i_store(batch->scale, i_shl(i_max(i_sub(scale, i_set(more)), none), 23));
    i_store(batch->wire, scale);
    for (uint32_t i = 0; i < n; i++) scales[i] = (uint8_t)batch->wire[i];
    i32x16 is_zero = i_greater(i_set(1), largest),
           is_small = i_andnot(is_zero, i_greater(i_set(rule->least_special), largest));
    uint32_t special = i_signs(i_or(is_small, i_greater(largest, i_set(SPECIAL_FROM - 1)))) & live;
    notes->special |= (uint64_t)special << block;
    notes->direct |= (uint64_t)(direct & live & ~special) << block;
    notes->zero += (uint32_t)__builtin_popcount(i_signs(is_zero) & live);
}

/* The codes of 16 elements. scaled: the elements times the inverse of their block's scale. Returns
 * words whose lowest byte is the code. *value: what the codes stand for, as floats that are not yet
 * multiplied by batch->scale. */
DW_VECTOR i32x16 mx_code(const mx_rule *rule, mx_kind kind, f32x16 scaled, f32x16 *value)
{
    f32x16 clamped = f_max(f_min(scaled, f_set(rule->most)), f_set(-rule->most));
    if (kind.int8) {
        i32x16 level = i_nearest(clamped);
        *value = f_whole(level);
        return level;
    }
    i32x16 exponent = i_max(i_and(f_bits(clamped), i_set(0x7f800000)), i_set(rule->smallest));
    i32x16 places = i_add(i_add(exponent, i_shr_each(exponent, i_set(rule->down))),
                          i_by_sign(clamped, i_set(rule->negative), i_set(rule->positive)));
    f32x16 sum = f_add(clamped, i_float(places));
    *value = f_sub(sum, i_float(places));
    return f_bits(sum);
}

/* Encodes block number `block` of a chunk, number `i` of its batch: codes in the lowest bytes, and
 * the new prev. */
DW_VECTOR void mx_encode_block(const mx_chunk *chunk, const mx_rule *rule, mx_kind kind,
                               size_t block, const mx_batch *batch, uint32_t i, i32x16 codes[2])
{
    int pairs = mx_pairs(kind);
    size_t at = block * DW_MX_BLOCK;
    dw_dtype prev = kind.prev ? (dw_dtype)kind.prev : DW_F32;
    mx_values d = mx_load(chunk->x, kind.x, at, pairs), base = {{f_set(0), f_set(0)}}, next;
    if (kind.prev) base = mx_load(chunk->prev, prev, at, pairs);
    for (int k = 0; kind.prev && k < 2; k++) {
        if (kind.chooses)
            base.part[k] = i_float(i_and(f_bits(base.part[k]), i_set(batch->base_mask[i])));
        d.part[k] = f_sub(d.part[k], base.part[k]);
    }
    for (int k = 0; k < 2; k++) {
        f32x16 value;
        codes[k] = mx_code(rule, kind, f_mul(d.part[k], f_set(batch->inverse[i])), &value);
        next.part[k] = f_muladd(value, f_set(batch->scale[i]), base.part[k]);
    }
    if (kind.prev && pairs) i_store(chunk->next + 2 * at, narrow_pair(next.part[0], next.part[1]));
    for (size_t k = 0; kind.prev && !pairs && k < 2; k++)
        store_sum(chunk->next, prev, at + k * LANES, next.part[k]);
}

DW_VECTOR codes64 mx_join(const i32x16 codes[4], mx_kind kind, uint32_t bits)
{
#ifdef codes_of_pairs
    if (mx_pairs(kind) && kind.int8)
        return codes_of_pairs(codes[0], codes[1], codes[2], codes[3], 0);
    if (mx_pairs(kind))
        return codes_clear(codes_of_low_byte_pairs(codes[0], codes[1], codes[2], codes[3]),
                           1 << (bits - 1));
#endif
    if (kind.int8) return codes_of_levels(codes[0], codes[1], codes[2], codes[3], 0);
    return codes_clear(codes_of_low_bytes(codes[0], codes[1], codes[2], codes[3]),
                       1 << (bits - 1)); /* no -0 */
}

DW_VECTOR void mx_put(codes64 codes, uint32_t bits, uint8_t *tile, size_t elements, size_t first)
{
    if (bits == 8)
        put64(codes, 8, tile, elements, first);
    else if (bits == 4)
        put64(codes, 4, tile, elements, first);
    else
        put64(codes, 6, tile, elements, first);
}

/* Where codes go: to element `first` of a tile with `elements` elements. */
typedef struct mx_target {
    uint8_t *scales, *tile;
    size_t elements, first;
} mx_target;

/* Encodes `chunks` chunks, starting with block 0 of the run. */
DW_VECTOR void mx_encode_chunks(const mx_chunk *given, const mx_rule *given_rule, mx_kind kind,
                                uint32_t chunks, const mx_target *given_target,
                                mx_notes *given_notes)
{
    mx_chunk chunk = *given; /* a copy, because stores may alias the caller's */
    const mx_rule rule = *given_rule;
    mx_target to = *given_target;
    mx_notes notes = {0, 0, 0};
    mx_batch batch;
    uint32_t bits = kind.int8 ? 8 : rule.bits;
    size_t size = kind.prev ? bytes_of((dw_dtype)kind.prev) : 0;
    if (chunks % (BATCH / 2))
        memset(batch.folds, 0, sizeof batch.folds); /* lanes without a block are computed, too */
    for (uint32_t done = 0; done < chunks; done += BATCH / 2) {
        uint32_t n = 2 * (chunks - done < BATCH / 2 ? chunks - done : BATCH / 2);
        mx_sweep(chunk, kind, n, &batch);
        mx_decide(&rule, kind, n, 2 * done, &batch, to.scales + 2 * done, &notes);
        ROLLED for (uint32_t i = 0; i < n; i += 2)
        {
            i32x16 codes[4];
            mx_encode_block(&chunk, &rule, kind, 0, &batch, i, codes);
            mx_encode_block(&chunk, &rule, kind, 1, &batch, i + 1, codes + 2);
            mx_put(mx_join(codes, kind, bits), bits, to.tile, to.elements, to.first);
            chunk.x += bytes_of(kind.x) * CHUNK;
            chunk.prev += size * CHUNK;
            if (kind.prev) chunk.next += size * CHUNK;
            to.first += CHUNK;
        }
    }
    *given_notes = notes;
}

typedef void mx_encode_function(const mx_chunk *chunk, const mx_rule *rule, uint32_t chunks,
                                const mx_target *to, mx_notes *notes);

#define MX_ENCODE(name, ...)                                                                       \
    static void name(const mx_chunk *chunk, const mx_rule *rule, uint32_t chunks,                  \
                     const mx_target *to, mx_notes *notes)                                         \
    {                                                                                              \
        mx_encode_chunks(chunk, rule, (mx_kind){__VA_ARGS__}, chunks, to, notes);                  \
    }
/* Generates the variants for one dtype of x and one kind of elements: without state; prev f32, f16,
 * bf16 without choice; the same three with a choice. */
#define MX_ENCODE_SEVEN(name, x, int8)                                                             \
    MX_ENCODE(name##_none, x, 0, 0, int8)                                                          \
    MX_ENCODE(name##_f32, x, DW_F32, 0, int8)                                                      \
    MX_ENCODE(name##_f16, x, DW_F16, 0, int8)                                                      \
    MX_ENCODE(name##_bf16, x, DW_BF16, 0, int8)                                                    \
    MX_ENCODE(name##_f32_chosen, x, DW_F32, 1, int8)                                               \
    MX_ENCODE(name##_f16_chosen, x, DW_F16, 1, int8)                                               \
    MX_ENCODE(name##_bf16_chosen, x, DW_BF16, 1, int8)
#define MX_SEVEN_OF(name)                                                                          \
    {                                                                                              \
        name##_none, name##_f32, name##_f16, name##_bf16, name##_f32_chosen, name##_f16_chosen,    \
            name##_bf16_chosen                                                                     \
    }
/* Generates all variants for one dtype of x, and a table of them. First index: 0 for float
 * elements, 1 for int8. Second index: the order of MX_ENCODE_SEVEN. */
#define MX_ENCODES(name, x)                                                                        \
    MX_ENCODE_SEVEN(name##_float, x, 0)                                                            \
    MX_ENCODE_SEVEN(name##_int8, x, 1)                                                             \
    static mx_encode_function *const name[2][7] = {MX_SEVEN_OF(name##_float),                      \
                                                   MX_SEVEN_OF(name##_int8)};
MX_ENCODES(mx_encode_f32, DW_F32)
MX_ENCODES(mx_encode_f16, DW_F16)
MX_ENCODES(mx_encode_bf16, DW_BF16)
#undef MX_ENCODES
#undef MX_SEVEN_OF
#undef MX_ENCODE_SEVEN
#undef MX_ENCODE

/* Encodes a special block (see SPECIAL_FROM in kernels_simd.h) with the C kernel. */
static void mx_encode_special(const dw_mx_encode_run *run, uint32_t block)
{
    size_t at = (size_t)block * DW_MX_BLOCK, size = bytes_of(run->prev_dtype);
    uint64_t left = run->channels - at;
    dw_mx_encode_run one = *run;
    one.blocks = 1;
    one.channels = left < DW_MX_BLOCK ? left : (uint64_t)DW_MX_BLOCK;
    one.x = (const unsigned char *)run->x + at * bytes_of(run->x_dtype);
    if (run->prev) one.prev = (const unsigned char *)run->prev + at * size;
    if (run->next) one.next = (unsigned char *)run->next + at * size;
    one.scales += block;
    one.first_piece += block;
    one.first += (uint32_t)at;
    dw_kernels_c.mx_encode(&one);
}

static void mx_mark_direct(const dw_mx_encode_run *run, uint64_t direct)
{
    for (; direct; direct &= direct - 1) {
        uint64_t bit = run->first_piece + (uint32_t)__builtin_ctzll(direct);
        run->choices[bit / 8] = (uint8_t)(run->choices[bit / 8] | 1u << bit % 8);
    }
}

/* Encodes the elements from `at` on, which are less than a chunk, through buffers padded with
 * zeros. Surplus results are discarded. */
static void mx_encode_rest(const dw_mx_encode_run *run, mx_encode_function *encode_with,
                           const mx_rule *rule, size_t at, mx_notes *notes)
{
    _Alignas(64) unsigned char x[4 * CHUNK] = {0}, prev[4 * CHUNK] = {0}, next[4 * CHUNK],
                                     tile[CHUNK];
    uint8_t scales[2];
    mx_notes made = {0, 0, 0};
    uint32_t block = (uint32_t)(at / DW_MX_BLOCK), blocks = run->blocks - block;
    size_t n = run->channels - at, x_size = bytes_of(run->x_dtype),
           size = bytes_of(run->prev_dtype);
    memcpy(x, (const unsigned char *)run->x + at * x_size, n * x_size);
    if (run->prev) memcpy(prev, (const unsigned char *)run->prev + at * size, n * size);
    mx_chunk chunk = {x, prev, next};
    mx_target to = {scales, tile, CHUNK, 0};
    encode_with(&chunk, rule, 1, &to, &made);
    if (run->next) memcpy((unsigned char *)run->next + at * size, next, n * size);
    memcpy(run->scales + block, scales, blocks);
    copy_planes(tile, rule->bits, (size_t)blocks * DW_MX_BLOCK, run->codes, run->tile_elements,
                run->first + at);
    notes->direct |= made.direct << block;
    notes->special |= made.special << block;
    /* encode_with encodes two blocks. If only one is left, the other is padding, which was counted
     * as zero. */
    notes->zero += made.zero - (blocks == 1);
}

static void mx_encode(const dw_mx_encode_run *run)
{
    mx_encode_function *const(*const by_x[3])[7] = {mx_encode_f32, mx_encode_f16, mx_encode_bf16};
    int prev = run->next ? run->prev_dtype - DW_F32 + (run->choices ? 4 : 1) : 0;
    mx_encode_function *encode_with =
        by_x[run->x_dtype - DW_F32][run->element == DW_ELEMENT_INT8][prev];
    mx_rule rule = mx_rule_of(run->element);
    mx_notes notes = {0, 0, 0};
    size_t whole = run->channels / CHUNK * CHUNK;
    mx_chunk chunk = {run->x, run->prev ? run->prev : no_prev, run->next};
    mx_target to = {run->scales, run->codes, run->tile_elements, run->first};
    encode_with(&chunk, &rule, (uint32_t)(whole / CHUNK), &to, &notes);
    if (whole < run->channels) mx_encode_rest(run, encode_with, &rule, whole, &notes);
    run->counts->pieces += run->blocks - (uint32_t)__builtin_popcountll(notes.special);
    run->counts->zero += notes.zero;
    run->counts->direct += (uint32_t)__builtin_popcountll(notes.direct);
    if (notes.direct) mx_mark_direct(run, notes.direct);
    for (uint64_t special = notes.special; special; special &= special - 1)
        mx_encode_special(run, (uint32_t)__builtin_ctzll(special));
}
