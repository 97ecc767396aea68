# SPDX-License-Identifier: Apache-2.0
# test_group_processes.py - groups and the process around them: a fork, interrupts, and the
# interpreter's lock and end.
import sys

import pytest
from processes import in_child, interrupt, printed_by
from rig import normal, refuses
from test_group import together


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
            refuses(call, "ARGUMENT", "belongs to the process that made it")
        one.close()
        assert one._open  # close did nothing

    in_child(check)
    other.all_reduce(normal((10,)), slot=1)
    assert operation.wait() is not None
    for group in (one, other):
        group.close()


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
