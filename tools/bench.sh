# SPDX-License-Identifier: Apache-2.0
# bench.sh - ./run bench: speed of the codecs, of links and of groups.

. "$root/tools/packages.sh"
. "$root/tools/builds.sh"
. "$root/tools/venv.sh"

build_bench() {
    say "build/bench: optimized build"
    configure bench gcc --buildtype=release -Dtests=disabled -Dbench=enabled -Dtrainer=disabled \
        "${options_no_gpu[@]}" || die "the build could not be set up"
    compile bench || die "the build failed"
}

# What bench_link compares with each MPI, through shared memory and through TCP.
bench_link() {
    local mpi way
    need "${packages_build[@]}" "${packages_mpi[@]}"
    build_bench
    say "tcp and a socket, loopback"
    "$build/bench/bench/bench_link" "$@"
    for mpi in openmpi mpich; do
        for way in "" :tcp; do
            say "$mpi$way"
            "$root/tests/transports/mpi/mpirun.sh" "$mpi$way" 2 \
                "$build/bench/bench/bench_link_$mpi" "$@"
        done
    done
}

# Groups beside both MPIs and gloo; bench/collective.py says what it measures.
bench_collective() {
    need "${packages_build[@]}" "${packages_mpi[@]}" "${packages_bench[@]}" iproute2
    build_bench
    local torch=()
    if has_packages "$build/venv" torch cffi || install_torch "$build/venv"; then
        torch=(--torch "$build/venv/bin/python")
    fi
    "$python" "$root/bench/collective.py" --build "$build/bench/bench" "${torch[@]}" \
        --out "$build/bench/collective.json" "$@"
    say "figures: build/bench/collective.json, picture: build/bench/collective.png"
}

cmd_bench() {
    if [ "${1:-}" = --link ]; then
        bench_link "${@:2}"
        return
    fi
    if [ "${1:-}" = --collective ]; then
        bench_collective "${@:2}"
        return
    fi
    local options=() out=$build/bench/bench.json
    while [ $# -gt 0 ]; do
        case $1 in
        --filter) [ $# -ge 2 ] || usage_error "--filter needs a regular expression"
            options+=("--benchmark_filter=$2"); shift 2 ;;
        --filter=*) options+=("--benchmark_filter=${1#*=}"); shift ;;
        --out) [ $# -ge 2 ] || usage_error "--out needs a file"; out=$2; shift 2 ;;
        --out=*) out=${1#*=}; shift ;;
        --*) options+=("$1"); shift ;;
        *) usage_error "bench knows no '$1'" ;;
        esac
    done
    need "${packages_build[@]}" "${packages_bench[@]}"
    build_bench
    "$build/bench/bench/bench_codec" --benchmark_out="$out" --benchmark_out_format=json \
        --benchmark_counters_tabular=true "${options[@]}"
    "$python" "$root/bench/plot.py" "$out" "${out%.json}.png"
    say "figures: $out, picture: ${out%.json}.png"
}
