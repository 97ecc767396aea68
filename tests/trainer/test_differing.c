/* SPDX-License-Identifier: Apache-2.0
 * test_differing.c - ranks that resume with different states at both ends of a boundary compare
 * them, say what they drop, and can be stopped meanwhile. */
#include <stdatomic.h>
#include <unistd.h>

#include "channel/channel.h"
#include "channel/saved.h"
#include "closed_channels.h"
#include "pipeline.h"

/* Which end the next export loses a key of, as if it had been lost before. */
enum { NONE, OF_DECODER, OF_ENCODER };
static atomic_int leaves_out;

typedef struct visitor {
    dw_saved_visit *visit;
    void *context;
    bool has_left_out;
} visitor;

static dw_status visit_others(void *context, dw_key key, const void *saved, size_t len)
{
    visitor *v = context;
    bool leave_out = !v->has_left_out && key.sample == 3;
    v->has_left_out |= leave_out;
    return leave_out ? DW_OK : v->visit(v->context, key, saved, len);
}

dw_status __real_dw_channel_export(dw_channel *channel, int is_sent, dw_saved_visit *visit,
                                   void *context);
dw_status __wrap_dw_channel_export(dw_channel *channel, int is_sent, dw_saved_visit *visit,
                                   void *context);
dw_status __wrap_dw_channel_export(dw_channel *channel, int is_sent, dw_saved_visit *visit,
                                   void *context)
{
    visitor v = {.visit = visit, .context = context};
    int asked = is_sent ? OF_ENCODER : OF_DECODER;
    if (!atomic_compare_exchange_strong(&leaves_out, &asked, NONE))
        return __real_dw_channel_export(channel, is_sent, visit, context);
    return __real_dw_channel_export(channel, is_sent, visit_others, &v);
}

/* Comparisons of both ends. Even boundaries are compared first, or one after the other.
 * first_stops: rank 0 is asked to stop while rank 1 does not compare yet. second_fails: rank 1 does
 * not compare. */
static atomic_int compared, even_after_odd, has_begun, has_ended;
static bool second_fails;
static rank *first_stops;

static void await(const atomic_int *flag)
{
    for (int looks = 0; looks < 5000 && !atomic_load(flag); looks++) usleep(1000);
}

dw_status __real_dw_channel_compare(dw_channel *channel, int timeout_ms, dw_compare_look *look,
                                    void *context);
dw_status __wrap_dw_channel_compare(dw_channel *channel, int timeout_ms, dw_compare_look *look,
                                    void *context);
dw_status __wrap_dw_channel_compare(dw_channel *channel, int timeout_ms, dw_compare_look *look,
                                    void *context)
{
    static _Thread_local uint32_t last; /* of this rank */
    uint32_t boundary = channel->port.id / 4;
    bool is_first = channel->port.link->settings.listens;
    if (last % 2 && boundary % 2 == 0) atomic_store(&even_after_odd, 1);
    last = boundary;
    atomic_fetch_add(&compared, 1);
    if (is_first) atomic_store(&has_begun, 1);
    if (!is_first && first_stops) {
        await(&has_begun);
        __atomic_store_n(&first_stops->stop, 1, __ATOMIC_RELAXED);
        await(&has_ended);
        if (!atomic_load(&has_ended)) return DW_ERR_TIMEOUT;
    }
    if (!is_first && second_fails) return DW_ERR_NO_MEMORY;
    dw_status status = __real_dw_channel_compare(channel, timeout_ms, look, context);
    if (is_first) atomic_store(&has_ended, 1);
    return status;
}

/* Saves after step 5, in which a sample comes for the second time, and ends; the next run resumes.
 */
static pipeline begin_saved(const char *forward, const char *backward, uint32_t stages)
{
    pipeline run = a_coded_run(forward, backward);
    run.config.layers = stages;
    run_until_saved(&run, stages, 5);
    return run;
}

/* The two ends of a boundary differ, as where a copy in a file was lost at one of them: of one key.
 * All others go on. */
TEST_WITH(keys_that_differ_begin_anew, pipeline_set_up, pipeline_tear_down)
{
    for (int i = 0; i < 4; i++) {
        leaves_out = i & 2 ? OF_ENCODER : OF_DECODER;
        pipeline run =
            i & 1 ? begin_saved("delta:bits=3,replies=never", "delta:bits=4,replies=never", 2)
                  : begin_saved("delta:bits=3", "delta:bits=4", 2);
        key_entries = delta_entries = 0;
        run_whole(&run, 2);
        assert_int_equal(run.unused, 1);
        assert_non_null(strstr(run.unused_why, "what is kept of 1 keys is not used"));
        assert_int_equal(key_entries, 1);
        assert_true(delta_entries > 0);
    }
}

TEST_WITH(even_boundaries_are_compared_first, pipeline_set_up, pipeline_tear_down)
{
    pipeline run = begin_saved("delta:bits=3", "delta:bits=4", 4);
    compared = 0;
    run_whole(&run, 4);
    assert_int_equal(compared, 2 * 3);
    assert_int_equal(even_after_odd, 0);
}

TEST_WITH(a_comparison_ends_when_a_rank_does, pipeline_set_up, pipeline_tear_down)
{
    for (int i = 0; i < 2; i++) {
        pipeline run = begin_saved("delta:bits=3", "delta:bits=4", 2);
        has_begun = has_ended = 0;
        second_fails = i;
        first_stops = i ? NULL : &run.ranks[0];
        run_pipeline(&run, 2, NULL);
        first_stops = NULL;
        second_fails = false;
        assert_all(&run, i ? DW_ERR_NO_MEMORY : DW_ERR_CANCELLED);
        assert_string_equal(run.ranks[0].why.text, run.ranks[1].why.text);
    }
}

static void look_at_limit(dw_stage *stage, rank *r)
{
    const dw_neighbour *neighbour = r->index ? &stage->before : &stage->after;
    uint64_t keys = (uint64_t)(r->config.samples + r->config.held_out) * r->config.slices;
    if (neighbour->link->settings.max_message_bytes < 9 * keys) r->status = DW_ERR_LIMIT;
}

/* All of them may differ. */
TEST_WITH(a_list_of_all_keys_fits_into_a_message, pipeline_set_up, pipeline_tear_down)
{
    pipeline run = a_run();
    run.config.samples = 1000000;
    run.config.held_out = 200000;
    run.config.slices = 2;
    run_at_stages(&run, 2, look_at_limit);
    assert_all(&run, DW_OK);
}

RUN_TESTS(NULL, NULL)
