# SPDX-License-Identifier: Apache-2.0
# conftest.py - skips this folder if torch is not installed; the fixture `ranks` for all tests.
import importlib.util
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
collect_ignore_glob = []
if importlib.util.find_spec("torch") is None:
    collect_ignore_glob = ["test_*.py"]


def pytest_report_header(config):
    if collect_ignore_glob:
        return "tests/python/torch: skipped, torch is not installed (./run torch installs it)"
    import torch

    return f"torch {torch.__version__}"


@pytest.fixture(scope="session")
def ranks():
    from ranks import Ranks

    made = Ranks()
    yield made
    made.stop()
