/* SPDX-License-Identifier: Apache-2.0
 * test_nccl.c - links over NCCL, without NCCL and GPU: over a fake that compares sizes and, if a
 * test wants that, completes calls late. */
#include "nccl_rig.h"
#include "transports/suite/counted.h"

/* ---- Bytes ----------------------------------------------------------------------------------- */

TEST(sends_and_receives_have_the_same_size)
{
    static const size_t lengths[] = {0,
                                     1,
                                     16375,
                                     16376,
                                     16377,
                                     16384,
                                     16385,
                                     100000,
                                     (1 << 20) - 9,
                                     (1 << 20) - 8,
                                     (1 << 20) - 7,
                                     1 << 20,
                                     (4 << 20) - 8,
                                     (5 << 20) + 3,
                                     9999999};
    enum { LENGTHS = sizeof lengths / sizeof *lengths };
    for (int late = 0; late < 3; late += 2) {
        suite_pair pair;
        rig_prepare(&pair, "nccl:loop://lengths-%d");
        fake_nccl_get()->late = late;
        suite_open(&pair);
        long chunks = 0;
        for (uint64_t n = 0; n < LENGTHS; n++) {
            suite_pass(pair.link, n % 2, RIG_TAG, n, lengths[n]);
            /* The link adds a header of 8 bytes. */
            if (lengths[n] + 8 > DW_NCCL_SHORT_BYTES)
                chunks += (long)((lengths[n] + 8 + DW_NCCL_CHUNK_BYTES - 1) / DW_NCCL_CHUNK_BYTES);
        }
        assert_int_equal(fake_nccl_now().sends, chunks);
        assert_int_equal(fake_nccl_now().receives, chunks);
        suite_close(&pair);
        rig_nothing_is_left();
    }
}

/* An idle link must have no receive on the GPU, because it would delay the program's own work. */
TEST(an_idle_link_has_no_work_on_the_gpu)
{
    suite_pair pair;
    rig_prepare(&pair, "nccl:loop://idle-%d");
    pair.options[1].max_queued_bytes = 1 << 20;
    suite_open(&pair);
    for (uint64_t n = 0; n < 3; n++) {
        assert_true(fake_nccl_is_idle());
        suite_pass(pair.link, 0, RIG_TAG, n, 3000000);
        assert_int_equal(dw_link_flush(pair.link[0], SUITE_PATIENCE_MS), DW_OK);
    }
    /* Messages that nobody receives fill the receiver's queue. The next message is only announced,
     * without work on the GPU. */
    for (uint64_t n = 0; n < 4; n++) suite_send(pair.link[0], RIG_TAG, n, 2000000);
    int64_t end = suite_now_ns() + (int64_t)SUITE_PATIENCE_MS * 1000000;
    while (counted(pair.link[1]).messages_received < 4 && suite_now_ns() < end) suite_sleep_ms(1);
    suite_sleep_ms(50);
    while (!fake_nccl_is_idle() && suite_now_ns() < end) suite_sleep_ms(1);
    assert_true(fake_nccl_is_idle());
    assert_int_equal(counted(pair.link[0]).messages_sent, 4); /* three earlier ones, and one */
    for (uint64_t n = 0; n < 4; n++) suite_expect(pair.link[1], RIG_TAG, n, 2000000);
    suite_close(&pair);
    rig_nothing_is_left();
}

/* ---- Without links: data in the GPU's own memory --------------------------------------------- */

static void carry_raw(rig_raw_end raw[2], const void *from, void *to, size_t len)
{
    const dw_transport *table = dw_nccl_transport();
    void *request[2] = {calloc(1, table->request_bytes), calloc(1, table->request_bytes)};
    dw_why why;
    size_t got = 0;
    assert_int_equal(table->send(&raw[0].end, request[0], from, len), DW_OK);
    assert_int_equal(table->recv(&raw[1].end, request[1], to, len), DW_OK);
    dw_status status[2] = {DW_PENDING, DW_PENDING};
    while (status[0] == DW_PENDING || status[1] == DW_PENDING) {
        for (int i = 0; i < 2; i++) {
            if (status[i] == DW_PENDING)
                status[i] = table->test(&raw[i].end, request[i], &got, &why);
            if (status[i] != DW_PENDING && status[i] != DW_OK) fail_msg("%s", why.text);
        }
    }
    assert_int_equal(got, len);
    free(request[0]);
    free(request[1]);
}

TEST(gpu_memory_is_used_without_staging)
{
    rig_reset();
    rig_raw_end raw[2];
    rig_open_raw(raw);
    dw_transport_traits traits = {.struct_size = sizeof traits};
    dw_nccl_transport()->describe(&raw[0].end, &traits);
    assert_true(traits.takes_device_memory);
    assert_false(traits.is_secure); /* what NCCL carries is not secure, although the notes are */
    size_t most = 3500001;
    dw_nccl_address on_device[2];
    int mode;
    assert_true(dw_nccl_device_enter(&rig_common->device, &mode));
    for (int i = 0; i < 2; i++)
        assert_int_equal(rig_common->device.driver.memory_allocate(&on_device[i], most), 0);
    dw_nccl_device_leave(&rig_common->device, mode);
    unsigned char *host[2] = {malloc(most), malloc(most)};
    static const size_t lengths[] = {3500001, 20000, 100, 1};
    for (uint64_t n = 0; n < 16; n++) { /* source and destination: on the host or the device */
        size_t len = lengths[n / 4];
        void *from = n & 1 ? (void *)on_device[0] : host[0],
             *to = n & 2 ? (void *)on_device[1] : host[1];
        suite_fill(n & 1 ? fake_nccl_look(from) : from, len, n);
        carry_raw(raw, from, to, len);
        assert_true(suite_is(n & 2 ? fake_nccl_look(to) : to, len, n, len));
    }
    for (int i = 0; i < 2; i++) {
        rig_common->device.driver.memory_free(on_device[i]);
        free(host[i]);
    }
    rig_close_raw(raw);
    rig_nothing_is_left();
}

int main(int argc, char **argv)
{
    if (!rig_begin(argc, argv)) return fprintf(stderr, "usage: test_nccl FAKE-LIBRARY\n");
    rig_common = rig_create(NULL);
    int failed = test_run(NULL, NULL);
    dw_nccl_destroy(rig_common);
    return failed;
}
