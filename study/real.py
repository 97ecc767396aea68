#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# real.py - `./run real`: what codecs cost pretrained language models.
"""Measures codecs on pretrained language models. Their tensors are unlike those of small models
that were trained in minutes: a few channels and tokens have values hundreds of times as large as
all others. So no codec is judged without these models.

--once sends text through each model, forward only, and compares what comes out with the model
without codecs. Every tensor between two stages becomes a frame and is decoded again, as in a
pipeline."""

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
import report  # noqa: E402
import texts  # noqa: E402

CODECS = "raw:bf16 direct:bits=8 direct:bits=6 direct:bits=4 mx"


class Usage(Exception):
    """A mistake in the command line, in one sentence. Exit code 2."""


def checked(codec):
    try:
        deltawire.Config(codec)
    except deltawire.DeltawireError as error:
        raise Usage(f'"{codec}" is no codec: {error.why}') from None
    return codec


def run_once(names, options):
    codecs = [checked(codec) for codec in options.codecs.split()]
    if not codecs:
        raise Usage('--codecs needs at least one codec, such as --codecs "direct:bits=4 mx"')
    whole, everything = texts.text(), []
    for name in names:
        model = models.load(name, options.models)
        rows = texts.some(texts.shares(model, whole)["held"], options.rows, "--rows")
        found = once.measure(model, codecs, rows, options.f32)
        everything.append({**found, "text": texts.digest(whole)})
        print(report.once_table(found), flush=True)
        report.once_picture(found, options.out / f"{name}-once.png")
    return everything


def parsed(words):
    options = argparse.ArgumentParser(prog="run real", description=__doc__.splitlines()[0])
    what = options.add_mutually_exclusive_group(required=True)
    what.add_argument("--once", action="store_true", help="forward passes only")
    options.add_argument(
        "--model", default="smollm2", help=f"one or more of {','.join(models.SOURCES)}"
    )
    options.add_argument("--codecs", default=CODECS, help=f"for --once (default: {CODECS})")
    options.add_argument("--rows", type=int, default=128, help="rows of 128 tokens (default: 128)")
    options.add_argument("--f32", action="store_true", help="compute in float32, not in bf16")
    options.add_argument("--json", type=pathlib.Path, metavar="FILE", help="all figures")
    for name in ("models", "out"):
        default = ROOT / "build" / ("models" if name == "models" else "real")
        options.add_argument(f"--{name}", type=pathlib.Path, default=default, metavar="DIR")
    return options.parse_args(words)


def chosen(options):
    names = [name for name in options.model.replace(",", " ").split() if name]
    for name in names:
        if name not in models.SOURCES:
            raise Usage(f'there is no model "{name}": take one of {", ".join(models.SOURCES)}')
    if not names:
        raise Usage("--model needs the name of a model")
    return names


def main(words=None):
    """Returns the exit code."""
    options = parsed(words)
    try:
        for name in ("rows",):
            if getattr(options, name) < 1:
                raise Usage(f"--{name} must be at least 1")
        found = run_once(chosen(options), options)
        if options.json:
            options.json.write_text(json.dumps(found, indent=2) + "\n")
    except (Usage, models.Unreachable, models.Wrong) as error:
        print(f"real: {error}", file=sys.stderr)
        return {Usage: 2, models.Unreachable: 77}.get(type(error), 1)
    except deltawire.DeltawireError as error:
        print(f"real: {error.why}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
