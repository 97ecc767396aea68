# SPDX-License-Identifier: Apache-2.0
# record.py - record: writes to files what a module or a stage sends, for `deltawire measure`.
from __future__ import annotations

import os
import pathlib
from typing import Any, Callable, Iterator, Union

import torch
from torch import nn

from deltawire import tensor_files
from deltawire.errors import refuse

ACTIVATIONS, GRADIENTS = "activations", "gradients"


def _tensors(found: Any) -> "Iterator[torch.Tensor]":
    """The tensors of an output that can be written, in order."""
    if isinstance(found, torch.Tensor):
        if tensor_files.can_write(found):
            yield found
        return
    below = found.values() if isinstance(found, dict) else found
    for one in below if isinstance(found, (dict, list, tuple)) else ():
        yield from _tensors(one)


class Recording:
    """What record returns: it writes files until every kind has `steps` of them, or close."""

    def __init__(self, directory: "Union[str, os.PathLike[str]]", steps: int) -> None:
        if steps < 1:
            refuse(f"steps must be at least 1, not {steps}")
        self._folder, self._steps = pathlib.Path(directory), steps
        self._folder.mkdir(parents=True, exist_ok=True)
        for kind in (ACTIVATIONS, GRADIENTS):
            for file in sorted(self._folder.glob(f"{kind}-*.safetensors*")):
                refuse(f"{file} belongs to another recording: give a directory of its own")
        self._undo: "list[Callable[[], None]]" = []

    def _write(self, kind: str, step: int, tensors: "dict[int, torch.Tensor]", of: int) -> None:
        named = {kind if of == 1 else f"{kind}.{i}": x for i, x in sorted(tensors.items())}
        tensor_files.write(self._folder / f"{kind}-{step:04}.safetensors", named)

    def close(self) -> None:
        """Stops recording. Can be called twice."""
        while self._undo:
            self._undo.pop()()

    def __enter__(self) -> "Recording":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _OfModule(Recording):
    """Hooks on the output of a module, and on the gradients of its tensors."""

    def __init__(self, module: nn.Module, directory: Any, steps: int) -> None:
        super().__init__(directory, steps)
        self._calls = 0
        self._undo.append(module.register_forward_hook(self._output).remove)

    def _output(self, module: nn.Module, args: Any, output: Any) -> None:
        tensors, step = list(_tensors(output)), self._calls
        if not tensors:
            self.close()
            refuse(
                f"the output of {type(module).__name__} has no tensor of f32, f16 or bf16: record "
                "another module"
            )
        self._calls += 1
        self._write(ACTIVATIONS, step, dict(enumerate(tensors)), len(tensors))
        came: "dict[int, torch.Tensor]" = {}

        def on_gradient(i: int) -> "Callable[[torch.Tensor], None]":
            def keep(gradient: torch.Tensor) -> None:
                came[i] = gradient.clone()  # the file is written again with what has come
                self._write(GRADIENTS, step, came, len(tensors))

            return keep

        hooks = [t.register_hook(on_gradient(i)) for i, t in enumerate(tensors) if t.requires_grad]
        if self._calls == self._steps:
            self._undo.pop(0)()  # calls are counted; gradients are still to come
        self._undo += [hook.remove for hook in hooks]


class _OfStage(Recording):
    """Listens to what a compressed stage sends."""

    def __init__(self, compression: Any, directory: Any, steps: int) -> None:
        super().__init__(directory, steps)
        self._listen(compression.listeners["forward"], ACTIVATIONS)
        self._listen(compression.listeners["backward"], GRADIENTS)

    def _listen(self, listeners: "list[Any]", kind: str) -> None:
        sent = 0

        def undo() -> None:
            if heard in listeners:
                listeners.remove(heard)

        def heard(tensors: "list[torch.Tensor]") -> None:
            nonlocal sent
            found = list(_tensors(tensors))
            if found:
                self._write(kind, sent, dict(enumerate(found)), len(found))
                sent += 1
            if sent == self._steps:
                undo()

        listeners.append(heard)
        self._undo.append(undo)


def record(
    stage_or_module: Any, directory: "Union[str, os.PathLike[str]]", *, steps: int = 4
) -> Recording:
    """Records what a boundary sends, as files that `deltawire measure` reads.

        with deltawire.torch.record(model.layers[5], "recorded"):
            train_some_steps()

    Each call writes activations-0000.safetensors, then activations-0001 and so on, and each
    backward pass gradients-0000.safetensors and so on, with the number of its call. Tensors keep
    their dtype: f32, f16 or bf16; others are left out. A file appears whole or not at all.

    stage_or_module: a stage that compress_stage returned: its micro-batches are recorded as it
        sends them, activations forward and gradients backward. Or a module, such as the last layer
        in front of a boundary: its output is recorded, and the gradient of its output.
    directory: where the files go; made if it is not there. Give each rank its own.
    steps: how many calls, or micro-batches, are recorded; then it stops by itself.

    Returns an object with close(), which is also a context manager.
    Errors: ARGUMENT (the directory has files of another recording; no module; an output without
    such tensors, at the first call); OSError."""
    compression = getattr(stage_or_module, "_compression", None)
    if compression is not None:
        return _OfStage(compression, directory, steps)
    if not isinstance(stage_or_module, nn.Module):
        refuse(
            "record takes a module or a stage that compress_stage returned, not "
            f"{type(stage_or_module).__name__}"
        )
    return _OfModule(stage_or_module, directory, steps)
