# SPDX-License-Identifier: Apache-2.0
# test_damage.py - bytes that were damaged on the way, other versions, dtypes that are none of ours.
import contextlib
import warnings

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: ./run torch installs it")

from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

import deltawire  # noqa: E402
import deltawire.torch  # noqa: E402
import pipelines  # noqa: E402
import small_gpt  # noqa: E402
from ddp_ranks import batch_of, bits_of, outcomes, small_model  # noqa: E402
from pipelines import Pipe  # noqa: E402
from ranks import Failed  # noqa: E402

needs_texts = pytest.mark.skipif(small_gpt.text() is None, reason="no texts: install fortunes")


def flip(data):
    """One bit near the end, where the payload of a frame lies."""
    data[-9] ^= 4
    return data


def cut(data):
    return data[:-9]


@contextlib.contextmanager
def replaced(owner, name, value):
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield before
    finally:
        setattr(owner, name, before)


# --- pipelines ---------------------------------------------------------------------------------


def steps_with_damage(rank, world, options, damage, by=0):
    """In the second step of four, a stage damages a message: the first one the second of its
    activations, the second one the last of its gradients. (errors, losses, stats)."""
    pipe = Pipe(rank, world, "gpipe", options={**options, "backward": "delta:bits=6"})
    errors, losses = [], []
    for step in range(4):
        with contextlib.ExitStack() as stack:
            if step == 1 and rank == by:
                made = pipe.stages[0]._compression
                lane, number = (made.sides.before.lane, 4) if by else (made.sides.after.lane, 2)
                sent = type(lane).send
                messages = []

                def send(data, waits=True):
                    messages.append(data)
                    return sent(lane, damage(data) if len(messages) == number else data, waits)

                stack.enter_context(replaced(lane, "send", send))
            try:
                losses += pipe.steps()
            except deltawire.DeltawireError as error:
                errors.append((step, error.status.name, error.why))
    return errors, losses, pipe.stats()


@needs_texts
@pytest.mark.parametrize("options", [{}, {"carrier": "tcp://127.0.0.1"}])
@pytest.mark.parametrize("damage", [flip, cut])
def test_a_damaged_message_ends_one_step(ranks, options, damage):
    """Both ranks are told; nothing of it is used, and the next step begins every id anew."""
    for rank, (errors, losses, stats) in enumerate(
        ranks.run(2, steps_with_damage, options, damage)
    ):
        ((step, status, why),) = errors
        assert step == 1 and len(losses) == 3
        assert status in (("PEER",), ("CORRUPT", "FORMAT"))[rank], why
        assert rank == 1 or "stage 1 stopped the step" in why
        if rank == 0:
            sent = stats[0]["forward_sent"]
            assert sent["key_entries"] == 16, sent
        else:
            assert losses[2] < losses[0]


def steps_with_late_damage(rank, world, options):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        errors, losses, _ = steps_with_damage(rank, world, options, flip, by=1)
    told = sum("after stage 1 had ended it" in str(one.message) for one in said)
    return [error[:2] for error in errors], len(losses), told


@needs_texts
@pytest.mark.parametrize("options", [{}, {"carrier": "tcp://127.0.0.1"}])
def test_damaged_gradients_at_the_end_of_a_step_end_only_this_one(ranks, options):
    """The stage that has sent them has ended its step. It is told in the next one."""
    found = ranks.run(2, steps_with_late_damage, options)
    assert found == [([(1, "CORRUPT")], 3, 0), ([], 4, 1)]


# With these codecs, the length of a frame does not depend on the values in it.
QUANTIZED = {"forward": "delta:bits=4", "backward": "direct:bits=4"}


def steps_with_damaged_lengths(rank, world, at):
    """Some messages are longer than the receive buffers. The last one of the second step, which is
    longer than those of later steps, has a damaged announcement. The error or loss of each step,
    and the lengths in the announcements."""
    from deltawire.torch.pipeline import message

    pipe = Pipe(rank, world, "gpipe", options=QUANTIZED)
    x, y = small_gpt.samples(32, 32)
    found, lengths = [], []
    for step, size in enumerate((4, 32, 16, 4, 16)):
        lengths.append([])
        with contextlib.ExitStack() as stack:
            if step > 0 and rank == 0:
                lane = pipe.stages[0]._compression.sides.after.lane
                sent = lane._isend

                def isend(data, *more):
                    if data[4] == message.LONG:
                        lengths[step].append(message.unpack(memoryview(data)).length)
                        if step == 1 and len(lengths[step]) == 4:
                            data[at] ^= 2
                    sent(data, *more)

                stack.enter_context(replaced(lane, "_isend", isend))
            try:
                found.append(pipe.step(x[:size], y[:size], torch.arange(size)))
            except deltawire.DeltawireError as error:
                found.append((error.status.name, error.why))
    return found, lengths


@needs_texts
@pytest.mark.parametrize("at", [4, 12, 29])
def test_a_damaged_announcement_of_a_long_message(ranks, at):
    """gloo would end a process that receives more than it expects. The long message is taken for no
    other one, and the next step works."""
    (first, lengths), (second, _) = ranks.run(2, steps_with_damaged_lengths, at)
    assert len(lengths[1]) == 4 and lengths[2] and lengths[1][3] > max(lengths[2]), lengths
    assert second[1][0] in ("CORRUPT", "FORMAT"), second
    assert first[1][0] == "PEER" and "stage 1 stopped the step" in first[1][1], first
    assert first[:1] + first[2:] == [None] * 4
    assert second[4] < second[2] and second[3] < second[0]


class WrongCounts:
    """Stands in for torch.distributed where lanes send: damages the second length."""

    def __init__(self, real):
        self._real, self._lengths = real, 0

    def __getattr__(self, name):
        return getattr(self._real, name)

    def isend(self, part, **more):
        if part.dtype == torch.int64:
            self._lengths += 1
            if self._lengths == 2:
                part[0] -= 40
        return self._real.isend(part, **more)


def steps_with_damaged_counts(rank, world):
    from deltawire.torch.pipeline import group_lane

    pipe = Pipe(rank, world, "gpipe", options={"equal_counts": True})
    found = []
    for step in range(3):
        with contextlib.ExitStack() as stack:
            if step == 1 and rank == 0:
                stack.enter_context(
                    replaced(group_lane, "dist", WrongCounts(group_lane.dist))
                )
            try:
                pipe.steps()
            except deltawire.DeltawireError as error:
                found.append((step, error.status.name))
    return found


@needs_texts
def test_a_damaged_length_before_a_message(ranks):
    answers = ranks.run(2, steps_with_damaged_counts)
    assert answers == [[(1, "PEER"), (2, "PROTOCOL")], [(1, "CORRUPT"), (2, "PROTOCOL")]]


def rank_of_version(rank, world):
    from deltawire.torch.pipeline import compression

    with replaced(compression, "VERSION", f"0.0.{7 + rank}"):
        Pipe(rank, world, "gpipe", options={}).steps()


@needs_texts
def test_stages_of_different_versions(ranks):
    with pytest.raises(Failed) as failed:
        ranks.run(2, rank_of_version)
    assert set(failed.value.errors) == {0, 1}
    for name, status, text in failed.value.errors.values():
        assert (name, status.name) == ("DeltawireError", "MISMATCH")
        assert "version" in text and "0.0.7" in text and "0.0.8" in text


class OfOtherDtype(nn.Module):
    """Its second output has a dtype that cannot travel."""

    def __init__(self, index):
        super().__init__()
        self.first = index == 0
        self.letters = nn.Embedding(small_gpt.LETTERS, 32)
        self.logits = nn.Linear(32, small_gpt.LETTERS)

    def forward(self, *given):
        if self.first:
            return self.letters(given[0]), given[0].to(torch.uint16)
        return self.logits(given[0]).clone()


def rank_of_dtype(rank, world):
    Pipe(rank, world, "gpipe", options={}, make=OfOtherDtype).steps()


@needs_texts
@pytest.mark.skipif(not pipelines.HAS_EVAL, reason="torch 2.6 wants gradients of all outputs")
def test_a_dtype_that_cannot_travel(ranks):
    with pytest.raises(Failed) as failed:
        ranks.run(2, rank_of_dtype)
    found = {rank: (status.name, text) for rank, (_, status, text) in failed.value.errors.items()}
    assert found[0][0] == "UNSUPPORTED" and "torch.uint16" in found[0][1], found
    assert found[1][0] == "PEER" and "torch.uint16" in found[1][1], found


# --- send and recv -----------------------------------------------------------------------------


CODEC = "delta:bits=4"  # whose frames do not end with zeros, as those of rANS may


def exchange_with_damage(rank, world, damage):
    """A damaged frame, then one under another tag: what the receiver says and has."""
    from deltawire.torch.pipeline import p2p

    x = torch.randn(4, 6, 32, generator=torch.Generator().manual_seed(3))
    if rank == 0:
        real = p2p.tensors.of_buffer
        buffers = []

        def of_buffer(data):
            buffers.append(data)
            return real(damage(data) if len(buffers) == 2 else data)

        with replaced(p2p.tensors, "of_buffer", of_buffer):
            deltawire.torch.send(x, 1, range(4), config=CODEC)
        deltawire.torch.send(x, 1, range(4), tag=1)
        return None
    y = torch.zeros(4, 6, 32)
    try:
        deltawire.torch.recv(y, 0, config=CODEC)
    except deltawire.DeltawireError as error:
        said = error.status.name
    untouched = not y.any()
    return said, untouched, deltawire.torch.recv(y, 0, tag=1)


@pytest.mark.parametrize("damage", [flip, cut])
def test_a_damaged_frame_is_not_received(ranks, damage):
    answers = ranks.run(2, exchange_with_damage, damage)
    assert answers[1] == ("CORRUPT", True, [0, 1, 2, 3])


HEADER = 24


def damaged_headers(rank, world):
    """Each byte of a header is damaged once, each under a tag of its own, and one header is cut:
    what the receiver says, twice for each tag, and the ids of a frame under another tag."""
    from deltawire.torch.pipeline import p2p

    x = torch.randn(4, 6, 32, generator=torch.Generator().manual_seed(3))
    kept, said = [], []
    for at in range(HEADER + 1):
        if rank == 0:
            real = p2p.tensors.of_buffer

            def of_buffer(data):
                if len(data) == HEADER:
                    data[at : at + 1] = [data[at] ^ 1] if at < HEADER else []
                    data = data if at < HEADER else data[:-9]
                return real(data)

            with replaced(p2p.tensors, "of_buffer", of_buffer):
                kept.append(deltawire.torch.isend(x, 1, range(4), tag=at))
            continue
        y = torch.zeros(4, 6, 32)
        for _ in range(2):
            try:
                deltawire.torch.recv(y, 0, tag=at)
            except deltawire.DeltawireError as error:
                said.append(error.status.name)
        assert not y.any()
    if rank == 0:
        deltawire.torch.send(x, 1, range(4), tag=HEADER + 1)
        return None
    return said, deltawire.torch.recv(y, 0, tag=HEADER + 1)


def test_damaged_headers_are_refused(ranks):
    """No frame is received whose length is unknown, neither then nor by the next call."""
    said, ids = ranks.run(2, damaged_headers)[1]
    assert said == ["FORMAT", "PROTOCOL"] * 4 + ["CORRUPT", "PROTOCOL"] * (HEADER - 3)
    assert ids == [0, 1, 2, 3]


def exchange_between_versions(rank, world):
    from deltawire.torch.pipeline import p2p

    x = torch.ones(4, 6, 32)
    with replaced(p2p, "VERSION", f"0.0.{7 + rank}"):
        if rank == 0:
            deltawire.torch.send(x, 1, range(4))
            return None
        try:
            deltawire.torch.recv(x, 0)
        except deltawire.DeltawireError as error:
            return error.status.name, error.why


def test_send_and_recv_of_different_versions(ranks):
    status, why = ranks.run(2, exchange_between_versions)[1]
    assert status == "MISMATCH" and "version" in why and "0.0.8" in why


# --- the hook ----------------------------------------------------------------------------------


class Damaging:
    """Stands in for torch.distributed where the hook sends: damages the first frame."""

    def __init__(self, real):
        self.real, self.done = real, False

    def __getattr__(self, name):
        return getattr(self.real, name)

    def isend(self, data, *more):
        if data.dtype == torch.uint8 and not self.done:
            self.done = True
            data[-9] ^= 4
        return self.real.isend(data, *more)


def rank_with_damage(rank, world, exchange):
    """Rank 1 sends a damaged frame in its third step: what each rank says, before it is used."""
    from deltawire.torch.gradients import hop

    model = DistributedDataParallel(small_model(), bucket_cap_mb=1)
    model.register_comm_hook(
        *deltawire.torch.ddp_hook(exchange=exchange, model=model, timeout=5.0)
    )
    for number in range(5):
        if number == 2 and rank == 1:
            hop.dist = Damaging(hop.dist)
        before = bits_of(model)
        x, y = batch_of(rank, number)
        try:
            (model(x) - y).square().mean().backward()
        except deltawire.DeltawireError as error:
            assert bits_of(model) == before
            return number, error.status.name, error.why
    return None


@pytest.mark.parametrize("exchange", ["gather", "parts"])
def test_damaged_gradients_are_not_used(exchange):
    """The rank that gets them says so, and the other one hears of it, at the latest one step on."""
    first, second = outcomes(2, rank_with_damage, exchange)
    assert first[:2] == (2, "CORRUPT"), first
    assert "rank 1" in first[2] and "load_compression_state_dict" in first[2], first
    assert second[0] in (2, 3) and second[1] in ("PEER", "TIMEOUT"), second
