# SPDX-License-Identifier: Apache-2.0
# test_same_places.py - gradients that go back through the elements whose activations were sent.
import pytest
import torch

import pipelines
import small_gpt
from deltawire import DeltawireError
from deltawire.torch import compress_stage
from pipelines import Pipe
from ranks import Failed
from test_stage import Several, sent

pytestmark = pytest.mark.skipif(small_gpt.text() is None, reason="no texts: install fortunes")


def losses_of(ranks, name, **options):
    return pipelines.last_losses(ranks.run(2, pipelines.train, name, options))


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "interleaved"])
def test_same_places_with_all_elements_changes_nothing(ranks, name):
    raw = losses_of(ranks, name, forward="raw", backward="raw")
    same = losses_of(ranks, name, forward="topk:keep=1", backward="raw", same_places=True)
    assert same == raw


def some_places(rank, world, name, carrier, dtype):
    options = {
        "forward": "topk:keep=0.25",
        "backward": "direct:bits=8",
        "same_places": True,
        "carrier": carrier,
    }
    torch.manual_seed(7)
    stages = world * pipelines.SCHEDULES[name][1]

    def make(index):
        return small_gpt.Stage(index, stages).to(dtype)

    pipe = Pipe(rank, world, name, options=options, make=make)
    x, y = small_gpt.samples(8, 32)
    return [pipe.step(x, y, torch.arange(8)) for _ in range(3)], pipe.stats()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_have_no_places(ranks, dtype):
    """The order of schedules and the carrier change nothing, and a gradient takes a fourth of the
    bytes of one with all elements."""
    answers = {
        (name, carrier): ranks.run(2, some_places, name, carrier, dtype)
        for name, carrier in (("gpipe", "group"), ("1f1b", "group"), ("1f1b", "tcp://127.0.0.1"))
    }
    losses = [pipelines.last_losses(each) for each in answers.values()]
    assert losses[0] == losses[1] == losses[2] and losses[0][2] < losses[0][0]
    back = sent(answers["gpipe", "group"][1][1], "backward_sent")
    elements = back["tensor_bytes"] // torch.empty(0, dtype=dtype).element_size()
    assert elements / 4 < back["frame_bytes"] < elements / 4 * 1.3
    came = sent(answers["gpipe", "group"][0][1], "backward_received")
    assert came["tensor_bytes"] == back["tensor_bytes"]


def gradients(rank, world, same_places):
    """Returns the gradient of the first stage's output, or None."""
    options = {"forward": "topk:keep=0.25", "backward": "raw", "same_places": same_places}
    pipe = Pipe(rank, world, "gpipe", options=options, microbatches=1)
    found = []
    if rank == 0:
        pipe.stages[0].submod.register_full_backward_hook(lambda *given: found.append(given[2][0]))
    x, y = small_gpt.samples(4, 32)
    pipe.step(x, y, torch.arange(4))
    return found


def test_elements_that_were_not_sent_have_no_gradient(ranks):
    some, every = (ranks.run(2, gradients, same)[0][0] for same in (True, False))
    there = some != 0
    assert 0.24 < there.float().mean() <= 0.25
    assert torch.equal(some[there], every[there]) and (every != 0).float().mean() > 0.9


def without_ids(rank, world):
    options = {"forward": "randk", "same_places": True, "on_missing_ids": "direct"}
    pipe = Pipe(rank, world, "gpipe", options=options)
    x, y = small_gpt.samples(8, 32)
    return [pipe.step(x, y, ids) for ids in (None, torch.arange(8))]


def test_steps_without_ids_have_all_places(ranks):
    losses = ranks.run(2, without_ids)[1]
    assert losses[1] < losses[0]


def of_double(rank, world):
    torch.set_default_dtype(torch.bfloat16)  # gathered gradients are f32 all the same
    options = {"forward": "topk", "same_places": True}
    make = lambda index: small_gpt.Stage(index, world).to((torch.float64, torch.float32)[which])
    x, y = small_gpt.samples(8, 32)
    losses = []
    for which in (0, 1):
        losses.append(Pipe(rank, world, options=options, make=make).step(x, y, torch.arange(8)))
    torch.set_default_dtype(torch.float32)
    return losses


def test_any_default_dtype_and_tensors_that_are_not_coded(ranks):
    assert all(loss > 0 for loss in ranks.run(2, of_double)[1])


def two_outputs(rank, world):
    options = {"forward": "topk", "same_places": True}
    pipe = Pipe(
        rank, world, options=options, make=lambda index: Several(index, torch.float32, False)
    )
    x, y = small_gpt.samples(8, 32)
    pipe.step(x, y, torch.arange(8))


def other_on_one_rank(rank, world):
    pipe = Pipe(rank, world, options={"forward": "topk", "same_places": rank == 0})
    x, y = small_gpt.samples(8, 32)
    pipe.step(x, y, torch.arange(8))


@pytest.mark.parametrize(
    "function, words", [(two_outputs, "one output tensor"), (other_on_one_rank, "same_places")]
)
def test_what_is_refused(ranks, function, words):
    with pytest.raises(Failed) as failed:
        ranks.run(2, function)
    assert any(words in text for _, _, text in failed.value.errors.values())


@pytest.mark.parametrize(
    "forward, backward, words",
    [
        ("delta:bits=4", "raw", "topk, randk, cocktail, chunk"),
        ("randk:scaling=unbiased", "raw", "without scaling"),
        ("topk", "delta:bits=4", "keeps nothing"),
        ("topk", "lowrank:rank=1", "rows of any length"),
        ("topk", "direct:feedback=ef", "without feedback"),
        ("topk", "mx:transform=hadamard", "transform"),
        ("topk", "direct:project=3", "project"),
    ],
)
def test_codecs_that_are_refused(forward, backward, words):
    stage = type("Stage", (), {"get_fwd_send_ops": 0, "stage_index": 0, "args_recv_info": {}})()
    with pytest.raises(DeltawireError, match=words):
        compress_stage(stage, forward=forward, backward=backward, same_places=True)
