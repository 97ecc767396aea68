# SPDX-License-Identifier: Apache-2.0
# test_processes.py - forked processes: stages, point-to-point functions, hooks and FSDP.
import json
import os
import select
import signal

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: ./run torch installs it")

import torch.distributed as dist  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

import deltawire  # noqa: E402
import deltawire.torch as dwt  # noqa: E402
import small_gpt  # noqa: E402
from ddp_ranks import LONGEST, results, small_model  # noqa: E402
from pipelines import Pipe  # noqa: E402
from test_ddp_errors import step as ddp_step  # noqa: E402
from test_ddp_links import LINKS  # noqa: E402

needs_texts = pytest.mark.skipif(small_gpt.text() is None, reason="no texts: install fortunes")
CARRIERS = {
    "group": {},
    "equal_counts": {"equal_counts": True},
    "link": {"carrier": "tcp://127.0.0.1"},
}
EF = "direct:bits=4,feedback=ef"


def in_child(calls):
    """Calls each function in a forked process. Returns {name: what was raised}; "": nothing."""
    here, there = os.pipe()
    child = os.fork()
    if child == 0:
        said = {}
        for name, call in calls.items():
            try:
                call()
                said[name] = ""
            except deltawire.DeltawireError as error:
                said[name] = f"{error.status.name}: {error.why}"
            except BaseException as error:
                said[name] = repr(error)[:200]
        os.write(there, json.dumps(said).encode())
        os._exit(0)
    os.close(there)
    if not select.select([here], [], [], LONGEST / 3)[0]:
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with os.fdopen(here) as said:
        return json.loads(said.read() or '{"all": "the forked process hangs"}')


def check_refused(answers, harmless):
    """Every call was refused because of the fork, but the harmless ones, which do nothing."""
    for said in answers:
        for name, sentence in said.items():
            if name in harmless:
                assert sentence == "", (name, sentence)
            else:
                assert sentence.startswith("ARGUMENT") and "forked" in sentence, (name, sentence)


def rank_whose_stage_forks(rank, world, options):
    pipe = Pipe(rank, world, "gpipe", options=options)
    x, y = small_gpt.samples(8, 32)
    pipe.step(x, y, torch.arange(8))
    stage = pipe.stages[0]
    state = stage.compression_state_dict()
    said = in_child(
        {
            "a step": lambda: pipe.step(x, y, torch.arange(8)),
            "a microbatch": lambda: stage.get_fwd_recv_ops(0),
            "statistics": stage.compression_stats,
            "save": stage.compression_state_dict,
            "load": lambda: stage.load_compression_state_dict(state),
            "reset": stage.reset_compression,
            "a new stage": lambda: Pipe(rank, world, "gpipe", options=options),
            "close": stage.close_compression,
        }
    )
    pipe.step(x, y, torch.arange(8))
    return said


@needs_texts
@pytest.mark.parametrize("carrier", CARRIERS)
def test_a_stage_is_refused_after_a_fork(carrier):
    check_refused(results(2, rank_whose_stage_forks, CARRIERS[carrier]), ["close"])


def rank_that_forks_within_a_step(rank, world):
    pipe = Pipe(rank, world, "gpipe", options={})
    x, y = small_gpt.samples(8, 32)
    pipe.step(x, y, torch.arange(8))
    parent = os.getpid()

    def fork(*_):
        handle.remove()
        child = os.fork()
        if child == 0:
            raise ValueError
        os.waitpid(child, 0)

    if rank == 0:
        handle = pipe.stages[0].submod.register_forward_hook(fork)
    try:
        pipe.step(x, y, torch.arange(8))
    except RuntimeError:  # torch makes it of a ValueError
        if os.getpid() != parent:
            os._exit(0)
        raise


@needs_texts
def test_an_error_of_a_child_is_not_told_to_the_neighbours():
    results(2, rank_that_forks_within_a_step)


def rank_of_p2p_that_forks(rank, world):
    x, y = torch.randn(4, 6, 32, generator=torch.Generator().manual_seed(1)), torch.empty(4, 6, 32)
    config = {"config": "direct:bits=8"}
    if rank == 0:
        dwt.send(x, 1, **config)
        begun = dwt.isend(x, 1, **config)
        calls = {
            "send": lambda: dwt.send(x, 1, **config),
            "another tag": lambda: dwt.send(x, 1, [1, 2, 3, 4], tag=7),
        }
    else:
        dwt.recv(y, 0, **config)
        begun = dwt.irecv(y, 0, **config)
        calls = {
            "recv": lambda: dwt.recv(y, 0, **config),
            "another tag": lambda: dwt.recv(y, 0, tag=7),
        }
    said = in_child({**calls, "wait": begun.wait})
    begun.wait()
    assert rank == 0 or (y - x).abs().max() < 0.1
    return said


def test_p2p_is_refused_after_a_fork():
    check_refused(results(2, rank_of_p2p_that_forks), [])


def rank_whose_hook_forks(rank, world, how):
    model = DistributedDataParallel(small_model())
    state, hook = dwt.ddp_hook(**how)
    model.register_comm_hook(state, hook)
    ddp_step(model, rank)
    saved = state.compression_state_dict()
    said = in_child(
        {
            "statistics": state.stats,
            "save": state.compression_state_dict,
            "load": lambda: state.load_compression_state_dict(saved),
            "a new hook": lambda: dwt.ddp_hook(**how),
            "close": state.close_compression,
            "the end": state._peers.close,
        }
    )
    ddp_step(model, rank)
    return said


@pytest.mark.parametrize("how", [{}, LINKS])
def test_a_hook_is_refused_after_a_fork(how):
    check_refused(results(2, rank_whose_hook_forks, how), ["close", "the end"])


def rank_whose_shards_fork(rank, world, how):
    from test_fsdp import sharded, train

    model, another = sharded(small_model()), sharded(small_model())
    state = dwt.compress_fsdp(model, EF, **how)
    train(model, rank, [0])
    layout, saved = next(iter(state._layouts.values())), state.compression_state_dict()
    x = torch.zeros(layout.elements())
    said = in_child(
        {
            "a gradient": lambda: state.reduce(layout, x, x[: len(x) // world], True),
            "statistics": state.stats,
            "save": state.compression_state_dict,
            "load": lambda: state.load_compression_state_dict(saved),
            "another model": lambda: dwt.compress_fsdp(another, EF, **how),
            "close": state.close_compression,
        }
    )
    train(model, rank, [1])
    return said


@pytest.mark.parametrize("how", [{}, LINKS])
def test_shards_are_refused_after_a_fork(how):
    pytest.importorskip("test_fsdp")
    check_refused(results(2, rank_whose_shards_fork, how), ["close"])
