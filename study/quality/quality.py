#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# quality.py - `./run quality`: measures rate and error of all codecs and baselines on recorded and
# synthetic tensors, and compares them.
"""Trains the demo's model as a pipeline of four stages, uncompressed, and records the tensors that
its stages send each other. Sends these and synthetic tensors through every codec of deltawire and
through published baselines. Reports which has the least error at each rate, where a baseline is
ahead of deltawire, and how many bits deltawire takes at the errors of its codec delta. Writes JSON,
tables and a picture."""

import argparse
import json
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE), str(ROOT / "bench"), str(ROOT / "examples")]
import demo  # noqa: E402 (the model, its texts and settings are the demo's)
import frontier  # noqa: E402
import sets  # noqa: E402
from markdown_table import markdown  # noqa: E402

STAGES = 4
# The rates in the tables of errors. A baseline with 1, 2, 3 or 4 bits per code takes a little less.
SHOWN = (1.25, 2.25, 3.25, 4.5)
# A claim that is judged. For each width of delta's codes: how many bits deltawire's best codec may
# take at most at the error of delta with this width.
WANTED = {4: 3.75, 3: 2.7, 2: 1.75}
# The sets, and the codecs and baselines, of which the tables show all figures.
IN_FULL = ("forward-1", "backward-1")
FULL = (
    "direct:bits=4,scale=signed",
    "direct:bits=2,rounding=stochastic,seed=1",
    "mx:element=e2m1",
    "direct:form=step,group=sample,step=1.4,entropy=rans",
    "direct:form=step,group=sample,step=2.8,entropy=rans",
    "direct:form=step,group=sample,step=1.2,rounding=dither,seed=1,entropy=rans",
    "direct:form=step,group=sample,step=2,rounding=dither,seed=1,entropy=rans",
    "direct:form=step,group=sample,step=4,rounding=dither,seed=1,entropy=rans",
    "direct:form=step,group=sample,step=0.7,rounding=trellis,entropy=rans",
    "delta:bits=4,scale=signed",
    "delta:bits=2,scale=signed",
    "delta:form=step,group=sample,step=0.4,entropy=rans",
    "delta:form=step,group=sample,step=1.4,entropy=rans",
    "delta:form=step,group=sample,step=1.4,deadzone=0.62,entropy=rans",
    "delta:form=step,group=sample,error=0.1,entropy=rans",
    "delta:form=step,group=sample,step=0.18,rounding=trellis,entropy=rans",
    "delta:form=step,group=sample,step=0.7,rounding=trellis,entropy=rans",
    "delta:form=step,group=sample,step=2,entropy=rans",
    "delta:form=step,group=sample,step=2,rounding=dither,seed=1,entropy=rans",
    "acsgd:bits=4",
    "rowwise:bits=4",
    "blockwise:linear,block=256",
    "blockwise:dynamic,block=256",
    "blockwise:normal,block=64",
    "zfp:rate=4",
    "zfp:tolerance=0.5",
    "changes by acsgd:bits=2",
    "changes by acsgd:bits=4",
)
SCOPE_TITLES = {"alone": "each tensor alone", "changes": "changes"}


def recorded(options, out):
    """Returns the folder with the recorded tensors of the demo's training. Trains first, unless the
    folder is complete from an earlier run. options are those of main; out is the folder in which
    texts, models and records lie."""
    runner = demo.Demo(argparse.Namespace(out=out, build=options.build, small=options.small))
    before, after = demo.texts(argparse.Namespace(text=options.text), out)
    model = runner.pretrained(before)
    stages = min(STAGES, runner.model["layers"])
    folder = out / f"record-{model.name.rpartition('-')[2]}"
    if (folder / "complete").exists():
        demo.say(f"recorded tensors: {folder} (delete it to record anew)")
    else:
        for old in out.glob("record-*"):
            shutil.rmtree(old)
        words = ["--local", stages, "--text", after, "--init", model, "--record", folder]
        settings = demo.options_of({**runner.finetune, "print-every": 30})
        runner.train(
            "recorded", [*map(str, words), *settings], f"raw f32 in {stages} stages, recorded"
        )
        (folder / "complete").touch()
    return folder


def boundaries(folder):
    """Returns [(name, title, file)] of all records that `deltawire train --record` wrote to a
    folder, activations first. Boundary B lies between the ranks B - 1 and B. A file is named after
    the rank that sent its tensors: B - 1 for activations, and B for gradients."""
    found = []
    for name, what, first in (("forward", "activations", 1), ("backward", "gradients", 0)):
        for path in folder.glob(f"{name}-*.record"):
            boundary = int(path.stem.rpartition("-")[2]) + first
            found.append((name, boundary, what, path))
    if not found:
        raise demo.Failed(f"{folder} has no forward-R.record or backward-R.record")
    found.sort(key=lambda one: (one[0] != "forward", one[1]))
    return [
        (f"{name}-{boundary}", f"{what}, boundary {boundary}", path)
        for name, boundary, what, path in found
    ]


def synthetic(out, small):
    """Writes the synthetic sets to the folder out, tiny ones with small. Returns their
    [(name, title, file)]."""
    titles = {
        "gaussian": "Gaussian",
        "laplace": "Laplace",
        "outliers": f"Gaussian, 1 % of channels {sets.TIMES} times as large",
    }
    shape = (2, 2, 16, 128) if small else (16, 5, 128, 768)
    found = []
    for kind in sets.KINDS:
        path = out / f"{kind}.record"
        sets.write(path, kind, *shape)
        found.append((kind, titles[kind], path))
    return found


def measure(program, path, samples, result):
    """Runs the program quality on one set, with all samples if samples is 0. Returns its figures,
    which it wrote to the JSON file result. What it printed goes to a text file beside that."""
    words = [str(program), "--json", str(result)]
    words += ["--samples", str(samples)] if samples else []
    done = subprocess.run([*words, str(path)], capture_output=True, text=True)
    if done.returncode:
        raise demo.Failed(f"{' '.join(words)} {path}: {done.stderr.strip()}")
    result.with_suffix(".txt").write_text(done.stdout)
    return json.loads(result.read_text())


def judge(the_set):
    """Adds to a set what follows from its rows: under "frontier", where baselines are ahead and
    which one comes closest; under "at_the_error_of_delta", how many bits deltawire's best codec
    takes at the error of delta with 4, 3 and 2 bits."""
    rows = the_set["rows"]
    the_set["frontier"] = {
        scope: {
            "rates_where_a_baseline_is_ahead": frontier.ahead(rows, scope),
            "closest_baseline": dict(
                zip(("more_bits", "codec"), frontier.closest(rows, scope) or (None, None))
            ),
        }
        for scope in frontier.SCOPES
    }
    ours = [row for row in rows if row["ours"]]
    the_set["at_the_error_of_delta"] = {}
    for bits in WANTED:
        its = [row for row in rows if row["codec"] == f"delta:bits={bits},scale=signed"]
        if its and its[0]["later"]["error"]:
            error = its[0]["later"]["error"]
            the_set["at_the_error_of_delta"][str(bits)] = {
                "error": error,
                "bits": frontier.bits_at(ours, error),
            }


def ranges(ahead):
    """Returns the rates at which baselines are ahead as text, such as "1.2 to 1.5, 2 bits". ahead
    is what frontier.ahead returned."""
    runs = []
    for rate in (one["rate"] for one in ahead):
        if runs and round(rate - runs[-1][1], 2) <= 0.05:
            runs[-1][1] = rate
        else:
            runs.append([rate, rate])
    words = [f"{first:g}" if first == last else f"{first:g} to {last:g}" for first, last in runs]
    return ", ".join(words) + " bits" if words else "none"


def show(best):
    """Returns what frontier.least returned as the text of a cell."""
    return f"{best[0]:.3g}, `{best[1].replace('changes by ', '')}`" if best else "-"


def errors_table(all_sets):
    """Returns the table of errors at the rates SHOWN: those of deltawire beside those of the best
    baseline, for tensors alone and for changes."""
    rows = []
    for the_set in all_sets:
        for rate in SHOWN:
            cells = []
            for scope in ("alone", "changes"):
                inside = frontier.in_scope(the_set["rows"], scope)
                ours = [row for row in inside if row["ours"]]
                others = [row for row in inside if not row["ours"]]
                best = frontier.least(ours, rate)
                cells += [f"{best[0]:.3g}" if best else "-", show(frontier.least(others, rate))]
            rows.append([the_set["title"], str(rate), *cells])
    return markdown(
        [
            "set",
            "bits",
            "alone: deltawire",
            "best baseline",
            "changes: deltawire",
            "best baseline",
        ],
        rows,
    )


def frontier_table(all_sets):
    """Returns the table of rates at which a baseline is ahead, and of the closest baselines."""
    rows = []
    for the_set in all_sets:
        cells = [the_set["title"], f"{the_set['change']:.2f}"]
        for scope in ("alone", "changes"):
            its = the_set["frontier"][scope]
            close = its["closest_baseline"]
            cells.append(ranges(its["rates_where_a_baseline_is_ahead"]))
            cells.append(
                f"{close['more_bits']:+.2f} bits, `{close['codec'].replace('changes by ', '')}`"
                if close["codec"]
                else "-"
            )
        rows.append(cells)
    head = ["set", "change"]
    for scope in ("alone", "changes"):
        head += [f"{SCOPE_TITLES[scope]}: a baseline is ahead at", "the closest one"]
    return markdown(head, rows)


def delta_table(all_sets):
    """Returns the table of bits that deltawire's best codec takes at the errors of delta."""
    rows = []
    for the_set in all_sets:
        its = the_set["at_the_error_of_delta"]
        cells = [
            f"{its[str(bits)]['bits']:.2f} at {its[str(bits)]['error']:.3g}"
            if str(bits) in its
            else "-"
            for bits in WANTED
        ]
        rows.append([the_set["title"], *cells])
    wanted = [f"`delta:bits={bits}`" for bits in WANTED]
    return markdown(["bits at the error of", *wanted], rows)


def codecs_table(the_set):
    """Returns the table of all figures of the codecs and baselines FULL on one set. The JSON file
    has those of all."""
    by_codec = {row["codec"]: row for row in the_set["rows"]}
    rows = []
    for codec in FULL:
        if codec not in by_codec:
            continue
        first, its = by_codec[codec]["first"], by_codec[codec]["later"]
        rows.append(
            [
                f"`{codec}`",
                f"{first['bits']:.2f}",
                f"{its['bits']:.3f}",
                f"{its['error']:.3g}",
                f"{its['cosine']:.5f}",
                f"{1e4 * its['bias']:+.1f} ({1e4 * its['bias_sigma']:.1f})",
                f"{its['gain']:.4f}",
                f"{its['encode_GBps']:.1f} / {its['decode_GBps']:.1f}",
            ]
        )
    return markdown(
        [
            the_set["title"],
            "bits, first visit",
            "bits",
            "error",
            "cosine",
            "bias (sigma), 10^-4 rms",
            "gain",
            "GB/s",
        ],
        rows,
    )


def claims(all_sets):
    """Returns [(claim, whether it holds, figures)]: that no baseline is ahead anywhere, and that
    deltawire keeps to WANTED on recorded activations."""
    behind = [
        f"{the_set['title']}, {ranges(its)} ({', '.join(sorted({one['baseline'] for one in its}))})"
        for the_set in all_sets
        if (its := the_set["frontier"]["all"]["rates_where_a_baseline_is_ahead"])
    ]
    found = [
        (
            "rates from 0.5 to 5 bits at which a baseline is ahead: none, on any set",
            not behind,
            "; ".join(behind) or "none",
        )
    ]
    for bits, wanted in WANTED.items():
        its = [
            the_set["at_the_error_of_delta"].get(str(bits))
            for the_set in all_sets
            if the_set["name"].startswith("forward")
        ]
        needed = [one["bits"] for one in its if one]
        if needed:
            found.append(
                (
                    f"activations, bits at the error of delta:bits={bits}: at most {wanted}",
                    max(needed) <= wanted,
                    " ".join(f"{one:.2f}" for one in needed),
                )
            )
    return found


def run(options):
    """Makes and records the tensors, measures every set, and reports."""
    result = pathlib.Path(options.out)
    out = pathlib.Path(options.work or pathlib.Path(options.build) / "out")
    out = out / "small" if options.small else out
    out.mkdir(parents=True, exist_ok=True)
    result.parent.mkdir(parents=True, exist_ok=True)
    folder = pathlib.Path(options.record) if options.record else recorded(options, out)
    chosen = [*synthetic(out, options.small), *boundaries(folder)]
    program = pathlib.Path(options.build) / "study" / "quality"
    all_sets = []
    for name, title, path in chosen:
        demo.say(f"{title}: every codec and every baseline")
        the_set = measure(program, path, options.samples, out / f"{name}.json")
        the_set.update({"name": name, "title": title, "set": path.name})
        judge(the_set)
        all_sets.append(the_set)
    report(all_sets, result, options.small)


def report(all_sets, result, small=False):
    """Prints the tables and claims, and writes JSON (result), tables (.md) and picture (.png)."""
    import picture

    tables = [frontier_table(all_sets), delta_table(all_sets), errors_table(all_sets)]
    tables += [codecs_table(the_set) for the_set in all_sets if the_set["name"] in IN_FULL]
    verdicts = claims(all_sets)
    result.with_suffix(".md").write_text("\n".join(tables))
    picture.draw(all_sets, result.with_suffix(".png"))
    whole = {
        "small": small,
        "claims": [
            {"claim": claim, "holds": holds, "figure": figure} for claim, holds, figure in verdicts
        ],
        "sets": all_sets,
    }
    result.write_text(json.dumps(whole, indent=1) + "\n")
    print("\n" + "\n".join(tables))
    if small:
        print("With --small, headers are longer than codes, so nothing follows from the figures.")
    for claim, holds, figure in [] if small else verdicts:
        print(f"{'holds' if holds else 'FAILS'}: {claim}: {figure}")
    if all_sets[0]["left_out"]:
        library = all_sets[0]["left_out"]
        print(f"The baselines of {library} are left out: this build does not have that library.")
    demo.say(f"written: {result}, {result.with_suffix('.md')}, {result.with_suffix('.png')}")


def main():
    parser = argparse.ArgumentParser(prog="./run quality", description=__doc__)
    parser.add_argument(
        "--text",
        metavar="FILE",
        help="a UTF-8 file: pre-train on its first half, and record a training on its second half "
        "(default: the texts of the demo)",
    )
    parser.add_argument(
        "--record",
        metavar="DIR",
        help="use the tensors that `deltawire train --record DIR` wrote, instead of the demo's",
    )
    parser.add_argument(
        "--samples",
        type=int,
        default=64,
        metavar="N",
        help="use the first N samples of each set, or all of them with 0 (default: %(default)s)",
    )
    parser.add_argument(
        "--small",
        action="store_true",
        help="a tiny model and tiny sets: checks that everything works, gives no results",
    )
    parser.add_argument("--build", default="build/quality", help=argparse.SUPPRESS)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.add_argument(
        "--out",
        default="build/quality/quality.json",
        metavar="FILE.json",
        help="write all figures to FILE.json, and tables (.md) and picture (.png) beside it "
        "(default: %(default)s)",
    )
    options = parser.parse_args()
    if options.samples < 0:
        parser.error("--samples takes a number from 0 on")
    try:
        run(options)
    except demo.Failed as failure:
        sys.exit(f"quality: {failure}")


if __name__ == "__main__":
    main()
