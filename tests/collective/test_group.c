/* SPDX-License-Identifier: Apache-2.0
 * test_group.c - the results of operations are those of the model, bit for bit, on all ranks. */
#include "group.h"
#include "group_model.h"
#include "group_rig.h"
#include "support/backing.h"

enum { PATIENCE_MS = 60000, PIECE = 2048 };

/* ---- One operation on all ranks -------------------------------------------------------------- */

/* Runs an operation on all ranks, with buffers of their own, and compares the results. seed: of the
 * values. in_place: y is x. */
static void compare(group_rig *rig, group_model *model, dw_group_job job, uint64_t seed,
                    int in_place)
{
    size_t bytes = dw_dtype_bytes(job.dtype), whole = (size_t)job.n * bytes + 1;
    void *x[RIG_MOST], *kept[RIG_MOST], *y[RIG_MOST];
    rig_deed act = {.rig = rig};
    job.slot = model->slot;
    for (uint32_t r = 0; r < rig->ranks; r++) {
        uint64_t begin, count;
        dw_group_part(job.n, r, rig->ranks, &begin, &count);
        uint64_t n = job.operation == DW_ALL_GATHER ? count : job.n;
        x[r] = malloc(whole);
        kept[r] = malloc(whole);
        rig_fill(x[r], job.dtype, n, seed * 10 + r);
        memcpy(kept[r], x[r], (size_t)n * bytes);
        y[r] = in_place ? x[r] : malloc(whole);
        if (!in_place) memset(y[r], 0xee, whole);
        if (in_place && job.operation == DW_REDUCE_SCATTER)
            y[r] = (unsigned char *)x[r] + begin * bytes;
        act.job[r] = job;
        act.job[r].x = x[r];
        act.job[r].y = y[r];
    }
    rig_run_well(&act);
    void *expected = malloc(whole);
    float *sums = malloc((size_t)job.n * sizeof *sums + 1);
    const void *const *inputs = (const void *const *)kept;
    if (job.operation == DW_ALL_REDUCE) model_all_reduce(model, &job, inputs, expected);
    if (job.operation == DW_ALL_GATHER) model_gather(model, &job, inputs, expected);
    if (job.operation == DW_BROADCAST) model_broadcast(model, &job, kept[job.root], expected);
    if (job.operation == DW_REDUCE_SCATTER) model_sums(model, &job, inputs, sums);
    for (uint32_t r = 0; r < rig->ranks; r++) {
        uint64_t begin = 0, count = job.n;
        const void *right = expected;
        if (job.operation == DW_REDUCE_SCATTER) {
            dw_group_part(job.n, r, rig->ranks, &begin, &count);
            right = sums + begin;
        }
        if (memcmp(y[r], right, (size_t)count * bytes) != 0)
            fail_msg("operation %d, n %llu, rank %u of %u: other bits", (int)job.operation,
                     (unsigned long long)job.n, r, rig->ranks);
    }
    for (uint32_t r = 0; r < rig->ranks; r++) {
        if (!in_place) free(y[r]);
        free(x[r]);
        free(kept[r]);
    }
    free(sums);
    free(expected);
}

/* ---- Tests ----------------------------------------------------------------------------------- */

static const uint64_t lengths[] = {0, 1, 256, 2047, 2048, 2049, 5000, 20480, 33333};
enum { LENGTHS = sizeof lengths / sizeof *lengths };
static const char *const uris[] = {"loop://group-%d", "tcp://127.0.0.1:0"};

static int every = 1; /* of the lengths, so many are left out but one */

/* Each length has its own slot, and is visited several times. */
static void all_lengths(group_rig *rig, const char *codec, const char *result,
                        dw_operation operation)
{
    group_model model;
    model_create(&model, rig->ranks, PIECE, 0, codec, result);
    if (rig->config[0].hops) model.hops = rig->config[0].hops;
    for (int i = 0; i < LENGTHS; i += every) {
        model.slot = 1000 * (uint64_t)operation + (uint64_t)i;
        for (uint64_t visit = 0; visit < 3; visit++) {
            dw_group_job job = {.operation = operation,
                                .n = lengths[i],
                                .dtype = DW_F32,
                                .mean = operation <= DW_REDUCE_SCATTER && i % 2,
                                .root = operation == DW_BROADCAST ? (uint32_t)i % rig->ranks : 0};
            compare(rig, &model, job, visit * 100 + (uint64_t)i, visit == 1);
        }
    }
    model_destroy(&model);
}

static void all_reduce_gives_the_bits_of_the_model(void **state)
{
    static const char *const codecs[] = {"raw:f32",
                                         "direct:bits=4",
                                         "delta:bits=4",
                                         "direct:bits=2,feedback=ef",
                                         "delta:bits=2,group=row,prev=bf16",
                                         "delta:bits=4,prev=8",
                                         "delta:form=step,error=0.1,group=128,entropy=rans,prev=4",
                                         "direct:form=step,group=128,entropy=rans",
                                         "mx:element=e4m3",
                                         "lowrank:rank=4,width=64,feedback=ef,restart=5"};
    for (size_t c = 0; c < sizeof codecs / sizeof *codecs; c++) {
        /* The first two codecs in groups of all sizes, the others in groups of three, and only some
         * of them over sockets, because that takes longer. */
        for (uint32_t ranks = c < 2 ? 2 : 3; ranks <= (c < 2 ? 5 : 3); ranks++) {
            group_rig rig;
            rig_start(&rig, uris[c < 2 || ranks == 3], ranks, codecs[c]);
            all_lengths(&rig, codecs[c], NULL, DW_ALL_REDUCE);
            rig_close(&rig);
        }
    }
}

static void open_with_one_hop(group_rig *rig, const char *uri, uint32_t ranks, const char *codec)
{
    rig_link(rig, uri, ranks, codec, "direct:bits=8");
    for (uint32_t r = 0; r < ranks; r++) rig->config[r].hops = 1;
    rig_open(rig);
}

/* The other operations of such a group have their usual hops. */
static void one_hop_gives_the_bits_of_the_model(void **state)
{
    static const char *const codecs[] = {"raw:f32",
                                         "direct:bits=4",
                                         "delta:bits=4",
                                         "delta:bits=4,prev=8",
                                         "direct:bits=2,feedback=ef",
                                         "chunk:chunk=256,feedback=ef,decay=0.9",
                                         "direct:form=step,group=128,entropy=rans"};
    for (size_t c = 0; c < sizeof codecs / sizeof *codecs; c++) {
        for (uint32_t ranks = c == 1 ? 2 : 3; ranks <= (c == 1 ? 4 : 3); ranks++) {
            group_rig rig;
            open_with_one_hop(&rig, uris[ranks == 3], ranks, codecs[c]);
            all_lengths(&rig, codecs[c], "direct:bits=8", DW_ALL_REDUCE);
            if (c == 1 && ranks == 3)
                for (int other = DW_REDUCE_SCATTER; other <= DW_BROADCAST; other++)
                    all_lengths(&rig, codecs[c], "direct:bits=8", (dw_operation)other);
            rig_close(&rig);
        }
    }
}

/* In one group, with a codec that keeps state, slot 0 is for all-reduces in one hop, slot 1 for
 * reduce-scatters, and slot 2 for all-gathers. */
static void one_hop_sums_work_beside_other_operations(void **state)
{
    static const dw_operation operations[] = {DW_ALL_REDUCE, DW_REDUCE_SCATTER, DW_ALL_GATHER};
    group_rig rig;
    group_model model;
    open_with_one_hop(&rig, uris[0], 3, "delta:bits=4");
    model_create(&model, 3, PIECE, 0, "delta:bits=4", "direct:bits=8");
    model.hops = 1;
    for (uint64_t i = 0; i < 12; i++) {
        model.slot = i % 3;
        dw_group_job job = {.operation = operations[i % 3], .n = 5000, .dtype = DW_F32};
        compare(&rig, &model, job, 70 + i, 0);
    }
    model_destroy(&model);
    rig_close(&rig);
}

/* With form=step, a group shares steps by 128 values if the config says nothing, or by row. */
static void steps_are_shared_by_128_values(void **state)
{
    static const char *const texts[] = {"direct:form=step", "direct:form=step,group=128",
                                        "direct:form=step,group=row"};
    group_rig rig;
    rig_link(&rig, uris[0], 3, texts[0], NULL);
    for (uint32_t r = 0; r < 3; r++)
        assert_int_equal(dw_config_parse(&rig.codec[r], texts[r], NULL), DW_OK);
    rig_open(&rig);
    all_lengths(&rig, texts[1], texts[1], DW_ALL_REDUCE);
    rig_close(&rig);
}

/* Checks that the last pieces of part 1 have the expected lengths, up to five, of which the unused
 * ones are 0, that those before are as long as the first of these, and that no gap is between
 * them. */
static void expect_pieces(const dw_settings *settings, const dw_group_job *job,
                          const uint64_t *expected)
{
    dw_partition cut = dw_partition_make(settings, job);
    dw_piece part = dw_partition_part(&cut, 1);
    uint64_t begin = part.begin, whole = expected[0];
    uint32_t pieces = dw_partition_pieces(&cut, 1), given = 0;
    while (given < 5 && expected[given]) given++;
    assert_true(pieces >= given);
    for (uint32_t i = 0; i < pieces; i++) {
        dw_piece piece = dw_partition_piece(&cut, 1, i);
        uint64_t length = i + given < pieces ? whole : expected[given - (pieces - i)];
        assert_int_equal(piece.begin, begin);
        assert_int_equal(piece.count, length);
        begin += piece.count;
    }
    assert_int_equal(begin, part.begin + part.count);
}

static void piece_lengths_follow_from_the_buffer_length(void **state)
{
    /* Of two ranks; 16 tiles of 2048 floats in 8 bits have more than 32 KiB. `lengths` are those of
     * the last pieces; all pieces before them are as long as the first of these. The last two or
     * more are halves of what is left of the part, unless halves are shorter than 32768 floats. */
    static const struct {
        dw_operation operation;
        uint64_t n, lengths[5];
    } cases[] = {{DW_ALL_REDUCE, 3, {3}},
                 {DW_ALL_REDUCE, 200000, {32768, 32768, 32768, 1344}},
                 {DW_ALL_REDUCE, 400 * 2048, {53248, 53248, 45056, 45056}},
                 {DW_BROADCAST, 400 * 2048, {104448, 104448, 96256, 49152, 47104}},
                 {DW_REDUCE_SCATTER, 5000000, {262144, 202752, 100352, 51200, 47936}},
                 {DW_REDUCE_SCATTER, 64 << 20, {262144, 131072, 65536, 32768, 32768}}};
    group_rig rig;
    rig_link(&rig, uris[0], 2, "direct:bits=8", NULL);
    for (int r = 0; r < 2; r++) rig.config[r].piece = 0;
    rig_open(&rig);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const dw_group_job job = {.operation = cases[i].operation, .n = cases[i].n, .root = 1};
        expect_pieces(&rig.group[0]->exchange.settings, &job, cases[i].lengths);
    }
    group_model model;
    model_create(&model, 2, 26 * 2048, 1, "direct:bits=8", NULL);
    compare(&rig, &model,
            (dw_group_job){.operation = DW_ALL_REDUCE, .n = 400 * 2048, .dtype = DW_F32}, 700, 0);
    model_destroy(&model);
    rig_close(&rig);
}

/* The state of a group's codecs may lie outside of memory: each rank has a backing store. */
static void state_in_a_backing_store_gives_the_same_bits(void **state)
{
    (void)state;
    static test_backing backings[3];
    dw_host hosts[3];
    static const char *const codecs[] = {"delta:bits=4,prev=8", "direct:bits=2,feedback=ef"};
    for (int c = 0; c < 4; c++) {
        group_rig rig;
        rig_link(&rig, uris[0], 3, codecs[c % 2], c < 2 ? NULL : "direct:bits=8");
        for (int r = 0; r < 3; r++) {
            test_backing_open(&backings[r], 0);
            hosts[r] = (dw_host){.struct_size = sizeof hosts[r], .backing = &backings[r].calls};
            rig.config[r].host = &hosts[r];
            rig.config[r].hops = c < 2 ? 2 : 1;
        }
        rig_open(&rig);
        all_lengths(&rig, codecs[c % 2], c < 2 ? NULL : "direct:bits=8", DW_ALL_REDUCE);
        rig_close(&rig);
        for (int r = 0; r < 3; r++) {
            assert_true(backings[r].reads > 0);
            assert_int_equal(backings[r].n, 0);
        }
    }
}

static void scatter_gather_and_broadcast_give_the_bits_of_the_model(void **state)
{
    static const char *const codecs[][2] = {
        {"direct:bits=4", "delta:bits=5"},
        {"direct:bits=1,scale=mse,feedback=ef", "raw:bf16,feedback=ef"}};
    for (int c = 0; c < 2; c++) {
        for (uint32_t ranks = 2; ranks <= 4; ranks++) {
            group_rig rig;
            const char *codec = codecs[c][0], *result = codecs[c][1];
            rig_link(&rig, uris[ranks == 3], ranks, codec, result);
            rig_open(&rig);
            all_lengths(&rig, codec, result, DW_REDUCE_SCATTER);
            all_lengths(&rig, codec, result, DW_ALL_GATHER);
            all_lengths(&rig, codec, result, DW_BROADCAST);
            rig_close(&rig);
        }
    }
}

static void f16_and_bf16_are_summed_in_binary32(void **state)
{
    static const dw_dtype dtypes[] = {DW_BF16, DW_F16};
    static const char *const codecs[] = {"direct:bits=6", "raw:f32"}; /* in one hop, and in two */
    for (uint32_t hops = 1; hops <= 2; hops++) {
        group_rig rig;
        rig_start_hops(&rig, uris[0], 3, codecs[hops - 1], hops);
        for (int d = 0; d < 2; d++) {
            group_model model;
            model_create(&model, 3, PIECE, 50 + (uint64_t)d, codecs[hops - 1], NULL);
            model.hops = hops;
            for (int i = 0; i < LENGTHS; i += every) {
                dw_group_job job = {.operation = DW_ALL_REDUCE,
                                    .n = lengths[i],
                                    .dtype = dtypes[d],
                                    .mean = hops == 1};
                compare(&rig, &model, job, 900 + (uint64_t)i, i % 2);
                job.operation = DW_BROADCAST;
                if (hops == 2) compare(&rig, &model, job, 900 + (uint64_t)i, 1);
            }
            model_destroy(&model);
        }
        rig_close(&rig);
    }
}

/* Every rank gets its part of the sums, rounded once. */
static void reduce_scatter_rounds_bf16_once(void **state)
{
    enum { N = 3 * 2048 + 100, RANKS = 3 };
    group_rig rig;
    uint16_t x[RANKS][N], y[RANKS][N];
    rig_deed act = {.rig = &rig};
    rig_start(&rig, uris[0], RANKS, "raw:f32");
    for (uint32_t r = 0; r < RANKS; r++) {
        for (int i = 0; i < N; i++) x[r][i] = 0x3f80 + (uint16_t)(i % 100); /* 1 to 1.8 */
        act.job[r] = (dw_group_job){
            .operation = DW_REDUCE_SCATTER, .dtype = DW_BF16, .n = N, .x = x[r], .y = y[r]};
    }
    rig_run_well(&act);
    for (uint32_t r = 0; r < RANKS; r++) {
        uint64_t begin, count;
        dw_group_part(N, r, RANKS, &begin, &count);
        for (uint64_t i = 0; i < count; i++) {
            uint32_t bits = (uint32_t)x[0][begin + i] << 16;
            float value;
            memcpy(&value, &bits, sizeof value);
            value = value + value + value;
            memcpy(&bits, &value, sizeof bits);
            bits += 0x7fff + (bits >> 16 & 1); /* to the nearest, ties to even */
            assert_int_equal(y[r][i], (uint16_t)(bits >> 16));
        }
    }
    rig_close(&rig);
}

static void empty_buffers_may_be_null(void **state)
{
    static const dw_operation all[] = {DW_ALL_REDUCE, DW_REDUCE_SCATTER, DW_ALL_GATHER,
                                       DW_BROADCAST};
    group_rig rig;
    rig_start(&rig, "loop://empty%d", 3, "direct:bits=4");
    for (int i = 0; i < 4; i++) {
        rig_deed act = {.rig = &rig};
        for (uint32_t r = 0; r < rig.ranks; r++) act.job[r] = (dw_group_job){.operation = all[i]};
        rig_run_well(&act);
    }
    rig_close(&rig);
}

static void group_of_one_rank_copies(void **state)
{
    group_rig rig;
    float x[3] = {1, 2, 3}, y[3] = {0, 0, 0};
    rig_start(&rig, uris[0], 1, "direct:bits=2,feedback=ef");
    dw_group_job job = {
        .struct_size = sizeof job, .operation = DW_ALL_REDUCE, .n = 3, .x = x, .y = y, .mean = 1};
    assert_int_equal(dw_group_run(rig.group[0], &job, PATIENCE_MS), DW_OK);
    assert_memory_equal(x, y, sizeof x);
    job.y = x;
    assert_int_equal(dw_group_run(rig.group[0], &job, PATIENCE_MS), DW_OK);
    assert_memory_equal(x, y, sizeof x);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_reduce_gives_the_bits_of_the_model),
        cmocka_unit_test(one_hop_gives_the_bits_of_the_model),
        cmocka_unit_test(one_hop_sums_work_beside_other_operations),
        cmocka_unit_test(steps_are_shared_by_128_values),
        cmocka_unit_test(piece_lengths_follow_from_the_buffer_length),
        cmocka_unit_test(state_in_a_backing_store_gives_the_same_bits),
        cmocka_unit_test(scatter_gather_and_broadcast_give_the_bits_of_the_model),
        cmocka_unit_test(f16_and_bf16_are_summed_in_binary32),
        cmocka_unit_test(reduce_scatter_rounds_bf16_once),
        cmocka_unit_test(empty_buffers_may_be_null),
        cmocka_unit_test(group_of_one_rank_copies),
    };
    int failed = cmocka_run_group_tests_name("group", tests, NULL, NULL);
    /* Every operation is a large one, and messages stay in memory of their links. */
    dw_group_all_thresholds = (dw_group_thresholds){0, 0, 0};
    every = 2;
    failed += cmocka_run_group_tests_name("group of large operations", tests, NULL, NULL);
    const struct CMUnitTest verified[] = {
        cmocka_unit_test(one_hop_gives_the_bits_of_the_model),
        cmocka_unit_test(one_hop_sums_work_beside_other_operations),
        cmocka_unit_test(scatter_gather_and_broadcast_give_the_bits_of_the_model),
        cmocka_unit_test(f16_and_bf16_are_summed_in_binary32),
        cmocka_unit_test(empty_buffers_may_be_null),
    };
    rig_verifies = 1;
    return failed + cmocka_run_group_tests_name("group that verifies", verified, NULL, NULL);
}
