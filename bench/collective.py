#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# collective.py - measures all-reduces by groups beside those of MPI and of torch's gloo.
"""Adds buffers of several sizes over several ranks: by a group with raw:f32 and with a codec, by
MPI_Allreduce of Open MPI and MPICH through TCP, and by torch.distributed with gloo. All take turns
on the same networks: the loopback interface, and ranks in namespaces of their own whose links are
limited by tc (veth and tbf, which need root), to a rate that varies if that is wanted. Writes
tables, JSON and a picture."""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from loopback import Loopback, without_namespaces
from markdown_table import markdown
from slow_network import SlowNetwork
from varying_rates import VaryingRates

HERE = pathlib.Path(__file__).resolve().parent
# Bits per second. VARYING: of rates between that and 0.3 times as much (varying_rates.py).
VARYING = "-varying"
RATES = {"loopback": None, "1gbit": 1e9, "100mbit": 1e8}
RATES |= {name + VARYING: rate for name, rate in RATES.items() if rate}
USUAL = [name for name in RATES if not name.endswith(VARYING)]
SIZES = [1 << 10, 1 << 15, 1 << 20, 1 << 24, 1 << 26, 1 << 28]
CODEC = "direct:bits=4,feedback=ef"
ONE_HOP = "the codec in one hop"
PARTING_SECONDS = 10
ENOUGH_SECONDS = 5  # for the sums of one size
LOOPBACK_RATE = 4e9  # a guess, from which only the number of repetitions follows
CONGESTION = "/proc/sys/net/ipv4/tcp_congestion_control"  # each namespace has its own
ALLOWED = pathlib.Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
MPIS = {"Open MPI": "openmpi", "MPICH": "mpich"}


# ---- Who adds


class Group:
    """Our group: one process for each rank. hops: of an all-reduce."""

    def __init__(self, build, codec, hops=2):
        self.program, self.codec, self.hops = build / "bench_group", codec, hops

    def missing(self):
        """Says why it cannot be measured, or None."""
        return None if self.program.exists() else f"{self.program} was not built"

    def processes(self, network, ranks, words):
        addresses = ",".join(network.address(rank) for rank in range(ranks))
        for rank in range(ranks):
            place = ["--rank", rank, "--ranks", ranks, "--addresses", addresses]
            group = ["--codec", self.codec, "--hops", self.hops]
            yield network.command(rank, [self.program, *place, *group, *words])


class Mpi:
    """MPI_Allreduce: one launcher, which reaches the ranks' namespaces through `agent`."""

    def __init__(self, build, kind, folder):
        self.program, self.kind = build / f"bench_group_{kind}", kind
        self.agent = folder / "agent"

    def missing(self):
        there = self.program.exists() and shutil.which("mpirun." + self.kind)
        return None if there else f"{self.kind} is not installed, or was not when this was built"

    def write_agent(self, network, ranks):
        """Writes what launchers take for ssh: AGENT [OPTIONS] ADDRESS COMMAND."""
        cases = "\n".join(
            f"{network.address(rank)}) exec {' '.join(network.command(rank, ['unshare', '--uts']))}"
            f' sh -c "hostname rank{rank}; $*" ;;'
            for rank in range(ranks)
        )
        self.agent.write_text(
            "#!/bin/sh\nwhile :; do case $1 in -*) shift ;; *) break ;; esac; done\n"
            f"host=$1\nshift\ncase $host in\n{cases}\nesac\n"
        )
        self.agent.chmod(0o755)

    def processes(self, network, ranks, words):
        hosts = ",".join(network.address(rank) for rank in range(ranks))
        wire = network.INTERFACE
        is_spread = isinstance(network, SlowNetwork)
        if is_spread:
            self.write_agent(network, ranks)
        launcher = ["mpirun." + self.kind, "-n", ranks]
        if self.kind == "openmpi":
            launcher += "--allow-run-as-root --oversubscribe --bind-to none".split()
            launcher += "--mca btl tcp,self --mca mpi_yield_when_idle 1".split()
            launcher += ["--mca", "btl_tcp_if_include", wire]
            if is_spread:
                launcher += ["--mca", "oob_tcp_if_include", wire, "--host", hosts]
                launcher += ["--mca", "plm_rsh_agent", self.agent]
        else:
            launcher += "-genv MPIR_CVAR_NOLOCAL 1 -genv UCX_TLS tcp,self".split()
            launcher += ["-genv", "UCX_NET_DEVICES", wire]
            if is_spread:
                launcher += ["-launcher", "ssh", "-launcher-exec", self.agent]
                launcher += ["-hosts", hosts, "-iface", wire]
        whole = [*launcher, self.program, *words]
        if is_spread:  # launchers compare host names to find out what runs on their own machine
            line = " ".join(map(str, whole))
            whole = ["unshare", "--uts", "sh", "-c", f"hostname rank0; exec {line}"]
        yield network.command(0, whole)


class Gloo:
    """torch.distributed, whose torch is in a virtual environment."""

    def __init__(self, python):
        self.python = python

    def missing(self):
        if not self.python:
            return "--torch names no Python that has torch"
        has_torch = subprocess.run([self.python, "-c", "import torch"], stderr=subprocess.DEVNULL)
        return f"{self.python} has no torch" if has_torch.returncode else None

    def processes(self, network, ranks, words):
        for rank in range(ranks):
            place = ["--rank", rank, "--ranks", ranks, "--address", network.address(0)]
            program = [self.python, HERE / "gloo_adder.py", *place, "--port", 29500, *words]
            yield network.command(rank, program)


# ---- Measuring


def least_seconds(network, ranks, size):
    """How long the wire needs for what each rank must send without a codec: 2 (D - 1) / D of it."""
    return 2 * (ranks - 1) / ranks * size * 8 / (RATES[network] or LOOPBACK_RATE)


def sizes_text(given, network, ranks, first_round):
    """Which sizes are measured in a round, and how many times. Very long sums are in one round. Few
    sums would not tell what one costs in a long row of them: a rank that is ready early begins the
    next one while others end the last."""
    words = []
    for size in given.sizes:
        seconds = least_seconds(network, ranks, size) + 1e-3
        if first_round or seconds < ENOUGH_SECONDS:
            words.append(f"{size}x{max(1, min(given.repeats, round(ENOUGH_SECONDS / seconds)))}")
    return ",".join(words)


def ranks_files(folder):
    return sorted(folder.glob("rank.*"))


def is_complete(folder, ranks, n_sizes):
    """Whether all ranks have written a line for each size."""
    files = ranks_files(folder)
    return len(files) == ranks and all(
        file.read_text().count("\n") == n_sizes for file in files
    )


def wait_for(running, is_complete, name):
    """Waits until all processes have ended. Those that have written all figures and do not end (as
    MPICH's launcher sometimes does) are stopped; a failure ends the program."""
    complete_at = None
    try:
        while any(process.poll() is None for process in running):
            if any(process.poll() for process in running):
                sys.exit(f"failed: {name}")
            if complete_at is None and is_complete():
                complete_at = time.monotonic()
            if complete_at is not None and time.monotonic() > complete_at + PARTING_SECONDS:
                return
            time.sleep(0.05)
        if any(process.poll() for process in running) or not is_complete():
            sys.exit(f"failed: {name}")
    finally:
        for process in running:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def run(adder, network, ranks, words, folder):
    """Runs all ranks once. Returns {size: [seconds, sent bytes, coding, waiting]}: the seconds of
    the slowest rank, and of the other figures the mean over the ranks."""
    prefix = folder / "rank"
    for old in folder.glob("rank.*"):
        old.unlink()
    n_sizes = words[words.index("--sizes") + 1].count(",") + 1
    words = [*words, "--interface", network.INTERFACE, "--out", prefix]
    commands = [list(map(str, one)) for one in adder.processes(network, ranks, words)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    # Linux schedules each session as a group. mpirun's ranks are in one, so all others are, too.
    running = [
        subprocess.Popen(one, env=environment, stdin=subprocess.DEVNULL, stdout=2, process_group=0)
        for one in commands
    ]
    wait_for(running, lambda: is_complete(folder, ranks, n_sizes), " ".join(commands[0]))
    lines = [
        [list(map(float, line.split())) for line in file.read_text().splitlines()]
        for file in ranks_files(folder)
    ]
    found = {}
    for of_ranks in zip(*lines, strict=True):
        columns = list(zip(*of_ranks))
        found[int(columns[0][0])] = [max(columns[1]), *map(statistics.mean, columns[2:])]
    if isinstance(network, Loopback):  # its interface counts the bytes of all ranks
        for figures in found.values():
            figures[1] /= ranks
    return found


def congestion_control(network, ranks, wanted):
    """Sets the kernel's algorithm for TCP, which decides how several connections share a link, in
    the namespaces of all ranks, if one is wanted. Returns the name of the one that is used."""
    for rank in range(ranks if wanted else 0):
        command = network.command(rank, ["tee", CONGESTION])
        done = subprocess.run(command, input=wanted, capture_output=True, text=True)
        if done.returncode:
            sys.exit(
                f"network namespaces may not use {wanted}, but only {ALLOWED.read_text()}"
                f"To allow it: sysctl net.ipv4.{ALLOWED.name}='... {wanted}'"
            )
    shown = subprocess.check_output(network.command(0, ["cat", CONGESTION]), text=True)
    return shown.strip()


def measure(given, adders, network, ranks, folder):
    """Returns {(adder, size): [median seconds, sent bytes, coding, waiting]} of one network, and
    the name of TCP's congestion control."""
    rounds, rate = {}, RATES[network]
    opened = SlowNetwork(ranks, network.removesuffix(VARYING)) if rate else Loopback()
    varies = network.endswith(VARYING)
    with opened:
        tcp = congestion_control(opened, ranks, given.congestion)
        for turn in range(given.rounds):
            words = ["--sizes", sizes_text(given, network, ranks, turn == 0)]
            for name, adder in adders.items():
                say(f"{network}, {ranks} ranks, round {turn + 1} of {given.rounds}: {name}")
                with VaryingRates(opened, rate) if varies else contextlib.nullcontext():
                    found = run(adder, opened, ranks, words, folder)
                for size, figures in found.items():
                    rounds.setdefault((name, size), []).append(figures)
    medians = {key: list(map(statistics.median, zip(*one))) for key, one in rounds.items()}
    return medians, tcp


# ---- Reports


def say(text):
    print(text, file=sys.stderr, flush=True)


def bytes_text(size):
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def table(given, names, place, found):
    """The seconds of each adder, and what the group's own figures say of them."""
    network = place["network"]
    rate = None if network.endswith(VARYING) else RATES[network]
    head = ["buffer", *(f"{name}, ms" for name in names), "raw / best other", "raw / codec"]
    head += ["raw / its bytes", "codec / its bytes"] if rate else []
    head += ["raw: coding, waiting", "codec: coding, waiting"]
    others = [name for name in names if name not in ("raw:f32", given.codec, ONE_HOP)]
    rows = []
    for size in given.sizes:
        seconds = {name: found[name, size][0] for name in names}
        raw, coded = found["raw:f32", size], found[given.codec, size]
        row = [bytes_text(size), *(f"{seconds[name] * 1e3:.4g}" for name in names)]
        best = min((seconds[name] for name in others), default=None)
        row += [f"{raw[0] / best:.2f}" if best else "-", f"{raw[0] / coded[0]:.2f}"]
        if rate:
            row += [f"{one[0] * rate / (8 * one[1]):.3f}" for one in (raw, coded)]
        row += [f"{one[2] / one[0]:.0%}, {one[3] / one[0]:.0%}" for one in (raw, coded)]
        rows.append(row)
    title = f"{network}, {place['ranks']} ranks, TCP with {place['tcp']}"
    return f"{title}\n\n" + markdown(head, rows)


def draw(given, results, path):
    """A picture with one field for each network and number of ranks."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, fields = plt.subplots(
        len(given.networks),
        len(given.ranks),
        figsize=(5 * len(given.ranks), 4 * len(given.networks)),
        squeeze=False,
        constrained_layout=True,
    )
    for one in results:
        field = fields[given.networks.index(one["network"])][given.ranks.index(one["ranks"])]
        for name, points in one["figures"].items():
            sizes = [int(size) for size in points]
            field.plot(sizes, [points[size][0] for size in points], marker="o", label=name)
        field.set(xscale="log", yscale="log", xlabel="bytes", ylabel="seconds")
        field.set_title(f"{one['network']}, {one['ranks']} ranks")
    fields[0][0].legend()
    figure.savefig(path)


def adders_of(given, folder):
    """Returns {name: adder} of all that can be measured, and says what cannot."""
    wanted = {codec: Group(given.build, codec) for codec in ("raw:f32", given.codec)}
    wanted[ONE_HOP] = Group(given.build, given.codec, hops=1)
    wanted |= {name: Mpi(given.build, kind, folder) for name, kind in MPIS.items()}
    wanted["gloo"] = Gloo(given.torch)
    for name, adder in list(wanted.items()):
        if why := adder.missing():
            say(f"{name} is not measured: {why}")
            del wanted[name]
    if "raw:f32" not in wanted:
        sys.exit(f"{given.build} has no bench_group: build with -Dbench=enabled")
    return wanted


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, required=True, help="folder of bench_group")
    parser.add_argument("--torch", type=pathlib.Path, help="a Python that has torch, for gloo")
    parser.add_argument("--networks", nargs="+", choices=RATES, default=USUAL)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="in bytes")
    parser.add_argument("--codec", default=CODEC)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=200, help="sums of a size, at most")
    parser.add_argument("--congestion", help="TCP's congestion control; without it: the system's")
    parser.add_argument("--out", type=pathlib.Path, help="JSON; a picture is written beside it")
    given = parser.parse_args()
    why = given.congestion and without_namespaces()
    if why:
        parser.error(f"--congestion is set in network namespaces: {why}")
    return given


def main():
    given = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))  # removes namespaces
    results = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        adders = adders_of(given, folder)
        for network in given.networks:
            why = RATES[network] and without_namespaces()
            if why:
                say(f"{network} is not measured: {why}")
                continue
            for ranks in given.ranks:
                found, tcp = measure(given, adders, network, ranks, folder)
                place = {"network": network, "ranks": ranks, "tcp": tcp}
                print(table(given, list(adders), place, found), flush=True)
                figures = {one: {} for one in adders}
                for (one, size), values in found.items():
                    figures[one][size] = values
                results.append({**place, "figures": figures})
    if given.out:
        given.out.write_text(json.dumps(results, indent=1) + "\n")
        draw(given, results, given.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
