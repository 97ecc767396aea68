# SPDX-License-Identifier: Apache-2.0
# fuzz.sh - ./run fuzz: every libFuzzer target for a while.

. "$root/tools/packages.sh"
. "$root/tools/builds.sh"

fuzz_targets=(fuzz_decode fuzz_round_trip fuzz_config fuzz_reply fuzz_rans fuzz_stranger
    fuzz_records fuzz_link fuzz_group fuzz_tensors)

build_fuzz() {
    need "${packages_build[@]}" "${packages_fuzz[@]}" libcmocka-dev
    say "build/fuzz: clang with libFuzzer, ASan and UBSan"
    # Every comparison traced takes a third of the time, and tells little: the targets make what
    # they are compared with themselves.
    local instruments=(-fsanitize=fuzzer-no-link -fno-sanitize-coverage=trace-cmp
        -fno-sanitize-recover=all)
    configure fuzz clang -Dwerror=true -Dfuzz=true -Dtests=enabled -Dtransports=enabled \
        -Dtls=enabled -Dbench=disabled -Dtrainer=disabled -Db_lundef=false "${options_no_gpu[@]}" \
        -Db_sanitize=address,undefined \
        "-Dc_args=${instruments[*]}" ||
        die "the build could not be set up"
    compile fuzz || die "the build failed"
}

cmd_fuzz() {
    local seconds=${1:-60} target failed=0
    [[ $seconds =~ ^[1-9][0-9]*$ ]] && [ $# -le 1 ] || usage_error "fuzz takes a number of seconds"
    build_fuzz
    for target in "${fuzz_targets[@]}"; do
        say "$target for $seconds s"
        local corpus=$build/fuzz-corpus/$target crashes=$build/fuzz-crashes/$target
        local seeds=$build/fuzz-seeds/$target
        mkdir -p "$corpus" "$crashes" "$seeds"
        "$build/fuzz/tests/fuzz/replay_${target#fuzz_}" --write $((RANDOM * 32768 + RANDOM)) 300 \
            "$seeds"
        # Inputs are streams of decisions: only long ones get far, so all lengths at once.
        local most=()
        case $target in fuzz_decode | fuzz_round_trip | fuzz_config | fuzz_reply | fuzz_rans)
            most=(-max_len=1024) ;;
        esac
        "$build/fuzz/tests/fuzz/$target" -max_total_time="$seconds" -print_final_stats=1 \
            -len_control=0 "${most[@]}" -entropic=0 -timeout=10 -artifact_prefix="$crashes/" \
            "$corpus" "$root/tests/fuzz/corpus/$target" "$seeds" </dev/null >"$crashes/log" 2>&1 ||
            failed=1
        rm -rf "$seeds"
        grep -E '^stat::number_of_executed_units|^stat::average_exec|^#.*DONE|^frames:' \
            "$crashes/log" || true
        if [ "$failed" -ne 0 ]; then
            tail -n 40 "$crashes/log" >&2
            die "$target failed; the input lies in $crashes/," \
                "replay it with $build/fuzz/tests/fuzz/$target FILE"
        fi
    done
}
