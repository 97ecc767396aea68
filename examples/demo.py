#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# demo.py - fine-tunes a small GPT over a slow network, uncompressed and compressed, and compares
# the runs.
"""Everything here is `deltawire train` with public options; this script only starts it, reads its
logs and draws pictures.

A two-stage pipeline of two processes over TCP is fine-tuned on one text after a short pre-training
on another. The link is first measured unshaped; then its rate is set so that the uncompressed run
is 8 times slower, which is what AQ-SGD's authors measured for GPT2-1.5B at 100 Mbit/s, and every
run is timed behind that link, from its first step to its last evaluation. With --wire N the
uncompressed run is N times slower instead, and only the codecs that are worth it there are run.

The bare link and the best pair are so close that a busy moment of the machine would decide between
them. So each of the two is run three times, in turn, and the run of median wall clock counts."""

import argparse
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

SLOWDOWN = 8
TIMES = 3  # how often the bare link and the best pair are run
MODEL = {"layers": 4, "channels": 128, "heads": 4, "context": 128}
PRETRAIN = {"batch": 32, "micro-batches": 8, "steps": 400, "warmup": 20, "lr": 3e-3, "seed": 1}
FINETUNE = {
    "batch": 16,
    "micro-batches": 16,
    "epochs": 6,
    "samples": 240,
    "held-out": 64,
    "warmup": 5,
    "lr": 1e-3,
    "seed": 2,
}

RAW = ("raw", "raw f32", "raw:f32", "raw:f32")
TWO_BITS = (
    "delta2",
    "delta 2 / direct 4",
    "delta:bits=2,scale=signed",
    "direct:bits=4,scale=signed",
)
# The forward direction, which carries the evaluations, too, sets the pace of a slow wire. So the
# step backward need not be as large as it could be.
BEST = (
    "delta:form=step,step=1.8,entropy=rans",
    "direct:form=step,step=2.4,rounding=dither,entropy=rans",
)
BEST_TITLE = "delta 1.8 rms / dither 2.4 rms"
# name, what it is, forward, backward
RUNS = [
    RAW,
    ("delta", "delta 3 / direct 6", "delta:bits=3", "direct:bits=6"),
    ("direct", "direct 3 / direct 6", "direct:bits=3", "direct:bits=6"),
    TWO_BITS,
    ("direct2", "direct 2 / direct 4", "direct:bits=2,scale=signed", "direct:bits=4,scale=signed"),
    ("delta3", BEST_TITLE, *BEST),
]
# What --wire runs. The last one is the best pair here, too.
WIRE_RUNS = [RAW, TWO_BITS, ("best", BEST_TITLE, *BEST)]


class Failed(Exception):
    pass


def say(text):
    print(f"== {text}", flush=True)


def options_of(settings):
    return [word for name, value in settings.items() for word in (f"--{name}", str(value))]


class Demo:
    def __init__(self, arguments):
        self.out = pathlib.Path(arguments.out)
        self.stages = 2
        self.place = []  # options that say how the ranks are placed; of a pipeline: none
        self.program = pathlib.Path(arguments.build) / "cli" / "deltawire"
        self.started = time.monotonic()
        self.finetune = dict(FINETUNE)
        self.pretrain = dict(PRETRAIN)
        self.model = dict(MODEL)
        if arguments.small:  # minutes become seconds: a check that everything works, not a result
            self.model.update({"layers": 2, "channels": 64, "context": 64})
            self.pretrain.update({"steps": 20, "warmup": 5, "batch": 8})
            self.finetune.update({"samples": 32, "held-out": 16, "epochs": 2, "warmup": 1})
        self.out.mkdir(parents=True, exist_ok=True)
        if not self.program.exists():
            raise Failed(
                f"{self.program} is not built: `./run demo` builds it, with OpenBLAS and jansson "
                "installed"
            )

    def train(self, name, more, title):
        """Runs `deltawire train`; its output is shown as it arrives. Returns the summary event."""
        log = self.out / f"{name}.jsonl"
        say(f"[{time.monotonic() - self.started:4.0f} s] {title}")
        command = [
            str(self.program),
            "train",
            *(self.place or ["--local", str(self.stages)]),
            "--log",
            str(log),
            *options_of(self.model),
            *more,
        ]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        lines = []
        try:
            for line in process.stdout:
                lines.append(line.rstrip())
                if line.startswith(("step", "eval")):
                    print(f"   {line.rstrip()}", flush=True)
        except BaseException:
            process.terminate()
            process.wait()
            raise
        if process.wait() != 0:
            raise Failed(
                f"{' '.join(command)} exited with {process.returncode}:\n" + "\n".join(lines[-5:])
            )
        events = [json.loads(line) for line in log.read_text().splitlines()]
        return next(event for event in events if event["event"] == "summary")

    def pretrained(self, text):
        """A checkpoint of a short pre-training, computed once per settings, text and program."""
        digest = hashlib.sha256(json.dumps([self.model, self.pretrain]).encode())
        digest.update(text.read_bytes())
        digest.update(self.program.read_bytes())
        there = self.out / f"pretrained-{digest.hexdigest()[:16]}"
        if (there / "manifest.json").exists():
            say(f"pre-trained model: {there} (delete it to train anew)")
            return there
        for old in self.out.glob("pretrained-*"):
            shutil.rmtree(old)
        self.train(
            "pretrain",
            [
                "--text",
                str(text),
                "--save",
                str(there),
                "--print-every",
                "50",
                *options_of(self.pretrain),
            ],
            f"pre-training on {text.name}, {self.pretrain['steps']} steps, no slow wire",
        )
        return there

    def finetuned(self, name, title, text, model, link, forward, backward, more=(), **other):
        settings = {**self.finetune, **other}
        return self.train(
            name,
            [
                *more,
                "--text",
                str(text),
                "--init",
                str(model),
                "--link",
                link,
                "--forward",
                forward,
                "--backward",
                backward,
                "--print-every",
                "30",
                *options_of(settings),
            ],
            title,
        )


def shaped(bits_per_second):
    return f"shaped:rate={max(1, round(bits_per_second))}bit,delay=1ms/tcp://127.0.0.1:0"


def on_the_bare_link(demo, text, model):
    title = f"raw f32 on the bare link, {demo.finetune['epochs']} epochs"
    return demo.finetuned("unshaped", title, text, model, "tcp://127.0.0.1:0", *RAW[2:])


def calibrate(demo, text, model, epochs, slowdown):
    """Returns the last run on the bare link, and the rate at which raw f32 takes `slowdown` times
    as long as there.

    A slow wire's time is nearly proportional to 1 / rate, so one short run at a guess gives the
    rate."""
    # Other programs only ever make a run slower, so the faster one of two is closer to the truth.
    runs = [on_the_bare_link(demo, text, model) for _ in range(2)]
    bare, fastest = runs[-1], min(run["wall_s"] for run in runs)
    bits = 8.0 * max(bare["bytes_forward"], bare["bytes_backward"])
    rate = bits / (slowdown * fastest)
    probe = demo.finetuned(
        "probe",
        "the same for one epoch behind a guessed rate, to set the link",
        text,
        model,
        shaped(rate),
        "raw:f32",
        "raw:f32",
        epochs=1,
    )
    return bare, rate * (probe["wall_s"] * epochs / fastest) / slowdown


def median_of_turns(out, runs, results, times):
    """Runs each function of `runs` (by name) until it has run `times` times, in turn.

    results: {name: the summary of a first run, which was made already}. In its place the summary of
    the run of median wall clock is put; the log of that run stays in the folder `out`."""
    made = {name: [] for name in runs}
    for turn in range(times):
        for name, again in runs.items():
            result = again() if turn > 0 else results[name]
            made[name].append((result["wall_s"], (out / f"{name}.jsonl").read_bytes(), result))
    for name, turns in made.items():
        _, log, results[name] = sorted(turns, key=lambda turn: turn[0])[times // 2]
        (out / f"{name}.jsonl").write_bytes(log)


def default_texts(out):
    """Debian's fortunes to pre-train on, the King James Bible to fine-tune on."""
    fortunes, bible = out / "fortunes.txt", out / "bible.txt"
    folder = pathlib.Path("/usr/share/games/fortunes")
    parts = [
        p for p in sorted(folder.glob("*")) if p.is_file() and not p.is_symlink() and p.suffix == ""
    ]
    if not parts or not shutil.which("bible"):
        raise Failed("no texts: install the packages fortunes and bible-kjv, or give --text FILE")
    fortunes.write_bytes(b"".join(p.read_bytes() for p in parts))
    if not bible.exists() or bible.stat().st_size < 1 << 20:
        verses = subprocess.run(
            ["bible", "-f", "gen1:1-rev22:21"], capture_output=True, check=True
        ).stdout
        bible.write_bytes(verses)
    return fortunes, bible


def texts(arguments, out):
    if not arguments.text:
        return default_texts(out)
    text = pathlib.Path(arguments.text)
    if not text.is_file() or not os.access(text, os.R_OK):
        raise Failed(f"--text {text}: no readable file")
    pretrain, finetune = out / "first-half.txt", out / "second-half.txt"
    data = text.read_bytes()
    pretrain.write_bytes(data[: len(data) // 2])
    finetune.write_bytes(data[len(data) // 2 :])
    return pretrain, finetune


def total(summary, what):
    forward, backward = summary[f"{what}_forward"], summary[f"{what}_backward"]
    return None if forward is None or backward is None else forward + backward


def summarize(bare, rate, results, seconds):
    raw = results["raw"]
    summary = {
        "slowdown_raw": raw["wall_s"] / bare["wall_s"],
        "link_bits_per_second": rate,
        "unshaped_s": bare["wall_s"],
        "demo_s": seconds,
    }
    speedups = {"delta": "speedup", "delta2": "speedup2", "delta3": "speedup3"}
    speedups["best"] = "speedup_best"
    for name, result in results.items():
        if name in speedups:
            summary[speedups[name]] = raw["wall_s"] / result["wall_s"]
        summary[f"loss_{name}"] = result["held_out_loss"]
        summary[f"wall_{name}"] = result["wall_s"]
        summary[f"bytes_{name}"] = total(result, "bytes")
        summary[f"kernel_bytes_{name}"] = total(result, "kernel")
        summary[f"ratio_{name}"] = total(result, "raw") / total(result, "bytes")
        for part in ("compute", "codec", "wait"):
            summary[f"{part}_{name}"] = result[f"{part}_s"]
    if "delta" in results:
        summary["codec_share"] = results["delta"]["codec_s"] / results["delta"]["wall_s"]
    return summary


def at_least(summary, key, least):
    return (f"{key} >= {least}", summary[key] >= least, f"{summary[key]:.2f}")


def loss_at_most(summary, name, most):
    over = summary[f"loss_{name}"] / summary["loss_raw"]
    return (f"loss_{name} / loss_raw <= {most}", over <= most, f"{over:.4f}")


def slowed_down(summary, least, most):
    slowdown = summary["slowdown_raw"]
    return (f"{least:g} <= slowdown_raw <= {most:g}", least <= slowdown <= most, f"{slowdown:.2f}")


def kernel_agrees(summary, name):
    ours, kernel = summary[f"bytes_{name}"], summary[f"kernel_bytes_{name}"]
    return (
        f"bytes_{name} is what the kernel counted, within 2 %",
        kernel is not None and abs(ours - kernel) <= 0.02 * kernel,
        f"{ours} and {kernel}",
    )


def targets(summary):
    """Returns the claims of the demo: a list of (claim, whether it holds, the measured value)."""
    over_bare = summary["wall_delta3"] / summary["unshaped_s"]
    return [
        at_least(summary, "speedup", 4.3),
        at_least(summary, "speedup2", 5),
        at_least(summary, "speedup3", 7.2),
        ("wall_delta3 / unshaped_s <= 1.1", over_bare <= 1.1, f"{over_bare:.3f}"),
        loss_at_most(summary, "delta", 1.01),
        loss_at_most(summary, "delta2", 1.005),
        loss_at_most(summary, "delta3", 1.007),
        (
            "loss_delta2 < loss_direct2",
            summary["loss_delta2"] < summary["loss_direct2"],
            f"{summary['loss_delta2']:.4f} and {summary['loss_direct2']:.4f}",
        ),
        slowed_down(summary, 7, 9),
        kernel_agrees(summary, "raw"),
        kernel_agrees(summary, "delta"),
        kernel_agrees(summary, "delta3"),
    ]


def wire_targets(summary, wire):
    """Returns the claims of the demo with --wire, like targets. wire: its argument. How much faster
    the best pair must be is only known for 32."""
    faster = [at_least(summary, "speedup_best", 13)] if wire == 32 else []
    return [
        *faster,
        loss_at_most(summary, "best", 1.01),
        slowed_down(summary, 0.875 * wire, 1.125 * wire),
        kernel_agrees(summary, "raw"),
        kernel_agrees(summary, "best"),
    ]


def format_table(rows):
    """Rows of cells as a table in Markdown; the first row is its head."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    line = (
        lambda row: "| "
        + " | ".join(
            cell.ljust(w) if i == 0 else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(row, widths))
        )
        + " |"
    )
    rule = (
        "|" + "|".join("-" * (w + 1) + ("-" if i == 0 else ":") for i, w in enumerate(widths)) + "|"
    )
    return "\n".join([line(rows[0]), rule, *map(line, rows[1:])])


def result_table(bare, results, runs, head, bare_title, amounts):
    """Returns the rows of a table: the head, the run on bare links, and each of the results.

    head: the names of the columns. runs: tuples that begin with the name and the title of a run.
    amounts(result): the cells behind "faster", which say how much was sent."""
    rows = [head]
    titles = {name: title for name, title, *_ in runs}
    for name, result in [("bare", bare), *results.items()]:
        rows.append(
            (
                titles.get(name, bare_title),
                f"{result['held_out_loss']:.4f}",
                f"{result['wall_s']:.1f} s",
                f"{results['raw']['wall_s'] / result['wall_s']:.2f}x",
                *amounts(result),
                f"{result['compute_s']:.1f} s",
                f"{result['codec_s']:.2f} s",
                f"{result['wait_s']:.1f} s",
            )
        )
    return rows


def table(bare, results, runs):
    def amounts(result):
        return (
            f"{result['bytes_forward'] / 1e6:.1f} MB",
            f"{result['bytes_backward'] / 1e6:.1f} MB",
            f"{total(result, 'raw') / total(result, 'bytes'):.1f}x",
        )

    head = "held-out wall faster forward backward ratio compute codec wait".split()
    head = ("run (forward / backward)", *head)
    return format_table(result_table(bare, results, runs, head, "raw f32, bare link", amounts))


def draw(out, rate, runs):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(9, 5.5))
    curves = [("unshaped", "raw f32, bare link")] + [(name, title) for name, title, *_ in runs]
    for name, title in curves:
        events = [json.loads(line) for line in (out / f"{name}.jsonl").read_text().splitlines()]
        points = [(e["wall_s"], e["loss"]) for e in events if e["event"] == "eval"]
        style = {"color": "black", "linestyle": ":"} if name == "unshaped" else {}
        axes.plot(
            *zip(*points), marker="o", markersize=4, label=f"{title}: {points[-1][1]:.4f}", **style
        )
    axes.set_xscale("log")
    axes.set_xlabel(f"wall clock, seconds, behind a link of {rate / 1e6:.1f} Mbit/s")
    axes.set_ylabel("held-out loss, nats per byte")
    axes.set_title("Fine-tuning over a slow wire: a point per epoch")
    axes.grid(alpha=0.3, which="both")
    axes.legend(title="forward / backward: final loss")
    figure.tight_layout()
    figure.savefig(out / "loss.png", dpi=110)


def report(out, bare, rate, results, runs, summary, aims):
    """Writes the summary and the picture, and prints the table and the targets. Returns how many
    targets were missed."""
    (out / "summary.json").write_text(json.dumps(summary, indent=2, sort_keys=True) + "\n")
    draw(out, rate, runs)
    print("\n" + table(bare, results, runs) + "\n")
    missed = print_targets(aims)
    print_end(out, summary["demo_s"], missed)
    return missed


def print_targets(aims):
    """Prints the targets, if there are any. Returns how many were missed."""
    missed = 0
    if aims is None:
        print("   --small only shows that everything works; it is too short to aim at any target.")
    for what, holds, value in aims or []:
        print(f"   {'holds ' if holds else 'MISSED'}  {what}: {value}")
        missed += not holds
    return missed


def print_end(out, seconds, missed):
    print(f"\n   {out}/summary.json, {out}/loss.png, {out}/*.jsonl; {seconds:.0f} s in all")
    if missed:
        print(
            "   A target was missed. Timings need a machine that does nothing else: close what "
            "runs beside, and try again."
        )


def run(arguments):
    wire = arguments.wire
    if arguments.out is None:
        beside = pathlib.Path(arguments.build).parent
        arguments.out = beside / (f"demo-wire{wire}" if wire else "demo")
    out = pathlib.Path(arguments.out)
    demo = Demo(arguments)
    pretrain_text, finetune_text = texts(arguments, out)
    model = demo.pretrained(pretrain_text)
    bare, rate = calibrate(
        demo, finetune_text, model, demo.finetune["epochs"], arguments.wire or SLOWDOWN
    )
    say(f"the link: {rate / 1e6:.2f} Mbit/s each way, 1 ms delay")
    runs, results = WIRE_RUNS if wire else RUNS, {"unshaped": bare}

    def behind_the_link(name, title, forward, backward):
        return demo.finetuned(name, title, finetune_text, model, shaped(rate), forward, backward)

    for each in runs:
        results[each[0]] = behind_the_link(*each)
    turns = {
        "unshaped": lambda: on_the_bare_link(demo, finetune_text, model),
        runs[-1][0]: lambda: behind_the_link(*runs[-1]),
    }
    median_of_turns(out, turns, results, 1 if arguments.small else TIMES)
    bare = results.pop("unshaped")
    summary = summarize(bare, rate, results, time.monotonic() - demo.started)
    aims = None
    if not arguments.small:
        aims = wire_targets(summary, wire) if wire else targets(summary)
    missed = report(out, bare, rate, results, runs, summary, aims)
    return 1 if missed and arguments.strict else 0


def slowdown(text):
    """Converts the argument of --wire to a number, or refuses it."""
    value = int(text) if text.isascii() and text.isdigit() and len(text) < 5 else 0
    if not 2 <= value <= 1000:
        raise argparse.ArgumentTypeError(f'"{text}" is not a whole number from 2 to 1000')
    return value


def grid(text):
    """Converts the argument of --grid to the numbers of stages and replicas, or refuses it."""
    words = text.split("x")
    if len(words) != 2 or not all(word.isascii() and word.isdigit() for word in words):
        raise argparse.ArgumentTypeError(f'"{text}" is not like 2x2: stages x replicas')
    stages, replicas = map(int, words)
    if not 2 <= stages <= 4 or not 2 <= replicas <= 16:
        raise argparse.ArgumentTypeError(
            f'"{text}": there can be 2 to {MODEL["layers"]} stages and 2 to 16 replicas'
        )
    return stages, replicas


def main():
    sys.modules["demo"] = sys.modules[__name__]  # which demo_grid imports
    import demo_grid

    parser = argparse.ArgumentParser(prog="./run demo", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--text",
        metavar="FILE",
        help="a UTF-8 file: pre-train on its first half, fine-tune on its second half",
    )
    parser.add_argument(
        "--wire",
        metavar="N",
        type=slowdown,
        help=f"a link that makes the uncompressed run N times slower ({SLOWDOWN} without this "
        "option), with the fewest codecs: raw, delta 2 / direct 4, and the best pair",
    )
    parser.add_argument(
        "--grid",
        metavar="KxD",
        type=grid,
        help="instead: D replicas of a pipeline of K stages, such as 2x2, whose weight gradients "
        "cross slow links, too",
    )
    parser.add_argument(
        "--small",
        action="store_true",
        help="a tiny model that takes seconds: checks that everything works, gives no results",
    )
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a target is missed")
    parser.add_argument("--build", default="build/release", help=argparse.SUPPRESS)
    parser.add_argument(
        "--out",
        help="directory for all results (default: build/demo; with --wire N: build/demo-wireN; "
        "with --grid: build/demo-grid)",
    )
    arguments = parser.parse_args()
    if arguments.grid and arguments.wire:
        parser.error("--wire and --grid are two different demos; give one of them")
    try:
        return demo_grid.run(arguments) if arguments.grid else run(arguments)
    except Failed as failure:
        print(f"demo: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("demo: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
