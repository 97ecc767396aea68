# SPDX-License-Identifier: Apache-2.0
# ends.py - Ends: the encoders or decoders of one direction to a neighbour; sizes of their frames.
from __future__ import annotations

import contextlib
import math
from typing import Any, Callable, Iterator, Optional, Sequence, Union

import torch

from deltawire.config import Config
from deltawire.errors import Status, fail
from deltawire.frame import bound
from deltawire.profile import Profile
from deltawire.storage import Storage
from deltawire.torch.common import tensors
from deltawire.torch.common.configs import of_encoder, takes_profile
from deltawire.torch.pipeline.kept import Kept
from deltawire.torch.pipeline.message import FRAME, WITHOUT_IDS, Part
from deltawire.torch.pipeline.snapshots import Snapshots


class Ends:
    """The base class of Sender and Receiver. It has an encoder or decoder for each tensor of a
    message, which is made when it is first needed.

    config: for tensors with ids.
    plain: for tensors without ids. None: they use config, without state.
    place: names the sender among those of the run, for the incarnations of its encoders.
    profile: that of the first tensor of a message. None: it has none. "fit": messages carry those
        that the sender fits.
    storage: where state lies that does not fit in memory.
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
        storage: Optional[Storage] = None,
    ) -> None:
        self._storage = storage
        self._last: "Optional[dict[str, Any]]" = None  # after it was closed
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
        config = Config(own, self.profile) if has_one else own
        return self.make(config, self.threads, state=self._storage)

    def close(self) -> None:
        """Gives the storage back. Statistics stay as they are."""
        if self._storage is None or self._last is not None:
            return
        self._last = self.stats()
        for end in self._made.values():
            end.close()

    def prefetch(self, ids: Any) -> None:
        """Begins to read the state of these ids from the storage."""
        for end in self.stateful().values() if self._storage else ():
            end.prefetch(ids)

    def stateful(self) -> "dict[int, Any]":
        """Returns the encoders or decoders with state, by the tensor's position in the message."""
        if not self.config._facts.keeps_prev:
            return {}
        return {slot: end for (which, slot), end in self._made.items() if not which}

    def count(self, length: int) -> None:
        """Counts a message of this length."""
        self.messages += 1
        self.message_bytes += length

    def encoders(self) -> "list[Any]":
        return list(self._made.values())

    def stats(self) -> "dict[str, Any]":
        if self._last is not None:
            return self._last
        counters = [end.counters() for end in self._made.values()]
        keyed = [end.counters() for end in self.stateful().values()]
        names = (
            *("key_entries", "delta_entries", "stateless_entries", "skipped_entries"),
            *("poisoned_groups", "lost_copies", "evicted_keys"),
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

    def save(self, snapshots: Snapshots) -> "dict[str, Any]":
        """Returns the state as tensors, which torch.load accepts with weights_only=True."""
        saved: "dict[str, Any]" = {"config": self.config.text, "slots": {}}
        for (which, slot), end in self._made.items():
            lengths: "list[int]" = []
            joined = bytearray()

            def take(_: Any, state: bytes) -> None:
                lengths.append(len(state))
                joined.extend(snapshots.shorten(state))

            end._visit_states(take)
            if not lengths and not self.config._facts.keeps_prev:
                continue  # it keeps nothing
            saved["slots"][f"{which}{slot}"] = {
                "lengths": torch.tensor(lengths, dtype=torch.int64, device="cpu"),
                "states": (
                    torch.frombuffer(joined, dtype=torch.uint8)
                    if joined
                    else torch.empty(0, dtype=torch.uint8, device="cpu")
                ),
            }
        return saved

    def load(
        self,
        saved: "dict[str, Any]",
        states: "Callable[[Any], Iterator[bytes]]",
        failing: contextlib.ExitStack,
    ) -> "Callable[[], None]":
        """Reads what save returned, once Checkpoint.check has accepted it. Returns a function that
        makes it the state.

        states: reads those of a slot. failing: to be closed if the function will not be called.
        Errors: MISMATCH (another config), those of states and of import_state."""
        if saved["config"] != self.config.text:
            fail(
                Status["MISMATCH"],
                f"this state was saved with the config {saved['config']!r}, but {self.word} has "
                f"{self.config.text!r}: make the stage with the config of the saved state",
            )
        made: "dict[tuple[str, int], Any]" = {}
        for name, held in saved["slots"].items():
            key = ("plain" if name.startswith("plain") else "", int(name.removeprefix("plain")))
            made[key] = self._make(*key)
            failing.callback(made[key].close)
            made[key].import_states(states(held))

        def use() -> None:
            self._made = made

        return use


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
