# SPDX-License-Identifier: Apache-2.0
# texts.py - Debian's fortunes as rows of tokens: for training, held out, and for fitting.
from __future__ import annotations

import hashlib
import pathlib

import torch

from models import Model, Wrong

FOLDER = pathlib.Path("/usr/share/games/fortunes")
LENGTH = 128  # tokens in a row, with those that mark its ends


def text() -> str:
    """All fortunes, one after the other."""
    paths = [path for path in sorted(FOLDER.glob("*")) if path.is_file() and not path.suffix]
    if not paths:
        raise Wrong("there is no text: install the packages fortunes and fortunes-min")
    whole = "\n\n".join(path.read_text(errors="replace") for path in paths)
    return whole.replace("\n%\n", "\n\n")


def digest(whole: str) -> str:
    return hashlib.sha256(whole.encode()).hexdigest()[:12]


def _ends(model: Model) -> tuple[list[int], list[int]]:
    """The tokens with which every row begins and ends."""
    if not model.source.is_causal:
        return [model.tokenizer.cls_token_id], [model.tokenizer.sep_token_id]
    return ([model.tokenizer.bos_token_id] if model.source.needs_bos else []), []


def shares(model: Model, whole: str) -> dict[str, torch.Tensor]:
    """Returns {"held", "train", "fit"}: rows of tokens, (rows, LENGTH). No token is in two of them.

    Of every four rows, one is held out and one is for fitting, so that all have the same mixture of
    texts. The order is drawn by a fixed seed: the first rows are a sample of all of them, and more
    rows contain fewer."""
    first, last = _ends(model)
    ids = model.tokenizer(whole, add_special_tokens=False, verbose=False)["input_ids"]
    inner = LENGTH - len(first) - len(last)
    rows = torch.tensor(
        [
            [*first, *ids[start : start + inner], *last]
            for start in range(0, len(ids) - inner + 1, inner)
        ]
    )
    number = torch.arange(len(rows)) % 4
    drawn = torch.Generator().manual_seed(1)
    found = {}
    for name, of in (("held", number == 0), ("fit", number == 3), ("train", number % 3 != 0)):
        share = rows[of]
        found[name] = share[torch.randperm(len(share), generator=drawn)]
    return found


def some(share: torch.Tensor, count: int, option: str) -> torch.Tensor:
    """The first rows of a share."""
    if count > len(share):
        raise Wrong(f"there are only {len(share)} rows of text: give at most {len(share)} {option}")
    return share[:count]
