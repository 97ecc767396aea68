# SPDX-License-Identifier: Apache-2.0
# failure.py - as_ours: the error of an exchange that has failed, with what the ranks must do.
from __future__ import annotations

from deltawire.errors import DeltawireError, Status


def as_ours(error: BaseException) -> DeltawireError:
    """Converts an exception to a DeltawireError."""
    if isinstance(error, DeltawireError):
        return error
    text = str(error).strip().split("\n")[0] or type(error).__name__
    late = "imed out" in text or "imeout" in text
    return DeltawireError(
        Status["TIMEOUT" if late else "PEER"] if isinstance(error, RuntimeError) else Status["IO"],
        f"the exchange of gradients failed ({text}): the states of the ranks may differ now, so "
        "start all of them again from a checkpoint, with load_compression_state_dict",
    )
