# SPDX-License-Identifier: Apache-2.0
# test_fsdp.py - compress_fsdp: the bits of sums, the modes of FSDP2, state, and errors.
import os
import time
import warnings

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: ./run torch installs it")
fsdp = pytest.importorskip("torch.distributed.fsdp")
if not hasattr(getattr(fsdp, "FSDPModule", None), "set_custom_reduce_scatter"):
    pytest.skip("this torch has no set_custom_reduce_scatter", allow_module_level=True)

from torch import nn  # noqa: E402
from torch.distributed import pipelining  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard  # noqa: E402

import deltawire  # noqa: E402
import deltawire.torch  # noqa: E402
from cut_links import Cutter  # noqa: E402
from ddp_ranks import (  # noqa: E402
    Known,
    batch_of,
    gradients_of,
    outcomes,
    results,
    small_model,
)
from test_ddp import Partly, Wire  # noqa: E402
from test_ddp_errors import refused  # noqa: E402
from test_ddp_links import LINKS, by_a_group  # noqa: E402

EF = "direct:bits=4,feedback=ef"
GROUP = {"carrier": "group"}


def sharded(inner, **options):
    """Shards every linear module by itself."""
    world = torch.distributed.get_world_size()
    mesh = init_device_mesh("cpu", (world,))
    for module in inner.modules():
        if isinstance(module, nn.Linear):
            fully_shard(module, mesh=mesh, **options)
    return fully_shard(inner, mesh=mesh, **options)


def bits_of(model):
    """The bytes of this rank's parts of all parameters."""
    parts = [p.to_local().detach().reshape(-1).view(torch.uint8) for p in model.parameters()]
    return torch.cat(parts).numpy().tobytes()


def train(model, rank, steps, optimizer=None, sync=None):
    """Trains and returns the losses. steps: their numbers. sync(step): whether to reduce."""
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for step in steps:
        x, y = batch_of(rank, step % 4)
        together = sync is None or sync(step)
        model.set_requires_gradient_sync(together)
        loss = (model(x).float() - y).square().mean()
        loss.backward()
        losses.append(loss.item())
        if together:
            optimizer.step()
            optimizer.zero_grad()
    return losses


# The codec raw:f32 is lossless, and with two ranks a sum has one rounding. So all is as without
# compression.

MODES = {
    "plain": ({}, None),
    "kept_after_forward": ({"reshard_after_forward": False}, None),
    "accumulation": ({}, lambda step: step % 3 == 2),
    "bfloat16": ({"mp_policy": MixedPrecisionPolicy(torch.bfloat16, torch.float32)}, None),
    "reduced_in_bfloat16": ({"mp_policy": MixedPrecisionPolicy(torch.bfloat16)}, None),
    "reduced_in_float16": (
        {"mp_policy": MixedPrecisionPolicy(torch.float32, torch.float16)},
        None,
    ),
    "parameters_without_gradients": ({}, None),
}


class Together(nn.Module):
    """One sharded module, of which each batch uses another half."""

    def __init__(self):
        super().__init__()
        self.inner = Partly()

    def forward(self, x):
        return self.inner(x)


def rank_of_mode(rank, world, mode, how):
    options, sync = MODES[mode]
    found = []
    for compressed in (False, True):
        torch.manual_seed(1)
        if mode == "parameters_without_gradients":
            model = fully_shard(Together(), mesh=init_device_mesh("cpu", (world,)))
        else:
            model = sharded(small_model(), **options)
        if compressed:
            state = deltawire.torch.compress_fsdp(model, "raw:f32", **how)
        losses = train(model, rank, range(9), sync=sync)
        found.append((losses, bits_of(model)))
    return found, state.stats()


@pytest.mark.parametrize("how", [GROUP, LINKS])
@pytest.mark.parametrize("mode", MODES)
def test_raw_frames_change_nothing(mode, how):
    for (without, compressed), stats in results(2, rank_of_mode, mode, how):
        assert without == compressed
        assert stats["steps"] == (3 if mode == "accumulation" else 9)
        assert stats["calls"] % stats["steps"] == 0 < stats["sent_bytes"]


def rank_of_halves(rank, world):
    model = fully_shard(Together(), mesh=init_device_mesh("cpu", (world,)))
    with Cutter(2**40, 0.01):  # a slow connection, on which messages are on the way for long
        state = deltawire.torch.compress_fsdp(model, EF, **LINKS)
    left = []
    for step in range(4):
        train(model, rank, [step])
        links = [one for one in state._ranks.peers.sums._links if one]
        left.append(sum(one.counters().queued_bytes for one in links))
        torch.distributed.barrier()  # until then the other rank keeps its links open
    return left, len(state._shards), len(state._ranks.peers.sums.states())


def test_a_part_of_a_module_leaves_nothing():
    """Neither residuals, which are of other parameters, nor messages that were not sent."""
    assert results(2, rank_of_halves) == [([0] * 4, 0, 0)] * 2


# Fewer bits.


def rank_of_known(rank, world, codec, how, count, steps, dtype):
    policy = MixedPrecisionPolicy(reduce_dtype=dtype)
    mesh = init_device_mesh("cpu", (world,))
    model = fully_shard(Known(count), mesh=mesh, mp_policy=policy)
    deltawire.torch.compress_fsdp(model, codec, **how)
    found = []
    for step in range(steps):
        model(gradients_of(rank, step, count)).backward()
        found.append(model.weights.grad.to_local().clone().numpy().tobytes())
        model.zero_grad()
    return found


CODECS = ["direct:bits=2,feedback=ef", "delta:bits=3", "delta:bits=3,prev=8"]


@pytest.mark.parametrize("codec", CODECS)
def test_a_part_is_the_mean_of_the_frames(codec):
    """In the order of the ranks, in f32; the own part is added as it is."""
    count, world, steps, size = 3001, 3, 4, 1001
    found = results(world, rank_of_known, codec, GROUP, count, steps, torch.float32)
    wires = {(r, part): Wire(codec) for r in range(world) for part in range(world) if r != part}
    for step in range(steps):
        padded = [
            torch.cat([gradients_of(r, step, count), torch.zeros(world * size - count)])
            for r in range(world)
        ]
        for part in range(world):
            here = slice(part * size, (part + 1) * size)
            total = torch.zeros(size)
            for r in range(world):
                x = padded[r][here]
                total = (total if r else 0) + (x if r == part else wires[r, part](x))
            mean = (total / world)[: min(size, count - part * size)]
            assert found[part][step] == mean.numpy().tobytes()


def test_a_part_over_links_is_that_of_a_group():
    """A group cuts its parts at multiples of 2048, so FSDP's parts are padded to them."""
    count, world, steps, size, padded = 9001, 2, 4, 4501, 6144
    codec = "direct:bits=2,feedback=ef"

    def work(group):
        found = []
        for step in range(steps):
            x = torch.zeros(world, padded)
            flat = torch.zeros(world * size)
            flat[:count] = gradients_of(group.rank, step, count)
            x[:, :size] = flat.view(world, size)
            part = torch.zeros(padded)
            group.reduce_scatter(x.view(-1), part, slot=3, mean=True)
            found.append(part[: min(size, count - group.rank * size)].numpy().tobytes())
        return found

    found = results(world, rank_of_known, codec, LINKS, count, steps, torch.float32)
    assert found == by_a_group(world, codec, None, work)


# State.

SAVED_AFTER, STEPS = 4, 8


def rank_of_run(rank, world, folder, first, codec, how):
    """Steps first to STEPS; those before come from the file. Saves, where it begins at 0. If first
    is negative, it loads the parameters alone."""
    file = os.path.join(folder, f"rank{rank}.pt")
    model = sharded(small_model())
    state = deltawire.torch.compress_fsdp(model, codec, **how)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    if first:
        parts, held = torch.load(file, weights_only=True)
        for parameter, part in zip(model.parameters(), parts):
            parameter.to_local().data.copy_(part)
        if first > 0:
            state.load_compression_state_dict(held)
            waiting = state.compression_state_dict()
            assert waiting["mark"] == held["mark"] and len(waiting["buckets"]) > 1
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        train(model, rank, range(abs(first), SAVED_AFTER), optimizer)
        if not first:
            parts = [p.to_local().detach().clone() for p in model.parameters()]
            torch.save([parts, state.compression_state_dict()], file)
        train(model, rank, range(SAVED_AFTER, STEPS), optimizer)
    return bits_of(model)


@pytest.mark.parametrize(
    "world, codec, how",
    [
        *((2, EF, GROUP), (3, "delta:bits=3", GROUP), (2, "delta:bits=4,prev=8", GROUP)),
        *((2, EF, LINKS), (3, "delta:bits=3", LINKS), (2, "delta:bits=4,prev=4", LINKS)),
    ],
)
def test_a_restarted_world_goes_on_to_the_bit(world, codec, how, tmp_path):
    whole = results(world, rank_of_run, str(tmp_path), 0, codec, how)
    assert results(world, rank_of_run, str(tmp_path), SAVED_AFTER, codec, how) == whole
    anew = results(world, rank_of_run, str(tmp_path), -SAVED_AFTER, codec, how)
    assert anew != whole  # what was loaded matters


def rank_that_holds(rank, world, how):
    """The bytes of the state of each codec."""
    held = []
    for prev in ("bf16", "8", "4"):
        model = sharded(small_model())
        state = deltawire.torch.compress_fsdp(model, f"delta:bits=4,prev={prev}", **how)
        train(model, rank, range(3))
        held.append(state.stats()["state_bytes"])
        state.close_compression()
    return held


@pytest.mark.parametrize("how", [GROUP, LINKS])
def test_prev_in_few_bits_takes_a_half_or_a_quarter_of_bf16(how):
    for bf16, eight, four in results(2, rank_that_holds, how):
        assert 0.5 < eight / bf16 < 0.6 and 0.25 < four / bf16 < 0.4, (bf16, eight, four)


def rank_of_one_state(rank, world, folder, how):
    """Only rank 1 loads: a warning, and training goes on as if none had."""
    model = sharded(small_model())
    state = deltawire.torch.compress_fsdp(model, EF, **how)
    if rank == 1 and folder:
        held = torch.load(os.path.join(folder, "rank1.pt"), weights_only=True)[1]
        state.load_compression_state_dict(held)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        train(model, rank, range(3))
    return bits_of(model), any("do not belong together" in str(one.message) for one in said)


@pytest.mark.parametrize("how", [GROUP, LINKS])
def test_states_that_do_not_belong_together(how, tmp_path):
    results(2, rank_of_run, str(tmp_path), 0, EF, how)
    found = results(2, rank_of_one_state, str(tmp_path), how)
    fresh = results(2, rank_of_one_state, None, how)
    assert [bits for bits, _ in found] == [bits for bits, _ in fresh]
    assert all(said for _, said in found) and not any(said for _, said in fresh)


def rank_refused(rank, world, folder, codec, how, change):
    model = sharded(small_model(width=56) if change == "wider" else small_model())
    state = deltawire.torch.compress_fsdp(model, codec, **how)
    held = torch.load(os.path.join(folder, f"rank{rank % 2}.pt"), weights_only=True)[1]
    if change == "cut":
        states = held["buckets"][0]["states"]
        states[next(iter(states))] = states[next(iter(states))][:-5]
    if change == "late":
        train(model, rank, range(1))
    state.load_compression_state_dict(held if change != "of ddp" else {**held, "kind": "ddp"})


@pytest.mark.parametrize(
    "world, codec, how, change, status, words",
    [
        (3, EF, GROUP, "", "MISMATCH", ("world = 2", "compress_fsdp")),
        (2, "direct:bits=3,feedback=ef", GROUP, "", "MISMATCH", ("codec", "bits=3")),
        (2, EF, LINKS, "", "MISMATCH", ("carrier", "'group'")),
        (2, EF, GROUP, "wider", "MISMATCH", ("another model", "8.weight")),
        (2, EF, GROUP, "late", "ARGUMENT", ("before the first backward",)),
        (2, EF, GROUP, "cut", "FORMAT", ()),
        (2, EF, GROUP, "of ddp", "FORMAT", ("compress_fsdp",)),
    ],
)
def test_states_that_are_refused(world, codec, how, change, status, words, tmp_path):
    results(2, rank_of_run, str(tmp_path), 0, EF, GROUP)
    for error in outcomes(world, rank_refused, str(tmp_path), codec, how, change):
        if change == "cut":
            assert error.status.name in ("FORMAT", "CORRUPT"), error
        else:
            refused(error, status, *words)


# Mistakes.


def rank_with(rank, world, *arguments):
    deltawire.torch.compress_fsdp(sharded(small_model()), **arguments[rank])


@pytest.mark.parametrize(
    "mine, theirs, words",
    [
        ({}, {"codec": "direct:bits=3"}, ("codec", "bits=3", "compress_fsdp")),
        (LINKS, {}, ("carrier", "link", "group")),
    ],
)
def test_ranks_with_different_arguments(mine, theirs, words):
    for error in outcomes(2, rank_with, mine, theirs):
        refused(error, "MISMATCH", "rank 0", "rank 1", *words)


def rank_of_mistakes(rank, world):
    compress = deltawire.torch.compress_fsdp
    with pytest.raises(deltawire.DeltawireError, match="call fully_shard before"):
        compress(small_model())
    with pytest.raises(deltawire.DeltawireError, match="timeout"):
        compress(sharded(small_model()), timeout=0)
    with pytest.raises(deltawire.DeltawireError, match="give an address"):
        compress(sharded(small_model()), link={})
    model = sharded(small_model())
    state = compress(model)
    with pytest.raises(deltawire.DeltawireError, match="once for a model"):
        compress(model)
    train(model, rank, range(1))
    state.close_compression()
    with pytest.raises(deltawire.DeltawireError, match="was closed"):
        train(model, rank, range(1))
    function = fsdp.FSDPModule.set_custom_reduce_scatter
    del fsdp.FSDPModule.set_custom_reduce_scatter
    try:
        with pytest.raises(deltawire.DeltawireError, match="no FSDPModule.set_custom") as error:
            compress(sharded(small_model()))
        assert error.value.status.name == "UNSUPPORTED"
    finally:
        fsdp.FSDPModule.set_custom_reduce_scatter = function


def test_fsdp_misuse_is_an_error_with_a_sentence():
    results(2, rank_of_mistakes)


def rank_of_factor(rank, world):
    model = sharded(small_model())
    deltawire.torch.compress_fsdp(model)
    for module in model.modules():
        if isinstance(module, fsdp.FSDPModule):
            module.set_gradient_divide_factor(3.0)
    train(model, rank, range(1))


def rank_of_doubles(rank, world):
    mesh = init_device_mesh("cpu", (world,))
    model = fully_shard(Known(100).double(), mesh=mesh)
    deltawire.torch.compress_fsdp(model)
    model(torch.ones(100).double()).backward()


@pytest.mark.parametrize(
    "function, words",
    [(rank_of_factor, ("set_force_sum_reduction",)), (rank_of_doubles, ("reduce_dtype",))],
)
def test_what_has_no_codec(function, words):
    for error in outcomes(2, function):
        refused(error, "UNSUPPORTED", *words)


def rank_that_is_lost(rank, world, how):
    """Rank 1 ends; the other one gets an error, and the same in the next step."""
    model = sharded(small_model())
    state = deltawire.torch.compress_fsdp(model, EF, **how)
    reduce, calls = state._backward.reduce, []

    def reduce_or_end(*given):
        calls.append(given)
        if rank == 1 and len(calls) == 7:
            os._exit(3)
        reduce(*given)

    state._backward.reduce = reduce_or_end
    try:
        train(model, rank, range(3))
    except deltawire.DeltawireError as error:
        assert state.compression_state_dict()["mark"][1] == -1
        with pytest.raises(deltawire.DeltawireError) as again:
            reduce(*calls[0])
        assert again.value is error
        return error.status.name, error.why
    return None


@pytest.mark.parametrize("how", [GROUP, LINKS])
def test_a_rank_is_lost(how):
    (status, why), other = outcomes(2, rank_that_is_lost, how)
    assert "ended with 3" in str(other)
    assert status == "PEER" and "checkpoint" in why
    assert how is GROUP or "rank 1" in why


# Frozen parameters


class Adapted(nn.Module):
    """A frozen weight, and two small matrices that are trained in its place (LoRA)."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.whole = nn.Parameter(torch.randn(256, 256) / 16, requires_grad=False)
        self.down = nn.Parameter(torch.randn(256, 32) / 16)
        self.up = nn.Parameter(torch.randn(32, 256) / 16)

    def forward(self, x):
        return x @ self.whole + x @ self.down @ self.up


def rank_of_adapted(rank, world, how):
    model = fully_shard(Adapted(), mesh=init_device_mesh("cpu", (world,)))
    state = deltawire.torch.compress_fsdp(model, "delta:bits=2", **how)
    torch.manual_seed(2 + rank)
    x, told = torch.randn(16, 256), []
    for _ in range(10):
        model(x).square().mean().backward()
        model.zero_grad()
        told.append((state.stats()["sent_bytes"], state.stats()["raw_bytes"]))
    saved = state.compression_state_dict()
    names = [name for bucket in saved["buckets"] for name in bucket["names"]]
    sent, raw = told[-1][0] - told[-2][0], told[-1][1] - told[-2][1]
    return names, 8 * sent / (raw / 4 * (world - 1) / world)


@pytest.mark.parametrize("how", [GROUP, LINKS])
def test_only_parameters_that_are_trained_have_state(how):
    for names, bits in results(2, rank_of_adapted, how):
        assert [name.split(".")[-1] for name in names] == ["down", "up"]
        assert bits < 3.2


# Statistics


def rank_that_counts_time(rank, world, how):
    """Rank 1 is late in each backward, in which no parameters are gathered."""
    model = sharded(small_model(), reshard_after_forward=False)
    state = deltawire.torch.compress_fsdp(model, **how)
    for step in range(3):
        loss = model(batch_of(rank, step)[0]).square().mean()
        time.sleep(0.4 * rank)
        loss.backward()
    return state.stats(), state.compression_report(), state.compression_scalars()


@pytest.mark.parametrize("how", [GROUP, LINKS])
def test_times_of_reduce_scatters_and_their_report(how):
    stats, text, flat = results(2, rank_that_counts_time, how)[0]
    assert 0 < stats["codec_seconds"] and 0.4 < stats["wire_seconds"] < stats["waiting_seconds"]
    assert text.startswith("FSDP, 3 steps") and text.splitlines()[1].startswith("gradients")
    assert flat == {f"deltawire/fsdp/{name}": value for name, value in stats.items()}


def rank_of_schedule(rank, world, how):
    """A pipeline of one stage: its schedule reduces modules after the backwards, one by one."""
    model = sharded(small_model())
    state = deltawire.torch.compress_fsdp(model, "raw:f32", **how)
    alone = torch.distributed.new_group([rank], use_local_synchronization=True)
    stage = pipelining.PipelineStage(model, 0, 1, torch.device("cpu"), group=alone)
    schedule = pipelining.ScheduleGPipe(stage, 2, loss_fn=nn.functional.mse_loss)
    found = []
    for step in range(3):
        x, y = batch_of(rank, step)
        schedule.step(x, target=y)
        found.append(state.stats())
    train(model, rank, range(2))
    return found, state.stats()


@pytest.mark.parametrize("how", [GROUP, LINKS])
def test_a_step_of_a_schedule_is_one_step(how):
    for found, last in results(2, rank_of_schedule, how):
        assert [stats["steps"] for stats in found] == [1, 2, 3] and last["steps"] == 5
        calls = [stats["calls"] for stats in found]
        assert calls[0] > 1 and calls == [calls[0], 2 * calls[0], 3 * calls[0]]
