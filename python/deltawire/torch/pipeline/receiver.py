# SPDX-License-Identifier: Apache-2.0
# receiver.py - Receiver: decodes the tensors of a message.
from __future__ import annotations

from typing import Any, Collection, NoReturn, Optional, Sequence

import torch

from deltawire.decoder import Decoder
from deltawire.errors import DeltawireError, Status, fail
from deltawire.profile import Profile
from deltawire.torch.common import tensors
from deltawire.torch.common.configs import takes_profile
from deltawire.torch.pipeline.ends import Ends
from deltawire.torch.pipeline.kept import Kept, Place
from deltawire.torch.pipeline.message import EXACT, FRAME, KEEP, PROFILE, SAME, WITH_IDS
from deltawire.torch.pipeline.message import ZERO, Part


class Receiver(Ends):
    """Decodes the parts of a message to tensors in main memory."""

    make = Decoder
    word = "the decoder"

    def tensors(
        self, parts: "Sequence[Part]", kind: int, may_be_zero: "Collection[Any]" = ()
    ) -> "tuple[list[torch.Tensor], Optional[list[int]]]":
        """Returns the tensors, and the ids in their frames or None. Sets still: the positions of
        tensors that need no gradients. Errors: those of decode, and FORMAT.

        may_be_zero: dtypes and shapes of tensors whose gradients may arrive as zeros."""
        self.ids: "Optional[list[int]]" = None
        if parts and parts[0].how == PROFILE and self.fits:
            parts = parts[1:]  # which learn has taken
        self.still = [slot for slot, part in enumerate(parts) if part.is_still]
        if any(part.how == ZERO and part[1:3] not in may_be_zero for part in parts):
            _refuse_part()
        made = [self._tensor(slot, part, kind) for slot, part in enumerate(parts)]
        return made, self.ids

    def learn(self, parts: "Sequence[Part]") -> None:
        """Takes what a message carries for later ones, when it arrives, because these may be
        decoded before it. Errors: FORMAT."""
        for place, part in self._placed(parts):
            if part.how == KEEP and Kept.takes(len(part.data)):
                self.kept.put(place, bytes(part.data))
        if parts and parts[0].how == PROFILE and self.fits:
            self._learn_profile(parts[0])

    def reset(self) -> None:
        """Discards all state. A sender that begins anew, perhaps with an incarnation that the
        decoders have seen, could not be told from frames that come late otherwise."""
        for end in self._made.values():
            end.close()
        self._made.clear()

    def recall(self, parts: "Sequence[Part]") -> "list[Part]":
        """Returns the parts of a message that was learnt, with the tensors that do not travel
        again. Errors: STATE."""
        placed = self._placed(parts)
        made = list(parts[: len(parts) - len(placed)])
        for place, part in placed:
            if part.how in (EXACT, KEEP, SAME):
                self.exact_bytes += len(part.data)
            if part.how == SAME:
                held = self.kept.get(place)
                if held is None or self.kept.digest(place) != part.data:
                    fail(
                        Status["STATE"],
                        "a message refers to a tensor of an earlier one, which this rank does not "
                        "have: call reset_compression() on all ranks",
                    )
                part = part._replace(data=memoryview(held))
            made.append(part._replace(how=EXACT) if part.how in (KEEP, SAME) else part)
        return made

    def _placed(self, parts: "Sequence[Part]") -> "list[tuple[Place, Part]]":
        sent = parts[1:] if parts and parts[0].how == PROFILE else parts
        return [((slot, part.dtype, part.shape), part) for slot, part in enumerate(sent)]

    def _learn_profile(self, part: Part) -> None:
        values = tensors.from_exact(part.dtype, part.shape, part.data)
        try:
            profile = None if values is None else Profile(values.float())
        except DeltawireError:
            profile = None
        if profile is None:
            _refuse_part()
        for end in self._weighed():
            end.add_profile(profile)
        self._known = [*self._known[-3:], profile]
        self.profile_bytes += len(part.data)

    def _make(self, which: str, slot: int) -> Any:
        made = super()._make(which, slot)
        for profile in self._known if not slot and takes_profile(self._config_of(which)) else ():
            made.add_profile(profile)
        return made

    def _tensor(self, slot: int, part: Part, kind: int) -> torch.Tensor:
        if part.how == EXACT:
            self.exact_tensors += 1
            whole = tensors.from_exact(part.dtype, part.shape, part.data)
            if whole is not None:
                self.tensor_bytes += whole.numel() * whole.element_size()
                return whole
        dtype = tensors.OF_NUMBER.get(part.dtype)
        if part.how == ZERO and dtype is not None and not len(part.data):
            zeros = torch.zeros(part.shape, dtype=dtype, device="cpu")
            self.exact_tensors += 1
            self.tensor_bytes += zeros.numel() * zeros.element_size()
            return zeros
        if part.how != FRAME or dtype is None or not tensors.is_coded(dtype, part.shape):
            _refuse_part()
        made, view = tensors.room_for(dtype, part.shape)
        try:
            done = self._end(kind, slot).decode(part.data, view, reply=False)
        except DeltawireError as error:
            if error.status.name in ("BASE", "STATE", "STALE", "MISMATCH"):
                raise DeltawireError(
                    error.status,
                    f"{error.why}; sender and receiver have different states: load the compression "
                    "state of the same step on all ranks, or call reset_compression() on all ranks",
                ) from error
            raise
        if kind == WITH_IDS and self.config._facts.keeps_prev:
            self.ids = done.ids
        self.frame_bytes += len(part.data)
        self.tensor_bytes += made.numel() * made.element_size()
        return made


def _refuse_part() -> NoReturn:
    fail(
        Status["FORMAT"],
        "a message contains an invalid tensor: use the same version of deltawire on all ranks, and "
        "start all of them again",
    )
