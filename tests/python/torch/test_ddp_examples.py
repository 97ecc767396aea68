# SPDX-License-Identifier: Apache-2.0
# test_ddp_examples.py - runs the examples that use ddp_hook or compress_fsdp.
import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="torch is not installed: ./run torch installs it")

EXAMPLES = pathlib.Path(__file__).parents[3] / "examples" / "python"


def said(name):
    env = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, str(EXAMPLES / name)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def ratio_of(text):
    line = next(line for line in text.splitlines() if line.startswith("bytes of gradients"))
    return float(line.split()[-1])


def test_03_ddp():
    text = said("03_ddp.py")
    assert "epoch    raw    delta:bits=4" in text
    assert ratio_of(text) > 7


def test_04_lightning():
    pytest.importorskip("lightning", reason="lightning is not installed: pip install lightning")
    text = said("04_lightning.py")
    losses = [float(line.split()[-1]) for line in text.splitlines() if line.startswith("step ")]
    assert len(losses) == 3 and losses[2] < losses[0]
    assert ratio_of(text) > 7


def test_07_fsdp():
    from torch.distributed import fsdp

    if not hasattr(getattr(fsdp, "FSDPModule", None), "set_custom_reduce_scatter"):
        pytest.skip("this torch has no set_custom_reduce_scatter")
    text = said("07_fsdp.py")
    assert "epoch    raw    4 bits" in text
    assert ratio_of(text) > 7
