/* SPDX-License-Identifier: Apache-2.0
 * test_steps.c - what every rank of a grid does in a step, and in which order: the mean of a part's
 * gradients is begun before the next part is computed, and all ranks clip by the same norm.
 *
 * Neither can be told from the results: a mean that is begun late has the same bits, and norms that
 * differ in their last bits give parameters that hardly differ. So the linker puts functions of
 * this file in front of three others, which note that they were called. */
#include <stdatomic.h>

#include "block.h"
#include "deltawire/collective.h"
#include "layout.h"
#include "optimizer.h"
#include "pipeline.h"

enum { LAYERS = 3, TEXT_BYTES = 4000 };

/* What a rank did. events: "b2 " for block 2 of the stage computed backward, "g4 " for the mean of
 * part 4 of the model begun, and "u " where parameters are updated, once a step. */
typedef struct notes {
    char events[TEXT_BYTES];
    size_t len;
    uint32_t steps;
    double norm[STEPS_MAX];
} notes;

static notes all_notes[RANKS_MAX];
static atomic_uint n_notes;
static _Thread_local notes *own;

static notes *own_notes(void)
{
    if (!own) own = &all_notes[atomic_fetch_add(&n_notes, 1) % RANKS_MAX];
    return own;
}

static void note(char what, unsigned number)
{
    notes *to = own_notes();
    int len = snprintf(to->events + to->len, TEXT_BYTES - to->len, "%c%u ", what, number);
    if (to->len + (size_t)len < TEXT_BYTES) to->len += (size_t)len;
}

void __real_dw_block_backward(dw_part *part, const dw_model_shape *shape,
                              const dw_block_memory *memory, const dw_slices *slices, uint32_t i,
                              const dw_block_scratch *scratch, uint32_t index, float *d);
void __wrap_dw_block_backward(dw_part *part, const dw_model_shape *shape,
                              const dw_block_memory *memory, const dw_slices *slices, uint32_t i,
                              const dw_block_scratch *scratch, uint32_t index, float *d);
void __wrap_dw_block_backward(dw_part *part, const dw_model_shape *shape,
                              const dw_block_memory *memory, const dw_slices *slices, uint32_t i,
                              const dw_block_scratch *scratch, uint32_t index, float *d)
{
    __real_dw_block_backward(part, shape, memory, slices, i, scratch, index, d);
    note('b', index);
}

dw_status __real_dw_group_start(dw_group *group, const dw_group_job *job);
dw_status __wrap_dw_group_start(dw_group *group, const dw_group_job *job);
dw_status __wrap_dw_group_start(dw_group *group, const dw_group_job *job)
{
    note('g', (unsigned)job->slot);
    return __real_dw_group_start(group, job);
}

void __real_dw_optimizer_update(const dw_optimizer *optimizer, dw_part *part, uint32_t step,
                                double norm);
void __wrap_dw_optimizer_update(const dw_optimizer *optimizer, dw_part *part, uint32_t step,
                                double norm);
void __wrap_dw_optimizer_update(const dw_optimizer *optimizer, dw_part *part, uint32_t step,
                                double norm)
{
    notes *to = own_notes();
    if (step == to->steps) {
        note('u', step);
        to->norm[to->steps++] = norm;
    } else if (memcmp(&to->norm[step], &norm, sizeof norm) != 0) {
        note('?', step); /* its parts were clipped by different norms */
    }
    __real_dw_optimizer_update(optimizer, part, step, norm);
}

/* Two replicas, one epoch of 4 steps, in which gradients are clipped. */
static void run_grid(pipeline *run, uint32_t stages)
{
    memset(all_notes, 0, sizeof all_notes);
    atomic_store(&n_notes, 0);
    run->config.replicas = 2;
    run->config.samples = 72;
    run->config.epochs = 1;
    run_whole(run, stages);
    assert_int_equal(run->steps, 4);
    assert_int_equal(atomic_load(&n_notes), run->n_ranks);
}

/* ---- Gradients ------------------------------------------------------------------------------- */

static void append(char text[TEXT_BYTES], char what, uint32_t number)
{
    size_t len = strlen(text);
    snprintf(text + len, TEXT_BYTES - len, "%c%u ", what, number);
}

/* What a rank of this stage must do. In the last slice of the last micro-batch the gradients of one
 * part after the other are complete, from the last part to the first. */
static void expect_events(const pipeline *run, uint32_t stage, char text[TEXT_BYTES])
{
    const dw_model_shape shape = {.layers = LAYERS};
    uint32_t first, n, parts = run->config.micro_batches * run->config.slices;
    dw_stage_parts(&shape, stage, run->stages, &first, &n);
    bool has_embed = stage == 0, has_head = stage + 1 == run->stages;
    *text = '\0';
    for (uint32_t step = 0; step < run->steps; step++) {
        for (uint32_t done = 1; done <= parts; done++) {
            if (has_head && done == parts) append(text, 'g', first + n - 1);
            for (uint32_t b = n - has_embed - has_head; b-- > 0;) {
                append(text, 'b', b);
                if (done == parts) append(text, 'g', first + has_embed + b);
            }
            if (has_embed && done == parts) append(text, 'g', first);
        }
        append(text, 'u', step);
    }
}

TEST(means_begin_as_soon_as_gradients_are_complete)
{
    static char expected[TEXT_BYTES];
    for (uint32_t stages = 1; stages <= 3; stages++) {
        pipeline run = a_run();
        run.config.slices = stages == 2 ? 2 : 1;
        run.config.schedule = stages == 3 ? "1f1b" : NULL;
        assert_int_equal(run.config.layers, LAYERS);
        run_grid(&run, stages);
        for (uint32_t stage = 0; stage < stages; stage++) {
            uint32_t found = 0;
            expect_events(&run, stage, expected);
            for (uint32_t i = 0; i < run.n_ranks; i++)
                found += strcmp(all_notes[i].events, expected) == 0;
            if (found == run.config.replicas) continue;
            for (uint32_t i = 0; i < run.n_ranks; i++) print_error("%s\n", all_notes[i].events);
            fail_msg("%u of %u ranks of stage %u did this: %s", found, run.config.replicas, stage,
                     expected);
        }
    }
}

/* ---- Norms ----------------------------------------------------------------------------------- */

TEST(all_ranks_clip_by_the_same_norm)
{
    static const char *const codecs[] = {"raw:f32", "direct:bits=3", "direct:bits=4,feedback=ef"};
    for (uint32_t stages = 1; stages <= 3; stages++) {
        pipeline run = a_run();
        run.config.slices = 1;
        run.config.gradient = codecs[stages - 1];
        run_grid(&run, stages);
        assert_true(run.norm[0] > 1); /* so it is clipped, by default to 1 */
        for (uint32_t i = 0; i < run.n_ranks; i++) {
            assert_int_equal(all_notes[i].steps, run.steps);
            assert_null(strchr(all_notes[i].events, '?'));
            for (uint32_t step = 0; step < run.steps; step++)
                if (memcmp(&all_notes[i].norm[step], &run.norm[step], sizeof(double)) != 0)
                    fail_msg("step %u: a rank clips by %.17g, and rank 0 reports %.17g", step + 1,
                             all_notes[i].norm[step], run.norm[step]);
        }
    }
}

RUN_TESTS(pipeline_set_up, pipeline_tear_down)
