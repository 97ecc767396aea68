# SPDX-License-Identifier: Apache-2.0
# test_restart.py - a rank of a pipeline is killed and started again alone; the others live on.
import time

import pytest

import lives
import small_gpt
from deltawire import DeltawireError
from lives import COUNT, SAVED_AFTER, STEPS, Plan
from pipelines import Pipe

pytestmark = pytest.mark.skipif(small_gpt.text() is None, reason="no texts: install fortunes")

BACKWARD = {"backward": "delta:bits=6"}
CARRIERS = {"group": {}, "link": {"carrier": "tcp://127.0.0.1"}}
AFTER = range(SAVED_AFTER + 1, STEPS)  # the steps that are taken again


def options_of(carrier):
    return {**BACKWARD, **CARRIERS[carrier]}


def losses_of(answers):
    """Of the last stage, step by step, after the restart."""
    return [answers[-1][0][step] for step in AFTER]


def entries(answers, name):
    found = [one[2][way][name] for one in answers for way in one[2] if way.endswith("_sent")]
    assert len(found) == 2 * (len(answers) - 1)
    return found


_expected = {}


def uninterrupted(world, tmp_path_factory):
    if world not in _expected:
        folder = tmp_path_factory.mktemp("whole")
        answers, _ = lives.run(world, Plan(options_of("group")), folder)
        assert all(one[1] == [] for one in answers)
        _expected[world] = losses_of(answers)
    return _expected[world]


def check_lives(answers, pids, plan):
    """The survivors are the processes that they were, and each was told what happened."""
    for rank, (_, errors, _, _, pid) in enumerate(answers):
        assert (pid == pids[rank]) == (rank != plan.dies)
        if rank != plan.dies:
            ((status, why),) = errors
            assert "load_compression_state_dict" in why or "stopped the step" in why, why
            assert status == "PEER", why


@pytest.mark.parametrize("carrier", CARRIERS)
@pytest.mark.parametrize("dies, midway", [(0, True), (1, False), (2, True)])
def test_one_rank_is_killed_and_comes_back(carrier, dies, midway, tmp_path, tmp_path_factory):
    """All go on from the checkpoint: the losses are those of a training without a restart, to the
    bit, and no id begins anew."""
    ports = lives.free_ports(2) if dies == 0 else None  # then the store dies with the rank
    plan = Plan(options_of(carrier), dies, midway=midway, ports=ports)
    answers, pids = lives.run(3, plan, tmp_path)
    check_lives(answers, pids, plan)
    assert losses_of(answers) == uninterrupted(3, tmp_path_factory)
    assert set(entries(answers, "key_entries")) == {0}
    assert set(entries(answers, "delta_entries")) == {COUNT * len(AFTER)}
    assert all(said == [] for *_, said, _ in answers)


@pytest.mark.parametrize("carrier", CARRIERS)
def test_states_after_a_failed_step_heal(carrier, tmp_path, tmp_path_factory):
    """The one that comes back has no state, and the survivors, which are neighbours, have what they
    held after the step that failed, one of them with frames sent that the other has not decoded.
    Nothing of that gets into the results: they are those of ranks that all begin anew."""
    held = {0: "failed", 1: "failed", 2: "none"}
    answers, pids = lives.run(
        3, Plan(options_of(carrier), 2, midway=True, loads=held), tmp_path_factory.mktemp("held")
    )
    none = dict.fromkeys(range(3), "none")
    anew, _ = lives.run(3, Plan(options_of(carrier), 2, midway=True, loads=none), tmp_path)
    assert losses_of(answers) == losses_of(anew)
    assert set(entries(answers, "key_entries")) == {COUNT}
    assert set(entries(answers, "delta_entries")) == {COUNT * (len(AFTER) - 1)}
    for *_, said, _ in answers:
        assert any("do not belong together" in one for one in said), said
    assert all(said == [] for *_, said, _ in anew)


@pytest.mark.parametrize("carrier", CARRIERS)
def test_a_rank_that_stands_still_is_noticed(carrier, tmp_path, tmp_path_factory):
    """It lives, and does nothing: the others wait for torch's timeout and no longer."""
    plan = Plan(options_of(carrier), 1, stops=True)
    answers, pids = lives.run(2, plan, tmp_path)
    ((status, why),) = answers[0][1]
    assert status in ("PEER", "TIMEOUT"), why
    assert "stage 1" in why
    assert losses_of(answers) == uninterrupted(2, tmp_path_factory)


def test_a_closed_stage_gives_its_port_back(tmp_path, tmp_path_factory):
    """The second rank has a link to the third one, and both live on. Its next stage listens at the
    same address, though the stage before is still there."""
    (port,) = lives.free_ports(1)
    plan = Plan({**BACKWARD, "carrier": f"tcp://127.0.0.{{}}:{port}"}, 0)
    answers, pids = lives.run(3, plan, tmp_path)
    check_lives(answers, pids, plan)
    assert losses_of(answers) == uninterrupted(3, tmp_path_factory)


def closed(rank, world, options):
    pipe = Pipe(rank, world, "gpipe", options=options)
    pipe.steps()
    stage = pipe.stages[0]
    stage.close_compression()
    stage.close_compression()
    state, said = stage.compression_state_dict(), []
    for refused in (pipe.steps, lambda: stage.load_compression_state_dict(state)):
        with pytest.raises(DeltawireError) as error:
            refused()
        said.append(error.value.why)
    return said


@pytest.mark.parametrize("carrier", CARRIERS)
def test_a_closed_stage_runs_no_step(ranks, carrier):
    for said in ranks.run(2, closed, options_of(carrier)):
        assert all("was closed" in sentence for sentence in said), said


def closed_early(rank, world):
    """Rank 1 closes its link after its last step; only then rank 0 waits for what it has sent."""
    pipe = Pipe(rank, world, "gpipe", options=options_of("link"))
    pipe.steps()
    if rank == 0:
        lane = pipe.stages[0]._compression.sides.after.lane
        flush = lane._flush

        def late():
            end = time.monotonic() + lives.LONGEST
            while not lane._opened().why and time.monotonic() < end:
                time.sleep(0.01)
            assert "closed the link" in lane._opened().why
            flush()

        lane._flush = late
    pipe.steps()
    pipe.stages[0].close_compression()


def test_a_rank_that_is_done_may_close_its_link(ranks):
    ranks.run(2, closed_early)
