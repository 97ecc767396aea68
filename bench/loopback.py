# SPDX-License-Identifier: Apache-2.0
# loopback.py - Loopback: a network without a limit, for ranks on one machine.
"""The same interface as SlowNetwork of slow_network.py."""

import os
import subprocess


class Loopback:
    """The loopback interface of a namespace of its own, so that its counters count these ranks
    alone. Without root: that of this machine. The end of the `with` block removes the namespace."""

    INTERFACE = "lo"

    def __init__(self):
        self.name = f"dwloop{os.getpid()}" if os.geteuid() == 0 else None

    @staticmethod
    def address(_rank):
        return "127.0.0.1"

    def command(self, _rank, command):
        """The words that run a command where the ranks are."""
        return [*(["ip", "netns", "exec", self.name] if self.name else []), *command]

    def __enter__(self):
        if self.name:
            subprocess.run(["ip", "netns", "add", self.name], check=True)
            subprocess.run(["ip", "-n", self.name, "link", "set", "lo", "up"], check=True)
        return self

    def __exit__(self, *_):
        if self.name:
            subprocess.run(["ip", "netns", "del", self.name], stderr=subprocess.DEVNULL)
