# SPDX-License-Identifier: Apache-2.0
# test_parts.py - tests of deltawire.torch that need one process: messages, ids, torch's methods.
import ast
import pathlib
import random
import re
import types
import warnings

import pytest
import torch

import deltawire.torch
from deltawire import Config, DeltawireError, frame_info
from deltawire.torch import compatibility, ends, ids, message, stage, tensors, watch
from deltawire.torch.compression import Compression
from deltawire.torch.ddp_exchange import Gather, Parts
from deltawire.torch.fitting import Fitting
from deltawire.torch.message import ABORT, EXACT, FRAME, LONG, PROFILE, WITH_IDS, Message, Part

MANUAL = pathlib.Path(__file__).parents[3] / "docs" / "python.md"


def test_messages_survive_a_round_trip():
    parts = [Part(EXACT, 9, (2, 3), b"abc"), Part(EXACT, 1, (), b"")]
    for given in (
        Message(WITH_IDS, 3, 9, [1, 2**64 - 1], parts),
        Message(WITH_IDS, 0, 1, None, []),
        Message(LONG, 0, 0, length=123, number=7, largest=2**40),
        Message(ABORT, 0, 4, why="ä" * 400),
    ):
        packed = message.pack(given)
        came = message.unpack(memoryview(packed + b"behind"))
        assert came[:4] == given[:4] and came[6:] == given[6:]
        assert [(p.how, p.dtype, p.shape, bytes(p.data)) for p in came.parts] == [
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
    options = types.SimpleNamespace(**codecs, threads=0, dataset_size=None)
    options.profile_of = lambda stage: None
    ranks = {index + d: index + d for d in (-1, 0, 1)}
    of_torch = types.SimpleNamespace(
        stage_index=index,
        is_first=False,
        is_last=False,
        group_rank=index,
        stage_index_to_group_rank=ranks,
    )
    made = types.SimpleNamespace(stage=of_torch, options=options, before=None, after=None)
    Compression.sides(made)
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
    assert ends.of_encoder(Config("direct:bits=4"), 1) == Config("direct:bits=4")


def of_profile(rows, channels, value=0.5):
    values = torch.full((1, rows, channels), value, dtype=torch.bfloat16)
    return Part(PROFILE, 3, (1, rows, channels), tensors.exact(values))


def test_profiles_in_messages_that_make_no_sense_are_refused():
    stepped = Config("direct:form=step")
    cut = of_profile(3, 64)._replace(data=b"short")
    for part in (of_profile(4, 64), of_profile(1, 64, float("nan")), cut):
        receiver = ends.Receiver(stepped, None, 0, profile="fit")
        with pytest.raises(DeltawireError, match="invalid tensor"):
            receiver.learn([part])
        receiver.learn([of_profile(3, 64)])
    with pytest.raises(DeltawireError, match="invalid tensor"):
        ends.Receiver(stepped, None, 0).tensors([of_profile(3, 64)], WITH_IDS)
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
    sender = ends.Sender(config, None, 0, "1 to 2", "fit")
    receiver = ends.Receiver(config, None, 0, profile="fit")
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


def test_a_profile_is_sent_again_until_a_gradient_has_come_back():
    sender = ends.Sender(Config("direct:form=step"), None, 0, "1 to 2", "fit")
    x = torch.randn(2, 40, 64)
    for step in range(3):  # evaluations: the message may have been lost
        sender.begin()
        assert sender.parts([x], None, trains=False)[0][0].how == PROFILE
    assert sender.parts([x], None, trains=False)[0][0].how == FRAME  # in one step only once
    for step in range(4):
        sender.begin()
        assert (sender.parts([x], [1, 2])[0][0].how == PROFILE) == (step in (0, 1, 2))
        sender.came(0, [torch.randn(2, 40, 64)])


def test_a_gradient_of_the_second_tensor_fits_nothing_to_the_first():
    sender = ends.Sender(Config("direct:form=step"), None, 0, "1 to 2", "fit")
    x, learns = torch.randn(2, 40, 64), torch.randn(2, 40, 64, requires_grad=True)
    for given, is_fitted in (([x, learns], False), ([learns, x], True)):
        sender.begin()
        sender.parts(given, [1, 2])
        sender.came(0, [torch.randn(2, 40, 64)])
        first = sender.profile
        sender.begin()
        assert (sender.profile != first) == is_fitted


def test_first_tensors_without_rows_are_no_matter():
    """A loss of each sample is sent as it is, and its gradient fits nothing."""
    sender = ends.Sender(Config("direct:form=step"), None, 0, "1 to 2", "fit")
    for loss in (torch.randn(8), torch.tensor(1.0)):
        sender.begin()
        assert [part.how for part in sender.parts([loss], [1, 2])[0]] == [EXACT]
        sender.came(0, [torch.ones_like(loss)])


def test_ids_of_microbatches():
    cutter = ids.Cutter()
    assert cutter.cut(list(range(5)), 3, 0) == [0, 1, 2]
    assert cutter.cut(list(range(5)), 2, 1) == [3, 4]
    with pytest.raises(DeltawireError):
        cutter.cut(list(range(5)), 2, 2)
    assert ids.Cutter().cut(torch.tensor([7, 5]), 2, 0) == [7, 5]


def test_signatures():
    from torch.distributed import pipelining

    assert compatibility.differences(pipelining.PipelineStage) == []

    class Changed(pipelining.PipelineStage):
        def get_fwd_send_ops(self, chunk, peer):
            pass

    with pytest.warns(RuntimeWarning) as said:
        compatibility.warn_of_differences(Changed)
    text = str(said[0].message)
    assert "get_fwd_send_ops takes (self chunk peer)" in text and "(self fwd_chunk_id)" in text
    assert "2.6" in text and torch.__version__ in text
    assert len(compatibility.differences(object)) == len(compatibility.TESTED["2.6"])


def test_a_codec_that_does_not_fit_is_told_once():
    """A channel that is 400 times as large as others takes the scale of its row with it."""
    made = {text: deltawire.Encoder(text) for text in ("direct:bits=8,group=row", "mx", "raw:f16")}
    x = torch.randn(4, 128, 64, generator=torch.Generator().manual_seed(5))
    x[..., 9] = 400
    for encoder in made.values():
        encoder.encode(x)
    with pytest.warns(RuntimeWarning) as said:
        fit = watch.Fit("activations", "forward by stage 0")
        for _ in range(2):
            fit.look(made.values)
    assert len(said) == 1
    assert "direct:bits=8,group=row does not fit what is sent forward by stage 0" in str(
        said[0].message
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        watch.Fit("activations", "here").look(lambda: [made["mx"], made["raw:f16"]])
        made["raw:f16"].encode(x * 1000)
        with pytest.raises(RuntimeWarning, match="bf16"):
            watch.Fit("gradients", "here").look(lambda: [made["mx"], made["raw:f16"]])
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
    assert {text: ends.of_flat(text).text for text in flat} == flat


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
