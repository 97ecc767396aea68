# SPDX-License-Identifier: Apache-2.0
# test_state.py - saving and restoring the state of a pipeline.
import itertools
import pathlib
import warnings

import pytest
import torch

import deltawire
import small_gpt
from pipelines import Pipe

pytestmark = pytest.mark.skipif(small_gpt.text() is None, reason="no texts: install fortunes")


def saved_and_loaded(rank, world, name, options, who_loads):
    """Trains for four steps without and with a restart in the middle.

    Returns the losses with and without restart, the statistics, and the warnings."""
    lives = itertools.count()

    def made():
        files = {}
        if "state" in options:
            files["state"] = deltawire.Storage(f"{options['state']}{rank}{next(lives)},cache=0")
        return Pipe(rank, world, name, options={**options, **files})

    whole = made()
    expected = whole.steps(4)
    before = made()
    losses, disk = before.steps(2), before.saved()
    after = made()
    after.load(disk, with_compression=rank in who_loads)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        losses += after.steps(2)
    text = "\n".join(str(w.message) for w in said if "deltawire" in str(w.filename))
    return losses, expected, after.stats(), text


OPTIONS = {"backward": "delta:bits=6"}
FITTED = {**OPTIONS, "forward": "delta:form=step,error=0.1", "profiles": "fit"}


@pytest.mark.parametrize(
    "name, options", [("1f1b", OPTIONS), ("interleaved", OPTIONS), ("1f1b", FITTED)]
)
def test_restart_goes_on(ranks, name, options):
    """After a restart, the losses have the same bits as without it, and there are no key frames."""
    for losses, expected, stats, said in ranks.run(2, saved_and_loaded, name, options, (0, 1)):
        assert losses == expected and said == ""
        for one in stats:
            for way in ("forward_sent", "backward_sent"):
                if way in one:
                    assert (one[way]["key_entries"], one[way]["delta_entries"]) == (0, 16)


STATELESS = [
    {"forward": "delta:bits=4", "backward": "direct:bits=3,feedback=ef"},
    {"forward": "direct:bits=4,rounding=stochastic", "backward": "lowrank:rank=2,feedback=ef"},
    {"forward": "direct:form=step,entropy=rans,rate=2", "backward": "delta:bits=6"},
]


@pytest.mark.parametrize("options", STATELESS)
def test_restart_goes_on_with_residuals_rates_and_drawn_numbers(ranks, options):
    for losses, expected, _, said in ranks.run(2, saved_and_loaded, "1f1b", options, (0, 1)):
        assert losses == expected and "state" not in said


def test_restart_goes_on_from_a_file(ranks, tmp_path):
    """What is saved with a Storage of the program has the copies, and goes on in another file."""
    options = {**FITTED, **OPTIONS, "state": f"file:{tmp_path}/prev"}
    for losses, expected, stats, said in ranks.run(2, saved_and_loaded, "1f1b", options, (0, 1)):
        assert losses == expected and said == ""
        assert all(
            one[way]["key_entries"] == 0
            for one in stats
            for way in ("forward_sent", "backward_sent")
            if way in one
        )


def in_memory_and_in_a_file(rank, world, path):
    """Returns the losses of both, and the number of copies that were read."""
    losses, reads = [], 0
    for state in (None, deltawire.Storage(f"file:{path}.{rank},cache=0")):
        made = Pipe(rank, world, "1f1b", options={**FITTED, **OPTIONS, "state": state})
        for _ in range(4):
            losses += made.steps()
            for stage in made.stages:
                stage.prefetch(torch.arange(8))
        reads = state.counters().reads if state else 0
    return losses[:4], losses[4:], reads


def test_state_in_a_file_changes_no_bit(ranks, tmp_path):
    for plain, filed, reads in ranks.run(2, in_memory_and_in_a_file, str(tmp_path / "prev")):
        assert plain == filed and reads >= 2 * 3 * 8


def stage_of_a_text(rank, world, path):
    for life in range(2):
        made = Pipe(rank, world, "1f1b", options={**OPTIONS, "state": f"file:{path},cache=1MiB"})
        made.steps()
        for stage in made.stages if life == 0 else ():
            stage.close_compression()
            assert stage.compression_stats()["steps"] == 1
    return sorted(name.name for name in pathlib.Path(path).parent.iterdir())


def test_each_stage_has_a_file_of_its_own_until_it_is_closed(ranks, tmp_path):
    for names in ranks.run(2, stage_of_a_text, str(tmp_path / "prev")):
        assert "prev.0" in names or "prev.1" in names


@pytest.mark.parametrize("who", [0, 1])
def test_one_rank_restarts_without_state(ranks, who):
    """If only one rank has its state, there is a warning and all ids start without state."""
    answers = ranks.run(2, saved_and_loaded, "gpipe", OPTIONS, (who,))
    assert any("do not belong together" in said for *_, said in answers)
    for _, _, stats, _ in answers:
        for one in stats:
            for way in ("forward_sent", "backward_sent"):
                if way in one:
                    assert (one[way]["key_entries"], one[way]["delta_entries"]) == (8, 8)
