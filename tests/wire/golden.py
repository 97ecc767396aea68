#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# golden.py - runs the second decoder over the golden frames, first as it is, then with each of its
# deliberate errors ("breaks").
"""golden/ contains frames that the library made, golden_page/ frames that spec_encoder.py made from
docs/format.md. First the correct decoder runs over all of them, and each file's breaks are noted,
that is, those whose names the decoder asked for on the way. A break that was not asked for cannot
change anything in that file. So each break is tried only with the files that asked for it, the
shorter ones first, up to the first mismatch. Files and breaks are shared out among processes, one
for each core."""

import functools
import json
import multiprocessing
import pathlib
import sys

import spec_decoder

here = pathlib.Path(__file__).resolve().parent
files = {}  # the golden frames by name, the shortest first; set before the processes begin


class Asked(set):
    """An empty set of breaks, which remembers the names that were looked up in it."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __contains__(self, name):
        self.names.add(name)
        return False


def read_whole(name):
    """The breaks that are looked up while a file is decoded, and the first mismatch or None."""
    spec_decoder.broken = Asked()
    what = next(iter(spec_decoder.mismatches_of(files[name])), None)
    return spec_decoder.broken.names, what


def is_caught(task):
    """Whether a decoder with this break disagrees with at least one of these files."""
    name, names = task
    spec_decoder.broken = {name}
    for file in names:
        try:
            if next(iter(spec_decoder.mismatches_of(files[file])), None):
                return True
        except Exception:  # any error of a broken decoder counts
            return True
    return False


def check(pool):
    """Ends the program at a mismatch. Returns the breaks that no file catches."""
    asked = {}
    for name, (names, what) in zip(files, pool.imap(read_whole, files)):
        if what:
            sys.exit(f"the second decoder disagrees with {name}: {what}")
        asked[name] = names
    steps = sum(len(golden["steps"]) for golden in files.values())
    print(f"{len(files)} files, {steps} steps: all as specified", flush=True)
    breaks = list(spec_decoder.BREAKS)
    tasks = [(one, [file for file in files if one in asked[file]]) for one in breaks]
    return [one for one, caught in zip(breaks, pool.imap(is_caught, tasks)) if not caught]


def main():
    folders = [list((here / folder).glob("*.json")) for folder in ("golden_page",)]
    if not all(folders):
        sys.exit("golden frames are missing")
    paths = sorted(sum(folders, []), key=lambda path: (path.stat().st_size, path.name))
    for path in paths:
        files[f"{path.parent.name}/{path.name}"] = json.loads(path.read_text())
    spec_decoder.H = functools.lru_cache(maxsize=None)(spec_decoder.H)  # H itself has no breaks
    with multiprocessing.get_context("fork").Pool() as pool:  # after the files have been read
        missed = check(pool)
    known = len(spec_decoder.BREAKS)
    print(f"{known - len(missed)} of {known} breaks are caught")
    sys.exit(f"not caught: {' '.join(missed)}" if missed else 0)


if __name__ == "__main__":
    main()
