# SPDX-License-Identifier: Apache-2.0
# ranks.py - Ranks: runs a function on several ranks of a process group, each in its own process.
"""Many tests share the processes, because importing torch takes seconds. Each run has a process
group of its own."""

import datetime
import multiprocessing
import os
import re
import subprocess
import tempfile
import traceback

TIMEOUT_S = 60


def kernel_sent():
    """{connection: the bytes that the kernel has sent by it for this process, each once}."""
    listed = subprocess.run(["ss", "-tniHOp"], capture_output=True, text=True, check=True).stdout
    found = {}
    for line in listed.splitlines():
        if f"pid={os.getpid()}," not in line:
            continue
        counted = re.findall(r"bytes_(sent|retrans):(\d+)", line)
        ends = tuple(re.findall(r"\S+:\d+", line)[:2])
        found[ends] = sum(int(n) if which == "sent" else -int(n) for which, n in counted)
    return found


def kernel_sent_since(before):
    """By the connections that there are now: those of an earlier test may have been closed."""
    return sum(n - before.get(ends, 0) for ends, n in kernel_sent().items())


def _serve(pipe):
    import torch

    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    while True:
        try:
            given = pipe.recv()
        except EOFError:
            return
        try:
            answer = (True, _run(*given))
        except BaseException as error:
            named = (type(error).__name__, getattr(error, "status", None), str(error))
            answer = (False, (named, traceback.format_exc()))
        pipe.send(answer)


def _run(function, rank, world, store, args, timeout, backend):
    import torch.distributed as dist

    if "nccl" in str(backend):
        from gpu_ranks import use_nccl

        use_nccl(rank)
    dist.init_process_group(
        backend,
        init_method=f"file://{store}",
        rank=rank,
        world_size=world,
        timeout=datetime.timedelta(seconds=timeout),
    )
    try:
        return function(rank, world, *args)
    finally:
        dist.destroy_process_group()


class Failed(AssertionError):
    """Some ranks raised an exception. errors: for each of them, (class, status, text)."""

    def __init__(self, errors, text):
        super().__init__(text)
        self.errors = errors


class Ranks:
    def __init__(self):
        self._context = multiprocessing.get_context("spawn")
        self._workers = []

    def _worker(self, i):
        while len(self._workers) <= i:
            ours, theirs = self._context.Pipe()
            process = self._context.Process(target=_serve, args=(theirs,), daemon=True)
            process.start()
            theirs.close()
            self._workers.append((process, ours))
        return self._workers[i]

    def run(self, world, function, *args, timeout=TIMEOUT_S, backend="gloo"):
        """Calls function(rank, world, *args) on each rank, and returns a list of the results.
        backend: of the process group."""
        with tempfile.TemporaryDirectory() as folder:
            store = os.path.join(folder, "store")
            workers = [self._worker(i) for i in range(world)]
            for rank, (_, pipe) in enumerate(workers):
                pipe.send((function, rank, world, store, args, timeout, backend))
            answers, broken = [], False
            for rank, (process, pipe) in enumerate(workers):
                try:
                    answers.append(pipe.recv())
                except (EOFError, ConnectionError):
                    process.join()
                    broken = True
                    died = (("died", None, str(process.exitcode)), "the process died")
                    answers.append((False, died))
        if broken or not all(fine for fine, _ in answers):
            self.stop()
        errors = {rank: what[0] for rank, (fine, what) in enumerate(answers) if not fine}
        if errors:
            texts = [f"rank {r}:\n{answers[r][1][1]}" for r in errors]
            raise Failed(errors, "\n".join(texts))
        return [what for _, what in answers]

    def stop(self):
        for process, pipe in self._workers:
            pipe.close()
            process.terminate()
            process.join()
        self._workers = []
