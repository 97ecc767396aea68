#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# losses.py - measures how much loss pairs of codecs cost: compares the held-out loss of the demo's
# training with each pair to that of the uncompressed training.
"""Fine-tunes the demo's model with every pair of codecs, on two different texts, with several
seeds, over a link that is not slowed down. The result of each training is stored as soon as it is
done, so a run that was interrupted continues where it stopped. Writes a table and JSON."""

import argparse
import hashlib
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "examples"), str(ROOT / "bench")]
import demo  # noqa: E402 (the model, its texts and settings are the demo's)
from markdown_table import markdown  # noqa: E402

RAW = ("raw:f32", "raw:f32")
TWO_BITS = ("delta:bits=2", "direct:bits=4")
DITHER = "form=step,group=sample,rounding=dither,entropy=rans"
FOUR_STAGES = (
    "delta:form=step,group=sample,step=1.05,key_step=0.1,entropy=rans",
    f"delta:{DITHER},step=1.46,key_step=0.5",
)
# {number of stages: the pairs of codecs (forward, backward) that are tried with it}. The pair RAW
# is tried besides these.
PAIRS = {
    2: [
        TWO_BITS,
        ("delta:form=step,group=sample,step=1.65,entropy=rans", f"direct:{DITHER},step=3"),
        ("delta:form=step,group=sample,step=2.2,entropy=rans", f"direct:{DITHER},step=6"),
        # without keys
        ("direct:form=step,group=sample,step=0.5,entropy=rans", f"direct:{DITHER},step=2"),
    ],
    4: [TWO_BITS, FOUR_STAGES],
    8: [
        TWO_BITS,
        FOUR_STAGES,
        (
            "delta:form=step,group=sample,step=0.7,key_step=0.1,entropy=rans",
            f"delta:{DITHER},step=1,key_step=0.4",
        ),
    ],
}
# A batch has 16 samples, so with 4 micro-batches a frame carries four. The demo's carry one.
MICRO_BATCHES = 4


def bits_sent(events, first, last):
    """Returns [forward, backward], the bits per element that one link carried between two events of
    a training's log. They are all bytes of the link: frames with their headers, replies, and what
    evaluations sent."""
    sent = []
    for way in ("forward", "backward"):
        elements = (last[f"raw_{way}"] - first[f"raw_{way}"]) / 4
        sent.append(8 * (last[f"bytes_{way}"] - first[f"bytes_{way}"]) / elements)
    return sent


def figures(events):
    """Returns the figures of a training, from the events of its log: the loss at the end, and the
    bits per element of first visits (the first epoch), of later visits, and of all."""
    steps = [event for event in events if event["event"] == "step"]
    per_epoch = len(steps) // max(event["epoch"] for event in steps)
    nothing = {f"{what}_{way}": 0 for what in ("raw", "bytes") for way in ("forward", "backward")}
    # The evaluation after the first epoch sends the held-out samples for the first time. Its bytes
    # are counted in the first step of the second epoch, so that step is in neither figure.
    first = bits_sent(events, nothing, steps[per_epoch - 1])
    later = bits_sent(events, steps[per_epoch], steps[-1])
    return {
        "held_out_loss": events[-1]["held_out_loss"],
        "bits_forward_first": first[0],
        "bits_forward": later[0],
        "bits_backward_first": first[1],
        "bits_backward": later[1],
        "bits_of_all": bits_sent(events, nothing, events[-1]),
    }


class Trainings:
    """Runs trainings, and keeps the figures of each in a file of its own.

    runner trains with the demo's settings; model is the pre-trained model that all trainings start
    from; prose is the demo's text for fine-tuning; trained counts the trainings that were run."""

    def __init__(self, options):
        self.out = pathlib.Path(options.out)
        self.runner = demo.Demo(
            argparse.Namespace(out=self.out, build=options.build, small=options.small)
        )
        self.runner.model["layers"] = options.layers
        if options.channels:
            self.runner.model["channels"] = options.channels
        self.runner.finetune["micro-batches"] = MICRO_BATCHES
        self.folder = self.out / "trainings"
        self.folder.mkdir(exist_ok=True)
        before, self.prose = demo.texts(argparse.Namespace(text=options.text), self.out)
        self.model = self.runner.pretrained(before)
        self.trained = 0

    def one(self, text, stages, pair, seed):
        """Returns the figures of one training with these settings; pair is (forward, backward).
        Trains only if there is no file with the figures of this very training."""
        settings = {**self.runner.finetune, "seed": seed}
        what = {
            "text": text.name,
            "text_sha256": hashlib.sha256(text.read_bytes()).hexdigest(),
            "model": self.model.name,
            "settings": settings,
            "stages": stages,
            "forward": pair[0],
            "backward": pair[1],
            "seed": seed,
        }
        name = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:16]
        done = self.folder / f"{name}.json"
        if not done.exists():
            self.runner.stages = stages
            self.runner.finetuned(
                "training",
                f"{pair[0]} / {pair[1]}, {stages} stages, {text.name}, seed {seed}",
                text,
                self.model,
                "tcp://127.0.0.1:0",
                *pair,
                **{"seed": seed, "print-every": 90},
            )
            log = (self.out / "training.jsonl").read_text().splitlines()
            words = {**what, **figures([json.loads(line) for line in log])}
            half = done.with_suffix(".half")
            half.write_text(json.dumps(words, indent=2) + "\n")
            half.replace(done)
            self.trained += 1
        return json.loads(done.read_text())


def over_raw(results):
    """Adds "over_raw_percent" to the figures of every training: by how many percent its loss is
    larger than that of the uncompressed training with the same text and seed. The number of stages
    does not change the loss of an uncompressed training. Returns results."""
    raw = {
        (it["text"], it["seed"]): it["held_out_loss"]
        for it in results
        if (it["forward"], it["backward"]) == RAW
    }
    for it in results:
        base = raw[it["text"], it["seed"]]
        it["over_raw_percent"] = 100 * (it["held_out_loss"] / base - 1)
    return results


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def table_of(results, seeds):
    """Returns the results as a Markdown table with one row for each number of stages, text and pair
    of codecs: bits per element, the loss with each seed, and the mean excess over raw."""
    head = ["stages", "text", "forward", "backward"]
    head += ["bits forward: first visits", "later visits", "bits backward: first", "later"]
    head += [*(f"seed {seed}" for seed in seeds), "mean over raw"]
    groups = {}
    for it in results:
        key = (it["stages"], it["text"], it["forward"], it["backward"])
        groups.setdefault(key, []).append(it)
    rows = []
    for (stages, text, forward, backward), group in groups.items():
        row = [str(stages), text, f"`{forward}`", f"`{backward}`"]
        for way in ("forward_first", "forward", "backward_first", "backward"):
            row.append(f"{mean(it[f'bits_{way}'] for it in group):.2f}")
        row += [f"{it['held_out_loss']:.4f}" for it in group]
        row.append(f"{mean(it['over_raw_percent'] for it in group):+.2f} %")
        rows.append(row)
    return markdown(head, rows)


def run(options):
    """Does all trainings that are missing, and writes and prints the table."""
    trainings = Trainings(options)
    texts = [trainings.prose, pathlib.Path(options.source)]
    first = trainings.runner.finetune["seed"]
    seeds = range(first, first + options.seeds)
    wanted = [(2, RAW)]  # its loss is the same with any number of stages
    for stages in options.stages:
        wanted += [(stages, pair) for pair in options.pair or PAIRS[stages]]
    results = [
        trainings.one(text, stages, pair, seed)
        for stages, pair in wanted
        for text in texts
        for seed in seeds
    ]
    results = over_raw(results)
    table = table_of(results, seeds)
    (trainings.out / "losses.json").write_text(json.dumps(results, indent=2) + "\n")
    (trainings.out / "losses.md").write_text(table)
    print("\n" + table)
    demo.say(f"{trainings.out}/losses.md, losses.json; {trainings.trained} trainings were done now")


def stages_of(text):
    """Returns the list of numbers that --stages gave, or raises an error that argparse prints."""
    known = ",".join(map(str, PAIRS))
    try:
        stages = [int(word) for word in text.split(",")]
    except ValueError:
        stages = []
    if not stages or any(number not in PAIRS for number in stages):
        raise argparse.ArgumentTypeError(f'"{text}" is not a list of numbers among {known}')
    return stages


def main():
    parser = argparse.ArgumentParser(prog="losses.py", description=__doc__)
    parser.add_argument(
        "--text",
        metavar="FILE",
        help="a UTF-8 file: pre-train on its first half, fine-tune on its second half, in place "
        "of fortunes and the Bible",
    )
    parser.add_argument(
        "--source",
        metavar="FILE",
        default=argparse.__file__,
        help="the second text: the source of a program (default: %(default)s, a part of Python)",
    )
    parser.add_argument(
        "--seeds",
        type=int,
        default=3,
        metavar="N",
        help="train with N seeds for each pair and text (default: %(default)s)",
    )
    parser.add_argument(
        "--stages",
        type=stages_of,
        default=[2, 4],
        metavar="2,4,8",
        help="train with these numbers of stages, each of which is 2, 4 or 8 (default: 2,4)",
    )
    parser.add_argument(
        "--layers",
        type=int,
        default=4,
        metavar="N",
        help="layers of the model, at least one for each stage (default: %(default)s)",
    )
    parser.add_argument(
        "--channels",
        type=int,
        metavar="N",
        help="width of the model (default: the demo's; give another --out with it, because each "
        "model is pre-trained there)",
    )
    parser.add_argument(
        "--pair",
        nargs=2,
        action="append",
        metavar=("FORWARD", "BACKWARD"),
        help="try this pair of codecs instead of the list in this program; may be given several "
        "times",
    )
    parser.add_argument(
        "--small",
        action="store_true",
        help="use a tiny model, which takes seconds: checks that all works, and gives no results",
    )
    parser.add_argument(
        "--build", default="build/release", help="the build to use (default: %(default)s)"
    )
    parser.add_argument(
        "--out",
        default="build/losses",
        help="directory for all results (default: %(default)s)",
    )
    options = parser.parse_args()
    if options.seeds < 1:
        parser.error("--seeds needs a number from 1 on")
    if options.layers < max(options.stages):
        parser.error(f"{max(options.stages)} stages need as many layers: raise --layers")
    try:
        run(options)
    except (demo.Failed, OSError) as failure:
        sys.exit(f"losses: {failure}")


if __name__ == "__main__":
    main()
