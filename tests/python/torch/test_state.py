# SPDX-License-Identifier: Apache-2.0
# test_state.py - saving and restoring the state of a pipeline.
import itertools
import pathlib
import warnings

import pytest
import torch

import deltawire
import small_gpt
from deltawire import DeltawireError
from pipelines import Pipe

pytestmark = pytest.mark.skipif(small_gpt.text() is None, reason="no texts: install fortunes")


def saved_and_loaded(rank, world, name, options, who_loads, again=False):
    """Trains for four steps without and with a restart in the middle. again: what was loaded is
    saved before the first step, and loaded into other stages.

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
    if again:
        between = made()
        between.load(disk)
        disk = between.saved()
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
    "name, options, again",
    [
        *(("1f1b", OPTIONS, False), ("interleaved", OPTIONS, False), ("1f1b", FITTED, False)),
        ("1f1b", OPTIONS, True),
    ],
)
def test_restart_goes_on(ranks, name, options, again):
    """After a restart, the losses have the same bits as without it, and there are no key frames."""
    given = (name, options, (0, 1), again)
    for losses, expected, stats, said in ranks.run(2, saved_and_loaded, *given):
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
        ids = [(torch.arange(8),)] * 4
        for _ in deltawire.torch.prefetching(ids, *made.stages):
            losses += made.steps()
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
            with pytest.raises(DeltawireError, match="this stage was closed"):
                stage.prefetch([1])
    return sorted(name.name for name in pathlib.Path(path).parent.iterdir())


def test_each_stage_has_a_file_of_its_own_until_it_is_closed(ranks, tmp_path):
    for names in ranks.run(2, stage_of_a_text, str(tmp_path / "prev")):
        assert "prev.0" in names or "prev.1" in names


SEEN = {"forward": "delta:bits=4,incarnation=7", "backward": "delta:bits=6,incarnation=7"}


@pytest.mark.parametrize(
    "who, options, again",
    [
        *((0, OPTIONS, False), (1, OPTIONS, False), (0, OPTIONS, True)),
        *((0, SEEN, False), (1, SEEN, False)),
    ],
)
def test_one_rank_restarts_without_state(ranks, who, options, again):
    """If only one rank has its state, there is a warning and all ids start without state, also if
    encoders begin with an incarnation that decoders have seen."""
    answers = ranks.run(2, saved_and_loaded, "gpipe", options, (who,), again)
    assert any("do not belong together" in said for *_, said in answers)
    for _, _, stats, _ in answers:
        for one in stats:
            for way in ("forward_sent", "backward_sent"):
                if way in one:
                    assert (one[way]["key_entries"], one[way]["delta_entries"]) == (8, 8)


def changed(state):
    """(what is loaded, a word of the sentence that refuses it)."""
    of_a_hook = {"format": 2, "kind": "ddp", "world": 2, "rank": 0, "mark": ["", 1], "buckets": []}
    for other in (None, [state], "text", {}, of_a_hook):
        yield other, "name its stage"
    for name in ("ends", "marks"):
        yield {key: value for key, value in state.items() if key != name}, f"no {name}"
    yield {**state, "snapshot": "1"}, "no number"
    (name, end), *_ = state["ends"].items()

    def with_end(**what):
        return {**state, "ends": {**state["ends"], name: {**end, **what}}}

    yield with_end(slots=None), "no slots"
    slot = end["slots"]["0"]
    yield with_end(slots={"first": slot}), "slot 'first'"
    for cut in ({**slot, "states": slot["states"][:-1]}, {**slot, "lengths": None}, None):
        yield with_end(slots={"0": cut}), "slot '0'"


def refusals(rank, world):
    """Loads what is no state, and then the state. Returns what was said, and both losses."""
    whole = Pipe(rank, world, "1f1b", options=OPTIONS)
    whole.steps(2)
    disk, said = whole.saved(), []
    again = Pipe(rank, world, "1f1b", options=OPTIONS)
    for other, word in changed(whole.stages[0].compression_state_dict()):
        with pytest.raises(deltawire.DeltawireError) as error:
            again.stages[0].load_compression_state_dict(other)
        said.append((error.value.status.name, word, error.value.why))
    again.load(disk)
    return said, whole.steps(1), again.steps(1)


def test_what_is_no_state_of_a_stage_is_refused_and_changes_nothing(ranks):
    for said, expected, losses in ranks.run(2, refusals):
        assert losses == expected and len(said) == 13
        for status, word, why in said:
            assert status == "FORMAT" and word in why and "damaged" in why


def in_mid_step(rank, world, name, evaluates):
    """Saves while a step is under way, and after it. Returns the sentences, and the last mark."""
    pipe = Pipe(rank, world, name, options=OPTIONS)
    pipe.steps()
    said = []

    def save(module, inputs):
        for stage in pipe.stages:
            if stage.submod is module:
                with pytest.raises(deltawire.DeltawireError) as error:
                    stage.compression_state_dict()
                said.append(error.value.why)

    hooks = [stage.submod.register_forward_pre_hook(save) for stage in pipe.stages]
    pipe.steps()
    for hook in hooks:
        hook.remove()
    if evaluates and hasattr(pipe.schedule, "eval"):
        pipe.evaluate(*small_gpt.samples(8, 32))
    return said, [mark[1] for mark in pipe.stages[0].compression_state_dict()["marks"].values()]


@pytest.mark.parametrize("name, evaluates", [("1f1b", True), ("interleaved", False)])
def test_the_state_of_a_step_that_is_under_way_is_refused(ranks, name, evaluates):
    for said, marks in ranks.run(2, in_mid_step, name, evaluates):
        assert len(said) == (4 if name == "1f1b" else 8)
        assert all("under way" in one for one in said)
        assert set(marks) <= {2, 3} and len(set(marks)) == 1
