/* SPDX-License-Identifier: Apache-2.0
 * test_boundaries.c - a codec for every boundary: what the setting says, where it is wrong, and
 * that each boundary gets its own. */
#include <stdatomic.h>

#include "boundaries.h"
#include "deltawire/transport.h"
#include "pipeline.h"

enum { IDS = 16 };
static atomic_uint opened[IDS]; /* how many channels were opened with this id */

dw_status __real_dw_channel_open(dw_channel **channel, dw_link *link,
                                 const dw_channel_config *config, dw_why *why);
dw_status __wrap_dw_channel_open(dw_channel **channel, dw_link *link,
                                 const dw_channel_config *config, dw_why *why);
dw_status __wrap_dw_channel_open(dw_channel **channel, dw_link *link,
                                 const dw_channel_config *config, dw_why *why)
{
    atomic_fetch_add(&opened[config->id % IDS], 1);
    return __real_dw_channel_open(channel, link, config, why);
}

static void assert_means(const char *text, uint32_t stages, const char *canonical)
{
    dw_boundaries found;
    dw_why why = {.text = ""};
    if (dw_boundaries_parse(&found, text, "forward", 0, stages, &why) < 0)
        fail_msg("\"%s\": %s", text, why.text);
    assert_string_equal(found.text, canonical);
}

TEST(commas_within_codecs_begin_no_entry)
{
    assert_means("direct:bits=4,group=16", 4, "direct:group=16");
    assert_means("0:direct:bits=3", 2, "direct:bits=3");
    assert_means("1:raw:f16", 1 + 2, "0:raw:f32,1:raw:f16");
    assert_means("0:topk:keep=0.1,bits=4,1:direct:bits=2,group=32", 3,
                 "0:topk:keep=0.1,bits=4,1:direct:bits=2,group=32");
    assert_means("1:direct:bits=2,group=32,0:topk:bits=4,keep=0.1", 3,
                 "0:topk:keep=0.1,bits=4,1:direct:bits=2,group=32");
    assert_means("direct:bits=2,1:raw,00002:delta:bits=3", 5,
                 "0:direct:bits=2,1:raw,2:delta:bits=3,3:direct:bits=2");
    assert_means("direct:bits=2,1:direct:bits=2", 3, "direct:bits=2"); /* the same everywhere */
}

TEST(a_stage_gets_the_codecs_of_its_boundaries)
{
    static const char text[] = "0:direct:bits=2,1:direct:bits=3,2:direct:bits=5";
    static const char *const sides[4][2] = {{NULL, "direct:bits=2"},
                                            {"direct:bits=2", "direct:bits=3"},
                                            {"direct:bits=3", "direct:bits=5"},
                                            {"direct:bits=5", NULL}};
    for (uint32_t stage = 0; stage < 4; stage++) {
        dw_boundaries found;
        assert_int_equal(dw_boundaries_parse(&found, text, "backward", stage, 4, NULL), DW_OK);
        if (sides[stage][0]) assert_string_equal(found.before.text, sides[stage][0]);
        if (sides[stage][1]) assert_string_equal(found.after.text, sides[stage][1]);
    }
}

static void assert_refused(const char *text, uint32_t stages, const char *sentence)
{
    dw_boundaries found;
    dw_why why = {.text = ""};
    /* Every rank refuses it, also those whose boundaries are others. */
    for (uint32_t stage = 0; stage < stages; stage++) {
        assert_true(dw_boundaries_parse(&found, text, "backward", stage, stages, &why) < 0);
        if (!strstr(why.text, sentence)) fail_msg("\"%s\" does not say \"%s\"", why.text, sentence);
    }
}

TEST(names_the_boundary_that_is_wrong)
{
    assert_refused("2:raw", 3, "backward names boundary 2; 3 stages have the boundaries 0 to 1");
    assert_refused("raw,99999999999999999999:raw", 3,
                   "backward names boundary 99999999999999999999; 3 stages have");
    assert_refused("4294967295:raw", 3, "backward names boundary 4294967295; 3 stages have");
    assert_refused("4294967294:raw", 3, "backward names boundary 4294967294; 3 stages have");
    assert_refused("4294967296:raw", 3, "backward names boundary 4294967296; 3 stages have");
    assert_refused("0:raw", 1, "a single stage has none; give more stages");
    assert_refused("0:raw,1:direct,0:delta", 3, "backward gives boundary 0 a codec twice");
    assert_refused("0:raw,1:direct:bots=4", 3, "boundary 1's backward codec \"direct:bots=4\", at");
    assert_refused("0:", 3, "boundary 0's backward codec \"\"");
    assert_refused("raw,", 3, "backward codec \"raw,\"");
    assert_refused("0:raw,1", 3, "boundary 0's backward codec \"raw,1\"");
    assert_refused("", 3, "backward codec \"\"");
}

TEST(each_boundary_has_its_own_codec)
{
    pipeline own = a_run(), direct = a_run(), delta = a_run();
    own.config.forward = "0:delta:bits=3,1:direct:bits=6";
    own.config.backward = "0:direct:bits=6,1:topk:keep=0.2";
    direct.config.forward = direct.config.backward = "direct:bits=6";
    delta.config.forward = "delta:bits=3";
    delta.config.backward = "topk:keep=0.2";
    run_whole(&own, 3);
    run_whole(&direct, 3);
    run_whole(&delta, 3);
    assert_int_equal(own.costs[0].frames_forward, delta.costs[0].frames_forward);
    assert_int_equal(own.costs[1].frames_forward, direct.costs[1].frames_forward);
    assert_int_not_equal(own.costs[0].frames_forward, own.costs[1].frames_forward);
    assert_int_equal(own.costs[0].frames_backward, direct.costs[0].frames_backward);
    assert_true(own.costs[1].frames_backward < direct.costs[1].frames_backward * 3 / 4);
    assert_true(own.loss[8] != direct.loss[8] && own.loss[8] != delta.loss[8]);
}

/* A channel derives its encoder's incarnation from its id, so two boundaries with the same id would
 * share their random numbers. */
TEST(no_two_boundaries_share_a_channel_id)
{
    pipeline run = a_run();
    run.config.epochs = 1;
    for (int id = 0; id < IDS; id++) atomic_store(&opened[id], 0);
    run_whole(&run, 3);
    unsigned ids = 0;
    for (int id = 0; id < IDS; id++) {
        unsigned ends = atomic_load(&opened[id]);
        assert_true(ends == 0 || ends == 2);
        ids += ends > 0;
    }
    assert_int_equal(ids, 2);
}

TEST(an_entry_for_all_changes_no_bit)
{
    pipeline one = a_run(), all = a_run();
    one.config.forward = "delta:bits=3";
    one.config.backward = "direct:bits=6";
    all.config.forward = "1:delta:bits=3,0:delta:bits=3";
    all.config.backward = "direct:bits=6,0:direct:bits=6";
    run_whole(&one, 3);
    run_whole(&all, 3);
    assert_same_run(&one, &all);
}

static void with_another_codec_at_one_boundary(rank *r)
{
    if (r->index == 2) r->config.forward = "direct:bits=4,0:direct:bits=5";
}

/* The boundary that differs is between two other ranks. */
TEST(ranks_agree_on_all_boundaries)
{
    pipeline run = a_run();
    run.config.forward = "direct:bits=4";
    run_pipeline(&run, 3, with_another_codec_at_one_boundary);
    assert_all(&run, DW_ERR_MISMATCH);
    /* Either rank 2 or its neighbour notices it first, and then the other one is told. */
    assert_non_null(strstr(run.ranks[2].why.text, "was started with forward"));
    assert_non_null(strstr(run.ranks[2].why.text, "\"0:direct:bits=5,1:direct\""));
}

RUN_TESTS(pipeline_set_up, pipeline_tear_down)
