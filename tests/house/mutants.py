#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# mutants.py - breaks the rules of the tree on purpose: each check must detect it.
"""mutants.py ROOT

A check that has never failed may not work. Each mutant is one change to a copy of the tree, and a
part of the complaint that the check must then print.
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile

import arrows
import blame
import count_results
import folders
import format
import headers
import house
import manual
import pick_tests
import reference
import snippets
import style
import symbols

FUNCTION = "/* SPDX-License-Identifier: Apache-2.0\n * {0} - a mutant. */\n"
LONG = "int dw_long(void)\n{\n" + "    (void)0;\n" * style.FUNCTION_LINES + "    return 0;\n}\n"
MARK = "TO" "DO"
WIDE = "| " + 110 * "x" + " |"
ROW, LINE = f" * {WIDE}\n", 110 * "x"
C_TABLE = f"/* A table.\n *\n * wide table:\n{ROW}{ROW} */\n"

# check, file, text that is appended (or all of it, if the file is new), a part of the complaint
# A wide table:
# fmt: off
TREE_MUTANTS = [
    (arrows, "src/base/status.c", "#include <unistd.h>\n", "<unistd.h> is not of C11's own"),
    (arrows, "src/base/status.c", "#include <pthread.h>\n", "<pthread.h> is not of C11's own"),
    (arrows, "src/base/status.c", '#include "deltawire/transport.h"\n#include "codec.h"\n', '"codec.h"'),
    (arrows, "src/base/status.c", "void f(void) { printf(\"\"); }\n", "must not call printf"),
    (arrows, "src/base/status.c", "void f(void) { exit(1); }\n", "must not call exit"),
    (arrows, "src/base/status.c", "const char *f(void) { return getenv(\"A\"); }\n", "must not call getenv"),
    (arrows, "src/state/predict.c", "void f(void *p) { free(p); }\n", "free passes the caller's allocator by"),
    (arrows, "transports/tcp/tcp.c", "void *f(void) { return strdup(\"x\"); }\n", "strdup passes the caller's allocator by"),
    (arrows, "transports/mpi/mpi.c", "void *f(void) { return malloc (1); }\n", "malloc passes the caller's allocator by"),
    (arrows, "src/state/mutant.c", '#include "wire/mutant.h"\n', "src/state must not include src/wire/mutant.h"),
    (arrows, "src/novelty/mutant.c", '#include "wire/mutant.h"\n', "no rule for src/novelty"),
    (arrows, "src/wire/ring.h", '#include "wire/ring_too.h"\n', "in a circle"),
    (arrows, "transports/tcp/mutant.c", '#include "link/link.h"\n', "transports/tcp must not include transports/link"),
    (arrows, "transports/mutant.c", '#include "../src/wire/mutant.h"\n', "transports/ must not include src/"),
    (arrows, "trainer/mutant.c", '#include "wire/mutant.h"\n', "trainer/ must not include src/"),
    (arrows, "examples/mutant.c", '#include "mutant_room.h"\n', "examples/ must not include transports/"),
    (arrows, "examples/mutant.c", '#include "nowhere.h"\n', "no file of this project"),
    (arrows, "include/deltawire/version.h", "#include <stdio.h>\n", "a public header may include"),
    (style, "src/mutant.c", "int dw_x;\n", "the head must be"),
    (style, "src/mutant.c", FUNCTION.format("other.c"), "the head must be"),
    (style, "tests/mutant.py", "import sys\n", "the head must be"),
    (style, "src/mutant.c", FUNCTION.format("mutant.c") + LONG, "dw_long has"),
    (style, "src/mutant.c", FUNCTION.format("mutant.c") + "\n" * style.FILE_LINES, "split it, or say why"),
    (style, "src/mutant.c", FUNCTION.format("mutant.c") + f"/* {MARK}: more */\n", "must not stay"),
    (style, "docs/mutant.md", f"{MARK}\n", "must not stay"),
    (style, "include/deltawire/collective.h", "\n" * 260, "lines, more than 260"),
    (style, "tests/house/exceptions.txt", "src/base/status.c:dw_nothing - it was once long enough\n", "no exception any more"),
    (style, "tests/house/exceptions.txt", "src/base/status.c - long\n", "say why"),
    (style, "include/deltawire/mutant.h", FUNCTION.format("mutant.h") + "\n" * 500, "lines together"),
    (format, "src/mutant.c", f"/* {LINE} */\n", "mutant.c:1: 116 columns, more than 100"),
    (format, "src/mutant.c", f"/* Not marked.\n{ROW} */\n", "mutant.c:2: 117 columns"),
    (format, "src/mutant.c", C_TABLE + f"/* {LINE} */\n", "mutant.c:7: 116 columns"),
    (format, "src/mutant.c", C_TABLE.replace(" */", f" * {LINE} */"), "mutant.c:6: 116 columns"),
    (format, "src/mutant.c", "/* A table.\n *\n * wide table:\n * | x | */\n", "mutant.c:3: this marker"),
    (format, "cuda/kernels.cu", "int dw_x; \n", "blanks at the end"),
    (format, "cuda/block.cuh", "\tint dw_x;\n", "a tab"),
    (format, "tests/mutant.py", f"# fmt: off\n# {LINE}\n# fmt: on\n# {LINE}\n", "mutant.py:4: 112 columns"),
    (format, "docs/mutant.md", f"{WIDE}\n", "mutant.md:1: 114 columns"),
    (format, "docs/mutant.md", f"<!-- wide table -->\n{WIDE}\n\n{LINE}\n", "mutant.md:4: 110 columns"),
    (format, "docs/mutant.md", "words", "ends with one newline"),
    (format, "docs/mutant.md", "words\n\n", "ends with one newline"),
    (format, "MUTANT.md", f"{LINE}\n", "MUTANT.md:1: 110 columns"),
    (format, "run", f"# {LINE}\n", "112 columns"),
    (format, "tests/meson.build", f"# {LINE}\n", "112 columns"),
    (format, "tests/cross/aarch64.ini", f"# {LINE}\n", "112 columns"),
    (format, "tests/house/exceptions.txt", "docs/deploy.md:columns - it once had a long line\n", "no exception any more"),
    (folders, "src/novelty/mutant.c", "int dw_x;\n", "src/novelty: neither meson.build nor README.md"),
    (folders, "cli/novelty/meson.build", "x = 1\n", "cli/novelty: its beginning must say first"),
    (folders, "cli/novelty/meson.build", "# A new thing.\n#\n# Tests: tests/cli.\nx = 1\n", 'lacks a line "Change: ..."'),
    (folders, "cli/novelty/meson.build", "# A new thing.\n# Change: freely.\nx = 1\n# Tests: tests/cli.\n", 'lacks a line "Tests: ..."'),
    (folders, "docs/novelty/README.md", "A new thing.\n\nChange: freely.\n\nTests: tests/nowhere.\n", "there is no tests/nowhere"),
    (folders, "docs/novelty/README.md", "A new thing.\n\nChange: freely.\n\nTests: some.\n", "names no file"),
    (headers, "include/deltawire/mutant.h", "static inline void dw_f(size_t n) { (void)n; }\n", "alone does not compile"),
    (headers, "include/deltawire/mutant.h", "void dw_f(int);\n", 'without extern "C"'),
    (headers, "include/deltawire/mutant.h", "typedef struct { int a; int b[]; } dw_flexible;\n", "does not compile with g++"),
    (headers, "include/deltawire/mutant.h", "enum { DW_A = 1 };\n", "alone does not compile with gcc"),  # no guard
    (headers, "include/deltawire/mutant.h", "#if DW_UNKNOWN\n#endif\n", "alone does not compile with clang "),
]
# fmt: on

HELPERS = {
    "src/wire/mutant.h": "#define DW_A\n",
    "src/wire/ring_too.h": '#include "wire/ring.h"\n',
    "transports/mutant_room.h": "#define DW_A\n",
}

PROGRAM = "int main(void)\n{\n    return RETURN;\n}\n"
SNIPPET_MUTANTS = [
    ("```c\nint main(void) { return undeclared; }\n```\n", "does not compile"),
    ("```c\n" + PROGRAM.replace("RETURN", "3") + "```\n", "exits with 3"),
    (
        "```c\n" + PROGRAM.replace("RETURN", "0") + "```\n\n```text output\nhello\n```\n",
        "the program prints",
    ),
    ("```text output\nhello\n```\n", "output without a program"),
    # Without a library for an MPI, which this build lacks, programs for MPI are compiled alone.
    (
        "```c\n#include <deltawire/mpi.h>\nint main(void) { return dw_mpi_sizes(0); }\n```\n",
        "does not compile",
    ),
    ("```c sketch\nint x\n```\n", "unknown mark"),
]

# source of an object in a library, a part of the complaint
OBJECT_MUTANTS = [
    ("int stray(void) { return 1; }", "stray does not begin with dw_"),
    (
        "static int count; int dw_next(void); int dw_next(void) { return ++count; }",
        "count is writable global data (.bss)",
    ),
    ("int dw_level = 3;", "dw_level is writable global data (.data)"),
    (
        "static _Thread_local int depth; int dw_next(void); int dw_next(void) { return ++depth; }",
        "depth is writable global data (.tbss)",
    ),
    ("void exit(int); void dw_leave(void); void dw_leave(void) { exit(1); }", "calls exit"),
    (
        "void *malloc(unsigned long); void *dw_m(void); void *dw_m(void) { return malloc(8); }",
        "calls malloc",
    ),
    ('int puts(const char *); void dw_say(void); void dw_say(void) { puts(""); }', "calls puts"),
    (
        "void *dlopen(const char *, int); void *dw_d(void); void *dw_d(void) "
        '{ return dlopen("", 1); }',
        "calls dlopen",
    ),
    (
        "int socket(int, int, int); int dw_s(void); int dw_s(void) { return socket(0, 0, 0); }",
        "calls socket",
    ),
]
# A version script for the linker: what is in it, what the mutant writes, a part of the complaint.
SOUND_MAP = "/* A map. */\nDELTAWIRE_0 {\nglobal:\n    dw_a;\n    dw_b;\nlocal:\n    *;\n};\n"
MAP_MUTANTS = [
    ("    dw_b;\n", "", "lacks dw_b"),
    ("    dw_b;\n", "    dw_b;\n    dw_c;\n", "exports dw_c"),
    ("    dw_a;\n    dw_b;\n", "    dw_b;\n    dw_a;\n", "in the order of the alphabet"),
    ("dw_b;", "dw_*;", "write DELTAWIRE_0"),
    ("    *;\n", "", "write DELTAWIRE_0"),
    ("DELTAWIRE_0", "DELTAWIRE_1", "write DELTAWIRE_0"),
]
INNOCENT_OBJECT = """
static const char *const names[] = {"a", "b"};
const char *dw_name(int i); const char *dw_name(int i) { return names[i]; }
"""


def expect(failures, name, complaints, words):
    if not any(words in complaint for complaint in complaints):
        failures.append(
            f'{name} survives: expected a complaint with "{words}", got {complaints[:3]}'
        )


def copy(root, place):
    for name in house.ROOMS + ("docs", "cmake", "run", ".ci", "README.md", "CONTRIBUTING.md"):
        source = pathlib.Path(root) / name
        if source.is_dir():
            shutil.copytree(
                source, place / name, ignore=shutil.ignore_patterns("__pycache__", "corpus")
            )
        elif source.exists():
            shutil.copy(source, place / name)
    (place / "docs").mkdir(exist_ok=True)


def tree_mutants(root, failures):
    with tempfile.TemporaryDirectory(prefix="dw-mutants-") as name:
        place = pathlib.Path(name)
        copy(root, place)
        for helper, content in HELPERS.items():
            (place / helper).write_text(content)
        for check, path, added, words in TREE_MUTANTS:
            file = place / path
            before = file.read_text() if file.exists() else None
            file.parent.mkdir(exist_ok=True)
            file.write_text((before or "") + added)
            if check is headers:  # only the mutant, because the real headers have their own test
                others = [p for p in (place / house.PUBLIC_HEADERS).iterdir() if p != file]
                complaints = with_files_away(others, lambda: headers.check(place))
            else:
                complaints = check.check(place)
            expect(failures, f"{check.__name__}: {path}", complaints, words)
            if before is None:
                file.unlink()
            else:
                file.write_text(before)
    return len(TREE_MUTANTS)


def folder_mutants(root, failures):
    """Every folder in turn lacks one of the lines that it must have."""
    wanted = folders.folders(root)
    for folder in wanted:
        lines = folders.beginning(root, folder)
        for word in ("Change", "Tests"):
            less = [line for line in lines if not line.startswith(f"{word}:")]
            complaints = list(folders.look(root, folder, less))
            expect(failures, f"folders: {folder}", complaints, f'lacks a line "{word}: ..."')
    return 2 * len(wanted)


def format_mutants(root, failures):
    """Marked tables may be wide. What clang-format would change is detected, if it is installed."""
    for path, content in (
        ("a.h", C_TABLE),
        ("a.c", f"/* clang-format off */\nint {LINE};\n/* clang-format on */\n"),
        ("a.py", f"# fmt: off\n# {LINE}\n# fmt: on\n"),
        ("a.md", f"<!-- wide table -->\n{WIDE}\n{WIDE}\n"),
    ):
        for complaint in format.check_lines(pathlib.Path(path), content):
            failures.append(f"format complains about a marked table: {complaint}")
    with tempfile.TemporaryDirectory(prefix="dw-mutants-") as name:
        place = pathlib.Path(name)
        shutil.copy(pathlib.Path(root) / ".clang-format", place)
        for suffix in sorted(format.SOURCES):
            file = place / "src" / f"mutant{suffix}"
            file.parent.mkdir(exist_ok=True)
            file.write_text("int dw_x;\n")
            if format.check_layout(place):
                failures.append(f"clang_format complains about a sound {file.name}")
            file.write_text("int  dw_x;\n")
            complaints = format.check_layout(place)
            if complaints is None:
                print(f"{format.CLANG_FORMAT} is not installed: its mutants are left out")
                break
            expect(
                failures, f"clang_format: {file.name}", complaints, f"src/{file.name}:1:4: error"
            )
            file.unlink()
    return 4 + len(format.SOURCES)


def page_mutants(root, failures):
    """docs/architecture.md lacks a row, has one too many, or shows another arrow."""
    page = house.text(root, arrows.PAGE)
    changes = [
        ("| `wire/` |", "| wire |", "Inside src/ has no row for wire/"),
        ("| `loop/` |", "| `pool/` |", "Inside transports/ has a row for pool/"),
        ("| link, common |", "| link |", "transports/channel/ may include link, and in arrows.py"),
        ("| nothing | `tests/base` |", "| wire | `tests/base` |", "src/base/ may include wire"),
    ]
    with tempfile.TemporaryDirectory(prefix="dw-mutants-") as name:
        place = pathlib.Path(name)
        (place / arrows.PAGE).parent.mkdir()
        for old, new, words in changes:
            (place / arrows.PAGE).write_text(page.replace(old, new))
            expect(failures, f"arrows: {arrows.PAGE}: {new}", list(arrows.check_page(place)), words)
    return len(changes)


def blame_mutants(failures):
    """Hashes that are not commits are detected; without history nothing is claimed."""
    with tempfile.TemporaryDirectory(prefix="dw-mutants-") as name:
        (pathlib.Path(name) / blame.FILE).write_text("# none\n")
        if blame.check(name) is not None:
            failures.append("blame looks at a tree without history")
        who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        for words in (["init", "-q"], [*who, "commit", "-q", "--allow-empty", "-m", "first"]):
            if blame.git(name, *words) is None:
                print("git is not here or refuses: blame's mutants are left out")
                return 1
        for line, words in (
            (blame.git(name, "rev-parse", "HEAD"), None),
            ("0" * 40, "is no commit"),
            ("abcd", "a whole hash"),
        ):
            (pathlib.Path(name) / blame.FILE).write_text(line + "\n")
            complaints = blame.check(name)
            if words:
                expect(failures, f"blame: {line}", complaints, words)
            elif complaints:
                failures.append(f"blame complains about a sound hash: {complaints}")
    return 4


def manual_mutants(root, failures):
    """Manual pages that are outdated, of another version, or invalid for troff."""
    page = house.text(root, "docs/deltawire.3")
    with tempfile.TemporaryDirectory(prefix="dw-mutants-") as name:
        place = pathlib.Path(name)
        shutil.copytree(pathlib.Path(root) / house.PUBLIC_HEADERS, place / house.PUBLIC_HEADERS)
        (place / "docs").mkdir()
        for old, new, words in (
            (".BR dw_encode (),\n", "", "is old: it lacks ['.BR dw_encode (),']"),
            (".BR dw_encode (),\n", ".BR dw_gone (),\n", "has ['.BR dw_gone (),']"),
            ('"deltawire ', '"deltawire 9.', "is not that of version"),
        ):
            begin = page.index(manual.BEGIN) if old.startswith(".BR") else 0
            (place / "docs/deltawire.3").write_text(
                page[:begin] + page[begin:].replace(old, new, 1), encoding="utf-8"
            )
            complaints = list(
                manual.compare(place, "deltawire.3", manual.functions(place), write=False)
            )
            expect(failures, f"manual: {words}", complaints, words)
        (place / "docs/deltawire.3").write_text(page + ".nosuchmacro\n", encoding="utf-8")
        if shutil.which("groff"):
            complaints = list(manual.lint(place, "deltawire.3"))
            expect(failures, "manual: an unknown macro", complaints, "nosuchmacro")
    said = "Usage: deltawire x [OPTION...]\nDoes x.\n\n Part:\n  -j, --json=A   To\n\nAn example.\n"
    page = "\n".join(manual.command_page("x", said))
    for words in ('.SS "Part"', ".B \\-j, \\-\\-json=A\nTo", ".nf\nAn example.\n.fi", "Does x."):
        if words not in page:
            failures.append(f"manual: a --help loses {words}: {page}")
    return 8


def reference_mutants(root, failures):
    """Detects a comment that Doxygen cannot read, and a function that the reference lacks."""
    if not shutil.which("doxygen"):
        print("doxygen is not installed: its mutants are left out")
        return 0
    with tempfile.TemporaryDirectory(prefix="dw-mutants-") as name:
        place = pathlib.Path(name)
        for folder in ("include", "tools", "docs"):
            shutil.copytree(pathlib.Path(root) / folder, place / folder)
        filter_file = place / "tools/doxygen_filter.py"
        sound, wrong = '    return "/**"\n', '    return "/** @param nobody x"\n'
        filter_file.write_text(filter_file.read_text().replace(sound, wrong))
        header = place / house.PUBLIC_HEADERS / "mutant.h"
        header.write_text("/* @file */\n#ifdef DW_NEVER\nDW_API int dw_hidden(void);\n#endif\n")
        complaints = reference.check(place, place / "out")
        expect(failures, "reference: a wrong comment", complaints, "nobody")
        expect(failures, "reference: a hidden function", complaints, "has no dw_hidden")
    return 2


def with_files_away(paths, action):
    for path in paths:
        path.rename(path.with_suffix(".away"))
    try:
        return action()
    finally:
        for path in paths:
            path.with_suffix(".away").rename(path)


def snippet_mutants(root, failures):
    with tempfile.TemporaryDirectory(prefix="dw-mutants-") as name:
        place = pathlib.Path(name)
        (place / "src").mkdir()
        (place / "include").symlink_to(pathlib.Path(root).resolve() / "include")
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(place / "src/libdeltawire.so")],
            input=INNOCENT_OBJECT,
            text=True,
            check=True,
        )
        for content, words in SNIPPET_MUTANTS:
            (place / "README.md").write_text(content)
            expect(failures, f"snippets: {words}", snippets.check(place, place), words)
        (place / "README.md").write_text("words only\n")
        expect(
            failures,
            "snippets: empty README",
            snippets.check(place, place),
            "shows no whole C program",
        )
        (place / "README.md").write_text("```c\n" + PROGRAM.replace("RETURN", "0") + "```\n")
        if snippets.check(place, place):
            failures.append("snippets complains about a sound program")
        content, words = SNIPPET_MUTANTS[-1]
        (place / "MUTANT.md").write_text(content)
        expect(failures, "snippets: another page", snippets.check(place, place), words)
    return len(SNIPPET_MUTANTS) + 2


def object_mutants(failures):
    with tempfile.TemporaryDirectory(prefix="dw-mutants-") as name:
        place = pathlib.Path(name)

        def archive(source):
            subprocess.run(
                ["cc", "-O0", "-fPIC", "-c", "-x", "c", "-", "-o", str(place / "mutant.o")],
                input=source,
                text=True,
                check=True,
            )
            (place / "libmutant.a").unlink(missing_ok=True)
            subprocess.run(
                ["ar", "rcs", str(place / "libmutant.a"), str(place / "mutant.o")], check=True
            )
            return [
                *symbols.check_archive(place / "libmutant.a"),
                *symbols.check_pure(place / "libmutant.a"),
            ]

        if archive(INNOCENT_OBJECT):
            failures.append(f"symbols complains about constants: {archive(INNOCENT_OBJECT)}")
        for source, words in OBJECT_MUTANTS:
            expect(failures, f"symbols: {source}", archive(source), words)
        shared = place / "libmutant.so.1"
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(shared)],
            input="int dw_extra = 1;",
            text=True,
            check=True,
        )
        complaints = list(symbols.check_shared(shared, {"dw_wanted"}))
        for words in (
            "exports dw_extra, which",
            "dw_extra without the version",
            "does not export dw_wanted",
            "has no SONAME",
        ):
            expect(failures, f"symbols: {words}", complaints, words)
    return len(OBJECT_MUTANTS) + 4


def map_mutants(failures):
    if list(symbols.check_map(SOUND_MAP, "a.map", {"dw_a", "dw_b"})):
        failures.append("symbols complains about a sound version script")
    for old, new, words in MAP_MUTANTS:
        complaints = list(symbols.check_map(SOUND_MAP.replace(old, new), "a.map", {"dw_a", "dw_b"}))
        expect(failures, f"symbols: {words}", complaints, words)
    return len(MAP_MUTANTS)


def counting(failures):
    """The count at the end of `./run test` must not lose a failure."""
    cases = [
        ({"result": "OK", "stderr": "[  PASSED  ] 12 test(s).\n"}, (12, 0, 0)),
        ({"result": "OK"}, (1, 0, 0)),
        (
            {
                "result": "FAIL",
                "stderr": "[  PASSED  ] 11 test(s).\n[  FAILED  ] 1 test(s), listed below:\n",
            },
            (11, 1, 0),
        ),
        (
            {"result": "FAIL", "stderr": "[  PASSED  ] 12 test(s).\n==1==ERROR: LeakSanitizer"},
            (12, 1, 0),
        ),
        ({"result": "TIMEOUT"}, (0, 1, 0)),
        ({"result": "ERROR"}, (0, 1, 0)),
        ({"result": "SKIP"}, (0, 0, 1)),
        (
            {
                "result": "OK",
                "stdout": "[  PASSED  ] 3 test(s).\n[  SKIPPED ] 2 test(s), listed below:\n",
            },
            (3, 0, 2),
        ),
        ({"result": "OK", "stderr": "[  FAILED  ] 1 test(s), listed below:\n"}, (0, 1, 0)),
    ]
    for entry, counts in cases:
        if count_results.count_program(entry) != counts:
            failures.append(
                f"count_results: {entry} gives {count_results.count_program(entry)}, not {counts}"
            )
    with tempfile.TemporaryDirectory(prefix="dw-mutants-") as name:
        (pathlib.Path(name) / "builds.tsv").write_text("pass\ta\nfail\tb\nskip\tc\n")
        if count_results.count_directory(pathlib.Path(name)) != ([1, 1, 1], ["b"], 0):
            failures.append(
                "count_results: a build that passes, one that fails and one that is skipped are "
                "not told apart"
            )
    tests = [
        {"name": "codec", "suite": ["deltawire:pure"], "cmd": ["/b/codec"]},
        {"name": "tcp", "suite": ["deltawire:transports", "deltawire:threads"]},
        {"name": "arrows", "suite": ["deltawire:house"]},
    ]
    picks = [
        ("*", "", 3),
        ("*,-house", "", 2),
        ("threads", "", 1),
        ("pure,transports,-threads", "", 1),
        ("*", "^pure/", 1),
        ("*", "tcp|arrows", 2),
        ("*", "nothing", 0),
    ]
    for suites, pattern, number in picks:
        got = list(pick_tests.pick(tests, suites, pick_tests.re.compile(pattern)))
        if len(got) != number:
            failures.append(f"pick_tests: {suites} {pattern}: {got}, expected {number}")
    if list(pick_tests.pick(tests, "*", pick_tests.re.compile(""), "/b/")) != ["deltawire:codec"]:
        failures.append("pick_tests: --programs lets a script through")
    targets = [
        {"id": "1", "filename": ["/b/codec"]},
        {"id": "2", "filename": ["/b/x/tcp"]},
        {"id": "3", "filename": ["/b/no_test"]},
    ]
    wants = [{"depends": ["2"]}, {"depends": ["1", "2"]}, {"depends": []}]
    if pick_tests.targets_of(wants, targets, "/b") != ["codec", "x/tcp"]:
        failures.append("pick_tests: --targets names others than the tests depend on")
    return len(cases) + len(picks)


def main():
    root = sys.argv[1]
    failures = []
    number = (
        tree_mutants(root, failures) + snippet_mutants(root, failures) + object_mutants(failures)
    )
    number += (
        format_mutants(root, failures)
        + page_mutants(root, failures)
        + folder_mutants(root, failures)
        + manual_mutants(root, failures)
        + reference_mutants(root, failures)
        + blame_mutants(failures)
        + map_mutants(failures)
        + counting(failures)
    )
    for failure in failures:
        print(failure)
    print(f"{number} mutants, {len(failures)} survive")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
