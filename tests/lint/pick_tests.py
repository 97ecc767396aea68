#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# pick_tests.py - selects Meson's tests by suites and by a regular expression.
"""Reads `meson introspect --tests` from stdin, and prints "project:name" per line for `meson test`.

--suites: "*" selects all; "a,b" those in a or b; "-" in front of a suite excludes it: "*,-lint".
  The suite few contains shorter runs: where it is named, NAME_few takes the place of NAME.
--filter: a regular expression that is searched in "suite/name"; if empty, it selects all.
--programs DIRECTORY: only tests whose command was built there, and no scripts; for valgrind.
--targets BUILD: prints what Ninja must build for these tests instead, relative to BUILD. With
  --suites everything: all but the programs of long tests, which Meson would build as well.
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


def without_longer(tests, suites):
    """Where the suite few is asked for, NAME goes if NAME_few is there."""
    shorter = {test["name"] for test in tests} if "few" in suites.split(",") else ()
    return [test for test in tests if f"{test['name']}_few" not in shorter]


def pick(*which):
    """The names of the tests as `meson test` expects them."""
    for test in without_longer(list(picked(*which)), which[1]):
        yield f"{test['suite'][0].split(':')[0]}:{test['name']}"


def targets_of(tests, targets, build):
    """The files that these tests need, relative to the folder of the build."""
    wanted = {name for test in tests for name in test["depends"]}
    return files_of([target for target in targets if target["id"] in wanted], build)


def files_of(targets, build):
    files = [name for target in targets for name in target["filename"]]
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
        text = pathlib.Path(options.targets, "meson-info", "intro-targets.json").read_text()
        known = json.loads(text)
        if options.suites == "everything":
            found = files_of([one for one in known if one["build_by_default"]], options.targets)
        else:
            found = targets_of(picked(*which), known, options.targets)
    else:
        found = pick(*which)
    for name in found:
        print(name)


if __name__ == "__main__":
    main()
