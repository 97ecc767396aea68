#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# pick_tests.py - which of Meson's tests belong to some suites and match a regular expression.
"""Reads `meson introspect --tests` on stdin and prints "project:name" per line for `meson test`.

--suites: "*" takes all; "a,b" those in a or b; a leading "-" leaves a suite out: "*,-house".
--filter: searched in "suite/name"; empty picks all.
--programs DIRECTORY: only tests whose command was built there, no scripts: for valgrind.
"""

import argparse
import json
import re
import sys


def pick(tests, suites, pattern, programs=""):
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
            yield f"{test['suite'][0].split(':')[0]}:{test['name']}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--suites", default="*")
    parser.add_argument("--filter", default="")
    parser.add_argument("--programs", default="")
    options = parser.parse_args()
    try:
        pattern = re.compile(options.filter)
    except re.error as error:
        print(
            f"run: --filter '{options.filter}' is not a regular expression: {error}",
            file=sys.stderr,
        )
        sys.exit(2)
    for name in pick(json.load(sys.stdin), options.suites, pattern, options.programs):
        print(name)


if __name__ == "__main__":
    main()
