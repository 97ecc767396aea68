#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# python.py - the overhead of the Python package: encode, decode and feedback, compared with C.
"""usage: python.py PYTHON_PAIR [--rounds N] [--config TEXT]

The tensor is 4 x 128 x 768 bf16. PYTHON_PAIR is the program of bench/python_pair.c. The package
that Python imports is measured, also with torch tensors if torch can be imported. C and Python take
turns with the same number of rounds, so that other load of the machine affects both. Of each turn
the fastest round counts; the medians over the turns are compared."""

import argparse
import array
import random
import statistics
import subprocess
import tempfile
import time

import deltawire

SHAPE = (4, 128, 768)


def values():
    """Returns normally distributed bf16 values as bytes."""
    rng = random.Random(1)
    floats = array.array("f", [rng.gauss(0, 1) for _ in range(SHAPE[0] * SHAPE[1] * SHAPE[2])])
    halves = memoryview(floats).cast("B").cast("H")
    return array.array("H", halves.tolist()[1::2]).tobytes()  # upper halves, on little-endian


class Ours:
    """x and y are deltawire.Tensor."""

    def __init__(self, raw, text):
        self.encoder, self.decoder = deltawire.Encoder(text), deltawire.Decoder(text)
        self.x, self.y = deltawire.Tensor(SHAPE, "bf16"), deltawire.Tensor(SHAPE, "bf16")
        self.x.memoryview().cast("B")[:] = raw
        self.ids = [0, 1, 2, 3]

    def once(self):
        frame = self.encoder.encode(self.x, self.ids)
        self.encoder.take_reply(self.decoder.decode(frame, self.y).reply)


class Room(Ours):
    """The frame is written into the same buffer each time, too."""

    def __init__(self, raw, text):
        super().__init__(raw, text)
        self.room = bytearray(self.encoder.bound(self.x))

    def once(self):
        frame = self.encoder.encode(self.x, self.ids, out=self.room)
        self.encoder.take_reply(self.decoder.decode(frame, self.y).reply)


class New(Ours):
    """Each y is a new tensor."""

    def once(self):
        frame = self.encoder.encode(self.x, self.ids)
        self.encoder.take_reply(self.decoder.decode(frame).reply)


class Torch(Room):
    """x and y are torch.Tensor."""

    def __init__(self, raw, text):
        import torch

        super().__init__(raw, text)
        self.x = torch.from_dlpack(self.x).clone()
        self.y = torch.empty_like(self.x)


def turn(pair, rounds):
    fastest = 1 << 62
    for _ in range(rounds):
        start = time.perf_counter_ns()
        pair.once()
        fastest = min(fastest, time.perf_counter_ns() - start)
    return fastest


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--config", default="delta:bits=4")
    given = parser.parse_args()
    raw = values()
    pairs = {
        "deltawire.Tensor, out= for both": Room(raw, given.config),
        "deltawire.Tensor, out= for y": Ours(raw, given.config),
        "deltawire.Tensor, new ones": New(raw, given.config),
    }
    try:
        pairs["torch.Tensor, out= for both"] = Torch(raw, given.config)
    except ImportError:
        print("torch cannot be imported: not measured")
    times = {name: [] for name in ("C", *pairs)}
    with tempfile.NamedTemporaryFile() as file:
        file.write(raw)
        file.flush()
        program = subprocess.Popen(
            [given.program, given.config, file.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        with program:
            for _ in range(given.turns):
                program.stdin.write(f"{given.rounds}\n")
                program.stdin.flush()
                times["C"].append(int(program.stdout.readline().split()[0]))
                for name, pair in pairs.items():
                    times[name].append(turn(pair, given.rounds))
            program.stdin.close()
    print(f"encode + decode + feedback of 4 x 128 x 768 bf16, {given.config}:")
    base = statistics.median(times["C"])
    for name, took in times.items():
        middle = statistics.median(took)
        print(f"  {name:40} {middle / 1000:8.1f} us  {middle / base:5.3f} times C")


if __name__ == "__main__":
    main()
