# SPDX-License-Identifier: Apache-2.0
# coverage.sh - ./run coverage: which branches of src/ no test takes, by clang's instrumentation.

. "$root/tools/packages.sh"
. "$root/tools/parts.sh"

cmd_coverage() {
    [ $# -eq 0 ] || usage_error "coverage takes no arguments"
    need "${packages_build[@]}" "${packages_test[@]}"
    mkdir -p "$results"
    local instrumented='-fprofile-instr-generate -fcoverage-mapping' names file objects=()
    build_part everything coverage clang "${options_checked[@]}" "${options_no_gpu[@]}" \
        -Dbench=disabled -Db_lundef=false -Doptimization=1 \
        "-Dc_args=$instrumented" "-Dc_link_args=$instrumented" \
        "-Dcpp_args=$instrumented" "-Dcpp_link_args=$instrumented" || die "the build failed"
    local dir=$build/coverage
    rm -rf "$dir/profiles"
    mapfile -t names < <(tests_in coverage '*,-emulated,-few,-long,-house')
    LLVM_PROFILE_FILE=$dir/profiles/%2m.profraw meson test -C "$dir" --no-rebuild \
        --timeout-multiplier 10 --num-processes $((2 * jobs)) "${names[@]}" </dev/null ||
        say "some tests failed: what they alone reach counts as missed"
    llvm-profdata merge -sparse "$dir"/profiles/*.profraw -o "$dir/merged.profdata"
    for file in $(find "$dir" -type f \( -name '*.so*' -o -perm -u+x \)); do
        [ "$(head -c 4 "$file" | tail -c 3)" != ELF ] || objects+=(-object "$file")
    done
    llvm-cov report "${objects[@]}" "-instr-profile=$dir/merged.profdata" "$root/src" \
        2>"$dir/llvm-cov.log" | awk '{ print $1, $(NF - 2), $(NF - 1), $NF }' | column -t
}
