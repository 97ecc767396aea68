# SPDX-License-Identifier: Apache-2.0
# config.py - Config: a codec and its options, parsed from a text.
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional, Union

from deltawire._library import core, ffi, native, pools
from deltawire.counters import Counters
from deltawire.errors import check, fail, new_why, refuse, text_of

if TYPE_CHECKING:
    from deltawire.profile import Profile

TEXT_BYTES = 320  # DW_CONFIG_TEXT_BYTES


class Config:
    """A codec and its options, such as "delta:bits=4,group=64", "direct:bits=6" or "raw:bf16".

    docs/codecs.md lists all codecs and options. A Config is immutable; it can be compared, hashed,
    pickled and shared. Functions that take a Config also take its text.

    text: str, or another Config.
    profile: a Profile of channels, for form=step; None: that of the other Config, if it has one.
    Errors: CONFIG; the message names the wrong word and what is allowed in its place.
    """

    __slots__ = ("_text", "_struct", "_profile", "_facts")
    _text: str
    _profile: Optional["Profile"]

    def __init__(
        self, text: Union[str, "Config"], profile: Optional["Profile"] = None
    ) -> None:
        if isinstance(text, Config):
            profile = profile or text._profile
            text = text._text
        self._profile = profile
        if not isinstance(text, str):
            refuse(f'a config is a text such as "delta:bits=4", not {type(text).__name__}')
        if "\0" in text:
            refuse("the text of a config must not contain a zero byte")
        self._struct = ffi.new("dw_config *")
        why = new_why()
        size = ffi.sizeof("dw_config")
        if profile is not None and "profile=" not in text:
            text += f"{',' if ':' in text else ':'}profile={profile.digest}"
        check(core.dw_config_parse_sized(self._struct, size, text.encode(), why), why)
        if profile is not None and self._struct.profile_digest != profile.digest:
            fail(
                core.DW_ERR_CONFIG,
                "the option profile names another profile, not the one that is given: leave it out",
            )
        if profile is not None:
            self._struct.profile = profile._handle
        self._text = _format(core.dw_config_format, self._struct)
        # What follows from the config: deltawire.h, dw_facts.
        self._facts = ffi.new("dw_facts *", {"struct_size": ffi.sizeof("dw_facts")})
        check(core.dw_config_facts(self._struct, self._facts))

    def _with(self, profile: "Optional[Profile]") -> "Config":
        """This config with another profile, or with none."""
        without = self._set("profile", None) if self._struct.profile_digest else self
        return Config(without._text, profile)

    def _set(self, name: str, value: Union[str, int, None]) -> "Config":
        """This config with another value of an option; None: with its default."""
        struct, why = ffi.new("dw_config *", self._struct[0]), new_why()
        text = ffi.NULL if value is None else str(value).encode()
        check(core.dw_config_set(struct, name.encode(), text, why), why)
        profile = None if name == "profile" else self._profile
        return Config(_format(core.dw_config_format, struct), profile)

    @property
    def text(self) -> str:
        """The canonical text: configs with the same meaning have the same canonical text."""
        return self._text

    @property
    def codec(self) -> str:
        """The name of the codec, for example "delta", "direct" or "topk"."""
        return text_of(self._facts.codec)

    @property
    def tier(self) -> str:
        """ "stable", or "for comparison": the codec, or an option that is set, may change or go."""
        is_stable = self._facts.tier == core.DW_TIER_STABLE
        return "stable" if is_stable else "for comparison"

    @property
    def agreement(self) -> str:
        """The part of the text that must be the same at the encoder and the decoder."""
        return _format(core.dw_config_agreement, self._struct)

    def misfit(self, counters: Counters, kind: str = "activations") -> Optional[str]:
        """A sentence, with a remedy, if the counters of encoders with this config say that it does
        not fit their tensors; else None. Ask after the first steps.

        kind: "activations" or "gradients". deltawire.h names the limits (dw_counters_misfit)."""
        kinds = {"activations": core.DW_ACTIVATIONS, "gradients": core.DW_GRADIENTS}
        if kind not in kinds:
            refuse(f'kind must be "activations" or "gradients", not {kind!r}')
        struct = ffi.new("dw_counters *", counters._asdict())
        struct.struct_size = ffi.sizeof("dw_counters")
        why = new_why()
        found = core.dw_counters_misfit(struct, self._struct, kinds[kind], why)
        return text_of(why.text) if found else None

    def _needs_ids(self) -> bool:
        """Whether an encoder keeps state under ids: prev, or residuals."""
        return bool(self._facts.keeps_prev or self._facts.keeps_residual)

    def _is_unbiased(self) -> bool:
        """Whether randk multiplies its values, because a mean over many frames shall be right."""
        return bool(self._struct.scaling == core.DW_SCALING_UNBIASED)

    def __repr__(self) -> str:
        return f"Config({self._text!r})"

    def __str__(self) -> str:
        return self._text

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Config):
            return NotImplemented
        return self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> Any:
        return Config, (self._text, self._profile)


def _format(function: Any, struct: Any) -> str:
    room = ffi.new("char[]", TEXT_BYTES)
    check(function(struct, room, TEXT_BYTES))
    return ffi.string(room).decode()


def config_of(struct: Any) -> Config:
    """Makes a Config from a dw_config."""
    return Config(_format(core.dw_config_format, struct))


def host_with(pool: Any, storage: Any = None) -> Any:
    """A new dw_host, with a clock; with threads unless pool is None, and with a backing store
    unless storage is None."""
    made = ffi.new("dw_host *", {"struct_size": ffi.sizeof("dw_host")})
    made.now_ns = ffi.addressof(native, "dw_clock_ns")
    if pool is not None:
        made.parallel_for = ffi.addressof(pools, "dw_threads_parallel_for")
        made.parallel_context = pool
    if storage is not None:
        made.backing = pools.dw_storage_backing(storage)
    return made
