# SPDX-License-Identifier: Apache-2.0
# configs.py - what deltawire.torch makes of the configs that it was given.
from __future__ import annotations

import hashlib
from typing import Any, Optional

from deltawire.config import Config
from deltawire.errors import DeltawireError, Status, fail
from deltawire.profile import Profile


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
