/* SPDX-License-Identifier: Apache-2.0
 * test_cuda_projection.c - projections of tensors on a device: the bits of the CPU, in the order of
 * a stream, and errors that change nothing. */
#include "../../cuda/device.h"
#include "deltawire/projection.h"
#include "rig.h"

enum { N = 2, T = 5, C = 40, R = 6 };

static dw_projection *make_projection(uint32_t c, uint32_t r)
{
    test_random random = {test_seed()};
    dw_projection *made;
    float *values = malloc(sizeof *values * c * r);
    assert_non_null(values);
    test_fill(&random, values, DW_F32, (size_t)c * r, 1.0f);
    dw_tensor matrix = dw_tensor_3d(values, DW_F32, 1, c, r);
    assert_int_equal(dw_projection_create(&made, &matrix, NULL, NULL), DW_OK);
    free(values);
    return made;
}

/* Tensors on the device and in main memory: x, its coordinates, and what is made of these. */
typedef struct tensors {
    float x[N * T * C], z[N * T * R], y[N * T * C];
    dw_tensor of_x, of_z, of_y, on_x, on_z, on_y;
} tensors;

static void open_tensors(tensors *s)
{
    fake_cuda *fake = fake_cuda_get();
    s->of_x = dw_tensor_3d(s->x, DW_F32, N, T, C);
    s->of_z = dw_tensor_3d(s->z, DW_F32, N, T, R);
    s->of_y = dw_tensor_3d(s->y, DW_F32, N, T, C);
    s->on_x = dw_tensor_3d(fake->allocate(sizeof s->x), DW_F32, N, T, C);
    s->on_z = dw_tensor_3d(fake->allocate(sizeof s->z), DW_F32, N, T, R);
    s->on_y = dw_tensor_3d(fake->allocate(sizeof s->y), DW_F32, N, T, C);
}

static void close_tensors(const tensors *s)
{
    fake_cuda *fake = fake_cuda_get();
    fake->release(s->on_x.data);
    fake->release(s->on_z.data);
    fake->release(s->on_y.data);
}

/* Checks that z and y on the device are those that the CPU makes of x. */
static void check_results(const dw_projection *p, tensors *s)
{
    static float z[N * T * R], y[N * T * C];
    assert_int_equal(dw_project(p, &s->of_x, &s->of_z, NULL), DW_OK);
    assert_int_equal(dw_unproject(p, &s->of_z, &s->of_y, NULL), DW_OK);
    rig_from_device(z, s->on_z.data, sizeof z);
    rig_from_device(y, s->on_y.data, sizeof y);
    assert_memory_equal(z, s->z, sizeof z);
    assert_memory_equal(y, s->y, sizeof y);
}

static void new_x(tensors *s, uint64_t seed)
{
    test_random random = {seed};
    test_fill(&random, s->x, DW_F32, N * T * C, 1.0f);
    if (seed % 2) test_spoil(&random, s->x, DW_F32, N * T * C, true);
    rig_to_device(s->on_x.data, s->x, sizeof s->x);
}

/* Nothing happens before the stream does it, and a captured product can be launched again. */
static void products_have_the_bits_of_the_cpu(void **state)
{
    dw_cuda *cuda = rig_open_cuda();
    dw_projection *p = make_projection(C, R);
    dw_cuda_projection *on_device;
    static tensors s;
    open_tensors(&s);
    assert_int_equal(dw_cuda_projection_create(&on_device, cuda, p, NULL), DW_OK);
    dw_cuda_close(cuda);
    assert_int_equal(fake_cuda_get()->retained, 1); /* the projection keeps it open */
    for (int graph = 0; graph < 2; graph++) {
        new_x(&s, 4 + (uint64_t)graph);
        if (graph) rig_capture(0);
        assert_int_equal(dw_project_async(on_device, &s.on_x, &s.on_z, NULL, NULL), DW_OK);
        assert_int_equal(dw_unproject_async(on_device, &s.on_z, &s.on_y, NULL, NULL), DW_OK);
        if (!graph) fake_cuda_get()->run();
        if (!graph) check_results(p, &s);
    }
    for (int turn = 0; turn < 2; turn++) {
        rig_replay(0);
        check_results(p, &s);
        new_x(&s, 9 + (uint64_t)turn);
    }
    fake_cuda_get()->drop_graph(0);
    dw_cuda_projection_destroy(on_device);
    dw_projection_destroy(p);
    close_tensors(&s);
    rig_nothing_left();
}

static void wrong_tensors_enqueue_nothing(void **state)
{
    dw_cuda *cuda = rig_open_cuda();
    dw_projection *p = make_projection(C, R);
    dw_cuda_projection *on_device = NULL;
    dw_why why;
    static tensors s;
    open_tensors(&s);
    assert_int_equal(dw_cuda_projection_create(NULL, cuda, p, &why), DW_ERR_ARGUMENT);
    assert_int_equal(dw_cuda_projection_create(&on_device, NULL, p, NULL), DW_ERR_ARGUMENT);
    assert_int_equal(dw_cuda_projection_create(&on_device, cuda, NULL, &why), DW_ERR_ARGUMENT);
    assert_null(on_device);
    assert_int_equal(dw_cuda_projection_create(&on_device, cuda, p, NULL), DW_OK);
    long launches = fake_cuda_get()->launches;
    assert_int_equal(dw_project_async(on_device, &s.on_z, &s.on_z, NULL, &why), DW_ERR_SHAPE);
    assert_non_null(strstr(why.text, "40 channels onto 6 coordinates"));
    assert_int_equal(dw_unproject_async(on_device, &s.on_x, &s.on_y, NULL, &why), DW_ERR_SHAPE);
    assert_int_equal(dw_project_async(NULL, &s.on_x, &s.on_z, NULL, &why), DW_ERR_ARGUMENT);
    assert_int_equal(dw_project_async(on_device, NULL, &s.on_z, NULL, &why), DW_ERR_ARGUMENT);
    assert_int_equal(dw_unproject_async(on_device, &s.on_z, NULL, NULL, &why), DW_ERR_ARGUMENT);
    dw_tensor empty = s.on_x, half = s.on_z, woven = s.on_y;
    empty.data = NULL;
    assert_int_equal(dw_project_async(on_device, &empty, &s.on_z, NULL, &why), DW_ERR_ARGUMENT);
    assert_non_null(strstr(why.text, "no data"));
    half.dtype = DW_BF16;
    assert_int_equal(dw_project_async(on_device, &s.on_x, &half, NULL, &why), DW_ERR_ARGUMENT);
    woven.stride_n = 1;
    assert_int_equal(dw_unproject_async(on_device, &s.on_z, &woven, NULL, &why), DW_ERR_ARGUMENT);
    assert_int_equal(fake_cuda_get()->launches, launches);
    dw_cuda_projection_destroy(on_device);
    dw_cuda_projection_destroy(NULL);
    dw_projection_destroy(p);
    dw_cuda_close(cuda);
    close_tensors(&s);
    rig_nothing_left();
}

/* More blocks than a grid has: (2^32 - 1) * 2^7 tokens are as many blocks for each of 32. */
static void too_many_tokens_are_a_limit(void **state)
{
    dw_cuda *cuda = rig_open_cuda();
    dw_projection *p = make_projection(1, 1);
    dw_cuda_projection *on_device;
    dw_why why;
    float one = 0;
    void *far = (void *)((uintptr_t)1 << 50);
    dw_tensor many = dw_tensor_3d(&one, DW_F32, 1u << 8, UINT32_MAX, 1),
              others = dw_tensor_3d(far, DW_F32, 1u << 8, UINT32_MAX, 1);
    assert_int_equal(dw_cuda_projection_create(&on_device, cuda, p, NULL), DW_OK);
    assert_int_equal(dw_project_async(on_device, &many, &others, NULL, &why), DW_ERR_LIMIT);
    assert_non_null(strstr(why.text, "parts of it"));
    dw_cuda_projection_destroy(on_device);
    dw_projection_destroy(p);
    dw_cuda_close(cuda);
    rig_nothing_left();
}

/* Every call to the driver fails once: there is no object then, and nothing is left. */
static void failed_projections_leave_nothing_allocated(void **state)
{
    fake_cuda *fake = fake_cuda_get();
    dw_projection *p = make_projection(C, R);
    static tensors s;
    dw_status status = DW_ERR_IO;
    open_tensors(&s);
    for (long at = 0; status != DW_OK; at++) {
        dw_cuda *cuda = rig_open_cuda();
        dw_cuda_projection *on_device;
        dw_why why = {.text = ""};
        fake->fail_at = fake->calls + at;
        status = dw_cuda_projection_create(&on_device, cuda, p, &why);
        assert_true((status == DW_OK) == (on_device != NULL));
        if (!status) status = dw_project_async(on_device, &s.on_x, &s.on_z, NULL, &why);
        fake->fail_at = -1;
        fake->forget_mode(); /* the call that resets it may have failed */
        assert_true(status == DW_OK || status == DW_ERR_IO || status == DW_ERR_NO_MEMORY);
        assert_true(status == DW_OK || strstr(why.text, "the CUDA driver says"));
        assert_true(at < 100);
        fake->run();
        dw_cuda_projection_destroy(on_device);
        dw_cuda_close(cuda);
    }
    dw_projection_destroy(p);
    close_tensors(&s);
    rig_nothing_left();
}

static void a_missing_kernel_is_named(void **state)
{
    fake_cuda *fake = fake_cuda_get();
    dw_projection *p = make_projection(C, R);
    dw_cuda_projection *on_device;
    dw_why why;
    fake->missing = "dw_multiply_tokens";
    dw_cuda *cuda = rig_open_cuda();
    fake->missing = NULL;
    assert_int_equal(dw_cuda_projection_create(&on_device, cuda, p, &why), DW_ERR_UNSUPPORTED);
    assert_non_null(strstr(why.text, "dw_multiply_tokens"));
    assert_null(on_device);
    dw_projection_destroy(p);
    dw_cuda_close(cuda);
    rig_nothing_left();
}

int main(int argc, char **argv)
{
    if (argc != 2) return 2;
    rig_library = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_have_the_bits_of_the_cpu),
        cmocka_unit_test(wrong_tensors_enqueue_nothing),
        cmocka_unit_test(too_many_tokens_are_a_limit),
        cmocka_unit_test(failed_projections_leave_nothing_allocated),
        cmocka_unit_test(a_missing_kernel_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
