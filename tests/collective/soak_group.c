/* SPDX-License-Identifier: Apache-2.0
 * soak_group.c - random all-reduces over links with random faults: messages that are lost, doubled,
 * reordered or damaged, wires that stall, ranks that die, leave, are late or disagree. Counts wrong
 * sums, pairs of ranks that returned OK with different bits, hangs, and errors that blame a rank to
 * which nothing has happened or that come too late; there must be none.
 *
 * soak_group [COUNT [SEED]]: at least COUNT all-reduces. Every world has a seed of its own, which
 * is printed if something is wrong. */
#include "group.h"
#include "group_model.h"
#include "group_rig.h"

enum { PIECE = 2048, FLOATS_MOST = 9000, ROUNDS_MOST = 40, AT_ONCE_MOST = 4, HANG_MS = 180000 };

/* LIMIT_MS: timeout_ms of the groups in which one rank has a fate other than FATE_NONE. LATE: every
 * error must come within so many times that limit. On a busy machine a healthy rank may be late,
 * too. A world that fails for this reason is run again with a limit four times as long. */
enum { LIMIT_MS = 1000, LATE = 3 };

typedef enum fate { FATE_NONE, FATE_DIES, FATE_LEAVES, FATE_IS_LATE, FATE_DISAGREES } fate;

/* Some operations that are in flight at the same time, and what each rank got. */
typedef struct round {
    uint32_t n;
    uint64_t length[AT_ONCE_MOST];
    int mean;
    float *x[RIG_MOST][AT_ONCE_MOST], *y[RIG_MOST][AT_ONCE_MOST];
    dw_status status[RIG_MOST][AT_ONCE_MOST];
} round_of_sums;

typedef struct world {
    uint64_t seed, state;
    group_rig rig;
    const char *codec;
    char uri[160];
    fate fate;
    uint32_t victim, doom; /* the rank that has this fate, and the round in which it has it */
    uint32_t rounds, limit_ms;
    _Atomic int64_t met_ns;     /* when the victim met its fate; 0: not yet */
    int64_t error_ns[RIG_MOST]; /* how long the first error took, see note_error */
    dw_status error[RIG_MOST];  /* the first error of each rank; 0: none */
    int is_unnoticed;           /* a rank was late and did not learn of it */
    round_of_sums round[ROUNDS_MOST];
} world;

static struct counts {
    uint64_t sums, ok, errors, wrong, different, hangs, changed, misnamed, late, repeated, worlds;
    double slowest; /* the longest time to an error, in limits of its group */
} counts;

static uint64_t draw(uint64_t *state, uint64_t below)
{
    *state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = *state;
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (z ^ (z >> 31)) % below;
}

/* ---- What a rank does ------------------------------------------------------------------------ */

/* The values that an output has before the operation. */
static const float untouched = -77.25f;

static dw_group_job job_of(const world *w, uint32_t round, uint32_t rank, uint32_t i)
{
    const round_of_sums *r = &w->round[round];
    dw_group_job job = {.struct_size = sizeof job,
                        .operation = DW_ALL_REDUCE,
                        .dtype = DW_F32,
                        .slot = i,
                        .n = r->length[i],
                        .x = r->x[rank][i],
                        .y = r->y[rank][i],
                        .mean = r->mean};
    return job;
}

/* Does not come before the others have given this rank up. */
static void come_late(world *w, uint32_t rank)
{
    int64_t end_ns = suite_now_ns() + (int64_t)w->limit_ms * (LATE + 1) * 1000000;
    while (rig_failed_rank(w->rig.group[rank]) < 0 && suite_now_ns() < end_ns) suite_sleep_ms(2);
    w->is_unnoticed = rig_failed_rank(w->rig.group[rank]) < 0;
}

/* Does what the fate of the world says to one rank. Returns whether this rank takes part in further
 * operations. */
static int meets_fate(world *w, uint32_t rank, dw_group_job *job)
{
    dw_group *group = w->rig.group[rank];
    w->met_ns = suite_now_ns();
    switch (w->fate) {
    case FATE_DIES:
        for (uint32_t r = 0; r < w->rig.ranks; r++)
            if (r != rank) dw_link_cancel(w->rig.links[rank][r]);
        return 0;
    case FATE_LEAVES:
        dw_group_close(group);
        w->rig.group[rank] = NULL;
        return 0;
    case FATE_IS_LATE: come_late(w, rank); return 1;
    case FATE_DISAGREES: job->n += 1 + draw(&w->state, 3000); return 1;
    default: return 1;
    }
}

/* Notes the first error of a rank. An operation waits for a rank from its own start, and for
 * nothing before the fate. */
static void note_error(world *w, uint32_t rank, dw_status status, int64_t start_ns)
{
    if (status >= 0 || w->error[rank] != DW_OK) return;
    int64_t met_ns = w->met_ns;
    w->error[rank] = status;
    w->error_ns[rank] = suite_now_ns() - (met_ns > start_ns ? met_ns : start_ns);
}

static void live(void *context, uint32_t rank)
{
    world *w = context;
    uint64_t state = w->seed * 31 + rank;
    for (uint32_t k = 0; k < w->rounds; k++) {
        round_of_sums *round = &w->round[k];
        int64_t start_ns = suite_now_ns();
        uint32_t first = (uint32_t)draw(&state, round->n);
        for (uint32_t i = 0; i < round->n; i++) {
            uint32_t slot = (first + i) % round->n;
            dw_group_job job = job_of(w, k, rank, slot);
            int is_doomed = w->fate != FATE_NONE && rank == w->victim && k == w->doom && i == 0;
            if (is_doomed && !meets_fate(w, rank, &job)) return;
            /* A rank that disagrees has a longer buffer than the others. */
            static _Thread_local float other[FLOATS_MOST + 4000];
            if (job.n != round->length[slot]) job.x = job.y = other;
            round->status[rank][slot] = dw_group_start(w->rig.group[rank], &job);
            note_error(w, rank, round->status[rank][slot], start_ns);
        }
        for (uint32_t i = 0; i < round->n; i++) {
            dw_status *status = &round->status[rank][i];
            if (*status != DW_OK) continue;
            *status = dw_group_wait(w->rig.group[rank], i, HANG_MS);
            if (*status == DW_PENDING) return;
            note_error(w, rank, *status, start_ns);
        }
        if (draw(&state, 8) == 0) suite_sleep_ms((int)draw(&state, 4));
    }
}

/* ---- Judgement ------------------------------------------------------------------------------- */

static void complain(const world *w, const char *what, uint32_t round, uint32_t slot, uint32_t rank)
{
    fprintf(stderr,
            "seed %llu, %s, %u ranks, %s, fate %d of rank %u: round %u, slot %u, rank %u: "
            "%s: %s\n",
            (unsigned long long)w->seed, w->uri, w->rig.ranks, w->codec, (int)w->fate, w->victim,
            round, slot, rank, what,
            w->rig.group[rank] ? dw_group_why(w->rig.group[rank], NULL) : "");
}

static int is_untouched(const float *y, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if (y[i] != untouched) return 0;
    return 1;
}

static void judge_slot(world *w, group_model *model, uint32_t k, uint32_t i)
{
    static float expected[FLOATS_MOST];
    round_of_sums *round = &w->round[k];
    dw_group_job job = job_of(w, k, 0, i);
    const void *x[RIG_MOST];
    size_t bytes = (size_t)job.n * sizeof(float);
    int ok = -1;
    for (uint32_t r = 0; r < w->rig.ranks; r++) x[r] = round->x[r][i];
    model->slot = i;
    model_all_reduce(model, &job, x, expected);
    counts.sums++;
    for (uint32_t r = 0; r < w->rig.ranks; r++) {
        dw_status status = round->status[r][i];
        int is_victim = w->fate != FATE_NONE && r == w->victim;
        if (status == DW_PENDING) {
            counts.hangs++;
            complain(w, "hangs", k, i, r);
        } else if (status == DW_OK && is_victim && w->fate == FATE_DISAGREES && k == w->doom) {
            continue; /* its result is in a buffer of its own (see live) */
        } else if (status == DW_OK) {
            counts.ok++;
            if (memcmp(round->y[r][i], expected, bytes) != 0) {
                counts.wrong++;
                complain(w, "a wrong sum", k, i, r);
            }
            if (ok >= 0 && memcmp(round->y[r][i], round->y[ok][i], bytes) != 0) {
                counts.different++;
                complain(w, "other bits than another rank", k, i, r);
            }
            ok = (int)r;
        } else {
            counts.errors++;
            if (!is_untouched(round->y[r][i], job.n)) {
                counts.changed++;
                complain(w, "the buffer has changed after an error", k, i, r);
            }
            if (w->fate == FATE_NONE) {
                counts.wrong++;
                complain(w, "an error without a reason", k, i, r);
            }
        }
    }
}

/* Whether what may have come of a busy machine is tried again with a longer limit. */
static int may_repeat(const world *w)
{
    return w->fate != FATE_NONE && 4 * w->limit_ms <= SUITE_LONGEST_LIMIT_MS;
}

/* Whether the error of a rank is the one that the fate must cause. A victim that dies may tell that
 * its links are lost as long as it has one, so what it reports may blame others, and what it finds
 * itself is of no concern. Of two ranks that disagree each may be the one that differs. */
static int is_due(const world *w, uint32_t rank, int named, const char *why)
{
    char victim[32], reports[32];
    snprintf(victim, sizeof victim, "rank %u ", w->victim);
    snprintf(reports, sizeof reports, "rank %u reports: ", w->victim);
    dw_status status = w->error[rank];
    switch (w->fate) {
    case FATE_DIES:
        if (rank == w->victim) return 1;
        if (strncmp(why, reports, strlen(reports)) == 0) return 1;
        return (status == DW_OK || status == DW_ERR_PEER) && named == (int)w->victim;
    case FATE_LEAVES: return (status == DW_OK || status == DW_ERR_PEER) && named == (int)w->victim;
    case FATE_IS_LATE:
        return (status == DW_OK || status == DW_ERR_TIMEOUT) && named == (int)w->victim;
    case FATE_DISAGREES:
        return (status == DW_OK || status == DW_ERR_MISMATCH) &&
               (named == (int)w->victim || strstr(why, victim));
    default: return 0;
    }
}

/* Every rank on which an operation failed must name a rank, and the victim where that is to blame.
 * Returns whether a rank has blamed one that was late only because the machine is busy. */
static int judge_names(const world *w)
{
    int is_busy = 0;
    for (uint32_t r = 0; r < w->rig.ranks; r++) {
        dw_group *group = w->rig.group[r];
        if (!group) continue;
        int named = rig_failed_rank(group);
        if (named < 0 && w->error[r] == DW_OK) continue;
        if (named >= 0 && named < (int)w->rig.ranks &&
            is_due(w, r, named, dw_group_why(group, NULL)))
            continue;
        if (named >= 0 && w->error[r] == DW_ERR_TIMEOUT && may_repeat(w)) {
            is_busy = 1;
            continue;
        }
        counts.misnamed++;
        complain(w, "blames another rank than the one to blame", 0, 0, r);
    }
    return is_busy;
}

/* Returns whether an error came so late that the world must be repeated. */
static int judge_times(const world *w)
{
    int is_late = w->is_unnoticed;
    double slowest = 0;
    for (uint32_t r = 0; r < w->rig.ranks; r++) {
        double limits = (double)w->error_ns[r] / 1e6 / w->limit_ms;
        if (limits > slowest) slowest = limits;
    }
    if (slowest > LATE) is_late = 1;
    if (is_late && may_repeat(w)) return 1;
    if (slowest > counts.slowest) counts.slowest = slowest;
    if (!is_late) return 0;
    counts.late++;
    complain(w, "an error came too late or never", 0, 0, w->victim);
    return 0;
}

/* ---- Worlds ---------------------------------------------------------------------------------- */

static void choose(world *w)
{
    static const char *const codecs[] = {"raw:f32", "direct:bits=4", "delta:bits=4",
                                         "direct:form=step,group=128,entropy=rans",
                                         "direct:bits=2,feedback=ef"};
    static const char *const faults[] = {"loss=4%",
                                         "duplicate=6%",
                                         "corrupt=4%",
                                         "reorder=5%:3ms",
                                         "stall=3%:20ms",
                                         "loss=3%,duplicate=3%,corrupt=3%,reorder=3%:3ms",
                                         NULL,
                                         NULL};
    w->codec = codecs[draw(&w->state, 5)];
    const char *fault = faults[draw(&w->state, 8)];
    const char *wire = draw(&w->state, 4) ? "loop://soak-%d" : "tcp://127.0.0.1:0";
    if (fault)
        snprintf(w->uri, sizeof w->uri, "shaped:%s,seed=%u/%s", fault,
                 (unsigned)draw(&w->state, 1000000) + 1, wire);
    else
        snprintf(w->uri, sizeof w->uri, "%s", wire);
    /* In half of the worlds nothing happens to any rank, so every sum must be right. In few worlds
     * a rank is late, because that takes time. */
    static const fate fates[] = {FATE_NONE, FATE_NONE,   FATE_NONE,
                                 FATE_DIES, FATE_LEAVES, FATE_DISAGREES};
    w->fate = draw(&w->state, 24) ? fates[draw(&w->state, 6)] : FATE_IS_LATE;
}

static void fill(world *w)
{
    uint32_t ranks = w->rig.ranks;
    for (uint32_t k = 0; k < w->rounds; k++) {
        round_of_sums *round = &w->round[k];
        round->n = 1 + (uint32_t)draw(&w->state, AT_ONCE_MOST);
        round->mean = (int)draw(&w->state, 2);
        for (uint32_t i = 0; i < round->n; i++) {
            /* Most lengths are the same in every round, for codecs that keep state of a slot. */
            uint64_t length = draw(&w->state, 4) ? 2000 * i + 300 : draw(&w->state, FLOATS_MOST);
            round->length[i] = length;
            for (uint32_t r = 0; r < ranks; r++) {
                round->status[r][i] = DW_ERR_CANCELLED; /* stays if the rank does not get there */
                round->x[r][i] = malloc(FLOATS_MOST * sizeof(float));
                round->y[r][i] = malloc(FLOATS_MOST * sizeof(float));
                for (int e = 0; e < FLOATS_MOST; e++) {
                    round->x[r][i][e] = ((float)draw(&w->state, 20001) - 10000.0f) * 1e-3f;
                    round->y[r][i][e] = untouched;
                }
            }
        }
    }
}

static void free_buffers(world *w)
{
    for (uint32_t k = 0; k < w->rounds; k++) {
        for (uint32_t i = 0; i < w->round[k].n; i++) {
            for (uint32_t r = 0; r < w->rig.ranks; r++) {
                free(w->round[k].x[r][i]);
                free(w->round[k].y[r][i]);
            }
        }
    }
}

/* limit_ms: timeout_ms of groups in which one rank has a fate. Returns whether the world must be
 * repeated with a longer limit. */
static int run_world(uint64_t seed, uint32_t limit_ms)
{
    static world w;
    memset(&w, 0, sizeof w);
    w.seed = w.state = seed;
    w.limit_ms = limit_ms;
    choose(&w);
    uint32_t ranks = 2 + (uint32_t)draw(&w.state, 3);
    w.rounds = 1 + (uint32_t)draw(&w.state, ROUNDS_MOST);
    w.victim = (uint32_t)draw(&w.state, ranks);
    w.doom = (uint32_t)draw(&w.state, w.rounds);
    rig_link(&w.rig, w.uri, ranks, w.codec, NULL);
    /* Half of the worlds take every operation for a large one, and no copies of messages. */
    dw_group_thresholds usual = dw_group_all_thresholds;
    if (seed / 3 % 2) dw_group_all_thresholds = (dw_group_thresholds){0, 0, 0};
    uint32_t hops = seed % 3 ? 2 : 1; /* not drawn, so that worlds stay what they were */
    for (uint32_t r = 0; r < ranks; r++) {
        w.rig.config[r].hops = hops;
        w.rig.config[r].verify = seed % 4 == 0;
        if (w.fate != FATE_NONE) w.rig.config[r].timeout_ms = limit_ms;
    }
    rig_open(&w.rig);
    dw_group_all_thresholds = usual;
    fill(&w);
    rig_each(&w.rig, live, &w);
    group_model model;
    model_create(&model, ranks, PIECE, 0, w.codec, NULL);
    model.hops = hops;
    for (uint32_t k = 0; k < w.rounds; k++)
        for (uint32_t i = 0; i < w.round[k].n; i++) judge_slot(&w, &model, k, i);
    int again = judge_names(&w);
    again = judge_times(&w) || again;
    model_destroy(&model);
    rig_close(&w.rig);
    free_buffers(&w);
    counts.worlds++;
    return again;
}

static void random_groups_with_faults_give_no_wrong_sum(void **state)
{
    uint64_t *arguments = *state;
    for (uint64_t seed = arguments[1]; counts.sums < arguments[0]; seed++)
        for (uint32_t limit = LIMIT_MS; run_world(seed, limit); limit *= 4) counts.repeated++;
    printf("%llu all-reduces in %llu worlds: %llu results, %llu errors; %llu wrong sums, %llu "
           "different, %llu hangs, %llu buffers changed, %llu blame another rank, %llu too late; "
           "the slowest error took %.2f of the limit, and %llu worlds were repeated\n",
           (unsigned long long)counts.sums, (unsigned long long)counts.worlds,
           (unsigned long long)counts.ok, (unsigned long long)counts.errors,
           (unsigned long long)counts.wrong, (unsigned long long)counts.different,
           (unsigned long long)counts.hangs, (unsigned long long)counts.changed,
           (unsigned long long)counts.misnamed, (unsigned long long)counts.late, counts.slowest,
           (unsigned long long)counts.repeated);
    assert_int_equal(counts.wrong + counts.different + counts.hangs + counts.changed +
                         counts.misnamed + counts.late,
                     0);
}

int main(int argc, char **argv)
{
    uint64_t arguments[2] = {argc > 1 ? strtoull(argv[1], NULL, 10) : 400,
                             argc > 2 ? strtoull(argv[2], NULL, 10) : 1};
    const struct CMUnitTest tests[] = {{.name = "random_groups_with_faults_give_no_wrong_sum",
                                        .test_func = random_groups_with_faults_give_no_wrong_sum,
                                        .initial_state = arguments}};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
