/* SPDX-License-Identifier: Apache-2.0
 * kernels_trellis_c.h - the kernels of trellis-coded quantization in plain C: the specification
 * that all other tables must match.
 *
 * Included by kernels_c.c. */

/* Of the two states from which a state can be reached, `lower` is the lower one and lower + 1 the
 * other. The index of the level in between is odd if just one of these is true: the state is 2 or
 * 3; it is reached from the higher one. */
static uint32_t trellis_lower(uint32_t state)
{
    return (state & 1) << 1;
}

/* Extends the best sequence to each state by one value. costs: what these sequences cost. Returns a
 * set of states: those that are reached from the higher of their two states. */
static uint8_t trellis_extend(float magnitude, float zero_costs, float costs[DW_TRELLIS_STATES])
{
    float longer[DW_TRELLIS_STATES];
    uint32_t higher = 0;
    for (uint32_t state = 0; state < DW_TRELLIS_STATES; state++) {
        uint32_t lower = trellis_lower(state), kind = lower >> 1, odd = state >> 1;
        float from_lower = costs[lower] + dw_trellis_cost(magnitude, kind, odd, zero_costs),
              from_higher =
                  costs[lower + 1] + dw_trellis_cost(magnitude, kind, odd ^ 1, zero_costs);
        bool is_higher = from_higher < from_lower;
        longer[state] = is_higher ? from_higher : from_lower;
        higher |= (uint32_t)is_higher << state;
    }
    memcpy(costs, longer, sizeof longer);
    return (uint8_t)higher;
}

static void trellis_encode_lane(dw_trellis_run *run, uint32_t lane)
{
    float costs[DW_TRELLIS_STATES];
    uint8_t higher[DW_TRELLIS_ROWS];
    uint32_t best = 0;
    for (uint32_t s = 0; s < DW_TRELLIS_STATES; s++)
        costs[s] = s == run->states[lane] ? 0 : dw_float_of(DW_F32_INFINITY);
    for (uint32_t row = 0; row < run->rows; row++) {
        float scaled = run->scaled[row * DW_TRELLIS_LANES + lane] * run->shrink;
        run->clamped += dw_trellis_is_limited(scaled) != 0;
        higher[row] = trellis_extend(dw_trellis_magnitude(scaled), run->zero_costs, costs);
    }
    for (uint32_t s = 1; s < DW_TRELLIS_STATES; s++) best = costs[s] < costs[best] ? s : best;
    run->states[lane] = (uint8_t)best;
    for (uint32_t row = run->rows; row-- > 0;) {
        float scaled = run->scaled[row * DW_TRELLIS_LANES + lane] * run->shrink;
        uint32_t is_higher = higher[row] >> best & 1, odd = is_higher ^ best >> 1;
        best = trellis_lower(best) + is_higher;
        int32_t level = (int32_t)dw_trellis_level(dw_trellis_magnitude(scaled), best >> 1, odd);
        run->codes[row * DW_TRELLIS_LANES + lane] =
            (uint8_t)(DW_TRELLIS_ZERO + (dw_bits_of(scaled) >> 31 ? -level : level));
    }
}

static void trellis_encode_c(dw_trellis_run *run)
{
    for (uint32_t lane = 0; lane < DW_TRELLIS_LANES; lane++) trellis_encode_lane(run, lane);
}

static void trellis_marks_c(const uint8_t *codes, uint64_t n, uint8_t *states, uint8_t *marks)
{
    for (uint64_t i = 0; i < n; i++) {
        uint8_t *state = &states[i % DW_TRELLIS_LANES];
        marks[i] = dw_trellis_mark(codes[i], (uint32_t)*state >> 1);
        *state = (uint8_t)dw_trellis_next(*state, dw_trellis_mark_is_odd(marks[i]));
    }
}
