#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# mutants.py - breaks the kernels of cuda/ in one place after the other and asks that check_cuda notices.
"""usage: mutants.py SOURCE CHECK_CUDA_OBJECTS... [-- NAME...]

Compiles the shim with one line changed, links it with the objects given (check_cuda.c, the tests' tool and the pure layer), and runs it. A
mutant that survives is a check that is missing. Part of `./run soak`."""
import pathlib
import shutil
import subprocess
import sys
import tempfile

# name: file, what stands there, what the mutant writes
MUTANTS = {
    "choice_of_the_wrong_extremes": ("encode.cuh", "extremes = is_direct ? direct[slot] : delta[slot];", "extremes = delta[slot];"),
    "zeros_behind_choices": ("encode.cuh", "index + 1 == layout->tiles ? layout->choice_bytes : end;", "end;"),
    "sum_loses_bits": ("block.cuh", "(uint32_t)(mine >> 44)) << 44;", "(uint32_t)(mine >> 44) & 0xffffu) << 44;"),
    "audit_of_the_first_stretch": ("block.cuh", "(at + i) / DW_TILE_ELEMENTS % audit.every", "at / DW_TILE_ELEMENTS / 2 % audit.every"),
    "poison_keeps_nothing": ("encode.cuh", "dw_scale_is_poisoned(scale) ? e->base.of[i] : value", "dw_scale_is_poisoned(scale) ? 0.0f : value"),
    "poison_spreads_to_prev": ("decode.cuh", "is_poisoned && !keeps ? dw_nan_of(dtype)", "is_poisoned ? dw_nan_of(dtype)"),
    "dither_of_the_thread": ("encode.cuh", "uint64_t counter = at / DW_EIGHT;", "uint64_t counter = threadIdx.x;"),
    "dither_not_skipped": ("encode.cuh", "skipped & 2 ? words[i + 1] : words[i]", "words[i]"),
    "dither_in_padding": ("encode.cuh", "i < n ? words[i / 2] >> (16 * (i % 2)) & 0xffffu : DW_DITHER_NONE", "words[i / 2] >> (16 * (i % 2)) & 0xffffu"),
    "zeros_behind_scales": ("encode.cuh", "room->staged[scales_end + threadIdx.x] = 0;", ";"),
    "zeros_behind_codes": ("encode.cuh", "if (threadIdx.x < 16 && codes_end + threadIdx.x < bytes) room->staged[codes_end + threadIdx.x] = 0;", ""),
    "zeros_behind_channels": ("choose.cuh", "at < layout->scale_bytes; at++) scales[at] = 0;", "0; at++) scales[at] = 0;"),
    "used_message_stays_used": ("block.cuh", "(void)dw_taken(&sums->arrived);", ""),
    "no_barrier_before_the_tile_leaves": ("encode.cuh", "    __syncthreads();\n    uint64_t payload = dw_put_tile", "    uint64_t payload = dw_put_tile"),
    "no_barrier_before_codes_are_read": ("decode.cuh", "    __syncthreads();\n#pragma unroll\n    for (uint32_t slot = 0; slot < DW_SLOTS; slot++) {\n        if (!ByColumns", "#pragma unroll\n    for (uint32_t slot = 0; slot < DW_SLOTS; slot++) {\n        if (!ByColumns"),
    "search_of_half_a_piece": ("encode.cuh", "at < width; at += DW_NORM_LANES) sum += squares[at];", "at < width / 2; at += DW_NORM_LANES) sum += squares[at];"),
    "search_of_a_part_of_a_row": ("choose.cuh", "for (uint64_t i = lane; i < layout->c; i += DW_NORM_LANES)", "for (uint64_t i = lane; i < layout->c / 16; i += DW_NORM_LANES)"),
    "search_of_a_part_of_a_channel": ("choose.cuh", "t < job->layout.t; t++)", "t < job->layout.t / 4; t++)"),
    "pieces_not_counted": ("decode.cuh", "if (!ByColumns && places[slot].stored && places[slot].leads)", "if (0)"),
    "channels_not_counted": ("decode.cuh", "if (chosen == 0) atomicAdd", "if (0) atomicAdd"),
    "rows_of_one_tile": ("choose.cuh", "part->share.chosen[row * layout->row_segments + i] = chosen;", "part->share.chosen[row * layout->row_segments] = chosen;"),
    "strip_forgets_rows": ("choose.cuh", "t += DW_CUDA_THREADS / DW_STRIP) {", "t += DW_CUDA_THREADS) {"),
    "group_of_half_its_lanes": ("encode.cuh", "dw_join_lanes(found[slot], width / DW_EIGHT);", "dw_join_lanes(found[slot], width / DW_EIGHT / 2);"),
    "tensor_without_its_stride": ("place.cuh", "row * (uint64_t)stride + place.column;", "row * (uint64_t)layout->c + place.column;"),
    "padding_is_stored": ("place.cuh", "within < channels ? channels - within : 0;", "within < channels ? DW_EIGHT : 0;"),
    "high_codes_lost": ("encode.cuh", "*(uint16_t *)to = (uint16_t)(low | high << 8);", "*(uint16_t *)to = (uint16_t)low;"),
    "digest_of_a_part": ("block.cuh", "dw_digest_pair(all.word[2], all.word[3], place + 2);", "dw_digest_pair(all.word[2], all.word[3], place);"),
    "front_not_digested": ("encode.cuh", "dw_block_sum(dw_front_sum(&part->job.layout, part->job.payload), room->found.sums[0]);", "dw_block_sum(0, room->found.sums[0]);"),
    "part_of_the_neighbour": ("block.cuh", "parts[middle].share.first[phase] <= blockIdx.x", "parts[middle].share.first[phase] < blockIdx.x"),
    "odd_end_of_a_state": ("audit.cuh", "dtype == DW_F32 && first + i + 2 >= elements;", "dtype == DW_F32 && first + i + 4 >= elements;"),
    "y_of_another_dtype": ("decode.cuh", "dw_narrow(dw_widen(next[i], prev_dtype), job->y_dtype);", "dw_narrow(dw_widen(next[i], prev_dtype), prev_dtype);"),
    "levels_not_clamped": ("encode.cuh", "return min(max(level, -half), half - 1);", "return max(level, -half);"),
    "levels_of_nobody": ("encode.cuh", "if (inverse != 0.0f) level = dw_level_of", "level = dw_level_of"),
    "negative_zeros_count": ("encode.cuh", "negative >> 31 ? negative & 0x7fffffffu : 0}", "negative & 0x7fffffffu}"),
    "serial_of_nobody": ("block.cuh", "report->serial = share->serial;", "report->serial = 1;"),
}


def survives(source, objects, name, place):
    file, there, mutant = MUTANTS[name]
    room = pathlib.Path(place)
    for part in ("cuda", "src", "include", "tests/cuda"):
        shutil.copytree(source / part, room / part, dirs_exist_ok=True)
    text = (source / "cuda" / file).read_text()
    if text.count(there) != 1:
        sys.exit(f"mutants: {name}: {there!r} stands {text.count(there)} times in cuda/{file}")
    (room / "cuda" / file).write_text(text.replace(there, mutant))
    program = room / "check"
    includes = [f"-I{room}/include", f"-I{room}/src", f"-I{room}/cuda"]
    subprocess.run(["g++", "-std=c++17", "-O1", "-w", "-ffp-contract=off", *includes, str(room / "tests/cuda/shim.cc"), *objects,
                    "-lcmocka", "-lm", "-o", str(program)], check=True)
    return subprocess.run([program, "--share", "6"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=600).returncode == 0


def main():
    arguments = sys.argv[1:]
    names = arguments[arguments.index("--") + 1:] if "--" in arguments else list(MUTANTS)
    given = arguments[:arguments.index("--")] if "--" in arguments else arguments
    source, objects = pathlib.Path(given[0]).resolve(), given[1:]
    alive = []
    for name in names:
        with tempfile.TemporaryDirectory() as place:
            if survives(source, objects, name, place):
                alive.append(name)
        print(f"{name:40} {'SURVIVES' if name in alive else 'noticed'}", flush=True)
    print(f"{len(names)} mutants, {len(alive)} survive")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())
