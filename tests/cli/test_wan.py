#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# test_wan.py - training gives the same losses over a network that cuts connections as over one that
# does not.
import json
import os
import re
import select
import socket
import subprocess
import sys
import threading
import time
import unittest

import scratch

PROGRAM = sys.argv.pop(1)
HAS_TLS = sys.argv.pop(1) == "tls"
SMALL = [
    *scratch.options(layers=2, samples=64, epochs=3),
    *scratch.SMALL,
    *scratch.options(forward="delta:bits=3", backward="direct:bits=6"),
]


class Proxy(threading.Thread):
    """Forwards connections to the given port, and cuts them. cuts: a list of (after how many
    forwarded bytes, whether to cut "one" or "all" connections, for how many seconds to refuse new
    ones)."""

    def __init__(self, port, cuts):
        super().__init__(daemon=True)
        self.to, self.cuts, self.done, self.moved, self.accepted = port, list(cuts), 0, 0, 0
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        self.pairs, self.refuses_until, self.stop = {}, 0, False
        self.start()

    def close(self, near):
        for end in (near, self.pairs.pop(near, None)):
            if end is not None:
                self.pairs.pop(end, None)
                end.close()

    def accept(self):
        near, _ = self.listener.accept()
        if time.monotonic() < self.refuses_until:
            near.close()
            return
        try:
            far = socket.create_connection(("127.0.0.1", self.to))
        except OSError:
            near.close()
            return
        self.accepted += 1
        self.pairs.update({near: far, far: near})

    def carry(self, near):
        try:
            data = near.recv(65536)
            if not data:
                raise ConnectionError
            self.pairs[near].sendall(data)
            self.moved += len(data)
        except OSError:
            self.close(near)

    def cut(self):
        if not self.cuts or self.moved < self.cuts[0][0] or len(self.pairs) < 2:
            return
        _, how, seconds = self.cuts.pop(0)
        self.done += 1
        if how == "all":
            self.refuses_until = time.monotonic() + seconds
        for near in list(self.pairs)[:1] if how == "one" else list(self.pairs):
            self.close(near)

    def run(self):
        while not self.stop:
            for near in select.select([self.listener, *self.pairs], [], [], 0.05)[0]:
                if near is self.listener:
                    self.accept()
                elif near in self.pairs:
                    self.carry(near)
                self.cut()
        for near in list(self.pairs):
            self.close(near)
        self.listener.close()


class Wan(scratch.Scratch):
    def train(self, name, cuts, options="?grace=60s", key=()):
        """Runs two ranks with a proxy between them; returns their losses and the proxy."""
        log = os.path.join(self.directory, name)
        first = subprocess.Popen(
            [
                PROGRAM,
                "train",
                "--text",
                self.text,
                *SMALL,
                *key,
                "--rank",
                "0",
                "--stages",
                "2",
                "--log",
                log,
                "--listen",
                "tcp://127.0.0.1:0" + options,
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        port = int(re.match(r"listening on \S+:(\d+)", first.stdout.readline()).group(1))
        proxy = Proxy(port, cuts)
        second = subprocess.run(
            [
                PROGRAM,
                "train",
                "--text",
                self.text,
                *SMALL,
                *key,
                "--rank",
                "1",
                "--stages",
                "2",
                "--connect",
                f"tcp://127.0.0.1:{proxy.port}{options}",
            ],
            capture_output=True,
            text=True,
            timeout=200,
        )
        output = first.communicate(timeout=100)[0]
        proxy.stop = True
        proxy.join()
        self.assertEqual((first.returncode, second.returncode), (0, 0), output + second.stderr)
        with open(log) as file:
            lines = [json.loads(line) for line in file]
        losses = [
            (line["event"], line.get("step"), line["loss"]) for line in lines if "loss" in line
        ]
        self.assertGreater(len(losses), 20)
        return losses, proxy

    def test_cuts_change_no_bit_of_any_loss(self):
        whole, untouched = self.train("whole", [])
        size = untouched.moved
        cuts = [
            (size // 10, "one", 0),
            (size // 5, "all", 1.0),
            (size // 3, "one", 0),
            (size // 2, "all", 0),
            (size * 3 // 4, "one", 0),
        ]
        ways = [("?grace=60s", []), ("?grace=60s&stripes=1", [])]
        key = os.path.join(self.directory, "run.key")
        if HAS_TLS:
            subprocess.run([PROGRAM, "keygen", key], check=True)
            ways.append(("?grace=60s", ["--group-key", key]))
        for options, key in ways:
            cut, proxy = self.train("cut", cuts, options, key)
            self.assertEqual(proxy.done, len(cuts))
            self.assertGreater(proxy.accepted, 3)
            self.assertEqual(cut, whole)


if __name__ == "__main__":
    unittest.main()
