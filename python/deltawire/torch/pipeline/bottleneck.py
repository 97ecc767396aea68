# SPDX-License-Identifier: Apache-2.0
# bottleneck.py - bottleneck: a trained linear pair around a boundary between two stages.
"""Between the two modules, tensors have fewer channels, and any codec sends them.

Source: Bian et al., Does compressing activations help model parallel training? (arXiv:2301.02654),
section 3.2: the autoencoder."""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import nn

from deltawire.errors import refuse


def bottleneck(
    channels: int,
    width: int,
    *,
    boundary: int = 0,
    device: Any = None,
    dtype: Optional[torch.dtype] = None,
) -> "tuple[nn.Linear, nn.Linear]":
    """Returns two modules (down, up). Make `down` the last module of a stage, and `up` the first
    module of the next stage. Both are trained with the rest of the model.

        down, up = deltawire.torch.bottleneck(1024, 128, boundary=rank)      # behind this rank
        module = nn.Sequential(blocks, down)

    The boundary's activations, and so their gradients, then have `width` channels instead of
    `channels`. Before the training, up(down(x)) is the orthogonal projection of x to `width`
    random directions: x itself if width equals channels. So the two modules begin with a common
    random matrix, although two ranks make them.

    channels: the number of channels on both sides of the boundary, x of shape (..., channels).
    width: the number of channels that are sent; 1 to `channels`.
    boundary: the number of the boundary; it seeds the matrix. Use the same on both ranks.
    device, dtype: of the parameters, as in torch.nn.Linear.

    Errors: ARGUMENT."""
    if not 1 <= width <= channels:
        refuse(f"width must be between 1 and the number of channels, {channels}, not {width}")
    chance = torch.Generator().manual_seed(boundary)
    drawn = torch.randn(channels, width, generator=chance, dtype=torch.float64)
    basis = torch.linalg.qr(drawn)[0]  # (channels, width), with orthonormal columns
    down = nn.Linear(channels, width, bias=False, device=device, dtype=dtype)
    up = nn.Linear(width, channels, bias=False, device=device, dtype=dtype)
    with torch.no_grad():
        down.weight.copy_(basis.T)
        up.weight.copy_(basis)
    return down, up
