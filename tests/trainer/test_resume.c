/* SPDX-License-Identifier: Apache-2.0
 * test_resume.c - a training whose ranks were killed after a checkpoint goes on with the same bits,
 * what the codecs of boundaries keep included. */
#include <dirent.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "closed_channels.h"
#include "pipeline.h"

enum { STEPS = 9, SAVED_AFTER = 5 };

static void run_counted(pipeline *run, uint32_t stages)
{
    key_entries = delta_entries = 0;
    run_pipeline(run, stages, NULL);
}

/* Runs it in a process of its own, all ranks of which are killed when the checkpoint was saved. */
static void run_killed(pipeline run, uint32_t stages, const char *folder)
{
    int status;
    run.config.save = folder;
    run.config.save_every = SAVED_AFTER;
    run.kill_at_save = true;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        run_pipeline(&run, stages, NULL);
        fprintf(stderr, "%s\n", run.ranks[0].why.text);
        _exit(1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static uint64_t frames_until(const pipeline *run, uint32_t step)
{
    return run->so_far[step - 1].frames_forward + run->so_far[step - 1].frames_backward;
}

/* All that follows the checkpoint has the bits of the whole run, and the frames its bytes. */
static void assert_goes_on(const pipeline *whole, const pipeline *resumed)
{
    assert_all(resumed, DW_OK);
    assert_int_equal(resumed->steps, whole->steps);
    for (uint32_t i = SAVED_AFTER; i < whole->steps; i++) {
        if (memcmp(&resumed->loss[i], &whole->loss[i], sizeof whole->loss[i]))
            fail_msg("step %u: a loss of %.17g became %.17g", i + 1, whole->loss[i],
                     resumed->loss[i]);
        assert_memory_equal(&resumed->norm[i], &whole->norm[i], sizeof whole->norm[i]);
        assert_int_equal(frames_until(resumed, i + 1),
                         frames_until(whole, i + 1) - frames_until(whole, SAVED_AFTER));
    }
    assert_memory_equal(resumed->held_out, whole->held_out + whole->evals - resumed->evals,
                        resumed->evals * sizeof *resumed->held_out);
}

static void assert_killed_run_goes_on(const pipeline *given, uint32_t stages)
{
    static uint32_t runs;
    char folder[TEST_FOLDER_BYTES + 16];
    pipeline whole = *given, resumed = *given;
    snprintf(folder, sizeof folder, "%s/%u", pipeline_folder, runs++);
    print_message("%s: %s, %s, %u stages\n", folder, given->config.forward, given->config.backward,
                  stages);
    run_counted(&whole, stages);
    assert_all(&whole, DW_OK);
    assert_int_equal(whole.steps, STEPS);
    bool is_delta = delta_entries > 0;
    run_killed(*given, stages, folder);
    resumed.config.resume = folder;
    run_counted(&resumed, stages);
    assert_goes_on(&whole, &resumed);
    assert_int_equal(resumed.unused, 0);
    if (is_delta && resumed.config.repeat <= 1 && resumed.config.eval_every < SAVED_AFTER)
        assert_int_equal(key_entries, 0);
    assert_true(delta_entries > 0 || !is_delta);
}

TEST_WITH(a_killed_run_goes_on_with_the_same_bits, pipeline_set_up, pipeline_tear_down)
{
    static const struct {
        const char *forward, *backward;
        uint32_t stages;
    } cases[] = {
        {"delta:bits=3,prev=f32", "delta:bits=4,prev=f32", 2},
        {"delta:bits=2,prev=bf16,replies=never", "delta:bits=4,prev=f16,replies=never", 3},
        {"delta:bits=3,rounding=stochastic", "direct:bits=3,feedback=ef", 2},
        {"randk:keep=0.4,incarnation=7", "direct:bits=2,rounding=stochastic", 2},
        {"delta:form=step,rate=1.5,entropy=rans", "direct:form=step,rounding=dither,incarnation=7",
         2},
        {"0:delta:bits=2,1:direct:bits=4", "0:raw:bf16,1:topk:keep=0.2,feedback=ef", 3},
        {"raw:f32", "lowrank:rank=2,feedback=ef", 2},
        {"delta:bits=3,key=f32", "0:delta:bits=4,1:direct:bits=2,2:delta:bits=5", 4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pipeline run = a_coded_run(cases[i].forward, cases[i].backward);
        run.config.layers = cases[i].stages;
        assert_killed_run_goes_on(&run, cases[i].stages);
    }
}

TEST_WITH(it_goes_on_with_every_schedule_and_setting, pipeline_set_up, pipeline_tear_down)
{
    char file[TEST_FOLDER_BYTES + 40];
    snprintf(file, sizeof file, "file:%s/prev,cache=16KiB", pipeline_folder);
    for (int i = 0; i < 7; i++) {
        pipeline run = a_coded_run("delta:bits=3", "delta:bits=4");
        if (i == 0) run.config.state = file;
        if (i == 1) run.config.slices = 3;
        if (i == 2) run.config.tied = 1;
        if (i == 3) run.config.plain_eval = 1;
        if (i == 4) run.config.forward = "topk:keep=0.2", run.config.backward = "direct:bits=4";
        if (i == 5) run.config.repeat = 3, run.config.epochs = 1;
        if (i == 5) run.config.eval_every = 3;
        if (i == 6) run.config.schedule = "1f1b";
        assert_killed_run_goes_on(&run, 2 + (i < 2 || i == 6));
    }
}

TEST_WITH(a_killed_grid_goes_on, pipeline_set_up, pipeline_tear_down)
{
    for (int i = 0; i < 2; i++) {
        pipeline run = a_coded_run("delta:bits=3", "delta:bits=4");
        run.config.replicas = 2;
        run.config.samples = 48;
        run.config.gradient = i ? "direct:bits=4,feedback=ef" : "delta:bits=6";
        run.config.local_steps = i ? SAVED_AFTER : 1;
        if (i) run.config.eval_every = 2 * SAVED_AFTER;
        assert_killed_run_goes_on(&run, 2);
    }
}

/* Whenever it was killed, the checkpoint is that of some step, and the run goes on from it. */
TEST_WITH(a_run_that_is_killed_at_any_time_goes_on, pipeline_set_up, pipeline_tear_down)
{
    pipeline whole = a_coded_run("delta:bits=3", "delta:bits=4");
    run_whole(&whole, 2);
    uint32_t resumed_from[STEPS + 1] = {0}, different = 0;
    for (uint32_t i = 0; i < 16; i++) {
        char folder[TEST_FOLDER_BYTES + 16], file[TEST_FOLDER_BYTES + 40];
        int status;
        snprintf(folder, sizeof folder, "%s/any-%u", pipeline_folder, i);
        snprintf(file, sizeof file, "file:%s/prev-%u,cache=4KiB", pipeline_folder, i);
        whole.config.state = i & 1 ? file : NULL;
        pipeline run = whole, resumed = whole;
        run.config.save = folder;
        run.config.save_every = 1;
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            run_pipeline(&run, 2, NULL);
            _exit(0);
        }
        char manifest[TEST_FOLDER_BYTES + 40];
        snprintf(manifest, sizeof manifest, "%s/manifest.json", folder);
        for (int tries = 0; tries < 20000 && access(manifest, F_OK); tries++) usleep(1000);
        usleep(i * (whole.config.state ? 5000 : 1500));
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, &status, 0), child);
        dw_checkpoint found;
        assert_int_equal(dw_checkpoint_open(&found, folder, NULL), DW_OK);
        uint32_t step = found.step;
        dw_checkpoint_close(&found);
        different += !resumed_from[step]++;
        if (step == STEPS) continue;
        resumed.config.resume = resumed.config.save = folder;
        run_whole(&resumed, 2);
        assert_int_equal(resumed.unused, 0);
        assert_memory_equal(resumed.loss + step, whole.loss + step,
                            (STEPS - step) * sizeof *whole.loss);
    }
    print_message("killed at %u different steps\n", different);
}

/* ---- What cannot go on ----------------------------------------------------------------------- */

/* Which copies make way for others is decided anew, at the encoder; no frame is refused for that.
 */
TEST_WITH(a_run_with_a_quota_goes_on, pipeline_set_up, pipeline_tear_down)
{
    for (int i = 0; i < 6; i++) {
        pipeline run = a_coded_run("delta:bits=3,quota_bytes=40000,replies=never",
                                   "delta:bits=4,quota_bytes=40000,replies=never");
        run_until_saved(&run, 2, SAVED_AFTER);
        run_counted(&run, 2);
        assert_all(&run, DW_OK);
        assert_true(delta_entries > 0 && run.unused == 0);
    }
}

static void assert_begins_anew(pipeline *run, uint32_t stages, const char *sentence)
{
    run_counted(run, stages);
    assert_all(run, DW_OK);
    if (sentence && !strstr(run->unused_why, sentence))
        fail_msg("\"%s\" does not say \"%s\"", run->unused_why, sentence);
    assert_int_equal(run->unused, sentence != NULL);
    assert_true(key_entries > 0);
}

TEST_WITH(what_fits_no_more_is_left_out_and_named, pipeline_set_up, pipeline_tear_down)
{
    pipeline run = a_coded_run("delta:bits=3", "delta:bits=4");
    run_until_saved(&run, 2, SAVED_AFTER);
    run.config.forward = "delta:bits=2";
    assert_begins_anew(&run, 2,
                       "what the forward codecs keep is not used, because it was saved with "
                       "--forward delta:bits=3, and this run has delta:bits=2");
    run.config.forward = "delta:bits=3";
    assert_begins_anew(&run, 3, "it was saved by 1 replicas of 2 stages, and this run has 1 of 3");
    run.config.slices = 2;
    assert_begins_anew(&run, 2, "slices 1, repeat 1, and this run has samples");
    run.config.slices = 1;
    run.config.text_offset = 1;
    assert_begins_anew(&run, 2, "it is of samples");
    run.config.text_offset = 0;
    run.config.lr = 0.5;
    run_pipeline(&run, 2, NULL);
    assert_all(&run, DW_OK);
    assert_int_equal(run.unused, 1);
    assert_non_null(strstr(run.unused_why, "was saved by a run with other settings"));
}

static void from_a_folder_of_its_own(rank *r)
{
    in_a_folder_of_its_own(r);
    r->config.resume = r->config.save;
    r->config.save = NULL;
}

static void in_folder(const char *command)
{
    char text[400];
    snprintf(text, sizeof text, "cd %s && %s", pipeline_folder, command);
    assert_int_equal(system(text), 0);
}

/* Ranks have no common directory, and one of them cannot replace its manifest. */
TEST_WITH(a_manifest_that_was_not_replaced_can_be_copied, pipeline_set_up, pipeline_tear_down)
{
    char blocker[TEST_FOLDER_BYTES + 32];
    pipeline whole = a_coded_run("delta:bits=3", "delta:bits=4"), run = whole;
    run_pipeline(&whole, 2, NULL);
    run.config.save = pipeline_folder;
    run.config.save_every = 2;
    run.stop_at_step = 3;
    run_pipeline(&run, 2, in_a_folder_of_its_own);
    assert_int_equal(run.saves, 1);
    snprintf(blocker, sizeof blocker, "%s/rank-1/manifest-1.tmp", pipeline_folder);
    assert_int_equal(mkdir(blocker, 0700), 0);
    run.config.save_every = run.stop_at_step = SAVED_AFTER;
    run.stop_at_step++;
    run_pipeline(&run, 2, in_a_folder_of_its_own);
    assert_int_equal(run.saves, 1);
    assert_int_equal(run.ranks[1].status, DW_ERR_IO);
    assert_int_equal(rmdir(blocker), 0);
    run = whole;
    run.config.resume = pipeline_folder;
    run_pipeline(&run, 2, from_a_folder_of_its_own);
    for (int i = 0; i < 2; i++)
        if (!strstr(run.ranks[i].why.text, "copy the manifest.json of the later step to all"))
            fail_msg("rank %d: %s", i, run.ranks[i].why.text);
    in_folder("cp rank-0/manifest.json rank-1/manifest.json");
    run_pipeline(&run, 2, from_a_folder_of_its_own);
    assert_goes_on(&whole, &run);
}

static void find_file(const char *begin_of_name, char path[400])
{
    DIR *entries = opendir(pipeline_folder);
    *path = '\0';
    for (struct dirent *entry; (entry = readdir(entries));)
        if (!strncmp(entry->d_name, begin_of_name, strlen(begin_of_name)))
            snprintf(path, 400, "%s/%.300s", pipeline_folder, entry->d_name);
    closedir(entries);
}

static void assert_refused(pipeline *run, const char *path, const char *sentence)
{
    run_pipeline(run, 2, NULL);
    for (int i = 0; i < 2; i++) {
        const char *why = run->ranks[i].why.text;
        assert_true(run->ranks[i].status < 0);
        if (!strstr(why, sentence)) fail_msg("rank %d: \"%s\" lacks \"%s\"", i, why, sentence);
        assert_non_null(strstr(why, path + strlen(pipeline_folder)));
    }
}

static void flip(const char *path, long at)
{
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    fseek(file, at, SEEK_SET);
    int byte = fgetc(file);
    fseek(file, at, SEEK_SET);
    fputc(byte ^ 1, file);
    fclose(file);
}

TEST_WITH(damaged_and_missing_files_are_named, pipeline_set_up, pipeline_tear_down)
{
    char path[2][400], head[400], hidden[410];
    pipeline run = a_coded_run("delta:bits=3", "delta:bits=4");
    run_until_saved(&run, 2, SAVED_AFTER);
    find_file("codecs-0-", path[0]);
    find_file("codecs-1-", path[1]);
    static const long places[] = {3, 9, 13, 20, 30, 38, 45, 48, 64, 5000};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        flip(path[1], places[i]);
        assert_refused(&run, path[1], "is damaged");
        flip(path[1], places[i]);
    }
    find_file("head", head);
    flip(head, 5000);
    assert_refused(&run, head, "give another checkpoint, or begin without one");
    flip(head, 5000);
    FILE *file = fopen(path[0], "r+b");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    long whole = ftell(file);
    fclose(file);
    assert_int_equal(truncate(path[0], whole + 1), 0); /* longer */
    assert_refused(&run, path[0], "copy it again, or delete all ranks");
    assert_int_equal(truncate(path[0], whole - 100), 0);
    assert_refused(&run, path[0], "is damaged");
    assert_int_equal(truncate(path[0], 20), 0);
    assert_refused(&run, path[0], "its header is not whole");
    snprintf(hidden, sizeof hidden, "%s.hidden", path[0]);
    assert_int_equal(rename(path[0], hidden), 0);
    assert_refused(&run, path[0], "copy it from where rank 0 saved it");
    assert_int_equal(unlink(path[1]), 0);
    assert_begins_anew(&run, 2, "the codecs-*.state are not there");
}

/* The files of a later step in place of those that the manifest names. */
TEST_WITH(steps_are_not_mixed, pipeline_set_up, pipeline_tear_down)
{
    char early[400], late[400];
    pipeline run = a_coded_run("delta:bits=3", "delta:bits=4");
    run_until_saved(&run, 2, SAVED_AFTER);
    find_file("codecs-1-", early);
    pipeline later = run;
    later.config.save = pipeline_folder;
    char kept[TEST_FOLDER_BYTES + 8];
    snprintf(kept, sizeof kept, "%s/early", pipeline_folder);
    assert_int_equal(rename(early, kept), 0);
    assert_int_equal(link(kept, early), 0);
    run_whole(&later, 2);
    find_file("codecs-1-", late);
    assert_string_not_equal(early, late);
    assert_int_not_equal(access(early, F_OK), 0); /* removed */
    later.config.epochs++;
    later.config.save = NULL;
    assert_int_equal(unlink(late), 0);
    assert_refused(&later, late, "No such file");
    assert_int_equal(rename(kept, late), 0);
    assert_refused(&later, late, "rank 1 saved this after step 5, for another checkpoint");
}

/* ---- Prev in a file -------------------------------------------------------------------------- */

/* What the codecs have in a checkpoint: bytes of the files of all ranks. */
static uint64_t bytes_of_states(void)
{
    char command[TEST_FOLDER_BYTES + 40];
    unsigned long long sum = 0;
    snprintf(command, sizeof command, "cat %s/codecs-* | wc -c", pipeline_folder);
    FILE *told = popen(command, "r");
    assert_int_equal(fscanf(told, "%llu", &sum), 1);
    pclose(told);
    return sum;
}

static pipeline begin_with_file(const char *name)
{
    static char file[TEST_FOLDER_BYTES + 40];
    pipeline run = a_coded_run("delta:bits=3", "direct:bits=3,feedback=ef");
    snprintf(file, sizeof file, "file:%s/%s", pipeline_folder, name ? name : "");
    run.config.state = name ? file : NULL;
    return run;
}

TEST_WITH(a_checkpoint_names_copies_in_the_file, pipeline_set_up, pipeline_tear_down)
{
    char index[TEST_FOLDER_BYTES + 40];
    uint64_t bytes[2];
    snprintf(index, sizeof index, "%s/prev.1.index", pipeline_folder);
    pipeline whole = begin_with_file(NULL), run;
    run_pipeline(&whole, 2, NULL);
    for (int i = 0; i < 2; i++) {
        run = begin_with_file(i ? "prev,cache=16KiB" : NULL);
        run_until_saved(&run, 2, SAVED_AFTER);
        bytes[i] = bytes_of_states();
    }
    print_message("states of codecs: %llu bytes, with --state %llu\n", (unsigned long long)bytes[0],
                  (unsigned long long)bytes[1]);
    assert_true(bytes[1] > 0 && bytes[1] < bytes[0] / 10);
    flip(index, 60);
    pipeline refused = run;
    refused.config.open_timeout_ms = 1000; /* rank 0 waits for rank 1 */
    run_pipeline(&refused, 2, NULL);
    assert_non_null(strstr(refused.ranks[1].why.text, "prev.1.index is damaged or cut short"));
    flip(index, 60);
    run.config.save = pipeline_folder; /* and save again, over what is gone on from */
    run.config.save_every = 1;
    run_counted(&run, 2);
    assert_goes_on(&whole, &run);
    assert_int_equal(key_entries + run.unused, 0);
}

/* The file of one rank is gone, or has snapshots of another run. Both ends of a boundary then begin
 * anew. */
TEST_WITH(a_file_that_is_gone_is_named, pipeline_set_up, pipeline_tear_down)
{
    pipeline run = begin_with_file("pr\xe9v"), other; /* not UTF-8 */
    const char *file = run.config.state;
    run_until_saved(&run, 2, SAVED_AFTER);
    run.config.state = NULL;
    assert_begins_anew(&run, 2, "rank 0 saved them in the file of --state, and this run has none");
    run.config.state = file;
    in_folder("rm pr?v.1 pr?v.1.index");
    assert_begins_anew(&run, 2, "--state of rank 1 does not have the snapshot that it saved");
    other = run;
    other.config.save = pipeline_folder;
    run_whole(&other, 2);
    other = begin_with_file("pr\xe9v");
    char saved[TEST_FOLDER_BYTES + 40];
    snprintf(saved, sizeof saved, "%s/other", pipeline_folder);
    other.config.save = saved;
    other.config.save_every = 1;
    run_whole(&other, 2);
    run.config.epochs++;
    assert_begins_anew(&run, 2, "--state of rank 0 does not have the snapshot that it saved");
}

/* Runs that use no states save over the checkpoint, and end before there is a new manifest. The
 * second one finds a snapshot that is newer than the one that the checkpoint names. */
TEST_WITH(the_snapshot_stays_until_there_is_a_new_manifest, pipeline_set_up, pipeline_tear_down)
{
    pipeline whole = begin_with_file(NULL), run = begin_with_file("prev"), other;
    run_pipeline(&whole, 2, NULL);
    run_until_saved(&run, 2, SAVED_AFTER);
    other = run;
    other.config.save = pipeline_folder;
    other.config.forward = "delta:bits=2";
    other.config.backward = "direct:bits=2,feedback=ef";
    in_folder("mkdir manifest-0.tmp manifest-1.tmp");
    for (int i = 0; i < 2; i++) {
        pipeline failing = other;
        run_pipeline(&failing, 2, NULL);
        assert_all(&failing, DW_ERR_IO);
    }
    in_folder("rmdir manifest-0.tmp manifest-1.tmp");
    run_counted(&run, 2);
    assert_goes_on(&whole, &run);
    assert_int_equal(key_entries + run.unused, 0);
}

/* Rank 0 has only copies of its encoder in the file, and this begins anew. */
TEST_WITH(copies_that_are_not_used_are_not_read, pipeline_set_up, pipeline_tear_down)
{
    pipeline run = begin_with_file("prev");
    run_until_saved(&run, 2, SAVED_AFTER);
    in_folder("dd if=/dev/zero of=prev.0 bs=4096 seek=1 count=99 conv=notrunc status=none");
    run_pipeline(&run, 2, NULL);
    assert_int_equal(run.ranks[0].status, DW_ERR_CORRUPT);
    run.config.forward = "delta:bits=2";
    assert_begins_anew(&run, 2, "what the forward codecs keep is not used");
}

/* A limit on the size of files has the same effect as a full disk. */
TEST_WITH(a_full_disk_keeps_the_old_checkpoint, pipeline_set_up, pipeline_tear_down)
{
    struct rlimit old, little;
    pipeline whole = a_coded_run("delta:bits=3", "delta:bits=4");
    whole.config.layers = 2;
    whole.config.channels = 16;
    pipeline run = whole, next;
    run_pipeline(&whole, 2, NULL);
    run_until_saved(&run, 2, SAVED_AFTER);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    little = old;
    static const rlim_t limits[] = {75000, 60000};
    for (int i = 0; i < 2; i++) {
        next = run;
        next.config.save = pipeline_folder;
        little.rlim_cur = limits[i];
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
        run_pipeline(&next, 2, NULL);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
        assert_all(&next, DW_ERR_IO);
        assert_non_null(strstr(next.ranks[0].why.text, "codecs-"));
        assert_non_null(strstr(next.ranks[1].why.text, "the checkpoint before it is untouched"));
    }
    run_pipeline(&run, 2, NULL);
    assert_goes_on(&whole, &run);
}

RUN_TESTS(NULL, NULL)
