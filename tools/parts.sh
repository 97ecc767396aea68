# SPDX-License-Identifier: Apache-2.0
# parts.sh - the builds that ./run test is made of; each that fails or works is noted in $results.

. "$root/tools/builds.sh"

results=$build/test-results

# result NAME pass|fail|skip: notes what became of a build.
result() { printf '%s\t%s\n' "$2" "$1" >>"$results/builds.tsv"; }

# build_part NAME CC [MESON OPTIONS]: configure and compile, counted as one test.
build_part() {
    local name=$1
    say "build/$name: $2 ${*:3}"
    if configure "$@" && compile "$name"; then
        result "build $name" pass
    else
        result "build $name" fail
        return 1
    fi
}

build_part_gcc() { build_part gcc gcc "${options_checked[@]}" -Dbench=enabled; }
build_part_clang() {
    build_part clang clang "${options_checked[@]}" "${options_no_gpu[@]}" -Dbench=enabled
}
build_part_asan() {
    build_part asan clang "${options_sanitized[@]}" -Db_sanitize=address,undefined
}
# Vector kernels know no threads; instrumented, they take a minute to compile.
build_part_tsan() {
    build_part tsan clang "${options_sanitized[@]}" -Dsimd=disabled -Db_sanitize=thread
}

# build_part_cross NAME CROSS-FILE CC. The trainer and the benchmarks stay out: their libraries are
# this machine's.
build_part_cross() {
    build_part "$1" "$3" --cross-file "$root/tests/cross/$2.ini" -Dwerror=true -Dtests=enabled \
        -Dtransports=enabled -Dtls=disabled -Dtrainer=disabled -Dbench=disabled -Dcuda=disabled
}
