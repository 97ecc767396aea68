# SPDX-License-Identifier: Apache-2.0
# test.sh - ./run test: every part builds, runs its tests, and leaves a log that is counted.

. "$root/tools/packages.sh"
. "$root/tools/parts.sh"

part=
quick=
suites_valgrind='pure,examples,-threads,-slow'
suites_tsan='threads,transports,trainer,-mpi'

wanted() { [ -z "$part" ] || [ "$part" = "$1" ]; }

# run_tests NAME DIR SUITES [MESON TEST OPTIONS]: the count is taken from Meson's own log.
run_tests() {
    local name=$1 dir=$2 suites=$3 picked=() programs=
    shift 3
    # nobody wants the interpreter of a script checked
    [[ " $* " != *" --wrap "* ]] || programs=$build/$dir/
    mapfile -t picked < <(tests_in "$dir" "$suites" --programs "$programs")
    if [ ${#picked[@]} -eq 0 ]; then
        [ -n "$filter" ] || result "$name: not one test in suites $suites" fail
        return 0
    fi
    say "$name: ${#picked[@]} test programs"
    rm -f "$build/$dir/meson-logs/$name"*
    # Meson has all memory that tests allocate filled, to show who reads what nobody wrote. Pools
    # are large and mostly never touched, so this costs much time: one part does it for all.
    local fill=0
    [ "$name" != clang ] || fill=$((RANDOM % 255 + 1))
    # Half of the tests wait for wires and clocks: twice as many as there are cores.
    MALLOC_PERTURB_=$fill meson test -C "$build/$dir" --no-rebuild --print-errorlogs \
        --num-processes $((2 * jobs)) --logbase "$name" "$@" "${picked[@]}" </dev/null ||
        true # the log says what failed
    if ! cp "$build/$dir/meson-logs/$name"*.json "$results/$name.json"; then
        result "$name: meson test left no log" fail
    fi
}

test_arguments() {
    while [ $# -gt 0 ]; do
        case $1 in
        --filter) [ $# -ge 2 ] || usage_error "--filter needs a regular expression"
            filter=$2; shift 2 ;;
        --filter=*) filter=${1#*=}; shift ;;
        --part) [ $# -ge 2 ] || usage_error "--part needs a name"; part=$2; shift 2 ;;
        --part=*) part=${1#*=}; shift ;;
        --quick) quick=1; shift ;;
        *) usage_error "test knows no '$1'" ;;
        esac
    done
    case $part in
    '' | gcc | clang | asan | tsan | valgrind | cross | python) ;;
    *) usage_error "no part '$part'" ;;
    esac
    [ -z "$part" ] || [ -z "$quick" ] || usage_error "--quick goes without --part"
}

cmd_test() {
    test_arguments "$@"
    need "${packages_build[@]}" "${packages_test[@]}"
    "$python" "$root/tests/house/pick_tests.py" --filter "$filter" <<<'[]' || exit 2
    rm -rf "$results"
    mkdir -p "$results"
    if [ "$quick" ]; then test_quick; else test_parts; fi
    "$python" "$root/tests/house/count_results.py" "$results"
}

# For the daily loop; it shares the build of the part gcc.
test_quick() {
    local suites='pure,transports,house,-mpi,-devices,-long'
    if build_part_gcc "$suites"; then run_tests quick gcc "$suites"; fi
}

test_parts() {
    local gcc_built= everything=everything
    # A filter means that somebody waits for few tests; without one all must compile.
    [ -z "$filter" ] || everything='*'
    if wanted gcc || wanted valgrind || wanted cross; then
        local of_gcc=$everything
        case $part in valgrind) of_gcc=$suites_valgrind ;; cross) of_gcc=emulated ;; esac
        build_part_gcc "$of_gcc" && gcc_built=1
    fi
    if wanted gcc && [ "$gcc_built" ]; then run_tests gcc gcc '*,-emulated,-python'; fi
    if wanted clang && build_part_clang "$everything"; then
        run_tests clang clang '*,-house,-bench,-emulated,-mpi,-python'
    fi
    if wanted asan && build_part_asan '*,-house,-python'; then
        run_tests asan asan '*,-house,-python' --timeout-multiplier 4
    fi
    if wanted tsan && build_part_tsan "$suites_tsan"; then
        run_tests tsan tsan "$suites_tsan" --timeout-multiplier 6
    fi
    if wanted valgrind && [ "$gcc_built" ]; then
        # Threads have TSan; the rest must be clean here, leaks and all.
        local memcheck=(valgrind -q --error-exitcode=99 --leak-check=full
            --errors-for-leak-kinds=definite,indirect --child-silent-after-fork=yes)
        run_tests valgrind gcc "$suites_valgrind" --timeout-multiplier 15 --wrap "${memcheck[*]}"
    fi
    if wanted cross; then test_cross "$gcc_built"; fi
    if wanted python; then test_python; fi
}

# The package for Python, by itself and with the libraries under ASan and UBSan.
test_python() {
    if build_part_gcc python; then run_tests python gcc python; fi
    if build_part_asan python; then
        run_tests python-asan asan python --timeout-multiplier 4
    fi
}

# Other processors, emulated: older ones of x86-64 from the build for this one, 64-bit Arm, and a
# big-endian one. Where Debian has no such compilers for this machine the rest goes on.
test_cross() {
    local suites='pure,fuzz,examples'
    if ! (need "${packages_cross[@]}"); then
        result "cross: no emulator and compilers for other processors to be had" skip
        return 0
    fi
    [ -z "$1" ] || run_tests cross-x86 gcc emulated
    if build_part_cross "$suites" cross-aarch64 aarch64 aarch64-linux-gnu-gcc; then
        run_tests cross-aarch64 cross-aarch64 "$suites"
    fi
    # As much time again for another compiler: only where it is asked for.
    if [ "$part" = cross ] && build_part_cross bits cross-aarch64-clang aarch64-clang clang; then
        run_tests cross-aarch64-clang cross-aarch64-clang 'bits'
    fi
    suites+=',messages'
    if build_part_cross "$suites" cross-s390x s390x s390x-linux-gnu-gcc; then
        run_tests cross-s390x cross-s390x "$suites"
    fi
}
