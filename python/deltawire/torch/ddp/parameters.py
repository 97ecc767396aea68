# SPDX-License-Identifier: Apache-2.0
# parameters.py - Parameters: the names of a model's parameters, by which its buckets are known.
from __future__ import annotations

from typing import Any, Optional

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.weak import WeakIdKeyDictionary

from deltawire.errors import Status, fail, refuse
from deltawire.torch.gradients.layout import Layout, stored

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


class Parameters:
    """It owns the names, and whether all of them are known.

    model: gives the names. None: parameters are numbered in the first backward.
    origin: where the names come from, which must be equal on all ranks.
    """

    def __init__(self, model: Optional[torch.nn.Module]) -> None:
        self._names: Any = WeakIdKeyDictionary()
        self._complete = self._named = model is not None
        self.origin = "taken from model=" if self._named else "numbered"
        if getattr(model, "_comm_hooks", None):
            refuse("this model already has a communication hook: register one hook for each model")
        inner = model.module if isinstance(model, DistributedDataParallel) else model
        for name, parameter in inner.named_parameters() if inner is not None else ():
            if parameter.requires_grad:
                check_dtype(stored(parameter)[1])
                self._names[parameter] = name

    def may_have(self, parameter: torch.nn.Parameter) -> bool:
        """Whether the parameter can be one of the model's."""
        return not self._named or parameter in self._names

    def all_known(self) -> None:
        """A backward has ended, so all parameters have names."""
        self._complete = True

    def described(self) -> "Optional[dict[str, Any]]":
        """Shape and dtype of each parameter by its name; None if not all are known."""
        if not self._complete:
            return None
        return {name: stored(parameter) for parameter, name in self._names.items()}

    def layout(self, parameters: "list[torch.Tensor]") -> Layout:
        """Returns the names and shapes of a bucket's parameters, in their order."""
        named = []
        for parameter in parameters:
            name = self._names.get(parameter)
            if name is None:
                if self._complete:
                    refuse("this hook belongs to another model: make a ddp_hook for each model")
                name = self._names[parameter] = f"#{len(self._names)}"
            named.append((name, stored(parameter)[0]))
        return Layout(named)


def check_dtype(dtype: torch.dtype) -> None:
    if dtype not in DTYPES:
        fail(
            Status["UNSUPPORTED"],
            f"gradients of {dtype} cannot be compressed: convert the parameters to float32, "
            "float16 or bfloat16",
        )
