/* SPDX-License-Identifier: Apache-2.0
 * profile.c - profiles of channels: made of given values, or fitted to a tensor. */
#include "codecs/profile.h"

#include <math.h>
#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "base/sentence.h"
#include "common/cpu.h"
#include "common/tensor.h"
#include "wire/frame.h"

/* The rows of a profile's values, and the least weight. */
enum { WEIGHTS, FIRST, SECOND, ROWS };
#define LEAST_WEIGHT 0x1p-24f

struct dw_profile {
    dw_allocator allocator;
    uint32_t c, rows, digest, decides;
    float *inverses;
    float values[]; /* (rows, C), and then C inverses; all values are bf16 */
};

/* ---- Making one ------------------------------------------------------------------------------ */

static uint64_t bytes_of(uint32_t c, uint32_t rows)
{
    return sizeof(dw_profile) + sizeof(float) * ((uint64_t)rows + 1) * c;
}

/* Allocates a profile. The caller then sets its values. */
static dw_status allocate(dw_profile **profile, uint32_t c, uint32_t rows,
                          const dw_allocator *allocator, dw_why *why)
{
    dw_allocator own;
    dw_status status = dw_mem_take_allocator(&own, allocator, why);
    if (status) return status;
    dw_profile *made = *profile = dw_mem_allocate(&own, bytes_of(c, rows));
    if (!made) return dw_say(why, DW_ERR_NO_MEMORY, "there is no memory for a profile");
    made->allocator = own;
    made->c = c;
    made->rows = rows;
    made->inverses = made->values + (uint64_t)rows * c;
    return DW_OK;
}

static float *row_of(const dw_profile *p, uint32_t row)
{
    return (float *)(uintptr_t)p->values + (uint64_t)row * p->c;
}

/* The digest of the values. That of each part begins with the digest of the parts before it, and
 * with the shape. */
static uint32_t digest_of(const dw_profile *p)
{
    uint8_t bytes[4096];
    uint64_t count = (uint64_t)p->rows * p->c, chain = 0;
    for (uint64_t at = 0; at < count;) {
        size_t used = 16;
        dw_put(bytes, chain, 8);
        dw_put(bytes + 8, p->rows, 4);
        dw_put(bytes + 12, p->c, 4);
        for (; at < count && used < sizeof bytes; at++, used += 2)
            dw_put(bytes + used, dw_bits_of(p->values[at]) >> 16, 2);
        chain = dw_digest_bytes(bytes, used);
    }
    return (uint32_t)chain ? (uint32_t)chain : 1;
}

/* Rounds the values to bf16 and computes what follows from them. Returns a sentence if a value is
 * not allowed, else NULL. */
static const char *complete(dw_profile *p)
{
    float most = 0;
    for (uint64_t i = 0; i < (uint64_t)p->rows * p->c; i++) {
        if (!dw_is_finite(p->values[i])) return "a profile has a value that is not finite";
        p->values[i] = dw_bf16_widen(dw_bf16_finite(p->values[i]));
    }
    for (uint32_t c = 0; c < p->c; c++) {
        float weight = p->values[c];
        if (!(weight >= LEAST_WEIGHT && weight <= 1))
            return "a weight of a profile is not from 2^-24 to 1: divide all weights by the "
                   "largest";
        p->inverses[c] = 1 / weight;
    }
    p->decides = 0;
    for (uint32_t c = 0; c < p->c && p->rows == ROWS; c++) {
        float apart = fabsf(row_of(p, FIRST)[c] - row_of(p, SECOND)[c]) * p->inverses[c];
        if (!(apart > most)) continue;
        most = apart;
        p->decides = c;
    }
    p->digest = digest_of(p);
    return NULL;
}

/* Completes a profile, or destroys it. */
static dw_status give(dw_profile **profile, dw_profile *made, dw_why *why)
{
    dw_cpu_mode mode = dw_cpu_enter_exact();
    const char *wrong = complete(made);
    dw_cpu_leave_exact(mode);
    if (wrong) {
        dw_profile_destroy(made);
        return dw_say(why, DW_ERR_ARGUMENT, "%s", wrong);
    }
    *profile = made;
    return DW_OK;
}

dw_status dw_profile_create(dw_profile **profile, const dw_tensor *values,
                            const dw_allocator *allocator, dw_why *why)
{
    if (!profile) return DW_ERR_ARGUMENT;
    *profile = NULL;
    dw_status status = values ? dw_tensor_check(values) : DW_ERR_ARGUMENT;
    if (status || !values->data || values->dtype != DW_F32)
        return dw_say(why, status ? status : DW_ERR_ARGUMENT,
                      "the values of a profile are not a valid tensor of f32");
    if (values->n != 1 || values->t < 1 || values->t > ROWS || values->c < 1)
        return dw_say(why, DW_ERR_SHAPE,
                      "the values of a profile have the shape (1, R, C): a row of weights, and "
                      "none, one or two rows of means");
    dw_profile *made;
    status = allocate(&made, values->c, values->t, allocator, why);
    if (status) return status;
    for (uint32_t row = 0; row < made->rows; row++)
        memcpy(row_of(made, row), (const float *)values->data + row * values->stride_t,
               made->c * sizeof(float));
    return give(profile, made, why);
}

void dw_profile_destroy(dw_profile *p)
{
    if (!p) return;
    dw_allocator allocator = p->allocator;
    dw_mem_release(&allocator, p, bytes_of(p->c, p->rows));
}

dw_profile *dw_profile_copy(const dw_profile *p, const dw_allocator *allocator)
{
    dw_profile *copy;
    if (allocate(&copy, p->c, p->rows, allocator, NULL)) return NULL;
    memcpy(copy->values, p->values, ((uint64_t)p->rows + 1) * p->c * sizeof(float));
    copy->digest = p->digest;
    copy->decides = p->decides;
    return copy;
}

uint32_t dw_profile_digest(const dw_profile *p)
{
    return p ? p->digest : 0;
}

dw_tensor dw_profile_values(const dw_profile *p)
{
    if (!p) return (dw_tensor){0};
    return dw_tensor_3d((float *)(uintptr_t)p->values, DW_F32, 1, p->rows, p->c);
}

dw_channels dw_profile_channels(const dw_profile *p)
{
    dw_channels channels = {0};
    if (!p) return channels;
    channels.weights = p->values;
    channels.inverses = p->inverses;
    channels.decides = p->decides;
    if (p->rows > FIRST) channels.means[0] = channels.means[1] = row_of(p, FIRST);
    if (p->rows > SECOND) channels.means[1] = row_of(p, SECOND);
    return channels;
}

dw_status dw_profile_fits(const dw_profile *p, uint32_t c, dw_why *why)
{
    if (!p || p->c == c) return DW_OK;
    return dw_say(why, DW_ERR_SHAPE,
                  "the config's profile has %u channels, and the tensor has %u: fit a profile to "
                  "such tensors",
                  (unsigned)p->c, (unsigned)c);
}

/* ---- Fitting --------------------------------------------------------------------------------- */

/* A row is unusual if its root mean square is more than so many times that of the median row. */
#define UNUSUAL 3.0

/* sizes: the root mean square of each row of x; NaN where a value of x or of the gradient is not
 * finite. squares: (C), of deviations or gradients. */
typedef struct fitting {
    const dw_tensor *x, *gradient;
    uint64_t rows, used[ROWS];
    double *sizes, *squares, *sums[ROWS];
} fitting;

static float value_of(const dw_tensor *tensor, uint64_t row, uint32_t c)
{
    uint32_t n = (uint32_t)(row / tensor->t), t = (uint32_t)(row % tensor->t);
    const char *at = (const char *)dw_tensor_sample(tensor, n) +
                     (uint64_t)t * (uint64_t)tensor->stride_t * dw_dtype_bytes(tensor->dtype);
    if (tensor->dtype == DW_F32) return ((const float *)(const void *)at)[c];
    uint16_t half = ((const uint16_t *)(const void *)at)[c];
    return tensor->dtype == DW_F16 ? dw_f16_widen(half) : dw_bf16_widen(half);
}

/* Returns the smallest of the values that is not below half of them; NaN if all are NaN, which do
 * not count. None is negative, so that their bits have their order. */
static double median_of(const double *values, uint64_t n)
{
    uint64_t finite = 0, least = 0, most = 0x7ff0000000000000u;
    double median;
    for (uint64_t i = 0; i < n; i++) finite += !isnan(values[i]);
    while (least < most) {
        uint64_t middle = least + (most - least) / 2, below = 0;
        memcpy(&median, &middle, sizeof median);
        for (uint64_t i = 0; i < n; i++) below += values[i] <= median;
        if (2 * below >= finite)
            most = middle;
        else
            least = middle + 1;
    }
    memcpy(&median, &least, sizeof median);
    return finite ? median : NAN;
}

/* Measures all rows. Returns the median of their sizes; NaN if no row is finite. */
static double measure_rows(fitting *f)
{
    for (uint64_t row = 0; row < f->rows; row++) {
        double sum = 0;
        bool is_finite = true;
        for (uint32_t c = 0; c < f->x->c; c++) {
            float x = value_of(f->x, row, c);
            is_finite = is_finite && dw_is_finite(x) &&
                        (!f->gradient || dw_is_finite(value_of(f->gradient, row, c)));
            sum += (double)x * x;
        }
        f->sizes[row] = is_finite ? sqrt(sum / f->x->c) : NAN;
    }
    return median_of(f->sizes, f->rows);
}

/* Which means a row belongs to; WEIGHTS, which is none, if it is not finite. */
static int means_of(const fitting *f, uint64_t row, double median)
{
    if (isnan(f->sizes[row])) return WEIGHTS;
    return f->sizes[row] > UNUSUAL * median ? SECOND : FIRST;
}

/* Computes the means of both kinds of rows, rounded as they will be subtracted; where there are no
 * unusual rows, both are the same. */
static void find_means(fitting *f, double median, dw_profile *to)
{
    for (uint64_t row = 0; row < f->rows; row++) {
        int of = means_of(f, row, median);
        f->used[of]++;
        for (uint32_t c = 0; c < f->x->c && of != WEIGHTS; c++)
            f->sums[of][c] += value_of(f->x, row, c);
    }
    for (uint32_t c = 0; c < f->x->c; c++)
        for (int of = FIRST; of <= SECOND; of++) {
            float mean =
                f->used[of] ? (float)(f->sums[of][c] / (double)f->used[of]) : row_of(to, FIRST)[c];
            row_of(to, (uint32_t)of)[c] = dw_bf16_widen(dw_bf16_finite(mean));
        }
}

/* Computes the weights, of which the largest becomes 1. A channel that was constant here, or on
 * which the loss did not depend, may not be so in other samples. So a tenth of the median is added
 * to what every channel has, and no weight becomes extreme because of such a channel. */
static void find_weights(fitting *f, double median, dw_profile *to)
{
    double most = 0, typical;
    for (uint64_t row = 0; row < f->rows; row++) {
        if (means_of(f, row, median) != FIRST) continue;
        for (uint32_t c = 0; c < f->x->c; c++) {
            double value = f->gradient ? value_of(f->gradient, row, c) * f->sizes[row]
                                       : (double)value_of(f->x, row, c) - row_of(to, FIRST)[c];
            f->squares[c] += value * value;
        }
    }
    for (uint32_t c = 0; c < f->x->c; c++)
        f->squares[c] = sqrt(f->squares[c] / (double)f->used[FIRST]);
    typical = median_of(f->squares, f->x->c);
    for (uint32_t c = 0; c < f->x->c; c++) {
        double h = f->squares[c];
        h = f->gradient ? 1 / (h + typical / 10) : sqrt(h + typical / 10);
        f->squares[c] = isfinite(h) ? h : 1;
        most = f->squares[c] > most ? f->squares[c] : most;
    }
    for (uint32_t c = 0; c < f->x->c; c++) {
        float weight = most > 0 ? (float)(f->squares[c] / most) : 1;
        row_of(to, WEIGHTS)[c] = weight > LEAST_WEIGHT ? weight : LEAST_WEIGHT;
    }
}

static dw_status check(const dw_tensor *x, const dw_tensor *gradient, dw_why *why)
{
    dw_status status = x ? dw_tensor_check(x) : DW_ERR_ARGUMENT;
    if (!status && gradient) status = dw_tensor_check(gradient);
    if (status || !x->data || (gradient && !gradient->data))
        return dw_say(why, status ? status : DW_ERR_ARGUMENT,
                      "a tensor that a profile is to be fitted to is not valid");
    if (gradient && (gradient->n != x->n || gradient->t != x->t || gradient->c != x->c))
        return dw_say(why, DW_ERR_SHAPE, "the gradient has not the shape of x");
    return DW_OK;
}

dw_status dw_profile_fit(dw_profile **profile, const dw_tensor *x, const dw_tensor *gradient,
                         const dw_allocator *allocator, dw_why *why)
{
    if (!profile) return DW_ERR_ARGUMENT;
    *profile = NULL;
    dw_profile *made;
    dw_status status = check(x, gradient, why);
    if (!status) status = allocate(&made, x->c, ROWS, allocator, why);
    if (status) return status;
    uint64_t rows = (uint64_t)x->n * x->t, count = rows + (ROWS + 1) * (uint64_t)x->c;
    double *memory = dw_mem_allocate(&made->allocator, count * sizeof(double));
    if (!memory) {
        dw_profile_destroy(made);
        return dw_say(why, DW_ERR_NO_MEMORY, "there is no memory to fit a profile");
    }
    memset(memory, 0, count * sizeof *memory);
    fitting f = {.x = x, .gradient = gradient, .rows = rows, .sizes = memory};
    f.squares = f.sizes + rows;
    for (int of = 0; of < ROWS; of++) f.sums[of] = f.squares + (1 + of) * (uint64_t)x->c;
    dw_cpu_mode mode = dw_cpu_enter_exact();
    double median = measure_rows(&f);
    if (!isnan(median)) {
        find_means(&f, median, made);
        find_weights(&f, median, made);
    }
    dw_cpu_leave_exact(mode);
    dw_mem_release(&made->allocator, memory, count * sizeof *memory);
    if (!isnan(median)) return give(profile, made, why);
    dw_profile_destroy(made);
    return dw_say(why, DW_ERR_ARGUMENT, "no row is finite, so there is nothing to fit to");
}
