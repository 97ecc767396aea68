/* SPDX-License-Identifier: Apache-2.0
 * names.c - determines which kernels a job needs, and with how many blocks. */
#include <stdio.h>
#include <string.h>

#include "codecs/plan.h"
#include "names.h"
#include "room.h"

static const struct family {
    int first, dtypes; /* dtypes: how many dtypes the name ends with */
    const char *name;
} families[] = {
    {DW_CUDA_AT_CHOOSE, 0, "dw_choose_scales"},
    {DW_CUDA_AT_ENCODE, 2, "dw_encode"},
    {DW_CUDA_AT_MSE, 0, "dw_encode_mse"},
    {DW_CUDA_AT_COLUMNS, 0, "dw_encode_columns"},
    {DW_CUDA_AT_DECODE, 1, "dw_decode"},
    {DW_CUDA_AT_DECODE_COLUMNS, 0, "dw_decode_columns"},
    {DW_CUDA_AT_DIRECT, 1, "dw_decode_direct"},
    {DW_CUDA_AT_DIRECT_COLUMNS, 0, "dw_decode_direct_columns"},
    {DW_CUDA_AT_AUDIT_ENCODE, 0, "dw_audit_encode"},
    {DW_CUDA_AT_AUDIT_DECODE, 0, "dw_audit_decode"},
    {DW_CUDA_AT_MX_ENCODE, 2, "dw_mx_encode"},
    {DW_CUDA_AT_MX_DECODE, 1, "dw_mx_decode"},
    {DW_CUDA_AT_MX_DIRECT, 1, "dw_mx_decode_direct"},
    {DW_CUDA_AT_SEAL, 0, "dw_finalize_heads"},
    {DW_CUDA_AT_FLOATS_ENCODE, 0, "dw_floats_encode"},
    {DW_CUDA_AT_FLOATS_DECODE, 0, "dw_floats_decode"},
    {DW_CUDA_AT_STEP_MEASURE, 0, "dw_step_measure"},
    {DW_CUDA_AT_STEP_ENCODE, 2, "dw_step_encode"},
    {DW_CUDA_AT_STEP_DECODE, 1, "dw_step_decode"},
    {DW_CUDA_AT_STEP_DIRECT, 1, "dw_step_decode_direct"},
    {DW_CUDA_AT_BLOCKS_ENCODE, 0, "dw_blocks_encode"},
    {DW_CUDA_AT_BLOCKS_DECODE, 0, "dw_blocks_decode"},
    {DW_CUDA_AT_JOIN, 0, "dw_join_payloads"},
    {DW_CUDA_AT_ROTATED, 0, "dw_encode_rotated"},
    {DW_CUDA_AT_MSE_ROTATED, 0, "dw_encode_mse_rotated"},
    {DW_CUDA_AT_DECODE_ROTATED, 0, "dw_decode_rotated"},
    {DW_CUDA_AT_DIRECT_ROTATED, 0, "dw_decode_direct_rotated"},
    {DW_CUDA_AT_MX_ROTATED, 0, "dw_mx_encode_rotated"},
    {DW_CUDA_AT_MX_DECODE_ROTATED, 0, "dw_mx_decode_rotated"},
    {DW_CUDA_AT_MX_DIRECT_ROTATED, 0, "dw_mx_decode_direct_rotated"},
    {DW_CUDA_AT_STEP_ROTATED, 0, "dw_step_encode_rotated"},
    {DW_CUDA_AT_STEP_DECODE_ROTATED, 0, "dw_step_decode_rotated"},
    {DW_CUDA_AT_STEP_DIRECT_ROTATED, 0, "dw_step_decode_direct_rotated"},
    {DW_CUDA_AT_CHOOSE_ROTATED, 0, "dw_choose_scales_rotated"},
    {DW_CUDA_AT_STEP_MEASURE_ROTATED, 0, "dw_step_measure_rotated"},
    {DW_CUDA_AT_EXPAND_ENCODE, 0, "dw_expand_encode"},
    {DW_CUDA_AT_EXPAND_DECODE, 0, "dw_expand_decode"},
    {DW_CUDA_AT_COMPACT_ENCODE, 0, "dw_compact_encode"},
    {DW_CUDA_AT_COMPACT_DECODE, 0, "dw_compact_decode"},
};
enum { N_FAMILIES = sizeof families / sizeof *families };

void dw_cuda_kernel_name(int kernel, char name[DW_CUDA_NAME_BYTES])
{
    static const char *const dtypes[] = {"f32", "f16", "bf16"};
    int i = N_FAMILIES - 1;
    while (families[i].first > kernel) i--;
    int at = kernel - families[i].first;
    if (families[i].dtypes == 2)
        snprintf(name, DW_CUDA_NAME_BYTES, "%s_%s_%s", families[i].name, dtypes[at / 3],
                 dtypes[at % 3]);
    else if (families[i].dtypes == 1)
        snprintf(name, DW_CUDA_NAME_BYTES, "%s_%s", families[i].name, dtypes[at]);
    else
        snprintf(name, DW_CUDA_NAME_BYTES, "%s", families[i].name);
}

/* Returns the number of a kernel of the family `name`. The family has a kernel for every pair of
 * dtypes, for every first dtype, or one kernel. DW_CUDA_KERNELS: there is no such family. */
static int kernel_of(const char *name, dw_dtype first, dw_dtype second)
{
    int of_first = first - DW_F32, of_second = second - DW_F32;
    int at[] = {0, of_first, 3 * of_first + of_second};
    for (int i = 0; i < N_FAMILIES; i++)
        if (strcmp(families[i].name, name) == 0) return families[i].first + at[families[i].dtypes];
    return DW_CUDA_KERNELS;
}

/* The same for a form's kernel, whose name has another end where the layout rotates blocks, or
 * divides by weights of channels. */
static int kernel_for_layout(const char *name, const dw_layout *layout, dw_dtype first,
                             dw_dtype second)
{
    char rotated[DW_CUDA_NAME_BYTES];
    snprintf(rotated, sizeof rotated, "%s_rotated", name);
    return kernel_of(layout->rotates || layout->weighs ? rotated : name, first, second);
}

/* If the number of channels is not a multiple of four, the state digest takes a phase of its own,
 * with as many blocks as there can be audited stretches at any sequence number. Some blocks may
 * find no stretch. */
static void need_audit(dw_cuda_needs *needs, const dw_layout *layout, const void *next,
                       dw_audit audit, int kernel)
{
    if (!next || !audit.every || layout->c % 4 == 0) return;
    uint64_t stretches =
        ((uint64_t)layout->t * layout->c + DW_TILE_ELEMENTS - 1) / DW_TILE_ELEMENTS;
    needs->kernel[DW_CUDA_AUDIT] = kernel;
    needs->blocks[DW_CUDA_AUDIT] = (stretches + audit.every - 1) / audit.every;
}

/* Where copies are compact, every job has the phases that expand and store them, also one that has
 * no copy. So entries of all kinds fit a launch that was captured. */
static void need_expanded(dw_cuda_needs *needs, const dw_copies *copies, int expand, int compact)
{
    static const dw_cuda_phase phases[] = {DW_CUDA_EXPAND, DW_CUDA_COMPACT};
    if (!copies->bits) return;
    needs->kernel[DW_CUDA_EXPAND] = expand;
    needs->kernel[DW_CUDA_COMPACT] = compact;
    for (int i = 0; i < 2; i++) {
        needs->blocks[phases[i]] = (copies->elements + DW_TILE_ELEMENTS - 1) / DW_TILE_ELEMENTS;
        needs->by_tile[phases[i]] = true;
    }
    needs->expanded = needs->room_bytes;
    needs->expanded_bytes = dw_room_up(sizeof(uint16_t) * copies->elements);
    needs->room_bytes += 2 * needs->expanded_bytes;
}

/* Sets whether the job needs the memory `chosen` (cuda/message.h), and how many words of 32 bits it
 * may take: one for each piece, or, where has_sums is set, six for each tile, of which three
 * numbers of binary64 are stored. tiles_decide: every tile can find its scales alone. */
static void need_chosen(dw_cuda_needs *needs, const dw_layout *layout, bool tiles_decide,
                        bool has_sums)
{
    bool whole_bytes = layout->tile_segments % 8 == 0;
    needs->has_chosen = !tiles_decide || (layout->chooses && !whole_bytes);
    if (has_sums && tiles_decide)
        needs->chosen_room = 0;
    else if (has_sums)
        needs->chosen_room =
            layout->pieces > 6 * layout->tiles ? layout->pieces : 6 * layout->tiles;
    else
        needs->chosen_room = tiles_decide && whole_bytes ? 0 : layout->pieces;
}

/* Adds the phases and the room of a stage behind the form. */
static void need_stage(dw_cuda_needs *needs, const dw_plan *plan, const char *kernel, bool encodes)
{
    needs->plain_bytes = dw_room_up(plan->plain_bytes);
    needs->room_bytes = needs->plain_bytes + dw_cuda_room_of(&plan->layout, encodes).bytes;
    needs->kernel[DW_CUDA_CODE] = kernel_of(kernel, DW_F32, DW_F32);
    needs->blocks[DW_CUDA_CODE] = dw_coded_of(&plan->layout).blocks;
}

/* Adds what an encoder needs for a payload of a frame in which at least one payload is
 * entropy-coded. If plan->behind is set, this payload is entropy-coded. Otherwise it is only moved
 * to its place in the frame. */
static void need_join(dw_cuda_needs *needs, const dw_plan *plan)
{
    needs->plain_bytes = needs->room_bytes = dw_room_up(plan->payload_bytes);
    if (plan->behind) need_stage(needs, plan, plan->behind->encode_on_device, true);
    needs->kernel[DW_CUDA_JOIN] = DW_CUDA_AT_JOIN;
    needs->blocks[DW_CUDA_JOIN] = (plan->payload_bytes + DW_JOIN_BYTES - 1) / DW_JOIN_BYTES;
}

dw_cuda_needs dw_cuda_encode_needs(const dw_encode_job *job)
{
    const dw_layout *layout = &job->layout;
    const dw_device_kernels *form = job->plan->form->device;
    bool has_state = job->next || job->prev;
    /* For rows of several tiles the search is part of phase CHOOSE. */
    bool searches = form->encode_search && job->rule.scale == DW_SCALE_MSE && !layout->cut_rows;
    const char *family = layout->by_channel ? form->encode_columns
                         : searches         ? form->encode_search
                                            : form->encode;
    int tiles =
        kernel_for_layout(family, layout, job->x_dtype, has_state ? job->prev_dtype : job->x_dtype);
    dw_cuda_needs needs = {.kernel = {-1, tiles, -1, -1, -1, -1, -1},
                           .blocks = {0, layout->tiles},
                           .by_tile = {false, true}};
    bool tiles_decide =
        !layout->by_channel && !layout->by_sample && !layout->cut_rows && !(job->error > 0);
    if (!tiles_decide) {
        needs.kernel[DW_CUDA_CHOOSE] =
            kernel_for_layout(form->choose, layout, job->x_dtype, DW_F32);
        needs.blocks[DW_CUDA_CHOOSE] = form->chooses_by_tile ? layout->tiles
                                       : layout->by_channel  ? ((uint64_t)layout->c + 31) / 32
                                                             : layout->t;
        needs.by_tile[DW_CUDA_CHOOSE] = form->chooses_by_tile;
    }
    need_chosen(&needs, layout, tiles_decide, form->chooses_by_tile);
    if (!form->blocks_are_stretches)
        need_audit(&needs, layout, job->next, job->audit, DW_CUDA_AT_AUDIT_ENCODE);
    if (job->coded) need_join(&needs, job->plan);
    need_expanded(&needs, &job->copies, DW_CUDA_AT_EXPAND_ENCODE, DW_CUDA_AT_COMPACT_ENCODE);
    return needs;
}

dw_cuda_needs dw_cuda_decode_needs(const dw_decode_job *job)
{
    const dw_layout *layout = &job->layout;
    const dw_device_kernels *form = job->plan->form->device;
    const char *family = job->next ? layout->by_channel ? form->decode_columns : form->decode
                         : layout->by_channel ? form->decode_direct_columns
                                              : form->decode_direct;
    int kernel =
        kernel_for_layout(family, layout, job->next ? job->prev_dtype : job->y_dtype, DW_F32);
    dw_cuda_needs needs = {.kernel = {-1, kernel, -1, -1, -1, -1, -1},
                           .blocks = {0, layout->tiles},
                           .by_tile = {false, true}};
    if (!form->blocks_are_stretches)
        need_audit(&needs, layout, job->next, job->audit, DW_CUDA_AT_AUDIT_DECODE);
    if (job->coded) need_stage(&needs, job->plan, job->plan->behind->decode_on_device, false);
    need_expanded(&needs, &job->copies, DW_CUDA_AT_EXPAND_DECODE, DW_CUDA_AT_COMPACT_DECODE);
    return needs;
}
