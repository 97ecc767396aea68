# SPDX-License-Identifier: Apache-2.0
# quality.sh - ./run quality: compares the codecs' rate and error with those of published baselines.

. "$root/tools/packages.sh"
. "$root/tools/builds.sh"

cmd_quality() {
    need "${packages_build[@]}" "${packages_bench[@]}" "${packages_demo[@]}"
    local zfp=enabled
    if ! (need "${packages_quality[@]}"); then
        zfp=disabled
        say "without ${packages_quality[*]}: the rows of ZFP are left out"
    fi
    say "build/quality: optimized build"
    configure quality gcc --buildtype=release -Dtests=disabled -Dbench=enabled -Dtrainer=enabled \
        -Dtransports=enabled "-Dzfp=$zfp" "${options_no_gpu[@]}" ||
        die "the build could not be set up"
    compile quality study/quality cli/deltawire || die "the build failed"
    exec "$python" "$root/study/quality/quality.py" --build "$build/quality" \
        --out "$build/quality/quality.json" "$@"
}
