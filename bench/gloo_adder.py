#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# gloo_adder.py - what bench_group.c measures, with torch.distributed's gloo. Needs torch.
"""gloo_adder.py --rank R --ranks D --address IP --port P --interface NAME
    --sizes BYTESxREPEATS,... --out PREFIX: writes the same lines as bench_group."""

import argparse
import os
import pathlib
import re
import subprocess
import time

WARM_UPS = 3  # as in bench_group.c


def sent_bytes(interface):
    """The number of bytes that the kernel has sent, as in bench_group.c."""
    if interface == "lo":
        return int(pathlib.Path("/sys/class/net/lo/statistics/tx_bytes").read_text())
    words = ["tc", "-s", "qdisc", "show", "dev", interface]
    shown = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    return int(re.search(r"Sent (\d+) bytes", shown)[1])


def sent_between(dist, interface):
    """The bytes sent so far, while no rank sends anything else."""
    dist.barrier()
    sent = sent_bytes(interface)
    dist.barrier()
    return sent


def measure(dist, torch, given, size, repeats):
    """Returns the line for one size."""
    values = torch.randn(size // 4) * 1e-3
    for _ in range(WARM_UPS):
        dist.all_reduce(values)
        values *= 1e-3  # repeated sums grow
    sent = sent_between(dist, given.interface)
    begun = time.monotonic()
    for _ in range(repeats):
        dist.all_reduce(values)
    seconds = time.monotonic() - begun
    sent = sent_between(dist, given.interface) - sent
    return f"{size} {seconds / repeats:.9f} {sent / repeats:.1f} 0 0\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", type=int)
    parser.add_argument("--ranks", type=int)
    parser.add_argument("--address")
    parser.add_argument("--port")
    parser.add_argument("--interface")
    parser.add_argument("--sizes")
    parser.add_argument("--out")
    given = parser.parse_args()
    os.environ["GLOO_SOCKET_IFNAME"] = given.interface
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"tcp://{given.address}:{given.port}",
        rank=given.rank,
        world_size=given.ranks,
    )
    with open(f"{given.out}.{given.rank}", "w", encoding="ascii") as out:
        for word in given.sizes.split(","):
            size, repeats = map(int, word.split("x"))
            out.write(measure(dist, torch, given, size, repeats))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
