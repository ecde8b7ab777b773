"""Load the rows of a benchmark's data set from a local copy, or from the hub at a pinned commit."""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from oversharp.diagnostics.records.errors import ProblemError
from oversharp.diagnostics.tasks.files import Row, read_rows

#: Environment variable with a directory of local copies. Each copy has the name of its benchmark.
FOLDER_VARIABLE = "OVERSHARP_BENCHMARKS"
_FILE_SUFFIXES = ("", ".jsonl", ".parquet")
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, kw_only=True, slots=True)
class HubData:
    """One split of a data set on the hub.

    ``revision`` is a full commit hash, because a branch can change.
    """

    path: str
    revision: str
    split: str
    config: str | None = None


def data_rows(name: str, data: HubData, local: Path | None = None) -> Generator[Row, None, None]:
    """Yield the rows of benchmark ``name`` in the order of the data set, with the column names of the hub.

    ``local`` is a JSONL or Parquet file, a ``save_to_disk`` directory, or a directory with the hub's files. Default:
    the copy called ``name`` in the directory of OVERSHARP_BENCHMARKS, else the hub. Raises ``ProblemError`` with the
    command that makes a local copy.
    """
    path = local or _find_copy(name)
    return _hub_rows(name, data) if path is None else _local_rows(path, name, data)


def how_to_copy(name: str, data: HubData) -> str:
    """Return a hint: the command that makes a local copy, and the flag that uses the copy."""
    config = f', "{data.config}"' if data.config else ""
    return (
        f"on a machine with a network, run: python -c 'from datasets import load_dataset; load_dataset("
        f'"{data.path}"{config}, split="{data.split}", revision="{data.revision}").save_to_disk("{name}")\' '
        f"and use --task benchmark:{name}={name}, or {FOLDER_VARIABLE}=DIR with {name} in DIR"
    )


def _find_copy(name: str) -> Path | None:
    value = os.environ.get(FOLDER_VARIABLE)
    if not value:
        return None
    folder = Path(value).expanduser()
    if not folder.is_dir():
        raise ProblemError(
            f"{FOLDER_VARIABLE}={value}: no such directory; set it to the directory with the local copies, or unset it"
        )
    candidates = (folder / f"{name}{suffix}" for suffix in _FILE_SUFFIXES)
    return next((path for path in candidates if path.exists()), None)


def _local_rows(path: Path, name: str, data: HubData) -> Generator[Row, None, None]:
    if not path.exists():
        raise ProblemError(f"{path}: no local copy of {name}; {how_to_copy(name, data)}")
    if path.is_file():
        return read_rows(path)
    datasets = _datasets()
    try:
        if any((path / marker).exists() for marker in ("dataset_dict.json", "state.json")):
            loaded = datasets.load_from_disk(str(path))
            if isinstance(loaded, datasets.DatasetDict):
                if data.split not in loaded:
                    splits = ", ".join(sorted(loaded))
                    raise ProblemError(f'{path}: no split "{data.split}", only {splits}; save that split')
                loaded = loaded[data.split]
        else:
            loaded = datasets.load_dataset(str(path), data.config, split=data.split)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise ProblemError(
            f"{path}: cannot be read as a data set ({_one_line(error)}); {how_to_copy(name, data)}"
        ) from error
    return _numbered(loaded, str(path))


def _hub_rows(name: str, data: HubData) -> Generator[Row, None, None]:
    datasets = _datasets()
    where = f"benchmark:{name}"
    try:
        loaded = datasets.load_dataset(data.path, data.config, split=data.split, revision=data.revision)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise ProblemError(f"{where} cannot be fetched ({_one_line(error)}); {how_to_copy(name, data)}") from error
    # without a network, datasets returns the newest commit in its cache instead of the requested revision
    configs = {Path(file["filename"]).parent.name for file in loaded.cache_files}
    others = sorted(commit for commit in configs - {data.revision} if _COMMIT.fullmatch(commit))
    if others:
        raise ProblemError(
            f"{where}: the cache of datasets has {data.path} at {others[0]}, not at {data.revision}; "
            f"{how_to_copy(name, data)}"
        )
    return _numbered(loaded, where)


def _datasets() -> ModuleType:
    try:
        return import_module("datasets")
    except ImportError as error:
        raise ProblemError(
            f"benchmarks need the package datasets ({error}); run: pip install '.[tasks]' in oversharp's checkout, "
            "or give a JSONL or Parquet file: --task benchmark:NAME=FILE"
        ) from error


def _numbered(rows: Iterable[Mapping[str, Any]], source: str) -> Generator[Row, None, None]:
    for number, fields in enumerate(rows, start=1):
        yield Row(where=f"{source} row {number}", place=f"row {number}", fields=fields)


def _one_line(error: BaseException) -> str:
    return (str(error).partition("\n")[0] or type(error).__name__)[:160]
