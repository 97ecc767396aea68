/* SPDX-License-Identifier: Apache-2.0
 * choice.c - decides which config is used for the next frame. */
#include "channel/choice.h"

#include "base/forecast.h"

enum { USUAL_MICRO_BATCHES = 4 };

/* The mean size and encoding time of frames are exponential moving averages; this is the weight of
 * the latest frame. */
static const double of_frames = 1.0 / 8;

/* Between two frames the program computes, and sometimes also waits for the other end. The shortest
 * of these times contain only computing. So their mean falls quickly (of_shorter is the weight of a
 * time below the mean) and rises slowly (of_longer). One long wait hardly changes the mean, because
 * a time counts as at most `longest` times the mean, or as least_s if that is more. */
static const double of_shorter = 1.0 / 2, of_longer = 1.0 / 32, longest = 4, least_s = 1e-4;

/* An upper limit for computed rates, in bytes per second. Above it the measured times are too short
 * to distinguish one rate from another. */
static const double most_rate = 1e10;

/* A change to a candidate of better quality is made only if its step is predicted to last at most
 * this fraction longer than now. The fraction is smaller than DW_FORECAST_TIE, so that small
 * changes in the measurements do not make the choice alternate. */
static const double way_back = DW_FORECAST_TIE / 3;

void dw_choice_begin(dw_choice *choice, uint32_t n, uint32_t micro_batches, double compute_s)
{
    *choice = (dw_choice){.n = n,
                          .micro_batches = micro_batches ? micro_batches : USUAL_MICRO_BATCHES,
                          .compute_is_given = compute_s > 0,
                          .compute_s = compute_s > 0 ? compute_s : -1,
                          .frames = DW_CHOICE_CALM * DW_CHOICE_PAUSE,
                          .pause = DW_CHOICE_PAUSE};
}

void dw_choice_computed(dw_choice *choice, double seconds)
{
    double mean = choice->compute_s;
    if (choice->compute_is_given) return;
    if (mean < 0) {
        choice->compute_s = seconds;
        return;
    }
    double most = dw_forecast_larger(longest * mean, least_s);
    if (seconds > most) seconds = most;
    choice->compute_s += (seconds - mean) * (seconds < mean ? of_shorter : of_longer);
}

void dw_choice_guess(dw_choice *choice, uint32_t candidate, double elements, double bytes,
                     double encode_s)
{
    dw_choice_candidate *c = &choice->candidates[candidate];
    c->is_known = true;
    c->bytes = bytes / elements;
    c->encode_s = encode_s / elements;
}

void dw_choice_made(dw_choice *choice, uint32_t candidate, double elements, double bytes,
                    double encode_s, bool is_usual)
{
    dw_choice_candidate *c = &choice->candidates[candidate];
    choice->frames++;
    if (!is_usual) return;
    double weight = c->is_measured ? of_frames : 1;
    c->is_known = c->is_measured = true;
    c->bytes += (bytes / elements - c->bytes) * weight;
    c->encode_s += (encode_s / elements - c->encode_s) * weight;
}

void dw_choice_travelled(dw_choice *choice, double travel_s)
{
    choice->travel_s[choice->travels++ % DW_CHOICE_TRAVELS] = travel_s;
}

/* Returns the number of the latest empty messages whose travel times are known. */
static uint32_t known_travels(const dw_choice *choice)
{
    return choice->travels < DW_CHOICE_TRAVELS ? choice->travels : DW_CHOICE_TRAVELS;
}

/* Returns the shortest travel time of the latest empty messages. A busy link or a busy machine can
 * only lengthen a travel time, so the shortest one is the most accurate. Older messages are
 * ignored, because the clocks of the two ends drift apart. */
static double shortest_travel(const dw_choice *choice)
{
    double shortest = choice->travel_s[0];
    for (uint32_t i = 1; i < known_travels(choice); i++)
        if (choice->travel_s[i] < shortest) shortest = choice->travel_s[i];
    return shortest;
}

void dw_choice_delivered(dw_choice *choice, uint32_t candidate, const dw_choice_delivery *delivery)
{
    dw_choice_candidate *c = &choice->candidates[candidate];
    c->window[c->deliveries++ % DW_CHOICE_WINDOW] = *delivery;
}

/* Returns the one of n numbers that exactly `n_above` of them exceed; of equal numbers, the earlier
 * ones count as larger. Returns 0 if n is 0. */
static double exceeded_by(uint32_t n_above, const double *numbers, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t above = 0;
        for (uint32_t k = 0; k < n; k++)
            above += numbers[k] > numbers[i] || (numbers[k] == numbers[i] && k < i);
        if (above == n_above) return numbers[i];
    }
    return 0;
}

/* Returns the upper quartile of n numbers: the one that is exceeded by a quarter of them, rounded
 * down. Returns 0 if n is 0. */
static double upper_quartile(const double *numbers, uint32_t n)
{
    return exceeded_by(n / 4, numbers, n);
}

/* Returns the uncertainty of `shortest`, the shortest travel time of empty messages: the median of
 * these times minus the shortest, or more. A frame cannot travel faster than an empty message. So
 * if a frame of candidate c took less than `shortest`, the result is at least the difference. */
static double scatter_of(const dw_choice *choice, const dw_choice_candidate *c, uint32_t deliveries,
                         double shortest)
{
    uint32_t n = known_travels(choice);
    double scatter = exceeded_by(n / 2, choice->travel_s, n) - shortest;
    for (uint32_t i = 0; i < deliveries; i++)
        scatter = dw_forecast_larger(scatter, shortest - c->window[i].travel_s);
    return scatter;
}

/* Returns the rate of the link that the latest frames of candidate c show, in bytes per second; 0
 * if too few have arrived.
 *
 * A frame travels longer than an empty message, by the time that the link needs for its bytes and
 * the time for which the frame waits behind earlier frames. If this excess is at most the time
 * since the arrival of the previous frame, the frame did not wait (it is a "lone" frame), and the
 * link was busy with it for the whole excess. Otherwise the frame waited in a queue, and the link
 * was busy with it only since the arrival of the previous frame.
 *
 * The bytes and the times of queued frames are summed before they are divided: frames that were
 * held up behind a lost packet arrive at the same time, so most of them alone would appear
 * infinitely fast. Of lone frames the upper quartile of the rates counts, because other delays can
 * only make the link appear slower than it is. The very highest rates are ignored, because they may
 * result from empty messages that travelled slowly. For the same reason, an excess of a lone frame
 * that is smaller than the result of scatter_of is raised to it: it is within the measurement
 * error, and would make a small frame appear arbitrarily fast. The rate of queued frames or the
 * rate of lone frames is returned, whichever is higher. */
static double rate_of(const dw_choice *choice, const dw_choice_candidate *c)
{
    double lone[DW_CHOICE_WINDOW], bytes = 0, seconds = 0;
    uint32_t n = c->deliveries < DW_CHOICE_WINDOW ? c->deliveries : DW_CHOICE_WINDOW, n_lone = 0;
    if (n < DW_CHOICE_DELIVERIES || choice->travels == 0) return 0;
    double shortest = shortest_travel(choice), scatter = scatter_of(choice, c, n, shortest);
    for (uint32_t i = 0; i < n; i++) {
        const dw_choice_delivery *d = &c->window[i];
        double longer = d->travel_s - shortest, least = d->bytes / most_rate;
        if (longer <= d->since_last_s) {
            longer = dw_forecast_larger(longer, scatter);
            lone[n_lone++] = d->bytes / dw_forecast_larger(longer, least);
        } else {
            bytes += d->bytes;
            seconds += dw_forecast_larger(d->since_last_s, least);
        }
    }
    double fastest = upper_quartile(lone, n_lone);
    return seconds > 0 ? dw_forecast_larger(fastest, bytes / seconds) : fastest;
}

/* Some delays are the same for every frame, such as the time until a thread wakes up. They make the
 * link appear slower for small frames than for large ones. Without a correction, small frames would
 * make the link appear slow, which would lead to a candidate with even smaller frames. So a
 * candidate with larger frames than the one in use is assumed to get at least the rate of the one
 * in use, and a candidate with smaller frames at most that rate. The rate that was measured with a
 * candidate earlier is used if it agrees with this; otherwise the rate of the candidate in use is
 * returned. */
double dw_choice_rate(const dw_choice *choice, uint32_t candidate)
{
    const dw_choice_candidate *c = &choice->candidates[candidate],
                              *now = &choice->candidates[choice->now];
    double own = rate_of(choice, c), rate = rate_of(choice, now);
    bool is_larger = c->bytes > now->bytes;
    return own > 0 && (own > rate) == is_larger ? own : rate;
}

bool dw_choice_is_due(const dw_choice *choice)
{
    return choice->candidates[choice->now].deliveries >= DW_CHOICE_DELIVERIES &&
           choice->travels > 0 && choice->frames >= choice->pause && choice->compute_s >= 0;
}

/* Returns the predicted seconds of a training step with this candidate. The model has two stages
 * and a link that carries frames in this direction only, because the traffic in the other direction
 * is the same for all candidates. Decoding is assumed to take as long as encoding. */
static double step_of(const dw_choice *choice, uint32_t candidate, double elements)
{
    const dw_choice_candidate *c = &choice->candidates[candidate];
    double rate = dw_choice_rate(choice, candidate);
    dw_forecast_run run = {.stages = 2,
                           .micro_batches = choice->micro_batches,
                           .compute_s = choice->compute_s * choice->micro_batches,
                           .rate = {rate, rate}};
    double encode_s = c->encode_s * elements;
    dw_forecast_way ways[DW_FORECAST_WAYS] = {
        {.bytes = c->bytes * elements, .encode_s = encode_s, .decode_s = encode_s}};
    return dw_forecast_step(&run, ways);
}

uint32_t dw_choice_best(const dw_choice *choice, double elements, double step_s[DW_CHOICE_MOST])
{
    uint32_t now = choice->now;
    dw_forecast_choice choices[DW_CHOICE_MOST];
    if (!dw_choice_is_due(choice) || !choice->candidates[now].is_known) return now;
    for (uint32_t i = 0; i < choice->n; i++) {
        const dw_choice_candidate *c = &choice->candidates[i];
        step_s[i] = c->is_known ? step_of(choice, i, elements) : 0;
        choices[i] =
            (dw_forecast_choice){.step_s = step_s[i], .error = i, .is_taken = !c->is_known};
    }
    for (;;) {
        size_t best = dw_forecast_best(choices, choice->n);
        if (best == choice->n || best == now) return now;
        if (best > now) /* its quality is worse, so its step must be noticeably shorter */
            return step_s[best] <= step_s[now] / (1 + DW_FORECAST_TIE) ? (uint32_t)best : now;
        if (step_s[best] <= step_s[now] * (1 + way_back)) return (uint32_t)best;
        choices[best].is_taken = true;
    }
}

void dw_choice_change(dw_choice *choice, uint32_t candidate)
{
    bool is_calm = choice->frames >= DW_CHOICE_CALM * choice->pause;
    if (is_calm)
        choice->pause = DW_CHOICE_PAUSE;
    else if (choice->pause < DW_CHOICE_PAUSE_MOST)
        choice->pause *= 2;
    choice->now = candidate;
    choice->frames = 0;
    choice->candidates[candidate].deliveries = 0; /* earlier ones are out of date */
}
