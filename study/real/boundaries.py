# SPDX-License-Identifier: Apache-2.0
# boundaries.py - encodes and decodes, in one process, what two stages would send to each other.
from __future__ import annotations

import contextlib
from typing import Iterator, Optional, Sequence

import deltawire
import torch

import profiles
from baselines import BASELINES
from deltawire.torch.pipeline.fitting import Fitting
from models import Model

RAW = "raw"  # no codec at all: the tensor is not touched


class Wire:
    """One direction of one boundary: an encoder with its decoder.

    bits: per value, of whole frames, since the last call of take_bits."""

    def __init__(self, codec: str, profile: Optional[deltawire.Profile] = None) -> None:
        config = profiles.config(codec, profile)
        self.encoder, self.decoder = deltawire.Encoder(config), deltawire.Decoder(config)
        self.profile = profile
        self.fitting = Fitting() if codec.endswith(profiles.FIT) and profile is None else None
        self._bits = self._values = 0.0
        self._errors: list[torch.Tensor] = []

    def _arrives(self, x: torch.Tensor, ids: Optional[list[int]]) -> tuple[torch.Tensor, float]:
        """What the decoder makes of x, and how many bits that took."""
        if self.fitting:
            self._use(self.fitting.sends(0, x))
        frame = self.encoder.encode(x, ids, stateless=ids is None)
        decoded = self.decoder.decode(frame)
        self.encoder.take_reply(decoded.reply)
        return torch.from_dlpack(decoded.tensor), 8 * len(frame)

    def send(
        self, x: torch.Tensor, ids: Optional[list[int]], keeps_errors: bool = False
    ) -> torch.Tensor:
        """What the decoder makes of x. Without ids, no state is read or changed."""
        device, x = x.device, x.detach().contiguous().cpu()
        y, bits = self._arrives(x, ids)
        self._bits += bits
        self._values += x.numel()
        if keeps_errors:
            size = x.float().norm(dim=-1).clamp_min(torch.finfo(torch.float32).tiny)
            self._errors.append(((y.float() - x.float()).norm(dim=-1) / size).flatten())
        return y.to(device)

    def _use(self, profile: Optional[deltawire.Profile]) -> None:
        if profile is not None:
            self.profile = profile
            self.encoder.use_profile(profile)
            self.decoder.add_profile(profile)

    def begin(self) -> None:
        """A step begins."""
        if self.fitting:
            self._use(self.fitting.begins())

    def came(self, gradient: torch.Tensor) -> None:
        if self.fitting:
            self.fitting.came(0, gradient)

    def take_bits(self) -> float:
        bits = self._bits / self._values
        self._bits = self._values = 0.0
        return bits

    def errors(self) -> tuple[float, float]:
        """The mean and the largest |y - x| / |x| of all tokens whose errors were kept."""
        whole = torch.cat(self._errors)
        return whole.mean().item(), whole.max().item()


class Baseline(Wire):
    """A quantizer of another program, in place of an encoder and a decoder."""

    def __init__(self, name: str) -> None:
        super().__init__("raw")
        self.quantizer = BASELINES[name]

    def _arrives(self, x: torch.Tensor, ids: Optional[list[int]]) -> tuple[torch.Tensor, float]:
        y, bits = self.quantizer(x.float())
        return y.to(x.dtype), bits * x.numel()


def _wire(codec: str, profile: Optional[deltawire.Profile] = None) -> Optional[Wire]:
    if codec == RAW:
        return None
    return Baseline(codec) if codec in BASELINES else Wire(codec, profile)


class Boundary:
    """What is sent after one layer. forward and backward are codecs, or RAW. profile: that of
    activations, for a codec that takes it.

    ids are those of the next batch. None: what is sent carries no state, as in an evaluation."""

    def __init__(
        self,
        forward: str,
        backward: str = RAW,
        keeps_errors: bool = False,
        profile: Optional[deltawire.Profile] = None,
    ) -> None:
        self.forward, self.backward = _wire(forward, profile), _wire(backward)
        self.keeps_errors = keeps_errors
        self.ids: Optional[list[int]] = None

    def begin(self, ids: list[int]) -> None:
        """A step begins, with these ids."""
        self.ids = ids
        if self.forward:
            self.forward.begin()

    def hook(self, module: torch.nn.Module, inputs: object, output: object) -> object:
        """A forward hook of the layer in front of this boundary."""
        if isinstance(output, tuple):
            return (send(output[0], self), *output[1:])
        return send(output, self)


class _Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, boundary):
        ctx.boundary = boundary
        if boundary.forward is None:
            return x.view_as(x)
        return boundary.forward.send(x, boundary.ids, boundary.keeps_errors)

    @staticmethod
    def backward(ctx, gradient):
        boundary = ctx.boundary
        if boundary.backward:
            gradient = boundary.backward.send(gradient, boundary.ids)
        if boundary.forward:
            boundary.forward.came(gradient)
        return gradient, None


def send(x: torch.Tensor, boundary: Boundary) -> torch.Tensor:
    """What arrives behind a boundary. In the backward pass, its gradient goes back through it."""
    return _Send.apply(x, boundary)


@contextlib.contextmanager
def between(model: Model, places: Sequence[int], boundaries: list[Boundary]) -> Iterator[None]:
    """While it is open, the model's tensors pass the boundaries after the layers named."""
    handles = [
        model.layers[place].register_forward_hook(boundary.hook)
        for place, boundary in zip(places, boundaries)
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def autocast(f32: bool, device: str = "cpu") -> contextlib.AbstractContextManager:
    """The computation of models: in bf16 where torch's autocast does so, unless in float32."""
    return torch.autocast(device, torch.bfloat16, enabled=not f32)
