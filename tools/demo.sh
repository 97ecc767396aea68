# SPDX-License-Identifier: Apache-2.0
# demo.sh - ./run demo: the trainer over a slow wire, several codecs side by side.

. "$root/tools/packages.sh"
. "$root/tools/builds.sh"

cmd_demo() {
    need "${packages_build[@]}" "${packages_demo[@]}"
    say "build/release: optimized build"
    configure release gcc --buildtype=release -Dtests=disabled -Dbench=disabled -Dtrainer=enabled \
        -Dtransports=enabled "${options_no_gpu[@]}" || die "the build could not be set up"
    compile release || die "the build failed"
    exec "$python" "$root/examples/demo.py" --build "$build/release" "$@"
}
