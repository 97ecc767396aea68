# SPDX-License-Identifier: Apache-2.0
# group.py - Group: sums of tensors over several ranks, compressed.
from __future__ import annotations

import contextlib
import threading
from typing import Any, Mapping, NoReturn, Optional, Sequence, Union

from deltawire._library import core, ffi, net
from deltawire._waiting import milliseconds, watched
from deltawire.bytes_in import Bytes
from deltawire.config import Config, host_with
from deltawire.counters import Counters, GroupCounters, codec_counters, group_counters
from deltawire.errors import ARGUMENT, DeltawireError, check, fail, new_why, refuse, text_of
from deltawire.flat import Flat, refuse_length, refuse_other_overlap
from deltawire.link import Link
from deltawire.operation import Operation
from deltawire.owner import Shared
from deltawire.streams import LazyStream
from deltawire.tensor import NAMES, Tensor, dtype_number
from deltawire.threads import Threads, pool_of

OPERATIONS = {
    "all_reduce": core.DW_ALL_REDUCE,
    "reduce_scatter": core.DW_REDUCE_SCATTER,
    "all_gather": core.DW_ALL_GATHER,
    "broadcast": core.DW_BROADCAST,
}
FORMAT, MISMATCH = core.DW_ERR_FORMAT, core.DW_ERR_MISMATCH


class Ending:
    """Closes a dw_group once, whoever asks first: its Group, or a link that is closed before."""

    __slots__ = ("handle", "_lock")

    def __init__(self, handle: Any) -> None:
        self.handle, self._lock = handle, threading.Lock()

    # Default arguments stay valid when the interpreter ends and has emptied the modules.
    def __call__(self, end: Any = net.dw_group_close) -> None:
        with self._lock:
            handle, self.handle = self.handle, None
            if handle is not None:
                end(handle)


class Group(Shared):
    """Ranks that add, gather and broadcast tensors together, each with a link to every other.

    links: one entry for each rank, in the order of the ranks, and None for this rank. So [None, a,
        b] makes rank 0 of three. Either deltawire.Links, which stay the caller's, or URIs: then the
        group opens and closes the links, and the lower rank of two listens.
    codec: the config of what ranks contribute to a sum, or its text.
    result: the config of sums, gathered parts and broadcasts. None: codec.
    id: an int from 1 to 65535. Groups and channels of a link share these numbers.
    threads: the number of threads that share the work of the codecs, or a Threads.
    timeout: the time in seconds that an operation waits for a rank without any progress, before
        the group fails.
    open_timeout: the maximum time in seconds until all ranks have opened the group, and with URIs
        also for each link.
    piece: tensors are sent in pieces of this many floats, a multiple of 2048. 0: chosen by the
        length of the tensor.
    max_early_bytes: the limit for messages of operations that other ranks have started and this one
        has not. 0: 1 GiB.
    link: with URIs: more arguments of each Link, such as {"tls": Tls(...)}.
    hops: of an all_reduce, 1 or 2 (0: 2). 2: each rank adds up a part, and sends the sums to
        all, which the config result compresses. 1: each rank sends its tensor to all, and adds up
        all of them: nothing is compressed twice. With two ranks that is as many bytes, with D ranks
        D / 2 times as many.
    verify: True: each two ranks compare their results before an operation returns them. PROTOCOL if
        they differ, because a rank sent different frames to two others, or memory is damaged.
    Errors: ARGUMENT, CONFIG, MISMATCH (a rank has another config, or another number of ranks),
    TIMEOUT (a rank did not open the group), NO_MEMORY, VERSION, PROTOCOL, and those of links.

    links, id, codec, result, piece, hops and verify must be the same on all ranks. The constructor
    returns when all ranks have opened the group. docs/collective.md says what is computed and what
    happens when something fails.

    Tensors are contiguous, of f32, f16 or bf16, with one to four dimensions; a group sees n floats.
    They are in main memory, or all of an operation on one GPU, from which x is copied when the
    operation starts, and to which out is copied at its end: the bits are the same.

    A slot is the number of a tensor, the same on all ranks, such as the index of a parameter:
    codecs that keep state (delta, feedback=ef) keep it for each slot. A slot has one operation at a
    time; operations of different slots may be in progress together. All ranks start the same
    operations of a slot in the same order. All ranks end with the same bits.

    If a rank dies, is late or disagrees, the group fails: all operations that have not finished,
    and all later calls, raise the same DeltawireError, whose rank is the rank to blame. Close the
    group then. Any thread may call. KeyboardInterrupt ends every wait within 100 ms, and the
    operation goes on: pending(slot) returns it. An interrupt of the constructor or of close makes
    the links fail, too.
    """

    _noun = "group"
    _library = net

    def __init__(
        self,
        links: "Sequence[Union[Link, str, None]]",
        codec: Union[str, Config] = "raw:f32",
        result: Union[str, Config, None] = None,
        *,
        id: int = 1,
        threads: Union[int, Threads] = 0,
        timeout: float = 60.0,
        open_timeout: float = 60.0,
        piece: int = 0,
        max_early_bytes: int = 0,
        link: Optional[Mapping[str, Any]] = None,
        hops: int = 2,
        verify: bool = False,
    ) -> None:
        super().__init__()
        self._rank, self._ranks = _place_in(links)
        self._config = Config(codec)
        self._result = self._config if result is None else Config(result)
        how = ffi.new("dw_group_config *", {"struct_size": ffi.sizeof("dw_group_config")})
        how.rank, how.ranks = self._rank, self._ranks
        how.timeout_ms = milliseconds(timeout, "timeout")
        how.open_timeout_ms = milliseconds(open_timeout, "open_timeout")
        for name, given, most in (
            ("id", id, 2**32),
            ("piece", piece, 2**32),
            ("max_early_bytes", max_early_bytes, 2**63),
            ("hops", hops, 3),
            ("verify", verify, 2),
        ):
            if not isinstance(given, int) or not 0 <= given < most:
                refuse(f"{name} must be an int from 0 to {most - 1}, not {given!r}")
            setattr(how, name, given)
        self._hops = hops or 2
        self._pending: "dict[int, Operation]" = {}
        self._own: "list[Link]" = []
        self._gpu = LazyStream("group")
        pool = self._borrow(pool_of(threads))
        try:
            self._links = self._opened(links, open_timeout, link)
            self._make(how, pool)
        except BaseException:
            self._give_back()
            raise
        self._open = True

    def _opened(self, links: Any, open_timeout: float, more: Any) -> "list[Link]":
        """The links to the other ranks. URIs are opened in the order of the ranks on all ranks, so
        nobody waits in a circle."""
        given = [(r, at) for r, at in enumerate(links) if at is not None]
        if not given or isinstance(given[0][1], Link):
            if more is not None:
                refuse("link= has arguments for links that the group opens: give URIs, too")
            return [at for _, at in given]
        for r, uri in given:
            options: "dict[str, Any]" = {"open_timeout": open_timeout, **dict(more or {})}
            try:
                made = Link(uri, self._rank < r, **options)
            except DeltawireError as error:
                fail(error.status, f"the link to rank {r}: {error.why}", rank=r)
            self._own.append(made)
        return self._own

    def _make(self, how: Any, pool: Any) -> None:
        host = how.host = host_with(pool)
        how.codec, how.result = self._config._struct, self._result._struct
        table = how.links = ffi.new("dw_link *[]", self._ranks)
        others = [r for r in range(self._ranks) if r != self._rank]
        for r, link in zip(others, self._links):
            table[r] = link._handle
        self._ending = watched(
            lambda: _open(how, self._links, (host, table)),
            self._cancel_links,
            lambda ending: ending(),
        )
        self._handle = self._ending.handle
        for link in self._links:
            link._channels.add(self)

    def _cancel_links(self) -> None:
        for link in self._links:
            if link._open:
                net.dw_link_cancel(link._handle)

    # ---- Operations ------------------------------------------------------------------------------

    def all_reduce(self, x: Any, out: Any = None, slot: int = 0, mean: bool = False) -> Any:
        """Adds x over all ranks, and returns the sum.

        x: a tensor of n floats. out: a writable tensor of n floats of the same dtype, which may be
            x. None: a new Tensor.
        mean: divide the sum by the number of ranks.
        Errors: ARGUMENT, SHAPE, UNSUPPORTED, LIMIT, NO_MEMORY; nothing was started then. Or the
        error of a group that has failed; out is unchanged then. NaN and infinity are not errors:
        their group arrives as NaN on all ranks, and is counted in poisoned.
        """
        return self.start("all_reduce", x, out, slot, mean=mean).wait()

    def reduce_scatter(self, x: Any, out: Any = None, slot: int = 0, mean: bool = False) -> Any:
        """Adds x over all ranks, and returns the own part of the sum: the floats of part(n).

        x: a tensor of n floats. out: a writable tensor as long as the own part, of the same dtype,
            which may be that part of x. None: a new Tensor, or None if the own part is empty.
        Errors: as those of all_reduce. The sum is not encoded.
        """
        return self.start("reduce_scatter", x, out, slot, mean=mean).wait()

    def all_gather(
        self, x: Any, out: Any = None, slot: int = 0, *, n: Optional[int] = None, dtype: str = "f32"
    ) -> Any:
        """Returns the parts of all ranks in one tensor.

        x: a tensor as long as the own part of n floats; None if that part is empty.
        out: a writable tensor of n floats of x's dtype; x may be the own part of it. None: a new
            Tensor, for which n is needed.
        n: the number of floats of all parts together. dtype: if both x and out are None.
        Errors: as those of all_reduce.
        """
        return self.start("all_gather", x, out, slot, n=n, dtype=dtype).wait()

    def broadcast(self, x: Any, out: Any = None, slot: int = 0, root: int = 0) -> Any:
        """Returns the x of the rank `root`, as it arrives through the codec, on all ranks.

        x: a tensor of n floats. Other ranks than root pass it only for its shape and dtype, or pass
            None and out. out: a writable tensor of n floats, which may be x. None: a new Tensor.
        Errors: as those of all_reduce.
        """
        return self.start("broadcast", x, out, slot, root=root).wait()

    def start(
        self,
        operation: str,
        x: Any = None,
        out: Any = None,
        slot: int = 0,
        *,
        mean: bool = False,
        root: int = 0,
        n: Optional[int] = None,
        dtype: str = "f32",
    ) -> Operation:
        """Starts an operation in the background and returns it; call its wait for the result.

        operation: "all_reduce", "reduce_scatter", "all_gather" or "broadcast". The other arguments
            are those of the method with this name.
        Errors: those of all_reduce; ARGUMENT also if an operation of this slot was not waited for.
        """
        if operation not in OPERATIONS:
            refuse(f"operation must be one of {', '.join(OPERATIONS)}, not {operation!r}")
        if not isinstance(slot, int) or not 0 <= slot < 2**64:
            refuse(f"slot must be an int from 0 to 2**64 - 1, not {slot!r}")
        if not isinstance(root, int) or not 0 <= root < self._ranks:
            refuse(f"root must be a rank, an int from 0 to {self._ranks - 1}, not {root!r}")
        self._begin()
        try:
            made = self._buffers(operation, slot, x, out, root, n, dtype)
            try:
                job = self._job(operation, made, mean, root, n)
                self._hand_over(made, job)
            except DeltawireError:  # after any other exception, the operation may be in progress
                made._let_go()
                raise
            return made
        finally:
            self._finish()

    def _buffers(
        self, operation: str, slot: int, x: Any, out: Any, root: int, n: Any, dtype: str
    ) -> Operation:
        """Makes an Operation, which holds the memory of x and out."""
        reads = operation != "broadcast" or root == self._rank
        stream = self._gpu.of(x, out)
        source = Flat(x, "x", stream=stream)
        to = None
        try:
            if x is None and (operation != "all_gather" and (reads or out is None)):
                refuse("x is None: give a tensor")
            if n is not None and (not isinstance(n, int) or not 0 <= n <= 2**40):
                refuse(f"n must be a number of floats, an int from 0 to 2**40, not {n!r}")
            if operation == "reduce_scatter":
                shape: Any = (self.part(source.n)[1],)
            elif operation == "all_gather":
                if out is None and n is None:
                    refuse("all_gather needs either out=, or n=, the floats of all parts together")
                shape = (n,)
            else:
                shape = source.shape
            number = source.dtype if source.n else dtype_number(dtype)
            if out is None and shape and shape[0]:
                if stream is not None:
                    refuse("x is on a GPU, where a group makes no tensors: give out= there, too")
                out = Tensor(shape, NAMES[number])
            to = Flat(out, "out", writes=True, stream=stream)
            if not reads:
                source.pointer = ffi.NULL
            return Operation(self, slot, out, source, to, stream)
        except BaseException:
            for flat in (source, to):
                if flat is not None:
                    flat.drop()
            raise

    def _job(self, operation: str, made: Operation, mean: bool, root: int, n: Any) -> Any:
        x, y = made._x, made._y
        total = y.n if operation in ("all_gather", "broadcast") else x.n
        begin, count = self.part(total)
        if operation == "reduce_scatter":
            refuse_length(y, count, "out", f"the part of rank {self._rank} has")
        elif operation == "all_gather":
            refuse_length(x, count, "x", f"the part of rank {self._rank} has")
            if n is not None:
                refuse_length(y, n, "out", "n is")
        elif x.given is not None:
            refuse_length(y, x.n, "out", "x has")
        if x.n and y.n and x.dtype != y.dtype:
            refuse(f"x is {NAMES[x.dtype]} and out is {NAMES[y.dtype]}: give both the same dtype")
        if x.pointer:
            parts = operation in ("reduce_scatter", "all_gather")
            refuse_other_overlap(x, y, begin if parts else 0)
        job = ffi.new("dw_group_job *", {"struct_size": ffi.sizeof("dw_group_job")})
        job.operation = OPERATIONS[operation]
        job.dtype = x.dtype if x.n else y.dtype
        job.slot, job.n, job.x, job.y = made.slot, total, x.pointer, y.pointer
        job.mean, job.root = bool(mean), root
        if made._stream is not None:
            job.cuda, job.stream = made._stream.cuda, made._stream.call.stream
        return job

    def _hand_over(self, made: Operation, job: Any) -> None:
        if self._pending.setdefault(made.slot, made) is not made:
            refuse(
                f"an operation of slot {made.slot} was not waited for: call wait of what start "
                "returned, or of what pending returns, or use another slot"
            )
        status = net.dw_group_start(self._handle, job)
        if status < 0:
            self._pending.pop(made.slot, None)
            self._check(status)

    def pending(self, slot: int = 0) -> Optional[Operation]:
        """The operation of a slot that was started and not yet waited for; None: there is none."""
        return self._pending.get(slot)

    def part(self, n: int, rank: Optional[int] = None) -> "tuple[int, int]":
        """Returns (begin, count), in floats: the part of a rank in a buffer of n floats.

        rank: None: this rank. Errors: ARGUMENT.
        """
        place = self._rank if rank is None else rank
        if not isinstance(n, int) or not 0 <= n <= 2**40:
            refuse(f"n must be a number of floats, an int from 0 to 2**40, not {n!r}")
        if not isinstance(place, int) or not 0 <= place < self._ranks:
            refuse(f"rank must be an int from 0 to {self._ranks - 1}, not {place!r}")
        begin, count = ffi.new("uint64_t *"), ffi.new("uint64_t *")
        check(net.dw_group_part(n, place, self._ranks, begin, count))
        return begin[0], count[0]

    # ---- State -----------------------------------------------------------------------------------

    def forget(self, slot: int) -> None:
        """Frees the memory of a slot, and what codecs keep of it. All ranks must call it between
        the same operations of the slot. An unknown slot is no error.

        Errors: ARGUMENT (an operation of the slot was not waited for), NO_MEMORY."""
        if not isinstance(slot, int) or not 0 <= slot < 2**64:
            refuse(f"slot must be an int from 0 to 2**64 - 1, not {slot!r}")
        busy = f"an operation of slot {slot} was not waited for: call its wait first"
        self._ask(lambda handle: self._check(net.dw_group_forget(handle, slot), busy))

    def state_dict(self) -> "dict[str, Any]":
        """The state of the codecs, for a checkpoint: a dict of texts, ints and bytes.

        All ranks must save between the same operations. A group that has failed can be saved, too.
        Errors: ARGUMENT (an operation is in progress), NO_MEMORY.
        """
        return {**self._identity(), "pieces": [piece for _, piece in self._export()]}

    def _export(self) -> "list[tuple[int, bytes]]":
        """(slot, piece of state) of all that the codecs keep. Errors: those of state_dict."""
        pieces: "list[tuple[int, bytes]]" = []

        errors: "list[BaseException]" = []

        def visit(_: Any, slot: int, saved: Any, length: int) -> int:
            try:
                pieces.append((slot, ffi.buffer(saved, length)[:]))
            except BaseException as error:
                errors.append(error)
            return ARGUMENT if errors else 0

        def export(handle: Any) -> None:
            status = net.dw_group_export(handle, callback, ffi.NULL)
            for error in errors:
                raise error
            busy = "an operation is in progress: wait for all of them first"
            self._check(status, busy, False)

        callback = ffi.callback("dw_group_saved_visit", visit, error=ARGUMENT)
        self._ask(export)
        return pieces

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Loads what state_dict returned into a new group, on all ranks, before any operation.

        Errors: ARGUMENT (an operation was started), FORMAT, CORRUPT, MISMATCH (another rank, number
        of ranks or config), LIMIT, NO_MEMORY. Close the group after an error: a part of the state
        may be loaded.
        """
        if not isinstance(state, Mapping) or not isinstance(state.get("pieces"), (list, tuple)):
            fail(
                FORMAT,
                "this is not what state_dict of a group returned on this rank: load that",
            )
        for name, here in self._identity().items():
            if state.get(name) != here:
                fail(
                    MISMATCH,
                    f"the state was saved with the {name} {state.get(name)!r}, but the {name} of "
                    f"this group is {here!r}: open the group as it was when the state was saved",
                )
        for piece in state["pieces"]:
            self._import(piece)

    def _import(self, piece: Any) -> None:
        """Loads one piece of state. Errors: those of load_state_dict."""
        started = "an operation was started before: load the state into a new group"
        with Bytes(piece, "a piece of the state") as given:
            self._ask(
                lambda handle: self._check(
                    net.dw_group_import(handle, given.pointer, given.length), started
                )
            )

    def _identity(self) -> "dict[str, Any]":
        return {
            "rank": self._rank,
            "ranks": self._ranks,
            "codec": self._config.agreement,
            "result": self._result.agreement,
            "hops": self._hops,
        }

    # ---- Reports ---------------------------------------------------------------------------------

    @property
    def rank(self) -> int:
        """The number of this rank."""
        return self._rank

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return self._ranks

    @property
    def failed_rank(self) -> Optional[int]:
        """The rank to blame if the group has failed; None: it works."""
        found = self._ask(self._blamed)
        return None if found < 0 else int(found)

    def counters(self) -> GroupCounters:
        """Statistics since the group was opened; see GroupCounters."""

        def count(handle: Any) -> GroupCounters:
            size = ffi.sizeof("dw_group_counters")
            struct = ffi.new("dw_group_counters *", {"struct_size": size})
            check(net.dw_group_count(handle, struct, ffi.NULL, ffi.NULL))
            return group_counters(struct)

        return self._ask(count)  # type: ignore[no-any-return]

    def codecs(self) -> "tuple[Counters, Counters]":
        """Statistics of the encoders: of what this rank contributed, and of its results."""

        def count(handle: Any) -> "tuple[Counters, Counters]":
            size = ffi.sizeof("dw_counters")
            one, two = (ffi.new("dw_counters *", {"struct_size": size}) for _ in range(2))
            check(net.dw_group_count(handle, ffi.NULL, one, two))
            return codec_counters(one), codec_counters(two)

        return self._ask(count)  # type: ignore[no-any-return]

    def _text(self, handle: Any) -> str:
        return text_of(net.dw_group_why(handle, ffi.NULL))

    def _blamed(self, handle: Any) -> int:
        rank = ffi.new("int *")
        net.dw_group_why(handle, rank)
        return int(rank[0])

    def _check(self, status: int, refused: str = "", blame: bool = True) -> None:
        """refused: the sentence for ARGUMENT, if the C function keeps none. blame: whether the call
        returns the error of a group that has failed."""
        if status < 0:
            self._fail(status, refused, blame)

    def _fail(self, status: int, refused: str, blame: bool) -> NoReturn:
        rank = self._blamed(self._handle) if blame else -1
        if rank >= 0:
            sentence = self._text(self._handle)
            if f"rank {rank} " not in f"{sentence} ".replace(":", " ").replace(",", " "):
                sentence = f"rank {rank}: {sentence}"
            fail(status, sentence, rank=rank)
        if refused:
            fail(status, refused if status == ARGUMENT else "")
        fail(status, self._text(self._handle))

    # ---- The end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Closes the group, and the links that it opened. Operations that have not finished are
        dropped, and other ranks that wait for this one get PEER. On links that may lose messages,
        it waits for at most 5 s until the other ranks have received everything. Calling it again
        does nothing, and neither does calling it in a forked process."""
        if not self._shut():
            return
        try:
            watched(self._ending, self._cancel_links, lambda _: None)
        except BaseException:  # such as KeyboardInterrupt
            self._ending()  # does not take long, because the links have failed
            raise
        finally:
            self._give_back()

    def _give_back(self) -> None:
        for made in list(self._pending.values()):
            made._cancel(self._noun)
        self._pending.clear()
        for link in getattr(self, "_links", ()):
            link._channels.discard(self)
            if getattr(self, "_ending", None) in link._endings:
                link._endings.remove(self._ending)
        for link in self._own:
            link.close()
        self._gpu.close()
        self._return_lent()

    def _abandon(self) -> None:
        self._ending()
        self._gpu.close()
        self._return_lent()


def _place_in(links: Any) -> "tuple[int, int]":
    """Checks the links of a group. Returns (rank, ranks)."""
    if not isinstance(links, (list, tuple)) or not links:
        refuse("links must be a list with a Link or a URI for each rank, and None for this rank")
    own = [r for r, at in enumerate(links) if at is None]
    if len(own) != 1:
        refuse(f"links has None for {len(own)} ranks: give None for this rank, and for no other")
    for kind in (Link, str):
        if all(at is None or isinstance(at, kind) for at in links):
            return own[0], len(links)
    refuse("links must be either deltawire.Links or URIs, besides None for this rank")


def _open(how: Any, links: "list[Link]", kept: Any) -> Ending:
    """Opens a dw_group. Its links cannot be closed during the call. Afterwards, closing a link
    closes the group first. Both matter after an interrupt: this may then still run in a helper
    thread while the program closes the links."""
    with contextlib.ExitStack() as stack:
        for link in links:
            link._begin()
            stack.callback(link._finish)
        made, why = ffi.new("dw_group **"), new_why()
        check(net.dw_group_open(made, how, why), why)
        del kept  # which the call needed until here
        ending = Ending(made[0])
        for link in links:
            link._endings.append(ending)
    return ending
