/* SPDX-License-Identifier: Apache-2.0
 * choice.c - the decision which config to send the next frame with. */
#include "channel/choice.h"

#include "base/forecast.h"

enum { USUAL_MICRO_BATCHES = 4 };

/* The weight of the latest number in a mean of all. */
static const double of_frames = 1.0 / 8;

/* A pause of the caller is computing, or waiting for the other end; the shortest ones are computing
 * alone. So the mean falls quickly and rises slowly, and one long pause hardly moves it. */
static const double of_shorter = 1.0 / 2, of_longer = 1.0 / 32, longest = 4, least_s = 1e-4;

/* In bytes per second. Links that are faster cannot be told from infinitely fast ones. */
static const double most_rate = 1e10;

/* The way back to better quality must promise steps as long as now, nearly: a part of the tie, so
 * that small changes in what is measured do not undo the choice. */
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

/* Of an empty message. Only a busy link or a busy machine makes it longer, so the shortest of the
 * last ones counts. Not all: the two clocks drift apart. */
static double shortest_travel(const dw_choice *choice)
{
    double shortest = choice->travel_s[0];
    for (uint32_t i = 1; i < choice->travels && i < DW_CHOICE_TRAVELS; i++)
        if (choice->travel_s[i] < shortest) shortest = choice->travel_s[i];
    return shortest;
}

void dw_choice_delivered(dw_choice *choice, uint32_t candidate, const dw_choice_delivery *delivery)
{
    dw_choice_candidate *c = &choice->candidates[candidate];
    c->window[c->deliveries++ % DW_CHOICE_WINDOW] = *delivery;
}

/* Returns the largest of n numbers but for a quarter of them; 0 if n is 0. */
static double upper_quartile(const double *numbers, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t above = 0;
        for (uint32_t k = 0; k < n; k++)
            above += numbers[k] > numbers[i] || (numbers[k] == numbers[i] && k < i);
        if (above == n / 4) return numbers[i];
    }
    return 0;
}

/* What a frame took longer than an empty message is the time for its bytes, and the time for which
 * it waited for earlier frames. The link cannot have been busy with it before the frame in front of
 * it had arrived. Frames that queued up are added: those that were held up behind a lost packet
 * arrive together, and each of these alone would look infinitely fast. Of lone frames the fastest
 * count, because whatever else delays one makes the link look slower than it is; but not the very
 * fastest, which may only have been compared with slow empty messages. */
static double rate_of(const dw_choice *choice, const dw_choice_candidate *c)
{
    double lone[DW_CHOICE_WINDOW], bytes = 0, seconds = 0;
    uint32_t n = c->deliveries < DW_CHOICE_WINDOW ? c->deliveries : DW_CHOICE_WINDOW, n_lone = 0;
    if (n < DW_CHOICE_DELIVERIES || choice->travels == 0) return 0;
    double shortest = shortest_travel(choice);
    for (uint32_t i = 0; i < n; i++) {
        const dw_choice_delivery *d = &c->window[i];
        double longer = d->travel_s - shortest, least = d->bytes / most_rate;
        if (longer <= d->since_last_s) {
            lone[n_lone++] = d->bytes / dw_forecast_larger(longer, least);
        } else {
            bytes += d->bytes;
            seconds += dw_forecast_larger(d->since_last_s, least);
        }
    }
    double fastest = upper_quartile(lone, n_lone);
    return seconds > 0 ? dw_forecast_larger(fastest, bytes / seconds) : fastest;
}

/* What takes the same time for every frame, such as threads that wake up, makes a link look slower
 * with small frames than with large ones. So larger frames than now are carried at least as fast as
 * those of now, and smaller ones at most as fast. What was measured with a candidate earlier counts
 * as far as this allows. Otherwise small frames would make a link look slow, and lead to still
 * smaller ones. */
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

/* A link between two stages that sends in this direction only: whatever goes the other way is the
 * same for all candidates. Decoding is taken to last as long as encoding. */
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
        if (best > now) /* for speed alone, which must be worth it */
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
    choice->candidates[candidate].deliveries = 0; /* those of then are old */
}
