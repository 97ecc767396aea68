# SPDX-License-Identifier: Apache-2.0
# device.py - Device: a GPU; and Stream: what one encoder or decoder uses of it.
from __future__ import annotations

import os
import re
import threading
from typing import Any, Optional

from deltawire._library import core, ffi
from deltawire.errors import check, new_why, refuse

PLACES = {"device": core.DW_CUDA_DEVICE, "pinned": core.DW_CUDA_PINNED}


def device_number(device: Any) -> Optional[int]:
    """Returns the number of a GPU, or None for the CPU.

    device: None, "cpu", "cuda" (number 0), "cuda:1", or an object with such a text, like a
        torch.device. Errors: ARGUMENT."""
    text = "cpu" if device is None else str(device)
    if text == "cpu":
        return None
    found = re.fullmatch(r"cuda(?::([0-9]{1,9}))?", text)
    if not found:
        refuse(f'device must be "cpu", "cuda", or "cuda:" and a number, not {device!r}')
    return int(found[1] or 0)


class Device:
    """A GPU. It is opened once for all encoders and decoders of this process, and stays open:
    objects that the garbage collector frees together are freed in any order."""

    _all: "dict[int, Device]" = {}
    _lock = threading.Lock()

    def __init__(self, number: int) -> None:
        made, why = ffi.new("dw_cuda **"), new_why()
        check(core.dw_cuda_open(made, number, why), why)
        self.number, self.handle = number, made[0]

    @classmethod
    def get(cls, number: int) -> "Device":
        """Errors: UNSUPPORTED (no such GPU, no driver, or a library without kernels),
        NO_MEMORY."""
        with cls._lock:
            if number not in cls._all:
                cls._all[number] = cls(number)
            return cls._all[number]

    @classmethod
    def _forked(cls) -> None:
        cls._all, cls._lock = {}, threading.Lock()


os.register_at_fork(after_in_child=Device._forked)


class Stream:
    """A stream of a GPU, and pinned memory in which a frame is exchanged with it.

    call: the dw_device_call * with both. number: that of the GPU. address: the stream's, for
    DLPack. why: a dw_why * for errors.
    """

    def __init__(self, number: int) -> None:
        self._device = Device.get(number)
        self.number = number
        self.why = new_why()
        made = ffi.new("void **")
        check(core.dw_cuda_stream_create(self._device.handle, made, self.why), self.why)
        self.address = int(ffi.cast("uintptr_t", made[0]))
        self.call = ffi.new("dw_device_call *", (self._device.handle, made[0], ffi.NULL, 0))
        self._cap = 0

    @property
    def cuda(self) -> Any:
        return self._device.handle

    def reserve(self, size: int) -> Any:
        """Provides size bytes of pinned memory for the next call, and returns `call`. What the
        memory held is lost.

        Errors: NO_MEMORY."""
        call = self.call
        if size > self._cap:
            cap = size + size // 2  # frames differ a little in size
            made = ffi.new("void **")
            check(core.dw_cuda_pin(self.cuda, cap, made, self.why), self.why)
            core.dw_cuda_unpin(self.cuda, call.room)
            call.room, self._cap = made[0], cap
        call.cap = size
        return call

    def close(self) -> None:
        """Must be called once, after the encoder or decoder has been destroyed."""
        core.dw_cuda_unpin(self.cuda, self.call.room)
        core.dw_cuda_stream_destroy(self.cuda, self.call.stream)
