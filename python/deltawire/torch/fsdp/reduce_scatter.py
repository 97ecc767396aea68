# SPDX-License-Identifier: Apache-2.0
# reduce_scatter.py - ReduceScatter: what torch calls for a module; Trained: its parameters.
from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from deltawire.errors import Status, fail
from deltawire.torch.fsdp.backward import Backward
from deltawire.torch.gradients.layout import Layout


class Trained:
    """The parameters of a module that are trained now. It owns their names and sizes.

    Frozen parameters have no gradients, so only the others count (LoRA: a small part of a module).
    """

    def __init__(self, world: int, name: str, param_group: Any) -> None:
        self._sizes = []  # (name, elements) on all ranks together, padded, and the parameter
        for at, parameter in enumerate(param_group.fsdp_params):
            elements = world * parameter.padded_sharded_param_size.numel()
            own = getattr(getattr(parameter, "_module_info", None), "param_name", str(at))
            self._sizes.append((f"{name}.{own}", (elements,), parameter))
        self._made: "dict[tuple[str, ...], Layout]" = {}

    @property
    def layout(self) -> Layout:
        trained = [one[:2] for one in self._sizes if one[2].sharded_param.requires_grad]
        names = tuple(name for name, _ in trained)
        if names not in self._made:
            self._made[names] = Layout(trained)
        return self._made[names]


class ReduceScatter:
    """The custom reduce-scatter of one module. It has the methods of torch's ReduceScatter."""

    def __init__(self, trained: Trained, backward: Backward) -> None:
        self._trained, self._backward = trained, backward

    def allocate(self, size: Any, *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: Any,
        op: Any,
        async_op: bool = False,
    ) -> None:
        if op != dist.ReduceOp.AVG and op != dist.ReduceOp.SUM:
            fail(
                Status["UNSUPPORTED"],
                f"FSDP asks for the reduction {op}, but compress_fsdp knows sums and means: call "
                "set_force_sum_reduction_for_comms(True) of the module, or leave out "
                "set_gradient_divide_factor",
            )
        mean = op == dist.ReduceOp.AVG
        self._backward.reduce(self._trained.layout, input_tensor, output_tensor, mean)
