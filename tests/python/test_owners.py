# SPDX-License-Identifier: Apache-2.0
# test_owners.py - objects and threads, fork, pickle, and the end of the interpreter.
import copy
import os
import pickle
import threading
import time

import numpy
import pytest
from processes import in_child, printed_by
from rig import normal, pair, refuses, same

import deltawire
from deltawire import Config, Decoder, DeltawireError, Encoder, Status, Tensor, Threads


def test_a_second_thread_gets_an_error():
    encoder, _ = pair("direct:bits=4")
    entered, leave = threading.Event(), threading.Event()
    said = []

    class Slow:  # a tensor whose export waits, so that the call takes long
        def __dlpack__(self, **asked):
            entered.set()
            leave.wait(60)
            raise RuntimeError("no more")

    def first():
        try:
            encoder.encode(Slow())
        except DeltawireError as error:
            said.append(error.why)

    thread = threading.Thread(target=first)
    thread.start()
    entered.wait(60)
    for call in (encoder.counters, encoder.reset, lambda: encoder.take_reply(b""), encoder.close):
        refuses(call, "ARGUMENT", "in use by another thread")
    leave.set()
    thread.join()
    assert said and "no more" in said[0]
    assert encoder.encode(normal((1, 2, 64)))


def test_calls_release_the_interpreter_lock():
    """While one thread encodes, another one runs. It could not if encode kept the interpreter lock
    (GIL): it would then stand still for nearly all of the time that encode takes. A busy machine
    may let it stand still as well, so the test tries again."""
    x = normal((16, 256, 1024))
    encoder = Encoder("direct:bits=3,scale=mse")

    def longest_pause():
        """As a fraction of the time that encode takes."""
        times, awake = [], []

        def encode():
            times.append(time.perf_counter())
            encoder.encode(x)
            times.append(time.perf_counter())

        thread = threading.Thread(target=encode)
        thread.start()
        while thread.is_alive():
            time.sleep(0.001)
            awake.append(time.perf_counter())
        begin, end = times
        seen = [begin, *(t for t in awake if begin < t < end), end]
        return max(b - a for a, b in zip(seen, seen[1:])) / (end - begin)

    assert any(longest_pause() < 0.5 for _ in range(30))


def test_after_a_fork_only_new_objects_work():
    pool = Threads(3)
    encoder, decoder = pair("delta:bits=4", threads=pool)
    own = Encoder("delta:bits=4", threads=2)
    x = normal((2, 64, 512))
    frame = encoder.encode(x, [1, 2])
    y = decoder.decode(frame).tensor

    def check():
        for call in (
            lambda: encoder.encode(x, [1, 2]),
            lambda: encoder.take_reply(b"x"),
            lambda: encoder.counters(),
            lambda: decoder.decode(frame),
            lambda: own.encode(x, [1, 2]),
            lambda: Encoder("delta", threads=pool),
        ):
            refuses(call, "ARGUMENT", "belongs to the process that made it")
        for thing in (encoder, decoder, own, pool):
            thing.close()  # does nothing, and does not hang
        mine = Encoder("delta:bits=4,incarnation=3", threads=2)
        again = Decoder("delta:bits=4").decode(mine.encode(x, [1, 2])).tensor
        assert same(again, y)  # tensors are plain memory

    in_child(check)
    assert decoder.decode(encoder.encode(x, [1, 2])).ids == [1, 2]
    own.encode(x, [1, 2])


def test_a_fork_in_the_middle_of_a_call():
    encoder, _ = pair("direct:bits=4")
    entered, leave = threading.Event(), threading.Event()

    class Slow:
        def __dlpack__(self, **asked):
            entered.set()
            leave.wait(60)
            raise RuntimeError("no more")

    thread = threading.Thread(target=lambda: pytest.raises(DeltawireError, encoder.encode, Slow()))
    thread.start()
    entered.wait(60)

    def check():
        refuses(encoder.counters, "ARGUMENT", "belongs to the process")
        encoder.close()

    in_child(check)
    leave.set()
    thread.join()


def test_nothing_is_pickled_but_configs_and_errors():
    encoder, decoder = pair()
    tensor = Tensor((1, 2, 3))
    for thing in (encoder, decoder, Threads(2), tensor):
        for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
            refuses(lambda: attempt(thing), "ARGUMENT", "cannot be pickled")
    config = pickle.loads(pickle.dumps(Config("delta:bits=3")))
    assert config == Config("delta:bits=3")
    error = pickle.loads(pickle.dumps(DeltawireError(-9, "a sentence", b"reply")))
    assert error.status is Status.CORRUPT and error.why == "a sentence" and error.reply == b"reply"
    assert str(error) == "a sentence (CORRUPT)" and isinstance(error, RuntimeError)


PROGRAM = """
import deltawire, sys
x = deltawire.Tensor((4, 64, 512))
x.memoryview().cast("B")[:] = bytes(x.nbytes)
encoder = deltawire.Encoder("delta:bits=4", threads=3)
decoder = deltawire.Decoder("delta:bits=4", threads=deltawire.Threads(2))
y = decoder.decode(encoder.encode(x, [1, 2, 3, 4])).tensor
capsule = y.__dlpack__()
sys.kept = encoder, decoder, y, capsule  # until the very end
class Circle: pass
circle = Circle()
circle.me, circle.encoder = circle, deltawire.Encoder("delta")
%s
print("end")
"""


@pytest.mark.parametrize(
    "last", ["", "sys.modules.clear()", "del sys.kept, x, y", "import gc; gc.disable()"]
)
def test_the_interpreter_ends_quietly(last):
    assert printed_by(PROGRAM % last, "-X", "dev", "-W", "error") == "end\n"


def test_the_interpreter_ends_while_threads_encode():
    printed_by(
        """
import deltawire, threading
x = deltawire.Tensor((4, 64, 512))
def work():
    encoder = deltawire.Encoder("direct:bits=3")
    while True:
        encoder.encode(x)
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
import time; time.sleep(0.2)
"""
    )


def test_import_needs_neither_torch_nor_numpy():
    printed_by(
        """
import sys, deltawire
wrong = {"torch", "numpy", "jax", "pycparser"} & set(sys.modules)
assert not wrong, wrong
assert deltawire.__version__.count(".") == 2
"""
    )


def test_deleted_objects_free_their_memory():
    """Encoders that are created and deleted leak no memory."""

    def pages():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1])

    if os.environ.get("DW_TEST_SANITIZED"):
        pytest.skip("AddressSanitizer keeps what was freed")
    x = normal((4, 64, 512))

    def rounds(n):
        for _ in range(n):
            encoder, decoder = pair("delta:bits=4", threads=2)
            y = decoder.decode(encoder.encode(x, [1, 2, 3, 4])).tensor
            numpy.from_dlpack(y)
            y.__dlpack__()
        return pages()

    rounds(20)
    before = rounds(20)
    one_each = 200 * x.nbytes // 4096  # pages, if every round left one tensor behind
    assert rounds(200) - before < one_each // 2
    assert deltawire.Encoder
