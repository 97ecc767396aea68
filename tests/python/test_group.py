# SPDX-License-Identifier: Apache-2.0
# test_group.py - groups whose ranks are threads: sums, state, and errors. Groups whose ranks are
# processes are in test_group_processes.py.
import array
import gc
import pathlib
import pickle
import re
import threading
import time

import numpy
import pytest
from rig import CUDA, Exporter, bits, normal, refused, refuses, same

import deltawire
from deltawire import Config, DeltawireError, Group, Link, Tensor, Threads

numbers = iter(range(10**6))
ROCM = 10  # a device type of DLPack


def uris_of(ranks):
    """For each rank, the list of URIs: loops with new names."""
    name = f"loop://group{next(numbers)}"
    return [
        [None if r == o else f"{name}-{min(r, o)}-{max(r, o)}" for o in range(ranks)]
        for r in range(ranks)
    ]


def together(ranks, work, *, links=None, close=True, **options):
    """Opens a group of ranks in threads and returns the list of what work(group) returned. Raises
    the first exception.

    links: for each rank, the argument links of Group. options: more arguments of Group; a list has
    one for each rank."""
    options.setdefault("timeout", 20)
    links = links or uris_of(ranks)
    said, groups = [None] * ranks, [None] * ranks

    def run(r):
        try:
            mine = {name: v[r] if isinstance(v, list) else v for name, v in options.items()}
            groups[r] = Group(links[r], **mine)
            said[r] = work(groups[r])
        except BaseException as error:
            said[r] = error

    threads = [threading.Thread(target=run, args=(r,), daemon=True) for r in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive(), said
    # All ranks close at the same time: until then each of them may still serve the others.
    for group in groups:
        if group is not None and close:
            group.close()
    for one in said:
        if isinstance(one, BaseException):
            raise one
    return said


CODECS = ["raw:f32", "delta:bits=4", "direct:bits=4,feedback=ef"]
CODECS += ["lowrank:rank=4,width=64,feedback=ef"]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_all_ranks_get_the_same_bits(ranks, codec):
    n = 20_000
    steps = [[normal((n,), 10 * step + r) for r in range(ranks)] for step in range(3)]

    def work(group):
        made = []
        for xs in steps:
            out = numpy.empty(n, numpy.float32)
            assert group.all_reduce(xs[group.rank], out, slot=7) is out
            made.append(out)
            made.append(group.all_reduce(xs[group.rank], slot=8, mean=True).memoryview().tolist())
        assert (group.ranks, group.failed_rank) == (ranks, None)
        counters = group.counters()
        assert counters.started == counters.finished == 6 and counters.slots == 2
        contributed, results = group.codecs()
        assert (contributed.frames > 0) == (results.frames > 0) == (ranks > 1)
        return made

    said = together(ranks, work, codec=codec)
    for other in said[1:]:
        for one, two in zip(said[0], other):
            assert same(numpy.float32(one).ravel(), numpy.float32(two).ravel())
    for step, xs in enumerate(steps):
        total = xs[0]
        for x in xs[1:]:
            total = total + x  # in the order of the ranks, in binary32
        y, mean = (numpy.float32(said[0][2 * step + i]).ravel() for i in (0, 1))
        if codec == "raw:f32":
            assert same(y, total) and same(mean, total / numpy.float32(ranks))
        else:
            most = 20 if codec.startswith("lowrank") else 2  # noise has no low rank
            assert numpy.abs(y - total).max() < most
            assert numpy.abs(mean - total / ranks).max() < most
            assert (ranks == 1) == same(y, total)


def test_scatter_gather_and_broadcast():
    n, ranks = 3 * 2048 + 100, 3

    def work(group):
        r = group.rank
        begin, count = group.part(n)
        xs = [normal((n,), i) for i in range(ranks)]
        part = group.reduce_scatter(xs[r])
        assert part.shape == (1, 1, count)
        whole = group.all_gather(part, n=n)
        assert same(whole, group.all_reduce(xs[r]))
        inside = xs[r].copy()
        mine = group.reduce_scatter(inside, inside[begin : begin + count], mean=True)
        group.all_gather(mine, inside)
        out = numpy.empty(n, numpy.float32)
        assert same(inside, group.all_reduce(xs[r], out, mean=True))
        got = group.broadcast(xs[1] if r == 1 else None, numpy.zeros(n, numpy.float32), root=1)
        assert same(got, xs[1])
        like = group.broadcast(xs[2].reshape(1, 1, n) if r == 2 else Tensor((n,)), root=2)
        assert like.shape == (1, 1, n) and same(numpy.from_dlpack(like).ravel(), xs[2])
        return [bits(whole).tobytes(), inside.tobytes(), group.part(n, 0), group.part(n, 2)]

    said = together(ranks, work)
    assert said[0] == said[1] == said[2]
    assert said[0][2:] == [(0, 2048), (4096, n - 4096)]


def test_small_tensors_lie_in_the_last_part():
    def work(group):
        x = normal((10,), group.rank)
        part = group.reduce_scatter(x)
        assert (part is None) == (group.rank == 0)
        assert same(group.all_gather(part, n=10), group.all_reduce(x))
        assert group.all_reduce(numpy.empty((0, 3), numpy.float32)) is None
        assert group.all_gather(None, n=0) is None

    together(2, work)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_half_precision(dtype):
    def work(group):
        one = numpy.uint16(0x3C00 if dtype == "f16" else 0x3F80)
        raw = numpy.arange(6, dtype=numpy.uint16).reshape(2, 3) + one
        x = Tensor.wrap(raw, dtype)
        y = group.all_reduce(x, mean=True)
        assert (y.dtype, y.shape) == (dtype, x.shape) and same(y, x)
        if dtype == "f16":
            out = numpy.empty((2, 3), numpy.float16)
            assert same(group.all_reduce(raw.view(numpy.float16), out), raw.view(numpy.float16) * 2)

    together(2, work)


def test_tensors_of_every_kind():
    def work(group):
        values = array.array("f", range(12))
        shaped = memoryview(values).cast("B").cast("f", (2, 2, 3))
        assert group.all_reduce(shaped).shape == (2, 2, 3)
        x = numpy.arange(12, dtype=numpy.float32)
        out = array.array("f", bytes(48))
        assert group.all_reduce(Exporter(x), out) is out and list(out) == list(2 * x)
        group.all_reduce(out, out)
        assert list(out) == list(4 * x)

    together(2, work)


def test_many_operations_at_a_time():
    def work(group):
        xs = [normal((3000,), i) for i in range(20)]
        made = [group.start("all_reduce", x, slot=i) for i, x in enumerate(xs)]
        if group.rank == 1:
            made.reverse()
        for operation in made:
            assert group.pending(operation.slot) is operation
            y = operation.wait(60)
            assert y is operation.out is operation.wait() and operation.test()
            assert group.pending(operation.slot) is None
            assert same(numpy.from_dlpack(y).ravel(), 2 * xs[operation.slot])
            assert repr(operation) == f"Operation(slot={operation.slot}, finished)"

    together(2, work)


def test_the_group_holds_what_it_reads_and_writes():
    """x and out are alive until the end, although the program drops them and the operation."""

    def work(group):
        first = group.rank == 0
        if first:
            x, out = array.array("f", [1.0] * 5000), array.array("f", bytes(20000))
            group.start("all_reduce", x, out, slot=1)
            with pytest.raises(BufferError):
                x.append(1.0)  # would move the memory
            with pytest.raises(BufferError):
                out.append(1.0)
            refuses(lambda: group.all_reduce(x, slot=1), "ARGUMENT", "slot 1", "not waited for")
            operation = group.pending(1)
            del x
            gc.collect()
            with refused("TIMEOUT", "slot 1") as caught:
                operation.wait(0.1)
            assert caught.value.rank is None and not operation.test()
            group.broadcast(normal((1,)), slot=2)
            assert operation.wait() is out and set(out) == {2.0}
            out.append(1.0)
        else:
            group.broadcast(None, normal((1,)), slot=2)
            group.all_reduce(array.array("f", [1.0] * 5000), slot=1)

    together(2, work)


def test_what_a_group_refuses_at_the_call():
    def work(group):
        x, y = normal((100,)), normal((100,))
        refuses(lambda: group.all_reduce(x, y[:99]), "SHAPE", "out has 99", "100")
        refuses(lambda: group.all_reduce(normal((4, 6))[:, :3]), "ARGUMENT", "gaps")
        refuses(lambda: group.all_reduce(x, [1.0]), "ARGUMENT", "out is a list")
        refuses(lambda: group.all_reduce(array.array("i", [1])), "UNSUPPORTED", "neither")
        refuses(lambda: group.all_reduce(x, y.astype(numpy.float16)), "ARGUMENT", "f32", "f16")
        with refused("ARGUMENT", "read-only"):
            group.all_reduce(x, memoryview(bytes(400)).cast("f"))
        refuses(lambda: group.all_reduce(x[:50], x[1:51]), "ARGUMENT", "overlap")
        with refused("UNSUPPORTED", "in main memory: copy it there first") as caught:
            group.all_reduce(Exporter(x, device=(ROCM, 0)))
        assert "encoder" not in caught.value.why
        with refused("UNSUPPORTED", "x is on cuda:0 and out is elsewhere", "same place"):
            group.all_reduce(Exporter(x, device=(CUDA, 0)), y)
        with refused("UNSUPPORTED", "x is elsewhere and out is on cuda:1"):
            group.all_reduce(x, Exporter(y, device=(CUDA, 1)))
        for slot in (-1, 2**64, "one", None):
            refuses(lambda: group.all_reduce(x, slot=slot), "ARGUMENT", "slot")
            refuses(lambda: group.forget(slot), "ARGUMENT", "slot")
        refuses(lambda: group.broadcast(x, root=2), "ARGUMENT", "root")
        refuses(lambda: group.all_reduce(None), "ARGUMENT", "x is None")
        refuses(lambda: group.all_gather(x), "ARGUMENT", "out=, or n=")
        refuses(lambda: group.all_gather(x, n=5000), "SHAPE", "the part of rank")
        with refused("SHAPE", "out has 100", "n is 101"):
            group.all_gather(x if group.rank else None, y, n=101)
        refuses(lambda: group.start("sum", x), "ARGUMENT", "one of all_reduce")
        for call in (lambda: group.part(-1), lambda: group.part(5, 2), lambda: group.part(2.5)):
            refuses(call, "ARGUMENT", "must be")
        assert group.failed_rank is None and not group._pending
        group.all_reduce(x, y)
        assert same(y, 2 * x)

    together(2, work)


def test_what_a_group_refuses_at_the_start():
    for links in (None, [], "loop://x", ["loop://x"], [None, None], [None, 5], [None, "a", Link]):
        refuses(lambda: Group(links), "ARGUMENT", "None for" if links else "links must")
    refuses(lambda: Group([None], id=-1), "ARGUMENT", "id")
    refuses(lambda: Group([None], id=0), "ARGUMENT", "group id")
    refuses(lambda: Group([None], piece=1000), "ARGUMENT", "2048")
    refuses(lambda: Group([None], "direct:group=channel"), "CONFIG", "group=channel")
    refuses(lambda: Group([None], timeout=0), "ARGUMENT", "timeout")
    refuses(lambda: Group([None], link={}), "ARGUMENT", "link=")
    with refused("ARGUMENT", "the link to rank 1", "peer_timeout"):
        Group([None, "loop://x"], link={"peer_timeout": 0})
    with refused("TIMEOUT", "the link to rank 1") as caught:
        Group([None, "tcp://127.0.0.1:0"], open_timeout=0.05)
    assert caught.value.rank == 1
    with refused("MISMATCH", "contributions", "bits=5", "bits=3"):
        together(2, lambda group: None, codec=["direct:bits=5", "direct:bits=3"])


def test_a_sum_in_one_hop():
    def work(group):
        return bits(group.all_reduce(normal((5000,), group.rank)))

    by_hops = [together(3, work, codec="direct:bits=8", result="raw:bf16", hops=h) for h in (1, 2)]
    for found in by_hops:
        assert (found[0] == found[1]).all() and (found[0] == found[2]).all()
    # The result of one hop is not rounded by the config `result`.
    assert (by_hops[0][0] & 0xFFFF).any() and not (by_hops[1][0] & 0xFFFF).any()
    for wrong in (3, -1, 1.0):
        refuses(lambda: Group([None], hops=wrong), "ARGUMENT", "hops")


def test_verified_sums_are_the_same():
    def work(group):
        return bits(group.all_reduce(normal((5000,), group.rank)))

    plain, verified = [together(3, work, codec="direct:bits=8", verify=v) for v in (False, True)]
    assert all((found == plain[0]).all() for found in plain + verified)
    refuses(lambda: together(2, lambda group: None, verify=[True, False]), "MISMATCH", "verify")


def test_a_pool_of_threads():
    pool = Threads(2)

    def work(group):
        refuses(pool.close, "ARGUMENT", "still use")
        return bits(group.all_reduce(normal((9000,), group.rank))).tobytes()

    said = together(2, work, codec="direct:bits=4", threads=pool)
    assert said == together(2, work, codec="direct:bits=4", threads=[pool, 3])
    refuses(lambda: Group([None], "direct:group=channel", threads=pool), "CONFIG")
    pool.close()


def test_a_group_over_given_links():
    """The links stay open, and a channel and a second group share them."""
    ends = {}

    def listen():
        ends[0] = Link("loop://given", listen=True)

    thread = threading.Thread(target=listen)
    thread.start()
    ends[1] = Link("loop://given")
    thread.join()
    x, kept = normal((100,)), []
    for id in (4, 5):
        said = together(
            2,
            lambda group: (kept.append(group), group.all_reduce(x))[1],
            links=[[None, ends[0]], [ends[1], None]],
            id=id,
            codec=Config("direct:bits=8"),
            close=id == 4,
        )
        assert same(said[0], said[1])
    ends[1].send(3, b"still open")
    assert ends[0].recv(3) == b"still open"
    with refused("ARGUMENT", "in use"):
        together(2, lambda group: None, links=[[None, ends[0]], [ends[1], None]], id=5)
    for link in ends.values():
        link.close()
    refuses(lambda: Group([None, ends[0]]), "ARGUMENT", "closed")


def test_a_closed_link_closes_its_groups():
    thread = threading.Thread(target=lambda: made.append(Link("loop://shut", listen=True)))
    made = []
    thread.start()
    made.insert(0, Link("loop://shut"))
    thread.join()
    kept = []
    together(2, kept.append, links=[[None, made[0]], [made[1], None]], close=False)
    operation = kept[0].start("all_reduce", normal((10,)))
    for link in made:
        link.close()
    for group in kept:
        refuses(lambda: group.all_reduce(normal((10,))), "ARGUMENT", "closed")
    refuses(operation.wait, "CANCELLED", "slot 0")


def test_rank_that_leaves_is_an_error_at_the_others():
    """Rank 2 leaves. The others learn which rank it was, and their tensors are as before."""
    # All ranks have finished the first operation before rank 2 leaves. Otherwise a rank that is
    # ahead could report it to one that is still at the first.
    gone, begun = threading.Event(), threading.Barrier(3)

    def work(group):
        x = normal((5000,), group.rank)
        group.all_reduce(x)
        begun.wait(60)
        if group.rank == 2:
            group.close()
            gone.set()
            return None
        gone.wait(60)
        out = numpy.full(5000, 7, numpy.float32)
        with pytest.raises(DeltawireError) as caught:
            group.all_reduce(x, out)
        error = caught.value
        assert (error.status.name, error.rank) == ("PEER", 2) and "rank 2" in error.why, error
        assert pickle.loads(pickle.dumps(error)).rank == 2
        assert (out == 7).all() and group.failed_rank == 2
        for call in (lambda: group.all_reduce(x), lambda: group.start("broadcast", x, slot=9)):
            refuses(call, "PEER", "rank 2")
        return group.state_dict()["ranks"]

    assert together(3, work, timeout=20) == [3, 3, None]


def test_late_rank_is_a_timeout_that_names_it():
    over = threading.Event()

    def work(group):
        if group.rank == 1:
            over.wait(60)
            return
        try:
            with refused("TIMEOUT", "rank 1") as caught:
                group.all_reduce(normal((10,)))
            assert caught.value.rank == 1
        finally:
            over.set()

    together(2, work, timeout=0.3)


def test_state_is_saved_and_loaded():
    """A group that loads the state goes on with the same bits."""
    codec, xs = "delta:bits=4,incarnation=5", [normal((6000,), step) for step in range(6)]

    def rest(group):
        return [bits(group.all_reduce(x, slot=4)).tobytes() for x in xs[3:]]

    def first(group):
        for x in xs[:3]:
            group.all_reduce(x, slot=4)
        state = pickle.loads(pickle.dumps(group.state_dict()))
        made = rest(group)
        refuses(lambda: group.load_state_dict(state), "ARGUMENT", "new group")
        group.forget(4)
        group.forget(77)
        assert group.state_dict()["pieces"] == []
        return state, made

    said = together(2, first, codec=codec)
    assert said[0][1] == said[1][1] and said[0][0]["pieces"]

    def again(group):
        group.load_state_dict(said[group.rank][0])
        return rest(group)

    assert together(2, again, codec=codec) == [said[0][1]] * 2

    def wrong(group):
        state = said[group.rank][0]
        refuses(lambda: group.load_state_dict(said[1 - group.rank][0]), "MISMATCH", "rank")
        for name, other in (("codec", "direct:bits=5"), ("hops", 1)):
            refuses(lambda: group.load_state_dict({**state, name: other}), "MISMATCH", name)
        for broken in (None, {}, {"pieces": 5}, {**state, "pieces": [b"nonsense"]}):
            refuses(lambda: group.load_state_dict(broken), "FORMAT")
        refuses(lambda: group.load_state_dict({**state, "pieces": [5]}), "ARGUMENT", "no bytes")

    together(2, wrong, codec=codec)


def test_a_slot_in_use_is_not_forgotten():
    def work(group):
        if group.rank == 0:
            operation = group.start("all_reduce", normal((10,)), slot=3)
            refuses(lambda: group.forget(3), "ARGUMENT", "slot 3")
            refuses(group.state_dict, "ARGUMENT", "in progress")
            group.broadcast(normal((1,)))
            operation.wait()
        else:
            group.broadcast(None, normal((1,)))
            group.all_reduce(normal((10,)), slot=3)

    together(2, work)


def test_one_thread_waits_for_an_operation():
    def work(group):
        if group.rank == 1:
            group.broadcast(None, normal((1,)), slot=1)
            group.all_reduce(normal((10,)))
            return
        operation = group.start("all_reduce", normal((10,)))
        thread = threading.Thread(target=operation.wait)
        thread.start()
        while not operation._lock.locked():
            time.sleep(0.001)
        refuses(operation.test, "ARGUMENT", "another thread")
        group.broadcast(normal((1,)), slot=1)
        thread.join()
        assert operation.test()

    together(2, work)


def test_a_close_ends_the_waits_of_other_threads():
    closed = threading.Event()

    def work(group):
        if group.rank == 1:
            closed.wait(60)
            return
        said = []

        def wait():
            try:
                group.all_reduce(normal((10,)))
            except DeltawireError as error:
                said.append(error.status.name)

        thread = threading.Thread(target=wait)
        thread.start()
        while group.pending() is None:
            time.sleep(0.001)
        group.close()
        thread.join(60)
        closed.set()
        assert said == ["CANCELLED"] and group.pending() is None
        group.close()

    together(2, work)


def test_memory_is_held_until_a_group_is_closed():
    """The memory of x and out is held until the group is closed: until then it may be used."""

    def work(group):
        if group.rank == 0:
            out = array.array("f", bytes(40))
            operation = group.start("all_reduce", normal((10,)), out)
            group._open = False  # as by another thread that has begun to close the group
            refuses(operation.wait, "CANCELLED", "slot 0")
            with pytest.raises(BufferError):
                out.append(1.0)
            group._open = True
            group.close()
            out.append(1.0)

    together(2, work)


def test_nothing_is_pickled():
    with Group([None]) as group:
        for thing in (group, group.start("all_reduce", normal((3,)))):
            refuses(lambda: pickle.dumps(thing), "ARGUMENT", "cannot be pickled")


def test_unclosed_group_warns_and_is_collected():
    """Its memory is freed with it, also if its links are collected first."""
    kept = together(2, lambda group: group, close=False)
    operation = kept[0].start("all_reduce", normal((10,)))
    circle = [kept, operation]
    circle.append(circle)
    with pytest.warns(ResourceWarning, match="never closed"):
        del kept, operation, circle
        gc.collect()


def test_the_snippet_of_the_manual(capsys):
    page = pathlib.Path(__file__).parents[2] / "docs" / "python.md"
    section = page.read_text(encoding="utf-8").partition("## Groups\n")[2].partition("\n## ")[0]
    both = re.search(r"```python\n(.*?)```\n\n```text\n(.*?)```", section, re.S)
    program, printed = both.groups()
    exec(compile(program, str(page), "exec"), {"__name__": "snippet"})
    assert capsys.readouterr().out == printed
    assert deltawire.Group
