# SPDX-License-Identifier: Apache-2.0
# ddp_ranks.py - runs a function on several ranks, each in its own process, for tests of ddp_hook.
"""The ranks are forked from the test, which has already imported torch, and connect by a file."""

import contextlib
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import traceback

import torch
import torch._dynamo  # optimizers import it in their first step; here it is imported only once
import torch.distributed as dist
from torch import nn

import deltawire

LONGEST = int(os.environ.get("DW_DDP_LONGEST", "240"))  # seconds until a rank that hangs is killed


class Failed(Exception):
    """The function of a rank did not return."""


def _child(pipe, function, rank, world, place, arguments):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    try:
        dist.init_process_group("gloo", init_method=f"file://{place}", rank=rank, world_size=world)
        answer = (True, function(rank, world, *arguments))
    except deltawire.DeltawireError as error:
        answer = (False, error)
    except BaseException:
        answer = (False, Failed(traceback.format_exc()))
    pipe.send(answer)
    pipe.close()
    sys.stdout.flush()
    os._exit(0)


class Ranks:
    """The ranks of one test. children: their processes."""

    def __init__(self, world, function, *arguments):
        context = multiprocessing.get_context("fork")
        self.folder = tempfile.TemporaryDirectory(prefix="deltawire-ddp-")
        place = os.path.join(self.folder.name, "meet")
        self.children, self.pipes = [], []
        for rank in range(world):
            here, there = context.Pipe(duplex=False)
            given = (there, function, rank, world, place, arguments)
            child = context.Process(target=_child, args=given, daemon=True)
            child.start()
            there.close()
            self.children.append(child)
            self.pipes.append(here)

    def outcomes(self):
        """Returns, for each rank, the function's result or the exception that it raised."""
        found = []
        try:
            for rank, pipe in enumerate(self.pipes):
                if not pipe.poll(LONGEST):
                    found.append(Failed(f"rank {rank} hangs"))
                    continue
                try:
                    found.append(pipe.recv()[1])
                except EOFError:
                    self.children[rank].join()
                    code = self.children[rank].exitcode
                    found.append(Failed(f"rank {rank} ended with {code}"))
        finally:
            for child in self.children:
                if child.is_alive():
                    child.kill()
                child.join()
            self.folder.cleanup()
        return found


def outcomes(world, function, *arguments):
    return Ranks(world, function, *arguments).outcomes()


def results(world, function, *arguments):
    """Returns the result of each rank. Raises the exception of the first rank that failed."""
    found = outcomes(world, function, *arguments)
    for one in found:
        if isinstance(one, BaseException):
            raise one
    return found


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def free_ports_in_a_row(count):
    """Returns the first of several consecutive ports at which nobody listens now."""
    while True:
        first = free_port()
        try:
            with contextlib.ExitStack() as stack:
                for port in range(first, first + count):
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first
        except (OSError, OverflowError):  # one of them is taken, or past the last port
            pass


def small_model(seed=1, width=48, layers=3, dtype=torch.float32):
    torch.manual_seed(seed)
    inner = [nn.Linear(16, width), nn.GELU()]
    for _ in range(layers):
        inner += [nn.Linear(width, width), nn.GELU()]
    return nn.Sequential(*inner, nn.Linear(width, 8)).to(dtype)


def batch_of(rank, step, dtype=torch.float32):
    """Returns inputs (N, 16) and targets (N, 8), different for each rank and step."""
    made = torch.Generator().manual_seed(1000 * rank + step)
    x = torch.randn(12, 16, generator=made)
    y = torch.sin(3 * x[:, :8]) + x[:, 8:].square()
    return x.to(dtype), y.to(dtype)


def gradients_of(rank, step, count):
    return torch.randn(count, generator=torch.Generator().manual_seed(17 * rank + step))


class Known(nn.Module):
    """A model with one bucket of count elements, whose gradients are the input."""

    def __init__(self, count):
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(count))

    def forward(self, gradients):
        return (self.weights * gradients).sum()


def bits_of(model):
    """The bytes of all parameters."""
    flat = torch.cat([p.detach().reshape(-1).view(torch.uint8) for p in model.parameters()])
    return flat.numpy().tobytes()
