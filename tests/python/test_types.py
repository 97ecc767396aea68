# SPDX-License-Identifier: Apache-2.0
# test_types.py - what type checkers see of the package: names that mirror the C headers, types that
# functions return, and no errors in the package itself.
import os
import pathlib
import shutil
import subprocess
import typing

import pytest

import deltawire
from deltawire._library import ffi

PACKAGE = pathlib.Path(deltawire.__file__).parent

# mypy must say of each line what stands in its comment, and nothing of a line without one.
PROGRAM = """
import deltawire
import deltawire.torch

reveal_type(deltawire.Status.CORRUPT)  # Literal[deltawire.errors.Status.CORRUPT]
print(deltawire.Status.CORRUPTED)  # "Type[Status]" has no attribute "CORRUPTED"

def code(x: bytes, room: bytearray, stage: object) -> None:
    encoder = deltawire.Encoder("delta:bits=4")
    decoder = deltawire.Decoder("delta:bits=4")
    reveal_type(encoder.encode(x, [1]))  # "builtins.bytes"
    reveal_type(encoder.encode(x, [1], room))  # "Any"
    reveal_type(encoder.encode(x, out=room))  # "Any"
    reveal_type(decoder.decode(x).reply)  # "Union[builtins.bytes, None]"
    reveal_type(encoder.counters().keys_held)  # "builtins.int"
    reveal_type(encoder.counters().x_square)  # "builtins.float"
    reveal_type(encoder.counters().ratio)  # "builtins.float"
    print(encoder.counters().keys_hold)  # "Counters" has no attribute "keys_hold"

def move(link: deltawire.Link, group: deltawire.Group, x: object) -> None:
    reveal_type(link.counters().retransmits)  # "builtins.int"
    reveal_type(group.counters().poisoned)  # "builtins.int"
    deltawire.torch.send(x, 1, tagg=3)  # Unexpected keyword argument "tagg" for "send"
    deltawire.torch.recv(x, 1, config=3, tag="a")  # Argument "tag" to "recv" has incompatible type
    stage = deltawire.torch.compress_stage(x)
    reveal_type(stage)  # "deltawire.torch.pipeline.stage.CompressedStage"
    reveal_type(stage.compression_stats())  # "builtins.dict[builtins.str, Any]"
"""


def mypy(*args, folder):
    if shutil.which("mypy") is None:
        pytest.skip("mypy is not installed (Debian: mypy)")
    if os.environ.get("DW_TEST_SANITIZED"):
        pytest.skip("mypy looks at the same sources without AddressSanitizer")
    # Neither torch nor stubs of cffi need to be there, and none are looked at. mypy writes nothing
    # but its cache.
    options = ["--strict-optional", "--ignore-missing-imports", "--cache-dir", str(folder / "kept")]
    options += ["--no-site-packages", "--no-error-summary", "--config-file="]
    env = {**os.environ, "MYPYPATH": str(PACKAGE.parent)}
    done = subprocess.run(
        ["mypy", *options, *args], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    assert not done.stderr, done.stderr
    return done.stdout.splitlines()


def test_numbers_of_statuses_are_those_of_the_header():
    wanted = ffi.typeof("dw_status").relements.items()
    wanted = {name.replace("DW_ERR_", "").replace("DW_", ""): number for name, number in wanted}
    assert {status.name: status.value for status in deltawire.Status} == wanted


@pytest.mark.parametrize(
    "counters, struct",
    [
        (deltawire.Counters, "dw_counters"),
        (deltawire.LinkCounters, "dw_link_counters"),
        (deltawire.GroupCounters, "dw_group_counters"),
    ],
)
def test_fields_of_counters_are_those_of_the_header(counters, struct):
    fields = [(name, field.type.cname) for name, field in ffi.typeof(struct).fields]
    types = {"uint64_t": int, "double": float}
    wanted = [(name, types[text]) for name, text in fields if name != "struct_size"]
    assert list(counters._fields) == [name for name, _ in wanted]
    assert list(typing.get_type_hints(counters).items()) == wanted


def test_a_program_sees_types(tmp_path):
    lines = PROGRAM.splitlines()
    (tmp_path / "program.py").write_text(PROGRAM)
    said = {number: [] for number in range(1, len(lines) + 1)}
    for line in mypy("program.py", folder=tmp_path):
        place, number, text = line.split(":", 2)
        if place != "program.py":
            assert " note: " in text, line  # where a function is defined that was called wrongly
            continue
        said[int(number)].append(text)
    for number, line in enumerate(lines, 1):
        wanted = line.partition("  # ")[2]
        found = "\n".join(said[number])
        assert (wanted in found) if wanted else not found, (line, found)


def test_the_package_has_no_errors(tmp_path):
    assert mypy("-p", "deltawire", folder=tmp_path) == []
