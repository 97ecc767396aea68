#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# arrows.py - which folder may include or import which other, and what the pure layer may not use.
"""arrows.py ROOT. The rules are those of docs/architecture.md; each complaint names file, line and
rule. A "module" is a folder at the top of the tree."""

import os
import re
import sys

import lint

# Module -> the modules whose headers it may include.
MODULE_ARROWS = {
    "include": {"include"},
    "base": {"include", "base"},
    "src": {"include", "base", "src"},  # for its own folders see FOLDER_ARROWS
    "transports": {"include", "base", "transports"},  # for its own folders see FOLDER_ARROWS
    "collective": {"include", "base", "collective"},
    "threads": {"include", "base", "threads"},
    "cuda": {"include", "base", "cuda"},
    "trainer": {"include", "base", "trainer"},
    "cli": {"include", "base", "trainer", "cli"},
    "examples": {"include", "examples"},
    "bench": {"include", "base", "bench"},
    "study": {"include", "base", "bench", "study"},
    "python": {"include", "base", "python"},
    "tools": set(),  # only scripts
    "tests": set(lint.MODULES),  # tests may include any header
}

# Headers of src/, and of tests/, that another module may include as an exception.
OPEN_HEADERS = {
    "collective": {"link/for_groups.h"},
    "trainer": {"channel/saved.h"},
    "bench": {"engine/engine.h", "codecs/audit.h", "entropy/rans.h", "kernels/kernels.h",
              "support/async.h", "support/profiles.h"},
    "cuda": {
        "common/pool.h",
        "codecs/plan.h",
        "codecs/profile.h",
        "engine/engine.h",
        "arithmetic/compact.h",
        "arithmetic/mx.h",
        "arithmetic/profile.h",
        "arithmetic/rotate.h",
        "arithmetic/step.h",
        "arithmetic/quant.h",
        "arithmetic/pack.h",
        "arithmetic/half.h",
        "arithmetic/layout.h",
        "arithmetic/rans.h",
        "arithmetic/coded.h",
        "wire/frame.h",
    },
}

# Within a module: folder -> the other folders whose headers it may include. Arrows may only point
# to folders that are further down in this list.
FOLDER_ARROWS = {
    "src": {
        "ends": {"engine", "codecs", "state", "wire", "arithmetic", "common"},
        "engine": {"codecs", "kernels", "common"},
        "codecs": {"entropy", "kernels", "wire", "arithmetic", "common"},
        "entropy": {"kernels", "wire", "arithmetic", "common"},
        "kernels": {"arithmetic", "common"},
        "state": {"common"},
        "wire": {"common"},
        "arithmetic": {"common"},
        "common": set(),
    },
    "transports": {
        "channel": {"link", "common"},
        "link": {"common"},
        "tcp": {"tls", "common"},
        "tls": {"common"},
        "shaped": {"common"},
        "loop": {"common"},
        "mpi": {"common"},
        "nccl": {"common"},
        "common": set(),
    },
    "python/deltawire/torch": {  # what its packages import
        "pipeline": {"common"},
        "ddp": {"gradients", "common"},
        "fsdp": {"gradients", "common"},
        "gradients": {"common"},
        "common": set(),
    },
}

# The page that shows the same in its sections "Inside ROOM/": | `folder/` | what | arrows | tests |
PAGE = "docs/architecture.md"
ROW = re.compile(r"^\| `(\w+)/` \|[^|]*\| ([^|]*?) \|", re.M)

# Headers that C11 provides without an operating system, and header-only libraries.
PURE_HEADERS = {
    "assert.h",
    "fenv.h",
    "float.h",
    "inttypes.h",
    "limits.h",
    "math.h",
    "stdalign.h",
    "stdarg.h",
    "stdatomic.h",
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
# Files that may use memory without the caller's allocator, and why.
MAY_TAKE_MEMORY = {
    "base/mem.c": "the default allocator",
}
BARE_MEMORY = re.compile(
    r"(?<![\w.>])(malloc|calloc|realloc|reallocarray|aligned_alloc|posix_memalign|strdup|strndup"
    r"|asprintf|free)\s*\("
)
# What is compiled into the pure layer. It may use all of base/ but these headers, which ask for the
# time, threads and the process.
PURE_MODULES = ("base", "src", "cuda")
NOT_PURE = {"base/clock.h", "base/fork_guard.h", "base/uncancelled.h"}
MAY_ASK_THE_SYSTEM = {"base/mem.c", "src/common/cpu.c"} | NOT_PURE

# stdio.h is allowed for snprintf, stdlib.h for malloc and strtoul; these functions are not.
BANNED_CALLS = re.compile(
    r"\b(printf|fprintf|vprintf|vfprintf|puts|fputs|putchar|fwrite|fopen|fread|perror|scanf|"
    r"sprintf|vsprintf|strcpy|strcat|exit|_exit|abort|atexit|getenv|setenv|system|signal|rand|"
    r"srand)\s*\("
)
SYSTEM_CALLS = {"fopen", "fread"}  # for a file of random bytes

# Headers that are made by the build.
MADE = {"kernels_image.h"}

IMPORT = re.compile(r"^ *(?:from|import) deltawire\.torch(?:\.| import )(\w+)", re.M)
INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*([<\"])([^>\"]+)[>\"]", re.M)


def find(root, path, name):
    """The file in the tree that an #include "name" in path means, or None."""
    for place in (
        lint.pathlib.Path(os.path.normpath(path.parent / name)),
        lint.pathlib.Path("include") / name,
        lint.pathlib.Path(name),  # base/
    ):
        if (lint.pathlib.Path(root) / place).is_file():
            return place
    own_first = sorted(lint.MODULES, key=lambda module: module != path.parts[0])
    for module in own_first:
        if (lint.pathlib.Path(root) / module / name).is_file():
            return lint.pathlib.Path(module) / name
    return None


def check_include(root, path, line, bracket, name):
    module = path.parts[0]
    where = f"{path}:{line}"
    if bracket == "<" and not name.startswith("deltawire/"):
        if module == "include" and name not in {"stddef.h", "stdint.h", "stdbool.h"}:
            yield (
                f"{where}: a public header may include <stddef.h>, <stdint.h> and <stdbool.h>, "
                f"not <{name}>"
            )
        if (
            module in {"base", "src"}
            and name not in PURE_HEADERS
            and str(path) not in MAY_ASK_THE_SYSTEM
        ):
            if not (name in VECTOR_HEADERS and path.parts[1] in {"kernels", "common"}):
                yield (
                    f"{where}: the pure layer knows no operating system, and <{name}> is not of "
                    "C11's own"
                )
        return
    target = find(root, path, name)
    if target is None:
        if module != "tests" and name not in MADE:
            yield f'{where}: "{name}" is no file of this project'
        return
    there = target.parts[0]
    if module in PURE_MODULES and str(target) in NOT_PURE:
        yield f"{where}: the pure layer must not include {target}"
    if there not in MODULE_ARROWS[module] and "/".join(target.parts[1:]) not in OPEN_HEADERS.get(
        module, ()
    ):
        yield f"{where}: {module}/ must not include {target}"
    elif module == there and module in FOLDER_ARROWS:
        mine, its = path.parts[1], target.parts[1]
        if mine not in FOLDER_ARROWS[module]:
            yield (
                f"{where}: arrows.py has no rule for {module}/{mine}: add one, and to "
                "docs/architecture.md"
            )
        elif its != mine and its not in FOLDER_ARROWS[module][mine]:
            yield f"{where}: {module}/{mine} must not include {target}"
    if target.suffix not in {".h", ".cuh"} and module != "tests":
        yield f"{where}: includes {target}, which is no header"


def check_imports(root):
    """The packages of deltawire.torch must keep to their arrows, too."""
    top = lint.pathlib.Path("python/deltawire/torch")
    arrows = FOLDER_ARROWS[str(top)]
    for path in lint.files(root, {".py"}):
        if top in path.parents and path.parent != top:
            text, mine = lint.text(root, path), path.relative_to(top).parts[0]
            for match in IMPORT.finditer(text):
                if match[1] not in arrows.get(mine, set()) | {mine}:
                    line = text.count("\n", 0, match.start()) + 1
                    yield f"{path}:{line}: {top}/{mine} must not import {match[1]}"


def check_page(root):
    """docs/architecture.md must have a row for each folder, with the same arrows as here."""
    page = lint.pathlib.Path(root) / PAGE
    sections = page.read_text(encoding="utf-8").split("\n## ") if page.is_file() else []
    for module, folders in FOLDER_ARROWS.items():
        text = next((s for s in sections if s.startswith(f"Inside {module}/\n")), "")
        rows = {folder: set(arrows.split(", ")) for folder, arrows in ROW.findall(text)}
        for folder in sorted(rows.keys() | folders.keys()):
            ours = folders.get(folder)
            if folder not in rows:
                yield f"{PAGE}: Inside {module}/ has no row for {folder}/, and arrows.py has a rule"
            elif ours is None:
                yield f"{PAGE}: Inside {module}/ has a row for {folder}/, and arrows.py has no rule"
            elif rows[folder] != (ours or {"nothing"}):
                yield (
                    f"{PAGE}: {module}/{folder}/ may include {', '.join(sorted(rows[folder]))}, "
                    f"and in arrows.py {', '.join(sorted(ours)) or 'nothing'}"
                )


def circle(arrows):
    """The files of one circle of includes, or [] if there is none."""
    done, path = set(), []

    def walk(file):
        if file in path:
            return path[path.index(file) :] + [file]
        if file in done:
            return []
        path.append(file)
        for target in arrows.get(file, ()):
            found = walk(target)
            if found:
                return found
        path.pop()
        done.add(file)
        return []

    for file in arrows:
        found = walk(file)
        if found:
            return found
    return []


def check_memory(path, bare):
    """The libraries must take memory from the caller's allocator."""
    for match in BARE_MEMORY.finditer(bare):
        if str(path) not in MAY_TAKE_MEMORY:
            line = bare.count("\n", 0, match.start()) + 1
            yield f"{path}:{line}: {match.group(1)} passes the caller's allocator by"


def check(root):
    complaints = []
    arrows = {}
    for path in lint.files(root, {".c", ".h", ".cc", ".cu", ".cuh"}):
        source = lint.text(root, path)
        # The stripped text has no contents of strings, so includes are read from a text without
        # comments only.
        uncommented = re.sub(
            r"/\*.*?\*/", lambda m: "\n" * m.group(0).count("\n"), source, flags=re.S
        )
        for match in INCLUDE.finditer(uncommented):
            line = uncommented.count("\n", 0, match.start()) + 1
            complaints += check_include(root, path, line, match.group(1), match.group(2))
            target = find(root, path, match.group(2))
            if target is not None:
                arrows.setdefault(path, []).append(target)
        bare = lint.without_comments(source)
        if path.parts[0] in ("base", "src", "transports", "collective"):
            complaints += check_memory(path, bare)
        if path.parts[0] in ("base", "src"):
            for match in BANNED_CALLS.finditer(bare):
                if match.group(1) in SYSTEM_CALLS and str(path) in MAY_ASK_THE_SYSTEM:
                    continue
                line = bare.count("\n", 0, match.start()) + 1
                complaints.append(f"{path}:{line}: the pure layer must not call {match.group(1)}")
    complaints += check_imports(root)
    complaints += check_page(root)
    ring = circle(arrows)
    if ring:
        complaints.append(
            "files that include each other in a circle: " + " -> ".join(map(str, ring))
        )
    for module, folders in FOLDER_ARROWS.items():
        ring = circle({folder: sorted(targets) for folder, targets in folders.items()})
        if ring:
            complaints.append(
                f"the folders of {module}/ lean on each other in a circle: " + " -> ".join(ring)
            )
    return complaints


if __name__ == "__main__":
    lint.report("arrows", check(sys.argv[1]))
