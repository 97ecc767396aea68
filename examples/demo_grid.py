# SPDX-License-Identifier: Apache-2.0
# demo_grid.py - ./run demo --grid KxD: fine-tunes D replicas of a pipeline of K stages, where
# everything crosses slow links: activations, their gradients, and weight gradients.
"""All links have the same rate, within a replica and between replicas. The demo sets it so that a
run without any compression takes 8 times as long as on links that are not slowed down (bare links).
It compares this run with one in which activations and their gradients are compressed, and with runs
in which weight gradients are compressed as well.

Each replica has a batch of 48 samples. With that the weight gradients are a third of the
uncompressed bytes, and take more than half of the time when only activations are compressed."""

import json
import pathlib
import time

import demo

GRID = {"batch": 48, "micro-batches": 16, "samples": 288, "held-out": 64}
FOUR_BITS = "direct:bits=4,feedback=ef"
DITHERED = "direct:form=step,step=2,group=128,rounding=dither,entropy=rans"
# name, what it is, forward, backward, gradient
RUNS = [
    ("raw", "everything raw f32", "raw:f32", "raw:f32", "raw:f32"),
    ("activations", "activations " + demo.BEST_TITLE, *demo.BEST, "raw:f32"),
    ("all", "the same, weight gradients 4 bits", *demo.BEST, FOUR_BITS),
    ("dithered", "the same, weight gradients dither 2 rms", *demo.BEST, DITHERED),
]
SLOWDOWN = 8


class Grid(demo.Demo):
    def __init__(self, arguments):
        super().__init__(arguments)
        self.stages, self.replicas = arguments.grid
        self.grid = ["--local", f"{self.stages * self.replicas}", "--stages", f"{self.stages}"]
        self.grid += ["--replicas", f"{self.replicas}"]
        if arguments.small:
            self.finetune.update({"batch": 8, "micro-batches": 4, "samples": 16 * self.replicas})
            self.model["layers"] = max(2, self.stages)
        else:
            self.finetune.update(GRID)
            self.finetune["samples"] *= self.replicas // 2 or 1

    def trained(
        self, name, title, text, model, link, forward, backward, gradient, more=(), **other
    ):
        """more: more options of `deltawire train`. other: settings in place of the demo's."""
        self.place = self.grid
        more = ["--gradient", gradient, *more]
        return self.finetuned(name, title, text, model, link, forward, backward, more, **other)


def bits_of_busiest(grid, result):
    """The bits that a link within a replica and one between replicas carry in one direction, added
    up, in a run without compression: the one is used after the other."""
    pipeline = max(result["bytes_forward"], result["bytes_backward"])
    links = (grid.stages - 1) * grid.replicas
    others = grid.stages * grid.replicas * (grid.replicas - 1)
    return 8.0 * (pipeline / links + result["bytes_gradients"] / others)


def calibrate(grid, bare_run, raw_run):
    """Returns the last of three runs on bare links, and the rate of links at which raw f32 takes 8
    times as long as the fastest of the three. The fastest counts, because other processes can only
    slow a run down. raw_run(name, rate, title, **other): trains over links of a rate."""
    runs = [bare_run() for _ in range(3)]
    fastest = min(run["wall_s"] for run in runs)
    rate = bits_of_busiest(grid, runs[-1]) / (SLOWDOWN * fastest)
    title = "the same for one epoch behind a guessed rate, to set the links"
    probe = raw_run("probe", rate, title, epochs=1, warmup=0)
    return runs[-1], rate * (probe["wall_s"] * grid.finetune["epochs"] / fastest) / SLOWDOWN


def sent(result, what):
    """Returns the bytes on all links. what: "bytes" (sent), "raw" (as f32), or "kernel" (as the
    operating system has counted them; None if it does not)."""
    parts = [result[f"{what}_{way}"] for way in ("forward", "backward", "gradients")]
    return None if None in parts else sum(parts)


def summarize(bare, rate, results, seconds):
    wall = {name: result["wall_s"] for name, result in results.items()}
    summary = {
        "grid_bare_s": bare["wall_s"],
        "grid_slowdown_raw": wall["raw"] / bare["wall_s"],
        "grid_speedup_all": wall["raw"] / wall["all"],
        "grid_speedup_over_activations": wall["activations"] / wall["all"],
        "grid_speedup_dithered": wall["raw"] / wall["dithered"],
        "grid_link_bits_per_second": rate,
        "demo_s": seconds,
    }
    for name, result in results.items():
        summary[f"grid_{name}_s"] = wall[name]
        summary[f"grid_loss_{name}"] = result["held_out_loss"]
        summary[f"grid_bytes_{name}"] = sent(result, "bytes")
        summary[f"grid_kernel_bytes_{name}"] = sent(result, "kernel")
        summary[f"grid_bytes_gradients_{name}"] = result["bytes_gradients"]
        for part in ("compute", "codec", "wait", "gradient_wait"):
            summary[f"grid_{part}_{name}"] = result[f"{part}_s"]
    return summary


def targets(summary):
    """Returns the claims of the grid, like demo.targets."""
    aims = [
        demo.at_least(summary, "grid_speedup_all", 5.5),
        demo.at_least(summary, "grid_speedup_over_activations", 2),
        (
            "7 <= grid_slowdown_raw <= 9",
            7 <= summary["grid_slowdown_raw"] <= 9,
            f"{summary['grid_slowdown_raw']:.2f}",
        ),
    ]
    for name, most in ("all", 1.01), ("dithered", 1.02):
        over = summary[f"grid_loss_{name}"] / summary["grid_loss_raw"]
        aims.append((f"grid_loss_{name} / grid_loss_raw <= {most}", over <= most, f"{over:.4f}"))
    for name in "raw", "all":
        ours, kernel = summary[f"grid_bytes_{name}"], summary[f"grid_kernel_bytes_{name}"]
        agrees = kernel is not None and abs(ours - kernel) <= 0.02 * kernel
        what = f"grid_bytes_{name} is what the kernel counted, within 2 %"
        aims.append((what, agrees, f"{ours} and {kernel}"))
    return aims


def table(bare, results):
    def amounts(result):
        return (
            f"{(result['bytes_forward'] + result['bytes_backward']) / 1e6:.1f} MB",
            f"{result['bytes_gradients'] / 1e6:.1f} MB",
            f"{sent(result, 'raw') / sent(result, 'bytes'):.1f}x",
        )

    head = tuple("run held-out wall faster pipelines gradients ratio compute codec wait".split())
    title = "everything raw f32, bare links"
    rows = demo.result_table(bare, results, RUNS, head, title, amounts)
    waits = [f"{result['gradient_wait_s']:.1f} s" for result in (bare, *results.values())]
    return demo.format_table([(*row, w) for row, w in zip(rows, ["for gradients", *waits])])


def run(arguments):
    build = pathlib.Path(arguments.build)
    arguments.out = arguments.out or build.parent / "demo-grid"
    out = pathlib.Path(arguments.out)
    grid = Grid(arguments)
    pretrain_text, finetune_text = demo.texts(arguments, out)
    model = grid.pretrained(pretrain_text)

    def behind(name, title, link, codecs, **other):
        return grid.trained(name, title, finetune_text, model, link, *codecs, **other)

    raw = RUNS[0][2:]

    def bare_run():
        title = f"everything raw f32 on bare links, {grid.finetune['epochs']} epochs"
        return behind("unshaped", title, "tcp://127.0.0.1:0", raw)

    def raw_run(name, rate, title, **other):
        return behind(name, title, demo.shaped(rate), raw, **other)

    bare, rate = calibrate(grid, bare_run, raw_run)
    demo.say(f"every link: {rate / 1e6:.2f} Mbit/s each way, 1 ms delay")
    results = {"unshaped": bare}
    turns = {"unshaped": bare_run}
    for name, title, *codecs in RUNS:
        again = lambda each=(name, title, demo.shaped(rate), codecs): behind(*each)
        results[name] = again()
        if name in ("all", "dithered"):
            turns[name] = again
    demo.median_of_turns(out, turns, results, 1 if arguments.small else demo.TIMES)
    bare = results.pop("unshaped")
    summary = summarize(bare, rate, results, time.monotonic() - grid.started)
    return finish(arguments, out, bare, results, summary)


def finish(arguments, out, bare, results, summary):
    """Writes the summary and the picture, and prints the table and the targets."""
    (out / "summary.json").write_text(json.dumps(summary, indent=2, sort_keys=True) + "\n")
    demo.draw(out, summary["grid_link_bits_per_second"], RUNS)
    print("\n" + table(bare, results) + "\n")
    missed = demo.print_targets(None if arguments.small else targets(summary))
    demo.print_end(out, summary["demo_s"], missed)
    return 1 if missed and arguments.strict else 0
