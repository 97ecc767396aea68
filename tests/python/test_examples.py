# SPDX-License-Identifier: Apache-2.0
# test_examples.py - the length of all examples in Python. Those without torch are run as tests of
# their own, those with torch by tests/python/torch.
import pathlib

import pytest

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples" / "python"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_an_example_has_less_than_80_lines(path):
    assert len(path.read_text().splitlines()) < 80


def test_all_examples_were_looked_at():
    assert len(list(EXAMPLES.glob("0*.py"))) >= 7
