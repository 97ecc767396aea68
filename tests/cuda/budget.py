#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# budget.py - compares the kernels that nvcc compiled with limits: registers, spills, instructions,
# and the arithmetic in PTX.
"""usage: budget.py BUDGET.json [--write] [FILE...]

FILE: kernels_sm_XX.cubin with the log of ptxas beside it, and kernels.ptx. BUDGET.json has, per
architecture and kernel, registers, bytes of spills and instructions per element (a thread has
sixteen; the size of the code, slow paths and all, stands for them). More than it says is an error,
and so is a tenth less: then --write it down. Another release of nvcc than the budget's makes other
code: then only PTX is looked at. Exit 77: there are no files, the build had no nvcc."""

import json
import pathlib
import re
import struct
import sys

INSTRUCTION_BYTES = 16
ELEMENTS = 16  # of a thread
SLACK = 0.10
# What may not stand in PTX: products fused with sums, flushed subnormals, and quotients that are
# not rounded as IEEE 754 has it.
FORBIDDEN = re.compile(
    r"\b(fma\.|mad\.[a-z.]*f32|\w+(\.\w+)*\.ftz|div\.(approx|full)|rcp\.approx|sqrt\.approx|"
    r"ex2\.|lg2\.|\w+(\.\w+)*\.sat\.f32)"
)


def code_bytes(cubin):
    """{kernel: bytes of its code} from the sections of an ELF file."""
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
    """{kernel: (registers, spilled bytes)} from what ptxas -v says."""
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
    """Of the nvcc that made the files, as PTX has it in its head."""
    for path in files:
        if path.suffix == ".ptx":
            match = re.search(r"release ([0-9.]+)", path.read_text()[:2000])
            return match.group(1) if match else "unknown"
    return "unknown"


def compare(measured, budget):
    for arch, kernels in measured.items():
        if arch not in budget:
            print(f"budget: none is written down for {arch}: left out")
            continue
        for kernel in sorted(kernels.keys() | budget[arch].keys()):
            found, allowed = kernels.get(kernel), budget[arch].get(kernel)
            if not found or not allowed:
                yield (
                    f"{arch} {kernel}: {'is gone' if allowed else 'has no budget'}: run budget.py "
                    "with --write"
                )
                continue
            for what, most in allowed.items():
                if found[what] > most * (1 if what == "spilled_bytes" else 1 + SLACK / 2):
                    yield f"{arch} {kernel}: {what} {found[what]}, the budget is {most}"
                elif found[what] < most * (1 - SLACK) - 1:
                    yield (
                        f"{arch} {kernel}: {what} {found[what]}, the budget of {most} is old: run "
                        "budget.py with --write"
                    )


def check_ptx(path):
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if match := FORBIDDEN.search(line.split("//")[0]):
            yield f"{path.name}:{number}: {match.group(0)} changes the bits: {line.strip()}"


def main():
    arguments = [argument for argument in sys.argv[1:] if argument != "--write"]
    budget_file, files = pathlib.Path(arguments[0]), [pathlib.Path(name) for name in arguments[1:]]
    if not files:
        print("budget: the build had no nvcc, nothing was compiled")
        return 77
    measured = measure(files)
    if "--write" in sys.argv:
        budget_file.write_text(
            json.dumps({"nvcc": release(files), "kernels": measured}, indent=1) + "\n"
        )
        return 0
    budget, complaints = json.loads(budget_file.read_text()), []
    if budget["nvcc"] == release(files):
        complaints += compare(measured, budget["kernels"])
    else:
        print(
            f"budget: it is one of nvcc {budget['nvcc']}, and this is {release(files)}: code left "
            "out"
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
