#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# compare.py - `./run compare`: trains with every method of compare_methods.py, as codec of
# activations, of their gradients, and of weight gradients, and writes docs/comparison.md.
"""Fine-tunes the demo's model with every method and role, with several seeds. Every result is
stored as soon as it is there, so a run that was interrupted continues where it stopped.

To save time, one training with the first seed gives both the loss and the wall clock behind the
slow wire; the other seeds train over links that are not slowed down, which gives the same bits and
the same losses. The pre-trained model is one for all trainings, and each speed is measured once for
each codec, whatever its roles.

Losses and bits are the same on a busy machine, but times are not: with --untimed nothing is timed.
Results of several machines go together. A training is compared with raw's on the same machine, so
raw is trained again where that is missing, and a wall clock with that machine's bare link."""

import argparse
import json
import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "examples"), str(HERE.parent / "bench")]
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
    option,
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


def figures(summary, role, share=1):
    """What a training's summary says of a role. share: which part of all values is given to the
    codec; the bits are per value of all."""
    way = WAYS[role]
    return {
        "loss": summary["held_out_loss"],
        "wall_s": summary["wall_s"],
        "bits": share * 32 * summary[f"bytes_{way}"] / summary[f"raw_{way}"],
    }


def share_of(method, channels):
    """Which part of all values a method gives to its codec: the channels of its bottleneck, or one
    step in so many local ones."""
    narrow = option(method, "--bottleneck", channels) / channels
    return narrow / option(method, "--local-steps", 1)


class Comparison:
    def __init__(self, options):
        self.options, self.started = options, time.monotonic()
        self.out, self.file = pathlib.Path(options.out), pathlib.Path(options.results)
        words = {"out": self.out, "build": options.build, "small": options.quick}
        self.pipeline = demo.Demo(argparse.Namespace(**words))
        self.grid = demo_grid.Grid(argparse.Namespace(**words, grid=(2, 2)))
        self.narrow = demo.Demo(argparse.Namespace(**{**words, "out": self.out / "bottleneck"}))
        for runner in (self.pipeline, self.grid, self.narrow):
            runner.finetune["epochs"] = min(EPOCHS, runner.finetune["epochs"])
        self.speed = pathlib.Path(options.build) / "study" / "speed"
        if not self.speed.exists():
            raise demo.Failed(f"{self.speed} is not built: `./run compare` builds it")
        self.methods, self.machine = named(options.only), machine()
        self.results = self.read()
        self.trained = 0

    def read(self):
        """The results of earlier runs with the same settings, or none."""
        settings = {
            "epochs": self.pipeline.finetune["epochs"],
            "model": self.pipeline.model,
            "pipeline": self.pipeline.finetune,
            "grid": self.grid.finetune,
        }
        results = {"trainings": [], "speeds": {}, "machines": {}}
        if self.file.exists():
            results = json.loads(self.file.read_text())
            there = {name: results["settings"].get(name) for name in settings}
            if there != settings:
                raise demo.Failed(
                    f"{self.file} has results of other settings: move it away, or name another "
                    "file with --results"
                )
        again = set(self.options.again)
        results["trainings"] = [t for t in results["trainings"] if t["method"] not in again]
        gone = texts_of([m for m in METHODS if m.name in again])
        results["speeds"] = {k: v for k, v in results["speeds"].items() if k not in gone}
        seeds = max(self.options.seeds, results.get("settings", {}).get("seeds", 1))
        results.update(settings={**settings, "seeds": seeds}, skipped={})
        results["machines"].setdefault(self.machine, {"rates": {}, "wall_bare": {}})
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
        if missing and self.options.untimed:
            found = speeds_of(self.speed, ["--parse", *missing])
        else:
            demo.say(f"speeds of {len(missing)} codecs")
            found = speeds_of(self.speed, missing)
            taken = {text: line for text, line in found.items() if "refused" not in line}
            speeds.update({k: {**line, "machine": self.machine} for k, line in taken.items()})
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
            (method, role, seed, seed == first and not self.options.untimed)
            for seed in range(first, first + self.options.seeds)
            for method in self.methods
            for role in ROLES
            if method.texts.get(role, "") not in ("", *self.results["skipped"])
        ]

    def stored(self, method, role, seed, machines):
        """The results of such a training on one of these machines."""
        key = (method.name, role, seed, method.texts[role], list(method.options))
        return [
            t
            for t in self.results["trainings"]
            if (t["method"], t["role"], t["seed"], t["text"], t.get("options", [])) == key
            and t["machine"] in machines
        ]

    def is_done(self, method, role, seed, behind_wire, machines):
        found = self.stored(method, role, seed, machines)
        return any(t["behind_wire"] or not behind_wire for t in found)

    def missing(self):
        """The trainings that are left to do: of those that are wanted, what no machine has done,
        and raw's on this machine where another method is compared with it."""
        machines, raw, wanted = self.results["machines"], METHODS[0], self.wanted()
        left = [one for one in wanted if not self.is_done(*one, machines)]
        beside = {(role, seed) for _, role, seed, _ in left}
        return [
            one
            for one in wanted
            if one in left
            or (one[0] is raw and one[1:3] in beside and not self.is_done(*one, [self.machine]))
        ]

    def calibrate(self):
        """Finds the rates of the wires that make an uncompressed training 8 times as slow."""
        here = self.results["machines"][self.machine]
        rates, walls = here["rates"], here["wall_bare"]
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
        forward, backward, gradient = ({**PARTNERS, role: method.texts[role]}.get(r) for r in ROLES)
        place = "grid" if role == GRADIENT else "pipeline"
        rates = self.results["machines"][self.machine]["rates"]
        link = demo.shaped(rates[place]) if behind_wire else BARE
        wire = "slow wire" if behind_wire else "bare links"
        runner, model, more = self.runner(method, place)
        epochs = max(1, runner.finetune["epochs"] // option(method, "--repeat", 1))
        words = ("training", f"{method.title} for {role}, seed {seed}, {wire}", self.text, model)
        words += (link, forward, backward, *([gradient] if role == GRADIENT else []))
        result = {
            "method": method.name,
            "role": role,
            "seed": seed,
            "text": method.texts[role],
            "options": list(method.options),
            "machine": self.machine,
            "behind_wire": behind_wire,
        }
        train = runner.trained if place == "grid" else runner.finetuned
        try:
            summary = train(*words, more=more, seed=seed, epochs=epochs)
            result.update(figures(summary, role, share_of(method, runner.model["channels"])))
        except demo.Failed as failure:
            result["failed"] = str(failure).strip().splitlines()[-1]
            demo.say(f"failed: {result['failed']}")
        self.store(method, result)

    def runner(self, method, place):
        """What trains with this method, from which model, and with which more options. A bottleneck
        is a part of the model, so the model is pre-trained with it."""
        width = option(method, "--bottleneck", 0)
        if not width:
            return (self.grid if place == "grid" else self.pipeline), self.model, method.options
        self.narrow.model["bottleneck"] = width
        return self.narrow, self.narrow.pretrained(self.before), ()

    def store(self, method, result):
        """Stores a result, in place of one of the same training; of raw each machine has one."""
        machines = [self.machine] if method is METHODS[0] else self.results["machines"]
        old = self.stored(method, result["role"], result["seed"], machines)
        self.results["trainings"] = [t for t in self.results["trainings"] if t not in old]
        self.results["trainings"].append(result)
        self.trained += 1
        self.write()

    def run(self):
        self.before, self.text = demo.texts(argparse.Namespace(text=self.options.text), self.out)
        self.check_codecs()
        missing = self.missing()
        if missing:
            self.model = self.pipeline.pretrained(self.before)
        if any(behind_wire for _, _, _, behind_wire in missing):
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
        "--untimed",
        action="store_true",
        help="measure losses and bits alone, for a machine that does other things as well",
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
        help="where results are stored (default: compare.json in --out)",
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
    options.results = options.results or out / "compare.json"
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
