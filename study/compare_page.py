# SPDX-License-Identifier: Apache-2.0
# compare_page.py - what compare.py writes about its results: docs/comparison.md and its picture.
"""Results are dicts: "trainings" is a list of what train() of compare.py returned, "speeds" maps a
codec's text to a line of the program speed, "skipped" maps a text to the sentence that says why it
was left out, and "machines" says of each machine in "wall_bare" how many seconds an uncompressed
training over links that are not slowed down took there, of a "pipeline" and of a "grid"."""

import textwrap

from compare_methods import ACTIVATIONS, BACKWARD, GRADIENT, METHODS, PARTNERS, ROLES
from markdown_table import markdown

TITLES = {
    ACTIVATIONS: "Activations",
    BACKWARD: "Gradients of activations",
    GRADIENT: "Weight gradients",
}
# How the other directions were compressed, for the text above a table.
BESIDE = {
    ACTIVATIONS: f"`{PARTNERS[BACKWARD]}` for the gradients of activations",
    BACKWARD: f"`{PARTNERS[ACTIVATIONS]}` for activations",
    GRADIENT: f"`{PARTNERS[ACTIVATIONS]}` for activations and `{PARTNERS[BACKWARD]}` for their "
    "gradients",
}
# What the options of rows mean, for the text above a table.
OPTIONS = {
    "--repeat": "Rows with `--repeat` use every batch in 5 steps in a row and make a fifth of the "
    "epochs, so each sample is visited as often as in the other rows; evaluations send first "
    "visits.",
    "--bottleneck": "Rows with `--bottleneck` send 32 channels of 128 in both directions, and "
    "their model was pre-trained with the bottleneck; bits are per value of 128 channels.",
    "--hops": "Replicas average gradients in two hops, and both compress; in rows with `--hops 1` "
    "they send them to each other, in as many bytes.",
    "--local-steps": "An epoch has 3 steps. In rows with `--local-steps 3` the replicas send what "
    "an epoch has changed, 5 times in all; bits are per parameter and step. Differences of many "
    "steps, in a longer training: [trainer.md](trainer.md#figures).",
}
NOTABLE = 1.0  # percent over raw from which a loss is named under "What was lost"


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def row_of(results, method, role):
    """The figures of a method in a role, or None where it has none: bits per element, the mean loss
    and by how many percent it is above raw's with the same seeds, how many seeds, the wall clock
    behind the slow wire as a multiple of the bare link's (None: not measured)."""
    of_role = [t for t in results["trainings"] if t["role"] == role and "failed" not in t]
    own = [t for t in of_role if t["method"] == method.name]
    raw = {(t["machine"], t["seed"]): t["loss"] for t in of_role if t["method"] == METHODS[0].name}
    own = [t for t in own if (t["machine"], t["seed"]) in raw]
    if not own:
        return None
    if method is METHODS[0]:  # of several machines, the row is that of one
        first = next(name for name in results["machines"] if any(t["machine"] == name for t in own))
        own = [t for t in own if t["machine"] == first]
    where = "grid" if role == GRADIENT else "pipeline"
    bare = {name: one["wall_bare"].get(where) for name, one in results["machines"].items()}
    walls = [t["wall_s"] / bare[t["machine"]] for t in own if t["behind_wire"]]
    excess = [100 * (t["loss"] / raw[t["machine"], t["seed"]] - 1) for t in own]
    return {
        "bits": mean(t["bits"] for t in own),
        "loss": mean(t["loss"] for t in own),
        "percent": mean(excess),
        "least": min(excess),
        "most": max(excess),
        "seeds": len(own),
        "wall": walls[0] if walls else None,
    }


def table_of(results, role):
    """The table of a role in Markdown, and [(title, row)] for the picture."""
    rows, points = [], []
    for method in METHODS:
        figures = row_of(results, method, role)
        if not figures:
            continue
        text = method.texts[role]
        speed = results["speeds"].get(text, {})
        wall = f"{figures['wall']:.2f}" if figures["wall"] else "-"
        rows.append(
            [
                method.title,
                f"`{text}`" + (f" `{' '.join(method.options)}`" if method.options else ""),
                f"{figures['bits']:.2f}",
                f"{figures['loss']:.4f}",
                f"{figures['percent']:+.2f} %",
                f"{figures['least']:+.2f} to {figures['most']:+.2f}",
                wall,
                *(f"{speed[k]:.2g}" if k in speed else "-" for k in ("encode_GBps", "decode_GBps")),
            ]
        )
        points.append((method.title, figures))
    head = ["method", "codec", "bits", "loss", "over raw", "seeds", "wall clock"]
    return markdown([*head, "encode, GB/s", "decode"], rows), points


def what_was_lost(results):
    """Sentences about the methods whose loss is notably above raw's, the largest first, and about
    those that could not be measured."""
    lost, lines = [], []
    for role in ROLES:
        for method in METHODS[1:]:
            figures = row_of(results, method, role)
            if figures and figures["percent"] >= NOTABLE:
                lost.append((figures["percent"], TITLES[role].lower(), method))
    for percent, role, method in sorted(lost, key=lambda one: -one[0]):
        lines.append(f"- {role[0].upper()}{role[1:]}, {method.title}: +{percent:.1f} %.")
    for t in results["trainings"]:
        if "failed" in t:
            lines.append(f"- `{t['text']}` ({t['role']}) could not be trained with: {t['failed']}")
    for text, sentence in results["skipped"].items():
        lines.append(f"- `{text}` was left out: {sentence}")
    return "\n".join(dict.fromkeys(lines)) or f"No loss was {NOTABLE:g} % above raw's or more."


def untrained(results):
    """Names the rows that have no training yet, or ""."""
    names = [
        f"{method.title} ({TITLES[role].lower()})"
        for role in ROLES
        for method in METHODS
        if method.texts.get(role, "") not in ("", *results["skipped"])
        and not any(t["method"] == method.name and t["role"] == role for t in results["trainings"])
    ]
    return f"Not trained yet, which `./run compare` will do: {'; '.join(names)}." if names else ""


def claims():
    known = [method for method in METHODS[1:] if method.paper or method.claim]
    rows = [[method.title, method.paper or "-", method.claim or "-"] for method in known]
    return markdown(["method", "paper", "what it says of itself"], rows)


def machines_text(results):
    """On which machines the rows were trained and timed."""
    parts, timed = [], []
    for name in results["machines"]:
        own = [t for t in results["trainings"] if t["machine"] == name and "failed" not in t]
        if any(t["behind_wire"] for t in own):
            timed.append(name)
        elif own:
            titles = [m.title for m in METHODS[1:] if any(t["method"] == m.name for t in own)]
            parts.append(
                f"On another machine, {name}, which did other things as well, nothing was timed: "
                f"{'; '.join(titles)}. These are compared with raw's trainings there."
            )
    if timed:
        where = "this machine" if len(timed) == 1 else "these machines, each row on one of them"
        parts.insert(0, f"Times and speeds were measured on {where}: {'; '.join(timed)}.")
    wanted = results["settings"]["seeds"]
    for role in ROLES:
        rows = [(m.title, row_of(results, m, role)) for m in METHODS]
        fewer = [f"{t}, {r['seeds']}" for t, r in rows if r and r["seeds"] < wanted]
        if fewer:
            parts.append(f"{TITLES[role]} with fewer seeds: {'; '.join(fewer)}.")
    return " ".join(parts)


def page(results):
    """The text of docs/comparison.md."""
    settings = results["settings"]
    parts = [
        "# Methods of the literature, compared",
        "",
        *paragraph(
            "Each method below is a codec of deltawire. `./run compare` fine-tunes the model of "
            f"`./run demo` for {settings['epochs']} epochs with every one of them, "
            f"with {settings['seeds']} {'seeds' if settings['seeds'] > 1 else 'seed'}, and writes "
            "this page. That model has no outliers: what pairs of the literature cost pretrained "
            "language models, which have, stands at the head of [codecs.md](codecs.md)."
        ),
        "",
        *paragraph(
            "*bits* are per value, with first visits, headers, replies and evaluations. *loss* is "
            "that of held-out text in nats per byte, the mean over the seeds; *over raw* compares "
            "it with the same training in which the row's direction is not compressed, and *seeds* "
            "are the least and the most of that. Differences below 0.15 % are chance. *wall clock* "
            "is that behind a slow wire, as a multiple of an uncompressed training over a link "
            "that is not slowed down; the wire is so slow that a training in which nothing is "
            "compressed takes 8 times as long. It is that of the first seed, and of a run each. "
            "Speeds are those of one thread with a tensor of 512 x 1024 f32. Rows with options of "
            "`deltawire train` are compared with raw without these options."
        ),
        "",
        *paragraph(machines_text(results)),
        "",
        "![loss over raw against bits](comparison.png)",
        "",
    ]
    for role in ROLES:
        table, points = table_of(results, role)
        if not points:
            continue
        where = "Two replicas of two stages" if role == GRADIENT else "Two stages"
        words = f"{where}, with {BESIDE[role]}."
        parts += [f"## {TITLES[role]}", "", *paragraph(words), ""]
        given = {word for m in METHODS if row_of(results, m, role) for word in m.options}
        if explained := " ".join(OPTIONS[word] for word in OPTIONS if word in given):
            parts += [*paragraph(explained), ""]
        parts += ["<!-- wide table -->", table]
    parts += ["## What was lost", "", *bullets(what_was_lost(results)), ""]
    if left := untrained(results):
        parts += [*paragraph(left), ""]
    parts += ["## What the papers say", ""]
    parts += paragraph(
        "Of their own methods, models and machines, so these figures cannot be compared with those "
        "above or with each other."
    )
    parts += ["", "<!-- wide table -->", claims()]
    return "\n".join(parts).rstrip("\n") + "\n"


def paragraph(text):
    return textwrap.wrap(text, 100, break_long_words=False, break_on_hyphens=False)


def bullets(text):
    """Wraps the lines of a list."""
    lines = []
    for line in text.split("\n"):
        indent = "  " if line.startswith("- ") else ""
        lines += textwrap.wrap(
            line, 100, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        )
    return lines


def draw(results, path):
    """Loss over raw against bits per value, a panel for each role."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    panels = [(role, table_of(results, role)[1]) for role in ROLES]
    panels = [(role, points) for role, points in panels if points]
    figure, axes = plt.subplots(1, len(panels), figsize=(6 * len(panels), 7), squeeze=False)
    titles = [method.title for method in METHODS]
    for axis, (role, points) in zip(axes[0], panels):
        for title, figures in points:
            index = titles.index(title)
            marker = "os^Dv<>Ph*X8pdH"[index % 15]
            below, above = (
                figures["percent"] - figures["least"],
                figures["most"] - figures["percent"],
            )
            axis.errorbar(
                figures["bits"],
                figures["percent"],
                yerr=[[below], [above]],
                marker=marker,
                color=f"C{index % 10}",
                capsize=2,
                linestyle="none",
                label=title,
            )
        axis.axhline(0, color="black", linewidth=0.8, linestyle=":")
        axis.set_xscale("log")
        axis.set_yscale("symlog", linthresh=1)
        least = min(figures["least"] for _, figures in points)
        most = max(figures["most"] for _, figures in points)
        axis.set_ylim(1.4 * min(least, -0.2), 1.6 * max(most, 0.2))
        axis.yaxis.set_major_formatter("{x:g}")
        axis.xaxis.set_major_formatter("{x:g}")
        axis.xaxis.set_minor_formatter("")
        axis.set_xlim(left=min(1, *(figures["bits"] / 1.3 for _, figures in points)))
        axis.set_xlabel("bits per value, with everything")
        axis.set_ylabel("held-out loss above raw, %")
        axis.set_title(TITLES[role])
        axis.grid(alpha=0.3, which="both")
        axis.legend(  # below, where it hides no point
            fontsize="x-small", loc="upper center", bbox_to_anchor=(0.5, -0.12), ncol=2
        )
    figure.tight_layout()
    figure.savefig(path, dpi=110)
