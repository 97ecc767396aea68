/* SPDX-License-Identifier: Apache-2.0
 * golden_trellis.h - the golden frames of rounding=trellis that are not made by a golden_case
 * alone.
 *
 * Included by make_golden.c after its helpers. */

/* Half steps, of which many lie half way between two levels, and many sequences of levels cost the
 * same. The largest value of each row is 123 and the error is small, so that the step is 1. */
static void trellis_ties(const char *directory, bool check)
{
    golden g = golden_begin(directory, check, "trellis_ties",
                            "direct:form=step,group=row,rounding=trellis,error=0.001,entropy=rans",
                            DW_F32, DW_F32, 1, 4, 300);
    test_random random = {11};
    g.tells_x = 1;
    for (size_t i = 0; i < (size_t)g.t * g.c; i++) {
        int halves = (int)(test_next(&random) % 41) - 20;
        g.data[i] = i % g.c == 7 ? 123 : (float)halves / 2;
    }
    golden_encode_and_send(&g);
    golden_finish(&g);
}

/* The values are small ones, of which the indices are -1, 0 and 1. */
static void bad_trellis(const char *directory, bool check)
{
    golden g = golden_begin(directory, check, "bad_trellis",
                            "direct:form=step,step=1,rounding=trellis,entropy=rans", DW_F32, DW_F32,
                            1, 4, 200);
    golden_fill(&g, 1, 1, 0);
    for (size_t i = 0; i < (size_t)g.t * g.c; i++) g.data[i] *= g.data[i] * g.data[i];
    golden_encode(&g);
    dw_entry_info entry;
    if (dw_frame_entries(g.pair.frame, g.pair.len, 0, 1, &entry)) golden_failures++;
    uint8_t *copy = malloc(g.pair.len);
    if (!copy) abort();
    if (g.pair.frame[entry.payload_offset + 35] != 2) golden_failures++;
    for (unsigned i = 0; i < sizeof trellis_bytes / sizeof *trellis_bytes; i++) {
        memcpy(copy, g.pair.frame, g.pair.len);
        copy[entry.payload_offset + trellis_bytes[i].at] = trellis_bytes[i].value;
        test_seal(copy, g.pair.len);
        golden_deliver(&g, copy, g.pair.len, DW_ERR_FORMAT);
    }
    free(copy);
    golden_send(&g, DW_OK);
    golden_finish(&g);
}
