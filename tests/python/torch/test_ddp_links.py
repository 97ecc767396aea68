# SPDX-License-Identifier: Apache-2.0
# test_ddp_links.py - ddp_hook over links: the bits of a plain Group, healing, TLS, states, errors.
import os
import threading
import warnings

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: ./run torch installs it")

from torch.nn.parallel import DistributedDataParallel  # noqa: E402

import deltawire  # noqa: E402
import deltawire.torch  # noqa: E402
from cut_links import Cutter  # noqa: E402
from deltawire.torch.common import address  # noqa: E402
from ddp_ranks import (  # noqa: E402
    Known,
    free_port,
    free_ports_in_a_row,
    gradients_of,
    outcomes,
    results,
    small_model,
)
from test_ddp import compressed, train  # noqa: E402
from test_ddp_errors import refused  # noqa: E402
from test_ddp_state import SAVED_AFTER, STEPS, Trainer, bits_of, rank_of_run  # noqa: E402

LINKS = {"carrier": "tcp://127.0.0.1"}
EF = "direct:bits=3,feedback=ef"


def test_the_scope_of_a_link_local_address_is_that_of_this_machine():
    for theirs, own, here in [
        ("shaped:loss=1%/tcp://[fe80::1%eth0]:70?grace=1s", "tcp://[fe80::2%lan1]", "fe80::1%lan1"),
        ("tcp://[fe80::1%eth0]:70", "tcp://10.0.0.2", "fe80::1%eth0"),
        ("tcp://[fd00::1]:70", "tcp://[fe80::2%lan1]", "fd00::1"),
    ]:
        before, _, rest = theirs.partition("[")
        assert address.seen_here(theirs, own) == f"{before}[{here}]{rest.partition(']')[2]}"


# The bits of the mean are those of a Group.


def rank_of_means(rank, world, codec, sums, dtype, count, steps, exchange):
    model = DistributedDataParallel(Known(count).to(dtype))
    state, hook = deltawire.torch.ddp_hook(codec, sums=sums, exchange=exchange, **LINKS)
    model.register_comm_hook(state, hook)
    means = []
    for step in range(steps):
        model(gradients_of(rank, step, count).to(dtype)).backward()
        means.append(model.module.weights.grad.view(torch.uint8).numpy().tobytes())
        model.zero_grad()
    return means


def by_a_group(world, codec, sums, work, hops=2):
    """Returns work(group) for each rank of a Group, whose ranks are threads of this process."""
    name = f"loop://plain{os.getpid()}"
    found = [None] * world

    def run(rank):
        links = [
            None if rank == other else f"{name}-{min(rank, other)}-{max(rank, other)}"
            for other in range(world)
        ]
        with deltawire.Group(links, codec, sums, hops=hops) as group:
            found[rank] = work(group)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@pytest.mark.parametrize(
    "world, codec, sums, dtype, exchange, hops",
    [
        (2, EF, None, torch.float32, "auto", 1),
        (2, EF, None, torch.float32, "parts", 2),
        (3, "delta:bits=2", "direct:bits=8", torch.bfloat16, "auto", 2),
        (3, "direct:bits=4", EF, torch.float16, "parts", 2),
        (3, "chunk:chunk=256,feedback=ef,decay=0.9", None, torch.bfloat16, "gather", 1),
    ],
)
def test_the_mean_is_that_of_a_group(world, codec, sums, dtype, exchange, hops):
    count, steps = 9001, 5

    def work(group):
        means = []
        for step in range(steps):
            x = gradients_of(group.rank, step, count).to(dtype)
            group.all_reduce(x, x, slot=5, mean=True)
            means.append(x.view(torch.uint8).numpy().tobytes())
        return means

    expected = by_a_group(world, codec, sums, work, hops)
    found = results(world, rank_of_means, codec, sums, dtype, count, steps, exchange)
    assert found == expected == expected[:1] * world


# Links heal, encrypt, and open one by one.


def rank_that_trains(rank, world, carrier, link=None, cuts=0):
    model = DistributedDataParallel(small_model(), bucket_cap_mb=0.02)
    cutter = Cutter(cuts) if cuts and rank else None
    with cutter or warnings.catch_warnings():  # nothing, where there is no cutter
        state, hook = deltawire.torch.ddp_hook(EF, carrier=carrier, link=link and link(rank))
        model.register_comm_hook(state, hook)
        train(model, rank, 12)
        links = [one for one in state._ranks.peers.sums._links if one is not None]
        cut = sum(one.counters().reconnects for one in links), len({one.peer_name for one in links})
        state.close_compression()
    return bits_of(model), *cut


def test_broken_connections_heal():
    """Rank 1 connects through a proxy that breaks the connection from time to time."""
    whole = results(2, rank_that_trains, LINKS["carrier"])
    healed = results(2, rank_that_trains, LINKS["carrier"], None, 20000)
    assert [bits for bits, _, _ in healed] == [bits for bits, _, _ in whole]
    assert whole[1][1] == 0 and healed[1][1] > 0


def of_each_peer(rank):
    def of(other):
        key = bytes(range(64))
        names = {"own_name": f"rank/{rank}", "peer_name": f"rank/{other}"}
        return {"tls": deltawire.Tls(**names, group_key=key)}

    return of


def test_links_encrypt():
    plain = results(3, rank_that_trains, LINKS["carrier"])
    coded = results(3, rank_that_trains, LINKS["carrier"], of_each_peer)
    assert [bits for bits, _, _ in coded] == [bits for bits, _, _ in plain]
    assert all(names == 2 for _, _, names in coded) and all(names == 1 for _, _, names in plain)


def rank_that_cannot_open(rank, world, port):
    """Rank 0 takes two ports from this one on, and rank 1 its first, which is taken."""
    deltawire.torch.ddp_hook(carrier=f"tcp://127.0.0.1:{port}", timeout=10.0)


def test_a_link_that_cannot_be_opened():
    """Rank 2 waits for an address of rank 1, and learns why there is none."""
    zeroth, first, second = outcomes(3, rank_that_cannot_open, free_ports_in_a_row(2))
    refused(first, "ADDRESS", "the link between ranks 1 and 2")
    for other in (zeroth, second):
        refused(other, "ADDRESS", "ranks 1 and 2", "rank 1 of the group refused", "in use")
    assert (zeroth.rank, first.rank, second.rank) == (1, 2, 1)


def rank_of_options(rank, world, options):
    deltawire.torch.ddp_hook(timeout=3.0, **options)


@pytest.mark.parametrize(
    "options, status, words",
    [
        ({"carrier": "tcp://127.0.0.1:65535"}, "ARGUMENT", ("port 65536", "a lower port")),
        ({**LINKS, "link": {"colour": "red"}}, "ARGUMENT", ("colour",)),
        ({**LINKS, "codec": "direct:group=channel"}, "CONFIG", ("group=channel",)),
    ],
)
def test_options_of_links(options, status, words):
    found = outcomes(3, rank_of_options, options)
    refused(found[0], status, *words)
    assert all(isinstance(error, deltawire.DeltawireError) for error in found), found


# What the group keeps.


def rank_of_slots(rank, world):
    model, state = compressed(small_model(), EF, "links")
    held = []
    for _ in range(3):
        train(model, rank, 1)
        kept = state._ranks.peers.sums.states()
        assert set(kept) >= {int(digest) for digest in state._backward._seen}
        held.append((state.stats()["new_buckets"], len(kept)))
    return held, len(state._backward._seen)


def test_slots_of_buckets_that_are_gone_are_forgotten():
    for ((new, _), (more, slots), last), buckets in results(2, rank_of_slots):
        assert more > new and last == (more, slots) and slots == buckets < more


def rank_after_a_damaged_state(rank, world, folder, change, retries):
    """A state that is refused at rank 0, in part loaded; then the right one, or none."""
    trainer = Trainer(codec=EF, hook=LINKS)
    file = os.path.join(folder, f"rank{rank}.pt")
    if rank == 0:
        state = torch.load(file, weights_only=True)[2]
        with pytest.raises(deltawire.DeltawireError) as refusal:
            trainer.state.load_compression_state_dict(change(state))
        assert refusal.value.status.name in ("FORMAT", "CORRUPT"), refusal.value
    trainer.load(file, compression=retries)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        for number in range(SAVED_AFTER, STEPS):
            trainer.step(rank, number)
    return bits_of(trainer.model), trainer.state.stats()["new_buckets"]


def last_piece_lost(state):
    state["buckets"][-1]["states"].popitem()
    return state


def last_slot_empty(state):
    state["buckets"][-1]["states"] = {}
    return state


def last_piece_flipped(state):
    states = state["buckets"][-1]["states"]
    held = states[list(states)[-1]]
    held[held.numel() // 2] ^= 16
    return state


def rank_of_no_state(rank, world, folder):
    trainer = Trainer(codec=EF, hook=LINKS)
    trainer.load(os.path.join(folder, f"rank{rank}.pt"), compression=False)
    for number in range(SAVED_AFTER, STEPS):
        trainer.step(rank, number)
    return bits_of(trainer.model), trainer.state.stats()["new_buckets"]


@pytest.mark.parametrize("change", [last_piece_lost, last_slot_empty, last_piece_flipped])
def test_a_refused_state_leaves_nothing(change, tmp_path):
    """After it, the right state can be loaded, or training begins as if none had been."""
    options = {"codec": EF, "hook": LINKS}
    whole = results(2, rank_of_run, str(tmp_path), 0, options)
    again = results(2, rank_after_a_damaged_state, str(tmp_path), change, True)
    assert again == [(bits, 0) for bits, _ in whole]
    anew = results(2, rank_after_a_damaged_state, str(tmp_path), change, False)
    assert anew == results(2, rank_of_no_state, str(tmp_path))
    assert anew[0][1] > 0 and anew[0][0] != whole[0][0]


# The end.


def rank_that_closes(rank, world, port):
    """A port can be used again after the hook was closed; the closed hook says so."""
    bits = []
    for _ in range(2):
        model = DistributedDataParallel(small_model(), bucket_cap_mb=0.02)
        state, hook = deltawire.torch.ddp_hook(EF, carrier=f"tcp://127.0.0.1:{port}")
        model.register_comm_hook(state, hook)
        train(model, rank, 3)
        sent = state.stats()["sent_bytes"]
        state.close_compression()
        state.close_compression()
        assert state.stats()["sent_bytes"] == sent > 0
        with pytest.raises(deltawire.DeltawireError, match="was closed"):
            train(model, rank, 1)
        with pytest.raises(deltawire.DeltawireError, match="was closed"):
            state.compression_state_dict()
        bits.append(bits_of(model))
    return bits


def test_a_closed_hook_gives_its_port_back():
    first, second = results(2, rank_that_closes, free_port())
    assert first == second and first[0] == first[1]


def rank_that_is_done(rank, world):
    with Cutter(2**40, 0.005):
        state, hook = deltawire.torch.ddp_hook("raw:f32", **LINKS)
    model = DistributedDataParallel(Known(500_000))
    model.register_comm_hook(state, hook)
    left = 0
    for _ in range(4):
        model(torch.ones(500_000)).backward()
        left += sum(one.counters().queued_bytes for one in state._ranks.peers.sums._links if one)
        torch.distributed.barrier()  # until then the other rank keeps its links open
    return left


def test_nothing_is_left_to_be_sent_after_a_backward():
    """So a process may end at once after its last step, and the other ranks end theirs."""
    assert results(2, rank_that_is_done) == [0, 0]


def rank_that_dies(rank, world):
    model, state = compressed(small_model(), EF, "links")
    train(model, rank, 2)
    torch.distributed.barrier()  # otherwise another rank may still be in its second step
    if rank == 1:
        os._exit(7)
    try:
        train(model, rank, 2)
    except deltawire.DeltawireError as error:
        mark = state.compression_state_dict()["mark"]
        return error.rank, error.status.name, mark[1]
    return None


def test_an_error_has_the_rank_to_blame():
    first, _, third = outcomes(3, rank_that_dies)
    assert first == third == (1, "PEER", -1)
