/* SPDX-License-Identifier: Apache-2.0
 * test_same_places.c - gradients that go back through the elements whose activations were sent:
 * with all elements a run is that without the setting, with some of them a run does not depend on
 * the schedule, and the places of one piece are not those of another. */
#include "pipeline.h"

static pipeline a_sparse_run(const char *forward)
{
    pipeline run = a_run();
    run.config.same_places = 1;
    run.config.forward = forward;
    return run;
}

/* topk:keep=1 sends the floats themselves. */
static void same_places_with_all_elements_changes_nothing(void **state)
{
    (void)state;
    pipeline plain = a_run();
    plain.config.forward = plain.config.backward = "raw:f32";
    run_pipeline(&plain, 1, NULL);
    assert_all(&plain, DW_OK);
    for (uint32_t stages = 2; stages <= 3; stages++) {
        pipeline run = a_sparse_run("topk:keep=1");
        run.config.backward = "raw:f32";
        run.config.slices = stages - 1;
        plain.config.slices = run.config.slices;
        run_pipeline(&plain, 1, NULL);
        run_pipeline(&run, stages, NULL);
        assert_all(&run, DW_OK);
        assert_same_run(&plain, &run);
    }
}

static void same_places_bits_do_not_depend_on_the_schedule(void **state)
{
    static const char *const configs[] = {"topk:keep=0.2", "randk:keep=0.2,incarnation=5",
                                          "chunk:keep=0.2,chunk=512", "topk:keep=0.2"};
    (void)state;
    for (int i = 0; i < 4; i++) {
        pipeline gpipe = a_sparse_run(configs[i]), one_by_one;
        gpipe.config.backward = "direct:bits=8";
        gpipe.config.slices = i == 3 ? 5 : 1; /* not all of them are of one length */
        one_by_one = gpipe;
        one_by_one.config.schedule = "1f1b";
        run_pipeline(&gpipe, 3, NULL);
        run_pipeline(&one_by_one, 3, NULL);
        assert_all(&gpipe, DW_OK);
        assert_all(&one_by_one, DW_OK);
        assert_same_run(&gpipe, &one_by_one);
        assert_true(gpipe.loss[gpipe.steps - 1] < gpipe.loss[0]);
    }
}

static void same_places_gradients_carry_no_places(void **state)
{
    (void)state;
    pipeline same = a_sparse_run("topk:keep=0.25,bits=8"), apart = same, dense = same;
    same.config.backward = "direct:bits=8";
    apart.config.same_places = dense.config.same_places = 0;
    apart.config.backward = "topk:keep=0.25,bits=8";
    dense.config.backward = "direct:bits=8";
    run_pipeline(&same, 2, NULL);
    run_pipeline(&apart, 2, NULL);
    run_pipeline(&dense, 2, NULL);
    assert_all(&same, DW_OK);
    assert_all(&apart, DW_OK);
    assert_all(&dense, DW_OK);
    const dw_train_cost *ours = &same.summary.cost, *theirs = &apart.summary.cost,
                        *all = &dense.summary.cost;
    assert_true(ours->frames_backward < theirs->frames_backward);
    assert_true(3 * ours->frames_backward < all->frames_backward);
    assert_int_equal(ours->raw_backward, theirs->raw_backward);
    assert_int_equal(ours->raw_forward, theirs->raw_forward);
    assert_true(same.loss[0] == dense.loss[0] && same.norm[0] != dense.norm[0]);
    assert_true(same.norm[0] != apart.norm[0]);
}

static void use_uncompressed_evaluations_and_repeats(pipeline *run)
{
    run->config.plain_eval = 1;
    run->config.repeat = 2;
    run->config.epochs = 1;
}

static void same_places_works_with_other_settings(void **state)
{
    (void)state;
    pipeline two = a_sparse_run("cocktail:mask=0.5,keep=0.4"), three;
    use_uncompressed_evaluations_and_repeats(&two);
    two.config.backward = "mx:element=e4m3";
    three = two;
    run_pipeline(&two, 2, NULL);
    assert_all(&two, DW_OK);
    assert_true(two.plain[0] > 0 && two.plain[0] != two.held_out[0]);
    three.config.forward = "0:topk:keep=0.3,1:randk:keep=0.3";
    run_pipeline(&three, 3, NULL);
    assert_all(&three, DW_OK);
}

static void same_places_refuses_unsuitable_codecs(void **state)
{
    static const struct {
        const char *forward, *backward, *says;
    } wrong[] = {
        {"raw:f32", NULL, "give topk, randk, cocktail or chunk"},
        {"delta:bits=4", NULL, "give topk, randk, cocktail or chunk"},
        {"topk:keep=0.1,0:direct", NULL, "give topk, randk, cocktail or chunk"},
        {"randk:scaling=unbiased", NULL, "without scaling"},
        {"topk", "delta:bits=4", "backward codec"},
        {"topk", "lowrank:rank=1", "rows of any length"},
        {"topk", "tah", "give direct, raw, mx or blocks"},
        {"topk", "direct:bits=4,feedback=lazy", "without feedback"},
        {"topk", "direct:bits=4,transform=hadamard", "transform"},
        {"topk", "direct:project=7", "project"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        pipeline run = a_sparse_run(wrong[i].forward);
        if (wrong[i].backward) run.config.backward = wrong[i].backward;
        run_pipeline(&run, 2, NULL);
        assert_all(&run, DW_ERR_ARGUMENT);
        if (!strstr(run.ranks[0].why.text, wrong[i].says)) fail_msg("%s", run.ranks[0].why.text);
    }
}

static void differ(rank *r)
{
    r->config.same_places = r->index == 0;
}

static void ranks_with_different_same_places_are_refused(void **state)
{
    (void)state;
    pipeline run = a_sparse_run("topk:keep=0.1");
    run_pipeline(&run, 2, differ);
    assert_all(&run, DW_ERR_MISMATCH);
    assert_non_null(strstr(run.ranks[0].why.text, "same-places"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_places_with_all_elements_changes_nothing),
        cmocka_unit_test(same_places_bits_do_not_depend_on_the_schedule),
        cmocka_unit_test(same_places_gradients_carry_no_places),
        cmocka_unit_test(same_places_works_with_other_settings),
        cmocka_unit_test(same_places_refuses_unsuitable_codecs),
        cmocka_unit_test(ranks_with_different_same_places_are_refused),
    };
    return cmocka_run_group_tests(tests, pipeline_set_up, pipeline_tear_down);
}
