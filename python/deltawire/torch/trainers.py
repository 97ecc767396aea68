# SPDX-License-Identifier: Apache-2.0
# trainers.py - attach: compresses the gradients of a Trainer of transformers or Lightning.
"""Such a trainer wraps the model when the training begins, so a program cannot register a hook
itself. The callbacks here do it then, and see that the hook is called."""

from __future__ import annotations

import functools
import os
import sys
import warnings
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel

from deltawire.errors import DeltawireError, Status, fail, line_of, refuse
from deltawire.torch.ddp.hook import ddp_hook
from deltawire.torch.fsdp.state import compress_fsdp


class Attached:
    """The compression of a trainer's gradients.

    state: what ddp_hook or compress_fsdp made when the training began; None before, and where one
        process trains alone."""

    def __init__(self, codec: Any, options: "dict[str, Any]") -> None:
        self.state: Any = None
        self._codec, self._options = codec, options
        self._model: Any = None
        self._is_called = False

    def stats(self) -> "dict[str, Any]":
        """Returns the statistics of the state; none where one process trains alone."""
        return {} if self.state is None else self.state.stats()

    def begin(self, wrapped: Any, saved: Any = None) -> None:
        """The training begins. wrapped: the model as the trainer calls it. saved: a state of the
        codec to go on with, or None. Errors: those of ddp_hook and compress_fsdp, and of loading
        but for MISMATCH, which is a warning."""
        model = getattr(wrapped, "_orig_mod", wrapped)  # of torch.compile
        if model is not self._model:
            self._model, self._is_called = model, False
            if self.state is not None:
                self.state.close_compression()  # of a training before
            self.state = self._made(model)
            if self.state is not None and saved:
                self._load(saved)
        elif self.state is not None and saved:
            _warn("the compression goes on with the state that it has: this process trained before")

    def _made(self, model: Any) -> Any:
        """The state of the compression of a model; None where there is nothing to compress."""
        if not dist.is_initialized() or dist.get_world_size() == 1:
            _warn(
                "the trainer has one process, so no gradients are sent and nothing is compressed: "
                "start more, for example with torchrun"
            )
            return None
        if isinstance(model, DistributedDataParallel):
            state, hook = ddp_hook(self._codec, model=model, **self._options)
            model.register_comm_hook(state, hook)
            return state
        if any(isinstance(module, FSDPModule) for module in model.modules()):
            return compress_fsdp(model, self._codec, **self._options)
        fail(
            Status["UNSUPPORTED"],
            f"the trainer uses a {type(model).__name__}, whose gradients deltawire cannot "
            "compress: train with DistributedDataParallel or FSDP2",
        )

    def _load(self, saved: Any) -> None:
        try:
            self.state.load_compression_state_dict(saved)
        except DeltawireError as error:
            if error.status.name != "MISMATCH":
                raise
            _warn(f"the compression begins without the state of the checkpoint: {error.why}")

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


def _warn(sentence: str) -> None:
    warnings.warn(sentence, RuntimeWarning, stacklevel=2)


def attach(trainer: Any, codec: Any = "direct:bits=4", **options: Any) -> Attached:
    """Compresses the gradients of a trainer, with DistributedDataParallel or FSDP2.

        trainer = transformers.Trainer(model, arguments, train_dataset=data)
        compression = deltawire.torch.attach(trainer)
        trainer.train()

    trainer: a transformers.Trainer, or a lightning.Trainer before its fit().
    codec, options: as for ddp_hook and compress_fsdp.

    Checkpoints of the trainer have the codec's state of each rank, and a training that resumes
    loads it from there. With another number of ranks, another codec, or a file that cannot be read,
    it begins without, and a warning says so.

    Returns an Attached, which has the statistics.
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
    from transformers.trainer_utils import get_last_checkpoint

    train = trainer.train
    began: "list[Any]" = [None]

    @functools.wraps(train)
    def noting(resume_from_checkpoint: Any = None, *args: Any, **more: Any) -> Any:
        began[0] = resume_from_checkpoint
        if resume_from_checkpoint is True:
            began[0] = get_last_checkpoint(trainer.args.output_dir)
        return train(resume_from_checkpoint, *args, **more)

    trainer.train = noting  # callbacks are not told from where it resumes

    class Compression(TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            attached.begin(trainer.model_wrapped, _read(began[0]) if began[0] else None)

        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            attached.step_ended()

        def on_save(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            if attached.state is None:
                return
            folder = os.path.join(args.output_dir, f"checkpoint-{state.global_step}")
            os.makedirs(folder, exist_ok=True)  # the first rank may not have made it yet
            _write(attached.state.compression_state_dict(), _file(folder))

    return Compression()


def _file(folder: str) -> str:
    return os.path.join(folder, f"deltawire_{dist.get_rank()}.pt")


def _write(saved: Any, file: str) -> None:
    """A process that is killed leaves no half of a file."""
    torch.save(saved, f"{file}.new")
    os.replace(f"{file}.new", file)


def _read(folder: str) -> Any:
    """What a checkpoint has of this rank, or None with a warning."""
    if not dist.is_initialized():
        return None
    file = _file(folder)
    if not os.path.exists(file):
        _warn(f"the compression begins without state, because there is no {file}")
        return None
    try:
        return torch.load(file, weights_only=True)
    except Exception as error:  # torch.load raises many kinds
        why = line_of(error)
        _warn(f"the compression begins without state, because {file} cannot be read: {why}")
        return None


def _for_lightning(attached: Attached, trainer: Any) -> Any:
    package = type(trainer).__module__.partition(".")[0]  # lightning or pytorch_lightning
    top: Any = sys.modules[package]
    callback: Any = getattr(top, "Callback", None) or top.pytorch.Callback

    class Compression(callback):
        saved: Any = None
        steps = 0  # before this training

        def on_train_start(self, trainer: Any, module: Any) -> None:
            self.steps = trainer.global_step
            attached.begin(trainer.strategy.model, self.saved)
            self.saved = None

        def on_train_batch_end(self, trainer: Any, *rest: Any) -> None:
            if trainer.global_step > self.steps:
                attached.step_ended()

        def state_dict(self) -> "dict[str, Any]":
            return {} if attached.state is None else dict(attached.state.state_dict())

        def load_state_dict(self, saved: "dict[str, Any]") -> None:
            if trainer.state.fn == "fit":  # not for a validation or a test
                self.saved = saved

    return Compression()
