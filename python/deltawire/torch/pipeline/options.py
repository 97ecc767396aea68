# SPDX-License-Identifier: Apache-2.0
# options.py - Options: the arguments of compress_stage, after their values have been checked.
from __future__ import annotations

from typing import Any, Mapping, Optional, Union

from deltawire.config import Config
from deltawire.errors import refuse
from deltawire.profile import Profile
from deltawire.storage import Storage
from deltawire.torch.common import address
from deltawire.torch.common.configs import (
    has_steps,
    takes_profile,
    with_profile,
    without_replies,
)

FORWARD = "delta:form=step,error=0.06,entropy=rans"  # the default for activations


def check_profiles(
    fits: bool, profiles: "dict[Any, Any]", forward: Config, evaluate: Config
) -> None:
    for config in (forward, evaluate) if fits else ():
        if has_steps(config):
            config._set("profile", 1)  # it may be refused
    for stage, profile in profiles.items():
        is_stage = isinstance(stage, int) and not isinstance(stage, bool) and stage >= 0
        if not is_stage or not isinstance(profile, Profile):
            refuse(
                "profiles is a dict {stage: Profile}, where the key is the number of the stage "
                f"that sends the activations, not {stage!r}: {type(profile).__name__}"
            )
        for config in (forward, evaluate):
            with_profile(config, profile)  # it may be refused
    if (fits or profiles) and not any(has_steps(config) for config in (forward, evaluate)):
        refuse(
            "profiles are for configs with form=step, and neither forward nor evaluate is one: "
            'give forward="direct:form=step,step=0.35,entropy=rans", for example'
        )


class Options:
    """compress_stage documents the options and has their defaults. Errors: ARGUMENT, CONFIG."""

    def __init__(
        self,
        *,
        forward: Any,
        backward: Any,
        evaluate: Any,
        carrier: str,
        on_missing_ids: str,
        threads: int,
        dataset_size: Optional[int],
        equal_counts: Optional[bool],
        link: "Optional[dict[str, Any]]",
        profiles: "Union[Mapping[int, Profile], str, None]",
        state: "Union[Storage, str, None]",
    ) -> None:
        self.forward = without_replies(forward)
        self.backward = without_replies(backward)
        self.evaluate = without_replies(evaluate)
        if self.evaluate._facts.keeps_prev:
            refuse(
                "evaluate is the config of steps without ids, but the codec delta needs ids: give "
                'another config, such as "direct:form=step,step=0.15,entropy=rans"'
            )
        address.check(carrier)
        if on_missing_ids not in ("error", "direct"):
            refuse(f'on_missing_ids must be "error" or "direct", not {on_missing_ids!r}')
        if dataset_size is not None and (not isinstance(dataset_size, int) or dataset_size < 1):
            refuse(
                f"dataset_size must be the number of samples in the data set, not {dataset_size!r}"
            )
        self.carrier, self.on_missing_ids = carrier, on_missing_ids
        self.threads, self.dataset_size = threads, dataset_size
        if link is not None and not isinstance(link, Mapping):
            refuse(f"link must be a dict of arguments of Link, not {type(link).__name__}")
        if link and carrier == address.GROUP:
            refuse('link has arguments of links, but carrier is "group": give an address, too')
        self.equal_counts, self.link = equal_counts, dict(link or {})
        if state is not None and not isinstance(state, (str, Storage)):
            refuse(
                f'state is a text such as "file:/path,cache=4GiB" or a Storage, not {state!r}'
            )
        self.state = state
        if profiles is not None and not isinstance(profiles, Mapping) and profiles != "fit":
            refuse(f'profiles is a dict {{stage: Profile}}, or "fit", not {profiles!r}')
        self.fits = takes_profile(self.forward) if profiles is None else profiles == "fit"
        self.profiles = {} if isinstance(profiles, str) else dict(profiles or {})
        check_profiles(isinstance(profiles, str), self.profiles, self.forward, self.evaluate)

    def profile_of(self, stage: int) -> "Union[Profile, str, None]":
        """The profile of what a stage sends, as Sender and Receiver take it."""
        return "fit" if self.fits else self.profiles.get(stage)

    def storage_of(self, stage: int) -> Optional[Storage]:
        """The storage of a stage. Ranks are often given the same text, so the number of the stage
        is added to the path."""
        if not isinstance(self.state, str):
            return self.state
        path, comma, others = self.state.partition(",")
        return Storage(f"{path}.{stage}{comma}{others}")

    def agreed(self) -> "dict[str, Any]":
        """The options that must be the same on all ranks."""
        return {
            "forward": self.forward.agreement,
            "backward": self.backward.agreement,
            "evaluate": self.evaluate.agreement,
            "carrier": address.kind(self.carrier),
            "on_missing_ids": self.on_missing_ids,
            "equal_counts": self.equal_counts,
            "profiles are fitted": self.fits,
            "profiles": {str(stage): its.digest for stage, its in sorted(self.profiles.items())},
        }
