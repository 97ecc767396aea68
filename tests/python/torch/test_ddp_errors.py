# SPDX-License-Identifier: Apache-2.0
# test_ddp_errors.py - errors of ddp_hook: each has a message, and gloo terminates no process.
import contextlib
import datetime
import os
import pickle
import signal
import threading
import time
import warnings

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: ./run torch installs it")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

import deltawire  # noqa: E402
import deltawire.torch  # noqa: E402
from ddp_ranks import batch_of, bits_of, outcomes, results, small_model  # noqa: E402

CAP = 0.02  # the size of a bucket in MiB
LINKS = {"carrier": "tcp://127.0.0.1"}


def step(model, rank, number=0, dtype=torch.float32):
    x, y = batch_of(rank, number, dtype)
    (model(x) - y).square().mean().backward()


def refused(error, status, *words):
    assert isinstance(error, deltawire.DeltawireError), error
    assert error.status is deltawire.Status[status], error
    for word in words:
        assert word in error.why, error


# Ranks that are late.


def rank_that_is_late(rank, world):
    group = dist.new_group([0, 1], timeout=datetime.timedelta(seconds=3))
    dist.barrier()
    if rank == 0:
        begun = time.monotonic()
        with pytest.raises(deltawire.DeltawireError) as error:
            deltawire.torch.ddp_hook(process_group=group)
        refused(error.value, "TIMEOUT", "within 3 seconds")
        assert time.monotonic() - begun < 20
    dist.barrier()


def test_the_timeout_is_that_of_the_process_group():
    assert results(2, rank_that_is_late) == [None, None]


# Ranks with different arguments or models.


def rank_with(rank, world, *arguments):
    deltawire.torch.ddp_hook(**arguments[rank])


@pytest.mark.parametrize(
    "mine, theirs, words",
    [
        ({}, {"codec": "delta:bits=3"}, ("codec", "bits=3", "ddp_hook")),
        ({"exchange": "parts"}, {}, ("exchange", "parts")),
        ({"sums": "direct:bits=8"}, {}, ("sums", "bits=8")),
        (LINKS, {}, ("carrier", "link", "group")),
    ],
)
def test_ranks_with_different_arguments(mine, theirs, words):
    for error in outcomes(2, rank_with, mine, theirs):
        refused(error, "MISMATCH", "rank 0", "rank 1", *words)


def rank_of_version(rank, world):
    if rank == 1:
        deltawire.__version__ = "0.0.7"
    deltawire.torch.ddp_hook()


def test_ranks_with_different_versions():
    for error in outcomes(2, rank_of_version):
        refused(error, "MISMATCH", "version", "0.0.7")


def rank_of_seeds(rank, world):
    """Options that may differ between ranks: rounding and seeds concern the encoder only."""
    deltawire.torch.ddp_hook(f"direct:bits=4,rounding=stochastic,seed={rank + 1}")


def test_ranks_may_differ_in_what_is_the_encoders_own():
    results(2, rank_of_seeds)


def rank_of_names(rank, world):
    """The same shapes with other names. Without a check, unrelated gradients would be averaged."""
    inner = small_model()
    if rank == 1:
        inner = nn.ModuleDict({"inner": inner})
        inner.forward = inner["inner"].forward
    model = DistributedDataParallel(inner, bucket_cap_mb=CAP)
    model.register_comm_hook(*deltawire.torch.ddp_hook("delta:bits=4", model=model))
    before = bits_of(model)
    try:
        step(model, rank)
    finally:
        assert bits_of(model) == before


def test_ranks_with_different_buckets():
    for error in outcomes(2, rank_of_names):
        refused(error, "MISMATCH", "parameters", "the same model")


def rank_alone(rank, world):
    if rank == 0:
        deltawire.torch.ddp_hook(timeout=1.0)


def test_a_rank_without_a_hook():
    refused(outcomes(2, rank_alone)[0], "TIMEOUT", "rank 1", "ddp_hook")


def rank_of_nothing(rank, world):
    deltawire.torch.ddp_hook("delta:bits=9")


def test_invalid_arguments():
    for error in outcomes(1, rank_of_nothing):
        refused(error, "CONFIG", "'9'")
    with pytest.raises(deltawire.DeltawireError, match="exchange must be"):
        deltawire.torch.ddp_hook(exchange="rings")
    for given, said in (
        ({"timeout": 0}, "timeout"),
        ({"carrier": "10.0.0.7"}, "tcp://10.0.0.7"),
        ({"link": {"insecure_plaintext": True}}, "give an address"),
    ):
        with pytest.raises(deltawire.DeltawireError, match=said):
            deltawire.torch.ddp_hook(**given)


# Hooks that are registered twice, or for two models.


def rank_of_one_twice(rank, world):
    """A second hook for a model is refused, and training continues as before."""
    model = DistributedDataParallel(small_model(), bucket_cap_mb=CAP)
    model.register_comm_hook(*deltawire.torch.ddp_hook(model=model))
    with pytest.raises(deltawire.DeltawireError, match="already has a communication hook"):
        deltawire.torch.ddp_hook(model=model)
    with pytest.raises(RuntimeError, match="only be called once"):
        model.register_comm_hook(*deltawire.torch.ddp_hook())
    for number in range(3):
        step(model, rank, number)
    return bits_of(model)


def test_a_hook_registered_twice():
    first, second = results(2, rank_of_one_twice)
    assert first == second


def rank_of_two_models(rank, world, named):
    one = DistributedDataParallel(small_model(), bucket_cap_mb=CAP)
    other = DistributedDataParallel(small_model(), bucket_cap_mb=CAP)
    state, hook = deltawire.torch.ddp_hook(model=one if named else None)
    one.register_comm_hook(state, hook)
    other.register_comm_hook(state, hook)
    if not named:
        step(one, rank)
    before = bits_of(other)
    with pytest.raises(deltawire.DeltawireError, match="a ddp_hook for each model"):
        step(other, rank)
    assert bits_of(other) == before


@pytest.mark.parametrize("named", [False, True])
def test_a_hook_for_two_models(named):
    results(2, rank_of_two_models, named)


# Hooks that are not called.


def trained(model, rank, steps, sync=True):
    """Trains a model, and returns the warnings."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for number in range(steps):
            with contextlib.nullcontext() if sync else model.no_sync():
                step(model, rank, number)
            optimizer.step()
            optimizer.zero_grad()
    return [str(w.message) for w in said if "ddp_hook" in str(w.message)]


def rank_with_a_hook_in_no_model(rank, world, named):
    inner = small_model()
    hook = deltawire.torch.ddp_hook(model=inner if named else None)
    alone, other, model = small_model(), *map(DistributedDataParallel, (small_model(), inner))
    assert trained(alone, rank, 5) == [], "there is nothing to exchange"
    assert not named or trained(other, rank, 5) == [], "the hook is not for this model"
    (said,) = trained(model, rank, 9)
    model.register_comm_hook(*hook)
    return said


@pytest.mark.parametrize("named", [False, True])
def test_a_hook_that_is_in_no_model_is_told(named):
    """Lightning on CPUs and accelerate leave it out without a word."""
    for said in results(2, rank_with_a_hook_in_no_model, named):
        assert "is trained without one" in said and "register_comm_hook" in said


def rank_with_hooks_that_are_used(rank, world):
    """One model has a hook, and trains after another one that shall have none, or at first without
    exchanging. A second model has another hook; a third hook is dropped."""
    one, other, third = (DistributedDataParallel(small_model()) for _ in range(3))
    one.register_comm_hook(*deltawire.torch.ddp_hook())
    third.register_comm_hook(*deltawire.torch.ddp_hook())
    deltawire.torch.ddp_hook()
    closed, _ = deltawire.torch.ddp_hook()
    closed.close_compression()
    said = trained(other, rank, 5) + trained(one, rank, 5, sync=False)
    return said + trained(third, rank, 3) + trained(one, rank, 3)


def test_no_false_alarm_of_hooks_that_are_used():
    assert results(2, rank_with_hooks_that_are_used) == [[], []]


# Gradients that cannot be compressed, and gradients that are NaN.


def rank_of_doubles(rank, world):
    model = DistributedDataParallel(small_model(dtype=torch.float64), bucket_cap_mb=CAP)
    with pytest.raises(deltawire.DeltawireError, match="float64"):
        deltawire.torch.ddp_hook(model=model)
    model.register_comm_hook(*deltawire.torch.ddp_hook())
    before = bits_of(model)
    with pytest.raises(deltawire.DeltawireError, match="float64"):
        step(model, rank, dtype=torch.float64)
    assert bits_of(model) == before


def test_gradients_of_a_dtype_without_a_codec():
    results(2, rank_of_doubles)


class Sparse(nn.Module):
    def __init__(self):
        super().__init__()
        self.rows = nn.Embedding(10, 4, sparse=True)

    def forward(self, x):
        return self.rows(x).sum()


def rank_of_sparse(rank, world):
    model = DistributedDataParallel(Sparse())
    model.register_comm_hook(*deltawire.torch.ddp_hook())
    with pytest.raises(deltawire.DeltawireError, match="sparse"):
        model(torch.tensor([1, 2])).backward()


def test_sparse_gradients():
    results(2, rank_of_sparse)


def rank_of_poison(rank, world, codec):
    """A NaN of one rank reaches all ranks, where a gradient scaler sees it. Training continues."""
    model = DistributedDataParallel(small_model(), bucket_cap_mb=CAP)
    model.register_comm_hook(*deltawire.torch.ddp_hook(codec))
    found = []
    for number in range(5):
        x, y = batch_of(rank, number)
        loss = (model(x) - y).square().mean()
        (loss * (float("nan") if rank == 1 and number == 3 else 1.0)).backward()
        found.append(all(p.grad.isfinite().all().item() for p in model.parameters()))
        model.zero_grad()
    step(model, rank)
    return found, [p.grad.numpy().tobytes() for p in model.parameters()]


@pytest.mark.parametrize("codec", ["delta:bits=4", "direct:bits=4"])
def test_nan_reaches_every_rank_and_leaves_no_trace(codec):
    first, second = results(2, rank_of_poison, codec)
    assert first == second
    assert first[0] == [True, True, True, False, True]


# Ranks that are killed, late, interrupted or pickled.


def rank_that_is_killed(rank, world, how):
    model = DistributedDataParallel(small_model(), bucket_cap_mb=CAP)
    model.register_comm_hook(*deltawire.torch.ddp_hook(**how))
    for number in range(4):
        if rank == world - 1 and number == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        step(model, rank, number)


@pytest.mark.parametrize(
    "world, how", [(2, {"exchange": "gather"}), (3, {"exchange": "parts"}), (3, LINKS)]
)
def test_a_rank_is_killed(world, how):
    found = outcomes(world, rank_that_is_killed, how)
    assert "ended with -9" in str(found[-1])
    for error in found[:-1]:
        refused(error, "PEER", "checkpoint", *(["rank 2"] if how == LINKS else []))


def rank_that_is_slow(rank, world, how):
    model = DistributedDataParallel(small_model(), bucket_cap_mb=CAP)
    model.register_comm_hook(*deltawire.torch.ddp_hook(timeout=5.0, **how))
    for number in range(4):
        if rank == 1 and number == 3:
            time.sleep(12)
        step(model, rank, number)


@pytest.mark.parametrize("how", [{}, LINKS])
def test_a_rank_that_is_late(how):
    words = ["rank 1"] if how == LINKS else []
    refused(outcomes(2, rank_that_is_slow, how)[0], "TIMEOUT", "checkpoint", *words)


def rank_that_is_interrupted(rank, world, how):
    """Ctrl-C while this rank waits for the gradients of the other one."""
    model = DistributedDataParallel(small_model(), bucket_cap_mb=CAP)
    model.register_comm_hook(*deltawire.torch.ddp_hook(**how))
    for number in range(3):
        step(model, rank, number)
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:
        store.wait(["interrupted"])
        return None
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        step(model, rank, 3)
    except KeyboardInterrupt:
        store.set("interrupted", "yes")
        return "interrupted"
    return "finished"


@pytest.mark.parametrize("how", [{}, LINKS])
def test_an_interrupt_ends_the_wait(how):
    assert results(2, rank_that_is_interrupted, how)[0] == "interrupted"


def rank_that_pickles(rank, world, how):
    state, hook = deltawire.torch.ddp_hook("delta:bits=3", **how)
    again, _ = pickle.loads(pickle.dumps((state, hook)))
    model = DistributedDataParallel(small_model(), bucket_cap_mb=CAP)
    model.register_comm_hook(again, hook)
    for number in range(3):
        step(model, rank, number)
    return bits_of(model), again.stats()["steps"]


@pytest.mark.parametrize("how", [{}, LINKS])
def test_an_unpickled_hook_begins_anew(how):
    first, second = results(2, rank_that_pickles, how)
    assert first == second and first[1] == 3


def rank_with_a_key(rank, world):
    tls = deltawire.Tls(own_name=f"rank/{rank}", peer_name=f"rank/{1 - rank}", group_key=b"k" * 32)
    state, _ = deltawire.torch.ddp_hook(**LINKS, link={"tls": tls})
    with pytest.raises(deltawire.DeltawireError, match="may hold keys"):
        pickle.dumps(state)


def test_keys_are_not_pickled():
    results(2, rank_with_a_key)


# Process groups, and ranks whose buckets are ready in different orders.


def rank_of_pairs(rank, world):
    """Two models, each on two ranks."""
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    mine = pairs[rank // 2]
    model = DistributedDataParallel(
        small_model(seed=rank // 2), process_group=mine, bucket_cap_mb=CAP
    )
    model.register_comm_hook(*deltawire.torch.ddp_hook("delta:bits=3", model=model))
    for number in range(4):
        step(model, rank, number)
    bits = b"".join(p.grad.numpy().tobytes() for p in model.parameters())
    other = pairs[1 - rank // 2]
    with pytest.raises(deltawire.DeltawireError, match="not a member"):
        deltawire.torch.ddp_hook(process_group=other)
    return bits


def test_groups_within_the_world():
    a, b, c, d = results(4, rank_of_pairs)
    assert a == b and c == d and a != c


def rank_of_delays(rank, world):
    """Random delays: the buckets and frames of each rank are ready at different times."""
    from deltawire import Decoder, Encoder

    made = __import__("random").Random(rank)
    for kind in (Encoder, Decoder):
        for name in ("encode", "decode"):
            if hasattr(kind, name):

                def later(*given, real=getattr(kind, name), **more):
                    time.sleep(made.random() * 0.004)
                    return real(*given, **more)

                setattr(kind, name, later)
    model = DistributedDataParallel(small_model(layers=6), bucket_cap_mb=CAP)
    model.register_comm_hook(*deltawire.torch.ddp_hook("delta:bits=4", exchange="parts"))
    for number in range(6):
        step(model, rank, number)
    return b"".join(p.grad.numpy().tobytes() for p in model.parameters())


def test_random_delays_cause_no_deadlock():
    assert len(set(results(3, rank_of_delays))) == 1
