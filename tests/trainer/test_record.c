/* SPDX-License-Identifier: Apache-2.0
 * test_record.c - the bytes of records, the records of complete runs, and the errors of records
 * that cannot be written. */
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "data.h"
#include "model.h"
#include "pipeline.h"
#include "record.h"

/* Fills x with first, first + 1, first + 2, ... */
static void count_up(float *x, size_t n, float first)
{
    for (size_t i = 0; i < n; i++) x[i] = first + (float)i;
}

static void writes_the_bytes_that_the_header_shows(void **state)
{
    static const uint8_t head[32] = {'D', 'W', '-', 'S', 'E', 'N', 'T', 0, 1, 0, 0, 0, 2, 0, 0, 0,
                                     3,   0,   0,   0,   2,   0,   0,   0, 3, 0, 0, 0, 0, 1, 0, 0};
    static const uint8_t first[16] = {5, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0};
    static const uint8_t second[16] = {5, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0};
    char place[128];
    uint8_t bytes[32 + 2 * (16 + 24) + 1];
    float x[12];
    dw_record *record;
    (void)state;
    count_up(x, 12, 1);
    snprintf(place, sizeof place, "%s/new", pipeline_folder);
    for (int times = 0; times < 2; times++) { /* the second record replaces the first */
        assert_int_equal(dw_record_create(&record, place, DW_BACKWARD, 3, 2, 3, 256, NULL), DW_OK);
        assert_int_equal(dw_record_add(record, 5, (uint32_t[]){9, UINT32_MAX}, 2, x, NULL), DW_OK);
        assert_int_equal(dw_record_flush(record, NULL), DW_OK);
        dw_record_close(record);
    }
    strcat(place, "/backward-3.record");
    FILE *file = fopen(place, "rb");
    assert_non_null(file);
    assert_int_equal(fread(bytes, 1, sizeof bytes, file), sizeof bytes - 1);
    fclose(file);
    assert_memory_equal(bytes, head, 32);
    assert_memory_equal(bytes + 32, first, 16);
    assert_memory_equal(bytes + 48, x, 24);
    assert_memory_equal(bytes + 72, second, 16);
    assert_memory_equal(bytes + 88, x + 6, 24);
}

static void an_unwritable_place_is_an_error_at_once(void **state)
{
    dw_record *record = NULL;
    dw_why why = {.offset = -1};
    char place[128], file[160];
    (void)state;
    snprintf(place, sizeof place, "%s/none/below", pipeline_folder);
    assert_int_equal(dw_record_create(&record, place, DW_FORWARD, 0, 2, 3, 1, &why), DW_ERR_IO);
    assert_non_null(strstr(why.text, place));
    snprintf(file, sizeof file, "%s/forward-0.record", pipeline_folder);
    assert_int_equal(symlink("/dev/full", file), 0);
    assert_int_equal(dw_record_create(&record, pipeline_folder, DW_FORWARD, 0, 2, 3, 1, &why),
                     DW_ERR_IO);
    assert_non_null(strstr(why.text, file));
    assert_non_null(strstr(why.text, "No space left"));
    char *endless = calloc(1, 5000);
    assert_non_null(endless);
    memset(endless, 'x', 4999);
    assert_int_equal(dw_record_create(&record, endless, DW_FORWARD, 0, 2, 3, 1, &why),
                     DW_ERR_LIMIT);
    free(endless);
    assert_null(record);
    dw_record_close(record);
    assert_int_equal(dw_record_flush(record, NULL), DW_OK);
}

/* A limit on the file size has the same effect as a disk that is full after the header. */
static void a_disk_that_fills_up_is_an_error(void **state)
{
    static const float x[64 * 64];
    uint32_t id = 1;
    dw_record *record;
    dw_why why = {.offset = -1};
    struct rlimit before, little;
    (void)state;
    assert_int_equal(dw_record_create(&record, pipeline_folder, DW_FORWARD, 1, 64, 64, 1, &why),
                     DW_OK);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    little = before;
    little.rlim_cur = 1000;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
    dw_status added = dw_record_add(record, 1, &id, 1, x, &why); /* only into the buffer */
    dw_status flushed = dw_record_flush(record, &why), status = DW_OK;
    for (int i = 0; i < 200 && status == DW_OK; i++)
        status = dw_record_add(record, 1, &id, 1, x, &why);
    dw_record_close(record);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(added, DW_OK);
    assert_int_equal(flushed, DW_ERR_IO);
    assert_int_equal(status, DW_ERR_IO); /* a write fails too, not only the last flush */
    assert_non_null(strstr(why.text, "/forward-1.record: File too large"));
}

/* ---- Complete runs --------------------------------------------------------------------------- */

/* a_run has 3 epochs of 3 steps with 8 samples each, out of 26 (two are left over), and 7 held-out
 * ones. */
enum { T = 24, C = 32, M = 4, N = 2, SAMPLES = 26, HELD_OUT = 7, EPOCHS = 3, SEED = 4 };
enum { TRAINED = 24, VISITS = TRAINED + HELD_OUT }; /* tensors per epoch */
enum { VALUES = T * C * 4, SENT = 16 + VALUES }; /* bytes of a tensor without and with its header */

/* Runs all stages and returns the held-out loss. Nothing is recorded where the path is NULL. */
static double run_stages(uint32_t stages, const char *forward, const char *record)
{
    pipeline run = a_run();
    run.config.forward = forward;
    run.config.record = record;
    run_pipeline(&run, stages, NULL);
    assert_all(&run, DW_OK);
    return run.summary.held_out_loss;
}

/* Reads the record of the tensors that this rank sent; the caller frees it. */
static uint8_t *record_of(const char *way, uint32_t sender, size_t tensors)
{
    static const char magic[8] = "DW-SENT";
    const uint32_t head[] = {1, *way == 'f' ? 1 : 2, sender, T, C, SAMPLES};
    size_t len = tensors * SENT;
    char path[128];
    uint8_t *bytes = malloc(len), start[32];
    snprintf(path, sizeof path, "%s/%s-%u.record", pipeline_folder, way, sender);
    FILE *file = fopen(path, "rb");
    assert_true(file && bytes);
    assert_int_equal(fread(start, 1, sizeof start, file), sizeof start);
    assert_int_equal(fread(bytes, 1, len, file), len);
    assert_int_equal(fgetc(file), EOF);
    fclose(file);
    assert_memory_equal(start, magic, sizeof magic);
    assert_memory_equal(start + 8, head, sizeof head);
    return bytes;
}

static void assert_sent(const uint8_t *sent, uint32_t step, uint64_t id)
{
    const uint32_t head[] = {step, 0};
    assert_memory_equal(sent, head, sizeof head);
    assert_memory_equal(sent + 8, &id, sizeof id);
}

/* Computes the first step again, with two models and without a network: the output of stage 0 of 2,
 * and the gradient that it receives. Compares both with the record. */
static void assert_first_step(dw_data *data, const uint8_t *forward, const uint8_t *backward)
{
    dw_model_shape shape = {.layers = 3, .channels = C, .heads = 2, .context = T};
    uint8_t samples[N * (T + 1)];
    dw_model *first, *last;
    assert_int_equal(dw_model_create(&first, &shape, 0, 3, N, 1, 1), DW_OK);
    assert_int_equal(dw_model_create(&last, &shape, 3, 2, N, 1, 1), DW_OK);
    dw_model_initialize(first, SEED);
    dw_model_initialize(last, SEED);
    for (uint32_t m = 0; m < M; m++) {
        const uint32_t *ids = dw_data_order(data, 0, m * N);
        for (uint32_t n = 0; n < N; n++)
            memcpy(samples + n * (T + 1), dw_data_sample(data, ids[n]), T + 1);
        dw_model_forward(first, 0, 0, N, samples);
        memcpy(dw_model_input(last, 0, 0), dw_model_output(first, 0, 0), N * VALUES);
        dw_model_forward(last, 0, 0, N, samples);
        dw_model_loss(last, 0, 0, true, 1.0f / ((float)M * (float)N * (float)T));
        dw_model_backward(last, 0, 0);
        for (uint32_t n = 0; n < N; n++) {
            size_t at = (size_t)(m * N + n) * SENT + 16, value = (size_t)n * T * C;
            assert_memory_equal(forward + at, dw_model_output(first, 0, 0) + value, VALUES);
            assert_memory_equal(backward + at, dw_model_gradient(last) + value, VALUES);
        }
    }
    dw_model_destroy(first);
    dw_model_destroy(last);
}

static void assert_same_record(const char *way, uint32_t sender, const uint8_t *expected,
                               size_t tensors, size_t alike)
{
    uint8_t *record = record_of(way, sender, tensors);
    assert_memory_equal(record, expected, alike * SENT);
    free(record);
}

/* Checks the ids, which follow the order of the epochs, with the held-out samples after each epoch;
 * the values of the first step; and all values, against runs with other numbers of stages. */
static void records_contain_what_was_sent(void **state)
{
    dw_data data;
    (void)state;
    double plain = run_stages(2, NULL, NULL), recorded = run_stages(2, NULL, pipeline_folder);
    assert_true(plain > 0 && plain == recorded);
    uint8_t *forward = record_of("forward", 0, EPOCHS * VISITS),
            *backward = record_of("backward", 1, EPOCHS * TRAINED);
    assert_int_equal(dw_data_open(&data, pipeline_text, 0, SAMPLES, HELD_OUT, T, M * N, SEED, NULL),
                     DW_OK);
    for (uint32_t epoch = 0; epoch < EPOCHS; epoch++) {
        const uint8_t *there = forward + (size_t)epoch * VISITS * SENT,
                      *back = backward + (size_t)epoch * TRAINED * SENT;
        const uint32_t *ids = dw_data_order(&data, epoch, 0), step = 3 * epoch + 1;
        for (uint32_t i = 0; i < TRAINED; i++)
            assert_sent(there + i * SENT, step + i / (M * N), ids[i]);
        for (uint32_t i = 0; i < TRAINED; i++)
            assert_sent(back + i * SENT, step + i / (M * N), ids[i]);
        for (uint32_t i = 0; i < HELD_OUT; i++)
            assert_sent(there + (TRAINED + i) * SENT, step + 2, SAMPLES + i);
    }
    assert_first_step(&data, forward, backward);
    /* The boundary between two stages is the second boundary of three stages. */
    run_stages(3, NULL, pipeline_folder);
    assert_same_record("forward", 1, forward, EPOCHS * VISITS, EPOCHS * VISITS);
    assert_same_record("backward", 2, backward, EPOCHS * TRAINED, EPOCHS * TRAINED);
    /* A record contains the input of the encoder, not its reconstruction. */
    run_stages(2, "delta:bits=2", pipeline_folder);
    assert_same_record("forward", 0, forward, EPOCHS * VISITS, M * N);
    dw_data_close(&data);
    free(forward);
    free(backward);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, pipeline_set_up, pipeline_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(writes_the_bytes_that_the_header_shows),
        TEST(an_unwritable_place_is_an_error_at_once),
        TEST(a_disk_that_fills_up_is_an_error),
        TEST(records_contain_what_was_sent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
