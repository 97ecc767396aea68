# SPDX-License-Identifier: Apache-2.0
# test_jax.py - runs the tests of jax_arrays.py, if jax is installed.
import importlib.util
import pathlib
import subprocess
import sys

import pytest


def test_jax_arrays():
    """In a process of their own: jax starts threads, and the tests of this folder fork."""
    if importlib.util.find_spec("jax") is None:
        pytest.skip("jax is not installed: ./run torch installs it")
    tests = pathlib.Path(__file__).with_name("jax_arrays.py")
    words = [sys.executable, "-m", "pytest", "-q", "--noconftest", "-p", "no:cacheprovider", tests]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
