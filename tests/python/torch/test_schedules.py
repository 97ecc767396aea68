# SPDX-License-Identifier: Apache-2.0
# test_schedules.py - all schedules of torch with compressed stages.
import pytest

import pipelines
import small_gpt

pytestmark = pytest.mark.skipif(small_gpt.text() is None, reason="no texts: install fortunes")

CASES = [("gpipe", 2), ("1f1b", 3), ("interleaved", 2), ("zbv", 2), ("dualpipev", 2)]


@pytest.mark.parametrize("name,world", CASES)
def test_raw_changes_nothing(ranks, name, world):
    """With the codec raw:f32, the losses have the same bits as with torch's own stages."""
    if pipelines.SCHEDULES[name][0] is None:
        pytest.skip("this torch has no such schedule")
    if not pipelines.HAS_EVAL and name != "gpipe":
        pytest.skip("torch 2.6 hangs over gloo: it waits only for the last of several operations")
    options = {"forward": "raw:f32", "backward": "raw:f32", "evaluate": "raw:f32"}
    own = ranks.run(world, pipelines.train, name, None)
    ours = ranks.run(world, pipelines.train, name, options)
    assert pipelines.last_losses(ours) == pipelines.last_losses(own)


@pytest.mark.parametrize("name,world", CASES)
def test_second_epoch_hits(ranks, name, world):
    """All stages keep state for the ids that were given on the first rank."""
    if pipelines.SCHEDULES[name][0] is None:
        pytest.skip("this torch has no such schedule")
    answers = ranks.run(world, pipelines.train, name, {"backward": "delta:bits=6"})
    stats = [one for _, found, _ in answers for one in found]
    sent = [s[way] for s in stats for way in ("forward_sent", "backward_sent") if way in s]
    stages = world * pipelines.SCHEDULES[name][1]
    here = sum(1 for s in stats if "forward_sent" not in s) - 1  # next stage on the same rank
    assert len(sent) == 2 * (stages - 1 - here)
    for one in sent:
        assert one["key_entries"] == 16 and one["delta_entries"] == 16
        assert one["stateless_entries"] == 0 and one["exact_tensors"] == 0
    received = [s[way] for s in stats for way in ("forward_received",) if way in s]
    for one in received:
        assert one["key_entries"] == 16 and one["delta_entries"] == 16
    for _, _, said in answers:
        assert said == []
