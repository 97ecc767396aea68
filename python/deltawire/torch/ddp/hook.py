# SPDX-License-Identifier: Apache-2.0
# hook.py - ddp_hook: compresses the gradients of DistributedDataParallel.
"""A program needs these two lines:

    hook = deltawire.torch.ddp_hook("direct:bits=4")
    model.register_comm_hook(*hook)          # model: a DistributedDataParallel

docs/pytorch_details.md explains how gradients are averaged, and what happens when torch rebuilds
buckets."""

# DistributedDataParallel checks the type annotations of a hook. They must be types, not strings, so
# this file must not import annotations from __future__.

from typing import Any, Callable, Optional, Tuple, Union

import torch
import torch.distributed as dist

from deltawire.config import Config
from deltawire.errors import Status, fail
from deltawire.torch.common import address
from deltawire.torch.common.rendezvous import Rendezvous
from deltawire.torch.ddp.state import DdpState, group_of
from deltawire.torch.gradients.options import More


def ddp_hook(
    codec: Union[str, Config] = "direct:bits=4",
    *,
    sums: Union[str, Config, None] = None,
    exchange: str = "auto",
    model: Optional[torch.nn.Module] = None,
    process_group: Optional[dist.ProcessGroup] = None,
    threads: Any = 0,
    timeout: Optional[float] = None,
    carrier: str = address.GROUP,
    link: More = None,
) -> Tuple[DdpState, Callable[..., Any]]:
    """Makes a communication hook for DistributedDataParallel that compresses gradients.

    Returns (state, hook), the arguments of register_comm_hook: call
    `model.register_comm_hook(*ddp_hook(...))`. The ranks exchange the gradients of each bucket as
    frames. Then all ranks have the same bits: the mean over all ranks. The hook divides by the
    number of ranks, so do not divide yourself.

    codec: the config of gradients. "direct:..." keeps no state; "delta:..." keeps the last
        reconstruction of every bucket on all ranks and sends the change; "direct:...,feedback=ef"
        keeps what was not sent of every bucket, at the rank that sends, and adds it to the next
        gradients. Buckets have no rows: with form=step, 128 values share a step.
    sums: the config of the means of parts, used with "parts" only. None: the same as codec.
    exchange: "gather": each rank sends its frame to all others. Gradients are quantized once, and a
        rank sends its frame (number of ranks - 1) times. "parts": each rank averages one part of
        the bucket and sends the result to all. Gradients are quantized twice, and a rank sends less
        than two frames. "auto": "gather" for two ranks, otherwise "parts".
    model: the DistributedDataParallel, or the model inside it. It gives the names of parameters and
        allows to check their dtypes at once. None: parameters are numbered in the first backward.
    process_group: the process group of the model. None: that of `model`, or the default group.
    threads: the number of threads that share the work of a frame, or a deltawire.Threads.
    timeout: the maximum time in seconds that a rank waits for the others. None: that of the process
        group.
    carrier: "group": process groups of the hook's own with the backend gloo, also for gradients on
        a GPU. Or the address at which this rank listens for links from the ranks above it, such as
        "tcp://10.0.0.7": a deltawire.Group over links. Without a port any free ones are taken,
        otherwise this one and those after it.
    link: with an address, more arguments of each deltawire.Link, such as {"tls": Tls(...)}; or a
        function that returns them for the link to a rank.

    Call it on every rank, in the same order. If torch.distributed is initialized, the ranks compare
    their arguments in this call, otherwise in the first backward.

    Errors: ARGUMENT, CONFIG, MISMATCH (the ranks differ), TIMEOUT, PEER, UNSUPPORTED; with an
    address those of deltawire.Link and deltawire.Group, whose rank is a rank of the process group.
    """
    given = (codec, sums, exchange, model, process_group, threads, timeout, carrier, link)
    if not (dist.is_available() and dist.is_initialized()):
        return DdpState(*given), exchange_bucket
    group = group_of(model, process_group)
    rendezvous = Rendezvous.of_ranks("ddp_hook", group, timeout)
    with rendezvous.refusing():
        state = DdpState(*given)
        state._begin(rendezvous)
    return state, exchange_bucket


def exchange_bucket(
    state: DdpState, bucket: dist.GradBucket
) -> torch.futures.Future[torch.Tensor]:
    """The communication hook. It replaces a bucket's gradients by their mean over all ranks."""
    if isinstance(bucket, tuple):
        fail(
            Status["UNSUPPORTED"],
            "compiled autograd hands over single gradients in place of buckets: set "
            'torch._dynamo.config.optimize_ddp = "ddp_optimizer"',
        )
    return state._exchange(bucket)
