# SPDX-License-Identifier: Apache-2.0
# soak.sh - ./run soak: what takes too long for ./run test.

. "$root/tools/packages.sh"
. "$root/tools/parts.sh"

# run_once DIR HOW SUITE: what takes too long to compile for ./run test.
run_once() {
    "$2" "$3" || die "the build failed"
    say "suite $3 in build/$1"
    MALLOC_PERTURB_=0 meson test -C "$build/$1" --no-rebuild --quiet --print-errorlogs \
        --timeout-multiplier 8 --suite "$3" </dev/null || die "a test failed in build/$1"
}

cmd_soak() {
    local minutes=${1:-10} end repeat=0
    [[ $minutes =~ ^[1-9][0-9]*$ ]] && [ $# -le 1 ] || usage_error "soak takes a number of minutes"
    need "${packages_build[@]}" "${packages_test[@]}" "${packages_launchers[@]}"
    mkdir -p "$results"
    build_part_asan_vectors everything || die "the build failed"
    build_part_tsan threads,mpi,trainer,devices || die "the build failed"
    run_once debug build_part_debug bits
    run_once archs build_part_archs cuda
    "$python" "$root/tests/lint/tidy.py" "$root" "$build/asan-vectors" </dev/null ||
        [ $? = 77 ] || die "clang-tidy has found something"
    run_once asan-vectors build_part_asan_vectors pure
    run_once tsan build_part_tsan mpi
    DELTAWIRE_LAUNCHERS=real run_once tsan build_part_tsan trainer
    run_once tsan build_part_tsan devices
    run_once asan build_part_asan mpich
    say "what ./run test leaves out of the parts valgrind and cross"
    "$root/run" test --part valgrind </dev/null || die "valgrind has found something"
    "$root/run" test --part cross </dev/null || die "another processor makes other bits"
    end=$((SECONDS + minutes * 60))
    while [ $SECONDS -lt $end ]; do
        repeat=$((repeat + 1))
        say "round $repeat, $(((end - SECONDS) / 60)) minutes left"
        "$build/asan-vectors/tests/fuzz/replay_round_trip" --random $((RANDOM * 32768 + RANDOM)) \
            --seconds 30 </dev/null || die "a random round trip failed; its seed stands above"
        meson test -C "$build/tsan" --no-rebuild --quiet --print-errorlogs --timeout-multiplier 6 \
            --suite threads </dev/null || die "a threaded test failed in round $repeat"
    done
    say "the installed library, with vector kernels in every build"
    "$python" "$root/tests/lint/install.py" "$root" --all </dev/null ||
        die "a program that uses the library failed"
    say "all-reduces over links with faults, and ranks that die, leave or disagree"
    "$build/asan-vectors/tests/collective/soak_group" 100000 </dev/null ||
        die "a sum was wrong, ranks had different bits, or a rank hung"
    say "the faults of tests/mutants.py"
    "$python" "$root/tests/mutants.py" "$root" </dev/null ||
        die "a mutant survived: a check is missing"
    say "soak: $repeat rounds without a finding"
}
