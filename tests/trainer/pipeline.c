/* SPDX-License-Identifier: Apache-2.0
 * pipeline.c - starts a thread for each rank, and notes what rank 0 reports. */
#include "pipeline.h"

#include <signal.h>
#include <unistd.h>

char pipeline_text[80], pipeline_folder[TEST_FOLDER_BYTES];

void note_listening(void *context, const char *uri)
{
    rank *r = context;
    pthread_mutex_lock(&r->run->lock);
    snprintf(r->listening, sizeof r->listening, "%s", uri);
    pthread_cond_broadcast(&r->run->told);
    pthread_mutex_unlock(&r->run->lock);
}

static void on_step(void *context, const dw_train_step *step)
{
    pipeline *run = ((rank *)context)->run;
    assert_int_equal(step->step, run->config.resume ? step->step : run->steps + 1);
    run->loss[step->step - 1] = step->loss;
    run->norm[step->step - 1] = step->norm;
    run->so_far[step->step - 1] = step->so_far;
    run->steps = step->step;
    if (run->stop_at_step == step->step)
        __atomic_store_n(&run->ranks[run->stop_rank].stop, 1, __ATOMIC_RELAXED);
}

static void on_eval(void *context, const dw_train_eval *eval)
{
    pipeline *run = ((rank *)context)->run;
    run->plain[run->evals] = eval->plain_loss;
    run->held_out[run->evals++] = eval->loss;
}

static void on_save(void *context, const char *where, uint32_t step)
{
    (void)step;
    pipeline *run = ((rank *)context)->run;
    assert_string_equal(where, run->ranks[0].config.save);
    run->saves++;
    if (run->kill_at_save) kill(getpid(), SIGKILL);
}

static void on_misfit(void *context, const char *sentence)
{
    rank *r = context;
    bool is_of_checkpoint = strstr(sentence, "is not used") || strstr(sentence, "was saved by");
    if (!is_of_checkpoint) return; /* a codec that does not fit a small model */
    pthread_mutex_lock(&r->run->lock);
    r->run->unused++;
    snprintf(r->run->unused_why, sizeof r->run->unused_why, "%s", sentence);
    pthread_mutex_unlock(&r->run->lock);
}

static void on_summary(void *context, const dw_train_summary *summary)
{
    pipeline *run = ((rank *)context)->run;
    run->summary = *summary;
    memcpy(run->costs, summary->ranks, summary->stages * summary->replicas * sizeof *run->costs);
}

static void *run_rank(void *context)
{
    rank *r = context;
    dw_train_hooks hooks = {.context = r,
                            .on_listening = note_listening,
                            .on_step = on_step,
                            .on_eval = on_eval,
                            .on_save = on_save,
                            .on_misfit = on_misfit,
                            .on_summary = on_summary,
                            .stop = &r->stop};
    r->status = dw_train(&r->config, &hooks, &r->why);
    pthread_mutex_lock(&r->run->lock);
    if (!*r->listening) strcpy(r->listening, "ended");
    pthread_cond_broadcast(&r->run->told);
    pthread_mutex_unlock(&r->run->lock);
    return NULL;
}

void run_pipeline(pipeline *run, uint32_t stages, void (*change)(rank *))
{
    pthread_mutex_init(&run->lock, NULL);
    pthread_cond_init(&run->told, NULL);
    uint32_t ranks = stages * (run->config.replicas ? run->config.replicas : 1);
    run->stages = stages;
    run->n_ranks = ranks;
    run->steps = run->evals = run->saves = run->unused = 0;
    for (uint32_t i = 0; i < ranks; i++) {
        rank *r = &run->ranks[i];
        memset(r, 0, sizeof *r);
        r->run = run;
        r->index = i;
        r->config = run->config;
        r->config.rank = i;
        r->config.stages = stages;
        r->config.listen = i + 1 < ranks ? "tcp://127.0.0.1:0" : NULL;
        r->config.connect = i ? run->ranks[i - 1].listening : NULL;
        r->config.replica_listen = "tcp://127.0.0.1:0";
        if (change) change(r);
        pthread_create(&r->thread, NULL, r->run_instead ? r->run_instead : run_rank, r);
        pthread_mutex_lock(&run->lock);
        while (i + 1 < ranks && !*r->listening) pthread_cond_wait(&run->told, &run->lock);
        pthread_mutex_unlock(&run->lock);
    }
    for (uint32_t i = 0; i < ranks; i++) pthread_join(run->ranks[i].thread, NULL);
    pthread_mutex_destroy(&run->lock);
    pthread_cond_destroy(&run->told);
}

void assert_all(const pipeline *run, dw_status status)
{
    for (uint32_t i = 0; i < run->n_ranks; i++)
        if (run->ranks[i].status != status)
            fail_msg("rank %u of %u: status %d, %s", i, run->n_ranks, (int)run->ranks[i].status,
                     run->ranks[i].why.text);
}

void run_whole(pipeline *run, uint32_t stages)
{
    run_pipeline(run, stages, NULL);
    assert_all(run, DW_OK);
}

void run_refused(pipeline *run, uint32_t stages, dw_status status, uint32_t index,
                 const char *sentence)
{
    run_pipeline(run, stages, NULL);
    assert_all(run, status);
    assert_non_null(strstr(run->ranks[index].why.text, sentence));
}

void run_until_saved(pipeline *run, uint32_t stages, uint32_t save_after)
{
    run->config.save = pipeline_folder;
    run->config.save_every = save_after;
    run->stop_at_step = save_after + 1;
    run_pipeline(run, stages, NULL);
    assert_all(run, DW_ERR_CANCELLED);
    assert_int_equal(run->saves, 1);
    run->config.save = NULL;
    run->config.save_every = run->stop_at_step = 0;
    run->config.resume = pipeline_folder;
}

void assert_a_stop_ends(pipeline *run, uint32_t stages)
{
    run->stop_at_step = 3;
    run->n_ranks = 1; /* run_pipeline sets it */
    for (run->stop_rank = 0; run->stop_rank < run->n_ranks; run->stop_rank++) {
        char expected[32];
        run_pipeline(run, stages, NULL);
        assert_all(run, DW_ERR_CANCELLED);
        assert_true(run->steps >= 3);
        snprintf(expected, sizeof expected, "rank %u was asked to stop", run->stop_rank);
        for (uint32_t i = 0; i < run->n_ranks; i++)
            assert_string_equal(run->ranks[i].why.text, expected);
    }
}

pipeline assert_resumes(const pipeline *whole, uint32_t stages, uint32_t save_after)
{
    pipeline resumed = *whole;
    run_until_saved(&resumed, stages, save_after);
    run_whole(&resumed, stages);
    assert_int_equal(resumed.steps, whole->steps);
    uint32_t left = whole->steps - save_after;
    assert_memory_equal(resumed.loss + save_after, whole->loss + save_after,
                        left * sizeof *whole->loss);
    assert_memory_equal(resumed.norm + save_after, whole->norm + save_after,
                        left * sizeof *whole->norm);
    if (whole->evals > 0)
        assert_true(resumed.held_out[resumed.evals - 1] == whole->held_out[whole->evals - 1]);
    return resumed;
}

void in_a_folder_of_its_own(rank *r)
{
    static char folders[RANKS_MAX][TEST_FOLDER_BYTES + 8];
    snprintf(folders[r->index], sizeof folders[0], "%s/rank-%u", pipeline_folder, r->index);
    r->config.save = folders[r->index];
}

static size_t read_manifest(const rank *r, char text[MANIFEST_BYTES])
{
    char path[200];
    snprintf(path, sizeof path, "%s/manifest.json", r->config.save);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t len = fread(text, 1, MANIFEST_BYTES - 1, file);
    text[len] = '\0';
    fclose(file);
    return len;
}

void assert_same_manifests(const pipeline *run, char text[MANIFEST_BYTES])
{
    char other[MANIFEST_BYTES];
    size_t len = read_manifest(&run->ranks[0], text);
    for (uint32_t k = 1; k < run->n_ranks; k++) {
        assert_int_equal(read_manifest(&run->ranks[k], other), len);
        assert_memory_equal(text, other, len);
    }
}

static void *run_at_a_stage(void *context)
{
    rank *r = context;
    dw_settings settings;
    dw_stage stage;
    dw_train_hooks hooks = {.context = r, .on_listening = note_listening};
    json_t *value = NULL;
    assert_int_equal(dw_settings_resolve(&settings, &r->config, &r->why), DW_OK);
    assert_int_equal(dw_settings_count(&settings, r->config.samples, &r->why), DW_OK);
    json_t *greeting = dw_settings_greeting(&settings, 0, 0);
    r->status = dw_stage_open(&stage, &settings, &hooks, greeting);
    json_decref(greeting);
    /* Where the others have finished before this rank has met them all, opening fails. */
    r->why = stage.why;
    if (r->status != DW_OK) return NULL;
    dw_model_initialize(stage.model, 1);
    r->run->work(&stage, r);
    if (r->status == DW_OK) r->status = dw_stage_gather(&stage, json_true(), &value);
    json_decref(value);
    value = NULL;
    if (r->status == DW_OK)
        r->status = dw_stage_spread(&stage, r->index ? NULL : json_true(), &value);
    json_decref(value);
    r->why = stage.why;
    dw_stage_close(&stage, r->status);
    return NULL;
}

static void instead_of_training(rank *r)
{
    r->run_instead = run_at_a_stage;
}

void run_at_stages(pipeline *run, uint32_t stages, void (*work)(dw_stage *stage, rank *r))
{
    run->work = work;
    run_pipeline(run, stages, instead_of_training);
}

pipeline a_run(void)
{
    return (pipeline){.config = {.struct_size = sizeof(dw_train_config),
                                 .layers = 3,
                                 .channels = 32,
                                 .heads = 2,
                                 .context = 24,
                                 .text = pipeline_text,
                                 .samples = 26,
                                 .held_out = 7,
                                 .batch = 8,
                                 .micro_batches = 4,
                                 .epochs = 3,
                                 .lr = 3e-3,
                                 .warmup = 2,
                                 .seed = 4,
                                 .open_timeout_ms = 20000,
                                 .peer_timeout_ms = 20000}};
}

pipeline a_coded_run(const char *forward, const char *backward)
{
    pipeline run = a_run();
    run.config.samples = 24;
    run.config.held_out = 6;
    run.config.eval_every = 2;
    run.config.forward = forward;
    run.config.backward = backward;
    return run;
}

void assert_same_run(const pipeline *a, const pipeline *b)
{
    assert_int_equal(a->steps, b->steps);
    assert_int_equal(a->evals, b->evals);
    assert_memory_equal(a->loss, b->loss, a->steps * sizeof *a->loss);
    assert_memory_equal(a->norm, b->norm, a->steps * sizeof *a->norm);
    assert_memory_equal(a->held_out, b->held_out, a->evals * sizeof *a->held_out);
}

int pipeline_set_up(void **state)
{
    (void)state;
    static const char *const words[] = {"the ",  "sea ", "and ", "all ",
                                        "that ", "is ",  "in ",  "it "};
    if (test_folder(pipeline_folder, "train")) return -1;
    snprintf(pipeline_text, sizeof pipeline_text, "%s/text", pipeline_folder);
    FILE *file = fopen(pipeline_text, "w");
    if (!file) return -1;
    for (uint32_t i = 0, x = 1; i < 700; i++)
        fputs(words[(x = x * 1103515245 + 12345) >> 29], file);
    return fclose(file);
}

int pipeline_tear_down(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", pipeline_folder);
    return system(command);
}
