/* SPDX-License-Identifier: Apache-2.0
 * test_cuda_staging.c - pinned memory, streams and waiting, for programs that send frames from the
 * host. */
#include "rig.h"

static void the_host_can_use_pinned_memory(void **state)
{
    dw_cuda *cuda = rig_open_cuda();
    void *memory, *other;
    (void)state;
    assert_int_equal(dw_cuda_pin(cuda, 100, &memory, NULL), DW_OK);
    assert_int_equal(dw_cuda_pin(cuda, 1, &other, NULL), DW_OK);
    assert_int_equal((uintptr_t)memory % 16, 0);
    memset(memory, 7, 100);
    dw_cuda_unpin(cuda, other);
    dw_cuda_unpin(cuda, memory);
    dw_cuda_unpin(cuda, NULL);
    dw_cuda_unpin(NULL, memory);
    dw_cuda_close(cuda);
    rig_nothing_left();
}

static void wrong_arguments_are_refused(void **state)
{
    dw_cuda *cuda = rig_open_cuda();
    void *memory = &cuda, *stream = &cuda;
    dw_why why = {.text = ""};
    (void)state;
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
    dw_cuda_stream_destroy(NULL, NULL);
    dw_cuda_stream_destroy(cuda, NULL);
    dw_cuda_close(cuda);
    rig_nothing_left();
}

static void a_stream_is_waited_for_unless_it_captures(void **state)
{
    dw_cuda *cuda = rig_open_cuda();
    fake_cuda *fake = fake_cuda_get();
    dw_why why = {.text = ""};
    void *stream;
    (void)state;
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
    dw_cuda_close(cuda);
    rig_nothing_left();
}

/* Each call of the driver fails in turn: the error has a sentence, and no memory is left. */
static void a_failing_driver_is_reported(void **state)
{
    dw_cuda *cuda = rig_open_cuda();
    fake_cuda *fake = fake_cuda_get();
    int failed[4] = {0};
    (void)state;
    for (int call = 0; call < 4; call++) {
        dw_status status = DW_ERR_IO;
        for (long at = 0; status != DW_OK; at++) {
            dw_why why = {.text = ""};
            void *made = NULL;
            fake->calls = 0;
            fake->fail_at = at;
            status = call == 0   ? dw_cuda_pin(cuda, 100, &made, &why)
                     : call == 1 ? dw_cuda_stream_create(cuda, &made, &why)
                     : call == 2 ? dw_cuda_stream_check(cuda, NULL, &why)
                                 : dw_cuda_stream_wait(cuda, NULL, &why);
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
        assert_true(failed[call] > 1);
    }
    dw_cuda_close(cuda);
    rig_nothing_left();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_host_can_use_pinned_memory),
        cmocka_unit_test(wrong_arguments_are_refused),
        cmocka_unit_test(a_stream_is_waited_for_unless_it_captures),
        cmocka_unit_test(a_failing_driver_is_reported),
    };
    if (argc != 2) return 2;
    rig_library = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
