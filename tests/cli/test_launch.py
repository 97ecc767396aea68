#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# test_launch.py - ranks that are started by launchers: every kind of rendezvous and every command
# of docs/deploy.md leads to the same losses.
"""usage: test_launch.py PROGRAM ROOT [MPI...] [tls] [fake=LIBRARY]

MPI: those that the program was built for; tls: it was built with TLS; fake: a library that replaces
NCCL and its driver. DELTAWIRE_LAUNCHERS=real: the manual's commands are run with the real ssh, srun
and torchrun."""

import glob
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest

import launchers
import scratch
from launchers import free_port

PROGRAM, ROOT = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2])
HAS_TLS = "tls" in sys.argv[3:]
FAKE_NCCL = [word[5:] for word in sys.argv[3:] if word.startswith("fake=")]
MPIS = [mpi for mpi in sys.argv[3:] if shutil.which("mpirun." + mpi)]
del sys.argv[1:]
SMALL = [*scratch.options(layers=4, samples=32, epochs=2), *scratch.SMALL, "--quiet"]
CODECS = ["--forward", "delta:bits=4", "--backward", "direct:bits=6"]
MPIRUN = str(ROOT / "tests" / "transports" / "mpi" / "mpirun.sh")


def wait_until(is_so):
    """Waits until the function is_so returns true. The test fails if it never does."""
    end = time.monotonic() + 60
    while not is_so():
        if time.monotonic() > end:
            raise AssertionError("waited for 60 s in vain")
        time.sleep(0.02)


def is_connected(port):
    """Whether a client's connection to this port of the loopback interface is established."""
    established, wanted = "01", f"0100007F:{port:04X}"
    with open("/proc/net/tcp") as file:
        rows = [line.split() for line in file.readlines()[1:]]
    return any(row[2] == wanted and row[3] == established for row in rows)


def handles(pid, number):
    """Whether a process has installed a handler for a signal."""
    with open(f"/proc/{pid}/status") as file:
        caught = next(line for line in file if line.startswith("SigCgt"))
    return int(caught.split()[1], 16) >> (number - 1) & 1


class Base(scratch.Scratch):
    def losses(self, name):
        with open(self.path(name)) as file:
            lines = [json.loads(line) for line in file]
        self.assertEqual(lines[-1]["event"], "summary")
        os.unlink(self.path(name))
        return [
            (line["event"], line["loss"], line.get("norm"))
            for line in lines
            if line["event"] in ("step", "eval")
        ]

    def local(self, stages, *more):
        self.start(["--local", str(stages), "--log", self.path("local"), *more]).check()
        return self.losses("local")

    def start(self, arguments, before=(), **variables):
        """Starts one process. Its check() waits for its end, and asserts its exit code."""
        process = scratch.start(
            *(*before, PROGRAM, "train", "--text", self.text, *SMALL, *CODECS, *arguments),
            env={**os.environ, **{key: str(value) for key, value in variables.items()}},
        )

        def check(code=0):
            process.out, process.err = process.communicate(timeout=100)
            self.assertEqual(process.returncode, code, process.err + process.out)
            return process

        process.check = check
        return process

    def alone(self):
        """Copies the program to a folder with the libraries that it is linked with, and no
        others."""
        folder = self.path("alone")
        os.mkdir(folder)
        build = pathlib.Path(PROGRAM).parent.parent
        for path in build.glob("*/libdeltawire*.so*"):  # those of mpi and nccl are deeper folders
            if path.is_file():
                shutil.copy(path, folder)
        return shutil.copy(PROGRAM, folder), {"LD_LIBRARY_PATH": folder}

    def run_ranks(self, ranks):
        """ranks: (arguments, variables) of each, beginning with rank 0. The last starts first."""
        started = [
            self.start([*arguments, "--log", self.path("log")], **variables)
            for arguments, variables in reversed(ranks)
        ]
        for process in started:
            process.check()
        return self.losses("log")


class Rendezvous(Base):
    def test_every_rendezvous_gives_the_same_losses(self):
        three = self.local(3)
        self.assertEqual(len(three), 10)
        ways = {
            "torchrun": lambda r, port: (
                ["--link", "env://"],
                dict(RANK=r, WORLD_SIZE=3, MASTER_ADDR="localhost", MASTER_PORT=port),
            ),
            "IPv6": lambda r, port: (
                ["--link", "env://"],
                dict(RANK=r, WORLD_SIZE=3, MASTER_ADDR="::1", MASTER_PORT=port),
            ),
            "Open MPI": lambda r, port: (
                ["--link", f"tcp://127.0.0.1:{port}"],
                dict(OMPI_COMM_WORLD_RANK=r, OMPI_COMM_WORLD_SIZE=3),
            ),
            "PMI": lambda r, port: (
                ["--link", f"shaped:rate=1gbit/tcp://127.0.0.1:{port}"],
                dict(PMI_RANK=r, PMI_SIZE=3),
            ),
            "options": lambda r, port: (
                scratch.options(link=f"tcp://127.0.0.1:{port}", rank=r, stages=3, host="127.0.0.1"),
                dict(SLURM_PROCID=0, SLURM_NTASKS=1),
            ),
            "file": lambda r, port: (
                ["--link", f"file://{self.path('meeting')}", "--host", "127.0.0.1"],
                dict(RANK=r, WORLD_SIZE=3),
            ),
        }
        for name, way in ways.items():
            if name == "IPv6" and not os.path.exists("/proc/net/if_inet6"):
                continue
            with self.subTest(name):
                port = free_port()
                self.assertEqual(self.run_ranks([way(rank, port) for rank in range(3)]), three)
        self.assertEqual(glob.glob(self.path("meeting*")), [])

    def test_a_single_rank_needs_no_rendezvous(self):
        self.start(["--link", "env://", "--log", self.path("log")], RANK=0, WORLD_SIZE=1).check()
        self.assertEqual(self.losses("log"), self.local(1))

    def refused(self, code, word, arguments, **variables):
        process = self.start(arguments, **variables).check(code)
        self.assertIn(word, process.err)
        self.assertEqual(len(process.err.splitlines()), 1, process.err)

    def test_incomplete_rendezvous_is_an_error(self):
        two = {"RANK": 0, "WORLD_SIZE": 2}
        there = {**two, "MASTER_ADDR": "localhost"}
        for word, variables in [
            ("MASTER_ADDR", two),
            ("--rank and --stages", {}),
            ('RANK is "x"', {**there, "RANK": "x"}),
            ("RANK=2 and WORLD_SIZE=2", {**there, "RANK": 2}),
            ("MASTER_PORT", {**there, "MASTER_PORT": "70000"}),
        ]:
            self.refused(2, word, ["--link", "env://"], **variables)
        self.refused(2, "mpi://, env://", ["--link", "loop://x"], **two)
        if MPIS:  # without the library of mpi, the error would be another one
            link = scratch.options(link="mpi://", rank=0, stages=2)
            self.refused(2, "leave out --rank", link)
        soon = ["--open-timeout", "0.3"]
        for word, link in [
            ("no-such-host.invalid", ["tcp://no-such-host.invalid:1"]),
            ("cannot reach rank 0", [f"tcp://127.0.0.1:{free_port()}", *soon]),
            ("rank 0 did not report its address", [f"file://{self.path('nobody')}", *soon]),
        ]:
            self.refused(1, word, ["--link", *link], RANK=1, WORLD_SIZE=2)

    def test_a_rendezvous_that_is_no_file_is_named_at_once(self):
        os.mkdir(self.path("run.0"))
        link = ["--link", f"file://{self.path('run')}"]
        self.refused(1, "is not a file of a rendezvous", link, RANK=1, WORLD_SIZE=2)
        link = ["--link", f"file://{self.text}/run"]
        self.refused(1, "Not a directory", link, RANK=1, WORLD_SIZE=2)

    def test_every_rank_checks_its_settings_at_once(self):
        # No other rank runs. A rank that connects before it checks would report that instead.
        for rank in range(3):
            for meeting in f"tcp://127.0.0.1:{free_port()}", f"file://{self.path('nobody')}":
                for word, wrong in {
                    "3 stages cannot share 2 layers": ["--layers", "2"],
                    "a batch of 8": ["--micro-batches", "3"],
                    "forward codec": ["--forward", "delta:bits=99"],
                }.items():
                    self.refused(2, word, ["--link", meeting, *wrong], RANK=rank, WORLD_SIZE=3)

    def test_a_grid_is_started_like_a_pipeline(self):
        grid = ["--replicas", "2", "--gradient", "direct:bits=4"]
        expected = self.local(4, *grid)
        key = ["--group-key", self.path("run.key")] if HAS_TLS else []
        if HAS_TLS:
            subprocess.run([PROGRAM, "keygen", self.path("run.key")], check=True)
        for link in (
            ["env://"],
            [f"tcp://127.0.0.1:{free_port()}", *key],
            [f"file://{self.path('meeting')}", "--host", "127.0.0.1", "--stages", "2"],
            [f"shaped:rate=1gbit,delay=1ms/tcp://127.0.0.1:{free_port()}", "--stages", "2"],
        ):
            port = free_port()
            variables = {"WORLD_SIZE": 4, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            ranks = [
                ([*grid, "--link", *link], {"RANK": rank, **variables}) for rank in range(4)
            ]
            with self.subTest(link[0]):
                self.assertEqual(self.run_ranks(ranks), expected)

    def test_ranks_of_another_run_are_refused(self):
        port = free_port()
        link = ["--link", f"tcp://127.0.0.1:{port}", "--open-timeout", "100"]
        first = self.start(link, RANK=0, WORLD_SIZE=3)
        second = self.start(link, RANK=1, WORLD_SIZE=3)
        wait_until(lambda: is_connected(port))
        time.sleep(0.5)
        self.refused(1, "two processes", link, RANK=1, WORLD_SIZE=3)
        self.refused(1, "rank 0 was started for 3", link, RANK=2, WORLD_SIZE=4)
        self.start(
            link, RANK=2, WORLD_SIZE=3
        ).check()  # the refused ranks did not disturb the run
        first.check()
        second.check()

    def test_ctrl_c_ends_the_wait(self):
        for link in f"tcp://127.0.0.1:{free_port()}", f"file://{self.path('nobody')}":
            process = self.start(["--link", link], RANK=1, WORLD_SIZE=2)
            wait_until(lambda: handles(process.pid, signal.SIGINT))
            time.sleep(0.2)
            process.send_signal(signal.SIGINT)
            process.check(130)
            self.assertIn("Ctrl-C", process.err)


class Mpi(Base):
    def setUp(self):
        super().setUp()
        if not MPIS:
            self.skipTest("no MPI here")

    def test_a_rank_that_cannot_start_ends_the_job(self):
        for mpi in MPIS:
            process = self.start(["--link", "mpi://", "--layers", "2"], before=[MPIRUN, mpi, "3"])
            process.communicate(timeout=60)
            self.assertNotEqual(process.returncode, 0)

    def test_names_the_library_that_is_missing(self):
        alone, libraries = self.alone()
        for variables, word in [
            ({"PMI_RANK": "0"}, "MPICH"),
            ({"OMPI_COMM_WORLD_SIZE": "1"}, "Open MPI"),
            ({}, "cannot be loaded"),
        ]:
            env = {"PATH": os.environ["PATH"], **libraries, **variables}
            result = scratch.run(alone, "train", "--text", self.text, "--link", "mpi://", env=env)
            self.assertEqual(result.returncode, 1, result.stderr)
            self.assertIn(word, result.stderr)
            self.assertIn("libdeltawire-mpi-", result.stderr)


class Rows(Base):
    """The program knows about a transport only what the transport itself says."""

    def setUp(self):
        super().setUp()
        self.folder = self.path("libraries")
        os.mkdir(self.folder)
        for name in ("libnccl.so.2", "libcuda.so.1") if FAKE_NCCL else ():
            os.symlink(FAKE_NCCL[0], f"{self.folder}/{name}")

    def list_all(self, program, **variables):
        result = scratch.run(program, "transports", env={**os.environ, **variables})
        self.assertEqual(result.returncode, 0, result.stderr)
        return [line.split(None, 2) for line in result.stdout.splitlines()]

    def test_all_transports_are_listed(self):
        rows = self.list_all(PROGRAM)
        self.assertEqual([row[0] for row in rows], "tcp loop shaped mpi mpi nccl".split())
        for row, form in zip(rows, ("tcp://HOST:PORT", "loop://NAME", "shaped:")):
            self.assertTrue(row[1].startswith(form), row)
            self.assertTrue(row[2].startswith("built in"), row)
        program, variables = self.alone()
        for row in self.list_all(program, **variables)[3:]:
            self.assertIn("not available: libdeltawire-" + row[0], " ".join(row))
        self.assertEqual(scratch.run(PROGRAM, "transports", "x").returncode, 2)

    def test_a_library_that_is_missing_is_named(self):
        program, variables = self.alone()
        place = scratch.options(rank=0, stages=1, replicas=2, open_timeout=1)
        place += ["--listen", "tcp://127.0.0.1:0", "--replica-listen", "nccl:tcp://127.0.0.1:0"]
        link = ["--link", "nccl:tcp://h:1"]
        env = {**os.environ, "RANK": "0", "WORLD_SIZE": "2", **variables}
        for arguments in link, ["--local", "2", *link], place:
            result = scratch.run(program, "train", "--text", self.text, *arguments, env=env)
            self.assertEqual(result.returncode, 1, result.stderr)
            self.assertIn("needs libdeltawire-nccl.so.0, which cannot be loaded", result.stderr)

    @unittest.skipUnless(FAKE_NCCL, "this build has no backend nccl")
    def test_transports_in_front_of_others(self):
        fake = dict(LD_LIBRARY_PATH=self.folder)
        rows = self.list_all(PROGRAM, **fake)
        self.assertTrue(rows[-1][2].startswith("available by libdeltawire-nccl"), rows[-1])
        two = self.local(2)
        log = ["--log", self.path("log")]
        for link in "nccl:tcp://127.0.0.1:0", "shaped:rate=1gbit/nccl:tcp://127.0.0.1:0":
            # What NCCL carries cannot be under TLS, so the key is not used.
            self.start(
                ["--local", "2", "--link", link, *log], DELTAWIRE_GROUP_KEY_FILE="/none", **fake
            ).check()
            self.assertEqual(self.losses("log"), two)
        link = ["--link", f"nccl:tcp://127.0.0.1:{free_port()}"]
        ranks = [(link, dict(RANK=rank, WORLD_SIZE=2, LOCAL_RANK=rank, **fake)) for rank in (0, 1)]
        self.assertEqual(self.run_ranks(ranks), two)
        for mpi in MPIS:
            for link in "nccl:mpi://", "shaped:rate=1gbit/nccl:mpi://":
                with self.subTest(mpi + " " + link):
                    self.start(["--link", link, *log], before=[MPIRUN, mpi, "2"], **fake).check()
                    self.assertEqual(self.losses("log"), two)


@unittest.skipUnless(HAS_TLS, "this build has no TLS")
class Keys(Base):
    def key(self, name="run.key"):
        subprocess.run([PROGRAM, "keygen", self.path(name)], check=True)
        return self.path(name)

    def failing(self, word, arguments, code=1, **variables):
        process = self.start(arguments, **variables)
        process.check(code)
        self.assertIn(word, process.err)

    def test_keygen_makes_keys_that_only_the_owner_can_read(self):
        first, second = (pathlib.Path(self.key(name)) for name in ("a", "b"))
        self.assertEqual([len(path.read_bytes()) for path in (first, second)], [32, 32])
        self.assertNotEqual(first.read_bytes(), second.read_bytes())
        self.assertEqual(first.stat().st_mode & 0o777, 0o600)
        before = first.read_bytes()
        for arguments, code, word in [
            ([str(first)], 1, "exists already"),
            ([self.path("no/such/folder")], 1, "No such file"),
            ([], 2, "needs the name"),
            ([""], 2, "needs the name"),
            (["a", "b"], 2, "one file"),
            (["--force"], 2, "no option"),
            (["--help"], 0, ""),
        ]:
            result = scratch.run(PROGRAM, "keygen", *arguments)
            self.assertEqual(result.returncode, code)
            self.assertIn(word, result.stderr)
        self.assertEqual(first.read_bytes(), before)

    def test_a_rank_with_another_key_is_refused(self):
        port, key, other = free_port(), self.key(), self.key("other.key")
        link = ["--link", f"tcp://127.0.0.1:{port}"]
        first = self.start(link, RANK=0, WORLD_SIZE=2, DELTAWIRE_GROUP_KEY_FILE=key)
        time.sleep(0.5)
        self.failing("another group key", [*link, "--group-key", other], RANK=1, WORLD_SIZE=2)
        self.failing("does it expect TLS?", [*link, "--open-timeout", "1"], RANK=1, WORLD_SIZE=2)
        # The option takes precedence over the environment.
        self.start(
            [*link, "--group-key", key], RANK=1, WORLD_SIZE=2, DELTAWIRE_GROUP_KEY_FILE=other
        ).check()
        first.check()

    def test_tcp_to_other_machines_needs_a_key(self):
        there = "tcp://192.0.2.1:7000"
        for arguments in (
            scratch.options(link=there, rank=0, stages=2, host="192.0.2.1"),
            scratch.options(rank=0, stages=2, listen="tcp://0.0.0.0:0"),
            scratch.options(rank=1, stages=2, connect=there),
        ):
            self.failing("--insecure-plaintext", arguments)
        alone = scratch.options(rank=0, stages=2, listen="tcp://0.0.0.0:0", open_timeout=0.2)
        self.failing("no peer connected", [*alone, "--insecure-plaintext"])
        self.failing("no peer connected", [*alone, "--group-key", self.key()])

    def test_options_that_contradict_each_other(self):
        key = self.key()
        for arguments, word in [
            (["--insecure-plaintext", "--group-key", key], "contradict"),
            (["--group-key", key, "--ca", key], "leave one of them out"),
            (["--certificate", key, "--key", key], "all three"),
        ]:
            process = self.start(["--local", "2", *arguments])
            process.check(2)
            self.assertIn(word, process.err)
        # Options take precedence over the environment.
        self.start(
            ["--local", "2", "--insecure-plaintext"], DELTAWIRE_GROUP_KEY_FILE="/nonexistent"
        ).check()
        self.failing("/nonexistent", ["--local", "2"], DELTAWIRE_GROUP_KEY_FILE="/nonexistent")
        # A path that contains "mpi:" is not mpi://, which would need no key.
        self.failing(
            "/nonexistent",
            ["--link", f"file://{self.path('mpi:run')}", "--rank", "0", "--stages", "2"],
            DELTAWIRE_GROUP_KEY_FILE="/nonexistent",
        )

    def certificates(self):
        making = re.search(
            r"^```sh\n(openssl req -x509 .*?)^```$",
            (ROOT / "docs/deploy.md").read_text(),
            re.S | re.M,
        ).group(1)
        scratch.run("sh", "-e", "-c", making, cwd=self.directory, check=True)
        files = [(self.path(f"rank{r}.pem"), self.path(f"rank{r}.key")) for r in (0, 1)]
        return [
            scratch.options(certificate=pem, key=key, ca=self.path("ca.pem")) for pem, key in files
        ]

    def test_a_certificate_is_for_its_rank(self):
        if not shutil.which("openssl"):
            self.skipTest("no openssl program here")
        link = scratch.options(link=f"tcp://127.0.0.1:{free_port()}", open_timeout=20)
        own = self.certificates()
        first = self.start([*link, *own[0]], RANK=0, WORLD_SIZE=3)
        self.failing("own_name is rank/2", [*link, *own[1]], code=2, RANK=2, WORLD_SIZE=3)
        second = self.start([*link, *own[1]], RANK=1, WORLD_SIZE=3)
        time.sleep(0.5)
        first.send_signal(signal.SIGINT)
        first.check(130)
        second.check(1)  # it is told that rank 0 was asked to stop, or finds nobody


@unittest.skipUnless(HAS_TLS, "this build has no TLS, and the manual's commands have a key")
class Documented(Base):
    """Every command of docs/deploy.md, unchanged except for the names of machines and of the shared
    directory."""

    def setUp(self):
        super().setUp()
        self.bin, self.variables = pathlib.Path(self.path("bin")), {}
        self.bin.mkdir()
        launchers.write(self.bin / "deltawire", launchers.DELTAWIRE)
        if os.environ.get("DELTAWIRE_LAUNCHERS") != "real":
            launchers.stand_in(self.bin)
            return
        if launchers.missing():
            self.skipTest("real launchers need " + ", ".join(launchers.missing()))
        run = {"program": PROGRAM, "small": " ".join(SMALL)}
        servers = launchers.Servers(self.directory, run)
        self.addCleanup(servers.stop)
        self.variables = servers.variables

    def test_the_commands_of_the_manual_work(self):
        commands = re.findall(
            r"^```sh\n(.*?)^```$", (ROOT / "docs/deploy.md").read_text(), re.S | re.M
        )
        self.assertGreaterEqual(len(commands), 10)
        expected = {stages: self.local(stages) for stages in (2, 3, 4)}
        grid = self.local(4, "--replicas", "2", "--gradient", "direct:bits=4")
        for command in commands:
            for mpi in MPIS if "mpirun" in command else ["none"]:
                if "mpirun" in command and not MPIS:
                    continue
                train = re.search(r"(?:-n|--stages|--nproc-per-node|--local) (\d)", command)
                stages = int(train.group(1)) if train else 0  # 0: the command makes keys
                port = free_port()
                mpirun = launchers.MPIRUN.format(program=MPIRUN, mpi=mpi)
                launchers.write(self.bin / "mpirun", mpirun)
                # The first command makes run.key, which the others use.
                env = {
                    **os.environ,
                    **self.variables,
                    "PATH": f"{self.bin}:{os.environ['PATH']}",
                    "PROGRAM": PROGRAM,
                    "SMALL": " ".join(SMALL),
                    "LOG": self.path("log"),
                    "FREE_PORT": str(port),
                    "DELTAWIRE_GROUP_KEY_FILE": self.path("run.key"),
                }
                if "mpirun" in command:
                    env["MASTER_PORT"] = str(port)
                here = command.replace("node0:7000", f"127.0.0.1:{port}").replace(
                    "MASTER_ADDR=node0", "MASTER_ADDR=127.0.0.1"
                )
                here = here.replace("file:///shared/", f"file://{self.directory}/")
                if "file:" in here:
                    here = here.replace("--rank", "--host 127.0.0.1 --rank")
                with self.subTest(mpi + ": " + command):
                    result = scratch.run("sh", "-e", "-c", here, env=env, cwd=self.directory)
                    self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
                    if stages:
                        right = grid if "--replicas" in command else expected[stages]
                        self.assertEqual(self.losses("log"), right)


if __name__ == "__main__":
    unittest.main()
