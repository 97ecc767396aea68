/* SPDX-License-Identifier: Apache-2.0
 * test_dlpack.c - DLPack's tensors become views, or are refused. */
#include "tool.h"

/* As dlpack.h has it: DLDevice and DLDataType within DLTensor. */
typedef struct device {
    int32_t type, id;
} device;

typedef struct data_type {
    uint8_t code, bits;
    uint16_t lanes;
} data_type;

typedef struct dl_tensor {
    void *data;
    device device;
    int32_t ndim;
    data_type dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} dl_tensor;

static float memory[1024];

static dl_tensor floats(int32_t ndim, int64_t *shape, int64_t *strides)
{
    return (dl_tensor){memory, {2, 1}, ndim, {2, 32, 1}, shape, strides, 64};
}

static void takes_one_two_and_three_extents(void **state)
{
    int64_t shape[] = {2, 3, 5}, strides[] = {40, 8, 1};
    int stream;
    dw_dlpack_view view;
    (void)state;
    dl_tensor t = floats(3, shape, strides);
    assert_int_equal(dw_tensor_from_dlpack(&view, &t, &stream), DW_OK);
    assert_ptr_equal(view.tensor.data, memory + 16);
    assert_int_equal(view.tensor.dtype, DW_F32);
    assert_true(view.tensor.n == 2 && view.tensor.t == 3 && view.tensor.c == 5);
    assert_true(view.tensor.stride_n == 40 && view.tensor.stride_t == 8);
    assert_true(view.device_type == 2 && view.device_id == 1 && view.stream == &stream);
    t = floats(3, shape, NULL);
    assert_int_equal(dw_tensor_from_dlpack(&view, &t, NULL), DW_OK);
    assert_true(view.tensor.stride_n == 15 && view.tensor.stride_t == 5);
    t = floats(2, shape + 1, strides + 1);
    assert_int_equal(dw_tensor_from_dlpack(&view, &t, NULL), DW_OK);
    assert_true(view.tensor.n == 1 && view.tensor.t == 3 && view.tensor.c == 5 &&
                view.tensor.stride_t == 8);
    t = floats(1, shape + 2, NULL);
    assert_int_equal(dw_tensor_from_dlpack(&view, &t, NULL), DW_OK);
    assert_true(view.tensor.n == 1 && view.tensor.t == 1 && view.tensor.c == 5);
}

static void knows_three_dtypes(void **state)
{
    static const struct {
        data_type type;
        dw_dtype dtype;
    } types[] = {{{2, 32, 1}, DW_F32}, {{2, 16, 1}, DW_F16}, {{4, 16, 1}, DW_BF16}};
    static const data_type others[] = {{0, 32, 1}, {2, 64, 1}, {2, 8, 1},
                                       {4, 32, 1}, {2, 32, 2}, {1, 16, 1}};
    int64_t shape[] = {4};
    dw_dlpack_view view = {.device_id = 77};
    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        dl_tensor t = floats(1, shape, NULL);
        t.dtype = types[i].type;
        assert_int_equal(dw_tensor_from_dlpack(&view, &t, NULL), DW_OK);
        assert_int_equal(view.tensor.dtype, types[i].dtype);
    }
    view.device_id = 77;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        dl_tensor t = floats(1, shape, NULL);
        t.dtype = others[i];
        assert_int_equal(dw_tensor_from_dlpack(&view, &t, NULL), DW_ERR_UNSUPPORTED);
        assert_int_equal(view.device_id, 77);
    }
}

static void refuses_what_cannot_be_walked(void **state)
{
    int64_t shape[] = {2, 3, 5, 1}, gaps[] = {30, 10, 2}, woven[] = {15, 4, 1},
            huge[] = {1 << 30, 1 << 30, 16}, none[] = {2, 0, 5};
    int64_t backwards[] = {-15, 5, 1}, column[] = {1}, apart[] = {9};
    dw_dlpack_view view;
    (void)state;
    dl_tensor t = floats(3, shape, gaps);
    assert_int_equal(dw_tensor_from_dlpack(&view, &t, NULL), DW_ERR_ARGUMENT);
    t = floats(3, shape, woven);
    assert_int_equal(dw_tensor_from_dlpack(&view, &t, NULL), DW_ERR_ARGUMENT);
    t = floats(3, shape, backwards);
    assert_int_equal(dw_tensor_from_dlpack(&view, &t, NULL), DW_ERR_ARGUMENT);
    t = floats(3, huge, NULL);
    assert_int_equal(dw_tensor_from_dlpack(&view, &t, NULL), DW_ERR_LIMIT);
    t = floats(3, none, NULL);
    assert_int_equal(dw_tensor_from_dlpack(&view, &t, NULL), DW_ERR_ARGUMENT);
    t = floats(4, shape, NULL);
    assert_int_equal(dw_tensor_from_dlpack(&view, &t, NULL), DW_ERR_ARGUMENT);
    t = floats(0, shape, NULL);
    assert_int_equal(dw_tensor_from_dlpack(&view, &t, NULL), DW_ERR_ARGUMENT);
    t = floats(3, shape, NULL);
    t.byte_offset = 2;
    assert_int_equal(dw_tensor_from_dlpack(&view, &t, NULL), DW_ERR_ARGUMENT);
    assert_int_equal(dw_tensor_from_dlpack(&view, NULL, NULL), DW_ERR_ARGUMENT);
    assert_int_equal(dw_tensor_from_dlpack(NULL, &t, NULL), DW_ERR_ARGUMENT);
    t = floats(1, column, apart); /* the stride of one element says nothing */
    assert_int_equal(dw_tensor_from_dlpack(&view, &t, NULL), DW_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(takes_one_two_and_three_extents),
                                       cmocka_unit_test(knows_three_dtypes),
                                       cmocka_unit_test(refuses_what_cannot_be_walked)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
