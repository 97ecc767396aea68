# SPDX-License-Identifier: Apache-2.0
# profiles.py - what boundaries send of some rows, and the profiles of channels that fit it.
from __future__ import annotations

import deltawire
import torch

from models import Model, Wrong

ROWS = 32  # to which profiles are fitted; they are used for nothing else
BATCH = 4
SUFFIX = "+profile"  # of a codec that has the profile of its boundary
FIT = "+fit"  # of one whose profiles are fitted while it trains, as by compress_stage


def plain(codec: str) -> str:
    """The text of the codec without a suffix."""
    return codec.removesuffix(SUFFIX).removesuffix(FIT)


def config(codec: str, profile: deltawire.Profile | None) -> deltawire.Config:
    """The config that a text with or without the suffix stands for."""
    if codec.endswith(SUFFIX) and profile is None:
        raise Wrong(f"{codec} has no profile here: {SUFFIX} is for activations, in one process")
    return deltawire.Config(plain(codec), None if codec == plain(codec) else profile)


@torch.enable_grad()
def recorded(
    model: Model, places: tuple[int, ...], rows: torch.Tensor
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The activations behind each of the layers, and the gradients of the loss for them, in f32."""
    sent: dict[int, list[torch.Tensor]] = {place: [] for place in places}
    gradients: dict[int, list[torch.Tensor]] = {place: [] for place in places}

    def hook(place):
        def keep(module, inputs, output):
            x = output[0] if isinstance(output, tuple) else output
            sent[place].append(x.detach().float().cpu())
            x.register_hook(lambda gradient: gradients[place].append(gradient.float().cpu()))

        return keep

    handles = [model.layers[place].register_forward_hook(hook(place)) for place in places]
    learns = [parameter.requires_grad for parameter in model.net.parameters()]
    model.net.requires_grad_(False)
    try:
        for batch in rows.to(model.device).split(BATCH):
            # Activations need a gradient, weights do not.
            first = model.net.get_input_embeddings()(batch).requires_grad_(True)
            logits = model.net(inputs_embeds=first, use_cache=False).logits[:, :-1]
            target = batch[:, 1:].flatten()
            torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), target).backward()
    finally:
        for handle in handles:
            handle.remove()
        for parameter, its in zip(model.net.parameters(), learns):
            parameter.requires_grad_(its)
    return [(torch.cat(sent[place]), torch.cat(gradients[place])) for place in places]


def of_codecs(
    model: Model, codecs: list[str], places: tuple[int, ...], fit: torch.Tensor
) -> list[deltawire.Profile | None]:
    """A profile for each boundary, fitted to the first ROWS rows of `fit`, if any of the codecs has
    one; otherwise None for each."""
    if not any(codec.endswith(SUFFIX) for codec in codecs):
        return [None] * len(places)
    if not model.source.is_causal:
        raise Wrong(f"{model.source.name} has no loss here, so no profile can be fitted to it")
    return [deltawire.Profile.fit(*both) for both in recorded(model, places, fit[:ROWS])]
