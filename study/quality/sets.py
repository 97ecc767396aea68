#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# sets.py - makes synthetic sets of tensors, in which each sample comes several times, a little
# changed each time, and writes them as files of records.
"""usage: sets.py KIND FILE [SAMPLES VISITS TOKENS CHANNELS]

Over the visits v = 0, 1, ... of a sample, every element follows an autoregressive process of first
order, AR(1), independently of all other elements: g[0] has the standard normal distribution, and
g[v + 1] = a g[v] + sqrt(1 - a^2) e, where each e is drawn anew from the same distribution. So every
visit has the same distribution, and the change between two visits is CHANGE times as large as the
values: |x[v + 1] - x[v]| / |x[v]| is close to sqrt(2 (1 - a)), which is CHANGE. The tensor x of a
visit depends on the kind of the set:

| kind     | x                                                                                |
|----------|----------------------------------------------------------------------------------|
| gaussian | g                                                                                |
| laplace  | g sqrt(w), where w has an exponential distribution and is drawn once for each    |
|          | element. Values and changes then have a Laplace distribution                     |
| outliers | g, but one channel in a hundred (rounded up, evenly spread) is TIMES as large    |
"""

import struct
import sys

import numpy as np

KINDS = ("gaussian", "laplace", "outliers")
CHANGE = 0.3
TIMES = 20
SEED = 20220614


def walk(rng, kind, visits, tokens, channels):
    """Yields the tensors of all visits of one sample, each (tokens, channels) in binary32. rng is
    the generator of their random numbers."""
    shape = (tokens, channels)
    a = 1 - CHANGE**2 / 2
    factor = np.ones(shape, np.float32)
    if kind == "laplace":
        factor = np.sqrt(rng.standard_exponential(shape, np.float32))
    elif kind == "outliers":
        count = -(-channels // 100)
        factor[:, channels // (2 * count) :: channels // count] = TIMES
    g = rng.standard_normal(shape, np.float32)
    for _ in range(visits):
        yield (g * factor).astype("<f4")
        g = np.float32(a) * g + np.float32(np.sqrt(1 - a * a)) * rng.standard_normal(
            shape, np.float32
        )


def write(path, kind, samples, visits, tokens, channels):
    """Writes a set of one kind to path, in the format that trainer/record.h describes: the first
    visits of all samples, then the second visits of all samples, and so on."""
    if kind not in KINDS:
        raise ValueError(f"no kind '{kind}': {', '.join(KINDS)}")
    head = struct.pack("<8s6I", b"DW-SENT\0", 1, 1, 0, tokens, channels, samples)
    walks = []
    for sample in range(samples):
        rng = np.random.default_rng([SEED, KINDS.index(kind), sample])
        walks.append(walk(rng, kind, visits, tokens, channels))
    with open(path, "wb") as file:
        file.write(head)
        for visit in range(visits):
            for sample in range(samples):
                file.write(struct.pack("<IIQ", visit + 1, 0, sample))
                file.write(next(walks[sample]).tobytes())


if __name__ == "__main__":
    write(sys.argv[2], sys.argv[1], *(map(int, sys.argv[3:]) or (16, 5, 128, 768)))
