/* SPDX-License-Identifier: Apache-2.0
 * test_project.c - tests projections: products, compared with sums by hand; matrices that are
 * fitted; what is refused; and frames of ends with another matrix. */
#include <math.h>

#include "arithmetic/half.h"
#include "deltawire/projection.h"
#include "support/tool.h"

enum { N = 2, T = 5, C = 300, R = 7, GAP = 3, STRIDE = C + GAP, ALL = N * T * STRIDE };

static float matrix[C * R], x[ALL], y[ALL], z[N * T * R], back[N * T * R];
static const dw_key keys[N] = {{1, 0}, {2, 0}};

static dw_tensor with_gaps(void *data, dw_dtype dtype)
{
    dw_tensor view = dw_tensor_3d(data, dtype, N, T, C);
    view.stride_t = STRIDE;
    view.stride_n = (int64_t)T * STRIDE;
    return view;
}

static dw_tensor coordinates(float *data)
{
    return dw_tensor_3d(data, DW_F32, N, T, R);
}

static dw_projection *random_projection(uint64_t seed)
{
    test_random random = {seed};
    dw_projection *made;
    test_fill(&random, matrix, DW_F32, C * R, 0.1f);
    dw_tensor view = dw_tensor_3d(matrix, DW_F32, 1, C, R);
    assert_int_equal(dw_projection_create(&made, &view, NULL, NULL), DW_OK);
    return made;
}

/* Fails unless two floats have the same bits, or both are the one NaN. */
static void expect_same(float value, float wanted, const char *what, size_t at)
{
    uint32_t bits = isnan(wanted) ? DW_F32_NAN : dw_bits_of(wanted);
    if (dw_bits_of(value) != bits)
        fail_msg("%s, element %zu: %g, not %g", what, at, (double)value, (double)wanted);
}

static void check_products(dw_dtype dtype)
{
    dw_projection *p = random_projection(5);
    dw_tensor tx = with_gaps(x, dtype), ty = with_gaps(y, dtype), tz = coordinates(z);
    test_random random = {(uint64_t)dtype};
    test_fill(&random, x, dtype, ALL, 1);
    test_set(x, dtype, 2 * STRIDE + 8, INFINITY);
    test_set(x, dtype, 3 * STRIDE + 9, NAN);
    for (size_t i = 0; i < ALL; i++) test_set(y, dtype, i, 7);
    assert_int_equal(dw_project(p, &tx, &tz, NULL), DW_OK);
    for (size_t row = 0; row < N * T; row++)
        for (size_t r = 0; r < R; r++) {
            volatile float sum = 0, product;
            for (size_t c = 0; c < C; c++) {
                product = test_get(x, dtype, row * STRIDE + c) * matrix[c * R + r];
                sum = sum + product;
            }
            expect_same(z[row * R + r], sum, "z", row * R + r);
        }
    assert_int_equal(dw_unproject(p, &tz, &ty, NULL), DW_OK);
    for (size_t i = 0; i < ALL; i++) {
        static float wanted[1];
        volatile float sum = 0, product;
        for (size_t r = 0; r < R && i % STRIDE < C; r++) {
            product = z[i / STRIDE * R + r] * matrix[i % STRIDE * R + r];
            sum = sum + product;
        }
        test_set(wanted, dtype, 0, i % STRIDE < C ? sum : 7);
        expect_same(test_get(y, dtype, i), test_get(wanted, dtype, 0), "y", i);
    }
    dw_projection_destroy(p);
}

static void products_are_sums_in_order(void **state)
{
    (void)state;
    check_products(DW_F32);
    check_products(DW_F16);
    check_products(DW_BF16);
}

/* x lies in a subspace of R dimensions, but for a little noise: what the fitted matrix leaves of it
 * is the noise, and its columns are orthonormal. */
static void projection_finds_the_subspace(void **state)
{
    enum { ROWS = 200 };
    static float data[ROWS * C], part[ROWS * R], again[ROWS * C];
    test_random random = {9};
    dw_projection *p, *basis = random_projection(77);
    dw_tensor tx = dw_tensor_3d(data, DW_F32, 1, ROWS, C), ty = tx,
              tz = dw_tensor_3d(part, DW_F32, 1, ROWS, R);
    double off = 0, noise = 0;
    (void)state;
    test_fill(&random, part, DW_F32, ROWS * R, 1);
    assert_int_equal(dw_unproject(basis, &tz, &tx, NULL), DW_OK);
    for (int i = 0; i < ROWS * C; i++) {
        float more = test_normal(&random) * 0.01f;
        data[i] += more;
        noise += (double)more * more;
    }
    data[4 * C + 3] = NAN; /* a token that is left out */
    assert_int_equal(dw_projection_fit(&p, &tx, R, NULL, NULL), DW_OK);
    assert_int_equal(dw_project(p, &tx, &tz, NULL), DW_OK);
    ty.data = again;
    assert_int_equal(dw_unproject(p, &tz, &ty, NULL), DW_OK);
    for (int i = 0; i < ROWS * C; i++)
        if (i / C != 4) off += ((double)again[i] - data[i]) * ((double)again[i] - data[i]);
    assert_true(off < noise);
    const float *u = dw_projection_matrix(p).data;
    for (int i = 0; i < R; i++)
        for (int k = 0; k < R; k++) {
            double sum = 0;
            for (int c = 0; c < C; c++) sum += (double)u[c * R + i] * u[c * R + k];
            assert_true(fabs(sum - (i == k)) < 1e-5);
        }
    dw_projection *twin;
    assert_int_equal(dw_projection_fit(&twin, &tx, R, NULL, NULL), DW_OK);
    assert_int_equal(dw_projection_digest(twin), dw_projection_digest(p));
    dw_projection_destroy(twin);
    dw_projection_destroy(p);
    dw_projection_destroy(basis);
}

/* A tensor of fewer dimensions than are asked for gets a matrix nevertheless, also one of zeros. */
static void missing_dimensions_are_filled(void **state)
{
    static float data[40], part[40];
    (void)state;
    for (int zeros = 0; zeros < 2; zeros++) {
        dw_projection *p;
        dw_tensor tx = dw_tensor_3d(data, DW_F32, 1, 4, 10), tz = tx, ty = tx;
        for (int i = 0; i < 40; i++) data[i] = zeros ? 0.0f : (float)(i % 10);
        tz.data = part;
        ty.data = y;
        assert_int_equal(dw_projection_fit(&p, &tx, 10, NULL, NULL), DW_OK);
        assert_int_equal(dw_project(p, &tx, &tz, NULL), DW_OK);
        assert_int_equal(dw_unproject(p, &tz, &ty, NULL), DW_OK);
        for (int i = 0; i < 40; i++) assert_true(fabsf(y[i] - data[i]) < 1e-5f);
        dw_projection_destroy(p);
    }
}

static void the_digest_tells_matrices_apart(void **state)
{
    dw_projection *p = random_projection(1), *q;
    uint32_t digest = dw_projection_digest(p);
    dw_tensor view = dw_tensor_3d(matrix, DW_F32, 1, C, R),
              turned = dw_tensor_3d(matrix, DW_F32, 1, 50, 42);
    (void)state;
    assert_int_not_equal(digest, 0);
    assert_int_equal(dw_projection_create(&q, &view, NULL, NULL), DW_OK);
    assert_int_equal(dw_projection_digest(q), digest);
    dw_projection_destroy(q);
    for (int i = 0; i < C * R; i += 299) {
        matrix[i] = -matrix[i];
        assert_int_equal(dw_projection_create(&q, &view, NULL, NULL), DW_OK);
        assert_int_not_equal(dw_projection_digest(q), digest);
        dw_projection_destroy(q);
        matrix[i] = -matrix[i];
    }
    assert_int_equal(dw_projection_create(&q, &turned, NULL, NULL), DW_OK);
    assert_int_not_equal(dw_projection_digest(q), digest);
    dw_projection_destroy(q);
    dw_projection_destroy(p);
    assert_int_equal(dw_projection_digest(NULL), 0);
}

/* Coordinates pass through a codec, whose prev is that of the coordinates; a decoder that has
 * another matrix, or none, refuses the frame. */
static void frames_say_which_matrix(void **state)
{
    dw_projection *p = random_projection(3);
    dw_tensor tx = with_gaps(x, DW_F32), tz = coordinates(z), tb = coordinates(back);
    test_random random = {4};
    test_pair pair, other;
    char text[80];
    (void)state;
    test_fill(&random, x, DW_F32, ALL, 1);
    assert_int_equal(dw_project(p, &tx, &tz, NULL), DW_OK);
    snprintf(text, sizeof text, "delta:bits=8,project=%u", (unsigned)dw_projection_digest(p));
    test_pair_open(&pair, text, N, T, R, DW_F32);
    assert_int_equal(pair.config.project, dw_projection_digest(p));
    test_pair_encode(&pair, keys, &tz);
    static const char *const texts[] = {"delta:bits=8", "delta:bits=8,project=12"};
    for (int i = 0; i < 2; i++) {
        test_pair_open(&other, texts[i], N, T, R, DW_F32);
        assert_int_equal(dw_decode(other.decoder, pair.frame, pair.len, &tb, NULL, NULL, 0, NULL),
                         DW_ERR_MISMATCH);
        assert_non_null(strstr(dw_decoder_why(other.decoder), "project"));
        test_pair_close(&other);
    }
    assert_int_equal(test_pair_decode(&pair, &tb), DW_OK);
    for (int i = 0; i < N * T * R; i++) assert_true(fabsf(back[i] - z[i]) < 0.1f);
    test_pair_in_step(&pair, keys[0]);
    test_pair_close(&pair);
    dw_projection_destroy(p);
}

static void expect(dw_status status, dw_status wanted, const dw_why *why, const char *says)
{
    assert_int_equal(status, wanted);
    if (!strstr(why->text, says)) fail_msg("\"%s\" does not say \"%s\"", why->text, says);
}

static void wrong_shapes_are_refused(void **state)
{
    dw_projection *p = random_projection(2), *made = p;
    dw_tensor tx = with_gaps(x, DW_F32), tz = coordinates(z), other, m;
    dw_why why = {.text = ""};
    (void)state;
    other = tx;
    other.data = NULL;
    expect(dw_project(p, &other, &tz, &why), DW_ERR_ARGUMENT, &why, "has no data");
    expect(dw_unproject(p, &tz, &other, &why), DW_ERR_ARGUMENT, &why, "has no data");
    memset(z, 1, sizeof z);
    memcpy(back, z, sizeof z);
    other = tx, other.c = C - 1;
    expect(dw_project(p, &other, &tz, &why), DW_ERR_SHAPE, &why, "300 channels onto 7");
    other = tz, other.c = R - 1;
    expect(dw_project(p, &tx, &other, &why), DW_ERR_SHAPE, &why, "(2, 5, 6)");
    expect(dw_unproject(p, &other, &tx, &why), DW_ERR_SHAPE, &why, "(2, 5, 6)");
    other = tz, other.t = T - 1;
    expect(dw_project(p, &tx, &other, &why), DW_ERR_SHAPE, &why, "(2, 4, 7)");
    other = tz, other.n = 1;
    expect(dw_project(p, &tx, &other, &why), DW_ERR_SHAPE, &why, "(1, 5, 7)");
    other = tz, other.dtype = DW_BF16;
    expect(dw_project(p, &tx, &other, &why), DW_ERR_ARGUMENT, &why, "f32");
    other = tz, other.stride_n = 0;
    expect(dw_project(p, &tx, &other, &why), DW_ERR_ARGUMENT, &why, "overlap");
    other = tz, other.data = tx.data;
    expect(dw_project(p, &tx, &other, &why), DW_ERR_ARGUMENT, &why, "overlap in memory");
    expect(dw_unproject(p, &other, &tx, &why), DW_ERR_ARGUMENT, &why, "overlap in memory");
    expect(dw_project(NULL, &tx, &tz, &why), DW_ERR_ARGUMENT, &why, "needed");
    assert_memory_equal(z, back, sizeof z);
    m = dw_tensor_3d(matrix, DW_F32, 1, R, C);
    expect(dw_projection_create(&made, &m, NULL, &why), DW_ERR_SHAPE, &why, "from 1 to");
    assert_null(made);
    m = dw_tensor_3d(matrix, DW_F32, 2, C / 2, R);
    expect(dw_projection_create(&made, &m, NULL, &why), DW_ERR_ARGUMENT, &why, "(1, C, R)");
    matrix[C * R - 1] = INFINITY;
    m = dw_tensor_3d(matrix, DW_F32, 1, C, R);
    expect(dw_projection_create(&made, &m, NULL, &why), DW_ERR_ARGUMENT, &why, "not finite");
    expect(dw_projection_fit(&made, &tx, C + 1, NULL, &why), DW_ERR_SHAPE, &why, "301 coord");
    expect(dw_projection_fit(&made, &tx, 0, NULL, &why), DW_ERR_SHAPE, &why, "from 1 to");
    for (int i = 0; i < ALL; i++) x[i] = NAN;
    expect(dw_projection_fit(&made, &tx, 1, NULL, &why), DW_ERR_ARGUMENT, &why, "no token");
    dw_projection_destroy(p);
    dw_projection_destroy(NULL);
}

static void projection_reports_missing_memory(void **state)
{
    dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, 4, C), m = dw_tensor_3d(matrix, DW_F32, 1, C, R);
    (void)state;
    for (int i = 0; i < ALL; i++) x[i] = (float)(i % 13);
    for (int i = 0; i < C * R; i++) matrix[i] = 1;
    for (int64_t fail = 0; fail < 3; fail++) {
        test_allocator allocator = {.fail_at = fail};
        dw_allocator hooks = test_allocator_hooks(&allocator);
        dw_projection *fitted, *given;
        assert_int_equal(dw_projection_fit(&fitted, &tx, 3, &hooks, NULL),
                         fail < 2 ? DW_ERR_NO_MEMORY : DW_OK);
        assert_int_equal(fitted != NULL, fail == 2);
        dw_projection_destroy(fitted);
        allocator.calls = 0;
        allocator.fail_at = fail == 0 ? 0 : -1;
        assert_int_equal(dw_projection_create(&given, &m, &hooks, NULL),
                         fail == 0 ? DW_ERR_NO_MEMORY : DW_OK);
        dw_projection_destroy(given);
        assert_int_equal(allocator.out_blocks, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_sums_in_order),
        cmocka_unit_test(projection_finds_the_subspace),
        cmocka_unit_test(missing_dimensions_are_filled),
        cmocka_unit_test(the_digest_tells_matrices_apart),
        cmocka_unit_test(frames_say_which_matrix),
        cmocka_unit_test(wrong_shapes_are_refused),
        cmocka_unit_test(projection_reports_missing_memory),
    };
    return cmocka_run_group_tests_name("project", tests, NULL, NULL);
}
