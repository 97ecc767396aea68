/* SPDX-License-Identifier: Apache-2.0
 * check_cuda_mx.c - compares the microscaling kernels of cuda/, executed on the CPU, with the C
 * kernels, block by block: payloads, new prev, y and sums.
 *
 * check_cuda_mx [--share N]: run only one in N of the random samples. Every second message runs
 * with blocks and threads from the last to the first. */
#include "kernels/kernels.h"
#include "sample.h"

static uint32_t share = 1;

static sample draw_sample(void)
{
    static const uint32_t widths[] = {1, 31, 32, 33, 64, 100, 256, 1000, 2048, 2500};
    uint32_t c = widths[sample_below(10)], t = 1 + sample_below(5000 / c > 30 ? 30 : 5000 / c);
    sample s = sample_draw(t, c, sample_below(4) != 0);
    dw_element element = (dw_element)(1 + sample_below(DW_ELEMENTS));
    dw_layout *layout = &s.plan.layout;
    assert_true(dw_layout_make_mx(layout, t, c, element, dw_element_facts_of(element).bits,
                                  s.has_prev && sample_below(2)));
    s.plan.payload_bytes = layout->payload_bytes;
    sample_fill(&s, sample_below(2));
    for (size_t i = 0; i < s.dense; i++) {
        size_t at = s.offset + i / c * (size_t)s.stride + i % c;
        if (i / 32 % 3 == 0) /* some blocks of x are near prev, or equal */
            test_set(s.x, s.x_dtype, at,
                     test_get(s.prev, s.prev_dtype, i) * (i % 2 ? 1.0f : 1.01f));
        if (i / 32 % 7 == 0)
            test_set(s.x, s.x_dtype, at, s.has_prev ? test_get(s.prev, s.prev_dtype, i) : -0.0f);
    }
    return s;
}

/* Where block `piece` lies in prev (dense) and in x or y (tensor). */
typedef struct place {
    size_t dense, tensor;
    uint32_t channels;
    dw_tile tile;
    uint32_t within; /* the number of the block within its tile */
} place;

static place place_of(const sample *s, uint64_t piece)
{
    const dw_layout *layout = &s->plan.layout;
    uint64_t row = piece / layout->row_segments,
             column = piece % layout->row_segments * DW_MX_BLOCK, left = layout->c - column;
    return (place){(size_t)(row * layout->c + column),
                   s->offset + (size_t)(row * (uint64_t)s->stride + column),
                   left < DW_MX_BLOCK ? (uint32_t)left : (uint32_t)DW_MX_BLOCK,
                   dw_layout_tile(layout, piece / layout->tile_segments),
                   (uint32_t)(piece % layout->tile_segments)};
}

/* ---- The C kernels --------------------------------------------------------------------------- */

static void spec_encode(const sample *s, output *out)
{
    dw_piece_counts counts = {0};
    memset(out->payload, 0, s->plan.layout.payload_bytes);
    for (uint64_t piece = 0; piece < s->plan.layout.pieces; piece++) {
        place p = place_of(s, piece);
        dw_mx_encode_run run = {
            .x_dtype = s->x_dtype,
            .prev_dtype = s->prev_dtype,
            .element = (dw_element)s->plan.layout.element,
            .blocks = 1,
            .channels = p.channels,
            .x = sample_at(s->x, s->x_dtype, p.tensor),
            .prev = s->has_prev ? sample_at(s->prev, s->prev_dtype, p.dense) : NULL,
            .next = s->has_state ? sample_at(out->next, s->prev_dtype, p.dense) : NULL,
            .scales = out->payload + dw_layout_scale(&s->plan.layout, piece),
            .choices = s->plan.layout.chooses ? out->payload : NULL,
            .codes = out->payload + p.tile.codes,
            .first_piece = piece,
            .tile_elements = p.tile.elements,
            .first = p.within * DW_MX_BLOCK,
            .counts = &counts,
        };
        dw_kernels_c.mx_encode(&run);
    }
    out->direct = counts.direct;
    out->zero = counts.zero;
    out->poisoned = counts.poisoned;
    output_digest(s, out);
}

static void put_nan(void *to, dw_dtype dtype)
{
    uint32_t single = DW_F32_NAN;
    uint16_t half = dtype == DW_F16 ? DW_F16_NAN : DW_BF16_NAN;
    memcpy(to, dtype == DW_F32 ? (void *)&single : (void *)&half, dw_dtype_bytes(dtype));
}

static void spec_decode(const sample *s, output *out)
{
    dw_dtype dtype = s->has_state ? s->prev_dtype : s->y_dtype;
    for (uint64_t piece = 0; piece < s->plan.layout.pieces; piece++) {
        place p = place_of(s, piece);
        uint32_t scale = out->payload[dw_layout_scale(&s->plan.layout, piece)];
        dw_mx_decode_run run = {
            .out_dtype = dtype,
            .prev_dtype = s->prev_dtype,
            .element = (dw_element)s->plan.layout.element,
            .blocks = 1,
            .channels = p.channels,
            .prev = s->has_prev ? sample_at(s->prev, s->prev_dtype, p.dense) : NULL,
            .out = s->has_state ? sample_at(out->next, dtype, p.dense)
                                : sample_at(out->y, dtype, p.tensor),
            .poison_keeps = s->has_state,
            .scales = out->payload + dw_layout_scale(&s->plan.layout, piece),
            .choices = s->plan.layout.chooses ? out->payload : NULL,
            .codes = out->payload + p.tile.codes,
            .first_piece = piece,
            .tile_elements = p.tile.elements,
            .first = p.within * DW_MX_BLOCK,
        };
        dw_kernels_c.mx_decode(&run);
        out->direct += s->plan.layout.chooses && (out->payload[piece / 8] >> piece % 8 & 1);
        out->zero += scale == 0;
        out->poisoned += scale == DW_MX_POISONED;
        for (uint32_t i = 0; s->has_state && s->with_y && i < p.channels; i++) {
            dw_kernels_c.convert(sample_at(out->next, dtype, p.dense + i), dtype,
                                 sample_at(out->y, s->y_dtype, p.tensor + i), s->y_dtype, 1);
            if (scale == DW_MX_POISONED)
                put_nan(sample_at(out->y, s->y_dtype, p.tensor + i), s->y_dtype);
        }
    }
    output_digest(s, out);
}

/* ---- Comparisons ----------------------------------------------------------------------------- */

static void check(sample_work *spec, sample_comparison *compare, uint32_t draws)
{
    sample_source.state = test_seed();
    for (uint32_t draw = 0; draw < draws / share; draw++) {
        sample s = draw_sample();
        output expected = output_make(&s, NULL);
        const dw_layout *layout = &s.plan.layout;
        /* Give some blocks scales that are common. */
        for (uint64_t i = 0; i < layout->pieces && sample_below(4); i++)
            expected.payload[dw_layout_scale(layout, i)] = (uint8_t)(110 + sample_below(30));
        compare(&s, "dw_mx", &expected, spec, draw % 2);
        sample_free(&s);
    }
}

static void frames_equal_those_of_the_c_kernels(void **state)
{
    (void)state;
    check(spec_encode, sample_compare_encode, 1200);
}

static void tensors_equal_those_of_the_c_kernels(void **state)
{
    (void)state;
    check(spec_decode, sample_compare_decode, 1200);
}

int main(int argc, char **argv)
{
    share = test_share(argc, argv);
    const struct CMUnitTest tests[] = {cmocka_unit_test(frames_equal_those_of_the_c_kernels),
                                       cmocka_unit_test(tensors_equal_those_of_the_c_kernels)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
