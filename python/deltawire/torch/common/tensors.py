# SPDX-License-Identifier: Apache-2.0
# tensors.py - converts torch tensors to (N, T, C) in main memory, and to bytes.
from __future__ import annotations

import ctypes
import math
from typing import Any, Optional

import torch
import torch.distributed as dist

from deltawire.errors import Status, fail, refuse

# The numbers of dtypes in messages. They must never change.
DTYPES = {
    torch.float32: 1,
    torch.float16: 2,
    torch.bfloat16: 3,
    torch.float64: 4,
    torch.uint8: 5,
    torch.int8: 6,
    torch.int16: 7,
    torch.int32: 8,
    torch.int64: 9,
    torch.bool: 10,
    torch.complex64: 11,
    torch.complex128: 12,
}
OF_NUMBER = {number: dtype for dtype, number in DTYPES.items()}
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_LOWEST = 8
CODED = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}


def is_coded(dtype: torch.dtype, shape: "tuple[int, ...]") -> bool:
    """Whether codecs accept such a tensor: float32, float16 or bfloat16, with at least two
    dimensions, and not empty."""
    return dtype in CODED and len(shape) >= 2 and all(extent > 0 for extent in shape)


def extents(shape: "tuple[int, ...]") -> "tuple[int, int, int]":
    """Converts a shape with samples first and channels last to (N, T, C)."""
    tokens = 1
    for extent in shape[1:-1]:
        tokens *= extent
    return shape[0], tokens, shape[-1]


def samples(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the tensor as (N, T, C) in main memory. It is copied only if it is on another device,
    if its channels are not contiguous, or if tokens or samples overlap."""
    flat = tensor.detach().resolve_neg().cpu().reshape(extents(tuple(tensor.shape)))
    n, t, c = flat.shape
    step_n, step_t, step_c = flat.stride()
    dense = (c == 1 or step_c == 1) and (t == 1 or step_t >= c) and (n == 1 or step_n >= c)
    return flat if dense else flat.contiguous()


def room_for(dtype: torch.dtype, shape: "tuple[int, ...]") -> "tuple[torch.Tensor, torch.Tensor]":
    """Returns a new tensor, and a view of it as (N, T, C)."""
    made = torch.empty(shape, dtype=dtype, device="cpu")
    return made, made.view(extents(shape))


def as_bytes(tensor: torch.Tensor) -> memoryview:
    """Returns the bytes of a contiguous tensor in main memory, without a copy. The caller must keep
    the tensor. Errors: ARGUMENT (it is elsewhere, or not contiguous)."""
    if tensor.device.type != "cpu" or not tensor.is_contiguous():
        refuse(f"a tensor on {tensor.device} cannot be read as bytes: copy it to main memory")
    size = tensor.numel() * tensor.element_size()
    if size == 0:
        return memoryview(b"")
    array = (ctypes.c_char * size).from_address(tensor.data_ptr())
    return memoryview(array).cast("B")


def exact(tensor: torch.Tensor) -> bytes:
    """Returns the elements without loss: of bools a bit each, the first one lowest; of integers the
    smallest one (8) and what the others are above it, in as many bytes as the largest difference
    needs, if that is shorter; of all others, a copy. Integers are little-endian."""
    whole = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous().view(-1)
    n, kind = len(whole), whole.dtype
    if kind is torch.bool:
        given = whole.view(torch.uint8).ne(0)  # memory may hold other numbers than 0 and 1
        eights = torch.nn.functional.pad(given.view(torch.uint8), (0, -n % 8)).view(-1, 8)
        whole = eights[:, 0].clone()
        for i in range(1, 8):
            whole |= eights[:, i] << i
    elif n and kind in INTEGERS:
        low, high = (int(end) for end in whole.aminmax())
        width = max(1, ((high - low).bit_length() + 7) // 8)
        if _LOWEST + n * width < n * kind.itemsize:
            above = (whole - low).view(torch.uint8).view(n, kind.itemsize)
            columns = above[:, :width].contiguous()
            return low.to_bytes(_LOWEST, "little", signed=True) + bytes(as_bytes(columns))
    return bytes(as_bytes(whole))


def from_exact(dtype: int, shape: "tuple[int, ...]", data: memoryview) -> Optional[torch.Tensor]:
    """Makes a new tensor of what exact returned. Returns None if dtype, shape and size do not
    match."""
    kind, n = OF_NUMBER.get(dtype), math.prod(shape)
    if kind is None:
        return None
    if kind is torch.bool:
        return _of_bits(shape, data) if len(data) == (n + 7) // 8 else None
    if n * kind.itemsize == len(data):
        made = torch.empty(shape, dtype=kind, device="cpu")
        if len(data):
            as_bytes(made)[:] = data
        return made
    width, left = divmod(len(data) - _LOWEST, n) if n else (0, 0)
    if kind not in INTEGERS or left or width < 1 or len(data) > n * kind.itemsize:
        return None
    low, info = int.from_bytes(data[:_LOWEST], "little", signed=True), torch.iinfo(kind)
    if not info.min <= low <= info.max:
        return None
    bytes_of_all = torch.zeros((n, kind.itemsize), dtype=torch.uint8, device="cpu")
    bytes_of_all[:, :width] = of_buffer(bytearray(data[_LOWEST:])).view(n, width)
    return bytes_of_all.view(kind).add_(low).view(shape)


def _of_bits(shape: "tuple[int, ...]", data: memoryview) -> torch.Tensor:
    if not len(data):
        return torch.empty(shape, dtype=torch.bool, device="cpu")
    places = torch.arange(8, dtype=torch.uint8, device="cpu")
    bits = of_buffer(bytearray(data))[:, None] >> places & 1
    return bits.view(-1)[: math.prod(shape)].view(torch.bool).view(shape)


def buffer_for(length: int, sender: str) -> bytearray:
    """Returns a buffer for a message whose length the sender has told. Errors: NO_MEMORY."""
    try:
        return bytearray(length)
    except (MemoryError, OverflowError):
        fail(
            Status["NO_MEMORY"],
            f"{sender} sends {length} bytes, and this rank has no memory for them: give both ends "
            "tensors of the same shape, or send them in smaller parts",
        )


class Rooms:
    """Receive buffers, which are used again: allocating and zeroing one may take longer than to
    decode what arrives in it."""

    MOST = 8

    def __init__(self) -> None:
        self._free: "list[bytearray]" = []

    def take(self, length: int, sender: str) -> memoryview:
        """Returns memory of this length, with any content. Errors: as for buffer_for."""
        for at, one in enumerate(self._free):
            if len(one) >= length:
                return memoryview(self._free.pop(at))[:length]
        del self._free[:1]  # too short: a longer one takes its place
        return memoryview(buffer_for(length, sender))

    def give_back(self, room: memoryview) -> None:
        """The caller, and torch, must not use it any more."""
        if len(self._free) < self.MOST:
            self._free.append(room.obj)  # type: ignore[arg-type]


def of_buffer(data: Any) -> torch.Tensor:
    """Returns a uint8 tensor that shares and keeps the memory of a writable buffer."""
    return torch.frombuffer(data, dtype=torch.uint8)


def device_for(group: Any) -> torch.device:
    """The device on which the backend of a process group needs the tensors that it sends."""
    return torch.device("cuda" if "nccl" in str(dist.get_backend(group)) else "cpu")
