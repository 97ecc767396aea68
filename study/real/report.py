# SPDX-License-Identifier: Apache-2.0
# report.py - tables and pictures of what was measured.
from __future__ import annotations

import pathlib
import statistics
import sys

from intervals import mean_of, told

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
from markdown_table import markdown  # noqa: E402

RAW_PAIR = "raw/raw"
WAYS = ("bits_forward", "bits_backward", "bits_weights")


def once_table(found: dict) -> str:
    """The table of one model that once.measure returned."""
    judged = "loss over raw, %" if found["loss"] is not None else "1 - cosine"
    head = ["codec", "bits", "bits at each boundary", judged, "KL", "flips, %"]
    head += ["error of tokens, mean", "largest", "without outliers", "escaped values", "fits"]
    rows = []
    for codec, its in found["codecs"].items():
        rows.append(
            [
                f"`{codec}`",
                f"{its['bits']:.2f}",
                " ".join(f"{bits:.2f}" for bits in its["bits_at"]),
                (
                    told(its["over_raw_percent"], "+.2f")
                    if "over_raw_percent" in its
                    else told(its["apart"], ".5f")
                ),
                told(its["kl"], ".5f"),
                told(its["flips_percent"], ".2f"),
                " ".join(f"{error:.4f}" for error in its["error_at"]),
                " ".join(f"{error:.3f}" for error in its["largest_error_at"]),
                " ".join(f"{error:.3f}" for error in its["bulk_error_at"]),
                " ".join(str(count) for count in its["escaped_values"]),
                " ".join("no" if sentence else "-" for sentence in its["misfit"]),
            ]
        )
    base = "" if found["loss"] is None else f", raw loss {found['loss']:.4f}"
    return f"{found['model']}: {found['rows']} rows, {found['dtype']}{base}\n\n" + markdown(
        head, rows
    )


def _plot():
    """matplotlib's pyplot, or None and a sentence."""
    try:
        import matplotlib
    except ImportError:
        print("matplotlib is not installed, so no picture is drawn", file=sys.stderr)
        return None
    matplotlib.use("Agg")
    import matplotlib.pyplot

    return matplotlib.pyplot


def _finish(plot, figure, axis, path: pathlib.Path) -> None:
    axis.grid(True, which="both", alpha=0.3)
    axis.legend(fontsize="x-small")
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plot.close(figure)


def once_picture(found: dict, path: pathlib.Path) -> None:
    """KL divergence from the raw model against bits, both with the intervals of the table."""
    plot = _plot()
    if plot is None:
        return
    figure, axis = plot.subplots(figsize=(9, 6))
    for codec, its in found["codecs"].items():
        mean, half = its["kl"]
        axis.errorbar(its["bits"], mean, yerr=half, fmt="o", capsize=3, label=codec)
    axis.set(
        title=f"{found['model']}, {found['rows']} rows, {found['dtype']}",
        xlabel="bits per value, mean of the boundaries",
        ylabel="KL divergence from the raw model, nats",
        yscale="log",
    )
    _finish(plot, figure, axis, path)


def summary(runs: dict) -> list[dict]:
    """runs: {pair: {seed: epochs}} of one model, with RAW_PAIR. Returns, for each pair and
    epoch, the bits and by how many percent of raw's its losses differ from those of raw with the
    same seeds: [mean, half of the width of its interval]."""
    found = []
    for pair, by_seed in runs.items():
        for number in range(len(next(iter(by_seed.values())))):
            its = {seed: epochs[number] for seed, epochs in by_seed.items()}
            raw = {seed: runs[RAW_PAIR][seed][number] for seed in its}
            row = {"pair": pair, "epoch": number + 1, "seeds": len(its)}
            for what in ("training_loss", "held_out_loss"):
                base = statistics.fmean(raw[seed][what] for seed in its)
                row[what] = statistics.fmean(one[what] for one in its.values())
                row[f"{what}_over_raw_percent"] = mean_of(
                    [100 * (its[seed][what] - raw[seed][what]) / base for seed in its]
                )
            for way in WAYS:
                sent = [statistics.fmean(one[way]) for one in its.values() if one.get(way)]
                row[way] = statistics.fmean(sent) if sent else None
            found.append(row)
    return found


def training_table(title: str, rows: list[dict]) -> str:
    head = ["forward / backward / weights", "epoch"]
    head += ["bits forward", "bits backward", "bits of weights"]
    head += ["training loss", "over raw, %", "held-out loss", "over raw, %"]
    cells = []
    for row in rows:
        line = [f"`{row['pair']}`", str(row["epoch"])]
        line += ["-" if row[way] is None else f"{row[way]:.2f}" for way in WAYS]
        for what in ("training_loss", "held_out_loss"):
            line += [f"{row[what]:.4f}", told(row[f"{what}_over_raw_percent"], "+.2f")]
        cells.append(line)
    seeds = rows[0]["seeds"]
    meant = (
        "one seed, so there are no intervals"
        if seeds == 1
        else f"mean of {seeds} seeds, with 95 % intervals of the differences from raw"
    )
    return f"{title}; {meant}\n\n" + markdown(head, cells)


def training_picture(title: str, rows: list[dict], path: pathlib.Path) -> None:
    """Held-out loss over raw after the last epoch, against the bits of all epochs and both ways."""
    plot = _plot()
    if plot is None:
        return
    figure, axis = plot.subplots(figsize=(9, 6))
    for pair in dict.fromkeys(row["pair"] for row in rows):
        its = [row for row in rows if row["pair"] == pair]
        # What no codec touches has 32 bits.
        bits = statistics.fmean(row[way] or 32.0 for row in its for way in WAYS[:2])
        mean, half = its[-1]["held_out_loss_over_raw_percent"]
        axis.errorbar(bits, mean, yerr=half, fmt="o", capsize=3, label=pair)
    axis.set(
        title=title,
        xlabel="bits per value, mean of all epochs and of both directions",
        ylabel="held-out loss over raw after the last epoch, %",
        xscale="log",
    )
    _finish(plot, figure, axis, path)
