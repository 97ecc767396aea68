# SPDX-License-Identifier: Apache-2.0
# scales.sh - ./run scales: scale rules by recorded tensors and by trainings.

. "$root/tools/packages.sh"
. "$root/tools/builds.sh"

cmd_scales() {
    need "${packages_build[@]}" "${packages_bench[@]}" "${packages_demo[@]}"
    say "build/scales: optimized build"
    configure scales gcc --buildtype=release -Dtests=disabled -Dbench=enabled -Dtrainer=enabled \
        -Dtransports=enabled "${options_no_gpu[@]}" || die "the build could not be set up"
    compile scales || die "the build failed"
    exec "$python" "$root/study/scales.py" --build "$build/scales" --out "$build/scales/out" "$@"
}
