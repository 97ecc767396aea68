#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# projection.py - what recorded tensors lose by a projection, alone and in front of codecs.
"""usage: projection.py RECORD [--rank R ...] [--codec TEXT ...]

RECORD is a file that `deltawire train --record` wrote. The projection is fitted to the first visits
of the first 64 samples. Errors are |x - y| / |x|, root mean square over all later visits of the
first 96 samples; bits are those of whole frames, per value of x, in later visits. A group is the
largest of 64, 32 and 16 values that divides the number of channels sent. The Python package that is
imported is used, with NumPy."""

import argparse
import pathlib
import struct
import sys

import deltawire
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "bench"))
from markdown_table import markdown  # noqa: E402


def read(path, most):
    """The tensors of a record (trainer/record.h), of its first `most` samples: (whether these are
    gradients, [(sample, first visit, (T, C))] in order)."""
    data = np.memmap(path, np.uint8, "r")
    magic, version, direction, _, tokens, channels, _ = struct.unpack("<8s6I", bytes(data[:32]))
    if magic != b"DW-SENT\0" or version != 1:
        raise SystemExit(f"projection.py: {path} is no record")
    each = 16 + 4 * tokens * channels
    seen, visits = set(), []
    for at in range(32, len(data) - each + 1, each):
        (sample,) = struct.unpack("<Q", bytes(data[at + 8 : at + 16]))
        if sample in seen or len(seen) < most:
            tensor = data[at + 16 : at + each].view(np.float32).reshape(tokens, channels)
            visits.append((sample, sample not in seen, tensor))
            seen.add(sample)
    return direction == 2, visits


FITTED = 64  # first visits


class Path:
    """Sends samples through a projection (None: as they are) and a codec (None: as they are)."""

    def __init__(self, projection, codec, channels):
        self.projection = projection
        self.squares = self.bytes = self.values = self.count = 0
        self.ends = None
        if codec:
            width = projection.shape[1] if projection else channels
            group = next((g for g in (64, 32, 16) if width % g == 0), 16)
            text = codec + (":" if ":" not in codec else ",") + f"group={group}"
            text += f",project={projection.digest}" if projection else ""
            self.ends = deltawire.Encoder(text), deltawire.Decoder(text)

    def send(self, sample, is_first, x):
        x = np.ascontiguousarray(x[None])
        z = self.projection.project(x) if self.projection else x
        size = memoryview(z).nbytes if isinstance(z, np.ndarray) else z.nbytes
        if self.ends:
            encoder, decoder = self.ends
            frame = encoder.encode(z, [sample])
            size, decoded = len(frame), decoder.decode(frame)
            encoder.take_reply(decoded.reply)
            z = decoded.tensor
        y = self.projection.unproject(z) if self.projection else z
        y = y if isinstance(y, np.ndarray) else np.from_dlpack(y)
        if not is_first:
            self.squares += float(np.sum((x - y) ** 2)) / float(np.sum(x**2))
            self.bytes += size
            self.values += x.size
            self.count += 1

    def row(self):
        return [
            f"{8 * self.bytes / self.values:.2f}",
            f"{(self.squares / self.count) ** 0.5:.3f}",
        ]


def compared(visits, ranks, codecs):
    """The rows of a table: for each number of channels the bits and the error with every codec."""
    first = [x for _, is_first, x in visits if is_first][:FITTED]
    stack = np.ascontiguousarray(np.stack(first))
    channels, rows = stack.shape[2], []
    for rank in ranks:
        projection = deltawire.Projection.fit(stack, rank) if rank < channels else None
        paths = [Path(projection, codec, channels) for codec in (None, *codecs)]
        for path in paths:
            for visit in visits:
                path.send(*visit)
        rows.append([str(rank), *(cell for path in paths for cell in path.row())])
    return rows


def main():
    parser = argparse.ArgumentParser(prog="projection.py", description=__doc__.splitlines()[0])
    parser.add_argument("record")
    parser.add_argument(
        "--rank", type=int, action="append", metavar="R", help="channels that are sent, C: all"
    )
    parser.add_argument("--codec", action="append", metavar="TEXT", help="a codec, without group=")
    parser.add_argument("--samples", type=int, default=96, help="how many samples (default: 96)")
    options = parser.parse_args()
    codecs = options.codec or ["direct:bits=2", "direct:bits=4", "direct:bits=8", "delta:bits=2"]
    _, visits = read(options.record, options.samples)
    ranks = options.rank or [128, 96, 64, 32, 16]
    head = ["R", "bits, f32", "error"]
    head += [word for codec in codecs for word in (f"bits, `{codec}`", "error")]
    print(markdown(head, compared(visits, ranks, codecs)))


if __name__ == "__main__":
    main()
