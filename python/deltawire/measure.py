# SPDX-License-Identifier: Apache-2.0
# measure.py - python -m deltawire.measure: how codecs do on tensors of one's own.
"""python -m deltawire.measure FILE...

The same as `deltawire measure`, by the same C code, for who has only the package. It needs neither
numpy nor torch, except for .pt files, which are read by torch.load(weights_only=True)."""

from __future__ import annotations

import argparse
import os
import pathlib
import sys
import tempfile
import threading
from typing import Any, Iterable, Iterator, Optional, Sequence

from deltawire import tensor_files
from deltawire._library import ffi, native
from deltawire.errors import DeltawireError, line_of, refuse

TORCH = (".pt", ".pth")


DEPTH = 50  # of dictionaries and lists in each other; a list may contain itself


def _named(found: Any, path: str, depth: int = 0) -> "Iterator[tuple[str, Any]]":
    """The tensors in nested dictionaries and lists, named by their path."""
    if depth > DEPTH:
        refuse(f"dictionaries and lists are more than {DEPTH} deep in each other")
    if tensor_files.can_write(found):
        yield path or "tensor", found
        return
    if hasattr(found, "dtype"):
        print(f"deltawire: {path or 'tensor'} is left out: {found.dtype}", file=sys.stderr)
    items: "Iterable[tuple[Any, Any]]" = found.items() if isinstance(found, dict) else ()
    if isinstance(found, (list, tuple)):
        items = enumerate(found)
    for key, below in items:
        yield from _named(below, f"{path}.{key}" if path else str(key), depth + 1)


def _from_torch(path: str, folder: str) -> str:
    """Writes the tensors of a .pt file to a .safetensors file in the folder. Returns its path."""
    try:
        import torch
    except ImportError:
        refuse(f"{path} is a file of torch, which is not installed: save .safetensors or .npy")
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # of many kinds: OSError, UnpicklingError, RuntimeError ...
        refuse(f"{path}: torch cannot load it: {line_of(error)}")
    tensors: "dict[str, Any]" = {}
    try:
        for name, tensor in _named(found, ""):
            if name in tensors:
                refuse(f"two tensors have the name {name}: rename one of them")
            if name == "__metadata__":
                refuse(f"{name} is no name for a tensor in .safetensors: rename it")
            tensors[name] = tensor
        made = pathlib.Path(tempfile.mkdtemp(dir=folder)) / pathlib.Path(path).name
        tensor_files.write(made, tensors)
    except (DeltawireError, OSError) as error:
        refuse(f"{path}: {getattr(error, 'why', None) or line_of(error)}")
    return str(made)


def _call(options: Any, kept: "list[Any]", codes: "list[int]") -> None:
    """kept: what the options refer to, for as long as the call takes."""
    codes.append(int(native.dw_measure(options)))


def measure(
    files: "Sequence[str]",
    codec: Optional[str] = None,
    delta_from: Optional[str] = None,
    tensor: "Sequence[str]" = (),
    json: bool = False,
    picture: Optional[str] = None,
) -> int:
    """Measures, and prints to the process's standard output. The arguments are the options of
    `deltawire measure`. Returns the exit code: 0, 1 (an error of a file) or 2 (of an option)."""
    with tempfile.TemporaryDirectory(prefix="deltawire-") as folder:
        kept: "list[Any]" = []  # cffi frees what nothing refers to

        def text(given: "Optional[str]") -> Any:
            if given is None:
                return ffi.NULL
            kept.append(ffi.new("char[]", os.fsencode(given)))
            return kept[-1]

        def texts(given: "Sequence[str]") -> Any:
            kept.append(ffi.new("const char *[]", [text(one) for one in given] or [ffi.NULL]))
            return kept[-1]

        def readable(path: str) -> str:
            return _from_torch(path, folder) if path.lower().endswith(TORCH) else path

        try:
            paths = [readable(path) for path in files]
            earlier = None if delta_from is None else readable(delta_from)
        except DeltawireError as error:
            print(f"deltawire: {error.why}", file=sys.stderr)
            return 1
        options = ffi.new("dw_measure_options *")
        options.files, options.n_files, options.shown = texts(paths), len(paths), texts(files)
        options.tensors, options.n_tensors = texts(tensor), len(tensor)
        options.codecs, options.delta_from = text(codec), text(earlier)
        options.json, options.picture = json, text(picture)
        sys.stdout.flush()
        codes: "list[int]" = []
        # In a thread, so that an interrupt from the keyboard gets here, and the files are removed.
        work = threading.Thread(target=_call, args=(options, kept, codes), daemon=True)
        work.start()
        work.join()
        return codes[0]


def main(argv: "Optional[Sequence[str]]" = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m deltawire.measure",
        description="Measures codecs on tensors of your own, from .safetensors, .npy and .pt "
        "files. docs/measure.md tells what the figures are.",
    )
    add = parser.add_argument
    add("files", nargs="+", metavar="FILE")
    add("--codec", metavar="LIST", help="codecs, separated by blanks or semicolons; or all")
    add("--delta-from", metavar="FILE", help="the previous visit of the same tensors")
    add("-t", "--tensor", metavar="NAME", action="append", default=[], help="measure only these")
    add("-j", "--json", action="store_true", help="print one JSON document instead of tables")
    add("--picture", metavar="FILE", help="draw error against bits into FILE, as SVG")
    return measure(**vars(parser.parse_args(argv)))


if __name__ == "__main__":
    try:
        code = main()
    except KeyboardInterrupt:
        os._exit(130)  # at once: the thread still measures
    sys.exit(code)
