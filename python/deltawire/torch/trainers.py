# SPDX-License-Identifier: Apache-2.0
# trainers.py - attach: compresses the gradients of a Trainer of transformers or Lightning;
# with_ids: a data set whose items have ids.
"""Such a trainer wraps the model when the training begins, so a program cannot register a hook
itself. The callbacks here do it then, and see that the hook is called."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Mapping
from typing import Any, NoReturn, Optional

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from deltawire.errors import Status, fail, refuse
from deltawire.torch.ddp import ddp_hook
from deltawire.torch.fsdp import compress_fsdp

ID = "sample_ids"


class Attached:
    """The compression of a trainer's gradients.

    state: what ddp_hook or compress_fsdp made when the training began; None before, and where one
        process trains alone. saved: what its load_state_dict loads then, or None."""

    def __init__(self, codec: Any, options: "dict[str, Any]") -> None:
        self.state: Any = None
        self.saved: Any = None  # a state to load when the training begins
        self._codec, self._options = codec, options
        self._model: Any = None
        self._is_called = False

    def begin(self, wrapped: Any) -> None:
        """The training begins. wrapped: the model as the trainer calls it."""
        model = getattr(wrapped, "_orig_mod", wrapped)  # of torch.compile
        if model is self._model:
            return
        self._model, self._is_called = model, False
        if self.state is not None:
            self.state.close_compression()  # of a training before
            self.state = None
        if isinstance(model, DistributedDataParallel):
            self.state, hook = ddp_hook(self._codec, model=model, **self._options)
            model.register_comm_hook(self.state, hook)
        elif any(hasattr(module, "set_custom_reduce_scatter") for module in model.modules()):
            self.state = compress_fsdp(model, self._codec, **self._options)
        elif dist.is_initialized() and dist.get_world_size() > 1:
            fail(
                Status["UNSUPPORTED"],
                f"the trainer uses a {type(model).__name__}, whose gradients deltawire cannot "
                "compress: train with DistributedDataParallel or FSDP2",
            )
        else:
            warnings.warn(
                "the trainer has one process, so no gradients are sent and nothing is compressed: "
                "start more, for example with torchrun",
                RuntimeWarning,
                stacklevel=2,
            )
        if self.state is not None and self.saved:
            self.state.load_state_dict(self.saved)
        self.saved = None

    def step_ended(self) -> None:
        """The optimizer has made a step. Errors: ARGUMENT (the first one was without the hook)."""
        if self.state is None or self._is_called:
            return
        self._is_called = self.state.stats()["steps"] > 0
        if not self._is_called:
            refuse(
                "the trainer made a step without the hook, so its gradients are not compressed: "
                "leave out what replaces the exchange of gradients (another communication hook, "
                "no_sync, an engine such as DeepSpeed)"
            )

    def save(self, folder: str) -> None:
        """Saves the state of this rank in a folder. Errors: those of compression_state_dict."""
        if self.state is not None:
            torch.save(self.state.compression_state_dict(), _file(folder))

    def load(self, folder: str) -> None:
        """Loads what save has written, before the first backward. Without a file there is a
        warning. Errors: those of load_compression_state_dict."""
        if self.state is None:
            return
        if os.path.exists(_file(folder)):
            self.state.load_compression_state_dict(torch.load(_file(folder)))
        else:
            warnings.warn(
                f"there is no {_file(folder)}, so the compression begins without state: losses may "
                "differ a little from those of a training that was not interrupted",
                RuntimeWarning,
                stacklevel=2,
            )


def _file(folder: str) -> str:
    return os.path.join(folder, f"deltawire_{dist.get_rank()}.pt")


def attach(trainer: Any, codec: Any = "direct:bits=4", **options: Any) -> Attached:
    """Compresses the gradients of a trainer, with DistributedDataParallel or FSDP2.

        trainer = transformers.Trainer(model, arguments, train_dataset=data)
        compression = deltawire.torch.attach(trainer)
        trainer.train()

    trainer: a transformers.Trainer, or a lightning.Trainer before its fit().
    codec, options: as for ddp_hook and compress_fsdp.

    Checkpoints of the trainer have the codec's state of each rank, and a training that resumes
    loads it from there.

    Returns an Attached, whose state has the statistics.
    Errors: ARGUMENT; when the training begins, those of ddp_hook and compress_fsdp; after its first
    step, ARGUMENT (the gradients were not compressed)."""
    attached = Attached(codec, options)
    if hasattr(trainer, "add_callback"):
        trainer.add_callback(_for_transformers(attached, trainer))
    elif hasattr(trainer, "callbacks") and hasattr(trainer, "strategy"):
        trainer.callbacks.append(_for_lightning(attached, trainer))
    else:
        _refuse_trainer(trainer)
    return attached


def _refuse_trainer(trainer: Any) -> NoReturn:
    refuse(
        "trainer must be a transformers.Trainer or a lightning.Trainer, not "
        f"{type(trainer).__name__}: for a model of accelerate or of your own, call "
        "model.register_comm_hook(*ddp_hook())"
    )


def _for_transformers(attached: Attached, trainer: Any) -> Any:
    from transformers import TrainerCallback

    class Compression(TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            attached.begin(trainer.model_wrapped)
            if state.global_step:
                attached.load(_checkpoint(args, state))

        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            attached.step_ended()

        def on_save(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            attached.save(_checkpoint(args, state))

    return Compression()


def _checkpoint(args: Any, state: Any) -> str:
    return os.path.join(args.output_dir, f"checkpoint-{state.global_step}")


def _for_lightning(attached: Attached, trainer: Any) -> Any:
    package = type(trainer).__module__.partition(".")[0]  # lightning or pytorch_lightning
    top: Any = sys.modules[package]
    callback: Any = getattr(top, "Callback", None) or top.pytorch.Callback

    class Compression(callback):
        def on_train_start(self, trainer: Any, module: Any) -> None:
            attached.begin(trainer.strategy.model)

        def on_train_batch_end(self, trainer: Any, *rest: Any) -> None:
            if trainer.global_step > 0:
                attached.step_ended()

        def state_dict(self) -> "dict[str, Any]":
            return {} if attached.state is None else dict(attached.state.state_dict())

        def load_state_dict(self, saved: "dict[str, Any]") -> None:
            attached.saved = saved

    return Compression()


class WithIds(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """A data set whose items have ids: their indices. See with_ids."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, i: int) -> Any:
        item = self._dataset[i]
        if isinstance(item, Mapping):
            return {ID: i, **item}
        return (i, *item) if isinstance(item, (tuple, list)) else (i, item)


def with_ids(dataset: Any) -> WithIds:
    """Returns a data set with the items of another one and their indices, which are the ids that
    compress_stage needs: the same for a sample in every epoch, however a DataLoader shuffles.

    dataset: has a length and items, as those of torch.utils.data and of the package datasets.

    An item that is a mapping gets the index as "sample_ids", any other one as its first part.
    Errors: ARGUMENT (the data set has no length, so its items have no indices)."""
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        refuse(
            f"a {type(dataset).__name__} has no indices: number its samples yourself, the same way "
            "in every epoch, and give these numbers as sample_ids"
        )
    return WithIds(dataset)
