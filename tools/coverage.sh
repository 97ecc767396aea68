# SPDX-License-Identifier: Apache-2.0
# coverage.sh - ./run coverage: which branches of src/ the tests take, by clang's instrumentation.

. "$root/tools/packages.sh"
. "$root/tools/parts.sh"

cmd_coverage() {
    [ $# -eq 0 ] || usage_error "coverage takes no arguments"
    need "${packages_build[@]}" "${packages_test[@]}"
    mkdir -p "$results"
    local dir=$build/coverage how='-fprofile-instr-generate -fcoverage-mapping'
    local file names objects=()
    build_part everything coverage clang "${options_checked[@]}" "${options_no_gpu[@]}" \
        -Dbench=disabled -Db_lundef=false -Doptimization=1 \
        "-Dc_args=$how" "-Dc_link_args=$how" "-Dcpp_args=$how" "-Dcpp_link_args=$how" ||
        die "the build failed"
    rm -rf "$dir/profiles"
    mapfile -t names < <(tests_in coverage '*,-emulated,-few,-long,-lint')
    local failed=0
    LLVM_PROFILE_FILE=$dir/profiles/%2m.profraw meson test -C "$dir" --no-rebuild \
        --timeout-multiplier 10 --num-processes $((2 * jobs)) "${names[@]}" </dev/null ||
        failed=1
    # A process that a test has killed may leave half a profile, which is passed over.
    llvm-profdata merge -sparse -failure-mode=all "$dir"/profiles/*.profraw \
        -o "$dir/merged.profdata"
    while read -r file; do
        [ "$(head -c 4 "$file" | tail -c 3)" != ELF ] || objects+=(-object "$file")
    done < <(find "$dir" -path '*meson-private*' -prune -o -type f -perm -u+x -print)
    # the last columns: branches, those that no test takes, and the part that is taken
    llvm-cov report "${objects[1]}" "${objects[@]:2}" "-instr-profile=$dir/merged.profdata" \
        2>"$dir/llvm-cov.log" | awk '$1 ~ /^src\// { print $1, $(NF - 2), $(NF - 1), $NF
            all += $(NF - 2); missed += $(NF - 1) }
        END { printf "src/ %d %d %.2f%%\n", all, missed, 100 * (all - missed) / all }' | column -t
    # A test that counts what a program prints or allocates may fail under instrumentation alone.
    [ $failed = 0 ] || say "a test has failed: what it alone reaches counts as missed above"
}
