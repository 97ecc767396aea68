# SPDX-License-Identifier: Apache-2.0
# ddp_sender.py - what a replica of ddp_loss.py sends, and the optimizers that apply it.
"""A replica sends one of these, which are averaged over all replicas:

gradients: its gradients. The optimizer makes the momentum of their mean, on every replica alike.
momentum: as 1-bit Adam does (arXiv:2102.02888), the mean momentum of the last step, to which the
    replica has added its own gradients. The mean of these is the next momentum.
own-momentum: the momentum of the replica's own gradients alone, which no mean ever enters.

Without a codec all three are the same but for rounding. They differ in what happens to the errors
of a codec: the momentum of the first kind adds the errors of all steps up, the second one carries
them on, and in the third one each step has an error of its own."""

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

SENT = ("gradients", "momentum", "own-momentum")
BETA, BETA_OF_SQUARES = 0.9, 0.95
RATES = {"adamw": 2e-3, "sgd": 0.2, "plain": 1.0}  # plain: SGD without momentum
CLIP, DECAY = 1.0, 0.1


class Sender:
    """The communication hook of one replica. Its first steps go raw, and then through a codec.

    compression: what ddp_hook returned, or None where all steps are raw."""

    def __init__(self, model, sent, compression, raw_steps):
        self.sent, self.raw_steps, self.moments = sent, raw_steps, {}
        self.compression = compression
        model.register_comm_hook(None, self.hook)

    def hook(self, state, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        if not (bucket.is_last() and bucket.index() == 0):
            raise ValueError("the model has several buckets, but a step is counted for each one")
        if self.sent != "gradients":
            self.put_momentum(bucket)
        if self.compression is None or self.raw_steps > 0:
            self.raw_steps -= 1
            return default_hooks.allreduce_hook(None, bucket)
        compressed, exchange = self.compression
        return exchange(compressed, bucket)

    def put_momentum(self, bucket):
        """Replaces the gradients of a bucket, clipped, by the momentum that they are added to."""
        norm = bucket.buffer().norm()
        part = (1 - BETA) * min(1.0, CLIP / (norm.item() + 1e-6))
        for parameter, gradient in zip(bucket.parameters(), bucket.gradients()):
            gradient.mul_(part)
            if parameter in self.moments:
                gradient.add_(self.moments[parameter], alpha=BETA)
            if self.sent == "own-momentum":
                self.moments[parameter] = gradient.clone()

    def end_backward(self, model):
        """Clips mean gradients, or keeps the mean momentum for the next step."""
        if self.sent == "gradients":
            torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        elif self.sent == "momentum":
            self.moments = {p: p.grad.clone() for p in model.parameters()}


class FrozenAdam(torch.optim.Optimizer):
    """AdamW for gradients that are momentum already. In its first steps it computes the mean
    gradients out of the momentum, for the mean squares, which then stay as they are."""

    def __init__(self, parameters, rate, warm_steps):
        super().__init__(parameters, {"lr": rate})
        self.warm_steps, self.steps = warm_steps, 0

    @torch.no_grad()
    def step(self, closure=None):
        self.steps += 1
        seen = min(self.steps, self.warm_steps)
        for group in self.param_groups:
            for p in group["params"]:
                held = self.state[p]
                if not held:
                    held["last"], held["squares"] = torch.zeros_like(p), torch.zeros_like(p)
                if self.steps <= self.warm_steps:
                    gradient = (p.grad - BETA * held["last"]) / (1 - BETA)
                    held["squares"].lerp_(gradient.square(), 1 - BETA_OF_SQUARES)
                held["last"].copy_(p.grad)
                size = (held["squares"] / (1 - BETA_OF_SQUARES**seen)).sqrt_().add_(1e-8)
                p.mul_(1 - group["lr"] * DECAY)
                p.addcdiv_(p.grad, size, value=-group["lr"] / (1 - BETA**self.steps))


def optimizer_of(name, model, steps, sent="gradients", warm_steps=0, factor=1.0):
    """Returns an optimizer and the schedule of its rate, for what is sent."""
    parameters, rate = model.parameters(), RATES[name] * factor
    if sent != "gradients":
        # The momentum of torch's SGD is not multiplied by 1 - beta, but the sender's is.
        if name == "sgd":
            made = torch.optim.SGD(parameters, rate / (1 - BETA))
        else:
            made = FrozenAdam(parameters, rate, warm_steps)
    elif name == "adamw":
        made = torch.optim.AdamW(parameters, rate, (BETA, BETA_OF_SQUARES), weight_decay=DECAY)
    else:
        made = torch.optim.SGD(parameters, rate, momentum=BETA if name == "sgd" else 0.0)
    falling = torch.optim.lr_scheduler.LambdaLR(
        made, lambda step: min(1.0, (step + 1) / 10) * (1 - step / steps)
    )
    return made, falling
