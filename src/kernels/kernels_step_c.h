/* SPDX-License-Identifier: Apache-2.0
 * kernels_step_c.h - the kernels of the form step in plain C: the specification that all other
 * tables must match.
 *
 * Included by kernels_c.c after its helpers. */

/* How many elements are worked on at a time: a multiple of DW_NORM_LANES. */
enum { STEP_PART = 256 };

/* Widens elements [at, at + n) of x and of the base. */
static void step_load(const void *from, dw_dtype dtype, uint64_t at, uint64_t n, float *to)
{
    if (from)
        widen(element(from, dtype, at), dtype, n, to);
    else
        memset(to, 0, n * sizeof *to);
}

static uint64_t step_squares_c(const void *x, dw_dtype x_dtype, const void *prev,
                               dw_dtype prev_dtype, uint64_t n, uint32_t limit,
                               double lanes[DW_NORM_LANES], uint32_t *largest)
{
    float delta[STEP_PART], base[STEP_PART];
    uint64_t left_out = 0;
    for (uint64_t at = 0; at < n; at += STEP_PART) {
        uint64_t now = n - at < STEP_PART ? n - at : STEP_PART;
        step_load(x, x_dtype, at, now, delta);
        step_load(prev, prev_dtype, at, now, base);
        subtract(delta, base, now, delta);
        for (uint64_t i = 0; i < now; i++) {
            uint32_t magnitude = dw_bits_of(delta[i]) & 0x7fffffffu;
            if (magnitude > limit) {
                left_out++;
                continue;
            }
            *largest = magnitude > *largest ? magnitude : *largest;
            lanes[i % DW_NORM_LANES] += (double)delta[i] * delta[i];
        }
    }
    dw_step_unify_nan(lanes, largest);
    return left_out;
}

/* The dithers of elements [at, at + n) of a run; all 0 where `dithered` is not set. */
static void step_dithers(const dw_step_run *run, uint64_t at, uint64_t n, bool dithered, float *z)
{
    uint16_t parts[STEP_PART];
    memset(z, 0, n * sizeof *z);
    if (!dithered) return;
    fill_dither(&run->dither, run->dither.element + at, n, (uint32_t)n, parts);
    for (uint64_t i = 0; i < n; i++) z[i] = dw_dither_of(parts[i]);
}

/* Writes the high bytes of the random numbers of n elements. */
static void dither_bytes_c(const dw_dither *dither, uint64_t n, uint8_t *to)
{
    uint16_t parts[STEP_PART];
    for (uint64_t at = 0; at < n; at += STEP_PART) {
        uint64_t now = n - at < STEP_PART ? n - at : STEP_PART;
        fill_dither(dither, dither->element + at, now, (uint32_t)now, parts);
        for (uint64_t i = 0; i < now; i++) to[at + i] = (uint8_t)(parts[i] >> 8);
    }
}

/* Computes the new values of elements [at, at + n) from their codes, as both ends do. z: what the
 * decoder subtracts. */
static void step_reconstruct(const dw_step_run *run, uint64_t at, uint64_t n, const float *base,
                             const float *z, void *to, dw_dtype dtype)
{
    float out[STEP_PART], step = dw_bf16_widen(run->scale);
    for (uint64_t i = 0; i < n; i++)
        out[i] = base[i] + dw_step_value(run->codes[at + i] - DW_STEP_ZERO, z[i], step);
    narrow(out, n, (void *)(uintptr_t)element(to, dtype, at), dtype);
}

static void step_encode_part(dw_step_run *run, uint64_t at, uint64_t n)
{
    float delta[STEP_PART], base[STEP_PART], z[STEP_PART];
    float inverse = dw_step_inverse(run->scale);
    step_load(run->x, run->x_dtype, at, n, delta);
    step_load(run->prev, run->prev_dtype, at, n, base);
    subtract(delta, base, n, delta);
    step_dithers(run, at, n, run->rounding != DW_ROUNDING_NEAREST, z);
    for (uint64_t i = 0; i < n; i++) {
        float scaled = dw_step_scaled(delta[i], inverse, z[i]);
        if (run->rounding == DW_ROUNDING_NEAREST) scaled = dw_step_zoned(scaled, run->zone);
        run->codes[at + i] = (uint8_t)(dw_step_level(scaled) + DW_STEP_ZERO);
        run->escapes += dw_step_escapes(scaled) != 0;
    }
    if (!run->next) return;
    if (run->rounding != DW_ROUNDING_DITHER) memset(z, 0, n * sizeof *z);
    step_reconstruct(run, at, n, base, z, run->next, run->prev_dtype);
}

static void step_encode_c(dw_step_run *run)
{
    for (uint64_t at = 0; at < run->n; at += STEP_PART)
        step_encode_part(run, at, run->n - at < STEP_PART ? run->n - at : STEP_PART);
    memset(run->codes + run->n, DW_STEP_ZERO, run->stored - run->n);
}

static void step_decode_c(const dw_step_run *run)
{
    float base[STEP_PART], z[STEP_PART];
    for (uint64_t at = 0; at < run->n; at += STEP_PART) {
        uint64_t n = run->n - at < STEP_PART ? run->n - at : STEP_PART;
        step_load(run->prev, run->prev_dtype, at, n, base);
        step_dithers(run, at, n, run->rounding == DW_ROUNDING_DITHER, z);
        step_reconstruct(run, at, n, base, z, run->out, run->x_dtype);
    }
}
