# SPDX-License-Identifier: Apache-2.0
# hook.py - ddp_hook: compresses the gradients of DistributedDataParallel.
"""A program needs these two lines:

    hook = deltawire.torch.ddp_hook("direct:bits=4")
    model.register_comm_hook(*hook)          # model: a DistributedDataParallel

docs/pytorch_details.md explains how gradients are averaged, and what happens when torch rebuilds
buckets."""

# DistributedDataParallel checks the type annotations of a hook. They must be types, not strings, so
# this file must not import annotations from __future__.

import uuid
import warnings
import weakref
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.weak import WeakIdKeyDictionary

import deltawire
from deltawire.config import Config
from deltawire.errors import DeltawireError, Status, refuse
from deltawire.owner import Life
from deltawire.threads import pool_of
from deltawire.torch.common import address, forks, report
from deltawire.torch.common.configs import of_flat
from deltawire.torch.common.gathered_state import Gathered, own
from deltawire.torch.common.misfit import Fit
from deltawire.torch.ddp.crew import Crew, Job
from deltawire.torch.ddp.exchange import DdpPeers, gathers
from deltawire.torch.ddp.resume import Resume
from deltawire.torch.ddp.unused_hook import end_expecting, expect_calls
from deltawire.torch.gradients import saved_state
from deltawire.torch.gradients.layout import Layout, stored
from deltawire.torch.gradients.link_group import More
from deltawire.torch.gradients.link_peers import LinkedPeers
from deltawire.torch.common.rendezvous import Rendezvous
from deltawire.torch.gradients.traffic import Traffic

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
WAYS = ("auto", "gather", "parts")
ADVICE = "call ddp_hook with the same arguments on all ranks, and use the same version of deltawire"
OTHER_BUCKETS = "wrap the same model, with the same options, on all ranks"


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
) -> Tuple["DdpState", Callable[..., Any]]:
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

    Errors: ARGUMENT, CONFIG, MISMATCH (the ranks differ), TIMEOUT, UNSUPPORTED; with an address
    those of deltawire.Link and deltawire.Group, whose rank is a rank of the process group.
    """
    given = (codec, sums, exchange, model, process_group, threads, timeout, carrier, link)
    if not (dist.is_available() and dist.is_initialized()):
        return DdpState(*given), exchange_bucket
    rendezvous = Rendezvous.of_ranks("ddp_hook", _group_of(model, process_group), timeout)
    with rendezvous.refusing():
        state = DdpState(*given)
        state._begin(rendezvous)
    return state, exchange_bucket


def exchange_bucket(
    state: "DdpState", bucket: dist.GradBucket
) -> torch.futures.Future[torch.Tensor]:
    """The communication hook. It replaces a bucket's gradients by their mean over all ranks."""
    if isinstance(bucket, tuple):
        _unsupported(
            "compiled autograd hands over single gradients in place of buckets: set "
            'torch._dynamo.config.optimize_ddp = "ddp_optimizer"'
        )
    return state._exchange(bucket)


class DdpState(Gathered):
    """The state of a communication hook, which ddp_hook makes for one model.

    Pickling keeps only the arguments of ddp_hook. An unpickled DdpState starts without state, in
    the default process group.
    """

    def __init__(
        self,
        codec: Union[str, Config],
        sums: Union[str, Config, None],
        exchange: str,
        model: Optional[torch.nn.Module],
        process_group: Optional[dist.ProcessGroup],
        threads: Any,
        timeout: Optional[float],
        carrier: str = address.GROUP,
        link: More = None,
    ) -> None:
        if exchange not in WAYS:
            refuse(f'exchange must be "auto", "gather" or "parts", not {exchange!r}')
        if timeout is not None and not timeout > 0:
            refuse(f"timeout must be a number of seconds above 0, not {timeout!r}")
        address.check(carrier)
        if carrier == address.GROUP and link is not None:
            refuse('link has arguments of links, but carrier is "group": give an address, too')
        self._arguments = (codec, sums, exchange, timeout, carrier)
        self._carrier, self._link = carrier, link
        self._codec = of_flat(codec)
        self._fit = Fit("gradients", "by this hook")
        self._sums = self._codec if sums is None else of_flat(sums)
        self._way, self._threads = exchange, pool_of(threads) or 0
        self._timeout = timeout
        self._group = _group_of(model, process_group)
        self._names: Any = WeakIdKeyDictionary()
        self._named = model is not None
        self._complete = self._named  # whether the names of all parameters are known
        if model is not None:
            self._take_names(model)
        self._peers: Union[DdpPeers, LinkedPeers, None] = None
        self._buckets: Dict[int, Any] = {}  # the exchanges of buckets, by digest
        self._layouts: Dict[int, Tuple[Layout, torch.dtype]] = {}  # of the buckets, by digest
        self._mark: Optional[List[Any]] = None  # of the state that was loaded
        self._marks_compared = False
        self._resume: Optional[Resume] = None
        self._seen: List[int] = []  # the digests of the buckets of this backward, in order
        self._jobs: List[Job] = []
        self._steps = self._raw_bytes = self._key_buckets = 0
        self._waiting = report.Seconds()
        self._life = Life.now
        self._closed = False
        self._end: Any = None  # closes the hook; None: the ranks have not met
        expect_calls(self)

    def __reduce__(self) -> Any:
        if self._link is not None:
            refuse(
                "a hook with link= cannot be pickled, because that may hold keys: make the hook in "
                "the process that uses it"
            )
        codec, sums, exchange, timeout, carrier = self._arguments
        return DdpState, (codec, sums, exchange, None, None, 0, timeout, carrier)

    def stats(self) -> Dict[str, Any]:
        """Returns statistics of this rank since the hook was made.

        steps: the number of backward passes that exchanged gradients.
        buckets: the number of buckets that the hook knows now.
        new_buckets: how often a bucket started without state (with delta, by a key frame).
        raw_bytes: the size of the gradients.
        frames, frame_bytes: the number and the size of the frames that this rank has encoded.
        sent_bytes: the size of the frames and of the lengths before them, each counted as often as
            it was sent. With links, the size of all messages.
        codec_seconds: the time inside encode and decode, in the threads of the hook.
        wire_seconds: the time in which these threads waited for frames to arrive and to leave, over
            links for the group, which encodes and decodes meanwhile.
        waiting_seconds: the time in which backward waited at its end for the exchange.
        """
        forks.refuse_fork(self._life, "hook")
        peers = self._peers
        traffic = Traffic() if peers is None else peers.traffic()
        return {
            "steps": self._steps,
            "buckets": len(self._buckets),
            "new_buckets": self._key_buckets,
            "raw_bytes": self._raw_bytes,
            "frames": traffic.frames,
            "frame_bytes": traffic.frame_bytes,
            "sent_bytes": traffic.sent_bytes,
            "codec_seconds": traffic.codec_seconds,
            "wire_seconds": 0.0 if peers is None else peers.wire.sum,
            "waiting_seconds": self._waiting.sum,
        }

    def compression_report(self) -> str:
        """Returns the sums of stats() as a table, to print."""
        stats = self.stats()
        row = {"config": self._codec.text, **stats}
        return report.table(f"hook, {stats['steps']} steps", {"gradients": row})

    def compression_scalars(self, prefix: str = "deltawire") -> "Dict[str, float]":
        """Returns stats() with names like "deltawire/ddp/sent_bytes", for TensorBoard, W&B and the
        like."""
        return report.scalars(f"{prefix}/ddp", self.stats())

    def close_compression(self) -> None:
        """Ends the hook: closes its links and gives their ports back. Calling it again does
        nothing, and neither does calling it in a forked process. A hook that is collected, or
        alive when the interpreter ends, is closed, too."""
        self._closed = True
        end_expecting(self)
        if self._end is not None:
            self._end()

    def compression_state_dict(self) -> Dict[str, Any]:
        """Returns the state of all buckets on this rank, for torch.save. Call it on all ranks after
        the same step.

        Errors: ARGUMENT (torch.distributed was not initialized, or a backward is under way)."""
        self._refuse_unusable()
        if self._peers is None or self._jobs:
            refuse("save the compression state between two steps, after the ranks have met")
        failed = self._crew.error is not None
        seen = [digest for digest in self._seen if digest in self._buckets]
        held = self._peers.states([self._buckets[digest] for digest in seen])
        order = [(*self._layouts[digest], states) for digest, states in zip(seen, held)]
        mark = saved_state.mark_of(self._nonce, self._steps, failed)
        return saved_state.whole("ddp", self._same(), mark, order)

    def load_compression_state_dict(self, state: Dict[str, Any]) -> None:
        """Loads what compression_state_dict or state_dict returned. Call it on all ranks, before
        the first backward. If the ranks load states of different steps, or some load none, there is
        a warning and all buckets begin with key frames.

        Errors: MISMATCH (a state of another world size, rank, codec, exchange or model; the model
        is checked in the first backward if model= was not given), FORMAT, CORRUPT, ARGUMENT (it is
        too late)."""
        self._refuse_unusable()
        if self._seen or self._steps:
            refuse("load the compression state before the first backward")
        if self._peers is None:
            self._meet()
        self._rendezvous.go_on()
        with self._rendezvous.refusing():
            self._load(own(state))

    def _load(self, state: Dict[str, Any]) -> None:
        assert self._peers is not None
        saved_state.check(state, "ddp", self._same())
        self._peers.begin_loading()
        read = saved_state.read_buckets(state, self._peers.exchange)
        resume = Resume([(layout, dtype) for layout, dtype, _ in read])
        if self._complete and read:
            known = self._names.items()
            here = {name: stored(p) for p, name in known}
            _check_same(resume.difference_from(here))
        self._resume = resume if read else None
        self._buckets = {layout.digest: exchange for layout, _, exchange in read}
        self._layouts = {layout.digest: (layout, dtype) for layout, dtype, _ in read}
        self._mark = state["mark"]
        self._peers.end_loading()

    def _names_lie(self) -> str:
        return "taken from model=" if self._named else "numbered"

    def _same(self) -> Dict[str, Any]:
        """Returns what must be equal in a saved state and in the hook that loads it."""
        assert self._peers is not None
        return {
            "world": self._peers.world,
            "rank": self._peers.rank,
            "codec": self._codec.agreement,
            "sums": self._sums.agreement,
            "exchange": self._way,
            "carrier": address.kind(self._carrier),
            "names": self._names_lie(),
        }

    def _refuse_unusable(self) -> None:
        forks.refuse_fork(self._life, "hook")
        if self._closed:
            refuse("this hook was closed: make a new ddp_hook for a new model")

    def may_have(self, parameter: torch.nn.Parameter) -> bool:
        """Whether the parameter can be one of the model's."""
        return not self._named or parameter in self._names

    def _take_names(self, model: torch.nn.Module) -> None:
        if getattr(model, "_comm_hooks", None):
            refuse("this model already has a communication hook: register one hook for each model")
        inner = model.module if isinstance(model, DistributedDataParallel) else model
        for name, parameter in inner.named_parameters():
            if parameter.requires_grad:
                _check_dtype(stored(parameter)[1])
                self._names[parameter] = name

    def _meet(self) -> None:
        rendezvous = Rendezvous.of_ranks("ddp_hook", self._group, self._timeout)
        with rendezvous.refusing():
            self._begin(rendezvous)

    def _begin(self, rendezvous: Rendezvous) -> None:
        """Compares the arguments with the other ranks, and makes the process groups."""
        self._rendezvous = rendezvous
        self._rendezvous.compare(
            "the beginning",
            {
                "the function": "ddp_hook",
                "the version of deltawire": deltawire.__version__,
                "codec": self._codec.agreement,
                "sums": self._sums.agreement,
                "exchange": self._way,
                "carrier": address.kind(self._carrier),
                "the names of parameters": self._names_lie(),
            },
            ADVICE,
        )
        self._nonce = self._rendezvous.hear("the nonce", uuid.uuid4().hex)[0]
        configs = (self._codec, self._sums, self._threads)
        if self._carrier == address.GROUP:
            self._peers = DdpPeers(self._way, self._rendezvous, *configs, self._nonce)
        else:
            hops = 1 if gathers(self._way, len(rendezvous.ranks)) else 2
            self._peers = LinkedPeers(self._rendezvous, self._carrier, self._link, *configs, hops)
        self._crew = Crew()
        self._end = weakref.finalize(self, _end, self._crew, self._peers)

    def _exchange(self, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        self._refuse_unusable()
        end_expecting(self)
        if self._peers is None:
            self._meet()
        with self._rendezvous.refusing():
            return self._take(bucket)

    def _take(self, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        assert self._peers is not None
        if bucket.index() == 0:
            self._seen, self._jobs = [], []
            self._compare_marks()
        if bucket.index() != len(self._seen):
            refuse("this hook is used by two models: make a ddp_hook for each model")
        layout, buffer = self._layout(bucket.parameters()), bucket.buffer()
        self._seen.append(layout.digest)
        self._raw_bytes += buffer.numel() * buffer.element_size()
        if bucket.index() == 0 and self._resume and not self._resume.begins(layout):
            self._resume = None
        if self._resume is not None:
            future = self._resume.take(layout, buffer)
            if bucket.is_last():
                self._end_resume()
            return future
        future = self._put(layout, buffer).future
        if bucket.is_last():
            self._end_step()
        return future

    def _compare_marks(self) -> None:
        """Checks, before the first exchange, that all ranks have loaded states of the same step.
        Otherwise none uses what it has loaded."""
        if self._marks_compared:
            return
        self._marks_compared = True
        self._rendezvous.go_on()
        assert self._peers is not None
        heard = self._rendezvous.hear("the compression states", [self._mark, self._peers.spoiled])
        marks, spoiled = [mark for mark, _ in heard], any(spoiled for _, spoiled in heard)
        if any(mark != marks[0] for mark in marks):
            warnings.warn(
                "the ranks have loaded compression states that do not belong together, so all "
                "buckets begin with key frames: save the state of all ranks after the same step, "
                "and load it on all ranks",
                RuntimeWarning,
                stacklevel=2,
            )
            self._resume = None
            self._buckets, self._layouts = {}, {}
            self._peers.begin_anew()
            return
        if spoiled:
            self._peers.load_again()
        if not self._buckets:
            self._resume = None

    def _end_resume(self) -> None:
        """Exchanges the gradients of one backward in the buckets of the loaded state."""
        resume = self._resume
        assert resume is not None and self._peers is not None
        if resume.backwards == 1:
            topic = "the parameters of the loaded states"
            for rank, sentence in enumerate(self._rendezvous.hear(topic, resume.difference())):
                if sentence is not None:
                    self._resume, self._buckets, self._layouts = None, {}, {}
                    self._peers.begin_anew()
                    _check_same(f"at rank {rank} of the group {sentence}")
        gathered = resume.gathered()
        self._seen = [layout.digest for layout, _ in gathered]
        for layout, x in gathered:
            self._put(layout, x)
        self._end_step()
        resume.put_back(gathered)

    def _put(self, layout: Layout, buffer: torch.Tensor) -> Job:
        """Starts the exchange of a bucket."""
        job = self._job(layout, buffer)
        self._jobs.append(job)
        self._crew.put(job)
        return job

    def _job(self, layout: Layout, buffer: torch.Tensor) -> Job:
        """Makes the job for a bucket. Its x is the bucket's buffer, or a copy in main memory."""
        assert self._peers is not None
        if self._peers.world == 1 or not buffer.numel():
            nothing = [lambda job: None] * 3
            return Job(nothing, lambda job: buffer, buffer.device)
        exchange = self._buckets.get(layout.digest)
        if exchange is None:
            exchange = self._new_bucket(layout, buffer)
        if buffer.device.type == "cpu":
            job = Job([exchange.send, exchange.receive, exchange.finish], _x_of, buffer.device)
            job.x = buffer
            return job
        return _staged(exchange, buffer)

    def _new_bucket(self, layout: Layout, buffer: torch.Tensor) -> Any:
        """Makes the exchange of a new bucket, after checking that all ranks have the same one."""
        _check_dtype(buffer.dtype)
        if buffer.layout != torch.strided:
            _unsupported("the gradients of a bucket are sparse: make them dense, with sparse=False")
        elements, digest = buffer.numel(), layout.digest
        if elements != layout.elements():
            _unsupported(
                f"a bucket has {elements} gradients, and its parameters {layout.elements()}: find "
                "the parameters that torch stores in another form than it shows them"
            )
        self._rendezvous.compare(
            f"bucket {len(self._seen) - 1} of step {self._steps}",
            {"parameters": f"{digest:016x}", "elements": elements, "dtype": str(buffer.dtype)},
            OTHER_BUCKETS,
        )
        self._key_buckets += 1
        assert self._peers is not None
        self._buckets[digest] = made = self._peers.exchange(layout, buffer.dtype)
        self._layouts[digest] = layout, buffer.dtype
        return made

    def _layout(self, parameters: "List[torch.Tensor]") -> Layout:
        """Returns the names and shapes of a bucket's parameters, in their order."""
        named = []
        for parameter in parameters:
            name = self._names.get(parameter)
            if name is None:
                if self._complete:
                    refuse("this hook belongs to another model: make a ddp_hook for each model")
                name = self._names[parameter] = f"#{len(self._names)}"
            named.append((name, stored(parameter)[0]))
        return Layout(named)

    def _end_step(self) -> None:
        """Waits for all buckets at the end of a backward. Errors are raised here, because torch
        would turn an exception in a future into a RuntimeError with its text."""
        jobs, self._jobs = self._jobs, []
        for job in jobs:
            self._waiting.time(job.done.wait)
        for job in jobs:
            if job.error is not None:
                raise job.error
        assert self._peers is not None
        self._waiting.time(self._peers.flush)
        self._steps += 1
        peers, buckets = self._peers, self._buckets
        self._fit.look(lambda: peers.encoders(buckets.values()))
        self._complete = True
        for gone in [digest for digest in self._buckets if digest not in self._seen]:
            del self._layouts[gone]
            self._peers.forget(self._buckets.pop(gone))


def _group_of(model: Any, process_group: Any) -> Any:
    if process_group is None and isinstance(model, DistributedDataParallel):
        return model.process_group
    return process_group


def _end(crew: Crew, peers: Any) -> None:
    crew.close()
    peers.close()


def _check_same(difference: Optional[str]) -> None:
    if difference is not None:
        raise DeltawireError(
            Status["MISMATCH"],
            f"this compression state is of another model: {difference}; load what was saved with "
            "this model, or load nothing",
        )


def _x_of(job: Any) -> torch.Tensor:
    return job.x


def _staged(exchange: Any, buffer: torch.Tensor) -> Job:
    """Makes the job for gradients on a GPU, which are copied to main memory and back."""
    ready = torch.cuda.current_stream(buffer.device).record_event()

    def send(job: Any) -> None:
        ready.synchronize()
        job.x = buffer.cpu()
        exchange.send(job)

    def finished(job: Any) -> torch.Tensor:
        return buffer.copy_(job.x)

    return Job([send, exchange.receive, exchange.finish], finished, buffer.device)


def _check_dtype(dtype: torch.dtype) -> None:
    if dtype not in DTYPES:
        _unsupported(
            f"gradients of {dtype} cannot be compressed: convert the parameters to float32, "
            "float16 or bfloat16"
        )


def _unsupported(sentence: str) -> None:
    raise DeltawireError(Status["UNSUPPORTED"], sentence)
