#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# gpu.py - runs the checks, sanitizers and benchmarks of ./run gpu after the programs are built, and
# writes a JSON file and a picture.
"""usage: gpu.py --name | [--build DIR] [--out FILE.json] [--elements N] [--most N] [--repeats N]
[--threads N] [--seconds N] [--commit TEXT] [--table FILE.md]

Runs gpu_check (frames and states of the GPU against those of the CPU), gpu_link (two processes
joined over NCCL), gpu_bench, the tests of the Python package with torch's tensors on the GPU, and
compute-sanitizer over a small gpu_check where it is installed. Writes one JSON file with date,
device, driver, clocks and commit, beside it a picture of the bandwidth, as a fraction of that of a
copy, against the size, and with --table a table of the largest tensors, which is to be committed.
Exit 77: there is no GPU."""

import argparse
import concurrent.futures
import ctypes
import datetime
import json
import os
import pathlib
import shutil
import subprocess
import sys
import textwrap
import threading
import time

ABSENT = 77
# Goals for 64 Mi elements, as fractions of the bandwidth of a copy in the same run.
GOALS = {
    "encode/delta/b4/g128/bf16/bf16": 0.90,
    "encode/delta+stochastic/b4/g128/bf16/bf16": 0.80,
    "encode/delta/b4/g64/f32/f32": 0.92,
    "decode/delta/b4/g128/bf16/bf16": 0.92,
    "encode/direct/b4/g128/bf16/none": 0.75,
    "encode/delta/b2/g64/bf16/bf16": 0.85,
    "encode/delta/b3/g64/bf16/bf16": 0.85,
}
ROOT = pathlib.Path(__file__).resolve().parent.parent
SANITIZERS = ("memcheck", "racecheck", "initcheck", "synccheck")


class Log(list):
    """What was run, and when everything must end."""

    def __init__(self, seconds):
        super().__init__()
        self.end = time.monotonic() + seconds


def device_name():
    """The name of the first GPU, or None."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    device, name = ctypes.c_int(), ctypes.create_string_buffer(128)
    if (
        driver.cuInit(0)
        or driver.cuDeviceGet(ctypes.byref(device), 0)
        or driver.cuDeviceGetName(name, len(name), device)
    ):
        return None
    return name.value.decode()


def run(command, log, limit):
    """(exit status, output). The output is shown as it arrives, also that of commands that run at
    the same time. Ends the command after `limit` seconds, or when the time for everything is over.
    """
    limit = min(limit, max(log.end - time.monotonic(), 1))
    words = [str(word).replace(f"{ROOT}/", "") for word in command]
    entry = {"command": " ".join(words).replace(sys.executable, "python3")}
    log.append(entry)
    process = subprocess.Popen(
        list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    lines, end = [], time.monotonic() + limit
    timer = threading.Timer(limit, process.kill)
    timer.start()
    for line in process.stdout:
        lines.append(line.rstrip("\n"))
        print(f"   {lines[-1]}", flush=True)
    timer.cancel()
    if time.monotonic() > end:
        lines.append(f"stopped after {limit:.0f} s")
    entry.update(status=process.wait(), seconds=round(limit - (end - time.monotonic()), 1))
    return process.returncode, lines


def sanitize(program, log):
    """{tool: finding}. Tools that do not support the device are reported as such."""
    tool = shutil.which("compute-sanitizer") or shutil.which(
        "/usr/local/cuda/bin/compute-sanitizer"
    )
    if not tool:
        return {"compute-sanitizer": "not installed"}

    def finding(name):
        how = ["--tool", name, "--error-exitcode", "9"]
        status, lines = run([tool, *how, program, "--elements", "65536", "--nccl", "0"], log, 150)
        if any("not supported" in line for line in lines):
            return "refused the device"
        if any(line.startswith("stopped after") for line in lines):
            return "no time left"
        return "clean" if status == 0 else "FOUND SOMETHING: " + " / ".join(lines[-6:])

    print(f"== compute-sanitizer: {', '.join(SANITIZERS)}", flush=True)
    with concurrent.futures.ThreadPoolExecutor(len(SANITIZERS)) as pool:
        return dict(zip(SANITIZERS, pool.map(finding, SANITIZERS)))


def check_link(program, log):
    """The output of two processes that are connected over NCCL."""
    if not program.exists():
        return "not built"
    print("== a link over NCCL, two processes", flush=True)
    status, lines = run([program], log, 100)
    if status == ABSENT:
        return " / ".join(lines[-1:]).replace("\t", ": ")
    return " / ".join(lines) if status == 0 else "FAILED: " + " / ".join(lines[-4:])


def check_python(build, log):
    """The result of tests/python/torch/test_gpu.py, with the python3 of this machine."""
    needs = "import cffi, pytest, torch; assert torch.cuda.is_available()"
    ready = subprocess.run([sys.executable, "-c", needs], capture_output=True, text=True)
    if ready.returncode != 0:
        return f"not tested: {(ready.stderr.strip().splitlines() or ['no torch'])[-1]}"
    if not (build / "python/deltawire").exists():
        return "not built"
    print("== tensors of torch, in Python", flush=True)
    folders = [str(build / name) for name in ("src", "transports", "threads")]
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(build / "python"), os.environ.get("PYTHONPATH")])
    )
    os.environ["DW_TEST_LIBRARIES"] = os.pathsep.join([*folders, str(build / "python")])
    tests = ROOT / "tests/python/torch/test_gpu.py"
    status, lines = run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", tests], log, 200
    )
    passed = status == 0 and " passed" in lines[-1]  # they are skipped where no kernel can be used
    return lines[-1] if passed else "FAILED: " + " / ".join(lines[-6:])


def figures(lines):
    """The output of gpu_bench, as a dict."""
    made = {"bench": [], "launch": [], "bus": []}
    for words in (line.split("\t") for line in lines):
        if words[0] == "device":
            made["device"] = dict(
                zip(
                    ("name", "driver_version", "multiprocessors", "clock_khz", "memory_clock_khz"),
                    [words[1]] + [int(word) for word in words[2:]],
                )
            )
        elif words[0] == "bench":
            name, elements, size, seconds, copy = (
                words[1],
                int(words[2]),
                int(words[3]),
                float(words[4]),
                float(words[5]),
            )
            made["bench"].append(
                {
                    "name": name,
                    "elements": elements,
                    "bytes": size,
                    "us": round(seconds * 1e6, 3),
                    "copy_us": round(copy * 1e6, 3),
                    "GBps": round(size / seconds / 1e9, 1),
                    "copy_GBps": round(size / copy / 1e9, 1),
                    "share": round(copy / seconds, 3),
                }
            )
        elif words[0] == "launch":
            made["launch"].append(
                {"name": words[1], "elements": int(words[2]), "us": round(float(words[3]) * 1e6, 3)}
            )
        elif words[0] == "bus":
            made["bus"].append(
                {
                    "way": words[1],
                    "bytes": int(words[2]),
                    "GBps": round(int(words[2]) / float(words[3]) / 1e9, 1),
                }
            )
    return made


PINNED_GOAL = 0.85


def add_bus_shares(made):
    """With prev in pinned memory the bus is used in both directions at once: the bytes in one
    direction, as a fraction of a copy in that direction."""
    slower = min((way["GBps"] for way in made["bus"]), default=0)
    for case in made["bench"]:
        if "+pinned" in case["name"] and slower:
            one_way = case["elements"] * (4 if case["name"].endswith("f32/f32") else 2)
            case["bus_share"] = round(one_way / case["us"] / 1e3 / slower, 3)


def compare(made):
    """A table of the largest tensors with the goals."""
    largest = max(case["elements"] for case in made["bench"])
    for case in made["bench"]:
        if case["elements"] == largest and "bus_share" in case:
            reached = "" if case["bus_share"] >= PINNED_GOAL else ": NOT REACHED"
            print(
                f"   {case['name']:45} {case['bus_share']:.2f} of the bus, "
                f"goal {PINNED_GOAL:.2f}{reached}"
            )
    for case in made["bench"]:
        if case["elements"] == largest:
            goal = GOALS.get(case["name"])
            print(
                f"   {case['name']:45} {case['us']:10.1f} us  {case['GBps']:7.1f} of "
                f"{case['copy_GBps']:7.1f} GB/s = {case['share']:.2f}"
                + (
                    f"  goal {goal:.2f}{'' if case['share'] >= goal else ': NOT REACHED'}"
                    if goal
                    else ""
                )
            )


def draw(made, path):
    try:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plot
    except ImportError:
        print("   no picture: matplotlib is not installed")
        return
    figure, panels = plot.subplots(1, 2, figsize=(15, 7), sharey=True)
    for axes, way in zip(panels, ("encode", "decode")):
        names = [case["name"] for case in made["bench"] if case["name"].startswith(way)]
        for i, name in enumerate(dict.fromkeys(names)):
            points = sorted(
                {(c["elements"], c["share"]) for c in made["bench"] if c["name"] == name}
            )
            label = name.removeprefix(way + "/")
            color, marker = plot.cm.tab10(i % 10), "osv"[i // 10 % 3]
            axes.plot(*zip(*points), marker=marker, markersize=4, color=color, label=label)
        axes.set_xscale("log", base=2)
        axes.set_ylim(0, None)
        axes.axhline(1, color="black", linewidth=0.8)
        axes.set_xlabel("elements")
        axes.set_title(f"{way}, {made['device']['name']}")
        axes.legend(fontsize=7, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.12))
    panels[0].set_ylabel("share of the bandwidth of a copy")
    figure.tight_layout()
    figure.savefig(path, dpi=100)
    print(f"== picture: {path}")


def table(made):
    """What is kept of a run: where and when, what was checked, and the largest tensors."""
    largest = max(case["elements"] for case in made["bench"])
    device, driver = made["device"]["name"], made["device"]["driver_version"]
    lines = [
        f"# {device}, {made['date']}",
        "",
        f"`./run gpu` at commit {made['commit']}, driver API {driver}; {largest} elements. Share:",
        "of the bandwidth of a copy of as many bytes, in the same run.",
        "",
        f"- Same bits as the CPU: {len(made['checked'])} comparisons. Python: {made['python']}.",
        *(f"- {way['way']}: {way['GBps']} GB/s." for way in made["bus"]),
        *(f"- {it['name']}, {it['elements']} elements: {it['us']} us." for it in made["launch"]),
        *(f"- {name}: {found}." for name, found in made["sanitizers"].items()),
        "",
        "<!-- wide table -->",
        "| case | us | GB/s | share |",
        "|---|---|---|---|",
    ]
    rows = (
        f"| `{case['name']}` | {case['us']:.0f} | {case['GBps']:.0f} | {case['share']:.2f} |"
        for case in made["bench"]
        if case["elements"] == largest
    )
    folded = (textwrap.fill(line, 100, subsequent_indent="  ") for line in lines)
    return "\n".join([*folded, *rows, ""])


def commit(root):
    found = subprocess.run(
        ["git", "-C", root, "describe", "--always", "--dirty", "--abbrev=12"],
        capture_output=True,
        text=True,
    )
    return found.stdout.strip() or "unknown"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--name", action="store_true", help="print the name of the first GPU and exit"
    )
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build/gpu"))
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--table", type=pathlib.Path)
    parser.add_argument("--elements", type=int, default=10**9)
    parser.add_argument("--most", type=int, default=64 << 20)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument(
        "--seconds",
        type=int,
        default=540,
        help="for everything; rented machines often have a limit of ten minutes",
    )
    parser.add_argument("--commit", help="the commit of the sources, if this is no checkout")
    options = parser.parse_args()
    if options.name:
        print(device_name() or "none")
        return 0 if device_name() else ABSENT
    log, today = Log(options.seconds), datetime.date.today().isoformat()
    out = options.out or options.build / "gpu.json"
    print("== frames and states against the CPU", flush=True)
    status, checked = run(
        [
            options.build / "bench/gpu_check",
            "--golden",
            ROOT / "tests/wire/golden",
            "--elements",
            options.elements,
            "--threads",
            options.threads,
        ],
        log,
        300,
    )
    if status == ABSENT:
        return ABSENT
    if status:
        return 1
    link = check_link(options.build / "bench/gpu_link", log)
    print("== figures", flush=True)
    status, lines = run(
        [options.build / "bench/gpu_bench", "--most", options.most, "--repeats", options.repeats],
        log,
        150,
    )
    if status:
        return 1
    python = check_python(options.build.resolve(), log)
    made = {
        "date": today,
        "commit": options.commit or commit(ROOT),
        **figures(lines),
        "link": link,
        "python": python,
        "checked": [line.split("\t")[1:] for line in checked if line.startswith("same\t")],
        "sanitizers": sanitize(options.build / "bench/gpu_check", log),
        "log": log,
    }
    if len(made["checked"]) < 30 or {case["name"] for case in made["bench"]} < set(GOALS):
        print(
            "gpu: the programs ended well and said too little: their lines are not what is read "
            "here"
        )
        return 1
    add_bus_shares(made)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(made, indent=1) + "\n")
    compare(made)
    draw(made, out.with_suffix(".png"))
    print(f"== {out}")
    if "FAILED" in link + python or any(
        finding.startswith("FOUND") for finding in made["sanitizers"].values()
    ):
        return 1
    if options.table:
        options.table.write_text(table(made))
        print(f"== {options.table}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
