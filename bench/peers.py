#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# peers.py - compares direct quantization with pi-quant (PyPI: pypiquant), alternating in one
# process.
#
#   python3 -m venv peers && peers/bin/pip install numpy pypiquant
#   peers/bin/python bench/peers.py build/release/src/libdeltawire.so
#
# Both are given the same x and one thread. Ours has a scale per group of 64 values and a digest of
# the payload; pi-quant has one scale per tensor, which its encode searches for here, as a caller
# must. "decode+read" is a decode followed by one loop over y, as in a program that uses y:
# deltawire writes large tensors past the caches. Figures are GB/s of x, medians over the rounds;
# the ratio is the median of the ratios of each round, so that a changing clock favours neither.
import argparse
import ctypes
import glob
import importlib.util
import os
import statistics
import sys
import time

import numpy

DTYPES = {"f32": (1, 0, 4), "bf16": (3, 1, 2)}  # dw_dtype, piquant_dtype_t, bytes
UINT4 = 3
NEAREST, SET = 0, 0


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("dtype", ctypes.c_int),
        *((name, ctypes.c_uint32) for name in "ntc"),
        ("stride_n", ctypes.c_int64),
        ("stride_t", ctypes.c_int64),
    ]


def address(array):
    return ctypes.c_void_p(array.ctypes.data)


class Deltawire:
    """direct:bits=4 with the library's own defaults."""

    CONFIG = b"direct:bits=4,group=64"

    def __init__(self, path, x, y, dtype):
        self.library = library = ctypes.CDLL(path)
        library.dw_tensor_3d.restype = Tensor
        library.dw_tensor_3d.argtypes = [ctypes.c_void_p, ctypes.c_int, *3 * [ctypes.c_uint32]]
        shape = (1, x.size // 1024, 1024)
        self.x, self.y = (
            library.dw_tensor_3d(t.ctypes.data, DTYPES[dtype][0], *shape) for t in (x, y)
        )
        self.encoder, self.decoder = ctypes.c_void_p(), ctypes.c_void_p()
        config = ctypes.create_string_buffer(1024)  # a dw_config of a later version
        size = ctypes.c_size_t(1024)
        self.expect(library.dw_config_parse_sized(config, size, self.CONFIG, None))
        for name, end in (("encoder", self.encoder), ("decoder", self.decoder)):
            create = getattr(library, f"dw_{name}_create")
            self.expect(create(ctypes.byref(end), config, None, None))
        self.frame = numpy.empty(x.nbytes + 4096, numpy.uint8)
        self.length = ctypes.c_size_t()

    def expect(self, status):
        if status != 0:
            self.library.dw_status_string.restype = ctypes.c_char_p
            sys.exit(f"deltawire: {self.library.dw_status_string(status).decode()}")

    def encode(self):
        frame, length = address(self.frame), ctypes.byref(self.length)
        room = ctypes.c_size_t(self.frame.nbytes)
        x = ctypes.byref(self.x)
        self.expect(self.library.dw_encode(self.encoder, None, x, None, frame, room, length))

    def decode(self):
        y, nothing = ctypes.byref(self.y), ctypes.c_size_t(0)
        frame, length = address(self.frame), self.length
        self.expect(
            self.library.dw_decode(self.decoder, frame, length, y, None, None, nothing, None)
        )


class PiQuant:
    """uint4, a scale and a zero point per tensor."""

    def __init__(self, x, y, dtype):
        place = importlib.util.find_spec("piquant")
        if place is None:
            sys.exit("piquant is missing: pip install pypiquant")
        names = glob.glob(os.path.join(os.path.dirname(place.origin), "*piquant.so"))
        self.library = library = ctypes.CDLL(names[0])
        library.piquant_context_create.restype = ctypes.c_void_p
        self.context = ctypes.c_void_p(library.piquant_context_create(ctypes.c_size_t(1)))
        self.search = {
            "f32": library.piquant_compute_quant_params_float32,
            "bf16": library.piquant_compute_quant_params_bfloat16,
        }[dtype]
        self.dtype, self.n = DTYPES[dtype][1], ctypes.c_size_t(x.size)
        self.x, self.y = address(x), address(y)
        self.frame = numpy.empty(x.size // 2 + 64, numpy.uint8)
        self.scale, self.zero = ctypes.c_float(), ctypes.c_int64()

    def encode(self):
        scale, zero = ctypes.byref(self.scale), ctypes.byref(self.zero)
        self.search(self.context, self.x, self.n, UINT4, scale, zero)
        frame, to = address(self.frame), (self.n, self.scale, self.zero, NEAREST)
        self.library.piquant_quantize(self.context, self.x, self.dtype, frame, UINT4, *to)

    def decode(self):
        frame, how = address(self.frame), (self.n, self.scale, self.zero, SET)
        self.library.piquant_dequantize(self.context, frame, UINT4, self.y, self.dtype, *how)


def seconds(call):
    before = time.perf_counter()
    call()
    return time.perf_counter() - before


def aligned(like):
    """An array of zeros that is aligned to a cache line, as tensors of PyTorch are."""
    room = numpy.zeros(like.nbytes + 64, numpy.uint8)
    first = -room.ctypes.data % 64
    return room[first : first + like.nbytes].view(like.dtype)


def values(dtype, nbytes, rng):
    """Normal values of the dtype, as an array of its bytes' width."""
    x = rng.standard_normal(nbytes // DTYPES[dtype][2], numpy.float32)
    return x if dtype == "f32" else (x.view(numpy.uint32) >> 16).astype(numpy.uint16)


def compare(library, dtype, nbytes, rounds):
    x = values(dtype, nbytes, numpy.random.default_rng(1))
    y = [aligned(x), aligned(x)]
    peers = [Deltawire(library, x, y[0], dtype), PiQuant(x, y[1], dtype)]
    measured = {}

    def decode_and_read(i):
        peers[i].decode()
        y[i].view(numpy.int32).max()

    for turn in range(rounds + 2):
        for i in (0, 1) if turn % 2 else (1, 0):
            for what, call in (
                ("encode", peers[i].encode),
                ("decode", peers[i].decode),
                ("decode+read", lambda: decode_and_read(i)),
            ):
                took = seconds(call)
                if turn >= 2:  # in the first two, pages and caches are cold
                    measured.setdefault(what, ([], []))[i].append(took)
    for i in (0, 1):  # both must have written a result
        error = numpy.abs(as_floats(y[i], dtype) - as_floats(x, dtype)).max()
        if not error < 1:
            sys.exit(f"peer {i} does not decode what it encoded: off by {error}")
    for what, (ours, theirs) in measured.items():
        ratio = statistics.median(b / a for a, b in zip(ours, theirs))
        speeds = [nbytes / statistics.median(times) / 1e9 for times in (ours, theirs)]
        case = f"{dtype:5} {nbytes >> 20:4} MiB  {what:12}"
        print(f"{case} {speeds[0]:7.2f} {speeds[1]:9.2f} {ratio:7.2f}")


def as_floats(array, dtype):
    return array if dtype == "f32" else (array.astype(numpy.uint32) << 16).view(numpy.float32)


def main():
    parser = argparse.ArgumentParser(description="direct:bits=4 beside pi-quant, GB/s of x")
    parser.add_argument("library", help="libdeltawire.so of an optimized build")
    parser.add_argument("--mib", type=int, nargs="+", default=[1, 16, 256])
    parser.add_argument("--rounds", type=int, default=41)
    options = parser.parse_args()
    print(f"{'dtype':5} {'x':>8}  {'':12} {'ours':>7} {'pi-quant':>9} {'ratio':>7}")
    for dtype in DTYPES:
        for mib in options.mib:
            compare(options.library, dtype, mib << 20, options.rounds)


if __name__ == "__main__":
    main()
