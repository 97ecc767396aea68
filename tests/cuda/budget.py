#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# budget.py - compares the kernels that nvcc compiled with limits for registers, spills and
# instructions, and checks the arithmetic in PTX.
"""usage: budget.py BUDGET.json [--write] [FILE...]

FILE: kernels_sm_XX.cubin, with the log of ptxas next to it, and kernels.ptx. BUDGET.json contains,
for each architecture and kernel, registers, bytes of spills, and instructions per element. (A
thread handles sixteen elements. The number of instructions is estimated by the size of the code,
slow paths included.) A value above its limit is an error. So is a value a tenth below: then store
it with --write. If nvcc is another release than the one of the budget, its code differs, and only
PTX is checked. Exit 77: there are no files, because the build had no nvcc."""

import json
import pathlib
import re
import struct
import sys

INSTRUCTION_BYTES = 16
ELEMENTS = 16  # per thread
SLACK = 0.10
# Instructions that must not occur in PTX, because their results could differ from those of the CPU:
# - fma and mad, which compute a product and a sum with one rounding instead of two;
# - add, sub and mul that name no rounding (such as .rn): the assembler ptxas may replace a product
#   and a sum without it by one fma;
# - .ftz, which replaces subnormal numbers by zero;
# - .approx and .full, which do not round quotients and square roots as IEEE 754 requires; ex2 and
#   lg2, which are always approximate;
# - .sat, which clamps results to the range from 0 to 1.
FORBIDDEN = re.compile(
    r"\b(fma\.|(add|sub|mul)\.f(32|64)\b|mad\.[a-z.]*f32|\w+(\.\w+)*\.ftz|"
    r"div\.(approx|full)|rcp\.approx|sqrt\.approx|ex2\.|lg2\.|\w+(\.\w+)*\.sat\.f32)"
)


def code_bytes(cubin):
    """{kernel: size of its code in bytes}, from the sections of an ELF file."""
    data = cubin.read_bytes()
    (table,) = struct.unpack_from("<Q", data, 0x28)
    size, count, names = struct.unpack_from("<HHH", data, 0x3A)
    sections = [struct.unpack_from("<IIQQQQ", data, table + i * size) for i in range(count)]
    strings = sections[names][4]
    found = {}
    for name, _, _, _, _, length in sections:
        text = data[strings + name : data.index(b"\0", strings + name)].decode()
        if text.startswith(".text."):
            found[text[len(".text.") :]] = length
    return found


def resources(log):
    """{kernel: (registers, spilled bytes)}, from the output of ptxas -v."""
    found, kernel, spilled = {}, None, 0
    for line in log.read_text().splitlines():
        if match := re.search(r"Compiling entry function '(\w+)'", line):
            kernel, spilled = match.group(1), 0
        elif match := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line):
            spilled = int(match.group(1)) + int(match.group(2))
        elif match := re.search(r"Used (\d+) registers", line):
            found[kernel] = (int(match.group(1)), spilled)
    return found


def measure(files):
    measured = {}
    for cubin in files:
        if cubin.suffix != ".cubin":
            continue
        sizes, used = code_bytes(cubin), resources(cubin.with_suffix(".log"))
        measured[cubin.stem.split("_", 1)[1]] = {
            kernel: {
                "registers": used[kernel][0],
                "spilled_bytes": used[kernel][1],
                "instructions_per_element": round(sizes[kernel] / INSTRUCTION_BYTES / ELEMENTS, 1),
            }
            for kernel in sorted(used)
        }
    return measured


def release(files):
    """The release of nvcc that made the files, from the head of PTX."""
    for path in files:
        if path.suffix == ".ptx":
            match = re.search(r"release ([0-9.]+)", path.read_text()[:2000])
            return match.group(1) if match else "unknown"
    return "unknown"


def as_text(nvcc, measured):
    """The budget as JSON, with a line for each kernel."""
    arches = []
    for arch, kernels in measured.items():
        lines = [
            f'"{kernel}":{json.dumps(limits, separators=(",", ":"))}'
            for kernel, limits in kernels.items()
        ]
        arches.append(f' "{arch}": {{\n' + ",\n".join(lines) + "\n }")
    return f'{{"nvcc": "{nvcc}", "kernels": {{\n' + ",\n".join(arches) + "\n}}\n"


def compare(measured, budget):
    for arch, kernels in measured.items():
        if arch not in budget:
            print(f"budget: there is no budget for {arch}: not checked")
            continue
        for kernel in sorted(kernels.keys() | budget[arch].keys()):
            found, allowed = kernels.get(kernel), budget[arch].get(kernel)
            if not found or not allowed:
                yield (
                    f"{arch} {kernel}: {'is missing' if allowed else 'has no budget'}: run "
                    "budget.py with --write"
                )
                continue
            for what, most in allowed.items():
                if found[what] > most * (1 if what == "spilled_bytes" else 1 + SLACK / 2):
                    yield f"{arch} {kernel}: {what} {found[what]}, the limit is {most}"
                elif found[what] < most * (1 - SLACK) - 1:
                    yield (
                        f"{arch} {kernel}: {what} {found[what]}, the limit of {most} is outdated: "
                        "run budget.py with --write"
                    )


def check_ptx(path):
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if match := FORBIDDEN.search(line.split("//")[0]):
            yield f"{path.name}:{number}: {match.group(0)} changes the bits: {line.strip()}"


def main():
    arguments = [argument for argument in sys.argv[1:] if argument != "--write"]
    budget_file, files = pathlib.Path(arguments[0]), [pathlib.Path(name) for name in arguments[1:]]
    if not files:
        print("budget: the build had no nvcc, so nothing was compiled")
        return 77
    measured = measure(files)
    if "--write" in sys.argv:
        budget_file.write_text(as_text(release(files), measured))
        return 0
    budget, complaints = json.loads(budget_file.read_text()), []
    if budget["nvcc"] == release(files):
        complaints += compare(measured, budget["kernels"])
    else:
        print(
            f"budget: it is for nvcc {budget['nvcc']}, but this is {release(files)}: the code is "
            "not checked"
        )
    for path in files:
        if path.suffix == ".ptx":
            complaints += check_ptx(path)
    for complaint in complaints:
        print(f"budget: {complaint}")
    print(
        f"budget: {sum(len(kernels) for kernels in measured.values())} kernels, {len(complaints)} "
        "complaints"
    )
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
