# SPDX-License-Identifier: Apache-2.0
# results.py - results.jsonl: what was trained already, one line for each training.
from __future__ import annotations

import hashlib
import json
import os
import pathlib
import subprocess
from typing import Optional

import deltawire

ROOT = pathlib.Path(__file__).resolve().parents[2]


def library() -> str:
    """The library that makes the frames, by its bytes. A commit that changes only other files
    leaves results valid, and a change that is not committed does not."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        paths = {line.split(maxsplit=5)[5].strip() for line in maps if "/libdeltawire.so" in line}
    (path,) = paths
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:12]


def source() -> str:
    """What git calls the source, for readers; "" without git."""
    words = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


class Results:
    """The file of all results. A line has "settings", which determine the result, and "epochs"."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self.found: dict[str, list] = {}
        if not path.exists():
            return
        whole = path.read_bytes()
        # The program may have been ended while it wrote the last line: then that is dropped.
        kept = whole[: whole.rfind(b"\n") + 1]
        if len(kept) != len(whole):
            os.truncate(path, len(kept))
        for line in kept.splitlines():
            one = json.loads(line)
            self.found[self._key(one["settings"])] = one["epochs"]

    @staticmethod
    def _key(settings: dict) -> str:
        return json.dumps(settings, sort_keys=True)

    def get(self, settings: dict) -> Optional[list]:
        return self.found.get(self._key(settings))

    def add(self, settings: dict, epochs: list) -> None:
        line = {"settings": settings, "epochs": epochs, "source": source()}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, sort_keys=True) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.found[self._key(settings)] = epochs
