# SPDX-License-Identifier: Apache-2.0
# layout.py - Layout: the parameters of a bucket, in their order, which identify the bucket.
from __future__ import annotations

import hashlib
from typing import Any, Iterable

import torch


class Layout:
    """The parameters of one bucket.

    parameters: (name, shape) of each, in the bucket's order. digest: a hash of them.
    """

    def __init__(self, parameters: "Iterable[tuple[str, tuple[int, ...]]]") -> None:
        self.parameters = [(name, tuple(shape)) for name, shape in parameters]
        words = "\n".join(f"{name} {shape}" for name, shape in self.parameters)
        self.digest = int.from_bytes(hashlib.sha256(words.encode()).digest()[:8], "little")

    def by_name(self, buffer: torch.Tensor) -> "dict[str, torch.Tensor]":
        """Returns, by name, the part of a bucket's buffer that holds the gradients of a parameter.
        """
        found: "dict[str, torch.Tensor]" = {}
        at = 0
        for name, shape in self.parameters:
            elements = elements_of(shape)
            found[name] = buffer[at : at + elements]
            at += elements
        return found

    def elements(self) -> int:
        return sum(elements_of(shape) for _, shape in self.parameters)

    def saved(self) -> "dict[str, Any]":
        """Returns it in a form for torch.save. Layout(zip(names, shapes)) restores it."""
        names, shapes = zip(*self.parameters)
        return {"names": list(names), "shapes": [list(shape) for shape in shapes]}


def stored(parameter: torch.Tensor) -> "tuple[tuple[int, ...], torch.dtype]":
    """Shape and dtype of a parameter's gradients in a bucket, where a complex number is two real
    ones."""
    shape, dtype = tuple(parameter.shape), parameter.dtype
    return ((*shape, 2), dtype.to_real()) if dtype.is_complex else (shape, dtype)


def elements_of(shape: "tuple[int, ...]") -> int:
    product = 1
    for extent in shape:
        product *= extent
    return product
