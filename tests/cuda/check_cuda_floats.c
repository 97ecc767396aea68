/* SPDX-License-Identifier: Apache-2.0
 * check_cuda_floats.c - compares the kernels for floats, executed on the CPU, with the C engine:
 * payloads, new prev, y, digests and counts, byte by byte.
 *
 * check_cuda_floats [--share N]: only one in N of the random draws. Every message runs twice, the
 * second time with blocks and threads from the last to the first. */
#include "codecs/plan.h"
#include "emulated.h"
#include "kernels/kernels.h"
#include "message.h"
#include "support/tool.h"

enum { PARTS = 3, DRAWS = 1500, GUARD = 64 };
static int share = 1;
static test_random source;

/* What an entry does with a sample. */
typedef enum role { STATELESS, KEY, SYNC } role;

typedef struct sample {
    role role;
    dw_dtype x_dtype, wire, prev_dtype, y_dtype;
    uint32_t t, c;
    int64_t stride;
    size_t offset; /* how many elements behind an aligned address the tensors begin */
    dw_audit audit;
    bool with_y;
    dw_plan plan;
    unsigned char *x;
} sample;

typedef struct output {
    uint8_t *payload;
    unsigned char *next, *y;
    size_t payload_bytes, next_bytes, y_bytes;
    uint64_t payload_sum, state_sum, poisoned;
} output;

static uint32_t below(uint32_t n)
{
    return (uint32_t)(test_next(&source) % n);
}

static const char *describe(const sample *s)
{
    static char text[200];
    snprintf(text, sizeof text,
             "role %d x %d wire %d prev %d y %d (%u, %u) stride %d + %d audit %u", (int)s->role,
             (int)s->x_dtype, (int)s->wire, (int)s->prev_dtype, (int)s->y_dtype, (unsigned)s->t,
             (unsigned)s->c, (int)s->stride, (int)s->offset, (unsigned)s->audit.every);
    return text;
}

static unsigned char *allocate(size_t bytes)
{
    unsigned char *memory = aligned_alloc(64, (bytes + GUARD + 63) / 64 * 64);
    assert_non_null(memory);
    for (size_t i = 0; i < bytes + GUARD; i++) memory[i] = (unsigned char)test_next(&source);
    return memory;
}

static size_t tensor_elements(const sample *s)
{
    return s->offset + (size_t)(s->t - 1) * (size_t)s->stride + s->c;
}

static size_t dense_bytes(const sample *s)
{
    return (size_t)s->t * s->c * dw_dtype_bytes(s->prev_dtype);
}

static void draw_shape(sample *s)
{
    static const uint32_t widths[] = {1, 2, 3, 5, 7, 8, 31, 64, 100, 256, 300, 2048, 2049};
    s->role = (role)below(3);
    s->x_dtype = (dw_dtype)(1 + below(3));
    s->wire = (dw_dtype)(1 + below(3));
    s->prev_dtype = (dw_dtype)(1 + below(3));
    s->y_dtype = (dw_dtype)(1 + below(3));
    s->c = below(3) ? widths[below(13)] : 1 + below(700);
    s->t = 1 + below(6000 / s->c > 60 ? 60 : 6000 / s->c);
    s->audit.every = s->role == STATELESS ? 0 : below(4);
    s->audit.phase = s->audit.every ? below(s->audit.every) : 0;
    s->stride = s->c + (below(2) ? below(20) : 0);
    s->offset = below(2) ? 1 + below(7) : 0;
    s->with_y = s->role == STATELESS || below(3);
    if (s->role != SYNC) return;
    s->x_dtype = s->wire = s->prev_dtype; /* the entry carries prev itself */
    s->stride = s->c;
    s->offset = 0;
}

static void draw_sample(sample *s)
{
    static const float sizes[] = {1, 1e-3f, 1e30f, 3e4f, 1e-30f, 1e-7f};
    memset(s, 0, sizeof *s);
    draw_shape(s);
    s->plan = (dw_plan){.form = &dw_form_floats,
                        .params = {.form = &dw_form_floats, .dtype = s->wire},
                        .prev = s->prev_dtype,
                        .t = s->t,
                        .c = s->c};
    assert_int_equal(dw_form_floats.plan(&s->plan, NULL), DW_OK);
    size_t n = tensor_elements(s);
    s->x = allocate(n * dw_dtype_bytes(s->x_dtype));
    uint32_t mood = below(3); /* 0: random bits, often NaN; 1: ordinary values; 2: hostile */
    if (mood) test_fill(&source, s->x, s->x_dtype, n, sizes[below(6)]);
    if (mood == 2) test_spoil(&source, s->x, s->x_dtype, n, true);
}

static output make_output(const sample *s, const output *like)
{
    output out = {.payload_bytes = s->plan.payload_bytes,
                  .next_bytes = dense_bytes(s),
                  .y_bytes = tensor_elements(s) * dw_dtype_bytes(s->y_dtype)};
    out.payload = allocate(out.payload_bytes);
    out.next = allocate(out.next_bytes);
    out.y = allocate(out.y_bytes);
    if (s->role == SYNC) memcpy(out.next, s->x, out.next_bytes); /* the new prev is x */
    if (!like) return out;
    memcpy(out.payload, like->payload, out.payload_bytes + GUARD);
    memcpy(out.next, like->next, out.next_bytes + GUARD);
    memcpy(out.y, like->y, out.y_bytes + GUARD);
    return out;
}

static void free_output(output *out)
{
    free(out->payload);
    free(out->next);
    free(out->y);
}

static dw_encode_job encode_job(const sample *s, const output *out)
{
    dw_encode_job job = {.layout = s->plan.layout,
                         .x = s->role == SYNC ? out->next
                                              : s->x + s->offset * dw_dtype_bytes(s->x_dtype),
                         .x_dtype = s->x_dtype,
                         .stride = s->stride,
                         .next = s->role == STATELESS ? NULL : out->next,
                         .prev_dtype = s->prev_dtype,
                         .payload = out->payload,
                         .audit = s->audit,
                         .is_exact = s->role != KEY,
                         .wire_dtype = s->wire};
    return job;
}

static dw_decode_job decode_job(const sample *s, const output *out)
{
    dw_decode_job job = {.layout = s->plan.layout,
                         .payload = out->payload,
                         .next = s->role == STATELESS ? NULL : out->next,
                         .prev_dtype = s->prev_dtype,
                         .y_dtype = s->y_dtype,
                         .stride = s->stride,
                         .audit = s->audit,
                         .is_exact = s->role == STATELESS,
                         .wire_dtype = s->wire};
    if (s->with_y) job.y = out->y + s->offset * dw_dtype_bytes(s->y_dtype);
    return job;
}

/* ---- The C engine, and the kernels ----------------------------------------------------------- */

static void spec_encode(const sample *s, output *out)
{
    dw_encode_job job = encode_job(s, out);
    dw_chunk_result result;
    job.kernels = &dw_kernels_c;
    job.plan = &s->plan;
    dw_form_floats.encode(&job, 0, &result);
    out->payload_sum = result.payload_sum;
    out->state_sum = result.state_sum;
    out->poisoned = result.sums.poisoned;
}

static void spec_decode(const sample *s, output *out)
{
    dw_decode_job job = decode_job(s, out);
    dw_chunk_result result = {.state_sum = 0};
    job.kernels = &dw_kernels_c;
    job.plan = &s->plan;
    dw_form_floats.decode(&job, 0, &result);
    if (job.next && job.y) dw_form_floats.emit(&job, 0);
    out->payload_sum = job.kernels->digest_bytes(job.payload, 0, s->plan.payload_bytes);
    out->state_sum = result.state_sum;
}

typedef struct message {
    dw_cuda_encode_part encode[PARTS];
    dw_cuda_decode_part decode[PARTS];
    dw_cuda_sums sums[PARTS];
    dw_cuda_report reports[PARTS];
    uint64_t grid;
} message;

static dw_cuda_share share_of(message *m, uint32_t i, const sample *s)
{
    dw_cuda_share made = {
        .sums = &m->sums[i], .report = &m->reports[i], .serial = 1 + test_next(&source) / 2};
    made.first[DW_CUDA_TILES] = m->grid;
    /* They share the tiles. */
    made.blocks[DW_CUDA_TILES] = 1 + test_next(&source) % s->plan.layout.tiles;
    m->grid += made.blocks[DW_CUDA_TILES];
    return made;
}

static void take_report(const message *m, uint32_t i, uint64_t serial, output *out)
{
    static const dw_cuda_sums none;
    assert_int_equal(m->reports[i].serial, serial);
    assert_memory_equal(&m->sums[i], &none, sizeof none); /* zeros again, for the next launch */
    assert_int_equal(m->reports[i].direct | m->reports[i].zero, 0);
    out->payload_sum = m->reports[i].payload;
    out->state_sum = m->reports[i].state;
    out->poisoned = m->reports[i].poisoned;
}

static void cuda_encode(const sample *given, output *out, uint32_t n)
{
    message m;
    memset(&m, 0, sizeof m);
    for (uint32_t i = 0; i < n; i++)
        m.encode[i] =
            (dw_cuda_encode_part){share_of(&m, i, &given[i]), encode_job(&given[i], &out[i])};
    assert_int_equal(dw_shim_launch("dw_floats_encode", m.encode, n, m.grid), 1);
    for (uint32_t i = 0; i < n; i++) take_report(&m, i, m.encode[i].share.serial, &out[i]);
}

static void cuda_decode(const sample *given, output *out, uint32_t n)
{
    message m;
    memset(&m, 0, sizeof m);
    for (uint32_t i = 0; i < n; i++)
        m.decode[i] =
            (dw_cuda_decode_part){share_of(&m, i, &given[i]), decode_job(&given[i], &out[i])};
    assert_int_equal(dw_shim_launch("dw_floats_decode", m.decode, n, m.grid), 1);
    for (uint32_t i = 0; i < n; i++) take_report(&m, i, m.decode[i].share.serial, &out[i]);
}

/* ---- Tests ----------------------------------------------------------------------------------- */

static void same_bytes(const char *what, const void *expected, const void *found, size_t n,
                       const sample *s)
{
    const unsigned char *a = expected, *b = found;
    for (size_t i = 0; i < n; i++)
        if (a[i] != b[i])
            fail_msg("%s: byte %zu of %zu is %02x, C has %02x: %s", what, i, n, b[i], a[i],
                     describe(s));
}

static void same_outputs(const output *expected, const output *found, const sample *s)
{
    same_bytes("payload", expected->payload, found->payload, expected->payload_bytes + GUARD, s);
    same_bytes("next", expected->next, found->next, expected->next_bytes + GUARD, s);
    same_bytes("y", expected->y, found->y, expected->y_bytes + GUARD, s);
    if (expected->payload_sum != found->payload_sum || expected->state_sum != found->state_sum)
        fail_msg("digests: %d %d: %s", expected->payload_sum != found->payload_sum,
                 expected->state_sum != found->state_sum, describe(s));
    if (expected->poisoned != found->poisoned)
        fail_msg("%d are poisoned, C has %d: %s", (int)found->poisoned, (int)expected->poisoned,
                 describe(s));
}

static void check(bool encodes)
{
    for (int i = 0; i < DRAWS / share; i++) {
        sample given[PARTS];
        output expected[PARTS], found[PARTS];
        uint32_t n = 1 + below(PARTS);
        for (uint32_t k = 0; k < n; k++) draw_sample(&given[k]);
        for (int backwards = 0; backwards < 2; backwards++) {
            dw_shim_turn_round(backwards);
            for (uint32_t k = 0; k < n; k++) {
                expected[k] = make_output(&given[k], NULL);
                if (!encodes && below(4)) /* else random bytes, even in the padding */
                    spec_encode(&given[k], &expected[k]);
                found[k] = make_output(&given[k], &expected[k]);
                if (encodes)
                    spec_encode(&given[k], &expected[k]);
                else
                    spec_decode(&given[k], &expected[k]);
                if (!encodes) expected[k].poisoned = 0;
            }
            if (encodes)
                cuda_encode(given, found, n);
            else
                cuda_decode(given, found, n);
            for (uint32_t k = 0; k < n; k++) {
                same_outputs(&expected[k], &found[k], &given[k]);
                free_output(&expected[k]);
                free_output(&found[k]);
            }
        }
        for (uint32_t k = 0; k < n; k++) free(given[k].x);
    }
}

static void frames_equal_those_of_the_c_engine(void **state)
{
    (void)state;
    source.state = test_seed();
    check(true);
}

static void tensors_equal_those_of_the_c_engine(void **state)
{
    (void)state;
    source.state = test_seed();
    check(false);
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "--share")) share = atoi(argv[2]) > 0 ? atoi(argv[2]) : 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(frames_equal_those_of_the_c_engine),
                                       cmocka_unit_test(tensors_equal_those_of_the_c_engine)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
