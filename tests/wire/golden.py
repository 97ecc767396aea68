#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# golden.py - runs the second decoder over the golden frames, whole and with every break that it
# knows.
"""golden/ are the frames that the library makes, golden_page/ those that spec_encoder.py made by
the page. With a break on, the shorter files come first: the first mismatch is enough."""

import pathlib
import subprocess
import sys

here = pathlib.Path(__file__).resolve().parent
paths = list((here / "golden").glob("*.json"))
page = list((here / "golden_page").glob("*.json"))
files = [str(p) for p in sorted(paths + page, key=lambda p: (p.stat().st_size, p.name))]
decoder = [sys.executable, str(here / "spec_decoder.py")]

whole = subprocess.run(decoder + files, capture_output=True, text=True)
print(whole.stdout[-4000:], whole.stderr[-4000:])
if whole.returncode != 0 or not paths or not page:
    sys.exit("the second decoder disagrees with the golden frames")

breaks = subprocess.run(
    decoder + ["--list-breaks"], capture_output=True, text=True, check=True
).stdout.split()
missed = [
    b
    for b in breaks
    if subprocess.run(decoder + ["--stop", "--break", b] + files, capture_output=True).returncode
    == 0
]
print(f"{len(breaks) - len(missed)} of {len(breaks)} breaks are caught")
sys.exit(f"not caught: {' '.join(missed)}" if missed else 0)
