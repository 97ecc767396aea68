/* SPDX-License-Identifier: Apache-2.0
 * frames.c - tests kernels with whole frames, and with samples larger than the caches. */
#include "check_kernels.h"
#include "codecs/form.h"
#include "engine/engine.h"
#include "kernel_rig.h"

/* Three frames of one key. The encoder uses one table, the decoder may use another one. */
typedef struct journey {
    test_pair pair;
    void *frames[3];
    size_t lens[3];
} journey;

static void travel(journey *j, const char *config, const dw_tensor *x, const dw_kernels *encodes,
                   const dw_kernels *decodes)
{
    dw_key key = {3, 0};
    dw_tensor y = *x;
    y.data = NULL;
    test_pair_open(&j->pair, config, 1, x->t, x->c, x->dtype);
    dw_encoder_use(j->pair.encoder, encodes);
    dw_decoder_use(j->pair.decoder, decodes);
    for (int i = 0; i < 3; i++) {
        dw_tensor now = *x;
        /* On every visit x starts one element later, so that its values change. */
        now.data = (unsigned char *)x->data + (size_t)i * dw_dtype_bytes(x->dtype);
        test_pair_encode(&j->pair, &key, &now);
        j->lens[i] = j->pair.len;
        j->frames[i] = malloc(j->pair.len);
        assert_non_null(j->frames[i]);
        memcpy(j->frames[i], j->pair.frame, j->pair.len);
        assert_int_equal(test_pair_decode(&j->pair, &y), DW_OK);
        test_pair_take_reply(&j->pair);
        test_pair_in_step(&j->pair, key);
    }
    /* When the decoder gets a duplicate, it digests its copy of prev again. The digest must be the
     * same as the one that was computed while the copy was written. */
    dw_reply_info reply = {.struct_size = sizeof reply};
    assert_int_equal(test_pair_decode(&j->pair, &y), DW_ERR_STALE);
    assert_int_equal(dw_reply_read(j->pair.reply, j->pair.reply_len, &reply, NULL), DW_OK);
    assert_true(reply.accepted);
}

static void end_journey(journey *j)
{
    for (int i = 0; i < 3; i++) free(j->frames[i]);
    test_pair_close(&j->pair);
}

static void same_frames(const journey *expected, const journey *found, const char *table,
                        const char *run)
{
    for (int i = 0; i < 3; i++) {
        assert_int_equal(expected->lens[i], found->lens[i]);
        same_bytes("frame", expected->frames[i], found->frames[i], found->lens[i], table, run);
    }
}

/* n elements: the first 40000 are random, and the rest repeat them. The caller frees them. */
static void *repeated_values(bench *b, dw_dtype dtype, size_t n)
{
    size_t drawn_n = n < 40000 ? n : 40000, filled = drawn_n * dw_dtype_bytes(dtype),
           bytes = n * dw_dtype_bytes(dtype);
    unsigned char *data = malloc(bytes);
    assert_non_null(data);
    test_fill(&b->random, data, dtype, drawn_n, 1);
    for (size_t at = filled; at < bytes; at += filled)
        memcpy(data + at, data, bytes - at < filled ? bytes - at : filled);
    return data;
}

/* The last shapes are so large that kernels write them past the caches. */
KERNEL_TEST(frames_equal_those_of_c)
{
    static const struct {
        const char *config;
        uint32_t t, c;
        dw_dtype x;
    } cases[] = {
        {"delta:bits=4,incarnation=7", 9, 1000, DW_F32},
        {"delta:bits=3,group=row,incarnation=7,audit=2", 5, 4100, DW_BF16},
        {"delta:bits=5,group=32,scale=signed,prev=f16,incarnation=7", 7, 2048, DW_F16},
        {"delta:bits=3,group=channel,scale=mse,incarnation=7", 9, 2100, DW_BF16},
        {"delta:bits=1,rounding=stochastic,incarnation=7", 9, 1000, DW_F32},
        {"delta:bits=2,group=row,scale=mse,rounding=stochastic,incarnation=7", 5, 4100, DW_F32},
        {"delta:bits=4,choose=never,incarnation=7", 4099, 2112, DW_F32},
        {"delta:bits=4,group=row,incarnation=7", 4001, 2112, DW_F32},
        {"delta:bits=2,group=row,prev=bf16,incarnation=7,audit=3", 4100, 4096, DW_F32},
    };
    size_t small = 6, all = sizeof cases / sizeof *cases;
    for (size_t i = 0; i < (b->share > 2 ? small : all); i++) {
        void *data = repeated_values(b, cases[i].x, (size_t)cases[i].t * cases[i].c + 3);
        dw_tensor x = dw_tensor_3d(data, cases[i].x, 1, cases[i].t, cases[i].c);
        journey expected, found;
        travel(&expected, cases[i].config, &x, specification, b->kernels);
        travel(&found, cases[i].config, &x, b->kernels, specification);
        same_frames(&expected, &found, b->kernels->name, cases[i].config);
        dw_counters a = test_encoder_counters(expected.pair.encoder),
                    c = test_encoder_counters(found.pair.encoder);
        if (!strstr(cases[i].config, "bits=2") && !strstr(cases[i].config, "bits=1"))
            assert_true(a.error_square < 0.25 * a.x_square);
        same_bytes("counters", &a, &c, sizeof a, b->kernels->name, cases[i].config);
        end_journey(&expected);
        end_journey(&found);
        free(data);
    }
}

/* One large sample for a decoder without state. Both tables must write the same bytes into the rows
 * of y, and leave those between the rows as they are. */
typedef struct large {
    uint32_t bits, group, t, c;
    dw_dtype y;
    uint32_t gap, skew; /* elements between rows; bytes from the start of a page to y */
} large;

static void decode_large(const dw_kernels *kernels, const large *l, const uint8_t *payload,
                         unsigned char *memory, size_t bytes)
{
    dw_decode_job job = {.kernels = kernels,
                         .payload = payload,
                         .y = memory + l->skew,
                         .y_dtype = l->y,
                         .stride = (int64_t)l->c + l->gap};
    assert_true(dw_layout_make(&job.layout, l->t, l->c, l->bits, l->group, false));
    memset(memory, 0x55, bytes);
    for (uint64_t chunk = 0; chunk < dw_layout_chunks(&job.layout); chunk++) {
        dw_chunk_result unused;
        dw_form_quantized.decode(&job, chunk, &unused);
    }
}

KERNEL_TEST(large_samples_equal_those_of_c)
{
    static const large cases[] = {
        {4, 64, 4200, 1000, DW_F32, 0, 0},
        {4, 64, 4100, 1024, DW_F32, 0, 0},
        {4, 64, 4100, 1024, DW_BF16, 1024, 0},
        {4, 64, 4100, 2048, DW_BF16, 0, 2},
        {3, 16, 4100, 2048, DW_BF16, 0, 0},
        {2, 128, 4100, 1024, DW_F32, 16, 64},
        {5, 32, 4100, 1025, DW_F32, 15, 0},
        {4, 64, 4100, 2048, DW_F16, 0, 0},
        {8, DW_LAYOUT_ROW, 1030, 4100, DW_F32, 0, 4},
        {1, DW_LAYOUT_CHANNEL, 2100, 2048, DW_F32, 0, 0},
    };
    size_t all = sizeof cases / sizeof *cases;
    for (size_t i = 0; i < (b->share > 2 ? 2 : all); i++) {
        const large *l = &cases[i];
        dw_layout layout;
        assert_true(dw_layout_make(&layout, l->t, l->c, l->bits, l->group, false));
        size_t bytes = (size_t)l->t * (l->c + l->gap) * dw_dtype_bytes(l->y) + 4096;
        unsigned char *memory[2];
        uint8_t *payload = malloc(layout.payload_bytes);
        assert_non_null(payload);
        random_bytes(b, payload, layout.payload_bytes); /* one scale in 256 is poisoned */
        for (int k = 0; k < 2; k++) {
            memory[k] = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
            assert_non_null(memory[k]);
            decode_large(k ? b->kernels : specification, l, payload, memory[k], bytes);
        }
        char text[64];
        snprintf(text, sizeof text, "case %zu", i);
        same_bytes("large", memory[0], memory[1], bytes, b->kernels->name, text);
        free(memory[0]);
        free(memory[1]);
        free(payload);
    }
}

/* Whatever kernels a mask permits, the frames are the same, with any mask at the other end. */
TEST(every_mask_makes_the_same_frames)
{
    static float data[9 * 1000 + 3];
    test_random random = {test_seed()};
    test_fill(&random, data, DW_F32, sizeof data / sizeof *data, 1);
    dw_tensor x = dw_tensor_3d(data, DW_F32, 1, 9, 1000);
    journey expected;
    travel(&expected, "delta:bits=4,incarnation=7", &x, specification, specification);
    for (uint32_t out = 0; out < 8; out++)
        for (uint32_t in = 0; in < 8; in++) {
            journey found;
            travel(&found, "delta:bits=4,incarnation=7", &x, dw_kernels_choose(out),
                   dw_kernels_choose(in));
            same_frames(&expected, &found, dw_kernels_choose(out)->name, "masks");
            end_journey(&found);
        }
    end_journey(&expected);
}

int check_frames(void)
{
    return test_run(NULL, NULL);
}
