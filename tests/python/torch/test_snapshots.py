# SPDX-License-Identifier: Apache-2.0
# test_snapshots.py - saved states of a stage that name the copies in its file of state=.
import io
import pathlib
import warnings

import pytest
import torch
import torch.distributed as dist

import lives
import small_gpt
import test_restart
from deltawire import DeltawireError, Status
from pipelines import Pipe

pytestmark = pytest.mark.skipif(small_gpt.text() is None, reason="no texts: install fortunes")

OPTIONS = {"forward": "delta:form=step,error=0.1", "backward": "delta:bits=6", "profiles": "fit"}
COUNT = 8
WAYS = ("forward_sent", "backward_sent")


class Run(Pipe):
    """One rank of a pipeline, whose stages have files in a folder."""

    def __init__(self, rank, world, folder, name="1f1b", file="prev", **changed):
        state = None if file is None else f"file:{folder}/{file},cache=0"
        super().__init__(rank, world, name, options={**OPTIONS, "state": state, **changed})

    def key_entries(self):
        return [one[way]["key_entries"] for one in self.stats() for way in WAYS if way in one]

    def close(self):
        for stage in self.stages:
            stage.close_compression()


def sizes(disk):
    """The bytes of all states of ids in a saved state, and what they would be with the copies."""
    here = whole = 0
    for stage in torch.load(io.BytesIO(disk), weights_only=True)[0]:
        assert stage["format"] == 2
        for end in stage["ends"].values():
            for slot in end["slots"].values():
                here += slot["states"].numel()
                whole += int(slot["lengths"].sum())
    return here, whole


def go_on(rank, world, folder, name):
    """Trains for five steps, and from each of two states, the newer one first; when the older one
    was loaded and another one saved, it is loaded again. Returns the losses of the steps after each
    state, those after a restart there, and the sizes of the first one."""
    run = Run(rank, world, folder, name)
    run.steps(2)
    saved = [run.saved()]
    expected = run.steps(1)
    saved.append(run.saved())
    expected += run.steps(2)
    run.close()
    found = []
    for disk in (saved[1], saved[0], saved[0]):
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            again = Run(rank, world, folder, name)
            again.load(disk)
            found.append(again.steps(2))
            assert set(again.key_entries()) == {0}
            if disk is saved[0]:
                again.saved()
            again.close()
    return [expected[1:], expected[:2], expected[:2]], found, sizes(saved[0])


@pytest.mark.parametrize("name", ["1f1b", "interleaved"])
def test_a_run_goes_on_from_each_of_the_last_two_states(ranks, name, tmp_path):
    """With the same bits, and what was saved is small."""
    for expected, found, (here, whole) in ranks.run(2, go_on, str(tmp_path), name):
        assert found == expected
        assert here < whole / 50 and here % (96 + 16) == 0


def test_copies_outlive_a_process_that_is_killed(tmp_path, tmp_path_factory):
    """The states of the checkpoint name the snapshots before the last ones: those who live on have
    saved again after the step that failed."""
    options = {**test_restart.options_of("group"), "state": f"file:{tmp_path}/prev,cache=0"}
    plan = lives.Plan(options, 1)
    answers, pids = lives.run(3, plan, tmp_path)
    test_restart.check_lives(answers, pids, plan)
    whole = test_restart.uninterrupted(3, tmp_path_factory)
    assert test_restart.losses_of(answers) == whole
    assert set(test_restart.entries(answers, "key_entries")) == {0}


# --- states that cannot be loaded ----------------------------------------------------------------


def damage(folder, rank):
    """In the copies that the file has of this rank's stage. Returns what puts it right."""
    file = pathlib.Path(f"{folder}/prev.{rank}")
    whole = file.read_bytes()
    half = len(whole) // 2
    file.write_bytes(whole[:half] + bytes(255 - byte for byte in whole[half:]))
    return lambda: file.write_bytes(whole)


MISTAKES = {  # how the run is made; the status and the sentence
    "no file": ({"file": None}, "MISMATCH", "has no file"),
    "file of another run": ({"file": "other"}, "MISMATCH", "in another file"),
    "another config": ({"backward": "delta:bits=5"}, "MISMATCH", "the config of the saved state"),
    "too old": ({}, "MISMATCH", "later ones took its place"),
    "damaged": ({}, "CORRUPT", "go on without"),
}


def refused(rank, world, folder):
    """Tries all mistakes, and goes on without state. Returns for each of them the error and the
    losses; and the losses of a run that loads nothing, and of one that loads what it should."""
    run, other = Run(rank, world, folder), Run(rank, world, folder, file="other")
    run.steps(1)
    saved = [run.saved()]
    for _ in range(2):
        run.steps(1)
        saved.append(run.saved())
    expected = run.steps(2)
    other.steps(1)
    other.saved()
    run.close()
    other.close()

    def tried(mistake):
        made, *_ = MISTAKES[mistake]
        repair = damage(folder, rank) if mistake == "damaged" else lambda: None
        again = Run(rank, world, folder, **made)
        with pytest.raises(DeltawireError) as error:
            again.load(saved[0] if mistake == "too old" else saved[2])
        again.load(saved[2], with_compression=False)
        losses = again.steps(2)
        assert set(again.key_entries()) == {COUNT}
        again.close()
        dist.barrier()
        repair()
        return error.value.status.name, error.value.why, losses

    found = {mistake: tried(mistake) for mistake in MISTAKES}
    anew = Run(rank, world, folder)
    anew.load(saved[2], with_compression=False)
    without = anew.steps(2)
    anew.close()
    right = Run(rank, world, folder)
    right.load(saved[2])
    return found, without, right.steps(2), expected


def test_states_whose_copies_are_not_there_are_refused_and_nothing_is_lost(ranks, tmp_path):
    """Both ranks can go on without, and the file is as it was."""
    for found, without, right, expected in ranks.run(2, refused, str(tmp_path)):
        for mistake, (_, status, sentence) in MISTAKES.items():
            its, why, losses = found[mistake]
            assert its == status and sentence in why, (mistake, its, why)
            assert losses == without or mistake == "another config", mistake
        assert right == expected


def one_lost(rank, world, folder):
    run = Run(rank, world, folder)
    run.steps(2)
    disk = run.saved()
    run.close()
    again = Run(rank, world, folder, file="prev" if rank else "new")
    if rank:
        again.load(disk)
    else:
        with pytest.raises(DeltawireError, match="in another file"):
            again.load(disk)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        again.steps(2)
    return again.key_entries(), [str(one.message) for one in said]


def test_one_rank_has_lost_its_file(ranks, tmp_path):
    for keys, said in ranks.run(2, one_lost, str(tmp_path)):
        assert keys == [COUNT] and any("do not belong together" in one for one in said)


# --- when snapshots are let go -------------------------------------------------------------------


def full(*_, **__):
    raise DeltawireError(Status["IO"], "the disk is full")


def failing(rank, world, folder):
    """Saves once, and then fails to on rank 1, several times."""
    run = Run(rank, world, folder)
    (stage,) = run.stages
    run.steps(1)
    stage.state_dict()
    disk = run.saved()
    expected, said = [], []
    save = stage._compression.save
    for _ in range(3):
        expected += run.steps(1)
        if rank == 1:
            stage._compression.save = full
        with pytest.raises(DeltawireError) as error:
            stage.state_dict()
        said.append(error.value.why)
    stage._compression.save = save
    stage.state_dict()  # the one before it is still the last that all ranks have
    run.close()
    again = Run(rank, world, folder)
    again.load(disk)
    return again.steps(3), expected, said


def test_a_state_that_not_all_ranks_have_takes_nothing_from_the_one_before(ranks, tmp_path):
    for found, expected, said in ranks.run(2, failing, str(tmp_path)):
        assert found == expected
        assert all("the disk is full" in one for one in said)


def pinned(rank, world, folder):
    """The bytes that only snapshots have: before and after a state that cannot be saved, and after
    one that can, which is loaded after a run that has loaded nothing and saved once."""
    run = Run(rank, world, folder)
    (stage,) = run.stages
    run.steps(1)
    run.saved()
    storage = stage._compression.sides._storage
    run.steps(1)

    def count():
        return storage.counters().pinned_bytes

    found, save = [count()], storage.save
    storage.save = full
    with pytest.raises(DeltawireError, match="full"):
        run.saved()
    found.append(count())
    storage.save = save
    disk = run.saved()
    found.append(count())
    run.close()
    another = Run(rank, world, folder)
    another.steps(1)
    another.saved()
    another.close()
    Run(rank, world, folder).load(disk)
    return found


def test_a_state_that_cannot_be_saved_keeps_no_copies(ranks, tmp_path):
    for before, after, saved in ranks.run(2, pinned, str(tmp_path)):
        assert before == after < saved
