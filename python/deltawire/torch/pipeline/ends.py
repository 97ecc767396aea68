# SPDX-License-Identifier: Apache-2.0
# ends.py - Sender and Receiver: encode the tensors of a message, and decode them.
from __future__ import annotations

import hashlib
import math
from typing import Any, NoReturn, Optional, Sequence, Union

import torch

from deltawire.config import Config
from deltawire.decoder import Decoder
from deltawire.encoder import Encoder
from deltawire.errors import DeltawireError, Status, fail
from deltawire.frame import bound
from deltawire.places import Places
from deltawire.profile import Profile
from deltawire.torch.common import tensors
from deltawire.torch.pipeline.fitting import Fitting
from deltawire.torch.pipeline.kept import Kept, Place
from deltawire.torch.pipeline.message import (
    EXACT,
    FRAME,
    KEEP,
    PROFILE,
    SAME,
    WITHOUT_IDS,
    WITH_IDS,
    Part,
)


def without_replies(text: Any) -> Config:
    """Sets replies=never in a config. The carriers neither lose nor reorder messages, so decoders
    need not reply, and encoders keep no older copy to go back to."""
    whole = Config(text)
    given = whole.text
    words = [word for word in given.partition(":")[2].split(",") if word]
    words = [word for word in words if not word.startswith("replies=")] + ["replies=never"]
    return Config(given.partition(":")[0] + ":" + ",".join(words), whole._profile)


def of_flat(text: Any) -> Config:
    """The same for buffers without rows, in which 128 values share a step where rows would."""
    config = without_replies(text)
    if "profile=" in config.text:
        fail(
            Status["CONFIG"],
            "a profile of channels is for tensors with rows, and buckets of weight gradients have "
            "none: leave the profile out",
        )
    words = config.text.partition(":")[2].split(",")
    shares_rows = "form=step" in words and not any(word.startswith("group=") for word in words)
    group = 256 if "rotate=256" in words else 128  # a rotated block must not be cut
    return Config(f"{config.text},group={group}") if shares_rows else config


def of_encoder(config: Config, *place: Any) -> Config:
    """Returns the config of the encoder at this place of a run.

    Encoders with the same incarnation and seed would draw the same random numbers for a key
    (docs/format.md, 3.6). So an incarnation in the config is made different for each place, in a
    way that a run can repeat."""
    name, _, options = config.text.partition(":")
    words = options.split(",")
    given = [word for word in words if word.startswith("incarnation=")]
    if not given:
        return config
    text = "/".join(str(part) for part in (given[0], *place))
    own = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") or 1
    words = [word for word in words if word not in given] + [f"incarnation={own}"]
    return Config(name + ":" + ",".join(words), config._profile)


def is_coded(tensor: torch.Tensor) -> bool:
    return tensors.is_coded(tensor.dtype, tuple(tensor.shape))


def takes_profile(config: Config) -> bool:
    """Whether the config can have a profile that it does not have yet."""
    if "form=step" not in config.text or "profile=" in config.text:
        return False
    try:
        return bool(Config(f"{config.text},profile=1"))
    except DeltawireError:
        return False


def with_profile(config: Config, profile: Optional[Profile]) -> Config:
    """The config with this profile, if its form is the one that has profiles. Errors: CONFIG (it
    has another option that rules profiles out)."""
    words = config.text.partition(":")[2].split(",")
    return Config(config, profile) if profile is not None and "form=step" in words else config


class Ends:
    """The base class of Sender and Receiver. It has an encoder or decoder for each tensor of a
    message, which is made when it is first needed.

    config: for tensors with ids.
    plain: for tensors without ids. None: they use config, without state.
    place: names the sender among those of the run, for the incarnations of its encoders.
    profile: that of the first tensor of a message. None: it has none. "fit": messages carry those
        that the sender fits.
    """

    make: Any = None
    word = ""

    def __init__(
        self,
        config: Config,
        plain: Optional[Config],
        threads: int,
        place: str = "",
        profile: "Union[Profile, str, None]" = None,
    ) -> None:
        self.config, self.plain, self.threads, self.place = config, plain, threads, place
        self.fits = isinstance(profile, str)
        self.profile = None if isinstance(profile, str) else profile
        self._known: "list[Profile]" = []  # of those that messages have carried, the last ones
        self._made: "dict[tuple[str, int], Any]" = {}
        self.messages = self.message_bytes = self.frame_bytes = self.tensor_bytes = 0
        self.exact_tensors = self.exact_bytes = self.samples = self.profile_bytes = 0
        self.kept = Kept()

    def _end(self, kind: int, slot: int) -> Any:
        plain = kind == WITHOUT_IDS and self.plain is not None
        key = ("plain" if plain else "", slot)
        if key not in self._made:
            self._made[key] = self._make(*key)
        return self._made[key]

    def _config_of(self, which: str) -> Config:
        return self.plain if which and self.plain is not None else self.config

    def _weighed(self) -> "list[Any]":
        """The encoders or decoders that have profiles."""
        made = self._made.items()
        return [end for key, end in made if not key[1] and takes_profile(self._config_of(key[0]))]

    def _make(self, which: str, slot: int) -> Any:
        own = of_encoder(self._config_of(which), self.place, which, slot)
        has_one = self.profile is not None and not slot and takes_profile(own)
        return self.make(Config(own, self.profile) if has_one else own, self.threads)

    def stateful(self) -> "dict[int, Any]":
        """Returns the encoders or decoders with state, by the tensor's position in the message."""
        if self.config.codec != "delta":
            return {}
        return {slot: end for (which, slot), end in self._made.items() if not which}

    def encoders(self) -> "list[Any]":
        return list(self._made.values())

    def stats(self) -> "dict[str, Any]":
        counters = [end.counters() for end in self._made.values()]
        keyed = [end.counters() for end in self.stateful().values()]
        names = (
            *("key_entries", "delta_entries", "stateless_entries", "skipped_entries"),
            "poisoned_groups",
        )
        found: "dict[str, Any]" = {
            "config": self.config.text,
            "messages": self.messages,
            "message_bytes": self.message_bytes,
            "frame_bytes": self.frame_bytes,
            "tensor_bytes": self.tensor_bytes,
            "exact_tensors": self.exact_tensors,
            "exact_bytes": self.exact_bytes,
            "profile_bytes": self.profile_bytes,
            "samples": self.samples,
            **{name: sum(getattr(c, name) for c in counters) for name in names},
            "keys_held": max((c.keys_held for c in keyed), default=0),
            "state_bytes": sum(c.state_bytes for c in keyed),
            "codec_seconds": sum(c.busy_ns for c in counters) * 1e-9,
        }
        hits = sum(c.delta_entries + c.skipped_entries for c in keyed)
        visits = hits + sum(c.key_entries for c in keyed)
        found["hit_rate"] = hits / visits if visits else 0.0
        return found

    def save(self) -> "dict[str, Any]":
        """Returns the state as tensors, which torch.load accepts with weights_only=True."""
        saved: "dict[str, Any]" = {"config": self.config.text, "slots": {}}
        for slot, end in self.stateful().items():
            states = list(end.export_states().values())
            joined = bytearray(b"".join(states))
            saved["slots"][str(slot)] = {
                "lengths": torch.tensor(
                    [len(one) for one in states], dtype=torch.int64, device="cpu"
                ),
                "states": (
                    torch.frombuffer(joined, dtype=torch.uint8)
                    if joined
                    else torch.empty(0, dtype=torch.uint8, device="cpu")
                ),
            }
        return saved

    def load(self, saved: "dict[str, Any]") -> None:
        """Restores what save returned. Errors: MISMATCH (another config), those of import_state."""
        if saved["config"] != self.config.text:
            fail(
                Status["MISMATCH"],
                f"this state was saved with the config {saved['config']!r}, but {self.word} has "
                f"{self.config.text!r}: make the stage with the config of the saved state",
            )
        made: "dict[tuple[str, int], Any]" = {}
        for slot, held in saved["slots"].items():
            end = self._make("", int(slot))
            at, data = 0, tensors.as_bytes(held["states"])
            for length in held["lengths"].tolist():
                end.import_state(bytes(data[at : at + length]))
                at += length
            made[("", int(slot))] = end
        self._made = made  # last, so that a state that cannot be loaded changes nothing


def _refuse_part() -> NoReturn:
    fail(
        Status["FORMAT"],
        "a message contains an invalid tensor: use the same version of deltawire on all ranks, and "
        "start all of them again",
    )


class Sender(Ends):
    """Encodes the tensors of a message."""

    make = Encoder
    word = "the encoder"
    keeps = True  # tensors that come again are sent once; False: it sends gradients
    profile_is_new = False  # the next message carries it
    _is_delivered = False  # a gradient has come back of what had it

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.fitting = Fitting() if self.fits else None
        # The tensors of the last step with gradients that had none: masks, cosines and sines, which
        # travel exactly, also in evaluations.
        self._still: "set[int]" = set()
        self._unsure: "set[int]" = set()  # microbatches with KEEP of which no gradient has come

    def begin(self, failed: bool = False) -> None:
        """A step begins. failed: the one before did not end."""
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
        places: Optional[Places] = None,
        microbatch: int = 0,
        trains: bool = True,
    ) -> "tuple[list[Part], int]":
        """Returns the parts and the kind of the message. Errors: those of encode.

        trains: gradients will come back.
        places: the elements that are sent of a gradient. None: all."""
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
            self._part(slot, tensor, ids, kind, places, microbatch)
            for slot, tensor in enumerate(given)
        ]
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
        places: Optional[Places],
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
            return self._exact_part((slot, dtype, shape), tensor, microbatch)
        x = tensors.samples(tensor)
        if places is not None:
            x = places.gather(x)
        frame = self._end(kind, slot).encode(x, ids, stateless=ids is None)
        self.frame_bytes += len(frame)
        return Part(FRAME, dtype, shape, frame)

    def _exact_part(self, place: Place, tensor: torch.Tensor, microbatch: int) -> Part:
        """A tensor that has gradients is none that could come again, and neither is a gradient, so
        nobody keeps them."""
        how, data = EXACT, tensors.exact(tensor)
        if self.kept.get(place) == data:
            how, data = SAME, self.kept.digest(place)
        elif self.keeps and not tensor.requires_grad and Kept.takes(len(data)):
            how = KEEP
            self.kept.put(place, data)
            self._unsure.add(microbatch)
        self.exact_tensors += 1
        self.exact_bytes += len(data)
        return Part(how, *place[1:], data)

    def save(self) -> "dict[str, Any]":
        saved = super().save()
        if self.fitting is not None and self.profile is not None:
            saved["profile"] = torch.from_dlpack(self.profile.values())
            saved["steps"] = self.fitting.steps
        return saved

    def load(self, saved: "dict[str, Any]") -> None:
        fits = self.fits and "profile" in saved
        profile = Profile(saved["profile"].contiguous()) if fits else None
        super().load(saved)
        self._forget()
        if profile is not None:
            self.fitting = Fitting(saved["steps"], profile.channels)
            self.use_profile(profile)

    def reset(self) -> None:
        """Discards all state: the next entry of every id is a key entry, and profiles are fitted
        from the beginning."""
        self._forget()
        for end in self._made.values():
            end.reset()
        if self.fitting is not None:
            self.fitting = Fitting()
            self._use_none()


class Receiver(Ends):
    """Decodes the parts of a message to tensors in main memory."""

    make = Decoder
    word = "the decoder"

    def tensors(
        self, parts: "Sequence[Part]", kind: int, places: Optional[Places] = None
    ) -> "tuple[list[torch.Tensor], Optional[list[int]]]":
        """Returns the tensors, and the ids in their frames or None. Errors: those of decode, and
        FORMAT.

        places: the elements that arrive of a gradient; all others are 0. None: all arrive."""
        self.ids: "Optional[list[int]]" = None
        if parts and parts[0].how == PROFILE and self.fits:
            parts = parts[1:]  # which learn has taken
        made = [self._tensor(slot, part, kind, places) for slot, part in enumerate(parts)]
        return made, self.ids

    def learn(self, parts: "Sequence[Part]") -> None:
        """Takes what a message carries for later ones, when it arrives, because these may be
        decoded before it. Errors: FORMAT."""
        for place, part in self._placed(parts):
            if part.how == KEEP and Kept.takes(len(part.data)):
                self.kept.put(place, bytes(part.data))
        if parts and parts[0].how == PROFILE and self.fits:
            self._learn_profile(parts[0])

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

    def _tensor(
        self, slot: int, part: Part, kind: int, places: Optional[Places]
    ) -> torch.Tensor:
        if part.how == EXACT:
            self.exact_tensors += 1
            whole = tensors.from_exact(part.dtype, part.shape, part.data)
            if whole is not None:
                self.tensor_bytes += whole.numel() * whole.element_size()
                return whole
        dtype = tensors.OF_NUMBER.get(part.dtype)
        if part.how != FRAME or dtype is None or not tensors.is_coded(dtype, part.shape):
            _refuse_part()
        if places is None:
            made, view = tensors.room_for(dtype, part.shape)
        elif places.shape == tensors.extents(part.shape):
            view = torch.empty(
                (places.shape[0], 1, places.count), dtype=torch.float32, device="cpu"
            )
        else:
            fail(
                Status["FORMAT"],
                f"a gradient has the shape {part.shape}, and its activation had {places.shape}",
            )
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
        if kind == WITH_IDS and self.config.codec == "delta":
            self.ids = done.ids
        if places is not None:
            made = torch.from_dlpack(places.scatter(view, tensors.CODED[dtype])).view(part.shape)
        self.frame_bytes += len(part.data)
        self.tensor_bytes += made.numel() * made.element_size()
        return made


def places_of(parts: "Sequence[Part]") -> Optional[Places]:
    """The places of the one tensor of a message that codecs accept; None if there is none, because
    all are sent without compression. Errors: UNSUPPORTED (there are several), those of Places."""
    frames = [part.data for part in parts if part.how == FRAME]
    if len(frames) > 1:
        fail(
            Status["UNSUPPORTED"],
            "same_places needs stages with one output tensor of float32, float16 or bfloat16, and "
            f"this one has {len(frames)}: join them, or leave same_places out",
        )
    return Places(frames[0]) if frames else None


def bytes_for(
    config: Config, plain: Optional[Config], dtype: torch.dtype, shape: "tuple[int, ...]"
) -> int:
    """An upper bound, in bytes, of the size in a message of a tensor of this shape, or with fewer
    samples. It may be longer only if codecs accept it and it nevertheless travels exactly."""
    if not tensors.is_coded(dtype, shape):
        n = math.prod(shape)
        return (n + 7) // 8 if dtype is torch.bool else n * dtype.itemsize
    configs = (config, config if plain is None else plain)
    return max(bound(one, tensors.extents(shape), tensors.CODED[dtype]) for one in configs)
