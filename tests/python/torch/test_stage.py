# SPDX-License-Identifier: Apache-2.0
# test_stage.py - compressed stages: ids, evaluation, shapes, dtypes, carriers and mistakes.
import copy
import pickle
import time
import warnings

import pytest
import torch
from torch import nn
from torch.distributed import pipelining
from torch.distributed.pipelining import microbatch

import pipelines
import small_gpt
from deltawire import DeltawireError, Profile
from deltawire.torch import compress_stage
from deltawire.torch.common import report, tensors
from deltawire.torch.pipeline import compression
from pipelines import Pipe
from ranks import Failed

pytestmark = pytest.mark.skipif(small_gpt.text() is None, reason="no texts: install fortunes")
needs_eval = pytest.mark.skipif(not pipelines.HAS_EVAL, reason="this torch has no schedule.eval")


def sent(stats, way="forward_sent"):
    return next(s[way] for s in stats if way in s)


# --- evaluation --------------------------------------------------------------------------------


def train_and_evaluate(rank, world, name):
    own = Pipe(rank, world, name)
    pipe = Pipe(rank, world, name, options={"evaluate": "raw:f32"})
    x, y = small_gpt.samples(8, 32)
    assert pipe.evaluate(x, y) == own.evaluate(x, y)
    losses = pipe.steps()
    found = [pipe.evaluate(x, y), pipe.evaluate(x, y)]
    return losses + pipe.steps(), pipe.stats(), found


@needs_eval
@pytest.mark.parametrize("name", ["gpipe", "interleaved"])
def test_evaluation_is_stateless(ranks, name):
    answers = ranks.run(2, train_and_evaluate, name)
    for _, stats, _ in answers:
        for one in stats:
            if "forward_sent" in one:
                forward = one["forward_sent"]
                assert forward["stateless_entries"] == 24
                assert forward["key_entries"] == forward["delta_entries"] == 8
    found = next(found for losses, _, found in answers if losses[0] is not None)
    assert found[0] == found[1]


# --- shapes and dtypes -------------------------------------------------------------------------


def shapes(rank, world, batches):
    """Trains two epochs with batches of these sizes. Each batch has its own ids."""
    pipe = Pipe(rank, world, "1f1b", options={"backward": "delta:bits=6"}, microbatches=2)
    x, y = small_gpt.samples(sum(batches), 32)
    for _ in range(2):
        start = 0
        for size in batches:
            part = slice(start, start + size)
            pipe.step(x[part], y[part], torch.arange(start, start + size))
            start += size
    return pipe.stats()


@pytest.mark.parametrize("batches", [(8, 3), (4, 16)])
def test_batches_of_other_sizes(ranks, batches):
    """A last batch that is shorter, and one that is larger than the receive buffers."""
    for stats in ranks.run(2, shapes, batches):
        for one in stats:
            for way in ("forward_sent", "backward_received", "forward_received", "backward_sent"):
                if way in one:
                    assert one[way]["key_entries"] == one[way]["delta_entries"] == sum(batches)


class Several(nn.Module):
    """A stage with two float outputs, one of them not contiguous, and a boolean output."""

    def __init__(self, index, dtype, with_integers):
        super().__init__()
        self.first, self.with_integers = index == 0, with_integers
        self.work = nn.Linear(48, 48).to(dtype)
        self.letters = nn.Embedding(small_gpt.LETTERS, 48).to(dtype)
        self.logits = nn.Linear(48, small_gpt.LETTERS).to(dtype)

    def forward(self, *given):
        if self.first:
            h = self.work(self.letters(given[0]))
            gaps = self.work(h).transpose(1, 2).contiguous().transpose(1, 2)
            cut = h.view(*h.shape[:2], 4, 12)
            mask = given[0] > 3
            return (gaps, cut, mask) if self.with_integers else (gaps, cut)
        h = given[0] + given[1].reshape(given[0].shape)
        if self.with_integers:
            h = h * given[2].unsqueeze(-1)
        return self.logits(torch.relu(self.work(h))).clone()


def several(rank, world, dtype, with_integers):
    torch.manual_seed(7)

    def make(index):
        return Several(index, dtype, with_integers)

    pipe = Pipe(rank, world, "gpipe", options={"backward": "delta:bits=8"}, make=make)
    return pipe.steps(4), pipe.stats()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_several_outputs(ranks, dtype):
    """Each float output has its own encoder; integers are sent without compression."""
    with_integers = pipelines.HAS_EVAL  # torch 2.6 requires gradients of all outputs
    answers = ranks.run(2, several, dtype, with_integers)
    forward = sent(answers[0][1])
    assert forward["key_entries"] == 16 and forward["delta_entries"] == 3 * 16
    assert forward["exact_tensors"] == (16 if with_integers else 0)
    size = torch.empty(0, dtype=dtype).element_size()
    assert forward["tensor_bytes"] == 4 * 8 * 32 * (2 * 48 * size + with_integers)
    assert answers[1][0][-1] < answers[1][0][0]


# --- profiles of channels ----------------------------------------------------------------------


def with_profiles(rank, world, forward, others):
    """Trains with a profile for each boundary; others: rank 1 has other ones."""
    profiles = {}
    for index in range(world - 1):
        torch.manual_seed(100 + index + (others and rank == 1))
        profiles[index] = Profile.fit(torch.randn(4, 32, 64))
    pipe = Pipe(rank, world, options={"forward": forward, "profiles": profiles})
    return pipe.steps(3), pipe.stats()


@pytest.mark.parametrize("forward", ["delta:form=step,step=0.5", "direct:form=step,step=0.1"])
def test_every_boundary_has_a_profile_of_its_own(ranks, forward):
    answers = ranks.run(3, with_profiles, forward, False)
    losses = answers[2][0]
    assert losses[2] < losses[0]
    assert sent(answers[0][1])["frame_bytes"] > 0


def test_ranks_with_other_profiles_are_refused(ranks):
    with pytest.raises(Failed, match="profiles"):
        ranks.run(2, with_profiles, "direct:form=step", True)


def with_fitted_profiles(rank, world, name, forward):
    pipe = Pipe(rank, world, name, options={"forward": forward, "profiles": "fit"})
    return pipe.steps(6), pipe.stats()


@pytest.mark.parametrize(
    "name, forward",
    [
        ("gpipe", "delta:form=step,error=0.1,key_error=0.02,entropy=rans"),
        ("interleaved", "direct:form=step,step=0.2"),
        ("1f1b", "direct:form=step,step=0.2"),
    ],
)
def test_profiles_are_fitted_and_sent_along(ranks, name, forward):
    """One before the first microbatch, and one after steps 1, 2 and 4: the same in every run."""
    answers = [ranks.run(2, with_fitted_profiles, name, forward) for _ in range(2)]
    assert [losses for losses, _ in answers[0]] == [losses for losses, _ in answers[1]]
    losses = next(losses for losses, _ in answers[0] if losses[0] is not None)
    assert losses[5] < losses[0]
    for way in ("forward_sent", "forward_received"):
        for one in (one[way] for _, stats in answers[0] for one in stats if way in one):
            assert one["profile_bytes"] == 4 * 6 * 64


@needs_eval
def test_evaluation_has_the_fitted_profile_and_fits_none(ranks):
    answers = ranks.run(2, evaluated_with_fitted_profiles)
    assert sent(answers[0][0])["profile_bytes"] == 4 * 6 * 64
    found = answers[1][1]
    assert found[0] == found[1]


def evaluated_with_fitted_profiles(rank, world):
    options = {
        "forward": "direct:form=step,step=0.2",
        "evaluate": "direct:form=step,step=0.1",
        "profiles": "fit",
    }
    pipe, (x, y) = Pipe(rank, world, options=options), small_gpt.samples(8, 32)
    pipe.evaluate(x, y)
    pipe.steps(3)
    return pipe.stats(), [pipe.evaluate(x, y) for _ in range(2)]


# --- ids ---------------------------------------------------------------------------------------


def wrong_then_right(rank, world, options, wrong):
    """A step with wrong ids, which is an error on all ranks, and then good steps."""
    pipe = Pipe(rank, world, "gpipe", options=options)
    try:
        pipe.step(*small_gpt.samples(8, 32), wrong)
        said = None
    except Exception as error:
        said = str(error)
    return said, pipe.steps(2), pipe.stats()


WRONG = [
    (None, "sample_ids=ids"),
    (torch.arange(8) // 2, "occurs twice"),
    (torch.arange(8) - 1, "is not an id"),
    (torch.arange(8) * 1.0, "int64"),
    (torch.arange(8).view(8, 1), "one-dimensional"),
    (torch.arange(16), "as many ids as x has samples"),
]


def test_wrong_ids(ranks):
    """All ranks raise the error. The next step works, and the state is unchanged."""
    for wrong, sentence in WRONG:
        for said, _, stats in ranks.run(2, wrong_then_right, {}, wrong):
            assert sentence in said, said
            if "forward_sent" in stats[0]:
                forward = stats[0]["forward_sent"]
                assert forward["key_entries"] == forward["delta_entries"] == 8


def wrong_for_a_late_neighbour(rank, world):
    """The second stage is not ready yet when the first step has failed on the first one, whose
    program catches the error and goes on. Shapes are known, so torch waits for nobody."""
    prepared, plain = compression.Compression.prepared, pipelines.pipelining.PipelineStage
    x = small_gpt.samples(8, 32)[0][:2]
    boundary = small_gpt.Stage(0, world)(x).detach().requires_grad_()

    def late(*given):
        time.sleep(rank)
        prepared(*given)

    def known(module, *given):
        entering = boundary if rank else x
        return plain(module, *given, input_args=entering, output_args=module(entering))

    compression.Compression.prepared = late
    pipelines.pipelining.PipelineStage = known
    try:
        return wrong_then_right(rank, world, {}, torch.arange(8) - 1)
    finally:
        compression.Compression.prepared = prepared
        pipelines.pipelining.PipelineStage = plain


def test_a_neighbour_that_is_late_hears_of_wrong_ids(ranks):
    for said, losses, _ in ranks.run(2, wrong_for_a_late_neighbour, timeout=20):
        assert "is not an id" in said and len(losses) == 2


def test_steps_without_ids_where_allowed(ranks):
    answers = ranks.run(2, wrong_then_right, {"on_missing_ids": "direct"}, None)
    assert all(said is None for said, _, _ in answers)
    forward = sent(answers[0][2])
    assert (forward["stateless_entries"], forward["delta_entries"]) == (8, 8)


def shuffled(rank, world, dataset_size):
    pipe = Pipe(rank, world, "gpipe", options={"dataset_size": dataset_size})
    x, y = small_gpt.samples(8, 32)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for step in range(4):
            pipe.step(x, y, torch.arange(8) + 8 * step)
            if dataset_size is None:
                pipe.evaluate(x, y)
    return [str(w.message) for w in said]


def test_warns_if_ids_do_not_recur(ranks):
    answers = ranks.run(2, shuffled, 8)
    text = "\n".join(answers[0])
    assert "only 0 of 16 samples" in text and "memory grows without end" in text
    assert "the same id in every epoch" in text
    assert "dataset_size=" not in text
    assert not any("id in every epoch" in one for one in answers[1])


@needs_eval
def test_ids_that_do_not_recur_may_be_those_of_a_first_epoch(ranks):
    """Without dataset_size, an evaluation is taken for the end of an epoch."""
    (sentence,) = ranks.run(2, shuffled, None)[0]
    assert "only 0 of 16 samples" in sentence and "give dataset_size=" in sentence


class ByKeywords(small_gpt.Stage):
    def forward(self, x=None, *, input_ids=None, mask=None):
        x = super().forward(input_ids if x is None else x)
        return x if mask is None else x * mask[0, 0]


def by_keywords(rank, world, how):
    """Three steps and an evaluation, with input by keywords or by position."""
    pipe = Pipe(rank, world, options={}, make=lambda i: ByKeywords(i, world))
    if "spec" in how:
        spec = {"input_ids": microbatch.TensorChunkSpec(0), "mask": microbatch._Replicate()}
        pipe.schedule._kwargs_chunk_spec = spec
    (x, y), ids = small_gpt.samples(10, 32), torch.arange(10)  # microbatches of 3, 3, 2 and 2
    ids, mask = ids.tolist() if "list" in how else ids, torch.ones(10, 10)
    given = {} if how == "positions" else {"input_ids": x}
    given.update({"mask": mask} if "spec" in how else {})
    args = (x,) if how == "positions" else ()
    losses = []
    for step in range(4):
        named = {**given, "sample_ids": ids} if step < 3 else given
        run = pipe.schedule.step if step < 3 else pipe.schedule.eval
        args, named = (args, named) if rank == 0 else ((), {"target": y, "losses": losses})
        run(*args, **named)
    assert rank or pipe.stats()[0]["forward_sent"]["exact_tensors"] == 0
    return torch.stack(losses).tolist() if rank else None


@needs_eval
def test_input_by_keywords_only(ranks):
    """Ids say how many samples there are, and need no entry in kwargs_chunk_spec."""
    wanted = ranks.run(2, by_keywords, "positions")
    for how in ("keywords", "keywords, ids in a list", "spec", "spec, ids in a list"):
        assert ranks.run(2, by_keywords, how) == wanted, how


def too_many_ids(rank, world):
    pipe = Pipe(rank, world, options={}, make=lambda i: ByKeywords(i, world))
    x, y = small_gpt.samples(8, 32)
    named = {"target": y} if rank else {"input_ids": x, "sample_ids": torch.arange(16)}
    pipe.schedule.step(**named)


def test_too_many_ids_for_input_by_keywords(ranks):
    with pytest.raises(Failed) as failed:
        ranks.run(2, too_many_ids)
    assert set(failed.value.errors) == {0, 1}
    for _, _, text in failed.value.errors.values():
        assert "microbatch 0 has 2 samples but 4 ids" in text


class WithDropout(nn.Module):
    def __init__(self, index, stages):
        super().__init__()
        self.inner, self.drop = small_gpt.Stage(index, stages, width=32), nn.Dropout(0.3)

    def forward(self, x):
        return self.drop(self.inner(x))


def with_ids(rank, world, forward, ids_of, rate):
    """Trains from the beginning for 6 epochs of 64 samples in another order each. ids_of: whether
    ids are those of the samples, or positions in the batch or the order. Returns the warnings."""
    pipe = Pipe(rank, world, options={"forward": forward}, make=lambda i: WithDropout(i, world))
    pipe.optimizer.param_groups[0]["lr"] = rate
    (x, y), chance = small_gpt.samples(64, 32), torch.Generator().manual_seed(3)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(6):
            order = torch.randperm(64, generator=chance)
            for start in range(0, 64, 8):
                part = order[start : start + 8]
                ids = {"samples": part, "batch": torch.arange(8)}
                ids["order"] = torch.arange(start, start + 8)
                pipe.step(x[part], y[part], ids[ids_of])
    return [str(w.message) for w in said if "what was last sent" in str(w.message)]


STEPPED = "delta:form=step,error=0.06,entropy=rans"


@pytest.mark.parametrize(
    "forward, ids_of, rate",
    [(STEPPED, "batch", 3e-2), (STEPPED, "order", 1e-3), ("delta:bits=4", "batch", 1e-3)],
)
def test_warns_if_ids_are_not_those_of_samples(ranks, forward, ids_of, rate):
    """They recur, so that all samples but the first ones are coded as changes of another one."""
    (said,), of_gradients = ranks.run(2, with_ids, forward, ids_of, rate)
    assert "forward by stage 0" in said and "its index in the data set" in said
    assert of_gradients == []


@pytest.mark.parametrize("rate", [1e-3, 3e-2])
def test_ids_of_samples_are_right_at_any_learning_rate(ranks, rate):
    assert ranks.run(2, with_ids, STEPPED, "samples", rate) == [[], []]


# --- carriers ----------------------------------------------------------------------------------


def by_carrier(rank, world, name, options):
    losses, stats, said = pipelines.train(rank, world, name, options)
    return losses, said


@pytest.mark.parametrize("name", ["1f1b", "interleaved"])
def test_carriers_give_the_same_losses(ranks, name):
    """With equal_counts and over links, the losses have the same bits as over gloo."""
    group = ranks.run(2, by_carrier, name, {})
    for options in ({"equal_counts": True}, {"carrier": "tcp://127.0.0.1"}):
        assert ranks.run(2, by_carrier, name, options) == group


def lane_of(rank, world):
    pipe = Pipe(rank, world, "gpipe", options={})
    pipe.steps()
    compression = pipe.stages[0]._compression
    return type(next(iter(compression.sides)).lane).__name__


def test_a_process_group_without_a_backend_sends_over_gloo(ranks):
    assert ranks.run(2, lane_of, backend=None) == ranks.run(2, lane_of) == ["GroupLane"] * 2


def tls_options(rank):
    from deltawire import Tls

    names = ("rank/0", "rank/1")
    key = bytes(range(64))
    tls = Tls(own_name=names[rank], peer_name=names[1 - rank], group_key=key)
    return {"carrier": "tcp://127.0.0.1", "link": {"tls": tls}}


def over_tls(rank, world):
    losses, _, _ = pipelines.train(rank, world, "gpipe", tls_options(rank))
    return losses


def test_links_encrypt(ranks):
    assert pipelines.last_losses([(one,) for one in ranks.run(2, over_tls)])


# --- statistics --------------------------------------------------------------------------------

PAUSE_S = 0.3


class Slow(small_gpt.Stage):
    def forward(self, x):
        time.sleep(PAUSE_S if self.first else 0)
        return super().forward(x)


def timed(rank, world, carrier):
    options = {"forward": "raw:f32", "carrier": carrier}
    make = (lambda i: Slow(i, world)) if carrier == "group" else None
    pipe = Pipe(rank, world, options=options, make=make)
    (stage,) = pipe.stages
    assert stage.compression_report().startswith(f"stage {rank}, 0 steps")
    losses = pipe.steps(2)
    assert rank == 0 or losses[1] < losses[0]
    its = (stage.compression_stats, stage.compression_report)
    return *(one() for one in its), stage.compression_scalars("run")


def test_times_of_a_stage_that_waits_for_another_one(ranks):
    _, (stats, _, _) = ranks.run(2, timed, "group")
    assert stats["forward_received"]["waiting_seconds"] > PAUSE_S  # of 8 pauses
    assert "waiting_seconds" not in stats["backward_sent"]
    for way in ("forward_received", "backward_sent"):
        assert 0 < stats[way]["codec_seconds"] < stats["forward_received"]["waiting_seconds"]


def test_times_of_a_slow_network_and_its_report(ranks):
    """128 kB of activations at 1 Mbit/s."""
    stats, text, flat = ranks.run(2, timed, "shaped:rate=1mbit/tcp://127.0.0.1")[0]
    forward, backward = stats["forward_sent"], stats["backward_received"]
    assert forward["wire_seconds"] + backward["waiting_seconds"] > 0.5
    assert forward["wire_seconds"] > 0 and "wire_seconds" not in backward
    head, *rows = text.splitlines()
    assert head.split() == ["stage", "0,", "2", "steps", *" ".join(report.TITLES).split()]
    assert [row.split()[0] for row in rows] == ["forward_sent", "backward_received"]
    assert len({row.index(word) for row, word in zip(rows, ("raw:f32", "direct"))}) == 1
    cells = rows[0].split()
    assert cells[1:5] == ["0.13", "0.13", "1.0", "-"] and cells[7:] == ["-", "raw:f32"], rows
    assert rows[1].split()[6] == "-"
    assert flat["run/stage0/steps"] == 2
    assert flat["run/stage0/forward_sent/message_bytes"] == forward["message_bytes"]
    assert all(type(value) in (int, float) for value in flat.values())
    assert len(flat) == 1 + len(forward) - 1 + len(backward) - 1  # but the texts of the configs


# --- mistakes ----------------------------------------------------------------------------------


def other_options(rank, world):
    Pipe(rank, world, "gpipe", options={"forward": f"delta:bits={2 + rank}"}).steps()


def test_other_config_is_found_at_start(ranks):
    with pytest.raises(Failed) as failed:
        ranks.run(2, other_options)
    assert set(failed.value.errors) == {0, 1}
    for name, status, text in failed.value.errors.values():
        assert (name, status.name) == ("DeltawireError", "MISMATCH")
        assert "delta:bits=2" in text and "delta:bits=3" in text


def misuse(rank, world):
    from torch.distributed import pipelining

    said = []

    def refused(function, *args, **named):
        try:
            function(*args, **named)
        except DeltawireError as error:
            said.append(error.why)
        else:
            said.append("")

    def stage():
        return pipelining.PipelineStage(nn.Linear(2, 2), rank, world, torch.device("cpu"))

    made, profile = compress_stage(stage()), Profile.fit(torch.randn(1, 9, 4))
    refused(compress_stage, made)
    refused(compress_stage, nn.Linear(2, 2))
    refused(compress_stage, stage(), forward="delta:bits=99")
    refused(compress_stage, stage(), evaluate="delta:bits=4")
    refused(compress_stage, stage(), carrier="grup")
    refused(compress_stage, stage(), on_missing_ids="maybe")
    refused(compress_stage, stage(), dataset_size=0)
    refused(compress_stage, stage(), profiles={"0": 1})
    stepped = "direct:form=step,transform=hadamard"
    refused(compress_stage, stage(), forward=stepped, profiles={0: profile})
    refused(compress_stage, stage(), forward="direct:form=step", profiles={7: profile})
    refused(compress_stage, stage(), forward="mx", evaluate="mx", profiles={0: profile})
    refused(compress_stage, stage(), forward="direct:form=step,group=sample", profiles="fit")
    refused(compress_stage, stage(), forward="mx", evaluate="mx", profiles="fit")
    refused(compress_stage, stage(), link={"peer_timeout": 5})
    refused(compress_stage, stage(), link=print)
    refused(pickle.dumps, made)
    refused(copy.deepcopy, made)
    refused(made.load_compression_state_dict, {"format": 1, "stage_index": 5, "num_stages": 9})
    return said, type(made).__mro__[1] is pipelining.PipelineStage


def test_stage_misuse_is_an_error_with_a_sentence(ranks):
    words = ["already", "PipelineStage", "99", "evaluate", "carrier", "on_missing_ids"]
    words += ["dataset_size", "profiles is a dict", "transform", "sends no activations"]
    words += ["profiles are for configs", "without group=sample", "profiles are for configs"]
    words += ["give an address", "must be a dict"]
    words += ["cannot be pickled", "cannot be pickled", "stage 5 of 9"]
    for said, is_subclass in ranks.run(2, misuse):
        assert is_subclass and len(said) == len(words)
        for sentence, word in zip(said, words):
            assert word in sentence


# --- what lies behind a tensor ------------------------------------------------------------------


def test_a_default_device_does_not_move_what_arrives():
    x = torch.arange(12.0).view(3, 4)
    torch.set_default_device("meta")
    try:
        made, _ = tensors.room_for(torch.float32, (3, 4))
        copied = tensors.from_exact(tensors.DTYPES[x.dtype], (3, 4), memoryview(tensors.exact(x)))
    finally:
        torch.set_default_device(None)
    assert made.device.type == "cpu" and torch.equal(copied, x)
    with pytest.raises(DeltawireError, match="main memory"):
        tensors.as_bytes(torch.empty(3, device="meta"))


def test_values_that_torch_conjugates_or_negates_when_they_are_read():
    x = torch.randn(3, 4, dtype=torch.complex64)
    assert tensors.exact(x.conj()) == tensors.exact(x.conj().resolve_conj())
    negated = x.conj().imag  # a view: its memory holds the other sign
    assert negated.is_neg()
    assert tensors.exact(negated) == (-x.imag).contiguous().numpy().tobytes()
    assert torch.equal(torch.from_numpy(tensors.samples(negated).numpy()), -x.imag[:, None])


# --- tensors that travel exactly, and the bytes of statistics ----------------------------------


class Masked(small_gpt.Stage):
    """As a traced GPT-2: the first stage makes the mask and the positions, and the second one gets
    them, and changes them in place."""

    def __init__(self, index, length):
        super().__init__(index, 2, length=length)
        self.came_right = []

    def forward(self, x, mask=None, positions=None, causal=None):
        if self.first:
            n = x.shape[1]
            ones = torch.ones(1, 1, n, n)
            causal = torch.full_like(ones, torch.finfo(torch.float32).min).triu(1)
            return super().forward(x), ones.tril().bool(), torch.arange(n)[None], causal
        lower, counted = torch.ones_like(mask).tril(), torch.arange(positions.numel())[None]
        right = torch.equal(mask, lower) and torch.equal(positions, counted)
        self.came_right.append(right and torch.equal(causal == 0, lower))
        mask.zero_()
        positions += 7
        return super().forward(x)


class Counting:
    """Stands in for torch.distributed where lanes send: counts the bytes."""

    def __init__(self, real):
        self._real, self.bytes = real, 0

    def __getattr__(self, name):
        return getattr(self._real, name)

    def isend(self, part, *args, **more):
        self.bytes += part.numel() * part.element_size()
        return self._real.isend(part, *args, **more)


def counted(rank, world, options, length):
    """(exact bytes and receive buffers after each step, statistics, bytes that the carrier was
    given)."""
    from deltawire.torch.pipeline import group_lane, link_lane

    pipe = Pipe(rank, world, options=options, make=lambda index: Masked(index, length))
    x, y = small_gpt.samples(12, length)
    counting, link_send, found = Counting(group_lane.dist), link_lane.Link.send, []
    make_buffer, buffers = tensors.buffer_for, []

    def send(link, tag, data, **more):
        counting.bytes += len(data)
        link_send(link, tag, data, **more)

    def buffer_for(length, sender):
        buffers.append(length)
        return make_buffer(length, sender)

    tensors.buffer_for = buffer_for
    group_lane.dist, link_lane.Link.send = counting, send
    try:
        for size in (8, 8, 8, 12, 8):  # 12: longer than receive buffers
            pipe.step(x[:size], y[:size], torch.arange(size))
            one = sent(pipe.stats(), ("forward_sent", "forward_received")[rank])
            found.append((one["exact_bytes"], len(buffers)))
        if pipelines.HAS_EVAL:
            pipe.evaluate(x[:8], y[:8])
            pipe.step(x[:8], y[:8], torch.arange(8))
    finally:
        group_lane.dist, link_lane.Link.send = counting._real, link_send
        tensors.buffer_for = make_buffer
    right = pipe.stages[0].submod.came_right
    assert all(right[1:21]) and all(right[-4:])  # before, torch tries the module with anything
    return found, pipe.stats(), counting.bytes


@pytest.mark.skipif(not pipelines.HAS_EVAL, reason="torch 2.6 wants gradients of all outputs")
@pytest.mark.parametrize(
    "options, length",
    [({}, 128), ({"equal_counts": True}, 64), ({"carrier": "tcp://127.0.0.1"}, 64)],
)
def test_constants_travel_once_and_statistics_have_all_bytes(ranks, options, length):
    (first, stats, given), (second, others, given_back) = ranks.run(2, counted, options, length)
    whole = length * length // 8 + 8 + length + 4 * length * length
    exact = [whole + 3 * 8 * (4 * step - 1) for step in range(1, 6)]
    for found in (first, second):
        assert [size for size, _ in found] == exact
        assert options or found[2][1] == found[0][1]  # receive buffers are used again
    forward, backward = sent(stats), sent(others, "backward_sent")
    assert forward["message_bytes"] == given == sent(others, "forward_received")["message_bytes"]
    assert backward["message_bytes"] == given_back
    assert backward["message_bytes"] == sent(stats, "backward_received")["message_bytes"]
    assert forward["exact_tensors"] == 4 * 7 * 3  # also of the evaluation


class Turned(nn.Module):
    """Turns its input behind each layer by cosines, which each stage gets from the one before."""

    def __init__(self, layers):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(layers))

    def forward(self, x):
        cosines = (torch.arange(512.0).view(1, 8, 64) % 7).cos()
        for layer in self.layers:
            x, cosines = layer(x) * cosines, cosines * 1.0
        return x


def traced(rank, world, name):
    torch.manual_seed(1)
    x, indices = torch.randn(4, 8, 64), pipelines.stage_indices(name, rank, world)
    kind, each = pipelines.SCHEDULES[name]
    begins = pipelining.SplitPoint.BEGINNING
    split = {f"layers.{i}": begins for i in range(1, world * each)}
    pipe = pipelining.pipeline(Turned(world * each), (x[:1],), split_spec=split)
    stages = [pipe.build_stage(index, torch.device("cpu")) for index in indices]
    for stage in stages:
        compress_stage(stage, "direct:bits=8", "direct:bits=8")
    schedule = kind(stages[0] if each == 1 else stages, 4, loss_fn=nn.functional.mse_loss)
    for _ in range(2):
        given = {"sample_ids": torch.arange(4)} if rank == 0 else {}
        target = {"target": x} if any(stage.is_last for stage in stages) else {}
        schedule.step(*(x,) * (rank == 0), **given, **target)
    return [stage.compression_stats() for stage in stages]


@needs_eval
@pytest.mark.parametrize("name", ["gpipe", "zbv"])
def test_what_needs_no_gradient_arrives_exactly_and_sends_none_back(ranks, name):
    """The cosines have the shape of one sample, and torch wants gradients of all that arrives."""
    stats = [one for answer in ranks.run(2, traced, name) for one in answer]
    for one in stats:
        for way in ("forward_sent", "forward_received"):
            its = one.get(way, {"exact_tensors": 8, "exact_bytes": 4 * 512 + 7 * 8})
            assert (its["exact_tensors"], its["exact_bytes"]) == (8, 4 * 512 + 7 * 8)
        for way in ("backward_sent", "backward_received"):
            its = one.get(way, {"exact_tensors": 8, "exact_bytes": 0, "tensor_bytes": 2 * 8 * 2048})
            assert (its["exact_tensors"], its["exact_bytes"]) == (8, 0)
            assert its["tensor_bytes"] == 2 * 8 * 2048
    assert sum("forward_sent" in one for one in stats) == (1 if name == "gpipe" else 2)


class Changing(Masked):
    """Its mask is another one in each micro-batch."""

    def forward(self, x, *masks):
        made = super().forward(x, *masks)
        return (made[0], torch.rand(made[1].shape) > 0.5, *made[2:]) if self.first else made


def changing(rank, world):
    pipe = Pipe(rank, world, options={}, make=lambda index: Changing(index, 64))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        pipe.steps(10, length=64)
    return [str(one.message) for one in said]


@pytest.mark.skipif(not pipelines.HAS_EVAL, reason="torch 2.6 wants gradients of all outputs")
def test_a_mask_that_changes_is_told(ranks):
    (first,), second = ranks.run(2, changing)
    assert "stage 0 sends" in first and "without compression" in first
    assert second == []
