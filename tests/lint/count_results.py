#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# count_results.py - counts the results of all parts of `./run test`, and prints one line.
"""count_results.py DIRECTORY

DIRECTORY contains Meson's *.json test logs (one JSON object per line and test program) and
builds.tsv ("pass", "fail" or "skip", a tab, what was built). A cmocka program counts as the test
functions that it says it ran; any other program counts as one test. If a program failed although
all functions that it reported passed (a crash, a leak, a sanitizer's finding), that counts as one
more failure.

Prints the failures, then "N passed, N failed, N skipped". Exits 1 after a failure, or if no test
ran."""

import json
import pathlib
import re
import sys

CMOCKA = re.compile(r"^\[  (PASSED|FAILED|SKIPPED) +\] (\d+) test\(s\)", re.M)
BAD = {"FAIL", "TIMEOUT", "ERROR", "INTERRUPT", "UNEXPECTEDPASS"}


def count_program(entry):
    """(passed, failed, skipped) of one test program in Meson's log."""
    counts = {"PASSED": 0, "FAILED": 0, "SKIPPED": 0}
    output = (entry.get("stdout") or "") + "\n" + (entry.get("stderr") or "")
    for word, number in CMOCKA.findall(output):
        counts[word] += int(number)
    passed, failed, skipped = counts["PASSED"], counts["FAILED"], counts["SKIPPED"]
    result = entry["result"]
    if result in BAD:
        return passed, max(failed, 1), skipped
    if result == "SKIP":
        return 0, 0, max(passed + failed + skipped, 1)
    if failed:  # it reports failures and yet exits with 0: the failures count
        return passed, failed, skipped
    return max(passed, 1 if not skipped else 0), 0, skipped


def count_directory(directory):
    totals, failures, programs = [0, 0, 0], [], 0
    builds = directory / "builds.tsv"
    if builds.exists():
        for line in builds.read_text().splitlines():
            verdict, name = line.split("\t", 1)
            totals[{"pass": 0, "skip": 2}.get(verdict, 1)] += 1
            if verdict == "skip":
                print(f"SKIPPED {name}")
            elif verdict != "pass":
                failures.append(name)
    for log in sorted(directory.glob("*.json")):
        for line in log.read_text(errors="replace").splitlines():
            entry = json.loads(line)
            programs += 1
            counts = count_program(entry)
            totals = [a + b for a, b in zip(totals, counts)]
            if counts[1]:
                failures.append(f"{log.stem}: {entry['name']} ({entry['result'].lower()})")
    return totals, failures, programs


def main():
    totals, failures, programs = count_directory(pathlib.Path(sys.argv[1]))
    for failure in failures:
        print(f"FAILED {failure}")
    print("{} passed, {} failed, {} skipped".format(*totals))
    if programs == 0:
        sys.exit("run: not one test was run: nothing has that name, or nothing could be built")
    sys.exit(1 if totals[1] else 0)


if __name__ == "__main__":
    main()
