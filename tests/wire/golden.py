#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# golden.py - runs the second decoder over the golden frames, first as it is, then with each of its
# deliberate errors ("breaks").
"""golden/ contains frames that the library made, golden_page/ frames that spec_encoder.py made from
docs/format.md. First the correct decoder runs over all of them, and each file's breaks are noted,
that is, those whose names the decoder asked for on the way. A break that was not asked for cannot
change anything in that file. So each break is tried only with the files that asked for it, the
shorter ones first, up to the first mismatch."""

import functools
import json
import pathlib
import sys

import spec_decoder

here = pathlib.Path(__file__).resolve().parent


class Asked(set):
    """An empty set of breaks, which remembers the names that were looked up in it."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __contains__(self, name):
        self.names.add(name)
        return False


def whole(files):
    """{name of a file: breaks that were looked up}; ends the program at a mismatch."""
    asked, steps = {}, 0
    for name, golden in files.items():
        spec_decoder.broken = Asked()
        for what in spec_decoder.mismatches_of(golden):
            sys.exit(f"the second decoder disagrees with {name}: {what}")
        asked[name] = spec_decoder.broken.names
        steps += len(golden["steps"])
    print(f"{len(files)} files, {steps} steps: all as specified")
    return asked


def is_caught(name, files, asked):
    """Whether a decoder with this break disagrees with at least one file."""
    spec_decoder.broken = {name}
    for file, golden in files.items():
        if name not in asked[file]:
            continue
        try:
            if next(spec_decoder.mismatches_of(golden), None):
                return True
        except Exception:  # any error of a broken decoder counts
            return True
    return False


def main():
    folders = [list((here / folder).glob("*.json")) for folder in ("golden", "golden_page")]
    if not all(folders):
        sys.exit("golden frames are missing")
    paths = sorted(sum(folders, []), key=lambda path: (path.stat().st_size, path.name))
    files = {f"{path.parent.name}/{path.name}": json.loads(path.read_text()) for path in paths}
    spec_decoder.H = functools.lru_cache(maxsize=None)(spec_decoder.H)  # H itself has no breaks
    asked = whole(files)
    missed = [name for name in spec_decoder.BREAKS if not is_caught(name, files, asked)]
    known = len(spec_decoder.BREAKS)
    print(f"{known - len(missed)} of {known} breaks are caught")
    sys.exit(f"not caught: {' '.join(missed)}" if missed else 0)


if __name__ == "__main__":
    main()
