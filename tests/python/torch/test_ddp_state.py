# SPDX-License-Identifier: Apache-2.0
# test_ddp_state.py - a hook's state is saved, and a world that is started again goes on with it.
import os
import signal
import time
import warnings

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: ./run torch installs it")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

import deltawire  # noqa: E402
import deltawire.torch  # noqa: E402
from ddp_ranks import batch_of, bits_of, free_port  # noqa: E402
from ddp_ranks import outcomes, results, small_model  # noqa: E402
from deltawire.torch.ddp import exchange as ddp_exchange  # noqa: E402
from deltawire.torch.gradients import saved_state  # noqa: E402

CAP = 0.02  # MiB of a bucket: the small model has several
SAVED_AFTER, STEPS = 5, 9
LINKS = {"carrier": "tcp://127.0.0.1"}


class Trainer:
    """A rank's model, hook and optimizer."""

    def __init__(self, codec="delta:bits=4", inner=None, named=True, hook=None, **options):
        ddp_exchange.PIECE = 3072  # buckets have several; the last one is too small for parts
        self.inner = inner or small_model()
        self.model = DistributedDataParallel(self.inner, bucket_cap_mb=CAP, **options)
        model = self.model if named else None
        self.state, function = deltawire.torch.ddp_hook(codec, model=model, **(hook or {}))
        self.model.register_comm_hook(self.state, function)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)

    def step(self, rank, number):
        x, y = batch_of(rank, number, next(self.inner.parameters()).dtype)
        (self.model(x) - y).square().mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def save(self, file):
        parts = (self.inner, self.optimizer)
        whole = [*(part.state_dict() for part in parts), self.state.compression_state_dict()]
        torch.save(whole, file + ".new")
        os.replace(file + ".new", file)

    def load(self, file, compression=True):
        inner, optimizer, held = torch.load(file, weights_only=True)
        self.inner.load_state_dict(inner)
        self.optimizer.load_state_dict(optimizer)
        if compression:
            self.state.load_compression_state_dict(held)


def rank_of_run(rank, world, folder, first, options, again=False):
    """Steps first to STEPS; those before come from the file. Saves, where it begins at 0. again:
    what was loaded is saved before the first step, and loaded into another hook."""
    file = os.path.join(folder, f"rank{rank}.pt")
    trainer = Trainer(**options)
    if first:
        trainer.load(file)
    if again:
        saved = trainer.state.compression_state_dict()
        trainer.state.close_compression()
        trainer = Trainer(**options)
        trainer.load(file, compression=False)
        trainer.state.load_compression_state_dict(saved)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        for number in range(first, STEPS):
            trainer.step(rank, number)
            if number == SAVED_AFTER - 1 and not first:
                trainer.save(file)
    return bits_of(trainer.model), trainer.state.stats()["new_buckets"]


WORLDS = [
    (2, {}),
    (2, {"codec": "delta:bits=3", "hook": {"exchange": "parts"}}),
    (2, {"codec": "delta:bits=4,prev=8", "hook": {"exchange": "gather"}}),
    (3, {"codec": "delta:form=step,error=0.1,prev=4", "hook": {"exchange": "parts"}}),
    (3, {"codec": "delta:bits=2,rounding=stochastic,seed=7", "hook": {"exchange": "parts"}}),
    (3, {"hook": {"exchange": "gather", "sums": "direct:bits=8"}}),
    (2, {"find_unused_parameters": True}),
    (2, {"static_graph": True}),
    (3, {"codec": "direct:bits=3,feedback=ef", "hook": {"exchange": "parts"}}),
    (2, {"codec": "direct:bits=4,feedback=ef", "hook": LINKS}),
    (2, {"codec": "delta:bits=3,prev=8", "hook": LINKS}),
    (3, {"codec": "delta:bits=3", "hook": {**LINKS, "sums": "direct:bits=4,feedback=ef"}}),
    (2, {"codec": "direct:bits=4", "hook": {**LINKS, "sums": "delta:bits=4"}}),  # sums: not used
    (2, {"static_graph": True, "named": False, "hook": LINKS}),
]


@pytest.mark.parametrize("world, options", WORLDS)
def test_a_restarted_world_goes_on_to_the_bit(world, options, tmp_path):
    """The parameters are those of the run that never stopped, and no bucket begins anew."""
    whole = results(world, rank_of_run, str(tmp_path), 0, options)
    again = results(world, rank_of_run, str(tmp_path), SAVED_AFTER, options)
    assert len({bits for bits, _ in whole}) == 1
    assert [bits for bits, _ in again] == [bits for bits, _ in whole]
    assert all(new == 0 for _, new in again) and all(new > 0 for _, new in whole)


@pytest.mark.parametrize("hook", [{}, LINKS])
def test_a_state_that_waits_for_the_first_step_is_saved_as_it_was_loaded(hook, tmp_path):
    whole = results(2, rank_of_run, str(tmp_path), 0, {"hook": hook})
    again = results(2, rank_of_run, str(tmp_path), SAVED_AFTER, {"hook": hook}, True)
    assert again == [(bits, 0) for bits, _ in whole]


def rank_that_resaves(rank, world, folder):
    """A state that only rank 0 loads, and all save before the first step."""
    trainer = Trainer()
    if rank == 0:
        trainer.load(os.path.join(folder, "rank0.pt"))
    state = trainer.state.compression_state_dict()
    other = Trainer()
    other.state.load_compression_state_dict(state)
    with pytest.warns(RuntimeWarning, match="do not belong together"):
        other.step(rank, 0)


def test_states_that_wait_keep_their_marks(tmp_path):
    results(2, rank_of_run, str(tmp_path), 0, {})
    results(2, rank_that_resaves, str(tmp_path))


def rank_that_holds(rank, world, hook):
    """What all ranks have, and the bytes of the state of each codec."""
    held = []
    for prev in ("bf16", "8", "4"):
        trainer = Trainer(f"delta:bits=4,prev={prev}", hook=hook)
        for number in range(3):
            trainer.step(rank, number)
        held.append((bits_of(trainer.model), trainer.state.stats()["state_bytes"]))
        trainer.state.close_compression()
    return held


@pytest.mark.parametrize("hook", [{"exchange": "gather"}, {"exchange": "parts"}, LINKS])
def test_prev_in_few_bits_takes_a_half_or_a_quarter_of_bf16(hook):
    """A value takes 17/16 bytes in 8 bits, and 9/16 in 4; records are some bytes more."""
    first, second = results(2, rank_that_holds, hook)
    assert [bits for bits, _ in first] == [bits for bits, _ in second]
    bf16, eight, four = (one + other for (_, one), (_, other) in zip(first, second))
    assert 0.5 < eight / bf16 < 0.6 and 0.25 < four / bf16 < 0.4, (bf16, eight, four)


def rank_that_lives_on(process, _, folder, hook):
    """Process 1 is rank 1 until it is killed; process 2 is rank 1 from then on. Process 0 is rank 0
    all the time, and makes its process group and its hook anew."""
    dist.destroy_process_group()
    rank, life = min(process, 1), int(process == 2)
    file, lost = os.path.join(folder, f"rank{rank}.pt"), os.path.join(folder, "lost")
    while process == 2 and not os.path.exists(lost):
        time.sleep(0.05)
    while True:
        place = f"file://{folder}/life{life}"
        dist.init_process_group("gloo", init_method=place, rank=rank, world_size=2)
        trainer = Trainer(hook=hook)
        if life:
            trainer.load(file)
        try:
            for number in range(SAVED_AFTER if life else 0, STEPS):
                if process == 1 and number == STEPS - 1:
                    os.kill(os.getpid(), signal.SIGKILL)
                trainer.step(rank, number)
                if number == SAVED_AFTER - 1 and not life:
                    trainer.save(file)
            return bits_of(trainer.model)
        except deltawire.DeltawireError as error:
            assert error.status is deltawire.Status["PEER"], error
            assert "checkpoint" in error.why, error
            trainer.state.close_compression()  # so that the next hook can have its port
            open(lost, "w").close()
            dist.destroy_process_group()
            life += 1


@pytest.mark.parametrize("linked", [False, True])
def test_surviving_rank_goes_on_when_the_other_is_restarted(linked, tmp_path):
    hook = {"carrier": f"tcp://127.0.0.1:{free_port()}"} if linked else {}
    whole = results(2, rank_of_run, str(tmp_path), 0, {"hook": hook})
    first, killed, second = outcomes(3, rank_that_lives_on, str(tmp_path), hook)
    assert "ended with -9" in str(killed)
    assert (first, second) == tuple(bits for bits, _ in whole)


# States that do not belong together, or not here.


def rank_of_some(rank, world, folder, who, step, hook=None):
    """Loads the state in the ranks of who; the others train from the same parameters."""
    trainer = Trainer(hook=hook)
    trainer.load(os.path.join(folder, f"rank{rank}.pt"), compression=rank in who)
    if step is not None and rank == 0:
        state = torch.load(os.path.join(folder, "rank0.pt"), weights_only=True)[2]
        state["mark"][1] += step
        trainer.state.load_compression_state_dict(state)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for number in range(SAVED_AFTER, STEPS):
            trainer.step(rank, number)
    text = "\n".join(str(one.message) for one in said)
    return bits_of(trainer.model), trainer.state.stats()["new_buckets"], text


@pytest.mark.parametrize(
    "who, step, hook",
    [((0,), None, {}), ((1,), None, {}), ((0, 1), 1, {}), ((1,), None, LINKS)],
)
def test_states_that_do_not_belong_together(who, step, hook, tmp_path):
    """Every bucket begins anew at all ranks, as where nobody has loaded, and a warning says so."""
    results(2, rank_of_run, str(tmp_path), 0, {"hook": hook})
    anew = results(2, rank_of_some, str(tmp_path), (), None, hook)
    for (bits, new, said), (expected, fresh, silence) in zip(
        results(2, rank_of_some, str(tmp_path), who, step, hook), anew
    ):
        assert bits == expected and new == fresh > 0
        assert "do not belong together" in said and "belong" not in silence


def rank_of_failure(rank, world, folder):
    """A state that is saved after a backward that failed belongs to no other one."""
    trainer = Trainer(hook={"timeout": 5.0})
    for number in range(SAVED_AFTER):
        trainer.step(rank, number)
    before = trainer.state.compression_state_dict()["mark"]
    if rank == 0:
        with pytest.raises(deltawire.DeltawireError):
            trainer.step(rank, SAVED_AFTER)
        return before, trainer.state.compression_state_dict()["mark"]
    return before, before


def test_a_state_after_a_failed_backward_belongs_to_no_other(tmp_path):
    (before, after), (other, _) = results(2, rank_of_failure, str(tmp_path))
    assert before == other == [before[0], SAVED_AFTER] and after != before


def rank_refused(rank, world, folder, saved_by, options, inner=None, change=None, trains=False):
    """The error of loading what a rank saved, or of the first backward. change: what is done to the
    state before."""
    trainer = Trainer(inner=inner and inner(), **options)
    # A rank that is refused ends, which it must not do while others still connect to it.
    dist.barrier()
    whole = torch.load(os.path.join(folder, f"rank{saved_by[rank]}.pt"), weights_only=True)
    state = change(whole[2]) if change else whole[2]
    trainer.state.load_compression_state_dict(state)
    if not trains:
        return
    before = bits_of(trainer.model)
    try:
        x, y = torch.ones(2, 16), torch.ones(2, 8)
        (trainer.model(x) - y).square().mean().backward()
    finally:
        assert bits_of(trainer.model) == before


def wider():
    return small_model(width=56)


def deeper():
    return small_model(layers=4)


@pytest.mark.parametrize(
    "world, saved_by, options, inner, words",
    [
        (3, (0, 1, 1), {}, None, ("world = 2", "world is 3")),
        (2, (1, 0), {}, None, ("rank = ", "rank is ")),
        (2, (0, 1), {"codec": "delta:bits=3"}, None, ("codec = 'delta:", "bits=3")),
        (2, (0, 1), {"hook": {"sums": "direct:bits=8"}}, None, ("sums = ", "bits=8")),
        (2, (0, 1), {"hook": {"exchange": "parts"}}, None, ("exchange = 'auto'", "'parts'")),
        (2, (0, 1), {"hook": LINKS}, None, ("carrier = 'group'", "carrier is 'link'")),
        (2, (0, 1), {}, wider, ("another model", "56")),
        (2, (0, 1), {}, deeper, ("another model", "missing in the state")),
        (2, (0, 1), {"named": False}, None, ("names = 'taken from model='", "names is 'numbered'")),
    ],
)
def test_states_of_another_place_are_refused(world, saved_by, options, inner, words, tmp_path):
    results(2, rank_of_run, str(tmp_path), 0, {})
    for error in outcomes(world, rank_refused, str(tmp_path), saved_by, options, inner):
        assert isinstance(error, deltawire.DeltawireError), error
        assert error.status is deltawire.Status["MISMATCH"], error
        for word in words:
            assert word in error.why, error


@pytest.mark.parametrize("inner", [wider, deeper])
def test_another_model_is_found_in_the_first_backward(inner, tmp_path):
    """Without the model's names nobody knows before which parameters it has."""
    results(2, rank_of_run, str(tmp_path), 0, {"named": False})
    options = {"named": False}
    for error in outcomes(2, rank_refused, str(tmp_path), (0, 1), options, inner, None, True):
        assert isinstance(error, deltawire.DeltawireError), error
        assert error.status is deltawire.Status["MISMATCH"], error
        assert "another model" in error.why


def nothing(state):
    return None


def no_mark(state):
    return {**state, "mark": None}


def of_a_later_version(state):
    return {**state, "format": saved_state.FORMAT + 1}


def without_buckets(state):
    return {key: value for key, value in state.items() if key != "buckets"}


def one_end_missing(state):
    state["buckets"][0]["states"].popitem()
    return state


def one_end_more(state):
    """As of a bucket that was cut into parts."""
    states = state["buckets"][0]["states"]
    states["encoder of means"] = states["encoder of piece 0"]
    return state


def one_state_empty(state):
    states = state["buckets"][0]["states"]
    states["encoder of piece 0"] = states["encoder of piece 0"][:0]
    return state


def cut(state):
    states = state["buckets"][1]["states"]
    states["encoder of piece 0"] = states["encoder of piece 0"][:-5]
    return state


def flipped(state):
    """One bit of prev in the middle."""
    held = state["buckets"][1]["states"]["decoder of rank %d of piece 0" % (1 - state["rank"])]
    held[held.numel() // 2] ^= 16
    return state


@pytest.mark.parametrize(
    "change, statuses",
    [
        *((one, ("FORMAT",)) for one in (nothing, no_mark, of_a_later_version, without_buckets)),
        *((one, ("FORMAT",)) for one in (one_end_missing, one_end_more, one_state_empty)),
        *((one, ("FORMAT", "CORRUPT")) for one in (cut, flipped)),
    ],
)
def test_damaged_states_are_refused(change, statuses, tmp_path):
    results(2, rank_of_run, str(tmp_path), 0, {})
    for error in outcomes(2, rank_refused, str(tmp_path), (0, 1), {}, None, change):
        assert isinstance(error, deltawire.DeltawireError), error
        assert error.status.name in statuses, error


def test_residuals_that_are_missing_are_refused(tmp_path):
    options = {"codec": "direct:bits=4,feedback=ef"}
    results(2, rank_of_run, str(tmp_path), 0, options)
    given = (str(tmp_path), (0, 1), options, None, one_state_empty)
    for error in outcomes(2, rank_refused, *given):
        assert isinstance(error, deltawire.DeltawireError), error
        assert error.status.name == "FORMAT" and "encoder of piece 0 is missing" in error.why, error


def rank_too_late(rank, world):
    trainer = Trainer()
    trainer.step(rank, 0)
    state = trainer.state.compression_state_dict()
    with pytest.raises(deltawire.DeltawireError, match="before the first backward"):
        trainer.state.load_compression_state_dict(state)
    trainer.step(rank, 1)
    return bits_of(trainer.model)


def test_a_state_is_loaded_before_the_first_backward():
    first, second = results(2, rank_too_late)
    assert first == second


def rank_of_poison(rank, world, folder, first):
    """Gradients with NaN in the step before the state is saved, which a scaler leaves out."""
    trainer = Trainer(inner=nn.Linear(16, 8))
    file = os.path.join(folder, f"rank{rank}.pt")
    if first:
        trainer.load(file)
    for number in range(first, STEPS):
        x, y = batch_of(rank, number)
        loss = (trainer.model(x) - y).square().mean()
        (loss * (float("nan") if number == SAVED_AFTER - 1 and rank else 1.0)).backward()
        if all(p.grad.isfinite().all() for p in trainer.model.parameters()):
            trainer.optimizer.step()
        trainer.optimizer.zero_grad()
        if number == SAVED_AFTER - 1:
            trainer.save(file)
    return bits_of(trainer.model)


def test_a_state_after_nan_goes_on_to_the_bit(tmp_path):
    torch.manual_seed(3)
    whole = results(2, rank_of_poison, str(tmp_path), 0)
    assert results(2, rank_of_poison, str(tmp_path), SAVED_AFTER) == whole


def test_an_encoder_with_a_rate_and_a_key_can_be_saved_and_loaded():
    """It exports two states: that of the key, and the rate, which begins anew."""
    codec = "delta:form=step,entropy=rans,rate=2,replies=never"
    ends, others = ({"sent": deltawire.Encoder(codec)} for _ in range(2))
    ends["sent"].encode(torch.randn(1, 64, 64), [7])
    saved_state.load_ends(others, saved_state.states_of(ends))
    assert others["sent"].counters().keys_held == 1
