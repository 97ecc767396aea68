# SPDX-License-Identifier: Apache-2.0
# scratch.py - what the tests of the `deltawire` program share: a new directory for each test, with
# a text to train on, a short notation for options, and programs with pipes.
import os
import re
import shutil
import subprocess
import tempfile
import unittest


def options(**values):
    """options(layers=2, held_out=6) is ["--layers", "2", "--held-out", "6"]."""
    return [
        word
        for name, value in values.items()
        for word in ("--" + name.replace("_", "-"), str(value))
    ]


def run(*command, **more):
    """Runs a command to its end. Returns the process, with what it printed as texts."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.run(command, **{"timeout": 120, **pipes, **more})


def start(*command, **more):
    """Starts a command and does not wait for its end. Its output goes to pipes."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, **pipes, **more)


def address_of(process):
    """The address on which a process that was started says that it listens."""
    return re.match(r"listening on (\S+)", process.stdout.readline()).group(1)


SMALL = options(channels=32, heads=2, context=24, batch=8, held_out=6)


class Scratch(unittest.TestCase):
    """self.directory is created for each test and removed after it; self.text is a file in it."""

    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="deltawire-test-")
        self.text = self.path("book.txt")
        with open(self.text, "w") as file:
            for i in range(400):
                file.write(f"{i} bottles of ale stand on a wall, and {i * i % 97} fell. ")

    def tearDown(self):
        shutil.rmtree(self.directory)

    def path(self, name):
        return os.path.join(self.directory, name)
