# SPDX-License-Identifier: Apache-2.0
# test_refusals.py - a rank that refuses before the first step: all others end with its reason.
"""The ranks live on after their errors, so nobody notices a refusal because a process has ended."""

import time

import pytest
import torch
from torch import nn
from torch.distributed import fsdp
from torch.nn.parallel import DistributedDataParallel

import deltawire
import deltawire.torch
import small_gpt
from deltawire.torch.common.rendezvous import Rendezvous
from deltawire.torch.pipeline import torch_stage
from pipelines import HAS_EVAL, Pipe
from ranks import TIMEOUT_S

needs_scatter = pytest.mark.skipif(
    not hasattr(fsdp.FSDPModule, "set_custom_reduce_scatter"),
    reason="this torch has no set_custom_reduce_scatter",
)
needs_texts = pytest.mark.skipif(small_gpt.text() is None, reason="no texts: install fortunes")
REFUSES = 1  # the rank
LINKS = {"carrier": "tcp://127.0.0.1"}


def caught(function, *given):
    """Returns (status, sentence, rank) of the error, and for how long it was waited."""
    begun = time.monotonic()
    try:
        function(*given)
    except Exception as error:
        status = getattr(error, "status", None)
        named = status.name if status is not None else type(error).__name__
        found = (named, str(error), getattr(error, "rank", None))
        return found, time.monotonic() - begun
    return None, time.monotonic() - begun


def check(answers, status, words, says=None):
    """All ranks have the error of the one that refuses. says: the status there."""
    for rank, (found, seconds) in enumerate(answers):
        assert found is not None and words in found[1], (rank, found)
        assert seconds < TIMEOUT_S / 2
        if rank == REFUSES:
            assert found[0] == (says or status), found
        else:
            assert found[0] == status and found[2] == REFUSES, found
            assert f"rank {REFUSES} of the group refused" in found[1], found


# --- pipelines ---------------------------------------------------------------------------------


class Broken(nn.Linear):
    def forward(self, *given):
        raise ValueError("this module is broken")


def one_step(rank, world, how):
    refuses = rank == REFUSES
    options = {**LINKS} if how == "link" else {}
    make = None
    if refuses and how == "text":
        options["forward"] = "delta:bits=99"
    if refuses and how == "link":
        options["link"] = {"peer_timeout": -1}
    if refuses and how == "file":
        options["state"] = "file:/nowhere/prev"
    if refuses and how == "module":
        make = lambda index: Broken(4, 4)  # noqa: E731
    pipe = Pipe(rank, world, options=options, make=make)
    if how == "loss" and refuses:
        pipe.schedule._loss_fn = Broken(4, 4)
    if how == "load" and refuses:
        pipe.stages[0].load_compression_state_dict({"format": 1, "stage_index": 7})
    far = torch_stage.far_neighbours
    if how == "far" and refuses:
        torch_stage.far_neighbours = lambda stage: [7]
    try:
        pipe.steps()
    finally:
        torch_stage.far_neighbours = far


def stage_refuses(rank, world, how):
    return caught(one_step, rank, world, how)


REASONS = [
    ("text", "CONFIG", "'99'", None),
    ("link", "ARGUMENT", "peer_timeout", None),
    ("file", "IO", "cannot be opened", None),
    ("load", "MISMATCH", "stage 7", None),
    ("module", "PEER", "this module is broken", "ValueError"),
    ("far", "UNSUPPORTED", "no neighbours", None),
]


@needs_texts
@pytest.mark.skipif(not HAS_EVAL, reason="torch 2.6 exchanges shapes out of reach")
@pytest.mark.parametrize("how, status, words, says", REASONS)
def test_a_stage_that_refuses_ends_all_ranks(ranks, how, status, words, says):
    check(ranks.run(3, stage_refuses, how), status, words, says)


@needs_texts
@pytest.mark.skipif(not HAS_EVAL, reason="torch 2.6 exchanges shapes out of reach")
def test_a_loss_that_fails_ends_all_ranks(ranks):
    """In torch's inference of gradients, which goes from the last stage to the first one."""
    check(ranks.run(2, stage_refuses, "loss"), "PEER", "this module is broken", "ValueError")


# --- hooks -------------------------------------------------------------------------------------


def sharded():
    return fsdp.fully_shard(nn.Linear(4, 4))


def one_hook(rank, world, how):
    refuses = rank == REFUSES
    bad = "delta:bits=99" if refuses else "delta:bits=4"
    if how == "ddp text":
        deltawire.torch.ddp_hook(bad)
    if how == "fsdp text":
        deltawire.torch.compress_fsdp(sharded(), bad)
    if how == "fsdp model":
        deltawire.torch.compress_fsdp(nn.Linear(4, 4) if refuses else sharded())
    if how == "link":
        deltawire.torch.ddp_hook(**LINKS, link={"peer_timeout": -1 if refuses else 5})
    if how == "dtype":
        kind = torch.float64 if refuses else torch.float32
        deltawire.torch.ddp_hook(model=nn.Linear(4, 4, dtype=kind))
    if how == "ddp load":
        model = DistributedDataParallel(nn.Linear(4, 4))
        state, hook = deltawire.torch.ddp_hook("delta:bits=4")
        model.register_comm_hook(state, hook)
        if refuses:
            state.load_compression_state_dict({})
        model(torch.ones(4)).sum().backward()
    if how == "fsdp load":
        model = sharded()
        state = deltawire.torch.compress_fsdp(model, "delta:bits=4")
        if refuses:
            state.load_compression_state_dict({})
        model(torch.ones(1, 4)).sum().backward()


def hook_refuses(rank, world, how):
    return caught(one_hook, rank, world, how)


@pytest.mark.parametrize(
    "how, status, words",
    [
        ("ddp text", "CONFIG", "'99'"),
        pytest.param("fsdp text", "CONFIG", "'99'", marks=needs_scatter),
        pytest.param("fsdp model", "ARGUMENT", "fully_shard", marks=needs_scatter),
        ("link", "ARGUMENT", "peer_timeout"),
        ("dtype", "UNSUPPORTED", "float64"),
        ("ddp load", "FORMAT", "ddp_hook"),
        pytest.param("fsdp load", "FORMAT", "compress_fsdp", marks=needs_scatter),
    ],
)
def test_a_hook_that_refuses_ends_all_ranks(ranks, how, status, words):
    check(ranks.run(3, hook_refuses, how), status, words)


def other_hooks(rank, world):
    if rank == 1:
        return caught(deltawire.torch.compress_fsdp, sharded())
    return caught(deltawire.torch.ddp_hook)


@needs_scatter
def test_hooks_of_different_kinds_are_a_mismatch(ranks):
    """fully_shard needs nobody else, so only deltawire can notice."""
    for found, _ in ranks.run(2, other_hooks):
        assert found[0] == "MISMATCH" and "the function" in found[1], found


class GoneStore:
    def check(self, keys):
        raise RuntimeError("Broken pipe")


def store_is_gone(rank, world):
    rendezvous = Rendezvous.of_ranks("ddp_hook", None)
    rendezvous._store = GoneStore()
    return caught(rendezvous.word_of, "step 1", 1 - rank)


def test_without_torchs_store_nobody_is_called_late(ranks):
    for (status, sentence, _), _ in ranks.run(2, store_is_gone):
        assert status == "PEER" and "Broken pipe" in sentence and "seconds" not in sentence


def loads_and_goes_on(rank, world, who):
    """The program catches the error of a state that is not one, and begins without state."""
    model = DistributedDataParallel(nn.Linear(4, 4))
    state, hook = deltawire.torch.ddp_hook("delta:bits=4")
    model.register_comm_hook(state, hook)
    if rank in who:
        with pytest.raises(deltawire.DeltawireError):
            state.load_compression_state_dict({})
    if rank == 0:
        time.sleep(1.5)  # longer than others wait for a rank to go on
    model(torch.ones(4)).sum().backward()
    return model.module.weight.grad.tolist()


@pytest.mark.parametrize("who", [(0, 1), (1,)])
def test_a_program_may_catch_a_refusal_and_go_on(ranks, who):
    first, second = ranks.run(2, loads_and_goes_on, who)
    assert first == second
