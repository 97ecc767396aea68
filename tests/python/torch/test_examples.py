# SPDX-License-Identifier: Apache-2.0
# test_examples.py - runs the pipeline example and compares its output with its docstring.
import pathlib
import re
import subprocess
import sys

import pytest
import torch

EXAMPLES = pathlib.Path(__file__).parents[3] / "examples" / "python"


@pytest.mark.parametrize("name", ["02_pipeline.py"])
def test_example(name):
    path = EXAMPLES / name
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    promised = path.read_text().split('"""')[1]
    rows = [line.strip() for line in done.stdout.splitlines() if re.match(r" +\d", line)]
    assert rows
    table = [line for line in promised.splitlines() if re.match(r" +\d+ +\d", line)]
    assert len(table) == len(rows)
    for row, old in zip(rows, table):  # not exact, because releases of torch round differently
        for new, was in zip(row.replace("%", "").split(), old.replace("%", "").split()):
            assert float(new) == pytest.approx(float(was), rel=1e-3, abs=0.11), torch.__version__
