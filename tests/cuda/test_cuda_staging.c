/* SPDX-License-Identifier: Apache-2.0
 * test_cuda_staging.c - pinned memory, streams and waiting, for programs that send frames from the
 * host. */
#include "../../cuda/device.h"
#include "base/cuda_memory.h"
#include "rig.h"

TEST(the_host_can_use_pinned_memory)
{
    dw_cuda *cuda = rig_open_cuda();
    void *memory, *other;
    assert_int_equal(dw_cuda_pin(cuda, 100, &memory, NULL), DW_OK);
    assert_int_equal(dw_cuda_pin(cuda, 1, &other, NULL), DW_OK);
    assert_int_equal((uintptr_t)memory % 16, 0);
    memset(memory, 7, 100);
    dw_cuda_unpin(cuda, other);
    dw_cuda_unpin(cuda, memory);
    dw_cuda_unpin(cuda, NULL);
    dw_cuda_unpin(NULL, memory);
    rig_close_cuda(cuda);
}

TEST(wrong_arguments_are_refused)
{
    dw_cuda *cuda = rig_open_cuda();
    void *memory = &cuda, *stream = &cuda;
    dw_why why = {.text = ""};
    assert_int_equal(dw_cuda_pin(NULL, 1, &memory, &why), DW_ERR_ARGUMENT);
    assert_null(memory);
    assert_non_null(strstr(why.text, "cuda or memory is NULL"));
    assert_int_equal(dw_cuda_pin(cuda, 0, &memory, NULL), DW_ERR_ARGUMENT);
    assert_int_equal(dw_cuda_pin(cuda, 1, NULL, NULL), DW_ERR_ARGUMENT);
    assert_int_equal(dw_cuda_stream_create(NULL, &stream, &why), DW_ERR_ARGUMENT);
    assert_null(stream);
    assert_int_equal(dw_cuda_stream_create(cuda, NULL, NULL), DW_ERR_ARGUMENT);
    assert_int_equal(dw_cuda_stream_check(NULL, NULL, NULL), DW_ERR_ARGUMENT);
    assert_int_equal(dw_cuda_stream_wait(NULL, NULL, NULL), DW_ERR_ARGUMENT);
    assert_int_equal(dw_cuda_copy(NULL, &memory, &stream, 1, NULL, &why), DW_ERR_ARGUMENT);
    assert_int_equal(dw_cuda_copy(cuda, NULL, &stream, 1, NULL, &why), DW_ERR_ARGUMENT);
    assert_non_null(strstr(why.text, "to or from is NULL"));
    assert_int_equal(dw_cuda_copy(cuda, &memory, NULL, 1, NULL, NULL), DW_ERR_ARGUMENT);
    dw_cuda_stream_destroy(NULL, NULL);
    dw_cuda_stream_destroy(cuda, NULL);
    rig_close_cuda(cuda);
}

TEST(a_stream_is_waited_for_unless_it_captures)
{
    dw_cuda *cuda = rig_open_cuda();
    fake_cuda *fake = fake_cuda_get();
    dw_why why = {.text = ""};
    void *stream;
    assert_int_equal(dw_cuda_stream_create(cuda, &stream, &why), DW_OK);
    assert_non_null(stream);
    long before = fake->synchronizations + fake->waits_aside;
    assert_int_equal(dw_cuda_stream_check(cuda, stream, &why), DW_OK);
    assert_int_equal(fake->synchronizations + fake->waits_aside, before);
    assert_int_equal(dw_cuda_stream_wait(cuda, stream, &why), DW_OK);
    assert_int_equal(dw_cuda_stream_wait(cuda, NULL, &why), DW_OK);
    assert_int_equal(fake->synchronizations + fake->waits_aside, before + 2);
    fake->capturing = true;
    assert_int_equal(dw_cuda_stream_check(cuda, stream, &why), DW_ERR_ARGUMENT);
    assert_non_null(strstr(why.text, "capturing"));
    assert_int_equal(dw_cuda_stream_wait(cuda, stream, NULL), DW_ERR_ARGUMENT);
    fake->capturing = false;
    fake->broken_stream = true;
    assert_int_equal(dw_cuda_stream_wait(cuda, stream, &why), DW_ERR_IO);
    assert_non_null(strstr(why.text, "the stream failed"));
    fake->broken_stream = false;
    dw_cuda_stream_destroy(cuda, stream);
    rig_close_cuda(cuda);
}

/* From the device to the host and back, after what was enqueued before; nothing is enqueued on a
 * stream that captures, where the copy would become a part of the graph. */
TEST(copies_follow_earlier_work)
{
    dw_cuda *cuda = rig_open_cuda();
    fake_cuda *fake = fake_cuda_get();
    enum { BYTES = 5000 };
    unsigned char values[BYTES];
    void *streams[2] = {NULL, NULL}, *memory;
    unsigned char *device[2] = {fake->allocate(BYTES), fake->allocate(BYTES)};
    dw_why why = {.text = ""};
    assert_int_equal(dw_cuda_pin(cuda, BYTES, &memory, NULL), DW_OK);
    assert_int_equal(dw_cuda_stream_create(cuda, &streams[1], NULL), DW_OK);
    for (int i = 0; i < 2; i++) {
        dw_cuda_result error;
        for (int at = 0; at < BYTES; at++) values[at] = (unsigned char)(at * 7 + i);
        rig_to_device(device[0], values, BYTES);
        memset(memory, 0, BYTES);
        assert_true(dw_cuda_enter(cuda, &error));
        /* What fills the second buffer waits in the queue of the stream. */
        assert_int_equal(
            cuda->driver.copy((uintptr_t)device[1], (uintptr_t)device[0], BYTES, streams[i]), 0);
        dw_cuda_leave(cuda);
        assert_int_equal(dw_cuda_copy(cuda, memory, device[1], BYTES - 1, streams[i], &why), DW_OK);
        assert_memory_equal(memory, values, BYTES - 1);
        assert_int_equal(((unsigned char *)memory)[BYTES - 1], 0);
        memset(memory, 9, BYTES);
        assert_int_equal(dw_cuda_copy(cuda, device[0], memory, BYTES, streams[i], &why), DW_OK);
        rig_from_device(values, device[0], BYTES);
        assert_memory_equal(values, memory, BYTES);
        fake->capturing = true;
        assert_int_equal(dw_cuda_copy(cuda, memory, device[1], BYTES, streams[i], &why),
                         DW_ERR_ARGUMENT);
        fake->capturing = false;
        assert_non_null(strstr(why.text, "capturing"));
        fake->launch_graph(0);
        fake->run();
        assert_int_equal(((unsigned char *)memory)[0], 9);
    }
    for (int i = 0; i < 2; i++) fake->release(device[i]);
    dw_cuda_stream_destroy(cuda, streams[1]);
    dw_cuda_unpin(cuda, memory);
    rig_close_cuda(cuda);
}

/* Each call of the driver fails in turn: the error has a sentence, and no memory is left. */
TEST(a_failing_driver_is_reported)
{
    dw_cuda *cuda = rig_open_cuda();
    fake_cuda *fake = fake_cuda_get();
    int failed[5] = {0};
    void *device = fake->allocate(16);
    unsigned char host[16];
    for (int call = 0; call < 5; call++) {
        dw_status status = DW_ERR_IO;
        for (long at = 0; status != DW_OK; at++) {
            dw_why why = {.text = ""};
            void *made = NULL;
            fake->calls = 0;
            fake->fail_at = at;
            status = call == 0   ? dw_cuda_pin(cuda, 100, &made, &why)
                     : call == 1 ? dw_cuda_stream_create(cuda, &made, &why)
                     : call == 2 ? dw_cuda_stream_check(cuda, NULL, &why)
                     : call == 3 ? dw_cuda_stream_wait(cuda, NULL, &why)
                                 : dw_cuda_copy(cuda, host, device, sizeof host, NULL, &why);
            fake->fail_at = -1;
            fake->forget_mode();
            if (status != DW_OK) {
                assert_true(status == DW_ERR_IO || status == DW_ERR_NO_MEMORY);
                assert_string_not_equal(why.text, "");
                assert_null(made);
                failed[call]++;
            } else if (call == 0) {
                dw_cuda_unpin(cuda, made);
            } else if (call == 1) {
                dw_cuda_stream_destroy(cuda, made);
            }
        }
        assert_true(failed[call] > (call == 4 ? 2 : 1));
    }
    fake->release(device);
    rig_close_cuda(cuda);
}

RUN_TESTS_GIVEN(rig_library)
