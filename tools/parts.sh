# SPDX-License-Identifier: Apache-2.0
# parts.sh - the builds that ./run test is made of; each that fails or works is noted in $results.

. "$root/tools/builds.sh"

results=$build/test-results
filter= # a regular expression for tests

# result NAME pass|fail|skip: notes what became of a build.
result() { printf '%s\t%s\n' "$2" "$1" >>"$results/builds.tsv"; }

# tests_in DIR SUITES [OPTIONS]: the names of the tests in those suites (all: '*') that the filter
# picks, or, with --targets, the files that they want built.
tests_in() {
    meson introspect --tests "$build/$1" |
        "$python" "$root/tests/lint/pick_tests.py" --suites "$2" --filter "$filter" "${@:3}"
}

# build_part WHAT NAME CC [MESON OPTIONS]: configure and compile, counted as one test. WHAT: the
# suites whose tests will be run, or "everything". What no picked test needs is compiled only then.
build_part() {
    local what=$1 name=$2 files=()
    shift
    say "build/$name: $2 ${*:3}"
    if configure "$@" && compile_for "$what" "$name"; then
        result "build $name" pass
    else
        result "build $name" fail
        return 1
    fi
}

compile_for() {
    local files=()
    mapfile -t files < <(tests_in "$2" "$1" --targets "$build/$2")
    [ ${#files[@]} -gt 0 ] || return 0 # nothing that was asked for has to be compiled
    compile "$2" "${files[@]}"
}

# Each takes what build_part takes first.
build_part_gcc() {
    build_part "$1" gcc gcc "${options_checked[@]}" "${options_no_gpu[@]}" -Dbench=enabled
}
# The kernels for GPUs, by nvcc, which takes minutes, for one architecture; ./run soak compiles them
# for all.
build_part_kernels() {
    build_part "$1" kernels gcc -Dwerror=true -Dtests=enabled -Dtransports=disabled \
        -Dtrainer=disabled -Dmpi=disabled -Dpython=disabled -Dbench=enabled -Dgpu_archs=90
}
# Neither MPI nor what the trainer, the Python package and the benchmarks need.
build_part_quick() {
    build_part "$1" quick gcc -Dwerror=true -Dtests=enabled -Dtransports=enabled -Dtls=enabled \
        -Dtrainer=disabled -Dmpi=disabled -Dpython=disabled -Dbench=disabled "${options_no_gpu[@]}"
}
build_part_archs() {
    build_part "$1" archs gcc -Dtests=enabled -Dtransports=disabled -Dtrainer=disabled \
        -Dbench=disabled -Dsimd=disabled -Dcuda=auto
}
# Links and the trainer are compiled by clang for the part asan.
build_part_clang() {
    build_part "$1" clang clang "${options_checked[@]}" "${options_no_gpu[@]}" -Dbench=enabled \
        -Dtransports=disabled -Dtls=disabled -Dtrainer=disabled -Dmpi=disabled -Dc_args=-g1
}
# Instrumented, the vector kernels take as long to compile as all the rest: ./run soak has them.
build_part_asan() {
    build_part "$1" asan clang "${options_sanitized[@]}" -Dsimd=disabled \
        -Db_sanitize=address,undefined
}
build_part_asan_vectors() {
    build_part "$1" asan-vectors clang "${options_sanitized[@]}" -Dtrainer=disabled \
        -Db_sanitize=address,undefined
}
# Vector kernels know no threads.
build_part_tsan() {
    build_part "$1" tsan clang "${options_sanitized[@]}" -Dsimd=disabled -Db_sanitize=thread
}
# Nothing is optimized, the vector kernels neither: two minutes and 3 GB.
build_part_debug() {
    build_part "$1" debug gcc "${options_checked[@]}" "${options_no_gpu[@]}" --buildtype=debug \
        -Dtrainer=disabled -Dbench=disabled
}

# build_part_cross WHAT NAME CROSS-FILE CC TRANSPORTS. TRANSPORTS: enabled or disabled. The trainer
# and the benchmarks stay out: their libraries are this machine's.
build_part_cross() {
    build_part "$1" "$2" "$4" --cross-file "$root/tests/cross/$3.ini" -Dwerror=true \
        -Dtests=enabled "-Dtransports=$5" -Dtls=disabled -Dtrainer=disabled -Dbench=disabled \
        -Dcuda=disabled
}
