#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# test_measure.py - tests `deltawire measure`: its figures, its outputs, and files that are wrong.
import array
import json
import os
import re
import sys
import unittest
import xml.dom.minidom

import scratch

PROGRAM = os.path.abspath(sys.argv.pop(1))
SIZES = {"F32": 4, "F16": 2, "BF16": 2, "I64": 8}
EIGHTH = 1 + 2**-8  # the largest error of bf16: it becomes 1


def floats(values):
    return array.array("f", values).tobytes()


def safetensors(header, data=b""):
    """The bytes of a file. header: a dictionary, a text or bytes."""
    text = json.dumps(header) if isinstance(header, dict) else header
    text = text if isinstance(text, bytes) else text.encode()
    return len(text).to_bytes(8, "little") + text + data


def packed(**tensors):
    """A valid file. tensors: name=(dtype, shape, bytes)."""
    header, data = {"__metadata__": {"made by": 'a \\ " test\n'}}, b""
    for name, (dtype, shape, values) in tensors.items():
        offsets = [len(data), len(data) + len(values)]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
        data += values
    return safetensors(header, data)


def npy(header, data=b"", version=(1, 0)):
    text = header.encode("latin-1") + b"\n"
    head = len(text).to_bytes(2 if version[0] == 1 else 4, "little")
    return b"\x93NUMPY" + bytes(version) + head + text + data


def described(shape, dtype="<f4", fortran="False"):
    return f"{{'descr': '{dtype}', 'fortran_order': {fortran}, 'shape': {shape}, }}"


ONE = '"dtype":"F32","shape":[1],"data_offsets":[0,4]'

# Files that are wrong, and words of the sentence that says so.
BAD = {
    "empty": (b"", "ends within its first bytes"),
    "cut in front of the header": (b"\x05\0\0", "ends within its first bytes"),
    "header past the file": (b"\xff" * 7 + b"\x7f{}", "header would have"),
    "header one byte too long": (b"\x03" + b"\0" * 7 + b"{}", "header would have 3 bytes, and 2"),
    "no JSON": (safetensors("hello"), "byte 0 of the header should be '{'"),
    "an end that is missing": (safetensors('{"a":{' + ONE + "}"), "should be '}'"),
    "something behind the object": (safetensors("{} x"), "blank, like all behind"),
    "a NUL behind the object": (safetensors(b"{}\0"), "blank, like all behind"),
    "a list": (safetensors("[" * 100000), "byte 0 of the header should be '{'"),
    "nested": (safetensors('{"a":' * 20000), "dtype, shape or data_offsets"),
    "nested metadata": (safetensors('{"__metadata__":{"a":{"b":1}}}'), "a string in quotes"),
    "metadata twice": (
        safetensors('{"__metadata__":{},"__metadata__":{}}'),
        "a string in quotes",
    ),
    "invalid UTF-8": (safetensors(b'{"\xc3(":{' + ONE.encode() + b"}}", b"1234"), "UTF-8"),
    "overlong UTF-8": (safetensors(b'{"\xe0\x80\xaf":{}}'), "UTF-8"),
    "half a pair": (safetensors('{"\\ud800x":{' + ONE + "}}", b"1234"), "second half of a pair"),
    "the wrong half": (safetensors('{"\\udc00":{' + ONE + "}}", b"1234"), "character of text"),
    "a wrong second half": (safetensors('{"\\ud800\\u0041":{}}'), "second half of a pair"),
    "a NUL in a name": (safetensors('{"a\\u0000b":{' + ONE + "}}", b"1234"), "character of text"),
    "an escape of no meaning": (safetensors('{"\\x41":{}}'), "an escape of JSON"),
    "no hexadecimal digit": (safetensors('{"\\u00g0":{}}'), "hexadecimal digit"),
    "a name that moves the cursor": (
        safetensors('{"\\u001b[2J":{' + ONE + "}}", b"1234"),
        "without control characters",
    ),
    "a line break in a name": (safetensors('{"a\nb":{' + ONE + "}}", b"1234"), "part of a string"),
    "a field that nobody knows": (
        safetensors('{"a":{' + ONE + ',"x":1}}', b"1234"),
        "dtype, shape",
    ),
    "a field twice": (safetensors('{"a":{' + ONE + ',"shape":[1]}}', b"1234"), "each of them once"),
    "no shape": (safetensors('{"a":{"dtype":"F32","data_offsets":[0,4]}}', b"1234"), "a shape and"),
    "no tensor": (safetensors('{"a":{}}'), "a string in quotes"),
    "a negative extent": (
        safetensors(f'{{"a":{{{ONE.replace("[1]", "[-1]")}}}}}', b"1234"),
        "not negative",
    ),
    "a fraction": (safetensors(f'{{"a":{{{ONE.replace("[1]", "[1.0]")}}}}}', b"1234"), "']'"),
    "a zero in front": (
        safetensors(f'{{"a":{{{ONE.replace("[1]", "[01]")}}}}}', b"1234"),
        "without zeros in front",
    ),
    "an extent that has no end": (
        safetensors(f'{{"a":{{{ONE.replace("[1]", "[18446744073709551617]")}}}}}', b"1234"),
        "a smaller number",
    ),
    "a comma too many": (safetensors('{"a":{' + ONE + "},}", b"1234"), "a string in quotes"),
    "many dimensions": (
        safetensors(f'{{"a":{{{ONE.replace("[1]", str([1] * 17))}}}}}', b"1234"),
        "a list that is too long",
    ),
    "offsets that fall": (
        safetensors(f'{{"a":{{{ONE.replace("[0,4]", "[4,0]")}}}}}', b"1234"),
        "two rising offsets",
    ),
    "one offset": (
        safetensors('{"a":{"dtype":"F32","shape":[0],"data_offsets":[0]}}'),
        "two rising offsets",
    ),
    "data that are cut": (safetensors('{"a":{' + ONE + "}}", b"123"), "ends at byte 4"),
    "bytes of nobody": (safetensors('{"a":{' + ONE + "}}", b"12345"), "last 1 bytes belong to no"),
    "a gap": (
        safetensors({"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}, b"12345678"),
        "no gap and no overlap",
    ),
    "an overlap": (
        safetensors(
            {
                "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
                "b": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]},
            },
            b"12345678",
        ),
        "no gap and no overlap",
    ),
    "a name twice": (
        safetensors(
            '{"a":{' + ONE + '},"\\u0061":{' + ONE.replace("[0,4]", "[4,8]") + "}}", b"12345678"
        ),
        'two tensors have the name "a"',
    ),
    "more values than bytes": (
        safetensors({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, b"1234"),
        "has 4 bytes, but its shape and dtype F32 need 8",
    ),
    "integers of the wrong size": (
        safetensors({"a": {"dtype": "I64", "shape": [1], "data_offsets": [0, 4]}}, b"1234"),
        "has 4 bytes, but its shape and dtype I64 need 8",
    ),
    "a product that wraps to one value": (
        safetensors(
            {"a": {"dtype": "F32", "shape": [2**63 + 1, 2**63 + 1], "data_offsets": [0, 4]}},
            b"1234",
        ),
        "a product that no file can hold",
    ),
    "an archive": (b"PK\3\4" + b"\0" * 60, "python -m deltawire.measure"),
    "npy: cut": (b"\x93NUMPY\1\0\x40", "ends within its first bytes"),
    "npy: header past the file": (b"\x93NUMPY\1\0\x40\0{}", "header would have 64 bytes, and 2"),
    "npy: another version": (npy(described("(1,)"), b"1234", (3, 0)), "version 3.0 of the format"),
    "npy: no dictionary": (npy("[]"), "should be '{'"),
    "npy: records": (npy("{'descr': [('a', '<f4')], }"), "a string in quotes"),
    "npy: nothing true": (npy(described("(1,)", fortran="None"), b"1234"), "True or False"),
    "npy: a shape that is none": (npy(described("1"), b"1234"), "should be '('"),
    "npy: an entry is missing": (npy("{'descr': '<f4'}"), "a dictionary of descr"),
    "npy: another entry": (npy("{'x': 1}"), "descr, fortran_order or shape"),
    "npy: an entry twice": (npy("{'descr': '<f4', 'descr': '<f4'}"), "each of them once"),
    "npy: something behind it": (npy(described("(1,)") + " 1", b"1234"), "blank, like all behind"),
    "npy: too few values": (npy(described("(2, 3)"), b"1234"), "has 4 bytes, but its shape"),
    "npy: too many values": (npy(described("(1,)"), b"12345678"), "has 8 bytes, but its shape"),
    "npy: a product that wraps": (
        npy(described(f"({2**63 + 1}, {2**63 + 1})"), b"1234"),
        "a product that no file can hold",
    ),
}


class Measure(scratch.Scratch):
    def write(self, name, content):
        with open(self.path(name), "wb") as file:
            file.write(content)
        return self.path(name)

    def run_it(self, *arguments, **more):
        return scratch.run(PROGRAM, "measure", *arguments, **more)

    def figures(self, *arguments):
        done = self.run_it(*arguments, "--json")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return json.loads(done.stdout, parse_constant=self.fail)["tensors"]  # NaN is no JSON

    def assert_fails(self, done, code, *words):
        lines = done.stderr.splitlines()
        self.assertEqual((done.returncode, len(lines)), (code, 1), done.stderr)
        for word in words:
            self.assertIn(word, lines[0])

    def test_every_wrong_file_is_named_with_what_is_wrong(self):
        for name, (content, words) in BAD.items():
            with self.subTest(name):
                path = self.write("bad", content)
                done = self.run_it(path)
                self.assert_fails(done, 1, f"deltawire: {path}: ", words)
                self.assertEqual(done.stdout, "")
                good = self.write("good.npy", npy(described("(1,)"), floats([1])))
                self.assert_fails(self.run_it(good, "--delta-from", path), 1, path, words)

    def test_every_cut_of_a_file_is_an_error(self):
        whole = packed(a=("F32", [2, 3], floats(range(6))), b=("BF16", [1], b"12"))
        for n in range(len(whole)):
            self.assertEqual(self.run_it(self.write("cut", whole[:n])).returncode, 1, n)
        whole = npy(described("(2, 3)"), floats(range(6)))
        for n in range(len(whole)):
            self.assertEqual(self.run_it(self.write("cut", whole[:n])).returncode, 1, n)

    def test_names_are_decoded(self):
        text = '{"\\u00e9\\ud83d\\ude00\\"\\\\/":{' + ONE + "}}   "
        (found,) = self.figures(self.write("x", safetensors(text, floats([3]))), "--codec", "mx")
        self.assertEqual(found["name"], '\u00e9\U0001f600"\\/')

    def test_shapes_become_those_of_the_library(self):
        tensors = {"": [], "1": [6], "2": [2, 3], "3": [1, 2, 3], "4": [2, 1, 3, 1]}
        content = {
            name: ("F32", shape, floats([1] * (6 if shape else 1)))
            for name, shape in tensors.items()
        }
        found = self.figures(self.write("x", packed(**content)), "--codec", "raw:f32")
        shapes = [[1, 1, 1], [1, 1, 6], [1, 2, 3], [1, 2, 3], [2, 3, 1]]
        self.assertEqual([one["shape"] for one in found], shapes)
        self.assertEqual([one["dims"] for one in found], list(tensors.values()))

    def test_the_figures_are_right(self):
        """bf16 makes 1 of 1 + 2^-8, and keeps 2."""
        values = [2] * 24 + [EIGHTH] * 8
        path = self.write("x.npy", npy(described("(4, 8)"), floats(values), (2, 0)))
        (found,) = self.figures(path, "--codec", "raw:bf16;raw:f32")
        lost, rms = 2**-8 / EIGHTH, (sum(v * v for v in values) / 32) ** 0.5
        self.assertAlmostEqual(found["rms"], rms, 7)
        self.assertAlmostEqual(found["largest_value"], 2 / rms, 7)
        self.assertAlmostEqual(found["largest_row"], 1, 7)
        self.assertAlmostEqual(found["largest_channel"], 1, 7)
        short, whole = found["codecs"]
        self.assertAlmostEqual(short["error"], lost / 4, 9)
        self.assertAlmostEqual(short["largest_error"], lost, 9)
        self.assertAlmostEqual(short["bias"], -(2**-8) * 8 / 32 / rms, 9)
        norms = (sum(v * v for v in values) * (24 * 4 + 8)) ** 0.5
        self.assertAlmostEqual(short["cosine"], (24 * 4 + 8 * EIGHTH) / norms, 8)
        self.assertEqual((whole["error"], whole["bias"], whole["cosine"]), (0, 0, 1))
        self.assertAlmostEqual(whole["bits"] - short["bits"], 16, 6)
        self.assertGreater(short["bits"], 16)  # the frame has a header
        self.assertGreater(short["encode_gb_s"] * short["decode_gb_s"], 0)

    def test_sixteen_bits_are_read_as_what_they_are(self):
        halves = [0x3C00, 0xC000, 0x0001, 0x7BFF]  # 1, -2, 2^-24, 65504
        content = array.array("H", halves).tobytes()
        floats16 = self.figures(
            self.write("x", packed(a=("F16", [4], content))), "--codec", "raw:bf16 raw:f16"
        )[0]
        self.assertAlmostEqual(floats16["rms"], ((1 + 4 + 65504**2) / 4) ** 0.5, 3)
        self.assertEqual(floats16["codecs"][1]["error"], 0)
        self.assertEqual(floats16["codecs"][0]["lost_values"], 1)  # 65536, which f16 cannot hold
        least = array.array("H", [0x8001]).tobytes()  # -2^-24
        found = self.figures(self.write("x", packed(a=("F16", [1], least))), "--codec", "raw:f32")
        self.assertEqual(found[0]["rms"], 5.96046448e-08)
        brain = array.array("H", [0x3F80, 0xC000]).tobytes()  # 1, -2
        found = self.figures(self.write("x", packed(a=("BF16", [2], brain))), "--codec", "raw:f32")
        self.assertAlmostEqual(found[0]["rms"], 2.5**0.5, 7)

    def test_outliers_are_told(self):
        rows = [[(i * 29 + c * 17) % 101 - 50.0 for c in range(64)] for i in range(303)]
        rows[0] = [100 * x for x in rows[0]]
        for row in rows:
            row[3] *= 400
        content = npy(described("(303, 64)"), floats(sum(rows, [])))
        path = self.write("x.npy", content)
        (found,) = self.figures(path, "--codec", "direct:bits=4")
        norms = sorted(sum(x * x for x in row) ** 0.5 for row in rows)
        channels = sorted(sum(row[c] ** 2 for row in rows) ** 0.5 for c in range(64))
        self.assertAlmostEqual(found["largest_row"], norms[-1] / norms[151], 5)
        self.assertAlmostEqual(found["largest_channel"], channels[-1] / channels[31], 4)
        self.assertIn("more than 0.15 harms", found["codecs"][0]["misfit"])
        self.assertEqual(found["judged_as"], "activations")
        gradients = self.write("gradients.npy", content)
        named = self.write("y", packed(grad=("F32", [303, 64], content[-303 * 64 * 4 :])))
        for path in (gradients, named):
            (found,) = self.figures(path, "--codec", "direct:bits=4")
            self.assertEqual(found["judged_as"], "gradients")
            self.assertNotIn("misfit", found["codecs"][0])

    def test_what_is_not_finite_is_counted_and_left_out(self):
        values = [EIGHTH] * 256
        values[3], values[9], values[64:128] = float("nan"), float("-inf"), [0] * 64
        path = self.write("x.npy", npy(described("(4, 64)"), floats(values)))
        (found,) = self.figures(path, "--codec", "direct:bits=8 raw:f32 raw:bf16")
        self.assertEqual((found["not_finite"], found["zero_rows"]), (2, 1))
        self.assertAlmostEqual(found["rms"], EIGHTH * (190 / 254) ** 0.5, 7)
        groups, whole, short = found["codecs"]
        self.assertAlmostEqual(short["error"], 2**-8 / EIGHTH, 9)  # of three rows
        self.assertEqual((groups["poisoned_groups"], groups["lost_values"]), (1, 62))
        self.assertLess(groups["error"], 0.01)
        self.assertEqual((whole["error"], whole["lost_values"]), (0, 0))
        nothing = self.write("y", npy(described("(2,)"), floats([float("nan")] * 2)))
        self.assertIsNone(self.figures(nothing, "--codec", "raw:f32")[0]["codecs"][0]["error"])
        table = self.run_it(path, "--codec", "direct:bits=8").stdout
        self.assertIn("NaN or infinite, and in no figure: 2", table)
        self.assertIn("rows of zeros, which have no error: 1", table)
        self.assertIn("poisoned groups, which have NaN or infinities in them: 1", table)

    def test_a_later_visit_of_delta(self):
        first = [i * 37 % 101 - 50.0 for i in range(4096)]
        second = [x + (i * 53 % 11 - 5) / 10 for i, x in enumerate(first)]
        other = self.write("0", packed(a=("F32", [64, 64], floats(first))))
        path = self.write("1", packed(a=("F32", [64, 64], floats(second))))
        (alone,) = self.figures(path, "--codec", "delta:bits=4")
        (later,) = self.figures(path, "--codec", "delta:bits=4 mx", "--delta-from", other)
        self.assertEqual((alone["later_visit"], later["later_visit"]), (False, True))
        self.assertTrue(alone["codecs"][0]["first_visit"])
        self.assertNotIn("first_visit", later["codecs"][0])
        self.assertGreater(alone["codecs"][0]["bits"], 8)
        self.assertLess(later["codecs"][0]["bits"], 5)
        self.assertLess(later["codecs"][0]["error"], 0.01)
        self.assertIn("a first visit", self.run_it(path, "--codec", "delta").stdout)
        usual = [c["codec"] for c in self.figures(path, "--delta-from", other)[0]["codecs"]]
        self.assertIn("delta:bits=2", usual)
        wrong = self.write("2", packed(a=("F32", [32, 128], floats(first))))
        self.assert_fails(self.run_it(path, "--delta-from", wrong), 1, "same shape", wrong)
        half = self.write("3", packed(a=("BF16", [64, 64], b"\0" * 8192)))
        self.assert_fails(self.run_it(path, "--delta-from", half), 1, "dtype", half)

    def test_all_is_every_codec(self):
        known = re.search(r"allowed: (.*)", self.run_it(self.text, "--codec", "no").stderr)[1]
        path = self.write("x.npy", npy(described("(32, 64)"), floats(range(2048))))
        found = self.figures(path, "--codec", "all")[0]["codecs"]
        names = {one["codec"].split(":")[0] for one in found}
        self.assertEqual(names, set(known.split()))
        self.assertFalse([one for one in found if "failed" in one])

    def test_a_codec_that_cannot_take_a_tensor_says_why(self):
        path = self.write("x.npy", npy(described("(5,)"), floats(range(5))))
        (found,) = self.figures(path, "--codec", "lowrank mx")
        self.assertIn("rank", found["codecs"][0]["failed"])
        self.assertNotIn("failed", found["codecs"][1])

    def test_tensors_are_chosen_and_others_left_out(self):
        path = self.write(
            "x",
            packed(
                a=("F32", [4], floats(range(4))),
                b=("F32", [4], floats(range(4))),
                ids=("I64", [1], b"12345678"),
                none=("F32", [0, 4], b""),
                new=("F4", [2], b"1"),
            ),
        )
        found = self.figures(path)
        self.assertEqual([t["name"] for t in found], ["a", "b", "ids", "none", "new"])
        reasons = [t.get("left_out", "") for t in found]
        self.assertEqual(reasons[:2], ["", ""])
        self.assertIn("only the dtypes", reasons[2])
        self.assertIn("no values", reasons[3])
        self.assertIn("only the dtypes", reasons[4])
        self.assertEqual([t["name"] for t in self.figures(path, "-t", "b")], ["b"])
        self.assert_fails(self.run_it(path, "--tensor", "b", "--tensor", "c"), 1, '"c"')
        self.assert_fails(self.run_it(path, "--tensor", "c", "--tensor", "b"), 1, '"c"')
        self.assert_fails(self.run_it(path, "--tensor", "ids"), 1, "nothing was measured")
        for shape, dtype, fortran, word in [
            ("(1,)", "<i4", "False", "only the dtypes"),
            ("(1, 2)", "<f4", "True", "Fortran order"),
        ]:
            content = npy(described(shape, dtype, fortran), floats(range(eval(shape)[-1])))
            done = self.run_it(self.write("x.npy", content))
            self.assertEqual(done.returncode, 1)
            self.assertIn(word, done.stdout)

    def test_wrong_usage(self):
        path = self.write("x.npy", npy(described("(5,)"), floats(range(5))))
        for arguments, word in [
            ([], "name of a file is missing"),
            ([path, "--codec", "direct:bots=4"], "bots"),
            ([path, "--codec", " ; "], "list of codecs is empty"),
            ([path, "--frobnicate"], "--frobnicate"),
        ]:
            done = self.run_it(*arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn(word, done.stderr)
        self.assert_fails(
            self.run_it(self.path("nothing")), 1, self.path("nothing"), "No such file"
        )
        empty = self.write("empty", safetensors('{"__metadata__": {}}'))
        self.assert_fails(self.run_it(empty), 1, "have no tensors")
        self.assert_fails(self.run_it("/dev/zero"), 1, "no regular file")
        self.assert_fails(self.run_it(path, "--picture", "/nowhere/x.svg"), 1, "/nowhere/x.svg")
        self.assert_fails(self.run_it(path, "--picture", "/dev/full"), 1, "picture", "incomplete")
        with open("/dev/full", "w") as full:
            done = self.run_it(path, stdout=full)
        self.assert_fails(done, 1, "standard output")

    def test_the_table_fits(self):
        values = [(i * 7919 % 1009 - 500) * 10.0 ** (i % 60 - 30) for i in range(4096)]
        values[5] = float("nan")
        path = self.write("long" * 12 + ".npy", npy(described("(64, 64)"), floats(values)))
        os.chdir(self.directory)
        codecs = "all raw:f16 direct:form=step,step=0.333,rounding=dither,entropy=rans,group=sample"
        for codec in (codecs[:3], codecs[4:]):
            done = self.run_it(os.path.basename(path), "--codec", codec)
            self.assertEqual(done.returncode, 0, done.stderr)
            for line in done.stdout.splitlines():
                self.assertLessEqual(len(line), 100, line)
                self.assertEqual(line, line.rstrip())

    def test_the_picture_has_a_mark_for_each_codec(self):
        tensors = {f"t<{i}&": ("F32", [2, 64], floats(range(i, 128 + i))) for i in range(13)}
        path, picture = self.write("x", packed(**tensors)), self.path("x.svg")
        done = self.run_it(path, "--picture", picture, "--codec", "mx raw:f32 direct:bits=3")
        self.assertEqual(done.returncode, 0)
        self.assertIn("shows the first 12 of 13 tensors", done.stderr)
        drawn = xml.dom.minidom.parse(picture)
        self.assertEqual(len(drawn.getElementsByTagName("circle")), 12 * 3)
        path16 = self.write("y", packed(a=("F16", [1, 2], b"\xff\x7b\x00\x3c")))  # 65504 is lost
        self.figures(path16, "--codec", "raw:bf16", "--picture", self.path("y.svg"))
        with open(self.path("y.svg")) as file:
            self.assertNotIn("exact", file.read())
        texts = [node.firstChild.data for node in drawn.getElementsByTagName("text")]
        self.assertEqual(texts.count("direct:bits=3"), 12)
        self.assertEqual(texts.count("raw:f32 (exact)"), 12)
        self.assertIn(f"{path}: t<0&", texts)
        height = float(drawn.documentElement.getAttribute("height"))
        width = float(drawn.documentElement.getAttribute("width"))
        for circle in drawn.getElementsByTagName("circle"):
            self.assertTrue(0 < float(circle.getAttribute("cx")) < width)
            self.assertTrue(0 < float(circle.getAttribute("cy")) < height)

    def test_the_picture_replaces_no_tensors_and_is_xml_with_any_name(self):
        name = "a" + "\u00e9" * 150  # cut in the middle of a character
        whole = packed(**{name: ("F32", [1, 2], floats([1, 2]))})
        path, picture = self.write("x", whole), self.path("x.svg")
        done = self.run_it(path, "--picture", path)
        self.assert_fails(done, 2, "names a file of tensors")
        with open(path, "rb") as file:
            self.assertEqual(file.read(), whole)
        self.assertEqual(self.run_it(path, "--picture", picture).returncode, 0)
        xml.dom.minidom.parse(picture)


if __name__ == "__main__":
    unittest.main()
