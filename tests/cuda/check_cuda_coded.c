/* SPDX-License-Identifier: Apache-2.0
 * check_cuda_coded.c - compares the kernels for entropy-coded payloads in cuda/, executed on the
 * CPU, with the stage on the CPU: frames, plain payloads, digests, and what is wrong with payloads
 * that were changed.
 *
 * check_cuda_coded [--share N]: run only one in N of the random samples. Every second message runs
 * with blocks and threads from the last to the first. All memory has exactly the size that it must
 * have, and a page that nobody may touch behind it. */
#include <sys/mman.h>

#include "../../cuda/message.h"
#include "../../cuda/room.h"
#include "arithmetic/pack.h"
#include "codecs/dither_parts.h"
#include "codecs/escapes.h"
#include "codecs/plan.h"
#include "emulated.h"
#include "entropy/rans.h"
#include "sample.h"

static uint32_t share = 1;

enum { MOST_PARTS = 4 };

/* One payload. moved: it is not coded, only moved behind others. follows: its codes follow a
 * trellis, which kernels only decode. */
typedef struct payload {
    dw_plan plan;
    uint64_t draws_key;
    bool moved, follows;
    uint8_t *plain, *coded; /* coded: as the CPU makes it */
    uint64_t bytes, sum;    /* of the payload in the frame */
} payload;

enum { PAGE = 4096 };

/* Memory that ends where memory begins that nobody may touch. Sizes are multiples of 16, so it is
 * aligned to 16 bytes, and to as many as its size is a multiple of. */
static uint8_t *allocate(uint64_t bytes)
{
    uint64_t pages = (bytes + PAGE - 1) / PAGE * PAGE;
    uint8_t *memory =
        mmap(NULL, pages + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED && bytes % 16 == 0);
    assert_int_equal(mprotect(memory + pages, PAGE, PROT_NONE), 0);
    memset(memory, 0xa5, pages);
    return memory + pages - bytes;
}

static void release(uint8_t *memory, uint64_t bytes)
{
    uint64_t pages = (bytes + PAGE - 1) / PAGE * PAGE;
    munmap(memory + bytes - pages, pages + PAGE);
}

/* ---- Payloads -------------------------------------------------------------------------------- */

/* Draws a layout: of codes of any width, of microscaling, or of steps with or without dither. */
static void draw_layout(dw_layout *layout, uint32_t t, uint32_t c)
{
    static const uint32_t groups[] = {16, 64, 256, DW_LAYOUT_ROW};
    uint32_t kind = sample_below(4), group = groups[sample_below(4)];
    if (kind == 0)
        assert_true(dw_layout_make(layout, t, c, 1 + sample_below(8), group, sample_below(2)));
    else if (kind == 1)
        assert_true(dw_layout_make_mx(layout, t, c, 2 + sample_below(2), 8, sample_below(2)));
    else
        assert_true(dw_layout_make_step(layout, t, c, sample_below(2) ? DW_LAYOUT_SAMPLE : group,
                                        kind == 3));
}

/* The kinds of codes. Normal: of normally distributed values, to which the dither was added where
 * there is one; the number stands for their size. */
enum { EQUAL, NORMAL_1, NORMAL_2, NORMAL_3, NORMAL_4, ANY, KINDS };

/* If set, the kinds of two blocks in turn; otherwise they are drawn. */
static const uint32_t *kinds;

/* If set, half of the payloads that can follow a trellis do. */
static bool draws_trellises;

/* Fills the codes of a block that follow a trellis. */
static void fill_trellis(const dw_coded_block *b, uint8_t *codes)
{
    uint8_t states[DW_TRELLIS_LANES] = {0};
    float size = (float)(1 + sample_below(100)) / 10;
    for (uint64_t i = 0; i < b->codes; i++) {
        uint8_t *state = &states[i % DW_TRELLIS_LANES];
        int32_t index = (int32_t)(test_normal(&sample_source) * size + 1000.5f) - 1000;
        if (index > DW_TRELLIS_INDEX || index < -DW_TRELLIS_INDEX) index = DW_TRELLIS_INDEX;
        codes[i] = dw_trellis_code((uint8_t)(DW_TRELLIS_ZERO + 2 * index + (*state >> 1)));
        *state = (uint8_t)dw_trellis_next(*state, (uint32_t)index & 1);
    }
}

/* Fills the codes of a block. */
static void fill_codes(const payload *p, const dw_coded_block *b, uint8_t *codes)
{
    if (p->follows) {
        fill_trellis(b, codes);
        return;
    }
    const dw_layout *layout = &p->plan.layout;
    uint32_t kind = kinds ? kinds[b->number % 2] : sample_below(KINDS),
             most = (1u << layout->bits) - 1, base = sample_below(most + 1);
    float size = kind == NORMAL_1   ? 0.05f
                 : kind == NORMAL_2 ? 0.5f
                 : kind == NORMAL_3 ? 3.0f
                                    : 40.0f;
    uint8_t *highs = malloc(b->codes);
    memset(highs, 128, b->codes);
    if (layout->dithers)
        dw_dither_parts_draw(layout, &dw_kernels_c, p->draws_key, b->first_tile, b->tiles, highs);
    for (uint64_t i = 0; i < b->codes; i++) {
        float z = layout->dithers ? ((float)highs[i] + 0.5f) / 256 - 0.5f : 0;
        int32_t level = (int32_t)(test_normal(&sample_source) * size + z + 1000.5f) - 1000;
        int32_t code = (layout->dithers ? 128 : (int32_t)base) + level;
        if (kind == EQUAL) code = (int32_t)base;
        if (kind == ANY) code = (int32_t)sample_below(most + 1);
        codes[i] = (uint8_t)(code < 0 ? 0 : code > (int32_t)most ? (int32_t)most : code);
    }
    free(highs);
}

/* Puts up to `most` values into the room of a tile, which is empty, in the order of their places.
 */
static void fill_room(const dw_tile *tile, uint32_t most, uint8_t *plain)
{
    uint8_t *room = plain + tile->escapes;
    uint32_t apart = tile->elements / (most ? most : 1);
    memset(room, 0, dw_escapes_bytes(tile->elements));
    for (uint32_t i = 0; i < most; i++) {
        uint32_t bits = sample_below(0x7f800000) | sample_below(2) << 31;
        assert_true(dw_escapes_put(room, tile->elements,
                                   i * apart + sample_below(apart ? apart : 1), bits));
    }
}

/* Fills a plain payload as a form would: random bytes in front of the tiles and for scales. */
static void fill_plain(const payload *p)
{
    const dw_layout *layout = &p->plan.layout;
    dw_coded coded = dw_coded_of(layout);
    memset(p->plain, 0, layout->payload_bytes);
    for (uint64_t i = 0; i < coded.front; i++) p->plain[i] = (uint8_t)sample_below(256);
    for (uint64_t number = 0; number < coded.blocks; number++) {
        dw_coded_block b = dw_coded_block_of(layout, number);
        uint8_t *codes = malloc(b.codes), *at = codes;
        fill_codes(p, &b, codes);
        for (uint64_t k = 0; k < b.tiles; k++) {
            dw_tile tile = dw_layout_tile(layout, b.first_tile + k);
            for (uint64_t i = tile.offset; i < tile.codes; i++)
                p->plain[i] = (uint8_t)sample_below(256);
            dw_pack(at, tile.elements, layout->bits, p->plain + tile.codes, tile.elements, 0);
            if (layout->escapes)
                fill_room(&tile, sample_below(dw_escapes_most(tile.elements) + 1), p->plain);
            at += tile.elements;
        }
        free(codes);
    }
}

/* Codes a payload as the CPU does. */
static void spec_encode(payload *p)
{
    dw_chunk_result result = {0};
    uint8_t *coded = allocate(p->plan.payload_bytes), *scratch = malloc(p->plan.scratch_bytes);
    dw_encode_job job = {.layout = p->plan.layout,
                         .payload = p->plain,
                         .coded = coded,
                         .scratch = scratch,
                         .rule = {.is_trellis = p->follows},
                         .draws_key = p->draws_key,
                         .plan = &p->plan,
                         .kernels = &dw_kernels_c};
    for (uint64_t i = 0; i < dw_layout_chunks(&p->plan.layout); i++)
        dw_stage_rans.encode(&job, i, 0);
    dw_stage_rans.join(&job, &result);
    p->bytes = result.payload_bytes;
    p->sum = result.payload_sum;
    p->coded = allocate(p->bytes);
    memcpy(p->coded, coded, p->bytes);
    release(coded, p->plan.payload_bytes);
    free(scratch);
}

/* Plans and fills a payload whose layout is set, and codes it. */
static void finish_payload(payload *p)
{
    p->plan.payload_bytes = p->plan.layout.payload_bytes;
    if (p->moved)
        p->plan.plain_bytes = p->plan.payload_bytes;
    else
        assert_int_equal(dw_stage_rans.plan(&p->plan, NULL), DW_OK);
    p->plain = allocate(p->plan.plain_bytes);
    fill_plain(p);
    if (!p->moved) {
        spec_encode(p);
        return;
    }
    p->bytes = p->plan.payload_bytes;
    p->coded = allocate(p->bytes);
    memcpy(p->coded, p->plain, p->bytes);
    p->sum = dw_kernels_c.digest_bytes(p->coded, 0, p->bytes);
}

static payload make_payload(uint32_t t, uint32_t c, bool moved)
{
    payload p = {.moved = moved, .draws_key = test_next(&sample_source)};
    draw_layout(&p.plan.layout, t, c);
    p.follows = draws_trellises && !moved && p.plan.layout.may_trellis && sample_below(2);
    finish_payload(&p);
    return p;
}

static payload draw_payload(void)
{
    static const uint32_t widths[] = {1, 31, 100, 256, 1000, 2048, 2500, 4097};
    uint32_t c = widths[sample_below(8)], most = sample_below(4) ? 4000 : 120000;
    uint32_t t = 1 + sample_below(most / c > 90 ? 90 : most / c + 1);
    return make_payload(t, c, sample_below(5) == 0);
}

static void free_payload(payload *p)
{
    release(p->plain, p->plan.plain_bytes);
    release(p->coded, p->bytes);
}

/* ---- Encode ---------------------------------------------------------------------------------- */

/* The message for the payloads of a frame, which share nothing but the frame. */
typedef struct message {
    dw_cuda_encode_part parts[MOST_PARTS];
    dw_cuda_sums sums[MOST_PARTS];
    dw_cuda_report reports[MOST_PARTS];
    uint64_t rooms[MOST_PARTS], coding, joining; /* bytes; blocks */
    uint32_t n;
} message;

static void add_part(message *m, const payload *p, uint8_t *frame)
{
    dw_cuda_encode_part *part = &m->parts[m->n];
    uint64_t plain = dw_room_up(p->plan.plain_bytes),
             rest = p->moved ? 0 : dw_cuda_room_of(&p->plan.layout, true).bytes;
    uint8_t *room = allocate(plain + rest);
    m->rooms[m->n] = plain + rest;
    memset(part, 0, sizeof *part);
    memcpy(room, p->plain, p->plan.plain_bytes);
    part->share = (dw_cuda_share){.sums = &m->sums[m->n],
                                  .report = &m->reports[m->n],
                                  .serial = 77,
                                  .frame = frame,
                                  .entry = m->n};
    part->share.first[DW_CUDA_CODE] = m->coding;
    part->share.first[DW_CUDA_JOIN] = m->joining;
    part->share.blocks[DW_CUDA_CODE] = p->moved ? 0 : dw_coded_of(&p->plan.layout).blocks;
    part->share.blocks[DW_CUDA_JOIN] = (p->plan.payload_bytes + DW_JOIN_BYTES - 1) / DW_JOIN_BYTES;
    m->coding += part->share.blocks[DW_CUDA_CODE];
    m->joining += part->share.blocks[DW_CUDA_JOIN];
    part->job = (dw_encode_job){.layout = p->plan.layout,
                                .payload = room,
                                .coded = frame,
                                .scratch = room + plain,
                                .draws_key = p->draws_key};
    if (p->moved) m->sums[m->n].payload_bytes = p->bytes;
    m->n++;
}

/* Runs the kernels on a frame of these payloads, and compares it with the CPU's. */
static void check_frame(const payload *payloads, uint32_t n, bool backwards)
{
    static message m;
    static const dw_cuda_sums nothing;
    uint64_t bytes = 0, at = 0;
    memset(&m, 0, sizeof m);
    for (uint32_t i = 0; i < n; i++) bytes += payloads[i].bytes;
    uint8_t *frame = allocate(bytes);
    for (uint32_t i = 0; i < n; i++) add_part(&m, &payloads[i], frame);
    dw_shim_turn_round(backwards);
    assert_true(dw_shim_launch("dw_blocks_encode", m.parts, n, m.coding));
    assert_true(dw_shim_launch("dw_join_payloads", m.parts, n, m.joining));
    for (uint32_t i = 0; i < n; i++) {
        const payload *p = &payloads[i];
        const dw_layout *layout = &p->plan.layout;
        for (uint64_t k = 0; k < p->bytes; k++)
            if (frame[at + k] != p->coded[k])
                fail_msg(
                    "payload %u of %u: byte %llu of %llu is %02x, not %02x: (%u, %u), %u bits, "
                    "dither %d, element %u, moved %d",
                    i, n, (unsigned long long)k, (unsigned long long)p->bytes, frame[at + k],
                    p->coded[k], layout->t, layout->c, layout->bits, (int)layout->dithers,
                    layout->element, (int)p->moved);
        at += p->bytes;
        assert_int_equal(m.reports[i].payload_bytes, p->bytes);
        assert_int_equal(m.reports[i].payload, p->sum);
        assert_int_equal(m.reports[i].serial, 77);
        m.sums[i].payload_bytes = 0; /* which later launches write anew */
        assert_memory_equal(&m.sums[i], &nothing, sizeof nothing);
        release(m.parts[i].job.payload, m.rooms[i]);
    }
    release(frame, bytes);
}

TEST(frames_equal_those_of_the_cpu)
{
    sample_source.state = test_seed();
    for (uint32_t draw = 0; draw < 900 / share; draw++) {
        payload payloads[MOST_PARTS];
        uint32_t n = 1 + sample_below(MOST_PARTS);
        for (uint32_t i = 0; i < n; i++) payloads[i] = draw_payload();
        check_frame(payloads, n, draw % 2);
        for (uint32_t i = 0; i < n; i++) free_payload(&payloads[i]);
    }
}

/* ---- Decode ---------------------------------------------------------------------------------- */

/* Decodes a payload as the CPU does. Returns what is wrong with it, or NULL. */
static const char *spec_decode(const payload *p, uint8_t *coded, uint64_t bytes, uint8_t *plain)
{
    uint8_t *scratch = malloc(p->plan.scratch_bytes);
    dw_decode_job job = {.layout = p->plan.layout,
                         .coded = coded,
                         .payload = plain,
                         .plain = plain,
                         .scratch = scratch,
                         .draws_key = p->draws_key,
                         .payload_bytes = bytes,
                         .plan = &p->plan,
                         .kernels = &dw_kernels_c};
    const char *why = dw_stage_rans.prepare(&job);
    for (uint64_t i = 0; i < dw_layout_chunks(&p->plan.layout) && !why; i++)
        why = dw_stage_rans.decode(&job, i, 0);
    free(scratch);
    return why;
}

/* Decodes a payload with the kernel. Returns what is wrong with it, or NULL. */
static const char *run_decode(const payload *p, uint8_t *coded, uint64_t bytes, uint8_t *plain)
{
    dw_cuda_sums sums = {0};
    dw_cuda_decode_part part;
    uint64_t room = dw_cuda_room_of(&p->plan.layout, false).bytes;
    uint8_t *scratch = allocate(room);
    memset(&part, 0, sizeof part);
    part.share.sums = &sums;
    part.share.blocks[DW_CUDA_CODE] = dw_coded_of(&p->plan.layout).blocks;
    part.job = (dw_decode_job){.layout = p->plan.layout,
                               .coded = coded,
                               .payload = plain,
                               .plain = plain,
                               .scratch = scratch,
                               .draws_key = p->draws_key,
                               .payload_bytes = bytes};
    assert_true(dw_shim_launch("dw_blocks_decode", &part, 1, part.share.blocks[DW_CUDA_CODE]));
    assert_int_equal(sums.coded, dw_kernels_c.digest_bytes(coded, 0, bytes));
    release(scratch, room);
    return dw_rans_sentence(dw_cuda_fault_of(sums.bad));
}

/* Compares what the CPU and the kernel make of a payload. Returns whether it was right. */
static bool check_decode(const payload *p, uint8_t *coded, uint64_t bytes)
{
    uint64_t size = p->plan.plain_bytes;
    uint8_t *expected = allocate(size), *found = allocate(size);
    const char *why = spec_decode(p, coded, bytes, expected),
               *found_why = run_decode(p, coded, bytes, found);
    if (why != found_why)
        fail_msg("%s, not %s: (%u, %u), %u bits, dither %d", found_why ? found_why : "right",
                 why ? why : "right", p->plan.layout.t, p->plan.layout.c, p->plan.layout.bits,
                 (int)p->plan.layout.dithers);
    if (!why) assert_memory_equal(expected, found, size);
    release(expected, size);
    release(found, size);
    return why == NULL;
}

/* Encodes a payload of steps and decodes it. */
static void check_steps(uint32_t t, uint32_t c, uint32_t group, bool dithers)
{
    payload p = {.draws_key = t + c};
    assert_true(dw_layout_make_step(&p.plan.layout, t, c, group, dithers));
    finish_payload(&p);
    for (int backwards = 0; backwards < (share > 6 ? 1 : 2); backwards++) {
        check_frame(&p, 1, backwards);
        assert_true(check_decode(&p, p.coded, p.bytes));
    }
    free_payload(&p);
}

/* With few codes, some parts have none. */
TEST(few_codes_have_no_parts)
{
    sample_source.state = 5;
    for (uint32_t t = 1; t < 5; t++)
        for (uint32_t c = 1; c < 40; c += 6) {
            check_steps(t, c, DW_LAYOUT_SAMPLE, true);
            check_steps(t, c, 16, true);
        }
}

/* The words of codes of all values take a little more than the plain bytes, which shows only when
 * most of them are made. The block in front of them is not damaged then. */
TEST(rans_words_beyond_their_room_write_nothing_outside)
{
    static const uint32_t turns[][2] = {{NORMAL_3, ANY}, {ANY, NORMAL_4}};
    sample_source.state = 5;
    for (int i = 0; i < 2; i++) {
        kinds = turns[i];
        check_steps(64, 2048, DW_LAYOUT_SAMPLE, false);
        check_steps(64, 2048, DW_LAYOUT_SAMPLE, true);
    }
    kinds = NULL;
}

/* A payload of more blocks than a block of threads places at a time. */
TEST(many_blocks_are_placed)
{
    payload p = {.draws_key = 3};
    sample_source.state = 5;
    assert_true(dw_layout_make(&p.plan.layout, 2083, 1057, 4, DW_LAYOUT_ROW, false));
    assert_true(dw_coded_of(&p.plan.layout).blocks > DW_CUDA_THREADS);
    finish_payload(&p);
    for (int backwards = 0; backwards < (share > 6 ? 1 : 2); backwards++) {
        check_frame(&p, 1, backwards);
        assert_true(check_decode(&p, p.coded, p.bytes));
    }
    free_payload(&p);
}

static payload draw_coded(void)
{
    draws_trellises = true;
    payload p = draw_payload();
    while (p.moved) {
        free_payload(&p);
        p = draw_payload();
    }
    draws_trellises = false;
    return p;
}

TEST(payloads_equal_those_of_the_cpu)
{
    sample_source.state = test_seed();
    for (uint32_t draw = 0; draw < 900 / share; draw++) {
        payload p = draw_coded();
        dw_shim_turn_round(draw % 2);
        assert_true(check_decode(&p, p.coded, p.bytes));
        free_payload(&p);
    }
}

/* Gives a block a size next to a limit. */
static void damage_size(const payload *p, uint8_t *coded, uint64_t bytes)
{
    dw_coded at = dw_coded_of(&p->plan.layout);
    uint64_t number = sample_below((uint32_t)at.blocks);
    dw_coded_block b = dw_coded_block_of(&p->plan.layout, number);
    uint32_t size;
    if (at.blocks_at > bytes) return;
    memcpy(&size, coded + at.front + DW_SIZE_BYTES * number, DW_SIZE_BYTES);
    uint32_t sizes[] = {0,
                        size - 1 - sample_below(8), /* which the size of the payload may allow */
                        size + 1 + sample_below(8),
                        (uint32_t)b.scales,
                        (uint32_t)b.scales + 1,
                        (uint32_t)b.bytes,
                        (uint32_t)b.bytes + 1,
                        UINT32_MAX};
    memcpy(coded + at.front + DW_SIZE_BYTES * number, &sizes[sample_below(8)], DW_SIZE_BYTES);
}

/* Changes a payload: bits of its sizes, of the front of its first block, or anywhere; or two bytes
 * of the front, such as the upper half of a state, become 0. */
static void damage(const payload *p, uint8_t *coded, uint64_t bytes)
{
    dw_coded at = dw_coded_of(&p->plan.layout);
    uint64_t block = at.blocks_at + dw_coded_block_of(&p->plan.layout, 0).scales;
    const uint64_t from[] = {at.front, block, block, 0},
                   width[] = {DW_SIZE_BYTES * at.blocks, 6, 200, bytes};
    uint32_t kind = sample_below(6);
    if (kind == 4) damage_size(p, coded, bytes);
    if (kind == 5 && block + 200 < bytes) memset(coded + block + sample_below(198), 0, 2);
    if (kind > 3) return;
    for (uint32_t i = 0; i < 1 + sample_below(3); i++) {
        uint64_t place = from[kind] + sample_below((uint32_t)width[kind]);
        if (place < bytes) coded[place] ^= (uint8_t)(1u << sample_below(8));
    }
}

/* A block that says that it has parts is refused where a part has no codes. */
TEST(blocks_without_all_parts_are_refused)
{
    static const uint32_t equal[] = {EQUAL, EQUAL};
    payload p = {.draws_key = 1};
    sample_source.state = 5;
    kinds = equal;
    assert_true(dw_layout_make_step(&p.plan.layout, 1, 1, DW_LAYOUT_SAMPLE, true));
    finish_payload(&p);
    kinds = NULL;
    p.coded[dw_coded_of(&p.plan.layout).blocks_at + 3] = 1;
    assert_false(check_decode(&p, p.coded, p.bytes));
    free_payload(&p);
}

/* Returns whether a payload of one block is right whose size differs by `more` bytes. */
static bool check_resized(const payload *p, int32_t more)
{
    dw_coded at = dw_coded_of(&p->plan.layout);
    uint32_t size = (uint32_t)((int32_t)dw_get(p->coded + at.front, DW_SIZE_BYTES) + more);
    uint64_t bytes = dw_round_up(at.blocks_at + size, 16);
    uint8_t *coded = allocate(bytes);
    memset(coded, 0, bytes);
    memcpy(coded, p->coded, bytes < p->bytes ? bytes : p->bytes);
    dw_put(coded + at.front, size, DW_SIZE_BYTES);
    bool right = check_decode(p, coded, bytes);
    release(coded, bytes);
    return right;
}

/* A list of escaped values must end where its block ends, its places must be in the block, and no
 * tile may get more values than it has room for. */
TEST(lists_of_escaped_values_are_checked)
{
    static const uint32_t small[] = {NORMAL_3, NORMAL_3};
    sample_source.state = 5;
    kinds = small;
    for (int way = 0; way<4; way += share> 6 ? 3 : 1) {
        payload p = {.draws_key = 7};
        uint32_t most = dw_escapes_most(DW_TILE_ELEMENTS), group = way & 1 ? DW_LAYOUT_SAMPLE : 64;
        assert_true(dw_layout_make_step(&p.plan.layout, 64, 128, group, way & 2));
        finish_payload(&p);
        dw_tile tile = dw_layout_tile(&p.plan.layout, 0);
        for (uint32_t values = 1; values <= most; values += most / 3) {
            fill_room(&tile, values, p.plain);
            release(p.coded, p.bytes);
            spec_encode(&p);
            for (int32_t more = -7; more < 8; more++) {
                /* Without the last value, or with one for place 0 if there is room, it is right. */
                bool right = more == 0 || more == -6 || more == 6;
                if (values == most && more == 6) right = false;
                assert_int_equal(check_resized(&p, more), right);
            }
        }
        uint32_t outside = 64 * 128; /* the number of all codes */
        dw_put(p.plain + tile.escapes + 4, outside, 2);
        release(p.coded, p.bytes);
        spec_encode(&p);
        assert_false(check_resized(&p, 0));
        free_payload(&p);
    }
    kinds = NULL;
}

/* Whatever payloads say, nothing beyond their ends is touched, and the kernel finds the same fault
 * as the CPU. */
TEST(damaged_payloads_are_refused_as_by_the_cpu)
{
    uint32_t wrong = 0, draws = 6000 / share;
    sample_source.state = test_seed();
    for (uint32_t draw = 0; draw < draws; draw++) {
        payload p = draw_coded();
        uint64_t bytes = p.bytes;
        if (sample_below(8) == 0) bytes = 16 * (uint64_t)sample_below((uint32_t)(bytes / 16) + 1);
        if (sample_below(16) == 0) bytes += 16;
        uint8_t *coded = allocate(bytes);
        memset(coded, 0, bytes);
        memcpy(coded, p.coded, bytes < p.bytes ? bytes : p.bytes);
        if (bytes && sample_below(8)) damage(&p, coded, bytes);
        dw_shim_turn_round(draw % 2);
        wrong += !check_decode(&p, coded, bytes);
        release(coded, bytes);
        free_payload(&p);
    }
    assert_in_range(wrong, draws / 4, draws); /* otherwise the damage is not worth much */
}

RUN_TESTS_AFTER(share = test_share(argc, argv))
