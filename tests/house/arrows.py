#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# arrows.py - who may include whom, and what the pure layer may not touch.
"""arrows.py ROOT. The rules are docs/architecture.md's; each complaint names file, line and rule."""

import os
import re
import sys

import house

# Room -> rooms whose headers it may include.
ROOM_ARROWS = {
    "include": {"include"},
    "src": {"include", "src"},  # and between its files: FILE_ARROWS
    "stores": {"include", "stores"},
    "transports": {"include", "transports"},
    "cuda": {"include", "cuda"},
    "trainer": {"include", "trainer"},
    "cli": {"include", "trainer", "cli"},
    "examples": {"include", "examples"},
    "bench": {"include", "bench"},
    "python": {"include"},
    "tests": set(house.ROOMS),  # tests look everywhere
}

# Headers of src/ that another room may include all the same.
OPEN_HEADERS = {
    "bench": {"engine.h", "frame.h", "kernels.h"},
    "cuda": {"engine.h", "quant.h", "pack.h", "half.h", "layout.h"},
}

# Within src/: noun -> nouns whose header it may include; its own is always allowed. A noun is the
# file's name without suffix and without the part after "_" (kernels_c.c and kernels.h: kernels).
FILE_ARROWS = {
    "encoder": {"predict", "frame", "tensor", "engine", "work", "params", "cpu", "mem"},
    "decoder": {"predict", "frame", "tensor", "engine", "work", "params", "cpu", "mem"},
    "work": {"engine", "mem"},
    "bound": {"frame", "params", "tensor"},
    "inspect": {"frame"},
    "config": {"params", "mem"},
    "params": {"mem"},
    "engine": {"layout", "mem"},
    "quantized": {"engine", "kernels", "quant", "pack", "half", "layout", "mem"},
    "floats": {"engine", "quantized", "kernels", "quant", "pack", "half", "layout", "mem"},
    "kernels": {"quant", "pack", "half", "layout", "cpu"},
    "quant": {"half"},
    "pack": {"half"},
    "half": {"shared"},
    "layout": {"shared"},
    "shared": set(),
    "predict": {"mem"},
    "frame": {"mem", "layout"},
    "tensor": {"mem"},
    "mem": set(),
    "cpu": set(),
    "status": set(),
}

# What C11 gives without an operating system, and header-only libraries that are compiled in.
PURE_HEADERS = {
    "assert.h",
    "fenv.h",
    "float.h",
    "inttypes.h",
    "limits.h",
    "math.h",
    "stdalign.h",
    "stdarg.h",
    "stdbool.h",
    "stddef.h",
    "stdint.h",
    "stdio.h",
    "stdlib.h",
    "string.h",
    "xxhash.h",
    "Random123/philox.h",
}
VECTOR_HEADERS = {"immintrin.h", "xmmintrin.h", "arm_neon.h"}
MAY_ASK_THE_SYSTEM = {"src/base/mem.c", "src/base/cpu.c"}

# stdio.h is there for snprintf, stdlib.h for malloc and strtoul; these are not to be called.
BANNED_CALLS = re.compile(
    r"\b(printf|fprintf|vprintf|vfprintf|puts|fputs|putchar|fwrite|fopen|fread|perror|scanf|sprintf|vsprintf|"
    r"strcpy|strcat|exit|_exit|abort|atexit|getenv|setenv|system|signal|rand|srand)\s*\("
)
SYSTEM_CALLS = {"fopen", "fread"}  # a file of random bytes is a way to ask the system

# Made while building.
MADE = {"kernels_image.h"}

INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*([<\"])([^>\"]+)[>\"]", re.M)


def noun(path):
    return re.split(r"[_.]", path.name)[0]


def find(root, path, name):
    """The file in the tree that an #include "name" in path means, or None."""
    for place in (
        house.pathlib.Path(os.path.normpath(path.parent / name)),
        house.pathlib.Path("include") / name,
    ):
        if (house.pathlib.Path(root) / place).is_file():
            return place
    # The folders of a room are on the include path: the room's own first.
    rooms = sorted(house.ROOMS, key=lambda room: room != path.parts[0])
    for room in rooms:
        top = house.pathlib.Path(root) / room
        for file in [top / name, *sorted(top.glob(f"*/{name}"))]:
            if file.is_file():
                return file.relative_to(root)
    return None


def check_include(root, path, line, bracket, name):
    room = path.parts[0]
    where = f"{path}:{line}"
    if bracket == "<" and not name.startswith("deltawire/"):
        if room == "include" and name not in {"stddef.h", "stdint.h", "stdbool.h"}:
            yield f"{where}: a public header may include <stddef.h>, <stdint.h> and <stdbool.h>, not <{name}>"
        if room == "src" and name not in PURE_HEADERS and str(path) not in MAY_ASK_THE_SYSTEM:
            if not (name in VECTOR_HEADERS and noun(path) in {"kernels", "engine", "codec"}):
                yield f"{where}: the pure layer knows no operating system, and <{name}> is not of C11's own"
        return
    target = find(root, path, name)
    if target is None:
        if room != "tests" and name not in MADE:
            yield f'{where}: "{name}" is no file of this project'
        return
    there = target.parts[0]
    if there not in ROOM_ARROWS[room] and target.name not in OPEN_HEADERS.get(room, ()):
        yield f"{where}: {room}/ must not include {target}"
    elif room == there == "src":
        mine, its = noun(path), noun(target)
        if mine not in FILE_ARROWS:
            yield f"{where}: arrows.py has no rule for {path.name}: add one, and to docs/architecture.md"
        elif its != mine and its not in FILE_ARROWS[mine]:
            yield f"{where}: {path.name} must not include {target.name}"
    if target.suffix not in {".h", ".cuh"} and room != "tests":
        yield f"{where}: includes {target}, which is no header"


def check(root):
    complaints = []
    for path in house.files(root, {".c", ".h", ".cc", ".cu", ".cuh"}):
        source = house.text(root, path)
        # Strings are blanked in the stripped text, so includes are read where comments only are gone.
        uncommented = re.sub(
            r"/\*.*?\*/", lambda m: "\n" * m.group(0).count("\n"), source, flags=re.S
        )
        for match in INCLUDE.finditer(uncommented):
            line = uncommented.count("\n", 0, match.start()) + 1
            complaints += check_include(root, path, line, match.group(1), match.group(2))
        if path.parts[0] == "src":
            bare = house.without_comments(source)
            for match in BANNED_CALLS.finditer(bare):
                if match.group(1) in SYSTEM_CALLS and str(path) in MAY_ASK_THE_SYSTEM:
                    continue
                line = bare.count("\n", 0, match.start()) + 1
                complaints.append(f"{path}:{line}: the pure layer must not call {match.group(1)}")
    return complaints


if __name__ == "__main__":
    house.report("arrows", check(sys.argv[1]))
