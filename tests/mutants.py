#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# mutants.py - breaks the pure layer and the links in one place after the other: a test must notice.
"""usage: mutants.py SOURCE [NAME...]

Copies the tree, builds the pure suite once, then for each mutant changes one line, rebuilds and
runs the suite. A mutant that survives is a check that is missing. Those of 64-bit Arm run by
emulation, where Debian's cross compiler and qemu-user are there; those of the kernels for GPUs by
the test that runs their source on the CPU; those of links by the inputs of the fuzzers; those of
deltawire.torch by the Python that DW_TORCH_PYTHON names, if it has torch. Part of `./run soak`."""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

# name: file, what stands there, what the mutant writes. A wide table:
# fmt: off
MUTANTS = {
    "dlpack_offset": ("src/base/tensor_dlpack.c", "from->data + from->byte_offset", "from->data"),
    "dlpack_lanes": ("src/base/tensor_dlpack.c", "from->type_lanes != 1", "from->type_lanes == 0"),
    "dlpack_gaps": ("src/base/tensor_dlpack.c", "e->stride[3] == 1 || e->extent[3] == 1", "e->stride[3] >= 1"),
    "dlpack_rows": ("src/base/tensor_dlpack.c", "tokens > 1 ? stride_t : e.extent[3]", "e.extent[3]"),
    "dlpack_any_middle": ("src/base/tensor_dlpack.c", "e->stride[1] / b != e->stride[2]", "e->stride[1] < b"),
    "dlpack_uneven_middle": ("src/base/tensor_dlpack.c", "e->stride[1] % b ||", ""),
    "dlpack_middle_of_one": ("src/base/tensor_dlpack.c", "a > 1 && b > 1 &&", ""),
    "dlpack_step_of_one": ("src/base/tensor_dlpack.c", "b > 1 ? e->stride[2] : e->stride[1]", "e->stride[2]"),
    "dlpack_rows_are_tokens": ("src/base/tensor_dlpack.c", "from->ndim == 2 && rows_are_samples", "0 && rows_are_samples"),
    "dlpack_any_major": ("src/base/tensor_dlpack.c", "versioned->major != DL_MAJOR", "versioned->major < DL_MAJOR"),
    "dlpack_writes_anything": ("src/base/tensor_dlpack.c", "versioned->flags & DL_READ_ONLY", "versioned->flags & 0"),
    "dlpack_flags_are_equal": ("src/base/tensor_dlpack.c", "versioned->flags & DL_READ_ONLY", "versioned->flags == DL_READ_ONLY"),
    "dlpack_tokens_wrap": ("src/base/tensor_dlpack.c", "return *tokens <= UINT32_MAX ? DW_OK : DW_ERR_LIMIT;", "return DW_OK;"),
    "forecast_of_one_direction": ("src/base/forecast.h", "slowest = dw_forecast_larger(slowest, wire);", "if (!i) slowest = dw_forecast_larger(slowest, wire);"),
    "forecast_codes_once": ("src/base/forecast.h", "run->stages > 2 ? at_the_first + at_the_last", "run->stages > 3 ? at_the_first + at_the_last"),
    "forecast_of_one_link": ("src/base/forecast.h", "first += (run->stages - 1) *", "first += 1 *"),
    "forecast_without_overlap": ("src/base/forecast.h", "first + (run->micro_batches - 1) * slowest", "first + run->micro_batches * slowest"),
    "forecast_without_delay": ("src/base/forecast.h", "wire + run->delay_s + ways[i].decode_s", "wire + ways[i].decode_s"),
    "forecast_prefers_the_fastest": ("src/base/forecast.h", "choices[i].error < choices[best].error", "choices[i].step_s < choices[best].step_s"),
    "forecast_takes_the_exact": ("src/base/forecast.h", "choices[i].step_s <= choices[fastest].step_s * (1 + DW_FORECAST_TIE)", "choices[i].step_s <= choices[fastest].step_s * 100"),
    "round_half_away": ("src/arithmetic/half.h", "uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16", "uint32_t rounded = (bits + 0x8000u) >> 16"),
    "finite_half_away": ("src/arithmetic/half.h", "(uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)", "(uint16_t)((bits + 0x8000u) >> 16)"),
    "power_of_two_cut": ("src/arithmetic/quant.h", "(largest - ((bits - 1) << 23) + 0xffffu) >> 16;", "(largest - ((bits - 1) << 23)) >> 16;"),
    "f16_overflow_wraps": ("src/arithmetic/half.h", "half = magnitude >= 0x477ff000u ? 0x7c00u : half;", ""),
    "no_clamp": ("src/arithmetic/half.h", "(magnitude > largest ? largest : magnitude)", "magnitude"),
    "scale_truncated": ("src/arithmetic/quant.h", "count < amount ? 1u : 0u;", "count < amount ? 0u : 0u;"),
    "last_level_infinite": ("src/arithmetic/quant.h", "uint32_t most = DW_BF16_LARGEST - ((bits - 1) << 7);", "uint32_t most = DW_BF16_LARGEST;"),
    "last_level_infinite_of_absmax": ("src/arithmetic/quant.h", "count > FLT_MAX ? 1u : 0u;", "count > FLT_MAX ? 0u : 0u;"),
    "zero_level_lost": ("src/arithmetic/quant.h", "if (largest < DW_ZERO_BELOW) return 0;", ""),
    "sign_of_extreme": ("src/arithmetic/quant.h", "is_signed && extremes.positive > extremes.negative;", "is_signed && extremes.positive >= extremes.negative;"),
    "code_not_clamped": ("src/arithmetic/quant.h", "level = level > half - 1 ? half - 1 : level;", ""),
    "planes_high_first": ("src/arithmetic/pack.h", "return left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;",
                          "return left >= 8 ? 8 : left & 1 ? 1 : left & 2 ? 2 : 4;"),
    "chunks_that_wrap": ("src/arithmetic/layout.h", "return ((uint64_t)layout->c + DW_STRIP_CHANNELS - 1) / DW_STRIP_CHANNELS;", "return (layout->c + DW_STRIP_CHANNELS - 1) / DW_STRIP_CHANNELS;"),
    "tile_of_one_row": ("src/arithmetic/layout.h", "layout->cut_rows ? 1 : DW_TILE_ELEMENTS / layout->segment_width;",
                        "layout->cut_rows ? 1 : DW_TILE_ELEMENTS / layout->segment_width / 2 + 1;"),
    "x_instead_of_codes": ("src/kernels/kernels_c.c", "reconstruct(p->codes, p->base, n, run->bits, scale, next, run->prev_dtype);",
                           "narrow(p->x, n, next, run->prev_dtype);"),
    "poison_spreads": ("src/kernels/kernels_c.c", "        keep(run->prev ? element(run->prev, run->prev_dtype, at) : NULL, n, next, run->prev_dtype);",
                       "        fill_nan(next, run->prev_dtype, n);"),
    "choice_by_larger": ("src/kernels/kernels_c.c", "dw_extremes_largest(direct) < dw_extremes_largest(delta);", "dw_extremes_largest(direct) > dw_extremes_largest(delta);"),
    "vector_choice_lost": ("src/kernels/kernels_encode.h", "i_greater(i_max(positive, negative), i_max(x_positive, x_negative));",
                           "i_greater(i_max(x_positive, x_negative), i_max(positive, negative));"),
    "vector_top_unclamped": ("src/kernels/kernels_dither.h", "f_set(half - 1)};", "f_set(half)};"),
    "vector_bottom_unclamped": ("src/kernels/kernels_dither.h", "(ends){f_set(-half),", "(ends){f_set(-half - 1),"),
    "vector_tie_moved": ("src/kernels/kernels_finish.h", "i_nearest(f_min(f_mul(delta, f_set(inverse)), top));",
                         "i_nearest(f_min(f_mul(delta, f_set(inverse * 1.0000001f)), top));"),
    "avx2_cut_levels": ("src/kernels/kernels_avx2.c", "_mm256_cvtps_epi32((x).b)", "_mm256_cvttps_epi32((x).b)"),
    "avx512_cut_levels": ("src/kernels/kernels_avx512.c", "#define i_nearest _mm512_cvtps_epi32", "#define i_nearest _mm512_cvttps_epi32"),
    "vector_power_cut": ("src/kernels/kernels_encode.h", "i_set(0xffff - (int32_t)", "i_set(-(int32_t)"),
    "vector_blocks_of_one_piece": ("src/kernels/kernels_encode.h", "p * blocks + k, value);", "p * blocks, value);"),
    "vector_sum_past_the_largest": ("src/kernels/kernels_simd.h", "#define SPECIAL_FROM 0x6f000000", "#define SPECIAL_FROM 0x7c000000"),
    "vector_sum_of_special_pieces": ("src/kernels/kernels_decode.h", "DW_F16 && !special &&", "DW_F16 &&"),
    "vector_sum_of_halves_of_a_register": ("src/kernels/kernels_decode.h", "(run->out_dtype == DW_F32 ? LANES : 2 * LANES) == 0", "LANES == 0"),
    "vector_sum_from_word_0": ("src/kernels/kernels_decode.h", "tally_from((uint32_t)(run.element / (4 / bytes_of(kind.dtype))));",
                               "tally_from(0);"),
    "sum_of_a_part_of_a_stretch": ("src/codecs/tiles.h", "if (trail->first != walk->run.element || walk->run.channels != DW_TILE_ELEMENTS)", "if (trail->first != walk->run.element)"),
    "vector_scale_cut": ("src/kernels/kernels_encode.h", "scale = i_sub(scale, f_less(f_mul(i_float(i_shl(scale, 16)), count), amount));",
                         "scale = i_sub(scale, i_set(0));"),
    "vector_sign_of_extreme": ("src/kernels/kernels_encode.h", "i_and(i_greater(positive, negative), i_set(0x8000))", "i_and(i_set(-1), i_set(0x8000))"),
    "vector_poison_spreads": ("src/kernels/kernels_finish.h", "            encode_special(run, s, from", "            if (0) encode_special(run, s, from"),
    "vector_rest_of_planes": ("src/kernels/kernels_finish.h", "bit += width;", "bit += 8;"),
    "vector_direct_keeps_base": ("src/kernels/kernels_finish.h", "return chooses ? i_float(", "return chooses && 0 ? i_float("),
    "vector_chosen_pair_of_x": ("src/kernels/kernels_finish.h", "if (kind.chooses) d = (pair){", "if (0) d = (pair){"),
    "vector_choices_of_a_byte": ("src/kernels/kernels_encode.h", "bits; bits >>= 8, byte++)", "bits & 0xff; bits >>= 8, byte++)"),
    "vector_direct_codes_delta": ("src/kernels/kernels_encode.h", "        take_direct(run, s, from +", "        if (0) take_direct(run, s, from +"),
    "vector_row_of_its_own": ("src/kernels/kernels_encode.h", "    if (run->row)\n        decide_row", "    if (0)\n        decide_row"),
    "avx2_not_clamped": ("src/kernels/kernels_simd.h", "return f_max(f_min(value, f_set(largest)), f_set(-largest));", "(void)largest;\n    return value;"),
    "avx512_not_clamped": ("src/kernels/kernels_avx512.c", "_mm512_range_ps(a, _mm512_set1_ps(largest), 2)", "((void)(largest), a)"),
    "vector_reads_past_the_end": ("src/kernels/kernels_decode.h", "part.width = (uint32_t)whole;", "part.width = (uint32_t)(whole + (rest ? LANES : 0));"),
    "vector_poison_is_nan": ("src/kernels/kernels_decode.h", "            decode_special(run, p, p < full", "            if (0) decode_special(run, p, p < full"),
    "vector_choice_ignored": ("src/kernels/kernels_decode.h", "uintptr_t direct = 0 - (uintptr_t)(", "uintptr_t direct = 0 * (uintptr_t)("),
    "vector_past_anywhere": ("src/kernels/kernels_decode.h", "run->out_dtype != DW_F16 && (uintptr_t)run->out % 64 == 0 &&", "run->out_dtype != DW_F16 &&"),
    "vector_past_in_half_lines": ("src/kernels/kernels_decode.h", "run->width * bytes_of(run->out_dtype) % 64 == 0;", "1;"),
    "vector_past_with_base": ("src/kernels/kernels_decode.h", "return run->past && !run->prev &&", "return run->past &&"),
    "vector_lookup_with_base": ("src/kernels/kernels_decode.h", "!kind.digests && !run.prev &&", "!kind.digests &&"),
    "vector_lookup_of_more": ("src/kernels/kernels_decode.h", "            run.width % (4 * LANES) == 0) {", "            run.width) {"),
    "avx2_lookup_order": ("src/kernels/kernels_avx2.c", "_mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7)", "_mm256_setr_epi32(0, 2, 4, 6, 1, 3, 7, 5)"),
    "add_fused": ("src/kernels/kernels_c.c", "store_sum(wide[i] + product, to,", "store_sum((float)((double)wide[i] + (double)factor * (double)from[at + i] + 0.0 * product), to,"),
    "add_any_nan": ("src/kernels/kernels_c.c", "(bits & 0x7fffffffu) > DW_F32_INFINITY ? DW_F32_NAN : bits", "bits"),
    "vector_add_fused": ("src/kernels/kernels_simd.h", "f_add(old, f_mul(factor, value))", "f_muladd(factor, value, old)"),
    "vector_add_any_nan": ("src/kernels/kernels_simd.h", "i_greater(i_and(bits, i_set(0x7fffffff)), i_set((int32_t)DW_F32_INFINITY))", "i_greater(i_and(bits, i_set(0x7fffffff)), i_set(0x7fffffff))"),
    "vector_add_clamps": ("src/kernels/kernels_simd.h", "store_finite(to, dtype, at, sum_of(", "store(to, dtype, at, sum_of("),
    "vector_digest_step": ("src/kernels/kernels_simd.h", "i_add(t.keys, i_set((int32_t)(DIGEST_KEY * LANES)))", "i_add(t.keys, i_set((int32_t)(DIGEST_KEY * LANES + 1)))"),
    "avx512_quiet_nan": ("src/kernels/kernels_avx512.c", "_mm256_cmplt_epu16_mask(above_infinity, _mm256_set1_epi16(0x1ff));", "0 * above_infinity[0];"),
    "avx512_loud_range": ("src/kernels/kernels_avx512.c", "_mm256_set1_epi16(0x1ff));", "_mm256_set1_epi16(0x1fe));"),
    "avx2_quiet_nan": ("src/kernels/kernels_avx2.c", "i_andnot(i_and(loud, f_bits(nan)), f_bits(wide))", "((void)nan, (void)loud, f_bits(wide))"),
    "avx2_half_away": ("src/kernels/kernels_avx2.c", "i_add(i_add(bits, i_set(0x7fff)), i_and(upper, i_set(1)))", "i_add(bits, i_add(i_set(0x8000), i_and(upper, i_set(0))))"),
    "avx512_half_away": ("src/kernels/kernels_avx512.c", "i_add(i_add(bits, i_set(0x7fff)), odd)", "i_add(bits, i_or(i_set(0x8000), i_and(odd, i_set(0))))"),
    "avx2_quarters_swapped": ("src/kernels/kernels_avx2.c", "_mm256_setr_epi32(0, 4, 1, 5, 0, 4, 1, 5)", "_mm256_setr_epi32(0, 1, 4, 5, 0, 4, 1, 5)"),
    "default_scale": ("src/codecs/plan.c", "bits == 1 ? DW_SCALE_MSE : DW_SCALE_SIGNED;", "DW_SCALE_SIGNED;"),
    "seam_unaudited": ("src/codecs/audit.c", "if (seam == stretch || stretch == last", "if (1 || stretch == last"),
    "chunk_clears_its_neighbour": ("src/codecs/tiles.c", "end == layout->tiles ? layout->choice_bytes : end * layout->tile_segments / 8;",
                                   "layout->choice_bytes;"),
    "thread_keeps_its_rounding": ("src/engine/engine_cpu.c", "dw_cpu_mode mode = dw_cpu_enter_exact();\n    job->plan->form->encode(job, chunk, &c->work.results[index]);", "dw_cpu_mode mode = {0};\n    job->plan->form->encode(job, chunk, &c->work.results[index]);"),
    "chunks_of_one_entry": ("src/engine/work.c", "if (work->first[middle] <= index)", "if (work->first[middle] < index)"),
    "dither_forgets_the_visit": ("src/codecs/plan.c", "dw_put(bytes + 24, sequence, 8);", "dw_put(bytes + 24, 0 * sequence, 8);"),
    "dither_forgets_the_slice": ("src/codecs/plan.c", "dw_put(bytes + 16, key.slice, 8);", "dw_put(bytes + 16, 0 * key.slice, 8);"),
    "dither_in_halves": ("src/kernels/kernels_c.c", "words.v[element % 8 / 2] >> (16 * (element % 2))", "words.v[element % 8 / 4] >> (16 * (element % 2))"),
    "dither_of_the_run": ("src/kernels/kernels_c.c", "fill_dither(run->dither, run->dither->element + at, n,", "fill_dither(run->dither, at, n,"),
    "dither_off_the_middle": ("src/arithmetic/quant.h", "(0x1p-17f - 0.5f)", "(0x1p-16f - 0.5f)"),
    "dither_in_padding": ("src/kernels/kernels_c.c", "parts[i] = DW_DITHER_NONE;", "parts[i] = 0;"),
    "mse_unweighted": ("src/arithmetic/quant.h", "if (sums[i] * made->weight[i] < sums[best] * made->weight[best])", "if (sums[i] < sums[best])"),
    "vector_column_of_its_neighbour": ("src/kernels/kernels_columns.h", "f_load(columns->inverse + i), run->bits, dithers ? dithers + i", "f_load(columns->inverse), run->bits, dithers ? dithers + i"),
    "vector_column_poison": ("src/kernels/kernels_columns.h", "i32x16 keep = i_load(columns->keep_mask + i);", "i32x16 keep = i_set(0);"),
    "vector_special_dither": ("src/kernels/kernels_finish.h", "run->dither->element + (uint64_t)(s->piece + piece) * run->width};", "run->dither->element};"),
    "vector_mse_of_x": ("src/kernels/kernels_encode.h", "run->prev && !(d->direct >> p & 1) ? s->prev", "run->prev && 0 ? s->prev"),
    "vector_rest_dithers": ("src/kernels/kernels_finish.h", "if (rest.dithers) rest.dithers += whole;", ""),
    "vector_dither_key": ("src/kernels/kernels_dither.h", "round * 0xBB67AE85u;", "round * 0xBB67AE87u;"),
    "vector_dither_sides": ("src/kernels/kernels_dither.h", "counter + (uint64_t)side * W_LANES", "counter"),
    "vector_pair_dithers": ("src/kernels/kernels_finish.h", "i_shr(words, 9)", "i_shr(words, 8)"),
    "vector_dither_skip": ("src/kernels/kernels_dither.h", "return to->all + skipped;", "return to->all;"),
    "vector_square_low_end": ("src/kernels/kernels_dither.h", "i_nearest(f_max(f_min(scaled, f_set(half - 1)), f_set(-half)))", "i_nearest(f_min(scaled, f_set(half - 1)))"),
    "vector_payload_digest": ("src/kernels/kernels_simd.h", "(uint32_t)(from / 4), whole / 4)", "0, whole / 4)"),
    "channels_keep_no_poison": ("src/kernels/kernels_c.c", "if (columns->keep_mask[i]) out[i] = base[i];", ""),
    "one_bit_of_minus_zero": ("src/arithmetic/quant.h", "scaled * 0.5f + dither) >= 0.0f;", "scaled * 0.5f + dither) > 0.0f;"),
    "one_bit_vanishes": ("src/arithmetic/quant.h", "(dither == 0.0f ? scaled : scaled * 0.5f + dither)", "(scaled * 0.5f + dither)"),
    "avx512_columns_swapped": ("src/kernels/kernels_avx512.c", "fold_eight(folds, 0), high = fold_eight(folds, 8)", "fold_eight(folds, 8), high = fold_eight(folds, 0)"),
    "avx512_sign_not_turned": ("src/kernels/kernels_avx512.c", "_mm512_xor_si512(negative, _mm512_set1_epi32(INT32_MIN))", "negative"),
    "mx_tie_away": ("src/arithmetic/mx.h", "code = dw_bits_of(dw_float_of(magnitude) + dw_float_of(places)) - places;", "code = dw_bits_of(dw_float_of(magnitude) + dw_float_of(places - 1u)) - (places - 1u);"),
    "mx_minus_zero_written": ("src/arithmetic/mx.h", "(code && bits >> 31 ? code", "(bits >> 31 ? code"),
    "mx_not_saturated": ("src/arithmetic/mx.h", "if (magnitude > dw_bits_of(of.most)) magnitude = dw_bits_of(of.most);", ""),
    "mx_lowest_power": ("src/arithmetic/mx.h", "scale ? scale << 23 : 0x00400000u", "scale << 23"),
    "mx_scale_below_0": ("src/arithmetic/mx.h", "return exponent > top ? exponent - top : 0;", "return exponent - top;"),
    "mx_infinite_element": ("src/arithmetic/mx.h", "if (magnitude > of.largest) magnitude = of.largest;", ""),
    "mx_layout_scales_of_two": ("src/arithmetic/layout.h", "bits, 32, 1, chooses);", "bits, 32, 2, chooses);"),
    "mx_poison_of_x": ("src/kernels/kernels_mx_c.h", "return largest < DW_F32_INFINITY ? largest : DW_F32_INFINITY;", "return largest;"),
    "mx_choice_by_larger": ("src/kernels/kernels_mx_c.h", "if (of_x >= *largest) return false;", "if (of_x <= *largest) return false;"),
    "mx_key_of_any_form": ("src/codecs/options.c", "return !is_step && (is_microscaled(config) ? !is_bits : !is_element);", "return !is_step && (!is_element || !is_bits);"),
    "mx_beside_bits": ("src/codecs/options.c", "case DW_SCOPE_QUANTIZED: return !is_microscaled(config) && !is_stepped(config);", "case DW_SCOPE_QUANTIZED: return !is_stepped(config);"),
    "mx_form_always_said": ("src/codecs/plan.c", "if (o->agrees == DW_AGREE_UNUSUAL && value == o->otherwise(config)) continue;", ""),
    "mx_key_is_int8": ("src/codecs/codecs.c", "return microscaled((dw_element)(key - DW_KEY_ELEMENT));", "return microscaled(DW_ELEMENT_INT8);"),
    "step_not_added": ("src/codecs/step.c", "if (adds) dw_emit_added(job, values, at, s.n);", "(void)values;"),
    "step_poison_forgets": ("src/codecs/step.c", "else if (prev) memcpy(out, prev,", "else if (prev && 0) memcpy(out, prev,"),
    "step_encoder_poison_forgets": ("src/codecs/step.c", "if (call->prev) memcpy(call->next,", "if (call->prev && 0) memcpy(call->next,"),
    "step_poison_pads_nothing": ("src/codecs/step.c", "memset(call->codes, DW_STEP_ZERO, call->stored);", "memset(call->codes, DW_STEP_ZERO, call->n);"),
    "step_decoder_draws_by_run": ("src/codecs/step.c", ".dither = {job->draws_key, r->element + s.at},", ".dither = {job->draws_key, r->element},"),
    "step_encoder_draws_by_span": ("src/codecs/step.c", "job->rule.dither_key, r->element + s.at},", "job->rule.dither_key, s.at},"),
    "step_dither_not_subtracted": ("src/codecs/step.c", ".rounding = layout->dithers ? DW_ROUNDING_DITHER : DW_ROUNDING_NEAREST,", ".rounding = DW_ROUNDING_NEAREST,"),
    "step_never_stochastic": ("src/codecs/step.c", "job->rule.is_stochastic ? DW_ROUNDING_STOCHASTIC", "0 ? DW_ROUNDING_STOCHASTIC"),
    "step_of_a_cut_row": ("src/codecs/step.c", "if (!layout->cut_rows) {", "if (true) {"),
    "step_of_the_first_row": ("src/codecs/step.c", "walk.tile % layout->row_segments == 0)", "walk.tile == 0)"),
    "step_last_tile_unmeasured": ("src/codecs/step.c", "} add_lanes(job, &sums, &result->squares); }", "} }"),
    "step_front_not_cleared": ("src/codecs/step.c", "memset(front, 0, (size_t)job->layout.scale_bytes);", ""),
    "step_clamped_uncounted": ("src/codecs/step.c", "e->sums->clamped += call.clamped;", ""),
    "step_counted_per_run": ("src/codecs/step.c", "if (layout->by_sample && (r->tile.first_segment || r->first_segment)) return;", ""),
    "step_zeros_uncounted": ("src/codecs/step.c", "e->sums->zero += call.scale == 0;", ""),
    "step_poison_uncounted": ("src/codecs/step.c", "e->sums->poisoned += poisoned;", ""),
    "step_plan_draws_never": ("src/codecs/step.c", "made->draws = params->dithers;", "made->draws = false;"),
    "step_plan_draws_always": ("src/codecs/step.c", "made->draws = params->dithers;", "made->draws = true;"),
    "step_plan_measures_never": ("src/codecs/step.c", "made->measures = made->layout.by_sample;", ""),
    "step_lanes_kept": ("src/codecs/step.c", "memset(sums->of, 0, sizeof sums->of);", ""),
    "step_squares_of_x": ("src/codecs/step.c", "dw_at(job->prev, job->prev_dtype, element), job->prev_dtype, n,", "NULL, job->prev_dtype, n,"),
    "step_infinity_is_a_step": ("src/arithmetic/step.h", "if (squares->largest >= DW_F32_INFINITY) return DW_BF16_NAN;\n    double step = sqrt(", "if (squares->largest > DW_F32_INFINITY) return DW_BF16_NAN;\n    double step = sqrt("),
    "step_too_small": ("src/arithmetic/step.h", "if (step < 0x1p-96) return 0;\n    if (step > 0x1.fep127) return 0x7f7f;\n    return dw_bf16_finite(", "if (step > 0x1.fep127) return 0x7f7f;\n    return dw_bf16_finite("),
    "step_largest_forgotten": ("src/arithmetic/step.h", "if (more->largest > to->largest) to->largest = more->largest;", ""),
    "step_of_the_last_chunk": ("src/arithmetic/step.h", "to->n += more->n;", "to->n = more->n;"),
    "step_chunks_not_joined": ("src/engine/work.c", "dw_squares_add(&all.squares, &one->squares);", "all.squares = one->squares;"),
    "step_measured_never": ("src/engine/engine_cpu.c", "measure_all(c, n); dw_work_run(", "dw_work_run("),
    "step_measures_floats": ("src/engine/engine_cpu.c", "if (!job->plan->measures) return; dw_cpu_mode", "dw_cpu_mode"),
    "step_settles_floats": ("src/engine/engine_cpu.c", "if (!job->plan->measures) continue;", ""),
    "step_measures_by_the_first": ("src/engine/engine_cpu.c", "any = any || c->jobs.encode[i]->plan->measures;", "any = c->jobs.encode[0]->plan->measures;"),
    "step_measured_in_any_mode": ("src/engine/engine_cpu.c", "dw_cpu_mode mode = dw_cpu_enter_exact(); job->plan->form->measure(job, chunk, &c->work.results[index]); dw_cpu_leave_exact(mode);", "job->plan->form->measure(job, chunk, &c->work.results[index]);"),
    "step_lanes_of_a_chunk": ("src/codecs/step.c", "if (walk.tile != tile) add_lanes(job, &sums, &result->squares);", "(void)tile;"),
    "step_key_as_coarse": ("src/codecs/codecs.c", "return stepped(config, config->key_step);", "return stepped(config, config->step);"),
    "step_stochastic_is_dither": ("src/codecs/codecs.c", ".dithers = config->rounding == DW_ROUNDING_DITHER", ".dithers = config->rounding > DW_ROUNDING_NEAREST"),
    "step_group_of_64": ("src/codecs/options.c", "is_stepped(config) ? (uint64_t)DW_GROUP_SAMPLE : 64", "(void)config, 64"),
    "step_group_channel": ("src/codecs/options.c", "group != (is_stepped(config) ? DW_GROUP_CHANNEL : DW_GROUP_SAMPLE)", "group != DW_GROUP_SAMPLE || is_stepped(config)"),
    "step_group_sample_alone": ("src/codecs/options.c", "group != (is_stepped(config) ? DW_GROUP_CHANNEL : DW_GROUP_SAMPLE)", "group != DW_GROUP_CHANNEL || !is_stepped(config)"),
    "step_dither_alone": ("src/codecs/options.c", "rounding != DW_ROUNDING_DITHER || is_stepped(config)", "rounding != DW_ROUNDING_DITHER || config"),
    "step_dither_limit": ("src/codecs/options.c", "return 3000;", "return 3001;"),
    "step_stochastic_limit": ("src/codecs/options.c", "? 1800 : STEP_MOST;", "? 1801 : STEP_MOST;"),
    "step_direct_limit": ("src/codecs/options.c", "if (config->codec != DW_CODEC_DELTA) return STEP_MOST; if (config->rounding", "if (config->rounding"),
    "step_quarter_of_least": ("src/codecs/options.c", "step / 4 < 10 ? 10 : step / 4", "step / 4"),
    "step_key_of_8_bits": ("src/codecs/options.c", "if (is_stepped(config)) return DW_KEY_STEP;", ""),
    "step_key_of_elements": ("src/codecs/options.c", "return !is_bits && !is_element;", "return !is_bits;"),
    "step_key_of_bits": ("src/codecs/options.c", "return !is_bits && !is_element;", "return !is_element;"),
    "step_mx_of_direct": ("src/codecs/options.c", "config->codec == DW_CODEC_DELTA || form != DW_FORM_MX", "config->codec == DW_CODEC_DELTA || form"),
    "step_stochastic_in_frames": ("src/codecs/options.c", "return value == DW_ROUNDING_DITHER;", "return value > DW_ROUNDING_NEAREST;"),
    "step_dither_not_in_frames": ("src/codecs/options.c", "return value == DW_ROUNDING_DITHER;", "return false;"),
    "step_option_alone": ("src/codecs/options.c", "case DW_SCOPE_FACTOR: return is_stepped(config) && ", "case DW_SCOPE_FACTOR: return "),
    "step_beside_choose": ("src/codecs/options.c", "case DW_SCOPE_CHOICES: return !is_stepped(config);", "case DW_SCOPE_CHOICES: break;"),
    "step_beside_bits": ("src/codecs/options.c", "return !is_microscaled(config) && !is_stepped(config);", "return !is_microscaled(config);"),
    "step_four_decimals": ("src/codecs/config.c", "places > decimals", "places > decimals + 1"),
    "step_decimals_not_filled": ("src/codecs/config.c", "for (; point && places < decimals; places++) part *= 10;", ""),
    "step_zeros_written": ("src/codecs/config.c", "while (out[used - 1] == '0') used--;", ""),
    "step_point_written": ("src/codecs/config.c", "if (out[used - 1] == '.') used--;", ""),
    "step_decimal_wraps": ("src/codecs/config.c", "return dw_size_add(whole, part, value);", "*value = whole + part; return true;"),
    "step_dither_is_private": ("src/codecs/config.c", "? !dw_option_is_in_frames(option, value)", "? true"),
    "step_limit_untold": ("src/codecs/config.c", "list_decimals(option, least, out, cap);", "list_decimals(option, option->most, out, cap);"),
    "error_of_the_change": ("src/codecs/step.c", "return (job->plan->params.error > 0 || job->plan->params.bound > 0) && job->prev;", "return job->plan->params.bound > 0 && job->prev;"),
    "error_without_margin": ("src/arithmetic/step.h", "(1 + 4 / sqrt(n))", "(1 + 0 / sqrt(n))"),
    "error_of_stochastic_rounding": ("src/arithmetic/step.h", "parts = is_stochastic ? 6 : 12,", "parts = is_stochastic ? 12 : 12,"),
    "error_clamps": ("src/arithmetic/step.h", "step > least ? step : least", "step + 0 * least"),
    "error_with_step": ("src/codecs/options.c", "return is_stepped(config) && !config->error && !config->error_abs && !config->rate;", "return is_stepped(config) && !config->error_abs && !config->rate;"),
    "error_exponent_of_thousandths": ("src/codecs/config.c", "if (decimals > THOUSANDTHS && !take_exponent(", "if (!take_exponent("),
    "error_exponent_wraps": ("src/codecs/config.c", "places > (is_negative ? *decimals : MOST_DECIMALS - *decimals))", "places > 1000)"),
    "error_exponent_upwards": ("src/codecs/config.c", "*decimals = is_negative ? *decimals - (uint32_t)places : *decimals + (uint32_t)places;", "*decimals -= (uint32_t)places;"),
    "error_on_a_gpu": ("src/codecs/plan.c", "if (params->use[use].error > 0 || params->use[use].bound > 0) {", "if (0) {"),
    "bound_with_step": ("src/codecs/options.c", "return is_stepped(config) && !config->error && !config->error_abs && !config->rate;", "return is_stepped(config) && !config->error && !config->rate;"),
    "bound_with_error": ("src/codecs/options.c", "(void)error; return !config->error_abs;", "(void)error; return config != NULL;"),
    "bound_with_skip": ("src/codecs/options.c", "(void)skip; return !config->error_abs;", "(void)skip; return config != NULL;"),
    "bound_with_coarse_keys": ("src/codecs/options.c", "if (config->error_abs && (key == DW_KEY_F16 || key == DW_KEY_BF16)) return false;", ""),
    "bound_unwritten": ("src/codecs/config.c", "option->name, dw_option_prefix(option), decimal);", "option->name, \"\", decimal);"),
    "bound_of_any_prefix": ("src/codecs/config.c", "return strncmp(value, prefix, strlen(prefix)) == 0;", "return prefix != value;"),
    "bound_of_x_alone": ("src/codecs/step.c", "return (job->plan->params.error > 0 || job->plan->params.bound > 0) && job->prev;", "return job->plan->params.error > 0 && job->prev;"),
    "bound_of_one_chunk": ("src/arithmetic/step.h", "if (more->x_largest > to->x_largest) to->x_largest = more->x_largest;", ""),
    "bound_of_stochastic_rounding": ("src/codecs/tolerance.c", "(bound->is_stochastic ? 1 : 0.5)", "(bound->is_stochastic ? 0.5 : 0.5)"),
    "bound_before_prev": ("src/codecs/tolerance.c", "double part = half_place(bound->prev);", "double part = 0;"),
    "bound_before_y": ("src/codecs/tolerance.c", "if (bound->x != bound->prev) part += half_place(bound->x);", ""),
    "bound_before_places_of_f16": ("src/codecs/tolerance.c", "bound->prev == DW_F16 ? 0x1p-24 : 0);", "bound->prev == DW_F16 ? 0 : 0);"),
    "bound_of_large_values": ("src/codecs/tolerance.c", "if (!fits && (double)*largest <= most_of(bound.prev))", "if (!fits && (double)*largest <= 2 * most_of(bound.prev))"),
    "bound_clamps": ("src/codecs/tolerance.c", "return (double)dw_float_of(found->largest) <= DW_STEPS_UNCLAMPED * step;", "return step > 0;"),
    "bound_of_coarse_floats": ("src/codecs/tolerance.c", "return is_exact || !(largest > 0) || rounded_by(bound, largest) <= bound->most;", "return is_exact || true || largest > 0;"),
    "bound_shortened": ("src/ends/encoder_plan.c", "if (t->plans->params.bound > 0) return; /* short", "/* short"),
    "bound_beyond_the_frame": ("src/ends/bound.c", "(plans.params.bound > 0 ? DW_USE_EXACT : DW_USE_BRIEF)", "DW_USE_BRIEF"),
    "bound_unexpected": ("src/ends/decoder.c", "one > exact ? one : exact", "one + 0 * exact"),
    "bound_loses_its_copy": ("src/ends/encoder_commit.c", "p->entry.role == DW_ROLE_SYNC && !t->has_x)", "p->entry.role == DW_ROLE_SYNC)"),
    "bound_keeps_its_base": ("src/ends/encoder_plan.c", "p->base = NULL;\n    p->entry.base_chain = 0;\n    return DW_OK;", "return DW_OK;"),
    "rate_without_coder": ("src/codecs/options.c", "return config->entropy == DW_ENTROPY_RANS && !config->error && !config->error_abs;", "return !config->error && !config->error_abs;"),
    "rate_with_error": ("src/codecs/options.c", "return config->entropy == DW_ENTROPY_RANS && !config->error && !config->error_abs;", "return config->entropy == DW_ENTROPY_RANS;"),
    "rate_with_floats": ("src/codecs/options.c", "if (config->rate && key != DW_KEY_STEP) return false;", ""),
    "rate_with_step": ("src/codecs/options.c", "!config->error_abs && !config->rate;", "!config->error_abs;"),
    "rate_unlearned": ("src/ends/encoder_commit.c", "    learn_rate(t);\n", "    if (0) learn_rate(t);\n"),
    "rate_without_debt": ("src/ends/rate.c", "gain * (error + rate->debt / 4)", "gain * (error + rate->debt / 400)"),
    "rate_with_all_debt": ("src/ends/rate.c", "rate->debt = clamp(rate->debt + error, -most, most);", "rate->debt = rate->debt + error + 0 * most;"),
    "rate_of_skipped_frames": ("src/ends/rate.c", "if (!is_coded) return;", "if (!is_coded && 0) return;"),
    "rate_with_small_gain": ("src/ends/rate.c", "clamp(1.5 / wanted, 1, 20)", "clamp(0.2 / wanted, 0.1, 20)"),
    "rate_without_limit": ("src/ends/rate.c", "(double)params->step_most / 1000", "(double)(params->step_most | 100000) / 1000"),
    "rate_of_a_new_encoder": ("src/ends/encoder.c", "*encoder = (dw_encoder *)made; begin_rate(*encoder);", "*encoder = (dw_encoder *)made; (*encoder)->rate.step = 1;"),
    "rate_of_another_life": ("src/ends/encoder.c", "dw_predictor_clear(&encoder->end.predictor); begin_rate(encoder);", "dw_predictor_clear(&encoder->end.predictor);"),
    "rate_on_a_gpu": ("src/codecs/plan.c", "if (params->rate) {", "if (0) {"),
    "deadzone_without_its_edge": ("src/arithmetic/step.h", "return magnitude <= zone ? 0 : scaled;", "return magnitude < zone ? 0 : scaled;"),
    "deadzone_of_one_side": ("src/arithmetic/step.h", "float magnitude = dw_float_of(dw_bits_of(scaled) & 0x7fffffffu);", "float magnitude = scaled;"),
    "deadzone_of_dither": ("src/kernels/kernels_step_c.h", "if (run->rounding == DW_ROUNDING_NEAREST) scaled = dw_step_zoned(", "scaled = dw_step_zoned("),
    "vector_deadzone_at_its_edge": ("src/kernels/kernels_step.h", "i_greater(magnitude, i_set(s->zone))", "i_greater(magnitude, i_set(s->zone - 1))"),
    "vector_deadzone_of_dither": ("src/kernels/kernels_step.h", "dithered ? 1 : zoned ? 2 : 0", "zoned ? 2 : dithered ? 1 : 0"),
    "deadzone_unused": ("src/codecs/step.c", "        .zone = job->zone,\n", ""),
    "deadzone_of_random_rounding": ("src/codecs/options.c", "return config->rounding <= DW_ROUNDING_NEAREST && !config->error && !config->error_abs;", "return !config->error && !config->error_abs;"),
    "deadzone_with_error": ("src/codecs/options.c", "return config->rounding <= DW_ROUNDING_NEAREST && !config->error && !config->error_abs;", "return config->rounding <= DW_ROUNDING_NEAREST;"),
    "step_measured_undithered": ("src/codecs/tiles.c", ".y_dtype = DW_F32, .draws_key = job->draws_key};", ".y_dtype = DW_F32};"),
    "step_measured_from_0": ("src/codecs/tiles.c", "r.row = r.column = 0;", "r.row = r.column = r.element = 0;"),
    "step_poison_unseen": ("src/codecs/tiles.c", "if (!is_poisoned_at(job->payload + job->layout.choice_bytes)) return;", "return;"),
    "step_poison_of_one_segment": ("src/codecs/tiles.c", "for (uint32_t p = 0; p < tile->segments; p++) poison_piece(job, tile, p);", "poison_piece(job, tile, 0);"),
    "step_scale_uncounted": ("src/codecs/tiles.c", "if (!in_tiles) count_scales(", "if (layout->by_channel) count_scales("),
    "step_front_undigested": ("src/arithmetic/layout.h", ": layout->choice_bytes + layout->scale_bytes;", ": layout->choice_bytes;"),
    "step_pieces_of_rows": ("src/arithmetic/layout.h", "layout->by_sample ? 1 : layout->segments;", "layout->segments;"),
    "step_dither_without_life": ("src/codecs/plan.c", "dw_put(bytes + VISIT_BYTES, header->incarnation, 8);", "dw_put(bytes + VISIT_BYTES, 0, 8);"),
    "mismatch_by_number": ("src/codecs/plan.c", "name_difference(&dw_options[i], own,", "name_difference(&dw_options[DW_OPTIONS - 1 - i], own,"),
    "step_told_by_frames": ("src/codecs/plan.c", "    resolve(&again, config, x);\n    fill_agreed(config, x);\n", "    resolve(&again, config, x);\n    fill_agreed(config, x);\n    fill_steps(config);\n"),
    "rans_work_too_large": ("src/codecs/stage_rans.c", "(tiles < BLOCK_TILES ? tiles : BLOCK_TILES) * dw_layout_tile(layout, 0).elements", "tiles - tiles + BLOCK_TILES * DW_TILE_ELEMENTS"),
    "step_default_missing": ("src/codecs/plan.c", "    fill_steps(&config);\n", ""),
    "step_seed_of_any_frame": ("src/ends/decoder_read.c", "draws = draws || (plans->of[use].form && plans->of[use].draws);", "draws = true;"),
    "step_seed_unsent": ("src/ends/encoder_ticket.c", "t->header.seed = encoder->end.config.seed;", "t->header.seed = 0;"),
    "step_clamped_lost": ("src/ends/encoder_commit.c", "counters->clamped_values += t->sums.clamped;", ""),
    "mx_run_in_front": ("src/codecs/mx.c", ".first = r->first_segment * DW_MX_BLOCK, .sum", ".first = 0, .sum"),
    "mx_scales_of_the_tile": ("src/codecs/mx.c", ".scales = job->payload + r->tile.offset + r->first_segment, .choices = layout->chooses ? job->payload : NULL, .codes = job->payload + r->tile.codes, .first_piece = r->tile.first_segment + r->first_segment, .tile_elements = r->tile.elements, .first = r->first_segment * DW_MX_BLOCK, .counts",
                              ".scales = job->payload + r->tile.offset, .choices = layout->chooses ? job->payload : NULL, .codes = job->payload + r->tile.codes, .first_piece = r->tile.first_segment + r->first_segment, .tile_elements = r->tile.elements, .first = r->first_segment * DW_MX_BLOCK, .counts"),
    "mx_poison_unseen": ("src/codecs/tiles.c", "if (scales[p] == DW_MX_POISONED)", "if (0)"),
    "mx_counted_as_bf16": ("src/codecs/tiles.c", "if (layout->scale_size == 1) count_exponents(", "if (0) count_exponents("),
    "mx_poison_forgets": ("src/codecs/mx.c", ".poison_keeps = state,", ".poison_keeps = false,"),
    "mx_not_added": ("src/codecs/mx.c", "if (adds) dw_emit_added(job, values, at, r->channels);", "(void)values;"),
    "mx_brief_of_key": ("src/codecs/codecs.c", "[DW_USE_BRIEF] = OF_FORM,", "[DW_USE_BRIEF] = OF_KEY,"),
    "step_infinite_inverse": ("src/arithmetic/step.h", "return dw_f32_finite(dw_scale_inverse(step));", "return dw_scale_inverse(step);"),
    "step_clamped_too_early": ("src/arithmetic/step.h", ">= 0x42ff0000u;", "> 0x42fe0000u;"),
    "step_lowest_level": ("src/arithmetic/step.h", "clamped = clamped > -most ? clamped : -most;", "clamped = clamped > -most - 1 ? clamped : -most - 1;"),
    "step_tie_away": ("src/arithmetic/step.h", "return (int32_t)dw_rint(clamped);", "return (int32_t)(clamped + (clamped < 0 ? -0.5f : 0.5f));"),
    "step_dither_added_twice": ("src/arithmetic/step.h", "float amount = (float)level - z;", "float amount = (float)level + z;"),
    "step_nan_is_largest": ("src/arithmetic/step.h", "*largest = DW_F32_INFINITY;", ""),
    "step_nan_of_the_processor": ("src/arithmetic/step.h", "if (lanes[i] != lanes[i]) memcpy", "if (0) memcpy"),
    "step_square_in_binary32": ("src/kernels/kernels_step_c.h", "(double)delta[i] * delta[i];", "(double)(delta[i] * delta[i]);"),
    "step_dither_of_the_part": ("src/kernels/kernels_step_c.h", "run->dither.element + at, n, (uint32_t)n, parts);", "run->dither.element, n, (uint32_t)n, parts);"),
    "step_stochastic_subtracts": ("src/kernels/kernels_step_c.h", "if (run->rounding != DW_ROUNDING_DITHER) memset(z, 0, n * sizeof *z);", ""),
    "step_decodes_stochastic": ("src/kernels/kernels_step_c.h", "run->rounding == DW_ROUNDING_DITHER, z);", "run->rounding != DW_ROUNDING_NEAREST, z);"),
    "step_padding": ("src/kernels/kernels_step_c.h", "memset(run->codes + run->n, DW_STEP_ZERO, run->stored - run->n);", "memset(run->codes + run->n, 0, run->stored - run->n);"),
    "vector_step_largest_is_signed": ("src/kernels/kernels_step.h", "i_max(s.largest, i_and(f_bits(delta), i_set(0x7fffffff)))", "i_max(s.largest, f_bits(delta))"),
    "vector_step_square_past_the_end": ("src/kernels/kernels_step.h", "f_sub(load_rest(x, x_dtype, whole, n), base)", "f_sub(load(x, x_dtype, whole), base)"),
    "vector_step_sum_fused": ("src/kernels/kernels_step.h", "f_add(base, f_mul(amount, f_set(s->step)))", "f_muladd(amount, f_set(s->step), base)"),
    "vector_step_bf16_unclamped": ("src/kernels/kernels_step.h", "narrow_pair(f_clamp(even, STEP_MOST_BF16), f_clamp(odd, STEP_MOST_BF16))", "narrow_pair(even, odd)"),
    "vector_step_pair_dithers": ("src/kernels/kernels_step.h", "i_shr(words, 9)", "i_shr(words, 8)"),
    "vector_step_count_of_ties": ("src/kernels/kernels_step.h", "i_greater(magnitude, i_set(0x42feffff))", "i_greater(magnitude, i_set(0x42ff0000))"),
    "vector_step_lowest_level": ("src/kernels/kernels_step.h", "f_set(-most))", "f_set(-most - 1))"),
    "vector_step_stochastic_subtracts": ("src/kernels/kernels_step.h", "i_float(i_and(f_bits(z), i_set(s->back)))", "z"),
    "vector_step_rest_dithers": ("src/kernels/kernels_step.h", "if (s.dithers) s.dithers += at; uint64_t clamped", "uint64_t clamped"),
    "vector_step_codes_past_the_end": ("src/kernels/kernels_step.h", "memcpy(run->codes + at, codes, n);", "memcpy(run->codes + at, codes, CHUNK);"),
    "vector_step_padding": ("src/kernels/kernels_step.h", "memset(run->codes + run->n, DW_STEP_ZERO, run->stored - run->n);", ""),
    "vector_step_odd_codes": ("src/kernels/kernels_step.h", "step_levels(i_shr(words, 8))", "step_levels(i_and(words, i_set(0xff)))"),
    "vector_step_decoded_rest_dithers": ("src/kernels/kernels_step.h", "if (s.dithers) s.dithers += at; decode_with", "decode_with"),
    "vector_mx_minus_zero": ("src/kernels/kernels_mx.h", "return codes_clear(codes_of_low_bytes(codes[0], codes[1], codes[2], codes[3]), 1 << (bits - 1)); /* no -0 */",
                             "return codes_of_low_bytes(codes[0], codes[1], codes[2], codes[3]);"),
    "vector_mx_pairs_minus_zero": ("src/kernels/kernels_mx.h", "return codes_clear(codes_of_low_byte_pairs(codes[0], codes[1], codes[2], codes[3]), 1 << (bits - 1));",
                                   "return codes_of_low_byte_pairs(codes[0], codes[1], codes[2], codes[3]);"),
    "vector_mx_low_end": ("src/kernels/kernels_mx.h", "uint32_t lowest = int8 ? 7 : 1;", "uint32_t lowest = 0;"),
    "vector_mx_high_end": ("src/kernels/kernels_mx.h", "i_greater(largest, i_set(SPECIAL_FROM - 1))", "i_greater(largest, i_set(0x7f7fffff))"),
    "vector_mx_direct_keeps_base": ("src/kernels/kernels_mx.h", "if (kind.chooses) base.part[k] = i_float(", "if (0) base.part[k] = i_float("),
    "vector_mx_zero_behind_the_end": ("src/kernels/kernels_mx.h", "made.zero - (blocks == 1);", "made.zero;"),
    "vector_mx_lowest_power": ("src/kernels/kernels_mx.h", "i_max(i_shl(scale, 23), i_set(0x00400000))", "i_shl(scale, 23)"),
    "vector_mx_special_scale": ("src/kernels/kernels_mx.h", "enum { MX_SPECIAL_SCALE = 207 };", "enum { MX_SPECIAL_SCALE = 255 };"),
    "vector_mx_infinite_element": ("src/kernels/kernels_mx.h", "mx_finite(h_and(both, upper), 0x7b00)", "h_and(both, upper)"),
    "vector_mx_six_bits": ("src/kernels/kernels_mx.h", "h_and(h_sra(odd, 2), tops)", "h_and(h_sra(odd, 3), tops)"),
    "vector_mx_digest": ("src/kernels/kernels_mx.h", "tally_from((uint32_t)(run.element_number / (4 / size)));", "tally_from(0);"),
    "avx2_columns_swapped": ("src/kernels/kernels_avx2.c", "_mm256_set_m128i(columns_of_four(quarters + 48), columns_of_four(quarters + 32))", "_mm256_set_m128i(columns_of_four(quarters + 32), columns_of_four(quarters + 48))"),
    "stretch_unaudited": ("src/codecs/tiles.c", "if (t->first == element) (void)audit_stretch", "if (0) (void)audit_stretch"),
    "tile_not_stored": ("src/codecs/tiles.c", "t->scratch, n * size, done == t->end);", "t->scratch, n * size - (done == t->end), 1);"),
    "tiles_that_are_no_stretches": ("src/codecs/tiles.h", "bool whole = layout->cut_rows ? layout->c % DW_TILE_ELEMENTS == 0", "bool whole = layout->cut_rows ? true"),
    "measured_elsewhere": ("src/codecs/tiles.c", "    r->next = dw_at(r->next, prev_dtype, left_out);\n", "    (void)prev_dtype;\n"),
    "norms_lane": ("src/kernels/kernels_simd.h", "is_counted(delta)), is_counted(error));", "is_counted(delta)), is_counted(x));"),
    "digest_of_half": ("src/kernels/kernels_c.c", "sum += (uint64_t)low * high;", "sum += (uint64_t)low * low;"),
    "stride_ignored": ("src/codecs/tiles.h", "stride == (int64_t)layout->c;", "true;"),
    "float_mode_kept": ("src/base/cpu.c", "if (mode.saved != EXACT_MXCSR) _mm_setcsr(EXACT_MXCSR);", ""),
    "float_mode_not_restored": ("src/base/cpu.c", "_mm_setcsr((unsigned)mode.saved);", "(void)mode;"),
    "float_mode_flushes": ("src/base/cpu.c", "EXACT_MXCSR = 0x1f80", "EXACT_MXCSR = 0x9f80"),
    "float_mode_of_the_receiver": ("src/engine/engine_cpu.c", "if (!job->next || result->bad) return;\n    dw_cpu_mode mode = dw_cpu_enter_exact();", "if (!job->next || result->bad) return;\n    dw_cpu_mode mode = {0x1f80};"),
    "counters_in_the_callers_mode": ("src/ends/encoder_commit.c", "dw_cpu_mode mode = dw_cpu_enter_exact(); /* the counters' sums are rounded in this mode, too */", "dw_cpu_mode mode = {0x1f80};"),
    "ladder_without_needs": ("src/kernels/kernels.c", "if ((ladder[i].needs & ~features) == 0) best = ladder[i].kernels;", "(void)features, best = ladder[i].kernels;"),
    "ladder_without_mask": ("src/kernels/kernels.c", "dw_cpu_features() & allowed;", "dw_cpu_features() | (allowed & 0);"),
    "header_digest_unchecked": ("src/wire/frame.c", "if (dw_get(frame + AT_HEADER_DIGEST, 8) != dw_digest_bytes(frame, AT_HEADER_DIGEST)) return DW_ERR_CORRUPT;", ""),
    "length_unchecked": ("src/wire/frame.c", "if (len < found.length) return DW_ERR_FORMAT;", ""),
    "role_unchecked": ("src/wire/frame.c", 'if (!use_fits(entry->role, entry->use)) return "an entry\'s use does not fit its role";', ""),
    "form_unchecked": ("src/codecs/plan.c", "if (plan->form->wire != (dw_form_name)entry->form)", "if (0)"),
    "size_unchecked": ("src/codecs/plan.c", ": entry->payload_bytes != plan->payload_bytes)", ": 0)"),
    "audit_of_the_sequence": ("src/codecs/plan.c", "(uint32_t)(dw_digest_bytes(bytes, sizeof bytes) % every)", "(uint32_t)(sequence % every)"),
    "parameters_not_in_the_chain": ("src/wire/frame.c", "dw_put(b + 56, parameters, 8);", ""),
    "defaults_written_out": ("src/codecs/config.c", "value == dw_option_value(o, &without)", "value == UINT64_MAX"),
    "limit_ignored": ("src/ends/encoder_calls.c", "options.limit && options.limit < cap ? options.limit : cap;", "cap;"),
    "brief_keeps_its_slot": ("src/ends/encoder_plan.c", "dw_predictor_give(&t->encoder->end.predictor, p->fresh.data, copy_bytes(t));\n        p->fresh.data = NULL;", ""),
    "reset_keeps_keys": ("src/ends/encoder.c", "dw_predictor_clear(&encoder->end.predictor);", ""),
    "skip_takes_no_base": ("src/ends/decoder_plan.c", "bool based = p->entry.role == DW_ROLE_DELTA || p->entry.role == DW_ROLE_SKIP;\n    if (dw_decoder_is_retired", "bool based = p->entry.role == DW_ROLE_DELTA;\n    if (dw_decoder_is_retired"),
    "adds_instead_of_scaling": ("src/codecs/emitting.c", "add(from, job->factor,", "add(from, 1,"),
    "saved_prev_unchecked": ("src/wire/saved.c", "if (dw_get(from + AT_PREV_DIGEST, 8) !=", "if (0 * dw_get(from + AT_PREV_DIGEST, 8) =="),
    "saved_sequence_forgotten": ("src/ends/saving.c", "if (saver->sequence && saved.sequence > *saver->sequence) *saver->sequence = saved.sequence;", ""),
    "another_life_imported": ("src/ends/saving.c", "if (is_new || saver->end->incarnation == saved->incarnation) return DW_OK;", "return DW_OK;"),
    "longer_struct_taken": ("src/codecs/config.c", "if (bytes[i])\n            return complain", "if (0)\n            return complain"),
    "chain_without_base": ("src/wire/frame.c", "put(b, entry->base_chain, 8);", ""),
    "payload_unchecked": ("src/engine/engine_cpu.c", "c->is_right = false;", "c->is_right = true;"),
    "payload_unjudged": ("src/ends/decoder_commit.c", "if (dw_digest_of_sum(t->results[i].payload_sum) != t->in[i].job.payload_digest)", "if (0)"),
    "base_unchecked": ("src/ends/decoder_plan.c", "if (!same_incarnation || held->now.chain != p->entry.base_chain) return DW_ERR_BASE;",
                       "if (!same_life) return DW_ERR_BASE;"),
    "stale_taken": ("src/ends/decoder_plan.c", "if (same_incarnation && header->sequence <= held->now.version) return DW_ERR_STALE;", ""),
    "state_digest_unchecked": ("src/ends/decoder_commit.c", "if (p->fresh.state_digest == p->entry.state_digest) continue;", "continue;"),
    "dropped_taken": ("src/ends/decoder_plan.c", "return !same_incarnation && dw_predictor_refuses", "return 0 && dw_predictor_refuses"),
    "telling_not_counted": ("src/ends/decoder_commit.c", "if (t->header.n_forgotten && !dw_decoder_is_retired(decoder, t->header.incarnation))", "if (0)"),
    "given_up_taken": ("src/ends/decoder_plan.c", "dw_predictor_drop(&decoder->end.predictor, p->held);", "dw_predictor_remove(&decoder->end.predictor, p->held);"),
    "rotten_taken": ("src/ends/decoder_replies.c", "dw_predictor_drop(&decoder->end.predictor, held);", "dw_predictor_remove(&decoder->end.predictor, held);"),
    "dropped_in_any_life": ("src/state/predict.c", "return predictor->dropped_incarnation == incarnation &&", "return"),
    "dropped_again_lower": ("src/state/predict.c", "if (same && predictor->dropped_sequence >= sequence) return;", "(void)same;"),
    "dropped_not_told": ("src/ends/decoder_replies.c", "out.version = decoder->end.predictor.dropped_sequence;", "out.incarnation = 0;"),
    "leap_over_held_alone": ("src/ends/encoder_replies.c", "bool ours = entry->incarnation == encoder->end.incarnation;", "bool ours = entry->held && entry->incarnation == encoder->end.incarnation;"),
    "rotten_base_named": ("src/ends/decoder_replies.c", "    dw_predictor_drop(&decoder->end.predictor, held);\n    return NULL;", "    return held;"),
    "retired_taken": ("src/ends/decoder_plan.c", "if (dw_decoder_is_retired(t->decoder, header->incarnation)) return DW_ERR_STALE;", ""),
    "replaced_untold": ("src/ends/decoder_replies.c", ".replaced = dw_decoder_is_retired(decoder, t->header.incarnation),", ".replaced = 0,"),
    "slot_leaks": ("src/ends/decoder_plan.c", "        dw_predictor_give(&decoder->end.predictor, p->fresh.data, bytes);\n", ""),
    "key_stays_after_failure": ("src/ends/encoder_plan.c", "        if (p->added) dw_predictor_remove(&encoder->end.predictor, p->held);\n", ""),
    "undo_forgotten": ("src/state/predict.c", "        held->undo = held->now;\n", "        drop(predictor, held, &held->now);\n"),
    "nack_ignored": ("src/ends/encoder_replies.c", "        held->base = DW_BASE_NOTHING;\n", ""),
    "no_leap": ("src/ends/encoder_replies.c", "if (ours && entry->version > encoder->sequence) encoder->sequence = entry->version;", ""),
    "doubled_key_taken": ("src/ends/encoder_plan.c", "if (held->mark == encoder->calls) return dw_encoder_fail", "if (0) return dw_encoder_fail"),
    "quota_ignored": ("src/state/predict.c", "growth > quota - *used)) return DW_ERR_LIMIT;", "growth > quota - *used)) (void)used;"),
    "chunks_are_kept": ("src/base/pool.c", "while (pool->oldest && is_too_much(pool, more)) release_chunk", "while (0) release_chunk"),
    "free_room_stays_apart": ("src/base/pool.c", "if (block->after && block->after->state == FREE)", "if (0)"),
    "free_room_before_stays_apart": ("src/base/pool.c", "if (block->before && block->before->state == FREE)", "if (0)"),
    "peak_of_ever": ("src/base/pool.c", "pool->peak_before = pool->peak;", "if (pool->peak > pool->peak_before) pool->peak_before = pool->peak;"),
    "slots_rest_for_ever": ("src/base/pool.c", "if (is_too_much(pool, 0)) end_rests(pool);", ""),
    "rests_are_not_ended": ("src/base/pool.c", "        end_rests(pool);\n        block = find_free", "        block = find_free"),
    "nothing_rests": ("src/base/pool.c", "if (block->large) {", "if (true) {"),
    "room_of_any_bin": ("src/base/pool.c", "last = large ? bin : pool->last_small;", "last = 15 * 64;"),
    "memory_ends_before_room": ("src/base/pool.c", "if (!had_some) return NULL;", "return NULL;"),
    "small_slots_among_copies": ("src/base/pool.c", "bool small = bytes <= SMALL;", "bool small = false;"),
    "slack_without_books": ("src/base/pool.c", "pool->taken_bytes + pool->book_bytes;", "pool->taken_bytes;"),
    "slack_without_table": ("src/state/predict.c", "dw_pool_slack(&predictor->pool) + predictor->table_cap * sizeof *predictor->table", "dw_pool_slack(&predictor->pool)"),
    "gap_left_in_table": ("src/state/predict.c", "        predictor->table[gap] = predictor->table[i];\n        gap = i;\n", ""),
    "option_of_other_codec": ("src/codecs/config.c", "if (named && (o->codecs & dw_codec_bit(config->codec)) && has_prefix(o, value)) found = o;", "if (named && has_prefix(o, value)) found = o;"),
    "skip_from_the_last_visit": ("src/codecs/skip.c", "change <= part * part * all", "change <= part * all"),
    "skip_of_what_is_not_finite": ("src/codecs/skip.c", "largest < DW_F32_INFINITY && ", ""),
    "skip_reads_the_gaps": ("src/codecs/skip.c", "dw_at(x, plans->x, row * (uint64_t)stride)", "dw_at(x, plans->x, row * plans->c)"),
    "skip_with_a_digest": ("src/ends/encoder_commit.c", "is_empty ? 0 : dw_digest_of_sum(t->results[i].payload_sum)", "dw_digest_of_sum(t->results[i].payload_sum)"),
    "coded_work_not_checked": ("src/ends/encoder_ticket.c", "return prepare_stages(t) ? DW_OK : dw_encoder_fail(encoder, DW_ERR_NO_MEMORY, NULL);", "(void)prepare_stages(t);\n    return DW_OK;"),
    "skip_from_no_base": ("src/ends/encoder_plan.c", "if (delta && dw_skip_fits(", "if (held->now.data && dw_skip_fits("),
    "reconstruction_of_moved_payloads": ("src/ends/encoder_calls.c", "    if (reconstructs)\n        encoder->end.engine.emit(encoder->end.engine.context, (dw_jobs){.decode = t->again_jobs},\n                                 t->header.n);\n    dw_cpu_mode mode = dw_cpu_enter_exact(); /* the counters' sums are rounded in this mode, too */\n    dw_ticket_close_gaps(t);", "    dw_cpu_mode mode = dw_cpu_enter_exact();\n    dw_ticket_close_gaps(t);\n    if (reconstructs)\n        encoder->end.engine.emit(encoder->end.engine.context, (dw_jobs){.decode = t->again_jobs},\n                                 t->header.n);"),
    "rans_full_too_late": ("src/kernels/kernels_rans_c.h", "if (x >> (32 - DW_RANS_BITS) >= f) {", "if (x >> (32 - DW_RANS_BITS) > f) {"),
    "rans_words_turned": ("src/kernels/kernels_rans_c.h", "x = x << 16 | run->words[2 * words] | (uint32_t)run->words[2 * words + 1] << 8;", "x = x << 16 | run->words[2 * words + 1] | (uint32_t)run->words[2 * words] << 8;"),
    "rans_filled_with_least": ("src/kernels/kernels_rans_c.h", "run->codes[at + i] - run->least : run->fill;", "run->codes[at + i] - run->least : 0;"),
    "rans_reads_behind_words": ("src/kernels/kernels_rans_c.h", "if (words == run->count) return words + 1;", ""),
    "rans_last_code_not_counted": ("src/kernels/kernels_rans_c.h", "for (; i < n; i++) parts[0][codes[i]]++;", ""),
    "rans_any_per_symbol": ("src/entropy/rans.c", "if (table->per_symbol != 1 && table->per_symbol != 2 && table->per_symbol != 4)", "if (table->per_symbol > 4)"),
    "rans_parts_unsaid": ("src/entropy/rans.c", "if (r->from[3] != (parts > 1))", "if (0)"),
    "rans_codes_past_255": ("src/entropy/rans.c", "if (table->least + table->range > 256)", "if (0)"),
    "rans_one_code_with_words": ("src/entropy/rans.c", "if (!has_states && r->words != 0)", "if (0)"),
    "rans_any_symbols": ("src/entropy/rans.c", "if (symbols_of(table->range, table->per_symbol) == 0)", "if (0)"),
    "rans_long_frequency": ("src/entropy/rans.c", "if (length > DW_RANS_BITS)", "if (0)"),
    "rans_bits_behind_frequencies": ("src/entropy/rans.c", "if (take_bits(r, (8 - r->bit % 8) % 8) != 0)", "if (take_bits(r, (8 - r->bit % 8) % 8) > 255)"),
    "rans_any_sum": ("src/entropy/rans.c", "if (sum != DW_RANS_SLOTS)", "if (sum > DW_RANS_SLOTS)"),
    "rans_any_ends": ("src/entropy/rans.c", "if (frequencies[0] == 0 || frequencies[table->range - 1] == 0)", "if (frequencies[0] == 0)"),
    "rans_long_block": ("src/entropy/rans.c", "if (*used >= n)", "if (*used > n)"),
    "rans_cut_off": ("src/entropy/rans.c", "return *used > r->bytes ?", "return *used > r->bytes + 64 ?"),
    "rans_low_state": ("src/entropy/rans.c", "if (states[i] < DW_RANS_LOWEST)", "if (0)"),
    "rans_words_left_over": ("src/entropy/rans.c", "if (used < words)", "if (0)"),
    "rans_any_last_state": ("src/entropy/rans.c", "if (w->states[i] != DW_RANS_LOWEST)", "if (w->states[i] < DW_RANS_LOWEST)"),
    "rans_past_the_cap": ("src/entropy/rans.c", "if (words > room) return 0;", ""),
    "rans_writes_before_it_pays": ("src/entropy/rans.c", "if (words > room) return 0; uint8_t *behind = put_front(w, d, words, to);", "uint8_t *behind = put_front(w, d, words, to); if (words > room) return 0;"),
    "rans_front_past_the_cap": ("src/entropy/rans.c", "if (d->front_bytes > most) return 0;", "if (d->front_bytes > most + 1) return 0;"),
    "rans_pairs_at_any_price": ("src/entropy/rans.c", "if (bits <= least_bits + least_bits / 128) best = way;", "best = way + (uint32_t)(bits & 0);"),
    "rans_fill_the_last": ("src/entropy/rans.c", "if (f > table->frequencies[table->fill]) table->fill = c;", "if (f >= table->frequencies[table->fill]) table->fill = c;"),
    "parts_never": ("src/entropy/rans.c", "if (codes->parted) {", "if (0) {"),
    "parts_always": ("src/entropy/rans.c", "if (8 * d.front_bytes + d.bits < 8 * best.front_bytes + best.bits) best = d;", "best = d;"),
    "parts_without_codes": ("src/entropy/rans.c", "if (counts[i] == 0) wrong = ", "if (0) wrong = "),
    "parts_first_heads_alone": ("src/entropy/rans.c", "if (at + HEAD_BYTES > r->bytes) return \"a part of an entropy-coded block has no header\";", ""),
    "parts_states_of_the_first": ("src/entropy/rans.c", "needs = needs || tables[i].range > 1;", "needs = tables[0].range > 1;"),
    "parts_words_of_one": ("src/entropy/rans.c", ".count = r->words - *taken};", ".count = r->words};"),
    "parts_words_left": ("src/entropy/rans.c", ".most = room - words};", ".most = room};"),
    "parts_not_turned": ("src/kernels/kernels_rans_c.h", "return (uint8_t)((code ^ mask) - mask);", "return (uint8_t)(code ^ (mask & 0));"),
    "parts_unmirrored": ("src/kernels/kernels_rans_c.h", "(uint8_t)(high ^ 0x80 ^ part_mask(high)) >> 5", "(high & 0x7f) >> 5"),
    "parts_rows_touch": ("src/codecs/dither_parts.c", "n == width && layout->last_channels == layout->segment_width", "n == width"),
    "parts_padding_drawn": ("src/codecs/dither_parts.c", "memset(high, PADDING, tile->elements);", "memset(high, 0, tile->elements);"),
    "parts_of_any_form": ("src/codecs/stage_rans.c", "layout->dithers && dw_rans_has_parts(", "dw_rans_has_parts("),
    "parts_of_no_code": ("src/codecs/stage_rans.c", "is_full = is_full && counts[i] > 0;", "is_full = is_full && true;"),
    "dither_bytes_low": ("src/kernels/kernels_step_c.h", "to[at + i] = (uint8_t)(parts[i] >> 8);", "to[at + i] = (uint8_t)(parts[i] >> 4);"),
    "rans_pair_without_slot": ("src/entropy/frequencies.c", "weight == 0 && product > 0 ? 1 : weight", "weight"),
    "rans_slots_by_weight": ("src/entropy/frequencies.c", "return weight > WORTH ? weight - WORTH : 0;", "return weight;"),
    "rans_flat_logarithm": ("src/entropy/frequencies.c", "(logarithms[i + 1] - logarithms[i]) * rest / 64;", "0 * rest;"),
    "vector_parts_mirrored": ("src/kernels/kernels_parts_x86.h", "_mm256_xor_si256(sets.negative, _mm256_set1_epi8((char)0x80))", "_mm256_set1_epi8((char)0x80)"),
    "vector_parts_full_set": ("src/kernels/kernels_parts_x86.h", ">> (64 - 8 * count) % 64;", ">> (64 - 8 * count) % 56;"),
    "vector_parts_unturned": ("src/kernels/kernels_parts_x86.h", "_mm256_storeu_si256((void *)(codes + i), part_turn(some, sets.negative));", "_mm256_storeu_si256((void *)(codes + i), some);"),
    "vector_parts_counts_whole": ("src/kernels/kernels_parts_x86.h", "dw_kernels_c.count_parts(high + whole, n - whole, counts);", "dw_kernels_c.count_parts(high + whole, 0, counts);"),
    "vector_parts_one_too_few": ("src/kernels/kernels_parts_x86.h", "memcpy(next, to, sizeof to);", ""),
    "vector_rans_no_more": ("src/kernels/kernels_rans_x86.h", "more = 1;", ""),
    "vector_rans_inverse_of_one": ("src/kernels/kernels_rans_x86.h", "|| f == 1) {", ") {"),
    "vector_rans_inverse_rounded": ("src/kernels/kernels_rans_x86.h", "> (uint64_t)1 << (12 + shift) ||", "> (uint64_t)1 << (13 + shift) ||"),
    "vector_rans_reads_behind": ("src/kernels/kernels_rans_x86.h", "if (end - next < RANS_GROUP_BYTES) {", "if (end - next < RANS_GROUP_BYTES / 4) {"),
    "vector_rans_words_forgotten": ("src/kernels/kernels_rans_x86.h", "w->bytes_before = (uint64_t)(w->next - begin);", "w->bytes_before = 0;"),
    "vector_rans_counter_wraps": ("src/kernels/kernels_rans_x86.h", "MOST_TURNS = 255", "MOST_TURNS = 256"),
    "vector_rans_counts_whole": ("src/kernels/kernels_rans_x86.h", "for (uint64_t i = 32 * whole; i < n; i++) counts[codes[i]]++;", ""),
    "vector_rans_quotient_low": ("src/kernels/kernels_rans_x86.h", "_mm256_set1_epi16((short)(65535 / range + 1))", "_mm256_set1_epi16((short)(65535 / range))"),
    "vector_rans_rest_without_words": ("src/kernels/kernels_rans_x86.h", "if (w->next == w->end) return false;", ""),
    "vector_rans_first_digit_twice": ("src/kernels/kernels_rans_x86.h", "__m256i ones_and_range = _mm256_set1_epi16((short)(1 | range << 8)),", "__m256i ones_and_range = _mm256_set1_epi16((short)(1 | (range + 1) << 8)),"),
    "vector_rans_eighth_lane": ("src/kernels/rans_lanes.h", "0x0605040302010000, 0x0605040302010000, 0x0706050403020100", "0x0605040302010000, 0x0605040302010000, 0x0706050403020101"),
}

# As MUTANTS, but in the cross build for 64-bit Arm.
MUTANTS_OF_ARM = {
    "neon_quiet_nan": ("src/kernels/kernels_neon.c", "i_andnot(i_andnot(number, loud), f_bits(wide))", "((void)number, (void)loud, f_bits(wide))"),
    "neon_half_away": ("src/kernels/kernels_neon.c", "vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7fff)), odd)",
                       "vaddq_u32(bits, vorrq_u32(vdupq_n_u32(0x8000), vandq_u32(odd, vdupq_n_u32(0))))"),
    "neon_pair_swapped": ("src/kernels/kernels_neon.c", "vsriq_n_u32(bf16_sum(odd), bf16_sum(even), 16)", "vsriq_n_u32(bf16_sum(even), bf16_sum(odd), 16)"),
    "neon_signed_maximum": ("src/kernels/kernels_neon.c", "i_max_unsigned(i32x16 x, i32x16 y) { return PAIRS(i32x16, vmaxq_u32, x, y); }",
                            "i_max_unsigned(i32x16 x, i32x16 y) { return PAIRS(i32x16, max_signed, x, y); }"),
    "neon_unsigned_shift": ("src/kernels/kernels_neon.c", "vreinterpretq_u32_s32(vshrq_n_s32(vreinterpretq_s32_u32(x), n))", "vshrq_n_u32(x, n)"),
    "neon_columns_swapped": ("src/kernels/kernels_neon.c", "columns_of_four(quarters + 32),\n                    columns_of_four(quarters + 48)",
                             "columns_of_four(quarters + 48),\n                    columns_of_four(quarters + 32)"),
    "neon_signs_swapped": ("src/kernels/kernels_neon.c", "vaddv_u8(vget_low_u8(bits)) | (uint32_t)vaddv_u8(vget_high_u8(bits)) << 8",
                           "vaddv_u8(vget_high_u8(bits)) | (uint32_t)vaddv_u8(vget_low_u8(bits)) << 8"),
    "neon_odd_first": ("src/kernels/kernels_neon.c", "vsliq_n_u8(vuzp1q_u8(x, y), vuzp2q_u8(x, y), 2)", "vsliq_n_u8(vuzp2q_u8(x, y), vuzp1q_u8(x, y), 2)"),
    "neon_counter_twice": ("src/kernels/kernels_neon.c", "(w64){a, b, c, vaddq_u64(c, two)}", "(w64){a, b, c, c}"),
    "neon_bit_order": ("src/kernels/kernels_neon.c", "{0, -1, -2, -3, -4, -5, -6, -7, 0, -1, -2, -3, -4, -5, -6, -7}",
                       "{-7, -6, -5, -4, -3, -2, -1, 0, -7, -6, -5, -4, -3, -2, -1, 0}"),
    "neon_product_lost": ("src/kernels/kernels_neon.c", "vmlal_high_u32(sum.d, more, most)", "sum.d"),
    "neon_square_lane": ("src/kernels/kernels_neon.c", "d_add_four(sum.part + 6, x.d);", "d_add_four(sum.part + 6, x.c);"),
    "arm_mode_kept": ("src/base/cpu.c", 'if (control != 0) __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)0));', ""),
    "arm_mode_flushes": ("src/base/cpu.c", '"r"((uint64_t)0)', '"r"((uint64_t)1 << 24)'),
    "arm_mode_not_restored": ("src/base/cpu.c", 'if (control != 0) __asm__ volatile("msr fpcr, %0" : : "r"(control));', "(void)control;"),
    "arm_flags_not_restored": ("src/base/cpu.c", '__asm__ volatile("msr fpsr, %0" : : "r"(status));', "(void)status;"),
    "arm_ladder_empty": ("src/kernels/kernels.c", "    {DW_CPU_NEON, &dw_kernels_neon},\n", ""),
}

# The kernels for GPUs, whose source the test cuda_kernels runs on the CPU.
MUTANTS_OF_GPU = {
    "gpu_floats_keep_poison": ("cuda/floats.cuh", "return dw_floats_is_finite(value) ? dw_narrow(value, prev_dtype) : 0;", "return dw_narrow(value, prev_dtype);"),
    "gpu_floats_clamp_what_is_exact": ("cuda/floats.cuh", "return dtype == DW_F16 ? dw_f16_round(value) : dw_bf16_round(value);", "return dw_narrow(value, dtype);"),
    "gpu_floats_rows_touch": ("cuda/floats.cuh", "return at + 1 + (uint64_t)stride - layout->c;", "return at + (uint64_t)stride - layout->c;"),
    "gpu_floats_past_the_payload": ("cuda/floats.cuh", "if (bytes <= 16 * k) continue;\n        dw_payload_store", "if (!bytes) continue;\n        dw_payload_store"),
    "gpu_floats_odd_end_of_a_state": ("cuda/floats.cuh", "dtype == DW_F32 && place->n - i <= 2;", "dtype == DW_F32 && place->n - i <= 1;"),
    "gpu_floats_audit_of_the_first": ("cuda/floats.cuh", "% audit.every != audit.phase) return 0;", "% audit.every != 0) return 0;"),
    "gpu_floats_poison_not_counted": ("cuda/floats.cuh", "poisoned += dw_floats_is_finite(value) ? 0 : 1;", "poisoned += 0;"),
    "gpu_floats_sync_rounds": ("cuda/floats.cuh", "keeps = job->next && job->next != job->x;", "keeps = job->next != NULL;"),
    "gpu_floats_y_of_the_wire": ("cuda/floats.cuh", "dw_narrow(dw_widen(next[i], job->prev_dtype), job->y_dtype)", "dw_narrow(next[i] ? value : 0.0f, job->y_dtype)"),
    "gpu_floats_same_dtype_rounds": ("cuda/floats.cuh", "wire == job->y_dtype ? bits[i] : dw_floats_round", "dw_floats_round"),
    "gpu_floats_end_of_a_stretch": ("cuda/floats.cuh", "left < DW_EIGHT ? (uint32_t)left : (uint32_t)DW_EIGHT;", "left ? (uint32_t)DW_EIGHT : 0;"),
    "gpu_mx_direct_keeps_base": ("cuda/mx.cuh", "float base = direct ? 0.0f : e->base.of[i];", "float base = e->base.of[i];"),
    "gpu_mx_keeps_poison": ("cuda/mx.cuh", "dw_narrow(poisoned ? held->of[i] : value, dtype)", "dw_narrow(value, dtype)"),
    "gpu_mx_scale_bytes": ("cuda/encode.cuh", "layout->by_channel ? 0 : layout->scale_size * tile->segments,", "layout->by_channel ? 0 : 2 * tile->segments,"),
    "gpu_step_padding_is_a_value": ("cuda/step.cuh", "return is_last ? layout->last_channels : layout->segment_channels;", "return is_last ? layout->segment_width : layout->segment_channels;"),
    "gpu_step_poison_unseen": ("cuda/step.cuh", "sum <= DBL_MAX ? 0 : DW_F32_INFINITY", "0"),
    "gpu_step_carry_lost": ("cuda/step.cuh", "double sum = k == first ? room->carry : 0;", "double sum = 0;"),
    "gpu_step_chunk_cut": ("cuda/step.cuh", "bool goes_on = end < layout->tiles && (last + 1) * each > end;", "bool goes_on = false;"),
    "gpu_step_chunk_of_rows": ("cuda/step.cuh", "uint64_t each = dw_layout_chunk_tiles(layout);", "uint64_t each = DW_CHUNK_TILES;"),
    "gpu_step_measured_stays": ("cuda/step.cuh", "if (*room) share->sums->measured = 0;", ""),
    "gpu_step_row_from_its_tile": ("cuda/step.cuh", "index / layout->row_segments * layout->row_segments;", "index;"),
    "gpu_step_of_many_rows": ("cuda/step.cuh", "return dw_step_for(sum, layout->c, part->job.step);", "return dw_step_for(sum, (uint64_t)layout->t * layout->c, part->job.step);"),
    "gpu_step_dither_kept": ("cuda/step.cuh", "subtracts ? z->of[i] : 0.0f", "subtracts ? 0.0f : 0.0f"),
    "gpu_step_any_draw_subtracted": ("cuda/step.cuh", "subtracts ? z->of[i] : 0.0f", "subtracts ? z->of[i] : z->of[i]"),
    "gpu_step_draws_of_the_encoder": ("cuda/step.cuh", "dithers ? job->draws_key : job->rule.dither_key;", "job->rule.dither_key;"),
    "gpu_step_poison_is_clamped": ("cuda/step.cuh", "clamped += !poisoned && dw_step_is_clamped", "clamped += dw_step_is_clamped"),
    "gpu_step_poison_forgets": ("cuda/step.cuh", "dw_narrow(poisoned ? e->base.of[i] : value, prev_dtype)", "dw_narrow(value, prev_dtype)"),
    "gpu_step_poison_decoded": ("cuda/step.cuh", "dw_narrow(poisoned ? held->of[i] : value, dtype)", "dw_narrow(value, dtype)"),
    "gpu_step_level_not_clamped": ("cuda/step.cuh", "float most = (float)DW_STEP_LEVELS, clamped = scaled < most ? scaled : most;", "float most = (float)DW_STEP_LEVELS, clamped = scaled;"),
    "gpu_step_in_every_tile": ("cuda/step.cuh", "index == 0 && place->first == 0", "place->first == 0"),
    "gpu_step_zero_not_counted": ("cuda/step.cuh", "if (step == 0) atomicAdd(&part->share.sums->zero, 1ull);", ""),
    "gpu_step_poison_not_counted": ("cuda/step.cuh", "if (dw_scale_is_poisoned(step)) atomicAdd(&part->share.sums->poisoned, 1ull);", ""),
    "gpu_step_clamped_stay": ("cuda/block.cuh", "report->clamped = dw_taken(&sums->clamped);", "report->clamped = sums->clamped;"),
    "choice_of_the_wrong_extremes": ("cuda/encode.cuh", "extremes = is_direct ? direct[slot] : delta[slot];", "extremes = delta[slot];"),
    "zeros_behind_choices": ("cuda/encode.cuh", "index + 1 == layout->tiles ? layout->choice_bytes : end;", "end;"),
    "sum_loses_bits": ("cuda/block.cuh", "(uint32_t)(mine >> 44)) << 44;", "(uint32_t)(mine >> 44) & 0xffffu) << 44;"),
    "audit_of_the_first_stretch": ("cuda/block.cuh", "(at + i) / DW_TILE_ELEMENTS % audit.every", "at / DW_TILE_ELEMENTS / 2 % audit.every"),
    "poison_keeps_nothing": ("cuda/encode.cuh", "dw_scale_is_poisoned(scale) ? e->base.of[i] : value", "dw_scale_is_poisoned(scale) ? 0.0f : value"),
    "poison_spreads_to_prev": ("cuda/decode.cuh", "is_poisoned && !keeps ? dw_nan_of(dtype)", "is_poisoned ? dw_nan_of(dtype)"),
    "dither_of_the_thread": ("cuda/encode.cuh", "uint64_t counter = at / DW_EIGHT;", "uint64_t counter = threadIdx.x;"),
    "dither_not_skipped": ("cuda/encode.cuh", "skipped & 2 ? words[i + 1] : words[i]", "words[i]"),
    "dither_in_padding": ("cuda/encode.cuh", "i < n ? words[i / 2] >> (16 * (i % 2)) & 0xffffu : DW_DITHER_NONE", "words[i / 2] >> (16 * (i % 2)) & 0xffffu"),
    "zeros_behind_scales": ("cuda/encode.cuh", "room->staged[scales_end + threadIdx.x] = 0;", ";"),
    "zeros_behind_codes": ("cuda/encode.cuh", "if (threadIdx.x < 16 && codes_end + threadIdx.x < bytes) room->staged[codes_end + threadIdx.x] = 0;", ""),
    "zeros_behind_channels": ("cuda/choose.cuh", "at < layout->scale_bytes; at++) scales[at] = 0;", "0; at++) scales[at] = 0;"),
    "used_message_stays_used": ("cuda/block.cuh", "(void)dw_taken(&sums->arrived);", ""),
    "no_barrier_before_the_tile_leaves": ("cuda/encode.cuh", "    __syncthreads();\n    uint64_t payload = dw_put_tile", "    uint64_t payload = dw_put_tile"),
    "no_barrier_before_codes_are_read": ("cuda/decode.cuh", "    __syncthreads();\n#pragma unroll\n    for (uint32_t slot = 0; slot < DW_SLOTS; slot++) {\n        if (!ByColumns", "#pragma unroll\n    for (uint32_t slot = 0; slot < DW_SLOTS; slot++) {\n        if (!ByColumns"),
    "search_of_half_a_piece": ("cuda/encode.cuh", "at < width; at += DW_NORM_LANES) sum += squares[at];", "at < width / 2; at += DW_NORM_LANES) sum += squares[at];"),
    "search_of_a_part_of_a_row": ("cuda/choose.cuh", "for (uint64_t i = lane; i < layout->c; i += DW_NORM_LANES)", "for (uint64_t i = lane; i < layout->c / 16; i += DW_NORM_LANES)"),
    "search_of_a_part_of_a_channel": ("cuda/choose.cuh", "t < job->layout.t; t++)", "t < job->layout.t / 4; t++)"),
    "pieces_not_counted": ("cuda/decode.cuh", "if (!ByColumns && places[slot].stored && places[slot].leads)", "if (0)"),
    "channels_not_counted": ("cuda/decode.cuh", "if (chosen == 0) atomicAdd", "if (0) atomicAdd"),
    "rows_of_one_tile": ("cuda/choose.cuh", "part->share.chosen[row * layout->row_segments + i] = chosen;", "part->share.chosen[row * layout->row_segments] = chosen;"),
    "strip_forgets_rows": ("cuda/choose.cuh", "t += DW_CUDA_THREADS / DW_STRIP) {", "t += DW_CUDA_THREADS) {"),
    "group_of_half_its_lanes": ("cuda/encode.cuh", "dw_join_lanes(found[slot], width / DW_EIGHT);", "dw_join_lanes(found[slot], width / DW_EIGHT / 2);"),
    "tensor_without_its_stride": ("cuda/place.cuh", "row * (uint64_t)stride + place.column;", "row * (uint64_t)layout->c + place.column;"),
    "padding_is_stored": ("cuda/place.cuh", "within < channels ? channels - within : 0;", "within < channels ? DW_EIGHT : 0;"),
    "high_codes_lost": ("cuda/encode.cuh", "*(uint16_t *)to = (uint16_t)(low | high << 8);", "*(uint16_t *)to = (uint16_t)low;"),
    "digest_of_a_part": ("cuda/block.cuh", "dw_digest_pair(all.word[2], all.word[3], place + 2);", "dw_digest_pair(all.word[2], all.word[3], place);"),
    "front_not_digested": ("cuda/encode.cuh", "dw_block_sum(dw_front_sum(&part->job.layout, part->job.payload), room->found.sums[0]);", "dw_block_sum(0, room->found.sums[0]);"),
    "part_of_the_neighbour": ("cuda/block.cuh", "parts[middle].share.first[phase] <= blockIdx.x", "parts[middle].share.first[phase] < blockIdx.x"),
    "odd_end_of_a_state": ("cuda/audit.cuh", "dtype == DW_F32 && first + i + 2 >= elements;", "dtype == DW_F32 && first + i + 4 >= elements;"),
    "y_of_another_dtype": ("cuda/decode.cuh", "dw_narrow(dw_widen(next[i], prev_dtype), job->y_dtype);", "dw_narrow(dw_widen(next[i], prev_dtype), prev_dtype);"),
    "levels_not_clamped": ("cuda/encode.cuh", "return min(max(level, -half), half - 1);", "return max(level, -half);"),
    "levels_of_nobody": ("cuda/encode.cuh", "if (inverse != 0.0f) level = dw_level_of", "level = dw_level_of"),
    "negative_zeros_count": ("cuda/encode.cuh", "negative >> 31 ? negative & 0x7fffffffu : 0}", "negative & 0x7fffffffu}"),
    "serial_of_nobody": ("cuda/block.cuh", "report->serial = share->serial;", "report->serial = 1;"),
    "head_state_of_payload": ("cuda/head.cuh", "dw_digest_of_sum(dw_fresh_word(&report->state))", "dw_digest_of_sum(dw_fresh_word(&report->payload))"),
    "head_digests_everywhere": ("cuda/head.cuh", "if (word == 0 || at < part->entries) return word;", "if (at < part->entries) return word;"),
    "head_digests_of_forgotten": ("cuda/head.cuh", "if (entry >= part->n) return word;", "if (entry > part->n) return word;"),
    "head_forgets_a_chunk": ("cuda/head.cuh", "if (threadIdx.x < DW_XXH3_LANES) room->words[threadIdx.x] = before;", ""),
    "head_of_half_the_lanes": ("cuda/head.cuh", "__threadfence_system();\n    __syncthreads();\n    if (threadIdx.x == 0) dw_end_head", "__threadfence_system();\n    if (threadIdx.x == 0) dw_end_head"),
    "head_made_twice": ("cuda/head.cuh", "part->frame[i] = is_used ? 0 : room->header[i];", "part->frame[i] = room->header[i];"),
    "xxh3_stripe_too_many": ("cuda/xxh3.cuh", "is_last ? (uint32_t)left - 1 :", "is_last ? (uint32_t)left :"),
    "xxh3_not_scrambled": ("cuda/xxh3.cuh", "sum ^= sum >> 47;", ""),
    "xxh3_middle_of_the_secret": ("cuda/xxh3.cuh", "16 * (i - rounds) + 3", "16 * (i - rounds)"),
    "xxh3_lane_of_its_own": ("cuda/xxh3.cuh", "return words[lane ^ 1] +", "return words[lane] +"),
}

# The engine on a device, against the tests over a driver in main memory.
MUTANTS_OF_STREAMS = {
    "missing_symbol_passes": ("src/base/symbols.h", "if (!address) return symbols[i].name;", "if (!address) continue;"),
    "floats_digest_state_twice": ("src/codecs/floats.c", ".blocks_are_stretches = true", ".blocks_are_stretches = false"),
    "any_form_searches": ("src/codecs/floats.c", ".encode = \"dw_floats_encode\",", ".encode = \"dw_floats_encode\", .encode_search = \"dw_encode_mse\","),
    "kernel_that_is_not_there": ("src/codecs/mx.c", "\"dw_mx_decode_direct\"", "\"dw_mx_decode_straight\""),
    "entropy_on_a_gpu": ("src/ends/end.c", "status = dw_params_on_device(params, why);", "(void)params;"),
    "step_measures_like_rows": ("src/codecs/step.c", ".chooses_by_tile = true,", ".chooses_by_tile = false,"),
    "step_sums_without_room": ("cuda/names.c", "tiles_decide ? 0 : 2 * layout->tiles;", "tiles_decide ? 0 : layout->tiles;"),
    "step_of_nobody": ("src/ends/encoder_plan.c", ": (double)plan->params.step / 1000,", ": 0,"),
    "clamped_on_a_device": ("cuda/launch.c", "results[i].sums.clamped = report.clamped;", ""),
    "kernel_of_another_form": ("src/codecs/mx.c", "\"dw_mx_decode_direct\"", "\"dw_decode_direct\""),
    "finished_before_its_head": ("cuda/launch.c", "if (!dw_cuda_heads_done(&launch->heads, first)) return DW_PENDING;", ""),
    "head_of_the_frame_before": ("cuda/launch.c", "if (head) dw_cuda_heads_refill(&launch->heads, head, serial);", ""),
    "head_of_the_first_jobs": ("cuda/heads.c", ".reports = reports + head->first,", ".reports = reports,"),
    "heads_of_one_serial": ("cuda/heads.c", "part->serial = ++*serial;", "part->serial = 1;"),
    "heads_of_the_last_launch": ("cuda/heads.c", "heads->n = 0;\n    if (given.n == 0) return DW_OK;", "if (given.n == 0) return DW_OK;"),
    "head_without_a_kernel": ("cuda/heads.c", "if (!cuda->kernels[DW_CUDA_AT_SEAL]) {", "if (0) {"),
    "draft_of_a_stateless_entry": ("src/ends/encoder_commit.c", "entry.state_digest = audits && dw_role_has_state(entry.role);", "entry.state_digest = audits;"),
    "draft_without_an_audit": ("src/ends/encoder_commit.c", "entry.state_digest = audits && dw_role_has_state(entry.role);", "entry.state_digest = dw_role_has_state(entry.role);"),
    "whole_on_the_cpu": ("src/ends/encoder_calls.c", "if (!encoder->end.engine.device)\n        return dw_encoder_fail(encoder, DW_ERR_UNSUPPORTED,\n                               \"this encoder computes on the CPU, where dw_encode returns", "if (0)\n        return dw_encoder_fail(encoder, DW_ERR_UNSUPPORTED,\n                               \"this encoder computes on the CPU, where dw_encode returns"),
    "head_into_nothing": ("src/ends/encoder_calls.c", "bool in_frame = t->is_whole && !head;", "bool in_frame = !head;"),
    "saved_before_it_is_copied": ("cuda/engine_cuda.c", "dw_cuda_result waited = driver->stream_synchronize(engine->copy_stream);", "dw_cuda_result waited = DW_CUDA_SUCCESS;"),
    "saved_behind_all_others": ("cuda/engine_cuda.c", "(dw_cuda_address)from, bytes, engine->copy_stream);", "(dw_cuda_address)from, bytes, NULL);"),
    "saving_ends_a_capture": ("cuda/engine_cuda.c", "int mode = DW_CUDA_CAPTURE_RELAXED; /* another", "int mode = 0; /* another"),
    "stream_of_saving_left": ("cuda/engine_cuda.c", "end_copy_stream(engine);\n    dw_cuda_close", "dw_cuda_close"),
    "saved_in_flight": ("src/ends/saving.c", "if (held && held->busy) return dw_end_fail(saver->end, DW_ERR_ARGUMENT, in_flight);", ""),
    "all_saved_in_flight": ("src/ends/saving.c", "if (any_is_busy(predictor)) return dw_end_fail(saver->end, DW_ERR_ARGUMENT, in_flight);", ""),
    "slot_of_a_failed_import": ("src/ends/saving.c", "if (status) dw_predictor_give(predictor, fresh.data, bytes);", ""),
    "key_of_a_failed_import": ("src/ends/saving.c", "if (added) dw_predictor_remove(predictor, held);\n        return status;", "return status;"),
}

# Links and the backend tcp, against the inputs of fuzz_records and fuzz_link.
MUTANTS_OF_LINKS = {
    "early_chunks_without_end": ("transports/tcp/tcp_arriving.c", "end->stash_bytes > DW_TCP_WINDOW_BYTES + (uint64_t)dw_tcp_chunk_len(stripe->total) || ", ""),
    "unused_chunks_without_end": ("transports/tcp/tcp_arriving.c", "if (end->unused_bytes + stash->cap > DW_TCP_WINDOW_BYTES) {", "if (0) {"),
    "two_lengths": ("transports/tcp/tcp_arriving.c", "} else if (a->total != stripe->total) {", "} else if (0) {"),
    "a_chunk_counts_twice": ("transports/tcp/tcp_arriving.c", "if (n < end->whole || (a->has[number / 64] >> number % 64 & 1)) {", "if (n < end->whole) {"),
    "chunks_anywhere": ("transports/tcp/tcp_arriving.c", "|| stripe->offset % chunk_len != 0) return false;", ") return false;"),
    "numbers_without_end": ("transports/tcp/tcp_arriving.c", "stripe->message >= end->awaited + DW_TCP_ARRIVING_MOST || ", ""),
    "acknowledged_too_early": ("transports/tcp/tcp_arriving.c", "return end->whole < most ? end->whole : most;", "return end->whole + 1 < most ? end->whole + 1 : most;"),
    "order_of_arrival": ("transports/tcp/tcp_arriving.c", "if (stripe->message == end->awaited) {\n        begin_direct", "if (stripe->message >= end->awaited) {\n        begin_direct"),
    "acknowledged_never_sent": ("transports/tcp/tcp_send.c", "if (whole > end->next_message) {", "if (0) {"),
    "limit_ignored": ("transports/tcp/tcp_send.c", "if (kept->position + (uint64_t)end->cursor_chunk * kept->chunk_len >= end->peer_limit) break;", ""),
    "lost_chunks_stay_lost": ("transports/tcp/tcp_send.c", "            end->cursor = number;\n            end->cursor_chunk = chunk;\n", ""),
    "sent_bytes_let_go_early": ("transports/tcp/tcp.c", "!end->copies && end->answered > end->acked ? end->answered - end->acked : 0;", "0;"),
    "strangers_are_stripes": ("transports/tcp/tcp_peer.c", "return end->has_session && differs == 0;", "return end->has_session && differs < 2;"),
    "words_of_another_session": ("transports/tcp/tcp_guests.c", "    dw_tcp_forget_arriving(end);", ""),
    "longer_than_allowed": ("transports/link/progress.c", "bool has_come = *status == DW_OK || *status == DW_ERR_NO_ROOM;", "bool has_come = *status == DW_ERR_NO_ROOM;"),
    "kinds_unchecked": ("transports/link/progress.c", "if (kind != DW_KIND_DATA && kind != DW_KIND_BYE) {", "if (kind == 0) {"),
    "acknowledgements_unwatched": ("transports/link/progress.c", ".kept = state.kept_sends > 0 ? link->kept_moved_ns + limit - now : INT64_MAX,", ".kept = INT64_MAX,"),
    "fails_again_and_again": ("transports/link/progress.c", "if (link->status != DW_OK)\n        until = INT64_MAX;", "if (0)\n        until = INT64_MAX;"),
    "answers_without_end": ("transports/link/calls.c", "    if (always) bound_answers(link);\n", ""),
    "given_after_nonsense": ("transports/link/calls.c", "bool may_take = link->status == DW_OK || link->status == DW_ERR_PEER ||", "bool may_take = 1 ||"),
    "last_comes_first": ("transports/link/inbox.c", "    if (inbox->tail) inbox->tail->next = buffer;\n    else inbox->head = buffer;\n    inbox->tail = buffer;\n",
                         "    buffer->next = inbox->head;\n    inbox->head = buffer;\n    if (!inbox->tail) inbox->tail = buffer;\n"),
    "hello_not_looked_for_again": ("transports/link/open.c", "has_failed ? 2 : 1; looks > 0 &&", "has_failed ? 0 : 1; looks > 0 &&"),
    "peers_limit_ignored": ("transports/link/open.c", "if (peer_max < link->max_message_bytes) link->max_message_bytes = peer_max;", "(void)peer_max;"),
}
# What only the fuzzers of frames see, by their random inputs and their model.
MUTANTS_OF_FRAMES = {
    "length_bound": ("src/wire/frame.c", "dw_size_multiply(all, 9, &all)", "dw_size_multiply(all, 8, &all)"),
    "skip_without_zero_digest": ("src/wire/frame.c", "if (empty != (entry->payload_digest == 0) || (empty && entry->payload_bytes))", "if (empty && entry->payload_bytes)"),
    "stateless_use_exact": ("src/wire/frame.c", "return use == DW_USE_WHOLE || use == DW_USE_BRIEF;", "return use == DW_USE_WHOLE || use == DW_USE_BRIEF || use == DW_USE_EXACT;"),
    "padding_of_tables": ("src/wire/frame.c", "if (frame[at]) return", "if (0) return"),
    "parameters_unordered": ("src/codecs/plan.c", "return again.n_parameters == n_parameters && memcmp(again.block, block, (size_t)n_parameters * DW_PARAMETER_BYTES) == 0;", "return again.n_parameters == n_parameters;"),
    "seed_without_draws": ("src/ends/decoder_read.c", "if (header->seed && !draws)", "if (0)"),
    "ack_of_bad_entries": ("src/ends/decoder_read.c", "t->prev = plans ? plans->params.prev : config.prev;", "if (!bad) t->prev = plans ? plans->params.prev : config.prev;"),
    "stale_before_base": ("src/ends/decoder_plan.c", "if (status < worst) worst = status;", "if (status && !worst) worst = status;"),
    "forgets_what_it_carries": ("src/ends/decoder_plan.c", "if (held && held->mark == decoder->calls)\n            return", "if (held && held->mark == 0)\n            return"),
    "skip_with_digest": ("src/ends/decoder_plan.c", ".payload_digest = p->entry.role == DW_ROLE_SKIP ? dw_digest_of_sum(0) : p->entry.payload_digest", ".payload_digest = p->entry.payload_digest"),
    "gives_up_without_base": ("src/ends/decoder_commit.c", "p->drops_copy = p->entry.base_chain != 0;", "p->drops_copy = true;"),
    "skip_in_dense_y": ("src/codecs/skip.c", "t * (uint64_t)job->stride, made->c);", "t * made->c, made->c);"),
    "limit_ignored": ("src/ends/encoder_calls.c", "t->room = options.limit && options.limit < cap ? options.limit : cap;", "t->room = cap;"),
    "longer_than_expected": ("src/ends/encoder_plan.c", "if (total > t->room) shorten(t, end, &payload);", "if (total > 2 * t->room) shorten(t, end, &payload);"),
    "reconstructs_rounded": ("src/ends/encoder_calls.c", ".is_exact = t->out[i].entry.role == DW_ROLE_STATELESS,", ".is_exact = false,"),
    "coded_size_of_scales_alone": ("src/codecs/stage_rans.c", "if (size <= b.scales || size > b.bytes)", "if (size < b.scales || size > b.bytes)"),
    "coded_size_beyond_the_tiles": ("src/codecs/stage_rans.c", "if (size <= b.scales || size > b.bytes)", "if (size <= b.scales)"),
    "coded_sizes_not_added_up": ("src/codecs/stage_rans.c", "if (dw_round_up(at, 16) != job->payload_bytes)", "if (dw_round_up(at, 16) > job->payload_bytes)"),
    "coded_payload_too_short": ("src/codecs/stage_rans.c", "if (job->payload_bytes < p.blocks_at)", "if (0)"),
    "coded_block_with_a_rest": ("src/codecs/stage_rans.c", "if (used != coded) return", "if (0) return"),
    "coded_codes_of_any_size": ("src/codecs/stage_rans.c", "if (!codes_fit(codes, b->codes, layout->bits))", "if (0)"),
    "coded_scales_lost": ("src/codecs/stage_rans.c", "put_together(layout, b, job->plain, from, codes);", "put_together(layout, b, job->plain, codes, codes);"),
    "coded_front_lost": ("src/codecs/stage_rans.c", "memcpy(job->plain, job->coded, (size_t)p.front);", ""),
    "coded_length_as_planned": ("src/ends/encoder_commit.c", "    t->header.length = end;\n}", "}"),
    "coded_bad_is_taken": ("src/engine/engine_cpu.c", "c->results[i].bad = joined.bad;", ""),
    "coded_blocks_across_rows": ("src/codecs/stage_rans.c", "uint64_t skipped = i * BLOCK_TILES, left = all.tiles - skipped;", "uint64_t skipped = i * BLOCK_TILES, left = layout->tiles - all.first_tile - skipped;"),
}
# Structs of older and newer callers, against tests/transports/common/test_sized.c.
MUTANTS_OF_SIZES = {
    "newer_options_taken": ("transports/common/sized.c", "if (bytes > own_bytes && !is_zero(", "if (0 && !is_zero("),
    "zeros_of_a_newer_caller_refused": ("transports/common/sized.c", "if (bytes > own_bytes && !is_zero((const unsigned char *)given + own_bytes, bytes - own_bytes)) {", "if (bytes > own_bytes) {"),
    "past_the_end_of_an_older_struct": ("transports/common/sized.c", "memcpy(own, given, given_bytes < own_bytes ? given_bytes : own_bytes);", "memcpy(own, given, own_bytes);"),
    "rest_of_newer_counters_left": ("transports/common/sized.c", "memset(own, 0, own_bytes);", ""),
    "size_of_the_caller_lost": ("transports/common/sized.c", "memcpy(own, &own_bytes, sizeof own_bytes);", ""),
    "traits_past_their_end": ("transports/common/sized.c", "if (traits->struct_size >= sizeof whole) {", "if (1) {"),
    "state_past_its_end": ("transports/common/sized.c", "if (state->struct_size >= sizeof whole) {", "if (1) {"),
    "news_to_a_backend_refused": ("transports/common/sized.c", "dw_take_told(how, sizeof *how, given", "dw_take_asked(how, sizeof *how, given"),
    "no_size_is_a_size": ("transports/common/sized.c", "if (*bytes >= sizeof *bytes && *bytes <= MOST_BYTES)", "if (*bytes <= MOST_BYTES)"),
    "any_size_is_a_size": ("transports/common/sized.c", "if (*bytes >= sizeof *bytes && *bytes <= MOST_BYTES)", "if (*bytes >= sizeof *bytes)"),
    "turn_of_an_older_table": ("transports/link/open.c", "status = dw_take_transport(&transport, found, why);", "transport = *found;"),
    "inner_table_not_asked": ("transports/shaped/shaped.c", "dw_status status = dw_take_transport(&end->inner, found, how->why);", "dw_status status = DW_OK;\n    end->inner = *found;"),
    "keys_not_asked": ("transports/link/open.c", "dw_status status = dw_take_asked(tls, sizeof *tls, full->tls, \"dw_tls_options\", why);", "dw_status status = DW_OK;\n        *tls = *full->tls;"),
    "codecs_not_asked": ("transports/channel/channel_open.c", "dw_status status = dw_take_asked(own, sizeof *own, config, \"dw_config\", why);", "dw_status status = DW_OK;\n    *own = *config;"),
}
# What a backend says of itself, and who is given what, against the suite rows.
MUTANTS_OF_ROWS = {
    "faults_without_a_time": ("transports/link/open.c", "if (has_faults != (traits.retry_ms > 0)) {", "if (0) {"),
    "doubled_is_no_fault": ("transports/link/open.c", "traits.loses || traits.doubles ||", "traits.loses ||"),
    "carries_any_length": ("transports/link/open.c", "if (link->own_max_message_bytes > most)", "if (0)"),
    "carries_not_even_the_header": ("transports/link/open.c", "if (traits.longest_message > 0 && traits.longest_message < DW_LINK_HEADER_BYTES + 1) {", "if (0) {"),
    "one_context_for_all": ("transports/link/open.c", "while (at && at->scheme && strcmp(at->scheme, scheme) != 0) at++;", "(void)scheme;"),
    "context_of_the_one_in_front": ("transports/link/open.c", "how->context = context_of(options, found->scheme);", "if (!how->context) how->context = context_of(options, found->scheme);"),
    "context_of_nobody": ("transports/link/open.c", "if (!find_scheme(options, at->scheme, strlen(at->scheme))) {", "if (0) {"),
    "two_contexts_of_one_name": ("transports/link/open.c", "if (strcmp(other->scheme, at->scheme) == 0)", "if (0)"),
    "memory_of_nobody": ("transports/common/sized.c", "how->allocator = dw_memory_allocator(&how->allocator);", "how->allocator = dw_memory_allocator(NULL);"),
    "another_size_given_back": ("transports/link/inbox.c", "dw_memory_give(inboxes->allocator, inbox, sizeof *inbox);\n        inbox = next;", "dw_memory_give(inboxes->allocator, inbox, 1);\n        inbox = next;"),
    "hub_kept_for_ever": ("transports/loop/loop.c", "dw_memory_give(&allocator, hub, sizeof *hub);\n}", "(void)allocator;\n}"),
    "half_an_allocator": ("transports/link/open.c", "if (!full->allocator.allocate != !full->allocator.release) {", "if (0) {"),
    "what_came_goes_with_memory": ("transports/link/calls.c", "link->status == DW_ERR_NO_MEMORY || link->status == DW_ERR_LIMIT;", "link->status == DW_ERR_LIMIT;"),
    "shape_hides_its_losses": ("transports/shaped/shaped.c", "traits->loses |= settings->loss > 0;", ""),
    "poll_wakes_nobody_for_what_the_other_heard": ("transports/nccl/nccl.c", "state->wake_ns = 0;", ""),
    "turn_of_a_shape_moves_nothing": ("transports/shaped/shaped.c", "pump(end);\n    settle(end);\n    dw_status turned", "dw_status turned"),
}
# What peers and strangers may cost, against the suite bounds.
MUTANTS_OF_BOUNDS = {
    "no_bound_while_one_waits": ("transports/link/progress.c", "bool is_full = bytes > link->max_arrived_bytes;", "bool is_full = false;"),
    "never_paused": ("transports/link/progress.c", "is_full || (bytes > link->max_queued_bytes && link->waiters == 0);", "is_full;"),
    "full_for_ever": ("transports/link/progress.c", "left->full <= 0 && link->full_taken == link->inboxes.taken", "0"),
    "short_messages_keep_their_room": ("transports/link/progress.c", "buffer->len <= DW_BUFFER_SMALL_BYTES && buffer->cap >= DW_LINK_ROOM_BYTES", "false"),
    "only_payloads_are_counted": ("transports/common/buffer.c", "return dw_memory_cost(DW_BUFFER_PREFIX_BYTES + buffer->cap);", "return buffer->len;"),
    "tags_are_not_counted": ("transports/link/inbox.c", "return dw_memory_cost(sizeof(dw_inbox)) + TABLE_BYTES;", "return 0 * TABLE_BYTES;"),
    "table_never_grows": ("transports/link/inbox.c", "if (++inboxes->n >> inboxes->bits != 0 && inboxes->bits < 31)", "if (++inboxes->n == 0)"),
    "table_never_shrinks": ("transports/link/inbox.c", "if (inboxes->many && inboxes->n >> (inboxes->bits - 3) == 0)", "if (0)"),
    "hash_without_a_secret": ("transports/link/inbox.c", "(tag * inboxes->key[0] + inboxes->key[1]) >> (64 - inboxes->bits);", "(uint32_t)(tag * 2654435769u) >> (32 - inboxes->bits);"),
    "eight_bytes_end_a_wait": ("transports/tcp/tcp_guests.c", "if (end->tls) dw_tcp_other_version(end, guest);", "if (1) dw_tcp_other_version(end, guest);"),
    "strangers_are_forgotten": ("transports/tcp/tcp_peer.c", "    end->n_turned_away++;", ""),
    "nonsense_hides_the_reason": ("transports/tcp/tcp_peer.c", "if (end->is_reason_known && !is_reason) return;", ""),
    "sentences_as_they_come": ("transports/common/report.c", "    dw_make_printable(why->text);", ""),
    "any_utf8_will_do": ("src/base/printable.h", "return is_control || turns || is_invalid ? 0 : n;", "return is_control || is_invalid ? 0 : n;"),
    "terminal_is_steered": ("cli/complain.c", "    dw_make_printable(text);", ""),
    "rank_0_waits_for_the_silent": ("cli/rendezvous.c", "dw_link_handle(link, TAG_GREETING, hear_arrival, at);", "dw_link_handle(link, TAG_GREETING, hear_arrival, at);\n    usleep(5000000);"),
    "rank_0_forgets_strangers": ("cli/rendezvous.c", "note_turned_away(r, why.text);", ""),
    "rank_0_forgets_the_refused": ("cli/rendezvous.c", "r->refused++;", ""),
    "a_name_that_others_know": ("cli/rendezvous.c", "int fd = mkostemp(fresh, O_CLOEXEC);", "*strrchr(fresh, '.') = 0; int fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC, 0600);"),
    "waits_for_a_fifo": ("cli/rendezvous.c", "O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC", "O_RDONLY | O_NOFOLLOW | O_CLOEXEC"),
    "follows_links_of_others": ("cli/rendezvous.c", "O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC", "O_RDONLY | O_NONBLOCK | O_CLOEXEC"),
    "sent_by_the_clock_alone": ("transports/shaped/shaped.c", "end->left_bytes = end->base_bytes + end->shaped_bytes;", ""),
    "unused_tags_without_end": ("transports/link/inbox.c", "if (inboxes->n_unused < DW_INBOX_UNUSED_MOST) {", "if (1) {"),
}
# What the two ends of a channel must agree on, against test_channel.c.
MUTANTS_OF_CHANNELS = {
    "scales_compared": ("transports/channel/channel_greeting.c", "shared.scale = 0;", ""),
    "rounding_compared": ("transports/channel/channel_greeting.c", "shared.rounding = 0;", ""),
    "seeds_compared": ("transports/channel/channel_greeting.c", "shared.seed = 0;", ""),
    "lives_compared": ("transports/channel/channel_greeting.c", "shared.incarnation = 0;", ""),
    "any_config_will_do": ("transports/channel/channel_greeting.c", "&& strcmp(own, anew) == 0;", ";"),
}
# Frames of prev itself on a device, and channels whose tensors lie there, against the suite devices.
MUTANTS_OF_DEVICES = {
    "captured_prev_of_any_shape": ("src/ends/encoder_calls.c", "if (shape.t == t->x.t && shape.c == t->x.c && shape.dtype == t->x.dtype) return DW_OK;", "return DW_OK;"),
    "captured_prev_becomes_x": ("src/ends/encoder_calls.c", "dw_ticket_book(t, keys, !t->has_x)", "dw_ticket_book(t, keys, false)"),
    "capturing_is_fine": ("cuda/staging.c", "if (!capturing) return DW_OK;", "if (capturing < 2) return DW_OK;"),
    "stream_that_failed_is_done": ("cuda/staging.c", "if (error) status = complain(cuda, why, \"the stream failed\", error);", ""),
    "head_without_its_payloads": ("transports/channel/channel_device.c", "*len - head_len);", "*len - head_len - 1);"),
    "failure_of_a_device_forgotten": ("transports/channel/channel_device.c", "return channel->device_status = DW_ERR_IO;", "return DW_ERR_IO;"),
    "tensor_not_waited_for": ("transports/channel/channel_device.c", "if (dw_cuda_stream_wait(channel->cuda, y->stream, why) != DW_OK) return DW_ERR_IO;", "(void)dw_cuda_stream_wait(channel->cuda, y->stream, why);"),
    "answers_wait_for_the_caller": ("transports/channel/channel_device.c", "channel->answers, &ticket);", "NULL, &ticket);"),
    "stage_never_grows": ("transports/channel/channel_device.c", "if (bytes <= stage->cap) return DW_OK;", "if (stage->cap) return DW_OK;"),
    "stage_always_new": ("transports/channel/channel_device.c", "if (bytes <= stage->cap) return DW_OK;", "if (bytes < stage->cap / 2) return DW_OK;"),
    "stage_kept_for_ever": ("transports/channel/channel_device.c", "dw_cuda_unpin(channel->cuda, channel->taken.memory);", ""),
    "place_of_nobody": ("transports/channel/channel_open.c", "if (!config->cuda && config->place) {", "if (!config->cuda && config->place > 9) {"),
    "host_tensor_on_a_device": ("transports/channel/channel_send.c", "if (x->is_cuda != (channel->cuda != NULL)) {", "if (x->is_cuda && !channel->cuda) {"),
    "host_y_on_a_device": ("transports/channel/channel_recv.c", "if (y->is_cuda != (channel->cuda != NULL)) {", "if (y->is_cuda && !channel->cuda) {"),
}
# The program `deltawire`, against the suite program.
MUTANTS_OF_PROGRAM = {
    "key_for_what_has_no_tls": ("cli/rows.c", "if (!row->carries_tls) return false;", ""),
    "one_gpu_for_each_rank": ("transports/nccl/nccl.c", "if (status == DW_ERR_UNSUPPORTED && options.device > 0) {", "if (0) {"),
    "joins_the_first_alone": ("cli/rows.c", "for (const char *at = uri; at && n < DW_ROWS_MOST; at = next_uri(chain[n++], at)) {", "for (const char *at = uri; at && n < 1; at = next_uri(chain[n++], at)) {"),
    "output_is_lost_silently": ("cli/complain.c", "atexit(check_stdout);", "(void)check_stdout;"),
    "rank_without_stages": ("cli/train.c", "a->has_rank != (c->stages > 0)", "c->rank && !c->stages"),
    "launcher_under_local": ("cli/train.c", "if (a->link && dw_row_needs_launcher(a->link))", "if (0)"),
    "host_is_ignored": ("cli/train.c", "if (a->host && (!a->link || a->local))", "if (0)"),
    "save_every_is_ignored": ("cli/train.c", "if (a->config.save_every && !a->config.save)", "if (0)"),
    "reads_without_end": ("cli/inspect.c", "if (is_neither(room, used)) break;", "if (used >> 30) abort();"),
    "advises_the_fastest_alone": ("cli/advise.c", "size_t best = dw_forecast_best(a->choices, a->n);", "size_t best = a->choices[0].is_taken ? a->n : 0;", "advise"),
    "advises_by_one_error": ("cli/advise.c", "dw_forecast_larger(p->ways[0].error, p->ways[1].error)", "p->ways[0].error", "advise"),
    "advises_bytes_of_a_micro_batch": ("cli/advise.c", "w->bytes * micro_batches", "w->bytes", "advise"),
    "advises_by_a_part": ("cli/speed.c", "way->bytes = (double)len * speed->parts;", "way->bytes = (double)len;", "advise"),
    "advises_by_the_first_visit": ("cli/speed.c", "float of_old = (float)(1 - change * change / 2);", "float of_old = 0;", "advise"),
    "advises_unevenly": ("cli/advise.c", "if (a->batch % a->run.micro_batches)", "if (0)", "advise"),
    "advises_for_any_size": ("cli/advise.c", "if (tokens > most_elements / a->channels)", "if (tokens > most_elements)", "advise"),
    "advises_for_two_links": ("cli/advise.c", "if (ways != 1)", "if (!ways)", "advise"),
    "rate_with_an_exponent": ("cli/numbers.c", "digits > 0 && end == text + digits", "digits > 0", "advise"),
    "rate_without_a_limit": ("cli/numbers.c", "if (!(bits >= 1 && bits <= 1e12))", "if (!(bits >= 1))", "advise"),
    "rate_of_any_answer": ("cli/rate.c", "if (len == wanted) return DW_OK;", "if (len) return DW_OK;", "advise"),
    "rate_of_any_question": ("cli/rate.c", "if (!is_question || *wanted > MOST)", "if (*wanted > MOST)", "advise"),
    "rate_in_bits": ("cli/rate.c", "*rate = (double)len / dw_forecast_larger(seconds, 1e-9);", "*rate = 8 * (double)len / dw_forecast_larger(seconds, 1e-9);", "advise"),
}
# Mutants of the demo and of the table of losses in bench/, tried against the suite demo.
MUTANTS_OF_DEMO = {
    "demo_fastest_run_counts": ("examples/demo.py", "[times // 2]", "[0]", "demo"),
    "demo_last_log_stays": ("examples/demo.py", '(out / f"{name}.jsonl").write_bytes(log)', "pass", "demo"),
    "demo_wire_is_ignored": ("examples/demo.py", "arguments.wire or SLOWDOWN", "SLOWDOWN", "demo"),
    "demo_wire_of_any_speed": ("examples/demo.py", "if not 2 <= value <= 1000:", "if value < 2:", "demo"),
    "demo_best_pair_may_be_slow": ("examples/demo.py", 'at_least(summary, "speedup3", 7.2)', 'at_least(summary, "speedup3", 0.72)', "demo"),
    "demo_best_pair_may_lose": ("examples/demo.py", 'loss_at_most(summary, "delta3", 1.007)', 'loss_at_most(summary, "delta3", 1.07)', "demo"),
    "demo_best_pair_is_timed_raw": ("examples/demo.py", 'summary["wall_delta3"] / summary["unshaped_s"]', 'summary["unshaped_s"] / summary["unshaped_s"]', "demo"),
    "demo_wire_may_lose": ("examples/demo.py", 'loss_at_most(summary, "best", 1.01)', 'loss_at_most(summary, "best", 1.1)', "demo"),
    "demo_wire_is_judged_at_any_rate": ("examples/demo.py", "if wire == 32 else []", "if wire else []", "demo"),
    "losses_of_all_visits": ("bench/losses.py", "later = bits_sent(events, steps[per_epoch], steps[-1])", "later = bits_sent(events, steps[0], steps[-1])", "losses"),
    "losses_over_another_text": ("bench/losses.py", 'base = raw[it["text"], it["seed"]]', "base = list(raw.values())[0]", "losses"),
    "losses_trained_again": ("bench/losses.py", "if not done.exists():", "if True:", "losses"),
    "losses_in_bytes": ("bench/losses.py", "sent.append(8 *", "sent.append(", "losses"),
    "losses_of_one_number_of_stages": ("bench/losses.py", "self.runner.stages = stages", "self.runner.stages = 2", "losses"),
    "losses_of_known_pairs_only": ("bench/losses.py", "for pair in options.pair or PAIRS[stages]", "for pair in PAIRS[stages]", "losses"),
}
# The pool of threads, against the suite pooled.
MUTANTS_OF_THREADS = {
    "fork_waits_for_nobody": ("threads/threads.c", "bool alone = !pool || pool->n == 0 || pool->process != getpid();", "bool alone = !pool || pool->n == 0;"),
    "fork_joins_nobody": ("threads/threads.c", "if (pool->process == getpid()) {", "if (pool->process) {"),
    "signals_in_the_pool": ("threads/threads.c", "pthread_sigmask(SIG_SETMASK, &all, &before);", "pthread_sigmask(SIG_SETMASK, NULL, &before);"),
    "mask_not_restored": ("threads/threads.c", "pthread_sigmask(SIG_SETMASK, &before, NULL);", ""),
    "caller_not_counted": ("threads/threads.c", "uint32_t helpers = (n == 0 ? processors() : n) - 1;", "uint32_t helpers = n == 0 ? processors() : n;"),
    "nobody_helps": ("threads/threads.c", "pthread_cond_broadcast(&pool->posted); take_pieces(pool, &mine);", "take_pieces(pool, &mine);"),
    "two_jobs_at_once": ("threads/threads.c", "alone = pool->job;", "alone = false;"),
    "pool_of_any_size": ("threads/threads.c", "if (n > MOST_THREADS)", "if (n > 2 * MOST_THREADS)"),
    "job_not_waited_for": ("threads/threads.c", "while (mine.left > 0) pthread_cond_wait(&pool->done, &pool->lock);", ""),
}
# Mutants of the program that measures rate and error of codecs and baselines (bench/quality), tried
# against the suite quality.
MUTANTS_OF_QUALITY = {
    "q_first_visits_counted": ("bench/quality/measure.c", "sums *to = &kinds[!visit->first];", "sums *to = &kinds[1];"),
    "q_error_is_square": ("bench/quality/measure.c", "q.error = sqrt(of->ee / of->xx);", "q.error = of->ee / of->xx;"),
    "q_error_of_y": ("bench/quality/measure.c", "q.error = sqrt(of->ee / of->xx);", "q.error = sqrt(of->ee / of->yy);"),
    "q_cosine_of_x": ("bench/quality/measure.c", "sqrt(of->xx * of->yy);", "of->xx;"),
    "q_gain_of_y": ("bench/quality/measure.c", "q.gain = of->xy / of->xx;", "q.gain = of->xy / of->yy;"),
    "q_sigma_of_one_value": ("bench/quality/measure.c", "sqrt(of->ee / n) / sqrt(n) / rms;", "sqrt(of->ee / n) / rms;"),
    "q_change_of_x": ("bench/quality/measure.c", "change += e * e;", "change += x * x;"),
    "q_all_samples": ("bench/quality/measure.c", "if (visit->place >= samples) continue; sums", "sums"),
    "q_payload_alone": ("bench/quality/measure.c", "to->bytes += cost.bytes;", "to->bytes += cost.bytes < 144 ? 0 : cost.bytes - 144;"),
    "q_changes_of_x": ("bench/quality/way_peer.c", "prev[i] = y[i] = prev[i] + y[i];", "prev[i] = y[i] = y[i] + prev[i], prev[i] = visit->x[i];"),
    "q_change_not_added": ("bench/quality/way_peer.c", "prev[i] = y[i] = prev[i] + y[i];", "prev[i] = y[i];"),
    "q_first_visit_is_a_change": ("bench/quality/way_peer.c", "if (prev && visit->first) {", "if (0) {"),
    "q_half_truncates": ("bench/quality/bits.h", "ldexp(rint(ldexp((double)value, 10 - exponent)), exponent - 10);", "ldexp(trunc(ldexp((double)value, 10 - exponent)), exponent - 10);"),
    "q_half_has_no_sign": ("bench/quality/bits.h", "word |= signbit(value) ? 0x8000u : 0u;", ""),
    "q_bits_high_first": ("bench/quality/bits.h", "uint32_t code = bits->waiting & ((1u << width) - 1);", "uint32_t code = bits->waiting & ((2u << width) - 1);"),
    "q_acsgd_by_sample": ("bench/quality/acsgd.c", "for (uint32_t t = 0; t < shape.T; t++) { double value", "for (uint32_t t = 0; t < 1; t++) { double value"),
    "q_acsgd_l2_once": ("bench/quality/acsgd.c", "2 * sqrt(squares / shape.T)", "sqrt(squares / shape.T)"),
    "q_acsgd_symmetric": ("bench/quality/acsgd.c", "level < -half ? -half :", "level < 1 - half ? 1 - half :"),
    "q_rowwise_symmetric": ("bench/quality/rowwise.c", "least = dw_as_half(least);", "least = dw_as_half(-most);"),
    "q_rowwise_a_level_more": ("bench/quality/rowwise.c", "scale = dw_as_half((most - least) / last);", "scale = dw_as_half((most - least) / (last + 1));"),
    "q_rowwise_eight_as_half": ("bench/quality/rowwise.c", "float scale = width < 8 ?", "float scale = width < 9 ?"),
    "q_dynamic_by_twos": ("bench/quality/blockwise.c", "pow(10, i - 6)", "pow(2, i - 6)"),
    "q_dynamic_edges": ("bench/quality/blockwise.c", "(k + 0.5)", "(k + 1.0)"),
    "q_normal_is_linear": ("bench/quality/blockwise.c", "0.07958030f", "0.14285714f"),
    "q_nearest_is_below": ("bench/quality/blockwise.c", "value - of->entries[low] <= of->entries[high] - value ? low : high", "value < of->entries[high] ? low : high"),
    "q_blocks_share_a_scale": ("bench/quality/blockwise.c", "largest(x + first, here)", "largest(x, n)"),
    "q_zfp_tolerance_doubled": ("bench/quality/zfp.c", "return (float)(setting * sqrt(squares / (double)n));", "return (float)(64 * setting * sqrt(squares / (double)n));"),
    "q_zfp_rate_doubled": ("bench/quality/zfp.c", "zfp_stream_set_rate(stream, rate,", "zfp_stream_set_rate(stream, 2 * rate,"),
    "q_peers_only_direct": ("bench/quality/quality.c", "for (int delta = 0; delta < 2; delta++)", "for (int delta = 0; delta < 1; delta++)"),
    "q_only_the_first_word": ("bench/quality/quality.c", "if (strstr(family, word) || strstr(codec, word)) return true;", "return strstr(family, word) || strstr(codec, word);"),
    "q_full_disk": ("bench/quality/quality.c", "bool failed = !whole || json_dump_file(whole, r->a->json, JSON_INDENT(1));", "bool failed = !whole; if (whole) json_dump_file(whole, r->a->json, JSON_INDENT(1));"),
    "q_linear_between": ("bench/quality/frontier.py", "between = math.exp(math.log(e0) + share * (math.log(e1) - math.log(e0)))", "between = e0 + share * (e1 - e0)"),
    "q_all_is_between": ("bench/quality/frontier.py", 'name = (row["family"],) if row["between"] else (row["family"], row["codec"])', 'name = (row["family"],)'),
    "q_ahead_means_near": ("bench/quality/frontier.py", "peer[0] < best[0]", "peer[0] < 1.1 * best[0]"),
    "q_ahead_of_nothing": ("bench/quality/frontier.py", "if peer and (not best or", "if peer and (best and"),
    "q_scopes_mixed": ("bench/quality/frontier.py", 'if row["state"] in SCOPES[scope]', ""),
    "q_change_in_bits": ("bench/quality/sets.py", "a = 1 - CHANGE**2 / 2", "a = 1 - CHANGE"),
    "q_laplace_is_gaussian": ("bench/quality/sets.py", "factor = np.sqrt(rng.standard_exponential(shape, np.float32))", "rng.standard_exponential(shape, np.float32)"),
    "q_outliers_of_one": ("bench/quality/sets.py", "count = -(-channels // 100)", "count = 1"),
}
# The package for Python, against the suite python.
MUTANTS_OF_PYTHON = {
    "py_gaps_ignored": ("python/native/native.c", "made->strides[0] = (int64_t)t * c,", "made->strides[0] = c,"),
    "py_export_owns_nothing": ("python/native/native.c", "__atomic_add_fetch(&head_of(memory)->owners, 1, __ATOMIC_RELAXED);", ""),
    "py_capsule_never_ends": ("python/native/native.c", "managed->deleter(managed);", "(void)managed;"),
    "py_half_as_f32": ("python/native/native.c", ".type_bits = dtype == DW_F32 ? 32 : 16,", ".type_bits = 32,"),
    "py_versioned_as_plain": ("python/native/native.c", "if (versioned) flags |= DW_DLPACK_VERSIONED;", ""),
    "py_overlap_of_the_end": ("python/native/native.c", "return start < other + bytes &&", "return start <= other &&"),
    "py_overlap_of_the_start": ("python/native/native.c", "other < start + elements * dw_dtype_bytes(tensor->dtype);", "1;"),
    "py_cuda_is_memory": ("python/deltawire/views.py", "HOST = (CPU, 3, 11)", "HOST = (CPU, 2, 3, 11)"),
    "py_exchange_of_a_base": ("python/deltawire/views.py", 'kind.__dict__.get("__dlpack_c_exchange_api__")', 'getattr(kind, "__dlpack_c_exchange_api__", None)'),
    "py_exchange_not_used": ("python/deltawire/views.py", "if exchange and self._take_exchange(exchange, x, flags):", "if False:"),
    "py_exchange_with_gradient": ("python/deltawire/views.py", 'if getattr(x, "requires_grad", False):', "if False:"),
    "py_exchange_of_any_version": ("python/native/native.c", "exchange->major != DL_MAJOR || !exchange", "!exchange"),
    "py_exchange_failure_ignored": ("python/deltawire/views.py", "return _exchange_view(view, exchange, x, flags, why) == 0", "return _exchange_view(view, exchange, x, flags, why) <= 0"),
    "py_buffer_read_only": ("python/deltawire/views.py", "if held.readonly and flags & WRITES:", "if False:"),
    "py_buffer_kept": ("python/deltawire/views.py", "self._buffer.release()", "pass"),
    "py_double_as_float": ("python/deltawire/views.py", '"d": (2, 64)', '"d": (2, 32)'),
    "py_foreign_order": ("python/deltawire/views.py", 'lstrip("@=<" if', 'lstrip("@=<>" if'),
    "py_any_number_of_ids": ("python/deltawire/keys.py", "if len(listed) != n:", "if len(listed) < n:"),
    "py_slices_lost": ("python/deltawire/keys.py", "if any(slices):", "if all(slices):"),
    "py_ids_not_needed": ("python/deltawire/encoder.py", "elif stateless or not self._needs_ids:", "else:\n                keys, stateless = ffi.NULL, True\n            if False:"),
    "py_stateless_ignored": ("python/deltawire/encoder.py", "options.stateless = bool(stateless)", "options.stateless = ids_given = 0"),
    "py_limit_ignored": ("python/deltawire/encoder.py", "options.limit = limit", "options.limit = 0"),
    "py_frame_over_x": ("python/deltawire/encoder.py", 'refuse_overlap(tensor, room.pointer, room.length, "x and out")', ""),
    "py_out_over_frame": ("python/deltawire/decoder.py", 'refuse_overlap(y, given.pointer, given.length, "out and the frame")', ""),
    "py_reply_dropped": ("python/deltawire/decoder.py", "self._fail(status, reply)", "self._fail(status)"),
    "py_add_ignored": ("python/deltawire/decoder.py", "options.factor = _factor(add)", "options.factor = _factor(add) * 0"),
    "py_second_thread_goes_in": ("python/deltawire/owner.py", "if not self._busy.acquire(False):", "if self._busy.acquire(False) and False:"),
    "py_fork_unnoticed": ("python/deltawire/owner.py", "os.register_at_fork(after_in_child=_forked)", ""),
    "py_pickled": ("python/deltawire/owner.py", "def __reduce__(self) -> Any:", "def __reduced__(self) -> Any:"),
    "py_closed_goes_on": ("python/deltawire/codec.py", "self._open = False\n        self._end(self._handle)", "self._end(self._handle)"),
    "py_pool_closed_in_use": ("python/deltawire/threads.py", "if self._users > 0:", "if False:"),
    "py_any_version": ("python/deltawire/_library.py", "if found != VERSION:", "if not found:"),
    "py_other_places_first": ("python/deltawire/_library.py", "folders = [pathlib.Path(__file__).parent]", "folders = []"),
    "py_long_slices": ("python/deltawire/_waiting.py", "SLICE_S = 0.05", "SLICE_S = 5.0"),
    "py_open_not_cancelled": ("python/deltawire/link.py", "lambda: cancelled.__setitem__(0, 1),", "lambda: done.wait(),"),
    "py_close_after_fork": ("python/deltawire/owner.py", "        if self._life is not Life.now:\n            return False", "        if False:\n            return False"),
    "py_close_waits_for_nobody": ("python/deltawire/owner.py", "while self._users:", "while False:"),
    "py_link_outlives_its_object": ("python/deltawire/owner.py", "self._abandon()", "pass"),
    "py_why_is_lost": ("python/deltawire/owner.py", 'return text_of(getattr(links, f"dw_{self._noun}_why")(handle))', 'return ""'),
    "py_waits_in_closed_link": ("python/deltawire/owner.py", "self._still_open()", "pass"),
    "py_keys_in_logs": ("python/deltawire/tls.py", "def __repr__(self) -> str:", "def repr(self) -> str:"),
    "py_channel_without_ids": ("python/deltawire/channel.py", "if ids is None and self._needs_ids:", "if False:"),
}
# Its calls on a GPU, against the suite python_gpu.
MUTANTS_OF_PYTHON_GPU = {
    "py_gpu_any_number": ("python/deltawire/views.py", "(kind, number) != (CUDA, self.stream.number)", "kind != CUDA"),
    "py_gpu_other_stream": ("python/deltawire/views.py", "capsule_of(x, stream=self.stream.address)", "capsule_of(x, stream=1)"),
    "py_gpu_any_room": ("python/deltawire/encoder.py", "min(bound, room.length)", "bound"),
    "py_gpu_stateless": ("python/deltawire/encoder.py", "        if stateless and self._needs_ids:\n            self._refuse_on_device(", "        if False:\n            self._refuse_on_device("),
    "py_gpu_peek": ("python/deltawire/codec.py", 'if self._place == "device":', "if False:"),
    "py_gpu_place": ("python/deltawire/codec.py", "PLACES[self._place]", 'PLACES["device"]'),
    "py_gpu_stream_kept": ("python/deltawire/device.py", "        core.dw_cuda_stream_destroy(self.cuda, self.call.stream)\n", ""),
    "py_gpu_memory_kept": ("python/deltawire/device.py", "            core.dw_cuda_unpin(self.cuda, call.room)\n            call.room", "            call.room"),
    "py_gpu_kept_open": ("python/deltawire/codec.py", "        self._end(self._handle)\n        if self._stream:\n            self._stream.close()", "        self._end(self._handle)"),
    "py_gpu_failed_create": ("python/deltawire/codec.py", "        except BaseException:\n            if self._stream:\n                self._stream.close()\n            raise", "        except BaseException:\n            raise"),
    "py_gpu_waits_for_nothing": ("python/native/device.c", "    dw_status status = dw_cuda_stream_wait(call->cuda, call->stream, why);\n    if (status == DW_OK) {", "    dw_status status = DW_OK;\n    if (status == DW_OK) {"),
    "py_gpu_reply_lost": ("python/deltawire/decoder.py", "fail(status, text_of(self._stream.why.text), reply)", "fail(status, text_of(self._stream.why.text))"),
}
# deltawire.torch, by an interpreter that has torch; the fourth word names the tests, which lie in
# tests/python/torch.
MUTANTS_OF_TORCH = {
    "pt_ids_not_handed_over": ("python/deltawire/torch/stage.py", "ids.mark(output, compression.ids.get(fwd_chunk_id))", "pass", "test_schedules.py::test_second_epoch_hits"),
    "pt_marks_not_compared": ("python/deltawire/torch/compression.py", 'if theirs["mark_before" if side is self.after else "mark_after"] == side.mark:', "if True:", "test_state.py::test_one_rank_restarts_without_state"),
    "pt_options_not_compared": ("python/deltawire/torch/compression.py", "self.agreement.compare(self._agreed())", "pass", "test_stage.py::test_other_config_is_found_at_start"),
    "pt_versions_not_compared": ("python/deltawire/torch/compression.py", '"the version of deltawire": VERSION,', "", "test_damage.py::test_stages_of_different_versions"),
    "pt_part_past_the_end": ("python/deltawire/torch/message.py", "if at + length > len(data):", "if False:", "test_parts.py::test_damaged_messages_are_refused"),
    "pt_gaps_not_copied": ("python/deltawire/torch/tensors.py", "return flat if dense else flat.contiguous()", "return flat", "test_parts.py::test_samples_are_copied_only_where_they_must"),
    "pt_no_word_of_memory": ("python/deltawire/torch/watch.py", "if held > self._size:", "if False:", "test_stage.py::test_warns_if_ids_do_not_recur"),
    "pt_evaluates_with_state": ("python/deltawire/torch/ends.py", "plain = kind == WITHOUT_IDS and self.plain is not None", "plain = False", "test_stage.py::test_evaluation_is_stateless"),
    "pt_any_dtype_travels": ("python/deltawire/torch/ends.py", "if dtype is None: fail(", "if False: fail(", "test_damage.py::test_a_dtype_that_cannot_travel"),
    "pt_failed_step_not_reset": ("python/deltawire/torch/compression.py", "if self._encoded: self.reset()", "if False: self.reset()", "test_damage.py::test_a_damaged_message_ends_one_step"),
    "pt_failed_state_has_a_mark": ("python/deltawire/torch/compression.py", "if self._failed and self._encoded: return [uuid", "if False: return [uuid", "test_restart.py::test_states_after_a_failed_step_heal"),
    "pt_asks_the_store_again": ("python/deltawire/torch/compression.py", "ready = self.before.nonce or self", "ready = self", "test_restart.py::test_one_rank_is_killed_and_comes_back"),
    "pt_port_kept": ("python/deltawire/torch/compression.py", "side.lane.close()", "pass", "test_restart.py::test_a_closed_stage_gives_its_port_back"),
    "pt_closed_goes_on": ("python/deltawire/torch/compression.py", "self._closed = True", "pass", "test_restart.py::test_a_closed_stage_runs_no_step"),
    "pt_closed_link_is_lost": ("python/deltawire/torch/carrier_link.py", 'if error.status != Status["PEER"]: self.lost(error)', "self.lost(error)", "test_restart.py::test_a_rank_that_is_done_may_close_its_link"),
    "pt_link_waits_for_ever": ("python/deltawire/torch/carrier_link.py", "data = link.recv(self._in, timeout=self._timeout)", "data = link.recv(self._in)", "test_restart.py::test_a_rank_that_stands_still_is_noticed[link]"),
    "pt_recv_copies_nothing": ("python/deltawire/torch/p2p.py", "self._tensor.copy_(made)", "pass", "test_p2p.py::test_exchange"),
    "pt_sum_not_divided": ("python/deltawire/torch/ddp_exchange.py", "total.div_(self._peers.world)", "pass", "test_ddp.py::test_a_gathered_mean_is_that_of_the_frames"),
    "pt_parts_not_divided": ("python/deltawire/torch/ddp_exchange.py", "self._sum.div_(self._peers.world)", "pass", "test_ddp.py::test_a_mean_by_parts_is_that_of_the_frames"),
    "pt_buckets_kept": ("python/deltawire/torch/ddp.py", "for gone in set(self._buckets).difference(self._seen):", "for gone in ():", "test_ddp.py::test_buckets_are_recognized_by_their_parameters"),
    "pt_records_not_compared": ("python/deltawire/torch/ddp_agree.py", "if here != there:", "if False:", "test_ddp_errors.py::test_ranks_with_different_arguments"),
    "pt_second_model_unseen": ("python/deltawire/torch/ddp.py", "if self._complete: refuse(", "if False: refuse(", "test_ddp_errors.py::test_a_hook_for_two_models"),
    "pt_second_hook_unseen": ("python/deltawire/torch/ddp.py", 'if getattr(model, "_comm_hooks", None):', "if False:", "test_ddp_errors.py::test_a_hook_registered_twice"),
    "pt_sender_unnamed": ("python/deltawire/torch/ddp_exchange.py", 'f"a frame of rank {rank} of the group was rejected ({error.why})', 'f"a frame was rejected ({error.why})', "test_damage.py::test_damaged_gradients_are_not_used"),
    "pt_state_not_resumed": ("python/deltawire/torch/ddp.py", "self._resume = resume if read else None", "", "test_ddp_state.py::test_a_restarted_world_goes_on_to_the_bit"),
    "pt_resumed_once": ("python/deltawire/torch/ddp_resume.py", "BACKWARDS = 2", "BACKWARDS = 1", "test_ddp_state.py::test_a_restarted_world_goes_on_to_the_bit"),
    "pt_losses_left_over": ("python/deltawire/torch/torch_stage.py", "losses.clear()", "pass", "test_damage.py::test_a_damaged_message_ends_one_step"),
    "pt_means_not_put_back": ("python/deltawire/torch/ddp_resume.py", "self._pieces[name].copy_(piece)", "pass", "test_ddp_state.py::test_a_restarted_world_goes_on_to_the_bit"),
    "pt_one_decoder_not_saved": ("python/deltawire/torch/ddp_saved.py", "if data: end.import_state(data)", 'if data and "means" not in name: end.import_state(data)', "test_ddp_state.py::test_a_restarted_world_goes_on_to_the_bit"),
    "pt_states_of_other_steps": ("python/deltawire/torch/ddp.py", "if any(mark != marks[0] for mark in marks):", "if False:", "test_ddp_state.py::test_states_that_do_not_belong_together[who2-1]"),
    "pt_failed_backward_has_a_mark": ("python/deltawire/torch/ddp_saved.py", "if failed else", "if False else", "test_ddp_state.py::test_a_state_after_a_failed_backward_belongs_to_no_other"),
    "pt_state_of_any_world": ("python/deltawire/torch/ddp_saved.py", "if saved.get(name) != value:", "if False:", "test_ddp_state.py::test_states_of_another_place_are_refused"),
    "pt_state_of_any_model": ("python/deltawire/torch/ddp.py", "_check_same(resume.difference_from(here))", "pass", "test_ddp_state.py::test_states_of_another_place_are_refused"),
    "pt_first_backward_of_any_model": ("python/deltawire/torch/ddp.py", "if sentence is not None:", "if False:", "test_ddp_state.py::test_another_model_is_found_in_the_first_backward"),
    "pt_ends_left_out": ("python/deltawire/torch/ddp_saved.py", 'if set(ends) != set(bucket["states"]):', "if False:", "test_ddp_state.py::test_damaged_states_are_refused"),
    "pt_empty_state_taken": ("python/deltawire/torch/ddp_saved.py", "if stateful and not data:", "if False:", "test_ddp_state.py::test_damaged_states_are_refused"),
    "pt_loaded_too_late": ("python/deltawire/torch/ddp.py", "if self._seen or self._steps:", "if False:", "test_ddp_state.py::test_a_state_is_loaded_before_the_first_backward"),
}
# fmt: on
NEEDED = {
    "program": ["cli/all", "tests/cli/make_frame", "tests/transports/nccl/all", "transports/all"],
    "pooled": ["tests/threads/test_threads"],
    "quality": ["bench/quality/quality"],
    "python": ["python_package"],
    "torch": ["python_package", "torch_package"],
    "peers": ["tests/fuzz/replay_records", "tests/fuzz/replay_link"],
    "frames": [f"tests/fuzz/replay_{name}" for name in ("decode", "round_trip", "reply")],
    "sized": ["tests/transports/common/test_sized"],
    "rows": [
        f"tests/transports/{name}"
        for name in (
            "link/test_link",
            "link/test_memory",
            "shaped/test_shaped_faults",
            "nccl/test_nccl",
        )
    ],
    "channels": ["tests/transports/channel/test_channel"],
    "bounds": [
        "tests/transports/link/test_flood",
        "tests/transports/link/test_memory",
        "tests/transports/loop/suite_loop",
        "tests/transports/shaped/test_shaped",
        "tests/transports/tcp/test_tcp",
        "tests/transports/link/test_link",
        "tests/cli/test_rendezvous",
        "tests/cli/make_frame",
        "cli/deltawire",
    ],
    "demo": ["cli/deltawire"],
}
TORCH_SECONDS = 900  # for the tests of one mutant
ARM_TOOLS = ["aarch64-linux-gnu-gcc", "qemu-aarch64"]


def set_up(tree, build, *options):
    subprocess.run(
        [
            "meson",
            "setup",
            str(build),
            str(tree),
            "-Dwerror=false",
            "-Dtests=enabled",
            "-Dtransports=disabled",
            "-Dtrainer=disabled",
            "-Dbench=disabled",
            *options,
        ],
        check=True,
        cwd=tree,
        stdout=subprocess.DEVNULL,
    )


def torch_python():
    """The interpreter that DW_TORCH_PYTHON names, where it has torch; None: there is none."""
    named = os.environ.get("DW_TORCH_PYTHON")
    asked = [named, "-c", "import torch, cffi, pytest"]
    if not named or subprocess.run(asked, capture_output=True).returncode != 0:
        return None
    return named


def try_torch(build, tests):
    """pytest of tests/python/torch with the package of a build; tests: "file::test ...".

    Processes of a mutant that hangs are ended together."""
    env = dict(os.environ, PYTHONPATH=str(build / "python"), PYTHONDONTWRITEBYTECODE="1")
    folders = [str(build / name) for name in ("src", "transports", "threads", "python")]
    env.update(DW_TEST_LIBRARIES=":".join(folders), OMP_NUM_THREADS="1", DW_DDP_LONGEST="60")
    folder = build.parent / "tests/python/torch"
    command = [torch_python(), "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    run = subprocess.Popen(
        [*command, *(str(folder / test) for test in tests.split())],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = run.communicate(timeout=TORCH_SECONDS)
        return run.returncode, said
    except subprocess.TimeoutExpired:
        return 1, f"not done after {TORCH_SECONDS} s"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)
        run.wait()


def try_suite(build, suite, tests):
    """(0 where all tests pass, what they said)."""
    if suite == "torch":
        return try_torch(build, tests)
    options = ["--suite", suite, "--quiet", "--maxfail", "1", "--timeout-multiplier", "3"]
    done = subprocess.run(
        ["meson", "test", "-C", str(build), "--no-rebuild", *options],
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


def build_and_test(build, suite, tests):
    needed = NEEDED.get(suite, ["tests/all"])
    compiled = subprocess.run(["ninja", "-C", str(build), *needed], capture_output=True, text=True)
    if compiled.returncode != 0:
        compiled = subprocess.run(["ninja", "-C", str(build)], capture_output=True, text=True)
    if compiled.returncode != 0:
        return f"does not compile: {compiled.stdout[-2000:]}"
    failed, said = try_suite(build, suite, tests)
    return f"noticed: {said[-2000:]}" if failed else ""


def places_of(text, old):
    """Where `old` stands in a source, however its lines are broken: (start, end) of each place."""
    letters = [re.escape(letter) for letter in old if not letter.isspace()]
    return [match.span() for match in re.finditer(r"\s*".join(letters), text)]


# How each table is tried: its build's options, and the suites of that build with their mutants.
LINKS = ("-Dtransports=enabled", "-Dmpi=disabled")
NO_GPU = ("-Dcuda=disabled", "-Dgpu_archs=")
FAKE_GPU = ("-Dcuda=enabled", "-Dgpu_archs=")
BUILDS = {
    "pure": ((), {"pure": MUTANTS}),
    "frames": (NO_GPU, {"frames": MUTANTS_OF_FRAMES}),
    "bounds": (
        (*LINKS, "-Dtls=enabled", "-Dtrainer=enabled", *NO_GPU),
        {"bounds": MUTANTS_OF_BOUNDS},
    ),
    "links": (
        (*LINKS, "-Dtls=disabled", *FAKE_GPU),
        {
            "peers": MUTANTS_OF_LINKS,
            "sized": MUTANTS_OF_SIZES,
            "rows": MUTANTS_OF_ROWS,
            "channels": MUTANTS_OF_CHANNELS,
            "devices": MUTANTS_OF_DEVICES,
        },
    ),
    "program": (
        (*LINKS, "-Dtrainer=enabled", *NO_GPU),
        {"program": MUTANTS_OF_PROGRAM, "demo": MUTANTS_OF_DEMO},
    ),
    "quality": (("-Dbench=enabled", "-Dsimd=disabled", *NO_GPU), {"quality": MUTANTS_OF_QUALITY}),
    "python": (
        (*LINKS, "-Dpython=enabled", "-Dsimd=disabled", *NO_GPU),
        {"pooled": MUTANTS_OF_THREADS, "python": MUTANTS_OF_PYTHON},
    ),
    "python_gpu": (
        (*LINKS, "-Dpython=enabled", "-Dsimd=disabled", "-Dcuda=enabled", "-Dgpu_archs=90"),
        {"python_gpu": MUTANTS_OF_PYTHON_GPU},
    ),
    "torch": (
        (*LINKS, "-Dpython=enabled", "-Dsimd=disabled", *NO_GPU),
        {"torch": MUTANTS_OF_TORCH},
    ),
    "gpu": (FAKE_GPU, {"bits_of_gpu": MUTANTS_OF_GPU, "cuda": MUTANTS_OF_STREAMS}),
    "arm": (("--cross-file", "tests/cross/aarch64.ini"), {"bits": MUTANTS_OF_ARM}),
}


def try_each(source, tree, build, suite, mutants):
    """The names of those that no test of the suite notices."""
    survivors = []
    named = dict.fromkeys(test for _, _, _, *tests in mutants.values() for test in tests)
    complaint = build_and_test(build, suite, " ".join(named))
    if complaint:
        sys.exit(f"suite {suite}: the tests fail before anything is broken: {complaint}")
    for name, (file, old, new, *tests) in mutants.items():
        text = (source / file).read_text()
        places = places_of(text, old)
        if len(places) != 1:
            sys.exit(f"{name}: {file} has {len(places)} places to change, not one")
        (tree / file).write_text(text[: places[0][0]] + new + text[places[0][1] :])
        result = build_and_test(build, suite, " ".join(tests)).partition(":")[0]
        print(f"{name:28} {result or 'SURVIVES'}", flush=True)
        if result != "noticed":
            survivors.append(name)
        (tree / file).write_text(text)
    return survivors


def chosen_of(names):
    """BUILDS with only the mutants of these names; without names, all that can run here."""
    known = {name for _, suites in BUILDS.values() for table in suites.values() for name in table}
    if unknown := set(names) - known:
        sys.exit(f"there is no mutant {', '.join(sorted(unknown))}")
    chosen = {}
    for build, (options, suites) in BUILDS.items():
        picked = {
            suite: {name: row for name, row in table.items() if not names or name in names}
            for suite, table in suites.items()
        }
        picked = {suite: table for suite, table in picked.items() if table}
        if build == "arm" and picked and not all(shutil.which(tool) for tool in ARM_TOOLS):
            print(f"mutants of 64-bit Arm are left out: {' or '.join(ARM_TOOLS)} is missing")
        elif build == "torch" and picked and torch_python() is None:
            print("mutants of deltawire.torch are left out: DW_TORCH_PYTHON names no such Python")
        elif picked:
            chosen[build] = options, picked
    return chosen


def main():
    source, chosen = pathlib.Path(sys.argv[1]).resolve(), chosen_of(sys.argv[2:])
    if not chosen:
        sys.exit(77)  # none of those that were asked for can be tried here
    survivors, tried = [], 0
    with tempfile.TemporaryDirectory(prefix="deltawire-mutants-") as folder:
        tree = pathlib.Path(folder) / "tree"
        shutil.copytree(source, tree, ignore=shutil.ignore_patterns("build*", ".git"))
        for build, (options, suites) in chosen.items():
            set_up(tree, tree / f"build-{build}", *options)
            for suite, mutants in suites.items():
                survivors += try_each(source, tree, tree / f"build-{build}", suite, mutants)
                tried += len(mutants)
    print(f"{tried} mutants, {len(survivors)} survive: {' '.join(survivors)}".rstrip(": "))
    sys.exit(1 if survivors else 0)


if __name__ == "__main__":
    main()
