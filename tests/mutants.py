#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# mutants.py - a hundred faults that nobody would think of, each of which a test must notice.
"""usage: mutants.py SOURCE [NAME...]
mutants.py SOURCE --places only looks whether the text of each fault stands in one place.

Copies the tree, builds the tests once, then breaks one line after the other (ties of rounding,
rules of the format, the order of locks and messages), rebuilds, and runs the suite that is named
with the fault. Exits 1 if a fault survives: then a check is missing. Part of `./run soak`."""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

# name: suite, file, what stands there, what the mutant writes. A wide table:
# fmt: off
MUTANTS = {
    "round_half_away": ("pure", "src/arithmetic/half.h", "uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16", "uint32_t rounded = (bits + 0x8000u) >> 16"),
    "finite_half_away": ("pure", "src/arithmetic/half.h", "(uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)", "(uint16_t)((bits + 0x8000u) >> 16)"),
    "f16_overflow_wraps": ("pure", "src/arithmetic/half.h", "half = magnitude >= 0x477ff000u ? 0x7c00u : half;", ""),
    "power_of_two_cut": ("pure", "src/arithmetic/quant.h", "(largest - ((bits - 1) << 23) + 0xffffu) >> 16;", "(largest - ((bits - 1) << 23)) >> 16;"),
    "scale_truncated": ("pure", "src/arithmetic/quant.h", "count < amount ? 1u : 0u;", "count < amount ? 0u : 0u;"),
    "last_level_infinite": ("pure", "src/arithmetic/quant.h", "uint32_t most = DW_BF16_LARGEST - ((bits - 1) << 7);", "uint32_t most = DW_BF16_LARGEST;"),
    "last_level_infinite_of_absmax": ("pure", "src/arithmetic/quant.h", "count > FLT_MAX ? 1u : 0u;", "count > FLT_MAX ? 0u : 0u;"),
    "zero_level_lost": ("pure", "src/arithmetic/quant.h", "if (largest < DW_ZERO_BELOW) return 0;", ""),
    "sign_of_extreme": ("pure", "src/arithmetic/quant.h", "is_signed && extremes.positive > extremes.negative;", "is_signed && extremes.positive >= extremes.negative;"),
    "choice_by_bits_of_nan": ("pure", "src/arithmetic/quant.h", "return of_x < DW_F32_INFINITY && of_x <", "return of_x <"),
    "one_bit_of_minus_zero": ("pure", "src/arithmetic/quant.h", "scaled * 0.5f + dither) >= 0.0f;", "scaled * 0.5f + dither) > 0.0f;"),
    "compact_scale_late": ("pure", "src/arithmetic/compact.h", "bits == 8 ? 0x01u : 0x20u", "bits == 8 ? 0x01u : 0x10u"),
    "compact_copy_of_other_prev_sent": ("pure", "src/ends/encoder_plan.c", "if (p->held->dtype != dw_ticket_dtype(t))", "if (p->held->dtype == 99)"),
    "compact_copy_sent_unexpanded": ("pure", "src/ends/encoder_ticket.c", "    job->copies.base = job->next;\n", ""),
    "residual_of_infinite": ("pure", "src/arithmetic/quant.h", "dw_is_finite(rest) ? rest : 0.0f;", "dw_is_finite(rest) ? rest : rest;"),
    "floats_f16_overflows_late": ("pure", "src/codecs/floats.c", "0x477ff000, 0x7f7f8000}", "0x47800000, 0x7f7f8000}"),
    "floats_bf16_fits_f16": ("pure", "src/codecs/floats.c", "{0x7f80, 0x4780, 0x7f80}", "{0x7f80, 0x7f80, 0x7f80}"),
    "add_fused": ("pure", "src/kernels/kernels_c.c", "store_sum(wide[i] + product, to,", "store_sum((float)((double)wide[i] + (double)factor * (double)from[at + i] + 0.0 * product), to,"),
    "add_any_nan": ("pure", "src/kernels/kernels_c.c", "(bits & 0x7fffffffu) > DW_F32_INFINITY ? DW_F32_NAN : bits", "bits"),
    "dither_in_halves": ("pure", "src/kernels/kernels_c.c", "words.v[element % 8 / 2] >> (16 * (element % 2))", "words.v[element % 8 / 4] >> (16 * (element % 2))"),
    "dither_in_padding": ("pure", "src/kernels/kernels_c.c", "parts[i] = DW_DITHER_NONE;", "parts[i] = 0;"),
    "mx_tie_away": ("pure", "src/arithmetic/mx.h", "code = dw_bits_of(dw_float_of(magnitude) + dw_float_of(places)) - places;", "code = dw_bits_of(dw_float_of(magnitude) + dw_float_of(places - 1u)) - (places - 1u);"),
    "mx_minus_zero_written": ("pure", "src/arithmetic/mx.h", "(code && bits >> 31 ? code", "(bits >> 31 ? code"),
    "mx_lowest_power": ("pure", "src/arithmetic/mx.h", "scale ? scale << 23 : 0x00400000u", "scale << 23"),
    "step_infinity_is_a_step": ("pure", "src/arithmetic/step.h", "if (squares->largest >= DW_F32_INFINITY) return DW_BF16_NAN;\n    double step = sqrt(", "if (squares->largest > DW_F32_INFINITY) return DW_BF16_NAN;\n    double step = sqrt("),
    "step_too_small": ("pure", "src/arithmetic/step.h", "if (step < 0x1p-96) return 0;\n    if (step > 0x1.fep127) return 0x7f7f;\n    return dw_bf16_finite(", "if (step > 0x1.fep127) return 0x7f7f;\n    return dw_bf16_finite("),
    "step_infinite_inverse": ("pure", "src/arithmetic/step.h", "return dw_f32_finite(dw_scale_inverse(step));", "return dw_scale_inverse(step);"),
    "step_escapes_too_early": ("pure", "src/arithmetic/step.h", "DW_STEP_ESCAPES = 0x42ff0000", "DW_STEP_ESCAPES = 0x42fe0000"),
    "outliers_enlarge_the_step": ("pure", "src/arithmetic/step.h", "return largest > limit ? limit :", "return largest > limit && 0 ? limit :"),
    "escape_of_a_residual_is_x": ("pure", "src/codecs/step.c", "if (job->keeps_residual && call->prev) {", "if (0) {"),
    "step_tie_away": ("pure", "src/arithmetic/step.h", "(int32_t)dw_rint(scaled);", "(int32_t)(scaled + (scaled < 0 ? -0.5f : 0.5f));"),
    "step_nan_of_the_processor": ("pure", "src/arithmetic/step.h", "if (lanes[i] != lanes[i]) memcpy", "if (0) memcpy"),
    "step_square_in_binary32": ("pure", "src/kernels/kernels_step_c.h", "(double)delta[i] * delta[i];", "(double)(delta[i] * delta[i]);"),
    "error_without_margin": ("pure", "src/arithmetic/step.h", "(1 + 4 / sqrt(n))", "(1 + 0 / sqrt(n))"),
    "adds_instead_of_scaling": ("frames", "src/codecs/output.c", "add(from, job->factor,", "add(from, 1,"),
    "vector_tie_moved": ("pure", "src/kernels/kernels_finish.h", "i_nearest(f_min(f_mul(delta, f_set(inverse)), top));", "i_nearest(f_min(f_mul(delta, f_set(inverse * 1.0000001f)), top));"),
    "vector_special_dither": ("pure", "src/kernels/kernels_finish.h", "run->dither->element + (uint64_t)(s->piece + piece) * run->width};", "run->dither->element};"),
    "vector_sum_past_the_largest": ("pure", "src/kernels/kernels_simd.h", "#define SPECIAL_FROM 0x6f000000", "#define SPECIAL_FROM 0x7c000000"),
    "vector_past_in_half_lines": ("pure", "src/kernels/kernels_decode.h", "run->width * bytes_of(run->out_dtype) % 64 == 0;", "1;"),
    "vector_step_sum_fused": ("pure", "src/kernels/kernels_step.h", "f_add(base, f_mul(amount, f_set(s->step)))", "f_muladd(amount, f_set(s->step), base)"),
    "vector_step_codes_past_the_end": ("pure", "src/kernels/kernels_step.h", "memcpy(run->codes + at, codes, n);", "memcpy(run->codes + at, codes, CHUNK);"),
    "vector_mx_special_scale": ("pure", "src/kernels/kernels_mx_decode.h", "enum { MX_SPECIAL_SCALE = 207 };", "enum { MX_SPECIAL_SCALE = 255 };"),
    "avx2_quiet_nan": ("pure", "src/kernels/kernels_avx2.c", "i_andnot(i_and(loud, f_bits(nan)), f_bits(wide))", "((void)nan, (void)loud, f_bits(wide))"),
    "avx512_half_away": ("pure", "src/kernels/kernels_avx512.c", "i_add(i_add(bits, i_set(0x7fff)), odd)", "i_add(bits, i_or(i_set(0x8000), i_and(odd, i_set(0))))"),
    "vector_rans_quotient_low": ("pure", "src/kernels/kernels_rans_x86.h", "_mm256_set1_epi16((short)(65535 / range + 1))", "_mm256_set1_epi16((short)(65535 / range))"),
    "vector_rans_inverse_rounded": ("pure", "src/kernels/kernels_rans_x86.h", "> (uint64_t)1 << (12 + shift) ||", "> (uint64_t)1 << (13 + shift) ||"),
    "vector_parts_gap": ("pure", "src/kernels/rans_run.h", "DW_PART_GAP = 64", "DW_PART_GAP = 32"),
    "vector_rotation_lanes_in_another_order": ("pure", "src/kernels/kernels_rotate.h", "v = f_butterfly2(v); v = f_butterfly4(v);", "v = f_butterfly4(v); v = f_butterfly2(v);"),
    "thread_keeps_its_rounding": ("pure", "src/engine/engine_cpu.c", "dw_cpu_mode mode = dw_cpu_enter_exact();\n    job->plan->form->encode(job, chunk, &c->work.results[index]);", "dw_cpu_mode mode = {0};\n    job->plan->form->encode(job, chunk, &c->work.results[index]);"),
    "float_mode_flushes": ("pure", "src/common/cpu.c", "EXACT_MXCSR = 0x1f80", "EXACT_MXCSR = 0x9f80"),
    "counters_in_the_callers_mode": ("pure", "src/ends/encoder_commit.c", "dw_cpu_mode mode = dw_cpu_enter_exact(); /* the counters' sums are rounded in this mode, too */", "dw_cpu_mode mode = {0x1f80};"),
    "undone_in_any_mode": ("pure", "src/ends/encoder_residual.c", "    dw_cpu_mode mode = dw_cpu_enter_exact();\n    g->decay", "    dw_cpu_mode mode = {0x1f80};\n    g->decay"),
    "chunks_that_wrap": ("pure", "src/arithmetic/layout.h", "return ((uint64_t)layout->c + DW_STRIP_CHANNELS - 1) / DW_STRIP_CHANNELS;", "return (layout->c + DW_STRIP_CHANNELS - 1) / DW_STRIP_CHANNELS;"),
    "parameters_not_in_the_chain": ("pure", "src/wire/frame.c", "dw_put(b + 56, parameters, 8);", ""),
    "chain_without_base": ("pure", "src/wire/frame.c", "dw_put(b, entry->base_chain, 8);", ""),
    "audit_of_the_sequence": ("pure", "src/codecs/plan.c", "(uint32_t)(dw_digest_bytes(bytes, sizeof bytes) % every)", "(uint32_t)(sequence % every)"),
    "seam_unaudited": ("pure", "src/codecs/audit.c", "if (seam == stretch || stretch == last", "if (1 || stretch == last"),
    "dither_forgets_the_slice": ("pure", "src/codecs/plan.c", "dw_put(bytes + 16, key.slice, 8);", "dw_put(bytes + 16, 0 * key.slice, 8);"),
    "step_dither_without_life": ("pure", "src/codecs/plan.c", "dw_put(bytes + VISIT_BYTES, header->incarnation, 8);", "dw_put(bytes + VISIT_BYTES, 0, 8);"),
    "step_of_a_cut_row": ("pure", "src/codecs/step.c", "if (!layout->cut_rows) {", "if (true) {"),
    "rans_any_last_state": ("pure", "src/entropy/rans.c", "if (w->states[i] != DW_RANS_LOWEST)", "if (w->states[i] < DW_RANS_LOWEST)"),
    "rans_words_left_over": ("pure", "src/entropy/rans.c", "if (used < words)", "if (0)"),
    "rans_slots_by_weight": ("pure", "src/arithmetic/rans.h", "return weight > DW_SLOT_WEIGHT ? weight - DW_SLOT_WEIGHT : 0;", "return weight;"),
    "parts_unmirrored": ("pure", "src/arithmetic/rans.h", "(uint8_t)(high ^ 0x80 ^ dw_part_mask(high)) >> 5", "(high & 0x7f) >> 5"),
    "trellis_next_forgets": ("pure", "src/arithmetic/trellis.h", "((state ^ index_is_odd) & 1) << 1 | state >> 1;", "(index_is_odd & 1) << 1 | state >> 1;"),
    "trellis_from_the_higher": ("pure", "src/kernels/kernels_trellis_c.h", "is_higher = from_higher < from_lower;", "is_higher = from_higher <= from_lower;"),
    "skip_takes_no_base": ("pure", "src/ends/decoder_plan.c", "return p->entry.role == DW_ROLE_DELTA || p->entry.role == DW_ROLE_SKIP;", "return p->entry.role == DW_ROLE_DELTA;"),
    "imported_copies_stay": ("pure", "src/ends/saving.c", "    dw_paging_list(&predictor->paging, held);\n", ""),
    "retired_taken": ("pure", "src/ends/decoder_plan.c", "if (dw_decoder_is_retired(t->decoder, header->incarnation)) return DW_ERR_STALE;", ""),
    "rotten_base_named": ("pure", "src/ends/decoder_replies.c", "    dw_predictor_drop(&decoder->end.predictor, held);\n    return NULL;", "    return held;"),
    "replaced_untold": ("pure", "src/ends/decoder_replies.c", "dw_decoder_is_retired(decoder, t->header.incarnation),", "false,"),
    "dropped_in_any_life": ("pure", "src/state/predict.c", "return predictor->dropped_incarnation == incarnation &&", "return"),
    "leap_over_held_alone": ("pure", "src/ends/encoder_replies.c", "bool ours = entry->incarnation == encoder->end.incarnation;", "bool ours = entry->held && entry->incarnation == encoder->end.incarnation;"),
    "another_life_imported": ("pure", "src/ends/saving.c", "if (is_new || saver->end->incarnation == saved->incarnation) return DW_OK;", "return DW_OK;"),
    "bound_loses_its_copy": ("pure", "src/ends/encoder_commit.c", "p->entry.role == DW_ROLE_SYNC && !t->asked.has_x)", "p->entry.role == DW_ROLE_SYNC)"),
    "undone_out_of_order": ("pure", "src/ends/encoder_residual.c", "if (g->x && g->info.sequence != held->now.version)", "if (0)"),
    "back_of_other_incarnation": ("pure", "src/ends/encoder_residual.c", "if (g->info.incarnation != encoder->end.incarnation)", "if (0)"),
    "key_stays_after_failure": ("pure", "src/ends/encoder_plan.c", "        if (p->added) dw_predictor_remove(&encoder->end.predictor, p->held);\n", ""),
    "ties_to_the_higher": ("pure", "src/codecs/selection.c", "if (m != c->least || c->ties == 0) return m > c->least;", "if (m != c->least || c->ties > 1) return c->ties -= m == c->least, m > c->least;"),
    "length_bound": ("frames", "src/wire/frame.c", "dw_size_multiply(all, 10, &all)", "dw_size_multiply(all, 8, &all)"),
    "padding_of_tables": ("frames", "src/wire/frame.c", "if (frame[at]) return", "if (0) return"),
    "stale_before_base": ("frames", "src/ends/decoder_plan.c", "if (status < worst) worst = status;", "if (status && !worst) worst = status;"),
    "gives_up_without_base": ("frames", "src/ends/decoder_commit.c", "p->drops_copy = p->entry.base_chain != 0 && !t->asked.only_checks;", "p->drops_copy = !t->asked.only_checks;"),
    "coded_blocks_across_rows": ("pure", "src/arithmetic/coded.h", "uint64_t skipped = number % each * DW_BLOCK_TILES, left = all.tiles - skipped;", "uint64_t skipped = number % each * DW_BLOCK_TILES, left = layout->tiles - all.first_tile - skipped;"),
    "coded_rooms_overlap": ("cuda", "cuda/launch.c", "if (!dw_size_add(launch->rooms, place->needs.room_bytes, &launch->rooms))", "if (!dw_size_add(launch->rooms, place->needs.plain_bytes, &launch->rooms))"),
    "head_of_the_frame_before": ("cuda", "cuda/launch.c", "if (head) dw_cuda_heads_refill(&launch->heads, head, serial);", ""),
    "stream_of_saving_left": ("cuda", "cuda/engine_cuda.c", "    end_copy_stream(engine);\n    for (", "    for ("),
    "saved_in_flight": ("cuda", "src/ends/saving.c", "if (key ? only && only->busy : any_is_busy(predictor))", "if (!key && any_is_busy(predictor))"),
    "captured_key_entry_expands_nothing": ("cuda", "cuda/names.c", "        needs->blocks[phases[i]] =", "        if (i || copies->held) needs->blocks[phases[i]] ="),
    "half_a_group_has_its_own_scale": ("bits_of_gpu", "cuda/copies.cuh", "    largest = max(largest, __shfl_xor_sync(DW_ALL_LANES, largest, 1));\n", ""),
    "same_tile_prefetched_again": ("bits_of_gpu", "cuda/encode.cuh", "prefetch.next = index + blocks < whole ? index + blocks :", "prefetch.next = index + blocks < whole ? index :"),
    "no_barrier_between_tiles": ("bits_of_gpu", "cuda/encode.cuh", "        __syncthreads(); /* the next tile is staged in the same place */\n", ""),
    "highest_level_of_magic": ("bits_of_gpu", "cuda/encode.cuh", "most = DW_MAGIC + (half - 1.0f)", "most = DW_MAGIC + half"),
    "gpu_step_carry_lost": ("bits_of_gpu", "cuda/step.cuh", "double sum = k == first ? room->carry : 0;", "double sum = 0;"),
    "sum_loses_bits": ("bits_of_gpu", "cuda/block.cuh", "(uint32_t)(mine >> 44)) << 44;", "(uint32_t)(mine >> 44) & 0xffffu) << 44;"),
    "negative_zeros_count": ("bits_of_gpu", "cuda/scales.cuh", "negative >> 31 ? negative & 0x7fffffffu : 0}", "negative & 0x7fffffffu}"),
    "head_of_half_the_lanes": ("bits_of_gpu", "cuda/head.cuh", "__threadfence_system();\n    __syncthreads();\n    if (threadIdx.x == 0) dw_end_head", "__threadfence_system();\n    if (threadIdx.x == 0) dw_end_head"),
    "xxh3_stripe_too_many": ("bits_of_gpu", "cuda/xxh3.cuh", "is_last ? (uint32_t)left - 1 :", "is_last ? (uint32_t)left :"),
    "a_chunk_counts_twice": ("peers", "transports/tcp/tcp_reassembly.c", "return stripe->in.message < receiving->whole ||\n           (dw_tcp_incoming_of(receiving, stripe->in.message)->has[number / 64] >> number % 64 & 1);", "return stripe->in.message < receiving->whole;"),
    "acknowledged_too_early": ("peers", "transports/tcp/tcp_reassembly.c", "return receiving->whole < most ? receiving->whole : most;", "return receiving->whole + 1 < most ? receiving->whole + 1 : most;"),
    "order_of_arrival": ("peers", "transports/tcp/tcp_reassembly.c", "if (stripe->in.message == receiving->awaited) {\n        begin_direct", "if (stripe->in.message >= receiving->awaited) {\n        begin_direct"),
    "sums_in_order_of_arrival": ("collective", "collective/reduce_scatter.c", "if (next != from && (slot->reduce.may_wait || !own_is_next)) return;\n    if (slot->reduce.may_wait && slot->reduce.left_to_contribute > 0) put_due(slot, piece); else add_due(exchange, slot, piece);", "dw_piece at_once = dw_partition_piece(&slot->now.cut, exchange->settings.rank, piece);\n    (void)put_due, (void)own_is_next;\n    slot->reduce.waiting[(size_t)piece * exchange->settings.ranks + from] = NULL;\n    slot->reduce.added[piece] += add(exchange, slot, from, piece, at_once, dw_received_body(received), (size_t)received->head.body_len);\n    dw_received_give(&exchange->pool, received);\n    if (slot->reduce.added[piece] == exchange->settings.rank) add_due(exchange, slot, piece);"),
    "safe_before_all_has_arrived": ("collective", "collective/all_gather.c", "slot->gather.n_arrived < slot->gather.left_to_take)", "0)"),
    "y_restored_too_late": ("collective", "collective/operation.c", "        dw_rollback_output(&exchange->settings, slot); /* first, because y may be x */\n        dw_rollback_residuals(exchange, slot, exchange->failure.status != DW_ERR_CANCELLED);\n", "        dw_rollback_residuals(exchange, slot, exchange->failure.status != DW_ERR_CANCELLED);\n        dw_rollback_output(&exchange->settings, slot);\n"),
    "digests_of_headers_alone": ("collective", "collective/message.c", "if (with_body && body_len > 0)", "if (with_body && body_len == UINT64_MAX)"),
    "rounding_of_callers_lost": ("collective", "collective/progress_owner.c", "    fesetenv(&own);\n", ""),
    "fork_waits_for_nobody": ("pooled", "threads/threads.c", "bool alone = !pool || pool->n == 0 || !dw_fork_guard_is_ours(&pool->fork_guard);", "bool alone = !pool || pool->n == 0;"),
    "index_before_its_copies": ("crash", "threads/storage_snapshots.c", "if (dw_disk_sync(all->file.fd)) {", "if (0) {"),
    "snapshot_let_go_too_early": ("crash", "threads/storage_index.c", "error = dw_disk_sync_folder(file->index);\n            *fate", "*fate"),
    "older_index_on_the_disk": ("crash", "threads/storage_index.c", "if (!error) error = dw_disk_sync_folder(file->index);\n        dw_disk_close(fd);", "dw_disk_close(fd);"),
    "snapshot_after_failed_sync": ("crash", "threads/storage_snapshots.c", "all->is_unsure = true;\n        return fail_unsure(all, why);", "return fail_unsure(all, why);"),
    "mask_not_restored": ("pooled", "threads/threads.c", "pthread_sigmask(SIG_SETMASK, &before, NULL);", ""),
}
# fmt: on
OPTIONS = ["tests=enabled", "transports=enabled", "cuda=enabled", "gpu_archs=", "werror=false"]
OPTIONS += ["tls=disabled", "mpi=disabled", "trainer=disabled", "bench=disabled"]


def tests_of(tree, suite):
    """The names of a suite's tests, and the files that they need built."""
    known = subprocess.check_output(["meson", "introspect", "--tests", str(tree / "build")])
    pick = [sys.executable, str(tree / "tests/lint/pick_tests.py"), "--suites", suite]
    targets = ["--targets", str(tree / "build")]
    return [
        subprocess.check_output([*pick, *more], input=known).decode().split()
        for more in ([], targets)
    ]


def complaint(tree, suite):
    """What the compiler or the tests of a suite say that fail; empty if all pass."""
    names, files = tests_of(tree, suite)
    build = ["-C", str(tree / "build")]
    test = ["meson", "test", *build, "--no-rebuild", "--quiet", "--maxfail", "1", *names]
    for command in (["ninja", *build, *files], [*test, "--timeout-multiplier", "3"]):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            return f"{command[0]} fails: {done.stdout[-2000:]}"
    return ""


def place_of(tree, name):
    """Where the text of a fault stands in its file, however lines are broken; exits if it is not in
    one place."""
    _, file, old, _ = MUTANTS[name]
    pattern = r"\s*".join(re.escape(letter) for letter in old if not letter.isspace())
    places = list(re.finditer(pattern, (tree / file).read_text()))
    if len(places) != 1:
        sys.exit(f"{name}: {file} has {len(places)} places to change, not one")
    return places[0].span()


def survives(tree, name, suite, file, _, new):
    """Whether no test of the suite notices the fault."""
    text, (start, end) = (tree / file).read_text(), place_of(tree, name)
    (tree / file).write_text(text[:start] + new + text[end:])
    said = complaint(tree, suite)
    (tree / file).write_text(text)
    result = "does not compile" if said.startswith("ninja") else "noticed" if said else "SURVIVES"
    print(f"{name:42} {result}", flush=True)
    return result != "noticed"


def main():
    source, names = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:]
    only_looks = names == ["--places"]
    if only_looks or not names:
        names = list(MUTANTS)
    if unknown := set(names) - set(MUTANTS):
        sys.exit(f"there is no mutant {', '.join(sorted(unknown))}")
    for name in names:
        place_of(source, name)
    if only_looks:
        return
    with tempfile.TemporaryDirectory(prefix="deltawire-mutants-") as folder:
        tree = pathlib.Path(folder) / "tree"
        shutil.copytree(source, tree, ignore=shutil.ignore_patterns("build*", ".git"))
        options = [f"-D{option}" for option in OPTIONS]
        subprocess.run(["meson", "setup", str(tree / "build"), str(tree), *options], check=True)
        for suite in {MUTANTS[name][0] for name in names}:
            if said := complaint(tree, suite):
                sys.exit(f"suite {suite}, before anything is broken: {said}")
        survivors = [name for name in names if survives(tree, name, *MUTANTS[name])]
    print(f"{len(names)} mutants, {len(survivors)} survive: {' '.join(survivors)}".rstrip(": "))
    sys.exit(1 if survivors else 0)


if __name__ == "__main__":
    main()
