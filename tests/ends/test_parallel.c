/* SPDX-License-Identifier: Apache-2.0
 * test_parallel.c - a parallel_for in the config changes no bit of the results, whether it runs the
 * pieces in reverse order, in threads, or in threads that have another rounding mode. */
#include <fenv.h>
#include <pthread.h>

#include "engine/work.h"
#include "support/tool.h"

/* Threads that take chunks from a shared counter. Each thread starts in the given rounding mode. */
typedef struct crew {
    int threads, rounding;
    long calls;
} crew;

typedef struct shift {
    pthread_mutex_t lock;
    size_t next, n;
    dw_task *task;
    void *context;
    int rounding;
} shift;

static void *work(void *argument)
{
    shift *s = argument;
    fesetround(s->rounding);
    for (;;) {
        pthread_mutex_lock(&s->lock);
        size_t i = s->next++;
        pthread_mutex_unlock(&s->lock);
        if (i >= s->n) return NULL;
        s->task(s->context, i);
    }
}

static void in_threads(void *context, size_t n, dw_task *task, void *task_context)
{
    crew *c = context;
    shift s = {.lock = PTHREAD_MUTEX_INITIALIZER,
               .n = n,
               .task = task,
               .context = task_context,
               .rounding = c->rounding};
    pthread_t threads[8];
    c->calls++;
    for (int i = 0; i < c->threads; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, &s), 0);
    for (int i = 0; i < c->threads; i++) pthread_join(threads[i], NULL);
}

static void backwards(void *context, size_t n, dw_task *task, void *task_context)
{
    crew *c = context;
    c->calls++;
    for (size_t i = n; i-- > 0;) task(task_context, i);
}

typedef struct party {
    test_pair pair;
    crew crew;
} party;

static void open_party(party *p, const char *config, const dw_tensor *x, int kind)
{
    test_pair_open(&p->pair, config, x->n, x->t, x->c, x->dtype);
    p->crew = (crew){3, kind == 2 ? FE_UPWARD : FE_TONEAREST, 0};
    if (kind == 0) return;
    p->pair.host.parallel_for = kind == 3 ? backwards : in_threads;
    p->pair.host.parallel_context = &p->crew;
    dw_encoder_destroy(p->pair.encoder);
    dw_decoder_destroy(p->pair.decoder);
    assert_int_equal(dw_encoder_create(&p->pair.encoder, &p->pair.config, &p->pair.host, NULL),
                     DW_OK);
    assert_int_equal(dw_decoder_create(&p->pair.decoder, &p->pair.config, &p->pair.host, NULL),
                     DW_OK);
}

static void same(const void *a, const void *b, size_t n, const char *what, const char *config)
{
    if (memcmp(a, b, n) != 0) fail_msg("%s: other %s", config, what);
}

enum { N = 2, VISITS = 3 };

/* Sends the same samples, visit by visit, through one pair of ends without threads and one with
 * threads, and compares frames, y, prev and counters. */
static void compare(const char *config, uint32_t t, uint32_t c, dw_dtype dtype, int kind,
                    int strided)
{
    test_random random = {test_seed()};
    size_t n = (size_t)N * t * c, room = n + (size_t)N * t * 8;
    void *data = malloc(room * 4), *ys[2] = {calloc(room, 4), calloc(room, 4)};
    dw_key keys[N] = {{7, 0}, {9, 1}};
    party plain, threaded;
    assert_true(data && ys[0] && ys[1]);
    dw_tensor x = dw_tensor_3d(data, dtype, N, t, c);
    if (strided) x.stride_t = c + 8, x.stride_n = (int64_t)t * x.stride_t;
    open_party(&plain, config, &x, 0);
    open_party(&threaded, config, &x, kind);
    for (int visit = 0; visit < VISITS; visit++) {
        test_fill(&random, data, dtype, room, 1);
        if (visit == 1) test_spoil(&random, data, dtype, room, true);
        test_pair_encode(&plain.pair, keys, &x);
        test_pair_encode(&threaded.pair, keys, &x);
        assert_int_equal(plain.pair.len, threaded.pair.len);
        same(plain.pair.frame, threaded.pair.frame, plain.pair.len, "frame", config);
        dw_tensor y = x;
        y.data = ys[0];
        assert_int_equal(test_pair_decode(&plain.pair, &y), DW_OK);
        y.data = ys[1];
        assert_int_equal(test_pair_decode(&threaded.pair, &y), DW_OK);
        same(ys[0], ys[1], room * 4, "y", config);
        for (int i = 0; i < N && plain.pair.config.codec == DW_CODEC_DELTA; i++)
            test_pair_in_step(&threaded.pair, keys[i]);
    }
    dw_counters a = test_encoder_counters(plain.pair.encoder),
                b = test_encoder_counters(threaded.pair.encoder);
    same(&a, &b, sizeof a, "counters of the encoder", config);
    a = test_decoder_counters(plain.pair.decoder), b = test_decoder_counters(threaded.pair.decoder);
    same(&a, &b, sizeof a, "counters of the decoder", config);
    assert_true(threaded.crew.calls >= 2 * VISITS);
    test_pair_close(&plain.pair);
    test_pair_close(&threaded.pair);
    free(data), free(ys[0]), free(ys[1]);
}

static uint32_t share; /* one case in so many is run */

TEST(threads_change_no_bit)
{
    static const struct {
        const char *config;
        uint32_t t, c;
        dw_dtype x;
        int strided;
    } cases[] = {
        {"delta:bits=4,incarnation=7", 70, 1024, DW_F32, 0},
        {"delta:bits=4,prev=8,incarnation=7", 90, 1000, DW_F32, 1},
        /* With this shape, chunks end inside stretches. */
        {"delta:bits=4,incarnation=7,audit=3", 90, 1000, DW_F32, 1},
        {"delta:bits=3,group=row,incarnation=7", 80, 1600, DW_BF16, 0},
        {"delta:bits=2,group=row,scale=mse,incarnation=7,audit=2", 21, 5000, DW_F32, 0},
        {"delta:bits=1,group=32,incarnation=7", 2000, 70, DW_F16, 0},
        {"delta:bits=4,group=channel,incarnation=7", 40, 700, DW_F32, 1},
        {"delta:bits=3,group=channel,scale=mse,incarnation=7", 9, 4500, DW_BF16, 0},
        {"delta:bits=4,rounding=stochastic,incarnation=7", 90, 999, DW_F32, 0},
        {"delta:bits=4,key=raw,incarnation=7", 64, 1024, DW_F32, 0},
        {"direct:bits=6,group=256,incarnation=7", 70, 1024, DW_F32, 1},
        {"direct:bits=4,rounding=stochastic,group=channel,seed=3,incarnation=7", 70, 1024, DW_BF16,
         0},
        {"delta:form=mx,incarnation=7", 70, 1024, DW_F32, 0},
        {"delta:form=mx,element=e2m3,audit=3,incarnation=7", 90, 1000, DW_F32, 1},
        {"mx:incarnation=7", 90, 1000, DW_BF16, 1},
        {"raw:incarnation=7", 70, 1024, DW_F32, 0},
        {"delta:form=step,group=sample,incarnation=7", 90, 1000, DW_F32, 1},
        {"delta:form=step,group=sample,rounding=dither,incarnation=7,audit=3", 70, 1024, DW_BF16,
         0},
        {"delta:form=step,group=row,rounding=stochastic,incarnation=7", 21, 5000, DW_F32, 0},
        {"direct:form=step,group=sample,rounding=dither,incarnation=7", 30, 4500, DW_F16, 1},
        {"direct:form=step,group=64,incarnation=7", 70, 1024, DW_F32, 0},
        {"delta:form=step,group=sample,error=0.2,incarnation=7", 90, 1000, DW_F32, 1},
        {"delta:form=step,group=sample,entropy=rans,skip=0.01,incarnation=7", 90, 1000, DW_F32, 1},
        {"delta:form=step,group=sample,rounding=dither,entropy=rans,incarnation=7", 21, 5000,
         DW_BF16, 0},
        {"delta:form=step,group=sample,rounding=trellis,entropy=rans,incarnation=7", 21, 5000,
         DW_BF16, 0},
        {"direct:form=step,group=row,rounding=trellis,entropy=rans,incarnation=7", 90, 1000, DW_F32,
         1},
        {"direct:bits=3,group=row,entropy=rans,incarnation=7", 90, 1000, DW_F32, 1},
        {"mx:element=e4m3,entropy=rans,incarnation=7", 70, 1024, DW_F16, 0},
        {"blocks:incarnation=7", 140, 1000, DW_F32, 1},
        {"blocks:codebook=quantile,incarnation=7", 140, 1024, DW_BF16, 0},
        {"delta:bits=3,group=16,transform=hadamard,rotate=256,incarnation=7", 70, 1024, DW_BF16, 1},
        {"delta:form=step,group=sample,entropy=rans,transform=hadamard,incarnation=7", 21, 4992,
         DW_F32, 0},
        {"tah:incarnation=7", 70, 1024, DW_F32, 1},
        {"tah:tile=16,share=0.5,incarnation=7", 300, 96, DW_BF16, 0},
        {"topk:keep=0.05,incarnation=7", 90, 1000, DW_F32, 1},
        {"topk:keep=0.1,bits=4,rounding=stochastic,incarnation=7", 70, 1024, DW_BF16, 0},
        {"randk:keep=0.1,scaling=unbiased,incarnation=7", 90, 1000, DW_F32, 1},
        {"cocktail:incarnation=7", 90, 1000, DW_F32, 1},
        {"chunk:chunk=1024,keep=0.05,incarnation=7", 90, 1000, DW_BF16, 1},
        {"chunk:element=e4m3,incarnation=7", 70, 1024, DW_F32, 0},
        {"lowrank:rank=3,incarnation=7", 90, 1000, DW_F32, 1},
        {"lowrank:rank=2,bits=8,incarnation=7", 70, 1024, DW_BF16, 0},
    };
    test_random random = {test_seed()};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int kind = 1; kind <= 3; kind++)
            if (test_next(&random) % share == 0)
                compare(cases[i].config, cases[i].t, cases[i].c, cases[i].x, kind,
                        cases[i].strided);
}

/* With a single chunk no other thread is woken. */
TEST(small_tensors_stay_in_their_thread)
{
    float data[64 * 64] = {1};
    dw_key key = {1, 0};
    dw_tensor x = dw_tensor_3d(data, DW_F32, 1, 64, 64);
    party p;
    open_party(&p, "delta:bits=4", &x, 3);
    test_pair_pass(&p.pair, &key, &x, &x);
    assert_int_equal(p.crew.calls, 0);
    test_pair_close(&p.pair);
}

TEST(chunks_that_run_at_the_same_time_have_scratch_areas_of_their_own)
{
    enum { CHUNKS = DW_SHARED_AREAS + 6 };
    dw_allocator allocator = dw_mem_allocator(NULL);
    dw_work work = {0};
    assert_true(dw_work_begin(&work, &allocator, 1));
    dw_work_put(&work, CHUNKS);
    assert_true(dw_work_ready(&work, &allocator));
    for (uint64_t i = 0; i < CHUNKS; i++) {
        uint64_t area = dw_work_take_area(&work, 0, i);
        assert_int_equal(area, i < DW_SHARED_AREAS ? i : DW_SHARED_AREAS + i);
        assert_true(area < dw_areas(CHUNKS));
    }
    dw_work_give_area(&work, 0, 2 * DW_SHARED_AREAS); /* nobody else can have it */
    dw_work_give_area(&work, 0, 5);
    assert_int_equal(dw_work_take_area(&work, 0, 7), 5);
    assert_int_equal(dw_work_take_area(&work, 0, 7), DW_SHARED_AREAS + 7);
    dw_work_release(&work, &allocator);
}

/* A payload is digested in parts, and a change in any of them must be found. Then the decoder
 * digests its copy as a whole, and names it in its reply if the sums are equal: so the next frame
 * is a delta again. With this shape, chunks end inside stretches. */
TEST(a_flipped_bit_anywhere_is_found_by_threads_too)
{
    enum { T = 90, C = 1000 };
    float *data = malloc((size_t)T * C * 4);
    dw_key key = {1, 0};
    test_random random = {test_seed()};
    party p;
    assert_non_null(data);
    test_fill(&random, data, DW_F32, (size_t)T * C, 1);
    dw_tensor x = dw_tensor_3d(data, DW_F32, 1, T, C);
    open_party(&p, "delta:bits=4,key=4", &x, 1);
    test_pair_pass(&p.pair, &key, &x, &x);
    test_pair_encode(&p.pair, &key, &x);
    for (size_t at = 128; at < p.pair.len; at += 1 + p.pair.len / 50) {
        p.pair.frame[at] ^= 4;
        assert_int_equal(test_pair_decode(&p.pair, &x), DW_ERR_CORRUPT);
        p.pair.frame[at] ^= 4;
    }
    test_pair_take_reply(&p.pair);
    test_pair_pass(&p.pair, &key, &x, &x);
    assert_int_equal(test_encoder_counters(p.pair.encoder).key_entries, 1);
    test_pair_close(&p.pair);
    free(data);
}

int main(int argc, char **argv)
{
    share = test_share(argc, argv);
    return test_run(NULL, NULL);
}
