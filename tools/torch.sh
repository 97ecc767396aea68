# SPDX-License-Identifier: Apache-2.0
# torch.sh - ./run torch: tests of deltawire.torch, with a torch of its own in build/venv.

. "$root/tools/packages.sh"
. "$root/tools/builds.sh"
. "$root/tools/venv.sh"

# ./run torch [--venv DIR] [PYTEST OPTIONS]. DIR: a virtual environment that has torch, cffi and
# pytest already, for another release of torch. Exit code 77: torch could not be installed.
cmd_torch() {
    local venv=$build/venv built=$build/torch
    if [ "${1:-}" = --venv ]; then
        [ $# -ge 2 ] || usage_error "--venv needs a folder"
        venv=$2
        shift 2
    fi
    need "${packages_build[@]}" python3-venv python3-cffi python3-pycparser fortunes fortunes-min
    say "build/torch: optimized build"
    configure torch gcc --buildtype=release -Dtests=disabled -Dbench=disabled -Dtrainer=disabled \
        -Dmpi=disabled -Dtransports=enabled -Dpython=auto "${options_no_gpu[@]}" ||
        die "the build could not be set up"
    compile torch || die "the build failed"
    if ! has_torch "$venv" && ! install_torch "$venv"; then
        say "torch could not be installed (see above), so deltawire.torch was not tested"
        exit 77
    fi
    say "tests/python/torch"
    [ $# -gt 0 ] || set -- -q
    local folders=$built/src:$built/transports:$built/collective:$built/threads:$built/python
    PYTHONPATH=$built/python DW_TEST_LIBRARIES=$folders PYTHONDONTWRITEBYTECODE=1 \
        OMP_NUM_THREADS=1 timeout "${DW_TORCH_SECONDS:-1200}" "$venv/bin/python" -m pytest \
        -p no:cacheprovider "$@" "$root/tests/python/torch"
}
