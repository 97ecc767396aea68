# SPDX-License-Identifier: Apache-2.0
# projection.py - Projection: coordinates of tensors in a subspace, in front of any codec.
from __future__ import annotations

import threading
from contextlib import nullcontext
from typing import Any

from deltawire._library import core, ffi, native
from deltawire.device import Stream
from deltawire.errors import check, new_why, refuse
from deltawire.owner import Life
from deltawire.streams import LazyStream, gpu_of
from deltawire.tensor import Tensor
from deltawire.views import WRITES, View, reach, refuse_overlap


class Projection:
    """A projection onto a subspace: z = x U for the sender, and y = z U^T for the receiver.

    matrix: a tensor (C, R) of f32 in main memory, of any framework, with 1 <= R <= C. Its columns
        should be orthonormal, which is not checked. It is copied.
    Errors: SHAPE (R is not from 1 to C), ARGUMENT (not finite, not f32), NO_MEMORY.

    Both ends need the same matrix. `Config(f"delta:bits=2,project={p.digest}")` says which one:
    a decoder whose config has another digest refuses frames with MISMATCH. A Projection does not
    change, and any number of threads may use it; on a GPU they take turns. The matrix is copied to
    the GPU when the first tensor there comes.
    """

    __slots__ = ("_handle", "_gpu", "_on_device", "_lock", "_life")

    def __init__(self, matrix: Any) -> None:
        made, why, view = ffi.new("dw_projection **"), new_why(), View("the matrix")
        try:
            given = view.take(matrix, 0)
            check(core.dw_projection_create(made, given, ffi.NULL, why), why)
        finally:
            view.drop()
        self._hold(made[0])

    def _hold(self, handle: Any) -> None:
        self._handle = ffi.gc(handle, core.dw_projection_destroy)
        self._gpu, self._on_device = LazyStream("Projection"), ffi.new("dw_cuda_projection **")
        self._lock, self._life = threading.Lock(), Life.now

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
        fitted._hold(made[0])
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

    def project(self, x: Any, out: Any = None) -> Any:
        """The coordinates of x, (N, T, C), as a tensor (N, T, R) of f32.

        out: a writable tensor of that shape, which is returned; None: a new Tensor. If x is on a
            GPU, out must be a tensor there, too; then the bits are those of the CPU, and out is
            complete when the call returns.
        Errors: SHAPE, ARGUMENT, LIMIT (too many tokens), NO_MEMORY; UNSUPPORTED (x and out are in
        different places, or not on the GPU of earlier tensors), IO (the GPU failed).
        """
        return self._multiply("project", x, out, "f32")

    def unproject(self, z: Any, dtype: str = "f32", out: Any = None) -> Any:
        """The tensor (N, T, C) that has the coordinates z, (N, T, R).

        dtype: that of the new Tensor. out: as for project, of any dtype; it is used in place of a
            new Tensor, and dtype is not used then.
        Errors: those of project.
        """
        return self._multiply("unproject", z, out, dtype)

    def _multiply(self, name: str, given: Any, out: Any, dtype: str) -> Any:
        number = gpu_of(given)
        if number is not None and self._life is not Life.now:
            refuse(
                "this Projection belongs to the process that made it, and this is another process "
                "that was forked from it: make a new one here"
            )
        if number is not None and out is None:
            refuse(f"on a GPU, {name} needs out=, a tensor on cuda:{number}")
        stream, why = self._gpu.of(given, out), new_why()
        noun = "x" if name == "project" else "z"
        view, made = View(noun, stream), View("out", stream)
        alone: Any = self._lock if stream is not None else nullcontext()
        with alone:
            try:
                source = view.take(given, 0)
                if out is None:
                    width = self.shape[name == "project"]
                    out = Tensor((source.n, source.t, width), dtype)
                to = made.take(out, WRITES)
                refuse_overlap(to, *reach(source), f"{noun} and out")
                if stream is None:
                    check(getattr(core, f"dw_{name}")(self._handle, source, to, why), why)
                else:
                    self._multiply_on(stream, name, source, to, why)
            finally:
                view.drop()
                made.drop()
        return out

    def _multiply_on(self, stream: Stream, name: str, source: Any, to: Any, why: Any) -> None:
        """The same on a GPU, and waits for it."""
        place = self._on_device
        if not place[0]:
            check(core.dw_cuda_projection_create(place, stream.cuda, self._handle, why), why)
        back = name == "unproject"
        check(native.dw_multiply_on_device(stream.call, place[0], back, source, to, why), why)

    def __del__(self, life: Any = Life) -> None:
        if getattr(self, "_life", None) is life.now:
            core.dw_cuda_projection_destroy(self._on_device[0])
            self._gpu.close()

    def __repr__(self) -> str:
        channels, rank = self.shape
        return f"Projection(channels={channels}, rank={rank}, digest={self.digest})"

    def __reduce__(self) -> Any:
        refuse("a deltawire Projection cannot be pickled: pickle its matrix()")
