#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# picture.py - draws error against rate: one panel for each set of tensors, with a point for each
# codec and baseline, and lines through the least errors of deltawire.
"""usage: picture.py QUALITY.json PICTURE.png. QUALITY.json is what quality.py wrote."""

import io
import json
import pathlib
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402 (the backend must be chosen first)
from PIL import Image  # noqa: E402 (matplotlib needs it, too)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import frontier  # noqa: E402 (this folder)

SHOWN = (0, 6.2)  # the rates that are drawn, in bits
# Marker, colour and legend of each baseline, by the word in front of ":" in its codec.
MARKS = {
    "acsgd": ("v", "tab:orange", "AC-SGD's grid"),
    "rowwise": ("s", "tab:red", "rows, asymmetric (FBGEMM)"),
    "blockwise": ("D", "tab:purple", "blocks (NormalFloat4, bitsandbytes)"),
    "zfp": ("^", "tab:brown", "ZFP"),
}
OURS = ("o", "tab:blue", "deltawire")


def mark_of(row):
    """Returns the (marker, colour, legend) of a row."""
    scheme = row["codec"].replace("changes by ", "").partition(":")[0]
    return OURS if row["ours"] else MARKS[scheme]


def draw_frontier(axis, rows, scope, style):
    """Draws a line through deltawire's least error at each rate, and a red cross at every rate at
    which a baseline has a smaller error. scope is a key of frontier.SCOPES; style is the line's."""
    ours = [row for row in frontier.in_scope(rows, scope) if row["ours"]]
    points = [(rate, frontier.least(ours, rate)) for rate in frontier.RATES]
    axis.plot(
        [rate for rate, best in points if best],
        [best[0] for _, best in points if best],
        style,
        color=OURS[1],
        linewidth=2.2,
        alpha=0.55,
        zorder=1,
    )
    for one in frontier.ahead(rows, scope):
        axis.plot(one["rate"], one["baseline_error"], "x", color="red", markersize=8, zorder=5)


def draw_set(axis, the_set):
    """Draws the panel of one set: a point for each row, hollow if it sends changes, and a line for
    tensors that are sent alone and one for changes."""
    for row in the_set["rows"]:
        its = row["later"]
        if its["bits"] is None or not SHOWN[0] <= its["bits"] <= SHOWN[1] or not its["error"]:
            continue
        mark, color, _ = mark_of(row)
        axis.plot(
            its["bits"],
            its["error"],
            mark,
            color=color,
            markerfacecolor="none" if row["state"] else color,
            markersize=2.6 if row["ours"] else 4.6,
            markeredgewidth=0.7,
            linestyle="none",
            zorder=2 if row["ours"] else 3,
        )
    draw_frontier(axis, the_set["rows"], "alone", "-")
    draw_frontier(axis, the_set["rows"], "changes", "--")
    axis.set(title=the_set["title"], xlim=SHOWN, ylim=(5e-3, 2.2), yscale="log")
    axis.title.set_fontsize("medium")
    axis.grid(True, which="major", alpha=0.3)


def legend(figure):
    """Draws the legend of all panels below them."""
    line = matplotlib.lines.Line2D
    marks = [
        line([], [], marker=mark, color=color, linestyle="none", label=name)
        for mark, color, name in (OURS, *MARKS.values())
    ]
    marks += [
        line([], [], color=OURS[1], linewidth=2.2, alpha=0.55, label="frontier: tensor alone"),
        line(
            [],
            [],
            color=OURS[1],
            linewidth=2.2,
            alpha=0.55,
            linestyle="--",
            label="frontier: change since the last visit (hollow marks)",
        ),
        line([], [], marker="x", color="red", linestyle="none", label="a baseline is ahead here"),
    ]
    figure.legend(handles=marks, loc="lower center", ncol=4, fontsize="small", frameon=False)


def draw(sets, path):
    """Draws all sets (quality.json has them under "sets") and writes the picture to path."""
    columns = min(3, len(sets))
    rows = -(-len(sets) // columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(4.2 * columns, 3.1 * rows + 0.55), squeeze=False, sharey=True
    )
    flat = [axis for line in axes for axis in line]
    for axis, the_set in zip(flat, sets):
        draw_set(axis, the_set)
    for axis in flat[len(sets) :]:
        axis.axis("off")
    for line in axes:
        line[0].set_ylabel("error |y - x| / |x|")
    for axis in axes[-1]:
        axis.set_xlabel("bits per element on the wire")
    legend(figure)
    figure.tight_layout(rect=(0, 0.55 / (3.1 * rows + 0.55), 1, 1))
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=85)
    plt.close(figure)
    # With 64 colours the picture looks the same, and the file has a third of the size.
    Image.open(drawn).convert("RGB").quantize(64).save(path, optimize=True)


if __name__ == "__main__":
    draw(json.loads(pathlib.Path(sys.argv[1]).read_text())["sets"], sys.argv[2])
