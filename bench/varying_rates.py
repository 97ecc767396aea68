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
        self._ends = threading.Event()
        self._failed = False
        self._thread = threading.Thread(target=self._change_rates)

    def _change_rates(self):
        # One tc for each namespace reads all changes; to start one for each takes too much time.
        namespaces = [self.network.hub, *self.network.names]
        tcs = [
            subprocess.Popen(["tc", "-n", name, "-batch", "-"], stdin=subprocess.PIPE, text=True)
            for name in namespaces
        ]
        try:
            self._tell(tcs)
        except BrokenPipeError:
            self._failed = True
        for tc in tcs:
            with contextlib.suppress(BrokenPipeError):
                tc.stdin.close()
            self._failed |= tc.wait() != 0

    def _tell(self, tcs):
        chance, due = random.Random(1), time.monotonic()
        while not self._ends.wait(max(0, due - time.monotonic())):
            due += self.PAUSE
            rank = chance.randrange(len(self.network.names))
            limit = SlowNetwork.limit(f"{round(self.rate * chance.uniform(self.LEAST, 1))}bit")
            for tc, end in ((tcs[0], f"leg{rank}"), (tcs[1 + rank], self.network.INTERFACE)):
                print(f"qdisc change dev {end} {limit}", file=tc.stdin, flush=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ends.set()
        self._thread.join()
        if self._failed:
            raise RuntimeError("tc could not change the rates of the links")
