# SPDX-License-Identifier: Apache-2.0
# lives.py - ranks that go on after one of them was killed: that one alone is started again.
"""Each rank is a process that trains, and meets the others by a file. When it loses one of them it
makes its process group and its stage anew, from its checkpoint, and meets them by the next file.
The process that was killed is started again by the test. A life is the time between two meetings.
"""

import contextlib
import datetime
import io
import multiprocessing
import os
import signal
import socket
import time
import traceback
import warnings

import torch
import torch.distributed as dist

import small_gpt
from deltawire import DeltawireError, Status
from pipelines import Pipe

COUNT, STEPS, SAVED_AFTER = 8, 6, 2
LONGEST = int(os.environ.get("DW_DDP_LONGEST", "120"))  # seconds until a rank that hangs is ended


class Plan:
    """What happens. dies: the rank that is killed, None: nobody. step: the one in which it is.
    midway: after its first microbatch, not before the step. stops: it hangs instead, and the test
    kills it. loads: which compression state a rank takes in its second life, by rank: "checkpoint",
    "none", or "failed": what it held after the step that failed. ports: where rank 0 has the store
    by which they meet, in each life; None: they meet by files."""

    def __init__(
        self, options, dies=None, step=4, midway=False, stops=False, loads=None, ports=None
    ):
        self.options, self.dies, self.step = options, dies, step
        self.midway, self.stops, self.loads = midway, stops, loads or {}
        self.ports = ports
        self.timeout = [10 if stops else 60, 60]  # in the first life and the second


def _end_oneself(plan):
    os.kill(os.getpid(), signal.SIGSTOP if plan.stops else signal.SIGKILL)


class Trainer:
    """One rank in one life."""

    def __init__(self, rank, world, plan, folder, life):
        self.rank, self.plan, self.life = rank, plan, life
        place = f"file://{folder}/life{life}"
        if plan.ports is not None:
            place = f"tcp://127.0.0.1:{plan.ports[life]}"
        dist.init_process_group(
            *("gloo", place),
            timeout=datetime.timedelta(seconds=plan.timeout[life]),
            rank=rank,
            world_size=world,
        )
        self.file = os.path.join(folder, f"rank{rank}.pt")
        options = dict(plan.options)
        if "carrier" in options:  # "{}": of each rank another number, from 1 on
            options["carrier"] = options["carrier"].format(rank + 1)
        self.pipe = Pipe(rank, world, "1f1b", options=options)
        self.stage = self.pipe.stages[0]
        self.first = 0

    def load(self, failed):
        """From the checkpoint; failed: the compression state after the step that failed."""
        saved = torch.load(self.file, weights_only=True)
        self.stage.submod.load_state_dict(saved["model"])
        self.pipe.optimizer.load_state_dict(saved["optimizer"])
        which = self.plan.loads.get(self.rank, "checkpoint")
        if which == "checkpoint":
            self.stage.load_compression_state_dict(saved["compression"])
        elif which == "failed":
            self.stage.load_compression_state_dict(failed)
        self.first = SAVED_AFTER + 1

    def save(self):
        whole = {
            "model": self.stage.submod.state_dict(),
            "optimizer": self.pipe.optimizer.state_dict(),
            "compression": self.stage.compression_state_dict(),
        }
        torch.save(whole, self.file + ".new")
        os.replace(self.file + ".new", self.file)

    def train(self, losses):
        """losses: gets those of each step, by number."""
        x, y = small_gpt.samples(COUNT, 32)
        for step in range(self.first, STEPS):
            if self.life == 0 and (self.rank, step) == (self.plan.dies, self.plan.step):
                if not self.plan.midway:
                    _end_oneself(self.plan)
                self.stage.submod.register_forward_hook(lambda *_: _end_oneself(self.plan))
            losses[step] = self.pipe.step(x, y, torch.arange(COUNT))
            if step == SAVED_AFTER and self.life == 0:
                self.save()

    def end(self):
        self.stage.close_compression()
        dist.destroy_process_group()


def _live(rank, world, plan, folder, life):
    """What a rank saw: losses by step, its errors, what was sent in its last life, warnings."""
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    losses, errors, failed = {}, [], None
    kept = []  # a stage that is not collected, as where a program still has it somewhere
    while True:
        trainer = Trainer(rank, world, plan, folder, life)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            if life > 0:
                trainer.load(failed)
            try:
                trainer.train(losses)
            except DeltawireError as error:
                assert life == 0 and error.status in (Status["PEER"], Status["TIMEOUT"]), error
                errors.append((error.status.name, error.why))
                open(f"{folder}/lost{rank}", "w").close()
                disk = io.BytesIO()
                torch.save(trainer.stage.compression_state_dict(), disk)
                failed = torch.load(io.BytesIO(disk.getvalue()), weights_only=True)
                trainer.end()
                kept.append(trainer)
                life += 1
                continue
        said = [str(one.message) for one in warned if "deltawire" in str(one.filename)]
        stats = trainer.stage.compression_stats()
        trainer.end()
        return losses, errors, stats, said, os.getpid()


def _child(pipe, rank, world, plan, folder, life):
    try:
        answer = (True, _live(rank, world, plan, folder, life))
    except BaseException:
        answer = (False, traceback.format_exc())
    pipe.send(answer)
    pipe.close()
    os._exit(0)


class _Process:
    def __init__(self, *given):
        context = multiprocessing.get_context("fork")
        self.pipe, there = context.Pipe(duplex=False)
        self.process = context.Process(target=_child, args=(there, *given), daemon=True)
        self.process.start()
        there.close()

    def answer(self):
        assert self.pipe.poll(LONGEST), "a rank hangs"
        fine, answer = self.pipe.recv()
        assert fine, answer
        return answer

    def end(self):
        if self.process.is_alive():
            self.process.kill()
        self.process.join()


def free_ports(count):
    """Ports at which nobody listens now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _wait_for_errors(folder, world, plan):
    """Until all others have noticed that the rank does nothing any more, while it still lives."""
    end = time.monotonic() + LONGEST
    for rank in range(world):
        while rank != plan.dies and not os.path.exists(f"{folder}/lost{rank}"):
            assert time.monotonic() < end, f"rank {rank} hangs"
            time.sleep(0.05)


def run(world, plan, folder):
    """What each rank returned, in its last process; and the pids of the first ones."""
    processes = [_Process(rank, world, plan, str(folder), 0) for rank in range(world)]
    pids = [one.process.pid for one in processes]
    try:
        if plan.dies is not None:
            if plan.stops:
                _wait_for_errors(folder, world, plan)
                processes[plan.dies].process.kill()
            processes[plan.dies].process.join(LONGEST)
            assert processes[plan.dies].process.exitcode == -signal.SIGKILL
            processes[plan.dies] = _Process(plan.dies, world, plan, str(folder), 1)
        return [one.answer() for one in processes], pids
    finally:
        for one in processes:
            one.end()
