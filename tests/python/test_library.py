# SPDX-License-Identifier: Apache-2.0
# test_library.py - finding the C libraries at import, and the errors if they are missing or old.
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

import deltawire
from deltawire import _library

PACKAGE = pathlib.Path(deltawire.__file__).parent
FOLDERS = os.environ.get("DW_TEST_LIBRARIES", "").split(":")


def run(folder, program="import deltawire", **env):
    """Runs a program in a new interpreter that imports the package from folder. Returns its exit
    code and the last line of its stderr."""
    env = {**os.environ, "PYTHONPATH": str(folder), **env}
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stderr.strip().split("\n")[-1]


@pytest.fixture
def copied(tmp_path):
    shutil.copytree(PACKAGE, tmp_path / "deltawire", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def test_a_library_of_another_version_is_refused(copied):
    page = copied / "deltawire" / "_declarations.py"
    page.write_text(
        page.read_text().replace(f'VERSION = "{deltawire.__version__}"', 'VERSION = "9.8.7"')
    )
    code, said = run(copied)
    assert code == 1 and said.startswith("ImportError: "), said
    for word in ("9.8.7", deltawire.__version__, "install both from the same release"):
        assert word in said


def test_a_missing_library_is_an_error(copied):
    code, said = run(copied, DW_TEST_LIBRARIES="", LD_LIBRARY_PATH="/nowhere")
    if code == 0:
        pytest.skip("deltawire is installed on this machine")
    assert said.startswith("ImportError: ") and "libdeltawire.so.0" in said
    assert "install the wheel" in said


def test_libraries_beside_the_package_come_first(copied):
    for folder in FOLDERS:
        for library in pathlib.Path(folder).glob("libdeltawire*.so.0"):
            shutil.copy(library, copied / "deltawire")
    code, said = run(copied, DW_TEST_LIBRARIES="/nowhere")
    assert (code, said) == (0, "")
    (copied / "deltawire" / "libdeltawire.so.0").write_text("no library")
    code, said = run(copied)
    assert code == 1 and said.startswith("ImportError: "), said


def test_a_foreign_library_is_refused(copied):
    stranger = next(
        pathlib.Path(f) / "libdeltawire-threads.so.0" for f in FOLDERS if "threads" in f
    )
    shutil.copy(stranger, copied / "deltawire" / "libdeltawire.so.0")
    code, said = run(copied)
    assert code == 1 and said.startswith("ImportError: "), said
    assert "does not belong to deltawire" in said


def test_declarations_are_those_of_the_headers():
    ffi = _library.ffi
    assert ffi.sizeof("dw_key") == 16
    assert _library.core.DW_ERR_CORRUPT == -9 == deltawire.Status.CORRUPT
    assert set(deltawire.Status.__members__) >= {"OK", "PENDING", "ARGUMENT", "AUTH"}
    assert deltawire.Counters._fields[0] == "frames"
