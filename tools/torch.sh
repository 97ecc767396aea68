# SPDX-License-Identifier: Apache-2.0
# torch.sh - ./run torch: tests of deltawire.torch, with a torch of its own in build/venv.

. "$root/tools/packages.sh"
. "$root/tools/builds.sh"
. "$root/tools/venv.sh"

# ./run torch [--venv DIR] [PYTEST OPTIONS]. DIR: a virtual environment that has torch, cffi and
# pytest already, for another release of torch. Exit code 77: torch could not be installed.
cmd_torch() {
    local venv=$build/venv needs=(torch cffi pytest)
    if [ "${1:-}" = --venv ]; then
        [ $# -ge 2 ] || usage_error "--venv needs a folder"
        venv=$2
        shift 2
    fi
    need "${packages_build[@]}" python3-venv python3-cffi python3-pycparser fortunes fortunes-min
    build_for_torch
    if ! complete_venv "$venv" "${needs[@]}"; then
        say "torch could not be installed (see above), so deltawire.torch was not tested"
        exit 77
    fi
    say "tests/python/torch"
    [ $# -gt 0 ] || set -- -q
    OMP_NUM_THREADS=1 with_library timeout "${DW_TORCH_SECONDS:-1200}" "$venv/bin/python" \
        -m pytest -p no:cacheprovider "$@" "$root/tests/python/torch"
}
