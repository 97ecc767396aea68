# SPDX-License-Identifier: Apache-2.0
# compare.sh - ./run compare: every method of the literature by the loss and the time of trainings.

. "$root/tools/packages.sh"
. "$root/tools/builds.sh"

cmd_compare() {
    need "${packages_build[@]}" "${packages_demo[@]}"
    say "build/release: optimized build"
    configure release gcc --buildtype=release -Dtests=disabled -Dbench=disabled -Dtrainer=enabled \
        -Dtransports=enabled "${options_no_gpu[@]}" || die "the build could not be set up"
    compile release || die "the build failed"
    exec "$python" "$root/study/compare.py" --build "$build/release" "$@"
}
