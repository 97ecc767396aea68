# SPDX-License-Identifier: Apache-2.0
# venv.sh - the virtual environment that has torch, and the library that is built for it.

packages_venv=(torch numpy cffi pytest lightning jax transformers gguf accelerate peft matplotlib)

# has_packages DIR [NAMES]: whether the environment in DIR has these packages, or all that
# install_torch installs. Looks without importing them, which takes seconds.
has_packages() {
    local names=("${@:2}")
    [ ${#names[@]} -gt 0 ] || names=("${packages_venv[@]}")
    "$1/bin/python" - "${names[@]}" 2>/dev/null <<'END'
import importlib.util
import sys

sys.exit(not all(map(importlib.util.find_spec, sys.argv[1:])))
END
}

# install_torch DIR: makes the environment, or adds what it lacks. Fails if the package index cannot
# be reached.
install_torch() {
    need python3-venv
    say "$1: torch from the package index, about 3 GB"
    [ -x "$1/bin/python" ] || "$python" -m venv "$1" ||
        die "no virtual environment could be made in $1"
    "$1/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir \
        "${packages_venv[@]}"
}

# complete_venv DIR NAMES: installs what is missing. Fails if one of these packages is missing then.
# An environment that is not build/venv is its owner's: it is only looked at if it has these.
complete_venv() {
    [ "$1" = "$build/venv" ] || ! has_packages "$@" || return 0
    has_packages "$1" || install_torch "$1" || has_packages "$@"
}

# build_for_torch: the optimized library for programs in that environment, in build/torch.
build_for_torch() {
    say "build/torch: optimized build"
    configure torch gcc --buildtype=release -Dtests=disabled -Dbench=disabled -Dtrainer=disabled \
        -Dmpi=disabled -Dtransports=enabled -Dpython=auto "${options_no_gpu[@]}" ||
        die "the build could not be set up"
    compile torch || die "the build failed"
}

# with_library COMMAND: runs a command that imports deltawire of that build.
with_library() {
    local built=$build/torch
    local folders=$built/src:$built/transports:$built/threads:$built/python
    PYTHONPATH=$built/python DW_TEST_LIBRARIES=$folders PYTHONDONTWRITEBYTECODE=1 "$@"
}
