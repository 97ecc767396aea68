#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# real.py - `./run real`: what codecs cost pretrained language models.
"""Measures codecs on pretrained language models. In these, unlike in small models that were trained
in minutes, a few channels and tokens have values hundreds of times as large as all others; so no
codec is judged without them. Every tensor between two stages becomes a frame and is decoded again,
as in a pipeline. Models compute in torch's autocast to bf16.

--once sends text through each model, forward only, and compares what comes out with what comes
out of the model without codecs. --train fine-tunes, with a codec of activations and one of their
gradients, and compares with the training without codecs, of the same seeds: AdamW, batches of 8
rows of 128 tokens, gradients clipped at norm 1, no dropout, ids in both directions. With a third
codec, the batch is divided between two replicas, whose weight gradients a group averages with it;
raw stands for no codec. What is trained is kept in OUT/results.jsonl and not trained again.

A codec of activations that ends with +profile, such as direct:form=step,entropy=rans+profile, has a
profile of channels, fitted to 32 other rows and their gradients before. With --train, one that ends
with +fit has profiles that are fitted while it trains, as by compress_stage(profiles="fit")."""

import argparse
import json
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "study" / "real"))
# Read at import: no bars of progress, and no warning of tokenizers about forks.
os.environ.setdefault("TQDM_DISABLE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import deltawire  # noqa: E402
import models  # noqa: E402
import once  # noqa: E402
import profiles  # noqa: E402
import report  # noqa: E402
import results  # noqa: E402
import texts  # noqa: E402
import torch  # noqa: E402
import training  # noqa: E402
from baselines import BASELINES  # noqa: E402
from boundaries import RAW  # noqa: E402

CODECS = "raw:bf16 direct:bits=8 direct:bits=6 direct:bits=4 mx"
PAIRS = "delta:bits=4/direct:bits=4 direct:bits=6/direct:bits=4 mx/mx"
RULES = 1  # counts changes of what a training computes, so that older results are not taken


class Usage(Exception):
    """A mistake in the command line, in one sentence. Exit code 2."""


def checked(codec):
    if codec in BASELINES:
        return codec
    text = profiles.plain(codec)
    if text != codec:  # whether it may have a profile; which one, is not known yet
        text += f"{',' if ':' in text else ':'}profile=1"
    try:
        deltawire.Config(text)
    except deltawire.DeltawireError as error:
        raise Usage(f'"{codec}" is no codec: {error.why}') from None
    return codec


def codecs_of(options):
    # The model without codecs is measured anyway.
    codecs = [checked(codec) for codec in options.codecs.split() if codec != RAW]
    if any(codec.endswith(profiles.FIT) for codec in codecs):
        raise Usage(f"{profiles.FIT} is for --train: nothing is fitted in forward passes")
    if not codecs:
        raise Usage('--codecs needs at least one codec, such as --codecs "direct:bits=4 mx"')
    return list(dict.fromkeys(codecs))


def pairs_of(options):
    """The pairs of codecs, raw first."""
    pairs = [report.RAW_PAIR]
    for pair in options.pairs.split():
        codecs = pair.split("/")
        if len(codecs) not in (2, 3):
            raise Usage(
                f'"{pair}" is no pair: write FORWARD/BACKWARD, such as mx/direct:bits=4, or '
                "FORWARD/BACKWARD/WEIGHTS"
            )
        for codec in codecs:
            if codec != RAW:
                checked(codec)
        if any(codec != profiles.plain(codec) for codec in codecs[1:]):
            raise Usage(f'"{pair}": profiles are for activations, in front of the slash')
        pairs.append(pair)
    return list(dict.fromkeys(pairs))


def run_once(names, options):
    codecs = codecs_of(options)
    whole, everything = texts.text(), []
    for name in names:
        model = models.load(name, options.models, options.f32, options.device)
        shares = texts.shares(model, whole)
        rows = texts.some(shares["held"], options.rows, "--rows")
        found = once.measure(model, codecs, rows, shares["fit"])
        everything.append({**found, "text": texts.digest(whole)})
        print(report.once_table(found), flush=True)
        report.once_picture(found, options.out / f"{name}-once.png")
    return everything


def settings_of(model, whole, pair, seed, options):
    """Everything that determines the result of a training."""
    return {
        "model": model.source.name,
        "weights": model.source.sha256[:12],
        "text": texts.digest(whole),
        "pair": pair,
        "seed": seed,
        "samples": options.samples,
        "epochs": options.epochs,
        "held": options.held,
        "stages": options.stages,
        "rate": options.rate or training.RATES[model.source.name],
        "dtype": model.dtype,
        **({} if options.device == "cpu" else {"device": options.device}),
        "rules": RULES,
        "library": "" if pair == report.RAW_PAIR else results.library(),
    }


def run_train(names, options):
    pairs = pairs_of(options)
    for name in names:
        if not models.SOURCES[name].is_causal:
            raise Usage(f"{name} is no language model, and is measured by --once only")
    stored = results.Results(options.out / "results.jsonl")
    whole, everything = texts.text(), []
    for name in names:
        model = models.load(name, options.models, options.f32, options.device)
        shares = texts.shares(model, whole)
        texts.some(shares["train"], options.samples, "--samples")
        shares["held"] = texts.some(shares["held"], options.held, "--held")
        # All pairs of a seed, then the next seed: what an interrupted run leaves can be compared.
        wanted = [
            settings_of(model, whole, pair, seed, options)
            for seed in range(1, options.seeds + 1)
            for pair in pairs
        ]
        missing = [settings for settings in wanted if stored.get(settings) is None]
        print(f"{name}: {len(wanted)} trainings, {len(missing)} to do", file=sys.stderr)
        trainings = training.Trainings(model, shares, len(missing))
        for settings in missing:
            stored.add(settings, trainings.run(settings))
        runs = {pair: {} for pair in pairs}
        for settings in wanted:
            runs[settings["pair"]][settings["seed"]] = stored.get(settings)
        rows = report.summary(runs)
        same = wanted[0]
        title = f"{name}, {options.stages} stages, {options.samples} samples, rate {same['rate']}"
        print(report.training_table(f"{title}, {model.dtype}", rows), flush=True)
        report.training_picture(title, rows, options.out / f"{name}-train.png")
        shown = {key: same[key] for key in same if key not in ("pair", "seed", "library")}
        everything.append({"settings": shown, "pairs": rows, "runs": runs})
    return everything


def run_processes(names, options):
    """Says of each pair whether one process and two have the same losses. Raises Wrong if not."""
    import processes

    if names != [processes.NAME]:
        raise Usage(f"--processes is for {processes.NAME} only")
    pairs, found = pairs_of(options), []
    if any(pair.count("/") > 1 for pair in pairs):
        raise Usage("--processes is for pairs: two processes here have no replicas")
    torch.set_num_threads(1)
    for pair in pairs:
        model = models.load(processes.NAME, options.models, options.f32)
        rows = texts.some(texts.shares(model, texts.text())["train"], options.samples, "--samples")
        steps = processes.steps_of(1, options.samples, options.epochs)
        rate = options.rate or training.RATES[processes.NAME]
        given = (pair, rows, steps, rate)
        one = processes.of_one_process(model, *given)
        del model
        two = processes.of_two_processes(options.models, options.f32, *given)
        found.append({"pair": pair, "one_process": one, "two_processes": two})
        told = "the same bits" if one == two else "DIFFERENT losses"
        print(f"{pair}: {told} in {len(steps)} steps, the last loss is {one[-1]:.6f}", flush=True)
    different = [its["pair"] for its in found if its["one_process"] != its["two_processes"]]
    if different:
        raise models.Wrong(f"one process and two have different losses: {' '.join(different)}")
    return found


def run_slices(names, options):
    """Writes what two rows send: tests/data/smollm2.safetensors was made so."""
    from deltawire import tensor_files

    for name in names:
        model = models.load(name, options.models, True)
        rows, places = texts.shares(model, texts.text())["fit"][-2:], model.source.boundaries
        both = profiles.recorded(model, places, rows)
        tensors = {
            "first-activations": both[0][0].bfloat16(),
            "last-activations": both[-1][0].bfloat16(),
            "middle-gradients": both[1][1].bfloat16(),
        }
        options.out.mkdir(parents=True, exist_ok=True)
        tensor_files.write(options.out / f"{name}.safetensors", tensors)
    return []


COUNTS = {  # option: (default, what it is)
    "rows": (128, "of 128 tokens, for --once"),
    "samples": (64, "rows to train with"),
    "epochs": (3, "how often each of them is seen"),
    "seeds": (1, "trainings of each pair, whose rows and order differ"),
    "held": (64, "rows that are held out"),
}


def parsed(words):
    options = argparse.ArgumentParser(
        prog="run real",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = options.add_mutually_exclusive_group(required=True)
    what.add_argument("--once", action="store_true", help="forward passes only")
    what.add_argument("--train", action="store_true", help="fine-tuning")
    what.add_argument(
        "--slices", action="store_true", help="write a little of what boundaries send to OUT"
    )
    names = ",".join(models.SOURCES)
    options.add_argument("--model", default="smollm2", help=f"some of {names} (default: smollm2)")
    options.add_argument("--codecs",
        default=CODECS,
        help=f"for --once, with {' '.join(BASELINES)} of other programs (default: {CODECS})",
    )
    options.add_argument(
        "--pairs",
        default=PAIRS,
        help=f"FORWARD/BACKWARD[/WEIGHTS] ... for --train (default: {PAIRS})",
    )
    for name, (default, meaning) in COUNTS.items():
        about = f"{meaning} (default: {default})"
        options.add_argument(f"--{name}", type=int, default=default, metavar="N", help=about)
    options.add_argument("--stages", type=int, choices=(2, 4), default=4, help="default: 4")
    rates = ", ".join(f"{name} {rate:g}" for name, rate in training.RATES.items())
    options.add_argument("--rate", type=float, help=f"of AdamW (default: {rates})")
    options.add_argument(
        "--processes",
        action="store_true",
        help="with --train: whether two processes have the same losses as one, with two stages",
    )
    options.add_argument(
        "--device", default="cpu", help="where models compute: cpu (default), or cuda"
    )
    options.add_argument("--f32", action="store_true", help="compute in float32, not in bf16")
    options.add_argument("--json", type=pathlib.Path, metavar="FILE", help="all figures")
    for name, default in (("models", "models"), ("out", "real")):
        default = ROOT / "build" / default
        options.add_argument(f"--{name}", type=pathlib.Path, default=default, metavar="DIR")
    return options.parse_args(words)


def chosen(options):
    names = [name for name in options.model.replace(",", " ").split() if name]
    for name in names:
        if name not in models.SOURCES:
            raise Usage(f'there is no model "{name}": take one of {", ".join(models.SOURCES)}')
    if not names:
        raise Usage("--model needs the name of a model")
    for name in COUNTS:
        if getattr(options, name) < 1:
            raise Usage(f"--{name} must be at least 1")
    if options.once and "minilm" in names and options.rows < 3:
        raise Usage("minilm compares rows with each other: --rows must be at least 3")
    if options.rate is not None and not 0 < options.rate < 1:
        raise Usage("--rate must be above 0 and below 1")
    return names


def main(words=None):
    """Returns the exit code."""
    options = parsed(words)
    try:
        names = chosen(options)
        if options.processes and not options.train:
            raise Usage("--processes is for --train")
        if options.device != "cpu" and (options.processes or not torch.cuda.is_available()):
            raise Usage(f"--device {options.device}: torch sees no GPU, or --processes is given")
        run = run_once if options.once else run_processes if options.processes else run_train
        run = run_slices if options.slices else run
        found = run(names, options)
        if options.json:
            options.json.parent.mkdir(parents=True, exist_ok=True)
            options.json.write_text(json.dumps(found, indent=2) + "\n")
    except (Usage, models.Unreachable, models.Wrong) as error:
        print(f"real: {error}", file=sys.stderr)
        return {Usage: 2, models.Unreachable: 77}.get(type(error), 1)
    except deltawire.DeltawireError as error:
        print(f"real: {error.why}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"real: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
