# SPDX-License-Identifier: Apache-2.0
# loopback.py - Loopback: a network without a limit, for ranks on one machine.
"""The same interface as SlowNetwork of slow_network.py."""

import os
import subprocess
import sys


def without_namespaces():
    """Why no network namespaces can be made here: a sentence, or None."""
    name = f"dwprobe{os.getpid()}"
    try:
        for command in f"ip netns add {name}", f"ip netns exec {name} unshare --uts true":
            subprocess.run(command.split(), check=True, capture_output=True, text=True)
    except FileNotFoundError:
        return "ip is not installed (iproute2)"
    except subprocess.CalledProcessError as error:
        return f"this machine allows no network namespaces ({' '.join(error.stderr.split())})"
    finally:
        subprocess.run(f"ip netns del {name} 2>/dev/null", shell=True)
    return None


class Loopback:
    """The loopback interface of a namespace of its own, so that its counters count these ranks
    alone. Where none can be made: that of this machine. The end of the `with` block removes the
    namespace."""

    INTERFACE = "lo"

    def __init__(self):
        why = without_namespaces()
        if why:
            print(f"other programs' traffic is counted, too: {why}", file=sys.stderr)
        self.name = None if why else f"dwloop{os.getpid()}"

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
