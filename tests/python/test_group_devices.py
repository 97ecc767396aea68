# SPDX-License-Identifier: Apache-2.0
# test_group_devices.py - groups with tensors on a GPU. It is emulated, and the host cannot access
# its memory.
import numpy
import pytest
from fake_gpu import Array, close_device, ffi, leftovers, state
from rig import bits, normal, refused, refuses
from test_group import together

import deltawire

N = 20_000


@pytest.fixture(autouse=True)
def nothing_is_left():
    before = leftovers()
    yield
    state.fail_at, state.broken_stream = -1, False
    assert leftovers() == before
    assert state.depth == 0


def run(group, operation, x, out, slot):
    """Starts an operation and waits; x of the whole length, of which all_gather reads the part."""
    if operation == "all_gather":
        begin, count = group.part(N)
        return group.start(operation, x[begin : begin + count], out, slot).wait()
    return group.start(operation, x, out, slot).wait()


def empty(group, operation):
    count = group.part(N)[1] if operation == "reduce_scatter" else N
    return numpy.zeros(count, numpy.float32)


@pytest.mark.parametrize("on_gpu", [(0, 1, 2), (1,)])
@pytest.mark.parametrize("operation", ["all_reduce", "reduce_scatter", "all_gather", "broadcast"])
def test_tensors_on_a_gpu_give_the_same_bits(operation, on_gpu):
    def work(group):
        for visit in range(3):
            given = normal((N,), visit * 10 + group.rank)
            wanted = run(group, operation, given, empty(group, operation), 1)
            if group.rank not in on_gpu:
                got = run(group, operation, given, empty(group, operation), 2)
                assert (bits(got) == bits(wanted)).all()
                continue
            if operation == "all_gather":
                begin, count = group.part(N)
                x = Array(given[begin : begin + count])
                out = Array(empty(group, operation))
                assert group.all_gather(x, out, slot=2) is out
            else:
                x, out = Array(given), Array(empty(group, operation))
                x.managed = out.managed = visit == 1
                assert group.start(operation, x, out, 2).wait() is out
            assert (bits(out.read()) == bits(wanted)).all()
            if operation != "broadcast" or group.rank == 0:
                assert x.streams == out.streams and x.streams[0] > 2
        if group.rank in on_gpu and operation == "all_reduce":
            assert group.counters().state_bytes > 3 * N * 4  # x of slot 2, and both results

    together(3, work, codec="delta:bits=4")


def test_bf16_in_place_and_one_rank():
    given = (normal((N,)).view(numpy.uint32) >> 16).astype(numpy.uint16)

    def work(group):
        x = Array(given, bfloat=True)
        assert group.all_reduce(x, x, mean=True) is x
        return x.read()

    for ranks in (1, 2):
        for made in together(ranks, work, codec="raw:f32"):
            assert (made == given).all()


def test_what_a_group_refuses_on_a_gpu():
    def work(group):
        x, out, host = Array(normal((100,))), Array(normal((100,))), normal((100,))
        refuses(lambda: group.all_reduce(x), "ARGUMENT", "x is on a GPU", "give out=")
        with refused("UNSUPPORTED", "x is on cuda:0 and out is elsewhere"):
            group.all_reduce(x, host)
        with refused("UNSUPPORTED", "x is elsewhere and out is on cuda:0"):
            group.all_reduce(deltawire.Tensor((100,)), out)
        x.number = 1
        with refused("UNSUPPORTED", "x is on cuda:1 and out is on cuda:0"):
            group.all_reduce(x, out)
        x.number = 0
        group.all_reduce(x, out, slot=5)
        x.number = out.number = 1
        with refused("UNSUPPORTED", "on cuda:1", "has worked on cuda:0"):
            group.all_reduce(x, out)
        x.number = out.number = 0
        out.flags = 1
        refuses(lambda: group.all_reduce(x, out), "ARGUMENT", "read-only")
        out.flags = 0
        group.all_reduce(x, x, slot=5)
        group.all_reduce(host, slot=5)
        assert group.failed_rank is None and not group._pending

    together(2, work)


def test_a_gpu_that_fails_is_reported_and_can_be_used_again():
    x, out = Array(normal((N,))), Array(normal((N,)))

    def work(group):
        if group.rank == 1:
            state.broken_stream = True
            refuses(lambda: group.all_reduce(x, out), "IO", "the stream failed")
            state.broken_stream = False
            assert not group._pending
        group.all_reduce(*((x, out) if group.rank else (normal((N,)), None)))

    together(2, work)


def test_one_rank_copies_on_the_stream_that_waits_for_the_tensors():
    x, out = Array(normal((N,))), Array(normal((N,), 1))
    with deltawire.Group([None]) as group:
        group.all_reduce(x, out)
        assert x.streams == [int(ffi.cast("uintptr_t", state.last_stream))]
    assert (x.read() == out.read()).all()


def test_a_group_that_is_dropped_frees_its_stream():
    x, before = Array(normal((N,))), leftovers()
    group = deltawire.Group([None])
    group.all_reduce(x, x)
    assert leftovers()[1] == before[1] + 1
    del group
    assert leftovers() == before


def test_group_on_a_missing_gpu_is_an_error():
    close_device()
    state.fail_at, state.calls = 0, 0
    x = Array(normal((10,)))

    def work(group):
        refuses(lambda: group.all_reduce(x, x), "UNSUPPORTED")
        state.fail_at = -1
        group.all_reduce(x, x)

    together(1, work)
