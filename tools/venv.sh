# SPDX-License-Identifier: Apache-2.0
# venv.sh - the virtual environment that has torch, and the library that is built for it.

# has_torch DIR: whether the environment in DIR has what the tests and benchmarks import.
has_torch() { "$1/bin/python" -c 'import torch, cffi, pytest' 2>/dev/null; }

# has_real DIR: whether it also has what reads pretrained models. Looks without importing it, which
# takes seconds.
has_real() {
    "$1/bin/python" - 2>/dev/null <<'END'
import importlib.util
import sys

names = ("torch", "cffi", "transformers", "gguf", "accelerate")
sys.exit(not all(map(importlib.util.find_spec, names)))
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
        torch numpy cffi pytest lightning jax transformers gguf accelerate peft matplotlib
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
