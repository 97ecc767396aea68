# SPDX-License-Identifier: Apache-2.0
# compatibility.py - whether torch's pipeline stages are those that this package was tested with.
"""PipelineStage overrides methods that torch may change in any release. At import their signatures
are compared with those of the releases that the tests ran with; a difference is a warning, not an
error: most changes do no harm."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import torch

# Per tested release: the methods that are overridden, with their parameters; "=": has a default.
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
    """Its parameters, as TESTED has them."""
    words = []
    for name, parameter in inspect.signature(method).parameters.items():
        star = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
        default = "" if parameter.default is inspect.Parameter.empty else "="
        words.append(star.get(parameter.kind, "") + name + default)
    return " ".join(words)


def differences(stage_class: Any) -> "list[str]":
    """One sentence for each method that is as in none of the tested releases."""
    found = []
    for name in TESTED["2.6"]:
        known = {release: methods[name] for release, methods in TESTED.items()}
        method = getattr(stage_class, name, None)
        if method is None:
            found.append(f"{name} is not there")
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
            f"deltawire.torch was tested with torch {' and '.join(TESTED)}, and this torch "
            f"{torch.__version__} differs where pipeline stages are overridden: "
            f"{'; '.join(found)}. Run ./run torch, or take a torch that was tested.",
            RuntimeWarning,
            stacklevel=3,
        )
