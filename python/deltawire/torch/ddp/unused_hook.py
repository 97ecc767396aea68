# SPDX-License-Identifier: Apache-2.0
# unused_hook.py - expect_calls: a warning if a hook was made and is registered in no model.
from __future__ import annotations

import gc
import warnings
import weakref
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_post_hook

# Hooks of DistributedDataParallel that were not called yet, and the steps of optimizers since then.
_not_called: "weakref.WeakKeyDictionary[Any, int]" = weakref.WeakKeyDictionary()
_looks: "list[Any]" = []  # at steps of optimizers; once it has begun, it does not end


def expect_calls(state: Any) -> None:
    """Warns if a DistributedDataParallel is trained and the hook with this state is in none."""
    _not_called[state] = 0
    if not _looks:
        _looks.append(register_optimizer_step_post_hook(_look_for_hooks))


def end_expecting(state: Any) -> None:
    _not_called.pop(state, None)


def _look_for_hooks(optimizer: Any, *_: Any) -> None:
    if not _not_called or torch.compiler.is_compiling():
        return
    for state in list(_not_called):
        _not_called[state] = steps = _not_called[state] + 1
        if steps > 1 and not steps & (steps - 1) and _is_missing(state, optimizer):
            end_expecting(state)
            warnings.warn(
                "a hook that ddp_hook has made is registered in no model, and a "
                "DistributedDataParallel is trained without one, so its gradients travel "
                "uncompressed: call model.register_comm_hook(*hook) before the first backward. "
                "Lightning does that on GPUs only, and accelerate's DistributedDataParallelKwargs "
                "takes none but torch's own hooks.",
                RuntimeWarning,
                stacklevel=2,
            )


def _is_missing(state: Any, optimizer: Any) -> bool:
    """Whether the optimizer is that of a DistributedDataParallel that could have the hook and has
    none, and this hook is in no other one. One that has it does not call it within no_sync()."""
    kind = DistributedDataParallel
    models = [one for one in gc.get_objects() if issubclass(type(one), kind)]
    if any(held is state for model in models for _, held in model._comm_hooks):
        return False
    stepped = {id(p) for group in optimizer.param_groups for p in group["params"]}
    bare = [model for model in models if not model._comm_hooks]
    return any(id(p) in stepped and state.may_have(p) for one in bare for p in one.parameters())
