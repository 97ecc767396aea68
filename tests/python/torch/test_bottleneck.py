# SPDX-License-Identifier: Apache-2.0
# test_bottleneck.py - a trained linear pair around the boundary of two stages.
import pytest
import torch
from torch import nn

import pipelines
import small_gpt
from deltawire import DeltawireError
from deltawire.torch import bottleneck
from pipelines import Pipe

WIDTH = 64  # of small_gpt's stages


def test_the_pair_begins_as_a_projection():
    down, up = bottleneck(64, 16, boundary=3)
    x = torch.randn(5, 7, 64)
    y = up(down(x))
    assert down(x).shape == (5, 7, 16) and y.shape == x.shape
    torch.testing.assert_close(up(down(y)), y)  # a projection ...
    torch.testing.assert_close((y * (x - y)).sum(-1), torch.zeros(5, 7), atol=1e-4, rtol=0)
    _, again = bottleneck(64, 16, boundary=3)
    _, other = bottleneck(64, 16, boundary=4)
    assert torch.equal(again.weight, up.weight) and not torch.equal(other.weight, up.weight)


def test_a_pair_of_full_width_changes_nothing():
    down, up = bottleneck(32, 32, dtype=torch.float64)
    x = torch.randn(3, 32, dtype=torch.float64)
    torch.testing.assert_close(up(down(x)), x)


@pytest.mark.parametrize("width", [0, 65])
def test_wrong_widths_are_refused(width):
    with pytest.raises(DeltawireError, match="width must be between 1 and .* 64, not") as raised:
        bottleneck(64, width)
    assert raised.value.status.name == "ARGUMENT"


def narrow(width):
    """Returns a function that makes stage i of two, with a bottleneck between them."""

    def make(index):
        down, up = bottleneck(WIDTH, width)
        stage = small_gpt.Stage(index, 2)
        return nn.Sequential(stage, down) if index == 0 else nn.Sequential(up, stage)

    return make


def train(rank, world, width):
    """Returns the losses, the bytes of activations and gradients before compression, and whether
    training has changed the pair's weights on this rank."""
    options = {"forward": "delta:bits=4", "backward": "direct:bits=4"}
    pipe = Pipe(rank, world, options=options, make=narrow(width) if width else None)
    x, y = small_gpt.samples(16, 32)
    losses = [pipe.step(x, y, torch.arange(16)) for _ in range(8)]
    raw = [one[way]["tensor_bytes"] for one in pipe.stats() for way in one if way.endswith("_sent")]
    moved = False
    if width:
        weights = dict(enumerate(bottleneck(WIDTH, width)))[rank].weight
        module = pipe.stages[0].submod
        moved = not torch.equal((module[1] if rank == 0 else module[0]).weight, weights)
    return losses, sum(raw), moved


@pytest.mark.skipif(small_gpt.text() is None, reason="no texts: install fortunes")
def test_a_pipeline_sends_and_trains_the_narrow_tensors(ranks):
    wide, pair = ranks.run(2, train, 0), ranks.run(2, train, 16)
    for (_, before, _), (_, sent, moved) in zip(wide, pair):
        assert moved and before == 4 * sent
    losses = pipelines.last_losses(pair)
    assert losses[-1] < losses[0] - 0.2
