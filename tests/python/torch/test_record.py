# SPDX-License-Identifier: Apache-2.0
# test_record.py - record: what a module or a stage sends, in files that deltawire.measure reads.
import functools
import json
import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest
import torch
from torch import nn

import pipelines
import small_gpt
from deltawire import DeltawireError
from deltawire.torch import record


def read(path):
    """The tensors of a .safetensors file."""
    content = path.read_bytes()
    head = 8 + int.from_bytes(content[:8], "little")
    types = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
    found = {}
    for name, one in json.loads(content[8:head]).items():
        begin, end = one["data_offsets"]
        data = torch.frombuffer(bytearray(content[head + begin : head + end]), dtype=torch.uint8)
        found[name] = data.view(types[one["dtype"]]).reshape(one["shape"])
    return found


def measure(*arguments):
    command = [sys.executable, "-m", "deltawire.measure", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_module_is_recorded(tmp_path, dtype):
    module, folder = nn.Linear(8, 6).to(dtype), tmp_path / "new" / "folder"
    outputs, gradients = [], []
    with record(module, folder, steps=2):
        for _ in range(3):
            x = torch.randn(4, 5, 8).to(dtype)
            y = module(x)
            y.register_hook(lambda gradient: gradients.append(gradient.clone()))
            outputs.append(y.detach().clone())
            (y * torch.randn(4, 5, 6).to(dtype)).sum().backward()
    assert sorted(os.listdir(folder)) == [
        f"{kind}-{step:04}.safetensors" for kind in ("activations", "gradients") for step in (0, 1)
    ]
    for step in (0, 1):
        (found,) = read(folder / f"activations-{step:04}.safetensors").items()
        assert found[0] == "activations" and found[1].dtype == dtype
        assert torch.equal(found[1], outputs[step])
        (found,) = read(folder / f"gradients-{step:04}.safetensors").items()
        assert found[0] == "gradients" and torch.equal(found[1], gradients[step])
    assert not module._forward_hooks
    first, second = (folder / f"activations-000{i}.safetensors" for i in (0, 1))
    done = measure(second, "--delta-from", first, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["tensors"][0]["shape"] == [4, 5, 6]
    done = measure(folder / "gradients-0000.safetensors")
    assert done.returncode == 0 and "judged as gradients" in done.stdout


class Two(nn.Module):
    def forward(self, x):
        return {"y": x * 2, "n": torch.arange(3), "z": (x.half() * 3, x.detach())}


def test_outputs_of_several_tensors(tmp_path):
    x = torch.randn(2, 3, requires_grad=True)
    recording = record(module := Two(), tmp_path)
    out = module(x)
    (out["y"].sum() + out["z"][0].float().sum() * 5).backward()
    found = read(tmp_path / "activations-0000.safetensors")
    assert list(found) == ["activations.0", "activations.1", "activations.2"]
    assert torch.equal(found["activations.1"], out["z"][0])
    found = read(tmp_path / "gradients-0000.safetensors")
    assert list(found) == ["gradients.0", "gradients.1"]
    assert torch.equal(found["gradients.1"], torch.full((2, 3), 5.0).half())
    (module(x)["y"].sum() * 7).backward()
    (found,) = read(tmp_path / "gradients-0001.safetensors").items()
    assert found[0] == "gradients.0" and torch.equal(found[1], torch.full((2, 3), 7.0))
    recording.close()
    recording.close()
    module(x)
    assert len(os.listdir(tmp_path)) == 4


def test_what_is_refused(tmp_path):
    module = nn.Linear(4, 4)
    with record(module, tmp_path):
        module(torch.zeros(2, 4))
    for kind in (module, nn.Linear(4, 4)):
        with pytest.raises(DeltawireError, match="belongs to another recording: give a directory"):
            record(kind, tmp_path)
    assert not module._forward_hooks
    with pytest.raises(DeltawireError, match="takes a module or a stage"):
        record("module", tmp_path / "other")
    with pytest.raises(DeltawireError, match="steps must be at least 1"):
        record(module, tmp_path / "other", steps=0)
    numbers = nn.Identity()
    record(numbers, tmp_path / "other")
    with pytest.raises(DeltawireError, match="has no tensor of f32, f16 or bf16"):
        numbers(torch.arange(3))
    numbers(torch.arange(3))  # it does not record any more


def train_and_record(rank, world, folder):
    pipe = pipelines.Pipe(rank, world, "1f1b", options={"forward": "raw:f32"}, microbatches=4)
    record(pipe.stages[0], f"{folder}/{rank}", steps=3)
    pipe.steps(2)
    left = pipe.stages[0]._compression.listeners["forward"]
    return sorted(os.listdir(f"{folder}/{rank}")), len(left)


@pytest.mark.skipif(small_gpt.text() is None, reason="no texts: install fortunes")
def test_a_stage_is_recorded(ranks, tmp_path):
    (first, left), (last, _) = ranks.run(2, train_and_record, str(tmp_path))
    assert first == [f"activations-000{i}.safetensors" for i in range(3)]
    assert last == [f"gradients-000{i}.safetensors" for i in range(3)]
    assert left == 0  # it has stopped by itself
    shape = read(tmp_path / "0" / first[0])["activations"].shape
    assert shape == read(tmp_path / "1" / last[0])["gradients"].shape and shape[0] == 2


def test_the_program_of_the_page_runs(tmp_path, monkeypatch):
    page = pathlib.Path(__file__).parents[3] / "docs" / "python.md"
    section = page.read_text(encoding="utf-8").split("## Your own tensors")[1]
    (program,) = re.findall(r"^```python\n(.*?)^```", section, re.S | re.M)
    monkeypatch.chdir(tmp_path)
    model = nn.Module()
    model.layers = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 64)])

    def train(steps):
        for _ in range(steps):
            model.layers[1](model.layers[0](torch.randn(4, 8))).sum().backward()

    exec(compile(program, str(page), "exec"), {"model": model, "train": train})
    assert len(list(pathlib.Path("recorded").iterdir())) == 8


def test_files_of_torch_are_measured(tmp_path):
    path = tmp_path / "model.pt"
    layers = {"layers": [torch.randn(4, 64), {"w": torch.randn(8, 64).bfloat16()}], "n": 3}
    torch.save(layers, path)
    done = measure(path, "--json", "--codec", "mx")
    assert done.returncode == 0, done.stderr
    tensors = json.loads(done.stdout)["tensors"]
    assert [tensor["name"] for tensor in tensors] == ["layers.0", "layers.1.w"]
    assert {tensor["file"] for tensor in tensors} == {str(path)}
    torch.save({"a.b": torch.zeros(1), "a": {"b": torch.zeros(1)}}, path)
    done = measure(path)
    assert done.returncode == 1 and "two tensors have the name a.b" in done.stderr
    path.write_bytes(b"rubbish")
    done = measure(path)
    assert done.returncode == 1 and "torch cannot load it" in done.stderr


def test_an_interrupt_leaves_no_files(tmp_path):
    path, folder = tmp_path / "model.pt", tmp_path / "temporary"
    folder.mkdir()
    torch.save([torch.ones(1), torch.randn(4096, 4096)], path)
    command = [sys.executable, "-m", "deltawire.measure", str(path), "--codec", "all"]
    env = {**os.environ, "TMPDIR": str(folder)}
    # A shell that runs this in the background ignores SIGINT.
    heed = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, preexec_fn=heed) as running:
        assert running.stdout.readline()  # of the first tensor
        assert os.listdir(folder)
        running.send_signal(signal.SIGINT)
        assert b"model.pt: 1, F32" not in running.stdout.read()  # it did not finish
    assert running.returncode == 130 and os.listdir(folder) == []
