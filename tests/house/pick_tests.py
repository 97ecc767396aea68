#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# pick_tests.py - selects Meson's tests by suites and by a regular expression.
"""Reads `meson introspect --tests` from stdin, and prints "project:name" per line for `meson test`.

--suites: "*" selects all; "a,b" those in a or b; "-" in front of a suite excludes it: "*,-house".
--filter: a regular expression that is searched in "suite/name"; if empty, it selects all.
--programs DIRECTORY: only tests whose command was built there, and no scripts; for valgrind.
--targets BUILD: prints what Ninja must build for these tests instead, relative to BUILD.
"""

import argparse
import json
import pathlib
import re
import sys


def picked(tests, suites, pattern, programs=""):
    words = suites.split(",")
    without = {word[1:] for word in words if word.startswith("-")}
    within = {word for word in words if not word.startswith("-")}
    for test in tests:
        own = {suite.split(":")[-1] for suite in test["suite"]}
        if own & without or not ("*" in within or own & within):
            continue
        if not test.get("cmd", [""])[0].startswith(programs):
            continue
        if any(pattern.search(f"{suite}/{test['name']}") for suite in own):
            yield test


def pick(*which):
    """The names of the tests as `meson test` expects them."""
    for test in picked(*which):
        yield f"{test['suite'][0].split(':')[0]}:{test['name']}"


def targets_of(tests, targets, build):
    """The files that these tests need, relative to the folder of the build."""
    wanted = {name for test in tests for name in test["depends"]}
    files = [name for target in targets if target["id"] in wanted for name in target["filename"]]
    return sorted(str(pathlib.PurePath(name).relative_to(build)) for name in files)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--suites", default="*")
    parser.add_argument("--filter", default="")
    parser.add_argument("--programs", default="")
    parser.add_argument("--targets", default="")
    options = parser.parse_args()
    try:
        pattern = re.compile(options.filter)
    except re.error as error:
        print(
            f"run: --filter '{options.filter}' is not a regular expression: {error}",
            file=sys.stderr,
        )
        sys.exit(2)
    which = json.load(sys.stdin), options.suites, pattern, options.programs
    if options.targets:
        known = pathlib.Path(options.targets, "meson-info", "intro-targets.json").read_text()
        found = targets_of(picked(*which), json.loads(known), options.targets)
    else:
        found = pick(*which)
    for name in found:
        print(name)


if __name__ == "__main__":
    main()
