/* SPDX-License-Identifier: Apache-2.0
 * group_rig.c - all ranks of a group in one process. */
#include "group_rig.h"

uint32_t rig_verifies;

typedef struct worker {
    void (*work)(void *context, uint32_t rank);
    void *context;
    uint32_t rank;
} worker;

static void *do_work(void *context)
{
    worker *me = context;
    me->work(me->context, me->rank);
    return NULL;
}

void rig_each(const group_rig *rig, void (*work)(void *context, uint32_t rank), void *context)
{
    pthread_t threads[RIG_MOST];
    worker workers[RIG_MOST];
    /* Small stacks: where the system gives huge pages, a large one costs more than an operation. */
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 256 << 10);
    for (uint32_t r = 0; r < rig->ranks; r++) {
        workers[r] = (worker){work, context, r};
        assert_int_equal(pthread_create(&threads[r], &small, do_work, &workers[r]), 0);
    }
    for (uint32_t r = 0; r < rig->ranks; r++) pthread_join(threads[r], NULL);
    pthread_attr_destroy(&small);
}

/* prefix: of the URI at both ends; NULL: none. */
static void open_pair(group_rig *rig, uint32_t low, uint32_t high, const char *prefix)
{
    static suite_backend backend; /* of all pairs */
    suite_pair *pair = &rig->pairs[low][high];
    backend = (suite_backend){.name = "group", .uri = rig->uri};
    suite_prepare(pair, &backend);
    pair->prefix[0] = pair->prefix[1] = prefix;
    suite_open(pair);
    rig->links[low][high] = pair->link[SUITE_LISTENER];
    rig->links[high][low] = pair->link[SUITE_CONNECTOR];
}

void rig_link_again(group_rig *rig, uint32_t low, uint32_t high, const char *prefix)
{
    suite_close(&rig->pairs[low][high]);
    open_pair(rig, low, high, prefix);
}

void rig_link(group_rig *rig, const char *uri, uint32_t ranks, const char *codec,
              const char *result)
{
    memset(rig, 0, sizeof *rig);
    rig->ranks = ranks;
    rig->uri = uri;
    for (uint32_t low = 0; low < ranks; low++)
        for (uint32_t high = low + 1; high < ranks; high++) open_pair(rig, low, high, NULL);
    for (uint32_t r = 0; r < ranks; r++) {
        assert_int_equal(dw_config_parse(&rig->codec[r], codec, NULL), DW_OK);
        assert_int_equal(dw_config_parse(&rig->result[r], result ? result : codec, NULL), DW_OK);
        rig->config[r] = (dw_group_config){.struct_size = sizeof rig->config[r],
                                           .id = 7,
                                           .rank = r,
                                           .ranks = ranks,
                                           .links = rig->links[r],
                                           .codec = &rig->codec[r],
                                           .result = &rig->result[r],
                                           .verify = rig_verifies,
                                           .piece = 2048};
    }
}

static void open_one(void *context, uint32_t rank)
{
    group_rig *rig = context;
    rig->status[rank] = dw_group_open(&rig->group[rank], &rig->config[rank], &rig->why[rank]);
}

void rig_try_open(group_rig *rig)
{
    rig_each(rig, open_one, rig);
}

void rig_open(group_rig *rig)
{
    rig_try_open(rig);
    for (uint32_t r = 0; r < rig->ranks; r++)
        if (rig->status[r] != DW_OK)
            fail_msg("opening rank %u gave %d: %s", r, (int)rig->status[r], rig->why[r].text);
}

void rig_start(group_rig *rig, const char *uri, uint32_t ranks, const char *codec)
{
    rig_link(rig, uri, ranks, codec, NULL);
    rig_open(rig);
}

void rig_start_hops(group_rig *rig, const char *uri, uint32_t ranks, const char *codec,
                    uint32_t hops)
{
    rig_link(rig, uri, ranks, codec, NULL);
    for (uint32_t r = 0; r < ranks; r++) rig->config[r].hops = hops;
    rig_open(rig);
}

void rig_spoil_link(group_rig *rig, uint32_t low, uint32_t high, suite_pair *pair, const char *uri,
                    suite_spoiler spoiler)
{
    static const dw_transport *const spoiled[] = {&suite_spoiled, NULL};
    static suite_backend backend;
    backend = (suite_backend){.name = "spoiled", .uri = uri, .transports = spoiled};
    suite_set_spoiler(&spoiler);
    suite_prepare(pair, &backend);
    pair->prefix[SUITE_LISTENER] = "spoiled:";
    suite_open(pair);
    suite_set_spoiler(NULL);
    rig->links[low][high] = pair->link[SUITE_LISTENER];
    rig->links[high][low] = pair->link[SUITE_CONNECTOR];
}

static void close_one(void *context, uint32_t rank)
{
    group_rig *rig = context;
    dw_group_close(rig->group[rank]);
    rig->group[rank] = NULL;
}

void rig_close_groups(group_rig *rig)
{
    rig_each(rig, close_one, rig);
}

void rig_close(group_rig *rig)
{
    rig_close_groups(rig);
    for (uint32_t low = 0; low < rig->ranks; low++)
        for (uint32_t high = low + 1; high < rig->ranks; high++)
            suite_close(&rig->pairs[low][high]);
}

static void run_one(void *context, uint32_t rank)
{
    rig_deed *deed = context;
    deed->job[rank].struct_size = sizeof deed->job[rank];
    deed->status[rank] = dw_group_run(deed->rig->group[rank], &deed->job[rank], RIG_PATIENCE_MS);
}

void rig_run(rig_deed *deed)
{
    rig_each(deed->rig, run_one, deed);
}

void rig_all_well(const group_rig *rig, const dw_status status[RIG_MOST])
{
    for (uint32_t r = 0; r < rig->ranks; r++)
        if (status[r] != DW_OK)
            fail_msg("rank %u: %d: %s", r, (int)status[r], dw_group_why(rig->group[r], NULL));
}

void rig_run_well(rig_deed *deed)
{
    rig_run(deed);
    rig_all_well(deed->rig, deed->status);
}

/* ---- Buffers --------------------------------------------------------------------------------- */

static uint64_t next_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 33;
}

static float draw(uint64_t *state)
{
    return ((float)(next_random(state) % 20001) - 10000.0f) * 1e-3f;
}

void rig_fill(void *at, dw_dtype dtype, uint64_t n, uint64_t seed)
{
    uint64_t state = seed * 77 + 5;
    for (uint64_t i = 0; i < n; i++) {
        float value = draw(&state);
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        if (dtype == DW_F32) ((float *)at)[i] = value;
        if (dtype == DW_BF16) ((uint16_t *)at)[i] = (uint16_t)(bits >> 16);
        /* A number of binary16 between 1 and 2, with a random sign. */
        if (dtype == DW_F16)
            ((uint16_t *)at)[i] = (uint16_t)(0x3c00 | (bits >> 13 & 0x3ff) | (bits >> 16 & 0x8000));
    }
}

/* ---- Memory ---------------------------------------------------------------------------------- */

atomic_long rig_calls, rig_refused_call = -1, rig_live_bytes, rig_wrong_sizes;

static void *take(void *context, size_t bytes, size_t alignment)
{
    if (atomic_fetch_add(&rig_calls, 1) == atomic_load(&rig_refused_call)) return NULL;
    unsigned char *memory = aligned_alloc(64, (bytes + 64 + alignment - 1) / 64 * 64 + 64);
    memcpy(memory, &bytes, sizeof bytes);
    atomic_fetch_add(&rig_live_bytes, (long)bytes);
    memset(memory + 64, 0xa5, bytes);
    return memory + 64;
}

static void give(void *context, void *memory, size_t bytes)
{
    size_t had;
    memcpy(&had, (unsigned char *)memory - 64, sizeof had);
    if (had != bytes) atomic_fetch_add(&rig_wrong_sizes, 1);
    atomic_fetch_sub(&rig_live_bytes, (long)had);
    free((unsigned char *)memory - 64);
}

dw_allocator rig_allocator(void)
{
    return (dw_allocator){take, give, NULL};
}
