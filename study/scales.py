#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# scales.py - compares scale rules on a record of the demo's training, and by the loss of that
# training with each of them.
"""Pre-trains and fine-tunes the demo's model once, uncompressed, and records what its two stages
send. The record is replayed through every codec of the grid; then the fine-tuning is repeated with
some of them over an unshaped link. Writes tables, JSON and a picture."""

import argparse
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "examples"), str(ROOT / "bench")]
import demo  # noqa: E402 (the model, its texts and settings are the demo's)
from markdown_table import markdown  # noqa: E402

SCALES = ("absmax", "signed", "mse")
WIDTHS = range(1, 9)
GROUPS = ("32", "64", "128", "channel")  # a row has 128 channels here
STOCHASTIC = (1, 2, 3, 4, 6, 8)
LINK = "tcp://127.0.0.1:0"
# forward, backward; every one for each seed
TRAINED = [
    (f"delta:bits={bits},scale={scale}", f"direct:bits={back},scale={scale}")
    for bits, back in ((3, 4), (2, 4), (2, 2))
    for scale in SCALES
]
TRAINED += [("delta:bits=1,scale=mse", "direct:bits=4,scale=mse")]
# one direction alone
TRAINED += [(f"direct:bits=2,scale={scale}", "direct:bits=4,scale=signed") for scale in SCALES]
TRAINED += [("delta:bits=2,scale=mse", "direct:bits=2,scale=signed")]
TRAINED += [
    ("delta:bits=2,scale=signed", f"direct:bits={back}")
    for back in (
        "3,scale=signed",
        "3,scale=mse",
        "2,scale=mse",
        "2,scale=signed,rounding=stochastic",
        "2,scale=mse,rounding=stochastic",
    )
]


def codec(name, bits, scale="absmax", group="64", more=""):
    return f"{name}:bits={bits},scale={scale},group={group}{more}"


def grid(name):
    """All codecs of a direction."""
    codecs = [
        codec(name, bits, scale, group) for bits in WIDTHS for scale in SCALES for group in GROUPS
    ]
    return codecs + [
        codec(name, bits, scale, more=",rounding=stochastic,seed=1")
        for bits in STOCHASTIC
        for scale in SCALES
    ]


def replay(program, record, codecs, out):
    """{codec: the figures of replay}. The output of replay is shown as it arrives."""
    subprocess.run([str(program), "--json", str(out), str(record), *codecs], check=True)
    return dict(zip(codecs, json.loads(out.read_text())["codecs"]))


def figure(value):
    return f"{value:#.3g}"


def widths_table(forward, backward):
    rows = []
    for bits in WIDTHS:
        later = [forward[codec("delta", bits, scale)]["later"]["error"] for scale in SCALES]
        every = [backward[codec("direct", bits, scale)]["all"]["error"] for scale in SCALES]
        rows.append(
            [
                str(bits),
                *map(figure, later),
                f"{later[2] / later[1]:.3f}",
                *map(figure, every),
                f"{every[2] / every[1]:.3f}",
            ]
        )
    return markdown(
        [
            "bits",
            *(f"delta {scale}" for scale in SCALES),
            "mse / signed",
            *(f"direct {scale}" for scale in SCALES),
            "mse / signed",
        ],
        rows,
    )


def groups_table(forward, backward):
    rows = []
    for bits in (2, 3, 4, 8):
        for scale in SCALES:
            one = [forward[codec("delta", bits, scale, group)]["later"] for group in GROUPS]
            other = [backward[codec("direct", bits, scale, group)]["all"] for group in GROUPS]
            rows.append(
                [
                    str(bits),
                    scale,
                    *(figure(it["error"]) for it in one),
                    *(figure(it["error"]) for it in other),
                ]
            )
    return markdown(
        [
            "bits",
            "scale",
            *(f"delta {group}" for group in GROUPS),
            *(f"direct {group}" for group in GROUPS),
        ],
        rows,
    )


def stochastic_table(forward, backward):
    rows = []
    for bits in STOCHASTIC:
        errors = []
        for part, results, name in (("later", forward, "delta"), ("all", backward, "direct")):
            for scale in SCALES:
                errors.append(
                    results[codec(name, bits, scale, more=",rounding=stochastic,seed=1")][part][
                        "error"
                    ]
                )
        rows.append([str(bits), *map(figure, errors)])
    return markdown(
        ["bits", *(f"{name} {scale}" for name in ("delta", "direct") for scale in SCALES)], rows
    )


def train_all(runner, text, model, seeds):
    """[(forward, backward, [summary per seed])], raw first."""
    results = []
    for number, (forward, backward) in enumerate([("raw:f32", "raw:f32"), *TRAINED]):
        summaries = [
            runner.finetuned(
                f"run{number}-{seed}",
                f"{forward} / {backward}, seed {seed}",
                text,
                model,
                LINK,
                forward,
                backward,
                **{"seed": seed, "print-every": 90},
            )
            for seed in seeds
        ]
        results.append((forward, backward, summaries))
    return results


def training_table(results, seeds):
    raw = [summary["held_out_loss"] for summary in results[0][2]]
    rows = []
    for forward, backward, summaries in results:
        losses = [summary["held_out_loss"] for summary in summaries]
        more = [loss - base for loss, base in zip(losses, raw)]
        ratio = summaries[0]["raw_forward"] / summaries[0]["bytes_forward"]
        rows.append(
            [
                f"`{forward}`",
                f"`{backward}`",
                f"{ratio:.1f}x",
                *(f"{loss:.4f}" for loss in losses),
                f"{sum(more) / len(more):+.4f}",
            ]
        )
    return markdown(
        [
            "forward",
            "backward",
            "forward smaller by",
            *(f"seed {seed}" for seed in seeds),
            "mean over raw",
        ],
        rows,
    )


def draw(out, forward, backward):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    picture, axes = plt.subplots(1, 2, figsize=(12, 5))
    for axis, results, name, part in (
        (axes[0], forward, "delta", "later"),
        (axes[1], backward, "direct", "all"),
    ):
        for scale, style in zip(SCALES, ("o:", "s--", "D-")):
            for group, color in zip(GROUPS, ("tab:blue", "black", "tab:red", "tab:green")):
                points = [results[codec(name, bits, scale, group)][part] for bits in WIDTHS]
                axis.plot(
                    [it["bytes_per_element"] for it in points],
                    [it["error"] for it in points],
                    style,
                    color=color,
                    markersize=3,
                    linewidth=1,
                    label=f"{scale}, {group}",
                )
        axis.set(
            title="activations, later visits, delta" if name == "delta" else "gradients, direct",
            xlabel="bytes per element",
            ylabel="|x - y| / |x|",
            yscale="log",
        )
        axis.grid(True, which="both", alpha=0.3)
    axes[0].legend(fontsize="x-small", title="scale, group")
    picture.tight_layout()
    picture.savefig(out, dpi=110)


def run(options):
    out, build = pathlib.Path(options.out), pathlib.Path(options.build)
    runner = demo.Demo(argparse.Namespace(out=out, build=build, small=options.small))
    before, after = demo.texts(argparse.Namespace(text=options.text), out)
    model = runner.pretrained(before)
    record = out / "record"
    runner.train(
        "recorded",
        [
            "--text",
            str(after),
            "--init",
            str(model),
            "--record",
            str(record),
            "--print-every",
            "30",
            *demo.options_of(runner.finetune),
        ],
        "raw f32, recorded",
    )
    program = build / "study" / "replay"
    forward = replay(program, record / "forward-0.record", grid("delta"), out / "forward.json")
    backward = replay(program, record / "backward-1.record", grid("direct"), out / "backward.json")
    tables = [
        widths_table(forward, backward),
        groups_table(forward, backward),
        stochastic_table(forward, backward),
    ]
    if options.seeds:
        seeds = range(runner.finetune["seed"], runner.finetune["seed"] + options.seeds)
        tables.append(training_table(train_all(runner, after, model, seeds), seeds))
    (out / "scales.md").write_text("\n".join(tables))
    draw(out / "scales.png", forward, backward)
    print("\n" + "\n".join(tables))
    demo.say(f"{out}/scales.md, {out}/scales.png, {out}/forward.json, {out}/backward.json")


def main():
    parser = argparse.ArgumentParser(prog="./run scales", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--text",
        metavar="FILE",
        help="a UTF-8 file: pre-train on its first half, fine-tune on its second half",
    )
    parser.add_argument(
        "--seeds",
        type=int,
        default=3,
        help="trainings per codec; 0: only replay (default: %(default)s)",
    )
    parser.add_argument(
        "--small",
        action="store_true",
        help="a tiny model that takes seconds: checks that everything works, gives no results",
    )
    parser.add_argument("--build", default="build/scales", help=argparse.SUPPRESS)
    parser.add_argument(
        "--out",
        default="build/scales/out",
        help="directory for all results (default: %(default)s)",
    )
    try:
        run(parser.parse_args())
    except demo.Failed as failure:
        sys.exit(f"scales: {failure}")
    except subprocess.CalledProcessError as failure:
        sys.exit(f"scales: {failure.cmd[0]} exited with {failure.returncode}")


if __name__ == "__main__":
    main()
