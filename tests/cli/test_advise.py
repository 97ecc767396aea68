#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# test_advise.py - tests `deltawire advise`: it computes the forecast of every row again, and checks
# the order of the rows, the measurement of a link, and what wrong arguments and wrong peers lead
# to.
#
# How long codecs and links take differs from run to run, so no time is judged; except that a link
# that was made slow cannot be faster than that.
import json
import pathlib
import re
import signal
import sys
import unittest

import scratch

PROGRAM = sys.argv.pop(1)
RUN = ["--rate", "20kbit", "--compute-ms", "5"]
SHAPE = scratch.options(batch=8, micro_batches=2, context=16, channels=64)
CODECS_PAGE = pathlib.Path(__file__).parents[2] / "docs" / "codecs.md"
PAIRS = ["raw:f32/raw:f32", "delta:bits=2/direct:bits=4", "direct:bits=2/direct:bits=2"]


def advise(*arguments, **options):
    """Runs `deltawire advise` with these arguments, and returns the finished process."""
    return scratch.run(PROGRAM, "advise", *arguments, **options)


def step_of(all_, pair):
    """Computes how long a step takes with a pair of codecs, as cli/forecast.h describes it:
    the time that the first micro-batch needs for its way through all stages and links, and for each
    of the others the time of the slowest part of that way. all_: what advise has printed with
    --json; pair: one of its pairs. Returns seconds."""
    stages, count = all_["stages"], all_["micro_batches"]
    compute = all_["compute_s"] / count
    coding, wires = 0, []
    for way in ("forward", "backward"):
        seconds = {word: pair[way][f"{word}_s"] / count for word in ("encode", "decode")}
        wires.append(8 * pair[way]["bytes"] / count / all_[f"bits_per_second_{way}"])
        coding += seconds["encode"] + seconds["decode"]
    one = max(
        pair["forward"]["encode_s"] + pair["backward"]["decode_s"],
        pair["forward"]["decode_s"] + pair["backward"]["encode_s"],
    )
    stage = compute + (coding if stages > 2 else one / count)
    links = (stages - 1) * (coding + sum(wires) + 2 * all_["delay_s"])
    return stages * compute + links + (count - 1) * max(stage, *wires)


class Forecast(unittest.TestCase):
    def json(self, *arguments):
        """Runs advise with --json and a given link, and returns what it prints."""
        done = advise(*RUN, *SHAPE, "--json", *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_advised_step_times_follow_the_forecast(self):
        """The step of every pair is the one that is computed here, for 2 and for 5 stages."""
        for stages in ("2", "5"):
            said = self.json("--stages", stages, "--delay-ms", "30")
            self.assertEqual(said["stages"], int(stages))
            self.assertEqual(said["shape"], [4, 16, 64])
            self.assertAlmostEqual(said["delay_s"], 0.03)
            self.assertAlmostEqual(said["bits_per_second_backward"], 20000)
            self.assertGreater(len(said["pairs"]), 6)
            for pair in said["pairs"]:
                self.assertAlmostEqual(pair["step_s"] / step_of(said, pair), 1, places=6)

    def test_best_pair_is_listed_first(self):
        """Each row is the best of those that follow: among the ones whose steps are at most 3 %
        longer than the shortest, it is the one with the smallest error."""
        rows = self.json()["pairs"]
        while len(rows) > 1:
            fastest = min(row["step_s"] for row in rows)
            self.assertLessEqual(rows[0]["step_s"], 1.03 * fastest)
            worse = [max(row[way]["error"] for way in ("forward", "backward")) for row in rows]
            near = [e for e, row in zip(worse, rows) if row["step_s"] <= 1.03 * fastest]
            self.assertEqual(worse[0], min(near))
            rows = rows[1:]
        # These two pairs have the same bytes, and so about the same time. The larger one of the
        # errors of both directions decides, and stochastic rounding has the larger error.
        said = self.json(
            "direct:bits=4/direct:bits=4,rounding=stochastic",
            "direct:bits=4,scale=absmax/direct:bits=4,scale=absmax",
        )
        self.assertIn("absmax", said["pairs"][0]["forward"]["codec"])
        # The link is so slow that the pair with the fewest bytes is the fastest.
        said = self.json(*PAIRS)
        self.assertEqual(
            [row["forward"]["codec"] for row in said["pairs"]],
            ["direct:bits=2", "delta:bits=2", "raw:f32"],
        )

    def test_bytes_and_errors(self):
        """The bytes and errors of three known pairs are about what they must be."""
        rows = {row["forward"]["codec"]: row for row in self.json(*PAIRS)["pairs"]}
        raw, delta, direct = rows["raw:f32"], rows["delta:bits=2"], rows["direct:bits=2"]
        floats = 4 * 8 * 16 * 64
        self.assertTrue(floats < raw["forward"]["bytes"] < 1.1 * floats, raw)
        self.assertEqual(raw["forward"]["error"], 0)
        self.assertAlmostEqual(raw["faster"], 1, places=1)
        self.assertLess(delta["forward"]["bytes"], floats / 8)
        self.assertLess(delta["forward"]["error"], 0.5 * direct["forward"]["error"])
        self.assertLess(delta["backward"]["error"], 0.5 * direct["backward"]["error"])
        # With --change=0.01 a sample changes by 1 % of its norm from visit to visit, and the error
        # of a delta is a part of that change.
        less = self.json("--change", "0.01", "delta:bits=2/raw:f32")["pairs"][0]["forward"]
        self.assertLess(less["error"], 0.1 * delta["forward"]["error"])

    def test_a_large_tensor_is_measured_in_part(self):
        """A tensor of 2 GB would take long to encode; the bytes are those of the whole tensor all
        the same."""
        pair = ["--batch", "64", "--context", "2048", "--channels", "4096", "raw:bf16/raw:bf16"]
        said = self.json(*pair)["pairs"][0]["forward"]
        self.assertAlmostEqual(said["bytes"] / (2 * 64 * 2048 * 4096), 1, places=2)

    def test_recommended_pairs_are_compared(self):
        """Without pairs, all those are compared that the first table of docs/codecs.md names."""
        table = CODECS_PAGE.read_text().partition("## Options")[0]
        named = re.findall(r"^\| [^|]* \| `([^`|]*)` \| `([^`|]*)` \|", table, re.M)
        self.assertGreater(len(named), 6)
        rows = self.json()["pairs"]
        compared = [(row["forward"]["codec"], row["backward"]["codec"]) for row in rows]
        self.assertEqual(set(named) - set(compared), set())
        self.assertEqual(len(set(compared)), len(compared))

    def test_advise_prints_a_table(self):
        """Without --json a table is printed: four lines, and then one line per pair."""
        done = advise(*RUN, *SHAPE, *PAIRS)
        lines = done.stdout.splitlines()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("0.02 Mbit/s forward", lines[0])
        self.assertEqual(len(lines), 4 + len(PAIRS), done.stdout)
        self.assertTrue(lines[4].endswith(PAIRS[2]), done.stdout)


class Usage(unittest.TestCase):
    def test_names_what_is_wrong(self):
        """Arguments that are wrong end the program with 2 and a sentence that names them."""
        for arguments, word in [
            (["--compute-ms", "5"], "give one of --rate"),
            (["--rate", "1mbit"], "--compute-ms is missing"),
            ([*RUN, "--connect", "tcp://127.0.0.1:1"], "given twice"),
            (["--listen", "tcp://127.0.0.1:0", "--compute-ms", "5"], "--listen only answers"),
            (["--connect", "tcp://127.0.0.1:1", "--delay-ms", "5"], "--delay-ms"),
            ([*RUN, "--group-key", "run.key"], "nothing connects"),
            ([*RUN, "--micro-batches", "3"], "3 micro-batches"),
            ([*RUN, "delta:bits=2"], '"delta:bits=2" is not a pair'),
            ([*RUN, "raw/raw/raw"], "is not a pair"),
            ([*RUN, "raw/"], "is not a pair"),
            ([*RUN, "raw/0:raw"], 'leave out "0:"'),
            ([*RUN, "12:raw/raw"], 'leave out "12:"'),
            ([*RUN, "x" * 300 + "/raw"], "is not a pair"),
            ([*RUN, *["raw/raw"] * 65], "more than 64"),
            ([*RUN, "--stages", "1"], '--stages "1"'),
            ([*RUN, "--change", "0"], '--change "0"'),
            ([*RUN, "--change", "1.5"], '--change "1.5"'),
            ([*RUN, "--change", "nan"], '--change "nan"'),
            ([*RUN, "--channels", "2000000"], "--channels"),
            (
                [*RUN, *scratch.options(batch=65536, context=1 << 24, channels=1 << 20)],
                "at most 2^40",
            ),
            ([*RUN, "--frobnicate"], "--frobnicate"),
        ] + [
            (["--compute-ms", "5", "--rate", rate], f'--rate "{rate}"')
            for rate in ("fast", "", "0mbit", "-5mbit", "1e3mbit", "0x10mbit", "1.2.3mbit")
            + ("nanmbit", "mbit", "10", "10tbit", "1001gbit", "0.5bit", "10mbit ")
        ]:
            done = advise(*arguments)
            self.assertEqual(done.returncode, 2, (arguments, done.stderr))
            self.assertIn(word, done.stderr)

    def test_a_codec_that_is_wrong(self):
        """A pair with a wrong config ends the program with 2 and a sentence that names the part."""
        for pair, word in [
            ("delta:bits=17/raw", '"17'),
            ("raw/derict:bits=2", "derict"),
            ("/raw", "pair"),
        ]:
            done = advise(*RUN, *SHAPE, pair)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(word, done.stderr)


    def test_a_codec_that_refuses_the_tensors(self):
        done = advise(*RUN, *SHAPE, "direct:form=step,group=sample,error=abs:1e-6/raw")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn('codec "direct:form=step,group=sample,error=abs:1e-6"', done.stderr)
        self.assertIn("sample 0", done.stderr)  # the encoder's sentence, not that of its status


class Links(scratch.Scratch):
    def listen(self, *arguments):
        """Starts `deltawire advise --listen`. Returns the process, and the URI that it listens
        on."""
        words = ["advise", "--listen", "tcp://127.0.0.1:0", *arguments]
        process = scratch.start(PROGRAM, *words)
        return process, scratch.address_of(process)

    def test_measures_a_link(self):
        """With --connect, advise measures the rate and the delay of a link; here of one that the
        transport `shaped` makes slow."""
        other, uri = self.listen()
        slow = f"shaped:rate=4mbit,delay=20ms/{uri}"
        done = advise("--connect", slow, "--compute-ms", "5", "--json", *SHAPE, *PAIRS)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(other.communicate(timeout=60)[1], "")
        self.assertEqual(other.returncode, 0)
        said = json.loads(done.stdout)
        self.assertTrue(said["measured"])
        # The link has 4 Mbit/s and 20 ms. If this machine is busy, it may seem slower, but never
        # much faster.
        self.assertLess(said["bits_per_second_forward"], 6e6)
        self.assertGreater(said["bits_per_second_forward"], 1e3)
        self.assertGreater(said["delay_s"], 0.009)

    def test_ctrl_c_ends_advise_at_both_ends(self):
        """Stops an end that waits, and one that measures codecs after the link: the other end is
        done then, and 64 pairs of large tensors take much longer than the signal."""
        other, _ = self.listen()
        other.send_signal(signal.SIGINT)
        self.assertEqual(
            other.communicate(timeout=60)[1], "deltawire: stopped by Ctrl-C before the end\n"
        )
        self.assertEqual(other.returncode, 130)
        other, uri = self.listen()
        large = scratch.options(batch=64, context=1024, channels=1024)
        words = ["advise", "--connect", uri, *RUN[2:], *large, *["delta/delta"] * 64]
        first = scratch.start(PROGRAM, *words)
        self.assertEqual(other.communicate(timeout=60)[1], "")
        first.send_signal(signal.SIGINT)
        printed, said = first.communicate(timeout=60)
        self.assertEqual((first.returncode, printed), (130, ""), said)
        self.assertEqual(said, "deltawire: stopped by Ctrl-C before the end\n")

    def test_advise_to_an_address_without_listener_is_an_error(self):
        """If no link can be opened, one sentence says so, and the program ends with 1 or 2."""
        done = advise("--connect", "tcp://127.0.0.1:1", "--open-timeout", "0.3", *RUN[2:])
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        done = advise("--connect", "tcp://192.0.2.1:7000", *RUN[2:])
        # Links to other machines are refused without TLS.
        self.assertEqual(done.returncode, 1, done.stderr)
        done = advise("--connect", "smoke://x", *RUN[2:])
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("smoke", done.stderr)

    def test_advise_and_train_do_not_talk_to_each_other(self):
        """If one end is `advise` and the other `train`, both end with a sentence, in both
        directions: first `train` connects to `advise --listen`, then `advise --connect` to
        `train`."""
        train = ["train", "--text", self.text, *scratch.options(layers=2, samples=32)]
        train += [*scratch.SMALL, "--stages", "2", "--open-timeout", "3"]
        other, uri = self.listen()
        done = scratch.run(PROGRAM, *train, "--rank", "1", "--connect", uri)
        self.assertEqual(done.returncode, 1, done.stderr)
        said = other.communicate(timeout=60)[1]
        self.assertEqual((other.returncode, len(said.splitlines())), (1, 1), said)
        self.assertIn("asked for nothing that is known here", said)
        first = scratch.start(PROGRAM, *train, "--rank", "0", "--listen", "tcp://127.0.0.1:0")
        uri = scratch.address_of(first)
        done = advise("--connect", uri, "--open-timeout", "1", *RUN[2:])
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("does `deltawire advise --listen' run there", done.stderr)
        first.communicate(timeout=60)


if __name__ == "__main__":
    unittest.main()
