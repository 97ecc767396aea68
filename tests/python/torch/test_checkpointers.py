# SPDX-License-Identifier: Apache-2.0
# test_checkpointers.py - the state of hooks and stages in checkpoints that other programs write.
"""Each run goes on in another process group, with new objects, and must get the same bits."""

import os
import warnings

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

import deltawire
import deltawire.torch
import small_gpt
import test_ddp_state
from ddp_ranks import batch_of, bits_of, small_model
from pipelines import Pipe

SAVED_AFTER, STEPS = 2, 4


class Ddp:
    """A model with the DDP hook."""

    def __init__(self, rank, world, folder):
        self.rank, self.trainer = rank, test_ddp_state.Trainer("delta:bits=3")
        self.held = [self.trainer.state]
        self.parts = [self.trainer.inner, self.trainer.optimizer]

    def step(self, number):
        self.trainer.step(self.rank, number)
        return bits_of(self.trainer.model)

    def is_resumed(self):
        return self.trainer.state.stats()["new_buckets"] == 0


class Fsdp:
    """A sharded model; its optimizer keeps nothing."""

    def __init__(self, rank, world, folder):
        import test_fsdp

        self.rank, self.model = rank, test_fsdp.sharded(small_model())
        self.held = [deltawire.torch.compress_fsdp(self.model, "direct:bits=2,feedback=ef")]
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)
        self.parts, self.bits = [self.model], test_fsdp.bits_of

    def step(self, number):
        x, y = batch_of(self.rank, number)
        (self.model(x) - y).square().mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return self.bits(self.model)

    def is_resumed(self):
        return True


class Stages:
    """A pipeline with two stages on each rank."""

    def __init__(self, rank, world, folder, **options):
        options = {"forward": "delta:bits=3", "backward": "delta:bits=6", **options}
        self.pipe = Pipe(rank, world, "interleaved", options=options)
        self.held = self.pipe.stages
        self.parts = [*(stage.submod for stage in self.held), self.pipe.optimizer]

    def step(self, number):
        return self.pipe.steps()

    def is_resumed(self):
        ways = [one.get("forward_sent", {}) for one in self.pipe.stats()]
        return not any(way.get("key_entries") for way in ways)


class Files(Stages):
    """Their states name the copies in files."""

    def __init__(self, rank, world, folder):
        super().__init__(rank, world, folder, state=f"file:{folder}/prev,cache=0")

    def close(self):
        for stage in self.held:
            stage.close_compression()


KINDS = {"ddp": Ddp, "fsdp": Fsdp, "stages": Stages, "files": Files}


# --- the ways to save and load -----------------------------------------------------------------


def by_rank(held, folder, saves):
    """Each rank has a file of its own."""
    file = f"{folder}/held{dist.get_rank()}.pt"
    if saves:
        torch.save([one.compression_state_dict() for one in held], file)
    else:
        for one, state in zip(held, torch.load(file, weights_only=True)):
            one.load_compression_state_dict(state)


def on_first_rank(held, folder, saves):
    """All ranks ask for the state; only rank 0 writes it, as Lightning does."""
    file = f"{folder}/held.pt"
    if saves:
        states = [one.state_dict() for one in held]
        if dist.get_rank() == 0:
            torch.save(states, file)
    else:
        for one, state in zip(held, torch.load(file, weights_only=True)):
            one.load_state_dict(state)


def by_dcp(held, folder, saves):
    call = dcp.save if saves else dcp.load
    call({f"part {i}": one for i, one in enumerate(held)}, checkpoint_id=f"{folder}/dcp")


def by_accelerate(held, folder, saves):
    accelerate = pytest.importorskip("accelerate")
    from accelerate.state import AcceleratorState

    rank, world = str(dist.get_rank()), str(dist.get_world_size())
    environment = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world}
    environment.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0")  # not used: there is a group
    os.environ.update(environment)
    try:
        one = accelerate.Accelerator(cpu=True)
        assert one.is_main_process == (dist.get_rank() == 0)
        one.register_for_checkpointing(*held)
        (one.save_state if saves else one.load_state)(f"{folder}/accelerate")
    finally:
        AcceleratorState._reset_state(True)
        for name in environment:
            del os.environ[name]


WAYS = {"file": by_rank, "first": on_first_rank, "dcp": by_dcp, "accelerate": by_accelerate}


def run(rank, world, kind, folder, ways, loads):
    """Trains. Saves in all ways after some steps; or loads in one of them, and goes on."""
    one, found = KINDS[kind](rank, world, folder), []
    file = f"{folder}/parts{rank}.pt"
    if loads:
        for part, state in zip(one.parts, torch.load(file, weights_only=False)):
            part.load_state_dict(state)
        WAYS[ways[0]](one.held, folder, False)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        for number in range(SAVED_AFTER if loads else 0, STEPS):
            found.append(one.step(number))
            if number == SAVED_AFTER - 1:
                torch.save([part.state_dict() for part in one.parts], file)
                for way in ways:
                    WAYS[way](one.held, folder, True)
    answer = found[-(STEPS - SAVED_AFTER) :], one.is_resumed()
    if kind == "files":
        one.close()
    return answer


@pytest.mark.parametrize("kind", KINDS)
def test_every_checkpointer_goes_on_to_the_bit(ranks, kind, tmp_path):
    if kind == "fsdp":
        pytest.importorskip("test_fsdp")
    if kind in ("stages", "files") and small_gpt.text() is None:
        pytest.skip("no texts: install fortunes")
    try:
        import accelerate  # noqa: F401

        ways = list(WAYS)
    except ImportError:
        ways = [way for way in WAYS if way != "accelerate"]
    if kind != "files":
        whole = ranks.run(2, run, kind, str(tmp_path), ways, False)
    for way in ways:
        if kind == "files":  # a file has the copies of the last two states
            whole = ranks.run(2, run, kind, str(tmp_path), [way], False)
        again = ranks.run(2, run, kind, str(tmp_path), [way], True)
        assert [bits for bits, _ in again] == [bits for bits, _ in whole], way
        assert all(is_resumed for _, is_resumed in again), way


# --- mistakes ----------------------------------------------------------------------------------


def has_no_memory():
    raise MemoryError("too much")


def refusals(rank, world, folder):
    hook, _ = deltawire.torch.ddp_hook("delta:bits=3")
    whole = hook.state_dict()
    found = []
    for state in ({"rank 7": whole[f"rank {rank}"]}, {f"rank {rank}": [b"nothing"]}):
        with pytest.raises(deltawire.DeltawireError) as error:
            hook.load_state_dict(state)
        found.append((error.value.status.name, error.value.why))
    if rank == 1:
        hook.compression_state_dict = has_no_memory
    with pytest.raises(MemoryError if rank == 1 else deltawire.DeltawireError, match="too much"):
        hook.state_dict()
    if rank == 1:
        del hook.compression_state_dict
        hook.close_compression()
    with pytest.raises(deltawire.DeltawireError) as error:
        hook.state_dict()
    return sorted(whole), found, error.value.why


def test_states_that_are_not_there_or_damaged_are_refused(ranks, tmp_path):
    answers = ranks.run(2, refusals, str(tmp_path))
    assert [keys for keys, *_ in answers] == [["rank 0", "rank 1"], ["rank 1"]]
    for _, found, why in answers:
        assert [status for status, _ in found] == ["MISMATCH", "FORMAT"]
        assert "the ranks that saved it" in found[0][1] and "damaged" in found[1][1]
        assert "closed" in why  # of rank 1, on both ranks
