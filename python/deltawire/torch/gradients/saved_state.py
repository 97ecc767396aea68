# SPDX-License-Identifier: Apache-2.0
# saved_state.py - the form in which ddp_hook and compress_fsdp save their state, and its checks.
"""The state is a dict of numbers, strings and tensors of uint8, so torch.load accepts it with
weights_only=True:

    format, kind           2, and "ddp" or "fsdp"
    world, rank            number of ranks, and this one's place among them
    codec, sums, exchange, carrier
                           the arguments of the function, as the ranks compare them
    names                  "taken from model=" or "numbered": those of the parameters ("ddp")
    mark                   [nonce of the run, number of backwards]: equal on all ranks
    buckets                for each, in order: names, shapes, dtype, states (of each end, or
                           of each piece of a group's state)"""

from __future__ import annotations

import uuid
from typing import Any, Callable, NoReturn

import torch

from deltawire.encoder import Encoder
from deltawire.errors import DeltawireError, Status, fail
from deltawire.torch.common import tensors
from deltawire.torch.gradients.layout import Layout

FORMAT = 2
FUNCTIONS = {"ddp": "ddp_hook", "fsdp": "compress_fsdp"}
DTYPES = {str(dtype): dtype for dtype in tensors.CODED}
ADVICE = "load what this rank saved, with the same world and the same arguments of"


def mark_of(nonce: str, steps: int, failed: bool) -> "list[Any]":
    """Identifies the moment at which a state was saved. After a failed backward it is unknown which
    frames were decoded, so the mark is unique."""
    return [uuid.uuid4().hex, -1] if failed else [nonce, steps]


def states_of(ends: "dict[str, Any]") -> "dict[str, torch.Tensor]":
    """Returns the saved state of each encoder and decoder of an exchange, by name."""
    found = {}
    for name, end in ends.items():
        states = end.export_states()  # of one key, or of none, and with what the encoder goes on
        if len(states) > 1:
            del states[(2**64 - 1, 2**32 - 1)]  # as in groups, a rate begins anew
        joined = bytearray(b"".join(states.values()))
        found[name] = (
            tensors.of_buffer(joined)
            if joined
            else torch.empty(0, dtype=torch.uint8, device="cpu")
        )
    return found


def check(saved: Any, kind: str, mine: "dict[str, Any]") -> None:
    """Compares a state of this kind with mine, such as the world, the rank and the codec.

    Errors: FORMAT (it is not such a state), MISMATCH."""
    if not isinstance(saved, dict) or (saved.get("kind"), saved.get("format")) != (kind, FORMAT):
        _refuse(kind, "its kind or format is another one")
    if not isinstance(saved.get("mark"), list):
        _refuse(kind, "it has no mark")
    for name, value in mine.items():
        if saved.get(name) != value:
            fail(
                Status["MISMATCH"],
                f"this compression state was saved with {name} = {saved.get(name)!r}, and here "
                f"{name} is {value!r}: {ADVICE} {FUNCTIONS[kind]}",
            )


def whole(
    kind: str, mine: "dict[str, Any]", mark: "list[Any]", buckets: "list[Any]"
) -> "dict[str, Any]":
    """Returns a state. buckets: (layout, dtype, saved states of its ends) of each."""
    return {
        "format": FORMAT,
        "kind": kind,
        **mine,
        "mark": mark,
        "buckets": [
            {**layout.saved(), "dtype": str(dtype), "states": states}
            for layout, dtype, states in buckets
        ],
    }


def read_buckets(
    saved: "dict[str, Any]", make: "Callable[[Layout, torch.dtype], Any]"
) -> "list[tuple[Layout, torch.dtype, Any]]":
    """Returns (layout, dtype, exchange) of each bucket. make: makes an exchange.

    Errors: FORMAT, and those of import_state."""
    try:
        return [_read(bucket, make) for bucket in saved["buckets"]]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        _refuse(saved["kind"], f"{type(error).__name__}: {error}")


def _read(bucket: Any, make: Any) -> "tuple[Layout, torch.dtype, Any]":
    names, shapes, dtype = bucket["names"], bucket["shapes"], DTYPES[bucket["dtype"]]
    if len(names) != len(shapes) or not names:
        raise ValueError("not as many shapes as names")
    layout = Layout(zip(names, shapes))
    exchange = make(layout, dtype)
    exchange.load(bucket["states"])
    return layout, dtype, exchange


def load_ends(ends: "dict[str, Any]", states: "dict[str, Any]") -> None:
    """Loads the saved states of encoders and decoders. Errors: ValueError, and those of
    import_state."""
    if set(ends) != set(states):
        raise ValueError("states of other ends")
    for name, end in ends.items():
        data = bytes(tensors.as_bytes(states[name].contiguous()))
        # With feedback, encoders alone keep something: the residuals.
        its = end.config
        keeps = its._needs_ids() if isinstance(end, Encoder) else its._facts.keeps_prev
        stateful = keeps and not its._struct.quota_bytes
        if stateful and not data:
            raise ValueError(f"the state of {name} is missing")
        if data:
            end.import_state(data)


def _refuse(kind: str, reason: str) -> NoReturn:
    raise DeltawireError(
        Status["FORMAT"],
        f"this is not the compression state of a {FUNCTIONS[kind]}, or it is damaged ({reason}): "
        "load what compression_state_dict() returned",
    )
