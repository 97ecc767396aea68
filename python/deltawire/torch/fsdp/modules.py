# SPDX-License-Identifier: Apache-2.0
# modules.py - sharded: the modules that fully_shard has sharded, and what torch knows of them.
from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from deltawire.errors import Status, fail, refuse
from deltawire.torch.fsdp.reduce_scatter import ReduceScatter


def sharded(model: torch.nn.Module) -> "list[tuple[str, Any, Any]]":
    """Returns (name, module, group of parameters) of each sharded module that has parameters."""
    try:
        from torch.distributed.fsdp import FSDPModule
    except ImportError:
        _lacks("no fully_shard")
    if not hasattr(FSDPModule, "set_custom_reduce_scatter"):
        _lacks("no FSDPModule.set_custom_reduce_scatter")
    found = []
    for name, module in model.named_modules():
        if not isinstance(module, FSDPModule):
            continue
        groups = _param_groups(module)
        if len(groups) > 1:
            fail(
                Status["UNSUPPORTED"],
                f"module {name!r} has parameters on {len(groups)} meshes: shard those of each mesh "
                "in a module of their own",
            )
        if groups and isinstance(getattr(groups[0], "_reduce_scatter_comm", None), ReduceScatter):
            refuse("this model is compressed already: call compress_fsdp once for a model")
        found += [(name, module, one) for one in groups]
    if not found:
        refuse("the model has no sharded parameters: call fully_shard before compress_fsdp")
    return found


def _param_groups(module: Any) -> "list[Any]":
    """The groups of parameters of a module, which torch keeps to itself: one, or none."""
    state = module._get_fsdp_state()
    groups = getattr(state, "_fsdp_param_groups", None)
    if groups is None:
        one = getattr(state, "_fsdp_param_group", None)
        groups = [one] if one is not None else []
    for one in groups:
        if not all(hasattr(p, "padded_sharded_param_size") for p in one.fsdp_params):
            _lacks("no size of a parameter's part in FSDP")
    return list(groups)


def group_of(param_groups: "list[Any]") -> Any:
    """The process group over which all modules are sharded."""
    found = [one._reduce_scatter_process_group for one in param_groups]
    if any(
        dist.get_process_group_ranks(one) != dist.get_process_group_ranks(found[0]) for one in found
    ):
        fail(
            Status["UNSUPPORTED"],
            "the modules are sharded over different ranks: call fully_shard with the same mesh for "
            "all of them",
        )
    return found[0]


def _lacks(what: str) -> Any:
    fail(
        Status["UNSUPPORTED"],
        f"torch {torch.__version__} has {what}, which compress_fsdp needs: install a later torch; "
        "2.15 has been tested",
    )
