# SPDX-License-Identifier: Apache-2.0
# test.sh - ./run test: every part builds, runs its tests, and leaves a log that is counted.

. "$root/tools/packages.sh"
. "$root/tools/parts.sh"

part=
quick=
builder= # the process that makes the builds
# Without a part every test runs where it can find most, and not in every build: links, groups, Open
# MPI and the program under sanitizers, where there is a shorter run of a test that one. The part
# long runs these with gcc, too.
tests_gcc='*,few,-emulated,-python,-long,-transports,-program,-openmpi'
tests_gcc_alone='*,-emulated,-python,-few,-long'
# The part long runs under sanitizers what other tests go through as well, and at less length.
tests_asan='*,few,-lint,-bench,-mpich,-python,-long,-slow,-program,-bits_of_gpu'
tests_asan_long='slow,program,bits_of_gpu,few,-lint,-bench,-mpich,-python,-long'
tests_asan_alone='*,-lint,-bench,-mpich,-python,-few,-long'
tests_long='long,slow,transports,program,-few,-nvcc'
# What compares the bits of kernels takes most of the time under valgrind: it runs there only where
# the part is asked for.
suites_valgrind='pure,few,examples,-threads,-slow,-bits'
# The part asan runs the other suites, and is compiled by clang as well.
suites_clang='pure,cuda,fuzz,examples,-long'
# Of the trainer three trainings whose ranks are threads of one process: the others take the same
# ways through links, groups and the pool of threads.
suites_tsan='threads,transports,-program,-devices,-again'
suites_tsan_alone='threads,transports,-program,-devices'
suites_cross='pure,fuzz,examples,-long'
suites_aarch64='bits,fuzz,-long'

# What takes too long for ./run test without a part: it runs in the part long, which continuous
# integration asks for.
parts_long='valgrind clang cross s390x aarch64 kernels long'
parts_cross='cross s390x aarch64'

# wanted NAME: whether this part runs, by itself or as a piece of the part that is asked for.
wanted() {
    case $part in
    '') [[ " $parts_long " != *" $1 "* ]] ;;
    long) [[ " $parts_long " = *" $1 "* ]] ;;
    cross) [[ " $parts_cross " = *" $1 "* ]] ;;
    *) [ "$part" = "$1" ] ;;
    esac
}

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
    local begun=$SECONDS
    rm -f "$build/$dir/meson-logs/$name"*
    # Meson has all memory that tests allocate filled, to show who reads what nobody wrote. Pools
    # are large and mostly never touched, so this costs much time: one part does it for all.
    local fill=0
    [ "$name" != clang ] || fill=$((RANDOM % 255 + 1))
    # Most tests wait for wires and clocks: three times as many as there are cores. Their time
    # limits are for a machine with nothing else to do, so they are multiplied: a hang fails all the
    # same.
    MALLOC_PERTURB_=$fill meson test -C "$build/$dir" --no-rebuild --print-errorlogs \
        --timeout-multiplier 4 --num-processes $((3 * jobs)) --logbase "$name" "$@" \
        "${picked[@]}" </dev/null ||
        true # the log says what failed
    say "$name: $((SECONDS - begun)) s"
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
    '' | gcc | clang | asan | tsan | valgrind | cross | python | long) ;;
    *) usage_error "no part '$part'" ;;
    esac
    [ -z "$part" ] || [ -z "$quick" ] || usage_error "--quick goes without --part"
}

cmd_test() {
    test_arguments "$@"
    if [ "$quick" ]; then
        need "${packages_quick[@]}"
    else
        need "${packages_build[@]}" "${packages_test[@]}"
    fi
    "$python" "$root/tests/lint/pick_tests.py" --filter "$filter" <<<'[]' || exit 2
    rm -rf "$results"
    mkdir -p "$results"
    if [ "$quick" ]; then test_quick; else test_parts; fi
    "$python" "$root/tests/lint/count_results.py" "$results"
}

# For the daily loop. Its build has nothing that these tests do not need: so it is quick the first
# time, too, and takes few packages.
test_quick() {
    local suites='pure,few,transports,lint,-devices,-long'
    if build_part_quick "$suites"; then run_tests quick quick "$suites"; fi
}

# What each build of ./run test is for, in the order in which its tests run.
suites_of_build() {
    case $1 in
    gcc) echo "$suites_gcc" ;;
    clang) echo "$everything" ;;
    kernels) echo nvcc ;;
    asan) echo "$suites_asan" ;;
    tsan) echo "$suites_tsan" ;;
    cross-aarch64-clang) echo bits ;;
    cross-s390x) echo "$suites_cross,messages" ;;
    cross-aarch64) echo "$suites_aarch64" ;;
    esac
}

build_one() {
    local suites
    suites=$(suites_of_build "$1")
    case $1 in
    cross-aarch64) build_part_cross "$suites" "$1" aarch64 aarch64-linux-gnu-gcc disabled ;;
    cross-aarch64-clang) build_part_cross "$suites" "$1" aarch64-clang clang disabled ;;
    cross-s390x) build_part_cross "$suites" "$1" s390x s390x-linux-gnu-gcc enabled ;;
    *) "build_part_$1" "$suites" ;;
    esac
}

# Most tests wait for wires and clocks, so the next builds are made while tests run. start_builds
# NAME...: makes these builds one after the other, in the background.
start_builds() {
    rm -rf "$results/built"
    mkdir -p "$results/built"
    {
        for name in "$@"; do
            works=no
            if build_one "$name"; then works=yes; fi
            echo "$works" >"$results/built/.$name"
            mv "$results/built/.$name" "$results/built/$name"
        done
    } </dev/null &
    builder=$!
    trap end_builds EXIT
}

# Ends them with this script, with the compilers that they have started.
end_builds() {
    local children
    [ "$builder" ] || return 0
    children=$(ps -o pid= --ppid "$builder" 2>/dev/null || true)
    # shellcheck disable=SC2086
    kill "$builder" $children 2>/dev/null || true
}

# is_built NAME: waits for a build, and says whether it worked.
is_built() {
    while [ ! -f "$results/built/$1" ]; do
        kill -0 "$builder" 2>/dev/null || [ -f "$results/built/$1" ] || return 1
        sleep 0.2
    done
    [ "$(cat "$results/built/$1")" = yes ]
}

# The builds that the wanted parts need. The part cross has what an older x86-64 runs, too.
wanted_builds() {
    if wanted gcc || wanted valgrind || wanted cross || wanted python || wanted long; then
        echo gcc
    fi
    ! wanted clang || echo clang
    ! wanted kernels || echo kernels
    if wanted asan || [ "$part" = python ] || wanted long; then echo asan; fi
    if wanted tsan || wanted long; then echo tsan; fi
    [ "$can_cross" ] || return 0
    ! wanted aarch64 || echo cross-aarch64
    # As much time again for another compiler: only where it is asked for.
    [ "$part" != cross ] || echo cross-aarch64-clang
    ! wanted s390x || echo cross-s390x
}

test_parts() {
    local everything=everything can_cross=
    # A filter means that somebody waits for few tests; without one all must compile.
    [ -z "$filter" ] || everything='*'
    # A single part needs no more than its own tests, but `gcc` compiles everything.
    suites_gcc=$everything suites_asan='*,-lint,-mpich,-long'
    case $part in
    gcc) tests_gcc=$tests_gcc_alone ;;
    asan) tests_asan=$tests_asan_alone ;;
    tsan) suites_tsan=$suites_tsan_alone ;;
    valgrind)
        suites_valgrind=${suites_valgrind%,-bits}
        suites_gcc=$suites_valgrind
        ;;
    cross)
        suites_gcc=emulated
        suites_cross=${suites_cross%-long}long,-lint
        suites_aarch64=$suites_cross
        ;;
    python) suites_gcc=python suites_asan=python ;;
    long)
        suites_gcc=${tests_long/-few/few},emulated,pure,examples
        suites_asan=${tests_asan_long/-python/python} suites_tsan=again
        ;;
    '') [ -z "$filter" ] || suites_gcc=${tests_gcc/-python/python} ;;
    esac
    if wanted cross; then find_cross; fi
    # shellcheck disable=SC2046
    start_builds $(wanted_builds)
    if wanted gcc && is_built gcc; then run_tests gcc gcc "$tests_gcc"; fi
    # What needs only this build comes first, while the next ones are made.
    if wanted valgrind && is_built gcc; then
        # Threads have TSan; the rest must be clean here, leaks and all.
        local memcheck=(valgrind -q --error-exitcode=99 --leak-check=full
            --errors-for-leak-kinds=definite,indirect --child-silent-after-fork=yes)
        run_tests valgrind gcc "$suites_valgrind" --timeout-multiplier 15 --wrap "${memcheck[*]}"
    fi
    if wanted cross && [ "$can_cross" ] && is_built gcc; then run_tests cross-x86 gcc emulated; fi
    if wanted python && is_built gcc; then run_tests python gcc python; fi
    if wanted clang && is_built clang; then run_tests clang clang "$suites_clang"; fi
    if wanted asan && is_built asan; then run_tests asan asan "$tests_asan"; fi
    if wanted tsan && is_built tsan; then
        run_tests tsan tsan "$suites_tsan" --timeout-multiplier 6
    fi
    test_cross
    # The libraries under ASan and UBSan below the Python package.
    if [ "$part" = python ] || wanted long; then
        if is_built asan; then run_tests python-asan asan python; fi
    fi
    if wanted kernels && is_built kernels; then run_tests kernels kernels nvcc; fi
    if wanted long; then
        if is_built gcc; then run_tests long gcc "$tests_long"; fi
        if is_built asan; then run_tests asan-long asan "$tests_asan_long"; fi
        if is_built tsan; then run_tests tsan-long tsan again --timeout-multiplier 6; fi
    fi
    wait "$builder" || true
    builder=
}

# Other processors, emulated: older ones of x86-64 from the build for this one, 64-bit Arm, and a
# big-endian one. Where Debian has no such compilers for this machine the rest goes on.
find_cross() {
    if (need "${packages_cross[@]}"); then
        can_cross=1
    else
        result "cross: no emulator and compilers for other processors to be had" skip
    fi
}

test_cross() {
    [ "$can_cross" ] || return 0
    if wanted aarch64 && is_built cross-aarch64; then
        run_tests cross-aarch64 cross-aarch64 "$suites_aarch64"
    fi
    if [ "$part" = cross ] && is_built cross-aarch64-clang; then
        run_tests cross-aarch64-clang cross-aarch64-clang bits
    fi
    if wanted s390x && is_built cross-s390x; then
        run_tests cross-s390x cross-s390x "$suites_cross,messages"
    fi
}
