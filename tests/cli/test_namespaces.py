#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# test_namespaces.py - simulates four machines by network namespaces behind a switch. Their
# connections are slow, and are cut.
"""usage: test_namespaces.py PROGRAM

Exits 77 with a sentence if namespaces cannot be created."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import unittest

import scratch

PROGRAM = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else ""
RANKS = 4
SMALL = [
    *scratch.options(layers=4, channels=64, heads=2, context=24, batch=8, samples=32, held_out=2),
    *scratch.options(forward="delta:bits=4", backward="direct:bits=6"),
    "--quiet",
]
SKIPPED = 77


def run(command):
    return scratch.run(*command.split())


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


class Base(scratch.Scratch):
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
        """Starts the program; epochs: of a training, None: the arguments begin with a command."""
        fixed = [PROGRAM]
        if epochs:
            fixed += ["train", "--text", self.text, *SMALL, "--epochs", str(epochs)]
        process = scratch.start(*before, *fixed, *arguments)
        self.started.append(process)
        return process

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

    def local(self, epochs, ranks=RANKS, *more):
        log = ["--log", self.path("local")]
        self.finish([self.train(epochs, "--local", str(ranks), *log, *more)])
        return self.losses("local")

    def finish(self, ranks):
        for process in ranks:
            out, err = process.communicate(timeout=100)
            self.assertEqual(process.returncode, 0, err + out)


class Machines(Base):
    """One rank on each machine."""

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

    def test_link_local_addresses_have_the_scope_of_each_machine(self):
        """The interface has another name on each machine, and no address but a link-local one."""
        self.lan = Lan("1gbit")
        for rank, machine in enumerate(self.lan.machines):
            self.lan.inside(machine, "ip address flush dev eth0")
            self.lan.inside(machine, "ip link set eth0 down")
            self.lan.inside(machine, f"ip link set eth0 name lan{rank} up")
            self.lan.inside(machine, f"ip address add fe80::{rank + 1}/64 dev lan{rank} nodad")
        grid = scratch.options(replicas=2, gradient="direct:bits=4")
        for more, stages in (([], RANKS), (grid, 2)):
            place = scratch.options(stages=stages, log=self.path("log"))
            place += [*more, *scratch.options(group_key=self.path("run.key"))]
            ranks = [
                self.train(
                    3,
                    *("--rank", str(rank), "--link", f"tcp://[fe80::1%lan{rank}]:7000", *place),
                    before=("ip", "netns", "exec", self.lan.machines[rank]),
                )
                for rank in range(RANKS)
            ]
            self.finish(ranks)
            self.assertEqual(self.losses("log"), self.local(3, RANKS, *more))

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


class OwnNames(Base):
    """Two ranks on each of two machines, whose own names are 127.0.1.1 for themselves, as Debian
    has it."""

    LINK = ["--link", "tcp://node0:7000"]
    ROUTES = "10.77.0.1 node0\n10.77.0.2 node1\n"

    def setUp(self):
        super().setUp()
        self.lan, self.key = Lan("1gbit"), ["--group-key", self.path("run.key")]

    def on(self, node, *arguments, train=True):
        """Starts a rank, or the program, on a machine with its own host name and /etc/hosts."""
        hosts = self.path(f"hosts{node}")
        own = f"127.0.0.1 localhost\n::1 localhost\n127.0.1.1 node{node}\n"
        others = [line for line in self.ROUTES.splitlines(True) if f"node{node}" not in line]
        pathlib.Path(hosts).write_text(own + "".join(others))
        script = f"mount --bind {hosts} /etc/hosts && hostname node{node} && exec \"$@\""
        before = ["ip", "netns", "exec", self.lan.machines[node]]
        before += ["unshare", "--uts", "sh", "-c", script, "sh"]
        return self.train(3 if train else None, *arguments, before=before)

    def ranks(self, link, own=(), stages=RANKS, ranks=RANKS):
        """Starts ranks; the second half of them on the second machine. own: options of those on the
        first."""
        place = scratch.options(stages=stages, log=self.path("log"))
        return [
            self.on(
                rank // 2, "--rank", str(rank), *place, *link, *(own if rank < 2 else ())
            )
            for rank in range(ranks)
        ]

    def listeners(self, node):
        """The addresses of a machine on which somebody listens, as the kernel writes them."""
        inside = f"ip netns exec {self.lan.machines[node]} cat /proc/net/tcp /proc/net/tcp6"
        rows = [line.split() for line in run(inside).stdout.splitlines()]
        return {row[1].partition(":")[0] for row in rows if row[3] == "0A"}

    def test_every_rendezvous_leads_to_other_machines(self):
        expected = self.local(3)
        grid = ["--replicas", "2", "--gradient", "direct:bits=4"]
        expected_grid = self.local(3, RANKS, *grid)
        shaped = ["--link", "shaped:rate=1gbit/tcp://node0:7000?stripes=2"]
        only_v6 = "net.ipv6.bindv6only"
        for link, own in [
            ([*self.LINK, *self.key], []),
            ([*self.LINK, "--insecure-plaintext"], []),
            ([*shaped, *self.key], []),
            ([*self.LINK, *self.key], ["--host", "10.77.0.1"]),
            ([*self.LINK, *self.key], ["--host", "node0"]),
            (["--link", f"file://{self.path('run')}", *self.key], []),
            ([*self.LINK, *self.key, *grid], []),
            ([*self.LINK, *self.key, only_v6], []),  # then [::] is only for IPv6
        ]:
            with self.subTest(" ".join(link + own)):
                if only_v6 in link:
                    link.remove(only_v6)
                    self.lan.inside(self.lan.machines[0], f"sysctl -q {only_v6}=1")
                stages = 2 if grid[0] in link else RANKS
                self.finish(self.ranks(link, own, stages))
                right = expected_grid if grid[0] in link else expected
                self.assertEqual(self.losses("log"), right)

    def test_loopback_stays_loopback(self):
        """Where the user says so, and where links to other machines are refused."""
        expected = self.local(3, 2)
        for link in [
            ["--link", "tcp://localhost:7000", *self.key],
            ["--link", "tcp://127.0.1.1:7000", *self.key],
            self.LINK,
        ]:
            rank = scratch.options(rank=0, stages=2, log=self.path("log"))
            first = self.on(0, *rank, *link)
            while not self.listeners(0):
                self.assertIsNone(first.poll())
                time.sleep(0.02)
            for address in self.listeners(0):
                self.assertRegex(address, "^(0[01]0[01]007F|0{24}01000000)$")
            self.finish([first, self.on(0, "--rank", "1", "--stages", "2", *link)])
            self.assertEqual(self.losses("log"), expected)

    def test_the_user_is_told_where_it_listens(self):
        rank = scratch.options(rank=0, stages=3, open_timeout=0.5)
        for link, place in [
            ([*self.LINK, *self.key], r"\[::\]"),
            ([*self.LINK, *self.key, "--host", "10.77.0.1"], r"10\.77\.0\.1"),
            (self.LINK, r"127\.0\.\d\.1"),
        ]:
            alone = self.on(0, *rank, *link)
            out, err = alone.communicate(timeout=100)
            self.assertEqual(alone.returncode, 1)
            self.assertRegex(err, rf"rank 0 listened on tcp://{place}:\d\d+, and cannot meet")
            self.assertRegex(err, rf"2 of 3 ranks did not come to tcp://{place}:7000, where")
            word = "because node0 is a loopback address here"
            self.assertEqual(word in out, "::" in place, out)

    def test_uris_of_the_user_lead_to_other_machines(self):
        expected = self.local(3, 3, "--tied")
        listen = ["--listen", "tcp://node0:7000", "--replica-listen", "tcp://node0:0"]
        middle = ["--listen", "tcp://node1:7001", "--connect", "tcp://node0:7000"]
        last = ["--connect", "tcp://node1:7001", "--replica-listen", "tcp://node1:0"]
        ranks = [
            self.on(node, "--rank", str(rank), "--stages", "3", "--tied", *place, *self.key)
            for rank, node, place in [
                (0, 0, [*listen, "--log", self.path("log")]),
                (1, 1, [*middle, "--replica-listen", "tcp://node1:0"]),
                (2, 0, last),
            ]
        ]
        self.finish(ranks)
        self.assertEqual(self.losses("log"), expected)
        answers = self.on(0, "advise", "--listen", "tcp://node0:7000", *self.key, train=False)
        words = ["advise", "--connect", "tcp://node0:7000", *self.key, "--compute-ms", "5"]
        asks = self.on(1, *words, *scratch.options(batch=4, context=8, channels=8), train=False)
        self.finish([answers, asks])


if __name__ == "__main__":
    reason = why_not()
    if reason:
        print("skipped: " + reason)
        sys.exit(SKIPPED)
    unittest.main()
