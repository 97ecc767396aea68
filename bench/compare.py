#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# compare.py - `./run compare`: trains with every method of compare_methods.py, as codec of
# activations, of their gradients, and of weight gradients, and writes docs/comparison.md.
"""Fine-tunes the demo's model with every method and role, with several seeds. Every result is
stored as soon as it is there, so a run that was interrupted continues where it stopped.

To save time, one training with the first seed gives both the loss and the wall clock behind the
slow wire; the other seeds train over links that are not slowed down, which gives the same bits and
the same losses. The pre-trained model is one for all trainings, and each speed is measured once for
each codec, whatever its roles."""

import argparse
import json
import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "examples")]
import compare_page  # noqa: E402
import demo  # noqa: E402 (the model, its texts and settings are the demo's)
import demo_grid  # noqa: E402
from compare_methods import (  # noqa: E402
    ACTIVATIONS,
    BACKWARD,
    GRADIENT,
    METHODS,
    PARTNERS,
    ROLES,
    named,
    texts_of,
)

EPOCHS = 5  # so that all methods take about half an hour
BARE = "tcp://127.0.0.1:0"
WAYS = {ACTIVATIONS: "forward", BACKWARD: "backward", GRADIENT: "gradients"}


def machine():
    """The name of the processor, and the number of cores."""
    names = [
        line.partition(":")[2].strip()
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith(("model name", "Model"))
    ]
    return f"{names[0] if names else 'an unknown processor'}, {max(1, len(names))} cores"


def speeds_of(program, texts):
    """Returns what the program speed says of these codecs: {text: its line as a dict}."""
    if not texts:
        return {}
    done = subprocess.run([str(program), *texts], capture_output=True, text=True)
    if done.returncode:
        raise demo.Failed(f"{program} exited with {done.returncode}: {done.stderr.strip()}")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {line["codec"]: line for line in lines}


def figures(summary, role):
    """What a training's summary says of a role."""
    way = WAYS[role]
    return {
        "loss": summary["held_out_loss"],
        "wall_s": summary["wall_s"],
        "bits": 32 * summary[f"bytes_{way}"] / summary[f"raw_{way}"],
    }


class Comparison:
    def __init__(self, options):
        self.options, self.started = options, time.monotonic()
        self.out, self.file = pathlib.Path(options.out), pathlib.Path(options.results)
        words = {"out": self.out, "build": options.build, "small": options.quick}
        self.pipeline = demo.Demo(argparse.Namespace(**words))
        self.grid = demo_grid.Grid(argparse.Namespace(**words, grid=(2, 2)))
        for runner in (self.pipeline, self.grid):
            runner.finetune["epochs"] = min(EPOCHS, runner.finetune["epochs"])
        self.speed = pathlib.Path(options.build) / "bench" / "speed"
        if not self.speed.exists():
            raise demo.Failed(f"{self.speed} is not built: `./run compare` builds it")
        self.methods = named(options.only)
        self.results = self.read()
        self.trained = 0

    def read(self):
        """The results of earlier runs with the same settings, or none."""
        settings = {
            "epochs": self.pipeline.finetune["epochs"],
            "model": self.pipeline.model,
            "pipeline": self.pipeline.finetune,
            "grid": self.grid.finetune,
            "machine": machine(),
        }
        results = {"trainings": [], "speeds": {}, "wall_bare": {}, "rates": {}}
        if self.file.exists():
            results = json.loads(self.file.read_text())
            there = {name: results["settings"].get(name) for name in settings}
            if there != settings:
                raise demo.Failed(
                    f"{self.file} has results of other settings or of another machine: move it "
                    "away, or name another file with --results"
                )
        again = set(self.options.again)
        results["trainings"] = [t for t in results["trainings"] if t["method"] not in again]
        gone = texts_of([m for m in METHODS if m.name in again])
        results["speeds"] = {k: v for k, v in results["speeds"].items() if k not in gone}
        seeds = max(self.options.seeds, results.get("settings", {}).get("seeds", 1))
        results.update(settings={**settings, "seeds": seeds}, skipped={})
        return results

    def write(self):
        self.file.parent.mkdir(parents=True, exist_ok=True)
        half = self.file.with_suffix(".half")
        half.write_text(json.dumps(self.results, indent=1) + "\n")
        half.replace(self.file)

    def check_codecs(self):
        """Measures the speed of all codecs that were not measured yet, and notes which ones the
        library does not know."""
        speeds = self.results["speeds"]
        missing = [text for text in texts_of(self.methods) if text not in speeds]
        demo.say(f"speeds of {len(missing)} codecs")
        found = speeds_of(self.speed, missing)
        speeds.update({text: line for text, line in found.items() if "refused" not in line})
        for text, line in found.items():
            if "refused" in line:
                sentence = f"the library does not take it: {line['refused']}"
                self.results["skipped"][text] = sentence
                demo.say(f"{text} is left out; {sentence}")
        self.write()

    def wanted(self):
        """All trainings: (method, role, seed, whether behind the slow wire), those with the first
        seed first, so that a run that is interrupted has something of every method."""
        first = demo.FINETUNE["seed"]
        return [
            (method, role, seed, seed == first)
            for seed in range(first, first + self.options.seeds)
            for method in self.methods
            for role in ROLES
            if method.texts.get(role, "") not in ("", *self.results["skipped"])
        ]

    def is_done(self, method, role, seed, behind_wire):
        key = (method.name, role, seed, method.texts[role])
        return any(
            (t["method"], t["role"], t["seed"], t["text"]) == key
            and (t["behind_wire"] or not behind_wire)
            for t in self.results["trainings"]
        )

    def calibrate(self):
        """Finds the rates of the wires that make an uncompressed training 8 times as slow."""
        rates, walls = self.results["rates"], self.results["wall_bare"]
        if "pipeline" not in rates:
            epochs = self.pipeline.finetune["epochs"]
            bare, rates["pipeline"] = demo.calibrate(
                self.pipeline, self.text, self.model, epochs, demo.SLOWDOWN
            )
            walls["pipeline"] = bare["wall_s"]
        if "grid" not in rates:
            raw = demo_grid.RUNS[0][2:]

            def bare_run():
                return self.grid.trained(
                    "unshaped", "grid, raw, bare links", self.text, self.model, BARE, *raw
                )

            def raw_run(name, rate, title, **other):
                link = demo.shaped(rate)
                return self.grid.trained(name, title, self.text, self.model, link, *raw, **other)

            bare, rates["grid"] = demo_grid.calibrate(self.grid, bare_run, raw_run)
            walls["grid"] = bare["wall_s"]
        self.write()

    def train(self, method, role, seed, behind_wire):
        """Trains once, and stores the result. A training that the codec does not allow is stored
        with the sentence that it ended with."""
        codecs = {**PARTNERS, role: method.texts[role]}
        forward, backward = codecs[ACTIVATIONS], codecs[BACKWARD]
        place = "grid" if role == GRADIENT else "pipeline"
        link = demo.shaped(self.results["rates"][place]) if behind_wire else BARE
        wire = "slow wire" if behind_wire else "bare links"
        words = ("training", f"{method.title} for {role}, seed {seed}, {wire}")
        words += (self.text, self.model, link, forward, backward)
        result = {
            "method": method.name,
            "role": role,
            "seed": seed,
            "text": method.texts[role],
            "behind_wire": behind_wire,
        }
        try:
            if place == "grid":
                summary = self.grid.trained(*words, codecs[GRADIENT], seed=seed)
            else:
                summary = self.pipeline.finetuned(*words, more=method.options, seed=seed)
            result.update(figures(summary, role))
        except demo.Failed as failure:
            result["failed"] = str(failure).strip().splitlines()[-1]
            demo.say(f"failed: {result['failed']}")
        self.results["trainings"].append(result)
        self.trained += 1
        self.write()

    def run(self):
        before, self.text = demo.texts(argparse.Namespace(text=self.options.text), self.out)
        self.check_codecs()
        missing = [one for one in self.wanted() if not self.is_done(*one)]
        if missing:
            self.model = self.pipeline.pretrained(before)
            self.calibrate()
        for number, one in enumerate(missing):
            if time.monotonic() - self.started > 60 * self.options.minutes:
                demo.say(
                    f"{self.options.minutes} minutes are over: {len(missing) - number} trainings "
                    "are missing, which the same command will do when it is run again"
                )
                break
            demo.say(f"training {number + 1} of {len(missing)}")
            self.train(*one)


def run(options):
    comparison = Comparison(options)
    comparison.run()
    path = pathlib.Path(options.page)
    path.write_text(compare_page.page(comparison.results), encoding="utf-8")
    compare_page.draw(comparison.results, path.with_suffix(".png"))
    print("\n" + compare_page.page(comparison.results))
    demo.say(
        f"{path}, {path.with_suffix('.png')}, {comparison.file}; {comparison.trained} trainings "
        f"were done now, in {time.monotonic() - comparison.started:.0f} s"
    )


def arguments():
    known = " ".join(method.name for method in METHODS)
    parser = argparse.ArgumentParser(prog="compare.py", description=__doc__)
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help=f"compare this method with raw; may be given several times. Methods: {known}",
    )
    parser.add_argument(
        "--again",
        action="append",
        default=[],
        metavar="NAME",
        help="forget the stored results of this method; may be given several times",
    )
    parser.add_argument(
        "--seeds",
        type=int,
        default=3,
        metavar="N",
        help="train with N seeds (default: %(default)s; with --quick 1)",
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=40,
        metavar="M",
        help="begin no training when so many minutes are over (default: %(default)s)",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="use a tiny model, which takes seconds: checks that all works, and gives no results",
    )
    parser.add_argument(
        "--text",
        metavar="FILE",
        help="a UTF-8 file: pre-train on its first half, fine-tune on its second half, in place "
        "of fortunes and the Bible",
    )
    parser.add_argument("--build", default="build/release", help="the build to use")
    parser.add_argument("--out", help="directory for models and logs (default: build/compare)")
    parser.add_argument(
        "--results",
        metavar="FILE.json",
        help="where results are stored (default: bench/results/compare.json)",
    )
    parser.add_argument(
        "--page", metavar="FILE.md", help="the page to write (default: docs/comparison.md)"
    )
    options = parser.parse_args()
    if options.quick:
        options.seeds = 1
    out = pathlib.Path(options.out or ("build/compare-quick" if options.quick else "build/compare"))
    root = HERE.parent
    options.out = out
    options.results = options.results or (
        out / "compare.json" if options.quick else HERE / "results" / "compare.json"
    )
    options.page = options.page or (
        out / "comparison.md" if options.quick else root / "docs" / "comparison.md"
    )
    if options.seeds < 1:
        parser.error("--seeds needs a number from 1 on")
    for names in (options.only, options.again):
        try:
            named(names)
        except ValueError as wrong:
            parser.error(str(wrong))
    return options


def main():
    try:
        run(arguments())
    except (demo.Failed, OSError) as failure:
        sys.exit(f"compare: {failure}")


if __name__ == "__main__":
    main()
