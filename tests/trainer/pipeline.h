/* SPDX-License-Identifier: Apache-2.0
 * pipeline.h - complete runs of the trainer in one process, for tests: every rank is a thread with
 * links of its own over tcp on loopback. Includes what every test needs. */
#ifndef DW_TEST_PIPELINE_H
#define DW_TEST_PIPELINE_H

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "deltawire/trainer.h"
#include "stage.h"
#include "support/folder.h"
#include "support/test.h"

enum { STAGES_MAX = 4, RANKS_MAX = 6, STEPS_MAX = 40 };

extern char pipeline_text[80], pipeline_folder[TEST_FOLDER_BYTES];

typedef struct pipeline pipeline;

typedef struct rank {
    pipeline *run;
    uint32_t index;
    dw_train_config config;
    dw_status status;
    dw_why why;
    volatile int stop;
    void *(*run_instead)(void *rank); /* in place of dw_train; NULL: none */
    char listening[256];
    pthread_t thread;
} rank;

struct pipeline {
    uint32_t stages, n_ranks;
    dw_train_config config;
    rank ranks[RANKS_MAX];
    uint32_t stop_at_step, stop_rank;       /* this rank stops at this step; 0: never */
    bool kill_at_save;                      /* the whole process, when rank 0 says that it saved */
    void (*work)(dw_stage *stage, rank *r); /* of run_at_stages */
    pthread_mutex_t lock;
    pthread_cond_t told;
    /* What the callbacks of rank 0 reported. */
    uint32_t steps, evals, saves;
    uint32_t unused; /* how often a rank said that what a checkpoint has does not fit, and why */
    char unused_why[1024];
    double loss[STEPS_MAX], norm[STEPS_MAX], held_out[STEPS_MAX], plain[STEPS_MAX];
    dw_train_cost so_far[STEPS_MAX];
    dw_train_summary summary;
    dw_train_cost costs[RANKS_MAX];
};

/* A small run that uses everything: an uneven last evaluation, shuffling, clipping, warm-up. */
pipeline a_run(void);
/* A run of 9 steps with codecs. Each sample comes three times: in steps 1 to 3, 4 to 6, 7 to 9. */
pipeline a_coded_run(const char *forward, const char *backward);

/* Runs all stages, of config.replicas replicas if that is not 0. `change`, if not NULL, may give a
 * rank other settings. */
void run_pipeline(pipeline *run, uint32_t stages, void (*change)(rank *));
/* Runs all stages. The test fails unless all ranks succeed. */
void run_whole(pipeline *run, uint32_t stages);
/* Runs all stages. The test fails unless all ranks end with this status, and the error of `rank`
 * contains the sentence. */
void run_refused(pipeline *run, uint32_t stages, dw_status status, uint32_t rank,
                 const char *sentence);
/* Runs all stages until the step after the first save, and stops them there. The next run of this
 * pipeline resumes from what was saved. */
void run_until_saved(pipeline *run, uint32_t stages, uint32_t save_after);

/* The hook on_listening of a rank, for tests that give it something else to do. */
void note_listening(void *rank, const char *uri);

/* Runs the pipeline once for each rank, and lets that rank be asked to stop at step 3. Fails the
 * test unless all ranks then end, and say who was asked. */
void assert_a_stop_ends(pipeline *run, uint32_t stages);

/* Runs it again, saves after so many steps and is stopped in the next one, and resumes. Fails the
 * test unless all that follows has the bits of the whole run. Returns the resumed run; the
 * checkpoint stays in pipeline_folder. */
pipeline assert_resumes(const pipeline *whole, uint32_t stages, uint32_t save_after);

/* For run_pipeline: each rank saves into a folder of its own. Part files are named by their
 * digests, so equal manifests mean equal parameters. assert_same_manifests leaves them in the text.
 */
enum { MANIFEST_BYTES = 4096 };
void in_a_folder_of_its_own(rank *r);
void assert_same_manifests(const pipeline *run, char text[MANIFEST_BYTES]);

/* In place of training each rank only opens its stage, with a model of seed 1, and calls work.
 * Nobody leaves before all have done so. */
void run_at_stages(pipeline *run, uint32_t stages, void (*work)(dw_stage *stage, rank *r));

/* Fails the test unless every rank has ended with this status. */
void assert_all(const pipeline *run, dw_status status);

/* Fails the test unless all losses and norms are the same to the bit. */
void assert_same_run(const pipeline *a, const pipeline *b);

/* Make and remove a temporary folder with the text that a_run trains on. */
int pipeline_set_up(void **state);
int pipeline_tear_down(void **state);

#endif
