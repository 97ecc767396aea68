#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# check_collective.py - tests collective.py with small buffers on the loopback interface, and links
# whose rates vary.
"""usage: check_collective.py BUILD, the folder of bench_group. Times are not judged; the bytes that
the kernel counted are."""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time

from collective import CONGESTION
from loopback import without_namespaces
from slow_network import SlowNetwork
from varying_rates import VaryingRates

SIZE = 1 << 20


def mbit(namespace, interface):
    """The rate of an interface."""
    show = ["tc", "-n", namespace, "qdisc", "show", "dev", interface]
    shown = subprocess.run(show, capture_output=True, text=True, check=True).stdout
    number, unit = re.search(r"rate ([0-9.]+)([KMG]?)bit", shown).groups()
    return float(number) * {"": 1e-6, "K": 1e-3, "M": 1, "G": 1e3}[unit]


def check_rates():
    """The rates of both directions of all links change, and stay within their range."""
    with SlowNetwork(2, "1gbit") as network:
        ends = [(name, network.INTERFACE) for name in network.names]
        ends += [(network.hub, "leg0"), (network.hub, "leg1")]
        assert [mbit(*end) for end in ends] == [1000] * 4
        least = fastest = 1000  # of all rates, and of the faster of the two links
        with VaryingRates(network, 1e9):
            for _ in range(40):
                time.sleep(0.05)
                found = [mbit(*end) for end in ends]
                least, fastest = min(least, *found), min(fastest, max(found))
        assert 300 <= least < fastest < 1000, (least, fastest)
        found = [mbit(*end) for end in ends]
        assert found[:2] == found[2:] and found[0] != found[1], found


def main():
    why = without_namespaces()
    systems_tcp = pathlib.Path(CONGESTION).read_text()
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "out.json"
        script = pathlib.Path(__file__).with_name("collective.py")
        words = f"--networks loopback --ranks 3 --sizes 1024 {SIZE} --rounds 1 --repeats 2".split()
        words += [] if why else ["--congestion", "reno"]
        done = subprocess.run(
            [sys.executable, script, "--build", sys.argv[1], *words, "--out", out],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        (found,) = json.loads(out.read_text())
        assert out.with_suffix(".png").stat().st_size > 1000
    lines = [line.strip("| ").split(" | ") for line in done.stdout.splitlines()]
    assert [line[0] for line in lines if len(line) > 4] == ["buffer", "1 KiB", "1 MiB"], lines
    sent = {name: figures[str(SIZE)][1] for name, figures in found["figures"].items()}
    # In a namespace of its own the interface carries nothing else. 2 (D - 1) / D of a buffer is the
    # least that a rank sends.
    least = 2 * (3 - 1) / 3 * SIZE
    for name, one in sent.items():
        assert one >= least / (10 if "codec" in name or "bits" in name else 1), (name, one, least)
    if not why:
        assert sent["raw:f32"] < 1.1 * least, sent
        assert found["tcp"] == "reno", found["tcp"]
        assert pathlib.Path(CONGESTION).read_text() == systems_tcp, "the system's setting changed"
        check_rates()
    else:
        print(f"not checked: bytes of one interface, --congestion and rates, for {why}")


if __name__ == "__main__":
    main()
