/* SPDX-License-Identifier: Apache-2.0
 * test_train.c - complete runs: any number of stages gives the same bits, a seed gives the same run
 * again, and every run ends cleanly. */
#include <math.h>
#include <signal.h>
#include <sys/resource.h>

#include "deltawire/transport.h"
#include "pipeline.h"

/* Connects to rank 0 as its neighbour would, and then sends a greeting that is far too long. */
static void *run_impostor(void *context)
{
    enum { LONG = (1 << 20) + 1, TAG_GREETING = 1 };
    rank *r = context;
    dw_link_options options = {.struct_size = sizeof options};
    dw_link *link = NULL;
    char *greeting = malloc(LONG);
    assert_non_null(greeting);
    memset(greeting, ' ', LONG);
    greeting[0] = '{';
    greeting[LONG - 1] = '}';
    r->status = dw_link_open(&link, r->config.connect, &options, &r->why);
    if (r->status == DW_OK) {
        /* The link itself refuses messages longer than a rank of this shape can need. */
        assert_int_equal(dw_link_send(link, TAG_GREETING, greeting, (size_t)100 << 20),
                         DW_ERR_LIMIT);
        r->status = dw_link_send(link, TAG_GREETING, greeting, LONG);
        dw_link_flush(link, 10000);
        dw_link_close(link);
    }
    free(greeting);
    return NULL;
}

TEST_WITH(any_number_of_stages_gives_the_same_bits, pipeline_set_up, pipeline_tear_down)
{
    pipeline one = a_run();
    run_whole(&one, 1);
    assert_int_equal(one.steps, 9);
    assert_int_equal(one.evals, 3);
    assert_true(one.loss[8] < one.loss[0] - 0.5); /* the model learns */
    assert_true(one.norm[0] > 1);                 /* the gradient was clipped */
    for (uint32_t stages = 2; stages <= 3; stages++) {
        pipeline many = a_run();
        run_whole(&many, stages);
        assert_same_run(&one, &many);
    }
}

/* With 1F1B stages hold fewer micro-batches; nothing else changes, with codecs that have state
 * neither. A stage that held more than it has room for would overwrite activations. */
TEST_WITH(the_schedule_changes_no_bit, pipeline_set_up, pipeline_tear_down)
{
    for (uint32_t i = 0; i < 6; i++) {
        uint32_t stages = 1 + i % 3;
        pipeline gpipe = a_run();
        gpipe.config.slices = i < 3 ? 1 : 5; /* of 4 or 5 tokens */
        gpipe.config.forward = "delta:bits=3";
        gpipe.config.backward = "direct:bits=6";
        gpipe.config.micro_batches = 8;
        pipeline other = gpipe;
        other.config.schedule = "1f1b";
        run_whole(&gpipe, stages);
        run_whole(&other, stages);
        assert_same_run(&gpipe, &other);
    }
}

TEST_WITH(a_seeded_run_repeats_bit_for_bit, pipeline_set_up, pipeline_tear_down)
{
    for (uint32_t stages = 2; stages <= 3; stages++) {
        pipeline first = a_run();
        first.config.forward = "delta:bits=3";
        first.config.backward = "direct:bits=6";
        pipeline second = first, other = first;
        run_whole(&first, stages);
        run_whole(&second, stages);
        assert_same_run(&first, &second);
        pipeline threaded = a_run();
        threaded.config.forward = "delta:bits=3";
        threaded.config.backward = "direct:bits=6";
        threaded.config.threads = 3; /* a micro-batch has two samples, and so two pieces of work */
        run_whole(&threaded, stages);
        assert_same_run(&first, &threaded);
        other.config.seed = 5;
        run_pipeline(&other, stages, NULL);
        assert_true(other.loss[8] != first.loss[8]);
    }
}

TEST_WITH(compression_is_lossy_small_and_counted, pipeline_set_up, pipeline_tear_down)
{
    pipeline raw = a_run(), delta = a_run();
    delta.config.forward = "delta:bits=2";
    delta.config.backward = "direct:bits=4";
    run_whole(&raw, 2);
    run_whole(&delta, 2);
    assert_true(delta.loss[8] != raw.loss[8]);
    assert_true(fabs(delta.loss[8] - raw.loss[8]) < 0.2);
    const dw_train_cost *a = &raw.summary.cost, *b = &delta.summary.cost;
    /* 9 steps of 8 samples and 3 evaluations of 7 samples; a sample has 24 * 32 floats. */
    assert_int_equal(a->raw_forward, (9 * 8 + 3 * 7) * 24 * 32 * 4);
    assert_int_equal(a->raw_backward, 9 * 8 * 24 * 32 * 4);
    assert_int_equal(b->raw_forward, a->raw_forward);
    assert_true(a->frames_forward >= a->raw_forward && a->bytes_forward >= a->frames_forward);
    assert_true(b->frames_forward < a->frames_forward / 3 && b->bytes_forward >= b->frames_forward);
    assert_true(b->frames_backward < a->frames_backward / 3 &&
                b->bytes_backward >= b->frames_backward);
    assert_true(b->codec_s > 0 && b->compute_s > 0 && b->wait_s > 0);
    assert_true(delta.summary.wall_s >= delta.summary.eval_s && delta.summary.eval_s > 0);
    /* The times of a rank add up to at most the duration of the run: no time counts twice. */
    for (int i = 0; i < 2; i++) {
        const dw_train_cost *c = &delta.costs[i];
        assert_true(c->compute_s + c->codec_s + c->wait_s < 1.2 * delta.summary.wall_s + 0.5);
    }
    assert_int_equal(delta.costs[1].bytes_forward, 0); /* no link to a next rank */
    assert_true(delta.summary.held_out_loss == delta.held_out[2]);
    assert_true(fabs(delta.summary.train_loss -
                     (delta.loss[6] + delta.loss[7] + delta.loss[8]) / 3) < 1e-12);
}

/* The second part of the text, after the training samples, is in another language. */
TEST_WITH(evaluates_on_the_samples_after_the_training_ones, pipeline_set_up, pipeline_tear_down)
{
    pipeline run = a_run();
    run.config.epochs = 10;
    FILE *file = fopen(pipeline_text, "r+");
    fseek(file, 26 * 25, SEEK_SET);
    for (int i = 0; i < 7 * 25; i++) fputc('A' + i * 7 % 23, file);
    fclose(file);
    run_whole(&run, 2);
    assert_true(run.summary.held_out_loss > run.summary.train_loss + 2);
}

/* The cost of the last rank is measured on its link to the previous rank. A single stage has no
 * link, so it must report no waiting. */
TEST_WITH(a_single_stage_waits_for_nobody, pipeline_set_up, pipeline_tear_down)
{
    pipeline run = a_run();
    run.config.held_out = 0;
    run_whole(&run, 1);
    assert_int_equal(run.evals, 0);
    assert_true(isnan(run.summary.held_out_loss));
    assert_true(run.summary.cost.wait_s == 0 && run.summary.cost.bytes_forward == 0);
}

TEST_WITH(starts_from_the_parameters_of_a_checkpoint, pipeline_set_up, pipeline_tear_down)
{
    pipeline first = a_run();
    first.config.save = pipeline_folder;
    run_whole(&first, 2);
    assert_int_equal(first.saves, 1);
    pipeline second = a_run();
    second.config.init = pipeline_folder;
    run_whole(&second, 1);
    assert_int_equal(second.steps, 9); /* all steps are made again */
    assert_true(second.loss[0] < first.loss[0] - 0.5);
    second.config.layers = 4;
    run_refused(&second, 1, DW_ERR_MISMATCH, 0, "3 layers");
    second.config.layers = 3;
    second.config.init = NULL;
    second.config.resume = pipeline_folder;
    /* no step is left */
    run_refused(&second, 1, DW_ERR_ARGUMENT, 0, "9 steps of 9");
}

TEST_WITH(a_stop_of_any_rank_ends_the_run, pipeline_set_up, pipeline_tear_down)
{
    pipeline run = a_run();
    run.config.epochs = 10;
    assert_a_stop_ends(&run, 3);
}

static void stop_before_a_neighbour_connects(rank *r)
{
    r->config.open_timeout_ms = 500; /* rank 1 finds no neighbour */
    r->stop = r->index == 0;
}

TEST_WITH(a_stop_while_waiting_for_a_neighbour_ends_the_wait, pipeline_set_up, pipeline_tear_down)
{
    pipeline run = a_run();
    run_pipeline(&run, 2, stop_before_a_neighbour_connects);
    assert_int_equal(run.ranks[0].status, DW_ERR_CANCELLED);
    assert_true(run.ranks[1].status < 0);
}

static void with_another_batch(rank *r)
{
    if (r->index == 1) r->config.batch = 4;
}

static void with_another_text(rank *r)
{
    if (r->index == 2) r->config.text_offset = 1;
}

TEST_WITH(ranks_learn_which_setting_differs, pipeline_set_up, pipeline_tear_down)
{
    pipeline run = a_run();
    run_pipeline(&run, 2, with_another_batch);
    assert_true(run.ranks[0].status == DW_ERR_MISMATCH && run.ranks[1].status == DW_ERR_MISMATCH);
    assert_non_null(strstr(run.ranks[1].why.text, "batch"));
    run = a_run();
    run_pipeline(&run, 3, with_another_text);
    assert_all(&run, DW_ERR_MISMATCH); /* rank 0 learns it from rank 1 */
    for (int i = 0; i < 3; i++)
        assert_non_null(strstr(run.ranks[i].why.text, "reads another text"));
}

static void with_an_impostor(rank *r)
{
    if (r->index == 1) r->run_instead = run_impostor;
}

TEST_WITH(a_greeting_that_is_too_long_is_not_parsed, pipeline_set_up, pipeline_tear_down)
{
    pipeline run = a_run();
    run_pipeline(&run, 2, with_an_impostor);
    assert_int_equal(run.ranks[0].status, DW_ERR_PROTOCOL);
    assert_non_null(strstr(run.ranks[0].why.text, "a control message of 1048577 bytes"));
    assert_int_equal(run.ranks[1].status, DW_OK);
}

/* With room for no copy in memory, every visit of a sample reads from the file. */
TEST_WITH(prev_in_a_file_changes_no_bit, pipeline_set_up, pipeline_tear_down)
{
    char text[160];
    snprintf(text, sizeof text, "file:%s/prev,cache=0", pipeline_folder);
    pipeline plain = a_run();
    plain.config.forward = "delta:bits=3";
    plain.config.backward = "delta:bits=6";
    pipeline filed = plain, refused = plain;
    run_pipeline(&plain, 3, NULL);
    filed.config.state = text;
    run_whole(&filed, 3);
    assert_same_run(&plain, &filed);
    /* With no room for the file there is no training, so the copies do go there. */
    struct rlimit before, small;
    pipeline full = filed;
    getrlimit(RLIMIT_FSIZE, &before);
    small = before;
    small.rlim_cur = 3 * 4096;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    full.config.open_timeout_ms = 5000;
    run_pipeline(&full, 2, NULL);
    setrlimit(RLIMIT_FSIZE, &before);
    bool is_told = false;
    for (int i = 0; i < 2; i++) is_told = is_told || strstr(full.ranks[i].why.text, "make room");
    assert_true(full.ranks[0].status < 0 && full.ranks[1].status < 0 && is_told);
    refused.config.state = "/nowhere";
    run_refused(&refused, 2, DW_ERR_CONFIG, 1, "does not begin with file:");
}

static void with_nowhere_to_save(rank *r)
{
    r->config.open_timeout_ms = 500; /* rank 1 ends before it connects to rank 0 */
    if (r->index == 1) r->config.save = "/proc/nowhere";
}

TEST_WITH(an_error_of_one_rank_reaches_all, pipeline_set_up, pipeline_tear_down)
{
    pipeline run = a_run();
    run.config.save = pipeline_folder;
    run_pipeline(&run, 2, with_nowhere_to_save);
    assert_int_equal(run.ranks[1].status, DW_ERR_IO);
    assert_true(run.ranks[0].status < 0);
    run = a_run();
    run.config.held_out = 0; /* because an evaluation would detect the error, too */
    run.config.lr = 1e4;
    run.config.warmup = 0;
    run.config.clip = -1;
    run.config.epochs = 8;
    run_pipeline(&run, 2, NULL);
    assert_all(&run, DW_ERR_LIMIT);
    for (int i = 0; i < 2; i++) assert_non_null(strstr(run.ranks[i].why.text, "diverged"));
}

RUN_TESTS(NULL, NULL)
