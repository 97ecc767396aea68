/* SPDX-License-Identifier: Apache-2.0
 * columns.c - tests kernels for rows with a scale per channel. */
#include "check_kernels.h"
#include "run_shape.h"

/* Makes columns of every kind: ordinary, flat, poisoned, and coded directly. Their scales cover the
 * values of the row or are a little too small. */
static void fill_columns(bench *b, const shape *s, const void *x, const void *prev,
                         dw_columns *columns)
{
    static const float parts[] = {1, 1, 0.3f, 2};
    memset(columns, 0, sizeof *columns);
    columns->n = (uint32_t)s->channels;
    columns->stored = (columns->n + 31) / 32 * 32;
    for (uint32_t i = 0; i < columns->n; i++) {
        columns->base_mask[i] = below(b, 4) ? ~0u : 0;
        float base = s->has_prev && columns->base_mask[i] ? test_get(prev, s->prev, i) : 0.0f;
        float delta = (test_get(x, s->x, i) - base) * parts[below(b, 4)];
        uint32_t bits = dw_bits_of(delta);
        dw_extremes extremes = {bits >> 31 ? 0 : bits, bits >> 31 ? bits & 0x7fffffff : 0};
        uint16_t scale = below(b, 8) ? dw_scale_of(extremes, s->bits, (int)below(b, 2)) : 0;
        columns->keep_mask[i] = dw_scale_is_poisoned(scale) ? ~0u : 0;
        columns->scale[i] = dw_scale_is_flat(scale) ? 0.0f : dw_bf16_widen(scale);
        columns->inverse[i] = dw_scale_inverse(scale);
    }
}

/* Encodes and decodes one row with both tables. Input and output lie at guard pages. */
static void check_row(bench *b, const shape *s, dw_column_run *run, dw_columns *columns)
{
    static unsigned char x[4 * MOST], prev[4 * MOST], expected_out[4 * MOST],
        expected_codes[4 * MOST];
    fill_run(b, s, x, prev);
    fill_columns(b, s, x, prev, columns);
    uint32_t n = columns->n;
    run->first = 32 * below(b, 8);
    run->tile_elements = run->first + columns->stored + 32 * below(b, 3);
    size_t code_bytes = (size_t)run->tile_elements * s->bits / 8,
           out_bytes = n * dw_dtype_bytes(s->prev);
    const char *table = b->kernels->name, *text = describe(s);
    run->x = guarded_x(b, s, x);
    run->prev = guarded_prev(b, s, prev);
    uint8_t *codes = guarded(b, SLOT_CODES, code_bytes);
    void *out = guarded(b, SLOT_NEXT, out_bytes);
    memcpy(expected_codes, codes, code_bytes);
    memcpy(expected_out, out, out_bytes);
    dw_column_run spec = *run;
    spec.codes = expected_codes, run->codes = codes;
    spec.out = s->has_next ? expected_out : NULL, run->out = s->has_next ? out : NULL;
    specification->encode_columns(&spec);
    b->kernels->encode_columns(run);
    same_bytes("codes of columns", expected_codes, codes, code_bytes, table, text);
    same_bytes("next of columns", expected_out, out, out_bytes, table, text);
    random_bytes(b, codes, code_bytes);
    spec.codes = codes;
    spec.out = expected_out, run->out = out;
    spec.x_dtype = run->x_dtype = s->prev;
    spec.poison_keeps = run->poison_keeps = (int)below(b, 2);
    specification->decode_columns(&spec);
    b->kernels->decode_columns(run);
    same_bytes("decoded columns", expected_out, out, out_bytes, table, text);
}

/* Compares what one row contributes to the choice of scales: extremes and sums of squares. */
static void check_decisions(bench *b, const shape *s, const dw_column_run *run)
{
    static dw_column_extremes extremes[2];
    static dw_column_squares squares[2];
    size_t n = (size_t)s->channels;
    memset(extremes, 0, sizeof extremes);
    memset(squares, 0, sizeof squares);
    for (size_t i = 0; i < n; i++) {
        extremes[0].delta_positive[i] = extremes[1].delta_positive[i] = below(b, 0x40000000);
        for (int k = 0; k < DW_ATTEMPTS; k++)
            squares[0].inverse[k][i] = squares[1].inverse[k][i] = (float)(1 + below(b, 100));
    }
    specification->column_extremes(run, &extremes[0]);
    b->kernels->column_extremes(run, &extremes[1]);
    for (size_t i = 0; i < n; i++)
        assert_true(extremes[0].delta_positive[i] == extremes[1].delta_positive[i] &&
                    extremes[0].delta_negative[i] == extremes[1].delta_negative[i] &&
                    extremes[0].direct_positive[i] == extremes[1].direct_positive[i] &&
                    extremes[0].direct_negative[i] == extremes[1].direct_negative[i]);
    if (s->hostile == 2) return; /* sums may be NaN, which has more than one bit pattern */
    specification->column_squares(run, &squares[0]);
    b->kernels->column_squares(run, &squares[1]);
    for (int k = 0; k < DW_ATTEMPTS; k++)
        same_bytes("column squares", squares[0].sum[k], squares[1].sum[k], n * sizeof(float),
                   b->kernels->name, describe(s));
}

KERNEL_TEST(columns_equal_those_of_c)
{
    static dw_columns columns;
    for (int round = 0; round < drawn(b, 6000, 256); round++) {
        uint32_t n = round < 2560 ? 1 + (uint32_t)round % 256 : 1 + below(b, 256);
        shape s = shape_of(b, any_dtype(b), any_dtype(b), 1 + below(b, 8), 256, n);
        dw_column_run run = {.x_dtype = s.x,
                             .prev_dtype = s.prev,
                             .bits = s.bits,
                             .columns = &columns,
                             .poison_keeps = 1,
                             .dither = s.dithers ? &s.dither : NULL};
        check_row(b, &s, &run, &columns);
        run.x_dtype = s.x;
        check_decisions(b, &s, &run);
    }
}

int check_columns(void)
{
    return test_run(NULL, NULL);
}
