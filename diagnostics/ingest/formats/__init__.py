"""Importers of other tools' samples, one file per tool.

A file that defines ``IMPORTER`` is found automatically. Other distributions add importers through the entry-point group
``oversharp.importers``; an entry point names an ``Importer`` or a module that defines ``IMPORTER``.
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
from oversharp.diagnostics.ingest.formats.rows import first_records, holds_records
from oversharp.diagnostics.records.errors import ConfigError, ImportFileError
from oversharp.diagnostics.records.plugins import find_records
from oversharp.diagnostics.records.types import COUNTS_ALONE

ENTRY_POINT_GROUP = "oversharp.importers"
#: Formats that no file identifies, so the user must name them.
BY_NAME_ONLY = frozenset({"mapped", COUNTS_ALONE})
#: Files next to a store: ``audit.made.json``, and the folder ``audit.tokens``.
_MADE, _TOKENS = ".made.json", ".tokens"
#: Tables whose fields only --map names. JSON is not among them: tools keep settings and averages in it.
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
    """Files in the paths of an import, each once.

    ``unknown``: files of a known suffix and an unrecognized format. ``refused``: files without a readable record,
    compressed Parquet, and pickles that were not allowed, each with the reason, one line without the path.
    """

    files: tuple[FoundFile, ...]
    unknown: tuple[Path, ...]
    refused: Mapping[Path, str]


@cache
def all_importers() -> Mapping[str, Importer]:
    """Return every importer by name. Raises ``ConfigError`` for a broken or clashing plugin.

    >>> all_importers()["verl"].title
    'verl, validation and rollout dumps'
    """
    importers = find_records(Importer, sys.modules[__name__], ENTRY_POINT_GROUP)
    return MappingProxyType(dict(sorted(importers.items())))


def get_importer(name: str) -> Importer:
    """Return the importer of that name. Raises ``ConfigError`` with the nearest names.

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

    ``name`` chooses one importer for all of them. Raises ``ImportFileError`` for a missing path, or with the first
    cause if no file can be read.
    """
    importers = (
        [get_importer(name)]
        if name
        else [candidate for candidate in all_importers().values() if candidate.name not in BY_NAME_ONLY]
    )
    suffixes = {suffix for importer in importers for suffix in importer.suffixes}
    found: list[FoundFile] = []
    unknown: list[Path] = []
    refused: dict[Path, str] = {}
    seen = suffixes if name else suffixes | _TABLES
    for file in dict.fromkeys(file for path in paths for file in _files(path, seen, importers)):
        try:
            importer = _reader(file, importers, by_name=name is not None)
        except ImportFileError as error:
            refused[file] = str(error).removeprefix(f"{file}: ")
            continue
        if importer is None:
            unknown.append(file)
        elif importer.pickled and not allow_pickle:
            refused[file] = "is a pickle, which can run code when it is read; pass --allow-pickle if you made it"
        else:
            found.append(FoundFile(path=file, importer=importer))
    if not found:
        raise _nothing_readable(paths, unknown, refused, suffixes)
    return FoundFiles(files=tuple(found), unknown=tuple(unknown), refused=refused)


def _files(path: Path, suffixes: set[str], importers: Sequence[Importer] = ()) -> list[Path]:
    if path.is_file():
        return [] if _is_beside_a_store(path) else [path]
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
    return sorted(file for file in candidates if file.is_file() and not _is_beside_a_store(file))


def _is_beside_a_store(file: Path) -> bool:
    """Return whether oversharp wrote the file next to a store: its sources, or its log-probabilities."""
    return file.name.endswith(_MADE) or (
        file.parent.suffix == _TOKENS and file.absolute().parent.with_suffix(".duckdb").is_file()
    )


def _reader(file: Path, importers: Sequence[Importer], *, by_name: bool) -> Importer | None:
    """Return the importer of a file; with ``by_name`` the only one, if the suffix is right.

    Raises ``ImportFileError`` for a file of such a suffix that holds no readable record, and for a compressed one
    that is no text.
    """
    if is_compressed(file) and not holds_records(file):
        raise ImportFileError(f"{file}: is compressed; unpack it first")
    for importer in importers:
        if importer.is_also(file):
            return importer
    candidates = [importer for importer in importers if without_compression(file).suffix.lower() in importer.suffixes]
    for record in _heads(file) if candidates else ():
        for importer in candidates:
            if by_name or importer.recognises(file, record):
                return importer
    return None


def _heads(file: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the first records, one empty record for other files. Raises ``ImportFileError`` without any."""
    if holds_records(file):
        yield from first_records(file, RECORDS_ASKED)
        return
    refuse_stand_in(file)
    try:
        with file.open("rb") as content:
            start = content.read(len(_ZIP))
        if not start:
            raise ImportFileError(f"{file}: is empty")
        if start == _ZIP and not zipfile.is_zipfile(file):
            raise ImportFileError(f"{file}: a ZIP archive without its end; cut short? copy it again")
    except OSError as error:
        raise ImportFileError(f"{file}: cannot be read ({error.strerror})") from error
    yield {}


def _nothing_readable(
    paths: Sequence[Path], unknown: Sequence[Path], refused: Mapping[Path, str], suffixes: set[str]
) -> ImportFileError:
    if refused:
        file, why = next(iter(refused.items()))
        return ImportFileError(f"{file}: {why}")
    endings = ", ".join(sorted(suffixes))
    if unknown and not holds_records(unknown[0]):
        return ImportFileError(f"{unknown[0]}: unrecognized format; dumps of samples end in {endings}")
    if unknown:
        fields = ", ".join(next(first_records(unknown[0], 1)))
        return ImportFileError(f"{unknown[0]}: unrecognized format ({fields}); {_MAP}")
    missing = f"{', '.join(map(str, paths))}: no dump of samples that ends in {endings}"
    mapped = set(get_importer("mapped").suffixes)
    near = next((file for path in paths for file in _files(path, mapped)), None)
    if near is None:
        return ImportFileError(missing)
    return ImportFileError(f"{missing}; of {near.name} {_MAP}")
