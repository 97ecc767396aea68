# SPDX-License-Identifier: Apache-2.0
# test_processes.py - forked processes and Ctrl-C: stages, point-to-point functions, hooks and FSDP.
import json
import os
import select
import shutil
import signal
import threading

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: ./run torch installs it")

import torch.distributed as dist  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

import deltawire  # noqa: E402
import deltawire.torch as dwt  # noqa: E402
import small_gpt  # noqa: E402
from ddp_ranks import LONGEST, batch_of, results, small_model  # noqa: E402
from pipelines import Pipe  # noqa: E402
from ranks import kernel_sent, kernel_sent_since  # noqa: E402
from test_ddp_errors import step as ddp_step  # noqa: E402
from test_ddp_links import LINKS  # noqa: E402
from deltawire.torch.common.waits import Wait  # noqa: E402
from deltawire.torch.pipeline.group_lane import TAGS, GroupLane  # noqa: E402
from deltawire.torch.pipeline.message import ABORT, Message, pack, unpack  # noqa: E402

needs_texts = pytest.mark.skipif(small_gpt.text() is None, reason="no texts: install fortunes")
CARRIERS = {
    "group": {},
    "equal_counts": {"equal_counts": True},
    "link": {"carrier": "tcp://127.0.0.1"},
}
EF = "direct:bits=4,feedback=ef"


# --- forked processes --------------------------------------------------------------------------


def in_child(calls):
    """Calls each function in a forked process. Returns {name: what was raised}; "": nothing."""
    here, there = os.pipe()
    child = os.fork()
    if child == 0:
        said = {}
        for name, call in calls.items():
            try:
                call()
                said[name] = ""
            except deltawire.DeltawireError as error:
                said[name] = f"{error.status.name}: {error.why}"
            except BaseException as error:
                said[name] = repr(error)[:200]
        os.write(there, json.dumps(said).encode())
        os._exit(0)
    os.close(there)
    if not select.select([here], [], [], LONGEST / 3)[0]:
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with os.fdopen(here) as said:
        return json.loads(said.read() or '{"all": "the forked process hangs"}')


def check_refused(answers, harmless):
    """Every call was refused because of the fork, but the harmless ones, which do nothing."""
    for said in answers:
        for name, sentence in said.items():
            if name in harmless:
                assert sentence == "", (name, sentence)
            else:
                assert sentence.startswith("ARGUMENT") and "forked" in sentence, (name, sentence)


def rank_whose_stage_forks(rank, world, options):
    pipe = Pipe(rank, world, "gpipe", options=options)
    pipe.steps()
    stage = pipe.stages[0]
    state = stage.compression_state_dict()
    said = in_child(
        {
            "a step": pipe.steps,
            "a microbatch": lambda: stage.get_fwd_recv_ops(0),
            "statistics": stage.compression_stats,
            "save": stage.compression_state_dict,
            "load": lambda: stage.load_compression_state_dict(state),
            "reset": stage.reset_compression,
            "a new stage": lambda: Pipe(rank, world, "gpipe", options=options),
            "close": stage.close_compression,
        }
    )
    pipe.steps()
    return said


@needs_texts
@pytest.mark.parametrize("carrier", CARRIERS)
def test_a_stage_is_refused_after_a_fork(carrier):
    check_refused(results(2, rank_whose_stage_forks, CARRIERS[carrier]), ["close"])


def rank_that_forks_within_a_step(rank, world):
    pipe = Pipe(rank, world, "gpipe", options={})
    pipe.steps()
    parent = os.getpid()

    def fork(*_):
        handle.remove()
        child = os.fork()
        if child == 0:
            raise ValueError
        os.waitpid(child, 0)

    if rank == 0:
        handle = pipe.stages[0].submod.register_forward_hook(fork)
    try:
        pipe.steps()
    except RuntimeError:  # torch makes it of a ValueError
        if os.getpid() != parent:
            os._exit(0)
        raise


@needs_texts
def test_an_error_of_a_child_is_not_told_to_the_neighbours():
    results(2, rank_that_forks_within_a_step)


def rank_of_p2p_that_forks(rank, world):
    x, y = torch.randn(4, 6, 32, generator=torch.Generator().manual_seed(1)), torch.empty(4, 6, 32)
    config = {"config": "direct:bits=8"}
    if rank == 0:
        dwt.send(x, 1, **config)
        begun = dwt.isend(x, 1, **config)
        calls = {
            "send": lambda: dwt.send(x, 1, **config),
            "another tag": lambda: dwt.send(x, 1, [1, 2, 3, 4], tag=7),
        }
    else:
        dwt.recv(y, 0, **config)
        begun = dwt.irecv(y, 0, **config)
        calls = {
            "recv": lambda: dwt.recv(y, 0, **config),
            "another tag": lambda: dwt.recv(y, 0, tag=7),
        }
    said = in_child({**calls, "wait": begun.wait})
    begun.wait()
    assert rank == 0 or (y - x).abs().max() < 0.1
    return said


def test_p2p_is_refused_after_a_fork():
    check_refused(results(2, rank_of_p2p_that_forks), [])


def rank_whose_hook_forks(rank, world, how):
    model = DistributedDataParallel(small_model())
    state, hook = dwt.ddp_hook(**how)
    model.register_comm_hook(state, hook)
    ddp_step(model, rank)
    saved = state.compression_state_dict()
    said = in_child(
        {
            "a gradient": lambda: hook(state, None),
            "statistics": state.stats,
            "save": state.compression_state_dict,
            "load": lambda: state.load_compression_state_dict(saved),
            "a new hook": lambda: dwt.ddp_hook(**how),
            "close": state.close_compression,
            "the end": state._ranks.peers.close,
        }
    )
    ddp_step(model, rank)
    return said


@pytest.mark.parametrize("how", [{}, LINKS])
def test_a_hook_is_refused_after_a_fork(how):
    check_refused(results(2, rank_whose_hook_forks, how), ["close", "the end"])


def rank_whose_shards_fork(rank, world, how):
    from test_fsdp import sharded, train

    model, another = sharded(small_model()), sharded(small_model())
    state = dwt.compress_fsdp(model, EF, **how)
    train(model, rank, [0])
    layout, saved = state._shards.held()[0][0], state.compression_state_dict()
    x = torch.zeros(layout.elements())
    said = in_child(
        {
            "a gradient": lambda: state._backward.reduce(layout, x, x[: len(x) // world], True),
            "statistics": state.stats,
            "save": state.compression_state_dict,
            "load": lambda: state.load_compression_state_dict(saved),
            "another model": lambda: dwt.compress_fsdp(another, EF, **how),
            "close": state.close_compression,
        }
    )
    train(model, rank, [1])
    return said


@pytest.mark.parametrize("how", [{}, LINKS])
def test_shards_are_refused_after_a_fork(how):
    pytest.importorskip("test_fsdp")
    check_refused(results(2, rank_whose_shards_fork, how), ["close"])


def test_a_child_has_helpers_of_its_own():
    """Helper threads of the parent do not exist in the child."""
    assert Wait(lambda: 1).end() == 1
    assert in_child({"a wait": lambda: Wait(lambda: 2).end()}) == {"a wait": ""}


# --- Ctrl-C ------------------------------------------------------------------------------------


def interrupted(call, number=0):
    """Calls a function that waits for another rank, which waits until this call is interrupted.
    SIGINT comes again and again, until Python has handled one."""
    over = threading.Event()

    def strike():
        while not over.wait(0.5):
            os.kill(os.getpid(), signal.SIGINT)

    def once(number, frame):
        if not over.is_set():
            over.set()
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, once)
    threading.Thread(target=strike, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        call()
    dist.distributed_c10d._get_default_store().set(f"interrupted {number}", "yes")


def until_interrupted(number=0):
    dist.distributed_c10d._get_default_store().wait([f"interrupted {number}"])


def rank_of_an_interrupted_stage(rank, world, options, who):
    """Rank 0 is interrupted while it receives gradients, or rank 1 while it sends them."""
    # With 1F1B, rank 1 needs more from rank 0; with GPipe, rank 1 sends all gradients at the end.
    pipe = Pipe(rank, world, "gpipe" if who else "1f1b", options=options)
    pipe.steps()
    said = []
    if rank == who:
        interrupted(pipe.steps)
    else:
        stage = pipe.stages[0]
        ops = "get_fwd_recv_ops" if rank else "get_bwd_recv_ops"
        asked = getattr(stage, ops)

        def late(microbatch):
            until_interrupted()
            return asked(microbatch)

        setattr(stage, ops, late)
        try:
            pipe.steps()
        except deltawire.DeltawireError as error:
            said.append(f"{error.status.name}: {error.why}")
        delattr(stage, ops)
    store = dist.distributed_c10d._get_default_store()
    store.set(f"ended {rank}", "yes")
    store.wait([f"ended {1 - rank}"])
    try:
        pipe.steps()
    except deltawire.DeltawireError as error:
        return said, f"{error.status.name}: {error.why}"
    return said, pipe.stats()[0]["steps"]


@needs_texts
@pytest.mark.parametrize("carrier", CARRIERS)
def test_an_interrupt_ends_the_wait_for_a_message(carrier):
    """The neighbour is told, and all ranks may go on, if the messages can be told apart."""
    first, (said, after) = results(2, rank_of_an_interrupted_stage, CARRIERS[carrier], 0)
    assert "stage 0 stopped the step" in said[0] and "KeyboardInterrupt" in said[0]
    for one in (first[1], after):
        if carrier == "equal_counts":
            assert one.startswith("PROTOCOL") and "start all ranks again" in one
        else:
            assert one == 3


@needs_texts
def test_an_interrupt_ends_the_wait_for_a_send():
    """All that was sent arrives, so the neighbour has finished its step."""
    (said, after), (_, steps) = results(2, rank_of_an_interrupted_stage, {}, 1)
    assert (said, after, steps) == ([], 3, 3)


def rank_of_an_interrupted_lane(rank, world):
    lane = GroupLane(rank, 1 - rank, dist.group.WORLD, 1 - rank, (TAGS, TAGS), 512, lambda: 512)
    if rank == 0:
        interrupted(lane.take)
        return [unpack(lane.take()).why for _ in range(2)]
    until_interrupted()
    for why in ("first", "second"):
        lane.send(pack(Message(ABORT, 0, 0, why=why)))
    lane._end.wait()


def test_an_interrupted_wait_loses_no_message():
    assert results(2, rank_of_an_interrupted_lane)[0] == ["first", "second"]


def rank_whose_neighbour_is_not_ready(rank, world):
    pipe = Pipe(rank, world, "gpipe", options={})
    pipe.steps()
    if rank == 0:
        compression, asked = pipe.stages[0]._compression, threading.Event()
        lane = compression.sides.after.lane
        lane._their_room = None
        lane._ask_room = lambda: asked.set() or threading.Event().wait()
        compression.give_up(KeyboardInterrupt())
        return asked.wait(LONGEST)


@needs_texts
def test_an_interrupted_stage_does_not_wait_for_its_neighbour():
    assert results(2, rank_whose_neighbour_is_not_ready)[0]


def failing_loss(pipe, calls):
    """Makes the last of so many calls of the loss function fail. Returns the function before."""
    left = [kept := pipe.schedule._loss_fn] * (calls - 1)

    def loss(*given):
        return left.pop()(*given) if left else 1 / 0

    pipe.schedule._loss_fn = loss
    return kept


def rank_whose_loss_fails(rank, world):
    """The loss is computed by the schedule, between two calls of the stage."""
    pipe = Pipe(rank, world, "1f1b", options={"backward": "delta:bits=6"})
    pipe.steps()
    said = ""
    if rank == 1:
        kept = failing_loss(pipe, 2)
        with pytest.raises(ZeroDivisionError):
            pipe.steps()
        pipe.schedule._loss_fn = kept
    else:
        try:
            pipe.steps()
        except deltawire.DeltawireError as error:
            said = error.why
    return said, pipe.steps()[0]


@needs_texts
def test_a_step_that_ended_between_two_stages_is_given_up():
    (said, _), (_, loss) = results(2, rank_whose_loss_fails)
    assert "stage 1 stopped the step" in said and loss > 0


def rank_of_interrupted_p2p(rank, world):
    """Rank 1 is interrupted in recv and in wait, then rank 0 in wait. Nothing is lost."""
    made = torch.Generator().manual_seed(1)
    x, y = torch.randn(4, 6, 32, generator=made), torch.zeros(4, 6, 32)
    ids = [0, 1, 2, 3]
    near = lambda: bool((y - x).abs().max() < 0.5)  # noqa: E731
    if rank == 0:
        for number in range(2):
            until_interrupted(number)
            dwt.send(x, 1, ids)
        sent = dwt.isend(x, 1, ids)
        interrupted(sent.wait, 2)
        sent.wait()
        return []
    good = []
    interrupted(lambda: dwt.recv(y, 0))
    good.append(not y.any() and dwt.recv(y, 0) == ids and near())
    y.zero_()
    receipt = dwt.irecv(y, 0)
    interrupted(receipt.wait, 1)
    good.append(receipt.wait() == ids and near())
    y.zero_()
    until_interrupted(2)
    good.append(dwt.recv(y, 0) == ids and near())
    return good


def test_an_interrupt_ends_the_waits_of_p2p():
    assert results(2, rank_of_interrupted_p2p)[1] == [True] * 3


def rank_of_interrupted_shards(rank, world, how):
    """Rank 1 begins no backward. No rank needs the other one's parameters for its backward."""
    from test_fsdp import sharded, train

    model = sharded(small_model(), reshard_after_forward=False)
    state = dwt.compress_fsdp(model, EF, **how)
    train(model, rank, [0])
    x, y = batch_of(rank, 1)
    loss = (model(x) - y).square().mean()
    if rank == 1:
        return until_interrupted()
    interrupted(loss.backward)
    with pytest.raises(deltawire.DeltawireError, match="KeyboardInterrupt.*checkpoint"):
        state._backward.reduce(state._shards.held()[0][0], x, x, True)


@pytest.mark.parametrize("how", [{}, LINKS])
def test_an_interrupt_ends_a_backward_of_shards(how):
    pytest.importorskip("test_fsdp")
    results(2, rank_of_interrupted_shards, how)


# --- bytes -------------------------------------------------------------------------------------


def stage_bytes(rank, world, options):
    pipe = Pipe(rank, world, options=options)
    x, y = small_gpt.samples(64, 32)

    def sent():
        its = [way for stats in pipe.stats() for name, way in stats.items() if "_sent" in name]
        return [sum(way[what] for way in its) for what in ("message_bytes", "messages")]

    def steps(count):
        for _ in range(count):
            pipe.step(x, y, torch.arange(64))
        dist.barrier()

    steps(2)
    told, given = sent(), kernel_sent()
    steps(6)
    told, given = [a - b for a, b in zip(sent(), told)], kernel_sent_since(given)
    dist.barrier()  # so that nobody closes its connections before all have looked
    return *told, given


@needs_texts
@pytest.mark.skipif(not shutil.which("ss"), reason="ss is not installed (iproute2)")
@pytest.mark.parametrize("carrier", CARRIERS)
@pytest.mark.parametrize("codec", ["delta:bits=2", "direct:form=step,step=0.5,entropy=rans"])
def test_bytes_that_stages_claim_are_those_of_the_kernel(ranks, codec, carrier):
    given = {"forward": codec, "backward": codec, **CARRIERS[carrier]}
    for told, messages, sent in ranks.run(2, stage_bytes, given):
        # gloo adds 147 bytes to a message, and a long one is two; a step ends with one message
        assert 0 < told <= sent <= 1.005 * told + 2 * 147 * (messages + 2 * 6), (told, sent)
