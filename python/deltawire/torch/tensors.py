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
    """Returns a copy of the elements, without compression."""
    whole = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    return bytes(as_bytes(whole))


def from_exact(dtype: int, shape: "tuple[int, ...]", data: memoryview) -> Optional[torch.Tensor]:
    """Makes a tensor of such a copy. Returns None if dtype, shape and size do not match."""
    kind = OF_NUMBER.get(dtype)
    if kind is None or math.prod(shape) * kind.itemsize != len(data):
        return None
    made = torch.empty(shape, dtype=kind, device="cpu")
    if len(data):
        as_bytes(made)[:] = data
    return made


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


def of_buffer(data: Any) -> torch.Tensor:
    """Returns a uint8 tensor that shares and keeps the memory of a writable buffer."""
    return torch.frombuffer(data, dtype=torch.uint8)


def device_for(group: Any) -> torch.device:
    """The device on which the backend of a process group needs the tensors that it sends."""
    return torch.device("cuda" if "nccl" in str(dist.get_backend(group)) else "cpu")
