# SPDX-License-Identifier: Apache-2.0
# varying_rates.py - VaryingRates: the links of a SlowNetwork are faster and slower at times.
"""What links that are shared with others do: each one has its own rate, which changes."""

import contextlib
import random
import subprocess
import threading
import time

from slow_network import SlowNetwork


class VaryingRates:
    """Inside the `with` block, every PAUSE seconds the link of one rank, chosen at random, gets a
    new rate in both directions, between LEAST and 1 times `rate`. Every block has the same sequence
    of rates, except that it begins with those that the links have. Its end raises if tc failed.

    network: a SlowNetwork that is open. rate: in bits per second.
    """

    PAUSE = 0.02
    LEAST = 0.3

    def __init__(self, network, rate):
        self.network, self.rate = network, rate
        self._tcs = []  # of the hub and of each rank
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._change_rates)

    def _change_rates(self):
        chance, due = random.Random(1), time.monotonic()
        while not self._ends.wait(max(0, due - time.monotonic())):
            due += self.PAUSE
            rank = chance.randrange(len(self.network.names))
            limit = SlowNetwork.limit(f"{round(self.rate * chance.uniform(self.LEAST, 1))}bit")
            for tc, end in ((0, f"leg{rank}"), (1 + rank, self.network.INTERFACE)):
                with contextlib.suppress(BrokenPipeError):  # it has failed: see __exit__
                    print(f"qdisc change dev {end} {limit}", file=self._tcs[tc].stdin, flush=True)

    def __enter__(self):
        # One tc for each namespace reads all changes; to start one for each takes too much time.
        for name in (self.network.hub, *self.network.names):
            words = ["tc", "-n", name, "-batch", "-"]
            self._tcs.append(subprocess.Popen(words, stdin=subprocess.PIPE, text=True))
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ends.set()
        self._thread.join()
        for tc in self._tcs:
            with contextlib.suppress(BrokenPipeError):
                tc.stdin.close()
        if any([tc.wait() for tc in self._tcs]):  # waits for all
            raise RuntimeError("tc could not change the rates of the links")
