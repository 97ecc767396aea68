# SPDX-License-Identifier: Apache-2.0
# venv.sh - the virtual environment that has torch, for tests and benchmarks.

# has_torch DIR: whether the environment in DIR has what the tests and benchmarks import.
has_torch() { "$1/bin/python" -c 'import torch, cffi, pytest' 2>/dev/null; }

# install_torch DIR: makes the environment. Fails if the package index cannot be reached.
install_torch() {
    need python3-venv
    say "$1: torch from the package index, about 3 GB"
    "$python" -m venv "$1" || die "no virtual environment could be made in $1"
    "$1/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir \
        torch numpy cffi pytest lightning jax
}
