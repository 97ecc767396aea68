# SPDX-License-Identifier: Apache-2.0
# tensor_files.py - writes tensors of torch as .safetensors files, which `deltawire measure` reads.
"""It needs neither torch nor the package safetensors to be imported."""

from __future__ import annotations

import ctypes
import json
import os
import pathlib
from typing import Any, Mapping, Union

DTYPES = {"torch.float32": "F32", "torch.float16": "F16", "torch.bfloat16": "BF16"}


def can_write(tensor: Any) -> bool:
    """Whether this is a tensor of torch with values of one of the DTYPES."""
    return (
        str(getattr(tensor, "dtype", "")) in DTYPES
        and str(getattr(tensor, "layout", "")) == "torch.strided"
        and not getattr(tensor, "is_meta", False)
    )


def write(path: "Union[str, os.PathLike[str]]", tensors: Mapping[str, Any]) -> None:
    """Writes tensors that can_write accepts, on any device. The file appears whole or not at all.

    Errors: OSError."""
    header, parts, used = {}, [], 0
    for name, tensor in tensors.items():
        values = tensor.detach().cpu().contiguous()
        size = values.numel() * values.element_size()
        offsets = [used, used + size]
        dtype, shape = DTYPES[str(values.dtype)], list(values.shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
        parts.append((values, size))
        used += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path = pathlib.Path(path)
    part = path.with_name(path.name + ".part")
    try:
        with part.open("xb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for values, size in parts:
                file.write(ctypes.string_at(values.data_ptr(), size) if size else b"")
        part.replace(path)
    except FileExistsError:
        raise  # somebody else's
    except BaseException:
        part.unlink(missing_ok=True)
        raise
