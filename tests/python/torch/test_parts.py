# SPDX-License-Identifier: Apache-2.0
# test_parts.py - tests of deltawire.torch that need one process: messages, ids, torch's methods.
import ast
import contextlib
import pathlib
import random
import re
import types
import warnings

import pytest
import torch

import deltawire.torch
from deltawire import Config, DeltawireError, frame_info
from deltawire.torch.common import configs, tensors
from deltawire.torch.common.misfit import Fit
from deltawire.torch.ddp.exchange import Gather, Parts
from deltawire.torch.pipeline import ids, message, stage, torch_releases, watch
from deltawire.torch.pipeline.fitting import Fitting
from deltawire.torch.pipeline.kept import Kept
from deltawire.torch.pipeline.message import ABORT, EXACT, FRAME, KEEP, LONG, PROFILE, SAME, ZERO
from deltawire.torch.pipeline.message import WITH_IDS, Message, Part
from deltawire.torch.pipeline.receiver import Receiver
from deltawire.torch.pipeline.sender import Sender
from deltawire.torch.pipeline.sides import Sides
from deltawire.torch.pipeline.snapshots import Snapshots

MANUAL = pathlib.Path(__file__).parents[3] / "docs" / "pytorch.md"


def test_messages_survive_a_round_trip():
    parts = [Part(EXACT, 9, (2, 3), b"abc", True), Part(ZERO, 1, (), b"")]
    for given in (
        Message(WITH_IDS, 3, 9, [1, 2**64 - 1], parts),
        Message(WITH_IDS, 0, 1, None, []),
        Message(LONG, 0, 0, length=123, number=7, largest=2**40),
        Message(ABORT, 0, 4, why="ä" * 400),
    ):
        packed = message.pack(given)
        came = message.unpack(memoryview(packed + b"behind"))
        assert came[:4] == given[:4] and came[6:] == given[6:]
        assert [(*p[:3], bytes(p.data), p.is_still) for p in came.parts] == [
            tuple(p) for p in given.parts
        ]
        assert given.why.startswith(came.why[:-1])
        assert given.kind in (LONG, ABORT) or message.size_of(came) == len(packed)


def test_damaged_messages_are_refused():
    """Any change is noticed, but for those in frames, which have digests of their own."""
    chance = random.Random(5)
    parts = [Part(EXACT, 9, (2, 3), b"abcd"), Part(FRAME, 1, (1,), b"frame")]
    parts.append(Part(EXACT, 1, (), b""))
    told = Message(WITH_IDS, 3, 9, [1, 2], parts)
    packed = message.pack(told)
    frame = packed.index(b"frame")
    for at in range(len(packed)):
        bad = bytearray(packed)
        bad[at] ^= 1 << at % 8
        if frame <= at < frame + 5:
            assert message.unpack(memoryview(bad))[:4] == told[:4]
        else:
            with pytest.raises(DeltawireError):
                message.unpack(memoryview(bad))
    for _ in range(3000):
        bad = bytearray(packed[: chance.randrange(len(packed) + 1)])
        for _ in range(chance.randrange(3)):
            if bad:
                bad[chance.randrange(len(bad))] = chance.randrange(256)
        try:
            came = message.unpack(memoryview(bad))
        except DeltawireError as error:
            assert error.status.name in ("FORMAT", "CORRUPT")
        else:
            assert came[:4] == told[:4] and len(came.parts) == 3


@pytest.mark.parametrize(
    "told", [Message(LONG, 0, 0, length=9, number=2), Message(ABORT, 0, 4, why="no")]
)
def test_damaged_messages_without_tensors_are_refused(told):
    packed = message.pack(told)
    assert message.unpack(memoryview(packed)) == told
    for at in range(len(packed)):
        bad = bytearray(packed) + bytes(99)
        bad[at] ^= 1 << at % 8
        with pytest.raises(DeltawireError):
            message.unpack(memoryview(bad))


def test_a_buffer_that_is_too_large():
    for length in (2**62, 2**64 - 1):
        with pytest.raises(DeltawireError, match="rank 3 sends") as refusal:
            tensors.buffer_for(length, "rank 3")
        assert refusal.value.status.name == "NO_MEMORY"


def test_room_for_messages_is_large_enough():
    parts = [Part(EXACT, 1, (2, 3, 4), b"x" * 1000), Part(EXACT, 1, (2,), b"y" * 9)]
    packed = message.pack(Message(WITH_IDS, 1, 1, list(range(7)), parts))
    assert len(packed) <= message.room([(1000, 3), (9, 1)], 7)
    assert message.room([], 0) >= len(message.pack(Message(ABORT, 0, 0, why="z" * 999)))


def test_samples_are_copied_only_where_they_must():
    x = torch.randn(4, 6, 32)
    assert tensors.samples(x).data_ptr() == x.data_ptr()
    assert tensors.samples(x[:, ::2]).data_ptr() == x.data_ptr()
    assert tensors.samples(x[..., :16]).data_ptr() == x.data_ptr()
    for gaps in (x[..., ::2], x.transpose(1, 2), x[:1].expand(3, 6, 32), x[:, :1].expand(4, 9, 32)):
        made = tensors.samples(gaps)
        assert torch.equal(made, gaps) and made.is_contiguous()
    assert tensors.samples(torch.zeros(3, 5)).shape == (3, 1, 5)
    assert tensors.samples(torch.zeros(3, 2, 4, 5)).shape == (3, 8, 5)


OWN_LIFE = Config("direct:bits=4,incarnation=7")


def lives_of_stage(index):
    """The incarnations in what a stage between two others sends: to both sides in two tensors, and
    once more to the stage after it without ids, for which it has other encoders."""
    codecs = {"forward": OWN_LIFE, "backward": OWN_LIFE, "evaluate": OWN_LIFE}
    rest = {"threads": 0, "dataset_size": None, "state": None}
    options = types.SimpleNamespace(**codecs, **rest)
    options.profile_of = options.storage_of = lambda stage: None
    ranks = {index + d: index + d for d in (-1, 0, 1)}
    of_torch = types.SimpleNamespace(
        stage_index=index,
        is_first=False,
        is_last=False,
        group_rank=index,
        stage_index_to_group_rank=ranks,
    )
    made = Sides()
    made.make(of_torch, options, None)
    x = [torch.randn(2, 4, 64)] * 2
    sent = [side.sender.parts(x, [1, 2])[0] for side in (made.before, made.after)]
    sent.append(made.after.sender.parts(x, None)[0])
    return [frame_info(part.data).incarnation for parts in sent for part in parts]


def lives_of_rank(rank):
    """The incarnations of the encoders with which a rank of three computes means."""
    others = [other for other in range(3) if other != rank]
    peers = types.SimpleNamespace(
        rank=rank, world=3, threads=0, codec=OWN_LIFE, sums=OWN_LIFE, others=lambda: others,
        hop=lambda: None,
    )
    parts, gather = Parts(peers, 5, torch.zeros(1000)), Gather(peers, 5, torch.zeros(1000))
    encoders = [*parts._encoders.values(), parts._sums, gather._encoder]
    frames = [bytes(encoder.encode(torch.randn(1, 1, 64), [(1, 0)])) for encoder in encoders]
    return [frame_info(frame).incarnation for frame in frames]


def test_senders_share_no_incarnation():
    """Otherwise they would draw the same numbers for the same key. A run can be repeated."""
    lives = [*lives_of_stage(1), *lives_of_stage(2), *lives_of_rank(0), *lives_of_rank(1)]
    assert len(set(lives)) == len(lives) == 20
    again = [*lives_of_stage(1), *lives_of_stage(2), *lives_of_rank(0), *lives_of_rank(1)]
    assert lives == again
    assert configs.of_encoder(Config("direct:bits=4"), 1) == Config("direct:bits=4")


def of_profile(rows, channels, value=0.5):
    values = torch.full((1, rows, channels), value, dtype=torch.bfloat16)
    return Part(PROFILE, 3, (1, rows, channels), tensors.exact(values))


def test_profiles_in_messages_that_make_no_sense_are_refused():
    stepped = Config("direct:form=step")
    cut = of_profile(3, 64)._replace(data=b"short")
    for part in (of_profile(4, 64), of_profile(1, 64, float("nan")), cut):
        receiver = Receiver(stepped, None, 0, profile="fit")
        with pytest.raises(DeltawireError, match="invalid tensor"):
            receiver.learn([part])
        receiver.learn([of_profile(3, 64)])
    with pytest.raises(DeltawireError, match="invalid tensor"):
        Receiver(stepped, None, 0).tensors([of_profile(3, 64)], WITH_IDS)
    with pytest.raises(DeltawireError, match="invalid tensor"):  # only in front of all others
        receiver.tensors([of_profile(3, 64), of_profile(3, 64)], WITH_IDS)


def test_profiles_are_fitted_after_steps_that_have_trained():
    fitting, x = Fitting(), torch.randn(2, 40, 8)
    assert fitting.begins() is None and fitting.sends(0, x) is not None
    assert fitting.begins() is None and fitting.steps == 0  # nothing came back
    for step in range(1, 10):
        assert fitting.sends(1, x) is None and fitting.sends(0, x) is None
        fitting.came(0, torch.randn(2, 40, 8))
        fitting.came(1, torch.randn(2, 40, 9))  # of another shape: it does not count
        made = fitting.begins(failed=step == 9)
        assert (made is not None) == (step in (1, 2, 4, 8))
    assert fitting.steps == 8 and Fitting().sends(0, x * float("nan")) is None


def test_tensors_of_other_widths_get_profiles_of_their_own():
    config = Config("delta:form=step,error=0.05")
    sender = Sender(config, None, 0, "1 to 2", "fit")
    receiver = Receiver(config, None, 0, profile="fit")
    for step, width in enumerate((64, 64, 48, 48, 64, 32)):
        sender.begin()
        x = torch.randn(2, 40, width)
        if step == 5:
            x *= float("nan")
        parts, kind = sender.parts([x], [1, 2])
        assert (parts[0].how == PROFILE) == (step in (0, 1, 2, 4)), step
        receiver.learn(parts)
        ((y,), _) = receiver.tensors(parts, kind)
        assert step == 5 or (y - x).norm() < 0.1 * x.norm()
        sender.came(0, [torch.randn(2, 40, width)])


def test_a_shape_without_its_data_takes_no_memory():
    for shape in ((2**31, 2**31), (2**20, 2**20), (3,)):
        assert tensors.from_exact(1, shape, memoryview(b"data")) is None
    assert tensors.from_exact(1, (0, 2**31), memoryview(b"")).shape == (0, 2**31)


WIDTHS = [
    (torch.arange(512), 8 + 2 * 512),
    (torch.tensor([50256, 3, 128255, 7, 9]), 8 + 3 * 5),
    (torch.full((300,), -7, dtype=torch.int32), 8 + 300),
    (torch.tensor([-(2**63), 2**63 - 1, 0]), 3 * 8),
    (torch.tensor([-128, 127, 0], dtype=torch.int8), 3),
    (torch.tensor([-(2**31), -(2**31) + 255] * 9, dtype=torch.int32), 8 + 18),
    (torch.tensor(5), 8),
    (torch.empty(0, 3, dtype=torch.int64), 0),
    (torch.tensor([[True, False, True]] * 5), 2),
    (torch.ones(16, dtype=torch.bool), 2),
    (torch.tensor(True), 1),
    (torch.empty(0, dtype=torch.bool), 0),
    (torch.tensor([0, 2, 255, 1], dtype=torch.uint8).view(torch.bool), 1),
    (torch.tensor([float("nan"), -0.0]), 8),
]


@pytest.mark.parametrize("x, size", WIDTHS)
def test_bools_travel_as_bits_and_integers_as_narrow_as_their_values(x, size):
    data, dtype, shape = tensors.exact(x), tensors.DTYPES[x.dtype], tuple(x.shape)
    assert len(data) == size
    y = tensors.from_exact(dtype, shape, memoryview(data))
    assert y.dtype == x.dtype and y.shape == x.shape
    assert torch.equal(y, x) or x.dtype == torch.float32
    assert tensors.exact(y) == data
    for wrong in (data + b"x", data[:-2], data[:8] if size > 8 else b"too long here"):
        if wrong != data:
            assert tensors.from_exact(dtype, shape, memoryview(wrong)) is None


def pair():
    config = Config("direct:bits=4")
    return Sender(config, None, 0, "1 to 2"), Receiver(config, None, 0)


def arrives(receiver, parts, kind=WITH_IDS):
    """What Receiver makes of parts that have come over a lane."""
    came = message.unpack(memoryview(message.pack(Message(kind, 0, 0, [1], parts)))).parts
    receiver.learn(came)
    return receiver.tensors(receiver.recall(came), kind)[0]


def test_zeros_are_taken_only_for_what_needs_no_gradient():
    sender, receiver = pair()
    zero = sender.parts([torch.zeros(3, 5)], [1], zeros=[0])[0][0]
    assert zero == Part(ZERO, tensors.DTYPES[torch.float32], (3, 5), b"")
    assert receiver.tensors([zero], WITH_IDS, {zero[1:3]})[0][0].eq(0).all()
    for wrong in (zero._replace(shape=(2**31, 2**20)), zero._replace(dtype=2)):
        with pytest.raises(DeltawireError, match="FORMAT"):
            receiver.tensors([wrong], WITH_IDS, {zero[1:3]})
    for how in (FRAME, PROFILE, ZERO):
        packed = message.pack(Message(WITH_IDS, 0, 0, [1], [zero._replace(how=how, is_still=True)]))
        with pytest.raises(DeltawireError, match="FORMAT"):
            message.unpack(memoryview(packed))


def test_tensors_with_gradients_and_gradients_are_not_kept():
    fits = Sender(Config("direct:form=step"), None, 0, "1 to 2", "fit")
    rows_first = torch.randn(40, 2, 64, requires_grad=True)  # of two samples
    assert [part.how for part in fits.parts([rows_first], [1, 2])[0]][-1] == EXACT
    sender = Sender(Config("direct:bits=4"), None, 0, "1 to 2", keeps=False)
    for _ in range(2):
        sender.begin()
        assert sender.parts([torch.ones(8, dtype=torch.float64)], [1])[0][0].how == EXACT


def test_a_constant_travels_once():
    """And what arrives may be changed in place, and a copy of it that is equal is the same."""
    sender, receiver = pair()
    mask, positions = torch.ones(1, 1, 64, 64).tril().bool(), torch.arange(64)[None]
    for step in range(3):
        sender.begin()
        for microbatch in range(4):
            parts, _ = sender.parts([mask.clone(), positions], [1], microbatch)
            is_first = step == microbatch == 0
            assert [part.how for part in parts] == [KEEP if is_first else SAME] * 2
            assert is_first or [len(part.data) for part in parts] == [8, 8]
            for y, x in zip(arrives(receiver, parts), (mask, positions)):
                assert torch.equal(y, x)
                y.zero_()
            sender.came(microbatch, [])
    assert sender.exact_bytes == receiver.exact_bytes == 64 * 64 // 8 + 8 + 64 + 11 * 16
    assert sender.exact_tensors == receiver.exact_tensors == 24
    for other in (~mask, mask[..., :32], mask.int(), mask.double().requires_grad_()):
        parts, _ = sender.parts([other], [1])
        assert parts[0].how == (EXACT if other.requires_grad else KEEP)
        assert torch.equal(arrives(receiver, parts)[0], other)


def saved_and_loaded(sender):
    snapshots = Snapshots()
    with contextlib.ExitStack() as failing:
        sender.load(sender.save(snapshots), lambda held: snapshots.states(0, held), failing)()
        failing.pop_all()


def test_what_may_not_have_arrived_travels_again():
    """After a reset, a state, a failed step, and a step in which no gradient has come back."""
    sender, receiver = pair()
    x = torch.arange(99)

    def how():
        parts, _ = sender.parts([x], [1])
        assert torch.equal(arrives(receiver, parts)[0], x)
        return parts[0].how

    for forget in (
        sender.reset,
        lambda: saved_and_loaded(sender),
        sender.begin,
        lambda: (sender.came(1, []), sender.begin()),
        lambda: (sender.came(0, []), sender.begin(True)),
    ):
        assert [how(), how()] == [KEEP, SAME]
        forget()
    assert how() == KEEP
    sender.came(0, [])
    sender.begin()
    assert how() == SAME
    for lost in (Receiver(Config("raw"), None, 0), receiver):
        if lost is receiver:
            arrives(lost, [sender.parts([x + 1], [1])[0][0]])
        with pytest.raises(DeltawireError, match="reset_compression") as refusal:
            arrives(lost, [Part(SAME, 9, (99,), b"12345678")])
        assert refusal.value.status.name == "STATE"


def test_what_is_kept_has_a_limit(monkeypatch):
    """The receiver has what its sender refers to, whatever messages were lost in failed steps."""
    monkeypatch.setattr(Kept, "MOST", 3)
    monkeypatch.setattr(Kept, "BYTES", 400)
    chance, (sender, receiver) = random.Random(3), pair()
    same, failed = 0, False
    for step in range(2000):
        sender.begin(failed)
        trains, fails = chance.random() < 0.6, chance.random() < 0.3
        failed = fails and trains  # the sender does not know of an evaluation that fails there
        for microbatch in range(4):
            x = torch.full((chance.choice((9, 20, 30, 60)),), float(chance.random() < 0.05))
            parts, _ = sender.parts([x], [1], microbatch, trains)
            same += parts[0].how == SAME
            if fails and chance.random() < 0.5:
                continue  # damaged on the way
            if fails:
                receiver.learn(parts)  # it comes in a later step and is dropped
            else:
                assert torch.equal(arrives(receiver, parts)[0], x)
                if trains:
                    sender.came(microbatch, [])
        for end in (sender, receiver):
            assert len(end.kept._held) <= 3 and end.kept._bytes <= 400
            assert end.kept._bytes == sum(map(len, end.kept._held.values()))
    assert same > 1000


def test_a_message_that_was_lost_does_not_change_what_is_dropped_first(monkeypatch):
    monkeypatch.setattr(Kept, "MOST", 2)
    sender, receiver = pair()
    a, b, c = torch.ones(9), torch.ones(10), torch.ones(11)

    def goes(x, arrived=True):
        parts, _ = sender.parts([x], [1])
        sender.came(0, [])
        return arrives(receiver, parts)[0].shape == x.shape if arrived else parts[0].how

    assert goes(a) and goes(b)
    assert goes(a, arrived=False) == SAME  # in an evaluation, of whose failure nobody is told
    assert goes(c) and goes(a) and goes(b)


def test_receive_buffers_are_used_again():
    rooms = tensors.Rooms()
    first, second = rooms.take(100, "rank 3"), rooms.take(100, "rank 3")
    assert first.obj is not second.obj
    rooms.give_back(first)
    shorter = rooms.take(40, "rank 3")
    assert shorter.obj is first.obj and len(shorter) == 40
    rooms.give_back(shorter)
    assert rooms.take(101, "rank 3").obj is not first.obj and rooms._free == []
    for _ in range(99):
        rooms.give_back(memoryview(bytearray(5)))
    assert len(rooms._free) == rooms.MOST


def test_much_that_travels_exactly_is_told_once():
    sender = types.SimpleNamespace(exact_bytes=0, message_bytes=0)

    def said(exact, whole, steps):
        exacts = watch.Exact(3)
        sender.exact_bytes, sender.message_bytes = 5000, 6000  # of the first step
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            for _ in range(steps):
                exacts.look([sender, sender])
                sender.exact_bytes += exact
                sender.message_bytes += whole
        return [str(one.message) for one in told]

    assert said(9, 100, 30) == said(30, 100, 8) == []
    (sentence,) = said(30, 100, 30)
    assert "stage 3 sends 30 % of its bytes without compression" in sentence


def test_a_profile_is_sent_again_until_a_gradient_has_come_back():
    sender = Sender(Config("direct:form=step"), None, 0, "1 to 2", "fit")
    x = torch.randn(2, 40, 64)
    for step in range(3):  # evaluations: the message may have been lost
        sender.begin()
        assert sender.parts([x], None, trains=False)[0][0].how == PROFILE
    assert sender.parts([x], None, trains=False)[0][0].how == FRAME  # in one step only once
    for step in range(4):
        sender.begin()
        assert (sender.parts([x], [1, 2])[0][0].how == PROFILE) == (step in (0, 1, 2))
        sender.came(0, [torch.randn(2, 40, 64)])


def test_tensors_without_gradients_beside_one_with_them_travel_exactly():
    """Masks and cosines of a microbatch of one sample have its shape. No profile is fitted to one
    with the gradient of another."""
    sender = Sender(Config("direct:form=step"), None, 0, "1 to 2", "fit")
    still, learns = torch.randn(1, 40, 64), torch.randn(1, 40, 64, requires_grad=True)
    for given, how in (
        ([still, learns], [KEEP, FRAME]),
        ([still, still], [SAME, FRAME]),  # an evaluation
        ([learns, learns], [PROFILE, FRAME, FRAME]),
    ):
        sender.begin()
        assert [part.how for part in sender.parts(given, [1])[0]] == how
        assert (sender.profile is None) == (given[0] is still)
        sender.came(0, [torch.randn(1, 40, 64)])


def test_first_tensors_without_rows_are_no_matter():
    """A loss of each sample is sent as it is, and its gradient fits nothing."""
    sender = Sender(Config("direct:form=step"), None, 0, "1 to 2", "fit")
    for loss in (torch.randn(8), torch.tensor(1.0)):
        sender.begin()
        assert [part.how in (EXACT, KEEP) for part in sender.parts([loss], [1, 2])[0]] == [True]
        sender.came(0, [torch.ones_like(loss)])


def test_ids_of_microbatches():
    cutter = ids.Cutter()
    assert cutter.cut(list(range(5)), 3, 0, 3) == [0, 1, 2]
    assert cutter.cut(list(range(5)), 2, 1, 3) == [3, 4]
    with pytest.raises(DeltawireError):
        cutter.cut(list(range(5)), 2, 2, 3)
    assert ids.Cutter().cut(torch.tensor([7, 5]), 2, 0, 2) == [7, 5]
    for total in (2, 3, 5, 6):  # too few for two microbatches of two, or too many
        cutter = ids.Cutter()
        with pytest.raises(DeltawireError, match="as many ids as x has samples"):
            for microbatch in (0, 1):
                cutter.cut(torch.arange(total).numpy(), 2, microbatch, 2)
    cutter = ids.Cutter()  # the program has split them
    assert [cutter.cut([i, i + 1], 2, i // 2, 3) for i in (0, 2, 4)] == [[0, 1], [2, 3], [4, 5]]


def test_signatures():
    from torch.distributed import pipelining

    assert torch_releases.differences(pipelining.PipelineStage) == []

    class Changed(pipelining.PipelineStage):
        def get_fwd_send_ops(self, chunk, peer):
            pass

    with pytest.warns(RuntimeWarning) as said:
        torch_releases.warn_of_differences(Changed)
    text = str(said[0].message)
    assert "get_fwd_send_ops takes (self chunk peer)" in text and "(self fwd_chunk_id)" in text
    assert "2.6" in text and torch.__version__ in text
    assert len(torch_releases.differences(object)) == len(torch_releases.TESTED["2.6"])


def test_a_codec_that_does_not_fit_is_told_once():
    """A channel that is 400 times as large as others takes the scale of its row with it."""
    made = {text: deltawire.Encoder(text) for text in ("direct:bits=8,group=row", "mx", "raw:f16")}
    x = torch.randn(4, 128, 64, generator=torch.Generator().manual_seed(5))
    x[..., 9] = 400
    for encoder in made.values():
        encoder.encode(x)
    with pytest.warns(RuntimeWarning) as said:
        fit = Fit("activations", "forward by stage 0")
        for _ in range(2):
            fit.look(made.values)
    assert len(said) == 1
    assert "direct:bits=8,group=row does not fit what is sent forward by stage 0" in str(
        said[0].message
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Fit("activations", "here").look(lambda: [made["mx"], made["raw:f16"]])
        made["raw:f16"].encode(x * 1000)
        with pytest.raises(RuntimeWarning, match="bf16"):
            Fit("gradients", "here").look(lambda: [made["mx"], made["raw:f16"]])
    with pytest.raises(DeltawireError, match="kind must be"):
        made["mx"].config.misfit(made["mx"].counters(), "weights")


def test_buffers_without_rows_have_steps_for_groups():
    flat = {
        "direct:form=step,step=2": "direct:form=step,group=128,step=2,replies=never",
        "direct:form=step,group=sample": "direct:form=step,group=sample,replies=never",
        "direct:bits=4": "direct:replies=never",
        "direct:form=step,transform=hadamard,rotate=256,error=0.1": "direct:form=step,"
        "transform=hadamard,rotate=256,group=256,error=0.1,replies=never",
    }
    assert {text: configs.of_flat(text).text for text in flat} == flat


def test_everything_has_help():
    for name in deltawire.torch.__all__:
        thing = getattr(deltawire.torch, name)
        assert thing.__doc__ and len(thing.__doc__) > 20, name
        kinds = thing.__mro__ if isinstance(thing, type) else ()
        ours = [kind for kind in kinds if kind.__module__.startswith("deltawire.")]
        torchs = {part for kind in kinds if kind not in ours for part in vars(kind)}
        for part, value in ((p, v) for kind in ours for p, v in vars(kind).items()):
            if not part.startswith("_") and callable(value) and part not in torchs:
                assert value.__doc__, f"{name}.{part}"


def test_the_manual_has_the_defaults_of_all_options():
    rows = re.findall(r"^\| `(\w+)` \| `?([^`|]+?)`? \|", MANUAL.read_text(), re.MULTILINE)
    options = {name: default for name, default in rows if name in stage.DEFAULTS}
    assert {name: ast.literal_eval(default) for name, default in options.items()} == stage.DEFAULTS
