# SPDX-License-Identifier: Apache-2.0
# fake_gpu.py - the GPU of tests/cuda, which needs no hardware, and tensors in its memory.
import ctypes
import gc
import pathlib

import cffi
import numpy
from rig import BFLOAT, CUDA, FLOAT, Exporter

from deltawire._library import core
from deltawire.device import Device

MANAGED = 13
HEADER = pathlib.Path(__file__).parent.parent / "cuda" / "fake_cuda.h"

ffi = cffi.FFI()
_text = HEADER.read_text()
_struct = _text[_text.index("typedef struct fake_cuda {") : _text.index("#endif")]
ffi.cdef(_struct)
# The same library that libdeltawire loads, so that both see the same device.
library = ffi.dlopen("libcuda.so.1")
state = library.fake_cuda_get()


class Array:
    """A contiguous tensor in the memory of the GPU, which the host cannot access.

    like: a numpy array whose shape and values it gets. bfloat: its elements are bf16, given as
    uint16."""

    def __init__(self, like, bfloat=False):
        self.like, self.bfloat = like, bfloat
        self.memory = state.allocate(like.nbytes)
        self.number, self.flags, self.streams, self.kept = 0, 0, [], None
        self.managed = False  # whether it claims to be in managed memory
        self.write(like)

    def __del__(self):
        state.release(self.memory)

    def write(self, values):
        state.touch(True)
        ffi.memmove(self.memory, numpy.ascontiguousarray(values).tobytes(), values.nbytes)
        state.touch(False)

    def read(self):
        made = numpy.empty_like(self.like, order="C")
        state.touch(True)
        ctypes.memmove(made.ctypes.data, int(ffi.cast("uintptr_t", self.memory)), made.nbytes)
        state.touch(False)
        return made

    def __dlpack__(self, *, stream=None, max_version=None):
        self.streams.append(stream)
        address = int(ffi.cast("uintptr_t", self.memory))
        exporter = Exporter(
            self.like,
            code=BFLOAT if self.bfloat else FLOAT,
            device=self.__dlpack_device__(),
            flags=self.flags,
        )
        exporter.address = address
        self.kept = exporter
        return exporter.__dlpack__(max_version=max_version)

    def __dlpack_device__(self):
        return MANAGED if self.managed else CUDA, self.number


def leftovers():
    """How many blocks of memory and streams exist on the GPU."""
    gc.collect()
    return state.blocks, state.streams


def close_device():
    """Closes the GPU, which the package does not, so that the next object opens it again."""
    gc.collect()
    device = Device._all.pop(0, None)
    if device:
        core.dw_cuda_close(device.handle)
