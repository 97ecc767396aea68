# SPDX-License-Identifier: Apache-2.0
# processes.py - shared by the tests of the package: forked processes, other interpreters, and
# interrupts.
import os
import subprocess
import sys
import time

import pytest


def in_child(check):
    """Runs check in a forked process. The test fails if check raises or hangs."""
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(out)
        try:
            check()
            os.write(into, b"ok")
        except BaseException as error:
            os.write(into, repr(error).encode()[:2000])
        finally:
            os._exit(0)
    os.close(into)
    deadline = time.monotonic() + 120
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > deadline:
            os.kill(child, 9)
            os.waitpid(child, 0)
            pytest.fail("the forked process hangs")
        time.sleep(0.01)
    with os.fdopen(out, "rb") as said:
        assert said.read() == b"ok"


def printed_by(program, *options):
    """Runs a program in an interpreter of its own, and returns what it prints. The test fails if it
    fails, complains or hangs."""
    command = [sys.executable, *options, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


INTERRUPTED = """
import os, signal, threading
def strike():  # repeated, until Python has handled one
    while not over.wait(0.2): os.kill(os.getpid(), signal.SIGINT)
def once(number, frame):
    if not over.is_set():
        over.set()
        raise KeyboardInterrupt
over = threading.Event()
signal.signal(signal.SIGINT, once)
%s
try:
    threading.Thread(target=strike, daemon=True).start()
    wait()
except KeyboardInterrupt:
    print("interrupted")
%s
"""


def interrupt(program, afterwards=""):
    """Runs a program, which defines a function wait, and calls this function. The test fails unless
    Ctrl-C ends the wait. afterwards: a program for the time after that."""
    assert printed_by(INTERRUPTED % (program, afterwards)) == "interrupted\n"
