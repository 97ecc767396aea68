# SPDX-License-Identifier: Apache-2.0
# real.sh - ./run real: codecs on pretrained language models, with torch and transformers.

. "$root/tools/packages.sh"
. "$root/tools/builds.sh"
. "$root/tools/venv.sh"

# ./run real [--venv DIR] [ARGS]. DIR: a virtual environment that has the packages below. Exit code
# 77: there is none and it could not be made, or a model could not be fetched.
cmd_real() {
    local venv=$build/venv needs=(torch cffi transformers gguf accelerate)
    if [ "${1:-}" = --venv ]; then
        [ $# -ge 2 ] || usage_error "--venv needs a folder"
        venv=$2
        shift 2
    fi
    need "${packages_build[@]}" python3-venv python3-cffi python3-pycparser fortunes fortunes-min
    build_for_torch
    if ! complete_venv "$venv" "${needs[@]}"; then
        say "torch and transformers could not be installed (see above), so nothing was measured"
        exit 77
    fi
    with_library "$venv/bin/python" "$root/study/real.py" "$@"
}
