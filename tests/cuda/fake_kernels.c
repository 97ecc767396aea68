/* SPDX-License-Identifier: Apache-2.0
 * fake_kernels.c - replaces the kernels: the CPU's engine does their work. Ends the program if a
 * launch is not as cuda/message.h specifies it. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../cuda/message_head.h"
#include "../../cuda/room.h"
#include "codecs/audit.h"
#include "codecs/copies.h"
#include "codecs/elements.h"
#include "codecs/plan.h"
#include "codecs/tiles.h"
#include "common/cpu.h"
#include "entropy/rans.h"
#include "fake_cuda.h"

/* A grid of the phase TILES has at most so many blocks, and one more for each part, because the
 * number of a part's blocks is rounded up. */
enum { MOST_BLOCKS = 2048 };

static void die(const char *kernel, const char *what)
{
    fprintf(stderr, "fake kernels: %s: %s\n", kernel, what);
    abort();
}

static const char *dtype_name(dw_dtype dtype)
{
    return dtype == DW_F32 ? "f32" : dtype == DW_F16 ? "f16" : "bf16";
}

static void expect(const char *kernel, const char *wanted)
{
    if (strcmp(kernel, wanted) != 0) die(kernel, wanted);
}

static bool is_stepped(const char *kernel)
{
    return strncmp(kernel, "dw_step_", 8) == 0;
}

static const dw_form *form_of(const char *kernel, const dw_layout *layout)
{
    return is_stepped(kernel) ? &dw_form_step : layout->element ? &dw_form_mx : &dw_form_quantized;
}

/* Checks that the blocks of the parts follow each other in a phase. Returns the sum so far. */
static uint64_t blocks_before(const char *kernel, const dw_cuda_share *share, int phase,
                              uint64_t before)
{
    if (share->first[phase] != before)
        die(kernel, "a part does not begin where the one before it ends");
    return before + share->blocks[phase];
}

static void check_chosen(const char *kernel, const dw_cuda_share *share, const dw_encode_job *job)
{
    const dw_layout *layout = &job->layout;
    bool wanted = layout->by_channel || layout->by_sample || layout->cut_rows || job->error > 0 ||
                  (layout->chooses && layout->tile_segments % 8);
    uint64_t words = is_stepped(kernel) ? 6 * layout->tiles : 0;
    if (layout->pieces > words) words = layout->pieces;
    if (wanted != (share->chosen != NULL))
        die(kernel, "chosen is missing, or present without need");
    if (is_stepped(kernel) && (uintptr_t)share->chosen % 8) die(kernel, "chosen is not aligned");
    /* A kernel may write to all of it, so there must be so much memory. */
    if (wanted) memset(share->chosen, 0xab, words * sizeof *share->chosen);
}

/* tile_blocks: the number of blocks that share the tiles. */
static uint64_t choose_blocks(const char *kernel, const dw_encode_job *job, uint64_t tile_blocks)
{
    const dw_layout *layout = &job->layout;
    if (is_stepped(kernel))
        return layout->by_sample || layout->cut_rows || job->error > 0 ? tile_blocks : 0;
    return layout->by_channel ? ((uint64_t)layout->c + 31) / 32 : layout->cut_rows ? layout->t : 0;
}

static bool wants_audit(const dw_layout *layout, const void *next, dw_audit audit)
{
    return next && audit.every && layout->c % 4;
}

/* job: of an encoder, else NULL. */
static void check_blocks(const char *kernel, const dw_cuda_share *share, const dw_layout *layout,
                         const dw_encode_job *job, bool audits)
{
    dw_cuda_sums sums = *share->sums;
    static const dw_cuda_sums nothing;
    if (share->frame) sums.payload_bytes = 0; /* of a payload that is moved, this is its size */
    if (!job) sums.coded = sums.bad = 0;      /* blocks are decoded before the tiles */
    uint64_t blocks = share->blocks[DW_CUDA_TILES];
    if (share->blocks[DW_CUDA_CHOOSE] != (job ? choose_blocks(kernel, job, blocks) : 0))
        die(kernel, "wrong number of blocks that choose scales");
    if (blocks < 1 || blocks > layout->tiles) die(kernel, "wrong number of blocks for tiles");
    if ((share->blocks[DW_CUDA_AUDIT] != 0) != audits)
        die(kernel, "blocks for an audit are missing, or present without need");
    if (memcmp(&sums, &nothing, sizeof nothing) != 0) die(kernel, "sums are not zero");
    if (share->serial == 0) die(kernel, "serial is 0");
}

/* What the last block of a kernel does: it writes the report, and sets the sums to zero. coded: the
 * payload in the frame is not the one that the form's kernels have seen. */
static void report(const dw_cuda_share *share, bool coded)
{
    dw_cuda_sums *sums = share->sums;
    dw_cuda_report *to = share->report;
    to->payload = coded ? sums->coded : sums->payload;
    to->payload_bytes = share->frame ? sums->payload_bytes : 0;
    to->bad = sums->bad;
    to->state = sums->state;
    to->direct = sums->direct;
    to->zero = sums->zero;
    to->poisoned = sums->poisoned;
    to->escaped = sums->escaped;
    to->overflowed = sums->overflowed;
    atomic_store_explicit((_Atomic uint64_t *)(void *)&to->serial, share->serial,
                          memory_order_release);
    *sums = (dw_cuda_sums){.payload_bytes = sums->payload_bytes}; /* which other parts may need */
}

/* The end of a kernel of phase TILES, AUDIT or COMPACT: the last of them reports, unless the
 * payload is moved afterwards. */
static void end_phase(const dw_cuda_share *share, dw_cuda_phase phase, bool coded)
{
    dw_cuda_phase last = share->blocks[DW_CUDA_COMPACT] ? DW_CUDA_COMPACT
                         : share->blocks[DW_CUDA_AUDIT] ? DW_CUDA_AUDIT
                                                        : DW_CUDA_TILES;
    if (phase == last && !share->frame) report(share, coded);
}

/* ---- Compact copies -------------------------------------------------------------------------- */

/* prev, next: of the job, which must lie in memory of the launch. x: of an encoder. */
static void work_on_copy(const char *kernel, const dw_cuda_share *share, dw_cuda_phase phase,
                         const dw_copies *copies, const void *prev, const void *next, const void *x)
{
    uint64_t stretches = (copies->elements + DW_TILE_ELEMENTS - 1) / DW_TILE_ELEMENTS,
             blocks = share->blocks[phase];
    bool expands = phase == DW_CUDA_EXPAND;
    if (!copies->bits || blocks < 1 || blocks > stretches)
        die(kernel, "copies are not compact, or the number of blocks is wrong");
    if ((uintptr_t)copies->base % DW_ROOM_ALIGNMENT || (uintptr_t)copies->made % DW_ROOM_ALIGNMENT)
        die(kernel, "the room for prev is not aligned");
    if ((prev && prev != copies->base) || (next && next != copies->made))
        die(kernel, "prev or next is not in the room");
    if (copies->held && !prev && x != copies->base) die(kernel, "nobody reads what is expanded");
    if (share->prev_on_host) die(kernel, "the room is not in the host's memory");
    if (expands) { /* there must be so much memory */
        memset(copies->base, 0xab, 2 * copies->elements);
        memset((void *)(uintptr_t)copies->made, 0xab, 2 * copies->elements);
    }
    if (expands && copies->held) dw_copies_expand(&dw_kernels_c, copies, 0, 1);
    if (!expands && copies->fresh) dw_copies_store(&dw_kernels_c, copies, 0, 1);
}

/* Rebuilds the plan of the form floats from what the kernel is told about it. */
static dw_plan plan_of_floats(const dw_layout *layout, dw_dtype wire, dw_dtype prev)
{
    uint64_t elements = (uint64_t)layout->t * layout->c;
    if (layout->tiles != (elements + DW_TILE_ELEMENTS - 1) / DW_TILE_ELEMENTS)
        die("floats", "wrong number of stretches");
    dw_plan plan = {.form = &dw_form_floats,
                    .params = {.form = &dw_form_floats, .dtype = wire},
                    .prev = prev,
                    .t = layout->t,
                    .c = layout->c,
                    .payload_bytes = layout->payload_bytes};
    return plan;
}

static void encode_floats(const char *kernel, const dw_cuda_encode_part *part)
{
    dw_encode_job job = part->job;
    dw_plan plan = plan_of_floats(&job.layout, job.wire_dtype, job.prev_dtype);
    dw_chunk_result result;
    expect(kernel, "dw_floats_encode");
    check_blocks(kernel, &part->share, &job.layout, &job, false);
    job.kernels = dw_kernels_choose(~0u);
    job.plan = &plan;
    dw_form_floats.encode(&job, 0, &result);
    part->share.sums->overflowed = dw_elements_overflowed(&job, 0, 1);
    part->share.sums->payload = result.payload_sum;
    part->share.sums->state = result.state_sum;
    part->share.sums->poisoned = result.sums.poisoned;
}

static void decode_floats(const char *kernel, const dw_cuda_decode_part *part)
{
    dw_decode_job job = part->job;
    dw_plan plan = plan_of_floats(&job.layout, job.wire_dtype, job.prev_dtype);
    dw_chunk_result result = {.state_sum = 0};
    expect(kernel, "dw_floats_decode");
    check_blocks(kernel, &part->share, &job.layout, NULL, false);
    job.kernels = dw_kernels_choose(~0u);
    job.plan = &plan;
    dw_form_floats.decode(&job, 0, &result);
    if (job.next && job.y) dw_form_floats.write_output(&job, 0);
    *part->share.sums =
        (dw_cuda_sums){.payload = job.kernels->digest_bytes(job.payload, 0, plan.payload_bytes),
                       .state = result.state_sum};
}

static const char *prefix_of(const dw_form *form)
{
    return form == &dw_form_step ? "step_" : form == &dw_form_mx ? "mx_" : "";
}

static void encode_part(const char *kernel, const dw_cuda_encode_part *part)
{
    char wanted[64];
    dw_encode_job own = part->job;
    const dw_encode_job *job = &own;
    own.kernels = dw_kernels_choose(~0u);
    const dw_layout *layout = &job->layout;
    bool state = job->next != NULL;
    const dw_form *form = form_of(kernel, layout);
    dw_plan plan = {.form = form};
    own.plan = &plan;
    bool mse = job->rule.scale == DW_SCALE_MSE && !layout->cut_rows && form == &dw_form_quantized;
    snprintf(wanted, sizeof wanted, "dw_%sencode_%s_%s", prefix_of(form), dtype_name(job->x_dtype),
             dtype_name(state ? job->prev_dtype : job->x_dtype));
    if (layout->rotates || layout->weighs)
        snprintf(wanted, sizeof wanted, "dw_%sencode%s_rotated", prefix_of(form),
                 mse ? "_mse" : "");
    else if (mse)
        snprintf(wanted, sizeof wanted, "dw_encode_mse");
    expect(kernel, layout->by_channel ? "dw_encode_columns" : wanted);
    bool audits = wants_audit(layout, job->next, job->audit);
    check_blocks(kernel, &part->share, layout, job, audits);
    check_chosen(kernel, &part->share, job);
    dw_cuda_sums sums = *part->share.sums;
    for (uint64_t i = 0; i < dw_layout_chunks(layout); i++) {
        dw_chunk_result result;
        form->encode(job, i, &result);
        sums.payload += result.payload_sum;
        sums.state += result.state_sum;
        sums.direct += result.sums.direct;
        sums.zero += result.sums.zero;
        sums.poisoned += result.sums.poisoned;
        sums.escaped += result.sums.escaped;
        sums.overflowed += dw_elements_overflowed(job, i, dw_layout_chunks(layout));
    }
    sums.payload += job->kernels->digest_bytes(job->payload, 0, dw_layout_undigested(layout));
    if (state && job->audit.every)
        sums.state += dw_seam_sum(job->kernels, layout, job->next, job->prev_dtype, job->audit);
    *part->share.sums = sums;
}

static void decode_part(const char *kernel, const dw_cuda_decode_part *part)
{
    char wanted[64];
    dw_decode_job own = part->job;
    const dw_decode_job *job = &own;
    own.kernels = dw_kernels_choose(~0u);
    const dw_layout *layout = &job->layout;
    bool state = job->next != NULL;
    const dw_form *form = form_of(kernel, layout);
    snprintf(wanted, sizeof wanted, "dw_%sdecode%s_%s", prefix_of(form), state ? "" : "_direct",
             layout->by_channel ? "columns"
             : layout->rotates || layout->weighs
                 ? "rotated"
                 : dtype_name(state ? job->prev_dtype : job->y_dtype));
    expect(kernel, wanted);
    bool audits = wants_audit(layout, job->next, job->audit);
    check_blocks(kernel, &part->share, layout, NULL, audits);
    dw_cuda_sums sums = *part->share.sums;
    for (uint64_t i = 0; i < dw_layout_chunks(layout); i++) {
        dw_chunk_result result;
        form->decode(job, i, &result);
        sums.state += result.state_sum;
        if (state && job->y) form->write_output(job, i);
    }
    sums.payload = job->kernels->digest_bytes(job->payload, 0, layout->payload_bytes);
    if (state && job->audit.every)
        sums.state += dw_seam_sum(job->kernels, layout, job->next, job->prev_dtype, job->audit);
    dw_counters counters = {0};
    form->count(job, &counters);
    sums.zero = counters.zero_groups;
    sums.poisoned = counters.poisoned_groups;
    sums.direct = counters.direct_groups;
    *part->share.sums = sums;
}

/* Computes the step that a whole sample shares, and writes it into the payload, as the kernel
 * dw_step_measure does. */
static void choose_scale_of_part(const dw_cuda_encode_part *part)
{
    dw_encode_job job = part->job;
    dw_plan plan = {.form = &dw_form_step};
    dw_chunk_result joined = {0}, one;
    job.kernels = dw_kernels_choose(~0u);
    job.plan = &plan;
    for (uint64_t i = 0; i < dw_layout_chunks(&job.layout); i++) {
        dw_form_step.measure(&job, i, &one);
        dw_squares_add(&joined.squares, &one.squares);
    }
    dw_form_step.choose_scale(&job, &joined);
}

static void choose_part(const char *kernel, const dw_cuda_encode_part *part)
{
    char wanted[64];
    snprintf(wanted, sizeof wanted, "%s%s",
             part->job.step > 0 || part->job.error > 0 ? "dw_step_measure" : "dw_choose_scales",
             part->job.layout.rotates || part->job.layout.weighs ? "_rotated" : "");
    expect(kernel, wanted);
    check_chosen(kernel, &part->share, &part->job);
    if (part->job.layout.by_sample) choose_scale_of_part(part);
}

/* ---- Coded payloads -------------------------------------------------------------------------- */

/* Returns the plan of a stage from the layout alone, and checks the parts of the room. */
static dw_plan plan_of_stage(const char *kernel, const dw_cuda_share *share,
                             const dw_layout *layout, const uint8_t *plain, const uint8_t *rest)
{
    dw_plan plan = {.layout = *layout, .payload_bytes = layout->payload_bytes};
    if (dw_stage_rans.plan(&plan, NULL)) die(kernel, "the payload is too large");
    if (share->blocks[DW_CUDA_CODE] != dw_coded_of(layout).blocks)
        die(kernel, "wrong number of blocks that are coded");
    if ((uintptr_t)plain % DW_ROOM_ALIGNMENT || plain + layout->payload_bytes > rest)
        die(kernel, "the room is not aligned, or too small");
    return plan;
}

/* Codes a plain payload, and leaves it in the room behind it, where the kernel has regions and
 * notes. */
static void code_part(const char *kernel, const dw_cuda_encode_part *part)
{
    dw_encode_job job = part->job;
    dw_cuda_room room = dw_cuda_room_of(&job.layout, true);
    dw_plan plan = plan_of_stage(kernel, &part->share, &job.layout, job.payload, job.scratch);
    dw_chunk_result result = {0};
    job.kernels = dw_kernels_choose(~0u);
    job.plan = &plan;
    job.coded = malloc(plan.payload_bytes);
    job.scratch = malloc(plan.scratch_bytes);
    if (!job.coded || !job.scratch) die(kernel, "no memory");
    for (uint64_t i = 0; i < dw_layout_chunks(&job.layout); i++) dw_stage_rans.encode(&job, i, 0);
    dw_stage_rans.join(&job, &result);
    memset(part->job.scratch, 0xab, room.bytes); /* there must be so much memory */
    memcpy(part->job.scratch, job.coded, result.payload_bytes);
    part->share.sums->payload_bytes = result.payload_bytes;
    free(job.coded);
    free(job.scratch);
}

/* Moves a payload from the room to its place in the frame. */
static void join_part(const char *kernel, const dw_cuda_encode_part *part)
{
    const dw_cuda_share *share = &part->share;
    const uint8_t *from = share->blocks[DW_CUDA_CODE] ? part->job.scratch : part->job.payload;
    uint64_t bytes = share->sums->payload_bytes;
    uint8_t *to = share->frame;
    for (uint32_t i = 1; i <= share->entry; i++) to += share->sums[-(int64_t)i].payload_bytes;
    if (!bytes || bytes > share->blocks[DW_CUDA_JOIN] * DW_JOIN_BYTES)
        die(kernel, "the payload has no size, or too few blocks");
    memcpy(to, from, bytes);
    share->sums->coded = dw_kernels_choose(~0u)->digest_bytes(to, 0, bytes);
    report(share, true);
}

/* Makes the plain payload, or notes what is wrong. */
static void expand_part(const char *kernel, const dw_cuda_decode_part *part)
{
    dw_decode_job job = part->job;
    dw_cuda_room room = dw_cuda_room_of(&job.layout, false);
    dw_plan plan = plan_of_stage(kernel, &part->share, &job.layout, job.plain, job.scratch);
    memset(part->job.scratch, 0xab, room.bytes);
    job.kernels = dw_kernels_choose(~0u);
    job.plan = &plan;
    job.scratch = malloc(plan.scratch_bytes);
    if (!job.scratch) die(kernel, "no memory");
    part->share.sums->coded = job.kernels->digest_bytes(job.coded, 0, job.payload_bytes);
    const char *why = dw_stage_rans.prepare(&job);
    for (uint64_t i = 0; i < dw_layout_chunks(&job.layout) && !why; i++)
        why = dw_stage_rans.decode(&job, i, 0);
    for (uint32_t fault = 1; why && fault < DW_RANS_FAULTS; fault++)
        if (dw_rans_sentence(fault) == why) part->share.sums->bad = dw_cuda_bad(3, 0, fault);
    free(job.scratch);
}

static uint64_t digest_at(const uint8_t *bytes, uint64_t digest)
{
    uint64_t word;
    memcpy(&word, bytes, sizeof word);
    return word ? digest : 0;
}

/* Completes a head as docs/format.md, 1, says. This host is little-endian, as all hosts of GPUs. */
static void seal_head(const char *kernel, const dw_cuda_head_part *part)
{
    uint64_t tables = part->bytes - DW_HEADER_BYTES;
    uint8_t *frame = (uint8_t *)part->frame;
    if (part->serial == 0 || part->bytes % 16 ||
        part->entries + part->n * DW_ENTRY_BYTES > part->bytes)
        die(kernel, "the part is not a valid head");
    memcpy(frame, part->draft, part->bytes);
    for (uint32_t i = 0; i < part->n; i++) {
        uint8_t *entry = frame + part->entries + i * DW_ENTRY_BYTES;
        uint64_t bytes = part->reports[i].payload_bytes, planned, length;
        memcpy(&planned, entry + DW_PAYLOAD_BYTES_AT, sizeof planned);
        memcpy(&length, frame + DW_LENGTH_AT, sizeof length);
        length -= bytes ? planned - bytes : 0;
        if (bytes) memcpy(entry + DW_PAYLOAD_BYTES_AT, &bytes, sizeof bytes);
        memcpy(frame + DW_LENGTH_AT, &length, sizeof length);
        uint64_t payload = digest_at(entry + DW_PAYLOAD_DIGEST_AT,
                                     dw_digest_of_sum(part->reports[i].payload)),
                 next = digest_at(entry + DW_STATE_DIGEST_AT,
                                  dw_digest_of_sum(part->reports[i].state));
        memcpy(entry + DW_PAYLOAD_DIGEST_AT, &payload, sizeof payload);
        memcpy(entry + DW_STATE_DIGEST_AT, &next, sizeof next);
    }
    uint64_t digest = dw_digest_bytes(frame + DW_HEADER_BYTES, tables);
    memcpy(frame + DW_TABLE_DIGEST_AT, &digest, sizeof digest);
    digest = dw_digest_bytes(frame, DW_HEADER_DIGEST_AT);
    memcpy(frame + DW_HEADER_DIGEST_AT, &digest, sizeof digest);
    if (*part->sealed == part->serial) memset(frame, 0, DW_HEADER_BYTES);
    *part->sealed = part->serial;
}

static dw_cuda_phase phase_of(const char *kernel)
{
    static const struct {
        const char *begin;
        dw_cuda_phase phase;
    } phases[] = {{"dw_audit", DW_CUDA_AUDIT},         {"dw_choose", DW_CUDA_CHOOSE},
                  {"dw_step_measure", DW_CUDA_CHOOSE}, {"dw_blocks", DW_CUDA_CODE},
                  {"dw_join", DW_CUDA_JOIN},           {"dw_expand", DW_CUDA_EXPAND},
                  {"dw_compact", DW_CUDA_COMPACT}};
    for (size_t i = 0; i < sizeof phases / sizeof *phases; i++)
        if (!strncmp(kernel, phases[i].begin, strlen(phases[i].begin))) return phases[i].phase;
    return DW_CUDA_TILES;
}

static void run_encoder(const char *kernel, dw_cuda_phase phase, const dw_cuda_encode_part *part)
{
    const dw_encode_job *job = &part->job;
    if (phase == DW_CUDA_CODE)
        code_part(kernel, part);
    else if (phase == DW_CUDA_JOIN)
        join_part(kernel, part);
    else if (phase == DW_CUDA_CHOOSE)
        choose_part(kernel, part);
    else if (phase == DW_CUDA_EXPAND || phase == DW_CUDA_COMPACT)
        work_on_copy(kernel, &part->share, phase, &job->copies, job->prev, job->next, job->x);
    else if (phase == DW_CUDA_TILES && job->wire_dtype)
        encode_floats(kernel, part);
    else if (phase == DW_CUDA_TILES)
        encode_part(kernel, part);
    end_phase(&part->share, phase, false);
}

static void run_decoder(const char *kernel, dw_cuda_phase phase, const dw_cuda_decode_part *part)
{
    const dw_decode_job *job = &part->job;
    if (phase == DW_CUDA_CODE)
        expand_part(kernel, part);
    else if (phase == DW_CUDA_EXPAND || phase == DW_CUDA_COMPACT)
        work_on_copy(kernel, &part->share, phase, &job->copies, job->prev, job->next, NULL);
    else if (phase == DW_CUDA_TILES && job->wire_dtype)
        decode_floats(kernel, part);
    else if (phase == DW_CUDA_TILES)
        decode_part(kernel, part);
    end_phase(&part->share, phase, job->coded != NULL);
}

int dw_shim_launch(const char *kernel, const void *parts, uint32_t n, uint64_t grid)
{
    if (strcmp(kernel, "dw_finalize_heads") == 0) {
        if (grid != n) die(kernel, "the number of blocks is not that of the heads");
        for (uint32_t i = 0; i < n; i++) seal_head(kernel, (const dw_cuda_head_part *)parts + i);
        return 1;
    }
    dw_cuda_phase phase = phase_of(kernel);
    bool decodes = strstr(kernel, "decode") != NULL;
    uint64_t blocks = 0;
    dw_cpu_mode mode = dw_cpu_enter_exact();
    for (uint32_t i = 0; i < n; i++) {
        const dw_cuda_encode_part *out = (const dw_cuda_encode_part *)parts + i;
        const dw_cuda_decode_part *in = (const dw_cuda_decode_part *)parts + i;
        blocks = blocks_before(kernel, decodes ? &in->share : &out->share, phase, blocks);
        if (decodes)
            run_decoder(kernel, phase, in);
        else
            run_encoder(kernel, phase, out);
    }
    dw_cpu_leave_exact(mode);
    if (phase == DW_CUDA_TILES && grid > MOST_BLOCKS + n) die(kernel, "too many blocks for tiles");
    if (blocks != grid) die(kernel, "the number of blocks is not that of the parts");
    return 1;
}
