# SPDX-License-Identifier: Apache-2.0
# __init__.py - deltawire.torch: compressed pipeline and data parallelism with PyTorch.
"""Compresses the tensors that the ranks of a torch program exchange.

    stage = deltawire.torch.compress_stage(PipelineStage(...))    # pipeline parallelism
    schedule.step(x, sample_ids=ids)                              # on the first rank
    model.register_comm_hook(*deltawire.torch.ddp_hook())         # data parallelism
    state = deltawire.torch.compress_fsdp(model)                  # ... with sharded parameters

docs/pytorch.md is the manual: ids, state, evaluation and limitations."""

from torch.distributed import pipelining as _pipelining

from deltawire.torch.data import prefetching, with_ids
from deltawire.torch.ddp.hook import ddp_hook
from deltawire.torch.ddp.state import DdpState
from deltawire.torch.fsdp.state import FsdpState, compress_fsdp
from deltawire.torch.pipeline.p2p import irecv, isend, recv, send
from deltawire.torch.pipeline.record import record
from deltawire.torch.pipeline.stage import PipelineStage, compress_stage
from deltawire.torch.pipeline.torch_releases import warn_of_differences as _warn_of_differences
from deltawire.torch.trainers import Attached, attach

_warn_of_differences(_pipelining.PipelineStage)

__all__ = [
    "Attached",
    "DdpState",
    "FsdpState",
    "PipelineStage",
    "attach",
    "compress_fsdp",
    "compress_stage",
    "ddp_hook",
    "irecv",
    "isend",
    "prefetching",
    "record",
    "recv",
    "send",
    "with_ids",
]
