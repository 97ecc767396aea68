# SPDX-License-Identifier: Apache-2.0
# test_measure.py - python -m deltawire.measure: the same as the program's `measure`, without numpy
# and torch.
import array
import json
import os
import subprocess
import sys

import pytest

from deltawire import tensor_files

HIDES = """
import runpy, sys
for name in ("numpy", "torch"):
    sys.modules[name] = None  # importing it fails
sys.argv[0] = "measure"
runpy.run_module("deltawire.measure", run_name="__main__", alter_sys=True)
"""


def measure(*arguments, stdout=subprocess.PIPE):
    command = [sys.executable, "-W", "error", "-c", HIDES, *arguments]
    done = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def npy(tmp_path):
    path = tmp_path / "x.npy"
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (4, 64)}\n"
    values = array.array("f", [i % 17 - 8 for i in range(256)])
    path.write_bytes(
        b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header + values.tobytes()
    )
    return str(path)


def test_it_measures_without_numpy_and_torch(npy, tmp_path):
    picture = tmp_path / "x.svg"
    code, said, errors = measure(npy, "--json", "--codec", "mx;raw:f32", "--picture", str(picture))
    assert (code, errors) == (0, "")
    (tensor,) = json.loads(said)["tensors"]
    assert tensor["file"] == npy and tensor["shape"] == [1, 4, 64]
    assert [codec["codec"] for codec in tensor["codecs"]] == ["mx", "raw:f32"]
    assert tensor["codecs"][1]["error"] == 0 and "<circle" in picture.read_text()
    code, said, errors = measure(npy, "--delta-from", npy, "--codec", "delta:bits=8")
    assert (code, errors) == (0, "") and "which follow a visit" in said


def test_exit_codes_and_sentences(npy, tmp_path):
    for arguments, wanted, words in [
        ([], 2, "FILE"),
        ([npy, "--codec", "direct:bots=4"], 2, "bots"),
        ([npy, "--tensor", "y"], 1, 'no file has a tensor "y"'),
        ([str(tmp_path / "none")], 1, "No such file"),
        ([str(tmp_path / "x.pt")], 1, "torch, which is not installed"),
    ]:
        code, said, errors = measure(*arguments)
        assert (code, said) == (wanted, ""), errors
        assert words in errors
    with open("/dev/full", "w") as full:
        code, _, errors = measure(npy, stdout=full)
    assert code == 1 and "standard output" in errors


class Lent:
    """What the writer needs of a tensor of torch."""

    layout, is_meta = "torch.strided", False

    def __init__(self, dtype, shape, code, values):
        self.dtype, self.shape, self._kept = dtype, shape, array.array(code, values)

    def detach(self):
        return self

    cpu = contiguous = detach

    def numel(self):
        return len(self._kept)

    def element_size(self):
        return self._kept.itemsize

    def data_ptr(self):
        return self._kept.buffer_info()[0]


def test_the_writer_writes_what_is_read(tmp_path):
    path = tmp_path / "x.safetensors"
    tensors = {
        "a\u00e9": Lent("torch.float32", (2, 3), "f", range(6)),
        "b": Lent("torch.bfloat16", (2,), "H", [0x3F80, 0xC000]),
        "none": Lent("torch.float16", (0, 2), "H", []),
    }
    assert all(tensor_files.can_write(tensor) for tensor in tensors.values())
    tensor_files.write(path, tensors)
    assert os.listdir(tmp_path) == ["x.safetensors"]
    a, b, none = json.loads(measure(str(path), "--json", "--codec", "raw:f32")[1])["tensors"]
    assert (a["name"], a["dims"], a["dtype"]) == ("a\u00e9", [2, 3], "F32")
    assert a["rms"] == pytest.approx((55 / 6) ** 0.5) and b["rms"] == pytest.approx(2.5**0.5)
    assert none["dims"] == [0, 2] and "no values" in none["left_out"]


def test_a_write_that_fails_leaves_nothing(tmp_path):
    broken = Lent("torch.float32", (1,), "f", [1])
    broken.data_ptr = lambda: 1 / 0
    with pytest.raises(ZeroDivisionError):
        tensor_files.write(tmp_path / "x", {"a": broken})
    assert os.listdir(tmp_path) == []
