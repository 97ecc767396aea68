# SPDX-License-Identifier: Apache-2.0
# test_group_processes.py - groups whose ranks are processes: the same bits, a rank that is killed,
# a fork, interrupts, and the interpreter's lock and end.
import hashlib
import socket
import subprocess
import sys

import pytest
from processes import in_child, interrupt, printed_by
from rig import bits, normal, refused
from test_group import CODECS, together


def test_after_a_fork_a_group_is_refused():
    def work(group):
        group.all_reduce(normal((10,)))
        return group

    one, other = together(2, work, close=False)
    operation = one.start("all_reduce", normal((10,)), slot=1)

    def check():
        for call in (
            lambda: one.all_reduce(normal((10,))),
            operation.test,
            operation.wait,
            one.counters,
            one.state_dict,
            lambda: one.forget(1),
        ):
            with refused("ARGUMENT", "belongs to the process that made it"):
                call()
        one.close()
        assert one._open  # close did nothing

    in_child(check)
    other.all_reduce(normal((10,)), slot=1)
    assert operation.wait() is not None
    for group in (one, other):
        group.close()


PROCESS = """
import deltawire, hashlib, numpy, sys
rank, port, codec = int(sys.argv[1]), sys.argv[2], sys.argv[3]
links = [None, None]
links[1 - rank] = "tcp://127.0.0.1:" + port
with deltawire.Group(links, codec, timeout=float(sys.argv[4]), open_timeout=60) as group:
    for step in range(3):
        x = numpy.random.default_rng(10 * step + rank).standard_normal(9000, dtype=numpy.float32)
        y = numpy.from_dlpack(group.all_reduce(x, slot=1))
    print(hashlib.sha256(y.tobytes()).hexdigest(), flush=True)
    if len(sys.argv) > 5:
        if rank == 1:
            import os; os.kill(os.getpid(), 9)
        try:
            while True: group.all_reduce(x, slot=1)
        except deltawire.DeltawireError as error:
            print(error.status.name, error.rank, "rank 1" in error.why)
"""


def free_port():
    """A port of the loopback interface that nobody uses."""
    with socket.socket() as room:
        room.bind(("127.0.0.1", 0))
        return str(room.getsockname()[1])


def processes(codec, timeout="60", *more):
    """Runs PROCESS as two ranks. Returns what they printed."""
    port = free_port()
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, str(rank), port, codec, timeout, *more],
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    return [run.communicate(timeout=120)[0].split() for run in runs]


@pytest.mark.parametrize("codec", CODECS)
def test_two_processes_over_tcp(codec):
    one, other = processes(codec)
    assert one == other and len(one) == 1

    def work(group):
        for step in range(3):
            y = group.all_reduce(normal((9000,), 10 * step + group.rank), slot=1)
        return hashlib.sha256(bits(y).tobytes()).hexdigest()

    assert together(2, work, codec=codec)[0] == one[0]  # the transport makes no difference


def test_a_killed_process():
    """Its link waits for it to connect again, so the group's timeout decides."""
    one, other = processes("delta:bits=4", "3", "die")
    assert one[0] == other[0] and one[2:] == ["1", "True"] and one[1] in ("PEER", "TIMEOUT")


TWO_RANKS = """
import deltawire, threading, time
groups, wire = {}, ""
def opened(r):
    links = [None, None]; links[1 - r] = wire + "loop://interrupted"
    groups[r] = deltawire.Group(links, open_timeout=600, timeout=600)
def both():
    thread = threading.Thread(target=opened, args=(1,)); thread.start()
    opened(0); thread.join()
    return groups[0]
x = deltawire.Tensor((10,))
x.memoryview().cast("B")[:] = bytes(x.nbytes)
def link(listen):
    made.append(deltawire.Link("loop://given", listen=listen))
def halves():
    thread = threading.Thread(target=link, args=(True,)); thread.start(); link(False); thread.join()
    return made[0]
made = []
"""
WAITS = {
    "open": ("wait = lambda: opened(0)", ""),
    "greeting": (
        "half = halves(); wait = lambda: deltawire.Group([None, half], open_timeout=600)",
        "time.sleep(0.2); half.close(); made[1].close()",
    ),
    "all_reduce": (
        "one = both(); wait = lambda: one.all_reduce(x)",
        """
thread = threading.Thread(target=groups[1].all_reduce, args=(x,)); thread.start()
assert one.pending().wait(60); thread.join()""",
    ),
    "wait": ("operation = both().start('broadcast', x, slot=3, root=1); wait = operation.wait", ""),
    "close": (
        """
wire = "shaped:rate=1mbit,loss=1%/"
one = both()
one.start("all_reduce", deltawire.Tensor((1000000,)))
wait = one.close""",
        "",
    ),
    "wait_long": (
        "operation = both().start('all_reduce', x); wait = lambda: operation.wait(500)",
        "",
    ),
}


@pytest.mark.parametrize("name", WAITS)
def test_an_interrupt_ends_a_wait(name):
    program, afterwards = WAITS[name]
    interrupt(TWO_RANKS + program, afterwards)


def test_calls_release_the_interpreter_lock():
    """The two ranks of one process wait for each other. They could not if a wait kept the lock."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1000)  # no thread is made to give up the lock
    try:
        together(2, lambda group: group.all_reduce(normal((10,))))
    finally:
        sys.setswitchinterval(before)


def test_the_interpreter_ends_with_groups_open():
    program = TWO_RANKS + "one = both(); one.start('all_reduce', x); print('end')"
    assert printed_by(program) == "end\n"
