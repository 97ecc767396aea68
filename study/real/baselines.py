# SPDX-License-Identifier: Apache-2.0
# baselines.py - quantizers of other programs, for --once: what they make of a tensor, and its bits.
"""acsgd:bits=B: that of AC-SGD, which the authors of AQ-SGD published (arXiv:2206.01299). Each
channel of a micro-batch has a scale of 16 bits, and there is a code fewer above zero than below.
rowwise: FBGEMM's rows of 8 bits: the least value of each row, and its range in 255 steps.
nf4: NormalFloat4 of QLoRA (arXiv:2305.14314), with a scale of 32 bits for each 64 values."""

from __future__ import annotations

import functools
from typing import Callable

import torch

NF4 = (-1, -0.69619281, -0.52507305, -0.39491749, -0.28444138, -0.18477343, -0.09105004, 0)
NF4 += (0.0795803, 0.1609302, 0.2461123, 0.33791524, 0.44070983, 0.562617, 0.72295684, 1)


def _acsgd(bits: int, x: torch.Tensor) -> tuple[torch.Tensor, float]:
    scale, half = x.abs().amax(dim=(0, 1)).half().float(), 2 ** (bits - 1)
    codes = (x / (scale + 1e-6) * half).round().clamp(-half, half - 1)
    return codes / half * scale, bits + 16 * scale.numel() / x.numel()


def _rowwise(x: torch.Tensor) -> tuple[torch.Tensor, float]:
    least = x.amin(-1, keepdim=True)
    step = ((x.amax(-1, keepdim=True) - least) / 255).clamp_min(torch.finfo(x.dtype).tiny)
    return ((x - least) / step).round() * step + least, 8 + 64 / x.shape[-1]


def _nf4(x: torch.Tensor) -> tuple[torch.Tensor, float]:
    groups, levels = x.reshape(-1, 64), torch.tensor(NF4)
    scale = groups.abs().amax(-1, keepdim=True)
    between = (levels[1:] + levels[:-1]) / 2
    codes = torch.bucketize(groups / scale.clamp_min(torch.finfo(x.dtype).tiny), between)
    return (levels[codes] * scale).view_as(x), 4 + 32 / 64


BASELINES: dict[str, Callable] = {
    **{f"acsgd:bits={bits}": functools.partial(_acsgd, bits) for bits in (4, 6, 8)},
    "rowwise": _rowwise,
    "nf4": _nf4,
}
