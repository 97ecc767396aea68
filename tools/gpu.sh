# SPDX-License-Identifier: Apache-2.0
# gpu.sh - ./run gpu: a real GPU against the CPU, byte by byte, and its speed.

. "$root/tools/packages.sh"
. "$root/tools/builds.sh"

# GPU machines are seldom Debian 12: what they have is used, and only what is missing is asked of
# apt.
gpu_tools() {
    local tool
    for tool in meson ninja gcc pkg-config; do command -v "$tool" >/dev/null || return 1; done
    pkg-config --exists libxxhash && echo '#include <Random123/philox.h>' | gcc -E - >/dev/null 2>&1
}

cmd_gpu() {
    local anywhere=python3 device
    [ ! -d /usr/local/cuda/bin ] || PATH=$PATH:/usr/local/cuda/bin
    if ! device=$("$anywhere" "$root/bench/gpu.py" --name); then
        say "no GPU here: nothing to do"
        exit 77
    fi
    command -v nvcc >/dev/null ||
        die "there is a GPU ($device) but no nvcc: install NVIDIA's CUDA toolkit"
    gpu_tools || need "${packages_build[@]}"
    say "build/gpu: optimized build"
    configure gpu gcc --buildtype=release -Dtests=disabled -Dbench=auto -Dtrainer=disabled \
        -Dmpi=disabled -Dcuda=enabled || die "the build could not be set up"
    compile gpu || die "the build failed"
    exec "$anywhere" "$root/bench/gpu.py" --build "$build/gpu" \
        --table "$root/bench/results/gpu-${device//[^A-Za-z0-9]/-}.md" "$@"
}
