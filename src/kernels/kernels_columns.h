/* SPDX-License-Identifier: Apache-2.0
 * kernels_columns.h - vector kernels for rows of a strip whose channels have a scale each.
 *
 * A part of the vector kernels: see kernels_simd.h, which comes before it, as does
 * kernels_dither.h. The last block of a row may extend past the row's end. Then it is loaded
 * through a buffer, and its surplus results go to columns that nobody reads. */

static void fill_nan(unsigned char *out, dw_dtype dtype, size_t n)
{
    size_t size = bytes_of(dtype);
    uint32_t nan = dtype == DW_F32 ? DW_F32_NAN : dtype == DW_F16 ? DW_F16_NAN : DW_BF16_NAN;
    for (size_t i = 0; i < n; i++)
        memcpy(out + i * size, &nan, size); /* little-endian: the low half */
}

static f32x16 load_cut(const void *from, dw_dtype dtype, size_t i, size_t n)
{
    return i + LANES <= n ? load(from, dtype, i) : load_rest(from, dtype, i, n);
}

static f32x16 column_base(const dw_column_run *run, size_t i)
{
    return run->prev ? load_cut(run->prev, run->prev_dtype, i, run->columns->n) : f_set(0);
}

/* The base of a block, with 0 where the column is direct. */
DW_VECTOR f32x16 masked_base(const dw_column_run *run, f32x16 base, size_t i)
{
    return i_float(i_and(f_bits(base), i_load(run->columns->base_mask + i)));
}

DW_VECTOR void join_columns(uint32_t *positive, uint32_t *negative, f32x16 value)
{
    /* The extremes start at 0. As signed integers, positive floats are ordered like their values,
     * and negative floats are below 0, so the signed maximum ignores them. negative_magnitude makes
     * negative floats positive, and all others 0. */
    i_store(positive, i_max(i_load(positive), f_bits(value)));
    i_store(negative, i_max(i_load(negative), negative_magnitude(f_bits(value))));
}

static void column_extremes(const dw_column_run *run, dw_column_extremes *to)
{
    for (size_t i = 0; i < run->columns->n; i += LANES) {
        f32x16 x = load_cut(run->x, run->x_dtype, i, run->columns->n);
        join_columns(to->direct_positive + i, to->direct_negative + i, x);
        join_columns(to->delta_positive + i, to->delta_negative + i,
                     run->prev ? f_sub(x, column_base(run, i)) : x);
    }
}

static void column_squares(const dw_column_run *run, dw_column_squares *to)
{
    for (size_t i = 0; i < run->columns->n; i += LANES) {
        f32x16 base = masked_base(run, column_base(run, i), i);
        f32x16 delta = f_sub(load_cut(run->x, run->x_dtype, i, run->columns->n), base);
        for (int k = 0; k < DW_ATTEMPTS; k++) {
            f32x16 square = square_of(delta, f_load(to->inverse[k] + i), run->bits);
            f_store(to->sum[k] + i, f_add(f_load(to->sum[k] + i), square));
        }
    }
}

/* Writes the new values of a block: computed from its levels, or kept where the column is
 * poisoned. */
DW_VECTOR void put_block(const dw_column_run *run, size_t i, f32x16 base, f32x16 level,
                         dw_dtype dtype)
{
    const dw_columns *columns = run->columns;
    i32x16 keep = i_load(columns->keep_mask + i);
    f32x16 value = f_add(masked_base(run, base, i), f_mul(level, f_load(columns->scale + i)));
    value = i_float(i_or(i_and(keep, f_bits(base)), i_andnot(keep, f_bits(value))));
    size_t size = bytes_of(dtype), left = columns->n - i;
    unsigned char *out = (unsigned char *)run->out + i * size, rest[4 * LANES];
    if (left >= LANES) {
        store(out, dtype, 0, value);
    } else {
        store(rest, dtype, 0, value);
        memcpy(out, rest, left * size);
    }
}

static void put_any(const dw_column_run *run, size_t i, f32x16 base, f32x16 level, dw_dtype dtype)
{
    switch (dtype) {
    case DW_F32: put_block(run, i, base, level, DW_F32); break;
    case DW_F16: put_block(run, i, base, level, DW_F16); break;
    case DW_BF16: put_block(run, i, base, level, DW_BF16); break;
    }
}

/* Encodes 16 elements, starting at element i; the codes of padding are those of 0. */
static i32x16 encode_block(const dw_column_run *run, const uint16_t *dithers, size_t i)
{
    const dw_columns *columns = run->columns;
    if (i >= columns->n) return i_set(0);
    f32x16 base = column_base(run, i),
           delta = f_sub(load_cut(run->x, run->x_dtype, i, columns->n), masked_base(run, base, i));
    steps d =
        steps_of(delta, f_load(columns->inverse + i), run->bits, dithers ? dithers + i : NULL);
    if (run->out) put_any(run, i, base, d.level, run->prev_dtype);
    return d.step;
}

static void encode_columns(const dw_column_run *run)
{
    const dw_columns *columns = run->columns;
    const uint16_t *dithers = NULL;
    parts random;
    if (run->dither) dithers = fill_parts(run->dither, 0, columns->n, columns->stored, &random);
    for (size_t i = 0; i < columns->stored; i += CHUNK) {
        i32x16 l[4];
        uint8_t tile[CHUNK];
        for (size_t k = 0; k < 4; k++) l[k] = encode_block(run, dithers, i + k * LANES);
        codes64 codes = codes_of_levels(l[0], l[1], l[2], l[3], 1 << (run->bits - 1));
        if (i + CHUNK <= columns->stored) {
            put64(codes, run->bits, run->codes, run->tile_elements, run->first + i);
        } else {
            put64(codes, run->bits, tile, CHUNK, 0);
            copy_planes(tile, run->bits, columns->stored - i, run->codes, run->tile_elements,
                        run->first + i);
        }
    }
}

static void decode_columns(const dw_column_run *run)
{
    const dw_columns *columns = run->columns;
    levels v = levels_of(1.0f, run->bits);
    for (size_t i = 0; i < columns->n; i += LANES) {
        f32x16 level =
            add_level(f_set(0), take16(run->bits, run->codes, run->tile_elements, run->first + i),
                      v, run->bits);
        put_any(run, i, column_base(run, i), level, run->x_dtype);
    }
    for (uint32_t i = 0; i < columns->n && !run->poison_keeps; i++)
        if (columns->keep_mask[i])
            fill_nan((unsigned char *)run->out + i * bytes_of(run->x_dtype), run->x_dtype, 1);
}
