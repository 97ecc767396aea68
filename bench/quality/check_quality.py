#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# check_quality.py - tests what the program quality measures: against theory, and for baselines
# against their arithmetic in NumPy. Also tests frontier.py, sets.py and quality.py.
"""usage: check_quality.py QUALITY [BUILD]. QUALITY is the program. With BUILD, a build folder that
has the trainer, quality.py is run, too, with tiny tensors."""

import json
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile
import unittest

import numpy as np

import frontier
import sets

HERE = pathlib.Path(__file__).resolve().parent
QUALITY = sys.argv[1]
BUILD = sys.argv[2] if len(sys.argv) > 2 else None
# The shape of the test's set. A tensor is just as large as one block of the entropy coder.
SAMPLES, VISITS, T, C = 2, 3, 64, 512
# A frame of one sample has at least so many bytes in front of its payload (docs/format.md).
HEAD = 144


def read(path):
    """Reads a file of recorded tensors. Returns its [(sample, x)] in order, each x (T, C)."""
    data = path.read_bytes()
    tokens, channels = np.frombuffer(data[20:28], "<u4")
    each = 16 + 4 * int(tokens) * int(channels)
    found = []
    for at in range(32, len(data), each):
        sample = int(np.frombuffer(data[at + 8 : at + 16], "<u8")[0])
        values = np.frombuffer(data[at + 16 : at + each], "<f4").reshape(tokens, channels)
        found.append((sample, values))
    return found


def run(*words, code=0):
    """Runs the program quality with these arguments, and expects this exit code."""
    done = subprocess.run([QUALITY, *map(str, words)], capture_output=True, text=True)
    assert done.returncode == code, (words, done.returncode, done.stdout[-800:], done.stderr)
    return done


def rows_of(path, *words):
    """Measures the record in path; words are further arguments. Returns {codec: row}, and the whole
    of what the program wrote as JSON."""
    with tempfile.TemporaryDirectory(prefix="deltawire-quality-") as folder:
        out = pathlib.Path(folder) / "out.json"
        run("--json", out, *words, path)
        whole = json.loads(out.read_text())
    return {row["codec"]: row for row in whole["rows"]}, whole


# The published arithmetic of the baselines. Each function takes x (T, C) and the settings, and
# returns what arrives, y, and the bits per value. They were written without looking at the C code.


def acsgd(x, bits, l2=False):
    scale = 2 * np.sqrt(np.mean(x.astype(np.float64) ** 2, 0)) if l2 else np.abs(x).max(0)
    scale = scale.astype(np.float16).astype(np.float32)
    half = 2 ** (bits - 1)
    code = np.clip(np.rint(x / (scale + 1e-6) * half), -half, half - 1)
    return code / half * scale, bits + 16 / len(x)


def rowwise(x, bits):
    least, last = x.min(1, keepdims=True), 2**bits - 1
    if bits < 8:
        least = least.astype(np.float16).astype(np.float32)
    scale = (x.max(1, keepdims=True) - least) / last
    if bits < 8:
        scale = scale.astype(np.float16).astype(np.float32)
    code = np.clip(np.rint((x - least) / scale), 0, last)
    return code * scale + least, bits + (32 if bits < 8 else 64) / x.shape[1]


def dynamic_table():
    table = [0.0, 1.0]
    for i in range(7):
        edges = np.linspace(0.1, 1, 2**i + 1)
        middles = (edges[:-1] + edges[1:]) / 2 * 10.0 ** (i - 6)
        table += [*middles, *-middles]
    return table


def normal_table():
    """Returns the entries of NormalFloat4: the quantiles that the appendix of QLoRA defines."""
    quantile = statistics.NormalDist().inv_cdf
    offset = 0.9677083
    above = [quantile(offset + (0.5 - offset) * i / 8) for i in range(8)]
    below = [-quantile(offset + (0.5 - offset) * i / 7) for i in range(7)]
    return [value / max(above) for value in [*above, 0, *below]]


TABLES = {
    "linear": [k / 127 for k in range(-127, 128)],
    "dynamic": dynamic_table(),
    "normal": normal_table(),
}


def blockwise(x, table, block):
    blocks = x.reshape(-1, block).astype(np.float64)
    scale = np.abs(blocks).max(1, keepdims=True)
    entries = np.sort(TABLES[table])
    edges = (entries[1:] + entries[:-1]) / 2
    y = entries[np.searchsorted(edges, blocks / scale)] * scale
    return y.reshape(x.shape), (4 if table == "normal" else 8) + 32 / block


# {the program's name of a baseline with a setting: the function from x to (y, bits per value)}
PEERS = {
    **{f"acsgd:bits={bits}": lambda x, bits=bits: acsgd(x, bits) for bits in (1, 2, 4, 8)},
    **{f"acsgd:l2,bits={bits}": lambda x, bits=bits: acsgd(x, bits, True) for bits in (2, 4)},
    **{f"rowwise:bits={bits}": lambda x, bits=bits: rowwise(x, bits) for bits in (1, 2, 4, 7, 8)},
    **{
        f"blockwise:{table},block={block}": lambda x, table=table, block=block: blockwise(
            x, table, block
        )
        for table, block in (("linear", 64), ("dynamic", 256), ("normal", 64))
    },
}


def sent(record, peer, changes):
    """Returns the (bits, error) of all later visits in a record when a baseline, a value of PEERS,
    sends them: as they are, or with changes as differences from what arrived last."""
    last, errors, wholes, bits = {}, 0.0, 0.0, 0.0
    for sample, x in record:
        known = sample in last
        if changes and not known:
            last[sample] = x
            continue
        base = last[sample] if changes else 0
        y, bits = peer(x - base)
        y = y + base
        if known:
            errors += np.sum((y - x.astype(np.float64)) ** 2)
            wholes += np.sum(x.astype(np.float64) ** 2)
        last[sample] = y.astype(np.float32)
    return bits, math.sqrt(errors / wholes)


def entropy(codes):
    """Returns the entropy of an array of codes, in bits per code."""
    counts = np.unique(codes, return_counts=True)[1] / codes.size
    return float(-(counts * np.log2(counts)).sum())


class Quality(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="deltawire-quality-")
        cls.path = pathlib.Path(cls.folder.name) / "gaussian.record"
        sets.write(cls.path, "gaussian", SAMPLES, VISITS, T, C)
        cls.record = read(cls.path)
        cls.later = [x for _, x in cls.record[SAMPLES:]]
        cls.rows, cls.whole = rows_of(cls.path)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def close(self, value, expected, within):
        """Expects a value that differs by less than this part of the expected one."""
        self.assertLess(abs(value / expected - 1), within, (value, expected))

    def test_the_file_is_complete(self):
        known = {key: self.whole[key] for key in ("tokens", "channels", "samples", "direction")}
        self.assertEqual(
            known, {"tokens": T, "channels": C, "samples": SAMPLES, "direction": "forward"}
        )
        self.close(self.whole["change"], sets.CHANGE, 0.05)
        self.assertEqual(
            self.whole["left_out"] == "", any(codec.startswith("zfp") for codec in self.rows)
        )
        for codec, row in self.rows.items():
            for part, tensors in ("first", SAMPLES), ("later", SAMPLES * (VISITS - 1)):
                its = row[part]
                self.assertEqual((its["tensors"], its["not_finite"]), (tensors, 0), codec)
                for figure in ("bits", "error", "cosine", "bias", "bias_sigma", "gain"):
                    self.assertTrue(math.isfinite(its[figure]), (codec, figure))
                self.assertTrue(0 < its["bits"] <= 32.2 and its["error"] < 8, (codec, its))
            for way in ("encode_GBps", "decode_GBps"):
                self.assertGreater(row["later"][way], 0, codec)
            if codec.startswith("delta") or codec.startswith("changes"):
                self.assertTrue(row["state"], codec)
            else:
                self.assertFalse(row["state"], codec)

    def test_a_change_costs_less_than_the_tensor(self):
        """A codec that is given changes has an error that is smaller than with the tensors alone
        by about the factor by which changes are smaller."""
        for change, alone in (
            ("delta:bits=4,scale=signed", "direct:bits=4,scale=signed"),
            ("changes by rowwise:bits=4", "rowwise:bits=4"),
        ):
            ratio = self.rows[change]["later"]["error"] / self.rows[alone]["later"]["error"]
            self.close(ratio, sets.CHANGE, 0.15)

    def test_eight_bits_lose_what_a_uniform_error_does(self):
        """With 8 bits, a group has 127 levels on each side of zero. So errors have a uniform
        distribution over one level, and are never larger than half of one."""
        groups = np.concatenate([x.reshape(-1, 64) for x in self.later]).astype(np.float64)
        level = np.abs(groups).max(1) / 127
        whole = np.sum(groups**2)
        error = self.rows["direct:bits=8,scale=signed"]["later"]["error"]
        self.assertLess(error, math.sqrt(64 * np.sum((level / 2) ** 2) / whole))
        self.close(error, math.sqrt(64 * np.sum(level**2) / 12 / whole), 0.03)
        bits = self.rows["direct:bits=8,scale=signed"]["later"]["bits"]
        self.assertTrue(8.25 + 8 * HEAD / (T * C) <= bits <= 8.25 + 8 * 192 / (T * C), bits)

    def test_dither_has_its_variance_and_no_bias(self):
        for step in ("0.33", "1", "2"):
            its = self.rows[f"direct:form=step,step={step},rounding=dither,seed=1,entropy=rans"]
            its = its["later"]
            # An error is uniform over one step. The step is rounded to bf16, hence the 2 %.
            self.close(its["error"], float(step) / math.sqrt(12), 0.02)
            self.assertLess(abs(its["bias"]), 4 * its["bias_sigma"])
            self.assertLess(abs(its["gain"] - 1), 4 * its["gain_sigma"])
            self.close(its["bias_sigma"], its["error"] / math.sqrt(len(self.later) * T * C), 1e-6)

    def test_figures_agree_with_each_other(self):
        """|y|^2 follows from error and gain, and the cosine follows from |y| and gain. The gain of
        a coarse step is also computed here from the tensors."""
        for codec in "direct:bits=2,scale=signed", "direct:form=step,step=2.8,entropy=rans":
            its = self.rows[codec]["later"]
            y = math.sqrt(its["error"] ** 2 + 2 * its["gain"] - 1)
            self.close(its["cosine"], its["gain"] / y, 1e-9)
        lossy = self.rows["direct:form=step,step=2.8,entropy=rans"]["later"]
        y = [x * 0 for x in self.later]
        for to, x in zip(y, self.later):
            step = 2.8 * math.sqrt(np.mean(x.astype(np.float64) ** 2))
            to += np.rint(x / step) * np.float32(step)
        gain = sum(np.sum(a * b) for a, b in zip(y, self.later))
        gain /= sum(np.sum(x.astype(np.float64) ** 2) for x in self.later)
        self.close(lossy["gain"], gain, 0.02)

    def test_coded_bits_lie_just_above_the_entropy(self):
        """A frame takes the entropy of its codes, HEAD bytes, and besides these about 190 bytes for
        the tables and states of its block."""
        for step in ("0.22", "0.7", "1.4"):
            codes = [
                np.rint(x / (float(step) * math.sqrt(np.mean(x.astype(np.float64) ** 2))))
                for x in self.later
            ]
            least = np.mean([entropy(one) for one in codes]) + 8 * HEAD / (T * C)
            bits = self.rows[f"direct:form=step,step={step},entropy=rans"]["later"]["bits"]
            self.assertTrue(least - 0.01 < bits < least + 0.08, (step, least, bits))

    def test_baselines_are_the_published_ones(self):
        for codec, peer in PEERS.items():
            for changes in False, True:
                name = f"changes by {codec}" if changes else codec
                bits, error = sent(self.record, peer, changes)
                its = self.rows[name]["later"]
                self.assertAlmostEqual(its["bits"], bits, delta=1e-9, msg=name)
                self.assertLess(abs(its["error"] / error - 1), 2e-4, (name, its["error"], error))
            first = self.rows[f"changes by {codec}"]["first"]
            self.assertEqual((first["bits"], first["error"]), (32, 0))

    def test_zfp_keeps_its_tolerance_and_rate(self):
        if self.whole["left_out"]:
            self.skipTest(f"this build has no {self.whole['left_out']}")
        its = self.rows["zfp:tolerance=0.5"]["later"]
        self.assertTrue(0.01 < its["error"] <= 0.5, its)
        for rate in (2, 4):
            self.assertAlmostEqual(self.rows[f"zfp:rate={rate}"]["later"]["bits"], rate, delta=0.01)

    def test_rows_and_samples_can_be_chosen(self):
        rows, whole = rows_of(
            self.path, "--only", "acsgd:bits=4,int8", "--codec", "raw:bf16", "--samples", 1
        )
        names = {row["family"] for row in rows.values()}
        peers = {"AC-SGD's grid", "changes by AC-SGD's grid"}
        self.assertEqual(names, {"mx", "mx, rans", "delta, mx", *peers})
        self.assertEqual(whole["samples"], 1)
        rows, _ = rows_of(self.path, "--only", "raw", "--codec", "raw:bf16", "--samples", 1)
        self.assertEqual([row["later"]["tensors"] for row in rows.values()], [VISITS - 1])
        self.assertLess(rows["raw:bf16"]["later"]["error"], 2**-9)

    def test_says_what_is_wrong(self):
        self.assertIn("/no/such", run("/no/such", code=1).stderr)
        self.assertIn("dalta", run("--codec", "dalta", "--only", "dalta", self.path, code=1).stderr)
        for words in [], ["--samples", "0", self.path], ["--samples", "x", self.path], ["a", "b"]:
            run(*words, code=2)
        self.assertIn("at most 255", run("--only", "raw," * 64, self.path, code=2).stderr)
        with tempfile.TemporaryDirectory(prefix="deltawire-quality-") as folder:
            path = pathlib.Path(folder) / "nan.record"
            data = bytearray(self.path.read_bytes())
            data[-4:] = np.float32("nan").tobytes()
            path.write_bytes(data)
            self.assertIn("NaN", run("--only", "rowwise:bits=4", path, code=1).stderr)
        self.assertIn(
            "No space left", run("--only", "raw", "--json", "/dev/full", self.path, code=1).stderr
        )


class Sets(unittest.TestCase):
    def made(self, kind):
        with tempfile.TemporaryDirectory(prefix="deltawire-sets-") as folder:
            path = pathlib.Path(folder) / "one"
            sets.write(path, kind, 1, 2, 128, 256)
            return [x.astype(np.float64) for _, x in read(path)]

    def test_distributions(self):
        for kind, fourth in (("gaussian", 3), ("laplace", 6)):
            for x in self.made(kind):
                self.assertLess(abs(np.mean(x)), 0.05)
                self.assertLess(abs(np.mean(x**2) - 1), 0.05)
                self.assertLess(abs(np.mean(x**4) / np.mean(x**2) ** 2 / fourth - 1), 0.15)
        for x in self.made("outliers"):
            large = np.sqrt(np.mean(x**2, 0)) > sets.TIMES / 2
            self.assertEqual(large.sum(), 3)  # of 256

    def test_change(self):
        for kind in sets.KINDS:
            before, now = self.made(kind)
            ratio = np.linalg.norm(now - before) / np.linalg.norm(now)
            self.assertLess(abs(ratio / sets.CHANGE - 1), 0.15, kind)


def point(family, bits, error, ours=True, state=False, between=False):
    """Returns a row of results with these figures, as far as frontier.py looks at it."""
    return {
        "family": family,
        "codec": f"{family}:{bits}",
        "ours": ours,
        "state": state,
        "between": between,
        "later": {"bits": bits, "error": error},
    }


class Frontier(unittest.TestCase):
    STEPS = [point("step", 1, 0.4, between=True), point("step", 3, 0.1, between=True)]

    def test_between_settings(self):
        self.assertIsNone(frontier.least(self.STEPS, 0.95))
        self.assertAlmostEqual(frontier.least(self.STEPS, 2)[0], 0.2)
        self.assertAlmostEqual(frontier.least(self.STEPS, 4)[0], 0.1)
        self.assertAlmostEqual(frontier.bits_at(self.STEPS, 0.2), 2)
        self.assertIsNone(frontier.bits_at(self.STEPS, 0.09))
        fixed = [point("bits", 1, 0.4), point("bits", 3, 0.1)]
        self.assertEqual(frontier.least(fixed, 2)[0], 0.4)
        self.assertEqual(frontier.bits_at(fixed, 0.2), 3)

    def test_who_is_ahead(self):
        behind = [*self.STEPS, point("peer", 2, 0.21, ours=False)]
        self.assertEqual(frontier.ahead(behind, "alone"), [])
        self.assertAlmostEqual(frontier.closest(behind, "alone")[0], 0.07, delta=0.005)
        before = [*self.STEPS, point("peer", 2, 0.19, ours=False)]
        rates = [one["rate"] for one in frontier.ahead(before, "alone")]
        self.assertEqual((rates[0], rates[-1]), (2.0, 2.05))
        self.assertLess(frontier.closest(before, "alone")[0], 0)
        self.assertEqual(frontier.ahead(before, "changes"), [])
        alone = [*self.STEPS, point("peer", 0.7, 0.9, ours=False)]
        self.assertEqual([one["rate"] for one in frontier.ahead(alone, "all")][0], 0.7)
        self.assertEqual(frontier.closest(alone, "all")[0], 0.7 - 1)

    def test_a_peer_with_state_is_compared_with_state(self):
        rows = [*self.STEPS, point("peer", 2, 0.1, ours=False, state=True)]
        self.assertEqual(frontier.ahead(rows, "alone"), [])
        self.assertEqual(frontier.ahead(rows, "all")[0]["rate"], 2.0)


@unittest.skipUnless(BUILD, "no build folder with the trainer was named")
class Command(unittest.TestCase):
    def test_all_of_it(self):
        with tempfile.TemporaryDirectory(prefix="deltawire-quality-") as folder:
            out = pathlib.Path(folder) / "q.json"
            words = ["--small", "--work", folder, "--build", BUILD, "--out", out]
            words += ["--text", HERE.parent.parent / "docs" / "format.md"]
            done = subprocess.run(
                [sys.executable, HERE / "quality.py", *map(str, words)],
                capture_output=True,
                text=True,
            )
            self.assertEqual(done.returncode, 0, done.stdout[-2000:] + done.stderr[-2000:])
            whole = json.loads(out.read_text())
            names = [one["name"] for one in whole["sets"]]
            self.assertEqual(names, [*sets.KINDS, "forward-1", "backward-1"])
            self.assertEqual((len(whole["claims"]), whole["small"]), (4, True))
            self.assertIn("nothing follows", done.stdout)
            self.assertEqual(out.with_suffix(".png").read_bytes()[:4], b"\x89PNG")
            tables = out.with_suffix(".md").read_text()
            self.assertIn(tables, done.stdout)
            for one in whole["sets"]:
                self.assertIn(f"| {one['title']} |", tables)
                self.assertEqual(set(one["frontier"]), set(frontier.SCOPES))
            words[-2:] = ["--record", folder]
            done = subprocess.run(
                [sys.executable, HERE / "quality.py", *map(str, words)],
                capture_output=True,
                text=True,
            )
            self.assertEqual(done.returncode, 1)
            self.assertIn("has no forward-R.record", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
