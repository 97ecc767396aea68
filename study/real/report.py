# SPDX-License-Identifier: Apache-2.0
# report.py - tables and pictures of what was measured.
from __future__ import annotations

import pathlib
import sys

from intervals import told

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
from markdown_table import markdown  # noqa: E402


def once_table(found: dict) -> str:
    """The table of one model that once.measure returned."""
    judged = "loss over raw, %" if found["loss"] is not None else "1 - cosine"
    head = ["codec", "bits", "bits at each boundary", judged, "KL", "flips, %"]
    head += ["error of tokens, mean", "largest", "escaped values"]
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
                " ".join(str(count) for count in its["escaped_values"]),
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
    axis.grid(True, which="both", alpha=0.3)
    axis.legend(fontsize="x-small")
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plot.close(figure)
