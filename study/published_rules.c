/* SPDX-License-Identifier: Apache-2.0
 * published_rules.c - lets a program average gradients as the rule of a paper says (published.h),
 * in place of a codec. For LD_PRELOAD, with raw:f32 as the codec of the gradients; DW_RULE is the
 * rule. A codec and the paper's rule can so be compared in the same training.
 *
 * | DW_RULE             | what a rank sends                 | what is done to the mean           |
 * |---------------------|-----------------------------------|------------------------------------|
 * | cocktail            | the rule                          | the rule, with the same mask       |
 * | cocktail:0          | the rule, with a mask of its own  | the rule, with a mask of its own   |
 * | sparseloco:FADE:1   | the rule                          | nothing                            |
 * | sparseloco:FADE:2   | the rule                          | the rule                           |
 * | powersgd:RANK:WIDTH | everything                        | the rule, see published_powersgd   |
 *
 * CocktailSGD compresses in both directions, and its authors' program draws one mask for all ranks
 * and both directions of a step. The workers of SparseLoCo gather what each of them sends, so
 * nothing is compressed twice; with two ranks that is as many bytes as both hops of a group. FADE
 * is what the error is multiplied by at each visit, 0.95 in its paper. PowerSGD has one matrix for
 * each tensor; here the matrices are those of the codec lowrank, which are the pieces of a group,
 * so that both send as many bytes.
 *
 * Taken over from the library: the mean is that of floats, and is the same on all ranks. So is the
 * second error, which each rank keeps whole. One thread starts operations and waits for them. */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>

#include "deltawire/collective.h"
#include "published.h"

typedef enum rule { COCKTAIL, SPARSELOCO, POWERSGD, RULES } rule;
enum { SENDING, MEAN, HOPS };
enum { MOST_SLOTS = 1024, ALL_RANKS = 0xffff };

/* A slot, with its errors. q: of PowerSGD, one set of rows for each piece. y: what was started and
 * was not waited for. */
typedef struct slot {
    uint64_t number;
    uint32_t n, visits[HOPS];
    float *sent, *errors[HOPS], *q, *y;
} slot;

static struct {
    bool is_read;
    rule rule; /* RULES: none */
    double options[2];
    dw_group *group;
    uint32_t rank, ranks, piece;
    slot slots[MOST_SLOTS];
    uint32_t n_slots;
} state;

static _Noreturn void fail(const char *what)
{
    fprintf(stderr, "published_rules: %s\n", what);
    abort();
}

static void read_rule(void)
{
    static const char *const names[RULES] = {"cocktail", "sparseloco", "powersgd"};
    static const double usual[RULES][2] = {{1, 0}, {0.95, 1}, {4, 128}};
    const char *text = getenv("DW_RULE");
    char name[16] = "";
    state.is_read = true;
    state.rule = RULES;
    if (!text) return;
    (void)sscanf(text, "%15[a-z]", name);
    for (int i = 0; i < RULES; i++)
        if (strcmp(name, names[i]) == 0) state.rule = (rule)i;
    if (state.rule == RULES) fail("DW_RULE is not cocktail, sparseloco or powersgd");
    memcpy(state.options, usual[state.rule], sizeof state.options);
    (void)sscanf(text, "%*[a-z]:%lf:%lf", &state.options[0], &state.options[1]);
    if (state.rule == POWERSGD && !(state.options[0] >= 1 && state.options[1] >= 1))
        fail("the rank and the width of powersgd are 1 or more");
}

static void *next(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    if (!found) fail("the program does not use libdeltawire-net");
    return found;
}

static float *floats(uint64_t n)
{
    float *made = calloc(n ? n : 1, sizeof *made);
    if (!made) fail("out of memory");
    return made;
}

static slot *slot_of(uint64_t number)
{
    for (uint32_t i = 0; i < state.n_slots; i++)
        if (state.slots[i].number == number) return &state.slots[i];
    return NULL;
}

static uint32_t width(void)
{
    return (uint32_t)state.options[1];
}

static uint32_t rank_of_rule(void)
{
    return (uint32_t)state.options[0];
}

/* The number of pieces of a rank's part of n floats. */
static uint64_t pieces_of(uint64_t n)
{
    return (n + state.piece - 1) / state.piece;
}

static slot *new_slot(uint64_t number, uint64_t n)
{
    if (state.n_slots == MOST_SLOTS || n > UINT32_MAX) fail("too many slots, or too large ones");
    slot *made = &state.slots[state.n_slots++];
    *made = (slot){.number = number, .n = (uint32_t)n, .sent = floats(n)};
    for (int hop = 0; hop < HOPS; hop++) made->errors[hop] = floats(n);
    if (state.rule != POWERSGD) return made;
    uint64_t rows = (pieces_of(n) + state.ranks) * rank_of_rule();
    published_random random = {number};
    made->q = floats(rows * width());
    for (uint64_t i = 0; i < rows * width(); i++)
        for (int k = 0; k < 12; k++) made->q[i] += (float)published_uniform(&random) - 0.5f;
    return made;
}

/* The rule for each piece of the part of each rank. */
static void powersgd(const slot *of, const float *gradient, float *error)
{
    dw_status (*part)(uint64_t, uint32_t, uint32_t, uint64_t *, uint64_t *);
    float *q = of->q;
    *(void **)&part = next("dw_group_part");
    for (uint32_t r = 0; r < state.ranks; r++) {
        uint64_t begin, count;
        if (part(of->n, r, state.ranks, &begin, &count) < 0) fail("no part");
        for (uint64_t now; count > 0; begin += now, count -= now) {
            now = count < state.piece ? count : state.piece;
            published_powersgd(rank_of_rule(), width(), gradient + begin, error + begin, q,
                               of->sent + begin, (uint32_t)now);
            q += (size_t)rank_of_rule() * width();
        }
    }
}

/* Sets of->sent to what arrives of a gradient. The seed of cocktail is the same on all ranks and
 * hops, or, where ranks and hops draw apart, the same on all ranks in the second hop alone. */
static void apply(slot *of, int hop, const float *gradient)
{
    float *error = of->errors[hop];
    uint64_t seed = of->number << 32 | of->visits[hop]++;
    bool draws_apart = state.rule == COCKTAIL && state.options[0] == 0;
    if (draws_apart) seed |= (uint64_t)(hop == SENDING ? state.rank + 1 : ALL_RANKS) << 48;
    published_random random = {seed * UINT64_C(0xD6E8FEB86659FD93)};
    bool applies = state.rule == COCKTAIL;
    if (state.rule == SPARSELOCO) applies = hop == SENDING || state.options[1] == 2;
    if (state.rule == POWERSGD) applies = hop == MEAN;
    if (!applies)
        memcpy(of->sent, gradient, of->n * sizeof *gradient);
    else if (state.rule == COCKTAIL)
        published_cocktail(&random, gradient, error, of->sent, of->n);
    else if (state.rule == SPARSELOCO)
        published_sparseloco((float)state.options[0], gradient, error, of->sent, of->n);
    else
        powersgd(of, gradient, error);
}

/* ---- What the program calls ------------------------------------------------------------------ */

__attribute__((visibility("default"))) dw_status
dw_group_open(dw_group **group, const dw_group_config *config, dw_why *why)
{
    dw_status (*real)(dw_group **, const dw_group_config *, dw_why *);
    *(void **)&real = next("dw_group_open");
    dw_status status = real(group, config, why);
    if (!state.is_read) read_rule();
    if (status < 0 || state.rule == RULES) return status;
    if (state.group) fail("the program has more than one group");
    if (!config->piece) fail("the group has no length of pieces");
    state.group = *group;
    state.rank = config->rank;
    state.ranks = config->ranks;
    state.piece = config->piece;
    return status;
}

__attribute__((visibility("default"))) dw_status dw_group_start(dw_group *group,
                                                                const dw_group_job *job)
{
    dw_status (*real)(dw_group *, const dw_group_job *);
    *(void **)&real = next("dw_group_start");
    if (group != state.group) return real(group, job);
    if (job->operation != DW_ALL_REDUCE || job->dtype != DW_F32 || !job->mean || job->cuda)
        fail("the program computes something else than means of floats");
    slot *of = slot_of(job->slot);
    if (!of) of = new_slot(job->slot, job->n);
    if (of->n != job->n || of->y) fail("a slot has changed, or was not waited for");
    apply(of, SENDING, job->x);
    dw_group_job own = *job;
    own.x = of->sent;
    of->y = job->y;
    return real(group, &own);
}

__attribute__((visibility("default"))) dw_status dw_group_wait(dw_group *group, uint64_t number,
                                                               int timeout_ms)
{
    dw_status (*real)(dw_group *, uint64_t, int);
    *(void **)&real = next("dw_group_wait");
    dw_status status = real(group, number, timeout_ms);
    slot *of = group == state.group ? slot_of(number) : NULL;
    if (status != DW_OK || !of || !of->y) return status;
    apply(of, MEAN, of->y);
    memcpy(of->y, of->sent, of->n * sizeof *of->y);
    of->y = NULL;
    return status;
}
