# SPDX-License-Identifier: Apache-2.0
# projection.py - Projection: coordinates of tensors in a subspace, in front of any codec.
from __future__ import annotations

from typing import Any

from deltawire._library import core, ffi
from deltawire.errors import check, new_why, refuse
from deltawire.tensor import Tensor
from deltawire.views import View


class Projection:
    """A projection onto a subspace: z = x U for the sender, and y = z U^T for the receiver.

    matrix: a tensor (C, R) of f32 in main memory, of any framework, with 1 <= R <= C. Its columns
        should be orthonormal, which is not checked. It is copied.
    Errors: SHAPE (R is not from 1 to C), ARGUMENT (not finite, not f32), NO_MEMORY.

    Both ends need the same matrix. `Config(f"delta:bits=2,project={p.digest}")` says which one:
    a decoder whose config has another digest refuses frames with MISMATCH. A Projection does not
    change, and any number of threads may use it.
    """

    __slots__ = ("_handle",)

    def __init__(self, matrix: Any) -> None:
        made, why, view = ffi.new("dw_projection **"), new_why(), View("the matrix")
        try:
            given = view.take(matrix, 0)
            check(core.dw_projection_create(made, given, ffi.NULL, why), why)
        finally:
            view.drop()
        self._handle = ffi.gc(made[0], core.dw_projection_destroy)

    @classmethod
    def fit(cls, x: Any, rank: int) -> "Projection":
        """The projection onto the subspace with `rank` dimensions that x lies closest to: its
        principal components, without subtraction of the mean.

        x: a tensor (N, T, C). Tokens with values that are not finite are left out.
        Errors: SHAPE (rank is not from 1 to C), ARGUMENT, NO_MEMORY.
        """
        if not isinstance(rank, int) or not 0 <= rank < 2**32:
            refuse(f"rank must be an int from 1 to the number of channels, not {rank!r}")
        made, why, view = ffi.new("dw_projection **"), new_why(), View("x")
        try:
            given = view.take(x, 0)
            check(core.dw_projection_fit(made, given, rank, ffi.NULL, why), why)
        finally:
            view.drop()
        fitted = cls.__new__(cls)
        fitted._handle = ffi.gc(made[0], core.dw_projection_destroy)
        return fitted

    @property
    def digest(self) -> int:
        """The value for the option `project`."""
        return core.dw_projection_digest(self._handle)

    @property
    def shape(self) -> "tuple[int, int]":
        """(C, R)."""
        matrix = core.dw_projection_matrix(self._handle)
        return matrix.t, matrix.c

    def matrix(self) -> Tensor:
        """A copy of the matrix, (1, C, R)."""
        own = core.dw_projection_matrix(self._handle)
        copy = Tensor((1, own.t, own.c))
        ffi.memmove(copy._view.data, own.data, copy.nbytes)
        return copy

    def project(self, x: Any) -> Tensor:
        """The coordinates of x, (N, T, C), as a tensor (N, T, R) of f32. Errors: SHAPE, ARGUMENT,
        NO_MEMORY."""
        why, view = new_why(), View("x")
        try:
            given = view.take(x, 0)
            made = Tensor((given.n, given.t, self.shape[1]))
            check(core.dw_project(self._handle, given, made._view, why), why)
        finally:
            view.drop()
        return made

    def unproject(self, z: Any, dtype: str = "f32") -> Tensor:
        """The tensor (N, T, C) that has the coordinates z, (N, T, R). Errors: SHAPE, ARGUMENT,
        NO_MEMORY."""
        why, view = new_why(), View("z")
        try:
            given = view.take(z, 0)
            made = Tensor((given.n, given.t, self.shape[0]), dtype)
            check(core.dw_unproject(self._handle, given, made._view, why), why)
        finally:
            view.drop()
        return made

    def __repr__(self) -> str:
        channels, rank = self.shape
        return f"Projection(channels={channels}, rank={rank}, digest={self.digest})"

    def __reduce__(self) -> Any:
        refuse("a deltawire Projection cannot be pickled: pickle its matrix()")
