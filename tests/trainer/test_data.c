/* SPDX-License-Identifier: Apache-2.0
 * test_data.c - samples keep their ids and bytes, the order depends on the seed, and errors name
 * the bad file. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "data.h"
#include "support/test.h"

enum { T = 9, WIDTH = T + 1, SAMPLES = 57 };

static char path[64];

/* Byte i of the file depends on i. */
static void write_text(size_t n)
{
    strcpy(path, "/tmp/deltawire-data-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    FILE *file = fdopen(fd, "wb");
    for (size_t i = 0; i < n; i++) fputc((int)((i * 7 + i / 256) & 255), file);
    fclose(file);
}

static uint8_t byte_at(size_t i)
{
    return (uint8_t)((i * 7 + i / 256) & 255);
}

TEST(samples_are_pieces_of_the_file)
{
    write_text(SAMPLES * WIDTH + 3);
    static const uint64_t offsets[] = {0, 1, 123};
    for (int k = 0; k < 3; k++) {
        dw_data data;
        dw_why why;
        assert_int_equal(dw_data_open(&data, path, offsets[k], 0, 5, T, 4, 1, &why), DW_OK);
        assert_int_equal(data.samples, (SAMPLES * WIDTH + 3 - offsets[k]) / WIDTH - 5);
        for (uint32_t id = 0; id < data.samples + 5; id++)
            for (size_t t = 0; t < WIDTH; t++)
                assert_int_equal(dw_data_sample(&data, id)[t],
                                 byte_at(offsets[k] + id * WIDTH + t));
        dw_data_close(&data);
    }
    unlink(path);
}

TEST(every_epoch_visits_every_sample_once)
{
    write_text(SAMPLES * WIDTH);
    dw_data data;
    assert_int_equal(dw_data_open(&data, path, 0, 50, 7, T, 4, 1, NULL), DW_OK);
    uint32_t first[50];
    for (uint32_t epoch = 0; epoch < 4; epoch++) {
        const uint32_t *order = dw_data_order(&data, epoch, 0);
        int seen[50] = {0};
        for (int i = 0; i < 50; i++) {
            assert_true(order[i] < 50); /* never a sample that is held out */
            assert_int_equal(seen[order[i]]++, 0);
        }
        if (epoch) assert_memory_not_equal(order, first, sizeof first);
        if (!epoch) memcpy(first, order, sizeof first);
    }
    /* The first order again: after other orders, and starting in the middle of an epoch. */
    assert_memory_equal(dw_data_order(&data, 0, 20), first + 20, 30 * sizeof *first);
    dw_data_close(&data);
    assert_int_equal(dw_data_open(&data, path, 0, 50, 7, T, 4, 2, NULL), DW_OK);
    assert_memory_not_equal(dw_data_order(&data, 0, 0), first, sizeof first); /* another seed */
    dw_data_close(&data);
    unlink(path);
}

/* In the first epoch D replicas visit in each step what one would visit with a batch D times as
 * large, and in all later ones each replica its own samples again, in another order. */
TEST(replicas_keep_their_shares)
{
    enum { BATCH = 4, D = 3, ALL = 51 };
    write_text((ALL + 7) * WIDTH);
    dw_data one, each[D];
    assert_int_equal(dw_data_open(&one, path, 0, ALL, 7, T, BATCH * D, 1, NULL), DW_OK);
    uint32_t owner[ALL];
    memset(owner, 0xff, sizeof owner);
    for (uint32_t d = 0; d < D; d++) {
        assert_int_equal(dw_data_open(&each[d], path, 0, ALL, 7, T, BATCH, 1, NULL), DW_OK);
        assert_int_equal(dw_data_share(&each[d], d, D, BATCH, NULL), DW_OK);
        assert_int_equal(each[d].n, ALL / D);
        const uint32_t *order = dw_data_order(&each[d], 0, 0), *whole = dw_data_order(&one, 0, 0);
        for (uint32_t i = 0; i < ALL / D; i++) {
            if (i < ALL / D / BATCH * BATCH)
                assert_int_equal(order[i], whole[i / BATCH * BATCH * D + d * BATCH + i % BATCH]);
            assert_int_equal(owner[order[i]], UINT32_MAX);
            owner[order[i]] = d;
        }
    }
    for (uint32_t d = 0; d < D; d++) {
        uint32_t last[ALL / D], seen[ALL] = {0};
        memcpy(last, dw_data_order(&each[d], 1, 0), sizeof last);
        const uint32_t *order = dw_data_order(&each[d], 2, 0);
        assert_memory_not_equal(order, last, sizeof last);
        for (uint32_t i = 0; i < ALL / D; i++) {
            assert_int_equal(owner[order[i]], d);
            assert_int_equal(seen[order[i]]++, 0);
        }
        dw_data_close(&each[d]);
    }
    dw_data_close(&one);
    unlink(path);
}

TEST(shares_are_even)
{
    write_text(60 * WIDTH);
    dw_data data;
    dw_why why;
    /* As many as the text has: 53, of which 2 are left out. What is held out follows the others. */
    assert_int_equal(dw_data_open(&data, path, 0, 0, 7, T, 4, 1, NULL), DW_OK);
    assert_int_equal(dw_data_share(&data, 1, 3, 4, &why), DW_OK);
    assert_int_equal(data.samples, 51);
    assert_int_equal(data.n, 17);
    dw_data_close(&data);
    assert_int_equal(dw_data_open(&data, path, 0, 0, 7, T, 20, 1, NULL), DW_OK);
    assert_int_equal(dw_data_share(&data, 0, 3, 20, &why), DW_ERR_ARGUMENT);
    assert_non_null(strstr(why.text, "53 samples do not fill a batch of 20 in each of 3 replicas"));
    dw_data_close(&data);
    unlink(path);
}

/* Each of the 6 orders of 3 samples is expected 600 times in 3600 (standard deviation 22). */
TEST(all_orders_are_equally_likely)
{
    write_text(3 * WIDTH);
    dw_data data;
    assert_int_equal(dw_data_open(&data, path, 0, 3, 0, T, 1, 3, NULL), DW_OK);
    int count[3][3] = {{0}};
    for (uint32_t epoch = 0; epoch < 3600; epoch++) {
        const uint32_t *order = dw_data_order(&data, epoch, 0);
        count[order[0]][order[1]]++;
    }
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++)
            if (i != j) assert_in_range(count[i][j], 600 - 110, 600 + 110);
    dw_data_close(&data);
    unlink(path);
}

TEST(different_texts_have_different_digests)
{
    write_text(SAMPLES * WIDTH);
    dw_data a, b, c;
    assert_int_equal(dw_data_open(&a, path, 0, 40, 4, T, 4, 1, NULL), DW_OK);
    assert_int_equal(dw_data_open(&b, path, 0, 40, 4, T, 4, 9, NULL), DW_OK);
    assert_int_equal(dw_data_open(&c, path, 1, 40, 4, T, 4, 1, NULL), DW_OK);
    assert_true(a.digest == b.digest);
    assert_true(a.digest != c.digest);
    dw_data_close(&a), dw_data_close(&b), dw_data_close(&c);
    unlink(path);
}

static void assert_refused(dw_status status, const dw_why *why, dw_status expected,
                           const char *word)
{
    assert_int_equal(status, expected);
    if (!strstr(why->text, word)) fail_msg("\"%s\" does not say \"%s\"", why->text, word);
}

TEST(unusable_texts_are_refused)
{
    dw_data data;
    dw_why why;
    assert_refused(dw_data_open(&data, "/no/such/file", 0, 0, 0, T, 4, 1, &why), &why, DW_ERR_IO,
                   "/no/such/file");
    assert_refused(dw_data_open(&data, "/tmp", 0, 0, 0, T, 4, 1, &why), &why, DW_ERR_IO,
                   "directory");
    assert_refused(dw_data_open(&data, "/dev/null", 0, 0, 0, T, 4, 1, &why), &why, DW_ERR_IO,
                   "empty");
    write_text(4 * WIDTH - 1);
    assert_refused(dw_data_open(&data, path, 0, 0, 0, T, 4, 1, &why), &why, DW_ERR_IO,
                   "too short for a batch of 4");
    assert_refused(dw_data_open(&data, path, 4000, 0, 0, T, 1, 1, &why), &why, DW_ERR_IO,
                   "behind its offset");
    assert_refused(dw_data_open(&data, path, 0, 0, 3, T, 1, 1, &why), &why, DW_ERR_IO,
                   "3 held out");
    assert_refused(dw_data_open(&data, path, 0, 4, 0, T, 1, 1, &why), &why, DW_ERR_IO, "3 samples");
    assert_refused(dw_data_open(&data, path, 0, 2, 0, T, 3, 1, &why), &why, DW_ERR_ARGUMENT,
                   "batch of 3");
    assert_int_equal(dw_data_open(&data, path, 0, 0, 0, T, 3, 1, &why), DW_OK);
    dw_data_close(&data);
    unlink(path);
}

RUN_TESTS(NULL, NULL)
