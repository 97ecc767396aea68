/* SPDX-License-Identifier: Apache-2.0
 * test_dlpack.c - DLPack tensors become views or are refused. */
#include "support/tool.h"

/* The same layout as in dlpack.h, with DLDevice and DLDataType inside DLTensor. */
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

TEST(dlpack_takes_one_to_three_extents)
{
    int64_t shape[] = {2, 3, 5}, strides[] = {40, 8, 1};
    int stream;
    dw_dlpack_view view;
    dl_tensor t = floats(3, shape, strides);
    assert_int_equal(dw_tensor_from_dlpack(&view, &t, 0, &stream, NULL), DW_OK);
    assert_ptr_equal(view.tensor.data, memory + 16);
    assert_int_equal(view.tensor.dtype, DW_F32);
    assert_true(view.tensor.n == 2 && view.tensor.t == 3 && view.tensor.c == 5);
    assert_true(view.tensor.stride_n == 40 && view.tensor.stride_t == 8);
    assert_true(view.device_type == 2 && view.device_id == 1 && view.stream == &stream);
    t = floats(3, shape, NULL);
    assert_int_equal(dw_tensor_from_dlpack(&view, &t, 0, NULL, NULL), DW_OK);
    assert_true(view.tensor.stride_n == 15 && view.tensor.stride_t == 5);
    t = floats(2, shape + 1, strides + 1);
    assert_int_equal(dw_tensor_from_dlpack(&view, &t, 0, NULL, NULL), DW_OK);
    assert_true(view.tensor.n == 1 && view.tensor.t == 3 && view.tensor.c == 5 &&
                view.tensor.stride_t == 8);
    t = floats(1, shape + 2, NULL);
    assert_int_equal(dw_tensor_from_dlpack(&view, &t, 0, NULL, NULL), DW_OK);
    assert_true(view.tensor.n == 1 && view.tensor.t == 1 && view.tensor.c == 5);
}

TEST(dlpack_knows_three_dtypes)
{
    static const struct {
        data_type type;
        dw_dtype dtype;
    } types[] = {{{2, 32, 1}, DW_F32}, {{2, 16, 1}, DW_F16}, {{4, 16, 1}, DW_BF16}};
    static const data_type others[] = {{0, 32, 1}, {2, 64, 1}, {2, 8, 1},
                                       {4, 32, 1}, {2, 32, 2}, {1, 16, 1}};
    int64_t shape[] = {4};
    dw_dlpack_view view = {.device_id = 77};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        dl_tensor t = floats(1, shape, NULL);
        t.dtype = types[i].type;
        assert_int_equal(dw_tensor_from_dlpack(&view, &t, 0, NULL, NULL), DW_OK);
        assert_int_equal(view.tensor.dtype, types[i].dtype);
    }
    view.device_id = 77;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        dl_tensor t = floats(1, shape, NULL);
        t.dtype = others[i];
        assert_int_equal(dw_tensor_from_dlpack(&view, &t, 0, NULL, NULL), DW_ERR_UNSUPPORTED);
        assert_int_equal(view.device_id, 77);
    }
}

static void expect_refused(const dl_tensor *t, dw_status status, const char *word)
{
    dw_dlpack_view view;
    dw_why why;
    assert_int_equal(dw_tensor_from_dlpack(&view, t, 0, NULL, &why), status);
    if (!strstr(why.text, word)) fail_msg("\"%s\" does not say %s", why.text, word);
}

TEST(dlpack_refuses_other_layouts)
{
    int64_t shape[] = {2, 3, 5, 1, 1}, gaps[] = {30, 10, 2}, woven[] = {15, 4, 1},
            huge[] = {1 << 30, 1 << 30, 16}, none[] = {2, 0, 5};
    int64_t backwards[] = {-15, 5, 1}, column[] = {1}, apart[] = {9};
    dw_dlpack_view view;
    dl_tensor t = floats(3, shape, gaps);
    expect_refused(&t, DW_ERR_ARGUMENT, "not contiguous");
    t = floats(3, shape, woven);
    expect_refused(&t, DW_ERR_ARGUMENT, "tokens overlap");
    t = floats(3, shape, backwards);
    expect_refused(&t, DW_ERR_ARGUMENT, "negative");
    t = floats(3, huge, NULL);
    expect_refused(&t, DW_ERR_LIMIT, "too many");
    t = floats(3, none, NULL);
    expect_refused(&t, DW_ERR_ARGUMENT, "zero");
    t = floats(5, shape, NULL);
    expect_refused(&t, DW_ERR_ARGUMENT, "dimensions");
    t = floats(0, shape, NULL);
    expect_refused(&t, DW_ERR_ARGUMENT, "dimensions");
    t = floats(3, shape, NULL);
    t.byte_offset = 2;
    expect_refused(&t, DW_ERR_ARGUMENT, "multiple of the size");
    assert_int_equal(dw_tensor_from_dlpack(&view, NULL, 0, NULL, NULL), DW_ERR_ARGUMENT);
    assert_int_equal(dw_tensor_from_dlpack(NULL, &t, 0, NULL, NULL), DW_ERR_ARGUMENT);
    t = floats(1, column, apart); /* the stride of an extent of 1 has no meaning */
    assert_int_equal(dw_tensor_from_dlpack(&view, &t, 0, NULL, NULL), DW_OK);
}

static bool is_view(const dw_dlpack_view *view, uint32_t n, uint32_t t, uint32_t c,
                    int64_t stride_n, int64_t stride_t)
{
    const dw_tensor *x = &view->tensor;
    return x->n == n && x->t == t && x->c == c && x->stride_n == stride_n &&
           x->stride_t == stride_t && x->data == memory + 16;
}

TEST(dlpack_joins_the_middle_two_of_four_extents)
{
    int64_t shape[] = {2, 3, 4, 5}, padded[] = {90, 28, 7, 1}, cut[] = {100, 32, 7, 1},
            uneven[] = {90, 29, 7, 1}, flat[] = {2, 1, 4, 5}, tall[] = {2, 3, 1, 5},
            wild[] = {90, 1000, 7, 1}, wide[] = {90, 7, 1000, 1};
    int64_t huge[] = {1, 1 << 17, 1 << 16, 1};
    dw_dlpack_view view;
    dw_why why;
    dl_tensor t = floats(4, shape, NULL);
    assert_int_equal(dw_tensor_from_dlpack(&view, &t, 0, NULL, NULL), DW_OK);
    assert_true(is_view(&view, 2, 12, 5, 60, 5));
    t = floats(4, shape, padded);
    assert_int_equal(dw_tensor_from_dlpack(&view, &t, 0, NULL, NULL), DW_OK);
    assert_true(is_view(&view, 2, 12, 5, 90, 7));
    t = floats(4, shape, cut); /* an image within a larger one */
    assert_int_equal(dw_tensor_from_dlpack(&view, &t, 0, NULL, &why), DW_ERR_ARGUMENT);
    assert_non_null(strstr(why.text, "middle"));
    t = floats(4, shape, uneven);
    assert_int_equal(dw_tensor_from_dlpack(&view, &t, 0, NULL, NULL), DW_ERR_ARGUMENT);
    t = floats(4, flat, wild); /* the strides of extents of 1 have no meaning */
    assert_int_equal(dw_tensor_from_dlpack(&view, &t, 0, NULL, NULL), DW_OK);
    assert_true(is_view(&view, 2, 4, 5, 90, 7));
    t = floats(4, tall, wide);
    assert_int_equal(dw_tensor_from_dlpack(&view, &t, 0, NULL, NULL), DW_OK);
    assert_true(is_view(&view, 2, 3, 5, 90, 7));
    t = floats(4, huge, NULL);
    assert_int_equal(dw_tensor_from_dlpack(&view, &t, 0, NULL, NULL), DW_ERR_LIMIT);
}

TEST(dlpack_rows_become_tokens_or_samples)
{
    int64_t shape[] = {8, 5}, strides[] = {6, 1};
    dw_dlpack_view view;
    dw_why why = {"?", 0};
    dl_tensor t = floats(2, shape, strides);
    assert_int_equal(dw_tensor_from_dlpack(&view, &t, 0, NULL, &why), DW_OK);
    assert_true(is_view(&view, 1, 8, 5, 40, 6));
    assert_true(why.text[0] == 0 && why.offset == -1);
    assert_int_equal(dw_tensor_from_dlpack(&view, &t, DW_DLPACK_ROWS_ARE_SAMPLES, NULL, NULL),
                     DW_OK);
    assert_true(is_view(&view, 8, 1, 5, 6, 5));
    int64_t three[] = {2, 3, 5};
    t = floats(3, three, NULL); /* with three extents the choice changes nothing */
    assert_int_equal(dw_tensor_from_dlpack(&view, &t, DW_DLPACK_ROWS_ARE_SAMPLES, NULL, NULL),
                     DW_OK);
    assert_true(is_view(&view, 2, 3, 5, 15, 5));
    t = floats(1, three, NULL);
    assert_int_equal(dw_tensor_from_dlpack(&view, &t, DW_DLPACK_ROWS_ARE_SAMPLES, NULL, NULL),
                     DW_OK);
    assert_true(is_view(&view, 1, 1, 2, 2, 2));
}

/* The layout of DLManagedTensorVersioned in dlpack.h 1.0. */
typedef struct versioned {
    struct {
        uint32_t major, minor;
    } version;
    void *manager_ctx;
    void (*deleter)(struct versioned *self);
    uint64_t flags;
    dl_tensor dl_tensor;
} versioned;

TEST(versioned_tensors_say_what_may_be_done)
{
    enum { READ_ONLY = 1, COPIED = 2 };
    int64_t shape[] = {2, 3, 5};
    int stream;
    versioned v = {{1, 3}, NULL, NULL, 0, floats(3, shape, NULL)};
    dw_dlpack_view view = {.device_id = 77};
    dw_why why;
    unsigned reads = DW_DLPACK_VERSIONED, writes = reads | DW_DLPACK_WRITES;
    v.version.major = 2;
    assert_int_equal(dw_tensor_from_dlpack(&view, &v, reads, NULL, &why), DW_ERR_UNSUPPORTED);
    assert_non_null(strstr(why.text, "version"));
    v.version.major = 1;
    v.flags = READ_ONLY | COPIED;
    assert_int_equal(dw_tensor_from_dlpack(&view, &v, writes, NULL, &why), DW_ERR_ARGUMENT);
    assert_non_null(strstr(why.text, "read-only"));
    assert_int_equal(view.device_id, 77);
    assert_int_equal(dw_tensor_from_dlpack(&view, &v, reads, &stream, &why), DW_OK);
    assert_true(is_view(&view, 2, 3, 5, 15, 5));
    assert_true(view.device_type == 2 && view.device_id == 1 && view.stream == &stream);
    v.flags = COPIED;
    assert_int_equal(dw_tensor_from_dlpack(&view, &v, writes, NULL, &why), DW_OK);
    dl_tensor plain = floats(3, shape, NULL); /* has no flag for reading or writing */
    assert_int_equal(dw_tensor_from_dlpack(&view, &plain, DW_DLPACK_WRITES, NULL, &why), DW_OK);
    assert_int_equal(dw_tensor_from_dlpack(&view, &v, 8, NULL, &why), DW_ERR_ARGUMENT);
    assert_int_equal(dw_tensor_from_dlpack(&view, NULL, reads, NULL, &why), DW_ERR_ARGUMENT);
    assert_int_equal(dw_tensor_from_dlpack(NULL, &v, reads, NULL, &why), DW_ERR_ARGUMENT);
    v.dl_tensor.dtype.bits = 64;
    assert_int_equal(dw_tensor_from_dlpack(&view, &v, reads, NULL, &why), DW_ERR_UNSUPPORTED);
    assert_non_null(strstr(why.text, "f32"));
}

RUN_TESTS(NULL, NULL)
