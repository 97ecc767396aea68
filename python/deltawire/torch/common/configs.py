# SPDX-License-Identifier: Apache-2.0
# configs.py - what deltawire.torch makes of the configs that it was given.
from __future__ import annotations

import hashlib
from typing import Any, Optional

from deltawire._library import core
from deltawire.config import Config
from deltawire.errors import DeltawireError, Status, fail
from deltawire.profile import Profile


def without_replies(text: Any) -> Config:
    """Sets replies=never in a config. The carriers neither lose nor reorder messages, so decoders
    need not reply, and encoders keep no older copy to go back to."""
    return Config(text)._set("replies", "never")


def of_flat(text: Any) -> Config:
    """The same for buffers without rows, in which 128 values share a step where rows would."""
    config = without_replies(text)
    its = config._struct
    if its.profile_digest:
        fail(
            Status["CONFIG"],
            "a profile of channels is for tensors with rows, and buckets of weight gradients have "
            "none: leave the profile out",
        )
    shares_rows = has_steps(config) and its.group in (0, core.DW_GROUP_ROW)
    # A rotated block must not be cut.
    return config._set("group", max(its.rotate, 128)) if shares_rows else config


def of_encoder(config: Config, *place: Any) -> Config:
    """Returns the config of the encoder at this place of a run.

    Encoders with the same incarnation and seed would draw the same random numbers for a key
    (docs/format.md, 3.6). So an incarnation in the config is made different for each place, in a
    way that a run can repeat."""
    given = config._struct.incarnation
    if not given:
        return config
    text = "/".join(str(part) for part in (f"incarnation={given}", *place))
    own = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") or 1
    return config._set("incarnation", own)


def has_steps(config: Config) -> bool:
    """Whether values are coded with steps, so that the config can have a profile."""
    return bool(config._struct.form == core.DW_FORM_STEP)


def takes_profile(config: Config) -> bool:
    """Whether the config can have a profile that it does not have yet."""
    if not has_steps(config) or config._struct.profile_digest:
        return False
    try:
        return bool(config._set("profile", 1))
    except DeltawireError:
        return False


def with_profile(config: Config, profile: Optional[Profile]) -> Config:
    """The config with this profile, if its form is the one that has profiles. Errors: CONFIG (it
    has another option that rules profiles out)."""
    return Config(config, profile) if profile is not None and has_steps(config) else config
