# SPDX-License-Identifier: Apache-2.0
# test_ddp.py - ddp_hook: the bits of the mean, the modes of DDP, buckets, and bytes sent.
import contextlib
import os
import shutil
import time

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: ./run torch installs it")
pytest.importorskip("torch.distributed")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

import deltawire  # noqa: E402
import deltawire.torch  # noqa: E402
from ddp_ranks import (  # noqa: E402
    Known,
    batch_of,
    bits_of,
    gradients_of,
    results,
    small_model,
)
from deltawire.torch.ddp import exchange as ddp_exchange  # noqa: E402
from ranks import kernel_sent, kernel_sent_since  # noqa: E402

CAP = 0.02  # the size of a bucket in MiB, so that the small model has several buckets
LINKS = "tcp://127.0.0.1"


def train(model, rank, steps, dtype=torch.float32, optimizer=torch.optim.AdamW, sync=None):
    """Trains a model and returns the losses. sync(step): whether to exchange gradients."""
    step_of, losses = optimizer(model.parameters(), lr=1e-2), []
    for step in range(steps):
        x, y = batch_of(rank, step % 4, dtype)
        together = sync is None or sync(step)
        with contextlib.nullcontext() if together else model.no_sync():
            loss = (model(x) - y).square().mean()
            loss.backward()
        losses.append(loss.item())
        if together:
            step_of.step()
            step_of.zero_grad()
    return losses


def compressed(inner, codec="delta:bits=4", exchange="auto", **options):
    """Wraps inner in DistributedDataParallel with a hook. Returns the model and the DdpState.

    exchange: that of ddp_hook, or "links"."""
    model = DistributedDataParallel(inner, **{"bucket_cap_mb": CAP, **options})
    how = {"carrier": LINKS} if exchange == "links" else {"exchange": exchange}
    state, hook = deltawire.torch.ddp_hook(codec, **how)
    model.register_comm_hook(state, hook)
    return model, state


def rank_that_trains(rank, world, codec, exchange, dtype):
    model, state = compressed(small_model(dtype=dtype), codec, exchange)
    optimizer = torch.optim.SGD if dtype == torch.float16 else torch.optim.AdamW
    losses = train(model, rank, 24, dtype, optimizer)
    return bits_of(model), losses, state.stats()


@pytest.mark.parametrize(
    "world, codec, exchange, dtype",
    [
        (2, "delta:bits=4", "auto", torch.float32),
        (2, "delta:bits=3", "parts", torch.bfloat16),
        (3, "delta:bits=4", "gather", torch.bfloat16),
        (4, "direct:bits=4", "auto", torch.float32),
        (2, "mx:element=e4m3", "gather", torch.bfloat16),
        (2, "direct:bits=4,feedback=ef", "auto", torch.float32),
        (3, "direct:bits=3,feedback=ef", "parts", torch.bfloat16),
        (3, "delta:bits=3", "links", torch.float32),
        (2, "cocktail:mask=0.5,feedback=ef", "auto", torch.float32),
        (3, "chunk:keep=0.1,feedback=ef", "parts", torch.bfloat16),
        (3, "lowrank:rank=2,width=16,bits=8,feedback=ef", "links", torch.bfloat16),
    ],
)
def test_all_ranks_hold_the_same_bits(world, codec, exchange, dtype):
    found = results(world, rank_that_trains, codec, exchange, dtype)
    assert len({bits for bits, _, _ in found}) == 1
    for _, losses, _ in found:
        assert sum(losses[-4:]) < 0.98 * sum(losses[:4])


def rank_of_places(rank, world, codec, exchange):
    """Which elements of a mean arrive, in two steps with the same gradients."""
    inner = nn.Linear(8192, 1, bias=False)
    model, _ = compressed(inner, codec, exchange)
    found = []
    for step in range(2):
        model(torch.full((1, 8192), 1.0 + rank)).sum().backward()
        found.append(inner.weight.grad.flatten().tolist())
        inner.weight.grad = None
    return found


@pytest.mark.parametrize("exchange", ["gather", "parts", "links"])
def test_all_ranks_send_the_same_places(exchange):
    """So a quarter of the means arrive, and these are right. In the next step others do."""
    world = 3
    found = results(world, rank_of_places, "randk:keep=0.25", exchange)
    assert all(means == found[0] for means in found)
    first, second = (torch.tensor(mean) for mean in found[0])
    for mean in first, second:
        there = mean != 0
        # With "parts" a rank adds its own gradients to its part as they are, so its sum has all
        # values. What arrives is still a quarter, because the mean is encoded, too.
        assert abs(there.float().mean().item() - 0.25) < 0.01
        assert torch.allclose(mean[there], torch.tensor(2.0))
    assert ((first != 0) & (second != 0)).float().mean().item() < 0.1
    apart = results(world, rank_of_places, "randk:keep=0.25,scaling=unbiased", exchange)
    if exchange == "gather":  # a place is drawn by any of three ranks
        there = torch.tensor(apart[0][0]) != 0
        assert abs(there.float().mean().item() - (1 - 0.75**3)) < 0.02


# The codec raw:f32 is lossless, and with two ranks the division by the number of ranks is exact. So
# the results must have the same bits as without a hook, in all modes of DistributedDataParallel.


class Partly(nn.Module):
    """Each batch uses only one of two halves; the other half has no gradients."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.shared = nn.Linear(16, 64)
        self.halves = nn.ModuleList(nn.Linear(64, 8) for _ in range(2))
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.halves[self.calls % 2](torch.tanh(self.shared(x)))


MODES = {
    "plain": ({}, {}),
    "buckets_as_views": ({"gradient_as_bucket_view": True}, {}),
    "static_graph": ({"static_graph": True}, {}),
    "unused_parameters": ({"find_unused_parameters": True}, {}),
    "accumulation": ({}, {"sync": lambda step: step % 3 == 2}),
    "autocast": ({}, {}),
    "sgd": ({}, {"optimizer": torch.optim.SGD}),
}


def rank_of_mode(rank, world, mode, exchange):
    options, training = MODES[mode]
    bits = []
    for hooked in (False, True):
        inner = Partly() if mode == "unused_parameters" else small_model()
        if hooked:
            model, _ = compressed(inner, "raw:f32", exchange, **options)
        else:
            model = DistributedDataParallel(inner, bucket_cap_mb=CAP, **options)
        with torch.autocast("cpu", torch.bfloat16, enabled=mode == "autocast"):
            train(model, rank, 9, **training)
        bits.append(bits_of(model))
    return bits


@pytest.mark.parametrize("exchange", ["gather", "parts", "links"])
@pytest.mark.parametrize("mode", MODES)
def test_raw_frames_change_nothing(mode, exchange):
    for without, hooked in results(2, rank_of_mode, mode, exchange):
        assert without == hooked


def rank_of_join(rank, world, exchange):
    """Rank 0 has two more batches than rank 1."""
    bits = []
    for hooked in (False, True):
        inner = small_model()
        model = DistributedDataParallel(inner, bucket_cap_mb=CAP)
        if hooked:
            model, _ = compressed(inner, "raw:f32", exchange)
        with model.join():
            train(model, rank, 6 if rank == 0 else 4)
        bits.append(bits_of(inner))
    return bits


@pytest.mark.parametrize("exchange", ["gather", "links"])
def test_uneven_inputs_join(exchange):
    for without, hooked in results(2, rank_of_join, exchange):
        assert without == hooked


# The bits of the mean: the decoded frames are added in the order of ranks, in float32.


def rank_of_mean(rank, world, codec, exchange, count, steps, piece=1 << 22):
    ddp_exchange.PIECE = piece
    model = DistributedDataParallel(Known(count))
    state, hook = deltawire.torch.ddp_hook(codec, exchange=exchange)
    model.register_comm_hook(state, hook)
    means = []
    for step in range(steps):
        model(gradients_of(rank, step, count)).backward()
        means.append(model.module.weights.grad.clone())
        model.zero_grad()
    return [mean.numpy().tobytes() for mean in means], state.stats()["frames"]


class Wire:
    """The encoder of one rank, and a decoder of its frames."""

    def __init__(self, codec):
        self.encoder = deltawire.Encoder(codec + ",replies=never")
        self.decoder = deltawire.Decoder(codec + ",replies=never")

    def __call__(self, x):
        y = torch.empty(x.numel(), dtype=torch.float32)
        self.decoder.decode(self.encoder.encode(x, [7]), y)
        return y


def mean_in_order(tensors):
    total = tensors[0].clone()
    for tensor in tensors[1:]:
        total = total + tensor
    return total / len(tensors)


CODECS = ["delta:bits=2", "delta:bits=2,prev=4", "direct:bits=2,feedback=ef"]


@pytest.mark.parametrize("piece", [1 << 22, 1024])
@pytest.mark.parametrize("codec", CODECS)
def test_a_gathered_mean_is_that_of_the_frames(codec, piece):
    """Pieces hold whole groups of 128 values, so they have the bits of an uncut bucket."""
    count, world, steps = 3001, 3, 4
    found = results(world, rank_of_mean, codec, "gather", count, steps, piece)
    wires = [Wire(codec) for _ in range(world)]
    for step in range(steps):
        sent = [wires[rank](gradients_of(rank, step, count)) for rank in range(world)]
        expected = mean_in_order(sent).numpy().tobytes()
        assert [means[step] for means, _ in found] == [expected] * world
    assert [frames for _, frames in found] == [steps * -(-count // piece)] * world


@pytest.mark.parametrize("codec", ["delta:bits=2", "direct:bits=2,feedback=ef"])
def test_a_mean_by_parts_is_that_of_the_frames(codec):
    count, world, steps, size = 3333, 3, 4, 1152  # a third of 3333, rounded up to a multiple of 64
    found = results(world, rank_of_mean, codec, "parts", count, steps)
    first = {(r, part): Wire(codec) for r in range(world) for part in range(world) if r != part}
    second = [Wire(codec) for _ in range(world)]
    for step in range(steps):
        expected = torch.empty(world * size)
        padded = [
            torch.cat([gradients_of(r, step, count), torch.zeros(world * size - count)])
            for r in range(world)
        ]
        for part in range(world):
            here = slice(part * size, (part + 1) * size)
            sent = [
                padded[r][here] if r == part else first[r, part](padded[r][here])
                for r in range(world)
            ]
            expected[here] = second[part](mean_in_order(sent))
        expected = expected[:count].numpy().tobytes()
        assert [means[step] for means, _ in found] == [expected] * world


# Buckets, and the size of their frames.


def rank_of_buckets(rank, world, exchange):
    model, state = compressed(small_model(), exchange=exchange)
    after = []
    for step in range(4):
        train(model, rank, 1)
        after.append(state.stats())
    return after


@pytest.mark.parametrize("exchange", ["auto", "links"])
def test_buckets_are_recognized_by_their_parameters(exchange):
    for after in results(2, rank_of_buckets, exchange):
        first, second, third, fourth = after
        assert first["buckets"] == 1 or first["buckets"] != second["buckets"]  # rebuilt
        assert second["new_buckets"] > first["new_buckets"]
        assert second["buckets"] > 1
        # The hook forgets the buckets from before, and later steps have no new ones.
        assert second["buckets"] < second["new_buckets"]
        assert second["buckets"] == third["buckets"] == fourth["buckets"]
        assert second["new_buckets"] == fourth["new_buckets"]
        assert second["new_buckets"] <= first["buckets"] + second["buckets"]
        # Key frames have 8 bits per element, delta frames have 4.
        bytes_of = [b["frame_bytes"] - a["frame_bytes"] for a, b in zip(after, after[1:])]
        assert bytes_of[1] == bytes_of[2] < 0.7 * bytes_of[0]


def rank_of_bytes(rank, world, codec, exchange):
    model, state = compressed(small_model(width=600), codec, exchange, bucket_cap_mb=1)
    train(model, rank, 2)
    before, given = state.stats(), kernel_sent()
    train(model, rank, 6)
    dist.barrier()
    given, after = kernel_sent_since(given), state.stats()
    dist.barrier()  # so that nobody closes its connections before all have looked
    return after["sent_bytes"] - before["sent_bytes"], given, after["frames"] - before["frames"]


@pytest.mark.skipif(not shutil.which("ss"), reason="ss is not installed (iproute2)")
@pytest.mark.parametrize("world, exchange", [(2, "gather"), (3, "parts"), (2, "links")])
@pytest.mark.parametrize(
    "codec",
    [
        "direct:form=step,step=2,group=128,rounding=dither,entropy=rans",
        "delta:bits=3",
        "topk:keep=0.01,feedback=ef",
    ],
)
def test_sent_bytes_are_those_of_the_kernel(codec, world, exchange):
    for told, sent, frames in results(world, rank_of_bytes, codec, exchange):
        # gloo adds 147 bytes to each message: a frame, and its length.
        assert 0 < told <= sent <= 1.005 * told + 2 * 2 * 147 * frames, (told, sent)


class Complex(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.weight = nn.Parameter(torch.randn(40, 24, dtype=torch.complex64))

    def forward(self, x):
        return (x.to(torch.complex64) @ self.weight).abs()


def rank_of_complex(rank, world, named):
    model = DistributedDataParallel(Complex())
    state, hook = deltawire.torch.ddp_hook("direct:bits=8", model=model if named else None)
    model.register_comm_hook(state, hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        torch.manual_seed(10 * rank + step)
        model(torch.randn(4, 40)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return torch.view_as_real(model.module.weight.detach()).numpy().tobytes()


@pytest.mark.parametrize("named", [False, True])
def test_complex_parameters_have_the_same_bits_on_all_ranks(named):
    first, *others = results(3, rank_of_complex, named)
    assert others == [first] * 2


def rank_of_empty(rank, world):
    inner = small_model()
    inner.register_parameter("nothing", nn.Parameter(torch.empty(0)))
    inner.register_forward_hook(lambda module, x, y: y + module.nothing.sum())
    model, state = compressed(inner, "delta:bits=4", bucket_cap_mb=0)
    return train(model, rank, 3), bits_of(model), len(state.compression_state_dict()["buckets"])


def test_a_bucket_of_empty_parameters_is_no_frame():
    (_, first, n), (_, second, m) = results(2, rank_of_empty)
    assert first == second and n == m > 0


def test_gradients_without_a_bucket_are_refused():
    state, hook = deltawire.torch.ddp_hook("delta:bits=4")
    with pytest.raises(deltawire.DeltawireError, match="optimize_ddp"):
        hook(state, (torch.zeros(3), torch.zeros(3)))


def rank_that_counts_time(rank, world, exchange):
    """Rank 1 is late in each step. Returns the statistics, the report and the scalars."""
    model, state = compressed(small_model(), "direct:bits=4", exchange)
    begun = state.stats()
    assert begun["codec_seconds"] == begun["wire_seconds"] == begun["waiting_seconds"] == 0
    for number in range(3):
        x, y = batch_of(rank, number)
        loss = (model(x) - y).square().mean()
        time.sleep(0.4 * rank)
        loss.backward()
    return state.stats(), state.compression_report(), state.compression_scalars()


@pytest.mark.parametrize("exchange", ["gather", "parts", "links"])
def test_times_of_a_hook_and_its_report(exchange):
    stats, text, flat = results(2, rank_that_counts_time, exchange)[0]
    assert stats["codec_seconds"] > 0
    assert stats["wire_seconds"] > 0.4 and stats["waiting_seconds"] > 0.4  # of 1.2
    head, row = text.splitlines()
    assert head.startswith("hook, 3 steps") and row.startswith("gradients")
    assert row.split()[3] == f"{stats['raw_bytes'] / stats['sent_bytes']:.1f}"
    assert flat == {f"deltawire/ddp/{name}": value for name, value in stats.items()}
