"""Importers of other tools' samples, one file per tool.

A file that defines ``IMPORTER`` is found automatically. Other packages add importers through the entry-point group
``oversharp.importers``. An entry point refers to an ``Importer`` or to a module that defines ``IMPORTER``.
"""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from oversharp.diagnostics.ingest.formats.contract import Importer
from oversharp.diagnostics.ingest.formats.opening import is_compressed, refuse_stand_in, without_compression
from oversharp.diagnostics.ingest.formats.rows import RECORDS_ASKED as RECORDS_ASKED
from oversharp.diagnostics.ingest.formats.rows import first_records, has_records
from oversharp.diagnostics.records.errors import ConfigError, ImportFileError
from oversharp.diagnostics.records.plugins import find_records
from oversharp.diagnostics.records.types import COUNTS_ALONE

ENTRY_POINT_GROUP = "oversharp.importers"
#: Formats without automatic detection: the user has to pass --format or --map.
BY_NAME_ONLY = frozenset({"mapped", COUNTS_ALONE})
#: Suffixes of files that oversharp writes next to a store: ``audit.made.json`` and the folder ``audit.tokens``.
_MADE, _TOKENS = ".made.json", ".tokens"
#: Suffixes of tables that need --map. JSON is excluded because tools also write settings and averages as JSON.
_TABLES = frozenset({".csv", ".ndjson"})
_ZIP = b"PK\x03\x04"
_MAP = "name the fields with --map prompt=…,response=…,gold=…,reward=…,step=… or pass --format"


@dataclass(frozen=True, kw_only=True)
class FoundFile:
    """A file and its importer."""

    path: Path
    importer: Importer


@dataclass(frozen=True, kw_only=True)
class FoundFiles:
    """Files in the paths of an import, without repeats.

    ``unknown`` has files with a known suffix but an unrecognized format. ``refused`` maps other unreadable files to the
    reason in one line, without the path: files without a readable record, compressed Parquet, and pickles without
    --allow-pickle.
    """

    files: tuple[FoundFile, ...]
    unknown: tuple[Path, ...]
    refused: Mapping[Path, str]


@cache
def all_importers() -> Mapping[str, Importer]:
    """Return all importers by name. Raises ``ConfigError`` for a broken or clashing plugin.

    >>> all_importers()["verl"].title
    'verl, validation and rollout dumps'
    """
    importers = find_records(Importer, sys.modules[__name__], ENTRY_POINT_GROUP)
    return MappingProxyType(dict(sorted(importers.items())))


def get_importer(name: str) -> Importer:
    """Return the importer ``name``.

    Raises ``ConfigError`` for an unknown name, with the nearest ones.

    >>> get_importer("verl").name
    'verl'
    """
    importers = all_importers()
    if name not in importers:
        near = get_close_matches(name, importers, n=3) or list(importers)
        raise ConfigError(f"--format {name}: no such format; use one of: {', '.join(near)}")
    return importers[name]


def find_files(paths: Sequence[Path], *, name: str | None = None, allow_pickle: bool = False) -> FoundFiles:
    """Return the files in ``paths`` (files or folders), each with its importer.

    With ``name``, all files get the importer of that name. Raises ``ImportFileError`` for a missing path. If no file
    can be read, the error contains the first reason.
    """
    importers = (
        [get_importer(name)]
        if name
        else [candidate for candidate in all_importers().values() if candidate.name not in BY_NAME_ONLY]
    )
    suffixes = {suffix for importer in importers for suffix in importer.suffixes}
    files: list[FoundFile] = []
    unknown: list[Path] = []
    refused: dict[Path, str] = {}
    listed_suffixes = suffixes if name else suffixes | _TABLES
    for file in dict.fromkeys(file for path in paths for file in _list_files(path, listed_suffixes, importers)):
        try:
            importer = _find_importer(file, importers, by_name=name is not None)
        except ImportFileError as error:
            refused[file] = str(error).removeprefix(f"{file}: ")
            continue
        if importer is None:
            unknown.append(file)
        elif importer.pickled and not allow_pickle:
            refused[file] = "is a pickle, which can run code when it is read; pass --allow-pickle if you made it"
        else:
            files.append(FoundFile(path=file, importer=importer))
    if not files:
        raise _no_files_error(paths, unknown, refused, suffixes)
    return FoundFiles(files=tuple(files), unknown=tuple(unknown), refused=refused)


def _list_files(path: Path, suffixes: set[str], importers: Sequence[Importer] = ()) -> list[Path]:
    if path.is_file():
        return [] if _is_store_file(path) else [path]
    if not path.is_dir():
        raise ImportFileError(f"{path}: no such file or folder")
    candidates = (
        file
        for file in path.rglob("*")
        if file.suffix.lower() in suffixes
        or (
            is_compressed(file)
            and without_compression(file).suffix.lower() in suffixes
            and not without_compression(file).exists()
        )
        or any(importer.is_also(file) for importer in importers)
    )
    return sorted(file for file in candidates if file.is_file() and not _is_store_file(file))


def _is_store_file(file: Path) -> bool:
    """Return whether oversharp wrote the file next to a store, as ``.made.json`` or token scores."""
    return file.name.endswith(_MADE) or (
        file.parent.suffix == _TOKENS and file.absolute().parent.with_suffix(".duckdb").is_file()
    )


def _find_importer(file: Path, importers: Sequence[Importer], *, by_name: bool) -> Importer | None:
    """Return the importer of a file.

    With ``by_name`` the suffix suffices, if only one importer reads it. Raises ``ImportFileError`` for a known suffix
    without a readable record, and for compressed binary files.
    """
    if is_compressed(file) and not has_records(file):
        raise ImportFileError(f"{file}: this format cannot be read compressed; unpack the file first")
    for importer in importers:
        if importer.is_also(file):
            return importer
    candidates = [importer for importer in importers if without_compression(file).suffix.lower() in importer.suffixes]
    for record in _first_records(file) if candidates else ():
        for importer in candidates:
            if by_name or importer.recognises(file, record):
                return importer
    return None


def _first_records(file: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the first records of a file; one empty record if the format has no records.

    Raises ``ImportFileError``.
    """
    if has_records(file):
        yield from first_records(file, RECORDS_ASKED)
        return
    refuse_stand_in(file)
    try:
        with file.open("rb") as content:
            start = content.read(len(_ZIP))
        if not start:
            raise ImportFileError(f"{file}: is empty")
        if start == _ZIP and not zipfile.is_zipfile(file):
            raise ImportFileError(f"{file}: is a truncated ZIP archive; copy it again")
    except OSError as error:
        raise ImportFileError(f"{file}: cannot be read ({error.strerror})") from error
    yield {}


def _no_files_error(
    paths: Sequence[Path], unknown: Sequence[Path], refused: Mapping[Path, str], suffixes: set[str]
) -> ImportFileError:
    if refused:
        file, why = next(iter(refused.items()))
        return ImportFileError(f"{file}: {why}")
    endings = ", ".join(sorted(suffixes))
    if unknown and not has_records(unknown[0]):
        return ImportFileError(f"{unknown[0]}: unrecognized format; dumps of samples have the suffix {endings}")
    if unknown:
        fields = ", ".join(next(first_records(unknown[0], 1)))
        return ImportFileError(f"{unknown[0]}: unrecognized format ({fields}); {_MAP}")
    missing = f"{', '.join(map(str, paths))}: no dump of samples with suffix {endings}"
    mapped = set(get_importer("mapped").suffixes)
    near = next((file for path in paths for file in _list_files(path, mapped)), None)
    if near is None:
        return ImportFileError(missing)
    return ImportFileError(f"{missing}; for {near.name} {_MAP}")
