#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# symbols.py - checks what the libraries export and call, and that the pure layer has no writable
# data.
"""symbols.py ROOT BUILD. Uses nm, objdump and readelf on the libraries in BUILD."""

import pathlib
import re
import subprocess
import sys

import lint

# Library -> the public headers whose functions it must export, all of them and nothing else but
# those of its headers in PRIVATE.
LIBRARIES = {
    "deltawire": (["deltawire.h", "cuda.h", "profile.h"], "src"),
    "deltawire-threads": (["threads.h", "storage.h"], "threads"),
    "deltawire-net": (["transport.h", "collective.h"], "transports"),
    "deltawire-nccl": (["nccl.h"], "transports/nccl"),
    "deltawire-mpi-openmpi": (["mpi.h"], "transports/mpi"),
    "deltawire-mpi-mpich": (["mpi.h"], "transports/mpi"),
}
# Headers of functions that a library exports for the others of the project alone.
INTERNAL = {
    "deltawire": ["base/cuda_memory.h", "base/held_keys.h"],
    "deltawire-net": ["transports/channel/saved.h"],
}
# Library -> the linker's version script, which lists the same functions.
MAPS = {
    "deltawire": "src/libdeltawire.map",
    "deltawire-threads": "threads/libdeltawire-threads.map",
    "deltawire-net": "transports/libdeltawire-net.map",
    "deltawire-nccl": "transports/nccl/libdeltawire-nccl.map",
    "deltawire-mpi-openmpi": "transports/mpi/libdeltawire-mpi.map",
    "deltawire-mpi-mpich": "transports/mpi/libdeltawire-mpi.map",
}
VERSION_NODE = "DELTAWIRE_0"
MAP = re.compile(r"^\s*(\w+)\s*\{\s*global:\s*((?:\w+;\s*)*)local:\s*\*;\s*\};\s*$")

# All functions of libc and libm that the pure layer may call: no input or output, no threads, no
# exit.
PURE_CALLS = {
    "memchr",
    "memcmp",
    "memcpy",
    "memmove",
    "memset",
    "strchr",
    "strcmp",
    "strcspn",
    "strlen",
    "strncmp",
    "strspn",
    "snprintf",
    "vsnprintf",
    "strtoul",
    "strtoull",
    "rintf",
    "nearbyintf",
    "sqrt",
    "__assert_fail",
    "__stack_chk_fail",
    "_GLOBAL_OFFSET_TABLE_",
}
# What mem.c and cpu.c may call in addition: memory, random bytes, the rounding mode.
SYSTEM_CALLS = {
    "malloc",
    "calloc",
    "free",
    "aligned_alloc",
    "posix_memalign",
    "madvise",
    "getrandom",
    "fopen",
    "fopen64",
    "fread",
    "fclose",
    "time",
    "feholdexcept",
    "fesetround",
    "fesetenv",
    "__cpu_model",
    "__cpu_indicator_init",
}
SYSTEM_OBJECTS = {"mem.c.o", "common_cpu.c.o"}
# The CUDA driver is loaded at run time, in one file.
LINKER_CALLS = {"dlopen", "dlsym", "dlclose"}
LINKER_OBJECTS = {"driver.c.o"}
FORTIFIED = re.compile(r"^__(\w+)_chk$")  # what _FORTIFY_SOURCE makes of memcpy and others
WRITABLE = re.compile(
    r"^\S+ (.{7}) (\.(?:data|bss|tdata|tbss)\S*|\*COM\*)\s+([0-9a-f]+)\s+(?:\.hidden )?(\S+)$"
)


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def declared(root, headers):
    """The functions that headers mark with DW_API."""
    names = set()
    for header in headers:
        source = lint.without_comments(lint.text(root, header))
        source = re.sub(r"^[ \t]*#.*$", "", source, flags=re.M)
        names |= set(re.findall(r"\bDW_API\b[^;{(]*?\b(\w+)\s*\(", source))
    return names


def check_map(text, path, functions):
    """The version script must list the functions of the headers, each once, in order."""
    match = MAP.match(lint.without_comments(text))
    if not match or match.group(1) != VERSION_NODE:
        yield f"{path}: write {VERSION_NODE} {{ global: names; local: *; }};"
        return
    names = match.group(2).replace(";", " ").split()
    for name in sorted(set(names) - functions):
        yield f"{path} exports {name}, which no public header declares"
    for name in sorted(functions - set(names)):
        yield f"{path} lacks {name}, which a public header declares"
    if names != sorted(set(names)):
        yield f"{path}: write each name once, in the order of the alphabet"


def check_shared(library, functions):
    exported = set()
    for line in run("nm", "-D", "--defined-only", str(library)).splitlines():
        name, _, version = line.split()[-1].partition("@@")
        if name == VERSION_NODE:
            continue
        exported.add(name)
        if version != VERSION_NODE:
            yield (
                f"{library.name} exports {name} without the version {VERSION_NODE}: is it linked "
                "by its map?"
            )
    for name in sorted(exported - functions):
        yield f"{library.name} exports {name}, which no public header declares"
    for name in sorted(functions - exported):
        yield f"{library.name} does not export {name}, which a public header declares"
    if not re.search(
        r"SONAME.*\[" + re.escape(library.name.split(".so")[0]) + r"\.so\.\d+\]",
        run("readelf", "-d", str(library)),
    ):
        yield f"{library.name} has no SONAME with a version number"


def check_archive(archive):
    for line in run("nm", "-g", "--defined-only", str(archive)).splitlines():
        parts = line.split()
        if len(parts) == 3 and not parts[2].startswith("dw_"):
            yield f"{archive.name}: the global symbol {parts[2]} does not begin with dw_"


def check_pure(archive):
    """There must be no writable data, and no calls except PURE_CALLS."""
    defined, wanted, member = set(), set(), ""
    for line in run("nm", str(archive)).splitlines():
        parts = line.split()
        if line.endswith(":"):
            member = pathlib.Path(line[:-1]).name.rsplit("src_")[-1]
        elif len(parts) == 2 and parts[0] == "U":
            wanted.add((member, parts[1]))
        elif len(parts) == 3:
            defined.add(parts[2])
    for member, name in sorted(wanted):
        fortified = FORTIFIED.match(name)
        plain = fortified.group(1) if fortified else name
        allowed = PURE_CALLS | (
            SYSTEM_CALLS
            if member in SYSTEM_OBJECTS
            else LINKER_CALLS if member in LINKER_OBJECTS else set()
        )
        if name not in defined and name not in allowed and plain not in allowed:
            yield (
                f"{archive.name}: {member} calls {name}: the pure layer may not (see PURE_CALLS "
                "in symbols.py)"
            )
    for line in run("objdump", "-t", str(archive)).splitlines():
        match = WRITABLE.match(line)
        if not match or match.group(2).startswith(".data.rel.ro"):
            continue
        flags, section, size, name = match.groups()
        if int(size, 16) > 0 and name != section:
            yield (
                f"{archive.name}: {name} is writable global data ({section}); the pure layer has "
                "no globals"
            )


def check(root, build):
    complaints = []
    for name, (headers, folder) in LIBRARIES.items():
        place = pathlib.Path(build) / folder
        public = [f"{lint.PUBLIC_HEADERS}/{header}" for header in headers]
        functions = declared(root, public + INTERNAL.get(name, []))
        shared = [
            path
            for path in place.glob(f"lib{name}.so*")
            if not path.is_symlink() and path.is_file()
        ]
        archive = place / f"lib{name}.a"
        if not shared and not archive.exists() and name != "deltawire":
            print(f"symbols: lib{name} was not built")
            continue
        if len(shared) != 1 or not archive.exists():
            complaints.append(
                f"{place}: expected one lib{name}.so.* and lib{name}.a (default_library=both)"
            )
            continue
        if not functions:
            complaints.append(f"{headers}: not one DW_API function found")
        script = pathlib.Path(root, MAPS[name])
        complaints += check_map(script.read_text(), MAPS[name], functions)
        complaints += check_shared(shared[0], functions)
        complaints += check_archive(archive)
        if name == "deltawire":
            complaints += check_pure(archive)
    return complaints


if __name__ == "__main__":
    lint.report("symbols", check(sys.argv[1], sys.argv[2]))
