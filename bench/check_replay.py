#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# check_replay.py - compares the figures of replay with the same figures computed in another way,
# and checks its errors for files that are not records.
"""check_replay.py REPLAY"""

import json
import math
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

REPLAY = sys.argv.pop(1)
T, C = 3, 40
# Header, parameters and one entry, docs/format.md.
FRAME_RAW, FRAME_DELTA = 144, 176


def f32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def bf16(value):
    """The nearest binary32 whose lower half is zero, ties to even."""
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return struct.unpack("<f", struct.pack("<I", (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16))[0]


def head(magic=b"DW-SENT\0", version=1, direction=1, tokens=T, channels=C):
    return magic + struct.pack("<6I", version, direction, 7, tokens, channels, 2)


def tensor(step, sample, values):
    return struct.pack("<IIQ", step, 0, sample) + struct.pack(f"<{len(values)}f", *values)


def wave(sample, visit):
    """Values without a pattern that favours a codec; visits of a sample differ a little, samples
    differ much."""
    return [
        f32(math.sin(0.7 * i + sample % 1009) * (1 + i % 11) + 0.05 * visit * math.cos(1.3 * i))
        for i in range(T * C)
    ]


# Samples alternate. Their ids are not sorted, and some agree in their lower half or in all bits but
# one.
FAR = (1 << 63) + 5
ORDER = [(FAR, 0), (5, 0), (FAR, 1), (6, 0), (5, 1), (5, 2), (6, 1), (FAR, 2)]


def relative(parts, wholes):
    return math.sqrt(math.fsum(p * p for p in parts) / math.fsum(w * w for w in wholes))


class Replay(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="deltawire-replay-")
        self.record = pathlib.Path(self.folder.name) / "forward-7.record"
        self.json = pathlib.Path(self.folder.name) / "out.json"
        self.write(
            head() + b"".join(tensor(1, sample, wave(sample, visit)) for sample, visit in ORDER)
        )

    def tearDown(self):
        self.folder.cleanup()

    def write(self, content):
        self.record.write_bytes(content)

    def replay(self, *codecs, code=0):
        done = subprocess.run(
            [REPLAY, "--json", str(self.json), str(self.record), *codecs],
            capture_output=True,
            text=True,
        )
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def figures(self, *codecs):
        done = self.replay(*codecs)
        result = json.loads(self.json.read_text())
        self.assertEqual(
            [line.split()[0] for line in done.stdout.splitlines()[-len(codecs) :]],
            [codec["codec"] for codec in result["codecs"]],
        )
        return result

    def assert_close(self, value, expected):
        self.assertLess(abs(value / expected - 1), 1e-12)

    def test_an_exact_codec_loses_nothing(self):
        result = self.figures("raw:f32")
        self.assertEqual(
            (
                result["direction"],
                result["rank"],
                result["tokens"],
                result["channels"],
                result["tensors"],
                result["samples"],
                result["cut"],
            ),
            ("forward", 7, T, C, 8, 3, False),
        )
        codec = result["codecs"][0]
        for part, tensors in ("first", 3), ("later", 5), ("all", 8):
            self.assertEqual((codec[part]["tensors"], codec[part]["error"]), (tensors, 0))
            self.assertEqual(codec[part]["frame_bytes"], tensors * (FRAME_RAW + 4 * T * C))
        before, change, x = {}, [], []
        for sample, visit in ORDER:
            values = wave(sample, visit)
            if sample in before:
                x += values
                change += [a - b for a, b in zip(values, before[sample])]
            before[sample] = values
        self.assert_close(codec["change"], relative(change, x))

    def test_every_element_counts(self):
        codec = self.figures("raw:bf16")["codecs"][0]
        parts = {"first": ([], []), "later": ([], []), "all": ([], [])}
        before, change = {}, []
        for sample, visit in ORDER:
            x = wave(sample, visit)
            y = [bf16(value) for value in x]
            if sample in before:
                change += [a - b for a, b in zip(x, before[sample])]
            for part in "later" if sample in before else "first", "all":
                parts[part][0].extend(a - b for a, b in zip(x, y))
                parts[part][1].extend(x)
            before[sample] = y
        for part, (errors, wholes) in parts.items():
            self.assert_close(codec[part]["error"], relative(errors, wholes))
        self.assert_close(codec["change"], relative(change, parts["later"][1]))

    def test_later_visits_are_deltas_from_what_arrived(self):
        exact, coarse, direct = self.figures(
            "delta:bits=2,key=f32,group=row,choose=never", "delta:bits=2,key=2", "direct:bits=2"
        )["codecs"]
        self.assertEqual(exact["first"]["error"], 0)
        self.assertEqual(exact["first"]["frame_bytes"], 3 * (FRAME_DELTA + 4 * T * C))
        # A tile: 3 scales, 3 x 64 codes of 2 bits.
        self.assertEqual(exact["later"]["frame_bytes"], 5 * (FRAME_DELTA + 16 + 48))
        self.assertLess(exact["later"]["error"], exact["change"])
        self.assertGreater(coarse["change"], exact["change"])
        self.assertAlmostEqual(direct["first"]["error"], direct["later"]["error"], delta=0.1)

    def test_what_is_not_finite_is_left_out(self):
        values = wave(5, 0)
        values[3], values[50] = math.nan, math.inf
        self.write(head() + tensor(1, 5, values) + tensor(2, 5, values))
        done = self.replay("raw:f32")
        self.assertIn("left out: 4 elements", done.stdout)
        codec = json.loads(self.json.read_text())["codecs"][0]
        self.assertEqual(
            (codec["first"]["left_out"], codec["later"]["error"], codec["change"]), (2, 0, 0)
        )
        self.replay("direct:bits=8")
        codec = json.loads(self.json.read_text())["codecs"][0]  # two rows of 40 arrive as NaN
        self.assertEqual(codec["later"]["left_out"], 80)
        self.assertLess(codec["later"]["error"], 0.01)

    def test_a_record_that_was_cut_is_used_as_far_as_it_goes(self):
        self.write(self.record.read_bytes()[:-1])
        result = self.figures("raw:f32")
        self.assertEqual((result["tensors"], result["cut"]), (7, True))

    def test_says_what_is_no_record(self):
        one = tensor(1, 5, wave(5, 0))
        for content, word in [
            (b"", "too short"),
            (head()[:31], "too short"),
            (head(magic=b"DW-PART\0") + one, "no record"),
            (head(version=2) + one, "another version"),
            (head(), "no whole tensor"),
            (head() + one[:-1], "no whole tensor"),
            (head(tokens=0) + one, "empty"),
            (head(tokens=1 << 31, channels=1 << 31) + one, "4 GiB"),
        ]:
            self.write(content)
            done = self.replay("raw:f32", code=1)
            self.assertIn(word, done.stderr)
            self.assertIn(str(self.record), done.stderr)
            self.assertEqual(len(done.stderr.splitlines()), 1)

    def test_says_what_cannot_be_done(self):
        self.assertIn("dalta", self.replay("raw:f32", "dalta", code=2).stderr)
        for words in [], [str(self.record)]:
            self.assertEqual(subprocess.run([REPLAY, *words], capture_output=True).returncode, 2)
        self.json = pathlib.Path("/no/such/folder/out.json")
        self.assertIn("/no/such/folder/out.json", self.replay("raw:f32", code=1).stderr)
        self.json = pathlib.Path("/dev/full")
        self.assertIn("No space left", self.replay("raw:f32", code=1).stderr)
        self.record = pathlib.Path("/no/such/record")
        self.assertIn("/no/such/record", self.replay("raw:f32", code=1).stderr)


if __name__ == "__main__":
    unittest.main()
