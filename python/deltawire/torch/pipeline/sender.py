# SPDX-License-Identifier: Apache-2.0
# sender.py - Sender: encodes the tensors of a message.
from __future__ import annotations

from typing import Any, Callable, Collection, Optional, Sequence

import torch

from deltawire.encoder import Encoder
from deltawire.errors import Status, fail
from deltawire.profile import Profile
from deltawire.torch.common import tensors
from deltawire.torch.pipeline.ends import Ends
from deltawire.torch.pipeline.fitting import Fitting
from deltawire.torch.pipeline.kept import Kept, Place
from deltawire.torch.pipeline.message import EXACT, FRAME, KEEP, PROFILE, SAME, ZERO
from deltawire.torch.pipeline.message import WITH_IDS, WITHOUT_IDS, Part
from deltawire.torch.pipeline.snapshots import Snapshots


def is_coded(tensor: torch.Tensor) -> bool:
    return tensors.is_coded(tensor.dtype, tuple(tensor.shape))


class Sender(Ends):
    """Encodes the tensors of a message.

    keeps: tensors that come again are sent once. False: it sends gradients."""

    make = Encoder
    word = "the encoder"
    profile_is_new = False  # the next message carries it
    _is_delivered = False  # a gradient has come back of what had it

    def __init__(self, *given: Any, keeps: bool = True, **named: Any) -> None:
        super().__init__(*given, **named)
        self._keeps = keeps
        # By microbatch: dtypes and shapes of what was sent and needs no gradient.
        self.still_sent: "dict[int, set[Any]]" = {}
        self.fitting = Fitting() if self.fits else None
        # The tensors of the last step with gradients that had none: masks, cosines and sines, which
        # travel exactly, also in evaluations.
        self._still: "set[int]" = set()
        self._unsure: "set[int]" = set()  # microbatches with KEEP of which no gradient has come

    def begin(self, failed: bool = False) -> None:
        """A step begins. failed: the one before did not end."""
        self.still_sent.clear()
        if failed or self._unsure:  # a message that was lost may have carried them
            self._forget()
        if self.fitting is None:
            return
        self._use(self.fitting.begins(failed))
        if not self._is_delivered and self.profile is not None:
            self.profile_is_new = True  # a message that was lost may have carried it

    def came(self, microbatch: int, gradients: "Sequence[torch.Tensor]") -> None:
        """The gradients of tensors that were sent have arrived."""
        self._is_delivered = not self.profile_is_new
        self._unsure.discard(microbatch)
        if self.fitting is not None and gradients and is_coded(gradients[0]):
            self.fitting.came(microbatch, tensors.samples(gradients[0]))

    def _forget(self) -> None:
        """What has travelled exactly travels again."""
        self.kept.clear()
        self._unsure.clear()

    def _use(self, profile: Optional[Profile]) -> None:
        if profile is not None:
            self.use_profile(profile)

    def _use_none(self) -> None:
        self.profile, self.profile_is_new = None, False
        for end in self._weighed():
            end.use_profile(None)

    def use_profile(self, profile: Profile) -> None:
        """The first tensors of later messages have this profile, which the next message carries."""
        for end in self._weighed():
            end.use_profile(profile)
        self.profile, self.profile_is_new, self._is_delivered = profile, True, False

    def parts(
        self,
        given: "Sequence[torch.Tensor]",
        ids: "Optional[list[int]]",
        microbatch: int = 0,
        trains: bool = True,
        zeros: "Collection[int]" = (),
    ) -> "tuple[list[Part], int]":
        """Returns the parts and the kind of the message. Errors: those of encode.

        trains: gradients will come back. zeros: positions of zeros that stand for the gradients
        of what needs none."""
        kind = WITHOUT_IDS if ids is None else WITH_IDS
        if any(tensor.requires_grad for tensor in given):
            self._still = {at for at, tensor in enumerate(given) if not tensor.requires_grad}
        if self.fitting is not None and given and is_coded(given[0]) and 0 not in self._still:
            given = [given[0].cpu(), *given[1:]]  # copied only once
            x = tensors.samples(given[0])
            self._use(self.fitting.sends(microbatch, x, trains))
            if self.profile is not None and self.profile.channels != x.shape[-1]:
                self._use_none()  # no row of x is finite
        made = [
            self._zero_part(tensor)
            if slot in zeros
            else self._part(slot, tensor, ids, kind, microbatch)
            for slot, tensor in enumerate(given)
        ]
        self.still_sent[microbatch] = {(p.dtype, p.shape) for p in made if p.is_still}
        if self.profile is not None and self.profile_is_new and made:
            made.insert(0, self._profile_part(self.profile))
            self.profile_is_new = False
        self.samples += len(ids) if ids is not None else 0
        return made, kind

    def _profile_part(self, profile: Profile) -> Part:
        values = torch.from_dlpack(profile.values()).bfloat16()  # they are
        data = tensors.exact(values)
        self.profile_bytes += len(data)
        return Part(PROFILE, tensors.DTYPES[torch.bfloat16], tuple(values.shape), data)

    def _part(
        self,
        slot: int,
        tensor: torch.Tensor,
        ids: Any,
        kind: int,
        microbatch: int,
    ) -> Part:
        shape = tuple(tensor.shape)
        dtype = tensors.DTYPES.get(tensor.dtype)
        if dtype is None:
            fail(
                Status["UNSUPPORTED"],
                f"a stage returned a tensor of {tensor.dtype}, which cannot be sent: convert it to "
                "float32, float16 or bfloat16 in the stage's forward",
            )
        coded = tensors.is_coded(tensor.dtype, shape) and (ids is None or shape[0] == len(ids))
        self.tensor_bytes += tensor.numel() * tensor.element_size()
        if not coded or slot in self._still:
            part = self._exact_part((slot, dtype, shape), tensor, microbatch)
            return part._replace(is_still=slot in self._still)
        x = tensors.samples(tensor)
        frame = self._end(kind, slot).encode(x, ids, stateless=ids is None)
        self.frame_bytes += len(frame)
        return Part(FRAME, dtype, shape, frame)

    def _zero_part(self, tensor: torch.Tensor) -> Part:
        self.tensor_bytes += tensor.numel() * tensor.element_size()
        self.exact_tensors += 1
        return Part(ZERO, tensors.DTYPES[tensor.dtype], tuple(tensor.shape), b"")

    def _exact_part(self, place: Place, tensor: torch.Tensor, microbatch: int) -> Part:
        """A tensor that has gradients is none that could come again, and neither is a gradient, so
        nobody keeps them."""
        how, data = EXACT, tensors.exact(tensor)
        if self.kept.get(place) == data:
            how, data = SAME, self.kept.digest(place)
        elif self._keeps and not tensor.requires_grad and Kept.takes(len(data)):
            how = KEEP
            self.kept.put(place, data)
            self._unsure.add(microbatch)
        self.exact_tensors += 1
        self.exact_bytes += len(data)
        return Part(how, *place[1:], data)

    def save(self, snapshots: Snapshots) -> "dict[str, Any]":
        saved = super().save(snapshots)
        if self.fitting is not None and self.profile is not None:
            saved["profile"] = torch.from_dlpack(self.profile.values())
            saved["steps"] = self.fitting.steps
        return saved

    def load(self, saved: "dict[str, Any]", *reading: Any) -> "Callable[[], None]":
        fits = self.fits and "profile" in saved
        profile = Profile(saved["profile"].contiguous()) if fits else None
        use_states = super().load(saved, *reading)

        def use() -> None:
            use_states()
            self._forget()
            if profile is not None:
                self.fitting = Fitting(saved["steps"], profile.channels)
                self.use_profile(profile)

        return use

    def reset(self) -> None:
        """Discards all state: the next entry of every id is a key entry, and profiles are fitted
        from the beginning."""
        self._forget()
        for end in self._made.values():
            end.reset()
        if self.fitting is not None:
            self.fitting = Fitting()
            self._use_none()
