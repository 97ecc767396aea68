# SPDX-License-Identifier: Apache-2.0
# torch_releases.py - warns if torch's pipeline stages differ from those of the tested releases.
"""compress_stage overrides methods that torch may change in any release. At import, the parameters
of these methods are compared with those in the tested releases. A difference is a warning and not
an error, because most changes do no harm."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import torch

# For each tested release: the overridden methods and their parameters; "=" marks a default value.
_SHARED = {
    "_retrieve_recv_activations": "self fwd_chunk_id",
    "_retrieve_recv_grads": "self bwd_chunk_id",
    "clear_runtime_states": "self",
    "get_bwd_recv_ops": "self bwd_chunk_id",
    "get_bwd_send_ops": "self bwd_chunk_id",
    "get_fwd_recv_ops": "self fwd_chunk_id",
    "get_fwd_send_ops": "self fwd_chunk_id",
    "set_local_fwd_input": "self prev_stage_outputs mb_index",
}
TESTED = {
    "2.6": {
        **_SHARED,
        "_prepare_forward_infra": "self num_microbatches args kwargs=",
        "forward_one_chunk": "self fwd_chunk_id args kwargs=",
    },
    "2.15": {
        **_SHARED,
        "_prepare_forward_infra": "self num_microbatches args kwargs= has_backward=",
        "forward_one_chunk": "self fwd_chunk_id args kwargs= save_forward_output=",
    },
}


def signature(method: Any) -> str:
    """The parameters of a method, in the notation of TESTED."""
    words = []
    kinds = inspect.Parameter
    star: "dict[Any, str]" = {kinds.VAR_POSITIONAL: "*", kinds.VAR_KEYWORD: "**"}
    for name, parameter in inspect.signature(method).parameters.items():
        default = "" if parameter.default is kinds.empty else "="
        words.append(star.get(parameter.kind, "") + name + default)
    return " ".join(words)


def differences(stage_class: Any) -> "list[str]":
    """Describes each method whose parameters differ from all tested releases."""
    found = []
    for name in TESTED["2.6"]:
        known = {release: methods[name] for release, methods in TESTED.items()}
        method = getattr(stage_class, name, None)
        if method is None:
            found.append(f"{name} does not exist")
            continue
        now = signature(method)
        if now not in known.values():
            was = ", ".join(f"({text}) in torch {release}" for release, text in known.items())
            found.append(f"{name} takes ({now}) in torch {torch.__version__}, but {was}")
    return found


def warn_of_differences(stage_class: Any) -> None:
    found = differences(stage_class)
    if found:
        warnings.warn(
            f"deltawire.torch was tested with torch {' and '.join(TESTED)}. In torch "
            f"{torch.__version__}, methods that compress_stage overrides are different: "
            f"{'; '.join(found)}. Run ./run torch to test this release, or install a tested one.",
            RuntimeWarning,
            stacklevel=3,
        )
