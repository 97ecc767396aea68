#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# test_namespaces.py - simulates four machines by network namespaces behind a switch. Their
# connections are slow, and are cut.
"""usage: test_namespaces.py PROGRAM

Exits 77 with a sentence if namespaces cannot be created."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import unittest

import scratch

PROGRAM = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else ""
del sys.argv[1:]
RANKS = 4
SMALL = [
    *scratch.options(layers=4, channels=64, heads=2, context=24, batch=8, samples=32, held_out=2),
    *scratch.options(forward="delta:bits=4", backward="direct:bits=6"),
    "--quiet",
]
SKIPPED = 77


def run(command):
    return subprocess.run(command.split(), capture_output=True, text=True, check=False)


def must(command):
    result = run(command)
    if result.returncode:
        raise RuntimeError(command + ": " + (result.stderr or result.stdout).strip())


class Lan:
    """A switch in a namespace of its own, and one machine for each rank: 10.77.0.1 and so on. The
    rate of each connection is limited."""

    def __init__(self, rate):
        self.switch = f"dw{os.getpid()}s"
        self.machines = [f"dw{os.getpid()}r{rank}" for rank in range(RANKS)]
        self.made = []
        try:
            self.make(self.switch)
            self.inside(self.switch, "ip link add br0 type bridge")
            self.inside(self.switch, "ip link set br0 up")
            for rank, machine in enumerate(self.machines):
                self.make(machine)
                self.plug(rank, machine, rate)
        except RuntimeError:
            self.close()
            raise

    def make(self, name):
        must(f"ip netns add {name}")
        self.made.append(name)
        self.inside(name, "ip link set lo up")

    def inside(self, name, command):
        must(f"ip netns exec {name} {command}")

    def plug(self, rank, machine, rate):
        must(f"ip link add eth0 netns {machine} type veth peer name port{rank} netns {self.switch}")
        self.inside(machine, f"ip address add 10.77.0.{rank + 1}/24 dev eth0")
        self.inside(machine, "ip link set eth0 up")
        self.inside(self.switch, f"ip link set port{rank} master br0 up")
        limit = f"tbf rate {rate} burst 64kb latency 200ms"
        for where, wire in ((machine, "eth0"), (self.switch, f"port{rank}")):
            self.inside(where, f"tc qdisc add dev {wire} root {limit}")

    def cut(self, rank):
        self.inside(self.switch, f"ip link set port{rank} down")

    def mend(self, rank):
        self.inside(self.switch, f"ip link set port{rank} up")

    def close(self):
        for name in reversed(self.made):
            run(f"ip netns delete {name}")


def why_not():
    """The reason why namespaces cannot be created, or None."""
    for tool in ("ip", "tc"):
        if not shutil.which(tool):
            return f"{tool} is not installed (iproute2)"
    try:
        Lan("100mbit").close()
    except RuntimeError as error:
        return f"this machine allows no network namespaces with veth and tbf ({error})"
    return None


class Machines(scratch.Scratch):
    def setUp(self):
        super().setUp()
        self.lan, self.started = None, []
        subprocess.run([PROGRAM, "keygen", self.path("run.key")], check=True, capture_output=True)

    def tearDown(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate()
        if self.lan:
            self.lan.close()
        super().tearDown()

    def train(self, epochs, *arguments, before=()):
        fixed = [PROGRAM, "train", "--text", self.text, *SMALL, "--epochs", str(epochs)]
        process = subprocess.Popen(
            [*before, *fixed, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def start_ranks(self, rate, epochs):
        self.lan = Lan(rate)
        place = scratch.options(link="tcp://10.77.0.1:7000", stages=RANKS, log=self.path("log"))
        place += scratch.options(group_key=self.path("run.key"))
        return [
            self.train(
                epochs,
                *("--rank", str(rank), *place),
                before=("ip", "netns", "exec", self.lan.machines[rank]),
            )
            for rank in range(RANKS)
        ]

    def events(self, name):
        try:
            with open(self.path(name)) as file:
                return [json.loads(line) for line in file if line.endswith("\n")]
        except FileNotFoundError:
            return []

    def losses(self, name):
        events = self.events(name)
        self.assertEqual(events[-1]["event"], "summary")
        return [
            (event["event"], event["loss"], event.get("norm"))
            for event in events
            if event["event"] in ("step", "eval")
        ]

    def local(self, epochs):
        self.finish([self.train(epochs, "--local", str(RANKS), "--log", self.path("local"))])
        return self.losses("local")

    def finish(self, ranks):
        for process in ranks:
            out, err = process.communicate(timeout=100)
            self.assertEqual(process.returncode, 0, err + out)

    def steps_so_far(self):
        return sum(event["event"] == "step" for event in self.events("log"))

    def wait_for_steps(self, ranks, steps):
        deadline = time.monotonic() + 100
        while self.steps_so_far() < steps:
            self.assertLess(time.monotonic(), deadline)
            for process in ranks:
                self.assertIsNone(process.poll(), "a rank ended early")
            time.sleep(0.02)

    def test_four_machines_give_the_losses_of_one(self):
        for rate in ("100mbit", "1gbit"):
            self.finish(self.start_ranks(rate, 3))
            self.assertEqual(self.losses("log"), self.local(3))
            self.lan.close()

    def test_a_connection_cut_for_seconds_changes_nothing(self):
        ranks = self.start_ranks("100mbit", 40)
        self.wait_for_steps(ranks, 5)
        self.lan.cut(2)
        time.sleep(1)
        before = self.steps_so_far()
        time.sleep(4)
        self.assertLessEqual(self.steps_so_far(), before + 1, "the connection was not cut")
        self.lan.mend(2)
        self.finish(ranks)
        self.assertEqual(self.losses("log"), self.local(40))

    def test_a_rank_that_is_killed_is_named_by_its_neighbours(self):
        ranks = self.start_ranks("100mbit", 1000)
        self.wait_for_steps(ranks, 3)
        victim = run(f"ip netns pids {self.lan.machines[2]}")
        os.kill(int(victim.stdout.split()[0]), signal.SIGKILL)
        for rank in (0, 1, 3):
            out, err = ranks[rank].communicate(timeout=60)
            self.assertNotEqual(ranks[rank].returncode, 0, out)
            self.assertEqual(len(err.splitlines()), 1, err)
        self.assertIn("rank 2", err)  # the neighbour of rank 3

if __name__ == "__main__":
    reason = why_not()
    if reason:
        print("skipped: " + reason)
        sys.exit(SKIPPED)
    unittest.main()
